"""Running a model in a process of its own: a crash of the runtime ends that process, and the recording says so.

`python -m irscope.measure.record.process` is that process, with a request on standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from irscope import processes
from irscope.errors import IrscopeError, LoadError, OutputError, PassError, UsageError
from irscope.files import TemporaryFolder, replaced_when_whole, write_binary
from irscope.jsoncodec import Misfit, decode, encode, loads
from irscope.measure.record.request import ORT, Request
from irscope.measure.record.sink import Sink, first_line, last_progress, new_progress, problem_of
from irscope.recording.files import as_text, read_recording
from irscope.recording.records import End, Problem, Recording

_LOOK_EVERY = 0.5


def main() -> int:
    """Record what standard input asks for; the last line of standard output says how it went."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    warnings.simplefilter("ignore")
    request = decode(Request, loads(sys.stdin.read()))
    try:
        record_request(request, Sink(request.target, bool(os.environ.get("IRSCOPE_RECORD_STAGES")), request.options.device))
        answer.write(json.dumps({"ok": True}))
    except IrscopeError as error:
        found = {"error": error.message, "code": error.code, "where": error.where, "hint": error.hint, "kind": type(error).__name__}
        answer.write(json.dumps(found))
    answer.close()
    return 0


def record_request(request: Request, sink: Sink) -> None:
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
        from irscope.measure.record.ortrun import record_ort

        record_ort(request, sink)
    elif request.loop is not None:
        from irscope.measure.record.torchsteps import record_loop

        record_loop(request, request.loop, sink)
    else:
        from irscope.measure.record.torchrun import record_torch

        record_torch(request, sink)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: nothing would read its results."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)


def request_text(request: Request) -> str:
    """Return a request as the process reads it."""
    return json.dumps(encode(request))


if __name__ == "__main__":
    sys.exit(main())


# Running a model in a process of its own: a crash of the runtime ends that process, and the recording says so.

_LAST_LINES = 3
_ERRORS: Mapping[str, type[IrscopeError]] = {kind.__name__: kind for kind in (UsageError, OutputError, LoadError, PassError)}


def record_in_process(request: Request, timeout: float | None = None, verbose: bool = False) -> Recording:
    """Record a model in a child process and read what it wrote. Raises the child's error where there is no recording."""
    with TemporaryFolder() as folder, replaced_when_whole(request.target) as beside:
        progress = Path(folder) / "progress"
        new_progress(progress)
        ended = _run(replace(request, output=str(beside), progress=str(progress)), Path(folder) / "stderr", timeout, verbose)
        if isinstance(ended, Problem):
            name, operator = last_progress(progress)
            _close(beside, replace(ended, op_name=operator, scope=name))
    return read_recording(request.target)


def _run(request: Request, errors: Path, timeout: float | None, verbose: bool) -> Problem | None:
    """None where the child ended as it should, else how it ended."""
    # PyTorch's allocator complains of each process in which blocks were made before it was watched.
    environment = {"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"), "PYTHONIOENCODING": "utf-8"}
    if verbose:
        environment["IRSCOPE_RECORD_STAGES"] = "1"
    is_script = request.loop is not None and bool(request.loop.script)  # what it says is for the user
    with errors.open("wb") as complaints:
        try:
            ended = processes.run(
                processes.python(["-m", "irscope.measure.record.process"]),
                asked=request_text(request).encode(),
                stderr=None if verbose or is_script else complaints,
                seconds=timeout,
                environment=environment,
                keeps_temporary=True,
            )
        except processes.Late:
            return Problem("timeout", f"the run took longer than {timeout:g} s and was ended")
    answer = _answer(ended.text)
    if answer is not None and "error" in answer:
        kind = _ERRORS.get(str(answer.get("kind")), PassError)
        texts = {key: str(answer.get(key, "")) for key in ("code", "where", "hint")}
        raise kind(str(answer["error"]), **texts)
    if answer is not None:
        return None
    last = _tail(errors)
    return Problem("crashed", f"the process that ran the model {ended.how}{': ' + last if last else ''}")


def _answer(text: str) -> dict[str, object] | None:
    try:
        found = loads(text)
    except Misfit:
        return None
    return found if isinstance(found, dict) else None


def _tail(errors: Path) -> str:
    lines = [line.strip() for line in errors.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:])[:600]


def _close(target: Path, problem: Problem) -> None:
    """End a recording whose writer is gone: with what happened, after the last whole line."""
    where = f" at {problem.scope} ({problem.op_name})" if problem.scope else ""
    try:
        written = target.read_bytes()
    except OSError:
        written = b""
    whole = written[: written.rfind(b"\n") + 1]
    if not whole:
        raise PassError(problem.text + where, code="IRS481", hint="nothing was recorded: it happened before the model ran")
    lines = whole.count(b"\n")
    write_binary(target, [whole, as_text(problem).encode(), as_text(End(lines + 1, complete=False)).encode()])
