"""A plan for viewers: the forms that they read, and numbers that add up to those of the pass."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.passes.exports.viewers import VIEWERS, model_explorer, netron, perfetto, speedscope
from irscope.passes.order.plan import Plan, Planned
from irscope.passkit.manager import Manager
from tests.unit.passes.test_schedule import TWO_BRANCHES, program


@pytest.fixture
def planned() -> Planned:
    return Manager(program(TWO_BRANCHES)).get(Plan(alignment=4, order="scheduled"))


def through_json(made: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(made))
    assert back == made
    return back


def test_the_trace_has_nodes_in_order_and_lives_in_pairs(planned: Planned) -> None:
    events = through_json(perfetto(planned))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices] == [planned.draft.nodes[op].name for op in planned.order]
    assert [event["ts"] for event in slices] == [1000 * step for step in range(len(slices))]
    begins = {event["id"]: event for event in events if event["ph"] == "b"}
    ends = {event["id"]: event for event in events if event["ph"] == "e"}
    assert begins.keys() == ends.keys() and len(begins) == len(planned.buffers)
    assert all(begins[one]["ts"] < ends[one]["ts"] and begins[one]["cat"] == ends[one]["cat"] for one in begins)
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C") == planned.max_live
    # What lies at one time lies apart.
    for at in range(len(slices)):
        there = [one for one in begins if begins[one]["ts"] <= 1000 * at < ends[one]["ts"]]
        spans = sorted((begins[one]["args"]["offset"], begins[one]["args"]["size"]) for one in there)
        assert all(low + size <= high for (low, size), (high, _) in pairwise(spans))


def test_the_flame_graph_adds_up_to_the_peak(planned: Planned) -> None:
    made = through_json(speedscope(planned))
    (profile,) = made["profiles"]
    assert made["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert (profile["type"], profile["unit"], len(profile["samples"])) == ("sampled", "bytes", len(profile["weights"]))
    assert sum(profile["weights"]) == profile["endValue"] == planned.max_live
    frames = made["shared"]["frames"]
    assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
    assert len({frame["name"] for frame in frames}) == len(frames)


def test_the_attachment_names_nodes_and_tensors(planned: Planned) -> None:
    made = through_json(netron(planned))
    assert made["signature"] == "netron:attachment"
    kinds = {one["kind"] for one in made["metrics"]}
    assert kinds == {"model", "node", "value"} and all({"target", "name", "value", "type"} <= one.keys() for one in made["metrics"])
    rows = [(one["kind"], one["target"], one["name"]) for one in made["metrics"]]
    assert len(rows) == len(set(rows)) and all((kind == "model") == (target == "") for kind, target, _ in rows)
    steps = {one["target"]: one["value"] for one in made["metrics"] if one["kind"] == "node" and one["name"] == "step"}
    assert steps == {planned.draft.nodes[op].name: step for step, op in enumerate(planned.order)}
    offsets = {one["target"]: one["value"] for one in made["metrics"] if one["name"] == "arena offset"}
    assert offsets == {one.name: offset for one, offset in zip(planned.buffers, planned.plan.offsets, strict=True)}


def test_node_data_has_the_same_ids(planned: Planned) -> None:
    (data,) = through_json(model_explorer(planned)).values()
    assert set(data["results"]) == {node.name for node in planned.draft.nodes}
    assert max(one["value"] for one in data["results"].values()) == planned.max_live
    assert [one["stop"] for one in data["gradient"]] == [0, 1]


@pytest.mark.parametrize("viewer", VIEWERS)
def test_the_name_of_a_file_says_for_which_viewer(viewer: str, tmp_path: Path) -> None:
    path = tmp_path / "m.irs"
    path.write_text(f'irscope 1\nformat "irs"\ngraph @main {{\ninput %x: f32[256]\n{TWO_BRANCHES}\n}}\n', encoding="utf-8")
    assert main(["export", "--plan", "-o", str(tmp_path / f"p.{viewer}.json"), str(path)]) == 0
    assert "schema" not in json.loads((tmp_path / f"p.{viewer}.json").read_text(encoding="utf-8"))
    assert main(["export", "--plan", "--kind", viewer, "-o", str(tmp_path / "other"), str(path)]) == 0
    assert (tmp_path / "other").read_bytes() == (tmp_path / f"p.{viewer}.json").read_bytes()
    assert main(["export", "-o", str(tmp_path / f"t.{viewer}.json"), str(path)]) == 2
