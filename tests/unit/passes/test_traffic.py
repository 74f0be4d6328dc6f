"""Bytes read and written: views are free, weights count once for each use, and no run moves less than the compulsory."""

from __future__ import annotations

import pytest

from irscope.ir.parser import parse_program
from irscope.passes.cost.layers import Layers
from irscope.passes.cost.traffic import Traffic
from irscope.passkit.manager import Manager
from irscope.report.report import Report
from irscope.report.values import Quantity

LINEAR = """irscope 1
graph @main {
  input %x: f32[8,16]
  param %w: f32[32,16]
  param %unused: f32[100]
  %a: f32[8,32] = nn.linear(%x, %w, _)
  %t: f32[32,8] = view.transpose(%a) {axis0=0, axis1=1}
  %b: f32[8,32] = nn.linear(%x, %w, _)
  %c: f32[8,32] = math.add(%a, %b)
  return %c, %t
}
"""


def moved(text: str) -> Report:
    return Manager(parse_program(text)).run_one(Traffic()).report()


def rows(report: Report) -> dict[object, tuple[object, object]]:
    (table,) = report.tables
    return dict(zip(table.cells("node"), zip(table.cells("read"), table.cells("written"), strict=True), strict=True))


def test_reads_and_writes_of_every_node() -> None:
    report = moved(LINEAR)
    assert rows(report) == {
        "a": (4 * (128 + 512), 4 * 256),
        "t": (0, 0),
        "b": (4 * (128 + 512), 4 * 256),
        "c": (4 * 512, 4 * 256),
    }
    assert report.summary["moved_bytes"] == 2 * 4 * (640 + 256) + 4 * 768


def test_compulsory_traffic_has_each_tensor_once() -> None:
    summary = moved(LINEAR).summary
    assert summary["compulsory"] == {"inputs": 4 * 128, "weights": 4 * 512, "outputs": 4 * 512}
    assert summary["compulsory_bytes"] == 4 * (128 + 512 + 512)


def test_intensity() -> None:
    report = moved(LINEAR)
    flops = 2 * 2 * 8 * 16 * 32 + 256
    moved_bytes = report.summary["moved_bytes"]
    assert isinstance(moved_bytes, int)
    assert report.summary["intensity"] == {
        "as_counted": pytest.approx(flops / moved_bytes),
        "at_most": pytest.approx(flops / (4 * (128 + 512 + 512))),
    }


def test_a_table_of_which_a_few_rows_are_read() -> None:
    declared = "input %i: i64[5]\n  param %w: f32[1000,16]"
    text = f"irscope 1\ngraph @main {{\n  {declared}\n  %y: f32[5,16] = nn.embedding(%w, %i)\n  return %y\n}}\n"
    assert rows(moved(text))["y"] == (5 * 16 * 4 + 5 * 8, 5 * 16 * 4)


def test_unknown_bytes_are_no_zero() -> None:
    report = moved("irscope 1\ngraph @main {\n  input %x: f32[4]\n  %y: f32[*] = foreign.op(%x)\n  return %y\n}\n")
    found = report.summary["moved_bytes"]
    assert isinstance(found, Quantity)
    assert found.hi is None
    assert report.coverage is not None
    assert report.coverage.unknown == ("foreign.op",)


def test_layers_join_flops_bytes_and_bottlenecks() -> None:
    report = Manager(parse_program(LINEAR)).run_one(Layers()).report()
    (table,) = report.tables
    assert [column.key for column in table.columns] == ["name", "type", "flops", "memory", "arithmetic_intensity", "bottleneck"]
    first = next(iter(table.rows()))
    assert first[:5] == ("a", "nn.linear", 8192, 3584, pytest.approx(8192 / 3584))
    assert set(table.cells("bottleneck")) <= {"compute", "memory", "balanced", "launch", "free", "unknown"}
