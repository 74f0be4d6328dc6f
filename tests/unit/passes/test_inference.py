"""Types through loops, branches and lists: what may be claimed, and above all what may not; what sizes say about others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from irscope.frontends.onnx import load_model
from irscope.ir.bind import bind_program
from irscope.ir.dims import SymDim
from irscope.passes.graph.transforms import Annotate
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from irscope.session import stated_sizes
from tests.frontends.onnx.build import BOOL, FLOAT, INT64, graph, ints, model, value

# Types through loops, branches and lists: what may be claimed, and above all what may not.


def inferred(proto: onnx.ModelProto) -> tuple[Inferred, list[str]]:
    """What the engine found, and the types of the results as text."""
    program = load_model(proto)
    found = Manager(program).get(Shapes())
    return found, [str(found.type_of(output)) for output in program.graph.outputs]


def sizes(proto: onnx.ModelProto, result: int = 0) -> tuple[object, ...]:
    program = load_model(proto)
    type_ = Manager(program).get(Shapes()).type_of(program.graph.outputs[result])
    assert type_.shape is not None
    return type_.shape


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


TRUE = helper.make_tensor("true", BOOL, [], [True])
CONDITION = [value("i", [], INT64), value("go", [], BOOL)]


def test_a_branch_that_is_not_taken_cannot_contradict() -> None:
    """Exporters leave branches for other ranks in place; their rules need not hold."""
    good = graph([node("Relu", "x", "a")], outputs=["a"])
    bad = graph([node("Concat", "x long", "b", axis=0)], outputs=["b"])
    proto = model(
        [node("If", "true", "y", then_branch=good, else_branch=bad)], [value("x", [2, 3]), value("long", [2, 3, 4])], initializers=[TRUE]
    )
    found, (result,) = inferred(proto)
    assert result == "f32[2,3]"
    assert not found.problems


def test_branches_that_disagree() -> None:
    one = graph([node("Relu", "x", "a")], outputs=["a"])
    two = graph([node("Concat", "x x", "b", axis=0)], outputs=["b"])
    proto = model([node("If", "c", "y", then_branch=one, else_branch=two)], [value("x", [2, 3]), value("c", [], BOOL)])
    first, second = sizes(proto)
    assert first.is_unknown
    assert second == 3


def looped(
    nodes: list[onnx.NodeProto], outputs: list[str], state: str, inputs: list[onnx.ValueInfoProto], **more: object
) -> onnx.ModelProto:
    """A loop over one state, as often as the input `n` says."""
    body = graph([node("Identity", "go", "on"), *nodes], [*CONDITION, value("s", None, TensorProto.UNDEFINED)], ["on", *outputs])
    results = " ".join(f"r{index}" for index in range(len(outputs)))
    after = more.get("after", [])
    names = more.get("results", results.split())
    assert isinstance(after, list)
    assert isinstance(names, list)
    return model([node("Loop", f"n true {state}", results, body=body), *after], inputs, names, [TRUE, ints("two", 2)])


N = value("n", [], INT64)


def test_a_value_of_the_first_step_is_not_that_of_all() -> None:
    """The state is 2, then 4, then 8: no step's tensor has a size that can be told."""
    proto = looped(
        [node("Add", "s s", "next"), node("ConstantOfShape", "s", "made"), node("ReduceSum", "made", "sum")], ["next", "sum"], "two", [N]
    )
    assert sizes(proto, 0) == (1,)
    body = [node("Add", "s s", "next"), node("ConstantOfShape", "s", "made")]
    (steps, size) = sizes(looped(body, ["next", "made"], "two", [N]), 1)
    assert str(steps) != "2"
    assert size.is_unknown


def test_a_growing_state() -> None:
    proto = looped([node("Concat", "s x", "next", axis=0)], ["next"], "x", [N, value("x", [2, 3])])
    size, width = sizes(proto)
    assert size.is_unknown
    assert width == 3


def test_a_state_and_what_a_step_saw_of_it_differ() -> None:
    """The last state is longer than the one that the last step began with: their difference is not 0."""
    body = [node("Concat", "s x", "next", axis=0), node("Shape", "s", "seen", end=1)]
    after = [
        node("Shape", "r0", "now", end=1),
        node("Gather", "r1 last", "then", axis=0),
        node("Sub", "now then", "grown"),
        node("ConstantOfShape", "grown", "y"),
    ]
    proto = looped(body, ["next", "seen"], "x", [N, value("x", [2])], after=after, results=["y"])
    proto.graph.initializer.append(helper.make_tensor("last", INT64, [], [-1]))
    (size,) = sizes(proto)
    assert not isinstance(size, int)


def test_a_loop_of_known_length_is_exact() -> None:
    proto = looped([node("Concat", "s x", "next", axis=0)], ["next"], "x", [value("x", [2, 3])])
    proto.graph.initializer.append(helper.make_tensor("n", INT64, [], [5]))
    assert sizes(proto) == (12, 3)


def test_scan_outputs_are_as_long_as_the_loop() -> None:
    proto = looped([node("Relu", "s", "next"), node("Relu", "s", "each")], ["next", "each"], "x", [N, value("x", [2, 3])])
    steps, *rest = sizes(proto, 1)
    assert isinstance(steps, SymDim)
    assert rest == [2, 3]


def test_the_state_of_a_scan_keeps_its_shape() -> None:
    """ONNX demands it, so a size that a step spells otherwise is the same one; the report says so."""
    step = graph([node("MatMul", "s w", "next"), node("Identity", "next", "each")], [value("s", None), value("e", None)], ["next", "each"])
    proto = model(
        [node("Scan", "x xs", "y z", body=step, num_scan_inputs=1)],
        [value("x", ["a"]), value("xs", ["t", 2]), value("w", ["a", "b"])],
        ["y", "z"],
    )
    found, results = inferred(proto)
    assert results == ["f32[a]", "f32[t,b]"]
    assert [(str(assumption.left), str(assumption.right)) for assumption in found.assumptions] == [("a", "b")]


SHAPED = [value("a", [1, 3]), value("b", [2, 3]), value("c", [4, 3])]


def listed(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    positions = [helper.make_tensor(name, INT64, [], [number]) for name, number in (("p0", 0), ("p1", 1), ("m1", -1))]
    return model([node("SequenceConstruct", "a b", "ab"), *nodes], SHAPED, initializers=positions)


def test_elements_of_a_list_are_known_one_by_one() -> None:
    assert sizes(listed(node("SequenceAt", "ab p1", "y"))) == (2, 3)
    assert sizes(listed(node("SequenceInsert", "ab c", "abc"), node("SequenceAt", "abc m1", "y"))) == (4, 3)
    assert sizes(listed(node("SequenceInsert", "ab c p1", "acb"), node("SequenceAt", "acb p1", "y"))) == (4, 3)
    assert sizes(listed(node("SequenceErase", "ab p0", "b1"), node("SequenceAt", "b1 p0", "y"))) == (2, 3)
    assert sizes(listed(node("SequenceInsert", "ab c", "abc"), node("ConcatFromSequence", "abc", "y", axis=0))) == (7, 3)


def test_the_length_of_a_list_is_a_value() -> None:
    proto = listed(node("SequenceLength", "ab", "n"), node("Reshape", "n flat", "v"), node("ConstantOfShape", "v", "y"))
    proto.graph.initializer.append(ints("flat", 1))
    assert sizes(proto) == (2,)


def test_two_elements_of_a_list_need_not_be_alike() -> None:
    """Which elements are taken is not known: their sizes are, but not that the two are equal."""
    first, second = node("SequenceAt", "ab i", "e"), node("SequenceAt", "ab j", "f")
    nodes = [
        first,
        second,
        node("Shape", "e", "se", end=1),
        node("Shape", "f", "sf", end=1),
        node("Sub", "se sf", "d"),
        node("ConstantOfShape", "d", "y"),
    ]
    proto = listed(*nodes)
    proto.graph.input.extend([value("i", [], INT64), value("j", [], INT64)])
    (size,) = sizes(proto)
    assert not isinstance(size, int)


def test_a_loop_that_fills_an_empty_list() -> None:
    body = graph(
        [node("Identity", "go", "on"), node("SequenceInsert", "s x", "next")], [*CONDITION, onnx.ValueInfoProto(name="s")], ["on", "next"]
    )
    nodes = [node("SequenceEmpty", "", "none", dtype=FLOAT), node("Loop", "n true none", "y", body=body)]
    _, (result,) = inferred(model(nodes, [N, value("x", ["k", 3])], initializers=[TRUE]))
    assert result == "seq(f32[k,3])"


def test_packed_values_are_read_when_a_rule_asks() -> None:
    """Six boxes of four corners are too many to stand in the graph one by one, but not too many to look at."""
    boxes = np.array(
        [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], np.float32
    )
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], np.float32)
    weights = [
        numpy_helper.from_array(array, name) for array, name in ((boxes, "boxes"), (scores, "scores"), (np.float32([0.5]), "overlap"))
    ]
    proto = model([node("NonMaxSuppression", "boxes scores most overlap", "y")], [], initializers=[*weights, ints("most", 3)])
    assert sizes(proto) == (3, 3)


def test_unknown_axes_say_what_they_leave() -> None:
    axes = value("axes", [1], INT64)
    assert sizes(model([node("ReduceSum", "x axes", "y", keepdims=0)], [value("x", [5, 5, 5]), axes])) == (5, 5)
    first, second = sizes(model([node("ReduceSum", "x axes", "y", keepdims=0)], [value("x", [2, 3, 3]), axes]))
    assert isinstance(first, SymDim)
    assert second == 3
    assert sizes(model([node("Squeeze", "x axes", "y")], [value("x", [1, 3, 4]), axes])) == (3, 4)
    assert sizes(model([node("Unsqueeze", "x axes", "y")], [value("x", [1, 1]), axes])) == (1, 1, 1)


# What the sizes of one tensor say about numbers elsewhere: a size of an axis is never negative.

_COUNT = """
    size = Shape <start = 2, end = 3> (x)
    five = Constant <value_ints = [5]> ()
    one = Constant <value_ints = [1]> ()
    fifth = Div (size, five)
    count = Sub (fifth, one)
"""
_CONV = "windows = Conv <kernel_shape = [10], strides = [5]> (x, w)"


def shape_of(result: str, body: str) -> str:
    """The type that is inferred for a value, with symbols for the sizes of the inputs."""
    inputs = "float[batch, 1, n] x, float[4, 1, 10] w, bool taken, float[m] z"
    program = load_model(
        parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({result}) {{ {body} }}').SerializeToString()
    )
    return str(Manager(program).get(Shapes()).type_of(program.graph.outputs[0]))


def test_a_number_that_is_a_size_elsewhere_is_no_placeholder() -> None:
    reshape = "batch = Shape <start = 0, end = 1> (x) four = Constant <value_ints = [4]> () s = Concat <axis = 0> (batch, four, count)"
    assert shape_of("y", f"{_COUNT} {_CONV} {reshape} y = Reshape (windows, s)") == "f32[batch,4,n//5 - 1]"


@pytest.mark.parametrize(
    ("makes", "size"),
    [
        ("_, b = Split <axis = 0> (s, parts)", "f32[5,5]"),
        ("b, _ = TopK (s, one)", "f32[5]"),
        ("_, b = TopK (s, one)", "f32[1]"),
        ("b, at, back, times = Unique (s)", "f32[3,5]"),
    ],
)
def test_elements_of_each_of_several_results_are_known(makes: str, size: str) -> None:
    given = "s = Constant <value_ints = [3, 5, 5]> () one = Constant <value_ints = [1]> () parts = Constant <value_ints = [1, 2]> ()"
    assert shape_of("y", f"{given} {makes} y = ConstantOfShape (b)") == size


def test_a_cut_to_the_size_keeps_it() -> None:
    cut = "zero = Constant <value_ints = [0]> () axis = Constant <value_ints = [2]> () y = Slice (windows, zero, count, axis)"
    assert shape_of("y", f"{_COUNT} {_CONV} {cut}") == "f32[batch,4,n//5 - 1]"


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_sizes_in_a_branch_say_nothing_outside(branch: str) -> None:
    """The branch may not be taken, and then nothing keeps the number from being -1."""
    other = "else_branch" if branch == "then_branch" else "then_branch"
    inside = (
        f"{branch} = a () => (float[p, q, r] windows) {{ {_CONV} }}, {other} = b () => (float[p2, q2, r2] same) {{ same = Identity (x) }}"
    )
    body = f"{_COUNT} chosen = If (taken) <{inside}> s = Concat <axis = 0> (count, one) y = Reshape (z, s)"
    shape = shape_of("y", body)
    assert "n//5" not in shape
    assert "?" in shape


def test_sizes_before_a_branch_hold_inside() -> None:
    branches = ("then_branch = a () => (float[p, q] kept)", "else_branch = b () => (float[p2, q2] kept)")
    inside = ", ".join(f"{branch} {{ kept = Reshape (z, s) }}" for branch in branches)
    body = f"{_COUNT} {_CONV} s = Concat <axis = 0> (count, one) y = If (taken) <{inside}>"
    assert shape_of("y", body) == "f32[n//5 - 1,1]"


def rates(condition: list[onnx.NodeProto], *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    """A branch for each of two sampling rates; the one for the slow rate has an operator that nobody knows."""
    fast = graph([node("Relu", "x", "a")], outputs=["a"])
    slow = graph([node("Hyper", "x", "h"), node("Concat", "h x", "b", axis=0)], outputs=["b"])
    weights = [ints("fast", 16000), ints("axis", 0)]
    nodes = [*condition, node("If", "c", "y", then_branch=fast, else_branch=slow)]
    return model(nodes, [value("x", [2, 3]), *inputs], initializers=weights)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_given_number_decides_a_branch(rate: int) -> None:
    program = load_model(rates([node("Squeeze", "fast", "f"), node("Equal", "sr f", "c")], value("sr", [], INT64)))
    bind_program(program, {"sr": rate})
    manager = Manager(program)
    found = manager.get(Shapes())
    [branch] = found.branches.values()
    assert branch.taken == int(rate != 16000)
    assert branch.why == f"its condition is {'true' if rate == 16000 else 'false'}: sr={rate}"
    # What a branch that is not taken leaves open counts nowhere.
    assert bool(found.foreign) == (rate != 16000)
    report = Shapes().report(found, manager)
    assert report.coverage is not None
    assert (report.coverage.known == report.coverage.total) == (rate == 16000)


def test_a_branch_that_contradicts_the_sizes_is_not_taken() -> None:
    good = graph([node("Relu", "x", "a")], outputs=["a"])
    bad = graph([node("Concat", "x long", "b", axis=0)], outputs=["b"])
    nodes = [node("If", "c", "y", then_branch=good, else_branch=bad)]
    found, (result,) = inferred(model(nodes, [value("x", [2, 3]), value("long", [2, 3, 4]), value("c", [], BOOL)]))
    assert result == "f32[2,3]"
    assert not found.problems
    assert [(branch.taken, branch.why) for branch in found.branches.values()] == [(0, "the other branch contradicts the sizes")]


def test_a_branch_that_changes_from_step_to_step_is_not_decided() -> None:
    one = graph([node("Relu", "s", "a")], outputs=["a"])
    two = graph([node("Neg", "s", "b")], outputs=["b"])
    steps = [node("Equal", "i zero", "first"), node("If", "first", "next", then_branch=one, else_branch=two), node("Identity", "go", "on")]
    body = graph(steps, [*CONDITION, value("s", [2])], ["on", "next"])
    zero = helper.make_tensor("zero", INT64, [], [0])
    trips = helper.make_tensor("trips", INT64, [], [3])
    found, _ = inferred(model([node("Loop", "trips true x", "y", body=body)], [value("x", [2])], initializers=[zero, trips, TRUE]))
    assert [branch.taken for branch in found.branches.values()] == [None]
    assert not found.idle


def test_a_size_that_depends_on_data_is_given_by_its_own_name() -> None:
    program = load_model(model([node("NonZero", "x", "i"), node("Transpose", "i", "y")], [value("x", [4, 4])]))
    bind_program(program, {"?u0": 7})
    found = Manager(program).get(Shapes())
    assert str(found.type_of(program.graph.outputs[0])) == "i64[7,2]"
    bind_program(program, {"?u0": 17})
    assert [problem.text for problem in Manager(program).get(Shapes()).problems] == ["?u0 cannot be 17: it is from 0 to 16"]


@pytest.mark.parametrize(("channels", "name", "side"), [(5, "x", 2), (3, "x", 224), (3, "images", 640)])
def test_sizes_that_nobody_stated(channels: int, name: str, side: int) -> None:
    """A detector joins what was halved and doubled again: that fits for even sizes alone. Images have the sides that their models are run
    at, other inputs the smallest for which the model runs."""
    kernel = helper.make_tensor("kernel", FLOAT, [channels, channels, 3, 3], [0.0] * channels**2 * 9)
    scales = helper.make_tensor("scales", FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    nodes = [
        node("Conv", f"{name} kernel", "small", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["small", "", "scales"], ["large"], mode="nearest"),
        node("Concat", f"{name} large", "y", axis=1),
    ]
    program = load_model(model(nodes, [value(name, ["batch", channels, "h", "w"])], initializers=[kernel, scales]))
    Manager(program).get(Shapes())
    assert {size.symbol: size.size for size in stated_sizes(program, {})} == {"batch": 1, "h": side, "w": side}


def test_a_decoder_is_given_one_token_behind_others_and_a_mask_for_all() -> None:
    nodes = [
        node("Concat", "past_key new", "all", axis=1),
        node("Transpose", "all", "turned", perm=[0, 2, 1]),
        node("MatMul", "new turned", "scores"),
        node("Add", "scores mask", "y"),
    ]
    inputs = [value("past_key", ["b", "past_sequence_length", "width"]), value("new", ["b", "s", 16]), value("mask", ["b", 1, "total"])]
    inputs.append(value("seen", ["b", "encoder_sequence_length"]))
    program = load_model(model(nodes, inputs))
    manager = Manager(program, annotate=(types := Annotate()))
    manager.apply(types)
    found = {size.symbol: size.size for size in stated_sizes(program, {})}
    assert found == {"b": 1, "past_sequence_length": 128, "width": 16, "s": 1, "total": 129, "encoder_sequence_length": 128}


def test_an_endless_loop_runs_until_its_condition_ends_it() -> None:
    """Exporters of loops that only their condition ends write the largest number as trip count."""
    steps = [node("Add", "n one", "next"), node("Less", "next five", "on"), node("Identity", "next", "row")]
    body = graph(steps, [*CONDITION, value("n", [], INT64)], ["on", "next", "row"])
    weights = [
        helper.make_tensor(name, INT64, [], [number]) for name, number in (("most", 2**63 - 1), ("one", 1), ("zero", 0), ("five", 5))
    ]
    proto = model([node("Loop", "most true zero", "last y", body=body)], [], initializers=[*weights, TRUE])
    assert sizes(proto) == (5,)


def test_nodes_of_one_kind_have_one_operator_attributes_and_types() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) b = Relu(a) c = Softmax<axis=0>(b) d = Softmax<axis=1>(c) y = Relu(d) }"
    program = load_model(onnx.helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)]))
    found = Manager(program).get(Shapes())
    first, second, rows, columns, _ = found.kinds_of(program.graph)
    assert first is not None and first is second
    assert rows is not columns
    # They are those of the graph as it was: nothing is said of a changed one.
    program.graph.set_op(next(iter(program.graph)), "sigmoid")
    assert list(found.kinds_of(program.graph)) == [None] * 5


@pytest.mark.parametrize(("batch", "length"), [(2, 16), (2, 32), (1, 64), (1, 512), (8, 128)])
def test_a_mask_spread_over_positions_costs_its_values_not_the_model(batch: int, length: int) -> None:
    """As exports of BERT have it. Small masks have a symbol per element; what each of thousands of results follows from was looked for
    among all of them, which ended in the refusal of the file at (2, 32)."""
    nodes = [
        node("Unsqueeze", "mask axes", "rows"),
        node("Expand", "rows target", "spread"),
        node("Cast", "spread", "numbers", to=FLOAT),
        node("Sub", "unit numbers", "inverted"),
        node("Cast", "inverted", "hidden", to=BOOL),
        node("Where", "hidden least inverted", "y"),
    ]
    floats = [helper.make_tensor(name, FLOAT, [], [number]) for name, number in (("unit", 1.0), ("least", -3e38))]
    weights = [ints("axes", 1, 2), ints("target", batch, 1, length, length), *floats]
    found, (result,) = inferred(model(nodes, [value("mask", [batch, length], INT64)], initializers=weights))
    assert result == f"f32[{batch},1,{length},{length}]"
    assert len(found.reasons) <= batch * length
