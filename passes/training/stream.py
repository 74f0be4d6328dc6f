"""What training steps ask the allocator for and give back, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.devices import Target
from irscope.ir.dims import Dim
from irscope.ops.call import OpCall
from irscope.ops.spec import Family
from irscope.ops.temporaries import Drop, Gemm, MemoryEvent, Result, Take, memory_events
from irscope.passes.cuda.convolution import LABEL, convolution_workspace
from irscope.passes.cuda.stream import Spread
from irscope.passes.cuda.workspace import workspace_policy
from irscope.training.trace import Category, Piece, StepOp, Trace

CLOSED = "cuDNN chooses the kernels of a convolution, and their workspace, on the device"


@dataclass
class StepStream:
    """Requests of all steps. Each is a slot with a size; event `n` takes slot n, event `~n` gives it back."""

    events: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    kinds: list[Category] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    pieces: dict[int, Piece] = field(default_factory=dict)
    """Slots of pieces; other slots are what kernels take for themselves."""
    resident: list[int] = field(default_factory=list)
    """Slots that are taken before the first step, in order."""
    starts: list[int] = field(default_factory=list)
    """The first event of each operator, and the end."""
    spreads: dict[int, Spread] = field(default_factory=dict)
    """Slots whose size is not known; what counts for them is the size in `sizes`."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Operators without a record, with how many there are: what their kernels take besides their results is not known."""

    def slot(self, size: int, kind: Category, label: str) -> int:
        """A new slot."""
        self.sizes.append(size)
        self.kinds.append(kind)
        self.labels.append(label)
        return len(self.sizes) - 1


def step_stream(trace: Trace, target: Target) -> StepStream:
    """The requests of a trace's steps on a device."""
    return _Builder(trace, target).build()


class _Builder:
    def __init__(self, trace: Trace, target: Target) -> None:
        self._trace = trace
        self._target = target
        self._policy = workspace_policy(target)
        self._stream = StepStream()
        self._slots: dict[Piece, int] = {}
        self._kept: set[str] = set()
        self._asked: dict[int, tuple[OpCall, tuple[MemoryEvent, ...]]] = {}
        """What calls ask for, by identity of the call."""

    def build(self) -> StepStream:
        """Walk all operators."""
        stream, trace = self._stream, self._trace
        for piece in trace.resident:
            stream.resident.append(self._slot(piece))
        deaths = trace.deaths
        begins = {span.first: span.deaths for span in trace.steps}
        for op in trace.ops:
            dying = deaths.get(op.number, [])
            # What the functions of the last step held goes with them.
            late = [piece for piece in dying if piece.rank < begins.get(op.number, 0)]
            self._free(late)
            stream.starts.append(len(stream.events))
            self._free(dying[len(late) :])
            self._visit(op)
        self._free([piece for piece in deaths.get(len(trace.ops), ()) if piece.rank < trace.deaths_in_all])
        stream.starts.append(len(stream.events))
        return stream

    def _slot(self, piece: Piece) -> int:
        slot = self._slots[piece] = self._stream.slot(piece.size, piece.category, piece.name)
        self._stream.pieces[slot] = piece
        return slot

    def _free(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            slot = self._slots.get(piece)
            if slot is not None:
                self._stream.events.append(~slot)

    def _visit(self, op: StepOp) -> None:
        stream = self._stream
        made = {index: self._slot(piece) for index, piece in op.makes if piece.on_device}
        call = op.call
        if call is None:
            stream.events.extend(made.values())
            if not op.is_view and (made or op.writes):
                stream.unknown[op.source] = stream.unknown.get(op.source, 0) + 1
            return
        if not self._on_device(op):
            stream.events.extend(made.values())
            return
        self._replay(self._events_of(call), made)
        if call.spec.family is Family.CONVOLUTION:
            self._convolve(call)

    @staticmethod
    def _on_device(op: StepOp) -> bool:
        return any(piece.on_device for piece in (*op.reads, *op.writes))

    def _events_of(self, call: OpCall) -> tuple[MemoryEvent, ...]:
        found = self._asked.get(id(call))
        if found is None:
            found = self._asked[id(call)] = (call, memory_events(call, self._target))
        return found[1]

    def _replay(self, found: Sequence[MemoryEvent], made: dict[int, int]) -> None:
        stream = self._stream
        events = stream.events
        open_: dict[str, int] = {}
        waiting = dict(made)
        for event in found:
            if isinstance(event, Result):
                slot = waiting.pop(event.index, None)
                if slot is not None:
                    if event.size is not None:
                        stream.sizes[slot] = number(event.size)
                    events.append(slot)
            elif isinstance(event, Take):
                open_[event.label] = slot = stream.slot(number(event.size), event.kind, event.label)
                events.append(slot)
            elif isinstance(event, Drop):
                events.append(~open_.pop(event.label))
            elif isinstance(event, Gemm):
                self._multiply(event)
            else:
                slot = stream.slot(number(event.low), "workspace", event.label)
                stream.spreads[slot] = Spread(event.low, event.high, event.reason)
                open_[event.label] = slot
                events.append(slot)
        events.extend(waiting.values())
        events.extend([~slot for slot in open_.values()])

    def _multiply(self, event: Gemm) -> None:
        """Workspaces that stay are taken once; the others live for the call."""
        stream = self._stream
        own: list[int] = []
        for buffer in self._policy.buffers(event.path):
            if buffer.kept and buffer.label in self._kept:
                continue
            slot = stream.slot(buffer.size, "workspace", buffer.label)
            stream.events.append(slot)
            if buffer.kept:
                self._kept.add(buffer.label)
            else:
                own.append(slot)
        stream.events.extend([~slot for slot in own])

    def _convolve(self, call: OpCall) -> None:
        """The library gets its workspace once the results have their memory; what it chooses is not known, and counts as nothing."""
        found = convolution_workspace(call, self._target)
        if found is not None:
            slot = self._stream.slot(0, "workspace", LABEL)
            self._stream.spreads[slot] = Spread(0, found.most, CLOSED, modelled=True)
            self._stream.events += [slot, ~slot]


def number(size: Dim) -> int:
    """Sizes of captured tensors are numbers."""
    return size if isinstance(size, int) else 0
