"""Options and versions: what is read, and what is said about mistakes."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.memory.caching import CachingAllocator, parse_alloc_conf, torch_version

MIB = 1 << 20


def test_all_options_are_read_and_white_space_means_nothing() -> None:
    text = " max_split_size_mb : 128, garbage_collection_threshold:.8,expandable_segments:True,pinned_free_catch_all:False, backend:native,"
    conf = parse_alloc_conf(text, torch_version("2.13"))
    assert conf.max_split_size == 128 * MIB
    assert conf.garbage_collection_threshold == 0.8
    assert conf.expandable_segments


def test_a_list_of_roundings_has_one_number_for_each_power_of_two() -> None:
    text = "roundup_power2_divisions:[4:1,64:2,256:4,>:8]"
    assert parse_alloc_conf(text, torch_version("2.13")).roundup_divisions == (1, 1, 1, 0, 0, 0, 2, 0, 4, 8, 8, 8, 8, 8, 8, 8)
    assert parse_alloc_conf(text, torch_version("2.8")).roundup_divisions == (1, 1, 1, 0, 0, 0, 2, 0, 8, 8, 8, 8, 8, 8, 8, 8)


def test_the_large_segment_is_the_least_limit_wherever_it_stands() -> None:
    version = torch_version("2.13")
    conf = parse_alloc_conf("max_split_size_mb:40,large_segment_size_mb:40", version)
    assert (conf.large_segment_size, conf.max_non_split_rounding) == (40 * MIB, 40 * MIB)
    with pytest.raises(UsageError, match=r"max_split_size_mb cannot be '30'.*from 40 on"):
        parse_alloc_conf("max_split_size_mb:30,large_segment_size_mb:40", version)


def test_address_space_is_a_fraction_or_a_size() -> None:
    version = torch_version("2.15")
    assert parse_alloc_conf("expandable_segments_reserve:0.5", version).expandable_reserve == 0.5
    assert parse_alloc_conf("expandable_segments_reserve:40G", version).expandable_reserve == 40 << 30
    assert parse_alloc_conf("expandable_segments_reserve_by_class:[a:0.5,b:2G]", version).expandable_reserve is None


@pytest.mark.parametrize(
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
    assert torch_version(text).name == "2.13"


@pytest.mark.parametrize("text", ["2.7", "2.99", "1.13", "", "newest", "2.130"])
def test_an_unknown_version_is_an_error_with_the_list(text: str) -> None:
    with pytest.raises(UsageError, match=r"known are the versions 2\.8, 2\.9, .*2\.15") as caught:
        CachingAllocator(text)
    assert caught.value.code == "IRS641"
