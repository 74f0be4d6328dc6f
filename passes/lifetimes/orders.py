"""The memory layout that PyTorch gives a result, derived from its operands' strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from irscope.ir.dims import Dim, SymDim
from irscope.ir.types import Layout, TensorType
from irscope.ops.layouts import row_major

Strides = tuple[Dim, ...]


def strides_of(type_: TensorType) -> Strides:
    """Strides of a tensor whose shape is known."""
    assert type_.shape is not None
    return type_.layout if isinstance(type_.layout, tuple) else row_major(type_.shape)


def in_order(shape: Sequence[Dim], order: Sequence[int]) -> Strides:
    """Strides of a dense tensor whose axes lie in that order, outermost first."""
    dense = row_major([shape[axis] for axis in order])
    strides: list[Dim] = [1] * len(shape)
    for axis, stride in zip(order, dense, strict=True):
        strides[axis] = stride
    return tuple(strides)


def channels_last(shape: Sequence[Dim]) -> Strides:
    """Strides of the channels-last layout: the second axis innermost."""
    return in_order(shape, (0, *range(2, len(shape)), 1))


def known_sizes(dims: Sequence[Dim]) -> TypeGuard[Sequence[int]]:
    """Whether all are numbers."""
    return not any(isinstance(dim, SymDim) for dim in dims)


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides are contiguous (row-major)."""
    return all(size == 1 or a == b for a, b, size in zip(strides, row_major(shape), shape, strict=True))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides are dense and without overlap, in any order of axes."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def pointwise(operands: Sequence[TensorType], shape: Strides) -> Layout:
    """Strides of an operator's result that visits its operands element by element; None for the order of the axes."""
    shown = [type_ for type_ in operands if type_.shape is not None and type_.layout != "sparse"]
    if len(shown) < len(operands) or not shown:
        return None
    if not known_sizes(shape) or not all(known_sizes(type_.shape or ()) and known_sizes(strides_of(type_)) for type_ in shown):
        return _alike(shown, shape)
    pairs = [(list(map(int, map(str, type_.shape or ()))), list(map(int, map(str, strides_of(type_))))) for type_ in shown]
    sizes = [int(str(dim)) for dim in shape]
    if all(own == sizes for own, _ in pairs):
        if all(is_row_major(own, strides) for own, strides in pairs):
            return None
        if len(sizes) in (4, 5) and all(_is_channels_last(own, strides) for own, strides in pairs):
            return channels_last(shape)
        if all(is_dense(own, strides) for own, strides in pairs) and all(strides == pairs[0][1] for _, strides in pairs):
            return tuple(pairs[0][1])
    order = _sorted_axes([_spread(own, strides, sizes) for own, strides in pairs], sizes)
    return None if order == list(range(len(sizes))) else in_order(shape, order)


def _alike(operands: Sequence[TensorType], shape: Strides) -> Layout:
    """Where sizes are open: the order that all operands of the result's shape have."""
    whole = [type_ for type_ in operands if type_.shape == shape]
    layouts = {type_.layout for type_ in whole}
    return next(iter(layouts)) if len(layouts) == 1 else None


def _is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return all(size == 1 or a == b for a, b, size in zip(strides, channels_last(shape), shape, strict=True))


def _spread(own: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Strides of an operand over the axes of the result; 0 where it is broadcast."""
    missing = len(shape) - len(own)
    found = [0] * missing
    for axis, (size, stride) in enumerate(zip(own, strides, strict=True)):
        found.append(0 if size == 1 and shape[missing + axis] != 1 else stride)
    return found


def _sorted_axes(strides: Sequence[Sequence[int]], shape: Sequence[int]) -> list[int]:
    """Axes from the outermost in: by decreasing strides, earlier operands first; broadcast axes do not count."""
    perm = list(range(len(shape) - 1, -1, -1))

    def compare(a: int, b: int) -> int:
        for one in strides:
            if one[a] == 0 or one[b] == 0:
                continue
            if one[a] != one[b]:
                return -1 if one[a] < one[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for start in range(1, len(perm)):
        place = start
        for before in range(start - 1, -1, -1):
            verdict = compare(perm[before], perm[place])
            if verdict > 0:
                perm[before], perm[place] = perm[place], perm[before]
                place = before
            elif verdict < 0:
                break
    return perm[::-1]
