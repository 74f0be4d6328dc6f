"""Lifetimes as observed in a run, instead of those derived by rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irscope.ir.graph import Node
from irscope.ir.program import Life, Observed
from irscope.passes.lifetimes.lives import OUTPUT, LiveRange

OUTLIVES = "Python beyond the end of the run"


def as_observed(ranges: Iterable[LiveRange], watched: Observed, steps: Sequence[Node]) -> list[LiveRange]:
    """The same storages with observed live ranges; storages that the run did not allocate keep theirs."""
    found = []
    for one in ranges:
        life = watched.lives.get(one.value)
        if life is None:
            found.append(one)
        elif one.size != 0:
            found.append(_observed(one, life, steps))
    return found


def _observed(one: LiveRange, life: Life, steps: Sequence[Node]) -> LiveRange:
    last = len(steps) - 1
    size = max(one.size, life.size) if isinstance(one.size, int) else one.size
    if life.died is None:
        dies, by = (len(steps), OUTPUT) if one.is_output else (last, OUTLIVES)
    else:
        dies, by = life.died, _holder(one, life.died, steps)
    holds = tuple([hold for hold in one.holds if hold.until == dies])
    return LiveRange(one.value, size, one.born, dies, by, min(one.last_use, dies), one.uses, holds, life.rank)


def _holder(one: LiveRange, died: int, steps: Sequence[Node]) -> str:
    """What kept a storage alive until it was freed: a use, a call or a variable that ends there, else Python for an unknown reason."""
    if one.last_use == died or one.is_output:
        return steps[died].name if one.uses and not one.is_output else one.held_by
    for hold in one.holds:
        if hold.until == died:
            return f"the call of module {hold.by}" if hold.kind == "call" else hold.by
    return f"Python until {steps[died].name} had run"
