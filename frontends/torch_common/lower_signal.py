"""Fourier transforms."""

from __future__ import annotations

from irscope.frontends.torch_common.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr


def _shape(call: AtenCall) -> tuple[Dim, ...]:
    type_ = call.tensor("self").type
    if type_.shape is None:
        raise CannotLower("the tensor's sizes are unknown")
    return type_.shape


def _transform(kind: str, inverse: bool, axes: tuple[int, ...] | None) -> Rule:
    """`fft_*`: over one axis, two, or as many as sizes are given; sizes of -1 are those of the signal."""

    def rule(call: AtenCall) -> Lowered:
        sizes = call.dims("s") or call.dims("n")
        given = call.dims("dim") or axes or ()
        if not given:
            rank = len(_shape(call))
            given = tuple(range(-(len(sizes) or rank), 0))
        attrs: dict[str, Attr] = {"axes": given, "kind": kind, "inverse": inverse, "onesided": kind != "c2c"}
        if sizes:
            attrs["sizes"] = tuple(_shape(call)[_axis(axis)] if size == -1 else size for axis, size in zip(given, sizes, strict=True))
        return Lowered("fft.transform", (call.tensor("self"),), attrs)

    return rule


def _axis(axis: Attr) -> int:
    if not isinstance(axis, int):
        raise CannotLower("an axis is not known")
    return axis


def _plain_transform(kind: str) -> Rule:
    """The kernels that all others are made of."""

    def rule(call: AtenCall) -> Lowered:
        axes = call.dims("dim")
        attrs: dict[str, Attr] = {"axes": axes, "kind": kind, "onesided": call.flag("onesided") or kind == "c2r"}
        attrs["inverse"] = kind == "c2r" or (kind == "c2c" and not call.flag("forward"))
        if kind == "c2r":
            attrs["sizes"] = (*(_shape(call)[_axis(axis)] for axis in axes[:-1]), call["last_dim_size"])
        return Lowered("fft.transform", (call.tensor("self"),), attrs)

    return rule


def _short(call: AtenCall) -> Lowered:
    """`stft`: a quarter of a window from one frame to the next unless it says otherwise."""
    x = call.tensor("self")
    real = x.type.dtype in (DType.F16, DType.BF16, DType.F32, DType.F64)
    attrs = _frames(call)
    attrs["center"] = call.flag("center")
    attrs["onesided"] = real if call["onesided"] is None else call.flag("onesided")
    attrs["return_complex"] = call["return_complex"] is None or call.flag("return_complex")
    return Lowered("fft.stft", (x, call.maybe("window")), attrs)


def _inverse_short(call: AtenCall) -> Lowered:
    attrs = _frames(call)
    attrs["center"] = call.flag("center")
    attrs["onesided"] = call["onesided"] is None or call.flag("onesided")
    attrs["return_complex"] = call.flag("return_complex")
    if call.has("length"):
        attrs["length"] = _axis(call["length"])
    return Lowered("fft.istft", (call.tensor("self"), call.maybe("window")), attrs)


def _frames(call: AtenCall) -> dict[str, Attr]:
    length = call["n_fft"]
    if not isinstance(length, int):
        raise CannotLower("the length of a frame is not known")
    window = call["win_length"] if isinstance(call["win_length"], int) else length
    hop = call["hop_length"] if isinstance(call["hop_length"], int) else window // 4
    return {"n_fft": length, "hop_length": hop, "normalized": call.flag("normalized")}


_KINDS = {
    "fft": ("c2c", False),
    "ifft": ("c2c", True),
    "rfft": ("r2c", False),
    "irfft": ("c2r", True),
    "hfft": ("c2r", False),
    "ihfft": ("r2c", True),
}
RULES: dict[str, Rule] = {
    **{f"fft_{name}": _transform(*kind, (-1,)) for name, kind in _KINDS.items()},
    **{f"fft_{name}2": _transform(*kind, (-2, -1)) for name, kind in _KINDS.items()},
    **{f"fft_{name}n": _transform(*kind, None) for name, kind in _KINDS.items()},
    "_fft_c2c": _plain_transform("c2c"),
    "_fft_r2c": _plain_transform("r2c"),
    "_fft_c2r": _plain_transform("c2r"),
    "stft": _short,
    "istft": _inverse_short,
}
