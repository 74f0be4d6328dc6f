"""The document as one page that needs nothing else: no script, nothing loaded from anywhere.

Every cell that shows a number with a unit carries the raw value in `data-value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irscope.report.celltext import CellWriter
from irscope.report.options import RenderOptions
from irscope.report.plot import SVG_STYLE, svg_chart, svg_text
from irscope.report.report import Coverage, Document, ModelInfo, Report
from irscope.report.table import Column, Entry, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Cell, Provenance, Quantity, bare, raw_text

ROWS = 1000
"""Default number of rows shown of a table."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
"""
_PARTS = """
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
_NOTEBOOK = RenderOptions(rows=20, all_rows="to_dicts() has all rows")


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """The page in pieces."""
    about = document.model.path or ", ".join(one.parts[0] for one in document.subjects)
    title = svg_text(f"{about} - irscope" if about else "irscope")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title}</title>\n<style>{_STYLE}{_PARTS}{SVG_STYLE}</style>\n</head>\n<body>\n"
    if about and not document.subjects:
        yield from _model(document.model)
    for subject in document.subjects:
        path, *facts = subject.parts
        yield f"<h1>{svg_text(f'{subject.name}: {path}')}</h1>\n<p>{svg_text(', '.join(filter(None, facts)))}</p>\n"
        yield from (f'<p class="quiet">{svg_text(remark)}</p>\n' for remark in subject.remarks)
    for report in document.reports:
        yield from _report_section(report, options)
    yield f'<p class="quiet">Written by irscope {svg_text(document.version)}.</p>\n</body>\n</html>\n'


def alone(part: Report | Table) -> str:
    """One report or table as a part of somebody else's page, a notebook's: its style holds for it alone."""
    parts = _report_section(part, _NOTEBOOK) if isinstance(part, Report) else _table_element(part, CellWriter(_NOTEBOOK), _NOTEBOOK)
    return _within(parts)


def _within(parts: Iterator[str]) -> str:
    return f'<div class="irscope">\n<style>\n.irscope {{{_PARTS}{SVG_STYLE}}}\n</style>\n{"".join(parts)}</div>\n'


def _model(model: ModelInfo) -> Iterator[str]:
    yield f"<h1>{svg_text(model.path)}</h1>\n<p>{svg_text(', '.join(model.facts()))}"
    yield f'<br><span class="quiet">sha256 {svg_text(model.sha256)}</span></p>\n' if model.sha256 else "</p>\n"
    for line in model.assumed_lines:
        yield f'<p class="{"warning" if model.is_guessed else "quiet"}">{svg_text(line)}</p>\n'
    for diagnostic in model.diagnostics:
        yield f'<p class="{diagnostic.severity.text}">{svg_text(str(diagnostic))}</p>\n'


def _report_section(report: Report, options: RenderOptions) -> Iterator[str]:
    writer = CellWriter(RenderOptions(humanise=options.humanise))
    yield f"<section>\n<h2>{svg_text(report.options or report.pass_name)}</h2>\n"
    yield from (f'<p class="headline">{svg_text(line)}</p>\n' for line in report.headline)
    yield from _summary(report.entries(), writer)
    for note in report.notes:
        yield f'<p class="quiet">{svg_text(note)}</p>\n'
    if report.coverage is not None and report.coverage.total:
        yield _coverage_line(report.coverage)
    for table in report.tables:
        yield from _table_element(table, writer, options)
    for series in report.series if options.charts else ():
        picture = list(svg_chart(series))
        if picture:
            yield f"<h3>{svg_text(series.title)}</h3>\n"
            yield from picture
    for diagnostic in report.diagnostics:
        yield f'<p class="{diagnostic.severity.text}">{svg_text(str(diagnostic))}</p>\n'
    if writer.legend():
        yield f'<p class="quiet">{svg_text(writer.legend())}</p>\n'
    yield "</section>\n"


def _coverage_line(coverage: Coverage) -> str:
    unknown = f"; unknown: {', '.join(coverage.unknown)}" if coverage.unknown else ""
    share = humanise(coverage.known / coverage.total, Kind.RATIO)
    return f"<p>{svg_text(f'coverage: {coverage.known:,} of {coverage.total:,} known ({share}){unknown}')}</p>\n"


def _summary(entries: Sequence[Entry], writer: CellWriter) -> Iterator[str]:
    if not entries:
        return
    yield '<div class="scroll"><table class="summary">\n<tbody>\n'
    for entry in entries:
        cell = _html_cell(entry.cell, entry.kind, Provenance.EXACT, writer)
        yield f'<tr><th scope="row">{svg_text(entry.key)}</th>{cell}<td>{svg_text(_details(entry.cell))}</td></tr>\n'
    yield "</tbody>\n</table></div>\n"


def _table_element(table: Table, writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    limit = ROWS if options.rows is None else options.rows
    heads = "".join(map(_head, table.columns))
    yield f'<h3>{svg_text(table.title)}</h3>\n<div class="scroll"><table class="rows">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    shown = table.first(limit)
    for row in shown.rows():
        cells = (_html_cell(cell, column.kind, column.provenance, writer) for column, cell in zip(table.columns, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>\n"
    yield "</tbody>\n</table></div>\n"
    if shown is not table:
        left = options.all_rows if table.whole else f"{len(table) - len(shown):,} more rows; {options.all_rows}"
        yield f'<p class="quiet">{svg_text(left)}</p>\n'
    elif not len(table):
        yield '<p class="quiet">no rows</p>\n'


def _head(column: Column) -> str:
    style = ' class="number"' if column.kind.is_number else ""
    help_text = f' title="{svg_text(column.help)}"' if column.help else ""
    return f'<th scope="col"{style}{help_text}>{svg_text(column.heading)}</th>'


def _html_cell(cell: Cell, kind: Kind, provenance: Provenance, writer: CellWriter) -> str:
    value = bare(cell)
    shown = writer.write(cell, kind, provenance)
    raw = raw_text(cell)
    classes = " ".join(name for name, applies in (("number", kind.is_number), ("unknown", value is None)) if applies)
    attributes = f' class="{classes}"' if classes else ""
    if value is not None and raw != shown:
        attributes += f' data-value="{svg_text(raw)}"'
    details = _details(cell)
    if details:
        attributes += f' title="{svg_text(details)}"'
    return f"<td{attributes}>{svg_text(shown)}</td>"


def _details(cell: Cell) -> str:
    """Formula and remark of a quantity."""
    if not isinstance(cell, Quantity):
        return ""
    formula = cell.formula if cell.value is not None else None
    return "  ".join(part for part in (formula, cell.note) if part)
