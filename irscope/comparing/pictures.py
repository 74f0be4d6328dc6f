"""What `irscope compare --plot` draws: times by node, and bytes alive on both sides."""

from __future__ import annotations

from irscope.comparing.models import ModelComparison, Row
from irscope.comparing.present import name_of
from irscope.comparing.runpresent import nodes_table
from irscope.comparing.runs import RunComparison
from irscope.comparing.side import Side
from irscope.ir.graph import Node
from irscope.passes.roofline import Roofline
from irscope.report.picture import Panel, largest_bars, report_panels
from irscope.report.report import Report
from irscope.report.table import Column
from irscope.report.units import Kind
from irscope.report.values import Number, Provenance, bare


def run_panels(compared: RunComparison, report: Report) -> list[Panel]:
    """A prediction and a recording: what the nodes took beside their least time, and bytes alive."""
    table = nodes_table(compared)
    pairs = zip(table.cells("module"), table.cells("node"), strict=True)
    names = [f"{module}: {node}" if module else str(node) for module, node in pairs]
    columns = [column for column in table.columns if column.key in ("measured_time", "least_time")]
    cells = [[_number(bare(cell)) for cell in table.cells(column.key)] for column in columns]
    times = largest_bars("time by node", names, list(zip(columns, cells, strict=True)))
    return [*([times] if times is not None else []), *report_panels([report])]


def model_panels(compared: ModelComparison, report: Report) -> list[Panel]:
    """Two models: bytes alive, and the least time of nodes where it differs, of all nodes where it never does."""
    a, b = (_seconds(side) for side in (compared.a, compared.b))
    pairs = [(row, _sum(a, compared.a, row.a), _sum(b, compared.b, row.b)) for row in compared.rows]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    shown: list[tuple[Row, float, float]] = differing or pairs
    names = [f"{module}: {name_of(compared, row)}" if (module := compared.module(row)) else name_of(compared, row) for row, _, _ in shown]
    columns = [Column(key, Kind.SECONDS, key.upper(), provenance=Provenance.MODELLED) for key in ("a", "b")]
    words = "least time by node, where it differs" if differing else "least time by node, the same in both"
    times = largest_bars(words, names, [(columns[0], [one for _, one, _ in shown]), (columns[1], [other for _, _, other in shown])])
    return [*report_panels([report]), *([times] if times is not None else [])]


def _seconds(side: Side) -> dict[Node, float]:
    bounds = side.model.manager.get(Roofline())
    return {one.node: bounds.seconds_of(one) for one in bounds.nodes}


def _sum(seconds: dict[Node, float], side: Side, numbers: tuple[int, ...]) -> float:
    return sum(seconds.get(side.nodes[number], 0.0) for number in numbers)


def _number(value: object) -> Number | None:
    return value if isinstance(value, int | float) else None
