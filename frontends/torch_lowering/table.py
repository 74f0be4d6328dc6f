"""All rules by ATen name: text templates for the many simple operators, functions for the others; and which rule a call means."""

from __future__ import annotations

import functools
import itertools

from irscope.frontends.torch_lowering.layers import LAYER_RULES, LAYERS, TRAINING, TRAINING_RULES
from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, Lowered, Rule, from_template
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ir.types import TensorType

# -- arithmetic, comparisons, activations, reductions, sorting, matrix products ----------------------------------------


_UNARY = """neg abs sign floor ceil trunc frac sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma reciprocal square bitwise_not isnan isfinite isinf signbit
sinc real imag angle"""
_ACTIVATIONS = "relu relu6 selu mish silu sigmoid hardswish"
_BINARY = """mul maximum minimum atan2 hypot logaddexp copysign bitwise_and bitwise_or bitwise_xor"""
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}

ARITHMETIC: dict[str, str] = {
    **{name: f"math.{name} self" for name in _UNARY.split()},
    **{name: f"nn.{name} self" for name in _ACTIVATIONS.split()},
    **{name: f"math.{name} self other|value" for name in _BINARY.split()},
    **{name: f"compare.{ours} self other|value" for name, ours in _COMPARISONS.items()},
    "negative": "math.neg self",
    "absolute": "math.abs self",
    "sgn": "math.sign self",
    "fix": "math.trunc self",
    "arctan": "math.atan self",
    "arcsin": "math.asin self",
    "arccos": "math.acos self",
    "special_expit": "nn.sigmoid self",
    "conj": "math.conj self",
    "_conj": "math.conj self",
    "conj_physical": "math.conj self",
    "resolve_conj": "view.alias self",
    "resolve_neg": "view.alias self",
    "logical_not": "math.not self",
    "round": "math.round self",
    "round.decimals": "math.round self ; decimals",
    "nan_to_num": "math.nan_to_num self ; nan posinf neginf",
    "logit": "math.logit self ; eps",
    "log_sigmoid": "nn.logsigmoid self",
    "gelu": "nn.gelu self ; approximate",
    "leaky_relu": "nn.leaky_relu self ; alpha=negative_slope",
    "elu": "nn.elu self ; alpha",
    "celu": "nn.celu self ; alpha",
    "softplus": "nn.softplus self ; beta threshold",
    "hardshrink": "nn.hardshrink self ; lambd",
    "softshrink": "nn.softshrink self ; lambd",
    "threshold": "nn.thresholded_relu self ; alpha=threshold value",
    "hardtanh": "math.clamp self ; min_value=min_val max_value=max_val",
    "prelu": "nn.prelu self weight ; per_channel:true",
    "glu": "nn.glu self ; axis=dim",
    "add": "math.add self other|value ; alpha",
    "sub": "math.sub self other|value ; alpha",
    "subtract": "math.sub self other|value ; alpha",
    "rsub": "math.sub self other|value ; alpha reverse:true",
    "multiply": "math.mul self other|value",
    "div": "math.div self other|value ; rounding_mode",
    "divide": "math.div self other|value ; rounding_mode",
    "true_divide": "math.div self other|value",
    "floor_divide": "math.floordiv self other|value",
    "remainder": "math.mod self other|value",
    "fmod": "math.mod self other|value ; fmod:true",
    "pow": "math.pow self exponent|value",
    "pow.Scalar": "math.pow exponent ; value=self reverse:true",
    "float_power": "math.pow self exponent|value ; dtype:f64",
    "fmax": "math.maximum self other",
    "fmin": "math.minimum self other",
    "logical_and": "math.and self other",
    "logical_or": "math.or self other",
    "logical_xor": "math.xor self other",
    "__and__": "math.bitwise_and self other|value",
    "__or__": "math.bitwise_or self other|value",
    "__xor__": "math.bitwise_xor self other|value",
    "bitwise_left_shift": "math.shift_left self other|value",
    "bitwise_right_shift": "math.shift_right self other|value",
    "__lshift__": "math.shift_left self other|value",
    "__rshift__": "math.shift_right self other|value",
    "isclose": "compare.isclose self other ; rtol atol equal_nan",
    "equal": "compare.all_equal self other",
    "clamp": "math.clamp self min|min_value max|max_value",
    "clip": "math.clamp self min|min_value max|max_value",
    "clamp_min": "math.clamp self min|min_value",
    "clamp_max": "math.clamp self _ max|max_value",
    "diff": "math.diff self prepend append ; n axis=dim",
    "lerp": "math.lerp self end weight|value",
    "addcmul": "math.addcmul self tensor1 tensor2 ; value",
    "addcdiv": "math.addcdiv self tensor1 tensor2 ; value",
    "complex": "math.complex real imag",
    "where": "math.where condition self|x_value other|y_value",
    "hardsigmoid": "nn.hardsigmoid self ; alpha:0.16666666666666666 beta:0.5",
    "mse_loss": "loss.mse self target ; reduction=reduction{none,mean,sum}",
    "smooth_l1_loss": "loss.smooth_l1 self target ; reduction=reduction{none,mean,sum} beta",
    "huber_loss": "loss.huber self target ; reduction=reduction{none,mean,sum} delta",
    "binary_cross_entropy": "loss.bce self target weight ; reduction=reduction{none,mean,sum}",
    "l1_loss": "loss.l1 self target ; reduction=reduction{none,mean,sum}",
    # reductions
    "sum": "reduce.sum self ; axes=[dim] keepdims=keepdim dtype promote:true",
    "mean": "reduce.mean self ; axes=[dim] keepdims=keepdim dtype",
    "prod": "reduce.prod self ; axes=[dim] keepdims=keepdim dtype promote:true",
    "nansum": "reduce.sum self ; axes=[dim] keepdims=keepdim dtype promote:true",
    "amax": "reduce.max self ; axes=[dim] keepdims=keepdim",
    "amin": "reduce.min self ; axes=[dim] keepdims=keepdim",
    "any": "reduce.any self ; axes=[dim] keepdims=keepdim",
    "all": "reduce.all self ; axes=[dim] keepdims=keepdim",
    "logsumexp": "reduce.log_sum_exp self ; axes=[dim] keepdims=keepdim",
    "norm": "reduce.norm self ; p axes=[dim] keepdims=keepdim dtype",
    "linalg_vector_norm": "reduce.norm self ; p=ord axes=[dim] keepdims=keepdim dtype",
    "linalg_norm": "reduce.norm self ; p=ord axes=[dim] keepdims=keepdim dtype",
    "frobenius_norm": "reduce.norm self ; axes=[dim] keepdims=keepdim",
    "count_nonzero": "reduce.count_nonzero self ; axes=[dim]",
    "max.dim": "reduce.max_with_index self ; axis=dim keepdims=keepdim",
    "min.dim": "reduce.min_with_index self ; axis=dim keepdims=keepdim",
    "max.other": "math.maximum self other",
    "min.other": "math.minimum self other",
    "max": "reduce.max self ; keepdims:false",
    "min": "reduce.min self ; keepdims:false",
    # sorting
    "argmax": "reduce.argmax self ; axis=dim keepdims=keepdim",
    "argmin": "reduce.argmin self ; axis=dim keepdims=keepdim",
    "sort": "tensor.sort self ; axis=dim descending stable",
    "argsort": "tensor.argsort self ; axis=dim descending stable",
    "topk": "tensor.topk self ; k axis=dim largest sorted",
    "kthvalue": "tensor.kthvalue self ; k axis=dim keepdims=keepdim",
    "median": "tensor.median self ; axis=dim keepdims=keepdim",
    "mode": "tensor.mode self ; axis=dim keepdims=keepdim",
    "cumsum": "tensor.cumsum self ; axis=dim dtype promote:true",
    "cumprod": "tensor.cumprod self ; axis=dim dtype promote:true",
    "cummax": "tensor.cummax self ; axis=dim",
    "cummin": "tensor.cummin self ; axis=dim",
    "logcumsumexp": "tensor.logcumsumexp self ; axis=dim",
    "histc": "tensor.histc self ; bins min max",
    "bincount": "tensor.bincount self weights ; minlength",
    "torchvision::nms": "vision.nms dets scores ; iou_threshold",
    # softmax
    "softmax": "nn.softmax self ; axis=dim dtype",
    "_softmax": "nn.softmax self ; axis=dim",
    "log_softmax": "nn.log_softmax self ; axis=dim dtype",
    "_log_softmax": "nn.log_softmax self ; axis=dim",
    "cosine_similarity": "nn.cosine_similarity x1 x2 ; axis=dim eps",
    # matrix products
    "matmul": "math.matmul self other",
    "mm": "math.matmul self mat2",
    "bmm": "math.matmul self mat2",
    "mm.dtype": "math.matmul self mat2 ; dtype=out_dtype",
    "_int_mm": "math.matmul_integer self mat2",
    "bmm.dtype": "math.matmul self mat2 ; dtype=out_dtype",
    "irscope::packed_linear": "quant.packed_linear x bias parts* ; k=inputs n=outputs dtype",
    "irscope::unpack_linear": "quant.unpack_linear parts* ; k=inputs n=outputs dtype",
    "transformers::grouped_mm_fallback": "math.grouped_matmul input weight offs",
    "mv": "math.matmul self vec",
    "dot": "math.matmul self tensor",
    "addmm": "math.addmm self mat1 mat2 ; alpha beta",
    "addmv": "math.addmv self mat vec ; alpha beta",
    "baddbmm": "math.baddbmm self batch1 batch2 ; alpha beta",
    "addbmm": "math.baddbmm self batch1 batch2 ; alpha beta sum_batch:true",
    "outer": "math.outer self vec2",
    "vdot": "math.matmul self other",
    "inner": "math.inner self other",
    "linalg_vecdot": "math.vecdot x y ; axis=dim",
    "addr": "math.addr self vec1 vec2 ; alpha beta",
    "linalg_multi_dot": "math.chain_matmul tensors*",
    "chain_matmul": "math.chain_matmul matrices*",
    "linalg_matrix_power": "linalg.matrix_power self ; exponent=n",
    "matrix_power": "linalg.matrix_power self ; exponent=n",
    "linalg_solve_triangular": "linalg.solve self B ; left triangular:true vectors:false",
    "_scaled_mm": "math.scaled_matmul self mat2 scale_a scale_b bias ; dtype=out_dtype",
    "pdist": "linalg.pdist self ; p",
    "einsum": "math.einsum tensors* ; equation",
    "tensordot": "math.tensordot self other ; axes_a=[dims_self] axes_b=[dims_other]",
    "linear": "nn.linear input weight bias",
    "bilinear": "nn.bilinear input1 input2 weight bias",
    "linalg_cross": "linalg.cross self other ; axis=dim",
    "cross": "linalg.cross self other ; axis=dim",
    "cdist": "linalg.cdist x1 x2 ; p",
    "_cdist_forward": "linalg.cdist x1 x2 ; p",
    "linalg_det": "linalg.det A",
    "det": "linalg.det self",
    "linalg_inv": "linalg.inverse A",
    "inverse": "linalg.inverse self",
    "linalg_cholesky": "linalg.cholesky self ; upper",
    "cholesky": "linalg.cholesky self ; upper",
    "linalg_qr": "linalg.qr A ; mode",
    "linalg_solve": "linalg.solve A B ; left",
    "linalg_svdvals": "linalg.svdvals A",
    "trace": "linalg.trace self",
    "kron": "linalg.kron self other",
}


def _deviation(op: str) -> Rule:
    """Variance and deviation, whose `unbiased` flag is a correction of 1 or 0."""

    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"keepdims": call.flag("keepdim")}
        if call.has("dim"):
            attrs["axes"] = call.dims("dim")
        if "unbiased" in call.args:
            attrs["correction"] = 1 if call.flag("unbiased") else 0
        else:
            correction = call["correction"]
            attrs["correction"] = 1 if correction is None else correction
        return Lowered(op, (call.tensor("self"),), attrs)

    return rule


def _reduction_name(value: object) -> str:
    return {0: "none", 1: "mean", 2: "sum"}.get(value, "mean") if isinstance(value, int) else "mean"


def _cross_entropy(call: AtenCall) -> Lowered:
    attrs: dict[str, Attr] = {"reduction": _reduction_name(call["reduction"]), "ignore_index": call["ignore_index"]}
    if call["label_smoothing"]:
        attrs["label_smoothing"] = call["label_smoothing"]
    return Lowered("loss.cross_entropy", (call.tensor("self"), call.tensor("target"), call.maybe("weight")), attrs)


def _grouped_product(call: AtenCall) -> Lowered:
    if call.has("bias"):
        raise CannotLower("a bias")
    attrs: dict[str, Attr] = {"dtype": dtype} if isinstance(dtype := call["out_dtype"], DType) else {}
    return Lowered("math.grouped_matmul", (call.tensor("self"), call.tensor("mat2"), call.maybe("offs")), attrs)


def _search(call: AtenCall) -> Lowered:
    """Return where numbers belong in a sorted list; `bucketize` and `searchsorted` differ in the order of their arguments."""
    boundaries = call.maybe("boundaries") or call.tensor("sorted_sequence")
    attrs: dict[str, Attr] = {"right": call.flag("right") or call.text("side") == "right"}
    attrs["dtype"] = DType.I32 if call.flag("out_int32") else DType.I64
    x = call.tensor("self")
    return Lowered("tensor.searchsorted", (boundaries, x), attrs)


def _distinct(call: AtenCall) -> Lowered:
    """Distinct elements, the inverse and counts."""
    attrs: dict[str, Attr] = {"sorted": True, "inverse_like_input": True}
    if call.has("dim"):
        attrs["axis"] = call["dim"]
    return Lowered("tensor.unique", (call.tensor("self"),), attrs, (0, 2, 3))


ARITHMETIC_RULES: dict[str, Rule] = {
    "_grouped_mm": _grouped_product,
    "bucketize": _search,
    "searchsorted": _search,
    "_unique2": _distinct,
    "unique_dim": _distinct,
    "unique_consecutive": _distinct,
    "std": _deviation("reduce.std"),
    "var": _deviation("reduce.var"),
    "var_mean": _deviation("reduce.var_mean"),
    "std_mean": _deviation("reduce.std_mean"),
    "cross_entropy_loss": _cross_entropy,
}


# -- Fourier transforms ------------------------------------------------------------------------------------------------


def _known_shape(call: AtenCall) -> tuple[Dim, ...]:
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
            rank = len(_known_shape(call))
            given = tuple(range(-(len(sizes) or rank), 0))
        attrs: dict[str, Attr] = {"axes": given, "kind": kind, "inverse": inverse, "onesided": kind != "c2c"}
        if sizes:
            attrs["sizes"] = tuple(
                _known_shape(call)[_known_axis(axis)] if size == -1 else size for axis, size in zip(given, sizes, strict=True)
            )
        return Lowered("fft.transform", (call.tensor("self"),), attrs)

    return rule


def _known_axis(axis: Attr) -> int:
    if not isinstance(axis, int):
        raise CannotLower("an axis is not known")
    return axis


def _plain_transform(kind: str) -> Rule:
    """Return the kernels that all others are made of."""

    def rule(call: AtenCall) -> Lowered:
        axes = call.dims("dim")
        attrs: dict[str, Attr] = {"axes": axes, "kind": kind, "onesided": call.flag("onesided") or kind == "c2r"}
        attrs["inverse"] = kind == "c2r" or (kind == "c2c" and not call.flag("forward"))
        if kind == "c2r":
            attrs["sizes"] = (*(_known_shape(call)[_known_axis(axis)] for axis in axes[:-1]), call["last_dim_size"])
        return Lowered("fft.transform", (call.tensor("self"),), attrs)

    return rule


def _short_time(call: AtenCall) -> Lowered:
    """`stft`: a quarter of a window from one frame to the next unless it says otherwise."""
    x = call.tensor("self")
    real = x.type.dtype in (DType.F16, DType.BF16, DType.F32, DType.F64)
    attrs = _frame_attrs(call)
    attrs["center"] = call.flag("center")
    attrs["onesided"] = real if call["onesided"] is None else call.flag("onesided")
    attrs["return_complex"] = call["return_complex"] is None or call.flag("return_complex")
    return Lowered("fft.stft", (x, call.maybe("window")), attrs)


def _inverse_short_time(call: AtenCall) -> Lowered:
    attrs = _frame_attrs(call)
    attrs["center"] = call.flag("center")
    attrs["onesided"] = call["onesided"] is None or call.flag("onesided")
    attrs["return_complex"] = call.flag("return_complex")
    if call.has("length"):
        attrs["length"] = _known_axis(call["length"])
    return Lowered("fft.istft", (call.tensor("self"), call.maybe("window")), attrs)


def _frame_attrs(call: AtenCall) -> dict[str, Attr]:
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
SIGNAL_RULES: dict[str, Rule] = {
    **{f"fft_{name}": _transform(*kind, (-1,)) for name, kind in _KINDS.items()},
    **{f"fft_{name}2": _transform(*kind, (-2, -1)) for name, kind in _KINDS.items()},
    **{f"fft_{name}n": _transform(*kind, None) for name, kind in _KINDS.items()},
    "_fft_c2c": _plain_transform("c2c"),
    "_fft_r2c": _plain_transform("r2c"),
    "_fft_c2r": _plain_transform("c2r"),
    "stft": _short_time,
    "istft": _inverse_short_time,
}


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
    "vstack": "tensor.concat tensors* ; axis:0",
    "fliplr": "tensor.flip self ; axes:(1,)",
    "flipud": "tensor.flip self ; axes:(0,)",
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
    "_index_put_impl": "tensor.index_put self values indices* ; accumulate unsafe",
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


def padding(pairs: tuple[Attr, ...]) -> dict[str, Attr]:
    """PyTorch pads from the last axis backward, begin and end together; here begins come first, then ends."""
    begins, ends = pairs[::2], pairs[1::2]
    count = len(begins)
    return {"pads": (*begins[::-1], *ends[::-1]), "axes": tuple(range(-count, 0))}


def _lower_pad(call: AtenCall) -> Lowered:
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
    "pad": _lower_pad,
    "constant_pad_nd": _lower_pad,
    "reflection_pad1d": _pad_mode("reflect"),
    "reflection_pad2d": _pad_mode("reflect"),
    "reflection_pad3d": _pad_mode("reflect"),
    "replication_pad1d": _pad_mode("edge"),
    "replication_pad2d": _pad_mode("edge"),
    "replication_pad3d": _pad_mode("edge"),
    "to": _to,
    "_to_copy": _to,
    "type_as": _to,
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
    **{f"{name}dropout": "nn.dropout input/self ; p training=train?false" for name in ("", "feature_", "alpha_", "native_")},
    "linspace": "tensor.linspace ; start limit=end steps dtype?f32 device",
    "rand": "random.uniform ; shape=[size] dtype?f32 device",
    "randn": "random.normal ; shape=[size] dtype?f32 device",
    "randint": "random.randint ; shape=[size] dtype?i64 device low high",
    "randperm": "random.randperm ; count=n dtype?i64 device",
    "uniform": "random.uniform_like self",
    "normal": "random.normal_like self",
    "item": "tensor.item self",
    "_local_scalar_dense": "tensor.item self",
    "is_nonzero": "tensor.item self",
}

_DEFAULT = DType.F32


def _number_dtype(*numbers: object) -> DType:
    """Return the element type that PyTorch gives to numbers."""
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
            raise CannotLower("bounds are not numbers")
    return Lowered("tensor.arange", inputs, {**attrs, **_type_and_device(call, _number_dtype(*numbers))})


def _scalar_tensor(call: AtenCall) -> Lowered:
    value = next((call[name] for name in ("s", "t", "data") if call.has(name)), None)
    if isinstance(value, Value):
        return Lowered("tensor.from_scalar", (value,), {"dtype": call["dtype"]} if call.has("dtype") else {})
    if not isinstance(value, bool | int | float | SymDim):
        raise CannotLower("no number")
    default = _DEFAULT if call.signature.name == "scalar_tensor" else _number_dtype(value)
    return Lowered("tensor.full", (), {"shape": (), "fill": value, **_type_and_device(call, default)})


def _fill(call: AtenCall) -> Lowered:
    value = call["value"]
    if isinstance(value, Value):
        return Lowered("tensor.full_like", (call.tensor("self"), value), {})
    return Lowered("tensor.full_like", (call.tensor("self"),), {"fill": value})


MAKING_RULES: dict[str, Rule] = {
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
    "fill": _fill,
}


# -- which rule a call means -------------------------------------------------------------------------------------------


TEMPLATES: dict[str, str] = {**ARITHMETIC, **MOVING, **LAYERS, **MAKING, **TRAINING}
RULES: dict[str, Rule] = {**ARITHMETIC_RULES, **MOVING_RULES, **LAYER_RULES, **MAKING_RULES, **SIGNAL_RULES, **TRAINING_RULES}


def functional_name(name: str) -> str:
    """Return the name without the mark of in-place operators."""
    if name.startswith("__i") and name.endswith("__"):
        return f"__{name[3:]}"
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def lower(call: AtenCall) -> Lowered | None:
    """Lower a call to a node; None where irscope has no operator for it."""
    name = call.signature.name
    base = functional_name(name)
    rule = _rule(name, call.overload) or (_rule(base, call.overload) if base != name else None)
    if rule is None:
        return None
    try:
        lowered = rule(call)
    except CannotLower:
        return None
    written = call.signature.written
    if written is not None and "inplace" not in lowered.attrs:
        target = call.args.get(written)
        for index, value in enumerate(lowered.inputs):
            if value is target:
                lowered.attrs["inplace"] = index
                break
    return lowered


@functools.cache
def _rule(name: str, overload: str) -> Rule | None:
    for key in (f"{name}.{overload}", name):
        rule = RULES.get(key)
        if rule is not None:
            return rule
        template = TEMPLATES.get(key)
        if template is not None:
            return from_template(template)
    return None
