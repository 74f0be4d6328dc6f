"""Spectral norms against numpy's singular values, on spectra that are hard for iterations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper, numpy_helper

from irscope.passes.weights.params import Params
from irscope.passkit.manager import Manager
from irscope.report.values import Quantity
from tests.frontends.onnx.build import load, model, value

Matrix = npt.NDArray[np.float64]
SIZE = 200


def of_spectrum(values: npt.ArrayLike) -> Matrix:
    rng = np.random.default_rng(7)
    left, right = (np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    return np.asarray((left * np.asarray(values)) @ right)


def random(rows: int, columns: int) -> Matrix:
    return np.random.default_rng(3).standard_normal((rows, columns))


CASES: dict[str, Callable[[], Matrix]] = {
    "dense random": lambda: random(300, 300),
    "tall": lambda: random(900, 64),
    "wide": lambda: random(64, 900),
    "two": lambda: random(2, 2),
    "evenly spread": lambda: of_spectrum(np.linspace(1, 0, SIZE)),
    "crowded at the top": lambda: of_spectrum(np.linspace(1, 0, SIZE) ** 0.5),
    "one above a crowd": lambda: of_spectrum(np.r_[1.0005, np.linspace(1, 0.999, SIZE - 1)]),
    "a close pair": lambda: of_spectrum(np.r_[1, 1 - 1e-5, np.linspace(0.999, 0, SIZE - 2)]),
    "all equal": lambda: np.eye(SIZE),
    "falling fast": lambda: of_spectrum(0.5 ** np.arange(SIZE)),
    "rank one": lambda: np.outer(np.arange(1.0, 41), np.arange(1.0, 31)),
    "tiny": lambda: of_spectrum(np.linspace(1, 0.5, SIZE)) * 1e-30,
    "huge": lambda: of_spectrum(np.linspace(1, 0.5, SIZE)) * 1e30,
}


def norms(matrix: Matrix, **options: int) -> tuple[float, dict[str, object]]:
    """The largest singular value by numpy, and what the table of parameters says."""
    stored = matrix.astype(np.float32)
    weight = numpy_helper.from_array(stored, "w")
    program = load(model([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (1, matrix.shape[0]))], initializers=[weight]))
    table = Manager(program).run_one(Params(values=True, spectral=True, **options)).report().tables[0]
    row = dict(zip((column.key for column in table.columns), next(iter(table.rows())), strict=True))
    return float(np.linalg.svd(stored.astype(np.float64), compute_uv=False)[0]), row


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_norms_are_those_of_numpy(make: Callable[[], Matrix]) -> None:
    true, row = norms(make())
    found = row["spectral_norm"]
    assert isinstance(found, Quantity) and isinstance(found.value, float) and isinstance(found.hi, float)
    assert found.value == pytest.approx(true, rel=1e-5)
    assert found.value * (1 - 1e-9) <= true <= found.hi * (1 + 1e-9) and found.hi <= true * (1 + 2e-4)


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
@pytest.mark.parametrize("name", ["dense random", "crowded at the top", "one above a crowd"])
def test_a_norm_that_has_not_converged_says_how_large_it_may_be(name: str, steps: int) -> None:
    true, row = norms(CASES[name](), iterations=steps)
    found, rank = row["spectral_norm"], row["stable_rank"]
    assert isinstance(found, Quantity) and isinstance(found.value, float) and isinstance(found.hi, float)
    assert found.value <= true * (1 + 1e-9) and true <= found.hi
    assert isinstance(rank, Quantity) and isinstance(rank.lo, float) and rank.lo <= float(rank.value or 0)


def test_what_is_no_matrix_or_all_zero_has_no_norm() -> None:
    assert norms(np.zeros((3, 3)))[1]["spectral_norm"] is None
