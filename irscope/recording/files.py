"""Recordings as files.

Written line by line, so that what a failing run has told so far is there; read with every size bounded and every field checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Never, TextIO, TypeVar

from irscope.errors import LoadError
from irscope.files import as_output_error, open_fresh, open_regular, write_text
from irscope.jsoncodec import Misfit, decode, encode, loads
from irscope.recording.records import (
    LINES,
    SCHEMA,
    Counters,
    End,
    Energy,
    Header,
    Held,
    Latency,
    Line,
    Machine,
    MemoryEvent,
    NodeMapping,
    OpRecord,
    Problem,
    Recording,
    Said,
    SaidTable,
    Sample,
)

T = TypeVar("T")

MAX_FILE = 1 << 30
MAX_LINE = 4 << 20
MAX_LINES = 4_000_000
_FAMILY = SCHEMA.rpartition("/")[0]


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises LoadError for what is none, or of a version that this irscope does not know.

    A file that was cut short is read as far as it goes, with `complete` being False.
    """
    where = str(path)
    with _opened(path) as stream:
        return _Reader(where).read(stream)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path, MAX_FILE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LoadError(f"cannot be opened: {reason}", code="IRS474", where=str(path)) from error


@dataclass
class _Reader:
    where: str
    ops: list[OpRecord] = field(default_factory=list)
    events: list[MemoryEvent] = field(default_factory=list)
    counters: list[Counters] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    energy: Energy | None = None
    problems: list[Problem] = field(default_factory=list)
    mapping: NodeMapping | None = None
    said: Said | None = None
    tables: list[SaidTable] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    machine: Machine | None = None
    samples: list[Sample] = field(default_factory=list)
    end: End | None = None
    unknown: Counter[str] = field(default_factory=Counter)

    def read(self, stream: BinaryIO) -> Recording:
        lines = _numbered_lines(stream, self.where)
        header = self._header(next(lines, (1, b"", True)))
        torn = False
        for number, text, whole in lines:
            if self.end is not None:
                self._refuse(number, "lines after the end")
            if number > MAX_LINES:
                self._refuse(number, f"more than {MAX_LINES} lines")
            if not whole and self._is_torn(text):
                torn = True
                break
            self._take(number, text)
        return self._recording(header, torn)

    def _header(self, first: tuple[int, bytes, bool]) -> Header:
        _, text, whole = first
        value = self._json(1, text) if whole or not self._is_torn(text) else None
        schema = value.get("schema") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(schema, str) or not schema.startswith(_FAMILY + "/"):
            hint = "`irscope record` writes recordings"
            raise LoadError("is not a recording: its first line is not a header", code="IRS475", where=self.where, hint=hint)
        if schema != SCHEMA:
            hint = "use the version of irscope that wrote it, or record again"
            raise LoadError(f"has the schema {schema[:60]}; this irscope reads {SCHEMA}", code="IRS476", where=self.where, hint=hint)
        return self._decoded(1, Header, value)

    def _take(self, number: int, text: bytes) -> None:
        value = self._json(number, text)
        name = value.get("line") if isinstance(value, dict) else None
        if not isinstance(name, str):
            self._refuse(number, 'an object with a "line" is wanted')
        kind = LINES.get(name)
        if kind is None:
            self.unknown[name] += 1
            return
        self._keep(number, self._decoded(number, kind, value))

    def _keep(self, number: int, line: Line) -> None:
        for op in _named_ops(line):
            if not 0 <= op < len(self.ops):
                self._refuse(number, f"operator {op} is named before it comes")
        match line:
            case OpRecord():
                if line.index != len(self.ops):
                    self._refuse(number, f"operator {line.index} comes where {len(self.ops)} is next")
                self.ops.append(line)
            case MemoryEvent():
                self.events.append(line)
            case Counters() | Latency() | Problem() | Held() | Sample():
                self._list_of(line).append(line)
            case SaidTable():
                if any(len(row) != len(line.columns) for row in line.rows):
                    self._refuse(number, f"a row of {line.title[:40]!r} has not a cell for each of its {len(line.columns)} columns")
                self.tables.append(line)
            case _:
                self._keep_single(number, line)

    def _list_of(self, line: Line) -> list[Any]:
        """Return where lines go of which nothing needs to be checked."""
        places: dict[type, list[Any]] = {
            Counters: self.counters,
            Latency: self.latency,
            Problem: self.problems,
            Held: self.held,
            Sample: self.samples,
        }
        return places[type(line)]

    def _keep_single(self, number: int, line: Line) -> None:
        """Lines of which there is one."""
        match line:
            case Energy():
                self.energy = line
            case NodeMapping():
                self.mapping = line
            case Said():
                self.said = line
            case Machine():
                self.machine = line
            case End():
                if line.lines != number - 1:
                    self._refuse(number, f"the end counts {line.lines} lines before it, and there are {number - 1}")
                self.end = line
            case _:
                self._refuse(number, "a second header")

    def _recording(self, header: Header, torn: bool) -> Recording:
        notes = [f"{count} lines of the unknown kind {name[:40]!r} were left out" for name, count in sorted(self.unknown.items())]
        if self.end is None:
            notes.append("the recording was cut short" + (" within its last line" if torn else ""))
        return Recording(
            header,
            tuple(self.ops),
            tuple(self.events),
            tuple(self.counters),
            tuple(self.latency),
            self.energy,
            tuple(self.problems),
            self.mapping,
            self.end is not None and self.end.complete,
            tuple(notes),
            self.where,
            self.said,
            tuple(self.tables),
            tuple(self.held),
            self.machine,
            tuple(self.samples),
        )

    def _is_torn(self, text: bytes) -> bool:
        """Return whether the last line, which has no line end, is only a part of one."""
        try:
            loads(text)
        except Misfit:
            return True
        return False

    def _json(self, number: int, text: bytes) -> object:
        try:
            return loads(text)
        except Misfit as misfit:
            self._refuse(number, str(misfit))

    def _decoded(self, number: int, kind: type[T], value: object) -> T:
        try:
            return decode(kind, value)
        except Misfit as misfit:
            self._refuse(number, str(misfit))

    def _refuse(self, number: int, message: str) -> Never:
        raise LoadError(message, code="IRS477", where=f"{self.where}:{number}")


def _named_ops(line: Line) -> Iterator[int]:
    """Yield operators that a line refers to."""
    named: tuple[int | None, ...] = ()
    if isinstance(line, MemoryEvent):
        named = (line.op,)
    elif isinstance(line, Problem):
        named = (line.op, *(alive.op for alive in line.alive))
    yield from (op for op in named if op is not None)


def _numbered_lines(stream: BinaryIO, where: str) -> Iterator[tuple[int, bytes, bool]]:
    """Yield lines with their number, and whether each has its end."""
    number = 0
    while text := stream.readline(MAX_LINE + 1):
        number += 1
        if len(text) > MAX_LINE:
            raise LoadError(f"a line of more than {MAX_LINE} bytes", code="IRS477", where=f"{where}:{number}")
        yield number, text, text.endswith(b"\n")


# Writing recordings, line by line, so that what a failing run has told so far is in the file.


class RecordingWriter:
    """A recording that is being made. Use it in `with`; `finish` writes the last line."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.lines = 0
        self._header = header
        self._stream: TextIO = open_fresh(path)
        self.write(header)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()

    def write(self, line: Line) -> None:
        """Write one line, and see to it that it reaches the file."""
        with as_output_error(self.path):
            self._stream.write(as_text(line))
            self._stream.flush()
        self.lines += 1

    def restart(self) -> None:
        """Leave only the header: what was written so far is written again, with more in it."""
        with as_output_error(self.path):
            self._stream.seek(0)
            self._stream.truncate()
        self.lines = 0
        self.write(self._header)

    def finish(self, complete: bool = True) -> None:
        """Write the last line."""
        self.write(End(self.lines, complete))


def as_text(line: Line) -> str:
    """Return a line of the file, with its end."""
    fields = encode(line)
    assert isinstance(fields, dict)
    if isinstance(line, Header):
        fields = {"schema": line.schema} | fields
    return json.dumps({"line": line.line, **fields}, ensure_ascii=True, separators=(", ", ": "), allow_nan=False) + "\n"


def lines_of(recording: Recording) -> Iterator[Line]:
    """Yield the lines of a whole recording, its end included."""
    single = tuple(line for line in (recording.energy, recording.mapping, recording.machine) if line is not None)
    said = () if recording.said is None else (recording.said,)
    lines = (
        recording.header,
        *said,
        *recording.tables,
        *recording.held,
        *recording.ops,
        *recording.events,
        *recording.counters,
        *recording.latency,
        *single,
        *recording.samples,
        *recording.problems,
    )
    yield from lines
    yield End(len(lines), recording.complete)


def write_recording(path: Path, recording: Recording) -> None:
    """Write a whole recording."""
    write_text(path, map(as_text, lines_of(recording)))
