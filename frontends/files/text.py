"""The frontend for irscope's own text form, `.irs`."""

from __future__ import annotations

import sys
from pathlib import Path

from irscope.budget import admit
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.ir.verify import check

_MAX_BYTES = 2 << 30
_TOO_LARGE = "a text of more than 2 GiB is not read"


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Parse a `.irs` file and check it against the rules of the IR."""
    return program_in(read_text(path), str(path))


def program_in(text: str, where: str) -> Program:
    """Parse a text and check it against the rules of the IR; `where` names it in messages."""
    admit(len(text))
    program = parse_program(text, path=where)
    check(program)
    program.path = where
    return program


def read_text(path: Path | None) -> str:
    """Read the text of a file, or of stdin."""
    where = "<stdin>" if path is None else str(path)
    try:
        if path is not None and path.stat().st_size > _MAX_BYTES:
            raise LoadError(_TOO_LARGE, code="IRS121", where=where)
        content = sys.stdin.buffer.read(_MAX_BYTES + 1) if path is None else path.read_bytes()
        if len(content) > _MAX_BYTES:
            raise LoadError(_TOO_LARGE, code="IRS121", where=where)
        return content.decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", where=where) from None
    except UnicodeDecodeError as error:
        raise LoadError(f"the text is not UTF-8 at byte {error.start}", code="IRS121", where=where) from None
