"""Beam search over sets of operators that have run: of all sets of one size, only the most promising are expanded."""

from __future__ import annotations

from typing import NamedTuple

from irscope.memory.ordering.exact import Attempt
from irscope.memory.ordering.problem import OrderProblem


class _Way(NamedTuple):
    """How a set of operators was reached; compared by what that needed."""

    peak: int
    live: int
    ready: int
    op: int
    earlier: _Way | None


def beam(problem: OrderProblem, width: int) -> list[int]:
    """A good order by beam search; a wider beam is better and slower."""
    search = Attempt(problem, 0)
    ready = sum(1 << op for op, earlier in enumerate(problem.before) if not earlier)
    front: dict[int, _Way] = {0: _Way(problem.at_start, problem.at_start, ready, -1, None)}
    for _ in range(len(problem)):
        following: dict[int, _Way] = {}
        for done, way in front.items():
            for op, needed, live, opened in search.moves(done, way.live, way.ready):
                known = following.get(done | 1 << op)
                peak = max(way.peak, needed)
                if known is None or (peak, live) < (known.peak, known.live):
                    following[done | 1 << op] = _Way(peak, live, opened, op, way)
        best = sorted(following.items(), key=lambda item: (item[1].peak, item[1].live))[:width]
        front = dict(best)
    (last,) = list(front.values())[:1]
    return _order(last)


def _order(last: _Way) -> list[int]:
    order: list[int] = []
    way: _Way | None = last
    while way is not None and way.earlier is not None:
        order.append(way.op)
        way = way.earlier
    return order[::-1]
