"""The allocator requests of training steps, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.devices import Target
from irscope.ops.spec import MemoryEvent, OpCall, memory_events
from irscope.passes.cuda.tape import KernelWriter, Tape
from irscope.training.trace import Piece, StepOp, Trace


@dataclass
class StepStream(Tape):
    """Requests of all steps: its steps are operators, and `starts` has their end besides."""

    pieces: dict[int, Piece] = field(default_factory=dict)
    """Slots of pieces; other slots are what kernels take for themselves."""
    resident: list[int] = field(default_factory=list)
    """Slots that are taken before the first step, in order."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Operators without a record, with how many there are: what their kernels take besides their results is not known."""


def step_stream(trace: Trace, target: Target) -> StepStream:
    """The requests of a trace's steps on a device."""
    return _Builder(trace, target).build()


class _Builder:
    def __init__(self, trace: Trace, target: Target) -> None:
        self._trace = trace
        self._target = target
        self._stream = StepStream()
        self._kernels = KernelWriter(self._stream, target)
        self._slots: dict[Piece, int] = {}
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
        self._kernels.write(self._events_of(call), made)

    @staticmethod
    def _on_device(op: StepOp) -> bool:
        return any(piece.on_device for piece in (*op.reads, *op.writes))

    def _events_of(self, call: OpCall) -> tuple[MemoryEvent, ...]:
        found = self._asked.get(id(call))
        if found is None:
            found = self._asked[id(call)] = (call, memory_events(call, self._target))
        return found[1]
