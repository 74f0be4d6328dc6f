"""Slices of weights, and how operators carry them: which parts of operands become which parts of results.

A slice is one row, column or channel. A rule tells which slices of an operator's operands must go together, which it needs, and what is
known of the numbers in those of its results; `prune-report` follows them from the weights to the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from irscope.ir.dims import Dim, SymDim, product
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Value
from irscope.ir.types import tensor
from irscope.ops.facts import OpRole
from irscope.ops.registry import find_op, plays
from irscope.ops.slices import Floats, Flow, Ids, SliceRule, Slices
from irscope.ops.spec import Family, OpCall, OpSpec


def slice_rule(spec: OpSpec) -> SliceRule | None:
    """Return the operator's rule, or that of its family; None: it needs all of its operands."""
    return spec.slices or (elementwise if spec.family is Family.ELEMENTWISE else None)


def needs_all(flow: Flow, node: Node) -> Slices | None:
    """Rule of an operator that cannot do with smaller operands, whatever its family does."""
    return None


def _first(flow: Flow, node: Node) -> Slices | None:
    return flow.of(_operand(node, 0))


def _operand(node: Node, place: int) -> Value | None:
    return node.inputs[place] if place < len(node.inputs) else None


def _attr(node: Node, name: str) -> object:
    spec = find_op(node.op)
    found = node.attrs.get(name)
    return spec.defaults.get(name) if found is None and spec is not None else found


# -- moving ---------------------------------------------------------------------------------------------------------


def same(flow: Flow, node: Node) -> Slices | None:
    return _first(flow, node)


def converted(flow: Flow, node: Node) -> Slices | None:
    x, made = _first(flow, node), flow.type(node.outputs[0])
    if x is None or made is None:
        return None
    return x if made.dtype.is_float else Slices(x.ids, (None,) * x.rank)


def without_dropout(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    return None if x is None else Slices(x.ids, tuple(_zeros_only(held) for held in x.held))


def _picked(x: Slices, order: Sequence[int]) -> Slices:
    return Slices(tuple(x.ids[axis] for axis in order), tuple(x.held[axis] for axis in order), x.whole)


def permuted(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    if x is None:
        return None
    perm = node.attrs.get("perm")
    order = [int(axis) % x.rank for axis in perm] if isinstance(perm, tuple | list) else list(reversed(range(x.rank)))
    return _picked(x, order) if sorted(order) == list(range(x.rank)) else None


def transposed(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    one, other = node.attrs.get("axis0"), node.attrs.get("axis1")
    if x is None or not isinstance(one, int) or not isinstance(other, int) or not x.rank:
        return None
    order = list(range(x.rank))
    order[one % x.rank], order[other % x.rank] = order[other % x.rank], order[one % x.rank]
    return _picked(x, order)


def regrouped(flow: Flow, node: Node) -> Slices | None:
    """Axes of the operand and of the result are matched from the front by how many elements they stand for."""
    x, before, after = _first(flow, node), flow.shape(node.inputs[0]), flow.shape(node.outputs[0])
    if x is None or before is None or after is None:
        return None
    ids: list[Ids | None] = [None] * len(after)
    held: list[Floats | None] = [None] * len(after)
    for taken, made in _matched(before, after):
        inside = [axis for axis in taken if x.ids[axis] is not None and before[axis] != 1]
        for axis in taken:
            if axis not in inside:
                flow.channels.block(x.ids[axis], f"{node.name} ({node.op}) needs it")
        wide = [axis for axis in made if after[axis] != 1]
        if len(inside) == 1 and len(wide) == 1:
            spread = _spread(x, inside[0], taken, before)
            if spread is not None:
                ids[wide[0]], held[wide[0]] = spread
                continue
        for axis in inside:
            flow.channels.block(x.ids[axis], f"{node.name} ({node.op}) cuts it into other axes")
    return Slices(tuple(ids), tuple(held), x.whole)


def _spread(x: Slices, axis: int, taken: Sequence[int], sizes: Sequence[Dim]) -> tuple[Ids, Floats | None] | None:
    """Slices of an axis within the one that it becomes part of."""
    front = product(sizes[each] for each in taken if each < axis)
    behind = product(sizes[each] for each in taken if each > axis)
    ids, held = x.ids[axis], x.held[axis]
    if ids is None or isinstance(front, SymDim) or isinstance(behind, SymDim):
        return None
    return np.tile(np.repeat(ids, behind), front), None if held is None else np.tile(np.repeat(held, behind), front)


def _matched(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Shortest runs of axes that stand for equally many elements."""
    groups: list[tuple[list[int], list[int]]] = []
    left = right = 0
    while left < len(before) or right < len(after):
        taken, made = [], []
        one: Dim = 1
        other: Dim = 1
        if left < len(before):
            taken.append(left)
            one, left = before[left], left + 1
        if right < len(after):
            made.append(right)
            other, right = after[right], right + 1
        while one != other:
            is_short = isinstance(one, int) and isinstance(other, int) and one < other
            if (is_short or right == len(after)) and left < len(before):
                taken.append(left)
                one, left = one * before[left], left + 1
            elif right < len(after):
                made.append(right)
                other, right = other * after[right], right + 1
            else:
                break
        groups.append((taken, made))
    return groups


def joined(flow: Flow, node: Node) -> Slices | None:
    parts = [flow.of(value) for value in node.inputs]
    axis = node.attrs.get("axis")
    known = [part for part in parts if part is not None]
    if not isinstance(axis, int) or not known or len(known) < len(parts) or len({part.rank for part in known}) > 1:
        return None
    rank = known[0].rank
    axis %= rank
    ids: list[Ids | None] = []
    held: list[Floats | None] = []
    for each in range(rank):
        if each != axis:
            ids.append(flow.together([part.ids[each] for part in known], node))
            held.append(None)
            continue
        joined = [_fixed(flow, node, part.ids[axis], value) for part, value in zip(known, node.inputs, strict=True)]
        if any(one is None for one in joined):
            for one in joined:
                flow.channels.block(one, f"{node.name} joins it with something whose size is not known")
            ids.append(None)
            held.append(None)
            continue
        lists = [one for one in joined if one is not None]
        values = [
            np.full(len(one), math.nan) if part.held[axis] is None else part.held[axis] for one, part in zip(lists, known, strict=True)
        ]
        ids.append(np.concatenate(lists))
        held.append(np.concatenate([one for one in values if one is not None]))
    return Slices(tuple(ids), tuple(held))


def _fixed(flow: Flow, node: Node, ids: Ids | None, value: Value | None) -> Ids | None:
    """Slices of a part; those of one that cannot shrink are made up and stay."""
    if ids is not None:
        return ids
    axis, shape = node.attrs["axis"], flow.shape(value)
    size = shape[axis] if shape is not None else None
    if not isinstance(size, int):
        return None
    made = flow.channels.fresh(size)
    if made is not None:
        flow.channels.block(made, "it is computed from the model's input")
    return made


def split(flow: Flow, node: Node) -> Sequence[Slices] | None:
    x, axis = _first(flow, node), node.attrs.get("axis", 0)
    if x is None or not isinstance(axis, int) or not x.rank or len(node.outputs) < 1:
        return None
    axis %= x.rank
    made: list[Slices] = []
    start = 0
    for value in node.outputs:
        shape = flow.shape(value)
        size = shape[axis] if shape is not None and len(shape) == x.rank else None
        if not isinstance(size, int):
            return None
        made.append(_part(x, axis, start, start + size))
        start += size
    for each, ids in enumerate(x.ids):
        if each == axis and ids is not None and len(ids) != start:
            return None
    return made


def _part(x: Slices, axis: int, start: int, stop: int) -> Slices:
    ids, held = list(x.ids), list(x.held)
    mine, numbers = ids[axis], held[axis]
    ids[axis] = None if mine is None else mine[start:stop]
    held[axis] = None if numbers is None else numbers[start:stop]
    return Slices(tuple(ids), tuple(held))


def part(flow: Flow, node: Node) -> Slices | None:
    """Axes that keep their size pass; of the others everything is needed."""
    return _kept_axes(flow, node, lambda held: held)


def padded(flow: Flow, node: Node) -> Slices | None:
    """Padding adds zeros unless something else is said."""
    is_zero = node.attrs.get("fill", 0) == 0 and _operand(node, 2) is None
    return _kept_axes(flow, node, _zeros_only if is_zero else lambda held: None)


def resized(flow: Flow, node: Node) -> Slices | None:
    """Sizes that change are filled from what is there."""
    return _kept_axes(flow, node, _zeros_only)


def _kept_axes(flow: Flow, node: Node, numbers: Callable[[Floats | None], Floats | None]) -> Slices | None:
    x, before, after = _first(flow, node), flow.shape(node.inputs[0]), flow.shape(node.outputs[0])
    if x is None or before is None or after is None or len(before) != len(after):
        return None
    # Slices that go backwards and padding that cuts off on one side keep sizes, but not places.
    is_straight = all(_least(flow, node, name) >= 0 for name in ("steps", "pads"))
    kept = [old == new and is_straight for old, new in zip(before, after, strict=True)]
    for ids, passes in zip(x.ids, kept, strict=True):
        flow.channels.block(None if passes else ids, f"{node.name} ({node.op}) takes a part of it")
    return Slices(
        tuple(ids if passes else None for ids, passes in zip(x.ids, kept, strict=True)),
        tuple(numbers(held) if passes else None for held, passes in zip(x.held, kept, strict=True)),
    )


def _least(flow: Flow, node: Node, name: str) -> int:
    """Return the smallest of the integers that an attribute or operand holds, 0 where there is none, -1 where they are not known."""
    spec = find_op(node.op)
    found = node.attrs.get(name)
    place = spec.operand_index.get(name) if spec is not None else None
    value = node.inputs[place] if place is not None and place < len(node.inputs) else None
    if found is None and value is not None:
        known = flow.known(value)
        found = (-1,) if known is None else tuple(known.reshape(-1).tolist())
    numbers = found if isinstance(found, tuple | list) else () if found is None else (found,)
    return min((each if isinstance(each, int) else -1 for each in numbers), default=0)


def expanded(flow: Flow, node: Node) -> Slices | None:
    x, before, after = _first(flow, node), flow.shape(node.inputs[0]), flow.shape(node.outputs[0])
    if x is None or before is None or after is None or len(after) < len(before):
        return None
    new = len(after) - len(before)
    ids: list[Ids | None] = [None] * new
    held: list[Floats | None] = [None] * new
    for axis, size in enumerate(before):
        is_same = size == after[new + axis]
        flow.channels.block(None if is_same else x.ids[axis], f"{node.name} repeats it")
        ids.append(x.ids[axis] if is_same else None)
        held.append(x.held[axis] if is_same else None)
    return Slices(tuple(ids), tuple(held))


def without_axis(flow: Flow, node: Node) -> Slices | None:
    x, axis = _first(flow, node), node.attrs.get("axis")
    if x is None or not isinstance(axis, int) or not x.rank:
        return None
    flow.channels.block(x.ids[axis % x.rank], f"{node.name} ({node.op}) takes a part of it")
    return _picked(x, [each for each in range(x.rank) if each != axis % x.rank])


def looked_up(flow: Flow, node: Node) -> Slices | None:
    """Rows are looked up: which ones is not known."""
    weight, shape = _first(flow, node), flow.shape(node.outputs[0])
    axis = node.attrs.get("axis", 0)
    if weight is None or shape is None or not weight.rank or not isinstance(axis, int) or axis % weight.rank:
        return None
    flow.channels.block(weight.ids[0], f"{node.name} ({node.op}) looks it up")
    for value in node.inputs[1:]:
        if value is not None:
            flow.block(value, f"{node.name} ({node.op}) needs all of it")
    front = len(shape) - weight.rank + 1
    return Slices(((None,) * front) + weight.ids[1:], ((None,) * front) + weight.held[1:]) if front >= 0 else None


# -- elementwise -------------------------------------------------------------------------------------------------------


def elementwise(flow: Flow, node: Node) -> Slices | None:
    """Operands are lined up from their last axis; those of size 1 are repeated."""
    operands = [value for value in node.inputs if value is not None]
    known = [(flow.of(value), flow.sizes(value)) for value in operands]
    sizes = flow.sizes(node.outputs[0])
    if flow.type(node.outputs[0]) is None or any(flow.type(value) is None for value in operands) or not operands:
        return None
    ids: list[Ids | None] = []
    held: list[Floats | None] = []
    for axis, size in enumerate(sizes):
        full: list[Ids | None] = []
        numbers: list[Floats | float] = []
        for slices, shape in known:
            assert slices is not None
            place = axis - len(sizes) + len(shape)
            if place < 0 or (shape[place] == 1 and size != 1):
                numbers.append(slices.whole)
                flow.channels.block(slices.ids[place] if place >= 0 else None, f"{node.name} repeats it")
                continue
            full.append(slices.ids[place])
            found = slices.held[place]
            numbers.append(slices.whole if found is None else found)
        together = flow.together(full, node)
        ids.append(together)
        held.append(None if together is None else _applied(node, operands, numbers, len(together)))
    whole = _applied(node, operands, [slices.whole for slices, _ in known if slices is not None], 1)[0] if not sizes else math.nan
    return Slices(tuple(ids), tuple(held), float(whole))


def _applied(node: Node, operands: Sequence[Value], numbers: Sequence[Floats | float], count: int) -> Floats:
    """Return what the operator makes of slices that hold one number each; NaN where one of them does not."""
    vectors = [np.broadcast_to(np.asarray(each, np.float64), (count,)) for each in numbers]
    is_known = np.logical_and.reduce([np.isfinite(each) for each in vectors])
    made = np.full(count, math.nan)
    if is_known.any():
        made = np.where(is_known, _evaluated(node, operands, vectors, count), math.nan)
    if plays(node, OpRole.MULTIPLY):
        # Nothing but a zero matters, as long as the other factor is finite.
        made = np.where(np.logical_or.reduce([each == 0 for each in vectors]), 0.0, made)
    return made


def _evaluated(node: Node, operands: Sequence[Value], vectors: Sequence[Floats], count: int) -> Floats:
    nothing = np.full(count, math.nan)
    spec = find_op(node.op)
    if spec is None or spec.evaluate is None:
        return nothing
    places = iter(vectors)
    values = [None if value is None else next(places) for value in node.inputs]
    vector = tensor(DType.F64, (count,))
    call = OpCall(spec, [None if value is None else vector for value in node.inputs], node.attrs, values, [vector])
    with np.errstate(all="ignore"):
        try:
            found = spec.evaluate(call)
        except Exception:  # an attribute that the operator does not expect: the values stay unknown
            return nothing
    one = found[0] if isinstance(found, list | tuple) else found
    if not isinstance(one, np.ndarray) or one.shape != (count,) or one.dtype.kind not in "fiu":
        return nothing
    return one.astype(np.float64)


def prelu(flow: Flow, node: Node) -> Slices | None:
    x, slope = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    if x is None or slope is None:
        return None
    if slope.rank != 1 or x.rank < 2:
        return elementwise(flow, node) if slope.rank != 1 else None
    ids = x.ids
    if flow.sizes(node.inputs[1]) != (1,):
        if not _attr(node, "per_channel"):
            return elementwise(flow, node)
        ids = (x.ids[0], flow.together((x.ids[1], slope.ids[0]), node), *x.ids[2:])
    else:
        flow.channels.block(slope.ids[0], f"{node.name} repeats it")
    return Slices(ids, tuple(_zeros_only(held) for held in x.held))


def _zeros_only(held: Floats | None) -> Floats | None:
    return None if held is None else np.where(held == 0, 0.0, math.nan)


# -- products ----------------------------------------------------------------------------------------------------------


def _zero_or(held: Floats | None, other: Floats | float, count: int) -> Floats:
    """Return what is left where a slice of a factor is zero: a bias, or nothing."""
    if held is None:
        return np.full(count, math.nan)
    return np.where(held == 0, other, math.nan)


def linear(flow: Flow, node: Node) -> Slices | None:
    x, w = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    bias = flow.of(_operand(node, 2))
    if x is None or w is None or w.rank != 2 or x.rank < 1 or (bias is not None and bias.rank != 1):
        return None
    flow.contract((x.ids[-1], x.held[-1]), (w.ids[1], w.held[1]), node, True)
    rows = w.ids[0] if bias is None else flow.together((w.ids[0], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    made = None if rows is None else _zero_or(w.held[0], added, len(rows))
    # A slice of rows of zeros gives the bias, which is one number only where the bias is.
    front = tuple(None if held is None else _zeros_only(held) for held in x.held[:-1]) if bias is None else (None,) * (x.rank - 1)
    return Slices((*x.ids[:-1], rows), (*front, made))


def matmul(flow: Flow, node: Node) -> Slices | None:
    a, b = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    if a is None or b is None or a.rank < 1 or b.rank < 1:
        return None
    return _product(flow, node, a, b)


def _product(flow: Flow, node: Node, a: Slices, b: Slices) -> Slices:
    inner = -2 if b.rank > 1 else -1
    flow.contract((a.ids[-1], a.held[-1]), (b.ids[inner], b.held[inner]), node, True)
    batch = max(a.rank, b.rank, 2) - 2
    ids: list[Ids | None] = []
    for axis in range(batch):
        places = [(one, axis - batch + one.rank - 2) for one in (a, b)]
        present = [one.ids[place] for one, place in places if place >= 0]
        longest = max((len(each) for each in present if each is not None), default=0)
        for each in present:
            if each is not None and len(each) < longest:
                flow.channels.block(each, f"{node.name} repeats it")
        ids.append(flow.together([each for each in present if each is None or len(each) == longest], node))
    held: list[Floats | None] = [None] * batch
    if a.rank > 1:
        ids.append(a.ids[-2])
        held.append(_zeros_only(a.held[-2]))
    if b.rank > 1:
        ids.append(b.ids[-1])
        held.append(_zeros_only(b.held[-1]))
    return Slices(tuple(ids), tuple(held))


def _transposed(slices: Slices, flag: object) -> Slices:
    return Slices(slices.ids[::-1], slices.held[::-1]) if flag else slices


def gemm(flow: Flow, node: Node) -> Slices | None:
    a, b, c = (flow.of(_operand(node, place)) for place in range(3))
    if a is None or b is None or a.rank != 2 or b.rank != 2 or node.attrs.get("activation"):
        return None
    made = _product(flow, node, _transposed(a, node.attrs.get("trans_a")), _transposed(b, node.attrs.get("trans_b")))
    return _with_added(flow, node, made, c, _operand(node, 2), _factor(node, "beta"))


def addmm(flow: Flow, node: Node) -> Slices | None:
    c, a, b = (flow.of(_operand(node, place)) for place in range(3))
    if a is None or b is None or c is None or a.rank != 2 or b.rank != 2:
        return None
    return _with_added(flow, node, _product(flow, node, a, b), c, _operand(node, 0), _factor(node, "beta"))


def _factor(node: Node, name: str) -> float:
    found = _attr(node, name)
    return float(found) if isinstance(found, int | float) else math.nan


def _with_added(flow: Flow, node: Node, made: Slices, c: Slices | None, value: Value | None, factor: float) -> Slices:
    """Return a product to which something is added that may be repeated over rows."""
    if c is None:
        return made
    sizes, ids = flow.sizes(value), list(made.ids)
    held: list[Floats | None] = [None] * made.rank
    for axis in range(made.rank):
        place = axis - made.rank + c.rank
        found = made.held[axis]
        is_repeated = place < 0 or (sizes[place] == 1 and flow.sizes(node.outputs[0])[axis] != 1)
        if is_repeated:
            flow.channels.block(c.ids[place] if place >= 0 else None, f"{node.name} repeats it")
            added: Floats | float = c.whole
        else:
            ids[axis] = flow.together((made.ids[axis], c.ids[place]), node)
            numbers = c.held[place]
            added = math.nan if numbers is None else numbers
        together = ids[axis]
        if found is not None and together is not None:
            held[axis] = _zero_or(found, np.asarray(added) * factor, len(together))
    return Slices(tuple(ids), tuple(held))


# -- convolutions ------------------------------------------------------------------------------------------------------


def convolution(flow: Flow, node: Node) -> Slices | None:
    x, w, bias = (flow.of(_operand(node, place)) for place in range(3))
    if x is None or w is None or x.rank != w.rank or w.rank < 3 or node.attrs.get("channels_last"):
        return None
    for ids in w.ids[2:]:
        flow.channels.block(ids, f"{node.name} needs the whole kernel")
    groups = _attr(node, "groups")
    rows = w.ids[0] if bias is None else flow.together((w.ids[0], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    count = 0 if rows is None else len(rows)
    made = _zero_or(w.held[0], added, count)
    if groups == 1:
        flow.contract((x.ids[1], x.held[1]), (w.ids[1], w.held[1]), node, not any(_numbers(_attr(node, "pads"))))
    elif rows is not None and isinstance(groups, int):
        rows, made = _grouped(flow, node, x, w, rows, made, groups, added)
    return Slices((x.ids[0], rows, *(None,) * (x.rank - 2)), (None, made if rows is not None else None, *(None,) * (x.rank - 2)))


def _grouped(
    flow: Flow, node: Node, x: Slices, w: Slices, rows: Ids, made: Floats, groups: int, added: Floats | float
) -> tuple[Ids | None, Floats]:
    """Of a grouped convolution only whole groups can go: all that they read with all that they write."""
    channels, taken = flow.channels, x.ids[1]
    channels.block(w.ids[1], f"{node.name} has groups of one size")
    if taken is None or not groups or len(taken) % groups or len(rows) % groups:
        channels.block(rows, f"{node.name} is grouped over something that cannot shrink")
        channels.block(taken, f"{node.name} is grouped over something that cannot shrink")
        return None, made
    inputs, outputs = taken.reshape(groups, -1), rows.reshape(groups, -1)
    for ids in (inputs, outputs):
        channels.unite(np.repeat(inputs[:, 0], ids.shape[1]), ids.reshape(-1))
    held = x.held[1]
    if held is not None:
        is_zero = np.repeat((held.reshape(groups, -1) == 0).all(axis=1), outputs.shape[1])
        made = np.where(is_zero, added, made)
    return rows, made


def _numbers(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, tuple | list) else () if value is None else (value,)


def transposed_convolution(flow: Flow, node: Node) -> Slices | None:
    x, w, bias = (flow.of(_operand(node, place)) for place in range(3))
    is_plain = _attr(node, "groups") == 1 and not node.attrs.get("channels_last")
    if x is None or w is None or x.rank != w.rank or w.rank < 3 or not is_plain:
        return None
    for ids in w.ids[2:]:
        flow.channels.block(ids, f"{node.name} needs the whole kernel")
    flow.contract((x.ids[1], x.held[1]), (w.ids[0], w.held[0]), node, False)
    columns = w.ids[1] if bias is None else flow.together((w.ids[1], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    made = None if columns is None else _zero_or(w.held[1], added, len(columns))
    return Slices((x.ids[0], columns, *(None,) * (x.rank - 2)), (None, made, *(None,) * (x.rank - 2)))


# -- norms, pools, reductions ------------------------------------------------------------------------------------------


def batch_norm(flow: Flow, node: Node) -> Slices | None:
    x, axis = flow.of(_operand(node, 0)), _attr(node, "axis")
    if x is None or x.rank < 2 or not isinstance(axis, int) or node.attrs.get("training"):
        return None
    axis %= x.rank
    given = [flow.of(_operand(node, place)) for place in range(1, 5)]
    ids = flow.together([x.ids[axis], *(one.ids[0] for one in given if one is not None and one.rank == 1)], node)
    if ids is None:
        return Slices((*x.ids[:axis], None, *x.ids[axis + 1 :]), (None,) * x.rank)
    scale, bias, mean, var = (_vector(one, default, len(ids)) for one, default in zip(given, (1.0, 0.0, 0.0, 1.0), strict=True))
    held, epsilon = x.held[axis], _factor(node, "epsilon")
    values = np.full(len(ids), math.nan) if held is None else held
    with np.errstate(all="ignore"):
        made = np.where(scale == 0, bias, (values - mean) / np.sqrt(var + epsilon) * scale + bias)
    return Slices((*x.ids[:axis], ids, *x.ids[axis + 1 :]), (*(None,) * axis, made, *(None,) * (x.rank - axis - 1)))


def _vector(slices: Slices | None, default: float, count: int) -> Floats:
    if slices is None:
        return np.full(count, default)
    held = slices.held[0] if slices.rank == 1 else None
    return np.full(count, math.nan) if held is None or len(held) != count else held


def instance_norm(flow: Flow, node: Node) -> Slices | None:
    x = flow.of(_operand(node, 0))
    if x is None or x.rank < 3:
        return None
    given = [flow.of(_operand(node, place)) for place in (1, 2)]
    ids = flow.together([x.ids[1], *(one.ids[0] for one in given if one is not None and one.rank == 1)], node)
    if ids is None:
        return Slices((x.ids[0], None, *(None,) * (x.rank - 2)), (None,) * x.rank)
    scale, bias = _vector(given[0], 1.0, len(ids)), _vector(given[1], 0.0, len(ids))
    held = x.held[1]
    # A channel that is one number everywhere is its own mean.
    is_flat = scale == 0 if held is None else (scale == 0) | np.isfinite(held)
    return Slices((x.ids[0], ids, *(None,) * (x.rank - 2)), (None, np.where(is_flat, bias, math.nan), *(None,) * (x.rank - 2)))


def along_axis(flow: Flow, node: Node) -> Slices | None:
    """Operators that mix everything along an axis (or from it on, where they say so) and keep the others apart."""
    return _mixed(flow, node, bool(node.attrs.get("from_axis")))


def from_axis_on(flow: Flow, node: Node) -> Slices | None:
    """Operators that mix everything from an axis on and keep the others apart."""
    return _mixed(flow, node, True)


def _mixed(flow: Flow, node: Node, from_axis: bool) -> Slices | None:
    x, axis = flow.of(_operand(node, 0)), _attr(node, "axis")
    if x is None or not isinstance(axis, int) or not x.rank:
        return None
    axis %= x.rank
    mixed = range(axis, x.rank) if from_axis else (axis,)
    for each in mixed:
        flow.channels.block(x.ids[each], f"{node.name} ({node.op}) mixes what lies along it")
    for value in node.inputs[1:]:
        if value is not None:
            flow.block(value, f"{node.name} ({node.op}) mixes what lies along it")
    return Slices(tuple(None if each in mixed else x.ids[each] for each in range(x.rank)), (None,) * x.rank)


def pool(flow: Flow, node: Node) -> Sequence[Slices] | None:
    x = flow.of(_operand(node, 0))
    if x is None or node.attrs.get("channels_last"):
        return None
    spatial = node.attrs.get("spatial") or len(_numbers(node.attrs.get("kernel_shape"))) or x.rank - 2
    if not isinstance(spatial, int) or not 0 < spatial < x.rank:
        return None
    kept = x.rank - spatial
    for ids in x.ids[kept:]:
        flow.channels.block(ids, f"{node.name} ({node.op}) mixes what lies along it")
    first = Slices((*x.ids[:kept], *(None,) * spatial), (*map(_zeros_only, x.held[:kept]), *(None,) * spatial))
    return [first] + [Slices(first.ids, (None,) * x.rank) for _ in node.outputs[1:]]


def reduced(flow: Flow, node: Node) -> Slices | None:
    """Nothing is known of what a slice becomes."""
    return _reduced(flow, node, lambda held: None)


def reduced_to_same(flow: Flow, node: Node) -> Slices | None:
    """Of equal numbers the result is that number: means and extremes."""
    return _reduced(flow, node, lambda held: held)


def reduced_to_zero(flow: Flow, node: Node) -> Slices | None:
    """Of zeros the result is zero: sums."""
    return _reduced(flow, node, _zeros_only)


def _reduced(flow: Flow, node: Node, numbers: Callable[[Floats | None], Floats | None]) -> Slices | None:
    x = flow.of(_operand(node, 0))
    axes = _axes(flow, node, _operand(node, 1))
    if x is None or axes is None:
        return None
    reduced = [axis % x.rank for axis in axes] if axes else list(range(x.rank))
    for axis in reduced:
        flow.channels.block(x.ids[axis], f"{node.name} ({node.op}) mixes what lies along it")
    ids: list[Ids | None] = []
    held: list[Floats | None] = []
    for axis in range(x.rank):
        if axis in reduced:
            if flow.sizes(node.outputs[0]) and _attr(node, "keepdims"):
                ids.append(None)
                held.append(None)
            continue
        ids.append(x.ids[axis])
        held.append(numbers(x.held[axis]))
    return Slices(tuple(ids), tuple(held))


def _axes(flow: Flow, node: Node, value: Value | None) -> list[int] | None:
    """Axes given as an attribute or as a known operand; empty for all, None where they are not known."""
    found = node.attrs.get("axes")
    if found is None and value is not None:
        known = flow.known(value)
        if known is None:
            return None
        found = tuple(known.reshape(-1).tolist())
    listed = _numbers(found)
    return [each for each in listed if isinstance(each, int)] if all(isinstance(each, int) for each in listed) else None
