"""Statistics of weights against numpy and published figures: ordinary and adversarial values, sparsity, spectra, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph
from irscope.ir.places import Blob
from irscope.ir.types import tensor
from irscope.passes.weights.params import Params
from irscope.passkit.manager import Manager
from irscope.report.values import Quantity
from irscope.weights.losses import CHOICES, FORMATS, Noise, measure_rounding
from irscope.weights.result import TensorStatistics
from irscope.weights.scan import Options, scan
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import stored_tensor
from tests.frontends.onnx.build import load, model, value
from tests.tables import every
from tests.unit.weights.making import Array, look, truth

# Statistics against numpy in extended precision: ordinary and adversarial values, every element type, any number of threads.

_RANDOM = np.random.default_rng(7)
_SIZE = 300_001


def _normal(scale: float = 0.02, shift: float = 0.0) -> Array:
    return _RANDOM.standard_normal(_SIZE) * scale + shift


def _spoiled(scale: float, value: float) -> Array:
    made = _normal(scale)
    made[_SIZE // 3] = value
    return made


CASES: dict[str, Array] = {
    "normal": _normal().astype(np.float32),
    "large mean, small deviation": _normal(1e-3, 1000.0).astype(np.float32),
    "mean far beyond the deviation": _normal(1.0, 1e7).astype(np.float32),
    "denormals": (_normal(1.0) * 1e-41).astype(np.float32),
    "one huge outlier": _spoiled(0.02, 3e38).astype(np.float32),
    "one outlier": _spoiled(0.02, 1e4).astype(np.float32),
    "outlier beside a mean": (_spoiled(1e-3, 0.0) + np.where(np.arange(_SIZE) == _SIZE // 3, -5.0, 1000.0)).astype(np.float32),
    "near the largest float": (_normal(1.0) * 5e37).astype(np.float32),
    "all magnitudes": (10.0 ** _RANDOM.uniform(-38, 38, _SIZE) * _RANDOM.choice([-1, 1], _SIZE)).astype(np.float32),
    "positive": np.abs(_normal()).astype(np.float32),
    "few": np.array([3.0, -1.5, 2.25], np.float32),
    "float64": _normal(),
    "float64, large": _normal(1e200),
    "float64, small": _normal(1e-200),
    "float64, mixed": np.concatenate([_normal(1e-200), _normal(1e150), _normal(1.0)]),
    "int32": _RANDOM.integers(-(2**31), 2**31 - 1, _SIZE, dtype=np.int32),
    "int64": _RANDOM.integers(-(2**40), 2**40, _SIZE),
}
_DTYPES = {"f4": DType.F32, "f8": DType.F64, "i4": DType.I32, "i8": DType.I64}


@pytest.mark.parametrize("name", CASES)
def test_moments_are_those_of_extended_precision(name: str, tmp_path: Path) -> None:
    array = CASES[name]
    made = look(tmp_path, array, _DTYPES[array.dtype.str[1:]])
    wanted = truth(array)
    # What cancels in a mean or a third moment cannot be better than the sum of magnitudes that it is made of.
    slack = {"mean": wanted["l1"] / array.size * 1e-13, "skewness": 1e-10}
    for key, wanted_value in wanted.items():
        assert getattr(made, key) == pytest.approx(wanted_value, rel=1e-6, abs=slack.get(key, 0.0)), key
    assert (made.count, made.nan, made.inf, made.zeros) == (array.size, 0, 0, int((array == 0).sum()))
    assert made.outliers == int((np.abs(array.astype(np.float64) - wanted["mean"]) > 6 * wanted["std"]).sum())


def test_what_is_not_finite_is_counted_and_left_out(tmp_path: Path) -> None:
    array = _normal().astype(np.float32)
    array[::7], array[1::1001], array[2::5003] = np.nan, np.inf, -np.inf
    array[5::999] = 0
    made, wanted = look(tmp_path, array), truth(array)
    assert (made.nan, made.inf, made.zeros) == (np.isnan(array).sum(), np.isinf(array).sum(), (array == 0).sum())
    assert {key: getattr(made, key) for key in wanted} == pytest.approx(wanted, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
def test_nothing_but_nan(dtype: DType, tmp_path: Path) -> None:
    made = look(tmp_path, np.full(1000 * (dtype.bits or 0) // 8, 0xFF, np.uint8), dtype, shape=(10, 100))
    assert (made.nan, made.finite, made.mean, made.std, made.min, made.kurtosis) == (1000, 0, None, None, None, None)
    assert made.dead_rows == 0


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    made = look(tmp_path, np.zeros((0, 4), np.float32))
    assert (made.count, made.mean, made.l1, made.dead_rows) == (0, None, 0.0, None)


def test_one_number_everywhere(tmp_path: Path) -> None:
    made = look(tmp_path, np.full((40, 5000), 0.1, np.float32))
    assert made.is_constant and made.std == 0 and made.skewness is None and made.outliers == 0
    assert made.mean == float(np.float32(0.1)) and made.l1 == pytest.approx(200_000 * float(np.float32(0.1)), rel=1e-12)


NARROW = {
    DType.F16: "float16", DType.BF16: "bfloat16", DType.F8E4M3FN: "float8_e4m3fn", DType.F8E5M2: "float8_e5m2",
    DType.F8E4M3FNUZ: "float8_e4m3fnuz", DType.F8E5M2FNUZ: "float8_e5m2fnuz", DType.I8: "int8", DType.U8: "uint8", DType.I16: "int16",
    DType.BOOL: "bool",
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_bit_pattern_is_the_number_that_torch_reads(dtype: DType, tmp_path: Path) -> None:
    import torch

    from irscope.weights.tensors import pattern_values

    bits = dtype.bits or 8
    codes = np.arange(2 if dtype is DType.BOOL else 1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    read = torch.frombuffer(bytearray(codes.tobytes()), dtype=getattr(torch, NARROW[dtype])).to(torch.float64).numpy()
    np.testing.assert_array_equal(pattern_values(dtype)[: len(codes)], read)


@pytest.mark.parametrize("count", [1, 2, 3, 999, 600_001])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F8E4M3FN, DType.I8, DType.U4, DType.I4, DType.F4E2M1, DType.I2, DType.F6E2M3], ids=str)
def test_narrow_types_are_exact(dtype: DType, count: int, tmp_path: Path) -> None:
    from irscope.weights.tensors import decode_elements

    raw = _RANDOM.integers(0, 256, (count * (dtype.bits or 8) + 7) // 8, dtype=np.uint8)
    values = decode_elements(raw.copy(), dtype, count).astype(np.float64)
    made = look(tmp_path, raw, dtype, shape=(count,))
    finite = np.sort(values[np.isfinite(values)])
    assert (made.count, made.nan) == (count, np.isnan(values).sum())
    assert (made.zeros, made.near_zeros) == ((values == 0).sum(), (np.abs(values) < 1e-6).sum())
    if len(finite):
        wanted = truth(values)
        assert {key: getattr(made, key) for key in wanted} == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        for quantile in made.quantiles:
            assert quantile.value == finite[max(1, int(np.ceil(quantile.share * len(finite)))) - 1]
    _, many = np.unique(raw.view("<u2") if dtype is DType.BF16 else values, return_counts=True)
    if dtype is DType.BF16:
        shares = many / many.sum()
        assert made.entropy == pytest.approx(-(shares * np.log2(shares)).sum())


def test_quantiles_of_wide_types_lie_between_their_bounds(tmp_path: Path) -> None:
    array = _normal().astype(np.float32)
    ordered = np.sort(array)
    for quantile in look(tmp_path, array).quantiles:
        exact = ordered[max(1, int(np.ceil(quantile.share * array.size))) - 1]
        assert quantile.low <= exact <= quantile.high
        assert quantile.high - quantile.low <= max(abs(quantile.low), abs(quantile.high)) / 128


def test_octaves_hold_every_element_that_is_not_zero(tmp_path: Path) -> None:
    array = _normal().astype(np.float32)
    array[:50] = 0
    made = look(tmp_path, array)
    for octave in made.octaves:
        inside = (np.abs(array) >= octave.low) & (np.abs(array) < 2 * octave.low)
        assert (octave.negative, octave.positive) == ((inside & (array < 0)).sum(), (inside & (array > 0)).sum())
    assert sum(octave.negative + octave.positive for octave in made.octaves) == array.size - 50


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16], ids=str)
def test_the_number_of_threads_changes_nothing(dtype: DType, tmp_path: Path) -> None:
    array = (_RANDOM.standard_normal((300, 40_000)) * 0.02).astype(np.float32 if dtype is DType.F32 else np.float16)
    found = [look(tmp_path, array, dtype, Options(threads=threads)) for threads in (1, 2, 5)]
    for field in fields(TensorStatistics):
        one, *others = (
            getattr(made, field.name).tolist() if field.name.endswith("_indices") else getattr(made, field.name) for made in found
        )
        assert all(other == one for other in others), field.name


def _brute(array: Array) -> tuple[list[int], list[int], float | None]:
    zero = array.reshape(*array.shape[:2], -1) == 0
    rows = np.flatnonzero(zero.all(axis=(1, 2))).tolist()
    columns = np.flatnonzero(zero.all(axis=(0, 2))).tolist()
    if array.shape[1] % 4:
        return rows, columns, None
    groups = zero.reshape(zero.shape[0], -1, 4, zero.shape[2]).sum(axis=2) >= 2
    return rows, columns, float(groups.mean())


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40))
    | st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3)),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from([DType.F32, DType.F16, DType.I8]),
)
def test_structure_is_that_of_brute_force(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], share: float, seed: int, dtype: DType
) -> None:
    random = np.random.default_rng(seed)
    kinds = {DType.F32: np.float32, DType.F16: np.float16, DType.I8: np.int8}
    array = random.integers(1, 100, shape).astype(kinds[dtype])
    array[random.random(shape) < share] = 0
    array[random.random(shape[0]) < share / 3] = 0
    array[:, random.random(shape[1]) < share / 3] = 0
    made = look(tmp_path_factory.getbasetemp(), array, dtype)
    rows, columns, groups = _brute(array)
    assert (made.dead_rows, made.dead_columns) == (len(rows), len(columns))
    assert made.two_of_four == (None if groups is None else pytest.approx(groups))


@pytest.mark.parametrize("shape", [(3, 400_000), (500, 4096), (64, 64, 3, 3), (7, 300_001)], ids=str)
def test_structure_across_windows(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.ones(shape, np.float32)
    array[1] = 0
    array[:, 5] = 0
    array[:, 17:33] = 0
    made = look(tmp_path, array)
    rows, columns, groups = _brute(array)
    assert (made.dead_rows, made.dead_columns) == (len(rows), len(columns))
    assert made.two_of_four == (None if groups is None else pytest.approx(groups))


@pytest.mark.parametrize(("dtype", "kind"), [(DType.C64, np.complex64), (DType.C128, np.complex128)], ids=["c64", "c128"])
def test_complex_numbers_count_as_two(dtype: DType, kind: type, tmp_path: Path) -> None:
    array = (_RANDOM.standard_normal(5000) + 1j * _RANDOM.standard_normal(5000)).astype(kind)
    graph = Graph()
    value = graph.add_weight(tensor(dtype, (50, 100)), "w", data=Blob(array.tobytes()))
    with WeightFiles(str(tmp_path / "m.irs")) as files:
        (made,) = scan([stored_tensor(value, files)], files)
    assert isinstance(made, TensorStatistics)
    flat = array.view(array.real.dtype)
    wanted = truth(flat)
    assert {key: getattr(made, key) for key in wanted} == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert made.quantiles[1].low <= np.sort(flat)[4999] <= made.quantiles[1].high


@every("dtype", [dtype for dtype in DType if dtype.bits], ids=str)
def test_literals_become_elements_of_their_type(dtype: DType) -> None:
    from irscope.weights.tensors import decode_elements, encode_elements, is_narrow, packed_bytes

    values = [1, 0, 1, 1] if dtype is DType.BOOL else [1.0, 2.0, 4.0, 1.0] if dtype is DType.F8E8M0 else [1, 0, 1, 1, 0]
    raw = encode_elements(values, dtype)
    assert len(raw) == packed_bytes(len(values), dtype.bits or 0)
    if is_narrow(dtype):
        assert decode_elements(np.frombuffer(bytearray(raw), np.uint8), dtype, len(values)).tolist() == values


def test_a_literal_that_the_type_does_not_have_is_rounded() -> None:
    from irscope.weights.tensors import encode_elements

    assert np.frombuffer(encode_elements([0.1, float("nan")], DType.F16), np.float16).tolist()[:1] == [float(np.float16(0.1))]


@pytest.mark.parametrize(("dtype", "kind", "exact"), [(DType.F32, np.float32, 1e-3), (DType.F16, np.float16, 1e-12)], ids=["f32", "f16"])
def test_the_energy_that_pruning_keeps(dtype: DType, kind: type, exact: float, tmp_path: Path) -> None:
    array = (_normal() * np.exp(_normal(1.0))).astype(kind)
    squares = np.sort(array.astype(np.float64) ** 2)
    for kept in look(tmp_path, array, dtype).kept:
        assert kept.energy == pytest.approx(squares[int(kept.pruned * array.size) :].sum() / squares.sum(), rel=exact)


# Spectral norms against numpy's singular values, on spectra that are hard for iterations.

Matrix = npt.NDArray[np.float64]
SIZE = 200


def of_spectrum(values: npt.ArrayLike) -> Matrix:
    rng = np.random.default_rng(7)
    left, right = (np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0] for _ in range(2))
    return np.asarray((left * np.asarray(values)) @ right)


def random(rows: int, columns: int) -> Matrix:
    return np.random.default_rng(3).standard_normal((rows, columns))


SPECTRAL_CASES: dict[str, Callable[[], Matrix]] = {
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


@pytest.mark.parametrize("make", SPECTRAL_CASES.values(), ids=SPECTRAL_CASES)
def test_norms_are_those_of_numpy(make: Callable[[], Matrix]) -> None:
    true, row = norms(make())
    cell = row["spectral_norm"]
    assert isinstance(cell, Quantity) and isinstance(cell.value, float) and isinstance(cell.hi, float)
    assert cell.value == pytest.approx(true, rel=1e-5)
    assert cell.value * (1 - 1e-9) <= true <= cell.hi * (1 + 1e-9) and cell.hi <= true * (1 + 2e-4)


@pytest.mark.parametrize("steps", [1, 2, 5, 10])
@pytest.mark.parametrize("name", ["dense random", "crowded at the top", "one above a crowd"])
def test_a_norm_that_has_not_converged_says_how_large_it_may_be(name: str, steps: int) -> None:
    true, row = norms(SPECTRAL_CASES[name](), iterations=steps)
    found, rank = row["spectral_norm"], row["stable_rank"]
    assert isinstance(found, Quantity) and isinstance(found.value, float) and isinstance(found.hi, float)
    assert found.value <= true * (1 + 1e-9) and true <= found.hi
    assert isinstance(rank, Quantity) and isinstance(rank.lo, float) and rank.lo <= float(rank.value or 0)


def test_what_is_no_matrix_or_all_zero_has_no_norm() -> None:
    assert norms(np.zeros((3, 3)))[1]["spectral_norm"] is None


# Rounding to few bits: published figures for normal weights, and torch's own 8-bit floats.


@pytest.fixture(scope="module")
def decibels() -> dict[str, float]:
    rows = (np.random.default_rng(3).standard_normal((512, 4096)) * 0.02).astype(np.float32)
    noise = Noise()
    for start in range(0, 512, 100):
        measure_rounding(rows[start : start + 100], float(np.abs(rows).max()), noise)
    return noise.decibels()


@pytest.mark.parametrize(("key", "wanted"), [("int8_channel", 41.2), ("int4_channel", 16.1), ("int4_g128", 18.6), ("int4_g32", 20.3)])
def test_normal_weights_lose_what_is_known(key: str, wanted: float, decibels: dict[str, float]) -> None:
    assert decibels[key] == pytest.approx(wanted, abs=0.2)


def test_smaller_groups_never_lose_more(decibels: dict[str, float]) -> None:
    for form in FORMATS:
        found = [decibels[f"{form.name}_{granularity}"] for granularity in form.granularities]
        assert found == sorted(found)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "kind", "most"), [("fp8_e4m3", "float8_e4m3fn", 448), ("fp8_e5m2", "float8_e5m2", 57344)])
def test_floats_round_as_torch_does(name: str, kind: str, most: float) -> None:
    import torch

    form = next(form for form in FORMATS if form.name == name)
    values = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)
    values *= np.exp2(np.random.default_rng(1).uniform(-25, 0, values.size)).astype(np.float32) * most
    values[:3] = 0, most, -most
    wanted = torch.from_numpy(values.copy()).to(getattr(torch, kind)).float().numpy()
    np.testing.assert_array_equal(form.round(values.copy()), wanted)


def test_every_number_of_a_small_format_survives() -> None:
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    rows = np.tile(np.concatenate([levels, -levels]), 4).reshape(1, -1) * np.float32(0.25)
    noise = Noise()
    measure_rounding(rows, 1.5, noise)
    assert noise.decibels()["mxfp4_g32"] == math.inf


def test_four_bit_quantiles_are_the_nearest() -> None:
    form = next(form for form in FORMATS if form.name == "nf4")
    values = np.random.default_rng(0).uniform(-1, 1, 10_000).astype(np.float32)
    levels = np.unique(form.round(np.linspace(-1, 1, 100_001, dtype=np.float32)))
    assert len(levels) == 16 and {-1.0, 0.0, 1.0} <= set(levels.tolist())
    nearest = levels[np.abs(values[:, None] - levels).argmin(axis=1)]
    np.testing.assert_array_equal(form.round(values.copy()), nearest)


def test_zeros_and_short_rows_are_no_problem() -> None:
    noise = Noise()
    measure_rounding(np.zeros((3, 5), np.float32), 0.0, noise)
    measure_rounding(np.ones((2, 5), np.float32), 1.0, noise)
    assert noise.signal == 10 and noise.decibels()["int8_g128"] > 100


def test_scales_are_counted() -> None:
    sizes = {choice.key: choice.format.stored_bits(choice.granularity, 4096, 4096 * 64) for choice in CHOICES}
    assert sizes["int4_g32"] == 4.5 and sizes["mxfp4_g32"] == 4.25 and sizes["int8_channel"] == 8 + 16 / 4096
