"""Layouts with channels in blocks, as ONNX Runtime's CPU kernels like them."""

from __future__ import annotations

from irscope.ir.dims import Dim, floordiv
from irscope.ir.types import Type
from irscope.ops.rules import moved
from irscope.ops.spec import Family, OpCall, RuleError, op


def _infer_blocked(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    if len(x.shape) < 3:
        raise RuleError(f"{call.spec.name} wants images, not {x}")
    batch, rest = x.shape[0], list(x.shape[1:])
    channels = rest.pop() if call.attr("channels_last") else rest.pop(0)
    return x.with_shape((batch, _rounded_up(channels, call.int_attr("block")), *rest))


def _rounded_up(size: Dim, block: int) -> Dim:
    return floordiv(size + (block - 1), block) * block


OPS = (
    op(
        "tensor.block_channels(Tensor x, *, int block=16, bool channels_last=False) -> Tensor",
        Family.MOVE,
        infer=_infer_blocked,
        cost=moved,
        summary="Puts channels into blocks of 8 (AVX2) or 16 (AVX-512); channels that fill up the last block are added.",
    ),
)
