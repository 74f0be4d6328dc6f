"""Where a run is, kept where it can be read when the process is gone."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Self

_SIZE = 1024


class Progress:
    """The name of what runs now, in a small shared file."""

    def __init__(self, memory: mmap.mmap | None) -> None:
        self._memory = memory

    @classmethod
    def at(cls, path: str) -> Self:
        """Progress that is kept in a file; an empty path keeps none."""
        if not path:
            return cls(None)
        with Path(path).open("r+b") as stream:
            return cls(mmap.mmap(stream.fileno(), _SIZE))

    def at_node(self, name: str, operator: str) -> None:
        """Something begins."""
        if self._memory is not None:
            self._memory[:] = f"{name}\0{operator}".encode(errors="replace")[:_SIZE].ljust(_SIZE, b"\0")


def new_progress(path: Path) -> None:
    """Make the file empty."""
    path.write_bytes(bytes(_SIZE))


def last_progress(path: Path) -> tuple[str, str]:
    """Name and operator of what ran last; empty where nothing began."""
    name, _, operator = path.read_bytes().decode(errors="replace").rstrip("\0").partition("\0")
    return name, operator
