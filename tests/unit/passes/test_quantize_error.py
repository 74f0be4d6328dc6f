"""The pass around rounding: which weights it takes, what it recommends, and that threads change nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from irscope.ir.graph import Graph, Role
from irscope.ir.places import Blob, FileRegion, Payload
from irscope.ir.program import Program
from irscope.ir.spelling import parse_type
from irscope.passes.weights.values import QuantizeError, WeightErrors
from irscope.passkit.manager import Manager
from irscope.weights.losses import CHOICES, Noise, measure_rounding

_RANDOM = np.random.default_rng(5)
NORMAL = (_RANDOM.standard_normal((300, 700)) * 0.02).astype(np.float32)


def run(*weights: tuple[str, str, Payload | None, Role], **options: object) -> tuple[WeightErrors, Manager]:
    graph = Graph()
    for name, text, data, role in weights:
        graph.add_weight(parse_type(text), name, role, data)
    manager = Manager(Program(graph))
    return manager.get(QuantizeError(**options)), manager  # type: ignore[arg-type]  # whatever a test gives


def blob(array: np.ndarray, storage: str = "") -> Blob:  # type: ignore[type-arg]  # of any kind
    return Blob(np.ascontiguousarray(array).tobytes(), storage)


P = Role.PARAMETER
MATRIX = ("w", "f32[300,700]", blob(NORMAL), P)


def test_errors_are_those_of_the_whole_matrix() -> None:
    result, _ = run(MATRIX)
    noise = Noise()
    measure_rounding(NORMAL, float(np.abs(NORMAL).max()), noise)
    assert result.tensors[0].decibels == pytest.approx(noise.decibels(), rel=1e-6)


def test_threads_change_nothing() -> None:
    one, two = (run(MATRIX, threads=threads)[0].tensors[0].decibels for threads in (1, 3))
    assert one == two


@pytest.mark.parametrize(
    ("target", "smallest"),
    [(12.0, "int4_tensor"), (18.5, "nf4_channel"), (21.0, "nf4_g32"), (31.0, "fp8_e4m3_tensor"), (41.0, "int8_channel"), (60.0, "")],
)
def test_the_smallest_format_that_reaches_a_target(target: float, smallest: str) -> None:
    tensor = run(MATRIX, target=target)[0].tensors[0]
    assert tensor.smallest == smallest
    reached = [key for key, decibels in tensor.decibels.items() if decibels >= target]
    assert bool(reached) == bool(smallest)
    if smallest:
        assert tensor.bytes is not None and tensor.bytes < NORMAL.nbytes


def test_only_matrices_of_floats_are_looked_at_and_tied_ones_once() -> None:
    result, manager = run(
        ("w", "f32[300,700]", blob(NORMAL, "s"), P),
        ("tied", "f32[300,700]", blob(NORMAL, "s"), P),
        ("bias", "f32[700]", blob(NORMAL[0]), P),
        ("codes", "i8[3,4]", blob(np.ones((3, 4), np.int8)), P),
        ("mask", "f32[300,700]", blob(NORMAL), Role.BUFFER),
        ("half", "bf16[2,64]", blob((NORMAL[0, :128].view(np.uint32) >> 16).astype(np.uint16)), P),
        ("gone", "f32[4,4]", None, P),
        ("empty", "f32[0,4]", Blob(b""), P),
        ("none", "f32[2,2]", blob(np.array([[np.nan, np.inf], [-np.inf, np.nan]], np.float32)), P),
        ("wide", "f64[2,2]", blob(np.full((2, 2), 1e300)), P),
    )
    assert [tensor.weight.name for tensor in result.tensors] == ["w", "half"]
    assert {str(weight.name) for weight in result.unread} == {"gone", "none", "wide"}
    report = manager.run([QuantizeError()])[0].report()
    assert report.partial and report.to_json()["summary"]["matrices_count"] == 2


def test_what_is_not_finite_counts_as_zero() -> None:
    spoiled = NORMAL.copy()
    spoiled[3, 5], spoiled[7] = np.nan, np.inf
    cleaned = np.where(np.isfinite(spoiled), spoiled, 0)
    found = [run(("w", "f32[300,700]", blob(array), P))[0].tensors[0].decibels for array in (spoiled, cleaned)]
    assert found[0] == found[1]


def test_a_file_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(NORMAL.tobytes())
    result, _ = run(("w", "f32[300,700]", FileRegion(str(tmp_path / "w.bin"), 0, NORMAL.nbytes), P))
    (reason,) = result.unread.values()
    assert "outside the folder" in reason
    result, _ = run(("w", "f32[300,700]", FileRegion(str(tmp_path / "w.bin"), 0, NORMAL.nbytes), P), allow=(str(tmp_path),))
    assert not result.unread


@pytest.mark.parametrize("row", [[1e-20] * 63 + [1e25], [3.4e38, -3.4e38] * 32, [1e-45] * 64])
def test_errors_at_the_ends_of_float32_are_numbers(row: list[float]) -> None:
    decibels = run(("w", "f32[2,64]", blob(np.array([row] * 2, np.float32)), P))[0].tensors[0].decibels
    assert all(error >= 10 for error in decibels.values())


def test_sums_whose_quotient_is_no_float_have_a_ratio() -> None:
    noise = Noise(CHOICES[:1], 1e-300, [1e300])
    assert list(noise.decibels().values()) == [-6000.0]
