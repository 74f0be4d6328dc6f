"""Arrays of values: conversion, wrapping, symbols."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.values import apply, as_ints, dims_array, is_symbolic, numpy_dtype, objects, round_to, settle, static_shape, to_array

N = symbol("n")


def test_every_element_type_has_an_array_type() -> None:
    for dtype in DType:
        held = numpy_dtype(dtype)
        if dtype.bits in (16, 32, 64) and dtype is not DType.BF16:
            assert held.itemsize * 8 == dtype.bits


def test_symbols_are_found() -> None:
    assert is_symbolic(objects([N, 1], (2,)))
    assert not is_symbolic(objects(["text"], (1,)))
    assert not is_symbolic(np.array([1]))
    assert as_ints(objects([N, 1], (2,))) is None
    assert as_ints(np.array([[3, 4]])) == (3, 4)


@pytest.mark.parametrize(
    ("number", "dtype", "want"), [(300, DType.U8, 44), (-1, DType.U4, 15), (9, DType.I4, -7), (2**63, DType.I64, -(2**63))]
)
def test_integers_wrap(number: int, dtype: DType, want: int) -> None:
    assert settle(objects([number], (1,)), dtype).tolist() == [want]


def test_dims_become_arrays() -> None:
    assert dims_array((2, 3)).dtype == np.int64
    assert dims_array((2, N)).tolist() == [2, N]


def test_literals_become_arrays() -> None:
    assert to_array((1, 2, 3, 4), tensor(DType.I32, (2, 2))).tolist() == [[1, 2], [3, 4]]  # type: ignore[union-attr]  # static shape
    assert to_array((7,), tensor(DType.I32, (3,))).tolist() == [7, 7, 7]  # type: ignore[union-attr]  # static shape
    assert to_array((7,), tensor(DType.I32, (N,))) is None
    assert static_shape(tensor(DType.F32, (2, N))) is None
    assert static_shape(tensor(DType.F32, ())) == ()


def test_function_of_symbols() -> None:
    found = apply([objects([N, 2], (2,)), np.array([[1], [2]])], np.add, lambda a, b: a + b, DType.I64)
    assert found is not None
    assert found.tolist() == [[N + 1, 3], [N + 2, 4]]
    assert apply([objects([N], (1,))], np.exp, None, DType.F32) is None


@pytest.mark.parametrize(
    ("number", "dtype", "want"),
    [
        (1.0, DType.BF16, 1.0),
        (1.00390625, DType.BF16, 1.0),
        (1.01171875, DType.BF16, 1.015625),
        (5.0, DType.F4E2M1, 4.0),
        (100.0, DType.F4E2M1, 6.0),
    ],
)
def test_halves_round_to_even(number: float, dtype: DType, want: float) -> None:
    assert round_to(np.array([number]), dtype).tolist() == [want]


def test_too_large_numbers() -> None:
    assert np.isnan(round_to(np.array([1e9]), DType.F8E4M3FN)[0])
    assert round_to(np.array([1e9]), DType.F8E4M3FN, saturate=True).tolist() == [448.0]
    assert round_to(np.array([-1e9]), DType.F8E5M2).tolist() == [-np.inf]
