"""NVIDIA's management library, where its package is installed: the device's name, the driver, and energy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from irscope.recording.records import DeviceRecord

SAMPLING = "NVML's counter of the whole board, read before and after all runs; it advances about every 100 ms"
LEAST_SECONDS = 1.5
"""The counter's steps disappear in so many seconds."""


def cuda_device(device: str) -> DeviceRecord:
    """A GPU by what NVML says, where PyTorch is not there to ask."""
    handle = _handle(_number(device), "")
    if handle is None:
        return DeviceRecord("cuda", "NVIDIA GPU")
    nvml, found = handle
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(found)
    memory = int(nvml.nvmlDeviceGetMemoryInfo(found).total)
    return DeviceRecord("cuda", _text(nvml.nvmlDeviceGetName(found)), memory, None, f"{major}.{minor}", driver_version())


def driver_version() -> str:
    """Version of NVIDIA's driver; empty where nothing tells it."""
    nvml = _library()
    return _text(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else ""


def energy_counter(device: str, uuid: str = "") -> Callable[[], float] | None:
    """A reader of the joules that a GPU has used since its driver was loaded; None where it has no such counter."""
    handle = _handle(_number(device), uuid)
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


def _number(device: str) -> int:
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
    """The package pynvml, ready to be asked; None where it or the driver is missing."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
