"""How slices pass operators that only move elements: views, copies, joins and parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from irscope.ir.dims import Dim, SymDim, product
from irscope.ir.graph import Node, Value
from irscope.ops.registry import find_op
from irscope.passes.pruning.channels import Ids
from irscope.passes.pruning.flow import Floats, Flow, Rule, Slices


def _first(flow: Flow, node: Node) -> Slices | None:
    return flow.of(node.inputs[0]) if node.inputs else None


def _same(flow: Flow, node: Node) -> Slices | None:
    return _first(flow, node)


def _cast(flow: Flow, node: Node) -> Slices | None:
    x, made = _first(flow, node), flow.type(node.outputs[0])
    if x is None or made is None:
        return None
    return x if made.dtype.is_float else Slices(x.ids, (None,) * x.rank)


def _dropout(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    return None if x is None else Slices(x.ids, tuple(_zeros(held) for held in x.held))


def _zeros(held: Floats | None) -> Floats | None:
    return None if held is None else np.where(held == 0, 0.0, math.nan)


def _picked(x: Slices, order: Sequence[int]) -> Slices:
    return Slices(tuple(x.ids[axis] for axis in order), tuple(x.held[axis] for axis in order), x.whole)


def _permute(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    if x is None:
        return None
    perm = node.attrs.get("perm")
    order = [int(axis) % x.rank for axis in perm] if isinstance(perm, tuple | list) else list(reversed(range(x.rank)))
    return _picked(x, order) if sorted(order) == list(range(x.rank)) else None


def _transpose(flow: Flow, node: Node) -> Slices | None:
    x = _first(flow, node)
    one, other = node.attrs.get("axis0"), node.attrs.get("axis1")
    if x is None or not isinstance(one, int) or not isinstance(other, int) or not x.rank:
        return None
    order = list(range(x.rank))
    order[one % x.rank], order[other % x.rank] = order[other % x.rank], order[one % x.rank]
    return _picked(x, order)


def _regroup(flow: Flow, node: Node) -> Slices | None:
    """Axes of the operand and of the result are matched from the front by how many elements they stand for."""
    x, before, after = _first(flow, node), flow.types.type_of(node.inputs[0]).shape, flow.types.type_of(node.outputs[0]).shape
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


def _concat(flow: Flow, node: Node) -> Slices | None:
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
    axis, shape = node.attrs["axis"], flow.types.type_of(value).shape
    size = shape[axis] if shape is not None else None
    if not isinstance(size, int):
        return None
    made = flow.channels.fresh(size)
    if made is not None:
        flow.channels.block(made, "it is computed from the model's input")
    return made


def _split(flow: Flow, node: Node) -> Sequence[Slices] | None:
    x, axis = _first(flow, node), node.attrs.get("axis", 0)
    if x is None or not isinstance(axis, int) or not x.rank or len(node.outputs) < 1:
        return None
    axis %= x.rank
    made: list[Slices] = []
    start = 0
    for value in node.outputs:
        shape = flow.types.type_of(value).shape
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


def _narrowed(flow: Flow, node: Node) -> Slices | None:
    """Axes that keep their size pass; of the others everything is needed."""
    x, before, after = _first(flow, node), flow.types.type_of(node.inputs[0]).shape, flow.types.type_of(node.outputs[0]).shape
    if x is None or before is None or after is None or len(before) != len(after):
        return None
    # Slices that go backwards and padding that cuts off on one side keep sizes, but not places.
    is_straight = all(_least(flow, node, name) >= 0 for name in ("steps", "pads"))
    kept = [old == new and is_straight for old, new in zip(before, after, strict=True)]
    for ids, passes in zip(x.ids, kept, strict=True):
        flow.channels.block(None if passes else ids, f"{node.name} ({node.op}) takes a part of it")
    is_plain = node.op in ("view.slice", "view.narrow")
    return Slices(
        tuple(ids if passes else None for ids, passes in zip(x.ids, kept, strict=True)),
        tuple((held if is_plain else _filled(held, node)) if passes else None for held, passes in zip(x.held, kept, strict=True)),
    )


def _least(flow: Flow, node: Node, name: str) -> int:
    """The smallest of the integers that an attribute or operand holds, 0 where there is none, -1 where they are not known."""
    spec = find_op(node.op)
    found = node.attrs.get(name)
    place = spec.operand_index.get(name) if spec is not None else None
    value = node.inputs[place] if place is not None and place < len(node.inputs) else None
    if found is None and value is not None:
        known = flow.types.values.get(value)
        found = (-1,) if known is None else tuple(known.reshape(-1).tolist())
    numbers = found if isinstance(found, tuple | list) else () if found is None else (found,)
    return min((each if isinstance(each, int) else -1 for each in numbers), default=0)


def _filled(held: Floats | None, node: Node) -> Floats | None:
    """Padding adds zeros unless something else is said, and sizes that change are filled from what is there."""
    is_zero = node.op != "tensor.pad" or (node.attrs.get("fill", 0) == 0 and (len(node.inputs) < 3 or node.inputs[2] is None))
    return _zeros(held) if is_zero else None


def _expand(flow: Flow, node: Node) -> Slices | None:
    x, before, after = _first(flow, node), flow.types.type_of(node.inputs[0]).shape, flow.types.type_of(node.outputs[0]).shape
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


def _select(flow: Flow, node: Node) -> Slices | None:
    x, axis = _first(flow, node), node.attrs.get("axis")
    if x is None or not isinstance(axis, int) or not x.rank:
        return None
    flow.channels.block(x.ids[axis % x.rank], f"{node.name} ({node.op}) takes a part of it")
    return _picked(x, [each for each in range(x.rank) if each != axis % x.rank])


def _embedding(flow: Flow, node: Node) -> Slices | None:
    """Rows are looked up: which ones is not known."""
    weight, shape = _first(flow, node), flow.types.type_of(node.outputs[0]).shape
    axis = node.attrs.get("axis", 0)
    if weight is None or shape is None or not weight.rank or not isinstance(axis, int) or axis % weight.rank:
        return None
    flow.channels.block(weight.ids[0], f"{node.name} ({node.op}) looks it up")
    for value in node.inputs[1:]:
        if value is not None:
            flow.block(value, f"{node.name} ({node.op}) needs all of it")
    front = len(shape) - weight.rank + 1
    return Slices(((None,) * front) + weight.ids[1:], ((None,) * front) + weight.held[1:]) if front >= 0 else None


MOVING: Mapping[str, Rule] = {
    **dict.fromkeys(("view.alias", "view.contiguous", "tensor.copy"), _same),
    **dict.fromkeys(("tensor.cast", "tensor.to"), _cast),
    "nn.dropout": _dropout,
    "view.permute": _permute,
    "view.transpose": _transpose,
    **dict.fromkeys(
        ("view.reshape", "view.flatten", "view.flatten_2d", "view.unflatten", "view.squeeze", "view.unsqueeze"),
        _regroup,
    ),
    "tensor.concat": _concat,
    **dict.fromkeys(("view.split", "view.chunk", "view.tensor_split"), _split),
    **dict.fromkeys(("view.slice", "view.narrow", "tensor.pad", "vision.resize"), _narrowed),
    "view.expand": _expand,
    "view.select": _select,
    "nn.embedding": _embedding,
    "tensor.gather": _embedding,
}
