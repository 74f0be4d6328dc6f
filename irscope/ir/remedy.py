"""What a user adds to a command line so that more of a model is known: sizes for symbols, types for inputs.

Every hint that names such options gets them here, so that they name what the model has and hold values that it allows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from irscope.ir.bind import BATCH, SEQUENCE
from irscope.ir.dims import SymDim, bounds
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Value
from irscope.ir.types import TensorType, Type

USUAL_BATCH: Final = 8
USUAL_LENGTH: Final = 128
USUAL_SIZE: Final = 64
_FEW_SIZES: Final = 16
_NUMBERS = (DTypeKind.INT, DTypeKind.UINT, DTypeKind.BOOL)


def bind_option(symbols: Iterable[SymDim], chosen: Mapping[str, int] | None = None) -> str:
    """`--bind batch=8,seq=128` with a size for every symbol that may have one, chosen or usual; empty where none may."""
    sizes = {str(symbol): (chosen or {}).get(str(symbol), example_size(symbol)) for symbol in symbols if not symbol.is_unknown}
    return f"--bind {','.join(f'{name}={sizes[name]}' for name in sorted(sizes))}" if sizes else ""


def over_option(symbol: SymDim) -> str:
    """`--over batch=1..16`: some sizes that the symbol may have."""
    low, high = bounds(symbol)
    first = max(low or 1, 1)
    last = first + _FEW_SIZES - 1 if high is None else min(high, first + _FEW_SIZES - 1)
    return f"--over {symbol}={first}..{last}"


def example_size(symbol: SymDim) -> int:
    """A size for an example: usual for what the symbol is called, and within its limits."""
    name = str(symbol)
    size = USUAL_BATCH if name in BATCH else USUAL_LENGTH if name in SEQUENCE else USUAL_SIZE
    low, high = bounds(symbol)
    size = size if high is None else min(size, high)
    return max(size, low or 0)


def input_option(value: Value) -> str:
    """`--input x=f32[1,3,224,224]`: a type for an input of which the file says too little, as an example of how one is written."""
    type_ = value.type
    dtype = type_.dtype if type_.dtype is not DType.UNKNOWN else DType.F32
    shape = type_.shape
    if shape is None:
        sizes = f"1,{USUAL_LENGTH}" if dtype.kind in _NUMBERS else "1,3,224,224"
    else:
        sizes = ",".join(str(example_size(size) if isinstance(size, SymDim) else size) for size in shape)
    return f"--input {shlex.quote(f'{value.name}={dtype}[{sizes}]')}"


def open_input_option(inputs: Iterable[Value], name: str) -> str:
    """`--input x=f32[batch,3,224,224]`: the first input that has such an axis, with the axis open under that name; empty without."""
    axis = 1 if name in SEQUENCE else 0
    for value in inputs:
        type_ = value.type
        if value.name and type_.shape is not None and len(type_.shape) > axis:
            sizes = [str(size) for size in type_.shape]
            sizes[axis] = name
            typed_input = f"{value.name}={type_.dtype}[{','.join(sizes)}]"
            return f"--input {shlex.quote(typed_input)}"
    return ""


def lacks_shape(type_: Type) -> bool:
    """Whether nothing is known of a tensor's sizes, not even how many there are."""
    return isinstance(type_, TensorType) and type_.shape is None


def typed(options: str) -> str:
    """Options or a command as hints hold them, so that people and programs see where they begin and end."""
    return f"`{options}`"
