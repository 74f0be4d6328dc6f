"""A calibration as a device file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from irscope.devices.catalogue import calibration_file
from irscope.devices.profile import DeviceProfile
from irscope.devices.record import parse_profile
from irscope.files import as_output_error, write_text
from irscope.runtime.calibrate.engine import Engine
from irscope.runtime.calibrate.measure import Measurement, Rate

_HOW = "irscope calibrate on this machine: lo is the median, hi the best that was seen"


def record_of(engine: Engine, found: Measurement, date: str) -> dict[str, object]:
    """The device file's content."""
    best = _falling(found.streams)
    record: dict[str, object] = {
        "name": "this" if engine.kind == "cpu" else "this-gpu",
        "title": engine.title,
        "kind": engine.kind,
        "calibrated": True,
        "sources": {"here": {"text": _HOW, "date": date}},
        "matrix": {dtype: _figure(rate, 1e9, "GFLOP/s") for dtype, rate in found.products.items()},
        "kernels": {
            kind: {dtype: _figure(rate, 1e9, "GFLOP/s") for dtype, rate in rates.items()} for kind, rates in found.convolutions.items()
        },
        # A processor's vector rate is at most that of its matrix products.
        "vector": {dtype: _figure(rate, 1e9, "GFLOP/s") for dtype, rate in found.products.items() if dtype in ("f32", "f64")},
        "functions": _figure(found.functions, 1e9, "Gelement/s"),
        "bandwidth": _figure(best[max(best)], 1e9, "GB/s"),
        "levels": [
            {"name": "working set", "size": {"value": size, "unit": "B", "source": "here"}, "bandwidth": _figure(rate, 1e9, "GB/s")}
            for size, rate in best.items()
            if size != max(best)
        ],
        "overheads": {name: _time(rate) for name, rate in found.operators.items()},
    }
    if "operator" in found.operators:
        record["launch"] = _time(found.operators["operator"])
    if engine.memory_bytes:
        record["memory"] = {"value": engine.memory_bytes, "unit": "B", "source": "here"}
    return record


def save(record: Mapping[str, object], path: Path | None = None) -> tuple[Path, DeviceProfile]:
    """Write the record where `find_device` looks for it (or elsewhere), and read it back."""
    target = path or calibration_file(str(record["name"]))
    profile = parse_profile(dict(record), str(target))
    with as_output_error(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, [json.dumps(record, indent=2), "\n"])
    return target, profile


def _falling(streams: Mapping[int, Rate]) -> dict[int, Rate]:
    """Rates by working set, made monotonic: a smaller set is at least as fast as a larger one."""
    found: dict[int, Rate] = {}
    for size in sorted(streams, reverse=True):
        above = next(reversed(found.values()), None)
        rate = streams[size]
        if above is not None:
            rate = Rate(max(rate.best, above.best), max(rate.median, above.median))
        found[size] = rate
    return dict(reversed(found.items()))


def _figure(rate: Rate, scale: float, unit: str) -> dict[str, object]:
    return {"lo": _short(rate.median / scale), "hi": _short(rate.best / scale), "unit": unit, "source": "here"}


def _time(rate: Rate) -> dict[str, object]:
    """Seconds for one, from calls a second."""
    return {"lo": _short(1e9 / rate.best), "hi": _short(1e9 / rate.median), "unit": "ns", "source": "here"}


def _short(value: float) -> float:
    return float(f"{value:.5g}")
