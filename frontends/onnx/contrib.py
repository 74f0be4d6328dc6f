"""Rules for operators of other domains: ONNX Runtime's own, classic machine learning, optimizers."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.rules import Lower, Table, lower_as, read_attrs
from irscope.frontends.onnx.standard import (
    CAUSAL_CONV,
    CONV,
    DEQUANTIZE,
    LINEAR_ATTENTION,
    MATRICES,
    POOL,
    QLINEAR_CONV,
    TABLE,
    old_softmax,
    quantize,
)
from irscope.frontends.onnx.types import DTYPES
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Role, Value
from irscope.ir.places import Literal

_HEADS = "num_heads scale"
_SHARED = f"{_HEADS} kv_num_heads softcap rotary=do_rotary"
_ONE_WAY = "unidirectional?false"
_BUFFER = "share_buffer=past_present_share_buffer"
_ROTARY = "nn.rotary_embedding 0 2 3 1 ; num_heads rotary_dim=rotary_embedding_dim interleaved"


def _gemma_rotary(call: Call) -> None:
    """Lower the rotation of two tensors by angles whose sine and cosine are computed here."""
    angles = call.needed(0)
    waves = [call.value("math.cos", [angles]), call.value("math.sin", [angles])]
    cos, sin = (call.value("view.unsqueeze", [part], {"axes": (1,)}) for part in waves)
    turned = []
    for x, half in ((call.needed(1), call.needed(2)), (call.needed(3), call.needed(4))):
        straight = call.value("math.mul", [x, call.value("tensor.cast_like", [cos, x])])
        across = call.value("math.mul", [half, call.value("tensor.cast_like", [sin, half])])
        turned.append(call.value("math.add", [straight, across]))
    call.bind_to(*turned)


_ATTENTION: Table = {
    "Attention": f"nn.ort_attention ; {_HEADS} qkv_hidden_sizes {_ONE_WAY} {_BUFFER}",
    # The step of a decoder: like Attention, with the beam search's tables behind.
    "DecoderMaskedSelfAttention": f"nn.ort_attention 0 1 2 3 4 5 6 ; {_HEADS} {_BUFFER} unidirectional:true",
    "QAttention": f"nn.ort_quantized_attention ; {_HEADS} {_ONE_WAY} {_BUFFER} ; buffer 3 4 6 7",
    "MultiHeadAttention": f"nn.ort_multi_head_attention ; {_HEADS} {_ONE_WAY}",
    # As MultiHeadAttention, with another order of operands and the beam search's tables behind.
    "DecoderMaskedMultiHeadAttention": (
        f"nn.ort_multi_head_attention 0 1 2 10 3 4 5 6 7 8 9 ; {_HEADS} unidirectional:false share_buffer:true"
    ),
    "GroupQueryAttention": f"nn.group_query_attention ; {_SHARED}",
    # Key lengths stand behind the total length in both; the block table names which blocks count.
    "SparseAttention": f"nn.sparse_attention ; {_SHARED} sparse_block_size",
    "PagedAttention": f"nn.paged_attention ; {_SHARED}",
    "PackedAttention": f"nn.packed_attention ; {_HEADS} qkv_hidden_sizes",
    "PackedMultiHeadAttention": f"nn.packed_attention ; {_HEADS}",
    "LinearAttention": LINEAR_ATTENTION,
    "CausalConvWithState": CAUSAL_CONV,
    "RotaryEmbedding": _ROTARY,
    "MRotaryEmbedding": _ROTARY,
    "GemmaRotaryEmbedding": _gemma_rotary,
    "RelativePositionBias": "nn.relative_position_bias ; max_distance bidirectional=is_bidirectional?false",
    "GatedRelativePositionBias": "nn.gated_relative_position_bias 0 1 2 3 4 5 6 ; num_heads",
    "RemovePadding": "nn.remove_padding",
    "RestorePadding": "nn.restore_padding",
}


def _group_norm(call: Call) -> None:
    channels_last, active = call.flag("channels_last", True), call.integer("activation", 0) != 0
    attrs = read_attrs(call, "nn.group_norm ; num_groups=groups epsilon?1e-5")
    x = call.needed(0)
    if channels_last:
        x = call.value("view.permute", [x], {"perm": (0, 3, 1, 2)})
    normalized = call.value("nn.group_norm", [x, *call.operands(1, 2)], attrs)
    if active:
        normalized = call.value("nn.silu", [normalized])
    call.last("view.permute", [normalized], {"perm": (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)})


def _skip_group_norm(call: Call) -> None:
    attrs = read_attrs(call, "nn.skip_group_norm ; num_groups=groups epsilon?1e-5 channels_last?true")
    active = call.integer("activation", 0) != 0
    y, summed = call.several("nn.skip_group_norm", call.inputs, 2, attrs)
    if active:
        y = call.value("nn.silu", [y])
    call.bind_to(y, summed)


def _quantized_embeddings(call: Call) -> None:
    """Lower a lookup in tables of 8-bit integers with scale and zero point each: dequantized, then looked up as floats."""

    def real(table: int, scale: int, zero_point: int) -> Value | None:
        if call.operand(table) is None:
            return None
        return call.value("quant.dequantize", call.operands(table, scale, zero_point))

    word, position, segment = real(2, 8, 13), real(3, 9, 14), real(4, 10, 15)
    scale, bias = real(5, 11, 16), real(6, 12, 17)
    call.mark(Role.BUFFER, *range(8, 18))
    operands = [call.operand(0), call.operand(1), word, position, segment, scale, bias, call.operand(7)]
    call.emit("nn.embed_layer_norm", operands, {"epsilon": call.number("epsilon", 1e-12)})


def _ordered_matmul(call: Call) -> None:
    """Lower a product of 8-bit integers in a layout of their own, whose sizes are the usual ones."""
    call.mark(Role.BUFFER, 1, 3, 4, 7)
    left, right = call.value("quant.dequantize", call.operands(0, 1)), call.value("quant.dequantize", call.operands(2, 3))
    total = call.value("math.matmul", [left, right])
    if call.operand(5) is not None:
        total = call.value("math.add", [total, call.operand(5)])
    if call.operand(6) is not None:
        total = call.value("math.add", [total, call.value("quant.dequantize", call.operands(6, 7))])
    call.last("quant.quantize", [total, call.needed(4)], {"dtype": DType.I8})


def _gated_rms_norm(call: Call) -> None:
    normalized = call.value("nn.rms_norm", call.operands(0, 1), {"epsilon": call.number("epsilon", 1e-5)})
    activation = call.text("activation", "silu")
    gate = call.value("nn.sigmoid" if activation == "sigmoid" else "nn.silu", [call.needed(2)])
    call.last("math.mul", [normalized, gate])


def _bias_softmax(call: Call) -> None:
    total = call.value("math.add", call.inputs)
    old_softmax(call, "nn.softmax", [total])


def _bias_dropout(call: Call) -> None:
    data, bias, residual = call.needed(0), call.needed(1), call.operand(2)
    total = call.value("math.add", [data, bias])
    rest = call.operands(3, 4)
    attrs = {"training": False} if rest else {"p": 0.5, "training": False}
    if residual is None:
        call.emit("nn.dropout", [total, *rest], attrs)
        return
    dropped, mask = call.several("nn.dropout", [total, *rest], 2, attrs)
    call.last("math.add", [dropped, residual])
    call.bind_to(None, mask)


def _scaled_silu(call: Call) -> None:
    gated = call.operand(1) is not None
    lower_as(call, "active = nn.swish 0! ; alpha?1.0\nmath.mul active 1" if gated else "nn.swish 0 ; alpha?1.0")


_NORMALIZATION: Table = {
    "EmbedLayerNormalization": "nn.embed_layer_norm ; epsilon?1e-12",
    "QEmbedLayerNormalization": _quantized_embeddings,
    "SkipLayerNormalization": "nn.skip_layer_norm ; epsilon?1e-12",
    "SkipSimplifiedLayerNormalization": "nn.skip_rms_norm ; epsilon?1e-5",
    "LayerNormalization": "nn.layer_norm ; axis?-1 epsilon?1e-5",
    "SimplifiedLayerNormalization": "nn.rms_norm ; axis?-1 epsilon?1e-5",
    "GatedRMSNorm": _gated_rms_norm,
    "GroupNorm": _group_norm,
    "SkipGroupNorm": _skip_group_norm,
    "BiasGelu": "nn.bias_gelu",
    "FastGelu": "nn.bias_gelu ; approximate:tanh",
    "Gelu": "nn.gelu",
    "QuickGelu": "nn.quick_gelu ; alpha?1.702",
    # The first half of the channels times GELU of the second.
    "BiasSplitGelu": """
        total = math.add 0 1
        left right = view.split total ; axis:-1 num_outputs:2
        gate = nn.gelu right
        math.mul left gate""",
    "ScaledSiLU": _scaled_silu,
    "BiasAdd": "math.sum_of",
    "BiasSoftmax": _bias_softmax,
    "BiasDropout": _bias_dropout,
}


_MATMUL = f"alpha {MATRICES} trans_batch_a=transBatchA trans_batch_b=transBatchB"
_GEMM = f"alpha beta {MATRICES} activation"
_NBITS = "k=K n=N bits?4 block_size?32"
_MOE = "k?1 activation=activation_type?relu normalize=normalize_routing_weights"
_FP4_BITS = 4


def _qkv(call: Call) -> None:
    """Lower a normalization and three products with quantized weights, fused."""
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
    """Return the input, plus the skipped one where there is one."""
    x = call.needed(0)
    return x if call.operand(1) is None else call.value("math.add", [x, call.operand(1)])


def _mlp(call: Call) -> None:
    """Lower an optional addition and normalization, two products with quantized weights, and a gate."""
    x = summed = _with_skip(call)
    if call.operand(2) is not None:
        x = call.value("nn.rms_norm", [x, call.operand(2)], {"epsilon": call.number("epsilon", 1e-5)})
    attrs = read_attrs(call, f"quant.matmul_nbits ; {_NBITS}")
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
    """Lower a product with weights in blocks of 32, whose shape is in a constant."""
    shape = call.body.model.graph.data.get(call.needed(2))
    if not isinstance(shape, Literal) or len(shape.values) != 2:
        raise Mismatch("the shape of its weights is not a constant")
    k, n = shape.values
    call.emit("quant.matmul_nbits", call.operands(0, 1), {"k": k, "n": n, "bits": _FP4_BITS, "block_size": 32})


_PRODUCTS: Table = {
    "FusedGemm": f"math.gemm ; {_GEMM}",
    "FusedMatMul": f"math.fused_matmul ; {_MATMUL}",
    "TransposeMatMul": f"math.fused_matmul ; alpha {MATRICES}",
    "FusedMatMulActivation": f"math.fused_matmul ; {_MATMUL} activation",
    "GemmFastGelu": "product = math.matmul 0 1\nnn.bias_gelu product 2 ; approximate:tanh",
    "GemmFloat8": f"math.gemm 0 1 2 ; {_GEMM} dtype?f32",
    "MatMulNBits": f"quant.matmul_nbits ; {_NBITS} accuracy_level?0 ; buffer 2 3 4",
    "MatMulNBitsMlp": _mlp,
    "MatMulNBitsQkv": _qkv,
    "MatMulBnb4": f"quant.matmul_nbits ; k=K n=N block_size?64 bits:{_FP4_BITS} ; buffer 2",
    "MatMulFpQ4": _matmul_fp_q4,
    # Weights as 8-bit floats with scales for blocks.
    "MatMulBlockQuantizedFp8Weight": "math.scaled_matmul 0 1 3 2 4 ; ; buffer 2 3",
    "MoE": f"nn.moe ; {_MOE}",
    "QMoE": f"nn.moe_quantized ; {_MOE} bits=expert_weight_bits?4 ; buffer 3 6 9 11 12 13",
    "Inverse": "linalg.inverse",
    "CDist": "linalg.cdist",
}


_BINARY_ROLES = "buffer 1 2 4 5 6 7"
_UNARY_ROLES = "buffer 1 2 3 4"


def _qlinear_concat(call: Call) -> None:
    call.mark(Role.BUFFER, 0, 1, *range(3, len(call.inputs), 3), *range(4, len(call.inputs), 3))
    lower_as(call, "quant.qlinear_concat ; axis!")


def _qlinear_reduce_mean(call: Call) -> None:
    """Lower the mean of the dequantized numbers, quantized again."""
    lines = "real = quant.dequantize 0 1 2 ; ; buffer 1 2 3 4\nmean = reduce.mean real ; axes keepdims?true\nquant.quantize mean 3 4"
    lower_as(call, lines if len(call.operands(3, 4)) > 1 else f"{lines} ; dtype:u8")


_QUANTIZED: Table = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": DEQUANTIZE,
    "QLinearConv": f"nn.qlinear_conv ; {CONV} channels_last ; {QLINEAR_CONV}",
    **{f"QLinear{name}": f"quant.qlinear_binary ; op:{name.lower()} ; {_BINARY_ROLES}" for name in ("Add", "Mul")},
    **{f"QLinear{name}": f"quant.qlinear_unary ; axis op:{name.lower()} ; {_UNARY_ROLES}" for name in ("Sigmoid", "Softmax")},
    "QLinearLeakyRelu": f"quant.qlinear_unary ; axis op:leaky_relu ; {_UNARY_ROLES}",
    "QLinearAveragePool": (f"quant.qlinear_avg_pool ; kernel_shape strides pads auto_pad ceil_mode channels_last ; {_UNARY_ROLES}"),
    "QLinearGlobalAveragePool": "quant.qlinear_global_avg_pool ; channels_last?false",
    "QLinearConcat": _qlinear_concat,
    "QLinearReduceMean": _qlinear_reduce_mean,
    "QLinearWhere": "quant.qlinear_where ; ; buffer 2 3 5 6 7 8",
    "QGemm": f"quant.qgemm ; alpha {MATRICES} ; buffer 1 2 4 5 7 8 param 6",
    "MatMulIntegerToFloat": "quant.matmul_integer_to_float ; ; buffer 2 3 4 5",
    "MatMulInteger16": "math.matmul_integer ; dtype:i32",
    "DynamicQuantizeMatMul": "quant.dynamic_quantize_matmul",
    "DynamicQuantizeLSTM": "rnn.dynamic_quantize_lstm ; direction?forward hidden_size activations clip",
    "GatherBlockQuantized": "quant.gather_block_quantized ; gather_axis?0 quantize_axis?1 block_size?128 bits?4",
    "QOrderedLayerNormalization": """
        x = quant.dequantize 0 1
        normalized = nn.layer_norm x 2 3 ; axis?-1 epsilon?1e-5
        quant.quantize normalized 4! ; dtype:i8""",
    "QOrderedGelu": "quant.qlinear_unary 0! 1! _ 2! ; op:gelu",
    "QOrderedMatMul": _ordered_matmul,
    "QuantizeWithOrder": "quant.quantize ; dtype:i8",
    "DequantizeWithOrder": "quant.dequantize ; dtype=to",
}


def _is_all_finite(call: Call) -> None:
    finite = [call.value("reduce.all", [call.value("math.isfinite", [x])]) for x in call.inputs]
    if not finite:
        raise Mismatch("it has no operand")
    if len(finite) == 1:
        call.last("view.alias", finite)
        return
    found = finite[0]
    for other in finite[1:-1]:
        found = call.value("math.and", [found, other])
    call.last("math.and", [found, finite[-1]])


_ACTIVATED = f"{CONV} activation activation_params"
_CHANNELS_LAST_CONV = f"nn.conv ; {CONV} channels_last:true"
_MAX_POOL_LAST = f"nn.max_pool ; {POOL} channels_last:true"

_OTHERS: Table = {
    "FusedConv": f"nn.fused_conv ; {_ACTIVATED} channels_last",
    "NhwcConv": _CHANNELS_LAST_CONV,
    "NhwcFusedConv": f"nn.fused_conv ; {_ACTIVATED} channels_last:true",
    "NhwcMaxPool": _MAX_POOL_LAST,
    "ExpandDims": "axes = view.reshape 1! ; shape:(1,)\nview.unsqueeze 0 axes",
    "IsAllFinite": _is_all_finite,
    "Pad": "tensor.pad ; mode?constant",
    "Range": "tensor.arange",
    "Trilu": "tensor.trilu ; upper?true",
    "GatherND": "tensor.gather_nd",
    "Unique": "tensor.unique",
    "GridSample": "vision.grid_sample ; align_corners?false mode?bilinear padding_mode?zeros",
    "ReduceSumInteger": "reduce.sum 0 ; axes keepdims?true",
    "SampleOp": "view.alias",
    "TorchEmbedding": "nn.embedding 0 1",
    "UnfoldTensor": "view.unfold ; axis=dim?-1 size step?1",
}

MICROSOFT: Table = {**_ATTENTION, **_NORMALIZATION, **_PRODUCTS, **_QUANTIZED, **_OTHERS}

FOREIGN_OF_MICROSOFT: dict[str, str] = {
    "BeamSearch": "it generates token by token around a decoder, for an unknown number of steps",
    "GreedySearch": "it generates token by token around a decoder, for an unknown number of steps",
    "Sampling": "it generates token by token around a decoder, for an unknown number of steps",
    "WhisperBeamSearch": "it generates token by token around a decoder, for an unknown number of steps",
    "EPContext": "it is a compiled blob of one execution provider",
    "GatedDeltaNet": "its packed layouts and captured states are not documented well enough to be exact",
    "MatMulBlockQuantizedFp4Weight": "the layout of its packed weights is not documented",
    "QOrderedAttention": "the layout of its reordered weights is known to one library only",
    "QOrderedLongformerAttention": "the layout of its reordered weights is known to one library only",
}
"""Operators of com.microsoft that stay foreign although they occur in exported models, with the reason."""


def _reorder_input(call: Call) -> None:
    lower_as(call, "tensor.block_channels 0 ; channels_last", {"block": call.body.model.channel_block})


def _reorder_output(call: Call) -> None:
    """Lower a reordering to the usual layout, which drops the channels that only fill up the last block."""
    channels = call.integer("channels")
    cut = call.value("view.slice", [call.needed(0)], {"starts": (0,), "ends": (channels,), "axes": (1,)})
    if call.flag("channels_last"):
        cut = call.value("view.permute", [cut], {"perm": (0, 2, 3, 1)})
    call.last("view.contiguous", [cut])


def _blocked_upsample(call: Call) -> None:
    scales = call.integers("scales")
    if scales is None:
        raise Mismatch("attribute scales is absent")
    text = "vision.resize ; mode?nearest coordinates=coordinate_transformation_mode?asymmetric"
    lower_as(call, text, {"scale_factors": tuple(float(scale) for scale in scales)})


BLOCKED: Table = {
    "Conv": f"nn.fused_conv ; {_ACTIVATED}",
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _blocked_upsample,
    **{name: TABLE[name] for name in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")},
}
"""Channels in blocks of 8 or 16: sizes are those of the blocked tensors, which are channels rounded up."""

CHANNELS_LAST: Table = {
    "Conv": _CHANNELS_LAST_CONV,
    "FusedConv": f"nn.fused_conv ; {_ACTIVATED} channels_last:true",
    "MaxPool": _MAX_POOL_LAST,
    "AveragePool": f"nn.avg_pool ; {POOL} count_include_pad?false channels_last:true",
    "GlobalMaxPool": "nn.global_max_pool ; channels_last:true",
    "GlobalAveragePool": "nn.global_avg_pool ; channels_last:true",
    "QLinearConv": f"nn.qlinear_conv ; {CONV} channels_last:true",
}


# -- classic machine learning (ai.onnx.ml) and optimizers (ai.onnx.preview.training) -----------------------------------
# Models of ai.onnx.ml have no initializers: what was learned stands in attributes of the nodes. It becomes weights that are the last
# operands of a node: what is learned by fitting parameters, statistics of the data buffers, how trees are linked constants.


_CAST_TO = {"TO_FLOAT": DType.F32, "TO_INT64": DType.I64, "TO_STRING": DType.STR}
_POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LINEAR = dict.fromkeys(("coefficients", "intercepts"), Role.PARAMETER)
_SVM = {
    **dict.fromkeys(("support_vectors", "coefficients", "rho", "prob_a", "prob_b"), Role.PARAMETER),
    **dict.fromkeys(("kernel_params", "vectors_per_class"), Role.CONSTANT),
}
_LEARNED_OF_TREES = (
    "nodes_values", "nodes_values_as_tensor", "nodes_splits", "membership_values", "leaf_weights", "base_values", "base_values_as_tensor",
    "target_weights", "target_weights_as_tensor", "class_weights", "class_weights_as_tensor",
)  # fmt: skip
_LINKS_OF_TREES = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs",
    "nodes_modes", "nodes_hitrates", "nodes_hitrates_as_tensor", "nodes_missing_value_tracks_true", "tree_roots", "leaf_targetids",
    "target_treeids", "target_nodeids", "target_ids", "class_treeids", "class_nodeids", "class_ids",
)  # fmt: skip
_TREES = {**dict.fromkeys(_LEARNED_OF_TREES, Role.PARAMETER), **dict.fromkeys(_LINKS_OF_TREES, Role.CONSTANT)}
_STATISTICS = dict.fromkeys(("offset", "scale", "imputed_value_floats", "imputed_value_int64s"), Role.BUFFER)
_TABLES = dict.fromkeys(
    (
        "keys_floats", "keys_int64s", "keys_tensor", "values_floats", "values_int64s", "values_tensor", "cats_int64s", "int64_vocabulary",
    ),
    Role.CONSTANT,
)  # fmt: skip


def _kept_results(text: str, roles: Mapping[str, Role]) -> Lower:
    """Return an operator that keeps weights in attributes."""
    return lambda call: lower_as(call, text, weights=roles)


def _row_count(call: Call, name: str, rows: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of a flat list that holds so many rows."""
    values = call.numbers(name) or ()
    return {name: (rows, len(values) // rows)} if rows > 0 and values and len(values) % rows == 0 else {}


def _labels(call: Call) -> dict[str, Attr]:
    """Class labels, which are numbers or texts."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        found = call.attrs.get(name)
        if isinstance(found, tuple) and found:
            return {"labels": found}
    return {}


def _linear_classifier(call: Call) -> None:
    # Of two classes the file may keep only one row.
    shapes = _row_count(call, "coefficients", len(call.numbers("intercepts") or ()))
    lower_as(call, "learn.linear_classifier ; post_transform?NONE", _labels(call), weights=_LINEAR, shapes=shapes)


def _linear_regressor(call: Call) -> None:
    shapes = _row_count(call, "coefficients", call.integer("targets", 1))
    lower_as(call, "learn.linear_regressor ; targets?1 post_transform?NONE", weights=_LINEAR, shapes=shapes)


def _tree_classifier(call: Call) -> None:
    lower_as(call, "learn.tree_classifier ; post_transform?NONE", _labels(call), weights=_TREES)


def _svm_classifier(call: Call) -> None:
    attrs = _labels(call)
    if call.numbers("prob_a"):
        attrs["has_probabilities"] = True
    counts = call.integers("vectors_per_class") or ()
    if counts:
        attrs["compares_pairs"] = True
    shapes = _row_count(call, "support_vectors", sum(counts))
    lower_as(call, "learn.svm_classifier ; kernel_type?LINEAR", attrs, weights=_SVM, shapes=shapes)


def _svm_regressor(call: Call) -> None:
    shapes = _row_count(call, "support_vectors", call.integer("n_supports", 0))
    lower_as(call, "learn.svm_regressor ; kernel_type?LINEAR", weights=_SVM, shapes=shapes)


def _tree_ensemble(call: Call) -> None:
    chosen = call.integer("post_transform", 0)
    attrs = _dtype_of(call, "leaf_weights")
    if 0 <= chosen < len(_POST_TRANSFORMS):
        attrs["post_transform"] = _POST_TRANSFORMS[chosen]
    lower_as(call, "learn.tree_ensemble ; targets=n_targets?1", attrs, weights=_TREES)


def _tree_regressor(call: Call) -> None:
    attrs = _dtype_of(call, "target_weights_as_tensor")
    lower_as(call, "learn.tree_ensemble ; targets=n_targets?1 post_transform?NONE", attrs, weights=_TREES)


def _dtype_of(call: Call, name: str) -> dict[str, Attr]:
    """Return the element type of a tensor that stands in an attribute."""
    stored = call.tensor_attr(name)
    return {} if stored is None else {"dtype": DTYPES.get(stored.data_type)}


def _one_hot_encoder(call: Call) -> None:
    categories = call.integers("cats_int64s") or call.texts("cats_strings")
    if not categories:
        raise Mismatch("it has no categories")
    lower_as(call, "learn.one_hot_encoder ; zeros?true", {"categories": len(categories)}, weights=_TABLES)


def _other_kind(call: Call) -> DType:
    """Texts become numbers and numbers texts; which way is known where the operand's type is declared."""
    type_ = call.needed(0).type
    if type_.dtype is DType.UNKNOWN:
        raise Mismatch("the element type of its operand is not declared")
    return DType.I64 if type_.dtype is DType.STR else DType.STR


def _label_encoder(call: Call) -> None:
    """The element type of the values is that of the result; the first form mapped texts to numbers and back."""
    attrs: dict[str, Attr] = {"dtype": _other_kind(call)} if call.has("classes_strings") else {}
    for name, dtype in (("values_floats", DType.F32), ("values_int64s", DType.I64), ("values_strings", DType.STR)):
        if call.has(name):
            attrs["dtype"] = dtype
    lower_as(call, "learn.label_encoder", {**attrs, **_dtype_of(call, "values_tensor")}, weights=_TABLES)


def _category_mapper(call: Call) -> None:
    lower_as(call, "learn.category_mapper", {"dtype": _other_kind(call)}, weights=_TABLES)


def _cast_map(call: Call) -> None:
    dtype = _CAST_TO.get(call.text("cast_to", "TO_FLOAT"))
    if dtype is None:
        raise Mismatch("attribute cast_to names no element type")
    lower_as(call, "learn.cast_map ; map_form?DENSE max_map?1", {"dtype": dtype})


def _gradient(call: Call) -> None:
    """The result is one gradient for each tensor in xs, which stand first."""
    sources = call.texts("xs")
    if not sources:
        raise Mismatch("attribute xs is absent")
    call.emit("train.gradient", call.inputs, {"count": len(sources)})


LEARNING: Table = {
    "ArrayFeatureExtractor": "learn.array_feature_extractor",
    "Binarizer": "learn.binarizer ; threshold?0.0",
    "CastMap": _cast_map,
    "CategoryMapper": _category_mapper,
    "DictVectorizer": _kept_results("learn.dict_vectorizer", {"int64_vocabulary": Role.CONSTANT}),
    "FeatureVectorizer": "learn.feature_vectorizer ; widths=inputdimensions",
    "Imputer": _kept_results("learn.imputer", _STATISTICS),
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": "learn.normalizer ; norm?MAX",
    "OneHotEncoder": _one_hot_encoder,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _kept_results("learn.scaler", _STATISTICS),
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": lambda call: lower_as(call, "learn.zip_map", _labels(call)),
}

TRAINING: Table = {
    "Adagrad": "train.adagrad ; decay_factor?0.0 epsilon?1e-6 norm_coefficient?0.0",
    "Adam": "train.adam ; alpha?0.9 beta?0.999 epsilon?1e-6 norm_coefficient?0.0 norm_coefficient_post?0.0",
    "Momentum": "train.momentum ; alpha?0.9 beta?1.0 mode?standard norm_coefficient?0.0",
    "Gradient": _gradient,
}
