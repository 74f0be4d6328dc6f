"""Creation, casts, random numbers and dropout against PyTorch, on shapes, element types and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ops.promotion import promote_types, result_dtype
from tests.unit.ops.calling import check, t
from tests.unit.ops.torching import against, cases, random_array, random_shape

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TORCH = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
SIZES: dict[str, tuple[int, ...]] = {"[2]": (2,), "[]": ()}
NAMES = {dtype: text for text, dtype in TORCH.items()}


@pytest.mark.parametrize("left", TORCH)
@pytest.mark.parametrize("right", TORCH)
def test_promotion_of_element_types(left: str, right: str) -> None:
    want = NAMES.get(torch.promote_types(TORCH[left], TORCH[right]))
    assert promote_types(DTYPES_BY_TEXT[left], DTYPES_BY_TEXT[right]).text == want
    for a, b in [("[2]", "[]"), ("[]", "[2]"), ("[]", "[]"), ("[2]", "[2]")]:
        x, y = torch.zeros(SIZES[a], dtype=TORCH[left]), torch.zeros(SIZES[b], dtype=TORCH[right])
        result = torch.result_type(x, y)
        if result in NAMES:
            assert result_dtype([t(left + a), t(right + b)]).text == NAMES[result], (left + a, right + b)


@pytest.mark.parametrize("number", [True, 3, 2.5, 1j])
@pytest.mark.parametrize("dtype", TORCH)
def test_promotion_with_numbers(dtype: str, number: Any) -> None:
    for text, sizes in [("[2]", (2,)), ("[]", ())]:
        want = torch.result_type(torch.zeros(sizes, dtype=TORCH[dtype]), number)
        if want in NAMES:
            assert result_dtype([t(dtype + text)], [number]).text == NAMES[want]


def test_arange() -> None:
    for rng in cases("arange", 80):
        numbers: list[Any] = [rng.randint(-9, 9), rng.randint(-9, 9), rng.choice([-3, -1, 1, 2, 5])]
        if (numbers[1] - numbers[0]) * numbers[2] < 0:
            numbers[0], numbers[1] = numbers[1], numbers[0]
        if rng.random() < 0.4:
            numbers = [number + rng.choice([0, 0.5, 0.25]) for number in numbers]
            if numbers[2] == 0 or (numbers[1] - numbers[0]) * numbers[2] < 0:
                continue
        want = torch.arange(*numbers).numpy()
        start, limit, delta = numbers
        check("tensor.arange", [], {"start": start, "limit": limit, "delta": delta}, [want])
        kind = np.float64 if any(isinstance(number, float) for number in numbers) else np.int64
        check("tensor.arange", [np.array(number, dtype=kind) for number in numbers], {"dtype": DType.F64}, [want.astype(np.float64)])


def test_ranges_and_diagonals() -> None:
    for rng in cases("linspace", 20):
        rows, columns = rng.randint(0, 4), rng.randint(0, 4)
        check("tensor.linspace", [], {"start": -1.5, "limit": 2, "steps": rows}, [torch.linspace(-1.5, 2, rows).numpy()])
        check("tensor.eye", [], {"rows": rows, "columns": columns}, [torch.eye(rows, columns).numpy()])
        check("tensor.eye", [], {"rows": rows}, [torch.eye(rows).numpy()])


def test_triangles_as_indices() -> None:
    for rng in cases("tri indices", 40):
        rows, columns, offset = rng.randint(0, 5), rng.randint(0, 5), rng.randint(-6, 6)
        attrs = {"rows": rows, "columns": columns, "offset": offset}
        check("tensor.tri_indices", [], attrs, [torch.tril_indices(rows, columns, offset).numpy()])
        check("tensor.tri_indices", [], {**attrs, "upper": True}, [torch.triu_indices(rows, columns, offset).numpy()])


def test_one_hot() -> None:
    for rng in cases("one_hot", 20):
        x = random_array(rng, random_shape(rng, 0, 3, empty=False), "uint8").astype(np.int64)
        against(F.one_hot, "tensor.one_hot", [x, np.array(9)], {}, torch.from_numpy(x), 9)


@pytest.mark.parametrize("kind", ["hann", "hamming", "blackman"])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows_of_the_same_definition(kind: str, periodic: bool) -> None:
    for size in (2, 3, 8, 15):
        want = getattr(torch, f"{kind}_window")(size, periodic=periodic).numpy()
        close = 1e-2 if kind == "hamming" else 1e-5  # ONNX has 25/46 where PyTorch has 0.54
        check("tensor.window", [], {"size": size, "kind": kind, "periodic": periodic}, [want], close=close)


def test_fills() -> None:
    for rng in cases("full", 20):
        shape = random_shape(rng)
        check("tensor.full", [np.array(shape, dtype=np.int64)], {"fill": 2}, [torch.full(shape, 2).numpy()])
        x = random_array(rng, shape, rng.choice(["float32", "int64"]))
        check("tensor.full_like", [x], {"fill": 0}, [torch.zeros_like(torch.from_numpy(x)).numpy()])
        check("tensor.empty_like", [x], {}, [x])


@pytest.mark.parametrize("to", ["bool", "u8", "i8", "i32", "i64", "f16", "f32", "f64"])
def test_casts(to: str) -> None:
    for rng in cases(f"cast {to}", 30):
        x = random_array(rng, random_shape(rng), rng.choice(["float32", "float64", "int64", "uint8", "bool"]))
        if to == "u8":
            x = np.abs(x)
        want = torch.from_numpy(np.asarray(x)).to(TORCH[to]).numpy()
        check("tensor.cast", [np.asarray(x)], {"to": DTYPES_BY_TEXT[to]}, [want])
        check("tensor.to", [np.asarray(x)], {"dtype": DTYPES_BY_TEXT[to]}, [want])


@pytest.mark.parametrize(
    ("text", "dtype"), [("bf16", "bfloat16"), ("f8e4m3fn", "float8_e4m3fn"), ("f8e5m2", "float8_e5m2"), ("f16", "float16")]
)
def test_rounding_to_narrow_floats(text: str, dtype: str) -> None:
    from irscope.ops.values import settle

    for rng in cases(f"round {text}", 5):
        x = np.clip(random_array(rng, (200,)) * np.exp2(random_array(rng, (200,), "int64")), -400, 400).astype(np.float32)
        want = torch.from_numpy(x).to(getattr(torch, dtype)).to(torch.float32).numpy()
        np.testing.assert_array_equal(settle(x, DTYPES_BY_TEXT[text]).astype(np.float32), want)


def test_dropout_in_evaluation() -> None:
    for rng in cases("dropout", 10):
        x = random_array(rng, random_shape(rng))
        against(F.dropout, "nn.dropout", [x], {"training": False}, torch.from_numpy(x), 0.5, False)


def test_random_shapes() -> None:
    for rng in cases("random", 10):
        shape = random_shape(rng)
        check("random.normal", [np.array(shape, dtype=np.int64)], {}, [torch.randn(shape).numpy()])
        check("random.randint", [], {"shape": shape, "low": 0, "high": 3}, [torch.randint(0, 3, shape).numpy()])
        check("random.randperm", [], {"count": 5}, [torch.randperm(5).numpy()])
        x = np.abs(random_array(rng, (rng.randint(1, 2), 4))) + 1
        check("random.multinomial", [x], {"samples": 3}, [torch.multinomial(torch.from_numpy(x), 3).numpy()])
        check("random.uniform_like", [x], {}, [torch.rand_like(torch.from_numpy(x)).numpy()])
