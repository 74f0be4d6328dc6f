"""The tables of costs: by node, by module, by operator, the largest, and what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, overload

from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.ir.places import Scope
from irscope.passes.cost.count import Certainty, Costs, Entry, Tally
from irscope.passes.sizes import dim_cell, scale, share_of
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Quantity

_CLASSES = ("matmul", "elementwise", "transcendental", "reduction")
_Cell: TypeAlias = Callable[[Entry], object]
Made: TypeAlias = "tuple[Column, _Cell]"
"""A column with the function that makes its cells."""


class _Rows(Sequence[object]):
    """A column of the table of nodes, whose cells are made when they are asked for: a model may have a hundred thousand."""

    def __init__(self, entries: Sequence[Entry], make: _Cell) -> None:
        self._entries = entries
        self._make = make

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> object: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[object]: ...
    def __getitem__(self, place: int | slice) -> object:
        if isinstance(place, slice):
            return [self._make(entry) for entry in self._entries[place]]
        return self._make(self._entries[place])


def nodes_table(costs: Costs, masked: Mapping[Node, Dim], top: int = 0) -> Table:
    """Return one row for each node, in program order or the `top` largest first; `masked` is what causal masks throw away."""
    whole = costs.tally.value("flops")
    entries = largest_entries(costs, top) if top else costs.entries
    more: list[Made] = [
        (
            Column("masked", Kind.FLOPS, help="part of matmul that a causal mask throws away"),
            lambda entry: None if entry.certainty is Certainty.UNKNOWN else dim_cell(masked.get(entry.node, 0) * entry.runs),
        ),
        (
            Column("arithmetic", help="what the node computes with: float, integer, quantised, or unknown"),
            lambda entry: entry.arithmetic.value if entry.cost.flops != 0 or entry.certainty is Certainty.UNKNOWN else "",
        ),
        (Column("runs", Kind.COUNT, help="how often it runs; other numbers are for all runs together"), lambda entry: dim_cell(entry.runs)),
        (Column("certainty", help="exact, bounded, free or unknown"), lambda entry: entry.certainty.value),
        (
            Column("share", Kind.RATIO, help="of all FLOPs that are known"),
            lambda entry: share(entry.cost.flops * entry.runs, whole, entry.limits("flops")),
        ),
    ]
    return entries_table("nodes", entries, ("flops", "read", "written", "macs", *_CLASSES), *more)


def entries_table(title: str, entries: Sequence[Entry], measures: Sequence[str], *more: Made) -> Table:
    """Return one row for each entry: where it is, its measures, and further columns with the functions that make their cells."""
    columns: list[Made] = [
        (Column("node", Kind.NODE), lambda entry: entry.node.name),
        (Column("operator"), lambda entry: entry.node.op),
        (Column("module"), lambda entry: entry.node.scope.path),
        *map(_measure_column, measures),
        *more,
    ]
    data = {column.key: _Rows(entries, make) for column, make in columns}
    return Table(title, tuple(column for column, _ in columns), data)


_KINDS = {"read": Kind.BYTES, "written": Kind.BYTES, "macs": Kind.COUNT}


def _measure_column(measure: str) -> Made:
    def make(entry: Entry) -> object:
        value = getattr(entry.cost, measure)
        if entry.bounds is None:
            return dim_cell(value if entry.runs == 1 else value * entry.runs)
        return cell((0 if value is None else value) * entry.runs, entry.limits(measure))

    return Column(measure, _KINDS.get(measure, Kind.FLOPS)), make


def top_table(costs: Costs, top: int) -> Table:
    """Return the nodes with the most FLOPs, in few columns, with the share of these and all before them."""
    whole = costs.tally.value("flops")
    rows: list[tuple[object, ...]] = []
    so_far: Dim = 0
    for entry in largest_entries(costs, top):
        node, flops = entry.node, entry.cost.flops * entry.runs
        so_far = so_far + flops
        shown = cell(flops, entry.limits("flops"))
        rows.append((node.name, node.op, node.scope.path, shown, share(flops, whole, entry.limits("flops")), share_of(so_far, whole)))
    columns = ["node", "operator:text", "module:text", "flops", "share:ratio", "cumulative:ratio"]
    return Table.of(rows, columns=columns, title=f"top {top}")


def largest_entries(costs: Costs, count: int) -> list[Entry]:
    """Return the entries with the most FLOPs, largest first."""
    return sorted(costs.entries, key=lambda entry: -scale(entry.cost.flops * entry.runs))[:count]


def cell(value: Dim, limits: tuple[Dim, Dim | None]) -> object:
    """Return a number with its limits: unknown where it has no upper one and nothing is known to be there."""
    low, high = limits
    if high is not None and low == high:
        return dim_cell(value)
    shown = dim_cell(value) if high is not None or value != 0 else None
    return Quantity(shown, lo=dim_cell(low), hi=None if high is None else dim_cell(high))


def share(part: Dim, whole: Dim, certainty: tuple[Dim, Dim | None]) -> float | None:
    """Return the part of all FLOPs that are known; None where it depends on sizes, and for what is not known itself."""
    return None if certainty[1] is None and part == 0 else share_of(part, whole)


def operators_table(costs: Costs) -> Table:
    """Return one row for each kind of operator, largest first."""
    tallies: dict[str, Tally] = {}
    for (_, op), tally in costs.places.items():
        tallies.setdefault(op, Tally()).merge(tally)
    whole = costs.tally.value("flops")
    ordered = sorted(tallies.items(), key=lambda item: (-scale(item[1].value("flops")), -scale(item[1].value("read")), item[0]))
    rows = [(op, tally.count, *_tally_cells(tally, whole)) for op, tally in ordered]
    return Table.of(rows, columns=["operator:text", "nodes:count", *_SUM_COLUMNS], title="operators")


def modules_table(costs: Costs) -> Table:
    """Return the tree of module calls, each with everything inside it."""
    tallies = tally_tree(costs)
    whole = costs.tally.value("flops")
    rows = [
        (scope_label(scope), scope.cls, tallies[scope].count, *_tally_cells(tallies[scope], whole), scope.path, scope.depth)
        for scope in in_order(tallies)
    ]
    columns = ["tree:text", "class:text", "nodes:count", *_SUM_COLUMNS, "module:text", "depth:index"]
    return replace(Table.of(rows, columns=columns, title="modules"), depth="depth")


def tally_tree(costs: Costs) -> dict[Scope, Tally]:
    """Module calls, each with the sum of everything inside it."""
    tallies: dict[Scope, Tally] = {}
    for (scope, _), tally in costs.places.items():
        outer: Scope | None = scope
        while outer is not None and outer not in tallies:
            tallies[outer] = Tally()
            outer = outer.parent
        tallies[scope].merge(tally)
    for scope in sorted(tallies, key=lambda scope: -scope.depth):
        if scope.parent is not None:
            tallies[scope.parent].merge(tallies[scope])
    return tallies


def scope_label(scope: Scope) -> str:
    """Return a module call in a tree of them, as far in as it is deep."""
    name = f"{scope.name}#{scope.call}" if scope.call else scope.name
    return f"{'  ' * scope.depth}{name}" if scope.parent is not None else "(model)"


def in_order(tallies: Iterable[Scope]) -> list[Scope]:
    """Outer before inner, siblings in the order in which they are first called."""
    inside: dict[Scope | None, list[Scope]] = {}
    for scope in tallies:
        inside.setdefault(scope.parent, []).append(scope)
    ordered: list[Scope] = []
    pending = list(reversed(inside.get(None, [])))
    while pending:
        scope = pending.pop()
        ordered.append(scope)
        pending.extend(reversed(inside.get(scope, [])))
    return ordered


_SUM_COLUMNS = ("flops:flops", "share:ratio", "macs:count", *(f"{name}:flops" for name in _CLASSES), "read:bytes", "written:bytes")


def _tally_cells(tally: Tally, whole: Dim) -> Sequence[object]:
    flops = tally.value("flops")
    others = [cell(tally.value(measure), tally.limits(measure)) for measure in ("macs", *_CLASSES, "read", "written")]
    limits = tally.limits("flops")
    return cell(flops, limits), share(flops, whole, limits), *others


def unknown_table(costs: Costs) -> Table:
    """Return the operators whose cost is unknown, with the first node of each and the reason."""
    rows = [(op, len(nodes), nodes[0].name, costs.reasons.get(nodes[0], "")) for op, nodes in costs.unknown.items()]
    return Table.of(rows, columns=["operator:text", "nodes:count", "first:node", "reason:text"], title="unknown")


def certainties(counted: Iterable[Certainty]) -> dict[str, int]:
    """Number of nodes by certainty of their cost."""
    counts = {kind.value: 0 for kind in Certainty}
    for kind in counted:
        counts[kind.value] += 1
    return counts
