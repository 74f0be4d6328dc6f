"""What irscope writes: files a user names are replaced as a whole and never through a link, its own lie in private folders.

A name in the working folder may have been put there by the author of the model: a link under a predictable name would
turn an answer into the loss of another file. So content is written under a random name beside the target, and moved there.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, ClassVar, TextIO

from irscope.errors import OutputError

_STREAM_FOLDERS = ("/dev/", "/proc/")
"""Links below these are the system's own names of open streams, such as /dev/stdout."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_RECORDING = b"irscope.recording"
"""How the schema of recordings begins; their own module takes longer to import than a small model to read."""
_FORCE_HINT = "`--force` writes to where it leads"
_NAME = "irscope-"
_END = ".tmp"
_RANDOM = 8
"""Characters that tempfile puts into a name."""


def open_regular(path: Path, most: int = sys.maxsize) -> BinaryIO:
    """Open a file to read it. OSError where it is none, as a pipe would wait for a writer and a device has no end, or has more bytes."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    reason = f"it has more than {most >> 20} MiB" if stat.S_ISREG(status.st_mode) else "it is not a regular file"
    raise OSError(errno.EINVAL, reason, str(path))


def read_regular(path: Path, most: int = 64 << 20) -> bytes:
    """Return what a file holds. OSError as above."""
    with open_regular(path, most) as stream:
        return stream.read(most)


def is_recording(path: Path) -> bool:
    """Return whether a file begins as a recording does, of whatever version."""
    try:
        with open_regular(path) as stream:
            start = stream.read(4096)
    except OSError:
        return False
    first = start.split(b"\n", 1)[0]
    return first.lstrip().startswith(b"{") and _RECORDING in first


def config_folder() -> Path:
    """IRSCOPE_HOME where it is set, else the folder the system has for settings. It need not exist."""
    return _own_folder("XDG_CONFIG_HOME", ".config", Path("Library", "Application Support"), "APPDATA")


def cache_folder() -> Path:
    """Return the folder of what irscope writes on its own, such as crash reproducers. It need not exist."""
    return _own_folder("XDG_CACHE_HOME", ".cache", Path("Library", "Caches"), "LOCALAPPDATA")


def _own_folder(variable: str, at_home: str, on_mac: Path, on_windows: str) -> Path:
    chosen = os.environ.get("IRSCOPE_HOME")
    if chosen:
        return Path(chosen).expanduser() / ("cache" if variable == "XDG_CACHE_HOME" else "")
    if sys.platform == "win32":
        return Path(os.environ.get(on_windows) or Path.home() / "AppData" / "Local") / "irscope"
    if sys.platform == "darwin":
        return Path.home() / on_mac / "irscope"
    xdg = os.environ.get(variable, "")
    # The rule of the XDG specification: a relative path is to be ignored.
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / at_home) / "irscope"


def private_file(stem: str, suffix: str, content: str, folder: str = "") -> Path | None:
    """Write a new file that only this user can read into a folder that the user chose, else the cache folder, else a new temporary
    folder; None if nowhere is writable. Its name cannot be predicted."""
    name = f"{stem}-{os.urandom(4).hex()}{suffix}"
    try:
        return _new_private((Path(folder) if folder else private_folder(cache_folder())) / name, content)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        pass
    try:
        return _new_private(Path(new_folder(_NAME)) / name, content)
    except OSError:
        return None


def private_folder(folder: Path) -> Path:
    """Make a folder that only this user may enter. OSError if it is a link or belongs to another user."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
        raise OSError(f"{folder} is not this user's own folder")
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def _new_private(path: Path, content: str) -> Path:
    _fill_text(os.open(path, _NEW_FILE, 0o600), [content])
    return path


def replace_private(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file of irscope's own that only this user can read, in place of what has that name, be it a link. Raises OSError."""
    _write_then_move(path, f"{os.urandom(8).hex()}.tmp", 0o600, lambda descriptor: _fill_binary(descriptor, pieces))


def new_folder(prefix: str, suffix: str = "", beside: str | None = None) -> str:
    """Return a new folder that only this user may enter, in the folder for temporary files unless another one is named."""
    import tempfile  # not at the top: `irscope --help` imports this module

    return tempfile.mkdtemp(suffix, prefix, beside)


class TemporaryFolder:
    """A folder for temporary files, which goes when the block around it ends, or by `remove`.

    It is locked while a process that uses it lives. Where all of them were killed, the next process of irscope that makes one in the
    same place removes it.
    """

    _cleared: ClassVar[set[str]] = set()

    def __init__(self, kind: str = "", beside: Path | None = None) -> None:
        prefix = f"{'.' if beside else ''}{_NAME}{kind and kind + '-'}"
        while True:
            self.path = new_folder(prefix, _END, None if beside is None else str(beside))
            place = os.path.dirname(self.path)
            if place not in self._cleared:
                self._cleared.add(place)
                _remove_left(place, self.path)
            self.lock = hold(self.path)
            if os.path.isdir(self.path):  # else another process took it for a left one before it was locked
                break
            _let_go(self.lock)
        self._owner = os.getpid()

    def remove(self) -> None:
        """Remove it with what is in it; a copy of the process that made it leaves it alone."""
        if self._owner == os.getpid():
            self._owner = 0
            _remove_folder(self.path)
            _let_go(self.lock)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *raised: object) -> None:
        self.remove()


def hold(folder: str, *, alone: bool = False) -> int | None:
    """Lock a folder until this process, and each that inherits what is returned, has ended; None where it cannot be locked, or where others
    hold it and it is wanted alone."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (ImportError, OSError):
        return None
    try:
        # Who holds it alone removes it at once: to wait for that shows whether it is still there.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_left(place: str, but: str) -> None:
    """Remove this user's folders that no process holds any more."""
    try:
        with os.scandir(place) as entries:
            named = [entry for entry in entries if _is_ours(entry.name) and entry.path != but]
        left = [one.path for one in named if one.stat(follow_symlinks=False).st_uid == os.getuid()]
    except (OSError, AttributeError):  # AttributeError: a system without users, where nothing can be locked either
        return
    for path in left:
        lock = hold(path, alone=True)
        if lock is not None:
            _remove_folder(path)
            _let_go(lock)


def _is_ours(name: str) -> bool:
    name = name.removeprefix(".")
    return name.startswith(_NAME) and name.endswith(_END) and len(name) >= len(_NAME) + _RANDOM + len(_END)


def _remove_folder(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _let_go(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def link_target(path: Path) -> Path | None:
    """Return the target of a symbolic link; None for anything else, and for the system's names of open streams."""
    return path.resolve() if path.is_symlink() and not is_stream(path) else None


def is_stream(path: Path) -> bool:
    """Return whether the path is one of the system's names of open streams."""
    return str(path.absolute()).startswith(_STREAM_FOLDERS)


def refuse_link(path: Path) -> None:
    """OutputError if the path is a symbolic link."""
    leads = link_target(path)
    if leads is not None:
        raise OutputError(f"is a link to {leads}, which would be replaced", where=str(path), hint=_FORCE_HINT)


def write_text(path: Path, chunks: Iterable[str]) -> None:
    """Write UTF-8 text beside the target and move it there when it is complete; a device or pipe is written directly."""
    _write(path, lambda descriptor: _fill_text(descriptor, chunks))


def create_text(path: Path, text: str) -> None:
    """Write a new file, whole or not at all. Raises FileExistsError where something has its name, and OSError."""
    descriptor = os.open(path, _NEW_FILE, 0o666)
    try:
        _fill_text(descriptor, [text])
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_binary(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write pieces of binary data one after the other beside the target and move them there when they are complete."""
    _write(path, lambda descriptor: _fill_binary(descriptor, pieces))


def open_fresh(path: Path) -> TextIO:
    """Open a new text file in place of the one that may be there, for content that has to be kept even if the writer dies."""
    with as_output_error(path):
        refuse_link(path)
        if is_stream(path) or (path.exists() and not path.is_file()):
            return path.open("w", encoding="utf-8", newline="\n")
        path.unlink(missing_ok=True)
        return os.fdopen(os.open(path, _NEW_FILE, 0o666), "w", encoding="utf-8", newline="\n")


@contextmanager
def replaced_when_whole(target: Path) -> Iterator[Path]:
    """Return a path beside the target for what is written line by line: it takes the target's place when the block ends well, and goes
    when it does not. Its name is not hidden, for who looks for what a killed program wrote."""
    refuse_link(target)
    if is_stream(target) or (target.exists() and not target.is_file()):
        yield target
        return
    beside = target.with_name(f"{target.name}.{os.urandom(4).hex()}.part")
    with as_output_error(target):
        os.close(os.open(beside, _NEW_FILE, 0o666))
    try:
        yield beside
        with as_output_error(target):
            os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A path for a library that writes files by name: it and its siblings are moved beside the target when the block ends well."""
    with as_output_error(target):
        refuse_link(target)
        with TemporaryFolder(beside=target.parent) as folder:
            yield Path(folder) / target.name
            written = sorted(Path(folder).iterdir())
            for file in written:
                refuse_link(target.parent / file.name)
            for file in written:
                os.replace(file, target.parent / file.name)


def write_stream(stream: TextIO, chunks: Iterable[str]) -> bool:
    """Write to an open stream; False if its reader went away, as `| head` does, which is no error."""
    try:
        for chunk in chunks:
            _write_encodable(stream, chunk)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
        return False
    except OSError as error:
        _silence(stream)
        raise OutputError(f"cannot write the output: {error.strerror or error}") from error
    return True


def _write_encodable(stream: TextIO, chunk: str) -> None:
    try:
        stream.write(chunk)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(chunk.encode(encoding, "backslashreplace").decode(encoding))


def _silence(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain about it on its way out."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file of the system
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def make_folder(folder: Path) -> None:
    """Make a folder that is not there yet, and those above it. Raises OutputError."""
    with as_output_error(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def as_output_error(path: Path) -> Iterator[None]:
    """Return the system's error about a file that cannot be written, as an OutputError."""
    try:
        yield
    except OSError as error:
        hint = "the folder it should be in does not exist" if isinstance(error, FileNotFoundError) else ""
        raise OutputError(f"cannot be written: {error.strerror or error}", where=str(path), hint=hint) from error


def _write(path: Path, fill: Callable[[int], None]) -> None:
    with as_output_error(path):
        refuse_link(path)
        if is_stream(path) or (path.exists() and not path.is_file()):
            fill(os.open(path, os.O_WRONLY))
            return
        _write_then_move(path, f".irscope-{os.urandom(8).hex()}.tmp", stat.S_IMODE(path.stat().st_mode) if path.exists() else None, fill)


def _write_then_move(path: Path, beside: str, mode: int | None, fill: Callable[[int], None]) -> None:
    """Write a file beside the path, with that mode if any is given, and move it there when it is whole."""
    temporary = path.with_name(beside)
    descriptor = os.open(temporary, _NEW_FILE, 0o666 if mode is None else 0o600)
    try:
        fill(descriptor)
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _fill_binary(descriptor: int, pieces: Iterable[bytes | memoryview]) -> None:
    with os.fdopen(descriptor, "wb") as binary:
        binary.writelines(pieces)


def _fill_text(descriptor: int, chunks: Iterable[str]) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.writelines(chunks)
