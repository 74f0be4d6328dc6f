"""Where a recording goes while it is made."""

from __future__ import annotations

import sys
from pathlib import Path

from irscope.recording.records import Header, Line
from irscope.recording.write import RecordingWriter


class Sink:
    """Writes lines as they arrive, and shows progress on stderr if that is a terminal."""

    def __init__(self, path: Path, verbose: bool = False) -> None:
        self.path = path
        self.failed = False
        """Set where the run did not come to its end; what was recorded before stands."""
        self._verbose = verbose
        self._writer: RecordingWriter | None = None

    def begin(self, header: Header) -> None:
        """Open the file with its first line."""
        self._writer = RecordingWriter(self.path, header)

    @property
    def begun(self) -> bool:
        return self._writer is not None

    def add(self, line: Line) -> None:
        """Write a line."""
        assert self._writer is not None, "begin() comes first"
        self._writer.write(line)

    def stage(self, name: str) -> None:
        """What is done now."""
        if self._verbose:
            sys.stderr.write(f"recording: {name}\n")

    def finish(self) -> None:
        """Write the last line and close the file."""
        if self._writer is not None:
            self._writer.finish(not self.failed)
            self._writer.__exit__(None, None, None)
