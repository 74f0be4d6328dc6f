"""A pass of one's own: `irscope run --passes samples/custom_pass.py:NarrowConvs{below=64} model.onnx`."""

from irscope.api import Table, analysis


@analysis("narrow-convs", reads="topology,types,attrs")
def NarrowConvs(graph, ctx, *, below: int = 16):
    """Convolutions whose input has fewer channels than tensor cores like."""
    convs = [(node.name, node.inputs[0].type.shape[1]) for node in graph.walk() if node.op == "nn.conv"]
    return Table.of([row for row in convs if row[1] < below], columns=["node", "channels:count"], title="narrow convolutions")
