"""The order in which ONNX Runtime runs the kernels of a graph."""

from __future__ import annotations

from irscope.passes.ort.kernels import Launch, Launches


def execution_order(found: Launches) -> list[Launch]:
    """ONNX Runtime's default order: backwards and depth first from what nothing reads, later nodes of the file before earlier ones."""
    launches = found.launches
    maker = [-1] * len(found.values)
    for index, launch in enumerate(launches):
        for value in launch.outputs:
            maker[value] = index
    is_read = bytearray(len(launches))
    makers: list[list[int]] = []
    for launch in launches:
        needed = sorted({maker[value] for value in (*launch.inputs, *launch.captured) if value >= 0})
        if needed and needed[0] < 0:
            del needed[0]
        for index in needed:
            is_read[index] = 1
        makers.append(needed)
    order: list[Launch] = []
    seen = bytearray(len(launches))
    # A negative number stands for a node whose makers have all been visited.
    pending = [index for index in range(len(launches)) if not is_read[index]]
    while pending:
        index = pending.pop()
        if index < 0:
            order.append(launches[~index])
        elif not seen[index]:
            seen[index] = 1
            pending.append(~index)
            pending.extend(other for other in makers[index] if not seen[other])
    return order
