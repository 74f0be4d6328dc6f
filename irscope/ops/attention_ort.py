"""Attention operators of ONNX Runtime: projections folded in, packed operands, caches that are shared or paged."""

from __future__ import annotations

from irscope.ir.dims import Dim, dim_max, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.attention import attending, hidden_pairs, shared_out
from irscope.ops.cost import Cost
from irscope.ops.ort import packs, packs_attention
from irscope.ops.spec import Absent, Family, FusedAttention, OpCall, RuleError, UnknownCost, op, sizes
from irscope.ops.work import products


def _projected(call: OpCall, width: Dim) -> tuple[Dim, Dim, Dim]:
    """Features of queries, keys and values out of one projection of this width."""
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
    """The projection of all rows, then attention over what is remembered and what is new."""
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
    """Sizes of the output, both caches and the scores."""
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
    """The size of a head, and the length of the new keys."""
    heads, shared = call.int_attr("num_heads"), call.int_attr("kv_num_heads")
    if not call.given("k"):
        return shared_out(call, q[-1], heads + 2 * shared, "queries, keys and values are packed"), q[1]
    k = call.shape("k")
    return shared_out(call, q[-1], heads, "heads share the features"), q[1] if k is None or len(k) != 3 else k[1]


def _present(call: OpCall, q: tuple[Dim, ...], size: Dim) -> Shape:
    """The cache after the call: as long as the one before, or as the longest sequence so far where that is longer."""
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
    """Sequences of a batch lie behind one another: (tokens, features)."""
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

OPS = (
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
        summary="Attention in sequences that lie behind one another without padding; their lengths, and so the cost, depend on values.",
        attention=FusedAttention(),
    ),
)
