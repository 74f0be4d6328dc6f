"""Somebody who never saw irscope: four questions from `irscope tui` alone, every key told by what is on the screen at that moment."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.start import StartScreen
from irscope.tui.text import UNICODE
from tests.tui.driving import begun, press, screen_text, settle


def words(text: str) -> str:
    """What stands on a screen with blanks and frames taken together, so that a line that was broken reads on."""
    return re.sub(r"[\s│┃┌┐└┘─━┏┓┗┛╭╮╰╯]+", " ", text)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_four_questions_in_two_minutes(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))

    async def run() -> None:
        app = IrscopeApp(StartScreen(lambda path, tell: (open_model(path), "", None)), UNICODE)
        async with app.run_test(size=size) as pilot:
            await begun(app, pilot)
            # The start says to press enter on a file, and which keys answer what afterwards.
            start = words(screen_text(app))
            for hint in ("Choose a file above with the arrow keys and enter", "sample", "image-network.irs"):
                assert hint in start
            if size[1] >= 30:
                for hint in ("2, then p What is alive there, and why?", "4 Which layer costs most?", "c, then batch=32"):
                    assert hint in start
            await pilot.press("enter")
            await begun(app, pilot)
            await settle(app, pilot)
            # The first line says what the numbers are for, the second has the peak: those of the card, which is for the same device.
            first = words(screen_text(app))
            assert "batch=1 (assumed)" in first
            assert "device peak ~3.68 MiB at step 22" in first
            # What happens at batch 32?
            await press(app, pilot, "c", *"batch=32", "enter")
            assert "device peak ~109.44 MiB at step 2" in words(screen_text(app))
            # What is my peak? The footer has p.
            assert "p Peak" in first
            await press(app, pilot, "p")
            assert "109.44 MiB at step 2" in words(screen_text(app))
            # What is alive there, and why? The tabs have 2.
            assert "2 Memory" in first
            await press(app, pilot, "2", "p")
            alive = words(screen_text(app))
            assert "why alive" in alive
            assert "109.44 MiB in 5 rows" in alive
            assert "made here" in alive
            # Which layer costs most? The tabs have 4; the first row is the dearest.
            await press(app, pilot, "4")
            costs = words(screen_text(app))
            assert "Cost by layer" in costs
            dearest = costs.partition("bound by")[2]
            assert 0 <= dearest.find("stem") < dearest.find("layer0")

    asyncio.run(run())
