"""The document for a reader at a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from irscope.diagnostics import Diagnostic, Severity
from irscope.report.celltext import CellWriter
from irscope.report.chart import chart_lines
from irscope.report.grid import LEAST_FIRST, Grid, GridColumn, fit
from irscope.report.options import RenderOptions
from irscope.report.printable import printable
from irscope.report.report import Coverage, Document, Report
from irscope.report.summarytext import summary_lines
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Cell, bare

ROWS = 20
"""Default number of rows shown of a table."""

_INDENT = "  "
_RULE = 78
_NAMES = 8
_BOLD, _DIM, _RED, _YELLOW = "1", "2", "31", "33"
_COLOURS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.NOTE: _DIM}


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """The document as lines of text."""
    for line in _Text(options).document(document):
        yield line.rstrip() + "\n"


class _Text:
    """Holds what every part needs to know: the options and how wide a line may be."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.glyphs = options.glyphs
        self.limit = ROWS if options.rows is None else options.rows
        self.room = None if options.width is None else options.width - len(_INDENT)

    def document(self, document: Document) -> Iterator[str]:
        about_model = bool(document.model.path or document.model.format)
        if about_model:
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
        yield from (_INDENT + line for line in summary_lines(report.entries(), writer, self.options))
        for note in report.notes:
            yield from self.wrapped(f"note: {note}", _INDENT, _DIM)
        if report.coverage is not None:
            yield from self.coverage(report.coverage)
        for table in report.tables:
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

    def coverage(self, coverage: Coverage) -> Iterator[str]:
        if not coverage.total:
            return
        share = CellWriter(self.options).number(coverage.known / coverage.total, Kind.RATIO)
        text = f"coverage: {coverage.known:,} of {coverage.total:,} known ({share})"
        if coverage.unknown:
            more = len(coverage.unknown) - _NAMES
            text += f"; unknown: {', '.join(coverage.unknown[:_NAMES])}{f' and {more:,} more' if more > 0 else ''}"
        yield from self.wrapped(text, _INDENT, _YELLOW if coverage.known < coverage.total else _DIM)

    def table(self, table: Table, writer: CellWriter) -> Iterator[str]:
        shown = table.first(self.limit)
        rows = list(shown.rows())
        title = self.clean(table.title)
        if not rows:
            yield f"{_INDENT}{self.style(title or 'table', _BOLD)}: no rows"
            return
        cells = zip(*rows, strict=True)
        columns = [self.column(column, list(of), writer) for column, of in zip(table.columns, cells, strict=True)]
        grid = fit([replace(columns[0], least=LEAST_FIRST), *columns[1:]], self.room)
        if title:
            yield _INDENT + self.style(title, _BOLD)
        yield from self.grid(grid)
        if shown is not table:
            left = self.options.all_rows if table.whole else f"{len(table) - len(rows):,} more rows; {self.options.all_rows}"
            yield from self.wrapped(left, _INDENT, _DIM)
        if grid.hidden:
            names = ", ".join(column.heading for column in grid.hidden)
            yield from self.wrapped(f"no room for: {names}; a wider terminal, a pipe or --format csv shows them", _INDENT, _DIM)

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
            lines = textwrap.wrap(
                text, width, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
            )
        return (self.style(line, style) for line in lines)

    def clean(self, text: str) -> str:
        return printable(text, self.options.encoding)

    def style(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.options.colour and code and text else text
