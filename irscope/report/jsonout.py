"""Reports as JSON: the parts of the published document, ASCII, exact integers, one row of a table a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from irscope.immutable import immutable
from irscope.report.printable import well_formed
from irscope.report.table import Column, Entry, Series, Table, each_cell, is_group, stated_kind
from irscope.report.units import Kind, provenance_of
from irscope.report.values import Json, Provenance, Quantity, compact_json, json_value, plain

if TYPE_CHECKING:
    from irscope.report.schema import AnnotationJson, ColumnJson, TableJson

_STEP = "  "
_AT_A_TIME: Final = 1024
"""Numbers of a curve that are written at a time."""


@immutable
class Fields:
    """An object whose fields are made while they are written, one after the other; at least one of them is an object or a list."""

    each: Iterator[tuple[str, object]]


@immutable
class Items:
    """A list whose items are made while they are written."""

    each: Iterator[object]
    is_large: bool
    """True where all items are objects or lists, each of which stands on a line of its own; otherwise no item is."""


def built(value: object) -> Any:
    """Return the same value with everything made: of Python's dictionaries and lists alone."""
    if isinstance(value, Fields):
        return {key: built(item) for key, item in value.each}
    if isinstance(value, Items):
        return list(map(built, value.each))
    if isinstance(value, Mapping):
        return {key: built(item) for key, item in value.items()}
    return list(map(built, value)) if isinstance(value, list) else value


def json_lines(value: object) -> Iterator[str]:
    """JSON with one entry a line where entries are large, so that it can be read and compared line by line. Each piece is made when it is
    asked for: what is written needs no more memory than a row of it."""
    yield from _json_pieces(value, "")
    yield "\n"


def _json_pieces(value: object, indent: str) -> Iterator[str]:
    inner = indent + _STEP
    if isinstance(value, Fields) or (isinstance(value, Mapping) and _is_large(value.values())):
        before = "{"
        for key, item in value.each if isinstance(value, Fields) else value.items():
            yield f"{before}\n{inner}{compact_json(key)}: "
            yield from _json_pieces(item, inner)
            before = ","
        yield f"\n{indent}}}"
    elif isinstance(value, Items) and not value.is_large:
        before = "["
        while items := list(islice(value.each, _AT_A_TIME)):
            yield f"{before}{compact_json(items)[1:-1]}"
            before = ", "
        yield "[]" if before == "[" else "]"
    elif isinstance(value, Items) or (isinstance(value, list) and _is_large(value)):
        before = "["
        for item in value.each if isinstance(value, Items) else value:
            yield f"{before}\n{inner}"
            yield from _json_pieces(item, inner) if isinstance(item, Mapping | Fields) else [compact_json(item)]
            before = ","
        yield "[]" if before == "[" else f"\n{indent}]"
    else:
        yield compact_json(value)


def _is_large(items: Iterable[object]) -> bool:
    return any(isinstance(item, Mapping | list | Fields | Items) for item in items)


# Summaries, tables and series as they stand in the JSON document.


def summary_json(summary: Mapping[str, object], units: Mapping[str, Kind], path: tuple[str, ...] = ()) -> dict[str, Json]:
    """Return the summary with raw values, nested as the pass wrote it."""
    result: dict[str, Json] = {}
    for key, value in summary.items():
        inner = (*path, str(key))
        if is_group(value, stated_kind(inner, units)):
            result[well_formed(inner[-1])] = summary_json(value, units, inner)
        else:
            result[well_formed(inner[-1])] = json_value(plain(value))
    return result


def units_json(entries: list[Entry]) -> dict[str, str]:
    """Return the kind of each summary value."""
    return {well_formed(entry.key): entry.kind.value for entry in entries}


def provenance_json(entries: list[Entry]) -> dict[str, str]:
    """Return the provenance of the summary's numbers that are not exact."""
    origins = ((entry.key, provenance_of(entry.cell, entry.kind)) for entry in entries)
    return {well_formed(key): origin.value for key, origin in origins if origin is not Provenance.EXACT}


def quantities(entries: list[Entry]) -> list[tuple[str, Quantity]]:
    """Return the summary values that say more than their value."""
    return [(well_formed(entry.key), entry.cell) for entry in entries if isinstance(entry.cell, Quantity)]


def formulas_json(entries: list[Entry]) -> dict[str, str]:
    """Return the symbolic form of values that are bound; where nothing is bound the formula is the value itself."""
    return {key: well_formed(cell.formula) for key, cell in quantities(entries) if cell.formula is not None and cell.value is not None}


def intervals_json(entries: list[Entry]) -> dict[str, list[Json]]:
    """Return the bounds of summary values."""
    return {key: interval_json(cell) for key, cell in quantities(entries) if cell.interval is not None}


def remarks_json(entries: list[Entry]) -> dict[str, str]:
    """Return how summary values came about."""
    return {key: well_formed(cell.note) for key, cell in quantities(entries) if cell.note}


def interval_json(cell: Quantity) -> list[Json]:
    """Lower and upper bound."""
    return [json_value(cell.lo), json_value(cell.hi)]


def column_json(column: Column) -> ColumnJson:
    """Return a column's head; what is empty or exact is left out."""
    result: ColumnJson = {"key": column.key, "kind": column.kind.value}
    if column.title:
        result["title"] = column.title
    if column.help:
        result["help"] = column.help
    if column.provenance is not Provenance.EXACT:
        result["provenance"] = column.provenance.value
    return result


def table_json(table: Table) -> TableJson:
    """Return a table with raw cells."""
    made: TableJson = built(table_fields(table))
    return made


def table_fields(table: Table) -> Fields:
    """Return the same, its rows made while they are written."""
    return Fields(_fields_of_table(table))


def _fields_of_table(table: Table) -> Iterator[tuple[str, object]]:
    yield "title", well_formed(table.title)
    yield "columns", [column_json(column) for column in table.columns]
    annotations: list[list[AnnotationJson]] = [[] for _ in table.columns]
    yield "rows", Items(_rows(table, annotations), is_large=True)
    if table.keys is not None:
        yield "keys", Items(map(json_value, each_cell(table.keys)), is_large=False)
    if any(annotations):
        yield "annotations", Items(chain.from_iterable(annotations), is_large=True)


def _rows(table: Table, annotations: Sequence[list[AnnotationJson]]) -> Iterator[list[Json]]:
    """Yield the rows; `annotations` gets what is to be said about cells of each column."""
    for number, row in enumerate(table.rows()):
        for column, cell, said in zip(table.columns, row, annotations, strict=True):
            if isinstance(cell, Quantity) and (found := _annotation(number, column, cell)) is not None:
                said.append(found)
        yield list(map(json_value, row))


def _annotation(row: int, column: Column, cell: Quantity) -> AnnotationJson | None:
    """Return what a Quantity says beyond its value and its column's provenance."""
    origin = provenance_of(cell, column.kind)
    result: AnnotationJson = {"row": row, "column": column.key, "provenance": origin.value}
    if cell.formula is not None:
        result["formula"] = well_formed(cell.formula)
    if cell.interval is not None:
        result["interval"] = interval_json(cell)
    if cell.note:
        result["note"] = well_formed(cell.note)
    return result if origin is not column.provenance or len(result) > 3 else None


def series_fields(series: Series) -> dict[str, object]:
    """Return a series with raw cells, which are made while they are written."""
    return {
        "title": well_formed(series.title),
        "x": column_json(series.x),
        "y": [column_json(replace(column, provenance=series.provenance(column))) for column in series.y],
        "stacked": series.stacked,
        "data": {column.key: Items(map(json_value, each_cell(series.data[column.key])), is_large=False) for column in series.columns},
        "marks": [{"x": mark.x if isinstance(mark.x, int) else float(mark.x), "label": well_formed(mark.label)} for mark in series.marks],
    }
