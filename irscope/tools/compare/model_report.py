"""The comparison of two models as a report: what every renderer and the UI show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from irscope.diagnostics import Diagnostic
from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.passes.cost.roofline import Roofline
from irscope.passes.sizes import CONVENTION, dim_cell, scale
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance
from irscope.tools.compare.document import Measure, change_text
from irscope.tools.compare.matching import Side
from irscope.tools.compare.models import CHANGED, SAME, Fate, ModelComparison, ModuleSums, Row, Total, ops_text, totals
from irscope.tools.compare.weights import weights_headline, weights_measure, weights_table

_MOST_POINTS = 10_000
_LONGEST = 60
_SIZES = "sizes as requested: peak is what is alive at once beyond weights and inputs; difference is B less A"
_FATES = (Fate.FUSED.value, Fate.SPLIT.value, Fate.REPLACED.value, Fate.REMOVED.value, Fate.ADDED.value)


def model_report(compared: ModelComparison, *, everything: bool = False, diagnostics: Sequence[Diagnostic] = ()) -> Report:
    """Return the report; `everything` lists what is equal too."""
    found = totals(compared)
    a, b = compared.matched
    return Report(
        pass_name="compare",
        options="compare",
        headline=tuple(model_headline(compared)),
        summary={
            **{total.key: total.cells() for total in found},
            "matched": {"a": a, "b": b},
            "rows": {kind: compared.counts.get(kind, 0) for kind in (SAME, CHANGED, *_FATES)},
        },
        units={**{total.key: total.kind for total in found}, **{f"{total.key}.change": Kind.RATIO for total in found}},
        tables=(
            patterns_table(compared),
            modules_table(compared, everything),
            nodes_table(compared, everything),
            weights_table(compared, everything),
        ),
        series=model_series(compared),
        pictures=lambda: model_panels(compared),
        notes=(CONVENTION, _SIZES, *compared.notes),
        diagnostics=tuple(diagnostics),
    )


def model_headline(compared: ModelComparison) -> list[str]:
    """Return the headline, in a few lines."""
    known = {total.key: total for total in totals(compared)}
    if not compared.has_graph:
        return [*weights_headline(compared), _said(known["parameter_bytes"], "parameters")]
    lines = [", ".join(_said(known[key], name) for key, name in _SAID), *weights_headline(compared)]
    a, b = compared.matched
    counts = compared.counts
    parts = [f"{a:,} of {len(compared.a.nodes):,} nodes of A and {b:,} of {len(compared.b.nodes):,} of B have a counterpart"]
    parts += [f"{counts[kind]:,} {_PLURAL[kind]}" for kind in (CHANGED, *_FATES) if counts.get(kind)]
    return [*lines, "; ".join(parts)]


_SAID = (("peak_bytes", "activation peak"), ("flops", "FLOPs"), ("parameter_bytes", "parameters"), ("nodes", "nodes"))
_PLURAL = {
    CHANGED: "differ",
    Fate.FUSED.value: "fused",
    Fate.SPLIT.value: "split up",
    Fate.REPLACED.value: "replaced",
    Fate.REMOVED.value: "removed",
    Fate.ADDED.value: "added",
}


def _said(total: Total, name: str) -> str:
    if total.difference is None:
        return f"{name} unknown"
    if total.difference == 0:
        return f"{name} the same"
    change = total.change
    if change is None or math.isinf(change):
        text = " -> ".join(total.said)
        return f"{name} {text if len(text) <= _LONGEST else 'another formula'}"
    return f"{name} {change_text(change)}"


class _Price:
    """The cost of differences: the largest share of the models' FLOPs, weights and traffic. Formulas count at typical sizes."""

    def __init__(self, compared: ModelComparison) -> None:
        self._compared = compared
        whole = compared.modules.get("", (ModuleSums(), ModuleSums()))
        self._flops = max(1, *(scale(sums.flops) for sums in whole))
        self._weights = max(1, *(scale(sums.weight_bytes) for sums in whole))
        self._moved = max(1, *(scale(side.costs.tally.value("read") + side.costs.tally.value("written")) for side in compared.sides))

    def difference(self, flops: Dim, weights: Dim, moved: Dim = 0) -> float:
        """Return the largest difference as a share of its measure."""
        return max(abs(scale(flops)) / self._flops, abs(scale(weights)) / self._weights, abs(scale(moved)) / self._moved)

    def of(self, row: Row) -> float:
        """Return the difference of a row; unknown values of a side cost nothing."""
        compared = self._compared
        pairs = (compared.flops(row), compared.weight_bytes(row), compared.moved(row))
        return self.difference(*[0 if a is None or b is None else _less(a, b) for a, b in pairs])


# -- tables ----------------------------------------------------------------------------------------------------


def patterns_table(compared: ModelComparison) -> Table:
    """Fused, split and replaced groups, equal ones counted, by decreasing cost."""
    price = _Price(compared)
    costs: dict[tuple[str, str, str], float] = {}
    counter: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], Row] = {}
    for row in compared.rows:
        if row.kind in _FATES:
            key = (row.kind, ops_text(compared.a, row.a), ops_text(compared.b, row.b))
            counter[key] += 1
            costs[key] = costs.get(key, 0.0) + price.of(row)
            examples.setdefault(key, row)
    rows = [
        (kind, count, before or "nothing", after or "nothing", name_of(compared, examples[kind, before, after]))
        for (kind, before, after), count in sorted(counter.items(), key=lambda item: (-costs[item[0]], -item[1]))
    ]
    return Table.of(rows, columns=["change:text", "times:count", "a:text", "b:text", "first:node"], title="fused, split and replaced nodes")


def modules_table(compared: ModelComparison, everything: bool = False) -> Table:
    """Return the sums by module, the largest differences first."""
    price = _Price(compared)
    rows: list[tuple[float, tuple[object, ...]]] = []
    for path, (a, b) in compared.modules.items():
        if not everything and a == b:
            continue
        flops, weights = _less(a.flops, b.flops), _less(a.weight_bytes, b.weight_bytes)
        weight = price.difference(flops, weights) if path else math.inf
        cells = (
            path or "(model)",
            a.nodes,
            b.nodes,
            *(None if sums.unknown else dim_cell(sums.flops) for sums in (a, b)),
            None if a.unknown or b.unknown else dim_cell(flops),
            dim_cell(a.weight_bytes),
            dim_cell(b.weight_bytes),
            dim_cell(weights),
            a.alive if a.nodes else 0,
            b.alive if b.nodes else 0,
        )
        rows.append((weight, cells))
    rows.sort(key=lambda row: -row[0])
    columns = [
        Column("module"),
        Column("nodes_a", Kind.COUNT),
        Column("nodes_b", Kind.COUNT),
        Column("flops_a", Kind.FLOPS),
        Column("flops_b", Kind.FLOPS),
        Column("flops_difference", Kind.FLOPS),
        Column("weights_a", Kind.BYTES, detail=True),
        Column("weights_b", Kind.BYTES, detail=True),
        Column("weights_difference", Kind.BYTES),
        Column("alive_a", Kind.BYTES, help="the most alive at any of its steps"),
        Column("alive_b", Kind.BYTES),
    ]
    return Table.of([cells for _, cells in rows], columns=columns, title="modules" if everything else "modules that differ")


def nodes_table(compared: ModelComparison, everything: bool = False) -> Table:
    """Return every node of both models in order, or those that differ, by decreasing cost."""
    rows = [row for row in compared.rows if everything or row.kind != SAME]
    if not everything:
        rows.sort(key=_Price(compared).of, reverse=True)
    columns = [
        Column("node", Kind.NODE),
        Column("change"),
        Column("what"),
        Column("operator"),
        Column("module"),
        Column("flops_a", Kind.FLOPS),
        Column("flops_b", Kind.FLOPS),
        Column("weights_a", Kind.BYTES, detail=True),
        Column("weights_b", Kind.BYTES, detail=True),
        Column("alive_a", Kind.BYTES),
        Column("alive_b", Kind.BYTES),
        Column("matched_by", detail=True),
        Column("node_a", Kind.NODE, detail=True),
        Column("node_b", Kind.NODE, detail=True),
    ]
    keys = [compared.a.nodes[row.a[0]].name if row.a else "" for row in rows]
    return Table.of((_row_cells(compared, row) for row in rows), columns, "nodes" if everything else "nodes that differ", keys)


def _row_cells(compared: ModelComparison, row: Row) -> tuple[object, ...]:
    pairs = (compared.flops(row), compared.weight_bytes(row), compared.alive(row))
    numbers = [dim_cell(value) if numbers else 0 for pair in pairs for value, numbers in zip(pair, (row.a, row.b), strict=True)]
    return (
        name_of(compared, row),
        row.kind,
        what(compared, row),
        operator(compared, row),
        compared.module(row),
        *numbers,
        row.how.value if row.how is not None else "",
        _names(compared.a, row.a),
        _names(compared.b, row.b),
    )


def name_of(compared: ModelComparison, row: Row) -> str:
    """Return a row by its first node."""
    return compared.a.nodes[row.a[0]].name if row.a else compared.b.nodes[row.b[0]].name


def operator(compared: ModelComparison, row: Row) -> str:
    """Return the operators of a row, before and after where they are not the same."""
    a, b = ops_text(compared.a, row.a), ops_text(compared.b, row.b)
    return a if a == b or not b else b if not a else f"{a} -> {b}"


def what(compared: ModelComparison, row: Row) -> str:
    """Return the differences of a row in words."""
    found: list[str] = []
    for change in row.changes:
        if change.aspect != "flops":
            found.append(f"{change.aspect} {change.text}" if change.aspect in ("shape", "dtype") else change.text)
        elif len(row.changes) == 1 and row.kind == CHANGED:
            found.append("FLOPs")
    return "; ".join(found)


def _names(side: Side, numbers: Sequence[int]) -> str:
    return ", ".join(side.nodes[number].name for number in numbers)


def _less(a: Dim, b: Dim) -> Dim:
    return b - a


# -- timelines -------------------------------------------------------------------------------------------------


def model_series(compared: ModelComparison) -> tuple[Series, ...]:
    """Return the bytes alive on both sides over one axis; nothing where sizes are open."""
    lines = timelines(compared)
    if lines is None or not lines[0]:
        return ()
    places = _shown_places(*lines)
    rows: dict[str, list[object]] = {
        "place": list(places),
        "a": [lines[0][place] for place in places],
        "b": [lines[1][place] for place in places],
    }
    marks = tuple(Mark(line.index(max(line)), f"peak of {name}") for name, line in zip("AB", lines, strict=True) if max(line, default=0))
    columns = (Column("a", Kind.BYTES, "A"), Column("b", Kind.BYTES, "B"))
    title = "bytes alive over the nodes of both, in order"
    return (Series(title, Column("place", Kind.COUNT), columns, rows, marks=marks, stacked=False),)


def timelines(compared: ModelComparison) -> tuple[list[int], list[int]] | None:
    """Return the bytes alive at each place of the common axis; None where a size is open."""
    lines: list[list[int]] = []
    for number, side in enumerate(compared.sides):
        alive = [size for size in side.timeline.alive if isinstance(size, int)]
        if len(alive) < len(side.timeline.alive):
            return None
        lines.append([alive[place[number]] if 0 <= place[number] < len(alive) else 0 for place in compared.axis])
    return lines[0], lines[1]


def _shown_places(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return all positions, or of many the highest of either side in each interval."""
    count = len(a)
    if count <= _MOST_POINTS:
        return list(range(count))
    width = -(-2 * count // _MOST_POINTS)
    return sorted(
        {max(range(first, min(first + width, count)), key=line.__getitem__) for line in (a, b) for first in range(0, count, width)}
    )


def model_panels(compared: ModelComparison) -> list[Panel]:
    """Two models: the least time of nodes where it differs, of all nodes where it never does."""
    a, b = (_least_by_node(side) for side in (compared.a, compared.b))
    pairs = [(row, _seconds_of_nodes(a, compared.a, row.a), _seconds_of_nodes(b, compared.b, row.b)) for row in compared.rows]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    shown: list[tuple[Row, float, float]] = differing or pairs
    names = [f"{module}: {name_of(compared, row)}" if (module := compared.module(row)) else name_of(compared, row) for row, _, _ in shown]
    columns = [Column(key, Kind.SECONDS, key.upper(), provenance=Provenance.MODELLED) for key in ("a", "b")]
    words = "least time by node, where it differs" if differing else "least time by node, the same in both"
    times = largest_bars(words, names, [(columns[0], [one for _, one, _ in shown]), (columns[1], [other for _, _, other in shown])])
    return [times] if times is not None else []


def _least_by_node(side: Side) -> dict[Node, float]:
    bounds = side.model.manager.get(Roofline())
    return {node.node: bounds.seconds_of(node) for node in bounds.nodes}


def _seconds_of_nodes(seconds: dict[Node, float], side: Side, numbers: tuple[int, ...]) -> float:
    return sum(seconds.get(side.nodes[number], 0.0) for number in numbers)


_TOTALS = {
    "peak": "peak_bytes",
    "flops": "flops",
    "moved": "moved_bytes",
    "parameters": "parameters",
    "bytes": "parameter_bytes",
    "nodes": "nodes",
    "device_peak": "device_peak_bytes",
    "reserved": "device_reserved_bytes",
}
MODEL_MEASURES = (*_TOTALS, "changed", "unmatched", "weights")
"""Names that `--fail-on` takes for two models."""


def model_measures(compared: ModelComparison) -> dict[str, Measure]:
    """Return by how much B is above A, how many rows differ, and how many nodes have no counterpart."""
    known = {total.key: total for total in totals(compared)}
    found = {name: _measure(known.get(key)) for name, key in _TOTALS.items()}
    rows = len(compared.rows)
    changed = rows - compared.counts.get(SAME, 0)
    counted = len(compared.a.nodes) + len(compared.b.nodes)
    lonely = counted - sum(compared.matched)
    found[CHANGED] = Measure(changed, changed / rows if rows else 0.0, f"{changed:,} of {rows:,} differ")
    found["weights"] = weights_measure(compared)
    found["unmatched"] = Measure(lonely, lonely / counted if counted else 0.0, f"{lonely:,} of {counted:,} nodes have no counterpart")
    return found


def _measure(total: Total | None) -> Measure:
    if total is None or total.difference is None:
        return Measure(None, None, "")
    difference = total.difference
    amount = float(difference) if isinstance(difference, int) else None
    share = total.change
    if share is None and amount is not None:
        share = float("inf") if amount > 0 else 0.0
    a, b = total.said
    text = f"A {a}, B {b}"
    if share is not None and total.kind is not Kind.TEXT:
        text += f", {'+' if share > 0 else ''}{share:.1%}"
    return Measure(amount, share, text)
