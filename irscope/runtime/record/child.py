"""The process that runs the model: `python -m irscope.runtime.record.child` with a request on standard input."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings

from irscope.errors import IrscopeError, PassError
from irscope.recording.decode import decode, encode
from irscope.runtime.record.failing import first_line, problem_of
from irscope.runtime.record.request import ORT, Request
from irscope.runtime.record.sink import Sink

_LOOK_EVERY = 0.5


def main() -> int:
    """Record what standard input asks for; the last line of standard output says how it went."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    warnings.simplefilter("ignore")
    request = decode(Request, json.load(sys.stdin))
    try:
        record(request, Sink(request.target, verbose=bool(os.environ.get("IRSCOPE_RECORD_STAGES"))))
        answer.write(json.dumps({"ok": True}))
    except IrscopeError as error:
        found = {"error": error.message, "code": error.code, "where": error.where, "hint": error.hint, "kind": type(error).__name__}
        answer.write(json.dumps(found))
    answer.close()
    return 0


def record(request: Request, sink: Sink) -> None:
    """Run the model with the executor that is asked for. What it raises is in the recording, or is the error where there is none yet."""
    try:
        _record(request, sink)
    except IrscopeError:
        raise
    except Exception as error:
        if not sink.begun:
            raise PassError(f"the model cannot be loaded: {first_line(error)}", code="IRS481", where=request.model.name) from error
        sink.add(problem_of(error, (), ()))
        sink.failed = True
    sink.finish()


def _record(request: Request, sink: Sink) -> None:
    if request.options.executor == ORT:
        from irscope.runtime.record.ortrun import record_ort

        record_ort(request, sink)
    else:
        from irscope.runtime.record.torchrun import record_torch

        record_torch(request, sink)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: nothing would read its results."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)


def request_text(request: Request) -> str:
    """A request as the process reads it."""
    return json.dumps(encode(request))


if __name__ == "__main__":
    sys.exit(main())
