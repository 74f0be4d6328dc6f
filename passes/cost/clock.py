"""How long kernels take on a device: one rule a class, with the efficiencies that were fitted to published times.

A product takes as long as its padded tiles at a share of the device's peak, or as its bytes at a share of the bandwidth, whichever is
longer, with some of the shorter one where they do not overlap; everything else takes as long as its bytes. The shares are physical
parameters of a class of kernel and a generation of devices, kept with their source in `irscope/devices/efficiency.json`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.devices import find_device
from irscope.devices.profile import DeviceProfile, SourceJson
from irscope.immutable import immutable
from irscope.jsoncodec import decode, loads
from irscope.passes.cost.bounds import Rates
from irscope.passes.cost.kernels import MATRIX, Kernel, KernelClass
from irscope.report.units import Kind, humanise

Numbers = npt.NDArray[np.float64]

# Rows and columns of the tiles that cuBLAS, cuDNN and CUTLASS have kernels of for tensor cores.
_TILES: Final = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 32))
_IMAGES: Final = frozenset(
    {
        KernelClass.POINTWISE,
        KernelClass.CONVOLUTION,
        KernelClass.STEM,
        KernelClass.GROUPED,
        KernelClass.DEPTHWISE,
        KernelClass.CONVOLUTION_GRADIENT,
        KernelClass.GROUPED_GRADIENT,
        KernelClass.DEPTHWISE_GRADIENT,
        KernelClass.BATCH_NORM,
        KernelClass.POOLING,
    }
)
"""Classes that have kernels of their own where channels lie innermost."""
STEPPED: Final = frozenset(
    {KernelClass.DEPTHWISE, KernelClass.DEPTHWISE_OWN, KernelClass.DEPTHWISE_GRADIENT, KernelClass.POOLING, KernelClass.STRIDED}
)
"""Classes that take a step for each element, of a window or read apart from its neighbours, outside of the tensor cores."""
_BROADCASTS: Final = KernelClass.MIXED.name.lower()
_MATRICES: Final = frozenset({KernelClass.PRODUCT, KernelClass.BATCHED})


@immutable(slots=False)
class Columns:
    """Kernels as columns of numbers."""

    kind: npt.NDArray[np.int64]
    m: Numbers
    n: Numbers
    k: Numbers
    count: Numbers
    taps: Numbers
    moved: Numbers
    near: Numbers
    """The part of `moved` that is still in the cache."""
    bits: Numbers
    last: npt.NDArray[np.bool_]
    added: Numbers

    @classmethod
    def of(cls, kernels: Sequence[Kernel], near: Sequence[float]) -> Columns:
        rows = [
            (int(one.kind), one.m, one.n, one.k, one.count, one.taps, one.read + one.written, one.bits, one.last, one.added)
            for one in kernels
        ]
        kind, m, n, k, count, taps, moved, bits, last, added = np.array(rows, dtype=np.float64).reshape(len(rows), 10).T
        held = np.minimum(np.array(near, dtype=np.float64), moved)
        return cls(kind.astype(np.int64), m, n, k, count, taps, moved, held, bits, last > 0, added)


@immutable(slots=False)
class Machine:
    """The figures of a device that durations follow from."""

    rates: Mapping[int, float]
    """Peak of products by bits of the element type, in FLOP/s."""
    convolutions: Mapping[int, float]
    """The same of convolutions, which PyTorch lets run as TF32."""
    vector: float
    """Peak of other arithmetic in FLOP/s."""
    bandwidth: float
    processors: int
    cache: float
    """Bytes of the last cache."""
    fuses_bias: bool = False
    """True where a convolution's kernel adds the bias too."""


def names_of(kind: KernelClass) -> tuple[str, ...]:
    """Return the names of a class's efficiencies: two where channels innermost have kernels of their own."""
    name = kind.name.lower()
    return (name, f"{name}.last") if kind in _IMAGES else (name,)


def durations(columns: Columns, machine: Machine, table: Mapping[str, float]) -> Numbers:
    """Return seconds of each kernel on the device, alone."""
    arithmetic, memory = parts(columns, machine, table)
    power, runs = table["overlap"], columns.kind != KernelClass.HOST
    together: Numbers = (arithmetic**power + memory**power) ** (1.0 / power) + table["start"]
    if not machine.fuses_bias:
        together += columns.added / (machine.bandwidth * table[f"{_BROADCASTS}.bandwidth"])
    return np.where(runs, together, 0.0)


def parts(columns: Columns, machine: Machine, table: Mapping[str, float]) -> tuple[Numbers, Numbers]:
    """Return seconds of arithmetic and of memory traffic of each kernel, each as if there were nothing else."""
    arithmetic, memory = np.zeros(len(columns.kind)), np.zeros(len(columns.kind))
    kinds: list[int] = np.flatnonzero(np.bincount(columns.kind)).tolist()  # numpy.unique loads numpy.ma, which takes longer than all this
    for kind in map(KernelClass, kinds):
        if kind is KernelClass.HOST:
            continue
        for number, name in enumerate(names_of(kind)):
            chosen = columns.kind == kind
            if kind in _IMAGES:
                chosen &= columns.last == bool(number)
            places = np.flatnonzero(chosen)
            if len(places):
                arithmetic[places], memory[places] = _parts(kind, name, places, columns, machine, table)
    return arithmetic, memory


def name_of(kernel: Kernel) -> str:
    """Return the name of the efficiencies of a kernel."""
    names = names_of(kernel.kind)
    return names[-1] if kernel.last else names[0]


def _parts(
    kind: KernelClass, name: str, at: npt.NDArray[np.intp], columns: Columns, machine: Machine, table: Mapping[str, float]
) -> tuple[Numbers, Numbers]:
    """Return seconds of arithmetic and of memory traffic, each as if there were nothing else."""
    moved, near = columns.moved[at], columns.near[at]
    share = table[f"{name}.bandwidth"]
    memory = (moved - near) / (machine.bandwidth * share) + near / (machine.bandwidth * share * table["cache"])
    if kind in MATRIX:
        arithmetic = _product_seconds(kind, name, at, columns, machine, table)
    elif kind in STEPPED:
        steps = columns.m[at] * columns.n[at] * columns.count[at] * columns.taps[at]
        arithmetic = 2.0 * steps / (machine.vector * table[f"{name}.rate"])
    else:
        arithmetic = np.zeros(len(at))
    return arithmetic, memory


def _product_seconds(
    kind: KernelClass, name: str, at: npt.NDArray[np.intp], columns: Columns, machine: Machine, table: Mapping[str, float]
) -> Numbers:
    """Return seconds of arithmetic: padded tiles in waves over the multiprocessors, each step deeper by what filling the pipeline takes."""
    m, n, k, count = (column[at] for column in (columns.m, columns.n, columns.k, columns.count))
    peaks = machine.convolutions if kind in _IMAGES else machine.rates
    rates = np.array([peaks.get(int(bits), peaks[32]) for bits in columns.bits[at]])
    depth = k + table["depth"]
    least = np.full(len(at), np.inf)
    # Kernels for many small products have fewer tiles to choose from.
    least_side = table["tile"] if kind is KernelClass.BATCHED else 0.0
    for rows, columns_ in [tile for tile in _TILES if min(tile) >= least_side]:
        tiles = np.ceil(m / rows) * np.ceil(n / columns_) * count
        # What is left of the last wave waits for it; half of it on average, as several tiles share a multiprocessor.
        waves = np.maximum(tiles / machine.processors + table["wave"], 1.0)
        per_tile = 2.0 * rows * columns_ * depth * (1.0 + table["edge"] * (1.0 / rows + 1.0 / columns_))
        least = np.minimum(least, waves * per_tile)
    if kind in _MATRICES:
        # Kernels load 16 bytes at once where rows are as long as whole words, else half of that, a quarter, or one element.
        word = (128.0 / columns.bits[at]).astype(np.int64)
        rates = rates * (np.gcd(np.gcd(n.astype(np.int64), k.astype(np.int64)), word) / word) ** table["unaligned"]
    return least * machine.processors / (rates * table[f"{name}.rate"])


# The constants that come with irscope, and those of a device among them.

MODELS_TAKE: Final = 1.236
"""Factor by which models take longer than the roofline of a calibrated machine: 13 models in PyTorch, docs/roofline.md."""
SESSIONS_TAKE: Final = 1.25
"""The same of a session of ONNX Runtime, whose own kernels were measured: 192 files, docs/runtime.md."""
_SESSIONS_SPREAD: Final = (0.77, 1.9)
_MEASURED_SPREAD: Final = (0.85, 1.45)
"""The same for one model beside that: they took 1.10 to 1.73 times the roofline."""

Work: TypeAlias = Literal["eager", "compiled", "training", "session"]


@immutable
class TableJson:
    """Efficiencies that were fitted to one device's times."""

    source: str
    how: str
    shares: Mapping[str, float]
    spread: Mapping[str, tuple[float, float]]
    """By kind of work, how many times longer and shorter than predicted the real times are in 9 of 10 cases: 0.9 and 1.1."""
    capability: str = ""
    by_work: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By kind of work, shares that are others in it."""


@immutable
class EfficiencyJson:
    """The file of constants."""

    sources: Mapping[str, SourceJson]
    tables: Mapping[str, TableJson]
    foreign_spread: tuple[float, float]
    """The same as `spread` for a device that no time was known of, as it was for each device left out."""
    limited_spread: tuple[float, float]
    """The same for one whose power holds its peak down, for processors and GPUs of other makers: no such device could be left out."""
    host_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the host for an operator that starts a kernel, for one that does not, and for a kernel of a compiled program."""


@functools.cache
def constants() -> EfficiencyJson:
    """Return the constants that come with irscope."""
    return decode(EfficiencyJson, loads(files("irscope.devices").joinpath("efficiency.json").read_bytes()), closed=True)


@immutable(slots=False)
class Clock:
    """A device with its efficiencies: what durations are asked of."""

    device: DeviceProfile
    machine: Machine
    table: Mapping[str, float]
    work: str
    fitted_on: str
    """The device whose times the efficiencies were fitted to."""
    spread: Mapping[str, tuple[float, float]]
    source: str

    @property
    def is_own(self) -> bool:
        """Return whether the efficiencies are the device's own."""
        return self.fitted_on == self.device.name

    @property
    def is_assumed(self) -> bool:
        """Return whether the interval was checked on no device of its kind or on no work like this, so that a wide one is assumed."""
        return self.spread.get(self.work) == constants().limited_spread

    def durations(self, kernels: Sequence[Kernel], near: Sequence[float]) -> Numbers:
        """Return seconds of each kernel; `near` is the part of the bytes it reads that is still in the cache."""
        return durations(Columns.of(kernels, near), self.machine, self.table)

    def binds(self, kernels: Sequence[Kernel]) -> list[str]:
        """Return what takes the time of each kernel: compute, memory, or its start where it is short."""
        arithmetic, memory = parts(Columns.of(kernels, [0.0] * len(kernels)), self.machine, self.table)
        longest = np.where(arithmetic > memory, "compute", "memory")
        named: list[str] = np.where(np.maximum(arithmetic, memory) < self.table["start"], "start", longest).tolist()
        return named

    def why(self, kernel: Kernel) -> str:
        """Return the rule that a kernel's time follows, with its numbers."""
        if kernel.kind is KernelClass.HOST:
            return "nothing runs on the device"
        name = name_of(kernel)
        moved = humanise(kernel.read + kernel.written, Kind.BYTES)
        text = f"{moved} at {self.table[f'{name}.bandwidth']:.0%} of the bandwidth"
        rate = self.table.get(f"{name}.rate")
        if kernel.kind in MATRIX and rate is not None:
            sizes = f"{kernel.count:g} x " if kernel.count > 1 else ""
            return f"{sizes}{kernel.m:g} x {kernel.n:g} x {kernel.k:g} at up to {rate:.0%} of the peak; {text}"
        return text

    def limits(self, seconds: float, least: float = 0.0) -> tuple[float, float]:
        """Return the interval in which 9 of 10 real times lie, and nothing below the least time."""
        low, high = self.spread.get(self.work, constants().foreign_spread)
        return max(seconds * low, least), max(seconds * high, least)


def clock_of(device: DeviceProfile, work: Work = "eager", tables: Mapping[str, TableJson] | None = None) -> Clock | None:
    """Return the clock of a device for a kind of work; None where its bandwidth or its rates are not known. `tables` are those to choose
    from, by default all that come with irscope."""
    missing = missing_figure(device)
    if missing:
        return None
    assert device.bandwidth is not None
    found = constants()
    name, table = _table_of(device, found.tables if tables is None else tables)
    rates = Rates(device)
    is_as_printed = device.kind == "cpu" and device.max_clock is None
    fitted_on = device if is_as_printed or name == device.name else find_device(name)
    moved, clocked = _reached(device) / _reached(fitted_on), _clocked(device) / _clocked(fitted_on)
    products, convolutions = (
        {bits: figure[1].hi * moved for bits, dtype in _DTYPES.items() if (figure := rates.product(dtype, kind)) is not None}
        for kind in ("", "convolution")
    )
    machine = Machine(
        products,
        convolutions,
        (rates.vector("f32") or products[32]) * clocked,
        device.bandwidth.hi,
        device.multiprocessors or 1,
        float(device.cache_bytes),
        fuses_bias=device.kind == "cpu",
    )
    is_alike = device.capability is not None and device.power is not None and _reached(device) == _clocked(device)
    wide = found.foreign_spread if is_alike else found.limited_spread
    spread = (
        table.spread
        if name == device.name
        else {work: (min(low, wide[0]), max(high, wide[1])) for work, (low, high) in table.spread.items()}
    )
    if device.calibrated:
        spread = {**dict.fromkeys(spread, _MEASURED_SPREAD), "session": _SESSIONS_SPREAD}
    source = found.sources[table.source]
    shares = {**table.shares, **table.by_work.get(work, {})}
    return Clock(device, machine, shares, work, name, spread, f"{source.text}, {source.date} ({table.how})")


def _clocked(device: DeviceProfile) -> float:
    """Return the clock that a device is expected to run at, of the printed one: about half-way between that and the highest."""
    return (1.0 + device.boost) / 2.0


def _reached(device: DeviceProfile) -> float:
    """Return how much of its printed peak a device is expected to reach: by its clock, or by its power where that feeds less.

    Power follows about the square of the rate.
    """
    peak = Rates(device).product("f16")
    if device.kind == "cpu" or device.power is None or peak is None:
        return _clocked(device)
    return min(_clocked(device), math.sqrt(_FED_BY_A_WATT * device.power.hi / peak[1].hi))


_FED_BY_A_WATT: Final = 0.55e12
"""FLOP/s of 16 bits. An A100 (0.78e12 of its printed peak a watt) and an H100 (1.41e12) reach 0.8 and 0.6 of what GeForce cards (0.2 to
0.37e12) reach of theirs, by the throughputs of MPT models in llm-foundry's benchmarks; cuBLAS reaches 229e12 FLOP/s of the 439e12 of an
RTX PRO 6000 Max-Q (1.46e12 a watt) by github.com/waynehacking8/blackwell-tensorcore-kernels."""


def missing_figure(device: DeviceProfile) -> str:
    """Return the figure of a device without which no time can be told; empty where all are there."""
    if device.bandwidth is None:
        return "bandwidth"
    return "" if Rates(device).product("f32") is not None else "rate of matrix products"


_DTYPES: Final = {64: "f64", 32: "f32", 16: "f16", 8: "f8", 4: "f4"}


def _table_of(device: DeviceProfile, tables: Mapping[str, TableJson]) -> tuple[str, TableJson]:
    """Return the table of a device: its own, else that of the nearest compute capability; processors have theirs."""
    own = tables.get(device.name)
    if own is not None:
        return device.name, own
    wanted = device.capability
    if device.kind == "cpu":
        return next((name, table) for name, table in tables.items() if not table.capability)
    best, least = next(iter(tables.items())), math.inf
    for name, table in tables.items():
        if not table.capability:
            continue
        major, minor = map(int, table.capability.split("."))
        away = abs(10 * (wanted[0] - major) + wanted[1] - minor) if wanted is not None else 10 * (99 - major)
        if away < least:
            best, least = (name, table), away
    return best
