"""Machine, device and versions of a measurement: the processor, NVIDIA's management library, and the header of a recording."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from irscope._version import __version__
from irscope.measure.record.request import Request
from irscope.recording.records import DeviceRecord, Header, Setting


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as the system gives it."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def vector_bits(cpuinfo: Path = Path("/proc/cpuinfo")) -> int | None:
    """Return the bits of a vector register that kernels are chosen by; None where the system does not say."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return 128
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set[str]())
    return 512 if "avx512f" in flags else 256 if {"avx2", "fma"} <= flags else 128 if flags else None


def memory_bytes() -> int | None:
    """Main memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


# NVIDIA's management library, where its package is installed: the device's name, the driver, and energy.

NAMELESS_GPU = "NVIDIA GPU"
"""Name of a GPU whose own name is unknown."""
SAMPLING = "NVML's counter of the whole board, read before and after all runs; it advances about every 100 ms"
LEAST_SECONDS = 1.5
"""The counter's steps disappear in so many seconds."""


def cuda_device(device: str) -> DeviceRecord:
    """Return a GPU by what NVML says, where PyTorch is not there to ask."""
    handle = nvml_handle(device)
    if handle is None:
        return DeviceRecord("cuda", NAMELESS_GPU)
    nvml, found = handle
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(found)
    memory = int(nvml.nvmlDeviceGetMemoryInfo(found).total)
    return DeviceRecord("cuda", _decoded(nvml.nvmlDeviceGetName(found)), memory, None, f"{major}.{minor}", driver_version())


def driver_version() -> str:
    """Version of NVIDIA's driver; empty where nothing tells it."""
    nvml = _library()
    return _decoded(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else ""


def energy_counter(device: str, uuid: str = "") -> Callable[[], float] | None:
    """Return a reader of the joules that a GPU has used since its driver was loaded; None where it has no such counter."""
    handle = _handle(_device_index(device), uuid)
    if handle is None:
        return None
    nvml, found = handle

    def read() -> float:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(found)) / 1e3

    try:
        read()
    except nvml.NVMLError:
        return None
    return read


def nvml_handle(device: str) -> tuple[Any, Any] | None:
    """Return the library and its handle of a GPU such as cuda:1; None where it or its driver is missing."""
    return _handle(_device_index(device), "")


def _device_index(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _handle(number: int, uuid: str) -> tuple[Any, Any] | None:
    nvml = _library()
    if nvml is None:
        return None
    try:
        if uuid:
            return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        return nvml, nvml.nvmlDeviceGetHandleByIndex(number)
    except nvml.NVMLError:
        return None


def _library() -> Any:
    """Return the package pynvml, ready to be asked; None where it or the driver is missing."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _decoded(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# Which machine, device and versions a recording is of.


def header(request: Request, device: DeviceRecord, versions: dict[str, str], settings: dict[str, Setting]) -> Header:
    """Return the first line of a recording."""
    options = request.options
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    base = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    return Header(
        request.executor,
        request.model,
        device,
        f"irscope {__version__}",
        created,
        {**base, **versions},
        settings,
        options.warmup,
        options.repeats,
    )


def processor(threads: int) -> DeviceRecord:
    """Return the processor as a device."""
    return DeviceRecord("cpu", processor_name(), memory_bytes(), threads)


def distribution(*names: str) -> str:
    """Version of the first of these that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def environment(*names: str) -> dict[str, Setting]:
    """Variables that change what is recorded, where they are set."""
    return {name: os.environ[name] for name in names if name in os.environ}
