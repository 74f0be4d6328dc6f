"""Constants, shapes, views, and moving elements around."""

from __future__ import annotations

import onnx

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Lower, Table, direct, element_type, flag, integer, integers, read, text
from irscope.frontends.onnx.tensors import Constant
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.payload import Literal, Scalar
from irscope.ir.types import tensor

_AXES_ARE_OPERANDS = 13


# -- constants ---------------------------------------------------------------------------------------------------


def _constant(call: Call) -> None:
    """A Constant becomes a weight, shared by all calls where it stands in a function."""
    body = call.body
    name = call.outputs[0] if call.outputs else ""
    shared = body.constants
    if shared is not None and name in shared:
        call.bind_to(shared[name])
        return
    constant = _given_constant(call, name)
    value = body.model.add_weight(constant, body.shown_name(name))
    if shared is not None and not call.depends_on_caller:
        shared[name] = value
    call.bind_to(value)


def _given_constant(call: Call, name: str) -> Constant:
    model = call.body.model
    proto = call.tensor_attr("value")
    if proto is not None:
        return model.tensors.read(proto, name)
    sparse = call.attrs.get("sparse_value")
    if sparse is not None:
        if not isinstance(sparse, onnx.SparseTensorProto):
            raise Mismatch("attribute sparse_value is no sparse tensor")
        found = model.tensors.read_sparse(sparse, name)
        return Constant(found.type.with_shape(found.type.shape), found.data)
    for attribute, dtype, read_one in (
        ("value_int", DType.I64, call.integer),
        ("value_float", DType.F32, call.number),
        ("value_string", DType.STR, call.text),
    ):
        if call.has(attribute):
            return Constant(tensor(dtype, ()), Literal((read_one(attribute),)))
    for attribute, dtype, read_all in (
        ("value_ints", DType.I64, call.integers),
        ("value_floats", DType.F32, call.numbers),
        ("value_strings", DType.STR, call.texts),
    ):
        items: tuple[Scalar, ...] | None = read_all(attribute)
        if items is not None:
            return Constant(tensor(dtype, (len(items),)), Literal(items))
    raise Mismatch("it has no value")


def _constant_of_shape(call: Call) -> None:
    proto = call.tensor_attr("value")
    attrs: dict[str, Attr] = {"fill": 0.0, "dtype": DType.F32}
    if proto is not None:
        constant = call.body.model.tensors.read(proto, "value")
        if not isinstance(constant.data, Literal) or len(constant.data.values) != 1:
            raise Mismatch("its value is not one element")
        attrs = {"fill": constant.data.values[0], "dtype": constant.type.dtype}
    call.emit("tensor.full", call.inputs, attrs)


def _range(call: Call) -> None:
    call.emit("tensor.arange", call.inputs)


# -- shapes and views --------------------------------------------------------------------------------------------


def _shape(call: Call) -> None:
    call.emit("tensor.shape", call.inputs, read(call, integer("start"), integer("end")))


def _reshape(call: Call) -> None:
    if call.version < 5:
        call.emit("view.reshape", call.inputs[:1], {"shape": call.integers("shape") or (), "zero": "copy"})
    else:
        call.emit("view.reshape", call.inputs, {"zero": "literal" if call.flag("allowzero") else "copy"})


def _squeeze(call: Call) -> None:
    if call.version >= _AXES_ARE_OPERANDS:
        call.emit("view.squeeze", call.inputs, {"strict": True})
    else:
        call.emit("view.squeeze", call.inputs[:1], read(call, integers("axes"), strict=True))


def _unsqueeze(call: Call) -> None:
    if call.version >= _AXES_ARE_OPERANDS:
        call.emit("view.unsqueeze", call.inputs)
        return
    axes = call.integers("axes")
    if axes is None:
        raise Mismatch("attribute axes is absent")
    call.emit("view.unsqueeze", call.inputs[:1], {"axes": axes})


def _slice(call: Call) -> None:
    if call.version >= 10:
        call.emit("view.slice", call.inputs)
        return
    starts, ends = call.integers("starts"), call.integers("ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise Mismatch("attributes starts and ends are absent or of different lengths")
    call.emit("view.slice", call.inputs[:1], read(call, integers("axes"), starts=starts, ends=ends))


def _split(call: Call) -> None:
    axis = call.integer("axis", 0)
    count = len(call.outputs)
    if call.version >= _AXES_ARE_OPERANDS:
        if call.operand(1) is not None:
            call.emit("view.split", call.inputs, {"axis": axis})
        else:
            # With num_outputs the last part may be smaller; without, the axis divides evenly.
            call.emit("view.split", call.inputs[:1], {"axis": axis, "num_outputs": call.integer("num_outputs", count)})
        return
    parts = call.integers("split")
    if parts:
        call.emit("view.split", call.inputs[:1], {"axis": axis, "sizes": parts})
    elif call.version < 2 and call.operand(1) is not None:
        call.emit("view.split", call.inputs, {"axis": axis})
    else:
        call.emit("view.split", call.inputs[:1], {"axis": axis, "num_outputs": count})


# -- moving ------------------------------------------------------------------------------------------------------


def _concat(call: Call) -> None:
    default = 1 if call.version < 4 else None
    call.emit("tensor.concat", call.inputs, {"axis": call.integer("axis", default)})


def _tile(call: Call) -> None:
    if call.version >= 6:
        call.emit("tensor.tile", call.inputs)
        return
    # The first form repeats one axis, both given as tensors: the repeats are ones with that number at that place.
    rank = call.value("tensor.shape", [call.value("tensor.shape", [call.needed(0)])])
    ones = call.value("tensor.full", [rank], {"fill": 1, "dtype": DType.I64})
    tiles, axis = (
        call.value("tensor.cast", [call.value("view.reshape", [call.needed(index)], {"shape": (1,)})], {"to": DType.I64})
        for index in (1, 2)
    )
    repeats = call.value("tensor.scatter_elements", [ones, axis, tiles], {"axis": 0})
    call.last("tensor.tile", [call.needed(0), repeats])


def _pad(call: Call) -> None:
    mode = call.text("mode", "constant")
    if call.version >= 11:
        call.emit("tensor.pad", call.inputs, {"mode": mode})
        return
    pads = call.integers("pads" if call.version >= 2 else "paddings")
    if pads is None:
        raise Mismatch("attribute pads is absent")
    call.emit("tensor.pad", call.inputs[:1], {"pads": pads, "mode": mode, "fill": call.number("value", 0.0)})


def _depth_to_space(call: Call) -> None:
    call.emit("tensor.depth_to_space", call.inputs, read(call, integer("blocksize"), text("mode", "DCR")))


def _trilu(call: Call) -> None:
    call.emit("tensor.trilu", call.inputs, {"upper": call.flag("upper", True)})


def _upsample(call: Call) -> None:
    mode = call.text("mode", "nearest")
    attrs: dict[str, Attr] = {"mode": "linear" if mode == "bilinear" else mode, "coordinates": "asymmetric"}
    if call.version >= 9:
        call.emit("vision.resize", [call.needed(0), None, call.operand(1)], attrs)
        return
    scales = call.numbers("scales")
    if call.version < 7 and scales is None:
        scales = (1.0, 1.0, call.number("height_scale"), call.number("width_scale"))
    if scales is None:
        raise Mismatch("attribute scales is absent")
    call.emit("vision.resize", call.inputs[:1], {**attrs, "scale_factors": scales})


def _resize(call: Call) -> None:
    attrs = read(call, text("mode", "nearest"))
    if call.version < 11:
        attrs["coordinates"] = "asymmetric"
        call.emit("vision.resize", [call.needed(0), None, call.operand(1)], attrs)
        return
    rules = (
        text("coordinate_transformation_mode", "half_pixel", to="coordinates"),
        flag("antialias", False),
        integers("axes"),
        text("keep_aspect_ratio_policy", "stretch"),
    )
    attrs.update(read(call, *rules))
    call.emit("vision.resize", call.inputs, attrs)


def _center_crop_pad(call: Call) -> None:
    call.emit("tensor.center_crop_pad", call.inputs, read(call, integers("axes")))


def _one_hot(call: Call) -> None:
    call.emit("tensor.one_hot", call.inputs, {"axis": call.integer("axis", -1)})


def window(kind: str) -> Lower:
    """A window function of a given length."""
    return direct("tensor.window", flag("periodic", True), element_type("output_datatype", DType.F32, to="dtype"), kind=kind)


TABLE: Table = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": direct("tensor.eye_like", element_type("dtype"), integer("k", 0)),
    "OneHot": _one_hot,
    "HannWindow": window("hann"),
    "HammingWindow": window("hamming"),
    "BlackmanWindow": window("blackman"),
    "MelWeightMatrix": direct("tensor.mel_weight_matrix", element_type("output_datatype", DType.F32, to="dtype")),
    "Shape": _shape,
    "Size": direct("tensor.numel"),
    "Reshape": _reshape,
    "Flatten": direct("view.flatten_2d", integer("axis", 1)),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": direct("view.permute", integers("perm")),
    "Expand": direct("view.expand", mode="broadcast"),
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Tile": _tile,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": direct("tensor.space_to_depth", integer("blocksize")),
    "Trilu": _trilu,
    "ReverseSequence": direct("tensor.reverse_sequence", integer("batch_axis", 1), integer("time_axis", 0)),
    "Col2Im": direct("tensor.col2im", integers("dilations"), integers("pads"), integers("strides")),
    "CenterCropPad": _center_crop_pad,
    "Upsample": _upsample,
    "Resize": _resize,
    "GridSample": direct("vision.grid_sample", flag("align_corners", False), text("mode", "linear"), text("padding_mode", "zeros")),
    "AffineGrid": direct("vision.affine_grid", flag("align_corners", False)),
    "ImageDecoder": direct("vision.decode_image", text("pixel_format", "RGB")),
}
