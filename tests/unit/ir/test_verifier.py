"""The verifier: every rule is broken once, by hand, and must be noticed with its own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from irscope.codes import CODES
from irscope.errors import ExitCode, VerifyError
from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.parser import parse_program
from irscope.ir.places import Literal, root_scope
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TYPE, tensor
from irscope.ir.verify import MAX_FINDINGS, check, verify
from tests.tables import every

TEXT = """\
irscope 1
symbol batch [1,64]
graph @main {
  input %x: f32[batch]
  param %w: f32[2] = [1, 2]
  %a: f32[batch] = math.neg(%x) {inplace=0} @layer
  %b: f32[batch] = math.add(%a, %a)
  %c: f32[batch] = cf.if(%x)
  region then {
    arg %i: i64[]
    %d: f32[batch] = math.neg(%b)
    return %d
  }
  %e: f32[batch] = cf.call(%c) {callee="helper"}
  return %e
}
func @helper {
  input %x: f32[batch]
  return %x
}
"""


def parts() -> tuple[Program, Graph, dict[str, Node]]:
    """A sound program and its nodes by name."""
    program = parse_program(TEXT)
    return program, program.graph, {node.name: node for node in program.graph.walk()}


def output(node: Node) -> Value:
    return node.outputs[0]


def force(thing: object, field: str, to: object) -> None:
    """Set a field past what keeps others from setting it."""
    object.__setattr__(thing, field, to)


def forget_users(program: Program, nodes: dict[str, Node]) -> None:
    force(output(nodes["a"]), "_users", None)


def miscount_users(program: Program, nodes: dict[str, Node]) -> None:
    force(output(nodes["a"]), "_users", {nodes["b"]: 1})


def add_stale_user(program: Program, nodes: dict[str, Node]) -> None:
    users = output(nodes["a"]).users
    users[nodes["e"]] = 1


def forget_returner(program: Program, nodes: dict[str, Node]) -> None:
    force(output(nodes["e"]), "_users", None)


def read_later_value(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_input(nodes["a"], 0, output(nodes["b"]))


def read_own_value(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_input(nodes["a"], 0, output(nodes["a"]))


def read_value_of_region(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_input(nodes["e"], 0, output(nodes["d"]))


def read_value_of_function(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_input(nodes["e"], 0, program.functions["helper"].inputs[0])


def read_erased_value(program: Program, nodes: dict[str, Node]) -> None:
    node = program.graph.insert_before(nodes["a"], "gone", [], [UNKNOWN_TYPE])
    program.graph.erase(node)
    program.graph.set_input(nodes["e"], 0, output(node))


def return_value_of_region(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_outputs([output(nodes["d"])])


def swap_nodes(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.move_before(nodes["b"], nodes["a"])


def break_link_back(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["b"], "prev", None)


def make_circle(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["b"], "next", nodes["a"])


def cut_list(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["b"], "next", None)


def swap_order_numbers(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["a"], "order", nodes["b"].order)


def give_node_away(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["a"], "graph", program.functions["helper"])


def share_region(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["e"], "regions", nodes["c"].regions)


def nest_region_in_itself(program: Program, nodes: dict[str, Node]) -> None:
    force(nodes["d"], "regions", nodes["c"].regions)


def split_versions(program: Program, nodes: dict[str, Node]) -> None:
    nodes["c"].regions[0].versions = [0] * len(Facet)


def misname_function(program: Program, nodes: dict[str, Node]) -> None:
    program.functions["helper"].name = "other"


def list_region_as_function(program: Program, nodes: dict[str, Node]) -> None:
    program.functions["then"] = nodes["c"].regions[0]


def repeat_body(program: Program, nodes: dict[str, Node]) -> None:
    program.functions["main"] = program.graph


def hang_body_below_scope(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.scope = program.graph.scope.children[0]


def use_foreign_scope(program: Program, nodes: dict[str, Node]) -> None:
    nodes["a"].scope = root_scope().child("elsewhere")


def misstate_producer(program: Program, nodes: dict[str, Node]) -> None:
    force(output(nodes["a"]), "node", nodes["b"])


def misstate_position(program: Program, nodes: dict[str, Node]) -> None:
    force(output(nodes["a"]), "index", 1)


def misstate_role(program: Program, nodes: dict[str, Node]) -> None:
    output(nodes["a"]).role = Role.PARAMETER


def make_input_an_argument(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.inputs[0].role = Role.ARGUMENT


def make_argument_an_input(program: Program, nodes: dict[str, Node]) -> None:
    nodes["c"].regions[0].inputs[0].role = Role.INPUT


def make_weight_an_input(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.weights[0].role = Role.INPUT


def give_weight_away(program: Program, nodes: dict[str, Node]) -> None:
    force(program.graph.weights[0], "declared_in", None)


def declare_input_twice(program: Program, nodes: dict[str, Node]) -> None:
    list.append(cast("list[Value]", program.graph.inputs), program.graph.inputs[0])


def give_data_to_input(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.data[program.graph.inputs[0]] = Literal((1,))


def give_too_much_data(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.data[program.graph.weights[0]] = Literal((1, 2, 3))


def make_size_negative(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_type(output(nodes["a"]), tensor(DType.F32, (-1,)))


def repeat_name(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.rename(output(nodes["e"]), "x")


def repeat_name_in_region(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.rename(output(nodes["d"]), "x")


def repeat_name_of_later_value_in_region(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.rename(output(nodes["d"]), "e")


def call_nobody(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_attr(nodes["e"], "callee", "nobody")


def call_in_circle(program: Program, nodes: dict[str, Node]) -> None:
    helper, other = program.functions["helper"], Graph("other")
    program.functions["other"] = other
    helper.append("cf.call", attrs={"callee": "other"})
    other.append("cf.call", attrs={"callee": "helper"})


def write_to_missing_input(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_attr(nodes["a"], "inplace", 1)


def write_to_no_value(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_input(nodes["a"], 0, None)


def write_to_truth(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_attr(nodes["b"], "inplace", True)


def use_list_as_attr(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_attr(nodes["b"], "axes", (1, [2]))


def nest_attr_too_deep(program: Program, nodes: dict[str, Node]) -> None:
    value: tuple[object, ...] = ()
    for _ in range(100):
        value = (value,)
    program.graph.set_attr(nodes["b"], "axes", value)


def use_number_as_key(program: Program, nodes: dict[str, Node]) -> None:
    nodes["b"].attrs = {1: 1}  # type: ignore[dict-item]  # this is what must be found


def use_other_bounds(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_type(output(nodes["a"]), tensor(DType.F32, (symbol("batch", 5, 6) + 1,)))


def use_other_bounds_in_attr(program: Program, nodes: dict[str, Node]) -> None:
    program.graph.set_attr(nodes["a"], "shape", (1, (symbol("batch", 5, 6),)))


def list_symbol_under_other_name(program: Program, nodes: dict[str, Node]) -> None:
    program.symbols["seq"] = symbol("batch", 1, 64)


def list_formula_as_symbol(program: Program, nodes: dict[str, Node]) -> None:
    size = symbol("batch", 1, 64) + 1
    assert not isinstance(size, int)
    program.symbols["batch + 1"] = size


Damage = Callable[[Program, dict[str, Node]], None]


@every(
    ("damage", "code", "words"),
    [
        (forget_users, "IRS123", "%a does not list this node as its reader, or not as often: %b: f32[batch] = math.add(%a, %a)"),
        (miscount_users, "IRS123", "%a does not list this node as its reader"),
        (add_stale_user, "IRS123", "%a lists readers that do not read it: %a: f32[batch] = math.neg(%x) {inplace=0} @layer"),
        (forget_returner, "IRS123", "%e does not list graph @main, which returns it"),
        (read_later_value, "IRS122", "input 0 reads %b before it is defined: %a: f32[batch] = math.neg(%b)"),
        (read_own_value, "IRS122", "input 0 reads %a before it is defined"),
        (read_value_of_region, "IRS122", "input 0 reads %d, which belongs to region 'then' of c: %e"),
        (read_value_of_function, "IRS122", "input 0 reads %x, which belongs to graph @helper: %e"),
        (read_erased_value, "IRS122", "input 0 reads %?, which was erased: %e"),
        (return_value_of_region, "IRS122", "graph @main returns %d, which belongs to region 'then' of c"),
        (swap_nodes, "IRS122", "input 0 reads %a before it is defined: %b"),
        (break_link_back, "IRS120", "the node's link back does not lead to the node before it: %b"),
        (make_circle, "IRS120", "the node's link back does not lead to the node before it: %a"),
        (cut_list, "IRS120", "graph @main has 2 nodes in its list, but counts 4"),
        (swap_order_numbers, "IRS120", "the node's order number is not above that of the node before it: %b"),
        (give_node_away, "IRS120", "a node in the list of graph @main says that it belongs elsewhere: %a"),
        (share_region, "IRS120", "the region 'then' names another node as its owner: %e"),
        (nest_region_in_itself, "IRS120", "the region 'then' names another node as its owner: %d"),
        (split_versions, "IRS120", "region 'then' of c counts its changes apart from @main"),
        (misname_function, "IRS120", "the function 'helper' has a graph of another name, @other"),
        (list_region_as_function, "IRS120", "region 'then' of c is listed as a body of its own"),
        (repeat_body, "IRS120", "graph @main occurs twice"),
        (hang_body_below_scope, "IRS120", "the scope of graph @main is not the root of a tree"),
        (use_foreign_scope, "IRS120", "the node's scope belongs to another tree than the graph's: %a"),
        (misstate_producer, "IRS120", "output 0 does not know its node, its position or its role: %a"),
        (misstate_position, "IRS120", "output 0 does not know its node, its position or its role: %a"),
        (misstate_role, "IRS120", "output 0 does not know its node, its position or its role: %a"),
        (make_input_an_argument, "IRS120", "%x of graph @main has the role arg, not input"),
        (make_argument_an_input, "IRS120", "%i of region 'then' of c has the role input, not arg"),
        (make_weight_an_input, "IRS120", "%w of graph @main has the role input, which no weight has"),
        (give_weight_away, "IRS120", "%w of graph @main does not know its graph or its position"),
        (declare_input_twice, "IRS120", "%x of graph @main does not know its graph or its position"),
        (give_data_to_input, "IRS120", "%x of graph @main has data there, but is not one of its weights"),
        (give_too_much_data, "IRS120", "%w of graph @main has 3 values for 2 elements"),
        (make_size_negative, "IRS120", "the type f32[-1] has a negative size"),
        (repeat_name, "IRS124", "the name 'x' stands for two values, the second in graph @main: %\"x~2\""),
        (repeat_name_in_region, "IRS124", "the name 'x' stands for two values, the second in region 'then' of c"),
        (repeat_name_of_later_value_in_region, "IRS124", "the name 'e' stands for two values, the second in region 'then' of c"),
        (call_nobody, "IRS125", "there is no function 'nobody': %e"),
        (call_in_circle, "IRS125", "the function 'helper' calls itself: helper > other > helper"),
        (write_to_missing_input, "IRS126", "inplace=1 names no input: %a"),
        (write_to_no_value, "IRS126", "inplace=0 names no input: %a"),
        (write_to_truth, "IRS126", "inplace=True names no input: %b"),
        (use_list_as_attr, "IRS126", "the attribute 'axes' holds a tuple or something nested too deep: %b"),
        (nest_attr_too_deep, "IRS126", "the attribute 'axes' holds a tuple or something nested too deep: %b"),
        (use_number_as_key, "IRS126", "the attribute name 1 is not a string"),
        (use_other_bounds, "IRS127", "the size batch has the bounds [1,64] in one place and [5,6] in another"),
        (use_other_bounds_in_attr, "IRS127", "the size batch has the bounds [1,64] in one place and [5,6] in another"),
        (list_symbol_under_other_name, "IRS127", "the symbol table lists batch under the name 'seq'"),
        (list_formula_as_symbol, "IRS127", "the symbol table lists batch + 1 under the name 'batch + 1'"),
    ],
    ids=lambda item: item.__name__ if callable(item) else "",
)
def test_a_broken_rule_is_found(damage: Damage, code: str, words: str) -> None:
    program, _, nodes = parts()
    assert verify(program) == []
    damage(program, nodes)
    diagnostics = verify(program)
    assert diagnostics
    assert diagnostics[0].code == code
    assert diagnostics[0].message.startswith(words)
    assert code in CODES


def test_check_raises_about_the_first_problem_and_counts_the_others() -> None:
    program, graph, nodes = parts()
    check(program)
    program.path = "model.irs"
    graph.set_attr(nodes["a"], "inplace", 7)
    graph.set_attr(nodes["e"], "callee", "nobody")
    with pytest.raises(VerifyError, match=r"^model\.irs: inplace=7 names no input: %a.* \(and 1 more problem\)$") as caught:
        check(program)
    assert caught.value.code == "IRS126"
    assert caught.value.exit_code is ExitCode.LOAD


def test_a_finding_names_the_node_and_its_place_in_the_source() -> None:
    program = parse_program('irscope 1\ngraph @g {\n  input %x: ?\n  %y: ? = a(%x) {inplace=3} ("m.py":12)\n  return\n}\n')
    (found,) = verify(program)
    assert (found.node, found.location) == ("y", "m.py:12")


def test_very_many_problems_are_counted_not_listed() -> None:
    graph = Graph()
    x = graph.add_input(UNKNOWN_TYPE, "x")
    for _ in range(3 * MAX_FINDINGS):
        graph.append("a", [x], attrs={"inplace": 1})
    diagnostics = verify(Program(graph))
    assert len(diagnostics) == MAX_FINDINGS + 1
    assert diagnostics[-1].message == f"there are {2 * MAX_FINDINGS} more problems"


def test_a_node_with_very_many_inputs_is_shown_short() -> None:
    graph = Graph()
    x = graph.add_input(UNKNOWN_TYPE, "x")
    graph.append("a", [x] * 5_000, attrs={"inplace": -1})
    (found,) = verify(Program(graph))
    assert len(found.message) < 300


def test_reading_a_value_many_times_is_sound() -> None:
    graph = Graph()
    x = graph.add_input(UNKNOWN_TYPE, "x")
    graph.append("a", [x, None] * 1_000)
    graph.set_outputs([x, x])
    assert verify(Program(graph)) == []


def test_deep_nests_and_long_chains_are_checked_without_recursion() -> None:
    graph = Graph()
    x = graph.add_input(UNKNOWN_TYPE, "x")
    inner = graph
    for _ in range(3_000):
        node = inner.append("cf.if", [x])
        inner.set_outputs([x])
        inner = inner.add_region(node, "then")
    for _ in range(3_000):
        x = inner.append("a", [x], [UNKNOWN_TYPE]).outputs[0]
    inner.set_outputs([x])
    assert verify(Program(graph)) == []
    graph.set_outputs([x])
    (found,) = verify(Program(graph))
    assert found.code == "IRS122"
