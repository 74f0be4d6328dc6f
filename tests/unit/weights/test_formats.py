"""One model in every format: the same statistics, those of numpy. The large one is of a size that people have."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irscope.session import open_model
from tests.unit.weights.making import truth

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
    assert (found["2.weight"].dead_row_indices.tolist(), found["2.weight"].dead_column_indices.tolist()) == ([3], [7])


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
    assert found["transposed"].dead_row_indices.tolist() == [4] and not len(found["transposed"].dead_column_indices)
