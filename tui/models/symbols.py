"""The characters the UI draws with, in Unicode or plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from irscope.report.options import ASCII as ASCII_GLYPHS
from irscope.report.options import UNICODE as UNICODE_GLYPHS
from irscope.report.options import Glyphs
from irscope.report.printable import can_encode, legible


@dataclass(frozen=True, slots=True)
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
    unknown: str = "?"

    def braille(self, bits: int, plain: str = "*") -> str:
        """A character with these dots of a braille cell, or the plain one where there is no braille."""
        return chr(0x2800 | bits) if self.has_braille else plain

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
    fills=("█", "▓", "▒", "░", "▚", "▖", "▜"),
    times="×",
    point="◉",
    has_braille=True,
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
    fills=("#", "=", "+", ".", "%", "-", "x"),
    times="x",
    point="O",
    has_braille=False,
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
    return UNICODE if can_encode(drawn + UNICODE.at_least + UNICODE.at_most, encoding) else ASCII
