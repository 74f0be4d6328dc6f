"""Calling operator rules without a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irscope.ir.dims import Dim, SymDim, bind, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import UNKNOWN_TENSOR, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op
from irscope.ops.spec import Known, OpCall, OpSpec


def spec_of(name: str) -> OpSpec:
    found = find_op(name)
    assert found is not None, name
    return found


def f32(*shape: Dim) -> TensorType:
    return tensor(DType.F32, shape)


def i64(*shape: Dim) -> TensorType:
    return tensor(DType.I64, shape)


def infer(name: str, *types: Type | None, values: Sequence[Known | None] = (), results: int = 1, **attrs: Attr) -> tuple[Type, ...]:
    """Types of the results of one use of an operator that has this many results."""
    spec = spec_of(name)
    return spec.infer_types(OpCall(spec, types, attrs, values, [UNKNOWN_TENSOR] * results))


def shape_of(name: str, *types: Type | None, values: Sequence[Known | None] = (), **attrs: Attr) -> tuple[Dim, ...] | None:
    """Shape of the first result."""
    first = infer(name, *types, values=values, **attrs)[0]
    assert isinstance(first, TensorType)
    return first.shape


def cost(name: str, *types: Type | None, values: Sequence[Known | None] = (), results: int = 1, **attrs: Attr) -> Cost | None:
    """Cost of one use, with the results that the operator's own rule gives."""
    spec = spec_of(name)
    made = infer(name, *types, values=values, results=results, **attrs)
    return spec.cost_of(OpCall(spec, types, attrs, values, made))


def evaluate(name: str, *types: Type | None, values: Sequence[Known | None], results: int = 1, **attrs: Attr) -> object:
    """Values of the results of one use."""
    spec = spec_of(name)
    assert spec.evaluate is not None
    made = infer(name, *types, values=values, results=results, **attrs)
    return spec.evaluate(OpCall(spec, types, attrs, values, made))


def agrees_with_symbols(name: str, *types: TensorType | None, results: int = 1, **attrs: Attr) -> None:
    """Sizes named by symbols and bound afterwards give what the sizes themselves give."""
    names: dict[str, int] = {}

    def named(dim: Dim) -> Dim:
        assert not isinstance(dim, SymDim)
        names[f"d{dim}"] = dim
        return symbol(f"d{dim}") if dim > 1 else dim

    symbolic = [None if type_ is None or type_.shape is None else type_.with_shape(map(named, type_.shape)) for type_ in types]
    plain = infer(name, *types, results=results, **attrs)
    formulas = infer(name, *symbolic, results=results, **attrs)
    for left, right in zip(plain, formulas, strict=True):
        assert isinstance(left, TensorType)
        assert isinstance(right, TensorType)
        assert right.shape is not None
        assert left.shape == tuple(bind(dim, names) for dim in right.shape), (name, str(left), str(right))


def of_array(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> TensorType:
    """The type of a numpy array."""
    names = {
        "float32": DType.F32,
        "float64": DType.F64,
        "int64": DType.I64,
        "int32": DType.I32,
        "uint8": DType.U8,
        "int8": DType.I8,
        "bool": DType.BOOL,
    }
    return tensor(names[str(array.dtype)], array.shape)
