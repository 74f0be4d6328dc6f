"""The JSON document is what the published contract says."""

from __future__ import annotations

import json

from irscope.report import Coverage, Document, Kind, ModelInfo, Provenance, Quantity, RenderOptions, Report, renderer
from tests.unit.report import examples


def test_the_documents_shape() -> None:
    document = examples.document(examples.liveness()).to_json()
    assert document["schema"] == "irscope.report/1"
    assert document["tool"] == {"name": "irscope", "version": "1.2.3"}
    assert document["model"] == {
        "path": "model.onnx",
        "format": "onnx",
        "sha256": "ab" * 32,
        "nodes": 12,
        "has_graph": True,
        "parameters": 1000,
        "parameter_bytes": 4000,
        "bind": {"batch": 8},
        "assumed": [],
        "diagnostics": [],
    }
    (report,) = document["reports"]
    assert report["pass"] == "liveness"
    assert report["options"] == "liveness{model=eager}"
    assert report["tables"] == [
        {"title": "Largest", "columns": [{"key": "node", "kind": "node"}, {"key": "size", "kind": "bytes"}], "rows": [["a", 1], ["b", 2]]}
    ]
    assert report["coverage"] == {"known": 3, "total": 4, "unknown": ["aten.foo"]}
    assert report["diagnostics"] == [
        {"severity": "warning", "code": "IRS204", "message": "odd \x1b[31m", "node": "conv", "hint": "do this", "count": 3}
    ]


def test_the_summary_is_raw_and_what_is_said_about_it_stands_beside() -> None:
    report = examples.liveness().to_json()
    assert report["summary"] == {
        "model": "eager",
        "activation_peak_bytes": 11607654,
        "lower_bound_bytes": "1048576*batch",
        "before": {"requested": 1024, "allocated": 2048, "reserved": 2097152},
        "cold": {"requested": 4096, "allocated": 8192, "reserved": None},
        "workspace_bytes": 8519680,
    }
    assert report["provenance"] == {"cold.allocated": "modelled", "cold.reserved": "unknown", "workspace_bytes": "modelled"}
    assert report["formulas"] == {"workspace_bytes": "8519680*n"}
    assert report["intervals"] == {"workspace_bytes": [0, 9000000]}
    assert report["remarks"] == {"workspace_bytes": "cuBLAS"}
    assert report["units"]["cold.reserved"] == "bytes"
    assert report["units"]["model"] == "text"


def test_a_report_without_anything_still_has_every_key() -> None:
    report = Report("empty").to_json()
    assert report["options"] == "empty"
    assert report["coverage"] == {"known": 0, "total": 0, "unknown": []}
    assert (report["summary"], report["tables"], report["diagnostics"]) == ({}, [], [])


def test_kinds_are_guessed_from_keys_and_values() -> None:
    summary = {
        "total_flops": 1,
        "bytes": 2,
        "time_seconds": 0.1,
        "hit_ratio": 0.5,
        "n": 3,
        "mean": 0.1,
        "on": True,
        "node": "x",
        "by_bytes": {"a": 1},
        "shape": {"dtype": "f32", "shape": [1]},
    }
    kinds = {entry.key: entry.kind for entry in Report("p", summary=summary, units={"shape": Kind.SHAPE}).entries()}
    assert kinds == {
        "total_flops": Kind.FLOPS,
        "bytes": Kind.BYTES,
        "time_seconds": Kind.SECONDS,
        "hit_ratio": Kind.RATIO,
        "n": Kind.COUNT,
        "mean": Kind.NUMBER,
        "on": Kind.BOOL,
        "node": Kind.TEXT,
        "by_bytes.a": Kind.BYTES,
        "shape": Kind.SHAPE,
    }


def test_a_stated_kind_wins_over_a_groups() -> None:
    report = Report("p", summary={"g": {"a": 1, "b": 2}}, units={"g": Kind.BYTES, "g.b": Kind.FLOPS})
    assert [entry.kind for entry in report.entries()] == [Kind.BYTES, Kind.FLOPS]


def test_empty_groups_stay() -> None:
    assert Report("p", summary={"by_class": {}, "deep": {"er": {}}}).to_json()["summary"] == {"by_class": {}, "deep": {"er": {}}}


def test_cells_are_annotated_only_where_there_is_something_to_say() -> None:
    report = examples.with_table(examples.everything()).to_json()["reports"][0]
    found = [note for note in report["tables"][0]["annotations"] if note["column"] == "bytes"]
    first = len(examples.NUMBERS)
    assert found == [
        {"row": first, "column": "bytes", "provenance": "modelled", "note": "fitted"},
        {"row": first + 1, "column": "bytes", "provenance": "measured", "interval": [4, 6.5]},
        {"row": first + 2, "column": "bytes", "provenance": "exact", "formula": "4*batch"},
        {"row": first + 3, "column": "bytes", "provenance": "exact", "formula": "4*batch"},
        {"row": first + 4, "column": "bytes", "provenance": "unknown"},
    ]


def test_the_rendered_text_is_the_document() -> None:
    document = Document("1", ModelInfo("caf\udce9.onnx", "onnx"), (examples.liveness(), Report("x", coverage=Coverage(1, 1))))
    text = "".join(renderer("json")(document, RenderOptions()))
    assert json.loads(text) == document.to_json()
    assert json.loads(text)["model"]["path"] == "caf\\udce9.onnx"


def test_big_integers_stay_exact() -> None:
    total = 2 * 10**18 * 1000 + 1
    text = "".join(
        renderer("json")(examples.document(Report("p", summary={"flops": Quantity(total, Provenance.MODELLED)})), RenderOptions())
    )
    assert json.loads(text)["reports"][0]["summary"]["flops"] == total
