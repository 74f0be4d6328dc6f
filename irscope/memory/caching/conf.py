"""PYTORCH_CUDA_ALLOC_CONF: the options of the allocator, read as the given release of PyTorch reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn

from irscope.devices.releases import RELEASES, Release
from irscope.errors import UsageError
from irscope.immutable import immutable

# The sizes that the allocator knows, and how a request is rounded up.

MIB: Final = 1 << 20

GRAIN: Final = 512
"""Every block is a multiple of this."""

SMALL_REQUEST: Final = MIB
"""Requests up to here, once rounded, come from the small pool."""

SMALL_SEGMENT: Final = 2 * MIB
"""Bytes of each segment that the small pool requests from the device."""

OWN_SEGMENT: Final = 10 * MIB
"""Requests from here on get a segment of their own size; smaller ones share a large segment."""

LARGE_SEGMENT: Final = 20 * MIB
"""Bytes of a segment for a large request below OWN_SEGMENT, unless large_segment_size_mb says otherwise."""

SEGMENT_GRAIN: Final = 2 * MIB
"""Segments of their own size are multiples of this, and so is what the driver gives."""

TOO_MUCH: Final = 1_152_921_504_606_846_976
"""Requests of one exbibyte or more are refused before the device is asked."""

DEFAULT_MEMORY: Final = 144 * 1024 * MIB
"""Memory of the device where the caller names none."""

UNLIMITED: Final = 1 << 64

_BUCKETS: Final = 16
NO_DIVISIONS: Final[tuple[int, ...]] = (0,) * _BUCKETS
"""roundup_power2_divisions when it is not set: one number for each power of two from 1 MiB, the last for 32 GiB and more."""


def plain_size(size: int) -> int:
    """Return the block size of a request: the next multiple of 512."""
    return (size + 511) & -512


def divided_size(size: int, divisions: tuple[int, ...]) -> int:
    """Return the block size under roundup_power2_divisions: powers of two are divided into steps, and a request goes up to the next
    step.
    """
    magnitude = size.bit_length() - 1
    parts = divisions[min(max(magnitude - 20, 0), _BUCKETS - 1)]
    if parts <= 1 or size <= GRAIN * parts:
        return plain_size(size)
    step = (1 << magnitude) >> (parts.bit_length() - 1)
    return -(-size // step) * step


def segment_size(size: int, large_segment: int) -> int:
    """Return what the device is asked for when no cached block can serve a block of this size."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return large_segment
    return -(-size // SEGMENT_GRAIN) * SEGMENT_GRAIN


# PYTORCH_CUDA_ALLOC_CONF: the options of the allocator, read as the given release of PyTorch reads them.


@immutable
class AllocConf:
    """The options that decide what device memory is used. Sizes are in bytes."""

    expandable_segments: bool = False
    expandable_reserve: float | int | None = None
    """Address space of an expandable segment: a float is a fraction of the device, an integer bytes."""
    garbage_collection_threshold: float = 0.0
    large_segment_size: int = LARGE_SEGMENT
    max_split_size: int = UNLIMITED
    max_non_split_rounding: int = LARGE_SEGMENT
    memory_fraction: float = 1.0
    roundup_divisions: tuple[int, ...] = NO_DIVISIONS
    throw_on_oom: bool = False


def parse_alloc_conf(text: str, release: Release) -> AllocConf:
    """Read `name:value,name:[a:1,b:2]` as a release does. Options that only concern host memory or locks are checked and left out."""
    settings = {name: _Setting(name, value, release) for name, value in _settings_of(text).items()}
    for setting in settings.values():
        if setting.option not in release.options:
            setting.unknown()
    conf = AllocConf()
    if "large_segment_size_mb" in settings:  # before the others: it is the least value of two of them
        conf = _large_segment(conf, settings["large_segment_size_mb"])
    for setting in settings.values():
        reader = _READERS.get(setting.option)
        if reader is not None:
            conf = reader(conf, setting)
    return conf


def _settings_of(text: str) -> dict[str, str]:
    """Return the names and values; white space means nothing, and commas inside brackets belong to the value."""
    given: dict[str, str] = {}
    for part in filter(None, re.split(r",(?![^\[]*\])", re.sub(r"\s", "", text))):
        name, _, value = part.partition(":")
        if not name or not value:
            raise UsageError(f"the allocator option {part!r} is not complete", code="IRS640", hint="write name:value,name:value")
        given[name] = value
    return given


_ALIASES = {"release_lock_on_hipmalloc": "release_lock_on_cudamalloc", "pinned_use_hip_host_register": "pinned_use_cuda_host_register"}


@immutable
class _Setting:
    """One option as it was given."""

    name: str
    value: str
    release: Release

    @property
    def option(self) -> str:
        return _ALIASES.get(self.name, self.name)

    def unknown(self) -> NoReturn:
        since = next((one.name for one in RELEASES.values() if self.name in one.options), "")
        raise UsageError(
            f"the allocator of torch {self.release.name} has no option {self.name!r}" + (f", torch {since} added it" if since else ""),
            code="IRS640",
            hint=f"its options are {', '.join(sorted(self.release.options))}",
        )

    def refuse(self, wanted: str) -> NoReturn:
        raise UsageError(f"the allocator option {self.name} cannot be {self.value!r}", code="IRS640", hint=f"it takes {wanted}")

    def flag(self) -> bool:
        if self.value not in ("True", "False"):
            self.refuse("True or False")
        return self.value == "True"

    def whole(self, least: int, wanted: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", self.value) or int(self.value) < least:
            self.refuse(wanted)
        return int(self.value)

    def mebibytes(self, least: int) -> int:
        return min(self.whole(least, f"a whole number of MiB from {least} on") * MIB, UNLIMITED)

    def number(self, wanted: str, allowed: Callable[[float], bool]) -> float:
        if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", self.value, re.IGNORECASE) or not allowed(float(self.value)):
            self.refuse(wanted)
        return float(self.value)


def _large_segment(conf: AllocConf, setting: _Setting) -> AllocConf:
    size = setting.mebibytes(OWN_SEGMENT // MIB + 1)
    return replace(conf, large_segment_size=size, max_non_split_rounding=size)


def _least_limit(conf: AllocConf, setting: _Setting) -> int:
    """Return the least MiB that max_split_size_mb and max_non_split_rounding_mb take."""
    return conf.large_segment_size // MIB + (1 if setting.release.old_reader else 0)


def _max_split(conf: AllocConf, setting: _Setting) -> AllocConf:
    return replace(conf, max_split_size=setting.mebibytes(_least_limit(conf, setting)))


def _max_rounding(conf: AllocConf, setting: _Setting) -> AllocConf:
    return replace(conf, max_non_split_rounding=setting.mebibytes(_least_limit(conf, setting)))


def _collection(conf: AllocConf, setting: _Setting) -> AllocConf:
    threshold = setting.number("a number between 0 and 1, neither included", lambda number: 0 < number < 1)
    return replace(conf, garbage_collection_threshold=threshold)


def _memory_fraction(conf: AllocConf, setting: _Setting) -> AllocConf:
    return replace(conf, memory_fraction=setting.number("a number from 0 to 1", lambda number: 0 <= number <= 1))


def _expandable(conf: AllocConf, setting: _Setting) -> AllocConf:
    return replace(conf, expandable_segments=setting.flag())


def _reserve(conf: AllocConf, setting: _Setting) -> AllocConf:
    absolute = setting.value[-1] in "Gg"
    plain = replace(setting, value=setting.value[:-1]) if absolute else setting
    number = plain.number("a fraction of the device such as 0.5, or a size such as 40G", lambda number: 0 < number < math.inf)
    return replace(conf, expandable_reserve=int(number * 1024 * MIB) if absolute else number)


def _throw(conf: AllocConf, setting: _Setting) -> AllocConf:
    return replace(conf, throw_on_oom=setting.flag())


def _backend(conf: AllocConf, setting: _Setting) -> AllocConf:
    if setting.value != "native":
        setting.refuse("native, since only PyTorch's own allocator is simulated")
    return conf


_DIVISIONS = "a power of two, or a list of sizes in MiB with powers of two such as [256:1,512:2,1024:4,>:8]"


def _divisions(conf: AllocConf, setting: _Setting) -> AllocConf:
    value = setting.value
    buckets = list(NO_DIVISIONS)
    if not value.startswith("["):
        return replace(conf, roundup_divisions=(_power_of_two(setting, value, least=1),) * len(buckets))
    if not value.endswith("]"):
        setting.refuse(_DIVISIONS)
    last, first = 0, True
    for entry in filter(None, value[1:-1].split(",")):
        bound, _, text = entry.partition(":")
        parts = _power_of_two(setting, text, least=0)
        if bound == ">":
            begin = last if setting.release.old_reader else last + 1
            buckets[begin:] = [parts] * (len(buckets) - begin)
            continue
        last = min(_power_of_two(setting, bound, least=1).bit_length() - 1, len(buckets) - 1)
        if first:
            buckets[:last] = [parts] * last
            first = False
        buckets[last] = parts
    return replace(conf, roundup_divisions=tuple(buckets))


def _power_of_two(setting: _Setting, text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least or int(text) & (int(text) - 1):
        setting.refuse(_DIVISIONS)
    return int(text)


def _flag_only(conf: AllocConf, setting: _Setting) -> AllocConf:
    setting.flag()
    return conf


def _number_only(conf: AllocConf, setting: _Setting) -> AllocConf:
    setting.whole(0, "a whole number")
    return conf


_READERS: dict[str, Callable[[AllocConf, _Setting], AllocConf]] = {
    "backend": _backend,
    "expandable_segments": _expandable,
    "expandable_segments_reserve": _reserve,
    "garbage_collection_threshold": _collection,
    "graph_capture_record_stream_reuse": _flag_only,
    "max_non_split_rounding_mb": _max_rounding,
    "max_split_size_mb": _max_split,
    "per_process_memory_fraction": _memory_fraction,
    "pinned_free_catch_all": _flag_only,
    "pinned_max_cached_size_mb": _number_only,
    "pinned_max_round_threshold_mb": _number_only,
    "pinned_num_register_threads": _number_only,
    "pinned_reserve_segment_size_mb": _number_only,
    "pinned_use_background_threads": _flag_only,
    "pinned_use_cuda_host_register": _flag_only,
    "release_lock_on_cudamalloc": _flag_only,
    "roundup_power2_divisions": _divisions,
    "throw_on_cudamalloc_oom": _throw,
}
# expandable_segments_reserve_by_class needs no reader: only C++ code gives streams a class, and by default they have none.
