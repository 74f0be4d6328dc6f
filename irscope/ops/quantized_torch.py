"""Layers that PyTorch's TorchScript files hold with packed 8-bit weights: their results' types come from the reader of the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from irscope.ir.dims import Dim, product
from irscope.ops.cost import Cost
from irscope.ops.spec import Absent, CostRule, Facts, Family, OpCall, OpSpec, UnknownCost, numel, op, sizes
from irscope.ops.work import products

_REQUANTIZING = 2
"""Operations an element on the way to 8 bits or back: a factor and a rounding or shift."""


def _filters(call: OpCall) -> tuple[Dim, ...]:
    """Sizes of the packed weights: of the operands behind the first, those with most axes."""
    shapes = [type_.shape for type_ in call.types[1:] if type_ is not None and type_.shape]
    if not shapes:
        raise UnknownCost
    return max(shapes, key=len)


def _linear(call: OpCall) -> Dim:
    rows = product(sizes(call.types[0])[:-1])
    return rows * product(_filters(call))


def _conv(call: OpCall) -> Dim:
    return numel(call.results[0]) * product(_filters(call)[1:])


def _conv_transposed(call: OpCall) -> Dim:
    """Every element of the operand goes through the filters of its channel."""
    return numel(call.types[0]) * product(_filters(call)[1:])


def _layer(macs: Callable[[OpCall], Dim], name: str) -> CostRule:
    """Products of 8-bit numbers; dynamic layers quantize what they are given, fused ones have an activation."""
    activated = "relu" in name or "tanh" in name
    dynamic = "dynamic" in name

    def cost(call: OpCall) -> Cost:
        work = macs(call)
        quantizing = numel(call.types[0]) * _REQUANTIZING if dynamic else 0
        return products(work, numel(call.results[0]) * (_REQUANTIZING + int(activated)) + quantizing)

    return cost


def _pointwise(call: OpCall) -> Cost:
    """Both sides scaled to real numbers, the operation, and the way back."""
    return Cost(elementwise=numel(call.results[0]) * (_REQUANTIZING * 2 + 1))


def _requantizing(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * _REQUANTIZING)


_LINEAR = ("linear", "linear_relu", "linear_tanh", "linear_leaky_relu", "linear_dynamic", "linear_relu_dynamic")
_LINEAR_HALF = ("linear_dynamic_fp16", "linear_relu_dynamic_fp16")
_CONV = tuple(f"conv{axes}{end}" for axes in ("1d", "2d", "3d") for end in ("", "_relu", "_dynamic", "_relu_dynamic"))
_TRANSPOSED = tuple(f"conv_transpose{axes}{end}" for axes in ("1d", "2d", "3d") for end in ("", "_dynamic"))
_POINTWISE = ("add", "add_relu", "mul", "mul_relu", "add_scalar", "mul_scalar", "hardswish", "leaky_relu", "sigmoid")


def _record(name: str, cost: CostRule, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"quantized.{name}(Tensor x, Tensor[] rest) -> Tensor",
        Family.QUANTIZATION,
        infer=Absent.UNKNOWN,
        cost=cost,
        summary=summary,
        **facts,
    )


OPS = (
    *(_record(name, _layer(_linear, name), "Fully connected layer with packed weights.") for name in (*_LINEAR, *_LINEAR_HALF)),
    *(_record(name, _layer(_conv, name), "Convolution with packed weights.") for name in _CONV),
    *(_record(name, _layer(_conv_transposed, name), "Transposed convolution with packed weights.") for name in _TRANSPOSED),
    *(_record(name, _pointwise, "Arithmetic on 8-bit numbers, element by element.") for name in _POINTWISE),
    _record("cat", _requantizing, "Tensors of 8-bit numbers behind one another, brought to one scale."),
)
