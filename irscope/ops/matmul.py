"""Matrix products: plain, batched, fused with what follows, and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import slicing
from irscope.ops.cost import Cost
from irscope.ops.ort import packs, packs_gemm, packs_matmul
from irscope.ops.rules import dtype_attr
from irscope.ops.scratch.composites import linear_copy, matmul_copies
from irscope.ops.scratch.gemm import addmm_rule, addmv_rule, baddbmm_rule, linear_rule, matmul_rule
from irscope.ops.spec import (
    SIZES,
    Factors,
    Facts,
    Family,
    Known,
    OpCall,
    OpRole,
    OpSpec,
    RuleError,
    Temporaries,
    UnknownCost,
    numel,
    op,
    sizes,
)
from irscope.ops.values import Array, is_symbolic, settle
from irscope.ops.work import joint_sizes, products


def matmul_shape(call: OpCall, left: Shape, right: Shape) -> Shape:
    """Sizes of the product of (stacks of) matrices; a side with one axis is a vector, whose axis vanishes."""
    if left == () or right == ():
        raise RuleError(f"{call.spec.name} needs operands with at least one axis")
    if left is None or right is None:
        return None
    call.same(left[-1], right[-2] if len(right) > 1 else right[0], "the inner sizes must agree")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return (*joint_sizes(call, left[:-2], right[:-2]), *rows, *columns)


def swapped(shape: Shape, swap: object) -> Shape:
    """Sizes with the last two exchanged where `swap` is set."""
    if not swap or shape is None or len(shape) < 2:
        return shape
    return (*shape[:-2], shape[-1], shape[-2])


def inner_size(type_: Type | None) -> Dim:
    """The number of products each element of a matrix product sums, from the left operand."""
    return sizes(type_)[-1]


def _infer_matmul(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    return tensor(dtype_attr(call, a.dtype), matmul_shape(call, a.shape, b.shape), a.device)


def _cost_matmul(call: OpCall) -> Cost:
    return products(numel(call.results[0]) * inner_size(call.types[0]))


def working(array: Array) -> Array:
    """An array in the type that sums of products are computed in: Python integers where elements are symbolic."""
    return array if array.dtype == object or array.dtype.kind in "fc" else array.astype(np.int64)


def plain(call: OpCall, *names: str) -> list[Array] | None:
    """Values of operands, None where one is not known or symbolic."""
    found = [call.value(name) for name in names]
    arrays = [array for array in found if array is not None and not is_symbolic(array)]
    return arrays if len(arrays) == len(names) else None


def as_result(call: OpCall, array: Array) -> Known:
    """Values in the type that holds the first result's elements."""
    result = call.results[0]
    return settle(np.asarray(array), result.dtype) if isinstance(result, TensorType) else array


def _evaluate_matmul(call: OpCall) -> Known | None:
    known = plain(call, "a", "b")
    if known is None:
        return None
    return as_result(call, np.matmul(working(known[0]), working(known[1])))


def _infer_linear(call: OpCall) -> Type:
    x, w = call.tensor("x"), call.tensor("w")
    shape = None
    if x.shape is not None and w.shape is not None:
        if not x.shape or len(w.shape) not in (1, 2):
            raise RuleError(f"nn.linear cannot apply weights {w} to {x}")
        call.same(x.shape[-1], w.shape[-1], "the input size must be that of the weights")
        shape = (*x.shape[:-1], *w.shape[:-1])
    return tensor(dtype_attr(call, x.dtype), shape, x.device)


def _cost_linear(call: OpCall) -> Cost:
    count = numel(call.results[0])
    return products(count * inner_size(call.types[0]), count if call.given("b") else 0)


def _evaluate_linear(call: OpCall) -> Known | None:
    known = plain(call, "x", "w", *(("b",) if call.given("b") else ()))
    if known is None:
        return None
    x, w, *bias = map(working, known)
    return as_result(call, x @ w.T + sum(bias))


def _infer_gemm(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if any(side.shape is not None and len(side.shape) != 2 for side in (a, b)):
        raise RuleError(f"math.gemm needs matrices, not {a} and {b}")
    left, right = swapped(a.shape, call.attr("trans_a")), swapped(b.shape, call.attr("trans_b"))
    dtype = dtype_attr(call, a.dtype)
    if left is None and right is None:
        return tensor(dtype, None, a.device)
    rows = left[0] if left is not None else call.unknown("the sizes of the first matrix are not known", SIZES)
    columns = right[1] if right is not None else call.unknown("the sizes of the second matrix are not known", SIZES)
    if left is not None and right is not None:
        call.same(left[1], right[0], "the inner sizes must agree")
    return tensor(dtype, (rows, columns), a.device)


def _cost_gemm(call: OpCall) -> Cost:
    count = numel(call.results[0])
    inner = sizes(call.types[0])[0 if call.attr("trans_a") else 1]
    return products(count * inner, count * _scalings(call, "c") + (count if call.attr("activation") else 0))


def _scalings(call: OpCall, addend: str) -> int:
    """Elementwise operations an element: factors that are not 1, and the addition."""
    given = call.given(addend)
    return int(call.attr("alpha") != 1) + int(given) + int(given and call.attr("beta") != 1)


def _evaluate_gemm(call: OpCall) -> Known | None:
    known = plain(call, "a", "b", *(("c",) if call.given("c") else ()))
    if known is None or call.attr("activation"):
        return None
    a, b, *addend = map(working, known)
    made = (a.T if call.attr("trans_a") else a) @ (b.T if call.attr("trans_b") else b) * _exact(call.attr("alpha"))
    for c in addend:
        made = made + c * _exact(call.attr("beta"))
    return as_result(call, made)


def _exact(factor: float) -> float | int:
    return int(factor) if factor == int(factor) else factor


def _infer_added(call: OpCall) -> Type:
    a, b, c = call.tensor("a"), call.tensor("b"), call.tensor("c")
    shape = matmul_shape(call, a.shape, b.shape)
    if shape is not None and call.attr("sum_batch"):
        shape = shape[1:]
    if shape is not None and c.shape is not None:
        shape = joint_sizes(call, shape, c.shape)
    return tensor(a.dtype, shape, a.device)


def _cost_added(call: OpCall) -> Cost:
    count = numel(call.results[0])
    left = sizes(call.types[1])
    depth = left[-1] * (left[0] if call.attr("sum_batch") else 1)
    return products(count * depth, count * _scalings(call, "c"))


def _infer_outer(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    shape = None
    if a.shape is not None and b.shape is not None:
        if len(a.shape) != 1 or len(b.shape) != 1:
            raise RuleError(f"math.outer needs vectors, not {a} and {b}")
        shape = (a.shape[0], b.shape[0])
    return tensor(dtype_attr(call, a.dtype), shape, a.device)


def _infer_tensordot(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if a.shape is None or b.shape is None:
        return tensor(a.dtype, None, a.device)
    left, right = _contracted(call, a.shape, b.shape)
    for i, j in zip(left, right, strict=True):
        call.same(a.shape[i], b.shape[j], "contracted sizes must agree")
    kept_a = (dim for i, dim in enumerate(a.shape) if i not in left)
    kept_b = (dim for i, dim in enumerate(b.shape) if i not in right)
    return tensor(a.dtype, (*kept_a, *kept_b), a.device)


def _contracted(call: OpCall, a: Sequence[Dim], b: Sequence[Dim]) -> tuple[list[int], list[int]]:
    left, right = call.attr("axes_a"), call.attr("axes_b")
    if len(left) != len(right):
        raise RuleError(f"math.tensordot: {len(left)} axes of one side against {len(right)} of the other")
    return [call.axis(axis, len(a)) for axis in left], [call.axis(axis, len(b)) for axis in right]


def _cost_tensordot(call: OpCall) -> Cost:
    a = sizes(call.types[0])
    left, _ = _contracted(call, a, sizes(call.types[1]))
    return products(numel(call.results[0]) * product([a[axis] for axis in left]))


def _infer_bilinear(call: OpCall) -> Type:
    x, y, w = call.tensor("x"), call.tensor("y"), call.tensor("w")
    if x.shape is None or w.shape is None:
        return tensor(x.dtype, None, x.device)
    if len(w.shape) != 3 or not x.shape:
        raise RuleError(f"nn.bilinear cannot apply weights {w} to {x}")
    call.same(x.shape[-1], w.shape[1], "the first input size must be that of the weights")
    if y.shape is not None:
        call.same(y.shape[-1], w.shape[2], "the second input size must be that of the weights")
    return tensor(x.dtype, (*x.shape[:-1], w.shape[0]), x.device)


def _cost_bilinear(call: OpCall) -> Cost:
    _, first, second = sizes(call.types[2])
    count = numel(call.results[0])
    return products(count * first * second + count * second, count if call.given("b") else 0)


def _infer_fused(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    left = swapped(_batch_first(a.shape, call.attr("trans_batch_a")), call.attr("trans_a"))
    right = swapped(_batch_first(b.shape, call.attr("trans_batch_b")), call.attr("trans_b"))
    return tensor(a.dtype, matmul_shape(call, left, right), a.device)


def _batch_first(shape: Shape, moved: object) -> Shape:
    """Sizes with the first axis moved behind the batch axes."""
    return (*shape[1:-1], shape[0], shape[-1]) if moved and shape is not None and len(shape) > 2 else shape


def _cost_fused(call: OpCall) -> Cost:
    left = swapped(_batch_first(sizes(call.types[0]), call.attr("trans_batch_a")), call.attr("trans_a"))
    if not left:
        raise UnknownCost
    count = numel(call.results[0])
    return products(count * left[-1], count * (int(call.attr("alpha") != 1) + int(bool(call.attr("activation")))))


def _infer_grouped(call: OpCall) -> Type:
    a, b, offsets = call.tensor("a"), call.tensor("b"), call.maybe("offsets")
    dtype = dtype_attr(call, a.dtype)
    if a.shape is None or b.shape is None:
        return tensor(dtype, None, a.device)
    call.same(a.shape[-1], b.shape[-2], "the inner sizes must agree")
    shape: tuple[Dim, ...] = (a.shape[-2], b.shape[-1])
    if len(a.shape) == len(b.shape) == 2:
        if offsets is None or offsets.shape is None:
            return tensor(dtype, None, a.device)
        shape = (offsets.shape[0], *shape)
    elif len(a.shape) == len(b.shape):
        shape = (call.same(a.shape[0], b.shape[0], "the number of groups must agree"), *shape)
    return tensor(dtype, shape, a.device)


def _cost_grouped(call: OpCall) -> Cost:
    a, b = sizes(call.types[0]), sizes(call.types[1])
    groups = a[0] if len(a) == len(b) == 3 else 1
    return products(groups * a[-2] * a[-1] * b[-1])


def _product_op(schema: str, summary: str, temporaries: Temporaries, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CONTRACTION, infer=_infer_added, cost=_cost_added, temporaries=temporaries, summary=summary, **facts)


OPS = (
    op(
        "math.matmul(Tensor a, Tensor b, *, dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_matmul,
        cost=_cost_matmul,
        evaluate=_evaluate_matmul,
        temporaries=matmul_rule,
        intermediates=matmul_copies,
        summary="Matrix product; leading axes are batches that broadcast, a side with one axis is a vector.",
        ort=packs(packs_matmul, "MatMul"),
        roles=frozenset({OpRole.MATRIX_PRODUCT, OpRole.PROJECTION}),
        factors=Factors(over_first=True),
        slices=slicing.matmul,
    ),
    op(
        "nn.linear(Tensor x, Tensor w, Tensor? b, *, dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_linear,
        cost=_cost_linear,
        evaluate=_evaluate_linear,
        temporaries=linear_rule,
        intermediates=linear_copy,
        summary="Fully connected layer; weights are (outputs, inputs).",
        roles=frozenset({OpRole.LINEAR_LAYER, OpRole.PROJECTION}),
        factors=Factors(),
        slices=slicing.linear,
    ),
    op(
        "math.gemm(Tensor a, Tensor b, Tensor? c, *, float alpha=1.0, float beta=1.0, bool trans_a=False, bool trans_b=False, "
        "str activation='', dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_gemm,
        cost=_cost_gemm,
        evaluate=_evaluate_gemm,
        summary="alpha * A * B + beta * C for matrices, either of them transposed, with an optional activation.",
        ort=packs(packs_gemm, "Gemm", "FusedGemm"),
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(over_first=True),
        slices=slicing.gemm,
    ),
    _product_op(
        "math.addmm(Tensor c, Tensor a, Tensor b, *, float alpha=1.0, float beta=1.0) -> Tensor",
        "beta * C + alpha * A * B for matrices.",
        temporaries=addmm_rule,
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(1, 2, over_first=True),
        slices=slicing.addmm,
    ),
    _product_op(
        "math.addmv(Tensor c, Tensor a, Tensor b, *, float alpha=1.0, float beta=1.0) -> Tensor",
        "beta * C + alpha * A * B for a matrix A and a vector B.",
        temporaries=addmv_rule,
    ),
    _product_op(
        "math.baddbmm(Tensor c, Tensor a, Tensor b, *, float alpha=1.0, float beta=1.0, bool sum_batch=False) -> Tensor",
        "beta * C + alpha * A * B for stacks of matrices; `sum_batch` adds the products up.",
        temporaries=baddbmm_rule,
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(1, 2, over_first=True),
    ),
    op(
        "math.outer(Tensor a, Tensor b, *, dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_outer,
        cost=lambda call: products(numel(call.results[0])),
        evaluate=lambda call: None if (known := plain(call, "a", "b")) is None else as_result(call, np.multiply.outer(*known)),
        summary="Every product of an element of one vector with an element of another.",
    ),
    op(
        "math.tensordot(Tensor a, Tensor b, *, int[] axes_a, int[] axes_b) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_tensordot,
        cost=_cost_tensordot,
        summary="Sums products over pairs of axes, one of each side.",
    ),
    op(
        "nn.bilinear(Tensor x, Tensor y, Tensor w, Tensor? b) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_bilinear,
        cost=_cost_bilinear,
        summary="Bilinear layer: x * W * y for every output; weights are (outputs, x inputs, y inputs).",
    ),
    op(
        "math.fused_matmul(Tensor a, Tensor b, *, float alpha=1.0, bool trans_a=False, bool trans_b=False, bool trans_batch_a=False, "
        "bool trans_batch_b=False, str activation='') -> Tensor",
        Family.CONTRACTION,
        infer=_infer_fused,
        cost=_cost_fused,
        summary="Matrix product with its operands' transposes, a factor and an activation folded in.",
        ort=packs(packs_gemm, "FusedMatMul"),
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(over_first=True),
    ),
    op(
        "math.grouped_matmul(Tensor a, Tensor b, Tensor? offsets, *, dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_grouped,
        cost=_cost_grouped,
        summary="One matrix product a group, where `offsets` say which rows (or columns) a group has: experts' layers.",
        roles=frozenset({OpRole.PROJECTION, OpRole.EXPERTS}),
    ),
)
