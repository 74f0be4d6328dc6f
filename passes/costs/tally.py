"""Sums over many entries, fast where most numbers are integers and where many formulas are the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from irscope.ir.dims import Dim, SymDim
from irscope.ir.places import Scope
from irscope.ops.cost import Cost
from irscope.passes.costs.entries import MEASURES, Arithmetic, Entry


class Sum:
    """One sum: integers are added up at once, formulas are collected, so that each distinct one is added once."""

    __slots__ = ("_formulas", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._formulas: dict[SymDim, Dim] = {}

    def add(self, value: Dim, times: Dim = 1) -> None:
        if isinstance(value, int) and isinstance(times, int):
            self._number += value * times
        elif isinstance(value, SymDim):
            self._formulas[value] = self._formulas.get(value, 0) + times
        else:
            self.add(times, value)

    def merge(self, other: Sum) -> None:
        self._number += other._number
        for formula, times in other._formulas.items():
            self._formulas[formula] = self._formulas.get(formula, 0) + times

    @property
    def value(self) -> Dim:
        total: Dim = self._number
        for formula, times in self._formulas.items():
            total = total + formula * times
        return total


@dataclass
class Tally:
    """Sums of costs, with the limits they lie in."""

    count: int = 0
    _sums: dict[str, Sum] = field(default_factory=lambda: {measure: Sum() for measure in MEASURES})
    _slack: list[Entry] = field(default_factory=list)
    """Entries that are not exact."""
    _flops: dict[Arithmetic, Sum] = field(default_factory=lambda: {kind: Sum() for kind in Arithmetic})

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add an entry, or so many with its cost and runs."""
        self.count += times
        cost, sums = entry.cost, self._sums
        runs = entry.runs if times == 1 else entry.runs * times
        if entry.bounds is not None:
            self._slack.append(entry)
        flops = cost.flops
        if type(flops) is not int or flops:
            sums["flops"].add(flops, runs)
            self._flops[entry.arithmetic].add(flops, runs)
            for measure in _ARITHMETIC:
                part = getattr(cost, measure)
                if type(part) is not int or part:
                    sums[measure].add(part, runs)
        sums["read"].add(0 if cost.read is None else cost.read, runs)
        sums["written"].add(0 if cost.written is None else cost.written, runs)

    def merge(self, other: Tally) -> None:
        """Add everything that another tally holds."""
        self.count += other.count
        self._slack += other._slack
        for measure, found in other._sums.items():
            self._sums[measure].merge(found)
        for kind, found in other._flops.items():
            self._flops[kind].merge(found)

    def value(self, measure: str) -> Dim:
        """The sum; what is bounded counts with its upper limit, what is unknown with the part that is known."""
        return self._sums[measure].value

    def flops_in(self, arithmetic: Arithmetic) -> Dim:
        return self._flops[arithmetic].value

    def limits(self, measure: str) -> tuple[Dim, Dim | None]:
        """The least and the most the sum can be; None where it has no upper limit."""
        total = self.value(measure)
        if not self._slack:
            return total, total
        low, high = Sum(), Sum()
        open_ended = False
        for entry in self._slack:
            least, most = entry.limits(measure)
            shown = getattr(entry.cost, measure)
            counted = shown * entry.runs if shown is not None else 0
            low.add(least - counted)
            open_ended = open_ended or most is None
            high.add(0 if most is None else most - counted)
        return total + low.value, None if open_ended else total + high.value

    @property
    def is_exact(self) -> bool:
        return not self._slack

    def cost(self) -> Cost:
        """The sums as one cost."""
        return Cost(**{measure: self.value(measure) for measure in MEASURES if measure != "flops"})


_ARITHMETIC = tuple(measure for measure in MEASURES if measure not in ("flops", "read", "written"))


def tallied(entries: Iterable[Entry]) -> Tally:
    """The sum of entries."""
    tally = Tally()
    for entry in entries:
        tally.add(entry)
    return tally


def by_place(entries: Iterable[Entry]) -> dict[tuple[Scope, str], Tally]:
    """Sums by module call and operator, from which those of modules, operators and the whole follow."""
    counts: dict[tuple[object, ...], int] = {}
    samples: list[Entry] = []
    tallies: dict[tuple[Scope, str], Tally] = {}
    for entry in entries:
        node = entry.node
        if entry.bounds is not None:
            tallies.setdefault((node.scope, node.op), Tally()).add(entry)
            continue
        # Equal nodes share one cost: most entries only raise a count.
        key = (node.scope, node.op, id(entry.cost), entry.runs)
        found = counts.get(key)
        if found is None:
            counts[key] = 1
            samples.append(entry)
        else:
            counts[key] = found + 1
    for entry, count in zip(samples, counts.values(), strict=True):
        tallies.setdefault((entry.node.scope, entry.node.op), Tally()).add(entry, count)
    return tallies
