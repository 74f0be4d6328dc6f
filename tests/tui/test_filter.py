"""The filter language."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.ir.graph import Node
from irscope.tui.models.filter import parse_filter
from tests.tui.models import FOREIGN, NESTED, SYMBOLIC, TWO_LAYERS, browse


def found(text: str, query: str) -> list[str]:
    """Names of the nodes that a filter leaves."""
    model = browse(text)
    model.set_filter(query)
    assert model.filter_error == ""
    rows = [model.outline.items[row] for row in model.tree.visible.tolist()]
    return [item.name for item in rows if isinstance(item, Node)]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["hidden", "active", "back", "y"]),
        ("linear", ["hidden", "back"]),
        ("LINEAR", ["hidden", "back"]),
        ("linear fc2", ["back"]),
        ("op:linear", ["hidden", "back"]),
        ("op:fc1", []),
        ("scope:fc1", ["hidden"]),
        ("scope:block !linear", ["active"]),
        ("!scope:block", ["y"]),
        ("type:[4,256]", ["hidden", "active"]),
        ("dtype:f32", ["hidden", "active", "back", "y"]),
        ("aten::linear", ["hidden"]),
        ("flops>100k", ["hidden", "back"]),
        ("flops<1000", ["y"]),
        ("flops<1kflops", ["y"]),
        ("mem>4kib", []),
        ("mem>4KB", ["hidden", "active"]),
        ("mem<2K", ["back", "y"]),
        ("mem>0.5KiB mem<1.5KiB", ["back", "y"]),
        ("unknown", []),
        ("nothing-like-it", []),
        ("!", []),
    ],
)
def test_filters(query: str, names: list[str]) -> None:
    assert found(TWO_LAYERS, query) == names


def test_unknown_finds_what_has_no_number() -> None:
    assert found(FOREIGN, "unknown") == ["b", "c"]
    assert found(FOREIGN, "!unknown") == ["a"]


def test_nodes_inside_regions_are_found_with_what_leads_to_them() -> None:
    model = browse(NESTED)
    model.set_filter("inner")
    assert [model.outline.items[row].name for row in model.tree.visible.tolist()] == ["m", "y", "then", "inner", "a", "a2"]


def test_formulas_match_no_comparison_until_they_have_numbers() -> None:
    assert found(SYMBOLIC, "mem>1") == []
    model = browse(SYMBOLIC)
    model.set_filter("mem>2KiB")
    model.set_sizes("batch=4")
    assert model.tree.matches == 2


@pytest.mark.parametrize("query", ["flops>", "flops>abc", "mem>1xb", "mem<-3", "flops>1.2.3", "mem>1flops", "flops>1MiB"])
def test_numbers_that_make_no_sense_are_refused(query: str) -> None:
    with pytest.raises(UsageError, match="is not a number of"):
        parse_filter(query)


def test_a_wrong_filter_leaves_the_rows_alone() -> None:
    model = browse(TWO_LAYERS)
    model.set_filter("linear")
    shown = model.tree.visible.tolist()
    model.set_filter("linear flops>abc")
    assert model.filter_error
    assert model.tree.visible.tolist() == shown


def test_dropping_a_filter_brings_back_what_was_expanded() -> None:
    model = browse(TWO_LAYERS)
    model.tree.collapse_all()
    shown = model.tree.visible.tolist()
    model.set_filter("fc1")
    assert len(model.tree) == 3
    model.select(0)
    model.set_filter("")
    assert model.tree.visible.tolist() == shown


def test_the_selection_moves_to_a_match() -> None:
    model = browse(TWO_LAYERS)
    model.select(6)
    model.set_filter("relu")
    assert model.outline.items[model.selected].name == "active"
    model.set_filter("no-such-node")
    model.set_filter("")
    assert model.tree.is_visible(model.selected)


def test_what_a_filter_hides_is_shown_when_it_is_gone_to() -> None:
    model = browse(TWO_LAYERS)
    model.set_filter("relu")
    model.reveal_step(3)
    assert model.outline.items[model.selected].name == "y"
    assert model.filter_text == ""
    assert model.tree.is_visible(model.selected)
