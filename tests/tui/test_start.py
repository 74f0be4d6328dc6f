"""Starting without a file, files that cannot be opened, and files that change while they are on the screen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.session import Model, open_model
from irscope.tui.app import IrscopeApp
from irscope.tui.picker import files_in, note_opened, read_recent, samples
from irscope.tui.start import START_ACTIONS, Opened, StartScreen, Tell
from irscope.tui.text import ASCII, UNICODE, Symbols
from irscope.tui.widgets.dialogs import TextDialog
from tests.tui.driving import LARGE, begun, start_headless
from tests.tui.models import TWO_LAYERS
from tests.tui.test_app import drive, screen_text, settle

Steps = Callable[[IrscopeApp, Pilot[Any]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))


def start(steps: Steps, *, size: tuple[int, int] = (80, 24), symbols: Symbols = UNICODE) -> Model | None:
    """Run the app until the steps are done; the model that it shows then."""

    async def run() -> Model | None:
        app = IrscopeApp(StartScreen(lambda path, tell: (open_model(path), "", None)), symbols)
        async with app.run_test(size=size) as pilot:
            await begun(app, pilot)
            await steps(app, pilot)
            assert app.return_value is None
            return None if app.model_screen is None else app.session.model

    return asyncio.run(run())


async def press(app: IrscopeApp, pilot: Pilot[Any], *keys: str) -> None:
    await pilot.press(*keys)
    await begun(app, pilot)
    if app.model_screen is not None:
        await settle(app, pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_recent_files_and_samples_are_offered(tmp_path: Path, size: tuple[int, int]) -> None:
    note_opened(tmp_path / "mine.onnx")

    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        text = screen_text(app)
        for part in ("mine.onnx", "gone", *(path.name for path in samples()), "Recent files and samples", "press o"):
            assert part in text

    assert start(steps, size=size) is None


def test_enter_opens_the_selected_file() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "down", "enter")

    opened = start(steps)
    assert opened is not None
    assert Path(opened.program.path) == samples()[1]


@pytest.mark.slow
def test_a_path_that_is_typed_is_opened_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "two.irs"
    file.write_text(TWO_LAYERS)

    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
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

    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "enter")
        assert app.is_running
        text = screen_text(app)
        assert f"{name} cannot be opened" in text
        for part in parts:
            assert part in text
        await press(app, pilot, "down", "enter")

    opened = start(steps)
    assert opened is not None
    assert Path(opened.program.path) == samples()[0]


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["escape"], ["o", "x", "ctrl+c"], ["question_mark", "ctrl+c"]])
def test_leaving_opens_nothing(keys: list[str]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)

    assert start(steps) is None


def test_help_lists_every_key() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "question_mark")
        assert isinstance(app.screen, TextDialog)
        text = screen_text(app)
        assert all(action.help in text for action in START_ACTIONS)

    start(steps, size=(120, 40))


def test_every_action_of_the_start_has_a_handler() -> None:
    assert all(hasattr(StartScreen, f"action_{action.name}") for action in START_ACTIONS)


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (79, 15)])
def test_it_works_at_any_size_in_plain_ascii(size: tuple[int, int]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        await pilot.press("down", "up", "end")
        assert all(character.isprintable() or character == "\n" for character in screen_text(app))

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


def test_a_model_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_headless(monkeypatch)
    assert main(["tui", "no-such-model.onnx"]) == 3
    assert "there is no such file" in capsys.readouterr().err
    broken = tmp_path / "broken.irs"
    broken.write_text("irscope 1\ngraph @main {\n  %a = \n")
    # The screen has said why; the exit code and stderr do too.
    assert main(["tui", str(broken)]) == 3
    assert "IRS121" in capsys.readouterr().err
    assert read_recent() == []


def test_what_is_read_is_on_the_screen_at_once_and_can_be_cancelled(tmp_path: Path) -> None:
    """Reading takes as long as it likes: the name, a bar and the key that cancels are there before it, and keys work."""
    going_on, told = threading.Event(), threading.Event()

    def read(path: Path, tell: Tell) -> Opened:
        tell("annotate: types", 30, 60)
        told.set()
        going_on.wait(30)
        return open_model(path), "", None

    async def run(key: str, symbols: Symbols, path: Path | None) -> bool:
        """Whether it ends as one that was stopped."""
        start = StartScreen(read, path=path)
        app = IrscopeApp(start, symbols)
        async with app.run_test(size=(80, 24)) as pilot:
            if path is None:
                await begun(app, pilot)
                await pilot.press("enter")
            await asyncio.to_thread(told.wait, 30)
            start.show_progress()
            await pilot.pause()
            text = screen_text(app)
            for part in ("Reading", samples()[0].name, "annotate: types 50%", "esc cancels", ("#" if symbols is ASCII else "█") * 20):
                assert part in text
            await pilot.press(key)
            if path is None:
                assert app.is_running and not start.is_busy and "Welcome" in screen_text(app)
        told.clear()
        return isinstance(app.return_value, KeyboardInterrupt)

    try:
        assert asyncio.run(run("escape", UNICODE, samples()[0]))
        assert asyncio.run(run("ctrl+c", ASCII, samples()[0]))
        assert not asyncio.run(run("escape", UNICODE, None))
    finally:
        going_on.set()


def test_a_folder_offers_the_models_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.irs", "a.irs", "deep/c.irs", "notes.txt", "noise.onnx", ".git/d.irs"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TWO_LAYERS if name.endswith(".irs") else "nothing")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text("{}")
    assert [(one.path.name, one.kind) for one in files_in(tmp_path)] == [
        ("a.irs", "irs"),
        ("b.irs", "irs"),
        ("c.irs", "irs"),
        ("hub", "hub folder"),
    ]

    async def pick(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        text = screen_text(app)
        assert "Models in" in text and all(name in text for name in ("a.irs", "b.irs", "c.irs", "hub folder"))
        await pilot.press("down", "enter")
        await begun(app, pilot)

    chosen = start_headless(monkeypatch, pick, LARGE)
    assert main(["tui", str(tmp_path)]) == 0
    assert [Path(one.program.path).name for one, _ in chosen] == ["b.irs"]


def test_the_results_of_an_audit_are_a_list_to_open_models_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    for name, text in (("a.irs", TWO_LAYERS), ("b.irs", TWO_LAYERS + "\n"), ("cut.irs", "irscope 1\ngraph")):
        (tmp_path / name).write_text(text)
    assert main(["audit", str(tmp_path), "-o", str(tmp_path / "results"), "--jobs", "1", "-q"]) == 5

    async def pick(app: IrscopeApp, pilot: Pilot[Any]) -> None:
        text = screen_text(app)
        assert all(word in text for word in ("a.irs", "b.irs", "cut.irs", "fits", "failed", "verdict"))
        await pilot.press("down", "enter")
        await begun(app, pilot)

    chosen = start_headless(monkeypatch, pick, LARGE)
    assert main(["tui", str(tmp_path / "results")]) == 0
    assert [Path(one.program.path).name for one, _ in chosen] == ["b.irs"]


def test_the_first_screen_waits_for_nothing_that_reads_models() -> None:
    """What is imported before the first paint is Textual and little more."""
    code = "import sys, irscope.cli.tui, irscope.tui.app; print(*(one for one in sys.modules if one.startswith(('numpy', 'irscope'))))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for heavy in ("numpy", "irscope.session", "irscope.frontends.load", "irscope.tui.screen", "irscope.ops.registry", "irscope.passes"):
        assert heavy not in loaded


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


@pytest.mark.slow
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


@pytest.mark.slow
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
