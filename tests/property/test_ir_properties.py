"""The IR under random programs: what is printed reads back the same, edits keep the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import IrscopeError, LoadError
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, runs
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.ir.program import Program, facet_contents
from irscope.ir.spelling import parse_type
from irscope.ir.types import UNKNOWN_TYPE, tensor
from irscope.ir.verify import verify
from irscope.ops.registry import find_op
from tests.property.strategies import SIZE_TABLES, programs, tensor_programs, types
from tests.tools.difference import difference


@pytest.mark.slow
@given(programs())
def test_what_is_printed_reads_back_the_same(program: Program) -> None:
    text = print_program(program)
    assert text.isascii()
    assert [char for char in text if not (char.isprintable() or char == "\n")] == []
    again = parse_program(text)
    assert difference(program, again) is None
    assert difference(again, program) is None
    assert print_program(again) == text
    assert verify(again) == []


@pytest.mark.slow
@given(programs())
def test_random_programs_keep_the_rules(program: Program) -> None:
    assert verify(program) == []


@given(tensor_programs())
def test_tensor_programs_keep_the_rules_and_use_known_operators(program: Program) -> None:
    assert verify(program) == []
    assert [node.op for node in program.graph.walk() if not node.regions and find_op(node.op) is None] == []
    assert difference(program, parse_program(print_program(program))) is None


@given(st.data())
def test_types_read_back_as_themselves(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(SIZE_TABLES))
    sizes = {str(size): size for size in table}
    type_ = data.draw(types(table))
    assert parse_type(str(type_), lambda name: sizes[name]) is type_


# -- walking ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(programs())
def test_runs_hold_every_node_once_and_close_what_they_open(program: Program) -> None:
    opened: list[Graph] = []
    nodes: list[Node] = []
    for run in runs(program.graph):
        if run.opens:
            opened.append(run.graph)
        assert opened[-1] is run.graph
        assert run.depth == len(opened) - 1
        assert all(not node.regions for node in run.nodes[:-1])
        nodes.extend(run.nodes)
        if run.closes:
            opened.pop()
    assert opened == []
    assert nodes == list(program.graph.walk())


# -- edits -------------------------------------------------------------------------------------------------------


SOME_DTYPES = (DType.F32, DType.I64)
Draw = Callable[[st.SearchStrategy[Any]], Any]


def erase(node: Node, graph: Graph, draw: Draw) -> None:
    if not any(output.users for output in node.outputs):
        graph.erase(node)


def retype(node: Node, graph: Graph, draw: Draw) -> None:
    for output in node.outputs[:1]:
        graph.set_type(output, tensor(draw(st.sampled_from(SOME_DTYPES)), None))


def replace_uses(node: Node, graph: Graph, draw: Draw) -> None:
    if node.outputs and node.inputs and node.inputs[0] is not None:
        graph.replace_uses(node.outputs[0], node.inputs[0])


def unset(node: Node, graph: Graph, draw: Draw) -> None:
    if node.inputs and node.attrs.get("inplace") != 0:
        graph.set_input(node, 0, None)


def replace(node: Node, graph: Graph, draw: Draw) -> None:
    graph.replace(node, "math.neg", types=[UNKNOWN_TYPE for _ in node.outputs])


def write_op(node: Node, graph: Graph, draw: Draw) -> None:
    node.op = "math.neg"


def write_inputs(node: Node, graph: Graph, draw: Draw) -> None:
    if "inplace" not in node.attrs:
        node.inputs = node.inputs[::-1]


def write_attrs(node: Node, graph: Graph, draw: Draw) -> None:
    if node.op != "cf.call":
        node.attrs = {"axis": draw(st.integers(-3, 3))}


def write_scope(node: Node, graph: Graph, draw: Draw) -> None:
    node.scope = node.scope.child("inner")


def write_output(node: Node, graph: Graph, draw: Draw) -> None:
    for output in node.outputs[:1]:
        output.name = None
        output.type = tensor(draw(st.sampled_from(SOME_DTYPES)), None)


EDITS: list[Callable[[Node, Graph, Draw], object]] = [
    erase,
    retype,
    replace_uses,
    unset,
    replace,
    write_op,
    write_inputs,
    write_attrs,
    write_scope,
    write_output,
    lambda node, graph, draw: graph.set_attr(node, "axis", draw(st.integers(-3, 3))),
    lambda node, graph, draw: graph.insert_before(node, "math.neg", node.inputs[:1], [UNKNOWN_TYPE]),
    lambda node, graph, draw: graph.add_weight(tensor(SOME_DTYPES[0], (2,))),
]


def edit(program: Program, draw: Draw) -> None:
    """One change, through a method of Graph or by writing a field."""
    nodes = list(program.graph.walk())
    if nodes:
        node = draw(st.sampled_from(nodes))
        assert node.graph is not None
        draw(st.sampled_from(EDITS))(node, node.graph, draw)


@pytest.mark.slow
@given(programs(), st.data())
def test_edits_keep_the_rules_and_are_counted(program: Program, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 6))):
        contents, versions = facet_contents(program), list(program.graph.versions)
        edit(program, data.draw)
        changed = [old != new for old, new in zip(contents, facet_contents(program), strict=True)]
        counted = [
            old != new or program.graph.versions[0] != versions[0] for old, new in zip(versions, program.graph.versions, strict=True)
        ]
        assert all(not one or other for one, other in zip(changed, counted, strict=True))
    assert verify(program) == []
    assert difference(program, parse_program(print_program(program))) is None


# -- differences and damage --------------------------------------------------------------------------------------


@pytest.mark.slow
@given(programs(), programs())
def test_two_programs_are_the_same_only_if_their_texts_are(a: Program, b: Program) -> None:
    same = difference(a, b) is None
    assert same == (difference(b, a) is None)
    if same:
        assert print_program(a) == print_program(b) or a.metadata == b.metadata
    else:
        assert print_program(a) != print_program(b)


@pytest.mark.slow
@given(programs(), st.data())
def test_damaged_text_is_refused_in_one_way_or_still_sound(program: Program, data: st.DataObject) -> None:
    text = print_program(program)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["cut", "drop", "put", "double"]))
        piece = data.draw(st.sampled_from([*'%{}[]()<>@!":=,#*\\ \n0a_?.-', "region x {", "return", "\u202e", "9" * 5000, "(" * 3000]))
        text = {
            "cut": text[:at],
            "drop": text[:at] + text[at + 1 :],
            "put": text[:at] + piece + text[at:],
            "double": text[:at] + text[max(0, at - 9) :],
        }[kind]
    error: LoadError | None = None
    try:
        read = parse_program(text, path="damaged.irs")
    except LoadError as raised:
        error = raised
    if error is None:
        assert difference(read, parse_program(print_program(read))) is None
        return
    assert error.code == "IRS121"
    assert str(error).startswith("damaged.irs:")
    assert error.message.endswith("^")


@given(st.text())
def test_any_text_is_refused_cleanly(text: str) -> None:
    with pytest.raises(LoadError):
        parse_program(text)


@given(st.text(alphabet='f32[]<>(),?*@"seqtuplmap 9b-', max_size=30))
def test_any_type_text_is_read_or_refused(text: str) -> None:
    try:
        type_ = parse_type(text)
    except IrscopeError:
        return
    assert parse_type(str(type_)) is type_
