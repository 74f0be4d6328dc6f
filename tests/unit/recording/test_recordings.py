"""Recordings are read strictly, survive being cut short, and read back as they were written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from irscope.errors import IrscopeError, LoadError, OutputError
from irscope.files import is_recording
from irscope.recording import (
    Alive,
    Counters,
    DeviceRecord,
    Energy,
    Header,
    Input,
    Latency,
    Level,
    MemoryEvent,
    ModelRecord,
    NodeMapping,
    OpRecord,
    Problem,
    Recording,
    RecordingWriter,
    Times,
    alive_at,
    alive_curve,
    figures,
    peak_of,
    read_recording,
    without_workspaces,
    write_recording,
)
from tests.tools.pages import recording_schema

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "samples" / "recordings").glob("*.jsonl"))
TIMES = Times(3, 1.0, 2.5, 4.0)
HEADER = Header(
    "torch-cpu", ModelRecord("m", "pt2", "m.pt2", "ab", (Input("x", "f32[1,4]"),), {"batch": 1}), DeviceRecord("cpu", "a processor")
)
EVENTS = (
    MemoryEvent("cold", 64, 0, block=0),
    MemoryEvent("cold", 256, 0, block=1, category="workspace", kernel="aten::addmm"),
    MemoryEvent("cold", -256, 0, block=1, category="workspace", kernel="aten::addmm"),
    MemoryEvent("cold", 128, 1, block=2, category="output", scope="head", time_us=7.5),
    MemoryEvent("cold", -64, 1, False, 0),
)
FULL = Recording(
    header=HEADER,
    ops=(
        OpRecord(0, "aten::linear", "stem", ("linear",), ("aten::addmm",), "cpu", ("f32[1,4]",), ("f32[1,4]",), TIMES, 64, 256, 64),
        OpRecord(1, "aten::relu"),
    ),
    events=EVENTS,
    counters=(Counters("before", Level(10, 10), Level(16, 16)), Counters("cold", Level(138, 330), Level(144, 336), None, Level(512, 512))),
    latency=(Latency("plain", TIMES),),
    energy=Energy(0.5, 30, 1.5, "a counter"),
    problems=(Problem("cpu_fallback", "fell back"), Problem("out_of_memory", "no more", 1, "aten::relu", "", 5, (Alive(64, 0),), 64)),
    mapping=NodeMapping(3, 2, ("a",), ()),
)


def written(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """The full recording with texts replaced."""
    path = tmp_path / "recording.jsonl"
    write_recording(path, FULL)
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert is_recording(path)
    assert read_recording(path) == replace(FULL, path=str(path))


def test_one_line_for_one_thing_in_an_order_that_can_be_read_as_it_comes(tmp_path: Path) -> None:
    names = [json.loads(line)["line"] for line in written(tmp_path).read_text().splitlines()]
    assert names[0] == "header" and names[-1] == "end"
    assert names.index("op") < names.index("event")


def test_a_recording_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    for size in range(content.index(b"\n") + 1, len(content) - 1, 7):
        path.write_bytes(content[:size])
        recording = read_recording(path)
        assert not recording.complete
        assert "cut short" in recording.notes[-1]
        assert recording.ops == FULL.ops[: len(recording.ops)] and recording.events == FULL.events[: len(recording.events)]


def test_a_run_that_failed_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    with RecordingWriter(path, HEADER) as writer:
        writer.write(FULL.ops[0])
        writer.write(Problem("out_of_memory", "no more", 0))
        writer.finish(complete=False)
    recording = read_recording(path)
    assert not recording.complete and not recording.notes
    assert recording.problems[0].op == 0


def test_what_a_later_writer_adds_is_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ('"scope": "stem"', '"scope": "stem", "colour": "red"'),
        ('{"line": "latency"', '{"line": "colour", "is": [1]}\n{"line": "latency"'),
        ('"lines": 15', '"lines": 16'),
    )
    recording = read_recording(path)
    assert recording.ops == FULL.ops and recording.complete
    assert recording.notes == ("1 lines of the unknown kind 'colour' were left out",)


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        (
            "irscope.recording/1",
            "irscope.recording/2",
            "IRS476",
            "has the schema irscope.recording/2; this irscope reads irscope.recording/1",
        ),
        ("irscope.recording/1", "another/1", "IRS475", "its first line is not a header"),
        ('"executor": "torch-cpu", ', "", "IRS477", "'executor' is missing"),
        ('"n": 3', '"n": true', "IRS477", "time.n: a whole number is wanted, not True"),
        ('"n": 3', '"n": 1e400', "IRS477", "a whole number is wanted, not inf"),
        ('"min_us": 1.0', '"min_us": NaN', "IRS477", "NaN is not a JSON number"),
        ('"bytes": 64', '"bytes": 1e3', "IRS477", "a whole number is wanted"),
        ('"bytes": 64', '"bytes": 99999999999999999999', "IRS477", "a whole number is wanted"),
        ('"index": 1', '"index": 2', "IRS477", "operator 2 comes where 1 is next"),
        ('"bytes": 64, "op": 0', '"bytes": 64, "op": 2', "IRS477", "operator 2 is named before it comes"),
        ('"bytes": 64, "op": 0', '"bytes": 64, "op": -1', "IRS477", "operator -1 is named before it comes"),
        ('"lines": 15', '"lines": 12', "IRS477", "the end counts 12 lines before it, and there are 15"),
        ('{"line": "op", "index": 1', '{"line": "header", "index": 1', "IRS477", "is missing"),
        ('{"line": "op", "index": 1', '["line"]\n{"line": "op", "index": 1', "IRS477", 'an object with a "line" is wanted'),
        ('{"line": "op", "index": 1', '{"line": "op",\n "index": 1', "IRS477", "no JSON"),
        ('"sources": ["linear"]', '"sources": "linear"', "IRS477", "sources: a list is wanted, not 'linear'"),
        ('"kernels": ["aten::addmm"]', '"kernels": [' + "[" * 9000 + "]" * 9000 + "]", "IRS477", ""),
    ],
)
def test_mistakes_are_one_line_with_their_place(tmp_path: Path, old: str, new: str, code: str, says: str) -> None:
    path = written(tmp_path, (old, new))
    with pytest.raises(LoadError) as caught:
        read_recording(path)
    assert caught.value.code == code and says in str(caught.value)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"{}\n", b"\x00\xff" * 50, b"PK\x03\x04", b"[" * 5000):
        path = tmp_path / "other"
        path.write_bytes(content)
        assert not is_recording(path)
        with pytest.raises(LoadError):
            read_recording(path)
    for missing in (tmp_path / "none.jsonl", tmp_path):
        assert not is_recording(missing)
        with pytest.raises(LoadError) as caught:
            read_recording(missing)
        assert caught.value.code == "IRS474"


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irscope.recording.files.MAX_LINE", 500)
    path = written(tmp_path, ('"scope": "stem"', f'"scope": "{"s" * 1000}"'))
    with pytest.raises(LoadError, match="a line of more than 500 bytes"):
        read_recording(path)


def test_writing_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="the folder it should be in does not exist"):
        write_recording(tmp_path / "none" / "x.jsonl", FULL)


def test_the_curve_its_peak_and_what_is_alive_there() -> None:
    assert alive_curve(EVENTS) == [64, 320, 64, 192, 128]
    peak = peak_of(EVENTS)
    assert (peak.bytes, peak.event, peak.op) == (320, 1, 0)
    assert peak_of(without_workspaces(EVENTS)).bytes == 192
    assert [event.bytes for event in alive_at(EVENTS, 3)] == [128, 64]
    assert peak_of(()).op is None


def test_the_four_figures() -> None:
    found = figures(FULL, "cold")
    assert (found.baseline, found.peak, found.delta, found.reserved) == (16, 336, 320, 512)
    assert figures(FULL, "cold", "requested").delta == 320
    assert figures(FULL, "warm").peak is None and figures(FULL, "cold", "active").delta is None


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_recordings_are_of_the_published_schema(path: Path) -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(recording_schema()))
    for line in path.read_text(encoding="utf-8").splitlines():
        validator.validate(json.loads(line))
    try:
        assert not read_recording(path).notes
    except IrscopeError as error:
        pytest.fail(str(error))
