"""What screens share: history, questions, going to a name."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.cli.args import add_step_arguments, step_words
from irscope.errors import IrscopeError
from irscope.frontends.base import LoadOptions
from irscope.passkit.settings import Settings
from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.command import Source, run_command
from irscope.tui.session import LATER, NOW, SOON, History, Place, Queue, Request, Session
from irscope.tui.text import UNICODE
from tests.tui.driving import drive, press, screen_text
from tests.tui.models import NESTED, SYMBOLIC, TWO_LAYERS, model


def place(row: int) -> Place:
    return Place("browse", row)


def test_history_goes_back_and_forward() -> None:
    history = History(place(0))
    history.jump(place(1))
    history.move(place(2))
    history.jump(place(3))
    assert history.back() == place(2)
    assert history.back() == place(0)
    assert history.back() is None
    assert history.forward() == place(2)
    history.jump(place(4))
    assert history.forward() is None
    assert history.back() == place(2)


def test_jumping_to_where_one_is_makes_no_new_place() -> None:
    history = History(place(0))
    history.jump(place(0))
    assert history.back() is None


@given(st.lists(st.integers(0, 5), max_size=400))
def test_back_undoes_jumps(rows: list[int]) -> None:
    history = History(place(-1))
    expected = [-1]
    for row in rows:
        history.jump(place(row))
        if expected[-1] != row:
            expected.append(row)
    for row in reversed(expected[-200:-1]):
        assert history.back() == place(row)


def request(key: str, urgency: int = SOON) -> Request:
    return Request(key, lambda: key, lambda _: None, lambda _: None, urgency)


def test_the_most_urgent_question_comes_first() -> None:
    queue = Queue(threading.Event())
    assert queue.put(request("late", LATER))
    assert not queue.put(request("soon"))
    assert not queue.put(request("now", NOW))
    assert not queue.put(request("soon too"))
    assert [queue.next().key for _ in range(4)] == ["now", "soon", "soon too", "late"]  # type: ignore[union-attr]
    assert queue.next() is None
    assert queue.put(request("again"))


def test_a_question_is_not_asked_twice_but_may_become_more_urgent() -> None:
    queue = Queue(threading.Event())
    queue.put(request("a", LATER))
    queue.put(request("b"))
    queue.put(request("a", NOW))
    assert [queue.next().key for _ in range(2)] == ["a", "b"]  # type: ignore[union-attr]
    assert queue.next() is None


def test_stopping_a_question() -> None:
    cancelled = threading.Event()
    queue = Queue(cancelled)
    queue.put(request("a"))
    queue.put(request("b"))
    assert queue.next() is not None
    assert queue.stop("b")
    assert not cancelled.is_set()
    assert queue.stop("a")
    assert cancelled.is_set()
    assert not queue.stop("c")
    assert queue.next() is None
    assert not cancelled.is_set()


def test_a_closed_queue_answers_nothing() -> None:
    cancelled = threading.Event()
    queue = Queue(cancelled)
    queue.put(request("a"))
    queue.close()
    assert queue.next() is None
    assert cancelled.is_set()
    assert not queue.put(request("b"))


def test_clearing_stops_what_is_being_answered() -> None:
    cancelled = threading.Event()
    queue = Queue(cancelled)
    queue.put(request("a"))
    queue.put(request("b"))
    found = queue.next()
    assert found is not None and found.key == "a"
    assert [one.key for one in queue.clear()] == ["b"]
    assert cancelled.is_set()
    assert queue.next() is None


def test_questions_start_a_worker_once() -> None:
    session = Session(model(TWO_LAYERS), UNICODE)
    started: list[int] = []
    session.start_worker = lambda: started.append(1)
    found: list[Any] = []

    def fail(error: IrscopeError) -> None:
        raise error

    session.ask("a", lambda: 1, found.append, fail)
    session.ask("b", lambda: 2, found.append, fail)
    assert started == [1]


@pytest.mark.parametrize(
    ("text", "row"),
    [("hidden", 2), ("%back", 5), ("block/fc2", 4), ("3", 6), ("BLOCK", 0), ("activ", 3), ("nothing", None), ("", None), ("99", None)],
)
def test_going_to_a_name_a_module_or_a_step(text: str, row: int | None) -> None:
    session = Session(model(TWO_LAYERS), UNICODE)
    assert session.find(text) == row


def test_jumping_reveals_the_row() -> None:
    session = Session(model(NESTED), UNICODE)
    session.browse.tree.collapse_all()
    session.jump("browse", 5)
    assert session.browse.tree.is_visible(5)
    assert session.history.back() == place(0)


def test_models_of_screens_are_made_once() -> None:
    session = Session(model(TWO_LAYERS), UNICODE)
    made = session.keep("mine", lambda: object())
    assert session.keep("mine", lambda: object()) is made
    assert session["mine"] is made


def test_the_command_of_a_training_step_has_its_options() -> None:
    parser = argparse.ArgumentParser()
    add_step_arguments(parser)
    assert step_words(parser.parse_args([])) == []
    step = step_words(parser.parse_args(["--optimizer", "adamw", "--accumulate", "2", "--fused"]))
    source = Source("torchvision:resnet50", bind={"batch": 8}, settings=Settings(device="l4", alloc_conf="a:True"), step=step)
    assert run_command(source, "liveness") == (
        "irscope train-plan --optimizer adamw --fused --accumulate 2 torchvision:resnet50 --bind batch=8 --device l4"
        " --alloc-conf a:True --passes liveness"
    )


SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.slow
def test_a_bound_size_is_changed_again_and_an_advice_is_typed_as_it_stands() -> None:
    async def bound(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "D", *"a10", "enter", "4")
        assert "· batch=4 · a10" in screen_text(app)
        await press(app, pilot, "c")
        assert app.focused is not None and getattr(app.focused, "value", "") == "batch=4"
        await press(app, pilot, *"batch=8", "enter")  # typing replaces what stands there
        # Read again with the other size; the screen and the rest of the context stay.
        assert app.model_screen is not None and app.model_screen.NAME == "cost"
        assert app.session.model.options.bind == {"batch": 8}
        assert "· batch=8 · a10" in screen_text(app)
        await press(app, pilot, "c", "backspace", "enter")
        assert app.session.model.options.bind == {} and "batch=1 (assumed)" in screen_text(app)
        await press(app, pilot, "c", *"batch=2", "enter")
        assert app.session.model.options.bind == {} and "· batch=2 · a10" in screen_text(app)
        await press(app, pilot, "c", *"batch=2,other=3", "enter")
        text = screen_text(app)
        assert "Sizes batch=2,other=3" in text and "there is no symbol 'other' (symbols: batch)" in text.split("Sizes batch=2")[1]

    drive(open_model(SAMPLES / "mlp.irs", LoadOptions(bind={"batch": 4})), bound, size=(120, 40))

    async def by_role(app: IrscopeApp, pilot: Pilot[None]) -> None:
        # An exporter has called it s77; the command line takes `batch` for it, and so does the prompt.
        await press(app, pilot, "c", *"batch=64", "enter")
        assert app.browse.results.binding.env == {"s77": 64} and "s77=64" in screen_text(app)

    drive(model(SYMBOLIC.replace("batch", "s77")), by_role, size=(120, 40))

    async def decided(app: IrscopeApp, pilot: Pilot[None]) -> None:
        name = app.session.sizes[-1]
        assert name not in app.session.program.symbols
        await press(app, pilot, "c", *f"--bind {name}=1", "enter")
        assert app.session.model.options.bind == {name: 1}
        assert f"{name}=1" in screen_text(app)

    drive(open_model(SAMPLES / "models" / "control_flow.onnx"), decided)
