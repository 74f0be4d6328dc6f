"""One axis for two sequences: matched elements share a position."""

from __future__ import annotations

from collections.abc import Iterable


def common_axis(pairs: Iterable[tuple[int, int]], length_a: int, length_b: int) -> list[tuple[int, int]]:
    """Positions of both sequences on one axis, from index pairs that increase on both sides.

    What lies between two pairs is spread over as many places as the longer side needs; -1 stands for "not begun".
    """
    places: list[tuple[int, int]] = []
    at_a = at_b = 0
    for next_a, next_b in (*pairs, (length_a, length_b)):
        places += _spread(at_a, next_a, at_b, next_b)
        if next_a < length_a and next_b < length_b:
            places.append((next_a, next_b))
        at_a, at_b = next_a + 1, next_b + 1
    return places


def _spread(from_a: int, to_a: int, from_b: int, to_b: int) -> list[tuple[int, int]]:
    longer = max(to_a - from_a, to_b - from_b)
    return [
        (
            from_a + place * (to_a - from_a) // longer if to_a > from_a else from_a - 1,
            from_b + place * (to_b - from_b) // longer if to_b > from_b else from_b - 1,
        )
        for place in range(longer)
    ]
