"""Offsets of buffers in one arena."""

from __future__ import annotations

import cProfile
import time
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from benchmarks.placement import INSTANCES, buffers
from irscope.errors import UsageError
from irscope.memory import plan_offsets
from irscope.solvers import gaps, place
from irscope.solvers.canonical import CompiledSearch, Floors, PlainSearch, Problem
from irscope.solvers.place import make_plan, overlap, placement_problem
from irscope.solvers.worktime import WorkTime


def test_what_never_lives_together_shares_its_place() -> None:
    assert plan_offsets([0, 5], [5, 9], [100, 80]) == ([0, 0], 100)


def test_offsets_are_aligned() -> None:
    offsets, height = plan_offsets([0, 0, 0], [4, 4, 4], [100, 30, 7], alignment=64)
    assert all(offset % 64 == 0 for offset in offsets)
    assert height == 128 + 64 + 64


def test_nothing_needs_no_arena() -> None:
    assert plan_offsets([], [], []) == ([], 0)


def test_what_is_empty_or_never_alive_takes_no_room() -> None:
    assert plan_offsets([0, 3, 0], [9, 3, 9], [0, 50, 10]) == ([0, 0, 0], 10)


def test_no_time_still_gives_a_plan() -> None:
    lower, upper, size = buffers(INSTANCES / "A.1048576.csv")
    plan = make_plan(lower, upper, size, seconds=0)
    assert plan.max_live <= plan.height < 2 * plan.max_live


@pytest.mark.parametrize("arguments", [([0], [1], [1, 2]), ([3], [1], [1]), ([0], [1], [-1])])
def test_impossible_buffers_are_refused(arguments: tuple[list[int], list[int], list[int]]) -> None:
    with pytest.raises(UsageError, match="buffer") as refused:
        plan_offsets(*arguments)
    assert refused.value.code == "IRS350"


def test_an_impossible_alignment_is_refused() -> None:
    with pytest.raises(UsageError, match="alignment of 0"):
        plan_offsets([0], [1], [1], alignment=0)


def cut_boxes(count: int, seed: int) -> tuple[list[int], list[int], list[int], int]:
    """Boxes that fill a rectangle of time and bytes without a gap, so that its height is the best there is."""
    boxes = _cut(count, seed)
    return [box[0] for box in boxes], [box[1] for box in boxes], [box[3] - box[2] for box in boxes], 1 << 20


def _cut(count: int, seed: int) -> list[tuple[int, int, int, int]]:
    random = Random(seed)
    boxes = [(0, 4 * count, 0, 1 << 20)]
    while len(boxes) < count:
        begin, end, low, high = boxes.pop(
            max(range(len(boxes)), key=lambda at: (boxes[at][1] - boxes[at][0]) * (boxes[at][3] - boxes[at][2]))
        )
        if random.random() < 0.5 and end - begin > 2:
            middle = random.randint(begin + 1, end - 1)
            boxes += [(begin, middle, low, high), (middle, end, low, high)]
        else:
            middle = random.randint(low + (high - low) // 8, high - (high - low) // 8)
            boxes += [(begin, end, low, middle), (begin, end, middle, high)]
    random.shuffle(boxes)
    return boxes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_was_cut_from_a_rectangle_fits_into_it_again(seed: int) -> None:
    lower, upper, size, height = cut_boxes(60, seed)
    plan = make_plan(lower, upper, size, seconds=20)
    assert overlap(lower, upper, size, plan.offsets) is None
    assert plan.height == height and plan.proven and plan.bound == height


@pytest.mark.parametrize("seed", range(5))
def test_distances_that_must_be_hold_where_boxes_were_cut(seed: int) -> None:
    lower, upper, size, height = cut_boxes(80, seed)
    offsets = np.array([box[2] for box in _cut(80, seed)])
    problem = placement_problem(lower, upper, size, 1)
    least = Floors(problem).ties(height)
    assert (offsets[None, :] - offsets[:, None] >= least).all()
    assert (least > (problem.size - height)[:, None]).sum() > 2 * len(size)
    # With room to spare nothing is said but what the floor and the top say.
    assert (Floors(problem).ties(height + 1) <= np.where(np.eye(80, dtype=bool), 0, (problem.size - height - 1)[:, None])).all()


def always_full(random: Random, steps: int) -> Problem:
    """At every moment the same bytes are alive: one or two end, and what begins has their size. Often more room is needed than that."""
    alive = [(0, size) for size in (1, 2, 3, 4)]
    boxes: list[tuple[int, int, int]] = []
    for step in range(1, steps + 1):
        ended = [alive.pop(random.randrange(len(alive))) for _ in range(random.randint(1, min(2, len(alive))))]
        boxes += [(begin, step, size) for begin, size in ended]
        total = sum(size for _, size in ended)
        first = random.randint(1, total)
        alive += [(step, size) for size in (first, total - first) if size]
    boxes += [(begin, steps + 1, size) for begin, size in alive]
    lower, upper, size = zip(*boxes, strict=True)
    return placement_problem(lower, upper, size, 1)


@pytest.mark.slow
def test_both_searches_agree_on_what_is_possible() -> None:
    pytest.importorskip("numba")
    random = Random(7)
    answers = []
    for _ in range(80):
        problem = always_full(random, 10)
        floors, order = Floors(problem), np.arange(len(problem))
        for capacity in range(problem.max_live, problem.max_live + 2):
            plain = PlainSearch(floors).run(capacity, order, 10**6)
            compiled = CompiledSearch(floors).run(capacity, order, 10**6)
            assert (plain is None) == (compiled is None)
            answers.append(plain is None)
            if compiled is not None:
                assert problem.height(compiled) <= capacity
                assert overlap(problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist(), compiled.tolist()) is None
    assert answers.count(True) >= 3 and answers.count(False) >= 80


def first_or_tightest(problem: Problem, order: list[int], tightest: bool) -> list[int]:
    """Each buffer in the lowest gap it fits into, or in the smallest one: told from what is placed, without any help."""
    lower, upper, size = problem.lower.tolist(), problem.upper.tolist(), problem.size.tolist()
    offsets: dict[int, int] = {}
    for buffer in order:
        spans = sorted((at, at + size[one]) for one, at in offsets.items() if lower[one] < upper[buffer] and upper[one] > lower[buffer])
        starts = [0, *(top for _, top in spans)]
        gaps = [
            ((end - start) if tightest else 0, start)
            for start in starts
            for end in [min((low for low, top in spans if top > start), default=1 << 60)]
            if end - start >= size[buffer] and not any(low < start < top for low, top in spans)
        ]
        offsets[buffer] = min(gaps)[1]
    return [offsets[buffer] for buffer in range(len(size))]


@pytest.mark.parametrize(
    "settings",
    [
        {"_FEW": 1 << 60},
        {"_FEW": 0, "_FEW_SPANS": 1 << 60},
        {"_FEW": 0, "_FEW_SPANS": -1 << 60, "_LOOKED_UP": -1 << 60},
        {"_FEW": 0, "_FEW_SPANS": -1 << 60, "_LOOKED_UP": 1_000},
        {"_FEW": 12, "_FEW_SPANS": 4, "_LOOKED_UP": 1_000},
    ],
    ids=["each one", "unions", "table", "table or each one", "all"],
)
def test_gaps_are_the_same_however_they_are_found(settings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.items():
        monkeypatch.setattr(gaps, name, value)
    random = Random(1)
    for _ in range(40):
        count, last = random.randint(1, 40), random.choice((6, 60, 10**6))
        lower = [random.randrange(last) for _ in range(count)]
        upper = [begin + random.choice((1, 2, random.randint(1, last))) for begin in lower]
        problem = placement_problem(lower, upper, [random.randint(1, 9) for _ in range(count)], 1)
        order = random.sample(range(count), count)
        for tightest in (True, False):
            numbers = place.place_in_order(problem, np.array(order), tightest=tightest)
            assert numbers.tolist() == first_or_tightest(problem, order, tightest)


def test_unions_are_small_where_all_is_packed_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans looked at for a buffer, where half of all are alive together and equally large: each one, or a table, would be linear."""

    def refuse(*_: object) -> None:
        raise AssertionError("a table of all that are placed")

    monkeypatch.setattr(gaps._Table, "add", refuse)
    looked_at: list[int] = []
    find = gaps.Gaps._find

    def counted(self: gaps.Gaps, buffer: int, bottoms: list[int], tops: list[int], *, tightest: bool) -> int:
        looked_at.append(len(tops))
        return find(self, buffer, bottoms, tops, tightest=tightest)

    monkeypatch.setattr(gaps.Gaps, "_find", counted)
    for count in (1_000, 8_000):
        lower, upper = list(range(count)), [count + begin for begin in range(count)]
        problem = placement_problem(lower, upper, [64] * count, 1)
        looked_at.clear()
        numbers = place.place_in_order(problem, np.arange(count), tightest=True)
        assert numbers.tolist() == list(range(0, 64 * count, 64))
        assert max(looked_at) <= 3 * count.bit_length()


def test_a_running_arena_gives_the_tightest_gap_of_all_that_are_open() -> None:
    random = Random(2)
    for _ in range(60):
        count = random.randint(1, 40)
        lower = [random.randrange(30) for _ in range(count)]
        upper = [begin + random.randint(0, 12) for begin in lower]
        size = [random.randint(0, 9) for _ in range(count)]
        matters = [index for index in sorted(range(count), key=lower.__getitem__) if size[index] and upper[index] > lower[index]]
        offsets: dict[int, int] = {}
        for buffer in matters:
            alive = sorted((at, at + size[one]) for one, at in offsets.items() if upper[one] > lower[buffer])
            starts = [0, *(top for _, top in alive)]
            gaps = [(low - start, start) for start, (low, _) in zip(starts, alive, strict=False) if low - start >= size[buffer]]
            offsets[buffer] = min(gaps, default=(0, starts[-1]))[1]
        expected = max((at + size[one] for one, at in offsets.items()), default=0)
        assert place.while_running(lower, upper, size, 1) == expected
        placed = [offsets.get(index, 0) for index in range(count)]
        assert overlap(lower, upper, size, placed) is None
        if expected and len(matters) > 1:
            one = random.choice(matters)
            placed[one] = random.choice([offsets[other] for other in matters])
            clashes = {
                frozenset((first, second))
                for first in matters
                for second in matters
                if first < second
                and max(lower[first], lower[second]) < min(upper[first], upper[second])
                and max(placed[first], placed[second]) < min(placed[first] + size[first], placed[second] + size[second])
            }
            found = overlap(lower, upper, size, placed)
            assert (found is None) == (not clashes) and (found is None or frozenset(found) in clashes)


def test_what_is_alive_is_not_walked_for_each_buffer() -> None:
    """Calls of functions a buffer where all are alive together, which walking all of them would make grow."""
    calls = []
    for count in (500, 4_000):
        lower, upper, size = list(range(count)), [count + begin for begin in range(count)], [1 + begin * 7 % 100 for begin in range(count)]
        offsets = np.cumsum([0, *size[:-1]]).tolist()
        profile = cProfile.Profile()
        profile.enable()
        place.while_running(lower, upper, size, 1)
        assert overlap(lower, upper, size, offsets) is None
        profile.disable()
        calls.append(sum(entry.callcount for entry in profile.getstats()) / count)
    assert calls[1] < 1.5 * calls[0]


def test_short_lives_are_not_looked_for_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("all that are placed, for two that are alive together")

    monkeypatch.setattr(gaps._Unions, "add", refuse)
    monkeypatch.setattr(gaps._Table, "add", refuse)
    count = 5_000
    size = [1 + begin * 7 % 100 for begin in range(count)]
    plan = make_plan(list(range(count)), [begin + 2 for begin in range(count)], size, seconds=0)
    assert plan.height == max(one + other for one, other in pairwise(size))


def test_without_a_compiler_the_search_says_that_it_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "can_compile", lambda: False)
    plan = make_plan(*buffers(INSTANCES / "A.1048576.csv"), seconds=0.5)
    assert plan.solver == "search" and plan.bound == plan.max_live


def test_time_is_that_of_the_own_thread() -> None:
    clock = WorkTime(0.2)
    time.sleep(0.3)
    assert not clock.over() and clock.left > 0.15
    assert clock.part(0.5).left < 0.11


@pytest.mark.parametrize("name", ["C", "K", "input"])
def test_instances_that_others_find_hard_fit(name: str) -> None:
    path = next(INSTANCES.glob(f"{name}.*.csv"))
    capacity = int(path.name.split(".")[1])
    _, height = plan_offsets(*buffers(path), seconds=60)
    assert height <= capacity


@pytest.mark.full
@pytest.mark.parametrize("name", ["A", "B", "D", "E", "F", "G", "H", "I", "J"])
def test_harder_instances_fit(name: str) -> None:
    pytest.importorskip("numba")
    _, height = plan_offsets(*buffers(INSTANCES / f"{name}.1048576.csv"), seconds=60)
    assert height <= 1_048_576
