"""`irscope compare` of two runs: recordings and snapshots, and where their requests part."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import LoadError
from irscope.frontends.files.snapshot import Frame, is_snapshot, line_of, read_snapshot
from irscope.tools.compare.memory import compare_runs, read_run
from tests.cli.test_simulate import LOOP
from tests.forked import irscope


def event(action: str, address: int, size: int, line: int = 0) -> dict[str, Any]:
    frames = [
        {"name": "at::empty", "filename": "??", "line": 0},
        {"name": "forward", "filename": "/usr/lib/python3/torch/nn/modules/linear.py", "line": 125},
        {"name": "train", "filename": "/app/train.py", "line": line},
    ]
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames if line else []}


def snapshot(folder: Path, name: str, *events: dict[str, Any], blocks: tuple[tuple[int, int, int, str], ...] = ()) -> Path:
    """A file as torch writes it: one segment of 2 MiB that was there before the trace."""
    parts = [{"address": at, "size": size, "requested_size": asked, "state": state, "frames": []} for at, size, asked, state in blocks]
    segment = {"device": 0, "address": 0, "total_size": 2 << 20, "stream": 0, "segment_type": "small", "blocks": parts}
    path = folder / name
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [list(events)], "allocator_settings": {}}))
    return path


def test_a_snapshot_s_peaks_follow_from_its_end(tmp_path: Path) -> None:
    """1,000 bytes were there before, and are at the end; in between there are 3,000 more, which take 3,072."""
    path = snapshot(
        tmp_path,
        "a.pickle",
        event("alloc", 1024, 3000, 7),
        event("free_requested", 1024, 3000),
        event("free_completed", 1024, 3000),
        blocks=((0, 1024, 1000, "active_allocated"), (1024, (2 << 20) - 1024, 0, "inactive")),
    )
    run = read_run(path)
    assert is_snapshot(path) and run.before == 1000
    assert run.highest == {"requested": 4000, "allocated": 4096, "active": 4096, "reserved": 2 << 20}
    assert run.births[0][0].line == "/app/train.py:7"


def test_where_requests_part(tmp_path: Path) -> None:
    sizes = [[4000] * 30, [4000] * 20 + [5000] * 10]
    one, other = (
        snapshot(
            tmp_path,
            name,
            *(event("alloc", at * 8192, size, at + 1) for at, size in enumerate(asked)),
            blocks=tuple((at * 8192, 8192, size, "active_allocated") for at, size in enumerate(asked)),
        )
        for name, asked in zip(("a.pickle", "b.pickle"), sizes, strict=True)
    )
    compared = compare_runs(read_run(one), read_run(other))
    assert compared.same == 20 and compared.parted
    done = irscope("compare", str(one), str(other), "--fail-on", "peak>5%", folder=tmp_path)
    assert done.returncode == 1 and "the first 20 are the same; A has 30, B 30" in done.stdout
    assert irscope("compare", str(one), str(one), "--fail-on", "peak>0%", folder=tmp_path).returncode == 0


def test_memory_that_one_run_gives_back_later(tmp_path: Path) -> None:
    freed = (event("free_requested", 0, 4000), event("free_completed", 0, 4000))
    first, later = event("alloc", 0, 4000, 1), [event("alloc", 4096 * at, 4000, 2) for at in (1, 2)]
    a = read_run(snapshot(tmp_path, "a.pickle", first, *freed, *later))
    b = read_run(snapshot(tmp_path, "b.pickle", first, later[0], *freed, later[1]))
    compared = compare_runs(a, b)
    assert not compared.parted and compared.freed == 1


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("executed", "w"))


@pytest.mark.parametrize(
    "content",
    [
        {"segments": Evil(), "device_traces": []},
        {"segments": [], "device_traces": [[{"addr": 1 << 80}]]},
        {"segments": [[]], "device_traces": []},
        {"segments": []},
        ["segments"],
    ],
)
def test_what_is_no_snapshot_is_one_line(tmp_path: Path, content: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(LoadError, match="is not a snapshot"):
        read_snapshot(path)
    assert not (tmp_path / "executed").exists()
    done = irscope("compare", str(path), str(path), folder=tmp_path)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_the_line_of_a_stack_is_the_program_s() -> None:
    torch = Frame("forward", "/lib/torch/nn/linear.py", 3)
    assert line_of([torch, Frame("f", "/app/a.py", 5), Frame("g", "/app/b.py", 6)]) == "/app/a.py:5"
    assert line_of([torch]) == "/lib/torch/nn/linear.py:3" and line_of([Frame("x", "??", 0)]) == ""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated loop, and one with a wider layer, as recordings and snapshots."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(LOOP)
    (folder / "wide.py").write_text(LOOP.replace("1024", "2048"))
    for script in ("train", "wide"):
        for kind in ("jsonl", "pickle"):
            done = irscope("simulate", "--device", "h100", "-o", f"{script}.{kind}", f"{script}.py", folder=folder)
            assert done.returncode == 0, done.stderr
    return folder


def reported(folder: Path, *names: str) -> dict[str, Any]:
    done = irscope("compare", *names, "--format", "json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["reports"][0]
    return found


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")
def test_a_recording_is_found_again_in_the_snapshot_of_the_same_run(files: Path) -> None:
    found = reported(files, "train.jsonl", "train.pickle")
    assert found["summary"]["requests"].startswith("all ") and " of B on" in found["summary"]["requests"]
    assert {row[4] for row in found["tables"][0]["rows"]} == {0}


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")
@pytest.mark.parametrize("kind", ["jsonl", "pickle"])
def test_two_simulations_beside_each_other(files: Path, kind: str) -> None:
    found = reported(files, f"train.{kind}", f"wide.{kind}")
    tables = {table["title"]: table["rows"] for table in found["tables"]}
    for row in tables["counters: what there was before, and peaks"]:
        assert row[4] == row[3] - row[2]
    made = tables["what the peak of requested is made of"]
    assert [sum(row[at] for row in made[:-1]) for at in (1, 2, 3)] == made[-1][1:]
    assert any(row[1] == "differs" for row in tables["where the requests part"])


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")
def test_torch_s_own_functions_read_the_snapshot(files: Path) -> None:
    from torch.cuda import _memory_viz

    made = pickle.loads((files / "train.pickle").read_bytes())
    assert len(_memory_viz.trace_plot(made)) > 1000 and len(_memory_viz.segment_plot(made)) > 1000
    assert _memory_viz.segsum(made).startswith("Summary of segments") and "train.py" in str(made["device_traces"])
    assert len(_memory_viz.trace(made)) > 100
