"""List scheduling heuristics, each in one pass: starting points for the search, and baselines."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from irscope.memory.ordering.problem import OrderProblem

_SCANNED = 256
"""Operators looked at when the one that needs least is chosen; the ones that have been ready for longest come first."""


def least_memory(problem: OrderProblem) -> list[int]:
    """List scheduling: among ready operators, below the peak so far the one that frees most, else the one that takes least (LPMF)."""
    waiting = [len(earlier) for earlier in problem.before]
    touches = [len(storage.touches) for storage in problem.storages]
    begun = [storage.is_input for storage in problem.storages]
    live = highest = problem.at_start
    ready = [op for op, count in enumerate(waiting) if count == 0]
    order: list[int] = []

    def change(op: int) -> tuple[int, int]:
        taken, freed = problem.workspace[op], problem.workspace[op]
        for number in problem.touched[op]:
            storage = problem.storages[number]
            taken += 0 if begun[number] else storage.size
            freed += storage.size if touches[number] == 1 and not storage.is_output else 0
        return taken, taken - freed

    while ready:
        room = highest - live
        best, at, net = (1, 0, 0), 0, 0
        for place, op in enumerate(ready[:_SCANNED]):
            taken, after = change(op)
            key = (0, after, op) if taken <= room else (1, taken, op)
            if place == 0 or key < best:
                best, at, net = key, place, after
                highest_here = live + taken
        op = ready.pop(at)
        highest = max(highest, highest_here)
        for number in problem.touched[op]:
            begun[number] = True
            touches[number] -= 1
        live += net
        order.append(op)
        for later in problem.after[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.append(later)
    return order


def breadth_first(problem: OrderProblem) -> list[int]:
    """Breadth first: operators run in the order in which they become ready."""
    waiting = [len(earlier) for earlier in problem.before]
    ready = deque(op for op, count in enumerate(waiting) if count == 0)
    order: list[int] = []
    while ready:
        op = ready.popleft()
        order.append(op)
        for later in problem.after[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.append(later)
    return order


def depth_first(problem: OrderProblem) -> list[int]:
    """Each operator right before the first that needs it; what touches most bytes is prepared first."""
    weight = [sum(problem.storages[number].size for number in touched) for touched in problem.touched]
    return _postorder(problem, lambda op: (-weight[op], op))


def by_need(problem: OrderProblem) -> list[int]:
    """The same, but what needs most memory while it is prepared comes first (Sethi and Ullman's rule for trees)."""
    made = [0] * len(problem)
    for storage in problem.storages:
        if not storage.is_input:
            made[storage.touches[0]] += storage.size
    need = [0] * len(problem)
    for op, earlier in enumerate(problem.before):
        held = 0
        for one in sorted(earlier, key=lambda one: made[one] - need[one]):
            need[op] = max(need[op], held + need[one])
            held += made[one]
        need[op] = max(need[op], held + made[op] + problem.workspace[op])
    return _postorder(problem, lambda op: (made[op] - need[op], op))


def newest_first(problem: OrderProblem) -> list[int]:
    """Depth first: the operator that became ready last runs first."""
    waiting = [len(earlier) for earlier in problem.before]
    clock = 0
    ready = [(0, op) for op, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        clock -= 1
        for later in problem.after[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (clock, later))
    return order


def _postorder(problem: OrderProblem, key: Callable[[int], tuple[int, int]]) -> list[int]:
    done = [False] * len(problem)
    order: list[int] = []
    roots = sorted((op for op, later in enumerate(problem.after) if not later), key=key)
    for root in roots:
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(sorted(problem.before[root], key=key)))]
        done[root] = True
        while stack:
            op, earlier = stack[-1]
            for one in earlier:
                if not done[one]:
                    done[one] = True
                    stack.append((one, iter(sorted(problem.before[one], key=key))))
                    break
            else:
                stack.pop()
                order.append(op)
    return order


SIMPLE_ORDERS: dict[str, Callable[[OrderProblem], list[int]]] = {
    "least memory": least_memory,
    "breadth first": breadth_first,
    "depth first": depth_first,
    "by need": by_need,
    "newest first": newest_first,
}
INDUCTOR_ORDERS = ("as written", "least memory", "breadth first", "depth first")
"""Those among which torch.compile's Inductor chooses."""


def simple_orders(problem: OrderProblem) -> Iterator[tuple[str, list[int]]]:
    """Every simple order by name, forwards and on the reversed graph."""
    yield "as written", list(range(len(problem)))
    for name, make in SIMPLE_ORDERS.items():
        yield name, make(problem)
        yield f"{name}, backwards", problem.reversed_order(make(problem.reverse))
