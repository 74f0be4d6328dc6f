"""What would lower a peak: changes that other passes compute, each with what it saves, what it costs, and the curve with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.report.cardtext import counted
from irscope.report.celltext import signed
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tui.amounts import Floats
from irscope.tui.charts import Beside, Ints
from irscope.tui.memory.lives import measured
from irscope.tui.memory.views import Verdict
from irscope.tui.rows import RowTexts, TableColumn, TableModel
from irscope.tui.text import Symbols

if TYPE_CHECKING:
    from irscope.ir.dim_arrays import Numbers
    from irscope.ir.graph import Node
    from irscope.passes.memory.curve import LifetimeModel
    from irscope.passkit.manager import Manager

_SEARCH = 4
"""Seconds that a search for an order or for what to recompute may take."""
_BUDGETS = 5
_MOST_CHANGES = 12
MOST_NODES = 20_000
"""Nodes of a model whose changes are tried one by one."""
_HALF = 2
_SCHEMES = ("int8", "nf4")
_SAME = "nothing: results stay the same"
_COSTS = {
    "exact": _SAME,
    "if the layout allows": "nothing, if the layout allows it",
    "needs a rewrite": "a rewrite of the source",
    "changes results": "results change",
}
"""Cost of a change of the source, by how sure it is that it can be made."""


@immutable(slots=False)
class WhatIf:
    """A change with the bytes at each step once it is made."""

    source: str
    """The pass that computes it."""
    what: str
    saves: Quantity
    """Of the peak that is shown."""
    peak: Quantity
    cost: str
    heights: Floats


@immutable(slots=False)
class Base:
    """The curve that is to be lowered."""

    manager: Manager
    lifetime: LifetimeModel
    steps: Sequence[Node]
    """The steps that are shown."""
    heights: Floats
    is_modelled: bool

    @property
    def peak(self) -> int:
        return int(self.heights.max(initial=0))

    def with_curve(self, source: str, what: str, cost: str, heights: Floats, *, is_exact: bool = False) -> WhatIf | None:
        """Return a change that leaves these heights; None where it does not lower the peak."""
        after = int(heights.max(initial=0))
        if after >= self.peak:
            return None
        where = Provenance.EXACT if is_exact and not self.is_modelled else Provenance.MODELLED
        return WhatIf(source, what, Quantity(self.peak - after, where), Quantity(after, where), cost, heights)


Source = Callable[[Base], Iterator["WhatIf | None"]]


def _changes(base: Base) -> Iterator[WhatIf | None]:
    """Changes of the source, alone and together, and half the width."""
    from irscope.passes.memory.explain_peak import ExplainPeak
    from irscope.passes.memory.liveness import Liveness

    found = base.manager.get(ExplainPeak(model=base.lifetime))
    live = base.manager.get(Liveness(model=base.lifetime))
    summed = measured(live, base.steps)
    # Of tensors alone the sum is exact; workspaces and rounding of an allocator are taken to stay as they are.
    is_exact = summed is None or summed.found.of == "tensor"
    before = found.alive()

    def after(alive: Numbers) -> Floats:
        saved: Floats = (before - alive).astype(np.float64)[_places(live.steps, base.steps)]
        return base.heights - saved

    for one in found.single[:_MOST_CHANGES]:
        change, heights = one.change, after(found.alive((one.change,)))
        if change.kind == "element type":
            halved = _weights_of_half_width(base)
            heights, what = heights - halved, "half the width, f16 or bf16: activations and weights"
            yield base.with_curve("explain-peak", what, _COSTS[change.sure], heights, is_exact=is_exact)
            continue
        times = len(change.edits) + len(change.steps)
        what = f"{change.what}{f', {times} times' if times > 1 else ''}"
        yield base.with_curve("explain-peak", what, _COSTS.get(change.sure, change.sure), heights, is_exact=is_exact)
    together = [one.change for one in found.together]
    if len(together) > 1:
        costs = dict.fromkeys(_COSTS.get(change.sure, change.sure) for change in together)
        what = f"{len(together)} changes together: {', '.join(change.what for change in together)}"
        cost = "; ".join(one for one in costs if one != _SAME or len(costs) == 1)
        yield base.with_curve("explain-peak", what, cost, after(found.alive(together)), is_exact=is_exact)


def _places(own: Sequence[Node], shown: Sequence[Node]) -> Ints:
    number = {node.name: place for place, node in enumerate(own)}
    return np.array([number.get(node.name, 0) for node in shown], dtype=np.int64)


def _weights_of_half_width(base: Base) -> float:
    """Return the bytes that weights take less in half the width."""
    from irscope.ir.dtypes import DType
    from irscope.ir.types import TensorType

    sizes = [
        one.type.nbytes
        for one in base.manager.program.graph.weights
        if isinstance(one.type, TensorType) and one.type.dtype in (DType.F32, DType.F64)
    ]
    return float(sum(size - size // _HALF for size in sizes if isinstance(size, int)))


def _unused(base: Base) -> Iterator[WhatIf | None]:
    """Yield the weights that nothing reads."""
    from irscope.passes.advice.advise import Advise

    for one in base.manager.get(Advise(topics=("unused",))).ranked:
        if isinstance(one.finding.memory, int):
            yield base.with_curve("advise", one.finding.what, _SAME, base.heights - one.finding.memory, is_exact=True)


def _schemes(base: Base) -> Iterator[WhatIf | None]:
    """Yield the weights in few bits."""
    from irscope.passes.weights.store_as import StoreAs

    for scheme in _SCHEMES:
        found = base.manager.get(StoreAs(scheme=scheme, measure="no"))
        cost = "results change by rounding; kernels may take more"
        yield base.with_curve(
            "store-as", f"store {counted(len(found.stored), 'weight')} as {scheme}", cost, base.heights - (found.before - found.after)
        )


def _orders(base: Base) -> Iterator[WhatIf | None]:
    """Yield another order, and recomputing what is cheap to compute."""
    from irscope.passes.order.transforms import Recompute

    found = base.manager.get(Recompute(seconds=_SEARCH))
    if found.draft.unsized:
        return
    problem, ordering, repeated = found.draft.problem, found.ordering, found.repeated
    written = np.array(problem.needs(range(len(problem))), dtype=np.float64)
    # What is there besides tensors, and what frames hold longer, is taken to be as little as it is at some step.
    beside = float((base.heights - resampled(written, len(base.heights))).min(initial=np.inf)) if len(written) else 0.0
    frees = "" if base.lifetime in ("ssa", "jit") else "tensors are freed right after their last use"
    scheduled = resampled(np.array(problem.needs(ordering.order), dtype=np.float64), len(base.heights)) + max(beside, 0.0)
    yield base.with_curve("reorder", "another order of the operators", frees or _SAME, scheduled)
    if repeated.spent:
        extra = f"{repeated.spent / found.flops:.1%} more arithmetic" if found.flops else f"{repeated.spent:,} FLOPs more"
        heights = resampled(np.array(repeated.needs, dtype=np.float64), len(base.heights)) + max(beside, 0.0)
        what = f"recompute {sum(repeated.again):,} results"
        yield base.with_curve("recompute", what, "; ".join(filter(None, (extra, frees))), heights)


def _checkpoints(base: Base) -> Iterator[WhatIf | None]:
    """Activations that the backward recomputes."""
    from irscope.passes.training.checkpoint import Checkpoint
    from irscope.solvers.checkpoint.simulate import Simulator

    found = base.manager.get(Checkpoint(points=_BUDGETS, seconds=_SEARCH))
    plans, whole = found.plans, found.plans.problem.seconds
    simulator = Simulator(plans.problem)
    beside = max(base.peak - plans.save_all.peak, 0)
    for one in sorted({one.peak: one for one in plans.planned}.values(), key=lambda one: one.peak):
        needs = resampled(np.array(simulator.rewrite(list(one.plan)).needs, dtype=np.float64), len(base.heights)) + beside
        again = sum(1 for number in plans.problem.saved if one.plan[number])
        what = f"checkpoint: recompute {again:,} of {len(plans.problem.saved):,} saved activations in the backward"
        longer = f"~{one.seconds / whole:.1%} more time a step" if whole else "more time"
        yield base.with_curve("checkpoint", what, longer, needs)


def resampled(heights: Floats, count: int) -> Floats:
    """Return a curve over another number of steps: each has the largest of those that fall into it, so that no peak vanishes."""
    if len(heights) == count or not len(heights) or not count:
        return heights if len(heights) == count else np.zeros(count, dtype=np.float64)
    starts = np.arange(count, dtype=np.int64) * len(heights) // count
    if len(heights) < count:
        return heights[starts]
    found: Floats = np.maximum.reduceat(heights, starts)
    return found


SOURCES: dict[str, Source] = {
    "changes of the source": _changes,
    "unused weights": _unused,
    "weights in few bits": _schemes,
    "orders": _orders,
}
"""Questions about a forward, each asked by itself."""
OF_TRAINING: dict[str, Source] = {"checkpointing": _checkpoints}
"""And of a step of training."""


# The list of them, and the one that is tried.


class WhatIfs:
    """All that was found, the largest saving first."""

    def __init__(self, symbols: Symbols, peak: str, asked: Sequence[str]) -> None:
        self.symbols = symbols
        self.peak = peak
        self.waiting = list(asked)
        self.failed: list[str] = []
        self.found: list[WhatIf] = []
        self.table = self._table()

    def take(self, name: str, found: Sequence[WhatIf] | IrscopeError) -> None:
        """Take the answer of one source."""
        self.waiting = [one for one in self.waiting if one != name]
        if isinstance(found, IrscopeError):
            self.failed.append(f"{name}: {self.symbols.clean(found.message)}")
        else:
            self.found = sorted([*self.found, *found], key=lambda one: -float(str(one.saves.value)))
        self.table = self._table()

    def _table(self) -> TableModel:
        found, clean = self.found, self.symbols.clean

        def size(number: Quantity) -> str:
            return clean(signed(number, Kind.BYTES))

        columns = (
            TableColumn("what would lower the peak", 30, lambda row: clean(found[row].what), grows=True, role="name"),
            TableColumn("saves", 12, lambda row: size(found[row].saves), lambda: _as_floats(one.saves for one in found), right=True),
            TableColumn(
                "peak then", 12, lambda row: size(found[row].peak), lambda: _as_floats(one.peak for one in found), right=True, rank=1
            ),
            TableColumn("costs", 26, lambda row: clean(found[row].cost), grows=True, rank=2),
            TableColumn("pass", 12, lambda row: found[row].source, rank=3, role="operator"),
        )
        empty = f"looking for {', '.join(self.waiting)}" if self.waiting else "; ".join(["nothing lowers this peak", *self.failed])
        return TableModel(columns, len(found), self.symbols, empty=empty)

    def set_filter(self, text: str) -> None:
        """Show only those in which all words occur."""
        self.table.filter_words(text, RowTexts(f"{one.what} {one.cost} {one.source}" for one in self.found).containing)

    def title(self) -> str:
        """Return the title of the list."""
        parts = [f"What would lower the peak of {self.peak}: {len(self.found):,} found"]
        parts += [f"looking for {', '.join(self.waiting)}"] if self.waiting else []
        parts += self.failed
        return self.symbols.glyphs.separator.join([*parts, "enter tries one, esc goes back"])

    def chosen(self) -> WhatIf | None:
        """Return the change that the cursor is on."""
        return None if self.table.selected is None else self.found[self.table.selected]

    def export(self) -> Table:
        """Return the list."""
        rows = [(one.what, one.saves, one.peak, one.cost, one.source) for one in self.found]
        columns = [Column("what"), Column("saves", Kind.BYTES), Column("peak_then", Kind.BYTES), Column("costs"), Column("pass")]
        return Table.of(rows, columns=columns, title="what would lower the peak")


def _as_floats(cells: Iterator[Quantity]) -> Floats:
    return np.array([float(str(one.value)) for one in cells], dtype=np.float64)


class BeforeAfter(Beside):
    """Bytes at each step before a change and after it."""

    def __init__(self, before: Floats, one: WhatIf) -> None:
        parts = ("with it", "saved", "more than before")
        super().__init__(("before", "then"), (before, one.heights), parts=parts, modelled=one.peak.provenance is not Provenance.EXACT)
        self.one = one


def tried_text(one: WhatIf, verdict: Verdict | None) -> str:
    """Return a sentence on the effect of a change that is tried, and whether the model would fit then."""
    saves, peak = signed(one.saves, Kind.BYTES), signed(one.peak, Kind.BYTES)
    text = f"what if: {one.what}: {peak} at the peak, {saves} less; costs: {one.cost}"
    if verdict is not None and verdict.needed is not None and verdict.room is not None:
        left = verdict.room - (verdict.needed - int(str(one.saves.value)))
        # What is reserved beyond the peak is taken to stay as it is.
        about = humanise(abs(left), Kind.BYTES)
        text += f"; {'fits' if left >= 0 else 'does NOT fit'} on {verdict.device} then: ~{about} {'left' if left >= 0 else 'too much'}"
    return text
