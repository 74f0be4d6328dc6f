"""Functions of one and two tensors, reductions and running sums against PyTorch, on shapes and values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tables import every
from tests.unit.ops.calling import against, broadcastable, cases, check, random_array, random_axis, random_shape

# Functions of one and two tensors against PyTorch, on shapes and values.

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TORCH_NAMES = """
    math.neg math.abs math.sign math.floor math.ceil math.round math.trunc math.square math.reciprocal math.sqrt math.rsqrt
    math.exp math.exp2 math.expm1 math.log math.log2 math.log10 math.log1p math.logit math.sin math.cos math.tan math.asin
    math.acos math.atan math.sinh math.cosh math.tanh math.asinh math.acosh math.atanh math.erf math.erfc math.erfinv
    math.lgamma math.digamma math.sinc math.frac math.nan_to_num math.signbit math.isnan math.isinf math.isfinite
    nn.relu nn.sigmoid
"""
FUNCTIONAL_NAMES = """
    relu6 leaky_relu elu selu celu gelu silu mish logsigmoid hardswish hardtanh softplus softsign hardshrink softshrink
    tanhshrink
"""
UNARY: dict[str, Callable[..., Any]] = {name: getattr(torch, name.partition(".")[2]) for name in TORCH_NAMES.split()}
UNARY |= {f"nn.{name}": getattr(F, name) for name in FUNCTIONAL_NAMES.split()}
UNARY["math.not"] = torch.logical_not
FLOAT_ONLY = {"math.frac", "math.round", "math.trunc", "math.floor", "math.ceil", "math.reciprocal"}
BINARY: dict[str, Callable[..., Any]] = {
    "math.add": torch.add,
    "math.sub": torch.sub,
    "math.mul": torch.mul,
    "math.div": torch.div,
    "math.maximum": torch.maximum,
    "math.minimum": torch.minimum,
    "math.atan2": torch.atan2,
    "math.xlogy": torch.xlogy,
    "compare.equal": torch.eq,
    "compare.not_equal": torch.ne,
    "compare.less": torch.lt,
    "compare.less_equal": torch.le,
    "compare.greater": torch.gt,
    "compare.greater_equal": torch.ge,
    "math.and": torch.logical_and,
    "math.or": torch.logical_or,
    "math.xor": torch.logical_xor,
}
DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]


@every("name", UNARY)
def test_unary(name: str) -> None:
    for rng in cases(name):
        against(UNARY[name], name, [random_array(rng, random_shape(rng))], {}, close=1e-4)


@every("name", [name for name in UNARY if name.startswith("math.") and name not in FLOAT_ONLY])
@every("dtype", ["int64", "int32", "uint8", "bool"])
def test_unary_of_integers(name: str, dtype: str) -> None:
    if dtype == "bool" and name in ("math.neg", "math.abs", "math.sign", "math.square"):
        pytest.skip("PyTorch has no such function of truth values, or another result type")
    for rng in cases(f"{name} {dtype}", 3):
        against(UNARY[name], name, [random_array(rng, random_shape(rng), dtype)], {}, close=1e-4)


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts_and_promotes(name: str) -> None:
    for rng in cases(name, 60):
        dtypes = [dtype for dtype in DTYPES if not (name == "math.sub" and dtype == "bool")]
        shape = random_shape(rng)
        x = random_array(rng, shape, rng.choice(dtypes))
        y = random_array(rng, broadcastable(rng, shape), rng.choice(dtypes))
        if name in ("math.atan2",) and "float16" in (str(x.dtype), str(y.dtype)):
            continue
        against(
            BINARY[name], name, [x, y] if rng.random() < 0.5 else [y, x], {}, close=2e-3 if "float16" in f"{x.dtype}{y.dtype}" else 1e-5
        )


@pytest.mark.parametrize("name", ["math.add", "math.sub", "math.mul", "math.div", "compare.less", "compare.equal", "math.pow"])
def test_numbers_only_promote_by_kind(name: str) -> None:
    functions = {**BINARY, "math.pow": torch.pow}
    for rng in cases(f"{name} number", 60):
        dtype = rng.choice([dtype for dtype in DTYPES if dtype != "bool"])
        number: Any = rng.choice([2, 1, 2.5, 3])
        x = random_array(rng, random_shape(rng), dtype)
        if name == "math.pow":
            x = np.asarray(np.abs(x))
        against(
            functions[name], name, [x, None], {"value": number}, torch.from_numpy(x), number, close=1e-2 if dtype == "float16" else 1e-5
        )


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_division_with_rounding(mode: str) -> None:
    for rng in cases(f"div {mode}", 40):
        shape = random_shape(rng)
        dtype = rng.choice(["int64", "int32", "float32"])
        x, y = random_array(rng, shape, dtype), random_array(rng, broadcastable(rng, shape), dtype)
        y[y == 0] = 3
        options = {"rounding_mode": mode}
        against(torch.div, "math.div", [x, y], options, torch.from_numpy(x), torch.from_numpy(y), **options)


@pytest.mark.parametrize(("name", "attrs"), [("remainder", {"fmod": False}), ("fmod", {"fmod": True})])
def test_remainders(name: str, attrs: dict[str, bool]) -> None:
    for rng in cases(name, 40):
        shape = random_shape(rng)
        dtype = rng.choice(["int64", "int32", "float32"])
        x, y = random_array(rng, shape, dtype), random_array(rng, broadcastable(rng, shape), dtype)
        y[y == 0] = 3
        against(getattr(torch, name), "math.mod", [x, y], attrs, close=1e-4)


def test_powers() -> None:
    for rng in cases("pow", 40):
        shape = random_shape(rng)
        x = np.asarray(np.abs(random_array(rng, shape, rng.choice(["float32", "int64", "int32"]))))
        y = np.asarray(np.abs(random_array(rng, broadcastable(rng, shape), rng.choice(["float32", "int64"]))))
        against(torch.pow, "math.pow", [x, y], {}, close=1e-3)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name: str) -> None:
    for rng in cases(name):
        shape = random_shape(rng)
        x = random_array(rng, shape, rng.choice(["int64", "uint8", "bool"]))
        y = random_array(rng, broadcastable(rng, shape), rng.choice(["int64", "int32", "bool"]))
        against(getattr(torch, name), f"math.{name}", [x, y], {})


def test_where() -> None:
    for rng in cases("where", 40):
        shape = random_shape(rng)
        condition = random_array(rng, broadcastable(rng, shape), "bool")
        x = random_array(rng, broadcastable(rng, shape), rng.choice(DTYPES[:5]))
        y = random_array(rng, broadcastable(rng, shape), rng.choice(DTYPES[:5]))
        against(torch.where, "math.where", [condition, x, y], {})


def test_where_with_numbers() -> None:
    for rng in cases("where number", 30):
        shape = random_shape(rng)
        condition, x = random_array(rng, broadcastable(rng, shape), "bool"), random_array(rng, shape, rng.choice(["int64", "float32"]))
        number: Any = rng.choice([0, -1.5])
        c, v = torch.from_numpy(condition), torch.from_numpy(x)
        against(torch.where, "math.where", [condition, x, None], {"y_value": number}, c, v, number)


def test_clamp() -> None:
    for rng in cases("clamp", 40):
        shape = random_shape(rng)
        x = random_array(rng, shape, rng.choice(["int64", "float32"]))
        low, high = broadcastable(rng, shape), broadcastable(rng, shape)
        limits = [random_array(rng, low, str(x.dtype)), random_array(rng, high, str(x.dtype))]
        against(torch.clamp, "math.clamp", [x, *limits], {})
        against(torch.clamp, "math.clamp", [x, None, None], {"min_value": -1, "max_value": 2.5}, torch.from_numpy(x), -1, 2.5)


def test_functions_of_three() -> None:
    for rng in cases("three"):
        shape = random_shape(rng)
        x, a, b = (random_array(rng, broadcastable(rng, shape)) for _ in range(3))
        against(torch.addcmul, "math.addcmul", [x, a, b], {})
        against(torch.addcdiv, "math.addcdiv", [x, a, b], {})
        against(torch.lerp, "math.lerp", [x, a, b], {})


def test_complex_parts() -> None:
    for rng in cases("complex", 10):
        x = random_array(rng, random_shape(rng)) + 1j * random_array(rng, ())
        x = np.asarray(x).astype(np.complex64)
        against(torch.real, "math.real", [x], {})
        against(torch.imag, "math.imag", [x], {})
        against(torch.abs, "math.abs", [x], {})
        against(torch.angle, "math.angle", [x], {})


def test_gated_units() -> None:
    for rng in cases("glu"):
        x = random_array(rng, (*random_shape(rng), 2 * rng.randint(1, 3)))
        against(F.glu, "nn.glu", [x], {})


def test_prelu() -> None:
    for rng in cases("prelu"):
        x = random_array(rng, random_shape(rng, 2, 4, empty=False))
        slope = random_array(rng, (x.shape[1],) if rng.random() < 0.5 else (1,))
        against(F.prelu, "nn.prelu", [x, slope], {"per_channel": True})


# Reductions, softmax, sorting and running sums against PyTorch, on shapes and values.

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


@every("as_operand", [False, True])
@every("name", REDUCTIONS)
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
