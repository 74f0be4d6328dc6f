"""What one node adds to the totals of a model, and whether that is exact."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias, TypeVar

from irscope.immutable import mutable
from irscope.ir.dims import Dim, SymDim, bounds
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ir.places import Scope
from irscope.ir.types import TensorType, Type
from irscope.ops.cost import FLOP_CLASSES, Cost
from irscope.ops.spec import Family, OpSpec

MEASURES = ("flops", *FLOP_CLASSES, "macs", "masked", "read", "written")
"""The numbers of a cost that are summed up, as attributes of `Cost`."""


class Certainty(enum.Enum):
    """Whether the cost of a node is exact, bounded or unknown."""

    EXACT = "exact"
    BOUNDED = "bounded"
    """It lies between two numbers: a branch, or a size that depends on data within limits."""
    FREE = "free"
    """Nothing is computed and nothing moves: views, questions about shapes."""
    UNKNOWN = "unknown"


class Arithmetic(enum.Enum):
    """What numbers a node computes with."""

    FLOAT = "float"
    INTEGER = "integer"
    QUANTISED = "quantised"
    UNKNOWN = "unknown"
    """The operator has no record, or which of several runs is not known."""


Bounds: TypeAlias = Mapping[str, "tuple[Dim, Dim | None]"]
"""By measure the least and the most it can be; None where it has no upper limit."""


@mutable(slots=True)
class Entry:
    """One node's share of the totals: `cost` as often as it `runs`. Never mutated: a frozen class takes three times as long to create."""

    node: Node
    certainty: Certainty
    cost: Cost
    """Of one run. Where it is bounded the upper limit, where it is unknown the part that is known."""
    arithmetic: Arithmetic = Arithmetic.FLOAT
    runs: Dim = 1
    bounds: Bounds | None = None
    """For one run, where it is not exact."""
    reason: str = ""
    """Why the cost is not exact."""

    def repeated(self, times: Dim) -> Entry:
        """The same node inside something that runs so many times."""
        return self if times == 1 else replace(self, runs=self.runs * times)

    @property
    def total(self) -> Cost:
        """The cost of all runs."""
        return self.cost if self.runs == 1 else self.cost.times(self.runs)

    def limits(self, measure: str) -> tuple[Dim, Dim | None]:
        """The least and the most of a measure, all runs together."""
        if self.bounds is None:
            exact = getattr(self.cost, measure) * self.runs
            return exact, exact
        low, high = self.bounds[measure]
        return low * self.runs, None if high is None else high * self.runs


# ----------------------------------------------------------------------------------------------------
# Bounds of inexact costs, the arithmetic class of a node, and sums over the iterations of a loop.


def arithmetic_of(spec: OpSpec | None, operands: Sequence[Type | None], results: Sequence[Type]) -> Arithmetic:
    """What a node computes with: floats wherever an operand or result is one."""
    if spec is None:
        return Arithmetic.UNKNOWN
    if spec.family is Family.QUANTIZATION:
        return Arithmetic.QUANTISED
    dtypes = [type_.dtype for type_ in (*operands, *results) if isinstance(type_, TensorType)]
    if any(dtype.is_float or dtype.kind.value == "complex" for dtype in dtypes) or not dtypes:
        return Arithmetic.FLOAT
    if DType.UNKNOWN in dtypes:
        return Arithmetic.UNKNOWN
    small = spec.family in (Family.CONTRACTION, Family.CONVOLUTION)
    return Arithmetic.QUANTISED if small and any((dtype.bits or 64) <= 8 for dtype in dtypes) else Arithmetic.INTEGER


ANYTHING: Bounds = dict.fromkeys(MEASURES, (0, None))
"""The limits of a node of which nothing is known."""


def limits_of(value: Dim | None) -> tuple[Dim, Dim | None]:
    """The least and the most a number can be; what depends on data is limited by the bounds of its sizes."""
    if value is None:
        return 0, None
    if isinstance(value, SymDim) and value.is_unknown:
        low, high = bounds(value)
        return max(low or 0, 0), high
    return value, value


def shown_cost(limits: Bounds) -> Cost:
    """The upper limits where there are some, else what is there at least."""
    values = {measure: low if high is None else high for measure, (low, high) in limits.items() if measure != "flops"}
    for measure in ("read", "written"):
        if limits[measure][1] is None:
            values[measure] = 0
    return Cost(**values)


def within(node: Node, limits: Bounds, arithmetic: Arithmetic, reason: str) -> Entry:
    """A node whose cost lies between two limits."""
    if all(low is high or low == high for low, high in limits.values()):
        is_free = all(low == 0 for low, _ in limits.values())
        return Entry(node, Certainty.FREE if is_free else Certainty.EXACT, shown_cost(limits), arithmetic)
    certainty = Certainty.UNKNOWN if limits["flops"][1] is None else Certainty.BOUNDED
    return Entry(node, certainty, shown_cost(limits), arithmetic, 1, limits, reason)


def joint(entries: Iterable[Entry]) -> Arithmetic:
    """What nodes of which some run compute with."""
    kinds = {entry.arithmetic for entry in entries if entry.cost.flops != 0 or entry.bounds is not None}
    return kinds.pop() if len(kinds) == 1 else Arithmetic.UNKNOWN if kinds else Arithmetic.FLOAT


def summed(steps: Sequence[list[Entry]]) -> list[Entry]:
    """The entries of all steps of a loop, those of one node with one cost as one."""
    merged: dict[tuple[Node, Cost], Entry] = {}
    for step in steps:
        for entry in step:
            key = (entry.node, entry.cost)
            before = merged.get(key)
            if before is None:
                merged[key] = entry
            else:
                merged[key] = Entry(
                    entry.node, entry.certainty, entry.cost, entry.arithmetic, before.runs + entry.runs, entry.bounds, entry.reason
                )
    return list(merged.values())


# ----------------------------------------------------------------------------------------------------
# Sums over many entries, fast where most numbers are integers and where many formulas are the same.


class Sum:
    """One sum: integers are added up at once, formulas are collected, so that each distinct one is added once."""

    __slots__ = ("_formulas", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._formulas: dict[SymDim, Dim] | None = None

    @property
    def _terms(self) -> dict[SymDim, Dim]:
        # Most sums hold numbers only: there is no dictionary before the first formula.
        if self._formulas is None:
            self._formulas = {}
        return self._formulas

    def add(self, value: Dim, times: Dim = 1) -> None:
        if isinstance(value, int) and isinstance(times, int):
            self._number += value * times
        elif isinstance(value, SymDim):
            self._terms[value] = self._terms.get(value, 0) + times
        else:
            self.add(times, value)

    def merge(self, other: Sum) -> None:
        self._number += other._number
        for formula, times in (other._formulas or {}).items():
            self._terms[formula] = self._terms.get(formula, 0) + times

    @property
    def value(self) -> Dim:
        total: Dim = self._number
        for formula, times in (self._formulas or {}).items():
            total = total + formula * times
        return total


@mutable
class Tally:
    """Sums of costs, with the limits they lie in."""

    count: int = 0
    _sums: dict[str, Sum] = field(default_factory=dict)
    """Sums by measure; one that is not there is zero."""
    _slack: list[Entry] = field(default_factory=list)
    """Entries that are not exact."""
    _flops: dict[Arithmetic, Sum] = field(default_factory=dict)

    def add(self, entry: Entry, times: int = 1) -> None:
        """Add an entry, or so many with its cost and runs."""
        self.count += times
        cost = entry.cost
        runs = entry.runs if times == 1 else entry.runs * times
        if entry.bounds is not None:
            self._slack.append(entry)
        flops = cost.flops
        if type(flops) is not int or flops:
            _sum_at(self._sums, "flops").add(flops, runs)
            _sum_at(self._flops, entry.arithmetic).add(flops, runs)
            for measure in _ARITHMETIC:
                part = getattr(cost, measure)
                if type(part) is not int or part:
                    _sum_at(self._sums, measure).add(part, runs)
        if cost.read is not None:
            _sum_at(self._sums, "read").add(cost.read, runs)
        if cost.written is not None:
            _sum_at(self._sums, "written").add(cost.written, runs)

    def merge(self, other: Tally) -> None:
        """Add everything that another tally holds."""
        self.count += other.count
        self._slack += other._slack
        for measure, found in other._sums.items():
            _sum_at(self._sums, measure).merge(found)
        for kind, found in other._flops.items():
            _sum_at(self._flops, kind).merge(found)

    def value(self, measure: str) -> Dim:
        """The sum; what is bounded counts with its upper limit, what is unknown with the part that is known."""
        found = self._sums.get(measure)
        return 0 if found is None else found.value

    def flops_in(self, arithmetic: Arithmetic) -> Dim:
        found = self._flops.get(arithmetic)
        return 0 if found is None else found.value

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
    def moved(self) -> Dim:
        """Bytes read and written."""
        return self.value("read") + self.value("written")

    @property
    def moved_limits(self) -> tuple[Dim, Dim | None]:
        """The least and the most of them."""
        (low, high), (least, most) = self.limits("read"), self.limits("written")
        return low + least, None if high is None or most is None else high + most

    def flops_limits(self, arithmetic: Arithmetic) -> tuple[Dim, Dim | None]:
        """The least and the most FLOPs of one kind of arithmetic; what may be of any kind counts towards the most."""
        total, low, high = self.flops_in(arithmetic), Sum(), Sum()
        high.add(self.flops_in(Arithmetic.UNKNOWN))
        open_ended = False
        for entry in self._slack:
            if entry.arithmetic not in (arithmetic, Arithmetic.UNKNOWN):
                continue
            least, most = entry.limits("flops")
            counted = entry.cost.flops * entry.runs
            open_ended = open_ended or most is None
            high.add(0 if most is None else most - counted)
            if entry.arithmetic is arithmetic:
                low.add(least - counted)
        return total + low.value, None if open_ended else total + high.value

    @property
    def is_exact(self) -> bool:
        return not self._slack

    def cost(self) -> Cost:
        """The sums as one cost."""
        return Cost(**{measure: self.value(measure) for measure in MEASURES if measure != "flops"})


_ARITHMETIC = tuple(measure for measure in MEASURES if measure not in ("flops", "read", "written"))


K = TypeVar("K")


def _sum_at(sums: dict[K, Sum], key: K) -> Sum:
    found = sums.get(key)
    if found is None:
        found = sums[key] = Sum()
    return found


def tallied(entries: Iterable[Entry]) -> Tally:
    """The sum of entries."""
    found = _tallies_by(entries, lambda entry: None)
    return found.get(None, Tally())


def by_place(entries: Iterable[Entry]) -> dict[tuple[Scope, str], Tally]:
    """Sums by module call and operator, from which those of modules and operators follow."""
    return _tallies_by(entries, lambda entry: (entry.node.scope, entry.node.op))


def _tallies_by(entries: Iterable[Entry], place_of: Callable[[Entry], K]) -> dict[K, Tally]:
    counts: dict[tuple[object, ...], int] = {}
    samples: list[tuple[K, Entry]] = []
    tallies: dict[K, Tally] = {}
    for entry in entries:
        place = place_of(entry)
        if entry.bounds is not None:
            tallies.setdefault(place, Tally()).add(entry)
            continue
        # Equal nodes share one cost: most entries only raise a count.
        key = (place, id(entry.cost), id(entry.arithmetic), entry.runs)
        found = counts.get(key)
        if found is None:
            counts[key] = 1
            samples.append((place, entry))
        else:
            counts[key] = found + 1
    for (place, entry), count in zip(samples, counts.values(), strict=True):
        tallies.setdefault(place, Tally()).add(entry, count)
    return tallies
