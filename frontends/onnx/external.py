"""Where external tensor data may lie. Nothing outside the model's own folders is ever opened.

Allowed are the folder in which the model was named and the folder in which the file really is: caches such as the
Hugging Face hub's keep both the model and its data behind links.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from irscope.errors import LoadError
from irscope.frontends.onnx.failures import BAD_LOCATION, refuse, short

_KNOWN_KEYS = ("location", "offset", "length")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A regular file with tensor data that may be read."""

    path: str
    size: int


class ExternalFiles:
    """Checks locations of external data, each file once."""

    def __init__(self, model: Path | None) -> None:
        self._folder: Path | None = None
        self._allowed: tuple[str, ...] = ()
        if model is not None:
            self._folder = model.parent
            self._allowed = (os.path.realpath(model.parent), os.path.dirname(os.path.realpath(model)))
        self._seen: dict[str, DataFile | None] = {}

    def find(self, location: str, tensor: str) -> DataFile | None:
        """The file at a location that a model names; None where there is none, LoadError where it must not be used."""
        if location not in self._seen:
            try:
                self._seen[location] = self._check(location)
            except LoadError as error:
                error.where = f"tensor '{short(tensor)}'"
                raise
        return self._seen[location]

    def _check(self, location: str) -> DataFile | None:
        shown = f"'{short(location)}'"
        if not location or "\0" in location:
            raise _bad(f"the location {shown} of its external data is no file name")
        windows = PureWindowsPath(location)
        if os.path.isabs(location) or windows.drive or windows.root:
            raise _bad(f"its external data is at an absolute path, {shown}", "locations must be relative to the model's folder")
        parts = windows.parts
        if not parts or ".." in parts or location.rstrip("/\\").endswith("."):
            raise _bad(f"the location {shown} of its external data leaves the model's folder")
        if self._folder is None:
            return None
        path = os.path.realpath(self._folder / location)
        if not any(os.path.commonpath((path, folder)) == folder for folder in self._allowed):
            raise _bad(f"its external data {shown} is a link to a place outside the model's folder", "copy the data beside the model")
        try:
            status = os.stat(path, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise _bad(f"its external data {shown} is not a regular file")
        if status.st_nlink > 1:
            raise _bad(
                f"its external data {shown} is a hard link to a file that has other names too", "make a copy of it under its own name"
            )
        return DataFile(path, status.st_size)

    def read(self, file: DataFile, offset: int, length: int) -> bytes | None:
        """A few bytes of a checked file; None where it changed since it was checked."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(file.path, flags)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                return None
            os.lseek(descriptor, offset, os.SEEK_SET)
            data = os.read(descriptor, length)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data if len(data) == length else None


def region(entries: dict[str, str], expected: int | None, tensor: str) -> tuple[str, int, int | None]:
    """Location, offset and length from the entries of a tensor; the length must be what its type needs."""
    where = f"tensor '{short(tensor)}'"
    numbers: dict[str, int] = {}
    for key in _KNOWN_KEYS[1:]:
        text = entries.get(key, "")
        if text:
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise refuse(BAD_LOCATION, f"the {key} of its external data, '{short(text)}', is no size", where)
            numbers[key] = int(text)
    length = numbers.get("length", expected)
    if expected is not None and length != expected:
        raise refuse(BAD_LOCATION, f"its external data has {length} bytes, its type needs {expected}", where, "the model file is damaged")
    return entries.get("location", ""), numbers.get("offset", 0), length


def check_within(file: DataFile, offset: int, length: int | None, tensor: str) -> None:
    """Refuse data that would lie beyond the end of their file."""
    if offset + (length or 0) > file.size:
        raise refuse(
            BAD_LOCATION,
            f"its external data ends at byte {offset + (length or 0)}, but '{short(os.path.basename(file.path))}' has only {file.size}",
            f"tensor '{short(tensor)}'",
            "the data file is incomplete or belongs to another model",
        )


def _bad(message: str, hint: str = "external data must lie in the folder of the model") -> LoadError:
    return refuse(BAD_LOCATION, message, hint=hint)
