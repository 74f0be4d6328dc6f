"""Reductions, softmax, sorting and running sums against PyTorch, on shapes and values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.calling import check
from tests.unit.ops.torching import against, broadcastable, cases, random_array, random_axis, random_shape

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce.sum": torch.sum,
    "reduce.mean": torch.mean,
    "reduce.max": torch.amax,
    "reduce.min": torch.amin,
    "reduce.any": torch.any,
    "reduce.all": torch.all,
    "reduce.log_sum_exp": torch.logsumexp,
    "reduce.var": torch.var,
    "reduce.std": torch.std,
    "reduce.norm": torch.linalg.vector_norm,
    "reduce.count_nonzero": torch.count_nonzero,
    "reduce.var_mean": torch.var_mean,
    "reduce.std_mean": torch.std_mean,
}


def _axes(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Some axes, each once, counted from either side."""
    if rank == 0:
        return ()
    return tuple(axis - rank if rng.random() < 0.3 else axis for axis in rng.sample(range(rank), rng.randint(1, rank)))


@pytest.mark.parametrize("as_operand", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_axes(name: str, as_operand: bool) -> None:
    for rng in cases(f"{name} {as_operand}", 40):
        x = random_array(rng, random_shape(rng, 1, empty=False))
        axes, keep = _axes(rng, x.ndim), rng.random() < 0.5
        if name == "reduce.count_nonzero":
            keep = False
        operands = [x, np.array(axes, dtype=np.int64)] if as_operand else [x]
        attrs: dict[str, Any] = {"keepdims": keep} if as_operand else {"keepdims": keep, "axes": axes}
        options = {} if name == "reduce.count_nonzero" else {"keepdim": keep}
        against(REDUCTIONS[name], name, operands, attrs, torch.from_numpy(x), dim=axes, close=1e-4, **options)


@pytest.mark.parametrize("name", ["reduce.sum", "reduce.mean", "reduce.max", "reduce.min", "reduce.any", "reduce.all", "reduce.norm"])
def test_reductions_of_everything(name: str) -> None:
    functions = {**REDUCTIONS, "reduce.max": torch.max, "reduce.min": torch.min}
    for rng in cases(f"{name} all"):
        x = random_array(rng, random_shape(rng, empty=name in ("reduce.sum", "reduce.any", "reduce.all")))
        against(functions[name], name, [x], {}, close=1e-4)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "int64"])
def test_sums_of_integers_are_promoted(dtype: str) -> None:
    for rng in cases(f"sum {dtype}", 20):
        x = random_array(rng, random_shape(rng), dtype)
        against(torch.sum, "reduce.sum", [x], {"promote": True})
        axis = random_axis(rng, x.ndim)
        against(torch.prod, "reduce.prod", [x], {"promote": True, "axes": (axis,)}, torch.from_numpy(x), axis)
        against(torch.cumsum, "tensor.cumsum", [x], {"promote": True, "axis": axis}, torch.from_numpy(x), axis)


@pytest.mark.parametrize("p", [0, 1, 2, 3, float("inf"), float("-inf")])
def test_norms(p: float) -> None:
    for rng in cases(f"norm {p}", 10):
        x = random_array(rng, random_shape(rng, 1, empty=False))
        axes = _axes(rng, x.ndim)
        against(torch.linalg.vector_norm, "reduce.norm", [x], {"p": p, "axes": axes}, torch.from_numpy(x), p, axes, close=1e-3)


def test_variance_corrections() -> None:
    for rng in cases("var correction", 20):
        x = random_array(rng, random_shape(rng, 1, empty=False))
        axes, correction = _axes(rng, x.ndim), rng.randint(0, 2)
        attrs = {"axes": axes, "correction": correction}
        against(torch.var, "reduce.var", [x], attrs, torch.from_numpy(x), dim=axes, correction=correction, close=1e-4)


def test_extremes_with_positions() -> None:
    for rng in cases("max", 40):
        x = random_array(rng, random_shape(rng, 0, 3, empty=False))
        axis, keep = random_axis(rng, x.ndim), rng.random() < 0.5
        attrs = {"axis": axis, "keepdims": keep}
        v = torch.from_numpy(x)
        against(torch.max, "reduce.max_with_index", [x], attrs, v, axis, keep)
        against(torch.min, "reduce.min_with_index", [x], attrs, v, axis, keep)
        against(torch.argmax, "reduce.argmax", [x], attrs, v, axis, keep)
        against(torch.argmin, "reduce.argmin", [x], {}, v)
        against(torch.median, "tensor.median", [x], attrs, v, axis, keep)
        against(torch.mode, "tensor.mode", [x], attrs, v, axis, keep)
        against(torch.kthvalue, "tensor.kthvalue", [x], {**attrs, "k": 1}, v, 1, axis, keep)
        against(torch.aminmax, "reduce.min_max", [x], {"axes": (axis,), "keepdims": keep}, v, dim=axis, keepdim=keep)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax(name: str) -> None:
    for rng in cases(name, 40):
        x = random_array(rng, random_shape(rng), rng.choice(["float32", "float64"]))
        axis = random_axis(rng, x.ndim)
        against(getattr(F, name), f"nn.{name}", [x], {"axis": axis}, torch.from_numpy(x), axis)


def test_cosine_similarity() -> None:
    for rng in cases("cosine", 30):
        shape = random_shape(rng, 1, 3, empty=False)
        x, y = random_array(rng, shape), random_array(rng, broadcastable(rng, shape))
        axis = random_axis(rng, len(shape))
        against(F.cosine_similarity, "nn.cosine_similarity", [x, y], {"axis": axis}, torch.from_numpy(x), torch.from_numpy(y), axis)


def test_sorting() -> None:
    for rng in cases("sort", 50):
        x = random_array(rng, random_shape(rng, 0, 3), rng.choice(["float32", "int64", "uint8"]))
        axis, descending = random_axis(rng, x.ndim), rng.random() < 0.5
        attrs = {"axis": axis, "descending": descending}
        options = {"dim": axis, "descending": descending, "stable": True}
        against(torch.sort, "tensor.sort", [x], attrs, torch.from_numpy(x), **options)
        against(torch.argsort, "tensor.argsort", [x], attrs, torch.from_numpy(x), **options)


def test_topk() -> None:
    for rng in cases("topk", 50):
        x = random_array(rng, random_shape(rng, 1, 3, empty=False))
        axis, largest = random_axis(rng, x.ndim), rng.random() < 0.5
        k = rng.randint(0, x.shape[axis])
        v = torch.from_numpy(x)
        attrs = {"axis": axis, "largest": largest}
        against(torch.topk, "tensor.topk", [x, np.array([k])], attrs, v, k, axis, largest)
        against(torch.topk, "tensor.topk", [x], {**attrs, "k": k}, v, k, axis, largest)


def test_unique() -> None:
    for rng in cases("unique", 40):
        x = np.asarray(random_array(rng, random_shape(rng, 0, 3, empty=False), "int64") % 4)
        v = torch.from_numpy(x)
        found, inverse, counts = torch.unique(v, return_inverse=True, return_counts=True)
        first = np.unique(x, return_index=True)[1]
        want = [found.numpy(), first, inverse.numpy(), counts.numpy()]
        check("tensor.unique", [x], {"inverse_like_input": True}, want)
        if x.ndim:
            axis = random_axis(rng, x.ndim)
            found, inverse, counts = torch.unique(v, return_inverse=True, return_counts=True, dim=axis)
            first = np.unique(x, return_index=True, axis=axis)[1]
            check("tensor.unique", [x], {"axis": axis}, [found.numpy(), first, inverse.numpy(), counts.numpy()])


def test_running() -> None:
    for rng in cases("running", 40):
        x = random_array(rng, random_shape(rng, 0, 3))
        axis = random_axis(rng, x.ndim)
        v = torch.from_numpy(x)
        against(torch.cumsum, "tensor.cumsum", [x, np.array(axis)], {}, v, axis)
        against(torch.cumprod, "tensor.cumprod", [x], {"axis": axis}, v, axis)
        if x.size:
            against(torch.cummax, "tensor.cummax", [x], {"axis": axis}, v, axis)
        against(torch.logcumsumexp, "tensor.logcumsumexp", [x], {"axis": axis}, v, axis)


def test_searching() -> None:
    for rng in cases("search", 30):
        limits = np.sort(random_array(rng, (rng.randint(0, 5),)))
        x = random_array(rng, random_shape(rng))
        options = {"right": rng.random() < 0.5}
        against(torch.searchsorted, "tensor.searchsorted", [limits, x], options, **options)


def test_histogram() -> None:
    for rng in cases("histc", 5):
        x = random_array(rng, random_shape(rng))
        against(torch.histc, "tensor.histc", [x], {"bins": 7}, torch.from_numpy(x), 7)
