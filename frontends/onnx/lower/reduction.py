"""Reductions along axes, running sums, and the softmax family."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, flag, integer, integers, read
from irscope.ir.graph import Attr

_SOFTMAX_PER_AXIS = 13


def reduce(op: str, axes_are_operands: int = 18) -> Lower:
    """A reduction whose axes were an attribute before some operator set."""

    def lower(call: Call) -> None:
        if call.version >= axes_are_operands:
            attrs = read(call, flag("noop_with_empty_axes"), keepdims=call.flag("keepdims", True))
            call.emit(op, call.inputs, attrs)
        else:
            call.emit(op, call.inputs[:1], read(call, integers("axes"), keepdims=call.flag("keepdims", True)))

    return lower


def _arg(op: str) -> Lower:
    def lower(call: Call) -> None:
        attrs: dict[str, Attr] = {"axis": call.integer("axis", 0), "keepdims": call.flag("keepdims", True)}
        if call.flag("select_last_index"):
            attrs["select_last_index"] = True
        call.emit(op, call.inputs, attrs)

    return lower


def softmax(op: str) -> Lower:
    """Softmax over one axis; before operator set 13 over all axes from that one on."""

    def lower(call: Call) -> None:
        if call.version >= _SOFTMAX_PER_AXIS:
            call.emit(op, call.inputs, {"axis": call.integer("axis", -1)})
        else:
            axis = call.integer("axis", 1)
            call.emit(op, call.inputs, {"axis": axis} if axis == -1 else {"axis": axis, "from_axis": True})

    return lower


TABLE: Table = {
    "ReduceL1": reduce("reduce.l1"),
    "ReduceL2": reduce("reduce.l2"),
    "ReduceLogSum": reduce("reduce.log_sum"),
    "ReduceLogSumExp": reduce("reduce.log_sum_exp"),
    "ReduceMax": reduce("reduce.max"),
    "ReduceMean": reduce("reduce.mean"),
    "ReduceMin": reduce("reduce.min"),
    "ReduceProd": reduce("reduce.prod"),
    "ReduceSum": reduce("reduce.sum", axes_are_operands=13),
    "ReduceSumSquare": reduce("reduce.sum_square"),
    "ArgMax": _arg("reduce.argmax"),
    "ArgMin": _arg("reduce.argmin"),
    "CumSum": direct("tensor.cumsum", flag("exclusive", False), flag("reverse", False)),
    "CumProd": direct("tensor.cumprod", flag("exclusive", False), flag("reverse", False)),
    "Softmax": softmax("nn.softmax"),
    "LogSoftmax": softmax("nn.log_softmax"),
    "Hardmax": softmax("nn.hardmax"),
    "LpNormalization": direct("nn.lp_normalize", integer("axis", -1), integer("p", 2)),
}
