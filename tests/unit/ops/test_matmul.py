"""Matrix products, Einstein sums and linear algebra: sizes and values against numpy and PyTorch."""

from __future__ import annotations

import random

import numpy as np
import pytest

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, evaluate, f32, infer, shape_of

PAIRS = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (7, 3, 4)),
    ((0, 3), (3, 0)),
    ((1, 2, 0), (6, 0, 2)),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_products_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    chance = np.random.default_rng(0)
    a, b = chance.integers(-5, 5, left), chance.integers(-5, 5, right)
    types = tensor(DType.I64, left), tensor(DType.I64, right)
    found = evaluate("math.matmul", *types, values=(a, b))
    np.testing.assert_array_equal(found, a @ b)
    assert shape_of("math.matmul", *types) == (a @ b).shape
    agrees_with_symbols("math.matmul", f32(*left), f32(*right))


EQUATIONS = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ba,ac", ((2, 3), (3, 4))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("...ij,...jk->...ik", ((5, 1, 2, 3), (4, 3, 6))),
    ("...ij,jk", ((5, 2, 3), (3, 4))),
    ("i...->...", ((5, 2, 3),)),
    ("i,i->", ((4,), (4,))),
    (" i , j -> i j ", ((4,), (5,))),
    ("ij->ji", ((4, 5),)),
    ("ij,kj,lj->ikl", ((2, 5), (3, 5), (4, 5))),
    ("Aij,A->iAj", ((2, 3, 4), (2,))),
    ("ij,ij->i", ((3, 1), (3, 6))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einstein_sums_are_those_of_numpy(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    chance = np.random.default_rng(1)
    arrays = [chance.random(shape) for shape in shapes]
    expected = np.einsum(equation.replace(" ", ""), *arrays)
    types = [tensor(DType.F64, shape) for shape in shapes]
    assert shape_of("math.einsum", *types, equation=equation) == expected.shape
    np.testing.assert_allclose(np.asarray(evaluate("math.einsum", *types, values=arrays, equation=equation)), expected)


def test_wrong_equations_are_errors() -> None:
    for equation, shapes in (("ij->i", ((2,),)), ("i,j->ij", ((2,),)), ("i->k", ((2,),)), ("ij,jk->ik", ((2, 3), (4, 5)))):
        with pytest.raises(RuleError):
            shape_of("math.einsum", *(f32(*shape) for shape in shapes), equation=equation)


def test_gemm_transposes_and_adds() -> None:
    chance = np.random.default_rng(2)
    a, b, c = (chance.random(shape).astype(np.float32) for shape in ((3, 2), (4, 3), (4,)))
    attrs = {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0}
    found = evaluate("math.gemm", f32(3, 2), f32(4, 3), f32(4), values=(a, b, c), **attrs)
    np.testing.assert_allclose(np.asarray(found), 0.5 * a.T @ b.T + 2 * c, rtol=1e-6)
    batch = symbol("B")
    assert shape_of("math.gemm", f32(batch, 3), f32(3, 5)) == (batch, 5)
    assert shape_of("math.gemm", f32(batch, 3), tensor(DType.F32, None), trans_a=True) is not None


def test_linear_keeps_leading_axes() -> None:
    batch = symbol("B")
    assert shape_of("nn.linear", f32(batch, 7, 3), f32(5, 3), f32(5)) == (batch, 7, 5)
    assert shape_of("nn.linear", f32(3), f32(5, 3)) == (5,)
    assert shape_of("nn.linear", f32(2, 3), f32(3)) == (2,)
    with pytest.raises(RuleError, match="input size"):
        shape_of("nn.linear", f32(2, 4), f32(5, 3))


def test_transposes_are_folded_in() -> None:
    assert shape_of("math.fused_matmul", f32(2, 4, 3), f32(2, 4, 5), trans_a=True) == (2, 3, 5)
    assert shape_of("math.fused_matmul", f32(4, 2, 3), f32(2, 3, 5), trans_batch_a=True) == (2, 4, 5)


def test_groups_of_products() -> None:
    offsets = tensor(DType.I32, (4,))
    assert shape_of("math.grouped_matmul", f32(32, 64), f32(4, 64, 16), offsets) == (32, 16)
    assert shape_of("math.grouped_matmul", f32(8, 32), f32(32, 16), offsets) == (4, 8, 16)
    assert shape_of("math.grouped_matmul", f32(4, 8, 32), f32(4, 32, 16)) == (4, 8, 16)


def test_batches_are_added_up() -> None:
    assert shape_of("math.baddbmm", f32(2, 4), f32(5, 2, 3), f32(5, 3, 4), sum_batch=True) == (2, 4)
    assert shape_of("math.addmv", f32(2), f32(2, 3), f32(3)) == (2,)
    assert shape_of("math.tensordot", f32(2, 3, 4), f32(4, 3, 5), axes_a=(1, 2), axes_b=(1, 0)) == (2, 5)


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(20))
def test_linear_algebra_is_that_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    lead = tuple(chance.randint(1, 3) for _ in range(chance.randint(0, 2)))
    rows, columns = chance.randint(2, 5), chance.randint(2, 5)
    x = torch.randn(*lead, rows, columns)
    square = torch.randn(*lead, rows, rows) + 5 * torch.eye(rows)

    def same(name: str, expected: object, *types: TensorType, **attrs: object) -> None:
        wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)  # type: ignore[call-overload]
        found = infer(name, *types, results=len(wanted), **attrs)
        assert [str(type_) for type_ in found] == [text(result) for result in wanted], name

    def text(result: torch.Tensor) -> str:
        kinds = {torch.float32: DType.F32, torch.complex64: DType.C64}
        return str(tensor(kinds[result.dtype], result.shape))

    a, s = f32(*x.shape), f32(*square.shape)
    for full in (False, True):
        same("linalg.svd", torch.linalg.svd(x, full_matrices=full), a, full_matrices=full)
    for mode in ("reduced", "complete", "r"):
        same("linalg.qr", torch.linalg.qr(x, mode=mode), a, mode=mode)
    same("linalg.svdvals", torch.linalg.svdvals(x), a)
    same("linalg.pinv", torch.linalg.pinv(x), a)
    same("linalg.det", torch.linalg.det(square), s)
    same("linalg.slogdet", torch.linalg.slogdet(square), s)
    same("linalg.inverse", torch.linalg.inv(square), s)
    same("linalg.eig", torch.linalg.eig(square), s)
    same("linalg.eigh", torch.linalg.eigh(square), s)
    same("linalg.solve", torch.linalg.solve(square, x), s, a, vectors=False)
    same("linalg.solve", torch.linalg.solve(square, square[..., 0]), s, f32(*square.shape[:-1]))
    same("linalg.lstsq", torch.linalg.lstsq(square, x).solution, s, a)
    same("linalg.cdist", torch.cdist(x, torch.randn(*lead, 6, columns)), a, f32(*lead, 6, columns))
    same("linalg.kron", torch.kron(x, torch.randn(2, 3)), a, f32(2, 3))
    same("linalg.cross", torch.linalg.cross(torch.randn(4, 1, 3), torch.randn(1, 5, 3)), f32(4, 1, 3), f32(1, 5, 3))
