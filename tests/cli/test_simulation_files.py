"""`irscope simulate -o`: what ran as a recording, a snapshot and a trace, each with the figures of the report."""

from __future__ import annotations

import json
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.recording import figures, peak_of, read_recording
from irscope.tools.explain import explain_file
from irscope.tools.simulate_ranks import Program, arguments_of
from irscope.tools.simulation import Options
from tests.cli.test_simulate import LOOP, simulate

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]


def written(folder: Path, name: str, text: str = LOOP, code: int = 0) -> tuple[Path, dict[str, Any]]:
    """The file, and the report that stands on standard output beside it."""
    done = simulate(folder, text, "--device", "h100", "--format", "json", "-o", str(folder / name))
    assert done.returncode == code, done.stderr
    assert f"wrote {folder / name}" in done.stderr
    return folder / name, json.loads(done.stdout)


def test_a_recording_is_the_last_step(tmp_path: Path) -> None:
    path, report = written(tmp_path, "run.jsonl")
    recording = read_recording(path)
    last = report["steps"][-1]
    assert recording.complete and recording.header.settings["simulated"] is True and recording.header.device.name == "NVIDIA H100 SXM"
    before, warm = recording.counter("before"), recording.counter("warm")
    assert before is not None and before.requested is not None and warm is not None and warm.requested is not None
    assert before.requested.current == report["steps"][-2]["requested"]["after"]
    assert warm.requested.current == last["requested"]["after"] and warm.requested.peak == last["requested"]["peak"]
    assert before.requested.current + peak_of(recording.run("warm")).bytes == last["requested"]["peak"]
    assert before.requested.current + sum(event.bytes for event in recording.events) == last["requested"]["after"]
    assert figures(recording).reserved == last["reserved"]["peak"]
    assert recording.ops[-1].alive == sum(event.bytes for event in recording.events)
    assert {op.op for op in recording.ops} >= {"aten::addmm", "aten::gelu"} and {op.scope for op in recording.ops} >= {"0", "1", "2"}


def test_a_recording_has_the_report_and_what_the_step_begins_with(tmp_path: Path) -> None:
    path, report = written(tmp_path, "run.jsonl")
    recording = read_recording(path)
    before = recording.counter("before")
    assert before is not None and before.requested is not None
    assert sum(holding.bytes for holding in recording.held) == before.requested.current
    assert {holding.category for holding in recording.held} >= {"parameter", "optimizer state"}
    assert {event.source.rpartition("/")[2] for event in recording.run("warm") if event.bytes > 0} <= {
        f"train.py:{n}" for n in range(1, 20)
    }
    # Phases follow one another; what is before the forward is none of them.
    phases = list(dict.fromkeys(event.phase for event in recording.run("warm")))
    assert [phase for phase in phases if phase] == ["forward", "backward", "optimizer"]
    assert {event.stream for event in recording.run("warm")} == {0}
    assert recording.said is not None and str(recording.said.summary["verdict"]).startswith("fits on NVIDIA H100 SXM")
    assert recording.said.summary["reserved_peak_bytes"] == report["peak"]["reserved"]
    assert {table.title for table in recording.tables} >= {"peak of each step", "alive at the peak", "what reserved is made of at its peak"}


def test_a_snapshot_of_all_that_was_allocated(tmp_path: Path) -> None:
    path, report = written(tmp_path, "run.pickle")
    snapshot = pickle.loads(path.read_bytes())
    now = {key: 0 for key in ("alloc", "free_completed", "segment_alloc")}
    high = 0
    for entry in snapshot["device_traces"][0]:
        if entry["action"] in now:
            now[entry["action"]] += entry["size"]
        high = max(high, now["alloc"] - now["free_completed"])
    assert high == max(step["requested"]["peak"] for step in report["steps"])
    assert now["segment_alloc"] == sum(one["total_size"] for one in snapshot["segments"]) == report["steps"][-1]["reserved"]["after"]
    lines = {frame["line"] for entry in snapshot["device_traces"][0] for frame in entry["frames"] if frame["filename"].endswith("train.py")}
    assert lines == {5, 9, 11, 12}


def test_a_trace_with_a_slice_for_each_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    done = simulate(tmp_path, LOOP, "--device", "h100", "-o", str(tmp_path / "run.json"))
    assert done.returncode == 0 and "verdict" in done.stdout and script.exists()
    trace = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    slices = [event["name"] for event in trace if event["ph"] == "X"]
    assert [name for name in slices if name.startswith("step")] == ["step 1", "step 2", "step 3", "step 4"]
    most = max(event["args"]["bytes"] for event in trace if event["name"] == "allocated")
    assert most == int(max(line.split()[-1] for line in done.stdout.splitlines() if line.startswith("[] ")))
    steps = [event for event in trace if event.get("cat") == "step" and event["name"].startswith("step")]
    kernels = [event for event in trace if event.get("cat") == "kernel"]
    assert {event["args"]["name"] for event in trace if event["ph"] == "M" and event["pid"] == 1} >= {"host", "stream 0"}
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for row in (steps, kernels) for before, after in pairwise(row))
    assert steps[0]["ts"] <= min(event["ts"] for event in kernels if "addmm" in event["name"])
    assert max(event["ts"] + event["dur"] for event in kernels) <= steps[-1]["ts"] + steps[-1]["dur"] + 1


def test_a_recording_says_what_memory_was_short_of(tmp_path: Path) -> None:
    text = "import torch\nkept = []\nwhile True:\n    kept.append(torch.zeros(1 << 30, device='cuda'))\n"
    path, report = written(tmp_path, "run.jsonl", text, 1)
    recording = read_recording(path)
    [problem] = recording.problems
    assert report["outcome"] == "oom" and not recording.complete
    assert (problem.kind, problem.requested) == ("out_of_memory", 4 << 30)
    assert problem.alive_bytes == 19 * (4 << 30) and len(problem.alive) == 19


LAYERS = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
batch = parser.parse_args().batch
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 4096), nn.Linear(4096, 1024)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(batch * 1024, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_memory_that_was_refused_is_explained_as_it_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "oom.pickle"
    options = ("--device", "h100", "--memory", "3GiB", "--torch", "2.15", "--alloc-conf", "expandable_segments:True", "-o", str(path))
    done = simulate(tmp_path, LAYERS, *options, arguments=("--batch", "16"))
    assert done.returncode == 1, done.stderr
    snapshot = pickle.loads(path.read_bytes())
    [entry] = [one for one in snapshot["device_traces"][0] if one["action"] == "oom"]
    assert f"Tried to allocate {entry['size'] >> 20}.00 MiB" in done.stdout
    assert entry["addr"] < entry["size"] and entry["frames"][-1]["line"] == 24

    explained = explain_file(path)
    assert explained.verdict.startswith(f"out of memory: {entry['size'] >> 20}.00 MiB more at") and "train.py:24" in explained.verdict
    assert explained.release == "2.15"
    assert "expandable_segments:True" not in [one.change.name for one in explained.tried[1]]
    tables = {table.title: table.to_dicts() for table in explained.tables()}
    assert "blocks.0-5" in {row["module"] for row in tables["alive where memory was refused"]}

    seen: list[list[str]] = []
    monkeypatch.setattr("irscope.cli.explain.Command.run", lambda self, args: seen.append([args.target, *args.arguments]) or 0)
    script = str(tmp_path / "train.py")
    assert main(["explain", "--no-try", str(path), script, "--batch", "16"]) == 0
    assert seen == [[script, "--batch", "16"]]
    found = predicted_with(monkeypatch, path, script)
    assert found == {"--device": "h100:3GiB", "--torch": "2.15", "--alloc-conf": "expandable_segments:True"}


def predicted_with(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> dict[str, str]:
    """What a script is simulated with to explain a snapshot."""
    lines: list[list[str]] = []

    def asked(program: object, options: Options, *more: str) -> list[str]:
        lines.append(arguments_of(Program(script), options, *more))
        raise LookupError

    monkeypatch.setattr("irscope.tools.explain.arguments_of", asked)
    with pytest.raises(LookupError):
        explain_file(path, script)
    [line] = lines
    return {flag: line[line.index(flag) + 1] for flag in ("--device", "--torch", "--alloc-conf")}


def test_settings_that_a_release_does_not_take_are_named(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "run.pickle")
    snapshot = pickle.loads(path.read_bytes())
    conf = "large_segment_size_mb:40,expandable_segments:True,no_such_thing:3"
    snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": conf, "irscope_torch": "2.8"}
    path.write_bytes(pickle.dumps(snapshot))
    [note] = [note for note in explain_file(path).report().notes if "does not take" in note]
    assert note.startswith("torch 2.8 does not take ") and "no_such_thing:3" in note and "expandable" not in note
    # What the program set itself holds as well, and a release whose rules are not known is named.
    divisions = {str(1 << power): 4 * (power > 7) for power in range(16)}
    set_by_calls = {"max_split_size": 128 << 20, "garbage_collection_threshold": 0.5, "roundup_power2_divisions": divisions}
    unset = {"max_split_size": -1, "garbage_collection_threshold": 0.0, "roundup_power2_divisions": dict.fromkeys(divisions, 0)}
    for settings, offered in ((set_by_calls, 1), (unset, 3)):
        snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False, "irscope_torch": "2.99", **settings}
        path.write_bytes(pickle.dumps(snapshot))
        explanation = explain_file(path)
        assert [note for note in explanation.report().notes if "torch 2.99, which the file names, are not known" in note]
        assert len([change for change in explanation.tried[1] if change.change.conf]) == offered
