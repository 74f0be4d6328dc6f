"""What would lower a peak: what each change saves and costs, and the chart with it."""

from __future__ import annotations

import asyncio
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.errors import PassError
from irscope.frontends.base import LoadOptions
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.report.values import Provenance, Quantity
from irscope.session import Model, open_model
from irscope.tui.analyses import report_of, result_of
from irscope.tui.app import IrscopeApp
from irscope.tui.memory.lives import measured
from irscope.tui.memory.views import Verdict
from irscope.tui.memory.whatif import SOURCES, Base, BeforeAfter, WhatIf, WhatIfs, resampled, tried_text
from irscope.tui.text import UNICODE, text_of
from tests.tui.driving import SMALL, drive, driven, press, screen_text, settle

SAMPLES = Path(__file__).parents[2] / "samples"
GIB = 1 << 30


@cache
def tagger(lifetime: str = "auto") -> tuple[Model, Base]:
    """A model of which much can be lowered, and its curve."""
    opened = open_model(SAMPLES / "tagger.irs", settings=Settings(device="l4")).rebound({"batch": 8})
    live = result_of(opened.manager, f"liveness{{model={lifetime}}}")
    found = measured(live)
    assert found is not None
    return opened, Base(opened.manager, lifetime, live.steps, found.heights, bool(found.modelled))  # type: ignore[arg-type]  # a literal


@pytest.mark.parametrize("lifetime", ["auto", "ssa"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_change_lowers_the_peak_by_what_it_says(name: str, lifetime: str) -> None:
    _, base = tagger(lifetime)
    found = [one for one in SOURCES[name](base) if one is not None]
    for one in found:
        assert one.peak.value == one.heights.max() and one.saves.value == base.peak - one.heights.max() > 0
        assert len(one.heights) == len(base.heights) and one.heights.min() >= 0
        assert one.cost and one.what
        # The curve has sizes that are modelled in it.
        assert not base.is_modelled or one.peak.provenance is Provenance.MODELLED
    assert found or name == "orders"


def test_a_change_of_the_source_saves_what_explain_peak_says() -> None:
    opened, base = tagger("ssa")
    table = report_of(opened.manager, "explain-peak{model=ssa}").table("each change alone")
    saved = dict(zip(table.cells("change"), table.cells("saves_bytes"), strict=True))
    found = {one.what: one for one in SOURCES["changes of the source"](base) if one is not None}
    same = set(found) & set(saved)
    assert same
    for what in same:
        # The device's peak may be at another step than that of activations: no change saves more there than its tensors have.
        assert 0 < found[what].saves.value <= opened.program.node_count * saved[what]  # type: ignore[operator]  # numbers


def test_the_chart_with_a_change_adds_up() -> None:
    _, base = tagger()
    one = next(one for one in SOURCES["changes of the source"](base) if one is not None)
    made = BeforeAfter(base.heights, one)
    assert made.total.tolist() == np.maximum(base.heights, one.heights).tolist()
    assert (made.parts["with it"] + made.parts["more than before"]).tolist() == one.heights.tolist()
    marks = " ".join(text_of(line) for line in made.mark_lines(90, UNICODE))
    assert "before ~" in marks and "then ~" in marks


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=80), st.integers(1, 80))
def test_no_peak_vanishes_over_another_number_of_steps(values: list[int], count: int) -> None:
    floats = resampled(np.array(values, dtype=np.float64), count)
    assert len(floats) == count
    assert floats.max() == max(values)


def test_the_sentence_says_whether_it_would_fit() -> None:
    one = WhatIf("explain-peak", "del x", Quantity(8 * GIB), Quantity(16 * GIB), "nothing", np.zeros(1))
    text = tried_text(one, Verdict("", False, "l4", 21 * GIB, 25 * GIB))
    assert "16.00 GiB at the peak, 8.00 GiB less; costs: nothing; fits on l4 then: ~4.00 GiB left" in text
    assert "does NOT fit on l4 then: ~1.00 GiB too much" in tried_text(one, Verdict("", False, "l4", 16 * GIB, 25 * GIB))
    assert "fit" not in tried_text(one, None)


def test_what_was_not_found_is_said() -> None:
    made = WhatIfs(UNICODE, "~3 B", ["orders", "changes"])
    assert "looking for orders, changes" in made.title()
    made.take("orders", PassError("no sizes"))
    made.take("changes", [])
    assert "orders: no sizes" in made.title() and "0 found" in made.title()


@pytest.mark.slow
@driven(SAMPLES / "tagger.irs", size=SMALL)
async def test_a_change_is_tried_and_taken_away_again(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "W")
    text = screen_text(app)
    assert "What would lower the peak of" in text and "saves" in text and "half the width" in text
    memory, before = app.session["memory"], app.session["memory"].stack.total.max()
    await press(app, pilot, "enter")
    assert "what if: " in screen_text(app) and "saved" in screen_text(app)
    assert memory.after.heights[1].max() < before
    await press(app, pilot, "escape")
    assert memory.after is None and "What would lower" in screen_text(app) and "fits" in screen_text(app)
    await press(app, pilot, "slash", *"width", "enter")
    assert len(memory.whatifs.table) == 1
    await press(app, pilot, "escape")
    assert "Alive at step" in screen_text(app)
    # Other sizes are another question.
    await press(app, pilot, "W", "enter", "greater_than_sign")
    assert memory.whatifs is None and memory.after is None


@driven(SAMPLES / "mlp.irs", size=SMALL)
async def test_the_largest_size_is_looked_for_and_shown(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "X")
    memory, text = app.session["memory"], screen_text(app)
    assert memory.largest is not None
    assert f"the largest batch that fits: {memory.largest.largest:,}" in text and "Peak by size" in text
    await press(app, pilot, "x")
    assert "Peak by size" not in screen_text(app)


@pytest.mark.parametrize(("key", "title"), [("X", "the largest batch"), ("x", "peak by size")])
def test_ctrl_x_stops_a_search_over_sizes_of_a_model_opened_with_bind(key: str, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes are open in a model that is read again: what stops the session stops the search in it."""
    opened = open_model(SAMPLES / "mlp.irs", LoadOptions(bind={"batch": 4}))
    entered, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def waiting(manager: Manager) -> None:
        if manager is not opened.manager:
            entered.set()
            gate.wait(20)
        if manager.cancelled.is_set():
            ended.set()
        check(manager)

    check = Manager.check_cancelled

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2")
        monkeypatch.setattr(Manager, "check_cancelled", waiting)
        await pilot.press(key)
        assert await asyncio.to_thread(entered.wait, 20), title
        await pilot.press("ctrl+x")
        gate.set()
        await settle(app, pilot)
        assert ended.is_set() and app.session.queue.is_idle
        assert app.session["memory"].largest is None and app.session["memory"].by_size is None
        assert "stopped on request" in screen_text(app)

    drive(opened, steps, size=SMALL)
