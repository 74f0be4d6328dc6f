"""Reports as JSON: the parts of the published document, ASCII, exact integers, one row of a table a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from irscope.report.printable import well_formed
from irscope.report.table import Column, Entry, Series, Table, column_cells, is_group, stated_kind
from irscope.report.units import Kind, provenance_of
from irscope.report.values import Cell, Json, Provenance, Quantity, compact_json, json_value, plain

if TYPE_CHECKING:
    from irscope.report.schema import AnnotationJson, ColumnJson, SeriesJson, TableJson

_STEP = "  "


def json_lines(value: object) -> Iterator[str]:
    """JSON with one entry a line where entries are large, so that it can be read and compared line by line."""
    yield from _json_pieces(value, "")
    yield "\n"


def _json_pieces(value: object, indent: str) -> Iterator[str]:
    inner = indent + _STEP
    if isinstance(value, Mapping) and _is_large(value.values()):
        before = "{"
        for key, item in value.items():
            yield f"{before}\n{inner}{compact_json(key)}: "
            yield from _json_pieces(item, inner)
            before = ","
        yield f"\n{indent}}}"
    elif isinstance(value, list) and _is_large(value):
        before = "["
        for item in value:
            yield f"{before}\n{inner}"
            yield from _json_pieces(item, inner) if isinstance(item, Mapping) else [compact_json(item)]
            before = ","
        yield f"\n{indent}]"
    else:
        yield compact_json(value)


def _is_large(items: Iterable[object]) -> bool:
    return any(isinstance(item, Mapping | list) for item in items)


# ----------------------------------------------------------------------------------------------------
# Summaries, tables and series as they stand in the JSON document.


def summary_json(summary: Mapping[str, object], units: Mapping[str, Kind], path: tuple[str, ...] = ()) -> dict[str, Json]:
    """The summary with raw values, nested as the pass wrote it."""
    result: dict[str, Json] = {}
    for key, value in summary.items():
        inner = (*path, str(key))
        if is_group(value, stated_kind(inner, units)):
            result[well_formed(inner[-1])] = summary_json(value, units, inner)
        else:
            result[well_formed(inner[-1])] = json_value(plain(value))
    return result


def units_json(found: list[Entry]) -> dict[str, str]:
    """The kind of each summary value."""
    return {well_formed(entry.key): entry.kind.value for entry in found}


def provenance_json(found: list[Entry]) -> dict[str, str]:
    """Where the summary's numbers come from, for those that are not exact."""
    origins = ((entry.key, provenance_of(entry.cell, entry.kind)) for entry in found)
    return {well_formed(key): origin.value for key, origin in origins if origin is not Provenance.EXACT}


def quantities(found: list[Entry]) -> list[tuple[str, Quantity]]:
    """The summary values that say more than their value."""
    return [(well_formed(entry.key), entry.cell) for entry in found if isinstance(entry.cell, Quantity)]


def formulas_json(found: list[Entry]) -> dict[str, str]:
    """The symbolic form of values that are bound; where nothing is bound the formula is the value itself."""
    return {key: well_formed(cell.formula) for key, cell in quantities(found) if cell.formula is not None and cell.value is not None}


def intervals_json(found: list[Entry]) -> dict[str, list[Json]]:
    """The bounds of summary values."""
    return {key: interval_json(cell) for key, cell in quantities(found) if cell.interval is not None}


def remarks_json(found: list[Entry]) -> dict[str, str]:
    """How summary values came about."""
    return {key: well_formed(cell.note) for key, cell in quantities(found) if cell.note}


def interval_json(cell: Quantity) -> list[Json]:
    """Lower and upper bound."""
    return [json_value(cell.lo), json_value(cell.hi)]


def column_json(column: Column) -> ColumnJson:
    """A column's head; what is empty or exact is left out."""
    result: ColumnJson = {"key": column.key, "kind": column.kind.value}
    if column.title:
        result["title"] = column.title
    if column.help:
        result["help"] = column.help
    if column.provenance is not Provenance.EXACT:
        result["provenance"] = column.provenance.value
    return result


def table_json(table: Table) -> TableJson:
    """A table with raw cells."""
    columns = {column.key: table.cells(column.key) for column in table.columns}
    result: TableJson = {
        "title": well_formed(table.title),
        "columns": [column_json(column) for column in table.columns],
        "rows": [[json_value(cell) for cell in row] for row in zip(*columns.values(), strict=True)],
    }
    if table.keys is not None:
        result["keys"] = [json_value(cell) for cell in column_cells(table.keys)]
    annotations = [found for column in table.columns for found in _annotations(column, columns[column.key])]
    if annotations:
        result["annotations"] = annotations
    return result


def _annotations(column: Column, cells: list[Cell]) -> Iterator[AnnotationJson]:
    """What Quantities say beyond their value and their column's provenance."""
    for row, cell in enumerate(cells):
        if not isinstance(cell, Quantity):
            continue
        origin = provenance_of(cell, column.kind)
        result: AnnotationJson = {"row": row, "column": column.key, "provenance": origin.value}
        if cell.formula is not None:
            result["formula"] = well_formed(cell.formula)
        if cell.interval is not None:
            result["interval"] = interval_json(cell)
        if cell.note:
            result["note"] = well_formed(cell.note)
        if origin is not column.provenance or len(result) > 3:
            yield result


def series_json(series: Series) -> SeriesJson:
    """A series with raw cells."""
    return {
        "title": well_formed(series.title),
        "x": column_json(series.x),
        "y": [column_json(replace(column, provenance=series.provenance(column))) for column in series.y],
        "stacked": series.stacked,
        "data": {column.key: [json_value(cell) for cell in series.cells(column.key)] for column in series.columns},
        "marks": [{"x": mark.x if isinstance(mark.x, int) else float(mark.x), "label": well_formed(mark.label)} for mark in series.marks],
    }
