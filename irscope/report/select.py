"""Sorting, filtering and cutting the tables of a document: what `--sort`, `--filter` and `--top` do.

expression = term {"or" term}          term = factor {"and" factor}
factor = "not" factor | "(" expression ")" | column operator value
operator = "=" "!=" "<" "<=" ">" ">=" "~"    ("~": the text contains the value, or matches it where it has a *)
value = amount (irscope.amounts) | word | "quoted text" | none
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from irscope.amounts import ANY, read_amount
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.places import path_key
from irscope.report.report import Document, Report
from irscope.report.table import Column, Table
from irscope.report.units import type_text
from irscope.report.values import Cell, Plain, bare

Row: TypeAlias = Mapping[str, Cell]
Test: TypeAlias = Callable[[Row], bool]

_TOKEN = re.compile(r'\s*(?:(<=|>=|!=|==|[=<>~()])|"((?:[^"\\]|\\.)*)"|([^\s()=<>!~"]+))')
_EXAMPLE = 'for example: bytes > 1MiB and name ~ "layer1.*"'


@immutable
class Selection:
    """A user's selection from the tables."""

    sort: str = ""
    """A column, or `column:up` or `column:down`. Numbers go from the largest down, texts from A on."""
    top: int | None = None
    filter: str = ""

    def __bool__(self) -> bool:
        return bool(self.sort or self.filter) or self.top is not None


@immutable
class Comparison:
    """`column operator value`, as it is written."""

    column: str
    operator: str
    value: str
    quoted: bool
    """True where the value is a text in quotes."""


@immutable
class Condition:
    """A parsed filter: the columns it reads, and the test."""

    columns: frozenset[str]
    test: Test


def select(document: Document, wanted: Selection) -> Document:
    """Return the document with its tables sorted, filtered and cut. A table without a column that is named stays whole."""
    if not wanted:
        return document
    condition = parse_filter(wanted.filter) if wanted.filter else None
    column, direction = _sort_key(wanted.sort)
    tables = [table for report in document.reports for table in report.tables]
    _check(condition.columns if condition else (), tables, "--filter")
    _check((column,) if column else (), tables, "--sort")
    if wanted.top is not None and wanted.top < 0:
        raise UsageError("--top needs a number of rows, 0 or more", code="IRS450")
    made = [_selected_report(report, condition, column, direction, wanted.top) for report in document.reports]
    return replace(document, reports=tuple(made))


def _sort_key(text: str) -> tuple[str, str]:
    column, colon, direction = text.rpartition(":")
    if not colon:
        return text, ""
    if direction not in ("up", "down"):
        raise UsageError(f"--sort {text!r}: a column may be followed by :up or :down", code="IRS450")
    return column, direction


def _check(columns: Iterable[str], tables: Sequence[Table], option: str) -> None:
    for name in sorted(columns):
        if not any(name == column.key for table in tables for column in table.columns):
            known = ", ".join(dict.fromkeys(column.key for table in tables for column in table.columns)) or "there are no tables"
            raise UsageError(f"{option}: no table has a column {name!r}", code="IRS450", hint=f"columns: {known}")
    together = set(columns)
    if together and not any(together <= {column.key for column in table.columns} for table in tables):
        raise UsageError(f"{option}: no table has all of the columns {', '.join(sorted(together))}", code="IRS450")


def _selected_report(report: Report, condition: Condition | None, column: str, direction: str, top: int | None) -> Report:
    return replace(report, tables=tuple(_selected_table(table, condition, column, direction, top) for table in report.tables))


def _selected_table(table: Table, condition: Condition | None, column: str, direction: str, top: int | None) -> Table:
    keys = {column.key: column for column in table.columns}
    concerned = (condition is not None and condition.columns <= keys.keys()) or column in keys
    if not concerned and (condition is not None or column):
        return table
    cells = {key: table.cells(key) for key in keys}
    places = list(range(len(table)))
    # The row that stands for all that have none stays behind the others.
    last = [places.pop()] if table.rest else []
    is_filtered = condition is not None and condition.columns <= keys.keys()
    if condition is not None and is_filtered:
        places = [place for place in places if condition.test({key: cells[key][place] for key in condition.columns})]
        last = []
    if column in keys:
        places = _sorted_places(places, cells[column], keys[column], direction)
    places = [*places, *last] if top != 0 else []
    data = {key: [held[place] for place in places] for key, held in cells.items()}
    rows = None if table.keys is None else [table.keys[place] for place in places]
    whole = "" if is_filtered or top == 0 else table.whole
    # Rows that were chosen or put in another order are no tree any more.
    columns = tuple(replace(one, detail=False) if one.key == column else one for one in table.columns)
    chosen = replace(table, columns=columns, data=data, keys=rows, whole=whole, rest=table.rest if last else 0, depth="")
    return chosen.first(top)


def _sorted_places(places: list[int], cells: Sequence[Cell], column: Column, direction: str) -> list[int]:
    """Unknown cells last, formulas and texts behind numbers, equal ones in their old order."""
    falling = direction == "down" or (not direction and column.kind.is_number)
    values = [bare(cell) for cell in cells]

    def is_missing(value: Plain) -> bool:
        return value is None or (isinstance(value, float) and math.isnan(value))

    numbers = [place for place in places if isinstance(values[place], int | float) and not is_missing(values[place])]
    missing = [place for place in places if is_missing(values[place])]
    apart = {*numbers, *missing}
    texts = [place for place in places if place not in apart]
    numbers.sort(key=lambda place: values[place], reverse=falling)  # type: ignore[arg-type,return-value]  # all of these are numbers
    texts.sort(key=lambda place: _cell_text(values[place]).casefold(), reverse=direction == "down")
    return numbers + texts + missing


def parse_filter(text: str) -> Condition:
    """Return a filter from its text; UsageError says where it does not parse."""
    return _Parser(text).parse()


def parse_comparison(text: str, what: str, example: str, code: str) -> Comparison:
    """Return a single comparison, for those that judge it themselves; names may be of several words: `size on disk < 100MB`.

    `what` is what messages call the text, `example` what they suggest.
    """
    parser = _Parser(text, what, example, code, "a name")
    comparison = parser.comparison(several_words=True)
    parser.ended("expected one comparison alone, found")
    return comparison


class _Parser:
    """Recursive descent; nesting is as deep as a user types parentheses."""

    def __init__(self, text: str, what: str = "--filter", example: str = _EXAMPLE, code: str = "IRS450", noun: str = "a column") -> None:
        self._text = text
        self._what, self._example, self._code, self._noun = what, example, code, noun
        self._tokens: list[tuple[str, bool, int]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error("cannot be read", position)
            symbol, quoted, word = match.groups()
            token = symbol or word or re.sub(r"\\(.)", r"\1", quoted or "")
            self._tokens.append((token, quoted is not None, match.start(match.lastindex or 0)))
            position = match.end()
        self._at = 0
        self._depth = 0
        self._columns: set[str] = set()

    def parse(self) -> Condition:
        test = self._any()
        self.ended("expected 'and' or 'or'")
        return Condition(frozenset(self._columns), test)

    def ended(self, expected: str) -> None:
        """Raise UsageError where something is left."""
        if self._at < len(self._tokens):
            raise self._error(expected, self._tokens[self._at][2])

    def _error(self, what: str, position: int) -> UsageError:
        place = f" at {self._text[position:][:20]!r}" if position < len(self._text) else ""
        return UsageError(f"{self._what}: {what}{place}", code=self._code, hint=self._example)

    def _peek(self) -> str:
        """Return the next word or symbol, empty for quoted text and at the end."""
        if self._at >= len(self._tokens):
            return ""
        token, quoted, _ = self._tokens[self._at]
        return "" if quoted else token

    def _next(self, what: str) -> tuple[str, bool, int]:
        if self._at >= len(self._tokens):
            raise self._error(f"{what} is missing", len(self._text))
        self._at += 1
        return self._tokens[self._at - 1]

    def _any(self) -> Test:
        tests = [self._all()]
        while self._peek() == "or":
            self._at += 1
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def _all(self) -> Test:
        tests = [self._factor()]
        while self._peek() == "and":
            self._at += 1
            tests.append(self._factor())
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _factor(self) -> Test:
        negate = False
        while self._peek() == "not":
            self._at += 1
            negate = not negate
        if self._peek() == "(":
            self._at += 1
            self._depth += 1
            if self._depth > 50:
                raise self._error("parentheses are nested more than 50 deep", 0)
            test = self._any()
            self._depth -= 1
            closing, quoted, position = self._next("a closing parenthesis")
            if closing != ")" or quoted:
                raise self._error("expected ')'", position)
        else:
            test = self._comparison()
        return (lambda row: not test(row)) if negate else test

    def _comparison(self) -> Test:
        comparison = self.comparison()
        self._columns.add(comparison.column)
        compare, column = _OPERATORS[comparison.operator], comparison.column
        number = None if comparison.quoted else read_amount(comparison.value, ANY)
        wanted = comparison.value if comparison.quoted or comparison.value != "none" else None
        return lambda row: compare(bare(row[column]), wanted, number)

    def comparison(self, several_words: bool = False) -> Comparison:
        column, quoted, position = self._next(self._noun)
        if not quoted and column in ("and", "or", ")", "=", "==", "!=", "<", "<=", ">", ">=", "~"):
            raise self._error(f"expected {self._noun}", position)
        while several_words and self._peek() and self._peek() not in _OPERATORS:
            column = f"{column} {self._next('an operator')[0]}"
        operator, quoted, position = self._next("an operator")
        if quoted or operator not in _OPERATORS:
            raise self._error("expected one of = != < <= > >= ~", position)
        value, is_text, position = self._next("a value")
        if not is_text and value in ("(", ")", "=", "<", ">"):
            raise self._error("expected a value", position)
        return Comparison(column, operator, value, is_text)


def _cell_text(cell: Plain) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else cell if isinstance(cell, str) else type_text(cell)


def _equal(cell: Plain, text: str | None, number: float | None) -> bool:
    if text is None or cell is None:
        return text is None and cell is None
    if isinstance(cell, int | float) and not isinstance(cell, bool) and number is not None:
        return cell == number
    spelled = {"true": "yes", "false": "no"}.get(text.lower(), text) if isinstance(cell, bool) else text
    held, wanted = _cell_text(cell).casefold(), spelled.casefold()
    return held == wanted or (_is_path(wanted) and path_key(held) == path_key(wanted))


def _is_path(text: str) -> bool:
    """Return whether it may be the path of a module, whose parts stand between dots or slashes."""
    return "." in text or "/" in text


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Plain, str | None, float | None], bool]:
    def test(cell: Plain, text: str | None, number: float | None) -> bool:
        return number is not None and isinstance(cell, int | float) and not isinstance(cell, bool) and compare(cell, number)

    return test


def _contains(cell: Plain, text: str | None, number: float | None) -> bool:
    held, wanted = _cell_text(cell).casefold(), (text or "").casefold()
    pairs = [(held, wanted), (path_key(held), path_key(wanted))] if _is_path(wanted) else [(held, wanted)]
    return any(fnmatch.fnmatchcase(one, pattern) if "*" in pattern else pattern in one for one, pattern in pairs)


_OPERATORS: Mapping[str, Callable[[Plain, str | None, float | None], bool]] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda cell, text, number: not _equal(cell, text, number),
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "~": _contains,
}
