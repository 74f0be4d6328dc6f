"""Snapshots that `torch.cuda.memory._dump_snapshot` wrote: read as data, nothing of them is executed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from irscope.budget import Allowance, reading, spend
from irscope.errors import LoadError
from irscope.files import open_regular
from irscope.frontends.files.snapshotstream import Columns, Frame, KnownStack, NoSnapshot, Rows, frame_of, read_columns
from irscope.immutable import immutable

_START: Final = 256
_MOST: Final = 4 << 30
"""Bytes of a file that is read."""
_FOREIGN: Final = ("/torch/", "\\torch\\", "<frozen", "importlib")
"""In names of files whose frames are not the program's own."""
_GRAIN: Final = 512


@immutable
class Annotation:
    """Begin or end of something that has a name."""

    name: str
    begins: bool
    time: int
    device: int


@immutable
class SnapshotBlock:
    """A part of a segment."""

    address: int
    size: int
    requested: int
    state: str
    frames: tuple[Frame, ...]


@immutable
class SnapshotSegment:
    """Memory that the device returned for one request."""

    device: int
    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[SnapshotBlock, ...]


@immutable(slots=False)
class Snapshot:
    """One file."""

    path: str
    segments: tuple[SnapshotSegment, ...]
    columns: Columns
    """The entries of the traces of all devices."""
    rows: tuple[NDArray[np.int64], ...]
    """By device, which of them are its own, in order."""
    settings: Mapping[str, object] = field(default_factory=dict)
    annotations: tuple[Annotation, ...] = ()
    chosen: int | None = None
    """The device that it is about; None for the one that did most."""

    @property
    def own(self) -> NDArray[np.int64]:
        """Return the entries of the device."""
        return self.rows[self.device] if 0 <= self.device < len(self.rows) else np.zeros(0, dtype=np.int64)

    def acts(self, *actions: str) -> NDArray[np.bool_]:
        """Return which entries of the device are one of these."""
        codes = [number for number, name in enumerate(self.columns.actions) if name in actions]
        found: NDArray[np.bool_] = np.isin(self.columns.action[self.own], codes)
        return found

    @cached_property
    def device(self) -> int:
        """Its number: that of the segments where nothing was traced."""
        if self.chosen is not None:
            return self.chosen
        if any(map(len, self.rows)):
            return max(range(len(self.rows)), key=lambda number: len(self.rows[number]))
        return self.segments[0].device if self.segments else 0

    def of_device(self, number: int) -> Snapshot:
        """Return the same about another device."""
        return replace(self, chosen=number)

    @property
    def devices(self) -> list[int]:
        """Those that have memory, or did something."""
        return sorted({segment.device for segment in self.segments} | {number for number, rows in enumerate(self.rows) if len(rows)})

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, the innermost first."""
        return tuple(self.columns.frames[stack] for stack in self.columns.stacks[stack])

    def held(self) -> list[SnapshotSegment]:
        """Return the segments of the device."""
        return [segment for segment in self.segments if segment.device == self.device]


def line_of(frames: Sequence[Frame]) -> str:
    """Return the innermost line of the program itself; else of the innermost frame of Python; empty without one."""
    python = [frame for frame in frames if frame.line and frame.file.endswith((".py", ">")) and "??" not in frame.file]
    own = next((one for one in python if not any(part in one.file for part in _FOREIGN)), python[0] if python else None)
    return own.text if own is not None else ""


def is_snapshot(path: Path) -> bool:
    """Return whether a file begins as a snapshot does: a pickle of a dictionary with `segments`."""
    try:
        with open_regular(path) as stream:
            start = stream.read(_START)
    except OSError:
        return False
    return start[:1] == b"\x80" and b"segments" in start and b"torch" not in start.partition(b"segments")[0]


def read_snapshot(path: Path, allowance: Allowance | None = None) -> Snapshot:
    """Read one. LoadError for what is none."""
    where = str(path)
    try:
        with open_regular(path, _MOST) as stream:
            size = os.fstat(stream.fileno()).st_size
            with reading(where, size, allowance) as budget:
                budget.admit(size)
                return _Reader(where).read(*read_columns(stream))
    except OSError as error:
        raise LoadError(f"cannot be opened: {error.strerror}", code="IRS663", where=where) from error
    except NoSnapshot as error:
        raise LoadError(f"is not a snapshot of torch.cuda.memory: {error}", code="IRS663", where=where) from None


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._columns: Columns
        self._frames: dict[Frame, Frame] = {}
        self._stacks: dict[int, tuple[object, tuple[Frame, ...]]] = {}
        """By identity: one stack stands at many blocks."""

    def read(self, root: object, columns: Columns) -> Snapshot:
        """Return what the pickle holds."""
        if not isinstance(root, dict) or "segments" not in root or "device_traces" not in root:
            raise NoSnapshot("it has no segments and device_traces")
        self._columns = columns
        segments = tuple(self.segment(one) for one in self.items(root["segments"], "segments"))
        rows = tuple(self._rows(trace) for trace in self.items(root["device_traces"], "device_traces"))
        settings = root.get("allocator_settings")
        notes = root.get("external_annotations")
        annotations = [self._annotation(note) for note in notes] if isinstance(notes, list) else []
        found = tuple(annotation for annotation in annotations if annotation is not None)
        return Snapshot(self._where, segments, columns, rows, settings if isinstance(settings, dict) else {}, found)

    def _rows(self, trace: object) -> NDArray[np.int64]:
        parts = []
        for one in self.items(trace, "device_traces"):
            if not isinstance(one, Rows):
                raise NoSnapshot("an entry of device_traces has no action and size")
            spend(one.count >> 6, "entries of a snapshot")
            parts.append(np.arange(one.first, one.first + one.count, dtype=np.int64))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _annotation(self, value: object) -> Annotation | None:
        if not isinstance(value, dict):
            return None
        name, stage, time, device = (value.get(key) for key in ("name", "stage", "time_us", "device"))
        if not isinstance(name, str) or not isinstance(stage, str) or not _is_64_bits(time) or not _is_64_bits(device):
            return None
        return Annotation(name, stage == "START", time, device)

    def items(self, value: object, what: str) -> Iterator[Any]:
        """Yield the entries of a list."""
        if not isinstance(value, list | tuple):
            raise NoSnapshot(f"{what} is not a list")
        spend(len(value), "entries of a snapshot")
        return iter(value)

    def _record(self, value: object, what: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise NoSnapshot(f"an entry of {what} is not a dictionary")
        return value

    def _number(self, record: Mapping[Any, Any], *keys: str) -> int:
        value = next((record[key] for key in keys if key in record), 0)
        if not _is_64_bits(value):
            raise NoSnapshot(f"{keys[0]} is not a number of 64 bits")
        return value

    def _stack(self, value: object) -> tuple[Frame, ...]:
        """Frames, the innermost first."""
        if isinstance(value, KnownStack):
            return tuple(self._columns.frames[stack] for stack in self._columns.stacks[value.number])
        known = self._stacks.get(id(value))
        if known is not None:
            return known[1]
        made = []
        for one in self.items(value if value is not None else [], "frames"):
            key = frame_of(self._record(one, "frames"))
            made.append(self._frames.setdefault(key, key))
        frames = tuple(made)
        self._stacks[id(value)] = value, frames
        return frames

    def segment(self, value: object) -> SnapshotSegment:
        """Return a segment with its blocks; old versions tell where blocks are by their order alone."""
        record = self._record(value, "segments")
        blocks, at = [], self._number(record, "address")
        for one in self.items(record.get("blocks", []), "blocks"):
            block = self._record(one, "blocks")
            size = self._number(block, "size")
            address = self._number(block, "address") if "address" in block else at
            requested = self._number(block, "requested_size") if "requested_size" in block else size
            blocks.append(SnapshotBlock(address, size, requested, _text(block.get("state")), self._stack(block.get("frames"))))
            at = address + size
        return SnapshotSegment(
            self._number(record, "device"),
            self._number(record, "address"),
            self._number(record, "total_size"),
            self._number(record, "stream"),
            record.get("segment_type") == "small",
            bool(record.get("is_expandable")),
            tuple(blocks),
        )


def _is_64_bits(value: object) -> TypeGuard[int]:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def rounded(size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the blocks of requests, where no option rounds otherwise."""
    return (size + _GRAIN - 1) // _GRAIN * _GRAIN
