"""Costs and storage of operators that compute little: what is free, what is moved, what is counted."""

from __future__ import annotations

import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.ops.spec import AliasRule
from tests.unit.ops.calling import Operand, cost, infer, make_call, spec_of

N = symbol("n")


@pytest.mark.parametrize(
    ("name", "operands", "attrs"),
    [
        ("view.reshape", ["f32[4,6]"], {"shape": (24,)}),
        ("view.permute", ["f32[4,6]"], {}),
        ("view.slice", ["f32[4,6]"], {"starts": (1,), "ends": (3,)}),
        ("view.expand", ["f32[1,6]"], {"shape": (4, 6)}),
        ("view.split", ["f32[4,6]"], {"size": 2}),
        ("tensor.shape", ["f32[4,6]"], {}),
        ("nn.dropout", ["f32[4,6]"], {}),
    ],
)
def test_views_cost_nothing(name: str, operands: list[Operand], attrs: dict[str, object]) -> None:
    spec = spec_of(name)
    types = infer(name, *operands, **attrs)[: 1 if name == "nn.dropout" else None]
    found = spec.cost_of(make_call(name, operands, attrs, types))
    assert found is not None
    assert (found.flops, found.read, found.written) == (0, 0, 0)


def test_bytes_of_plain_operators() -> None:
    add = cost("math.add", "f32[n,4]", "f32[4]")
    assert (add.elementwise, add.read, add.written) == (N * 4, N * 16 + 16, N * 16)
    cast = cost("tensor.cast", "f32[8]", to=DType.F16)
    assert (cast.flops, cast.read, cast.written) == (0, 32, 16)
    exp = cost("math.exp", "f16[8]")
    assert (exp.transcendental, exp.elementwise, exp.read) == (8, 0, 16)


def test_lookups_read_only_what_they_take() -> None:
    found = cost("nn.embedding", "f32[1000,8]", "i64[5]")
    assert (found.flops, found.read, found.written) == (0, 5 * 8 * 4 + 5 * 8, 5 * 8 * 4)
    found = cost("tensor.gather", "f16[1000,8]", "i32[5]", axis=0)
    assert found.read == 5 * 8 * 2 + 5 * 4


def test_reductions_count_their_input() -> None:
    found = cost("reduce.sum", "f32[n,8]", axes=(1,))
    assert (found.reduction, found.elementwise, found.written) == (N * 8, 0, N * 4)
    assert cost("reduce.mean", "f32[n,8]", axes=(1,)).elementwise == N
    softmax = cost("nn.softmax", "f32[n,8]")
    assert (softmax.elementwise, softmax.transcendental, softmax.reduction) == (N * 16, N * 8, N * 16)


def test_cost_is_unknown_without_a_shape() -> None:
    spec = spec_of("math.exp")
    assert spec.cost_of(make_call("math.exp", ["f32[*]"], {}, [tensor(DType.F32, None)])) is None


def _shares(name: str, *operands: Operand, **attrs: object) -> bool | None:
    rule = spec_of(name).shares
    assert rule is not None
    return rule(make_call(name, operands, attrs, infer(name, *operands, **attrs)))


def test_reshape_shares_where_runs_are_dense() -> None:
    assert _shares("view.reshape", "f32[2,3,4]", shape=(6, 4)) is True
    turned = tensor(DType.F32, (4, 3, 2), layout=(1, 4, 12))
    assert _shares("view.reshape", turned, shape=(24,)) is False
    assert _shares("view.reshape", turned, shape=(4, 3, 2, 1)) is True
    heads = tensor(DType.F32, (2, 3, 5, 4), layout=(60, 4, 12, 1))
    assert _shares("view.reshape", heads, shape=(2, 3, 20)) is False
    assert _shares("view.reshape", heads, shape=(2, 3, 5, 2, 2)) is True
    assert _shares("view.reshape", tensor(DType.F32, (N, 3), layout=(3, 1)), shape=(-1,)) is None


def test_contiguous_and_to_share_where_nothing_changes() -> None:
    assert _shares("view.contiguous", "f32[2,3]") is True
    assert _shares("view.contiguous", tensor(DType.F32, (2, 3), layout=(1, 2))) is False
    assert _shares("view.contiguous", "f32[1,3,2,2]", memory_format="channels_last") is False
    last = tensor(DType.F32, (1, 3, 2, 2), layout=(12, 1, 6, 3))
    assert _shares("view.contiguous", last, memory_format="channels_last") is True
    assert _shares("tensor.to", "f32[2]", dtype=DType.F32) is True
    assert _shares("tensor.to", "f32[2]", dtype=DType.F16) is False
    assert _shares("tensor.to", "f32[2]", device="cuda:0") is False
    assert _shares("tensor.to", "f32[2]", copy=True) is False


def test_dropout_shares_in_evaluation() -> None:
    assert _shares("nn.dropout", "f32[2]") is True
    assert _shares("nn.dropout", "f32[2]", training=True) is False
    assert _shares("nn.dropout", "f32[2]", training=True, p=0.0) is True
    assert _shares("nn.dropout", "f32[2]", None, "bool[]") is None


def test_marks_of_views() -> None:
    assert spec_of("view.permute").aliases == (AliasRule(0, 0),)
    assert spec_of("view.reshape").aliases == (AliasRule(0, 0, may=True),)
    assert spec_of("tensor.copy").aliases == ()
