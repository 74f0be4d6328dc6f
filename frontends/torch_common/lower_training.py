"""Backward operators of autograd and operators over lists of tensors, as optimizers call them."""

from __future__ import annotations

from irscope.frontends.torch_common.lowering import AtenCall, CannotLower, Lowered, Rule
from irscope.ir.graph import Attr, Value
from irscope.ops.gradients import FUNCTIONS

_SELF = "gelu silu mish hardswish hardsigmoid hardtanh leaky_relu softplus logit threshold"
_RESULT = "tanh sigmoid"

TEMPLATES: dict[str, str] = {
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
    "embedding_dense_backward": "grad.embedding grad_output indices ; rows=num_weights padding=padding_idx scaled=scale_grad_by_freq",
    "_thnn_fused_lstm_cell": "rnn.lstm_gates input_gates hidden_gates cx input_bias hidden_bias",
    "_thnn_fused_lstm_cell_backward_impl": "grad.lstm_cell grad_hy grad_cy cx cy workspace ; has_bias",
    "_scaled_dot_product_efficient_attention_backward": (
        "grad.sdpa grad_out_ query key value attn_bias out logsumexp ; is_causal dropout_p"
    ),
    "_scaled_dot_product_flash_attention_backward": "grad.sdpa grad_out query key value _ out logsumexp ; is_causal dropout_p",
    "_scaled_dot_product_cudnn_attention_backward": "grad.sdpa grad_out query key value attn_bias out logsumexp ; is_causal dropout_p",
    "_safe_softmax": "nn.softmax self ; axis=dim",
    "nll_loss_forward": "loss.nll self target weight",
    "nll_loss2d_forward": "loss.nll self target weight",
}


def _convolution(call: AtenCall) -> Lowered:
    attrs: dict[str, Attr] = {"transposed": call.flag("transposed"), "groups": call["groups"]}
    for ours, theirs in (("strides", "stride"), ("pads", "padding"), ("dilations", "dilation"), ("output_padding", "output_padding")):
        attrs[ours] = call.dims(theirs)
    return Lowered("grad.conv", [call.tensor("grad_output"), call.tensor("input"), call.tensor("weight")], attrs)


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


def _many(function: str) -> Rule:
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


RULES: dict[str, Rule] = {
    "convolution_backward": _convolution,
    "native_layer_norm_backward": _normalization("grad.layer_norm", "grad_out", "input", "mean", "rstd", "weight", "bias"),
    "_fused_rms_norm_backward": _normalization("grad.rms_norm", "grad_out", "input", "rstd", "weight"),
    "cudnn_batch_norm": _cudnn_batch_norm,
    **{f"_foreach_{name}": _many(name) for name in sorted(FUNCTIONS)},
    **{f"_fused_{name}": _many(name) for name in ("sgd", "adam", "adamw", "adagrad")},
}
