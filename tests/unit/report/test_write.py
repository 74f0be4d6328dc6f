"""Output arrives whole or not at all."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from irscope.errors import ExitCode, OutputError, UsageError
from irscope.files import write_stream, write_text
from irscope.report import Column, Document, Kind, Report, Series, Table
from irscope.report.options import RenderOptions
from irscope.report.renderers import renderer, write_document, write_folder
from irscope.report.table import Cells
from tests.unit.report import examples

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


def failing() -> Iterator[str]:
    yield "half"
    raise RuntimeError("a renderer broke")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", ["é", "\n", "x\r\n"])
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa9\nx\r\n"
    assert names(tmp_path) == ["a.txt"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    with pytest.raises(RuntimeError, match="broke"):
        write_text(tmp_path / "a.txt", failing())
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["a.txt"]


def test_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere.*does not exist") as error:
        write_text(tmp_path / "nowhere" / "a.txt", ["x"])
    assert error.value.code == "IRS610"
    assert error.value.exit_code == ExitCode.USAGE


@posix
def test_the_mode_is_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("before")
    real.chmod(0o640)
    write_text(real, ["after"])
    assert real.read_text() == "after"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@posix
def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", ["x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


@posix
def test_what_is_no_regular_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A pipe of its own stands for every device: were this broken, a test with a real one would destroy it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, ["through"])
        assert os.read(reader, 100) == b"through"
        assert pipe.is_fifo()
    finally:
        os.close(reader)
    assert names(tmp_path) == ["pipe"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        write_text(tmp_path, ["x"])


def test_a_folder_is_made_and_others_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "deep"
    write_folder(folder, [("a.csv", ["1"]), ("b.csv", ["2"])])
    (folder / "mine.txt").write_text("mine")
    write_folder(folder, [("a.csv", ["3"])])
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a.csv": "3", "b.csv": "2", "mine.txt": "mine"}


def test_write_document_chooses_by_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = examples.document(examples.liveness())
    assert write_document(document, "json", None)
    assert capsys.readouterr().out.startswith('{\n  "schema": "irscope.report/1"')
    assert write_document(document, "text", "-")
    assert "liveness{model=eager}" in capsys.readouterr().out
    write_document(document, "html", str(tmp_path / "report.html"))
    write_document(document, "csv", str(tmp_path / "all.csv"))
    write_document(document, "csv", f"{tmp_path}/tables/")
    assert names(tmp_path) == ["all.csv", "report.html", "tables"]
    assert names(tmp_path / "tables") == ["liveness-largest.csv", "liveness-summary.csv", "liveness-timeline.csv"]
    with pytest.raises(UsageError, match="json"):
        write_document(document, "json", str(tmp_path))


def test_a_stream_that_lacks_characters_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="")
    assert write_stream(stream, ["日x"])
    assert raw.getvalue() == b"\\u65e5x"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_reader_that_left_is_no_error() -> None:
    assert not write_stream(Gone(), ["x"])


def test_a_full_disk_is() -> None:
    with pytest.raises(OutputError, match="No space left"):
        write_stream(Full(), ["x"])


PROGRAM = """
import sys
from irscope.files import write_stream
done = write_stream(sys.stdout, ("line\\n" for _ in range(1_000_000)))
print("whole" if done else "cut", file=sys.stderr)
"""


@posix
def test_a_closed_pipe_leaves_no_traceback() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    assert process.stderr.read() == "cut\n"
    process.stderr.close()
    assert process.wait() == 0


ROWS = 20_000


def large(make: Callable[[int], object]) -> Document:
    """A document with a table and a curve whose cells are made when somebody looks at them."""
    columns = (Column("name"), Column("size", Kind.BYTES))
    names, sizes = Cells(range(ROWS), "a tensor of layer {}".format), Cells(range(ROWS), make)
    table = Table("tensors", columns, {"name": names, "size": sizes}, keys=names)  # type: ignore[arg-type]  # texts, though cells may be anything
    curve = Series("sizes", Column("place", Kind.COUNT), columns[1:], {"place": range(ROWS), "size": sizes})
    return Document(reports=(Report("liveness", tables=(table,), series=(curve,)),))


@pytest.mark.parametrize("name", ["json", "csv"])
def test_rows_are_written_as_they_are_made(name: str) -> None:
    document = large(lambda number: 1_000_000 + number)
    chunks = renderer(name)(document, RenderOptions())
    next(chunks)
    tracemalloc.start()
    try:
        sizes = [len(chunk) for chunk in chunks]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) > 800_000
    assert max(sizes) < 50_000  # some hundred rows at most
    assert peak - sys.getsizeof(sizes) < 1_000_000


@pytest.mark.parametrize("name", ["json", "csv"])
def test_a_row_that_cannot_be_made_leaves_what_was_there(name: str, tmp_path: Path) -> None:
    def broken(number: int) -> int:
        if number == ROWS // 2:
            raise RuntimeError("a cell broke")
        return number

    target = tmp_path / f"out.{name}"
    target.write_text("before")
    with pytest.raises(RuntimeError, match="broke"):
        write_document(large(broken), name, str(target))
    assert target.read_text() == "before"
    assert names(tmp_path) == [target.name]
