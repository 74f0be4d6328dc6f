"""Text, JSON, CSV and HTML hold the same cells.

What a cell must look like is written down here once more, from the documentation, and compared with all four.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable
from html.parser import HTMLParser

import pytest
from hypothesis import given

from irscope.report import Provenance, Quantity, RenderOptions, Table, renderer
from tests.unit.report import examples

HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """The rule for strings: what repr would escape is escaped."""
    return "".join(map(escaped, text))


def escaped(character: str) -> str:
    if character == " " or unicodedata.category(character) not in HIDDEN_CATEGORIES:
        return character
    code = ord(character)
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")


def value_of(cell: object) -> object:
    if isinstance(cell, Quantity):
        return cell.formula if cell.value is None else cell.value
    return cell


def as_json(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", value)
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {as_json(key): as_json(item) for key, item in value.items()}
    return value


def as_text(value: object, unknown: str) -> str:
    if value is None:
        return unknown
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | dict):
        return json.dumps(as_json(value))
    return visible(value) if isinstance(value, str) else str(value)


def as_csv(value: object) -> str:
    text = as_text(value, "")
    harmless = re.fullmatch(r"-[\w .*+/()%,-]*", text)
    guard = isinstance(value, str) and text[:1] in ("=", "+", "-", "@") and not harmless
    return f"\\x{ord(text[0]):02x}{text[1:]}" if guard else text


def signed(cell: object, default: Provenance) -> str:
    """A cell of the text format with raw numbers."""
    value = value_of(cell)
    where = default if not isinstance(cell, Quantity) else cell.provenance
    sign = "" if value is None else {Provenance.MODELLED: "~", Provenance.MEASURED: "="}.get(where, "")
    bounds = (
        f" [{as_text(cell.lo, '?')} to {as_text(cell.hi, '?')}]"
        if isinstance(cell, Quantity) and (cell.lo, cell.hi) != (None, None)
        else ""
    )
    return f"{sign}{as_text(value, '?')}{bounds}"


def width(text: str) -> int:
    return sum(0 if unicodedata.category(c) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def rendered(name: str, table: Table, **options: object) -> str:
    return "".join(renderer(name)(examples.with_table(table), RenderOptions(rows=0, **options)))  # type: ignore[arg-type]


class Cells(HTMLParser):
    """The rows of a page's tables: raw value and shown text of each cell."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str]]] = []
        self._inside: dict[str, str | None] | None = None
        self._raw: str | None = None
        self._in_rows = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "table":
            self._in_rows = attributes["class"] == "rows"
        elif tag == "tr" and self._in_rows:
            self.rows.append([])
        elif tag == "td" and self._in_rows:
            self._inside, self._shown = attributes, ""

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self._shown += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._inside is not None:
            unknown = "unknown" in (self._inside.get("class") or "").split()
            raw = "" if unknown else self._inside.get("data-value", self._shown)
            self.rows[-1].append((raw or "", self._shown))
            self._inside = None


def html_rows(table: Table, *, humanise: bool = True) -> list[list[tuple[str, str]]]:
    parser = Cells()
    parser.feed(rendered("html", table, humanise=humanise))
    return parser.rows[1:]  # after the head


def grid_lines(table: Table, *, humanise: bool) -> tuple[list[str], list[int]]:
    """The lines of the table in the text format, and the width of each column, read off the rule."""
    lines = rendered("text", table, humanise=humanise).splitlines()
    (rule,) = (at for at, line in enumerate(lines) if at > 4 and set(line) == {" ", "─"})
    return lines[rule + 1 : rule + 1 + len(table)], [len(part) for part in lines[rule].split()]


def laid_out(table: Table, rows: Iterable[Iterable[str]], widths: list[int]) -> list[str]:
    lines = []
    for row in rows:
        parts = []
        for column, cell, size in zip(table.columns, row, widths, strict=True):
            fill = " " * (size - width(cell))
            parts.append(fill + cell if column.kind.is_number else cell + fill)
        lines.append(("  " + "  ".join(parts)).rstrip())
    return lines


def cells_of(table: Table) -> list[list[object]]:
    return [list(row) for row in zip(*(table.data[column.key] for column in table.columns), strict=True)]


def check(table: Table) -> None:
    rows = cells_of(table)
    document = json.loads(rendered("json", table))
    assert document["reports"][0]["tables"][0]["rows"] == [[as_json(value_of(cell)) for cell in row] for row in rows]

    lines = list(csv.reader(io.StringIO(rendered("csv", table), newline="")))
    assert [line[: len(table.columns)] for line in lines[1:]] == [[as_csv(value_of(cell)) for cell in row] for row in rows]

    assert [[raw for raw, _ in row] for row in html_rows(table)] == [[as_text(value_of(cell), "") for cell in row] for row in rows]

    if rows:
        shown, widths = grid_lines(table, humanise=False)
        expected = [[signed(cell, column.provenance) for cell, column in zip(row, table.columns, strict=True)] for row in rows]
        assert shown == laid_out(table, expected, widths)

        for humanise in (True, False):
            shown, widths = grid_lines(table, humanise=humanise)
            assert shown == laid_out(table, ([text for _, text in row] for row in html_rows(table, humanise=humanise)), widths)


def test_every_kind_and_awkward_cell() -> None:
    check(examples.everything())


@given(examples.tables())
def test_random_tables(table: Table) -> None:
    check(table)


@pytest.mark.parametrize("name", ["text", "csv", "html", "json", "md"])
def test_no_format_lets_a_control_character_through(name: str) -> None:
    text = rendered(name, examples.everything())
    assert {
        character for character in text if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    } == set()


def test_json_is_ascii() -> None:
    assert rendered("json", examples.everything()).isascii()
