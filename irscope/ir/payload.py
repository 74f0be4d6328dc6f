"""Where the values of parameters, buffers and constants are: in the graph when small, else in a file, unread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | complex | str


@dataclass(frozen=True, slots=True)
class Literal:
    """Values small enough to stand in the graph, flat in row-major order."""

    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes in a file, not read yet; weights that share a `storage` are tied."""

    path: str
    offset: int
    length: int
    storage: str = ""


@dataclass(frozen=True, slots=True)
class Blob:
    """Packed little-endian bytes that came with the model file; never part of the text form."""

    data: bytes
    storage: str = ""

    def __repr__(self) -> str:
        return f"Blob({len(self.data)} bytes)"


Payload: TypeAlias = Literal | FileRegion | Blob
