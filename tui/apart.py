"""Heavy work in a process of its own: beside the UI it would take its turns of the interpreter, and what it reads would stay in memory."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from shlex import join
from time import monotonic
from typing import Any, TypeVar

from irscope import processes
from irscope.errors import Cancelled, IrscopeError, PassError, UsageError
from irscope.ir.spelling import parse_input_type, typed_input
from irscope.report.printable import legible
from irscope.session import Model, open_model
from irscope.tui.command import Source

T = TypeVar("T")
_KEPT = 12
"""Lines of what the process says that are kept for the case that it fails."""
_CHILD = "import irscope.tui.apart as apart; apart.answer()"


def of_model(work: Callable[[Model], T], model: Model, sizes: Mapping[str, int], cancelled: threading.Event) -> T:
    """Return the result of a function of a module for the model read again with these sizes, for its settings; the result is pickled.

    Blocks the calling thread, which leaves the interpreter to the UI, and raises Cancelled as soon as that is wanted.
    """
    options = model.options
    inputs = {name: str(type_) for name, type_ in options.inputs.items()}
    bound = replace(options, inputs={}, bind={**options.bind, **sizes})
    asked = pickle.dumps((work.__module__, work.__qualname__, str(Path(model.program.path)), inputs, bound, model.manager.settings))
    try:
        ended = processes.run(processes.python(["-c", _CHILD]), asked=asked, is_cancelled=cancelled.is_set, stderr=processes.NOWHERE)
    except processes.Stopped:
        raise Cancelled("stopped on request", hint="ctrl-r reads the file again and starts over") from None
    if not ended.output:
        raise PassError(f"the process that was to compute this {ended.how}, without an answer", hint="this is a bug; please report it")
    found: Any = pickle.loads(ended.output)
    if isinstance(found, IrscopeError):
        raise found
    return found  # type: ignore[no-any-return]  # pickled by the function that was asked for


def answer() -> None:
    """Serve one request as the child process: read it from stdin, and write its result to stdout."""
    module, name, path, inputs, options, settings = pickle.loads(sys.stdin.buffer.read())
    # What code of packages prints is not part of the answer.
    out, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    found: object
    try:
        types = {key: parse_input_type(text) for key, text in inputs.items()}
        found = getattr(importlib.import_module(module), name)(open_model(Path(path), replace(options, inputs=types), settings=settings))
    except IrscopeError as error:
        found = PassError(str(error).partition("\n")[0], hint=error.hint)
    with out:
        pickle.dump(found, out)


# `irscope record` and `irscope simulate`, beside the screen that asked for them.


def record_command(source: Source, output: Path) -> list[str]:
    """Return the arguments that record the open model at the sizes on the screen."""
    arguments = ["record", "--trust", "-o", str(output), source.path]
    for name, type_ in source.inputs.items():
        arguments += ["--input", typed_input(name, type_)]
    if source.bind:
        arguments += ["--bind", ",".join(f"{name}={size}" for name, size in source.bind.items())]
    return arguments


def simulate_command(script: Path, output: Path) -> list[str]:
    """Return the arguments that simulate a training program."""
    return ["simulate", "-o", str(output), str(script)]


def new_file(stem: str, folder: Path | None = None) -> Path:
    """Return a path in the current folder that is not taken."""
    folder = folder or Path()
    paths = (folder / f"{stem}{'' if number == 1 else f'-{number}'}.jsonl" for number in range(1, 1000))
    path = next((path for path in paths if not os.path.lexists(path)), None)
    if path is None:
        raise UsageError(f"there are too many files called {stem}", hint="remove some of them")
    return path


class ChildRun:
    """One command in a process of its own, which ends with this one."""

    def __init__(self, arguments: Sequence[str], output: Path) -> None:
        self.command = join(["irscope", *arguments])
        self.what = "recording" if arguments[0] == "record" else "simulating"
        self.output = output
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._began = monotonic()
        self._is_cancelled = False
        # Apart: the executor's processes end with it, and ctrl-c of the terminal is the UI's.
        self._process = processes.Child(processes.irscope(arguments), stderr=processes.PIPE, apart=True)

    @property
    def text(self) -> str:
        """Return the progress, in a few words."""
        last = legible(self._said[-1]) if self._said else ""
        return f"{self.what}, {monotonic() - self._began:.0f} s, ctrl-x cancels{f': {last}' if last else ''}"

    def wait(self) -> IrscopeError | None:
        """Until the process has ended; returns why there is no recording, if there is none. For a thread that may wait."""
        assert self._process.stderr is not None
        with TextIOWrapper(self._process.stderr, "utf-8", "replace") as lines:
            for line in lines:
                if line.strip():
                    self._said.append(line.strip())
        code = self._process.wait()
        if self._is_cancelled:
            self.output.unlink(missing_ok=True)
            return Cancelled("stopped on request")
        if code and not self.output.exists():
            return UsageError(legible("\n".join(self._said)) or f"it ended with exit code {code}", hint=self.command)
        return None

    def cancel(self) -> None:
        """End the process and those that it started."""
        if self._process.code is None:
            self._is_cancelled = True
            self._process.stop()
