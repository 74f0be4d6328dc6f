"""Copies of model files with their nodes in another order: everything else stays, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irscope.errors import LoadError, UsageError
from irscope.frontends.load import open_nodes
from irscope.frontends.onnx.reader import encode

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]


def info(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(external: bool = False) -> onnx.ModelProto:
    """Two branches, a node with graphs inside that read from around them, and a function."""
    inner = [helper.make_node("Add", ["a", "w"], ["inside"])]
    other = [helper.make_node("Sub", ["a", "b"], ["outside"])]
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["x"], ["b"], name="second"),
        helper.make_node(
            "If",
            ["flag"],
            ["c"],
            name="third",
            then_branch=helper.make_graph(inner, "then", [], [info("inside", [4])]),
            else_branch=helper.make_graph(other, "else", [], [info("outside", [4])]),
        ),
        helper.make_node("Twice", ["b"], ["d"], name="fourth", domain="mine"),
        helper.make_node("Add", ["c", "d"], ["y"], name="fifth"),
    ]
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [info("x", [4]), flag], [info("y", [4])], [weight])
    twice = helper.make_function("mine", "Twice", ["v"], ["r"], [helper.make_node("Add", ["v", "v"], ["r"])], IMPORTS[:1])
    made = helper.make_model(graph, opset_imports=IMPORTS, functions=[twice], ir_version=9)
    if external:
        onnx.external_data_helper.set_external_data(made.graph.initializer[0], "weights/w.bin", offset=0, length=16)
        made.graph.initializer[0].ClearField("raw_data")
    return made


def written(made: onnx.ModelProto, folder: Path, raw: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString() + raw)
    return path


def test_needs_are_those_of_inner_graphs_too(tmp_path: Path) -> None:
    assert open_nodes(written(model(), tmp_path)).needs == [(), (), (0, 1), (1,), (2, 3)]


def test_only_the_places_of_nodes_change(tmp_path: Path) -> None:
    # A field that no version of ONNX has, and a graph that is written in two pieces.
    unknown = encode(4000 << 3 | 2) + encode(3) + b"abc"
    more = onnx.GraphProto(node=[helper.make_node("Abs", ["y"], ["z"])], doc_string="later").SerializeToString()
    path = written(model(), tmp_path, unknown + encode(7 << 3 | 2) + encode(len(more)) + more)
    nodes = open_nodes(path)
    order = [1, 3, 0, 2, 4, 5]
    target = tmp_path / "copy.onnx"
    assert nodes.write(order, target) == [target]
    before, after = onnx.load(path), onnx.load(target)
    assert [node.name for node in after.graph.node] == [before.graph.node[number].name for number in order]
    assert unknown in target.read_bytes()
    for one in (before, after):
        del one.graph.node[:]
    assert before == after


def test_a_copy_in_the_same_order_is_the_same_file(tmp_path: Path) -> None:
    path = written(model(), tmp_path)
    nodes = open_nodes(path)
    nodes.write(range(5), tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == path.read_bytes()


def test_external_data_go_along_to_another_folder_under_names_of_the_copy(tmp_path: Path) -> None:
    """A model that chose the names could have a shell, or Python, run its data; and a link there gets nothing."""
    folder, other = tmp_path / "from", tmp_path / "to"
    made = model(external=True)
    inner = made.graph.node[2].attribute[0].g.initializer.add()
    inner.CopyFrom(made.graph.initializer[0])
    inner.external_data[0].value = ".bash_profile"
    path = written(made, folder)
    for place in (folder / "weights", other, tmp_path / "elsewhere"):
        place.mkdir()
    assert [(folder / place).write_bytes(bytes(16)) for place in ("weights/w.bin", ".bash_profile")] == [16, 16]
    nodes = open_nodes(path)
    assert nodes.write(range(5), folder / "copy.onnx") == [folder / "copy.onnx"]
    (other / "weights").symlink_to(tmp_path / "elsewhere")
    data = other / "copy.onnx.data"
    assert nodes.write(range(5), other / "copy.onnx") == [other / "copy.onnx", data, other / "copy.onnx.data1"]
    assert numpy_helper.to_array(onnx.load(other / "copy.onnx").graph.initializer[0]).tolist() == [0, 0, 0, 0]
    assert not any((tmp_path / "elsewhere").iterdir()) and nodes.write(range(5), other / "copy.onnx")  # the data is there, and equal
    data.write_bytes(b"somebody else's")
    with pytest.raises(UsageError, match="written over"):
        nodes.write(range(5), other / "copy.onnx")
    assert data.read_bytes() == b"somebody else's"


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "gone.bin"])
def test_external_data_elsewhere_or_gone_are_refused(location: str, tmp_path: Path) -> None:
    made = model(external=True)
    for entry in made.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path = written(made, tmp_path / "from")
    (tmp_path / "to").mkdir()
    with pytest.raises((LoadError, UsageError)):
        open_nodes(path).write(range(5), tmp_path / "to" / "copy.onnx")
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.torch
def test_archives_keep_every_other_byte(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.tools.oracle.branching_models import Branches, picture
    from tests.tools.torch_files.helpers import save_exported

    path = save_exported(tmp_path / "model.pt2", Branches().eval(), picture())
    nodes = open_nodes(path)
    target = tmp_path / "copy.pt2"
    nodes.write(range(len(nodes.needs)), target)
    assert target.read_bytes() == path.read_bytes()
    order = _another(nodes.needs)
    nodes.write(order, target)
    before, after = path.read_bytes(), target.read_bytes()
    assert len(before) == len(after)
    assert open_nodes(target).needs != nodes.needs
    # Its checksums hold for torch, too.
    names = [[node.name for node in torch.export.load(one).graph.nodes if node.op == "call_function"] for one in (path, target)]
    assert names[0] != names[1] and sorted(names[0]) == sorted(names[1])


def _another(needs: list[tuple[int, ...]]) -> list[int]:
    """A random valid order that is not the file's own."""
    chance = random.Random(3)
    for _ in range(100):
        done: list[int] = []
        while len(done) < len(needs):
            done.append(chance.choice([one for one, before in enumerate(needs) if one not in done and set(before) <= set(done)]))
        if done != sorted(done):
            return done
    raise AssertionError("there is only one order")


@pytest.mark.parametrize("name", ["net.pt", "../mlp.irs"])
def test_other_formats_have_no_order_to_change(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_nodes(Path(__file__).parents[2] / "samples" / "models" / name)
    assert caught.value.code == "IRS357"
