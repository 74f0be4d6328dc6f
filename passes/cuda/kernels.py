"""Layouts of the results of CUDA's attention kernels, which differ from those of the CPU, on which models are exported."""

from __future__ import annotations

from irscope.devices import Target
from irscope.ir.dims import SymDim
from irscope.ir.types import Layout, TensorType
from irscope.ops.layouts import row_major
from irscope.ops.scratch.recorder import Scratch
from irscope.ops.scratch.sdpa import Attention, choose
from irscope.ops.spec import NeedsNumbers, OpCall


def attention_layout(call: OpCall, target: Target, stated: Layout) -> Layout:
    """Strides of an attention's result; `stated` where they are unknown."""
    q, k, v = (call.types[place] if place < len(call.types) else None for place in range(3))
    result = call.results[0]
    if (
        not isinstance(q, TensorType)
        or not isinstance(k, TensorType)
        or not isinstance(v, TensorType)
        or not isinstance(result, TensorType)
    ):
        return stated
    shape = result.shape
    if shape is None or len(shape) != 4 or any(isinstance(size, SymDim) for size in shape):
        return stated
    made = Attention(q, k, v, call.maybe("mask"), bool(call.attr("is_causal")), bool(call.attr("dropout_p")), bool(call.attr("enable_gqa")))
    try:
        kernel = choose(Scratch(call, target), made)
    except NeedsNumbers:
        return stated
    if kernel == "math":
        return None
    if kernel == "flash" and q.shape is not None and _fills_a_block(q):
        return q.layout
    # The kernels write the heads of one position contiguously.
    batch, heads, length, width = shape
    return tuple(row_major((batch, length, heads, width))[axis] for axis in (0, 2, 1, 3))


def _fills_a_block(type_: TensorType) -> bool:
    """Whether the strides are dense, in any order of axes."""
    if not isinstance(type_.layout, tuple) or type_.shape is None:
        return True
    expected = 1
    for stride, size in sorted(zip(type_.layout, type_.shape, strict=True), key=lambda pair: int(str(pair[0]))):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= int(str(size))
    return True
