"""What sorts, samples, indices and parts take: buffers of CUB and copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.scratch.recorder import (
    Scratch,
    count,
    is_contiguous,
    is_half,
    nbytes,
    number,
    numbers,
    reshape_copies,
    rule,
    same,
    sizes,
    width,
)
from irscope.ops.scratch.reductions import reduce_in
from irscope.ops.spec import NeedsNumbers

if TYPE_CHECKING:
    from irscope.devices.catalogue import Target

# Temporary storage of the parallel primitives (scan, select, reduce, radix sort) that PyTorch takes from NVIDIA's CUB library.

_ALIGNMENT = 256
_PADDING_TILES = 32
"""States of tiles that are never reached, so that every look-back finds one."""
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_SINGLE_TILE = 4096
_BLOCK = 256
_BLOCKS_PER_PROCESSOR = 5

_SORT_TILE = {2: 5632, 4: 5376, 8: 4608}
"""Pairs of a key of so many bytes and an index of eight that a block of threads sorts at once."""
_KEYS_TILE = 5760
_SELECT_TILE = 4224
_SCAN_TILE = 1920
_HALF_SCAN_TILE = 3840
_WIDE_SCAN_TILE = 896
_MERGE_TILE = 4096
_UNIQUE_TILE = 8192
FEW_SCANNED = 1279
"""Bytes of a running sum, or of the choice of first elements, over few numbers: states of some tiles."""


def _storage(*parts: int) -> int:
    """Return the parts laid out one after another, each aligned, and room to align the whole."""
    return sum(-(-part // _ALIGNMENT) * _ALIGNMENT for part in parts) + _ALIGNMENT - 1


def cub_scan(dtype: DType, count: int) -> int:
    """Return the bytes of a running sum: a state for each tile that later ones look back to."""
    if is_half(dtype):
        tiles = _tiles(count, _HALF_SCAN_TILE)
        return _storage(1, tiles * 4, tiles * 2, tiles * 2)
    if width(dtype) == 4:
        return _storage(1, _tiles(count, _SCAN_TILE) * 8)
    if width(dtype) == 8 and not dtype.text.startswith("c"):
        return _storage(1, _tiles(count, _WIDE_SCAN_TILE) * 16)
    raise NeedsNumbers(f"the scratch memory of running sums of {dtype.text} is not known")


def _tiles(count: int, tile: int) -> int:
    return -(-count // tile) + _PADDING_TILES


def cub_select(count: int) -> int:
    """Return positions of the elements that hold."""
    return _storage(1, _tiles(count, _SELECT_TILE) * 8)


def cub_reduce(target: Target, count: int) -> int:
    """Return the bytes of a reduction: four from each block; one block does a small input alone."""
    if count <= _SINGLE_TILE:
        return 1
    resident = (target.device.threads_per_multiprocessor or 2048) // _BLOCK
    return _storage((target.device.multiprocessors or 1) * resident * _BLOCKS_PER_PROCESSOR * 4)


def cub_sort_pairs(count: int, key: int, value: int, bits: int | None = None) -> int:
    """Sort by keys, eight bits at a time, with copies of both to swap with where one pass is not enough."""
    tile = _SORT_TILE.get(key)
    if tile is None:
        raise NeedsNumbers(f"the scratch memory of sorting keys of {key} bytes is not known")
    if count <= tile // 2:
        return 1
    bits = bits or key * 8
    swaps = bits > _DIGIT_BITS
    return _storage(count * key * swaps, count * value * swaps, *_passes(count, tile, bits))


def cub_sort_keys(count: int, bits: int, swaps: int = 0) -> int:
    """Sorting keys alone; `swaps` are the bytes of a key where the caller gives no second buffer."""
    return _storage(count * swaps, *_passes(count, _KEYS_TILE, bits))


def cub_segmented_sort(count: int, key: int, value: int) -> int:
    """Sorting many rows, each by itself."""
    return _storage(count * key, count * value)


def cub_merge_sort(count: int) -> int:
    """Sort positions with their order: copies of both, and where tiles meet."""
    return _storage(count * _INDEX, count * _INDEX, (-(-count // _MERGE_TILE) + 1) * _INDEX)


def cub_unique(count: int) -> int:
    """Keep the first of equal neighbours: two states for each tile."""
    states = _tiles(count, _UNIQUE_TILE) * 8
    return _storage(1, states, states)


def _passes(count: int, tile: int, bits: int) -> tuple[int, int, int]:
    """Look-back states, counts of digits for each pass, counters."""
    passes = -(-bits // _DIGIT_BITS)
    return -(-count // tile) * _DIGITS * 4, passes * _DIGITS * 8, passes * 4


# Running sums, sorting, the largest elements, random draws that need them.

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
        scratch.passing("scan", cub_scan(x.dtype, number(count(x))))
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
    """Request the memory of sorting after its results: positions, and for long rows the library's buffers."""
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
            scratch.passing("radix sort", cub_sort_pairs(length, key, _INDEX))
        scratch.drop(positions)
    elif rows < _FULL_SORT_ROWS:
        _sort_all_at_once(scratch, total, rows, key)
    else:
        positions = scratch.take("positions", _INDEX * total)
        scratch.passing("segmented sort", cub_segmented_sort(total, key, _INDEX))
        scratch.drop(positions)
    scratch.drop(indices, ordered, values)


def _sort_all_at_once(scratch: Scratch, total: int, rows: int, key: int) -> None:
    """All rows together by value, then by row."""
    pairs = [scratch.take("rows and positions", _SEGMENT * total) for _ in range(2)]
    keys = scratch.take("sorted keys", key * total)
    scratch.passing("radix sort", cub_sort_pairs(total, key, _SEGMENT))
    scratch.drop(keys)
    scratch.passing("radix sort by row", cub_sort_keys(total, max(rows - 1, 1).bit_length()))
    scratch.drop(*pairs)


@rule
def topk_rule(scratch: Scratch) -> None:
    """Counts of digits where several blocks share a row, and a sort of more results than a block has (TensorTopK.cpp)."""
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
    made = scratch.call.made()
    if scratch.call.attr("sorted") is not False and numbers(sizes(made))[_axis(scratch, len(shape))] > _ROW_KERNEL:
        positions, values = scratch.take("sorted positions", _INDEX * count(made)), scratch.take("sorted values", nbytes(made))
        _sort(scratch, made)
        scratch.passing("positions in order", _INDEX * count(made))
        scratch.drop(values, positions)
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
    scratch.passing("scan", FEW_SCANNED)
    scratch.passing("scan", FEW_SCANNED)
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
    scratch.passing("radix sort", cub_sort_keys(total, key * 8, key) if total > _ROW_KERNEL else 1)
    scratch.result(0, size)
    length = scratch.take("number of runs", _INDEX)
    scratch.passing("select", cub_select(total))
    scratch.drop(length, ordered)


@rule
def randperm_rule(scratch: Scratch) -> None:
    """Random keys are sorted with positions; keys have as many bits as make equal ones rare (Randperm.cu)."""
    scratch.result()
    made = scratch.call.made()
    total = number(count(made))
    if not total:
        return
    scratch.passing("random state", _INDEX)
    bits = min(64, math.ceil(math.log2(total - (6 * float(total) ** 2 + 1) / (math.log(0.9) * 12))))
    key = 4 if bits <= 32 else 8
    names = [scratch.take("positions", width(made.dtype) * total)]
    names += [scratch.take(what, key * total) for what in ("random keys", "sorted keys")]
    scratch.passing("radix sort", cub_sort_pairs(total, key, width(made.dtype), bits))
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
        wanted = (
            ("normalized distribution", "running sums")
            if scratch.release.samples_from_normalised
            else ("distribution", "normalized", "running sums")
        )
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
    """Return whether all elements are finite and none is negative; up to torch 2.11 in two passes over them."""
    everything = set(range(len(sizes(x))))
    if scratch.release.ranges_at_once:
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
    """Find the smallest and the largest element first, where no limits are given."""
    call = scratch.call
    x = call.tensor("x")
    scratch.result()
    if call.attr("min") != call.attr("max"):
        return
    size, everything = width(x.dtype), set(range(len(sizes(x))))
    if scratch.release.ranges_at_once:
        extremes = [scratch.take(what, size) for what in ("smallest", "largest")]
        reduce_in(scratch, x, everything, 2 * size)
        scratch.drop(*extremes)
        return
    for what in ("smallest", "largest"):
        extreme = scratch.take(what, size)
        reduce_in(scratch, x, everything, size)
        scratch.drop(extreme)


# Choosing elements: by truth values, by positions, by a condition.

_COUNT = 4


def _hits(scratch: Scratch, mask: TensorType, positions: Dim | None) -> str:
    """Return positions of what holds: counted first, then written. None: they are the call's own result."""
    total = number(count(mask))
    copy = scratch.copy_unless_contiguous(mask, "contiguous input")
    found = scratch.take("number of hits", _COUNT)
    scratch.passing("count", cub_reduce(scratch.target, total))
    name = ""
    if positions is None:
        scratch.result()
    else:
        name = scratch.take("positions of hits", positions)
    scratch.passing("select", cub_select(total))
    scratch.drop(found, copy)
    return name


@rule
def nonzero_rule(scratch: Scratch) -> None:
    _hits(scratch, scratch.call.tensor("x"), None)


@rule
def nonzero_parts_rule(scratch: Scratch) -> None:
    """Columns of one table of positions; the first result stands for the table."""
    x = scratch.call.tensor("x")
    made = scratch.call.results[0]
    total = number(count(x))
    found = scratch.take("number of hits", _COUNT)
    scratch.passing("count", cub_reduce(scratch.target, total))
    if isinstance(made, TensorType):
        scratch.result(0, nbytes(made) * max(len(sizes(x)), 1))
    scratch.passing("select", cub_select(total))
    scratch.drop(found)


@rule
def masked_select_rule(scratch: Scratch) -> None:
    call = scratch.call
    x, mask = call.tensor("x"), call.tensor("mask")
    made = call.made()
    full = sizes(x) if len(sizes(x)) >= len(sizes(mask)) else sizes(mask)
    spread = ""
    if sizes(mask) != full:
        mask = mask.with_shape(full)
        spread = scratch.take("mask for every element", nbytes(mask))
    found = _hits(scratch, mask, count(made) * (len(full) * _INDEX))
    scratch.result()
    scratch.drop(found, spread)


@rule
def index_rule(scratch: Scratch) -> None:
    """Truth values become positions; positions of other types, or of sizes that only broadcast, are copied."""
    call = scratch.call
    made = call.made()
    chosen = [type_ for type_ in call.types[1:] if isinstance(type_, TensorType)]
    names = _index_copies(scratch, call.types[1:], chosen, made)
    scratch.result()
    scratch.drop(*names)


def _index_copies(scratch: Scratch, places: Sequence[Type | None], chosen: list[TensorType], made: TensorType) -> list[str]:
    names: list[str] = []
    first = next((place for place, type_ in enumerate(places) if type_ is not None), 0)
    plain: list[TensorType] = []
    for type_ in chosen:
        if type_.dtype in (DType.BOOL, DType.U8):
            names.append(_hits(scratch, type_, sizes(made)[first] * (len(sizes(type_)) * _INDEX)))
        else:
            plain.append(type_)
            if type_.dtype is not DType.I64:
                names.append(scratch.take("64-bit positions", count(type_) * _INDEX))
    if len({sizes(type_) for type_ in plain}) > 1:
        shape = _joint([sizes(type_) for type_ in plain])
        total: Dim = 1
        for size in shape:
            total = total * size
        names.extend(scratch.take("positions for every element", total * _INDEX) for type_ in plain if not same(count(type_), total))
    return names


def _joint(shapes: list[tuple[Dim, ...]]) -> list[Dim]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return [next((shape[axis] for shape in padded if shape[axis] != 1), 1) for axis in range(rank)]


@rule
def embedding_rule(scratch: Scratch) -> None:
    """Positions are read as one row."""
    indices = scratch.call.tensor("indices")
    copies = len(sizes(indices)) != 1 and reshape_copies(indices, (count(indices),))
    row = scratch.take("positions in a row", nbytes(indices)) if copies else ""
    scratch.result()
    scratch.drop(row)


@rule
def diff_rule(scratch: Scratch) -> None:
    """Join the elements before and after to the input first."""
    call = scratch.call
    parts = [type_ for type_ in call.types if isinstance(type_, TensorType)]
    joined = scratch.take("joined elements", sum_bytes(parts)) if len(parts) > 1 else ""
    scratch.result()
    scratch.drop(joined)


def sum_bytes(types: Sequence[TensorType]) -> Dim:
    total: Dim = 0
    for type_ in types:
        total = total + nbytes(type_)
    return total


@rule
def where_rule(scratch: Scratch) -> None:
    """Plain numbers become tensors; a side of another type is converted."""
    call = scratch.call
    made = call.made()
    names = [scratch.take("number", width(made.dtype)) for name in ("x", "y") if call.maybe(name) is None]
    for name in ("x", "y"):
        side = call.maybe(name)
        if side is not None and side.dtype is not made.dtype:
            names.append(scratch.take("converted side", count(side) * width(made.dtype)))
    scratch.result()
    scratch.drop(*names)


@rule
def masked_scatter_rule(scratch: Scratch) -> None:
    call = scratch.call
    x, mask = call.tensor("x"), call.tensor("mask")
    spread = scratch.take("mask for every element", count(x)) if sizes(mask) != sizes(x) or not is_contiguous(mask) else ""
    scratch.result()
    sums = scratch.take("positions", count(x) * _INDEX)
    scratch.passing("scan", cub_scan(DType.I64, number(count(x))))
    scratch.drop(sums, spread)


@rule
def roll_rule(scratch: Scratch) -> None:
    """One axis after another; without axes, the flattened tensor."""
    x = scratch.call.tensor("x")
    axes = scratch.call.attr("axes")
    steps: list[str] = []
    before = scratch.copy_unless_contiguous(x, "contiguous input")
    for _ in range(len(axes) - 1 if isinstance(axes, tuple) else 0):
        steps.append(scratch.take("rolled along an axis", nbytes(x)))
        scratch.drop(before)
        before = ""
    scratch.result()
    scratch.drop(before, *reversed(steps))


@rule
def pad_rule(scratch: Scratch) -> None:
    scratch.result()
    if scratch.call.attr("mode") not in (None, "constant"):
        scratch.drop(scratch.copy_unless_contiguous(scratch.call.tensor("x"), "contiguous input"))


@rule
def index_put_rule(scratch: Scratch) -> None:
    """Writing reads positions as an index does; adding up puts them in order first (index_put_with_sort_kernel in Indexing.cu)."""
    call = scratch.call
    scratch.result()
    x, values = call.tensor("x"), call.tensor("values")
    places = call.types[2:]
    chosen = [type_ for type_ in places if isinstance(type_, TensorType)]
    masks = [type_ for type_ in chosen if type_.dtype in (DType.BOOL, DType.U8)]
    whole_rows = len(chosen) == 1 and masks and len(sizes(values)) == len(sizes(x)) - len(sizes(masks[0])) + 1
    if masks and not whole_rows:
        raise NeedsNumbers("how many elements a mask chooses is not known")
    if not call.attr("accumulate"):
        scratch.drop(*_index_copies(scratch, places, chosen, values))
        return
    whole = scratch.copy_unless_contiguous(x, "contiguous target")
    indexed = [axis for axis, type_ in enumerate(places) if type_ is not None]
    if masks:  # as many rows as there are values
        indexed = list(range(indexed[0], indexed[0] + len(sizes(masks[0]))))
        total = number(sizes(values)[indexed[0]])
        wide = [_hits(scratch, masks[0], total * (len(indexed) * _INDEX))]
    else:
        wide = [scratch.take("64-bit positions", count(type_) * _INDEX) for type_ in chosen if type_.dtype is not DType.I64]
        total = math.prod(numbers(_joint([sizes(type_) for type_ in chosen])))
    linear = ""
    for _ in indexed:
        if not call.attr("unsafe"):
            _check_bounds(scratch)
        step, before = scratch.take("positions along an axis", total * _INDEX), linear
        linear = scratch.take("linear positions", total * _INDEX)
        scratch.drop(step, before)
    scratch.drop(*wide)
    shape = numbers(sizes(x))
    others = math.prod(size for axis, size in enumerate(shape) if axis not in indexed)
    apart = indexed[-1] - indexed[0] >= len(indexed)
    full = total * others * width(values.dtype)
    copy = scratch.take("values for every element", full) if not same(nbytes(values), full) else ""
    copy = copy or scratch.copy_unless_contiguous(values, "contiguous values")
    # Axes that are indexed come first where others stand between them.
    front = scratch.take("target with indexed axes first", nbytes(x)) if apart else ""
    ordered = [scratch.take(what, total * _INDEX) for what in ("order", "sorted positions", "original order")] if total and others else []
    largest = math.prod(shape) // (others if apart else math.prod(shape[indexed[-1] + 1 :]) or 1) - 1
    if ordered:
        scratch.passing("radix sort", cub_sort_pairs(total, _INDEX, _INDEX, max(largest, 1).bit_length()))
    scratch.drop(*reversed(ordered), front, linear if apart else copy, copy if apart else linear, whole)


def _check_bounds(scratch: Scratch) -> None:
    if scratch.release.keeps_bounds:
        extremes = [scratch.take(what, _INDEX) for what in ("smallest position", "largest position")]
        scratch.passing("check", 1)
        scratch.passing("check", 1)
        scratch.drop(*extremes)
        return
    for what in ("smallest position", "largest position"):
        extreme = scratch.take(what, _INDEX)
        scratch.passing("check", 1)
        scratch.drop(extreme)


@rule
def bincount_rule(scratch: Scratch) -> None:
    names = [scratch.take(what, _INDEX) for what in ("smallest value", "largest value")] if scratch.release.keeps_bounds else []
    if not names:
        scratch.passing("smallest value", _INDEX)
        scratch.passing("largest value", _INDEX)
    scratch.result()
    scratch.drop(*names)


@rule
def windows_rule(scratch: Scratch) -> None:
    """Windows that neither overlap nor reach over the edge are a view's elements; else the image is copied."""
    call = scratch.call
    x = call.tensor("x")
    plain = call.ints("kernel_shape") == call.ints("strides") and not any(call.ints("pads") or ())
    copy = "" if plain else scratch.take("image", nbytes(x))
    scratch.result()
    scratch.drop(copy)
