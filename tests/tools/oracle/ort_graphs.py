"""Random graphs of operators whose kernels do every kind of thing with their buffers."""

from __future__ import annotations

import random
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Named: TypeAlias = "tuple[str, tuple[int, ...]]"
_SHAPES = ((4, 16), (8, 8), (64,), (2, 300), (600,), (1, 40, 5))
_FRESH = ("Abs", "Neg", "Exp", "Floor", "Erf")
_IN_PLACE = ("Relu", "Sigmoid", "Tanh", "Elu", "Softplus", "Clip", "LeakyRelu")
_PAIRS = ("Add", "Mul", "Max", "Sum")


def random_model(seed: int, nodes: int = 40) -> onnx.ModelProto:
    """A model of float tensors in a few shapes; some results are returned, some nobody reads."""
    chance = random.Random(seed)
    inputs = [(f"in{index}", chance.choice(_SHAPES)) for index in range(2)]
    known: list[Named] = list(inputs)
    weights: list[TensorProto] = []
    made: list[onnx.NodeProto] = []
    for index in range(nodes):
        # Recent values are read more often, so that graphs are deep as well as wide.
        name, shape = known[chance.randrange(max(0, len(known) - 12), len(known))]
        node, result = _node(chance, index, name, shape, known, weights)
        made.append(node)
        known.append((f"v{index}", result))
    last = [(f"v{nodes - 1}", known[-1][1])]
    others = chance.sample(known[len(inputs) : -1], 3)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in dict.fromkeys([*others, *last])]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    graph = helper.make_graph(made, "random", declared, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _node(
    chance: random.Random,
    index: int,
    name: str,
    shape: tuple[int, ...],
    known: list[Named],
    weights: list[TensorProto],
) -> tuple[onnx.NodeProto, tuple[int, ...]]:
    output = [f"v{index}"]
    kind = chance.random()
    if kind < 0.25:
        return helper.make_node(chance.choice(_FRESH), [name], output, name=f"n{index}"), shape
    if kind < 0.5:
        return helper.make_node(chance.choice(_IN_PLACE), [name], output, name=f"n{index}"), shape
    if kind < 0.75:
        same = [other for other, its in known if its == shape]
        return helper.make_node(chance.choice(_PAIRS), [name, chance.choice(same)], output, name=f"n{index}"), shape
    if kind < 0.85:
        size = int(np.prod(shape))
        target = chance.choice([other for other in _SHAPES if np.prod(other) == size] or [shape])
        weights.append(numpy_helper.from_array(np.array(target, np.int64), f"shape{index}"))
        return helper.make_node("Reshape", [name, f"shape{index}"], output, name=f"n{index}"), target
    if kind < 0.9:
        return helper.make_node("Identity", [name], output, name=f"n{index}"), shape
    result = (2, *shape)
    weights.append(numpy_helper.from_array(np.array(result, np.int64), f"shape{index}"))
    expanded = helper.make_node("Expand", [name, f"shape{index}"], output, name=f"n{index}")
    return expanded, result
