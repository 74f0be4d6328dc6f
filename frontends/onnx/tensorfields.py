"""Every tensor that stands somewhere in a model: weights, attributes, those of inner graphs, functions and training."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

_EXTERNAL = 1


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model."""
    graphs = [model.graph]
    for info in model.training_info:
        graphs += [info.initialization, info.algorithm]
    nodes = [node for function in model.functions for node in function.node]
    attributes = [attribute for function in model.functions for attribute in getattr(function, "attribute_proto", ())]
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
        elif nodes:
            attributes.extend(nodes.pop().attribute)
        else:
            attribute = attributes.pop()
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
            for sparse in (*attribute.sparse_tensors, *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ())):
                yield from (sparse.values, sparse.indices)
            graphs.extend(attribute.graphs)
            if attribute.HasField("g"):
                graphs.append(attribute.g)


def external_locations(model: onnx.ModelProto) -> dict[str, str]:
    """Places of external data as the model names them, each with the name of a tensor that lies there."""
    found: dict[str, str] = {}
    for tensor in tensors_of(model):
        if tensor.data_location == _EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    found.setdefault(entry.value, tensor.name)
    return found
