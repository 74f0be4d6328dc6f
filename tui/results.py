"""What is known about a model so far. Analyses answer one after another, each with an update that is applied on the UI's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import Cancelled, IrscopeError
from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.graph import Node
from irscope.ir.printer import ValueNames, loose_names
from irscope.ir.program import Program
from irscope.report.report import Report
from irscope.report.units import Kind
from irscope.training import StepOp, Trace
from irscope.tui.amounts import Binding, Column
from irscope.tui.browse.outline import AliasSets, Folds
from irscope.tui.charts import Timeline
from irscope.tui.context import Context
from irscope.tui.memory.lives import Lives, Measured

if TYPE_CHECKING:
    from irscope.passes.cost.count import Costs
    from irscope.passes.inference.engine import Inferred
    from irscope.passes.lifetimes.timeline import Timeline as LiveTensors
    from irscope.tui.memory.views import Verdict


@dataclass
class Results:
    """Everything found so far; None where an analysis has not answered."""

    symbols: Mapping[str, SymDim] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    """Context that is asked for; it is shown at once, the numbers for it once they are there."""
    binding: Binding = field(default_factory=Binding)
    """Sizes that are shown in place of symbols; formulas stand where there are none."""
    verdict: Verdict | None = None
    """Verdict on whether it fits on the device: the header and the Memory screen begin with it."""
    verdict_for: tuple[object, ...] = ()
    """The device, lifetimes, run and sizes that it is about, or was asked for."""
    names: ValueNames = field(default_factory=loose_names)
    raw: dict[str, Column] = field(default_factory=dict)
    """Numbers by row as they were found: `flops`, `sizes` of the results, and the column that was `chosen` in place of these."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """The same with the binding applied."""
    costs: Costs | None = None
    explanations: Inferred | None = None
    params: Report | None = None
    live: LiveTensors | None = None
    lives: Lives | None = None
    measured: Measured | None = None
    """All memory over the steps, where every size of the file is a number."""
    summed: tuple[Mapping[str, int], Measured | None] = field(default_factory=lambda: ({}, None))
    """The same with a number for every symbol, and these numbers."""
    aliases: AliasSets | None = None
    folds: Folds | None = None
    step_ops: Mapping[Node, StepOp] = field(default_factory=dict)
    """Of a captured training step what ran for each node: its phase, and what the memory that it made is for."""
    formulas_of: dict[Node, Mapping[str, str]] = field(default_factory=dict)
    """By measure the formula behind the cost of nodes that were looked at, and what its letters stand for."""
    timeline: Timeline | None = None
    assumed: str = ""
    """Default sizes with which the timeline is drawn."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """Names of the parts that ended with an error."""
    finished: bool = False

    @property
    def formulas(self) -> int:
        """Return the number of distinct formulas that have to be worked out for other sizes."""
        return sum(column.values.formulas for column in self.raw.values()) + (0 if self.lives is None else self.lives.formulas)

    @property
    def flops(self) -> Column | None:
        """FLOPs by row."""
        return self.columns.get("flops")

    @property
    def sizes(self) -> Column | None:
        """Bytes of the results by row."""
        return self.columns.get("sizes")

    @property
    def chosen(self) -> Column | None:
        """Return the column that stands at the end of the tree in place of the bytes of the results."""
        return self.columns.get("chosen")

    @property
    def complete(self) -> Binding:
        """Return the sizes that are shown, and those assumed where none was typed: what needs a number for every symbol is for these."""
        return self.context.completed(self.binding)

    def prepared(self, binding: Binding) -> Bound:
        """Return everything with these sizes put in; changes nothing, and may run in any thread."""
        timeline, assumed = self._timeline(binding)
        return Bound(binding, {name: column.bound(binding) for name, column in self.raw.items()}, timeline, assumed)

    def show(self, bound: Bound) -> None:
        """Show what was prepared."""
        self.binding, self.columns, self.timeline, self.assumed = bound.binding, bound.columns, bound.timeline, bound.assumed

    def bind(self, binding: Binding) -> None:
        """Show numbers for these sizes."""
        self.show(self.prepared(binding))

    def refresh(self) -> None:
        """Take what has become known into what is shown."""
        self.bind(self.binding)

    def forget_memory(self) -> None:
        """Another device, lifetime model or run is asked for: what memory was is no longer shown."""
        self.live = self.lives = self.measured = self.timeline = self.verdict = None
        self.verdict_for = ()
        self.summed = ({}, None)
        self.failed.discard("liveness")

    def choose(self, column: Column | None) -> None:
        """Show this column in the tree in place of the bytes of the results; None shows those again."""
        self.raw.pop("chosen", None)
        if column is not None:
            self.raw["chosen"] = column
        self.columns = {name: one.bound(self.binding) for name, one in self.raw.items()}

    def sum_for(self, binding: Binding) -> Measured | None:
        """Return all memory over the steps for these sizes, and those assumed where none was typed; None where it is not known."""
        wanted = self.context.completed(binding).env
        env, found = self.summed
        return self.measured if not wanted else found if env == wanted else None

    def _timeline(self, binding: Binding) -> tuple[Timeline | None, str]:
        if self.lives is None:
            return None, ""
        measured = self.sum_for(binding)
        if measured is not None and not self.lives.live.unsized:
            unsure = [*measured.modelled.values()]
            return Timeline(measured.heights, Kind.BYTES, np.any(unsure, axis=0) if unsure else None), ""
        assumed = ""
        if self.lives.depends(binding):
            assumed = replace(self.context, binding=binding).assumed
            binding = self.context.completed(binding)
        return Timeline(self.lives.heights(binding) + self.lives.resident(binding), Kind.BYTES), assumed

    @property
    def free_symbols(self) -> list[str]:
        """Symbols that have no size yet and on which something shown depends."""
        totals = [self.costs.total.flops if self.costs is not None else 0, self.live.peak if self.live is not None else 0]
        names = {name for value in totals if isinstance(value, SymDim) for name in value.symbol_names()}
        return [name for name in self.symbols if name in names and name not in self.binding.env]

    def remark(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Add what an analysis had to say; analyses that rest on one another say some things twice."""
        self.diagnostics.extend(diagnostic for diagnostic in dict.fromkeys(diagnostics) if diagnostic not in self.diagnostics)

    def has_failed(self, *parts: str) -> bool:
        """Return whether one of these parts ended with an error, so that waiting for it is no use."""
        return not self.failed.isdisjoint(parts)


def step_ops(program: Program) -> dict[Node, StepOp]:
    """Return, by node, the operator of the captured step; nothing for what is not a training step."""
    trace = program.training
    if not isinstance(trace, Trace):
        return {}
    nodes, ops = list(program.graph), trace.in_step(trace.steady)
    return dict(zip(nodes, ops, strict=True)) if len(nodes) == len(ops) else {}


@immutable(slots=False)
class Bound:
    """Results for some sizes of symbols."""

    binding: Binding
    columns: Mapping[str, Column]
    timeline: Timeline | None
    assumed: str


class Update(Protocol):
    """One answer."""

    def apply(self, results: Results) -> None:
        """Put the answer where the UI looks for it."""


@immutable(slots=False)
class Names:
    """Names for values that have none of their own."""

    names: ValueNames

    def apply(self, results: Results) -> None:
        results.names = self.names


@immutable(slots=False)
class Sizes:
    """Bytes of results by row."""

    column: Column

    def apply(self, results: Results) -> None:
        results.raw["sizes"] = self.column
        results.refresh()


@immutable(slots=False)
class Explained:
    """Reasons why types are unknown."""

    explanations: Inferred
    diagnostics: Sequence[Diagnostic]

    def apply(self, results: Results) -> None:
        results.explanations = self.explanations
        results.remark(self.diagnostics)


@immutable(slots=False)
class Parameters:
    """Parameter totals."""

    report: Report

    def apply(self, results: Results) -> None:
        results.params = self.report
        results.remark(self.report.diagnostics)


@immutable(slots=False)
class Counted:
    """Costs by node and by row."""

    costs: Costs
    column: Column
    diagnostics: Sequence[Diagnostic]

    def apply(self, results: Results) -> None:
        results.costs = self.costs
        results.raw["flops"] = self.column
        results.refresh()
        results.remark(self.diagnostics)


@immutable(slots=False)
class Alive:
    """Live bytes over the steps, and the life of each storage."""

    lives: Lives
    diagnostics: Sequence[Diagnostic]
    measured: Measured | None = None

    def apply(self, results: Results) -> None:
        results.live, results.lives, results.measured = self.lives.live, self.lives, self.measured
        results.remark(self.diagnostics)
        results.refresh()


@immutable(slots=False)
class Summed:
    """All memory over the steps for sizes that were put in."""

    env: Mapping[str, int]
    measured: Measured | None

    def apply(self, results: Results) -> None:
        results.summed = (self.env, self.measured)
        results.refresh()


@immutable(slots=False)
class Shared:
    """Values that share a storage."""

    aliases: AliasSets

    def apply(self, results: Results) -> None:
        results.aliases = self.aliases


@immutable(slots=False)
class Folded:
    """Modules that are built alike."""

    folds: Folds

    def apply(self, results: Results) -> None:
        results.folds = self.folds


@immutable(slots=False)
class Failed:
    """A part that ended with an error; the others go on."""

    part: str
    error: IrscopeError

    def apply(self, results: Results) -> None:
        error = self.error
        text = f"{self.part}: {error.message}"
        results.failed.add(self.part)
        if isinstance(error, Cancelled):
            return
        results.diagnostics.append(Diagnostic(Severity.ERROR, error.code, text, location=error.where, hint=error.hint))


@immutable(slots=False)
class Finished:
    """Nothing more will come."""

    def apply(self, results: Results) -> None:
        results.finished = True
