"""Normalizations."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.elements import DTYPES
from irscope.frontends.onnx.lower.rules import Table, direct, integer, number
from irscope.ir.graph import Attr, Role

EPSILON = 1e-5


def _batch_norm(call: Call) -> None:
    """Running statistics are buffers. Whether it trains: before 7 an attribute, then the number of results, from 14 an attribute."""
    if call.version >= 14:
        training = call.flag("training_mode")
    elif call.version >= 7:
        training = len(call.outputs) > 1
    else:
        training = not call.flag("is_test")
    attrs: dict[str, Attr] = {"epsilon": call.number("epsilon", EPSILON), "momentum": call.number("momentum", 0.9)}
    if training:
        attrs["training"] = True
    call.mark(Role.BUFFER, 3, 4)
    call.emit("nn.batch_norm", call.inputs, attrs)


def stash_type(call: Call) -> dict[str, Attr]:
    """The element type of the first stage of a normalization."""
    return {"stash_dtype": DTYPES.get(call.integer("stash_type", 1))}


def _layer_norm(call: Call) -> None:
    call.emit(
        "nn.layer_norm", call.inputs, {"axis": call.integer("axis", -1), "epsilon": call.number("epsilon", EPSILON), **stash_type(call)}
    )


def _rms_norm(call: Call) -> None:
    call.emit(
        "nn.rms_norm", call.inputs, {"axis": call.integer("axis", -1), "epsilon": call.number("epsilon", EPSILON), **stash_type(call)}
    )


def _mean_variance_norm(call: Call) -> None:
    call.emit("nn.mean_variance_norm", call.inputs, {"axes": call.integers("axes") or (0, 2, 3)})


TABLE: Table = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": direct("nn.group_norm", integer("num_groups"), number("epsilon", EPSILON)),
    "InstanceNormalization": direct("nn.instance_norm", number("epsilon", EPSILON)),
    "LRN": direct("nn.lrn", integer("size"), number("alpha", 1e-4), number("beta", 0.75), number("bias", 1.0)),
    "MeanVarianceNormalization": _mean_variance_norm,
}
