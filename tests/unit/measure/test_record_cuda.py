"""The runs on a GPU, with a GPU that only pretends: counters, history, events and energy are played by the test."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from torch import nn  # noqa: E402  # only where torch is installed

from irscope.measure import machine  # noqa: E402
from irscope.measure.record import torchrun, torchsteps  # noqa: E402
from irscope.measure.record.request import Options, Request  # noqa: E402
from irscope.measure.record.sink import Sink  # noqa: E402
from irscope.measure.record.torchmodel import of_module  # noqa: E402
from irscope.measure.record.torchrun import begin_on_cuda, record_on_cuda  # noqa: E402
from irscope.memory.tape import COUNTERS  # noqa: E402
from irscope.recording import ModelRecord, Recording, figures, peak_of, read_recording, without_workspaces  # noqa: E402


class Event:
    """A CUDA event: a moment of the processor."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.moment = 0.0

    def record(self) -> None:
        self.moment = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return (other.moment - self.moment) * 1e3


class Model(nn.Module):
    """Tells a history of blocks while it runs: a result, a workspace that comes and goes, and one that stays."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self.card = card
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        self.card.block("alloc", 1, 64)
        if self.card.fails:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1 GiB.")
        self.card.block("alloc", 2, 4096)
        self.card.block("free_completed", 2, 4096)
        return torch.relu(y)


class Card:
    """What stands in for torch.cuda."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.recording = False
        self.fails = False

    def block(self, action: str, address: int, size: int) -> None:
        if self.recording:
            self.history.append({"action": action, "addr": address, "size": size, "time_us": time.time_ns() // 1000})

    def keep(self, enabled: object = "all", **_: object) -> None:
        self.recording = enabled is not None
        if self.recording:
            self.history = []

    def stats(self, _: object) -> dict[str, int]:
        return {f"{name}_bytes.all.{what}": size for name in COUNTERS for what, size in (("current", 1000), ("peak", 5160))}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    properties = SimpleNamespace(name="a card", total_memory=1 << 30, major=9, minor=0, uuid="x")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "memory_stats", made.stats)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", made.keep)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [made.history]})
    return made


def recorded(card: Card, target: Path) -> Recording:
    request = Request(ModelRecord("m"), Options(device="cuda", repeats=3, warmup=1), str(target))
    device, sink = torch.device("cuda", 0), Sink(target)
    begin_on_cuda(request, device, sink)
    record_on_cuda(of_module(Model(card).eval(), (torch.randn(1, 4),)), request, device, sink)
    sink.finish()
    return read_recording(target)


def test_counters_history_and_events_become_a_recording(card: Card, tmp_path: Path) -> None:
    found = recorded(card, tmp_path / "r.jsonl")
    assert found.complete and not found.problems and found.energy is None
    assert (found.header.executor, found.header.device.name, found.header.device.capability) == ("torch-cuda", "a card", "9.0")
    assert [counters.run for counters in found.counters] == ["before", "cold", "warm"]
    assert figures(found).delta == 4160 and figures(found).reserved == 5160
    assert [(op.op, op.scope, op.place) for op in found.ops] == [("aten::linear", "first", "cuda"), ("aten::relu", "", "cuda")]
    for run in ("cold", "warm"):
        assert [event.bytes for event in found.run(run)] == [64, 4096, -4096]
        assert peak_of(found.run(run)).bytes == 4160
    for op in found.ops:
        assert op.time is not None and op.time.n == 3 and op.time.min_us > 0
    assert found.times("plain") is not None and found.times("profiled") is not None


def test_memory_that_is_kept_and_returned_by_nobody_is_a_workspace(card: Card, tmp_path: Path) -> None:
    # No tensor of the result is at the address of the block that stays.
    assert peak_of(without_workspaces(recorded(card, tmp_path / "r.jsonl").run("warm"))).bytes == 4096


def test_out_of_memory_on_a_card(card: Card, tmp_path: Path) -> None:
    card.fails = True
    found = recorded(card, tmp_path / "r.jsonl")
    assert not found.complete and [op.op for op in found.ops] == ["aten::linear"]
    problem = found.problems[0]
    assert (problem.kind, problem.requested, problem.op_name) == ("out_of_memory", 2 << 30, "aten::linear")
    assert [counters.run for counters in found.counters] == ["before", "cold"]


class Nvml(SimpleNamespace):
    """NVIDIA's library, whose counter goes up by 7 joules with each reading."""

    class NVMLError(Exception):
        pass

    millijoules = 0

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        assert handle == "GPU-x"
        Nvml.millijoules += 7000
        return Nvml.millijoules

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.65.06"


def test_energy_is_read_where_there_is_a_counter(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(__spec__=SimpleNamespace()))
    monkeypatch.setattr(torchrun, "LEAST_SECONDS", 0.01)
    found = recorded(card, tmp_path / "r.jsonl")
    assert found.header.device.driver == "580.65.06"
    assert found.energy is not None and found.energy.runs >= 1
    assert found.energy.joules_per_run == pytest.approx(7 / found.energy.runs)
    assert "counter" in found.energy.sampling


def test_without_the_package_there_is_no_energy() -> None:
    if machine._library() is not None:
        pytest.skip("there is a GPU")
    assert machine.energy_counter("cuda") is None and machine.driver_version() == ""
    assert machine.cuda_device("cuda").name == "NVIDIA GPU"


class Looped(nn.Module):
    """Asks the card for memory as it runs; what runs in it runs on the processor."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self.card = card
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        self.card.block("alloc", 1, 64)
        y = torch.relu(y)
        self.card.block("free_completed", 1, 64)
        return y


@pytest.mark.slow
def test_steps_on_a_gpu_have_its_counters_its_history_and_times_of_events(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is one of a script's: two optimizers' steps before the recorded one, timed ones after."""
    from irscope.measure.record.request import Loop
    from irscope.measure.record.torchsteps import StepRecorder
    from irscope.recording import Header
    from irscope.recording.records import DeviceRecord

    monkeypatch.setattr(torchsteps, "energy_counter", lambda device: None)
    request = Request(
        ModelRecord("m", "program"), Options(device="cuda", repeats=2, warmup=1), str(tmp_path / "r.jsonl"), loop=Loop("x.py")
    )
    sink = Sink(request.target)
    header = Header("torch-cuda", ModelRecord("m"), DeviceRecord("cuda", "a card"), settings={"step": True})
    recorder = StepRecorder(request, sink, begin=lambda: sink.begin(header))
    model = Looped(card)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recorder.following():
        while not recorder.done:
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    recording = read_recording(request.target)
    assert recording.complete and [counter.run for counter in recording.counters] == ["before", "warm"]
    assert [event.bytes for event in recording.run("warm")] == [64, -64]
    # 1000 bytes are on the card, and no tensor that Python knows of holds them.
    assert [(holding.bytes, holding.category) for holding in recording.held] == [(1000, "workspace")]
    timed = [op for op in recording.ops if op.op in ("aten::addmm", "aten::relu", "aten::mm")]
    assert len(timed) == 3 and all(op.time is not None and op.time.n == 2 for op in timed)
    assert recording.times("plain") is not None and {op.phase for op in recording.ops} >= {"forward", "backward", "optimizer"}
