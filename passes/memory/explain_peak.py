"""Which few changes would lower the peak most, each computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from irscope.immutable import immutable, mutable
from irscope.ir.dim_arrays import Evaluator, Numbers
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Facet, Graph
from irscope.ir.program import Runtime
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.changes import COPY, IN_PLACE, NARROW, RELEASE, UNWRAP, Change, Finder, Heights, user_line
from irscope.passes.lifetimes.timeline import Footprint
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.curve import LifetimeModel
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import check_known
from irscope.passes.sizes import typical
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind

_TOGETHER = 12
_NOTES = {
    IN_PLACE: "in place: nothing reads the operand afterwards, so the result may take its memory",
    RELEASE: "del: right after the last use, where no other variable holds the tensor; files do not show what the source already deletes",
    UNWRAP: "an input of a call: Python holds it until the call returns; the caller has to run the parts itself, or hand it over in a list",
    COPY: "no copy: what comes before has to leave the elements in the order that is wanted here",
}


@immutable(slots=False)
class Advice:
    """One change with what it leaves."""

    change: Change
    peak: int
    """The peak with this change, and with those before it where several are made."""
    saves: int
    """Bytes below the peak without any change."""


@mutable
class PeakAdvice:
    """Changes that would lower the peak."""

    peak: int
    lower_bound: int
    single: list[Advice]
    """Each change alone, the best first; those that save nothing are left out."""
    together: list[Advice]
    """Changes that add up, the next best each time; computing in half the width is not among them."""
    tried: int
    at: dict[str, int]
    """Sizes that open symbols were taken to have."""
    node: str = ""
    """The node at the activation peak."""
    footprint: Footprint | None = None
    heights: Heights | None = field(default=None, repr=False)

    def alive(self, changes: Sequence[Change] = ()) -> Numbers:
        """Bytes at each step once changes are made."""
        assert self.heights is not None
        return self.heights.alive(changes)


@dataclass(frozen=True)
class ExplainPeak(Analysis[PeakAdvice]):
    """List the changes of the model's source that lower the memory peak most, with the computed peak of each."""

    name: ClassVar[str] = "explain-peak"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: LifetimeModel = "auto"
    """Lifetime model, as in liveness."""
    top: int = 10
    """Changes listed, 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> PeakAdvice:
        timeline = ctx.get(Liveness(model=self.model))
        check_known(timeline, ctx.get(Shapes()))
        lifetimes = ctx.get(Ranges(model=self.model))
        at = _sizes_of_symbols([one.size for one in lifetimes.ranges])
        evaluator = Evaluator({name: [size] for name, size in at.items()})
        inside = {step: int(evaluator.at(size)[0]) for step, size in lifetimes.inside.items()}
        sizes = evaluator.rows([one.size for one in lifetimes.ranges])[:, 0]
        heights = Heights(lifetimes.ranges, sizes, inside, len(lifetimes.steps))
        torch = ctx.program.traits.runtime is Runtime.TORCH
        finder = Finder(lifetimes.steps, lifetimes.ranges, ctx.get(Alias()), ctx.get(Shapes), torch=torch)
        # ONNX Runtime plans its buffers itself, whatever the source says.
        changes = finder.changes(inside) if lifetimes.model != "ort" else finder.narrower()
        peak = _peak_after(heights, ())
        single = []
        for change in ctx.each(_touching(heights, changes, ()), "trying changes"):
            found = _peak_after(heights, (change,))
            if found < peak:
                single.append(Advice(change, found, peak - found))
        single.sort(key=lambda one: -one.saves)
        together = _together(heights, [change for change in changes if change.kind != NARROW], peak)
        bound = int(evaluator.at(timeline.lower_bound)[0])
        node = timeline.steps[timeline.peak_step].name if timeline.steps else ""
        return PeakAdvice(peak, bound, single, together, len(changes), at, node, timeline.footprint, heights)

    def report(self, result: PeakAdvice, ctx: PassContext) -> Report:
        best = result.together[-1].peak if result.together else result.peak
        footprint = result.footprint
        notes = [] if footprint is None else [footprint.note, _changed(footprint, result.node)]
        notes += ["a change counts wherever its line of source runs; savings of single changes do not add up"]
        notes += [note for kind, note in _NOTES.items() if any(advice.change.kind == kind for advice in (*result.single, *result.together))]
        if result.at:
            sizes = ", ".join(f"{name}={size}" for name, size in result.at.items())
            notes.append(f"computed with {sizes}; bind symbols for other sizes")
        if not result.single:
            notes.append(f"nothing helps: none of the {result.tried} changes that were tried lowers the peak")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                **({} if footprint is None else footprint.summary()),
                "activation_peak_bytes": result.peak,
                "with_all_changes_bytes": best,
                "lower_bound_bytes": result.lower_bound,
                "tried": result.tried,
                "helpful": len(result.single),
            },
            tables=(
                _advice_table(result.single[: self.top or None], "each change alone"),
                _advice_table(result.together, "changes that add up"),
            ),
            units={"device_peak": Kind.BYTES, "tensor_peak": Kind.BYTES},
            notes=tuple(notes),
        )


def _changed(footprint: Footprint, node: str) -> str:
    """Return which of the two peaks the changes are computed for."""
    where = f"{node}, where the {footprint.of}'s is too" if footprint.peak_node is not None and footprint.peak_node.name == node else node
    return f"changes and what they save are computed for the activation peak: tensors beyond weights and inputs, at {where or 'no node'}"


def _together(heights: Heights, changes: Sequence[Change], peak: int) -> list[Advice]:
    """Return the best change, then the best beside it, and so on, up to the last that lowers the peak.

    Where several steps are equally high each may need a change of its own: then one counts that leaves fewer such steps.
    """
    chosen: list[Change] = []
    found: list[Advice] = []
    reached = _summit(heights, ())
    while len(found) < _TOGETHER:
        left = [change for change in _touching(heights, changes, chosen) if change not in chosen]
        lowered, at = min(((_summit(heights, (*chosen, change)), place) for place, change in enumerate(left)), default=(reached, 0))
        if lowered >= reached:
            break
        reached = lowered
        chosen.append(left[at])
        found.append(Advice(chosen[-1], reached[0], peak - reached[0]))
    while found and found[-1].peak == (found[-2].peak if len(found) > 1 else peak):
        found.pop()
    return found


def _summit(heights: Heights, changes: Sequence[Change]) -> tuple[int, int]:
    """Return the peak, and how many steps reach it."""
    alive = heights.alive(changes)
    if not len(alive):
        return 0, 0
    peak = int(alive.max())
    return peak, int((alive == peak).sum())


def _touching(heights: Heights, changes: Sequence[Change], made: Sequence[Change]) -> list[Change]:
    """Changes of something that is alive at the peak: no other can lower it."""
    alive = heights.alive(made)
    if not len(alive):
        return []
    step = int(alive.argmax())
    return [change for change in changes if heights.touches(change, step)]


def _peak_after(heights: Heights, changes: Sequence[Change]) -> int:
    alive = heights.alive(changes)
    return int(alive.max()) if len(alive) else 0


def _sizes_of_symbols(sizes: Sequence[Dim]) -> dict[str, int]:
    symbols = {str(symbol): symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols()}
    return {name: typical(symbols[name]) for name in sorted(symbols)}


def _advice_table(advice: Sequence[Advice], title: str) -> Table:
    columns = [
        Column("change"),
        Column("saves_bytes", Kind.BYTES, "saves"),
        Column("peak_bytes", Kind.BYTES, "activations then"),
        Column("times", Kind.COUNT),
        Column("where"),
        Column("module"),
        Column("sure"),
    ]
    rows = []
    for one in advice:
        change = one.change
        node = change.node
        loc = user_line(node.loc) if node is not None and node.loc is not None else None
        place = "" if loc is None else f"{loc.file.replace(chr(92), '/').rpartition('/')[2]}:{loc.line}"
        times = len(change.edits) + len(change.steps)
        rows.append((change.what, one.saves, one.peak, times, place, node.scope.path if node is not None else "", change.sure))
    return Table.of(rows, columns=columns, title=title)
