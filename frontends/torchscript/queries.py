"""Questions that code asks of tensors: sizes, element types, devices."""

from __future__ import annotations

from collections.abc import Callable

from irscope.errors import LoadError
from irscope.frontends.torch_common.dtypes import C10_DTYPES
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.values import Item, KnownTensor
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.types import TensorType, tensor

_CODES: dict[DType, int] = {dtype: code for code, dtype in reversed(C10_DTYPES.items())}


def type_of(emitter: Emitter, item: Item) -> TensorType:
    """The type of a tensor."""
    if isinstance(item, KnownTensor):
        return tensor(item.dtype, ())
    if isinstance(item, Value) and isinstance(item.type, TensorType):
        return item.type
    raise _unknown(emitter, item, "type")


def _unknown(emitter: Emitter, item: Item, what: str) -> LoadError:
    node = item.node if isinstance(item, Value) else None
    name = (item.name if isinstance(item, Value) else None) or (node.source if node is not None else "a tensor")
    loc = emitter.loc
    return LoadError(
        f"the code asks for the {what} of {name!r}, which is not known",
        code="IRS183",
        where=f"{emitter.path}:{loc.file}:{loc.line}" if loc is not None else emitter.path,
        hint="export the model with torch.export or to ONNX instead",
    )


def _shape(emitter: Emitter, item: Item) -> tuple[Dim, ...]:
    shape = type_of(emitter, item).shape
    if shape is None:
        raise _unknown(emitter, item, "number of axes")
    return shape


def _size(emitter: Emitter, item: Item, axis: Item = None) -> Item:
    shape = _shape(emitter, item)
    if axis is None:
        return list(shape)
    if isinstance(axis, int):
        return shape[axis]
    raise _unknown(emitter, item, "size")


def _len(emitter: Emitter, item: Item) -> Item:
    return _shape(emitter, item)[0]


def _rank(emitter: Emitter, item: Item) -> Item:
    return len(_shape(emitter, item))


def _numel(emitter: Emitter, item: Item) -> Item:
    count = type_of(emitter, item).numel
    if count is None:
        raise _unknown(emitter, item, "size")
    return count


def _dtype(emitter: Emitter, item: Item) -> Item:
    dtype = type_of(emitter, item).dtype
    if dtype not in _CODES:
        raise _unknown(emitter, item, "element type")
    return _CODES[dtype]


def _device(emitter: Emitter, item: Item) -> Item:
    return type_of(emitter, item).device or "cpu"


def _stride(emitter: Emitter, item: Item, axis: Item = None) -> Item:
    type_ = type_of(emitter, item)
    shape = _shape(emitter, item)
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
    mine, theirs = _shape(emitter, item), _shape(emitter, other)
    return all(not isinstance(a, SymDim) and a == b for a, b in zip(mine, theirs, strict=False)) and len(mine) == len(theirs)


QUERIES: dict[str, Callable[..., Item]] = {
    "size": _size,
    "sym_size": _size,
    "shape": _size,
    "len": _len,
    "dim": _rank,
    "ndim": _rank,
    "ndimension": _rank,
    "numel": _numel,
    "sym_numel": _numel,
    "dtype": _dtype,
    "device": _device,
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
