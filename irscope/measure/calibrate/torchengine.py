"""PyTorch on the processor or on an NVIDIA GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from irscope.measure.calibrate.engine import Sample, Work, run_time
from irscope.measure.machine import memory_bytes, processor_name

_DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}

_CONVOLUTIONS = {
    "convolution": ((128, 128, 28, 3, 1), (64, 64, 56, 3, 1)),
    "pointwise": ((256, 64, 56, 1, 1), (512, 512, 14, 1, 1), (96, 24, 56, 1, 1)),
    "depthwise": ((32, 32, 112, 3, 32), (144, 144, 56, 3, 144), (576, 576, 14, 3, 576)),
}
"""Channels in and out, side of the image, side of the kernel, groups."""


class _Torch:
    """Base of the engines for both devices."""

    def __init__(self, device: str) -> None:
        self.device = device

    def product(self, dtype: str, size: int) -> Sample | None:
        kind = _DTYPES.get(dtype.removeprefix("t"))
        if kind is None:
            return None
        left, right = (torch.ones(size, size, device=self.device).to(kind) for _ in range(2))
        multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch._int_mm if kind is torch.int8 else torch.mm
        try:
            with torch.inference_mode():
                multiply(left, right)
        except RuntimeError:  # the library has no such kernel on this device
            return None
        return Sample(lambda: multiply(left, right), 2.0 * size**3)

    def convolutions(self, kind: str, dtype: str) -> list[Sample]:
        element = _DTYPES.get(dtype.removeprefix("t"))
        if element is None or not element.is_floating_point:
            return []
        return [sample for shape in _CONVOLUTIONS[kind] if (sample := self._convolution(*shape, element)) is not None]

    def _convolution(self, channels: int, results: int, side: int, kernel: int, groups: int, dtype: torch.dtype) -> Sample | None:
        image = torch.ones(1, channels, side, side, device=self.device).to(dtype)
        weight = torch.ones(results, channels // groups, kernel, kernel, device=self.device).to(dtype)

        def work() -> torch.Tensor:
            return torch.conv2d(image, weight, padding=kernel // 2, groups=groups)

        try:
            with torch.inference_mode():
                work()
        except RuntimeError:  # the library has no such kernel on this device
            return None
        return Sample(work, 2.0 * kernel**2 * channels // groups * results * side**2)

    def streams(self, size: int) -> list[Sample]:
        whole = torch.ones(size // 4, device=self.device)
        half, other = whole[: size // 8], whole[size // 8 : size // 8 * 2]
        total = torch.ones((), device=self.device)
        return [
            Sample(lambda: other.copy_(half), 2.0 * half.nbytes),
            Sample(lambda: half.add_(other), 3.0 * half.nbytes),
            Sample(lambda: torch.sum(whole, 0, out=total), float(whole.nbytes)),
        ]

    def functions(self, size: int) -> list[Sample]:
        operand = torch.rand(size // 4, device=self.device)
        result = torch.empty_like(operand)
        count = float(operand.numel())
        return [
            Sample(lambda: torch.exp(operand, out=result), count),
            Sample(lambda: torch.tanh(operand, out=result), count),
            Sample(lambda: torch.sqrt(operand, out=result), count),
            Sample(lambda: torch.erf(operand, out=result), count),
        ]

    def operators(self) -> dict[str, Work]:
        small = torch.ones(4, device=self.device)
        return {"operator": lambda: torch.relu(small), "view": lambda: small.view(2, 2)}


class TorchCpu(_Torch):
    """The processor: CPU time where one thread works, so that other programs do not disturb; else the clock on the wall."""

    kind = "cpu"
    element_types = ("f32", "f64", "bf16", "f16", "i8")

    def __init__(self, threads: int) -> None:
        super().__init__("cpu")
        self.threads = threads
        self._clock = time.process_time if threads == 1 else time.perf_counter

    @property
    def title(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{processor_name()} ({threads}, torch {torch.__version__})"

    @property
    def memory_bytes(self) -> int | None:
        return memory_bytes()

    def seconds(self, work: Work, times: int) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.inference_mode():
                return run_time(work, times, self._clock)
        finally:
            torch.set_num_threads(before)


class TorchCuda(_Torch):
    """One GPU, timed by its own events; operators are timed on the processor, which has to start them."""

    kind = "gpu"
    element_types = ("f32", "tf32", "f64", "bf16", "f16", "i8")

    def __init__(self) -> None:
        super().__init__("cuda")

    @property
    def title(self) -> str:
        return f"{torch.cuda.get_device_name()} (torch {torch.__version__})"

    @property
    def memory_bytes(self) -> int | None:
        return int(torch.cuda.get_device_properties(0).total_memory)

    def product(self, dtype: str, size: int) -> Sample | None:
        sample = super().product(dtype, size)
        if sample is None:
            return None

        def work() -> object:
            # The switch is global, so it is set for each call: other element types do not look at it.
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            return sample.work()

        return Sample(work, sample.amount)

    def seconds(self, work: Work, times: int) -> float:
        allowed = torch.backends.cuda.matmul.allow_tf32
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        try:
            with torch.inference_mode():
                begin.record()
                for _ in range(times):
                    work()
                end.record()
                end.synchronize()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        return float(begin.elapsed_time(end)) / 1000
