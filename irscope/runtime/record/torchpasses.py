"""Runs of a model under PyTorch's profiler, one for each quantity: profiling everything at once would distort the times."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from irscope.runtime.record.dtypes import type_text
from irscope.runtime.record.events import traces_of
from irscope.runtime.record.torchmodel import Runnable
from irscope.runtime.record.trace import OUT, RUN, Trace


class Failed(Exception):
    """The model raised an error; what was seen until then."""

    def __init__(self, cause: Exception, trace: Trace) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.trace = trace


def memory_run(model: Runnable) -> Trace:
    """One run with every block that comes and goes. Raises Failed."""
    failure: Exception | None = None
    result: Any = None  # kept until the profile has ended: what it holds is the model's output
    watch = profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True)
    with _quiet(), watch as seen, _RecordFunctionFast(f"{RUN} 0"):
        try:
            with torch.no_grad():
                result = model.marked()
        except Exception as error:
            failure = error
    results = _addresses(result)
    del result
    traces = traces_of(seen)
    trace = traces[0] if traces else Trace()
    trace.results = results
    if failure is not None:
        failure.__traceback__ = None  # its frames keep tensors alive
        raise Failed(failure, trace)
    return trace


def _addresses(result: Any) -> frozenset[int]:
    leaves = pytree.tree_leaves(result)
    return frozenset(leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, torch.Tensor))


def timed_runs(model: Runnable, repeats: int) -> tuple[list[Trace], list[float]]:
    """Runs whose operators are timed, and what each run took as a whole in microseconds."""
    whole: list[float] = []
    with _quiet(), torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
        for number in range(repeats):
            started = time.perf_counter()
            with _RecordFunctionFast(f"{RUN} {number}"):
                model.marked()
            whole.append((time.perf_counter() - started) * 1e6)
    return traces_of(seen), whole


def plain_runs(model: Runnable, repeats: int) -> list[float]:
    """What runs take with nothing measured inside, in microseconds."""
    taken: list[float] = []
    with torch.no_grad():
        for _ in range(repeats):
            started = time.perf_counter()
            model.plain()
            taken.append((time.perf_counter() - started) * 1e6)
    return taken


class Calls(TorchDispatchMode):
    """Numbers the calls below autograd and keeps the types of their results; `watch` is told before and after each."""

    def __init__(self, watch: Callable[[], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # modes have no types
        self.types: list[tuple[str, ...]] = []
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._watch is not None:
            self._watch()
            result = func(*args, **(kwargs or {}))
            self._watch()
            return result
        with _RecordFunctionFast(f"{OUT} {len(self.types)}"):
            result = func(*args, **(kwargs or {}))
        items = result if isinstance(result, tuple | list) else [result]
        self.types.append(tuple(type_text(item.dtype, item.shape) for item in items if isinstance(item, torch.Tensor)))
        return result


def typed_run(model: Runnable) -> tuple[Trace, Calls]:
    """One run whose operators carry the numbers of the calls they made."""
    calls = Calls()
    with _quiet(), torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen, _RecordFunctionFast(f"{RUN} 0"), calls:
        model.marked()
    traces = traces_of(seen)
    return (traces[0] if traces else Trace()), calls


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the profiler's own library writes away from the terminal."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
