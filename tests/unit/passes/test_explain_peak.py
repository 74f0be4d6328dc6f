"""What a change is said to save is what making the change saves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from irscope.ir.bind import bind_program
from irscope.ir.dim_arrays import Evaluator
from irscope.ir.parser import parse_program
from irscope.ir.program import FORMAT_TRAITS, Program, Traits
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.changes import COPY, IN_PLACE, NARROW, Finder, Heights
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.explain_peak import ExplainPeak, PeakAdvice
from irscope.passes.memory.liveness import Liveness
from irscope.passkit.manager import Manager
from tests.property.symbolic_models import symbolic_models

CHAIN = """irscope 1
format "irs"
graph @main {
  input %x: f32[256,256]
  %a: f32[256,256] = math.exp(%x)
  %b: f32[256,256] = math.neg(%a)
  %c: f32[256,512] = tensor.concat(%b, %b) {axis=1}
  return %c
}
"""
SIZE = 256 * 256 * 4


def advice(text: str, format_: str = "irs") -> PeakAdvice:
    program = parse_program(text)
    program.traits = FORMAT_TRAITS.get(format_, Traits())
    return Manager(program).get(ExplainPeak())


@given(symbolic_models())
def test_writing_over_an_operand_leaves_the_peak_that_was_said(program: Program) -> None:
    bind_program(program, {"batch": 3, "length": 5})
    program.traits = Traits()
    manager = Manager(program)
    lifetimes, aliases = manager.get(Ranges(model="ssa")), manager.get(Alias())
    sizes = Evaluator({}).rows([one.size for one in lifetimes.ranges])[:, 0]
    inside = {step: int(str(size)) for step, size in lifetimes.inside.items()}
    heights = Heights(lifetimes.ranges, sizes, inside, len(lifetimes.steps))
    finder = Finder(lifetimes.steps, lifetimes.ranges, aliases, manager.get(Shapes()), torch=False)
    for change in [change for change in finder.changes(inside) if change.kind == IN_PLACE]:
        expected = int(heights.alive([change]).max())
        marked = []
        for edit in change.edits:
            node = lifetimes.ranges[edit.storage].value.node
            assert node is not None and edit.over is not None
            storage = lifetimes.ranges[edit.over].value
            index = next(place for place, value in enumerate(node.inputs) if value is not None and aliases.storage(value) is storage)
            program.graph.set_attr(node, "inplace", index)
            marked.append(node)
        assert Manager(program).get(Liveness(model="ssa")).peak == expected
        for node in marked:
            program.graph.remove_attr(node, "inplace")


def test_changes_add_up_where_several_steps_are_equally_high() -> None:
    found = advice(CHAIN.replace("%c: f32[256,512] = tensor.concat(%b, %b) {axis=1}", "%c: f32[256,256] = math.abs(%b)"))
    assert found.peak == found.lower_bound == 2 * SIZE
    # One operator in place leaves another step as high; both together halve the peak.
    assert [one.change.kind for one in found.single] == [NARROW]
    assert [(one.change.kind, one.peak) for one in found.together] == [(IN_PLACE, 2 * SIZE), (IN_PLACE, SIZE)]


def test_a_copy_that_another_layout_would_save() -> None:
    body = """%a: f32[256,256] = math.exp(%x)
  %t: f32[256,256]<1,256> = view.transpose(%a) {axis0=0, axis1=1}
  %r: f32[65536] = view.reshape(%t) {shape=[65536]} !"aten::reshape"
  %m: f32[] = reduce.mean(%r) {axes=[0], keepdims=false}
  return %m"""
    text = CHAIN[: CHAIN.index("  %a")] + "  " + body + "\n}\n"
    found = advice(text)
    assert found.peak == 2 * SIZE
    (copy,) = [one for one in found.single if one.change.kind == COPY]
    assert copy.saves == SIZE - 4 and "reshape" in copy.change.what


def test_nothing_helps_is_an_answer() -> None:
    program = parse_program(CHAIN.replace("f32", "i64").replace("math.exp", "math.abs"))
    (report,) = [result.report() for result in Manager(program).run("explain-peak")]
    assert report.summary["helpful"] == 0
    assert any("nothing helps" in note for note in report.notes)
    assert [len(table) for table in report.tables] == [0, 0]


def test_open_symbols_are_given_a_size() -> None:
    text = CHAIN.replace("irscope 1\n", "irscope 1\nsymbol batch [1,*]\n").replace("[256,", "[batch,")
    found = advice(text)
    assert found.at == {"batch": 64}
    assert found.peak == 3 * 64 * 256 * 4


@pytest.mark.torch
def test_a_variable_that_is_deleted_frees_what_was_said(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.tools.oracle.storages import record_module
    from tests.tools.torch_files.helpers import read, save_exported
    from tests.unit.passes.explained_models import Careful, Careless, image

    careless = Manager(read("exported", save_exported(tmp_path / "careless.pt2", Careless().eval(), image())))
    before = careless.get(Liveness()).peak
    found = careless.get(ExplainPeak())
    assert found.peak == before == record_module(Careless().eval(), image()).peak
    after = record_module(Careful().eval(), image()).peak
    best = found.together[0]
    assert "del `wide`" in best.change.what and "explained_models.py" in best.change.what
    assert best.peak == after < before


@pytest.mark.parametrize("view", ["view.flatten(%z) {start=1}", "view.reshape(%z, %sizes)"])
def test_every_view_that_has_to_copy_is_named(view: str) -> None:
    text = f"""irscope 1
graph @main {{
  input %x: f32[2,8,64,64]
  const %sizes: i64[2] = [2,32768]
  %y: f32[2,8,64,64] = nn.relu(%x)
  %z: f32[2,64,64,8] = view.permute(%y) {{perm=[0,2,3,1]}}
  %w: f32[2,32768] = {view}
  return %w
}}
"""
    found = [one.change.what for one in advice(text, "torchscript").single if one.change.kind == COPY]
    assert found == [f"no copy by {view.partition('(')[0]}"]
