"""The report of a prediction: summary, timeline, segments."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.bind import typed
from irscope.passes.cuda.result import Counter, DeviceMemory, Moment
from irscope.passes.lifetimes.footprint import shown_steps
from irscope.passes.sizes import CONVENTION
from irscope.passkit.base import Pass
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_MOMENTS: tuple[Moment, ...] = ("before", "cold", "warm")
COUNTERS: tuple[Counter, ...] = ("requested", "allocated", "reserved")
UNITS = {group: Kind.BYTES for group in ("device_peak", "before", "cold", "warm", "fragmentation")}


def report(subject: Pass, memory: DeviceMemory) -> Report:
    """Everything about the allocator."""
    return Report(
        pass_name=subject.name,
        options=subject.text,
        summary={"model": memory.model, **peak_summary(memory), **summary(memory)},
        units=UNITS,
        tables=(*alive(memory), *tables(memory)),
        series=series(memory),
        coverage=Coverage(1 if memory.central is not None and not memory.is_open else 0, 1),
        notes=(CONVENTION, *(() if memory.footprint is None else (memory.footprint.note,)), *notes(memory)),
    )


def peak_summary(memory: DeviceMemory) -> dict[str, object]:
    """The device's peak with its parts; where it is unknown, why."""
    found = memory.footprint
    return {"device_peak_bytes": memory.worst("allocated")} if found is None else found.summary()


def alive(memory: DeviceMemory) -> tuple[Table, ...]:
    """What is alive at the device's peak."""
    found = memory.footprint
    return () if found is None else (found.alive(0),)


def summary(memory: DeviceMemory) -> dict[str, object]:
    """What reports of `liveness` and `cuda-memory` have in common."""
    target = memory.target
    found: dict[str, object] = {"device": target.device.name, "torch": "{}.{}".format(*target.torch)}
    if target.alloc_conf:
        found["alloc_conf"] = target.alloc_conf
    for moment in _MOMENTS:
        found[moment] = {counter: memory.counter(moment, counter) for counter in COUNTERS}
    found["workspace_bytes"] = _workspace(memory)
    central, moments = memory.central, memory.moments
    if central is None or moments is None:
        return found
    found["fits"] = memory.fits
    if memory.shortage is not None:
        found["missing_bytes"] = memory.shortage.missing
    found["fragmentation"] = {
        "reserved_not_allocated": memory.computed(central.cold.reserved - central.cold.allocated),
        "inactive_split": memory.computed(central.inactive_split),
    }
    return found


def notes(memory: DeviceMemory) -> tuple[str, ...]:
    """Notes on the meaning of the numbers."""
    if memory.central is None:
        hint = f"; {typed(memory.fix)} makes them known" if memory.fix else ""
        return (f"no counters of the allocator: {memory.reason}{hint}",)
    return (
        f"before, cold and warm are torch.cuda.memory_stats() on {memory.target.text}: current once the model and its inputs are there, "
        "then the peaks of a first and a second forward under no_grad",
    )


def _workspace(memory: DeviceMemory) -> object:
    """The part of the first forward's peak that is modelled."""
    moments = memory.moments
    if moments is None:
        return Quantity(None, Provenance.UNKNOWN, note=memory.reason)
    spreads = memory.stream.spreads.values() if memory.stream is not None else ()
    reason = next((spread.reason for spread in spreads if spread.modelled), "")
    if not reason or memory.counter("cold", "requested").provenance is Provenance.EXACT:
        return 0
    assert memory.central is not None
    most = None if memory.high is None else max(memory.high.cold.requested - memory.central.cold.requested + moments.modelled, 0)
    return Quantity(moments.modelled, Provenance.MODELLED, note=reason, lo=0, hi=most)


def tables(memory: DeviceMemory) -> tuple[Table, ...]:
    """The segments of the allocator after the first forward."""
    if memory.central is None:
        return ()
    rows = [
        (
            number,
            "small" if segment.small else "large",
            segment.size,
            used,
            segment.size - used,
            max((block.size for block in segment.blocks if block.state == "inactive"), default=0),
            len(segment.blocks),
        )
        for number, segment in enumerate(memory.central.segments)
        for used in (sum(block.size for block in segment.blocks if block.state != "inactive"),)
    ]
    where = memory.computed(0).provenance
    sizes = [Column(key, Kind.BYTES, provenance=where) for key in ("size", "allocated", "free", "largest_free")]
    columns = [Column("segment", Kind.INDEX), Column("pool"), *sizes, Column("blocks", Kind.COUNT, provenance=where)]
    return (Table.of(rows, columns=columns, title="segments after the first forward"),)


def series(memory: DeviceMemory) -> tuple[Series, ...]:
    """Allocated bytes by category over the steps of the forward with the higher peak, with the allocator's counters."""
    found, moments = memory.footprint, memory.highest
    if found is None or moments is None or not memory.steps:
        return ()
    steps = shown_steps(moments.allocated)
    columns: dict[str, Sequence[object]] = {}
    columns |= {
        "requested": moments.requested(),
        "allocated": moments.counted(moments.allocated),
        "reserved": moments.counted(moments.reserved),
    }
    data: dict[str, list[object]] = {"step": [*steps], **{key: [column[step] for step in steps] for key, column in columns.items()}}
    counters = tuple(Column(name, Kind.BYTES) for name in columns)
    mark = (Mark(moments.peak_step, "peak"),)
    return (*found.series(), Series(f"allocator, {found.run}", Column("step", Kind.COUNT), counters, data, marks=mark, stacked=False))
