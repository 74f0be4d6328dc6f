"""The prediction for a device, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from irscope.devices import DeviceProfile, Target
from irscope.diagnostics import Diagnostic
from irscope.ir.bind import typed
from irscope.ir.graph import Node
from irscope.passes.cuda.replay import Outcome, Script
from irscope.passes.cuda.scripts import Load
from irscope.passes.cuda.stream import Stream
from irscope.report.values import Provenance, Quantity, derived, largest

if TYPE_CHECKING:
    from irscope.passes.alias import Aliases
    from irscope.passes.cuda.moments import Moments
    from irscope.passes.inference.engine import Inferred
    from irscope.passes.lifetimes.footprint import Footprint
    from irscope.passes.ranges import Lifetimes

Moment: TypeAlias = Literal["before", "cold", "warm"]
Counter: TypeAlias = Literal["requested", "allocated", "reserved"]
Run: TypeAlias = Literal["first", "second"]


def bracketed(counter: str, central: int, ends: tuple[int, int | None], note: str) -> Quantity:
    """A counter of a replay with inexact sizes, between its values for their lower and upper bounds.

    What is asked for never falls where a size rises, so that it is exact where both ends are the same. What is allocated and
    reserved depends on the order of sizes: where a size is modelled these are modelled too, whatever the ends say.
    """
    low, high = min(central, ends[0]), None if ends[1] is None else max(central, ends[1])
    if low == high:
        return Quantity(central) if counter == "requested" else Quantity(central, Provenance.MODELLED, note=note)
    return Quantity(central, Provenance.MODELLED, note=note, lo=low, hi=high)


def fitting(fits: bool, target: Target, low: int | None, high: int | None, reserved: Quantity) -> Quantity:
    """Whether something fits on a device; modelled where the answer differs within the interval of reserved memory."""
    room = target.device.room_bytes
    is_sure = room is None or low is None or all(end is not None and (end <= room) == fits for end in (low, high))
    return Quantity(fits) if is_sure else derived(fits, reserved)


@dataclass(frozen=True)
class Shortage:
    """A model that is too large for the device."""

    needed: Quantity
    """Bytes that it needs, the CUDA context included."""
    missing: Quantity
    fitting: tuple[DeviceProfile, ...]
    """Known devices with enough memory, the smallest first."""


@dataclass(frozen=True)
class Basis:
    """The program that the requests are derived from: as Python runs it, which may differ from the one in the file."""

    lifetimes: Lifetimes
    aliases: Aliases
    types: Inferred


@dataclass
class DeviceMemory:
    """Counters of a CUDA device's allocator for a model, as far as they can be predicted."""

    model: str
    """Lifetime model."""
    target: Target
    steps: list[Node]
    reason: str = ""
    """Why there are no numbers."""
    fix: str = ""
    """What would make them known."""
    basis: Basis | None = None
    load: Load | None = None
    stream: Stream | None = None
    script: Script | None = None
    central: Outcome | None = None
    low: Outcome | None = None
    """Lower bound, where something is unknown or modelled; None where everything is exact."""
    high: Outcome | None = None
    """Upper bound; None where there is none."""
    is_open: bool = False
    """Whether sizes are data-dependent, so that there is only an interval."""
    unbounded: str = ""
    """Why there is no upper end."""
    shortage: Shortage | None = None
    findings: list[Diagnostic] = field(default_factory=list)

    def counter(self, moment: Moment, counter: Counter) -> Quantity:
        """One of the allocator's counters, with its interval."""
        if self.central is None:
            hint = f"; {typed(self.fix)} makes it known" if self.fix else ""
            return Quantity(None, Provenance.UNKNOWN, note=f"{self.reason}{hint}")
        central = self.central.at(moment, counter)
        if self.low is None or moment == "before":
            return Quantity(central)
        ends = (self.low.at(moment, counter), None if self.high is None else self.high.at(moment, counter))
        found = bracketed(counter, central, ends, self._why_open())
        return replace(found, value=None, provenance=Provenance.UNKNOWN) if self.is_open else found

    def worst(self, counter: Counter) -> Quantity:
        """The larger peak of the first and the second forward."""
        return largest([self.counter("cold", counter), self.counter("warm", counter)])

    def computed(self, value: object) -> Quantity:
        """A quantity derived from the whole replay, such as the free part of a segment."""
        return derived(None if self.is_open else value, self.counter("cold", "allocated"), self.counter("cold", "reserved"))

    @property
    def fits(self) -> Quantity:
        """Whether the device has enough memory; modelled where the answer differs within the interval."""
        low, high = (None if one is None else max(one.cold.reserved, one.warm.reserved) for one in (self.low, self.high))
        return fitting(self.shortage is None, self.target, low, high, self.worst("reserved"))

    def _why_open(self) -> str:
        """Why there is an interval: the first reason."""
        if self.unbounded:
            return self.unbounded
        spreads = self.stream.spreads if self.stream is not None else {}
        return next((spread.reason for spread in spreads.values()), "some results are either views or copies of their operand")

    @property
    def run(self) -> Run:
        """The forward with the higher peak of allocated bytes."""
        return "second" if self.central is not None and self.central.warm.allocated > self.central.cold.allocated else "first"

    @cached_property
    def moments(self) -> Moments | None:
        """The first forward step by step, computed on first use."""
        return self._moments("first")

    @cached_property
    def highest(self) -> Moments | None:
        """The forward with the higher peak, step by step."""
        return self.moments if self.run == "first" else self._moments("second")

    def _moments(self, run: Run) -> Moments | None:
        from irscope.passes.cuda.moments import CATEGORIES, Stretch, moments

        load, stream, script, outcome = self.load, self.stream, self.script, self.central
        if load is None or stream is None or script is None or outcome is None:
            return None
        held = dict.fromkeys(CATEGORIES, 0)
        for kind, size in zip(load.kinds, script.resident, strict=True):
            held[kind] += size
        events, starts, watched = script.events, [*stream.starts, len(script.events)], outcome.first
        if run == "second":
            # A later forward finds the workspaces that the first one allocated.
            for slot in script.kept:
                held[stream.kinds[slot]] += script.sizes[slot]
            gone = [0, *accumulate(event in script.kept for event in events)]
            events, starts, watched = script.again, [start - gone[start] for start in starts], outcome.second
        before = script.kept if run == "second" else ()
        stretch = Stretch(events, starts, watched.blocks, watched.begins, watched.reserved, held, before, follows=run == "second")
        return moments(stream, stretch, CATEGORIES, script.sizes, stream.numbers("low"), stream.most())

    @cached_property
    def footprint(self) -> Footprint | None:
        """The device's memory over the steps of the forward with the higher peak."""
        from irscope.passes.cuda.alive import footprint

        return footprint(self)
