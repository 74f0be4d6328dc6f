"""What people come for, by the keys that docs/tui.md says, in at most four, at three sizes of the terminal: the text that is seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.generation import run_of_generation
from irscope.tui.recording import run_of_recording
from tests.tui.driving import HUGE, LARGE, SMALL, drive, press, screen_text
from tests.tui.models import TWO_LAYERS
from tests.tui.test_docs import ROOT
from tests.tui.test_generation import generation
from tests.tui.test_params import odd_model
from tests.tui.test_recording import SIMULATED
from tests.unit.weights.test_differences import changed

SAMPLES = ROOT / "samples"
PAGE = (ROOT / "docs" / "tui.md").read_text("utf-8")
KEYS = {
    question: re.findall("`([^`]+)`", keys)
    for question, keys in re.findall(r"^\| ([^|]+\?) \| (.+) \|$", PAGE.partition("## Questions and keyboard shortcuts")[2], re.MULTILINE)
}
"""The keys that the page says for each question."""
Task = tuple[str, str, Sequence[str]]
"""A question of the page, the keys that answer it, and what is then seen. What stands between < and > is typed."""


def last_week(folder: Path) -> Path:
    (folder / "now.irs").write_text(TWO_LAYERS)
    (folder / "last-week.irs").write_text(TWO_LAYERS.replace("nn.relu", "nn.gelu"))
    return folder / "now.irs"


TASKS: dict[str, tuple[Callable[[Path], Any], Sequence[Task]]] = {
    "tagger": (
        lambda folder: open_model(SAMPLES / "tagger.irs"),
        [
            (
                "What is the peak, and what causes it?",
                "2 p",
                ["device peak ~40.32 MiB at step", "Alive at step", "32.00 MiB", "cuBLAS workspace", "kept from the first forward"],
            ),
            ("Why is this tensor alive?", "2 tab down enter", ["nn.relu", "alive from step 1 to step 18", "`wide`"]),
            ("Where does this branch go?", "8 down", ["pool]", "[math.add add]"]),
            ("What saves most?", "2 W", ["half the width", "saves"]),
            ("Does it fit on an L4?", "D <l4> enter", ["fits", "l4 22.03 GiB"]),
            ("Does batch 64 fit on an L4?", "c <batch=64 l4> enter", ["fits", "batch=64 · l4 22.03 GiB"]),
            ("What does a pass of mine say?", f"7 a <{SAMPLES}/custom_pass.py:NarrowConvs> enter", ["narrow convolutions", "conv2d"]),
        ],
    ),
    "mlp": (
        lambda folder: open_model(SAMPLES / "mlp.irs"),
        [("What is the largest batch that fits?", "2 X", ["the largest batch that fits: "])],
    ),
    "weights": (
        odd_model,
        [
            ("Is there a NaN?", "3 V", ["fits ?", " of 139.21 GiB", "1 NaN, 1 Inf, 1 all zero", "bad "]),
            ("Which weights changed?", "3 o <FOLDER/after.safetensors> enter", ["0 weights in both: ", "only in A"]),
        ],
    ),
    "cnn": (
        lambda folder: open_model(SAMPLES / "models" / "cnn.onnx"),
        [
            ("Which layer costs most time?", "4", ["Cost by layer", "roofline time", "bound by", "%"]),
            (
                "What differs from the recording?",
                f"6 o <{SAMPLES}/recordings/cnn_onnx.ort-cpu.jsonl> enter",
                ["nodes off by more than 1%, most "],
            ),
        ],
    ),
    "last week": (
        lambda folder: open_model(last_week(folder)),
        [("What changed against last week's model?", "6 o <FOLDER/last-week.irs> enter", ["nodes that differ", "gelu", "relu"])],
    ),
    "generation": (
        lambda folder: [run_of_generation(generation())],
        [("Where do the bytes of the KV cache go?", "7 down", ["the cache by layer, after the last token", "2.00 MiB", "grows"])],
    ),
    "recording": (
        lambda folder: [run_of_recording(SIMULATED)],
        [("Which step of a recording is worst?", "7 down", ["peak of each step", "2 to 3", "40.00 MiB"])],
    ),
}


def test_the_page_says_the_keys_that_are_pressed_here() -> None:
    tasks = [task for _, some in TASKS.values() for task in some]
    # What the compiler changed is asked in test_compiled.py, of a model that was compiled once.
    assert {question for question, _, _ in tasks} == set(KEYS) - {"What did the compiler change?"} and len(tasks) == 15
    for question, keys, _ in tasks:
        said = [key for key in keys_of(keys) if "/" not in key]
        assert said == [key for key in KEYS[question] if "/" not in key][: len(said)], question


def keys_of(text: str) -> list[str]:
    """Return the keys of a task, what is typed as one."""
    return [typed or key for typed, key in re.findall(r"<([^>]+)>|(\S+)", text)]


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
@pytest.mark.parametrize("name", TASKS)
def test_each_question_has_its_answer_on_the_screen_after_four_keys(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    make, tasks = TASKS[name]
    changed(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        for question, keys, seen in tasks:
            assert len(keys_of(keys)) <= 4, question
            for key in keys_of(keys.replace("FOLDER", str(tmp_path))):
                await press(app, pilot, *([key] if f"<{key}>" not in keys.replace("FOLDER", str(tmp_path)) else key))
            text = screen_text(app)
            assert [part for part in seen if part not in text] == [], (question, text)
            await press(app, pilot, "escape", "escape")

    drive(make(tmp_path), steps, size=size)


@pytest.mark.slow
def test_the_keys_make_a_moving_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "tour.svg"
    assert main(["tui", "--record", str(target), "--keys", "2 c batch=8 enter", str(SAMPLES / "mlp.irs")]) == 0
    picture = ElementTree.parse(target).getroot()
    animated = [one for one in picture.iter() if one.tag.endswith("animate")]
    # Five screens of two seconds, the last one of four: what is typed stands below while it is seen.
    assert {one.get("dur") for one in animated} == {"12s"} and picture.find(".//{*}script") is None
    texts = "\n".join("".join(group.itertext()) for group in picture)
    assert [part for part in ("Modules", "Alive at step", "Set sizes, such as batch=8") if part not in texts] == []
    assert "batch=8·" in texts.replace(" ", "")
    assert main(["tui", "--keys", "2", str(SAMPLES / "mlp.irs")]) == 2 and "--record" in capsys.readouterr().err
