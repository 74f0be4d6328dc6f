"""Operators that only TorchScript has, and that irscope has no records of: quantised layers with packed weights, oneDNN's.

They stay foreign; their results' types are told here, and the weights inside packed objects become operands, so that they count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.frontends.torch_common.dtypes import C10_DTYPES
from irscope.frontends.torchscript.source import ScriptClass
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptObject
from irscope.ir.dims import Dim, floordiv
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.types import TensorType, Type, tensor

_PACKED = ScriptClass("packed weights", "")
_SETTINGS = ("stride", "padding", "dilation", "groups")
Fresh = Callable[[], Dim]


def pack(name: str, args: Sequence[Item]) -> ScriptObject | None:
    """What `quantized.linear_prepack(weight, bias)` and its like return; None where the name is another."""
    if "_prepack" not in name:
        return None
    made = ScriptObject(_PACKED, {"weight": args[0], "bias": args[1] if len(args) > 1 else None})
    rest = args[3:] if name.startswith("conv_transpose") else args[2:]
    made.attrs.update(zip(_SETTINGS, rest, strict=False))
    return made


def unpack(name: str, args: Sequence[Item]) -> tuple[Item, ...] | None:
    """The weight and bias in a packed object."""
    if "_unpack" not in name or not args or not isinstance(args[0], ScriptObject):
        return None
    return args[0].attrs.get("weight"), args[0].attrs.get("bias")


def flattened(args: Sequence[Item]) -> list[Item]:
    """Arguments with the tensors of packed objects in the objects' place."""
    found: list[Item] = []
    pending = list(reversed(args))
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if not isinstance(item, ScriptObject):
            found.append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            pending.extend(reversed([part for part in _parts(item) if isinstance(part, Value | ScriptObject)]))
    return found


def _parts(item: ScriptObject) -> list[Item]:
    parts: list[Item] = []
    for part in item.attrs.values():
        parts.extend(part if isinstance(part, list | tuple) else (part,))
    return parts


def result_type(namespace: str, name: str, args: Sequence[Item], fresh: Fresh) -> Type | None:
    """The type of a foreign operator's one result; None where nothing is known of it."""
    first = _type(args[0]) if args else None
    if first is None:
        return None
    if name in _SAME:
        return first
    if name in _RETYPED:
        return _with_dtype(first, _RETYPED[name](args))
    if name == "mkldnn_convolution" and len(args) > 1:
        return _unknown_convolution(first, fresh)
    if namespace != "quantized":
        return None
    return _quantized(name, first, args, fresh)


def _quantized(name: str, first: TensorType, args: Sequence[Item], fresh: Fresh) -> Type | None:
    packed = next((arg for arg in args if isinstance(arg, ScriptObject)), None)
    dtype = DType.F32 if "_dynamic" in name else first.dtype
    weight = _weight(packed) if packed is not None else None
    if packed is not None and weight is None:
        return tensor(dtype, None)
    if name.startswith("linear") and weight is not None and weight.shape and first.shape:
        return tensor(dtype, (*first.shape[:-1], weight.shape[0]))
    if name.startswith("conv") and packed is not None and weight is not None:
        if "transpose" in name:
            return _unknown_convolution(first.with_dtype(dtype), fresh)
        return _convolution(first, weight, packed, dtype)
    others = [type_ for arg in args[1:] if (type_ := _type(arg)) is not None and type_.shape]
    if packed is None and all(other.shape == first.shape for other in others):
        return first
    return tensor(first.dtype, None)


def _type(item: Item) -> TensorType | None:
    if isinstance(item, KnownTensor):
        return tensor(item.dtype, ())
    if isinstance(item, list | tuple) and item:
        return _type(item[0])
    return item.type if isinstance(item, Value) and isinstance(item.type, TensorType) else None


def _with_dtype(type_: TensorType, dtype: DType) -> TensorType:
    return tensor(dtype, type_.shape, type_.device)


def _code(position: int) -> Callable[[Sequence[Item]], DType]:
    def read(args: Sequence[Item]) -> DType:
        code = args[position] if position < len(args) else None
        return C10_DTYPES.get(code, DType.UNKNOWN) if isinstance(code, int) else DType.UNKNOWN

    return read


def _weight(packed: ScriptObject) -> TensorType | None:
    """The type of a packed object's weight: its tensor of most axes."""
    types = [type_ for item in flattened([packed]) if (type_ := _type(item)) is not None and type_.shape]
    return max(types, key=lambda type_: len(type_.shape or ()), default=None)


def _convolution(x: TensorType, weight: TensorType, packed: ScriptObject, dtype: DType) -> TensorType:
    if x.shape is None or weight.shape is None:
        return tensor(dtype, None)
    axes = len(x.shape) - 2
    stride, padding, dilation = (_sizes(packed, key, axes, default) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1)))
    sizes = [
        floordiv(size + 2 * p - d * (kernel - 1) - 1, s) + 1
        for size, kernel, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=False)
    ]
    return tensor(dtype, (x.shape[0], weight.shape[0], *sizes))


def _sizes(packed: ScriptObject, key: str, axes: int, default: int) -> list[int]:
    found = packed.attrs.get(key)
    sizes = [item for item in found if isinstance(item, int)] if isinstance(found, list | tuple) else []
    return (sizes * axes)[:axes] if sizes else [default] * axes


def _unknown_convolution(x: TensorType, fresh: Fresh) -> TensorType:
    """A convolution whose weight is not in the file as a tensor."""
    if x.shape is None:
        return x
    return x.with_shape((x.shape[0], *(fresh() for _ in x.shape[1:])))


_SAME = frozenset({"to_mkldnn", "to_dense", "mkldnn_reorder_conv2d_weight"})
_RETYPED: dict[str, Callable[[Sequence[Item]], DType]] = {
    "dequantize": lambda args: DType.F32,
    "quantize_per_tensor": _code(3),
    "quantize_per_channel": _code(4),
    "quantize_per_tensor_dynamic": _code(1),
}
