"""The document for a reader at a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from irscope.diagnostics import Diagnostic, Severity, few
from irscope.immutable import immutable
from irscope.report.cardtext import card_lines
from irscope.report.celltext import CellWriter
from irscope.report.chart import chart_lines
from irscope.report.names import cut_names, is_prose
from irscope.report.options import Glyphs, RenderOptions
from irscope.report.printable import ColumnRoom, column_widths, cut_middle, display_width, legible, pad, printable
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Column, Entry, Group, Table, grouped
from irscope.report.units import Kind
from irscope.report.values import Cell, Quantity, bare

# Aligned columns of text that fit a terminal: long names are cut where they are equal, and a column that has no room is named.

GAP = "  "
_LEAST = 10
"""Names are not cut shorter than this."""
_SHORT = 12
"""Columns of words, such as a state or a kind, are not cut: half of a word says nothing."""
LEAST_FIRST = 18
"""The first column tells the rows apart, so it keeps more."""


@immutable
class GridColumn:
    """A column of finished texts. Only a `cuttable` one may lose characters; a number never does."""

    heading: str
    cells: Sequence[str]
    right: bool = False
    cuttable: bool = True
    least: int = _LEAST

    @property
    def natural_width(self) -> int:
        return max(display_width(self.heading), max(map(display_width, self.cells), default=0))

    @property
    def is_blank(self) -> bool:
        """Return whether there is nothing in it."""
        return bool(self.cells) and not any(map(str.strip, self.cells))

    @property
    def least_width(self) -> int:
        is_whole = not self.cuttable or self.natural_width <= max(self.least, _SHORT)
        return self.natural_width if is_whole else self.least


@immutable
class Grid:
    """Columns with the widths they got, and those that found no room."""

    columns: tuple[GridColumn, ...]
    widths: tuple[int, ...]
    hidden: tuple[GridColumn, ...]

    def lines(self, glyphs: Glyphs) -> Iterator[str]:
        """Return the rows."""
        texts = [
            [pad(cell, width, right=column.right) for cell in _cut(column, width, glyphs.ellipsis)]
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        return (GAP.join(row).rstrip() for row in zip(*texts, strict=True))

    def head(self, glyphs: Glyphs) -> str:
        """Return the headings, aligned as their columns are."""
        parts = [
            pad(cut_middle(column.heading, width, glyphs.ellipsis), width, right=column.right)
            for column, width in zip(self.columns, self.widths, strict=True)
        ]
        return GAP.join(parts).rstrip()

    def cut_texts(self) -> list[str]:
        """Return the headings of columns in which a list or a sentence was cut; of a name what tells it apart stays."""
        return [
            column.heading
            for column, width in zip(self.columns, self.widths, strict=True)
            if not column.right and any(is_prose(cell) and display_width(cell) > width for cell in column.cells)
        ]

    def rule(self, glyphs: Glyphs) -> str:
        """Return the thin line below the headings."""
        return GAP.join(glyphs.rule * width for width in self.widths)


def _cut(column: GridColumn, width: int, ellipsis: str) -> list[str]:
    """Cells within a width; of a number or a formula both ends stay."""
    return [cut_middle(cell, width, ellipsis) for cell in column.cells] if column.right else cut_names(column.cells, width, ellipsis)


def fit_columns(columns: Sequence[GridColumn], width: int | None) -> Grid:
    """Return columns within a width: blank ones give their room, then names are shortened, then the last columns are dropped."""
    if width is None:
        return Grid(tuple(columns), tuple(column.natural_width for column in columns), ())
    if sum(column.natural_width + len(GAP) for column in columns) - len(GAP) > width:
        columns = [column for column in columns if not column.is_blank] or columns
    rooms = [ColumnRoom(column.natural_width, column.least_width, rank) for rank, column in enumerate(columns)]
    widths = column_widths(rooms, width, len(GAP))
    shown = [number for number, column in enumerate(columns) if widths[number] or not column.natural_width]
    hidden = [column for number, column in enumerate(columns) if number not in shown]
    return Grid(tuple(columns[number] for number in shown), tuple(widths[number] for number in shown), tuple(hidden))


# A report's summary as text: names with their values, and groups of one make side by side.

_STEP = "  "
_LONGEST_FORMULA = 24


def summary_lines(entries: Sequence[Entry], writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    """Yield the lines of a summary, not indented."""
    runs = grouped(entries)
    below_one_another = [entry for run in runs if len(run) == 1 for entry in run[0].entries]
    width = max((display_width(_label(entry, options)) for entry in below_one_another), default=0)
    for run in runs:
        side_by_side = list(_matrix(run, writer, options)) if len(run) > 1 else []
        if side_by_side and (options.width is None or max(map(display_width, side_by_side)) + len(_INDENT) <= options.width):
            yield from side_by_side
            continue
        below = max((display_width(_label(entry, options)) for group in run for entry in group.entries), default=0)
        for group in run:
            yield from _pairs(group, width if len(run) == 1 else below, writer, options, is_explained=len(run) == 1)


def _words(part: str, options: RenderOptions) -> str:
    return printable(part.replace("_", " "), options.encoding)


def _label(entry: Entry, options: RenderOptions) -> str:
    return _STEP * (len(entry.path) - 1) + _words(entry.path[-1], options)


def _pairs(group: Group, width: int, writer: CellWriter, options: RenderOptions, *, is_explained: bool) -> Iterator[str]:
    if group.parent:
        yield _STEP * (len(group.parent) - 1) + " ".join(_words(part, options) for part in group.parent)
    for entry in group.entries:
        details = _details(entry, options) if is_explained else ""
        yield f"{pad(_label(entry, options), width)}  {writer.write(entry.cell, entry.kind)}{details}"


def _details(entry: Entry, options: RenderOptions) -> str:
    """Formula and remark of a quantity."""
    if not isinstance(entry.cell, Quantity):
        return ""
    formula = f"({entry.cell.formula})" if entry.cell.formula is not None and entry.cell.value is not None else ""
    return "".join(f"  {printable(part, options.encoding)}" for part in (formula, entry.cell.note) if part)


def _matrix(groups: Sequence[Group], writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    names = GridColumn("", [_words(group.parent[-1], options) for group in groups])
    values = [
        GridColumn(_words(leaf, options), [_in_matrix(entry, writer, options) for entry in column], right=True, cuttable=False)
        for leaf, column in zip(groups[0].leaves, zip(*(group.entries for group in groups), strict=True), strict=True)
    ]
    grid = fit_columns([names, *values], None)
    if len(groups[0].parent) > 1:
        yield " ".join(_words(part, options) for part in groups[0].parent[:-1])
    yield grid.head(options.glyphs)
    yield from grid.lines(options.glyphs)


def _in_matrix(entry: Entry, writer: CellWriter, options: RenderOptions) -> str:
    """Return a value beside others; a formula keeps its ends, so that numbers stay side by side."""
    text = writer.write(entry.cell, entry.kind)
    is_formula = entry.kind.is_number and isinstance(bare(entry.cell), str)
    return cut_middle(text, _LONGEST_FORMULA, options.glyphs.ellipsis) if is_formula else text


# The document for a reader at a terminal.

ROWS = 20
"""Default number of rows shown of a table."""

_INDENT = "  "
_RULE = 78
_NAMES = 8
_BOLD, _DIM, _RED, _YELLOW = "1", "2", "31", "33"
_COLOURS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.NOTE: _DIM}


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the document as lines of text."""
    for line in _Text(options).document(document):
        yield line.rstrip() + "\n"


def alone(part: Report | Table) -> str:
    """Return one report or table, as somebody sees it who prints it in Python."""
    if isinstance(part, Report):
        return "".join(render(Document(reports=(part,)), RenderOptions())).rstrip()
    return "\n".join(table_lines(part, RenderOptions()))


def table_lines(table: Table, options: RenderOptions) -> Iterator[str]:
    """Return one table alone, and what its signs mean."""
    writer = CellWriter(options)
    lines = [*_Text(options).table(table, writer), writer.legend()]
    return (line.removeprefix(_INDENT).rstrip() for line in lines if line)


class _Text:
    """Holds what every part needs to know: the options and how wide a line may be."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.glyphs = options.glyphs
        self.limit = ROWS if options.rows is None else options.rows
        self.room = None if options.width is None else options.width - len(_INDENT)

    def document(self, document: Document) -> Iterator[str]:
        if document.card is not None:
            yield from card_lines(document.card, self.options)
            if not document.reports:
                return
            yield ""
        about_model = bool(document.model.path or document.model.format or document.subjects)
        for subject in document.subjects:
            yield from self.wrapped(f"{subject.name}  {self.glyphs.separator.join(filter(None, subject.parts))}", "", "")
            for remark in subject.remarks:
                yield from self.wrapped(remark, " " * (len(subject.name) + 2), _DIM)
        if about_model and not document.subjects:
            yield from self.wrapped(self.glyphs.separator.join([document.model.path, *document.model.facts()]), "", "")
            for line in document.model.assumed_lines:
                yield from self.wrapped(line, "", _YELLOW if document.model.is_guessed else _DIM)
        for number, report in enumerate(document.reports):
            if about_model or number:
                yield ""
            yield from self.report(report)

    def report(self, report: Report) -> Iterator[str]:
        writer = CellWriter(self.options)
        yield self.style(self.clean(report.options or report.pass_name), _BOLD)
        yield self.style(self.glyphs.rule * min(self.options.width or _RULE, _RULE), _DIM)
        for line in report.headline:
            yield from self.wrapped(line, _INDENT, _BOLD)
        if report.headline and report.summary:
            yield ""
        for line in summary_lines(report.entries(), writer, self.options):
            yield from self.summary_line(line)
        for note in report.notes:
            yield from self.wrapped(f"note: {note}", _INDENT, _DIM)
        if report.coverage is not None:
            yield from self.coverage(report.coverage)
        for table in report.tables:
            if table.without_details().columns or not table.columns:
                yield ""
                yield from self.table(table, writer)
        for series in report.series:
            chart = list(chart_lines(series, self.room, self.glyphs, self.options.encoding)) if self.options.charts else []
            if chart:
                yield ""
                yield _INDENT + self.style(self.clean(series.title), _BOLD)
                yield from (_INDENT + line for line in chart)
        yield from self.diagnostics(report.diagnostics)
        legend = writer.legend()
        if legend:
            yield ""
            yield _INDENT + self.style(legend, _DIM)

    def summary_line(self, line: str) -> Iterator[str]:
        """Yield a line of the summary; what is too long goes on below the value."""
        if self.room is None or display_width(line) <= self.room:
            yield _INDENT + line
            return
        # Names and values are two blanks apart, and blanks between them keep columns in line.
        name = re.match(r" *\S+(?: \S+)* {2,}", line)
        further = " " * min(len(name.group()) if name else 2, self.room // 2)
        for part in textwrap.wrap(line, self.room, subsequent_indent=further, break_on_hyphens=False, replace_whitespace=False):
            yield _INDENT + part

    def coverage(self, coverage: Coverage) -> Iterator[str]:
        if not coverage.total:
            return
        share = CellWriter(self.options).number(coverage.known / coverage.total, Kind.RATIO)
        text = f"coverage: {coverage.known:,} of {coverage.total:,} known ({share})"
        if coverage.unknown:
            most = _NAMES if self.limit else len(coverage.unknown)
            text += f"; unknown: {few(coverage.unknown, most, self.options.all_rows)}"
        yield from self.wrapped(text, _INDENT, _YELLOW if coverage.known < coverage.total else _DIM)

    def table(self, table: Table, writer: CellWriter) -> Iterator[str]:
        shown = table.first(self.limit).without_details()
        rows = list(shown.rows())
        title = self.clean(table.title)
        if not rows:
            yield f"{_INDENT}{self.style(title or 'table', _BOLD)}: no rows"
            return
        cells = zip(*rows, strict=True)
        columns = [self.column(column, list(of), writer) for column, of in zip(shown.columns, cells, strict=True)]
        grid = fit_columns([replace(columns[0], least=LEAST_FIRST), *columns[1:]], self.room)
        if title:
            yield _INDENT + self.style(title, _BOLD)
        yield from self.grid(grid)
        if left := table.left_out(shown, self.options.all_rows):
            yield from self.wrapped(left, _INDENT, _DIM)
        no_room = [("no room for", [column.heading for column in grid.hidden]), ("cut", grid.cut_texts())]
        if said := [f"{what}: {', '.join(names)}" for what, names in no_room if names]:
            yield from self.wrapped(f"{'; '.join(said)}; a wider terminal or --format csv shows them", _INDENT, _DIM)

    def column(self, column: Column, cells: Sequence[Cell], writer: CellWriter) -> GridColumn:
        number = column.kind.is_number
        texts = [writer.write(cell, column.kind, column.provenance) for cell in cells]
        return GridColumn(self.clean(column.heading), texts, number, not number or any(isinstance(bare(cell), str) for cell in cells))

    def grid(self, grid: Grid) -> Iterator[str]:
        yield _INDENT + self.style(grid.head(self.glyphs), _DIM)
        yield _INDENT + self.style(grid.rule(self.glyphs), _DIM)
        yield from (_INDENT + line for line in grid.lines(self.glyphs))

    def diagnostics(self, diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
        shown = diagnostics[: self.limit or None]
        if shown:
            yield ""
        for diagnostic in shown:
            yield from self.wrapped(str(diagnostic), _INDENT, _COLOURS[diagnostic.severity])
        if len(shown) < len(diagnostics):
            yield from self.wrapped(f"{len(diagnostics) - len(shown):,} more remarks; {self.options.all_rows}", _INDENT, _DIM)

    def wrapped(self, text: str, indent: str, style: str) -> Iterator[str]:
        """Prose in the width there is, continued below a deeper indent."""
        text = self.clean(text)
        lines = [indent + text]
        if self.options.width is not None:
            further = f"{indent}{_INDENT}"
            width = max(self.options.width, 20)
            lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
        return (self.style(line, style) for line in lines)

    def clean(self, text: str) -> str:
        return legible(text, self.options.encoding)

    def style(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.options.colour and code and text else text
