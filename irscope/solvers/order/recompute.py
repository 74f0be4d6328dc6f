"""Rematerialization: results are recomputed when they are needed again, instead of being kept alive over the peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from irscope.immutable import immutable
from irscope.solvers.order.problem import OrderProblem, Storage

T = TypeVar("T")
_MOST_AT_ONCE = 8
"""Operators that run again for one result: it, and what it is made of."""


@immutable(slots=False)
class Recipe:
    """Recipe of the results of a problem's operators."""

    reads: Sequence[tuple[int, ...]]
    """Operators whose results each one reads."""
    makes: Sequence[int]
    """The storage that each one's result lies in, -1 for none."""
    cost: Sequence[int | None]
    """Cost of running it once more; None where that would not give the same result."""


@immutable(slots=False)
class Repeated:
    """A problem, in the order of its numbers, in which some operators of another one run more than once."""

    problem: OrderProblem
    recipe: Recipe
    source: tuple[int, ...]
    """The operator of the first problem that each one is."""
    again: tuple[bool, ...]
    """True where the operator had run before."""
    spent: int = 0
    """Total cost of all operators that run again."""

    @cached_property
    def needs(self) -> list[int]:
        return self.problem.needs(range(len(self.problem)))

    @cached_property
    def peak(self) -> int:
        return self.problem.peak(range(len(self.problem)))

    @cached_property
    def height(self) -> tuple[int, int]:
        """Return the peak, and at how many steps it is reached."""
        top = max(self.needs, default=0)
        return self.peak, self.needs.count(top)

    def reordered(self, order: Sequence[int]) -> Repeated:
        """Return the same with its operators in another order."""
        place = [0] * len(order)
        for at, op in enumerate(order):
            place[op] = at
        problem, recipe = self.problem, self.recipe
        storages = [
            Storage(slot.size, tuple(sorted(place[op] for op in slot.touches)), slot.is_input, slot.is_output) for slot in problem.storages
        ]
        return Repeated(
            OrderProblem(
                [tuple(sorted(place[earlier] for earlier in problem.before[op])) for op in order],
                storages,
                [problem.workspace[op] for op in order],
                problem.base,
            ),
            Recipe(
                [tuple(place[read] for read in recipe.reads[op]) for op in order],
                [recipe.makes[op] for op in order],
                [recipe.cost[op] for op in order],
            ),
            tuple(self.source[op] for op in order),
            tuple(self.again[op] for op in order),
            self.spent,
        )


def start(problem: OrderProblem, recipe: Recipe, order: Sequence[int]) -> Repeated:
    """Return a problem in a fixed order, without recomputation yet."""
    count = len(problem)
    return Repeated(problem, recipe, tuple(range(count)), (False,) * count).reordered(order)


def lower(first: Repeated, most: int, stop: Callable[[], bool]) -> Repeated:
    """Make results again while that lowers the peak and all of it costs no more than `most`."""
    best = first
    while not stop():
        found = min(_single_repeats(best, most, stop), key=lambda repeated: (repeated.height, repeated.spent), default=best)
        if found.height >= best.height:
            break
        best = found
    return best


def _single_repeats(given: Repeated, most: int, stop: Callable[[], bool]) -> Iterator[Repeated]:
    """Yield what making one more result again leads to, for each that is only waited for at the peak."""
    problem, needs = given.problem, given.needs
    if not needs:
        return
    peak_at = max(range(len(needs)), key=needs.__getitem__)
    for number, storage in enumerate(problem.storages):
        if stop():
            return
        if storage.is_input or storage.is_output or not storage.touches[0] < peak_at < storage.touches[-1] or peak_at in storage.touches:
            continue
        late = next(op for op in storage.touches if op > peak_at)
        copies = _recomputed_before(given, number, late)
        if copies and given.spent + sum(given.recipe.cost[op] or 0 for op in copies) <= most:
            yield _with(given, number, late, copies)


def _recomputed_before(given: Repeated, number: int, late: int) -> list[int]:
    """Operators to run again right before `late`, so that it and what comes later find the content; empty where that is impossible."""
    reads, makes = given.recipe.reads, given.recipe.makes
    storages = given.problem.storages
    wanted = [read for op in storages[number].touches if op >= late for read in reads[op] if makes[read] == number and read < late]
    found: set[int] = set()
    while wanted:
        op = wanted.pop()
        if op in found:
            continue
        if given.recipe.cost[op] is None or len(found) == _MOST_AT_ONCE:
            return []
        found.add(op)
        for read in reads[op]:
            made = makes[read]
            still_there = made >= 0 and made != number and (storages[made].is_output or storages[made].touches[-1] >= late)
            if made >= 0 and not still_there:
                wanted.append(read)
    return sorted(found)


def _with(given: Repeated, number: int, late: int, copies: list[int]) -> Repeated:
    """Return the problem with copies of operators right before `late`."""
    problem, recipe, count = given.problem, given.recipe, len(copies)
    copy = {op: late + at for at, op in enumerate(copies)}

    def moved(op: int) -> int:
        return op if op < late else op + count

    def is_redirected(op: int, one: int) -> bool:
        """Return whether what `op` reads from `one` is the copy's from now on."""
        return op >= late and one in copy and recipe.makes[one] == number

    fresh: dict[int, int] = {}
    for op in copies:
        if recipe.makes[op] >= 0:
            fresh.setdefault(recipe.makes[op], len(problem.storages) + len(fresh))
    touches = [[moved(op) for op in storage.touches if other != number or op < late] for other, storage in enumerate(problem.storages)]
    touches += [[] for _ in fresh]
    touches[fresh[number]] += [moved(op) for op in problem.storages[number].touches if op >= late]
    copied_before: list[tuple[int, ...]] = []
    copied_reads: list[tuple[int, ...]] = []
    for op in copies:
        from_where = tuple(copy.get(read, read) for read in recipe.reads[op])
        copied_reads.append(from_where)
        copied_before.append(tuple(sorted(set(from_where))))
        used = {recipe.makes[read] if read not in copy else fresh.get(recipe.makes[read], -1) for read in recipe.reads[op]}
        for storage in sorted({*used, fresh.get(recipe.makes[op], -1)} - {-1}):
            touches[storage].append(copy[op])
    before = [
        tuple(sorted({moved(one) for one in earlier} | {copy[one] for one in recipe.reads[op] if is_redirected(op, one)}))
        for op, earlier in enumerate(problem.before)
    ]
    reads = [tuple(copy[read] if is_redirected(op, read) else moved(read) for read in recipe.reads[op]) for op in range(len(problem))]
    makes = [fresh[number] if op >= late and made == number else made for op, made in enumerate(recipe.makes)]
    old = [*problem.storages, *(Storage(problem.storages[of].size, ()) for of in fresh)]
    storages = [Storage(one.size, tuple(sorted(set(users))), one.is_input, one.is_output) for one, users in zip(old, touches, strict=True)]
    return Repeated(
        OrderProblem(
            _spliced(before, late, copied_before),
            storages,
            _spliced(problem.workspace, late, [problem.workspace[op] for op in copies]),
            problem.base,
        ),
        Recipe(
            _spliced(reads, late, copied_reads),
            _spliced(makes, late, [fresh.get(recipe.makes[op], -1) for op in copies]),
            _spliced(recipe.cost, late, [recipe.cost[op] for op in copies]),
        ),
        tuple(_spliced(given.source, late, [given.source[op] for op in copies])),
        tuple(_spliced(given.again, late, [True] * count)),
        given.spent + sum(recipe.cost[op] or 0 for op in copies),
    )


def _spliced(kept: Sequence[T], at: int, put_in: Sequence[T]) -> list[T]:
    return [*kept[:at], *put_in, *kept[at:]]
