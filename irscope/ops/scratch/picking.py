"""Choosing elements: by truth values, by positions, by a condition."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type
from irscope.ops.scratch import cub
from irscope.ops.scratch.recorder import Scratch, count, is_contiguous, nbytes, number, reshape_copies, rule, same, sizes, width
from irscope.ops.spec import NeedsNumbers

_INDEX = 8
_COUNT = 4


def _hits(scratch: Scratch, mask: TensorType, positions: Dim | None) -> str:
    """Positions of what holds: counted first, then written. None: they are the call's own result."""
    total = number(count(mask))
    copy = scratch.copy_unless_contiguous(mask, "contiguous input")
    found = scratch.take("number of hits", _COUNT)
    scratch.passing("count", cub.reduce(scratch.target, total))
    name = ""
    if positions is None:
        scratch.result()
    else:
        name = scratch.take("positions of hits", positions)
    scratch.passing("select", cub.select(total))
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
    scratch.passing("count", cub.reduce(scratch.target, total))
    if isinstance(made, TensorType):
        scratch.result(0, nbytes(made) * max(len(sizes(x)), 1))
    scratch.passing("select", cub.select(total))
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
    """What comes before and after is joined to the elements first."""
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
    scratch.passing("scan", cub.scan(DType.I64, number(count(x))))
    scratch.drop(sums, spread)


@rule
def roll_rule(scratch: Scratch) -> None:
    """One axis after another; without axes, the flattened tensor."""
    x = scratch.call.tensor("x")
    axes = scratch.call.attr("axes")
    before = ""
    for _ in range(len(axes) - 1 if isinstance(axes, tuple) else 0):
        step = scratch.take("rolled along an axis", nbytes(x))
        scratch.drop(before)
        before = step
    scratch.result()
    scratch.drop(before)


@rule
def pad_rule(scratch: Scratch) -> None:
    scratch.result()
    if scratch.call.attr("mode") not in (None, "constant"):
        scratch.drop(scratch.copy_unless_contiguous(scratch.call.tensor("x"), "contiguous input"))


@rule
def index_put_rule(scratch: Scratch) -> None:
    """Adding up needs positions in order: bounds are checked, then linear positions sorted."""
    call = scratch.call
    scratch.result()
    if not call.attr("accumulate"):
        return
    chosen = [type_ for type_ in call.types[2:] if isinstance(type_, TensorType)]
    if any(type_.dtype is not DType.I64 for type_ in chosen) or len({sizes(type_) for type_ in chosen}) != 1:
        raise NeedsNumbers("adding up at positions of other types, or that broadcast, is not modelled")
    total = number(count(chosen[0]))
    linear = ""
    for _ in chosen:
        _check_bounds(scratch)
        step, before = scratch.take("positions along an axis", total * _INDEX), linear
        linear = scratch.take("linear positions", total * _INDEX)
        scratch.drop(step, before)
    ordered = [scratch.take(what, total * _INDEX) for what in ("order", "sorted positions", "original order")]
    bits = max(number(product(sizes(call.tensor("x"))[: len(chosen)])) - 1, 1).bit_length()
    scratch.passing("radix sort", cub.sort_in_place(total, _INDEX, bits))
    scratch.drop(*reversed(ordered), linear)


def _check_bounds(scratch: Scratch) -> None:
    if scratch.torch >= (2, 13):
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
    names = [scratch.take(what, _INDEX) for what in ("smallest value", "largest value")] if scratch.torch >= (2, 13) else []
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
