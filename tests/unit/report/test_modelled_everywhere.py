"""What contains a modelled number is modelled, on every screen and in every format.

A device is analysed twice with two rules for cuDNN's workspace that nobody fitted. Whatever number, name or sentence is another one then
depends on the model, so it has to say so; this asks nothing of how provenance is carried. A program without convolutions is the same
both times, and nothing of its memory is modelled.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main

ROOT = Path(__file__).parents[3]
TAGGER, MLP = (str(ROOT / "samples" / name) for name in ("tagger.irs", "mlp.irs"))
FACTORS = (1, 9)
PASSES = "liveness,cuda-memory,explain-peak,advise,plan,schedule{seconds=1},roofline,energy"
SIZES = "curve{over=batch=1..4},sweep{over=batch=1..4}"


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two files for one device that differ in what convolutions take besides."""
    folder = tmp_path_factory.mktemp("devices")
    paths = []
    for factor in FACTORS:
        record = json.loads(files("irscope.devices").joinpath("data", "rtx-4090.json").read_text(encoding="utf-8"))
        record["sources"] = {**record.get("sources", {}), "invented": {"text": "invented", "date": "2026"}}
        rule = {"input": factor, "filter": factor, "output": factor, "source": "invented"}
        record["workspaces"] = {kind: {"f32": rule} for kind in ("convolution", "pointwise", "depthwise")}
        path = folder / f"rtx4090-{factor}.json"
        path.write_text(json.dumps(record), encoding="utf-8")
        paths.append(str(path))
    return paths[0], paths[1]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints on stdout."""
    capsys.readouterr()
    main(list(arguments))
    return capsys.readouterr().out


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """A summary's values by path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path, value


def unmarked(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """What two reports differ in and do not call modelled."""
    for number, report in enumerate((one, other)):
        for path, value in leaves(report["summary"]):
            if value != dict(leaves((other, one)[number]["summary"])).get(path) and report["provenance"].get(path) not in (
                "modelled",
                "unknown",
            ):
                yield f"{report['pass']}: {path} = {value}"
        for text in report["notes"] + [finding["message"] for finding in report["diagnostics"]]:
            others = (other, one)[number]
            if text not in others["notes"] + [finding["message"] for finding in others["diagnostics"]] and "~" not in text:
                yield f"{report['pass']}: {text}"
    for first, second in zip(one["tables"], other["tables"], strict=True):
        yield from (f"{one['pass']}, {first['title']}: {cell}" for cell in _unmarked_cells(first, second))
    for first, second in zip(one["series"], other["series"], strict=True):
        marked = {column["key"] for column in first["y"] if column.get("provenance") == "modelled"}
        yield from (
            f"{one['pass']}, {first['title']}: {key}"
            for key in first["data"]
            if first["data"][key] != second["data"][key] and key not in marked and key != "batch"
        )


def _unmarked_cells(first: dict[str, Any], second: dict[str, Any]) -> Iterator[str]:
    columns = [column["key"] for column in first["columns"]]
    marked = {column["key"] for column in first["columns"] if column.get("provenance") == "modelled"}
    noted = {(note["row"], note["column"]) for note in first.get("annotations", ()) if note["provenance"] == "modelled"}
    others = {row[0]: row for row in second["rows"]}
    by_name = columns[0] in ("batch", "tensor", "module", "node") and len(others) == len(second["rows"])
    for row, left in enumerate(first["rows"]):
        # Which sizes a search looks at, or which tensors are alive at the step that is named, is no statement about any of them.
        right = others.get(left[0], left) if by_name else second["rows"][row] if row < len(second["rows"]) else left
        for key, a, b in zip(columns, left, right, strict=True):
            if (
                a != b
                and key not in marked
                and (row, key) not in noted
                and not (by_name and (isinstance(a, str) or key in ("born", "dies")))
            ):
                yield f"{key} in row {row}: {a}, {b}"


def reports(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["reports"]
    return found


def compared(capsys: pytest.CaptureFixture[str], devices: tuple[str, str], *arguments: str) -> tuple[list[str], bool]:
    """What is not marked though it differs, and whether anything differs at all."""
    one, other = (reports(printed(capsys, *arguments, "--device", device, "--format", "json")) for device in devices)
    texts = [text for pair in zip(one, other, strict=True) for text in unmarked(*pair)]
    return texts, [report["summary"] for report in one] != [report["summary"] for report in other]


def test_passes(capsys: pytest.CaptureFixture[str], devices: tuple[str, str]) -> None:
    found, differs = compared(capsys, devices, "run", "--passes", PASSES, "--bind", "batch=4", TAGGER)
    assert differs and not found
    found, _ = compared(capsys, devices, "run", "--passes", SIZES, TAGGER)
    assert not found


def test_a_comparison(capsys: pytest.CaptureFixture[str], devices: tuple[str, str], tmp_path: Path) -> None:
    half = tmp_path / "half.irs"
    half.write_text(Path(TAGGER).read_text(encoding="utf-8"), encoding="utf-8")
    found, differs = compared(capsys, devices, "compare", TAGGER, str(half), "--bind", "batch=4")
    assert differs and not found


def test_a_fit(capsys: pytest.CaptureFixture[str], devices: tuple[str, str]) -> None:
    for memory in ("96MiB", "16MiB"):
        one, other = (
            json.loads(printed(capsys, "fit", TAGGER, "--memory", memory, "--device", device, "--format", "json")) for device in devices
        )
        differing = {key for key in one if one[key] != other[key]} - {"provenance", "is_modelled", "target"}
        assert differing and all(found["provenance"].get(key) == "modelled" for key in differing for found in (one, other))
    text = printed(capsys, "fit", TAGGER, "--memory", "96MiB", "--device", devices[0])
    assert "as modelled" in text and "~" in text
    plain = json.loads(printed(capsys, "fit", MLP, "--memory", "96MiB", "--device", devices[0], "--format", "json"))
    times = ("seconds", "seconds_interval", "surely_seconds", "surely_seconds_interval")  # whose memory is exact: no time ever is
    assert plain["provenance"] == dict.fromkeys(times, "modelled") and plain["is_modelled"] is False


def test_files_of_the_timeline(capsys: pytest.CaptureFixture[str], devices: tuple[str, str], tmp_path: Path) -> None:
    tables, traces = [], []
    for number, device in enumerate(devices):
        for name, into in (("t.csv", tables), ("t.json", traces)):
            path = tmp_path / f"{number}-{name}"
            assert main(["export", TAGGER, "--bind", "batch=4", "--device", device, "-o", str(path)]) == 0
            into.append(path.read_text(encoding="utf-8"))
    one, other = (list(csv.DictReader(io.StringIO(text))) for text in tables)
    differing = {(row, key) for row, (a, b) in enumerate(zip(one, other, strict=True)) for key in a if a[key] != b[key] and "." not in key}
    assert differing and all(one[row].get(f"{key}.provenance") == "modelled" for row, key in differing)
    assert {"workspace (modelled)" in text for text in traces} == {True}


@pytest.mark.slow
@pytest.mark.torch
def test_training(capsys: pytest.CaptureFixture[str], devices: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "model.py"
    script.write_text(
        "import torch\nfrom torch import nn\n"
        "def build(batch=2):\n"
        "    module = nn.Sequential(nn.Conv2d(32, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten())\n"
        "    return module, (torch.zeros(batch, 32, 16, 16),)\n",
        encoding="utf-8",
    )
    target = f"{script}:build"
    found, differs = compared(capsys, devices, "train-plan", target, "--passes", "training,activations,checkpoint{steps=50 seconds=1}")
    assert differs and not found
    found, differs = compared(capsys, devices, "train-plan", target, "--memory", "24MiB", "--seconds", "1")
    assert not found


def test_without_convolutions_no_memory_is_modelled(capsys: pytest.CaptureFixture[str], devices: tuple[str, str]) -> None:
    at_one_size = ("run", "--passes", "liveness{model=jit},cuda-memory{model=jit},explain-peak", "--bind", "batch=4", MLP)
    for arguments in (at_one_size, ("run", "--passes", "curve{over=batch=1..4 model=jit}", MLP)):
        for report in reports(printed(capsys, *arguments, "--device", devices[0], "--format", "json")):
            assert "modelled" not in json.dumps({**report, "notes": []})
    found, differs = compared(capsys, devices, *at_one_size)
    assert not found and not differs
