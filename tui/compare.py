"""The Compare screen: two models, or a model and a recording of a real run, over one axis and in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import join
from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from irscope.errors import Cancelled, IrscopeError, UsageError
from irscope.files import is_recording
from irscope.immutable import immutable
from irscope.recording import read_recording
from irscope.report.printable import cut_middle
from irscope.report.report import Document, Report
from irscope.report.table import Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Plain, bare
from irscope.tools.compare import ModelComparison, RunComparison, compare_compiled, compare_with, model_comparison, run_comparison
from irscope.tools.compare.decides import compiled_headline
from irscope.tools.compare.memory import compare_runs, read_run
from irscope.tools.compare.model_report import timelines
from irscope.tools.compare.models import SAME
from irscope.tools.compare.weights import read_values, weight_change
from irscope.tui.actions import Action, bindings
from irscope.tui.amounts import Floats
from irscope.tui.apart import ChildRun, new_file, record_command, simulate_command
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Beside
from irscope.tui.command import Source, compare_eager_command
from irscope.tui.memory.run import ShownRun
from irscope.tui.recording import run_of_recording
from irscope.tui.rows import ReportTable, TableModel
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.text import Line, Span, Symbols, cut_line, error_lines, filled, wrap
from irscope.tui.widgets.charts import BothPane
from irscope.tui.widgets.dialogs import TextDialog
from irscope.tui.widgets.paint import Prompt
from irscope.tui.widgets.table import RowsPane, VirtualTable

# The state of the compare screen: two models, or a model and a recording, over one axis and in tables.

_MOST_HEADLINE = 4
_OFF = 0.01
"""A prediction that is off by a larger share differs from what was measured."""
_NODES, _MODULES, _WEIGHTS = "nodes", "modules", "parameters and buffers"
"""Subjects of the tables; those that list only differences say so in their titles."""
_DIFFER = " that differ"
_LEAST_CHART = 10
"""Lines that the chart keeps below the first line of what is said, for marks, bars, the difference, axis and legend."""
_ANOTHER_MODEL = "IRS661"
"""The code of a recording that is not of the open model, such as one of a training script that was simulated."""
_LONGEST_NAME = 40
_HEADLINE_ROWS = 7
_TELL = 0.5
"""Seconds after which it is told again how far a run is."""
_SHORT = 12
"""Lines below which headline and legend give way to the chart."""
COMPILED = "eager beside compiled"
"""In place of a path: both sides are the program that is open."""
_ASK = (
    "Nothing to compare with yet.",
    "",
    "o  chooses another model, another checkpoint, or a recording of a real run of this model that irscope record wrote.",
    "a  records a run of this model now, or simulates a training script.",
    "E  lays what torch.compile makes of a model by name beside the same as it runs eagerly.",
)
_ASK_OF_RUN = (*_ASK[:2], "o  chooses another recording or snapshot.")


@immutable(slots=False)
class Shown:
    """One comparison, prepared for display in the worker's thread."""

    report: Report
    is_of_run: bool
    """True where it is a model beside a recording."""
    lines: Beside | None
    tables: tuple[ReportTable, ...]
    place_of_row: tuple[int, ...]
    """For each row of the table of nodes its place on the axis."""
    everything: bool
    compared: ModelComparison | RunComparison | None
    """The comparison, None for two runs; the table of equal rows, too, and values of weights are taken from it later."""
    equal: Mapping[str, int]
    """By what a table is about, how many rows are left out because both sides are equal there."""

    @property
    def is_of_weights(self) -> bool:
        """Return whether both files hold weights alone."""
        return isinstance(self.compared, ModelComparison) and not self.compared.has_graph

    @property
    def has_values(self) -> bool:
        """Return whether the values of weights were compared."""
        return isinstance(self.compared, ModelComparison) and self.compared.values is not None

    @cached_property
    def row_of_place(self) -> dict[int, int]:
        """Return the first row of the table of nodes at each place."""
        found: dict[int, int] = {}
        for row, place in enumerate(self.place_of_row):
            found.setdefault(place, row)
        return found


def shown(compared: ModelComparison | RunComparison, symbols: Symbols, *, everything: bool = False) -> Shown:
    """Return a comparison as the screen needs it."""
    if isinstance(compared, RunComparison):
        document = run_comparison(compared)
        at = {step: place for place, (step, _) in reversed(list(enumerate(compared.axis)))}
        places = [at.get(steps[0], 0) for steps in compared.groups]
        labels = [compared.steps[step].name if 0 <= step < len(compared.steps) else "" for step, _ in compared.axis]
        lines = None if compared.lines is None else _both_sides(("predicted", "measured"), compared.lines, labels, symbols)
    else:
        document = _said_of_compiler(model_comparison(compared, everything=everything), compared)
        places, labels = _model_places(compared, everything)
        heights = timelines(compared)
        of_compiler = compared.b.is_compiled and not compared.a.is_compiled
        lines = None if heights is None else _both_sides(("eager", "compiled") if of_compiler else ("A", "B"), heights, labels, symbols)
    (report,), is_of_run = document.reports, isinstance(compared, RunComparison)
    tables = tuple(ReportTable(_fitted(table, is_of_run), symbols) for table in _ordered(report) if len(table))
    equal = {} if isinstance(compared, RunComparison) or everything else _equal(compared)
    return Shown(report, is_of_run, lines, tables, tuple(places), everything, compared, equal)


def _said_of_compiler(document: Document, compared: ModelComparison) -> Document:
    """Return the document with the effect of compiling on memory at the head of its report."""
    said, (report,) = compiled_headline(compared), document.reports
    return replace(document, reports=(replace(report, headline=(*said, *report.headline)),)) if said else document


def _equal(compared: ModelComparison) -> dict[str, int]:
    return {
        _NODES: compared.counts.get(SAME, 0),
        _MODULES: sum(a == b for a, b in compared.modules.values()),
        _WEIGHTS: sum(not weight_change(row, compared.values) for row in compared.weights),
    }


def _both_sides(names: tuple[str, str], heights: tuple[list[int], list[int]], labels: Sequence[str], symbols: Symbols) -> Beside | None:
    if not heights[0]:
        return None
    a, b = (np.array(side, dtype=np.float64) for side in heights)
    return Beside(names, (a, b), places=[symbols.clean(label) or "before the first node" for label in labels])


def _model_places(compared: ModelComparison, everything: bool) -> tuple[list[int], list[str]]:
    at_a = {step: place for place, (step, _) in reversed(list(enumerate(compared.axis)))}
    at_b = {step: place for place, (_, step) in reversed(list(enumerate(compared.axis)))}
    places: list[int] = []
    for row in compared.rows:
        if everything or row.kind != "same":
            step_a = compared.a.step.get(compared.a.nodes[row.a[0]]) if row.a else None
            step_b = compared.b.step.get(compared.b.nodes[row.b[0]]) if row.b else None
            places.append(at_a.get(step_a, 0) if step_a is not None else at_b.get(step_b, 0) if step_b is not None else 0)
    steps_a, steps_b = compared.a.timeline.steps, compared.b.timeline.steps
    labels = [steps_a[a].name if 0 <= a < len(steps_a) else steps_b[b].name if 0 <= b < len(steps_b) else "" for a, b in compared.axis]
    return places, labels


def _ordered(report: Report) -> list[Table]:
    """Return the tables, that of nodes first."""
    tables = list(report.tables)
    return sorted(tables, key=lambda table: not _is_of_nodes(table))


def _fitted(table: Table, is_of_run: bool) -> Table:
    """Return a table without columns that text leaves out; beside a recording numbers come first, as the last columns go where room is
    short."""
    table = table.without_details()
    if not is_of_run:
        return table
    first, *rest = table.columns
    return replace(table, columns=(first, *sorted(rest, key=lambda column: not column.kind.is_number)))


def _is_of_nodes(table: Table) -> bool:
    return _subject(table) == _NODES


def _subject(table: Table) -> str:
    """Return the subject of a table, the same with and without equal rows."""
    return table.title.removesuffix(_DIFFER)


def _off_by(predicted: Plain, measured: Plain) -> float:
    if not isinstance(predicted, int | float) or not isinstance(measured, int | float):
        return math.inf
    return abs(predicted - measured) / max(abs(measured), 1)


def _run_at(path: str) -> ShownRun:
    """Return the run of a file; of a snapshot its requests alone, without a chart."""
    if is_recording(Path(path)):
        return run_of_recording(read_recording(Path(path)))
    return ShownRun((path,), path, "", "", path=path)


def shown_runs(a: ShownRun, b: ShownRun, symbols: Symbols) -> Shown:
    """Return two runs as the screen needs them: over one axis, each over its whole length."""
    if not a.path:
        raise UsageError("this run is in no file that can be compared", hint="`irscope tui A.jsonl B.jsonl` compares recordings")
    (report,) = compare_runs(*(read_run(Path(run.path)) for run in (a, b))).document().reports
    said = [str(report.summary[key]) for key in ("verdict", "requests")]
    heights = [None if run.memory is None else np.sum(list(run.memory.heights("category").values()), axis=0) for run in (a, b)]
    lines = None
    if a.memory is not None and b.memory is not None and heights[0] is not None and heights[1] is not None:
        count = max(map(len, (a.memory.places, b.memory.places)))
        first, second = (side[np.arange(count) * len(side) // count] for side in heights if side is not None)
        longer = a if len(a.memory.places) == count else b
        lines = Beside(("A", "B"), (first, second), places=longer.memory.places if longer.memory is not None else None)
    tables = tuple(ReportTable(table.without_details(), symbols) for table in report.tables if len(table))
    return Shown(replace(report, headline=tuple(said)), False, lines, tables, (), True, None, {})


class Compare:
    """All logic of the compare screen."""

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.symbols = browse.symbols
        self.other = ""
        """The path of the file to compare with."""
        self.everything = False
        """True where equal rows are listed too, or with a recording those that the prediction is right about."""
        self.with_values = False
        """True where the values of weights are to be compared."""
        self.values_error: IrscopeError | None = None
        self._to_weights = False
        """True where the table of weights is asked for."""
        self.found: Shown | None = None
        self.error: IrscopeError | None = None
        self.place = 0
        self.view = 0
        self.filter_text = ""
        self._answers = ("", False, False)
        self._nothing = TableModel((), 0, self.symbols, empty="Press o to choose a file to compare with.")
        self._waiting = TableModel((), 0, self.symbols, empty="comparing")
        self._failed = TableModel((), 0, self.symbols, empty="There is nothing to show.")
        self._equal = TableModel((), 0, self.symbols, empty="Nothing differs; f lists what is equal.")

    def choose(self, path: str, *, weights: bool = False) -> str:
        """Compare with a file, its weights first if that is asked for; returns what is wrong with the path, if anything is."""
        path = path.strip()
        if not path:
            return "Type the path of a model or of a recording."
        self.other, self.error, self.found = str(Path(path).expanduser()), None, None
        self.with_values, self.values_error, self._to_weights = False, None, weights
        return ""

    def choose_compiled(self) -> None:
        """Compare the program as it runs eagerly with what torch.compile makes of it."""
        self.other, self.error, self.found = COMPILED, None, None
        self.with_values, self.values_error, self._to_weights = False, None, False

    @property
    def asks_for(self) -> tuple[str, bool, bool]:
        """Return the comparison that the screen is to show."""
        is_of_run = self.found is not None and self.found.is_of_run
        return self.other, self.everything and not is_of_run, self.with_values and not is_of_run

    @property
    def is_waiting(self) -> bool:
        """Return whether the shown comparison is not the chosen one."""
        return bool(self.other) and self.error is None and (self.found is None or self._answers != self.asks_for)

    def take(self, asked: tuple[str, bool, bool], found: Shown) -> None:
        """Show a result, unless something else has been chosen meanwhile."""
        if asked != self.asks_for or (self.found is not None and self._answers == asked):
            return
        first = self.found is None
        before = None if self.rows is None else _subject(self.rows.table)
        self.found, self.error = found, None
        self._answers = self.asks_for
        subjects = [_subject(rows.table) for rows in found.tables]
        self.view = subjects.index(before) if before in subjects else min(self.view, max(len(subjects) - 1, 0))
        if first and not found.is_of_run and (found.is_of_weights or self._to_weights):
            # Which weights changed is what two checkpoints are compared for; names and types are shown until their values were read.
            self.with_values = self._to_weights = True
        if self._to_weights and _WEIGHTS in subjects:
            self.view = subjects.index(_WEIGHTS)
            self._to_weights = not found.has_values
        self.set_filter(self.filter_text)
        if found.lines is not None:
            self.go_to(found.lines.peak_of(0) if first else self.place)

    def fail(self, error: IrscopeError) -> None:
        """Note that the computation failed; where it was values that could not be read, what is known of types stays."""
        if self.found is not None and self.with_values and not self.found.has_values:
            self.with_values, self.values_error = False, error
        else:
            self.error, self.found = error, None

    def ask_for_values(self) -> str:
        """Have the values of weights compared; returns why that cannot be, if it cannot."""
        if self.found is None or self.found.is_of_run or self.found.compared is None:
            return "The values of weights are compared with those of another model or checkpoint: o chooses one."
        if self.with_values:
            return "The values are compared already." if self.found.has_values else "The values are being read."
        self.with_values, self.values_error, self._to_weights = True, None, True
        return ""

    @property
    def lines(self) -> Beside | None:
        """Both timelines, where they are known."""
        return None if self.found is None else self.found.lines

    @property
    def rows(self) -> ReportTable | None:
        """Return the table that is shown."""
        tables = () if self.found is None else self.found.tables
        return tables[self.view] if self.view < len(tables) else None

    @property
    def table(self) -> TableModel:
        """Return its rows, or what stands in their place."""
        if self.rows is not None:
            return self.rows.model
        if self.error is not None:
            return self._failed
        if self.found is not None:
            return self._equal
        return self._waiting if self.other else self._nothing

    def next_view(self, by: int = 1) -> None:
        """Show the next table."""
        count = 0 if self.found is None else len(self.found.tables)
        if count:
            self.set_filter("")
            self.view = (self.view + by) % count
            self.set_filter("")

    def set_filter(self, text: str) -> str:
        """Show only rows in which all words occur; a word after `!` must not."""
        self.filter_text = text.strip()
        if self.rows is not None:
            self.rows.filter(self.filter_text)
            if self.shows_only_off:
                far = self._far(self.rows)
                kept = np.zeros(len(self.rows.table), dtype=np.bool_)
                kept[self.rows.model.shown] = True
                self.rows.model.filter(kept & (far > _OFF))
                self.rows.model.empty = "Nothing here is off by more than 1%; f lists what the prediction is right about."
                if self.rows.model.sorted_by is None:
                    self.rows.model.arrange(np.where(np.isinf(far), np.nan, far))
        return ""

    @property
    def shows_only_off(self) -> bool:
        """Return whether only rows are listed about which the prediction is wrong."""
        return self.found is not None and self.found.is_of_run and not self.everything

    def toggle_everything(self) -> None:
        """List what is equal too, or only what differs."""
        self.everything = not self.everything
        if self.rows is not None and self.found is not None and self.found.is_of_run:
            self.rows.model.sort(None)
            self.set_filter(self.filter_text)

    def _far(self, rows: ReportTable) -> Floats:
        """Return the error of predictions, as a share of the measured numbers; infinite where a number has no counterpart."""
        keys = {column.key for column in rows.table.columns}
        if not {"predicted_alive", "measured_alive"} <= keys:
            return np.full(len(rows.table), np.inf)
        pairs = zip(rows.cells("predicted_alive"), rows.cells("measured_alive"), strict=True)
        return np.array([_off_by(bare(predicted), bare(measured)) for predicted, measured in pairs], dtype=np.float64)

    def is_of_nodes(self) -> bool:
        """Return whether the table is that of nodes, whose rows have places on the axis."""
        return self.rows is not None and _is_of_nodes(self.rows.table)

    def go_to(self, place: int) -> None:
        """Put the cursor at a place of the axis; the table of nodes follows."""
        lines = self.lines
        if self.found is None or lines is None:
            return
        self.place = min(max(place, 0), len(lines) - 1)
        row = self.found.row_of_place.get(self.place)
        if row is not None and self.is_of_nodes():
            self.table.select(row)

    def go_to_peak(self, side: int) -> bool:
        """Go to the peak of one side; False where it is unknown."""
        if self.lines is None:
            return False
        self.go_to(self.lines.peak_of(side))
        return True

    def follow_row(self) -> None:
        """Put the cursor where the selected row stands."""
        row = self.table.selected
        if self.found is not None and row is not None and self.is_of_nodes():
            self.place = self.found.place_of_row[row]

    def chart_title(self) -> str:
        """Return the title of the chart: the compared models."""
        ours = Path(self.browse.program.path).name or "this model"
        if self.other == COMPILED:
            return f"{ours}: eager (A) and compiled (B)"
        return f"{ours} and {Path(self.other).name}" if self.other else "Compare"

    def table_title(self) -> str:
        """Return the title of the table, with its number among all tables."""
        if self.rows is None or self.found is None:
            return "Differences"
        count, separator = len(self.found.tables), self.symbols.glyphs.separator
        title, shown_rows, total = self.rows.table.title, len(self.table), self.table.count
        if self.shows_only_off and self._can_be_off:
            right = total - int((self._far(self.rows) > _OFF).sum())
            parts = [f"{title} off by more than {_OFF:.0%}: {shown_rows:,}", f"{right:,} right, f shows them"]
        else:
            parts = [f"{title}: {shown_rows:,} of {total:,}" if shown_rows != total else f"{title}: {total:,}"]
            equal = self.found.equal.get(_subject(self.rows.table), 0)
            if equal:
                parts.append(f"{equal:,} equal, f shows them")
        if _subject(self.rows.table) == _WEIGHTS and not self.found.has_values and not self.found.is_of_run:
            parts.append(self._why_no_values())
        if count > 1:
            parts.append(f"{self.view + 1} of {count}, v shows the next")
        return separator.join(parts)

    def worst(self) -> str:
        """Return the number of nodes that the prediction is wrong about, with the worst of them; empty where no node was measured."""
        rows = None if self.found is None else next((rows for rows in self.found.tables if _is_of_nodes(rows.table)), None)
        if rows is None:
            return ""
        far = self._far(rows)
        off, known = int((far > _OFF).sum()), np.flatnonzero(np.isfinite(far))
        if not len(known):
            return ""
        if not off:
            return f"no node of {len(far):,} is off by more than {_OFF:.0%}"
        row = int(known[np.argmax(far[known])])
        numbers = (humanise(bare(rows.cells(key)[row]), Kind.BYTES) for key in ("predicted_alive", "measured_alive"))
        predicted, measured = numbers
        name = cut_middle(str(bare(rows.cells("node")[row])), _LONGEST_NAME, self.symbols.glyphs.ellipsis)
        return f"{off:,} of {len(far):,} nodes off by more than {_OFF:.0%}, most {name}: predicted {predicted}, measured {measured}"

    @property
    def _can_be_off(self) -> bool:
        return self.rows is not None and "predicted_alive" in (column.key for column in self.rows.table.columns)

    def _why_no_values(self) -> str:
        if self.values_error is not None:
            return f"values not compared: {self.values_error.message}; W reads them"
        return "reading values, ctrl-x stops" if self.with_values else "names and types only, W compares values"

    def export(self) -> Table | None:
        """Return the table with all its columns."""
        if self.rows is None or self.found is None:
            return None
        title = self.rows.table.title
        return next(table for table in self.found.report.tables if table.title == title)

    def command(self, source: Source) -> str:
        """Return the command that prints what is shown."""
        if self.other == COMPILED:
            return compare_eager_command(source)
        arguments = source.arguments()
        is_of_run = self.found is not None and self.found.is_of_run
        extra = [*(["--values"] if self.with_values and not is_of_run else []), *(["--all"] if self.everything and not is_of_run else [])]
        return join(["irscope", "compare", arguments[0], self.other or "OTHER", *arguments[1:], *extra])

    def cursor_text(self) -> str:
        """Return the values of both sides at the cursor."""
        lines = self.lines
        if lines is None:
            return ""
        values = [humanise(int(height[self.place]), Kind.BYTES) for height in lines.heights]
        parts = [f"{name} {value}" for name, value in zip(lines.names, values, strict=True)]
        return f"{lines.place(self.place)}: {', '.join(parts)}"

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """Headline, chart and the values at the cursor in exactly `height` lines."""
        clean = self.symbols.clean
        if self.found is None:
            return filled(self._placeholder(width), height)
        head: list[Line] = []
        lines = self.found.lines
        said = [*([self.worst()] if self.found.is_of_run else []), *self.found.report.headline]
        most = (1 if height < _SHORT and lines is not None else _MOST_HEADLINE) + self.found.is_of_run
        for text in filter(None, said[:most]):
            head += wrap((Span(clean(text), "heading" if not head else "plain"),), width, "  ")
        if lines is None and self.found.is_of_weights:
            return filled(head, height)
        if lines is None:
            why = (
                "No timelines: sizes are open, c binds them."
                if self.browse.program.symbols
                else "No timelines: sizes or events are missing."
            )
            return filled([*head, (), (Span(why, "faint"),)], height)
        head = head[: max(1, height - _LEAST_CHART)]
        cursor, legend = Span(clean(self.cursor_text())), lines.legend(self.symbols)
        below = [(*legend, Span("   "), cursor)] if height < _SHORT else [legend, (cursor,)]
        below = [cut_line(line, width, self.symbols) for line in below]
        room = height - len(head) - len(below)
        return filled([*head, *lines.lines(width, room, self.place, self.symbols), *below], height)

    def _placeholder(self, width: int) -> list[Line]:
        if self.error is not None:
            error = self.error
            lines: list[Line] = [(Span(f"error {error.code}", "error"), Span(f"  {self.symbols.clean(error.message)}"))]
            if error.where:
                lines.append((Span(self.symbols.clean(error.where), "faint"),))
            if error.hint:
                lines.append((Span(self.symbols.clean(error.hint)),))
            if error.code == _ANOTHER_MODEL:
                lines.append((Span(self.symbols.clean(f"`irscope tui {self.other}` shows the recording alone")),))
            lines += [(), (Span("o chooses another file.", "faint"),)]
            return [row for line in lines for row in wrap(line, width, "  ")]
        if self.other:
            return [(Span(f"comparing {self.symbols.waiting}", "faint"),)]
        asks = _ASK if self.browse.program.format != "recording" else _ASK_OF_RUN
        return [row for text in asks for row in wrap((Span(text, "faint" if text[:1] == "N" else "plain"),), width, "   ")]


# The compare screen: two models, or a model and a recording of a real run, side by side.


class CompareScreen(ModelScreen):
    """Differences between models, and the error of a prediction against what was measured."""

    NAME = "compare"
    FIRST = "#differences"
    FILTER_HINT = "words that occur in a row; !word: must not"
    DEFAULT_CSS = """
    CompareScreen #compare-panes { height: 1fr; layout: vertical; }
    CompareScreen #both { height: 3fr; min-height: 8; }
    CompareScreen #differences-pane { height: 2fr; }
    CompareScreen.-tiny #both { display: none; }
    """
    PANES: ClassVar[dict[str, str]] = {"compare": "On this screen", "both": "Both timelines", "differences": "Differences"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *BothPane.ACTIONS,
        Action("compare", "other", ("o",), "Other", "Choose another model or a recording to compare with.", footer=True),
        Action("compare", "view(1)", ("v",), "Next table", "Show the next table: modules, weights, what is not matched.", footer=True),
        Action("compare", "view(-1)", ("V",), "Table before", "Show the table before."),
        Action("compare", "everything", ("f",), "Equal too", "List nodes that are equal too, or only those that differ."),
        Action(
            "compare",
            "record",
            ("a",),
            "Record",
            "Record a run of this model in a process of its own, or simulate a training script, and lay it beside.",
            footer=True,
        ),
        Action("compare", "values", ("W",), "Weights' values", "Read the weights of both, and show which changed, and how far."),
        Action("compare", "eager", ("E",), "Eager", "Lay the program as it runs eagerly (A) beside what torch.compile makes of it (B)."),
        Action("compare", "peak(0)", ("p",), "Peak", "Go to the peak of the first side.", footer=True),
        Action("compare", "peak(1)", ("P",), "Other peak", "Go to the peak of the other side."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("compare", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.compare: Compare = session.keep(self.NAME, lambda: Compare(session.browse))
        if session.compare_with:
            self.compare.choose(session.compare_with)
        elif len(session.runs) > 1 and not self.compare.other:
            self.compare.choose(session.runs[1].run.path)
        self._run: ChildRun | None = None
        """Child process that records or simulates."""

    def panes(self) -> ComposeResult:
        with Container(id="compare-panes"):
            compare = self.compare
            both = BothPane(compare.chart_lines, lambda: compare.lines, lambda: compare.place, compare.go_to, id="both")
            both.add_class("frame")
            yield both
            with RowsPane(id="differences-pane", classes="frame"):
                yield VirtualTable(self.compare.table, id="differences")
                yield from self.prompts()
                yield Prompt("Compare with", "the path of a model or a recording", id="other")
                yield Prompt("Simulate", "the path of a training script, which is run on a simulated device", id="script")

    def asked(self) -> None:
        compare, session = self.compare, self.session
        if not compare.is_waiting:
            return
        asked, symbols = compare.asks_for, self.symbols
        path, everything, with_values = asked
        env = dict(session.results.complete.env)
        known = None if compare.found is None else compare.found.compared
        runs = [memory.run for memory in session.runs]

        def answer() -> Shown:
            if runs:
                return shown_runs(runs[0], next((run for run in runs[1:] if run.path == path), None) or _run_at(path), symbols)
            compared = (
                known
                if known is not None
                else compare_compiled(session.model_for(env))
                if path == COMPILED
                else compare_with(session.model_for(env), Path(path))
            )
            if with_values and isinstance(compared, ModelComparison) and compared.values is None:
                read_values(compared)
            return shown(compared, symbols, everything=everything)

        session.ask(f"compare.{asked}.{env}", answer, lambda found: compare.take(asked, found), compare.fail, urgency=NOW)

    def set_sizes(self, text: str) -> str:
        problem = super().set_sizes(text)
        if not problem and self.compare.other == COMPILED:
            self.compare.choose_compiled()
        elif not problem and self.compare.other:
            self.compare.choose(self.compare.other)
        return problem

    def show(self) -> None:
        self.asked()
        self.query_one("#differences", VirtualTable).set_model(self.compare.table)
        self._show_place()

    def _show_place(self) -> None:
        both, found = self.query_one("#both", BothPane), self.compare.found
        # Where there are no timelines there is no chart: only what is said stands there.
        both.styles.height = _HEADLINE_ROWS if found is not None and found.lines is None else None
        both.styles.min_height = None if found is None or found.lines is not None else 0
        both.redraw()
        self.query_one("#differences", VirtualTable).redraw()
        self.title_of("both", self.symbols.clean(self.compare.chart_title()))
        self.show_progress()

    def show_progress(self) -> None:
        title = self.compare.table_title() if self._run is None else self._run.text
        self.title_of("differences-pane", self.symbols.clean(title), progress=self._run is None)

    def on_chart_pane_moved(self) -> None:
        self._show_place()

    def on_rows_view_selected(self) -> None:
        self.compare.follow_row()
        self._show_place()

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        rows = self.compare.rows
        place = None if rows is None else rows.place(message.row, self.session.find, self.browse.outline.row_of.get)
        if place is None:
            self.say("This row is about no node of the model on the other screens.")
        else:
            self.open_node(place)

    @property
    def filter_text(self) -> str:
        return self.compare.filter_text

    def set_filter(self, text: str) -> str:
        return self.compare.set_filter(text)

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt = message.prompt
        if prompt.id not in ("other", "script"):
            return
        # The handler of the base, which would come next, knows nothing of these prompts.
        message.prevent_default()
        problem = ""
        if message.keep:
            problem = self.compare.choose(prompt.value) if prompt.id == "other" else self._simulate(prompt.value.strip())
        prompt.mark(self.symbols.clean(problem))
        if problem:
            return
        prompt.display = False
        self.focus_first()
        self.show()

    def commands(self) -> list[tuple[str, str]]:
        return [("This comparison:", self.compare.command(self.browse.bound_source))]

    def selected_text(self) -> list[tuple[str, str]]:
        row = self.compare.table.selected
        return [] if row is None else [("The row:", self.compare.table.text(row))]

    def table(self) -> Table | None:
        return self.compare.export()

    def action_other(self) -> None:
        self.query_one("#other", Prompt).open(self.compare.other)

    def action_record(self) -> None:
        if self.session.runs:
            self.say("A run is compared with a recording or a snapshot: o chooses one.")
            return
        if self._run is not None:
            self.say(self._run.text)
            return
        lines: list[Line] = []
        keys = ""
        if self.browse.source.path and self.session.program.training is None:
            keys += "r"
            command = join(["irscope", *record_command(self.browse.complete_source, self._output())])
            lines += [
                (Span("  r  ", "mark"), Span("record a run of this model on this machine's processor", "heading")),
                (Span("     This executes the model: only for a source that you trust.", "unknown"),),
                (Span(f"     {self.symbols.clean(command)}", "faint"),),
                (),
            ]
        keys += "s"
        lines += [
            (Span("  s  ", "mark"), Span("simulate a training script on a simulated device", "heading")),
            (Span("     This executes the script.", "unknown"),),
            (),
            (Span("It runs in a process of its own, which ctrl-x ends; the recording is written into the current folder.", "faint"),),
        ]

        def chosen(index: int | None) -> None:
            if index is None:
                return
            if keys[index] == "s":
                self.query_one("#script", Prompt).open("")
            else:
                output = self._output()
                self._start(record_command(self.browse.complete_source, output), output)

        self.app.push_screen(TextDialog("Record or simulate", lines, keys), chosen)

    def _output(self) -> Path:
        return new_file(f"{Path(self.browse.source.path).name or 'model'}.recorded")

    def _simulate(self, path: str) -> str:
        script = Path(path).expanduser()
        if not script.is_file():
            return f"There is no file {path!r}."
        output = new_file(f"{script.stem}.simulated")
        self._start(simulate_command(script, output), output)
        return ""

    def _start(self, arguments: Sequence[str], output: Path) -> None:
        run = self._run = ChildRun(arguments, output)
        timer = self.set_interval(_TELL, self.show_progress)

        def wait() -> None:
            problem = run.wait()
            self.app.call_from_thread(ended, problem)

        def ended(problem: IrscopeError | None) -> None:
            self._run = None
            timer.stop()
            if problem is None:
                self.compare.choose(str(output))
            elif not isinstance(problem, Cancelled):
                self.app.push_screen(TextDialog(f"There is no recording: {run.what} failed", error_lines(problem, self.symbols)))
            self.show()

        self.run_worker(wait, thread=True, group="recording", exit_on_error=False)
        self.show()

    def action_stop_work(self) -> None:
        if self._run is None:
            super().action_stop_work()
        else:
            self.run_worker(self._run.cancel, thread=True, group="cancelling", exit_on_error=False)

    def on_unmount(self) -> None:
        if self._run is not None:
            self._run.cancel()

    def action_view(self, by: int) -> None:
        self.compare.next_view(by)
        self.show()

    def action_everything(self) -> None:
        self.compare.toggle_everything()
        self.show()

    def action_values(self) -> None:
        problem = self.compare.ask_for_values()
        if problem:
            self.say(problem)
        self.show()

    def action_eager(self) -> None:
        if self.session.runs:
            self.say("A run is compared with a recording or a snapshot: o chooses one.")
            return
        self.compare.choose_compiled()
        self.asked()
        self.show()

    def action_peak(self, side: int) -> None:
        if not self.compare.go_to_peak(side):
            self.say("There are no timelines to look at.")
        self._show_place()
