"""What the forward of a training step keeps for its backward: how long it lies idle, and what it would take to compute it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final

from irscope.devices import DeviceProfile, target_of
from irscope.ir.dims import int_or_zero
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Facet, Graph
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.spec import Family
from irscope.passes.cost.bounds import Rates, rate_name
from irscope.passes.sizes import CONVENTION
from irscope.passes.training.memory import StepMemory, trace_in
from irscope.passkit.base import Analysis, PassContext
from irscope.report.csvout import csv_lines
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, quantity
from irscope.training import Piece, StepOp, Trace


class StepTimes:
    """Predicts times of operators, where none was measured; calls that look alike are worked out once."""

    def __init__(self, device: DeviceProfile, trace: Trace | None = None) -> None:
        """`trace` is that whose operators may have been measured."""
        self.device = device
        self.measured = trace.measured if trace is not None else {}
        self.measured_on = trace.measured_on if trace is not None else ""
        roofline = "calibrated roofline" if device.calibrated else "roofline"
        self._roofline = f"{roofline} of {device.name}"
        self.source = f"measured on {self.measured_on}" if self.measured else roofline
        self._rates = Rates(device)
        self._known: dict[int, tuple[object, float]] = {}

    @property
    def said(self) -> str:
        """Whose times these are, as tables of numbers say it."""
        return self.source if self.measured else self._roofline

    @property
    def note(self) -> str:
        """Return the same as a sentence."""
        if self.measured:
            return f"times were measured on {self.measured_on}; of operators without one they are bounds by the {self._roofline}"
        return f"times are bounds by the {self.source} of {self.device.title}, not measured"

    def said_of(self, op: StepOp) -> str:
        """Return the same for one operator: without a known cost only the bytes of its operands count."""
        if op.number in self.measured:
            return self.source
        is_counted = op.is_view or self.cost(op) is not None
        return self._roofline if is_counted else f"{self._roofline}, bytes alone"

    def of(self, op: StepOp) -> float:
        """Seconds of an operator: the slower of arithmetic and memory, and a launch. One without a known cost moves its operands."""
        measured = self.measured.get(op.number)
        if measured is not None:
            return measured
        if op.is_view or not any(piece.on_device for piece in (*op.reads, *op.writes)):
            return 0.0
        if op.call is None:
            return self._seconds(0.0, sum(piece.size for piece in (*op.reads, *op.writes)))
        cached = self._known.get(id(op.call))
        if cached is None:
            cached = self._known[id(op.call)] = (op.call, self._timed(op))
        return cached[1]

    def cost(self, op: StepOp) -> Cost | None:
        """Return what an operator computes and moves, where that is known."""
        return None if op.call is None or op.is_view else op.call.spec.cost_of(op.call)

    def _timed(self, op: StepOp) -> float:
        cost = self.cost(op)
        if cost is None:
            return self._seconds(0.0, sum(piece.size for piece in (*op.reads, *op.writes)))
        return self._seconds(self._arithmetic(op, cost), int_or_zero(cost.read) + int_or_zero(cost.written))

    def _seconds(self, arithmetic: float, moved: int) -> float:
        launch = self.device.launch.lo if self.device.launch is not None else 0.0
        memory = moved / self.device.bandwidth.hi if self.device.bandwidth is not None else 0.0
        return max(arithmetic, memory) + launch

    def _arithmetic(self, op: StepOp, cost: Cost) -> float:
        assert op.call is not None
        name = rate_name(_element_type(op))
        parts: list[float] = []
        if int_or_zero(cost.matmul):
            is_convolution = op.call.spec.family is Family.CONVOLUTION or OpRole.CONVOLUTION in op.call.spec.roles
            rate = self._rates.product(name, "convolution" if is_convolution else "")
            if rate is not None:
                parts.append(int_or_zero(cost.matmul) / rate[1].hi)
        for amount, speed in (
            (int_or_zero(cost.elementwise) + int_or_zero(cost.reduction), self._rates.vector(name)),
            (int_or_zero(cost.transcendental), self._rates.functions(name)),
        ):
            if amount and speed is not None:
                parts.append(amount / speed)
        return sum(parts) if self.device.kind == "cpu" else max(parts, default=0.0)


def _element_type(op: StepOp) -> DType:
    """Return the narrowest type with a fraction among operands and results."""
    assert op.call is not None
    floats = [
        type_.dtype for type_ in (*op.call.types, *op.call.results) if isinstance(type_, TensorType) and type_.dtype.kind is DTypeKind.FLOAT
    ]
    return min(floats, key=lambda dtype: dtype.bits or 64, default=DType.F32)


_MOST_OPERATORS = 10_000
"""Of one recomputation: further back it cannot be worth it."""


@dataclass(frozen=True)
class Kept:
    """One piece of memory that the forward makes and the backward needs; positions count the operators of the step."""

    piece: Piece
    created: int
    last_forward: int
    first_backward: int | None
    """None where nothing of the backward reads it: Python or autograd only holds it."""
    last_backward: int | None
    idle_seconds: float
    recompute_seconds: float | None
    """None where it cannot be computed again, as what it was made of has been written over."""
    recompute_bytes: int
    """Bytes that recomputing makes on the way, itself included."""
    recomputed: int
    """Operators that would run again."""
    needs_random_state: bool
    """True where some of them draw random numbers."""
    swap_seconds: float


def kept_pieces(trace: Trace, times: StepTimes, link: float) -> list[Kept]:
    """Return what the steady step keeps, in order of creation; `link` is in bytes a second."""
    return list(_Search(trace, times, link).run())


class _Search:
    def __init__(self, trace: Trace, times: StepTimes, link: float) -> None:
        self._span = trace.steady
        self._ops = trace.in_step(self._span)
        self._seconds = [times.of(op) for op in self._ops]
        self._clock = [0.0, *accumulate(self._seconds)]
        self._link = link
        self._trace = trace
        self._writers: dict[Piece, list[int]] = {}
        self._readers: dict[Piece, list[int]] = {}
        for at, op in enumerate(self._ops):
            if op.is_view:
                continue
            for piece in op.writes:
                self._writers.setdefault(piece, []).append(at)
            for piece in op.reads:
                self._readers.setdefault(piece, []).append(at)

    def run(self) -> Iterator[Kept]:
        """Yield each kept piece."""
        for piece in self._trace.pieces:
            if piece.category != "activation" or not piece.on_device or not piece.size:
                continue
            if piece.born is None or not self._span.first <= piece.born < self._span.end:
                continue
            yield self._kept(piece, piece.born - self._span.first)

    def _kept(self, piece: Piece, created: int) -> Kept:
        touched = sorted({*self._readers.get(piece, ()), *self._writers.get(piece, ())})
        forward = [at for at in touched if self._ops[at].phase == "forward"]
        backward = [at for at in self._readers.get(piece, ()) if self._ops[at].phase == "backward"]
        last = forward[-1] if forward else created
        first = next((at for at in backward if at > last), None)
        end = first if first is not None else self._death(piece)
        idle = max(self._clock[end] - self._clock[last + 1], 0.0)
        again = self._again(piece, last, end)
        seconds = None if again is None else sum(self._seconds[at] for at in again)
        made = {one for at in again or () for _, one in self._ops[at].makes}
        return Kept(
            piece,
            created,
            last,
            first,
            backward[-1] if first is not None else None,
            idle,
            seconds,
            max(sum(one.size for one in made if one.on_device), piece.size),
            len(again or ()),
            any(self._ops[at].is_random for at in again or ()),
            piece.size / self._link,
        )

    def _death(self, piece: Piece) -> int:
        died = self._span.end if piece.died is None else min(piece.died, self._span.end)
        return max(died - self._span.first, 0)

    def _again(self, piece: Piece, until: int, when: int) -> list[int] | None:
        """Operators to run again for a piece as it was after `until`, given what is alive at `when`; None where that is impossible."""
        needed: dict[int, None] = {}
        pending = [(piece, until)]
        seen: set[tuple[Piece, int]] = set()
        while pending:
            wanted, moment = pending.pop()
            if (wanted, moment) in seen:
                continue
            seen.add((wanted, moment))
            writers = [at for at in self._writers.get(wanted, ()) if at <= moment]
            if not writers:
                if not self._is_there(wanted, when):
                    return None
                continue
            for at in writers:
                if at in needed:
                    continue
                if self._ops[at].phase != "forward" or len(needed) >= _MOST_OPERATORS:
                    return None
                needed[at] = None
                pending += [
                    (source, at)
                    for source in self._ops[at].reads
                    if source is not wanted and source is not piece and not self._holds(source, at, when)
                ]
        return sorted(needed)

    def _is_there(self, piece: Piece, when: int) -> bool:
        return (piece.born is None or piece.born - self._span.first <= when) and self._death(piece) > when

    def _holds(self, piece: Piece, read: int, when: int) -> bool:
        """Return whether what was read is still there, unchanged."""
        if not self._is_there(piece, when):
            return False
        return not any(read < at < when for at in self._writers.get(piece, ()))


# Activations saved for the backward, storage by storage.

_GIGA = 1e9


@dataclass
class ActivationList:
    """Kept activations, with the source of their times."""

    kept: list[Kept]
    times: StepTimes
    link: float
    """Bytes a second."""


@dataclass(frozen=True)
class Activations(Analysis[ActivationList]):
    """List the tensors saved for the backward: how long each is unused, and the cost of recomputing or offloading it."""

    name: ClassVar[str] = "activations"
    reads: ClassVar[tuple[Facet, ...]] = ()

    top: int = 0
    """Rows to show, the longest unused first; 0: all in order of creation."""
    link: float = 55.0
    """Speed of the link to the host's memory in GB/s; PCIe 5.0 with 16 lanes reaches about 55."""

    def compute(self, graph: Graph, ctx: PassContext) -> ActivationList:
        trace = trace_in(ctx.program)
        times = StepTimes(target_of(ctx.settings).device, trace)
        link = max(self.link, 1e-9) * _GIGA
        return ActivationList(kept_pieces(trace, times, link), times, link)

    def report(self, result: ActivationList, ctx: PassContext) -> Report:
        kept = result.kept
        total = sum(one.piece.size for one in kept)
        unused = [one for one in kept if one.first_backward is None]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "activations_count": len(kept),
                "kept_bytes": total,
                "not_read_in_backward_bytes": sum(one.piece.size for one in unused),
                "longest_idle_seconds": Quantity(max((one.idle_seconds for one in kept), default=0.0), _MODELLED),
                "times": result.times.source,
                "device": result.times.device.name,
                "link": f"{result.link / _GIGA:g} GB/s",
            },
            tables=(_kept_table(result, self.top),),
            coverage=Coverage(sum(one.recompute_seconds is not None for one in kept), len(kept)),
            notes=(CONVENTION, result.times.note),
        )


_MODELLED = Provenance.MODELLED
_COLUMNS = (
    Column("name"),
    Column("size", Kind.BYTES),
    Column("created", Kind.INDEX),
    Column("last_forward_use", Kind.INDEX),
    Column("first_backward_use", Kind.INDEX, help="unknown where the backward only holds it"),
    Column("last_backward_use", Kind.INDEX),
    Column("idle", Kind.SECONDS, provenance=_MODELLED),
    Column("recompute", Kind.SECONDS, help="from what is kept", provenance=_MODELLED),
    Column("recompute_memory", Kind.BYTES, help="made on the way, itself included"),
    Column("recomputed_operators", Kind.COUNT),
    Column("random", Kind.BOOL, help="needs the state of the random generator"),
    Column("swap", Kind.SECONDS, help="over the link, one way", provenance=_MODELLED),
    Column("times"),
)


def _kept_table(result: ActivationList, top: int) -> Table:
    kept = sorted(result.kept, key=lambda one: -one.idle_seconds)[:top] if top else result.kept
    rows = [
        (
            one.piece.name,
            one.piece.size,
            one.created,
            one.last_forward,
            one.first_backward,
            one.last_backward,
            one.idle_seconds,
            one.recompute_seconds,
            one.recompute_bytes,
            one.recomputed,
            one.needs_random_state,
            one.swap_seconds,
            result.times.source,
        )
        for one in kept
    ]
    return Table.of(rows, _COLUMNS, "Activations kept for the backward")


# Profiles of a step as CSV: the columns that planners of checkpointing read, then the module of each row and whose time it is.
#
# Those planners call the time a median of runs. Here nothing runs: it is a roofline's, which the column `time_source` says. Where a peak
# contains a modelled workspace, a last column says which are `exact` and which `modelled`.

NODES: Final = "rank,node_name,node_type,gtype,median_run_time_s,median_peak_mem_bytes,median_active_mem_bytes,device,module,time_source"
ACTIVATIONS: Final = (
    "activation_name,creation_rank,last_fw_use_rank,first_bw_use_rank,last_bw_use_rank,median_mem_size_bytes,inactive_time_s,"
    "recomp_time_s,recomp_memory_bytes,module,time_source"
)
_TYPES: Final = {"activation": "activation", "gradient": "gradient", "optimizer state": "optimizer_state", "parameter": "parameter"}
NEVER: Final = -1
"""Stands where the backward does not read an activation, or nothing can compute it again: the columns hold numbers only."""
WHOLE: Final = "(model)"
"""Stands for the module of what belongs to no single one below the model, such as the loss and an optimizer's step over all parameters."""


def nodes_csv(memory: StepMemory, times: StepTimes) -> str:
    """Return a line for each operator of the step that needs most: its time, the most bytes allocated while it runs, and those after it, so
    that the largest is the headline. Times are those of the steady step, which does the same."""
    device = memory.target.device.name
    steady = {op.name: op for op in memory.trace.in_step(memory.trace.steady)}
    ops = [steady.get(op.name, op) for op in memory.ops]
    peaks = map(quantity, memory.moments.counted(memory.moments.allocated))
    rows = (
        (
            *(
                rank,
                op.name,
                _type_of(op),
                op.phase,
                _nine_digits(times.of(op)),
                Quantity(peak.value, peak.provenance),
                left,
                device,
                _module_path(op),
            ),
            times.said_of(op),
        )
        for rank, (op, peak, left) in enumerate(zip(ops, peaks, memory.moments.left, strict=True))
    )
    return _csv_text(NODES, rows)


def activations_csv(memory: StepMemory, kept: list[Kept], times: StepTimes) -> str:
    """Return a line for each activation that is kept for the backward."""
    ops = memory.trace.in_step(memory.trace.steady)
    rows = (
        (
            kept.piece.name,
            kept.created,
            kept.last_forward,
            NEVER if kept.first_backward is None else kept.first_backward,
            NEVER if kept.last_backward is None else kept.last_backward,
            kept.piece.size,
            _nine_digits(kept.idle_seconds),
            NEVER if kept.recompute_seconds is None else _nine_digits(kept.recompute_seconds),
            kept.recompute_bytes,
            _module_path(ops[kept.created]),
            times.said,
        )
        for kept in kept
    )
    return _csv_text(ACTIVATIONS, rows)


def _module_path(op: StepOp) -> str:
    return op.scope.module or WHOLE


def _type_of(op: StepOp) -> str:
    """Return what an operator makes or changes that outlives it."""
    for piece in op.writes:
        found = _TYPES.get(piece.category)
        if found is not None:
            return found
    return "other"


def _nine_digits(value: float) -> float:
    """Nine digits are more than a time has."""
    return float(f"{value:.9g}")


def _csv_text(header: str, rows: Iterable[Sequence[object]]) -> str:
    return "".join(csv_lines(Table.of(rows, header.split(","))))
