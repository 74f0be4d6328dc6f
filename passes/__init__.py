"""The passes that come with irscope, one file each. The table below names them without importing them."""

from __future__ import annotations

from irscope.passkit.registry import PassEntry

PASSES: dict[str, PassEntry] = {
    "activations": PassEntry(
        "irscope.passes.training.activations:Activations",
        "List the tensors saved for the backward: how long each is unused, and the cost of recomputing or offloading it.",
    ),
    "advise": PassEntry(
        "irscope.passes.advice.advise:Advise",
        "Rank possible improvements by the memory, time or arithmetic that each saves, with evidence and confidence.",
    ),
    "alias": PassEntry("irscope.passes.graph.alias:Alias", "Find which values share a storage."),
    "annotate": PassEntry("irscope.passes.graph.transforms:Annotate", "Write inferred types onto the values of the graph."),
    "arch": PassEntry(
        "irscope.passes.patterns.arch:Arch",
        "Classify the model (attention, convolution, recurrence, mixture of experts, scan) and list the evidence.",
    ),
    "bytes": PassEntry(
        "irscope.passes.cost.roofline:Traffic",
        "Count the bytes that every node reads and writes, and a lower bound of the whole model's traffic.",
    ),
    "canonicalize": PassEntry(
        "irscope.passes.graph.rewriting:Canonicalize",
        "Bring the graph into a plain form: fold constants, drop what changes nothing (x * 1, a cast to the own type) and dead nodes.",
    ),
    "cse": PassEntry(
        "irscope.passes.graph.rewriting:CommonSubexpressions",
        "Common subexpression elimination: compute once what nodes of equal operators, attributes and operands compute.",
    ),
    "cuda-memory": PassEntry(
        "irscope.passes.memory.cuda:CudaMemory",
        "Predict the counters of PyTorch's CUDA allocator for loading a model and running it twice.",
    ),
    "checkpoint": PassEntry(
        "irscope.passes.training.checkpoint:Checkpoint",
        "Choose the activations that a training step recomputes (checkpointing), under a memory budget or as a curve of peak against time.",
    ),
    "curve": PassEntry(
        "irscope.passes.memory.curve:Curve", "Compute peak memory as a function of the sizes of symbols, from one analysis."
    ),
    "dce": PassEntry(
        "irscope.passes.graph.transforms:DeadCode", "Dead code elimination: remove nodes and weights that no output depends on."
    ),
    "effects": PassEntry("irscope.passes.order.effects:Effects", "Find ordering constraints between nodes that use the same storage."),
    "explain-peak": PassEntry(
        "irscope.passes.memory.explain_peak:ExplainPeak",
        "List the changes of the model's source that lower the memory peak most, with the computed peak of each.",
    ),
    "energy": PassEntry(
        "irscope.passes.cost.energy:Energy", "Bound the energy of one run from stated constants, and its carbon for a country's grid."
    ),
    "fixpoint": PassEntry("irscope.passes.graph.transforms:Fixpoint", "Repeat transforms until none of them changes the graph."),
    "flops": PassEntry("irscope.passes.cost.flops:Flops", "Count the arithmetic and the bytes of every node."),
    "fold": PassEntry(
        "irscope.passes.graph.transforms:Fold",
        "Constant folding: replace nodes of known small results by constants, branches by the body that runs, on request also weights.",
    ),
    "fold-batch-norm": PassEntry(
        "irscope.passes.graph.folding:FoldBatchNorm",
        "Batch normalization folding: scale the weights of the convolution or linear layer before it, and remove the normalization.",
    ),
    "inline": PassEntry(
        "irscope.passes.graph.rewriting:Inline",
        "Function inlining: put the bodies of functions in the place of their calls, and take out functions that nothing calls.",
    ),
    "layers": PassEntry(
        "irscope.passes.cost.roofline:Layers",
        "List FLOPs, memory traffic, arithmetic intensity and bottleneck of every operator: --format layers-json writes them.",
    ),
    "fusion": PassEntry(
        "irscope.passes.patterns.fusion:Fusion",
        "Find groups of nodes that could be fused into one kernel, with the bytes and launches saved.",
    ),
    "liveness": PassEntry("irscope.passes.memory.liveness:Liveness", "Compute the bytes alive at each step, and the peak."),
    "modules": PassEntry(
        "irscope.passes.cost.modules:Modules",
        "List what each module has and costs: parameters, FLOPs, bytes, least time, and its part of the memory peak.",
    ),
    "ort-memory": PassEntry(
        "irscope.passes.ort.memory:OrtMemory",
        "Predict the memory fields of ONNX Runtime's profile: bytes in use after every kernel, in the first and the second run.",
    ),
    "ort-order": PassEntry(
        "irscope.passes.ort.order:OrtOrder",
        "Predict the order in which ONNX Runtime runs kernels, for each of its settings, and what a reordered file would change there.",
    ),
    "params": PassEntry(
        "irscope.passes.weights.params:Params", "List parameters and buffers with their sizes, and statistics of their values."
    ),
    "plan": PassEntry("irscope.passes.order.plan:Plan", "Assign every tensor an offset in one arena of minimal size."),
    "prune-report": PassEntry(
        "irscope.passes.weights.prune_report:PruneReport",
        "Report rows and columns of zeros, and how much energy pruned sparse matrices keep.",
    ),
    "quantize-error": PassEntry(
        "irscope.passes.weights.values:QuantizeError",
        "Compute the error of quantizing each matrix to 8 or 4 bits, and the smallest format that reaches a target in dB.",
    ),
    "ranges": PassEntry("irscope.passes.lifetimes.traced:Ranges", "Compute the live range of each storage: its first and last step."),
    "recompute": PassEntry(
        "irscope.passes.order.transforms:Recompute",
        "Rematerialization: recompute results instead of keeping them alive over the peak, within a budget of extra arithmetic.",
    ),
    "reorder": PassEntry(
        "irscope.passes.order.transforms:Reorder",
        "Put the nodes into the topological order of least peak memory, if it is better than the present one.",
    ),
    "roofline": PassEntry(
        "irscope.passes.cost.roofline:Roofline",
        "Compute a roofline lower bound for the time of each node on a device, and the resource that limits it.",
    ),
    "schedule": PassEntry(
        "irscope.passes.order.schedule:Schedule",
        "Find the topological order of least peak memory, and a proven lower bound for every order.",
    ),
    "shapes": PassEntry("irscope.passes.inference.shapes:Shapes", "Infer the type of every value, with reasons for what stays unknown."),
    "stats": PassEntry("irscope.passes.graph.stats:Stats", "Count operators by kind and module, depth and widest point."),
    "store-as": PassEntry(
        "irscope.passes.weights.store_as:StoreAs",
        "Compute what weights would take in few bits under a scheme, what stays as it is, and what rounding loses.",
    ),
    "sweep": PassEntry("irscope.passes.memory.curve:Sweep", "Compute memory, FLOPs, bytes and time at many sizes of symbols."),
    "time": PassEntry(
        "irscope.passes.cost.time:Time",
        "Predict how long a run takes on a device, node by node, with the interval in which nine of ten real times lie.",
    ),
    "training": PassEntry(
        "irscope.passes.training.memory:TrainingMemory",
        "Predict what a training step needs: the counters of PyTorch's allocator step by step, and bytes by category over the phases.",
    ),
    "verify": PassEntry(
        "irscope.passes.graph.transforms:Verify",
        "Check the graph against the rules of the IR, and its nodes against those of their operators.",
    ),
    "xla-memory": PassEntry(
        "irscope.passes.lifetimes.xla:XlaMemory",
        "Predict what XLA's CPU compiler says of a program: bytes of arguments, results and temporaries, and FLOPs.",
    ),
}

PIPELINES: dict[str, str] = {
    "default": "shapes,params,flops,liveness",
    "cleanup": "fixpoint{max=4}(fold,dce)",
}
