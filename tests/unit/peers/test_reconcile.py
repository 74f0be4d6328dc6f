"""Every difference from another counter is explained, whatever it counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.parser import parse_program
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passkit.manager import Manager
from irscope.tools.peers import Counted, reconcile

TEXT = """irscope 1
graph @main {
  input %x: f32[8,16]
  param %w: f32[32,16]
  param %b: f32[32]
  %a: f32[8,32] = nn.linear(%x, %w, %b)
  %r: f32[8,32] = nn.relu(%a)
  %t: f32[32,8] = view.transpose(%r) {axis0=0, axis1=1}
  %m: f32[8,8] = math.matmul(%r, %t)
  return %m
}
"""
PRODUCTS = {"a": 2 * 8 * 16 * 32, "m": 2 * 8 * 32 * 8}


def costs() -> Costs:
    return Manager(parse_program(TEXT)).get(NodeCosts())


def test_a_counter_of_products_only() -> None:
    found = reconcile(costs(), Counted(sum(PRODUCTS.values()), "FLOPs", PRODUCTS), "it")
    assert found.rest == 0
    assert found.agreed == sum(PRODUCTS.values())
    assert {row.operator: row.difference for row in found.rows if row.difference} == {"nn.linear": 8 * 32, "nn.relu": 8 * 32}


def test_multiply_adds_are_doubled_where_they_are_products() -> None:
    halves = {name: flops / 2 for name, flops in PRODUCTS.items()} | {"r": 256}
    found = reconcile(costs(), Counted(sum(halves.values()), "multiply-adds", halves), "it")
    assert found.theirs == sum(PRODUCTS.values()) + 256
    assert [row.operator for row in found.rows if row.difference] == ["nn.linear"]


def test_what_a_counter_fails_on_is_said() -> None:
    found = reconcile(costs(), Counted(0, "FLOPs", {}, failed={"m": "TypeError"}), "it")
    row = next(row for row in found.rows if row.operator == "math.matmul")
    assert "fails" in row.reason
    assert found.rest == 0


numbers = st.integers(0, 10**12)


@given(st.dictionaries(st.sampled_from(["a", "r", "t", "m", "elsewhere", "%"]), numbers), st.sampled_from(["FLOPs", "multiply-adds"]))
def test_nothing_stays_unexplained(by_node: dict[str, int], unit: str) -> None:
    whole = costs()
    found = reconcile(whole, Counted(sum(by_node.values()), unit, by_node, {"more": 3}), "it")
    assert found.rest == 0
    assert found.total == whole.total.flops
    assert found.total - sum(row.difference for row in found.rows) == found.theirs
