"""Interface of a calibration to the library that computes: micro-benchmarks and their times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Work: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Sample:
    """One kind of work with what a call of it amounts to: FLOPs, bytes or elements."""

    work: Work
    amount: float


class Engine(Protocol):
    """A device seen through a library."""

    @property
    def title(self) -> str:
        """Device, number of threads and library, for people."""
        ...

    @property
    def kind(self) -> str:
        """cpu or gpu."""
        ...

    @property
    def memory_bytes(self) -> int | None:
        """Memory that programs can have."""
        ...

    @property
    def element_types(self) -> tuple[str, ...]:
        """Element types whose products are worth trying."""
        ...

    def product(self, dtype: str, size: int) -> Sample | None:
        """A product of square matrices, in FLOPs; None where the library has none of this element type."""
        ...

    def convolutions(self, kind: str, dtype: str) -> list[Sample]:
        """Convolutions of a kind as networks have them, in FLOPs; none where there is no kernel for the element type."""
        ...

    def streams(self, size: int) -> list[Sample]:
        """Streaming kernels over `size` bytes: copy, add, sum."""
        ...

    def functions(self, size: int) -> list[Sample]:
        """Exponentials and the like over `size` bytes, in elements."""
        ...

    def operators(self) -> dict[str, Work]:
        """The cheapest operator that computes and the cheapest that only makes a view, on a handful of elements."""
        ...

    def seconds(self, work: Work, times: int) -> float:
        """How long so many calls take, one after the other."""
        ...
