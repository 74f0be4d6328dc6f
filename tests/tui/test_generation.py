"""What a language model takes to generate, on the screen: phases, tokens, and the cache by layer."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.devices import target_of
from irscope.frontends.generation.program import CacheLayer, Wish
from irscope.memory.tape import Bytes, Origin, Span, Tape
from irscope.passkit.settings import Settings
from irscope.tools.generate import Generation, Phase
from irscope.tools.simulation import Options, Simulation
from irscope.tui.app import IrscopeApp
from irscope.tui.generation import run_of_generation
from irscope.tui.memory.run import RunMemory, ShownRun
from irscope.tui.memory.views import StepStack
from irscope.tui.text import UNICODE, text_of
from tests.tui.driving import SMALL, drive, press, screen_text

MIB = 1 << 20
NEW = 6


def generation(weights: int = 64, prompt: int = 8, token: int = 1, device: str = "l4") -> Generation:
    """Weights, a prompt with something that comes and goes, and tokens whose cache grows, in MiB."""
    tape: Tape[Origin] = Tape()

    def take(size: int, kind: str, line: str) -> int:
        slot = tape.slot(size * MIB, kind, "")
        tape.owners[slot] = Origin("model.layers.0", line)
        tape.events.append(slot)
        return slot

    starts, names = [0], ["load", "inputs", "prefill"]
    take(weights, "parameter", "load.py:1")
    starts.append(len(tape.events))
    take(1, "input", "run.py:2")
    starts.append(len(tape.events))
    take(prompt, "cache", "cache.py:3")
    tape.events.append(~take(prompt, "activation", "mlp.py:4"))
    cache = 0
    for number in range(2, NEW + 1):
        starts.append(len(tape.events))
        names.append(f"token {number}")
        before, cache = cache, take(prompt + number * token, "cache", "cache.py:3")
        passing = take(2, "activation", "mlp.py:4")
        tape.events += [~passing, *([~before] if before else [])]
    tape.starts = [*starts, len(tape.events)]
    tape.spans = [Span(name, number, number + 1) for number, name in enumerate(names)]
    target = target_of(Settings(device=device))
    counted = Bytes(80 * MIB, 80 * MIB, 80 * MIB, 100 * MIB)
    return Generation(
        Wish("./my-model", 4096, NEW),
        Simulation("./my-model", target, Options(device), tape=tape),
        phases={
            name: Phase(counted, counted, {"parameter": 80 * MIB}, (), NEW if name == "decode" else 0)
            for name in ("load", "prefill", "decode")
        },
        cache=[CacheLayer(0, "dynamic", 2 * MIB, 2 * MIB, 0, None, None), CacheLayer(1, "static", MIB, MIB, 0, 512, 1024)],
        tape=tape,
    )


def shown(made: Generation) -> tuple[RunMemory, StepStack]:
    """The generation on the Memory screen, and its chart."""
    run = RunMemory(run_of_generation(made), UNICODE)
    assert isinstance(run.stack, StepStack)
    return run, run.stack


@given(st.integers(1, 4000), st.integers(0, 500), st.integers(0, 50))
def test_every_moment_adds_up_to_what_is_alive(weights: int, prompt: int, token: int) -> None:
    made = generation(weights, prompt, token)
    run, stack = shown(made)
    assert stack.peak is not None
    sizes = [0]
    for event in made.tape.events:
        sizes.append(sizes[-1] + (made.tape.number_of(event) if event >= 0 else -made.tape.number_of(~event)))
    # The chart looks where most is in use: no moment is higher than what it shows.
    assert stack.total.max() == max(sizes)
    for step in range(len(stack)):
        alive = sum(run.alive(step, step).cells("bytes"))  # type: ignore[arg-type]  # numbers
        assert alive == stack.total[step] == sum(stack.values_at(step).values())
        assert alive in sizes


def test_a_token_is_one_moment_and_each_phase_has_its_place() -> None:
    run, stack = shown(generation())
    assert list(dict.fromkeys(stack.phases)) == ["loading", "prompt", "decoding"]
    assert list(stack.phases).count("decoding") == NEW - 1
    assert stack.place(len(stack) - 1) == f"token {NEW} of {NEW}"
    lines = [text_of(line) for line in run.chart_lines(100, 20)]
    assert all(f"│ {phase}" in lines[-1] for phase in ("loading", "prompt", "decoding"))
    # Decoding has its part of the chart though most requests are for the prompt.
    assert stack.column_of(list(stack.phases).index("decoding"), 100) == 51
    assert np.diff(stack.chosen(100)).min() >= 0


def test_the_screen_has_the_verdict_the_peak_and_the_cache_by_layer() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        text = screen_text(app)
        assert "[2 Memory]" in text and "fits on NVIDIA L4" in text
        assert "prompt of 4,096, 6 new, batch 1" in text and "Alive at the peak, " in text
        await press(app, pilot, "7", "down")
        text = screen_text(app)
        assert "the cache by layer" in text and "grows" in text and "1,024 tokens" in text and "512 tokens" in text
        await press(app, pilot, "2", "end")
        assert f"token {NEW} of {NEW}" in screen_text(app)
        await press(app, pilot, "D", *"h200", "enter")
        verdict = app.session.runs[0].verdict
        assert verdict is not None and verdict.text.startswith("fits as it ran: 100.00 MiB reserved in this run, of ")
        assert "laid over h200" in screen_text(app)
        said: list[str] = []
        app.screen.notify = lambda text, **_: said.append(text)  # type: ignore[method-assign,assignment]
        await press(app, pilot, "c")
        assert said and "irscope generate --batch" in said[0]

    drive([run_of_generation(generation())], steps, size=SMALL)


def test_a_device_that_is_nearly_full_has_its_line() -> None:
    run, _ = shown(generation(weights=15_000))
    assert any("capacity of l4" in text_of(line) for line in run.chart_lines(100, 20))


def test_the_command_needs_a_terminal_and_starts_the_screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[ShownRun] = []
    monkeypatch.setattr("irscope.tui.app.run_app", opened.extend)
    found = generation()
    monkeypatch.setattr("irscope.cli.generate.generate", lambda *_, **__: found)
    command = ["generate", "./my-model", "--prompt", "4096", "--new", "6", "--tui"]
    assert main(command) == 2
    assert "without --tui" in capsys.readouterr().err
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(command) == 0
    assert [run.about[1] for run in opened] == ["prompt of 4,096, 6 new, batch 1"]
