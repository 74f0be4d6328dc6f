"""Every screen and every action, driven by keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.color import ColorSystem
from textual.color import Color
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widget import Widget

from irscope.tui.actions import SCREEN_QUESTIONS, SCREENS, ScreenRecord, key_text
from irscope.tui.app import IrscopeApp
from irscope.tui.screen import ModelScreen, help_lines, screen_actions
from irscope.tui.text import ASCII, PARTS, UNICODE, text_of
from irscope.tui.widgets.charts import StackPane
from irscope.tui.widgets.dialogs import Palette, TextDialog
from irscope.tui.widgets.paint import Keys, Looks, Painted
from tests.tui.driving import HUGE, LARGE, SMALL, drive, driven, press, screen_text, settle
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model

SAMPLES = Path(__file__).parents[2] / "samples"
KEYS = [record.key for record in SCREENS]


def shown(app: IrscopeApp) -> str:
    screen = app.model_screen
    assert screen is not None
    return screen.NAME


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
@driven(TWO_LAYERS)
async def test_number_keys_show_the_screens(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    for record in SCREENS:
        await press(app, pilot, record.key)
        assert shown(app) == record.name
        assert f"[{record.key} " in screen_text(app)
        assert isinstance(app.focused, Widget)
        first, *_, last = screen_text(app).splitlines()
        assert all(f"{one.key} {one.title}" in first for one in SCREENS)
        assert last.rstrip().endswith("? Help q Quit")
        assert all(active.binding.description in last for _, active in app.screen.query_one(Keys).shown())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HOSTILE, id="hostile"),
        pytest.param(SYMBOLIC, id="symbolic"),
        *(
            pytest.param(text, id=name, marks=pytest.mark.full)
            for name, text in (("empty", EMPTY), ("foreign", FOREIGN), ("nested", NESTED))
        ),
    ],
)
@driven()
async def test_every_screen_works_over_anything(app: IrscopeApp, pilot: Pilot[None], text: str) -> None:
    for key in KEYS:
        await press(app, pilot, key, "down", "end", "enter", key, "z", "escape", "tab", "w", "escape")
        assert all(character.isprintable() or character == "\n" for character in screen_text(app))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1, 1), (20, 5), (79, 15)])
@driven(HOSTILE)
async def test_every_screen_works_at_any_size(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    for key in KEYS:
        await press(app, pilot, key, "down", "z", "z")
    await pilot.resize_terminal(*SMALL)
    await pilot.pause(0.2)
    await settle(app, pilot)
    assert "Help" in screen_text(app)


@pytest.mark.slow
@driven(TWO_LAYERS, symbols=ASCII)
async def test_every_screen_in_plain_ascii(app: IrscopeApp, pilot: Pilot[None]) -> None:
    for key in KEYS:
        await press(app, pilot, key)
        for widget in app.screen.query(Painted):
            assert all(widget.render_line(y).text.isascii() for y in range(widget.size.height))


@pytest.mark.slow
def test_every_screen_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert app.no_color
        for key in KEYS:
            await press(app, pilot, key)
            assert "━" in screen_text(app)

    drive(model(TWO_LAYERS), steps)


@driven(TWO_LAYERS)
async def test_keys_are_pointed_at_and_pressed_with_the_mouse(app: IrscopeApp, pilot: Pilot[None]) -> None:
    keys = app.screen.query_one(Keys)
    columns = {active.binding.action: start for start, active in keys.shown()}
    line = app.size.height - 1
    await pilot.hover(offset=(columns["help"], line))
    assert keys.pointed == "help"
    await pilot.hover(offset=(columns["help"] - 1, line))
    assert not keys.pointed
    await pilot.click(offset=(columns["help"], line))
    await settle(app, pilot)
    assert isinstance(app.screen, TextDialog)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@driven(TWO_LAYERS)
async def test_every_look_is_legible_on_every_screen(app: IrscopeApp, pilot: Pilot[None], theme: str) -> None:
    app.theme = theme
    for key in KEYS:
        await press(app, pilot, key)
        legible(app)


def legible(app: IrscopeApp) -> None:
    """Every look has a contrast of 4.5 at least; a line through bands is drawn on the colours of bands alone."""
    look = app.screen.get_component_rich_style
    bands = [look(f"role--{part}").color for part in PARTS]
    for name in sorted(Looks.COMPONENT_CLASSES):
        style = look(name)
        for behind in bands if name == "role--through" else [style.bgcolor]:
            assert style.color is not None
            assert behind is not None
            lights = sorted(_luminance(Color.from_rich_color(colour)) for colour in (style.color, behind))
            ratio = (lights[1] + 0.05) / (lights[0] + 0.05)
            assert (name, ratio >= 4.5) == (name, True)


def _luminance(colour: Color) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_categories_differ_in_a_terminal_of_sixteen_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "standard")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        for app.theme in ("textual-dark", "textual-light"):
            await settle(app, pilot)
            looks = [app.screen.get_component_rich_style(f"role--{part}").color for part in PARTS]
            assert len({look.downgrade(ColorSystem.STANDARD).number for look in looks if look is not None}) == len(PARTS)

    drive(model(TWO_LAYERS), steps)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_help_copy_and_export_everywhere(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, key, "question_mark")
        assert isinstance(app.screen, TextDialog)
        assert "On this screen" in screen_text(app) or "Modules" in screen_text(app)
        await press(app, pilot, "escape", "y", "escape")
        assert isinstance(app.screen, ModelScreen)
        command = app.clipboard
        await press(app, pilot, "e", "t")
        name = shown(app)
        await press(app, pilot, "e", "s")
        # Another device is in what is copied.
        await press(app, pilot, "D", *"a10", "enter", "y", "escape")
        assert app.session.context.device == "a10"
        if command and name != "params":
            assert "--device a10" in app.clipboard and "--device" not in command
        assert (tmp_path / f"two.irs-{name}.txt").read_text().count("\n") == 40
        assert "<svg" in (tmp_path / f"two.irs-{name}.svg").read_text()

    drive(model(TWO_LAYERS), steps)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["1", "2", "3", "4"])
def test_tables_are_exported_and_nothing_is_overwritten(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, key)
        for form in "cjc":
            await press(app, pilot, "e", form)
        name = shown(app)
        assert (tmp_path / f"two.irs-{name}.csv").read_text() == (tmp_path / f"two.irs-{name}-2.csv").read_text()
        assert '"columns"' in (tmp_path / f"two.irs-{name}.json").read_text()

    drive(model(TWO_LAYERS), steps)


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("2", "irscope run 'some folder/two.irs' --passes liveness"),
        ("3", "irscope run 'some folder/two.irs' --passes params"),
        ("4", "irscope run 'some folder/two.irs' --passes 'roofline{top=0}'"),
    ],
)
@driven(TWO_LAYERS)
async def test_the_command_line_is_copied(app: IrscopeApp, pilot: Pilot[None], key: str, command: str) -> None:
    await press(app, pilot, key, "y")
    assert app.clipboard == command
    await press(app, pilot, "3")
    assert app.clipboard != command
    assert isinstance(app.screen, ModelScreen)


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_history_leads_back_through_screens(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "g", *"back", "enter")
    row = app.browse.selected
    await press(app, pilot, "2", "home", "3")
    await press(app, pilot, "left_square_bracket")
    assert shown(app) == "memory"
    await press(app, pilot, "left_square_bracket")
    assert shown(app) == "browse"
    assert app.browse.selected == row
    await press(app, pilot, "right_square_bracket")
    assert shown(app) == "memory"


@driven(TWO_LAYERS)
async def test_going_to_what_is_not_there_is_said(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "g", *"zzz", "enter")
    assert "there is no node" in screen_text(app)
    await press(app, pilot, "escape")
    assert app.focused is not None
    assert app.focused.id == "tree"


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_the_palette_lists_screens_and_opens(app: IrscopeApp, pilot: Pilot[None]) -> None:
    titles = {command.title for command in app.get_system_commands(app.screen)}
    assert {record.title for record in SCREENS} <= titles
    await press(app, pilot, "colon")
    assert isinstance(app.screen, Palette)
    await press(app, pilot, *"memory")
    await pilot.pause(0.3)
    await press(app, pilot, "down", "enter")


@driven(TWO_LAYERS)
async def test_dark_and_light(app: IrscopeApp, pilot: Pilot[None]) -> None:
    before = app.theme
    await press(app, pilot, "t")
    assert app.theme != before
    await press(app, pilot, "t")
    assert app.theme == before


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_memory_moves_marks_and_zooms(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2")
    memory = app.session["memory"]
    assert memory.step == memory.stack.peak
    await press(app, pilot, "home", "right", "L", "shift+left", "end", "ctrl+left", "n")
    assert memory.step == memory.stack.peak
    await press(app, pilot, "N", "home", "p", "space", "home")
    assert memory.range == (0, memory.stack.peak)
    assert "weights + inputs, not to scale" in screen_text(app)
    await press(app, pilot, "space", "plus", "equals_sign", "minus", "0", "r")
    assert "r shows all" not in screen_text(app)
    await press(app, pilot, "r", "o")
    assert set(memory.stack.parts) == {"weights", "inputs", "block/fc1", "block", "block/fc2", "(model)"}
    await press(app, pilot, "o", "a")
    assert {"weights", "inputs", "hidden"} <= set(memory.stack.parts)
    assert "by tensor" in screen_text(app) and "least time on h200 by roofline" in screen_text(app)
    await press(app, pilot, "home", "a", "o")
    assert memory.by == "category" and not memory.stack.time
    await press(app, pilot, "enter")
    assert shown(app) == "browse"
    assert app.browse.step == memory.step


@driven(TWO_LAYERS)
async def test_memory_follows_the_selection_of_other_screens(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "1", "end", "2")
    assert app.session["memory"].step == app.browse.step == 3


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_another_lifetime_model_and_device(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "m", "3")
    memory = app.session["memory"]
    assert app.session.context.lifetime == "eager"
    assert memory.found.live.model == "eager"
    assert "fits: " in screen_text(app)
    assert "requested" in screen_text(app) and "h200 " in screen_text(app)
    await press(app, pilot, "D", *"a10", "enter")
    assert app.session.context.device == "a10"
    assert "a10 22.06 GiB · eager lifetimes" in screen_text(app)
    assert memory.counters().device == "a10" and "on NVIDIA A10" in screen_text(app)
    await press(app, pilot, "y")
    assert "--device a10" in app.clipboard
    assert "liveness{model=eager}" in app.clipboard
    await press(app, pilot, "escape", "4")
    assert app.session["cost"].found.times.device.name == "a10"
    await press(app, pilot, "F", "2", "3", "D", *"a100", "enter")
    assert "a100 79.15 GiB · eager lifetimes · first run" in screen_text(app)
    await press(app, pilot, "2", "y")
    assert memory.measured.title == "Device memory, first forward".lower()
    assert "liveness{model=eager run=first}" in app.clipboard


@pytest.mark.slow
@driven(SAMPLES / "mlp.irs")
async def test_sizes_move_the_curve_on_every_screen(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "greater_than_sign", "right_curly_bracket")
    memory = app.session["memory"]
    assert app.browse.results.binding.env == {"batch": 4}
    assert "· batch=4 ·" in screen_text(app)
    await press(app, pilot, "left_curly_bracket", "less_than_sign")
    assert app.browse.results.binding.env == {"batch": 1}
    await press(app, pilot, "c", *"batch=32", "enter", "x")
    assert memory.by_size is not None
    assert "batch=1 to batch=64" in screen_text(app)
    await press(app, pilot, "x", "1")
    assert "· batch=32 ·" in screen_text(app)


@pytest.mark.slow
@driven(SAMPLES / "tagger.irs")
async def test_the_allocator_counts_for_sizes_that_were_put_in(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "m", "3", "c", *"batch=2", "enter")
    counters = app.session["memory"].counters()
    assert counters is not None
    assert counters.is_known
    # The wheel zooms around the pointer: the step below it stays there.
    pane, chart = app.screen.query_one(StackPane), app.session["memory"].stack
    at = pane.content_region.offset + Offset(chart.margin() + 60, 12)
    under, width = chart.step_of(60, pane.size.width - chart.margin()), chart.stop - chart.start
    for turn, times in ((MouseScrollUp, 0.5), (MouseScrollDown, 1)):
        x, y = at - pane.region.offset
        pane.post_message(turn(pane, x, y, 0, 0, 0, False, False, False, screen_x=at.x, screen_y=at.y))
        await settle(app, pilot)
        assert chart.stop - chart.start == round(width * times)
        assert abs(chart.step_of(60, pane.size.width - chart.margin()) - under) <= 1


@pytest.mark.slow
@driven(SAMPLES / "mlp.irs")
async def test_parameters_group_sort_filter_and_open(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "3", "v")
    params = app.session["params"]
    assert params.group == "modules"
    await press(app, pilot, "s", "s", "R", "down", "enter")
    assert params.group == "tensors"
    await press(app, pilot, "escape", "slash", *"fc2", "enter")
    assert len(params.table) == 2
    await press(app, pilot, "enter")
    assert shown(app) == "browse"


@pytest.mark.slow
@driven(SAMPLES / "models" / "net.pt2")
async def test_values_are_read_on_request(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "3", "V")
    params = app.session["params"]
    assert params.has_values
    assert not params.is_reading
    assert "std" in screen_text(app)
    await press(app, pilot, "V", "ctrl+x")


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_costs_group_choose_a_device_and_open(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "4")
    assert "Cost by layer" in screen_text(app)
    await press(app, pilot, "o", "o")
    cost = app.session["cost"]
    assert cost.by == "kind"
    before = cost.found.times.device.title
    await press(app, pilot, "D", *"a10", "enter")
    assert cost.found.times.device.title != before
    await press(app, pilot, "slash", *"linear", "enter", "enter")
    assert shown(app) == "browse"
    assert app.session.selected_node is not None
    assert app.session.selected_node.op == "nn.linear"


@pytest.mark.slow
@driven(SAMPLES / "mlp.irs")
async def test_costs_for_sizes_that_were_put_in(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "4")
    assert "· batch=1 (assumed) ·" in screen_text(app)
    assert "roofline time ?" not in screen_text(app) and "nodes unknown" not in screen_text(app)
    await press(app, pilot, "c", *"batch=8", "enter")
    assert "roofline time ?" not in screen_text(app)
    assert "· batch=8 ·" in screen_text(app)


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_tables_answer_clicks(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "3")
    table = app.session["params"].table
    await pilot.click("#weights", offset=(3, 2))
    assert table.index == 1
    await pilot.click("#weights", offset=(3, 0))
    assert table.sorted_by == 0
    await pilot.click("#tabs", offset=(3, 0))
    assert shown(app) == "browse"
    await press(app, pilot, "2")
    await pilot.click("#stack", offset=(80, 5))
    assert app.session["memory"].step == 2


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_another_model_takes_the_place_of_the_first(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "3")
    before = list(app._screens.values())
    await app.show_model(model(FOREIGN))
    await press(app, pilot, "2", "1")
    assert len(before) == 3 and not any(screen.is_running for screen in before)  # else all that they show would be kept
    assert "acme.magic" in screen_text(app)
    assert app.browse.results.finished


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE, HUGE])
def test_the_line_below_memory_begins_with_the_keys_that_decide(size: tuple[int, int]) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        assert "D Device" not in screen_text(app).splitlines()[-1]
        await press(app, pilot, "2")
        below = screen_text(app).splitlines()[-1]
        assert below.startswith("c Sizes D Device W Lower it X Largest ") and below.rstrip().endswith("? Help q Quit")

    drive(model(SYMBOLIC), steps, size=size)


@pytest.mark.parametrize("record", SCREENS, ids=lambda one: one.name)
def test_help_begins_with_the_questions_of_the_screen(record: ScreenRecord) -> None:
    keys = {key_text(key) for action in screen_actions([record.name]) for key in action.keys}
    assert {key for _, key in SCREEN_QUESTIONS[record.name]} <= keys
    lines = [text_of(line) for line in help_lines(record.name, "", UNICODE)]
    assert lines[0] == "Questions of this screen"
    assert lines[1].split() == " ".join(reversed(SCREEN_QUESTIONS[record.name][0])).split()


@driven(SYMBOLIC)
async def test_help_of_memory_says_which_key_answers_what(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "question_mark")
    text = screen_text(app)
    for key, question in (("X", "Which batch is the largest that fits?"), ("W", "What would lower the peak"), ("D", "Does it fit")):
        assert any(f" {key} " in line and question in line for line in text.splitlines()), question
