"""Tables as CSV: raw numbers, an empty cell where something is unknown, lists as JSON.

What is said about numbers follows the table's own columns, in columns such as `size.provenance`, where there is anything to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from irscope.immutable import immutable
from irscope.report.options import RenderOptions
from irscope.report.printable import escaped, printable
from irscope.report.report import Document, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, provenance_of
from irscope.report.values import Cell, Provenance, Quantity, bare, raw_text

_DETAILS: dict[str, Callable[[Quantity], object]] = {
    "formula": lambda quantity: quantity.formula if quantity.value is not None else None,
    "low": lambda quantity: quantity.lo,
    "high": lambda quantity: quantity.hi,
    "note": lambda quantity: quantity.note or None,
}
_QUOTED = re.compile(r'[",\n\r]|^$|^\s|\s$')
_COMPUTED = re.compile(r"\s*(?![+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$)([=+@\uff1d\uff0b\uff20\uff0d-])")
"""Texts that a spreadsheet would compute instead of show (full-width signs too), but for plain numbers. A name out of a model file must not
get that far: OWASP's list of characters, of which tab and CR are never printed as such."""
_OWN_FORMULA = re.compile(r"-(?:[\w .*+/%,)-]|(?<=[-+*/% (,])\(|(?<=max)\(|(?<=min)\()*")
"""A formula of sizes that begins with a minus: of all functions it can only call max and min."""
_LONGEST_NAME = 100


@immutable
class Section:
    """One table with the pass it belongs to."""

    pass_name: str
    table: Table


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """Tables and series one below the other, with a comment line each where there are several; summaries only where there is neither."""
    sections = [section for report in _reports(document) for section in _sections(report)]
    sections = sections or [section for report in _reports(document) for section in _summary(report)]
    for number, section in enumerate(sections):
        if len(sections) > 1:
            yield "\n" if number else ""
            yield f"# {printable(section.pass_name)}: {printable(section.table.title)}\n"
        yield from csv_lines(section.table)


def render_files(document: Document, options: RenderOptions) -> Iterator[tuple[str, Iterator[str]]]:
    """File names with their content, one file for each table, series and summary."""
    taken: set[str] = set()
    for report in _reports(document):
        for section in (*_summary(report), *_sections(report)):
            yield _file_name(section, taken), csv_lines(section.table)


def csv_lines(table: Table) -> Iterator[str]:
    """A head of column keys, then the rows."""
    heads: list[str] = []
    cells: list[Sequence[Cell]] = []
    details: list[tuple[str, list[Cell]]] = []
    for column in table.columns:
        values = table.cells(column.key)
        heads.append(column.key)
        cells.append(values if column.kind.is_number else [_inert(cell) for cell in values])
        details.extend(_details(column, values))
    heads.extend(head for head, _ in details)
    cells.extend(values for _, values in details)
    for row in chain([heads], zip(*cells, strict=True)):
        yield (",".join(map(_csv_cell, row)) or '""') + "\n"  # readers skip a line with nothing on it


def _details(column: Column, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    found = [provenance_of(cell, column.kind, column.provenance) for cell in cells]
    if any(where in (Provenance.MODELLED, Provenance.ASSUMED, Provenance.MEASURED) for where in found):
        yield f"{column.key}.provenance", [where.value for where in found]
    for name, read in _DETAILS.items():
        values = [read(cell) if isinstance(cell, Quantity) else None for cell in cells]
        if any(value is not None for value in values):
            yield f"{column.key}.{name}", [value if isinstance(value, int | float | str) else None for value in values]


def _csv_cell(cell: Cell) -> str:
    value = bare(cell)
    if value is None:
        return ""
    text = printable(raw_text(value))
    if isinstance(value, str) and not _OWN_FORMULA.fullmatch(text):
        text = raw_text(_inert(text))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _inert(cell: Cell) -> Cell:
    """A text that no spreadsheet computes; other cells as they are."""
    if not isinstance(cell, str) or (sign := _COMPUTED.match(cell)) is None:
        return cell
    at = sign.start(1)
    return f"{cell[:at]}{escaped(cell[at])}{cell[at + 1 :]}"


def _reports(document: Document) -> tuple[Report, ...]:
    """The reports of a document; the card stands before them as a table of its fields."""
    if document.card is None:
        return document.reports
    known = document.card.quantities()
    rows = [(key, raw_text(value), known[key].provenance.value if key in known else "") for key, value in document.card.fields().items()]
    return (Report("card", tables=(Table.of(rows, ["field:text", "value:text", "provenance:text"], "fields"),)), *document.reports)


def _sections(report: Report) -> Iterator[Section]:
    for table in (*report.tables, *(series.table() for series in report.series)):
        yield Section(report.pass_name, table)


def _summary(report: Report) -> Iterator[Section]:
    rows = [(entry.key, entry.cell if entry.kind.is_number else _inert(entry.cell), entry.kind.value) for entry in report.entries()]
    if rows:
        yield Section(report.pass_name, Table.of(rows, [Column("key"), Column("value", Kind.NUMBER), Column("kind")], "summary"))


def _file_name(section: Section, taken: set[str]) -> str:
    """A name that every file system takes, and that no other table of the document has."""
    words = re.sub(r"[^a-z0-9._]+", "-", f"{section.pass_name}-{section.table.title or 'table'}".lower())
    stem = words.strip("-.")[:_LONGEST_NAME] or "table"
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return f"{name}.csv"
