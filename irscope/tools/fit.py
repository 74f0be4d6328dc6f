"""Reports of the largest sizes at which a model fits into memory."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.devices.catalogue import all_devices
from irscope.fitting import SCHEMA, Fit, Need
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity

_FEW = 6
_TIMES = {1: "once", 2: "twice"}
_WHAT = {
    "reserved": "reserved from the device",
    "allocated": "allocated, as blocks",
    "requested": "asked for: weights, inputs and the activation peak",
    "activation": "alive beyond weights and inputs",
}
_SIZES = ("surely", "as_modelled", "needed", "device_peak", "one_further")


def fit_document(found: Fit, model: ModelInfo) -> Document:
    """What was found for one symbol; its JSON is of the schema irscope.fit/1."""
    return Document(model=model, reports=(_fit_report(found),), own_json=lambda _: found.to_json())


def frontier_document(rows: Sequence[Fit], free: Sequence[str], second: str, model: ModelInfo) -> Document:
    """What was found for two symbols: the largest size of the first for each of the second."""
    return Document(model=model, reports=(_frontier_report(rows, free, second),), own_json=lambda _: _frontier_json(rows, free, second))


def best_of(rows: Sequence[Fit]) -> Fit:
    """The row with the largest size."""
    return max(rows, key=lambda row: row.largest or 0)


def unfit_lines(found: Fit) -> list[str]:
    """Why nothing fits, and what would."""
    needed = found.peak.bytes
    modelled = "~" if found.peak.is_modelled else ""
    lines = [
        f"irscope: error IRS335: does not fit: {found.free} {found.smallest:,} needs {modelled}{_bytes(needed)} ({found.counter}), "
        f"there are {_bytes(found.memory)}; most at {_place(found)}"
    ]
    large = sorted(
        (device.memory_bytes, device.name) for device in all_devices() if device.memory_bytes and (device.room_bytes or 0) >= needed
    )
    enough = (
        f"a device with more would do: {', '.join(name for _, name in large[:3])}" if large else "no device that irscope knows has so much"
    )
    lines.append(f"  {enough}; `irscope run --passes explain-peak MODEL` tells what lowers the peak")
    return lines


def _fit_report(found: Fit) -> Report:
    """The answer, then where it comes from."""
    if found.largest is None:
        headline = f"{found.free}: any size fits {_bytes(found.memory)}; what the model needs does not depend on it"
        return Report("fit", headline=(headline,))
    summary: dict[str, object] = {
        "symbol": found.free if found.free == found.symbol else f"{found.free} ({found.symbol})",
        "counted": f"{_WHAT[found.counter]} ({found.counter})",
    }
    at = f"at {found.largest:,}"
    left = f"{at}, {_bytes(found.headroom)} left"
    if found.peak.is_modelled:
        summary |= {"surely": _surely(found), "as_modelled": _needed(found.peak, left)}
    else:
        summary["needed"] = _needed(found.peak, left)
    peak = found.peak.device_peak
    if peak is not None:
        summary["device_peak"] = Quantity(peak.value, peak.provenance, None, f"{at}, which liveness shows in parts", *(peak.interval or ()))
    if found.following is not None:
        summary["one_further"] = _needed(found.following, f"at {found.largest + 1:,}{_goes_on(found)}")
    if found.before_oom is not None and found.before_oom > found.largest + 1:
        size = f"up to {found.before_oom:,}" if found.runs_between else f"{found.before_oom:,}, though not all in between"
        summary["runs"] = f"{size}: PyTorch gives its cache back and tries again, which is slow"
    summary |= {"limited_by": _place(found), "formula": f"{found.formula} bytes asked for"}
    if _is_counted(found):
        summary["for"] = found.target
        if found.context is not None:
            low, high = map(_bytes, found.context)
            summary["besides"] = f"the CUDA context takes {low}" + (f" to {high}" if high != low else "")
    notes: list[str] = []
    if found.failing:
        sizes = ", ".join(f"{size:,}" for size in found.failing[:_FEW]) + (" and others" if len(found.failing) > _FEW else "")
        notes.append(f"smaller sizes do not all fit: not {sizes}")
    if not found.exhaustive:
        notes.append(f"larger sizes, up to {found.bound or 0:,}, were only sampled; one of them might fit as well")
    return Report("fit", headline=(_answer(found),), summary=summary, units=dict.fromkeys(_SIZES, Kind.BYTES), notes=tuple(notes))


def _answer(found: Fit) -> str:
    """What surely fits, and what fits as it is predicted, where these are not the same."""
    memory, largest = _bytes(found.memory), f"{found.free} {found.largest:,}"
    if found.peak.is_modelled and found.surely != found.largest:
        most = f"{found.free} {found.surely:,} surely fits {memory}" if found.surely else f"no {found.free} surely fits {memory}"
        return f"{most}, {largest} as modelled"
    surely = "surely fits" if found.peak.is_modelled else "fits"
    if found.limit == "range":
        return f"{largest}, the largest that the model allows, {surely} {memory}"
    return f"{largest} is the largest that {surely} {memory}"


def _surely(found: Fit) -> object:
    if found.surely_peak is not None and found.surely_peak.most is not None:
        note = f"({found.surely_peak.most:,} bytes) at most at {found.surely:,}, with all that is not known or modelled at its upper end"
        return Quantity(found.surely_peak.most, note=note)
    if found.peak.unbounded:
        return f"none: {found.peak.unbounded}"
    return f"none: the upper ends of what is not known or modelled are too much at {found.smallest:,} already"


def _needed(need: Need, note: str) -> Quantity:
    note = f"({need.bytes:,} bytes) {note}"
    if not need.is_modelled:
        return Quantity(need.bytes, note=note)
    ends = (None, None) if need.least == need.most else (need.least, need.most)
    return Quantity(need.bytes, Provenance.MODELLED, None, note, *ends)


def _goes_on(found: Fit) -> str:
    """Whether the allocator finds memory for the next size once it has given its cache back."""
    if found.following_runs is None:
        return ""
    if found.following_retries is None:
        return ", where PyTorch runs out of memory"
    retries = zip(found.following_retries, ("first", "second"), strict=True)
    times = " and ".join(f"{_TIMES.get(count, f'{count} times')} in the {which} forward" for count, which in retries if count)
    return f", which runs: PyTorch gives its cache back {times}"


def _frontier_report(rows: Sequence[Fit], free: Sequence[str], second: str) -> Report:
    """A row for each size of the second symbol."""
    is_modelled = any(row.peak.is_modelled for row in rows)
    device = f", for {rows[0].target}" if _is_counted(rows[0]) else ""
    headline = f"the largest {free[0]} for each {free[1]} in {_bytes(rows[0].memory)}, counted as {rows[0].counter}{device}"
    columns = [
        Column(free[1], Kind.COUNT),
        *([Column("surely", Kind.COUNT)] if is_modelled else []),
        Column(free[0], Kind.COUNT, "as modelled" if is_modelled else ""),
        Column("needed", Kind.BYTES),
        Column("limited_by"),
    ]
    cells = []
    for row in rows:
        needed = Quantity(row.peak.bytes, Provenance.MODELLED if row.peak.is_modelled else Provenance.EXACT)
        surely = [_size(row.surely)] if is_modelled else []
        cells.append((row.bind[second], *surely, _size(row.largest), needed, _place(row)))
    return Report("fit", headline=(headline,), tables=(Table.of(cells, columns, f"{free[0]} by {free[1]}"),))


def _frontier_json(rows: Sequence[Fit], free: Sequence[str], second: str) -> dict[str, object]:
    """The document for two symbols: that of the row with the largest first symbol, with all rows."""
    best = best_of(rows)
    frontier = [
        {free[0]: row.largest, free[1]: row.bind[second], "peak_bytes": row.peak.bytes, "limited_by": row.limited_by.node} for row in rows
    ]
    document = {**best.to_json(), "schema": SCHEMA, "free": ",".join(free), "frontier": frontier}
    if any(row.is_modelled for row in rows):
        document["provenance"] = {**best.provenance, "frontier": Provenance.MODELLED.value}
    return document


def _size(largest: int | None) -> object:
    return "any" if largest is None else largest


def _is_counted(found: Fit) -> bool:
    """Whether the number is that of a device's allocator."""
    return found.counter in ("reserved", "allocated")


def _place(found: Fit) -> str:
    need = found.limited_by
    where = ", ".join(part for part in (need.scope, need.location) if part)
    return f"{need.node} ({where})" if where else need.node


def _bytes(size: int) -> str:
    return humanise(size, Kind.BYTES)
