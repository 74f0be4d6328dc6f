"""Views, moves and indexing."""

from __future__ import annotations

import itertools

from irscope.frontends.torch_common.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr, Value
from irscope.ir.types import TensorType

_LAST = 2**63 - 1

TEMPLATES: dict[str, str] = {
    "view": "view.reshape self ; shape=[size]",
    "view.dtype": "view.view_dtype self ; to=dtype",
    "reshape": "view.reshape self ; shape=[shape]",
    "_unsafe_view": "view.reshape self ; shape=[size]",
    "_reshape_alias": "view.reshape self ; shape=[size]",
    "flatten": "view.flatten self ; start=start_dim end=end_dim",
    "ravel": "view.flatten self",
    "unflatten": "view.unflatten self ; sizes=[sizes] axis=dim",
    "squeeze": "view.squeeze self ; axes=[dim]",
    "unsqueeze": "view.unsqueeze self ; axes=[dim]",
    "permute": "view.permute self ; perm=[dims]",
    "t": "view.permute self",
    "numpy_T": "view.permute self",
    "transpose": "view.transpose self ; axis0=dim0 axis1=dim1",
    "swapaxes": "view.transpose self ; axis0=axis0 axis1=axis1",
    "mT": "view.transpose self ; axis0:-2 axis1:-1",
    "movedim": "view.movedim self ; source=[source] destination=[destination]",
    "expand": "view.expand self ; shape=[size] mode:keep",
    "select": "view.select self ; axis=dim index",
    "narrow": "view.narrow self ; axis=dim start length",
    "split": "view.split self ; axis=dim size=split_size",
    "split.": "view.split self ; axis=dim sizes=[split_sizes]",
    "split.sizes": "view.split self ; axis=dim sizes=[split_size]",
    "split_with_sizes": "view.split self ; axis=dim sizes=[split_sizes]",
    "chunk": "view.chunk self ; chunks axis=dim",
    "unsafe_chunk": "view.chunk self ; chunks axis=dim",
    "unsafe_split": "view.split self ; axis=dim size=split_size",
    "unsafe_split_with_sizes": "view.split self ; axis=dim sizes=[split_sizes]",
    "tensor_split.sections": "view.tensor_split self ; sections axis=dim",
    "unbind": "view.unbind self ; axis=dim",
    "diagonal": "view.diagonal self ; offset axis0=dim1 axis1=dim2",
    "unfold": "view.unfold self ; axis=dimension size step",
    "as_strided": "view.as_strided self ; shape=[size] strides=[stride] offset=storage_offset",
    "view_as_real": "view.as_real self",
    "view_as_complex": "view.as_complex self",
    "detach": "view.alias self",
    "alias": "view.alias self",
    "lift_fresh": "view.alias self",
    "lift": "view.alias self",
    "contiguous": "view.contiguous self ; memory_format",
    "clone": "tensor.copy self",
    "lift_fresh_copy": "tensor.copy self",
    "copy_": "tensor.copy_into self src ; inplace:0",
    "copy": "tensor.copy_into self src",
    "cat": "tensor.concat tensors* ; axis=dim",
    "concat": "tensor.concat tensors* ; axis=dim",
    "concatenate": "tensor.concat tensors* ; axis=dim",
    "stack": "tensor.stack tensors* ; axis=dim",
    "repeat": "tensor.tile self ; repeats=[repeats]",
    "tile": "tensor.tile self ; repeats=[dims]",
    "repeat_interleave.self_int": "tensor.repeat_interleave self ; count=repeats axis=dim output_size",
    "repeat_interleave.self_Tensor": "tensor.repeat_interleave self repeats ; axis=dim output_size",
    "roll": "tensor.roll self ; shifts=[shifts] axes=[dims]",
    "flip": "tensor.flip self ; axes=[dims]",
    "tril": "tensor.trilu self ; k=diagonal upper:false",
    "triu": "tensor.trilu self ; k=diagonal upper:true",
    "meshgrid": "tensor.meshgrid tensors*",
    "meshgrid.indexing": "tensor.meshgrid tensors* ; indexing",
    "channel_shuffle": "tensor.channel_shuffle self ; groups",
    "pixel_shuffle": "tensor.depth_to_space self ; blocksize=upscale_factor mode:CRD",
    "pixel_unshuffle": "tensor.space_to_depth self ; blocksize=downscale_factor mode:CRD",
    "im2col": "tensor.im2col self ; kernel_shape=[kernel_size] dilations=[dilation] pads=[padding] strides=[stride]",
    "col2im": "tensor.col2im self ; image_shape=[output_size] block_shape=[kernel_size] dilations=[dilation] "
    "pads=[padding] strides=[stride]",
    "gather": "tensor.take_along self index ; axis=dim",
    "take_along_dim": "tensor.take_along self indices ; axis=dim",
    "index_select": "tensor.gather self index ; axis=dim",
    "take": "tensor.take self index",
    "embedding": "nn.embedding weight indices",
    "index": "tensor.index self indices*",
    "_unsafe_index": "tensor.index self indices*",
    "index_put": "tensor.index_put self values indices* ; accumulate",
    "_unsafe_index_put": "tensor.index_put self values indices* ; accumulate",
    "index_add": "tensor.index_add self index source ; axis=dim alpha",
    "index_copy": "tensor.index_copy self index source ; axis=dim",
    "index_fill": "tensor.index_fill self index value|fill ; axis=dim",
    "masked_fill": "tensor.masked_fill self mask value|fill",
    "masked_select": "tensor.masked_select self mask",
    "masked_scatter": "tensor.masked_scatter self mask source",
    "nonzero": "tensor.nonzero self",
    "argwhere": "tensor.nonzero self",
    "nonzero_numpy": "tensor.nonzero_parts self",
    "where.": "tensor.nonzero_parts condition",
    "_shape_as_tensor": "tensor.shape self",
    "scatter.src": "tensor.scatter_elements self index src ; axis=dim",
    "scatter.value": "tensor.scatter_elements self index ; axis=dim value",
    "scatter.reduce": "tensor.scatter_elements self index src ; axis=dim reduction=reduce",
    "scatter.value_reduce": "tensor.scatter_elements self index ; axis=dim value reduction=reduce",
    "scatter_add": "tensor.scatter_elements self index src ; axis=dim reduction:add",
    "scatter_reduce": "tensor.scatter_elements self index src ; axis=dim reduction=reduce",
    "select_scatter": "tensor.select_scatter self src ; axis=dim index",
    "diagonal_scatter": "tensor.diagonal_scatter self src ; offset axis0=dim1 axis1=dim2",
}


def _slice(call: AtenCall) -> Lowered:
    start, end, step = call["start"], call["end"], call["step"]
    attrs: dict[str, Attr] = {
        "starts": (0 if start is None else start,),
        "ends": (_LAST if end is None else end,),
        "axes": (call["dim"] or 0,),
        "steps": (1 if step is None else step,),
    }
    if any(isinstance(part[0], Value) for part in attrs.values()):
        raise CannotLower("bounds are tensors")
    inputs: list[Value | None] = [call.tensor("self")]
    if call.signature.name == "slice_scatter":
        return Lowered("tensor.slice_scatter", [*inputs, call.tensor("src")], attrs)
    return Lowered("view.slice", inputs, attrs)


def _like(op: str, mode: dict[str, Attr]) -> Rule:
    """Takes its sizes from another tensor."""

    def rule(call: AtenCall) -> Lowered:
        other = call.tensor("other").type
        if other.shape is None:
            raise CannotLower("the other tensor's sizes are unknown")
        return Lowered(op, (call.tensor("self"),), {"shape": other.shape, **mode})

    return rule


def _flipped(op_axes: int) -> Rule:
    """Left-right is the second axis, up-down the first."""
    return lambda call: Lowered("tensor.flip", (call.tensor("self"),), {"axes": (op_axes,)})


def padding(pairs: tuple[Attr, ...]) -> dict[str, Attr]:
    """PyTorch pads from the last axis backward, begin and end together; here begins come first, then ends."""
    begins, ends = pairs[::2], pairs[1::2]
    count = len(begins)
    return {"pads": (*begins[::-1], *ends[::-1]), "axes": tuple(range(-count, 0))}


def _pad(call: AtenCall) -> Lowered:
    mode = call.text("mode") or "constant"
    value = call["value"]
    attrs: dict[str, Attr] = {"mode": {"replicate": "edge", "circular": "wrap"}.get(mode, mode), **padding(call.dims("pad"))}
    if mode == "constant":
        attrs["fill"] = 0 if value is None else value
    return Lowered("tensor.pad", (call.tensor("self"),), attrs)


def _pad_mode(mode: str) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        return Lowered("tensor.pad", (call.tensor("self"),), {"mode": mode, **padding(call.dims("padding"))})

    return rule


def _joined(axis: int) -> Rule:
    return lambda call: Lowered("tensor.concat", call.tensors("tensors"), {"axis": axis})


def _to(call: AtenCall) -> Lowered:
    """Conversions; the other tensor of `to.other` and `type_as` only lends its element type and device."""
    attrs: dict[str, Attr] = {}
    other = call["other"]
    if isinstance(other, Value):
        if not isinstance(other.type, TensorType):
            raise CannotLower("the other tensor's type is unknown")
        attrs["dtype"] = other.type.dtype
        if other.type.device:
            attrs["device"] = other.type.device
    for name in ("dtype", "device", "memory_format"):
        if call.has(name):
            attrs[name] = call[name]
    if call.flag("copy") or call.signature.name == "_to_copy":
        attrs["copy"] = True
    return Lowered("tensor.to", (call.tensor("self"),), attrs)


def _split_at(call: AtenCall) -> Lowered:
    """`tensor_split` at places given as numbers."""
    places = call.dims("indices")
    type_ = call.tensor("self").type
    axis = call["dim"]
    if type_.shape is None or not isinstance(axis, int):
        raise CannotLower("the tensor's sizes are unknown")
    size = type_.shape[axis]
    if any(isinstance(place, SymDim | Value) for place in places) or isinstance(size, SymDim):
        raise CannotLower("places are not known")
    bounds = [0, *(min(max(place + size if place < 0 else place, 0), size) for place in places), size]
    sizes = tuple(max(after - before, 0) for before, after in itertools.pairwise(bounds))
    if sum(sizes) != size:
        raise CannotLower("places that are not in order")
    return Lowered("view.split", (call.tensor("self"),), {"sizes": sizes, "axis": axis})


RULES: dict[str, Rule] = {
    "tensor_split.indices": _split_at,
    "slice": _slice,
    "slice_scatter": _slice,
    "view_as": _like("view.reshape", {}),
    "reshape_as": _like("view.reshape", {}),
    "expand_as": _like("view.expand", {"mode": "keep"}),
    "fliplr": _flipped(1),
    "flipud": _flipped(0),
    "pad": _pad,
    "constant_pad_nd": _pad,
    "reflection_pad1d": _pad_mode("reflect"),
    "reflection_pad2d": _pad_mode("reflect"),
    "reflection_pad3d": _pad_mode("reflect"),
    "replication_pad1d": _pad_mode("edge"),
    "replication_pad2d": _pad_mode("edge"),
    "replication_pad3d": _pad_mode("edge"),
    "to": _to,
    "_to_copy": _to,
    "type_as": _to,
    "vstack": _joined(0),
}
