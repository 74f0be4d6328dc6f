"""ONNX files written again after passes changed them: what was not touched is as it was, results are equal in ONNX Runtime."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irscope.api import transform
from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx import writer
from irscope.frontends.rewriting import Original
from irscope.ir.graph import Graph
from irscope.passkit.base import PassContext
from irscope.session import open_model
from irscope.tools.rewrite import Rewritten, rewrite
from tests.tools.conformance.suite import Case, load_suite

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "models"
pytestmark = pytest.mark.ort
rng = np.random.default_rng(7)


def _run(path: Path, inputs: dict[str, Any], *, optimize: bool = False) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs))


def _rewrite(path: Path, passes: str, target: Path, *, external: bool = False, bind: dict[str, int] | None = None) -> Rewritten:
    return rewrite(open_model(path, LoadOptions(keep_calls=True, bind=bind or {})), passes, target, external=external)


def _floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return rng.standard_normal(shape).astype(np.float32)


def _save(
    path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, tuple[Any, ...]]], outputs: list[str], weights: dict[str, Any]
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.metadata_props.add(key="author", value="somebody")
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def _norm(of: str, to: str, channels: int, weights: dict[str, Any], **attributes: Any) -> onnx.NodeProto:
    for name, value in (("scale", _floats(channels)), ("shift", _floats(channels)), ("mean", _floats(channels))):
        weights[f"{to}.{name}"] = value
    weights[f"{to}.var"] = np.abs(_floats(channels)) + 0.1
    names = [of, *(f"{to}.{name}" for name in ("scale", "shift", "mean", "var"))]
    return helper.make_node("BatchNormalization", names, [to], epsilon=1e-3, **attributes)


@pytest.mark.parametrize("name", ["cnn", "lstm", "control_flow", "transformer"])
def test_an_untouched_sample_is_the_same_model(tmp_path: Path, name: str) -> None:
    target = tmp_path / "again.onnx"
    _rewrite(SAMPLES / f"{name}.onnx", "", target)
    before, after = onnx.load(SAMPLES / f"{name}.onnx"), onnx.load(target)
    assert before.SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)
    onnx.checker.check_model(after, full_check=True)


def _suite(one_of: int) -> list[Case]:
    return [case for case in load_suite() if case.kind == "node" and zlib.crc32(case.name.encode()) % one_of == 0]


def test_untouched_conformance_models_read_as_they_were(tmp_path: Path) -> None:
    """`rewrite` reads what it wrote and compares it; nodes that nothing reads may go."""
    for case in _suite(17):
        source = tmp_path / "case.onnx"
        source.write_bytes(case.model)
        _rewrite(source, "", tmp_path / "again.onnx")
        before, after = onnx.load_from_string(case.model), onnx.load(tmp_path / "again.onnx")
        kept = [node.SerializeToString() for node in after.graph.node]
        assert kept == [node.SerializeToString() for node in before.graph.node if node.SerializeToString() in set(kept)], case.name
        assert before.functions == after.functions and before.opset_import == after.opset_import


@pytest.mark.slow
def test_nodes_made_anew_compute_what_the_files_own_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a pass had replaced every node: what can be written gives the same bits."""
    monkeypatch.setattr(Original, "is_as_read", lambda self, node: False)
    written = compared = 0
    for case in _suite(13):
        source, target = tmp_path / "case.onnx", tmp_path / "again.onnx"
        source.write_bytes(case.model)
        try:
            _rewrite(source, "", target)
        except UsageError as refused:
            if refused.code != "IRS368" or "fault of irscope" in refused.hint:
                pytest.fail(f"{case.name}: {refused}")
            continue
        written += 1
        names = [info.name for info in onnx.load_from_string(case.model).graph.input]
        given = {name: onnx.TensorProto.FromString(raw) for name, raw in zip(names, case.inputs, strict=False) if raw is not None}
        arrays = {name: numpy_helper.to_array(argument) for name, argument in given.items()}
        try:
            before = _run(source, arrays)
        except Exception:  # what this runtime does not run cannot be compared
            continue
        for mine, theirs in zip(_run(target, arrays), before, strict=True):
            if isinstance(mine, np.ndarray):
                np.testing.assert_array_equal(mine, theirs, case.name)
        compared += 1
    assert written > 80 and compared > 60


def test_normalizations_fold_into_what_is_before_them(tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w1": _floats(6, 3, 3, 3), "w2": _floats(4, 6, 1, 1), "b2": _floats(4), "w3": _floats(4, 5, 2, 2)}
    weights |= {"w4": _floats(20, 7), "b4": _floats(7), "shape": np.array([0, -1])}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        _norm("c1", "n1", 6, weights),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"]),
        _norm("c2", "n2", 4, weights),
        helper.make_node("ConvTranspose", ["n2", "w3"], ["c3"]),
        _norm("c3", "n3", 5, weights),
        helper.make_node("GlobalAveragePool", ["n3"], ["p"]),
        helper.make_node("Concat", ["p", "p", "p", "p"], ["wide"], axis=1),
        helper.make_node("Reshape", ["wide", "shape"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w4", "b4"], ["g"]),
        _norm("g", "y", 7, weights),
    ]
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, ("n", 3, 8, 8))}, ["y"], weights)
    target = tmp_path / "folded.onnx"
    assert _rewrite(path, "fold-batch-norm", target).nodes == (12, 8)
    after = onnx.load(target)
    onnx.checker.check_model(after, full_check=True)
    assert not any(node.op_type == "BatchNormalization" for node in after.graph.node)
    assert {one.name for one in after.graph.initializer} == {"w1", "w1.bias", "w2", "b2", "w3", "w3.bias", "w4", "b4", "shape"}
    assert after.metadata_props == onnx.load(path).metadata_props
    x = _floats(2, 3, 8, 8)
    for mine, theirs in zip(_run(target, {"x": x}), _run(path, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-4)


def test_weights_and_results_that_others_use_stay(tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w": _floats(3, 3, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        _norm("a", "n1", 3, weights),
        helper.make_node("Conv", ["x", "w"], ["b"]),
        helper.make_node("Add", ["n1", "b"], ["y"]),
        helper.make_node("Conv", ["x", "w"], ["c"]),
        _norm("c", "n2", 3, weights),
        helper.make_node("Add", ["n2", "c"], ["z"]),
    ]
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, (1, 3, 4, 4))}, ["y", "z"], weights)
    target = tmp_path / "folded.onnx"
    _rewrite(path, "fold-batch-norm", target)
    after = onnx.load(target)
    assert [node.op_type for node in after.graph.node].count("BatchNormalization") == 1
    assert {"w", "w.folded"} <= {one.name for one in after.graph.initializer}
    x = _floats(1, 3, 4, 4)
    for mine, theirs in zip(_run(target, {"x": x}), _run(path, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_what_does_not_fold_is_left(tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w": _floats(4, 4, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"]),
        _norm("a", "n1", 4, weights),
        helper.make_node("Conv", ["n1", "w"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        _norm("r", "y", 4, weights),
    ]
    inputs = {"x": (TensorProto.FLOAT, (1, 4, 4, 4)), "k": (TensorProto.FLOAT, (4, 4, 1, 1))}
    path = _save(tmp_path / "model.onnx", nodes, inputs, ["y"], weights)
    assert _rewrite(path, "fold-batch-norm", tmp_path / "folded.onnx").nodes == (5, 5)
    assert [node.op_type for node in onnx.load(tmp_path / "folded.onnx").graph.node].count("BatchNormalization") == 2


def test_what_is_computed_from_weights_becomes_a_weight(tmp_path: Path) -> None:
    weights = {"w": _floats(64, 32), "s": _floats(32, 1), "half": _floats(64).astype(np.float16)}
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("Mul", ["t", "s"], ["scaled"]),
        helper.make_node("MatMul", ["x", "scaled"], ["m"]),
        helper.make_node("Cast", ["half"], ["full"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["m", "full"], ["y"]),
    ]
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, ("n", 32))}, ["y"], weights)
    target = tmp_path / "folded.onnx"
    assert _rewrite(path, "fold{weights},dce", target).nodes == (5, 2)
    after = onnx.load(target)
    onnx.checker.check_model(after, full_check=True)
    found = {one.name: numpy_helper.to_array(one) for one in after.graph.initializer}
    np.testing.assert_array_equal(found["scaled"], weights["w"].T * weights["s"])
    assert set(found) == {"scaled", "full"}
    x = _floats(3, 32)
    np.testing.assert_array_equal(_run(target, {"x": x})[0], _run(path, {"x": x})[0])


def test_a_weight_that_would_grow_is_not_folded(tmp_path: Path) -> None:
    weights = {"w": _floats(1, 32), "size": np.array([4096, 32])}
    nodes = [helper.make_node("Expand", ["w", "size"], ["e"]), helper.make_node("Add", ["x", "e"], ["y"])]
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, (4096, 32))}, ["y"], weights)
    assert _rewrite(path, "fold{weights}", tmp_path / "folded.onnx").nodes == (2, 2)


def test_shapes_fold_at_sizes_that_are_given_and_inputs_then_say_so(tmp_path: Path) -> None:
    target = tmp_path / "bound.onnx"
    before, after = _rewrite(SAMPLES / "transformer.onnx", "fold,dce", target, bind={"batch": 2, "length": 5}).nodes
    assert after < before
    found = onnx.load(target)
    onnx.checker.check_model(found, full_check=True)
    assert [dim.dim_value for dim in found.graph.input[0].type.tensor_type.shape.dim] == [2, 5]
    tokens = {"tokens": rng.integers(0, 1000, (2, 5))}
    np.testing.assert_array_equal(_run(target, tokens)[0], _run(SAMPLES / "transformer.onnx", tokens)[0])


@transform("test-relu-to-gelu")
def _to_gelu(graph: Graph, ctx: PassContext) -> bool:
    """Every relu a clamp, and a new node behind the last one."""
    nodes = [node for node in graph if node.op == "nn.relu"]
    for node in nodes:
        graph.replace(node, "nn.leaky_relu", attrs={"alpha": 0.5})
    return bool(nodes)


def test_nodes_that_a_pass_made_have_an_operator_and_results_their_names(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["y"], name="second")]
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, (4,))}, ["y"], {})
    target = tmp_path / "changed.onnx"
    _rewrite(path, "test-relu-to-gelu", target)
    after = onnx.load(target)
    onnx.checker.check_model(after, full_check=True)
    assert [(node.op_type, list(node.input), list(node.output)) for node in after.graph.node] == [
        ("LeakyRelu", ["x"], ["a"]),
        ("LeakyRelu", ["a"], ["y"]),
    ]
    np.testing.assert_array_equal(_run(target, {"x": np.float32([-4, 0, 1, 2])})[0], np.float32([-1, 0, 1, 2]))


def test_the_order_that_a_pass_finds_is_the_order_of_the_file(tmp_path: Path) -> None:
    nodes = [helper.make_node(op, ["x"], [op]) for op in ("Relu", "Neg", "Abs")]
    nodes.append(helper.make_node("Sum", ["Relu", "Neg", "Abs"], ["y"]))
    path = _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, (4,))}, ["y"], {})
    _rewrite(path, "test-backward", tmp_path / "changed.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "changed.onnx").graph.node] == ["Abs", "Neg", "Relu", "Sum"]


@transform("test-backward")
def _backward(graph: Graph, ctx: PassContext) -> bool:
    """All nodes but the last one the other way round."""
    *rest, last = graph
    graph.reorder([*reversed(rest), last])
    return True


def test_graphs_inside_nodes_read_what_took_the_place_of_their_values(tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w": _floats(3, 3, 1, 1)}
    conv, norm = helper.make_node("Conv", ["x", "w"], ["c"]), _norm("c", "n", 3, weights)
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["n"], [f"{name}_y"])], name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)]
        )
        for name, op in (("yes", "Relu"), ("no", "Neg"))
    }
    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branches["yes"], else_branch=branches["no"])
    inputs = {"x": (TensorProto.FLOAT, (1, 3, 4, 4)), "flag": (TensorProto.BOOL, ())}
    path = _save(tmp_path / "model.onnx", [conv, norm, choose], inputs, ["y"], weights)
    target = tmp_path / "folded.onnx"
    _rewrite(path, "fold-batch-norm", target)
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert not any(node.op_type == "BatchNormalization" for node in onnx.load(target).graph.node)
    x = _floats(1, 3, 4, 4)
    for flag in (True, False):
        given = {"x": x, "flag": np.array(flag)}
        np.testing.assert_allclose(_run(target, given)[0], _run(path, given)[0], rtol=1e-4, atol=1e-4)


def test_graphs_inside_nodes_stay_as_they_are_whatever_could_be_made_of_them(tmp_path: Path) -> None:
    """What is written of a file holds them as they were read: sums of constants, twins and branches on constants in one of them stay."""
    graphs = {}
    for name in ("yes", "no"):
        nested = helper.make_node(
            "If",
            ["always"],
            [f"{name}.z"],
            then_branch=helper.make_graph(
                [helper.make_node("Identity", [f"{name}.t"], [f"{name}.s"])],
                "inner",
                [],
                [helper.make_tensor_value_info(f"{name}.s", TensorProto.FLOAT, None)],
            ),
            else_branch=helper.make_graph(
                [helper.make_node("Neg", [f"{name}.t"], [f"{name}.u"])],
                "other",
                [],
                [helper.make_tensor_value_info(f"{name}.u", TensorProto.FLOAT, None)],
            ),
        )
        nodes = [
            helper.make_node("Add", ["one", "one"], [f"{name}.two"]),
            helper.make_node("Mul", ["a", f"{name}.two"], [f"{name}.m"]),
            helper.make_node("Mul", ["a", f"{name}.two"], [f"{name}.n"]),
            helper.make_node("Add" if name == "yes" else "Sub", [f"{name}.m", f"{name}.n"], [f"{name}.t"]),
            nested,
        ]
        graphs[name] = helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}.z", TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=graphs["yes"], else_branch=graphs["no"]),
        helper.make_node("If", ["always"], ["w"], then_branch=graphs["yes"], else_branch=graphs["no"]),
        helper.make_node("Add", ["b", "y"], ["c"]),
        helper.make_node("Add", ["c", "w"], ["r"]),
    ]
    given = {"x": (TensorProto.FLOAT, (3,)), "flag": (TensorProto.BOOL, ())}
    path = _save(tmp_path / "model.onnx", nodes, given, ["r"], {"one": np.ones(1, np.float32), "always": np.asarray(True)})
    target = tmp_path / "changed.onnx"
    inputs = {"x": _floats(3), "flag": np.asarray(True)}
    for passes in ("fold", "cse", "dce", "canonicalize", "inline", "cse,fold,canonicalize,dce"):
        _rewrite(path, passes, target)
        np.testing.assert_array_equal(_run(target, inputs)[0], _run(path, inputs)[0])
        target.unlink()


def test_a_function_keeps_its_body_where_nothing_in_it_changed(tmp_path: Path) -> None:
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [helper.make_node("Twice", ["x"], ["t"], domain="own"), helper.make_node("Relu", ["t"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9), tmp_path / "model.onnx")
    _rewrite(tmp_path / "model.onnx", "test-relu-to-gelu", tmp_path / "changed.onnx")
    after = onnx.load(tmp_path / "changed.onnx")
    assert [node.op_type for node in after.graph.node] == ["Twice", "LeakyRelu"] and len(after.functions) == 1
    onnx.checker.check_model(after, full_check=True)


def test_a_function_whose_inside_changed_is_written_node_by_node(tmp_path: Path) -> None:
    names = ["x", "w", "scale", "shift", "mean", "var"]
    body = [helper.make_node("Conv", names[:2], ["c"]), helper.make_node("BatchNormalization", ["c", *names[2:]], ["y"])]
    function = helper.make_function("own", "ConvNorm", names, ["y"], body, [helper.make_opsetid("", 17)])
    weights = {"w": _floats(3, 3, 1, 1), **{name: np.abs(_floats(3)) for name in names[2:]}}
    graph = helper.make_graph(
        [helper.make_node("ConvNorm", names, ["t"], domain="own"), helper.make_node("Relu", ["t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 4, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, 4, 4))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    path, target = tmp_path / "model.onnx", tmp_path / "folded.onnx"
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9), path)
    _rewrite(path, "fold-batch-norm,dce", target)
    after = onnx.load(target)
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node] == ["Conv", "Relu"]
    x = {"x": _floats(1, 3, 4, 4)}
    np.testing.assert_allclose(_run(target, x)[0], _run(path, x)[0], rtol=1e-4, atol=1e-4)


def test_old_files_list_new_weights_among_their_inputs_and_removed_ones_no_more(tmp_path: Path) -> None:
    path, inputs = _with_norm(tmp_path)
    model = onnx.load(path)
    model.ir_version, model.opset_import[0].version = 3, 9
    model.graph.input.extend(helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in model.graph.initializer)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    _rewrite(path, "fold-batch-norm,dce", tmp_path / "folded.onnx")
    after = onnx.load(tmp_path / "folded.onnx")
    onnx.checker.check_model(after, full_check=True)
    assert {info.name for info in after.graph.input} == {"x", *(one.name for one in after.graph.initializer)}
    assert len(after.graph.initializer) == 3
    np.testing.assert_allclose(_run(tmp_path / "folded.onnx", inputs)[0], _run(path, inputs)[0], rtol=1e-3, atol=1e-3)


def _with_norm(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    weights: dict[str, Any] = {"w": _floats(16, 8, 3, 3), "v": _floats(16, 16, 3, 3)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), _norm("c", "n", 16, weights), helper.make_node("Conv", ["n", "v"], ["y"])]
    return _save(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, (1, 8, 8, 8))}, ["y"], weights), {"x": _floats(1, 8, 8, 8)}


def _check_external(path: Path, target: Path, inputs: dict[str, Any]) -> None:
    assert target.with_name(f"{target.name}.data").is_file()
    stored = {one.name: one.data_location for one in onnx.load(target, load_external_data=False).graph.initializer}
    assert stored["w"] == stored["v"] == TensorProto.EXTERNAL and stored["w.bias"] == TensorProto.DEFAULT
    onnx.checker.check_model(str(target), full_check=True)
    np.testing.assert_allclose(_run(target, inputs)[0], _run(path, inputs)[0], rtol=1e-3, atol=1e-3)


def test_weights_lie_beside_the_model_on_request(tmp_path: Path) -> None:
    path, inputs = _with_norm(tmp_path)
    _rewrite(path, "fold-batch-norm", tmp_path / "folded.onnx", external=True)
    _check_external(path, tmp_path / "folded.onnx", inputs)


def test_weights_lie_beside_the_model_where_protobuf_could_not_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, inputs = _with_norm(tmp_path)
    monkeypatch.setattr(writer, "_MOST_INLINE", 4000)
    assert len(_rewrite(path, "fold-batch-norm", tmp_path / "folded.onnx").files) == 2
    _check_external(path, tmp_path / "folded.onnx", inputs)


def test_weights_that_lay_beside_the_model_still_do_in_another_folder(tmp_path: Path) -> None:
    path, inputs = _with_norm(tmp_path)
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=100)
    (tmp_path / "out").mkdir()
    _rewrite(path, "fold-batch-norm", tmp_path / "out" / "folded.onnx")
    _check_external(path, tmp_path / "out" / "folded.onnx", inputs)


def test_weights_whose_file_is_missing_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = _with_norm(tmp_path)
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=100)
    (tmp_path / "w.bin").unlink()
    assert main(["export", str(path), "--passes", "dce", "-o", str(tmp_path / "out.onnx")]) == 2
    said = capsys.readouterr().err
    assert "IRS368" in said and "the weight 'w' cannot be written" in said
    assert not (tmp_path / "out.onnx").exists() and not (tmp_path / "out.onnx.data").exists()


def test_the_originals_weights_are_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = _with_norm(tmp_path)
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, location="other.onnx.data", size_threshold=100)
    before = (tmp_path / "other.onnx.data").read_bytes()
    assert main(["export", str(path), "--passes", "dce", "-o", str(tmp_path / "other.onnx")]) == 2
    assert "IRS361" in capsys.readouterr().err and (tmp_path / "other.onnx.data").read_bytes() == before


def test_the_command_says_what_became_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = _with_norm(tmp_path)
    assert main(["export", str(path), "--passes", "fold-batch-norm,cleanup", "-o", str(tmp_path / "out.onnx")]) == 0
    said = capsys.readouterr().err
    assert "fold-batch-norm: folded 1, left 0" in said and "2 nodes, 3 before" in said and f"wrote {tmp_path / 'out.onnx'}" in said


def test_a_report_is_not_written_under_the_name_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = _with_norm(tmp_path)
    monkeypatch.chdir(tmp_path)  # messages cut long paths in the middle
    assert main(["run", path.name, "--passes", "fold-batch-norm,dce", "-o", "out.onnx"]) == 2
    said = capsys.readouterr().err
    assert f"`irscope export --passes 'fold-batch-norm,dce' {path.name} -o out.onnx`" in said
    assert not (tmp_path / "out.onnx").exists()


@transform("test-unwritable")
def _unwritable(graph: Graph, ctx: PassContext) -> bool:
    """A node that no operator of ONNX stands for."""
    node = next(iter(graph))
    graph.replace(node, "nn.linear", [node.inputs[0], node.inputs[0]])
    return True


def test_a_node_without_an_operator_is_named_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _save(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, (4, 4))}, ["y"], {})
    assert main(["export", str(path), "--passes", "test-unwritable", "-o", str(tmp_path / "out.onnx")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "IRS368" in said and "node 'y' (nn.linear) cannot be written as ONNX" in said
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("target", "passes", "code"),
    [("out.pt2", "dce", "IRS357"), ("model.onnx", "dce", "IRS361"), ("out.onnx", "flops", "IRS368"), ("out.onnx", "nonsense", "IRS")],
)
def test_what_cannot_be_asked_for_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, passes: str, code: str
) -> None:
    path, _ = _with_norm(tmp_path)
    before = path.read_bytes()
    assert main(["export", str(path), "--passes", passes, "-o", str(tmp_path / target), "--force"]) == 2
    assert code in capsys.readouterr().err and path.read_bytes() == before


def test_a_link_is_not_written_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = _with_norm(tmp_path)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.onnx").symlink_to(tmp_path / "precious")
    assert main(["export", str(path), "--passes", "dce", "-o", str(tmp_path / "out.onnx")]) == 2
    assert (tmp_path / "precious").read_text() == "mine"
    (tmp_path / "out2.onnx.data").symlink_to(tmp_path / "precious")
    assert main(["export", str(path), "--passes", "dce", "--external-data", "-o", str(tmp_path / "out2.onnx")]) == 2
    assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "out2.onnx").exists()


ROOT = SAMPLES.parents[1]


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```\n", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)


def test_the_script_of_the_documentation_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "add-a-pass.md").read_text(encoding="utf-8")
    core, script = next(block for block in _blocks("add-a-pass.md") if "derived_weight(graph" in block), _blocks("add-a-pass.md")[-1]
    assert core in (ROOT / "samples" / "fold_passes.py").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(script.replace("samples/", f"{ROOT}/samples/"), {})
    shown = page.partition(script)[2].splitlines()[2:4]
    assert capsys.readouterr().out.splitlines() == [line.strip() for line in shown]


def test_what_the_command_says_is_what_the_documentation_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "export.md").read_text(encoding="utf-8").partition("## A changed model\n")[2]
    command = re.findall(r"^    irscope (export --passes .*)$", section, re.M)[0]
    assert main(command.replace("samples/", f"{ROOT}/samples/").split()) == 0
    shown = [line[4:] for line in section.partition("leave it:\n\n")[2].partition("\n\n")[0].splitlines()]
    assert capsys.readouterr().err.splitlines() == shown
    path = _save(Path("model.onnx"), [helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, (4, 4))}, ["y"], {})
    main(["export", str(path), "--passes", "test-unwritable", "-o", "out.onnx"])
    assert f"    {capsys.readouterr().err}" in section
