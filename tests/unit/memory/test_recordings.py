"""The simulator against what PyTorch's own allocator counted, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from irscope.memory.caching import CachingAllocator
from tests.unit.memory.replay import CONFIGURATIONS, Row, play, recorded, rows_of

TRACES = recorded("traces.json.gz")
FURTHER = recorded("further.json.gz")
STREAMS = [{**entry, "after": rows_of(entry["changes"])} for entry in recorded("streams.json.gz")]


def names(entries: list[dict[str, Any]]) -> list[str]:
    """Names of test cases."""
    return [f"{entry['torch'] if isinstance(entry['torch'], str) else entry['torch'][0]}-{entry['config']}" for entry in entries]


def first_difference(entry: dict[str, Any], rows: list[Row]) -> tuple[int, Any, Any] | None:
    """The first row that is not as recorded; a bare "OOM" stands for any counters."""
    for at, (got, wanted) in enumerate(zip(rows, entry["after"], strict=True)):
        if (got[0] if wanted == "OOM" else got) != wanted:
            return at, got, wanted
    return None


@pytest.mark.parametrize("entry", TRACES, ids=names(TRACES))
def test_every_counter_of_every_row_is_equal(entry: dict[str, Any]) -> None:
    allocator = CachingAllocator(entry["torch"], **CONFIGURATIONS[entry["config"]])
    assert first_difference(entry, play(allocator, entry["ops"])) is None


@pytest.mark.parametrize("entry", FURTHER, ids=names(FURTHER))
def test_streams_limits_and_older_releases_are_equal(entry: dict[str, Any]) -> None:
    for torch in entry["torch"]:
        allocator = CachingAllocator(torch, entry["alloc_conf"], entry["total_memory"], pending_frees=entry["pending_frees"])
        assert first_difference(entry, play(allocator, entry["ops"])) is None, torch


@pytest.mark.parametrize("entry", STREAMS, ids=[f"{entry['config']}-{entry['seed']}" for entry in STREAMS])
def test_streams_events_and_private_pools_are_equal(entry: dict[str, Any]) -> None:
    allocator = CachingAllocator(entry["torch"], entry.get("alloc_conf", ""), entry.get("total_memory"), pending_frees="synchronize")
    assert first_difference(entry, play(allocator, entry["ops"])) is None


def test_work_that_is_done_at_once_would_be_noticed() -> None:
    other = (
        first_difference(
            entry, play(CachingAllocator(entry["torch"], entry.get("alloc_conf", ""), entry.get("total_memory")), entry["ops"])
        )
        for entry in STREAMS
    )
    assert all(difference is not None for difference in other)


def test_nothing_is_missing_from_the_recordings() -> None:
    assert len(TRACES) == 72
    assert len(STREAMS) == 32
    assert sum(len(entry["torch"]) for entry in FURTHER) == 183


def test_the_rules_of_another_release_would_be_noticed() -> None:
    entries = [entry for entry in TRACES if entry["torch"] == "2.12.0"]
    other = [first_difference(entry, play(CachingAllocator("2.13", **CONFIGURATIONS[entry["config"]]), entry["ops"])) for entry in entries]
    assert sum(difference is not None for difference in other) >= 5
