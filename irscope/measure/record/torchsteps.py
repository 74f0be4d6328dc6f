"""Training steps of a program that runs as it is: its loop is followed, and a few steps after the first ones are recorded.

A step ends where an optimizer has worked for the last time before the pattern repeats; in a program without optimizers where a backward
has ended, and in one without those where its outermost module is called again. Steps are recorded one by one, each for one thing, with
unrecorded steps between the timed ones: the memory of one, lines and types of one, times of several.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final

import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import ProfilerActivity, profile

from irscope.errors import OutputError, PassError
from irscope.frontends.eager.optimizing import watched_compiled_steps
from irscope.frontends.eager.recorder import Frames, watched_calls
from irscope.jsoncodec import encode
from irscope.measure.machine import SAMPLING, energy_counter, processor
from irscope.measure.monitor import RAPL, processor_energy
from irscope.measure.record.request import Loop, Request
from irscope.measure.record.sink import Progress, Sink, first_line, problem_of
from irscope.measure.record.steptrace import (
    PHASE,
    Resident,
    StepOperator,
    held_before,
    levels,
    pairs,
    residents,
    short_line,
    step_events,
    step_trace,
    usage_of,
)
from irscope.measure.record.torchmodel import ScopeTracker
from irscope.measure.record.torchpasses import Calls, quiet, result_count
from irscope.measure.record.torchrun import (
    CUDA_OP_TIME,
    MOST_EVENTS,
    OP_TIME,
    cuda_counters,
    cuda_device_of,
    described,
    tell_latency,
    torch_header,
    with_history,
)
from irscope.measure.record.trace import Trace, times_of
from irscope.passkit.script import RUNNERS, run_script
from irscope.recording.records import Counters, Energy, Held, Line, OpRecord, Problem, Setting, Times

_FORWARDS: Final = 3
"""Calls of the outermost module after which a program without an optimizer and a backward is taken to be one without steps of training."""


class Enough(BaseException):
    """Raised to end the program once everything requested is recorded."""


class _Scopes(ScopeTracker):
    """Markers around calls of modules, whichever they are; the outermost is the forward."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(None, progress)
        self.roots: dict[int, nn.Module] = {}
        self.is_inside = False
        self._forward: Any = None

    def entered(self, module: nn.Module) -> bool:
        """Note that a call begins; return whether it is an outermost call."""
        if self.is_inside:
            self.enter(module)
            return False
        self.is_inside = True
        self.roots[id(module)] = module
        self.name_modules(module)
        self._forward = _RecordFunctionFast(f"{PHASE} forward")
        self._forward.__enter__()
        return True

    def left(self, outermost: bool) -> None:
        """Note that the call has ended."""
        if not outermost:
            self.leave()
            return
        self.is_inside = False
        self._forward.__exit__(None, None, None)


class _Lines(Calls):
    """Calls with the line of the program that made each."""

    def __init__(self, shows: Frames) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._shows = shows

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._shows.shows(frame.f_code):
            frame = frame.f_back
        self.lines.append("" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return super().__torch_dispatch__(func, types, args, kwargs)


@dataclass
class Found:
    """Findings of the recorded steps."""

    cold: Trace | None = None
    warm: Trace | None = None
    before: dict[str, Resident] = field(default_factory=dict)
    after: dict[str, Resident] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    """Bytes on a GPU before the step that no tensor holds, as cuBLAS keeps its workspace."""
    counters: list[Counters] = field(default_factory=list)
    lines: dict[int, str] = field(default_factory=dict)
    outputs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    timed: list[Trace] = field(default_factory=list)
    per_call: list[list[float]] = field(default_factory=list)
    """On a GPU: microseconds of each call of each timed step."""
    calls: int = 0
    """Of the step whose lines were taken."""
    typed: Trace | None = None
    plain: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    """Of the unrecorded steps, where there is a counter."""
    profiled: list[float] = field(default_factory=list)


class StepRecorder:
    """Follows the steps of a program in this process; the device decides how calls are timed and memory is counted."""

    def __init__(self, request: Request, sink: Sink, hidden: Sequence[str] = (), *, begin: Callable[[], None], stop: bool = False) -> None:
        """`begin` writes the header, once it is known that there are steps."""
        options = request.options
        self.request, self.sink, self.found = request, sink, Found()
        self.is_cuda = options.device.startswith("cuda")
        self.device = torch.device(options.device if self.is_cuda else "cpu")
        self.done = False
        self.error: OutputError | None = None
        self.broken = ""
        """Reason why nothing could be recorded any longer, while the program went on."""
        self.steps = 0
        """Steps that ended."""
        self._begin, self._stop = begin, stop
        self._frames = Frames(hidden)
        self._scopes = _Scopes(Progress.at(request.progress))
        self._undo, self._open = ExitStack(), ExitStack()
        self._plan = _plan(options.warmup, options.repeats)
        self._stage = ""
        self._optimizers: dict[int, Any] = {}
        self._stepped: set[int] = set()
        self._anchor: object = None
        self._seen_forwards = 0
        self._seen_backwards = 0
        self._started = 0.0
        self._joules = energy_counter(options.device) if self.is_cuda else processor_energy()
        self._joules_before = 0.0
        self._is_told = False
        self._is_over = False
        self._is_profiled = False
        self._ranges: set[int] = set()
        self._finish: Callable[[], None] = lambda: None

    # -- following ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Find and record the steps of the program within the context."""
        made = torch.optim.Optimizer.__init__
        backward = torch.autograd.backward
        recorder = self

        def noted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            made(optimizer, *args, **kwargs)
            recorder._anchor = recorder._anchor or "optimizer"

        def differentiated(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            recorder._after_backward()

        with self._undo:
            torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign,assignment]
            self._undo.callback(setattr, torch.optim.Optimizer, "__init__", made)
            torch.autograd.backward = differentiated
            self._undo.callback(setattr, torch.autograd, "backward", backward)
            self._watch_functions()
            self._undo.enter_context(watched_compiled_steps(self._before_step, self._after_step))
            self._undo.enter_context(watched_calls(self._entered, self._left))
            try:
                yield
            finally:
                self._abandon()

    def _watch_functions(self) -> None:
        """Know of the ranges that the program names to profilers, as an optimizer's step is one.

        What ends a range writes to the profile in which it began, so none may be open when a profile ends and the next one begins.
        """
        kind: Any = torch.autograd.profiler.record_function
        enters, exits = kind.__enter__, kind.__exit__
        recorder = self

        def enter(function: Any) -> Any:
            if recorder._is_profiled:
                recorder._ranges.add(id(function))
            return enters(function)

        def leave(function: Any, *args: Any) -> Any:
            result = exits(function, *args)
            recorder._ranges.discard(id(function))
            recorder._settle()
            return result

        kind.__enter__, kind.__exit__ = enter, leave
        self._undo.callback(setattr, kind, "__enter__", enters)
        self._undo.callback(setattr, kind, "__exit__", exits)

    def _settle(self) -> None:
        """End the step that is over, once nothing is open that began in it; compiled code opens ranges that Python knows nothing of."""
        if self._is_over and not self._ranges and torch._C._current_autograd_node() is None and not _in_compiled_code():
            self._is_over = False
            self._next()

    def own_step(self, step: Callable[[], None]) -> None:
        """Run a step of a loop of irscope's own, of which the first is recorded too."""
        if self._anchor != "own":
            self._anchor = "own"
            self._start("cold")
        step()
        self._boundary()

    def _detach(self) -> None:
        self.done = True
        self._undo.close()

    def _entered(self, module: nn.Module) -> bool:
        outermost = not self._scopes.is_inside
        if outermost:
            self._settle()
        if outermost and not self.done:
            self._seen_forwards += 1
            if self._anchor is None and self._seen_forwards >= _FORWARDS and not self._seen_backwards:
                self._anchor = "forward"
            if self._anchor == "forward":
                self._boundary()
        return self._scopes.entered(module)

    def _left(self, outermost: bool) -> None:
        self._scopes.left(outermost)

    def _after_backward(self) -> None:
        self._seen_backwards += 1
        self._settle()
        if self._anchor is None and self._seen_backwards > 1:
            self._anchor = "backward"
        if self._anchor == "backward" and not self.done:
            self._boundary()

    def _before_step(self, optimizer: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer

    def _after_step(self, optimizer: Any) -> None:
        if self.done or self._anchor == "own":
            return
        self._anchor = "optimizer"
        # Of several optimizers that take turns the one that was seen first ends the step: a step then has one turn of each.
        if next(iter(self._optimizers)) == id(optimizer):
            self._boundary()

    # -- recording ---------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """Note that a step has ended."""
        self._is_over = not self.done
        self._settle()

    def _next(self) -> None:
        """Take what the step showed, and begin the next."""
        try:
            was = self._stage
            self._end()
            self.steps += 1
            if was == "lines":
                self._write()  # should the program be killed, this is there; with times it is written again
            stage = next(self._plan, None)
            if stage is None:
                self._write()
                self.sink.finish()  # whatever becomes of the program, the recording is whole
                self._detach()
                if self._stop:
                    raise Enough
                return
            self._start(stage)
        except OutputError as error:  # a full disk is not a reason for the program to end
            self.error = error
            self._open.close()
            self._detach()
            if self._stop:
                raise Enough from error
        except Exception as error:  # such as of a profiler of the program's own
            self.broken = first_line(error)
            with contextlib.suppress(Exception):
                self._open.close()
            self._detach()
            if self._stop:
                raise Enough from error

    def _start(self, stage: str) -> None:
        if not self.sink.begun:
            self._begin()
        self._stage = stage
        self.sink.stage(stage)
        if stage == "settling":
            # PyTorch's allocator tells that a block is given back only where it was watched when the block was asked for.
            self._finish = self._opened(profile_memory=True)[1] if not self.is_cuda else self._finish
        elif stage in ("cold", "memory"):
            self._start_memory("cold" if stage == "cold" else "warm")
        elif stage == "lines":
            self._start_lines()
        elif stage == "operators":
            self._start_timed()
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
        if stage == "plain" and self._joules is not None:
            self._joules_before = self._joules()
        self._started = time.perf_counter()

    def _end(self) -> None:
        if not self._stage:
            return
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
        taken = (time.perf_counter() - self._started) * 1e6
        if self._stage == "plain":
            self.found.plain.append(taken)
            if self._joules is not None:
                self.found.joules.append(self._joules() - self._joules_before)
        elif self._stage == "operators":
            self.found.profiled.append(taken)
        finish, self._finish = self._finish, lambda: None
        finish()
        self._stage = ""

    def _opened(self, **kwargs: Any) -> tuple[Any, Callable[[], None]]:
        """Begin to profile; the profile, and what ends it."""
        stack = ExitStack()
        self._open.push(stack)
        seen = profile(activities=[ProfilerActivity.CPU], **kwargs)

        def close() -> None:
            self._is_profiled = False
            with quiet():  # only here: what the program itself writes is to be seen
                seen.__exit__(None, None, None)

        with quiet():
            seen.__enter__()
        self._is_profiled = True
        stack.callback(close)
        with _RecordFunctionFast("irscope::thread"):
            pass  # tells which thread is the program's

        return seen, stack.close

    def _profiled(self, **kwargs: Any) -> Callable[[], Trace]:
        """Begin to profile; what is returned ends it and gives the step."""
        seen, close = self._opened(**kwargs)

        def end() -> Trace:
            close()
            return step_trace(seen)

        return end

    def _start_memory(self, run: str) -> None:
        found, kind = self.found, self.device.type
        optimizers, modules = [*self._optimizers.values()], [*self._scopes.roots.values()]
        gc.collect()  # what only cycles hold would go at some moment of the step
        found.before[run] = residents(kind, optimizers, modules)
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
            if not found.counters:
                found.counters.append(cuda_counters("before", self.device))
            found.kept[run] = int(torch.cuda.memory_stats(self.device).get("requested_bytes.all.current", 0)) - found.before[run].bytes
            torch.cuda.reset_peak_memory_stats(self.device)
            torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, context=None)
        end = self._profiled(profile_memory=True, record_shapes=True)

        def finish() -> None:
            trace = end()
            if self.is_cuda:
                found.counters.append(cuda_counters(run, self.device))
                with_history(trace, self.device)
            trace.allocations = [allocation for allocation in trace.allocations if allocation.device == kind and allocation.bytes]
            found.after[run] = residents(kind, [*self._optimizers.values()], [*self._scopes.roots.values()])
            if run == "cold":
                found.cold = trace
            else:
                found.warm = trace

        self._finish = finish

    def _start_lines(self) -> None:
        calls: Any = _Lines(self._frames)
        end = self._profiled()
        calls.__enter__()

        def finish() -> None:
            calls.__exit__(None, None, None)
            self.found.typed = trace = end()
            self._take_lines(trace, calls)

        self._finish = finish

    def _take_lines(self, trace: Trace, calls: _Lines) -> None:
        found = self.found
        found.calls = len(calls.lines)
        of_forward: dict[int, str] = {}
        for at, op in enumerate(trace.operators):
            assert isinstance(op, StepOperator)
            if op.outs:
                line = calls.lines[op.outs[0]]
                if op.phase == "forward" and op.sequence >= 0:
                    of_forward.setdefault(op.sequence, line)
                elif op.phase == "backward":
                    line = of_forward.get(op.sequence, "")
                found.lines[at] = line
                found.outputs[at] = calls.types[op.outs[-1]][: result_count(op.name)]

    def _start_timed(self) -> None:
        if not self.is_cuda:
            end = self._profiled()

            def finish() -> None:
                self.found.timed.append(end())

            self._finish = finish
            return
        stamps: list[Any] = []

        def watch() -> None:
            stamps.append(torch.cuda.Event(enable_timing=True))
            stamps[-1].record()

        calls: Any = Calls(watch)
        calls.__enter__()

        def finish_events() -> None:
            calls.__exit__(None, None, None)
            torch.cuda.synchronize(self.device)
            pairs = zip(stamps[::2], stamps[1::2], strict=False)
            self.found.per_call.append([float(first.elapsed_time(second)) * 1e3 for first, second in pairs])

        self._finish = finish_events

    def _abandon(self) -> None:
        """The program has ended, or failed, while something was recorded."""
        self._finish = lambda: None
        with contextlib.suppress(Exception):
            self._open.close()
        if not self.done and self.found.warm is not None and self.sink.begun:
            with contextlib.suppress(OutputError):
                self._write()
        self.done = True

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write all that was seen, as lines."""
        found, warm = self.found, self.found.warm
        if warm is None:
            return
        if self._is_told:
            self.sink.restart()
        self._is_told = True
        kind = self.device.type
        held = held_before(found.before["warm"], warm)
        if found.kept.get("warm", 0) > 0:
            held.append(Held(found.kept["warm"], None, "workspace", "kept by libraries"))
        lines: list[Line] = [*held, *self._ops(warm)]
        if found.cold is not None:
            lines += step_events("cold", found.cold, found.before["cold"], found.after["cold"], is_same=found.cold.names == warm.names)
        lines += step_events("warm", warm, found.before["warm"], found.after["warm"], is_same=True)
        lines += found.counters if kind == "cuda" else self._summed(held)
        for line in lines:
            self.sink.add(line)
        tell_latency(found.plain, found.profiled, self.sink)
        used = [joules for joules in found.joules if joules > 0]  # a counter that has wrapped, or is too slow, tells nothing
        if used:
            seconds = round(sum(found.plain) / 1e6, 3)
            self.sink.add(Energy(sum(used) / len(used), len(used), seconds, SAMPLING if self.is_cuda else RAPL))
        odd = self._unstable()
        if odd is not None:
            self.sink.add(odd)

    def _summed(self, held: Sequence[Held]) -> Iterator[Counters]:
        """The processor has no counters: what was there, and the sums of what came and went."""
        found = self.found
        runs = [(run, trace) for run, trace in (("cold", found.cold), ("warm", found.warm)) if trace is not None]
        for number, (run, trace) in enumerate(runs):
            known = sum(one.bytes for one in (held if run == "warm" else held_before(found.before[run], trace)))
            if not number:
                yield levels("before", known, known)
            alive = peak = known
            for allocation in trace.allocations:
                alive += allocation.bytes
                peak = max(peak, alive)
            yield levels(run, alive, peak)

    def _ops(self, warm: Trace) -> Iterator[OpRecord]:
        found = self.found
        # Below a dispatch mode some calls are seen that there are not without one.
        typed = {} if found.typed is None else dict(pairs(warm.names, found.typed.names))
        times = self._times(warm, typed)
        usage = usage_of(warm)
        root = self.request.model.path
        for at, op in enumerate(warm.operators):
            assert isinstance(op, StepOperator)
            made, workspace, alive = usage[at]
            yield OpRecord(
                at,
                op.name,
                op.scope,
                place=self.device.type,
                inputs=op.inputs,
                outputs=found.outputs.get(typed.get(at, -1), ()),
                time=times.get(at),
                made=made,
                workspace=workspace,
                alive=alive,
                phase=op.phase,
                code=short_line(found.lines.get(typed.get(at, -1), ""), root),
            )

    def _times(self, warm: Trace, in_typed: Mapping[int, int]) -> dict[int, Times]:
        taken: dict[int, list[float]] = {}
        if not self.is_cuda:
            for trace in self.found.timed:
                for at, other in pairs(warm.names, trace.names):
                    taken.setdefault(at, []).append(trace.operators[other].seconds / 1000)
        elif self.found.typed is not None:
            operators = self.found.typed.operators
            for step in self.found.per_call:
                if len(step) == self.found.calls:
                    for at, other in in_typed.items():
                        if operators[other].outs:
                            taken.setdefault(at, []).append(sum(step[out] for out in operators[other].outs))
        return {at: times for at, many in taken.items() if (times := times_of(many)) is not None}

    def _unstable(self) -> Problem | None:
        warm = self.found.warm
        assert warm is not None
        runs = self.found.timed
        odd = sum(trace.names != warm.names for trace in runs)
        if not odd:
            return None
        return Problem("unstable", f"{odd} of {len(runs)} recorded steps called other operators than the one whose memory was recorded")

    def failed(self, error: BaseException) -> None:
        """The program raised an error before all was recorded; what was seen until then is told."""
        self._abandon()
        if not self.sink.begun:
            raise PassError(f"the program failed before its first step: {first_line(error)}", code="IRS481", where=self.name) from error
        self.sink.add(problem_of(error, (), ()))
        self.sink.failed = True

    def check(self, failure: str = "") -> None:
        """Say so where the program has ended before all was recorded; raises PassError where nothing was."""
        found = self.found
        if not self.sink.begun:
            why = f" ({failure})" if failure else ""
            message = (
                f"the program ended without a step{why}: no optimizer worked, no backward came twice, no module was called three times"
            )
            raise PassError(message, code="IRS483", where=self.name, hint="a forward alone is recorded with `irscope record MODEL`")
        if self.sink.failed or self.sink.ended:
            return
        if self.broken:
            self.sink.add(Problem("failed", f"the steps could not be recorded any longer: {self.broken}"))
            self.sink.failed = True
            return
        wanted, had = self.request.options.repeats, len(found.profiled)
        if found.warm is None:
            first = max(3, self.request.options.warmup + 1)
            text = f"the program ended after {self.steps} steps, and step {first} is the first that is recorded; --warmup 0 begins earlier"
            self.sink.add(Problem("few_steps", text))
            self.sink.failed = True
        elif had < wanted:
            self.sink.add(Problem("few_steps", f"the program ended after {self.steps} steps: {had} of {wanted} were timed"))

    @property
    def name(self) -> str:
        """Return the name of what is recorded."""
        return self.request.model.name


def _in_compiled_code() -> bool:
    """Return whether something that torch.compile made is being called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("compile_wrapper", "torch._dynamo.eval_frame"):
        frame = frame.f_back
    return frame is not None


def _plan(warmup: int, repeats: int) -> Iterator[str]:
    """Yield what each step after the first boundary is for; the first step itself is not recorded where the loop is the program's own."""
    yield from ["warm-up"] * max(0, warmup - 2)
    yield "settling"
    yield "memory"
    yield "lines"
    for _ in range(repeats):
        yield "plain"
        yield "operators"


def record_loop(request: Request, loop: Loop, sink: Sink) -> None:
    """Run a script as it is, or steps of a model, and tell the sink of some steps."""
    options = request.options
    if options.threads:
        torch.set_num_threads(options.threads)
    if not options.device:  # a script says itself where it runs, which is most often where it can
        options = replace(options, device="cuda" if torch.cuda.is_available() else "cpu")
        request = replace(request, options=options)
    sink.device = options.device
    device = torch.device("cpu")
    if options.device != "cpu":
        device = cuda_device_of(options.device)
        torch.cuda.set_device(device)
    if loop.script:
        _record_script(request, loop, device, sink)
        return
    torch.manual_seed(options.seed)
    where, _, name = request.factory.partition(":")
    given = {value.name: value.type for value in request.model.inputs}
    make = getattr(importlib.import_module(where), name)
    made = make(request.model.name, given, request.model.bind, request.trusted, loop.step, device)
    if made.inputs:
        request = replace(request, model=replace(request.model, inputs=made.inputs, assumed=(*request.model.assumed, *made.assumed)))
    more = {"optimizer": made.optimizer, "loss": made.loss, "step_options": json.dumps(encode(loop.step))}
    recorder = _recorder(request, loop, device, sink, more, made.step.__code__.co_filename)
    with recorder.following():
        try:
            while not recorder.done:
                recorder.own_step(made.step)
        except Enough:
            pass
        except Exception as error:
            recorder.failed(error)
    if recorder.error is not None:
        raise recorder.error


def _recorder(request: Request, loop: Loop, device: torch.device, sink: Sink, more: Mapping[str, str], *hidden: str) -> StepRecorder:
    is_cuda = device.type == "cuda"

    def begin() -> None:
        described_by = described(device) if is_cuda else processor(torch.get_num_threads())
        settings: dict[str, Setting] = {"step": True, "grad": True, **more}
        sink.begin(torch_header(request, described_by, CUDA_OP_TIME if is_cuda else OP_TIME, settings))

    return StepRecorder(request, sink, (__file__, *RUNNERS, *hidden), begin=begin, stop=loop.stop)


def _record_script(request: Request, loop: Loop, device: torch.device, sink: Sink) -> None:
    recorder = _recorder(request, loop, device, sink, {"arguments": shlex.join(loop.arguments)} if loop.arguments else {})
    failure = ""
    with recorder.following():
        try:
            run_script(loop.script, loop.arguments, is_module=loop.is_module)
        except Enough:
            pass
        except SystemExit as stop:
            if stop.code not in (None, 0):
                failure = f"it exits with {stop.code}"
        except KeyboardInterrupt:
            failure = "it was interrupted"
        except Exception as error:
            traceback.print_exc()
            failure = first_line(error)
            if not sink.ended:
                recorder.failed(error)
    if recorder.error is not None:
        raise recorder.error
    recorder.check(failure)
