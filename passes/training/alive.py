"""The device's memory at each operator of the steady step: the parts that add up to the allocated bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial

from irscope.ir.graph import Node
from irscope.passes.cuda.alive import ROUNDED, shown_size
from irscope.passes.cuda.moments import ROUNDING
from irscope.passes.lifetimes.footprint import INSIDE, Footprint, Held
from irscope.passes.training.replayed import StepMemory
from irscope.report.values import Quantity
from irscope.training.trace import Piece, StepOp

_WHY = {
    "parameter": "loaded with the model",
    "buffer": "loaded with the model",
    "input": "given by the caller",
    "optimizer state": "kept by the optimizer",
}


def footprint(memory: StepMemory, nodes: Sequence[Node]) -> Footprint:
    """Memory over the operators of the steady step, each of which is a node of the program's graph."""
    moments = memory.moments
    what = f"torch.cuda.max_memory_allocated() of the steady step on {memory.target.text}: every step after the first few"
    peak, rows = memory.counter("allocated"), _Rows(memory, nodes)
    return Footprint("device", what, "steady step", nodes, moments.columns(), moments.allocated, peak, moments.peak_step, rows.at)


class _Rows:
    """What is alive at an operator, as rows."""

    def __init__(self, memory: StepMemory, nodes: Sequence[Node]) -> None:
        self._memory = memory
        self._nodes = nodes
        self._first = memory.trace.steady.first
        self._ops: Sequence[StepOp] = memory.trace.in_step(memory.trace.steady)
        self._uses: dict[Piece, list[int]] = {}
        for step, op in enumerate(self._ops):
            for piece in dict.fromkeys((*op.reads, *op.writes)):
                self._uses.setdefault(piece, []).append(step)

    def at(self, step: int) -> list[Held]:
        """All that adds up to what is allocated at the highest moment of an operator."""
        moments, sizes = self._memory.moments, self._memory.sizes
        if not len(moments.allocated):
            return []
        rows = [self._row(slot, step) for slot in moments.alive(step) if sizes[slot]]
        rounding = moments.column(ROUNDING)[step]
        size = moments.allocated[step] - sum(int(str(row.size)) for row in rows)
        if size:
            rows.append(Held(ROUNDING, ROUNDING, size, step, step, ROUNDED, shown=rounding if isinstance(rounding, Quantity) else None))
        return rows

    def _row(self, slot: int, step: int) -> Held:
        stream, size = self._memory.stream, self._memory.sizes[slot]
        shown = shown_size(stream, slot, size)
        piece = stream.pieces.get(slot)
        if piece is None:
            return self._own(slot, step, size, shown)
        end = len(self._ops)
        born = 0 if piece.born is None else max(piece.born - self._first, 0)
        dies = end if piece.died is None else min(piece.died - 1 - self._first, end)
        made = None if piece.born is None or piece.born < self._first else self._node(born)
        why: str | partial[str] = _WHY.get(piece.category) or partial(self._why, piece, born, step)
        return Held(piece.name, piece.category, size, born, dies, why, node=made, shown=shown)

    def _own(self, slot: int, step: int, size: int, shown: Quantity | None) -> Held:
        """What a kernel or a library takes for itself."""
        moments, label, category = self._memory.moments, self._memory.stream.labels[slot], self._memory.stream.kinds[slot]
        begins, ends = moments.lives
        end = len(self._ops)
        if slot in moments.stretch.before:
            return Held(label, category, size, 0, end, "kept from an earlier step", shown=shown)
        if ends[slot] < len(moments.stretch.events):
            return Held(label, category, size, step, step, INSIDE, self._ops[step].name, self._node(step), None, shown)
        born = bisect_right(moments.stretch.starts, int(begins[slot])) - 1
        return Held(
            label, category, size, born, end, f"kept once {self._ops[born].name} has asked for it", "", self._node(born), None, shown
        )

    def _why(self, piece: Piece, born: int, step: int) -> str:
        if born == step and piece.born is not None and piece.born >= self._first:
            return "made here"
        uses = self._uses.get(piece, [])
        at = bisect_left(uses, step)
        if at == len(uses):
            return "held by autograd or by Python"
        return "read here" if uses[at] == step else f"used later by {self._ops[uses[at]].name}"

    def _node(self, step: int) -> Node | None:
        return self._nodes[step] if step < len(self._nodes) else None
