"""Patterns and their driver, `canonicalize`, `cse`, `inline`, and branches that `fold` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.ir.splicing import copy_before, splice
from irscope.ir.verify import verify
from irscope.passes.graph.rewriting import Pattern, rewriting
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager


def after(passes: object, body: str, functions: str = "") -> tuple[Program, Manager]:
    """Return the program that passes leave, of which the rules of the IR and of operators hold after each."""
    program = parse_program(f"irscope 1\nsymbol n\ngraph @main {{\n  input %x: f32[n,3]\n  input %z: f32[n,3]\n{body}\n}}\n{functions}")
    manager = Manager(program, annotate=Annotate(), verify_each=True)
    manager.run(passes)  # type: ignore[arg-type]  # a text or a class
    assert not verify(program)
    return program, manager


def ops(program: Program) -> list[str]:
    return [node.op for node in program.graph.walk()]


_IF = """  const %k: bool[] = [{condition}]
  %y: f32[n,3] = cf.if(%k)
  region then {{
    const %two: f32[] = [2.0]
    %a: f32[n,3] = math.mul(%x, %two)
    return %a
  }}
  region else {{
    %a: f32[n,3] = math.neg(%x)
    return %a
  }}
  %b: f32[n,3] = nn.relu(%y)
  return %b"""


@pytest.mark.parametrize(("condition", "left"), [("true", "math.mul"), ("false", "math.neg")])
def test_fold_takes_the_branch_of_a_constant_condition(condition: str, left: str) -> None:
    program, _ = after("fold,dce", _IF.format(condition=condition))
    assert ops(program) == [left, "nn.relu"]
    assert program.graph.last is not None and program.graph.last.inputs[0] is program.graph.first.outputs[0]  # type: ignore[union-attr]


def test_fold_takes_branches_within_branches_and_returns_what_stands_outside() -> None:
    body = """  const %k: bool[] = [true]
  %other: f32[n,3] = math.exp(%x)
  %y: f32[n,3] = cf.if(%k)
  region then {
    const %m: bool[] = [false]
    %q: f32[n,3] = cf.if(%m)
    region then {
      return %x
    }
    region else {
      return %other
    }
    return %q
  }
  region else {
    return %x
  }
  return %y"""
    program, _ = after("fold,dce", body)
    assert ops(program) == ["math.exp"]
    assert program.graph.outputs == program.graph.first.outputs  # type: ignore[union-attr]


def test_a_branch_inside_a_loop_stays() -> None:
    body = """  const %k: bool[] = [true]
  const %t: i64[] = [3]
  %y: f32[n,3] = cf.loop(%t, %k, %x)
  region body {
    arg %i: i64[]
    arg %c: bool[]
    arg %s: f32[n,3]
    %q: f32[n,3] = cf.if(%k)
    region then {
      %v: f32[n,3] = math.neg(%s)
      return %v
    }
    region else {
      return %s
    }
    return %c, %q
  }
  return %y"""
    program, _ = after("fold,dce", body)
    assert "cf.if" in ops(program)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("  const %o: f32[] = [1.0]\n  %y: f32[n,3] = math.mul(%x, %o)\n  return %y", []),
        ("  const %o: f32[] = [1.0]\n  %y: f32[n,3] = math.mul(%o, %x)\n  return %y", []),
        ("  %y: f32[n,3] = math.mul(%x) {value=1}\n  return %y", []),
        ("  const %o: f32[] = [1.0]\n  %y: f32[n,3] = math.div(%o, %x)\n  return %y", ["math.div"]),
        ("  const %o: f32[] = [0.0]\n  %y: f32[n,3] = math.sub(%x, %o)\n  return %y", []),
        ("  const %o: f32[] = [-0.0]\n  %y: f32[n,3] = math.sub(%x, %o)\n  return %y", ["math.sub"]),
        ("  const %o: f32[] = [0.0]\n  %y: f32[n,3] = math.add(%x, %o)\n  return %y", ["math.add"]),  # -0.0 + 0.0 is 0.0
        ("  const %o: f32[2,1,3] = [1, 1, 1, 1, 1, 1]\n  %y: f32[2,n,3] = math.mul(%x, %o)\n  return %y", ["math.mul"]),
        ("  %a: f32[n,3] = math.neg(%x)\n  %y: f32[n,3] = math.neg(%a)\n  return %y", []),
        ("  %a: bool[n,3] = math.not(%x)\n  %y: bool[n,3] = math.not(%a)\n  return %y", ["math.not", "math.not"]),
        ("  %a: f32[n,3] = nn.relu(%x)\n  %y: f32[n,3] = nn.relu(%a)\n  return %y", ["nn.relu"]),
        ("  %y: f32[n,3] = tensor.cast(%x) {to=<f32>}\n  return %y", []),
        ("  %y: f16[n,3] = tensor.cast(%x) {to=<f16>}\n  return %y", ["tensor.cast"]),
        ("  %y: f32[n,3] = view.permute(%x) {perm=[0, 1]}\n  return %y", []),
        ("  %y: f32[3,n] = view.permute(%x) {perm=[1, 0]}\n  return %y", ["view.permute"]),
        # What is worked on in place is not to be taken for what it was made of.
        (
            "  %a: f32[n,3] = tensor.cast(%x) {to=<f32>}\n  %y: f32[n,3] = nn.relu(%a) {inplace=0}\n  return %y, %x",
            ["tensor.cast", "nn.relu"],
        ),
    ],
)
def test_canonicalize_drops_what_changes_no_bit(body: str, left: list[str]) -> None:
    assert ops(after("canonicalize", body)[0]) == left


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("  %a: f32[n,3] = nn.relu(%x)\n  %b: f32[n,3] = nn.relu(%x)\n  return %a, %b", ["nn.relu"]),
        ("  %a: f32[n,3] = nn.relu(%x)\n  %b: f32[n,3] = nn.relu(%z)\n  return %a, %b", ["nn.relu"] * 2),
        (
            "  %a: f32[n,3] = math.exp(%x)\n  %b: f32[n,3] = math.exp(%x)\n  %c: f32[n,3] = math.neg(%a)\n  %d: f32[n,3] = math.neg(%b)\n"
            "  return %c, %d",
            ["math.exp", "math.neg"],
        ),
        ("  %a: f32[n,3] = nn.softmax(%x) {axis=0}\n  %b: f32[n,3] = nn.softmax(%x) {axis=1}\n  return %a, %b", ["nn.softmax"] * 2),
        ("  %a: f32[n,3] = random.normal_like(%x)\n  %b: f32[n,3] = random.normal_like(%x)\n  return %a, %b", ["random.normal_like"] * 2),
        ("  %a: f32[n,3] = foreign.odd(%x)\n  %b: f32[n,3] = foreign.odd(%x)\n  return %a, %b", ["foreign.odd"] * 2),
        (
            "  %a: f32[n,3] = math.neg(%x)\n  %b: f32[n,3] = math.neg(%x)\n  %c: f32[n,3] = nn.relu(%a) {inplace=0}\n  return %b, %c",
            ["math.neg", "math.neg", "nn.relu"],
        ),
    ],
)
def test_cse_computes_once_what_is_equal(body: str, left: list[str]) -> None:
    assert ops(after("cse", body)[0]) == left


def test_cse_takes_from_around_a_region_only_what_stands_before_it() -> None:
    body = """  input %k: bool[]
  %a: f32[n,3] = math.neg(%x)
  %y: f32[n,3] = cf.if(%k)
  region then {
    %b: f32[n,3] = math.neg(%x)
    return %b
  }
  region else {
    %c: f32[n,3] = math.exp(%x)
    return %c
  }
  %d: f32[n,3] = math.exp(%x)
  return %a, %y, %d"""
    assert ops(after("cse", body)[0]) == ["math.neg", "cf.if", "math.exp", "math.exp"]


def test_inline_puts_functions_in_place_with_their_weights_once() -> None:
    functions = """func @outer {
  input %x: f32[n,3]
  %y: f32[n,3] = cf.call(%x) {callee="inner"}
  %z: f32[n,3] = cf.call(%y) {callee="inner"}
  return %z
}
func @inner {
  input %x: f32[n,3]
  param %w: f32[3,3]
  %y: f32[n,3] = nn.linear(%x, %w, _) @fc
  return %y
}
func @unused {
  input %x: f32[n,3]
  return %x
}
"""
    body = '  %h: f32[n,3] = cf.call(%x) {callee="outer"}\n  %i: f32[n,3] = cf.call(%h) {callee="outer"}\n  return %i'
    program, _ = after("inline", body, functions)
    assert ops(program) == ["nn.linear"] * 4
    assert [weight.name for weight in program.graph.weights] == ["w"] and not program.functions
    assert {node.scope.path for node in program.graph} == {"fc"}


def test_a_hostile_program_is_not_inlined_without_end() -> None:
    levels = "\n".join(
        f'func @f{at} {{\n  input %x: f32[n,3]\n  %a: f32[n,3] = cf.call(%x) {{callee="f{at + 1}"}}\n'
        f'  %b: f32[n,3] = cf.call(%a) {{callee="f{at + 1}"}}\n  return %b\n}}'
        for at in range(40)
    )
    end = "func @f40 {\n  input %x: f32[n,3]\n  %a: f32[n,3] = math.neg(%x)\n  return %a\n}\n"
    call = '  %y: f32[n,3] = cf.call(%x) {callee="f0"}\n  return %y'
    program = parse_program(f"irscope 1\nsymbol n\ngraph @main {{\n  input %x: f32[n,3]\n{call}\n}}\n{levels}\n{end}")
    manager = Manager(program)
    manager.run("inline{limit=500}")
    assert len(program.graph) <= 500 and not verify(program)


def _negated(node: Node) -> Node | None:
    inner = node.inputs[0].node if node.inputs[0] is not None else None
    return inner if inner is not None and inner.op == "math.neg" else None


def _as_sub(graph: Graph, node: Node, inner: Node) -> Value:
    return graph.insert_before(node, "math.sub", [node.inputs[1], inner.inputs[0]], [node.outputs[0].type]).outputs[0]


def test_a_pattern_is_applied_until_it_matches_no_more() -> None:
    Minus = rewriting("minus", [Pattern("math.add", _negated, _as_sub)])
    lines = (
        "%a: f32[n,3] = math.neg(%x)",
        "%b: f32[n,3] = math.add(%a, %z)",
        "%c: f32[n,3] = math.neg(%b)",
        "%d: f32[n,3] = math.add(%c, %z)",
    )
    body = "\n  ".join(("", *lines, "return %d"))
    program, manager = after(Minus, body)
    assert ops(program) == ["math.sub", "math.sub"]
    assert manager.run("minus")[0].value is False


def test_the_pattern_of_most_benefit_comes_first_and_one_without_end_is_stopped() -> None:
    def turn(op: str) -> Pattern:
        return Pattern("math.exp", lambda node: True, lambda graph, node, _: graph.replace(node, op) and None, benefit=len(op))

    program, _ = after(rewriting("turns", [turn("nn.relu"), turn("nn.sigmoid")]), "  %a: f32[n,3] = math.exp(%x)\n  return %a")
    assert ops(program) == ["nn.sigmoid"]
    again = Pattern("math.exp", lambda node: True, lambda graph, node, _: graph.replace(node, "math.exp") and None)
    program, manager = after("stats", "  %a: f32[n,3] = math.exp(%x)\n  return %a")
    manager.run(rewriting("again", [again]))
    assert [one.code for one in manager._general] == ["IRS505"]


def test_nodes_move_between_regions_and_regions_are_spliced() -> None:
    program = parse_program(f"irscope 1\nsymbol n\ngraph @main {{\n  input %x: f32[n,3]\n{_IF.format(condition='true')}\n}}\n")
    graph = program.graph
    branch, last = list(graph)
    then, other = branch.regions
    graph.move_to_end(last, other)
    assert last.graph is other and len(graph) == 1 and len(other) == 2
    other.move_before(last, branch)  # the caller answers for uses
    assert [node.op for node in graph] == ["nn.relu", "cf.if"] and len(other) == 1
    graph.reorder([branch, last])
    with pytest.raises(ValueError, match="cannot move into its own region"):
        graph.move_to_end(branch, then)
    yielded = splice(branch, then)
    assert not then.outputs and len(then) == 0
    for output, value in zip(branch.outputs, yielded, strict=True):
        graph.replace_uses(output, value)
    graph.erase(branch)
    assert not verify(program) and [node.op for node in graph] == ["math.mul", "nn.relu"]
    function = parse_program("irscope 1\ngraph @f {\n  input %q: f32[n,3]\n  %a: f32[n,3] = math.exp(%q)\n  return %a\n}\n").graph
    [value] = copy_before(last, function, {function.inputs[0]: graph.inputs[0]})
    assert value is not None and value.name == "a.1" and not verify(program)
    with pytest.raises(ValueError, match="not a region of the same body"):
        splice(last, function)


def test_a_script_defines_an_operator_without_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, text = tmp_path / "ops.py", tmp_path / "model.irs"
    record = "op('own.twice(Tensor x) -> Tensor', Family.ELEMENTWISE, infer=lambda call: call.tensor('x'), cost={cost}, summary='Twice x.')"
    head = "from irscope.api import analysis\nfrom irscope.ops import Cost, Family, numel, op\n\n"
    text.write_text("irscope 1\ngraph @main {\n  input %x: f32[2,3]\n  %y: f32[*] = own.twice(%x)\n  return %y\n}\n")
    for factor in (1, 2):  # a script that changed is loaded again
        script.write_text(f"{head}OPS = ({record.format(cost=f'lambda call: Cost(elementwise={factor} * numel(call.results[0]))')},)\n")
        assert main(["run", "--ops", str(script), "--passes", "flops", "--strict", str(text)]) == 0
        assert f"total flops       {6 * factor} FLOPs" in capsys.readouterr().out
    script.write_text("OPS = 1\n")
    assert main(["opt", "--ops", str(script), str(text)]) == 2
    assert "IRS608" in capsys.readouterr().err
