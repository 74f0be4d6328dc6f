"""Layers: convolutions, pooling, normalizations, attention, recurrent networks, images."""

from __future__ import annotations

from irscope.frontends.torch_common.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Attr, Value

TEMPLATES: dict[str, str] = {
    "group_norm": "nn.group_norm input weight bias ; num_groups epsilon=eps",
    "scaled_dot_product_attention": "nn.sdpa query key value attn_mask ; dropout_p is_causal scale enable_gqa",
    "_weight_norm": "nn.weight_norm v g ; axis=dim",
    "_weight_norm_interface": "nn.weight_norm v g ; axis=dim",
    "affine_grid_generator": "vision.affine_grid theta ; size=[size] align_corners",
    "gru_cell": "rnn.gru_cell input hx w_ih w_hh b_ih b_hh",
    "rnn_tanh_cell": "rnn.rnn_cell input hx w_ih w_hh b_ih b_hh",
    "rnn_relu_cell": "rnn.rnn_cell input hx w_ih w_hh b_ih b_hh",
    "lstm_cell": "rnn.lstm_cell input hx* w_ih w_hh b_ih b_hh",
}


def _convolution(spatial: int, transposed: bool = False) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        return _conv(call, spatial, transposed)

    return rule


def _general_convolution(call: AtenCall) -> Lowered:
    """`convolution` and `_convolution`, of any number of axes and either direction."""
    rank = call.rank("weight")
    if rank is None:
        raise CannotLower("the weight's rank is unknown")
    return _conv(call, rank - 2, call.flag("transposed"))


def _conv(call: AtenCall, spatial: int, transposed: bool) -> Lowered:
    attrs: dict[str, Attr] = {
        "strides": call.spread("stride", spatial),
        "dilations": call.spread("dilation", spatial),
        "groups": call["groups"],
    }
    padding = call["padding"]
    if isinstance(padding, str):
        attrs["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}.get(padding.lower(), "VALID")
    else:
        attrs["pads"] = call.spread("padding", spatial) * 2
    if transposed:
        attrs["output_padding"] = call.spread("output_padding", spatial)
    return Lowered(
        "nn.conv_transpose" if transposed else "nn.conv", (call.tensor("input"), call.tensor("weight"), call.maybe("bias")), attrs
    )


def _window(call: AtenCall, spatial: int) -> dict[str, Attr]:
    kernel = call.spread("kernel_size", spatial)
    return {
        "kernel_shape": kernel,
        "strides": call.spread("stride", spatial) or kernel,
        "pads": call.spread("padding", spatial) * 2,
        "ceil_mode": call.flag("ceil_mode"),
    }


def _max_pool(spatial: int) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        attrs = {**_window(call, spatial), "dilations": call.spread("dilation", spatial)}
        return Lowered("nn.max_pool", (call.tensor("self"),), attrs)

    return rule


def _avg_pool(spatial: int) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        attrs = {**_window(call, spatial), "count_include_pad": call.flag("count_include_pad")}
        if call.has("divisor_override"):
            attrs["divisor"] = call["divisor_override"]
        return Lowered("nn.avg_pool", (call.tensor("self"),), attrs)

    return rule


def _adaptive_pool(op: str, spatial: int) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        return Lowered(op, (call.tensor("self"),), {"output_size": call.spread("output_size", spatial), "spatial": spatial})

    return rule


def _batch_norm(call: AtenCall) -> Lowered:
    """All forms of batch normalization; running statistics are written where the batch's are used."""
    training = call.flag("training") or call.flag("train")
    inputs = [call.tensor("input"), call.maybe("weight"), call.maybe("bias"), call.maybe("running_mean"), call.maybe("running_var")]
    attrs: dict[str, Attr] = {"epsilon": call["eps"], "momentum": call["momentum"]}
    several = len(call.signature.results) > 1
    if training and call.signature.name != "_native_batch_norm_legit_functional":
        return Lowered("nn.batch_norm_training", inputs, attrs, (0, 1, 2) if several else None)
    return Lowered("nn.batch_norm", inputs, attrs, (0, None, None) if several else None)


def _batch_norm_without_statistics(call: AtenCall) -> Lowered:
    inputs = [call.tensor("input"), call.maybe("weight"), call.maybe("bias"), None, None]
    return Lowered("nn.batch_norm_training", inputs, {"epsilon": call["eps"], "momentum": call["momentum"]}, (0, 1, 2))


def _layer_norm(op: str) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"axis": -max(len(call.dims("normalized_shape")), 1)}
        if call.has("eps"):
            attrs["epsilon"] = call["eps"]
        inputs: list[Value | None] = [call.tensor("input"), call.maybe("weight")]
        if op == "nn.layer_norm":
            inputs.append(call.maybe("bias"))
        return Lowered(op, inputs, attrs)

    return rule


def _native_group_norm(call: AtenCall) -> Lowered:
    inputs = (call.tensor("input"), call.maybe("weight"), call.maybe("bias"))
    return Lowered("nn.group_norm", inputs, {"num_groups": call["group"], "epsilon": call["eps"]})


def _instance_norm(call: AtenCall) -> Lowered:
    if not call.flag("use_input_stats"):
        inputs = [call.tensor("input"), call.maybe("weight"), call.maybe("bias"), call.maybe("running_mean"), call.maybe("running_var")]
        return Lowered("nn.batch_norm", inputs, {"epsilon": call["eps"]})
    return Lowered("nn.instance_norm", (call.tensor("input"), call.maybe("weight"), call.maybe("bias")), {"epsilon": call["eps"]})


def _recurrent(op: str) -> Rule:
    """Stacks of recurrent layers with a flat list of weights."""

    def rule(call: AtenCall) -> Lowered:
        if not call.has("input"):
            raise CannotLower("packed sequences")
        hidden = call["hx"]
        states = list(hidden) if isinstance(hidden, tuple | list) else [hidden]
        if not all(isinstance(state, Value) for state in states):
            raise CannotLower("no initial state")
        weights = call.tensors("params")
        hidden_size, projection = _hidden_size(weights)
        attrs: dict[str, Attr] = {
            "hidden_size": hidden_size,
            "num_layers": call["num_layers"],
            "bidirectional": call.flag("bidirectional"),
            "batch_first": call.flag("batch_first"),
            "has_biases": call.flag("has_biases"),
        }
        if projection:
            attrs["proj_size"] = projection
        initial = [state for state in states if isinstance(state, Value)]
        return Lowered(op, [call.tensor("input"), *initial, None, *weights], attrs)

    return rule


def _hidden_size(weights: list[Value | None]) -> tuple[Dim, Dim]:
    """Units of a layer and of its projection, from the weights that act on the state."""
    recurrent = weights[1].type.shape if len(weights) > 1 and weights[1] is not None else None
    if recurrent is None or len(recurrent) != 2:
        raise CannotLower("the weights' sizes are unknown")
    gates, features = recurrent
    if isinstance(gates, SymDim) or isinstance(features, SymDim):
        raise CannotLower("the weights' sizes are unknown")
    return (features, 0) if gates in (features, 3 * features, 4 * features) else (gates // 4, features)


def _interpolate(mode: str, spatial: int) -> Rule:
    """Resizing of images by sizes or by factors."""

    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"mode": mode, "axes": tuple(range(-spatial, 0))}
        sizes, factors = call.dims("output_size"), call.dims("scale_factors")
        if sizes:
            attrs["sizes"] = sizes
        elif factors:
            attrs["scale_factors"] = factors
        if mode == "nearest":
            attrs["coordinates"] = "half_pixel" if "exact" in call.signature.name else "asymmetric"
        elif call.flag("align_corners"):
            attrs["coordinates"] = "align_corners"
        if call.signature.name.endswith("_aa"):
            attrs["antialias"] = True
        return Lowered("vision.resize", (call.tensor("self") if call.has("self") else call.tensor("input"),), attrs)

    return rule


def _embedding_bag(call: AtenCall) -> Lowered:
    mode = {0: "sum", 1: "mean", 2: "max"}.get(call["mode"] if isinstance(call["mode"], int) else 0, "sum")
    inputs = (call.tensor("weight"), call.tensor("indices"), call.maybe("offsets"), call.maybe("per_sample_weights"))
    return Lowered("nn.embedding_bag", inputs, {"mode": mode, "include_last_offset": call.flag("include_last_offset")})


def _deform_conv(call: AtenCall) -> Lowered:
    attrs: dict[str, Attr] = {
        "strides": (call["stride_h"], call["stride_w"]),
        "pads": (call["pad_h"], call["pad_w"]) * 2,
        "dilations": (call["dilation_h"], call["dilation_w"]),
        "groups": call["groups"],
        "offset_group": call["offset_groups"],
    }
    mask = call.maybe("mask") if call.flag("use_mask") else None
    return Lowered("nn.deform_conv", (call.tensor("input"), call.tensor("weight"), call.tensor("offset"), call.maybe("bias"), mask), attrs)


def _roi(op: str) -> Rule:
    """Pooling of regions; the result's size comes as two numbers."""

    def rule(call: AtenCall) -> Lowered:
        attrs: dict[str, Attr] = {"output_size": (call["pooled_height"], call["pooled_width"]), "spatial_scale": call["spatial_scale"]}
        if call.has("sampling_ratio"):
            attrs["sampling_ratio"] = max(call["sampling_ratio"], 0) if isinstance(call["sampling_ratio"], int) else 0
        if "aligned" in call.args:
            attrs["coordinates"] = "half_pixel" if call.flag("aligned") else "output_half_pixel"
        return Lowered(op, (call.tensor("input"), call.tensor("rois")), attrs)

    return rule


def _grid_sample(call: AtenCall) -> Lowered:
    modes, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    mode, padding = call["interpolation_mode"], call["padding_mode"]
    if mode not in (0, 1, 2) or padding not in (0, 1, 2):
        raise CannotLower("an unknown mode")
    attrs: dict[str, Attr] = {
        "mode": modes[int(str(mode))],
        "padding_mode": paddings[int(str(padding))],
        "align_corners": call.flag("align_corners"),
    }
    return Lowered("vision.grid_sample", (call.tensor("input"), call.tensor("grid")), attrs)


def _multi_head(call: AtenCall) -> Lowered:
    """The fused attention of nn.MultiheadAttention in inference."""
    names = ("query", "key", "value", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask")
    attrs: dict[str, Attr] = {"num_heads": call["num_head"], "average_weights": call.flag("average_attn_weights")}
    results = (0, 1) if call.flag("need_weights") else (0, None)
    return Lowered("nn.multi_head_attention", [call.maybe(name) for name in names], attrs, results)


def _encoder_layer(call: AtenCall) -> Lowered:
    """The fused layer of nn.TransformerEncoder in inference."""
    names = "src qkv_weight qkv_bias proj_weight proj_bias norm_weight_1 norm_bias_1 norm_weight_2 norm_bias_2"
    inputs = [call.tensor(name) for name in f"{names} ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2".split()]
    activation = "gelu" if call.flag("use_gelu") else "relu"
    attrs: dict[str, Attr] = {"num_heads": call["num_heads"], "activation": activation, "norm_first": call.flag("norm_first")}
    return Lowered("nn.transformer_encoder_layer", [*inputs, call.maybe("mask")], attrs)


def _flash(call: AtenCall) -> Lowered:
    """Fused attention kernels; what they save for the backward has the types that the file says."""
    attrs: dict[str, Attr] = {"is_causal": call.flag("is_causal")}
    if call.has("scale"):
        attrs["scale"] = call["scale"]
    inputs = [call.tensor("query"), call.tensor("key"), call.tensor("value")]
    mask = call.maybe("attn_bias") or call.maybe("attn_mask")
    if call.has("dropout_p"):
        attrs["dropout_p"] = call["dropout_p"]
    return Lowered("nn.sdpa", [*inputs, mask] if mask is not None else inputs, attrs)


_RULES: dict[str, Rule] = {
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, True) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_pool("nn.adaptive_avg_pool", n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_pool("nn.adaptive_max_pool", n) for n in (1, 2, 3)},
}
RULES: dict[str, Rule] = {
    **_RULES,
    "_adaptive_avg_pool2d": _adaptive_pool("nn.adaptive_avg_pool", 2),
    "_adaptive_avg_pool3d": _adaptive_pool("nn.adaptive_avg_pool", 3),
    "convolution": _general_convolution,
    "_convolution": _general_convolution,
    "_convolution_mode": _general_convolution,
    "batch_norm": _batch_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "layer_norm": _layer_norm("nn.layer_norm"),
    "native_layer_norm": _layer_norm("nn.layer_norm"),
    "rms_norm": _layer_norm("nn.rms_norm"),
    "_fused_rms_norm": _layer_norm("nn.rms_norm"),
    "native_group_norm": _native_group_norm,
    "instance_norm": _instance_norm,
    "lstm": _recurrent("rnn.lstm_stack"),
    "gru": _recurrent("rnn.gru_stack"),
    "rnn_tanh": _recurrent("rnn.rnn_stack"),
    "rnn_relu": _recurrent("rnn.rnn_stack"),
    "upsample_nearest1d": _interpolate("nearest", 1),
    "upsample_nearest2d": _interpolate("nearest", 2),
    "upsample_nearest3d": _interpolate("nearest", 3),
    "_upsample_nearest_exact2d": _interpolate("nearest", 2),
    "upsample_linear1d": _interpolate("linear", 1),
    "upsample_bilinear2d": _interpolate("linear", 2),
    "upsample_trilinear3d": _interpolate("linear", 3),
    "upsample_bicubic2d": _interpolate("cubic", 2),
    "_upsample_bilinear2d_aa": _interpolate("linear", 2),
    "_upsample_bicubic2d_aa": _interpolate("cubic", 2),
    "embedding_bag": _embedding_bag,
    "_embedding_bag": _embedding_bag,
    "grid_sampler": _grid_sample,
    "grid_sampler_2d": _grid_sample,
    "grid_sampler_3d": _grid_sample,
    "_native_multi_head_attention": _multi_head,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "torchvision::roi_align": _roi("vision.roi_align"),
    "torchvision::roi_pool": _roi("vision.roi_pool"),
    "torchvision::ps_roi_align": _roi("vision.ps_roi_align"),
    "torchvision::deform_conv2d": _deform_conv,
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "_scaled_dot_product_efficient_attention": _flash,
}
