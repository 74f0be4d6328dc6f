"""Reads the values of many tensors once, in several threads. The result does not depend on the number of threads."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias, TypeVar

import numpy as np

from irscope.compiled import can_compile, is_kept
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.weights.result import OUTLIER, Spectrum, TensorStatistics, Unread, element_counts, narrow_statistics, wide_shape
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import WIDE, Floats, Stored, Structure, decode_elements, is_narrow, packed_bytes
from irscope.weights.window import Part, Window, compile_sums

Tick: TypeAlias = Callable[[int, int, str], None]
"""Progress callback, called several times a second with bytes done, bytes in all and a text; raises to cancel."""

R = TypeVar("R")
_JOB = 16 << 20
"""Bytes that a thread takes at once."""
_HOLD_STEP = 1 << 20
_MACHINE_CODE = "irscope.weights.powers"
_PAUSE = 0.1
_PAYS_LOADING = 1 << 28
_PAYS_COMPILING = 2 << 30
"""Bytes of float32 from which machine code saves more than loading takes, a fifth of a CPU second, or compiling, about one."""
_MOST_THREADS = 8


class Stopped(Exception):
    """A thread was told to stop; never leaves this package."""


@dataclass(frozen=True, slots=True)
class Options:
    """Statistics to compute, and the number of threads (0: one for every processor)."""

    histogram: bool = True
    near_zero: float = 1e-6
    threads: int = 0


def thread_count(wanted: int) -> int:
    """Return how many threads to use."""
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
        """Yield results in order."""
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


@immutable
class _Piece:
    """Consecutive windows of a tensor."""

    index: int
    first: int
    last: int


def lots(tensors: Sequence[Stored | Unread], most: int) -> Iterator[list[int]]:
    """Yield tensors that are held together: neighbours of so many bytes at most; a larger one comes alone."""
    lot: list[int] = []
    room = most
    for index, tensor in enumerate(tensors):
        size = tensor.bytes if isinstance(tensor, Stored) else 0
        if lot and size > room:
            yield lot
            lot, room = [], most
        lot.append(index)
        room -= size
    if lot:
        yield lot


def hold(tensors: Sequence[Stored | Unread], files: WeightFiles, threads: int, most: int, tick: Tick | None = None) -> None:
    """Read the bytes of tensors into memory, from which `files` has them until something else is held; not what is larger than `most`."""
    files.hold(())
    sources = dict.fromkeys(
        tensor.source for tensor in tensors if isinstance(tensor, Stored) and tensor.source.data is None and tensor.source.descriptor >= 0
    )
    some = [source for source in sources if 0 < source.length <= most]
    held = [np.empty(source.length, np.uint8).data for source in some]
    failed: set[int] = set()

    def read(index: int, first: int) -> None:
        part = held[index][first : first + _JOB]
        try:
            for start in range(0, len(part), _HOLD_STEP):
                files.read_into(some[index], first + start, part[start : start + _HOLD_STEP])
                pool.advance(min(_HOLD_STEP, len(part) - start))
        except Unreadable:
            # Whoever needs it reads it again, and says why that cannot be.
            failed.add(index)

    with Pool(threads, sum(source.length for source in some), "reading weights", tick) as pool:
        parts = [(index, first) for index, source in enumerate(some) for first in range(0, source.length, _JOB)]
        for _ in pool.map(lambda i=index, f=first: read(i, f) for index, first in parts):  # type: ignore[misc]  # a default binds it now
            pass
    files.hold((source, data) for index, (source, data) in enumerate(zip(some, held, strict=True)) if index not in failed)


def scan(
    tensors: Sequence[Stored | Unread],
    files: WeightFiles,
    options: Options = Options(),
    tick: Tick | None = None,
    compiled: bool | None = None,
) -> list[TensorStatistics | Unread]:
    """Statistics of each tensor in order, or why there are none. One pass over the bytes, and a second one for outliers."""
    tasks = [_task(tensor) if isinstance(tensor, Stored) else None for tensor in tensors]
    local = threading.local()
    compiled = pays_to_compile(tensors) if compiled is None else compiled
    if compiled:
        _compile(tick)

    def window() -> Window:
        if not hasattr(local, "window"):
            local.window = Window(files, options.near_zero, options.histogram, compiled=compiled)
        made: Window = local.window
        return made

    def measure(pieces: list[_Piece]) -> list[Part | None]:
        with np.errstate(all="ignore"):
            return [_window_sums(tasks[piece.index], piece, window(), pool.advance) for piece in pieces]

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


def _compile(tick: Tick | None) -> None:
    """Make the machine code where it is not kept, in a thread of its own, so that whoever cancels need not wait for it."""
    if is_kept(_MACHINE_CODE):
        return
    compiling = threading.Thread(target=compile_sums, name="irscope-compile")
    compiling.start()
    while compiling.is_alive():
        compiling.join(_PAUSE)
        if tick is not None:
            tick(0, 0, "compiling the sums, once")


def pays_to_compile(tensors: Sequence[Stored | Unread]) -> bool:
    """Return whether machine code pays for these."""
    amount = sum(tensor.bytes for tensor in tensors if isinstance(tensor, Stored) and tensor.dtype is DType.F32)
    return can_compile() and amount >= (_PAYS_LOADING if is_kept(_MACHINE_CODE) else _PAYS_COMPILING)


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


def _window_sums(task: _Task | None, piece: _Piece, window: Window, advance: Callable[[int], None]) -> Part | None:
    """Return the windows of a piece; None where they cannot be read."""
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
                wide_shape(part.words, 11 if WIDE[tensor.dtype] == np.float64 else 8, made, tensor.dtype)
        made.fingerprint = (tensor.dtype, made.nan, made.inf, made.zeros, moments.mean, moments.m2, moments.m3, moments.absolute)
    _add_structure(made, task, part)
    return made


def _add_structure(made: TensorStatistics, task: _Task, part: Part) -> None:
    structure = task.structure
    if structure is None:
        return
    dead = tuple(int(np.count_nonzero(~live)) for live in (structure.rows, structure.columns))
    made.dead_rows, made.dead_columns = reversed(dead) if task.tensor.is_swapped else dead
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


# The largest singular value of a matrix by Lanczos iteration on AᵀA, reading its rows as a stream.
#
# Power iteration on a dense random matrix is 1 to 2 % low after thirty steps: its largest singular values lie close together. Lanczos takes
# the best vector of all that the same steps have made, and tells how far that still is from being one of A's own.

_ENOUGH = 1e-4
_CHECK_EVERY = 4
"""Iterations between two computations of the small matrix's eigenvalues, which take cubic time."""
_MOST_KEPT = 1 << 25
"""Numbers of all vectors together; with more the iteration starts again from the best it has found."""
_ROUNDING = 1 + 1e-12
"""Factor by which sums of so many products may be off."""
_DOUBT = 1e-3
"""Probability that the upper end of an iteration that has not converged is too low."""


def spectrum(tensor: Stored, made: TensorStatistics, window: Window, iterations: int, advance: Callable[[int], None]) -> Spectrum | None:
    """Return the spectral norm of a tensor as a matrix of its rows; None for what is no matrix of finite numbers.

    The residual is |AᵀAv - σ²v| / σ²: some singular value is that close to σ, in relative terms. The largest is at least σ, which is |Av|
    of a unit vector.
    """
    axes = tensor.axes
    if axes is None or min(axes.rows, axes.row) < 2 or made.finite < made.count or tensor.window % axes.row or not made.absmax:
        return None
    largest, row = made.absmax, axes.row

    def gram(vector: Floats) -> Floats:
        product = np.zeros(row)
        for start in range(0, tensor.count, tensor.window):
            stop = min(start + tensor.window, tensor.count)
            rows = decode_elements(window.raw(tensor, start, stop), tensor.dtype, stop - start).reshape(-1, row).astype(np.float64)
            # In units of the largest element, so that squares of large or tiny ones stay in range.
            rows /= largest
            product += (rows @ vector) @ rows
            advance(stop - start)
        return product

    square, residual, steps, depth = _lanczos(gram, row, iterations)
    norm = math.sqrt(square) * largest
    if not norm:
        return Spectrum(0.0, 0.0, 0.0, steps, made.l2)
    l2 = made.l2
    return Spectrum(norm, residual, (l2 / norm) ** 2, steps, max(norm, min(l2, norm * _may_exceed(residual, row, depth) * _ROUNDING)))


def _lanczos(gram: Callable[[Floats], Floats], size: int, iterations: int) -> tuple[float, float, int, int]:
    """Return the largest eigenvalue that so many products show, its relative residual, how many products it took, and how many from one
    start."""
    room = max(2, min(iterations, size, _MOST_KEPT // size))
    basis = np.empty((room, size))
    small = np.zeros((room, room))
    vector: Floats = np.random.default_rng(0).standard_normal(size)
    vector /= np.linalg.norm(vector)
    square, residual, steps, kept = 0.0, math.inf, 0, 0
    while steps < iterations:
        basis[kept] = vector
        product = gram(vector)
        steps += 1
        small[kept, kept] = float(vector @ product)
        kept += 1
        # Rounding lets vectors lose their right angles as soon as one eigenvector is found, so all of them are taken out, twice.
        for _ in range(2):
            product -= basis[:kept].T @ (basis[:kept] @ product)
        length = float(np.linalg.norm(product))
        is_done = length <= 1e-14 * abs(small[:kept, :kept]).max() or kept == size
        if is_done or kept == room or steps == iterations or steps % _CHECK_EVERY == 0:
            values, vectors = np.linalg.eigh(small[:kept, :kept])
            square = max(float(values[-1]), 0.0)
            residual = 0.0 if is_done else length * abs(float(vectors[-1, -1])) / square if square else math.inf
            if is_done or residual < _ENOUGH:
                break
            if kept == room:
                vector = vectors[:, -1] @ basis[:kept]
                vector /= np.linalg.norm(vector)
                small[:], kept = 0.0, 0
                continue
        small[kept - 1, kept] = small[kept, kept - 1] = length
        vector = product / length
    return square, residual, steps, min(steps, room)


def _may_exceed(residual: float, size: int, depth: int) -> float:
    """Return how many times larger than what was found the largest singular value may be.

    After convergence the residual bounds it. Before, the bound of Kuczynski and Wozniakowski (SIAM J. Matrix Anal. Appl. 13, 1992,
    theorem 4.2) for a random start holds whatever the spectrum: P(error of the eigenvalue > e) < 1.648 sqrt(n) exp(-sqrt(e) (2k - 1)).
    """
    if residual < _ENOUGH:
        return math.sqrt(1 + residual)
    error = (math.log(1.648 * math.sqrt(size) / _DOUBT) / (2 * depth - 1)) ** 2
    return math.sqrt(1 / (1 - error)) if error < 1 else math.inf


# Tensors with the same contents: candidates share a fingerprint, and are then compared byte by byte.

_STEP = 1 << 20


def duplicates(
    tensors: Sequence[Stored | Unread], found: Sequence[TensorStatistics | Unread], files: WeightFiles, tick: Tick | None = None
) -> list[list[int]]:
    """Return groups of tensors with equal contents, each in order. Tensors of one number everywhere need no comparison."""
    by_fingerprint: dict[object, list[int]] = {}
    for index, made in enumerate(found):
        tensor = tensors[index]
        if isinstance(made, TensorStatistics) and isinstance(tensor, Stored) and made.count and tensor.compute is None:
            key = ("constant", tensor.dtype, made.count, made.min) if made.is_constant else (made.count, made.fingerprint)
            by_fingerprint.setdefault(key, []).append(index)
    groups: list[list[int]] = []
    candidates = [group for group in by_fingerprint.values() if len(group) > 1]
    total = sum(_bytes_of_group(tensors, group) for group in candidates)
    with Pool(1, total, "duplicates", tick) as pool:
        for group in candidates:
            first = found[group[0]]
            if isinstance(first, TensorStatistics) and first.is_constant:
                groups.append(group)
                continue
            for classes in pool.map(iter([lambda g=group: _classes(g, tensors, files, pool)])):  # type: ignore[misc]  # a default binds it now
                groups += classes
    return sorted(group for group in groups if len(group) > 1)


def _bytes_of_group(tensors: Sequence[Stored | Unread], group: list[int]) -> int:
    return sum(tensor.bytes for index in group if isinstance(tensor := tensors[index], Stored))


def _classes(group: list[int], tensors: Sequence[Stored | Unread], files: WeightFiles, pool: Pool) -> list[list[int]]:
    """Return the members of a group by their contents."""
    classes: list[list[int]] = []
    for index in group:
        for known in classes:
            if _same_bytes(tensors[known[0]], tensors[index], files, pool):
                known.append(index)
                break
        else:
            classes.append([index])
    return classes


def _same_bytes(one: Stored | Unread, other: Stored | Unread, files: WeightFiles, pool: Pool) -> bool:
    if not isinstance(one, Stored) or not isinstance(other, Stored) or one.bytes != other.bytes:
        return False
    if one.source == other.source:
        return True
    buffers = np.empty((2, min(_STEP, one.bytes)), np.uint8)
    for start in range(0, one.bytes, _STEP):
        count = min(_STEP, one.bytes - start)
        try:
            for buffer, tensor in zip(buffers, (one, other), strict=True):
                files.read_into(tensor.source, start, buffer.data[:count])
        except Unreadable:
            return False
        pool.advance(count)
        if not np.array_equal(buffers[0, :count], buffers[1, :count]):
            return False
    return True
