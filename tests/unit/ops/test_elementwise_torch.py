"""Functions of one and two tensors against PyTorch, on shapes and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.torching import against, broadcastable, cases, random_array, random_shape

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

UNARY: dict[str, Callable[..., Any]] = {
    "math.neg": torch.neg,
    "math.abs": torch.abs,
    "math.sign": torch.sign,
    "math.floor": torch.floor,
    "math.ceil": torch.ceil,
    "math.round": torch.round,
    "math.trunc": torch.trunc,
    "math.square": torch.square,
    "math.reciprocal": torch.reciprocal,
    "math.sqrt": torch.sqrt,
    "math.rsqrt": torch.rsqrt,
    "math.exp": torch.exp,
    "math.exp2": torch.exp2,
    "math.expm1": torch.expm1,
    "math.log": torch.log,
    "math.log2": torch.log2,
    "math.log10": torch.log10,
    "math.log1p": torch.log1p,
    "math.logit": torch.logit,
    "math.sin": torch.sin,
    "math.cos": torch.cos,
    "math.tan": torch.tan,
    "math.asin": torch.asin,
    "math.acos": torch.acos,
    "math.atan": torch.atan,
    "math.sinh": torch.sinh,
    "math.cosh": torch.cosh,
    "math.tanh": torch.tanh,
    "math.asinh": torch.asinh,
    "math.acosh": torch.acosh,
    "math.atanh": torch.atanh,
    "math.erf": torch.erf,
    "math.erfc": torch.erfc,
    "math.erfinv": torch.erfinv,
    "math.lgamma": torch.lgamma,
    "math.digamma": torch.digamma,
    "math.sinc": torch.sinc,
    "math.frac": torch.frac,
    "math.nan_to_num": torch.nan_to_num,
    "math.not": torch.logical_not,
    "math.signbit": torch.signbit,
    "math.isnan": torch.isnan,
    "math.isinf": torch.isinf,
    "math.isfinite": torch.isfinite,
    "nn.relu": torch.relu,
    "nn.relu6": F.relu6,
    "nn.leaky_relu": F.leaky_relu,
    "nn.elu": F.elu,
    "nn.selu": F.selu,
    "nn.celu": F.celu,
    "nn.gelu": F.gelu,
    "nn.silu": F.silu,
    "nn.mish": F.mish,
    "nn.sigmoid": torch.sigmoid,
    "nn.logsigmoid": F.logsigmoid,
    "nn.hardswish": F.hardswish,
    "nn.hardtanh": F.hardtanh,
    "nn.softplus": F.softplus,
    "nn.softsign": F.softsign,
    "nn.hardshrink": F.hardshrink,
    "nn.softshrink": F.softshrink,
    "nn.tanhshrink": F.tanhshrink,
}
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


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    for rng in cases(name):
        against(UNARY[name], name, [random_array(rng, random_shape(rng))], {}, close=1e-4)


@pytest.mark.parametrize("name", [name for name in UNARY if name.startswith("math.") and name not in FLOAT_ONLY])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
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
