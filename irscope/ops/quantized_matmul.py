"""Matrix products of integers and of weights that are stored with few bits."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from irscope.ir.dtypes import DType
from irscope.ir.types import Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.matmul import as_result, inner_size, matmul_shape, plain, swapped
from irscope.ops.ort import packs, packs_integers
from irscope.ops.rules import dtype_attr
from irscope.ops.spec import (
    CodedOperand,
    CostRule,
    Factors,
    Facts,
    Family,
    Infer,
    Known,
    OpCall,
    OpRole,
    OpSpec,
    Packing,
    RuleError,
    numel,
    op,
    sizes,
)
from irscope.ops.work import products


def _product_as(dtype: DType | None, like: str = "") -> Infer:
    """Infer rule of a * b in an element type, or in that of another operand."""

    def infer(call: OpCall) -> Type:
        a, b = call.tensor("a"), call.tensor("b")
        chosen = dtype if dtype is not None else call.dtype(like)
        return tensor(dtype_attr(call, chosen), matmul_shape(call, a.shape, b.shape), a.device)

    return infer


def _cost_of(elementwise: int) -> CostRule:
    """Cost of a product whose elements are then scaled and shifted."""

    def cost(call: OpCall) -> Cost:
        count = numel(call.results[0])
        macs = count * inner_size(call.types[call.spec.operand_index["a"]])
        return products(macs, count * (elementwise + int(call.given("bias"))))

    return cost


def _cost_dynamic(call: OpCall) -> Cost:
    """The left side is quantized on the way: its range, then three operations an element."""
    count = numel(call.types[0])
    return _cost_of(1)(call) + Cost(reduction=count * 2, elementwise=count * 3)


def _centred(call: OpCall, name: str, by_row: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    """An operand without its zero point, which may differ by row (of the left side) or column (of the right side)."""
    known = plain(call, name)
    if known is None:
        return None
    values = known[0].astype(np.int64)
    if not call.given(f"{name}_zero_point"):
        return values
    zero = plain(call, f"{name}_zero_point")
    if zero is None:
        return None
    shift = zero[0].astype(np.int64)
    return values - (shift.reshape(-1, 1) if by_row and shift.ndim == 1 and shift.size > 1 else shift)


def _evaluate_integer(call: OpCall) -> Known | None:
    a, b = _centred(call, "a", by_row=True), _centred(call, "b", by_row=False)
    return None if a is None or b is None else as_result(call, np.matmul(a, b))


def _infer_gemm(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    left, right = swapped(a.shape, call.attr("trans_a")), swapped(b.shape, call.attr("trans_b"))
    dtype = call.dtype("y_zero_point") if call.given("y_zero_point") else DType.F32
    return tensor(dtype, matmul_shape(call, left, right), a.device)


def _cost_gemm(call: OpCall) -> Cost:
    count = numel(call.results[0])
    inner = sizes(call.types[0])[0 if call.attr("trans_a") else -1]
    return products(count * inner, count * (1 + int(call.given("c")) + 2 * int(call.given("y_scale"))))


def _infer_few_bits(call: OpCall) -> Type:
    a = call.tensor("a")
    if a.shape is None:
        return a
    if not a.shape:
        raise RuleError(f"{call.spec.name} needs at least one axis")
    call.same(a.shape[-1], call.int_attr("k"), "the input size must be that of the weights")
    return tensor(dtype_attr(call, a.dtype), (*a.shape[:-1], call.int_attr("n")), a.device)


def _cost_few_bits(call: OpCall) -> Cost:
    count = numel(call.results[0])
    return products(count * call.int_attr("k"), count if call.given("bias") else 0)


def _record(schema: str, infer: Infer, cost: CostRule, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.QUANTIZATION, infer=infer, cost=cost, summary=summary, **facts)


OPS = (
    op(
        "math.matmul_integer(Tensor a, Tensor b, Tensor? a_zero_point, Tensor? b_zero_point, *, dtype? dtype) -> Tensor",
        Family.QUANTIZATION,
        infer=_product_as(DType.I32),
        cost=_cost_of(0),
        evaluate=_evaluate_integer,
        summary="Matrix product of 8-bit integers with 32-bit sums.",
        ort=packs(packs_integers(1), "MatMulInteger"),
        factors=Factors(over_first=True),
    ),
    _record(
        "quant.matmul_integer_to_float(Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, Tensor? a_zero_point, Tensor? b_zero_point, "
        "Tensor? bias) -> Tensor",
        _product_as(None, like="a_scale"),
        _cost_of(1),
        "Matrix product of 8-bit integers, scaled to floats.",
        ort=packs(packs_integers(1), "MatMulIntegerToFloat"),
        codes=CodedOperand(1, 3, 5, axis=-1),
    ),
    _record(
        "quant.dynamic_quantize_matmul(Tensor a, Tensor b, Tensor b_scale, Tensor? b_zero_point, Tensor? bias) -> Tensor",
        _product_as(None, like="a"),
        _cost_dynamic,
        "Quantizes the left side, multiplies with quantized weights and scales to floats.",
        ort=packs(packs_integers(1), "DynamicQuantizeMatMul"),
        codes=CodedOperand(1, 2, 3, axis=-1),
    ),
    _record(
        "quant.qlinear_matmul(Tensor a, Tensor a_scale, Tensor a_zero_point, Tensor b, Tensor b_scale, Tensor b_zero_point, "
        "Tensor y_scale, Tensor y_zero_point) -> Tensor",
        _product_as(None, like="y_zero_point"),
        _cost_of(2),
        "Matrix product of quantized tensors with a quantized result.",
        ort=packs(packs_integers(3), "QLinearMatMul"),
        codes=CodedOperand(3, 4, 5, axis=-1),
    ),
    _record(
        "quant.qgemm(Tensor a, Tensor a_scale, Tensor a_zero_point, Tensor b, Tensor b_scale, Tensor b_zero_point, Tensor? c, "
        "Tensor? y_scale, Tensor? y_zero_point, *, float alpha=1.0, bool trans_a=False, bool trans_b=False) -> Tensor",
        _infer_gemm,
        _cost_gemm,
        "alpha * A * B + C for quantized matrices; floats where no scale of the result is given.",
        codes=CodedOperand(3, 4, 5, axis=-1),
    ),
    _record(
        "quant.matmul_nbits(Tensor a, Tensor b, Tensor? scales, Tensor? zero_points, Tensor? group_index, Tensor? bias, *, int k, int n, "
        "int bits=4, int block_size=32, dtype? dtype) -> Tensor",
        _infer_few_bits,
        _cost_few_bits,
        "Matrix product with (n, k) weights packed in blocks of few bits each.",
        codes=CodedOperand(1, 2, 3, packing=Packing.ROWS),
    ),
    _record(
        "math.scaled_matmul(Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, Tensor? bias, *, dtype? dtype) -> Tensor",
        _product_as(None, like="a"),
        _cost_of(1),
        "Matrix product of 8-bit floats, scaled.",
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(over_first=True),
    ),
)
