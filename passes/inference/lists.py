"""Lists whose elements are known one by one: the types of all of them, not only what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.ir.types import SequenceType, Type, sequence
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.ops.values import as_ints
from irscope.passes.inference.engine import Fact, Inference, Item
from irscope.passes.inference.join import join, renewed

MOST_ITEMS = 256
"""Longer lists are known only by what their elements have in common."""

ListRule = Callable[[Inference, Node, list[Type]], None]


def _items(engine: Inference, node: Node) -> tuple[Item, ...] | None:
    return engine.found.lists.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None


def _item(engine: Inference, value: Value) -> Item:
    return Item(engine.found.type_of(value), engine.found.values.get(value))


def _joined(engine: Inference, types: Sequence[Type]) -> Type:
    return reduce(lambda a, b: join(engine, a, b, "elements of the list differ"), types)


def _position(engine: Inference, node: Node, index: int) -> int | None:
    """The value of an operand that is a position; None where it is not known."""
    value = node.inputs[index] if len(node.inputs) > index else None
    known = engine.found.values.get(value) if value is not None else None
    numbers = as_ints(known) if known is not None else None
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


def _has(node: Node, index: int) -> bool:
    return len(node.inputs) > index and node.inputs[index] is not None


def _say(engine: Inference, node: Node, inferred: list[Type], items: tuple[Item, ...]) -> None:
    """Let the node's first result be the list of these elements."""
    if len(items) > MOST_ITEMS:
        return
    engine.learn(node.outputs[0], Fact(items=items))
    if items:
        inferred[0] = sequence(_joined(engine, [item.type for item in items]))


def _empty(engine: Inference, node: Node, inferred: list[Type]) -> None:
    engine.learn(node.outputs[0], Fact(items=()))


def _construct(engine: Inference, node: Node, inferred: list[Type]) -> None:
    _say(engine, node, inferred, tuple(_item(engine, value) for value in node.inputs if value is not None))


def _insert(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items, added = _items(engine, node), node.inputs[1] if len(node.inputs) > 1 else None
    if items is None or added is None:
        return
    place = _position(engine, node, 2) if _has(node, 2) else len(items)
    if place is not None and -len(items) <= place <= len(items):
        place += len(items) if place < 0 else 0
        _say(engine, node, inferred, (*items[:place], _item(engine, added), *items[place:]))


def _erase(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items = _items(engine, node)
    if not items:
        return
    place = _position(engine, node, 1) if _has(node, 1) else -1
    if place is not None and -len(items) <= place < len(items):
        place %= len(items)
        _say(engine, node, inferred, (*items[:place], *items[place + 1 :]))


def _at(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items, place = _items(engine, node), _position(engine, node, 1)
    if items and place is not None and -len(items) <= place < len(items):
        inferred[0] = items[place].type
        engine.learn(node.outputs[0], Fact(items[place].known))
    else:
        inferred[:] = renewed(engine, inferred)


def _length(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items = _items(engine, node)
    if items is not None:
        engine.learn(node.outputs[0], Fact(np.asarray(len(items), np.int64)))


def _unpack(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items = _items(engine, node)
    if items is None or len(items) != len(node.outputs):
        inferred[:] = [each for type_ in inferred for each in renewed(engine, [type_])]
        return
    for index, item in enumerate(items):
        inferred[index] = item.type
        engine.learn(node.outputs[index], Fact(item.known))


def _split(engine: Inference, node: Node, inferred: list[Type]) -> None:
    x = engine.found.type_of(node.inputs[0] if node.inputs else None)
    if not x.shape:
        return
    axis = int(node.attrs.get("axis") or 0) % len(x.shape)
    if not _has(node, 1):
        whole = x.shape[axis]
        kept = (1,) if node.attrs.get("keepdims", True) else ()
        parts: list[tuple[Dim, ...]] = [kept] * whole if not isinstance(whole, SymDim) and whole <= MOST_ITEMS else []
    else:
        parts = [(size,) for size in _part_sizes(engine, node, x.shape[axis])]
    if parts:
        shapes = [(*x.shape[:axis], *part, *x.shape[axis + 1 :]) for part in parts]
        _say(engine, node, inferred, tuple(Item(x.with_shape(shape)) for shape in shapes))


def _part_sizes(engine: Inference, node: Node, whole: Dim) -> Sequence[int]:
    """Sizes of the parts, none where they are not known."""
    value = node.inputs[1]
    known = engine.found.values.get(value) if value is not None else None
    sizes = as_ints(known) if known is not None else None
    if known is None or sizes is None or not all(size >= 0 for size in sizes):
        return ()
    if known.ndim:
        return sizes
    size = sizes[0]
    if isinstance(whole, SymDim) or size == 0 or whole > MOST_ITEMS * size:
        return ()
    return [size] * (whole // size) + ([whole % size] if whole % size else [])


def _concat(engine: Inference, node: Node, inferred: list[Type]) -> None:
    items, spec = _items(engine, node), find_op("tensor.concat")
    axis = node.attrs.get("axis")
    if not items or spec is None or not isinstance(axis, int):
        return
    types = [item.type for item in items]
    if not node.attrs.get("new_axis"):
        inferred[:1] = spec.infer_types(OpCall(spec, types, {"axis": axis}, context=engine))
        return
    element = _joined(engine, types)
    if element.shape is not None:
        place = axis % (len(element.shape) + 1)
        inferred[0] = element.with_shape((*element.shape[:place], len(items), *element.shape[place:]))


def _same(engine: Inference, node: Node, inferred: list[Type]) -> None:
    """What hands a list on."""
    items = _items(engine, node)
    if items is not None and isinstance(inferred[0], SequenceType):
        engine.learn(node.outputs[0], Fact(items=items))


LIST_RULES: dict[str, ListRule] = {
    "seq.empty": _empty,
    "seq.construct": _construct,
    "seq.insert": _insert,
    "seq.erase": _erase,
    "seq.at": _at,
    "seq.length": _length,
    "seq.unpack": _unpack,
    "seq.split": _split,
    "seq.concat_from": _concat,
    "view.alias": _same,
    "optional.get": _same,
}
