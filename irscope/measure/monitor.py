"""The machine while something is recorded: use, clock, temperature, power and throttling, sampled at a low rate in a thread of its own.

On Linux all of the processor is read from /proc and /sys; elsewhere psutil is asked, where it is installed. A GPU is asked by NVIDIA's
management library. What cannot be read is named with the reason and never zero.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from irscope.immutable import immutable
from irscope.measure.machine import nvml_handle
from irscope.recording.records import Machine, Sample

INTERVAL: Final = 0.2
"""Seconds between two samples at first."""
_MOST: Final = 256
"""After so many samples the interval doubles, so that a long recording has some hundreds."""
_TICK: Final = 1 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_WRAPS: Final = 1 << 20
"""Microjoules by which a counter of RAPL may be behind what was read before without having wrapped."""
_JOINED: Final = 2.0


@immutable
class Spent:
    """Counters since the system began; None where they cannot be read."""

    busy: float | None = None
    """Seconds that the processors of this process were busy, and that passed on all of them."""
    passed: float | None = None
    own: float | None = None
    """Of those, seconds in this process and its children."""
    read: int | None = None
    written: int | None = None
    throttles: int | None = None
    joules: Mapping[str, float] = field(default_factory=dict)


class Source(Protocol):
    """Something that tells of the machine."""

    unread: dict[str, str]
    cores: int | None
    fastest: float | None

    def spent(self) -> Spent: ...

    def state(self) -> Mapping[str, Any]:
        """Fields of a sample that hold for a moment."""
        ...


class Monitor:
    """Samples the machine from `start` to `stop`; `take` gives the samples that have come."""

    def __init__(self, device: str = "cpu", source: Source | None = None, gpu: Callable[[], Mapping[str, Any]] | None = None) -> None:
        self.stage = ""
        self._source = source if source is not None else _source()
        self._unread: dict[str, str] = {}
        self._gpu = gpu if gpu is not None else _gpu_reader(device, self._unread)
        self._pending: list[Sample] = []
        self._seen: list[Sample] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._first = self._last = Spent()
        self._started = 0.0
        self._before = 0.0
        self._taken = 0
        self._joules: dict[str, float] = {}
        self._reasons: dict[str, None] = {}

    def start(self) -> None:
        """Begin."""
        self._first = self._last = self._source.spent()
        self._started = self._before = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="irscope-monitor", daemon=True)
        self._thread.start()

    def take(self) -> list[Sample]:
        """Samples since the last call."""
        with self._lock:
            samples, self._pending = self._pending, []
        return samples

    def stop(self) -> Machine:
        """End, and say what there was in all."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_JOINED)
        self._sample()
        return self._summary()

    def _run(self) -> None:
        interval = INTERVAL
        while not self._ended.wait(interval):
            self._sample()
            interval = INTERVAL * 2 ** (self._taken // _MOST)

    def _sample(self) -> None:
        with self._lock:
            now = time.perf_counter()
            spent, passed = self._source.spent(), now - self._before
            made = Sample(
                round((now - self._started) * 1e6, 1),
                self.stage,
                cpu=_share(self._last, spent, "busy"),
                own=_share(self._last, spent, "own"),
                watts=self._watts(spent, passed),
                read_rate=_per_second(self._last.read, spent.read, passed),
                write_rate=_per_second(self._last.written, spent.written, passed),
                throttle=self._throttle(spent),
            )
            made = replace(made, **self._state())
            if made.throttle:
                self._reasons.update(dict.fromkeys(made.throttle.split(", ")))
            self._last, self._before = spent, now
            self._taken += 1
            self._pending.append(made)
            self._seen.append(made)

    def _state(self) -> dict[str, Any]:
        found = dict(self._source.state())
        if self._gpu is not None:
            try:
                found |= self._gpu()
            except Exception as error:  # a device that disappears while it is recorded
                self._unread["GPU"] = f"it could not be asked any longer: {type(error).__name__}: {error}"[:200]
                self._gpu = None
        joules = found.pop("gpu_joules", None)
        if joules is not None:
            first = self._joules.setdefault("gpu began", joules)
            self._joules["gpu"] = joules - first
        return found

    def _watts(self, spent: Spent, passed: float) -> float | None:
        """Return the power of the package; a counter that wraps is left out for once."""
        total: float | None = None
        for name, joules in spent.joules.items():
            used = joules - self._last.joules.get(name, joules)
            if used < -_WRAPS / 1e6:
                continue
            self._joules[name] = self._joules.get(name, 0.0) + max(used, 0.0)
            if name.startswith("package"):
                total = (total or 0.0) + used
        return None if total is None or passed <= 0 else round(total / passed, 3)

    def _throttle(self, spent: Spent) -> str:
        before = self._last.throttles
        return "thermal" if before is not None and spent.throttles is not None and spent.throttles > before else ""

    def _summary(self) -> Machine:
        first, last, source = self._first, self._last, self._source
        others = None
        if None not in (first.busy, first.own, first.passed, last.busy, last.own, last.passed):
            assert first.busy is not None and first.own is not None and first.passed is not None
            assert last.busy is not None and last.own is not None and last.passed is not None
            passed = last.passed - first.passed
            others = max(0.0, (last.busy - first.busy) - (last.own - first.own)) / passed if passed > 0 else None
        return Machine(
            source.cores,
            None if others is None else round(min(others, 1.0), 4),
            self._slowed(),
            tuple(self._reasons),
            {name: round(joules, 6) for name, joules in self._joules.items() if name != "gpu began"},
            round(time.perf_counter() - self._started, 3),
            INTERVAL,
            {**source.unread, **self._unread},
        )

    def _slowed(self) -> float | None:
        """Return the median clock beside the fastest: of the GPU where that is recorded, else of the processor."""
        is_gpu = any(one.gpu_mhz is not None for one in self._seen)
        clocks = sorted(one for sample in self._seen if (one := sample.gpu_mhz if is_gpu else sample.mhz) is not None)
        fastest = max(clocks, default=None) if is_gpu else self._source.fastest
        return round(min(1.0, clocks[len(clocks) // 2] / fastest), 4) if clocks and fastest else None


def _share(before: Spent, now: Spent, name: str) -> float | None:
    was: float | None = getattr(before, name)
    is_now: float | None = getattr(now, name)
    if was is None or is_now is None or before.passed is None or now.passed is None or now.passed <= before.passed:
        return None
    return round(min(1.0, max(0.0, (is_now - was) / (now.passed - before.passed))), 4)


def _per_second(before: int | None, now: int | None, passed: float) -> float | None:
    return None if before is None or now is None or passed <= 0 else round(max(0, now - before) / passed, 1)


def _source() -> Source:
    if Path("/proc/stat").is_file():
        return Linux()
    return Elsewhere()


class Linux:
    """Everything that the kernel tells without privileges; RAPL's counters are often for root alone."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self.unread: dict[str, str] = {}
        self._cpus = _allowed()
        self.cores: int | None = len(self._cpus)
        self.fastest = self._fastest()
        self._rapl = self._counters()
        self._zones = self._thermometers()
        self._throttles = sorted(self._sys.glob("devices/system/cpu/cpu*/thermal_throttle/*_throttle_count"))
        if not self._throttles:
            self.unread["throttling of the processor"] = "the kernel has no counters of it, as in virtual machines"
        if self._clock() is None:
            self.unread["clock of the processor"] = "neither cpufreq nor /proc/cpuinfo has it"

    # -- counters ----------------------------------------------------------------------------------------------

    def spent(self) -> Spent:
        """Counters now."""
        busy, passed = self._busy()
        read, written = self._io()
        return Spent(busy, passed, self._own(), read, written, self._throttled(), self._joules())

    def _busy(self) -> tuple[float | None, float | None]:
        busy = passed = 0.0
        for line in _text(self._proc / "stat").splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in self._cpus:
                ticks = [int(number) for number in numbers[:8]]  # user nice system idle iowait irq softirq steal; guests are in user
                passed += sum(ticks)
                busy += sum(ticks) - ticks[3] - ticks[4]
        return (busy * _TICK, passed * _TICK) if passed else (None, None)

    def _own(self) -> float | None:
        total, pending, seen = 0.0, [os.getpid()], set[int]()
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            text = _text(self._proc / str(number) / "stat")
            if not text and number == os.getpid():
                return None
            fields = text.rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15]) if len(fields) > 14 else 0  # children that have ended too
            for children in (self._proc / str(number) / "task").glob("*/children"):
                pending += [int(part) for part in _text(children).split()]
        return total * _TICK

    def _io(self) -> tuple[int | None, int | None]:
        found = dict(line.split(": ") for line in _text(self._proc / "self" / "io").splitlines() if ": " in line)
        if "read_bytes" not in found:
            self.unread.setdefault("disk input and output", "/proc/self/io cannot be read")
            return None, None
        return int(found["read_bytes"]), int(found["write_bytes"])

    def _throttled(self) -> int | None:
        numbers = [_number(throttle) for throttle in self._throttles]
        return sum(number for number in numbers if number is not None) if self._throttles else None

    def _joules(self) -> dict[str, float]:
        return {name: value / 1e6 for name, path in self._rapl.items() if (value := _number(path)) is not None}

    def _counters(self) -> dict[str, Path]:
        counters: dict[str, Path] = {}
        zones = sorted(self._sys.glob("class/powercap/intel-rapl:*"))
        for zone in zones:
            counter, name = zone / "energy_uj", _text(zone / "name").strip() or zone.name
            if _number(counter) is not None:
                counters[f"{name}-{zone.name.partition(':')[2]}" if name in counters else name.replace("package-", "package ")] = counter
        if not counters:
            why = "RAPL's counters are there, but only root may read them" if zones else "there are no counters (RAPL)"
            self.unread["power of the processor"] = why
        return counters

    # -- a moment ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Clock, temperature and memory now."""
        degrees = [value / 1000 for zone in self._zones if (value := _number(zone)) is not None]
        return {
            "mhz": self._clock(),
            "celsius": max(degrees, default=None),
            "host_bytes": self._in_use(),
            "process_bytes": self._resident(),
        }

    def _clock(self) -> float | None:
        speeds = [
            speed / 1000
            for cpu in self._cpus
            if (speed := _number(self._sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")) is not None
        ]
        if not speeds:
            lines = _text(self._proc / "cpuinfo").splitlines()
            told = [line.partition(":")[2] for line in lines if line.startswith("cpu MHz")]
            speeds = [float(one) for one in told if one.strip().replace(".", "", 1).isdecimal()]
        return round(sum(speeds) / len(speeds), 1) if speeds else None

    def _fastest(self) -> float | None:
        """Return the most that the governor allows at all; without cpufreq nobody tells."""
        speeds = [_number(self._sys / f"devices/system/cpu/cpu{cpu}/cpufreq/base_frequency") for cpu in self._cpus]
        speeds = [speed for speed in speeds if speed] or [
            _number(self._sys / f"devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in self._cpus
        ]
        known = [speed for speed in speeds if speed]
        return max(known) / 1000 if known else None

    def _thermometers(self) -> list[Path]:
        zones = [zone / "temp" for zone in sorted(self._sys.glob("class/thermal/thermal_zone*"))]
        zones += sorted(self._sys.glob("class/hwmon/hwmon*/temp1_input"))
        found = [zone for zone in zones if _number(zone) is not None]
        if not found:
            self.unread["temperature of the processor"] = "the kernel shows no sensor"
        return found

    def _in_use(self) -> int | None:
        found = {line.partition(":")[0]: line.partition(":")[2].split() for line in _text(self._proc / "meminfo").splitlines()}
        if "MemTotal" not in found or "MemAvailable" not in found:
            return None
        return (int(found["MemTotal"][0]) - int(found["MemAvailable"][0])) << 10

    def _resident(self) -> int | None:
        fields = _text(self._proc / "self" / "statm").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


RAPL: Final = "RAPL's counters of the processor's packages, read before and after all runs; whatever else ran is in it"


def processor_energy() -> Callable[[], float] | None:
    """Return a reader of the joules that the processor's packages have used; None where they may not be read."""
    if not Path("/sys/class/powercap").is_dir():
        return None
    source = Linux()

    def read() -> float:
        return sum(joules for name, joules in source.spent().joules.items() if name.startswith("package"))

    return read if any(name.startswith("package") for name in source.spent().joules) else None


def _allowed() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:
        return frozenset(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdecimal() else None


class Elsewhere:
    """Readings of psutil; none where it is not installed."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {"power of the processor": "it is read on Linux only", "throttling of the processor": "the same"}
        self.cores: int | None = os.cpu_count()
        self.fastest: float | None = None
        self._psutil: Any = None
        if importlib.util.find_spec("psutil") is None:
            self.unread["the machine"] = "psutil is not installed (pip install psutil)"
            return
        import psutil  # type: ignore[import-untyped,unused-ignore]  # has no types of its own

        self._psutil = psutil
        self._process = psutil.Process()
        speed = psutil.cpu_freq()
        self.fastest = speed.max or None if speed is not None else None

    def spent(self) -> Spent:
        """Counters now."""
        if self._psutil is None:
            return Spent()
        times = self._psutil.cpu_times()
        passed = sum(times)
        mine = [self._process, *self._process.children(recursive=True)]
        own = sum(sum(one.cpu_times()[:2]) for one in mine)
        return Spent(passed - times.idle - getattr(times, "iowait", 0.0), passed, own)

    def state(self) -> dict[str, Any]:
        """Clock and memory now."""
        if self._psutil is None:
            return {}
        memory, speed = self._psutil.virtual_memory(), self._psutil.cpu_freq()
        return {
            "mhz": speed.current if speed is not None else None,
            "host_bytes": int(memory.total - memory.available),
            "process_bytes": int(self._process.memory_info().rss),
        }


# A GPU, by NVIDIA's management library.

_REASONS: Final = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "thermal",
    "HwThermalSlowdown": "thermal",
    "HwPowerBrakeSlowdown": "power brake",
    "SyncBoost": "clock of another GPU",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons, but those of an idle card and of clocks that a user set."""


def _gpu_reader(device: str, unread: dict[str, str]) -> Callable[[], Mapping[str, Any]] | None:
    if not device.startswith("cuda"):
        return None
    handle = nvml_handle(device)
    if handle is None:
        unread["GPU"] = "NVIDIA's management library is not there (pip install nvidia-ml-py)"
        return None
    nvml, found = handle

    def asked(name: str, ask: Callable[[], Any]) -> Any:
        """None, with the reason, where this card does not tell; an error where the card is gone."""
        try:
            return ask()
        except nvml.NVMLError as error:
            if "lost" in str(error).lower():
                raise
            unread.setdefault(f"{name} of the GPU", str(error))
            return None

    def read() -> Mapping[str, Any]:
        use = asked("use", lambda: nvml.nvmlDeviceGetUtilizationRates(found).gpu / 100)
        watts = asked("power", lambda: nvml.nvmlDeviceGetPowerUsage(found) / 1e3)
        joules = asked("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(found) / 1e3)
        bits = asked("throttling", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(found)) or 0
        why = [text for name, text in _REASONS.items() if bits & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)]
        state: dict[str, Any] = {
            "gpu": use,
            "gpu_mhz": asked("clock", lambda: float(nvml.nvmlDeviceGetClockInfo(found, nvml.NVML_CLOCK_SM))),
            "gpu_celsius": asked("temperature", lambda: float(nvml.nvmlDeviceGetTemperature(found, nvml.NVML_TEMPERATURE_GPU))),
            "gpu_watts": watts,
            "gpu_bytes": asked("memory", lambda: int(nvml.nvmlDeviceGetMemoryInfo(found).used)),
            "gpu_joules": joules,
        }
        return {**state, "throttle": ", ".join(dict.fromkeys(why))} if why else state

    return read
