"""The scheduling problem: operators with precedence constraints, the storages that they use, and the memory of an order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.solvers.graphs import turned, waiting_for_one_another


@immutable
class Storage:
    """Bytes that are alive from the first operator that touches them to the last one."""

    size: int
    touches: tuple[int, ...]
    is_input: bool = False
    """True where it is live from the start."""
    is_output: bool = False
    """True where it stays live to the end."""


@immutable(slots=False)
class OrderProblem:
    """Operators 0, 1, ... with what must come before each; as numbered, they are in a valid order."""

    before: list[tuple[int, ...]]
    storages: list[Storage]
    workspace: list[int]
    """Bytes that exist only while an operator runs."""
    base: int = 0
    """Bytes that are there all the time."""

    def __len__(self) -> int:
        return len(self.before)

    @cached_property
    def after(self) -> list[list[int]]:
        """Return what must come after each operator."""
        return turned(self.before)

    @cached_property
    def touched(self) -> list[list[int]]:
        """Storages that each operator touches."""
        found: list[list[int]] = [[] for _ in self.before]
        for number, storage in enumerate(self.storages):
            for op in storage.touches:
                found[op].append(number)
        return found

    @cached_property
    def at_start(self) -> int:
        """Bytes alive before the first operator."""
        return self.base + sum(storage.size for storage in self.storages if storage.is_input)

    @cached_property
    def at_end(self) -> int:
        """Bytes alive after the last operator."""
        return self.base + sum(storage.size for storage in self.storages if storage.is_output)

    @cached_property
    def reverse(self) -> OrderProblem:
        """Return the problem with time running backwards: an order read from its end needs the same memory there."""
        last = len(self) - 1
        storages = [
            Storage(slot.size, tuple(last - op for op in reversed(slot.touches)), slot.is_output, slot.is_input) for slot in self.storages
        ]
        before = [tuple(sorted(last - later for later in self.after[op])) for op in range(last, -1, -1)]
        return OrderProblem(before, storages, self.workspace[::-1], self.base)

    def reversed_order(self, order: Iterable[int]) -> list[int]:
        """Return an order of the reversed problem as one of this, and the other way round."""
        last = len(self) - 1
        return [last - op for op in order][::-1]

    def needs(self, order: Sequence[int]) -> list[int]:
        """Return bytes alive while each operator of an order runs."""
        return self.levels(order)[0]

    def levels(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return bytes alive while each operator of an order runs, and right before it."""
        waiting = [len(storage.touches) for storage in self.storages]
        begun = [storage.is_input for storage in self.storages]
        storages, touched, workspace = self.storages, self.touched, self.workspace
        live = self.at_start
        needs: list[int] = []
        standing: list[int] = []
        for op in order:
            standing.append(live)
            freed = 0
            for number in touched[op]:
                storage = storages[number]
                if not begun[number]:
                    begun[number] = True
                    live += storage.size
                waiting[number] -= 1
                if waiting[number] == 0 and not storage.is_output:
                    freed += storage.size
            needs.append(live + workspace[op])
            live -= freed
        return needs, standing

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes alive at once."""
        return max(self.at_start, self.at_end, max(self.needs(order), default=0))

    @cached_property
    def least(self) -> int:
        """Trivial lower bound: bytes at the start, at the end, and of the largest operator alone."""
        alone = (
            self.base + room + sum(self.storages[number].size for number in self.touched[op]) for op, room in enumerate(self.workspace)
        )
        return max(self.at_start, self.at_end, max(alone, default=0))

    def is_valid(self, order: Sequence[int]) -> bool:
        """Return whether an order holds every operator once, after all that must come before it."""
        place = {op: at for at, op in enumerate(order)}
        return len(place) == len(order) == len(self) and all(place[earlier] < place[op] for op in place for earlier in self.before[op])


def order_problem(before: Sequence[Iterable[int]], storages: Iterable[Storage], workspace: Sequence[int] | None = None) -> OrderProblem:
    """Return a problem without storages of no size or without users. Raises UsageError where no order is possible."""
    needed = [tuple(sorted(set(earlier))) for earlier in before]
    if any(earlier and earlier[-1] >= op for op, earlier in enumerate(needed)):
        cycle = waiting_for_one_another(needed)
        if cycle:
            names = ", ".join(map(str, cycle))
            raise UsageError(f"operators {names} form a cycle of dependences, so that there is no topological order", code="IRS366")
        raise UsageError("operators must be numbered in an order that is possible", code="IRS366")
    kept: list[Storage] = []
    base = 0
    for storage in storages:
        if storage.is_input and storage.is_output:
            base += storage.size
        elif storage.size and storage.touches:
            kept.append(Storage(storage.size, tuple(sorted(set(storage.touches))), storage.is_input, storage.is_output))
    return OrderProblem(needed, kept, list(workspace or [0] * len(before)), base)
