"""What a tensor of the file is to the model: ONNX itself does not tell parameters from constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx

from irscope.errors import LoadError
from irscope.frontends.onnx.elements import pack_field
from irscope.frontends.onnx.tensors import Constant, is_literal
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.payload import Blob, Literal
from irscope.ir.types import UNKNOWN_TENSOR, TensorType, tensor

if TYPE_CHECKING:
    from irscope.frontends.onnx.call import Call

_RARELY_LEARNED = frozenset({DType.I64, DType.I32, DType.U64, DType.U32, DType.BOOL, DType.STR})


def role_of(type_: TensorType) -> Role:
    """Sizes, indices, masks and single numbers are constants, everything else is a parameter.

    Lowering corrects this where an operator says more: running statistics and scales are buffers, integer biases parameters.
    """
    return Role.CONSTANT if not type_.shape or type_.dtype in _RARELY_LEARNED else Role.PARAMETER


def of_attributes(call: Call, roles: Mapping[str, Role], shapes: Mapping[str, tuple[int, ...]] | None = None) -> list[Value]:
    """Numbers that the file keeps in attributes of a node, as weights called "NODE.ATTRIBUTE".

    The node takes them as its last operands, so that they count wherever weights do. `shapes` are those of flat lists.
    """
    found: list[Value] = []
    for name, role in roles.items():
        constant = _stored(call, name, (shapes or {}).get(name))
        if constant is not None:
            found.append(_declared(call, name, role, constant))
    return found


def opaque_weight(call: Call, name: str) -> Value:
    """Opaque weights: their number and size are unknown."""
    return _declared(call, name, Role.PARAMETER, Constant(UNKNOWN_TENSOR, None))


def _declared(call: Call, name: str, role: Role, constant: Constant) -> Value:
    body = call.body
    owner = next((output for output in call.outputs if output), "") or call.name
    shared = body.constants if not call.depends_on_caller else None
    key = f"{owner}.{name}"
    if shared is not None and key in shared:
        return shared[key]
    made = body.model.add_weight(constant, f"{body.shown_name(call.name or owner)}.{name}")
    made.role = role
    if shared is not None:
        shared[key] = made
    return made


def _stored(call: Call, name: str, shape: tuple[int, ...] | None) -> Constant | None:
    """The numbers in an attribute; None where there are none."""
    value = call.attrs.get(name)
    if isinstance(value, onnx.TensorProto):
        try:
            return call.body.model.tensors.read(value, f"{call.name}.{name}")
        except LoadError:
            return Constant(UNKNOWN_TENSOR, None)
    if not isinstance(value, tuple) or not value:
        return None
    numbers = [item for item in value if isinstance(item, int | float)]
    if len(numbers) < len(value):
        return None
    dtype = DType.F32 if any(isinstance(item, float) for item in numbers) else DType.I64
    data = Literal(tuple(numbers)) if is_literal(dtype, len(numbers)) else Blob(pack_field(numbers, dtype))
    return Constant(tensor(dtype, shape or (len(numbers),)), data)
