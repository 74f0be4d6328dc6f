"""Operators that irscope has no record of: tensors as operands, everything else as attributes."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.frontends.torch_common.signatures import Argument
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value


def foreign_attrs(args: Mapping[str, Argument]) -> tuple[list[Value | None], dict[str, Attr]]:
    """Operands and attributes of a call that is kept as it is."""
    inputs: list[Value | None] = []
    attrs: dict[str, Attr] = {}
    for name, value in args.items():
        if isinstance(value, Value):
            inputs.append(value)
        elif isinstance(value, tuple | list) and any(isinstance(item, Value) for item in value):
            inputs.extend(item for item in value if isinstance(item, Value))
        elif value is not None and is_attr(value):
            attrs[name] = tuple(value) if isinstance(value, list) else value
    return inputs, attrs


def is_attr(value: Argument) -> bool:
    """Whether something can stand as an attribute."""
    if isinstance(value, tuple | list):
        return all(is_attr(item) for item in value)
    return value is None or isinstance(value, bool | int | float | complex | str | SymDim | DType)
