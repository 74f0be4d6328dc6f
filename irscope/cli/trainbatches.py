"""`irscope train-plan` over sizes of the batch: peaks by size, and the largest that fits, with and without recomputing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from irscope import __version__
from irscope.amounts import parse_bytes, read_size
from irscope.cli.args import load_options
from irscope.cli.training import memory_of, opened
from irscope.errors import UsageError
from irscope.memory.checkpointing.solve import CheckpointPlanner, Planned
from irscope.passes.cuda.moments import ROUNDING
from irscope.passes.cuda.result import Counter
from irscope.passes.training.needed import trace_in
from irscope.passes.training.recompute import step_problem
from irscope.passes.training.replayed import StepMemory
from irscope.passes.training.times import StepTimes
from irscope.report.report import Document, Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived, largest
from irscope.session import Model
from irscope.training.trace import CATEGORIES

_MOST_BATCH = 1 << 16
_MOST_PLANS = 10
"""Sizes that are planned at most; each is captured and searched."""
_COUNTERS: tuple[Counter, ...] = ("requested", "allocated", "reserved")
_STRETCH = 64
"""How many times a size that fits the next guess may be."""


@dataclass(frozen=True)
class Size:
    """A size of the batch when something is recomputed."""

    batch: int
    kept: Quantity
    """Reserved bytes when everything is kept."""
    step_seconds: float
    planned: Planned | None
    """None where no plan can be within the budget."""
    room: Quantity
    """Bytes for tensors: the memory without what the allocator and workspaces take besides."""
    needed: Quantity
    """Bytes that it needs at least, besides included: by the plan found, or by the bound."""

    @property
    def least(self) -> int:
        """The same as a number to search by."""
        assert isinstance(self.needed.value, int)
        return self.needed.value

    @property
    def fits(self) -> bool:
        """Whether a plan was found."""
        return self.planned is not None and self.planned.met


def swept(args: argparse.Namespace) -> tuple[Document, dict[int, Model], tuple[Series, ...]]:
    """The step at several sizes of the batch, each captured anew; and the largest batch that fits.

    The models are those of the sizes that were asked for, or that of the largest batch that fits.
    """
    wanted = _batches(args.batches) if args.batches else []
    captures = _Captures(args, wanted)
    for batch in wanted or captures.starts():
        captures.needs(batch)
    summary: dict[str, object] = {}
    tables: list[Table] = []
    shown = wanted
    if args.memory:
        room = parse_bytes(args.memory)
        most, above = _search(room, captures.needs, captures.known())
        summary |= {
            "memory_bytes": room,
            "largest_batch": derived(most, *captures.decisive(most, above)),
            "largest_batch_reserved_bytes": captures.reserved(most or above),
        }
        sizes = _planned_sizes(captures, room, most, args.seconds)
        tables.append(_plans(sizes))
        summary |= _with_recomputing(sizes, most)
        shown = wanted or [most or above]
    models = {batch: captures.model(batch) for batch in shown}
    model = next(iter(models.values()))
    trace = trace_in(model.program)
    summary = {"optimizer": trace.optimizer, "device": memory_of(model).target.device.name, **summary}
    table, series = _peaks({batch: captures.found[batch] for batch in wanted or sorted(captures.found)})
    notes = (
        "with recomputing: peaks of tensors by plans, and what the kept step takes besides (workspaces, rounding by the allocator)",
        "a size for which no plan was found may still have one; --seconds gives the search more time",
    )
    report = Report(
        "training",
        options="training",
        summary=summary,
        tables=(*tables, table),
        series=(series,),
        notes=notes if args.memory else (),
    )
    info = replace(model.info(), bind=dict(load_options(args).bind))
    return Document(__version__, info, (model.marked(report),)), models, (series,)


class _Captures:
    """Steps by size of the batch, each captured once."""

    def __init__(self, args: argparse.Namespace, wanted: Collection[int]) -> None:
        self.args = args
        self.found: dict[int, StepMemory] = {}
        self._wanted = wanted
        self._models: dict[int, Model] = {}

    def starts(self) -> list[int]:
        """Where to begin when the user names no sizes."""
        bound = dict(part.split("=", 1) for text in self.args.bind for part in text.split(",") if "=" in part).get("batch", "")
        first = read_size(bound) or 4
        return [first, 2 * first]

    def memory(self, batch: int) -> StepMemory:
        """The step's memory at a size."""
        if batch not in self.found:
            model = opened(self.args, batch)
            self.found[batch] = memory_of(model)
            if batch in self._wanted:
                self._models[batch] = model
        return self.found[batch]

    def model(self, batch: int) -> Model:
        """The step at a size; one that was only tried on the way to another is captured again."""
        return self._models.get(batch) or opened(self.args, batch)

    def needs(self, batch: int) -> int:
        """Reserved bytes, the most of all steps."""
        return max(step.peak.reserved for step in self.memory(batch).steps)

    def reserved(self, batch: int) -> Quantity:
        """The same with where it comes from."""
        return self.memory(batch).worst("reserved")

    def decisive(self, *batches: int) -> list[Quantity]:
        """What the search for the largest batch hung on: what was needed on both sides of the limit."""
        return [self.reserved(batch) for batch in batches if batch in self.found]

    def known(self) -> dict[int, int]:
        """What was captured so far."""
        return {batch: self.needs(batch) for batch in self.found}


def _batches(text: str) -> list[int]:
    sizes = [read_size(part) or 0 for part in text.split(",")]
    if not all(0 < size <= _MOST_BATCH for size in sizes):
        raise UsageError(f"--batches wants numbers such as 4,8,16, not {text!r}", code="IRS386")
    return sorted(set(sizes))


def _peaks(found: dict[int, StepMemory]) -> tuple[Table, Series]:
    rows = [
        (
            batch,
            *[memory.counter(counter) for counter in _COUNTERS],
            *memory.at_peak().values(),
        )
        for batch, memory in found.items()
    ]
    columns = (
        Column("batch", Kind.COUNT),
        *[Column(name, Kind.BYTES) for name in _COUNTERS],
        *[Column(category.replace(" ", "_"), Kind.BYTES, help="of what is allocated at the peak") for category in (*CATEGORIES, ROUNDING)],
    )
    series = Series(
        "Peak by batch",
        Column("batch", Kind.COUNT),
        tuple(Column(counter, Kind.BYTES) for counter in _COUNTERS),
        {"batch": list(found), **{counter: [memory.counter(counter) for memory in found.values()] for counter in _COUNTERS}},
        stacked=False,
        sampled=True,
    )
    return Table.of(rows, columns, "Peak of the steady step by batch"), series


def _search(room: int, needs: Callable[[int], int], known: dict[int, int], most: int = 0) -> tuple[int, int]:
    """The largest size that needs no more than the room, and the smallest known one that needs more.

    0 stands for none. Memory grows nearly in proportion, so the next size is where the line through two known ones meets the limit.
    """
    known = dict(known)
    turn = 0
    while not most or turn < most:
        low = max((batch for batch in known if known[batch] <= room), default=0)
        high = min((batch for batch in known if known[batch] > room and batch > low), default=0)
        if (high and high - low <= 1) or low >= _MOST_BATCH:
            break
        near = sorted(known, key=lambda batch: (abs(known[batch] - room), batch))[:2]
        guess = (low + high) // 2 if high else 2 * low
        # Where the line misleads again and again, the middle gets there.
        if len(near) == 2 and turn % 4 != 3:
            slope = (known[near[1]] - known[near[0]]) / (near[1] - near[0])
            if slope > 0:
                guess = near[0] + int((room - known[near[0]]) // slope)
        guess = max(guess, low + 1)
        guess = min(guess, high - 1) if high else min(guess, _STRETCH * max(1, low), _MOST_BATCH)
        known[guess] = needs(guess)
        turn += 1
    low = max((batch for batch in known if known[batch] <= room), default=0)
    return low, min((batch for batch in known if known[batch] > room and batch > low), default=0)


def _planned_sizes(captures: _Captures, room: int, kept: int, seconds: float) -> list[Size]:
    """Sizes for which plans were searched, from the largest that fits without; the last that fits is as large as could be found."""
    sizes: dict[int, Size] = {}

    def needs(batch: int) -> int:
        sizes[batch] = _size(captures, batch, room, seconds)
        # A size whose plan is within its budget fits, whatever lower peaks there are.
        return min(sizes[batch].least, room) if sizes[batch].fits else max(sizes[batch].least, room + 1)

    first = max(1, kept)
    known = {first: needs(first)}
    if sizes[first].fits:
        known[2 * first] = needs(2 * first)
        known = {batch: sizes[batch].least if sizes[batch].fits else known[batch] for batch in known}
    _search(room, lambda batch: _lowest(needs, sizes, batch), known, _MOST_PLANS - len(known))
    return [sizes[batch] for batch in sorted(sizes)]


def _lowest(needs: Callable[[int], int], sizes: dict[int, Size], batch: int) -> int:
    value = needs(batch)
    return sizes[batch].least if sizes[batch].fits else value


def _size(captures: _Captures, batch: int, room: int, seconds: float) -> Size:
    """Plan a size: first with baseline planners find, then with the time that is allowed."""
    memory = captures.memory(batch)
    problem = step_problem(memory.trace, StepTimes(memory.target.device).of).problem
    planner = CheckpointPlanner(problem)
    kept = captures.reserved(batch)
    besides = largest([0, kept - planner.save_all.peak])
    budget, floor = room - max(0, captures.needs(batch) - planner.save_all.peak), planner.bounds.floor.bytes
    if budget < floor:
        return Size(batch, kept, problem.seconds, None, room - besides, floor + besides)
    planned = planner.plan(budget, seconds=seconds)
    return Size(batch, kept, problem.seconds, planned, room - besides, planner.archive.lowest.cost.peak + besides)


def _with_recomputing(sizes: list[Size], kept: int) -> dict[str, object]:
    best = max((size for size in sizes if size.fits), key=lambda size: size.batch, default=None)
    reasons = [size.kept for size in sizes]
    if best is None or best.planned is None:
        return {"largest_batch_recomputing": derived(kept, *reasons)}
    above = min((size.batch for size in sizes if not size.fits and size.batch > best.batch), default=None)
    return {
        "largest_batch_recomputing": derived(best.batch, *reasons),
        "recomputing_peak_bytes": derived(best.planned.peak, *reasons),
        "recomputing_extra_seconds": Quantity(best.planned.seconds, Provenance.MODELLED),
        "recomputing_extra_ratio": Quantity(best.planned.seconds / best.step_seconds if best.step_seconds else None, Provenance.MODELLED),
        "no_plan_found_for_batch": derived(above, *reasons),
    }


def _plans(sizes: list[Size]) -> Table:
    modelled = Provenance.MODELLED
    columns = (
        Column("batch", Kind.COUNT),
        Column("fits", Kind.BOOL),
        Column("kept", Kind.BYTES, help="reserved when everything is kept"),
        Column("room", Kind.BYTES, help="for tensors: the memory without workspaces and rounding"),
        Column("planned_peak", Kind.BYTES, help="of tensors; unknown where no plan can be within the memory"),
        Column("extra", Kind.SECONDS, provenance=modelled),
        Column("extra_share", Kind.RATIO, provenance=modelled),
        Column("least_needed", Kind.BYTES, help="by the lowest plan found, or by the bound, with workspaces and rounding"),
        Column("method"),
    )
    rows = []
    for size in sizes:
        one = size.planned
        share = one.seconds / size.step_seconds if one is not None and size.step_seconds else None
        rows.append(
            (
                size.batch,
                derived(size.fits, size.kept),
                size.kept,
                size.room,
                derived(one.peak if one is not None else None, size.room),
                one.seconds if one is not None else None,
                share,
                size.needed,
                derived(one.method if one is not None else "the bound", size.room),
            )
        )
    return Table.of(rows, columns, "Sizes that were planned")
