"""The form for the options of a pass, made from its fields, and checked while it is filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Literal, TypeAlias

from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.passkit.base import Pass, Transform
from irscope.passkit.options import build, describe, option_types, to_text
from irscope.passkit.pipeline import parse_pipeline, pipeline_text
from irscope.passkit.registry import PassRegistry
from irscope.report.celltext import CellWriter
from irscope.report.options import RenderOptions
from irscope.report.table import Table
from irscope.report.text import summary_lines
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.command import Source, run_command
from irscope.tui.passes.running import Outcome
from irscope.tui.rows import TableColumn, TableModel
from irscope.tui.text import Line, Span, Symbols, error_lines


@immutable
class Field:
    """One option: what it is called, what may stand in it, and what it is unless something is written."""

    name: str
    what: str
    default: str
    """As it would be written; empty where a value has to be given."""
    is_required: bool


class PassForm:
    """The options of one pass as texts; `made()` is the pass they make."""

    def __init__(self, cls: type[Pass], registry: PassRegistry, given: Pass | None = None) -> None:
        self.cls = cls
        self.registry = registry
        self.fields = form_fields(cls)
        self.texts: dict[str, str] = {}
        if given is not None:
            self.texts = {field.name: _option_text(given, field) for field in self.fields}

    @property
    def kind(self) -> str:
        """Return the kind of the pass: an analysis or a transform."""
        return "transform" if issubclass(self.cls, Transform) else "analysis"

    def text(self, name: str) -> str:
        """Return the text of a field; empty stands for the default."""
        return self.texts.get(name, "")

    def set(self, name: str, text: str) -> None:
        """Write into a field."""
        self.texts[name] = text.strip()

    def made(self) -> Pass:
        """Return the pass with these options; raises IrscopeError with one clear line."""
        given = {name: text for name, text in self.texts.items() if text and name != "body"}
        extra: dict[str, object] = {}
        if any(field.name == "body" for field in self.fields):
            extra["body"] = parse_pipeline(self.text("body") or "dce", self.registry)
        try:
            made = build(self.cls, given, **extra)
        except (TypeError, ValueError) as error:
            raise IrscopeError(f"{self.cls.name} refuses these options: {error}", code="IRS606") from error
        assert isinstance(made, Pass)
        return made

    @property
    def problem(self) -> str:
        """Return the error in the fields; empty where there is none."""
        try:
            self.made()
        except IrscopeError as error:
            return str(error)
        return ""

    @property
    def preview(self) -> str:
        """Return the element of a pipeline that the form makes; empty while it makes none."""
        try:
            return self.made().text
        except IrscopeError:
            return ""


def form_fields(cls: type[Pass]) -> Sequence[Field]:
    """Return the options of a pass in the order of its fields."""
    types = option_types(cls)
    found: list[Field] = []
    for option in fields(cls):
        if option.name == "body":
            found.append(Field("body", "the passes it works on, such as fold,dce", "dce", is_required=False))
            continue
        value = option.default
        if value is MISSING and option.default_factory is not MISSING:
            value = option.default_factory()
        required = value is MISSING
        found.append(Field(option.name, describe(types[option.name]), "" if required else to_text(value) or '""', required))
    return found


def _option_text(given: Pass, field: Field) -> str:
    value = getattr(given, field.name)
    if field.name == "body":
        return ",".join(one.text for one in value)
    text = to_text(value)
    return "" if text == field.default and not field.is_required else text


def named_class(text: str, registry: PassRegistry) -> type[Pass] | None:
    """Return the class that a name or `./file.py:Name` alone stands for; None for anything else, such as a pipeline."""
    try:
        return registry.find(text.strip())
    except KeyError:
        return None


# A pipeline that is put together on the screen, and what each of its steps found. It runs over a copy of the program.

State: TypeAlias = Literal["waiting", "running", "changed", "unchanged", "done", "failed", "off"]
START = "cleanup,shapes,params,flops,liveness"
"""The initial pipeline: transforms, then the default passes."""
_SIGNS: dict[State, str] = {"waiting": " ", "running": ">", "changed": "*", "unchanged": "=", "done": "+", "failed": "!", "off": "-"}
MEANINGS: dict[State, str] = {
    "waiting": "not run yet",
    "running": "runs now",
    "changed": "changed the graph",
    "unchanged": "left the graph as it was",
    "done": "computed",
    "failed": "failed",
    "off": "left out",
}


@dataclass(eq=False)
class Step:
    """One element of the pipeline."""

    subject: Pass
    is_on: bool = True
    outcome: Outcome | None = None
    error: IrscopeError | None = None
    run: int = 0
    """Which run of it is under way, 0 for none: what an older run still finds counts no more."""

    @property
    def is_running(self) -> bool:
        return self.run > 0

    @property
    def state(self) -> State:
        if self.is_running:
            return "running"
        if self.error is not None:
            return "failed"
        if self.outcome is None:
            return "waiting" if self.is_on else "off"
        if self.outcome.changed is None:
            return "done"
        return "changed" if self.outcome.changed else "unchanged"

    def forget(self) -> None:
        """Drop the result, which is outdated."""
        self.outcome = self.error = None
        self.run = 0


@dataclass
class Pipeline:
    """The steps, the selected one, and what is known of each."""

    registry: PassRegistry
    source: Source
    symbols: Symbols
    steps: list[Step] = field(default_factory=list)
    table: TableModel = field(init=False)
    """The steps as rows."""
    _runs: int = 0

    def __post_init__(self) -> None:
        if not self.steps:
            self.steps = [Step(one) for one in parse_pipeline(START, self.registry)]
        self._rebuild(0)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def step(self) -> Step | None:
        """Return the selected step."""
        return self.steps[self.selected] if self.steps else None

    @property
    def selected(self) -> int:
        """Return the place of the selected step."""
        return self.table.selected or 0

    def select(self, at: int) -> None:
        """Select a step; places outside are taken for the first or last."""
        self.table.move_to(at)

    def _rebuild(self, at: int) -> None:
        self.table = self._table_model()
        self.select(at)

    def add(self, passes: Sequence[Pass]) -> None:
        """Put passes behind the selected step and select the last of them."""
        at = self.selected + 1 if self.steps else 0
        self.steps[at:at] = [Step(one) for one in passes]
        self._stale_from(at)
        self._rebuild(at + len(passes) - 1)

    def replace(self, subject: Pass) -> None:
        """Give the selected step other options."""
        if self.steps:
            self.steps[self.selected] = Step(subject, self.steps[self.selected].is_on)
            self._stale_from(self.selected)

    def remove(self) -> None:
        """Take the selected step out."""
        if self.steps:
            at = self.selected
            del self.steps[at]
            self._stale_from(at)
            self._rebuild(at)

    def toggle(self) -> None:
        """Leave the selected step out, or take it in again."""
        if self.steps:
            self.steps[self.selected].is_on = not self.steps[self.selected].is_on
            self._stale_from(self.selected)

    def move(self, by: int) -> bool:
        """Move the selected step up or down; False at the end."""
        to = self.selected + by
        if not self.steps or not 0 <= to < len(self.steps):
            return False
        self.steps.insert(to, self.steps.pop(self.selected))
        self._stale_from(min(to, self.selected))
        self._rebuild(to)
        return True

    def form(self, text: str) -> PassForm | None:
        """Return the form for a pass that was named without options and has some; None for anything else."""
        cls = named_class(text, self.registry)
        if cls is None:
            return None
        form = PassForm(cls, self.registry)
        return form if form.fields else None

    def parsed(self, text: str) -> Sequence[Pass]:
        """Return the passes of a text such as `dce,liveness{model=ssa}`; raises IrscopeError."""
        return parse_pipeline(text, self.registry)

    def edit_form(self) -> PassForm | None:
        """Return the form of the selected step; None where it has no options."""
        if self.step is None:
            return None
        form = PassForm(type(self.step.subject), self.registry, self.step.subject)
        return form if form.fields else None

    def rerun_from(self, at: int) -> None:
        """Forget what the steps from here on found."""
        self._stale_from(at)

    def _stale_from(self, at: int) -> None:
        for step in self.steps[at:]:
            step.forget()
        self.redraw()

    def next_to_run(self) -> int | None:
        """Return the first step that has to run; None when all is done, or one runs or has failed."""
        for at, step in enumerate(self.steps):
            if step.error is not None or step.is_running:
                return None
            if step.is_on and step.outcome is None:
                return at
        return None

    def done_before(self, at: int) -> tuple[Pass, ...]:
        """Return the passes that run before a step."""
        return tuple(step.subject for step in self.steps[:at] if step.is_on)

    def start(self, at: int) -> tuple[Step, int]:
        """Note that the step is about to run, and return it with a number that tells this run from others."""
        step = self.steps[at]
        self._runs += 1
        step.run = self._runs
        self.redraw()
        return step, step.run

    def take(self, step: Step, run: int, outcome: Outcome) -> bool:
        """Keep what a step found, unless the step has gone or was started again meanwhile."""
        if step not in self.steps or step.run != run:
            return False
        step.run, step.outcome = 0, outcome
        self.redraw()
        return True

    def fail(self, step: Step, run: int, error: IrscopeError) -> bool:
        """Keep why a step failed; those behind it wait."""
        if step not in self.steps or step.run != run:
            return False
        step.run, step.error = 0, error
        self.redraw()
        return True

    @property
    def is_running(self) -> bool:
        """Return whether a step is running whose result will count."""
        return any(step.is_running for step in self.steps)

    @property
    def text(self) -> str:
        """Return the pipeline as the command line takes it, without what is left out."""
        return pipeline_text([step.subject for step in self.steps if step.is_on])

    def export(self) -> Table:
        """Return the steps with what they found."""
        rows = [
            (
                step.subject.text,
                MEANINGS[step.state],
                None if step.outcome is None else step.outcome.seconds,
                "" if step.outcome is None or step.outcome.diff is None else step.outcome.diff.summary,
                None if step.outcome is None else sum(one.again for one in step.outcome.computed),
            )
            for step in self.steps
        ]
        return Table.of(rows, columns=["pass:text", "state:text", "time:seconds", "change:text", "computed_again:count"], title="pipeline")

    def command(self) -> str:
        """Return the command line that runs this pipeline."""
        return run_command(self.source, self.text)

    @property
    def title(self) -> str:
        """Return the title of the pipeline, with the total time."""
        spent = sum(step.outcome.seconds for step in self.steps if step.outcome is not None)
        again = sum(one.again for step in self.steps if step.outcome is not None for one in step.outcome.computed)
        parts = ["Pipeline"]
        if spent:
            parts.append(seconds(spent))
        if again:
            parts.append(f"{again:,} computed again")
        return self.symbols.glyphs.separator.join(parts)

    def _table_model(self) -> TableModel:
        clean, steps = self.symbols.clean, self.steps
        columns = (
            TableColumn("", 1, lambda row: _SIGNS[steps[row].state], role="mark"),
            TableColumn("pass", 14, lambda row: clean(steps[row].subject.text), grows=True, role="operator"),
            TableColumn("time", 9, lambda row: self._time(steps[row]), right=True, rank=2),
            TableColumn("result", 30, lambda row: self._note(steps[row]), rank=1, least=14),
        )
        return TableModel(columns, len(steps), self.symbols, empty="The pipeline is empty; a adds a pass.")

    @staticmethod
    def _time(step: Step) -> str:
        return "" if step.outcome is None else seconds(step.outcome.seconds)

    def _note(self, step: Step) -> str:
        outcome, clean = step.outcome, self.symbols.clean
        if outcome is None:
            return "" if step.state == "waiting" else MEANINGS[step.state]
        again = sum(one.again for one in outcome.computed)
        if outcome.changed is None:
            return clean(_answer(outcome))
        change = "no change" if outcome.diff is None else outcome.diff.summary
        return ", ".join(part for part in (change, f"{again:,} again" if again else "") if part)

    def redraw(self) -> None:
        """Note that the rows look different now."""
        self.table.version += 1

    def detail(self) -> list[Line]:
        """Return everything about the selected step: what ran for it, and what it changed."""
        step = self.step
        if step is None:
            return [(Span("The pipeline is empty; a adds a pass.", "faint"),)]
        clean = self.symbols.clean
        kind = "transform" if isinstance(step.subject, Transform) else "analysis"
        lines: list[Line] = [
            (Span(clean(step.subject.text), "heading"), Span(f"  {kind}, {MEANINGS[step.state]}", "faint")),
            (Span(clean(type(step.subject).summary())),),
        ]
        if step.error is not None:
            lines += error_lines(step.error, self.symbols)
        if step.outcome is not None:
            lines += self._outcome_lines(step.outcome)
        return lines

    def _outcome_lines(self, outcome: Outcome) -> list[Line]:
        clean = self.symbols.clean
        lines: list[Line] = [(), (Span("ran for this step", "heading"),)]
        for one in outcome.computed:
            times = seconds(one.total) if one.own == one.total else f"{seconds(one.total)}, {seconds(one.own)} of its own"
            lines.append(
                (
                    Span(f"  {'  ' * one.depth}{clean(one.text)}", "operator"),
                    Span(f"  {times}", "faint"),
                    Span("  computed again" if one.again else "", "unknown"),
                )
            )
        if not outcome.computed:
            lines.append((Span("  nothing: the result was there already", "faint"),))
        if outcome.changed is None:
            return lines
        facts = [(entry.key, entry.cell) for entry in outcome.facts if entry.key != "changed"]
        lines += [(Span(f"  {clean(key)}", "name"), Span(f"  {clean(str(cell))}")) for key, cell in facts]
        if outcome.diff is not None:
            lines += [(), (Span("operators that became more or fewer", "heading"),)]
            lines += outcome.diff.operator_rows(self.symbols) or [(Span("  none", "faint"),)]
        return lines

    def diff_lines(self) -> list[Line]:
        """Return the change of the selected step as text, or why there is none; of an analysis, what it found."""
        step = self.step
        if step is not None and step.outcome is not None and step.outcome.changed is None:
            return self._answer_lines(step.outcome)
        if step is None or not isinstance(step.subject, Transform):
            return [(Span("An analysis changes nothing; select a transform to see the graph before and after.", "faint"),)]
        if step.outcome is None:
            text = MEANINGS[step.state]
            return [(Span(f"There is nothing to compare: this step {text if step.state == 'running' else 'was ' + text}.", "faint"),)]
        if step.outcome.diff is None:
            return [(Span("The graph is the same before and after.", "faint"),)]
        return step.outcome.diff.rows(self.symbols)

    def _answer_lines(self, outcome: Outcome) -> list[Line]:
        options = RenderOptions(encoding=self.symbols.encoding)
        headline: list[Line] = [(Span(self.symbols.clean(text), "heading"),) for text in outcome.headline]
        return [*headline, *((Span(line),) for line in summary_lines(outcome.facts, CellWriter(options), options))]

    def diff_title(self) -> str:
        """Return the title of the change."""
        outcome = None if self.step is None else self.step.outcome
        if outcome is not None and outcome.changed is None:
            return f"Result{self.symbols.glyphs.separator}7 has its whole report"
        title = "Graph before (-) and after (+)"
        if outcome is None or outcome.diff is None:
            return title
        diff = outcome.diff
        return f"{title}{self.symbols.glyphs.separator}{diff.removed:,} gone, {diff.added:,} new, {diff.changed:,} altered"


def _answer(outcome: Outcome) -> str:
    """Return the first that an analysis found: an amount before a count."""
    if outcome.headline:
        return outcome.headline[0]
    known = [one for one in outcome.facts if one.kind.is_number and bare(one.cell) is not None]
    first = next((one for one in known if one.kind not in (Kind.COUNT, Kind.INDEX)), known[0] if known else None)
    return "" if first is None else f"{CellWriter(RenderOptions()).write(first.cell, first.kind)} {first.path[-1].replace('_', ' ')}"


def seconds(value: float) -> str:
    """Return a time for a reader."""
    return humanise(value, Kind.SECONDS)
