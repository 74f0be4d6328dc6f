"""The text of the help window, made from the table of actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from irscope.tui.actions import actions_of, key_text
from irscope.tui.models.filter import HELP as FILTER_HELP
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols
from irscope.tui.screens.registry import pane_titles, screen_actions

QUESTIONS: Final = (
    ("What is my peak? It stands at the top of every screen; this goes there.", "p"),
    ("What is alive there, and why? The table below the chart, largest first.", "2, then p"),
    ("Which layer costs most? The first row below (model).", "4"),
    ("What happens at batch 32? All screens show it then.", "c, then batch=32"),
    ("Which weights are largest?", "3"),
)
"""Common questions, and the keys that answer them."""


def help_lines(screen: str, pane: str, symbols: Symbols) -> list[Line]:
    """All keys of a screen, those of the focused pane first, then the filter syntax and the signs."""
    titles, actions = pane_titles([screen]), screen_actions([screen])
    order = [pane, *(one for one in titles if one != pane)] if pane in titles else list(titles)
    lines: list[Line] = []
    is_first = True
    for one in order:
        found = list(actions_of(one, actions))
        if not found:
            continue
        lines.append((Span(titles[one], "heading"),))
        for action in found:
            keys = ", ".join(map(key_text, action.keys))
            lines.append((Span(f"  {keys:<22}", "name"), Span(action.help)))
        lines.append(())
        if is_first:
            lines += [(Span("Questions and where their answers are", "heading"),), *question_lines(), ()]
            is_first = False
    lines.append((Span("Filter syntax; all words must match", "heading"),))
    lines.extend((Span(f"  {term:<22}", "name"), Span(text)) for term, text in FILTER_HELP)
    lines.append(())
    lines.append((Span("Signs", "heading"),))
    lines.extend((Span(f"  {sign:<22}", "name"), Span(text)) for sign, text in _signs(symbols))
    return lines


def question_lines() -> list[Line]:
    """The questions with the keys that answer them."""
    return [(Span(f"  {keys:<22}", "name"), Span(text)) for text, keys in QUESTIONS]


def _signs(symbols: Symbols) -> Iterator[tuple[str, str]]:
    yield symbols.unknown, "unknown, which is never counted as zero"
    yield symbols.waiting, "still being computed"
    yield f"{symbols.at_least} 1.20 G", "at least this much: some nodes below are unknown and not in the sum"
    yield symbols.glyphs.mark, "the step at which most bytes are alive"
    yield symbols.here, "the step of the selected row"
    yield "result bytes", "sizes of all results together; views of one storage count each time"
    yield "FLOPs", "a multiply-add is 2"
