"""Files that a simulated program writes: a folder of their own, laid over the files that are there.

Checkpoints of a simulated program hold zeros, and its next real run would resume from them. So what it writes, moves and removes is kept
apart: it finds its own files where it put them, and nobody else does. Python's functions for files are replaced while the program runs, and
those by which torch, safetensors and tokenizers write and read files in C++ and Rust.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import errno
import functools
import importlib
import io
import os
import shutil
import stat
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from irscope.files import TemporaryFolder
from irscope.processes import Remover

_GONE: Final = "\1gone"
"""A file in a folder named like one that was removed. No program calls a file so."""
_SYSTEM: Final = ("/dev", "/proc", "/sys", "/run")
_CACHES: Final = (
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_HOME", "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "MPLCONFIGDIR",
)  # fmt: skip
"""Variables that name folders of what was downloaded or compiled, whose values are not the program's."""
_CACHED: Final = ("huggingface", "torch", "torch_extensions", "triton", "matplotlib", "fontconfig", "pip", "uv")
"""Folders of the same kind below ~/.cache. Others there may be the program's own: nanochat has its checkpoints in one."""
_MOST_LINKS: Final = 40
"""Symbolic links followed in one path, as Linux does (MAXSYMLINKS)."""
_SPARSE: Final = 1 << 16
"""Bytes: stretches of zeros as long as this are left out of files, which read as zeros there."""
_NO_FILE: Final = ("", ":memory:")
"""Databases in memory."""


@dataclass(frozen=True)
class Written:
    """A file that the program wrote."""

    path: str
    bytes: int
    line: str
    """Where it was opened first."""
    was_there: bool
    """True where a file of this name was there before."""


class _Sparse(io.FileIO):
    """A file in which long stretches of zeros take no room: tensors of the simulated device have no other values."""

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        if len(view) < _SPARSE or self.tell() < os.fstat(self.fileno()).st_size:
            return self._whole(view)
        hole = False
        for start in range(0, len(view), _SPARSE):
            part = view[start : start + _SPARSE]
            hole = not np.frombuffer(part, np.uint8).any()
            if hole:
                self.seek(len(part), os.SEEK_CUR)
            else:
                self._whole(part)
        if hole:
            self.truncate(self.tell())
        return len(view)

    def _whole(self, view: memoryview) -> int:
        done = 0
        while done < len(view):  # the system writes 2 GiB at once at most
            done += super().write(view[done:]) or 0
        return done


class _Entry:
    """An `os.DirEntry` of a folder that is in both layers."""

    def __init__(self, name: Any, path: Any) -> None:
        self.name, self.path = name, path

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Do as `os.stat`."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """Return the number of the file."""
        return self.stat(follow_symlinks=False).st_ino

    def _is(self, kind: Callable[[int], bool], follow: bool) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a folder."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a regular file."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        return self._is(stat.S_ISLNK, follow=False)

    def is_junction(self) -> bool:
        """Linux has none."""
        return False


class _Entries(contextlib.AbstractContextManager["_Entries"]):
    """Result of `os.scandir`."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def __exit__(self, *raised: object) -> None:
        self.close()


def _names(path: Any) -> bool:
    """Return whether it is a name and no number of an open file."""
    return isinstance(path, str | bytes | os.PathLike)


class Overlay:
    """Files of one program. Everything is in the file system, so that processes that the program forks see the same."""

    def __init__(self, line: Callable[[], str] = lambda: "", own: Callable[[str], bool] = lambda path: False) -> None:
        """`line` tells where the program is; `own` which paths are irscope's."""
        self._real = types.SimpleNamespace(**{name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))})
        self._real_open: Any = io.open
        self._line, self._own = line, own
        self._folder = TemporaryFolder("files")
        self._root = os.path.realpath(self._folder.path)
        self._layer, self._removed = f"{self._root}/files", f"{self._root}/gone"
        self._used = False
        self._thread = threading.local()
        self._lock = threading.RLock()
        self._lines: dict[str, str] = {}
        self._temporary = os.path.realpath(tempfile.gettempdir())
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        caches = [*(os.environ.get(name, "") for name in _CACHES), *(f"{cache}/{name}" for name in _CACHED)]
        here = os.getcwd()
        plain = [os.path.realpath(path) for path in caches if path]
        self._plain = [*_SYSTEM, self._root, *(path for path in plain if not _within(here, path))]
        """Folders whose files are read and written where they are."""
        self._process = os.getpid()
        self._undo = contextlib.ExitStack()
        self._remover = Remover(self._root)
        atexit.register(self.remove)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Show files as they are within the context."""
        before = getattr(self._thread, "aside", False)
        self._thread.aside = True
        try:
            yield
        finally:
            self._thread.aside = before

    @property
    def _is_aside(self) -> bool:
        return getattr(self._thread, "aside", False)

    def _lexists(self, path: Any) -> bool:
        try:
            self._real.lstat(path)
        except OSError:
            return False
        return True

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._real.stat(path).st_mode)
        except OSError:
            return False

    def _in_use(self) -> bool:
        """Return whether anything was written or removed, by this process or by one that was forked."""
        self._used = self._used or self._lexists(self._layer) or self._lexists(self._removed)
        return self._used

    def _key(self, path: Any, follow: bool = True) -> str:
        """Return the absolute name of a file, as the program sees it, without symbolic links; the last part's is followed if asked for."""
        text = os.fsdecode(path)
        pending = text.split("/")[::-1]
        key = "" if text.startswith("/") else self._cwd().rstrip("/")
        links = 0
        while pending:
            part = pending.pop()
            if part in ("", "."):
                continue
            if part == "..":
                key = key.rpartition("/")[0]
                continue
            name = f"{key}/{part}"
            target = None
            if links < _MOST_LINKS and (follow or any(pending)):
                with contextlib.suppress(OSError):
                    target = self._real.readlink(self._place(name))
            if target is None:
                key = name
                continue
            links += 1
            pending.extend(target.split("/")[::-1])
            key = "" if target.startswith("/") else key
        return key or "/"

    def _cwd(self) -> str:
        return self._seen(self._real.getcwd())

    def _seen(self, path: str) -> str:
        """Return the program's name of a file in the layer above."""
        return path[len(self._layer) :] or "/" if _within(path, self._layer) else path

    def _place(self, key: str) -> str:
        """Return the real place of a file; a name under which there is nothing if it was removed."""
        above = self._layer + key
        return above if self._lexists(above) or self._lexists(f"{self._removed}{key}/{_GONE}") else key

    def _is_plain(self, key: str) -> bool:
        return any(_within(key, folder) for folder in self._plain) or self._own(key)

    def reading(self, path: Any, follow: bool = True) -> Any:
        """Return the file to read for what the program calls so."""
        if self._is_aside or not _names(path) or not self._in_use():
            return path
        key = self._key(path, follow)
        place = key if self._is_plain(key) else self._place(key)
        return path if place == key and self._lexists(path) else place  # links may lead from one layer to the other

    def writing(self, path: Any, *, copy: bool = False, follow: bool = True) -> Any:
        """Return the file to write; with `copy` its content is there as well."""
        if self._is_aside or not _names(path) or path in _NO_FILE:
            return path
        with self._lock:
            key = self._key(path, follow)
            if self._is_plain(key):
                return path
            place, above = self._place(key), self._layer + key
            kind = stat.S_IFMT(self._real.lstat(place).st_mode) if self._lexists(place) else stat.S_IFREG
            if kind not in (stat.S_IFREG, stat.S_IFLNK):
                return path if place == key else place
            self._folder_for(key, path)
            if copy and place == key and self._lexists(key):
                with self.aside():
                    shutil.copy2(key, above)
            self._lines.setdefault(key, self._line())
            return above

    def _folder_for(self, key: str, path: Any) -> None:
        """Make the folder of a new file above, if the program sees one."""
        folder = os.path.dirname(key)
        if not self._is_folder(self._place(folder)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with self.aside():
            os.makedirs(self._layer + folder, exist_ok=True)

    def _hide(self, key: str) -> None:
        """Hide what lies below, if there is anything."""
        if self._lexists(key):
            with self.aside():
                os.makedirs(self._removed + key, exist_ok=True)
                with open(f"{self._removed}{key}/{_GONE}", "wb"):
                    pass

    def open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        """Do as the function of that name."""
        if self._is_aside or not _names(file) or kwargs.get("opener") is not None or len(args) > 4:
            return self._real_open(file, mode, buffering, *args, **kwargs)
        opener = self._opener(file, mode)
        if opener is None:
            return self._real_open(file, mode, buffering, *args, **kwargs)
        if not any(letter in mode for letter in "wx+") or "a" in mode or "b" not in mode:
            return self._real_open(file, mode, buffering, *args, opener=opener, **kwargs)
        raw = _Sparse(file, mode.replace("b", ""), opener=opener)
        return raw if not buffering else io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    def _opener(self, file: Any, mode: str) -> Callable[[Any, int], int] | None:
        """Return what opens a file that lies elsewhere; None where it lies where the program says."""
        writes = any(letter in mode for letter in "wax+")
        if "x" in mode and self._lexists(self.reading(file)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
        place = self.writing(file, copy="w" not in mode) if writes else self.reading(file)
        if place is file:
            return None
        return lambda _, flags: self._named(self._real.open, file, place, flags, 0o666)

    def _file_io(self) -> type[io.FileIO]:
        """Return the class that programs open files with, or derive their own from, in place of `io.FileIO`."""

        class Kind(type):
            """Takes files that other modules opened for its own."""

            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, original) if cls is FileIO else super().__instancecheck__(instance)

            def __subclasscheck__(cls, other: type) -> bool:
                return issubclass(other, original) if cls is FileIO else super().__subclasscheck__(other)

        overlay, original = self, io.FileIO

        class FileIO(original, metaclass=Kind):  # type: ignore[misc, valid-type]
            def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
                if opener is None and not overlay._is_aside and _names(file):
                    opener = overlay._opener(file, mode)
                super().__init__(file, mode, closefd, opener)

        return FileIO

    def _named(self, function: Callable[..., Any], path: Any, place: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the system; its errors have the program's own name of the file."""
        try:
            return function(place, *args, **kwargs)
        except OSError as error:
            if place is not path and error.filename is not None:
                error.filename = path
            raise

    def _reader(self, name: str) -> Callable[..., Any]:
        original, follows = getattr(self._real, name), name not in ("lstat", "readlink")

        @functools.wraps(original)
        def reader(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return self._named(original, path, self.reading(path, follows and kwargs.get("follow_symlinks", True)), *args, **kwargs)

        return reader

    def _changer(self, name: str) -> Callable[..., Any]:
        """Return the changer of what says when a file was changed and by whom: nothing is, for files that were there before."""
        original = getattr(self._real, name)

        @functools.wraps(original)
        def changer(path: Any, *args: Any, **kwargs: Any) -> Any:
            place = self.reading(path)
            if self._is_aside or not _names(path) or place is not path or self._is_plain(self._key(path)) or not self._lexists(path):
                return self._named(original, path, place, *args, **kwargs)
            return None

        return changer

    def _open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        temporary = getattr(os, "O_TMPFILE", 0)
        if temporary and flags & temporary == temporary:
            return self._real.open(path, flags, mode)  # type: ignore[no-any-return]
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            return self._named(self._real.open, path, self.reading(path), flags, mode)  # type: ignore[no-any-return]
        if self._is_aside or not _names(path) or not (flags & os.O_CREAT or self._lexists(self.reading(path))):
            return self._named(self._real.open, path, self.reading(path), flags, mode)  # type: ignore[no-any-return]
        if flags & os.O_EXCL and self._lexists(self.reading(path)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        place = self.writing(path, copy=not flags & os.O_TRUNC)
        return self._named(self._real.open, path, place, flags | os.O_CREAT, mode)  # type: ignore[no-any-return]

    def _truncate(self, path: Any, length: int) -> None:
        self._real.truncate(self.writing(path, copy=True), length)

    def _mkdir(self, path: Any, mode: int = 0o777) -> None:
        if self._is_aside or self._is_plain(key := self._key(path)):
            self._real.mkdir(path, mode)
            return
        with self._lock:
            if self._lexists(self._place(key)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._folder_for(key, path)
            self._named(self._real.mkdir, path, self._layer + key, mode)

    def _remove(self, path: Any) -> None:
        if self._is_aside or self._is_plain(key := self._key(path, follow=False)):
            self._real.unlink(path)
            return
        with self._lock:
            place = self._place(key)
            if place == key:
                if stat.S_ISDIR(self._named(self._real.lstat, path, place).st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            else:
                self._named(self._real.unlink, path, place)
            self._lines.pop(key, None)
            self._hide(key)

    def _rmdir(self, path: Any) -> None:
        if self._is_aside or self._is_plain(key := self._key(path, follow=False)):
            self._real.rmdir(path)
            return
        with self._lock:
            if self._listdir(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            if self._lexists(self._layer + key):
                self._real.rmdir(self._layer + key)
            self._hide(key)

    def _rename(self, source: Any, target: Any) -> None:
        if self._is_aside:
            self._real.rename(source, target)
            return
        with self._lock:
            key, to = self._key(source, follow=False), self._key(target, follow=False)
            if self._is_plain(key) and self._is_plain(to):
                self._real.rename(source, target)
                return
            place = key if self._is_plain(key) else self._place(key)
            if not self._lexists(place):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source, None, target)
            if key == to:
                return
            if self._is_folder(place) and not os.path.islink(source):
                self._rename_folder(source, target)
                return
            if os.path.isdir(target) and not os.path.islink(target):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), source, None, target)
            into = self.writing(target, follow=False)
            with self.aside():
                if _within(place, self._layer) and _within(into, self._layer):
                    self._real.rename(place, into)
                else:
                    shutil.copy2(place, into, follow_symlinks=False)
            if _within(into, self._layer):
                self._lines[to] = self._lines.get(key) or self._line()
            if not _within(place, self._layer) or not _within(into, self._layer):
                os.unlink(source)
                return
            self._lines.pop(key, None)
            self._hide(key)

    def _rename_folder(self, source: Any, target: Any) -> None:
        if not os.path.isdir(target):
            os.mkdir(target)
        elif self._listdir(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), source, None, target)
        for name in self._listdir(source):
            self._rename(os.path.join(source, name), os.path.join(target, name))
        os.rmdir(source)

    def _link(self, source: Any, target: Any, **kwargs: Any) -> None:
        into = self.writing(target, follow=False)
        if into is target:
            self._real.link(source, target, **kwargs)
        elif self._lexists(into):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        else:
            place = self.reading(source)
            with self.aside():
                shutil.copy2(place, into)

    def _symlink(self, source: Any, target: Any, target_is_directory: bool = False) -> None:
        into = self.writing(target, follow=False)
        if into is not target and self._lexists(self._place(self._key(target, follow=False))):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        self._real.symlink(source, into, target_is_directory)

    def _merged(self, path: Any) -> list[str] | None:
        """Return the names in a folder that is in both layers; None where one of them has all there is."""
        if self._is_aside or not _names(path) or not self._in_use():
            return None
        key = self._key(path)
        above = self._layer + key
        if self._is_plain(key) or not (self._is_folder(above) or self._lexists(self._removed + key)):
            return None
        if not self._is_folder(self._place(key)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        names = self._real.listdir(above) if self._is_folder(above) else []
        if self._is_folder(key) and not self._lexists(f"{self._removed}{key}/{_GONE}"):
            names += [name for name in self._real.listdir(key) if not self._lexists(f"{self._removed}{key}/{name}/{_GONE}")]
        return list(dict.fromkeys(names))

    def _listdir(self, path: Any = ".") -> list[Any]:
        path = self._name_of_open(path)
        names = self._merged(path)
        if names is None:
            return self._named(self._real.listdir, path, self.reading(path))  # type: ignore[no-any-return]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = ".") -> Any:
        path = self._name_of_open(path)
        if self._merged(path) is None:
            return self._real.scandir(path)
        given = os.fspath(path)
        return _Entries(_Entry(name, os.path.join(given, name)) for name in self._listdir(path))

    def _getcwd(self) -> str:
        return self._real.getcwd() if self._is_aside else self._cwd()

    def _name_of_open(self, folder: Any) -> Any:
        """Return the name of a folder that may be an open one."""
        return self._seen(self._real.readlink(f"/proc/self/fd/{folder}")) if isinstance(folder, int) else folder

    def _by_name(self, function: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
        """Return a function that also takes names in open folders, the one of `dir_fd` at a place among its arguments."""

        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for name, index in (("dir_fd", place), ("src_dir_fd", 0), ("dst_dir_fd", 1)):
                folder = kwargs.pop(name, None)
                if folder is not None:
                    given[index] = os.path.join(self._name_of_open(folder), os.fsdecode(given[index]))
            return function(*given, **kwargs)

        return named

    def _temporary_folder(self, original: Callable[..., str], suffix: Any = None, prefix: Any = None, dir: Any = None) -> str:
        return self._as_plain(dir, lambda: original(suffix, prefix, dir), lambda made: made)  # type: ignore[no-any-return]

    def _temporary_file(self, original: Callable[..., Any], dir: Any, *args: Any) -> Any:
        return self._as_plain(dir, lambda: original(dir, *args), lambda made: made[1])

    def _as_plain(self, folder: Any, make: Callable[[], Any], path: Callable[[Any], Any]) -> Any:
        """Let `tempfile` make what the program removes itself, and other processes may look at."""
        if self._key(tempfile.gettempdir() if folder is None else folder) != self._temporary:
            return make()
        with self.aside():
            made = make()
            self._plain.append(os.path.realpath(os.fsdecode(path(made))))
        return made

    def install(self) -> None:
        """Let the program see this."""
        replaced: dict[int, tuple[Any, Any]] = {
            id(self._real_open): (self._real_open, self.open),
            id(io.FileIO): (io.FileIO, self._file_io()),
        }

        def replace(module: Any, name: str, made: Any) -> None:
            original = getattr(module, name)
            replaced[id(original)] = (original, made)
            for kinds in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
                if original in kinds:
                    kinds.add(made)

        for name in ("stat", "lstat", "access", "readlink", "statvfs", "chdir", "getxattr", "listxattr"):
            if hasattr(os, name):
                replace(os, name, self._by_name(self._reader(name)))
        for name in ("chmod", "chown", "lchown", "utime", "setxattr", "removexattr"):
            if hasattr(os, name):
                replace(os, name, self._by_name(self._changer(name)))
        for name in ("truncate", "listdir", "scandir", "getcwd"):
            replace(os, name, getattr(self, f"_{name}"))
        for name in ("open", "mkdir", "remove", "unlink", "rmdir", "rename", "replace", "link", "symlink"):
            made = getattr(self, f"_{ {'unlink': 'remove', 'replace': 'rename'}.get(name, name) }")
            replace(os, name, self._by_name(made, int(name == "symlink")))
        temporary: Any = tempfile
        replace(temporary, "mkdtemp", functools.partial(self._temporary_folder, temporary.mkdtemp))
        replace(temporary, "_mkstemp_inner", functools.partial(self._temporary_file, temporary._mkstemp_inner))
        self._exchange(replaced)
        self._set(builtins, "open", self.open)
        self._set(shutil, "_use_fd_functions", False)  # by names, as everything here
        openers: dict[Any, Any] = importlib.import_module("numpy.lib._datasource")._file_openers._file_openers
        self._undo.callback(openers.__setitem__, None, openers[None])
        openers[None] = self.open
        self._install_imports()
        self._install_compiled()

    def _install_imports(self) -> None:
        """Let modules be imported that the program wrote; they are compiled anew each time."""
        external: Any = importlib.import_module("importlib._bootstrap_external")
        system, files, loader = external._os, external._io, external.SourceFileLoader
        keep = loader._cache_bytecode

        def cached(self_: Any, source: Any, *args: Any) -> Any:
            return keep(self_, source, *args) if self.reading(source) is source else None

        seen = {"stat": self._reader("stat"), "listdir": self._listdir, "getcwd": self._getcwd}
        self._set(external, "_os", types.SimpleNamespace(**{**vars(system), **seen}))
        opened = {"open_code": lambda path: files.open_code(self.reading(path))}
        self._set(external, "_io", types.SimpleNamespace(**{**vars(files), **opened}))
        self._set(loader, "_cache_bytecode", cached)

    def _exchange(self, replaced: dict[int, tuple[Any, Any]]) -> None:
        """Put functions in place of others in all modules: many import them by name."""
        for name, module in list(sys.modules.items()):
            if name in ("builtins", "posix", "_io", "_pyio", __name__) or name.startswith(("importlib", "_frozen_importlib")):
                continue
            for holder in (module, *_holders(name, module)):
                for attribute, value in list(getattr(holder, "__dict__", {}).items()):
                    is_static = type(value) is staticmethod  # some modules warn of who asks for more of what is in them
                    pair = replaced.get(id(value.__func__ if is_static else value))
                    if pair is not None:
                        self._set(holder, attribute, staticmethod(pair[1]) if is_static else pair[1])

    def _set(self, holder: Any, name: str, value: Any) -> None:
        before = holder.__dict__[name]
        setattr(holder, name, value)
        self._undo.callback(setattr, holder, name, before)

    def _install_compiled(self) -> None:
        """Replace what opens files by itself, in C++ and Rust."""
        torch: Any = sys.modules.get("torch")
        reads: list[tuple[Any, str, int]] = []
        writes: list[tuple[Any, str, int]] = []
        if torch is not None:
            core = torch._C
            self._set(core, "PyTorchFileWriter", _opening(core.PyTorchFileWriter, self._binary))
            self._set(core, "PyTorchFileReader", _opening(core.PyTorchFileReader, self.reading))
            reads += [(core, "import_ir_module", 1)]
            self._set(torch, "from_file", self._mapping(torch.from_file))
            writes += [(torch.jit.RecursiveScriptModule, "save", 1), (torch.autograd.profiler.profile, "export_chrome_trace", 1)]
            storage = torch.UntypedStorage
            setattr(storage, "from_file", staticmethod(self._mapping(storage.from_file)))  # noqa: B010  # a static method of a class in C
            self._undo.callback(delattr, storage, "from_file")
        if find_spec("safetensors") is not None:
            for name in ("safetensors", "safetensors.torch", "safetensors.numpy"):
                with contextlib.suppress(ImportError):
                    module = importlib.import_module(name)
                    reads += [(module, "safe_open", 0)]
                    writes += [(module, "serialize_file", 1)]
        if find_spec("tokenizers") is not None:
            with contextlib.suppress(ImportError):
                package, models = importlib.import_module("tokenizers"), importlib.import_module("tokenizers.models")
                reads += [(package.Tokenizer, "from_file", 0)]
                writes += [(package.Tokenizer, "save", 1), (models.Model, "save", 1)]
        databases: list[tuple[Any, str, int]] = []
        with contextlib.suppress(ImportError):
            databases.append((importlib.import_module("sqlite3"), "connect", 0))
        for place, pairs in ((self.reading, reads), (functools.partial(self.writing, copy=True), writes), (self._database, databases)):
            for holder, name, index in pairs:
                if name in getattr(holder, "__dict__", {}):
                    before = holder.__dict__[name]
                    made: Any = _with_place(before, index, place)
                    self._set(holder, name, staticmethod(made) if isinstance(before, staticmethod) else made)

    def _mapping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that maps a file into memory: one that is shared is written."""

        def mapped(filename: Any, shared: Any = False, *args: Any, **kwargs: Any) -> Any:
            return original(self.writing(filename, copy=True) if shared else self.reading(filename), shared, *args, **kwargs)

        return mapped

    def _database(self, name: Any) -> Any:
        """Return the database to open, which may be a URI."""
        if not isinstance(name, str) or not name.startswith("file:"):
            return self.writing(name, copy=True)
        path, mark, more = name.removeprefix("file:").partition("?")
        return name if "mode=memory" in more else f"file:{self.writing(path, copy=True)}{mark}{more}"

    def _binary(self, path: Any) -> Any:
        return self.open(path, "wb", 0) if _names(path) and not self._is_aside else path

    def written(self) -> list[Written]:
        """Return every file that is there now and the program wrote."""
        with self.aside():
            paths = [os.path.join(folder, name) for folder, _, names in os.walk(self._layer) for name in names]
            made = []
            for path in sorted(paths):
                key = self._seen(path)
                size = self._real.lstat(path).st_size
                made.append(Written(key, size, self._lines.get(key, ""), os.path.lexists(key)))
            return made

    def keep(self) -> None:
        """Put files where the program wrote them, but for those that were there before."""
        with self.aside():
            for folder, _, names in os.walk(self._layer):
                os.makedirs(self._seen(folder), exist_ok=True)
                for name in names:
                    path = os.path.join(folder, name)
                    if not os.path.lexists(self._seen(path)):
                        shutil.copy2(path, self._seen(path), follow_symlinks=False)

    def close(self) -> None:
        """Let files be as they are for this process again."""
        self._undo.close()
        self._thread.aside = True
        if _within(os.getcwd(), self._root):
            os.chdir(next(path for path in _upwards(self._cwd()) if self._is_folder(path)))

    def close_at_exit(self) -> None:
        """Let files be as they are for irscope alone: what the program does when Python ends is still its own."""
        self._thread.aside = True
        atexit.register(setattr, self._thread, "aside", False)

    def remove(self) -> None:
        """Remove the files, unless another process made them."""
        if self._process == os.getpid():
            with self.aside():
                shutil.rmtree(self._root, ignore_errors=True)
            self._remover.remove()


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield "/"


def _holders(name: str, module: Any) -> Iterator[Any]:
    """Classes that have functions of the system as attributes: those of glob and pathlib, since Python 3.13."""
    if name == "glob" or name.startswith("pathlib"):
        yield from (value for value in vars(module).values() if isinstance(value, type))


def _opening(kind: Any, place: Callable[[Any], Any]) -> Any:
    """Return a class whose first argument is a file's name, with files where they are."""

    def begin(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, place(name), *args, **kwargs)

    return type(kind.__name__, (kind,), {"__init__": begin})


def _with_place(original: Any, index: int, place: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function whose argument at an index is a file's name; where it is not at its place it is a keyword's."""

    @functools.wraps(original, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > index:
            args = (*args[:index], place(args[index]), *args[index + 1 :])
        else:
            kwargs = {name: place(value) if name in _KEYWORDS else value for name, value in kwargs.items()}
        return original(*args, **kwargs)

    return call


_KEYWORDS: Final = ("filename", "path", "f", "database")
