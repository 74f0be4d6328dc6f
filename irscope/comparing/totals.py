"""The numbers of a whole comparison: one line a measure, with the difference and how large it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from irscope.comparing.models import ModelComparison
from irscope.comparing.side import Side
from irscope.ir.dims import Dim, ratio
from irscope.ir.graph import Role
from irscope.passes.cuda.result import Counter, Moment
from irscope.passes.sizes import plain
from irscope.report.celltext import signed
from irscope.report.units import Kind
from irscope.report.values import Quantity, derived


@dataclass(frozen=True, slots=True)
class Total:
    """One measure of both models."""

    key: str
    kind: Kind
    a: Dim | None
    b: Dim | None
    counters: tuple[Quantity, Quantity] | None = None
    """Both where they are an allocator's, with where they come from."""

    @property
    def difference(self) -> Dim | None:
        """B less A; None where one of them is unknown."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def change(self) -> float | None:
        """The difference as a share of A, infinite where A has none; None where it is not known, or another one at every size."""
        if self.a is None or self.b is None:
            return None
        if self.a == 0 and isinstance(self.b, int):
            return 0.0 if self.b == 0 else math.inf
        found = ratio(self.b, self.a)
        return None if found is None else float(found - 1)

    def cells(self) -> dict[str, object]:
        """As a report's summary has it."""
        if self.counters is not None:
            a, b = self.counters
            return {"a": a, "b": b, "difference": b - a, "change": derived(self.change, a, b)}
        return {
            **{name: plain(value) for name, value in (("a", self.a), ("b", self.b), ("difference", self.difference))},
            "change": self.change,
        }

    @property
    def said(self) -> tuple[str, str]:
        """Both for a sentence."""
        a, b = self.counters or (plain(self.a), plain(self.b))
        return signed(a, self.kind), signed(b, self.kind)


def totals(compared: ModelComparison) -> list[Total]:
    """Every measure that both sides have, and those that one of them has."""
    found = [
        _both(compared, "nodes", Kind.COUNT, lambda side: len(side.nodes) if side.has_graph else None),
        _both(compared, "parameters", Kind.COUNT, lambda side: side.totals.known(Role.PARAMETER, side.totals.count)),
        _both(compared, "parameter_bytes", Kind.BYTES, lambda side: side.totals.known(Role.PARAMETER, side.totals.bytes)),
        _both(compared, "buffer_bytes", Kind.BYTES, lambda side: side.totals.known(Role.BUFFER, side.totals.buffer_bytes)),
        _both(compared, "constant_bytes", Kind.BYTES, lambda side: side.totals.known(Role.CONSTANT, side.totals.constant_bytes)),
        _both(compared, "flops", Kind.FLOPS, _flops),
        _both(compared, "moved_bytes", Kind.BYTES, _moved),
        _both(compared, "peak_bytes", Kind.BYTES, _peak),
        _both(compared, "lower_bound_bytes", Kind.BYTES, lambda side: side.timeline.lower_bound if _is_sized(side) else None),
    ]
    if compared.own is not None:
        first, second = compared.own
        found.append(Total("peak_as_run_bytes", Kind.BYTES, _peak(first), _peak(second)))
    return [*found, *_device(compared)]


def _both(compared: ModelComparison, key: str, kind: Kind, read: Callable[[Side], Dim | None]) -> Total:
    return Total(key, kind, read(compared.a), read(compared.b))


def _flops(side: Side) -> Dim | None:
    return side.costs.tally.value("flops") if side.has_graph and side.costs.tally.is_exact else None


def _moved(side: Side) -> Dim | None:
    tally = side.costs.tally
    return tally.moved if side.has_graph and tally.is_exact else None


def _peak(side: Side) -> Dim | None:
    return side.timeline.peak if _is_sized(side) else None


def _is_sized(side: Side) -> bool:
    return side.has_graph and not side.timeline.unsized


def _device(compared: ModelComparison) -> Iterator[Total]:
    """What an allocator counts on the device, where PyTorch runs both models."""
    memories = [side.device_memory for side in compared.own or compared.sides]
    first, second = memories
    if first is None or second is None:
        return
    for key, moment, counter in _COUNTERS:
        one, other = first.counter(moment, counter), second.counter(moment, counter)
        if isinstance(one.value, int) and isinstance(other.value, int):
            yield Total(key, Kind.BYTES, one.value, other.value, (one, other))


_COUNTERS: tuple[tuple[str, Moment, Counter], ...] = (
    ("device_before_bytes", "before", "allocated"),
    ("device_peak_bytes", "cold", "allocated"),
    ("device_reserved_bytes", "cold", "reserved"),
)
