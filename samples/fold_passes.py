"""Two passes that fold into weights: `irscope export --passes samples/fold_passes.py:FoldNorms,dce MODEL -o folded.onnx`."""

import numpy as np

from irscope.api import derived_weight, transform


@transform("fold-norms")
def FoldNorms(graph, ctx):
    """Scale the weights of convolutions without a bias by the batch normalization behind them."""
    folded = 0
    for norm in graph:
        conv = norm.inputs[0].node if norm.op == "nn.batch_norm" and not norm.attrs.get("training") else None
        if conv is None or conv.op != "nn.conv" or len(conv.inputs) > 2 or conv.outputs[0].users != {norm: 1}:
            continue
        x, weight = conv.inputs
        scale, shift, mean, var = norm.inputs[1:5]
        epsilon = norm.attrs["epsilon"]

        def scaled(weight, scale, var, epsilon=epsilon):
            return weight * (scale / np.sqrt(var + epsilon)).reshape(-1, *[1] * (weight.ndim - 1))

        def moved(scale, shift, mean, var, epsilon=epsilon):
            return shift - mean * scale / np.sqrt(var + epsilon)

        # Nothing is computed here: the values follow when somebody reads them.
        new = derived_weight(graph, weight.type, scaled, [weight, scale, var])
        bias = derived_weight(graph, shift.type, moved, [scale, shift, mean, var])
        if new is None or bias is None:
            continue
        conv.inputs = (x, new, bias)
        graph.replace_uses(norm.outputs[0], conv.outputs[0])
        graph.erase(norm)
        folded += 1
    ctx.stat("folded", folded)
    return folded > 0


@transform("fold-transposes")
def FoldTransposes(graph, ctx):
    """Store weights the way round that they are read."""
    folded = 0
    for node in graph:
        if node.op != "view.permute" or (perm := node.attrs.get("perm")) is None:
            continue
        turned = derived_weight(graph, node.outputs[0].type, lambda array, perm=perm: array.transpose(perm), node.inputs)
        if turned is not None:
            graph.replace_uses(node.outputs[0], turned)
            graph.erase(node)
            folded += 1
    ctx.stat("folded", folded)
    return folded > 0
