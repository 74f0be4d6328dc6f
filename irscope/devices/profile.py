"""What is known about a device: every figure with the source that says so, as its JSON record has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast

from irscope.amounts import BYTES, FLOPS, SECONDS
from irscope.errors import UsageError

Kind = Literal["gpu", "cpu", "accelerator"]
KINDS: tuple[Kind, ...] = ("gpu", "cpu", "accelerator")
KERNELS = ("convolution", "pointwise", "depthwise")
"""Kinds of convolution: in general; 1 by 1 in steps of 1, which is a matrix product; each channel for itself."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number (or an interval, where `hi` is larger) with its source."""

    lo: float
    hi: float
    source: str
    """Who says so: a title with an address, or how it was measured or derived."""
    date: str
    """When the source was published, or the measurement made: a year, with month and day where known."""

    @property
    def exact(self) -> bool:
        return self.lo == self.hi


@dataclass(frozen=True, slots=True)
class Level:
    """A level of memory: how much it holds and how fast it is."""

    name: str
    size: int | None
    """Bytes; None for the level that holds everything."""
    bandwidth: Figure
    """Bytes a second."""


@dataclass(frozen=True, slots=True)
class WorkspaceRule:
    """What a library takes for a convolution besides its result: so many times the bytes of input, filter and result."""

    input: int
    filter: int
    output: int
    source: str
    date: str


@dataclass(frozen=True)
class DeviceProfile:
    """One device. Rates are dense peaks in FLOP/s (a multiply-add is 2), never those for structured sparsity."""

    name: str
    """Short name that `--device` takes."""
    title: str
    kind: Kind
    vendor: str
    aliases: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    """CUDA compute capability."""
    multiprocessors: int | None = None
    """Streaming multiprocessors (NVIDIA), compute units (AMD), cores."""
    threads_per_multiprocessor: int | None = None
    memory_bytes: int | None = None
    """Memory that programs can have: what cudaMemGetInfo calls total."""
    context_bytes: tuple[int, int] | None = None
    """What a CUDA context takes outside the allocator: an interval, as it grows with the kernels that are loaded."""
    matrix: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Peak of matrix products by element type (f64, f32, tf32, f16, bf16, f8, i8, ...)."""
    kernels: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict, hash=False)
    """Peaks of kinds of convolution where they were measured apart, by element type; else they count as matrix products."""
    vector: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Peak of other arithmetic by element type."""
    functions: Figure | None = None
    """Exponentials, roots and the like a second, where they were measured."""
    bandwidth: Figure | None = None
    """Bytes a second from and to main memory."""
    levels: tuple[Level, ...] = ()
    """Caches with their bandwidth, smallest first, where they were measured."""
    launch: Figure | None = None
    """Seconds that starting one kernel or operator takes."""
    overheads: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    power: Figure | None = None
    """Watts under full load (board or package)."""
    idle_power: Figure | None = None
    """Watts when nothing runs."""
    released: str = ""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Source of each figure that is a plain number above, by field name."""
    notes: tuple[str, ...] = ()
    workspaces: Mapping[str, Mapping[str, WorkspaceRule]] = field(default_factory=dict, hash=False)
    """Rules for convolutions by kind and element type, where they were fitted to recordings."""
    slowdown: Figure | None = None
    """How many times longer real runs take than the least time, where that was fitted to recordings."""
    calibrated: bool = False
    """Whether the figures were measured on the machine itself by `irscope calibrate`."""

    @property
    def context_most(self) -> int:
        """The most that a CUDA context takes; 0 on devices that have none."""
        return self.context_bytes[1] if self.context_bytes is not None else 0

    @property
    def room_bytes(self) -> int | None:
        """What an allocator can have for sure: the memory less the most that a CUDA context takes. None where the memory is not known."""
        return None if self.memory_bytes is None else max(self.memory_bytes - self.context_most, 0)

    def ridge(self, dtype: str) -> float | None:
        """FLOP a byte above which matrix products of this element type are bound by arithmetic, not by main memory."""
        rate = self.matrix.get(dtype)
        return rate.hi / self.bandwidth.hi if rate is not None and self.bandwidth is not None else None


# ----------------------------------------------------------------------------------------------------
# Reading one device's JSON record: checked field by field, so that a mistake is named with its place.

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

RATES = {f"{unit}/s": float(FLOPS.units[unit]) for unit in ("GFLOP", "TFLOP", "PFLOP")}
SPEEDS = {f"{unit}/s": float(BYTES.units[unit]) for unit in ("MB", "GB", "TB")}
SIZES = {unit: float(BYTES.units[unit]) for unit in ("B", "KiB", "MiB", "GiB", "MB", "GB")}
TIMES = {unit: float(SECONDS.units[unit]) for unit in ("s", "ms", "us", "ns")}
POWERS = {"W": 1.0, "mW": 1e-3, "kW": 1e3}
COUNTS = {"Gelement/s": 1e9}
COUNT = {"": 1.0}
ELEMENT_TYPES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f4", "i8", "i4", "i32")
FIELDS = (
    "name", "title", "vendor", "kind", "released", "aliases", "capability", "notes", "sources", "multiprocessors",
    "threads_per_multiprocessor", "memory", "context", "matrix", "kernels", "vector", "bandwidth", "levels", "launch", "overheads", "power",
    "idle_power", "functions", "calibrated", "workspaces", "slowdown",
)  # fmt: skip
MAX_BYTES = 1 << 20


def read_profile(path: Path) -> DeviceProfile:
    """The device that a file describes. Raises UsageError naming the field that does not fit."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError("a device file has at most 1 MiB", code="IRS421", where=str(path))
        data = json.loads(content)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", code="IRS421", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not JSON: {error}", code="IRS421", where=str(path)) from error
    return parse_profile(data, str(path))


def parse_profile(data: object, where: str) -> DeviceProfile:
    """The device that a JSON object describes; `where` names the object in errors."""
    return _Reader(where, _object(data, where, "the file")).profile()


class _Reader:
    """One record, with the place that errors name."""

    def __init__(self, where: str, data: dict[str, Json]) -> None:
        self.where = where
        self.data = data
        self.sources: dict[str, tuple[str, str]] = {}

    def profile(self) -> DeviceProfile:
        unknown = sorted(set(self.data) - set(FIELDS))
        if unknown:
            raise self.wrong(unknown[0], f"is no field of a device; fields are {', '.join(FIELDS)}")
        self.read_sources()
        kind = self.text("kind")
        if kind not in KINDS:
            raise self.wrong("kind", f"is {kind!r}, not one of {', '.join(KINDS)}")
        plain: dict[str, str] = {}
        count = self.whole("multiprocessors", COUNT, plain)
        threads = self.whole("threads_per_multiprocessor", COUNT, plain)
        memory = self.whole("memory", SIZES, plain)
        context = self.figure("context", SIZES)
        if context is not None:
            plain["context"] = _source_text(context)
        return DeviceProfile(
            name=self.text("name"),
            title=self.text("title"),
            kind=kind,
            vendor=self.text("vendor", ""),
            aliases=self.texts("aliases"),
            capability=self.capability(),
            multiprocessors=count,
            threads_per_multiprocessor=threads,
            memory_bytes=memory,
            context_bytes=None if context is None else (round(context.lo), round(context.hi)),
            matrix=self.by_element_type("matrix"),
            kernels=self.kernels(),
            vector=self.by_element_type("vector"),
            functions=self.figure("functions", COUNTS),
            bandwidth=self.figure("bandwidth", SPEEDS),
            levels=self.levels(),
            launch=self.figure("launch", TIMES),
            overheads=self.times("overheads"),
            power=self.figure("power", POWERS),
            idle_power=self.figure("idle_power", POWERS),
            released=self.text("released", ""),
            sources=plain,
            notes=self.texts("notes"),
            workspaces=self.workspaces(),
            slowdown=self.figure("slowdown", COUNT),
            calibrated=self.flag("calibrated"),
        )

    def wrong(self, field: str, problem: str) -> UsageError:
        return UsageError(f"{field!r} {problem}", code="IRS421", where=self.where, hint="docs/roofline.md describes device files")

    # -- simple fields -------------------------------------------------------------------------------------------

    def text(self, field: str, default: str | None = None) -> str:
        value = self.data.get(field, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(field, "must be a text")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.data.get(field, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(field, "must be a list of texts")
        return tuple(str(item) for item in value)

    def flag(self, field: str) -> bool:
        value = self.data.get(field, False)
        if not isinstance(value, bool):
            raise self.wrong(field, "must be true or false")
        return value

    def capability(self) -> tuple[int, int] | None:
        text = self.text("capability", "")
        if not text:
            return None
        major, dot, minor = text.partition(".")
        if not (dot and major.isdigit() and minor.isdigit() and text.isascii()):
            raise self.wrong("capability", f'is {text!r}, not a CUDA compute capability such as "9.0"')
        return int(major), int(minor)

    def read_sources(self) -> None:
        for key, value in _object(self.data.get("sources", {}), self.where, "'sources'").items():
            entry = _object(value, self.where, f"'sources.{key}'")
            text, date = entry.get("text"), entry.get("date")
            if not isinstance(text, str) or not isinstance(date, str) or not text or not date:
                raise self.wrong(f"sources.{key}", 'must have a "text" and a "date"')
            self.sources[key] = (text, date)

    # -- figures -------------------------------------------------------------------------------------------------

    def figure(self, field: str, units: Mapping[str, float]) -> Figure | None:
        return self.read_figure(field, self.data[field], units) if field in self.data else None

    def whole(self, field: str, units: Mapping[str, float], plain: dict[str, str]) -> int | None:
        found = self.figure(field, units)
        if found is None:
            return None
        if not found.exact:
            raise self.wrong(field, "must be one number, not an interval")
        plain[field] = _source_text(found)
        return int(found.lo)

    def times(self, field: str) -> dict[str, Figure]:
        named = _object(self.data.get(field, {}), self.where, repr(field))
        return {key: self.read_figure(f"{field}.{key}", value, TIMES) for key, value in named.items()}

    def by_element_type(self, field: str) -> dict[str, Figure]:
        return self.rates(field, self.data.get(field, {}))

    def kernels(self) -> dict[str, dict[str, Figure]]:
        found: dict[str, dict[str, Figure]] = {}
        for kind, value in _object(self.data.get("kernels", {}), self.where, "'kernels'").items():
            if kind not in KERNELS:
                raise self.wrong(f"kernels.{kind}", f"is no kind of kernel; those are {', '.join(KERNELS)}")
            found[kind] = self.rates(f"kernels.{kind}", value)
        return found

    def workspaces(self) -> dict[str, dict[str, WorkspaceRule]]:
        found: dict[str, dict[str, WorkspaceRule]] = {}
        for kind, value in _object(self.data.get("workspaces", {}), self.where, "'workspaces'").items():
            if kind not in KERNELS:
                raise self.wrong(f"workspaces.{kind}", f"is no kind of kernel; those are {', '.join(KERNELS)}")
            rules = _object(value, self.where, f"'workspaces.{kind}'")
            found[kind] = {dtype: self.workspace(f"workspaces.{kind}.{dtype}", rule) for dtype, rule in rules.items()}
        return found

    def workspace(self, place: str, value: Json) -> WorkspaceRule:
        entry = _object(value, self.where, repr(place))
        factors: dict[str, int] = {}
        for name in ("input", "filter", "output"):
            factor = entry.get(name, 0)
            if not isinstance(factor, int) or isinstance(factor, bool) or not 0 <= factor <= 100:
                raise self.wrong(f"{place}.{name}", "must be a whole number of at most 100")
            factors[name] = factor
        source, date = self.source_of(place, entry)
        return WorkspaceRule(factors["input"], factors["filter"], factors["output"], source, date)

    def rates(self, place: str, value: Json) -> dict[str, Figure]:
        found: dict[str, Figure] = {}
        for dtype, figure in _object(value, self.where, repr(place)).items():
            if dtype not in ELEMENT_TYPES:
                raise self.wrong(f"{place}.{dtype}", f"is no element type; those are {', '.join(ELEMENT_TYPES)}")
            found[dtype] = self.read_figure(f"{place}.{dtype}", figure, RATES)
        return found

    def levels(self) -> tuple[Level, ...]:
        value = self.data.get("levels", [])
        if not isinstance(value, list):
            raise self.wrong("levels", "must be a list")
        found = []
        for position, item in enumerate(value):
            place = f"levels[{position}]"
            entry = _object(item, self.where, repr(place))
            name = entry.get("name")
            if not isinstance(name, str) or "bandwidth" not in entry:
                raise self.wrong(place, 'must have a "name" and a "bandwidth"')
            size = self.read_figure(f"{place}.size", entry["size"], SIZES) if "size" in entry else None
            bandwidth = self.read_figure(f"{place}.bandwidth", entry["bandwidth"], SPEEDS)
            found.append(Level(name, None if size is None else int(size.lo), bandwidth))
        return tuple(found)

    def read_figure(self, place: str, value: Json, units: Mapping[str, float]) -> Figure:
        entry = _object(value, self.where, repr(place))
        unit = entry.get("unit", "")
        if not isinstance(unit, str) or unit not in units:
            allowed = ", ".join(filter(None, units)) or "none"
            raise self.wrong(f"{place}.unit", f"is {unit!r}; allowed: {allowed}")
        lo, hi = entry.get("lo", entry.get("value")), entry.get("hi", entry.get("value"))
        if not (_is_number(lo) and _is_number(hi)):
            raise self.wrong(place, 'must have a "value", or "lo" and "hi", that are numbers')
        try:
            low, high = float(cast("float", lo)) * units[unit], float(cast("float", hi)) * units[unit]
        except OverflowError:  # JSON has integers that no float holds
            low, high = 0.0, float("inf")
        if not 0 < low <= high < float("inf"):
            raise self.wrong(place, "must be larger than zero, with lo at most hi, and no more than a number can be")
        source, date = self.source_of(place, entry)
        return Figure(low, high, source, date)

    def source_of(self, place: str, entry: Mapping[str, Json]) -> tuple[str, str]:
        key = entry.get("source")
        if not isinstance(key, str) or key not in self.sources:
            known = ", ".join(self.sources) or "none yet"
            raise self.wrong(f"{place}.source", f'must name one of "sources" ({known})')
        text, date = self.sources[key]
        how = entry.get("how", "")
        if not isinstance(how, str):
            raise self.wrong(f"{place}.how", "must be a text")
        return (f"{text} ({how})" if how else text), date


def _source_text(figure: Figure) -> str:
    return f"{figure.source}, {figure.date}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(value: object, where: str, what: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object", code="IRS421", where=where, hint="docs/roofline.md describes device files")
    return value
