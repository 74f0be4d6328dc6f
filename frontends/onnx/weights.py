"""What a tensor of the file is to the model: ONNX itself does not tell parameters from constants."""

from __future__ import annotations

from irscope.ir.dtypes import DType
from irscope.ir.graph import Role
from irscope.ir.types import TensorType

_RARELY_LEARNED = frozenset({DType.I64, DType.I32, DType.U64, DType.U32, DType.BOOL, DType.STR})


def role_of(type_: TensorType) -> Role:
    """Sizes, indices, masks and single numbers are constants, everything else is a parameter.

    Lowering corrects this where an operator says more: running statistics and scales are buffers, integer biases parameters.
    """
    return Role.CONSTANT if not type_.shape or type_.dtype in _RARELY_LEARNED else Role.PARAMETER
