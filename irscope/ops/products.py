"""Less common products of vectors and matrices: inner and outer ones, chains, powers."""

from __future__ import annotations

from itertools import pairwise

from irscope.ir.dims import Dim, SymDim, dim_min, floordiv, product
from irscope.ir.types import Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.spec import Family, OpCall, UnknownCost, numel, op, sizes
from irscope.ops.work import joint_sizes, like, products


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
    """Products of pairs of vectors along an axis."""
    return products(product(joint_sizes(call, sizes(call.types[0]), sizes(call.types[1]))))


def _infer_addr(call: OpCall) -> Type:
    a, b = call.shape("a"), call.shape("b")
    c = call.tensor("c")
    return tensor(c.dtype, None if a is None or b is None else (a[0], b[0]), c.device)


def _cost_addr(call: OpCall) -> Cost:
    """An outer product, and a sum with what is given."""
    count = numel(call.results[0])
    return products(count, count)


def _chain(call: OpCall) -> list[tuple[Dim, Dim]]:
    """Rows and columns of the matrices of a chain; a vector at an end is a row or a column."""
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
    """The cheapest order of the products, which is the one that is taken; with open sizes it must not depend on them."""
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


OPS = (
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
