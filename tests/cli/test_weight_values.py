"""`irscope run --passes params{values}`: what a user sees of good, bad and hostile files, with the exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode
from irscope.frontends.base import LoadOptions
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.session import open_model


def write_safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """A checkpoint of tensors given as element type, shape and bytes."""
    header: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + len(raw)]}
        position += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(raw for _, _, raw in tensors.values()))


def floats(*shape: int) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", shape, (np.random.default_rng(1).standard_normal(shape) * 0.02).astype(np.float32).tobytes()


def run(capsys: pytest.CaptureFixture[str], path: Path, *more: str, passes: str = "params{values}") -> tuple[int, dict[str, Any]]:
    """The exit code, and the rows of the table of parameters by name."""
    code = main(["run", "--format", "json", "--passes", passes, *more, str(path)])
    report = json.loads(capsys.readouterr().out)["reports"][0]
    table = report["tables"][0]
    keys = [column["key"] for column in table["columns"]]
    return code, {row[0]: dict(zip(keys, row, strict=True)) for row in table["rows"]} | {"": report}


def test_one_bad_tensor_does_not_spoil_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {"good": floats(8, 4), "odd": ("Q7", (3,), b"abc"), "empty": ("F32", (0, 4), b""), "nan": ("F32", (2,), b"\xff" * 8)}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    code, rows = run(capsys, tmp_path / "m.safetensors")
    assert code == ExitCode.PARTIAL
    assert rows["odd"]["problem"] == "its element type is unknown" and rows["odd"]["mean"] is None
    assert rows["good"]["std"] == pytest.approx(0.02, rel=0.5) and rows["good"]["problem"] == ""
    assert (rows["empty"]["mean"], rows["empty"]["zeros"], rows["empty"]["problem"]) == (None, 0, "")
    assert (rows["nan"]["nan"], rows["nan"]["mean"]) == (2, None)
    codes = {row["code"] for row in rows[""]["diagnostics"]}
    assert codes == {"IRS440", "IRS441"}


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"good": floats(8, 4)})
    code, rows = run(capsys, tmp_path / "m.safetensors", passes="params{values spectral}")
    assert code == ExitCode.OK
    array = np.frombuffer(floats(8, 4)[2], np.float32).reshape(8, 4).astype(np.float64)
    assert rows["good"]["spectral_norm"] == pytest.approx(np.linalg.norm(array, 2), rel=1e-3)
    assert rows["good"]["stable_rank"] == pytest.approx((array**2).sum() / np.linalg.norm(array, 2) ** 2, rel=1e-3)


@pytest.fixture
def text_form(tmp_path: Path) -> str:
    """The text of a graph with one weight, as irscope prints it."""
    from irscope.ir.graph import Graph
    from irscope.ir.places import FileRegion
    from irscope.ir.printer import print_program
    from irscope.ir.program import Program
    from irscope.ir.spelling import parse_type

    graph = Graph()
    graph.add_weight(parse_type("f32[4]"), "w", data=FileRegion("PLACE", 0, 16))
    return print_program(Program(graph))


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("w.bin", ""),
        ("../secret.bin", "outside the folder of the model"),
        ("link.bin", "outside the folder of the model"),
        ("/etc/passwd", "outside the folder of the model"),
        ("nothing.bin", "cannot be opened"),
        ("folder", "not a regular file"),
        ("short.bin", "the file ends at byte 7"),
    ],
)
def test_a_text_may_name_any_path_but_only_its_own_folder_is_read(
    place: str, reason: str, text_form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    (folder / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (folder / "short.bin").write_bytes(b"\0" * 7)
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    (folder / "m.irs").write_text(text_form.replace("PLACE", place))
    code, rows = run(capsys, folder / "m.irs")
    if not reason:
        assert code == ExitCode.OK and rows["w"]["mean"] == 1.5
        return
    assert code == ExitCode.PARTIAL and reason in rows["w"]["problem"] and rows["w"]["mean"] is None


def test_a_folder_may_be_allowed(text_form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "models" / "m.irs").write_text(text_form.replace("PLACE", "../data/w.bin"))
    code, rows = run(capsys, tmp_path / "models" / "m.irs", passes=f'params{{values allow="{tmp_path / "data"}"}}')
    assert code == ExitCode.OK and rows["w"]["max"] == 3.0


class _Shrinks(Instrument):
    """Cuts a file off as soon as somebody reads weights."""

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length = path, length

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        os.truncate(self.path, self.length)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    big = 200 << 20
    header = {
        "first": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        "big": {"dtype": "F32", "shape": [big // 4], "data_offsets": [16, 16 + big]},
        "last": {"dtype": "F32", "shape": [4], "data_offsets": [16 + big, 32 + big]},
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + np.arange(4, dtype=np.float32).tobytes())
        file.truncate(8 + len(text) + 32 + big)
    model = open_model(path, LoadOptions(), instruments=[_Shrinks(path, 8 + len(text) + 16)])
    report = model.run("params{values threads=1}")["params"].report()
    table = report.tables[0]
    assert report.partial and table.cells("mean") == [1.5, None, None]
    assert all("while it was read" in str(problem) for problem in table.cells("problem")[1:])


def test_equal_tensors_are_found_and_near_twins_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, shape, raw = floats(30, 7)
    other = np.frombuffer(raw, np.float32).copy()
    other[[0, 209]] = other[[209, 0]]
    write_safetensors(
        tmp_path / "m.safetensors",
        {"a": (kind, shape, raw), "b": floats(3, 3), "c": (kind, shape, raw), "swapped": (kind, shape, other.tobytes())},
    )
    _, rows = run(capsys, tmp_path / "m.safetensors")
    (table,) = (table for table in rows[""]["tables"] if table["title"] == "duplicates")
    assert table["rows"] == [["a", "c", 2, 840, 840, False]]


def test_sort_filter_and_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {"a.w": floats(8, 4), "b.w": floats(3, 3), "a.v": ("F32", (2,), b"\0" * 8), "big": floats(40, 40)}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    more = ("--sort", "l2", "--top", "2", "--filter", 'name ~ "a.*" or zeros = 0 and bytes < 1KiB')
    _, rows = run(capsys, tmp_path / "m.safetensors", *more)
    assert [name for name in rows if name] == ["a.w", "b.w"]
    modules = next(table for table in rows[""]["tables"] if table["title"] == "modules")
    assert len(modules["rows"]) == 3, "a table without these columns is left alone"
    code = main(["run", "--passes", "params", "--sort", "nonsense", str(tmp_path / "m.safetensors")])
    assert code == ExitCode.USAGE and "no table has a column 'nonsense'" in capsys.readouterr().err


def test_sparsity_is_told_of_each_tensor_and_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    halves = np.asarray([[0, 1], [2, 0]], np.float32).tobytes()
    tensors = {"half": ("F32", (2, 2), halves), "full": ("F32", (4,), np.ones(4, np.float32).tobytes()), "empty": ("F32", (0,), b"")}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    _, rows = run(capsys, tmp_path / "m.safetensors")
    assert [rows[name]["sparsity"] for name in ("half", "full", "empty")] == [0.5, 0.0, None]
    assert rows[""]["summary"]["sparsity_ratio"] == 0.25
