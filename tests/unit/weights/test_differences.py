"""How the values of two checkpoints differ: against numpy over whole tensors, and the comparison and its limit on the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irscope.cli.main import main
from irscope.errors import Cancelled
from irscope.session import open_model
from irscope.tools.compare import compare_models
from irscope.tools.compare.weights import read_values, weight_change, weights_headline
from irscope.weights.differences import Difference, differences
from irscope.weights.source import WeightFiles

Arrays = Mapping[str, np.ndarray[Any, Any]]
_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "int8": "I8",
    "bool": "BOOL",
    "uint16": "BF16",
}


def write(path: Path, arrays: Arrays) -> Path:
    """A .safetensors file; 16-bit unsigned numbers stand for the bits of bf16."""
    header: dict[str, object] = {}
    at = 0
    for name, array in arrays.items():
        header[name] = {"dtype": _NAMES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values()))
    return path


def found(tmp_path: Path, a: Arrays, b: Arrays, threads: int = 2) -> dict[str, Difference]:
    """The differences of all tensors by name."""
    models = [open_model(write(tmp_path / f"{name}.safetensors", arrays)) for name, arrays in (("a", a), ("b", b))]
    one, other = ({value.name: value for value in model.program.weights()} for model in models)
    with WeightFiles(models[0].program.path) as first, WeightFiles(models[1].program.path) as second:
        made = differences([(one[name], other[name]) for name in a], (first, second), threads)
    assert all(isinstance(difference, Difference) for difference in made)
    return {name: difference for name, difference in zip(a, made, strict=True) if isinstance(difference, Difference)}


@pytest.mark.parametrize(
    ("before", "after"), [("float32", "float32"), ("float32", "float16"), ("float64", "float32"), ("float16", "float16")]
)
def test_it_is_what_numpy_finds_over_the_whole(tmp_path: Path, before: str, after: str) -> None:
    rng = np.random.default_rng(0)
    # More than two windows; the first of them is equal where types are.
    x = rng.normal(size=(700, 1000)).astype(before)
    y = x.astype(after)
    y[600:] += rng.normal(size=(100, 1000)).astype(after) * 0.1
    made = found(tmp_path, {"w": x}, {"w": y})["w"]
    one, other = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
    assert made.count == x.size and made.changed == int((one != other).sum())
    assert made.largest == np.abs(other - one).max()
    assert made.relative == pytest.approx(np.linalg.norm(other - one) / np.linalg.norm(one), rel=1e-11)
    assert made.cosine == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other), rel=1e-11)


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a = {f"w{number}": rng.normal(size=300_000).astype(np.float32) for number in range(5)}
    b = {name: values * np.float32(1.1) for name, values in a.items()}
    assert found(tmp_path, a, b, threads=1) == found(tmp_path, a, b, threads=4)


def test_numbers_that_became_none_are_counted_and_left_out_of_the_sums(tmp_path: Path) -> None:
    a = np.array([1, 2, np.nan, np.inf, 3], np.float32)
    b = np.array([np.nan, 2, np.nan, 4, np.inf], np.float32)
    made = found(tmp_path, {"w": a}, {"w": b})["w"]
    assert (made.changed, made.lost, made.gained, made.apart) == (3, 2, 1, 3)
    # Nothing that differs has a difference that is a number: 0 would say that nothing changed.
    assert (made.largest, made.relative, made.cosine) == (None, None, None)
    a[1] = 4
    made = found(tmp_path, {"w": a}, {"w": b})["w"]
    assert (made.changed, made.apart, made.largest, made.relative, made.cosine) == (4, 3, 2.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "change", "said"),
    [
        ([1.0, np.nan], [1.0, 2.0], "not finite in A", "1 differ (1 NaN or infinite in A)"),
        ([1.0, np.inf], [1.0, np.nan], "not finite in A", "1 differ (1 NaN or infinite in A)"),
        ([1.0, np.inf], [1.0, -np.inf], "not finite in A", "1 differ (1 NaN or infinite in A)"),
        ([1.0, 2.0], [1.0, np.nan], "not finite", "1 differ (1 NaN or infinite in B)"),
        ([np.nan, 2.0], [1.0, np.nan], "not finite", "1 differ (1 NaN or infinite in B)"),
        ([1.0, np.nan], [1.0, np.nan], "", "all equal"),
    ],
)
def test_nan_on_a_side_is_a_difference_and_says_which(tmp_path: Path, a: list[float], b: list[float], change: str, said: str) -> None:
    paths = [write(tmp_path / f"{name}.safetensors", {"w": np.array(one, np.float32)}) for name, one in (("a", a), ("b", b))]
    compared = compare_models(*map(open_model, paths))
    read_values(compared)
    assert weight_change(compared.weights[0], compared.values) == change
    assert weights_headline(compared) == [f"1 weights in both: {said}" + (", 0 equal" if change else "")]


def test_equal_tensors_are_equal(tmp_path: Path) -> None:
    values = {"w": np.array([0.0, np.nan, 1.0], np.float32), "none": np.zeros((0, 3), np.float32), "b": np.array([True, False])}
    for made in found(tmp_path, values, values).values():
        assert made.changed == 0 and made.relative == 0.0


def test_large_integers_are_subtracted_as_integers(tmp_path: Path) -> None:
    a, b = (np.array([1 << 62, 5, -(1 << 63)], np.int64) + np.array(step, np.int64) for step in ([0, 0, 0], [1, 0, 3]))
    made = found(tmp_path, {"w": a}, {"w": b})["w"]
    assert made.changed == 2 and made.largest == 3.0
    made = found(tmp_path, {"w": np.array([1 << 63], np.uint64)}, {"w": np.array([(1 << 63) - 1], np.uint64)})["w"]
    assert made.changed == 1 and made.largest == 1.0


def test_where_a_has_no_length_the_relative_difference_is_unknown(tmp_path: Path) -> None:
    made = found(tmp_path, {"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)})["w"]
    assert made.changed == 3 and made.relative is None and made.cosine is None


CHANGED = {
    "layer.0.weight": np.ones((4, 4), np.float32),
    "layer.1.weight": np.ones((4, 4), np.float32),
    "layer.2.weight": np.ones((4, 4), np.float32),
    "layer.3.weight": np.ones((4, 4), np.float32),
    "gone": np.ones(4, np.float32),
}


def changed(folder: Path) -> tuple[str, str]:
    """Two checkpoints: one weight is twice as large, one has a NaN, one another type, one is gone, and one is equal."""
    after = {name: values.copy() for name, values in CHANGED.items() if name != "gone"}
    after["layer.1.weight"] *= 2
    after["layer.2.weight"][0, 0] = np.nan
    after["layer.3.weight"] = after["layer.3.weight"].astype(np.float16)
    return str(write(folder / "before.safetensors", CHANGED)), str(write(folder / "after.safetensors", after))


def test_the_command_line_says_which_weights_changed_worst_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = changed(tmp_path)
    assert main(["compare", a, b, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["headline"][0] == (
        "4 weights in both: 3 differ (1 NaN or infinite in B, 1 in values, 1 in element type), 1 equal; 1 only in A"
    )
    assert document["headline"][1] == "most: layer.1.weight by 1 of its norm, at most 1 in an element"
    table = next(table for table in document["reports"][0]["tables"] if table["title"] == "parameters and buffers that differ")
    keys = [column["key"] for column in table["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in table["rows"]]
    assert [(row["name"], row["change"]) for row in rows] == [
        ("layer.2.weight", "not finite"),
        ("gone", "removed"),
        ("layer.1.weight", "values"),
        ("layer.3.weight", "retyped f32 to f16"),
    ]
    assert (rows[2]["relative"], rows[2]["max_abs"], rows[2]["cosine"], rows[2]["changed"]) == (1.0, 1.0, 1.0, 16)
    assert rows[0]["not_finite"] == 1 and rows[3]["changed"] == 0


def test_a_limit_on_weights_reads_their_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = changed(tmp_path)
    assert main(["compare", a, b, "--fail-on", "weights>4"]) == 0
    assert main(["compare", a, b, "--fail-on", "weights>3"]) == 1
    assert "4 of 5 weights differ" in capsys.readouterr().err


def test_of_models_values_are_compared_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).parents[3] / "samples" / "models" / "cnn.onnx"
    assert main(["compare", str(sample), str(sample)]) == 0
    assert "all equal" not in capsys.readouterr().out
    assert main(["compare", "--values", str(sample), str(sample)]) == 0
    assert "20 weights in both: all equal" in capsys.readouterr().out


def test_a_weight_that_cannot_be_read_is_unknown_not_equal(tmp_path: Path) -> None:
    a, b = changed(tmp_path)
    compared = compare_models(open_model(Path(a)), open_model(Path(b)))
    Path(b).write_bytes(Path(b).read_bytes()[:-80])
    read_values(compared)
    row = next(row for row in compared.weights if row.a is not None and row.a.name == "layer.3.weight")
    assert "not read" in weight_change(row, compared.values)


def test_it_can_be_stopped(tmp_path: Path) -> None:
    a, b = changed(tmp_path)
    compared = compare_models(open_model(Path(a)), open_model(Path(b)))
    compared.a.model.manager.cancelled.set()
    with pytest.raises(Cancelled):
        read_values(compared)
    assert compared.values is None


def test_sums_that_overflow_are_unknown(tmp_path: Path) -> None:
    made = found(tmp_path, {"w": np.array([1e300, 1.0])}, {"w": np.array([-1e300, 1.0])})["w"]
    assert made.relative is None and made.largest == pytest.approx(2e300) and math.isinf(made.squares)
