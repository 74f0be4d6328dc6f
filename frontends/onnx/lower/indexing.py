"""Choosing and placing elements by index, sorting, and selecting boxes."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Table, direct, flag, integer, read, text


def _top_k(call: Call) -> None:
    if call.version >= 10:
        attrs = read(call, flag("largest", True), flag("sorted", True), axis=call.integer("axis", -1))
        call.emit("tensor.topk", call.inputs, attrs)
    else:
        call.emit(
            "tensor.topk", call.inputs[:1], {"k": call.integer("k"), "axis": call.integer("axis", -1), "largest": True, "sorted": True}
        )


def _scatter_elements(call: Call) -> None:
    call.emit("tensor.scatter_elements", call.inputs, read(call, integer("axis", 0), text("reduction", "none")))


def _unique(call: Call) -> None:
    call.emit("tensor.unique", call.inputs, read(call, integer("axis"), flag("sorted", True)))


def _compress(call: Call) -> None:
    call.emit("tensor.compress", call.inputs, read(call, integer("axis")))


def _max_roi_pool(call: Call) -> None:
    shape = call.integers("pooled_shape")
    if shape is None:
        raise Mismatch("attribute pooled_shape is absent")
    call.emit("vision.roi_pool", call.inputs, {"output_size": shape, "spatial_scale": call.number("spatial_scale", 1.0)})


def _roi_align(call: Call) -> None:
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    call.emit(
        "vision.roi_align",
        call.inputs,
        {
            "output_size": (call.integer("output_height", 1), call.integer("output_width", 1)),
            "spatial_scale": call.number("spatial_scale", 1.0),
            "sampling_ratio": call.integer("sampling_ratio", 0),
            "mode": call.text("mode", "avg"),
            "coordinates": call.text("coordinate_transformation_mode", default),
        },
    )


TABLE: Table = {
    "Gather": direct("tensor.gather", integer("axis", 0)),
    "GatherElements": direct("tensor.take_along", integer("axis", 0)),
    "GatherND": direct("tensor.gather_nd", integer("batch_dims", 0)),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": direct("tensor.scatter_nd", text("reduction", "none")),
    "TensorScatter": direct("tensor.tensor_scatter", integer("axis", -2), text("mode", "linear")),
    "Compress": _compress,
    "NonZero": direct("tensor.nonzero", by_axis=True),
    "Unique": _unique,
    "TopK": _top_k,
    "NonMaxSuppression": direct("vision.non_max_suppression", flag("center_point_box", False)),
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
}
