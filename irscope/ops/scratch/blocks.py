"""The fused attention and encoder layers that nn.MultiheadAttention and nn.TransformerEncoder run in inference."""

from __future__ import annotations

from irscope.ir.dims import Dim, product
from irscope.ir.types import TensorType, tensor
from irscope.ops.scratch.gemm import linear
from irscope.ops.scratch.norms import layer_norm
from irscope.ops.scratch.recorder import Scratch, nbytes, number, rule, sizes, width
from irscope.ops.scratch.sdpa import Attention, attend, choose
from irscope.ops.spec import NeedsNumbers


@rule
def multi_head_rule(scratch: Scratch) -> None:
    call = scratch.call
    if call.types[0] is not call.types[1] or call.types[0] is not call.types[2]:
        raise NeedsNumbers("the fused attention of different queries and keys is not modelled")
    self_attention(scratch, call.tensor("q"), call.given("mask"), len(call.results) > 1, bool(call.attr("average_weights")))


def self_attention(scratch: Scratch, x: TensorType, masked: bool, weights: bool, average: bool, make: str | None = None) -> str:
    """Packed projection, attention of all heads, projection of the result."""
    call = scratch.call
    batch, length, embed = sizes(x)
    heads = call.int_attr("num_heads")
    head = number(embed) // heads
    part = tensor(x.dtype, (batch, heads, length, head), x.device, (length * embed * 3, head, embed * 3, 1))
    attention = Attention(part, part, part, None, False, False, False)
    bias = call.maybe("b_qkv")
    if not weights and not masked and choose(scratch, attention) != "math":
        packed = linear(scratch, x, call.tensor("w_qkv"), bias, False, "packed projection")
        context = attend(scratch, attention, make="heads' output")
        output = linear(scratch, x, call.tensor("w_out"), call.maybe("b_out"), False, make)
        if make is None:
            _ = output
        scratch.drop(context, packed)
        return output
    size = width(x.dtype)
    packed = linear(scratch, x, call.tensor("w_qkv"), None, False, "packed projection")
    split = scratch.take("queries, keys and values", product((batch, length, embed)) * (3 * size))
    scratch.drop(packed)
    scores = scratch.take("attention weights", product((batch, heads, length, length)) * size)
    scratch.gemm()
    scratch.gemm()
    context = scratch.take("heads' output", nbytes(x))
    output = linear(scratch, x, call.tensor("w_out"), call.maybe("b_out"), False, make)
    scratch.drop(context)
    if weights:
        scratch.result(1)
    if not weights or average:
        scratch.drop(scores)
    scratch.drop(split)
    return output


@rule
def encoder_layer_rule(scratch: Scratch) -> None:
    call = scratch.call
    x = call.tensor("x")
    first = bool(call.attr("norm_first"))
    normed = layer_norm(scratch, x, 1, "first normalization") if first else ""
    attended = self_attention(scratch, x, call.given("mask"), False, False, "attention")
    if first:
        scratch.drop(normed)
        second = layer_norm(scratch, x, 1, "second normalization")
        hidden = _feed_forward(scratch, x)
        scratch.result()
        scratch.gemm("lt")
        scratch.drop(hidden, second, attended)
        return
    normed = layer_norm(scratch, x, 1, "first normalization")
    scratch.drop(attended)
    hidden = _feed_forward(scratch, x)
    output = linear(scratch, _wide(call.tensor("w_1"), x), call.tensor("w_2"), call.tensor("b_2"), False, "feed-forward output")
    scratch.drop(hidden)
    layer_norm(scratch, x, 1)
    scratch.drop(output, normed)


def _feed_forward(scratch: Scratch, x: TensorType) -> str:
    """The first of the two layers, its activation fused into the product."""
    call = scratch.call
    return linear(scratch, tensor(x.dtype, x.shape, x.device), call.tensor("w_1"), call.tensor("b_1"), False, "feed-forward hidden")


def _wide(w: TensorType, x: TensorType) -> TensorType:
    hidden: Dim = sizes(w)[0]
    return tensor(x.dtype, (*sizes(x)[:-1], hidden), x.device)
