"""Fourier transforms: sizes, element types and lengths against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from tests.unit.ops.calls import agrees_with_symbols, cost, f32, i64, infer, shape_of


def text(result: object) -> str:
    kinds = {"torch.float32": DType.F32, "torch.complex64": DType.C64}
    return str(tensor(kinds[str(result.dtype)], tuple(result.shape)))  # type: ignore[attr-defined]  # a torch tensor


@pytest.mark.torch
def test_transforms_are_those_of_torch() -> None:
    import torch

    x = torch.zeros(3, 8, 10)
    c = x.to(torch.complex64)
    real, complex_ = f32(3, 8, 10), tensor(DType.C64, (3, 8, 10))
    assert str(infer("fft.transform", real, axes=(1, 2), kind="r2c")[0]) == text(torch.fft.rfftn(x, dim=(1, 2)))
    assert str(infer("fft.transform", real, axes=(2, 1), kind="r2c")[0]) == text(torch.fft.rfftn(x, dim=(2, 1)))
    assert str(infer("fft.transform", real, axes=(-1,), kind="r2c", sizes=(7,))[0]) == text(torch.fft.rfft(x, n=7))
    assert str(infer("fft.transform", real, axes=(0,), kind="r2c", onesided=False)[0]) == text(torch.fft.fft(x, dim=0))
    assert str(infer("fft.transform", complex_, axes=(0, 1))[0]) == text(torch.fft.fft2(c, dim=(0, 1)))
    assert str(infer("fft.transform", complex_, axes=(1,), kind="c2r")[0]) == text(torch.fft.irfft(c, dim=1))
    assert str(infer("fft.transform", complex_, axes=(1,), kind="c2r", sizes=(9,))[0]) == text(torch.fft.irfft(c, n=9, dim=1))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:A window was not provided:UserWarning")
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("length", [50, 51, 64])
def test_frames_are_those_of_torch(center: bool, onesided: bool, length: int) -> None:
    import torch

    n_fft, hop = 15 if length == 51 else 16, 5
    window = torch.hann_window(n_fft) + 1
    expected = torch.stft(torch.zeros(2, length), n_fft, hop, window=window, center=center, onesided=onesided, return_complex=True)
    attrs = {"n_fft": n_fft, "hop_length": hop, "center": center, "onesided": onesided}
    assert str(infer("fft.stft", f32(2, length), f32(n_fft), **attrs)[0]) == text(expected)
    agrees_with_symbols("fft.stft", f32(2, length), None, **attrs)
    back = torch.istft(expected, n_fft, hop, window=window, center=center, onesided=onesided)
    assert str(infer("fft.istft", tensor(DType.C64, expected.shape), f32(n_fft), **attrs)[0]) == text(back)
    whole = torch.istft(expected, n_fft, hop, window=window, center=center, onesided=onesided, length=33)
    assert str(infer("fft.istft", tensor(DType.C64, expected.shape), None, length=33, **attrs)[0]) == text(whole)


def test_parts_stand_in_the_last_axis() -> None:
    length = symbol("N")
    assert shape_of("signal.dft", f32(2, length, 1)) == (2, length, 2)
    assert shape_of("signal.dft", f32(2, 10, 1), onesided=True) == (2, 6, 2)
    assert shape_of("signal.dft", f32(2, 6, 2), onesided=True, inverse=True) == (2, 10, 1)
    assert shape_of("signal.dft", f32(2, 6, 2), onesided=True, inverse=True, length=9) == (2, 9, 1)
    values = (None, np.asarray(7), np.asarray(0))
    assert shape_of("signal.dft", f32(10, 3, 1), i64(), i64(), values=values) == (7, 3, 2)
    unknown = shape_of("signal.dft", f32(10, 3, 1), i64(), i64())
    assert unknown is not None
    assert len(unknown) == 3


def test_frames_need_their_step() -> None:
    values = (None, np.asarray(8), None, None)
    assert shape_of("signal.stft", f32(2, 128, 1), i64(), f32(16), None, values=values) == (2, 15, 9, 2)
    values = (None, np.asarray(8), None, np.asarray(16))
    assert shape_of("signal.stft", f32(2, 128, 2), i64(), None, i64(), values=values, onesided=False) == (2, 15, 16, 2)


def test_costs_of_fast_transforms() -> None:
    real = cost("fft.transform", f32(4, 1024), axes=(1,), kind="r2c")
    full = cost("fft.transform", tensor(DType.C64, (4, 1024)), axes=(1,))
    assert real is not None
    assert full is not None
    assert (real.matmul, full.matmul) == (4 * 1024 * 25, 4 * 1024 * 50)
    assert cost("fft.transform", f32(4, symbol("N")), axes=(1,), kind="r2c") is None
