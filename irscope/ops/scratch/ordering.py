"""Running sums, sorting, the largest elements, random draws that need them."""

from __future__ import annotations

import math

from irscope.ir.dims import product
from irscope.ir.types import TensorType, tensor
from irscope.ops.scratch import cub
from irscope.ops.scratch.recorder import Scratch, count, nbytes, number, numbers, rule, sizes, width
from irscope.ops.scratch.reductions import reduce_in

_INDEX = 8
_ROW_KERNEL = 4096
"""Longest row that one block of threads sorts."""
_ROW_BY_ROW = 1_000_000
_FULL_SORT_ROWS = 128
_SEGMENT = 8
"""A row's number beside an index."""
_TOPK_LIMITS = ((20, 20000), (40, 10000), (80, 8000), (200, 5000), (800, 3000), (4000, 800))
_TOPK_LEAST = 400
_TOPK_THREADS = 256
_TOPK_RESIDENT = 6
_TOPK_SCAN = 1279


@rule
def scan_rule(scratch: Scratch) -> None:
    """Running sums along one axis; only where that is the whole tensor does the library's scan run."""
    call = scratch.call
    x = call.tensor("x")
    made = call.made()
    axis = call.dim("axis")
    scratch.result()
    converted = ""
    if made.dtype is not x.dtype:
        x = tensor(made.dtype, x.shape, x.device)
        converted = scratch.take("converted input", nbytes(x))
    copy = scratch.copy_unless_contiguous(x, "contiguous input")
    shape = sizes(x)
    if shape and axis is not None and shape[number(axis) % len(shape)] == count(x) and not (shape[0] == 1 and len(shape) == 1):
        scratch.passing("scan", cub.scan(x.dtype, number(count(x))))
    scratch.drop(copy, converted)


def _axis(scratch: Scratch, rank: int) -> int:
    axis = scratch.call.attr("axis")
    return axis % rank if isinstance(axis, int) and rank else 0


@rule
def sort_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    scratch.result()
    scratch.result(1)
    _sort(scratch, x)


@rule
def argsort_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    values = scratch.take("sorted values", nbytes(x))
    scratch.result()
    _sort(scratch, x)
    scratch.drop(values)


def _sort(scratch: Scratch, x: TensorType) -> None:
    """What sorting takes after its results: positions, and for long rows the library's buffers."""
    shape = numbers(sizes(x))
    if not shape or 0 in shape:
        return
    axis = _axis(scratch, len(shape))
    length, total, key = shape[axis], number(count(x)), width(x.dtype)
    if length <= _ROW_KERNEL:
        scratch.passing("positions", _INDEX * length)
        return
    values = indices = ordered = ""
    if axis != len(shape) - 1:
        values = scratch.take("values in rows", total * key)
        ordered = scratch.take("sorted values in rows", total * key)
        indices = scratch.take("positions in rows", total * _INDEX)
    rows = total // length
    if rows == 1 or length >= _ROW_BY_ROW:
        positions = scratch.take("positions", _INDEX * length)
        for _ in range(rows):
            scratch.passing("radix sort", cub.sort_pairs(length, key, _INDEX))
        scratch.drop(positions)
    elif rows < _FULL_SORT_ROWS:
        _sort_all_at_once(scratch, total, rows, key)
    else:
        positions = scratch.take("positions", _INDEX * total)
        scratch.passing("segmented sort", cub.segmented_sort(total, key, _INDEX))
        scratch.drop(positions)
    scratch.drop(indices, ordered, values)


def _sort_all_at_once(scratch: Scratch, total: int, rows: int, key: int) -> None:
    """All rows together by value, then by row."""
    pairs = [scratch.take("rows and positions", _SEGMENT * total) for _ in range(2)]
    keys = scratch.take("sorted keys", key * total)
    scratch.passing("radix sort", cub.sort_pairs(total, key, _SEGMENT))
    scratch.drop(keys)
    scratch.passing("radix sort by row", cub.sort_keys(total, max(rows - 1, 1).bit_length()))
    scratch.drop(*pairs)


@rule
def topk_rule(scratch: Scratch) -> None:
    """Counts of digits where several blocks share a row."""
    x = scratch.call.tensor("x")
    scratch.result()
    scratch.result(1)
    shape = numbers(sizes(x))
    if not shape or 0 in shape:
        return
    copy = scratch.copy_unless_contiguous(x, "contiguous input")
    length = shape[_axis(scratch, len(shape))]
    slices = number(count(x)) // length
    if length >= next((least for most, least in _TOPK_LIMITS if slices <= most), _TOPK_LEAST):
        _topk_of_blocks(scratch, slices, length, width(x.dtype))
    scratch.drop(copy)


def _topk_of_blocks(scratch: Scratch, slices: int, length: int, key: int) -> None:
    processors = scratch.target.device.multiprocessors or 1
    items = min(max(-(-slices * length // (processors * _TOPK_RESIDENT * _TOPK_THREADS)), 4), 64)
    blocks = slices * -(-length // (_TOPK_THREADS * items))
    names = [
        scratch.take(f"radix select ({what})", size)
        for what, size in (
            ("values", key * slices),
            ("ranks", 8 * slices),
            ("masks", 8 * slices),
            ("counts of blocks", 512 * blocks),
            ("sums of digits", 1024 * slices),
            ("before the value", 4 * blocks),
            ("at the value", 4 * blocks),
        )
    ]
    scratch.passing("scan", _TOPK_SCAN)
    scratch.passing("scan", _TOPK_SCAN)
    scratch.drop(*reversed(names))


@rule
def unique_rule(scratch: Scratch) -> None:
    """Sorted elements, then the first of each run; the result keeps the storage of all."""
    x = scratch.call.tensor("x")
    total = number(count(x))
    size, key = nbytes(x), width(x.dtype)
    if len(scratch.call.results) > 1 or scratch.call.attr("axis") is not None:
        scratch.result()
        scratch.result(1)
        scratch.result(2)
        scratch.unknown("unique", "the scratch memory of unique with positions or counts depends on the values")
        return
    ordered = scratch.take("sorted elements", size)
    scratch.passing("radix sort", cub.sort_keys(total, key * 8, key) if total > _ROW_KERNEL else 1)
    scratch.result(0, size)
    length = scratch.take("number of runs", _INDEX)
    scratch.passing("select", cub.select(total))
    scratch.drop(length, ordered)


@rule
def randperm_rule(scratch: Scratch) -> None:
    """Random keys are sorted with positions; short permutations come from the host."""
    scratch.result()
    made = scratch.call.made()
    total = number(count(made))
    if total < 30000:
        return
    scratch.passing("random state", _INDEX)
    bits = min(64, math.ceil(math.log2(total - (6 * float(total) ** 2 + 1) / (math.log(0.9) * 12))))
    names = [scratch.take(what, _INDEX * total) for what in ("positions", "random keys", "sorted keys")]
    scratch.passing("radix sort", cub.sort_pairs(total, _INDEX, _INDEX, bits))
    scratch.drop(*reversed(names))


@rule
def multinomial_rule(scratch: Scratch) -> None:
    """Checks of the probabilities, then exponential noise as large as they are; the largest quotients win."""
    call = scratch.call
    x = call.tensor("x")
    samples = call.int_attr("samples")
    size = width(x.dtype)
    scratch.result()
    if call.attr("replacement") and samples > 1:
        wanted = ("normalized distribution", "running sums") if scratch.torch >= (2, 15) else ("distribution", "normalized", "running sums")
        copies = [scratch.take(what, nbytes(x)) for what in wanted]
        scratch.drop(*reversed(copies))
        return
    valid, extremes = _check_range(scratch, x, size)
    rows = product(sizes(x)[:-1])
    sums = scratch.take("sums", rows * size)
    reduce_in(scratch, x, {len(sizes(x)) - 1}, max(size, 4))
    zeros = scratch.take("sums that are zero", rows) if len(sizes(x)) > 1 else ""
    positive = scratch.take("check of sums", 1)
    scratch.drop(zeros, sums)
    scratch.passing("check", 1)
    noise = scratch.take("noise", nbytes(x))
    if samples > 1:
        scratch.passing("values of the largest", rows * samples * size)
    scratch.drop(noise, positive, valid, *reversed(extremes))


def _check_range(scratch: Scratch, x: TensorType, size: int) -> tuple[str, list[str]]:
    """Whether all elements are finite and none is negative; up to torch 2.11 in two passes over them."""
    everything = set(range(len(sizes(x))))
    if scratch.torch >= (2, 12):
        extremes = [scratch.take(what, size) for what in ("smallest", "largest")]
        reduce_in(scratch, x, everything, 2 * size)
        checks = [scratch.take("check of the range", 1) for _ in range(3)]
        scratch.drop(*checks[:2])
        return checks[2], extremes
    names: list[str] = []
    for what in ("largest", "smallest"):
        names.append(scratch.take(what, size))
        reduce_in(scratch, x, everything, size)
        names.append(scratch.take("check of the range", 1))
    valid = scratch.take("check of the range", 1)
    scratch.drop(*reversed(names))
    return valid, []


@rule
def dropout_rule(scratch: Scratch) -> None:
    """The mask of what stays, a byte each."""
    call = scratch.call
    if not call.attr("training"):
        scratch.result()
        return
    mask = scratch.take("mask", count(call.tensor("x"))) if len(call.results) < 2 else ""
    scratch.result(1)
    scratch.result()
    scratch.drop(mask)


@rule
def histogram_rule(scratch: Scratch) -> None:
    """Where no limits are given, the smallest and the largest element first."""
    call = scratch.call
    x = call.tensor("x")
    scratch.result()
    if call.attr("min") != call.attr("max"):
        return
    size, everything = width(x.dtype), set(range(len(sizes(x))))
    if scratch.torch >= (2, 12):
        extremes = [scratch.take(what, size) for what in ("smallest", "largest")]
        reduce_in(scratch, x, everything, 2 * size)
        scratch.drop(*extremes)
        return
    for what in ("smallest", "largest"):
        extreme = scratch.take(what, size)
        reduce_in(scratch, x, everything, size)
        scratch.drop(extreme)
