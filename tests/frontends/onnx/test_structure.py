"""The structure of a model: functions, control flow, sequences, scopes."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.onnx import program as program_module
from irscope.frontends.onnx.model import Locations, Scopes
from irscope.frontends.onnx.program import find_lowering
from irscope.ir.graph import Graph
from irscope.ir.places import root_scope
from irscope.ir.verify import check
from tests.frontends.onnx.build import BOOL, FLOAT, INT64, graph, ints, load, lowered, model, shown, value

# Names, order, functions and regions.

node = helper.make_node


def refused(proto: onnx.ModelProto) -> LoadError:
    with pytest.raises(LoadError) as caught:
        load(proto)
    assert "\n" not in str(caught.value)
    return caught.value


def test_unsorted_nodes_are_sorted() -> None:
    sink = DiagnosticSink()
    program = load(model([node("Relu", ["b"], ["y"]), node("Neg", ["a"], ["b"]), node("Abs", ["x"], ["a"])]), sink=sink)
    assert shown(program) == ["math.abs(x)", "math.neg(a)", "nn.relu(b)"]
    assert [diagnostic.code for diagnostic in sink] == ["IRS150"]


def test_nodes_before_the_first_that_is_too_early_stay_where_they_are() -> None:
    nodes = [node("Relu", ["x"], ["b"]), node("Abs", ["b"], ["a"]), node("Add", ["c", "a"], ["y"]), node("Neg", ["x"], ["c"])]
    program = load(model(nodes))
    assert shown(program) == ["nn.relu(x)", "math.abs(b)", "math.neg(x)", "math.add(c, a)"]
    assert list(program.origins) == [0, 1, 3, 2]


def test_captured_values_count_for_the_order() -> None:
    branch = graph([node("Identity", ["late"], ["z"])], outputs=["z"])
    nodes = [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch), node("Neg", ["x"], ["late"])]
    program = load(model(nodes, [value("x"), value("c", [], BOOL)]))
    assert [made.op for made in program.graph] == ["math.neg", "cf.if"]


@pytest.mark.parametrize(
    ("nodes", "code", "text"),
    [
        ([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["a", "b"], ["y"])], "IRS143", "depends on itself"),
        ([node("Relu", ["y"], ["y"])], "IRS143", "depends on itself"),
        ([node("Relu", ["nowhere"], ["y"])], "IRS142", "'nowhere' is used"),
        ([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], "IRS142", "made twice"),
        ([node("Relu", ["x"], ["x"])], "IRS142", "made twice"),
        ([node("Split", ["x"], ["y", "y"])], "IRS142", "made twice"),
        ([node("Abs", ["z"], ["y"]), node("Relu", ["x"], ["z"]), node("Relu", ["x"], ["z"])], "IRS142", "made twice"),
        ([node("Relu", ["x"], ["z"])], "IRS142", "output 'y'"),
    ],
)
def test_malformed_graphs(nodes: list[onnx.NodeProto], code: str, text: str) -> None:
    error = refused(model(nodes))
    assert error.code == code
    assert text in str(error)


def test_names_declared_twice() -> None:
    assert refused(model([node("Relu", ["x"], ["y"])], [value("x"), value("x")])).code == "IRS142"
    assert refused(model([node("Relu", ["w"], ["y"])], initializers=[ints("w", 1), ints("w", 2)])).code == "IRS142"


def test_messages_escape_control_characters() -> None:
    assert "\\x1b[31m" in str(refused(model([node("Relu", ["\x1b[31mred"], ["y"])])))


def test_odd_names_stay_raw() -> None:
    names = ["\x00nul", "\u202ebidi", "a\nb", "x" * 10_000]
    nodes = [node("Relu", [before], [after]) for before, after in zip(["x", *names], [*names, "y"], strict=True)]
    program = load(model(nodes))
    assert [made.name for made in program.graph] == [*names, "y"]


def test_a_node_without_results_and_an_absent_operand() -> None:
    program = load(model([node("Clip", ["x", "", "high"], ["y"]), node("Relu", ["x"], [])], [value("x"), value("high", [])]))
    assert shown(program) == ["math.clamp(x, -, high)", "nn.relu(x)"]


def test_many_nodes_in_reverse() -> None:
    count = 3000
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    program = load(model(nodes[::-1], [value("v0")], [f"v{count}"]))
    assert [made.name for made in program.graph] == [f"v{i + 1}" for i in range(count)]


def regions(program_graph: Graph) -> dict[str, list[str]]:
    return {region.name: [made.op for made in region] for made in program_graph for region in made.regions}


def test_if_with_captured_values_and_weights() -> None:
    then = graph([node("Add", ["x", "w"], ["out"])], outputs=["out"], initializers=[helper.make_tensor("w", FLOAT, [1], [2.0])])
    other = graph([node("Neg", ["hidden"], ["out"])], outputs=["out"])
    nodes = [node("Relu", ["x"], ["hidden"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    program = load(model(nodes, [value("x"), value("c", [], BOOL)]))
    assert regions(program.graph) == {"then": ["math.add"], "else": ["math.neg"]}
    assert [weight.name for weight in program.graph.weights] == ["w"]
    check(program)


def test_a_branch_may_return_a_value_from_around_it() -> None:
    branch = graph([], outputs=["x"])
    program = load(model([node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [value("x"), value("c", [], BOOL)]))
    made = program.graph.first
    assert made is not None
    assert [region.outputs for region in made.regions] == [(program.graph.inputs[0],)] * 2


def test_names_inside_may_hide_those_around() -> None:
    branch = graph([node("Neg", ["x"], ["t"])], outputs=["t"])
    nodes = [node("Relu", ["x"], ["t"]), node("If", ["c"], ["z"], then_branch=branch, else_branch=branch), node("Add", ["t", "z"], ["y"])]
    program = load(model(nodes, [value("x"), value("c", [], BOOL)]))
    names = [made.name for made in program.graph.walk()]
    assert names == ["t", "z", "t.1", "t.2", "y"]
    assert shown(program)[-1] == "math.add(t, z)"


def loop_body() -> onnx.GraphProto:
    inputs = [value("i", [], INT64), value("go", [], BOOL), value("state", None)]
    return graph([node("Add", ["state", "x"], ["next"]), node("Relu", ["next"], ["scan"])], inputs, ["go", "next", "scan"])


def test_loop() -> None:
    program = load(model([node("Loop", ["n", "", "x"], ["y"], body=loop_body())], [value("x"), value("n", [], INT64)]))
    made = program.graph.first
    assert made is not None
    assert (made.op, len(made.inputs), len(made.outputs)) == ("cf.loop", 3, 2)
    region = made.regions[0]
    assert (len(region.inputs), len(region.outputs)) == (3, 3)
    check(program)


def test_a_loop_whose_body_does_not_fit() -> None:
    proto = model([node("Loop", ["n", "", "x", "x"], ["y"], body=loop_body())], [value("x"), value("n", [], INT64)])
    assert "takes 3 values" in str(refused(proto))


def scan_body() -> onnx.GraphProto:
    return graph([node("Add", ["s", "e"], ["t"])], [value("s", None), value("e", None)], ["t", "t"])


@pytest.mark.parametrize(
    ("opset", "operands", "ops"), [(21, ["x", "z"], ["cf.scan", "math.add"]), (8, ["", "x", "z"], ["cf.scan", "cf.scan", "math.add"])]
)
def test_scan(opset: int, operands: list[str], ops: list[str]) -> None:
    proto = model([node("Scan", operands, ["y", "k"], body=scan_body(), num_scan_inputs=1)], [value("x"), value("z")], opset=opset)
    program = load(proto)
    assert [made.op for made in program.graph.walk()] == ops
    check(program)


def test_sequence_map() -> None:
    body = graph([node("Identity", ["e"], ["f"])], [value("e", None)], ["f"])
    sequence = helper.make_value_info("q", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))
    program = load(model([node("SequenceMap", ["q"], ["y"], body=body)], [sequence]))
    assert [made.op for made in program.graph.walk()] == ["cf.map", "view.alias"]


def function(name: str, nodes: list[onnx.NodeProto], attributes: tuple[str, ...] = (), **more: object) -> onnx.FunctionProto:
    return helper.make_function(
        "local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)], list(attributes), **more
    )


def with_functions(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> onnx.ModelProto:
    proto = model(nodes, local=1)
    proto.functions.extend(functions)
    return proto


def test_nested_functions_are_inlined_with_a_scope_per_call() -> None:
    inner = function("Inner", [node("Relu", ["a"], ["b"])])
    outer = function("Outer", [node("Inner", ["a"], ["m"], domain="local", name="first"), node("Inner", ["m"], ["b"], domain="local")])
    program = load(
        with_functions(
            [node("Outer", ["x"], ["h"], domain="local", name="/model/block"), node("Outer", ["h"], ["y"], domain="local")], inner, outer
        )
    )
    assert shown(program) == ["nn.relu(x)", "nn.relu(/model/block/m)", "nn.relu(h)", "nn.relu(y/m)"]
    assert [made.scope.path for made in program.graph] == ["model/block/first", "model/block/Inner", "Outer/first", "Outer/Inner"]
    assert [scope.cls for scope in next(iter(program.graph)).scope.chain] == ["", "Outer", "Inner"]
    assert [made.outputs[0].name for made in program.graph][1::2] == ["h", "y"]


def test_function_attributes_and_defaults() -> None:
    relu = node("LeakyRelu", ["a"], ["b"])
    relu.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    given = function("Given", [relu], ("slope",))
    default = function("Default", [relu], attribute_protos=[helper.make_attribute("slope", 0.25)])
    nodes = [
        node("Given", ["x"], ["p"], domain="local", slope=0.5),
        node("Given", ["p"], ["q"], domain="local"),
        node("Default", ["q"], ["r"], domain="local"),
        node("Default", ["r"], ["y"], domain="local", slope=2.0),
    ]
    assert [made.attrs["alpha"] for made in load(with_functions(nodes, given, default)).graph] == [0.5, 0.01, 0.25, 2.0]


def test_constants_of_a_function_are_shared_by_its_calls() -> None:
    body = [node("Constant", [], ["c"], value_floats=[1.0, 2.0]), node("Add", ["a", "c"], ["b"])]
    program = load(with_functions([node("F", ["x"], ["m"], domain="local"), node("F", ["m"], ["y"], domain="local")], function("F", body)))
    assert len(program.graph.weights) == 1


def test_functions_may_replace_standard_operators_and_have_overloads() -> None:
    shadow = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"], domain="")], [helper.make_opsetid("", 21)])
    one = function("F", [node("Abs", ["a"], ["b"])], overload="one")
    two = function("F", [node("Exp", ["a"], ["b"])], overload="two")
    nodes = [
        node("Relu", ["x"], ["m"]),
        node("F", ["m"], ["n"], domain="local", overload="one"),
        node("F", ["n"], ["y"], domain="local", overload="two"),
    ]
    program = load(with_functions(nodes, shadow, one, two))
    assert [made.op for made in program.graph] == ["math.neg", "math.abs", "math.exp"]


def test_a_function_has_its_own_operator_sets() -> None:
    old = helper.make_function("local", "Old", ["a"], ["b"], [node("Squeeze", ["a"], ["b"], axes=[0])], [helper.make_opsetid("", 11)])
    program = load(with_functions([node("Old", ["x"], ["y"], domain="local")], old))
    assert [made.attrs["axes"] for made in program.graph] == [(0,)]


def test_absent_arguments_and_functions_in_branches() -> None:
    optional = helper.make_function("local", "F", ["a", "low"], ["b"], [node("Clip", ["a", "low"], ["b"])], [helper.make_opsetid("", 21)])
    branch = graph([node("F", ["x"], ["z"], domain="local")], outputs=["z"])
    proto = with_functions([node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], optional)
    proto.graph.input.append(value("c", [], BOOL))
    program = load(proto)
    assert shown(program)[1:] == ["math.clamp(x, -)"] * 2
    check(program)


def test_recursion_is_refused() -> None:
    loop = [function("A", [node("B", ["a"], ["b"], domain="local")]), function("B", [node("A", ["a"], ["b"], domain="local")])]
    assert refused(with_functions([node("A", ["x"], ["y"], domain="local")], *loop)).code == "IRS146"


def test_functions_that_blow_up_are_refused() -> None:
    body = [[node(f"F{i + 1}", ["a"], ["m"], domain="local"), node(f"F{i + 1}", ["m"], ["b"], domain="local")] for i in range(40)]
    functions = [function(f"F{i}", nodes) for i, nodes in enumerate(body)] + [function("F40", [node("Relu", ["a"], ["b"])])]
    assert refused(with_functions([node("F0", ["x"], ["y"], domain="local")], *functions)).code == "IRS147"


def test_long_chains_of_functions_are_refused() -> None:
    functions = [function(f"F{i}", [node(f"F{i + 1}", ["a"], ["b"], domain="local")]) for i in range(2000)]
    functions.append(function("F2000", [node("Relu", ["a"], ["b"])]))
    assert refused(with_functions([node("F0", ["x"], ["y"], domain="local")], *functions)).code == "IRS147"


def test_operators_defined_by_others_are_inlined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        program_module, "find_lowering", lambda domain, name: None if name == "LessOrEqual" else find_lowering(domain, name)
    )
    assert [made.op for made in lowered("LessOrEqual", ["x", "z"])] == ["compare.less", "compare.equal", "math.or"]


@pytest.mark.parametrize(
    "bad",
    [
        node("Relu", ["x", "x"], ["y"]),
        node("Add", ["x"], ["y"]),
        node("Concat", ["x", "x"], ["y"]),
        node("Gather", ["x", "x"], ["y"], axis="zero"),
        node("Cast", ["x"], ["y"], to=99),
        node("Transpose", ["x"], ["y"], perm=[0.5]),
        node("If", ["x"], ["y"]),
        node("Constant", [], ["y"]),
        node("BitShift", ["x", "x"], ["y"], direction="UP"),
    ],
)
def test_nodes_that_do_not_fit_their_operator_are_kept(bad: onnx.NodeProto) -> None:
    sink = DiagnosticSink()
    program = load(model([bad]), sink=sink)
    assert [made.op for made in program.graph] == [f"onnx.{bad.op_type}"]
    assert [diagnostic.code for diagnostic in sink] == ["IRS153"]


def test_weights_inside_foreign_operators_count() -> None:
    decoder = graph(
        [node("MatMul", ["x", "w"], ["z"])], outputs=["z"], initializers=[helper.make_tensor("w", TensorProto.FLOAT, [3, 1], [1.0] * 3)]
    )
    proto = model([node("GreedySearch", ["x"], ["y"], domain="com.microsoft", decoder=decoder)], com_microsoft=1)
    program = load(proto)
    assert shown(program) == ["com.microsoft.GreedySearch(x, x, w)"]


# Module calls and source lines of nodes.

TRACE = """File "/models/llama.py", line 200, in forward
    hidden = self.layer(hidden)
  File "/models/llama.py", line 12, in forward
    return self.proj(x)
"""


@pytest.mark.parametrize(
    ("name", "op_type", "path"),
    [
        ("/layers.0/attn/q/MatMul", "MatMul", "layers.0/attn/q"),
        ("/MatMul_1", "MatMul", ""),
        ("MatMul_1", "MatMul", ""),
        ("a/b/op", "Relu", "a/b"),
        ("model.layers.0.Relu_3", "Relu", "model/layers/0"),
        ("v1.5", "Relu", ""),
        ("//x//y/Relu", "Relu", "x/y"),
        ("", "Relu", ""),
    ],
)
def test_scopes_from_names(name: str, op_type: str, path: str) -> None:
    assert Scopes(root_scope()).of_name(name, op_type).path == path


def test_hostile_names_make_few_scopes() -> None:
    scopes = Scopes(root_scope())
    assert scopes.of_name("a/" * 1000 + "Relu", "Relu").depth <= 48
    assert scopes.of_name("a/" * 1_000_000 + "Relu", "Relu") is scopes.root


def test_scopes_of_the_exporter() -> None:
    entries = {
        "pkg.torch.onnx.name_scopes": "['', 'model', 'model.layers.0', 'model.layers.0.attn', 'linear_3']",
        "pkg.torch.onnx.class_hierarchy": "['x.LlamaForCausalLM', 'x.LlamaModel', 'x.Layer', 'x.Attention', 'aten.linear.default']",
    }
    scopes = Scopes(root_scope())
    scope = scopes.of_metadata(entries)
    assert scope is not None
    assert (scope.path, scope.module, scope.cls) == ("model/layers.0/attn", "model.layers.0.attn", "Attention")
    assert scopes.root.cls == "LlamaForCausalLM"
    assert scopes.of_metadata(entries) is scope


def test_a_module_that_lives_elsewhere() -> None:
    scope = Scopes(root_scope()).of_metadata({"pkg.torch.onnx.name_scopes": "['', 'decoder', 'encoder.embed', 'gather']"})
    assert scope is not None
    assert (scope.path, scope.module) == ("decoder/=encoder.embed", "encoder.embed")


def test_namespace_of_the_exporter() -> None:
    scope = Scopes(root_scope()).of_metadata({"namespace": ": Net/layer1: torch.nn.Sequential/layer1.0: Conv2d/conv: aten.conv2d"})
    assert scope is not None
    assert (scope.path, scope.cls) == ("layer1/0", "Conv2d")


@pytest.mark.parametrize("text", ["", "no list", "[]", "['only']", "['', '']"])
def test_metadata_that_say_nothing(text: str) -> None:
    scopes = Scopes(root_scope())
    assert scopes.of_metadata({"pkg.torch.onnx.name_scopes": text}) is scopes.root


def test_stack_traces() -> None:
    loc = Locations().of_trace(TRACE)
    assert loc is not None
    assert (str(loc), loc.function, loc.statement) == ("/models/llama.py:12", "forward", "return self.proj(x)")
    assert str(loc.caller) == "/models/llama.py:200"


def test_stack_traces_of_the_older_exporter() -> None:
    loc = Locations().of_trace("/torch/activation.py(53): forward\n/torch/module.py(889): _call_impl\n/app/main.py(7): <module>\n")
    assert loc is not None
    assert (str(loc), str(loc.caller)) == ("/torch/activation.py:53", "/torch/module.py:889")


@pytest.mark.parametrize("text", ["", "nothing here", 'File "x", line 99999999999999, in f'])
def test_what_is_no_stack_trace(text: str) -> None:
    assert Locations().of_trace(text) is None


def test_nodes_carry_scope_and_line() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="whatever/else")
    for key, text in {"pkg.torch.onnx.name_scopes": "['', 'act', 'relu']", "pkg.torch.onnx.stack_trace": TRACE}.items():
        node.metadata_props.add(key=key, value=text)
    made = load(model([node])).graph.first
    assert made is not None
    assert (made.scope.path, str(made.loc), made.source) == ("act", "/models/llama.py:12", "onnx::Relu@14")
