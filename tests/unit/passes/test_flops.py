"""Costs through loops, branches and calls, what stays unknown, and tables whose parts add up to the whole."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper

from irscope.errors import UsageError
from irscope.frontends.onnx import load_model
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.cost.count import Certainty
from irscope.passes.cost.flops import Flops
from irscope.passkit.manager import Manager
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.values import Quantity
from tests.frontends.onnx.build import BOOL, INT64, graph, model, value

TRUE = helper.make_tensor("true", BOOL, [], [True])
COUNTER = [value("i", [], INT64), value("go", [], BOOL)]


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def counted(source: onnx.ModelProto | str, **options: Any) -> Report:
    program = parse_program(source) if isinstance(source, str) else load_model(source)
    return Manager(program).run_one(Flops(**options)).report()


def text(body: str, inputs: str = "input %x: f32[2,3]", result: str = "%y") -> str:
    return f"irscope 1\ngraph @main {{\n  {inputs}\n{body}\n  return {result}\n}}\n"


def table(report: Report, title: str) -> Table:
    return next(one for one in report.tables if one.title == title)


def column(report: Report, title: str, key: str) -> list[object]:
    return list(table(report, title).cells(key))


def total(report: Report) -> object:
    return report.summary["total_flops"]


def limits(report: Report) -> tuple[object, object]:
    found = total(report)
    return found.lo, found.hi


def test_classes_are_apart_and_add_up() -> None:
    body = "  %m: f32[2,4] = math.matmul(%x, %w)\n  %e: f32[2,4] = math.exp(%m)\n  %y: f32[2] = reduce.sum(%e) {axes=[1]}"
    report = counted(text(body, "input %x: f32[2,3]\n  input %w: f32[3,4]"))
    by_class = report.summary["by_class"]
    assert by_class == {"matmul": 48, "elementwise": 0, "transcendental": 8, "reduction": 8, "move": 0}
    assert (total(report), report.summary["macs"]) == (64, 24)


def test_integer_and_quantised_work_stand_apart() -> None:
    body = (
        "  %a: f32[2,3] = math.add(%x, %x)\n  %j: i64[5] = math.add(%i, %i)\n"
        "  %q: i32[4,4] = math.matmul_integer(%l, %r)\n  %y: f32[2,3] = math.add(%a, %x)"
    )
    report = counted(text(body, "input %x: f32[2,3]\n  input %i: i64[5]\n  input %l: i8[4,3]\n  input %r: i8[3,4]"))
    by_arithmetic = report.summary["by_arithmetic"]
    assert isinstance(by_arithmetic, dict)
    assert by_arithmetic["float"] == 12
    assert by_arithmetic["integer"] == 5
    assert by_arithmetic["quantised"] >= 2 * 4 * 4 * 3
    assert sum(by_arithmetic.values()) == total(report)


def test_arithmetic_on_elements_of_an_unknown_type_is_a_part_of_its_own() -> None:
    body = "  %a: f32[2,3] = math.add(%x, %x)\n  %y: ?[5] = math.add(%u, %u)"
    report = counted(text(body, "input %x: f32[2,3]\n  input %u: ?[5]"))
    by_arithmetic = report.summary["by_arithmetic"]
    assert isinstance(by_arithmetic, dict)
    assert by_arithmetic["unknown"] == 5
    assert sum(part.value if isinstance(part, Quantity) else part for part in by_arithmetic.values()) == total(report) == 11


def test_causal_attention_has_two_numbers() -> None:
    body = "  %y: f32[1,2,8,4] = nn.sdpa(%x, %x, %x, _) {is_causal=true}"
    report = counted(text(body, "input %x: f32[1,2,8,4]"))
    causal = report.summary["causal"]
    # Two products of 4 features for each of 64 pairs and 2 heads; 8 * 9 / 2 pairs are needed.
    assert causal == {"masked": 2 * 2 * 2 * 4 * 28, "matmul_counted": 2 * 2 * 2 * 4 * 64, "matmul_needed": 2 * 2 * 2 * 4 * 36}


@pytest.mark.parametrize(("queries", "keys"), [(8, 8), (3, 8), (8, 3), (1, 5)])
def test_pairs_that_a_causal_mask_hides(queries: int, keys: int) -> None:
    body = "  %y: f32[1,1,Q,4] = nn.sdpa(%q, %k, %k, _) {is_causal=true}".replace("Q", str(queries))
    report = counted(text(body, f"input %q: f32[1,1,{queries},4]\n  input %k: f32[1,1,{keys},4]"))
    hidden = sum(key > query for query in range(queries) for key in range(keys))
    causal = report.summary["causal"]
    assert isinstance(causal, dict)
    assert causal["masked"] == hidden * 2 * (4 + 4)


def test_large_numbers_are_exact() -> None:
    size = 10**9 + 7
    report = counted(text(f"  %y: f32[{size},{size}] = math.matmul(%x, %x)", f"input %x: f32[{size},{size}]"))
    assert total(report) == 2 * size**3


def test_open_sizes_give_formulas() -> None:
    report = counted(text("  %y: f32[batch,4] = math.matmul(%x, %w)", "input %x: f32[batch,seq]\n  input %w: f32[seq,4]"))
    assert total(report) == "8*batch*seq"


def if_model(condition: object = None) -> onnx.ModelProto:
    dear = graph([node("MatMul", "x x", "a")], outputs=["a"])
    cheap = graph([node("Add", "x x", "b")], outputs=["b"])
    inputs = [value("x", [4, 4])]
    initializers = []
    if condition is None:
        inputs.append(value("c", [], BOOL))
    else:
        initializers.append(helper.make_tensor("c", BOOL, [], [condition]))
    return model([node("If", "c", "y", then_branch=dear, else_branch=cheap)], inputs, initializers=initializers)


def test_a_branch_is_an_interval() -> None:
    report = counted(if_model())
    assert limits(report) == (16, 128)
    nodes = report.summary["nodes"]
    assert isinstance(nodes, dict)
    assert nodes["bounded"] == 1
    assert report.coverage.unknown == ()


@pytest.mark.parametrize(("condition", "flops"), [(True, 128), (False, 16)])
def test_a_branch_that_is_known_to_be_taken_is_exact(condition: bool, flops: int) -> None:
    assert total(counted(if_model(condition))) == flops


def loop_model(trips: int | None, nodes: list[onnx.NodeProto], outputs: list[str], condition: str = "true") -> onnx.ModelProto:
    body = graph([node("Identity", "go", "on"), *nodes], [*COUNTER, value("s", [2, 3])], ["on", *outputs])
    inputs = [value("x", [2, 3])]
    initializers = [TRUE]
    if trips is None:
        inputs.append(value("n", [], INT64))
    else:
        initializers.append(helper.make_tensor("n", INT64, [], [trips]))
    if condition != "true":
        inputs.append(value(condition, [], BOOL))
    return model([node("Loop", f"n {condition} x", "y", body=body)], inputs, initializers=initializers)


@pytest.mark.parametrize("trips", [0, 1, 5, 64, 65, 100_000])
def test_a_loop_counts_as_often_as_it_runs(trips: int) -> None:
    report = counted(loop_model(trips, [node("Add", "s s", "next")], ["next"]))
    assert total(report) == 6 * trips
    assert sum(cell for cell in column(report, "nodes", "flops") if isinstance(cell, int)) == 6 * trips


def test_a_loop_whose_state_grows_is_counted_step_by_step() -> None:
    body = [node("Concat", "s x", "next", axis=0), node("Exp", "s", "unused")]
    report = counted(loop_model(4, body, ["next"]))
    by_class = report.summary["by_class"]
    assert isinstance(by_class, dict)
    assert by_class["transcendental"] == 6 * (1 + 2 + 3 + 4)


def test_a_loop_whose_length_is_an_input_is_a_formula() -> None:
    report = counted(loop_model(None, [node("Add", "s s", "next")], ["next"]))
    assert total(report) == "6*max(n, 0)"


@pytest.mark.parametrize(("limit", "is_one"), [(10, True), (2**31 - 1, False), (2**63 - 1, False)])
def test_a_loop_that_data_ends_lies_between_nothing_and_its_most_steps(limit: int, is_one: bool) -> None:
    """The largest numbers of their types are what exporters write for a loop that its condition alone ends."""
    body = graph(
        [node("Add", "s s", "next"), node("ReduceSum", "next", "sum", keepdims=0), node("Cast", "sum", "on", to=BOOL)],
        [*COUNTER, value("s", [2, 3])],
        ["on", "next"],
    )
    given = helper.make_tensor("n", INT64, [], [limit])
    report = counted(model([node("Loop", "n true x", "y", body=body)], [value("x", [2, 3])], initializers=[TRUE, given]))
    low, high = limits(report)
    assert low == 0
    if is_one:
        assert isinstance(high, int)
        assert high >= limit * (6 + 6)
    else:
        assert high is None


def test_a_scan_runs_once_for_each_slice() -> None:
    body = graph([node("Add", "s e", "next"), node("Identity", "next", "out")], [value("s", [3]), value("e", [3])], ["next", "out"])
    scan = node("Scan", "s0 x", "last y", body=body, num_scan_inputs=1)
    assert total(counted(model([scan], [value("s0", [3]), value("x", [7, 3])], ["y"]))) == 21


def test_a_function_that_is_called_with_other_sizes_costs_otherwise() -> None:
    source = (
        "irscope 1\ngraph @main {\n  input %x: f32[2,3]\n  input %z: f32[10,3]\n"
        '  %y: f32[2,3] = cf.call(%x) {callee="f"}\n  %w: f32[10,3] = cf.call(%z) {callee="f"}\n  return %y, %w\n}\n'
        "func @f {\n  input %a: f32[*]\n  %b: f32[*] = math.exp(%a)\n  return %b\n}\n"
    )
    assert total(counted(source)) == 6 + 30


def test_what_is_unknown_is_first_and_never_zero() -> None:
    body = "  %a: f32[2,3] = foreign.mystery(%x)\n  %y: f32[2,3] = math.add(%a, %x)"
    report = counted(text(body))
    assert report.tables[0].title == "unknown"
    assert column(report, "unknown", "operator") == ["foreign.mystery"]
    assert limits(report) == (6, None)
    assert (report.coverage.known, report.coverage.total, report.coverage.unknown) == (1, 2, ("foreign.mystery",))
    assert column(report, "nodes", "flops")[0] == Quantity(None, lo=0)


def test_nothing_known_is_no_total() -> None:
    found = total(counted(text("  %y: f32[2,3] = foreign.mystery(%x)")))
    assert found.shown is None


def test_a_size_that_depends_on_data_is_bounded_where_its_most_is_known() -> None:
    proto = model([node("NonZero", "x", "p"), node("Cast", "p", "f", to=1), node("Exp", "f", "y")], [value("x", [4, 5])])
    report = counted(proto)
    by_class = report.summary["by_class"]
    assert isinstance(by_class, dict)
    found = by_class["transcendental"]
    assert (found.lo, found.hi) in ((0, 40), (0, None))


NESTED = """irscope 1
graph @main {
  input %x: f32[8,16]
  param %w: f32[16,16]
  %a: f32[8,16] = math.matmul(%x, %w) @outer/first
  %b: f32[8,16] = nn.relu(%a) @outer/second
  %c: f32[8,16] = math.matmul(%b, %w) @other
  return %c
}
"""


def test_every_total_opens_into_parts() -> None:
    report = counted(NESTED)
    whole = total(report)
    for title in ("operators", "nodes"):
        assert sum(cell for cell in column(report, title, "flops") if isinstance(cell, int)) == whole
    modules = dict(zip(column(report, "modules", "module"), column(report, "modules", "flops"), strict=True))
    assert modules[""] == whole
    assert modules["outer"] == modules["outer/first"] + modules["outer/second"]  # type: ignore[operator]  # both are integers
    assert column(report, "modules", "tree") == ["(model)", "  outer", "    first", "    second", "  other"]


def test_the_top_table_accumulates() -> None:
    report = counted(NESTED)
    assert column(report, "top 10", "node")[:2] == ["a", "c"]
    assert column(report, "top 10", "cumulative")[-1] == pytest.approx(1.0)


def test_explaining_a_node() -> None:
    report = counted(NESTED, explain="a")
    facts = dict(zip(column(report, "node a", "what"), column(report, "node a", "answer"), strict=True))
    assert facts["module"] == "outer/first"
    assert "matmul" in str(facts["rule"])
    formulas = dict(zip(column(report, "cost of one run", "number"), column(report, "cost of one run", "formula"), strict=True))
    assert formulas["macs"] == "a1*y0*y1"
    sizes = dict(zip(column(report, "values of the symbols", "symbol"), column(report, "values of the symbols", "stands_for"), strict=True))
    assert (sizes["a1"], sizes["y0"], sizes["y1"]) == (16, 8, 16)


def test_explaining_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="there is no node 'z'"):
        counted(NESTED, explain="z")


def test_certainty_of_every_node() -> None:
    program: Program = parse_program(text("  %v: f32[3,2] = view.transpose(%x) {axis0=0, axis1=1}\n  %y: f32[3,2] = math.exp(%v)"))
    costs = Manager(program).get(Flops())
    assert list(costs.certainty.values()) == [Certainty.FREE, Certainty.EXACT]
