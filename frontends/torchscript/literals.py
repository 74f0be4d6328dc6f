"""Tensors that code makes from numbers it knows: `torch.tensor([0.485, 0.456, 0.406])`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from irscope.frontends.torch_common.dtypes import C10_DTYPES
from irscope.frontends.torchscript.plain import NotKnown
from irscope.frontends.torchscript.values import Item, KnownTensor
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.places import Literal, Scalar
from irscope.ir.types import ScalarType, tensor
from irscope.ops.values import to_array

if TYPE_CHECKING:
    from irscope.frontends.torchscript.emit import Emitter

MAKERS = frozenset({"tensor", "as_tensor", "asarray"})


def make_tensor(emitter: Emitter, args: Sequence[Item], named: Mapping[str, Item]) -> Item:
    """The constant that torch.tensor makes of a number or of nested lists of numbers."""
    data = args[0] if args else named.get("data")
    given = named.get("dtype", args[1] if len(args) > 1 else None)
    dtype = C10_DTYPES.get(given, DType.UNKNOWN) if isinstance(given, int) else None
    if isinstance(data, KnownTensor):
        return KnownTensor(data.number, dtype or data.dtype)
    if isinstance(data, Value):
        if isinstance(data.type, ScalarType):
            return emitter.op("tensor.from_scalar", (data,), {"dtype": dtype or data.type.dtype}, "aten::tensor")
        if dtype is None:
            return emitter.call("aten", "clone", [data], {})
        return emitter.call("aten", "to", [data], {"dtype": given})
    if isinstance(data, bool | int | float | SymDim):
        return KnownTensor(data, dtype or _dtype([data]))
    shape, flat = _flattened(data)
    if any(isinstance(item, KnownTensor | Value | SymDim) for item in flat):
        return _stacked(emitter, data, given)
    numbers = [item for item in flat if isinstance(item, bool | int | float | complex)]
    if len(numbers) != len(flat):
        raise NotKnown
    type_ = tensor(dtype or _dtype(numbers), shape)
    values: list[Scalar] = [float(n) if type_.dtype.is_float and not isinstance(n, complex) else n for n in numbers]
    made = emitter.main.add_weight(type_, None, Role.CONSTANT, Literal(tuple(values)))
    known = to_array(values, type_)
    if known is not None:
        emitter.remember(made, known)
    return made


def _dtype(numbers: Sequence[Item]) -> DType:
    """PyTorch's default element type for some numbers."""
    if any(isinstance(number, complex) for number in numbers):
        return DType.C64
    if not numbers or any(isinstance(number, float) for number in numbers):
        return DType.F32
    return DType.BOOL if all(isinstance(number, bool) for number in numbers) else DType.I64


def _flattened(data: Item) -> tuple[list[int], list[Item]]:
    """Sizes of nested lists, and their elements in order."""
    shape: list[int] = []
    level: list[Item] = [data]
    while level and all(isinstance(item, list | tuple) for item in level):
        rows = [item for item in level if isinstance(item, list | tuple)]
        shape.append(len(rows[0]))
        if any(len(row) != len(rows[0]) for row in rows):
            raise NotKnown
        level = [part for row in rows for part in row]
    return shape, level


def _stacked(emitter: Emitter, data: Item, dtype: Item) -> Item:
    """A list of sizes or of tensors of one element."""
    if not isinstance(data, list | tuple):
        raise NotKnown
    parts = [
        emitter.value_of(item if isinstance(item, Value | KnownTensor) else KnownTensor(_number(item), _dtype([item]))) for item in data
    ]
    made = emitter.call("aten", "stack", [parts], {})
    return made if dtype is None else emitter.call("aten", "to", [made], {"dtype": dtype})


def _number(item: Item) -> bool | int | float | SymDim:
    if not isinstance(item, bool | int | float | SymDim):
        raise NotKnown
    return item
