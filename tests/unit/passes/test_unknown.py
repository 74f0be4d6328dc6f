"""What depends on something unknown is a lower bound or unknown, never zero and never exact."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

import irscope
from irscope.cli.main import main
from irscope.errors import ExitCode, IrscopeError
from irscope.frontends.onnx import load_model
from irscope.ir.parser import parse_program
from irscope.passes.memory.liveness import Liveness
from irscope.passkit.manager import Manager
from irscope.passkit.registry import default_registry
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.values import Quantity, bare
from tests.frontends.onnx.build import BOOL, model, value

PARTLY = """irscope 1
graph @main {
  input %x: f32[4,64]
  param %w: f32[64,64]
  param %v: f32[*]
  %h: f32[4,64] = nn.linear(%x, %w) @fc
  %m: ?[*] = acme.mystery(%h) @block
  %r: ?[*] = nn.relu(%m) @block
  %y: ?[*] = acme.other(%r, %v)
  return %y
}
"""
WHOLLY = """irscope 1
graph @main {
  input %x: ?[*]
  %m: ?[*] = acme.mystery(%x) @block
  %y: ?[*] = acme.mystery(%m)
  return %y
}
"""


def report(text: str, pipeline: str) -> Report:
    return Manager(parse_program(text)).run(pipeline)[0].report()


def cells(made: Report) -> dict[str, Any]:
    return {entry.key: entry.cell for entry in made.entries()}


def table(made: Report, title: str) -> list[dict[str, Any]]:
    found: Table = next(table for table in made.tables if table.title == title)
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows()]


def is_at_least(cell: object, number: float) -> bool:
    """Whether a cell says so much is known, and nothing of the most."""
    return isinstance(cell, Quantity) and cell.shown == (number or None) and cell.interval == (number, None)


@pytest.mark.parametrize("key", ["total_flops", "by_class.matmul", "causal.matmul_counted", "by_arithmetic.float"])
def test_sums_of_flops_are_lower_bounds(key: str) -> None:
    assert is_at_least(cells(report(PARTLY, "flops"))[key], 2 * 4 * 64 * 64)


@pytest.mark.parametrize("key", ["needed_flops", "causal.matmul_needed"])
def test_products_may_be_masked_by_an_operator_that_nobody_knows(key: str) -> None:
    found = cells(report(PARTLY, "flops"))[key]
    assert (found.shown, found.interval) == (2 * 4 * 64 * 64, (0, None))


@pytest.mark.parametrize("key", ["by_class.elementwise", "by_arithmetic.integer", "causal.masked"])
def test_what_only_unknown_nodes_may_do_is_unknown(key: str) -> None:
    assert is_at_least(cells(report(PARTLY, "flops"))[key], 0)


def test_a_model_of_unknown_operators_has_no_zero_among_its_flops() -> None:
    made = report(WHOLLY, "flops")
    for key, cell in cells(made).items():
        assert key.startswith("nodes.") or is_at_least(cell, 0), key
    assert [row["share"] for row in table(made, "nodes")] == [None, None]


def test_nodes_of_unknown_cost_have_no_share_and_nothing_masked() -> None:
    rows = {row["node"]: row for row in table(report(PARTLY, "flops"), "nodes")}
    assert rows["h"]["share"] == 1.0 and rows["h"]["masked"] == 0
    assert [rows[name][key] for name in "mry" for key in ("share", "masked")] == [None] * 6
    assert [rows[name]["arithmetic"] for name in "hmry"] == ["float", "unknown", "unknown", "unknown"]


def test_ratios_of_sums_that_are_not_known_are_unknown() -> None:
    found = cells(report(PARTLY, "bytes"))
    assert found["intensity.as_counted"] is None and found["intensity.at_most"] is None
    assert is_at_least(found["moved_bytes"], 18 * 1024)


def test_times_are_lower_bounds_and_shares_may_be_anything() -> None:
    found = cells(report(PARTLY, "roofline"))
    assert found["least_seconds"].interval == (found["least_seconds"].value, None)
    assert all(found[f"if_only.{key}"].interval[1] is None for key in ("arithmetic", "memory", "launches"))
    assert (found["share_of_time.compute"].shown, found["share_of_time.compute"].interval) == (None, (0.0, 1.0))
    nothing = cells(report(WHOLLY, "roofline"))
    assert all(bare(nothing[key]) is None for key in nothing if key.startswith(("if_only", "share_of_time", "least")))


def test_groups_that_may_be_fused_are_at_least_so_many() -> None:
    assert is_at_least(cells(report(PARTLY, "fusion"))["saved_bytes"], 0)


def test_a_family_is_told_from_what_is_known() -> None:
    assert bare(cells(report(PARTLY, "arch"))["convolution_ratio"]) is None
    assert bare(cells(report(WHOLLY, "arch"))["decisive_ratio"]) is None


def test_parameters_of_unknown_size_make_sums_lower_bounds() -> None:
    made = report(PARTLY, "params")
    found = cells(made)
    assert is_at_least(found["count"], 4096) and is_at_least(found["bytes"], 4 * 4096)
    assert found["buffer_bytes"] == 0, "no buffer is unknown"
    (whole,) = [row for row in table(made, "modules") if row["module"] == "(model)"]
    assert whole["tensors"] == 2 and is_at_least(whole["bytes"], 4 * 4096) and whole["share"] is None
    eight = table(made, "alignment")[0]
    assert (eight["aligned"].interval, eight["not_aligned"].interval, eight["padding"]) == ((1, 2), (0, 1), None)


def test_values_that_nobody_read_are_not_counted_as_none() -> None:
    found = cells(report(PARTLY, "params{values}"))
    assert found["unread_count"] == 2
    for key in ("zero_count", "nan_count", "inf_count", "duplicate_bytes"):
        assert is_at_least(found[key], 0)


def test_a_model_without_weights_has_none() -> None:
    found = cells(report(WHOLLY, "params{values}"))
    assert (found["count"], found["zero_count"], found["duplicate_bytes"]) == (0, 0, 0)


def checkpoint(folder: Path) -> Path:
    """A file of weights without a graph."""
    header = {"a.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}
    text = json.dumps(header).encode()
    path = folder / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    return path


WEIGHTS_TELL = {"params", "quantize-error", "store-as", "advise", "prune-report", "verify", "liveness"}
"""Passes with something to say of a file of weights."""


@pytest.mark.parametrize("name", [name for name, entry in default_registry().entries.items() if not name.startswith("train")])
def test_of_weights_alone_nothing_is_known_but_the_weights(tmp_path: Path, name: str) -> None:
    found = irscope.load(str(checkpoint(tmp_path)))
    assert (found.info().nodes, found.info().parameters) == (None, 16)
    try:
        (made,) = found.run(name).reports
    except IrscopeError:
        return
    if name not in WEIGHTS_TELL and made.summary and "changed" not in made.summary:
        assert all(bare(cell) is None for cell in cells(made).values()), name
        assert not made.tables and not made.series
    if name not in ("params", "quantize-error", "store-as") and "changed" not in made.summary:
        assert made.partial and any("no graph" in note for note in made.notes)
        kinds = {entry.key: entry.kind.value for entry in made.entries()}
        assert all(made.to_json()["provenance"][key] == "unknown" for key, cell in cells(made).items() if bare(cell) is None), kinds


def test_what_weights_tell_stays_known(tmp_path: Path) -> None:
    found = irscope.load(str(checkpoint(tmp_path)))
    live, pruned = found.run("liveness,prune-report").reports
    assert cells(live)["param_bytes"] == 64 and cells(live)["activation_peak_bytes"].shown is None
    assert cells(pruned)["weight_bytes"] == 64
    assert [one.title for one in pruned.tables] == ["sparsity"]


def test_two_files_of_weights_differ_in_nothing_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(checkpoint(tmp_path))
    assert main(["compare", path, path, "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)["reports"][0]["summary"]
    assert summary["parameters"]["a"] == 16
    for key in ("nodes", "flops", "moved_bytes", "peak_bytes", "lower_bound_bytes"):
        assert summary[key]["a"] is None and summary[key]["difference"] is None, key


def test_the_line_about_a_file_of_weights_does_not_count_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--all", str(checkpoint(tmp_path))]) == 0
    assert "checkpoint · no graph · 16 parameters" in " ".join(capsys.readouterr().out.split())
    assert main(["run", str(checkpoint(tmp_path))]) == 0
    assert "weights without a graph, 16 parameters" in capsys.readouterr().out
    assert main(["run", str(checkpoint(tmp_path)), "--passes", "flops"]) == ExitCode.PARTIAL


BOUNDED = """irscope 1
graph @main {
  input %x: f32[4,64]
  param %w: f32[64,64]
  %h: f32[4,64] = nn.linear(%x, %w)
  %i: ?[*] = tensor.nonzero(%h)
  %m: ?[*] = acme.mystery(%h)
  %y: f32[4,64] = acme.join(%i, %m)
  return %y
}
"""


@pytest.mark.parametrize("model", ["ssa", "eager", "jit", "ort"])
def test_tensors_of_unknown_size_are_listed_with_what_is_known_of_them(model: str) -> None:
    made = report(BOUNDED, f"liveness{{model={model}}}")
    rows = {row["tensor"]: row for row in table(made, "of unknown size")}
    assert set(rows) == {"i", "m"}
    assert (rows["i"]["size"].shown, rows["i"]["size"].interval) == (None, (0, 4 * 64 * 2 * 8)), "at most every element is not zero"
    assert rows["m"]["size"].interval == (0, None)
    assert all(row["born"] < row["dies"] == 3 and row["held_by"] == "y" for row in rows.values())
    peak = cells(made)["activation_peak_bytes"]
    assert peak.shown is None and peak.interval == (4 * 64 * 4, None), "h and y are there before and after"


@pytest.mark.parametrize("model", ["ssa", "ort"])
def test_the_peak_is_an_interval_where_every_size_has_a_limit(model: str) -> None:
    text = BOUNDED.replace("  %m: ?[*] = acme.mystery(%h)\n", "").replace("acme.join(%i, %m)", "acme.join(%i, %h)")
    low, high = cells(report(text, f"liveness{{model={model}}}"))["activation_peak_bytes"].interval
    assert low == 2 * 4 * 64 * 4 and high == low + 4 * 64 * 2 * 8


def test_parts_and_place_of_a_peak_that_is_not_known_are_not_claimed() -> None:
    found = cells(report(BOUNDED, "liveness"))
    assert (found["tensor_peak.parameter"], found["tensor_peak.input"]) == (64 * 64 * 4, 4 * 64 * 4)
    assert all(bare(found[f"tensor_peak.{part}"]) is None for part in ("output", "activation", "temporary"))
    assert "as far as" in found["peak_node"].note and "as far as" in found["tensor_peak_node"].note


def test_parameters_of_unknown_size_are_a_row_of_the_peak() -> None:
    made = report(PARTLY, "liveness")
    (row,) = [row for row in table(made, "alive at the peak") if row["category"] == "parameter"]
    assert bare(row["size"]) is None and cells(made)["param_bytes"] is None and bare(cells(made)["tensor_peak.parameter"]) is None


def test_heights_at_steps_with_something_unknown_are_lower_bounds() -> None:
    made = report(BOUNDED, "liveness")
    for row in table(made, "highest steps"):
        assert row["step"] in (0, 3) or isinstance(row["bytes"], Quantity)
    alone = BOUNDED.replace("acme.mystery(%h)", "acme.mystery(%i)").replace("acme.join(%i, %m)", "acme.join(%m)")
    made = report(alone, "liveness")
    (series,) = [series for series in made.series if series.title.startswith("activations alive")]
    assert "unknown size" in series.title and series.cells("activation")[2] is None, "only tensors of unknown size are alive then"
    (series,) = [series for series in made.series if series.title.startswith("tensor memory")]
    assert bare(series.cells("activation")[2]) is None and series.cells("parameter")[2] == 64 * 64 * 4


def test_formulas_of_weights_are_added_up_by_module() -> None:
    text = "irscope 1\nsymbol n [1,*]\ngraph @main {\n  param %a.w: f32[n,4]\n  param %a.v: f32[4]\n  return %a.w\n}\n"
    rows = {row["module"]: row for row in table(report(text, "params"), "modules")}
    assert rows["a"]["bytes"] == "16*n + 16" and rows["a"]["elements"] == "4*n + 4"


def test_orders_of_tensors_of_unknown_size_claim_no_least() -> None:
    made = report(WHOLLY, "schedule")
    found = cells(made)
    for key in ("peak_before_bytes", "peak_after_bytes", "lower_bound_bytes", "gain_ratio", "above_bound_ratio"):
        assert bare(found[key]) is None, key
    assert all(bare(row["peak"]) is None and row["above_bound"] is None for row in table(made, "orders tried"))
    assert made.series[0].cells("as_written") == [None, None]


def test_storages_of_unknown_size_are_storages() -> None:
    made = report(BOUNDED, "ranges")
    rows = {row["storage"]: row for row in table(made, "storages")}
    assert cells(made)["storages"] == 4 and rows["i"]["size"].interval == (0, 4096) and rows["i"]["held_by"] == "y"


@pytest.mark.parametrize(("size", "want"), [(1000, 8000), (10, None)])
def test_what_is_unknown_beside_the_peak_does_not_matter(size: int, want: int | None) -> None:
    """16 truth values choose at most 16 places of 8 bytes."""
    nodes = [
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("Cos", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["y"]),
        helper.make_node("NonZero", ["mask"], ["z"]),
    ]
    proto = model(nodes, [value("x", [size]), value("mask", [16], BOOL)], outputs=["y", "z"])
    manager = Manager(load_model(proto))
    pass_ = Liveness(model="ssa")
    found = pass_.report(manager.get(pass_), manager).summary["activation_peak_bytes"]
    if want is None:
        assert isinstance(found, Quantity)
        assert found.value is None
        assert found.interval == (80, 132)
        assert "z" in found.note
    else:
        assert found == want
