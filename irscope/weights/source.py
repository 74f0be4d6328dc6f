"""Where the bytes of a weight come from: a region of a file that is allowed, or bytes that came with the model.

Files are read, not mapped: a mapped file that shrinks while it is used would end the process. Reading into a buffer that stays in
the processor's cache is as fast, and memory stays flat by itself.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from irscope.immutable import immutable
from irscope.ir.places import Blob, Computed, FileRegion, Payload

_AT_ONCE = 1 << 30
_LARGEST_SETTINGS: Final = 16 << 20
"""Bytes; those of models are some kilobytes, with long tables of quantised layers some hundred."""


class Unreadable(Exception):
    """A weight whose values cannot be had; the text says why."""


@immutable
class Bytes:
    """A run of bytes, in memory or in an open file."""

    length: int
    data: bytes | None = None
    descriptor: int = -1
    offset: int = 0
    label: str = ""


class WeightFiles:
    """Opens the files that weights lie in, each once: regular files in the folder of the model, or in folders that a user allows.

    A model may name any path, so nothing outside is opened.
    """

    def __init__(self, model_path: str, allowed: Iterable[str] = ()) -> None:
        self._folder = ModelFolder(model_path or os.getcwd(), allowed)
        self._descriptors: dict[str, int | str] = {}
        self._held: dict[tuple[int, int, int], memoryview] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for descriptor in self._descriptors.values():
            if isinstance(descriptor, int):
                os.close(descriptor)
        self._descriptors.clear()

    def find(self, data: Payload | None) -> Bytes:
        """Return the bytes of a payload; Unreadable where there are none, or where they must not be read."""
        if isinstance(data, Blob):
            return Bytes(len(data.data), data.data)
        if isinstance(data, Computed):
            return Bytes(data.length, data.compute(self))
        if not isinstance(data, FileRegion):
            raise Unreadable("the values are not there: the file has no data for it, or its data file is missing")
        if data.path not in self._descriptors:
            self._descriptors[data.path] = self._open(data.path)
        found = self._descriptors[data.path]
        if isinstance(found, str):
            raise Unreadable(found)
        size = os.fstat(found).st_size
        if data.offset < 0 or data.offset + data.length > size:
            raise Unreadable(f"the file ends at byte {size:,}, the values would end at byte {data.offset + data.length:,}")
        return Bytes(data.length, None, found, data.offset, os.path.basename(data.path))

    def _open(self, path: str) -> int | str:
        """Return a descriptor, or why there is none."""
        name = os.path.basename(path) or path
        try:
            # Readers name files as seen from the working folder, a text as seen from its own.
            here = os.path.abspath(path)
            found = self._folder.find(here if self._folder.is_allowed(os.path.realpath(here)) and os.path.exists(here) else path)
            if found is None:
                return f"{name!r} cannot be opened: there is no such file"
            return self._folder.open(found)
        except Forbidden as error:
            return f"{path!r} {error}"
        except (OSError, ValueError) as error:
            return f"{name!r} cannot be opened: {getattr(error, 'strerror', None) or error}"

    def hold(self, held: Iterable[tuple[Bytes, memoryview]]) -> None:
        """Read these from memory from now on, and nothing else; the bytes must be those of the files."""
        self._held = {(source.descriptor, source.offset, source.length): data for source, data in held}

    def read_into(self, source: Bytes, offset: int, into: memoryview) -> None:
        """Fill a buffer with the bytes at an offset; Unreadable where they are no longer there."""
        wanted = len(into)
        if source.data is not None:
            part = source.data[offset : offset + wanted]
            if len(part) != wanted:
                raise Unreadable(f"{wanted:,} bytes are needed at {offset:,}, there are {len(part):,}")
            into[:] = part
            return
        held = self._held.get((source.descriptor, source.offset, source.length))
        if held is not None and offset + wanted <= len(held):
            into[:] = held[offset : offset + wanted]
            return
        done = 0
        while done < wanted:
            try:
                count = self._read_some(source.descriptor, into[done : done + _AT_ONCE], source.offset + offset + done)
            except OSError as error:
                raise Unreadable(f"{source.label!r} cannot be read: {error.strerror or error}") from None
            if count == 0:
                raise Unreadable(f"{source.label!r} ended at byte {source.offset + offset + done:,} while it was read")
            done += count

    def _read_some(self, descriptor: int, into: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(descriptor, [into], position)
        with self._lock:
            os.lseek(descriptor, position, os.SEEK_SET)
            data = os.read(descriptor, len(into))
        into[: len(data)] = data
        return len(data)


# Which files beside a model may be read: regular ones in the folder of the model, also through links that stay there.
#
# The one layout in which data lie elsewhere is the cache of a hub: models--NAME/snapshots/REVISION/file is a link to
# models--NAME/blobs/HASH.

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


_MOST_NAMES: Final = 20_000
"""Files that are looked at for other names of one."""


class Forbidden(Exception):
    """A file that a model names and that must not be read; the text says why, `hint` what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class Malformed(Exception):
    """A file of settings that holds none; the text says why, `hint` what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


@immutable
class DataFile:
    """A regular file that may be read, without links in its path."""

    path: str
    size: int


class ModelFolder:
    """The folder of a model and what may be opened in it. `also` are further folders that a user allows."""

    def __init__(self, model_path: str | os.PathLike[str], also: Iterable[str] = ()) -> None:
        path = os.path.abspath(model_path)
        self.path = path if os.path.isdir(path) else os.path.dirname(path)
        self._model = os.path.realpath(path)
        real = os.path.realpath(self.path)
        self._allowed = tuple(dict.fromkeys((real, *_blobs_of(real), *map(os.path.realpath, also))))
        self._names: dict[tuple[int, int], int] = {}
        """Number of names in these folders of files that have several, by device and inode."""

    def find(self, path: str) -> DataFile | None:
        """Return the file at a path, seen from the folder where it is relative; None where there is none, Forbidden where it must not be
        read."""
        try:
            real = os.path.realpath(os.path.join(self.path, path))
        except ValueError:  # it holds a NUL, or half of a surrogate pair
            raise Forbidden("is a name that no file can have", "the file that names it is hostile or damaged") from None
        if not self.is_allowed(real):
            raise Forbidden("is outside the folder of the model", "copy the file beside the model")
        try:
            status = os.stat(real, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        self._check(real, status)
        return DataFile(real, status.st_size)

    def settings(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file such as config.json; None where there is none, Forbidden where it must not be read."""
        file = self.find(name)
        if file is None:
            return None
        if file.size > _LARGEST_SETTINGS:
            raise Malformed(f"it has {file.size:,} bytes", "a configuration has some kilobytes")
        try:
            with open(file.path, "rb") as data:
                found = json.load(data)
        except (ValueError, RecursionError):
            raise Malformed("it is not valid JSON", "copy it again") from None
        if not isinstance(found, dict):
            raise Malformed("it is not a JSON object", "copy it again")
        return found

    def open(self, file: DataFile) -> int:
        """Return a descriptor of a file that was found. OSError where it cannot be opened, Forbidden where it was replaced meanwhile."""
        descriptor = os.open(file.path, _READ)
        try:
            self._check(file.path, os.fstat(descriptor))
        except Forbidden:
            os.close(descriptor)
            raise
        return descriptor

    def is_allowed(self, real: str) -> bool:
        """Return whether a path without links lies where files may be read. The model itself is wherever its user says."""
        return real == self._model or any(os.path.commonpath((real, folder)) == folder for folder in self._allowed)

    def _check(self, real: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Forbidden("is not a regular file")
        if status.st_nlink > 1 and real != self._model and not self._has_all_names(status):
            raise Forbidden("is a hard link to a file that has other names too", "make a copy of it under its own name")

    def _has_all_names(self, status: os.stat_result) -> bool:
        """Return whether every name of a file lies where files may be read: a copy of a folder by links, not a way out of it."""
        key = status.st_dev, status.st_ino
        if key not in self._names:
            entries = itertools.islice((name for folder in self._allowed for name in _files_in(folder)), _MOST_NAMES)
            self._names[key] = sum((one.st_dev, one.st_ino) == key for one in map(_status, set(entries)) if one is not None)
        return self._names[key] >= status.st_nlink


def _files_in(folder: str) -> Iterator[str]:
    """Yield the paths of files in a folder and those inside, without following links."""
    for where, _, names in os.walk(folder):
        yield from (os.path.join(where, name) for name in names)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except OSError:
        return None


def _blobs_of(folder: str) -> Iterable[str]:
    """Return the folder of blobs of the hub repository that a folder without links is a snapshot of."""
    parts = folder.split(os.sep)
    for at in range(len(parts) - 2, 0, -1):
        if parts[at] == "snapshots":
            blobs = os.sep.join((*parts[:at], "blobs"))
            # A link would make any folder the repository's own.
            return (blobs,) if os.path.realpath(blobs) == blobs else ()
    return ()
