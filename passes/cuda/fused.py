"""Modules that run as one operator in inference, while the exporter writes down the operators they would train with.

These are nn.MultiheadAttention and nn.TransformerEncoderLayer; the conditions are those in their `forward`.
"""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Node, Role, Value
from irscope.ir.places import Scope
from irscope.ops.registry import attention_of, find_op, plays
from irscope.ops.spec import Family, OpRole
from irscope.passes.cuda.changes import Changes, Fused

_ATTENTION, _LAYER = "MultiheadAttention", "TransformerEncoderLayer"
_ATTENTION_WEIGHTS = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
_LAYER_WEIGHTS = (
    *(f"self_attn.{name}" for name in _ATTENTION_WEIGHTS),
    *(f"{module}.{name}" for module in ("norm1", "norm2", "linear1", "linear2") for name in ("weight", "bias")),
)
_ACTIVATIONS = {"nn.relu": "relu", "nn.gelu": "gelu"}


def fuse_modules(graph: Graph, changes: Changes) -> None:
    """Note which module calls run as one operator."""
    calls = _calls(graph)
    done: set[Scope] = set()
    for scope, nodes in calls.items():
        if scope.cls == _LAYER:
            inner = next((other for other in calls if other.cls == _ATTENTION and scope in _above(other)), None)
            fused = _layer(scope, nodes, inner, calls[inner]) if inner is not None else None
            if fused is not None and inner is not None:
                done.add(inner)
        else:
            fused = _attention(scope, nodes) if scope not in done else None
        if fused is not None:
            changes.fused[nodes[-1]] = fused
            changes.absorbed.update(nodes[:-1])


def _calls(graph: Graph) -> dict[Scope, list[Node]]:
    """The nodes of each call of such a module, outer calls before inner."""
    around: dict[Scope, tuple[Scope, ...]] = {}
    found: dict[Scope, list[Node]] = {}
    for node in graph:
        for scope in _fusable(node.scope, around):
            found.setdefault(scope, []).append(node)
    return found


def _fusable(scope: Scope, around: dict[Scope, tuple[Scope, ...]]) -> tuple[Scope, ...]:
    """The calls of such modules that a scope is in, outermost first."""
    above: list[Scope] = []
    at: Scope | None = scope
    while at is not None and at not in around:
        above.append(at)
        at = at.parent
    known = around[at] if at is not None else ()
    for one in reversed(above):
        known = around[one] = (*known, one) if one.cls in (_ATTENTION, _LAYER) else known
    return known


def _above(scope: Scope) -> list[Scope]:
    return list(scope.chain[:-1])


def _entering(nodes: Sequence[Node]) -> list[Value]:
    """Tensors that a call is given, without weights."""
    made = {output for node in nodes for output in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None and value not in made)
    return [value for value in read if value.role in (Role.TEMPORARY, Role.INPUT)]


def _leaving(nodes: Sequence[Node]) -> list[Value]:
    """Results of a call that something reads."""
    inside = set(nodes)
    return [output for node in nodes for output in node.outputs if any(user not in inside for user in output.users or ())]


def _weights(scope: Scope, nodes: Sequence[Node], names: Sequence[str]) -> list[Value] | None:
    """The module's weights of these names; None where one is not used."""
    read = {value.name: value for node in nodes for value in node.inputs if value is not None and value.role is Role.PARAMETER}
    prefix = f"{scope.module}." if scope.module else ""
    found = [read.get(f"{prefix}{name}") for name in names]
    return None if any(value is None for value in found) else [value for value in found if value is not None]


def _attention(scope: Scope, nodes: Sequence[Node]) -> Fused | None:
    """The fused attention of a call, None where it does not run as one."""
    weights = _weights(scope, nodes, _ATTENTION_WEIGHTS)
    inputs = _entering(nodes)
    x = inputs[0] if inputs else None
    mask = inputs[1] if len(inputs) == 2 else None
    if weights is None or x is None or len(inputs) > 2 or not _is_batch_first(x, nodes) or (mask is not None and not _is_bool(mask)):
        return None
    heads = _heads(x, nodes)
    leaving = _leaving(nodes)
    output = next((value for value in leaving if value.type.shape == x.type.shape), None)
    if heads is None or heads % 2 or output is None:
        return None
    attrs: dict[str, Attr] = {"num_heads": heads}
    results = [output]
    if not any(attention_of(node) for node in nodes):
        found = _attention_weights(x, nodes, heads)
        if found is None:
            return None
        results.append(found[0])
        attrs["average_weights"] = found[1]
    if any(value not in results for value in leaving):
        return None
    return Fused("nn.multi_head_attention", (x, x, x, *weights, mask), attrs, "aten::_native_multi_head_attention", tuple(results))


def _is_bool(value: Value) -> bool:
    return value.type.dtype is DType.BOOL


def _is_batch_first(x: Value, nodes: Sequence[Node]) -> bool:
    """With the batch first, forward swaps the first two axes of what it is given, once for query, key and value."""
    readers = [node for node in nodes if x in node.inputs]
    swapped = {0, 1}
    return (
        x.type.rank == 3
        and len(readers) == 1
        and plays(readers[0], OpRole.TRANSPOSE)
        and {readers[0].attrs.get("axis0"), readers[0].attrs.get("axis1")} == swapped
    )


def _heads(x: Value, nodes: Sequence[Node]) -> int | None:
    batch, length = (x.type.shape or ())[:2]
    for node in nodes:
        shape = node.outputs[0].type.shape or () if node.outputs else ()
        if attention_of(node) and len(shape) == 4:
            return shape[1] if isinstance(shape[1], int) else None
        if plays(node, OpRole.SOFTMAX) and len(shape) == 3 and isinstance(shape[0], int) and isinstance(batch, int) and batch:
            return shape[0] // batch if shape[1] == length else None
    return None


def _attention_weights(x: Value, nodes: Sequence[Node], heads: int) -> tuple[Value, bool] | None:
    """The attention weights that a call returns, and whether they are averaged over the heads."""
    batch, length = (x.type.shape or ())[:2]
    outputs = [output for node in reversed(nodes) for output in node.outputs]
    for shape, averaged in (((batch, length, length), True), ((batch, heads, length, length), False)):
        found = next((output for output in outputs if output.type.shape == shape), None)
        if found is not None:
            return found, averaged
    return None


def _layer(scope: Scope, nodes: Sequence[Node], inner: Scope, inner_nodes: Sequence[Node]) -> Fused | None:
    """The fused encoder layer of a call, None where it does not run as one."""
    weights, attention = _weights(scope, nodes, _LAYER_WEIGHTS), _attention(inner, inner_nodes)
    inputs, leaving = _entering(nodes), _leaving(nodes)
    activation = next((_ACTIVATIONS[node.op] for node in nodes if node.op in _ACTIVATIONS), None)
    if weights is None or attention is None or activation is None or len(leaving) != 1 or not inputs:
        return None
    mask = attention.inputs[-1]
    if [value for value in inputs[1:] if value is not mask] or inputs[0].type.shape != leaving[0].type.shape:
        return None
    kinds = (find_op(node.op) for node in nodes)
    first = next((spec for spec in kinds if spec and (spec.factors or spec.family is Family.NORMALIZATION)), None)
    norm_first = first is not None and first.factors is None
    attrs = {"num_heads": attention.attrs["num_heads"], "activation": activation, "norm_first": norm_first}
    return Fused("nn.transformer_encoder_layer", (inputs[0], *weights, mask), attrs, "aten::_transformer_encoder_layer_fwd", (leaving[0],))
