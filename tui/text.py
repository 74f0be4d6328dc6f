"""Lines of text in parts, each with a role that a widget gives a style, and the characters they are drawn with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from irscope.codes import CODES
from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.report.names import cut_name
from irscope.report.options import ASCII as ASCII_GLYPHS
from irscope.report.options import UNICODE as UNICODE_GLYPHS
from irscope.report.options import Glyphs
from irscope.report.printable import can_encode, display_width, legible, pad

# Lines of text in parts, each with a role that a widget gives a style: what view models hand to widgets.

PartRole: TypeAlias = Literal["part0", "part1", "part2", "part3", "part4", "part5", "part6", "part7", "part8", "part9"]
PARTS: tuple[PartRole, ...] = ("part0", "part1", "part2", "part3", "part4", "part5", "part6", "part7", "part8", "part9")
"""Looks of the parts of a stacked chart, by the numbers of `irscope.report.picture.colours_of`."""
Role: TypeAlias = (
    Literal["plain", "heading", "module", "operator", "name", "faint", "unknown", "bar", "mark", "good", "error", "selected", "through"]
    | PartRole
)
ROLES: tuple[Role, ...] = (
    "plain",
    "heading",
    "module",
    "operator",
    "name",
    "faint",
    "unknown",
    "bar",
    "mark",
    "good",
    "error",
    "selected",
    "through",
    *PARTS,
)


class Span(NamedTuple):
    """A piece of a line. Its text is safe to show."""

    text: str
    role: Role = "plain"
    to: int | None = None
    """The row of the outline that it leads to."""
    behind: PartRole | None = None
    """The part whose colour is the background: what is above the block characters of the text."""


Line: TypeAlias = tuple[Span, ...]


def text_of(line: Iterable[Span]) -> str:
    """Return a line without its roles."""
    return "".join(span.text for span in line)


def fit(text: str, width: int, symbols: Symbols, *, right: bool = False) -> str:
    """Return the text in exactly this many columns, cut where a name says least or filled up."""
    return pad(cut_name(text, width, symbols.glyphs.ellipsis), width, right=right) if width > 0 else ""


def cut_end(text: str, width: int, symbols: Symbols) -> str:
    """Return the text in at most this many columns, cut at its end."""
    if display_width(text) <= width:
        return text
    ellipsis = symbols.glyphs.ellipsis
    if width <= display_width(ellipsis):
        return ellipsis[: max(width, 0)]
    while text and display_width(text) + display_width(ellipsis) > width:
        text = text[: -max(1, (display_width(text) + display_width(ellipsis) - width) // 2)]
    return text + ellipsis


def cut_line(line: Iterable[Span], width: int, symbols: Symbols) -> Line:
    """Return the parts that fit into a width, the last of them cut."""
    kept: list[Span] = []
    for span in line:
        room = width - sum(display_width(span.text) for span in kept)
        if room <= 0:
            break
        kept.append(span._replace(text=cut_end(span.text, room, symbols)))
    return tuple(kept)


def beside(left: Sequence[Line], right: Sequence[Line], at: int) -> list[Line]:
    """Return the lines beside one another, those at the right from a column on."""
    rows = max(len(left), len(right))
    lines: list[Line] = []
    for one, other in zip(filled(left, rows), filled(right, rows), strict=True):
        lines.append((*one, Span(" " * max(at - display_width(text_of(one)), 0)), *other) if other else one)
    return lines


def filled(lines: Sequence[Line], height: int) -> list[Line]:
    """Exactly so many lines, empty ones after those there are."""
    return [*lines, *([()] * height)][: max(height, 0)]


def wrap(line: Line, width: int, indent: str = "") -> Iterator[Line]:
    """Yield the line in rows of at most this width, broken at blanks where there are any; rows after the first are indented."""
    width = max(width, len(indent) + 2)
    row: list[Span] = []
    used = 0
    for piece in _words(line):
        for span in _span_pieces(piece, width - len(indent)):
            size = display_width(span.text)
            if used + size > width:
                yield tuple(row)
                row, used = ([Span(indent)] if indent else []), len(indent)
                if span.text.isspace():
                    continue
            row.append(span)
            used += size
    yield tuple(row)


def _words(line: Line) -> Iterator[Span]:
    """Words and the blanks between them."""
    for span in line:
        text, start = span.text, 0
        for at in range(1, len(text) + 1):
            if at == len(text) or (text[at] == " ") != (text[at - 1] == " "):
                yield span._replace(text=text[start:at])
                start = at


def _span_pieces(span: Span, width: int) -> Iterator[Span]:
    """Yield the span itself, or parts of a width where it is too long for one row."""
    if display_width(span.text) <= width:
        yield span
        return
    part, used = "", 0
    for character in span.text:
        size = display_width(character)
        if used + size > width and part:
            yield span._replace(text=part)
            part, used = "", 0
        part += character
        used += size
    if part:
        yield span._replace(text=part)


# The characters the UI draws with, in Unicode or plain ASCII.


@immutable
class Symbols:
    """Signs that carry meaning without colour, and the glyphs of charts."""

    glyphs: Glyphs
    encoding: str
    expanded: str
    collapsed: str
    cursor: str
    here: str
    """Marks the selected step on the axis of a chart."""
    at_least: str
    at_most: str
    """Stands before a sum of which parts are unknown."""
    waiting: str
    """Stands where a number is still being computed."""
    ascending: str
    descending: str
    fills: tuple[str, ...]
    """Fills of stacked bars, told apart without colour."""
    times: str
    """Stands before how many modules alike a row stands for."""
    point: str
    """The selected point of a scatter."""
    has_braille: bool
    has_colours: bool
    """Stacked bars are solid, with borders within a cell; without colours they are hatched, a cell for one part."""
    unknown: str = "?"

    def clean(self, text: str) -> str:
        """Text from a model made safe to show."""
        return legible(text, self.encoding)


UNICODE = Symbols(
    UNICODE_GLYPHS,
    "utf-8",
    expanded="▾",
    collapsed="▸",
    cursor="▌",
    here="▲",
    at_least="≥",
    at_most="≤",
    waiting="…",
    ascending="▴",
    descending="▾",
    fills=("█", "▓", "▒", "░", "▚", "▖", "▜", "▞", "▌", "▝"),
    times="×",
    point="◉",
    has_braille=True,
    has_colours=True,
)
ASCII = Symbols(
    ASCII_GLYPHS,
    "ascii",
    expanded="v",
    collapsed=">",
    cursor="|",
    here="^",
    at_least=">",
    at_most="<",
    waiting="..",
    ascending="^",
    descending="v",
    fills=("#", "=", "+", ".", "%", "-", "x", "*", "o", "~"),
    times="x",
    point="O",
    has_braille=False,
    has_colours=False,
)

_PLAIN_TERMINALS = frozenset({"linux", "dumb", "vt100", "vt220"})


def symbols_for(encoding: str, environ: Mapping[str, str]) -> Symbols:
    """Unicode where the terminal takes it; plain ASCII on a Linux console or with IRSCOPE_ASCII set."""
    if environ.get("IRSCOPE_ASCII") or environ.get("TERM") in _PLAIN_TERMINALS:
        return ASCII
    drawn = "".join(
        (
            UNICODE.glyphs.blocks,
            UNICODE.times,
            UNICODE.glyphs.mark,
            UNICODE.expanded,
            UNICODE.collapsed,
            UNICODE.cursor,
            UNICODE.here,
            *UNICODE.fills,
            UNICODE.point,
            UNICODE.ascending,
        )
    )
    if not can_encode(drawn + UNICODE.at_least + UNICODE.at_most, encoding):
        return ASCII
    return replace(UNICODE, has_colours=False) if environ.get("NO_COLOR") else UNICODE


# An error as lines for a reader: what is wrong, where, what its code means, and what to do.


def failure_lines(error: IrscopeError, width: int, height: int, symbols: Symbols) -> list[Line]:
    """Return why there is nothing to draw, in exactly so many lines: what is wrong, and what to do."""
    lines: list[Line] = [(Span(f"{symbols.unknown} {symbols.clean(error.message)}", "error"),)]
    lines += [(Span(symbols.clean(error.hint), "faint"),)] if error.hint else []
    return filled([cut_line(line, width, symbols) for line in lines], height)


def note_lines(text: str, height: int) -> list[Line]:
    """Return a word on why there is nothing to draw yet, in exactly so many lines."""
    return filled([(Span(text, "faint"),)], height)


def error_lines(error: IrscopeError, symbols: Symbols) -> list[Line]:
    """Return an error with its place, its code and what to do about it."""
    clean = symbols.clean
    doc = CODES.get(error.code)
    lines: list[Line] = [(), (Span(f"error {error.code}", "error"), Span(f"  {doc.title}" if doc is not None else ""))]
    lines += [(Span(f"  {clean(part)}"),) for part in error.message.splitlines()]
    if error.where:
        lines.append((Span(f"  at {clean(error.where)}", "faint"),))
    if error.hint:
        lines.append((Span(f"  {clean(error.hint)}", "name"),))
    if doc is not None:
        lines += [(), (Span(f"  {doc.text}", "faint"),)]
    return lines
