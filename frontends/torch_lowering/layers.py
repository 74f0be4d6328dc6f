"""Rules for layers (convolutions, pooling, normalizations, attention, recurrent networks, images), their backward, and optimizers."""

from __future__ import annotations

from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Attr, Value
from irscope.ops.gradients import FUNCTIONS

LAYERS: dict[str, str] = {
    "group_norm": "nn.group_norm input weight bias ; num_groups epsilon=eps",
    "scaled_dot_product_attention": "nn.sdpa query key value attn_mask ; dropout_p is_causal scale enable_gqa",
    # What they save for the backward has the types that the file says.
    "_scaled_dot_product_efficient_attention": "nn.sdpa query key value attn_bias? ; is_causal scale dropout_p",
    "_scaled_dot_product_flash_attention": "nn.sdpa query key value ; is_causal scale dropout_p",
    "_scaled_dot_product_flash_attention_for_cpu": "nn.sdpa query key value attn_mask? ; is_causal scale dropout_p",
    "native_group_norm": "nn.group_norm input weight bias ; num_groups=group epsilon=eps",
    **{
        name: "nn.embedding_bag weight indices offsets per_sample_weights ; mode=mode{sum,mean,max} include_last_offset"
        for name in ("embedding_bag", "_embedding_bag")
    },
    **{
        name: "vision.grid_sample input grid ; mode=interpolation_mode{linear,nearest,cubic} "
        "padding_mode=padding_mode{zeros,border,reflection} align_corners"
        for name in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
    },
    "_transformer_encoder_layer_fwd": (
        "nn.transformer_encoder_layer src qkv_weight qkv_bias proj_weight proj_bias norm_weight_1 norm_bias_1 norm_weight_2 norm_bias_2 "
        "ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2 mask ; num_heads activation=use_gelu{relu,gelu} norm_first"
    ),
    "_weight_norm": "nn.weight_norm v g ; axis=dim",
    "_weight_norm_interface": "nn.weight_norm v g ; axis=dim",
    "affine_grid_generator": "vision.affine_grid theta ; size=[size] align_corners",
    "gru_cell": "rnn.gru_cell input hx w_ih w_hh b_ih b_hh",
    "rnn_tanh_cell": "rnn.rnn_cell input hx w_ih w_hh b_ih b_hh",
    "rnn_relu_cell": "rnn.rnn_cell input hx w_ih w_hh b_ih b_hh",
    "lstm_cell": "rnn.lstm_cell input hx* w_ih w_hh b_ih b_hh",
}


def _convolution_rule(spatial: int, transposed: bool = False) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        return _lower_convolution(call, spatial, transposed)

    return rule


def _general_convolution(call: AtenCall) -> Lowered:
    """`convolution` and `_convolution_rule`, of any number of axes and either direction."""
    rank = call.rank("weight")
    if rank is None:
        raise CannotLower("the weight's rank is unknown")
    return _lower_convolution(call, rank - 2, call.flag("transposed"))


def _lower_convolution(call: AtenCall, spatial: int, transposed: bool) -> Lowered:
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


def _lower_batch_norm(call: AtenCall) -> Lowered:
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


def _instance_norm(call: AtenCall) -> Lowered:
    if not call.flag("use_input_stats"):
        inputs = [call.tensor("input"), call.maybe("weight"), call.maybe("bias"), call.maybe("running_mean"), call.maybe("running_var")]
        return Lowered("nn.batch_norm", inputs, {"epsilon": call["eps"]})
    return Lowered("nn.instance_norm", (call.tensor("input"), call.maybe("weight"), call.maybe("bias")), {"epsilon": call["eps"]})


def _recurrent_stack(op: str) -> Rule:
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


def _multi_head(call: AtenCall) -> Lowered:
    """Return the fused attention of nn.MultiheadAttention in inference."""
    names = ("query", "key", "value", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask")
    attrs: dict[str, Attr] = {"num_heads": call["num_head"], "average_weights": call.flag("average_attn_weights")}
    results = (0, 1) if call.flag("need_weights") else (0, None)
    return Lowered("nn.multi_head_attention", [call.maybe(name) for name in names], attrs, results)


_BY_AXES: dict[str, Rule] = {
    **{f"conv{n}d": _convolution_rule(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution_rule(n, True) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_pool("nn.adaptive_avg_pool", n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_pool("nn.adaptive_max_pool", n) for n in (1, 2, 3)},
}
LAYER_RULES: dict[str, Rule] = {
    **_BY_AXES,
    "_adaptive_avg_pool2d": _adaptive_pool("nn.adaptive_avg_pool", 2),
    "_adaptive_avg_pool3d": _adaptive_pool("nn.adaptive_avg_pool", 3),
    "convolution": _general_convolution,
    "_convolution": _general_convolution,
    "_convolution_mode": _general_convolution,
    "batch_norm": _lower_batch_norm,
    "native_batch_norm": _lower_batch_norm,
    "_native_batch_norm_legit": _lower_batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "_native_batch_norm_legit_no_training": _lower_batch_norm,
    "layer_norm": _layer_norm("nn.layer_norm"),
    "native_layer_norm": _layer_norm("nn.layer_norm"),
    "rms_norm": _layer_norm("nn.rms_norm"),
    "_fused_rms_norm": _layer_norm("nn.rms_norm"),
    "instance_norm": _instance_norm,
    "lstm": _recurrent_stack("rnn.lstm_stack"),
    "gru": _recurrent_stack("rnn.gru_stack"),
    "rnn_tanh": _recurrent_stack("rnn.rnn_stack"),
    "rnn_relu": _recurrent_stack("rnn.rnn_stack"),
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
    "_native_multi_head_attention": _multi_head,
    "torchvision::roi_align": _roi("vision.roi_align"),
    "torchvision::roi_pool": _roi("vision.roi_pool"),
    "torchvision::ps_roi_align": _roi("vision.ps_roi_align"),
    "torchvision::deform_conv2d": _deform_conv,
}


# -- backward operators of autograd, and operators over lists of tensors as optimizers call them -----------------------


_SELF = "gelu silu mish hardswish hardsigmoid hardtanh leaky_relu softplus logit threshold"
_RESULT = "tanh sigmoid"

TRAINING: dict[str, str] = {
    **{f"{name}_backward": f"grad.{name} grad_output self" for name in _SELF.split()},
    **{f"{name}_backward": f"grad.{name} grad_output output" for name in _RESULT.split()},
    "elu_backward": "grad.elu grad_output self_or_result",
    "log_sigmoid_backward": "grad.logsigmoid grad_output self buffer",
    "glu_backward": "grad.glu grad_output self ; axis=dim",
    "native_dropout_backward": "grad.dropout grad_output mask",
    "_softmax_backward_data": "grad.softmax grad_output output ; axis=dim dtype=input_dtype",
    "_log_softmax_backward_data": "grad.log_softmax grad_output output ; axis=dim dtype=input_dtype",
    "nll_loss_backward": "grad.nll grad_output self target weight total_weight",
    "nll_loss2d_backward": "grad.nll_spatial grad_output self target weight total_weight",
    "mse_loss_backward": "grad.mse grad_output self target",
    "smooth_l1_loss_backward": "grad.smooth_l1 grad_output self target",
    "huber_loss_backward": "grad.huber grad_output self target",
    "binary_cross_entropy_backward": "grad.bce grad_output self target weight",
    **{f"{name}_with_indices_backward": "grad.pool grad_output self indices" for name in ("max_pool2d", "max_pool3d")},
    **{f"adaptive_max_pool{n}d_backward": "grad.pool grad_output self indices" for n in (2, 3)},
    **{f"avg_pool{n}d_backward": "grad.pool grad_output self" for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": "grad.pool grad_output self" for n in (2, 3)},
    **{f"upsample_{name}_backward": "grad.resize grad_output" for name in ("nearest1d", "nearest2d", "nearest3d", "linear1d")},
    **{f"upsample_{name}_backward": "grad.resize grad_output" for name in ("bilinear2d", "bicubic2d", "trilinear3d")},
    **{f"_upsample_{name}_backward": "grad.resize grad_output" for name in ("bilinear2d_aa", "bicubic2d_aa", "nearest_exact2d")},
    **{f"{name}_backward": "grad.place grad_output" for name in ("slice", "select", "diagonal")},
    "native_batch_norm_backward": "grad.batch_norm grad_out input weight save_mean save_invstd",
    "cudnn_batch_norm_backward": "grad.batch_norm grad_output input weight save_mean save_var",
    "native_group_norm_backward": "grad.group_norm grad_out input mean rstd weight ; num_groups=group",
    "convolution_backward": (
        "grad.conv grad_output input weight ; transposed groups strides=[stride] pads=[padding] dilations=[dilation] "
        "output_padding=[output_padding]"
    ),
    "embedding_dense_backward": "grad.embedding grad_output indices ; rows=num_weights padding=padding_idx scaled=scale_grad_by_freq",
    "_thnn_fused_lstm_cell": "rnn.lstm_gates input_gates hidden_gates cx input_bias hidden_bias",
    "_thnn_fused_lstm_cell_backward_impl": "grad.lstm_cell grad_hy grad_cy cx cy workspace ; has_bias",
    "_thnn_fused_gru_cell": "rnn.gru_gates input_gates hidden_gates hx input_bias hidden_bias",
    "_thnn_fused_gru_cell_backward": "grad.gru_cell grad_hy workspace ; has_bias",
    "_scaled_dot_product_efficient_attention_backward": (
        "grad.sdpa grad_out_ query key value attn_bias out logsumexp ; is_causal dropout_p"
    ),
    "_scaled_dot_product_flash_attention_backward": "grad.sdpa grad_out query key value _ out logsumexp ; is_causal dropout_p",
    "_scaled_dot_product_cudnn_attention_backward": "grad.sdpa grad_out query key value attn_bias out logsumexp ; is_causal dropout_p",
    "_safe_softmax": "nn.softmax self ; axis=dim",
    "nll_loss_forward": "loss.nll self target weight",
    "nll_loss2d_forward": "loss.nll self target weight",
}


def _normalization(op: str, *operands: str) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        inputs = [call.maybe(name) for name in operands]
        return Lowered(op, inputs, {"axes": max(len(call.dims("normalized_shape")), 1)})

    return rule


def _cudnn_batch_norm(call: AtenCall) -> Lowered:
    inputs = [call.tensor("input"), call.maybe("weight"), call.maybe("bias"), call.maybe("running_mean"), call.maybe("running_var")]
    attrs: dict[str, Attr] = {"epsilon": call["epsilon"], "momentum": call["exponential_average_factor"]}
    if call.flag("training"):
        return Lowered("nn.batch_norm_training", inputs, attrs, (0, 1, 2, None))
    return Lowered("nn.batch_norm", inputs, attrs, (0, None, None, None))


def _over_lists(function: str) -> Rule:
    def rule(call: AtenCall) -> Lowered:
        inputs: list[Value | None] = []
        lists = 0
        for value in call.args.values():
            if isinstance(value, tuple | list) and value and all(isinstance(item, Value) for item in value):
                inputs.extend(value)
                lists += 1
        if not inputs:
            raise CannotLower("no list of tensors")
        return Lowered("train.many", inputs, {"function": function, "lists": lists})

    return rule


TRAINING_RULES: dict[str, Rule] = {
    "native_layer_norm_backward": _normalization("grad.layer_norm", "grad_out", "input", "mean", "rstd", "weight", "bias"),
    "_fused_rms_norm_backward": _normalization("grad.rms_norm", "grad_out", "input", "rstd", "weight"),
    "cudnn_batch_norm": _cudnn_batch_norm,
    **{f"_foreach_{name}": _over_lists(name) for name in sorted(FUNCTIONS)},
    **{f"_fused_{name}": _over_lists(name) for name in ("sgd", "adam", "adamw", "adagrad")},
}
