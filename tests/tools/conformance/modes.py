"""What an engine is told: types only, values of the inputs too, or symbols in place of sizes. Declared results never."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from tests.tools.conformance.suite import Case

MODES = {
    "T": "types only: values of inputs are unknown",
    "V": "values: every tensor input is a constant",
    "S": "symbols: each size above 1 of a float input is a symbol, small integer inputs are constants",
}
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16})
_INTEGERS = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_MOST_GIVEN = 64
_FIRST_IR_WITHOUT_INPUTS_FOR_WEIGHTS = 4
_SYMBOL = re.compile(r"d([0-9]+)")


def symbol_value(name: str) -> int | None:
    """The size that a symbol of mode S stands for: "d3" for 3; None for any other name."""
    match = _SYMBOL.fullmatch(name)
    return int(match[1]) if match else None


def prepare(case: Case, mode: str) -> onnx.ModelProto:
    """The model of a case as an engine gets it in a mode."""
    model = onnx.ModelProto.FromString(case.model)
    graph = model.graph
    del graph.value_info[:]
    for info in graph.output:
        info.ClearField("type")
    if mode == "T":
        return model
    inputs = list(_left_inputs(case, model, mode))
    del graph.input[:]
    graph.input.extend(inputs)
    return model


def _left_inputs(case: Case, model: onnx.ModelProto, mode: str) -> Iterator[onnx.ValueInfoProto]:
    """Inputs that stay inputs; the others become initializers."""
    graph = model.graph
    with_value = {tensor.name for tensor in graph.initializer}
    given = case.inputs + (None,) * (len(graph.input) - len(case.inputs))
    for info, raw in zip(list(graph.input), given, strict=False):
        is_tensor = info.name not in with_value and info.type.WhichOneof("value") == "tensor_type"
        if is_tensor and raw is not None:
            tensor = onnx.TensorProto.FromString(raw)
            if mode == "V" or _is_small_integer(tensor):
                tensor.name = info.name
                graph.initializer.append(tensor)
                model.ir_version = max(model.ir_version, _FIRST_IR_WITHOUT_INPUTS_FOR_WEIGHTS)
                continue
        kept = onnx.ValueInfoProto()
        kept.CopyFrom(info)
        if mode == "S" and is_tensor and kept.type.tensor_type.elem_type in _FLOATS:
            _make_symbolic(kept)
        yield kept


def _is_small_integer(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _INTEGERS and (not tensor.dims or (len(tensor.dims) == 1 and tensor.dims[0] <= _MOST_GIVEN))


def _make_symbolic(info: onnx.ValueInfoProto) -> None:
    for dim in info.type.tensor_type.shape.dim:
        size = dim.dim_value
        if dim.HasField("dim_value") and size > 1:
            dim.dim_param = f"d{size}"
