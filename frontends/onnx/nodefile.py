"""Copies of an ONNX file with the nodes of the main graph in another order.

Only the places of nodes change, and in another folder the names of files that weights lie in, which are the copy's and not those that
the model chose; every other field of the file, known or not, stays as it is.
"""

from __future__ import annotations

import filecmp
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import onnx

from irscope.errors import UsageError
from irscope.files import write_binary
from irscope.frontends.onnx.order import captured_names
from irscope.frontends.onnx.reader import NOT_ONNX, WireError, encode, message_fields, read_file, refuse, short
from irscope.frontends.onnx.tensors import ExternalFiles

_GRAPH, _NODE = 7, 1
_PIECE = 16 << 20
_EXTERNAL = 1


def open_file(path: Path, method: str = "") -> OnnxNodes:
    """Return the nodes of the file's main graph; `method` is for formats with several graphs."""
    file = read_file(path)
    made = {name: number for number, node in enumerate(file.proto.graph.node) for name in node.output if name}
    needs = []
    for node in file.proto.graph.node:
        names = {*node.input, *captured_names(node)}
        needs.append(tuple(sorted({made[name] for name in names if name in made})))
    return OnnxNodes(
        path, needs, {entry.value: tensor.name for tensor, entry in _locations(file.proto)}, [node.name for node in file.proto.graph.node]
    )


@dataclass
class OnnxNodes:
    """The main graph of an ONNX file."""

    path: Path
    needs: list[tuple[int, ...]]
    external: Mapping[str, str]
    """Locations of external data, each with the name of a tensor that lies there."""
    names: Sequence[str] = ()
    """Names of the nodes; empty for those without a name."""
    suffix: ClassVar[str] = ".onnx"

    def write(self, order: Sequence[int], target: Path) -> list[Path]:
        """Write the copy, and copies of external data where it goes to another folder."""
        data = self._data_to_copy(target)
        for source, copy in data.values():
            _copy_data(source, copy)
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            try:
                pieces = _reordered_bytes(mapped, order)
                write_binary(target, [_moved(b"".join(pieces), data)] if data else pieces)
            except (WireError, IndexError) as error:
                raise refuse(NOT_ONNX, f"the file is damaged ({error})", str(self.path)) from None
        return [target, *(copy for _, copy in data.values())]

    def _data_to_copy(self, target: Path) -> dict[str, tuple[Path, Path]]:
        """External data that the copy will look for beside itself, by location: where it is now and where it goes.

        Its name there is the copy's own: a model that chose it could put a file that programs run into the user's folder.
        """
        if target.parent.resolve() == self.path.parent.resolve():
            return {}
        files = ExternalFiles(self.path.absolute())
        made: dict[str, tuple[Path, Path]] = {}
        for number, (location, tensor) in enumerate(sorted(self.external.items())):
            file = files.find(location, tensor)
            if file is None:
                raise UsageError(
                    f"its data file {short(location)!r} is not there, and a copy in another folder needs it",
                    code="IRS358",
                    where=str(self.path),
                    hint="bring the data, or write the copy into the model's own folder",
                )
            made[location] = Path(file.path), target.with_name(f"{target.name}.data{number or ''}")
        return made


def _copy_data(source: Path, copy: Path) -> None:
    """Copy a data file; one that is there already has to be equal."""
    if copy.exists():
        if not copy.is_file() or not filecmp.cmp(source, copy, shallow=False):
            raise UsageError(
                "the model's data would have to be written over this file", code="IRS358", where=str(copy), hint="write to another folder"
            )
        return
    with source.open("rb") as file:
        write_binary(copy, iter(lambda: file.read(_PIECE), b""))


def _reordered_bytes(mapped: mmap.mmap, order: Sequence[int]) -> Iterator[bytes]:
    """Yield the file with the nodes of its graph in that order."""
    graphs: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    first = 0
    for start, number, content, stop in message_fields(mapped, 0, len(mapped)):
        if number == _GRAPH:
            # A graph in several pieces is one graph: protobuf joins them.
            first = first if graphs else len(others)
            graphs.append((content, stop))
        else:
            others.append((start, stop))
    for start, stop in others[:first]:
        yield from _slices(mapped, start, stop)
    yield encode(_GRAPH << 3 | 2) + encode(sum(stop - start for start, stop in graphs))
    yield from _graph(mapped, graphs, order)
    for start, stop in others[first:]:
        yield from _slices(mapped, start, stop)


def _graph(mapped: mmap.mmap, graphs: Sequence[tuple[int, int]], order: Sequence[int]) -> Iterator[bytes]:
    """Yield all fields of the graph, with another node wherever there is one."""
    fields: list[tuple[int, int, int]] = []
    nodes: list[tuple[int, int]] = []
    for begin, end in graphs:
        for start, number, _, stop in message_fields(mapped, begin, end):
            fields.append((start, number, stop))
            if number == _NODE:
                nodes.append((start, stop))
    if len(nodes) != len(order):
        raise WireError("its graph has another number of nodes than before")
    wanted = iter(order)
    for start, number, stop in fields:
        yield from _slices(mapped, *(nodes[next(wanted)] if number == _NODE else (start, stop)))


def _moved(message: bytes, data: Mapping[str, tuple[Path, Path]]) -> bytes:
    """Return a model whose external data has the names of copies."""
    model = onnx.ModelProto.FromString(message)
    for _, entry in _locations(model):
        entry.value = data[entry.value][1].name
    return bytes(model.SerializeToString())


def _slices(mapped: mmap.mmap, start: int, stop: int) -> Iterator[bytes]:
    for begin in range(start, stop, _PIECE):
        yield mapped[begin : min(begin + _PIECE, stop)]


def _tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a model."""
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


def _locations(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, onnx.StringStringEntryProto]]:
    """Yield the entries that say where external data lies, each with its tensor."""
    for tensor in _tensors_of(model):
        if tensor.data_location == _EXTERNAL:
            yield from ((tensor, entry) for entry in tensor.external_data if entry.key == "location")
