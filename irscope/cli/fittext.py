"""What `irscope fit` says to people."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.devices.catalogue import all_devices
from irscope.fitting import Fit, Need
from irscope.report.celltext import signed
from irscope.report.report import assumed_lines
from irscope.report.units import Kind, humanise

_FEW = 6
_TIMES = {1: "once", 2: "twice"}
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
    lines = [_head(found), "", f"  symbol        {name}", f"  counted       {_WHAT[found.counter]} ({found.counter})"]
    if found.peak.is_modelled:
        lines += [
            f"  surely        {_surely(found)}",
            f"  as modelled   {_needed(found.peak)} at {found.largest:,}, {_bytes(found.headroom)} left",
        ]
    else:
        lines.append(f"  needed        {_needed(found.peak)} at {found.largest:,}, {_bytes(found.headroom)} left")
    if found.peak.device_peak is not None:
        lines.append(f"  device peak   {signed(found.peak.device_peak, Kind.BYTES)} at {found.largest:,}, which liveness shows in parts")
    if found.following is not None:
        lines.append(f"  one further   {_needed(found.following)} at {found.largest + 1:,}{_goes_on(found)}")
    if found.before_oom is not None and found.before_oom > found.largest + 1:
        size = f"up to {found.before_oom:,}" if found.runs_between else f"{found.before_oom:,}, though not all in between"
        lines.append(f"  runs          {size}: PyTorch gives its cache back and tries again, which is slow")
    lines += [
        f"  limited by    {_place(found)}",
        f"  formula       {found.formula} bytes asked for",
        *([f"  for           {found.target}"] if _is_counted(found) else []),
    ]
    if found.context is not None and _is_counted(found):
        low, high = (_bytes(size) for size in found.context)
        lines.append(f"  besides       the CUDA context takes {low}" + (f" to {high}" if high != low else ""))
    lines += [f"  {line}" for line in assumed_lines(found.assumed)]
    if found.failing:
        sizes = ", ".join(f"{size:,}" for size in found.failing[:_FEW]) + (" and others" if len(found.failing) > _FEW else "")
        lines.append(f"  note          smaller sizes do not all fit: not {sizes}")
    if not found.exhaustive:
        lines.append(f"  note          larger sizes, up to {found.bound or 0:,}, were only sampled; one of them might fit as well")
    return lines


def _head(found: Fit) -> str:
    """The answer in a line: what surely fits, and what fits as it is predicted, where these are not the same."""
    memory, largest = _bytes(found.memory), f"{found.free} {found.largest:,}"
    if found.peak.is_modelled and found.surely != found.largest:
        most = f"{found.free} {found.surely:,} surely fits {memory}" if found.surely else f"no {found.free} surely fits {memory}"
        return f"{most}, {largest} as modelled"
    surely = "surely fits" if found.peak.is_modelled else "fits"
    if found.limit == "range":
        return f"{largest}, the largest that the model allows, {surely} {memory}"
    return f"{largest} is the largest that {surely} {memory}"


def _surely(found: Fit) -> str:
    if found.surely_peak is not None and found.surely_peak.most is not None:
        return f"at most {_exact(found.surely_peak.most)} at {found.surely:,}, with all that is not known or modelled at its upper end"
    if found.peak.unbounded:
        return f"none: {found.peak.unbounded}"
    return f"none: the upper ends of what is not known or modelled are too much at {found.smallest:,} already"


def _goes_on(found: Fit) -> str:
    """Whether the allocator finds memory for the next size once it has given its cache back."""
    if found.following_runs is None:
        return ""
    if found.following_retries is None:
        return ", where PyTorch runs out of memory"
    retries = zip(found.following_retries, ("first", "second"), strict=True)
    times = " and ".join(f"{_TIMES.get(count, f'{count} times')} in the {which} forward" for count, which in retries if count)
    return f", which runs: PyTorch gives its cache back {times}"


def _needed(need: Need) -> str:
    """Bytes, with the interval that they lie in where they are modelled."""
    if not need.is_modelled:
        return _exact(need.bytes)
    low, high = (None if size is None else _bytes(size) for size in (need.least, need.most))
    between = "" if low == high else f" [{low} or more]" if high is None else f" [{low} to {high}]"
    return f"~{_exact(need.bytes)}{between}"


def frontier_lines(rows: Sequence[Fit], free: Sequence[str], second: str) -> list[str]:
    """A table: one row for each size of the second symbol."""
    cells: list[tuple[str, ...]] = [(free[1], "surely", "as modelled", "needed", "limited by")]
    for row in rows:
        needed = ("~" if row.peak.is_modelled else "") + _bytes(row.peak.bytes)
        cells.append((f"{row.bind[second]:,}", _size(row.surely), _size(row.largest), needed, _place(row)))
    if not any(row.peak.is_modelled for row in rows):
        cells = [(free[1], free[0], "needed", "limited by"), *((line[0], *line[2:]) for line in cells[1:])]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]) - 1)]
    device = f", for {rows[0].target}" if _is_counted(rows[0]) else ""
    head = f"the largest {free[0]} for each {free[1]} in {_bytes(rows[0].memory)}, counted as {rows[0].counter}{device}"
    table = ["  ".join([*(cell.rjust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in cells]
    return [head, "", *table, *(f"  {line}" for line in assumed_lines(rows[0].assumed))]


def _size(largest: int | None) -> str:
    return "any" if largest is None else f"{largest:,}"


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
