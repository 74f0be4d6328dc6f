"""Starting without a file, files that cannot be opened, and files that change while they are on the screen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.session import Model, open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.start import START_ACTIONS, StartApp, note_opened, read_recent, samples
from irscope.tui.text import ASCII, UNICODE, Symbols
from irscope.tui.widgets.dialogs import TextDialog
from tests.tui.models import TWO_LAYERS
from tests.tui.test_app import drive, screen_text, settle

Steps = Callable[[StartApp, Pilot[Model]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))


def start(steps: Steps, *, size: tuple[int, int] = (80, 24), symbols: Symbols = UNICODE) -> Model | None:
    """Run the app until the steps are done; what it returns."""

    async def run() -> Model | None:
        app = StartApp(open_model, symbols)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(app, pilot)
        return app.return_value

    return asyncio.run(run())


async def press(app: StartApp, pilot: Pilot[Model], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


def shown(app: StartApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_recent_files_and_samples_are_offered(tmp_path: Path, size: tuple[int, int]) -> None:
    note_opened(tmp_path / "mine.onnx")

    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        text = shown(app)
        for part in ("mine.onnx", "gone", *(path.name for path in samples()), "Recent files and samples", "press o"):
            assert part in text

    assert start(steps, size=size) is None


def test_enter_opens_the_selected_file() -> None:
    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await press(app, pilot, "down", "enter")

    opened = start(steps)
    assert opened is not None
    assert Path(opened.program.path) == samples()[1]


def test_a_path_that_is_typed_is_opened_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "two.irs"
    file.write_text(TWO_LAYERS)

    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await press(app, pilot, "o", "escape", "o", *str(file).replace("/", "\0").replace("\0", "/"), "enter")

    opened = start(steps)
    assert opened is not None
    assert opened.program.node_count == 4
    assert read_recent() == [file]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("gone.onnx", None, ("there is no such file", "IRS100", "The model cannot be read")),
        ("broken.irs", b"irscope 1\ngraph @main {\n  %a = \n", ("IRS121",)),
        ("noise.onnx", b"\x00\xff" * 50, ("error IRS",)),
    ],
)
def test_a_file_that_cannot_be_opened_is_explained_and_another_can_be_chosen(
    tmp_path: Path, name: str, content: bytes | None, parts: tuple[str, ...]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    note_opened(tmp_path / name)

    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await press(app, pilot, "enter")
        assert app.is_running
        text = shown(app)
        assert f"{name} cannot be opened" in text
        for part in parts:
            assert part in text
        await press(app, pilot, "down", "enter")

    opened = start(steps)
    assert opened is not None
    assert Path(opened.program.path) == samples()[0]


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["escape"], ["o", "x", "ctrl+c"], ["question_mark", "ctrl+c"]])
def test_leaving_opens_nothing(keys: list[str]) -> None:
    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await pilot.press(*keys)

    assert start(steps) is None


def test_help_lists_every_key() -> None:
    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await press(app, pilot, "question_mark")
        assert isinstance(app.screen, TextDialog)
        text = shown(app)
        assert all(action.help in text for action in START_ACTIONS)

    start(steps, size=(120, 40))


def test_every_action_of_the_start_has_a_handler() -> None:
    assert all(hasattr(StartApp, f"action_{action.name}") for action in START_ACTIONS)


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (79, 15)])
def test_it_works_at_any_size_in_plain_ascii(size: tuple[int, int]) -> None:
    async def steps(app: StartApp, pilot: Pilot[Model]) -> None:
        await pilot.press("down", "up", "end")
        assert all(character.isprintable() or character == "\n" for character in shown(app))

    start(steps, size=size, symbols=ASCII)


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["some model.onnx"]])
def test_without_a_terminal_it_says_how_to_get_text(arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "irscope", "tui", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert "the UI needs a terminal" in run.stderr
    assert "irscope run" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_model_that_cannot_be_read_is_an_error_before_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["tui", "no-such-model.onnx"]) == 3
    assert "there is no such file" in capsys.readouterr().err
    assert read_recent() == []


# -- a file that changes -------------------------------------------------------------------------------------------


def opened_file(folder: Path, text: str = TWO_LAYERS) -> Path:
    file = folder / "model.irs"
    file.write_text(text)
    return file


def test_a_file_that_changed_can_be_read_again(tmp_path: Path) -> None:
    file = opened_file(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        app.watch_file()
        assert "has changed" not in screen_text(app)
        file.write_text(TWO_LAYERS.replace("nn.relu", "nn.gelu"))
        os.utime(file, ns=(5, 5))
        app.watch_file()
        await pilot.pause()
        assert any("The file has changed" in one.message for one in app._notifications)
        await press(app, pilot, "ctrl+r")
        await settle(app, pilot)
        assert "nn.gelu" in screen_text(app)
        assert "nn.relu" not in screen_text(app)
        await pilot.press("down", "p")

    drive(open_model(file), steps, size=(120, 40))


def test_reading_again_works_from_every_screen_and_keeps_sizes(tmp_path: Path) -> None:
    file = samples()[0]

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        for key in ("5", "7", "1"):
            await press(app, pilot, key)
            before = app.session
            await press(app, pilot, "ctrl+r")
            await settle(app, pilot)
            assert app.session is not before
            assert app.session.program.path == str(file)

    drive(open_model(file), steps)


def test_a_file_that_broke_leaves_the_screen_and_says_why(tmp_path: Path) -> None:
    file = opened_file(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        file.write_text("irscope 1\ngraph @main {\n  nonsense\n")
        await press(app, pilot, "ctrl+r")
        assert isinstance(app.screen, TextDialog)
        assert "IRS121" in screen_text(app)
        await pilot.press("escape")
        assert "nn.relu" in screen_text(app)

    drive(open_model(file), steps, size=(120, 40))
