"""The tree of modules: every column adds up to what the pass that it comes from says of the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest

import irscope
from irscope.report import Quantity, Table

SAMPLES = Path(__file__).parents[3] / "samples"
SHARED = """irscope 1
graph @main {
  input %x: f32[4,8]
  param %w: f32[8,8]
  param %v: f32[8,8]
  param %unused: f32[3]
  %a: ?[*] = math.matmul(%x, %w) @block/one
  %b: ?[*] = math.matmul(%a, %w) @block/two
  %c: ?[*] = math.matmul(%b, %v) @head
  return %c
}
"""


def tree(model: irscope.Model) -> Table:
    return irscope.run(model, "modules")["modules"].table("modules")


def number(cell: object) -> object:
    return cell.value if isinstance(cell, Quantity) else cell


@pytest.mark.parametrize("name", ["pyramid", "mlp", "tagger"])
def test_the_root_is_the_whole_model_and_inner_modules_add_up(name: str) -> None:
    model = irscope.load(SAMPLES / f"{name}.irs", open_sizes=())
    model = irscope.load(SAMPLES / f"{name}.irs", bind=dict.fromkeys(model.program.symbols, 4))
    results = irscope.run(model, "modules,params,flops,roofline,liveness")
    rows = results["modules"].table("modules").to_dicts()
    root = rows[0]
    assert root["tree"] == "(model)" and root["depth"] == 0
    assert root["parameters"] == results["params"].report().summary["count"]
    assert root["weights"] == results["params"].report().summary["bytes"]
    assert root["flops"] == number(results["flops"].report().summary["total_flops"])
    assert root["least"] == pytest.approx(number(results["roofline"].report().summary["roofline_seconds"]))
    for column in ("parameters", "weights", "nodes"):
        inner = [row for row in rows if row["depth"] == 1]
        assert sum(int(str(row[column])) for row in inner) <= int(str(root[column]))


def test_a_parameter_belongs_to_the_innermost_module_around_all_that_read_it(tmp_path: Path) -> None:
    path = tmp_path / "shared.irs"
    path.write_text(SHARED)
    rows = {row["module"]: row for row in tree(irscope.load(path)).to_dicts()}
    assert {name: row["parameters"] for name, row in rows.items()} == {"": 131, "block": 64, "block/one": 0, "block/two": 0, "head": 64}
    assert rows["block"]["flops"] == 2 * 2 * 4 * 8 * 8


def test_what_is_alive_at_the_peak_belongs_to_the_module_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "shared.irs"
    path.write_text(SHARED)
    results = irscope.run(irscope.load(path), "modules,liveness")
    by_module = results["liveness"].table("at the peak by module").to_dicts()
    rows = {row["module"]: row["at_peak"] for row in results["modules"].table("modules").to_dicts()}
    assert {row["module"]: row["with_inner"] for row in by_module if row["module"] in rows} == {
        name: size for name, size in rows.items() if name in {row["module"] for row in by_module}
    }
    assert rows[""] and rows[""] >= rows["block"]  # type: ignore[operator]  # numbers


def test_what_is_not_known_is_not_zero() -> None:
    model = irscope.load(SAMPLES / "mlp.irs")
    root = next(iter(tree(model).rows()))
    columns = [column.key for column in tree(model).columns]
    assert number(root[columns.index("least")]) is None
    assert "batch" in str(root[columns.index("flops")])
