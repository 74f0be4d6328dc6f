"""Interface of a calibration to the library that computes: micro-benchmarks and their times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from irscope.measure.machine import memory_bytes, processor_name

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


# ----------------------------------------------------------------------------------------------------
# NumPy, where PyTorch is not installed: its threads cannot be set, so the clock on the wall counts.


class NumpyCpu:
    """The processor through NumPy and the BLAS it was built with."""

    kind = "cpu"
    element_types = ("f32", "f64")

    @property
    def title(self) -> str:
        return f"{processor_name()} (numpy {np.__version__})"

    @property
    def memory_bytes(self) -> int | None:
        return memory_bytes()

    def product(self, dtype: str, size: int) -> Sample | None:
        kind = {"f32": np.float32, "f64": np.float64}.get(dtype)
        if kind is None:
            return None
        left, right, result = (np.ones((size, size), kind) for _ in range(3))
        return Sample(lambda: np.matmul(left, right, out=result), 2.0 * size**3)

    def convolutions(self, kind: str, dtype: str) -> list[Sample]:
        return []

    def streams(self, size: int) -> list[Sample]:
        whole = np.ones(size // 4, np.float32)
        half, other = whole[: size // 8], whole[size // 8 : size // 8 * 2]
        return [
            Sample(lambda: np.copyto(other, half), 2.0 * half.nbytes),
            Sample(lambda: np.add(half, other, out=half), 3.0 * half.nbytes),
            Sample(whole.max, float(whole.nbytes)),
        ]

    def functions(self, size: int) -> list[Sample]:
        operand = np.full(size // 4, 0.5, np.float32)
        result = np.empty_like(operand)
        count = float(operand.size)
        return [Sample(lambda function=function: function(operand, out=result), count) for function in (np.exp, np.tanh, np.sqrt)]  # type: ignore[misc]  # a default that binds the loop's variable

    def operators(self) -> dict[str, Work]:
        small = np.ones(4, np.float32)
        return {"operator": lambda: np.negative(small), "view": lambda: small.reshape(2, 2)}

    def seconds(self, work: Work, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            work()
        return time.perf_counter() - started
