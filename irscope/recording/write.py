"""Writing recordings, line by line, so that what a failing run has told so far is in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

from irscope.files import as_output_error, open_fresh
from irscope.recording.decode import encode
from irscope.recording.records import End, Header, Line, Recording


class RecordingWriter:
    """A recording that is being made. Use it in `with`; `finish` writes the last line."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.lines = 0
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

    def finish(self, complete: bool = True) -> None:
        """Write the last line."""
        self.write(End(self.lines, complete))


def as_text(line: Line) -> str:
    """A line of the file, with its end."""
    fields = encode(line)
    assert isinstance(fields, dict)
    if isinstance(line, Header):
        fields = {"schema": line.schema} | fields
    return json.dumps({"line": line.line, **fields}, ensure_ascii=True, separators=(", ", ": "), allow_nan=False) + "\n"


def lines_of(recording: Recording) -> Iterator[Line]:
    """The lines of a whole recording, its end included."""
    single = tuple(line for line in (recording.energy, recording.mapping) if line is not None)
    lines = (recording.header, *recording.ops, *recording.events, *recording.counters, *recording.latency, *single, *recording.problems)
    yield from lines
    yield End(len(lines), recording.complete)


def write_recording(path: Path, recording: Recording) -> None:
    """Write a whole recording."""
    with RecordingWriter(path, recording.header) as writer:
        for line in lines_of(recording):
            if not isinstance(line, Header | End):
                writer.write(line)
        writer.finish(recording.complete)
