"""How long a model takes on a device: predicted, with the interval in which nine of ten real times lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from irscope.devices import find_device, target_of
from irscope.devices.profile import SESSION_CALL, DeviceProfile
from irscope.diagnostics import Diagnostic, Severity
from irscope.immutable import immutable
from irscope.ir.bind import type_binder
from irscope.ir.dims import bind, int_or_zero
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import Family
from irscope.passes.cost.bounds import COMPUTE, FREE, LAUNCH, MEMORY, Bounds, NodeBound, is_dequantized
from irscope.passes.cost.bounds import UNKNOWN as BOUND_UNKNOWN
from irscope.passes.cost.clock import MODELS_TAKE, SESSIONS_TAKE, Clock, Work, clock_of, constants, missing_figure
from irscope.passes.cost.count import Certainty, Entry, NodeCosts
from irscope.passes.cost.kernels import HOST_ONLY, Kernel, KernelClass, Use, kernel_of
from irscope.passes.cost.roofline import Roofline, is_fused
from irscope.passes.graph.alias import Alias, Aliases
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_MEANING: Final = "90 % of real times lie within the interval; docs/time.md says how that was checked"
_ASSUMED: Final = "the interval is assumed, as no times like this one are known; docs/time.md says more"
HOST, UNKNOWN = "host", "unknown"
_INTEGER = "sessions run integer kernels in its place, --ort-level all predicts which"


@immutable(slots=False)
class NodeTime:
    """One node: seconds of all its runs."""

    node: Node
    kernel: Kernel | None
    runs: int
    seconds: float
    """On the device; 0 where nothing runs there or the kernel is not known."""
    host: float
    """Time that the host takes to call it."""
    waits: float
    """Time that the device was idle before it."""
    binds: str
    least: float = 0.0
    """Time that the runs surely take."""


@immutable(slots=False)
class Timing:
    """The predicted time of one run."""

    device: DeviceProfile
    clock: Clock | None
    """None where a figure of the device is missing."""
    work: str
    nodes: Sequence[NodeTime]
    seconds: float | None
    """None where it cannot be told."""
    missing: str = ""
    """The figure of the device that is not known."""
    least: float = 0.0
    """Time that a run surely takes: no interval begins below it."""

    @property
    def low(self) -> float | None:
        return None if self.seconds is None or self.clock is None else self.clock.limits(self.seconds, self.least)[0]

    @property
    def high(self) -> float | None:
        """Return the upper end; infinite where a kernel of unknown class may take any time, None where nothing is known."""
        if self.seconds is None or self.clock is None:
            return None
        return math.inf if self.unknown else self.clock.limits(self.seconds, self.least)[1]

    @cached_property
    def unknown(self) -> list[NodeTime]:
        return [one for one in self.nodes if one.binds == UNKNOWN]

    @cached_property
    def by_node(self) -> dict[Node, float]:
        """Seconds on the device of each node whose kernel is known."""
        found: dict[Node, float] = {}
        for one in self.nodes:
            if one.binds != UNKNOWN:
                found[one.node] = found.get(one.node, 0.0) + one.seconds
        return found

    @property
    def waiting(self) -> float:
        """Return the time that the device waits for the host."""
        return sum(one.waits for one in self.nodes)

    def by_binding(self) -> dict[str, float]:
        """Return seconds by what takes them, in the words of the roofline."""
        found = dict.fromkeys((COMPUTE, MEMORY, LAUNCH), 0.0)
        for node in self.nodes:
            name = node.binds if node.binds in found else LAUNCH
            found[name] += node.seconds + node.waits
        return found

    def quantity(self) -> Quantity:
        """Return the time with its interval; its lower end alone where the time of some nodes is not known."""
        high, note = self.high, _ASSUMED if self.clock is not None and self.clock.is_assumed else _MEANING
        if self.unknown:
            return Quantity(None, Provenance.MODELLED, note=note, lo=self.low or None)
        return Quantity(self.seconds, Provenance.MODELLED, note=note, lo=self.low, hi=None if high is None or math.isinf(high) else high)


class Timer:
    """Times nodes in the order in which they run; what stays in the cache between two of them is read from there."""

    def __init__(
        self, clock: Clock, types: Inferred, aliases: Aliases, sizes: Mapping[str, int] | None = None, *, fuses: bool = False
    ) -> None:
        """`sizes` are those of symbols; `fuses` where the runtime may put integer kernels in the place of products between
        dequantisation and quantisation, so that their time is not that of the nodes."""
        self.clock = clock
        self.fuses = fuses
        self.sizes = sizes or {}
        self._bound = type_binder(self.sizes) if self.sizes else None
        self.types = types
        self.storage = aliases.storage
        self.laid = aliases.strides.type_of
        self._known: dict[tuple[object, ...], tuple[object, Kernel | None]] = {}

    def timed(self, entries: Iterable[Entry], kinds: Iterable[object], bounds: Bounds) -> list[NodeTime]:
        """Return the time of every node."""
        listed = list(entries)
        kernels, near = self.described(listed, kinds)
        seconds = self.clock.durations([HOST_ONLY if one is None else one for one in kernels], near)
        return queued(self.clock, listed, kernels, [float(one) for one in seconds], [bounds.least_of(one) for one in bounds.nodes])

    def measured(self, entries: Sequence[Entry], kinds: Iterable[object], bounds: Bounds, takes: float) -> list[NodeTime]:
        """Return the time of every node on a device whose own kernels were measured: by its roofline, times what models take more."""
        result: list[NodeTime] = []
        for bound, entry, kind in zip(bounds.nodes, entries, kinds, strict=True):
            kernel = HOST_ONLY if bound.binding == FREE else self._kernel(entry, kind)
            if kernel is None and _is_measured(bound, self.clock.device):
                kernel = Kernel(KernelClass.CONVOLUTION if plays(entry.node, OpRole.FILTERS) else KernelClass.PRODUCT)
            known = kernel is not None and bound.binding != BOUND_UNKNOWN
            binds = UNKNOWN if not known else HOST if bound.binding == FREE else COMPUTE if bound.compute > bound.memory else MEMORY
            seconds = bounds.seconds_of(bound) * takes if known else 0.0
            result.append(NodeTime(bound.node, kernel if known else None, bound.runs, seconds, 0.0, 0.0, binds, bounds.least_of(bound)))
        return result

    def described(self, entries: Sequence[Entry], kinds: Iterable[object]) -> tuple[list[Kernel | None], list[float]]:
        """Return the kernel of every node, and the bytes that it reads from the cache."""
        kernels = [self._kernel(entry, kind) for entry, kind in zip(entries, kinds, strict=True)]
        return kernels, self._near([entry.node for entry in entries], kernels)

    def _kernel(self, entry: Entry, kind: object) -> Kernel | None:
        node = entry.node
        is_view = entry.certainty is Certainty.FREE and self._shares(node)
        operands = [None if value is None else self._type(value) for value in node.inputs]
        results = [self._type(value) for value in node.outputs]
        work = entry.cost.matmul
        is_integer = self.fuses and (not isinstance(work, int) or work > 0) and any(map(is_dequantized, node.inputs))
        # Like nodes may still have operands that lie differently.
        key = (id(kind), is_view, is_integer, *operands, None, *results)
        known = self._known.get(key) if kind is not None else None
        if known is not None:
            return known[1]
        use = Use(
            spec_of(node),
            node.attrs,
            operands,
            results,
            is_view,
            float(int_or_zero(bind(entry.cost.matmul, self.sizes))),
            learns=self.clock.work == "training",
        )
        is_known = not is_integer and (entry.certainty is not Certainty.UNKNOWN or plays(node, OpRole.GENERATED))
        found = kernel_of(use) if is_known else None
        if kind is not None:
            self._known[key] = kind, found
        return found

    def _type(self, value: Value) -> TensorType | None:
        found = self.laid(value)
        if self._bound is not None:
            found = self._bound(found)
        return found if isinstance(found, TensorType) else None

    def _shares(self, node: Node) -> bool:
        """Return whether the results are views, or no tensors at all."""
        operands = {self.storage(value) for value in node.inputs if value is not None}
        tensors = [value for value in node.outputs if self._type(value) is not None]
        return not tensors or any(self.storage(value) in operands for value in tensors)

    def _near(self, nodes: Sequence[Node], kernels: Sequence[Kernel | None]) -> list[float]:
        """Return the bytes of each node's operands that are still in the cache: all where it holds what was touched since, else its share
        of that, as the cache does not evict the oldest first."""
        cache = self.clock.machine.cache
        last: dict[Value, float] = {}
        touched, result = 0.0, []
        for node, kernel in zip(nodes, kernels, strict=True):
            if kernel is None or kernel.kind is KernelClass.HOST:
                result.append(0.0)
                continue
            found = 0.0
            operands = {self.storage(value): self._bytes(value) for value in node.inputs if value is not None}
            for storage, size in operands.items():
                before = last.get(storage)
                if before is not None:
                    found += size * min(1.0, cache / max(touched - before + size, 1.0))
            made = {self.storage(value): self._bytes(value) for value in node.outputs}
            for storage, size in (*operands.items(), *made.items()):
                touched += size
                last[storage] = touched
            result.append(found)
        return result

    def _bytes(self, value: Value) -> int:
        found = self.types.type_of(value)
        return int_or_zero((found if self._bound is None else self._bound(found)).nbytes)


def _is_measured(bound: NodeBound, device: DeviceProfile) -> bool:
    """Return whether a product of integers, or of packed weights, has a kernel that was measured in ONNX Runtime."""
    spec = spec_of(bound.node)
    return spec is not None and spec.family is Family.QUANTIZATION and bound.dtype in device.sessions.get("product", {})


def queued(
    clock: Clock, entries: Sequence[Entry], kernels: Sequence[Kernel | None], seconds: Sequence[float], least: Sequence[float]
) -> list[NodeTime]:
    """Return the times of nodes whose kernels stand in a queue: the host calls one after the other, the device waits where it is faster.
    None is shorter than the least time of all its runs."""
    costs = constants().host_seconds
    bound = clock.binds([HOST_ONLY if kernel is None else kernel for kernel in kernels])
    host_now = device_now = 0.0
    result: list[NodeTime] = []
    for entry, kernel, one_run, alone, surely in zip(entries, kernels, seconds, bound, least, strict=True):
        runs = entry.runs if isinstance(entry.runs, int) else 1
        if kernel is None:
            result.append(NodeTime(entry.node, None, runs, 0.0, 0.0, 0.0, UNKNOWN))
            continue
        is_alone = kernel.kind is KernelClass.HOST
        name = "compiled" if kernel.kind in (KernelClass.GENERATED, KernelClass.GENERATED_REDUCTION) else "view" if is_alone else "operator"
        host = costs[name] if clock.device.kind == "gpu" else 0.0
        host_now += host * runs
        if is_alone:
            result.append(NodeTime(entry.node, kernel, runs, 0.0, host * runs, 0.0, HOST))
            continue
        duration = max(one_run, surely / max(runs, 1))
        # Of several runs the first waits for its own call, the others for theirs.
        start = max(device_now, host_now - host * (runs - 1))
        waits = start - device_now + max(host - duration, 0.0) * (runs - 1)
        device_now += duration * runs + waits
        binds = LAUNCH if waits > duration * runs else alone
        result.append(NodeTime(entry.node, kernel, runs, duration * runs, host * runs, waits, binds, surely))
    return result


def _may_fuse(program: Program, device: DeviceProfile) -> bool:
    """Return whether the runtime's optimisations, which the nodes do not show, have integer kernels: ONNX Runtime's are for processors."""
    return is_fused(program) and not program.traits.is_session and device.kind == "cpu"


@dataclass(frozen=True)
class Time(Analysis[Timing]):
    """Predict how long a run takes on a device, node by node, with the interval in which nine of ten real times lie."""

    name: ClassVar[str] = "time"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    device: str = ""
    """A device, "this" for this machine once it is calibrated, or a device file; default: what --device says, else h200."""
    top: int = 0
    """Rows of the table of nodes, slowest first; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Timing:
        timing = self.at(graph, ctx)
        if timing.clock is None:
            message = f"no time can be predicted for {timing.device.title}: its {timing.missing} is not known"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS424", message), about="time")
        if timing.unknown:
            first = timing.unknown[0].node
            message = f"the time of {first.op} is unknown and counts as nothing, so the interval has no upper end"
            hint = _INTEGER if any(map(is_dequantized, first.inputs)) else ""
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS424", message, first.name, hint=hint, count=len(timing.unknown)), about="time")
        return timing

    def at(self, graph: Graph, ctx: PassContext, sizes: Mapping[str, int] | None = None, bounds: Bounds | None = None) -> Timing:
        """Return the time with symbols at these sizes; `bounds` are those of the roofline there."""
        device = find_device(self.device) if self.device else target_of(ctx.settings).device
        costs, types, aliases = ctx.get(NodeCosts()), ctx.get(Shapes), ctx.get(Alias())
        is_compiled = any(plays(entry.node, OpRole.GENERATED) for entry in costs.entries)
        in_session = ctx.program.traits.is_session and bool(device.sessions)
        work: Work = "training" if ctx.program.training is not None else "compiled" if is_compiled else "session" if in_session else "eager"
        clock = clock_of(device, work)
        if clock is None:
            return Timing(device, None, work, (), None, missing_figure(device))
        entries = costs.entries
        kinds: Iterable[object] = types.kinds_of(graph)
        if len(entries) != len(graph):  # bodies of loops and branches have their nodes among the entries
            kinds = [None] * len(entries)
        timer = Timer(clock, types, aliases, sizes, fuses=_may_fuse(ctx.program, device))
        roofline = Roofline(device=self.device)
        if bounds is None:
            bounds = ctx.get(roofline) if sizes is None else roofline.at(ctx, sizes)
        if device.calibrated:
            nodes = timer.measured(entries, kinds, bounds, SESSIONS_TAKE if in_session else MODELS_TAKE)
            call = device.overheads.get(SESSION_CALL)
            if in_session and nodes and call is not None:  # a run begins with it, and the first node waits
                nodes[0] = replace(nodes[0], waits=call.lo)
        else:
            nodes = timer.timed(ctx.each(entries, "timing", len(entries)), kinds, bounds)
        seconds = max(sum(one.seconds + one.waits for one in nodes), bounds.least)
        return Timing(device, clock, work, nodes, seconds, least=bounds.least)

    def report(self, result: Timing, ctx: PassContext) -> Report:
        nodes = result.nodes
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "device": result.device.title,
                "seconds": result.quantity(),
                "waiting_for_host": Quantity(result.waiting if result.clock is not None else None, Provenance.MODELLED),
                "share_of_time": _shares(result),
                "fitted_on": result.clock.fitted_on if result.clock is not None else None,
            },
            units={"seconds": Kind.SECONDS, "waiting_for_host": Kind.SECONDS, "share_of_time": Kind.RATIO},
            tables=(self._table(result),),
            coverage=Coverage(len(nodes) - len(result.unknown), len(nodes), tuple(sorted({one.node.op for one in result.unknown}))),
            notes=_notes(result),
        )

    def _table(self, result: Timing) -> Table:
        nodes = sorted(result.nodes, key=lambda one: -(one.seconds + one.waits))
        columns = [
            Column("node", Kind.NODE),
            Column("operator"),
            Column("module"),
            Column("kernel", help="class of kernels whose efficiency is taken"),
            Column("seconds", Kind.SECONDS, provenance=Provenance.MODELLED),
            Column("low", Kind.SECONDS, provenance=Provenance.MODELLED),
            Column("high", Kind.SECONDS, provenance=Provenance.MODELLED),
            Column("share", Kind.RATIO, provenance=Provenance.MODELLED),
            Column(
                "binds",
                help="what takes the time: compute, memory, start (of a short kernel), launch (the device waits for the host), host",
            ),
            Column("why"),
        ]
        return Table.of([_row(one, result) for one in (nodes[: self.top] if self.top else nodes)], columns=columns, title="nodes")


def _row(one: NodeTime, result: Timing) -> tuple[object, ...]:
    node, kernel, clock = one.node, one.kernel, result.clock
    assert clock is not None and result.seconds is not None
    place = (node.name, node.op, node.scope.path)
    if kernel is None:
        return (*place, UNKNOWN, None, None, None, None, UNKNOWN, "irscope does not know how its kernels behave")
    seconds = one.seconds + one.waits
    low, high = clock.limits(seconds, one.least)
    name = kernel.kind.name.lower().replace("_", " ")
    return (*place, name, seconds, low, high, seconds / result.seconds if result.seconds else None, one.binds, clock.why(kernel))


def _shares(result: Timing) -> dict[str, object]:
    """Return the part of the time by class of kernel, the largest first."""
    parts: dict[str, float] = {}
    for one in result.nodes:
        if one.kernel is not None and one.seconds + one.waits:
            name = one.kernel.kind.name.lower()
            parts[name] = parts.get(name, 0.0) + one.seconds + one.waits
    whole = sum(parts.values())
    return {name: Quantity(parts[name] / whole, Provenance.MODELLED) for name in sorted(parts, key=lambda name: -parts[name])}


def _notes(result: Timing) -> tuple[str, ...]:
    clock = result.clock
    if clock is None:
        return ()
    origin = f"efficiencies of {clock.fitted_on}: {clock.source}"
    if result.device.calibrated:
        origin = "rates that were measured on the device, times what models took more"
    elif not clock.is_own:
        origin = f"no times of {clock.device.title} are known: {origin}, over the data sheet's figures, with a wider interval"
    return (_ASSUMED if clock.is_assumed else _MEANING, origin)
