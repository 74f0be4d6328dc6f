"""Pictures of the screens, one line of the terminal to a line of text, so that a change can be read in a review.

A picture holds the text of the screen, and below it the colours and weights of each line as runs of cells. After a change that
is wanted: `IRSCOPE_UPDATE_SNAPSHOTS=1 pytest tests/tui/test_snapshots.py`. The same cells as SVG are in docs/images.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.segment import Segment

from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.picker import samples
from irscope.tui.text import ASCII, UNICODE, Symbols
from tests.tui.driving import HUGE, LARGE, SMALL, press, settle

FOLDER = Path(__file__).parent / "snapshots"
DARK, LIGHT = "textual-dark", "textual-light"
Case = tuple[str, tuple[str, ...], tuple[int, int], str]
CASES: tuple[Case, ...] = (
    ("browse", ("down", "down"), SMALL, DARK),
    ("browse", ("down", "down"), LARGE, DARK),
    ("browse", ("down", "down"), HUGE, DARK),
    ("browse", ("down", "down"), LARGE, LIGHT),
    ("filter", ("slash", *"op:conv"), LARGE, DARK),
    ("memory", ("2",), SMALL, DARK),
    ("memory", ("2",), LARGE, DARK),
    ("memory", ("2",), HUGE, DARK),
    ("memory", ("2",), LARGE, LIGHT),
    ("addresses", ("2", "v", "3"), LARGE, DARK),
    ("parameters", ("3",), SMALL, DARK),
    ("parameters", ("3",), LARGE, LIGHT),
    ("cost", ("4",), SMALL, DARK),
    ("cost", ("4",), LARGE, DARK),
    ("reports", ("7",), LARGE, DARK),
    ("help", ("question_mark",), LARGE, DARK),
    ("copy", ("y",), SMALL, LIGHT),
)
SAMPLE = next(path for path in samples() if path.stem == "image-network")
_PINNED = "8.2.8"
"""The version of Textual that the pictures were made with."""

pytestmark = pytest.mark.skipif(version("textual") != _PINNED, reason=f"the pictures were made with Textual {_PINNED}")


def picture(keys: tuple[str, ...], size: tuple[int, int], theme: str, symbols: Symbols) -> str:
    """What stands on the screen after some keys, with its looks."""

    async def run() -> str:
        app = IrscopeApp(open_model(Path(SAMPLE.name)).rebound({"batch": 32}), symbols)
        async with app.run_test(size=size) as pilot:
            app.theme = theme
            await settle(app, pilot)
            await press(app, pilot, *keys)
            # The card of a node asks for its formula once the selection has come to rest.
            await pilot.pause(0.4)
            await settle(app, pilot)
            app.clear_notifications()
            await pilot.pause()
            lines = [list(strip) for strip in app.screen._compositor.render_strips()]
        return "\n".join(described(lines)) + "\n"

    return asyncio.run(run())


def described(lines: list[list[Segment]]) -> Iterator[str]:
    """The text of all lines, then the looks of each: which cells have which colours."""
    for line in lines:
        yield "".join(segment.text for segment in line).rstrip()
    yield "-- looks: from cell to cell, colour on background"
    for number, line in enumerate(lines):
        runs: list[tuple[int, int, str]] = []
        at = 0
        for segment in line:
            look, end = look_of(segment), at + segment.cell_length
            if runs and runs[-1][2] == look:
                runs[-1] = (runs[-1][0], end, look)
            elif segment.cell_length:
                runs.append((at, end, look))
            at = end
        yield f"{number:2} " + "  ".join(f"{start}-{end} {look}" for start, end, look in runs)


def look_of(segment: Segment) -> str:
    """A style in a few words; blanks have no colour of their own."""
    style = segment.style
    if style is None:
        return "-"
    front = "" if style.color is None or not segment.text.strip() else style.color.name
    back = "" if style.bgcolor is None else style.bgcolor.name
    marks = "".join(sign for sign, is_on in (("*", style.bold), ("_", style.underline), ("~", style.reverse), ("/", style.italic)) if is_on)
    return f"{front}{marks} on {back}" if front or marks else f"on {back}"


def compare(name: str, found: str) -> None:
    """A picture equals the one that was kept; it is kept anew where that is asked for."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("IRSCOPE_UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _plain_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    # Command lines name the model: the same on every machine from its own folder.
    monkeypatch.chdir(SAMPLE.parent)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2][0]}x{case[2][1]}-{case[3].rpartition('-')[2]}")
def test_the_screen_looks_as_it_did(case: Case) -> None:
    name, keys, size, theme = case
    compare(f"{name}-{size[0]}x{size[1]}-{theme.rpartition('-')[2]}", picture(keys, size, theme, UNICODE))


def test_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    compare("browse-80x24-no-colour", picture(("down", "down"), SMALL, DARK, UNICODE))


@pytest.mark.slow
def test_in_plain_ascii() -> None:
    found = picture(("2",), SMALL, DARK, ASCII)
    assert found.isascii()
    compare("memory-80x24-ascii", found)


def test_there_are_at_most_25() -> None:
    assert len(list(FOLDER.glob("*.txt"))) == len(CASES) + 2 <= 25
