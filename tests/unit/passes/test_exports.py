"""Exports of the timeline: what PyTorch's own viewer accepts, and numbers that add up to what liveness says."""

from __future__ import annotations

import csv
import io
import json
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.ir.parser import parse_program
from irscope.passes.exports import AllocatorLog, allocations_of, chrome_trace, requests_of, snapshot
from irscope.passes.memory.cuda import CudaMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings

ROOT = Path(__file__).parents[3]
TEXT = """irscope 1
format "pt2"
graph @main {
  input %x: f32[64,1024]
  param %w: f32[4096,1024]
  param %v: f32[1024,4096]
  %a: f32[64,4096] = nn.linear(%x, %w) !"aten::linear"
  %b: f32[64,4096] = math.exp(%a) !"aten::exp"
  %c: f32[64,1024] = nn.linear(%b, %v) !"aten::linear"
  return %c
}
"""
OPCODES = """
PROTO FRAME MEMOIZE MARK STOP EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE LIST DICT APPEND APPENDS SETITEM SETITEMS
BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE NONE BINUNICODE SHORT_BINUNICODE BINPUT BINGET LONG_BINPUT LONG_BINGET
"""
ALLOWED = frozenset(OPCODES.split())
"""All that the reader of memory_viz knows."""


@pytest.fixture(params=["", "expandable_segments:True"], ids=["segments", "expandable"])
def manager(request: pytest.FixtureRequest) -> Manager:
    return Manager(parse_program(TEXT), settings=Settings(alloc_conf=request.param))


@pytest.fixture
def log(manager: Manager) -> AllocatorLog:
    return allocations_of(manager.get(CudaMemory()))


def test_the_log_reaches_the_peaks_of_liveness(manager: Manager, log: AllocatorLog) -> None:
    outcome = manager.get(CudaMemory()).central
    assert outcome is not None
    counters = {"requested": 0, "allocated": 0, "reserved": 0}
    peaks: dict[int, dict[str, int]] = {}
    for event in log.events:
        if event.owner is None:
            counters["reserved"] += event.size * (1 if event.action in ("segment_alloc", "segment_map") else -1)
        else:
            sign = 1 if event.action == "alloc" else -1
            counters["requested"] += sign * event.size
            counters["allocated"] += sign * event.block
        seen = peaks.setdefault(event.run, dict(counters))
        for key, value in counters.items():
            seen[key] = max(seen[key], value)
    for run, expected in ((1, outcome["cold"].peak), (2, outcome["warm"].peak)):
        assert (peaks[run]["requested"], peaks[run]["allocated"]) == (expected.requested, expected.allocated)
    assert max(found["reserved"] for found in peaks.values()) == outcome.at("cold", "reserved")


def test_the_snapshot_is_plain_data_that_tiles(log: AllocatorLog) -> None:
    made = pickle.dumps(snapshot(log), protocol=4)
    assert {opcode.name for opcode, _, _ in pickletools.genops(made)} <= ALLOWED
    found = pickle.loads(made)
    assert found["allocator_settings"].keys() == {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments", "irscope_device", "irscope_torch"}
    for segment in found["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"] < 2**53
    live: dict[int, int] = {}
    for entry in found["device_traces"][0]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert live.pop(entry["addr"]) == entry["size"]
    blocks = [block for segment in found["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert {block["address"]: block["requested_size"] for block in blocks} == live


@pytest.mark.torch
def test_torch_reads_the_snapshot(log: AllocatorLog) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    found: dict[str, Any] = snapshot(log)
    reserved = sum(segment["total_size"] for segment in found["segments"])
    assert f"{viewer.Bytes(reserved)}" in viewer.segsum(found)
    # By itself it would fetch a script that draws.
    assert "nn.linear" in viewer.memory(found, format_flamegraph=lambda lines: lines)
    assert "<html" in viewer.trace_plot(found).lower() and "<html" in viewer.segment_plot(found).lower()
    assert "Device 0" in viewer.trace(found)


def test_the_trace_has_counters_and_slices(log: AllocatorLog) -> None:
    events = json.loads(json.dumps(chrome_trace(log)))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert [event["name"] for event in events if event["ph"] == "X" and event["cat"] == "node"] == [node.name for node in log.steps] * 2
    times = [event["ts"] for event in events if event["ph"] == "C"]
    assert times == sorted(times)
    peak = max(sum(event["args"].values()) for event in events if event["name"] == "requested by category")
    assert peak > 0 and all(value >= 0 for event in events if event["ph"] == "C" for value in event["args"].values())


def test_without_an_allocator_there_are_sizes_as_asked_for() -> None:
    timeline = Manager(parse_program(TEXT)).get(Liveness(model="ssa"))
    log = requests_of(timeline)
    alive = peak = 0
    for event in log.events:
        alive += event.size if event.action == "alloc" else -event.size
        peak = max(peak, alive)
    assert peak == timeline.peak + sum(size for size in timeline.resident.values() if isinstance(size, int))
    found = pickle.loads(pickle.dumps(snapshot(log), protocol=4))
    assert sum(segment["requested_size"] for segment in found["segments"]) == alive
    assert {event["ph"] for event in chrome_trace(log)["traceEvents"]} == {"M", "X", "C"}


@pytest.mark.parametrize("format_", ["pt2", "irs"])
@pytest.mark.parametrize("kind", ["pickle", "json", "csv"])
def test_the_command_writes_a_file(kind: str, format_: str, tmp_path: Path) -> None:
    model = tmp_path / "model.irs"
    model.write_text(TEXT.replace('"pt2"', f'"{format_}"'), encoding="utf-8")
    path = tmp_path / f"timeline.{kind}"
    assert main(["export", str(model), "-o", str(path)]) == 0
    if kind == "pickle":
        assert pickle.loads(path.read_bytes())["segments"]
    elif kind == "json":
        assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    else:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        assert [row["node"] for row in rows] and {"alive_bytes", "storages"} <= set(rows[0])
        assert ({"allocated_bytes", "reserved_bytes"} <= set(rows[0])) == (format_ == "pt2")


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(["-o", "x.txt"], 2), (["-o", "x.json"], 4), (["-o", "x.csv"], 4), (["-o", "missing/x.csv", "--bind", "batch=2"], 2)],
)
def test_what_cannot_be_written_is_said(arguments: list[str], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(ROOT / "samples" / "mlp.irs"), *arguments]) == exit_code
    assert not list(tmp_path.iterdir())
