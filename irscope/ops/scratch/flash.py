"""Into how many parts flash attention cuts the keys where queries alone do not keep the device busy."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from irscope.ir.dims import Dim
from irscope.ops.scratch.recorder import numbers, same

if TYPE_CHECKING:
    from irscope.devices.target import Target

_ROWS_OF_BLOCK = 64
_MOST_PARTS = 128
_BUSY = 0.8
_GOOD = 0.85


def splits(target: Target, shape: tuple[Dim, Dim, Dim, Dim], shared: Dim, head: int, is_causal: bool) -> int:
    """Parts for (batch, heads, queries, keys), with `shared` heads of keys of that many elements."""
    batch, heads, queries, keys = numbers(shape)
    if queries == 1 and not same(heads, shared) and not is_causal:
        # Queries that share keys are taken together.
        queries, heads = heads // numbers((shared,))[0], numbers((shared,))[0]
    columns = 256 if head <= 64 else 128 if head <= 128 else 64
    blocks = batch * heads * -(-queries // _ROWS_OF_BLOCK)
    return parts(blocks, 2 * (target.device.multiprocessors or 1), -(-keys // columns))


def parts(blocks: int, processors: int, columns: int) -> int:
    """The fewest parts that use the processors nearly as well as any number does."""
    if blocks >= _single(_single(_BUSY) * processors):
        return 1
    candidates: list[tuple[int, float]] = []
    for number in range(1, min(_MOST_PARTS, processors, columns) + 1):
        if number == 1 or -(-columns // number) != -(-columns // (number - 1)):
            waves = _single(blocks * number / processors)
            candidates.append((number, _single(waves / math.ceil(waves))))
    best = max((use for _, use in candidates), default=0.0)
    return next((number for number, use in candidates if use >= _GOOD * best), 1)


def _single(value: float) -> float:
    """A number in the single precision in which the original computes."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
