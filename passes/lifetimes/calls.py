"""The Python call stack and the executed statements of a traced model, reconstructed from the source locations in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from irscope.ir.graph import Node, Value
from irscope.ir.places import CALLED_MODULE, Loc, Scope


@dataclass(eq=False, slots=True)
class Run:
    """One execution of a statement of a function."""

    line: int
    first: int
    last: int
    place: int = 0
    """How many statements of the function were executed before."""
    makes: list[Value] = field(default_factory=list)
    """Its results that later statements of the function use."""


@dataclass(eq=False, slots=True)
class Call:
    """One call of a Python function."""

    file: str
    function: str
    caller: Call | None
    scope: Scope | None
    """The module that was called; None for other functions."""
    first: int
    last: int
    depth: int
    runs: list[Run] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    child: Scope | None = None
    """The module that the current statement called last."""
    binds: dict[int | str, list[int]] = field(default_factory=dict)
    """Indices of the executions that bind a variable, by line and name."""
    times: dict[int, int] = field(default_factory=dict)
    """How often each line was executed."""

    def run_at(self, step: int) -> Run:
        """The statement that ran at a step."""
        low, high = 0, len(self.runs) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.runs[middle].first <= step:
                low = middle
            else:
                high = middle - 1
        return self.runs[low]


def calls_of(steps: Sequence[Node]) -> list[Call | None]:
    """The innermost call at each step; None where the file does not record it."""
    return _Calls(steps).found


class _Calls:
    """Tracks the call stack from step to step."""

    def __init__(self, steps: Sequence[Node]) -> None:
        self.found: list[Call | None] = []
        self._open: list[Call] = []
        for step, node in enumerate(steps):
            if node.loc is None or node.loc.statement:
                self.found.append(None)
                continue
            self._step(step, _frames(node.loc), node.scope)
            self.found.append(self._open[-1] if self._open else None)

    def _step(self, step: int, frames: list[Loc], scope: Scope) -> None:
        scopes = _scopes(frames, scope)
        kept = 0
        for call, frame, called in zip(self._open, frames, scopes, strict=False):
            if (call.file, call.function) != (frame.file, frame.function) or call.scope is not called:
                break
            if kept and self._open[kept - 1].runs[-1].line != frames[kept - 1].line:
                break
            if called is None and _begins_again(call, frame.line):
                break
            kept += 1
        del self._open[kept:]
        for frame, called in zip(frames[kept:], scopes[kept:], strict=True):
            caller = self._open[-1] if self._open else None
            self._open.append(Call(frame.file, frame.function, caller, called, step, step, len(self._open)))
        for call, frame, child in zip(self._open, frames, [*self._open[1:], None], strict=True):
            call.last = step
            _advance(call, frame.line, step, child.scope if child is not None else None)


def _begins_again(call: Call, line: int) -> bool:
    """Whether a function that belongs to no module starts again at its first line: then a loop in its caller calls it again."""
    return call.runs[0].line == line != call.runs[-1].line


def _advance(call: Call, line: int, step: int, child: Scope | None) -> None:
    runs = call.runs
    before, call.child = call.child, child or call.child
    if runs and runs[-1].line == line:
        if child is None or before is None or not _is_next_round(before, child):
            runs[-1].last = step
        else:
            runs.append(Run(line, step, step))
        return
    first = step
    if line not in call.lines:
        # An earlier line that follows later ones and was not executed before ends a statement that spans them.
        while runs and runs[-1].line > line:
            first = runs.pop().first
    call.lines.add(line)
    runs.append(Run(line, first, step))


def _is_next_round(before: Scope, child: Scope) -> bool:
    """Whether a call of a module by the line that called another begins the next iteration of a loop."""
    if before is child:
        return False
    if before.name == child.name:
        return True
    stem, _, number = child.name.rpartition(".")
    return number.isdecimal() and before.name.rpartition(".")[0] == stem


def _frames(loc: Loc) -> list[Loc]:
    found: list[Loc] = []
    at: Loc | None = loc
    while at is not None:
        found.append(at)
        at = at.caller
    found.reverse()
    return found


def _scopes(frames: list[Loc], scope: Scope) -> list[Scope | None]:
    """The module call that each frame begins."""
    scopes: list[Scope] = []
    inner: Scope | None = scope
    while inner is not None:
        scopes.append(inner)
        inner = inner.parent
    scopes.reverse()
    rest = iter(scopes)
    return [next(rest, None) if frame.function.startswith(CALLED_MODULE) else None for frame in frames]


def common_call(maker: Call, reader: Call) -> tuple[Call | None, list[Call]]:
    """The innermost call that contains definition and use, and the calls inside it to which the value was passed."""
    given: list[Call] = []
    above: Call | None = maker
    below: Call | None = reader
    while above is not below:
        if below is not None and (above is None or below.depth >= above.depth):
            given.append(below)
            below = below.caller
        elif above is not None:
            above = above.caller
    return below, given
