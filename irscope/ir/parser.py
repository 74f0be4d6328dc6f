"""Reading the text form `.irs`: one statement a line; graphs that are still open are kept on a stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import NoReturn

from irscope.budget import spend
from irscope.errors import UsageError
from irscope.ir.bodytext import BodyReader
from irscope.ir.builder import paused_gc
from irscope.ir.dims import Dim, SymDim, symbol, unknown
from irscope.ir.graph import Graph
from irscope.ir.places import root_scope
from irscope.ir.program import Assumed, Program
from irscope.ir.scanner import END, STRING, TextProblem, fail_at, integer, skip_gap, unquote
from irscope.ir.spelling import BARE_LABEL, TEXT_VERSION

MAX_LINE = 1_000_000

_WORD_AT = re.compile(r"[a-z]+(?=[ \t\r]|\Z)").match
_STRING_AT = re.compile(rf"{STRING}(?=[ \t\r]|\Z)").match
_INTEGER_AT = re.compile(r"-?[0-9]+").match
_SIZE_AT = re.compile(r"(\??[A-Za-z_][A-Za-z0-9_.]*)(?:[ \t]+\[[ \t]*(\*|-?[0-9]+)[ \t]*,[ \t]*(\*|-?[0-9]+)[ \t]*\])?").match
_OPENING_AT = re.compile(rf"@({BARE_LABEL}|{STRING})[ \t]*\{{").match


def parse_program(text: str, *, path: str = "<text>") -> Program:
    """The program that a text spells; LoadError with line, column and a caret where it is none."""
    with paused_gc():
        return _ProgramReader(path).read(text)


class _ProgramReader:
    """Takes the lines one by one: headers here, what stands inside graphs through a `BodyReader`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version = ""
        self._format = "irs"
        self._metadata: dict[str, str] = {}
        self._given: dict[str, int] = {}
        self._assumed: list[Assumed] = []
        self._symbols: dict[str, SymDim] = {}
        self._sizes: dict[str, SymDim] = {}
        self._graph: Graph | None = None
        self._functions: dict[str, Graph] = {}
        self._body = BodyReader(self._size)
        self._headers: dict[str, Callable[[str, int], int]] = {
            "irscope": self._irscope_line,
            "format": self._format_line,
            "meta": self._meta_line,
            "given": self._given_line,
            "guess": partial(self._assumed_line, True),
            "default": partial(self._assumed_line, False),
            "symbol": self._symbol_line,
            "bound": self._bound_line,
            "class": self._class_line,
            "graph": self._graph_line,
            "func": self._func_line,
        }

    def read(self, text: str) -> Program:
        lines = text.removeprefix("\ufeff").split("\n")
        number = 0
        statement = self._statement
        try:
            for number, line in enumerate(lines, 1):  # noqa: B007  # the error below tells the line
                spend(10 + len(line), "the text")
                statement(line)
            number, line = self._last_line(lines)
            self._finish(len(line))
        except TextProblem as problem:
            fail_at(self._path, number, line, problem)
        assert self._graph is not None
        path = "" if self._path == "<text>" else self._path
        return Program(self._graph, self._functions, self._symbols, self._format, path, self._given, self._metadata, assumed=self._assumed)

    @staticmethod
    def _last_line(lines: list[str]) -> tuple[int, str]:
        number = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
        return number, lines[number - 1]

    def _finish(self, at: int) -> None:
        self._body.check_closed(at)
        if self._graph is None:
            raise TextProblem("the text ends without a graph", at)

    def _statement(self, line: str) -> None:
        if len(line) > MAX_LINE:
            raise TextProblem(f"this line has {len(line)} characters; up to {MAX_LINE} are read", 0)
        at = len(line) - len(line.lstrip(" \t"))
        if line[at : at + 1] in ("", "#", "\r"):
            return
        body = self._body
        if body.is_open:
            body.statement(line, at)
            return
        word = _WORD_AT(line, at)
        header = self._headers.get(word[0]) if word is not None else None
        if header is None or word is None:
            self._fail_on_header(line, at)
        if not self._version and word[0] != "irscope":
            raise TextProblem("the first line must be: irscope 1", at)
        end = header(line, skip_gap(line, word.end()))
        if END(line, end) is None:
            raise TextProblem("nothing more was expected on this line", skip_gap(line, end))

    def _fail_on_header(self, line: str, at: int) -> NoReturn:
        if not self._version:
            raise TextProblem("the first line must be: irscope 1", at)
        if line[at] == "}":
            raise TextProblem("there is no open graph that this could close", at)
        word = re.match(r"[^ \t(:]*", line[at:])
        name = word[0] if word is not None else ""
        if line[at] == "%" or name in self._body.words or line[at + len(name) : at + len(name) + 1] == "(":
            raise TextProblem("this may only stand inside a graph", at)
        similar = get_close_matches(name, self._headers, 1)
        raise TextProblem(f"there is no statement {name!r}{f'; is it {similar[0]}?' if similar else ''}", at)

    # -- headers -----------------------------------------------------------------------------------------------

    def _irscope_line(self, line: str, at: int) -> int:
        if self._version:
            raise TextProblem("the version was given before", at)
        self._version = line[at:].split("#")[0].strip()
        if self._version != str(TEXT_VERSION):
            raise TextProblem(f"version {self._version!r} of the text form is unknown; this irscope reads version {TEXT_VERSION}", at)
        return at + len(self._version)

    def _format_line(self, line: str, at: int) -> int:
        self._format, at = _string(line, at)
        return at

    def _meta_line(self, line: str, at: int) -> int:
        key, end = _string(line, at)
        if key in self._metadata:
            raise TextProblem(f"the metadata {key!r} was given before", at)
        self._metadata[key], end = _string(line, skip_gap(line, end))
        return end

    def _given_line(self, line: str, at: int) -> int:
        name, end = _string(line, at)
        if name in self._given:
            raise TextProblem(f"the value of {name!r} was given before", at)
        match = _INTEGER_AT(line, skip_gap(line, end))
        if match is None:
            raise TextProblem("a whole number is missing", skip_gap(line, end))
        self._given[name] = integer(match[0], match.start())
        return match.end()

    def _assumed_line(self, is_guess: bool, line: str, at: int) -> int:
        what, end = _string(line, at)
        value, end = _string(line, skip_gap(line, end))
        why, end = _string(line, skip_gap(line, end))
        self._assumed.append(Assumed(what, value, why, is_guess))
        return end

    def _symbol_line(self, line: str, at: int) -> int:
        name, end = self._declare_size(line, at)
        self._symbols[name] = self._sizes[name]
        return end

    def _bound_line(self, line: str, at: int) -> int:
        return self._declare_size(line, at)[1]

    def _declare_size(self, line: str, at: int) -> tuple[str, int]:
        match = _SIZE_AT(line, at)
        if match is None:
            raise TextProblem("the name of a size is missing, as in: symbol batch [1,64]", at)
        if self._graph is not None:
            raise TextProblem("sizes are declared before the first graph", at)
        name = match[1]
        if name in self._sizes:
            raise TextProblem(f"the size {name} was declared before", at)
        if match[2] is None:
            self._size(name)
            return name, match.end()
        lo, hi = (None if match[group] == "*" else integer(match[group], match.start(group)) for group in (2, 3))
        try:
            self._sizes[name] = unknown(name, lo, hi) if name[0] == "?" else symbol(name, lo, hi)
        except UsageError as error:
            raise TextProblem(error.message, match.start(2)) from None
        return name, match.end()

    def _size(self, name: str) -> Dim:
        """The size of that name, with the usual bounds where none were declared."""
        size = self._sizes.get(name)
        if size is None:
            size = self._sizes[name] = unknown(name) if name[0] == "?" else symbol(name)
        return size

    def _class_line(self, line: str, at: int) -> int:
        if self._graph is not None:
            raise TextProblem("classes stand before the graph, or first inside a func", at)
        return self._body.places.class_line(line, at)

    def _graph_line(self, line: str, at: int) -> int:
        if self._graph is not None:
            raise TextProblem("there is a graph already; other bodies are written as func", at)
        name, end = self._opening(line, at)
        self._graph = self._body.open(Graph(name, scope=self._body.places.root))
        return end

    def _func_line(self, line: str, at: int) -> int:
        if self._graph is None:
            raise TextProblem("the graph must come before functions", at)
        name, end = self._opening(line, at)
        if name in self._functions:
            raise TextProblem(f"the function {name!r} is defined twice", at)
        self._functions[name] = self._body.open(Graph(name, scope=root_scope()))
        return end

    @staticmethod
    def _opening(line: str, at: int) -> tuple[str, int]:
        match = _OPENING_AT(line, at)
        if match is None:
            raise TextProblem("a name and an opening brace are missing, as in: graph @main {", at)
        name = match[1]
        return unquote(name, at + 1) if name[0] == '"' else name, match.end()


def _string(line: str, at: int) -> tuple[str, int]:
    match = _STRING_AT(line, at)
    if match is None:
        raise TextProblem("a string in double quotes is missing", at)
    return unquote(match[0], at), match.end()
