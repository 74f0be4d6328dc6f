"""What single kernels of ONNX Runtime pack and take while they run, beside its own profile: every counter of both runs, to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from irscope.ops.ort import FUNCTIONS, function_of
from tests.tools.oracle import ort_wild
from tests.tools.oracle.ort_memory import compare
from tests.zoo.fetch_onnx import WildFile

CHANCE = np.random.default_rng(0)
CONTRIB = "com.microsoft"
SCALE, SHIFT = {"s": np.array(0.1, np.float32)}, {"z": np.array(0, np.uint8)}
Case = tuple[str, list[onnx.NodeProto], dict[str, np.ndarray], dict[str, np.ndarray], Sequence[str]]


def floats(*shape: int) -> np.ndarray:
    return CHANCE.standard_normal(shape).astype(np.float32)


def codes(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return CHANCE.integers(0, 100, shape).astype(dtype)


def node(kind: str, inputs: str, outputs: str = "y", domain: str = "", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(" "), outputs.split(" "), domain=domain, **attrs)


def chain(kind: str, weights: str, **attrs: Any) -> list[onnx.NodeProto]:
    """Eight kernels one behind the other that read the same weights."""
    return [node(kind, f"{'x' if not index else f'y{index - 1}'} {weights}", f"y{index}", **attrs) for index in range(8)]


def shared() -> Iterator[Case]:
    """Weights that several kernels read are packed once for an operator and a form."""
    yield "matmul", chain("MatMul", "w"), {"x": floats(4, 64)}, {"w": floats(64, 64)}, ["y7"]
    for trans in (0, 1):
        yield f"gemm-{trans}", chain("Gemm", "w", transB=trans), {"x": floats(4, 64)}, {"w": floats(64, 64)}, ["y7"]
    mixed = [node("MatMul", "x w", "a"), node("Gemm", "a w", "b"), node("Gemm", "b w", "c", transB=1), node("MatMul", "c w", "d")]
    yield "mixed", mixed, {"x": floats(4, 64)}, {"w": floats(64, 64)}, ["d"]
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        nodes = []
        for index in range(8):
            nodes.append(node(kind, f"{'x' if not index else f's{index - 1}'} w r", f"y{index}", hidden_size=32))
            nodes.append(node("Squeeze", f"y{index} one", f"s{index}"))
        weights = {"w": floats(1, 32 * gates, 32), "r": floats(1, 32 * gates, 32), "one": np.array([1])}
        yield kind.lower(), nodes, {"x": floats(5, 2, 32)}, weights, ["s7"]


def equal() -> Iterator[Case]:
    """Weights with equal contents under two names count once, those that begin alike do not."""
    one, other = floats(64, 64), floats(64, 64)
    other[:32] = one[:32]
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("MatMul", "b u", "y")]
    yield "equal-contents", nodes, {"x": floats(4, 64)}, {"w": one, "v": one.copy(), "u": other}, ["y"]


def recurrent() -> Iterator[Case]:
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for inputs, hidden, steps, batch, direction in (
            (32, 16, 5, 2, "forward"),
            (50, 24, 7, 3, "bidirectional"),
            (24, 40, 6, 3, "reverse"),
        ):
            both = 2 if direction == "bidirectional" else 1
            weights = {
                "w": floats(both, gates * hidden, inputs),
                "r": floats(both, gates * hidden, hidden),
                "b": floats(both, 2 * gates * hidden),
            }
            one = node(kind, "x w r b", hidden_size=hidden, direction=direction)
            yield f"{kind}-{direction}", [one], {"x": floats(steps, batch, inputs)}, weights, ["y"]
    state = {"x": floats(6, 3, 24), "n": np.full(3, 6, np.int32), "h0": floats(1, 3, 40)}
    for kind, gates, attrs in (("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1})):
        weights = {"w": floats(1, gates * 40, 24), "r": floats(1, gates * 40, 40)}
        yield f"{kind}-states", [node(kind, "x w r  n h0", " h", hidden_size=40, **attrs)], state, weights, ["h"]
    for dtype in (np.int8, np.uint8):
        weights = {
            "w": codes(1, 50, 96, dtype=dtype),
            "r": codes(1, 24, 96, dtype=dtype),
            "zw": np.zeros(1, dtype),
            "sw": np.ones(1, np.float32),
        }
        one = node("DynamicQuantizeLSTM", "x w r      sw zw sw zw", domain=CONTRIB, hidden_size=24)
        yield f"DynamicQuantizeLSTM-{dtype.__name__}", [one], {"x": floats(5, 2, 50)}, weights, ["y"]


def products() -> Iterator[Case]:
    for dtype in (np.int8, np.uint8):
        for rows, inner, columns in ((5, 32, 16), (7, 50, 24)):
            key = f"{dtype.__name__}-{rows}"
            left = {"a": codes(rows, inner)}
            weights = {**SCALE, **SHIFT, "b": codes(inner, columns, dtype=dtype), "zb": np.array(0, dtype)}
            yield f"QLinearMatMul-{key}", [node("QLinearMatMul", "a s z b s zb s z")], left, weights, ["y"]
            yield f"MatMulInteger-{key}", [node("MatMulInteger", "a b")], left, weights, ["y"]
            yield f"MatMulIntegerToFloat-{key}", [node("MatMulIntegerToFloat", "a b s s", domain=CONTRIB)], left, weights, ["y"]
            dynamic = node("DynamicQuantizeMatMul", "a b s", domain=CONTRIB)
            yield f"DynamicQuantizeMatMul-{key}", [dynamic], {"a": floats(rows, inner)}, weights, ["y"]
            for trans in (0, 1):
                gemm = node("QGemm", "a s z b s zb  s z", domain=CONTRIB, transB=trans)
                turned = {**weights, "b": codes(columns, inner, dtype=dtype)} if trans else weights
                yield f"QGemm-{key}-{trans}", [gemm], left, turned, ["y"]
                if dtype is np.uint8:  # onnxruntime has no kernel for signed codes with unsigned ones
                    continue
                signed = {**turned, "z": np.array(0, np.int8)}
                yield f"QGemm-signed-{key}-{trans}", [gemm], {"a": codes(rows, inner, dtype=np.int8)}, signed, ["y"]
    for bits in (4, 8):
        for level in (0, 4) if bits == 4 else (0,):
            blocks, columns = 4, 96
            weights = {"b": codes(columns, blocks, 64 * bits // 8), "scales": floats(columns * blocks)}
            attrs = {"K": 256, "N": columns, "bits": bits, "block_size": 64, "accuracy_level": level}
            one = node("MatMulNBits", "a b scales", domain=CONTRIB, **attrs)
            if level == 0:
                yield f"MatMulNBits-{bits}-{level}", [one], {"a": floats(3, 256)}, weights, ["y"]


def convolutions() -> Iterator[Case]:
    for dtype in (np.int8, np.uint8):
        for batch, inputs, outputs, window, groups, stride, size in (
            (1, 8, 16, 3, 1, 1, 12),
            (2, 16, 32, 1, 1, 1, 9),
            (1, 16, 16, 3, 16, 2, 15),
            (1, 16, 32, 3, 2, 1, 10),
            (2, 7, 9, 5, 1, 2, 17),
            (1, 3, 64, 7, 1, 2, 224),
        ):
            key = f"{dtype.__name__}-{inputs}-{outputs}-{window}-{groups}"
            attrs = {"group": groups, "strides": [stride] * 2, "pads": [window // 2] * 4}
            weights = {**SCALE, **SHIFT, "w": codes(outputs, inputs // groups, window, window, dtype=dtype), "zw": np.array(0, dtype)}
            weights["bias"] = np.zeros(outputs, np.int32)
            image = {"x": codes(batch, inputs, size, size)}
            yield f"QLinearConv-{key}", [node("QLinearConv", "x s z w s zw s z bias", **attrs)], image, weights, ["y"]
            yield f"ConvInteger-{key}", [node("ConvInteger", "x w", **attrs)], image, weights, ["y"]
            if dtype is np.int8:
                signed = {**weights, "z": np.array(0, np.int8)}
                conv = node("QLinearConv", "x s z w s zw s z bias", **attrs)
                yield f"QLinearConv-signed-{key}", [conv], {"x": codes(batch, inputs, size, size, dtype=np.int8)}, signed, ["y"]
    twice = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Exp", "d", "a"),
        node("Neg", "d", "b"),
        node("Add", "a b", "c"),
        node("Mul", "c d"),
    ]
    yield "DequantizeLinear-read-thrice", twice, {"x": floats(4, 300)}, {**SCALE, **SHIFT}, ["y"]
    yield "DequantizeLinear-returned", twice[:4], {"x": floats(4, 300)}, {**SCALE, **SHIFT}, ["d", "a", "b"]
    pool = node("QLinearAveragePool", "x s z s z", domain=CONTRIB, kernel_shape=[3, 3])
    yield "QLinearAveragePool", [pool], {"x": codes(2, 24, 9, 9)}, {**SCALE, **SHIFT}, ["y"]


EQUATIONS: tuple[tuple[Any, ...], ...] = (
    ("bhqd,bhkd->bhqk", (2, 4, 9, 16), (2, 4, 11, 16)),
    ("bqhd,bkhd->bhqk", (2, 9, 4, 16), (2, 11, 4, 16)),
    ("bhqk,bkhd->bqhd", (2, 4, 9, 11), (2, 11, 4, 16)),
    ("bsd,edf->bsef", (2, 12, 16), (4, 16, 24)),
    ("nchw,nvw->nchv", (2, 8, 5, 7), (2, 6, 7)),
    ("ij->ji", (40, 64)),
    ("bij->bi", (3, 40, 64)),
    ("...ij,...jk->...ik", (2, 3, 8, 9), (2, 3, 9, 10)),
    ("...ij,...kj", (2, 3, 8, 9), (2, 3, 10, 9)),
    ("i,j->ij", (40,), (64,)),
    ("i,i->", (640,), (640,)),
    ("bik,bj->bij", (3, 8, 9), (3, 10)),
    ("bi,bjk->bij", (3, 8), (3, 9, 10)),
    ("abc,cd->abd", (1, 20, 30), (30, 40)),
)


def scratch() -> Iterator[Case]:
    """What else takes memory while it runs, before or after it asks for its results."""
    for inputs, outputs, groups, size in ((8, 12, 1, 9), (24, 1, 1, 40), (6, 6, 3, 15)):
        weights = {"w": floats(inputs, outputs // groups, 2, 2)}
        turned = node("ConvTranspose", "x w", "a", strides=[2, 2], group=groups)
        yield f"ConvTranspose-{inputs}", [turned, node("Relu", "a")], {"x": floats(2, inputs, size, size)}, weights, ["y"]
    for left, right in (((40, 64), (40, 64)), ((64,), (40, 1)), ((), (2, 40, 64))):
        choice = [node("Greater", "x t", "c"), node("Where", "c l r")]
        yield f"Where-{len(left)}", choice, {"x": floats(40, 64), "l": floats(*left), "r": floats(*right)}, {"t": floats()}, ["y"]
    yield "LRN", [node("LRN", "x", size=5)], {"x": floats(2, 24, 17, 17)}, {}, ["y"]
    for kind in ("Sum", "Max", "Min", "Mean"):
        yield kind, [node(kind, "x z x")], {"x": floats(40, 64), "z": floats(64)}, {}, ["y"]
    for kind in ("BiasGelu", "FastGelu"):
        yield kind, [node(kind, "x b", domain=CONTRIB)], {"x": floats(40, 64)}, {"b": floats(64)}, ["y"]
    yield "FastGelu-alone", [node("FastGelu", "x", domain=CONTRIB)], {"x": floats(40, 64)}, {}, ["y"]
    yield "Hardmax", [node("Hardmax", "x", axis=0)], {"x": floats(40, 64)}, {}, ["y"]
    for equation, *shapes in EQUATIONS:
        inputs = {f"x{place}": floats(*shape) for place, shape in enumerate(shapes)}
        yield f"Einsum-{equation}", [node("Einsum", " ".join(inputs), equation=equation)], inputs, {}, ["y"]


def halves() -> Iterator[Case]:
    """Kernels without a form in half precision run between casts; what lies between such ones runs in single precision with them."""

    def half(*shape: int) -> np.ndarray:
        return floats(*shape).astype(np.float16)

    image, x = {"x": half(1, 3, 32, 32)}, {"x": half(40, 64)}
    mlp = [node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Relu", "c", "d"), node("MatMul", "d w2")]
    yield "half-mlp", mlp, {"x": half(4, 64)}, {"w": half(64, 128), "b": half(128), "w2": half(128, 32)}, ["y"]
    conv = [
        node("Conv", "x w b", "a", pads=[1] * 4),
        node("Relu", "a", "c"),
        node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    conv += [node("Conv", "d w2", "e"), node("GlobalAveragePool", "e", "g"), node("Flatten", "g")]
    yield "half-conv", conv, image, {"w": half(16, 3, 3, 3), "b": half(16), "w2": half(24, 16, 3, 3)}, ["y"]
    turn = node("Transpose", "a", "b", perm=[1, 0])
    yield "half-between", [node("Relu", "x", "a"), turn, node("Relu", "b")], x, {}, ["y"]
    yield "half-before", [node("Transpose", "x", "b", perm=[1, 0]), node("Relu", "b")], x, {}, ["y"]
    yield "half-two", [node("Relu", "x", "a"), turn, node("Reshape", "b s", "c"), node("Relu", "c")], x, {"s": np.array([64, 40])}, ["y"]
    concat = [node("Relu", "x", "a"), node("Concat", "a w", "b", axis=0), node("Relu", "b")]
    yield "half-weight", concat, x, {"w": half(24, 64)}, ["y"]
    weights = {"g": half(64), "be": half(64)}
    yield "half-norm", [node("LayerNormalization", "x g be")], x, weights, ["y"]
    between = [node("Relu", "x", "r"), node("LayerNormalization", "r g be", "l"), node("Relu", "l")]
    yield "half-norm-between", between, x, weights, ["y"]
    casts = [node("Cast", "f", "h", to=TensorProto.FLOAT16), node("MatMul", "h w", "a"), node("Cast", "a", to=TensorProto.FLOAT)]
    yield "half-casts", casts, {"f": floats(4, 64)}, {"w": half(64, 128)}, ["y"]
    # As float16 converters write it: the cast of the input stands last.
    late = [
        node("Identity", "b", "b2"),
        node("MatMul", "h w", "a"),
        node("Add", "a b2", "m"),
        node("MatMul", "h w2", "s"),
        node("Add", "m s", "t"),
        node("Relu", "t", "r"),
    ]
    late += [node("Cast", "r", to=TensorProto.FLOAT), node("Cast", "f", "h", to=TensorProto.FLOAT16)]
    yield "half-late-cast", late, {"f": floats(40, 64)}, {"w": half(64, 128), "w2": half(64, 128), "b": half(128)}, ["y"]
    for kind in ("LeakyRelu", "Softmax", "LogSoftmax", "HardSwish"):
        yield f"half-{kind}", [node("Relu", "x", "a"), node(kind, "a", "b"), node("Neg", "b")], x, {}, ["y"]
    yield "half-PRelu", [node("Relu", "x", "a"), node("PRelu", "a s", "b"), node("Neg", "b")], x, {"s": half(64)}, ["y"]


CASES = {case[0]: case for case in (*shared(), *equal(), *recurrent(), *products(), *convolutions(), *scratch(), *halves())}


def write(case: Case, path: Path) -> None:
    name, nodes, inputs, weights, outputs = case
    read = {one for each in nodes for one in each.input}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for key, value in inputs.items()],
        [onnx.ValueInfoProto(name=key) for key in outputs],
        [numpy_helper.from_array(value, key) for key, value in weights.items() if key in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)], ir_version=9)
    onnx.save(model, path)


@pytest.mark.parametrize("name", CASES)
def test_every_counter(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(CASES[name], path)
    for row in compare(path, sizes={}):
        assert (row.predicted, row.exact) == (row.measured, row.kernels), row
        assert row.in_use[0] == row.in_use[1], row
        assert row.held[0] == row.held[1], row


def test_functions_are_those_of_the_operators() -> None:
    """Beside the definitions in `onnx.defs`, without their constants."""
    wrong = []
    for name, (opset, _, _) in FUNCTIONS.items():
        steps = [step.kernel for step in function_of(name, opset, True)]
        schema: Any = onnx.defs.get_schema(name, opset)
        plain, typed = schema.function_opset_versions, schema.context_dependent_function_opset_versions
        if plain:
            text = schema.get_function_with_opset_version(max(one for one in plain if one <= opset))
        else:
            operand = helper.make_tensor_type_proto(TensorProto.FLOAT16, [2, 3]).SerializeToString()
            proto = helper.make_node(name, ["x"], ["y"]).SerializeToString()
            text = schema.get_context_dependent_function_with_opset_version(max(one for one in typed if one <= opset), proto, [operand])
        defined = [one.op_type for one in onnx.FunctionProto.FromString(text).node if one.op_type not in ("Constant", "CastLike")]
        if steps != defined:
            wrong.append((name, steps, defined))
    assert not wrong


def branch(name: str, nodes: Sequence[onnx.NodeProto], result: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)])


@pytest.mark.parametrize("size", ["fixed", "open"])
@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_of_an_if_that_runs(condition: bool, size: str, tmp_path: Path) -> None:
    """Its kernels take memory as those around it do, and its second run has a block of its own."""
    then = branch("then", [node("Exp", "x", "t0"), node("Erf", "t0", "t1"), node("Softplus", "t1", "t2"), node("Add", "t2 x", "t")], "t")
    other = branch("else", [node("MatMul", "x w", "e0"), node("Concat", "e0 e0", "e1", axis=0), node("Slice", "e1 from to", "e")], "e")
    nodes = [
        node("Identity", "flag", "c"),
        node("Tanh", "x", "z"),
        node("If", "c", "y", then_branch=then, else_branch=other),
        node("Add", "y z", "r"),
    ]
    weights = {"w": floats(64, 64), "from": np.array([0]), "to": np.array([40]), "flag": np.array(condition)}
    graph = helper.make_graph(
        nodes,
        "choice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [40 if size == "fixed" else "rows", 64])],
        [onnx.ValueInfoProto(name="r")],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    for row in compare(path, sizes={} if size == "fixed" else {"rows": 40}):
        assert row.predicted == row.measured, row
        assert row.held[0] == row.held[1], row


def error_of(graph: onnx.GraphProto, folder: Path, way: str, sizes: Mapping[str, int] = {}, values: Mapping[str, int] = {}) -> float:
    """Return the largest error of the six counters of a session."""
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return ort_wild.row(path, way, WildFile("", "", path.name, "1", 0, sizes, values), None).worst


@pytest.mark.parametrize("way", ort_wild.WAYS)
@pytest.mark.parametrize("cached", [1, 0])
def test_a_merged_decoder(cached: int, way: str, tmp_path: Path) -> None:
    """Results of a branch whose sizes the session does not know get their memory when they are computed, weights that only kernels of
    branches read are packed and dropped, which leaves the branch without a pattern, and an optimised branch runs in its own order."""

    def body(name: str, has_past: bool) -> onnx.GraphProto:
        inner = [node("MatMul", "x w", f"{name}q"), node("MatMul", "x v", f"{name}k0")]
        inner.append(node("Concat", f"past {name}k0" if has_past else f"{name}k0 {name}k0", f"{name}k", axis=1))
        inner += [node("Transpose", f"{name}k", f"{name}t", perm=[0, 2, 1]), node("MatMul", f"{name}q {name}t", f"{name}s")]
        inner += [
            node("Softmax", f"{name}s", f"{name}p"),
            node("MatMul", f"{name}p {name}k", f"{name}o"),
            node("Identity", f"{name}k", f"{name}kept"),
        ]
        infos = [helper.make_tensor_value_info(f"{name}{end}", TensorProto.FLOAT, None) for end in ("o", "kept")]
        return helper.make_graph(inner, name, [], infos)

    sizes = {"x": ["batch", "length", 64], "past": ["batch", "before", 64]}
    graph = helper.make_graph(
        [node("If", "cached", "y present", then_branch=body("with", True), else_branch=body("without", False))],
        "merged",
        [
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()),
            helper.make_tensor_value_info("cached", TensorProto.BOOL, [1]),
        ],
        [onnx.ValueInfoProto(name=name) for name in ("y", "present")],
        [numpy_helper.from_array(floats(64, 64), name) for name in ("w", "v")],
    )
    assert error_of(graph, tmp_path, way, {"batch": 2, "length": 9, "before": 40}, {"cached": cached}) == 0


def a_loop(condition: str, state: str, has_slices: bool) -> onnx.GraphProto:
    """A Loop whose condition and second state are handed on, copied, or computed and none."""
    info = helper.make_tensor_value_info
    square = [40, 40]
    steps = [node("MatMul", "h w", "a"), node("Tanh", "a", "h2")]
    given = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("h", TensorProto.FLOAT, square)]
    steps += {"copied": [node("Identity", "c", "c2")], "computed": [node("Less", "i limit", "c2")]}.get(condition, [])
    made = [info("c" if condition == "same" else "c2", TensorProto.BOOL, []), info("h2", TensorProto.FLOAT, square)]
    results = ["y"]
    if state:
        given.append(info("p", TensorProto.FLOAT, square))
        steps += [node("Identity", "p", "p2")] if state == "copied" else []
        made.append(info("p2" if state == "copied" else "p", TensorProto.FLOAT, square))
        results.append("q")
    if has_slices:
        steps.append(node("Exp", "h2", "e"))
        made.append(info("e", TensorProto.FLOAT, square))
        results.append("z")
    body = helper.make_graph(steps, "steps", given, made)
    loop = node("Loop", f"n t x{' x' if state else ''}", " ".join(results), body=body)
    weights = {"w": floats(40, 40), "n": np.array(7), "t": np.array(True), "limit": np.array(100)}
    infos = [info(name, TensorProto.FLOAT, [7, *square] if name == "z" else square) for name in results]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return helper.make_graph([loop], "loop", [info("x", TensorProto.FLOAT, square)], infos, tensors)


@pytest.mark.parametrize("has_slices", [False, True])
@pytest.mark.parametrize("state", ["", "same", "copied"])
@pytest.mark.parametrize("condition", ["same", "copied", "computed"])
def test_a_loop(condition: str, state: str, has_slices: bool, tmp_path: Path) -> None:
    assert error_of(a_loop(condition, state, has_slices), tmp_path, "fixed") == 0


@pytest.mark.parametrize("has_state", [False, True])
def test_a_scan(has_state: bool, tmp_path: Path) -> None:
    """Rows of a table less each row of an operand, with a state of two buffers between steps."""
    info = helper.make_tensor_value_info
    row, table = info("r", TensorProto.FLOAT, [96]), info("t", TensorProto.FLOAT, None)
    state, after = info("h", TensorProto.FLOAT, [96]), info("h2", TensorProto.FLOAT, [96])
    rows = [node("Sub", "r w", "d"), node("Mul", "d d", "t")]
    if has_state:
        rows = [node("Add", "h r", "k"), node("Tanh", "k", "h2"), *rows]
    body = helper.make_graph(rows, "rows", [state, row] if has_state else [row], [after, table] if has_state else [table])
    scan = node("Scan", "g x" if has_state else "x", "h3 s" if has_state else "s", body=body, num_scan_inputs=1)
    most = node("ReduceMax", "s", "m", axes=[0], keepdims=0)
    given = [info("x", TensorProto.FLOAT, [40, 96]), *([info("g", TensorProto.FLOAT, [96])] if has_state else [])]
    made = [info("m", TensorProto.FLOAT, [96, 96]), *([info("h3", TensorProto.FLOAT, [96])] if has_state else [])]
    graph = helper.make_graph([scan, most], "scan", given, made, [numpy_helper.from_array(floats(96, 96), "w")])
    assert error_of(graph, tmp_path, "fixed") == 0


def test_names_of_sizes_are_known_behind_a_transpose_that_moved(tmp_path: Path) -> None:
    """Sizes that Pad makes are known by what the file declares, in another order of axes than the rewritten graph has."""
    info = helper.make_tensor_value_info
    nodes = [node("Shape", "x", "s"), node("Concat", "s s", "ss", axis=0), node("Cast", "ss", "f", to=1), node("Mul", "f zero", "z")]
    nodes += [node("Cast", "z", "pads", to=7), node("Transpose", "x", "t", perm=[0, 2, 1]), node("Pad", "t pads", "p")]
    nodes += [node("Softmax", "p", "a"), node("Softmax", "a", "b", axis=1), node("Softmax", "b", "c")]
    nodes += [node("Transpose", "c", "u", perm=[0, 2, 1]), node("Softmax", "u", "v"), node("ReduceSum", "v", "y")]
    declared = [info(name, TensorProto.FLOAT, ["rows", 64, "columns"]) for name in "pabc"]
    zero, given = numpy_helper.from_array(np.zeros(1, np.float32), "zero"), [info("x", TensorProto.FLOAT, ["n", "m", 64])]
    graph = helper.make_graph(nodes, "padded", given, [info("y", TensorProto.FLOAT, None)], [zero], value_info=declared)
    assert error_of(graph, tmp_path, "default", {"n": 3, "m": 50}) == 0
