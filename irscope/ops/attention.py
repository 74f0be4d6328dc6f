"""Attention, as PyTorch, ONNX and ONNX Runtime write it, and the layers around it."""

from __future__ import annotations

from typing import NamedTuple

from irscope.ir.dims import Dim, SymDim, dim_max, dim_min, exact_div, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.facts import FusedAttention, OpRole
from irscope.ops.ort import packs, packs_attention, packs_quantized_attention
from irscope.ops.rules import joint_sizes, like, moved, normalizing, products, softmax_work
from irscope.ops.scratch.composites import attention_rows
from irscope.ops.scratch.sdpa import encoder_layer_rule, multi_head_rule, sdpa_rule
from irscope.ops.spec import SIZES, Absent, Family, OpCall, RuleError, UnknownCost, numel, op, sizes

# Attention: every query looks at every key; the score of each pair goes through softmax and weighs the values.


class Heads(NamedTuple):
    """Sizes of queries, keys or values, heads apart."""

    batch: Dim
    heads: Dim
    length: Dim
    size: Dim


def shared_out(call: OpCall, total: Dim, parts: Dim, what: str) -> Dim:
    """Return a size divided into equal parts, which must come out even."""
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
    """Return the cost of attention with this many scores: two products, a factor and `extra` operations a score, softmax.

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
    """Return how many keys are remembered from earlier calls; None where that is not known."""
    if not call.given("past_key"):
        return 0
    past = call.shape("past_key")
    return None if past is None else past[2]


def _sides(call: OpCall) -> tuple[Heads | None, Heads | None, Heads | None]:
    q_heads, kv_heads = call.attr("q_num_heads"), call.attr("kv_num_heads")
    return heads_of(call, "q", q_heads), heads_of(call, "k", kv_heads), heads_of(call, "v", kv_heads)


def _hidden(call: OpCall, q: Heads, v: Heads) -> Dim:
    """Return the features of a result with all heads in its last axis."""
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


_ATTENTION = (
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
        summary="Scaled dot product attention over any batch axes; a causal mask does not lower its cost; masked scores are separate.",
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


# Attention operators of ONNX Runtime: projections folded in, packed operands, caches that are shared or paged.


def _projected(call: OpCall, width: Dim) -> tuple[Dim, Dim, Dim]:
    """Return the features of queries, keys and values out of one projection of this width."""
    given = call.attr("qkv_hidden_sizes")
    if given:
        return given[0], given[1], given[2]
    third = shared_out(call, width, 3, "queries, keys and values share the projection")
    return third, third, third


def _dtype_of(call: OpCall) -> DType:
    """Quantized inputs give results of the type of their scale."""
    return call.dtype("x_scale") if "x_scale" in call.spec.operand_index else call.dtype("x")


def _infer_fused(call: OpCall) -> tuple[Type, ...]:
    x, weights = call.tensor("x"), call.shape("w")
    heads, dtype = call.int_attr("num_heads"), _dtype_of(call)
    past = call.maybe("past")
    output: Shape = None
    present: Shape = None
    if x.shape is not None and weights is not None:
        call.same(x.shape[-1], weights[0], "the input size must be that of the weights")
        queries, _, values = _projected(call, weights[1])
        output = (*x.shape[:-1], values)
        if len(x.shape) == 3 and past is None:
            present = (2, x.shape[0], heads, x.shape[1], shared_out(call, queries, heads, "heads share the features"))
    if past is not None and past.shape is not None and x.shape is not None:
        present = past.shape
        if not call.attr("share_buffer"):
            present = (*past.shape[:3], past.shape[3] + x.shape[1], past.shape[4])
    return call.fit(tensor(dtype, output, x.device), tensor(dtype, present, x.device))


def _cost_fused(call: OpCall) -> Cost:
    """Return the projection of all rows, then attention over what is remembered and what is new."""
    batch, length, _ = sizes(call.types[0])
    rows, columns = sizes(call.types[1])
    _, keys, values = _projected(call, columns)
    past = call.maybe("past")
    if past is not None and call.attr("share_buffer"):
        raise UnknownCost
    total = length if past is None else length + sizes(past)[3]
    heads = call.int_attr("num_heads")
    count = batch * length * columns
    work = products(count * rows, count if call.given("b") else 0)
    key_size, value_size = floordiv(keys, heads), floordiv(values, heads)
    hidden = batch * heads * hidden_pairs(length, total, total - length) if call.attr("unidirectional") else 0
    extra = int(call.given("bias") or call.given("mask"))
    return work + attending(batch * heads * length * total, key_size, value_size, extra, hidden=hidden)


def _kv(call: OpCall, q: tuple[Dim, ...], heads: int) -> tuple[Dim, Dim, Dim, bool] | None:
    """Length of the new keys, head sizes of keys and values, and whether the operands already are the cache."""
    k, v = call.maybe("k"), call.maybe("v")
    if len(q) == 5:
        return q[1], q[4], q[4], False
    if k is None or k.shape is None:
        return None
    if len(k.shape) == 5:
        return k.shape[1], k.shape[4], k.shape[4], False
    if len(k.shape) == 4:
        size = v.shape[3] if v is not None and v.shape is not None else k.shape[3]
        return k.shape[2], k.shape[3], size, True
    if v is None or v.shape is None:
        return None
    return (
        k.shape[1],
        shared_out(call, k.shape[2], heads, "heads share the features"),
        shared_out(call, v.shape[2], heads, "heads share the features"),
        False,
    )


def _multi_head(call: OpCall) -> tuple[Shape, Shape, Shape, Shape]:
    """Return sizes of the output, both caches and the scores."""
    q, heads = call.shape("q"), call.int_attr("num_heads")
    if q is None:
        return None, None, None, None
    if len(q) not in (3, 5):
        raise RuleError(f"{call.spec.name} needs queries with 3 axes, or packed with 5, not {len(q)}")
    found = _kv(call, q, heads)
    if found is None:
        return None, None, None, None
    length, key_size, value_size, is_cache = found
    past = call.maybe("past_key")
    output = (q[0], q[1], value_size * heads)
    total: Dim | None = length
    if past is not None and not is_cache:
        total = None if past.shape is None else past.shape[2] if call.attr("share_buffer") else past.shape[2] + length
    if total is None:
        return output, None, None, None
    batch = (q[0], heads)
    return output, (*batch, total, key_size), (*batch, total, value_size), (*batch, q[1], total)


def _infer_multi_head(call: OpCall) -> tuple[Type, ...]:
    q = call.tensor("q")
    return call.fit(*(tensor(q.dtype, shape, q.device) for shape in _multi_head(call)))


def _cost_multi_head(call: OpCall) -> Cost:
    _, keys, values, scores = _multi_head(call)
    if keys is None or values is None or scores is None or call.attr("share_buffer"):
        raise UnknownCost
    extra = int(call.given("bias") or call.given("mask"))
    hidden: Dim = 0
    if call.attr("unidirectional"):
        hidden = product(scores[:2]) * hidden_pairs(scores[2], scores[3], scores[3] - scores[2])
    return attending(product(scores), keys[-1], values[-1], extra, hidden=hidden)


def _grouped_sizes(call: OpCall, q: tuple[Dim, ...]) -> tuple[Dim, Dim]:
    """Return the size of a head, and the length of the new keys."""
    heads, shared = call.int_attr("num_heads"), call.int_attr("kv_num_heads")
    if not call.given("k"):
        return shared_out(call, q[-1], heads + 2 * shared, "queries, keys and values are packed"), q[1]
    k = call.shape("k")
    return shared_out(call, q[-1], heads, "heads share the features"), q[1] if k is None or len(k) != 3 else k[1]


def _present(call: OpCall, q: tuple[Dim, ...], size: Dim) -> Shape:
    """Return the cache after the call: as long as the one before, or as the longest sequence so far where that is longer."""
    past = call.maybe("past_key")
    total = call.dim("total_length") if "total_length" in call.spec.operand_index else None
    if past is not None and past.shape is None:
        return None
    if past is not None and past.shape is not None:
        if call.attr("share_buffer"):
            return past.shape
        length: Dim = past.shape[2]
        if total is None:
            return (*past.shape[:2], call.unknown(*_UNKNOWN_LENGTH, lo=length if isinstance(length, int) else 0), past.shape[3])
        return (*past.shape[:2], dim_max(length, total), past.shape[3])
    new = total if total is not None else call.unknown(*_UNKNOWN_LENGTH)
    return (q[0], call.int_attr("kv_num_heads"), new, size)


_UNKNOWN_LENGTH = ("the length of the longest sequence is computed by the model", "total_length")


def _infer_grouped(call: OpCall) -> tuple[Type, ...]:
    q = call.tensor("q")
    past = call.maybe("past_key")
    kept = past.dtype if past is not None else q.dtype
    output: Shape = None
    present: Shape = None
    scores: Shape = None
    if q.shape is not None:
        size, _ = _grouped_sizes(call, q.shape)
        output = (*q.shape[:-1], size * call.int_attr("num_heads"))
        present = _present(call, q.shape, size)
        if present is not None:
            scores = (q.shape[0], call.int_attr("num_heads"), q.shape[1], present[2])
    cache = tensor(kept, present, q.device)
    return call.fit(tensor(q.dtype, output, q.device), cache, cache, tensor(q.dtype, scores, q.device))


def _cost_grouped(call: OpCall) -> Cost:
    """Full attention over the longest sequence, which shorter ones in the batch do not reach."""
    q = sizes(call.types[0])
    size, new = _grouped_sizes(call, q)
    total = call.dim("total_length")
    if total is None:
        if call.given("past_key"):
            raise UnknownCost
        total = new
    rotated = Cost()
    if call.attr("rotary"):
        heads = call.int_attr("num_heads") + call.int_attr("kv_num_heads")
        rotated = Cost(elementwise=q[0] * q[1] * heads * size * 3)
    hidden = q[0] * call.int_attr("num_heads") * hidden_pairs(q[1], total, total - new)
    return rotated + attending(q[0] * call.int_attr("num_heads") * q[1] * total, size, size, 1, hidden=hidden)


def _infer_paged(call: OpCall) -> tuple[Type, ...]:
    q = call.tensor("q")
    output: Shape = None
    if q.shape is not None:
        heads = call.int_attr("num_heads")
        packed = heads if call.given("k") else heads + 2 * call.int_attr("kv_num_heads")
        output = (q.shape[0], shared_out(call, q.shape[1] * heads, packed, "queries, keys and values are packed"))
    return call.fit(tensor(q.dtype, output, q.device), call.tensor("key_cache"), call.tensor("value_cache"))


def _infer_packed(call: OpCall) -> Type:
    """Sequences of a batch lie one after another: (tokens, features)."""
    x: TensorType = call.tensor("x")
    weights = call.maybe("w")
    values = call.maybe("v")
    width: Dim | None = None
    if weights is not None and weights.shape is not None:
        width = _projected(call, weights.shape[1])[2]
    elif values is not None and values.shape is not None:
        width = values.shape[-1]
    elif weights is None and values is None and x.shape is not None and len(x.shape) == 4:
        width = x.shape[1] * x.shape[3]
    return tensor(x.dtype, None if x.shape is None or width is None else (x.shape[0], width), x.device)


_MULTI = "int num_heads, float? scale, bool unidirectional=False, bool share_buffer=False"
_GROUPED = "int num_heads, int kv_num_heads, float? scale, float softcap=0.0, bool rotary=False, bool share_buffer=False"

_ATTENTION_ORT = (
    op(
        "nn.ort_attention(Tensor x, Tensor w, Tensor? b, Tensor? mask, Tensor? past, Tensor? bias, Tensor? past_length, *, int num_heads, "
        "int[] qkv_hidden_sizes=[], float? scale, bool unidirectional=False, bool share_buffer=False) -> (Tensor y, Tensor? present)",
        Family.ATTENTION,
        infer=_infer_fused,
        cost=_cost_fused,
        summary="Attention with its input projection; keys and values so far are one tensor.",
        ort=packs(packs_attention, "Attention"),
        attention=FusedAttention(),
    ),
    op(
        "nn.ort_quantized_attention(Tensor x, Tensor w, Tensor b, Tensor x_scale, Tensor w_scale, Tensor? mask, Tensor? x_zero_point, "
        "Tensor? w_zero_point, Tensor? past, *, int num_heads, int[] qkv_hidden_sizes=[], float? scale, bool unidirectional=False, "
        "bool share_buffer=False) -> (Tensor y, Tensor? present)",
        Family.ATTENTION,
        infer=_infer_fused,
        cost=_cost_fused,
        summary="Attention with a quantized input projection.",
        ort=packs(packs_quantized_attention, "QAttention"),
        attention=FusedAttention(),
    ),
    op(
        "nn.ort_multi_head_attention(Tensor q, Tensor? k, Tensor? v, Tensor? b, Tensor? mask, Tensor? bias, Tensor? past_key, "
        f"Tensor? past_value, Tensor? past_length, Tensor[] more, *, {_MULTI}) -> "
        "(Tensor y, Tensor? present_key, Tensor? present_value, Tensor? scores)",
        Family.ATTENTION,
        infer=_infer_multi_head,
        cost=_cost_multi_head,
        summary="Attention without projections; keys and values may be packed with the queries, or be the cache itself.",
        attention=FusedAttention(),
    ),
    op(
        "nn.group_query_attention(Tensor q, Tensor? k, Tensor? v, Tensor? past_key, Tensor? past_value, Tensor lengths, Dim total_length, "
        f"Tensor[] more, *, {_GROUPED}) -> (Tensor y, Tensor? present_key, Tensor? present_value, Tensor? scores)",
        Family.ATTENTION,
        infer=_infer_grouped,
        cost=_cost_grouped,
        summary="Attention with keys and values that several query heads share, and a cache.",
        attention=FusedAttention(is_causal=True),
    ),
    op(
        "nn.sparse_attention(Tensor q, Tensor? k, Tensor? v, Tensor? past_key, Tensor? past_value, Tensor block_rows, "
        f"Tensor block_columns, Dim total_length, Tensor lengths, Tensor[] more, *, {_GROUPED}, int sparse_block_size=64) -> "
        "(Tensor y, Tensor? present_key, Tensor? present_value)",
        Family.ATTENTION,
        infer=_infer_grouped,
        cost=Absent.UNKNOWN,
        summary="Attention over the blocks of keys that a table names; the cost depends on the table's values.",
        attention=FusedAttention(),
    ),
    op(
        "nn.paged_attention(Tensor q, Tensor? k, Tensor? v, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor cumulative_lengths, "
        f"Tensor past_lengths, Tensor block_table, Tensor[] more, *, {_GROUPED}) -> (Tensor y, Tensor(a)? keys, Tensor(b)? values)",
        Family.ATTENTION,
        infer=_infer_paged,
        cost=Absent.UNKNOWN,
        summary="Attention over a paged cache; the sequences' lengths, and so the cost, depend on values.",
        attention=FusedAttention(is_causal=True),
    ),
    op(
        "nn.packed_attention(Tensor x, Tensor? w, Tensor? v, Tensor? b, Tensor[] more, *, int num_heads, int[] qkv_hidden_sizes=[], "
        "float? scale) -> Tensor",
        Family.ATTENTION,
        infer=_infer_packed,
        cost=Absent.UNKNOWN,
        summary="Attention in sequences that lie one after another without padding; their lengths, and so the cost, depend on values.",
        attention=FusedAttention(),
    ),
)


# Whole parts of transformers as one operator: multi-head attention with its projections, encoder layers, experts.


def _infer_native_multi_head(call: OpCall) -> tuple[Type, ...]:
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


def _cost_native_multi_head(call: OpCall) -> Cost:
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


_TRANSFORMER = (
    op(
        "nn.multi_head_attention(Tensor q, Tensor k, Tensor v, Tensor w_qkv, Tensor? b_qkv, Tensor w_out, Tensor? b_out, Tensor? mask, *, "
        "int num_heads, bool batch_first=True, bool average_weights=True) -> (Tensor y, Tensor? weights)",
        Family.ATTENTION,
        infer=_infer_native_multi_head,
        cost=_cost_native_multi_head,
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
        summary="Feed-forward networks of which each token uses the `k` that a router picks; their weights lie one after another.",
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


OPS = (*_ATTENTION, *_ATTENTION_ORT, *_TRANSFORMER)
