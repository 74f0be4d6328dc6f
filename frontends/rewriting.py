"""Common parts of the writers of changed models: a program as it was read, and an order for what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from irscope.errors import UsageError
from irscope.ir.graph import Attr, Node, Value
from irscope.ir.places import Payload
from irscope.ir.program import FileNode, Program
from irscope.solvers.graphs import sorted_by
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_values

Check: TypeAlias = Callable[[Path, Mapping[Value, str]], None]
"""Looks at what was written before it takes its place; told what weights are called there."""
PIECE = 16 << 20
"""Bytes that are copied at once."""


@dataclass
class Original:
    """A program as it was read, before passes changed it."""

    program: Program
    nodes: dict[Node, tuple[str, Mapping[str, Attr], tuple[Value | None, ...]]] = field(default_factory=dict)
    data: dict[Value, Payload] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> Original:
        script = cls(program)
        for node in program.graph.walk():
            script.nodes[node] = (node.op, node.attrs, node.inputs)
        script.data = dict(program.graph.data)
        return script

    @property
    def rows(self) -> Sequence[FileNode]:
        """Return the file's nodes."""
        assert self.program.file_nodes is not None, "the program was opened to be written"
        return self.program.file_nodes.nodes

    @property
    def names(self) -> Mapping[str, Value | None]:
        """Return what names of the file stand for."""
        assert self.program.file_nodes is not None, "the program was opened to be written"
        return self.program.file_nodes.names

    def is_as_read(self, node: Node) -> bool:
        """Return whether a node is one of the file's, with its operator and attributes; operands may be others."""
        was = self.nodes.get(node)
        return (
            was is not None and node.graph is not None and was[0] == node.op and (was[1] is node.attrs or dict(was[1]) == dict(node.attrs))
        )

    def has_new_values(self, weight: Value) -> bool:
        """Return whether a weight of the file has other values than the file gives it."""
        return weight.graph is not None and weight.graph.data.get(weight) is not self.data.get(weight)

    def substitutions(self, row: FileNode, takes_more: Callable[[Node, FileNode], bool]) -> dict[Value, Value] | None:
        """Return what operands of a file's node are now, where that is all that changed; None where more did.

        `takes_more` tells whether a node may have operands where the file's has none.
        """
        own = {output for node in row.nodes for output in node.outputs}
        substitutions: dict[Value, Value] = {}
        for node in row.nodes:
            if node.graph is None:
                continue
            if not self.is_as_read(node):
                return None
            was = self.nodes[node][2]
            if len(was) > len(node.inputs):
                return None
            for at, now in enumerate(node.inputs):
                before = was[at] if at < len(was) else None
                if before is now:
                    continue
                if before is None or now is None:
                    if now is None or not takes_more(node, row):
                        return None
                elif before in own or substitutions.setdefault(before, now) is not now:
                    return None
            if not self._is_inside_as_read(node, row, substitutions):
                return None
        return substitutions

    def _is_inside_as_read(self, node: Node, row: FileNode, found: dict[Value, Value]) -> bool:
        """Return whether the regions of a node are as they were, but for values from around it that others took the place of.

        Those that are operands of the file's node are added to `found`.
        """
        for region in node.regions:
            for inner in region.walk():
                if not self.is_as_read(inner):
                    return False
                was = self.nodes[inner][2]
                if len(was) != len(inner.inputs) or any(
                    before is not now and (before is None or now is None or not self._is_outer(before) or not self._is_outer(now))
                    for before, now in zip(was, inner.inputs, strict=True)
                ):
                    return False
                for before, now in zip(was, inner.inputs, strict=True):
                    is_operand = before is not now and before is not None and now is not None and before in row.inputs
                    if is_operand and found.setdefault(before, now) is not now:  # type: ignore[arg-type]  # both are values
                        return False
        return True

    def _is_outer(self, value: Value) -> bool:
        """Return whether a value is, or was, one of the main graph."""
        graph = self.program.graph
        return value.graph is graph or (value.node is not None and value.node in self.nodes and value.node.graph is None)

    def places(self) -> list[float]:
        """Return the place of each of the file's nodes in the program; nodes that it lacks are behind the one before."""
        position = {node: at for at, node in enumerate(self.program.graph)}
        places: list[float] = []
        last = -1.0
        for row in self.rows:
            known = [position[node] for node in row.nodes if node in position]
            last = float(max(known)) if known else last + 1e-6
            places.append(last)
        return places


def in_order(makes: Sequence[Sequence[str]], reads: Sequence[Sequence[str]], places: Sequence[float]) -> list[int] | None:
    """Return an order in which everything is made before it is read, by `places` where that leaves a choice; None where there is none."""
    maker = {name: at for at, names in enumerate(makes) for name in names if name}
    needs = [{maker[name] for name in names if name in maker} - {at} for at, names in enumerate(reads)]
    order = sorted_by(places, needs)
    return order if len(order) == len(makes) else None


def packed_size(value: Value) -> int:
    """Return the bytes of a weight; UsageError where they are not known."""
    size = value.type.nbytes
    if not isinstance(size, int):
        raise weight_error(value, f"the size of {value.type} is not known")
    return size


def copy_values(value: Value, files: WeightFiles, write: Callable[[bytes], object]) -> int:
    """Write the packed values of a weight in pieces; returns how many bytes that was."""
    try:
        stored = stored_values(value.type, value.graph.data.get(value) if value.graph is not None else None, files)
        done, whole = 0, packed_size(value)
        while done < whole:
            piece = bytearray(min(PIECE, whole - done))
            files.read_into(stored.source, done, memoryview(piece))
            write(bytes(piece))
            done += len(piece)
    except Unreadable as error:
        raise weight_error(value, str(error)) from None
    return whole


def weight_error(value: Value, why: str) -> UsageError:
    """Return what is said of a weight that cannot be written."""
    return UsageError(f"the weight {(value.name or 'without a name')[:80]!r} cannot be written: {why}", code="IRS368")
