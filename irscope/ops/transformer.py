"""Whole parts of transformers as one operator: multi-head attention with its projections, encoder layers, experts."""

from __future__ import annotations

from irscope.ir.dims import Dim, exact_div, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.attention import attending
from irscope.ops.cost import Cost
from irscope.ops.norm import normalizing
from irscope.ops.rules import moved
from irscope.ops.scratch.blocks import encoder_layer_rule, multi_head_rule
from irscope.ops.spec import SIZES, Family, FusedAttention, OpCall, OpRole, RuleError, UnknownCost, numel, op, sizes
from irscope.ops.work import like, products


def _infer_multi_head(call: OpCall) -> tuple[Type, ...]:
    q, k, out = call.tensor("q"), call.shape("k"), call.shape("w_out")
    output: Shape = None
    weights: Shape = None
    if q.shape is not None:
        width = out[0] if out is not None else q.shape[-1]
        output = (*q.shape[:-1], width)
        if k is not None:
            weights = _weights_shape(call, q.shape, k)
    return call.fit(tensor(q.dtype, output, q.device), tensor(q.dtype, weights, q.device))


def _weights_shape(call: OpCall, q: tuple[Dim, ...], k: tuple[Dim, ...]) -> Shape:
    """Attention weights: (batch, heads, queries, keys), without heads where they are averaged."""
    batch, queries, keys = _lengths(call, q, k)
    heads = () if call.attr("average_weights") else (call.int_attr("num_heads"),)
    return (*batch, *heads, queries, keys)


def _lengths(call: OpCall, q: tuple[Dim, ...], k: tuple[Dim, ...]) -> tuple[tuple[Dim, ...], Dim, Dim]:
    if len(q) == 2:
        return (), q[0], k[0]
    if len(q) != 3 or len(k) != 3:
        raise RuleError(f"{call.spec.name} needs 2 or 3 axes, not {len(q)} and {len(k)}")
    return ((q[0],), q[1], k[1]) if call.attr("batch_first") else ((q[1],), q[0], k[0])


def _cost_multi_head(call: OpCall) -> Cost:
    """Three projections in, attention, one projection out."""
    q, k = sizes(call.types[0]), sizes(call.types[1])
    batch, queries, keys = _lengths(call, q, k)
    width = sizes(call.types[call.spec.operand_index["w_out"]])[1]
    inputs = numel(call.types[0]) + numel(call.types[1]) + numel(call.types[2])
    head_size = exact_div(width, call.int_attr("num_heads"))
    if head_size is None:
        raise UnknownCost
    scores = product((*batch, call.int_attr("num_heads"), queries, keys))
    rows = product((*batch, queries)) * width
    biases = (rows * 4 if call.given("b_qkv") else 0) + (numel(call.results[0]) if call.given("b_out") else 0)
    projections = products(inputs * width + numel(call.results[0]) * width, biases)
    return projections + attending(scores, head_size, head_size, int(call.given("mask")))


def _cost_encoder_layer(call: OpCall) -> Cost:
    """Attention with its projections, two layers of a feed-forward network, two additions and two normalizations."""
    batch, length, width = sizes(call.types[0])
    hidden = sizes(call.types[call.spec.operand_index["w_1"]])[0]
    heads = call.int_attr("num_heads")
    head_size = exact_div(width, heads)
    if head_size is None:
        raise UnknownCost
    rows = batch * length
    count, inner = rows * width, rows * hidden
    linear = products(count * width * 4 + count * hidden * 2, count * 5 + inner)
    activation = Cost(elementwise=inner * 3, transcendental=inner) if call.attr("activation") == "gelu" else Cost(elementwise=inner)
    rest = normalizing(count, rows, 2).times(2) + Cost(elementwise=count * 2) + activation
    return linear + attending(batch * heads * length * length, head_size, head_size, int(call.given("mask"))) + rest


def _expert_cost(call: OpCall, bits: int) -> Cost:
    """Each token goes through the layers of its `k` experts; weights of 8 / bits in a byte count unpacked."""
    shape = sizes(call.types[0])
    tokens = product(shape[:-1])
    packed = 8 // bits if bits < 8 else 1
    share: Dim = 0
    inner: Dim = 0
    for name in ("w_1", "w_2", "w_3"):
        weights = call.maybe(name)
        if weights is not None:
            matrix = sizes(weights)[1:]
            share = share + product(matrix) * packed
            inner = inner if name != "w_1" else floordiv(product(matrix) * packed, shape[-1])
    used = tokens * call.int_attr("k")
    return products(used * share) + Cost(elementwise=used * (inner + shape[-1] * 2))


def _infer_position_bias(call: OpCall) -> Type:
    table = call.tensor("table")
    queries, keys = call.dim("query_length"), call.dim("key_length")
    lengths = "query_length,key_length"
    if queries is None:
        queries = call.unknown("the number of queries is computed by the model", lengths)
    if keys is None:
        keys = call.unknown("the number of keys is computed by the model", lengths)
    heads = table.shape[1] if table.shape is not None else call.unknown("the number of heads is not known", SIZES, 1)
    return tensor(table.dtype, (1, heads, queries, keys), table.device)


def _infer_gated_bias(call: OpCall) -> Type:
    q, bias = call.tensor("q"), call.shape("bias")
    shape: Shape = None
    if bias is not None and q.shape is not None:
        offset = call.shape("token_offset") if call.given("token_offset") else q.shape
        shape = None if offset is None else (offset[0], *bias[1:])
    return tensor(q.dtype, shape, q.device)


def _infer_unpad(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    device = x.device
    tokens = call.unknown("the number of tokens that are not padding depends on the values of the lengths", "mask")
    if x.shape is None:
        rows, offsets, sums = None, None, None
    else:
        rows, offsets, sums = (tokens, x.shape[2]), x.shape[:2], (x.shape[0] + 1,)
    integers: list[TensorType] = [tensor(DType.I32, shape, device) for shape in (offsets, sums, (1,))]
    return call.fit(tensor(x.dtype, rows, device), *integers)


def _infer_pad(call: OpCall) -> Type:
    x, offsets = call.tensor("x"), call.shape("token_offset")
    shape = None if x.shape is None or offsets is None else (*offsets, x.shape[-1])
    return tensor(x.dtype, shape, x.device)


OPS = (
    op(
        "nn.multi_head_attention(Tensor q, Tensor k, Tensor v, Tensor w_qkv, Tensor? b_qkv, Tensor w_out, Tensor? b_out, Tensor? mask, *, "
        "int num_heads, bool batch_first=True, bool average_weights=True) -> (Tensor y, Tensor? weights)",
        Family.ATTENTION,
        infer=_infer_multi_head,
        cost=_cost_multi_head,
        temporaries=multi_head_rule,
        summary="Attention with its input and output projections; the attention weights are an optional result.",
        attention=FusedAttention(),
    ),
    op(
        "nn.transformer_encoder_layer(Tensor x, Tensor w_qkv, Tensor b_qkv, Tensor w_out, Tensor b_out, Tensor norm_scale_1, "
        "Tensor norm_bias_1, Tensor norm_scale_2, Tensor norm_bias_2, Tensor w_1, Tensor b_1, Tensor w_2, Tensor b_2, Tensor? mask, *, "
        "int num_heads, str activation='relu', bool norm_first=False) -> Tensor",
        Family.ATTENTION,
        infer=like("x"),
        cost=_cost_encoder_layer,
        temporaries=encoder_layer_rule,
        summary="A whole encoder layer: attention, feed-forward network, additions and normalizations.",
        attention=FusedAttention(key=0),
    ),
    op(
        "nn.moe(Tensor x, Tensor router, Tensor w_1, Tensor? b_1, Tensor w_2, Tensor? b_2, Tensor? w_3, Tensor? b_3, *, int k=1, "
        "str activation='relu', bool normalize=False) -> Tensor",
        Family.ATTENTION,
        infer=like("x"),
        cost=lambda call: _expert_cost(call, 8),
        summary="Feed-forward networks of which each token uses the `k` that a router picks; their weights lie behind one another.",
        roles=frozenset({OpRole.EXPERTS}),
    ),
    op(
        "nn.moe_quantized(Tensor x, Tensor router, Tensor w_1, Tensor s_1, Tensor? b_1, Tensor w_2, Tensor s_2, Tensor? b_2, Tensor? w_3, "
        "Tensor? s_3, Tensor? b_3, Tensor[] more, *, int k=1, int bits=4, str activation='relu', bool normalize=False) -> Tensor",
        Family.ATTENTION,
        infer=like("x"),
        cost=lambda call: _expert_cost(call, call.int_attr("bits")),
        summary="Like nn.moe with weights of few bits, packed in bytes, and their scales.",
        roles=frozenset({OpRole.EXPERTS}),
    ),
    op(
        "nn.relative_position_bias(Tensor table, Dim query_length, Dim key_length, *, int max_distance=128, "
        "bool bidirectional=False) -> Tensor",
        Family.ATTENTION,
        infer=_infer_position_bias,
        cost=lambda call: Cost(elementwise=product(sizes(call.results[0])[2:]) * 4),
        summary="A learned bias for each distance between a query and a key.",
    ),
    op(
        "nn.gated_relative_position_bias(Tensor q, Tensor q_bias, Tensor bias, Tensor weight, Tensor weight_bias, Tensor factor, "
        "Tensor? token_offset, *, int num_heads) -> Tensor",
        Family.ATTENTION,
        infer=_infer_gated_bias,
        cost=lambda call: products(numel(call.types[0]) * sizes(call.types[3])[1], numel(call.results[0])),
        summary="Scales relative position biases by gates computed from the queries.",
    ),
    op(
        "nn.remove_padding(Tensor x, Tensor lengths) -> (Tensor y, Tensor? token_offset, Tensor? cumulative_lengths, Tensor? longest)",
        Family.ATTENTION,
        infer=_infer_unpad,
        cost=moved,
        summary="Keeps only the tokens that are not padding.",
    ),
    op(
        "nn.restore_padding(Tensor x, Tensor token_offset) -> Tensor",
        Family.ATTENTION,
        infer=_infer_pad,
        cost=moved,
        summary="Puts tokens back to where they were among the padding.",
    ),
)
