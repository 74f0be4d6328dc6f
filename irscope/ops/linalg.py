"""Linear algebra on (stacks of) matrices, and products of vectors that are no matrix products."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, dim_min, floordiv, less, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.matmul import as_result, plain_arrays
from irscope.ops.rules import joint_sizes, like, products
from irscope.ops.scratch.composites import cdist_rule, solver_rule
from irscope.ops.spec import Absent, CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, UnknownCost, numel, op, sizes

_REAL_PART = {DType.C64: DType.F32, DType.C128: DType.F64}
_COMPLEX_OF = {DType.F32: DType.C64, DType.F64: DType.C128}


def _matrices(call: OpCall, name: str = "x", square: bool = True) -> Shape:
    """Return sizes of an operand that is a stack of matrices."""
    shape = call.shape(name)
    if shape is None:
        return None
    if len(shape) < 2:
        raise RuleError(f"{call.spec.name} needs matrices, not {call.tensor(name)}")
    if square:
        call.same(shape[-1], shape[-2], "matrices must be square")
    return shape


def _without_matrix(call: OpCall) -> Type:
    shape, x = _matrices(call), call.tensor("x")
    return tensor(x.dtype, None if shape is None else shape[:-2], x.device)


def _square(call: OpCall) -> Type:
    _matrices(call)
    return call.tensor("x")


def _stack(call: OpCall, operand: int = 0) -> tuple[Dim, Dim, Dim]:
    """Return how many matrices, and their rows and columns."""
    *batch, rows, columns = sizes(call.types[operand])
    return product(batch), rows, columns


def _cubic(numerator: int, denominator: int) -> CostRule:
    """Cost rule of a factorisation of n-by-n matrices with this fraction of n^3 multiply-adds."""

    def cost(call: OpCall) -> Cost:
        batch, size, _ = _stack(call)
        cube = batch * size * size * size * numerator
        return Cost(matmul=floordiv(cube * 2, denominator), macs=floordiv(cube, denominator))

    return cost


def _infer_svd(call: OpCall) -> tuple[Type, ...]:
    shape, x = _matrices(call, square=False), call.tensor("x")
    values = _REAL_PART.get(x.dtype, x.dtype)
    if shape is None:
        u, s, v = tensor(x.dtype, None, x.device), tensor(values, None, x.device), tensor(x.dtype, None, x.device)
    else:
        *batch, rows, columns = shape
        small = dim_min(rows, columns)
        wide = (rows, columns) if call.attr("full_matrices") else (small, small)
        right = (wide[1], columns) if call.attr("transposed") else (columns, wide[1])
        u, v = (tensor(x.dtype, (*batch, *sides), x.device) for sides in ((rows, wide[0]), right))
        s = tensor(values, (*batch, small), x.device)
    return call.fit(u, s, v)


def _infer_singular_values(call: OpCall) -> Type:
    shape, x = _matrices(call, square=False), call.tensor("x")
    return tensor(_REAL_PART.get(x.dtype, x.dtype), None if shape is None else (*shape[:-2], dim_min(shape[-2], shape[-1])), x.device)


def _infer_qr(call: OpCall) -> tuple[Type, ...]:
    shape, x = _matrices(call, square=False), call.tensor("x")
    mode = call.attr("mode")
    if shape is None:
        return tensor(x.dtype, None, x.device), tensor(x.dtype, None, x.device)
    *batch, rows, columns = shape
    inner = rows if mode == "complete" else dim_min(rows, columns)
    q = (0,) if mode == "r" else (*batch, rows, inner)
    return tensor(x.dtype, q, x.device), tensor(x.dtype, (*batch, inner, columns), x.device)


def _cost_qr(call: OpCall) -> Cost:
    """Householder: the factor R, and Q made from it at the same cost again where it is asked for."""
    batch, rows, columns = _stack(call)
    tall = less(rows, columns)
    if tall is None:
        raise UnknownCost
    long, short = (columns, rows) if tall else (rows, columns)
    work = floordiv(batch * short * short * (long * 3 - short), 3) * (1 if call.attr("mode") == "r" else 2)
    return products(work)


def _infer_eigen(symmetric: bool) -> Infer:
    def infer(call: OpCall) -> tuple[Type, ...]:
        shape, x = _matrices(call), call.tensor("x")
        vectors = x.dtype if symmetric else _COMPLEX_OF.get(x.dtype, x.dtype)
        values = _REAL_PART.get(x.dtype, x.dtype) if symmetric else vectors
        return call.fit(tensor(values, None if shape is None else shape[:-1], x.device), tensor(vectors, shape, x.device))

    return infer


def _infer_solve(call: OpCall) -> Type:
    a, b = _matrices(call, "a"), call.tensor("b")
    if a is None or b.shape is None:
        return tensor(b.dtype, None, b.device)
    if _is_vector(call):
        call.same(a[-1], b.shape[-1], "the right side must have as many rows as the matrix")
        return tensor(b.dtype, (*joint_sizes(call, a[:-2], b.shape[:-1]), a[-1]), b.device)
    rows, columns = b.shape[-2:] if call.attr("left") else (b.shape[-1], b.shape[-2])
    call.same(a[-1], rows, "the right side must have as many rows as the matrix")
    result = (a[-1], columns) if call.attr("left") else (columns, a[-1])
    return tensor(b.dtype, (*joint_sizes(call, a[:-2], b.shape[:-2]), *result), b.device)


def _is_vector(call: OpCall) -> bool:
    """Return whether the right side is a (stack of) vectors: one axis, or the matrices' own sizes without the last."""
    a, b = call.shape("a"), call.shape("b")
    return a is not None and b is not None and call.attr("vectors") is not False and (len(b) == 1 or b == a[:-1])


def _cost_solve(call: OpCall) -> Cost:
    count = numel(call.results[0])
    batch, size, _ = _stack(call)
    if call.attr("triangular"):
        return products(floordiv(count * size, 2))
    cube = batch * size * size * size
    return Cost(matmul=floordiv(cube * 2, 3) + count * size * 2, macs=floordiv(cube, 3) + count * size)


def _cost_inverse(call: OpCall) -> Cost:
    batch, size, _ = _stack(call)
    return products(batch * size * size * size)


def _infer_lstsq(call: OpCall) -> Type:
    a, b = _matrices(call, "a", square=False), call.tensor("b")
    if a is None or b.shape is None:
        return tensor(b.dtype, None, b.device)
    if len(b.shape) == len(a) - 1:
        return tensor(b.dtype, (*joint_sizes(call, a[:-2], b.shape[:-1]), a[-1]), b.device)
    return tensor(b.dtype, (*joint_sizes(call, a[:-2], b.shape[:-2]), a[-1], b.shape[-1]), b.device)


def _infer_slogdet(call: OpCall) -> tuple[Type, ...]:
    shape, x = _matrices(call), call.tensor("x")
    batch = None if shape is None else shape[:-2]
    return tensor(x.dtype, batch, x.device), tensor(_REAL_PART.get(x.dtype, x.dtype), batch, x.device)


def _infer_pinv(call: OpCall) -> Type:
    shape, x = _matrices(call, square=False), call.tensor("x")
    return tensor(x.dtype, None if shape is None else (*shape[:-2], shape[-1], shape[-2]), x.device)


def _infer_trace(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(DType.I64 if x.dtype.is_integer or x.dtype is DType.BOOL else x.dtype, (), x.device)


def _infer_kron(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if a.shape is None or b.shape is None:
        return tensor(a.dtype, None, a.device)
    rank = max(len(a.shape), len(b.shape))
    left = (1,) * (rank - len(a.shape)) + a.shape
    right = (1,) * (rank - len(b.shape)) + b.shape
    return tensor(a.dtype, [x * y for x, y in zip(left, right, strict=True)], a.device)


def _infer_cross(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    both = a.shape is not None and b.shape is not None
    return tensor(a.dtype, joint_sizes(call, a.shape or (), b.shape or ()) if both else None, a.device)


def _infer_cdist(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    if a.shape is None or b.shape is None:
        return tensor(a.dtype, None, a.device)
    call.same(a.shape[-1], b.shape[-1], "points must have the same number of coordinates")
    return tensor(a.dtype, (*joint_sizes(call, a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]), a.device)


def _cost_cdist(call: OpCall) -> Cost:
    """Euclidean distances go through a matrix product with two more columns where there are more than 25 points."""
    count, left, right = numel(call.results[0]), sizes(call.types[0]), sizes(call.types[1])
    mode = call.attr("compute_mode")
    many = any(not isinstance(points, SymDim) and points > 25 for points in (left[-2], right[-2]))
    if call.attr("p") == 2.0 and mode != "donot_use_mm_for_euclid_dist" and (mode == "use_mm_for_euclid_dist" or many):
        return products(count * (left[-1] + 2)) + Cost(transcendental=count)
    return Cost(elementwise=count * left[-1] * 2, reduction=count * left[-1], transcendental=count)


def _evaluate_det(call: OpCall) -> Known | None:
    known = plain_arrays(call, "x")
    return None if known is None else as_result(call, np.linalg.det(known[0]))


def _matrix_op(schema: str, infer: Infer, cost: CostRule | Absent, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CONTRACTION, infer=infer, cost=cost, summary=summary, **facts)


_EIGEN_NOTE = "the number of steps depends on the values, so its cost is unknown"

OPS = (
    op(
        "linalg.det(Tensor x) -> Tensor",
        Family.CONTRACTION,
        infer=_without_matrix,
        cost=_cubic(1, 3),
        evaluate=_evaluate_det,
        temporaries=solver_rule,
        summary="Determinants.",
    ),
    _matrix_op(
        "linalg.slogdet(Tensor x) -> (Tensor sign, Tensor logabsdet)",
        _infer_slogdet,
        _cubic(1, 3),
        "Signs and logarithms of determinants.",
        temporaries=solver_rule,
    ),
    _matrix_op("linalg.inverse(Tensor x) -> Tensor", _square, _cost_inverse, "Inverse matrices.", temporaries=solver_rule),
    _matrix_op(
        "linalg.cholesky(Tensor x, *, bool upper=False) -> Tensor", _square, _cubic(1, 6), "Cholesky factors.", temporaries=solver_rule
    ),
    _matrix_op("linalg.matrix_exp(Tensor x) -> Tensor", _square, Absent.UNKNOWN, f"Matrix exponentials; {_EIGEN_NOTE}."),
    _matrix_op(
        "linalg.svd(Tensor x, *, bool full_matrices=False, bool transposed=True) -> (Tensor u, Tensor s, Tensor v)",
        _infer_svd,
        Absent.UNKNOWN,
        f"Singular value decomposition; {_EIGEN_NOTE}.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.svdvals(Tensor x) -> Tensor",
        _infer_singular_values,
        Absent.UNKNOWN,
        f"Singular values; {_EIGEN_NOTE}.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.qr(Tensor x, *, str mode='reduced') -> (Tensor q, Tensor r)",
        _infer_qr,
        _cost_qr,
        "QR decomposition.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.eig(Tensor x) -> (Tensor values, Tensor? vectors)",
        _infer_eigen(symmetric=False),
        Absent.UNKNOWN,
        f"Eigenvalues and eigenvectors; {_EIGEN_NOTE}.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.eigh(Tensor x, *, bool upper=False) -> (Tensor values, Tensor? vectors)",
        _infer_eigen(symmetric=True),
        Absent.UNKNOWN,
        f"Eigenvalues and eigenvectors of symmetric matrices; {_EIGEN_NOTE}.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.solve(Tensor a, Tensor b, *, bool left=True, bool triangular=False, bool? vectors) -> Tensor",
        _infer_solve,
        _cost_solve,
        "Solves systems of linear equations; `triangular` says that the matrix needs no elimination.",
        temporaries=solver_rule,
    ),
    _matrix_op(
        "linalg.lstsq(Tensor a, Tensor b) -> Tensor",
        _infer_lstsq,
        Absent.UNKNOWN,
        "Least squares solutions; the cost depends on LAPACK's driver, and is unknown.",
        temporaries=solver_rule,
    ),
    _matrix_op("linalg.pinv(Tensor x) -> Tensor", _infer_pinv, Absent.UNKNOWN, f"Pseudo-inverses; {_EIGEN_NOTE}.", temporaries=solver_rule),
    _matrix_op(
        "linalg.trace(Tensor x) -> Tensor",
        _infer_trace,
        lambda call: Cost(reduction=dim_min(*sizes(call.types[0]))),
        "Sum of a matrix's diagonal.",
    ),
    _matrix_op(
        "linalg.kron(Tensor a, Tensor b) -> Tensor",
        _infer_kron,
        lambda call: Cost(elementwise=numel(call.results[0])),
        "Kronecker product.",
    ),
    _matrix_op(
        "linalg.cross(Tensor a, Tensor b, *, int axis=-1) -> Tensor",
        _infer_cross,
        lambda call: Cost(elementwise=numel(call.results[0]) * 3),
        "Cross products of vectors in space.",
    ),
    _matrix_op(
        "linalg.cdist(Tensor a, Tensor b, *, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary') -> Tensor",
        _infer_cdist,
        _cost_cdist,
        "Distances between every point of one set and every point of another.",
        temporaries=cdist_rule,
    ),
    _matrix_op(
        "linalg.householder_product(Tensor x, Tensor tau) -> Tensor",
        like("x"),
        Absent.UNKNOWN,
        "The first columns of a product of Householder reflections.",
    ),
)
