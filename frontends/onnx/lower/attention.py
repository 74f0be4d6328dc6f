"""Attention of the standard operator set."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.lower.rules import Table, direct, flag, integer, number, read, text


def _attention(call: Call) -> None:
    rules = (
        flag("is_causal"),
        integer("q_num_heads"),
        integer("kv_num_heads"),
        number("scale"),
        number("softcap"),
        integer("qk_matmul_output_mode"),
    )
    # Windows and the precision of the softmax change neither sizes nor the work that is counted.
    call.emit("nn.attention", call.inputs, read(call, *rules))


def _flex_attention(call: Call) -> None:
    """Its functions of scores and weights become regions; what they read from around them is seen there."""
    node = call.node("nn.flex_attention", call.inputs, read(call, number("scale")))
    for name in ("score_mod", "prob_mod"):
        if call.has(name):
            call.body.lower_region(node, name, call.graph_attr(name))
    call.bind(node)


TABLE: Table = {
    "Attention": _attention,
    "LinearAttention": direct(
        "nn.linear_attention",
        integer("q_num_heads"),
        integer("kv_num_heads"),
        number("scale", 0.0),
        integer("chunk_size", 64),
        text("update_rule", "gated_delta"),
    ),
    "RotaryEmbedding": direct(
        "nn.rotary_embedding", flag("interleaved"), integer("num_heads"), integer("rotary_embedding_dim", to="rotary_dim")
    ),
}

PREVIEW: Table = {"FlexAttention": _flex_attention}
