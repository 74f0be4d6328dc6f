"""Writing an answer where the user wants it: to a file, a folder or a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from irscope.files import as_output_error, write_stream, write_text
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
