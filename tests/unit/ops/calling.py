"""Calling an operator's rules on arrays, and holding them against results that somebody else computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irscope.ir.dims import SymDim, bind, bounds, symbol
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.graph import Attr
from irscope.ir.types import ScalarType, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall, OpSpec
from irscope.ops.values import Array

Operand = Array | Type | str | None
"""An array has type and values; a text such as "f32[2,n]" only a type."""

_DTYPES = {
    np.dtype(np.bool_): DType.BOOL,
    np.dtype(np.uint8): DType.U8,
    np.dtype(np.int8): DType.I8,
    np.dtype(np.uint16): DType.U16,
    np.dtype(np.int16): DType.I16,
    np.dtype(np.uint32): DType.U32,
    np.dtype(np.int32): DType.I32,
    np.dtype(np.uint64): DType.U64,
    np.dtype(np.int64): DType.I64,
    np.dtype(np.float16): DType.F16,
    np.dtype(np.float32): DType.F32,
    np.dtype(np.float64): DType.F64,
    np.dtype(np.complex64): DType.C64,
    np.dtype(np.complex128): DType.C128,
    np.dtype(object): DType.I64,
}


def dtype_of(array: Array) -> DType:
    """The element type of an array; objects are integers that may be symbolic."""
    return _DTYPES[array.dtype]


def t(text: str) -> TensorType:
    """A tensor type from a text such as "f32[2,n]"; names are symbols of at least one, * is an unknown rank."""
    dtype, _, rest = text.partition("[")
    inner = rest.rstrip("]")
    if inner == "*":
        return tensor(DTYPES_BY_TEXT[dtype], None)
    sizes = [int(part) if part.lstrip("-").isdigit() else symbol(part) for part in inner.split(",") if part]
    return tensor(DTYPES_BY_TEXT[dtype], sizes)


def spec_of(name: str) -> OpSpec:
    """The record of an operator that must exist."""
    found = find_op(name)
    assert found is not None, name
    return found


def _type(operand: Operand) -> Type | None:
    if isinstance(operand, np.ndarray):
        return tensor(dtype_of(operand), operand.shape)
    return t(operand) if isinstance(operand, str) else operand


def make_call(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], results: Sequence[Type] = ()) -> OpCall:
    """A call with the types and values that the operands have."""
    values = [operand if isinstance(operand, np.ndarray) else None for operand in operands]
    return OpCall(spec_of(name), [_type(operand) for operand in operands], attrs, values, results)


def infer(name: str, *operands: Operand, results: Sequence[Type] = (), **attrs: Attr) -> tuple[Type, ...]:
    """Types of the results."""
    return spec_of(name).infer_types(make_call(name, operands, attrs, results))


def shapes(name: str, *operands: Operand, **attrs: Attr) -> list[str]:
    """Spellings of the results' types."""
    return [str(type_) for type_ in infer(name, *operands, **attrs)]


def shape(name: str, *operands: Operand, **attrs: Attr) -> str:
    """Spelling of the first result's type."""
    return shapes(name, *operands, **attrs)[0]


def evaluate(name: str, *operands: Operand, **attrs: Attr) -> list[Array | None] | None:
    """Values of the results, None where the rule does not tell."""
    spec = spec_of(name)
    types = infer(name, *operands, **attrs)
    assert spec.evaluate is not None, name
    found = spec.evaluate(make_call(name, operands, attrs, types))
    if found is None:
        return None
    return [found] if isinstance(found, np.ndarray) else list(found)


def value(name: str, *operands: Operand, **attrs: Attr) -> Any:
    """The first result's value as nested lists."""
    found = evaluate(name, *operands, **attrs)
    assert found is not None
    assert found[0] is not None
    return found[0].tolist()


def cost(name: str, *operands: Operand, **attrs: Attr) -> Cost:
    """The cost of a call, which must be known."""
    spec = spec_of(name)
    found = spec.cost_of(make_call(name, operands, attrs, infer(name, *operands, **attrs)))
    assert found is not None
    return found


def check(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], expected: Sequence[Array], *, close: float = 1e-5) -> None:
    """Hold every rule of an operator against results of another implementation.

    Types must be exact where values are known. With fewer values, or with symbols for sizes, the answer may say less but
    must not contradict. Values must agree where the rule gives any.
    """
    story = f"{name}({', '.join(str(_type(operand)) for operand in operands)}, {dict(attrs)})"
    exact = spec_of(name).infer_types(make_call(name, operands, attrs, [t("f32[*]")] * len(expected)))
    assert len(exact) >= len(expected), story
    for type_, want in zip(exact, expected, strict=False):
        if isinstance(type_, ScalarType):
            assert want.shape == (), story
            continue
        assert isinstance(type_, TensorType), story
        assert (type_.shape, type_.dtype) == (want.shape, dtype_of(want)), f"{story} -> {type_}, not {dtype_of(want)}{list(want.shape)}"
    _check_less_known(name, operands, attrs, expected, story)
    spec = spec_of(name)
    if spec.evaluate is None or spec.random:
        return
    found = spec.evaluate(make_call(name, operands, attrs, exact))
    if found is None:
        return
    arrays = [found] if isinstance(found, np.ndarray) else list(found)
    for got, want in zip(arrays, expected, strict=False):
        if got is None:
            continue
        assert got.shape == want.shape, story
        assert got.dtype == want.dtype, f"{story}: {got.dtype} is not {want.dtype}"
        if want.size:
            np.testing.assert_allclose(got, want, rtol=close, atol=close, equal_nan=True, err_msg=story)


def _check_less_known(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], expected: Sequence[Array], story: str) -> None:
    without_values = [_type(operand) for operand in operands]
    env: dict[str, int] = {}
    symbolic: list[Operand] = []
    for place, operand in enumerate(operands):
        if isinstance(operand, np.ndarray) and operand.dtype.kind in "fc":
            sizes: list[int | SymDim] = []
            for axis, size in enumerate(operand.shape):
                made = symbol(f"s{place}_{axis}", 0)
                env[str(made)] = size
                sizes.append(made)
            symbolic.append(tensor(dtype_of(operand), sizes))
        else:
            symbolic.append(operand)
    results = [t("f32[*]")] * len(expected)
    spec = spec_of(name)
    for less in (without_values, symbolic):
        types = spec.infer_types(make_call(name, less, attrs, results))
        for type_, want in zip(types, expected, strict=False):
            _check_consistent(type_, want, env, story)


def _check_consistent(type_: Type, want: Array, env: dict[str, int], story: str) -> None:
    if not isinstance(type_, TensorType):
        return
    assert type_.dtype in (dtype_of(want), DType.UNKNOWN), story
    if type_.shape is None:
        return
    assert len(type_.shape) == want.ndim, f"{story} -> {type_}, not {list(want.shape)}"
    for size, wanted in zip(type_.shape, want.shape, strict=True):
        bound = bind(size, env)
        if isinstance(bound, SymDim):
            low, high = bounds(bound)
            assert low is None or low <= wanted, f"{story} -> {type_}, not {list(want.shape)}"
            assert high is None or wanted <= high, f"{story} -> {type_}, not {list(want.shape)}"
        else:
            assert bound == wanted, f"{story} -> {type_}, not {list(want.shape)}"
