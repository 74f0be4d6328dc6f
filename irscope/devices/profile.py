"""What is known about a device: every figure with the source that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
