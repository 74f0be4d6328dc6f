"""What a transform changed, found by the identity of nodes."""

from __future__ import annotations

import random

from irscope.ir.graph import Node
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passkit.manager import Manager
from irscope.tui.passes.running import Diff, compare, take_snapshot
from irscope.tui.text import ASCII, UNICODE, text_of
from tests.tables import every
from tests.tui.models import HOSTILE, NESTED, TWO_LAYERS

DEAD = """irscope 1
graph @main {
  input %x: f32[4]
  param %unused: f32[8]
  %a: f32[4] = nn.relu(%x)
  %dead: f32[4] = nn.gelu(%x)
  %b: f32[4] = nn.relu(%a)
  return %b
}
"""


def changed(text: str, pipeline: str) -> Diff:
    program = parse_program(text)
    before = take_snapshot(program)
    Manager(program).run(pipeline)
    return compare(before, take_snapshot(program, before.names))


def shown(diff: Diff) -> list[str]:
    return [text_of(row) for row in diff.rows(UNICODE)]


def test_what_nothing_reads_goes_with_its_weight() -> None:
    diff = changed(DEAD, "dce")
    assert (diff.removed, diff.added, diff.changed) == (2, 0, 0)
    lines = shown(diff)
    assert "- param %unused: f32[8]" in lines
    assert "- %dead: f32[4] = nn.gelu(%x)" in lines
    assert "  %a: f32[4] = nn.relu(%x)" in lines
    assert diff.operators == [("nn.gelu", 1, 0)]
    assert diff.summary == "-2 +0 ~0"


def test_nothing_changed_has_no_lines() -> None:
    diff = changed(TWO_LAYERS, "dce")
    assert diff.lines == []
    assert diff.summary == "-0 +0 ~0"
    assert diff.operators == []


def test_types_that_were_written_down_count_as_altered() -> None:
    diff = changed(TWO_LAYERS, "annotate")
    assert (diff.removed, diff.added) == (0, 0)
    assert diff.changed == 4
    lines = shown(diff)
    assert "+ %y: f32[4,64] = math.add(%back, %x)" in lines
    assert lines.index("- %y: ?[*] = math.add(%back, %x)") < lines.index("+ %y: f32[4,64] = math.add(%back, %x)")


def test_unchanged_lines_far_away_are_counted_and_left_out() -> None:
    nodes = "\n".join(f"  %v{number + 1}: f32[2] = nn.relu(%v{number})" for number in range(50))
    text = f"irscope 1\ngraph @main {{\n  input %v0: f32[2]\n{nodes}\n  %dead: f32[2] = nn.gelu(%v50)\n  return %v50\n}}\n"
    diff = changed(text, "dce")
    assert shown(diff) == [
        "    49 unchanged lines",
        "  %v49: f32[2] = nn.relu(%v48)",
        "  %v50: f32[2] = nn.relu(%v49)",
        "- %dead: f32[2] = nn.gelu(%v50)",
        "  return %v50",
    ]


def test_a_change_without_end_is_cut_and_says_so() -> None:
    nodes = "\n".join(f"  %v{number + 1}: ?[*] = nn.relu(%v{number})" for number in range(40))
    program = parse_program(f"irscope 1\ngraph @main {{\n  input %v0: f32[2]\n{nodes}\n  return %v40\n}}\n")
    before = take_snapshot(program)
    Manager(program).run("annotate")
    diff = compare(before, take_snapshot(program, before.names), most=10)
    assert len(diff.lines) == 10
    assert diff.changed == 40
    assert shown(diff)[-1] == f"    and {diff.hidden:,} more lines (irscope opt --print-after-all)"


def test_new_values_have_names_that_no_old_one_had() -> None:
    program = parse_program(DEAD)
    before = take_snapshot(program)
    graph = program.graph
    first = graph.first
    assert first is not None
    graph.insert_before(first, "nn.relu", [graph.inputs[0]], [graph.inputs[0].type])
    lines = compare(before, take_snapshot(program, before.names)).lines
    assert [line.text for line in lines if line.sign == "+"] == ["%new0: f32[4] = nn.relu(%x)"]


@every("seed", range(20))
def test_removing_at_random_keeps_the_rest_in_order(seed: int) -> None:
    nodes = "\n".join(f"  %v{number + 1}: f32[2] = nn.relu(%v0)" for number in range(30))
    program = parse_program(f"irscope 1\ngraph @main {{\n  input %v0: f32[2]\n{nodes}\n  return %v0\n}}\n")
    before = take_snapshot(program)
    gone = random.Random(seed).sample(list(program.graph), 7)
    for node in gone:
        program.graph.erase(node)
    after = take_snapshot(program, before.names)
    diff = compare(before, after, context=100)
    assert [line.text for line in diff.lines if line.sign != "-"] == [entry.text for entry in after.entries]
    assert [line.text for line in diff.lines if line.sign != "+"] == [entry.text for entry in before.entries]
    assert diff.removed == 7


@every("seed", range(20))
def test_any_order_can_be_read_off_both_ways(seed: int) -> None:
    nodes = "\n".join(f"  %v{number + 1}: f32[2] = nn.relu(%v0)" for number in range(12))
    program = parse_program(f"irscope 1\ngraph @main {{\n  input %v0: f32[2]\n{nodes}\n  return %v0\n}}\n")
    before = take_snapshot(program)
    shuffled = list(before.entries)
    random.Random(seed).shuffle(shuffled)
    after = type(before)(shuffled, before.names, before.operators)
    diff = compare(before, after, context=100)
    assert [line.text for line in diff.lines if line.sign != "-"] == [entry.text for entry in shuffled]
    assert sorted(line.text for line in diff.lines if line.sign != "+") == sorted(entry.text for entry in before.entries)


def test_regions_and_functions_are_in_the_snapshot() -> None:
    program: Program = parse_program(NESTED)
    snapshot = take_snapshot(program)
    assert sum(isinstance(entry.key, Node) for entry in snapshot.entries) == program.node_count
    assert snapshot.operators["nn.relu"] == 6
    assert any(entry.text.startswith("  %a: ") for entry in snapshot.entries)


def test_names_of_a_hostile_model_are_shown_safely() -> None:
    program = parse_program(HOSTILE)
    before = take_snapshot(program)
    empty = type(before)([], before.names, before.operators)
    for symbols in (UNICODE, ASCII):
        rows = [text_of(row) for row in compare(empty, before).rows(symbols)]
        assert rows
        assert all(character.isprintable() for row in rows for character in row)
    assert all(row.isascii() for row in rows)
