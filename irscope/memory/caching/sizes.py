"""The sizes that the allocator knows, and how a request is rounded up."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20

GRAIN: Final = 512
"""Every block is a multiple of this."""

SMALL_REQUEST: Final = MIB
"""Requests up to here, once rounded, come from the small pool."""

SMALL_SEGMENT: Final = 2 * MIB
"""What the small pool asks the device for, each time."""

OWN_SEGMENT: Final = 10 * MIB
"""Requests from here on get a segment of their own size; smaller ones share a large segment."""

LARGE_SEGMENT: Final = 20 * MIB
"""What is asked for on behalf of a large request below OWN_SEGMENT, unless large_segment_size_mb says otherwise."""

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
    """The block size of a request: the next multiple of 512."""
    return (size + 511) & -512


def divided_size(size: int, divisions: tuple[int, ...]) -> int:
    """The block size under roundup_power2_divisions: powers of two are divided into steps, and a request goes up to the next step."""
    magnitude = size.bit_length() - 1
    parts = divisions[min(max(magnitude - 20, 0), _BUCKETS - 1)]
    if parts <= 1 or size <= GRAIN * parts:
        return plain_size(size)
    step = (1 << magnitude) >> (parts.bit_length() - 1)
    return -(-size // step) * step


def segment_size(size: int, large_segment: int) -> int:
    """What the device is asked for when no cached block can serve a block of this size."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return large_segment
    return -(-size // SEGMENT_GRAIN) * SEGMENT_GRAIN
