"""Progress: a line in place on a terminal, plain lines every few seconds in a pipe, nothing for quick work or with --quiet."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from irscope.cli.args import progress_from
from irscope.cli.main import main
from irscope.passkit import instruments
from irscope.passkit.instruments import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(instruments, "perf_counter", made)
    return made


def shown(clock: Clock, in_place: bool, moments: list[float]) -> str:
    stream = io.StringIO()
    progress = Progress(stream, in_place)
    progress._last = clock.now
    for done, moment in enumerate(moments):
        clock.now = 100 + moment
        progress.progress(None, done, len(moments), "sizes")
    progress.ended()
    return stream.getvalue()


@pytest.mark.parametrize("in_place", [True, False])
def test_quick_work_shows_nothing(clock: Clock, in_place: bool) -> None:
    assert shown(clock, in_place, [0.0, 0.1, 0.4]) == ""


def test_a_pipe_gets_plain_lines_every_few_seconds(clock: Clock) -> None:
    text = shown(clock, False, [float(second) for second in range(12)])
    assert text == "irscope: sizes 5 of 12\nirscope: sizes 10 of 12\n"


def test_a_terminal_gets_one_line_that_is_cleared(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = shown(clock, True, [0.0, 1.0, 1.05, 2.0])
    assert "\n" not in text and text.endswith("\r\x1b[K")
    lines = text.split("\r\x1b[K")[1:-1]
    assert lines == ["sizes [#####---------------]…", "sizes [###############-----]…"]
    assert all(len(line) < 30 for line in lines)


def test_a_name_from_a_file_cannot_move_the_cursor(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(stream, False)
    progress._last, clock.now = 100.0, 160.0
    progress.part(1, 3, "a\x1b[2J\u202e\n.onnx")
    assert stream.getvalue() == "irscope: a\\x1b[2J\\u202e\\n.onnx (2 of 3)\n"


def test_quiet_means_quiet() -> None:
    assert progress_from(argparse.Namespace(quiet=True)) == []
    assert len(progress_from(argparse.Namespace(quiet=False))) == 1


MANY = ["samples/mlp.irs", "samples/pyramid.irs"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", *MANY], "irscope: samples/pyramid.irs (2 of 2)\n"),
        (["run", *MANY], "irscope: samples/mlp.irs (1 of 2): ranges: live ranges"),
        (["check", "samples/too-much.toml"], "irscope: pyramid.irs@h200 (2 of 2)\n"),
        (["fit", "--memory", "1GiB", MANY[0]], "sizes tested: "),
        (["sweep", "--over", "batch=1,2", MANY[0]], "timing 0 of 2\n"),
        (["run", "--passes", "schedule", "--bind", "batch=1", MANY[1]], "schedule: "),
        pytest.param(["train-plan", "samples/training.py:build"], "irscope: capturing the step\n", marks=pytest.mark.torch),
        (["compare", *MANY], "irscope: shapes: inferring types"),
    ],
)
def test_commands_say_how_far_they_are_unless_told_to_be_quiet(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.setattr(instruments, "_EVERY", 0.0)
    main([*arguments])
    shown = capsys.readouterr()
    assert said in shown.err and said not in shown.out
    main([*arguments, "--quiet"])
    assert said not in capsys.readouterr().err
