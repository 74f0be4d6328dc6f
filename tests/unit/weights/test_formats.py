"""One model in every format, quantized or larger than memory: the same statistics, those of numpy and ONNX Runtime."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import torch_big, weights_big
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.passes.weights.values import Logical, logical_weights
from irscope.session import open_model
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import Stored, read_all
from tests.unit.weights.making import look, truth

# One model in every format: the same statistics, those of numpy. The large one is of a size that people have.

torch = pytest.importorskip("torch")

LARGE = pytest.param(8192, marks=pytest.mark.full)


def _module(width: int) -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width)]
    module = torch.nn.Sequential(*layers).eval()
    if width > 1000:
        for _ in range(2):
            module.append(torch.nn.Linear(width, width))
    with torch.no_grad():
        module[2].weight[3] = 0
        module[2].weight[:, 7] = 0
    return module


def _pt2(module: Any, path: Path, x: Any) -> None:
    torch.export.save(torch.export.export(module, (x,)), path)


def _torchscript(module: Any, path: Path, x: Any) -> None:
    torch.jit.save(torch.jit.trace(module, x), str(path))


def _state_dict(module: Any, path: Path, x: Any) -> None:
    torch.save(module.state_dict(), path)


def _legacy(module: Any, path: Path, x: Any) -> None:
    torch.save(module.state_dict(), path, _use_new_zipfile_serialization=False)


def _safetensors(module: Any, path: Path, x: Any) -> None:
    header: dict[str, Any] = {}
    position = 0
    names = {torch.float32: "F32", torch.int64: "I64"}
    for name, tensor in module.state_dict().items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in module.state_dict().values():
            file.write(tensor.numpy().tobytes())


def _onnx(module: Any, path: Path, x: Any) -> None:
    import onnx
    from onnx import TensorProto, helper

    with (path.parent / "weights.bin").open("wb") as data:
        held, nodes, last = [], [], "x"
        for name, tensor in module.state_dict().items():
            raw = tensor.numpy().tobytes()
            proto = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(tensor.numpy().dtype), dims=tensor.shape)
            proto.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", str(data.tell())), ("length", str(len(raw)))):
                proto.external_data.add(key=key, value=value)
            data.write(raw)
            held.append(proto)
            nodes.append(helper.make_node("Identity", [name], [f"y{len(nodes)}"]))
    outputs = [
        helper.make_tensor_value_info(node.output[0], proto.data_type, list(proto.dims)) for node, proto in zip(nodes, held, strict=True)
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1])], outputs, held)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    onnx.checker.check_model(str(path))


FORMATS: dict[str, Callable[[Any, Path, Any], None]] = {
    "m.pt2": _pt2, "script.pt": _torchscript, "state.pt": _state_dict, "old.pt": _legacy, "m.safetensors": _safetensors, "m.onnx": _onnx,
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("width", [120, LARGE])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_numpy_says(name: str, width: int, tmp_path: Path) -> None:
    if width > 1000 and shutil.disk_usage(tmp_path).free < 8 << 30:
        pytest.skip("needs 8 GiB of disk")
    module = _module(width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FORMATS[name](module, tmp_path / name, torch.zeros(2, width))
    try:
        result = open_model(tmp_path / name).run("params{values}")["params"]
        report, look = result.report(), result.value.values
    finally:
        for path in tmp_path.iterdir():
            path.unlink()
    assert not report.partial and not look.unread
    found = {str(weight.name): made for weight, made in look.statistics.items()}
    assert set(module.state_dict()) - {"3.num_batches_tracked"} <= set(found)
    for key, tensor in module.state_dict().items():
        if key not in found:
            continue
        wanted = truth(tensor.numpy().astype(np.float64)) if width < 1000 else {"l1": float(tensor.double().abs().sum())}
        assert {one: getattr(found[key], one) for one in wanted} == pytest.approx(wanted, rel=1e-6, abs=1e-12), key
    assert (found["2.weight"].dead_rows, found["2.weight"].dead_columns) == (1, 1)


@pytest.mark.torch
def test_views_are_read_through_their_strides(tmp_path: Path) -> None:
    base = torch.arange(120, dtype=torch.float32)
    tensors = {
        "transposed": base[:60].reshape(6, 10).t(),
        "cut": base.reshape(10, 12)[2:7, 3:9],
        "repeated": base[5:9].reshape(4, 1).expand(4, 3),
        "part": base[100:110],
        "last": base.reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    tensors["transposed"][4] = 0
    torch.save(tensors, tmp_path / "m.pt")
    report = open_model(tmp_path / "m.pt").run("params{values}")["params"]
    found = {str(weight.name): made for weight, made in report.value.values.statistics.items()}
    for name, tensor in tensors.items():
        wanted = truth(tensor.double().numpy())
        assert {key: getattr(found[name], key) for key in wanted} == pytest.approx(wanted, rel=1e-9, abs=1e-12), name
    assert (found["transposed"].dead_rows, found["transposed"].dead_columns) == (1, 0)


# Quantized weights of ONNX models against what ONNX Runtime makes of them.

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


# Checkpoints larger than memory: structure at once, values in a stream, memory flat, stopped when asked.

_GB = 1_000_000_000


@pytest.mark.parametrize("form", weights_big.FORMATS)
@pytest.mark.parametrize("total", [2 * _GB, pytest.param(weights_big.LARGE, marks=pytest.mark.full)], ids=["2 GB", "40 GB"])
def test_values_are_streamed_in_little_memory(form: str, total: int, tmp_path: Path) -> None:
    if not weights_big.has_room(tmp_path):
        pytest.skip("the disk has no room, or cannot make files of holes")
    found = weights_big.measure(form, tmp_path, total, "stream")
    size = weights_big.features(total)
    assert found["read"] == found["bytes"] == 4 * torch_big.LAYERS * size * size and found["zeros"] == found["read"] // 4
    assert found["mb"] <= weights_big.LIMIT_MB


@pytest.mark.slow
@pytest.mark.parametrize("form", weights_big.FORMATS)
def test_work_stops_within_a_second(form: str, tmp_path: Path) -> None:
    if not weights_big.has_room(tmp_path):
        pytest.skip("the disk has no room, or cannot make files of holes")
    found = weights_big.measure(form, tmp_path, weights_big.LARGE, "cancel")
    assert found["cancelled_after"] <= 1.0


@pytest.mark.full
def test_a_quarter_of_a_billion_values(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    array = np.empty(1 << 28, np.float32)
    for start in range(0, array.size, 1 << 24):
        array[start : start + (1 << 24)] = random.standard_normal(1 << 24) * 0.02
    made = look(tmp_path, array, DType.F32, shape=(1 << 16, 1 << 12))
    parts = [array[start : start + (1 << 24)].astype(np.float64) for start in range(0, array.size, 1 << 24)]
    mean = sum(float(part.sum()) for part in parts) / array.size
    powers = {power: sum(float(((part - mean) ** power).sum()) for part in parts) / array.size for power in (2, 3, 4)}
    wanted = {
        "mean": mean,
        "std": powers[2] ** 0.5,
        "l1": sum(float(np.abs(part).sum()) for part in parts),
        "l2": sum(float((part * part).sum()) for part in parts) ** 0.5,
        "skewness": powers[3] / powers[2] ** 1.5,
        "kurtosis": powers[4] / powers[2] ** 2,
    }
    assert {key: getattr(made, key) for key in wanted} == pytest.approx(wanted, rel=1e-6)
