"""Detects changes of the opened file on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int] | None


class FileWatch:
    """Compares time and size of a file with those it had when it was read; each change is told once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._stamp()

    def has_changed(self) -> bool:
        """Whether the file has changed since this was last asked. One that is gone or being replaced counts when it is back."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        return True

    def _stamp(self) -> Stamp:
        if not self._path:
            return None
        try:
            found = Path(self._path).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size
