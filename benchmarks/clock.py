"""CPU seconds, the best of a few runs, and what a plain Python loop takes on this machine right now."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time
from typing import TypeVar

T = TypeVar("T")


def best_of(runs: int, work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of the fastest of several runs, and what the last one returned."""
    fastest = float("inf")
    for _ in range(runs):
        gc.collect()
        started = process_time()
        result = work()
        fastest = min(fastest, process_time() - started)
    return fastest, result


def calibrate() -> float:
    """CPU seconds of a fixed loop of dictionary and attribute work."""

    class Cell:
        __slots__ = ("next",)

    def loop() -> int:
        cells: dict[int, Cell] = {}
        for index in range(300_000):
            cell = Cell()
            cell.next = index + 1
            cells[index] = cell
        return sum(cell.next for cell in cells.values())

    return best_of(3, loop)[0]
