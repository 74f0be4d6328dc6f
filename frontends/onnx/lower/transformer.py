"""Transformer operators of ONNX Runtime (com.microsoft)."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Rule, Table, direct, element_type, flag, integer, integers, number, read, reordered, text
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.payload import Literal

_HEADS: tuple[Rule, ...] = (integer("num_heads"), number("scale"))
_SHARED: tuple[Rule, ...] = (*_HEADS, integer("kv_num_heads"), number("softcap"), flag("do_rotary", to="rotary"))
_UNIDIRECTIONAL = flag("unidirectional", False)
_BUFFER = flag("past_present_share_buffer", to="share_buffer")
_FP4_BITS = 4


# -- attention ---------------------------------------------------------------------------------------------------


def _attention(call: Call) -> None:
    rules = (*_HEADS, integers("qkv_hidden_sizes"), _UNIDIRECTIONAL, _BUFFER)
    call.emit("nn.ort_attention", call.inputs, read(call, *rules))


def _masked_self_attention(call: Call) -> None:
    """The step of a decoder: like Attention, with the beam search's tables behind."""
    call.emit("nn.ort_attention", call.operands(0, 1, 2, 3, 4, 5, 6), read(call, *_HEADS, _BUFFER, unidirectional=True))


def _quantized_attention(call: Call) -> None:
    call.mark(Role.BUFFER, 3, 4, 6, 7)
    call.emit("nn.ort_quantized_attention", call.inputs, read(call, *_HEADS, _UNIDIRECTIONAL, _BUFFER))


def _masked_multi_head_attention(call: Call) -> None:
    """As MultiHeadAttention, with another order of operands and the beam search's tables behind."""
    order = (0, 1, 2, 10, 3, 4, 5, 6, 7, 8, 9)
    call.emit("nn.ort_multi_head_attention", call.operands(*order), read(call, *_HEADS, unidirectional=False, share_buffer=True))


def _sparse_attention(call: Call) -> None:
    # Key lengths stand behind the total length in both; the block table names which blocks count.
    call.emit("nn.sparse_attention", call.inputs, read(call, *_SHARED, integer("sparse_block_size")))


def _rotary(call: Call) -> None:
    rules = (integer("num_heads"), integer("rotary_embedding_dim", to="rotary_dim"), flag("interleaved"))
    call.emit("nn.rotary_embedding", call.operands(0, 2, 3, 1), read(call, *rules))


def _gemma_rotary(call: Call) -> None:
    """Two tensors turned by angles of which sine and cosine are taken here."""
    angles = call.needed(0)
    waves = [call.value("math.cos", [angles]), call.value("math.sin", [angles])]
    cos, sin = (call.value("view.unsqueeze", [part], {"axes": (1,)}) for part in waves)
    turned = []
    for x, half in ((call.needed(1), call.needed(2)), (call.needed(3), call.needed(4))):
        straight = call.value("math.mul", [x, call.value("tensor.cast_like", [cos, x])])
        across = call.value("math.mul", [half, call.value("tensor.cast_like", [sin, half])])
        turned.append(call.value("math.add", [straight, across]))
    call.bind_to(*turned)


# -- normalization and activations -------------------------------------------------------------------------------


def _skip_layer_norm(call: Call) -> None:
    call.emit("nn.skip_layer_norm", call.inputs, read(call, number("epsilon", 1e-12)))


def _group_norm(call: Call) -> None:
    rules = (integer("groups", to="num_groups"), number("epsilon", 1e-5))
    channels_last, active = call.flag("channels_last", True), call.integer("activation", 0) != 0
    x = call.needed(0)
    if channels_last:
        x = call.value("view.permute", [x], {"perm": (0, 3, 1, 2)})
    normalized = call.value("nn.group_norm", [x, *call.operands(1, 2)], read(call, *rules))
    if active:
        normalized = call.value("nn.silu", [normalized])
    call.last("view.permute", [normalized], {"perm": (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)})


def _skip_group_norm(call: Call) -> None:
    rules = (integer("groups", to="num_groups"), number("epsilon", 1e-5), flag("channels_last", True))
    active = call.integer("activation", 0) != 0
    y, summed = call.several("nn.skip_group_norm", call.inputs, 2, read(call, *rules))
    if active:
        y = call.value("nn.silu", [y])
    call.bind_to(y, summed)


def _quantized_embeddings(call: Call) -> None:
    """Tables as 8-bit integers with scale and zero point each: dequantized, then looked up as floats."""

    def real(table: int, scale: int, zero_point: int) -> Value | None:
        if call.operand(table) is None:
            return None
        return call.value("quant.dequantize", call.operands(table, scale, zero_point))

    word, position, segment = real(2, 8, 13), real(3, 9, 14), real(4, 10, 15)
    scale, bias = real(5, 11, 16), real(6, 12, 17)
    call.mark(Role.BUFFER, *range(8, 18))
    operands = [call.operand(0), call.operand(1), word, position, segment, scale, bias, call.operand(7)]
    call.emit("nn.embed_layer_norm", operands, {"epsilon": call.number("epsilon", 1e-12)})


def _ordered_layer_norm(call: Call) -> None:
    x = call.value("quant.dequantize", call.operands(0, 1))
    normalized = call.value(
        "nn.layer_norm", [x, *call.operands(2, 3)], {"axis": call.integer("axis", -1), "epsilon": call.number("epsilon", 1e-5)}
    )
    call.last("quant.quantize", [normalized, call.needed(4)], {"dtype": DType.I8})


def _ordered_matmul(call: Call) -> None:
    """A product of 8-bit integers in a layout of their own, whose sizes are the usual ones."""
    call.mark(Role.BUFFER, 1, 3, 4, 7)
    left, right = call.value("quant.dequantize", call.operands(0, 1)), call.value("quant.dequantize", call.operands(2, 3))
    total = call.value("math.matmul", [left, right])
    if call.operand(5) is not None:
        total = call.value("math.add", [total, call.operand(5)])
    if call.operand(6) is not None:
        total = call.value("math.add", [total, call.value("quant.dequantize", call.operands(6, 7))])
    call.last("quant.quantize", [total, call.needed(4)], {"dtype": DType.I8})


def _ordered_gelu(call: Call) -> None:
    call.emit("quant.qlinear_unary", [call.needed(0), call.needed(1), None, call.needed(2)], {"op": "gelu"})


def _fast_gelu(call: Call) -> None:
    call.emit("nn.bias_gelu", call.inputs, {"approximate": "tanh"})


def _bias_split_gelu(call: Call) -> None:
    """The first half of the channels times GELU of the second."""
    total = call.value("math.add", call.operands(0, 1))
    left, right = call.several("view.split", [total], 2, {"axis": -1, "num_outputs": 2})
    call.last("math.mul", [left, call.value("nn.gelu", [right])])


def _gated_rms_norm(call: Call) -> None:
    normalized = call.value("nn.rms_norm", call.operands(0, 1), {"epsilon": call.number("epsilon", 1e-5)})
    activation = call.text("activation", "silu")
    gate = call.value("nn.sigmoid" if activation == "sigmoid" else "nn.silu", [call.needed(2)])
    call.last("math.mul", [normalized, gate])


# -- weights of few bits -----------------------------------------------------------------------------------------


def _matmul_nbits(call: Call) -> None:
    call.mark(Role.BUFFER, 2, 3, 4)
    rules = (integer("K", to="k"), integer("N", to="n"), integer("bits", 4), integer("block_size", 32))
    call.emit("quant.matmul_nbits", call.inputs, read(call, *rules))


def _matmul_bnb4(call: Call) -> None:
    call.mark(Role.BUFFER, 2)
    rules = (integer("K", to="k"), integer("N", to="n"), integer("block_size", 64))
    call.emit("quant.matmul_nbits", call.inputs, read(call, *rules, bits=_FP4_BITS))


def _matmul_float_blocks(call: Call) -> None:
    """Weights as 8-bit floats with scales for blocks."""
    call.mark(Role.BUFFER, 2, 3)
    call.emit("math.scaled_matmul", call.operands(0, 1, 3, 2, 4))


def _qkv(call: Call) -> None:
    """A normalization and three products with quantized weights, fused."""
    k, bits, block = call.integer("K"), call.integer("bits", 4), call.integer("block_size", 32)
    epsilon = {"epsilon": call.number("epsilon", 1e-5)}
    summed = _with_skip(call)
    x = call.value("nn.rms_norm", [summed, *call.operands(2)], epsilon)
    sizes = (call.integer("Nq"), call.integer("Nkv"), call.integer("Nkv"))
    made = []
    for index, n in enumerate(sizes):
        weight, scales, bias = (call.operand(3 + 3 * index + part) for part in range(3))
        attrs = {"k": k, "n": n, "bits": bits, "block_size": block}
        made.append(call.value("quant.matmul_nbits", [x, weight, scales, None, None, bias], attrs))
    call.bind_to(*made, summed)


def _with_skip(call: Call) -> Value:
    """The input, plus the skipped one where there is one."""
    x = call.needed(0)
    return x if call.operand(1) is None else call.value("math.add", [x, call.operand(1)])


def _mlp(call: Call) -> None:
    """An optional addition and normalization, two products with quantized weights, and a gate."""
    x = summed = _with_skip(call)
    if call.operand(2) is not None:
        x = call.value("nn.rms_norm", [x, call.operand(2)], {"epsilon": call.number("epsilon", 1e-5)})
    attrs = read(call, integer("K", to="k"), integer("N", to="n"), integer("bits", 4), integer("block_size", 32))
    gate, up = (
        call.value(
            "quant.matmul_nbits",
            [x, *call.operands(first, first + 1), *([None, None, bias] if (bias := call.operand(first + 2)) else [])],
            attrs,
        )
        for first in (3, 6)
    )
    call.last("math.mul", [call.value("nn.silu", [gate]), up])
    call.bind_to(None, summed)


def _matmul_fp_q4(call: Call) -> None:
    """Weights in blocks of 32 whose shape stands in a constant."""
    shape = call.body.model.graph.data.get(call.needed(2))
    if not isinstance(shape, Literal) or len(shape.values) != 2:
        raise Mismatch("the shape of its weights is not a constant")
    k, n = shape.values
    call.emit("quant.matmul_nbits", call.operands(0, 1), {"k": k, "n": n, "bits": _FP4_BITS, "block_size": 32})


def _moe(call: Call) -> None:
    rules = (integer("k", 1), text("activation_type", "relu", to="activation"), flag("normalize_routing_weights", to="normalize"))
    call.emit("nn.moe", call.inputs, read(call, *rules))


def _quantized_moe(call: Call) -> None:
    rules = (integer("k", 1), text("activation_type", "relu", to="activation"), flag("normalize_routing_weights", to="normalize"))
    call.mark(Role.BUFFER, 3, 6, 9, 11, 12, 13)
    call.emit("nn.moe_quantized", call.inputs, read(call, *rules, bits=call.integer("expert_weight_bits", 4)))


TABLE: Table = {
    "Attention": _attention,
    "DecoderMaskedSelfAttention": _masked_self_attention,
    "QAttention": _quantized_attention,
    "MultiHeadAttention": direct("nn.ort_multi_head_attention", *_HEADS, _UNIDIRECTIONAL),
    "DecoderMaskedMultiHeadAttention": _masked_multi_head_attention,
    "GroupQueryAttention": direct("nn.group_query_attention", *_SHARED),
    "SparseAttention": _sparse_attention,
    "PagedAttention": direct("nn.paged_attention", *_SHARED),
    "PackedAttention": direct("nn.packed_attention", *_HEADS, integers("qkv_hidden_sizes")),
    "PackedMultiHeadAttention": direct("nn.packed_attention", *_HEADS),
    "LinearAttention": direct(
        "nn.linear_attention",
        integer("q_num_heads"),
        integer("kv_num_heads"),
        number("scale", 0.0),
        integer("chunk_size", 64),
        text("update_rule", "gated_delta"),
    ),
    "CausalConvWithState": direct("nn.causal_conv", text("activation", "none")),
    "RotaryEmbedding": _rotary,
    "MRotaryEmbedding": _rotary,
    "GemmaRotaryEmbedding": _gemma_rotary,
    "RelativePositionBias": direct(
        "nn.relative_position_bias", integer("max_distance"), flag("is_bidirectional", False, to="bidirectional")
    ),
    "GatedRelativePositionBias": reordered("nn.gated_relative_position_bias", (0, 1, 2, 3, 4, 5, 6), integer("num_heads")),
    "RemovePadding": direct("nn.remove_padding"),
    "RestorePadding": direct("nn.restore_padding"),
    "EmbedLayerNormalization": direct("nn.embed_layer_norm", number("epsilon", 1e-12)),
    "QEmbedLayerNormalization": _quantized_embeddings,
    "QOrderedLayerNormalization": _ordered_layer_norm,
    "QOrderedGelu": _ordered_gelu,
    "QOrderedMatMul": _ordered_matmul,
    "QuantizeWithOrder": direct("quant.quantize", dtype=DType.I8),
    "DequantizeWithOrder": direct("quant.dequantize", element_type("to", to="dtype")),
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": direct("nn.skip_rms_norm", number("epsilon", 1e-5)),
    "LayerNormalization": direct("nn.layer_norm", integer("axis", -1), number("epsilon", 1e-5)),
    "SimplifiedLayerNormalization": direct("nn.rms_norm", integer("axis", -1), number("epsilon", 1e-5)),
    "GatedRMSNorm": _gated_rms_norm,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _skip_group_norm,
    "BiasGelu": direct("nn.bias_gelu"),
    "FastGelu": _fast_gelu,
    "Gelu": direct("nn.gelu"),
    "QuickGelu": direct("nn.quick_gelu", number("alpha", 1.702)),
    "BiasSplitGelu": _bias_split_gelu,
    "MatMulNBits": _matmul_nbits,
    "MatMulNBitsMlp": _mlp,
    "MatMulBnb4": _matmul_bnb4,
    "MatMulFpQ4": _matmul_fp_q4,
    "MatMulBlockQuantizedFp8Weight": _matmul_float_blocks,
    "MatMulNBitsQkv": _qkv,
    "MoE": _moe,
    "QMoE": _quantized_moe,
}
