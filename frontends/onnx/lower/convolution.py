"""Convolutions, pooling and matrix products."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Rule, Table, direct, flag, integer, integers, number, read, reordered, text
from irscope.ir.graph import Attr

WINDOW: tuple[Rule, ...] = (integers("strides"), integers("pads"), integers("dilations"), text("auto_pad"))
CONV: tuple[Rule, ...] = (integers("kernel_shape"), *WINDOW, integer("group", to="groups"))


def pool_rules(call: Call) -> dict[str, Attr]:
    """Attributes that all poolings share."""
    kernel = call.integers("kernel_shape")
    if kernel is None:
        raise Mismatch("attribute kernel_shape is absent")
    return read(call, *WINDOW, flag("ceil_mode"), kernel_shape=kernel)


def _conv_transpose(call: Call) -> None:
    call.emit("nn.conv_transpose", call.inputs, read(call, *CONV, integers("output_padding"), integers("output_shape")))


def _max_pool(call: Call) -> None:
    call.emit("nn.max_pool", call.inputs, {**pool_rules(call), **read(call, integer("storage_order"))})


def _avg_pool(call: Call) -> None:
    call.emit("nn.avg_pool", call.inputs, {**pool_rules(call), "count_include_pad": call.flag("count_include_pad")})


def _lp_pool(call: Call) -> None:
    call.emit("nn.lp_pool", call.inputs, {**pool_rules(call), "p": _norm_order(call)})


def _global_lp_pool(call: Call) -> None:
    call.emit("nn.global_lp_pool", call.inputs, {"p": _norm_order(call)})


def _norm_order(call: Call) -> float:
    return call.number("p", 2.0) if isinstance(call.attrs.get("p"), float) else float(call.integer("p", 2))


def _gemm(call: Call) -> None:
    call.emit(
        "math.gemm", call.inputs, read(call, number("alpha"), number("beta"), flag("transA", to="trans_a"), flag("transB", to="trans_b"))
    )


TABLE: Table = {
    "Conv": direct("nn.conv", *CONV),
    "ConvInteger": direct("nn.conv_integer", *CONV),
    "ConvTranspose": _conv_transpose,
    "DeformConv": reordered("nn.deform_conv", (0, 1, 2, 3, 4), *CONV, integer("offset_group")),
    "CausalConvWithState": direct("nn.causal_conv", text("activation", "none")),
    "MaxPool": _max_pool,
    "AveragePool": _avg_pool,
    "LpPool": _lp_pool,
    "GlobalMaxPool": direct("nn.global_max_pool"),
    "GlobalAveragePool": direct("nn.global_avg_pool"),
    "GlobalLpPool": _global_lp_pool,
    "MaxUnpool": direct("nn.max_unpool", integers("kernel_shape"), integers("strides"), integers("pads")),
    "MatMul": direct("math.matmul"),
    "MatMulInteger": direct("math.matmul_integer"),
    "Gemm": _gemm,
    "Einsum": direct("math.einsum", text("equation", "")),
    "Det": direct("linalg.det"),
}
