"""Differences of neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall


@pytest.mark.parametrize(("shape", "axis", "n"), [((5,), 0, 1), ((2, 7), -1, 2), ((3, 4), 0, 3), ((3, 4), 0, 9)])
def test_agrees_with_numpy(shape: tuple[int, ...], axis: int, n: int) -> None:
    spec = find_op("math.diff")
    assert spec is not None
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) ** 2
    call = OpCall(spec, [tensor(DType.I64, shape)], {"axis": axis, "n": n}, [x])
    wanted = np.diff(x, n, axis)
    assert spec.infer_types(call) == (tensor(DType.I64, wanted.shape),)
    assert spec.evaluate is not None
    assert np.array_equal(np.asarray(spec.evaluate(call)), wanted)


def test_symbolic_size_and_joined_ends() -> None:
    spec = find_op("math.diff")
    assert spec is not None
    types = [tensor(DType.I64, (symbol("n", 2), 3)), tensor(DType.I64, (1, 3)), None]
    assert str(spec.infer_types(OpCall(spec, types, {"axis": 0}))[0]) == "i64[n,3]"
