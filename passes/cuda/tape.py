"""Allocator requests in order, those of kernels included: one rule for a forward pass and for training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from irscope.devices import Target
from irscope.ir.dims import Dim, SymDim, bounds
from irscope.ops.spec import Drop, Gemm, MemoryEvent, Result, Take, Unknown, Workspace
from irscope.passes.cuda.workspace import workspace_policy

TEMPORARY, WORKSPACE = "temporary", "workspace"
End: TypeAlias = Literal["central", "low", "high"]


class Unbounded(Exception):
    """A size has no upper bound."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The interval of sizes of an allocation whose size is unknown."""

    low: Dim
    high: Dim | None
    """None without an upper bound."""
    reason: str
    modelled: bool = False
    """Whether the counted size is modelled, not the lower bound."""


@dataclass
class Tape:
    """Requests in order. Each is a slot with a size; event `n` allocates slot n, event `~n` frees it."""

    events: list[int] = field(default_factory=list)
    sizes: list[Dim] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """The first event of each step."""
    spreads: dict[int, Spread] = field(default_factory=dict)
    """Slots of unknown size, with intervals; the size in `sizes` is the one that is counted."""

    def slot(self, size: Dim, kind: str, label: str) -> int:
        """A new slot."""
        self.sizes.append(size)
        self.kinds.append(kind)
        self.labels.append(label)
        return len(self.sizes) - 1

    @property
    def is_exact(self) -> bool:
        """Whether every size is exact."""
        return not any(spread.low != spread.high for spread in self.spreads.values())

    @property
    def is_passing(self) -> bool:
        """Whether every slot of inexact size is freed."""
        given_back = {~event for event in self.events if event < 0}
        return self.spreads.keys() <= given_back

    def numbers(self, end: End) -> list[int]:
        """Every size as a number: the counted one, the lower or the upper bound; raises Unbounded without an upper bound."""
        return [size if type(size) is int else number(size, end) for size in self.formulas(end)]

    def formulas(self, end: End) -> list[Dim]:
        """Every size: the counted one, the lower or the upper bound; raises Unbounded without an upper bound."""
        sizes = list(self.sizes)
        if end != "central":
            for slot, spread in self.spreads.items():
                if end == "high" and spread.high is None:
                    raise Unbounded(spread.reason)
                sizes[slot] = spread.low if end == "low" or spread.high is None else spread.high
        return sizes

    def most(self) -> list[int] | None:
        """Upper bounds of every size; None where one is unbounded."""
        try:
            return self.numbers("high")
        except Unbounded:
            return None


def number(size: Dim, end: End) -> int:
    """One size as a number; for a data-dependent one its lower bound."""
    if not isinstance(size, SymDim):
        return size
    low, high = bounds(size)
    if end == "high":
        if high is None:
            raise Unbounded(f"{size} has no upper bound")
        return high
    return max(low or 0, 0)


class KernelWriter:
    """Records the temporary memory of kernels on a tape, interleaved with the allocation of their results."""

    def __init__(self, tape: Tape, target: Target) -> None:
        self._tape = tape
        self._policy = workspace_policy(target)
        self.kept: dict[str, int] = {}
        """Slots of workspaces that are kept after their first allocation, by label."""

    def write(self, found: Sequence[MemoryEvent], made: Mapping[int, int]) -> None:
        """The requests of one call; `made` has the slots of results with their own storage, by index."""
        tape, events = self._tape, self._tape.events
        open_: dict[str, int] = {}
        waiting = dict(made)
        for event in found:
            if isinstance(event, Result):
                slot = waiting.pop(event.index, None)
                if slot is not None:
                    if event.size is not None:
                        tape.sizes[slot] = event.size
                    events.append(slot)
            elif isinstance(event, Take):
                open_[event.label] = slot = tape.slot(event.size, event.kind, event.label)
                events.append(slot)
            elif isinstance(event, Drop):
                events.append(~open_.pop(event.label))
            elif isinstance(event, Gemm):
                self._multiply(event)
            elif isinstance(event, Workspace):
                slot = tape.slot(event.size, WORKSPACE, event.label)
                tape.spreads[slot] = Spread(0, event.most, event.reason, modelled=True)
                events += [slot, ~slot]
            else:
                open_[event.label] = slot = self._guess(event)
                events.append(slot)
        events.extend(waiting.values())
        events.extend([~slot for slot in open_.values()])

    def _multiply(self, event: Gemm) -> None:
        """Persistent workspaces are allocated once; the others live for the call."""
        tape = self._tape
        own: list[int] = []
        for buffer in self._policy.buffers(event.path):
            if buffer.kept and buffer.label in self.kept:
                continue
            slot = tape.slot(buffer.size, WORKSPACE, buffer.label)
            tape.events.append(slot)
            if buffer.kept:
                self.kept[buffer.label] = slot
            else:
                own.append(slot)
        tape.events.extend([~slot for slot in own])

    def _guess(self, event: Unknown) -> int:
        slot = self._tape.slot(event.low, TEMPORARY, event.label)
        self._tape.spreads[slot] = Spread(event.low, event.high, event.reason)
        return slot
