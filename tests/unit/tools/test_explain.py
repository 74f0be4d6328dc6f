"""Snapshots are explained: every byte, faults of programs at their lines, and what the same requests need with other settings."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import LoadError
from irscope.frontends.files.snapshot import Snapshot, read_snapshot
from irscope.tools.explain import Explanation, explain
from irscope.tools.explain.faults import Fault, faults_of
from irscope.tools.explain.history import BEFORE, History
from irscope.tools.explain.sources import Sources
from tests.forked import irscope

DATA = Path(__file__).parents[2] / "data" / "explain"
KINDS = {
    "graph": "a result is kept with its graph",
    "nograd": "no torch.no_grad()",
    "list": "tensors are kept in a container",
    "states": "optimizer states are wider than the parameters",
    "reshard": "reshard_after_forward keeps parameters whole",
    "hook": "a hook keeps activations",
    "cache": "a cache grows",
    "lengths": "fragmentation by varying sizes",
    "copy": "a second copy of the model",
}
SCRIPTS = sorted(DATA.glob("*.py"))
FEW = ("graph_list_of_losses", "nograd_target_network", "hook_recorder", "states_master_copy", "copy_checkpoint", "healthy_contrastive")
"""One of several kinds, for every run of the tests; the others take minutes."""


def simulated(script: Path, folder: Path) -> Path:
    """The snapshot of a simulated run; a script of a larger world says so in its first line."""
    first = script.read_text().partition("\n")[0]
    world = first.split("WORLD ")[1].split(".")[0] if "WORLD " in first else "1"
    path = folder / f"{script.stem}.pickle"
    done = irscope("simulate", "--device", "h100", "--world", world, "-o", str(path), script.name, folder=script.parent)
    assert done.returncode == 0, done.stderr
    return path


def faults(script: Path, folder: Path) -> list[Fault]:
    return faults_of(History(read_snapshot(simulated(script, folder))), Sources(script))


def check(script: Path, folder: Path) -> None:
    """The fault that was planted is named at a line that is marked, and nothing else; of a healthy program nothing is said."""
    found = faults(script, folder)
    kind = KINDS.get(script.stem.partition("_")[0])
    marked = {f"{script.name}:{number}" for number, line in enumerate(script.read_text().splitlines(), 1) if "# HERE" in line}
    assert {one.kind for one in found} == ({kind} if kind else set()), found
    assert not kind or any(one.place in marked for one in found), found


@pytest.mark.parametrize("name", FEW)
def test_a_planted_fault_is_named(name: str, tmp_path: Path) -> None:
    check(DATA / f"{name}.py", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("script", [one for one in SCRIPTS if one.stem not in FEW], ids=lambda one: one.stem)
def test_every_planted_fault_is_named(script: Path, tmp_path: Path) -> None:
    check(script, tmp_path)


def test_there_are_many_faults() -> None:
    assert sum(not one.stem.startswith("healthy") for one in SCRIPTS) >= 30


# -- snapshots written by hand -----------------------------------------------------------------------------------------


def frames(*lines: int, file: str = "/app/train.py") -> list[dict[str, Any]]:
    return [{"name": "main", "filename": file, "line": line} for line in lines]


def event(action: str, address: int, size: int, line: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames(line) if line else []}


def written(folder: Path, events: list[dict[str, Any]], segments: list[dict[str, Any]] | None = None, **more: Any) -> Path:
    path = folder / "snap.pickle"
    path.write_bytes(pickle.dumps({"segments": segments or [], "device_traces": [events], **more}))
    return path


def segment(address: int, size: int, *blocks: tuple[int, int, str]) -> dict[str, Any]:
    parts = [{"address": at, "size": wide, "requested_size": wide, "state": state, "frames": []} for at, wide, state in blocks]
    return {"device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large", "blocks": parts}


def explained(path: Path) -> Explanation:
    return explain(read_snapshot(path))


MIB = 1 << 20


def test_what_was_there_before_the_history_is_a_category_of_its_own(tmp_path: Path) -> None:
    held = segment(0, 20 * MIB, (0, 4 * MIB, "active_allocated"), (4 * MIB, 2 * MIB, "active_allocated"), (6 * MIB, 14 * MIB, "inactive"))
    found = explained(written(tmp_path, [event("alloc", 4 * MIB, 2 * MIB, 7)], [held]))
    kinds = found.history.by_category(found.history.alive(found.history.moment))
    assert kinds[BEFORE] == 4 * MIB and sum(kinds.values()) == 6 * MIB
    assert found.attributed == 1.0 and any("before the history began" in note for note in found.report().notes)


def test_what_is_reserved_adds_up(tmp_path: Path) -> None:
    """A block of 1 MiB keeps a segment of 20 MiB; a segment that nobody uses is told apart."""
    segments = [
        segment(0, 20 * MIB, (0, MIB, "active_allocated"), (MIB, 19 * MIB, "inactive")),
        segment(100 * MIB, 30 * MIB, (100 * MIB, 30 * MIB, "inactive")),
    ]
    events = [event("segment_alloc", 0, 20 * MIB, 1), event("alloc", 0, MIB, 3), event("segment_alloc", 100 * MIB, 30 * MIB, 4)]
    events += [event("alloc", 100 * MIB, 30 * MIB, 4), event("alloc", MIB, 100, 5)]
    events += [event("free_requested", 100 * MIB, 30 * MIB), event("free_requested", MIB, 100)]
    space = explained(written(tmp_path, events, segments)).space
    parts = {name: size for name, _, size in space.parts()}
    assert sum(parts.values()) == space.reserved == 50 * MIB
    (row,) = space.keepers()
    assert row[2] == "/app/train.py:3" and row[5] == 19 * MIB - 512


def test_where_memory_ran_out(tmp_path: Path) -> None:
    events = [event("segment_alloc", 0, 40 * MIB, 1), event("alloc", 0, 40 * MIB, 2)]
    events.append({"action": "oom", "device_free": 10 * MIB, "size": 30 * MIB, "stream": 0, "time_us": 2, "frames": frames(9)})
    events.append(event("free_requested", 0, 40 * MIB))
    found = explained(written(tmp_path, events, [segment(0, 40 * MIB, (0, 40 * MIB, "inactive"))]))
    assert found.verdict.startswith("out of memory: 30.00 MiB more at /app/train.py:9, where 40.00 MiB were in use")
    as_is, tried, why = found.tried
    assert as_is is not None and not why and any(one.change.scale < 1 and one.fits for one in tried)
    document = json.dumps(found.document().to_json())
    assert "out of memory" in document.split("tables")[0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({"segments": [], "device_traces": []}, "neither a history nor a block"),
        ({"segments": [], "device_traces": [[], []]}, "neither a history nor a block"),
        ({"segments": [{"blocks": 3}], "device_traces": []}, "blocks is not a list"),
        ({"segments": {}, "device_traces": []}, "segments is not a list"),
        ({"segments": [], "device_traces": [[{"action": "alloc"}]]}, "no action and size"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "addr": "x", "size": 3, "stream": 0}]]}, "64 bits"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 3, "frames": 7}]]}, "frames is not a list"),
    ],
)
def test_what_cannot_be_explained_is_one_line(content: object, what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(LoadError, match=what):
        explain(read_snapshot(path))
    done = irscope("explain", str(path), folder=tmp_path)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_other_devices(tmp_path: Path) -> None:
    path = tmp_path / "two.pickle"
    traces = [[event("alloc", 0, 512, 1)], [event("alloc", 0, 512, 2), event("alloc", 512, 1024, 3)]]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": traces}))
    snapshot: Snapshot = read_snapshot(path)
    assert explain(snapshot).asked == 1536 and explain(snapshot, device=0).asked == 512
    with pytest.raises(LoadError, match="nothing of device 5"):
        explain(snapshot, device=5)


def test_without_stacks_nothing_is_blamed(tmp_path: Path) -> None:
    """`_record_memory_history(context=None)` tells of no line: bytes are not attributed, and that is said."""
    events = [event("alloc", at * 4096, 4096) for at in range(20)]
    found = explained(written(tmp_path, events))
    assert not found.faults and found.attributed == 0.0
    assert any("no stacks" in note for note in found.report().notes)


def test_a_recording_is_explained(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64).cuda()\nfor _ in range(2):\n"
        "    model(torch.randn(8, 64, device='cuda')).sum().backward()\n    torch.optim.SGD(model.parameters(), 0.1).step()\n"
    )
    done = irscope("simulate", "--device", "h100", "-o", "run.jsonl", "loop.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = irscope("explain", "run.jsonl", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "irscope.explanation/1" and document["findings"] == []
    assert document["attributed_bytes"] == document["live_bytes"] == document["reports"][0]["summary"]["requested_bytes"] > 0
    assert document["reports"][0]["summary"]["attributed_ratio"] == 1.0


SAMPLE = DATA.parents[2] / "samples" / "recordings" / "oom.pickle"


def test_a_real_snapshot_is_explained_to_the_byte() -> None:
    """Of what PyTorch's own code wrote: categories, parts of what is reserved and lines add up, and the fault is at its line."""
    found = explain(read_snapshot(SAMPLE))
    history = found.history
    alive = history.alive(history.moment)
    assert sum(history.by_category(alive).values()) == sum(row[3] for row in history.rows(alive)) == found.asked
    assert found.attributed >= 0.99
    assert sum(size for _, _, size in found.space.parts()) == found.space.reserved == int(history.reserved[history.moment])
    (fault,) = found.faults
    assert fault.kind == KINDS["graph"] and fault.place.endswith("train_oom.py:36")
    source = Sources(DATA.parents[2] / "samples" / "train_oom.py")
    assert [fault.place for fault in faults_of(history, source)] == ["samples/train_oom.py:49"]


def _older(snapshot: dict[str, Any], version: str) -> dict[str, Any]:
    """As older versions write it: with fewer keys."""
    for segment_ in snapshot["segments"]:
        segment_.pop("segment_pool_id"), segment_.pop("is_expandable"), segment_.pop("frames")
        for block in segment_["blocks"]:
            block.pop("address")
            if version == "2.1":
                block["history"] = [{"addr": 0, "real_size": block.pop("requested_size"), "frames": block.pop("frames")}]
    for one in snapshot["device_traces"][0]:
        for key in ("compile_context", "user_metadata", "pool_id"):
            one.pop(key)
        if version == "2.1":
            one.pop("time_us")
    snapshot.pop("external_annotations")
    return snapshot


@pytest.mark.parametrize("version", ["2.1", "2.3"])
def test_snapshots_of_older_versions(version: str, tmp_path: Path) -> None:
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(_older(pickle.loads(SAMPLE.read_bytes()), version)))
    found, new = explain(read_snapshot(path)), explain(read_snapshot(SAMPLE))
    assert found.asked == new.asked and found.space.reserved == new.space.reserved
    assert [fault.place for fault in found.faults] == [fault.place for fault in new.faults]


def _changed(value: Any, draw: random.Random) -> bytes:
    """A snapshot in which a few values are missing, or are something else."""
    holders: list[Any] = []

    def collect(one: Any, depth: int) -> None:
        if isinstance(one, dict | list) and depth < 7:
            holders.append(one)
            for part in one.values() if isinstance(one, dict) else one[:40]:
                collect(part, depth + 1)

    collect(value, 0)
    others = [None, -1, 1 << 62, "alloc", "oom", "segment_free", [], {}, (), 3.5, True, [[]], [{"name": 1, "filename": 2, "line": "x"}]]
    for _ in range(draw.randint(1, 6)):
        holder = draw.choice(holders)
        if not holder:
            continue
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
        if draw.random() < 0.4:
            del holder[key]
        else:
            holder[key] = draw.choice(others)
    return pickle.dumps(value, protocol=draw.choice([2, 4, 5]))


def fuzzed(count: int, seed: int, folder: Path) -> tuple[int, int]:
    """How many changed snapshots are explained, and how many refused in one line."""
    draw = random.Random(seed)
    history = [event("segment_alloc", 0, 20 * MIB, 1)]
    for at in range(24):
        history.append(event("alloc", at * 65536, 40_000 + at, 3 + at % 3))
        if at % 2:
            history += [event("free_requested", at * 65536, 40_000 + at), event("free_completed", at * 65536, 40_000 + at)]
    segments = [segment(0, 20 * MIB, (0, 65536, "active_allocated"), (65536, 20 * MIB - 65536, "inactive"))]
    data = pickle.dumps({"segments": segments, "device_traces": [history], "allocator_settings": {}, "external_annotations": []})
    path = folder / "changed.pickle"
    done = [0, 0]
    for _ in range(count):
        path.write_bytes(_changed(pickle.loads(data), draw))
        try:
            found = explain(read_snapshot(path))
            assert found.document().to_json()["reports"]
            done[0] += 1
        except LoadError as error:
            done[1] += "\n" not in str(error)
    return done[0], done[1]


def test_changed_snapshots_are_explained_or_refused(tmp_path: Path) -> None:
    explained_, refused = fuzzed(150, 3, tmp_path)
    assert explained_ > 30 and refused > 30 and explained_ + refused == 150


@pytest.mark.full
def test_thousands_of_changed_snapshots(tmp_path: Path) -> None:
    assert sum(fuzzed(4000, 5, tmp_path)) == 4000
