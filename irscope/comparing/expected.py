"""The prediction for a recorded run: with its lifetime model, device and version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from irscope.comparing.side import Side
from irscope.devices import DeviceProfile
from irscope.devices.catalogue import all_devices
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.ir.graph import Node
from irscope.passes.cuda.result import Moment
from irscope.passes.ort_memory import OrtMemory
from irscope.passes.roofline import Roofline
from irscope.passkit.settings import Settings
from irscope.recording import Recording
from irscope.recording.records import Setting
from irscope.report.values import Provenance, Quantity
from irscope.session import Model, check_target

COLD, WARM = "cold", "warm"
_MOMENTS: tuple[tuple[str, Moment], ...] = ((COLD, "cold"), (WARM, "warm"))
_LIFETIMES = {"pt2": "ssa", "torchscript": "jit", "onnx": "ort"}
"""Lifetime models: an exported graph is run node by node, a live module as Python does it."""
_CPU = "kernels' workspaces on a processor are not predicted: both sides are without them"


@dataclass(frozen=True, slots=True)
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
    device: DeviceProfile | None = None
    notes: list[str] = field(default_factory=list)
    caveat: str = ""
    """Why the prediction does not match the recorded program exactly, in a few words."""


def lifetime_of(recording: Recording) -> str:
    """The note on the lifetime model of the recorded run."""
    if recording.header.executor.startswith("ort"):
        return "ort"
    return _LIFETIMES.get(recording.header.model.format, "eager")


def settings_of(recording: Recording, given: Settings) -> Settings:
    """The device and version that were recorded, unless the user names others."""
    header = recording.header
    device = given.device
    if not device and header.executor == "torch-cuda":
        found = catalogued(header.device.name)
        device = found.name if found is not None else ""
    torch = given.torch or (header.versions.get("torch", "") if header.executor == "torch-cuda" else "")
    conf = header.settings.get("PYTORCH_CUDA_ALLOC_CONF", header.settings.get("PYTORCH_ALLOC_CONF", ""))
    alloc_conf = given.alloc_conf or (str(conf) if header.executor == "torch-cuda" else "")
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf, strict=given.strict)
    try:
        check_target(settings)
    except UsageError as error:
        if given.torch if error.code == "IRS641" else given.alloc_conf:
            raise
        hint = "--torch and --alloc-conf give others than the recording says"
        raise LoadError(f"what was recorded cannot be predicted: {error.message}", code=error.code, hint=hint) from error
    return settings


def catalogued(name: str) -> DeviceProfile | None:
    """The profile of a device by the name that its driver gives it: the one whose short name has the most words of it."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    found = [one for one in all_devices() if set(one.name.split("-")) <= words]
    return max(found, key=lambda one: len(one.name.split("-")), default=None)


def expected(side: Side, recording: Recording) -> Expected:
    """Predict the recorded run."""
    executor = recording.header.executor
    made = _made(side)
    if executor.startswith("ort"):
        found = _ort(side, made, executor, recording.header.settings)
    elif executor == "torch-cuda":
        found = _cuda(side, made)
    else:
        found = _plain(side, made)
    found.notes.insert(0, f"lifetimes {side.timeline.model}: {_RUNS[side.timeline.model]}")
    _times(side.model, recording, found)
    return found


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


def _alive(side: Side) -> dict[Node, int]:
    return {node: size for node, size in zip(side.timeline.steps, side.timeline.alive, strict=True) if isinstance(size, int)}


def _resident(side: Side) -> Quantity:
    sizes = list(side.timeline.resident.values())
    total = sum(size for size in sizes if isinstance(size, int))
    saved = side.totals.tied_bytes_saved
    if not isinstance(saved, int) or not all(isinstance(size, int) for size in sizes):
        return _unknown("the size of a weight or an input is not known")
    return Quantity(total - saved, note="weights and inputs")


def _unknown(why: str) -> Quantity:
    return Quantity(None, Provenance.UNKNOWN, note=why)


def _plain(side: Side, made: dict[Node, int]) -> Expected:
    baseline = _resident(side)
    peak = side.timeline.peak
    most = baseline + peak if isinstance(peak, int) and not side.timeline.unsized else _unknown("sizes are not known")
    one = Predicted(most, _unknown("a processor's allocator reserves nothing that is counted"))
    return Expected("requested", baseline, {COLD: one, WARM: one}, _alive(side), made, notes=[_CPU])


def _cuda(side: Side, made: dict[Node, int]) -> Expected:
    memory = side.device_memory
    central = memory.central if memory is not None else None
    if memory is None or central is None or memory.is_open:
        why = memory.reason if memory is not None and memory.reason else "sizes depend on data"
        nothing = Predicted(_unknown(why), _unknown(why))
        return Expected("allocated", _unknown(why), {COLD: nothing, WARM: nothing}, _alive(side), made, notes=[why])
    runs = {run: Predicted(memory.counter(moment, "allocated"), memory.counter(moment, "reserved")) for run, moment in _MOMENTS}
    found = Expected("allocated", Quantity(central.before.allocated), runs, _alive(side), made, device=memory.target.device)
    moments = memory.moments
    if moments is not None:
        columns = [moments.by_category[key] for key in ("workspace", "temporary") if key in moments.by_category]
        by_name = {node.name: sum(parts) for node, *parts in zip(memory.steps, *columns, strict=True)} if columns else {}
        found.workspace = {node: by_name[node.name] for node in side.timeline.steps if by_name.get(node.name)}
    return found


_AS_IN_FILE = (
    "ONNX Runtime is predicted for the graph as it is in the file, and it ran the one that its optimisations made of it: "
    "record with --no-optimize, or record the optimised file, to compare one graph"
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
        return Expected("requested", _unknown(why), {COLD: nothing, WARM: nothing}, _alive(side), made, notes=[why])
    before = figures.before
    alive = {launch.node: figures.cold.requested[step] - before.requested for step, launch in enumerate(plan.order)}
    runs = {
        COLD: Predicted(Quantity(figures.cold.peak.requested), Quantity(figures.cold.peak.reserved)),
        WARM: Predicted(Quantity(figures.warm.peak.requested), Quantity(figures.warm.peak.reserved)),
    }
    found = Expected("requested", Quantity(before.requested), runs, alive, made)
    if optimised:
        found.notes.append(_AS_IN_FILE)
        found.caveat = "predicted for the graph in the file; ONNX Runtime's optimisations ran another one (--no-optimize records this one)"
    return found


def _times(model: Model, recording: Recording, found: Expected) -> None:
    """Least times on the recorded device, where its figures are known."""
    for name in _profiles(model, recording, found):
        try:
            bounds = model.manager.get(Roofline(device=name))
        except IrscopeError:
            continue
        found.device = bounds.device
        for one in bounds.nodes:
            if one.binding != "unknown":
                found.seconds[one.node] = found.seconds.get(one.node, 0.0) + bounds.seconds_of(one)
        return
    about = recording.header.device.name or "the device"
    found.notes.append(f"no least times: the figures of {about} are not known; --device names a profile, irscope calibrate makes one")


def _profiles(model: Model, recording: Recording, found: Expected) -> Iterator[str]:
    """Names of profiles to try, the best first."""
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
    found: dict[Node, int] = {}
    for entry in side.costs.entries:
        total = entry.total.flops
        if entry.bounds is None and isinstance(total, int):
            found[entry.node] = found.get(entry.node, 0) + total
    return found
