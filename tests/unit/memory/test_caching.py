"""PyTorch's allocator: its options, each rule on the smallest example that shows it, and what PyTorch's own counted, row by row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from irscope.devices.releases import release_named
from irscope.errors import ExitCode, IrscopeError, UsageError
from irscope.memory import CachingAllocator, OutOfMemory
from irscope.memory.caching import Block, parse_alloc_conf
from tests.tables import every
from tests.unit.memory.replay import CONFIGURATIONS, Row, play, recorded, rows_of

# Options and versions: what is read, and what is said about mistakes.

MIB = 1 << 20


def test_all_options_are_read_and_white_space_means_nothing() -> None:
    text = " max_split_size_mb : 128, garbage_collection_threshold:.8,expandable_segments:True,pinned_free_catch_all:False, backend:native,"
    conf = parse_alloc_conf(text, release_named("2.13"))
    assert conf.max_split_size == 128 * MIB
    assert conf.garbage_collection_threshold == 0.8
    assert conf.expandable_segments


def test_a_list_of_roundings_has_one_number_for_each_power_of_two() -> None:
    text = "roundup_power2_divisions:[4:1,64:2,256:4,>:8]"
    assert parse_alloc_conf(text, release_named("2.13")).roundup_divisions == (1, 1, 1, 0, 0, 0, 2, 0, 4, 8, 8, 8, 8, 8, 8, 8)
    assert parse_alloc_conf(text, release_named("2.8")).roundup_divisions == (1, 1, 1, 0, 0, 0, 2, 0, 8, 8, 8, 8, 8, 8, 8, 8)


def test_the_large_segment_is_the_least_limit_wherever_it_stands() -> None:
    version = release_named("2.13")
    conf = parse_alloc_conf("max_split_size_mb:40,large_segment_size_mb:40", version)
    assert (conf.large_segment_size, conf.max_non_split_rounding) == (40 * MIB, 40 * MIB)
    with pytest.raises(UsageError, match=r"max_split_size_mb cannot be '30'.*from 40 on"):
        parse_alloc_conf("max_split_size_mb:30,large_segment_size_mb:40", version)


def test_address_space_is_a_fraction_or_a_size() -> None:
    version = release_named("2.15")
    assert parse_alloc_conf("expandable_segments_reserve:0.5", version).expandable_reserve == 0.5
    assert parse_alloc_conf("expandable_segments_reserve:40G", version).expandable_reserve == 40 << 30
    assert parse_alloc_conf("expandable_segments_reserve_by_class:[a:0.5,b:2G]", version).expandable_reserve is None


@every(
    ("text", "message"),
    [
        (
            "max_split:20",
            r"torch 2\.13 has no option 'max_split' \(its options are backend, expandable_segments, .*throw_on_cudamalloc_oom\)",
        ),
        ("expandable_segments_reserve:0.5", r"has no option 'expandable_segments_reserve', torch 2\.15 added it"),
        ("expandable_segments", "not complete"),
        (":True", "not complete"),
        ("expandable_segments:true", "it takes True or False"),
        ("pinned_free_catch_all:1", "it takes True or False"),
        ("pinned_num_register_threads:many", "it takes a whole number"),
        ("max_split_size_mb:19", "from 20 on"),
        ("max_split_size_mb:1.5", "from 20 on"),
        ("large_segment_size_mb:10", "from 11 on"),
        ("garbage_collection_threshold:1", "between 0 and 1"),
        ("garbage_collection_threshold:.", "between 0 and 1"),
        ("per_process_memory_fraction:nan", "from 0 to 1"),
        ("per_process_memory_fraction:-0.5", "from 0 to 1"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:0", "power of two"),
        ("roundup_power2_divisions:[256:3]", "power of two"),
        ("roundup_power2_divisions:[256]", "power of two"),
        ("roundup_power2_divisions:[256:2", "power of two"),
        ("backend:cudaMallocAsync", "only PyTorch's own allocator is simulated"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        CachingAllocator(alloc_conf=text)
    assert caught.value.code == "IRS640"


def test_old_releases_wanted_more_than_a_segment() -> None:
    CachingAllocator("2.10", "max_split_size_mb:20")
    with pytest.raises(UsageError, match="from 21 on"):
        CachingAllocator("2.9", "max_split_size_mb:20")


@pytest.mark.parametrize("text", ["2.13", "2.13.1", "2.13.0+cu130", "2.13.0a0+git123"])
def test_versions_are_written_as_torch_writes_them(text: str) -> None:
    assert release_named(text).name == "2.13"


@pytest.mark.parametrize("text", ["2.7", "2.99", "1.13", "", "newest", "2.130"])
def test_an_unknown_version_is_an_error_with_the_list(text: str) -> None:
    with pytest.raises(UsageError, match=r"versions: 2\.8, 2\.9, .*2\.15") as caught:
        CachingAllocator(text)
    assert caught.value.code == "IRS641"


# Each rule of the allocator on the smallest example that shows it.


def test_counters_have_the_names_and_the_order_of_the_contract() -> None:
    assert list(CachingAllocator().counters()) == [
        "allocated",
        "allocated_peak",
        "reserved",
        "reserved_peak",
        "active",
        "active_peak",
        "requested",
        "requested_peak",
        "inactive_split",
        "segments",
        "retries",
        "ooms",
    ]


def test_counters_are_a_dictionary_with_attributes() -> None:
    counters = CachingAllocator().counters()
    assert counters.ooms == counters["ooms"] == 0
    with pytest.raises(AttributeError, match="oms"):
        _ = counters.oms


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (20 * MIB + 1, 20 * MIB + 512, 22 * MIB),
    ],
)
def test_blocks_and_segments_are_rounded(size: int, block: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(size)
    counters = allocator.counters()
    assert (counters.requested, counters.allocated, counters.reserved, counters.segments) == (size, block, segment, 1)


def test_a_large_block_is_not_split_for_a_megabyte() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(11 * MIB)
    assert block.size == 12 * MIB
    assert allocator.counters().inactive_split == 0


def test_nothing_costs_nothing() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(0)
    allocator.free(block)
    assert set(allocator.counters().values()) == {0}


def test_freed_memory_stays_reserved_until_the_cache_is_emptied() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB))
    assert allocator.counters().reserved == 30 * MIB
    allocator.empty_cache()
    assert allocator.counters().reserved == 0
    assert allocator.counters().reserved_peak == 30 * MIB


def test_a_segment_in_use_is_not_given_back() -> None:
    allocator = CachingAllocator()
    kept = allocator.malloc(3 * MIB)
    allocator.free(allocator.malloc(5 * MIB))
    allocator.empty_cache()
    assert allocator.counters().reserved == 20 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.counters().reserved == 0


def test_an_expandable_segment_gives_back_pages_below_a_block_in_use() -> None:
    allocator = CachingAllocator(alloc_conf="expandable_segments:True")
    first = allocator.malloc(60 * MIB)
    allocator.malloc(5 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.counters().reserved == 20 * MIB
    assert allocator.counters().segments == 0


def test_streams_do_not_share_memory() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB, stream=1))
    allocator.malloc(30 * MIB, stream=2)
    assert allocator.counters().reserved == 60 * MIB


def test_a_block_that_another_stream_uses_comes_back_with_the_next_malloc() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(1000)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert (allocator.counters().allocated, allocator.counters().active, allocator.counters().requested) == (0, 1024, 1000)
    assert allocator.segments()[0].blocks[0].state == "active_pending_free"
    assert allocator.malloc(1000).address == block.address


def test_a_block_that_another_stream_uses_can_stay_until_the_device_is_synchronized() -> None:
    allocator = CachingAllocator(pending_frees="synchronize")
    block = allocator.malloc(1000)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert allocator.malloc(1000).address != block.address
    assert allocator.counters().active_peak == 2048
    allocator.synchronize()
    assert allocator.malloc(1000).address == block.address


def lazy_pair() -> tuple[CachingAllocator, int]:
    """An allocator with a freed block that stream 1 has used, and its address."""
    allocator = CachingAllocator(pending_frees="synchronize")
    block = allocator.malloc(1000)
    allocator.record_stream(block, 1)
    allocator.free(block)
    return allocator, block.address


def test_waiting_for_another_stream_does_not_end_the_use() -> None:
    allocator, address = lazy_pair()
    allocator.synchronize(0)
    assert allocator.malloc(1000).address != address
    allocator.synchronize(1)
    assert allocator.malloc(1000).address == address


def test_who_waits_for_a_stream_waits_for_what_that_stream_waits_for() -> None:
    allocator, address = lazy_pair()
    allocator.wait(2, 1)
    allocator.wait(0, 2)
    allocator.synchronize(0)
    assert allocator.malloc(1000).address == address


def test_an_event_is_done_with_the_work_before_it_and_not_with_what_came_later() -> None:
    allocator = CachingAllocator(pending_frees="synchronize")
    event = allocator.record_event(1)
    block = allocator.malloc(1000)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert not allocator.finished(event)
    allocator.synchronize(event)
    assert allocator.finished(event)
    assert allocator.malloc(1000).address != block.address
    allocator.synchronize(allocator.record_event(1))
    assert allocator.malloc(1000).address == block.address


def test_all_streams_that_used_a_block_have_to_be_done() -> None:
    allocator = CachingAllocator(pending_frees="synchronize")
    block = allocator.malloc(1000)
    for stream in (1, 2):
        allocator.record_stream(block, stream)
    allocator.free(block)
    allocator.synchronize(1)
    assert allocator.malloc(1000).address != block.address
    allocator.synchronize(2)
    assert allocator.malloc(1000).address == block.address


def test_a_private_pool_shares_nothing_and_gives_back_when_it_is_released() -> None:
    allocator = CachingAllocator()
    pool = allocator.pool()
    with pool:
        inside = allocator.malloc(1000)
    assert allocator.malloc(1000).address - inside.address >= 2 * MIB
    assert [segment.pool for segment in allocator.segments()] == [pool.number, 0]
    allocator.free(inside)
    allocator.empty_cache()
    assert allocator.counters().reserved == 4 * MIB
    pool.release()
    assert allocator.counters().reserved == 2 * MIB
    with pytest.raises(UsageError, match="was released"):
        pool.begin()


def test_what_is_alive_in_a_released_pool_goes_back_with_a_later_empty_cache() -> None:
    allocator = CachingAllocator()
    pool = allocator.pool()
    with pool:
        inside = allocator.malloc(1000)
    pool.release()
    allocator.free(inside)
    assert allocator.counters().reserved == 2 * MIB
    allocator.empty_cache()
    assert allocator.counters().reserved == 0


def test_the_inner_of_two_pools_is_used_and_only_for_its_streams() -> None:
    allocator = CachingAllocator()
    outer, inner = allocator.pool(), allocator.pool()
    outer.begin()
    inner.begin(streams={1})
    allocator.malloc(1000, stream=1)
    allocator.malloc(1000, stream=0)
    assert [segment.pool for segment in allocator.segments()] == [inner.number, outer.number]
    with pytest.raises(UsageError, match="already allocated to"):
        inner.begin()
    inner.end()
    with pytest.raises(UsageError, match="not allocated to"):
        inner.end()


def test_a_pool_that_does_not_split_hands_out_whole_segments() -> None:
    allocator = CachingAllocator()
    with allocator.pool(no_split=True):
        assert allocator.malloc(1000).size == 2 * MIB


def test_a_pool_for_the_last_resort_is_used_before_memory_runs_out() -> None:
    allocator = CachingAllocator(total_memory=40 * MIB)
    pool = allocator.pool(use_on_oom=True)
    with pool:
        spare = allocator.malloc(30 * MIB)
    allocator.free(spare)
    assert allocator.malloc(20 * MIB).address == spare.address
    assert allocator.counters().retries == 0


def test_while_a_graph_is_captured_events_are_not_asked_for() -> None:
    allocator = CachingAllocator()
    before = allocator.malloc(1000)
    allocator.record_stream(before, 1)
    pool = allocator.pool()
    pool.begin(streams={3}, capture=True)
    inside = allocator.malloc(1000, stream=3)
    allocator.record_stream(inside, 4)
    allocator.free(inside)
    allocator.free(before)
    allocator.malloc(1000)
    allocator.malloc(1000, stream=3)
    allocator.empty_cache()
    assert allocator.counters().active == 4096
    pool.end()
    assert allocator.malloc(1000).address == before.address
    assert allocator.counters().active == 3072


def test_its_own_stream_is_no_other_stream() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(1000, stream=3)
    allocator.record_stream(block, 3)
    allocator.free(block)
    assert allocator.counters().active == 0


def test_memory_runs_out_after_the_cache_was_given_back() -> None:
    allocator = CachingAllocator(total_memory=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(70 * MIB)
    assert (allocator.counters().retries, allocator.counters().ooms) == (1, 0)
    with pytest.raises(OutOfMemory, match=r"40\.00 MiB more do not fit into 100\.00 MiB") as caught:
        allocator.malloc(40 * MIB)
    assert isinstance(caught.value, IrscopeError)
    assert caught.value.code == "IRS320"
    assert (allocator.counters().retries, allocator.counters().ooms) == (2, 1)


def test_a_fraction_of_the_device_is_a_limit() -> None:
    for allocator in (
        CachingAllocator(alloc_conf="per_process_memory_fraction:0.5", total_memory=100 * MIB),
        CachingAllocator(total_memory=100 * MIB, memory_fraction=0.5),
    ):
        allocator.malloc(50 * MIB)
        with pytest.raises(OutOfMemory, match=r"50\.00 MiB of device memory"):
            allocator.malloc(1)


def test_a_fraction_can_be_set_later() -> None:
    allocator = CachingAllocator(total_memory=100 * MIB)
    allocator.malloc(30 * MIB)
    assert allocator.device_free == 70 * MIB
    allocator.set_memory_fraction(0.5)
    with pytest.raises(OutOfMemory):
        allocator.malloc(30 * MIB)
    allocator.set_memory_fraction(1.0)
    allocator.malloc(30 * MIB)


def test_an_early_refusal_is_no_retry() -> None:
    allocator = CachingAllocator(alloc_conf="throw_on_cudamalloc_oom:True", total_memory=100 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(200 * MIB)
    assert (allocator.counters().retries, allocator.counters().ooms) == (0, 0)


def test_more_than_an_exbibyte_is_refused_without_a_count() -> None:
    allocator = CachingAllocator()
    with pytest.raises(OutOfMemory):
        allocator.malloc(1 << 61)
    assert set(allocator.counters().values()) == {0}


def test_peaks_begin_anew_from_the_current_values() -> None:
    allocator = CachingAllocator()
    kept = allocator.malloc(5000)
    allocator.free(allocator.malloc(50 * MIB))
    allocator.reset_peaks()
    counters = allocator.counters()
    assert counters.allocated_peak == counters.active_peak == kept.size
    assert counters.requested_peak == 5000
    assert counters.reserved_peak == counters.reserved == 52 * MIB


def test_garbage_collection_frees_what_was_not_used_for_longest() -> None:
    allocator = CachingAllocator(alloc_conf="garbage_collection_threshold:0.5,per_process_memory_fraction:0.8", total_memory=200 * MIB)
    old, new = allocator.malloc(40 * MIB), allocator.malloc(42 * MIB)
    allocator.free(old)
    for _ in range(3):
        allocator.malloc(512)
    allocator.free(new)
    allocator.malloc(44 * MIB)
    assert [segment.size // MIB for segment in allocator.segments()] == [42, 2, 44]


def test_blocks_too_large_to_split_serve_only_large_requests() -> None:
    allocator = CachingAllocator(alloc_conf="max_split_size_mb:50")
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(30 * MIB)
    assert allocator.counters().reserved == 90 * MIB
    assert allocator.malloc(55 * MIB).size == 60 * MIB


@pytest.mark.parametrize(("size", "block"), [(3000, 3072), (128 * MIB, 128 * MIB), (129 * MIB, 144 * MIB), (4200, 4608), (9000, 9216)])
def test_powers_of_two_are_divided(size: int, block: int) -> None:
    allocator = CachingAllocator(alloc_conf="roundup_power2_divisions:8")
    assert allocator.malloc(size).size == block


def test_the_snapshot_shows_every_block() -> None:
    allocator = CachingAllocator()
    allocator.malloc(700)
    allocator.malloc(3 * MIB, stream=5)
    small, large = allocator.segments()
    assert (small.small, small.stream, [(block.size, block.requested, block.state) for block in small.blocks]) == (
        True,
        0,
        [(1024, 700, "active_allocated"), (2 * MIB - 1024, 0, "inactive")],
    )
    assert (large.small, large.stream, large.size) == (False, 5, 20 * MIB)


def test_a_block_is_freed_once_and_where_it_was_made() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(1000)
    with pytest.raises(UsageError, match="not in use"):
        CachingAllocator().free(block)
    with pytest.raises(UsageError, match="not in use"):
        CachingAllocator().record_stream(block, 1)
    allocator.free(block)
    with pytest.raises(UsageError, match="not in use") as caught:
        allocator.free(block)
    assert caught.value.code == "IRS642"
    assert caught.value.exit_code == ExitCode.USAGE


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        CachingAllocator().malloc(-1)
    with pytest.raises(UsageError, match="-5 bytes"):
        CachingAllocator(total_memory=-5)
    with pytest.raises(UsageError, match="fraction"):
        CachingAllocator(memory_fraction=1.5)


# The simulator against what PyTorch's own allocator counted, row by row.

TRACES = recorded("traces.json.gz")
FURTHER = recorded("further.json.gz")
STREAMS = [{**entry, "after": rows_of(entry["changes"])} for entry in recorded("streams.json.gz")]
JOBS = recorded("jobs.json.gz")


def names(entries: list[dict[str, Any]]) -> list[str]:
    """Names of test cases."""
    return [f"{entry['torch'] if isinstance(entry['torch'], str) else entry['torch'][0]}-{entry['config']}" for entry in entries]


def first_difference(entry: dict[str, Any], rows: list[Row]) -> tuple[int, Any, Any] | None:
    """The first row that is not as recorded; a bare "OOM" stands for any counters."""
    for at, (got, wanted) in enumerate(zip(rows, entry["after"], strict=True)):
        if (got[0] if wanted == "OOM" else got) != wanted:
            return at, got, wanted
    return None


@every("entry", TRACES, ids=names(TRACES))
def test_every_counter_of_every_row_is_equal(entry: dict[str, Any]) -> None:
    allocator = CachingAllocator(entry["torch"], **CONFIGURATIONS[entry["config"]])
    assert first_difference(entry, play(allocator, entry["ops"])) is None


@every("entry", FURTHER, ids=names(FURTHER))
def test_streams_limits_and_older_releases_are_equal(entry: dict[str, Any]) -> None:
    for torch in entry["torch"]:
        allocator = CachingAllocator(torch, entry["alloc_conf"], entry["total_memory"], pending_frees=entry["pending_frees"])
        assert first_difference(entry, play(allocator, entry["ops"])) is None, torch


@every("entry", STREAMS, ids=[f"{entry['config']}-{entry['seed']}" for entry in STREAMS])
def test_streams_events_and_private_pools_are_equal(entry: dict[str, Any]) -> None:
    allocator = CachingAllocator(entry["torch"], entry.get("alloc_conf", ""), entry.get("total_memory"), pending_frees="synchronize")
    assert first_difference(entry, play(allocator, entry["ops"])) is None


@pytest.mark.parametrize("entry", JOBS, ids=[entry["job"] for entry in JOBS])
def test_a_job_on_several_streams_takes_the_segments_that_it_took(entry: dict[str, Any]) -> None:
    """A free that was done later waits for a stream of its own, which is synchronized when the recording says that it was done."""
    gpu = CachingAllocator(pending_frees="synchronize")
    live: dict[int, Block] = {}
    waiting: set[int] = set()
    wanted = 0
    for (verb, what, *rest), following in zip(entry["ops"], [*entry["ops"][1:], ["end", -1]], strict=True):
        if verb == "a":
            live[what] = gpu.malloc(*rest)
            assert gpu.reserved == wanted
        elif verb == "f":
            if following != ["c", what]:
                gpu.record_stream(live[what], 1_000 + what)
                waiting.add(what)
            gpu.free(live.pop(what))
        elif verb == "c" and what in waiting:
            gpu.synchronize(1_000 + what)
        elif verb in "+-":
            wanted += what if verb == "+" else -what
    assert gpu.reserved == wanted > 0


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


# The examples of the documentation print what is shown below them.

PAGE = Path(__file__).parents[3] / "docs" / "memory-allocator.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize(("script", "shown"), EXAMPLES, ids=["blocks", "streams", "tape"])
def test_the_examples_print_what_is_shown(script: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(script, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == shown
