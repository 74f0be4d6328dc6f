"""Where the bytes of a weight come from: a region of a file that is allowed, or bytes that came with the model.

Files are read, not mapped: a mapped file that shrinks while it is used would end the process. Reading into a buffer that stays in
the processor's cache is as fast, and memory stays flat by itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from irscope.ir.places import Blob, FileRegion, Payload
from irscope.weights.folder import Forbidden, ModelFolder

_AT_ONCE = 1 << 30


class Unreadable(Exception):
    """A weight whose values cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
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
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for descriptor in self._descriptors.values():
            if isinstance(descriptor, int):
                os.close(descriptor)
        self._descriptors.clear()

    def find(self, data: Payload | None) -> Bytes:
        """The bytes of a payload; Unreadable where there are none, or where they must not be read."""
        if isinstance(data, Blob):
            return Bytes(len(data.data), data.data)
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
        """A descriptor, or why there is none."""
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

    def read_into(self, source: Bytes, offset: int, into: memoryview) -> None:
        """Fill a buffer with the bytes at an offset; Unreadable where they are no longer there."""
        wanted = len(into)
        if source.data is not None:
            part = source.data[offset : offset + wanted]
            if len(part) != wanted:
                raise Unreadable(f"{wanted:,} bytes are needed at {offset:,}, there are {len(part):,}")
            into[:] = part
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
