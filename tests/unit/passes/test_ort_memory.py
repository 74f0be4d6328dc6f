"""ONNX Runtime's order, its reuse of buffers, its second run, what it packs, and reordered files. Numbers were observed in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import irscope
from irscope.errors import UsageError
from irscope.frontends.onnx import load_model
from irscope.ir.program import Program
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.liveness import Liveness
from irscope.passes.ort import OrtPlan
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.ort.order import OrtOrder, verdict
from irscope.passes.ort.plan import Buffers, pattern_bytes
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings

# ONNX Runtime's order, its reuse of buffers, its second run, and what it packs. Numbers were observed in onnxruntime 1.31.1.

SHAPE = [10, 100]
SIZE = 4000
CHUNK = 4096


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), name=output.split()[0], **attributes)


def program(
    nodes: list[onnx.NodeProto],
    outputs: str,
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    shape: list[Any] = SHAPE,
    opset: int = 17,
) -> Program:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()]
    arrays = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, results, arrays)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return load_model(helper.make_model(graph, opset_imports=imports, ir_version=9))


def plan(made: Program, settings: Settings | None = None, **options: Any) -> OrtPlan:
    return Manager(made, settings=settings or Settings()).get(OrtMemory(**options))


def names(ort_plan: OrtPlan) -> list[str]:
    return [launch.node.name for launch in ort_plan.order]


def requested(ort_plan: OrtPlan) -> list[float]:
    """After each kernel of the first run, in tensors."""
    return [size / SIZE for size in ort_plan.figures.cold.requested]


def test_later_branches_run_first() -> None:
    made = program([node("Abs", "x", "a"), node("Neg", "x", "b"), node("Add", "a b", "c"), node("Erf", "x", "d")], "c d")
    assert names(plan(made)) == ["d", "b", "a", "c"]
    assert names(plan(made, order="file")) == ["a", "b", "c", "d"]


def test_a_kernel_that_may_work_in_place_does_so_for_the_last_reader_only() -> None:
    assert requested(plan(program([node("Abs", "x", "a"), node("Relu", "a", "b"), node("Abs", "b", "c")], "c"))) == [1, 1, 2]
    assert requested(plan(program([node("Abs", "x", "a"), node("Exp", "a", "b"), node("Abs", "b", "c")], "c"))) == [1, 2, 2]
    read_again = [node("Abs", "x", "a"), node("Relu", "a", "b"), node("Add", "a b", "c")]
    assert requested(plan(program(read_again, "c"))) == [1, 2, 3]


def test_the_tensor_alive_is_the_one_in_the_buffer_with_its_own_birth_and_death() -> None:
    """b works in a's place; of the buffers that are dead when e is made it gets that of c, which died last and was kept for it."""
    nodes = [node("Abs", "x", "a"), node("Relu", "a", "b"), node("Erf", "b", "c"), node("Reshape", "c shape", "v")]
    nodes += [node("Exp", "v", "d"), node("Reshape", "d back", "w"), node("Erf", "w", "e"), node("Concat", "e e", "f", axis=0)]
    made = program(nodes, "f", {"shape": np.array([100, 10], np.int64), "back": np.array([10, 100], np.int64)})
    found = plan(made)
    tensors = {
        one.value.name: [(tensor.value.name, tensor.born, tensor.dies, tensor.held_by) for tensor in one.tenants] for one in found.ranges
    }
    assert tensors == {
        "a": [("a", 0, 1, "b"), ("b", 1, 2, "c")],
        "c": [("c", 2, 4, "d"), ("e", 6, 7, "f")],
        "d": [("d", 4, 6, "e")],
        "f": [("f", 7, 8, "output")],
    }
    timeline = Manager(made).get(Liveness())
    a, c = (next(one for one in timeline.ranges if one.value.name == name) for name in "ac")
    assert [timeline.why(a, step) for step in range(3)] == ["made here", "made here, in the buffer of a", "read here, in the buffer of a"]
    assert [timeline.why(c, step) for step in range(2, 8)] == [
        "made here",
        "read here",
        "read here through v, a view of it",
        "dead, its buffer is kept for e",
        "made here, in the buffer of c",
        "read here, in the buffer of c",
    ]
    (alive,) = [table for table in Manager(made).run_one(Liveness()).report().tables if table.title == "alive at the peak"]
    rows = [row for row in alive.rows() if row[2] in ("activation", "output")]
    assert {(name, born, dies) for name, _, _, born, dies, _, _ in rows} == {("f", 7, 8), ("e", 6, 7)}


def test_reshapes_never_copy_but_results_of_the_model_have_their_own_buffer() -> None:
    weights = {"shape": np.array([1000], np.int64)}
    inner = [node("Abs", "x", "a"), node("Reshape", "a shape", "b"), node("Add", "a a", "c"), node("Erf", "b", "d")]
    found = plan(program(inner, "c d", weights))
    assert names(found) == ["a", "b", "d", "c"]
    # The shape itself is copied into the arena: 8 bytes.
    assert requested(found) == [1 + 8 / SIZE, 1 + 8 / SIZE, 2 + 8 / SIZE, 3 + 8 / SIZE]
    last = plan(program([node("Abs", "x", "a"), node("Reshape", "a shape", "b")], "b", weights))
    assert requested(last) == [1 + 8 / SIZE, 2 + 8 / SIZE]


def test_dead_buffers_of_the_same_shape_are_taken_over() -> None:
    """A buffer that is to be taken over is not given back in between: reuse can cost memory."""
    chain = [
        node("Abs", "x", "a"),
        node("ReduceMean", "a", "b", axes=[0, 1]),
        node("Abs", "b", "c"),
        node("Expand", "c shape", "d"),
        node("Erf", "d", "e"),
    ]
    weights = {"shape": np.array(SHAPE, np.int64)}
    small, fixed = 4 / SIZE, 16 / SIZE
    reused = requested(plan(program(chain, "e", weights)))
    assert reused == pytest.approx([1 + fixed, 1 + small + fixed, 1 + 2 * small + fixed, 1 + small + fixed, 2 + fixed])
    fresh = requested(plan(program(chain, "e", weights), reuse=False))
    assert fresh == pytest.approx([1 + fixed, 1 + small + fixed, 2 * small + fixed, 1 + small + fixed, 2 + fixed])


def test_what_nobody_reads_gets_a_buffer_and_keeps_it() -> None:
    made = program([node("Abs", "x", "a"), node("Erf", "a", "b"), node("Exp", "b", "c"), node("Neg", "b", "d")], "c")
    found = plan(made)
    assert names(found) == ["a", "b", "d", "c"]
    assert requested(found) == [1, 2, 2, 3]
    assert next(one for one in found.ranges if one.value.name == "d").held_by == "the run: nothing reads it"


def test_an_operator_without_a_kernel_runs_as_two() -> None:
    found = plan(program([node("Abs", "x", "a"), node("HardSwish", "a", "b"), node("Erf", "b", "c")], "c"))
    assert [launch.name for launch in found.order] == ["Abs", "HardSigmoid", "Mul", "Erf"]
    assert requested(found) == [1, 2, 3, 2]


def test_the_second_run_takes_one_block() -> None:
    """x -> Relu -> Add(w) -> Identity -> Mul -> Sigmoid over 4,000,000 bytes, as in ONNX Runtime's profile."""
    chain = [
        node("Relu", "x", "a"),
        node("Add", "a w", "b"),
        node("Identity", "b", "c"),
        node("Mul", "c c", "d"),
        node("Sigmoid", "d", "y"),
    ]
    figures = plan(program(chain, "y", {"w": np.ones((1000, 1000), np.float32)}, [1000, 1000])).figures
    assert figures.cold.requested == [4_000_000, 8_000_000, 8_000_000, 8_000_000, 8_000_000]
    assert figures.cold.allocated == [4_194_304, 8_388_608, 8_388_608, 8_388_608, 8_388_608]
    assert figures.cold.peak.reserved == 8_388_608
    assert figures.pattern == 8_000_000
    assert figures.warm.requested == [8_000_000, 8_000_000, 8_000_000, 8_000_000, 12_000_000]
    assert figures.warm.allocated == [8_388_608, 8_388_608, 8_388_608, 8_388_608, 12_582_912]
    assert figures.warm.peak.reserved == 16_777_216


def test_without_a_pattern_both_runs_are_alike() -> None:
    figures = plan(program([node("Abs", "x", "a"), node("Erf", "a", "b")], "b"), pattern=False).figures
    assert figures.pattern == 0
    assert figures.cold.requested == figures.warm.requested


def test_arena_extension() -> None:
    made = program([node("Abs", "x", "a"), node("Erf", "a", "b")], "b")
    doubled, asked = plan(made).figures, plan(made, extension="same_as_requested").figures
    assert doubled is not None and asked is not None
    assert (doubled.cold.peak.reserved, asked.cold.peak.reserved) == (1 << 20, 2 * CHUNK)


@pytest.mark.parametrize(
    ("op", "weights", "options", "expected"),
    [
        ("MatMul", [("w", (100, 37))], {}, 19_200),
        ("MatMul", [("w", (2, 100, 37))], {}, 0),
        ("Gemm", [("w", (37, 100))], {"transB": 1}, 19_200),
        ("LSTM", [("w", (1, 148, 21)), ("r", (1, 148, 37))], {"hidden_size": 37}, 37_120),
        ("LSTM", [("w", (2, 256, 64)), ("r", (2, 256, 64))], {"hidden_size": 64, "direction": "bidirectional"}, 262_144),
        ("GRU", [("w", (1, 111, 21)), ("r", (1, 111, 37))], {"hidden_size": 37}, 28_352),
        ("GRU", [("w", (1, 300, 100)), ("r", (1, 300, 100))], {"hidden_size": 100}, 249_600),
        ("ConvTranspose", [("w", (32, 16, 3, 3))], {}, 18_432),
    ],
)
def test_packed_weights(op: str, weights: list[tuple[str, tuple[int, ...]]], options: dict[str, Any], expected: int) -> None:
    shapes = {"MatMul": [5, 100], "Gemm": [5, 100], "ConvTranspose": [1, 32, 9, 9]}
    width = weights[0][1][-1]
    shape = shapes.get(op, [5, 3, width])
    # With other contents: equal ones are packed once.
    arrays = {name: np.full(size, index, np.float32) for index, (name, size) in enumerate(weights)}
    made = program([node(op, " ".join(["x", *arrays]), "y", **options)], "y", arrays, shape)
    figures = plan(made).figures
    # The filter of a transposed convolution is a chunk of the arena, all others come straight from the device.
    assert (figures.before.requested, figures.before.reserved) == (expected, 1 << 20 if op == "ConvTranspose" else expected)


def test_small_weights_are_copied_into_the_arena() -> None:
    chain = [node("Add", "x small", "a"), node("Add", "a large", "b"), node("Abs", "b", "c")]
    weights = {"small": np.ones(100, np.float32)[:1], "large": np.ones(100, np.float32), "unused": np.ones(2, np.float32)}
    figures = plan(program(chain, "c", weights)).figures
    assert figures is not None and figures.before.requested == 4


def test_a_small_weight_goes_once_it_is_packed() -> None:
    made = program([node("MatMul", "x small", "y")], "y", {"small": np.ones((20, 1), np.float32)}, [5, 20])
    figures = plan(made).figures
    # 20 rows of 16 columns, as MLAS packs them.
    assert figures is not None and figures.before.requested == 20 * 16 * 4


def test_sizes_that_are_formulas_leave_the_counters_open() -> None:
    made = program([node("Abs", "x", "a"), node("Erf", "a", "b"), node("Abs", "b", "c")], "c", shape=["batch", 100])
    manager = Manager(made)
    assert manager.get(OrtMemory()).figures is None
    assert str(manager.get(Liveness()).peak) == "800*batch"
    summary = Liveness().report(manager.get(Liveness()), manager).summary
    assert summary["model"] == "ort"
    assert "--bind" in summary["cold"]["requested"].note


def test_liveness_follows_the_file_and_agrees_with_the_plan() -> None:
    chain = [node("Abs", "x", "a"), node("Relu", "a", "b"), node("Erf", "b", "c"), node("Abs", "c", "d")]
    manager = Manager(program(chain, "d"))
    timeline = manager.get(Liveness())
    assert timeline.model == manager.get(Ranges()).model == "ort"
    assert timeline.alive == [SIZE, SIZE, 2 * SIZE, 2 * SIZE]
    assert manager.get(Liveness(model="ssa")).model == "ssa"
    summary = Liveness().report(timeline, manager).summary
    assert summary["activation_peak_bytes"] == 2 * SIZE
    assert summary["cold"] == {"requested": 2 * SIZE, "allocated": 2 * CHUNK, "reserved": 1 << 20}


def test_threads_are_at_least_one() -> None:
    with pytest.raises(UsageError):
        plan(program([node("Abs", "x", "a")], "a"), threads=0)


def naive_pattern(buffers: Buffers, sizes: list[int]) -> int:
    """The same packing, looking at every gap."""
    placed: list[tuple[int, int, int]] = []
    height = 0
    for taken, dropped in zip(buffers.taken, buffers.dropped, strict=True):
        for value in taken:
            size = -(-sizes[value] // 256) * 256
            if buffers.is_output[value] or not size:
                continue
            edges = [(0, 0), *((offset, offset + length) for offset, length, _ in placed)]
            gaps = [(start - end, end) for (_, end), (start, _) in pairwise(edges) if start - end >= size]
            end = edges[-1][1]
            if height - end >= size:
                gaps.append((height - end, end))
            offset = min(gaps)[1] if gaps else end
            placed = sorted([*placed, (offset, size, value)])
            height = max(height, offset + size)
        placed = [piece for piece in placed if piece[2] not in dropped]
    return height


def test_the_pattern_leaves_a_large_gap_to_what_needs_it() -> None:
    """Of 4, 1 and 2 the first and the last go: the next 2 stands behind the 1, where the block reaches anyway, and a 4 before it."""
    own = list(range(5))
    taken, dropped = [[0], [1], [2], [], [3], [4]], [[], [], [], [0, 2], [], []]
    assert pattern_bytes(Buffers(own, own, [False] * 5, own, [], taken, dropped), [1024, 256, 512, 512, 1024], [True] * 5) == 1792


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 6), st.booleans()), max_size=60))
def test_the_pattern_is_the_tightest_gap_or_what_is_free_behind_the_last(tensors: list[tuple[int, int, bool]]) -> None:
    count = len(tensors)
    dropped: list[list[int]] = [[] for _ in range(count)]
    for value, (_, life, is_output) in enumerate(tensors):
        if not is_output and value + life < count:
            dropped[value + life].append(value)
    own = list(range(count))
    buffers = Buffers(own, own, [is_output for _, _, is_output in tensors], own, [], [[value] for value in range(count)], dropped)
    sizes = [size for size, _, _ in tensors]
    assert pattern_bytes(buffers, sizes, [True] * count) == naive_pattern(buffers, sizes)


@pytest.mark.parametrize(("channels", "blocked"), [(16, 16), (20, 32), (136, 144)])
def test_reordered_channels_fill_whole_blocks(channels: int, blocked: int) -> None:
    """As the optimised graph has them on a processor with AVX-512."""
    reorder = helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 10, 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    found = plan(load_model(helper.make_model(helper.make_graph([reorder], "g", [x], [y]), opset_imports=imports, ir_version=9)))
    assert found.figures.cold.requested == [blocked * 100 * 4]


@pytest.mark.parametrize(("kernel", "channels", "size", "expected"), [(3, 8, 33, 65536), (1, 8, 33, 0), (3, 8, 2, 4 * 2 * 2 * 8 * 9)])
def test_convolutions_take_room_for_patches(kernel: int, channels: int, size: int, expected: int) -> None:
    pads = [kernel // 2] * 4
    weights = {"w": np.ones((8, channels, kernel, kernel), np.float32)}
    found = plan(program([node("Conv", "x w", "y", pads=pads)], "y", weights, [1, channels, size, size]))
    chunk = -(-4 * 8 * size * size // 256) * 256
    assert found.figures.cold.peak.allocated == chunk + -(-expected // 256) * 256


# What is said of a reordered file in ONNX Runtime, worked out by hand.


def branches() -> Program:
    """Two large results that are both made before either is reduced; a shape that can be read at once."""
    nodes = [
        node("Exp", "x", "a"),
        node("Neg", "x", "b"),
        node("ReduceMax", "a", "c"),
        node("ReduceMax", "b", "d"),
        node("Add", "c d", "y"),
        node("Shape", "x", "z"),
    ]
    return program(nodes, "y")


def steps(made: Program, setting: str, reordered: bool = False) -> list[str]:
    found = Manager(made).get(OrtOrder())
    one = next(one for one in found.orders if one.setting == setting)
    return [launch.node.name for launch in (one.reordered if reordered else one.written).order]


def test_backwards_from_what_nothing_reads_later_nodes_first() -> None:
    assert steps(branches(), "default") == ["z", "b", "d", "a", "c", "y"]


def test_in_the_order_of_the_file_but_shapes_first() -> None:
    assert steps(branches(), "priority_based") == ["z", "a", "b", "c", "d", "y"]
    assert steps(branches(), "priority_based", reordered=True)[0] == "z"


def test_what_a_reordered_file_changes() -> None:
    manager = Manager(branches())
    found = manager.get(OrtOrder())
    assert found.is_new
    default, priority = found.orders
    assert priority.changes and priority.peaks[1] < priority.peaks[0]
    assert "priority_based: a reordered file needs 4" in verdict(found)
    report = manager.run("ort-order{top=2}")[-1].report()
    assert report.summary["priority_based"]["reordering_changes_it"] is True
    assert [len(table) for table in report.tables] == [2]
    assert default.peaks[0] == priority.peaks[1]


@pytest.mark.parametrize("sizes", ["inputs", "session"])
def test_peaks_are_those_of_ort_memory(sizes: Literal["inputs", "session"], tmp_path: Path) -> None:
    """Images whose sizes a session that is not told them does not know to be alike."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Exp", ["c"], ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, "h", "w"]) for name in "xy"]
    path = tmp_path / "halves.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "halves", values[:1], values[1:])), path)
    manager = Manager(irscope.load(path, bind={"n": 1, "h": 64, "w": 64}).program)
    orders, plan = manager.get(OrtOrder(sizes=sizes)), manager.get(OrtMemory(sizes=sizes))
    assert plan.figures is not None
    peaks = {one.setting: one.peaks[0] for one in orders.orders}
    assert peaks["default"] == plan.figures.cold.peak.requested


def test_a_chain_has_nothing_to_reorder() -> None:
    found = Manager(program([node("Exp", "x", "a"), node("Neg", "a", "y")], "y")).get(OrtOrder())
    assert not found.is_new
    assert verdict(found).startswith("no better order than the one as written was found")


def test_sizes_that_come_with_the_inputs_are_said() -> None:
    path = Path(__file__).parents[3] / "samples" / "models" / "transformer.onnx"
    model = irscope.load(path, bind={"batch": 2, "length": 8})
    manager = Manager(model.program)
    told, learns = (manager.get(OrtMemory(sizes=sizes)) for sizes in ("session", "inputs"))
    assert "sizes come with the inputs" in str(OrtMemory().report(learns, manager).notes)
    assert "sizes come with the inputs" not in str(OrtMemory().report(told, manager).notes)
    # A session that does not know two tensors to be of one size reuses fewer buffers.
    reused = [sum(owner != value for value, owner in enumerate(plan.buffers.owner)) for plan in (told, learns)]
    assert reused[0] > reused[1]
