"""Tables of the steps of a training: their counters, what their peaks are made of, and the peaks of their phases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from irscope.immutable import immutable
from irscope.memory.tape import COUNTERS
from irscope.report.table import Table
from irscope.report.values import Quantity, derived, quantity

Cell: TypeAlias = Quantity | int | None
Counted: TypeAlias = Mapping[Any, Cell]
"""Sizes by category or phase."""
_MOST_COLUMNS: Final = 3
"""Stretches of steps beside each other in a terminal of 80 columns."""


class ByCounter(Protocol):
    """A size of each counter."""

    def __getitem__(self, counter: Any, /) -> Cell: ...


@immutable(slots=False)
class CountedStep:
    """Counters of one step."""

    name: str
    """Its number, or what else it is."""
    peak: ByCounter
    after: ByCounter
    by_category: Counted
    """At the highest moment of allocated, to which they add up."""
    phases: Counted
    """The most that is allocated in each phase."""


def counter_tables(steps: Sequence[CountedStep]) -> Iterator[Table]:
    """Yield each step's peak, and what is there after it."""
    names = [step.name for step in steps]
    columns = ["steps", *(f"{key}:bytes" for key in COUNTERS)]
    for title, counted in (("peak of each step", [step.peak for step in steps]), ("after each step", [step.after for step in steps])):
        yield Table.of(alike(names, [tuple(count[key] for key in COUNTERS) for count in counted]), columns, title)


def parts_tables(steps: Sequence[CountedStep]) -> Iterator[Table]:
    """Yield what the peaks are made of, and those of the phases."""
    kinds = _present([step.by_category for step in steps])
    # Without an allocator's counters the parts add up to what is asked for.
    is_counted = any(quantity(step.peak["allocated"]).value is not None for step in steps)
    whole = "allocated" if is_counted else "requested"
    sums = ("reserved beyond that", "reserved, the sum") if is_counted else ()
    figures = [
        (step.peak[whole], *(step.by_category[kind] for kind in kinds), *((_beyond(step), step.peak["reserved"]) if sums else ()))
        for step in steps
    ]
    names, columns = (f"{whole}, the sum", *kinds, *sums), _worst([step.name for step in steps], figures)
    rows = list(zip(names, *(row[1:] for row in columns), strict=True))
    title = f"what the peaks of {whole}{' and reserved' if sums else ''} are made of"
    end = len(rows) - len(sums)
    yield Table.of([*rows[1:end], rows[0], *rows[end:]], ["category", *map(_heading, columns)], title)
    phases = _present([step.phases for step in steps])
    if len(phases) > 1:
        columns = _worst([step.name for step in steps], [(step.peak[whole], *map(step.phases.get, phases)) for step in steps])
        rows = list(zip(("the step", *phases), *(row[1:] for row in columns), strict=True))
        yield Table.of([*rows[1:], rows[0]], ["phase", *map(_heading, columns)], f"peak of {whole} by phase")


def _present(parts: Sequence[Counted]) -> list[Any]:
    """Return what is not nothing in all of them, in order."""
    names = dict.fromkeys(name for part in parts for name in part)
    return [name for name in names if any(quantity(part.get(name, 0)).value for part in parts)]


def _beyond(step: CountedStep) -> Cell:
    """Return what is reserved at its peak beyond what is allocated at its own."""
    reserved, allocated = quantity(step.peak["reserved"]), quantity(step.peak["allocated"])
    return derived(_number(reserved) - _number(allocated), reserved, allocated)


def _number(size: Cell) -> int:
    found = quantity(size).value
    return found if isinstance(found, int) else 0


def _worst(names: Sequence[str], figures: Sequence[tuple[Cell, ...]]) -> list[tuple[Any, ...]]:
    """Stretches of alike steps; of many the first, the one with the highest first figure and the last."""
    found = alike(names, figures)
    if len(found) > _MOST_COLUMNS:
        found = [found[0], max(found[1:-1], key=lambda row: _number(row[1])), found[-1]]
    return found


def _heading(row: tuple[Any, ...]) -> str:
    name = str(row[0])
    return f"{name}:bytes" if not name[0].isdigit() else f"step{'s' if ' ' in name else ''} {name}:bytes"


def alike(names: Sequence[str], figures: Sequence[tuple[Cell, ...]]) -> list[tuple[Any, ...]]:
    """Return a row for each stretch of steps with the same figures, which begins with their numbers; what has no number has a row of its
    own.
    """
    rows: list[tuple[Any, ...]] = []
    for (_, found), several in itertools.groupby(zip(names, figures, strict=True), key=lambda pair: (pair[0].isdecimal(), pair[1])):
        stretch = [name for name, _ in several]
        rows.append((stretch[0] if len(stretch) == 1 else f"{stretch[0]} to {stretch[-1]}", *found))
    return rows
