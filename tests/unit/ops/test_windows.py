"""Convolutions, pooling, resizing, sampling and Fourier transforms: sizes against PyTorch, and rules PyTorch does not have."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from irscope.ir.dims import SymDim, bind, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.spec import RuleError
from irscope.ops.vision import encoded_size
from tests.tables import every
from tests.unit.ops.calling import agrees_with_symbols, cost, f32, i64, infer, shape_of

# Convolutions: sizes against PyTorch on many random settings, and rules PyTorch does not have.


@pytest.mark.torch
@every("seed", range(60))
def test_sizes_are_those_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    rank = chance.choice((1, 2, 3))
    groups = chance.choice((1, 1, 2, 3))
    kernel = [chance.randint(1, 4) for _ in range(rank)]
    stride = [chance.randint(1, 3) for _ in range(rank)]
    dilation = [chance.randint(1, 2) for _ in range(rank)]
    padding = [chance.randint(0, 2) for _ in range(rank)]
    inputs = 2 * groups
    lead = () if chance.random() < 0.3 else (chance.choice((0, 1, 3)),)
    shape = (*lead, inputs, *(chance.randint(7, 11) for _ in range(rank)))
    weights = (3 * groups, inputs // groups, *kernel)
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    expected = function(torch.zeros(shape), torch.zeros(weights), None, stride, padding, dilation, groups)
    attrs = {"strides": tuple(stride), "pads": (*padding, *padding), "dilations": tuple(dilation), "groups": groups}
    assert shape_of("nn.conv", f32(*shape), f32(*weights), **attrs) == tuple(expected.shape)
    agrees_with_symbols("nn.conv", f32(*shape), f32(*weights), **attrs)


@pytest.mark.torch
@every("seed", range(60))
def test_transposed_sizes_are_those_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    rank = chance.choice((1, 2, 3))
    groups = chance.choice((1, 2))
    kernel = [chance.randint(2, 4) for _ in range(rank)]
    stride = [chance.randint(1, 3) for _ in range(rank)]
    dilation = [chance.randint(1, 3) for _ in range(rank)]
    padding = [chance.randint(0, 1) for _ in range(rank)]
    extra = [chance.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
    lead = () if chance.random() < 0.3 else (2,)
    shape = (*lead, 2 * groups, *(chance.randint(3, 6) for _ in range(rank)))
    weights = (2 * groups, 3, *kernel)
    function = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[rank - 1]
    expected = function(torch.zeros(shape), torch.zeros(weights), None, stride, padding, extra, groups, dilation)
    attrs = {
        "strides": tuple(stride),
        "pads": (*padding, *padding),
        "dilations": tuple(dilation),
        "groups": groups,
        "output_padding": tuple(extra),
    }
    assert shape_of("nn.conv_transpose", f32(*shape), f32(*weights), **attrs) == tuple(expected.shape)
    agrees_with_symbols("nn.conv_transpose", f32(*shape), f32(*weights), **attrs)


def test_automatic_padding_divides_by_the_stride() -> None:
    batch, size = symbol("B"), symbol("H")
    attrs = {"auto_pad": "SAME_LOWER", "strides": (2, 2)}
    shape = shape_of("nn.conv", f32(batch, 3, size, 7), f32(8, 3, 3, 3), **attrs)
    assert shape is not None
    assert str(shape) == str((batch, 8, (size + 1) // 2, 4))
    assert shape_of("nn.conv_transpose", f32(1, 3, 5, 7), f32(3, 8, 3, 3), **attrs) == (1, 8, 10, 14)


def test_wanted_sizes_win_over_padding() -> None:
    shape = shape_of("nn.conv_transpose", f32(1, 1, 3, 3), f32(1, 2, 3, 3), strides=(3, 2), output_shape=(10, 8))
    assert shape == (1, 2, 10, 8)


def test_channels_may_stand_last() -> None:
    assert shape_of("nn.conv", f32(1, 5, 6, 4), f32(8, 4, 3, 3), channels_last=True) == (1, 3, 4, 8)


def test_contradictions_are_errors() -> None:
    with pytest.raises(RuleError, match="input channels"):
        shape_of("nn.conv", f32(1, 4, 8, 8), f32(8, 3, 3, 3))
    with pytest.raises(RuleError, match="does not fit"):
        shape_of("nn.conv", f32(1, 3, 2, 2), f32(8, 3, 3, 3))
    with pytest.raises(RuleError, match="entries"):
        shape_of("nn.conv", f32(1, 3, 8, 8), f32(8, 3, 3, 3), strides=(2,))
    with pytest.raises(RuleError, match="spatial axes cannot take"):
        shape_of("nn.conv", f32(3, 8), f32(8, 3, 3, 3))


def test_unknown_weights_leave_the_number_of_filters_open() -> None:
    shape = shape_of("nn.conv", f32(1, 3, 8, 8), tensor(DType.F32, None), kernel_shape=(3, 3))
    assert (shape[0], *shape[2:]) == (1, 6, 6)
    assert str(shape[1]).startswith("?")


def test_quantized_convolutions_have_their_own_element_types() -> None:
    x, w, scale, zero = tensor(DType.U8, (1, 3, 8, 8)), tensor(DType.I8, (4, 3, 3, 3)), f32(), tensor(DType.I8, ())
    assert str(infer("nn.conv_integer", x, w)[0]) == "i32[1,4,6,6]"
    quantized = infer("nn.qlinear_conv", x, scale, tensor(DType.U8, ()), w, scale, zero, scale, zero)
    assert str(quantized[0]) == "i8[1,4,6,6]"


def test_causal_convolution_keeps_what_the_next_call_needs() -> None:
    y, state = infer("nn.causal_conv", f32(2, 4, 10), f32(4, 1, 3), results=2)
    assert (str(y), str(state)) == ("f32[2,4,10]", "f32[2,4,2]")


# Pooling: sizes against PyTorch on many random settings, and rules PyTorch does not have.


@pytest.mark.torch
@every("seed", range(120))
def test_max_pool_sizes_are_those_of_torch(seed: int) -> None:
    import torch.nn.functional as f

    chance = random.Random(seed)
    rank = chance.choice((1, 2, 3))
    kernel = [chance.randint(1, 4) for _ in range(rank)]
    stride = [chance.randint(1, 4) for _ in range(rank)]
    padding = [chance.randint(0, k // 2) for k in kernel]
    dilation = [chance.randint(1, 2) for _ in range(rank)]
    ceil = chance.random() < 0.6
    lead = () if chance.random() < 0.3 else (2,)
    shape = (*lead, 3, *(chance.randint(7, 13) for _ in range(rank)))
    function = (f.max_pool1d, f.max_pool2d, f.max_pool3d)[rank - 1]
    import torch

    expected = function(torch.zeros(shape), kernel, stride, padding, dilation, ceil)
    attrs = {
        "kernel_shape": tuple(kernel),
        "strides": tuple(stride),
        "pads": (*padding, *padding),
        "dilations": tuple(dilation),
        "ceil_mode": ceil,
    }
    assert shape_of("nn.max_pool", f32(*shape), **attrs) == tuple(expected.shape)
    agrees_with_symbols("nn.max_pool", f32(*shape), results=2, **attrs)


@pytest.mark.torch
@every("size", range(1, 8))
def test_windows_larger_than_the_image_hang_over_as_in_torch(size: int) -> None:
    import torch

    for reach, step in itertools.product(range(1, 12), range(1, 12)):
        attrs = {"kernel_shape": (reach,), "strides": (step,), "ceil_mode": True}
        try:
            expected = torch.nn.functional.avg_pool1d(torch.zeros(1, 1, size), reach, step, ceil_mode=True).shape
        except RuntimeError:
            with pytest.raises(RuleError, match="does not fit"):
                shape_of("nn.avg_pool", f32(1, 1, size), **attrs)
        else:
            assert shape_of("nn.avg_pool", f32(1, 1, size), **attrs) == tuple(expected)


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_rounding_up_with_symbols_is_exact_for_every_size(after: int) -> None:
    size = symbol("H", 4)
    attrs = {"kernel_shape": (3,), "strides": (2,), "pads": (1, after), "ceil_mode": True}
    formula = shape_of("nn.max_pool", f32(1, 1, size), **attrs)
    for number in range(4, 30):
        assert (1, 1, bind(formula[2], {"H": number})) == shape_of("nn.max_pool", f32(1, 1, number), **attrs)


@pytest.mark.torch
@every("seed", range(30))
def test_adaptive_sizes_are_those_of_torch(seed: int) -> None:
    import torch
    import torch.nn.functional as f

    chance = random.Random(seed)
    rank = chance.choice((2, 3))
    wanted = tuple(chance.choice((None, 1, 2, 5)) for _ in range(rank))
    lead = () if chance.random() < 0.3 else (2,)
    shape = (*lead, 3, *(chance.randint(5, 9) for _ in range(rank)))
    function = f.adaptive_avg_pool2d if rank == 2 else f.adaptive_avg_pool3d
    assert shape_of("nn.adaptive_avg_pool", f32(*shape), output_size=wanted) == tuple(function(torch.zeros(shape), wanted).shape)
    y, indices = infer("nn.adaptive_max_pool", f32(*shape), output_size=wanted, results=2)
    assert str(indices) == str(tensor(DType.I64, y.shape))


@pytest.mark.torch
def test_unpooling_is_that_of_torch() -> None:
    import torch
    import torch.nn.functional as f

    y, indices = f.max_pool2d(torch.zeros(1, 2, 9, 7), 3, 2, 1, return_indices=True)
    expected = f.max_unpool2d(y, indices, 3, 2, 1)
    attrs = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    assert shape_of("nn.max_unpool", f32(*y.shape), i64(*y.shape), **attrs) == tuple(expected.shape)
    values = (None, None, np.asarray([1, 2, 10, 8]))
    assert shape_of("nn.max_unpool", f32(*y.shape), i64(*y.shape), i64(4), values=values, **attrs) == (1, 2, 10, 8)


def test_padding_of_all_kinds() -> None:
    attrs = {"kernel_shape": (2, 2), "strides": (2, 2)}
    assert shape_of("nn.avg_pool", f32(1, 1, 5, 5), auto_pad="SAME_UPPER", **attrs) == (1, 1, 3, 3)
    assert shape_of("nn.avg_pool", f32(1, 1, 5, 5), auto_pad="VALID", **attrs) == (1, 1, 2, 2)
    assert shape_of("nn.avg_pool", f32(1, 1, 5, 5), auto_pad="VALID", ceil_mode=True, **attrs) == (1, 1, 2, 2)
    assert shape_of("nn.avg_pool", f32(1, 1, 5, 5), pads=(0, 0, 1, 1), **attrs) == (1, 1, 3, 3)
    assert shape_of("nn.lp_pool", f32(1, 5, 5, 4), channels_last=True, **attrs) == (1, 2, 2, 4)


def test_whole_images_shrink_to_one_element() -> None:
    batch = symbol("N")
    assert shape_of("nn.global_avg_pool", f32(batch, 3, 7, 9)) == (batch, 3, 1, 1)
    assert shape_of("nn.global_max_pool", f32(batch, 7, 9, 3), channels_last=True) == (batch, 1, 1, 3)
    with pytest.raises(RuleError):
        shape_of("nn.global_lp_pool", f32(3))


def test_regions() -> None:
    count = symbol("R")
    assert shape_of("vision.roi_align", f32(1, 8, 20, 20), f32(count, 4), i64(count), output_size=(3, 5)) == (count, 8, 3, 5)
    y, places = infer("vision.ps_roi_align", f32(1, 60, 20, 20), f32(6, 5), output_size=(3, 5), results=2)
    assert (str(y), str(places)) == ("f32[6,4,3,5]", "i32[6,4,3,5]")
    unknown = shape_of("vision.roi_pool", f32(1, 8, 20, 20), tensor(DType.F32, None), output_size=(2, 2))
    assert isinstance(unknown[0], SymDim)


# Resizing and sampling: sizes against PyTorch and numpy's arithmetic.


@pytest.mark.torch
@every("seed", range(40))
def test_factors_are_those_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    factors = tuple(chance.choice((0.3, 0.5, 0.7, 1.1, 1.7, 2.0, 3.3)) for _ in range(2))
    shape = (1, 2, chance.randint(5, 40), chance.randint(5, 40))
    expected = torch.nn.functional.interpolate(torch.zeros(shape), scale_factor=factors)
    assert shape_of("vision.resize", f32(*shape), axes=(2, 3), scale_factors=factors) == tuple(expected.shape)


@pytest.mark.parametrize("scale", [0.25, 0.5, 0.6, 0.8, 1.5, 2.0, 1 / 3, 2 / 3, 0.1, 0.7, 1.3])
def test_formulas_hold_for_every_size(scale: float) -> None:
    size = symbol("H")
    values = (None, None, np.asarray([1, scale], dtype=np.float32))
    types = (None, f32(2))
    shape = shape_of("vision.resize", f32(1, size), *types, values=values)
    if shape[1].symbol_names()[0].startswith("?"):
        assert scale in (0.7, 1.3), "only scales that a float rounds down may stay unknown"
        return
    for number in (*range(1, 3000), 65535, 99999):
        assert (1, bind(shape[1], {"H": number})) == shape_of("vision.resize", f32(1, number), *types, values=values)


def test_sizes_win_and_keep_the_ratio_where_asked() -> None:
    assert shape_of("vision.resize", f32(1, 3, 4, 6), axes=(-2, -1), sizes=(7, 8)) == (1, 3, 7, 8)
    attrs = {"axes": (2, 3), "sizes": (8, 9)}
    assert shape_of("vision.resize", f32(1, 3, 4, 6), keep_aspect_ratio_policy="not_larger", **attrs) == (1, 3, 6, 9)
    assert shape_of("vision.resize", f32(1, 3, 4, 6), keep_aspect_ratio_policy="not_smaller", **attrs) == (1, 3, 8, 12)
    with pytest.raises(RuleError, match="sizes or scales"):
        shape_of("vision.resize", f32(1, 3, 4, 6), sizes=(7, 8))


def test_unknown_scales_keep_the_rank() -> None:
    shape = shape_of("vision.resize", f32(1, 3, 4, 6), None, f32(4))
    assert len(shape) == 4


def test_interpolation_weighs_its_neighbours() -> None:
    found = cost("vision.resize", f32(1, 1, 4, 4), axes=(2, 3), sizes=(8, 8), mode="linear")
    assert found.elementwise == 64 * 7


@pytest.mark.torch
def test_grids_are_those_of_torch() -> None:
    import torch

    theta = torch.zeros(2, 3, 4)
    grid = torch.nn.functional.affine_grid(theta, [2, 1, 5, 6, 7], align_corners=False)
    assert shape_of("vision.affine_grid", f32(2, 3, 4), size=(2, 1, 5, 6, 7)) == tuple(grid.shape)
    sampled = torch.nn.functional.grid_sample(torch.zeros(2, 3, 4, 4, 4), grid, align_corners=False)
    assert shape_of("vision.grid_sample", f32(2, 3, 4, 4, 4), f32(*grid.shape)) == tuple(sampled.shape)
    unknown = shape_of("vision.affine_grid", f32(2, 3, 4), i64(5))
    assert len(unknown) == 5
    assert unknown[-1] == 3


HEADERS = {
    "png": (b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (7).to_bytes(4, "big") + (5).to_bytes(4, "big")),
    "bmp": (b"BM" + bytes(16) + (7).to_bytes(4, "little") + (-5).to_bytes(4, "little", signed=True)),
    "jpeg": (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x05\x00\x07\x03" + bytes(9)),
    "jpeg 2000": (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(30) + b"ihdr\0\0\0\x05\0\0\0\x07"),
    "webp": (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + b"\x07\x00\x05\x00"),
    "webp, lossless": (b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + (6 | 4 << 14).to_bytes(4, "little")),
    "webp, extended": (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x06\0\0\x04\0\0"),
    "tiff": (b"MM\0*\0\0\0\x08\0\x02\x01\0\0\x03\0\0\0\x01\0\x07\0\0\x01\x01\0\x04\0\0\0\x01\0\0\0\x05"),
    "portable": (b"P6\n# a comment 9 9\n7 5\n255\n"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_image_headers_say_height_and_width(kind: str) -> None:
    data = HEADERS[kind]
    assert encoded_size(data) == (5, 7)
    for length in range(min(len(data), 12)):
        assert encoded_size(data[:length]) is None
    for length in range(len(data)):
        encoded_size(data[:length])
    encoded = tensor(DType.U8, (len(data),))
    values = (np.frombuffer(data, dtype=np.uint8),)
    assert shape_of("vision.decode_image", encoded, values=values) == (5, 7, 3)
    assert shape_of("vision.decode_image", encoded, values=values, pixel_format="Grayscale") == (5, 7, 1)


def test_other_files_have_no_size() -> None:
    assert encoded_size(b"") is None
    assert encoded_size(b"GIF89a") is None
    assert encoded_size(b"P6\nx y\n") is None
    assert encoded_size(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 1000) is None


# Fourier transforms: sizes, element types and lengths against PyTorch.


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
    assert len(unknown) == 3


def test_frames_need_their_step() -> None:
    values = (None, np.asarray(8), None, None)
    assert shape_of("signal.stft", f32(2, 128, 1), i64(), f32(16), None, values=values) == (2, 15, 9, 2)
    values = (None, np.asarray(8), None, np.asarray(16))
    assert shape_of("signal.stft", f32(2, 128, 2), i64(), None, i64(), values=values, onesided=False) == (2, 15, 16, 2)


def test_costs_of_fast_transforms() -> None:
    real = cost("fft.transform", f32(4, 1024), axes=(1,), kind="r2c")
    full = cost("fft.transform", tensor(DType.C64, (4, 1024)), axes=(1,))
    assert (real.matmul, full.matmul) == (4 * 1024 * 25, 4 * 1024 * 50)
    assert cost("fft.transform", f32(4, symbol("N")), axes=(1,), kind="r2c") is None
