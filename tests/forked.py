"""Programs in children of one process that has imported torch, so that a test does not wait for that; each begins anew."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from irscope import processes
from irscope.cli import simulate
from irscope.processes import Ended
from irscope.tools import simulate_ranks

ROOT = Path(__file__).parents[1]
_MAIN = "import sys; from irscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
_servers: list[subprocess.Popen[str]] = []


def python(
    program: str, *arguments: str, folder: Path = ROOT, given: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `python -c PROGRAM ARGUMENTS` does in a folder, with `given` on its standard input."""
    if not _servers:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "tests.forked"]
        _servers.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}
            )
        )
        atexit.register(_end)
    [server] = _servers
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as own:
        read, out, err = (Path(own, name) for name in ("in", "out", "err"))
        read.write_text(given)
        streams = {"stdin": str(read), "stdout": str(out), "stderr": str(err)}
        asked = {"program": program, "arguments": arguments, "folder": str(folder), **streams}
        asked["environment"] = dict(os.environ if environment is None else environment)
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())


def irscope(*line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `irscope LINE` does in a folder."""
    return python(_MAIN, *line, folder=folder)


def run_module(
    command: Sequence[str], *, asked: bytes = b"", stderr: Any = None, environment: Mapping[str, str] | None = None, **rest: Any
) -> Ended:
    """Run `python -P -m MODULE` as `irscope.processes.run` does, in a process that begins with torch imported."""
    *_, option, module = command
    assert option == "-m", command
    program = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    done = python(program, folder=Path.cwd(), given=asked.decode(), environment={**os.environ, **(environment or {})})
    if stderr is None:
        os.write(2, done.stderr.encode())
    else:
        stderr.write(done.stderr.encode())
    return Ended(done.returncode, done.stdout.encode(), done.stderr.encode())


def _end() -> None:
    for server in _servers:
        server.communicate()


def _serve() -> None:
    """Run what is asked for on standard input, a line of JSON each, and answer with the exit status, negative for a signal."""
    importlib.import_module("irscope.frontends.simulation.process").import_ahead()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)


class _Forked:
    """In place of `irscope.processes` for what starts processes that import torch and fork servers: they are children of one that has
    imported it, and done nothing else."""

    python, how_it_ended = staticmethod(processes.python), staticmethod(processes.how_it_ended)

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair()
        self._process = os.fork()
        if self._process:
            asked.close()
            return
        self._asking.close()
        while True:
            said, ends, *_ = socket.recv_fds(asked, 1 << 20, 64)
            if not said:
                os._exit(0)
            if not ends:
                os.wait()
                asked.send(b"ended")
            elif os.fork():
                for end in ends:
                    os.close(end)
            else:
                asked.close()
                _serve_ranks(json.loads(said), ends)

    def Child(self, command: Sequence[str], *, pass_fds: Sequence[int], environment: Mapping[str, str], apart: bool) -> _Forked:
        """Start another."""
        socket.send_fds(self._asking, [json.dumps({**os.environ, **environment}).encode()], list(pass_fds))
        return self

    def wait(self) -> None:
        """Until one ends."""
        self._asking.send(b"wait")
        self._asking.recv(16)

    def close(self) -> None:
        """No more are asked for."""
        self._asking.shutdown(socket.SHUT_RDWR)
        os.waitpid(self._process, 0)


def _serve_ranks(environment: Mapping[str, str], ends: Sequence[int]) -> NoReturn:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    for number in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    sys.argv = ["-c", *map(str, ends)]
    simulate.serve()
    os._exit(0)


def _run(asked: dict[str, Any]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.dup2(os.open(asked["stdin"], os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(asked[name], os.O_RDWR | os.O_CREAT, 0o600), number)
    os.chdir(asked["folder"])
    sys.argv = ["-c", *asked["arguments"]]
    code = 0
    forking = _Forked()
    try:
        # Torch is imported already, which a simulation otherwise takes for a sign that this process did something else before.
        simulate._alone = True
        vars(simulate_ranks)["processes"] = forking
        exec(compile(asked["program"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:  # whatever the program raises is what it prints
        traceback.print_exc()
        code = 1
    finally:
        atexit._run_exitfuncs()
        forking.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
