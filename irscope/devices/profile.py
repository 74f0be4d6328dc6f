"""What is known about a device: every figure with the source that says so, as its JSON record has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeVar

from irscope.amounts import BYTES, FLOPS, SECONDS
from irscope.errors import UsageError
from irscope.files import read_regular
from irscope.immutable import immutable
from irscope.jsoncodec import Misfit, decode, loads

Name = TypeVar("Name", bound=str)

Kind = Literal["gpu", "cpu", "accelerator"]
KINDS: tuple[Kind, ...] = ("gpu", "cpu", "accelerator")
KERNELS = ("convolution", "pointwise", "depthwise")
"""Kinds of convolution: in general; 1 by 1 in steps of 1, which is a matrix product; each channel for itself."""

SESSION_KERNELS = ("product", *KERNELS, "plain_depthwise", "unfolded", "unfolded_depthwise")
"""Kinds of ONNX Runtime's products: of matrices, convolutions (in its own layout; plain: as in the file), those of integers that unfold
the image."""
SESSION_ELEMENTS = ("elementwise", "functions", "softmax", "normalization", "quantize", "dequantize", "permute", "unfold")
"""Kinds of its kernels whose time goes by elements; unfold: by elements of the filter at each place of an image of integers."""
SESSION_OPERATOR, SESSION_CALL = "session_operator", "session_call"
"""Names of what a session takes to start an operator, and a run, among the overheads."""
SESSION_TYPES = ("f32", "u8i8", "u8u8", "i8i8", "u4")
"""Element types of a product's left and right operand (u8 by i8, ...); u4: floats by packed weights of four bits."""


@immutable
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


@immutable
class Level:
    """A level of memory: how much it holds and how fast it is."""

    name: str
    size: int | None
    """Bytes; None for the level that holds everything."""
    bandwidth: Figure
    """Bytes a second."""


@immutable
class WorkspaceRule:
    """Workspace of a convolution: so many times the bytes of input, filter and result."""

    input: int
    filter: int
    output: int
    source: str
    date: str


@immutable(slots=False)
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
    vector_bits: int | None = None
    """Bits of the widest vector registers of a processor: 512 with AVX-512, 256 with AVX2, 128 with NEON."""
    threads_per_multiprocessor: int | None = None
    clock: Figure | None = None
    """Clock in Hz that the rates below are at: the one that the data sheet prints."""
    max_clock: Figure | None = None
    """The highest clock in Hz that the device sets itself while power and temperature allow it."""
    l2_cache_bytes: int | None = None
    """Size of the last cache before main memory, as CUDA tells it."""
    memory_bytes: int | None = None
    """Memory that programs can have: what cudaMemGetInfo calls total."""
    context_bytes: tuple[int, int] | None = None
    """What a CUDA context takes outside the allocator: an interval, as it grows with the kernels that are loaded."""
    matrix: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Peak of matrix products by element type (f64, f32, tf32, f16, bf16, f8, i8, ...)."""
    kernels: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict, hash=False)
    """Peaks of kinds of convolution where they were measured apart, by element type; else they count as matrix products."""
    sessions: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict, hash=False)
    """The same of ONNX Runtime's kernels, where they were measured: by kind and the element types of both operands."""
    session_elements: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Elements a second of ONNX Runtime's other kernels, by kind."""
    vector: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Peak of other arithmetic by element type."""
    functions: Figure | None = None
    """Exponentials, roots and the like a second, where they were measured."""
    bandwidth: Figure | None = None
    """Bytes a second from and to main memory."""
    levels: tuple[Level, ...] = ()
    """Caches with their bandwidth, smallest first, where they were measured."""
    link: Figure | None = None
    """Bytes a second that it can send to devices of its node, and receive at the same time."""
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
    """Rules for convolutions by kind and element type, where a device file has them."""
    calibrated: bool = False
    """Whether the figures were measured on the machine itself by `irscope calibrate`."""

    @property
    def context_most(self) -> int:
        """The most that a CUDA context takes; 0 on devices that have none."""
        return self.context_bytes[1] if self.context_bytes is not None else 0

    @property
    def lacks_cuda(self) -> str:
        """The reason why PyTorch's CUDA allocator, and kernels that take memory for themselves, do not run there; else empty."""
        return "" if self.capability is not None else f"{self.title} is not a CUDA device"

    @property
    def room_bytes(self) -> int | None:
        """Memory that an allocator surely gets: all less the most that a CUDA context takes. None where the memory is not known."""
        return None if self.memory_bytes is None else max(self.memory_bytes - self.context_most, 0)

    @property
    def cache_bytes(self) -> int:
        """The last cache before main memory: as it is stated, or the largest level that was measured; 0 where neither is known."""
        sizes = [level.size for level in self.levels if level.size is not None]
        return self.l2_cache_bytes or max(sizes, default=0)

    @property
    def boost(self) -> float:
        """Return how many times faster than its stated rates a device computes at its highest clock; 1 where that is not known."""
        if self.clock is None or self.max_clock is None:
            return 1.0
        return max(self.max_clock.hi / self.clock.hi, 1.0)

    def ridge(self, dtype: str) -> float | None:
        """FLOP a byte above which matrix products of this element type are bound by arithmetic, not by main memory."""
        rate = self.matrix.get(dtype)
        return rate.hi / self.bandwidth.hi if rate is not None and self.bandwidth is not None else None


# Reading one device's JSON record: its form by the types below, so that a mistake is named with its place; then units and sources.

RATES = {f"{unit}/s": float(FLOPS.units[unit]) for unit in ("GFLOP", "TFLOP", "PFLOP")}
SPEEDS = {f"{unit}/s": float(BYTES.units[unit]) for unit in ("MB", "GB", "TB")}
SIZES = {unit: float(BYTES.units[unit]) for unit in ("B", "KiB", "MiB", "GiB", "MB", "GB")}
TIMES = {unit: float(SECONDS.units[unit]) for unit in ("s", "ms", "us", "ns")}
POWERS = {"W": 1.0, "mW": 1e-3, "kW": 1e3}
COUNTS = {"Gelement/s": 1e9}
CLOCKS = {"MHz": 1e6, "GHz": 1e9}
COUNT = {"": 1.0}
ELEMENT_TYPES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f4", "i8", "i4", "i32")
MAX_BYTES = 1 << 20
_HINT = "docs/roofline.md describes device files"


@immutable
class SourceJson:
    """The source of a figure."""

    text: str
    date: str


@immutable
class FigureJson:
    """A number, or an interval, in a unit."""

    source: str
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    unit: str = ""
    how: str = ""


@immutable
class LevelJson:
    """A level of memory."""

    name: str
    bandwidth: FigureJson
    size: FigureJson | None = None


@immutable
class WorkspaceJson:
    """Factors of a rule for workspaces."""

    source: str
    input: int = 0
    filter: int = 0
    output: int = 0
    how: str = ""


@immutable
class DeviceJson:
    """A device file."""

    name: str
    title: str
    kind: str
    vendor: str = ""
    released: str = ""
    aliases: tuple[str, ...] = ()
    capability: str = ""
    notes: tuple[str, ...] = ()
    sources: Mapping[str, SourceJson] = field(default_factory=dict)
    multiprocessors: FigureJson | None = None
    vector_bits: FigureJson | None = None
    threads_per_multiprocessor: FigureJson | None = None
    clock: FigureJson | None = None
    max_clock: FigureJson | None = None
    l2_cache: FigureJson | None = None
    memory: FigureJson | None = None
    context: FigureJson | None = None
    matrix: Mapping[str, FigureJson] = field(default_factory=dict)
    kernels: Mapping[str, Mapping[str, FigureJson]] = field(default_factory=dict)
    sessions: Mapping[str, Mapping[str, FigureJson]] = field(default_factory=dict)
    session_elements: Mapping[str, FigureJson] = field(default_factory=dict)
    vector: Mapping[str, FigureJson] = field(default_factory=dict)
    bandwidth: FigureJson | None = None
    levels: tuple[LevelJson, ...] = ()
    link: FigureJson | None = None
    launch: FigureJson | None = None
    overheads: Mapping[str, FigureJson] = field(default_factory=dict)
    power: FigureJson | None = None
    idle_power: FigureJson | None = None
    functions: FigureJson | None = None
    calibrated: bool = False
    workspaces: Mapping[str, Mapping[str, WorkspaceJson]] = field(default_factory=dict)


def read_profile(path: Path) -> DeviceProfile:
    """Return the device that a file describes. Raises UsageError naming the field that does not fit."""
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", code="IRS421", where=str(path)) from error
    return parse_profile(content, str(path))


def parse_profile(content: bytes | str, where: str) -> DeviceProfile:
    """Return the device that a JSON text describes; `where` names the text in errors."""
    try:
        return _Reader(decode(DeviceJson, loads(content), closed=True)).profile()
    except Misfit as misfit:
        raise UsageError(str(misfit), code="IRS421", where=where, hint=_HINT) from misfit


class _Reader:
    """One record: its figures in base units, each with its source."""

    def __init__(self, record: DeviceJson) -> None:
        self.record = record

    def profile(self) -> DeviceProfile:
        record = self.record
        for name in ("name", "title"):
            if not getattr(record, name):
                raise Misfit("some text is wanted", name)
        for key, source in record.sources.items():
            if not source.text or not source.date:
                raise Misfit("a text and a date are wanted", f"sources.{key}")
        plain: dict[str, str] = {}
        context = self.figure("context", record.context, SIZES)
        if context is not None:
            plain["context"] = _source_text(context)
        return DeviceProfile(
            name=record.name,
            title=record.title,
            kind=_one_of(record.kind, KINDS, "kind"),
            vendor=record.vendor,
            aliases=record.aliases,
            capability=_capability(record.capability),
            multiprocessors=self.whole("multiprocessors", record.multiprocessors, COUNT, plain),
            vector_bits=self.whole("vector_bits", record.vector_bits, COUNT, plain),
            threads_per_multiprocessor=self.whole("threads_per_multiprocessor", record.threads_per_multiprocessor, COUNT, plain),
            clock=self.figure("clock", record.clock, CLOCKS),
            max_clock=self.figure("max_clock", record.max_clock, CLOCKS),
            l2_cache_bytes=self.whole("l2_cache", record.l2_cache, SIZES, plain),
            memory_bytes=self.whole("memory", record.memory, SIZES, plain),
            context_bytes=None if context is None else (round(context.lo), round(context.hi)),
            matrix=self.rates("matrix", record.matrix),
            kernels={_one_of(kind, KERNELS, "kernels"): self.rates(f"kernels.{kind}", rates) for kind, rates in record.kernels.items()},
            sessions={
                _one_of(kind, SESSION_KERNELS, "sessions"): self.rates(f"sessions.{kind}", rates, SESSION_TYPES)
                for kind, rates in record.sessions.items()
            },
            session_elements={
                _one_of(kind, SESSION_ELEMENTS, "session_elements"): self.read(f"session_elements.{kind}", figure, COUNTS)
                for kind, figure in record.session_elements.items()
            },
            vector=self.rates("vector", record.vector),
            functions=self.figure("functions", record.functions, COUNTS),
            bandwidth=self.figure("bandwidth", record.bandwidth, SPEEDS),
            levels=tuple(self.level(f"levels[{place}]", level) for place, level in enumerate(record.levels)),
            link=self.figure("link", record.link, SPEEDS),
            launch=self.figure("launch", record.launch, TIMES),
            overheads={key: self.read("overheads." + key, figure, TIMES) for key, figure in record.overheads.items()},
            power=self.figure("power", record.power, POWERS),
            idle_power=self.figure("idle_power", record.idle_power, POWERS),
            released=record.released,
            sources=plain,
            notes=record.notes,
            workspaces={
                _one_of(kind, KERNELS, "workspaces"): {key: self.workspace(f"workspaces.{kind}.{key}", rule) for key, rule in rules.items()}
                for kind, rules in record.workspaces.items()
            },
            calibrated=record.calibrated,
        )

    def whole(self, place: str, figure: FigureJson | None, units: Mapping[str, float], plain: dict[str, str]) -> int | None:
        found = self.figure(place, figure, units)
        if found is None:
            return None
        if not found.exact:
            raise Misfit("one number is wanted, not an interval", place)
        plain[place] = _source_text(found)
        return int(found.lo)

    def rates(self, place: str, figures: Mapping[str, FigureJson], types: Sequence[str] = ELEMENT_TYPES) -> dict[str, Figure]:
        return {_one_of(dtype, types, place): self.read(f"{place}.{dtype}", figure, RATES) for dtype, figure in figures.items()}

    def workspace(self, place: str, rule: WorkspaceJson) -> WorkspaceRule:
        for name in ("input", "filter", "output"):
            if not 0 <= getattr(rule, name) <= 100:
                raise Misfit("0 to 100 is wanted", f"{place}.{name}")
        return WorkspaceRule(rule.input, rule.filter, rule.output, *self.source_of(place, rule))

    def level(self, place: str, level: LevelJson) -> Level:
        size = self.figure(f"{place}.size", level.size, SIZES)
        return Level(level.name, None if size is None else int(size.lo), self.read(f"{place}.bandwidth", level.bandwidth, SPEEDS))

    def figure(self, place: str, figure: FigureJson | None, units: Mapping[str, float]) -> Figure | None:
        return None if figure is None else self.read(place, figure, units)

    def read(self, place: str, figure: FigureJson, units: Mapping[str, float]) -> Figure:
        if figure.unit not in units:
            raise Misfit(f"no such unit: {figure.unit!r}; there are {', '.join(filter(None, units)) or 'none'}", f"{place}.unit")
        low, high = (figure.value if end is None else end for end in (figure.lo, figure.hi))
        if low is None or high is None:
            raise Misfit("'value', or 'lo' and 'hi', are missing", place)
        low, high = low * units[figure.unit], high * units[figure.unit]
        if not 0 < low <= high:
            raise Misfit("a number larger than zero is wanted, with lo at most hi", place)
        return Figure(low, high, *self.source_of(place, figure))

    def source_of(self, place: str, entry: FigureJson | WorkspaceJson) -> tuple[str, str]:
        source = self.record.sources.get(entry.source)
        if source is None:
            raise Misfit(f"no such source: {entry.source!r}; there are {', '.join(self.record.sources) or 'none'}", f"{place}.source")
        return (f"{source.text} ({entry.how})" if entry.how else source.text), source.date


def _one_of(text: str, known: Sequence[Name], place: str) -> Name:
    name = next((name for name in known if name == text), None)
    if name is None:
        raise Misfit(f"no such name: {text!r}; there are {', '.join(known)}", place)
    return name


def _capability(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    major, dot, minor = text.partition(".")
    if not (dot and major.isdigit() and minor.isdigit() and text.isascii()):
        raise Misfit(f'a CUDA compute capability such as "9.0" is wanted, not {text!r}', "capability")
    return int(major), int(minor)


def _source_text(figure: Figure) -> str:
    return f"{figure.source}, {figure.date}"
