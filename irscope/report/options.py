"""Options of a renderer: the width, the number of rows, with colour or without."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Final, TextIO

from irscope.immutable import immutable
from irscope.report.printable import can_encode

PIPE_WIDTH: Final = 100
"""Columns where no terminal says how many there are."""


@immutable
class Glyphs:
    """The characters that tables and charts are drawn with."""

    rule: str
    ellipsis: str
    separator: str
    mark: str
    axis: str
    corner: str
    blocks: str
    """From empty to full."""
    cut: str
    """Of a bar that is not drawn to scale."""
    levels: str
    """A line at the lower edge of a row, in its middle, and at its upper edge."""


UNICODE = Glyphs(rule="─", ellipsis="…", separator=" · ", mark="▼", axis="│", corner="└", blocks=" ▁▂▃▄▅▆▇█", cut="╱", levels="▁─▔")
ASCII = Glyphs(rule="-", ellipsis="...", separator=" | ", mark="v", axis="|", corner="+", blocks=" .:-=+*%#", cut="/", levels="_--")


@immutable
class RenderOptions:
    """Options for writing a document; a renderer takes those that concern it."""

    width: int | None = None
    """Columns of the terminal; None does not cut anything."""
    rows: int | None = None
    """Rows shown of each table; None is the format's own limit, 0 shows all."""
    colour: bool = False
    humanise: bool = True
    """Numbers with units in text; otherwise raw."""
    charts: bool = True
    encoding: str = "utf-8"
    all_rows: str = "--rows 0 shows all"
    """Hint on how to show the rows that are left out."""

    @property
    def glyphs(self) -> Glyphs:
        """Plain ASCII where the output cannot take more."""
        drawn = "".join((UNICODE.rule, UNICODE.ellipsis, UNICODE.separator, UNICODE.mark, UNICODE.axis, UNICODE.corner, UNICODE.blocks))
        return UNICODE if can_encode(drawn, self.encoding) else ASCII

    @classmethod
    def for_stream(
        cls,
        stream: TextIO,
        *,
        rows: int | None = None,
        humanise: bool = True,
        colour: bool | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> RenderOptions:
        """Options that suit a stream: a terminal has a width and may have colours, a pipe has 100 columns and no colours, unless told."""
        from shutil import get_terminal_size  # it brings the archive modules along

        terminal = is_terminal(stream)
        if colour is None:
            colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        width = get_terminal_size().columns if terminal or environ.get("COLUMNS", "").isdigit() else PIPE_WIDTH
        return cls(width=width, rows=rows, colour=colour, humanise=humanise, encoding=stream.encoding or "utf-8")


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


def shown_card(card: object) -> str:
    """Return a card for somebody who prints it in Python, as wide as in a pipe; by name, as below."""
    return "\n".join(importlib.import_module("irscope.report.cardtext").card_lines(card, RenderOptions(width=PIPE_WIDTH)))


def shown_alone(part: object, how: str) -> str:
    """Return one report or one table for somebody who looks at it in Python: as "text", or as "html" that may stand in a notebook.

    By name: what writes them imports reports and tables, which are shown by this.
    """
    module = {"text": "irscope.report.text", "html": "irscope.report.htmlout"}[how]
    return str(importlib.import_module(module).alone(part))
