"""The device's memory at each step of a forward: the parts that add up to the allocated bytes."""

from __future__ import annotations

import numpy as np

from irscope.ir.dims import SymDim, bounds
from irscope.passes.cuda.moments import RESIDENT, ROUNDING, Moments
from irscope.passes.cuda.replay import Script
from irscope.passes.cuda.result import DeviceMemory
from irscope.passes.cuda.scripts import Load
from irscope.passes.cuda.stream import Stream
from irscope.passes.cuda.tape import Tape
from irscope.passes.lifetimes.footprint import INSIDE, Footprint, Held, resident_row, tensor_row, unsized_row
from irscope.passes.sizes import scale
from irscope.report.values import Provenance, Quantity

_RUNS = {"first": "first forward", "second": "second forward"}
ROUNDED = "blocks of 512 bytes, large ones with a rest"


def footprint(memory: DeviceMemory) -> Footprint | None:
    """Allocated bytes in the forward with the higher peak; None where unknown."""
    moments, load, stream, script = memory.highest, memory.load, memory.stream, memory.script
    if moments is None or load is None or stream is None or script is None:
        return None
    rows = _Rows(memory, moments, load, stream, script)
    run = _RUNS[memory.run]
    what = f"torch.cuda.max_memory_allocated() of the {run} on {memory.target.text}, the higher of the first two"
    peak = memory.worst("allocated")
    columns: dict[str, list[Quantity | int]] = moments.columns()
    if not memory.steps:
        # A model without steps has its weights all the same.
        held = moments.stretch.held
        columns = {category: [held.get(category, 0)] for category in columns}
        columns[ROUNDING] = [moments.stretch.allocated - sum(held.values())]
    return Footprint("device", what, run, memory.steps, columns, moments.allocated, peak, moments.peak_step, rows.at, moments.is_sure)


class _Rows:
    """What is allocated at a step, as rows."""

    def __init__(self, memory: DeviceMemory, moments: Moments, load: Load, stream: Stream, script: Script) -> None:
        self._basis = memory.basis
        self._moments = moments
        self._is_second = memory.run == "second"
        self._stream = stream
        self._script = script
        self._steps = memory.steps
        self._names: dict[str, list[str]] = {}
        for kind, name in zip(load.kinds, load.names, strict=True):
            self._names.setdefault(kind, []).append(name)
        starts = np.searchsorted(np.array(stream.starts, dtype=np.int64), np.arange(len(script.events)), side="right") - 1
        self._taken_at = {event: step for event, step in zip(script.events, starts.tolist(), strict=True) if event >= 0}

    def at(self, step: int) -> list[Held]:
        """All that adds up to what is allocated at the highest moment of the step."""
        moments, count = self._moments, len(self._steps)
        held = moments.stretch.held
        rows = [resident_row(category, self._names[category], held[category], count) for category in RESIDENT if held[category]]
        if not count:
            rounding = moments.stretch.allocated - sum(held.values())
            return [*rows, Held("rounding", ROUNDING, rounding, 0, 0, ROUNDED)] if rounding else rows
        rows += [self._row(slot, step) for slot in moments.alive(step) if self._script.sizes[slot]]
        unsized = self._basis.lifetimes.unsized_ranges if self._basis is not None else ()
        rows += [unsized_row(self._steps, one, step) for one in unsized if one.born <= step <= one.dies]
        uncertain = moments.column(ROUNDING)[step]
        size = moments.allocated[step] - sum(scale(row.size) for row in rows)
        if size:
            shown = uncertain if isinstance(uncertain, Quantity) else None
            rows.append(Held("rounding", ROUNDING, size, step, step, ROUNDED, shown=shown))
        return rows

    def _row(self, slot: int, step: int) -> Held:
        stream, size = self._stream, self._script.sizes[slot]
        shown = shown_size(stream, slot, size)
        one = stream.tensors.get(slot)
        if one is not None:
            return tensor_row(self._steps, one, step, size, shown)
        born = self._taken_at[slot]
        node = self._steps[born]
        label, category = stream.labels[slot], stream.kinds[slot]
        if slot not in self._script.kept:
            return Held(label, category, size, step, step, INSIDE, node.name, node, None, shown)
        if self._is_second:
            return Held(label, category, size, 0, len(self._steps), "kept from the first forward", "", node, None, shown)
        return Held(label, category, size, born, len(self._steps), f"kept once {node.name} has asked for it", "", node, None, shown)


def shown_size(tape: Tape, slot: int, size: int) -> Quantity | None:
    """The size as a quantity, where it is not exact."""
    asked, spread = tape.sizes[slot], tape.spreads.get(slot)
    if isinstance(asked, SymDim):
        low, high = bounds(asked)
        return Quantity(None, Provenance.UNKNOWN, lo=low, hi=high)
    return None if spread is None or spread.low == spread.high else Quantity(size, Provenance.MODELLED)
