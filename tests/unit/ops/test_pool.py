"""Pooling: sizes against PyTorch on many random settings, and rules PyTorch does not have."""

from __future__ import annotations

import random

import numpy as np
import pytest

from irscope.ir.dims import SymDim, bind, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, f32, i64, infer, shape_of


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(120))
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


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_rounding_up_with_symbols_is_exact_for_every_size(after: int) -> None:
    size = symbol("H", 4)
    attrs = {"kernel_shape": (3,), "strides": (2,), "pads": (1, after), "ceil_mode": True}
    formula = shape_of("nn.max_pool", f32(1, 1, size), **attrs)
    assert formula is not None
    for number in range(4, 30):
        assert (1, 1, bind(formula[2], {"H": number})) == shape_of("nn.max_pool", f32(1, 1, number), **attrs)


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(30))
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
    assert isinstance(y, TensorType)
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
    assert unknown is not None
    assert isinstance(unknown[0], SymDim)
