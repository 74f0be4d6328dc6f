"""Addresses of all tensors in one arena."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import ClassVar, Literal

from irscope.amounts import Bytes, Seconds
from irscope.errors import PassError, UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph, Names
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes, size_hint
from irscope.passes.lifetimes.lives import label_of
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.order.effects import Effects
from irscope.passes.order.schedule import Draft, Schedule, ScheduleModel, draft
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Analysis, PassContext
from irscope.report.csvout import csv_lines
from irscope.report.picture import ticks
from irscope.report.plot import COLOURS
from irscope.report.printable import printable
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.solvers.place import OffsetPlan, greedy_by_size, held_by_arena, make_plan, overlap, reserved_by_torch, while_running

_OTHERS = (
    "online best fit is what ONNX Runtime's memory pattern does; largest first is TensorFlow Lite's planner; the other two ask "
    "ONNX Runtime's arena and PyTorch's CUDA allocator for each buffer when it is made, and free it after its last use"
)


@immutable(slots=False)
class Planned:
    """Buffers with their offsets; no two that are alive together share a byte."""

    draft: Draft
    buffers: list[Buffer]
    plan: OffsetPlan
    arena: int
    """The highest byte in use."""
    max_live: int
    """Most bytes alive at once, without rounding."""
    online: int
    """The arena where each buffer is placed when it is made, into the tightest gap."""
    greedy: int
    """The arena where the largest buffers are placed first."""
    held: int
    """Bytes that ONNX Runtime's arena takes from the device for the same requests."""
    reserved: int
    """Bytes that PyTorch's CUDA allocator reserves for them."""
    order: list[int]
    """Numbers of the draft's nodes in the order that the plan is for."""


@dataclass(frozen=True)
class Plan(Analysis[Planned]):
    """Assign every tensor an offset in one arena of minimal size."""

    name: ClassVar[str] = "plan"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    alignment: Bytes = 64
    """Every offset is a multiple of this many bytes."""
    seconds: Seconds = 10
    """CPU time to search; it ends sooner where the arena is as small as can be."""
    order: Literal["written", "scheduled"] = "written"
    """The order of the nodes: as written, or the one that schedule finds."""
    model: ScheduleModel = "ssa"
    """Lifetime model, as in schedule."""
    inputs: Literal["held", "freed"] = "held"
    """Whether the caller keeps the model's inputs, which then lie elsewhere, or gives them away."""
    seed: int = 0
    """Seed of the random part of the search."""

    def compute(self, graph: Graph, ctx: PassContext) -> Planned:
        if self.seconds < 0:
            raise UsageError(f"a search of {self.seconds:g} seconds is not possible", code="IRS354", hint="seconds=0 keeps what is quick")
        if self.alignment < 1:
            raise UsageError(f"an alignment of {self.alignment} bytes is not possible: it must be at least 1", code="IRS351")
        if self.order == "scheduled":
            scheduled = ctx.get(Schedule(model=self.model, seconds=self.seconds, seed=self.seed, inputs=self.inputs))
            found, order = scheduled.draft, scheduled.ordering.order
        else:
            lifetimes = ctx.get(Ranges(model=self.model))
            found = draft(graph, lifetimes, ctx.get(Alias()), ctx.get(Effects()), free_inputs=self.inputs == "freed")
            order = list(range(len(found.nodes)))
        if found.unsized:
            first = found.unsized[0].name or "unnamed"
            raise PassError(
                f"{len(found.unsized)} tensors have no known size, so they have no place; the first is {first}",
                code="IRS355",
                hint=size_hint(ctx.get(Shapes), found.unsized),
            )
        placed = buffers(found, order)
        lower, upper, size = [one.lower for one in placed], [one.upper for one in placed], [one.size for one in placed]
        plan = make_plan(lower, upper, size, self.alignment, self.seconds, self.seed)
        clash = overlap(lower, upper, size, plan.offsets)
        if clash is not None:
            raise PassError(f"buffers {placed[clash[0]].name} and {placed[clash[1]].name} overlap", code="IRS356")
        arena = max((offset + one.size for one, offset in zip(placed, plan.offsets, strict=True)), default=0)
        return Planned(
            found,
            placed,
            plan,
            arena,
            found.problem.peak(order),
            while_running(lower, upper, size, self.alignment),
            greedy_by_size(lower, upper, size, self.alignment),
            held_by_arena(lower, upper, size),
            reserved_by_torch(lower, upper, size),
            order,
        )

    def report(self, result: Planned, ctx: PassContext) -> Report:
        least = result.plan.max_live
        rows = [(one.name, one.lower, one.upper, one.size, offset) for one, offset in zip(result.buffers, result.plan.offsets, strict=True)]
        columns = [
            Column("name", Kind.VALUE),
            Column("lower", Kind.INDEX),
            Column("upper", Kind.INDEX),
            Column("size", Kind.BYTES),
            Column("offset", Kind.BYTES),
        ]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "arena_bytes": result.arena,
                "max_live_bytes": result.max_live,
                "max_live_aligned_bytes": least,
                "alignment": self.alignment,
                "above_max_live_ratio": result.plan.height / least - 1 if least else 0.0,
                "buffers": len(result.buffers),
                "other_planners": {
                    "online_best_fit_bytes": Quantity(result.online, Provenance.MODELLED),
                    "largest_first_bytes": Quantity(result.greedy, Provenance.MODELLED),
                    "onnxruntime_arena_bytes": Quantity(result.held, Provenance.MODELLED),
                    "pytorch_reserved_bytes": Quantity(result.reserved, Provenance.MODELLED),
                },
                "says": _says(result.plan),
            },
            units={"buffers": Kind.COUNT},
            tables=(Table.of(rows, columns=columns, title="buffers"),),
            coverage=Coverage(len(rows), len(rows)),
            notes=(
                CONVENTION,
                f"lifetimes as in schedule{{model={self.model}}}, nodes {'as written' if self.order == 'written' else 'as scheduled'}; "
                "a buffer lies from step lower up to, not including, step upper",
                _OTHERS,
                *self._held(),
            ),
        )

    def _held(self) -> tuple[str, ...]:
        return ("weights and inputs lie elsewhere",) if self.inputs == "held" else ("weights lie elsewhere",)


def _says(plan: OffsetPlan) -> str:
    if plan.proven:
        return "no arena can be smaller"
    below = f", none below {humanise(plan.bound, Kind.BYTES)}" if plan.bound > plan.max_live else ""
    return f"a smaller arena may exist{below}; searched by: {plan.solver}"


# Storages as buffers of one arena: from which step to which each lies there, as written or in the order that was found.


@immutable(slots=False)
class Buffer:
    """One stretch of the arena, from step `lower` up to, not including, `upper`."""

    name: str
    lower: int
    upper: int
    size: int


def buffers(draft: Draft, order: Sequence[int]) -> list[Buffer]:
    """Return the buffers in the order of their births, with what only exists inside a step."""
    place = [0] * len(order)
    for at, op in enumerate(order):
        place[op] = at
    found: list[Buffer] = []
    for storage, value in zip(draft.problem.storages, draft.values, strict=True):
        steps = [place[op] for op in storage.touches]
        lower = 0 if storage.is_input else min(steps)
        upper = len(order) if storage.is_output else max(steps) + 1
        found.append(Buffer(label_of(value), lower, upper, storage.size))
    for op, size in enumerate(draft.problem.workspace):
        if size:
            found.append(Buffer(f"inside {draft.nodes[op].name}", place[op], place[op] + 1, size))
    return sorted(found, key=lambda buffer: (buffer.lower, buffer.upper, buffer.name))


# The plan in files: MiniMalloc's table, JSON, and a map of addresses.

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 560, 90, 24, 38


def minimalloc_csv(planned: Planned) -> str:
    """Columns id, lower, upper, size, offset: what MiniMalloc and idealloc read and write. Every id is there once."""
    ids = Names()
    rows = (
        (ids.unique(buffer.name or "unnamed"), buffer.lower, buffer.upper, buffer.size, offset)
        for buffer, offset in zip(planned.buffers, planned.plan.offsets, strict=True)
    )
    return "".join(csv_lines(Table.of(rows, ["id", "lower", "upper", "size", "offset"])))


def plan_json(planned: Planned, alignment: int) -> str:
    """Return the plan as one document."""
    rows = [
        {"name": buffer.name, "lower": buffer.lower, "upper": buffer.upper, "size": buffer.size, "offset": offset}
        for buffer, offset in zip(planned.buffers, planned.plan.offsets, strict=True)
    ]
    document = {
        "schema": "irscope.plan/1",
        "arena_bytes": planned.arena,
        "max_live_bytes": planned.max_live,
        "alignment": alignment,
        "buffers": rows,
    }
    return json.dumps(document, indent=1) + "\n"


def address_map(planned: Planned) -> Iterator[str]:
    """Yield the lines of an SVG picture: steps from left to right, addresses from bottom to top, a rectangle a buffer; each tells its name
    when pointed at."""
    steps = max((buffer.upper for buffer in planned.buffers), default=1)
    arena = max(planned.arena, 1)
    width, height = _LEFT + _WIDTH + 10, _TOP + _HEIGHT + _BOTTOM
    title = f"arena of {humanise(planned.arena, Kind.BYTES)}, at most {humanise(planned.max_live, Kind.BYTES)} alive"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
    yield f'<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
    yield f'<text x="{_LEFT}" y="{_TOP - 8}">{escape(title)}</text>\n'
    for number, (buffer, offset) in enumerate(zip(planned.buffers, planned.plan.offsets, strict=True)):
        left, right = (_LEFT + _WIDTH * step / steps for step in (buffer.lower, buffer.upper))
        top, bottom = (_TOP + _HEIGHT * (1 - place / arena) for place in (offset + buffer.size, offset))
        words = f"{printable(buffer.name)}: {humanise(buffer.size, Kind.BYTES)} at {offset}, steps {buffer.lower} to {buffer.upper - 1}"
        yield (
            f'<rect x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" height="{bottom - top:.2f}" '
            f'fill="{COLOURS[number % len(COLOURS)]}" stroke="#ffffff" stroke-width="0.4"><title>{escape(words)}</title></rect>\n'
        )
    yield f'<path d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#000000"/>\n'
    for address, words in ticks(0, arena, Kind.BYTES):
        y = _TOP + _HEIGHT * (1 - address / arena)
        yield f'<path d="M{_LEFT - 4} {y:.1f}h4" stroke="#000000"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(words)}</text>\n'
    for step, words in ticks(0, steps, Kind.INDEX):
        x, below = _LEFT + _WIDTH * step / steps, _TOP + _HEIGHT
        yield f'<path d="M{x:.1f} {below}v4" stroke="#000000"/>'
        yield f'<text x="{x:.1f}" y="{below + 16}" text-anchor="middle">{escape(words)}</text>\n'
    yield f'<text x="{_LEFT + _WIDTH / 2:.1f}" y="{_TOP + _HEIGHT + 30}" text-anchor="middle">step</text>\n'
    yield "</svg>\n"
