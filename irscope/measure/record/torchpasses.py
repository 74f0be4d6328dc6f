"""Runs of a model under PyTorch's profiler, one for each quantity: profiling everything at once would distort the times."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch._C._profiler import _EventType, _RecordFunctionFast
from torch.profiler import ProfilerActivity, profile
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from irscope.immutable import immutable
from irscope.measure.record.torchmodel import Runnable, type_text
from irscope.measure.record.trace import NODE, OUT, RUN, SCOPE, Allocation, Operator, Trace

_PREFIX = "irscope::"
_MANY = 1 << 16


@immutable
class _Context:
    """Place of an event in the tree."""

    trace: Trace | None = None
    scope: str = ""
    node: str = ""
    target: str = ""
    op: int | None = None
    kernel: int = -1
    kernel_name: str = ""


class _Walker:
    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.stray: list[Allocation] = []
        self.kernels = 0

    def walk(self, roots: list[Any]) -> None:
        """Depth first and without recursion: events are nested as deeply as the model's code is."""
        pending: list[tuple[Any, _Context]] = [(root, _Context()) for root in reversed(roots)]
        while pending:
            event, context = pending.pop()
            if event.tag == _EventType.Allocation:
                self._allocation(event, context)
                continue
            inner = self._entered(event, context) if event.tag == _EventType.TorchOp else context
            pending.extend((child, inner) for child in reversed(event.children))

    def _entered(self, event: Any, context: _Context) -> _Context:
        name: str = event.name
        if name.startswith(_PREFIX):
            return self._marked(name, event, context)
        trace = context.trace
        if trace is None or "::" not in name:  # another thread's work, or machinery of the dispatcher
            return context
        if context.op is None:
            context = replace(context, op=_operator(name, event, context, trace))
        assert context.op is not None
        if context.kernel < 0 and not is_composite(name):
            trace.operators[context.op].kernels.append(name)
            self.kernels += 1
            context = replace(context, kernel=self.kernels, kernel_name=name)
        return context

    def _marked(self, name: str, event: Any, context: _Context) -> _Context:
        kind, _, text = name.partition(" ")
        if kind == RUN:
            self.traces.append(Trace(event.start_time_ns, event.end_time_ns))
            return _Context(self.traces[-1])
        if kind == SCOPE:
            return replace(context, scope=text)
        if kind == OUT and context.trace is not None and context.op is not None:
            context.trace.operators[context.op].outs.append(int(text))
        if kind == NODE:
            node, _, target = text.partition(" ")
            return replace(context, node=node, target=target)
        return context

    def _allocation(self, event: Any, context: _Context) -> None:
        fields = event.extra_fields
        device = str(fields.device.type)
        made = Allocation(event.start_time_ns, fields.alloc_size, fields.allocation_id, device=device, address=fields.ptr)
        if context.trace is None:
            self.stray.append(made)
            return
        made.op, made.kernel, made.kernel_name, made.scope = context.op, context.kernel, context.kernel_name, context.scope
        made.inside = context.op is not None
        context.trace.allocations.append(made)


def traces_of(profile: torch.profiler.profile) -> list[Trace]:
    """Return the runs that a profile saw, in their order."""
    walker = _Walker()
    profiler: Any = profile.profiler
    walker.walk(profiler.kineto_results.experimental_event_tree())
    for trace, following in zip(walker.traces, [*walker.traces[1:], None], strict=True):
        last = following.start if following is not None else None
        trace.allocations += [block for block in walker.stray if block.time >= trace.start and (last is None or block.time < last)]
        trace.settle()
    return walker.traces


def _operator(name: str, event: Any, context: _Context, trace: Trace) -> int:
    """Number of the operator that a call belongs to: a node of a graph may make several calls."""
    taken = event.end_time_ns - event.start_time_ns
    last = trace.operators[-1] if trace.operators else None
    if last is not None and context.node and last.source == context.node:
        last.end = event.end_time_ns
        last.seconds += taken
    else:
        called = context.target or name
        made = Operator(called, event.start_time_ns, event.end_time_ns, context.node, context.scope, types_of(event), seconds=taken)
        trace.operators.append(made)
    return len(trace.operators) - 1


def types_of(event: Any) -> tuple[str, ...]:
    """Return the types of the tensors that a call got."""
    return tuple(_type_of(item) for item in _tensors(event.extra_fields.inputs))


def _tensors(items: Any) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list | tuple):
            yield from _tensors(item)
        elif hasattr(item, "sizes"):
            yield item


def _type_of(tensor: Any) -> str:
    return type_text(tensor.dtype, tensor.sizes)


@functools.cache
def is_composite(name: str) -> bool:
    """Return whether an operator only calls others, so that nothing below Python's autograd sees it as one."""
    try:
        _, overloads = torch._C._jit_get_operation(name)
    except RuntimeError:
        return False
    full = [f"{name}.{overload}" if overload else name for overload in overloads or [""]]
    return any(_has(one, "CompositeImplicitAutograd") for one in full)


@functools.cache
def result_count(name: str) -> int:
    """Return how many results an operator has; many where its schema is not known or returns a list."""
    try:
        _, overloads = torch._C._jit_get_operation(name)
        schemas = [torch._C._get_schema(name, overload) for overload in overloads or [""]]
    except RuntimeError:
        return _MANY
    if any(isinstance(one.type, torch.ListType) for schema in schemas for one in schema.returns):
        return _MANY
    return max((len(schema.returns) for schema in schemas), default=_MANY)


def _has(name: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    except RuntimeError:  # no operator of the dispatcher
        return False


# Runs of a model under PyTorch's profiler, one for each quantity: profiling everything at once would distort the times.


class Failed(Exception):
    """The model raised an error; what was seen until then."""

    def __init__(self, cause: Exception, trace: Trace) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.trace = trace


def memory_run(model: Runnable) -> Trace:
    """Return one run with every block that comes and goes. Raises Failed."""
    failure: Exception | None = None
    result: Any = None  # kept until the profile has ended: what it holds is the model's output
    watch = profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True)
    with quiet(), watch as seen, _RecordFunctionFast(f"{RUN} 0"):
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
    with quiet(), torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
        for number in range(repeats):
            started = time.perf_counter()
            with _RecordFunctionFast(f"{RUN} {number}"):
                model.marked()
            whole.append((time.perf_counter() - started) * 1e6)
    return traces_of(seen), whole


def plain_runs(model: Runnable, repeats: int) -> list[float]:
    """Return what runs take with nothing measured inside, in microseconds."""
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
    """Return one run whose operators carry the numbers of the calls they made."""
    calls = Calls()
    with quiet(), torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen, _RecordFunctionFast(f"{RUN} 0"), calls:
        model.marked()
    traces = traces_of(seen)
    return (traces[0] if traces else Trace()), calls


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
