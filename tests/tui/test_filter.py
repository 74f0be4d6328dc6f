"""The filter language."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.ir.graph import Node
from irscope.tui.browse.filter import parse_filter, shape_matches
from tests.tables import every
from tests.tui.models import FOREIGN, NESTED, SYMBOLIC, TWO_LAYERS, browse


def found(text: str, query: str) -> list[str]:
    """Names of the nodes that a filter leaves."""
    model = browse(text)
    model.set_filter(query)
    assert model.filter_error == ""
    rows = [model.outline.items[row] for row in model.tree.visible.tolist()]
    return [item.name for item in rows if isinstance(item, Node)]


@every(
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
        ("mem>=1KiB mem<=1KiB", ["back", "y"]),
        ("mem>1KiB", ["hidden", "active"]),
        ("shape:[4,256]", ["hidden", "active"]),
        ("shape:[*,64]", ["back", "y"]),
        ("shape:[*,*]", ["hidden", "active", "back", "y"]),
        ("shape:[*]", []),
        ("shape:[*,64,*]", []),
        ("shape:[...]", ["hidden", "active", "back", "y"]),
        ("shape:[...,256]", ["hidden", "active"]),
        ("shape:[4", ["hidden", "active", "back", "y"]),
        ("shape:[4,2", []),
        ("shape:256", ["hidden", "active"]),
        ("!shape:[*,64]", ["hidden", "active"]),
        ("dtype:f", ["hidden", "active", "back", "y"]),
        ("dtype:32", []),
        ("name:act", ["active"]),
        ("name:%back", ["back"]),
        ("name:block", []),
        ("/relu|add/", ["active", "y"]),
        ("/^nn[.]relu/", ["active"]),
        ("!/linear/", ["active", "y"]),
        ('"nn.relu active"', ["active"]),
        ('op:"nn.relu"', ["active"]),
        ("inplace", []),
        ("unknown", []),
        ("nothing-like-it", []),
        ("!", []),
    ],
)
def test_filters(query: str, names: list[str]) -> None:
    assert found(TWO_LAYERS, query) == names


def test_shapes_with_symbols_are_found_by_their_formula() -> None:
    assert found(SYMBOLIC, "shape:[batch,64]") == ["back", "y"]
    assert found(SYMBOLIC, "shape:[batch,*] relu") == ["active"]
    assert found(FOREIGN, "shape:[*,*]") == ["a"]


def test_nodes_that_write_into_an_input_are_found() -> None:
    text = TWO_LAYERS.replace("nn.relu(%hidden)", "nn.relu(%hidden) {inplace=0}")
    assert found(text, "inplace") == ["active"]
    assert found(text, "dtype:f32 !inplace") == ["hidden", "back", "y"]


@pytest.mark.parametrize(
    ("pattern", "shape", "holds"),
    [
        (("*",), ("3",), True),
        (("*",), (), False),
        ((), (), True),
        (("...",), (), True),
        (("...", "8"), ("1", "2", "8"), True),
        (("...", "8"), ("8", "1"), False),
        (("8", "...", "8"), ("8",), False),
        (("8", "...", "8"), ("8", "8"), True),
        (("...", "2", "..."), ("1", "2", "3"), True),
        (("...", "2", "...", "2"), ("2", "1", "2"), True),
        (("...", "2", "...", "2"), ("2", "1"), False),
    ],
)
def test_patterns_of_shapes(pattern: tuple[str, ...], shape: tuple[str, ...], holds: bool) -> None:
    assert shape_matches(pattern, shape) is holds


@pytest.mark.parametrize(
    ("query", "problem"), [("/(/", "is not a regular expression"), ("shape:[[2]", "is not a shape"), ("shape:2]3", "is not a shape")]
)
def test_patterns_that_make_no_sense_are_refused(query: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_filter(query)


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
    with pytest.raises(UsageError, match=r"is not an? (number of FLOPs|amount of memory)"):
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
    assert len(model.tree) == 2
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


VIEWS = """irscope 1
graph @main {
  input %x: f32[2,3]
  %a: f32[2,3] = nn.relu(%x)
  %v: f32[6] = view.reshape(%a) {shape=[6]}
  %w: f32[6] = nn.relu(%v) {inplace=0}
  %b: f32[6] = nn.gelu(%w)
  return %b
}
"""


@pytest.mark.parametrize(
    ("text", "names"), [("alias:%a", "avw"), ("alias:w", "avw"), ("!alias:%a", "b"), ("alias:%b", "b"), ("alias:%none", "")]
)
def test_alias_finds_what_shares_a_storage(text: str, names: str) -> None:
    assert "".join(sorted(matching(VIEWS, text))) == names


def test_alias_of_what_the_model_is_given() -> None:
    text = VIEWS.replace("nn.relu(%x)", "view.reshape(%x) {shape=[2,3]}").replace(" {inplace=0}", "")
    assert "".join(sorted(matching(text, "alias:%x"))) == "av"


def matching(text: str, wanted: str) -> list[str]:
    """The names of the nodes that a filter matches."""
    shown = browse(text)
    shown.set_filter(wanted)
    assert shown.filter_error == ""
    return [shown.outline.items[row].name for row in shown.tree.visible.tolist() if shown.tree.is_match(row)]
