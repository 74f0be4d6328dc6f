"""A sweep's table equals what the same model says when it is bound to each size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import irscope
from irscope.cli.main import main
from irscope.ir.dims import mod, only_size, symbol
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.time import Time
from irscope.passes.memory.curve import Sweep, Swept
from irscope.passes.memory.points import Allowed
from irscope.report.chart import line_chart
from irscope.report.table import Column, Series
from irscope.report.units import Kind
from irscope.report.values import quantity
from irscope.tools.fit import fit

TEXT = """irscope 1
format "pt2"
symbol batch [1,*]
symbol seq [1,*]
graph @main {
  input %x: f32[batch,seq,16]
  param %w: f32[64,16]
  param %v: f32[16,64]
  %a: f32[batch,seq,64] = nn.linear(%x, %w, _)
  %b: f32[batch,seq,64] = nn.gelu(%a)
  %c: f32[batch,seq,16] = nn.linear(%b, %v, _)
  return %c
}
"""


ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.irs"
    target.write_text(TEXT)
    return target


def swept(path: Path, over: str) -> Swept:
    return irscope.load(path).manager.get(Sweep(over=over, device="a100"))


def test_every_row_equals_a_bound_model(path: Path) -> None:
    found = swept(path, "batch=1,3,8,seq=16,128")
    assert found.flops is not None and found.bytes is not None and found.times is not None and found.least is not None
    for place, sizes in enumerate(found.points):
        bound = irscope.load(path, bind=sizes)
        total = irscope.run(bound, "flops")["flops"].value.total
        assert found.flops[place] == total.flops and found.bytes[place] == total.read + total.written
        assert found.least[place] == pytest.approx(bound.manager.get(Roofline(device="a100")).least)
        timing = bound.manager.get(Time(device="a100"))
        assert found.times[place].value == pytest.approx(timing.seconds)
        assert found.times[place].ends == (pytest.approx(timing.low), pytest.approx(timing.high))
        peak = irscope.run(bound, "liveness")["liveness"].report().summary
        assert found.peaks.activation[place] == quantity(peak["activation_peak_bytes"]).value


@pytest.mark.parametrize("device", ["", "l4", "epyc-7763"])
@pytest.mark.parametrize("model", ["tagger.irs", "models/cnn.onnx"])
def test_the_peak_is_the_one_of_the_card_or_is_called_otherwise(model: str, device: str) -> None:
    path = ROOT / "samples" / model
    opened = irscope.load(path)
    table = irscope.run(opened, 'sweep{over="batch=1,3"}', device=device)["sweep"].table("sweep").to_dicts()
    for row in table:
        card = irscope.card(irscope.load(path, bind={"batch": row["batch"]}), device=device or None).fields()
        assert row["peak_bytes" if card["peak_allocated"] is not None else "tensor_peak_bytes"] == card["peak"]


def test_the_command_writes_table_and_curves(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["sweep", str(path), "--over", "batch=1..9..2", "--bind", "seq=8", "--device", "t4"]) == 0
    text = capsys.readouterr().out
    assert "least time" in text and "batch 1" in text and any("⠀" <= letter <= "⣿" for letter in text)
    assert main(["sweep", str(path), "--over", "batch=1,2", "--over", "seq=4,8", "--format", "json"]) == 0
    [report] = json.loads(capsys.readouterr().out)["reports"]
    assert len(report["tables"][0]["rows"]) == 4 and report["series"] == []
    target = tmp_path / "table.csv"
    assert main(["sweep", str(path), "--over", "batch=1..30", "--bind", "seq=8", "--format", "csv", "-o", str(target)]) == 0
    assert target.read_text().count("\n") >= 31


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--over", "heads=1,2"], "IRS625"),
        (["--over", "batch"], "IRS331"),
        ([], "IRS600"),
        (["--over", "batch=1,2", "--plot", "x.gif"], "IRS430"),
    ],
)
def test_mistakes_are_said(path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str) -> None:
    assert main(["sweep", str(path), *arguments]) == 2
    assert code in capsys.readouterr().err


def test_a_picture_has_a_panel_for_each_curve(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.svg"
    assert main(["sweep", str(path), "--over", "batch=1,2,4", "--bind", "seq=8", "--plot", str(target)]) == 0
    text = target.read_text("utf-8")
    assert all(title in text for title in ("peak memory", "FLOPs", "bytes moved", "time (modelled)"))
    assert main(["sweep", str(path), "--over", "batch=1,2", "--over", "seq=1,2", "--plot", str(target)]) == 2


def chart(ys: list[Any], encoding: str = "utf-8") -> list[str]:
    xs = list(range(1, len(ys) + 1))
    series = Series("s", Column("n", Kind.COUNT), (Column("y", Kind.COUNT),), {"n": xs, "y": ys}, stacked=False)
    return list(line_chart(series, encoding, width=10, height=4))


def test_a_line_is_drawn_in_dots() -> None:
    title, *rows, axis = chart([0, 1, 2, 3])
    assert title.strip() == "y" and axis.split() == ["n", "1", "4"]
    heights = [row.index("|") for row in rows]
    assert len(set(heights)) == 1 and len(rows) == 4
    assert rows[0].rstrip("⠀")[-1] != "|" and rows[-1][rows[-1].index("|") + 1] != "⠀", "from the lower left to the upper right"
    assert chart([5, 5, 5])[1].count("⠀") == 0, "a level line is at the top all along"
    assert chart([0, 0]) == [] and chart([7]) == [] and chart([None, None, 3]) == []
    assert all(line.isascii() for line in chart([1, 2, 3], "ascii"))


FIXED = """irscope 1
format "onnx"
symbol batch [1,*]
graph @main {
  input %x: f32[batch,3,4,4]
  const %s: i64[2] = [1, 48]
  %y: f32[1,48] = view.reshape(%x, %s) !"onnx::Reshape"
  return %y
}
"""


def test_a_size_that_a_node_contradicts_is_refused_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """48*batch elements are 48 for one batch alone: other sizes have no numbers, and the formulas hold for that one."""
    path = tmp_path / "fixed.irs"
    path.write_text(FIXED)
    model = irscope.load(path)
    assert model.program.only_numbers == {"batch": 1}
    assert [diagnostic.code for diagnostic in model.diagnostics] == ["IRS203"] and "at y" in model.diagnostics[0].message
    assert main(["sweep", "--over", "batch=1,2", str(path)]) == 2
    assert "batch cannot be 2: it can only be 1" in capsys.readouterr().err
    assert main(["run", "--passes", "curve{over=batch=1..2}", str(path)]) != 0
    assert main(["sweep", "--over", "batch=1", str(path)]) == 0
    capsys.readouterr()
    assert main(["fit", "--memory", "1GiB", "--format", "json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["largest"] == 1
    assert main(["run", "--passes", "flops", str(path)]) == 0
    assert "IRS203: batch can only be 1" in capsys.readouterr().err


def constrained(tmp_path: Path, declared: str, body: str) -> Path:
    path = tmp_path / "model.irs"
    path.write_text(f'irscope 1\nformat "onnx"\nsymbol n [1,*]\ngraph @main {{\n  input %x: {declared}\n{body}\n  return %y\n}}\n')
    return path


HALVES = "  const %s: i64[2] = [-1, 8]\n  %y: f32[n//2,8] = view.reshape(%x, %s)"
TABLE = "  input %t: f32[1,6,4]\n  %y: f32[2,6,4] = math.add(%x, %t)"
WINDOW = "  input %w: f32[1,1,5]\n  %y: f32[1,1,n - 4] = nn.conv(%x, %w)"


@pytest.mark.parametrize(
    ("declared", "body", "bad", "good", "says"),
    [
        ("f32[n,4]", HALVES, "n=2,3", "n=2,4", "at n=3: view.reshape: 4*n elements divide by 8"),
        ("f32[2,n,4]", TABLE, "n=1,5", "n=1,6", "at n=5: math.add: sizes that broadcast at y: n broadcasts with 6"),
        ("f32[1,1,n]", WINDOW, "n=4,5", "n=5,9", "at n=4: nn.conv: a window fits at y: 5 fits into n"),
    ],
)
def test_sizes_at_which_a_node_cannot_run_have_no_numbers(
    declared: str, body: str, bad: str, good: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What holds for several sizes is checked at each: multiples, the length of a table or 1, at least a window."""
    path = constrained(tmp_path, declared, body)
    assert main(["sweep", "--over", bad, str(path)]) == 2
    assert says in capsys.readouterr().err
    assert main(["sweep", "--over", good, str(path)]) == 0


def test_the_largest_size_is_one_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    halves = irscope.load(constrained(tmp_path, "f32[n,4]", HALVES))
    assert (Allowed(halves.program, "n", {}).low, Allowed(halves.program, "n", {}).at_most(7)) == (2, 6)
    found = fit(halves, "1MiB", free="n")
    assert found.largest and found.largest % 2 == 0 and found.following_size == found.largest + 2
    table = irscope.load(constrained(tmp_path, "f32[2,n,4]", TABLE))
    assert [diagnostic.code for diagnostic in table.diagnostics] == ["IRS203"] and "n can only be 1 or 6" in table.diagnostics[0].message
    assert fit(table, "1GiB", free="n").largest == 6
    assert Allowed(irscope.load(constrained(tmp_path, "f32[1,1,n]", WINDOW)).program, "n", {}).low == 5


def test_equations_without_a_solution_and_with_several() -> None:
    batch, seq = symbol("batch"), symbol("seq")
    assert only_size(2048 * batch, 2048) == ("batch", 1)
    assert only_size(batch + 3, 10) == ("batch", 7)
    assert only_size(2048 * batch, 1000) == ("batch", None) and only_size(batch + 5, 3) == ("batch", None)
    assert only_size(batch * seq, 4) is None and only_size(batch, seq) is None and only_size(batch * batch, 4) is None
    assert only_size(mod(1000 * batch, 2048), 0) is None
