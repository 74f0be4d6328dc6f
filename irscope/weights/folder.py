"""Which files beside a model may be read: regular ones in the folder of the model, also through links that stay there.

The one layout in which data lie elsewhere is the cache of a hub: models--NAME/snapshots/REVISION/file is a link to models--NAME/blobs/HASH.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Forbidden(Exception):
    """A file that a model names and that must not be read; the text says why, `hint` what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True, slots=True)
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

    def find(self, path: str) -> DataFile | None:
        """The file at a path, seen from the folder where it is relative; None where there is none, Forbidden where it must not be read."""
        real = os.path.realpath(os.path.join(self.path, path))
        if not self.is_allowed(real):
            raise Forbidden("is outside the folder of the model", "copy the file beside the model")
        try:
            status = os.stat(real, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        self._check(real, status)
        return DataFile(real, status.st_size)

    def open(self, file: DataFile) -> int:
        """A descriptor of a file that was found. OSError where it cannot be opened, Forbidden where it was replaced meanwhile."""
        descriptor = os.open(file.path, _READ)
        try:
            self._check(file.path, os.fstat(descriptor))
        except Forbidden:
            os.close(descriptor)
            raise
        return descriptor

    def is_allowed(self, real: str) -> bool:
        """Whether a path without links lies where files may be read. The model itself is wherever its user says."""
        return real == self._model or any(os.path.commonpath((real, folder)) == folder for folder in self._allowed)

    def _check(self, real: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Forbidden("is not a regular file")
        if status.st_nlink > 1 and real != self._model:
            raise Forbidden("is a hard link to a file that has other names too", "make a copy of it under its own name")


def _blobs_of(folder: str) -> Iterable[str]:
    """The folder of blobs of the hub repository that a folder without links is a snapshot of."""
    parts = folder.split(os.sep)
    for at in range(len(parts) - 2, 0, -1):
        if parts[at] == "snapshots":
            blobs = os.sep.join((*parts[:at], "blobs"))
            # A link would make any folder the repository's own.
            return (blobs,) if os.path.realpath(blobs) == blobs else ()
    return ()
