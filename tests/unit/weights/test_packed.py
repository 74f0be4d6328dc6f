"""Quantized weights of ONNX models against what ONNX Runtime makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.ir.program import Program
from irscope.passes.weights.values import Logical, logical_weights
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import Stored, read_all

_RANDOM = np.random.default_rng(11)


def _model(folder: Path, node: onnx.NodeProto, initializers: list[onnx.TensorProto], x: tuple[str, Any], y: Any, opset: int = 21) -> Path:
    inputs = [helper.make_tensor_value_info(x[0], TensorProto.FLOAT, x[1])] if x[0] else []
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)], initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def _array(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array), name)


def _run(path: Path, feeds: dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def _logical(path: Path) -> tuple[Program, Logical, Any]:
    program = load_program(path, LoadOptions(), DiagnosticSink())
    with WeightFiles(str(path)) as files:
        (found,) = logical_weights(program, files)
        assert isinstance(found.tensor, Stored), found.tensor
        compute = found.tensor.compute
        assert compute is not None
        return program, found, compute(0, found.tensor.count)


@pytest.mark.ort
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize(("bits", "k", "block"), [(4, 64, 32), (4, 70, 32), (4, 128, 128), (8, 64, 32)])
def test_blocks_of_matmul_nbits(bits: int, k: int, block: int, zeros: str, tmp_path: Path) -> None:
    n, blocks = 24, -(-k // block)
    codes = _RANDOM.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    scales = _RANDOM.uniform(0.01, 0.1, n * blocks).astype(np.float32)
    held = [_array("b", codes), _array("s", scales)]
    names = ["x", "b", "s"]
    if zeros != "none":
        packed = _RANDOM.integers(0, 256, n * ((blocks * bits + 7) // 8), dtype=np.uint8)
        held.append(_array("z", packed if zeros == "packed" else _RANDOM.uniform(0, 15, n * blocks).astype(np.float32)))
        names.append("z")
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    path = _model(tmp_path, node, held, ("x", (k, k)), (k, n))
    try:
        wanted = _run(path, {"x": np.eye(k, dtype=np.float32)}).T
    except Exception as error:
        pytest.skip(f"ONNX Runtime: {str(error)[:80]}")
    _, found, values = _logical(path)
    np.testing.assert_allclose(values.reshape(n, k), wanted, rtol=1e-4, atol=1e-4)
    assert found.scheme == f"u{bits}, blocks of {block}"


@pytest.mark.ort
@pytest.mark.parametrize(
    ("kind", "shape", "scale", "axis", "block"),
    [
        (TensorProto.INT8, (6, 10), (), 1, 0),
        (TensorProto.INT8, (6, 10), (10,), 1, 0),
        (TensorProto.UINT8, (6, 10), (6,), 0, 0),
        (TensorProto.INT4, (6, 64), (6, 4), 1, 16),
        (TensorProto.UINT4, (64, 6), (2, 6), 0, 32),
        (TensorProto.INT8, (8, 3, 2, 2), (8,), 0, 0),
        (TensorProto.FLOAT8E4M3FN, (6, 10), (), 1, 0),
    ],
)
def test_dequantize_linear(kind: int, shape: tuple[int, ...], scale: tuple[int, ...], axis: int, block: int, tmp_path: Path) -> None:
    count = int(np.prod(shape))
    if kind == TensorProto.FLOAT8E4M3FN:
        codes = helper.make_tensor("w", kind, shape, _RANDOM.integers(0, 0x7F, count, dtype=np.uint8).tobytes(), raw=True)
        held = [codes, _array("s", np.float32(0.5))]
        names = ["w", "s"]
    else:
        signed = kind in (TensorProto.INT8, TensorProto.INT4)
        most = 8 if kind in (TensorProto.INT4, TensorProto.UINT4) else 128
        low, high = (-most, most) if signed else (0, 2 * most)
        codes = helper.make_tensor("w", kind, shape, _RANDOM.integers(low, high, count).tolist())
        zero = helper.make_tensor("z", kind, scale, _RANDOM.integers(low, high, int(np.prod(scale))).tolist())
        held = [codes, _array("s", _RANDOM.uniform(0.01, 0.1, scale).astype(np.float32)), zero]
        names = ["w", "s", "z"]
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    path = _model(tmp_path, helper.make_node("DequantizeLinear", names, ["y"], **attributes), held, ("", None), shape)
    try:
        wanted = _run(path, {})
    except Exception as error:
        pytest.skip(f"ONNX Runtime: {str(error)[:80]}")
    _, _, values = _logical(path)
    np.testing.assert_allclose(values.reshape(shape), wanted, rtol=1e-6)


@pytest.mark.ort
@pytest.mark.parametrize("packs", [True, False])
def test_gathered_blocks(packs: bool, tmp_path: Path) -> None:
    rows, k, block = 12, 64, 32
    scales = _RANDOM.uniform(0.01, 0.1, (rows, k // block)).astype(np.float32)
    if packs:
        codes = _array("d", _RANDOM.integers(0, 256, (rows, k // 2), dtype=np.uint8))
    else:
        codes = helper.make_tensor("d", TensorProto.INT4, (rows, k), _RANDOM.integers(-8, 8, rows * k).tolist())
    held = [codes, _array("i", np.arange(rows)), _array("s", scales)]
    node = helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s"], ["y"], domain="com.microsoft", block_size=block, gather_axis=0, quantize_axis=1
    )
    path = _model(tmp_path, node, held, ("", None), (rows, k))
    try:
        wanted = _run(path, {})
    except Exception as error:
        pytest.skip(f"ONNX Runtime: {str(error)[:80]}")
    _, _, values = _logical(path)
    np.testing.assert_allclose(values.reshape(rows, k), wanted, rtol=1e-6)


def test_scales_that_do_not_fit_are_a_reason(tmp_path: Path) -> None:
    held = [_array("w", np.zeros((6, 10), np.int8)), _array("s", np.ones(7, np.float32)), _array("z", np.zeros(7, np.int8))]
    path = _model(tmp_path, helper.make_node("DequantizeLinear", ["w", "s", "z"], ["y"], axis=1), held, ("", None), (6, 10))
    program = load_program(path, LoadOptions(), DiagnosticSink())
    with WeightFiles(str(path)) as files:
        (found,) = logical_weights(program, files)
    assert not isinstance(found.tensor, Stored) and "do not fit" in found.tensor.reason


def test_small_tensors_are_read_in_their_own_type(tmp_path: Path) -> None:
    with WeightFiles("") as files:
        from irscope.ir.dtypes import DType
        from irscope.weights.source import Bytes

        raw = np.array([0x3C00, 0xBC00], np.uint16).tobytes()
        assert read_all(Stored(DType.F16, 2, Bytes(4, raw)), files).tolist() == [1.0, -1.0]
