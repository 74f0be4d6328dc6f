"""Rules for tensors made from nothing, random ones, views, moves and indexing."""

from __future__ import annotations

import itertools

from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ir.types import TensorType

# -- views, moves and indexing -----------------------------------------------------------------------------------------


_LAST = 2**63 - 1

MOVING: dict[str, str] = {
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


def _sizes_of_other(op: str, mode: dict[str, Attr]) -> Rule:
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


def _stacked_rows(axis: int) -> Rule:
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


MOVING_RULES: dict[str, Rule] = {
    "tensor_split.indices": _split_at,
    "slice": _slice,
    "slice_scatter": _slice,
    "view_as": _sizes_of_other("view.reshape", {}),
    "reshape_as": _sizes_of_other("view.reshape", {}),
    "expand_as": _sizes_of_other("view.expand", {"mode": "keep"}),
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
    "vstack": _stacked_rows(0),
}


# -- tensors made from nothing, and random ones ------------------------------------------------------------------------


MAKING: dict[str, str] = {
    "zeros_like": "tensor.full_like self ; fill:0 dtype device",
    "ones_like": "tensor.full_like self ; fill:1 dtype device",
    "full_like": "tensor.full_like self ; fill=fill_value dtype device",
    "empty_like": "tensor.empty_like self ; dtype device",
    "zero": "tensor.full_like self ; fill:0",
    "rand_like": "random.uniform_like self ; dtype device",
    "randn_like": "random.normal_like self ; dtype device",
    "eye": "tensor.eye ; rows=n dtype device",
    "eye.m": "tensor.eye ; rows=n columns=m dtype device",
    "hann_window": "tensor.window ; size=window_length kind:hann periodic dtype device",
    "hamming_window": "tensor.window ; size=window_length kind:hamming periodic dtype device",
    "one_hot": "tensor.one_hot self ; depth=num_classes",
    "bernoulli": "random.bernoulli self",
    "bernoulli.p": "random.bernoulli self ; p",
    "multinomial": "random.multinomial self ; samples=num_samples replacement",
    "item": "tensor.item self",
    "_local_scalar_dense": "tensor.item self",
    "is_nonzero": "tensor.item self",
}

_DEFAULT = DType.F32


def _number_dtype(*numbers: object) -> DType:
    """The element type that PyTorch gives to numbers."""
    if any(isinstance(number, complex) for number in numbers):
        return DType.C64
    if any(isinstance(number, float) for number in numbers):
        return _DEFAULT
    return DType.BOOL if all(isinstance(number, bool) for number in numbers) else DType.I64


def _type_and_device(call: AtenCall, default: DType) -> dict[str, Attr]:
    dtype = call["dtype"]
    attrs: dict[str, Attr] = {"dtype": dtype if isinstance(dtype, DType) else default}
    if call.has("device"):
        attrs["device"] = call["device"]
    return attrs


def _filled_tensor(fill: int | None) -> Rule:
    """zeros, ones, empty and their `new_` forms, which take the element type of a tensor."""

    def rule(call: AtenCall) -> Lowered:
        value: object = fill
        default = _DEFAULT
        if call.has("fill_value"):
            value = call["fill_value"]
            default = _number_dtype(value)
        source = call["self"]
        if isinstance(source, Value):
            if not isinstance(source.type, TensorType):
                raise CannotLower("the element type is unknown")
            default = source.type.dtype
        attrs: dict[str, Attr] = {"shape": call.dims("size"), **_type_and_device(call, default)}
        # Nothing of `source` is read, but it lives until then.
        like = (source,) if isinstance(source, Value) else ()
        if value is None:
            return Lowered("tensor.empty", (None, *like) if like else (), attrs)
        if isinstance(value, Value):
            return Lowered("tensor.full", (None, value, *like), attrs)
        return Lowered("tensor.full", (None, None, *like) if like else (), {**attrs, "fill": value})

    return rule


def _arange(call: AtenCall) -> Lowered:
    """Bounds are numbers, or tensors that hold one."""
    bounds = {
        "start": 0 if call["start"] is None else call["start"],
        "limit": call["end"],
        "delta": 1 if call["step"] is None else call["step"],
    }
    inputs = [bound if isinstance(bound, Value) else None for bound in bounds.values()]
    attrs: dict[str, Attr] = {}
    numbers: list[object] = []
    for name, bound in bounds.items():
        if isinstance(bound, Value):
            numbers.append(0.0 if bound.type.dtype.is_float else 0)
        elif isinstance(bound, int | float | SymDim):
            attrs[name] = bound
            numbers.append(bound)
        else:
            raise CannotLower("bounds are no numbers")
    return Lowered("tensor.arange", inputs, {**attrs, **_type_and_device(call, _number_dtype(*numbers))})


def _scalar_tensor(call: AtenCall) -> Lowered:
    value = next((call[name] for name in ("s", "t", "data") if call.has(name)), None)
    if isinstance(value, Value):
        return Lowered("tensor.from_scalar", (value,), {"dtype": call["dtype"]} if call.has("dtype") else {})
    if not isinstance(value, bool | int | float | SymDim):
        raise CannotLower("no number")
    default = _DEFAULT if call.signature.name == "scalar_tensor" else _number_dtype(value)
    return Lowered("tensor.full", (), {"shape": (), "fill": value, **_type_and_device(call, default)})


def _linspace(call: AtenCall) -> Lowered:
    attrs = {"start": call["start"], "limit": call["end"], "steps": call["steps"], **_type_and_device(call, _DEFAULT)}
    if any(isinstance(value, Value) for value in attrs.values()):
        raise CannotLower("bounds are tensors")
    return Lowered("tensor.linspace", (), attrs)


def _random(op: str, default: DType) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"shape": call.dims("size"), **_type_and_device(call, default)}
        for name in ("low", "high"):
            if call.has(name):
                attrs[name] = call[name]
        return Lowered(op, (), attrs)

    return rule


def _fill(call: AtenCall) -> Lowered:
    value = call["value"]
    if isinstance(value, Value):
        return Lowered("tensor.full_like", (call.tensor("self"), value), {})
    return Lowered("tensor.full_like", (call.tensor("self"),), {"fill": value})


def _permutation(call: AtenCall) -> Lowered:
    count = call["n"]
    if not isinstance(count, int | SymDim):
        raise CannotLower("the count is no number")
    return Lowered("random.randperm", (), {"count": count, **_type_and_device(call, DType.I64)})


def _in_place_random(op: str) -> Rule:
    return lambda call: Lowered(op, (call.tensor("self"),), {})


def _lower_dropout(call: AtenCall) -> Lowered:
    """The in-place form calls its tensor `self`."""
    x = call.maybe("input") or call.tensor("self")
    return Lowered("nn.dropout", (x,), {"p": call["p"], "training": call.flag("train")})


MAKING_RULES: dict[str, Rule] = {
    "dropout": _lower_dropout,
    "feature_dropout": _lower_dropout,
    "alpha_dropout": _lower_dropout,
    "native_dropout": _lower_dropout,
    "zeros": _filled_tensor(0),
    "ones": _filled_tensor(1),
    "full": _filled_tensor(0),
    "empty": _filled_tensor(None),
    "empty_permuted": _filled_tensor(None),
    "empty_strided": _filled_tensor(None),
    "new_zeros": _filled_tensor(0),
    "new_ones": _filled_tensor(1),
    "new_full": _filled_tensor(0),
    "new_empty": _filled_tensor(None),
    "arange": _arange,
    "scalar_tensor": _scalar_tensor,
    "tensor": _scalar_tensor,
    "linspace": _linspace,
    "rand": _random("random.uniform", _DEFAULT),
    "randn": _random("random.normal", _DEFAULT),
    "randint": _random("random.randint", DType.I64),
    "randperm": _permutation,
    "fill": _fill,
    "uniform": _in_place_random("random.uniform_like"),
    "normal": _in_place_random("random.normal_like"),
}
