"""Topological orders."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def sorted_by(keys: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    """Numbers in an order that keeps each after those before it, and else the one with the least key first."""
    waiting = [len(set(earlier)) for earlier in before]
    after: list[list[int]] = [[] for _ in before]
    for number, earlier in enumerate(before):
        for one in dict.fromkeys(earlier):
            after[one].append(number)
    ready = [(keys[number], number) for number, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)[1]
        order.append(number)
        for other in after[number]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (keys[other], other))
    return order
