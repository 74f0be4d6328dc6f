"""Snapshots that `torch.cuda.memory._dump_snapshot` wrote: read as data, nothing of them is executed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from irscope.budget import spend
from irscope.errors import LoadError
from irscope.frontends.files.pickled import read_pickle

_START: Final = 256
_MOST: Final = 4 << 30
"""Bytes of a file that is read."""
_FOREIGN: Final = ("/torch/", "\\torch\\", "<frozen", "importlib")
"""In names of files whose frames are not the program's own."""
_GRAIN: Final = 512


@dataclass(frozen=True, slots=True)
class Frame:
    """A place on the stack."""

    name: str
    file: str
    line: int

    @property
    def text(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """What the allocator did."""

    action: str
    """alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot."""
    address: int
    size: int
    stream: int
    frames: tuple[Frame, ...]
    note: str = ""
    """What somebody wrote to it: irscope the category."""

    @property
    def line(self) -> str:
        """The innermost line of the program itself; else of the innermost frame of Python."""
        return line_of(self.frames)


@dataclass(frozen=True, slots=True)
class SnapshotBlock:
    """A part of a segment."""

    address: int
    size: int
    requested: int
    state: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """What the device gave at once."""

    device: int
    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[SnapshotBlock, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One file."""

    path: str
    segments: tuple[SnapshotSegment, ...]
    traces: tuple[tuple[TraceEvent, ...], ...]
    """By device."""
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def trace(self) -> tuple[TraceEvent, ...]:
        """Of the device that did most."""
        return max(self.traces, key=len, default=())

    @property
    def device(self) -> int:
        """Its number; that of the segments where nothing was traced."""
        if any(self.traces):
            return self.traces.index(self.trace)
        return self.segments[0].device if self.segments else 0

    def held(self) -> list[SnapshotSegment]:
        """The segments of that device."""
        return [one for one in self.segments if one.device == self.device]


def line_of(frames: Sequence[Frame]) -> str:
    """The innermost line of the program itself; else of the innermost frame of Python; empty without one."""
    python = [one for one in frames if one.line and one.file.endswith((".py", ">")) and "??" not in one.file]
    own = next((one for one in python if not any(part in one.file for part in _FOREIGN)), python[0] if python else None)
    return own.text if own is not None else ""


def is_snapshot(path: Path) -> bool:
    """Whether a file begins as a snapshot does: a pickle of a dictionary with `segments`."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with path.open("rb") as stream:
            start = stream.read(_START)
    except OSError:
        return False
    return start[:1] == b"\x80" and b"segments" in start and b"torch" not in start.partition(b"segments")[0]


def read_snapshot(path: Path) -> Snapshot:
    """Read one. LoadError for what is none."""
    where = str(path)
    try:
        if path.stat().st_size > _MOST:
            raise LoadError(f"has more than {_MOST} bytes", code="IRS663", where=where)
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"cannot be opened: {error.strerror}", code="IRS663", where=where) from error
    root = read_pickle(data, where).root
    if not isinstance(root, dict) or "segments" not in root or "device_traces" not in root:
        raise LoadError("is no snapshot of torch.cuda.memory: it has no segments and device_traces", code="IRS663", where=where)
    reader = _Reader(where)
    segments = tuple(reader.segment(one) for one in reader.items(root["segments"], "segments"))
    traces = tuple(
        tuple(reader.event(one) for one in reader.items(trace, "device_traces"))
        for trace in reader.items(root["device_traces"], "device_traces")
    )
    settings = root.get("allocator_settings")
    return Snapshot(where, segments, traces, settings if isinstance(settings, dict) else {})


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._frames: dict[tuple[str, str, int], Frame] = {}
        self._stacks: dict[int, tuple[object, tuple[Frame, ...]]] = {}
        """By identity: one stack stands at many events."""

    def _fault(self, what: str) -> LoadError:
        return LoadError(f"is no snapshot of torch.cuda.memory: {what}", code="IRS663", where=self._where)

    def items(self, value: object, what: str) -> Iterator[Any]:
        """The entries of a list."""
        if not isinstance(value, list | tuple):
            raise self._fault(f"{what} is no list")
        spend(len(value), "entries of a snapshot")
        return iter(value)

    def _record(self, value: object, what: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise self._fault(f"an entry of {what} is no dictionary")
        return value

    def _number(self, record: Mapping[Any, Any], *keys: str) -> int:
        value = next((record[key] for key in keys if key in record), 0)
        if type(value) is not int or not -(1 << 63) <= value < 1 << 64:
            raise self._fault(f"{keys[0]} is no number of 64 bits")
        return value

    def stack(self, value: object) -> tuple[Frame, ...]:
        """Frames, the innermost first."""
        known = self._stacks.get(id(value))
        if known is not None:
            return known[1]
        made = []
        for one in self.items(value if value is not None else [], "frames"):
            record = self._record(one, "frames")
            key = str(record.get("name", "")), str(record.get("filename", "")), self._number(record, "line")
            made.append(self._frames.setdefault(key, Frame(*key)))
        found = tuple(made)
        self._stacks[id(value)] = value, found
        return found

    def event(self, value: object) -> TraceEvent:
        """An entry of a trace."""
        record = self._record(value, "device_traces")
        note = record.get("user_metadata")
        return TraceEvent(
            str(record.get("action", "")),
            self._number(record, "addr", "device_free"),
            self._number(record, "size"),
            self._number(record, "stream"),
            self.stack(record.get("frames")),
            note if isinstance(note, str) else "",
        )

    def segment(self, value: object) -> SnapshotSegment:
        """A segment with its blocks; old versions tell where blocks are by their order alone."""
        record = self._record(value, "segments")
        blocks, at = [], self._number(record, "address")
        for one in self.items(record.get("blocks", []), "blocks"):
            block = self._record(one, "blocks")
            size = self._number(block, "size")
            address = self._number(block, "address") if "address" in block else at
            requested = self._number(block, "requested_size") if "requested_size" in block else size
            blocks.append(SnapshotBlock(address, size, requested, str(block.get("state", "")), self.stack(block.get("frames"))))
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


def rounded(size: int) -> int:
    """The block of a request where no option rounds otherwise."""
    return -(-size // _GRAIN) * _GRAIN
