"""Whatever is in a file, reading it as a recording ends with a recording or one clear line."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import LoadError
from irscope.jsoncodec import decode, encode
from irscope.recording import MemoryEvent, OpRecord, Recording, Times, read_recording, write_recording
from tests.unit.recording.test_recordings import FULL, HEADER

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SIZES = st.none() | st.integers(0, 1 << 50)
MICROSECONDS = st.floats(0, 1e9, allow_nan=False)
TIMES = st.builds(Times, st.integers(1, 99), MICROSECONDS, MICROSECONDS, MICROSECONDS)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Recordings whose events name operators that are there."""
    count = draw(st.integers(0, 4))
    ops = [
        OpRecord(index, draw(TEXT), draw(TEXT), draw(TEXTS), draw(TEXTS), "cpu", draw(TEXTS), (), draw(st.none() | TIMES), draw(SIZES))
        for index in range(count)
    ]
    numbers = st.none() | st.integers(0, count - 1) if count else st.none()
    event = st.builds(MemoryEvent, st.sampled_from(["cold", "warm"]), st.integers(-(1 << 40), 1 << 40), numbers, st.booleans(), SIZES)
    return Recording(header=HEADER, ops=tuple(ops), events=tuple(draw(st.lists(event, max_size=6))))


def saved(content: bytes) -> Path:
    with tempfile.NamedTemporaryFile(suffix=".jsonl", delete=False) as file:
        file.write(content)
        return Path(file.name)


@given(recordings())
def test_recordings_read_back(recording: Recording) -> None:
    path = saved(b"")
    try:
        write_recording(path, recording)
        assert read_recording(path) == dataclasses.replace(recording, path=str(path))
    finally:
        path.unlink()


def base_lines() -> list[bytes]:
    path = saved(b"")
    write_recording(path, FULL)
    content = path.read_bytes()
    path.unlink()
    return content.splitlines(keepends=True)


LINES = base_lines()


def read_or_refuse(content: bytes) -> None:
    path = saved(content)
    try:
        recording = read_recording(path)
        assert all(event.op is None or event.op < len(recording.ops) for event in recording.events)
    except LoadError as error:
        if "\n" in str(error):
            raise
    finally:
        path.unlink()


@given(st.lists(st.sampled_from(LINES) | st.binary(max_size=40), max_size=14))
def test_lines_in_any_order_with_noise_between(lines: list[bytes]) -> None:
    read_or_refuse(LINES[0] + b"".join(lines))


@given(st.integers(0, len(b"".join(LINES)) - 1), st.binary(max_size=3), st.integers(0, 5))
def test_bytes_changed_anywhere(place: int, noise: bytes, removed: int) -> None:
    content = b"".join(LINES)
    read_or_refuse(content[:place] + noise + content[place + removed :])


@given(st.integers(0, len(LINES) - 1), st.data())
def test_any_value_in_any_field(number: int, data: st.DataObject) -> None:
    fields = json.loads(LINES[number])
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JSON)
    read_or_refuse(b"".join([*LINES[:number], json.dumps(fields).encode() + b"\n", *LINES[number + 1 :]]))


@given(JSON)
def test_decoding_what_was_encoded(value: object) -> None:
    header = decode(type(HEADER), {**json.loads(json.dumps(encode(HEADER))), "unknown": value})
    assert header == HEADER
