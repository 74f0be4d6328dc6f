"""Measuring this machine: the library that computes, the plan of a calibration, what is made of it, and the device file."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from irscope.devices.catalogue import calibration_file
from irscope.devices.profile import KERNELS, DeviceProfile, parse_profile
from irscope.files import make_folder, write_text
from irscope.immutable import immutable
from irscope.measure.machine import memory_bytes, processor_name, vector_bits

Work: TypeAlias = Callable[[], object]


@immutable
class Sample:
    """One kind of work with what a call of it amounts to: FLOPs, bytes or elements."""

    work: Work
    amount: float


class Timer(Protocol):
    """Tells how long work takes."""

    def seconds(self, work: Work, times: int) -> float:
        """Return how long so many calls take, one after the other."""
        ...


class SessionEngine(Timer, Protocol):
    """A runtime that has kernels of its own for each kind of product and its operands' element types."""

    def kernels(self) -> Iterator[tuple[str, str, Callable[[], Sample]]]:
        """Yield kinds of kernels with the element types of their operands, and what measures one."""
        ...

    def elements(self) -> Iterator[tuple[str, Callable[[], Sample]]]:
        """Yield kinds of kernels whose time goes by elements, and what measures one."""
        ...

    def overheads(self) -> dict[str, Sample]:
        """Return what measures calls of a session, and of the cheapest operators within one."""
        ...


class Engine(Timer, Protocol):
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
        """Return a product of square matrices, in FLOPs; None where the library has none of this element type."""
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
        """Return the cheapest operator that computes and the cheapest that only makes a view, on a handful of elements."""
        ...


def run_time(work: Work, times: int, clock: Callable[[], float]) -> float:
    """Return how long so many calls take by a clock of this process."""
    started = clock()
    for _ in range(times):
        work()
    return clock() - started


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
        return run_time(work, times, time.perf_counter)


# The plan of a calibration: what is measured, for how long, what is made of it, and the device file.

PRODUCT_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
STREAM_SIZES = (1 << 17, 1 << 19, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 1 << 25, 1 << 26, 1 << 28)
FUNCTION_BYTES = 1 << 18
_LONG_ENOUGH = 2e-3
"""A clock's steps and a call's overhead disappear in so many seconds."""
_ROUNDS = 3


@immutable
class Rate:
    """Amount a second: the best that was seen, and the median of all rounds."""

    best: float
    median: float


@immutable(slots=False)
class Measurement:
    """Measured rates of a machine."""

    products: dict[str, Rate]
    """FLOP/s by element type."""
    convolutions: dict[str, dict[str, Rate]]
    """FLOP/s by kind and element type."""
    streams: dict[int, Rate]
    """Bytes a second by working set."""
    functions: Rate
    """Exponentials and the like a second."""
    operators: dict[str, Rate]
    """Calls a second."""
    seconds: float


def measure(engine: Engine, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Measurement:
    """Measure a device in about so many seconds; each part has its share and ends with the round in which it is used up."""
    started = clock()
    share = seconds / (2.5 * len(engine.element_types) + 5)
    products = {dtype: _product_rate(engine, dtype, share, clock) for dtype in engine.element_types}
    usable = [dtype for dtype, rate in products.items() if rate is not None]
    convolutions = {kind: _convolutions(engine, kind, usable, share / 2, clock) for kind in KERNELS}
    per_size = 3.5 * share / len(STREAM_SIZES)
    streams = {size: _best(engine, engine.streams(size), per_size, clock) for size in STREAM_SIZES}
    functions = _best(engine, engine.functions(FUNCTION_BYTES), share / 2, clock)
    operators = {name: _best(engine, [Sample(work, 1)], share / 4, clock) for name, work in engine.operators().items()}
    reached = {dtype: rate for dtype, rate in products.items() if rate is not None}
    return Measurement(reached, convolutions, streams, functions, operators, clock() - started)


@immutable(slots=False)
class SessionRates:
    """Measured rates of a runtime's kernels."""

    kernels: dict[str, dict[str, Rate]]
    """FLOP/s by kind and element types."""
    elements: dict[str, Rate]
    """Elements a second by kind."""
    overheads: dict[str, Rate]
    """Calls a second."""


def measure_sessions(engine: SessionEngine, seconds: float, clock: Callable[[], float] = time.perf_counter) -> SessionRates:
    """Measure a runtime's kernels in about so many seconds."""
    kernels, elements = list(engine.kernels()), list(engine.elements())
    share = seconds / (len(kernels) + len(elements) + 2)
    rates: dict[str, dict[str, Rate]] = {}
    for kind, operands, make in kernels:
        rates.setdefault(kind, {})[operands] = _rate(engine, make(), share, clock)
    by_element = {kind: _rate(engine, make(), share, clock) for kind, make in elements}
    overheads = {name: _rate(engine, sample, share, clock) for name, sample in engine.overheads().items()}
    return SessionRates(rates, by_element, overheads)


def _product_rate(engine: Engine, dtype: str, share: float, clock: Callable[[], float]) -> Rate | None:
    """Return the best rate over growing matrices; a size that would use up the share is not tried."""
    end = clock() + share
    best: Rate | None = None
    for size in PRODUCT_SIZES:
        sample = engine.product(dtype, size)
        if sample is None:
            return best
        found = _best(engine, [sample], share / 8, clock)
        best = found if best is None or found.best > best.best else best
        # The next size has eight times the work, and is run twice before it is timed.
        if clock() + 8 * sample.amount / found.best * (_ROUNDS + 2) > end:
            break
    return best


def _convolutions(engine: Engine, kind: str, dtypes: Iterable[str], share: float, clock: Callable[[], float]) -> dict[str, Rate]:
    samples = {dtype: engine.convolutions(kind, dtype) for dtype in dtypes}
    return {dtype: _best(engine, ways, share, clock) for dtype, ways in samples.items() if ways}


def _best(engine: Timer, samples: Iterable[Sample], share: float, clock: Callable[[], float]) -> Rate:
    """Return the fastest of several ways to do something."""
    ways = list(samples)
    rates = [_rate(engine, way, share / len(ways), clock) for way in ways]
    return max(rates, key=lambda rate: rate.best)


def _rate(engine: Timer, sample: Sample, share: float, clock: Callable[[], float]) -> Rate:
    end = clock() + share
    times = _repetitions(engine, sample.work)
    rounds = [engine.seconds(sample.work, times)]
    while clock() < end or (len(rounds) < _ROUNDS and clock() < end + share):
        rounds.append(engine.seconds(sample.work, times))
    amount = sample.amount * times
    return Rate(amount / min(rounds), amount / statistics.median(rounds))


def _repetitions(engine: Timer, work: Work) -> int:
    """Return how many calls take long enough to be timed."""
    times = 1
    while times < 1 << 20:
        taken = engine.seconds(work, times)
        if taken >= _LONG_ENOUGH:
            break
        times *= 2 if taken <= 0 else min(16, max(2, int(_LONG_ENOUGH / taken) + 1))
    return times


_HOW = "irscope calibrate on this machine: lo is the median, hi the best that was seen"


def record_of(engine: Engine, rates: Measurement, date: str, sessions: SessionRates | None = None) -> dict[str, object]:
    """Return the device file's content; `sessions` are the rates of ONNX Runtime's kernels."""
    best = _falling(rates.streams)
    calls = {**rates.operators, **(sessions.overheads if sessions else {})}
    record: dict[str, object] = {
        "name": "this" if engine.kind == "cpu" else "this-gpu",
        "title": engine.title,
        "kind": engine.kind,
        "calibrated": True,
        "sources": {"here": {"text": _HOW, "date": date}},
        "matrix": _rates(rates.products),
        "kernels": {kind: _rates(by_type) for kind, by_type in rates.convolutions.items()},
        "sessions": {kind: _rates(by_type) for kind, by_type in (sessions.kernels if sessions else {}).items()},
        "session_elements": {kind: _figure(rate, 1e9, "Gelement/s") for kind, rate in (sessions.elements if sessions else {}).items()},
        # A processor's vector rate is at most that of its matrix products.
        "vector": _rates({dtype: rate for dtype, rate in rates.products.items() if dtype in ("f32", "f64")}),
        "functions": _figure(rates.functions, 1e9, "Gelement/s"),
        "bandwidth": _figure(best[max(best)], 1e9, "GB/s"),
        "levels": [
            {"name": "working set", "size": {"value": size, "unit": "B", "source": "here"}, "bandwidth": _figure(rate, 1e9, "GB/s")}
            for size, rate in best.items()
            if size != max(best)
        ],
        "overheads": {name: _time(rate) for name, rate in calls.items()},
    }
    if "operator" in rates.operators:
        record["launch"] = _time(rates.operators["operator"])
    if engine.kind == "cpu" and (bits := vector_bits()) is not None:
        record["vector_bits"] = {"value": bits, "source": "here"}
    if engine.memory_bytes:
        record["memory"] = {"value": engine.memory_bytes, "unit": "B", "source": "here"}
    return record


def save(record: Mapping[str, object], path: Path | None = None) -> tuple[Path, DeviceProfile]:
    """Write the record where `find_device` looks for it (or elsewhere), and read it back."""
    target = path or calibration_file(str(record["name"]))
    text = json.dumps(record, indent=2) + "\n"
    profile = parse_profile(text, str(target))
    make_folder(target.parent)
    write_text(target, [text])
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


def _rates(rates: Mapping[str, Rate]) -> dict[str, object]:
    return {elements: _figure(rate, 1e9, "GFLOP/s") for elements, rate in rates.items()}


def _figure(rate: Rate, scale: float, unit: str) -> dict[str, object]:
    return {"lo": _five_digits(rate.median / scale), "hi": _five_digits(rate.best / scale), "unit": unit, "source": "here"}


def _time(rate: Rate) -> dict[str, object]:
    """Return the seconds for one, from calls a second."""
    return {"lo": _five_digits(1e9 / rate.best), "hi": _five_digits(1e9 / rate.median), "unit": "ns", "source": "here"}


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")
