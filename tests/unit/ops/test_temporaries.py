"""What rules for memory say of calls without a rule, with formulas for sizes, and of choices that a target makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from irscope.devices.catalogue import find_device
from irscope.devices.target import Target
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import Drop, Gemm, MemoryEvent, OpCall, Result, Take, Unknown, memory_events

H200 = Target(find_device("h200"))


def events(
    name: str, operands: list[TensorType | None], results: list[TensorType], source: str, target: Target = H200, **attrs: Attr
) -> tuple[MemoryEvent, ...]:
    spec = find_op(name)
    assert spec is not None
    return memory_events(OpCall(spec, operands, attrs, (), results, source=source), target)


def f32(*shape: object) -> TensorType:
    return tensor(DType.F32, shape)  # type: ignore[arg-type]  # sizes


def f16(*shape: object) -> TensorType:
    return tensor(DType.F16, shape)  # type: ignore[arg-type]  # sizes


def test_without_a_rule_there_are_only_results() -> None:
    assert events("nn.relu", [f32(4)], [f32(4)], "aten::relu") == (Result(0),)


def test_rules_are_pytorchs() -> None:
    """The same operator from another framework's file takes nothing besides."""
    x = f32(1, 8, 4, 4)
    window: dict[str, Attr] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    made = [f32(1, 8, 2, 2)]
    assert events("nn.max_pool", [x], made, "MaxPool", **window) == (Result(0),)
    positions = "positions of maxima"
    assert events("nn.max_pool", [x], made, "aten::max_pool2d", **window) == (Result(0), Take(positions, 256), Drop(positions))


def test_formulas_pass_through_where_no_choice_depends_on_them() -> None:
    n = symbol("n")
    found = events("nn.layer_norm", [f32(n, 8), None, None], [f32(n, 8)], "aten::layer_norm", axis=-1)
    assert found == (Result(0), Take("mean", n * 4), Take("deviation", n * 4), Drop("mean"), Drop("deviation"))


def test_a_choice_that_depends_on_a_formula_is_unknown() -> None:
    n = symbol("n")
    found = events("reduce.sum", [f32(n, n)], [f32()], "aten::sum")
    assert found[0] == Result(0)
    assert isinstance(found[1], Unknown) and "bind it" in found[1].reason


def test_linear_says_which_library_multiplies() -> None:
    x, w, b = f32(2, 3, 8), f32(16, 8), f32(16)
    assert events("nn.linear", [x, w, b], [f32(2, 3, 16)], "aten::linear") == (Result(0), Gemm("lt"))
    assert events("nn.linear", [x, w, None], [f32(2, 3, 16)], "aten::linear") == (Result(0), Gemm("cublas"))


def test_a_padded_result_keeps_its_padding() -> None:
    q = f16(2, 16, 300, 36)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention")
    assert Result(0, 2 * 16 * 300 * 40 * 2) in found


@pytest.mark.parametrize(("device", "parts"), [("h200", 3), ("a100", 1)])
def test_flash_attention_is_split_by_the_size_of_the_device(device: str, parts: int) -> None:
    q = f16(2, 16, 300, 80)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention", Target(find_device(device)))
    sizes = [event.size for event in found if isinstance(event, Take) and event.label == "partial logsumexp"]
    assert sizes == ([2 * 16 * 300 * 4 * parts] if parts > 1 else [])


def test_cudnn_attention_has_a_workspace_that_nobody_knows() -> None:
    q = f16(2, 16, 300, 64)
    found = events("nn.sdpa", [q, q, q, None], [q], "aten::scaled_dot_product_attention", replace(H200, cudnn_attention=True))
    assert [type(event) for event in found] == [Result, Unknown]


def test_operands_that_contradict_the_operator_are_no_error() -> None:
    found = events("nn.linear", [f32(4, 8), f32(), None], [f32(4, 16)], "aten::linear")
    assert found[0] == Result(0) and isinstance(found[-1], Unknown)
