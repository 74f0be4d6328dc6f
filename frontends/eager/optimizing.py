"""Where optimizers begin and end to work, without anything that a compiler of the program would see.

Hooks that torch has for this are traced by Dynamo: a graph would break at them, which in the program itself is none. So nothing is
registered with torch. In code that runs as it is, a step is the range that torch names to profilers around it, which Dynamo leaves out. In
compiled code it is a run of a graph in which an optimizer's step was traced.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch.optim import Optimizer

from irscope.frontends.eager import internals
from irscope.frontends.eager.recorder import around_compilations

_FILE: Final = sys.modules[Optimizer.__module__].__file__
_STEP: Final = "Optimizer.step#"
_CLEAR: Final = "Optimizer.zero_grad#"
"""Prefixes of the names of the ranges; the class follows."""
_TRACED: Final = "irscope_steps"
"""Attribute of what Dynamo traces one graph with, which cannot be hashed; where it begins again it makes another."""

Told = Callable[[Optimizer], None]


@contextmanager
def watched_steps(entered: Told, left: Told, cleared: Callable[[Optimizer, bool], None] | None = None) -> Iterator[None]:
    """A context in which functions are called before and after every optimizer's step that runs as it is.

    `cleared` is called before gradients are dropped, or filled with zeros, with `set_to_none`.
    """
    with ExitStack() as undo:
        _watch_ranges(_Steps(entered, left), cleared, undo)
        yield


@contextmanager
def watched_compiled_steps(entered: Told, left: Told, cleared: Callable[[Optimizer, bool], None] | None = None) -> Iterator[None]:
    """Watch steps like `watched_steps`, also those that torch.compile compiles; Dynamo is imported for it."""
    # What is called from code that Dynamo cut into pieces is offered to it too.
    aside: Any = torch.compiler.disable
    steps = _Steps(aside(entered), aside(left))
    with ExitStack() as undo:
        _watch_ranges(steps, None if cleared is None else aside(cleared), undo)
        _watch_ends(steps, undo)
        _watch_graphs(steps, undo)
        yield


class _Steps:
    """The steps that have begun and not ended."""

    def __init__(self, entered: Told, left: Told) -> None:
        self._entered, self._left = entered, left
        self._open: dict[int, Optimizer] = {}
        self.ranges: dict[int, Optimizer] = {}
        """By the range around the step, where it runs as it is."""

    def begin(self, optimizer: Optimizer) -> bool:
        """Note that it works from now on, and return whether it did not yet: a step may call that of the class below."""
        if id(optimizer) in self._open:
            return False
        self._open[id(optimizer)] = optimizer
        self._entered(optimizer)
        return True

    def end(self, optimizer: Optimizer) -> None:
        """Note that the optimizer has worked; of a step in several graphs maybe only the end was seen."""
        self.begin(optimizer)
        del self._open[id(optimizer)]
        self._left(optimizer)

    def drop(self, optimizer: Optimizer) -> None:
        """Note that its step has failed."""
        self._open.pop(id(optimizer), None)

    def is_range(self, optimizer: Optimizer) -> bool:
        """Return whether the end of the range will be the end of the step."""
        return any(one is optimizer for one in self.ranges.values())


def _watch_ranges(steps: _Steps, cleared: Callable[[Optimizer, bool], None] | None, undo: ExitStack) -> None:
    kind: Any = torch.autograd.profiler.record_function
    enters, exits = kind.__enter__, kind.__exit__

    def enter(function: Any) -> Any:
        made = enters(function)
        name = function.name
        if name.startswith(_STEP):
            optimizer = _caller(sys._getframe(1)).f_locals["self"]
            if steps.begin(optimizer):
                steps.ranges[id(function)] = optimizer
        elif cleared is not None and name.startswith(_CLEAR):
            known = _caller(sys._getframe(1)).f_locals
            cleared(known["self"], known["set_to_none"])
        return made

    def leave(function: Any, *raised: Any) -> Any:
        optimizer = steps.ranges.pop(id(function), None) if steps.ranges else None
        try:
            if optimizer is not None:
                (steps.drop if raised and raised[0] is not None else steps.end)(optimizer)
        finally:
            exits(function, *raised)

    kind.__enter__, kind.__exit__ = enter, leave
    undo.callback(setattr, kind, "__enter__", enters)
    undo.callback(setattr, kind, "__exit__", exits)


def _caller(frame: FrameType | None) -> FrameType:
    """Return the function of torch that opens the range."""
    while frame is not None and frame.f_code.co_filename != _FILE:
        frame = frame.f_back
    assert frame is not None, "only torch names its ranges so"
    return frame


def _watch_ends(steps: _Steps, undo: ExitStack) -> None:
    """Know of the ends of steps that Dynamo has cut into several pieces, where it leaves out the range around them.

    torch calls a function that does nothing after every step. What Dynamo does not compile for want of operators calls it too; while Dynamo
    traces, it finds torch's own.
    """
    kind: Any = Optimizer
    original = kind._optimizer_step_code

    def note(optimizer: Optimizer) -> None:
        if not steps.is_range(optimizer):
            steps.end(optimizer)
        original(optimizer)

    ended = _Function(original.__code__, torch.compiler.disable(note))
    kind._optimizer_step_code = ended
    undo.callback(setattr, kind, "_optimizer_step_code", original)
    undo.callback(
        around_compilations(
            lambda: setattr(kind, "_optimizer_step_code", original),
            lambda: setattr(kind, "_optimizer_step_code", ended),
        )
    )


@dataclass
class _Function:
    """A method that runs another function. The profiler looks for calls of its code, which are those of torch's own."""

    __code__: CodeType
    runs: Callable[..., None]

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self.runs, owner)


@dataclass
class _Traced:
    """Optimizers in a graph; a reference would keep them, and what they hold, as long as the compiled code is there."""

    begin: dict[int, weakref.ref[Optimizer]] = field(default_factory=dict)
    end: list[weakref.ref[Optimizer]] = field(default_factory=list)
    """Once for each step that ends in the graph."""


def _watch_graphs(steps: _Steps, undo: ExitStack) -> None:
    """Note what Dynamo traces of steps, and put that around the graphs."""
    optimizers, reader = internals.dynamo_optimizers()
    graphs: Any = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    reads, compiles = getattr(optimizers, reader), graphs.call_user_compiler

    def read(variable: Any, tx: Any, name: str) -> Any:
        if name in ("_init_group", "_optimizer_step_code"):
            found = vars(tx.output).setdefault(_TRACED, _Traced())
            optimizer = weakref.ref(variable.value)
            found.begin.setdefault(id(variable.value), optimizer)
            if name == "_optimizer_step_code":
                found.end.append(optimizer)
            else:  # which Dynamo runs at once, before the graph: it makes the optimizer's states
                steps.begin(variable.value)
        return reads(variable, tx, name)

    def call_user_compiler(output: Any, *args: Any, **kwargs: Any) -> Any:
        function = compiles(output, *args, **kwargs)
        variable = vars(output).get(_TRACED)
        return function if variable is None else _around(function, variable, steps)

    undo.callback(internals.replaced(optimizers, reader, read))
    graphs.call_user_compiler = call_user_compiler

    def restore() -> None:
        # What was put around it meanwhile, such as what follows graph breaks, stays.
        if graphs.call_user_compiler is call_user_compiler:
            graphs.call_user_compiler = compiles

    undo.callback(restore)


def _around(graph: Callable[..., Any], traced: _Traced, steps: _Steps) -> Callable[..., Any]:
    @functools.wraps(graph)
    def run(*args: Any) -> Any:
        for one in traced.begin.values():
            if (optimizer := one()) is not None:
                steps.begin(optimizer)
        made = graph(*args)
        for one in traced.end:
            if (optimizer := one()) is not None:
                steps.end(optimizer)
        return made

    return run
