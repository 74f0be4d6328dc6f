"""Output of a recording while it is made: lines, the progress of the run, and failures with what was alive."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from irscope.amounts import BYTES, read_amount
from irscope.measure.monitor import Monitor
from irscope.recording.files import RecordingWriter
from irscope.recording.records import Alive, Header, Line, MemoryEvent, OpRecord, Problem, Sample, alive_at

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


# Failures of a run: at which operator, and what was alive.

_MOST = 20
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc", "not enough memory", "bad allocation")
_WANTED = (
    re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMGTP]iB)", re.IGNORECASE),
    re.compile(r"requested (?:buffer of )?(?:bytes|size)\D{0,3}(\d+)", re.IGNORECASE),
)
_ORT_NODE = re.compile(r"while running (\S+) node\. Name:'([^']*)'")
"""ONNX Runtime's wording of the place of an error."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is an out-of-memory error of any library."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(part in text for part in _OUT_OF_MEMORY)


def problem_of(
    error: BaseException, ops: Sequence[OpRecord], events: Sequence[MemoryEvent], in_use: Sequence[Alive] | None = None
) -> Problem:
    """Return the problem a run ended with; the operator that ran last is where it happened, where the error names none."""
    last = ops[-1] if ops else None
    named = _ORT_NODE.search(str(error))
    alive = in_use if in_use is not None else [_alive_piece(event, ops) for event in alive_at(events, len(events) - 1)]
    kind = "out_of_memory" if is_out_of_memory(error) else "failed"
    requested = _requested(str(error)) if kind == "out_of_memory" else None
    return Problem(
        kind,
        f"out of memory: {requested} bytes could not be had" if requested is not None else first_line(error),
        last.index if last and (named is None or last.op == named[1]) else None,
        named[1] if named is not None else last.op if last else "",
        named[2] if named is not None else last.scope if last else "",
        requested,
        tuple(sorted(alive, key=lambda one: -one.bytes)[:_MOST]),
        sum(one.bytes for one in alive),
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, with its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500] if lines else ''}".rstrip(": ")


def _alive_piece(event: MemoryEvent, ops: Sequence[OpRecord]) -> Alive:
    # Between two operators Python itself may make a tensor, such as one of a number.
    op = ops[event.op] if event.op is not None and event.inside else None
    return Alive(event.bytes, op.index if op else None, op.op if op else "", op.scope if op else event.scope)


def _requested(text: str) -> int | None:
    for pattern in _WANTED:
        match = pattern.search(text)
        if match:
            amount = read_amount("".join(match.groups()), BYTES)
            return None if amount is None else int(amount)
    return None


# Where a recording goes while it is made.


class Sink:
    """Writes lines as they arrive, and shows progress on stderr if that is a terminal."""

    def __init__(self, path: Path, verbose: bool = False, device: str = "") -> None:
        """`device` is that whose machine is watched while it is recorded; empty watches none."""
        self.path = path
        self.failed = False
        """Set where the run did not come to its end; what was recorded before stands."""
        self.ended = False
        """True where the last line is written."""
        self._verbose = verbose
        self._writer: RecordingWriter | None = None
        self.device = device
        self._monitor: Monitor | None = None
        self._samples: list[Sample] = []

    def begin(self, header: Header) -> None:
        """Open the file with its first line."""
        self._writer = RecordingWriter(self.path, header)
        if self.device:
            self._monitor = Monitor(self.device)
            self._monitor.start()

    @property
    def begun(self) -> bool:
        """Return whether there is a file."""
        return self._writer is not None or self.ended

    def add(self, line: Line) -> None:
        """Write a line."""
        assert self._writer is not None, "begin() comes first"
        for sample in self._monitor.take() if self._monitor is not None else ():
            self._samples.append(sample)
            self._writer.write(sample)
        self._writer.write(line)

    def restart(self) -> None:
        """Leave only what the machine was like: all else is told again, and more."""
        assert self._writer is not None, "begin() comes first"
        self._writer.restart()
        for sample in self._samples:
            self._writer.write(sample)

    def stage(self, name: str) -> None:
        """Note the stage that begins."""
        if self._monitor is not None:
            self._monitor.stage = name
        if self._verbose:
            sys.stderr.write(f"recording: {name}\n")

    def finish(self) -> None:
        """Write the last line and close the file."""
        if self._writer is not None:
            if self._monitor is not None:
                self.add(self._monitor.stop())
            self._writer.finish(not self.failed)
            self._writer.__exit__(None, None, None)
            self._writer = None
            self.ended = True
