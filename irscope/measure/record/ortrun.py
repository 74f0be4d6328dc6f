"""Recording with ONNX Runtime, and the map from the nodes that it runs to those of the file: it fuses, folds, renames and adds nodes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from irscope.diagnostics import few
from irscope.errors import PassError, UsageError
from irscope.files import TemporaryFolder
from irscope.immutable import immutable
from irscope.ir.dtypes import LONG_NAMES
from irscope.measure.machine import distribution, environment, header, processor, vector_bits
from irscope.measure.record.request import InputSpec, Request, given_values, type_bytes
from irscope.measure.record.sink import Sink, first_line, problem_of
from irscope.measure.record.trace import times_of
from irscope.recording.records import Alive, Counters, DeviceRecord, Latency, Level, MemoryEvent, NodeMapping, OpRecord, Problem, Setting

_REORDERS = ("ReorderInput", "ReorderOutput")
_ONLY_SIZES = ("Shape", "Size")
_LONGEST = 8
"""Nodes that one layout's operator takes in."""
_ENDING = re.compile(r"(_nchwc|_token_?\d*|_\d+|/[^/]*Fusion/?|/|_[A-Za-z]+)$")


@immutable
class OnnxNode:
    """A node with the names that tie it to others."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = ""

    @property
    def label(self) -> str:
        """Return how irscope names the node: by its first result."""
        return next((output for output in self.outputs if output), self.name)


@immutable
class NodeMap:
    """The result: numbers of the file's nodes by number of the node that runs."""

    sources: tuple[tuple[int, ...], ...]
    folded: tuple[int, ...]
    """Nodes that were computed or removed before the first run."""
    unmapped: tuple[int, ...]


def map_nodes(original: Sequence[OnnxNode], running: Sequence[OnnxNode], inputs: Sequence[str], outputs: Sequence[str]) -> NodeMap:
    """Tie running nodes to the file's: by names of results and what lies between them, by names of nodes, and by their producers."""
    return _Mapper(original, running, frozenset(inputs), outputs).map()


class _Mapper:
    def __init__(self, original: Sequence[OnnxNode], running: Sequence[OnnxNode], inputs: frozenset[str], outputs: Sequence[str]) -> None:
        self.inputs = inputs
        self.original = original
        self.running = running
        self.maker = {output: number for number, node in enumerate(original) for output in node.outputs if output}
        self.owner: dict[int, int] = {}
        self.alias = self._aliases()
        self.gone = self._before_the_run(outputs)
        self.made = {self._known(output): number for number, node in enumerate(running) for output in node.outputs if output}

    def map(self) -> NodeMap:
        """Return what became of each node."""
        self._by_node_names()
        for number, node in enumerate(self.running):
            if node.op not in _REORDERS:
                self._by_results(number, node)
        self._by_producers()
        sources: list[list[int]] = [[] for _ in self.running]
        for number in sorted(self.owner):
            sources[self.owner[number]].append(number)
        left = [number for number in range(len(self.original)) if number not in self.owner]
        folded = tuple(number for number in left if number in self.gone)
        return NodeMap(tuple(map(tuple, sources)), folded, tuple(number for number in left if number not in self.gone))

    def _aliases(self) -> dict[str, str]:
        """Return what a changed layout's name stands for: reorders compute nothing."""
        alias: dict[str, str] = {}
        for node in reversed(self.running):
            if node.op == "ReorderOutput":
                alias[node.inputs[0]] = alias.get(node.outputs[0], node.outputs[0])
        for node in self.running:
            if node.op == "ReorderInput":
                alias.setdefault(node.outputs[0], alias.get(node.inputs[0], node.inputs[0]))
        return alias

    def _known(self, name: str) -> str:
        return self.alias.get(name, name)

    def _by_node_names(self) -> None:
        """Nodes whose results all have new names, as those of another layout have."""
        names: dict[str, int] = {}
        for place, one in enumerate(self.original):
            names.setdefault(one.name, place)
        for number, node in enumerate(self.running):
            if node.op in _REORDERS or any(self._known(output) in self.maker for output in node.outputs):
                continue
            found = self._named(node, names)
            if found is not None:
                for taken in self._fused_into(found, node.op):
                    self.owner.setdefault(taken, number)

    def _named(self, node: OnnxNode, names: Mapping[str, int]) -> int | None:
        name = node.name
        while name:
            number = names.get(name)
            if number is not None and (self.original[number].op == node.op or name != node.name):
                return number
            shorter = _ENDING.sub("", name)
            if shorter == name:
                return None
            name = shorter
        return None

    def _fused_into(self, last: int, op: str) -> list[int]:
        """Return a node that is named after the last one it took in: those on the way back to the one whose operator it has."""
        path = [last]
        while self.original[path[-1]].op != op and len(path) < _LONGEST:
            above = [self.maker[value] for value in self.original[path[-1]].inputs if value in self.maker]
            free = [number for number in above if number not in self.owner]
            if not free:
                return [last]
            path.append(max(free))
        return path if self.original[path[-1]].op == op else [last]

    def _by_results(self, number: int, node: OnnxNode) -> None:
        """Return the nodes between a running node's results and the values that other running nodes define."""
        pending = [self.maker[known] for output in node.outputs if (known := self._known(output)) in self.maker]
        while pending:
            waiting = pending.pop()
            if self.owner.setdefault(waiting, number) != number:
                continue
            for value in self.original[waiting].inputs:
                above = self.maker.get(value)
                if above is not None and above not in self.owner and above not in self.gone and self.made.get(value, number) == number:
                    pending.append(above)

    def _by_producers(self) -> None:
        """Remaining nodes belong to the last producer of their inputs, like an activation fused into its predecessor."""
        for number, node in enumerate(self.original):
            if number in self.owner or number in self.gone:
                continue
            owners = [self._owner_of(value) for value in node.inputs if value]
            known = [owner for owner in owners if owner is not None]
            if known:
                self.owner[number] = max(known)

    def _owner_of(self, value: str) -> int | None:
        maker = self.maker.get(value)
        return self.owner.get(maker) if maker is not None else None

    def _before_the_run(self, outputs: Sequence[str]) -> set[int]:
        """Return the nodes that depend on no input's values, or that no output depends on."""
        constant: set[int] = set()
        for number, node in enumerate(self.original):
            makers = [self.maker.get(value) for value in node.inputs if value and value not in self.inputs]
            fed = any(value in self.inputs for value in node.inputs)
            if node.op in _ONLY_SIZES or (not fed and all(maker in constant for maker in makers if maker is not None)):
                constant.add(number)
        used: set[int] = set()
        pending = [self.maker[name] for name in outputs if name in self.maker]
        while pending:
            number = pending.pop()
            if number not in used:
                used.add(number)
                pending.extend(self.maker[value] for value in self.original[number].inputs if value in self.maker)
        return constant | {number for number in range(len(self.original)) if number not in used}


# ONNX Runtime sessions, and graphs as nodes with names.

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
_DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "bool": np.bool_,
}


@immutable
class Graph:
    """The main graph of a model."""

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Session:
    """A session whose inputs and outputs stay on the device."""

    session: Any
    run: Callable[[], None]


def graph_of(path: Path) -> Graph:
    """Return the nodes of a file; weights beside it are not read."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    nodes = tuple(OnnxNode(node.op_type, node.name, tuple(node.input), tuple(node.output), node.domain) for node in graph.node)
    fed = tuple(value.name for value in graph.input if value.name not in weights)
    return Graph(nodes, fed, tuple(value.name for value in graph.output))


def open_session(request: Request, profile: Path | None = None, saved: Path | None = None) -> Session:
    """Return a session of the model, its inputs bound; a profile and the graph that runs are written where that is asked for."""
    options = _options(request, profile, saved)
    providers: list[Any] = [CPU]
    kind, _, number = request.options.device.partition(":")
    if kind == "cuda":
        providers = [(CUDA, {"device_id": int(number or 0)}), CPU]
    try:
        session = ort.InferenceSession(request.model.path, options, providers=providers)
    except Exception as error:
        raise PassError(f"ONNX Runtime does not load it: {first_line(error)}", code="IRS481", where=request.model.path) from error
    # Where CUDA could not be had, the session silently has none: then everything is bound to the processor.
    on_cuda = session.get_providers()[0] == CUDA
    place, index = ("cuda", int(number or 0)) if on_cuda else ("cpu", 0)
    return Session(session, _bound(session, request, place, index))


def _options(request: Request, profile: Path | None, saved: Path | None) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if request.options.optimise else level.ORT_DISABLE_ALL
    options.enable_mem_pattern = request.options.arena
    options.enable_cpu_mem_arena = request.options.arena
    # A session that knows the sizes plans its memory by them; with open ones it would reuse less.
    for symbol, size in request.model.bind.items():
        options.add_free_dimension_override_by_name(symbol, size)
    if request.options.threads:
        options.intra_op_num_threads = request.options.threads
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        # Weights of large models do not fit into the file itself.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", saved.name + ".data")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    return options


def _bound(session: Any, request: Request, place: str, index: int) -> Callable[[], None]:
    values = given_values(request.options.values, request.inputs)
    random = np.random.default_rng(request.options.seed)
    binding = session.io_binding()
    wanted = {spec.name: spec for spec in request.inputs}
    for one in session.get_inputs():
        spec = wanted.get(one.name)
        if spec is None:
            raise UsageError(
                f"input {one.name} has no sizes", code="IRS478", hint=f"say `--input {one.name}=f32[1,3,224,224]` with its sizes"
            )
        array = _array(spec, values, random)
        binding.bind_ortvalue_input(one.name, ort.OrtValue.ortvalue_from_numpy(array, place, index))
    results = [value.name for value in session.get_outputs()]

    def run() -> None:
        for name in results:
            binding.bind_output(name, place, index)
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        # A binding that keeps the results lends them to the next run, which is predicted for a program that is done with them.
        binding.clear_binding_outputs()

    return run


def _array(spec: InputSpec, values: Mapping[str, Any], random: np.random.Generator) -> Any:
    kind = _DTYPES.get(spec.dtype)
    if kind is None:
        raise UsageError(f"input {spec.name} has element type {spec.dtype}, for which there are no random values", code="IRS478")
    if spec.name in values:
        return np.ascontiguousarray(values[spec.name], dtype=kind)
    if np.issubdtype(kind, np.floating):
        return random.standard_normal(spec.shape).astype(kind)
    # Ones are valid as token ids, as masks and as counts.
    return np.ones(spec.shape, kind)


# ONNX Runtime's profile: which kernels each run had, how long they took, and the allocator's state after each.

OWNERS = ("If", "Loop", "Scan")
_SUFFIX = "_kernel_time"
_TYPES = {**{name: dtype.text for name, dtype in LONG_NAMES.items()}, "float": "f32", "double": "f64", "string": "str"}


@immutable
class Memory:
    """The allocator after a kernel, in bytes."""

    requested: int
    allocated: int
    peak: int
    held: int
    change: int
    """Of what is requested, by this kernel."""
    allocated_change: int


@immutable
class Kernel:
    """One kernel of a run."""

    name: str
    op: str
    provider: str
    started: float
    microseconds: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    memory: Memory | None


@immutable
class Profile:
    """All runs of a session."""

    runs: tuple[tuple[Kernel, ...], ...]
    unfinished: tuple[Kernel, ...]
    """Kernels of a run that did not come to its end."""
    has_device_times: bool
    """True where kernels on a GPU were timed there; otherwise their times are those of launching them."""


def read_profile(path: Path) -> Profile:
    """Read the file that ending the profiling wrote."""
    return parse_ort_profile(json.loads(path.read_text(encoding="utf-8")))


def parse_ort_profile(events: Iterable[Mapping[str, Any]]) -> Profile:
    """Kernels of the main graph by run; those of graphs inside a node run while that node runs."""
    runs: list[tuple[Kernel, ...]] = []
    pending: list[Mapping[str, Any]] = []
    on_device = False
    for event in events:
        if event["cat"] == "Kernel":
            on_device = True
        elif event["cat"] == "Node" and str(event["name"]).endswith(_SUFFIX):
            pending.append(event)
        elif event["name"] == "model_run":
            runs.append(tuple(_kernels(pending)))
            pending = []
    return Profile(tuple(runs), tuple(_kernels(pending)), on_device)


def _kernels(events: list[Mapping[str, Any]]) -> Iterator[Kernel]:
    ordered = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    end = -1.0
    for event in ordered:
        if event["ts"] < end:
            continue
        if event["args"].get("op_name") in OWNERS:
            end = event["ts"] + event["dur"]
        yield _kernel(event)


def _kernel(event: Mapping[str, Any]) -> Kernel:
    args = event["args"]
    return Kernel(
        str(event["name"]).removesuffix(_SUFFIX),
        str(args.get("op_name", "")),
        str(args.get("provider", "")),
        float(event["ts"]),
        float(event["dur"]),
        _type_texts(args.get("input_type_shape")),
        _type_texts(args.get("output_type_shape")),
        _memory(args),
    )


def _type_texts(items: object) -> tuple[str, ...]:
    """Return the types from what versions write as a list or as the text of one."""
    if isinstance(items, str):
        try:
            items = json.loads(items)
        except ValueError:
            return ()
    if not isinstance(items, list):
        return ()
    return tuple(f"{_TYPES.get(kind, '?')}[{','.join(map(str, shape))}]" for item in items for kind, shape in item.items())


def _memory(args: Mapping[str, Any]) -> Memory | None:
    names = (
        "mem_bytes_requested_in_use",
        "mem_bytes_in_use",
        "mem_in_use_peak",
        "mem_arena_held",
        "mem_requested_in_use_delta",
        "mem_in_use_delta",
    )
    if any(name not in args for name in names):
        return None
    return Memory(*(int(args[name]) for name in names))


_NAMES_SHOWN = 5


@immutable
class _Runs:
    """Kernels of all runs."""

    cold: tuple[Kernel, ...]
    warm: tuple[Kernel, ...]
    timed: tuple[tuple[Kernel, ...], ...]


def record_ort(request: Request, sink: Sink) -> None:
    """Run a model with ONNX Runtime and tell the sink what was seen."""
    wants_cuda = request.options.device != "cpu"
    if wants_cuda and CUDA not in ort.get_available_providers():
        hint = "pip install onnxruntime-gpu (in place of onnxruntime), or record with `--device cpu`"
        raise UsageError("this ONNX Runtime has no CUDA execution provider", code="IRS479", hint=hint)
    # In the folder of the process that asked, which deletes it also when this process is killed.
    own = Path(request.progress).parent if request.progress else None
    with TemporaryFolder(beside=own) as folder:
        saved = Path(folder) / "running.onnx"
        profiled = open_session(request, Path(folder) / "profile", saved)
        sink.begin(header(request, _device(request, profiled), _package_versions(), _settings(request)))
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
    """Return a cold run, a warm one, those that warm up, and those that are timed."""
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
        """Write operators, memory and problems."""
        runs = self._runs()
        mapping, nodes = self._mapping(runs.warm)
        ops = list(self._ops(runs, mapping, nodes))
        for op in ops:
            self.sink.add(op)
        events = [*_events("cold", runs.cold, ops), *_events("warm", runs.warm, ops)]
        for event in events:
            self.sink.add(event)
        for counters in _arena_counters(runs):
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
        """Return how running nodes stand for the file's, and which running node each kernel is."""
        if self.running is None:
            return None, [None] * len(kernels)
        mapping = map_nodes(self.original.nodes, self.running.nodes, self.original.inputs, self.original.outputs)
        return mapping, running_nodes(kernels, self.running.nodes)

    def _ops(self, runs: _Runs, mapping: NodeMap | None, nodes: Sequence[int | None]) -> Iterator[OpRecord]:
        names = [kernel.name for kernel in runs.warm]
        same = [run for run in runs.timed if [kernel.name for kernel in run] == names]
        before = _bytes_before(runs.warm)
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
            shown = few(names, _NAMES_SHOWN, "`irscope run RECORDING` has all")
            yield Problem("cpu_fallback", f"{len(elsewhere)} of {len(kernels)} operators ran on the processor: {shown}")
        copies = [kernel for kernel in kernels if kernel.op.startswith("Memcpy")]
        if copies:
            yield Problem("copies", f"{len(copies)} copies between processor and GPU in each run")


def running_nodes(kernels: Sequence[Kernel], nodes: Sequence[OnnxNode]) -> list[int | None]:
    """Return which node each kernel is: the graph is saved in the order in which it runs, but a kernel may be left out."""
    if [kernel.op for kernel in kernels] == [node.op for node in nodes]:
        return list(range(len(nodes)))
    by_name = {node.name: number for number, node in enumerate(nodes) if node.name}
    return [by_name.get(kernel.name) for kernel in kernels]


def _events(run: str, kernels: Sequence[Kernel], ops: Sequence[OpRecord]) -> Iterator[MemoryEvent]:
    """Yield how the bytes in use differ after each operator from those after the one before."""
    in_use = _bytes_before(kernels)
    if len(kernels) != len(ops) or in_use is None:
        return
    start = kernels[0].started
    for index, kernel in enumerate(kernels):
        if kernel.memory is not None and kernel.memory.requested != in_use:
            ended = round(kernel.started + kernel.microseconds - start, 3)
            yield MemoryEvent(run, kernel.memory.requested - in_use, index, category="net", kernel=kernel.op, time_us=ended)
            in_use = kernel.memory.requested


def _bytes_before(kernels: Sequence[Kernel]) -> int | None:
    """Return the bytes in use when the run began."""
    first = kernels[0].memory if kernels else None
    return first.requested - first.change if first is not None else None


def _arena_counters(runs: _Runs) -> Iterator[Counters]:
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
        from irscope.measure.machine import cuda_device

        return cuda_device(request.options.device)
    return processor(request.options.threads)


def _package_versions() -> dict[str, str]:
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
    if request.executor == "ort-cpu" and (bits := vector_bits()) is not None:
        settings["vector_bits"] = bits
    return settings | environment("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
