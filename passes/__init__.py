"""The passes that come with irscope, one file each. The table below names them without importing them."""

from __future__ import annotations

from irscope.passkit.registry import PassEntry

PASSES: dict[str, PassEntry] = {
    "alias": PassEntry("irscope.passes.alias:Alias", "Find which values share a storage."),
    "annotate": PassEntry("irscope.passes.annotate:Annotate", "Write inferred types onto the values of the graph."),
    "dce": PassEntry("irscope.passes.dce:DeadCode", "Remove nodes and weights that no output depends on."),
    "effects": PassEntry("irscope.passes.effects:Effects", "Find which nodes must stay in order as they use the same storage."),
    "fixpoint": PassEntry("irscope.passes.fixpoint:Fixpoint", "Repeat transforms until none of them changes the graph."),
    "flops": PassEntry("irscope.passes.flops:Flops", "Count the arithmetic and the bytes of every node."),
    "fold": PassEntry("irscope.passes.fold:Fold", "Replace nodes whose small results are known by constants."),
    "liveness": PassEntry("irscope.passes.liveness:Liveness", "Find how many bytes are alive at each step and where the peak is."),
    "params": PassEntry("irscope.passes.params:Params", "List parameters and buffers with their sizes."),
    "ranges": PassEntry("irscope.passes.ranges:Ranges", "Find from which step to which each storage lives."),
    "shapes": PassEntry("irscope.passes.shapes:Shapes", "Infer the type of every value, with reasons for what stays unknown."),
    "stats": PassEntry("irscope.passes.stats:Stats", "Count operators by kind and module, depth and widest point."),
    "verify": PassEntry("irscope.passes.verify:Verify", "Check the graph against the rules of the IR."),
}

PIPELINES: dict[str, str] = {
    "default": "shapes,params,flops,liveness",
    "cleanup": "fixpoint{max=4}(fold,dce)",
}
