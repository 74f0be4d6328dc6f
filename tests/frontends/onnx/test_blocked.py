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

from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx.model import channel_block
from irscope.frontends.onnx.optimizer.bridge import session_on
from irscope.frontends.onnx.optimizer.graph import CPU
from irscope.ir.program import Program
from irscope.passes.inference.shapes import Shapes
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.session import open_model
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
    figures = Manager(load(proto)).get(OrtMemory(order="file")).figures
    assert figures is not None
    assert [run.requested for run in (figures.cold, figures.warm)] == [run["requested"] for run in truth]
    assert [run.allocated for run in (figures.cold, figures.warm)] == [run["in_use"] for run in truth]


@pytest.mark.parametrize("block", [8, 16])
def test_every_operator_on_blocks_has_the_sizes_of_the_processor_that_the_filters_tell_of(block: int) -> None:
    """20 channels are 24 in blocks of 8 and 32 in blocks of 16, through all operators, until they come back."""
    wide = 24 if block == 8 else 32
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["r"], domain=DOMAIN),
        helper.make_node("ReorderInput", ["last"], ["rl"], domain=DOMAIN, channels_last=1),
        helper.make_node("Conv", ["r", "w"], ["c"], domain=DOMAIN, group=1, **WINDOW),
        helper.make_node("Conv", ["rl", "w", "b", "c"], ["s"], domain=DOMAIN, group=1, activation="Relu", **WINDOW),
        helper.make_node("MaxPool", ["s"], ["m"], domain=DOMAIN, kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["m"], ["a"], domain=DOMAIN, kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Upsample", ["a"], ["u"], domain=DOMAIN, mode="nearest", scales=[1, 1, 2, 2]),
        helper.make_node("GlobalMaxPool", ["u"], ["gm"], domain=DOMAIN),
        helper.make_node("GlobalAveragePool", ["u"], ["ga"], domain=DOMAIN),
        helper.make_node("ReorderOutput", ["ga"], ["y"], domain=DOMAIN, channels=20),
        helper.make_node("ReorderOutput", ["u"], ["z"], domain=DOMAIN, channels=20, channels_last=1),
    ]
    names = ["r", "rl", "c", "s", "m", "a", "u", "gm", "ga", "y", "z"]
    inputs = [value("x", [1, 20, 32, 32]), value("last", [1, 32, 32, 20])]
    proto = model(nodes, inputs, names, [zeros("w", wide, wide, 3, 3), zeros("b", wide)], com_microsoft_nchwc=1)
    assert channel_block(proto.graph) == block
    sizes = [32, 32, 32, 32, 16, 8, 16, 1, 1]
    expected = [f"f32[1,{wide},{size},{size}]" for size in sizes]
    assert shown(load(proto)) == [*expected, "f32[1,20,1,1]", "f32[1,16,16,20]"]


@pytest.mark.parametrize(("device", "wide"), [("epyc-7763", 24), ("xeon-8380", 32), ("", 32)])
def test_predicted_blocks_are_those_of_the_device(device: str, wide: int, tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.ones((20, 20, 3, 3), np.float32), name) for name in ("w", "v")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v"], ["y"], name="y", pads=[1, 1, 1, 1]),
    ]
    onnx.save(model(nodes, [value("x", [1, 20, 8, 8])], ["y"], weights), tmp_path / "m.onnx")
    found = open_model(tmp_path / "m.onnx", LoadOptions(ort_level="all"), settings=Settings(device=device))
    types = found.manager.get(Shapes())
    convolved = [str(types.type_of(node.outputs[0])) for node in found.program.graph if "Conv" in node.source]
    assert convolved == [f"f32[1,{wide},8,8]"] * 2


@pytest.mark.parametrize("device", ["h200", "apple-m1"])
def test_neither_gpus_nor_arm_processors_have_blocks(device: str) -> None:
    session = session_on(device)
    assert session.block == 1 or session.provider != CPU


def test_what_a_processor_with_avx2_makes_of_a_file_is_predicted_from_the_file_alone(tmp_path: Path) -> None:
    """The same recording as above, from the file that its session read."""
    truth = json.loads((RECORDED / "light_shufflenet-avx2.json").read_text(encoding="utf-8"))["runs"]
    path = Path(onnx.__file__).parent / "backend/test/data/light/light_shufflenet.onnx"
    figures = open_model(path, LoadOptions(ort_level="all"), settings=Settings(device="epyc-7763")).manager.get(OrtMemory()).figures
    assert figures is not None
    assert [run.requested for run in (figures.cold, figures.warm)] == [run["requested"] for run in truth]
    assert [run.allocated for run in (figures.cold, figures.warm)] == [run["in_use"] for run in truth]
