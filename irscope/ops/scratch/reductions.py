"""Reductions: where few results come of many elements, PyTorch splits each over thread blocks, which meet in global memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.types import TensorType
from irscope.ops.scratch.recorder import Scratch, numbers, sizes, strides

if TYPE_CHECKING:
    from irscope.devices.target import Target

MAX_THREADS = 512
THREADS = 2048
"""Threads of a multiprocessor where the device's profile does not say."""
WORTH_VECTORS = 128
WARP = 32
INPUT_VECTOR = 4
WORK = (16, 256)
"""Fewest and most elements that a thread should have."""


@dataclass(frozen=True)
class Split:
    """Bytes of the two buffers of a reduction that several thread blocks share; zero where none do."""

    buffer: int = 0
    semaphores: int = 0


@dataclass(frozen=True)
class Axis:
    """A run of axes that a kernel walks as one."""

    size: int
    stride: int
    reduced: bool


def reduce_split(target: Target, axes: list[Axis], argument: int) -> Split:
    """The buffers of a reduction; `argument` is the size of what a thread carries from one block to the next."""
    inside = math.prod(axis.size for axis in axes if axis.reduced)
    outputs = math.prod(axis.size for axis in axes if not axis.reduced)
    if inside == 0 or outputs == 0:
        return Split()
    block = _block(axes, inside, outputs)
    work = _up(inside, block.x) if block.along_x else inside
    step_output = 1 if block.along_x else block.x
    fewest, most = WORK
    if work < min(block.y * fewest, most):
        return Split()
    work = _up(work, block.y)
    wanted = (target.device.multiprocessors or 1) * ((target.device.threads_per_multiprocessor or THREADS) // (block.x * block.y))
    grid = _up(outputs // block.vector, step_output)
    if work < most or grid > wanted:
        return Split()
    ctas = max(min(_up(wanted, grid), _up(work, fewest)), _up(work, most))
    if ctas <= 1:
        return Split()
    spread = 1 if block.along_x else block.x * block.vector
    return Split(argument * outputs * ctas * spread, 4 * grid)


@dataclass(frozen=True)
class _Block:
    """Threads of a block, and whether its rows run along what is reduced."""

    x: int
    y: int
    vector: int
    """Neighbouring results that one thread makes."""
    along_x: bool


def _block(axes: list[Axis], inside: int, outputs: int) -> _Block:
    kept = [axis for axis in axes if not axis.reduced]
    summed = [axis for axis in axes if axis.reduced]
    along_x = not kept or (bool(summed) and summed[-1].stride < kept[-1].stride)
    vector = 1
    if along_x:
        across, along = inside, outputs
        if summed and summed[-1].stride == 1 and across >= WORTH_VECTORS and len(axes) == 1:
            across //= INPUT_VECTOR
    else:
        across, along = outputs, inside
        if kept[-1].stride == 1:
            vector = _output_vector(axes, kept[-1])
            across //= vector
    limit = MAX_THREADS // vector
    wide, high = min(_last_pow2(across), limit), min(_last_pow2(along), limit)
    x = min(wide, WARP)
    y = min(high, limit // x)
    return _Block(min(wide, limit // y), y, vector, along_x)


def coalesced(shape: tuple[int, ...], steps: tuple[int, ...], reduced: set[int]) -> list[Axis]:
    """Axes as a reduction kernel walks them, outermost first: sorted by stride, neighbours joined where they lie densely."""
    order = sorted((axis for axis in range(len(shape)) if shape[axis] != 1), key=lambda axis: (-steps[axis], axis))
    joined: list[Axis] = []
    for axis in order:
        one = Axis(shape[axis], steps[axis], axis in reduced)
        last = joined[-1] if joined else None
        if last is not None and last.reduced == one.reduced and last.stride == one.stride * one.size:
            joined[-1] = Axis(last.size * one.size, one.stride, one.reduced)
        else:
            joined.append(one)
    return joined


def axes_of(type_: TensorType, reduced: set[int]) -> list[Axis]:
    """The axes of a reduction over a tensor."""
    return coalesced(numbers(sizes(type_)), numbers(strides(type_)), reduced)


def reduce_in(scratch: Scratch, type_: TensorType, reduced: set[int], argument: int, what: str = "partial results") -> None:
    """The buffers of a reduction, taken and given back in the kernel's order."""
    split = reduce_split(scratch.target, axes_of(type_, reduced), argument)
    buffer = scratch.take(what, split.buffer)
    semaphores = scratch.take("semaphores", split.semaphores)
    scratch.drop(semaphores, buffer)


def accumulator(dtype: DType) -> int:
    """Bytes in which sums of an element type are kept."""
    bits = dtype.bits or 32
    if dtype.kind is DTypeKind.COMPLEX:
        return max(bits // 8, 8)
    return max(bits // 8, 4) if dtype.is_float else 8


def _output_vector(axes: list[Axis], inner: Axis) -> int:
    """How many neighbouring results a thread makes at once: all that divides the sizes and the strides."""
    vector = 4
    places = [inner.size, *(axis.stride for axis in axes if axis is not inner)]
    while vector > 1 and any(place % vector for place in places):
        vector //= 2
    return vector


def _last_pow2(size: int) -> int:
    return 1 << (max(size, 1).bit_length() - 1)


def _up(a: int, b: int) -> int:
    return -(-a // b)
