"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Unpack

import numpy as np

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, dim_min, floordiv, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.facts import Factors, OpRole
from irscope.ops.ort import packs, packs_gemm, packs_matmul, takes
from irscope.ops.rules import broadcast_dim, dtype_attr, joint_sizes, like, products
from irscope.ops.scratch.composites import linear_copy, matmul_copies
from irscope.ops.scratch.gemm import addmm_rule, addmv_rule, baddbmm_rule, einsum_rule, linear_rule, matmul_rule
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpSpec, RuleError, UnknownCost, numel, op, sizes
from irscope.ops.values import Array, is_symbolic, settle

# Matrix products: plain, batched, fused with what follows, and Einstein sums.


def matmul_shape(call: OpCall, left: Shape, right: Shape) -> Shape:
    """Return sizes of the product of (stacks of) matrices; a side with one axis is a vector, whose axis vanishes."""
    if left == () or right == ():
        raise RuleError(f"{call.spec.name} needs operands with at least one axis")
    if left is None or right is None:
        return None
    call.same(left[-1], right[-2] if len(right) > 1 else right[0], "the inner sizes must agree")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    return (*joint_sizes(call, left[:-2], right[:-2]), *rows, *columns)


def swapped(shape: Shape, swap: object) -> Shape:
    """Return sizes with the last two exchanged where `swap` is set."""
    if not swap or shape is None or len(shape) < 2:
        return shape
    return (*shape[:-2], shape[-1], shape[-2])


def inner_size(type_: Type | None) -> Dim:
    """Return the number of products each element of a matrix product sums, from the left operand."""
    return sizes(type_)[-1]


def _infer_matmul(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    return tensor(dtype_attr(call, a.dtype), matmul_shape(call, a.shape, b.shape), a.device)


def working(array: Array) -> Array:
    """Return an array in the type that sums of products are computed in: Python integers where elements are symbolic."""
    return array if array.dtype == object or array.dtype.kind in "fc" else array.astype(np.int64)


def plain_arrays(call: OpCall, *names: str) -> list[Array] | None:
    """Return values of operands, None where one is not known or symbolic."""
    found = [call.value(name) for name in names]
    arrays = [array for array in found if array is not None and not is_symbolic(array)]
    return arrays if len(arrays) == len(names) else None


def as_result(call: OpCall, array: Array) -> Known:
    """Return values in the type that holds the first result's elements."""
    result = call.results[0]
    return settle(np.asarray(array), result.dtype) if isinstance(result, TensorType) else array


def _evaluate_matmul(call: OpCall) -> Known | None:
    known = plain_arrays(call, "a", "b")
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
    known = plain_arrays(call, "x", "w", *(("b",) if call.given("b") else ()))
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
    known = plain_arrays(call, "a", "b", *(("c",) if call.given("c") else ()))
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
    """Return sizes with the first axis moved behind the batch axes."""
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


def _product_op(schema: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CONTRACTION, infer=_infer_added, cost=_cost_added, summary=summary, **facts)


_MATMUL = (
    op(
        "math.matmul(Tensor a, Tensor b, *, dtype? dtype) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_matmul,
        cost=lambda call: products(numel(call.results[0]) * inner_size(call.types[0])),
        evaluate=_evaluate_matmul,
        temporaries=matmul_rule,
        intermediates=matmul_copies,
        summary="Matrix product; leading axes are batches that broadcast, a side with one axis is a vector.",
        ort=packs(packs_matmul, "MatMul"),
        roles=frozenset({OpRole.MATRIX_PRODUCT, OpRole.PROJECTION}),
        factors=Factors(over_first=True),
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
    ),
    _product_op(
        "math.addmm(Tensor c, Tensor a, Tensor b, *, float alpha=1.0, float beta=1.0) -> Tensor",
        "beta * C + alpha * A * B for matrices.",
        temporaries=addmm_rule,
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(1, 2, over_first=True),
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
        evaluate=lambda call: None if (known := plain_arrays(call, "a", "b")) is None else as_result(call, np.multiply.outer(*known)),
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


# Less common products of vectors and matrices: inner and outer ones, chains, powers.


def _infer_inner(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if a.shape is None or b.shape is None:
        return tensor(a.dtype, None, a.device)
    if not a.shape or not b.shape:
        return tensor(a.dtype, a.shape or b.shape, a.device)
    call.same(a.shape[-1], b.shape[-1], "the last sizes must agree")
    return tensor(a.dtype, (*a.shape[:-1], *b.shape[:-1]), a.device)


def _cost_inner(call: OpCall) -> Cost:
    """Every element of the result is a product of two vectors."""
    a, b = sizes(call.types[0]), sizes(call.types[1])
    count = numel(call.results[0])
    return products(count * a[-1]) if a and b else Cost(elementwise=count)


def _infer_vecdot(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if a.shape is None or b.shape is None:
        return tensor(a.dtype, None, a.device)
    joint = joint_sizes(call, a.shape, b.shape)
    axis = call.axis(call.int_attr("axis"), len(joint))
    return tensor(a.dtype, (*joint[:axis], *joint[axis + 1 :]), a.device)


def _cost_vecdot(call: OpCall) -> Cost:
    """Return the products of pairs of vectors along an axis."""
    return products(product(joint_sizes(call, sizes(call.types[0]), sizes(call.types[1]))))


def _infer_addr(call: OpCall) -> Type:
    a, b = call.shape("a"), call.shape("b")
    c = call.tensor("c")
    return tensor(c.dtype, None if a is None or b is None else (a[0], b[0]), c.device)


def _cost_addr(call: OpCall) -> Cost:
    """Return an outer product, and a sum with what is given."""
    count = numel(call.results[0])
    return products(count, count)


def _chain(call: OpCall) -> list[tuple[Dim, Dim]]:
    """Return rows and columns of the matrices of a chain; a vector at an end is a row or a column."""
    shapes = [sizes(type_) for type_ in call.rest("matrices")]
    matrices = [(shape[0], shape[1]) if len(shape) == 2 else (shape[0], 1) for shape in shapes]
    if len(shapes[0]) == 1:
        matrices[0] = (1, shapes[0][0])
    return matrices


def _infer_chain(call: OpCall) -> Type:
    types = call.rest("matrices")
    first, last = types[0].shape, types[-1].shape
    if first is None or last is None:
        return tensor(types[0].dtype, None, types[0].device)
    for left, right in pairwise(types):
        if left.shape and right.shape:
            call.same(left.shape[-1], right.shape[0], "the inner sizes must agree")
    return tensor(types[0].dtype, (*first[:-1], *last[1:]), types[0].device)


def _cost_chain(call: OpCall) -> Cost:
    """Return the cheapest order of the products, which is the one that is taken; with open sizes it must not depend on them."""
    matrices = _chain(call)
    ends = [matrices[0][0], *(columns for _, columns in matrices)]
    if any(isinstance(size, SymDim) for size in ends) and len(matrices) > 2:
        raise UnknownCost
    best: dict[tuple[int, int], Dim] = {(i, i + 1): 0 for i in range(len(matrices))}
    for width in range(2, len(matrices) + 1):
        for start in range(len(matrices) - width + 1):
            end = start + width
            ways = (best[start, cut] + best[cut, end] + ends[start] * ends[cut] * ends[end] for cut in range(start + 1, end))
            best[start, end] = dim_min(*ways)
    return products(best[0, len(matrices)])


def _cost_power(call: OpCall) -> Cost:
    """Squarings for each bit of the exponent, and a product for each further bit that is set; an inverse below 0."""
    exponent = call.int_attr("exponent")
    *batch, size, _ = sizes(call.types[0])
    bits = abs(exponent)
    count = max(bits.bit_length() - 1, 0) + max(bits.bit_count() - 1, 0) + int(exponent < 0)
    return products(product(batch) * size * size * size * count)


def _infer_pairs(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    return tensor(x.dtype, (floordiv(x.shape[0] * (x.shape[0] - 1), 2),), x.device)


def _cost_pairs(call: OpCall) -> Cost:
    """Differences, squares and their sum for each pair of points, and a root."""
    count, width = numel(call.results[0]), sizes(call.types[0])[1]
    return Cost(elementwise=count * width * 2, reduction=count * width, transcendental=count)


_PRODUCTS = (
    op(
        "math.inner(Tensor a, Tensor b) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_inner,
        cost=_cost_inner,
        summary="Products of every vector in the last axis of one side with every one of the other.",
    ),
    op(
        "math.vecdot(Tensor a, Tensor b, *, int axis=-1) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_vecdot,
        cost=_cost_vecdot,
        summary="Products of pairs of vectors along an axis.",
    ),
    op(
        "math.addr(Tensor c, Tensor a, Tensor b, *, float alpha=1.0, float beta=1.0) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_addr,
        cost=_cost_addr,
        summary="beta * C + alpha * (outer product of A and B).",
    ),
    op(
        "math.chain_matmul(Tensor[] matrices) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_chain,
        cost=_cost_chain,
        summary="The product of several matrices in the cheapest order.",
    ),
    op(
        "linalg.matrix_power(Tensor x, *, int exponent) -> Tensor",
        Family.CONTRACTION,
        infer=like("x"),
        cost=_cost_power,
        summary="A matrix multiplied with itself, by squaring.",
    ),
    op(
        "linalg.pdist(Tensor x, *, float p=2.0) -> Tensor",
        Family.CONTRACTION,
        infer=_infer_pairs,
        cost=_cost_pairs,
        summary="Distances between all pairs of points of one set.",
    ),
)


# Einstein sums: sizes from the equation, costs of contracting the operands from left to right.


@immutable
class Equation:
    """An equation applied to operands: labels of each axis, and the size of each label."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    size: dict[str, Dim]


def read_equation(call: OpCall, shapes: Sequence[Sequence[Dim]]) -> Equation:
    """Return the equation of a call, with an ellipsis spelled out as labels counted from the right."""
    text = str(call.attr("equation")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise RuleError(f"the equation {text!r} has {len(terms)} operands, the operator {len(shapes)}")
    inputs = tuple(_labels(term, len(shape), text) for term, shape in zip(terms, shapes, strict=True))
    every = [label for term in inputs for label in term]
    hidden = sorted({label for label in every if len(label) > 1}, key=lambda label: -int(label[1:]))
    if arrow:
        head, dots, tail = right.partition("...")
        output = (*head, *(hidden if dots else ()), *tail)
    else:
        output = (*hidden, *sorted(label for label in set(every) if len(label) == 1 and every.count(label) == 1))
    size: dict[str, Dim] = {}
    for term, shape in zip(inputs, shapes, strict=True):
        for label, dim in zip(term, shape, strict=True):
            size[label] = broadcast_dim(call, size.get(label, 1), dim)
    if not set(output) <= size.keys():
        raise RuleError(f"the equation {text!r} asks for axes that no operand has")
    return Equation(inputs, output, size)


def _labels(term: str, rank: int, text: str) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise RuleError(f"the term {term!r} of {text!r} does not fit a tensor of {rank} axes")
    return (*head, *(f".{count}" for count in range(hidden, 0, -1)), *tail)


def _infer(call: OpCall) -> Type:
    operands = call.rest("operands")
    first = operands[0]
    shapes = [operand.shape for operand in operands if operand.shape is not None]
    if len(shapes) < len(operands):
        return tensor(first.dtype, None, first.device)
    equation = read_equation(call, shapes)
    return tensor(first.dtype, [equation.size[label] for label in equation.output], first.device)


def _cost(call: OpCall) -> Cost:
    equation = read_equation(call, [sizes(type_) for type_ in call.types])
    total = Cost()
    current, *rest = (tuple(dict.fromkeys(term)) for term in equation.inputs)
    for index, term in enumerate(rest):
        needed = {*equation.output, *(label for later in rest[index + 1 :] for label in later)}
        total += _sum_away(equation, current, {*needed, *term}) + _sum_away(equation, term, {*needed, *current})
        joined = [label for label in dict.fromkeys((*current, *term)) if label in needed or (label in current and label in term)]
        total += products(product([equation.size[label] for label in joined]))
        current = tuple(label for label in joined if label in needed)
    return total + _sum_away(equation, current, set(equation.output))


def _sum_away(equation: Equation, term: Sequence[str], needed: set[str]) -> Cost:
    """Adding up axes that nothing else uses."""
    if needed.issuperset(term):
        return Cost()
    return Cost(reduction=product([equation.size[label] for label in term]))


def _evaluate(call: OpCall) -> Known | None:
    arrays = [array for array in call.values if array is not None and not is_symbolic(array)]
    if len(arrays) < len(call.types):
        return None
    equation = str(call.attr("equation")).replace(" ", "")
    return as_result(call, np.einsum(equation, *map(working, arrays)))


# -- Einstein sums in ONNX Runtime ----------------------------------------------------------------------------------------


def _takes_einsum(call: OpCall, threads: int) -> tuple[int, ...]:
    """Return the tensors between the steps of an equation where they take most."""
    operands = call.rest("operands")
    shapes = [[dim for dim in sizes(type_) if isinstance(dim, int)] for type_ in operands]
    equation = read_equation(call, shapes)
    if any(len(set(term)) < len(term) or len(term) > len(shape) for term, shape in zip(equation.inputs, shapes, strict=True)):
        return ()  # diagonals, and sizes that are not known
    return _Contraction(equation, shapes, -(-(operands[0].dtype.bits or 0) // 8)).highest()


class _Contraction:
    """An equation as ONNX Runtime's CPU kernel computes it, with the bytes that it holds (core/providers/cpu/math/einsum_utils).

    All operands get their axes in the order in which letters first occur, those of an ellipsis before. Pair by pair they become matrices,
    whose product gets its axes in that order again, the last one those of the result."""

    def __init__(self, equation: Equation, shapes: Sequence[Sequence[int]], width: int) -> None:
        self.terms, self.output, self.width = equation.inputs, equation.output, width
        every = dict.fromkeys(label for term in equation.inputs for label in term)
        self.labels = sorted(every, key=lambda label: -int(label[1:]) if len(label) > 1 else 0)
        self.axes = range(len(self.labels))
        known = [dict(zip(term, shape, strict=True)) for term, shape in zip(equation.inputs, shapes, strict=True)]
        self.sizes = [[size.get(label, 1) for label in self.labels] for size in known]
        uses = [[place for place, term in enumerate(equation.inputs) if label in term] for label in self.labels]
        self.last = [-1 if label in equation.output else max(places) for label, places in zip(self.labels, uses, strict=True)]
        """The operand after which an axis is summed, -1 for those of the result."""
        self.live: dict[str, int] = {}
        self.most: tuple[int, ...] = ()

    def highest(self) -> tuple[int, ...]:
        """Return the tensors that are there at once where they take most."""
        for place, term in enumerate(self.terms):
            if [label for label in self.labels if label in term] != [*term]:
                self._take(f"operand {place}", self.sizes[place])
        left = [1 if last == 0 else size for last, size in zip(self.last, self.sizes[0], strict=True)]
        if 0 in self.last:
            self._take("left operand", left)
        if len(self.terms) == 1:
            self._finish([axis for axis in self.axes if self.last[axis] < 0], left)
        for number in range(1, len(self.terms)):
            left = self._multiply(number, left)
        return self.most

    def _take(self, use: str, shape: Sequence[int]) -> None:
        self.live[use] = self.width * prod(shape)
        if sum(self.live.values()) > sum(self.most):
            self.most = tuple(self.live.values())

    def _multiply(self, number: int, left: Sequence[int]) -> list[int]:
        """Multiply what there is by an operand; return the sizes of the product."""
        right = self.sizes[number]
        summed = [axis for axis in self.axes if self.last[axis] == number]
        kept = [axis for axis in self.axes if self.last[axis] != number]
        both = [axis for axis in kept if left[axis] > 1 and right[axis] > 1]
        only_left = [axis for axis in kept if left[axis] > 1 and right[axis] == 1]
        only_right = [axis for axis in kept if left[axis] == 1]
        self._arrange("left matrix", left, right, summed, [*both, *only_left, *summed, *only_right])
        self._arrange("right matrix", right, left, summed, [*both, *summed, *only_right, *only_left])
        made = [1 if axis in summed else max(left[axis], right[axis]) for axis in self.axes]
        self._take("product", made)
        order = [*both, *only_left, *summed, *only_right]
        if number == len(self.terms) - 1:
            self._finish(order, made)
        elif not _keeps_order(order, made):
            self._take("turned product", made)
        for use in [use for use in self.live if not use.startswith("operand")] + ["operand 0"]:
            self.live.pop(use, None)
        self._take("left operand", made)
        return made

    def _arrange(self, use: str, own: Sequence[int], other: Sequence[int], summed: Sequence[int], order: Sequence[int]) -> None:
        """Sum the axes that the other operand lacks, and copy where the order of axes changes."""
        alone = [axis for axis in summed if own[axis] > 1 and other[axis] == 1]
        own = [1 if axis in alone else size for axis, size in enumerate(own)]
        if alone:
            self._take(use, own)
        if order != [*self.axes] and not (alone and _keeps_order(order, own)):
            self._take(use, own)

    def _finish(self, order: Sequence[int], made: Sequence[int]) -> None:
        """Copy into the result, by a transposed copy where the order of axes changes."""
        if tuple(self.labels[axis] for axis in order if self.labels[axis] in self.output) != self.output:
            self._take("turned product", made)


def _keeps_order(order: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether axes with more than one element stay in their order, so that nothing is copied."""
    large = [axis for axis in order if shape[axis] != 1]
    return large == sorted(large)


_EINSUM = (
    op(
        "math.einsum(Tensor[] operands, *, str equation) -> Tensor",
        Family.CONTRACTION,
        infer=_infer,
        cost=_cost,
        evaluate=_evaluate,
        temporaries=einsum_rule,
        ort=takes(_takes_einsum, "Einsum"),
        summary="Sums of products by an equation such as 'bhqd,bhkd->bhqk'; costs are those of contracting from left to right.",
        factors=Factors(),
    ),
)


OPS = (*_MATMUL, *_PRODUCTS, *_EINSUM)
