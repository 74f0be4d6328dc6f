"""Writing an answer where the user wants it: all of it, or nothing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from irscope.errors import OutputError
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
        write_file(Path(output), renderer(format_name)(document, options))
    return True


def write_file(path: Path, chunks: Iterable[str]) -> None:
    """Write UTF-8 text beside the target and move it there when it is complete; a device or pipe is written directly."""
    with _as_output_error(path):
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="") as stream:
                stream.writelines(chunks)
        else:
            _replace(
                path.resolve(), lambda descriptor: _fill_text(descriptor, chunks)
            )  # a symbolic link stays one: what it points to is replaced


def write_bytes(path: Path, content: bytes) -> None:
    """Write binary data beside the target and move it there when it is complete."""
    write_pieces(path, (content,))


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write pieces of binary data one after the other beside the target and move it there when it is complete."""
    with _as_output_error(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as binary:
                binary.writelines(pieces)
        else:
            _replace(path.resolve(), lambda descriptor: _fill_binary(descriptor, pieces))


def write_folder(folder: Path, files: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Write named files into a folder, which is made if it is not there. Other files in it are left alone."""
    with _as_output_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, chunks in files:
        write_file(folder / name, chunks)


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


def _fill_binary(descriptor: int, pieces: Iterable[bytes | memoryview]) -> None:
    with os.fdopen(descriptor, "wb") as binary:
        binary.writelines(pieces)


def _fill_text(descriptor: int, chunks: Iterable[str]) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.writelines(chunks)


def _replace(target: Path, fill: Callable[[int], None]) -> None:
    temporary = target.with_name(f".irscope-{os.urandom(8).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fill(descriptor)
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "the folder it should be in does not exist" if isinstance(error, FileNotFoundError) else ""
        raise OutputError(f"cannot be written: {error.strerror or error}", where=str(path), hint=hint) from error
