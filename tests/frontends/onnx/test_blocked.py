"""Convolutions in ONNX Runtime's blocked layout: channels come back as they were, sizes are those of the usual one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from irscope.frontends.onnx.model import channel_block
from irscope.ir.program import Program
from irscope.passes.inference.shapes import Shapes
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import graph, load, model, value

DOMAIN = "com.microsoft.nchwc"
RECORDED = Path(__file__).parents[2] / "data" / "ort"
WINDOW = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "auto_pad": "NOTSET"}


def zeros(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


def shown(program: Program) -> list[str]:
    """Types of the outputs, of a program in which nothing contradicts itself."""
    found = Manager(program).get(Shapes())
    assert not found.problems
    return [str(found.type_of(output)) for output in program.graph.outputs]


def test_from_blocks_and_back() -> None:
    """8 channels fill half a block of 16; between the convolution and the reordering there are 16."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], domain=DOMAIN, activation="Relu", group=1, **WINDOW),
        helper.make_node("MaxPool", ["c"], ["p"], domain=DOMAIN, kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Upsample", ["p"], ["u"], domain=DOMAIN, mode="nearest", scales=[1, 1, 3, 3]),
        helper.make_node("ReorderOutput", ["u"], ["y"], domain=DOMAIN, channels=8, channels_last=0),
        helper.make_node("ReorderOutput", ["u"], ["z"], domain=DOMAIN, channels=8, channels_last=1),
    ]
    weights = [zeros("w", 16, 3, 3, 3), zeros("b", 16)]
    proto = model(nodes, [value("x", ["n", 3, 32, 32])], ["u", "y", "z"], weights, com_microsoft_nchwc=1)
    assert shown(load(proto)) == ["f32[n,16,48,48]", "f32[n,8,48,48]", "f32[n,48,48,8]"]


def reordered(filters: Sequence[int], group: int = 1) -> onnx.ModelProto:
    """A picture of 20 channels that is put into blocks and convolved."""
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["r"], domain=DOMAIN),
        helper.make_node("Conv", ["r", "w"], ["y"], domain=DOMAIN, group=group, **WINDOW),
    ]
    return model(nodes, [value("x", [1, 20, 32, 32])], ["r", "y"], [zeros("w", *filters)], com_microsoft_nchwc=1)


@pytest.mark.parametrize(
    ("filters", "group", "block"),
    [((40, 24, 3, 3), 1, 8), ((32, 24, 3, 3), 1, 8), ((24, 1, 3, 3), 24, 8), ((48, 32, 3, 3), 1, 16), ((32, 1, 3, 3), 32, 16)],
)
def test_filters_say_how_many_channels_a_block_has(filters: Sequence[int], group: int, block: int) -> None:
    proto = reordered(filters, group)
    assert channel_block(proto.graph) == block
    assert shown(load(proto)) == [f"f32[1,{24 if block == 8 else 32},32,32]", f"f32[1,{filters[0]},32,32]"]


def test_channels_of_a_picture_that_is_read_as_it_is_say_nothing_of_blocks() -> None:
    """Filters of fewer channels than a block has are not filled up."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], domain=DOMAIN, group=1, **WINDOW),
        helper.make_node("Conv", ["c", "grouped"], ["y"], domain=DOMAIN, group=4, **WINDOW),
    ]
    weights = [zeros("w", 32, 8, 3, 3), zeros("grouped", 64, 8, 3, 3)]
    assert channel_block(graph(nodes, [value("x", [1, 8, 32, 32])], ["y"], weights)) == 16


def test_filters_inside_a_branch_are_found_under_the_names_of_that_branch() -> None:
    inner = [
        graph([helper.make_node("Conv", ["x", "w"], ["y"], domain=DOMAIN, **WINDOW)], [], ["y"], [zeros("w", size, 3, 3, 3)])
        for size in (32, 24)
    ]
    for then, other, block in ((inner[0], inner[1], 8), (inner[0], inner[0], 16)):
        choice = helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other)
        assert channel_block(graph([choice], [value("x", [1, 3, 32, 32])], ["z"])) == block


def test_a_file_that_another_processor_optimised_is_read_as_it_ran_there() -> None:
    """Bytes in use after every kernel of both runs, to the byte."""
    proto = onnx.load_from_string(gzip.decompress((RECORDED / "light_shufflenet-avx2.onnx.gz").read_bytes()))
    truth = json.loads((RECORDED / "light_shufflenet-avx2.json").read_text(encoding="utf-8"))["runs"]
    found = Manager(load(proto)).get(OrtMemory(order="file")).figures
    assert found is not None
    assert [run.requested for run in (found.cold, found.warm)] == [run["requested"] for run in truth]
    assert [run.allocated for run in (found.cold, found.warm)] == [run["in_use"] for run in truth]
