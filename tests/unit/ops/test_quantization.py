"""Quantization: values against PyTorch and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.quantization import stretched
from tests.unit.ops.calls import evaluate, f32, infer

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")
@pytest.mark.parametrize("axis", [0, 1])
def test_values_along_an_axis_are_those_of_torch(axis: int) -> None:
    import torch

    scale = np.linspace(0.01, 0.05, X.shape[axis], dtype=np.float32)
    zero = np.arange(X.shape[axis], dtype=np.int8)
    expected = torch.quantize_per_channel(torch.from_numpy(X), torch.from_numpy(scale), torch.from_numpy(zero), axis, torch.qint8)
    types = (f32(4, 6), f32(*scale.shape), tensor(DType.I8, zero.shape))
    found = evaluate("quant.quantize", *types, values=(X, scale, zero), axis=axis)
    np.testing.assert_array_equal(np.asarray(found), expected.int_repr().numpy())
    back = evaluate("quant.dequantize", tensor(DType.I8, (4, 6)), *types[1:], values=(np.asarray(found), scale, zero), axis=axis)
    np.testing.assert_allclose(np.asarray(back), expected.dequantize().numpy(), rtol=1e-6)


def test_blocks_share_a_scale() -> None:
    scale = np.asarray([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    wide = stretched(scale, (2, 5), 1, 2)
    assert wide is not None
    np.testing.assert_array_equal(wide, [[1, 1, 2, 2, 3], [4, 4, 5, 5, 6]])


def test_element_types_come_from_attribute_zero_point_or_scale() -> None:
    x, scale = f32(2), tensor(DType.F16, ())
    assert str(infer("quant.quantize", x, scale)[0]) == "u8[2]"
    assert str(infer("quant.quantize", x, scale, tensor(DType.I4, ()))[0]) == "i4[2]"
    assert str(infer("quant.quantize", x, scale, dtype=DType.F8E4M3FN)[0]) == "f8e4m3fn[2]"
    assert str(infer("quant.dequantize", tensor(DType.U8, (2,)), scale)[0]) == "f16[2]"
    assert str(infer("quant.dequantize", tensor(DType.U8, (2,)), scale_value=0.5)[0]) == "f32[2]"


def test_small_integers_saturate() -> None:
    found = evaluate("quant.quantize", f32(3), scale_value=1.0, values=(np.asarray([-20, 0.5, 20], dtype=np.float32),), dtype=DType.I4)
    np.testing.assert_array_equal(np.asarray(found), [-8, 0, 7])


def test_integer_products_subtract_zero_points_of_rows_and_columns() -> None:
    chance = np.random.default_rng(0)
    a, b = chance.integers(0, 255, (3, 4), dtype=np.uint8), chance.integers(-100, 100, (4, 2), dtype=np.int8)
    rows, columns = np.asarray([1, 2, 3], dtype=np.uint8), np.asarray([4, 5], dtype=np.int8)
    types = (tensor(DType.U8, (3, 4)), tensor(DType.I8, (4, 2)), tensor(DType.U8, (3,)), tensor(DType.I8, (2,)))
    found = evaluate("math.matmul_integer", *types, values=(a, b, rows, columns))
    np.testing.assert_array_equal(np.asarray(found), (a.astype(int) - rows[:, None]) @ (b.astype(int) - columns))


def test_packed_tables_unpack() -> None:
    data, indices, scales = tensor(DType.U8, (100, 64)), tensor(DType.I64, (2, 7)), tensor(DType.F16, (100, 1))
    assert str(infer("quant.gather_block_quantized", data, indices, scales, bits=4)[0]) == "f16[2,7,128]"
    assert str(infer("quant.gather_block_quantized", tensor(DType.U4, (100, 64)), indices, scales, bits=4)[0]) == "f16[2,7,64]"
