"""Locations of external tensor data: relative paths, to files that `ModelFolder` lets a model read."""

from __future__ import annotations

import os
from pathlib import Path, PureWindowsPath

from irscope.errors import LoadError
from irscope.frontends.onnx.failures import BAD_LOCATION, refuse, short
from irscope.weights.folder import DataFile, Forbidden, ModelFolder

_KNOWN_KEYS = ("location", "offset", "length")


class ExternalFiles:
    """Checks locations of external data, each file once."""

    def __init__(self, model: Path | None) -> None:
        self._folder = None if model is None else ModelFolder(model)
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
        try:
            return self._folder.find(location)
        except Forbidden as error:
            raise _bad(f"its external data {shown} {error}", *([error.hint] if error.hint else [])) from None

    def read(self, file: DataFile, offset: int, length: int) -> bytes | None:
        """A few bytes of a checked file; None where it changed since it was checked."""
        assert self._folder is not None, "find() gave the file"
        try:
            descriptor = self._folder.open(file)
        except (OSError, Forbidden):
            return None
        try:
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
