"""Keys that arrive together, files that change while they are shown, and faults: the app stays, or ends with the terminal restored."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from irscope.devices.catalogue import all_devices
from irscope.recording import read_recording
from irscope.session import open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.context import LIFETIMES
from irscope.tui.recording import run_of_recording
from irscope.tui.screen import ModelScreen
from irscope.tui.text import UNICODE
from irscope.tui.widgets.dialogs import ChoiceDialog, TextDialog
from tests.tui.driving import drive, driven, press, screen_text, settle
from tests.tui.models import TWO_LAYERS, model
from tests.tui.test_params import odd_model

SAMPLES = Path(__file__).parents[2] / "samples"
_STORM = (
    *"12345678?:DmFcgyeSwbBzptuvVXWEorRsjk[]{}<>+-=0/ln",
    *("enter", "escape", "backspace", "up", "down", "left", "right", "tab", "shift+tab", "pageup", "pagedown", "home", "end"),
    *("ctrl+x", "ctrl+r"),
)
"""Every key but those that leave or suspend the app."""
_KEYS, _SEEDS = 5_000, 4
"""Keys for each kind of model, and how many sessions they are in."""


def send(app: IrscopeApp, *keys: str) -> None:
    """Send keys as one read of a terminal brings them: all are queued before any is handled."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_a_second_key_in_the_same_read_does_not_reach_what_is_below_a_dialog(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for opening in ("D", "m", "F", "y", "e", "question_mark"):
        await press(app, pilot, opening)
        dialog = app.screen
        assert isinstance(dialog, TextDialog), opening
        send(app, "1", "1", "1", "escape", "escape", "escape")
        await settle(app, pilot)
        while isinstance(app.screen, TextDialog):
            await press(app, pilot, "escape")
        dialog.dismiss(None)  # as by a key that was on its way while a reload closed the window
        assert isinstance(app.screen, ModelScreen), opening
    assert "Modules" in screen_text(app)
    send(app, "2", "q", "D", "1", "q")  # leaving is no fault, though what comes after finds no screen
    await asyncio.sleep(0.2)


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_a_list_is_filtered_by_what_is_typed(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for name in ("l4", "h200", "rtx-4090"):
        await press(app, pilot, "D", *name)
        assert isinstance(app.screen, ChoiceDialog)
        await press(app, pilot, "enter")
        assert app.session.context.device == name
    # Every device can be chosen by its own name, also where it begins the names of others.
    for device in all_devices():
        dialog = ChoiceDialog("Device", [profile.name for profile in all_devices()])
        dialog.typed = device.name
        assert all_devices()[dialog.matching()[0]].name == device.name
    # Nothing that matches is nothing to take; backspace and the arrows go on from there.
    await press(app, pilot, "m", *"xyz", "enter")
    assert "nothing here matches" in screen_text(app)
    await press(app, pilot, "backspace", "backspace", "backspace", "down", "down", "enter")
    assert app.session.context.lifetime == list(LIFETIMES)[2]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["irs", "onnx", "pt2"])
def test_ctrl_r_shows_the_file_as_it_is_now(suffix: str, tmp_path: Path) -> None:
    before, after = {
        "irs": (SAMPLES / "mlp.irs", SAMPLES / "tagger.irs"),
        "onnx": (SAMPLES / "models" / "cnn.onnx", SAMPLES / "models" / "transformer.onnx"),
        "pt2": (SAMPLES / "models" / "net.pt2", None),
    }[suffix]
    if not before.exists():
        pytest.skip("sample models are built by `make demo`")
    path = tmp_path / f"x.{suffix}"
    shutil.copy(before, path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        nodes = app.session.program.node_count
        if after is not None:
            shutil.copy(after, path)
            await press(app, pilot, "ctrl+r")
            assert app.session.program.node_count == open_model(after).program.node_count != nodes
        for damage in ("truncated", "deleted"):
            if damage == "truncated":
                path.write_bytes(before.read_bytes()[: before.stat().st_size // 2])
            else:
                path.unlink()
            await press(app, pilot, "ctrl+r")
            assert isinstance(app.screen, TextDialog) and "cannot be read again" in screen_text(app), damage
            await press(app, pilot, "escape")

    drive(open_model(path), steps)


def test_a_fault_ends_the_app_and_is_raised_without_a_page_of_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    class Faulty(IrscopeApp):
        def on_mount(self) -> None:
            raise ZeroDivisionError("a fault of a screen")

        def run(self, *args: object, **options: object) -> None:
            super().run(headless=True)

    with pytest.raises(ZeroDivisionError, match="a fault of a screen"):
        Faulty(model(TWO_LAYERS), UNICODE).finish()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err


@pytest.mark.full
@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize(
    "name", ["tagger.irs", "models/cnn.onnx", "models/net.pt2", "models/net.pt", "odd.safetensors", "recordings/cnn_onnx.ort-cpu.jsonl"]
)
def test_random_keys_several_in_one_read_with_resizes_and_file_changes(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(odd_model(tmp_path).program.path) if name == "odd.safetensors" else SAMPLES / name
    if not source.exists():
        pytest.skip("sample models are built by `make demo`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(IrscopeApp, "exit", lambda app, result=None: None)  # the palette can leave, too
    content = source.read_bytes()
    path = tmp_path / f"now-{source.name}"
    path.write_bytes(content)
    draw = random.Random(f"{name} {seed}")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        sent = burst = 0
        while sent < _KEYS // _SEEDS:
            keys = draw.choices(_STORM, k=draw.randint(1, 8))
            send(app, *keys)
            sent, burst = sent + len(keys), burst + 1
            if draw.random() < 0.1:
                await pilot.resize_terminal(draw.randint(20, 220), draw.randint(5, 70))
            if draw.random() < 0.05:
                path.write_bytes(content[: len(content) // draw.choice([1, 1, 2])])
            if burst % 5 == 0:
                await asyncio.wait_for(settle(app, pilot), 120)
            assert app.is_running and app._exception is None, keys
        while not isinstance(app.screen, ModelScreen):
            await press(app, pilot, "escape")

    drive([run_of_recording(read_recording(path))] if path.suffix == ".jsonl" else open_model(path), steps)
