"""Files opened last, samples, and noticing that a file has changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from irscope.session import open_model
from irscope.tui.app import FileWatch
from irscope.tui.picker import files_table, known_files, note_opened, read_recent, samples
from irscope.tui.text import ASCII, UNICODE, text_of


def test_the_last_opened_comes_first_and_once(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "recent.json"
    for name in ("a", "b", "c", "a"):
        note_opened(tmp_path / name, file)
    assert [path.name for path in read_recent(file)] == ["a", "c", "b"]
    assert all(path.is_absolute() for path in read_recent(file))


def test_the_list_does_not_grow_without_end(tmp_path: Path) -> None:
    file = tmp_path / "recent.json"
    for number in range(30):
        note_opened(tmp_path / str(number), file)
    assert [path.name for path in read_recent(file)] == [str(number) for number in range(29, 9, -1)]


@pytest.mark.parametrize("damaged", ["", "{", "3", '{"a": 1}', "[1, null, [2]]", "[" * 100_000, "\x00"])
def test_a_damaged_list_is_an_empty_one(tmp_path: Path, damaged: str) -> None:
    file = tmp_path / "recent.json"
    file.write_text(damaged)
    assert read_recent(file) == []
    note_opened(tmp_path / "x", file)
    assert [path.name for path in read_recent(file)] == ["x"]


def test_what_cannot_be_written_is_not_noted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    note_opened(tmp_path / "x", tmp_path / "file" / "recent.json")
    assert read_recent(tmp_path / "file" / "recent.json") == []


def test_samples_are_not_noted_but_always_there(tmp_path: Path) -> None:
    file = tmp_path / "recent.json"
    note_opened(samples()[0], file)
    assert not file.exists()
    assert [one.kind for one in known_files(file)] == ["sample"] * len(samples())


@pytest.mark.parametrize("path", samples(), ids=lambda path: path.stem)
def test_samples_can_be_opened_and_answer_everything(path: Path) -> None:
    opened = open_model(path)
    assert opened.program.symbols
    bound = opened.rebound(dict.fromkeys(opened.program.symbols, 8))
    results = bound.run("default")
    assert all(report.coverage is None or report.coverage.known == report.coverage.total for report in results.reports)


def test_files_that_are_gone_and_strange_names_are_shown(tmp_path: Path) -> None:
    strange = tmp_path / "na\x1bme\u540d.onnx"
    strange.write_bytes(b"x" * 2048)
    file = tmp_path / "recent.json"
    note_opened(strange, file)
    note_opened(tmp_path / "gone.onnx", file)
    for symbols in (UNICODE, ASCII):
        table = files_table(known_files(file), symbols)
        lines = [text_of(table.line(at, 100, selected=at == 0)) for at in range(len(table))]
        assert "gone " in lines[0]
        assert "2.00 KiB" in lines[1]
        assert all(character.isprintable() for line in lines for character in line)
        for column in table.sortable:
            table.sort(column)


def test_the_list_is_readable_by_people(tmp_path: Path) -> None:
    file = tmp_path / "recent.json"
    note_opened(tmp_path / "a", file)
    assert json.loads(file.read_text()) == [str(tmp_path / "a")]


def test_a_change_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("one")
    watch = FileWatch(str(file))
    assert not watch.has_changed()
    file.write_text("three")
    assert watch.has_changed()
    assert not watch.has_changed()
    file.unlink()
    assert not watch.has_changed()
    file.write_text("one more")
    os.utime(file, ns=(1, 1))
    assert watch.has_changed()


def test_nothing_is_watched_without_a_file() -> None:
    assert not FileWatch("").has_changed()
    assert not FileWatch("no/such/file").has_changed()
