"""What holds for every plan: nobody shares a byte, offsets are aligned, and small ones are as low as can be."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from irscope.solvers.place import make_plan

lives = st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 40))
Buffers = list[tuple[int, int, int]]


def split(drawn: Buffers) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and sizes of drawn starts, durations and sizes."""
    return [start for start, _, _ in drawn], [start + long for start, long, _ in drawn], [size for _, _, size in drawn]


@given(st.lists(lives, max_size=40), st.sampled_from([1, 4, 16]), st.sampled_from([0.0, 0.05]))
def test_buffers_alive_together_share_no_byte(drawn: Buffers, alignment: int, seconds: float) -> None:
    lower, upper, size = split(drawn)
    plan = make_plan(lower, upper, size, alignment, seconds)
    assert plan.max_live <= plan.height
    assert all(offset % alignment == 0 and offset >= 0 for offset in plan.offsets)
    for one in range(len(drawn)):
        assert lower[one] == upper[one] or plan.offsets[one] + size[one] <= plan.height
        for other in range(one):
            if max(lower[one], lower[other]) < min(upper[one], upper[other]) and size[one] and size[other]:
                assert plan.offsets[one] + size[one] <= plan.offsets[other] or plan.offsets[other] + size[other] <= plan.offsets[one]


@given(st.lists(lives, max_size=5))
def test_small_plans_are_as_low_as_any(drawn: Buffers) -> None:
    lower, upper, size = split(drawn)
    assert make_plan(lower, upper, size, seconds=5).height == lowest_by_trying_all(lower, upper, size)


def lowest_by_trying_all(lower: list[int], upper: list[int], size: list[int]) -> int:
    """The least height over all orders of putting each buffer as low as it goes: one of them is best."""
    count = len(size)
    best = sum(size)
    for order in permutations(range(count)):
        offsets: dict[int, int] = {}
        for buffer in order:
            others = [other for other in offsets if max(lower[buffer], lower[other]) < min(upper[buffer], upper[other])]
            spots = [0, *(offsets[other] + size[other] for other in others)]
            offsets[buffer] = min(
                spot
                for spot in spots
                if all(spot + size[buffer] <= offsets[other] or offsets[other] + size[other] <= spot for other in others)
            )
        best = min(best, max((offsets[buffer] + size[buffer] for buffer in offsets if upper[buffer] > lower[buffer]), default=0))
    return best
