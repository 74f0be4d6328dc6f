"""Calls that are answered without an operator: questions about tensors, and lists whose length depends on data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from irscope.errors import LoadError
from irscope.frontends.torch_lowering.dtypes import C10_DTYPES
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.plain import NotKnown
from irscope.frontends.torchscript.values import Item, KnownTensor, TensorList
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ir.types import UNKNOWN_TYPE, TensorType, sequence, tensor

# -- questions that code asks of tensors: sizes, element types, devices ------------------------------------------------


_CODES: dict[DType, int] = {dtype: code for code, dtype in reversed(C10_DTYPES.items())}


def type_of(emitter: Emitter, item: Item) -> TensorType:
    """Return the type of a tensor."""
    if isinstance(item, KnownTensor):
        return tensor(item.dtype, ())
    if isinstance(item, Value) and isinstance(item.type, TensorType):
        return item.type
    raise _not_known(emitter, item, "type")


def _not_known(emitter: Emitter, item: Item, what: str) -> LoadError:
    node = item.node if isinstance(item, Value) else None
    name = (item.name if isinstance(item, Value) else None) or (node.source if node is not None else "a tensor")
    loc = emitter.loc
    return LoadError(
        f"the code asks for the {what} of {name!r}, which is not known",
        code="IRS183",
        where=f"{emitter.path}:{loc.file}:{loc.line}" if loc is not None else emitter.path,
        hint="export the model with torch.export or to ONNX instead",
    )


def _shape_asked(emitter: Emitter, item: Item) -> tuple[Dim, ...]:
    shape = type_of(emitter, item).shape
    if shape is None:
        raise _not_known(emitter, item, "number of axes")
    return shape


def _size_asked(emitter: Emitter, item: Item, axis: Item = None) -> Item:
    shape = _shape_asked(emitter, item)
    if axis is None:
        return list(shape)
    if isinstance(axis, int):
        return shape[axis]
    raise _not_known(emitter, item, "size")


def _len(emitter: Emitter, item: Item) -> Item:
    return _shape_asked(emitter, item)[0]


def _rank_asked(emitter: Emitter, item: Item) -> Item:
    return len(_shape_asked(emitter, item))


def _numel(emitter: Emitter, item: Item) -> Item:
    count = type_of(emitter, item).numel
    if count is None:
        raise _not_known(emitter, item, "size")
    return count


def _dtype_asked(emitter: Emitter, item: Item) -> Item:
    dtype = type_of(emitter, item).dtype
    if dtype not in _CODES:
        raise _not_known(emitter, item, "element type")
    return _CODES[dtype]


def _device_asked(emitter: Emitter, item: Item) -> Item:
    return type_of(emitter, item).device or "cpu"


def _stride(emitter: Emitter, item: Item, axis: Item = None) -> Item:
    type_ = type_of(emitter, item)
    shape = _shape_asked(emitter, item)
    strides: list[Dim] = []
    if isinstance(type_.layout, tuple):
        strides = list(type_.layout)
    else:
        step: Dim = 1
        for size in reversed(shape):
            strides.insert(0, step)
            step = step * size
    return strides[axis] if isinstance(axis, int) else strides


def _is(test: Callable[[TensorType], bool]) -> Callable[..., Item]:
    return lambda emitter, item: test(type_of(emitter, item))


def _is_same_size(emitter: Emitter, item: Item, other: Item) -> Item:
    mine, theirs = _shape_asked(emitter, item), _shape_asked(emitter, other)
    return all(not isinstance(a, SymDim) and a == b for a, b in zip(mine, theirs, strict=False)) and len(mine) == len(theirs)


QUERIES: dict[str, Callable[..., Item]] = {
    "size": _size_asked,
    "sym_size": _size_asked,
    "shape": _size_asked,
    "len": _len,
    "dim": _rank_asked,
    "ndim": _rank_asked,
    "ndimension": _rank_asked,
    "numel": _numel,
    "sym_numel": _numel,
    "dtype": _dtype_asked,
    "device": _device_asked,
    "layout": lambda emitter, item: 0,
    "stride": _stride,
    "sym_stride": _stride,
    "storage_offset": lambda emitter, item: 0,
    "is_cuda": _is(lambda type_: type_.device.startswith("cuda")),
    "is_cpu": _is(lambda type_: type_.device in ("", "cpu")),
    "is_mps": _is(lambda type_: False),
    "is_xpu": _is(lambda type_: False),
    "is_meta": _is(lambda type_: False),
    "is_sparse": _is(lambda type_: type_.layout == "sparse"),
    "is_quantized": _is(lambda type_: False),
    "is_mkldnn": _is(lambda type_: False),
    "is_nested": _is(lambda type_: False),
    "requires_grad": _is(lambda type_: False),
    "is_contiguous": _is(lambda type_: not isinstance(type_.layout, tuple)),
    "is_floating_point": _is(lambda type_: type_.dtype.is_float),
    "is_complex": _is(lambda type_: type_.dtype in (DType.C64, DType.C128)),
    "is_same_size": _is_same_size,
    "get_device": lambda emitter, item: -1,
}


# -- lists of tensors whose length depends on data: sequences in the graph ---------------------------------------------


def to_sequence(emitter: Emitter, items: Sequence[Item] | TensorList) -> Value | None:
    """Return a list as a value of the current graph; None where it holds something other than tensors."""
    if isinstance(items, TensorList):
        return items.value
    values = [emitter.value_of(item) for item in items]
    if not all(isinstance(value, Value) for value in values):
        return None
    if not values:
        # What its elements are shows when something is added to it.
        return emitter.node("seq.empty", (), (sequence(UNKNOWN_TYPE),), "prim::ListConstruct").outputs[0]
    return emitter.op("seq.construct", [value for value in values if isinstance(value, Value)], {}, "prim::ListConstruct")


def call_list(emitter: Emitter, name: str, items: TensorList, args: Sequence[Item], named: Mapping[str, Item]) -> Item:
    """Return a call of torch.NAME whose first argument is such a list."""
    rule = _RULES.get(name)
    if rule is None:
        raise NotKnown
    return rule(emitter, items, [*args, *named.values()])


def _append(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    added = emitter.value_of(args[0])
    if not isinstance(added, Value):
        raise NotKnown
    items.value = emitter.op("seq.insert", (items.value, added), {}, "aten::append")
    return items


def _list_length(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    emitter.op("seq.length", (items.value,), {}, "aten::len")
    return emitter.fresh(0)


def _at(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    position = args[0]
    if not isinstance(position, int | SymDim):
        raise NotKnown
    return emitter.op("seq.at", (items.value, None), {"position": position}, "aten::__getitem__")


def _pop(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    last = _at(emitter, items, args or [-1])
    attrs: dict[str, Attr] = {"position": args[0]} if args and isinstance(args[0], int | SymDim) else {}
    items.value = emitter.op("seq.erase", (items.value, None), attrs, "aten::pop")
    return last


def _join(new_axis: bool) -> Callable[[Emitter, TensorList, list[Item]], Item]:
    def join(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
        axis = args[0].number if args and isinstance(args[0], KnownTensor) else args[0] if args else 0
        if not isinstance(axis, int):
            raise NotKnown
        return emitter.op(
            "seq.concat_from", (items.value,), {"axis": axis, "new_axis": new_axis}, "aten::stack" if new_axis else "aten::cat"
        )

    return join


_RULES: dict[str, Callable[[Emitter, TensorList, list[Item]], Item]] = {
    "append": _append,
    "len": _list_length,
    "__getitem__": _at,
    "pop": _pop,
    "stack": _join(True),
    "cat": _join(False),
    "concat": _join(False),
}
