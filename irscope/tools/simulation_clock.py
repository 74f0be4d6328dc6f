"""The clock of a simulated program: its streams are queues, waits and events order them, the host takes its own time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from irscope.devices import DeviceProfile
from irscope.immutable import immutable, mutable
from irscope.ir.dims import int_or_zero
from irscope.ir.dtypes import DTypeKind
from irscope.ir.types import TensorType
from irscope.memory.caching.device import Event
from irscope.memory.tape import Action, Queued, Ran, Sent, Tape
from irscope.passes.cost.bounds import Rates, rate_name, saved
from irscope.passes.cost.clock import Clock, clock_of, constants, missing_figure
from irscope.passes.cost.kernels import Kernel, KernelClass, Use, kernel_of
from irscope.report.steps import alike
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

HOST: Final = -1
"""The row of a timeline that is the host's."""
BEFORE: Final = "before"
"""The name of what comes before the first step."""
_SHARES: Final = {
    "all_reduce": 2.0,
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), 1.0),
}
"""Number of times that a ring moves the bytes of a collective, as n - 1 of n parts; all others move them once."""
_LATENCY: Final = 5e-6
"""Seconds for each step of a ring: NCCL's of some microseconds over NVLink, https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""


@immutable
class Interval:
    """Something on a stream, or on the host, from when to when."""

    stream: int
    label: str
    start: float
    seconds: float
    sends: bool = False


@mutable
class ClockedStep:
    """One step, or all of a program that has none."""

    name: str
    seconds: float
    low: float
    high: float
    """Infinite where an operator of the step is not known."""
    compute: float = 0.0
    """Seconds of kernels on all streams, collectives left out."""
    sending: float = 0.0
    exposed: float | None = None
    """Seconds in which a stream waits for a collective and computes nothing; None where the speed of the link is not known."""
    waits_for_host: float = 0.0
    host: float = 0.0
    """Seconds of the host for all operators."""
    flops: float = 0.0
    least: dict[int, float] = field(default_factory=dict)
    """By stream, seconds that its kernels surely take: the step cannot be shorter."""
    weights: float = 0.0
    """Bytes of the right sides of plain matrix products, such as the weights of linear layers."""


@mutable
class Clocked:
    """The times of a simulated program."""

    device: DeviceProfile
    steps: list[ClockedStep] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """Operators whose kernels are not known, with the number of calls: they count as nothing."""
    missing: str = ""
    """The figure of the device without which there are no times."""
    ends: list[tuple[int, float]] = field(default_factory=list)
    """By step, the number of requests behind which it ends, and the seconds from the beginning."""
    unsent: int = 0
    """Collectives whose time is not known, as the speed of the link is not."""

    @property
    def exposed(self) -> float | None:
        """Return the seconds in which streams wait for collectives; None where that is not known."""
        known = [step.exposed for step in self.steps if step.exposed is not None and step.name != BEFORE]
        return None if self.missing or self.unsent else sum(known)


def ring_seconds(sent: Sent, link: float) -> float:
    """Return the time of a collective as a ring over the slowest link: its part of the bytes, and a latency for each step."""
    ranks = len(sent.members)
    if ranks < 2:
        return 0.0
    times = _SHARES.get(sent.label, 1.0)
    part = (ranks - 1) / ranks if sent.label in _SHARES else 1.0
    return times * part * sent.bytes / link + _LATENCY * max(math.log2(ranks), 1.0)


def clocked(tape: Tape[object], device: DeviceProfile, ends: Sequence[tuple[str, int]], link: float) -> Clocked:
    """Time what stands in the queues of a tape; `ends` has the steps, each with the number of requests behind which it ends."""
    clock = clock_of(device, "training" if any(phase == "backward" for _, phase in tape.phases) else "eager")
    if clock is None:
        return Clocked(device, missing=missing_figure(device))
    return _Clockwork(clock, tape, link).run(ends)


@immutable
class _Duration:
    """A call in a queue; nothing of it is known where it has no kind."""

    seconds: float = 0.0
    least: float = 0.0
    flops: float = 0.0
    kind: KernelClass | None = None
    weights: float = 0.0


class _Clockwork:
    """Streams, each with the time at which it is done with all that was queued so far."""

    def __init__(self, clock: Clock, tape: Tape[object], link: float) -> None:
        self.clock = clock
        self.tape = tape
        self.link = link
        self.found = Clocked(clock.device)
        self.ends: dict[int, float] = {}
        self.host = 0.0
        self.moments: dict[tuple[int, int], tuple[float, bool]] = {}
        """Completion time of each event, with True where it stands behind a collective."""
        self.sends: dict[int, bool] = {}
        """True for each stream whose last work was a collective."""
        self.seconds = self._durations()
        self.is_open = False

    def _durations(self) -> Mapping[int, _Duration]:
        """Return the duration of everything in the queues by its identity: equal calls are one object."""
        single = {id(queued.what): queued.what for queued in self.tape.queue if isinstance(queued.what, Ran)}
        kernels = {key: kernel_of_ran(what) for key, what in single.items()}
        known = {key: kernel for key, kernel in kernels.items() if kernel is not None}
        times: Sequence[float] = self.clock.durations(list(known.values()), [0.0] * len(known)).tolist() if known else []
        durations = dict.fromkeys(single, _Duration())
        rates = Rates(self.clock.device, "all")  # a program may have asked for TF32
        for (key, kernel), seconds in zip(known.items(), times, strict=True):
            least = least_of_ran(single[key], rates)
            weights = kernel.n * kernel.k * kernel.bits / 8 if kernel.kind is KernelClass.PRODUCT else 0.0
            durations[key] = _Duration(max(seconds, least), least, kernel.flops, kernel.kind, weights)
        return durations

    def run(self, ends: Sequence[tuple[str, int]]) -> Clocked:
        """Let everything run, and cut at the ends of steps."""
        actions, at = self.tape.actions, 0
        queue, place = self.tape.queue, 0
        before = 0.0
        for name, end in ends:
            step = self._begin(name)
            while place < len(queue) and queue[place].events <= end:
                work = queue[place]
                while at < min(work.actions, len(actions)):
                    self._act(actions[at], step)
                    at += 1
                self._queue(work, step)
                place += 1
            while at < len(actions) and actions[at].at <= end:
                self._act(actions[at], step)
                at += 1
            now = max([self.host, *self.ends.values()])
            self._end(step, now - before)
            self.found.ends.append((end, now))
            before = now
        return self.found

    def _begin(self, name: str) -> ClockedStep:
        self.is_open = False
        return ClockedStep(name, 0.0, 0.0, 0.0, exposed=0.0)

    def _end(self, step: ClockedStep, seconds: float) -> None:
        step.seconds = seconds
        step.low, high = self.clock.limits(seconds, max(step.least.values(), default=0.0))
        step.high = math.inf if self.is_open else high
        self.found.steps.append(step)

    def _queue(self, work: Queued, step: ClockedStep) -> None:
        """Let something run once its stream and the host are there."""
        what, stream = work.what, work.stream
        if isinstance(what, Event):
            self.moments[what.stream, what.at] = self.ends.get(stream, 0.0), self.sends.get(stream, False)
            return
        costs = constants().host_seconds
        if isinstance(what, Sent):
            self._start(what.label, costs["operator"], step)
            self._send(what, stream, step)
            return
        found = self.seconds[id(what)]
        kind = found.kind
        self._start(what.label, costs["compiled" if what.is_generated else "view" if kind is KernelClass.HOST else "operator"], step)
        if kind is None:
            self.found.unknown[what.label] = self.found.unknown.get(what.label, 0) + 1
            self.is_open = True
        if not found.seconds:
            return
        free = self.ends.get(stream, 0.0)
        start = max(free, self.host)
        step.waits_for_host += start - free
        step.compute += found.seconds
        step.flops += found.flops
        step.least[stream] = step.least.get(stream, 0.0) + found.least
        step.weights += found.weights
        self.ends[stream] = start + found.seconds
        self.sends[stream] = False
        self.found.intervals.append(Interval(stream, what.label, start, found.seconds))

    def _start(self, label: str, seconds: float, step: ClockedStep) -> None:
        """Let the host take the time of one operator."""
        self.found.intervals.append(Interval(HOST, label, self.host, seconds))
        self.host += seconds
        step.host += seconds

    def _send(self, what: Sent, stream: int, step: ClockedStep) -> None:
        if not self.link and len(what.members) > 1:
            self.found.unsent += 1
            step.exposed = None
            self.is_open = True
            return
        seconds = ring_seconds(what, self.link) if len(what.members) > 1 else 0.0
        start = max(self.ends.get(stream, 0.0), self.host)
        self.ends[stream] = start + seconds
        self.sends[stream] = True
        step.sending += seconds
        if stream == 0 and step.exposed is not None:
            step.exposed += seconds
        if seconds:
            self.found.intervals.append(Interval(stream, what.label, start, seconds, sends=True))

    def _act(self, action: Action, step: ClockedStep) -> None:
        """Follow what orders streams: events, waits, and the host that waits."""
        if action.verb == "wait":
            whole = self.ends.get(action.other, 0.0), self.sends.get(action.other, False)
            until, sends = whole if action.place < 0 else self.moments.get((action.other, action.place), whole)
            own = self.ends.get(action.what, 0.0)
            if until > own:
                if sends and step.exposed is not None and not self.sends.get(action.what, False):
                    step.exposed += until - max(own, min(self.host, until))
                self.ends[action.what] = until
        elif action.verb == "synchronize":
            if action.what < 0:
                self.host = max([self.host, *self.ends.values()])
            else:
                whole = self.ends.get(action.what, 0.0), False
                self.host = max(self.host, self.moments.get((action.what, action.place), whole)[0])


def timeline_events(times: Clocked) -> Iterator[dict[str, Any]]:
    """Yield the events of a Chrome trace: a row for the host and for each stream, with the predicted durations in microseconds."""
    yield {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"predicted time, {times.device.title}"}}
    for stream in sorted({interval.stream for interval in times.intervals}):
        name = "host" if stream == HOST else f"stream {stream}"
        yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": stream + 1, "args": {"name": name}}
    for one in times.intervals:
        kind = "host" if one.stream == HOST else "collective" if one.sends else "kernel"
        yield {"ph": "X", "name": one.label, "cat": kind, "pid": 1, "tid": one.stream + 1, "ts": 1e6 * one.start, "dur": 1e6 * one.seconds}


def times_tables(times: Clocked) -> list[Table]:
    """Return the table of each step's time; none where nothing ran, or a figure of the device is not known."""
    steps = [step for step in times.steps if step.name != BEFORE]
    if not any(step.seconds for step in steps):
        return []
    peak = next((figure.hi for dtype in ("bf16", "f16", "f32") if (figure := times.device.matrix.get(dtype)) is not None), None)
    numbers = [
        (
            step.seconds,
            step.low,
            None if math.isinf(step.high) else step.high,
            step.compute,
            step.exposed,
            step.waits_for_host,
            step.flops / (step.seconds * peak) if peak and step.seconds else None,
        )
        for step in steps
    ]
    rows = alike([step.name for step in steps], [tuple(map(_short, row)) for row in numbers])
    columns = [
        Column("step"),
        *(
            Column(name, Kind.SECONDS, provenance=Provenance.MODELLED, help=text)
            for name, text in (
                ("seconds", "predicted, by classes of kernels and the queues of streams"),
                ("low", ""),
                ("high", "unknown where an operator is"),
                ("kernels", "seconds of kernels on all streams, collectives left out"),
                ("communication", "exposed: a stream waits for a collective and computes nothing"),
                ("host", "the device waits for the host"),
            )
        ),
        Column("mfu", Kind.RATIO, provenance=Provenance.MODELLED, help="FLOPs of products over the peak of 16-bit ones"),
    ]
    return [Table.of(rows, columns=columns, title="predicted time of each step")]


def _short(number: float | None) -> Quantity:
    """Return a number in four digits, so that steps that differ by rounding look alike."""
    return Quantity(None if number is None else float(f"{number:.4g}"), Provenance.MODELLED)


def kernel_of_ran(what: Ran) -> Kernel | None:
    """Return the kernel of what was queued; None where nothing is known of it."""
    if what.is_generated:
        reduces = "_red_" in what.label or "_per_" in what.label
        return Kernel(KernelClass.GENERATED_REDUCTION if reduces else KernelClass.GENERATED, read=float(what.moved))
    if what.call is None:
        return Kernel(KernelClass.OTHER, read=float(what.moved)) if what.is_known else None
    call = what.call
    cost = call.spec.cost_of(call)
    operands = [one if isinstance(one, TensorType) else None for one in call.types]
    results = [result if isinstance(result, TensorType) else None for result in call.results]
    use = Use(call.spec, call.attrs, operands, results, products=0.0 if cost is None else float(int_or_zero(cost.matmul)))
    return kernel_of(use) or Kernel(KernelClass.OTHER, read=float(what.moved))


def least_of_ran(what: Ran, rates: Rates) -> float:
    """Return the time that a call surely takes alone: its products at the highest rate, bytes that the last cache cannot hold."""
    call, device = what.call, rates.device
    cost = call.spec.cost_of(call) if call is not None else None
    if call is None or cost is None or device.bandwidth is None:
        return 0.0
    tensors = [one for one in (*call.types, *call.results) if isinstance(one, TensorType)]
    floats = [tensor.dtype for tensor in tensors if tensor.dtype.kind is DTypeKind.FLOAT]
    products, arithmetic = int_or_zero(cost.matmul), 0.0
    rate = rates.product(rate_name(min(floats, key=lambda dtype: dtype.bits or 64))) if floats and products else None
    if rate is not None:
        shapes = [one.shape if isinstance(one, TensorType) else None for one in call.types[1:3]]
        products -= min(int_or_zero(cost.masked), products)
        arithmetic = products / saved(call.spec, shapes, call.attrs) / (rate[1].hi * device.boost)
    beyond = sum(max(int_or_zero(size) - device.cache_bytes, 0) for size in (cost.read, cost.written)) if device.cache_bytes else 0
    return max(arithmetic, beyond / device.bandwidth.hi)
