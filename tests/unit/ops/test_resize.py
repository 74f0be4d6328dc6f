"""Resizing and sampling: sizes against PyTorch and numpy's arithmetic."""

from __future__ import annotations

import random

import numpy as np
import pytest

from irscope.ir.dims import SymDim, bind, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.imagesizes import encoded_size
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import cost, f32, i64, shape_of


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(40))
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
    found = shape_of("vision.resize", f32(1, size), *types, values=values)
    assert found is not None
    assert isinstance(found[1], SymDim)
    if found[1].symbol_names()[0].startswith("?"):
        assert scale in (0.7, 1.3), "only scales that a float rounds down may stay unknown"
        return
    for number in (*range(1, 3000), 65535, 99999):
        assert (1, bind(found[1], {"H": number})) == shape_of("vision.resize", f32(1, number), *types, values=values)


def test_sizes_win_and_keep_the_ratio_where_asked() -> None:
    assert shape_of("vision.resize", f32(1, 3, 4, 6), axes=(-2, -1), sizes=(7, 8)) == (1, 3, 7, 8)
    attrs = {"axes": (2, 3), "sizes": (8, 9)}
    assert shape_of("vision.resize", f32(1, 3, 4, 6), keep_aspect_ratio_policy="not_larger", **attrs) == (1, 3, 6, 9)
    assert shape_of("vision.resize", f32(1, 3, 4, 6), keep_aspect_ratio_policy="not_smaller", **attrs) == (1, 3, 8, 12)
    with pytest.raises(RuleError, match="sizes or scales"):
        shape_of("vision.resize", f32(1, 3, 4, 6), sizes=(7, 8))


def test_unknown_scales_keep_the_rank() -> None:
    found = shape_of("vision.resize", f32(1, 3, 4, 6), None, f32(4))
    assert found is not None
    assert len(found) == 4


def test_interpolation_weighs_its_neighbours() -> None:
    found = cost("vision.resize", f32(1, 1, 4, 4), axes=(2, 3), sizes=(8, 8), mode="linear")
    assert found is not None
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
    assert unknown is not None
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
