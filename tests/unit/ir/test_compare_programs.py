"""Comparison: every part of a program that may differ is found and told in words."""

from __future__ import annotations

import math

from irscope.ir.graph import Graph
from irscope.ir.parser import parse_program
from irscope.ir.places import Blob, Literal
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TYPE
from tests.tables import every
from tests.tools.difference import difference

TEXT = """\
irscope 1
format "onnx"
meta "opset" "17"
given "k" 3
guess "x" "f32[2]" "why"
symbol batch [1,64]
class layer "Block"
graph @main {
  input %x: f32[batch]
  input %z: f32[batch]
  param %w: f32[2] = [1, 2]
  %a: f32[batch], %b: f32[2] = op.one(%x, _) {axis=1, mode="m"} @layer/conv !"aten::one" ("m.py":3 f "s") < ("t.py":9)
  op.two(%a)
  region then {
    arg %i: i64[]
    %c: f32[2] = op.three(%i)
    return %c
  }
  return %b, %a
}
func @helper {
  return
}
"""


@every(
    ("old", "new", "words"),
    [
        ('format "onnx"', 'format "pt2"', "the format is 'onnx' and 'pt2'"),
        ('"opset" "17"', '"opset" "18"', "the metadata 'opset' is '17' and '18'"),
        ('"opset" "17"', '"op" "17"', "only the first has the metadata 'opset'"),
        ('given "k" 3', "", "only the first has the given value 'k'"),
        ('"f32[2]" "why"', '"f32[3]" "why"', "what is assumed is [Assumed(what='x', value='f32[2]'"),
        ("symbol batch [1,64]", "symbol batch [2,64]", "the symbol 'batch' is batch [1,64] and batch [2,64]"),
        ("symbol batch", "bound batch", "only the first has the symbol 'batch'"),
        ("@helper", "@other", "the functions are helper and other"),
        ("graph @main", "graph @model", "graph @main: the name of the graph is 'main' and 'model'"),
        ("  input %z: f32[batch]\n", "", "graph @main: the first has 2 inputs, the second 1"),
        ("%z: f32[batch]", "%z: f32[2]", "graph @main: the type of input 1 is 'f32[batch]' and 'f32[2]'"),
        ("%z:", "%y:", "graph @main: the name of input 1 is 'z' and 'y'"),
        ("param %w", "buffer %w", "graph @main: the role of weight 0 is 'param' and 'buffer'"),
        ("[1, 2]", "[1, 3]", "graph @main: the data of w is = [1, 2] and = [1, 3]"),
        ("[1, 2]", "[1, 2.0]", "graph @main: the data of w is = [1, 2] and = [1, 2.0]"),
        ("[1, 2]", 'file("w", 0, 8)', 'graph @main: the data of w is = [1, 2] and = file("w", 0, 8)'),
        (" = [1, 2]", "", "graph @main: the data of w is = [1, 2] and not in the text"),
        ("op.one", "op.uno", "graph @main: the operator is 'op.one' and 'op.uno', at %a: f32[batch], %b: f32[2] = op.one(%x, _)"),
        ("(%x, _)", "(%z, _)", "graph @main: input 0 is %x and %z, at %a"),
        ("(%x, _)", "(%x, %x)", "graph @main: input 1 is _ and %x, at %a"),
        ("(%x, _)", "(%x)", "graph @main: the number of inputs is 2 and 1, at %a"),
        ("%a: f32[batch], %b", "%a: f32[batch], %b2: ?, %b", "graph @main: the number of outputs is 2 and 3, at %a"),
        ("%b: f32[2]", "%b: f32[3]", "graph @main: the type of output 1 is 'f32[2]' and 'f32[3]', at %a"),
        ("axis=1", "axis=true", "graph @main: the attribute 'axis' is 1 and true, at %a"),
        ("axis=1", "axis=1.0", "graph @main: the attribute 'axis' is 1 and 1.0, at %a"),
        ("axis=1", "axis=[1]", "graph @main: the attribute 'axis' is 1 and [1], at %a"),
        ("axis=1, ", "", "graph @main: only the first has the attribute 'axis', at %a"),
        ("axis=1", "axis=1, b=2", "graph @main: only the second has the attribute 'b', at %a"),
        ('!"aten::one"', '!"aten::two"', "graph @main: the source operator is 'aten::one' and 'aten::two', at %a"),
        ("@layer/conv", "@layer/fc", "graph @main: the scope is layer/conv of class Block/- and layer/fc of class Block/-, at %a"),
        ("@layer/conv", "@layer", "graph @main: the scope is layer/conv of class Block/- and layer of class Block, at %a"),
        ('class layer "Block"', 'class "" "Net"', "graph @main: the scope is layer/conv of class Block/- and layer/conv of class -/-"),
        ('("m.py":3', '("m.py":4', 'graph @main: the location is ("m.py":3 f "s") < ("t.py":9) and ("m.py":4 f "s") < ("t.py":9), at %a'),
        (' < ("t.py":9)', "", 'graph @main: the location is ("m.py":3 f "s") < ("t.py":9) and ("m.py":3 f "s"), at %a'),
        ("region then", "region else", "graph @main: the regions is ['then'] and ['else'], at op.two(%a)"),
        ("op.three", "op.four", "graph @main: region 'then' of op.two: the operator is 'op.three' and 'op.four'"),
        ("return %c", "return", "graph @main: region 'then' of op.two: the number of returned values is 1 and 0"),
        ("return %b, %a", "return %a, %a", "graph @main: returned value 0 is %b and %a"),
        ("  return %b", "  op.more()\n  return %b", "graph @main: only the second has the node op.more()"),
        ("func @helper {\n", "func @helper {\n  op.more()\n", "graph @helper: only the second has the node op.more()"),
    ],
)
def test_a_difference_is_told(old: str, new: str, words: str) -> None:
    assert TEXT.count(old) >= 1
    program, other = parse_program(TEXT), parse_program(TEXT.replace(old, new, 1))
    found = difference(program, other)
    assert found.startswith(words)
    assert difference(other, program) is not None


def test_equal_programs_and_those_from_other_files_do_not_differ() -> None:
    assert difference(parse_program(TEXT), parse_program(TEXT, path="b.irs")) is None


def with_attr(value: object) -> Program:
    graph = Graph()
    graph.append("a", attrs={"v": value})
    graph.set_outputs([])
    return Program(graph)


def test_special_numbers_are_told_apart() -> None:
    assert difference(with_attr(math.nan), with_attr(-math.nan)) is None
    assert difference(with_attr(0.0), with_attr(-0.0)) is not None
    assert difference(with_attr((1, (True,))), with_attr((1, (1,)))) is not None
    assert difference(with_attr(complex(0, math.nan)), with_attr(complex(0, math.nan))) is None


def test_bytes_of_weights_count() -> None:
    def program(data: bytes) -> Program:
        graph = Graph()
        graph.add_weight(UNKNOWN_TYPE, "w", data=Blob(data))
        graph.set_outputs([])
        return Program(graph)

    assert difference(program(b"a"), program(b"a")) is None
    assert difference(program(b"a"), program(b"b")) is not None


def test_not_a_number_in_data_equals_itself() -> None:
    def program() -> Program:
        graph = Graph()
        graph.add_weight(UNKNOWN_TYPE, "w", data=Literal((float("nan"),)))
        graph.set_outputs([])
        return Program(graph)

    assert difference(program(), program()) is None


def test_the_order_of_attributes_does_not_count() -> None:
    assert difference(parse_program(TEXT), parse_program(TEXT.replace('axis=1, mode="m"', 'mode="m", axis=1'))) is None
