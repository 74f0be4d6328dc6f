"""NumPy, where PyTorch is not installed: its threads cannot be set, so the clock on the wall counts."""

from __future__ import annotations

import time

import numpy as np

from irscope.runtime.calibrate.engine import Sample, Work
from irscope.runtime.calibrate.machine import memory_bytes, processor_name


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
