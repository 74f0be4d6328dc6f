"""Every process that irscope starts: the only module that may.

A process of irscope's own runs Python with `-P`, so that nothing in the working folder is imported in place of a package; it finds no
empty part of PYTHONPATH, which stands for the working folder as well; what it puts into the folder for temporary files lies in a folder
that this process deletes, also when the child was killed; it ends when this process raises, and how it ended is said in one way.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from irscope.files import TemporaryFolder, hold
from irscope.immutable import immutable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    Pipe: TypeAlias = Connection[Any, Any]
else:
    Pipe = Any

T = TypeVar("T")
Stream = int | IO[bytes] | None
PIPE: Final = subprocess.PIPE
NOWHERE: Final = subprocess.DEVNULL
_LOOK_EVERY: Final = 0.1
"""Seconds between two looks whether work was cancelled."""
_MOST_PATH: Final = 103
"""Bytes of a Unix socket's path, everywhere: sun_path has 104 on macOS and 108 on Linux."""
_PATIENCE: Final = 2.0
"""Seconds that a process has to end by itself after it was asked to."""
_SAFE: Final = "PYTHONSAFEPATH"
_PATH: Final = "PYTHONPATH"


class Late(Exception):
    """A process took longer than it may, and was ended."""


class Stopped(Exception):
    """A process was ended because nobody wants its answer any more."""


_PYTHON: Final = re.compile(r"(.*/)?python(3(\.\d+)?)?")
Play: TypeAlias = Callable[[Sequence[str], Mapping[str, str], str | None], int | None]
"""Called with what stands after `python` in a command, with the variables and the folder; returns the exit code, or None to refuse."""


def play_programs(play: Play) -> None:
    """Let `play` do what this Python would in a process of its own, from here on, where `subprocess` is asked to start it and nobody
    reads what it prints; what `play` refuses starts as ever."""
    popen: Any = subprocess.Popen
    original = popen.__init__

    def start(process: Any, args: Any, *more: Any, **options: Any) -> None:
        given = _after_python(args)
        code = None
        if given and not more and not any(options.get(name) == PIPE for name in ("stdin", "stdout")):
            folder = options.get("cwd")
            code = play(given, options.get("env") or os.environ, None if folder is None else os.fsdecode(folder))
        if code is None:
            original(process, args, *more, **options)
            return
        process.args, process.pid, process.returncode = args, os.getpid(), code
        process.stdin = process.stdout = process.stderr = None
        # Popen's own methods look at these: there is no child to wait for.
        process._child_created, process._communication_started, process._waitpid_lock = False, False, threading.Lock()
        process.text_mode = False

    popen.__init__ = start


def _after_python(args: Any) -> list[str]:
    """Return what stands after this interpreter in a command; nothing where another program is started."""
    if isinstance(args, str | bytes | os.PathLike) or not isinstance(args, Sequence):
        return []
    first, *given = [os.fsdecode(one) for one in args] or [""]
    if first != sys.executable and not _PYTHON.fullmatch(first):
        return []
    while given and given[0] in ("-u", "-O", "-B"):
        del given[0]
    return given


def python(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs this Python with arguments, which imports nothing from the working folder."""
    return [sys.executable, "-P", *arguments]


def irscope(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs this irscope with arguments."""
    return python(["-m", "irscope", *arguments])


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: an empty part of PYTHONPATH, as `$PYTHONPATH:/x` leaves it, is the working folder."""
    kept = {**os.environ, **more}
    if _PATH in kept:
        parts = [part for part in kept[_PATH].split(os.pathsep) if part]
        kept[_PATH] = os.pathsep.join(parts)
        if not parts:
            del kept[_PATH]
    return kept


@immutable
class Ended:
    """How a process ended, and what it wrote."""

    code: int
    """Its exit code; negative for a signal."""
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.output.decode("utf-8", "replace")

    @property
    def complaints(self) -> list[str]:
        """Lines of its standard error that are not empty."""
        return [line.strip() for line in self.errors.decode("utf-8", "replace").splitlines() if line.strip()]

    @property
    def how(self) -> str:
        """In words, to stand after "its process"."""
        return how_it_ended(self.code)


def how_it_ended(code: int) -> str:
    """Return what an exit code says, in words that stand after "its process"."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}" + (", as the system does when memory runs out" if name == "SIGKILL" else "")


class Child:
    """A process of irscope's own while it runs.

    `apart` puts it into a session of its own: Ctrl-C at the terminal is not sent to it, and a signal from here reaches what it started
    too. `keeps_temporary` is for those that run a user's program, whose temporary files are the program's affair.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: Stream = NOWHERE,
        stdout: Stream = NOWHERE,
        stderr: Stream = None,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        pass_fds: Sequence[int] = (),
        apart: bool = False,
        keeps_temporary: bool = False,
    ) -> None:
        self._apart = apart
        self._temporary = None if keeps_temporary else TemporaryFolder()
        # The three names that tempfile and other programs look for.
        more = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), self._temporary.path) if self._temporary else {}
        lock = self._temporary.lock if self._temporary else None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=_environment({**more, **(environment or {})}),
                cwd=folder,
                pass_fds=(*pass_fds, *([] if lock is None else [lock])),
                start_new_session=apart,
            )
        except BaseException:
            self._delete()
            raise
        self.stdout, self.stderr = self._process.stdout, self._process.stderr

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def talk(self, asked: bytes, seconds: float | None = None, is_cancelled: Callable[[], bool] | None = None) -> Ended:
        """Hand it its input, and return what it says until it ends. Raises Late or Stopped, once it has been killed."""
        # A thread hands it over: communicate() of Python 3.11 forgets what was not written yet when it is asked to wait again.
        stdin, self._process.stdin = self._process.stdin, None
        if stdin is not None:
            threading.Thread(target=_hand_over, args=(stdin, asked), daemon=True).start()
        left = seconds
        while True:
            wait = left if is_cancelled is None else _LOOK_EVERY if left is None else min(left, _LOOK_EVERY)
            try:
                output, errors = self._process.communicate(timeout=wait)
            except subprocess.TimeoutExpired:
                left = None if left is None or wait is None else left - wait
                if is_cancelled is not None and is_cancelled():
                    self.close()
                    raise Stopped from None
                if left is not None and left <= 0:
                    self.close()
                    raise Late from None
                continue
            self.close()
            return Ended(self._process.returncode, output or b"", errors or b"")

    def wait(self, seconds: float | None = None) -> int:
        """Wait until it has ended, and return its exit code. Raises Late, and leaves it running, after so many seconds."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Late from None
        self._delete()
        return code

    def finish(self, last: bytes) -> None:
        """Hand it the last of its standard input, and wait until it has ended by itself."""
        if self._process.stdin is not None:
            _hand_over(self._process.stdin, last)
        self.wait()

    def stop(self) -> None:
        """Ask it to end, and kill it, with what it started, where it does not."""
        if self.code is None:
            self._signal(signal.SIGTERM)
            with suppress(Late):
                self.wait(_PATIENCE)
        self.close()

    def close(self) -> None:
        """Kill it if it still runs, and delete its temporary files."""
        if self.code is None:
            self._signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):  # what was still to be written to a process that is gone
                    stream.close()
        self._delete()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._apart and hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    def _delete(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()


def _hand_over(stdin: IO[bytes], asked: bytes) -> None:
    with suppress(OSError), stdin:  # it may end before it has read all
        stdin.write(asked)


def run(
    command: Sequence[str],
    *,
    asked: bytes | None = b"",
    seconds: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    stderr: Stream = PIPE,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    keeps_temporary: bool = False,
) -> Ended:
    """Run a command of `python` or `irscope` to its end; with None for what it is asked it has this process's standard input.

    Raises Late or Stopped where it was ended before; nothing of it is left then.
    """
    child = Child(
        command,
        stdin=PIPE if asked else None if asked is None else NOWHERE,
        stdout=PIPE,
        stderr=stderr,
        environment=environment,
        folder=folder,
        keeps_temporary=keeps_temporary,
    )
    with child:
        return child.talk(asked or b"", seconds, is_cancelled)


class Remover:
    """A process that removes a folder when it is asked to, or when this process has ended, however it did."""

    def __init__(self, folder: str) -> None:
        # It reads a line, or until the pipe ends, which is when the last copy of this process has ended too.
        command = ["/bin/sh", "-c", 'read x; rm -rf -- "$1"', "sh", folder]
        self._child = Child(command, stdin=PIPE, stderr=NOWHERE, apart=True, keeps_temporary=True)

    def remove(self) -> None:
        """Remove the folder now, and wait until it is gone, whatever copies of this process still run."""
        self._child.finish(b"\n")


def output_of_tool(path: str, arguments: Sequence[str], seconds: float) -> str:
    """Return what a program of the system prints; "" where it fails or takes longer."""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, stdin=NOWHERE, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def fork() -> int:
    """Return the process id of a copy of this process, and 0 in the copy, which must end by `os._exit`."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which a copy waits for
        return os.fork()


def in_copy(work: Callable[[], bytes]) -> bytes | None:
    """Return what `work` makes in a copy of this process, so that a library that aborts ends only the copy; None where it fails."""
    if not hasattr(os, "fork"):
        return work()
    reader, writer = os.pipe()
    copy = fork()
    if not copy:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the library prints as it aborts
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(work())
            os._exit(0)
        finally:
            os._exit(1)
    try:
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            made = pipe.read()
    except BaseException:
        os.kill(copy, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(copy, 0)[1]
    return made if status == 0 else None


_STARTING: Final = threading.Lock()


class Worker:
    """A process that runs a function with a pipe and an argument until the pipe is closed.

    It is a copy of one that has imported `preload`, where that is not None and the system can do it.
    """

    def __init__(self, function: Callable[..., None], argument: object, name: str, preload: Sequence[str] | None = None) -> None:
        import multiprocessing

        self._folder = TemporaryFolder()
        context = _copying(preload)
        self.pipe: Pipe
        self.pipe, theirs = multiprocessing.Pipe()
        self._process: BaseProcess = context.Process(
            target=_work, args=(self._folder.path, function, theirs, argument), daemon=True, name=name
        )
        try:
            with _STARTING, _without_main(), _safe_path():  # no other process may inherit the pipe's other end
                self._process.start()
                theirs.close()
        except BaseException:
            self._folder.remove()
            raise

    @property
    def is_alive(self) -> bool:
        """Tell whether it runs."""
        return self._process.is_alive()

    def end(self, patience: float) -> int:
        """Close the pipe, kill the process if it does not end by itself, delete its files, and return its exit code."""
        self.pipe.close()
        if patience:
            self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5)
        self._folder.remove()
        return self._process.exitcode or 0


def each(function: Callable[..., T], asked: Sequence[tuple[object, ...]], count: int) -> Generator[T | None, None, None]:
    """Yield what a function returns for each, in order; `count` run at once, each in a process of its own: what it leaves in memory is
    gone when it ends. Where its process was killed it is None. Those under way are killed when nobody asks for more.

    A pool of the standard library waits for ever when it is shut down while processes of one task each are under way (Python 3.11).
    """
    from multiprocessing.connection import wait

    running: dict[Any, tuple[int, Worker]] = {}
    done: dict[int, tuple[T | None, BaseException | None]] = {}
    begun = 0
    try:
        for number in range(len(asked)):
            while number not in done:
                while len(running) < count and begun < len(asked):
                    worker = Worker(_answer, (function, asked[begun]), "irscope-one")
                    running[worker.pipe] = begun, worker
                    begun += 1
                for pipe in wait(list(running)):
                    place, worker = running[pipe]
                    try:
                        done[place] = worker.pipe.recv()
                    except (EOFError, OSError):
                        done[place] = None, None
                    del running[pipe]
                    worker.end(_PATIENCE)
            answer, error = done.pop(number)
            if error is not None:
                raise error
            yield answer
    finally:
        for _, worker in running.values():
            worker.end(0)


def _answer(pipe: Any, asked: tuple[Callable[..., object], tuple[object, ...]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asks ends it
    function, arguments = asked
    try:
        answer: tuple[object, BaseException | None] = function(*arguments), None
    except Exception as error:
        answer = None, error
    pipe.send(answer)


def _work(folder: str, function: Callable[..., None], pipe: Any, argument: object) -> None:
    _settle(folder)
    function(pipe, argument)


def _settle(folder: str) -> None:
    """Put temporary files of this process into a folder that its parent deletes."""
    import tempfile

    hold(folder)  # where the parent is killed, until this process has ended
    tempfile.tempdir = folder
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder))


def _has_short_folder() -> bool:
    """Return whether a socket's path fits below the folder for temporary files: the server that forks listens at one."""
    import tempfile

    return len(os.fsencode(tempfile.gettempdir())) + len("/pymp-xxxxxxxx/listener-xxxxxxxx") <= _MOST_PATH


def _copying(preload: Sequence[str] | None) -> Any:
    """Return what starts processes as copies of one that has imported what they need, where the system can do that."""
    import multiprocessing

    if preload is not None and "forkserver" in multiprocessing.get_all_start_methods() and _has_short_folder():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(preload))
        return context
    return multiprocessing.get_context("spawn")


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let processes that begin meanwhile look for modules in no working folder, as `-P` does for those with a command line."""
    before = {name: os.environ.get(name) for name in (_SAFE, _PATH)}
    os.environ[_SAFE] = "1"
    cleaned = _environment({}).get(_PATH)
    if cleaned is not None:
        os.environ[_PATH] = cleaned
    else:
        os.environ.pop(_PATH, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from importing the program's main module again, as it would so that what is defined there can be unpickled:
    nothing here is, and the main module may be a user's script without a guard, or the worker of a cluster that this runs in."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


Start: TypeAlias = Literal["start", "copy", "play", "leave"]
"""What becomes of a process: it is started, as a copy of this one where it would be a new one, called here, or taken to have ended well."""


def take_over(decide: Callable[[BaseProcess], Start]) -> None:
    """Let `decide` say what becomes of each process that is started with multiprocessing from here on."""
    from multiprocessing.context import ForkProcess
    from multiprocessing.process import BaseProcess

    kind: Any = BaseProcess
    original = kind.start

    def start(process: Any) -> None:
        said = decide(process)
        if said in ("start", "copy"):
            if said == "copy":
                process._Popen = ForkProcess._Popen
            original(process)
            return
        process._popen = _Done()
        if said == "play":
            process.run()

    kind.start = start


def is_pipe(value: object) -> bool:
    """Return whether a value is an end of something that another process has the other end of."""
    from multiprocessing.connection import Connection
    from multiprocessing.queues import Queue, SimpleQueue

    return isinstance(value, (Connection, Queue, SimpleQueue))


class _Done:
    """A process that has ended, as multiprocessing has it."""

    returncode = 0
    sentinel = -1
    pid: int | None = None

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def terminate(self) -> None:
        pass

    kill = close = terminate
