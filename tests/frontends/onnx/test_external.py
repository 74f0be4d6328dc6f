"""External data and large files: what is opened, what is not, in how much memory."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.onnx_big import write_model
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx import load, load_model
from irscope.ir.places import FileRegion, Literal, Payload
from irscope.ir.types import TensorType
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import model

# External data: found where they may lie, refused everywhere else, and not opened without need.

MARK = b"SECRETMARKER0123" * 64


def external(location: str, *, dims: tuple[int, ...] = (256,), dtype: int = TensorProto.FLOAT, **entries: object) -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside, outside = tmp_path / "model", tmp_path / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    for path in (outside / "secret.bin", inside / "good.bin", inside / "sub" / "g.bin"):
        path.write_bytes(MARK)
    (inside / "link.bin").symlink_to(outside / "secret.bin")
    (inside / "linkdir").symlink_to(outside)
    (inside / "inlink.bin").symlink_to("good.bin")
    os.link(outside / "secret.bin", inside / "hard.bin")
    os.mkfifo(inside / "fifo.bin")
    return inside


def payload(folder: Path, tensor: onnx.TensorProto, sink: DiagnosticSink | None = None) -> Payload | None:
    path = folder / "m.onnx"
    path.write_bytes(model([helper.make_node("Identity", ["w"], ["y"])], [], initializers=[tensor]).SerializeToString())
    program = load(path, LoadOptions(), sink if sink is not None else DiagnosticSink())
    return program.graph.data.get(program.graph.weights[0])


def test_a_file_with_two_names_inside_the_folder_is_read(folder: Path) -> None:
    """As tools that save disk space leave them; a name elsewhere is a way out of the folder."""
    os.link(folder / "good.bin", folder / "sub" / "twin.bin")
    assert isinstance(payload(folder, external("sub/twin.bin")), FileRegion)
    os.link(folder / "good.bin", folder.parent / "outside" / "third.bin")
    with pytest.raises(LoadError, match="hard link"):
        payload(folder, external("sub/twin.bin"))


@pytest.mark.parametrize("location", ["good.bin", "sub/g.bin", "./good.bin", "inlink.bin"])
def test_data_inside_the_folder(folder: Path, location: str) -> None:
    found = payload(folder, external(location))
    assert isinstance(found, FileRegion)
    assert (found.offset, found.length) == (0, 1024)
    assert Path(found.path).read_bytes() == MARK


@pytest.mark.parametrize(
    "location",
    [
        "../outside/secret.bin",
        "sub/../../outside/secret.bin",
        "link.bin",
        "linkdir/secret.bin",
        "hard.bin",
        "fifo.bin",
        "/dev/zero",
        "..\\outside\\secret.bin",
        "C:\\secret.bin",
        "\\\\host\\share\\f",
        "",
        ".",
        "sub",
        "sub/.",
        "good.bin\0x",
    ],
)
@pytest.mark.parametrize("where", ["initializer", "constant", "sparse", "branch", "function"])
def test_locations_that_are_refused(folder: Path, location: str, where: str) -> None:
    tensor = external(location)
    constant = helper.make_node("Constant", [], ["y"])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=tensor)
    proto = model([helper.make_node("Identity", ["x"], ["y"])])
    del proto.graph.node[:]
    if where == "initializer":
        proto.graph.initializer.append(tensor)
    elif where == "constant":
        proto.graph.node.append(constant)
    elif where == "sparse":
        indices = helper.make_tensor("i", TensorProto.INT64, [256], range(256))
        proto.graph.sparse_initializer.append(onnx.SparseTensorProto(values=tensor, indices=indices, dims=[256]))
    elif where == "branch":
        inner = helper.make_graph([constant], "then", [], [helper.make_tensor_value_info("y", 1, None)])
        proto.graph.initializer.append(helper.make_tensor("c", TensorProto.BOOL, [], [True]))
        proto.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
    else:
        proto.functions.append(helper.make_function("local", "F", [], ["y"], [constant], [helper.make_opsetid("", 17)]))
        proto.graph.node.append(helper.make_node("F", [], ["z"], domain="local"))
    del proto.graph.output[:]
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(LoadError) as caught:
        load(path, LoadOptions(), DiagnosticSink())
    assert caught.value.code == "IRS145"
    assert "\n" not in str(caught.value)
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize(
    "tensor",
    [
        external("good.bin", offset=1 << 20),
        external("good.bin", offset=-8),
        external("good.bin", offset="1e3"),
        external("good.bin", length=1 << 40),
        external("good.bin", length=-1),
        external("good.bin", length=8),
        external("good.bin", dims=(1 << 31, 1 << 30)),
        external("good.bin", dims=(257,)),
    ],
)
def test_regions_that_do_not_fit_are_refused(folder: Path, tensor: onnx.TensorProto) -> None:
    with pytest.raises(LoadError) as caught:
        payload(folder, tensor)
    assert caught.value.code == "IRS145"


def test_missing_data_are_a_remark(folder: Path) -> None:
    sink = DiagnosticSink()
    assert payload(folder, external("nothing.bin"), sink) is None
    assert [diagnostic.code for diagnostic in sink] == ["IRS156"]


def test_unknown_keys_are_ignored(folder: Path) -> None:
    assert isinstance(payload(folder, external("good.bin", basepath="/etc", checksum="x", __class__="x")), FileRegion)


def test_small_integers_are_read(folder: Path) -> None:
    found = payload(folder, external("good.bin", dims=(2,), dtype=TensorProto.INT64, offset=16))
    assert found == Literal(tuple(int.from_bytes(MARK[i : i + 8], "little") for i in (16, 24)))


def test_cache_with_links_to_blobs(tmp_path: Path) -> None:
    """Both the model and its data are links, as in the Hugging Face hub's cache."""
    blobs, snapshot = tmp_path / "models--me--mine" / "blobs", tmp_path / "models--me--mine" / "snapshots" / "rev"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    proto = model([helper.make_node("Identity", ["w"], ["y"])], [], initializers=[external("model.onnx.data")])
    (blobs / "aaa").write_bytes(proto.SerializeToString())
    (blobs / "bbb").write_bytes(MARK)
    (snapshot / "model.onnx").symlink_to("../../blobs/aaa")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/bbb")
    program = load(snapshot / "model.onnx", LoadOptions(), DiagnosticSink())
    assert program.graph.data[program.graph.weights[0]] == FileRegion(str(blobs / "bbb"), 0, 1024, "model.onnx.data@0")


def test_a_relative_path_is_checked_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    proto = model([helper.make_node("Identity", ["w"], ["y"])], [], initializers=[external("../outside/secret.bin")])
    Path("m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(LoadError):
        load(Path("m.onnx"), LoadOptions(), DiagnosticSink())


# The graphs of the benchmark, small: every value as onnx's own inference has it, in any order of the nodes.


@pytest.mark.parametrize("is_reversed", [False, True])
def test_every_value_of_two_layers(is_reversed: bool, tmp_path: Path) -> None:
    assert write_model(tmp_path / "two.onnx", 100) == 116
    proto = onnx.load(tmp_path / "two.onnx")
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True, strict_mode=True).graph
    expected = {info.name: _shown(info.type.tensor_type) for info in (*inferred.value_info, *inferred.output)}
    if is_reversed:
        nodes = list(proto.graph.node)[::-1]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
    for info in proto.graph.output:
        info.ClearField("type")
    program = load_model(proto)
    found = Manager(program).get(Shapes())
    seen = {}
    for node in program.graph:
        for value in node.outputs:
            type_ = found.type_of(value)
            if value.name in expected and isinstance(type_, TensorType):
                seen[value.name] = [str(dim) for dim in type_.shape or ()]
    assert seen == expected
    assert not found.assumptions


def _shown(type_: onnx.TypeProto.Tensor) -> list[str]:
    return [dim.dim_param or str(dim.dim_value) for dim in type_.shape.dim]
