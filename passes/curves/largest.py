"""The largest size at which something fits, by bisection, and by sampling where more may fit above what does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FEW = 64
_DOUBLINGS = 62
_SCANNED = 1 << 20

Heights = Callable[[Sequence[int]], Sequence[int]]
"""Bytes needed at each of some sizes."""


@dataclass(frozen=True)
class Largest:
    """Result of the search for the largest size that fits."""

    size: int | None
    """The largest size that fits; None where not even the smallest does."""
    limit: str
    """"memory", or "range" where every size that the model allows fits."""
    exhaustive: bool = True
    """Whether every larger size is known not to fit."""
    failing: tuple[int, ...] = ()
    """Smaller sizes that were seen not to fit."""
    looks: int = 0
    """How many sizes were measured."""


def largest_by_formula(heights: Heights, memory: int, low: int, high: int | None, rising: bool) -> Largest:
    """The largest size whose bytes fit. Where they may fall as sizes grow, all sizes are evaluated, up to a limit."""
    top = _first_too_large(heights, memory, low, high)
    if top is None:
        return Largest(high, "range")
    if rising:
        return _refined(heights, memory, low, top)
    last = top * 2 if high is None else min(top * 2, high)
    scanned = range(max(low, last - _SCANNED), last + 1)
    fitting = [size for size, bytes_ in zip(scanned, heights(scanned), strict=True) if bytes_ <= memory]
    size = fitting[-1] if fitting else None
    return Largest(size, "range" if size == high and high is not None else "memory", exhaustive=last == high)


def _first_too_large(heights: Heights, memory: int, low: int, high: int | None) -> int | None:
    """Exponential search for a size that does not fit; None where all up to the last do."""
    sizes = [low, *(low + (1 << power) for power in range(_DOUBLINGS))]
    if high is not None:
        sizes = [*(size for size in sizes if size < high), high]
    return next((size for size, bytes_ in zip(sizes, heights(sizes), strict=True) if bytes_ > memory), None)


def _refined(heights: Heights, memory: int, low: int, top: int) -> Largest:
    fits, fails = low - 1, top
    while fails - fits > 1:
        step = max(1, (fails - fits) // _FEW)
        sizes = list(range(fits + step, fails, step))
        for size, bytes_ in zip(sizes, heights(sizes), strict=True):
            if bytes_ > memory:
                fails = size
                break
            fits = size
    return Largest(fits if fits >= low else None, "memory")


def largest_by_measuring(measure: Callable[[int], int], memory: int, bound: int, low: int, high: int | None, looks: int) -> Largest:
    """The largest size whose measured bytes fit, with no more than so many looks.

    What an allocator reserves may fall where sizes grow: a size that fits may lie above many that do not. So those from the first that
    fails up to `bound`, above which nothing fits, are looked at too: all of them, or as many as there are looks, evenly spread.
    """
    tried: dict[int, bool] = {}

    def fits(size: int) -> bool:
        if size not in tried:
            tried[size] = measure(size) <= memory
        return tried[size]

    best = _boundary(measure, fits, memory, bound, low, high)
    left = max(0, looks - len(tried))
    above = range(best + 2, bound + 1)
    exhaustive = best == high or len(above) <= left
    for size in above[::-1] if exhaustive else above[:: len(above) // -max(1, left)]:
        if fits(size):
            best = size if exhaustive else _bisected(fits, size, next(one for one in sorted((*tried, bound + 1)) if one > size))
            break
    failing = tuple(sorted(size for size, fitted in tried.items() if size < best and not fitted))
    return Largest(best if best >= low else None, "range" if best == high else "memory", exhaustive, failing, len(tried))


def _boundary(measure: Callable[[int], int], fits: Callable[[int], bool], memory: int, guess: int, low: int, high: int | None) -> int:
    """Bisection for a size that fits and whose successor does not; one less than the smallest where that does not fit."""
    if fits(guess):
        best, step = guess, 1
        while (high is None or best < high) and fits(following := best + step if high is None else min(best + step, high)):
            best, step = following, step * 2
        fails = best + step if high is None else min(best + step, high)
        return best if best == high else _bisected(fits, best, fails)
    if guess <= low or not fits(low):
        return low - 1
    fits_at, fails_at = low, guess
    smallest = measure(low)
    # Bytes are nearly a straight line, so two looks usually bracket the place within a few sizes.
    slope = max(1, measure(guess) - smallest)
    around = low + (memory - smallest) * (guess - low) // slope
    for size in (around, around - 1, around + 2):
        if fits_at < size < fails_at:
            if fits(size):
                fits_at = size
            else:
                fails_at = size
    return _bisected(fits, fits_at, fails_at)


def _bisected(fits: Callable[[int], bool], good: int, bad: int) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good
