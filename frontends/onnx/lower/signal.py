"""Spectra, and loss functions."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.lower.rules import Table, direct, flag, integer, read, text

_AXIS_IS_OPERAND = 20


def _dft(call: Call) -> None:
    attrs = read(call, flag("inverse", False), flag("onesided", False))
    if call.version < _AXIS_IS_OPERAND:
        attrs["axis"] = call.integer("axis", 1)
        call.emit("signal.dft", call.inputs[:2], attrs)
    else:
        call.emit("signal.dft", call.inputs, attrs)


TABLE: Table = {
    "DFT": _dft,
    "STFT": direct("signal.stft", flag("onesided", True)),
    "NegativeLogLikelihoodLoss": direct("loss.nll", text("reduction", "mean"), integer("ignore_index")),
    "SoftmaxCrossEntropyLoss": direct("loss.cross_entropy", text("reduction", "mean"), integer("ignore_index")),
}
