"""What the simulated allocator does for a model or a program, as PyTorch's memory snapshot, a Chrome trace and a table show it."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from irscope.errors import PassError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import Dim, SymDim, int_or_zero
from irscope.ir.graph import Node
from irscope.memory.caching import BOUNDLESS, OutOfMemory, Segment
from irscope.memory.caching.blocks import BlockState
from irscope.memory.tape import LOADING as LOADED
from irscope.memory.tape import Origin, Replayed, Stretch, Tape, decoded
from irscope.passes.inference.shapes import SHAPES_HINT
from irscope.passes.lifetimes.frames import call_spans
from irscope.passes.lifetimes.lives import LiveRange, label_of
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import DeviceMemory
from irscope.report.table import Column, Table
from irscope.report.units import Kind

Action: TypeAlias = Literal["segment_alloc", "segment_map", "segment_free", "segment_unmap", "alloc", "free", "oom"]
_REFUSED: Final = "out of memory"
"""Name of the frame of a request that was."""
LOADING = -1
"""In place of a step while the model is loaded."""


@immutable
class Owner:
    """The requester of a block of memory."""

    label: str
    category: str
    node: Node | None
    """None for weights and inputs."""
    modelled: bool = False
    """True where its size is a model's."""
    origin: Origin | None = None
    """Where a program asked for it, if a program did."""
    called: str = ""
    """The line of the program that called the outermost module."""

    @property
    def group(self) -> str:
        """Return the category, apart where it is modelled."""
        return f"{self.category} (modelled)" if self.modelled else self.category


@immutable
class Event:
    """One action of the allocator."""

    action: Action
    address: int
    """Where the block or segment is; of a request that was refused what the device had left."""
    size: int
    """Bytes as asked for; of segments what the device gives."""
    block: int
    """Bytes of the block."""
    run: int
    """0 while the model is loaded, then 1 and 2."""
    step: int
    owner: Owner | None
    """None for segments."""
    stream: int = 0
    phase: str = ""
    """Of a program: forward, backward, optimizer."""


@immutable
class Refusal:
    """The request that ended a program."""

    at: int
    """The number of requests before it."""
    size: int
    stream: int
    left: int
    """Bytes that the device had left."""
    line: str


@dataclass
class AllocatorLog:
    """Events of the allocator."""

    steps: list[Node]
    events: list[Event] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    """As they are at the end."""
    owners: dict[int, Owner] = field(default_factory=dict)
    """Of the blocks in use at the end, by address."""
    runs: int = 2
    """Forward passes."""
    spans: list[str] = field(default_factory=list)
    """Names of what a program did, where that is no model's nodes: its steps."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the allocator."""
    begins: Sequence[float] = ()
    """Predicted microseconds at which each step of a program begins, and at which the last one ends; empty where they are not known."""

    @property
    def length(self) -> int:
        """Steps of a run."""
        return len(self.spans) or len(self.steps)

    def begin(self, run: int, step: int) -> float:
        """Return the microsecond of a trace at which a step begins; loading takes the first millisecond where no time is known."""
        if step == LOADING:
            return 0.0
        return self.begins[step] if self.begins else (1 + (run - 1) * self.length + step) * _STEP

    def lasts(self, step: int) -> float:
        """Return the microseconds of a trace that a step lasts."""
        return self.begins[step + 1] - self.begins[step] if self.begins and step != LOADING else _STEP


def allocations_of(memory: DeviceMemory) -> AllocatorLog:
    """Replay the prediction once more, with notes. Raises PassError where there is nothing to replay."""
    if memory.tape is None or memory.sizes is None:
        fix = memory.fix.replace("--passes 'liveness{model=eager}'", "--lifetimes eager")
        hint = f"{typed(fix)} makes it known" if fix else "a table of the timeline can be written: a name that ends in .csv"
        raise PassError(f"there are no addresses to write: {memory.reason}", code="IRS339", hint=hint)
    try:
        replayed = memory.replay(None if memory.shortage is not None else memory.target.device.room_bytes, "all", addresses=True)
    except OutOfMemory:
        replayed = memory.replay(BOUNDLESS, "all", addresses=True)
    log = AllocatorLog(memory.steps, settings=memory.target.snapshot_settings())
    return _Recorder(log, memory.tape, memory.sizes, replayed, memory.target.is_expandable).run()


def allocations_of_program(tape: Tape[Origin], replayed: Replayed, *, expandable: bool, refusal: Refusal | None = None) -> AllocatorLog:
    """Return what the allocator did for a program whose tape was replayed with every span watched; its spans are the steps of one run."""
    log = AllocatorLog([], runs=1, spans=[span.name for span in tape.spans])
    return _Recorder(log, tape, tape.numbers("central"), replayed, expandable, refusal).run()


class _Recorder:
    """Lists what the allocator did, stretch by stretch."""

    def __init__(
        self, log: AllocatorLog, tape: Tape[Any], sizes: list[int], replayed: Replayed, expandable: bool, refusal: Refusal | None = None
    ) -> None:
        self._refusal = refusal
        """Refusal that is still to be noted."""
        self._tape = tape
        self._sizes = sizes
        self._replayed = replayed
        self._expandable = expandable
        self._found = log
        log.segments = replayed.segments
        self._owners: dict[int, Owner] = {}
        self._known: dict[int, int] = {}
        self._first = self._at = 0
        """Of the tape, the first request of a stretch, and the one that is noted."""
        self._begins = [at for at, _ in tape.phases]
        self._called = [at for at, _ in tape.calls]

    def run(self) -> AllocatorLog:
        """Loading, then each forward with the release of its outputs, which counts to its last step."""
        log, last = self._found, self._found.length - 1
        run = 1 if log.spans else 0
        for stretch in self._replayed.stretches:
            run += stretch.span.counted and not log.spans
            steps = self._steps_of(stretch)
            self._first = self._tape.starts[stretch.span.first] if log.spans else 0
            given = dict(stretch.segments)
            for place, ((slot, is_taken), step) in enumerate(zip(decoded(stretch.events), steps, strict=True)):
                if not self._sizes[slot]:
                    continue
                self._at = self._first + place
                if place in given:
                    self._note_segments(given[place], run, min(step, last))
                self._note_refusal(run, min(step, last))
                self._note(slot, is_taken, stretch.addresses[place], abs(stretch.blocks[place]), run, min(step, last))
        self._at = len(self._tape.events)
        self._note_refusal(run, last)
        log.owners = {block.address: self._owners[slot] for slot, block in self._replayed.held.items()}
        return log

    def _steps_of(self, stretch: Stretch) -> list[int]:
        """Return the step of each request."""
        if stretch.span.name == LOADED:
            return [LOADING] * len(stretch.events)
        counts = (after - before for before, after in pairwise(stretch.starts))
        return [stretch.span.first + at for at, count in enumerate(counts) for _ in range(count)]

    def _note(self, slot: int, is_taken: bool, address: int, block: int, run: int, step: int) -> None:
        tape = self._tape
        if is_taken:
            node = None if step == LOADING or self._found.spans else self._found.steps[step]
            origin = tape.owners.get(slot) if self._found.spans else None
            called = bisect_right(self._called, self._at) if self._found.spans else 0
            line = tape.calls[called - 1][1] if called else ""
            self._owners[slot] = Owner(tape.labels[slot], tape.kinds[slot], node, slot in tape.spreads, origin, line)
        action: Action = "alloc" if is_taken else "free"
        stream = tape.streams.get(slot, 0)
        made = Event(action, address, self._sizes[slot], block, run, step, self._owners[slot], stream, self._phase())
        self._found.events.append(made)

    def _note_refusal(self, run: int, step: int) -> None:
        fault = self._refusal
        if fault is not None and self._at >= fault.at:
            owner = Owner(_REFUSED, "", None, origin=Origin("", fault.line))
            self._found.events.append(Event("oom", fault.left, fault.size, fault.size, run, step, owner, fault.stream, self._phase()))
            self._refusal = None

    def _phase(self) -> str:
        at = bisect_right(self._begins, self._at)
        return self._tape.phases[at - 1][1] if at and self._found.spans else ""

    def _note_segments(self, segments: list[Segment], run: int, step: int) -> None:
        """Note the segments that the device gave or got back since the last look."""
        now = {segment.address: segment.size for segment in segments}
        names: tuple[Action, Action] = ("segment_unmap", "segment_map") if self._expandable else ("segment_free", "segment_alloc")
        gone, more = names
        for address, size in self._known.items():
            left = now.get(address, 0)
            if left < size:
                self._found.events.append(Event(gone, address + left, size - left, size - left, run, step, None))
        for address, size in now.items():
            before = self._known.get(address, 0)
            if before < size:
                self._found.events.append(Event(more, address + before, size - before, size - before, run, step, None))
        self._known = now


def frames(node: Node | None) -> list[Mapping[str, object]]:
    """Return where a node stands, innermost first: the operator, then the lines that led to it."""
    if node is None:
        return []
    found: list[Mapping[str, object]] = [{"name": f"{node.op} {node.name}", "filename": node.scope.path or "model", "line": 0}]
    loc = node.loc
    while loc is not None:
        found.append({"name": loc.function or loc.statement, "filename": loc.file, "line": loc.line})
        loc = loc.caller
    return found


# The log of models that PyTorch's allocator does not run: sizes as they are requested, each tensor at an address of its own.

_GRAIN = 512


def requests_of(timeline: Timeline) -> AllocatorLog:
    """Return the requests of one run, without segments. Raises PassError where a size is no number."""
    check_numbers([*timeline.alive, *(size for size in timeline.resident.values() if size is not None)])
    return _RequestRecorder(timeline).run()


def check_numbers(sizes: Sequence[Dim]) -> None:
    """Raise PassError, with what would help, where a size is no number."""
    symbols = {symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols()}
    names = sorted(str(symbol) for symbol in symbols if not symbol.is_unknown)
    if names:
        hint = f"{typed(bind_option(symbols))} gives them"
        raise PassError(f"the timeline has no numbers: sizes depend on {', '.join(names)}", code="IRS339", hint=hint)
    if symbols:
        raise PassError("the timeline has no numbers: sizes depend on data", code="IRS339", hint=SHAPES_HINT)


class _RequestRecorder:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._found = AllocatorLog(timeline.steps, runs=1)
        self._next = 0
        self._alive: dict[int, tuple[int, int]] = {}

    def run(self) -> AllocatorLog:
        for role, size in self._timeline.resident.items():
            self._take(int_or_zero(size), Owner(f"all {role}s", role, None), 0, LOADING)
        dying: dict[int, list[tuple[int, Owner]]] = {}
        births: dict[int, list[LiveRange]] = {}
        for one in self._timeline.ranges:
            births.setdefault(one.born, []).append(one)
        for step, node in enumerate(self._timeline.steps):
            for one in births.get(step, ()):
                owner = Owner(_buffer_tensors(one), "output" if one.is_output else "activation", one.value.node)
                dying.setdefault(one.dies, []).append((self._take(int_or_zero(one.size), owner, 1, step), owner))
            inside = int_or_zero(self._timeline.inside.get(step))
            if inside:
                owner = Owner("inside", "temporary", node)
                self._drop(self._take(inside, owner, 1, step), owner, step)
            for address, owner in dying.pop(step, ()):
                self._drop(address, owner, step)
        self._found.segments = [_alone(address, size, block) for address, (size, block) in sorted(self._alive.items())]
        return self._found

    def _take(self, size: int, owner: Owner, run: int, step: int) -> int:
        address, block = self._next, -(-size // _GRAIN) * _GRAIN
        self._next += max(block, _GRAIN)
        if size:
            self._alive[address] = size, block
            self._found.owners[address] = owner
            self._found.events.append(Event("alloc", address, size, size, run, step, owner))
        return address

    def _drop(self, address: int, owner: Owner, step: int) -> None:
        found = self._alive.pop(address, None)
        if found is not None:
            del self._found.owners[address]
            self._found.events.append(Event("free", address, found[0], found[0], 1, step, owner))


def _buffer_tensors(life: LiveRange) -> str:
    """Return the tensor in a buffer, or those that have it in turn."""
    names = [label_of(tensor.value) for tensor in life.tenants] or [label_of(life.value)]
    return ", then ".join(names)


def _alone(address: int, size: int, block: int) -> Segment:
    return Segment(address, block, 0, False, False, (BlockState(address, block, size, "active_allocated"),))


# Timelines for other viewers: PyTorch's memory snapshot, a Chrome trace, a table of steps.

_PROTOCOL = 4
"""The newest that the viewer reads; it knows no more than plain dictionaries, lists, numbers and text."""
_DEVICE = 0


def snapshot_bytes(log: AllocatorLog) -> bytes:
    """Return the pickle file."""
    return pickle.dumps(snapshot(log), protocol=_PROTOCOL)


def snapshot(log: AllocatorLog) -> dict[str, Any]:
    """Return the dictionary that torch.cuda.memory._snapshot() would return."""
    stacks = _Stacks()
    return {
        "segments": [_segment(segment, log.owners, stacks) for segment in log.segments],
        "device_traces": [trace(log, stacks=stacks)],
        "allocator_settings": dict(log.settings),
        "external_annotations": [*_annotations(log, lambda event: event.phase), *_annotations(log, lambda event: _step_name(log, event))],
    }


PHASE_MARK: Final = "irscope: "
"""Prefix of the names of annotations that mark phases and steps."""


def _step_name(log: AllocatorLog, event: Event) -> str:
    name = log.spans[event.step] if log.spans and 0 <= event.step < len(log.spans) else ""
    return name if name.startswith("step ") else ""


def _annotations(log: AllocatorLog, name_of: Callable[[Event], str]) -> Iterator[dict[str, Any]]:
    """Yield where what has a name begins and ends, in the times of entries."""
    now = ""
    for number, event in enumerate(log.events):
        # What the device gives belongs to the request behind it.
        name = now if event.owner is None else name_of(event)
        if name == now:
            continue
        if now:
            yield {"name": PHASE_MARK + now, "stage": "END", "time_us": number, "device": _DEVICE}
        if name:
            yield {"name": PHASE_MARK + name, "stage": "START", "time_us": number, "device": _DEVICE}
        now = name
    if now:
        yield {"name": PHASE_MARK + now, "stage": "END", "time_us": len(log.events), "device": _DEVICE}


class _Stacks:
    """Frames of owners: equal ones are one object, as in what torch writes, so that the file names each once."""

    def __init__(self) -> None:
        self._frames: dict[tuple[object, ...], dict[str, object]] = {}
        self._lists: dict[tuple[int, ...], list[dict[str, object]]] = {}
        self._of: dict[int, tuple[Owner | None, list[dict[str, object]]]] = {}

    def of(self, owner: Owner | None) -> list[dict[str, object]]:
        """Return the frames of what asked for memory."""
        known = self._of.get(id(owner))
        if known is None:
            frames = [self._frames.setdefault(tuple(frame.values()), frame) for frame in _owner_frames(owner)]
            known = self._of[id(owner)] = owner, self._lists.setdefault(tuple(map(id, frames)), frames)
        return known[1]


def trace(log: AllocatorLog, first_step: int = LOADING, stacks: _Stacks | None = None) -> list[dict[str, Any]]:
    """Return what the allocator did from a step on, as the snapshot lists it."""
    found = stacks or _Stacks()
    return [entry for number, event in enumerate(log.events) if event.step >= first_step for entry in _entries(number, event, found)]


def _segment(segment: Segment, owners: dict[int, Owner], stacks: _Stacks) -> dict[str, Any]:
    blocks = [
        {
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested if block.state != "inactive" else block.size,
            "state": block.state,
            "frames": stacks.of(owners.get(block.address) if block.state != "inactive" else None),
        }
        for block in segment.blocks
    ]
    used = [block for block in segment.blocks if block.state != "inactive"]
    return {
        "device": _DEVICE,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(block.size for block in used if block.state == "active_allocated"),
        "active_size": sum(block.size for block in used),
        "requested_size": sum(block.requested for block in used if block.state == "active_allocated"),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.expandable,
        "frames": [],
        "blocks": blocks,
    }


def _entries(number: int, event: Event, stacks: _Stacks) -> list[dict[str, Any]]:
    """Return the entries of the trace. A free is two actions: it is asked for, and it is done."""
    actions = ["free_requested", "free_completed"] if event.action == "free" else [event.action]
    return [
        {
            "action": action,
            "addr": event.address,
            "size": event.size,
            "stream": event.stream,
            "time_us": number,
            "compile_context": "N/A",
            "user_metadata": event.owner.group if event.owner is not None else "",
            "pool_id": (0, 0),
            "frames": stacks.of(event.owner),
        }
        for action in actions
    ]


def _owner_frames(owner: Owner | None) -> list[dict[str, object]]:
    if owner is None:
        return []
    first = {"name": f"{owner.group} {owner.label}".strip(), "filename": owner.category, "line": 0}
    if owner.origin is not None:
        lines = [(owner.origin.module or "program", owner.origin.line)]
        if owner.called and owner.origin.module:
            lines.append((CALLED, owner.called))
        return [first, *({"name": name, "filename": file, "line": int(line or 0)} for name, (file, _, line) in _split(lines))]
    return [first, *map(dict, frames(owner.node))]


CALLED: Final = "calls the outermost module"
"""Name of the frame of the line that did."""


def _split(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    return ((name, line.rpartition(":")) for name, line in lines)


# The log as a Chrome trace: counters over module calls and nodes, which ui.perfetto.dev and chrome://tracing open.

_STEP = 1_000
"""Microseconds that stand for one step: a prediction of memory knows no time."""
_CALLS, _NODES = 1, 2


def chrome_trace(log: AllocatorLog) -> dict[str, Any]:
    """Return the document of a trace; one step is a millisecond where its time is not known."""
    events = [*_track_names(log), *_slices(log), *_counter_events(log)]
    unit = "step of the program" if log.spans else "node of the model"
    told = "predicted; what is allocated in a step is spread over it" if log.begins else f"one {unit} is one millisecond"
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"time": told}}


def _track_names(log: AllocatorLog) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "predicted memory"}}
    tracks = ((_NODES, "steps"),) if log.spans else ((_CALLS, "module calls"), (_NODES, "nodes"))
    for thread, name in tracks:
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": name}}


def _slices(log: AllocatorLog) -> Iterator[dict[str, Any]]:
    """Module calls and nodes of each run, or the steps of a program."""
    steps = log.steps
    for number, name in enumerate(log.spans):
        start, length = log.begin(1, number), log.lasts(number)
        yield {"ph": "X", "name": name, "cat": "step", "pid": 0, "tid": _NODES, "ts": start, "dur": length}
    spans = sorted(call_spans(steps).items(), key=lambda item: (item[1][0], item[0].depth))
    for run in range(1, log.runs + 1):
        for scope, (first, last) in spans:
            if scope.parent is not None:
                start, length = log.begin(run, first), (last - first + 1) * _STEP
                yield {"ph": "X", "name": scope.path, "cat": scope.cls or "module", "pid": 0, "tid": _CALLS, "ts": start, "dur": length}
        for step, node in enumerate(steps):
            place = {"op": node.op, "module": node.scope.path, "where": str(node.loc) if node.loc is not None else ""}
            start = log.begin(run, step)
            yield {"ph": "X", "name": node.name, "cat": "node", "pid": 0, "tid": _NODES, "ts": start, "dur": _STEP, "args": place}


def _counter_events(log: AllocatorLog) -> Iterator[dict[str, Any]]:
    """Yield the bytes by category, and what the allocator counts, after each event."""
    by_category: dict[str, int] = {}
    counts = {"requested": 0, "allocated": 0, "reserved": 0}
    for event, time in zip(log.events, _event_times(log), strict=True):
        if event.action == "oom":
            continue  # nothing is taken
        sign = -1 if event.action in ("free", "segment_free", "segment_unmap") else 1
        if event.owner is None:
            counts["reserved"] += sign * event.size
            yield {"ph": "C", "name": "reserved", "pid": 0, "ts": time, "args": {"bytes": counts["reserved"]}}
            continue
        category = event.owner.group
        by_category[category] = by_category.get(category, 0) + sign * event.size
        counts["requested"] += sign * event.size
        counts["allocated"] += sign * event.block
        yield {"ph": "C", "name": "requested by category", "pid": 0, "ts": time, "args": dict(by_category)}
        yield {"ph": "C", "name": "allocated", "pid": 0, "ts": time, "args": {"bytes": counts["allocated"]}}


def _event_times(log: AllocatorLog) -> list[float]:
    """Return when each event happens: those of one step one after another within its time."""
    groups: dict[tuple[int, int], list[Event]] = {}
    for event in log.events:
        groups.setdefault((event.run, event.step), []).append(event)
    times: list[float] = []
    for (run, step), events in groups.items():
        start, length = log.begin(run, step), log.lasts(step)
        times.extend(start + place * length / (len(events) + 1) for place in range(1, len(events) + 1))
    return times


# The timeline as a table: one row for each step of the run with the higher peak.


def steps_table(timeline: Timeline, memory: DeviceMemory | None) -> Table:
    """Step, node, where it stands, bytes by category and what they add up to; with what the allocator counts where that is known."""
    moments = memory.highest if memory is not None else None
    if memory is not None and moments is not None and memory.basis is not None:
        # The allocator sees the program as Python runs it, whose nodes may be fewer than the file's.
        lifetimes = memory.basis.lifetimes
        steps, ranges, alive = lifetimes.steps, lifetimes.ranges, lifetimes.alive()
    else:
        steps, ranges, alive = timeline.steps, timeline.ranges, timeline.alive
    check_numbers(alive)
    data: dict[Column, list[object]] = {
        Column("step", Kind.INDEX): list(range(len(steps))),
        Column("node", Kind.NODE): [node.name for node in steps],
        Column("op"): [node.op for node in steps],
        Column("module"): [node.scope.path for node in steps],
        Column("where"): [str(node.loc) if node.loc is not None else "" for node in steps],
        Column("alive_bytes", Kind.BYTES): [*alive],
        Column("storages", Kind.COUNT): [*_counts(ranges, len(steps))],
    }
    footprint = timeline.footprint
    if footprint is not None:
        for category, column in footprint.parts.items():
            data[Column(f"{category}_bytes", Kind.BYTES)] = [*column]
        data[Column("total_bytes", Kind.BYTES)] = [footprint.height(step) for step in range(len(steps))]
    if moments is not None:
        data[Column("allocated_bytes", Kind.BYTES)] = [*moments.counted(moments.allocated)]
        data[Column("reserved_bytes", Kind.BYTES)] = [*moments.counted(moments.reserved)]
    return Table("timeline", tuple(data), {column.key: cells for column, cells in data.items()})


def _counts(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    """Return how many storages are alive at each step."""
    change = [0] * (steps + 1)
    for life in ranges:
        change[life.born] += 1
        change[min(life.dies + 1, steps)] -= 1
    counts: list[int] = []
    alive = 0
    for step in range(steps):
        alive += change[step]
        counts.append(alive)
    return counts
