"""Control flow, and lists, tuples, optional values and dictionaries of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, bounds, dim_max, equal, exact_div
from irscope.ir.dtypes import DType
from irscope.ir.types import (
    UNKNOWN_TYPE,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    map_of,
    optional,
    sequence,
    tensor,
    tuple_of,
)
from irscope.ops.cost import FREE
from irscope.ops.facts import Control
from irscope.ops.registry import find_op
from irscope.ops.rules import axis_attr, dtype_attr, free, handed_on, moved, replaced
from irscope.ops.spec import Absent, CostRule, Facts, Family, Item, Known, Lists, OpCall, OpSpec, RuleError, op
from irscope.ops.values import as_ints

# Lists, tuples, optional values and dictionaries of tensors.


def join(call: OpCall, left: Type, right: Type) -> Type:
    """Return the type of something that has one of two types: sizes that differ are unknown."""
    if left is right:
        return left
    if isinstance(left, TensorType) and isinstance(right, TensorType):
        dtype = left.dtype if left.dtype is right.dtype else DType.UNKNOWN
        if left.shape is None or right.shape is None or len(left.shape) != len(right.shape):
            return tensor(dtype, None, left.device)
        return tensor(dtype, [_join_dims(call, a, b) for a, b in zip(left.shape, right.shape, strict=True)], left.device)
    return UNKNOWN_TYPE


def _join_dims(call: OpCall, left: Dim, right: Dim) -> Dim:
    if equal(left, right) is True:
        return left
    lows = (bounds(left)[0], bounds(right)[0])
    return call.unknown("elements of the list have different sizes", "", min(low or 0 for low in lows), dim_max(left, right))


def _operand(call: OpCall, index: int = 0) -> Type:
    found = call.types[index] if index < len(call.types) else None
    if found is None:
        raise RuleError(f"operand {index} of {call.spec.name} is absent")
    return found


def _list_operand(call: OpCall) -> SequenceType | None:
    """Return the list operand; None where its type is not known."""
    first = _operand(call)
    if isinstance(first, OptionalType):
        first = first.element
    if isinstance(first, SequenceType):
        return first
    if first is UNKNOWN_TYPE or (isinstance(first, TensorType) and first.shape is None):
        return None
    raise RuleError(f"the operand of {call.spec.name} is {first}, not a list")


def _infer_construct(call: OpCall) -> Type:
    types = [type_ for type_ in call.types if type_ is not None]
    if not types:
        return sequence(UNKNOWN_TYPE)
    joined = types[0]
    for type_ in types[1:]:
        joined = join(call, joined, type_)
    return sequence(joined)


def _infer_insert(call: OpCall) -> Type:
    found, added = _list_operand(call), _operand(call, 1)
    if found is None:
        return UNKNOWN_TYPE
    return sequence(added if _says_nothing(found.element, added) else join(call, found.element, added))


def _says_nothing(element: Type, added: Type) -> bool:
    """Return whether the element type is that of a list that was made empty."""
    if element is UNKNOWN_TYPE:
        return True
    return isinstance(element, TensorType) and element.shape is None and isinstance(added, TensorType) and element.dtype is DType.UNKNOWN


def _infer_at(call: OpCall) -> Type:
    first = _operand(call)
    if isinstance(first, TupleType):
        raise RuleError(f"{call.spec.name}: a tuple is not a list")
    listed = _list_operand(call)
    return UNKNOWN_TYPE if listed is None else listed.element


def _infer_unpack(call: OpCall) -> Sequence[Type]:
    first = _operand(call)
    if isinstance(first, TupleType):
        return first.elements
    listed = _list_operand(call)
    return [UNKNOWN_TYPE if listed is None else listed.element] * len(call.results)


def _infer_split(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return sequence(x.with_shape(None))
    axis = axis_attr(call, len(x.shape))
    if not call.given("split"):
        return sequence(x.with_shape(replaced(x.shape, axis, *((1,) if call.attr("keepdims") else ()))))
    return sequence(x.with_shape(replaced(x.shape, axis, _part_size(call, x.shape[axis]))))


def _part_size(call: OpCall, whole: Dim) -> Dim:
    """Return the size of every part, where all have one."""
    given, split = call.dims("split"), call.tensor("split")
    if given is None or split.shape is None:
        return call.unknown("it depends on the values of operand 'split'", "split", 0, whole)
    if split.shape == ():
        size = given[0]
        if exact_div(whole, size) is not None:
            return size
        return call.unknown("the parts of the list have different sizes", "", 0, size if not isinstance(size, SymDim) else whole)
    if given and all(equal(dim, given[0]) is True for dim in given):
        return given[0]
    return call.unknown("the parts of the list have different sizes", "", 0, whole)


def _infer_joined(call: OpCall) -> Type:
    listed = _list_operand(call)
    element = None if listed is None else listed.element
    if not isinstance(element, TensorType):
        return tensor(DType.UNKNOWN, None)
    if element.shape is None:
        return element
    count = call.unknown("it depends on how many tensors the list holds", "")
    if call.attr("new_axis"):
        axis = call.axis(call.int_attr("axis"), len(element.shape) + 1)
        return element.with_shape((*element.shape[:axis], count, *element.shape[axis:]))
    axis = call.axis(call.int_attr("axis"), len(element.shape))
    return element.with_shape(replaced(element.shape, axis, count))


def _infer_make_optional(call: OpCall) -> Type:
    if call.types and call.types[0] is not None:
        return optional(call.types[0])
    declared = call.attr("type")
    return optional(declared if isinstance(declared, Type) else UNKNOWN_TYPE)


def _infer_get_optional(call: OpCall) -> Type:
    first = _operand(call)
    return first.element if isinstance(first, OptionalType) else first


def _infer_tuple(call: OpCall) -> Type:
    return tuple_of(UNKNOWN_TYPE if type_ is None else type_ for type_ in call.types)


def _infer_tuple_get(call: OpCall) -> Type:
    first = _operand(call)
    if not isinstance(first, TupleType):
        return UNKNOWN_TYPE
    index = call.int_attr("index")
    if not -len(first.elements) <= index < len(first.elements):
        raise RuleError(f"{call.spec.name}: index {index} of a tuple of {len(first.elements)}")
    return first.elements[index]


def _infer_map(call: OpCall) -> Type:
    types = [type_ for type_ in call.types if type_ is not None]
    joined: Type = types[0] if types else UNKNOWN_TYPE
    for type_ in types[1:]:
        joined = join(call, joined, type_)
    return map_of(dtype_attr(call, DType.STR, "key_dtype"), joined)


def _infer_map_get(call: OpCall) -> Type:
    first = _operand(call)
    return first.value if isinstance(first, MapType) else UNKNOWN_TYPE


def _one_of(dtype: DType) -> Callable[[OpCall], Type]:
    return lambda call: tensor(dtype, ())


def _empty(call: OpCall) -> Type:
    declared = call.attr("element")
    return sequence(declared if isinstance(declared, Type) else tensor(dtype_attr(call, DType.F32), None))


def _record(
    schema: str, infer: Callable[[OpCall], Type | Sequence[Type]], summary: str, cost: CostRule = free, **facts: Unpack[Facts]
) -> OpSpec:
    return op(schema, Family.SEQUENCE, infer=infer, cost=cost, summary=summary, **facts)


# -- elements that are known one by one ----------------------------------------------------------------------------------

_MOST_PARTS = 256
"""More parts of a tensor are known only by what they have in common."""


def _position(lists: Lists, index: int) -> int | None:
    """Return the value of an operand that is a position; None where it is not known."""
    found = lists.operand(index)
    numbers = as_ints(found.known) if found is not None and found.known is not None else None
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


def _no_items(lists: Lists) -> None:
    lists.is_list(())


def _items_constructed(lists: Lists) -> None:
    items = (lists.operand(index) for index in range(len(lists.call.types)))
    lists.is_list(tuple(item for item in items if item is not None))


def _items_with_one_more(lists: Lists) -> None:
    items, added = lists.items, lists.operand(1)
    if items is None or added is None:
        return
    place = _position(lists, 2) if lists.operand(2) is not None else len(items)
    if place is not None and -len(items) <= place <= len(items):
        place += len(items) if place < 0 else 0
        lists.is_list((*items[:place], added, *items[place:]))


def _items_with_one_less(lists: Lists) -> None:
    items = lists.items
    if not items:
        return
    place = _position(lists, 1) if lists.operand(1) is not None else -1
    if place is not None and -len(items) <= place < len(items):
        place %= len(items)
        lists.is_list((*items[:place], *items[place + 1 :]))


def _item_at(lists: Lists) -> None:
    items, place = lists.items, _position(lists, 1)
    if items and place is not None and -len(items) <= place < len(items):
        lists.is_item(0, items[place])
    else:
        lists.is_any(0)


def _item_count(lists: Lists) -> None:
    items = lists.items
    if items is not None:
        lists.is_item(0, Item(lists.call.results[0], np.asarray(len(items), np.int64)))


def _items_unpacked(lists: Lists) -> None:
    items, count = lists.items, len(lists.call.results)
    for index in range(count):
        if items is None or len(items) != count:
            lists.is_any(index)
        else:
            lists.is_item(index, items[index])


def _items_split(lists: Lists) -> None:
    call = lists.call
    x = call.types[0]
    if not isinstance(x, TensorType) or not x.shape:
        return
    axis = int(call.attrs.get("axis") or 0) % len(x.shape)
    whole, split = x.shape[axis], lists.operand(1)
    if split is None:
        kept = (1,) if call.attrs.get("keepdims", True) else ()
        parts: list[tuple[Dim, ...]] = [kept] * whole if not isinstance(whole, SymDim) and whole <= _MOST_PARTS else []
    else:
        parts = [(size,) for size in _sizes_of_parts(split.known, whole)]
    if parts:
        lists.is_list(tuple(Item(x.with_shape((*x.shape[:axis], *part, *x.shape[axis + 1 :]))) for part in parts))


def _sizes_of_parts(known: Known | None, whole: Dim) -> Sequence[int]:
    """Return sizes of the parts, none where they are not known."""
    sizes = as_ints(known) if known is not None else None
    if known is None or sizes is None or not all(size >= 0 for size in sizes):
        return ()
    if known.ndim:
        return sizes
    size = sizes[0]
    if isinstance(whole, SymDim) or size == 0 or whole > _MOST_PARTS * size:
        return ()
    return [size] * (whole // size) + ([whole % size] if whole % size else [])


def _items_joined(lists: Lists) -> None:
    call, items, concat = lists.call, lists.items, find_op("tensor.concat")
    axis = call.attrs.get("axis")
    if not items or concat is None or not isinstance(axis, int):
        return
    types = [item.type for item in items]
    if not call.attrs.get("new_axis"):
        lists.is_item(0, Item(concat.infer_types(OpCall(concat, types, {"axis": axis}, context=call.context))[0]))
        return
    element = lists.join(types)
    if isinstance(element, TensorType) and element.shape is not None:
        place = axis % (len(element.shape) + 1)
        lists.is_item(0, Item(element.with_shape((*element.shape[:place], len(items), *element.shape[place:]))))


_SEQUENCE = (
    _record("seq.empty(*, dtype? dtype, Type? element) -> Tensor", _empty, "A list without elements.", items=_no_items),
    _record("seq.construct(Tensor(a)[] xs) -> Tensor(a)", _infer_construct, "A list of the operands.", items=_items_constructed),
    _record(
        "seq.insert(Tensor(a) list, Tensor(a) x, Dim? position) -> Tensor(a)",
        _infer_insert,
        "A list with one more element.",
        items=_items_with_one_more,
    ),
    _record(
        "seq.erase(Tensor(a) list, Dim? position) -> Tensor(a)",
        lambda call: _list_operand(call) or UNKNOWN_TYPE,
        "A list with one element less.",
        items=_items_with_one_less,
    ),
    _record("seq.at(Tensor(a) list, Dim position) -> Tensor(a)", _infer_at, "One element of a list.", items=_item_at),
    _record("seq.length(Tensor list) -> Tensor", _one_of(DType.I64), "How many elements a list has.", items=_item_count),
    _record("seq.unpack(Tensor(a) list) -> Tensor(a)[]", _infer_unpack, "Every element of a list or tuple.", items=_items_unpacked),
    _record(
        "seq.split(Tensor x, Tensor? split, *, int axis=0, bool keepdims=True) -> Tensor",
        _infer_split,
        "Cuts an axis into a list of parts: single positions, parts of one size, or of given sizes.",
        moved,
        items=_items_split,
    ),
    _record(
        "seq.concat_from(Tensor list, *, int axis, bool new_axis=False) -> Tensor",
        _infer_joined,
        "Joins the elements of a list along an axis.",
        moved,
        items=_items_joined,
    ),
    _record("optional.make(Tensor(a)? x, *, Type? type) -> Tensor(a)", _infer_make_optional, "A value that may be absent."),
    _record("optional.has(Tensor? x) -> Tensor", _one_of(DType.BOOL), "Whether an optional value is there."),
    _record("optional.get(Tensor(a) x) -> Tensor(a)", _infer_get_optional, "The value of an optional one.", items=handed_on),
    _record("tuple.make(Tensor(a)[] xs) -> Tensor(a)", _infer_tuple, "A tuple of the operands."),
    _record("tuple.get(Tensor(a) x, *, int index) -> Tensor(a)", _infer_tuple_get, "One element of a tuple."),
    _record("map.make(Tensor(a)[] xs, *, str[]? keys, dtype? key_dtype) -> Tensor(a)", _infer_map, "A dictionary of the operands."),
    _record("map.get(Tensor(a) x, *, any? key) -> Tensor(a)", _infer_map_get, "One value of a dictionary."),
)


# Control flow: operators with regions, whose arguments and results the passes carry through.


def _control(schema: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CONTROL, infer=Absent.CONTROL, cost=Absent.CONTROL, summary=summary, **facts)


_CONTROL = (
    _control(
        "cf.if(Tensor condition, Tensor[] captured) -> Tensor[]",
        "Runs one of two regions, the first where the condition holds. Regions take no arguments and yield the results.",
        control=Control.BRANCH,
    ),
    _control(
        "cf.loop(Tensor? trip, Tensor? condition, Tensor[] state) -> Tensor[]",
        "Runs its region up to `trip` times while the condition holds. The region takes (iteration, condition, state...) and yields "
        "(condition, state..., scan outputs...); results are the last state and each scan output stacked over the iterations.",
        control=Control.LOOP,
    ),
    _control(
        "cf.scan(Tensor[] operands, *, int num_scan_inputs, int[] input_axes=[], int[] output_axes=[], int[] input_directions=[], "
        "int[] output_directions=[]) -> Tensor[]",
        "Runs its region for each slice of the last `num_scan_inputs` operands; those before are the state. The region takes "
        "(state..., slices...) and yields (state..., output slices...); results are the last state and the outputs, stacked.",
        control=Control.SCAN,
    ),
    _control(
        "cf.map(Tensor[] operands) -> Tensor[]",
        "Runs its region for each element of its first operand, a sequence, and of further sequences; other operands go in whole. "
        "The region yields one element of each result, a sequence.",
        control=Control.MAP,
    ),
    _control(
        "cf.call(Tensor[] operands, *, str callee) -> Tensor[]",
        "Calls a function of the program. Its arguments are the operands, its yielded values the results.",
        control=Control.CALL,
    ),
    op(
        "cf.assert(Tensor condition, *, str message='') -> ()",
        Family.CONTROL,
        infer=lambda call: (),
        cost=lambda call: FREE,
        has_effect=True,
        summary="Stops the model where the condition does not hold.",
    ),
    op(
        "cf.print(Tensor[] operands, *, str message='') -> ()",
        Family.CONTROL,
        infer=lambda call: (),
        cost=lambda call: FREE,
        has_effect=True,
        summary="Prints values.",
    ),
)


OPS = (*_SEQUENCE, *_CONTROL)
