"""Passes of one run that look at values share one reading of the weights, whichever of them comes first."""

from __future__ import annotations

import json
import struct
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from irscope.errors import Cancelled
from irscope.passes.weights import values
from irscope.report.report import Report
from irscope.session import Model, open_model
from irscope.weights.source import Bytes, WeightFiles

ROWS, COLUMNS = 512, 768
BOTH = "params{values},quantize-error"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four matrices of 1.5 MB, one of half floats, and a bias, without outliers, whose windows are read again."""
    random = np.random.default_rng(3)
    arrays = {f"layer{index}.weight": random.uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32) for index in range(4)}
    arrays["half.weight"] = random.uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float16)
    arrays["bias"] = random.uniform(-1, 1, COLUMNS).astype(np.float32)
    header, data = {}, b""
    for name, array in arrays.items():
        kind = {"float32": "F32", "float16": "F16"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many bytes were read from the file, by where the tensor begins."""
    counted: Counter[int] = Counter()
    plain = WeightFiles._read_some

    def counting(self: WeightFiles, descriptor: int, into: memoryview, position: int) -> int:
        count = plain(self, descriptor, into, position)
        counted["bytes"] += count  # type: ignore[index]  # a name beside places
        counted[position] += 1
        return count

    monkeypatch.setattr(WeightFiles, "_read_some", counting)
    return counted


def size_of(model: Model) -> int:
    return sum(int(weight.type.nbytes) for weight in model.program.weights())  # type: ignore[arg-type]  # sizes are numbers


def alike(report: Report, other: Report) -> bool:
    return report.to_json() == other.to_json()


@pytest.mark.parametrize("passes", [BOTH, "quantize-error,params{values}", "params{values},quantize-error,quantize-error{target=20}"])
def test_each_tensor_is_read_once(passes: str, path: Path, reads: Counter[int]) -> None:
    model = open_model(path)
    model.run(passes)
    assert reads["bytes"] == size_of(model)  # type: ignore[index]


def test_quantize_error_alone_reads_once(path: Path, reads: Counter[int]) -> None:
    model = open_model(path)
    model.run("quantize-error")
    assert reads["bytes"] == size_of(model)  # type: ignore[index]


def test_statistics_are_computed_once_for_all_that_look(path: Path, reads: Counter[int]) -> None:
    model = open_model(path)
    model.run("prune-report")
    alone = reads["bytes"]  # type: ignore[index]
    reads.clear()
    open_model(path).run(f"prune-report,{BOTH},advise")
    assert reads["bytes"] == alone == size_of(model)  # type: ignore[index]


def test_together_they_find_what_they_find_alone(path: Path) -> None:
    together = open_model(path).run(BOTH).items_in_order
    for result, text in zip(together, BOTH.split(","), strict=True):
        [alone] = open_model(path).run(text).items_in_order
        assert alike(result.report(), alone.report())


def test_what_is_shown_keeps_its_own_options(path: Path) -> None:
    first, second, third = open_model(path).run("params{values near_zero=0.5},params{values},quantize-error").items_in_order
    for result, text in ((first, "params{values near_zero=0.5}"), (second, "params{values}"), (third, "quantize-error")):
        [alone] = open_model(path).run(text).items_in_order
        assert alike(result.report(), alone.report())


def test_what_does_not_fit_is_read_again_and_nothing_changes(path: Path, reads: Counter[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = open_model(path).run(BOTH).items_in_order
    monkeypatch.setattr(values, "MOST_HELD", 1 << 20)
    reads.clear()
    model = open_model(path)
    found = model.run(BOTH).items_in_order
    assert all(alike(one.report(), other.report()) for one, other in zip(found, expected, strict=True))
    matrices = sum(int(weight.type.nbytes) for weight in model.program.weights() if weight.type.nbytes > 1 << 20)  # type: ignore[arg-type,operator]
    assert reads["bytes"] == size_of(model) + matrices  # type: ignore[index]


def test_not_more_is_held_than_one_lot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    plain = WeightFiles.hold

    def watched(self: WeightFiles, some: object) -> None:
        found: list[tuple[Bytes, memoryview]] = list(some)  # type: ignore[call-overload]
        held.append(sum(len(data) for _, data in found))
        plain(self, found)

    monkeypatch.setattr(WeightFiles, "hold", watched)
    monkeypatch.setattr(values, "MOST_HELD", 4 << 20)
    open_model(path).run(BOTH)
    assert 1 << 20 < max(held) <= 4 << 20
    assert held[-1] == 0


@pytest.mark.parametrize("what", ["reading weights", "weights", "weight error"])
def test_a_run_can_be_cancelled_in_each_look(what: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irscope.weights.scan import Pool

    model = open_model(path)
    plain = Pool.advance

    def advance(self: Pool, count: int) -> None:
        if self._what == what:
            model.manager.cancelled.set()
        plain(self, count)

    monkeypatch.setattr(Pool, "advance", advance)
    monkeypatch.setattr("irscope.weights.scan._PAUSE", 0.0)
    with pytest.raises(Cancelled):
        model.run(BOTH)


def test_who_cancels_does_not_wait_for_a_compiler(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    go_on, began = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        began.set()
        model.manager.cancelled.set()
        go_on.wait(60)

    monkeypatch.setattr("irscope.weights.scan.is_kept", lambda module: False)
    monkeypatch.setattr("irscope.weights.scan._PAYS_COMPILING", 1)
    monkeypatch.setattr("irscope.weights.scan.compile_sums", compile_slowly)
    model = open_model(path)
    try:
        with pytest.raises(Cancelled):
            model.run("params{values}")
        assert began.is_set() and not go_on.is_set()
    finally:
        go_on.set()


@pytest.mark.slow
def test_progress_only_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.weights.scan._PAUSE", 0.0)
    monkeypatch.setattr(values, "MOST_HELD", 2 << 20)
    model = open_model(path)
    told: list[tuple[int, int]] = []
    tick = model.manager.tick

    def watched(done: int, total: int | None, what: str) -> None:
        told.append((done, total or 0))
        tick(done, total, what)

    model.manager.tick = watched  # type: ignore[method-assign]
    model.run("quantize-error")
    shares = [done / total for done, total in told if total == size_of(model)]
    assert len(shares) > 5 and shares == sorted(shares) and shares[-1] <= 1
