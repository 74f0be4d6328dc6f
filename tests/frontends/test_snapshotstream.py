"""Snapshots are read into columns: what comes out is what pickle itself would make of them, and nothing is executed."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from irscope.frontends.files.snapshotstream import Columns, NoSnapshot, Rows, read_columns
from tests.conftest import FULL

FRAMES = [{"name": f"f{at}", "filename": f"/app/m{at % 7}.py" if at % 3 else "??", "line": at} for at in range(300)]


def made(seed: int, events: int = 700, stack: int = 12) -> dict[str, Any]:
    """As torch 2.13 writes it: a list of frames for each request, shared by the two entries of a free; texts that are new each time."""
    draw = random.Random(seed)
    trace: list[dict[str, Any]] = []
    for at in range(events):
        frames = [FRAMES[draw.randrange(300)] for _ in range(draw.choice([0, 1, stack]))]
        common = {
            "addr": draw.choice([0, 255, 70_000, 138_538_465_099_776, (1 << 62) + 5]),
            "size": draw.choice([0, 512, 66_000, 20 << 20, 5 << 30]),
            "stream": draw.choice([0, 0, 94_000_000_000_000]),
            "time_us": 1_795_386_730_158_311 + at,
            "compile_context": "".join(["N/", "A"]) if at % 50 else f"{at}/0",
            "user_metadata": draw.choice(["", "", "step", "".join(["no", "te", str(at % 5)])]),
            "pool_id": (0, 1) if at % 90 == 0 else tuple([0, 0]),
        }
        if draw.random() < 0.02:
            free = common.pop("addr")
            trace.append({"action": "oom", "device_free": free, **common, "frames": frames})
            continue
        for action in ["alloc"] if draw.random() < 0.5 else ["free_requested", "free_completed"]:
            trace.append({"action": action, **common, "frames": frames})
    return {"segments": [{"blocks": [{"frames": FRAMES[:3]}]}], "device_traces": [[], trace], "allocator_settings": {"a": -1, "b": 0.5}}


def entries(root: Any, columns: Columns) -> list[list[dict[str, Any]]]:
    """The traces again."""
    found = []
    for trace in root["device_traces"]:
        assert all(type(one) is Rows for one in trace)
        found.append(
            [
                {
                    "action": columns.actions[columns.action[row]],
                    "addr": int(columns.address[row]),
                    "size": int(columns.size[row]),
                    "stream": int(columns.stream[row]),
                    "time_us": int(columns.time[row]),
                    "user_metadata": columns.notes[columns.note[row]],
                    "pool_id": columns.pools[columns.pool[row]],
                    "frames": [
                        {"name": frame.name, "filename": frame.file, "line": frame.line}
                        for frame in (columns.frames[number] for number in columns.stacks[columns.stack[row]])
                    ],
                }
                for one in trace
                for row in range(one.first, one.first + one.count)
            ]
        )
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("window", [1 << 10, 9_001, 1 << 25])
def test_columns_are_what_pickle_reads(protocol: int, window: int) -> None:
    for seed in range(3):
        data = pickle.dumps(made(seed), protocol=protocol)
        root, columns = read_columns(io.BytesIO(data), window)
        expected = pickle.loads(data)["device_traces"]
        for trace in expected:
            for entry in trace:
                entry.pop("compile_context")
                if "device_free" in entry:
                    entry["addr"] = entry.pop("device_free")
        assert entries(root, columns) == expected
        assert root["allocator_settings"] == {"a": -1, "b": 0.5}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("executed", "w"))


def nested(levels: int, kind: str) -> bytes:
    """Lists, or tuples, within each other, deeper than any stack."""
    if kind == "list":
        return b"\x80\x04" + b"]" * levels + b"a" * (levels - 1) + b"."
    return b"\x80\x04)" + b"\x85" * levels + b"."


def bomb() -> bytes:
    """A list that holds the one before it twice, forty times: small, and endless for who walks it."""
    return b"\x80\x04]\x94" + b"".join(b"]\x94(h" + bytes([at]) + b"h" + bytes([at]) + b"e" for at in range(40)) + b"."


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (pickle.dumps({"segments": Evil()}), "opcode"),
        (pickle.dumps({"segments": print}), "opcode"),
        (b"", "not a pickle"),
        (b"\x80\x07.", "not a pickle"),
        (b"\x80\x04", "cut off"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "cut off"),
        (b"\x80\x04X\xff\xff\xff\x7fabc.", "cut off"),
        (b"\x80\x04\x8a\xff" + b"\1" * 255 + b".", "64 bits"),
        (b"\x80\x04}K\1.s", "dictionary|stack|cut"),
        (b"\x80\x04h\x05.", "not there"),
        (b"\x80\x04}(K\1u.", "no value"),
        (b"\x80\x04})" + b"\x85" * 200_000 + b"K\1s.", "neither text"),
        (b"\x80\x04}}K\1s.", "neither text|stack"),
    ],
)
def test_what_is_hostile_is_refused(data: bytes, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if data == b"\x80\x04}K\1.s":
        root, _ = read_columns(io.BytesIO(data))
        assert root == 1  # what stands behind the end is not looked at
        return
    with pytest.raises(NoSnapshot, match=what):
        read_columns(io.BytesIO(data))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [nested(1_000_000, "list"), nested(1_000_000, "tuple"), bomb()])
def test_depth_and_sharing_cost_what_the_file_has(data: bytes) -> None:
    root, _ = read_columns(io.BytesIO(data))
    assert isinstance(root, list | tuple)


def _mutate(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    kinds: list[Callable[[], None]] = [
        lambda: changed.__setitem__(draw.randrange(len(changed)), draw.randrange(256)),
        lambda: changed.__delitem__(slice(draw.randrange(len(changed)), None)),
        lambda: changed.__delitem__(draw.randrange(len(changed))),
        lambda: changed.insert(draw.randrange(len(changed)), draw.randrange(256)),
    ]
    for _ in range(draw.randint(1, 4)):
        if changed:
            draw.choice(kinds)()
    return bytes(changed)


@pytest.mark.slow
def test_mutated_files_are_read_or_refused() -> None:
    """Both ways to read an entry agree, whatever stands there: windows of other sizes find the same, or both refuse."""
    draw = random.Random(7)
    data = pickle.dumps(made(1, events=60, stack=4), protocol=4)
    read = 0
    mutants = 600 if FULL else 150
    for _ in range(mutants):
        changed = _mutate(data, draw)
        found: list[object] = []
        for window in (64, 1 << 20):
            try:
                root, columns = read_columns(io.BytesIO(changed), window)
                stacks = [columns.stacks[one] for one in columns.stack.tolist()]
                notes = [columns.notes[one] for one in columns.note.tolist()]
                found.append((type(root), columns.size.tolist(), columns.address.tolist(), stacks, notes))
            except NoSnapshot:
                found.append(None)
        assert found[0] == found[1]
        read += found[0] is not None
    assert mutants // 60 < read < mutants - mutants // 60
