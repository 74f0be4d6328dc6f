"""Reports of devices with their figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from irscope.devices.profile import DeviceProfile, Figure
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

DENSE = "rates are dense peaks (no structured sparsity), a multiply-add is 2 FLOPs; ridge = f16 or bf16 rate / bandwidth"


def devices_report(devices: Sequence[DeviceProfile]) -> Report:
    """Return one row a device."""
    table = Table.of(
        [
            (
                device.name,
                device.title,
                device.kind,
                device.memory_bytes,
                _top(device.bandwidth),
                _top(device.matrix.get("f32")),
                _top(device.matrix.get("bf16") or device.matrix.get("f16")),
                device.ridge("bf16") or device.ridge("f16"),
                _top(device.power),
            )
            for device in devices
        ],
        columns=[
            "device:text",
            "title:text",
            "kind:text",
            "memory:bytes",
            "bandwidth:bytes_per_second",
            "f32:flops_per_second",
            Column("half", Kind.FLOPS_PER_SECOND, "bf16 or f16"),
            "ridge:number",
            Column("watts", Kind.NUMBER, "W"),
        ],
        title="devices",
    )
    return Report("devices", summary={"device_count": len(devices)}, tables=(table,), notes=(DENSE,))


def device_report(device: DeviceProfile) -> Report:
    """Return every figure of a device with its source."""
    provenance = Provenance.MEASURED if device.calibrated else Provenance.EXACT
    low, high = (Column(key, Kind.NUMBER, provenance=provenance) for key in ("low", "high"))
    facts = Table.of(_figures(device), ["figure:text", low, high, "unit:text", "source:text", "date:text"], title="figures")
    capability = ".".join(map(str, device.capability)) if device.capability else ""
    return Report(
        "devices",
        options=device.name,
        summary={
            "name": device.name,
            "title": device.title,
            "kind": device.kind,
            "vendor": device.vendor,
            "released": device.released,
            "compute_capability": capability,
            "also_called": ", ".join(device.aliases),
            "ridge": {dtype: device.ridge(dtype) for dtype in device.matrix},
        },
        units={"ridge": Kind.NUMBER},
        tables=(facts,),
        notes=(DENSE, *device.notes),
    )


def _figures(device: DeviceProfile) -> Iterator[tuple[object, ...]]:
    whole = {
        "multiprocessors": (device.multiprocessors, ""),
        "threads_per_multiprocessor": (device.threads_per_multiprocessor, ""),
        "l2_cache": (device.l2_cache_bytes, "bytes"),
        "memory": (device.memory_bytes, "bytes"),
    }
    for name, (value, unit) in whole.items():
        if value is not None:
            yield name.replace("_", " "), value, value, unit, *_source(device, name)
    if device.context_bytes is not None:
        yield "context", *device.context_bytes, "bytes", *_source(device, "context")
    for name, figures, unit, scale in _groups(device):
        for key, figure in figures.items():
            yield f"{name} {key}".strip(), *_ends(figure, scale), unit, figure.source, figure.date
    for level in device.levels:
        size = "" if level.size is None else f", up to {level.size:,} bytes"
        yield f"bandwidth of {level.name}{size}", *_ends(level.bandwidth, 1e9), "GB/s", level.bandwidth.source, level.bandwidth.date


def _groups(device: DeviceProfile) -> Iterator[tuple[str, Mapping[str, Figure], str, float]]:
    yield "matrix product", device.matrix, "TFLOP/s", 1e12
    for kind, rates in device.kernels.items():
        yield kind, rates, "TFLOP/s", 1e12
    for kind, rates in device.sessions.items():
        yield f"ORT {kind.replace('_', ' ')}", rates, "TFLOP/s", 1e12
    yield "ORT", device.session_elements, "Gelement/s", 1e9
    yield "other arithmetic", device.vector, "TFLOP/s", 1e12
    single = {
        "clock of these rates": (device.clock, "MHz", 1e6),
        "highest clock": (device.max_clock, "MHz", 1e6),
        "bandwidth": (device.bandwidth, "GB/s", 1e9),
        "kernel launch": (device.launch, "us", 1e-6),
        "power": (device.power, "W", 1.0),
        "idle power": (device.idle_power, "W", 1.0),
    }
    for name, (figure, unit, scale) in single.items():
        if figure is not None:
            yield name, {"": figure}, unit, scale
    yield "one call:", device.overheads, "us", 1e-6


def _source(device: DeviceProfile, field: str) -> tuple[str, str]:
    source, _, date = device.sources.get(field, "").rpartition(", ")
    return source, date


def _ends(figure: Figure, scale: float) -> tuple[float, float]:
    """Return the figure's interval in a unit; a single number has it twice."""
    low, high = (float(f"{value / scale:.5g}") for value in (figure.lo, figure.hi))
    return low, high


def _top(figure: Figure | None) -> float | None:
    return None if figure is None else figure.hi
