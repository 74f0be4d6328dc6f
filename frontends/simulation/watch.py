"""Record of a simulated program: its steps, the purposes of its memory, the lines that asked, the values that were read."""

from __future__ import annotations

import sys
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import nn

from irscope.frontends.eager.optimizing import watched_compiled_steps
from irscope.frontends.eager.recorder import Frames, Line, followed, watched_calls
from irscope.frontends.simulation.machine import BROUGHT, FRESH, Machine, Piece
from irscope.frontends.simulation.settings import class_of, uses_of
from irscope.memory.tape import Bytes
from irscope.passkit.script import LIBRARIES
from irscope.training import Phase

_STANDARD: Final = sysconfig.get_path("stdlib")
_MAKES_ONES: Final = torch.autograd._make_grads.__code__
_MOST_FRAMES: Final = 12
"""Between an allocation and the Python function of torch that asked for it."""
_SAME_LINE: Final = 100_000
"""Values that one line may read with no step between: a loop that waits for a value would never end."""


class StopProgram(BaseException):
    """The program has run for as many steps, or as long, as was asked for."""


class NeedsValue(BaseException):
    """The program waits for a value that nobody computes."""


@dataclass
class Step:
    """A step, to the end of the optimizer's work."""

    peak: Bytes
    after: Bytes
    by_category: dict[str, int] = field(default_factory=dict)
    """At the highest moment of `allocated`, to which they add up."""
    alive: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    """Then: category, module, line, bytes and number of blocks."""
    phases: dict[str, int] = field(default_factory=dict)
    """The most that was allocated in the forward, the backward and the optimizer's work."""
    end: int = 0
    """After how many requests of the tape it ends."""
    pinned: tuple[int, int] | None = None
    """Bytes of pinned host memory: the most, and after it; None where nobody counts them."""


@dataclass
class Mark:
    """A call by which the program itself divides its run."""

    name: str
    line: str
    peak: Bytes
    after: Bytes


@dataclass
class Answer:
    """A place that read values of the device, or made as many results as elements hold."""

    line: str
    value: Any
    count: int = 0
    is_most: bool = False
    """True where as many elements were assumed to hold as there are."""


class Watch:
    """Follows a program."""

    def __init__(
        self,
        machine: Machine,
        most_steps: int = 0,
        hidden: Sequence[str] = (),
        pinned: Callable[[], tuple[int, int]] | None = None,
        stepped: Callable[[int], None] | None = None,
    ) -> None:
        self._machine = machine
        self._pinned = pinned
        self._stepped_to = stepped
        self._most_steps = most_steps
        self.ended: Callable[[], None] = lambda: None
        """Told once a step is over: when the first module is called after it, so that what the program reads before is of the step."""
        self._is_over = False
        self.begins = machine.gpu.tape.cut()
        """After how many requests of the tape."""
        self.steps: list[Step] = []
        self.marks: list[Mark] = []
        self.answers: dict[str, Answer] = {}
        self._frames = Frames(hidden)
        self._stepped: set[int] = set()
        """Optimizers that have worked in the current step."""
        self._same: Counter[str] = Counter()
        self._modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._calls: list[nn.Module] = []
        self._names: dict[int, str] = {}
        self.classes: dict[str, str] = {}
        """Of the modules, by path."""
        self.uses: dict[str, Any] = {}
        """Settings that decide about memory, as the program has them."""
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._in_optimizer = False
        self._moving = False
        """True while a module moves its parameters to another place or type."""
        self.tuning = False
        """True while candidates of kernels are timed."""
        self._phase = ""
        self._undo = ExitStack()

    # -- following -------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Follow optimizers, modules and allocations."""
        self._undo.enter_context(watched_compiled_steps(self._before_step, self._after_step, self._cleared))
        self._undo.enter_context(watched_calls(self._entered, self._left))
        self._machine.noted = self._note
        kind: Any = nn.Module
        moves: Any = kind._apply

        def moved(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            before, self._moving = self._moving, True
            try:
                return moves(module, *args, **kwargs)
            finally:
                self._moving = before

        kind._apply = moved
        self._undo.callback(setattr, kind, "_apply", moves)

    def follow_compiled(self, module: nn.Module) -> None:
        """See the calls of a module that was compiled in place before."""
        run = module._compiled_call_impl
        assert run is not None
        module._compiled_call_impl = followed(module, run, self._entered, self._left)

    def _entered(self, module: nn.Module) -> bool:
        outermost = not self._calls
        if outermost:
            self._modules.add(module)
            if self._is_over:
                self._is_over = False
                self.ended()
            tape = self._machine.gpu.tape
            tape.calls.append((len(tape.events), line_text(self.line_of(sys._getframe(1)))))
        self._calls.append(module)
        return outermost

    def _left(self, outermost: bool) -> None:
        module = self._calls.pop()
        if outermost:
            tape = self._machine.gpu.tape
            tape.calls.append((len(tape.events), ""))
        if outermost and id(module) not in self._names:
            # The program may drop it before anybody asks for names.
            self._name(module)

    def close(self) -> None:
        """Follow nothing any longer."""
        self._machine.noted = None
        self._undo.close()

    def _note(self, piece: Piece) -> None:
        """Note the purpose of an allocation, as far as it is known when it is made."""
        phase: Phase = "optimizer" if self._in_optimizer else "forward" if torch._C._current_autograd_node() is None else "backward"
        if phase != self._phase:
            self._enter(phase, 1)
        if piece.kind in ("tensor", FRESH):
            made = BROUGHT if piece.kind == FRESH and not self._calls and not _begins_backward() else "activation"
            piece.kind = "tuning" if self.tuning else "temporary" if phase != "forward" else "parameter" if self._moving else made
        piece.place = self.line_of(sys._getframe(1))
        piece.scope = id(self._calls[-1]) if self._calls else 0

    def _enter(self, phase: Phase, since: int = 0) -> None:
        """Start a phase that includes the previous `since` requests."""
        self._phase = phase
        tape = self._machine.gpu.tape
        tape.phases.append((len(tape.events) - since, phase))

    def begins_below(self, frame: FrameType) -> None:
        """Set the bottom of the program's stack: this function and its callers are no part of the program."""
        self._frames.bottom = frame

    def line_of(self, frame: FrameType | None) -> Line | None:
        """Return the innermost line of the program itself."""
        found = self._frames.innermost(frame)
        return None if found is None else self._frames.line(found)

    def shows(self, code: CodeType) -> bool:
        """Return whether a function belongs to the program, not to torch or irscope."""
        return self._frames.shows(code)

    @property
    def running(self) -> nn.Module | None:
        """Return the innermost module that is being called."""
        return self._calls[-1] if self._calls else None

    @property
    def in_optimizer(self) -> bool:
        """Return whether an optimizer is at work."""
        return self._in_optimizer

    @property
    def line(self) -> str:
        """Return the line at which the program is, as file:line."""
        return line_text(self.line_of(sys._getframe(1)))

    def own_line(self) -> str:
        """Return the innermost line of files that are no library's; without any, the innermost of a library that is not Python's."""
        frame: FrameType | None = sys._getframe(1)
        lines: list[Line] = []
        while (inner := self._frames.innermost(frame)) is not None:
            lines.append(self._frames.line(inner))
            frame = inner.f_back
        return users_line([(line.code.co_filename, line.number) for line in lines])

    # -- steps -----------------------------------------------------------------------------------------------------

    def _cleared(self, optimizer: Any, set_to_none: bool) -> None:
        if not set_to_none:
            self.uses["set_to_none"] = False

    def _before_step(self, optimizer: Any) -> None:
        if id(optimizer) in self._stepped:
            self._stepped.clear()
        self._machine.storages.settle()  # what has died died before
        self._in_optimizer = True
        self._enter("optimizer")
        self._optimizers.add(optimizer)
        for group in optimizer.param_groups:
            for member in group["params"]:
                self._is(member, "parameter")
                if member.grad is not None:
                    self._is(member.grad, "gradient")
        self.classify()

    def classify(self) -> None:
        """Find what belongs to the program's modules."""
        for module in self._modules:
            self._belongs(module)

    def _belongs(self, module: nn.Module) -> None:
        for value in (*nn.Module.parameters(module), *nn.Module.buffers(module)):
            self._is(value, "parameter" if isinstance(value, nn.Parameter) else "buffer")
            if value.grad is not None:
                self._is(value.grad, "gradient")

    def _after_step(self, optimizer: Any) -> None:
        self._in_optimizer = False
        for state in optimizer.state.values():
            for one in state.values() if isinstance(state, Mapping) else ():
                if isinstance(one, torch.Tensor):
                    self._is(one, "optimizer state")
        self._same.clear()
        if not self.steps:
            self.note_uses()
        self._end_of_step(merge=bool(self._stepped))
        self._stepped.add(id(optimizer))
        self._is_over = True
        if self._stepped_to is not None:
            self._stepped_to(len(self.steps))
        if self._most_steps and len(self.steps) >= self._most_steps:
            raise StopProgram

    def note_uses(self) -> None:
        """Look at the settings of what is there."""
        self.uses.update(uses_of(self._modules, self._optimizers))

    def _is(self, tensor: torch.Tensor, kind: str) -> None:
        for one in local_parts(tensor):
            if one.is_cuda:
                piece = self._machine.piece_under(one)
                if piece is not None and (kind != "parameter" or piece.kind not in ("gradient", "optimizer state")):
                    piece.kind = kind

    def _end_of_step(self, merge: bool) -> None:
        """Close an interval; with `merge` it belongs to the step before, as where two optimizers work one after the other."""
        made = self.rest()
        if merge and self.steps:
            last = self.steps.pop()
            made.peak = Bytes.highest((last.peak, made.peak))
            made.pinned = _both(last.pinned, made.pinned)
        self.steps.append(made)

    def rest(self) -> Step:
        """Return the part after the last step, or all of a program that has none."""
        peak, after = self._machine.end_of_interval()
        return Step(peak, after, end=self._machine.gpu.tape.cut(), pinned=None if self._pinned is None else self._pinned())

    def name_of(self, scope: int) -> str:
        """Return the path of a module."""
        if not scope:
            return ""
        name = self._names.get(scope)
        if name is None:
            self.name_modules()
            name = self._names.setdefault(scope, "")
        return name

    def name_modules(self) -> None:
        """Note the paths of the modules that are there."""
        for root in self._modules:
            self._name(root)

    def _name(self, root: nn.Module) -> None:
        self._belongs(root)
        for name, module in nn.Module.named_modules(root):
            self._names[id(module)] = path = name or type(module).__name__
            self.classes[path] = class_of(module)

    # -- what the program asks for ---------------------------------------------------------------------------------

    def mark(self, name: str) -> None:
        """Add a mark of the program's own, which divides its run."""
        counters = self._machine.counters()
        self.marks.append(Mark(name, self.line, Bytes.peaks(counters), Bytes.now(counters)))

    def answer_for(self, places: Sequence[tuple[CodeType, int]], before: bool) -> Answer | None:
        """A value that was made up and that one of these lines read, the innermost of which is the last; or else, with `before`, an earlier
        line of its function."""
        for code, number in reversed(places):
            if (known := self.answers.get(f"{code.co_filename}:{number}")) is not None:
                return known
        if before and places:
            code, number = places[-1]
            for line in sorted({line for _, _, line in code.co_lines() if line is not None and line < number}, reverse=True):
                if (known := self.answers.get(f"{code.co_filename}:{line}")) is not None:
                    return known
        return None

    def assumed(self, assumption: str) -> None:
        """Note a line that goes on with values that follow from an assumption."""
        line = self.line
        self.answers.setdefault(line, Answer(line, assumption)).count += 1

    def answered(self, value: Any, is_most: bool = False) -> None:
        """Note a value of the device that was read. Of several at a line the one that decides most is listed, words before numbers."""
        line = self.line
        answer = self.answers.get(line)
        in_words = isinstance(value, str) and answer is not None and not isinstance(answer.value, str) and not answer.is_most
        if answer is None or in_words or (is_most and not answer.is_most):
            answer = self.answers[line] = Answer(line, value, 0 if answer is None else answer.count, is_most)
        answer.count += 1
        self._same[line] += 1
        if self._same[line] > _SAME_LINE:
            raise NeedsValue(line)


def users_line(places: Sequence[tuple[str, int]]) -> str:
    """Return, of files and lines, innermost first, that of the user's own program, or else of a library that is not Python's."""
    own = [place for place in places if not any(part in place[0] for part in LIBRARIES)]
    others = [place for place in places if not place[0].startswith(_STANDARD) or "-packages" in place[0]]
    return next((f"{file}:{number}" for file, number in (*own, *others, *places)), "")


def _both(first: tuple[int, int] | None, then: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if first is None or then is None else (max(first[0], then[0]), then[1])


def line_text(place: Line | None) -> str:
    """Return a place as file:line."""
    return "" if place is None else str(place)


def local_parts(tensor: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors with storages of their own behind a tensor: the local ones of a wrapper."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
        return
    if type(tensor) in (torch.Tensor, nn.Parameter):
        yield tensor
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):
            yield from local_parts(inner)


def _begins_backward() -> bool:
    """Return whether torch makes the ones that a backward begins with, which it does before the first of its nodes runs."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code is _MAKES_ONES:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code is _MAKES_ONES
