"""Local search for orders of large graphs: moves found by minimum cuts, then exact search of small windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from irscope.memory.ordering.beam import beam
from irscope.memory.ordering.cut import Cut, least_while_running
from irscope.memory.ordering.exact import Attempt
from irscope.memory.ordering.layout import Layout
from irscope.memory.ordering.problem import OrderProblem

Stop = Callable[[], bool]

_SHORTEST, _LONGEST = 24, 96
_PATIENCE = 60


def around_cut(order: Sequence[int], cut: Cut) -> list[int]:
    """An order in which exactly the cut's operators run before its operator; otherwise as it was."""
    rest = [op for op in order if op not in cut.done and op != cut.op]
    return [*(op for op in order if op in cut.done), cut.op, *rest]


def split_at_peaks(problem: OrderProblem, order: Sequence[int], stop: Stop, cuts: list[Cut]) -> list[int]:
    """Move everything to its side of the cut at the peak, as long as that lowers the peak, and go on with both sides.

    The cuts found on the whole problem are added to `cuts`: each is a bound for any order.
    """
    best = list(order)
    peak = problem.peak(best)
    tried: set[int] = set()
    while not stop():
        needs = problem.needs(best)
        at = max(range(len(needs)), key=needs.__getitem__)
        op = best[at]
        if needs[at] < peak or op in tried:
            break
        tried.add(op)
        cut = least_while_running(problem, op)
        cuts.append(cut)
        if cut.bytes >= peak:
            break
        layout = Layout(problem, around_cut(best, cut))
        place = len(cut.done)
        _improve(layout, 0, place, peak, stop)
        _improve(layout, place + 1, len(best), peak, stop)
        if layout.peak >= peak:
            break
        best, peak = layout.order, layout.peak
    return best


def _improve(layout: Layout, begin: int, end: int, goal: int, stop: Stop) -> None:
    """Lower what lies at or above the goal within a stretch, by cuts within it."""
    waiting = [(begin, end)]
    while waiting and not stop():
        begin, end = waiting.pop()
        if end - begin < 2:
            continue
        at = max(range(begin, end), key=layout.needs.__getitem__)
        if layout.needs[at] < goal:
            continue
        part = layout.window(begin, end)
        cut = least_while_running(part, at - begin)
        if cut.bytes >= layout.needs[at]:
            continue
        layout.put(begin, part, around_cut(range(end - begin), cut))
        place = begin + len(cut.done)
        waiting += [(begin, place), (place + 1, end)]


def search_windows(problem: OrderProblem, order: Sequence[int], stop: Stop, seed: int, goal: int) -> list[int]:
    """Solve short stretches around the peak again and again, until the goal is reached or told to stop."""
    chance = random.Random(seed)
    layout = Layout(problem, order)
    length, failures = _SHORTEST, 0
    while layout.peak > goal and not stop() and failures < _PATIENCE:
        top = max(layout.needs)
        at = chance.choice([at for at, need in enumerate(layout.needs) if need == top])
        begin = max(0, at - chance.randrange(length))
        end = min(len(layout.order), begin + length)
        part = layout.window(begin, end)
        found = _best_within(part)
        if sorted(part.needs(found), reverse=True) < sorted(layout.needs[begin:end], reverse=True):
            layout.put(begin, part, found)
            failures = 0
        else:
            failures += 1
            length = min(_LONGEST, length + 2)
    return layout.order


def _best_within(part: OrderProblem) -> list[int]:
    backwards = part.reversed_order(beam(part.reverse, 24))
    forwards = beam(part, 24)
    best = min((list(range(len(part))), forwards, backwards), key=part.peak)
    for direction in (part, part.reverse):
        attempt = Attempt(direction, part.peak(best) - 1)
        attempt.run(400)
        if attempt.order is not None:
            return attempt.order if direction is part else part.reversed_order(attempt.order)
    return best
