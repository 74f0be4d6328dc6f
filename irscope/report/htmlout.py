"""Reports and tables as HTML without a script, as a notebook shows them. `irscope.report.htmlpage` makes whole pages of the same parts.

Every cell that shows a number with a unit carries the raw value in `data-value`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat

from irscope.report.card import Card
from irscope.report.cardtext import TENSOR_HEADS, CardView, card_view
from irscope.report.celltext import CellWriter
from irscope.report.chart import drawable
from irscope.report.options import RenderOptions
from irscope.report.plot import SVG_STYLE, svg_chart, svg_text
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Column, Entry, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Cell, Provenance, Quantity, bare, raw_text

ROWS = 1000
"""Default number of rows shown of a table."""
STYLE = """
h2 { font: 600 1.1rem ui-monospace, monospace; margin: 2.5rem 0 .5rem; border-bottom: 1px solid #8888; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font: 13px/1.5 ui-monospace, monospace; }
th, td { padding: .15rem .7rem; text-align: left; vertical-align: top; white-space: pre; }
thead th { border-bottom: 1px solid #8888; }
tbody tr:nth-child(even) { background: #8881; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.summary .number { text-align: left; }
.unknown, .quiet { opacity: .75; }
.error, .warning, .headline { font-weight: 600; }
svg { width: 100%; max-width: 61rem; }
"""
_NARROW, _WIDEST = 4, 30
"""Letters of a truth, and the widest that a column of texts is asked to be."""
_NOTEBOOK = RenderOptions(rows=20, all_rows="to_dicts() has all rows")


def alone(part: Report | Table | Card | Document) -> str:
    """Return what stands in somebody else's page, a notebook's: its style holds for it alone, and there is no script."""
    writer = PartWriter(_NOTEBOOK)
    if isinstance(part, Report):
        parts = writer.section(part)
    elif isinstance(part, Table):
        parts = chain([f"<h3>{svg_text(part.title)}</h3>\n"], writer.table(part))
    elif isinstance(part, Document):
        parts = chain([f"<h2>{svg_text(part.about)}</h2>\n"] if part.about else [], *map(writer.section, part.reports))
    else:
        parts = _card(part)
    return f'<div class="irscope">\n<style>\n.irscope {{{STYLE}{SVG_STYLE}}}\n</style>\n{"".join(parts)}</div>\n'


def _card(card: Card) -> Iterator[str]:
    view = card_view(card)
    yield f'<h2>{svg_text(view.title)}</h2>\n<p class="headline">{svg_text(view.verdict)}</p>\n<table class="summary">\n<tbody>\n'
    for tile in view.tiles:
        yield f'<tr><th scope="row">{svg_text(tile.name)}</th><td><b>{svg_text(tile.number)}</b></td><td>{svg_text(tile.note)}</td></tr>\n'
    yield "</tbody>\n</table>\n"
    yield from card_facts(card, view)


def card_facts(card: Card, view: CardView) -> Iterator[str]:
    """Yield the sentences of a card, the largest tensors, and what to do next."""
    yield '<dl class="facts">\n'
    label = ""
    for name, text in view.facts:
        if name and name != label:
            yield f"{'</dd>' if label else ''}<dt>{svg_text(name)}</dt><dd>"
            label = name
        yield f"<p>{svg_text(text)}</p>\n"
    yield f"{'</dd>' if label else ''}</dl>\n"
    if view.tensors:
        yield '<h3>Largest tensors at the peak</h3>\n<div class="scroll"><table class="rows">\n<thead><tr>'
        yield "".join(f'<th scope="col"{" class=number" if head == "size" else ""}>{head}</th>' for head in TENSOR_HEADS)
        yield "</tr></thead>\n<tbody>\n"
        for size, *others in view.tensors:
            yield f'<tr><td class="number">{svg_text(size)}</td>{"".join(f"<td>{svg_text(text)}</td>" for text in others)}</tr>\n'
        yield "</tbody></table></div>\n"
    if card.remarks:
        yield "<h3>What would help</h3>\n<ul>\n"
        yield from (f"<li>{svg_text(remark.text)}: saves <strong>{svg_text(remark.saves)}</strong></li>\n" for remark in card.remarks)
        yield "</ul>\n"
    if card.next:
        yield "<h3>To go on</h3>\n<ul>\n"
        yield from (f"<li><code>{svg_text(hint.line)}</code> {svg_text(hint.answers)}</li>\n" for hint in card.next)
        yield "</ul>\n"
    if view.legend:
        yield f'<p class="quiet">{svg_text(view.legend)}</p>\n'


class PartWriter:
    """Writes the parts of reports."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.cells = CellWriter(RenderOptions(humanise=options.humanise))

    def section(self, report: Report) -> Iterator[str]:
        """Yield a whole report."""
        self.cells = CellWriter(RenderOptions(humanise=self.options.humanise))
        yield from self.heading(report)
        yield from (f'<p class="headline">{svg_text(line)}</p>\n' for line in report.headline)
        yield from self.body(report)
        for diagnostic in report.diagnostics:
            yield f'<p class="{diagnostic.severity.text}">{svg_text(str(diagnostic))}</p>\n'
        if self.cells.legend():
            yield f'<p class="quiet">{svg_text(self.cells.legend())}</p>\n'
        yield "</section>\n"

    def heading(self, report: Report) -> Iterator[str]:
        """Yield what a section begins with."""
        yield f"<section>\n<h2>{svg_text(report.options or report.pass_name)}</h2>\n"

    def body(self, report: Report) -> Iterator[str]:
        """Yield what is between the answer and the diagnostics."""
        yield from self.summary(report.entries())
        yield from self.notes(report)
        for table in report.tables:
            yield f"<h3>{svg_text(table.title)}</h3>\n"
            yield from self.table(table)
        for series in report.series if self.options.charts else ():
            picture = list(svg_chart(series))
            if picture:
                yield f"<h3>{svg_text(series.title)}</h3>\n"
                yield from picture

    def notes(self, report: Report) -> Iterator[str]:
        """Conventions, and how much of the model is known."""
        for note in report.notes:
            yield f'<p class="quiet">{svg_text(note)}</p>\n'
        if report.coverage is not None and report.coverage.total:
            yield _coverage_line(report.coverage)

    def summary(self, entries: Sequence[Entry]) -> Iterator[str]:
        """Yield the few numbers of a report."""
        if not entries:
            return
        yield '<div class="scroll"><table class="summary">\n<tbody>\n'
        for entry in entries:
            cell = self.cell(entry.cell, entry.kind, Provenance.EXACT)
            yield f'<tr><th scope="row">{svg_text(entry.key)}</th>{cell}<td>{svg_text(details(entry.cell))}</td></tr>\n'
        yield "</tbody>\n</table></div>\n"

    def table(self, table: Table) -> Iterator[str]:
        """Yield a table without its title."""
        shown = self.shown(table)
        yield from self.grid(table, shown.rows())
        yield from self.left_out(table, shown)

    def shown(self, table: Table) -> Table:
        """Return the rows that are shown."""
        return table.first(ROWS if self.options.rows is None else self.options.rows)

    def grid(self, table: Table, rows: Iterable[Sequence[Cell]], attributes: Iterable[str] = repeat("")) -> Iterator[str]:
        """Yield the columns of a table over some rows, with the attributes that rows have."""
        heads = "".join(_head(column, _least_width(table, column)) for column in table.columns)
        yield f'<div class="scroll"><table class="rows">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
        scales = bar_scales(table)
        for row, more in zip(rows, attributes, strict=False):
            made = (
                self.cell(cell, column.kind, column.provenance, scale)
                for column, cell, scale in zip(table.columns, row, scales, strict=True)
            )
            yield f"<tr{more}>{''.join(made)}</tr>\n"
        yield "</tbody>\n</table></div>\n"

    def left_out(self, table: Table, shown: Table) -> Iterator[str]:
        """Yield what is said of rows that are not there."""
        if left := table.left_out(shown, self.options.all_rows):
            yield f'<p class="quiet">{svg_text(left)}</p>\n'
        elif not len(table):
            yield '<p class="quiet">no rows</p>\n'

    def cell(self, cell: Cell, kind: Kind, provenance: Provenance, scale: float = 0) -> str:
        """Return one cell; with a scale it has a bar."""
        value = bare(cell)
        shown = self.cells.write(cell, kind, provenance)
        raw = raw_text(cell)
        length = bar_length(cell, scale)
        classes = " ".join(name for name, applies in (("number", kind.is_number), ("unknown", value is None), ("bar", length)) if applies)
        attributes = f' class="{classes}"' if classes else ""
        if length:
            attributes += f' style="--w:{length}%"'
        if value is not None and raw != shown:
            attributes += f' data-value="{svg_text(raw)}"'
        more = details(cell)
        if more:
            attributes += f' title="{svg_text(more)}"'
        return f"<td{attributes}>{svg_text(shown)}</td>"


def bar_scales(table: Table) -> list[float]:
    """Return what fills a cell with its bar: shares of a whole have one, in a tree every amount has one, as long as that of the whole."""
    scales = [1.0 if column.key == "share" and column.kind is Kind.RATIO else 0.0 for column in table.columns]
    for place, column in enumerate(table.columns if table.depth else ()):
        if column.kind.is_number and column.kind is not Kind.INDEX and column.key != table.depth:
            heights = [height for height in drawable(table.cells(column.key)) if height is not None]
            scales[place] = float(max(heights, default=0)) if min(heights, default=0) >= 0 else 0.0
    return scales


def bar_length(cell: Cell, scale: float) -> float:
    """Return how long the bar of a cell is, in percent of the cell; 0 for none."""
    [height] = drawable([cell]) if scale else [None]
    return round(100 * height / scale, 1) if height else 0.0


def details(cell: Cell) -> str:
    """Formula and remark of a quantity."""
    if not isinstance(cell, Quantity):
        return ""
    formula = cell.formula if cell.value is not None else None
    return "  ".join(part for part in (formula, cell.note) if part)


def _coverage_line(coverage: Coverage) -> str:
    unknown = f"; unknown: {', '.join(coverage.unknown)}" if coverage.unknown else ""
    share = humanise(coverage.known / coverage.total, Kind.RATIO)
    return f"<p>{svg_text(f'coverage: {coverage.known:,} of {coverage.total:,} known ({share}){unknown}')}</p>\n"


def _head(column: Column, width: int) -> str:
    style = ' class="number"' if column.kind.is_number else ""
    style += f' style="min-width:{width}ch"' if width else ""
    help_text = f' title="{svg_text(column.help)}"' if column.help else ""
    return f'<th scope="col"{style}{help_text}>{svg_text(column.heading)}</th>'


def _least_width(table: Table, column: Column) -> int:
    """Letters that a column of texts is wide at least where its cells may be broken anywhere; 0 for numbers, which are not."""
    if column.kind.is_number:
        return 0
    cells = islice(table.data[column.key], ROWS)
    longest = max((len(cell) if isinstance(cell, str) else _NARROW for cell in cells), default=0)
    return min(longest + 2, _WIDEST) if longest else 0
