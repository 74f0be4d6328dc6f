"""The pipeline on the screen: editing it, running it step by step over a copy, and running it again from anywhere."""

from __future__ import annotations

import pytest

from irscope.errors import IrscopeError, PassError
from irscope.ir.printer import print_program
from irscope.passkit.pipeline import parse_pipeline
from irscope.session import Model
from irscope.tui.command import Source
from irscope.tui.passes.pipeline import PassForm, Pipeline, Step, form_fields, named_class
from irscope.tui.passes.running import Runner
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model

DEAD = """irscope 1
graph @main {
  input %x: f32[4]
  %a: f32[4] = nn.relu(%x)
  %dead: f32[4] = nn.gelu(%x)
  %b: f32[4] = nn.relu(%a)
  return %b
}
"""


class Driver:
    """A pipeline with what runs its steps."""

    def __init__(self, text: str, pipeline: str, symbols: Symbols = UNICODE) -> None:
        self.model: Model = model(text)
        registry = self.model.manager.registry
        self.pipeline = Pipeline(registry, Source("two.irs"), symbols, [Step(one) for one in parse_pipeline(pipeline, registry)])
        self.runner = Runner(self.model.manager)
        self.ran: list[str] = []

    def run(self) -> None:
        while (at := self.pipeline.next_to_run()) is not None:
            done = self.pipeline.done_before(at)
            step, number = self.pipeline.start(at)
            self.ran.append(step.subject.text)
            try:
                self.pipeline.take(step, number, self.runner.run(done, step.subject))
            except IrscopeError as error:
                self.pipeline.fail(step, number, error)

    @property
    def states(self) -> list[str]:
        return [step.state for step in self.pipeline.steps]

    def text(self) -> str:
        pipeline = self.pipeline
        return "\n".join(text_of(line) for line in (*pipeline.detail(), *pipeline.diff_lines()))


def test_a_pipeline_runs_and_says_what_each_step_did() -> None:
    driver = Driver(DEAD, "dce,flops,dce")
    assert driver.states == ["waiting"] * 3
    driver.run()
    assert driver.states == ["changed", "done", "unchanged"]
    outcome = driver.pipeline.steps[0].outcome
    assert outcome is not None
    assert outcome.diff is not None
    assert outcome.diff.removed == 1
    assert "nn.gelu" in driver.text()
    assert "1 -> 0 (-1)" in driver.text()
    assert "8 FLOPs total flops" in driver.pipeline.table.text(1)  # a line for each analysis: two relu of four elements
    driver.pipeline.select(1)
    assert "total flops" in driver.text()  # and all of it below


def test_the_model_on_the_screen_stays_as_it_is() -> None:
    driver = Driver(DEAD, "dce")
    before = print_program(driver.model.program)
    driver.run()
    assert print_program(driver.model.program) == before


def test_what_is_computed_again_is_told_apart() -> None:
    driver = Driver(DEAD, "shapes,dce,flops")
    driver.run()
    outcome = driver.pipeline.steps[2].outcome
    assert outcome is not None
    again = [one.text for one in outcome.computed if one.again]
    assert again == ["shapes"]
    assert "computed again" in driver.pipeline.title
    driver = Driver(TWO_LAYERS, "shapes,dce,flops")
    driver.run()
    outcome = driver.pipeline.steps[2].outcome
    assert outcome is not None
    assert not any(one.again for one in outcome.computed)


def test_times_of_inner_passes_are_part_of_the_outer() -> None:
    driver = Driver(DEAD, "flops")
    driver.run()
    outcome = driver.pipeline.steps[0].outcome
    assert outcome is not None
    outer, *inner = outcome.computed
    assert outer.text == "flops"
    assert all(one.depth > outer.depth for one in inner)
    assert 0 <= outer.own <= outer.total <= outcome.seconds
    assert all(one.total <= outer.total for one in inner)


def test_running_again_from_a_step_leaves_those_before_it() -> None:
    driver = Driver(DEAD, "shapes,dce,flops")
    driver.run()
    driver.ran.clear()
    driver.pipeline.rerun_from(1)
    driver.runner.put_away()  # as after the last step of a large model: the copy is made again
    assert driver.states == ["done", "waiting", "waiting"]
    driver.run()
    assert driver.ran == ["dce", "flops"]
    assert driver.states == ["done", "changed", "done"]


def test_a_step_that_is_left_out_no_longer_counts() -> None:
    driver = Driver(DEAD, "dce,dce,flops")
    driver.run()
    assert driver.states == ["changed", "unchanged", "done"]
    driver.pipeline.select(0)
    driver.pipeline.toggle()
    driver.run()
    assert driver.states == ["off", "changed", "done"]
    assert driver.pipeline.text == "dce,flops"
    driver.pipeline.toggle()
    driver.run()
    assert driver.states == ["changed", "unchanged", "done"]


def test_moving_replacing_adding_and_removing() -> None:
    driver = Driver(DEAD, "shapes,flops")
    pipeline = driver.pipeline
    driver.run()
    assert not pipeline.move(-1)
    pipeline.select(1)
    assert pipeline.move(-1)
    assert pipeline.text == "flops,shapes"
    assert pipeline.selected == 0
    assert not pipeline.move(-1)
    driver.run()
    pipeline.add(pipeline.parsed("dce,liveness{top=3}"))
    assert pipeline.text == "flops,dce,liveness{top=3},shapes"
    assert pipeline.selected == 2
    driver.run()
    assert driver.states == ["done", "changed", "done", "done"]
    pipeline.remove()
    assert pipeline.text == "flops,dce,shapes"
    pipeline.replace(pipeline.parsed("params")[0])
    assert pipeline.text == "flops,dce,params"
    driver.run()
    assert driver.states == ["done", "changed", "done"]
    assert driver.ran.count("flops") == 2


def test_any_editing_ends_as_if_it_had_been_so_from_the_start() -> None:
    driver = Driver(DEAD, "dce,shapes,dce,stats")
    driver.run()
    for edit in (lambda: driver.pipeline.select(0), driver.pipeline.toggle, lambda: driver.pipeline.move(1), driver.pipeline.toggle):
        edit()
        driver.run()
        fresh = Driver(DEAD, driver.pipeline.text)
        fresh.run()
        assert [step.state for step in driver.pipeline.steps if step.is_on] == fresh.states


def test_an_empty_pipeline_says_how_to_fill_it() -> None:
    driver = Driver(DEAD, "dce")
    driver.pipeline.remove()
    driver.pipeline.remove()
    driver.pipeline.toggle()
    assert driver.pipeline.step is None
    assert driver.pipeline.next_to_run() is None
    assert driver.pipeline.edit_form() is None
    assert "a adds a pass" in driver.text()
    driver.pipeline.add(driver.pipeline.parsed("flops"))
    assert driver.pipeline.text == "flops"


def test_a_step_that_fails_stops_those_behind_it_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(DEAD, "shapes,dce,flops")
    cls = type(driver.pipeline.steps[1].subject)

    def broken(*_: object) -> bool:
        raise PassError("it broke", where="here.py:3", hint="do this")

    with monkeypatch.context() as patch:
        patch.setattr(cls, "apply", broken)
        driver.run()
    assert driver.states == ["done", "failed", "waiting"]
    driver.pipeline.select(1)
    for part in ("error IRS500", "it broke", "here.py:3", "do this"):
        assert part in driver.text()
    driver.pipeline.rerun_from(1)
    driver.run()
    assert driver.states == ["done", "changed", "done"]


def test_what_an_older_run_finds_counts_no_more() -> None:
    driver = Driver(DEAD, "flops")
    step, run = driver.pipeline.start(0)
    outcome = driver.runner.run((), step.subject)
    driver.pipeline.rerun_from(0)
    assert not driver.pipeline.take(step, run, outcome)
    assert not driver.pipeline.fail(step, run, IrscopeError("late"))
    _, newer = driver.pipeline.start(0)
    assert not driver.pipeline.take(step, run, outcome)
    assert driver.pipeline.next_to_run() is None
    assert driver.pipeline.take(step, newer, outcome)
    assert driver.states == ["done"]


def test_the_command_line_is_the_pipeline_without_what_is_left_out() -> None:
    driver = Driver(DEAD, "dce,liveness{model=ssa top=3}")
    assert driver.pipeline.command() == "irscope run two.irs --passes 'dce,liveness{model=ssa top=3}'"
    driver.pipeline.toggle()
    assert driver.pipeline.command() == "irscope run two.irs --passes 'liveness{model=ssa top=3}'"


def test_the_steps_can_be_exported() -> None:
    driver = Driver(DEAD, "dce,flops")
    table = driver.pipeline.export()
    assert table.cells("time") == [None, None]
    driver.run()
    table = driver.pipeline.export()
    assert table.cells("pass") == ["dce", "flops"]
    assert table.cells("change") == ["-1 +0 ~0", ""]
    assert table.cells("state") == ["changed the graph", "computed"]


@pytest.mark.parametrize("text", [EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC], ids=["empty", "foreign", "hostile", "nested", "symbolic"])
@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_it_runs_over_anything(text: str, symbols: Symbols) -> None:
    driver = Driver(text, "cleanup,annotate,shapes,params,flops,liveness,stats", symbols)
    driver.run()
    assert "failed" not in driver.states
    for at in range(len(driver.pipeline)):
        driver.pipeline.select(at)
        shown = driver.text() + "".join(text_of(driver.pipeline.table.line(at, width, selected=True)) for width in (5, 40, 100))
        assert all(character.isprintable() or character == "\n" for character in shown)
        assert symbols is UNICODE or shown.isascii()


def test_the_pipeline_one_starts_with_runs() -> None:
    opened = model(TWO_LAYERS)
    pipeline = Pipeline(opened.manager.registry, Source("x"), UNICODE)
    assert [step.subject.name for step in pipeline.steps] == ["fixpoint", "shapes", "params", "flops", "liveness"]


# -- forms ---------------------------------------------------------------------------------------------------------


def form(name: str) -> PassForm:
    registry = model(TWO_LAYERS).manager.registry
    return PassForm(registry.find(name), registry)


def test_every_pass_that_irscope_has_makes_a_form_that_needs_nothing() -> None:
    registry = model(EMPTY).manager.registry
    for name in registry.entries:
        made = PassForm(registry.find(name), registry)
        assert made.problem == "", name
        assert made.made() == parse_pipeline(made.preview, registry)[0]
        again = PassForm(registry.find(name), registry, made.made())
        assert again.made() == made.made()


def test_a_form_checks_what_is_written() -> None:
    made = form("liveness")
    assert {field.name for field in made.fields} >= {"model", "top"}
    made.set("top", "many")
    assert "must be an integer, not 'many'" in made.problem
    assert made.preview == ""
    made.set("top", "5")
    made.set("model", "ssa")
    assert made.problem == ""
    assert made.preview == "liveness{model=ssa top=5}"
    made.set("model", "magic")
    assert "must be one of" in made.problem


def test_a_form_of_a_pass_with_a_body() -> None:
    made = form("fixpoint")
    assert made.kind == "transform"
    made.set("body", "fold,dce")
    made.set("max", "3")
    assert made.preview == "fixpoint{max=3}(fold,dce)"
    made.set("body", "flops")
    assert "repeats transforms" in made.problem
    made.set("body", "fold,,")
    assert made.problem


def test_a_form_starts_from_the_options_there_are() -> None:
    driver = Driver(DEAD, "liveness{top=7}")
    made = driver.pipeline.edit_form()
    assert made is not None
    assert made.text("top") == "7"
    assert made.text("model") == ""
    made.set("top", "")
    assert made.preview == "liveness"


def test_a_name_alone_asks_for_a_form_and_anything_more_is_taken_as_it_is() -> None:
    pipeline = Driver(DEAD, "dce").pipeline
    assert pipeline.form("liveness") is not None
    assert pipeline.form("dce") is None
    assert pipeline.form("default") is None
    assert pipeline.form("liveness{top=3}") is None
    assert len(pipeline.parsed("default")) == 4
    with pytest.raises(IrscopeError, match="did you mean 'liveness'"):
        pipeline.parsed("livenes")


def test_a_pass_of_ones_own_has_a_form() -> None:
    registry = model(EMPTY).manager.registry
    cls = named_class("samples/custom_pass.py:NarrowConvs", registry)
    assert cls is not None
    (field,) = form_fields(cls)
    assert (field.name, field.default, field.is_required) == ("below", "16", False)
    assert named_class("no-such-pass", registry) is None
