"""The screens for passes and reports, driven by keys."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from irscope.errors import PassError
from irscope.ir.printer import print_program
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.screen import BrowseScreen
from irscope.tui.passes.chooser import OWN, QUESTIONS, PickDialog, question_of
from irscope.tui.passes.screen import FormDialog, PassesScreen
from irscope.tui.reports import ReportsScreen
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from irscope.tui.widgets.paint import DetailPane
from irscope.tui.widgets.table import VirtualTable
from tests.tui.driving import drive, driven, press, screen_text, selected
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model

SIZES = [(80, 24), (120, 40), (200, 60)]
DEAD = TWO_LAYERS.replace("  return %y", "  %dead: ?[*] = nn.gelu(%x) @block\n  return %y")
ANYTHING = {"empty": EMPTY, "foreign": FOREIGN, "hostile": HOSTILE, "nested": NESTED, "symbolic": SYMBOLIC}


def passes(app: IrscopeApp) -> PassesScreen:
    screen = app.screen
    assert isinstance(screen, PassesScreen)
    return screen


def reports(app: IrscopeApp) -> ReportsScreen:
    screen = app.screen
    assert isinstance(screen, ReportsScreen)
    return screen


def pane(app: IrscopeApp, selector: str) -> str:
    return "\n".join(text_of(line) for line in app.screen.query_one(selector, DetailPane).lines)


# -- passes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@driven(DEAD)
async def test_the_pipeline_has_run_when_the_screen_is_shown(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    await press(app, pilot, "5")
    shown = screen_text(app)
    assert "fixpoint{max=4}(fold,dce)" in shown
    assert [step.state for step in passes(app).pipeline.steps] == ["changed", "done", "done", "done", "done"]
    assert "- %dead: f32[4,64] = nn.gelu(%x)" in pane(app, "#diff")
    assert "Graph before (-) and after (+)" in shown


@pytest.mark.slow
def test_the_model_of_the_other_screens_is_not_touched() -> None:
    opened = model(DEAD)
    before = print_program(opened.program)

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "5")
        assert passes(app).pipeline.steps[0].state == "changed"
        assert print_program(opened.program) == before
        await press(app, pilot, "1")
        assert "nn.gelu" in screen_text(app)

    drive(opened, steps, size=(120, 40))


@pytest.mark.slow
@driven(TWO_LAYERS, size=(120, 40))
async def test_a_pass_is_added_with_a_form(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "5", "end", "a")
    assert isinstance(app.screen, PickDialog)
    await press(app, pilot, *"livene")
    assert "liveness" in screen_text(app)
    await press(app, pilot, "enter")
    assert isinstance(app.screen, FormDialog)
    top = next(one for one in app.screen.query(Input) if one.name == "top")
    top.focus()
    await press(app, pilot, *"x5")
    assert "must be an integer" in screen_text(app)
    await press(app, pilot, "enter")
    assert isinstance(app.screen, FormDialog)
    await press(app, pilot, "backspace", "backspace", "7", "enter")
    assert passes(app).pipeline.text.endswith("liveness,liveness{top=7}")
    assert passes(app).pipeline.steps[-1].state == "done"


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_several_passes_are_added_as_text_and_a_wrong_one_is_explained(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "5", "end", "a", *"alias,effects{}", "enter")
    assert passes(app).pipeline.text.endswith("liveness,alias,effects")
    before = passes(app).pipeline.text
    await press(app, pilot, "a", *"flops{zzz=1}", "enter")
    assert passes(app).pipeline.text == before
    await press(app, pilot, "a", *"flops", "escape")
    assert passes(app).pipeline.text == before
    await press(app, pilot, "a", "down", "up", "down", *"verify", "enter")
    assert passes(app).pipeline.text.endswith("effects,verify")


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_options_are_changed_and_the_rest_runs_again(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "5", "end", "o")
    assert isinstance(app.screen, FormDialog)
    await press(app, pilot, "down", "up", *"ssa", "enter")
    assert passes(app).pipeline.text.endswith("liveness{model=ssa}")
    assert passes(app).pipeline.steps[-1].state == "done"
    await press(app, pilot, "o", "escape")
    assert passes(app).pipeline.text.endswith("liveness{model=ssa}")
    await press(app, pilot, "home", "down", "enter")
    assert passes(app).pipeline.selected == 1


@pytest.mark.slow
@driven(DEAD)
async def test_leaving_out_moving_removing_and_running_again(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "5", "x")
    pipeline = passes(app).pipeline
    assert [step.state for step in pipeline.steps] == ["off", "done", "done", "done", "done"]
    await press(app, pilot, "x", "J")
    assert pipeline.text.startswith("shapes,fixpoint")
    assert pipeline.steps[1].state == "changed"
    await press(app, pilot, "K", "r")
    assert pipeline.text.startswith("fixpoint")
    assert pipeline.steps[0].state == "changed"
    await press(app, pilot, "delete")
    assert pipeline.text == "shapes,params,flops,liveness"
    for _ in range(5):
        await press(app, pilot, "delete")
    assert len(pipeline) == 0
    assert "a adds a pass" in screen_text(app)
    await press(app, pilot, "x", "r", "o", "K", "y", "escape", "e", "escape")


@driven(TWO_LAYERS)
async def test_the_pipeline_is_copied_as_a_command_line(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "5", "x", "y")
    assert app.clipboard == "irscope run 'some folder/two.irs' --passes shapes,params,flops,liveness"


def test_a_step_that_fails_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = model(TWO_LAYERS)
    cls = opened.manager.registry.find("params")

    def broken(*_: object) -> None:
        raise PassError("it broke", hint="do this")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        monkeypatch.setattr(cls, "compute", broken)
        await press(app, pilot, "5", "down", "down")
        assert [step.state for step in passes(app).pipeline.steps] == ["unchanged", "done", "failed", "waiting", "waiting"]
        assert "error IRS500" in pane(app, "#step_text")
        assert "it broke" in screen_text(app)

    drive(opened, steps, size=(120, 40))


# -- reports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@driven(TWO_LAYERS)
async def test_the_first_report_is_there_when_the_screen_is_shown(app: IrscopeApp, pilot: Pilot[None], size: tuple[int, int]) -> None:
    await press(app, pilot, "7")
    item = reports(app).reports.item
    assert item is not None
    assert (item.text, item.state) == ("liveness", "ready")
    shown = screen_text(app)
    assert "Does it fit?" in shown
    assert "ready" in shown
    assert "known" in pane(app, "#report_text")


@pytest.mark.slow
@driven(TWO_LAYERS, size=(120, 40))
async def test_enter_runs_a_pass_then_goes_to_its_table_then_to_a_node(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "7", "slash", *"arithmetic !energy !bandwidth", "enter")
    assert "Press enter to run it." in pane(app, "#report_text") and "What does it cost?" in screen_text(app)
    assert "liveness" not in screen_text(app)
    made = reports(app).reports
    made.select(next(item for item in made.items if item.text == "flops"))
    await press(app, pilot, "enter")
    assert "total flops" in pane(app, "#report_text")
    made = reports(app).reports
    while made.rows is None or "node" not in [column.key for column in made.rows.table.columns]:
        await press(app, pilot, "n")
    await press(app, pilot, "enter")
    assert app.focused is app.screen.query_one("#report_rows")
    await press(app, pilot, "slash", *"relu", "enter")
    assert made.rows is not None
    assert len(made.rows.model) == 1
    app.screen.query_one("#report_rows").focus()
    await press(app, pilot, "enter")
    assert isinstance(app.screen, BrowseScreen)
    assert selected(app) == "active"


@pytest.mark.slow
@driven(TWO_LAYERS, size=(120, 40))
async def test_a_question_lists_the_passes_that_answer_it(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "7", "home")
    text = pane(app, "#report_text")
    assert text.startswith("Does it fit?") and "liveness" in text and "Compute the bytes alive at each step" in text
    await press(app, pilot, "s", "R", "slash", *"nothing-at-all", "enter")
    assert "No pass is about that." in screen_text(app)
    await press(app, pilot, "escape")
    assert "liveness" in screen_text(app)


def test_every_pass_that_comes_with_irscope_answers_a_question() -> None:
    registry = model(TWO_LAYERS).manager.registry
    assert {name for name in (*registry.entries, *registry.pipelines) if question_of(name) == OWN} == set()
    assert sorted(name for names in QUESTIONS.values() for name in names) == sorted((*registry.entries, *registry.pipelines))


@pytest.mark.slow
@driven(TWO_LAYERS, size=(120, 40))
async def test_a_pass_of_ones_own_has_a_screen(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "7")
    await press(app, pilot, "a", *"samples/custom_pass.py", "enter")
    item = reports(app).reports.item
    assert item is not None
    assert item.state == "ready"
    assert "narrow convolutions" in screen_text(app)
    await press(app, pilot, "y")
    assert app.clipboard == "irscope run 'some folder/two.irs' --passes samples/custom_pass.py:NarrowConvs"


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_what_has_no_report_is_refused_and_can_be_corrected(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "7")
    await press(app, pilot, "a", *"dce", "enter")
    assert isinstance(app.focused, VirtualTable)
    before = len(reports(app).reports.items)
    await press(app, pilot, "a", *"liveness{top=2}", "enter")
    assert len(reports(app).reports.items) == before + 1
    await press(app, pilot, "r", "n", "N", "e", "escape", "z", "z")


@pytest.mark.slow
def test_a_report_that_fails_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = model(TWO_LAYERS)
    cls = opened.manager.registry.find("stats")

    def broken(*_: object) -> None:
        raise ValueError("not this time")

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        monkeypatch.setattr(cls, "compute", broken)
        await press(app, pilot, "7")
        await press(app, pilot, "a", *"stats", "enter")
        assert "not this time" in pane(app, "#report_text")
        assert "failed" in screen_text(app)

    drive(opened, steps)


# -- both ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["5", "7"])
@pytest.mark.parametrize(
    "name", ["hostile", "nested", *(pytest.param(one, marks=pytest.mark.full) for one in ("empty", "foreign", "symbolic"))]
)
def test_the_screens_open_over_anything_at_any_size(name: str, key: str) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, key, "down", "end", "enter", "escape", "z", "z")
        for size in ((1, 1), (20, 5), (120, 40), (79, 15), (80, 24)):
            await pilot.resize_terminal(*size)
            assert all(character.isprintable() or character == "\n" for character in screen_text(app))

    drive(model(ANYTHING[name]), steps)


@pytest.mark.parametrize("key", ["5", "7"])
@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
@driven(HOSTILE, size=(120, 40))
async def test_every_line_fits_and_plain_ascii_stays_plain(app: IrscopeApp, pilot: Pilot[None], key: str, symbols: Symbols) -> None:
    await press(app, pilot, key)
    for widget in (*app.screen.query(VirtualTable), *app.screen.query(DetailPane)):
        for y in range(widget.size.height):
            line = widget.render_line(y)
            assert line.cell_length == widget.size.width
            assert symbols is UNICODE or line.text.isascii()
