"""An order with the bytes alive along it, so that windows of it can be evaluated and changed in time proportional to the window."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.memory.ordering.problem import OrderProblem, Storage


class Layout:
    """An order, the place of each operator, and bytes alive at each place."""

    def __init__(self, problem: OrderProblem, order: Sequence[int]) -> None:
        self.problem = problem
        self.order = list(order)
        self.needs, self.standing = problem.levels(order)
        self._place = [0] * len(self.order)
        for at, op in enumerate(self.order):
            self._place[op] = at

    @property
    def peak(self) -> int:
        return max(self.problem.at_start, self.problem.at_end, max(self.needs, default=0))

    def window(self, begin: int, end: int) -> OrderProblem:
        """The operators of a stretch, numbered by place, with all others where they are."""
        problem, place = self.problem, self._place
        ops = self.order[begin:end]
        before = [tuple(place[one] - begin for one in problem.before[op] if begin <= place[one] < end) for op in ops]
        storages: list[Storage] = []
        base = self.standing[begin] if begin < end else 0
        for number in dict.fromkeys(number for op in ops for number in problem.touched[op]):
            storage = problem.storages[number]
            places = [place[op] for op in storage.touches]
            came = storage.is_input or min(places) < begin
            stays = storage.is_output or max(places) >= end
            storages.append(Storage(storage.size, tuple(sorted(at - begin for at in places if begin <= at < end)), came, stays))
            base -= storage.size if came else 0
        return OrderProblem(before, storages, [problem.workspace[op] for op in ops], base)

    def put(self, begin: int, part: OrderProblem, order: Sequence[int]) -> None:
        """Give the stretch from `begin`, whose window `part` is, another order."""
        stretch = self.order[begin : begin + len(order)]
        needs, standing = part.levels(order)
        for at, (local, need, alive) in enumerate(zip(order, needs, standing, strict=True), begin):
            self.order[at] = stretch[local]
            self._place[stretch[local]] = at
            self.needs[at], self.standing[at] = need, alive
