"""Rules for the standard operator set."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch, Operand
from irscope.frontends.onnx.protos import SparseTensorProto, TypeProto
from irscope.frontends.onnx.rules import Lower, Rule, Table, lower_as, read_attrs
from irscope.frontends.onnx.tensors import Constant
from irscope.frontends.onnx.types import DTYPES_BY_NAME
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Role, Value
from irscope.ir.places import Literal, Scalar
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE, tensor

_NUMPY_BROADCASTING = 7
"""From this operator set on, operands broadcast as in numpy; before, an attribute said where the second one lies."""
_AXES_ARE_OPERANDS = 13


def _sides(call: Call) -> list[Operand]:
    """Return both operands of a binary operator, the second with axes added where an old model says on which it lies."""
    if call.version < _NUMPY_BROADCASTING and call.has("axis") and call.flag("broadcast"):
        axis = call.integer("axis")
        aligned = call.value("view.align", [call.needed(1), call.needed(0)], {"axis": axis})
        return [call.operand(0), aligned]
    return call.inputs


def _binary(op: str, **fixed: Attr) -> Lower:
    """Return a function of two tensors that broadcast."""

    def lower(call: Call) -> None:
        call.emit(op, _sides(call), fixed)

    return lower


def _many_results(op: str) -> Lower:
    """Return a function of any number of tensors; of one it is that tensor."""

    def lower(call: Call) -> None:
        call.emit("view.alias" if len(call.inputs) == 1 else op, call.inputs)

    return lower


def _pow(call: Call) -> None:
    base, exponent = _sides(call)[:2] if len(call.inputs) >= 2 else (call.needed(0), call.needed(1))
    power = call.value("math.pow", [base, exponent])
    call.last("tensor.cast_like", [power, base])


def _shift(call: Call) -> None:
    direction = call.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Mismatch(f"the direction {direction!r} is neither LEFT nor RIGHT")
    call.emit("math.shift_left" if direction == "LEFT" else "math.shift_right", call.inputs)


def _lower_cast(call: Call) -> None:
    """Lower a Cast, whose type was a text before operator set 6."""
    to = call.attrs.get("to")
    if isinstance(to, str):
        dtype = DTYPES_BY_NAME.get(to.upper())
        if dtype is None:
            raise Mismatch(f"there is no element type {to!r}")
        call.emit("tensor.cast", call.inputs, {"to": dtype})
        return
    lower_as(call, "tensor.cast ; saturate round_mode to!")


def _lower_dropout(call: Call) -> None:
    attrs: dict[str, Attr] = {"p": 0.5, "training": False}
    if call.version >= 12:
        call.emit("nn.dropout", call.inputs, {"training": False} if call.operand(1) is not None else attrs)
        return
    attrs["p"] = call.number("ratio", 0.5)
    if call.version < 7:
        attrs["training"] = not call.flag("is_test")
    call.emit("nn.dropout", call.inputs[:1], attrs)


_MATH = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log Neg Not Reciprocal Round Sign Sin Sinh Sqrt Tan Tanh
Where"""
_ACTIVATIONS = "HardSwish Mish Relu Sigmoid Softplus Softsign"

_ELEMENTS: Table = {
    **{name: f"math.{name.lower()}" for name in _MATH.split()},
    **{name: f"nn.{name.lower()}" for name in _ACTIVATIONS.split()},
    **{name: _binary(f"math.{name.lower()}") for name in ("Add", "And", "Mul", "Or", "Sub", "Xor")},
    **{name: _binary(f"compare.{name.lower()}") for name in ("Equal", "Greater", "Less")},
    **{name: _many_results(f"math.{name.lower()}_of") for name in ("Max", "Min", "Sum", "Mean")},
    "Identity": "view.alias",
    "BitwiseNot": "math.bitwise_not",
    "BitwiseAnd": _binary("math.bitwise_and"),
    "BitwiseOr": _binary("math.bitwise_or"),
    "BitwiseXor": _binary("math.bitwise_xor"),
    "GreaterOrEqual": _binary("compare.greater_equal"),
    "LessOrEqual": _binary("compare.less_equal"),
    # Integers are divided as C does it, floats exactly; which of the two is known only with the types.
    "Div": _binary("math.div", rounding_mode="integer"),
    "Pow": _pow,
    "Mod": "math.mod ; fmod?false",
    "BitShift": _shift,
    "Clip": {1: "math.clamp 0 ; min_value=min max_value=max", 11: "math.clamp"},
    "Cast": _lower_cast,
    "CastLike": "tensor.cast_like ; saturate round_mode",
    "BitCast": "tensor.bitcast ; to!",
    "Dropout": _lower_dropout,
    "PRelu": {1: "nn.prelu ; per_channel:true", 7: "nn.prelu"},
    "Celu": "nn.celu ; alpha?1.0",
    "Elu": "nn.elu ; alpha?1.0",
    "Gelu": "nn.gelu ; approximate?none",
    "HardSigmoid": "nn.hardsigmoid ; alpha?0.2 beta?0.5",
    "IsInf": "math.isinf ; detect_negative?true detect_positive?true",
    "LeakyRelu": "nn.leaky_relu ; alpha?0.01",
    "Selu": "nn.selu ; alpha?1.6732632 gamma?1.050701",
    "Shrink": "nn.shrink ; bias?0.0 lambd?0.5",
    "SwiGLU": "nn.swiglu ; alpha?1.0",
    "Swish": "nn.swish ; alpha?1.0",
    "ThresholdedRelu": "nn.thresholded_relu ; alpha?1.0",
    "Bernoulli": "random.bernoulli ; dtype",
    "Multinomial": "random.multinomial ; samples=sample_size?1 dtype",
    "RandomNormal": "random.normal ; mean?0.0 scale?1.0 dtype?f32 shape!",
    "RandomUniform": "random.uniform ; low?0.0 high?1.0 dtype?f32 shape!",
    "RandomNormalLike": "random.normal_like ; mean?0.0 scale?1.0 dtype",
    "RandomUniformLike": "random.uniform_like ; low?0.0 high?1.0 dtype",
}


def _lower_constant(call: Call) -> None:
    """Lower a Constant to a weight, shared by all calls where it stands in a function."""
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
        if not isinstance(sparse, SparseTensorProto):
            raise Mismatch("attribute sparse_value is not a sparse tensor")
        constant = model.tensors.read_sparse(sparse, name)
        return Constant(constant.type.with_shape(constant.type.shape), constant.data)
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


_MAKING: Table = {
    **{f"{kind}Window": f"tensor.window ; periodic?true dtype=output_datatype?f32 kind:{kind.lower()}" for kind in ("Hann", "Hamming")},
    "BlackmanWindow": "tensor.window ; periodic?true dtype=output_datatype?f32 kind:blackman",
    "Constant": _lower_constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": "tensor.arange",
    "EyeLike": "tensor.eye_like ; dtype k?0",
    "OneHot": "tensor.one_hot ; axis?-1 ; const 1 2",
    "MelWeightMatrix": "tensor.mel_weight_matrix ; dtype=output_datatype?f32",
}


def _reshape(call: Call) -> None:
    call.emit("view.reshape", call.inputs, {"zero": "literal" if call.flag("allowzero") else "copy"})


def _old_slice(call: Call) -> None:
    starts, ends = call.integers("starts"), call.integers("ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise Mismatch("attributes starts and ends are absent or of different lengths")
    lower_as(call, "view.slice 0 ; axes starts ends")


def _lower_split(call: Call) -> None:
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


def _upsample(call: Call) -> None:
    mode = call.text("mode", "nearest")
    attrs: dict[str, Attr] = {"mode": "linear" if mode == "bilinear" else mode, "coordinates": "asymmetric"}
    if call.version >= 9:
        call.mark(Role.CONSTANT, 1)
        call.emit("vision.resize", [call.needed(0), None, call.operand(1)], attrs)
        return
    scales = call.numbers("scales")
    if call.version < 7 and scales is None:
        scales = (1.0, 1.0, call.number("height_scale"), call.number("width_scale"))
    if scales is None:
        raise Mismatch("attribute scales is absent")
    call.emit("vision.resize", call.inputs[:1], {**attrs, "scale_factors": scales})


# The first form repeats one axis, both given as tensors: the repeats are ones with that number at that place.
_OLD_TILE = """
    shape = tensor.shape 0!
    rank = tensor.shape shape
    ones = tensor.full rank ; fill:1 dtype:i64
    list = view.reshape 1! ; shape:(1,)
    tiles = tensor.cast list ; to:i64
    list = view.reshape 2! ; shape:(1,)
    axis = tensor.cast list ; to:i64
    repeats = tensor.scatter_elements ones axis tiles ; axis:0
    tensor.tile 0 repeats"""

_MOVING: Table = {
    "Shape": "tensor.shape ; start end",
    "Size": "tensor.numel",
    "Reshape": {1: "view.reshape 0 ; shape?() zero:copy", 5: _reshape},
    "Flatten": "view.flatten_2d ; axis?1",
    "Squeeze": {1: "view.squeeze 0 ; axes strict:true", _AXES_ARE_OPERANDS: "view.squeeze ; strict:true"},
    "Unsqueeze": {1: "view.unsqueeze 0 ; axes!", _AXES_ARE_OPERANDS: "view.unsqueeze"},
    "Transpose": "view.permute ; perm",
    "Expand": "view.expand ; mode:broadcast",
    "Slice": {1: _old_slice, 10: "view.slice"},
    "Split": _lower_split,
    "Concat": {1: "tensor.concat ; axis?1", 4: "tensor.concat ; axis!"},
    "Tile": {1: _OLD_TILE, 6: "tensor.tile"},
    "Pad": {
        1: "tensor.pad 0 ; pads=paddings! mode?constant fill=value?0.0",
        2: "tensor.pad 0 ; pads! mode?constant fill=value?0.0",
        11: "tensor.pad ; mode?constant",
    },
    "DepthToSpace": "tensor.depth_to_space ; blocksize mode?DCR",
    "SpaceToDepth": "tensor.space_to_depth ; blocksize",
    "Trilu": "tensor.trilu ; upper?true",
    "ReverseSequence": "tensor.reverse_sequence ; batch_axis?1 time_axis?0",
    "Col2Im": "tensor.col2im ; dilations pads strides",
    "CenterCropPad": "tensor.center_crop_pad ; axes",
    "Upsample": _upsample,
    "Resize": {
        1: "vision.resize 0! _ 1 ; mode?nearest coordinates:asymmetric ; const 1",
        11: "vision.resize ; mode?nearest coordinates=coordinate_transformation_mode?half_pixel antialias?false axes "
        "keep_aspect_ratio_policy?stretch ; const 1 2",
    },
    "GridSample": "vision.grid_sample ; align_corners?false mode?linear padding_mode?zeros",
    "AffineGrid": "vision.affine_grid ; align_corners?false",
    "ImageDecoder": "vision.decode_image ; pixel_format?RGB",
}


def _roi_align(call: Call) -> None:
    size = (call.integer("output_height", 1), call.integer("output_width", 1))
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    coordinates = call.text("coordinate_transformation_mode", default)
    text = "vision.roi_align ; spatial_scale?1.0 sampling_ratio?0 mode?avg"
    lower_as(call, text, {"output_size": size, "coordinates": coordinates})


_SCATTER = "tensor.scatter_elements ; axis?0 reduction?none"

_INDEXING: Table = {
    "Gather": "tensor.gather ; axis?0",
    "GatherElements": "tensor.take_along ; axis?0",
    "GatherND": "tensor.gather_nd ; batch_dims?0",
    "Scatter": _SCATTER,
    "ScatterElements": _SCATTER,
    "ScatterND": "tensor.scatter_nd ; reduction?none",
    "TensorScatter": "tensor.tensor_scatter ; axis?-2 mode?linear",
    "Compress": "tensor.compress ; axis",
    "NonZero": "tensor.nonzero ; by_axis:true",
    "Unique": "tensor.unique ; axis sorted?true",
    "TopK": {1: "tensor.topk 0 ; k! axis?-1 largest:true sorted:true", 10: "tensor.topk ; largest?true sorted?true axis?-1"},
    "NonMaxSuppression": "vision.non_max_suppression ; center_point_box?false ; const 2 3 4",
    "MaxRoiPool": "vision.roi_pool ; output_size=pooled_shape! spatial_scale?1.0",
    "RoiAlign": _roi_align,
}


def _lower_reduce(op: str, axes_are_operands: int = 18) -> dict[int, Rule]:
    """A reduction whose axes were an attribute before some operator set."""
    return {1: f"{op} 0 ; axes keepdims?true", axes_are_operands: f"{op} ; noop_with_empty_axes keepdims?true"}


def _arg(op: str) -> Lower:
    def lower(call: Call) -> None:
        last: dict[str, Attr] = {"select_last_index": True} if call.flag("select_last_index") else {}
        lower_as(call, f"{op} ; axis?0 keepdims?true", last)

    return lower


def old_softmax(call: Call, op: str, inputs: list[Operand]) -> None:
    """Lower a softmax over all axes from a given axis on, as before operator set 13."""
    axis = call.integer("axis", 1)
    call.last(op, inputs, {"axis": axis} if axis == -1 else {"axis": axis, "from_axis": True})


def _softmax_versions(op: str) -> dict[int, Rule]:
    return {1: lambda call: old_softmax(call, op, call.inputs), 13: f"{op} ; axis?-1"}


_REDUCTION: Table = {
    "ReduceL1": _lower_reduce("reduce.l1"),
    "ReduceL2": _lower_reduce("reduce.l2"),
    "ReduceLogSum": _lower_reduce("reduce.log_sum"),
    "ReduceLogSumExp": _lower_reduce("reduce.log_sum_exp"),
    "ReduceMax": _lower_reduce("reduce.max"),
    "ReduceMean": _lower_reduce("reduce.mean"),
    "ReduceMin": _lower_reduce("reduce.min"),
    "ReduceProd": _lower_reduce("reduce.prod"),
    "ReduceSum": _lower_reduce("reduce.sum", axes_are_operands=13),
    "ReduceSumSquare": _lower_reduce("reduce.sum_square"),
    "ArgMax": _arg("reduce.argmax"),
    "ArgMin": _arg("reduce.argmin"),
    "CumSum": "tensor.cumsum ; exclusive?false reverse?false",
    "CumProd": "tensor.cumprod ; exclusive?false reverse?false",
    "Softmax": _softmax_versions("nn.softmax"),
    "LogSoftmax": _softmax_versions("nn.log_softmax"),
    "Hardmax": _softmax_versions("nn.hardmax"),
    "LpNormalization": "nn.lp_normalize ; axis?-1 p?2",
}


WINDOW = "strides pads dilations auto_pad"
CONV = f"kernel_shape {WINDOW} groups=group"
POOL = f"{WINDOW} ceil_mode kernel_shape!"
MATRICES = "trans_a=transA trans_b=transB"


def _norm_order(call: Call) -> dict[str, Attr]:
    """Return the order of a norm, which was a float once."""
    return {"p": call.number("p", 2.0) if isinstance(call.attrs.get("p"), float) else float(call.integer("p", 2))}


def _lower_batch_norm(call: Call) -> None:
    """Lower a batch norm; whether it trains is an attribute before operator set 7 and from 14 on, and the number of results between."""
    if call.version >= 14:
        training = call.flag("training_mode")
    elif call.version >= 7:
        training = len(call.outputs) > 1
    else:
        training = not call.flag("is_test")
    more: dict[str, Attr] = {"training": True} if training else {}
    lower_as(call, "nn.batch_norm ; epsilon?1e-5 momentum?0.9 ; buffer 3 4", more)


_RMS_NORM = "nn.rms_norm ; axis?-1 epsilon?1e-5 stash_dtype=stash_type?f32"
_RECURRENT = "direction?forward hidden_size activations clip batch_first=layout"

LINEAR_ATTENTION = "nn.linear_attention ; q_num_heads kv_num_heads scale?0.0 chunk_size?64 update_rule?gated_delta"
CAUSAL_CONV = "nn.causal_conv ; activation?none"

_LAYERS: Table = {
    "Conv": f"nn.conv ; {CONV}",
    "ConvInteger": f"nn.conv_integer ; {CONV}",
    "ConvTranspose": f"nn.conv_transpose ; {CONV} output_padding output_shape",
    "DeformConv": f"nn.deform_conv 0 1 2 3 4 ; {CONV} offset_group",
    "CausalConvWithState": CAUSAL_CONV,
    "MaxPool": f"nn.max_pool ; {POOL} storage_order",
    "AveragePool": f"nn.avg_pool ; {POOL} count_include_pad?false",
    "LpPool": lambda call: lower_as(call, f"nn.lp_pool ; {POOL}", _norm_order(call)),
    "GlobalMaxPool": "nn.global_max_pool",
    "GlobalAveragePool": "nn.global_avg_pool",
    "GlobalLpPool": lambda call: lower_as(call, "nn.global_lp_pool", _norm_order(call)),
    "MaxUnpool": "nn.max_unpool ; kernel_shape strides pads",
    "MatMul": "math.matmul",
    "MatMulInteger": "math.matmul_integer",
    "Gemm": f"math.gemm ; alpha beta {MATRICES}",
    "Einsum": "math.einsum ; equation?''",
    "Det": "linalg.det",
    "BatchNormalization": _lower_batch_norm,
    "LayerNormalization": "nn.layer_norm ; axis?-1 epsilon?1e-5 stash_dtype=stash_type?f32",
    "SimplifiedLayerNormalization": _RMS_NORM,
    "RMSNormalization": _RMS_NORM,
    "GroupNormalization": "nn.group_norm ; num_groups epsilon?1e-5",
    "InstanceNormalization": "nn.instance_norm ; epsilon?1e-5",
    "LRN": "nn.lrn ; size alpha?1e-4 beta?0.75 bias?1.0",
    "MeanVarianceNormalization": "nn.mean_variance_norm ; axes?(0,2,3)",
    # Windows and the precision of the softmax change neither sizes nor the work that is counted.
    "Attention": "nn.attention ; is_causal q_num_heads kv_num_heads scale softcap qk_matmul_output_mode",
    "LinearAttention": LINEAR_ATTENTION,
    "RotaryEmbedding": "nn.rotary_embedding ; interleaved num_heads rotary_dim=rotary_embedding_dim",
    "LSTM": f"rnn.lstm ; {_RECURRENT}",
    "GRU": f"rnn.gru ; {_RECURRENT} linear_before_reset",
    "RNN": f"rnn.rnn ; {_RECURRENT}",
    "NegativeLogLikelihoodLoss": "loss.nll ; reduction?mean ignore_index",
    "SoftmaxCrossEntropyLoss": "loss.cross_entropy ; reduction?mean ignore_index",
    "DFT": {1: "signal.dft 0 1 ; inverse?false onesided?false axis?1", 20: "signal.dft ; inverse?false onesided?false"},
    "STFT": "signal.stft ; onesided?true",
}


def quantize(call: Call) -> None:
    """Without a zero point, which would have it, the element type is an attribute."""
    default = "?u8" if call.operand(2) is None else ""
    lower_as(call, f"quant.quantize ; axis?1 block_size saturate dtype=output_dtype{default} ; buffer 1 2")


DEQUANTIZE = "quant.dequantize ; axis?1 block_size dtype=output_dtype ; buffer 1 2"
QLINEAR_CONV = "buffer 1 2 4 5 6 7 param 8"

_QUANTIZED: Table = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": DEQUANTIZE,
    "DynamicQuantizeLinear": "quant.dynamic_quantize ; dtype:u8",
    "QLinearConv": f"nn.qlinear_conv ; {CONV} channels_last ; {QLINEAR_CONV}",
    "QLinearMatMul": "quant.qlinear_matmul ; ; buffer 1 2 4 5 6 7",
}


def _split_to_sequence(call: Call) -> None:
    lower_as(call, "seq.split ; axis?0 keepdims?true" if call.operand(1) is None else "seq.split ; axis?0")


def _optional(call: Call) -> None:
    if call.operand(0) is not None:
        call.emit("optional.make", call.inputs)
        return
    declared = call.attrs.get("type")
    if not isinstance(declared, TypeProto):
        raise Mismatch("it has neither an operand nor a type")
    call.emit("optional.make", (), {"type": call.body.model.types.of_result(declared)})


def _tf_idf(call: Call) -> None:
    text = "text.tfidf ; max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes!"
    lower_as(call, text, weights={"weights": Role.PARAMETER, "pool_int64s": Role.CONSTANT})


_LISTS: Table = {
    "SequenceEmpty": "seq.empty ; dtype?f32",
    "SequenceConstruct": "seq.construct",
    "SequenceInsert": "seq.insert",
    "SequenceErase": "seq.erase",
    "SequenceAt": "seq.at",
    "SequenceLength": "seq.length",
    "SplitToSequence": _split_to_sequence,
    "ConcatFromSequence": "seq.concat_from ; axis new_axis?false",
    "Optional": _optional,
    "OptionalHasElement": "optional.has",
    "OptionalGetElement": "optional.get",
    "StringConcat": "text.concat",
    "StringSplit": "text.split ; delimiter maxsplit",
    "StringNormalizer": "text.normalizer ; case_change_action?NONE is_case_sensitive?false locale stopwords",
    "RegexFullMatch": "text.regex_full_match ; pattern?''",
    "TfIdfVectorizer": _tf_idf,
}

TABLE: Table = {**_ELEMENTS, **_MAKING, **_MOVING, **_INDEXING, **_REDUCTION, **_LAYERS, **_QUANTIZED, **_LISTS}


_SCAN_WITHOUT_BATCH = 9


def _if(call: Call) -> None:
    then, other = call.graph_attr("then_branch"), call.graph_attr("else_branch")
    if min(len(then.output), len(other.output)) < len(call.outputs):
        raise Mismatch("its branches do not have as many results as it does")
    node = call.node("cf.if", call.inputs, undeclared=UNKNOWN_TYPE)
    for name, branch in (("then", then), ("else", other)):
        region = call.body.lower_region(node, name, branch, 0)
        region.set_outputs(region.outputs[: len(call.outputs)])
    call.bind(node)


def _loop(call: Call) -> None:
    body = call.graph_attr("body")
    states = len(call.inputs) - 2
    if states < 0 or len(body.output) < states + 1:
        raise Mismatch("its body does not return a condition and every state")
    _all_results(call, len(body.output) - 1)
    node = call.node("cf.loop", call.inputs, undeclared=UNKNOWN_TYPE)
    call.body.lower_region(node, "body", body, len(call.inputs))
    call.bind(node)


def _scan(call: Call) -> None:
    body = call.graph_attr("body")
    _all_results(call, len(body.output))
    scanned = call.integer("num_scan_inputs")
    given = call.inputs
    if call.version < _SCAN_WITHOUT_BATCH:
        if call.operand(0) is not None:
            raise Mismatch("sequence lengths of Scan 8 are not supported")
        given = call.inputs[1:]
    states = len(given) - scanned
    if scanned < 1 or states < 0 or len(body.output) < states or any(value is None for value in given):
        raise Mismatch("its body and its operands do not fit")
    scan_outputs = len(body.output) - states
    attrs: dict[str, Attr] = {"num_scan_inputs": scanned}
    if call.version < _SCAN_WITHOUT_BATCH:
        directions = call.integers("directions")
        if directions is not None:
            attrs["input_directions"] = _fit(directions, scanned, "directions")
        _batched_scan(call, [value for value in given if value is not None], attrs)
        return
    for name, to, count in (
        ("scan_input_axes", "input_axes", scanned),
        ("scan_input_directions", "input_directions", scanned),
        ("scan_output_axes", "output_axes", scan_outputs),
        ("scan_output_directions", "output_directions", scan_outputs),
    ):
        found = call.integers(name)
        if found is not None:
            attrs[to] = _fit(found, count, name)
    node = call.node("cf.scan", given, attrs)
    call.body.lower_region(node, "body", body, len(given))
    call.bind(node)


def _batched_scan(call: Call, given: list[Value], attrs: dict[str, Attr]) -> None:
    """Lower the Scan of operator set 8, which has a leading batch axis: a scan over the batch, around one over the sequence."""
    outer = call.node("cf.scan", given, {"num_scan_inputs": len(given)})
    region = call.body.graph.add_region(outer, "batch")
    slices = [region.add_input(UNKNOWN_TENSOR) for _ in given]
    types = [UNKNOWN_TENSOR] * len(call.outputs)
    inner = region.append("cf.scan", slices, types, attrs, scope=call.scope, loc=call.loc, source=call.source)
    around = call.body
    graph, around.graph = around.graph, region
    try:
        around.lower_region(inner, "body", call.graph_attr("body"), len(given))
    finally:
        around.graph = graph
    region.set_outputs(inner.outputs)
    call.bind(outer)


def _sequence_map(call: Call) -> None:
    body = call.graph_attr("body")
    if len(body.output) != len(call.outputs):
        raise Mismatch("its body does not have as many results as it does")
    node = call.node("cf.map", call.inputs, undeclared=UNKNOWN_TYPE)
    call.body.lower_region(node, "body", body, len(call.inputs))
    call.bind(node)


def _flex_attention(call: Call) -> None:
    """Turn its functions of scores and weights into regions; what they read from around them is seen there."""
    node = call.node("nn.flex_attention", call.inputs, read_attrs(call, "nn.flex_attention ; scale"))
    for name in ("score_mod", "prob_mod"):
        if call.has(name):
            call.body.lower_region(node, name, call.graph_attr(name))
    call.bind(node)


def _all_results(call: Call, count: int) -> None:
    """Unused trailing results are left out in the file; the region still yields them."""
    if len(call.outputs) > count:
        raise Mismatch(f"its body returns {count} values, it has {len(call.outputs)} results")
    call.outputs = [*call.outputs, *[""] * (count - len(call.outputs))]


def _fit(values: tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    if len(values) != count:
        raise Mismatch(f"attribute {name} has {len(values)} entries, not {count}")
    return values


CONTROL: Table = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
PREVIEW: Table = {"FlexAttention": _flex_attention}
