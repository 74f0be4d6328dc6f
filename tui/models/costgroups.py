"""Least times of nodes summed up by node, operator kind or module, as arrays: large models have as many rows as nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from irscope.ir.graph import Node
from irscope.ir.places import Scope
from irscope.tui.models.amounts import Floats
from irscope.tui.models.outline import Ints, Outline
from irscope.tui.models.tree import Mask

if TYPE_CHECKING:
    from irscope.passes.rooflines.bounds import Bounds

By = Literal["module", "kind", "node"]
GROUPINGS: tuple[By, ...] = ("module", "kind", "node")
UNKNOWN = "unknown"


class NodeTimes:
    """The least time of each node with where the node stands in the outline; holds nothing of the model that was timed."""

    def __init__(self, times: Bounds, outline: Outline) -> None:
        nodes, kind = times.nodes, times.device.kind
        self.device = times.device
        self.seconds: Floats = np.array([one.seconds(kind) for one in nodes], dtype=np.float64)
        self.flops: Floats = np.array([float(one.flops * one.runs) for one in nodes], dtype=np.float64)
        self.bytes: Floats = np.array([float(one.bytes * one.runs) for one in nodes], dtype=np.float64)
        numbers: dict[str, int] = {UNKNOWN: 0}
        self.bound: Ints = np.array([numbers.setdefault(one.binding, len(numbers)) for one in nodes], dtype=np.int64)
        self.bounds = list(numbers)
        """The bound as a code; 0 is unknown."""
        self.total = times.seconds
        self.rows: Ints = np.array(list(_rows(times, outline)), dtype=np.int64)
        """Rows of the outline, -1 where a node is not there."""
        # References are to the model's own nodes, so that the timed copy can be freed.
        self.nodes = [_own(outline, row, one.node) for row, one in zip(self.rows.tolist(), nodes, strict=True)]
        kinds: dict[str, int] = {}
        self.kind: Ints = np.array([kinds.setdefault(node.op, len(kinds)) for node in self.nodes], dtype=np.int64)
        self.kinds = list(kinds)
        scopes: dict[Scope, int] = {}
        for node in self.nodes:
            _note(node.scope, scopes)
        self.scope: Ints = np.array([scopes[node.scope] for node in self.nodes], dtype=np.int64)
        self.scopes = list(scopes)
        self.outer: Ints = np.array([-1 if scope.parent is None else scopes[scope.parent] for scope in scopes], dtype=np.int64)
        """For each module call the one around it, which has a smaller number."""
        work: dict[str, float] = {}
        for one, flops in zip(nodes, self.flops.tolist(), strict=True):
            work[one.dtype] = work.get(one.dtype, 0.0) + flops
        self.dtypes = sorted(work, key=lambda name: -work[name])
        """Element types, those that most arithmetic is done in first."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def is_unknown(self) -> Mask:
        """Which nodes have no least time."""
        found: Mask = self.bound == 0
        return found


def _own(outline: Outline, row: int, timed: Node) -> Node:
    """The node of a row; the one that was timed where the outline has none."""
    found = outline.items[row] if row >= 0 else timed
    return found if isinstance(found, Node) else timed


def _note(scope: Scope, scopes: dict[Scope, int]) -> None:
    """Give numbers to a module call and those around it, outer ones first."""
    missing: list[Scope] = []
    one: Scope | None = scope
    while one is not None and one not in scopes:
        missing.append(one)
        one = one.parent
    for found in reversed(missing):
        scopes[found] = len(scopes)


def _rows(times: Bounds, outline: Outline) -> Iterator[int]:
    """The row of each node, which may be one of the same model read again with other sizes."""
    names: dict[tuple[str, str], int] = {}
    for one in times.nodes:
        row = outline.row_of.get(one.node)
        if row is None:
            if not names:
                names = {(node.name, node.op): place for node, place in reversed(outline.row_of.items())}
            row = names.get((one.node.name, one.node.op), -1)
        yield row


@dataclass(frozen=True)
class Group:
    """Nodes that stand in one row."""

    name: str
    count: int
    flops: int
    bytes: int
    seconds: float
    unknown: int
    binding: str
    """What takes most of the time."""

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte; None where there are none of either."""
        return self.flops / self.bytes if self.bytes and self.flops else None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of it."""
        return self.unknown >= self.count


class Groups(Sequence[Group]):
    """The rows of one grouping; each is made when it is looked at."""

    def __init__(self, times: NodeTimes, by: By) -> None:
        self._times = times
        self.by = by
        count = {"module": len(times.scopes), "kind": len(times.kinds), "node": len(times)}[by]
        known = ~times.is_unknown
        self.counts = self._summed(np.ones(len(times), dtype=np.float64), count)
        self.unknown = self._summed((~known).astype(np.float64), count)
        self.flops, self.bytes, self.seconds = (
            self._summed(np.where(known, amounts, 0.0), count) for amounts in (times.flops, times.bytes, times.seconds)
        )
        bounds = range(1, len(times.bounds))
        shares = [self._summed(np.where(times.bound == one, times.seconds, 0.0), count) for one in bounds]
        hits = [self._summed((times.bound == one).astype(np.float64), count) for one in bounds]
        # What takes most of the time binds; where nothing takes any, what is there at all.
        self.bound: Ints = np.zeros(count, dtype=np.int64)
        if shares:
            weights = np.stack(shares) * 1e9 + np.stack(hits) * 1e-9
            self.bound = np.where(weights.max(axis=0) > 0, weights.argmax(axis=0) + 1, 0)

    def _summed(self, amounts: Floats, count: int) -> Floats:
        times = self._times
        if self.by == "node":
            return amounts
        if self.by == "kind":
            return np.bincount(times.kind, amounts, minlength=count).astype(np.float64)
        total = np.bincount(times.scope, amounts, minlength=count)
        # Inner calls have larger numbers than those around them.
        outer = times.outer.tolist()
        sums = total.tolist()
        for number in range(count - 1, 0, -1):
            if outer[number] >= 0:
                sums[outer[number]] += sums[number]
        return np.array(sums, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, number: int) -> Group:  # type: ignore[override]  # slices are not used
        return Group(
            self.name(number),
            int(self.counts[number]),
            int(self.flops[number]),
            int(self.bytes[number]),
            float(self.seconds[number]),
            int(self.unknown[number]),
            self._times.bounds[int(self.bound[number])],
        )

    def name(self, number: int) -> str:
        """The first column."""
        times = self._times
        if self.by == "module":
            return times.scopes[number].path or "(model)"
        return times.kinds[number] if self.by == "kind" else times.nodes[number].name or times.nodes[number].op

    @property
    def names(self) -> list[str]:
        """All names in order."""
        return [self.name(number) for number in range(len(self))]

    @property
    def is_unknown(self) -> Mask:
        """Rows without any known time."""
        found: Mask = self.unknown >= self.counts
        return found

    @property
    def intensity(self) -> Floats:
        """FLOPs for each byte; NaN where there are none of either."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where((self.bytes > 0) & (self.flops > 0), self.flops / self.bytes, np.nan)
        return found

    def nodes(self, number: int) -> Ints:
        """The places of the nodes of a row in the times."""
        times = self._times
        if self.by == "node":
            return np.array([number], dtype=np.int64)
        if self.by == "kind":
            return np.flatnonzero(times.kind == number).astype(np.int64)
        inside = np.zeros(len(times.scopes), dtype=np.bool_)
        inside[number] = True
        for one in range(number + 1, len(times.scopes)):
            inside[one] = times.outer[one] >= 0 and inside[times.outer[one]]
        return np.flatnonzero(inside[times.scope]).astype(np.int64)

    def keys(self, amounts: Callable[[], Floats]) -> Callable[[], Floats]:
        """What rows are sorted by; NaN, which comes last, where nothing is known."""
        return lambda: np.where(self.is_unknown, np.nan, amounts())
