"""NVIDIA's management tools of the simulated device: `nvidia-smi` on PATH and pynvml answer for it, not for the machine."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from irscope import processes
from irscope.files import TemporaryFolder
from irscope.frontends.eager.pretend import current
from irscope.frontends.simulation import smi
from irscope.frontends.simulation.cuda import Device
from irscope.frontends.simulation.imports import ChangedImports
from irscope.frontends.simulation.machine import Machine

_DRIVER: Final = "580.95.05"
_CUDA: Final = "13.0"
"""A driver of CUDA 13, with which the wheels of torch 2.9 to 2.15 run."""
_STARTS: Final = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
_asked: list[Callable[[], None]] = []
"""Hooks that run before this process starts another one."""


class Management:
    """Answers for the devices of this machine, of which one is played."""

    def __init__(self, machine: Machine, device: Device) -> None:
        self._machine, self._device = machine, device

    def install(self) -> None:
        """Answer in pynvml, once the program imports it."""
        ChangedImports({"pynvml": self._change}).install()

    @contextlib.contextmanager
    def on_path(self) -> Iterator[None]:
        """Put `nvidia-smi` on PATH within the context."""
        before = os.environ.get("PATH")
        with TemporaryFolder() as folder:
            state, command = Path(folder, "state.json"), Path(folder, "nvidia-smi")
            run = shlex.join(processes.python(["-S", "-E", smi.__file__, str(state)]))
            command.write_text(f'#!/bin/sh\nexec {run} "$@"\n', "utf-8")
            command.chmod(0o700)
            self._write(state)
            _install_hook()
            _asked.append(lambda: self._write(state))
            os.environ["PATH"] = os.pathsep.join([folder, *filter(None, [before])])
            try:
                yield
            finally:
                _asked.clear()
                if before is None:
                    os.environ.pop("PATH", None)
                else:
                    os.environ["PATH"] = before

    def _write(self, state: Path) -> None:
        """Note what the devices are and hold."""
        state.write_text(json.dumps(self._state()), "utf-8")

    def _state(self) -> dict[str, Any]:
        device = self._device
        return {
            "count": device.c_getDeviceCount(),
            "played": current.device,
            "name": device.properties.name,
            "total": self._machine.total,
            "used": self._used,
            "driver": _DRIVER,
            "cuda": _CUDA,
            "capability": device.capability,
            "pid": os.getpid(),
            "command": " ".join(sys.argv[:1]),
        }

    @property
    def _used(self) -> int:
        """Bytes of a device that are not free; others hold what the one that is played does."""
        machine = self._machine
        return machine.total - machine.settled_gpu.device_free if machine.settled_gpu.counters().reserved else 0

    def _change(self, module: Any) -> None:
        """Answer what programs ask of pynvml; what it asks besides is not supported by the device."""
        refusal = getattr(module, "NVMLError", RuntimeError)
        unsupported = getattr(module, "NVML_ERROR_NOT_SUPPORTED", 3)

        def refuse(*_: Any, **__: Any) -> Any:
            raise refusal(unsupported)

        for name in [name for name in vars(module) if name.startswith("nvml") and callable(getattr(module, name))]:
            setattr(module, name, refuse)
        for name, made in self._answers().items():
            setattr(module, name, made)

    def _answers(self) -> dict[str, Callable[..., Any]]:
        """Functions by name; a handle is the device's number."""

        def memory(handle: int, version: Any = None) -> Any:
            found = self._state()
            return SimpleNamespace(total=found["total"], used=found["used"], free=found["total"] - found["used"], reserved=0)

        def processes(handle: int) -> list[Any]:
            found = self._state()
            return [SimpleNamespace(pid=found["pid"], usedGpuMemory=found["used"])] if handle == found["played"] and found["used"] else []

        figures = self._machine.target.device
        power, clock = figures.power, figures.max_clock or figures.clock
        measured: dict[str, Callable[..., Any]] = {}
        if power is not None:  # at full load: the device's limit, and the milliwatts that it draws as far as anybody knows
            limits = ("PowerUsage", "EnforcedPowerLimit", "PowerManagementLimit", "PowerManagementDefaultLimit")
            measured |= {f"nvmlDeviceGet{name}": lambda handle: round(power.hi * 1000) for name in limits}
        if clock is not None:
            measured |= {f"nvmlDeviceGet{name}": lambda handle, kind: round(clock.hi / 1e6) for name in ("ClockInfo", "MaxClockInfo")}

        def by_uuid(text: Any) -> int:
            name = text.decode() if isinstance(text, bytes) else str(text)
            return next(index for index in range(self._state()["count"]) if smi.uuid(index) == name)

        return measured | {
            "nvmlInit": _nothing,
            "nvmlInitWithFlags": _nothing,
            "nvmlShutdown": _nothing,
            "nvmlSystemGetDriverVersion": lambda: _DRIVER,
            "nvmlSystemGetNVMLVersion": lambda: f"13.{_DRIVER}",
            "nvmlSystemGetCudaDriverVersion": lambda: int(float(_CUDA) * 1000),
            "nvmlSystemGetCudaDriverVersion_v2": lambda: int(float(_CUDA) * 1000),
            "nvmlDeviceGetCount": lambda: self._state()["count"],
            "nvmlDeviceGetHandleByIndex": int,
            "nvmlDeviceGetHandleByUUID": by_uuid,
            "nvmlDeviceGetIndex": int,
            "nvmlDeviceGetName": lambda handle: self._state()["name"],
            "nvmlDeviceGetUUID": smi.uuid,
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=0, memory=0),
            "nvmlDeviceGetTemperature": lambda handle, sensor: 0,
            "nvmlDeviceGetCudaComputeCapability": lambda handle: self._state()["capability"],
            "nvmlDeviceGetComputeRunningProcesses": processes,
            "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
            "nvmlDeviceGetPersistenceMode": lambda handle: 1,
            "nvmlDeviceGetMigMode": lambda handle: [0, 0],
        }


@functools.cache
def _install_hook() -> None:
    """Do what is asked before this process starts another one; a hook cannot be taken back."""
    sys.addaudithook(_hook)


def _nothing(*_: Any) -> None:
    """Do nothing, as for functions that only begin or end."""


def _hook(event: str, _: Any) -> None:
    if event in _STARTS:
        for one in _asked:
            one()
