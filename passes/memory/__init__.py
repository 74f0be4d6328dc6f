"""Memory of devices: what models ask for, what allocators make of it, and how that depends on sizes.

    points = parse_points(["batch=1..128", "seq=128,256"], program)    every combination, by the model's own symbols
    rows = Evaluator(points.columns).rows([formula, ...])              any formulas, one row each: FLOPs, bytes, seconds
    peaks = peaks_at(timeline, points)                                 the highest step and its bytes at every point
    counted = simulator(ctx, "auto").counted(points)                   what PyTorch's allocator counts at every point; None without it

`Model.rebound(sizes)` of a session reads the model again at one point, where a formula is not enough.
"""
