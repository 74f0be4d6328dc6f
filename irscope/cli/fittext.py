"""What `irscope fit` says to people."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.devices.catalogue import all_devices
from irscope.fitting import Fit
from irscope.report.report import assumed_lines
from irscope.report.units import Kind, humanise

_WHAT = {
    "reserved": "reserved from the device",
    "allocated": "allocated, as blocks",
    "requested": "asked for: weights, inputs and the activation peak",
    "activation": "alive beyond weights and inputs",
}


def fit_lines(found: Fit) -> list[str]:
    """The answer, then where it comes from."""
    memory = _bytes(found.memory)
    name = found.free if found.free == found.symbol else f"{found.free} ({found.symbol})"
    if found.largest is None:
        return [f"{found.free}: any size fits {memory}; what the model needs does not depend on it"]
    head = f"{found.free} {found.largest:,} is the largest that fits {memory}"
    if found.limit == "range":
        head = f"{found.free} {found.largest:,}, the largest that the model allows, fits {memory}"
    lines = [
        head,
        "",
        f"  symbol        {name}",
        f"  counted       {_WHAT[found.counter]} ({found.counter})",
        f"  needed        {_exact(found.peak.bytes)} at {found.largest:,}, {_bytes(found.headroom)} left",
    ]
    if found.following is not None:
        lines.append(f"  one further   {_exact(found.following.bytes)} at {found.largest + 1:,}")
    lines += [
        f"  limited by    {_place(found)}",
        f"  formula       {found.formula} bytes asked for",
        *([f"  for           {found.target}"] if _is_counted(found) else []),
    ]
    if found.peak.most is None or found.peak.most > found.peak.bytes:
        most = "more" if found.peak.most is None else f"up to {_bytes(found.peak.most)}"
        lines.append(f"  may need      {most}: the workspaces of cuDNN and other unknown sizes are not in the number above")
    if found.before_oom is not None and found.before_oom > found.largest:
        lines.append(f"  out of memory after {found.before_oom:,}: up to there PyTorch goes on by emptying its cache, which is slow")
    if found.context is not None and _is_counted(found):
        low, high = (_bytes(size) for size in found.context)
        lines.append(f"  besides       the CUDA context takes {low}" + (f" to {high}" if high != low else ""))
    lines += [f"  {line}" for line in assumed_lines(found.assumed)]
    if not found.exhaustive:
        lines.append("  note          larger sizes were not all looked at; one of them might fit as well")
    return lines


def frontier_lines(rows: Sequence[Fit], free: Sequence[str], second: str) -> list[str]:
    """A table: one row for each size of the second symbol."""
    cells = [(free[1], free[0], "needed", "limited by")]
    cells += [
        (f"{row.bind[second]:,}", "any" if row.largest is None else f"{row.largest:,}", _bytes(row.peak.bytes), _place(row)) for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    device = f", for {rows[0].target}" if _is_counted(rows[0]) else ""
    head = f"the largest {free[0]} for each {free[1]} in {_bytes(rows[0].memory)}, counted as {rows[0].counter}{device}"
    table = ["  ".join([*(cell.rjust(width) for cell, width in zip(line, widths, strict=False)), line[3]]) for line in cells]
    return [head, "", *table, *(f"  {line}" for line in assumed_lines(rows[0].assumed))]


def unfit_lines(found: Fit) -> list[str]:
    """Why nothing fits, and what would."""
    needed = found.peak.bytes
    lines = [
        f"irscope: error IRS335: does not fit: {found.free} {found.smallest:,} needs {_bytes(needed)} ({found.counter}), "
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


def _is_counted(found: Fit) -> bool:
    """Whether the number is that of a device's allocator."""
    return found.counter in ("reserved", "allocated")


def _place(found: Fit) -> str:
    need = found.limited_by
    where = ", ".join(part for part in (need.scope, need.location) if part)
    return f"{need.node} ({where})" if where else need.node


def _exact(size: int) -> str:
    return f"{_bytes(size)} ({size:,} bytes)"


def _bytes(size: int) -> str:
    return humanise(size, Kind.BYTES)
