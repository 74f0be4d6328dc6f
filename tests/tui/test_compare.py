"""The compare screen: its view model over two models and over a recording, and the keys that lead through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.errors import Cancelled, LoadError
from irscope.recording import MemoryEvent
from irscope.report.values import bare
from irscope.session import open_model
from irscope.tools.compare import ModelComparison, compare_models, compare_recording, compare_with
from irscope.tools.compare.weights import read_values
from irscope.tui.app import IrscopeApp
from irscope.tui.compare import Compare, shown
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from irscope.tui.widgets.paint import Prompt
from tests.tables import every
from tests.tui.driving import HUGE, LARGE, SMALL, drive, press, screen_text, settle
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, browse, model
from tests.unit.tools.test_compare_runs import HIDDEN, events, recording
from tests.unit.tools.texts import MLP
from tests.unit.tools.texts import model as small_model
from tests.unit.weights.test_differences import changed

GELU = TWO_LAYERS.replace("nn.relu", "nn.gelu")


def comparing(a: str = TWO_LAYERS, b: str = GELU, *, everything: bool = False, symbols: Symbols = UNICODE) -> Compare:
    """The view model with an answer."""
    compare = Compare(browse(a, analysed=False, symbols=symbols))
    compare.choose("other.irs")
    compare.everything = everything
    compare.take(compare.asks_for, shown(compare_models(model(a), model(b)), symbols, everything=everything))
    return compare


def measured(symbols: Symbols = UNICODE) -> Compare:
    """The view model with a recording."""
    compare = Compare(browse(MLP, analysed=False, symbols=symbols))
    compare.choose("run.jsonl")
    compare.take(compare.asks_for, shown(compare_recording(small_model(MLP, program_format="pt2"), recording()), symbols))
    compare.toggle_everything()  # the prediction is right about all of it, so that else nothing would be listed
    return compare


def drawn(compare: Compare, width: int = 90, height: int = 16) -> str:
    return "\n".join(text_of(line) for line in compare.chart_lines(width, height))


# -- view model ------------------------------------------------------------------------------------------------


def test_without_another_file_it_says_how_to_choose_one() -> None:
    compare = Compare(browse(TWO_LAYERS, analysed=False))
    assert not compare.is_waiting
    assert "o  chooses another model" in drawn(compare)
    assert "Press o" in compare.table.empty
    assert compare.export() is None


def test_an_empty_path_is_refused() -> None:
    compare = Compare(browse(TWO_LAYERS, analysed=False))
    assert compare.choose("  ") != ""
    assert compare.other == ""


def test_an_answer_to_another_question_is_dropped() -> None:
    compare = comparing()
    found = compare.found
    assert found is not None
    compare.choose("third.irs")
    compare.take(("other.irs", False, False), found)
    assert compare.found is None and compare.is_waiting


def test_two_models_have_nodes_that_differ() -> None:
    compare = comparing()
    assert compare.table_title().startswith("nodes that differ: 1")
    assert compare.table.count == 1
    assert "replaced" in compare.table.text(0)
    assert "both" in drawn(compare) and "only A" in drawn(compare)


def test_all_nodes_on_request() -> None:
    compare = comparing(everything=True)
    assert compare.table.count == 4
    compare.toggle_everything()
    assert compare.is_waiting


def test_equal_models_say_so() -> None:
    compare = comparing(TWO_LAYERS, TWO_LAYERS)
    assert "peak the same" in drawn(compare)
    assert compare.rows is None
    assert "Nothing differs" in compare.table.empty


def test_a_recording_has_predicted_and_measured() -> None:
    compare = measured()
    text = drawn(compare)
    assert "delta (warm): predicted 512 B, measured 512 B, error 0.00%" in text
    assert "only predicted" in text and "only measured" in text
    assert [column.title for column in compare.table.columns][:3] == ["node", "alive predicted", "measured"]
    assert "=512 B" in compare.table.text(1)


def test_the_cursor_and_the_table_go_together() -> None:
    compare = measured()
    compare.go_to(2)
    assert compare.table.selected == 2
    assert compare.cursor_text().startswith("back: predicted 384 B, measured 384 B")
    compare.table.move_to(0)
    compare.follow_row()
    assert compare.place == 0
    assert compare.go_to_peak(1) and compare.place == 1
    compare.go_to(99)
    assert compare.place == 3


def test_tables_follow_one_another() -> None:
    compare = measured()
    assert compare.table_title().startswith("nodes")
    compare.next_view()
    assert compare.table_title().startswith("modules")
    compare.next_view()
    assert compare.is_of_nodes()


def test_rows_are_sorted_and_filtered() -> None:
    compare = measured()
    compare.set_filter("linear !fc1")
    assert len(compare.table) == 1
    assert compare.table_title().startswith("nodes: 1 of 4")
    compare.set_filter("")
    column = next(number for number, column in enumerate(compare.table.columns) if column.title == "measured")
    compare.table.sort(column, reverse=True)
    assert compare.table.selected == 0 or compare.table.shown[0] == 1


def test_only_what_is_off_is_listed_worst_first() -> None:
    compare = measured()
    compare.toggle_everything()
    assert len(compare.table) == 0 and "f lists" in compare.table.empty
    assert compare.table_title().startswith("nodes off by more than 1%: 0 · 4 right, f shows them")
    late = (MemoryEvent("warm", 2 * HIDDEN, 1, block=9), *events()[1:])
    compare.found = shown(compare_recording(small_model(MLP, program_format="pt2"), recording(events=late)), UNICODE)
    compare.set_filter("")
    assert 0 < len(compare.table) <= 4
    rows = compare.rows
    assert rows is not None
    pairs = [(rows.cells("predicted_alive")[row], rows.cells("measured_alive")[row]) for row in compare.table.shown]
    far = [abs(one - bare(other)) / max(bare(other), 1) for one, other in pairs]  # type: ignore[operator]  # numbers, both of them
    assert far == sorted(far, reverse=True) and far[-1] > 0.01
    right = 4 - len(compare.table)
    assert f" · {right} right, f shows them" in compare.table_title()
    compare.toggle_everything()
    assert compare.table.shown.tolist() == [0, 1, 2, 3]


def test_of_two_checkpoints_the_weights_come_first_and_then_their_values(tmp_path: Path) -> None:
    a, b = changed(tmp_path)
    two = compare_models(open_model(Path(a)), open_model(Path(b)))
    compare = Compare(browse(TWO_LAYERS, analysed=False))
    compare.choose(b)
    compare.take(compare.asks_for, shown(two, UNICODE))
    assert compare.is_waiting and compare.with_values
    assert "reading values, ctrl-x stops" in compare.table_title()
    compare.fail(Cancelled("stopped on request"))
    assert not compare.is_waiting and compare.found is not None
    assert "values not compared: stopped on request; W reads them" in compare.table_title()
    assert compare.ask_for_values() == "" and compare.is_waiting
    read_values(two)
    compare.take(compare.asks_for, shown(two, UNICODE))
    assert compare.table_title() == "parameters and buffers that differ: 4 · 1 equal, f shows them"
    assert [compare.table.text(row).split("  ")[0] for row in compare.table.shown] == [
        "layer.2.weight",
        "gone",
        "layer.1.weight",
        "layer.3.weight",
    ]
    assert "1 NaN or infinite in B" in drawn(compare, 90, 5)
    assert compare.command(compare.browse.source).endswith("--values")


def test_values_are_not_compared_with_a_recording() -> None:
    assert "another model or checkpoint" in measured().ask_for_values()


@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
def test_two_checkpoints_from_the_start_say_which_weights_changed(size: tuple[int, int], tmp_path: Path) -> None:
    a, b = changed(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        lines = screen_text(app).splitlines()
        assert any("4 weights in both: 3 differ" in line for line in lines[:10])
        at = next(place for place, line in enumerate(lines) if "parameters and buffers that differ: 4 · 1 equal" in line)
        assert at < 14 and "layer.2.weight" in lines[at + 2] and "not finite" in lines[at + 2]
        await press(app, pilot, "f")
        assert "layer.0.weight" in screen_text(app)

    drive(open_model(Path(a)), steps, size=size, other=b)


def test_values_of_models_are_compared_on_request(tmp_path: Path) -> None:
    sample = SAMPLES / "models" / "cnn.onnx"

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert "all equal" not in screen_text(app)
        await press(app, pilot, "W")
        assert "20 weights in both: all equal" in screen_text(app)

    drive(open_model(sample), steps, other=str(sample))


def test_an_error_is_shown_with_its_code() -> None:
    compare = comparing()
    compare.choose("broken.jsonl")
    compare.fail(LoadError("is of another model", code="IRS661", where="broken.jsonl", hint="give the model that was recorded"))
    assert not compare.is_waiting
    text = drawn(compare)
    assert "IRS661" in text and "give the model" in text and "o chooses another file" in text


def test_open_sizes_have_no_timeline() -> None:
    compare = comparing(SYMBOLIC, SYMBOLIC.replace("nn.relu", "nn.gelu"))
    assert compare.found is not None and compare.found.lines is None
    assert "c binds them" in drawn(compare)
    assert not compare.go_to_peak(0)


def test_open_sizes_of_the_other_model_are_those_of_this_ones_inputs(tmp_path: Path) -> None:
    for name in ("tall", "wide"):
        (tmp_path / f"{name}.irs").write_text(SYMBOLIC.replace("batch", name))
    compared = compare_with(open_model(tmp_path / "tall.irs").rebound({"tall": 3}), tmp_path / "wide.irs")
    assert isinstance(compared, ModelComparison) and compared.b.model.program.graph.inputs[0].type.text == "f32[3,64]"
    assert shown(compared, UNICODE).lines is not None


def test_the_command_line_gives_the_same() -> None:
    compare = comparing(everything=True)
    assert compare.command(compare.browse.source) == "irscope compare 'some folder/two.irs' other.irs --all"


@every("width", [1, 8, 20, 40, 80, 200])
@every("height", [0, 1, 2, 3, 5, 8, 13, 40])
def test_the_chart_fits_any_size(width: int, height: int) -> None:
    for compare in (comparing(), measured(), Compare(browse(EMPTY, analysed=False))):
        lines = compare.chart_lines(width, height)
        assert len(lines) == height
        assert all(len(text_of(line)) <= max(width, 4) or not compare.found for line in lines)


def test_plain_ascii() -> None:
    assert drawn(comparing(symbols=ASCII)).isascii()
    assert drawn(measured(ASCII)).isascii()


@pytest.mark.parametrize("text", [EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC], ids=["empty", "foreign", "hostile", "nested", "symbolic"])
def test_any_model_with_itself(text: str) -> None:
    compare = comparing(text, text, everything=True)
    assert all(character.isprintable() or character == "\n" for character in drawn(compare))
    for _ in range(5):
        compare.next_view()
        for row in range(compare.table.count):
            assert compare.table.text(row).isprintable()


# -- screen ----------------------------------------------------------------------------------------------------


def opened(folder: Path) -> tuple[str, str]:
    """Two files on disk."""
    a, b = folder / "a.irs", folder / "b.irs"
    a.write_text(TWO_LAYERS)
    b.write_text(GELU)
    return str(a), str(b)


async def choose(app: IrscopeApp, pilot: Pilot[None], path: str) -> None:
    """Open the screen and type a path."""
    await press(app, pilot, "6", "o")
    app.screen.query_one("#other", Prompt).value = path
    await press(app, pilot, "enter")


@pytest.mark.parametrize("size", [SMALL, HUGE])
def test_it_fits_the_terminal(size: tuple[int, int], tmp_path: Path) -> None:
    a, b = opened(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await settle(app, pilot)
        assert "nodes that differ: 1" in screen_text(app)
        assert "only A" in screen_text(app)

    drive(open_model(Path(a)), steps, size=size, other=b)


@pytest.mark.slow
def test_another_model_is_chosen_and_shown(tmp_path: Path) -> None:
    a, b = opened(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "6")
        assert "chooses another model" in screen_text(app)
        await choose(app, pilot, b)
        assert "nodes that differ: 1" in screen_text(app)
        await press(app, pilot, "f")
        assert "nodes: 4" in screen_text(app)
        await press(app, pilot, "v", "V", "p", "P", "s", "R", "slash", *"gelu", "enter")
        await press(app, pilot, "escape", "enter")
        assert app.model_screen is not None and app.model_screen.NAME == "browse"

    drive(open_model(Path(a)), steps)


@pytest.mark.slow
def test_the_cursor_moves_in_the_chart(tmp_path: Path) -> None:
    a, b = opened(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await choose(app, pilot, b)
        app.screen.query_one("#both").focus()
        await press(app, pilot, "home", "right", "right")
        assert app.session["compare"].place == 2
        await press(app, pilot, "end", "left", "H", "L")
        assert app.session["compare"].place == 3

    drive(open_model(Path(a)), steps)


def test_it_can_be_there_from_the_start(tmp_path: Path) -> None:
    a, b = opened(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await settle(app, pilot)
        assert app.model_screen is not None and app.model_screen.NAME == "compare"
        assert "nodes that differ: 1" in screen_text(app)

    drive(open_model(Path(a)), steps, other=b)


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    a, _ = opened(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await choose(app, pilot, str(tmp_path / "nothing.onnx"))
        assert "error IRS" in screen_text(app)
        assert "o chooses another file" in screen_text(app)

    drive(open_model(Path(a)), steps)


@pytest.mark.slow
def test_sizes_are_put_in_for_both(tmp_path: Path) -> None:
    a, b = tmp_path / "a.irs", tmp_path / "b.irs"
    a.write_text(SYMBOLIC)
    b.write_text(SYMBOLIC.replace("nn.relu", "nn.gelu"))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await choose(app, pilot, str(b))
        # At the sizes that are stated until others are typed.
        lines = app.session["compare"].lines
        assert lines is not None
        at_one = lines.total.max()
        await press(app, pilot, "c", *"batch=8", "enter")
        assert app.session["compare"].lines.total.max() > at_one

    drive(open_model(a), steps)


SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.parametrize(
    ("model_file", "name"), [("net.pt2", "net_pt2.torch-cpu"), ("net.pt2", "net_pt2.torch-cuda"), ("cnn.onnx", "cnn_onnx.ort-cpu")]
)
def test_the_sample_recordings_open(model_file: str, name: str) -> None:
    path = SAMPLES / "models" / model_file
    if not path.exists():
        pytest.skip("the sample models are not built")
    compare = Compare(browse(TWO_LAYERS, analysed=False))
    compare.choose(name)
    compare.take(compare.asks_for, shown(compare_with(open_model(path), SAMPLES / "recordings" / f"{name}.jsonl"), UNICODE))
    text = drawn(compare, height=20)
    assert "nodes matched (100.0%)" in text
    assert "predicted" in text and "only measured" in text


@pytest.mark.slow
def test_a_truncated_recording_opens(tmp_path: Path) -> None:
    path = SAMPLES / "models" / "net.pt2"
    if not path.exists():
        pytest.skip("the sample models are not built")
    whole = (SAMPLES / "recordings" / "net_pt2.torch-cpu.jsonl").read_bytes()
    short = tmp_path / "short.jsonl"
    short.write_bytes(whole[: len(whole) // 3])

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await settle(app, pilot)
        assert "nodes matched" in screen_text(app)
        await press(app, pilot, "v", "v", "v", "f", "f", "p")

    drive(open_model(path), steps, other=str(short))


def executable(path: Path, script: str) -> str:
    """What stands in for Python, so that nothing is run."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
def test_a_run_is_recorded_after_it_was_asked_and_laid_beside(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES / "recordings" / "net_pt2.torch-cpu.jsonl"
    monkeypatch.setattr(
        "irscope.processes.sys.executable", executable(tmp_path / "run", f'echo "$@" >"{tmp_path}/asked"; cp "{sample}" "$7"')
    )
    monkeypatch.chdir(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "6", "a")
        assert "This executes the model: only for a source that you trust." in screen_text(app)
        await press(app, pilot, "escape")
        assert not (tmp_path / "asked").exists()
        await press(app, pilot, "a", "r")
        assert (tmp_path / "asked").read_text().startswith("-P -m irscope record --trust -o net.pt2.recorded.jsonl ")
        assert app.session["compare"].other == "net.pt2.recorded.jsonl"
        assert "nodes off by more than 1%: 0 · 15 right, f shows them" in screen_text(app)

    drive(open_model(SAMPLES / "models" / "net.pt2"), steps, size=size)


@pytest.mark.slow
def test_a_run_that_is_cancelled_leaves_nothing_and_one_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.processes.sys.executable", executable(tmp_path / "run", 'echo "warming up" >&2; exec sleep 60'))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "6")
        await pilot.press("a", "r")
        await pilot.pause(0.7)
        assert "recording, " in screen_text(app) and "ctrl-x cancels" in screen_text(app)
        await press(app, pilot, "ctrl+x")
        assert "recording, " not in screen_text(app)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "train.py"]
        executable(tmp_path / "run", 'echo "irscope: error IRS150: it broke" >&2; exit 4')
        await press(app, pilot, "a", "s", *"train.py", "enter")
        assert "it broke" in screen_text(app)
        await press(app, pilot, "escape")
        assert app.session["compare"].other == ""

    drive(open_model(SAMPLES / "models" / "net.pt2"), steps)
