"""Attention: sizes against PyTorch, and rules for caches and packed heads."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, cost, f32, infer, shape_of


@pytest.mark.torch
@pytest.mark.parametrize(
    ("q", "k", "v", "shared"),
    [
        ((5, 8), (6, 8), (6, 4), False),
        ((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4), False),
        ((2, 1, 5, 8), (1, 3, 6, 8), (2, 3, 6, 8), False),
        ((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 9), True),
    ],
)
def test_products_are_those_of_torch(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], shared: bool) -> None:
    import torch

    expected = torch.nn.functional.scaled_dot_product_attention(*(torch.zeros(s) for s in (q, k, v)), enable_gqa=shared)
    assert shape_of("nn.sdpa", f32(*q), f32(*k), f32(*v), enable_gqa=shared) == tuple(expected.shape)
    agrees_with_symbols("nn.sdpa", f32(*q), f32(*k), f32(*v), enable_gqa=shared)


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_multi_head_is_that_of_torch(batch_first: bool, batched: bool, average: bool) -> None:
    import torch

    layer = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    q = torch.zeros((3, 5, 8) if batched and batch_first else (5, 3, 8) if batched else (5, 8))
    k = torch.zeros((3, 6, 8) if batched and batch_first else (6, 3, 8) if batched else (6, 8))
    expected = layer(q, k, k, average_attn_weights=average)
    keys = f32(*k.shape)
    attrs = {"num_heads": 2, "batch_first": batch_first, "average_weights": average}
    found = infer("nn.multi_head_attention", f32(*q.shape), keys, keys, f32(24, 8), None, f32(8, 8), results=2, **attrs)
    assert [str(type_) for type_ in found] == [str(f32(*t.shape)) for t in expected]


def test_packed_heads_stay_packed() -> None:
    hidden, length = symbol("H"), symbol("S")
    x = f32(2, length, hidden)
    found = infer("nn.attention", x, x, x, q_num_heads=4, kv_num_heads=4)[0]
    assert isinstance(found, TensorType)
    assert found.shape == (2, length, hidden)
    shared = shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24), q_num_heads=4, kv_num_heads=2)
    assert shared == (2, 5, 48)
    with pytest.raises(RuleError, match="number of heads"):
        shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24))
    with pytest.raises(RuleError, match="divided"):
        shape_of("nn.attention", f32(2, 5, 32), f32(2, 6, 16), f32(2, 6, 24), q_num_heads=5, kv_num_heads=5)


def test_a_cache_grows_by_what_is_new() -> None:
    past = symbol("P", 0)
    q = f32(1, 4, 1, 8)
    old = f32(1, 4, past, 8)
    found = infer("nn.attention", q, q, q, None, old, old, results=4)
    assert [str(type_) for type_ in found] == [str(f32(1, 4, size, 8)) for size in (1, past + 1, past + 1)] + [str(f32(1, 4, 1, past + 1))]
    work = cost("nn.attention", q, q, q, None, old, old)
    assert work is not None
    assert work.macs == (past + 1) * 4 * 16


def test_the_length_of_a_shared_cache_needs_a_value() -> None:
    lengths = tensor(DType.I32, (2,))
    types = (f32(2, 1, 32), f32(2, 1, 16), f32(2, 1, 16), f32(2, 2, 4, 8), f32(2, 2, 4, 8), lengths, tensor(DType.I32, ()))
    attrs = {"num_heads": 4, "kv_num_heads": 2}
    known = infer("nn.group_query_attention", *types, values=(*(None,) * 6, np.asarray(9)), results=3, **attrs)
    assert str(known[1]) == "f32[2,2,9,8]"
    unknown = infer("nn.group_query_attention", *types, results=3, **attrs)[1]
    assert isinstance(unknown, TensorType)
    assert unknown.shape is not None
    assert isinstance(unknown.shape[2], SymDim)


def test_linear_attention_costs_its_recurrence() -> None:
    packed = f32(2, 10, 32)
    attrs = {"q_num_heads": 4, "kv_num_heads": 4}
    for rule, products in (("linear", 2), ("gated", 2), ("delta", 3), ("gated_delta", 3)):
        found = cost("nn.linear_attention", packed, packed, packed, update_rule=rule, **attrs)
        assert found is not None
        assert found.macs == 2 * 10 * 4 * 8 * 8 * products


def test_rotation_costs_only_what_it_rotates() -> None:
    whole = cost("nn.rotary_embedding", f32(2, 4, 5, 16), f32(9, 8), f32(9, 8))
    half = cost("nn.rotary_embedding", f32(2, 5, 64), f32(9, 4), f32(9, 4), num_heads=4, rotary_dim=8)
    assert whole is not None
    assert half is not None
    assert (whole.elementwise, half.elementwise) == (640 * 3, 640 // 2 * 3)
