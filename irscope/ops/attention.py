"""Attention: every query looks at every key; the score of each pair goes through softmax and weighs the values."""

from __future__ import annotations

from typing import NamedTuple

from irscope.ir.dims import Dim, SymDim, dim_min, exact_div, floordiv, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.scratch.composites import attention_rows
from irscope.ops.scratch.sdpa import sdpa_rule
from irscope.ops.spec import Family, FusedAttention, OpCall, OpRole, RuleError, UnknownCost, numel, op, sizes
from irscope.ops.work import joint_sizes, products, softmax_work


class Heads(NamedTuple):
    """Sizes of queries, keys or values, heads apart."""

    batch: Dim
    heads: Dim
    length: Dim
    size: Dim


def shared_out(call: OpCall, total: Dim, parts: Dim, what: str) -> Dim:
    """A size divided into equal parts, which must come out even."""
    share = exact_div(total, parts)
    if share is not None:
        return share
    if not isinstance(total, SymDim) and not isinstance(parts, SymDim):
        raise RuleError(f"{call.spec.name}: {what}: {total} cannot be divided by {parts}")
    return floordiv(total, parts)


def heads_of(call: OpCall, name: str, heads: Dim | None) -> Heads | None:
    """Queries, keys or values as (batch, heads, length, size), or (batch, length, heads * size) with a number of heads."""
    shape = call.shape(name)
    if shape is None:
        return None
    if len(shape) == 4:
        return Heads(*shape)
    if len(shape) != 3:
        raise RuleError(f"{name} of {call.spec.name} must have 3 or 4 axes, not {len(shape)}")
    if heads is None:
        raise RuleError(f"{call.spec.name} needs the number of heads where {name} has 3 axes")
    batch, length, hidden = shape
    return Heads(batch, heads, length, shared_out(call, hidden, heads, f"{name} has all heads in its last axis"))


def attending(scores: Dim, key_size: Dim, value_size: Dim, extra: int = 0, capped: bool = False, hidden: Dim = 0) -> Cost:
    """Cost of attention with this many scores: two products, a factor and `extra` operations a score, softmax.

    `hidden` is twice the number of scores that a causal mask throws away.
    """
    capping = Cost(elementwise=scores * 2, transcendental=scores) if capped else Cost()
    added = Cost(elementwise=scores * (1 + extra), masked=hidden * (key_size + value_size))
    return products(scores * (key_size + value_size)) + softmax_work(scores) + capping + added


def hidden_pairs(queries: Dim, keys: Dim, past: Dim = 0) -> Dim:
    """Twice the number of pairs in which the key comes after the query, of one head; `past` keys come before all queries."""
    new = keys - past
    short = dim_min(queries, new)
    # Query i sees its first i + 1 keys; twice the rest, so that no formula needs a division.
    return short * (new * 2 - short - 1)


def past_length(call: OpCall) -> Dim | None:
    """How many keys are remembered from earlier calls; None where that is not known."""
    if not call.given("past_key"):
        return 0
    past = call.shape("past_key")
    return None if past is None else past[2]


def _sides(call: OpCall) -> tuple[Heads | None, Heads | None, Heads | None]:
    q_heads, kv_heads = call.attr("q_num_heads"), call.attr("kv_num_heads")
    return heads_of(call, "q", q_heads), heads_of(call, "k", kv_heads), heads_of(call, "v", kv_heads)


def _hidden(call: OpCall, q: Heads, v: Heads) -> Dim:
    """Features of a result with all heads in its last axis."""
    packed = call.shape("v")
    if packed is None or len(packed) != 3:
        return q.heads * v.size
    return shared_out(call, packed[2] * q.heads, v.heads, "v has all heads in its last axis")


def _infer_attention(call: OpCall) -> tuple[Type, ...]:
    q, k, v = _sides(call)
    past = past_length(call)
    output: Shape = None
    keys: Shape = None
    values: Shape = None
    scores: Shape = None
    if q is not None and v is not None:
        output = (q.batch, q.heads, q.length, v.size)
        if len(call.shape("q") or ()) == 3:
            output = (q.batch, q.length, _hidden(call, q, v))
    if k is not None and past is not None:
        keys = (k.batch, k.heads, past + k.length, k.size)
        if v is not None:
            values = (v.batch, v.heads, past + v.length, v.size)
        if q is not None:
            call.same(q.size, k.size, "queries and keys must have the same head size")
            scores = (q.batch, q.heads, q.length, past + k.length)
    device = call.tensor("q").device
    return call.fit(
        tensor(call.dtype("q"), output, device),
        tensor(call.dtype("k"), keys, device),
        tensor(call.dtype("v"), values, device),
        tensor(call.dtype("q"), scores, device),
    )


def _cost_attention(call: OpCall) -> Cost:
    q, k, v = _sides(call)
    past = past_length(call)
    if q is None or k is None or v is None or past is None:
        raise UnknownCost
    scores = product((q.batch, q.heads, q.length, past + k.length))
    causal = bool(call.attr("is_causal"))
    hidden = product((q.batch, q.heads, hidden_pairs(q.length, past + k.length, past))) if causal else 0
    return attending(scores, q.size, v.size, int(call.given("mask") or causal), bool(call.attr("softcap")), hidden)


def _infer_sdpa(call: OpCall) -> tuple[Type, ...]:
    q, k, v = call.shape("q"), call.shape("k"), call.shape("v")
    output: Shape = None
    if q is not None and k is not None and v is not None:
        call.same(q[-1], k[-1], "queries and keys must have the same size")
        call.same(k[-2], v[-2], "there must be as many values as keys")
        batch = q[:-2] if call.attr("enable_gqa") else joint_sizes(call, q[:-2], k[:-2], v[:-2])
        output = (*batch, q[-2], v[-1])
    # What a kernel saves for its backward pass has the types that the file says.
    return (tensor(call.dtype("q"), output, call.tensor("q").device), *call.results[1:])


def _cost_sdpa(call: OpCall) -> Cost:
    q, k = sizes(call.types[0]), sizes(call.types[1])
    output = sizes(call.results[0])
    scores = product((*output[:-1], k[-2]))
    causal = bool(call.attr("is_causal"))
    hidden = product(output[:-2]) * hidden_pairs(output[-2], k[-2]) if causal else 0
    return attending(scores, q[-1], output[-1], int(call.given("mask") or causal), hidden=hidden)


def _infer_flex(call: OpCall) -> tuple[Type, ...]:
    q, v = call.shape("q"), call.shape("v")
    output = None if q is None or v is None else (*q[:-1], v[-1])
    return (tensor(call.dtype("q"), output, call.tensor("q").device), *call.results[1:])


def _infer_linear(call: OpCall) -> tuple[Type, ...]:
    q, k, v = call.tensor("q"), call.shape("k"), call.shape("v")
    heads, shared = call.int_attr("q_num_heads"), call.int_attr("kv_num_heads")
    past = call.maybe("past_state")
    output: Shape = None
    state = past.shape if past is not None else None
    if v is not None:
        value_size = shared_out(call, v[2], shared, "values have all heads in their last axis")
        if q.shape is not None:
            output = (q.shape[0], q.shape[1], shared_out(call, v[2] * heads, shared, "values have all heads in their last axis"))
        if k is not None:
            key_size = shared_out(call, k[2], shared, "keys have all heads in their last axis")
            state = (v[0], shared, key_size, value_size)
    kept: TensorType = past if past is not None else q
    return call.fit(tensor(q.dtype, output, q.device), tensor(kept.dtype, state, q.device))


def _cost_linear(call: OpCall) -> Cost:
    """For each token: the state is read by every query head and updated, in delta rules after a look-up, by every key."""
    tokens = product(sizes(call.types[0])[:2])
    heads, shared = call.int_attr("q_num_heads"), call.int_attr("kv_num_heads")
    key_size = shared_out(call, sizes(call.types[1])[2], shared, "keys")
    value_size = shared_out(call, sizes(call.types[2])[2], shared, "values")
    rule = str(call.attr("update_rule"))
    state = tokens * key_size * value_size
    work = products(state * (heads + shared * (2 if "delta" in rule else 1)))
    return work + Cost(elementwise=state * shared if "gated" in rule else 0)


def _cost_rotary(call: OpCall) -> Cost:
    """Each rotated element is two products and a sum."""
    count, shape = numel(call.types[0]), sizes(call.types[0])
    rotated, heads = call.int_attr("rotary_dim"), call.int_attr("num_heads")
    if rotated and (len(shape) != 3 or heads):
        head_size = shape[-1] if len(shape) != 3 else shared_out(call, shape[-1], heads, "heads")
        count = floordiv(count * rotated, head_size)
    return Cost(elementwise=count * 3)


def _infer_rotary(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, x.shape, x.device)


OPS = (
    op(
        "nn.attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? past_key, Tensor? past_value, Tensor? lengths, *, "
        "int? q_num_heads, int? kv_num_heads, bool is_causal=False, float? scale, float softcap=0.0, int qk_matmul_output_mode=0) -> "
        "(Tensor y, Tensor? present_key, Tensor? present_value, Tensor? scores)",
        Family.ATTENTION,
        infer=_infer_attention,
        cost=_cost_attention,
        summary="Attention with heads in an axis of their own (4 axes) or packed into the last (3 axes), shared keys and a cache.",
        attention=FusedAttention(mask=3),
    ),
    op(
        "nn.sdpa(Tensor q, Tensor k, Tensor v, Tensor? mask, *, float dropout_p=0.0, bool is_causal=False, float? scale, "
        "bool enable_gqa=False) -> (Tensor y, Tensor[] saved)",
        Family.ATTENTION,
        infer=_infer_sdpa,
        cost=_cost_sdpa,
        temporaries=sdpa_rule,
        intermediates=attention_rows,
        summary="Scaled dot product attention over any batch axes; a causal mask does not lower its cost, what it hides is told apart.",
        strides=layouts.like_queries,
        roles=frozenset({OpRole.LAYOUT_BY_DEVICE}),
        attention=FusedAttention(mask=3),
    ),
    op(
        "nn.flex_attention(Tensor q, Tensor k, Tensor v, Tensor[] captured, *, float? scale) -> (Tensor y, Tensor[] saved)",
        Family.ATTENTION,
        infer=_infer_flex,
        cost=_cost_sdpa,
        summary="Attention whose scores (first region) and weights (second) a model's own functions change; their cost is not counted.",
        attention=FusedAttention(),
    ),
    op(
        "nn.linear_attention(Tensor q, Tensor k, Tensor v, Tensor? past_state, Tensor? decay, Tensor? beta, *, int q_num_heads, "
        "int kv_num_heads, str update_rule='gated_delta', float scale=0.0, int chunk_size=64) -> (Tensor y, Tensor? present_state)",
        Family.ATTENTION,
        infer=_infer_linear,
        cost=_cost_linear,
        summary="Attention by a recurrent state instead of scores; costs are those of the recurrence.",
        roles=frozenset({OpRole.STATE_SCAN}),
    ),
    op(
        "nn.rotary_embedding(Tensor x, Tensor cos, Tensor sin, Tensor? positions, *, int num_heads=0, int rotary_dim=0, "
        "bool interleaved=False) -> Tensor",
        Family.ATTENTION,
        infer=_infer_rotary,
        cost=_cost_rotary,
        summary="Turns pairs of features by angles that depend on the position.",
    ),
)
