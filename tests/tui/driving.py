"""Runs the app without a terminal, for tests of screens."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from textual.app import App
from textual.pilot import Pilot

from irscope.session import Model, open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.memory.run import ShownRun
from irscope.tui.start import StartScreen
from irscope.tui.text import UNICODE, Symbols
from tests.tui.models import model

SMALL, LARGE, HUGE = (80, 24), (120, 40), (200, 60)
Steps: TypeAlias = Callable[[IrscopeApp, Pilot[None]], Awaitable[None]]


def drive(
    opened: Model | Sequence[ShownRun], steps: Steps, *, size: tuple[int, int] = LARGE, symbols: Symbols = UNICODE, other: str = ""
) -> IrscopeApp:
    """Run the app, wait until every question is answered, and do some steps; `other` is a file to compare with from the start."""

    async def run() -> IrscopeApp:
        app = IrscopeApp(opened, symbols, other=other)
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            await steps(app, pilot)
        return app

    try:
        return asyncio.run(run())
    finally:
        # Leaving cancels what runs. As in run_app, the model stays usable: tests share models, and run in any order.
        if isinstance(opened, Model):
            opened.manager.cancelled.clear()


async def settle(app: IrscopeApp, pilot: Pilot[None]) -> None:
    """Until workers are done and their messages are handled."""
    await pilot.pause()
    while not app.session.queue.is_idle or app.workers:
        await app.workers.wait_for_complete()
        await pilot.pause()
    await pilot.pause()


async def begun(app: IrscopeApp, pilot: Pilot[Any]) -> None:
    """Until the start has read what it was told to, and shows the files to choose from or a model."""
    await pilot.pause()
    while app.is_running and isinstance(start := app.screen_stack[1], StartScreen) and start.is_busy:
        await asyncio.sleep(0.01)
        await pilot.pause()
    await pilot.pause()


def start_headless(monkeypatch: pytest.MonkeyPatch, steps: Steps | None = None, size: tuple[int, int] = SMALL) -> list[tuple[Any, Any]]:
    """`irscope tui` begins without a terminal, does some steps, and leaves; returns what it opens, each with the options of a step."""
    opened: list[tuple[Any, Any]] = []

    async def show(app: IrscopeApp, shown: object, other: str = "", step: Sequence[str] | None = None) -> None:
        opened.append((shown, step))
        app.exit()

    async def leave(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, IrscopeApp)
        before = len(opened)
        await begun(app, pilot)
        if steps is not None:
            await steps(app, pilot)
        if len(opened) == before:
            await pilot.press("q")

    monkeypatch.setattr(IrscopeApp, "show_model", show)
    monkeypatch.setattr(IrscopeApp, "run", lambda self: App.run(self, headless=True, size=size, auto_pilot=leave))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    return opened


async def press(app: IrscopeApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys and wait for what they ask for."""
    await pilot.press(*keys)
    await settle(app, pilot)


def screen_text(app: IrscopeApp) -> str:
    """What stands on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def driven(opened: str | Path = "", **options: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Makes a test of what is done in the app with a model; its `text`, `size` and `symbols` may be parameters of the test."""

    def of(steps: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(steps)
        own = list(signature.parameters.values())[2:]

        @functools.wraps(steps)
        def test(**given: Any) -> None:
            used = {name: given[name] for name in ("size", "symbols") if name in given}
            shown = open_model(opened) if isinstance(opened, Path) else model(opened or given["text"])
            drive(shown, lambda app, pilot: steps(app, pilot, **given), **{**options, **used})

        # What pytest gives a test is what it asks for besides the app.
        del test.__wrapped__  # type: ignore[attr-defined]
        test.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return test

    return of


def selected(app: IrscopeApp) -> str:
    """The name of what all screens have selected."""
    return app.browse.outline.items[app.browse.selected].name
