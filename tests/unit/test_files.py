"""Files that irscope writes: whole or not at all, never through a link, its own in private folders."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from irscope.errors import OutputError
from irscope.files import cache_folder, open_fresh, private_file, private_folder, staged, write_binary, write_text


def _staged(path: Path) -> None:
    with staged(path) as beside:
        beside.write_text("new")


def _fresh(path: Path) -> None:
    with open_fresh(path) as stream:
        stream.write("new")


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_text(path, ["new"]),
    "binary": lambda path: write_binary(path, [b"new"]),
    "staged": _staged,
    "fresh": _fresh,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_a_link(write: Callable[[Path], None], there: bool, tmp_path: Path) -> None:
    target = tmp_path / ".bashrc"
    if there:
        target.write_text("old")
    link = tmp_path / "report.json"
    link.symlink_to(target)
    with pytest.raises(OutputError, match="is a link to"):
        write(link)
    assert target.read_text() == "old" if there else not target.exists()
    assert {path.name for path in tmp_path.iterdir()} == ({".bashrc", "report.json"} if there else {"report.json"})


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_hard_link_loses_nothing(write: Callable[[Path], None], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("old")
    target = tmp_path / "report.json"
    os.link(other, target)
    write(target)
    assert (target.read_text(), other.read_text()) == ("new", "old")


@pytest.mark.parametrize("write", [WRITERS["text"], WRITERS["binary"]])
def test_what_fails_half_way_leaves_the_old_file(write: Callable[[Path], None], tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")

    def pieces() -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_text(target, (piece for piece in pieces()))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_own_files_are_private_and_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRSCOPE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = private_file("crash", ".irs", "a"), private_file("crash", ".irs", "b")
    assert first is not None and second is not None and first != second
    assert first.parent == cache_folder()
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(first.stat().st_mode) == 0o600


def test_a_cache_folder_that_is_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="own folder"):
        private_folder(tmp_path / "cache")
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path))
    written = private_file("crash", ".irs", "a")
    assert written is not None and not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_others_may_enter_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
@pytest.mark.parametrize("writer", ["write_text", "staged"])
def test_a_writer_that_is_killed_leaves_the_old_file(writer: str, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    endless = "def pieces():\n    while True:\n        yield 'x' * 1000\n"
    body = {
        "write_text": "write_text(Path(sys.argv[1]), pieces())",
        "staged": "with staged(Path(sys.argv[1])) as beside:\n    beside.open('w').writelines(pieces())",
    }[writer]
    program = f"import sys\nfrom pathlib import Path\nfrom irscope.files import staged, write_text\n{endless}{body}\n"
    with subprocess.Popen([sys.executable, "-c", program, str(target)]) as process:
        while not any(file.is_file() and file.stat().st_size > 0 for file in tmp_path.rglob("*") if file != target):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert target.read_text() == "old"
