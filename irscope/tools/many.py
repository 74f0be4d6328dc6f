"""Several models beside one another, one row each: what `irscope run A B C` answers with, and the JSON document of it."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from irscope._version import __version__
from irscope.diagnostics import Severity, few
from irscope.errors import IrscopeError, UsageError
from irscope.frontends.zoo.names import PACKAGES, is_pattern
from irscope.immutable import immutable
from irscope.report.card import Card
from irscope.report.figures import FIELD_KINDS
from irscope.report.jsonout import summary_json
from irscope.report.printable import one_line, well_formed
from irscope.report.report import Document, Report, Subject
from irscope.report.schema import ManyJson, TableRowJson
from irscope.report.table import Column, Entry, Table
from irscope.report.units import Kind
from irscope.report.values import Cell, Provenance, Quantity
from irscope.tools.config import Chosen

SCHEMA: Final = "irscope.table/1"

# -- which models ------------------------------------------------------------------------------------------------------


def models_named(texts: Sequence[str], folder: str = "") -> list[str]:
    """Return the models that texts mean: patterns of files, `**` included, and of names in packages stand for all that match, in order.

    Files are looked for, and named, relative to `folder`; without one to the working folder.
    """
    return [one for text in texts for one in (_matches(text, folder) if is_pattern(text, folder) else [text])]


def _matches(text: str, folder: str) -> list[str]:
    wanted, brace, options = text.partition("{")
    package, colon, pattern = wanted.partition(":")
    if colon and package in PACKAGES:
        from irscope.frontends.zoo.packages import names_of

        found = [f"{package}:{name}{brace}{options}" for name in names_of(package) if fnmatchcase(name, pattern)]
    else:
        paths = glob.glob(text, root_dir=folder or None, recursive=True)
        found = sorted(path for path in paths if "**" not in text or os.path.isfile(os.path.join(folder, path)))
    if not found:
        raise UsageError("no file and no model matches", code="IRS690", where=text, hint="`irscope zoo` lists models by name")
    return found


# -- a row for each ----------------------------------------------------------------------------------------------------


@immutable(slots=False)
class Row:
    """One model at one size, or why it could not be analysed."""

    model: str
    """As it was named."""
    sizes: Mapping[str, int]
    """Those of --sweep."""
    card: Card | None = None
    reports: tuple[Report, ...] = ()
    """Summaries of the passes that were asked for."""
    error: IrscopeError | None = None
    severity: Severity | None = None
    """Of the worst remark."""
    unknown: tuple[str, ...] = ()
    """Unknowns that --strict does not accept."""


_NUMBERS: Final = ("fits", "peak", "parameters", "flops", "time", "bytes", "intensity", "energy")
"""Columns in order: those that decide come first, as a narrow terminal drops the last."""
_HEADINGS: Final = {"flops": "FLOPs", "intensity": "FLOPs/B"}
_ROUGH: Final = "numbers marked as modelled"
_FIGURES: Final = 3
"""Of a ratio in a terminal."""
_DETAILS: Final = (
    "parameter_bytes",
    "least_time",
    "macs",
    "peak_requested",
    "peak_allocated",
    "peak_reserved",
    "size_on_disk",
    "nodes",
    "format",
    "family",
    "bound_by",
    "peak_node",
    "unknown_ops",
    "unknown_tensors",
    "unknown_weights",
    "guesses",
    "device",
)
"""Columns that text has no room for."""


def table_document(rows: Sequence[Row], chosen: Chosen | None, *, short: bool = False) -> Document:
    """Return the rows as a document: of cards, or of the summaries of passes. A `short` one, for a terminal, has short names and no
    intervals.
    """
    names, said = short_names([row.model for row in rows]) if short else ([row.model for row in rows], "")
    notes = [f"a model's name is the * of {said}"] if said else []
    if short and any(one.interval is not None for row in rows if row.card for key, one in row.card.quantities().items() if key != "energy"):
        notes.append(f"some {_ROUGH} stand for an interval, which csv and json have")
    assumed = {
        f"{size.symbol}={size.size}": None
        for row in rows
        if row.card
        for size in row.card.sizes
        if size.is_open and size.symbol not in row.sizes
    }
    if assumed:
        notes.append(f"sizes that are open: {', '.join(assumed)}; --bind and --sweep give others")
    notes += _undecided(rows, names)
    failed = sum(row.error is not None for row in rows)
    headline = [f"{failed} of {len(rows)} could not be analysed"] if failed else []
    subjects: tuple[Subject, ...] = ()
    if chosen is not None:
        reports: tuple[Report, ...] = (Report("models", tables=(_cards_table(rows, names, short=short),)),)
        subjects = (Subject("device", (chosen.device.title, chosen.reason)),)
    else:
        reports = tuple(_summary_reports(rows, names))
    first = replace(reports[0], notes=(*notes, *reports[0].notes), headline=tuple(headline))
    return Document(reports=(first, *reports[1:]), subjects=subjects, own_json=lambda document: _table_json(document, rows, chosen))


def _undecided(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """Say which models may be as quick as the one that is predicted to be the quickest: those whose intervals begin below its end."""
    times = [(row.card.cost.time, name) for row, name in zip(rows, names, strict=True) if row.card is not None]
    known = [(time.value, time.ends[1], name) for time, name in times if isinstance(time.value, int | float)]
    if not known:
        return
    _, end, quickest = min(known, key=lambda pair: pair[0])
    near = [name for time, name in times if name != quickest and (end is None or time.ends[0] is None or time.ends[0] < end)]
    if near:
        others = few(near, _FEW_NAMES, "--sort time:up")
        yield f"the order by time is not certain: beside {quickest}, which is predicted to be the quickest, it may be {others}"


_FEW_NAMES: Final = 4


def _cards_table(rows: Sequence[Row], names: Sequence[str], *, short: bool) -> Table:
    fields = [_cells_of(row.card, short=short) for row in rows]
    sizes = [_sizes_text(row) if short else str(one.get("sizes") or "") or _sizes_text(row) for one, row in zip(fields, rows, strict=True)]
    first = [*_NUMBERS, *_DETAILS]
    keys = [*first, *(key for key in FIELD_KINDS if key not in first and any(field.get(key) is not None for field in fields))]
    columns = [
        Column("model"),
        *(Column(key, FIELD_KINDS.get(key, Kind.TEXT), _HEADINGS.get(key, ""), detail=key not in _NUMBERS) for key in keys),
    ]
    # Sizes of --sweep tell rows apart; those that the card stated for itself are the last that a reader needs.
    at = 1 if any(row.sizes for row in rows) else 1 + len(_NUMBERS)
    columns.insert(at, Column("sizes", detail=not any(sizes)))
    made = [(name, *(field.get(key) for key in keys)) for name, field in zip(names, fields, strict=True)]
    made = [(*one[:at], size, *one[at:]) for size, one in zip(sizes, made, strict=True)]
    return _with_errors(rows, columns, made, "")


def _cells_of(card: Card | None, *, short: bool) -> dict[str, object]:
    """Return the fields, numbers with their provenance."""
    if card is None:
        return {}
    numbers = card.quantities()
    for key, one in numbers.items() if short else ():
        value = float(f"{one.value:.{_FIGURES}g}") if key == "intensity" and isinstance(one.value, float) else one.value
        sign = Provenance.MODELLED if one.interval is not None and one.provenance is Provenance.EXACT else one.provenance
        numbers[key] = replace(one, value=value, provenance=sign, lo=None, hi=None, formula=None) if one.value is not None else one
    return {**card.fields(), **numbers}


def _with_errors(rows: Sequence[Row], columns: Sequence[Column], cells: Iterable[tuple[object, ...]], title: str) -> Table:
    """Return the table with what went wrong."""
    failed = any(row.error is not None for row in rows)
    # The code stands beside the name, where no width drops it.
    ordered = [columns[0], Column("error", detail=not failed), *columns[1:], Column("why", detail=True)]
    made = [
        (cell[0], row.error.code if row.error else "", *cell[1:], one_line(str(row.error or "")))
        for row, cell in zip(rows, cells, strict=True)
    ]
    return Table.of(made, ordered, title, keys=range(len(rows)))


def _summary_reports(rows: Sequence[Row], names: Sequence[str]) -> Iterable[Report]:
    """Yield a report for each pass, its table with a row for each model and a column for each number of the summary."""
    passes = dict.fromkeys((report.options or report.pass_name) for row in rows for report in row.reports)
    for number, name in enumerate(passes or {"models": None}):
        found = [next((report for report in row.reports if (report.options or report.pass_name) == name), None) for row in rows]
        entries = [{} if one is None else {entry.key: entry for entry in one.entries()} for one in found]
        keys: dict[str, Entry] = {}
        for each in entries:
            for key, entry in each.items():
                if key not in keys or keys[key].cell is None:
                    keys[key] = entry
        columns = [Column("model"), Column("sizes", detail=not any(row.sizes for row in rows))]
        columns += [Column(key, entry.kind, key.replace(".", " ").replace("_", " ")) for key, entry in keys.items()]
        cells = [
            (label, _sizes_text(row), *(each[key].cell if key in each else None for key in keys))
            for label, row, each in zip(names, rows, entries, strict=True)
        ]
        yield Report(name if number or passes else "models", options=name, tables=(_with_errors(rows, columns, cells, name),))


def _sizes_text(row: Row) -> str:
    return ",".join(f"{name}={size}" for name, size in row.sizes.items())


def short_names(texts: Sequence[str]) -> tuple[list[str], str]:
    """Return the names without the folders and packages that all have, at their beginning and end, and how the whole ones are made of
    them.
    """
    parts = {text: re.split(r"(?<=[/:])", text) for text in texts}
    if len(parts) < 2:
        return list(texts), ""
    least = min(map(len, parts.values())) - 1
    heads = [column[0] for column in itertools.takewhile(lambda one: len(set(one)) == 1, zip(*parts.values(), strict=False))][:least]
    turned = zip(*(reversed(part) for part in parts.values()), strict=False)
    tails = [column[0] for column in itertools.takewhile(lambda one: len(set(one)) == 1, turned)][: least - len(heads)]
    if not heads and not tails:
        return list(texts), ""
    cut = ["".join(parts[text][len(heads) : len(parts[text]) - len(tails)]) for text in texts]
    slash = "/" if tails and all(one.endswith("/") for one in cut) else ""
    return [one.removesuffix(slash) for one in cut], f"{''.join(heads)}*{slash}{''.join(reversed(tails))}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def _table_json(document: Document, rows: Sequence[Row], chosen: Chosen | None) -> ManyJson:
    """Return the rows as the first table has them, which --sort, --filter and --top have been at."""
    (table, *_) = document.reports[0].tables
    return {
        "schema": SCHEMA,
        "tool": {"name": "irscope", "version": __version__},
        "device": chosen.device.name if chosen is not None else None,
        "complete": all(row.error is None for row in rows),
        "rows": [_row_json(rows[int(str(number))]) for number in table.keys or ()],
    }


def _row_json(row: Row) -> TableRowJson:
    error = row.error
    card = None if row.card is None else row.card.to_json()
    made: TableRowJson = {
        "model": well_formed(row.model),
        "sizes": dict(row.sizes),
        "fields": None if card is None else card["fields"],
        "provenance": {} if card is None else card["provenance"],
        "intervals": {} if card is None else card["intervals"],
        "error": None
        if error is None
        else {"code": error.code, "message": one_line(error.message), "where": one_line(error.where), "hint": one_line(error.hint)},
    }
    if row.reports:
        made["summaries"] = {report.options or report.pass_name: summary_json(report.summary, report.units) for report in row.reports}
    return made


def incomplete(cells: Mapping[str, Cell | Quantity]) -> list[str]:
    """Return what a card does not know or takes for granted, for --strict."""
    words = {"unknown_ops": "operators", "unknown_tensors": "tensors", "unknown_weights": "weights", "guesses": "guesses"}
    return [f"{count} {word if key == 'guesses' else f'unknown {word}'}" for key, word in words.items() if (count := cells.get(key))]
