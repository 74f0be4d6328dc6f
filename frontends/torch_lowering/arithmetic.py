"""Rules for arithmetic, comparisons, activations, reductions, sorting, matrix products and Fourier transforms."""

from __future__ import annotations

from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value

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


def _where_scalar(call: AtenCall) -> Lowered:
    attrs: dict[str, Attr] = {}
    inputs: list[Value | None] = [call.tensor("condition")]
    for name, attr in (("self", "x_value"), ("other", "y_value")):
        value = call[name]
        if isinstance(value, Value):
            inputs.append(value)
        elif isinstance(value, bool | int | float | SymDim):
            inputs.append(None)
            attrs[attr] = value
        else:
            raise CannotLower("where without both sides")
    return Lowered("math.where", inputs, attrs)


def _reduction_name(value: object) -> str:
    return {0: "none", 1: "mean", 2: "sum"}.get(value, "mean") if isinstance(value, int) else "mean"


def _loss(op: str, *names: str) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        return Lowered(op, [call.maybe(name) for name in names], {"reduction": _reduction_name(call["reduction"])})

    return rule


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


def _hard_sigmoid(call: AtenCall) -> Lowered:
    return Lowered("nn.hardsigmoid", (call.tensor("self"),), {"alpha": 1 / 6, "beta": 0.5})


def _search(call: AtenCall) -> Lowered:
    """Where numbers belong in a sorted list; `bucketize` and `searchsorted` differ in the order of their arguments."""
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
    "hardsigmoid": _hard_sigmoid,
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
    "where": _where_scalar,
    "mse_loss": _loss("loss.mse", "self", "target"),
    "cross_entropy_loss": _cross_entropy,
    "l1_loss": _loss("loss.l1", "self", "target"),
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
    """The kernels that all others are made of."""

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
