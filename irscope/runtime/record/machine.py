"""Which machine, device and versions a recording is of."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time

from irscope import __version__
from irscope.recording.records import DeviceRecord, Header, Setting
from irscope.runtime.calibrate.machine import memory_bytes, processor_name
from irscope.runtime.record.request import Request


def header(request: Request, device: DeviceRecord, versions: dict[str, str], settings: dict[str, Setting]) -> Header:
    """The first line of a recording."""
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
    """The processor as a device."""
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
