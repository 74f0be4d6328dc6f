"""Runs the app without a terminal, for tests of screens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from textual.pilot import Pilot

from irscope.session import Model
from irscope.tui.app import IrscopeApp
from irscope.tui.text import UNICODE, Symbols

SMALL, LARGE, HUGE = (80, 24), (120, 40), (200, 60)
Steps: TypeAlias = Callable[[IrscopeApp, Pilot[None]], Awaitable[None]]


def drive(opened: Model, steps: Steps, *, size: tuple[int, int] = LARGE, symbols: Symbols = UNICODE, other: str = "") -> IrscopeApp:
    """Run the app, wait until every question is answered, and do some steps; `other` is a file to compare with from the start."""

    async def run() -> IrscopeApp:
        app = IrscopeApp(opened, symbols, other=other)
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            await steps(app, pilot)
        return app

    return asyncio.run(run())


async def settle(app: IrscopeApp, pilot: Pilot[None]) -> None:
    """Until workers are done and their messages are handled."""
    await pilot.pause()
    while not app.session.queue.is_idle or app.workers:
        await app.workers.wait_for_complete()
        await pilot.pause()
    await pilot.pause()


async def press(app: IrscopeApp, pilot: Pilot[None], *keys: str) -> None:
    """Press keys and wait for what they ask for."""
    await pilot.press(*keys)
    await settle(app, pilot)


def screen_text(app: IrscopeApp) -> str:
    """What stands on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
