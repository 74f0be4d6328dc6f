"""What is said of a reordered file in ONNX Runtime, worked out by hand."""

from __future__ import annotations

from irscope.ir.program import Program
from irscope.passes.ort.order import OrtOrder, verdict
from irscope.passkit.manager import Manager
from tests.unit.passes.test_ort_memory import node, program


def branches() -> Program:
    """Two large results that are both made before either is reduced; a shape that can be read at once."""
    nodes = [
        node("Exp", "x", "a"),
        node("Neg", "x", "b"),
        node("ReduceMax", "a", "c"),
        node("ReduceMax", "b", "d"),
        node("Add", "c d", "y"),
        node("Shape", "x", "z"),
    ]
    return program(nodes, "y")


def steps(made: Program, setting: str, reordered: bool = False) -> list[str]:
    found = Manager(made).get(OrtOrder())
    one = next(one for one in found.orders if one.setting == setting)
    return [launch.node.name for launch in (one.reordered if reordered else one.written).order]


def test_backwards_from_what_nothing_reads_later_nodes_first() -> None:
    assert steps(branches(), "default") == ["z", "b", "d", "a", "c", "y"]


def test_in_the_order_of_the_file_but_shapes_first() -> None:
    assert steps(branches(), "priority_based") == ["z", "a", "b", "c", "d", "y"]
    assert steps(branches(), "priority_based", reordered=True)[0] == "z"


def test_what_a_reordered_file_changes() -> None:
    manager = Manager(branches())
    found = manager.get(OrtOrder())
    assert found.is_new
    default, priority = found.orders
    assert priority.changes and priority.peaks[1] < priority.peaks[0]
    assert "priority_based: a reordered file needs 4" in verdict(found)
    report = manager.run("ort-order{top=2}")[-1].report()
    assert report.summary["priority_based"]["reordering_changes_it"] is True
    assert [len(table) for table in report.tables] == [2]
    assert default.peaks[0] == priority.peaks[1]


def test_a_chain_has_nothing_to_reorder() -> None:
    found = Manager(program([node("Exp", "x", "a"), node("Neg", "a", "y")], "y")).get(OrtOrder())
    assert not found.is_new
    assert verdict(found).startswith("no better order than the one as written was found")
