"""What changed in the allocator from one release of PyTorch to the next, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from irscope.errors import UsageError

Order = Literal["address", "block", "segment"]
"""What decides between free blocks of one size: the lowest address, the block or the segment that was made first."""


@dataclass(frozen=True, slots=True)
class TorchVersion:
    """A release of PyTorch, as far as the allocator is concerned."""

    name: str
    order: Order
    options: frozenset[str]
    old_reader: bool
    """Limits of block sizes must exceed a segment, and `>` in roundup_power2_divisions also overrides the size before it."""
    old_fraction: bool
    """A memory fraction of 1 set by a program is a limit too, and limits are rounded down."""


_ALWAYS = (
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "roundup_power2_divisions",
)

_HISTORY: Final[tuple[tuple[str, Order, tuple[str, ...]], ...]] = (
    ("2.8", "address", _ALWAYS),
    ("2.9", "address", ("graph_capture_record_stream_reuse",)),
    ("2.10", "address", ("per_process_memory_fraction", "pinned_reserve_segment_size_mb")),
    ("2.11", "address", ("large_segment_size_mb",)),
    ("2.12", "block", ("pinned_free_catch_all", "throw_on_cudamalloc_oom")),
    ("2.13", "segment", ("pinned_max_cached_size_mb", "pinned_max_round_threshold_mb")),
    ("2.14", "segment", ()),
    ("2.15", "segment", ("expandable_segments_reserve", "expandable_segments_reserve_by_class")),
)
"""Release, order of equal free blocks, options of PYTORCH_CUDA_ALLOC_CONF that it added."""


_BEFORE_2_10: Final = ("2.8", "2.9")


def _versions() -> dict[str, TorchVersion]:
    options: frozenset[str] = frozenset()
    versions: dict[str, TorchVersion] = {}
    for name, order, added in _HISTORY:
        options = options.union(added)
        versions[name] = TorchVersion(name, order, options, old_reader=name in _BEFORE_2_10, old_fraction=name in _BEFORE_2_10)
    return versions


VERSIONS: Final[dict[str, TorchVersion]] = _versions()


def torch_version(text: str) -> TorchVersion:
    """The rules of a release, named as in torch.__version__: 2.13, 2.13.1 or 2.13.0+cu130."""
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?([a-z.+].*)?", text.strip())
    version = VERSIONS.get(match[1]) if match else None
    if version is None:
        raise UsageError(
            f"the allocator of torch {text!r} is not known",
            code="IRS641",
            hint=f"known are the versions {', '.join(VERSIONS)}",
        )
    return version


def first_with(option: str) -> str:
    """The first release that has an option, or an empty text."""
    return next((name for name, version in VERSIONS.items() if option in version.options), "")
