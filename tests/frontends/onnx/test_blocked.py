"""Convolutions in ONNX Runtime's blocked layout: channels come back as they were, sizes are those of the usual one."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

from irscope.passes.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import load, model, value

DOMAIN = "com.microsoft.nchwc"


def test_from_blocks_and_back() -> None:
    """8 channels fill half a block of 16; between the convolution and the reordering there are 16."""
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "auto_pad": "NOTSET"}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], domain=DOMAIN, activation="Relu", group=1, **window),
        helper.make_node("MaxPool", ["c"], ["p"], domain=DOMAIN, kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Upsample", ["p"], ["u"], domain=DOMAIN, mode="nearest", scales=[1, 1, 3, 3]),
        helper.make_node("ReorderOutput", ["u"], ["y"], domain=DOMAIN, channels=8, channels_last=0),
        helper.make_node("ReorderOutput", ["u"], ["z"], domain=DOMAIN, channels=8, channels_last=1),
    ]
    weights = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in (("w", (16, 3, 3, 3)), ("b", (16,)))]
    proto = model(nodes, [value("x", ["n", 3, 32, 32])], ["u", "y", "z"], weights, com_microsoft_nchwc=1)
    program = load(proto)
    found = Manager(program).get(Shapes())
    shown = [str(found.type_of(output)) for output in program.graph.outputs]
    assert shown == ["f32[n,16,48,48]", "f32[n,8,48,48]", "f32[n,48,48,8]"]
    assert not found.problems
