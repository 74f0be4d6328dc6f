"""Offsets of buffers in one arena."""

from __future__ import annotations

import sys

import pytest

from irscope.errors import UsageError
from irscope.memory import plan_offsets
from irscope.solvers.place import make_plan, overlap
from tests.tools.bench.placement import INSTANCES, buffers


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


@pytest.mark.parametrize("name", ["C", "K", "input"])
def test_instances_that_others_find_hard_fit(name: str) -> None:
    path = next(INSTANCES.glob(f"{name}.*.csv"))
    capacity = int(path.name.split(".")[1])
    _, height = plan_offsets(*buffers(path), seconds=60)
    assert height <= capacity


@pytest.mark.full
@pytest.mark.parametrize("name", ["A", "B", "D", "E", "F", "G", "H", "J"])
def test_harder_instances_fit(name: str) -> None:
    _, height = plan_offsets(*buffers(INSTANCES / f"{name}.1048576.csv"), seconds=240)
    assert height <= 1_048_576


def test_without_a_solver_the_engine_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(UsageError, match="OR-tools") as refused:
        make_plan([0], [1], [8], engine="cpsat")
    assert refused.value.code == "IRS365" and "pip install" in refused.value.hint


@pytest.mark.full
def test_the_solver_reaches_the_bound_where_quick_orders_do_not() -> None:
    pytest.importorskip("ortools")
    lower, upper, size = buffers(INSTANCES / "H.1048576.csv")
    plan = make_plan(lower, upper, size, seconds=60, engine="cpsat")
    assert plan.height <= 1_048_576 and overlap(lower, upper, size, plan.offsets) is None
