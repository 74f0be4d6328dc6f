"""Reads the small graphs of `tests/data/ort_fusions.txt`: for each fusion of ONNX Runtime one that has it, and ones that nearly have it."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

_FILE = Path(__file__).parents[2] / "data" / "ort_fusions.txt"
_DTYPES = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "u8": np.uint8, "i8": np.int8,
    "bool": np.bool_,
}  # fmt: skip
_OPSET = 17


def read_cases() -> dict[str, str]:
    """The text of each case by name; its operator set stands behind the name."""
    cases: dict[str, str] = {}
    for part in re.split(r"^== ", _FILE.read_text(), flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        cases[name.strip()] = text
    return cases


def model(name: str, text: str) -> onnx.ModelProto:
    """The model of a case."""
    lines = text.strip().splitlines()
    weights = [line.removeprefix("weight ") for line in lines if line.startswith("weight ")]
    graph = onnx.parser.parse_graph("\n".join(line for line in lines if not line.startswith("weight ")))
    graph.initializer.extend(_weight(line) for line in weights)
    for node in graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    opset = int(name.split()[1]) if " " in name else _OPSET
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


def _weight(line: str) -> onnx.TensorProto:
    head, _, values = line.partition("=")
    match = re.fullmatch(r"(\w+) \(([\d, ]*)\) *(\w*) *", head)
    assert match is not None, line
    name = match[1]
    shape = tuple(int(size) for size in re.findall(r"\d+", match[2]))
    dtype = np.dtype(_DTYPES[match[3] or "f32"])
    chance = np.random.default_rng(zlib.crc32(name.encode()))
    if values:
        array = np.resize(np.array([float(part) for part in values.split()]), shape).astype(dtype)
    elif dtype.kind == "f":
        array = chance.uniform(0.1, 0.9, shape).astype(dtype)
    else:
        array = chance.integers(1, 9, shape).astype(dtype)
    return onnx.numpy_helper.from_array(array, name)
