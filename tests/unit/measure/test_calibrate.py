"""A calibration finds the rates that a machine has, keeps within its time, and is used from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from irscope.cli import calibrate
from irscope.cli.main import main
from irscope.devices.catalogue import calibration_file, find_device
from irscope.devices.profile import KERNELS, SESSION_CALL, SESSION_ELEMENTS, SESSION_OPERATOR
from irscope.errors import UsageError
from irscope.files import config_folder
from irscope.measure.calibrate.engine import STREAM_SIZES, Measurement, NumpyCpu, Sample, Work, measure, measure_sessions, record_of, save
from irscope.measure.machine import memory_bytes, processor_name, vector_bits


class FakeMachine:
    """A machine of known rates with its own clock: every seventh piece of work is disturbed and takes three times as long."""

    title = "A machine that is not there"
    kind = "cpu"
    memory_bytes = 8 << 30
    element_types = ("f32", "bf16", "f16")
    RATES: ClassVar = {"f32": 100e9, "bf16": 400e9}
    CACHE, CACHE_RATE, MEMORY_RATE = 4 << 20, 200e9, 20e9

    def __init__(self) -> None:
        self.now = 0.0
        self._pieces: dict[Work, float] = {}
        self._done = 0

    def clock(self) -> float:
        return self.now

    def piece(self, amount: float, rate: float) -> Sample:
        work = object.__new__(type("Work", (), {"__call__": lambda self: None}))
        self._pieces[work] = amount / rate
        return Sample(work, amount)

    def product(self, dtype: str, size: int) -> Sample | None:
        if dtype not in self.RATES:
            return None
        # Small matrices do not reach the peak.
        return self.piece(2.0 * size**3, self.RATES[dtype] * min(1.0, size / 1024))

    def convolutions(self, kind: str, dtype: str) -> list[Sample]:
        slower = {"convolution": 2.0, "pointwise": 1.0, "depthwise": 0.25}[kind]
        return [self.piece(1e8, self.RATES[dtype] * slower * part) for part in (0.5, 1.0)] if dtype == "f32" else []

    def streams(self, size: int) -> list[Sample]:
        rate = self.CACHE_RATE if size <= self.CACHE else self.MEMORY_RATE
        return [self.piece(size, rate * part) for part in (0.8, 1.0, 0.6)]

    def functions(self, size: int) -> list[Sample]:
        return [self.piece(size / 4, 5e9)]

    def operators(self) -> dict[str, Work]:
        return {"operator": self.piece(1, 1e6).work, "view": self.piece(1, 4e6).work}

    def seconds(self, work: Work, times: int) -> float:
        self._done += 1
        taken = self._pieces[work] * times * (3.0 if self._done % 7 == 0 else 1.0)
        self.now += taken
        return taken


def calibrated(seconds: float = 6.0) -> tuple[FakeMachine, Measurement]:
    machine = FakeMachine()
    return machine, measure(machine, seconds, machine.clock)


def test_the_rates_of_a_machine_are_found() -> None:
    _, found = calibrated()
    assert {dtype: rate.best for dtype, rate in found.products.items()} == {"f32": pytest.approx(100e9), "bf16": pytest.approx(400e9)}
    kinds = {kind: rates["f32"].best for kind, rates in found.convolutions.items()}
    assert kinds == {"convolution": pytest.approx(200e9), "pointwise": pytest.approx(100e9), "depthwise": pytest.approx(25e9)}
    for size, rate in found.streams.items():
        assert rate.best == pytest.approx(200e9 if size <= FakeMachine.CACHE else 20e9)
    assert found.functions.best == pytest.approx(5e9)
    assert found.operators["view"].best == pytest.approx(4e6)
    assert all(rate.median <= rate.best for rate in found.streams.values())


@pytest.mark.parametrize("seconds", [1.0, 6.0, 8.0])
def test_it_keeps_within_its_time(seconds: float) -> None:
    machine, found = calibrated(seconds)
    assert found.seconds == machine.now <= seconds + 2


def test_the_record_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "settings"))
    with pytest.raises(UsageError, match="has not been measured") as caught:
        find_device("this")
    assert caught.value.code == "IRS422"
    machine, found = calibrated()
    path, profile = save(record_of(machine, found, "2026-11-21"))
    assert path == tmp_path / "settings" / "this.json"
    assert find_device("this") == find_device("host") == profile
    assert profile.calibrated and profile.matrix["f32"].hi == pytest.approx(100e9) and profile.matrix["f32"].date == "2026-11-21"
    assert [level.size for level in profile.levels] == sorted(STREAM_SIZES)[:-1]
    rates = [level.bandwidth.hi for level in profile.levels]
    assert rates == sorted(rates, reverse=True) and profile.bandwidth is not None and profile.bandwidth.hi == pytest.approx(20e9)
    assert profile.launch is not None and profile.launch.lo == pytest.approx(1e-6)
    assert profile.kernels["depthwise"]["f32"].hi == pytest.approx(25e9)
    with pytest.raises(UsageError):
        find_device("this-gpu")


def test_a_slower_small_set_never_beats_a_larger_one(tmp_path: Path) -> None:
    """Where noise makes a small set look slow, the rate of a larger one counts for it: a bound must not be too high."""

    class Noisy(FakeMachine):
        def streams(self, size: int) -> list[Sample]:
            return [self.piece(size, 1e9 if size == STREAM_SIZES[0] else 50e9)]

    machine = Noisy()
    _, profile = save(record_of(machine, measure(machine, 2.0, machine.clock), "2026"), tmp_path / "this.json")
    assert [level.bandwidth.hi for level in profile.levels] == pytest.approx([50e9] * len(profile.levels))


def test_the_command_measures_and_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    machine = FakeMachine()
    monkeypatch.setattr(calibrate, "engines", lambda threads, only: [machine])
    monkeypatch.setattr(calibrate, "measure", lambda engine, seconds: measure(engine, seconds, machine.clock))
    assert main(["calibrate"]) == 0
    captured = capsys.readouterr()
    assert "A machine that is not there" in captured.out and "= measured" in captured.out
    assert str(calibration_file("this")) in captured.err
    assert main(["devices", "this"]) == 0
    assert main(["calibrate", "-o", str(tmp_path / "x.json")]) == 2
    assert main(["calibrate", "--seconds", "0"]) == 2
    assert main(["calibrate", "--only", "cpu", "-o", str(tmp_path / "folder" / "x.json")]) == 0
    assert find_device(str(tmp_path / "folder" / "x.json")).title == machine.title


def test_settings_have_a_folder_on_every_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IRSCOPE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_folder() == tmp_path / "irscope"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert config_folder() == Path.home() / ".config" / "irscope"
    monkeypatch.setattr("sys.platform", "darwin")
    assert config_folder() == Path.home() / "Library" / "Application Support" / "irscope"


def test_the_machine_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n")
    assert processor_name(info) == "Some CPU @ 3 GHz"
    assert processor_name(tmp_path / "missing")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    info.write_text("flags\t\t: fpu fma avx2\nflags\t\t: fpu\n")
    assert [vector_bits(info), vector_bits(tmp_path / "missing")] == [256, None]
    assert memory_bytes() is None or memory_bytes() > 1 << 26  # type: ignore[operator]  # not None here


def test_numpy_measures_this_machine() -> None:
    found = measure(NumpyCpu(), 0.1)
    assert set(found.products) == {"f32", "f64"} and all(rate.best > 1e6 for rate in found.products.values())
    assert not any(found.convolutions.values()) and set(found.operators) == {"operator", "view"}


@pytest.mark.torch
def test_torch_measures_this_machine() -> None:
    pytest.importorskip("torch")
    from irscope.measure.calibrate.torchengine import TorchCpu

    engine = TorchCpu(1)
    assert "1 thread" in engine.title
    product, [*convolutions] = engine.product("f32", 32), engine.convolutions("depthwise", "f32")
    assert product is not None and product.amount == 2 * 32**3 and engine.seconds(product.work, 2) >= 0
    assert [sample.amount for sample in convolutions] == [
        2 * 9 * channels * side**2 for channels, side in ((32, 112), (144, 56), (576, 14))
    ]
    assert engine.product("f8", 32) is None and engine.convolutions("convolution", "i8") == []


@pytest.mark.torch
def test_the_path_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for CUDA, run on the processor with events that count: what is timed, and that TF32 is switched and put back."""
    torch = pytest.importorskip("torch")
    from irscope.measure.calibrate import torchengine

    class Event:
        clock = 0.0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.at = 0.0

        def record(self) -> None:
            Event.clock += 2.0
            self.at = Event.clock

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    seen: list[bool] = []
    real = torch.mm

    def mm(left: Any, right: Any) -> Any:
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        return real(left, right)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "mm", mm)
    engine = torchengine.TorchCuda()
    engine.device = "cpu"
    before = torch.backends.cuda.matmul.allow_tf32
    for dtype, allowed in (("tf32", True), ("f32", False)):
        sample = engine.product(dtype, 16)
        seen.clear()
        assert engine.seconds(sample.work, 3) == pytest.approx(0.002)
        assert seen == [allowed] * 3
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_a_missing_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="no NVIDIA GPU"):
        calibrate.engines(0, "gpu")
    assert isinstance(calibrate.engines(0, None)[0], NumpyCpu)
    with pytest.raises(UsageError, match="needs PyTorch"):
        calibrate.engines(2, None)


@pytest.mark.ort
def test_kernels_of_sessions_are_measured_and_kept(tmp_path: Path) -> None:
    from irscope.measure.calibrate.sessions import Sessions

    machine, rates = calibrated()
    measured = measure_sessions(Sessions(1), 0.0)
    _, profile = save(record_of(machine, rates, "2026", measured), tmp_path / "this.json")
    assert {kind: set(by_type) for kind, by_type in profile.sessions.items()} == {
        "product": {"f32", "u4", "u8i8", "u8u8", "i8i8"},
        **{key: {"f32", "u8i8", "u8u8", "i8i8"} for key in KERNELS},
        "plain_depthwise": {"f32"},
        **{key: {"u8i8", "u8u8", "i8i8"} for key in ("unfolded", "unfolded_depthwise")},
    }
    assert set(profile.session_elements) == set(SESSION_ELEMENTS)
    assert profile.overheads[SESSION_OPERATOR].lo < profile.overheads[SESSION_CALL].lo
