"""Tables as CSV: raw numbers, an empty cell where something is unknown, lists as JSON.

What is said about numbers follows the table's own columns, in columns such as `size.provenance`, where there is anything to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from irscope.immutable import immutable
from irscope.ir.graph import Names
from irscope.report.options import RenderOptions
from irscope.report.printable import escaped, printable
from irscope.report.report import Document, Report
from irscope.report.table import Column, Table, each_cell
from irscope.report.units import Kind, provenance_of
from irscope.report.values import Cell, Provenance, Quantity, bare, raw_text

_PROVENANCE: Final = "provenance"
_DETAILS: dict[str, Callable[[Quantity], object]] = {
    "formula": lambda quantity: quantity.formula if quantity.value is not None else None,
    "low": lambda quantity: quantity.lo,
    "high": lambda quantity: quantity.hi,
    "note": lambda quantity: quantity.note or None,
}
_TOLD: Final = frozenset({Provenance.MODELLED, Provenance.ASSUMED, Provenance.MEASURED})
"""Origins of numbers that a column beside them names."""
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
    """Yield the tables and series one below the other, with a comment line each where there are several; summaries only where there is
    neither.
    """
    sections = [section for report in _reports(document) for section in _sections(report)]
    sections = sections or [section for report in _reports(document) for section in _summary(report)]
    for number, section in enumerate(sections):
        if len(sections) > 1:
            yield "\n" if number else ""
            yield f"# {printable(section.pass_name)}: {printable(section.table.title)}\n"
        yield from csv_lines(section.table)


def render_files(document: Document, options: RenderOptions) -> Iterator[tuple[str, Iterator[str]]]:
    """File names with their content, one file for each table, series and summary."""
    names = Names("-", 2)
    for report in _reports(document):
        for section in (*_summary(report), *_sections(report)):
            yield f"{names.unique(_file_stem(section))}.csv", csv_lines(section.table)


def csv_lines(table: Table) -> Iterator[str]:
    """Yield a head of column keys, then the rows, each made when it is asked for: the cells are gone through once before, for the head."""
    details = [(place, column, name) for place, column in enumerate(table.columns) for name in _details(column, table)]
    heads = [*(column.key for column in table.columns), *(f"{column.key}.{name}" for _, column, name in details)]
    are_texts = [not column.kind.is_number for column in table.columns]
    for row in chain([heads], table.rows()):
        cells = row if row is heads else _with_details(row, are_texts, details)
        yield (",".join(map(_csv_cell, cells)) or '""') + "\n"  # readers skip a line with nothing on it


def _with_details(row: Sequence[Cell], are_texts: Sequence[bool], details: Iterable[tuple[int, Column, str]]) -> Iterator[Cell]:
    """Yield the cells of a row, and what is said about them."""
    for cell, is_text in zip(row, are_texts, strict=True):
        yield _inert(cell) if is_text else cell
    for place, column, name in details:
        yield _detail(row[place], column, name)


def _details(column: Column, table: Table) -> list[str]:
    """Return what is said about the cells of a column, where there is anything to say."""
    is_told = False
    found: set[str] = set()
    for cell in each_cell(table.data[column.key]):
        is_told = is_told or provenance_of(cell, column.kind, column.provenance) in _TOLD
        if isinstance(cell, Quantity):
            found.update(name for name, read in _DETAILS.items() if name not in found and read(cell) is not None)
    return [*([_PROVENANCE] if is_told else []), *(name for name in _DETAILS if name in found)]


def _detail(cell: Cell, column: Column, name: str) -> Cell:
    if name == _PROVENANCE:
        return provenance_of(cell, column.kind, column.provenance).value
    value = _DETAILS[name](cell) if isinstance(cell, Quantity) else None
    return value if isinstance(value, int | float | str) else None


def _csv_cell(cell: Cell) -> str:
    value = bare(cell)
    if value is None:
        return ""
    text = printable(raw_text(value))
    if isinstance(value, str) and not _OWN_FORMULA.fullmatch(text):
        text = raw_text(_inert(text))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _inert(cell: Cell) -> Cell:
    """Return a text that no spreadsheet computes; other cells as they are."""
    if not isinstance(cell, str) or (sign := _COMPUTED.match(cell)) is None:
        return cell
    at = sign.start(1)
    return f"{cell[:at]}{escaped(cell[at])}{cell[at + 1 :]}"


def _reports(document: Document) -> tuple[Report, ...]:
    """Return the reports of a document; the card stands before them as a table of its fields."""
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


def _file_stem(section: Section) -> str:
    """Return a name that every file system takes."""
    words = re.sub(r"[^a-z0-9._]+", "-", f"{section.pass_name}-{section.table.title or 'table'}".lower())
    return words.strip("-.")[:_LONGEST_NAME] or "table"
