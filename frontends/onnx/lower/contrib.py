"""Fused and layout-specific operators of ONNX Runtime (com.microsoft and its internal domains)."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.convolution import CONV, pool_rules
from irscope.frontends.onnx.lower.convolution import TABLE as CONVOLUTION
from irscope.frontends.onnx.lower.reduction import reduce
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, flag, integer, number, numbers, read, text
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role


def _fused_conv(call: Call) -> None:
    rules = (*CONV, text("activation"), numbers("activation_params"), flag("channels_last"))
    call.emit("nn.fused_conv", call.inputs, read(call, *rules))


def _channels_last_conv(call: Call) -> None:
    call.emit("nn.conv", call.inputs, read(call, *CONV, channels_last=True))


def _channels_last_fused_conv(call: Call) -> None:
    call.emit("nn.fused_conv", call.inputs, read(call, *CONV, text("activation"), numbers("activation_params"), channels_last=True))


def _fused_gemm(call: Call) -> None:
    rules = (number("alpha"), number("beta"), flag("transA", to="trans_a"), flag("transB", to="trans_b"), text("activation"))
    call.emit("math.gemm", call.inputs, read(call, *rules))


_MATMUL = (
    number("alpha"),
    flag("transA", to="trans_a"),
    flag("transB", to="trans_b"),
    flag("transBatchA", to="trans_batch_a"),
    flag("transBatchB", to="trans_batch_b"),
)


def _max_pool_last(call: Call) -> None:
    call.emit("nn.max_pool", call.inputs, {**pool_rules(call), "channels_last": True})


def _avg_pool_last(call: Call) -> None:
    call.emit("nn.avg_pool", call.inputs, {**pool_rules(call), "count_include_pad": call.flag("count_include_pad"), "channels_last": True})


def _bias_softmax(call: Call) -> None:
    total = call.value("math.add", call.inputs)
    axis = call.integer("axis", 1)
    call.last("nn.softmax", [total], {"axis": axis} if axis == -1 else {"axis": axis, "from_axis": True})


def _bias_add(call: Call) -> None:
    call.emit("math.sum_of", call.inputs)


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


def _expand_dims(call: Call) -> None:
    axes = call.value("view.reshape", [call.needed(1)], {"shape": (1,)})
    call.emit("view.unsqueeze", [call.operand(0), axes])


def _scaled_silu(call: Call) -> None:
    if call.operand(1) is None:
        call.emit("nn.swish", call.inputs[:1], {"alpha": call.number("alpha", 1.0)})
        return
    active = call.value("nn.swish", call.inputs[:1], {"alpha": call.number("alpha", 1.0)})
    call.last("math.mul", [active, call.operand(1)])


def _gemm_fast_gelu(call: Call) -> None:
    product = call.value("math.matmul", call.operands(0, 1))
    call.last("nn.bias_gelu", [product, *call.operands(2)], {"approximate": "tanh"})


def _gemm_float8(call: Call) -> None:
    attrs = read(call, number("alpha"), number("beta"), flag("transA", to="trans_a"), flag("transB", to="trans_b"), text("activation"))
    dtype = call.dtype("dtype", DType.F32)
    call.emit("math.gemm", call.operands(0, 1, 2), {**attrs, "dtype": dtype})


def _matmul_to_float(call: Call) -> None:
    call.mark(Role.BUFFER, 2, 3, 4, 5)
    call.emit("quant.matmul_integer_to_float", call.inputs)


def _qgemm(call: Call) -> None:
    call.mark(Role.BUFFER, 1, 2, 4, 5, 7, 8)
    call.mark(Role.PARAMETER, 6)
    call.emit("quant.qgemm", call.inputs, read(call, number("alpha"), flag("transA", to="trans_a"), flag("transB", to="trans_b")))


def _torch_embedding(call: Call) -> None:
    call.emit("nn.embedding", call.operands(0, 1))


def _is_all_finite(call: Call) -> None:
    finite = [call.value("reduce.all", [call.value("math.isfinite", [x])]) for x in call.inputs]
    if len(finite) == 1:
        call.last("view.alias", finite)
        return
    found = finite[0]
    for other in finite[1:-1]:
        found = call.value("math.and", [found, other])
    call.last("math.and", [found, finite[-1]])


def _range(call: Call) -> None:
    call.emit("tensor.arange", call.inputs)


TABLE: Table = {
    "FusedConv": _fused_conv,
    "NhwcConv": _channels_last_conv,
    "NhwcFusedConv": _channels_last_fused_conv,
    "NhwcMaxPool": _max_pool_last,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": direct("math.fused_matmul", *_MATMUL),
    "TransposeMatMul": direct("math.fused_matmul", *_MATMUL[:3]),
    "FusedMatMulActivation": direct("math.fused_matmul", *_MATMUL, text("activation")),
    "GemmFastGelu": _gemm_fast_gelu,
    "GemmFloat8": _gemm_float8,
    "QGemm": _qgemm,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MatMulInteger16": direct("math.matmul_integer", dtype=DType.I32),
    "DynamicQuantizeMatMul": direct("quant.dynamic_quantize_matmul"),
    "BiasAdd": _bias_add,
    "BiasSoftmax": _bias_softmax,
    "BiasDropout": _bias_dropout,
    "ExpandDims": _expand_dims,
    "ScaledSiLU": _scaled_silu,
    "Inverse": direct("linalg.inverse"),
    "IsAllFinite": _is_all_finite,
    "Pad": direct("tensor.pad", text("mode", "constant")),
    "Range": _range,
    "Trilu": direct("tensor.trilu", flag("upper", True)),
    "GatherND": direct("tensor.gather_nd"),
    "Unique": direct("tensor.unique"),
    "GridSample": direct("vision.grid_sample", flag("align_corners", False), text("mode", "bilinear"), text("padding_mode", "zeros")),
    "ReduceSumInteger": reduce("reduce.sum", axes_are_operands=2**31),
    "SampleOp": direct("view.alias"),
    "TorchEmbedding": _torch_embedding,
    "UnfoldTensor": direct("view.unfold", integer("dim", -1, to="axis"), integer("size"), integer("step", 1)),
    "CDist": direct("linalg.cdist"),
}


def _blocked_conv(call: Call) -> None:
    call.emit("nn.fused_conv", call.inputs, read(call, *CONV, text("activation"), numbers("activation_params")))


def _reorder_input(call: Call) -> None:
    call.emit("tensor.block_channels", call.inputs[:1], read(call, flag("channels_last"), block=call.body.model.channel_block))


def _reorder_output(call: Call) -> None:
    """Back to the usual layout: the channels that only fill up the last block go."""
    channels = call.integer("channels")
    cut = call.value("view.slice", [call.needed(0)], {"starts": (0,), "ends": (channels,), "axes": (1,)})
    if call.flag("channels_last"):
        cut = call.value("view.permute", [cut], {"perm": (0, 2, 3, 1)})
    call.last("view.contiguous", [cut])


def _blocked_upsample(call: Call) -> None:
    scales = call.integers("scales")
    if scales is None:
        raise Mismatch("attribute scales is absent")
    attrs = read(call, text("mode", "nearest"), text("coordinate_transformation_mode", "asymmetric", to="coordinates"))
    call.emit("vision.resize", call.inputs, {**attrs, "scale_factors": tuple(float(scale) for scale in scales)})


def _last(op: str) -> Lower:
    return direct(op, channels_last=True)


FOREIGN: dict[str, str] = {
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
"""Operators that stay foreign although they occur in exported models, with the reason."""

BLOCKED: Table = {
    "Conv": _blocked_conv,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _blocked_upsample,
    "MaxPool": CONVOLUTION["MaxPool"],
    "AveragePool": CONVOLUTION["AveragePool"],
    "GlobalMaxPool": direct("nn.global_max_pool"),
    "GlobalAveragePool": direct("nn.global_avg_pool"),
}
"""Channels in blocks of 8 or 16: sizes are those of the blocked tensors, which are channels rounded up."""

CHANNELS_LAST: Table = {
    "Conv": _channels_last_conv,
    "FusedConv": _channels_last_fused_conv,
    "MaxPool": _max_pool_last,
    "AveragePool": _avg_pool_last,
    "GlobalMaxPool": _last("nn.global_max_pool"),
    "GlobalAveragePool": _last("nn.global_avg_pool"),
    "QLinearConv": direct("nn.qlinear_conv", *CONV, channels_last=True),
}
