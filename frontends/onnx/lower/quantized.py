"""Quantized tensors: conversions, and operators whose operands carry scales and zero points."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.lower.convolution import CONV
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, element_type, flag, integer, integers, read, text
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role


def _quantize(call: Call) -> None:
    attrs = read(call, integer("axis", 1), integer("block_size"), flag("saturate"), element_type("output_dtype", to="dtype"))
    if call.operand(2) is None:
        attrs.setdefault("dtype", DType.U8)
    call.mark(Role.BUFFER, 1, 2)
    call.emit("quant.quantize", call.inputs, attrs)


def _dequantize(call: Call) -> None:
    call.mark(Role.BUFFER, 1, 2)
    call.emit(
        "quant.dequantize", call.inputs, read(call, integer("axis", 1), integer("block_size"), element_type("output_dtype", to="dtype"))
    )


def _qlinear_conv(call: Call) -> None:
    call.mark(Role.BUFFER, 1, 2, 4, 5, 6, 7)
    call.mark(Role.PARAMETER, 8)
    call.emit("nn.qlinear_conv", call.inputs, read(call, *CONV, flag("channels_last")))


def _qlinear_matmul(call: Call) -> None:
    call.mark(Role.BUFFER, 1, 2, 4, 5, 6, 7)
    call.emit("quant.qlinear_matmul", call.inputs)


def _qlinear_binary(op: str) -> Lower:
    def lower(call: Call) -> None:
        call.mark(Role.BUFFER, 1, 2, 4, 5, 6, 7)
        call.emit("quant.qlinear_binary", call.inputs, {"op": op})

    return lower


def _qlinear_unary(op: str) -> Lower:
    def lower(call: Call) -> None:
        call.mark(Role.BUFFER, 1, 2, 3, 4)
        call.emit("quant.qlinear_unary", call.inputs, read(call, integer("axis"), op=op))

    return lower


def _qlinear_avg_pool(call: Call) -> None:
    call.mark(Role.BUFFER, 1, 2, 3, 4)
    rules = (integers("kernel_shape"), integers("strides"), integers("pads"), text("auto_pad"), flag("ceil_mode"), flag("channels_last"))
    call.emit("quant.qlinear_avg_pool", call.inputs, read(call, *rules))


def _qlinear_concat(call: Call) -> None:
    call.mark(Role.BUFFER, 0, 1, *range(3, len(call.inputs), 3), *range(4, len(call.inputs), 3))
    call.emit("quant.qlinear_concat", call.inputs, {"axis": call.integer("axis")})


def _qlinear_reduce_mean(call: Call) -> None:
    """The mean of the real numbers, quantized again."""
    call.mark(Role.BUFFER, 1, 2, 3, 4)
    real = call.value("quant.dequantize", call.operands(0, 1, 2))
    mean = call.value("reduce.mean", [real], read(call, integers("axes"), keepdims=call.flag("keepdims", True)))
    scale_and_zero = call.operands(3, 4)
    call.last("quant.quantize", [mean, *scale_and_zero], {} if len(scale_and_zero) > 1 else {"dtype": DType.U8})


def _qlinear_where(call: Call) -> None:
    call.mark(Role.BUFFER, 2, 3, 5, 6, 7, 8)
    call.emit("quant.qlinear_where", call.inputs)


TABLE: Table = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": direct("quant.dynamic_quantize", dtype=DType.U8),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}

CONTRIB: Table = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "QLinearConv": _qlinear_conv,
    "QLinearAdd": _qlinear_binary("add"),
    "QLinearMul": _qlinear_binary("mul"),
    "QLinearLeakyRelu": _qlinear_unary("leaky_relu"),
    "QLinearSigmoid": _qlinear_unary("sigmoid"),
    "QLinearSoftmax": _qlinear_unary("softmax"),
    "QLinearAveragePool": _qlinear_avg_pool,
    "QLinearGlobalAveragePool": direct("quant.qlinear_global_avg_pool", flag("channels_last", False)),
    "QLinearConcat": _qlinear_concat,
    "QLinearReduceMean": _qlinear_reduce_mean,
    "QLinearWhere": _qlinear_where,
    "GatherBlockQuantized": direct(
        "quant.gather_block_quantized",
        integer("gather_axis", 0),
        integer("quantize_axis", 1),
        integer("block_size", 128),
        integer("bits", 4),
    ),
}
