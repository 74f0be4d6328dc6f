"""Two models: sequences are aligned, what is matched by what, and what is told of the rest; the published schema."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.ir.dims import Dim, parse_dim, ratio, symbol
from irscope.report.jsonout import json_lines
from irscope.tools.compare import compare_models, model_comparison
from irscope.tools.compare.matching import How, Side, align, common_axis, match, rising
from irscope.tools.compare.models import ModelComparison, totals
from tests.unit.tools.texts import HEAD, MLP, model, renamed

# Two models: what is matched by what, and what is told of the rest.


def compared(a: str, b: str) -> ModelComparison:
    return compare_models(model(a), model(b))


def kinds(found: ModelComparison) -> dict[str, int]:
    return dict(sorted(found.counts.items()))


def test_a_model_equals_itself() -> None:
    found = compared(MLP, MLP)
    assert kinds(found) == {"same": 4}
    assert all(total.difference == 0 and total.change == 0 for total in totals(found))
    assert all(row.change == "" for row in found.weights)
    assert [found.matching.how[number].value for number in range(4)] == ["weights", "name", "weights", "name"]


def test_other_names_are_no_difference() -> None:
    found = compared(MLP, renamed(MLP))
    assert kinds(found) == {"same": 4}
    assert found.matching.mate_a == [0, 1, 2, 3]


def test_without_weights_in_common_the_data_lead() -> None:
    other = renamed(MLP).replace("fc1.", "onnx::MatMul_1.").replace("fc2.", "onnx::MatMul_2.").replace("%onnx", '%"onnx')
    other = (
        other.replace("MatMul_1.weight", 'MatMul_1.weight"')
        .replace("MatMul_1.bias", 'MatMul_1.bias"')
        .replace("MatMul_2.weight", 'MatMul_2.weight"')
    )
    found = compared(MLP, other)
    assert kinds(found) == {"same": 4}
    assert {how for how in found.matching.how.values()} == {How.DATA}
    assert [row.change for row in found.weights] == ["renamed"] * 3


def test_names_that_were_numbered_anew_mislead_nobody() -> None:
    before = """irscope 1
graph @main {
  input %x: f32[4]
  param %a: f32[4]
  param %b: f32[4]
  %add: f32[4] = math.add(%x, %a)
  %add_1: f32[4] = math.add(%add, %b)
  %relu: f32[4] = nn.relu(%add_1)
  return %relu
}
"""
    # One node more at the front moves every number by one.
    after = before.replace("%add_1", "%add_2").replace("%add:", "%add_1:").replace("(%add,", "(%add_1,")
    after = after.replace("  %add_1: f32[4] = math.add(%x, %a)", "  %add: f32[4] = math.add(%x, %x)\n  %add_1: f32[4] = math.add(%add, %a)")
    found = match(Side(model(before)), Side(model(after)))
    assert found.mate_a == [1, 2, 3]
    assert found.mate_b == [-1, 0, 1, 2]


def test_shapes_and_types_that_differ_are_told() -> None:
    found = compared(MLP, MLP.replace("f32[4,", "f16[2,").replace("f32", "f16"))
    assert kinds(found) == {"changed": 4}
    texts = [change.text for change in found.rows[1].changes]
    assert "[4,16] -> [2,16]" in texts
    assert "f32 -> f16" in texts
    assert [row.change for row in found.weights] == ["retyped"] * 3
    by_key = {total.key: total for total in totals(found)}
    assert by_key["parameter_bytes"].change == -0.5
    assert by_key["peak_bytes"].change == -0.75


def test_attributes_that_differ_are_told() -> None:
    text = """irscope 1
graph @main {
  input %x: f32[1,3,8,8]
  param %w: f32[4,3,3,3]
  %y: f32[1,4,6,6] = nn.conv(%x, %w) {STRIDES}
  return %y
}
"""
    plain = text.replace(" {STRIDES}", "")
    assert kinds(compared(plain, text.replace("STRIDES", "strides=[1,1], kernel_shape=[3,3], groups=1"))) == {"same": 1}
    found = compared(plain, text.replace("STRIDES", "strides=[2,2]").replace("[1,4,6,6]", "[1,4,3,3]"))
    assert [(change.aspect, change.text) for change in found.rows[0].changes][:2] == [
        ("shape", "[1,4,6,6] -> [1,4,3,3]"),
        ("attributes", "strides unset -> [2, 2]"),
    ]


def test_an_added_and_a_removed_node() -> None:
    with_tanh = MLP.replace("  %back:", "  %twice: f32[4,16] = math.tanh(%active)\n  %back:").replace(
        "nn.linear(%active,", "nn.linear(%twice,"
    )
    assert kinds(compared(MLP, with_tanh)) == {"added": 1, "same": 4}
    found = compared(with_tanh, MLP)
    assert kinds(found) == {"removed": 1, "same": 4}
    assert [row.kind for row in found.rows] == ["same", "same", "removed", "same", "same"]
    assert found.matched == (4, 4)


def test_a_node_that_takes_up_others_is_fused() -> None:
    before = """irscope 1
graph @main {
  input %x: f32[1,3,8,8]
  param %w: f32[4,3,3,3]
  param %s: f32[4]
  param %b: f32[4]
  buffer %m: f32[4]
  buffer %v: f32[4]
  %c: f32[1,4,6,6] = nn.conv(%x, %w)
  %n: f32[1,4,6,6] = nn.batch_norm(%c, %s, %b, %m, %v)
  %y: f32[1,4,6,6] = nn.relu(%n)
  return %y
}
"""
    after = """irscope 1
graph @main {
  input %x: f32[1,3,8,8]
  param %w: f32[4,3,3,3]
  param %w_bias: f32[4]
  %n: f32[1,4,6,6] = nn.conv(%x, %w, %w_bias)
  %y: f32[1,4,6,6] = nn.relu(%n)
  return %y
}
"""
    found = compared(before, after)
    assert kinds(found) == {"fused": 1, "same": 1}
    assert found.rows[0].a == (0, 1) and found.rows[0].b == (0,)
    document = model_comparison(found)
    assert list(document.reports[0].tables[0].rows()) == [("fused", 1, "nn.conv + nn.batch_norm", "nn.conv", "c")]
    assert kinds(compared(after, before)) == {"split": 1, "same": 1}


def test_one_operator_for_several_that_are_not_its_own() -> None:
    before = (
        HEAD
        + """  %a: f32[4,8] = math.mul(%x, %x)
  %b: f32[4,8] = math.tanh(%a)
  %y: f32[4,8] = nn.relu(%b)
  return %y
}
"""
    )
    after = (
        HEAD
        + """  %b: f32[4,8] = nn.gelu(%x)
  %y: f32[4,8] = nn.relu(%b)
  return %y
}
"""
    )
    found = compared(before, after)
    assert kinds(found) == {"fused": 1, "same": 1}
    assert (found.rows[0].a, found.rows[0].b) == ((0, 1), (0,))


def test_modules_have_sums() -> None:
    found = compared(MLP, MLP.replace("%fc2.weight: f32[8,16]", "%fc2.weight: f16[8,16]"))
    a, b = found.modules["fc2"]
    assert (a.nodes, a.weight_bytes, b.weight_bytes) == (1, 512, 256)
    assert found.modules[""][0].nodes == 4


def test_modules_of_another_library_are_rows_of_the_first() -> None:
    """`Net` stands in front of all, `h_0` is `h.0`, `Dense_0` and `Dense_1` come in the order of `fc1` and `fc2`."""
    one = MLP.replace("@fc1", "@h.0/fc1").replace("@fc2", "@h.0/fc2").replace("relu(%hidden)", "relu(%hidden) @h.0")
    other = one.replace("@h.0/fc1", "@Net/h_0/Dense_0").replace("@h.0/fc2", "@Net/h_0/Dense_1").replace("@h.0 ", "@Net/h_0/_act ")
    sums = compared(one, other).modules
    assert {path: (a.nodes, b.nodes, a.flops == b.flops) for path, (a, b) in sums.items() if b.nodes} == {
        "": (4, 4, True),
        "h": (3, 3, True),
        "h.0": (3, 3, True),
        "h.0.fc1": (1, 1, True),
        "h.0.fc2": (1, 1, True),
    }


def test_open_sizes_stay_formulas() -> None:
    text = MLP.replace("graph @main", "symbol batch [1,128]\ngraph @main").replace("f32[4,", "f32[batch,")
    found = compared(text, text)
    assert kinds(found) == {"same": 4}
    document = model_comparison(found)
    assert document.reports[0].series == ()
    by_key = {total.key: total for total in totals(found)}
    assert str(by_key["peak_bytes"].a) == "128*batch"
    assert by_key["peak_bytes"].change == 0


def test_unknown_costs_are_not_zero() -> None:
    text = MLP.replace("nn.relu(%hidden)", "acme.magic(%hidden)")
    by_key = {total.key: total for total in totals(compared(MLP, text))}
    assert by_key["flops"].a is not None
    assert by_key["flops"].b is None and by_key["flops"].change is None


@pytest.mark.parametrize(
    "texts", [(MLP, MLP.split("  %hidden")[0] + "  return %x\n}\n"), (MLP.split("  %hidden")[0] + "  return %x\n}\n",) * 2]
)
def test_an_empty_graph(texts: tuple[str, str]) -> None:
    document = model_comparison(compared(*texts), everything=True)
    assert document.to_json()["kind"] == "models"


def test_regions_are_compared_too() -> None:
    text = """irscope 1
graph @main {
  input %x: f32[2,3]
  input %c: bool[]
  %y: f32[2,3] = cf.if(%c)
  region then {
    %a: f32[2,3] = nn.relu(%x)
    return %a
  }
  region else {
    %b: f32[2,3] = nn.relu(%x)
    return %b
  }
  return %y
}
"""
    assert kinds(compared(text, text)) == {"same": 3}
    found = compared(text, text.replace("%b: f32[2,3] = nn.relu", "%b: f32[2,3] = nn.gelu"))
    # The branch costs more than before, so the node around it differs as well.
    assert kinds(found) == {"changed": 1, "replaced": 1, "same": 1}


def test_all_formats_have_the_same_rows() -> None:
    document = model_comparison(compared(MLP, renamed(MLP).replace("nn.relu", "nn.gelu")), everything=True)
    nodes = next(table for table in document.reports[0].tables if table.title == "nodes")
    assert [row[1] for row in nodes.rows()] == ["same", "replaced", "same", "same"]
    assert nodes.keys == ["hidden", "active", "back", "y"]


OPEN = """irscope 1
symbol SYMBOL [LOW,*]
graph @main {
  input %x: f32[SYMBOL,8]
  param %fc1.weight: f32[WIDTH,8]
  param %fc2.weight: f32[8,WIDTH]
  %hidden: f32[SYMBOL,WIDTH] = nn.linear(%x, %fc1.weight) @fc1 !"aten::linear"
  %back: f32[SYMBOL,8] = nn.linear(%hidden, %fc2.weight) @fc2 !"aten::linear"
  return %back
}
"""


def opened(symbol: str = "s23", low: int = 2, width: int = 16) -> str:
    return OPEN.replace("SYMBOL", symbol).replace("LOW", str(low)).replace("WIDTH", str(width))


@pytest.mark.parametrize(("name", "low"), [("s23", 1), ("batch", 2), ("s7", 0)])
def test_one_size_under_other_names_and_limits_is_no_difference(name: str, low: int) -> None:
    found = compared(opened(), opened(name, low))
    assert kinds(found) == {"same": 2}
    assert all(total.difference == 0 and total.change == 0 for total in totals(found))
    assert [note for note in found.notes if "is s23" in note] == (
        [] if name == "s23" else [f"sizes of B under the names of A: {name} is s23"]
    )


def test_symbols_that_stand_for_several_are_left_alone() -> None:
    two = """irscope 1
symbol a [1,*]
symbol b [1,*]
graph @main {
  input %x: f32[a,4]
  input %y: f32[b,4]
  %z: f32[a,4] = math.add(%x, %x)
  return %z
}
"""
    one = two.replace("symbol b [1,*]\n", "").replace("f32[b,4]", "f32[a,4]")
    found = compared(one, two)
    assert sorted(found.b.model.program.symbols) == ["a", "b"]
    swapped = two.replace("[a,", "[t,").replace("[b,", "[a,").replace("[t,", "[b,")
    assert kinds(compared(two, swapped)) == {"same": 1}


def test_formulas_of_a_constant_ratio_have_one() -> None:
    found = compared(opened(), opened("batch", 1, width=20))
    by_key = {total.key: total for total in totals(found)}
    assert by_key["flops"].change == 0.25
    assert "FLOPs +25.0%" in model_comparison(found).reports[0].headline[0]
    # Bytes at the peak are another formula: what is fixed does not grow with the batch.
    assert ratio(parse("3*batch + 6"), parse("batch + 2")) == 3
    assert ratio(parse("3*batch + 6"), parse("batch + 3")) is None
    assert ratio(parse("batch"), 4) is None and ratio(0, parse("batch")) == 0 and ratio(3, 0) is None


def parse(text: str) -> Dim:
    return parse_dim(text, {"batch": symbol("batch", 1, None)}.__getitem__)


def test_what_costs_most_comes_first() -> None:
    lines = []
    for number, size in enumerate((8, 64, 16)):
        lines.append(f"  param %w{number}: f32[{size},8]\n")
    body = "".join(f"  %y{number}: f32[4,{size}] = nn.linear(%x, %w{number})\n" for number, size in enumerate((8, 64, 16)))
    text = f"irscope 1\ngraph @main {{\n  input %x: f32[4,8]\n{''.join(lines)}{body}  return %y0, %y1, %y2\n}}\n"
    wider = (
        text.replace("[8,8]", "[9,8]")
        .replace("[4,8] = nn.linear", "[4,9] = nn.linear")
        .replace("[64,8]", "[128,8]")
        .replace("[4,64]", "[4,128]")
    )
    wider = wider.replace("[16,8]", "[32,8]").replace("[4,16]", "[4,32]")
    tables = {table.title: table for table in model_comparison(compared(text, wider)).reports[0].tables}
    assert list(tables["nodes that differ"].cells("node")) == ["y1", "y2", "y0"]
    assert list(tables["parameters and buffers that differ"].cells("name")) == ["w1", "w2", "w0"]
    everything = {table.title: table for table in model_comparison(compared(text, wider), everything=True).reports[0].tables}
    assert list(everything["nodes"].cells("node")) == ["y0", "y1", "y2"]


# Aligning sequences: pairs are equal and rise, and nothing that is easy is missed.

SEQUENCES = st.lists(st.integers(0, 6), max_size=40)


def longest(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, the slow way."""
    row = [0] * (len(b) + 1)
    for left in a:
        before = row
        row = [0]
        for place, right in enumerate(b):
            row.append(before[place] + 1 if left == right else max(row[-1], before[place + 1]))
    return row[-1]


@given(SEQUENCES, SEQUENCES)
def test_pairs_are_equal_and_rise(a: list[int], b: list[int]) -> None:
    found = align(a, b)
    assert all(a[x] == b[y] for x, y in found)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found))
    assert len(found) <= longest(a, b)


@given(SEQUENCES, st.data())
def test_what_was_only_taken_out_is_found_again(a: list[int], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(a), max_size=len(a)))
    b = [key for key, keep in zip(a, kept, strict=True) if keep]
    # Keys that occur once on both sides split the range first, which may cost a pair or two, never the most of them.
    assert len(align(a, b)) >= len(b) * 2 // 3


def test_equal_sequences_match_entirely() -> None:
    a = [place % 7 for place in range(50_000)]
    assert align(a, a) == [(place, place) for place in range(50_000)]


def test_many_edits_in_a_long_sequence() -> None:
    chance = random.Random(5)
    a = [chance.randrange(20) for _ in range(20_000)]
    b = list(a)
    for _ in range(1_000):
        b[chance.randrange(len(b))] = chance.randrange(20)
    assert len(align(a, b)) > 18_500


def test_nothing_in_common() -> None:
    assert align([1, 2, 3], [4, 5]) == []
    assert align([], [1]) == []


@given(st.lists(st.integers(0, 30), unique=True, max_size=30))
def test_the_longest_rising_part(places: list[int]) -> None:
    pairs = list(enumerate(places))
    found = rising(pairs)
    assert all(one[1] < other[1] for one, other in pairwise(found))
    assert len(found) == longest(places, sorted(places))


def test_the_axis_shows_every_place_of_both() -> None:
    axis = common_axis([(1, 0), (3, 4)], 6, 5)
    assert {a for a, _ in axis if a >= 0} == set(range(6))
    assert {b for _, b in axis if b >= 0} == set(range(5))
    assert (1, 0) in axis and (3, 4) in axis
    assert axis == sorted(axis)
    assert common_axis([], 0, 0) == []
    assert common_axis([], 2, 0) == [(0, -1), (1, -1)]


# Documents follow the published schema.

PUBLISHED = Path(__file__).parents[3] / "docs" / "compare.schema.json"


def test_a_document_follows_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    made = model_comparison(compare_models(model(MLP), model(MLP.replace("nn.relu", "nn.gelu"))))
    document = json.loads("".join(json_lines(made.to_json())))
    jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text())).validate(document)
