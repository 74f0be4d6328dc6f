"""The frontend for irscope's own text form, `.irs`."""

from __future__ import annotations

from pathlib import Path

from irscope.budget import admit
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.ir.verify import check

_MAX_BYTES = 2 << 30


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Parse a `.irs` file and check it against the rules of the IR."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise LoadError("a text of more than 2 GiB is not read", code="IRS121", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise LoadError(f"the text is not UTF-8 at byte {error.start}", code="IRS121", where=str(path)) from None
    admit(len(text))
    program = parse_program(text, path=str(path))
    check(program)
    program.path = str(path)
    return program
