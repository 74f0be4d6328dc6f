"""Heavy work in a process of its own: beside the UI it would take its turns of the interpreter, and what it reads would stay in memory."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from irscope import processes
from irscope.errors import Cancelled, IrscopeError, PassError
from irscope.session import Model, open_model

T = TypeVar("T")
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
    from irscope.ir.spelling import parse_input_type

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
