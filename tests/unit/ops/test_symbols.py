"""Small values and shapes whose sizes are symbols, and the arrays that hold them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from irscope.ir.dims import SymDim, bind, bounds, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.spec import RuleError
from irscope.ops.values import (
    Array,
    apply,
    as_ints,
    dims_array,
    is_symbolic,
    numpy_dtype,
    objects,
    round_to,
    settle,
    static_shape,
    to_array,
)
from tests.unit.ops.calling import evaluate, infer, make_call, shape, shapes, spec_of, value

# Shapes and small values whose sizes are symbols.

N, S, B = symbol("n"), symbol("s"), symbol("b")
END = 2**63 - 1


def dims(*items: Any) -> Array:
    """A vector of integers, some symbolic."""
    return objects(items, (len(items),))


@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({"shape": (0, 0, 12, 64), "zero": "copy"}, "f32[b,s,12,64]"),
        ({"shape": (B, S, 12, -1)}, "f32[b,s,12,64]"),
        ({"shape": (B, -1, 12, 64)}, "f32[b,s,12,64]"),
        ({"shape": (-1, 768)}, "f32[b*s,768]"),
        ({"shape": (-1, 7)}, "f32[109*b*s + (5*b*s)//7,7]"),
    ],
)
def test_reshape(attrs: dict[str, Any], want: str) -> None:
    assert shape("view.reshape", "f32[b,s,768]", **attrs) == want


def test_reshape_records_what_it_assumes() -> None:
    call = make_call("view.reshape", ["f32[n]"], {"shape": (-1, 4)})
    assert str(spec_of("view.reshape").infer_types(call)[0]) == "f32[n//4,4]"
    assert [(str(left), right) for left, right, _ in call.context.assumptions] == [("n%4", 0)]


def test_reshape_to_unknown_sizes() -> None:
    assert shape("view.reshape", "f32[b,4]", "i64[1]") == "f32[4*b]"
    assert shape("view.reshape", "f32[b,4]", "i64[2]") == "f32[?u0,?u1]"
    assert shape("view.reshape", "f32[b,4]", "i64[*]") == "f32[*]"


@pytest.mark.parametrize(
    ("target", "want"), [((0, 16, -1), "f32[b,16,n//5 - 1]"), ((0, 4, 4, -1), "f32[b,4,4,n//5 - 1]"), ((-1, 16, 1, 0), "f32[b,16,1,4]")]
)
def test_sizes_of_the_input_are_never_taken_for_an_open_one(target: tuple[int, ...], want: str) -> None:
    """Bounds alone do not tell that n//5 - 1 is not -1."""
    (made,) = infer("nn.conv", "f32[b,1,n]", "f32[16,1,10]", strides=(5,), pads=(0, 0))
    assert str(made) == "f32[b,16,n//5 - 1]"
    x = made if target[-1] == -1 else tensor(DType.F32, (B, 16, 1, 4))
    assert shape("view.reshape", x, shape=target, zero="copy") == want


def test_a_slice_of_what_may_be_empty() -> None:
    (made,) = infer("nn.conv", "f32[b,1,n]", "f32[16,1,10]", strides=(5,), pads=(0, 0))
    assert shape("view.slice", made, starts=(0,), ends=(END,), axes=(2,)) == "f32[b,16,n//5 - 1]"
    assert shape("view.slice", made, starts=(0,), ends=(-1,), axes=(2,)) == "f32[b,16,max(n//5 - 2, 0)]"


@pytest.mark.parametrize("divisor", [2, 3, -4, N])
@pytest.mark.parametrize("dividend", [S - 3, (N - 5) * 2, -N, symbol("any", None)])
def test_division_toward_zero(dividend: SymDim, divisor: Any) -> None:
    (found,) = value("math.div", dims(dividend), dims(divisor), rounding_mode="c")
    for n, s, other in product(range(1, 9), range(1, 9), (-7, -4, -1, 0, 1, 3, 8)):
        sizes = {"n": n, "s": s, "any": other}
        over, under = bind(dividend, sizes), bind(divisor, sizes)
        assert isinstance(over, int) and isinstance(under, int)
        assert bind(found, sizes) == int(over / under), sizes


@pytest.mark.parametrize("target", [(7, -1), (-1, -1), (5,), (-2, 12)])
def test_reshape_that_cannot_be(target: tuple[int, ...]) -> None:
    with pytest.raises(RuleError):
        infer("view.reshape", "f32[2,6]", shape=target)


@pytest.mark.parametrize(
    ("start", "end", "step", "want"),
    [
        (0, -1, 1, "n - 1"),
        (1, END, 1, "n - 1"),
        (-1, END, 1, "1"),
        (0, 5, 1, "min(n, 5)"),
        (0, END, 2, "(n + 1)//2"),
        (-1, -END, -1, "n"),
        (0, N, 1, "n"),
        (3, 3, 1, "0"),
    ],
)
def test_slice(start: int, end: Any, step: int, want: str) -> None:
    assert shape("view.slice", "f32[n]", starts=(start,), ends=(end,), steps=(step,)) == f"f32[{want}]"


def test_slice_with_unknown_limits_is_bounded() -> None:
    sliced = infer("view.slice", "f32[8,n]", "i64[1]", "i64[1]", np.array([0]))[0]
    size, other = sliced.shape
    assert size.is_unknown
    assert bounds(size) == (0, 8)
    assert other == N


def test_expand_and_broadcast() -> None:
    assert shape("view.expand", "f32[1,s]", shape=(B, 1, 1)) == "f32[b,1,s]"
    assert shape("view.expand", "f32[b,1,s]", shape=(-1, N, -1), mode="keep") == "f32[b,n,s]"
    assert shape("math.add", "f32[n,1]", "f32[1,s]") == "f32[n,s]"
    assert shape("math.add", "f32[n]", "f32[5]") == "f32[5]"
    assert shape("math.add", "f32[n]", "f32[n]") == "f32[n]"
    assert shape("math.add", "f32[*]", "f32[n]") == "f32[*]"
    with pytest.raises(RuleError, match="do not broadcast"):
        infer("math.add", "f32[4]", "f32[3]")


def test_parts() -> None:
    assert shapes("view.split", "f32[n,8]", size=3, axis=1) == ["f32[n,3]", "f32[n,3]", "f32[n,2]"]
    assert shapes("view.split", "f32[n,8]", np.array([6, 2]), axis=1) == ["f32[n,6]", "f32[n,2]"]
    assert shape("tensor.concat", "f32[n,8]", "f32[s,8]", axis=0) == "f32[n + s,8]"
    assert shape("tensor.pad", "f32[n,8]", pads=(1, 0, 1, 0)) == "f32[n + 2,8]"
    assert shape("tensor.tile", "f32[n,8]", repeats=(S, 2)) == "f32[n*s,16]"
    assert shape("tensor.arange", start=S, limit=S + N) == "i64[n]"


def test_sizes_that_depend_on_values() -> None:
    for name, operands in {
        "tensor.nonzero": ["f32[3,4]"],
        "tensor.masked_select": ["f32[3,4]", "bool[3,4]"],
        "tensor.unique": ["i64[12]"],
        "tensor.compress": ["f32[12]", "bool[12]"],
    }.items():
        call = make_call(name, operands, {})
        first = spec_of(name).infer_types(call)[0]
        size = first.shape[0]
        assert size.is_unknown
        assert bounds(size)[1] == 12
        reason, decided_by = call.context.reasons[str(size)]
        assert reason
        assert decided_by in spec_of(name).operand_index


def test_squeeze_of_a_size_that_may_be_one() -> None:
    assert shape("view.squeeze", "f32[n,1,8]") == "f32[*]"
    assert shape("view.squeeze", "f32[n,1,8]", axes=(1,)) == "f32[n,8]"
    assert shape("view.squeeze", "f32[n,1,8]", axes=(0,), strict=True) == "f32[1,8]"


def test_arithmetic_on_sizes() -> None:
    assert value("tensor.shape", "f32[n,3,s]") == [N, 3, S]
    assert value("tensor.shape", "f32[n,3,s]", start=-2, end=3) == [3, S]
    assert value("math.add", dims(N, 2), np.array([1, 1])) == [N + 1, 3]
    assert value("math.div", dims(N * 4), np.array([2]), rounding_mode="c") == [N * 2]
    assert value("math.mod", dims(N * 4), np.array([4])) == [0]
    assert value("math.where", np.array([True, False]), dims(N, S), np.array([1, 1])) == [N, 1]
    assert value("compare.equal", dims(N, 4), np.array([-1, 4])) == [False, True]
    assert value("reduce.prod", dims(N, S, 3)) == N * S * 3
    assert value("tensor.gather", dims(N, S, B), np.array(1)) == S
    assert value("tensor.concat", dims(N), np.array([-1, 3]), axis=0) == [N, -1, 3]
    assert value("view.slice", dims(N, S, B), starts=(1,), ends=(END,)) == [S, B]
    assert value("tensor.cast", dims(N, 3), to=DType.I32) == [N, 3]
    assert value("tensor.scatter_nd", np.array([1, 1]), np.array([[1]]), dims(N)) == [1, N]
    assert str(value("tensor.cast", dims(N), to=DType.F32)[0]) == "n"
    assert not value("tensor.cast", dims(N), to=DType.F16)[0].is_known


def test_an_undecided_truth_is_zero_or_one() -> None:
    (answer,) = value("compare.equal", dims(N), np.array([4]))
    assert bounds(answer) == (0, 1)
    (chosen,) = value("math.where", dims(answer), np.array([7]), np.array([9]))
    assert bounds(chosen) == (7, 9)
    (same,) = value("math.where", dims(answer), dims(S), dims(S))
    assert same == S


def test_values_lose_objects_when_nothing_is_symbolic() -> None:
    found = evaluate("math.sub", dims(N, 3), dims(N, 1))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 2]


# Arrays of values: conversion, wrapping, symbols.


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
