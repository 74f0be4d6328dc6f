"""Models that point their external data where nobody should look, and the files around them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

MARKER = b"CANARY-CANARY-16"
"""Four floats. They stand in the file that must not be read and in the one that may."""
_FLOATS = len(MARKER) // 4
_OPSET = helper.make_opsetid("", 17)

REFUSED = "refused"
HARMLESS = "harmless"


@dataclass(frozen=True)
class Crafted:
    """One model: where its data claim to be, and what must come of it."""

    name: str
    location: str
    expected: str
    entries: tuple[tuple[str, str], ...] = (("length", str(len(MARKER))),)
    dims: tuple[int, ...] = (_FLOATS,)
    place: str = "initializer"


OUTSIDE = "../outside/secret.bin"

CASES: tuple[Crafted, ...] = (
    Crafted("good", "good.bin", HARMLESS),
    Crafted("good_subfolder", "sub/good.bin", HARMLESS),
    Crafted("link_inside", "inner-link.bin", HARMLESS),
    Crafted("parent", OUTSIDE, REFUSED),
    Crafted("parent_hidden", "sub/../../outside/secret.bin", REFUSED),
    Crafted("absolute", "{outside}/secret.bin", REFUSED),
    Crafted("link_outside", "outer-link.bin", REFUSED),
    Crafted("folder_link_outside", "outer-folder/secret.bin", REFUSED),
    Crafted("hard_link", "hard-link.bin", REFUSED),
    Crafted("fifo", "fifo.bin", REFUSED),
    Crafted("device", "/dev/zero", REFUSED),
    Crafted("missing", "nothing.bin", HARMLESS),
    Crafted("backslashes", "..\\outside\\secret.bin", REFUSED),
    Crafted("empty", "", REFUSED),
    Crafted("dot", ".", REFUSED),
    Crafted("nul", "good.bin\0x", REFUSED),
    Crafted("base_path", "secret.bin", HARMLESS, (("length", "16"), ("basepath", "{outside}"))),
    Crafted("in_constant", OUTSIDE, REFUSED, place="constant"),
    Crafted("in_sparse_constant", OUTSIDE, REFUSED, place="sparse constant"),
    Crafted("in_sparse_initializer", OUTSIDE, REFUSED, place="sparse initializer"),
    Crafted("in_subgraph", OUTSIDE, REFUSED, place="subgraph"),
    Crafted("in_function", OUTSIDE, REFUSED, place="function"),
    Crafted("offset_beyond", "good.bin", REFUSED, (("offset", str(1 << 20)), ("length", "16"))),
    Crafted("offset_negative", "good.bin", REFUSED, (("offset", "-8"), ("length", "16"))),
    Crafted("length_huge", "good.bin", REFUSED, (("length", str(1 << 40)),)),
    Crafted("length_negative", "good.bin", REFUSED, (("length", "-1"),)),
    Crafted("length_short", "good.bin", REFUSED, (("length", "8"),)),
    Crafted("sizes_huge", "good.bin", REFUSED, dims=(1 << 31, 1 << 31)),
    Crafted("sizes_negative", "good.bin", REFUSED, dims=(-4,)),
    Crafted("sizes_overflow", "good.bin", REFUSED, dims=(1 << 62, 4, 4)),
    Crafted("unknown_keys", "good.bin", HARMLESS, (("length", "16"), ("__class__", "x"), ("length", "99999999999"))),
    Crafted("hub_cache", "model.onnx.data", HARMLESS),
)


def write(folder: Path) -> dict[str, Path]:
    """Write every model with the files around it; paths by name."""
    models, outside = folder / "model", folder / "outside"
    (models / "sub").mkdir(parents=True)
    outside.mkdir()
    for path in (outside / "secret.bin", models / "good.bin", models / "sub" / "good.bin"):
        path.write_bytes(MARKER)
    (models / "inner-link.bin").symlink_to("good.bin")
    (models / "outer-link.bin").symlink_to(outside / "secret.bin")
    (models / "outer-folder").symlink_to(outside, target_is_directory=True)
    (models / "hard-link.bin").hardlink_to(outside / "secret.bin")
    os.mkfifo(models / "fifo.bin")
    paths: dict[str, Path] = {}
    for case in CASES:
        paths[case.name] = models / f"{case.name}.onnx"
        paths[case.name].write_bytes(_model(case, outside))
    paths["hub_cache"] = _as_hub_cache(paths["hub_cache"], folder / "hub")
    return paths


def _as_hub_cache(model: Path, hub: Path) -> Path:
    """As the Hugging Face hub keeps files: a snapshot of links to blobs."""
    blobs, snapshot = hub / "blobs", hub / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    model.rename(blobs / "aaaa")
    (blobs / "bbbb").write_bytes(MARKER)
    (snapshot / "model.onnx").symlink_to("../../blobs/aaaa")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/bbbb")
    return snapshot / "model.onnx"


def _model(case: Crafted, outside: Path) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=case.dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", case.location), *case.entries):
        tensor.external_data.add(key=key, value=value.replace("{outside}", str(outside)))
    return _PLACES[case.place](tensor).SerializeToString()


def _whole(
    nodes: Sequence[onnx.NodeProto], initializers: Sequence[TensorProto] = (), functions: Sequence[onnx.FunctionProto] = ()
) -> onnx.ModelProto:
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_FLOATS])
    graph = helper.make_graph(nodes, "crafted", [], [result], initializers)
    opsets = [_OPSET, helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def _sparse(values: TensorProto) -> onnx.SparseTensorProto:
    indices = helper.make_tensor("indices", TensorProto.INT64, [_FLOATS], range(_FLOATS))
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[_FLOATS])


def _initializer(tensor: TensorProto) -> onnx.ModelProto:
    return _whole([helper.make_node("Identity", ["w"], ["y"])], [tensor])


def _constant(tensor: TensorProto) -> onnx.ModelProto:
    return _whole([helper.make_node("Constant", [], ["y"], value=tensor)])


def _sparse_constant(tensor: TensorProto) -> onnx.ModelProto:
    return _whole([helper.make_node("Constant", [], ["y"], sparse_value=_sparse(tensor))])


def _sparse_initializer(tensor: TensorProto) -> onnx.ModelProto:
    model = _whole([helper.make_node("Identity", ["w"], ["y"])])
    model.graph.sparse_initializer.append(_sparse(tensor))
    return model


def _subgraph(tensor: TensorProto) -> onnx.ModelProto:
    inner = helper.make_tensor_value_info("z", TensorProto.FLOAT, [_FLOATS])
    branch = helper.make_graph([helper.make_node("Identity", ["w"], ["z"])], "branch", [], [inner], [tensor])
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    return _whole([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [condition])


def _function(tensor: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["z"], value=tensor)
    function = helper.make_function("local", "F", [], ["z"], [constant], [_OPSET])
    return _whole([helper.make_node("F", [], ["y"], domain="local")], functions=[function])


_PLACES: dict[str, Callable[[TensorProto], onnx.ModelProto]] = {
    "initializer": _initializer,
    "constant": _constant,
    "sparse constant": _sparse_constant,
    "sparse initializer": _sparse_initializer,
    "subgraph": _subgraph,
    "function": _function,
}
