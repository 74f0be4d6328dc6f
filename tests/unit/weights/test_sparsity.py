"""Energy kept by magnitude and in groups of four, against sorting with numpy; nothing depends on threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irscope.ir.dtypes import DType
from irscope.ir.places import FileRegion
from irscope.weights import pruned
from irscope.weights.pruned import PRUNED, EnergyKept, Grouped, Grouping, energy_kept, grouped
from irscope.weights.source import Bytes, WeightFiles
from irscope.weights.tensors import Stored, axes_of
from tests.unit.weights.making import Array

RANDOM = np.random.default_rng(9)


def stored(array: Array, dtype: DType, shape: tuple[int, ...] | None = None, swapped: bool = False) -> Stored:
    raw = np.ascontiguousarray(array).tobytes()
    return Stored(dtype, array.size, Bytes(len(raw), raw), axes_of(shape or array.shape), swapped)


def bf16(array: Array) -> tuple[Array, Array]:
    """Leading halves of floats, and the numbers that they stand for."""
    codes = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return codes, (codes.astype(np.uint32) << 16).view(np.float32)


def truth(array: Array) -> tuple[float, ...]:
    """What is left of the squares without the smallest share, by sorting."""
    x = np.sort(np.abs(array[np.isfinite(array)].astype(np.float64)))
    energy = float((x * x).sum())
    return tuple(1 - float((x[: int(share * len(x))] ** 2).sum()) / energy for share in PRUNED)


def kept(*tensors: Stored, threads: int = 1) -> tuple[list[EnergyKept | str], EnergyKept | None]:
    with WeightFiles("") as files:
        return energy_kept(tensors, files, threads=threads)


KINDS: dict[str, Array] = {
    "normal": RANDOM.standard_normal((70, 300)),
    "few values": RANDOM.integers(-3, 4, (64, 64)),
    "zeros": RANDOM.standard_normal((64, 64)) * (RANDOM.random((64, 64)) < 0.2),
    "constant": np.full((32, 32), -0.5),
    "one": np.array([[3.0]]),
    "spread": np.exp(RANDOM.standard_normal((40, 40)) * 20),
    "not finite": np.where(RANDOM.random((50, 50)) < 0.1, np.nan, RANDOM.standard_normal((50, 50))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_energy_kept_is_that_of_sorted_magnitudes(kind: str) -> None:
    single = KINDS[kind].astype(np.float32)
    codes, half = bf16(single)
    wide = single.astype(np.float64)
    results, total = kept(stored(single, DType.F32), stored(codes, DType.BF16), stored(wide, DType.F64))
    arrays: list[Array] = [single, half, wide]
    for found, array in zip(results, arrays, strict=True):
        assert isinstance(found, EnergyKept) and found.elements == np.isfinite(array).sum()
        assert found.kept == pytest.approx(truth(array), rel=1e-9, abs=1e-12)
    assert total is not None
    together = np.concatenate([each.reshape(-1).astype(np.float64) for each in (single, half, wide)])
    assert total.kept == pytest.approx(truth(together), rel=1e-9, abs=1e-12)


def test_tensors_of_zeros_keep_nothing_that_could_be_told() -> None:
    results, total = kept(stored(np.zeros((8, 8), np.float32), DType.F32))
    assert [one.kept for one in results if isinstance(one, EnergyKept)] == [()] and total is not None and not total.kept
    assert kept() == ([], EnergyKept(0, 0.0, ()))


def test_pieces_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    array = stored(KINDS["normal"].astype(np.float32), DType.F32)
    whole = kept(array)
    monkeypatch.setattr(pruned, "_JOB", 1000)
    assert kept(array, threads=1) == kept(array, threads=3)
    assert kept(array)[0][0].kept == pytest.approx(whole[0][0].kept, rel=1e-12)  # type: ignore[union-attr]  # read


def test_a_file_that_ends_early_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(np.ones(64, np.float32).tobytes())
    good = stored(KINDS["normal"].astype(np.float32), DType.F32)
    with WeightFiles(str(tmp_path / "m.irs")) as files:
        source = files.find(FileRegion(str(path), 0, 256))
        path.write_bytes(b"")
        results, total = energy_kept([Stored(DType.F32, 64, source, axes_of((8, 8))), good], files, threads=1)
        (groups,) = grouped([Grouping(Stored(DType.F32, 64, source, axes_of((8, 8))), True)], files, 1)
    assert isinstance(results[0], str) and "ended" in results[0] and isinstance(groups, str)
    assert isinstance(results[1], EnergyKept) and total is not None and total.kept == pytest.approx(results[1].kept)


def of_four(array: Array, axis: int) -> tuple[int, int, float]:
    """Groups, those with two zeros, share of the energy in the two largest: element by element."""
    moved = np.moveaxis(array.astype(np.float64), axis, -1).reshape(-1, 4)
    size = np.sort(np.abs(moved), axis=1)
    return len(moved), int(((moved == 0).sum(axis=1) >= 2).sum()), float((size[:, 2:] ** 2).sum() / (size**2).sum())


@pytest.mark.parametrize("shape", [(8, 12), (12, 8, 3, 3), (4, 4), (16, 400)])
@pytest.mark.parametrize("along_rows", [True, False])
def test_groups_of_four_are_counted_along_either_axis(shape: tuple[int, ...], along_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruned, "_GROUPS_STEP", 256)
    array: Any = (RANDOM.standard_normal(shape) * (RANDOM.random(shape) < 0.6)).astype(np.float32)
    with WeightFiles("") as files:
        (found,) = grouped([Grouping(stored(array, DType.F32), along_rows)], files, 2)
    assert isinstance(found, Grouped)
    groups, sparse, share = of_four(array, 1 if along_rows else 0)
    assert (found.groups, found.sparse) == (groups, sparse) and found.kept == pytest.approx(share, rel=1e-6)


def test_groups_of_a_tensor_whose_axes_lie_the_other_way_round() -> None:
    array = RANDOM.standard_normal((8, 12)).astype(np.float32)
    swapped = stored(np.ascontiguousarray(array.T), DType.F32, (12, 8), swapped=True)
    with WeightFiles("") as files:
        rows, columns = grouped([Grouping(swapped, True), Grouping(swapped, False)], files, 1)
    assert isinstance(rows, Grouped) and isinstance(columns, Grouped)
    assert (rows.kept, columns.kept) == pytest.approx((of_four(array, 1)[2], of_four(array, 0)[2]), rel=1e-6)


def test_an_axis_that_is_no_multiple_of_four_has_no_groups() -> None:
    with WeightFiles("") as files:
        (found,) = grouped([Grouping(stored(np.ones((3, 5), np.float32), DType.F32), True)], files, 1)
    assert isinstance(found, str)
