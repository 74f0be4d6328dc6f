"""A user's program on devices that are not there: `irscope simulate` and `irscope.simulate`."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import irscope.frontends
from irscope.devices import Target
from irscope.errors import LoadError, UsageError
from irscope.frontends.simulation.imports import check_machine
from irscope.memory.kernels import workspace_policy
from irscope.memory.run import kinds_by_life, moments, phase_peaks, rows_of
from irscope.memory.tape import Origin, Slots, Span, Tape
from irscope.passkit.script import RUNNERS, run_script
from irscope.report.values import Quantity, quantity
from irscope.tools.simulation import INTERRUPTED, Options, Simulation, allocator_of, memory_of, target_for, world_of
from irscope.training import WORLD_CATEGORIES

if TYPE_CHECKING:
    from irscope.frontends.simulation.process import Process
    from irscope.frontends.simulation.watch import Step, Watch


_process: Process | None = None


def check_script(script: str, is_module: bool) -> None:
    """Raise an error where there is no such program, with the command for what is there."""
    folder = Path(script)
    if not is_module and folder.is_dir():
        is_model = (folder / "config.json").is_file()
        asks = f"`irscope generate {script}` for generating, `irscope train-plan {script}` for a training step"
        hint = asks if is_model else f"name the program in it; `irscope audit {script} -o RESULTS` is for a folder of models"
        raise UsageError("this is a folder, and what is simulated is a program", code="IRS643", where=script, hint=hint)
    if not is_module and not folder.is_file():
        raise LoadError("there is no such file", code="IRS385", where=script)


def simulate_script(script: str, arguments: Sequence[str] = (), options: Options | None = None, *, is_module: bool = False) -> Simulation:
    """Run a script as `python SCRIPT ARGUMENTS` would, on a simulated device, in this process."""
    chosen = options or Options()
    check_script(script, is_module)

    return run_program(lambda: run_script(script, arguments, is_module=is_module), script, chosen, "apart for good")


def simulate(
    function: Callable[..., Any],
    *args: Any,
    device: str = "",
    world: int | None = None,
    rank: int = 0,
    torch: str = "",
    alloc_conf: str = "",
    steps: int = 0,
    seconds: float = 0,
    answer: float | None = None,
    allow_unknown: bool = False,
    link: float = 0,
    keep_files: bool = False,
    **kwargs: Any,
) -> Simulation:
    """Call a function on a simulated CUDA device: what it puts there takes no memory and computes nothing.

    For the rest of this process `torch.cuda` is the simulated device's. A second call begins as in a new process, with what an earlier one
    left alive. `world` and `rank` are what torchrun would set; without a world nothing is set, as
    where python starts the program. The result has `steps`, `marks`, `tape` and `to_json()`.
    """
    options = Options(
        device,
        torch,
        alloc_conf,
        world_of(world),
        rank,
        steps=steps,
        seconds=seconds,
        answer=answer,
        allow_unknown=allow_unknown,
        routing="balanced",
        link=link,
        keep_files=keep_files,
    )
    return run_program(lambda: function(*args, **kwargs), getattr(function, "__name__", "function"), options, "apart")


Files = Literal["plain", "apart", "apart for good"]
"""Place of the files that the program writes: where it says, or apart while it runs, or for the rest of this process."""


def run_program(program: Callable[[], Any], name: str, options: Options, files: Files = "plain") -> Simulation:
    """Run what is given on a simulated device, in this process."""
    target = target_for(options)
    process = _prepared(target, options)
    from irscope.frontends.simulation.settings import Changes
    from irscope.frontends.simulation.watch import NeedsValue, StopProgram

    told = options.told
    stepped = None if told is None else lambda done: told(done, options.steps or None, "steps of the optimizer:")
    changes = Changes(options.settings)
    watch = process.start(options.steps, (__file__, *RUNNERS), stepped)
    changes.install()
    process.machine.told_by = lambda begin: _history(process, watch, options, begin)
    found = Simulation(name, target, options, applied=changes.applied)
    with _files_apart(found, process, watch, files):
        try:
            with _torchrun_environment(options), _time_limit(options.seconds, StopProgram):
                found.result = program()
        except StopProgram:
            found.outcome = "steps"
        except NeedsValue as error:
            found.outcome, found.line = "needs_value", str(error)
            found.error = f"{error} reads values over and over"
        except SystemExit as stop:
            if stop.code not in (None, 0):
                found.outcome, found.error = "error", f"it exits with {stop.code}"
        except KeyboardInterrupt:
            found.outcome, found.error = "error", INTERRUPTED
            changes.close()
            _finish(found, process, watch)
            raise Interrupted(found) from None
        except BaseException as error:
            _failed(found, error, watch)
    changes.close()
    _finish(found, process, watch)
    return found


@contextlib.contextmanager
def _files_apart(found: Simulation, process: Process, watch: Watch, files: Files) -> Iterator[None]:
    """Keep apart what the program writes, list it, and let it vanish."""
    if files == "plain":
        yield
        return
    from irscope.frontends.simulation.overlay import Overlay

    overlay = Overlay(watch.own_line, process.generated.has)
    overlay.install()
    try:
        with process.management.on_path():
            yield
    finally:
        found.files = overlay.written()
        if found.options.keep_files:
            overlay.keep()
        if files == "apart for good":
            overlay.close_at_exit()
        else:
            overlay.close()
            overlay.remove()


def run_own(program: Callable[[], Any], name: str, options: Options) -> Simulation:
    """Run what irscope itself does with a model on a simulated device: it ends, or memory is refused, and all else is an error."""
    from irscope.frontends.generation.program import ModelFails

    ours: list[Exception] = []

    def strict() -> Any:
        import torch

        try:
            return program()
        except ModelFails as failure:
            raise (failure.__cause__ or failure) from None  # its traceback has the line
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            ours.append(error)
            raise

    simulation = run_program(strict, name, options)
    if ours:
        raise ours[0]
    if simulation.outcome not in ("finished", "oom"):
        raise LoadError(f"it does not run: {simulation.error}", code="IRS697", where=simulation.line or name)
    return simulation


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; what was simulated so far is kept."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.simulation = simulation


def _failed(found: Simulation, error: BaseException, watch: Watch) -> None:
    import torch

    from irscope.frontends.simulation.compilations import explained
    from irscope.frontends.simulation.kernels import UnknownKernel
    from irscope.frontends.simulation.watch import users_line

    found.outcome = "oom" if isinstance(error, torch.OutOfMemoryError) else "error"
    # The modules are there only as long as the error holds the program's frames.
    watch.classify()
    watch.name_modules()
    watch.note_uses()
    own = isinstance(error, UnknownKernel)
    found.error = str(error) if found.outcome == "oom" or own else f"{type(error).__name__}: {error}"
    found.traceback = "" if own else _traceback_of(error)
    found.whole_traceback = "".join(traceback.format_exception(error))
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if watch.shows(frame.f_code)]
    found.line = users_line([(frame.f_code.co_filename, line) for frame, line in reversed(frames)])
    if isinstance(error, SyntaxError) and error.filename:
        found.line = f"{error.filename}:{error.lineno}"
    found.made_up = watch.answer_for([(frame.f_code, line) for frame, line in frames], isinstance(error, _OF_VALUES))
    by_compiler = explained(error)
    if by_compiler is not None:
        found.error, line = by_compiler
        found.line = line or found.line


def _traceback_of(error: BaseException) -> str:
    """Return what Python prints of an error, without irscope's own functions."""
    whole = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        # On a device kernels are no Python functions: what the shape functions of torch call is not shown, nor what the compiler calls.
        above = itertools.takewhile(lambda frame: not any(file in frame.filename for file in _BELOW), part.stack)
        frames = [frame for frame in above if not frame.filename.startswith((*_OWN, "<frozen runpy")) and frame.filename not in RUNNERS]
        part.stack = traceback.StackSummary.from_list(frames)
        waiting += [part.__cause__, part.__context__, *(part.exceptions or ())]
    text = "".join(whole.format())
    return text if whole.stack else text.replace(_HEADING, "")


_OF_VALUES: Final = (ArithmeticError, AssertionError, LookupError, ValueError)
"""Errors that a value may lead to later than in the line that reads it."""
_HEADING: Final = "Traceback (most recent call last):\n"
_OWN: Final = tuple(f"{os.path.abspath(path)}{os.sep}" for package in (irscope, irscope.frontends) for path in package.__path__)
"""Folders of irscope's own functions."""
_BELOW: Final = (os.path.join("frontends", "simulation", "kernels.py"), os.path.join("site-packages", "torch", "_dynamo", ""))


def _finish(found: Simulation, process: Process, watch: Watch) -> None:
    watch.close()
    process.compiler.close()
    found.compiled = process.compiler.found()
    found.rest = watch.rest()
    found.steps, found.marks, found.answers = watch.steps, watch.marks, list(watch.answers.values())
    found.collectives = list(process.world.traffic.values())
    found.looks = list(process.world.looks)
    found.uses = watch.uses | ({"compile": dict(process.compiler.uses)} if process.compiler.uses else {})
    found.classes = watch.classes
    found.unknown = dict(process.kernels.unknown)
    found.started = tuple(dict.fromkeys(process.launchers.started))
    found.not_modelled = sorted(process.world.not_modelled)
    found.now = dict(process.machine.counters())
    found.pinned_peak, found.beside_peak = process.pinned.peak, process.machine.beside_peak
    gpu = process.machine.gpu
    found.tape = _tape_of(process.machine.tape(), watch)
    _count_steps(found.tape, watch.begins, [*watch.steps, found.rest])
    found.fullest = gpu.refused if found.outcome == "oom" and gpu.refused is not None else gpu.fullest


def _history(process: Process, watch: Watch, options: Options, begin: int) -> list[dict[str, Any]]:
    """Return what the allocator did from a request on: all is asked again of an allocator like the program's, with notes."""
    from irscope.passes.exports import allocations_of_program, trace

    target = process.machine.target
    tape = _tape_of(process.machine.tape(), watch)
    tape.starts, tape.spans = [0, begin, len(tape.events)], [Span("before", 0, 1), Span("recorded", 1, 2)]
    gpu = allocator_of(target, options)
    replayed = tape.replay(gpu, tape.numbers("central"), "all", addresses=True)
    return trace(allocations_of_program(tape, replayed, expandable=target.is_expandable), first_step=1)


def _tape_of(tape: Tape[Any], watch: Watch) -> Tape[Origin]:
    """Return a copy of what was written so far, with names in place of objects, and a span for each step."""
    from irscope.frontends.simulation.watch import line_text

    end = tape.cut()
    names = {origin: Origin(watch.name_of(origin[0]), line_text(origin[1])) for origin in set(tape.owners.values())}
    places = [0, watch.begins, *(step.end for step in watch.steps), end]
    spans = [
        Span("before", 0, 1, counted=False),
        *(Span(f"step {number}", number, number + 1) for number in range(1, len(watch.steps) + 1)),
    ]
    return replace(
        tape,
        events=tape.events[:],
        sizes=list(tape.sizes),
        kinds=kinds_by_life(tape.kinds, tape.events, tape.phases),
        labels=list(tape.labels),
        owners=cast("Slots[Any]", tape.owners).mapped(names.__getitem__),
        streams=dict(tape.streams),
        blocks=tape.blocks[:],
        phases=list(tape.phases),
        calls=list(tape.calls),
        actions=list(tape.actions),
        starts=places,
        spans=[*spans, Span("rest", len(places) - 2, len(places) - 1)],
    )


def _count_steps(tape: Tape[Origin], begins: int, steps: Sequence[Step]) -> None:
    """Tell what each step's peak is made of, and where in the step the most is allocated."""
    starts = [begins, *(step.end for step in steps)]
    stretch, sizes = tape.noted(starts), tape.numbers("central")
    # A cache of keys and values is a category of programs that generate, and of no others.
    categories = (*WORLD_CATEGORIES, *sorted(set(tape.kinds) - set(WORLD_CATEGORIES)))
    found = moments(tape, stretch, categories, sizes, None, None)
    peaks = phase_peaks(tape, starts, stretch, categories, sizes)
    alive = tape.alive_at([starts[0] + place for place in found.places])
    columns = found.columns()
    for number, (step, slots) in enumerate(zip(steps, alive, strict=True)):
        step.by_category = {category: _number(column[number]) for category, column in columns.items()}
        step.alive, step.phases = rows_of(tape, slots), {phase: _number(size) for phase, size in peaks[number].items()}


def _number(size: Quantity | int) -> int:
    found = quantity(size).value
    assert isinstance(found, int)
    return found


def current_process() -> Process:
    """Return the simulated device that a program runs on."""
    assert _process is not None, "no program is simulated"
    return _process


def _prepared(target: Target, options: Options) -> Process:
    """This process with its device; the first target holds for all of its life."""
    global _process
    check_machine()
    from irscope.frontends.simulation.process import Process

    if _process is None:
        with _torchrun_environment(options):
            _process = Process(target, workspace_policy(target).buffers, options.pending_frees, memory_of(target, options))
    elif _process.machine.target != target:
        raise UsageError("one process simulates one device", code="IRS644", hint="start another process for another one")
    else:
        _process.begin_again()
    _process.kernels.values.routing = options.routing if options.answer is None else None
    _process.answer_with, _process.kernels.allow_unknown = options.answer, options.allow_unknown
    return _process


@contextlib.contextmanager
def _torchrun_environment(options: Options) -> Iterator[None]:
    """Set what torchrun sets, where it starts the program."""
    from irscope.frontends.simulation.launchers import environment, set_variables

    with set_variables(environment(options.rank, options.world, options.a_machine) if options.world else {}):
        yield


@contextlib.contextmanager
def _time_limit(seconds: float, stop: type[BaseException]) -> Iterator[None]:
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: Any) -> None:
        raise stop

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
