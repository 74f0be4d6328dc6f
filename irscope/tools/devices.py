"""Reports of devices with their figures, and device files from recordings: rules for workspaces, and how much longer real runs take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from irscope.devices.catalogue import device_record, find_device
from irscope.devices.profile import DeviceProfile, Figure
from irscope.errors import IrscopeError, UsageError
from irscope.files import is_recording
from irscope.frontends.base import LoadOptions
from irscope.ir.spelling import parse_type
from irscope.measure.calibrate.recordings import (
    Convolution,
    Errors,
    FittedRule,
    Run,
    Slowdown,
    convolutions_of,
    fit_rules,
    fit_slowdown,
    is_gpu_folder,
    kept_out_models,
    read_gpu_folder,
)
from irscope.passes.cost.roofline import Roofline
from irscope.recording import read_recording
from irscope.recording.records import Recording
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance
from irscope.session import open_model

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
    yield "one call of an", device.overheads, "us", 1e-6


def _source(device: DeviceProfile, field: str) -> tuple[str, str]:
    source, _, date = device.sources.get(field, "").rpartition(", ")
    return source, date


def _ends(figure: Figure, scale: float) -> tuple[float, float]:
    """Return the figure's interval in a unit; a single number has it twice."""
    low, high = (float(f"{value / scale:.5g}") for value in (figure.lo, figure.hi))
    return low, high


def _top(figure: Figure | None) -> float | None:
    return None if figure is None else figure.hi


# ----------------------------------------------------------------------------------------------------
# A device file from recordings.

_KINDS = {"cpu": "cpu", "gpu": "cuda"}


@dataclass
class Material:
    """Contents of the recordings."""

    device: str = ""
    """The device that they are of."""
    convolutions: list[Convolution] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        return sorted({one.model for one in self.convolutions} | {run.model for run in self.runs})


def calibrate_from(paths: Sequence[Path], base: str) -> tuple[dict[str, object], Report]:
    """Return the device file's content and what was found. Raises UsageError where the recordings are of several devices or tell
    nothing.
    """
    material = _collect_material(paths, base)
    base = base or material.device
    record = device_record(base)
    aside = kept_out_models(material.models)
    rules = fit_rules(material.convolutions, aside)
    slowdown = fit_slowdown(material.runs, aside)
    if not rules and slowdown is None:
        raise UsageError(
            "these recordings have nothing to fit: convolutions of torch-cuda runs give workspaces, three models or more give times",
            code="IRS651",
            hint="; ".join(material.notes[:3]),
        )
    sources = dict(_mapping(record.get("sources")))
    how = f"fitted by irscope calibrate --from to recordings of {len(material.models) - len(aside)} models; {len(aside)} kept out"
    sources["recordings"] = {"text": how, "date": time.strftime("%Y-%m-%d")}
    record |= {"name": "this" if record.get("kind") == "cpu" else "this-gpu", "sources": sources, "aliases": []}
    if rules:
        record["workspaces"] = _rules_record([rule for rule in rules if rule.useful])
    if slowdown is not None:
        record["slowdown"] = {"lo": _four_digits(slowdown.low), "hi": _four_digits(slowdown.high), "unit": "", "source": "recordings"}
    return record, _calibration_report(base, material, rules, slowdown, aside)


def _collect_material(paths: Sequence[Path], base: str) -> Material:
    found = Material()
    for path in paths:
        if path.is_dir() and is_gpu_folder(path):
            _add_folder(found, path)
        elif is_recording(path):
            _add_recording(found, read_recording(path), base)
        else:
            hint = "name recordings that irscope record wrote, or folders with machine.json and models.jsonl"
            raise UsageError("is neither a recording nor a folder of them", code="IRS651", where=str(path), hint=hint)
    return found


def _same_device(found: Material, name: str, path: str) -> None:
    if found.device and found.device != name:
        raise UsageError(
            f"is of {name}, and others are of {found.device}", code="IRS651", where=path, hint="calibrate one device at a time"
        )
    found.device = name


def _add_folder(found: Material, path: Path) -> None:
    folder = read_gpu_folder(path)
    _same_device(found, folder.machine.name, str(path))
    found.convolutions += folder.convolutions
    if folder.failed:
        found.notes.append(f"{path}: {len(folder.failed)} models did not come to an end there: {', '.join(folder.failed[:5])}")


def _add_recording(found: Material, recording: Recording, base: str) -> None:
    _same_device(found, recording.header.device.name, recording.path)
    found.convolutions += convolutions_of(recording)
    plain = recording.times("plain")
    if plain is None or not recording.complete:
        found.notes.append(f"{recording.path} has no time: its run did not come to an end")
        return
    try:
        least = _least_seconds(recording, base or recording.header.device.name)
    except IrscopeError as error:
        found.notes.append(f"{recording.path} has no time: {error}")
        return
    if least > 0:
        name = f"{recording.header.model.name} {recording.header.model.sha256[:8]}"
        found.runs.append(Run(name, plain.median_us / 1e6, least))


def _least_seconds(recording: Recording, base: str) -> float:
    """Return the least time of the model that was recorded, on the device."""
    device = find_device(base)
    if _KINDS.get(device.kind) != recording.header.device.kind:
        raise UsageError(f"{device.title} is no {recording.header.device.kind} device", code="IRS651")
    model = recording.header.model
    where = model.path or model.name
    # With all sizes in the types of inputs, no symbol is left to bind.
    options = LoadOptions(inputs={one.name: parse_type(one.type) for one in model.inputs}, bind={} if model.inputs else dict(model.bind))
    opened = open_model(Path(where), options)
    return opened.manager.get(Roofline(device=base)).seconds


def _rules_record(rules: Sequence[FittedRule]) -> dict[str, object]:
    kinds: dict[str, dict[str, object]] = {}
    for rule in rules:
        of_input, of_filter, of_output = rule.factors
        entry = {"input": of_input, "filter": of_filter, "output": of_output, "source": "recordings", "how": _how(rule)}
        kinds.setdefault(rule.kind, {})[rule.dtype] = entry
    return dict(kinds)


def _how(rule: FittedRule) -> str:
    texts = [f"{errors.exact} of {errors.count} exact, worst {100 * errors.worst:.1f} % of the bytes touched" for errors in _all(rule)]
    return "; kept out: ".join(texts)


def _all(rule: FittedRule) -> Iterator[Errors]:
    yield rule.fitted
    if rule.kept_out is not None:
        yield rule.kept_out


def _calibration_report(
    base: str, material: Material, rules: Sequence[FittedRule], slowdown: Slowdown | None, aside: frozenset[str]
) -> Report:
    rows = []
    for rule in rules:
        other = rule.kept_out
        parts = zip(rule.factors, ("input", "filter", "result"), strict=True)
        text = " + ".join(f"{factor} x {name}" if factor > 1 else name for factor, name in parts if factor) or "nothing"
        kept = (other.count, other.exact, other.median, other.worst) if other is not None else (0, None, None, None)
        rows.append((rule.kind, rule.dtype, text, rule.useful, rule.fitted.count, rule.fitted.exact, rule.fitted.worst, *kept))
    columns = [
        Column("kind"),
        Column("element"),
        Column("workspace", help="bytes of what a convolution takes besides its result"),
        Column("used", help="whether it takes away half of the error, also on models that were kept out; else it is left out"),
        Column("fitted", Kind.COUNT, help="different convolutions of the models in the fit"),
        Column("exact", Kind.COUNT, help="right up to the allocator's rounding"),
        Column("worst", Kind.RATIO, help="largest error, of the bytes that the convolution touches"),
        Column("kept_out", Kind.COUNT, help="convolutions of models that were kept out of the fit"),
        Column("kept_out_exact", Kind.COUNT),
        Column("kept_out_median", Kind.RATIO),
        Column("kept_out_worst", Kind.RATIO),
    ]
    summary: dict[str, object] = {
        "device": material.device,
        "base": base,
        "models": {"fitted": len(material.models) - len(aside), "kept_out": len(aside)},
    }
    notes = [f"kept out of the fit: {', '.join(sorted(aside)) or 'none'}", *material.notes]
    if slowdown is not None:
        summary["times_the_least"] = {"middle": slowdown.middle, "from": slowdown.low, "to": slowdown.high}
        if slowdown.error is not None:
            summary["kept_out_error_ratio"] = slowdown.error
        if slowdown.below:
            notes.append(f"faster than the least time, so that the figures of {base} are too low: {', '.join(slowdown.below)}")
    tables = (Table.of(rows, columns, title="workspaces of convolutions"),) if rows else ()
    return Report(
        "calibrate", summary=summary, units={"models": Kind.COUNT, "times_the_least": Kind.NUMBER}, tables=tables, notes=tuple(notes)
    )


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")
