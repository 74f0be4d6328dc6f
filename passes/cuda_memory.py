"""What torch.cuda.memory_stats() will say: before the first forward, and at the peaks of the first and the second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from irscope.devices import DeviceProfile, target_of
from irscope.devices.catalogue import all_devices
from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.bind import bind_option, input_option, lacks_shape
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Value, paused_gc
from irscope.ir.program import Runtime
from irscope.ir.types import TensorType
from irscope.memory.caching import BOUNDLESS, OutOfMemory
from irscope.passes.alias import Alias
from irscope.passes.cuda.as_run import as_run
from irscope.passes.cuda.loading import is_on_host, moved_weights
from irscope.passes.cuda.present import report
from irscope.passes.cuda.replay import Outcome, replay
from irscope.passes.cuda.result import Basis, DeviceMemory, Shortage
from irscope.passes.cuda.scripts import Load, has_unknown, open_symbols, script_of
from irscope.passes.cuda.stream import Stream, forward_stream
from irscope.passes.cuda.tape import End, Unbounded
from irscope.passes.ranges import Lifetimes, Ranges
from irscope.passes.shapes import Shapes
from irscope.passkit.base import Analysis, PassContext
from irscope.passkit.manager import Manager
from irscope.report.celltext import signed
from irscope.report.report import Report
from irscope.report.units import Kind
from irscope.report.values import Quantity


@dataclass(frozen=True)
class CudaMemory(Analysis[DeviceMemory]):
    """Predict the counters of PyTorch's CUDA allocator for loading a model and running it twice."""

    name: ClassVar[str] = "cuda-memory"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    model: Literal["auto", "ssa", "eager", "jit", "ort"] = "auto"
    """Lifetime model, as in `liveness`."""

    def compute(self, graph: Graph, ctx: PassContext) -> DeviceMemory:
        target, sink = target_of(ctx.settings), ctx.sink
        lifetimes = ctx.get(Ranges(model=self.model))
        program = as_run(ctx.program, ctx.get(Shapes), target) if lifetimes.model == "eager" else None
        if program is not None:
            graph, ctx = program.graph, Manager(program, settings=ctx.settings)
            lifetimes = ctx.get(Ranges(model=self.model))
        result = DeviceMemory(lifetimes.model, target, lifetimes.steps)
        if ctx.program.training is not None:
            result.reason = "the graph is a training step and no forward: liveness and training have its counters"
        elif target.device.capability is None:
            result.reason = f"{target.device.title} is no CUDA device"
        elif lifetimes.model not in ("eager", "jit") and ctx.program.traits.runtime is not Runtime.TORCH:
            result.reason = f"PyTorch's allocator does not run a model of the kind {lifetimes.model}"
            result.fix = "--passes 'liveness{model=eager}'"
        else:
            with paused_gc():
                self._predict(graph, ctx, lifetimes, result)
        for finding in result.findings:
            sink.add(finding)
        return result

    def report(self, result: DeviceMemory, ctx: PassContext) -> Report:
        return report(self, result)

    def _predict(self, graph: Graph, ctx: PassContext, lifetimes: Lifetimes, result: DeviceMemory) -> None:
        load = _loaded(graph)
        if load is None:
            result.reason = "the size of a parameter or an input is not known"
            result.fix = " ".join(input_option(value) for value in graph.inputs if value.name and lacks_shape(value.type))
            return
        stream = forward_stream(lifetimes, ctx.get(Alias()), ctx.get(Shapes), result.target)
        result.load, result.stream = load, stream
        result.basis = Basis(lifetimes, ctx.get(Alias()), ctx.get(Shapes))
        symbols = open_symbols(load, stream)
        if symbols:
            result.reason = f"sizes depend on {', '.join(map(str, symbols))}"
            result.fix = bind_option(symbols)
            return
        result.is_open = has_unknown(load, stream) or bool(lifetimes.unsized)
        result.script = script_of(load, stream, "central")
        device = result.target.device
        try:
            result.central = replay(result.script, result.target, device.room_bytes)
            fits = True
        except OutOfMemory:
            result.central = replay(result.script, result.target, BOUNDLESS)
            fits = False
        self._bracket(ctx, lifetimes, result)
        if not fits:
            result.shortage = _shortage(device, result.worst("reserved"))
            result.findings.append(_does_not_fit(device, result.shortage))

    def _bracket(self, ctx: PassContext, lifetimes: Lifetimes, result: DeviceMemory) -> None:
        """The least and the most, where something is not known."""
        assert result.stream is not None and result.load is not None
        streams = [result.stream]
        if lifetimes.undecided:
            other = ctx.get(Ranges(model=self.model, undecided="share"))
            streams.append(forward_stream(other, ctx.get(Alias(undecided="share")), ctx.get(Shapes), result.target))
        if len(streams) == 1 and result.stream.is_exact and not result.is_open:
            return
        lows = [self._end(result, stream, "low") for stream in streams]
        result.low = min(lows, key=lambda one: one.cold.requested)
        if lifetimes.unsized:
            result.unbounded = f"the size of {lifetimes.unsized[0].name or 'a tensor'} is not known"
            return
        try:
            highs = [self._end(result, stream, "high") for stream in streams]
            result.high = max(highs, key=lambda one: one.cold.requested)
        except Unbounded as error:
            result.unbounded = str(error)

    def _end(self, result: DeviceMemory, stream: Stream, end: End) -> Outcome:
        """One end of what is possible; nothing is run again where it is what is predicted."""
        assert result.load is not None and result.script is not None and result.central is not None
        script = script_of(result.load, stream, end)
        return result.central if stream is result.stream and script == result.script else replay(script, result.target, BOUNDLESS)


def _loaded(graph: Graph) -> Load | None:
    """Parameters, buffers and inputs in the order in which they come to the device."""
    values = [*moved_weights(graph), *graph.inputs]
    sizes: list[Dim] = []
    kinds: list[str] = []
    names: list[str] = []
    for value in values:
        if not isinstance(value.type, TensorType) or (value.type.device and is_on_host(value.type, graph)):
            continue
        size = value.type.nbytes
        if size is None:
            return None
        sizes.append(size)
        kinds.append(_category(value))
        names.append(value.name or "")
    return Load(sizes, kinds, names)


def _category(value: Value) -> str:
    return {"param": "parameter"}.get(value.role.value, value.role.value)


def _shortage(device: DeviceProfile, reserved: Quantity) -> Shortage:
    wanted = reserved.value if isinstance(reserved.value, int) else reserved.ends[0] or 0
    larger = [one for one in all_devices() if one.capability is not None and (one.room_bytes or 0) >= wanted]
    larger.sort(key=lambda one: (one.memory_bytes or 0, one.name))
    return Shortage(reserved + device.context_most, reserved - (device.room_bytes or 0), tuple(larger))


def _does_not_fit(device: DeviceProfile, shortage: Shortage) -> Diagnostic:
    names = ", ".join(one.title for one in shortage.fitting[:3])
    return Diagnostic(
        Severity.WARNING,
        "IRS302",
        f"the model does not fit on {device.title}: it needs {signed(shortage.needed, Kind.BYTES)} with the CUDA context, "
        f"{signed(shortage.missing, Kind.BYTES)} more than there are",
        hint=f"it fits on {names}" if names else "no device that irscope knows has as much; a smaller batch or a smaller type needs less",
    )
