"""Recordings of GPUs are read, and give rules whose error on other models is known."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.devices import find_device
from irscope.errors import LoadError
from irscope.measure.calibrate.recordings import (
    Convolution,
    Run,
    convolution_kind,
    convolutions_of,
    errors_of,
    fit_rules,
    fit_slowdown,
    kept_out_models,
    read_gpu_folder,
    workspace_of,
)
from irscope.recording import DeviceRecord, Header, Latency, ModelRecord, OpRecord, Recording, Times, write_recording
from irscope.recording.records import Input

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[2] / "data" / "cuda").glob("*/machine.json"))
NAMES = [f"torchvision:net{number}" for number in range(6)]
GROUPS = ((16, 8, 3, 1), (8, 16, 1, 1), (16, 16, 3, 16))
"""Channels in and out, side of the kernel, groups."""


def truth(kind: str, given: int, filters: int, made: int) -> int:
    """The workspace of the pretended library."""
    return {"convolution": given + filters, "pointwise": 0, "depthwise": 2 * made}[kind]


def convolution(channels: int, made: int, side: int, groups: int, size: int, dtype: str) -> tuple[list[object], dict[str, object]]:
    """A convolution as a model's line names it, and as its own line has it."""
    x, w = [1, channels, size, size], [made, channels // groups, side, side]
    element = 2 if dtype == "float16" else 4
    given, filters, result = element * math.prod(x), element * math.prod(w), element * made * size * size
    shape: list[object] = [x, w, [1, 1], [side // 2] * 2, [1, 1], groups]
    taken = truth(convolution_kind(w, [1, 1], groups), given, filters, result)
    events = [[result, taken, -taken] if taken else [result]] * 2
    names = ("x", "w", "stride", "padding", "dilation", "groups")
    return shape, {"op": "conv2d", "dtype": dtype, **dict(zip(names, shape, strict=True)), "events": events, "out": result}


def gpu_folder(path: Path) -> Path:
    """A folder as a GPU machine brings it."""
    path.mkdir()
    (path / "machine.json").write_text(json.dumps({"name": "NVIDIA H200", "torch": "2.13.0+cu130", "capability": [9, 0], "sms": 132}))
    counters = {name: {"peak": 900, "after": 500} for name in ("requested_bytes", "allocated_bytes", "reserved_bytes")}
    models, kernels = [], {}
    for number, name in enumerate(NAMES):
        made = [convolution(*group, 8 + 2 * number, "float16" if number % 2 else "float32") for group in GROUPS]
        kernels.update({json.dumps(row): row for _, row in made})
        dtype = "float16" if number % 2 else "float32"
        line = {
            "spec": {"model": name, "dtype": dtype, "inputs": {}},
            "torch": "2.13.0",
            "before": {"requested_bytes": 400},
            "runs": [counters] * 3,
        }
        latency = {"median": 2.0, "min": 1.0, "p95": 3.0, "n": 9}
        models.append({**line, "events": [1, -1], "latency_ms": latency, "convs": [shape for shape, _ in made]})
    models.append({"error": "timeout", "payload": {"model": "hf:Large"}})
    (path / "models.jsonl").write_text("".join(json.dumps(line) + "\n" for line in models))
    others = [{"op": "sdpa", "events": [[5]], "out": 5}, {"op": "conv2d", "x": [1], "w": [1], "error": "no"}]
    (path / "kernels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*kernels.values(), *others]))
    return path


def test_a_folder_is_read(tmp_path: Path) -> None:
    found = read_gpu_folder(gpu_folder(tmp_path / "h200"))
    assert found.machine.name == "NVIDIA H200" and found.machine.capability == (9, 0)
    assert [model.name for model in found.models][:2] == ["torchvision:net0 float32", "torchvision:net1 float16"]
    assert found.models[0].runs[1]["allocated_bytes"].peak == 900
    assert found.models[0].latency_ms is not None and found.models[0].latency_ms.n == 9
    assert found.failed == ("hf:Large",)
    first = found.convolutions[0]
    assert first == Convolution("torchvision:net0 float32", "convolution", "f32", 4096, 4608, 2048, 4096 + 4608)
    assert len(found.convolutions) == 3 * len(NAMES)


@pytest.mark.parametrize(
    ("file", "content", "where"),
    [
        ("machine.json", "{", "machine.json:1"),
        ("machine.json", "[]", "machine.json:1"),
        ("machine.json", '{"name": 3, "torch": "2"}', "machine.json:1"),
        ("models.jsonl", '{"error": "x"}\n{"spec": {}}\n', "models.jsonl:2"),
        ("models.jsonl", '{"spec": {"model": "m"}, "before": {"requested_bytes": -1.5}, "runs": []}\n', "models.jsonl:1"),
        ("kernels.jsonl", "[" * 100000, "kernels.jsonl:1"),
    ],
)
def test_mistakes_are_named_with_file_and_line(file: str, content: str, where: str, tmp_path: Path) -> None:
    folder = gpu_folder(tmp_path / "h200")
    (folder / file).write_text(content)
    with pytest.raises(LoadError) as caught:
        read_gpu_folder(folder)
    assert caught.value.code == "IRS650" and where in caught.value.where


def test_rows_of_kernels_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    folder = gpu_folder(tmp_path / "h200")
    good = read_gpu_folder(folder).convolutions
    with (folder / "kernels.jsonl").open("a") as stream:
        stream.write(
            '{"op": "conv2d", "dtype": "float32", "x": "no", "w": [], "events": 3, "out": []}\n{"op": 5}\n{"op": "conv2d", "dtype": []}\n'
        )
    assert read_gpu_folder(folder).convolutions == good


def test_the_workspace_is_what_comes_on_top_of_the_result() -> None:
    assert workspace_of([100, 50, -50], 100) == 50
    assert workspace_of([50, 100, -50], 100) == 50
    assert workspace_of([100], 100) == workspace_of([], 100) == 0


def test_a_third_of_the_models_is_kept_out_by_name() -> None:
    assert kept_out_models(reversed(NAMES)) == {NAMES[2], NAMES[5]}
    assert kept_out_models(["a", "b", "a"]) == frozenset()


def test_rules_are_found_and_tried_on_other_models(tmp_path: Path) -> None:
    convolutions = read_gpu_folder(gpu_folder(tmp_path / "h200")).convolutions
    aside = kept_out_models(one.model for one in convolutions)
    rules = {(rule.kind, rule.dtype): rule for rule in fit_rules(convolutions, aside)}
    assert {key: rule.factors for key, rule in rules.items() if key[1] == "f32"} == {
        ("convolution", "f32"): (1, 1, 0),
        ("pointwise", "f32"): (0, 0, 0),
        ("depthwise", "f32"): (0, 0, 2),
    }
    kept = rules["convolution", "f16"].kept_out
    assert kept is not None and kept.count == kept.exact == 1 and kept.worst == 0
    assert all(rule.useful for rule in rules.values())


def test_what_no_rule_explains_is_told() -> None:
    odd = [Convolution("a", "convolution", "f32", 1000 * size, 10, 1000, 700 * size * size) for size in range(1, 5)]
    rule = fit_rules(odd, frozenset())[0]
    assert rule.fitted.exact < 4 and rule.fitted.worst > 0.1 and rule.kept_out is None
    constant = [Convolution(name, "pointwise", "f32", size, size, size, 20_000_000) for name in "abc" for size in (1000, 4000)]
    assert not fit_rules(constant, frozenset("c"))[0].useful
    assert errors_of((0, 0, 0), odd).worst == 700 * 16 / (4000 + 10 + 1000)


def recording(name: str, milliseconds: float, *ops: OpRecord, executor: str = "torch-cuda") -> Recording:
    times = Times(5, milliseconds * 1e3, milliseconds * 1e3, milliseconds * 1e3)
    kind = executor.rpartition("-")[2]
    header = Header(executor, ModelRecord(name, inputs=(Input("x", "f32[1,3,8,8]"),)), DeviceRecord(kind, "NVIDIA H200"))
    return Recording(header=header, ops=ops, latency=(Latency("plain", times),))


def test_recordings_give_convolutions_too() -> None:
    inputs = ("f32[1,16,8,8]", "f32[32,16,3,3]", "f32[32]")
    op = OpRecord(0, "aten::conv2d", inputs=inputs, outputs=("f32[1,32,8,8]",), workspace=99)
    assert list(convolutions_of(recording("m", 1, op))) == [Convolution("m ", "convolution", "f32", 4096, 18432, 8192, 99)]
    assert not list(convolutions_of(recording("m", 1, op, executor="torch-cpu")))
    for broken in (replace(op, inputs=()), replace(op, inputs=("?", "?")), replace(op, workspace=None), replace(op, outputs=("f32[]",))):
        assert not list(convolutions_of(recording("m", 1, broken)))


def test_how_much_longer_models_take_is_tried_on_others() -> None:
    runs = [Run(f"m{number}", 2e-3 * (1 + number / 100), 1e-3) for number in range(6)]
    found = fit_slowdown(runs, kept_out_models(run.model for run in runs))
    assert found is not None and found.models == 4 and found.kept_out == 2
    assert 2.0 < found.low <= found.middle <= found.high < 2.1
    assert found.error is not None and found.error < 0.05 and not found.below
    assert fit_slowdown(runs[:2], frozenset()) is None
    below = fit_slowdown([*runs, Run("fast", 1e-4, 1e-3)], frozenset())
    assert below is not None and below.below == ("fast",)


def test_a_device_file_from_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "device.json"
    assert main(["calibrate", "--from", str(gpu_folder(tmp_path / "h200")), "-o", str(target)]) == 0
    said = capsys.readouterr()
    assert "input + filter" in said.out and "kept out of the fit: torchvision:net2 float32, torchvision:net5 float16" in said.out
    device = find_device(str(target))
    assert device.capability == (9, 0) and device.memory_bytes == find_device("h200").memory_bytes
    rule = device.workspaces["convolution"]["f32"]
    assert (rule.input, rule.filter, rule.output) == (1, 1, 0)
    assert "fitted by irscope calibrate --from to recordings of 4 models; 2 kept out" in rule.source


def of_text(tmp_path: Path, text: str, milliseconds: float) -> Iterator[str]:
    """Options that name a recording of a model in the text form."""
    path = tmp_path / f"{milliseconds}.irs"
    path.write_text(text)
    target = tmp_path / f"{milliseconds}.jsonl"
    made = recording(path.name, milliseconds)
    write_recording(target, replace(made, header=replace(made.header, model=replace(made.header.model, path=str(path)))))
    yield from ("--from", str(target))


def test_times_of_recordings_scale_the_least_time_in_a_column_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "irscope 1\ngraph @main {\n  input %x: f32[1,3,8,8]\n  %y: f32[1,3,8,8] = nn.relu(%x)\n  return %y\n}\n"
    options = [option for milliseconds in (1, 2, 4, 8) for option in of_text(tmp_path, text, milliseconds)]
    target = tmp_path / "device.json"
    assert main(["calibrate", *options, "-o", str(target)]) == 0
    capsys.readouterr()
    assert main(["run", "--passes", "roofline", "--device", str(target), str(tmp_path / "1.irs"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)["reports"][0]
    least, calibrated = report["summary"]["roofline_seconds"], report["summary"]["calibrated_seconds"]
    slowdown = find_device(str(target)).slowdown
    assert slowdown is not None and calibrated == pytest.approx(least * (slowdown.lo * slowdown.hi) ** 0.5)
    assert "calibrated" in [column["key"] for column in report["tables"][0]["columns"]]
    assert main(["run", "--passes", "roofline", "--device", "h200", str(tmp_path / "1.irs"), "--format", "json"]) == 0
    assert "calibrated_seconds" not in json.loads(capsys.readouterr().out)["reports"][0]["summary"]


def test_recordings_of_two_devices_or_of_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    write_recording(one, recording("m", 1))
    other = recording("m", 1)
    write_recording(two, replace(other, header=replace(other.header, device=DeviceRecord("cuda", "NVIDIA A100"))))
    for arguments, says in (
        (["--from", str(one), "--from", str(two)], "others are of NVIDIA H200"),
        (["--from", str(one)], "have nothing to fit"),
        (["--from", str(tmp_path)], "neither a recording nor a folder"),
        (["--device", "h200"], "--device goes with --from"),
    ):
        assert main(["calibrate", *arguments]) == 2
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_recorded_gpus(folder: Path) -> None:
    found = read_gpu_folder(folder)
    assert found.models and found.machine.name
    for model in found.models:
        assert len(model.runs) >= 2 and sum(model.events) >= 0
        assert all(counter.peak >= counter.after >= 0 for run in model.runs for counter in run.values())
