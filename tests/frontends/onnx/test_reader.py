"""Opening and parsing: what is not a model is refused with one line, and weights stay in the file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx import load
from irscope.frontends.onnx.reader import LARGE_DATA, take_out_data
from irscope.ir.places import FileRegion
from irscope.ir.program import Program
from tests.frontends.onnx.build import model


def read(path: Path) -> Program:
    return load(path, LoadOptions(), DiagnosticSink())


def refused(path: Path) -> LoadError:
    with pytest.raises(LoadError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return caught.value


def with_weights() -> tuple[onnx.ModelProto, np.ndarray]:
    weights = np.arange(LARGE_DATA, dtype=np.float32).reshape(256, -1)
    inner = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", 1, None)],
        [numpy_helper.from_array(weights + 3, "inner")],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weights + 1)),
        helper.make_node("If", ["flag"], ["b"], then_branch=inner, else_branch=inner),
        helper.make_node("Sum", ["a", "b", "c", "small"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(3, np.float32), "small")]
    inputs = [helper.make_tensor_value_info("x", 1, [1, 256]), helper.make_tensor_value_info("flag", 9, [])]
    return model(nodes, inputs, initializers=initializers), weights


def test_large_weights_stay_in_the_file(tmp_path: Path) -> None:
    proto, weights = with_weights()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    program = read(path)
    content = path.read_bytes()
    expected = {"w": weights, "c": weights + 1, "inner": weights + 3}
    for weight in program.graph.weights:
        if weight.name in expected:
            data = program.graph.data[weight]
            assert isinstance(data, FileRegion)
            assert data.path == str(path)
            assert content[data.offset : data.offset + data.length] == expected[weight.name].tobytes()


def test_what_is_left_is_the_model_with_stand_ins() -> None:
    proto, _ = with_weights()
    data, stored = take_out_data(proto.SerializeToString())
    left = onnx.ModelProto.FromString(data)
    assert len(data) < 2000
    assert len(stored.places) == 4
    offset, length = stored.find(left.graph.initializer[0].raw_data) or (0, 0)
    assert proto.SerializeToString()[offset : offset + length] == proto.graph.initializer[0].raw_data
    assert stored.find(b"x" * 16) is None
    assert [node.op_type for node in left.graph.node] == [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 100, b"\xff" * LARGE_DATA * 2, b"PK\x03\x04" + b"\x00" * 40])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert refused(path).code == ("IRS141" if content else "IRS140")


def test_truncated_at_random_places(tmp_path: Path) -> None:
    proto, _ = with_weights()
    content = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    chance = random.Random(1)
    for _ in range(50):
        path.write_bytes(content[: chance.randrange(1, len(content) - 100)])
        refused(path)


def test_missing_folder_and_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "fifo", Path("/dev/zero"), Path("a\0b")):
        assert refused(path).code == "IRS140"


def field(number: int, content: bytes) -> bytes:
    head = bytearray([number << 3 | 2])
    size = len(content)
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(head) + bytes([size]) + content


@pytest.mark.parametrize("depth", [25, 60, 3000])
@pytest.mark.parametrize("padding", [0, LARGE_DATA])
def test_deep_nesting_is_refused(tmp_path: Path, depth: int, padding: int) -> None:
    inner = helper.make_graph([], "g", [], []).SerializeToString() + field(10, b" " * padding)
    for _ in range(depth):
        attribute = field(1, b"body") + field(6, inner) + b"\xa0\x01\x05"
        inner = field(1, field(4, b"If") + field(5, attribute))
    path = tmp_path / "m.onnx"
    path.write_bytes(field(7, inner))
    if depth > 30:
        assert refused(path).code == "IRS141"
    else:
        assert len(read(path).graph) == 1


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["middle_name"]), helper.make_node("Relu", ["middle_name"], ["y"])])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString().replace(b"middle_name", b"middle\xff\xfename"[:11]))
    assert refused(path).code == "IRS141"
