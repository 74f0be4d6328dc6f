"""Reads the values of many tensors once, in several threads. The result does not depend on the number of threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias, TypeVar

import numpy as np

from irscope.weights.elements import WIDE, is_narrow, packed_bytes
from irscope.weights.patterns import OUTLIER, element_counts, narrow_statistics, wide_shape
from irscope.weights.result import Spectrum, TensorStatistics, Unread
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.structure import Structure
from irscope.weights.tensors import Stored
from irscope.weights.window import Part, Window

Tick: TypeAlias = Callable[[int, int, str], None]
"""Progress callback, called several times a second with bytes done, bytes in all and a text; raises to cancel."""

R = TypeVar("R")
_JOB = 16 << 20
"""Bytes that a thread takes at once."""
_PAUSE = 0.1
_MOST_THREADS = 8


class Stopped(Exception):
    """A thread was told to stop; never leaves this package."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be found, and with how many threads (0: one for every processor)."""

    histogram: bool = True
    near_zero: float = 1e-6
    threads: int = 0


def thread_count(wanted: int) -> int:
    """How many threads to use."""
    if wanted > 0:
        return wanted
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, _MOST_THREADS)


class Pool:
    """Runs jobs in threads, a few ahead, and hands back results in the order of the jobs. Leaving it stops what still runs."""

    def __init__(self, threads: int, total: int, what: str, tick: Tick | None) -> None:
        self._threads = thread_count(threads)
        self._executor = ThreadPoolExecutor(self._threads, "irscope-weights")
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = 0
        self._total = total
        self._what = what
        self._tick = tick
        self._started = perf_counter()
        self._shown = 0.0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def advance(self, count: int) -> None:
        """Called by jobs: so many bytes are done. Raises where the work is to stop."""
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            self._done += count

    def map(self, jobs: Iterator[Callable[[], R]]) -> Iterator[R]:
        """Results in order."""
        ahead: deque[Future[R]] = deque()
        for job in jobs:
            ahead.append(self._executor.submit(job))
            if len(ahead) > 3 * self._threads:
                yield self._result(ahead.popleft())
        while ahead:
            yield self._result(ahead.popleft())

    def _result(self, future: Future[R]) -> R:
        while not wait((future,), _PAUSE).done:
            self.tell()
        self.tell()
        return future.result()

    def tell(self) -> None:
        """Report progress, at most every tenth of a second."""
        now = perf_counter()
        if self._tick is None or now - self._shown < _PAUSE:
            return
        self._shown = now
        spent = now - self._started
        speed = self._done / spent if spent > 0 else 0.0
        left = f", {(self._total - self._done) / speed:.0f} s left" if speed > 0 and spent > 1 else ""
        self._tick(self._done, self._total, f"{self._what} {speed / 1e9:.1f} GB/s{left}")


@dataclass(slots=True)
class _Task:
    """A tensor in work."""

    tensor: Stored
    structure: Structure | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive windows of a tensor."""

    index: int
    first: int
    last: int


def scan(
    tensors: Sequence[Stored | Unread], files: WeightFiles, options: Options = Options(), tick: Tick | None = None
) -> list[TensorStatistics | Unread]:
    """Statistics of each tensor in order, or why there are none. One pass over the bytes, and a second one for outliers."""
    tasks = [_task(tensor) if isinstance(tensor, Stored) else None for tensor in tensors]
    local = threading.local()

    def window() -> Window:
        if not hasattr(local, "window"):
            local.window = Window(files, options.near_zero, options.histogram)
        made: Window = local.window
        return made

    def measure(pieces: list[_Piece]) -> list[Part | None]:
        with np.errstate(all="ignore"):
            return [_measure(tasks[piece.index], piece, window(), pool.advance) for piece in pieces]

    total = sum(tensor.bytes for tensor in tensors if isinstance(tensor, Stored))
    parts: dict[int, Part] = {}
    found: list[TensorStatistics | Unread] = [tensor if isinstance(tensor, Unread) else Unread("") for tensor in tensors]
    extremes: dict[int, list[tuple[float, float]]] = {}
    with Pool(options.threads, total, "weights", tick) as pool:
        batches = list(_batches(tasks))
        for pieces, made in zip(batches, pool.map(lambda p=p: measure(p) for p in batches), strict=True):  # type: ignore[misc]  # a default binds it now
            for piece, part in zip(pieces, made, strict=True):
                task = tasks[piece.index]
                assert task is not None
                if part is not None:
                    parts.setdefault(piece.index, Part()).add(part)
                if task.failed:
                    found[piece.index] = Unread(task.failed)
                    parts.pop(piece.index, None)
                elif piece.last * task.tensor.window >= task.tensor.count:
                    whole = parts.pop(piece.index, Part())
                    extremes[piece.index] = whole.extremes
                    found[piece.index] = _statistics(task, whole, options)
    _count_outliers(tasks, found, extremes, files, options, tick)
    return found


def _task(tensor: Stored) -> _Task:
    return _Task(tensor, Structure(tensor.axes) if tensor.axes is not None and tensor.count else None)


def _batches(tasks: Sequence[_Task | None]) -> Iterator[list[_Piece]]:
    """Work for a thread: part of a large tensor, or several small ones."""
    batch: list[_Piece] = []
    size = 0
    for index, task in enumerate(tasks):
        if task is None:
            continue
        tensor = task.tensor
        bits = tensor.dtype.bits or 8
        windows = -(-tensor.count // tensor.window) or 1
        step = max(1, _JOB // packed_bytes(tensor.window, bits))
        for first in range(0, windows, step):
            last = min(first + step, windows)
            batch.append(_Piece(index, first, last))
            size += packed_bytes(min(last * tensor.window, tensor.count) - first * tensor.window, bits)
            if size >= _JOB or len(batch) >= 256:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _measure(task: _Task | None, piece: _Piece, window: Window, advance: Callable[[int], None]) -> Part | None:
    """The windows of a piece; None where they cannot be read."""
    assert task is not None
    tensor, part = task.tensor, Part()
    bits = tensor.dtype.bits or 8
    for number in range(piece.first, piece.last):
        if task.failed:
            return None
        start, stop = number * tensor.window, min((number + 1) * tensor.window, tensor.count)
        if start < stop:
            try:
                window.measure(tensor, start, stop, part, task.structure)
            except Unreadable as problem:
                task.failed = str(problem)
                return None
            advance(packed_bytes(stop - start, bits))
    return part


def _statistics(task: _Task, part: Part, options: Options) -> TensorStatistics:
    tensor, moments = task.tensor, part.moments
    if is_narrow(tensor.dtype):
        counts = np.zeros(1 << (tensor.dtype.bits or 8), np.int64)
        if part.words is not None and part.codes is not None:
            if tensor.dtype.bits != 6:
                counts = element_counts(part.words, tensor.dtype.bits or 8)
            counts = counts + part.codes
        with np.errstate(all="ignore"):
            made = narrow_statistics(counts, tensor.dtype, options.near_zero)
    else:
        made = TensorStatistics(tensor.count, part.nan, part.inf, part.zeros, part.near_zeros)
        if moments.count:
            made.mean, made.std, made.min, made.max = moments.average, moments.deviation, moments.low, moments.high
            made.l1, made.l2, made.skewness, made.kurtosis = moments.l1, moments.l2, moments.skewness, moments.kurtosis
        if part.words is not None:
            with np.errstate(all="ignore"):
                wide_shape(part.words, 11 if WIDE[tensor.dtype] == np.float64 else 8, made)
        made.fingerprint = (tensor.dtype, made.nan, made.inf, made.zeros, moments.mean, moments.m2, moments.m3, moments.absolute)
    _add_structure(made, task, part)
    return made


def _add_structure(made: TensorStatistics, task: _Task, part: Part) -> None:
    structure = task.structure
    if structure is None:
        return
    rows, columns = (np.flatnonzero(~live).astype(np.int32) for live in (structure.rows, structure.columns))
    if task.tensor.is_swapped:
        rows, columns = columns, rows
    made.dead_rows, made.dead_columns = len(rows), len(columns)
    made.dead_row_indices, made.dead_column_indices = rows, columns
    if task.tensor.groups:
        made.two_of_four = part.groups / task.tensor.groups


def _count_outliers(
    tasks: Sequence[_Task | None],
    found: list[TensorStatistics | Unread],
    extremes: dict[int, list[tuple[float, float]]],
    files: WeightFiles,
    options: Options,
    tick: Tick | None,
) -> None:
    """Read again the windows whose extremes lie far out, now that the deviation is known."""
    looks: list[tuple[int, int, float, float]] = []
    for index, made in enumerate(found):
        task = tasks[index]
        if task is None or isinstance(made, Unread) or is_narrow(task.tensor.dtype) or made.mean is None or made.std is None:
            continue
        made.outliers = 0
        low, high = made.mean - OUTLIER * made.std, made.mean + OUTLIER * made.std
        if made.std > 0:
            looks += [(index, number, low, high) for number, (least, most) in enumerate(extremes[index]) if least < low or most > high]
    if not looks:
        return

    def look(batch: list[tuple[int, int, float, float]]) -> list[int | None]:
        window = Window(files, options.near_zero, False)
        return [_look(tasks[index], number, low, high, window, pool.advance) for index, number, low, high in batch]

    batches = [looks[start : start + 64] for start in range(0, len(looks), 64)]
    with Pool(options.threads, len(looks), "outliers", tick) as pool:
        for batch, counts in zip(batches, pool.map(lambda b=b: look(b) for b in batches), strict=True):  # type: ignore[misc]  # a default binds it now
            for (index, *_), count in zip(batch, counts, strict=True):
                made = found[index]
                if isinstance(made, TensorStatistics) and made.outliers is not None:
                    made.outliers = None if count is None else made.outliers + count


def _look(task: _Task | None, number: int, low: float, high: float, window: Window, advance: Callable[[int], None]) -> int | None:
    assert task is not None
    advance(1)
    tensor = task.tensor
    start, stop = number * tensor.window, min((number + 1) * tensor.window, tensor.count)
    try:
        return window.outside(tensor, start, stop, low, high)
    except Unreadable:
        return None


def spectra(
    tensors: Sequence[Stored | Unread],
    found: Sequence[TensorStatistics | Unread],
    files: WeightFiles,
    iterations: int,
    options: Options,
    tick: Tick | None = None,
) -> None:
    """Add the spectral norm of every matrix to its statistics."""
    from irscope.weights.spectral import spectrum

    pairs = [(tensor, made) for tensor, made in zip(tensors, found, strict=True) if isinstance(tensor, Stored)]
    jobs = [(tensor, made) for tensor, made in pairs if isinstance(made, TensorStatistics)]

    def one(tensor: Stored, made: TensorStatistics) -> Spectrum | None:
        try:
            with np.errstate(all="ignore"):
                return spectrum(tensor, made, Window(files, options.near_zero, False), iterations, pool.advance)
        except Unreadable:
            return None

    total = sum(tensor.count for tensor, _ in jobs) * iterations
    with Pool(options.threads, total, "spectral norms", tick) as pool:
        calls = (lambda t=tensor, m=made: one(t, m) for tensor, made in jobs)
        for (_, made), spectral in zip(jobs, pool.map(calls), strict=True):
            made.spectrum = spectral
