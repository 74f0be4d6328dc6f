"""The machine while it is recorded: what is read of files of the kernel, of a GPU's library, and what is not."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from irscope.measure import machine, monitor
from irscope.measure.monitor import Elsewhere, Linux, Monitor, Spent
from irscope.recording import Header, Machine, ModelRecord, Recording, Times
from irscope.recording.records import DeviceRecord
from irscope.tools.recorded import trust_lines, trust_of


class Played:
    """Counters as a test plays them."""

    def __init__(self, *spent: Spent) -> None:
        self.unread: dict[str, str] = {}
        self.cores: int | None = 2
        self.fastest: float | None = 3000.0
        self._spent = [*spent]

    def spent(self) -> Spent:
        return self._spent.pop(0) if len(self._spent) > 1 else self._spent[0]

    def state(self) -> dict[str, Any]:
        return {"mhz": 1500.0, "process_bytes": 7}


def test_shares_rates_and_joules_follow_from_counters() -> None:
    first = Spent(10.0, 100.0, 4.0, 0, 1000, 3, {"package 0": 50.0, "dram": 1.0})
    second = Spent(11.5, 102.0, 5.0, 0, 3000, 5, {"package 0": 58.0, "dram": 1.5})
    watched = Monitor("cpu", Played(first, second))
    watched.start()
    found = watched.stop()
    (sample,) = watched.take()
    assert (sample.cpu, sample.own, sample.throttle, sample.mhz) == (0.75, 0.5, "thermal", 1500.0)
    assert sample.watts is not None and sample.watts > 0 and sample.write_rate is not None and sample.write_rate > 0
    assert (found.others, found.slowed, found.throttled) == (0.25, 0.5, ("thermal",))
    assert found.joules == {"package 0": 8.0, "dram": 0.5}


def test_what_cannot_be_read_is_unknown_and_named(tmp_path: Path) -> None:
    found = Linux(tmp_path)
    assert found.spent().busy is None and found.spent().joules == {} and found.state()["celsius"] is None
    assert {"power of the processor", "temperature of the processor", "throttling of the processor"} <= found.unread.keys()


def test_files_of_the_kernel_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_allowed", lambda: frozenset({0}))
    me = os.getpid()
    texts = {
        "proc/stat": "cpu  9 9 9 9\ncpu0 100 0 50 800 10 0 0 40 0 0\ncpu1 9 9 9 9 9 9 9 9 0 0\n",
        f"proc/{me}/stat": f"{me} (a (strange) name) S 1 1 1 0 -1 0 0 0 0 0 30 20 5 5 0 0\n",
        "proc/self/io": "rchar: 1\nread_bytes: 4096\nwrite_bytes: 512\n",
        "proc/self/statm": "100 50 3\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "2500000\n",
        "sys/class/powercap/intel-rapl:0/name": "package-0\n",
        "sys/class/thermal/thermal_zone0/temp": "61500\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3600000\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = Linux(tmp_path)
    spent, tick = found.spent(), monitor._TICK
    assert (spent.busy, spent.passed, spent.own) == (190 * tick, 1000 * tick, 60 * tick)
    assert (spent.read, spent.written, spent.throttles, spent.joules) == (4096, 512, 4, {"package 0": 2.5})
    state = found.state()
    assert (state["mhz"], state["celsius"], state["host_bytes"]) == (1800.0, 61.5, 600 << 10)
    assert found.fastest == 3600.0 and not found.unread


def test_a_gpu_is_asked_and_may_disappear(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def lost(_: object) -> int:
        raise NVMLError("GPU is lost")

    def unsupported(_: object) -> int:
        raise NVMLError("Not Supported")

    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=80),
        nvmlDeviceGetPowerUsage=lambda _: 300_000,
        nvmlDeviceGetTotalEnergyConsumption=unsupported,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 4,
        nvmlDeviceGetClockInfo=lambda _, kind: 1700,
        nvmlDeviceGetTemperature=lambda _, kind: 70,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=5),
    )
    monkeypatch.setattr(machine, "nvml_handle", lambda device: (library, "card"))
    monkeypatch.setattr(monitor, "nvml_handle", lambda device: (library, "card"))
    watched = Monitor("cuda:0", Played(Spent()))
    watched.start()
    watched._sample()
    library.nvmlDeviceGetUtilizationRates = lost
    found = watched.stop()
    first = watched.take()[0]
    assert (first.gpu, first.gpu_mhz, first.gpu_watts, first.gpu_bytes, first.throttle) == (0.8, 1700.0, 300.0, 5, "power cap")
    assert found.throttled == ("power cap",) and found.others is None
    assert found.unread == {"energy of the GPU": "Not Supported", "GPU": "it could not be asked any longer: NVMLError: GPU is lost"}


def test_without_a_proc_and_psutil_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor.importlib.util, "find_spec", lambda name: None)
    found = Elsewhere()
    assert found.spent() == Spent() and found.state() == {} and "psutil is not installed" in found.unread["the machine"]


def recorded(machine: Machine | None) -> Recording:
    return Recording(Header("torch-cpu", ModelRecord("m"), DeviceRecord("cpu", "a processor")), machine=machine)


def test_a_busy_or_throttled_machine_widens_times() -> None:
    times = Times(5, 80.0, 100.0, 120.0)
    idle = recorded(Machine(2, 0.02, 0.98))
    assert trust_of(idle).seconds(times).interval == (80e-6, 120e-6) and "free" in trust_lines(idle)[0]
    busy = recorded(Machine(2, 0.5, 0.5, ("thermal",)))
    (said,) = trust_lines(busy)
    assert "busy and throttled machine" in said and "4.0 times too long" in said
    assert trust_of(busy).seconds(times).interval == (20e-6, 120e-6)
    # Nobody looked, or nothing could be read: that is no idle machine.
    assert trust_lines(recorded(None)) == [] and "not known" in trust_lines(recorded(Machine(2)))[0]
