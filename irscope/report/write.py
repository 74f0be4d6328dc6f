"""Writing an answer where the user wants it: to a file, a folder or a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from irscope.errors import OutputError
from irscope.files import as_output_error, write_text
from irscope.report.options import RenderOptions
from irscope.report.renderers import folder_renderer, renderer
from irscope.report.report import Document


def write_document(document: Document, format_name: str, output: str | None, options: RenderOptions | None = None) -> bool:
    """Render a document to a file, to a folder (a path that is one, or ends with a slash), or with None or "-" to standard output.

    False if the reader of standard output went away before the end.
    """
    if output is None or output == "-":
        options = options or RenderOptions.for_stream(sys.stdout)
        return write_stream(sys.stdout, renderer(format_name)(document, options))
    options = options or RenderOptions()
    if output.endswith(("/", os.sep)) or os.path.isdir(output):
        write_folder(Path(output), folder_renderer(format_name)(document, options))
    else:
        write_text(Path(output), renderer(format_name)(document, options))
    return True


def write_folder(folder: Path, files: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Write named files into a folder, which is made if it is not there. Other files in it are left alone."""
    with as_output_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, chunks in files:
        write_text(folder / name, chunks)


def write_stream(stream: TextIO, chunks: Iterable[str]) -> bool:
    """Write to an open stream; False if its reader went away, as `| head` does, which is no error."""
    try:
        for chunk in chunks:
            _write_encodable(stream, chunk)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
        return False
    except OSError as error:
        _silence(stream)
        raise OutputError(f"cannot write the output: {error.strerror or error}") from error
    return True


def _write_encodable(stream: TextIO, chunk: str) -> None:
    try:
        stream.write(chunk)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(chunk.encode(encoding, "backslashreplace").decode(encoding))


def _silence(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain about it on its way out."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file of the system
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
