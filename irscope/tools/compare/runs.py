"""A model beside a recording of a real run: the prediction for that run, and what belongs to what."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from irscope.devices import DeviceProfile
from irscope.devices.catalogue import catalogued
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.ir.program import LIVE
from irscope.ops.registry import find_op
from irscope.ops.spec import Family
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.time import Time, Timing
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.cuda import Moment
from irscope.passes.memory.liveness import activation_peak
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.settings import Settings
from irscope.recording import MemoryEvent, OpRecord, Recording, figures, peak_of, without_workspaces
from irscope.recording.records import Setting
from irscope.report.values import Provenance, Quantity, quantity
from irscope.session import Model, check_target, file_digest
from irscope.tools.compare.matching import How, Side, align, common_axis, rising

COLD, WARM = "cold", "warm"
_MOMENTS: tuple[tuple[str, Moment], ...] = ((COLD, "cold"), (WARM, "warm"))
_LIFETIMES = {"pt2": "ssa", "torchscript": "jit", "onnx": "ort"}
"""Lifetime models: an exported graph is run node by node, a live module as Python does it."""
_CPU = "kernels' workspaces on a processor are not predicted: both sides are without them"


@immutable
class Predicted:
    """The figures of one run, in bytes; a quantity without a value says why."""

    peak: Quantity
    reserved: Quantity


@dataclass
class Expected:
    """The prediction with which a recording is compared."""

    counter: str
    """The counter it is compared with: requested or allocated."""
    baseline: Quantity
    runs: dict[str, Predicted]
    alive: dict[Node, int]
    """Requested bytes alive at each node beyond the baseline."""
    made: dict[Node, int]
    """Bytes that each node allocates for its results."""
    workspace: dict[Node, int] = field(default_factory=dict)
    """Predicted temporary memory of kernels, in bytes."""
    seconds: dict[Node, float] = field(default_factory=dict)
    """The least time of each node on the recorded device."""
    timing: Timing | None = None
    """The predicted time on the recorded device."""
    device: DeviceProfile | None = None
    notes: list[str] = field(default_factory=list)
    caveat: str = ""
    """Reason why the prediction does not match the recorded program exactly, in a few words."""


def lifetime_of(recording: Recording) -> str:
    """Return the note on the lifetime model of the recorded run."""
    if recording.header.executor.startswith("ort"):
        return "ort"
    return _LIFETIMES.get(recording.header.model.format, "eager")


def settings_of(recording: Recording, given: Settings) -> Settings:
    """Return the device and version that were recorded, unless the user names others."""
    header = recording.header
    device = given.device
    if not device and header.executor == "torch-cuda":
        profile = catalogued(header.device.name)
        device = profile.name if profile is not None else ""
    torch = given.torch or (header.versions.get("torch", "") if header.executor == "torch-cuda" else "")
    conf = header.settings.get("PYTORCH_CUDA_ALLOC_CONF", header.settings.get("PYTORCH_ALLOC_CONF", ""))
    alloc_conf = given.alloc_conf or (str(conf) if header.executor == "torch-cuda" else "")
    ort = given.ort or (header.versions.get("onnxruntime", "") if header.executor.startswith("ort") else "")
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf, ort=ort, strict=given.strict)
    try:
        check_target(settings)
    except UsageError as error:
        if given.torch if error.code == "IRS641" else given.alloc_conf:
            raise
        hint = "--torch and --alloc-conf replace what the recording says"
        raise LoadError(f"what was recorded cannot be predicted: {error.message}", code=error.code, hint=hint) from error
    return settings


def expected(side: Side, recording: Recording) -> Expected:
    """Predict the recorded run."""
    executor = recording.header.executor
    made = _made(side)
    if executor.startswith("ort"):
        found = _ort(side, made, executor, recording.header.settings)
    elif executor == "torch-cuda":
        found = _cuda(side, made)
    else:
        found = _expected_of_tensors(side, made)
    found.notes.insert(0, f"lifetimes {side.timeline.model}: {_RUNS[side.timeline.model]}")
    found.caveat = found.caveat or _of_other_program(side, recording)
    _times(side.model, recording, found)
    return found


def _of_other_program(side: Side, recording: Recording) -> str:
    """Say which of a file and the Python module that it was made from was recorded, and what that means for the prediction."""
    recorded, program = recording.header.model.format, side.model.program
    if program.format in LIVE or not Ranges(model="eager").is_modelled(program):
        return ""
    if side.timeline.peak_by_lives is not None:
        return "recorded was the Python module, and this file shows its live ranges by lines of source alone: they are modelled"
    if recorded == program.format:
        return "recorded was this file itself, and so it is predicted: its card has that as `run as a file`"
    return ""


_RUNS = {
    "ssa": "the graph is run node by node, and tensors are freed after their last use",
    "jit": "TorchScript's interpreter frees tensors after their last use",
    "eager": "Python's frames hold tensors until calls return",
    "ort": "ONNX Runtime's planner lets results take over dead buffers",
}


def _made(side: Side) -> dict[Node, int]:
    found: dict[Node, int] = {}
    for one in side.timeline.ranges:
        if isinstance(one.size, int):
            node = side.timeline.steps[one.born]
            found[node] = found.get(node, 0) + one.size
    return found


def _alive_by_node(side: Side) -> dict[Node, int]:
    return {node: size for node, size in zip(side.timeline.steps, side.timeline.alive, strict=True) if isinstance(size, int)}


def _resident_bytes(side: Side) -> Quantity:
    sizes = list(side.timeline.resident.values())
    total = sum(size for size in sizes if isinstance(size, int))
    saved = side.totals.tied_bytes_saved
    if not isinstance(saved, int) or not all(isinstance(size, int) for size in sizes):
        return _unknown("the size of a weight or an input is not known")
    return Quantity(total - saved, note="weights and inputs")


def _unknown(why: str) -> Quantity:
    return Quantity(None, Provenance.UNKNOWN, note=why)


def _expected_of_tensors(side: Side, made: dict[Node, int]) -> Expected:
    baseline = _resident_bytes(side)
    timeline = side.timeline
    is_known = isinstance(timeline.peak, int) and not timeline.unsized
    most = baseline + quantity(activation_peak(timeline)) if is_known else _unknown("sizes are not known")
    one = Predicted(most, _unknown("a processor's allocator reserves nothing that is counted"))
    return Expected("requested", baseline, {COLD: one, WARM: one}, _alive_by_node(side), made, notes=[_CPU])


def _cuda(side: Side, made: dict[Node, int]) -> Expected:
    memory = side.device_memory
    central = memory.central if memory is not None else None
    if memory is None or central is None or memory.is_open:
        why = memory.reason if memory is not None and memory.reason else "sizes depend on data"
        nothing = Predicted(_unknown(why), _unknown(why))
        return Expected("allocated", _unknown(why), {COLD: nothing, WARM: nothing}, _alive_by_node(side), made, notes=[why])
    runs = {run: Predicted(memory.counter(moment, "allocated"), memory.counter(moment, "reserved")) for run, moment in _MOMENTS}
    found = Expected("allocated", Quantity(central.before.allocated), runs, _alive_by_node(side), made, device=memory.target.device)
    moments = memory.moments
    if moments is not None:
        columns = [moments.by_category[key] for key in ("workspace", "temporary") if key in moments.by_category]
        by_name = {node.name: sum(parts) for node, *parts in zip(memory.steps, *columns, strict=True)} if columns else {}
        found.workspace = {node: by_name[node.name] for node in side.timeline.steps if by_name.get(node.name)}
    return found


_AS_IN_FILE = (
    "ONNX Runtime is predicted for the graph as it is in the file, and it ran the one that its optimisations made of it: "
    "--ort-level all predicts that one, --no-optimize records this one"
)


def _ort(side: Side, made: dict[Node, int], executor: str, settings: Mapping[str, Setting]) -> Expected:
    threads = settings.get("threads", 1)
    pattern = bool(settings.get("memory_pattern", True))
    plan = side.model.manager.get(OrtMemory(pattern=pattern, threads=threads if isinstance(threads, int) and threads > 0 else 1))
    optimised = settings.get("graph_optimization", "all") != "none"
    figures = plan.figures
    if figures is None or executor != "ort-cpu":
        why = "what kernels of this provider take is not predicted" if executor != "ort-cpu" else "sizes are not known"
        nothing = Predicted(_unknown(why), _unknown(why))
        return Expected("requested", _unknown(why), {COLD: nothing, WARM: nothing}, _alive_by_node(side), made, notes=[why])
    before = figures.before
    alive = {launch.node: figures.cold.requested[step] - before.requested for step, launch in enumerate(plan.order)}
    runs = {
        COLD: Predicted(Quantity(figures.cold.peak.requested), Quantity(figures.cold.peak.reserved)),
        WARM: Predicted(Quantity(figures.warm.peak.requested), Quantity(figures.warm.peak.reserved)),
    }
    found = Expected("requested", Quantity(before.requested), runs, alive, made)
    if optimised and side.model.program.metadata.get("ort_level", "off") == "off":
        found.notes.append(_AS_IN_FILE)
        found.caveat = "predicted for the graph in the file; ONNX Runtime's optimisations ran another one (--ort-level all)"
    return found


def _times(model: Model, recording: Recording, found: Expected) -> None:
    """Least and predicted times on the recorded device, where its figures are known."""
    for name in _profiles(model, recording, found):
        try:
            bounds, found.timing = model.manager.get(Roofline(device=name)), model.manager.get(Time(device=name))
        except IrscopeError:
            continue
        found.device = bounds.device
        for node in bounds.nodes:
            if node.binding != "unknown":
                found.seconds[node.node] = found.seconds.get(node.node, 0.0) + bounds.seconds_of(node)
        return
    about = recording.header.device.name or "the device"
    found.notes.append(f"no least times: the figures of {about} are not known; --device names a profile, irscope calibrate makes one")


def _profiles(model: Model, recording: Recording, found: Expected) -> Iterator[str]:
    """Yield the names of profiles to try, the best first."""
    if found.device is not None:
        yield found.device.name
    elif model.manager.settings.device:
        yield model.manager.settings.device
    else:
        if recording.header.device.kind == "cpu":
            yield "this"
        known = catalogued(recording.header.device.name)
        if known is not None:
            yield known.name


def flops_by_node(side: Side) -> Mapping[Node, int]:
    """FLOPs of all runs of each node, where they are numbers."""
    flops: dict[Node, int] = {}
    for entry in side.costs.entries:
        total = entry.total.flops
        if entry.bounds is None and isinstance(total, int):
            flops[entry.node] = flops.get(entry.node, 0) + total
    return flops


# A model beside a recording of a real run: figures, nodes, modules, and whether the recording is one of this model at all.

# Nodes of operators that ONNX Runtime renamed when it chose another layout: their kernels' names still tell.

_SUFFIX = re.compile(r"(_nchwc|_token_\d+|/duplicated)+$")
"""Suffixes that are added to the name of a tensor when its layout changes."""


def owners(steps: Sequence[Node], ops: Sequence[OpRecord], names: Mapping[str, int]) -> dict[int, list[int]]:
    """Return the operators of each step by the names that they know.

    An operator that names no nodes, as its results were renamed, leaves them all to the next one that does. Each is given back those
    between its own result and the one before: what works element by element belongs to what makes its operand, all else to what reads it.
    """
    found: dict[int, list[int]] = {}
    crowds: dict[int, int] = {}
    for op in ops:
        sources = list(dict.fromkeys(names[source] for source in op.sources if source in names))
        for step in sources:
            found.setdefault(step, []).append(op.index)
            if len(sources) > 1:
                crowds[step] = op.index
    told = {names[base]: op.index for op in ops if not op.sources for base in _bases(op) if base in names}
    if not told or not crowds:
        return found
    owner = {**crowds, **{step: op for step, op in told.items() if step in crowds}}
    number = {node: step for step, node in enumerate(steps)}
    for step in sorted(crowds):
        if step not in told and _is_elementwise(steps[step]):
            makers = [number[value.node] for value in steps[step].inputs if value is not None and value.node in number]
            owner[step] = max((owner[maker] for maker in makers if maker in owner), default=owner[step])
    for step in sorted(crowds, reverse=True):
        if step not in told and owner[step] == crowds[step]:
            readers = [number[user] for output in steps[step].outputs for user in output.users or () if user in number]
            owner[step] = min((owner[reader] for reader in readers if reader in owner), default=owner[step])
    return {**found, **{step: [op] for step, op in owner.items()}}


def _bases(op: OpRecord) -> list[str]:
    """Return the names of kernels without what a layout puts behind them."""
    return [base for kernel in op.kernels if (base := _SUFFIX.sub("", kernel)) != kernel]


def _is_elementwise(node: Node) -> bool:
    spec = find_op(node.op)
    return spec is not None and spec.family is Family.ELEMENTWISE


# Which recorded operator carries out which node: by name, then by operator, module and order.

_LAYOUT = re.compile(r"Memcpy(To|From)Host|Reorder(In|Out)put|(Memcpy|Transpose).*_token_\d+")
"""Operators that ONNX Runtime inserts between nodes."""


@dataclass
class RunMatching:
    """Operators by node and nodes by operator; a fused operator has several nodes, and a composite node several operators."""

    ops_of: dict[int, list[int]] = field(default_factory=dict)
    nodes_of: dict[int, list[int]] = field(default_factory=dict)
    how: dict[int, How] = field(default_factory=dict)
    """By operator."""

    def pair(self, node: int, op: int, how: How) -> None:
        """Note that an operator carries out a node."""
        self.ops_of.setdefault(node, []).append(op)
        self.nodes_of.setdefault(op, []).append(node)
        self.how.setdefault(op, how)


def match_recording(side: Side, recording: Recording) -> RunMatching:
    """Match what was recorded with the nodes of the main graph, by their steps."""
    matching = RunMatching()
    steps = side.timeline.steps
    names = {output.name: step for step, node in enumerate(steps) for output in node.outputs if output.name is not None}
    for step, indices in sorted(owners(steps, recording.ops, names).items()):
        for index in indices:
            matching.pair(step, index, How.NAME)
    keys: tuple[tuple[Callable[[Node], Hashable], Callable[[OpRecord], Hashable]], ...] = (
        (
            lambda node: (_bare_operator(node.source), node.scope.path, _types(node)),
            lambda op: (_bare_operator(op.op), op.scope, op.outputs),
        ),
        (lambda node: (_bare_operator(node.source), node.scope.path), lambda op: (_bare_operator(op.op), op.scope)),
        (lambda node: (_bare_operator(node.source), _types(node)), lambda op: (_bare_operator(op.op), op.outputs)),
        (lambda node: _bare_operator(node.source), lambda op: _bare_operator(op.op)),
    )
    for of_node, of_op in keys:
        _by_order(steps, recording.ops, matching, of_node, of_op)
    return matching


def _by_order(
    steps: Sequence[Node],
    ops: Sequence[OpRecord],
    matching: RunMatching,
    of_node: Callable[[Node], Hashable],
    of_op: Callable[[OpRecord], Hashable],
) -> None:
    """Align the nodes that are still unmatched between two matched neighbours, in order."""
    known: dict[Hashable, int] = {}
    edges = [(-1, -1), *spine(matching), (len(steps), len(ops))]
    for (low_node, low_op), (high_node, high_op) in pairwise(edges):
        nodes = [step for step in range(low_node + 1, high_node) if step not in matching.ops_of]
        left = [op for op in range(low_op + 1, high_op) if op not in matching.nodes_of]
        if nodes and left:
            first = [known.setdefault(of_node(steps[step]), len(known)) for step in nodes]
            second = [known.setdefault(of_op(ops[op]), len(known)) for op in left]
            for x, y in align(first, second):
                matching.pair(nodes[x], left[y], How.ORDER)


def spine(matching: RunMatching) -> list[tuple[int, int]]:
    """Return a longest list of pairs of step and operator in the same order on both sides; a fused operator counts with its first step."""
    first: dict[int, int] = {}
    for op, steps in sorted(matching.nodes_of.items()):
        first.setdefault(min(steps), op)
    return rising(sorted(first.items()))


def _bare_operator(name: str) -> str:
    """Return an operator without the parts that say whose it is: aten::relu_, onnx::Conv@11, com.microsoft::Gelu."""
    return name.rpartition("::")[2].partition("@")[0].partition(".")[0].strip("_").lower()


def _types(node: Node) -> tuple[str, ...]:
    return tuple([output.type.text for output in node.outputs])


@immutable
class Unmatched:
    """A node that nothing recorded carries out, or a recorded operator without a node."""

    side: str
    """node or recorded."""
    name: str
    operator: str
    module: str
    reason: str


def folded(steps: Sequence[Node], recording: Recording) -> frozenset[int]:
    """Return the steps of nodes that were constant-folded or removed before the first run."""
    names = frozenset(recording.mapping.folded) if recording.mapping is not None else frozenset()
    return frozenset(step for step, node in enumerate(steps) if names and node.name in names)


def unmatched(side: Side, recording: Recording, matching: RunMatching) -> Iterator[Unmatched]:
    """Yield everything without a counterpart, with the reason: nodes first."""
    steps = side.timeline.steps
    last = max(matching.ops_of, default=-1)
    gone = folded(steps, recording)
    for step, node in enumerate(steps):
        if step not in matching.ops_of:
            reason = "computed or taken out before the first run" if step in gone else _why_not_run(node, recording, step > last)
            yield Unmatched("node", node.name, node.op, node.scope.module, reason)
    for op in recording.ops:
        if op.index not in matching.nodes_of:
            name = op.sources[0] if op.sources else ""
            yield Unmatched("recorded", name or f"#{op.index}", op.op, op.scope.replace("/", "."), _why_unknown(op))


def _why_not_run(node: Node, recording: Recording, is_behind: bool) -> str:
    if not recording.ops:
        return "the recording has no operators"
    if is_behind and not recording.complete:
        return "the recording ends before it"
    spec = find_op(node.op)
    if spec is not None and spec.family is Family.VIEW:
        return "a view: the runtime had nothing to do for it"
    if recording.header.executor.startswith("ort"):
        return "no kernel names it: ONNX Runtime folded it, or took it out"
    return "nothing recorded has its name, or its operator and module at this place"


def _why_unknown(op: OpRecord) -> str:
    if _LAYOUT.search(op.op):
        return "the runtime put it in: a copy between devices or into another layout"
    if op.sources:
        return f"the model has no node {op.sources[0]}"
    return "no node has its operator and module at this place"


# A model beside a recording of a real run: figures, nodes, modules, and whether the recording is one of this model at all.

_FEW = 0.5
"""A recording in which less than this share of the operators is found is not of this model."""
_SECOND_COPY = 0.9
"""More than this share of the parameters above what is expected, and a second copy of the model is there."""


@immutable
class Figure:
    """One of the four figures of a run."""

    name: str
    """baseline, peak, delta or reserved."""
    predicted: Quantity
    measured: int | None

    @property
    def difference(self) -> int | None:
        """Predicted less measured."""
        value = self.predicted.value
        return value - self.measured if isinstance(value, int) and self.measured is not None else None

    @property
    def error(self) -> float | None:
        """Return the difference as a share of what was measured; None where one of them is not known."""
        if self.difference is None:
            return None
        return self.difference / self.measured if self.measured else (0.0 if self.difference == 0 else None)


def figures_of(baseline: Quantity, peak: Quantity, held: int | None, top: int | None, delta: int | None) -> list[Figure]:
    """Return what there is before a run, its peak and what it adds, as predicted and as measured."""
    return [Figure("baseline", baseline, held), Figure("peak", peak, top), Figure("delta", peak - baseline, delta)]


@immutable
class Measured:
    """Measurements of some operators together; None where the recording has none."""

    ops: int
    seconds: float | None
    made: int | None
    alive: int | None
    """The most bytes alive while one of them ran, without kernels' workspaces."""
    workspace: int | None


@dataclass
class RunComparison:
    """A model and a recording."""

    side: Side
    recording: Recording
    matching: RunMatching
    expected: Expected
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def steps(self) -> list[Node]:
        return self.side.timeline.steps

    @property
    def run(self) -> str:
        """Return the run that is compared with the prediction: the warm one, on ONNX Runtime the first, which allocates tensors one by
        one.
        """
        first, second = (COLD, WARM) if self.recording.header.executor.startswith("ort") else (WARM, COLD)
        return first if self.recording.run(first) or not self.recording.run(second) else second

    @cached_property
    def events(self) -> list[MemoryEvent]:
        """Events of that run without kernels' workspaces."""
        return without_workspaces(self.recording.run(self.run))

    @cached_property
    def unmatched(self) -> list[Unmatched]:
        return list(unmatched(self.side, self.recording, self.matching))

    @property
    def matched(self) -> tuple[int, int]:
        """Return the numbers of matched nodes and of matched recorded operators."""
        return len(self.matching.ops_of), len(self.matching.nodes_of)

    @cached_property
    def folded(self) -> frozenset[int]:
        """Return the steps of nodes that ONNX Runtime constant-folded or removed before the first run, so that they have no recording."""
        return folded(self.steps, self.recording) - self.matching.ops_of.keys()

    @property
    def ran(self) -> int:
        """Return the number of nodes for which a recorded operator is expected."""
        return len(self.steps) - len(self.folded)

    # -- figures -----------------------------------------------------------------------------------------------

    def figures(self, run: str) -> list[Figure]:
        """Baseline, peak, delta and reserved of a run."""
        measured = figures(self.recording, run, self.expected.counter)
        delta = measured.delta
        peak = measured.peak
        if self.recording.header.executor == "torch-cpu" and self.recording.run(run):
            # The counters of a processor are the sum of the events, workspaces included; what is predicted is without these.
            delta = peak_of(without_workspaces(self.recording.run(run))).bytes
            peak = None if measured.baseline is None else measured.baseline + delta
        predicted = self.expected.runs[run]
        made = figures_of(self.expected.baseline, predicted.peak, measured.baseline, peak, delta)
        return [*made, Figure("reserved", predicted.reserved, measured.reserved)]

    def workspaces(self, run: str) -> int | None:
        """Return by how much kernels' workspaces raised the peak; None where the recording has no events."""
        events = self.recording.run(run)
        return peak_of(events).bytes - peak_of(without_workspaces(events)).bytes if events else None

    @property
    def is_recurrent(self) -> bool:
        """Return whether a recurrent layer ran on a processor, where oneDNN makes tensors for each layer that no operator shows."""
        on_processor = self.recording.header.executor == "torch-cpu"
        return on_processor and any((spec := find_op(node.op)) is not None and spec.family is Family.RECURRENT for node in self.steps)

    # -- nodes -------------------------------------------------------------------------------------------------

    @cached_property
    def flops(self) -> dict[Node, int]:
        return dict(flops_by_node(self.side))

    @cached_property
    def levels(self) -> list[int | None]:
        """Return, by operator, the most bytes alive while it ran; None where the recording has no events."""
        if not self.events:
            return [None] * len(self.recording.ops)
        levels: list[int | None] = [None] * len(self.recording.ops)
        alive, reached = 0, -1
        for event in self.events:
            if event.op is None:
                alive += event.bytes
                continue
            while reached < event.op:
                # What is alive when an operator begins; those without events keep it.
                reached += 1
                levels[reached] = alive
            alive += event.bytes
            if event.inside:
                levels[event.op] = max(levels[event.op] or 0, alive)
        for index in range(reached + 1, len(levels)):
            levels[index] = alive
        return levels

    def share(self, op: OpRecord) -> int:
        """Return how many nodes an operator carries out."""
        return max(1, len(self.matching.nodes_of.get(op.index, ())))

    def measured(self, steps: list[int]) -> Measured:
        """Measurements of the operators of some nodes; a fused one counts once."""
        indices = sorted({index for step in steps for index in self.matching.ops_of.get(step, ())})
        return self.of_ops([self.recording.ops[index] for index in indices])

    def of_ops(self, ops: list[OpRecord]) -> Measured:
        """Return the same for operators."""
        times = [op.time.median_us for op in ops if op.time is not None]
        made = [op.made for op in ops if op.made is not None]
        spaces = [op.workspace for op in ops if op.workspace is not None]
        levels = [level for op in ops if (level := self.levels[op.index]) is not None]
        return Measured(
            len(ops), sum(times) / 1e6 if times else None, sum(made) if made else None, max(levels, default=None), max(spaces, default=None)
        )

    @cached_property
    def groups(self) -> list[list[int]]:
        """Return the steps that one operator carries out together; every other step is alone."""
        groups: list[list[int]] = []
        of_op: dict[int, list[int]] = {}
        for step in range(len(self.steps)):
            ops = self.matching.ops_of.get(step, [])
            shared = next((op for op in ops if len(self.matching.nodes_of[op]) > 1), None)
            if shared is None:
                groups.append([step])
            elif shared in of_op:
                of_op[shared].append(step)
            else:
                of_op[shared] = [step]
                groups.append(of_op[shared])
        return groups

    def how(self, steps: list[int]) -> How | None:
        """Return what the first operator of some nodes was matched by."""
        ops = [op for step in steps for op in self.matching.ops_of.get(step, ())]
        return self.matching.how[ops[0]] if ops else None

    # -- time --------------------------------------------------------------------------------------------------

    @cached_property
    def axis(self) -> list[tuple[int, int]]:
        """Return the steps and operators along one axis."""
        return common_axis(spine(self.matching), len(self.steps), len(self.recording.ops))

    @cached_property
    def lines(self) -> tuple[list[int], list[int]] | None:
        """Return the bytes predicted and measured as alive at each place of the axis; None where one of them is not known."""
        predicted = [self.expected.alive.get(node) for node in self.steps]
        if not self.events or not predicted or any(size is None for size in predicted):
            return None
        levels = [level or 0 for level in self.levels]
        first = [predicted[place] or 0 if place >= 0 else 0 for place, _ in self.axis]
        second = [levels[place] if 0 <= place < len(levels) else 0 for _, place in self.axis]
        return first, second


def compare_recording(model: Model, recording: Recording, lifetime: str = "auto") -> RunComparison:
    """Lay a recording beside a model that was opened with its inputs. Raises LoadError where it is of another model."""
    side = Side(model, lifetime_of(recording) if lifetime == "auto" else lifetime)
    matching = match_recording(side, recording)
    _check_model(side, recording, matching)
    compared = RunComparison(side, recording, matching, expected(side, recording))
    compared.diagnostics += _remarks(compared)
    return compared


def _check_model(side: Side, recording: Recording, matching: RunMatching) -> None:
    """Raise LoadError where few operators are matched, or those matched by name have results of other types than the model's nodes."""
    ops, nodes = recording.ops, side.timeline.steps
    if not ops or _same_file(side, recording):
        return
    shares = [(len(matching.nodes_of), len(ops), "of its operators are in the model")]
    if recording.complete:
        shares.append((len(matching.ops_of.keys() | folded(nodes, recording)), len(nodes), "of the model's nodes are in it"))
    if not _other_inputs(side, recording):
        alike, known = _count_agreeing_types(nodes, ops, matching)
        shares.append((alike, known, "of its operators make what the model's nodes make"))
    for part, whole, text in shares:
        if whole and part / whole < _FEW:
            name = recording.header.model.name or "another model"
            message = f"this recording is of a different model ({name}): only {part} of {whole} {text}"
            raise LoadError(message, code="IRS661", where=recording.path, hint="give the model that was recorded")


def _count_agreeing_types(nodes: Sequence[Node], ops: Sequence[OpRecord], matching: RunMatching) -> tuple[int, int]:
    """Return how many operators with one node and recorded result types agree with the node, and how many there are."""
    alike = known = 0
    for index, steps in matching.nodes_of.items():
        made = ops[index].outputs
        if made and len(steps) == 1 and len(matching.ops_of[steps[0]]) == 1:
            known += 1
            alike += made[0] == nodes[steps[0]].outputs[0].type.text if nodes[steps[0]].outputs else 0
    return alike, known


def _other_inputs(side: Side, recording: Recording) -> list[tuple[str, str, str]]:
    """Return the inputs whose type is another one than it was when the model was recorded: name, type then, type now."""
    inputs = {value.name: value.type.text for value in side.model.graph.inputs}
    return [(one.name, one.type, inputs[one.name]) for one in recording.header.model.inputs if inputs.get(one.name, one.type) != one.type]


def _same_file(side: Side, recording: Recording) -> bool:
    digest = recording.header.model.sha256
    path = side.model.program.path
    if not digest or not path:
        return False
    return file_digest(Path(path)) == digest


def _remarks(compared: RunComparison) -> Iterator[Diagnostic]:
    recording, side = compared.recording, compared.side
    for note in recording.notes:
        yield Diagnostic(Severity.WARNING, "IRS494", note)
    if not recording.complete and not any(problem.op is not None for problem in recording.problems) and not recording.notes:
        yield Diagnostic(Severity.WARNING, "IRS494", "the run failed; what was recorded before stands")
    for problem in recording.problems:
        place = " ".join(part for part in (problem.op_name, problem.scope) if part)
        yield Diagnostic(Severity.WARNING, "IRS493", problem.text, place)
    if recording.header.model.sha256 and side.model.program.path and not _same_file(side, recording):
        yield Diagnostic(Severity.NOTE, "IRS495", "the file is not the very one that was recorded; nodes match by name or structure")
    yield from _types_differ(compared)
    yield from _second_copy(compared)
    yield from _open_sizes(compared)


def _types_differ(compared: RunComparison) -> Iterator[Diagnostic]:
    for name, recorded, held in _other_inputs(compared.side, compared.recording):
        message = f"input {name} was {recorded} when it was recorded, and the prediction is for {held}"
        yield Diagnostic(Severity.WARNING, "IRS496", message, hint="leave --input and --bind away to predict what was recorded")


def _second_copy(compared: RunComparison) -> Iterator[Diagnostic]:
    """More than the model and its inputs on the device: most often a second copy of the model."""
    predicted, side = compared.expected.baseline.value, compared.side
    held = figures(compared.recording, COLD, compared.expected.counter).baseline
    weights = side.totals.bytes
    if not isinstance(predicted, int) or held is None or not isinstance(weights, int) or not weights:
        return
    copies = (held - predicted) / weights
    if copies >= _SECOND_COPY:
        message = (
            f"before the run {held - predicted:,} bytes more were in use than the model and its inputs take, "
            f"{copies:.1f} times its parameters: more than one copy of the model was on the device"
        )
        yield Diagnostic(Severity.WARNING, "IRS492", message, hint="record in a process that holds the model once")


def _open_sizes(compared: RunComparison) -> Iterator[Diagnostic]:
    timeline = compared.side.timeline
    if timeline.unsized:
        yield Diagnostic(Severity.WARNING, "IRS301", f"{len(timeline.unsized)} tensors have no known size and are not counted")
