"""Strides: whether a tensor already has the layout that an operator asks for, so that no copy is made."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, equal
from irscope.ir.types import Layout, Shape, TensorType


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides in elements of a tensor whose last axis is dense."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def _channels_last(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    order = (0, *range(2, len(shape)), 1)
    dense = row_major([shape[axis] for axis in order])
    return tuple(dense[order.index(axis)] for axis in range(len(shape)))


def has_memory_format(type_: TensorType, wanted: object) -> bool | None:
    """Whether the elements already lie as a memory format wants; None where that is not known."""
    if wanted in (None, "", "preserve_format"):
        return True
    shape = type_.shape
    if shape is None or type_.layout == "sparse":
        return None
    if wanted == "contiguous_format":
        return type_.layout is None or _same_strides(type_.layout, row_major(shape), shape)
    if len(shape) not in (4, 5):
        return None
    return _same_strides(row_major(shape) if type_.layout is None else type_.layout, _channels_last(shape), shape)


def suggests_channels_last(type_: TensorType) -> bool | None:
    """Whether PyTorch takes a tensor's strides for channels last, so that layers answer in it; gaps do not matter."""
    shape, layout = type_.shape, type_.layout
    if shape is None or layout == "sparse":
        return None
    if len(shape) not in (4, 5):
        return False
    strides = row_major(shape) if layout is None else layout
    if not all(isinstance(dim, int) for dim in (*shape, *strides)):
        return None if layout is None else _same_strides(layout, _channels_last(shape), shape)
    sizes, steps = [int(str(dim)) for dim in shape], [int(str(dim)) for dim in strides]
    if steps[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[axis] == 0 or steps[axis] < least or (axis == 0 and least == steps[1]):
            return False
        least = steps[axis] * max(sizes[axis], 1)
    return True


def _same_strides(left: Layout, right: Sequence[Dim], shape: Sequence[Dim]) -> bool | None:
    if left is None or isinstance(left, str):
        return None
    answer: bool | None = True
    for a, b, size in zip(left, right, shape, strict=True):
        if size == 1:
            continue
        verdict = equal(a, b)
        if verdict is False:
            return False
        if verdict is None:
            answer = None
    return answer


def is_viewable(type_: TensorType, shape: Shape) -> bool | None:
    """Whether a reshape needs no copy: each run of old axes that new axes cut up must lie densely."""
    if type_.layout is None:
        return True
    if type_.layout == "sparse" or shape is None or type_.shape is None:
        return None
    strides = [stride for stride in type_.layout if isinstance(stride, int)]
    old = [size for size in type_.shape if isinstance(size, int)]
    new = [size for size in shape if isinstance(size, int)]
    if len(strides) < len(type_.layout) or len(old) < len(type_.shape) or len(new) < len(shape):
        return None
    return _cuts_dense_runs(old, strides, new)


def _cuts_dense_runs(old: list[int], strides: list[int], new: list[int]) -> bool:
    if 0 in old:
        return True
    runs: list[int] = []
    inner_size, inner_stride = 1, 0
    for size, stride in zip(reversed(old), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == inner_stride * inner_size:
            runs[-1] *= size
        else:
            runs.append(size)
        inner_size, inner_stride = size, stride
    remaining = [size for size in reversed(new) if size != 1]
    position = 0
    for run in runs:
        covered = 1
        while covered < run and position < len(remaining):
            covered *= remaining[position]
            position += 1
        if covered != run:
            return False
    return True
