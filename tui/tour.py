"""Makes a moving picture of a script of keys: an SVG that shows each screen for some seconds, and the key that led to it. Nothing in it
is a program: browsers play it wherever they show pictures."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rich.segment import Segment
from rich.style import Style
from textual.keys import Keys
from textual.pilot import Pilot

from irscope.immutable import immutable
from irscope.report.printable import display_width
from irscope.tui.actions import key_text
from irscope.tui.app import IrscopeApp
from irscope.tui.screen import screen_actions
from irscope.tui.text import UNICODE

if TYPE_CHECKING:
    from irscope.session import Model
    from irscope.tui.memory.run import ShownRun

OF_MODEL: Final = "2 tab down enter 2 W enter escape 4"
OF_RUN: Final = "p o 7 down"
"""What is pressed where no keys are given: from the model to its peak, what holds it, and what would lower it; the peak of a run."""
SIZE: Final = (120, 36)
_SECONDS: Final = 2.0
"""Time for which each screen is shown."""
_WIDE, _HIGH, _TEXT = 8.4, 18.0, 14
"""A cell in points, and the size of the font in it."""
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_RUNS: Final = re.compile("([▁-█])\\1*|[^▁-█ ]+(?: [^▁-█ ]+)*")
_NAMED: Final = frozenset(key.value for key in Keys)
_COLOURS: Final = ("#e0e0e0", "#121212")
"""Of text and of what is behind it, where a style names none."""
_FONTS: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
_LOOK: Final = f'font-family="{_FONTS}" font-size="{_TEXT}" shape-rendering="crispEdges"'


@immutable
class Frame:
    """One screen of the picture: an SVG for each line of the terminal, and one for what was pressed."""

    lines: tuple[str, ...]
    seconds: float = _SECONDS


def moving_picture(shown: Model | Sequence[ShownRun], keys: str = "", other: str = "", step: Sequence[str] | None = None) -> str:
    """Return the SVG of what these keys lead to, as a shell parts them: `2 c 'batch=64 l4' enter`; a word that is no key is typed."""
    pressed = shlex.split(keys) or (OF_RUN if isinstance(shown, Sequence) else OF_MODEL).split()
    return svg_of(asyncio.run(_frames(IrscopeApp(shown, UNICODE, other=other, step=step), pressed)))


async def _frames(app: IrscopeApp, words: Sequence[str]) -> list[Frame]:
    frames = []
    async with app.run_test(size=SIZE) as pilot:
        for word in ("", *words):
            said = _said(app, word)
            await pilot.press(*([word] if word in _NAMED or "+" in word else word))
            await settled(app, pilot)
            app.clear_notifications()
            await pilot.pause()
            texts = [*app.screen._compositor.render_strips()]
            frames.append(Frame((*(_line(list(strip), at) for at, strip in enumerate(texts)), _line(said, len(texts) + 0.5))))
    return [*frames[:-1], replace(frames[-1], seconds=2 * _SECONDS)]


async def settled(app: Any, pilot: Pilot[Any]) -> None:
    """Until everything that was asked has been answered and drawn; the card of a node asks once the selection has come to rest."""
    for _ in range(6):
        await pilot.pause(0.1)
        await app.workers.wait_for_complete()
    await pilot.pause()


def _said(app: IrscopeApp, word: str) -> list[Segment]:
    """Return what stands under the screen: what is pressed, and what it does there."""
    shown = app.model_screen
    if not word or shown is None:
        return [Segment(" irscope tui ", Style(bold=True)), Segment(app.session.program.path)]
    key = {":": "colon", "?": "question_mark"}.get(word, word)
    panes = [shown.pane, shown.NAME, "screen", "app"] if shown is app.screen else []
    actions = [one for pane in panes for one in screen_actions([shown.NAME]) if one.pane == pane and key in one.keys]
    return [Segment(f" {key_text(word)} ", Style(bold=True, reverse=True)), Segment(f" {actions[0].help}" if actions else "")]


def _line(segments: Sequence[Segment], row: float) -> str:
    """Return a line of the terminal. Blocks of charts are drawn, as those of many fonts leave gaps between lines."""
    parts: list[str] = []
    x, y = 0.0, row * _HIGH
    for style, group in groupby(segments, lambda segment: segment.style or Style.null()):
        text = "".join(segment.text for segment in group)
        front, back = (
            colour.get_truecolor().hex if colour is not None and not colour.is_default else default
            for colour, default in zip((style.color, style.bgcolor), _COLOURS, strict=True)
        )
        front, back = (back, front) if style.reverse else (front, back)
        wide = display_width(text) * _WIDE
        if back != _COLOURS[1]:
            parts.append(_rect(x, y, wide, _HIGH, back))
        looks = ' font-weight="bold"' * bool(style.bold) + ' text-decoration="underline"' * bool(style.underline)
        for run in _RUNS.finditer(text):
            left, across = x + display_width(text[: run.start()]) * _WIDE, display_width(run[0]) * _WIDE
            if run[1]:
                high = _HIGH * _EIGHTHS.index(run[1]) / 8
                parts.append(_rect(left, y + _HIGH - high, across, high, front))
            else:
                place = f'x="{left:g}" y="{y + 0.75 * _HIGH:g}" textLength="{across:g}"'
                parts.append(f'<text {place} fill="{front}"{looks}>{escape(run[0], quote=False)}</text>')
        x += wide
    return "".join(parts)


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:.4g}" height="{high:g}" fill="{fill}"/>'


def svg_of(frames: Sequence[Frame]) -> str:
    """Return one picture of several: a line that stays is there once, with the times at which it is seen."""
    wide, high = SIZE[0] * _WIDE, (SIZE[1] + 2) * _HIGH
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {wide + 16:g} {high + 8:g}" {_LOOK}>'
    ground = f'<rect x="-8" y="-8" width="{wide + 16:g}" height="{high + 8:g}" rx="8" fill="{_COLOURS[1]}"/>'
    seen = dict.fromkeys(line for frame in frames for line in frame.lines if line)
    return "\n".join([head, ground, *(line for one in seen for line in _timed(one, frames)), "</svg>", ""])


def _timed(line: str, frames: Sequence[Frame]) -> Iterator[str]:
    """Yield a line with the times at which it is seen; without animation the first screen is."""
    total, at = sum(frame.seconds for frame in frames), 0.0
    changes: list[tuple[str, str]] = []
    for frame in frames:
        state = "visible" if line in frame.lines else "hidden"
        if not changes or changes[-1][0] != state:
            changes.append((state, f"{at / total:.4g}"))
        at += frame.seconds
    if len(changes) == 1:
        yield line
        return
    values, times = (";".join(parts) for parts in zip(*changes, strict=True))
    animate = f'dur="{total:g}s" calcMode="discrete" repeatCount="indefinite"'
    yield f'<g visibility="{changes[0][0]}"><animate attributeName="visibility" values="{values}" keyTimes="{times}" {animate}/>{line}</g>'
