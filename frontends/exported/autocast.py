"""Operators under autocast, which PyTorch records without the casts that it makes when they run."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.frontends.torch_common.lowering import Lowered
from irscope.ir.graph import Graph, Value
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.call import OpCall, RuleError
from irscope.ops.registry import find_op


def cast_operands(graph: Graph, lowered: Lowered, recorded: Sequence[Type]) -> Sequence[Value | None]:
    """The operands, cast to the recorded element type where the operator's own rule would give another one."""
    spec = find_op(lowered.op)
    wanted = recorded[0] if recorded else None
    if spec is None or not isinstance(wanted, TensorType) or not wanted.dtype.is_float or "inplace" in lowered.attrs:
        return lowered.inputs
    call = OpCall(spec, [None if value is None else value.type for value in lowered.inputs], lowered.attrs, (), recorded)
    try:
        found = next(iter(spec.infer_types(call)), None)
    except RuleError:
        return lowered.inputs
    if not isinstance(found, TensorType) or found.dtype is wanted.dtype:
        return lowered.inputs
    return [_cast(graph, value, wanted) for value in lowered.inputs]


def _cast(graph: Graph, value: Value | None, wanted: TensorType) -> Value | None:
    type_ = None if value is None else value.type
    if value is None or not isinstance(type_, TensorType) or not type_.dtype.is_float or type_.dtype is wanted.dtype:
        return value
    to = tensor(wanted.dtype, type_.shape, type_.device)
    return graph.append("tensor.cast", (value,), (to,), {"to": wanted.dtype}, source="autocast").outputs[0]
