"""Recording with ONNX Runtime."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from irscope.errors import UsageError
from irscope.recording.records import Alive, Counters, DeviceRecord, Latency, Level, MemoryEvent, NodeMapping, OpRecord, Problem, Setting
from irscope.runtime.record.failing import problem_of
from irscope.runtime.record.machine import distribution, environment, header, processor
from irscope.runtime.record.ortmap import NodeMap, OnnxNode, map_nodes
from irscope.runtime.record.ortmodel import CPU, CUDA, Graph, Session, graph_of, open_session
from irscope.runtime.record.ortprofile import Kernel, Profile, read_profile
from irscope.runtime.record.request import Request
from irscope.runtime.record.sink import Sink
from irscope.runtime.record.sizes import type_bytes
from irscope.runtime.record.timing import times_of

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Runs:
    """What is known of the kernels of all runs."""

    cold: tuple[Kernel, ...]
    warm: tuple[Kernel, ...]
    timed: tuple[tuple[Kernel, ...], ...]


def record_ort(request: Request, sink: Sink) -> None:
    """Run a model with ONNX Runtime and tell the sink what was seen."""
    wants_cuda = request.options.device != "cpu"
    if wants_cuda and CUDA not in ort.get_available_providers():
        hint = "pip install onnxruntime-gpu (in place of onnxruntime), or record with `--device cpu`"
        raise UsageError("this ONNX Runtime has no CUDA execution provider", code="IRS479", hint=hint)
    with tempfile.TemporaryDirectory(prefix="irscope-ort-") as folder:
        saved = Path(folder) / "running.onnx"
        profiled = open_session(request, Path(folder) / "profile", saved)
        sink.begin(header(request, _device(request, profiled), _versions(), _settings(request)))
        if wants_cuda and profiled.session.get_providers()[0] != CUDA:
            text = "CUDA could not be used and ONNX Runtime fell back to the processor without an error; everything below ran there"
            sink.add(Problem("cpu_fallback", text))
        failure, taken = _profiled_runs(request, profiled, sink)
        profile = read_profile(Path(profiled.session.end_profiling()))
        running = graph_of(saved) if saved.exists() else None
        _Teller(request, sink, profile, running).tell(failure)
    if failure is not None:
        sink.failed = True
        return
    del profiled
    sink.stage("latency")
    plain = _plain_runs(request)
    for how, runs in (("plain", plain), ("profiled", taken)):
        times = times_of(runs)
        if times is not None:
            sink.add(Latency(how, times))


def _profiled_runs(request: Request, session: Session, sink: Sink) -> tuple[Exception | None, list[float]]:
    """A cold run, a warm one, those that warm up, and those that are timed."""
    sink.stage("operators")
    taken: list[float] = []
    try:
        for _ in range(_untimed(request)):
            session.run()
        for _ in range(request.options.repeats):
            started = time.perf_counter()
            session.run()
            taken.append((time.perf_counter() - started) * 1e6)
    except Exception as error:
        return error, taken
    return None, taken


def _untimed(request: Request) -> int:
    """The first run allocates, and the second packs by what the first one did: both are recorded whatever the warm-up is."""
    return max(2, request.options.warmup)


def _plain_runs(request: Request) -> list[float]:
    session = open_session(request)
    for _ in range(_untimed(request)):
        session.run()
    taken: list[float] = []
    for _ in range(request.options.repeats):
        started = time.perf_counter()
        session.run()
        taken.append((time.perf_counter() - started) * 1e6)
    return taken


class _Teller:
    """Turns a profile into the lines of a recording."""

    def __init__(self, request: Request, sink: Sink, profile: Profile, running: Graph | None) -> None:
        self.request = request
        self.sink = sink
        self.profile = profile
        self.original = graph_of(Path(request.model.path))
        self.running = running

    def tell(self, failure: Exception | None) -> None:
        """Operators, memory and problems."""
        runs = self._runs()
        mapping, nodes = self._mapping(runs.warm)
        ops = list(self._ops(runs, mapping, nodes))
        for op in ops:
            self.sink.add(op)
        events = [*_events("cold", runs.cold, ops), *_events("warm", runs.warm, ops)]
        for event in events:
            self.sink.add(event)
        for counters in _counters(runs):
            self.sink.add(counters)
        for problem in self._problems(runs.warm):
            self.sink.add(problem)
        if mapping is not None:
            self.sink.add(self._told(mapping))
        if failure is not None:
            self.sink.add(problem_of(failure, ops, (), list(self._in_use(ops[:-1], nodes[:-1]))))

    def _runs(self) -> _Runs:
        whole = self.profile.runs
        if not whole:
            return _Runs(self.profile.unfinished, self.profile.unfinished, ())
        timed = whole[_untimed(self.request) :]
        return _Runs(whole[0], whole[-1], timed)

    def _mapping(self, kernels: Sequence[Kernel]) -> tuple[NodeMap | None, list[int | None]]:
        """How running nodes stand for the file's, and which running node each kernel is."""
        if self.running is None:
            return None, [None] * len(kernels)
        mapping = map_nodes(self.original.nodes, self.running.nodes, self.original.inputs, self.original.outputs)
        return mapping, running_nodes(kernels, self.running.nodes)

    def _ops(self, runs: _Runs, mapping: NodeMap | None, nodes: Sequence[int | None]) -> Iterator[OpRecord]:
        names = [kernel.name for kernel in runs.warm]
        same = [run for run in runs.timed if [kernel.name for kernel in run] == names]
        before = _before(runs.warm)
        for index, kernel in enumerate(runs.warm):
            node = nodes[index]
            sources = self._labels(mapping.sources[node]) if mapping is not None and node is not None else ()
            domain = self.running.nodes[node].domain if self.running is not None and node is not None else ""
            alive = kernel.memory.requested - before if kernel.memory is not None and before is not None else None
            yield OpRecord(
                index,
                f"{domain}::{kernel.op}" if domain not in ("", "ai.onnx") else kernel.op,
                next((self.request.scopes[name] for name in reversed(sources) if name in self.request.scopes), ""),
                sources,
                (kernel.name,),
                kernel.provider,
                kernel.inputs,
                kernel.outputs,
                times_of([run[index].microseconds for run in same]),
                alive=alive,
            )

    def _in_use(self, ops: Sequence[OpRecord], nodes: Sequence[int | None]) -> Iterator[Alive]:
        """Live results: with a use by an unfinished node, or outputs of the model."""
        if self.running is None:
            return
        done = {node for node in nodes if node is not None}
        wanted = {name for number, node in enumerate(self.running.nodes) if number not in done for name in node.inputs}
        wanted.update(self.running.outputs)
        for op, number in zip(ops, nodes, strict=True):
            made = self.running.nodes[number].outputs if number is not None else ()
            for name, text in zip(made, op.outputs, strict=False):
                size = type_bytes(text)
                if name in wanted and size:
                    yield Alive(size, op.index, op.op, op.scope)

    def _labels(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.original.nodes[number].label for number in numbers)

    def _told(self, mapping: NodeMap) -> NodeMapping:
        mapped = sum(map(len, mapping.sources))
        return NodeMapping(len(self.original.nodes), mapped, self._labels(mapping.folded), self._labels(mapping.unmapped))

    def _problems(self, kernels: Sequence[Kernel]) -> Iterator[Problem]:
        if self.request.options.device == "cpu":
            return
        if not self.profile.has_device_times and any(kernel.provider == CUDA for kernel in kernels):
            text = "this ONNX Runtime was built without CUPTI: times of operators on the GPU are those of starting their kernels"
            yield Problem("no_cupti", text + "; only the latency of whole runs is a time of the GPU")
        elsewhere = [kernel for kernel in kernels if kernel.provider == CPU]
        if elsewhere and len(elsewhere) < len(kernels):
            names = sorted({kernel.op for kernel in elsewhere})
            shown = ", ".join(names[:_NAMES_SHOWN]) + (" ..." if len(names) > _NAMES_SHOWN else "")
            yield Problem("cpu_fallback", f"{len(elsewhere)} of {len(kernels)} operators ran on the processor: {shown}")
        copies = [kernel for kernel in kernels if kernel.op.startswith("Memcpy")]
        if copies:
            yield Problem("copies", f"{len(copies)} copies between processor and GPU in each run")


def running_nodes(kernels: Sequence[Kernel], nodes: Sequence[OnnxNode]) -> list[int | None]:
    """Which node each kernel is: the graph is saved in the order in which it runs, but a kernel may be left out."""
    if [kernel.op for kernel in kernels] == [node.op for node in nodes]:
        return list(range(len(nodes)))
    by_name = {node.name: number for number, node in enumerate(nodes) if node.name}
    return [by_name.get(kernel.name) for kernel in kernels]


def _events(run: str, kernels: Sequence[Kernel], ops: Sequence[OpRecord]) -> Iterator[MemoryEvent]:
    """How the bytes in use differ after each operator from those after the one before."""
    in_use = _before(kernels)
    if len(kernels) != len(ops) or in_use is None:
        return
    start = kernels[0].started
    for index, kernel in enumerate(kernels):
        if kernel.memory is not None and kernel.memory.requested != in_use:
            ended = round(kernel.started + kernel.microseconds - start, 3)
            yield MemoryEvent(run, kernel.memory.requested - in_use, index, category="net", kernel=kernel.op, time_us=ended)
            in_use = kernel.memory.requested


def _before(kernels: Sequence[Kernel]) -> int | None:
    """Bytes in use when the run began."""
    first = kernels[0].memory if kernels else None
    return first.requested - first.change if first is not None else None


def _counters(runs: _Runs) -> Iterator[Counters]:
    first = runs.cold[0].memory if runs.cold else None
    if first is None:
        return
    requested, allocated = first.requested - first.change, first.allocated - first.allocated_change
    # What the arena holds is only known after a kernel: the first one may have made it grow.
    yield Counters("before", Level(requested, requested), Level(allocated, allocated))
    for name, kernels in (("cold", runs.cold), ("warm", runs.warm)):
        memories = [kernel.memory for kernel in kernels if kernel.memory is not None]
        last = memories[-1]
        asked = Level(last.requested, max(memory.requested for memory in memories))
        given = Level(last.allocated, max(memory.peak for memory in memories))
        yield Counters(name, asked, given, None, Level(last.held, max(memory.held for memory in memories)))


def _device(request: Request, session: Session) -> DeviceRecord:
    if session.session.get_providers()[0] == CUDA:
        from irscope.runtime.record.nvml import cuda_device

        return cuda_device(request.options.device)
    return processor(request.options.threads)


def _versions() -> dict[str, str]:
    package = distribution("onnxruntime-gpu")
    found = {"onnxruntime": str(ort.__version__), "onnxruntime-gpu": package, "onnx": distribution("onnx")}
    return {name: version for name, version in found.items() if version}


def _settings(request: Request) -> dict[str, Setting]:
    options = request.options
    settings: dict[str, Setting] = {
        "graph_optimization": "all" if options.optimise else "none",
        "arena": options.arena,
        "memory_pattern": options.arena,
        "io_binding": True,
        "fixed_sizes": " ".join(f"{symbol}={size}" for symbol, size in request.model.bind.items()),
        "threads": options.threads,
        "seed": options.seed,
        "op_time": "ONNX Runtime's profile",
    }
    return settings | environment("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
