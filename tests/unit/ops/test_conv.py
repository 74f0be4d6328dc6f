"""Convolutions: sizes against PyTorch on many random settings, and rules PyTorch does not have."""

from __future__ import annotations

import random

import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, f32, infer, shape_of


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(60))
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
@pytest.mark.parametrize("seed", range(60))
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
    found = shape_of("nn.conv", f32(batch, 3, size, 7), f32(8, 3, 3, 3), **attrs)
    assert found is not None
    assert str(found) == str((batch, 8, (size + 1) // 2, 4))
    assert shape_of("nn.conv_transpose", f32(1, 3, 5, 7), f32(3, 8, 3, 3), **attrs) == (1, 8, 10, 14)


def test_wanted_sizes_win_over_padding() -> None:
    found = shape_of("nn.conv_transpose", f32(1, 1, 3, 3), f32(1, 2, 3, 3), strides=(3, 2), output_shape=(10, 8))
    assert found == (1, 2, 10, 8)


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
    found = shape_of("nn.conv", f32(1, 3, 8, 8), tensor(DType.F32, None), kernel_shape=(3, 3))
    assert found is not None
    assert (found[0], *found[2:]) == (1, 6, 6)
    assert str(found[1]).startswith("?")


def test_quantized_convolutions_have_their_own_element_types() -> None:
    x, w, scale, zero = tensor(DType.U8, (1, 3, 8, 8)), tensor(DType.I8, (4, 3, 3, 3)), f32(), tensor(DType.I8, ())
    assert str(infer("nn.conv_integer", x, w)[0]) == "i32[1,4,6,6]"
    quantized = infer("nn.qlinear_conv", x, scale, tensor(DType.U8, ()), w, scale, zero, scale, zero)
    assert str(quantized[0]) == "i8[1,4,6,6]"


def test_causal_convolution_keeps_what_the_next_call_needs() -> None:
    y, state = infer("nn.causal_conv", f32(2, 4, 10), f32(4, 1, 3), results=2)
    assert (str(y), str(state)) == ("f32[2,4,10]", "f32[2,4,2]")
