"""Copies of a `.pt2` archive with the nodes of the main graph in another order.

The archive stays byte for byte as it is, weights included: only the texts of nodes change places, and the checksum of their entry.
"""

from __future__ import annotations

import copy
import json
import operator
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, UsageError
from irscope.files import write_binary
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.model import document_name
from irscope.frontends.exported.tensors import names_in, read_json
from irscope.frontends.files.archive import Archive, Entry

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

_PIECE: Final = 16 << 20
_STORED: Final = 0
_HAS_DESCRIPTOR: Final = 0x8
_FLAGS_AT, _LOCAL_CRC_AT, _CENTRAL_CRC_AT = 6, 14, 16
_DESCRIPTOR: Final = b"PK\x07\x08"
_DECODER: Final = json.JSONDecoder()
_PATH = ("graph_module", "graph", "nodes")


def open_file(path: Path, method: str = "") -> ExportedNodes:
    """Return the nodes of the archive's program, or of the one that `method` names."""
    with Archive(path) as archive:
        name = document_name(archive, LoadOptions(method=method), DiagnosticSink())
        document = read_json(archive, name)
    try:
        nodes = document["graph_module"]["graph"]["nodes"]
        made = {output: number for number, node in enumerate(nodes) for output in names_in(node["outputs"])}
        needs = []
        for number, node in enumerate(nodes):
            wanted = {made[read] for read in names_in(node["inputs"]) if read in made}
            needs.append(tuple(sorted(one for one in wanted if one < number)))
    except (KeyError, TypeError) as error:
        raise _strange(path, name) from error
    return ExportedNodes(path, name, needs, [str(node.get("name") or "") for node in nodes])


@dataclass
class ExportedNodes:
    """The main graph of a `.pt2` archive."""

    path: Path
    entry: str
    needs: list[tuple[int, ...]]
    names: Sequence[str] = ()
    """Names of the nodes."""
    suffix: ClassVar[str] = ".pt2"

    def write(self, order: Sequence[int], target: Path) -> list[Path]:
        """Write the copy."""
        with Archive(self.path) as archive:
            entry = archive.entries[self.entry]
            place = archive.region(self.entry)
            if place is None:
                raise UsageError(
                    f"it holds {self.entry!r} packed, not as torch writes it", code="IRS358", where=str(self.path), hint="save it again"
                )
            text = archive.read(self.entry).decode("utf-8")
        changed = _reordered(text, order, self.path, self.entry).encode("utf-8")
        patches = {place.offset: changed, **_checksums(self.path, entry, place.offset, zlib.crc32(changed))}
        write_binary(target, _patched(self.path, patches))
        return [target]


def _reordered(text: str, order: Sequence[int], path: Path, name: str) -> str:
    """Return the document with the texts of its nodes in that order."""
    try:
        begin = 0
        for key in _PATH:
            begin = _member(text, begin, key)
        spans = list(_json_elements(text, begin))
    except (ValueError, IndexError, StopIteration) as error:
        raise _strange(path, name) from error
    if len(spans) != len(order):
        raise _strange(path, name)
    parts: list[str] = []
    done = 0
    for (start, end), number in zip(spans, order, strict=True):
        first, last = spans[number]
        parts += (text[done:start], text[first:last])
        done = end
    return "".join((*parts, text[done:]))


def _member(text: str, begin: int, wanted: str) -> int:
    """Return where the value of a member of the object at `begin` begins."""
    position = _skip(text, begin, "{")
    while True:
        key, position = _DECODER.raw_decode(text, _skip(text, position))
        position = _skip(text, position, ":")
        position = _skip(text, position)
        if key == wanted:
            return position
        _, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position, ",")


def _json_elements(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield where the elements of the array at `begin` are."""
    position = _skip(text, _skip(text, begin, "["))
    while text[position] != "]":
        _, end = _DECODER.raw_decode(text, position)
        yield position, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int, expected: str = "") -> int:
    """Return the place after spaces, and after the character that has to come then."""
    while text[position] in " \t\r\n":
        position += 1
    if not expected:
        return position
    if text[position] != expected:
        raise ValueError(f"{expected} is missing")
    return position + 1


def _checksums(path: Path, entry: Entry, content: int, checksum: int) -> dict[int, bytes]:
    """Return the three places of an archive where the checksum of an entry stands."""
    raw = struct.pack("<L", checksum)
    with path.open("rb") as file:
        file.seek(entry.header + _FLAGS_AT)
        flags = int.from_bytes(file.read(2), "little")
        file.seek(content + entry.packed)
        signature = file.read(4)
    checksums = {entry.record + _CENTRAL_CRC_AT: raw}
    if flags & _HAS_DESCRIPTOR:
        checksums[content + entry.packed + (4 if signature == _DESCRIPTOR else 0)] = raw
    else:
        checksums[entry.header + _LOCAL_CRC_AT] = raw
    return checksums


def _patched(path: Path, patches: dict[int, bytes]) -> Iterator[bytes]:
    """Yield the file with other bytes at some places."""
    with path.open("rb") as file:
        for start, content in sorted(patches.items()):
            while (left := start - file.tell()) > 0:
                yield file.read(min(left, _PIECE))
            yield content
            file.seek(start + len(content))
        yield from iter(lambda: file.read(_PIECE), b"")


def _strange(path: Path, name: str) -> LoadError:
    return LoadError(
        f"{name} does not list nodes as an exported program does", code="IRS135", where=str(path), hint="export the model again"
    )


# -- exported programs in memory; they need torch ----------------------------------------------------------------------


def as_program(subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """Return a module exported for its arguments, or an exported program as it is."""
    import torch

    if isinstance(subject, torch.export.ExportedProgram):
        return subject
    if not isinstance(subject, torch.nn.Module):
        raise UsageError(
            f"a {type(subject).__name__} has no graph", code="IRS362", hint="give an nn.Module with its arguments, or an ExportedProgram"
        )
    if not args and not kwargs:
        raise UsageError("a module's graph depends on its arguments", code="IRS362", hint="scheduled(module, x) as in module(x)")
    try:
        with torch.no_grad():
            return torch.export.export(subject, args, kwargs)
    except Exception as error:  # whatever torch.export raises is why there is no graph
        reason = str(error).strip().partition("\n")[0]
        raise LoadError(
            f"torch.export makes no graph of it: {reason[:200]}", code="IRS362", where=type(subject).__name__, hint="export it yourself"
        ) from error


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write a `.pt2` file."""
    import torch

    torch.export.save(program, path)


def reordered(program: ExportedProgram, order: Sequence[int]) -> ExportedProgram:
    """Return the program with its nodes, counted as a file counts them, in another order. Weights are shared with the original."""
    import torch

    graph = _reordered_graph(program.graph, order)
    return torch.export.ExportedProgram(
        root=torch.fx.GraphModule(program.graph_module, graph),
        graph=graph,
        graph_signature=copy.copy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=copy.copy(program.range_constraints),
        module_call_graph=copy.copy(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _reordered_graph(graph: Graph, order: Sequence[int]) -> Graph:
    """Return a copy of a graph: first what it declares, then its nodes in the order, parts of results right behind what makes them."""
    import torch

    rows = [node for node in graph.nodes if _is_row(node)]
    if len(rows) != len(order):
        raise LoadError("the program's graph does not have the nodes of its file", code="IRS362", hint="export it again")
    made = torch.fx.Graph(tracer_cls=graph._tracer_cls)
    made.set_codegen(copy.copy(graph._codegen))
    found: dict[Node, Node] = {}
    for node in _in_order(graph, [rows[number] for number in order]):
        found[node] = made.node_copy(node, found.__getitem__)
    made.lint()
    return made


def _is_row(node: Node) -> bool:
    """Return whether a file lists the node: parts of results are listed with what makes them."""
    return node.op == "call_function" and node.target is not operator.getitem


def _in_order(graph: Graph, rows: Sequence[Node]) -> Iterator[Node]:
    yield from (node for node in graph.nodes if node.op in ("placeholder", "get_attr"))
    for row in rows:
        pending = [row]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed([user for user in node.users if user.target is operator.getitem and user.args[0] is node]))
    yield from (node for node in graph.nodes if node.op == "output")


def graph_module(program: ExportedProgram) -> torch.fx.GraphModule:
    """Return what runs the program: it lets go of each value after its last use."""
    return program.module()
