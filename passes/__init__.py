"""The passes that come with irscope, one file each. The table below names them without importing them."""

from __future__ import annotations

from irscope.passkit.registry import PassEntry

PASSES: dict[str, PassEntry] = {
    "activations": PassEntry(
        "irscope.passes.activations:Activations",
        "List what the forward keeps for the backward: how long it lies idle, and what recomputing or moving it would cost.",
    ),
    "advise": PassEntry(
        "irscope.passes.advise:Advise",
        "List what could be better, ranked by what it saves: memory, time, arithmetic; each with its evidence and how sure it is.",
    ),
    "alias": PassEntry("irscope.passes.alias:Alias", "Find which values share a storage."),
    "annotate": PassEntry("irscope.passes.annotate:Annotate", "Write inferred types onto the values of the graph."),
    "arch": PassEntry(
        "irscope.passes.arch:Arch", "Say what kind of model this is, with the evidence: attention, convolution, recurrence, experts, scans."
    ),
    "bytes": PassEntry(
        "irscope.passes.traffic:Traffic", "Count the bytes that every node reads and writes, and what the whole model must move at least."
    ),
    "cuda_memory": PassEntry(
        "irscope.passes.cuda_memory:CudaMemory",
        "Predict the counters of PyTorch's CUDA allocator for loading a model and running it twice.",
    ),
    "checkpoint": PassEntry(
        "irscope.passes.checkpoint:Checkpoint",
        "Choose what a training step recomputes, under a budget of memory or as a curve of peak against time.",
    ),
    "curve": PassEntry("irscope.passes.curve:Curve", "Tell how the peak of memory grows with the sizes of symbols, from one analysis."),
    "dce": PassEntry("irscope.passes.dce:DeadCode", "Remove nodes and weights that no output depends on."),
    "effects": PassEntry("irscope.passes.effects:Effects", "Find which nodes must stay in order as they use the same storage."),
    "explain-peak": PassEntry(
        "irscope.passes.explain_peak:ExplainPeak", "List the changes of the model's source that would lower the peak most, each computed."
    ),
    "energy": PassEntry(
        "irscope.passes.energy:Energy", "Bound the energy of one run from stated constants, and its carbon for a country's grid."
    ),
    "fixpoint": PassEntry("irscope.passes.fixpoint:Fixpoint", "Repeat transforms until none of them changes the graph."),
    "flops": PassEntry("irscope.passes.flops:Flops", "Count the arithmetic and the bytes of every node."),
    "fold": PassEntry("irscope.passes.fold:Fold", "Replace nodes whose small results are known by constants."),
    "layers": PassEntry(
        "irscope.passes.layers:Layers",
        "List FLOPs, memory traffic, arithmetic intensity and bottleneck of every operator: --format layers-json writes them.",
    ),
    "fusion": PassEntry(
        "irscope.passes.fusion:Fusion", "Find groups of nodes that one kernel could do, with the bytes and launches that would save."
    ),
    "liveness": PassEntry("irscope.passes.liveness:Liveness", "Find how many bytes are alive at each step and where the peak is."),
    "ort_memory": PassEntry(
        "irscope.passes.ort_memory:OrtMemory",
        "Predict the memory fields of ONNX Runtime's profile: bytes in use after every kernel, in the first and the second run.",
    ),
    "ort_order": PassEntry(
        "irscope.passes.ort_order:OrtOrder",
        "Predict the order in which ONNX Runtime runs kernels, for each of its settings, and what a reordered file would change there.",
    ),
    "params": PassEntry("irscope.passes.params:Params", "List parameters and buffers with their sizes, and statistics of their values."),
    "plan": PassEntry("irscope.passes.plan:Plan", "Give every tensor a place in one arena that is as small as can be."),
    "prune-report": PassEntry(
        "irscope.passes.prune_report:PruneReport",
        "Tell which channels do nothing, what the model costs without them, and how much energy sparse matrices keep.",
    ),
    "quantize-error": PassEntry(
        "irscope.passes.quantize_error:QuantizeError",
        "Tell how much of each matrix is lost when it is rounded to 8 or 4 bits, and the smallest format that reaches a target in dB.",
    ),
    "ranges": PassEntry("irscope.passes.ranges:Ranges", "Find from which step to which each storage lives."),
    "recompute": PassEntry(
        "irscope.passes.recompute:Recompute",
        "Make results again instead of keeping them over the peak, as far as little arithmetic does that.",
    ),
    "reorder": PassEntry(
        "irscope.passes.reorder:Reorder",
        "Put the nodes into the order that needs least memory, where that is another one than as written.",
    ),
    "roofline": PassEntry("irscope.passes.roofline:Roofline", "Bound the time of each node on a device, and say which resource binds it."),
    "schedule": PassEntry(
        "irscope.passes.schedule:Schedule",
        "Find the order of the nodes that needs least memory, and prove how little any order can need.",
    ),
    "shapes": PassEntry("irscope.passes.shapes:Shapes", "Infer the type of every value, with reasons for what stays unknown."),
    "stats": PassEntry("irscope.passes.stats:Stats", "Count operators by kind and module, depth and widest point."),
    "sweep": PassEntry("irscope.passes.sweep:Sweep", "Tell memory, FLOPs, bytes and the least time at many sizes of symbols."),
    "training": PassEntry(
        "irscope.passes.training_memory:TrainingMemory",
        "Predict what a training step needs: the counters of PyTorch's allocator step by step, and bytes by category over the phases.",
    ),
    "verify": PassEntry("irscope.passes.verify:Verify", "Check the graph against the rules of the IR."),
}

PIPELINES: dict[str, str] = {
    "default": "shapes,params,flops,liveness",
    "cleanup": "fixpoint{max=4}(fold,dce)",
}
