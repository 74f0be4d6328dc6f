"""Tensors with the same contents: candidates share a fingerprint, and are then compared byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irscope.weights.result import TensorStatistics, Unread
from irscope.weights.scan import Pool, Tick
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored

_STEP = 1 << 20


def duplicates(
    tensors: Sequence[Stored | Unread], found: Sequence[TensorStatistics | Unread], files: WeightFiles, tick: Tick | None = None
) -> list[list[int]]:
    """Groups of tensors with equal contents, each in order. Tensors of one number everywhere need no comparison."""
    by_fingerprint: dict[object, list[int]] = {}
    for index, made in enumerate(found):
        tensor = tensors[index]
        if isinstance(made, TensorStatistics) and isinstance(tensor, Stored) and made.count and tensor.compute is None:
            key = ("constant", tensor.dtype, made.count, made.min) if made.is_constant else (made.count, made.fingerprint)
            by_fingerprint.setdefault(key, []).append(index)
    groups: list[list[int]] = []
    candidates = [group for group in by_fingerprint.values() if len(group) > 1]
    total = sum(_bytes(tensors, group) for group in candidates)
    with Pool(1, total, "duplicates", tick) as pool:
        for group in candidates:
            first = found[group[0]]
            if isinstance(first, TensorStatistics) and first.is_constant:
                groups.append(group)
                continue
            for classes in pool.map(iter([lambda g=group: _classes(g, tensors, files, pool)])):  # type: ignore[misc]  # a default binds it now
                groups += classes
    return sorted(group for group in groups if len(group) > 1)


def _bytes(tensors: Sequence[Stored | Unread], group: list[int]) -> int:
    return sum(tensor.bytes for index in group if isinstance(tensor := tensors[index], Stored))


def _classes(group: list[int], tensors: Sequence[Stored | Unread], files: WeightFiles, pool: Pool) -> list[list[int]]:
    """The members of a group by their contents."""
    classes: list[list[int]] = []
    for index in group:
        for known in classes:
            if _equal(tensors[known[0]], tensors[index], files, pool):
                known.append(index)
                break
        else:
            classes.append([index])
    return classes


def _equal(one: Stored | Unread, other: Stored | Unread, files: WeightFiles, pool: Pool) -> bool:
    if not isinstance(one, Stored) or not isinstance(other, Stored) or one.bytes != other.bytes:
        return False
    if one.source == other.source:
        return True
    buffers = np.empty((2, min(_STEP, one.bytes)), np.uint8)
    for start in range(0, one.bytes, _STEP):
        count = min(_STEP, one.bytes - start)
        try:
            for buffer, tensor in zip(buffers, (one, other), strict=True):
                files.read_into(tensor.source, start, buffer.data[:count])
        except Unreadable:
            return False
        pool.advance(count)
        if not np.array_equal(buffers[0, :count], buffers[1, :count]):
            return False
    return True
