"""Crash reproducers: the graph before the failing pass and the pass, in one file that `irscope repro` runs again."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import traceback
from pathlib import Path

from irscope._version import __version__
from irscope.errors import LoadError
from irscope.files import private_file
from irscope.immutable import immutable

FOLDER_VARIABLE = "IRSCOPE_CRASH_DIR"
_RUN_LINE = re.compile(r"^# RUN: (.+)$", re.M)


@immutable
class Reproducer:
    """What a reproducer file asks for."""

    pipeline: str
    text: str


def write_reproducer(text: str, pipeline: str, error: BaseException) -> Path | None:
    """Write a reproducer to $IRSCOPE_CRASH_DIR, else to the cache folder; None if nowhere is writable."""
    trace = "".join(traceback.format_exception(error))
    digest = hashlib.sha256((text + pipeline).encode()).hexdigest()[:10]
    header = [
        f"# irscope {__version__}, Python {platform.python_version()}, {platform.system()}",
        "# A pass failed on this graph. It holds no weights. Run it again with: irscope repro FILE",
        f"# RUN: {pipeline}",
        *(f"# {line}" for line in trace.splitlines()),
    ]
    body = "\n".join(header) + "\n" + text
    return private_file(f"irscope-crash-{digest}", ".irs", body, os.environ.get(FOLDER_VARIABLE, ""))


def read_reproducer(path: Path) -> Reproducer:
    """The pipeline and graph text of a reproducer file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"cannot read the reproducer: {error}", where=str(path)) from None
    match = _RUN_LINE.search(text)
    if match is None:
        raise LoadError("no '# RUN:' line: this is not a reproducer", where=str(path), hint="`irscope run FILE` analyses any .irs file")
    return Reproducer(match[1], text)


def raised_at(error: BaseException) -> str:
    """File and line that raised an error, for a message without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
