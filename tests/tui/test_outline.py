"""The rows of a model, and which of them are visible, held against slow and obvious versions of the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.tui.browse.outline import Group, Item, Outline, Steps, TreeModel, build_outline
from tests.tui.models import EMPTY, FOREIGN, NESTED, SYMBOLIC, TWO_LAYERS, program


def names(outline: Outline) -> list[str]:
    """Rows as indented text."""
    return [f"{'  ' * int(outline.depth[row])}{item.name}" for row, item in enumerate(outline.items)]


def test_modules_hold_their_nodes_in_program_order() -> None:
    assert names(build_outline(program(TWO_LAYERS))) == ["block", "  fc1", "    hidden", "  active", "  fc2", "    back", "y"]


def test_regions_and_functions_have_rows_of_their_own() -> None:
    outline = build_outline(program(NESTED))
    assert names(outline) == [
        "m",
        "  before",
        "  y",
        "    then",
        "      inner",
        "        a",
        "        a2",
        "    else",
        "      b",
        "after",
        "helper",
        "  deep",
        "    er",
        "      r",
    ]
    kinds = [item.kind for item in outline.items if isinstance(item, Group)]
    assert kinds == ["module", "region", "module", "region", "function", "module", "module"]


def test_every_row_knows_its_step() -> None:
    outline = build_outline(program(NESTED))
    steps = outline.program_order
    assert [steps.at(row) for row in range(len(outline))] == [0, 0, 1, 1, 1, 1, 1, 1, 1, 2, None, None, None, None]
    assert [outline.items[row].name for row in steps.rows.tolist()] == ["before", "y", "after"]


def test_a_node_that_runs_at_several_steps_is_at_the_first_of_them() -> None:
    outline = build_outline(program(TWO_LAYERS))
    first, second, *_ = program_order = [item for item in outline.items if isinstance(item, Node)]
    steps = Steps(outline, [second, first, second, *program_order[2:]])
    assert [steps.step_of(node) for node in (first, second)] == [1, 0]


def test_a_module_called_twice_has_two_rows() -> None:
    graph = Graph()
    value = graph.add_input(tensor(DType.F32, (2,)), "x")
    for call in (0, 1):
        value = graph.append("nn.relu", [value], [value.type], scope=graph.scope.child("act", call=call)).outputs[0]
    assert [item.name for item in build_outline(Program(graph)).items if isinstance(item, Group)] == ["act", "act#1"]


def test_a_module_that_is_left_and_entered_again_stays_one_row() -> None:
    graph = Graph()
    value = graph.add_input(tensor(DType.F32, (2,)), "x")
    for name in ("a", "b", "a"):
        value = graph.append("nn.relu", [value], [value.type], scope=graph.scope.child(name)).outputs[0]
    outline = build_outline(Program(graph))
    assert [item.name for item in outline.items if isinstance(item, Group)] == ["a", "b"]
    assert [outline.program_order.at(row) for row in range(len(outline))] == [0, 0, 2, 1, 1]


def test_an_empty_model_has_no_rows() -> None:
    outline = build_outline(program(EMPTY))
    assert len(outline) == 0
    tree = TreeModel(outline)
    tree.expand_all()
    tree.collapse_all()
    tree.set_filter(np.zeros(0, dtype=np.bool_))
    assert len(tree) == 0


def test_depth_is_no_limit() -> None:
    graph = Graph()
    scope = graph.scope
    for depth in range(5000):
        scope = scope.child(str(depth))
    graph.append("nn.relu", [graph.add_input(tensor(DType.F32, (2,)))], [tensor(DType.F32, (2,))], scope=scope)
    outline = build_outline(Program(graph))
    assert len(outline) == 5001
    assert int(outline.depth[-1]) == 5000


@pytest.mark.parametrize("text", [TWO_LAYERS, NESTED, SYMBOLIC, FOREIGN])
def test_each_node_has_exactly_one_row(text: str) -> None:
    model = program(text)
    outline = build_outline(model)
    nodes = [item for item in outline.items if isinstance(item, Node)]
    assert len(nodes) == len(set(nodes)) == model.node_count
    assert all(outline.items[outline.row_of[node]] is node for node in nodes)


# -- visible rows against the obvious version -----------------------------------------------------------------------


def random_outline(parents: list[int]) -> Outline:
    """An outline whose row `i` hangs below one of the rows that lead to row `i - 1`."""
    chain: list[int] = []
    parent: list[int] = []
    for row, choice in enumerate(parents):
        depth = choice % (len(chain) + 1)
        chain = chain[:depth]
        parent.append(chain[-1] if chain else -1)
        chain.append(row)
    depth: list[int] = []
    for above in parent:
        depth.append(depth[above] + 1 if above >= 0 else 0)
    end = [next((later for later in range(row + 1, len(parent)) if depth[later] <= depth[row]), len(parent)) for row in range(len(parent))]
    items: list[Item] = [Group("module", str(row)) for row in range(len(parents))]
    ints = np.array(parent, dtype=np.int32), np.array(depth, dtype=np.int64), np.array(end, dtype=np.int64)
    return Outline(items, *ints, ())


def slow_visible(outline: Outline, collapsed: set[int], matches: set[int] | None) -> list[int]:
    """Visible rows by looking at the rows above each."""
    kept = None
    if matches is not None:
        kept = matches | {above for row in matches for above in outline.ancestors(row)}
    return [
        row
        for row in range(len(outline))
        if (kept is None or row in kept) and not any(above in collapsed for above in outline.ancestors(row))
    ]


@given(st.lists(st.integers(0, 5), max_size=40), st.data())
def test_visible_rows_equal_the_obvious_ones(parents: list[int], data: st.DataObject) -> None:
    outline = random_outline(parents)
    tree = TreeModel(outline)
    count = len(outline)
    tree.expand_all()
    collapsed: set[int] = set()
    matches: set[int] | None = None
    for _ in range(data.draw(st.integers(0, 8))):
        if count and data.draw(st.booleans()):
            row = data.draw(st.integers(0, count - 1))
            tree.toggle(row)
            if outline.is_branch(row):
                collapsed ^= {row}
        elif matches is None:
            matches = {row for row in range(count) if data.draw(st.booleans())}
            tree.set_filter(np.array([row in matches for row in range(count)], dtype=np.bool_))
            outside, collapsed = collapsed, set()
        else:
            matches = None
            tree.set_filter(None)
            collapsed = outside
        assert tree.visible.tolist() == slow_visible(outline, collapsed, matches)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_a_revealed_row_is_visible(parents: list[int], data: st.DataObject) -> None:
    outline = random_outline(parents)
    tree = TreeModel(outline)
    tree.collapse_all()
    if data.draw(st.booleans()):
        tree.set_filter(np.array([data.draw(st.booleans()) for _ in range(len(outline))], dtype=np.bool_))
    row = data.draw(st.integers(0, len(outline) - 1))
    tree.reveal(row)
    assert tree.is_visible(row)
    assert tree.row(tree.index(row)) == row


def test_a_small_model_opens_expanded_and_a_large_one_does_not() -> None:
    # A module with one node is one row with it.
    assert TreeModel(build_outline(program(TWO_LAYERS))).visible.tolist() == [0, 2, 3, 5, 6]
    graph = Graph()
    value = graph.add_input(tensor(DType.F32, (2,)), "x")
    for number in range(300):
        value = graph.append("nn.relu", [value], [value.type], scope=graph.scope.child(str(number // 30)).child("act")).outputs[0]
    assert len(TreeModel(build_outline(Program(graph)))) == 20


def test_modules_are_opened_as_far_as_there_is_room() -> None:
    graph = Graph()
    value = graph.add_input(tensor(DType.F32, (2,)), "x")
    for number in range(60):
        value = graph.append("nn.relu", [value], [value.type], scope=graph.scope.child(str(number // 12))).outputs[0]
    tree = TreeModel(build_outline(Program(graph)))
    for rows in (5, 16, 17, 30, 65, 200, 20):
        tree.fit(rows)
        assert len(tree) == 5 + 12 * min(max((rows - 5) // 12, 0), 5)
    tree.toggle(0)
    shown = len(tree)
    tree.fit(200)
    assert len(tree) == shown, "what somebody has closed stays closed"


def test_a_module_with_one_node_is_one_row_with_it() -> None:
    tree = TreeModel(build_outline(program(TWO_LAYERS)))
    assert (tree.row_for(1), tree.row_for(2), tree.row_for(0)) == (2, 2, 0)
    assert (tree.top_of(2), tree.top_of(3)) == (1, 3)
    assert (tree.above(2), tree.above(0)) == (0, -1)
    tree.reveal(tree.row_for(4))
    assert tree.is_visible(5) and not tree.is_visible(4)
