"""Attention, as one operator or as matrix product, softmax and matrix product, with the masks that make it causal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from irscope.immutable import immutable
from irscope.ir.graph import Node, Value
from irscope.ops.facts import FusedAttention, OpRole
from irscope.ops.registry import attention_of, factors_of, plays
from irscope.ops.spec import Family
from irscope.passes.patterns.walk import (
    Triangles,
    ancestors,
    back,
    chosen,
    family,
    is_constant,
    is_passed,
    is_product,
    producer,
    source,
    users,
)

_ARITHMETIC = (OpRole.ADD, OpRole.SUBTRACT, OpRole.MULTIPLY, OpRole.DIVIDE)
_SCALES = (*_ARITHMETIC, OpRole.SELECT, OpRole.FILL, OpRole.LIMIT)
"""What may lie between scores and their softmax: scales, masks and limits."""
_SOFTMAXES = frozenset({OpRole.SOFTMAX, OpRole.NAMED_OPERATION})
_WEIGHS = (OpRole.MULTIPLY, OpRole.SELECT, OpRole.FILL)
"""What may lie between a softmax and the product with values, as dropout writes it."""
_MASK_DEPTH = 400
_NEAR = 12


@immutable(slots=False)
class Attention:
    """One attention: the nodes that do it, in order."""

    nodes: tuple[Node, ...]
    query: Value | None
    key: Value | None
    causal: bool
    why_causal: str = ""

    @property
    def is_fused(self) -> bool:
        return len(self.nodes) == 1

    @property
    def crosses(self) -> bool:
        """Return whether queries and keys come from two different states: an encoder's and a decoder's."""
        first, second = _state(self.query), _state(self.key)
        if first is None or second is None or first is second or is_constant(first) or is_constant(second):
            return False
        # Keys that were made from the queries' state, as where a sequence is shortened, are no other sequence; nor the other way round.
        return not _comes_from(second, first, _MASK_DEPTH) and not _comes_from(first, second, _NEAR)


def attentions(nodes: Iterable[Node], triangles: Triangles | None = None) -> Iterator[Attention]:
    """Every attention of the nodes, in order; constant masks are looked at where `triangles` may read them."""
    triangles = triangles or Triangles()
    for node in chosen(nodes, lambda spec: spec.attention is not None or not spec.roles.isdisjoint(_SOFTMAXES)):
        if plays(node, OpRole.NAMED_OPERATION) and node.attrs.get("op") != "softmax":
            continue
        form = attention_of(node)
        if form is not None:
            causal, why = _fused_is_causal(node, form, triangles)
            key = node.inputs[form.key if form.key < len(node.inputs) else form.query]
            yield Attention((node,), node.inputs[form.query], key, causal, why)
        else:
            found = _decomposed(node, triangles)
            if found is not None:
                yield found


def _decomposed(softmax: Node, triangles: Triangles) -> Attention | None:
    """The attention around a softmax: scores from a product of two activations before it, a product with a third behind it."""
    scores, before = back(softmax.inputs[0], _mixes_activations, _scales)
    if scores is None:
        return None
    mixed, behind = _forward(softmax)
    if mixed is None:
        return None
    between = [node for node in before if node is not scores]
    nodes = sorted({scores, softmax, mixed, *between, *behind}, key=lambda node: node.order)
    query, key = _factors_of_product(scores)
    masks = [operand for node in between for operand in node.inputs if operand is not None]
    causal, why = _masks_future(masks, triangles)
    return Attention(tuple(nodes), query, key, causal, why)


def _scales(node: Node) -> bool:
    return plays(node, *_SCALES)


def _mixes_activations(node: Node) -> bool:
    """Return whether a node is a product of two values that both change from run to run."""
    if not is_product(node):
        return False
    left, right = _factors_of_product(node)
    return left is not None and right is not None and not is_constant(left) and not is_constant(right)


def _factors_of_product(node: Node) -> tuple[Value | None, Value | None]:
    """The two factors of a product."""
    factors = factors_of(node)
    if factors is None or len(node.inputs) <= factors.right:
        return None, None
    return node.inputs[factors.left], node.inputs[factors.right]


def _forward(softmax: Node) -> tuple[Node | None, list[Node]]:
    """From a softmax to the product that mixes values with its weights, with the nodes on the way."""
    way: list[Node] = []
    value = softmax.outputs[0]
    for _ in range(16):
        readers = users([value])
        product = next((node for node in readers if _mixes_activations(node)), None)
        if product is not None:
            return product, way
        step = next((node for node in readers if is_passed(node) or plays(node, *_WEIGHS)), None)
        if step is None:
            break
        way.append(step)
        value = step.outputs[0]
    return None, way


def _fused_is_causal(node: Node, form: FusedAttention, triangles: Triangles) -> tuple[bool, str]:
    if node.attrs.get("is_causal"):
        return True, "it says so"
    if form.is_causal:
        return True, "the operator is"
    if node.attrs.get("unidirectional"):
        return True, "it says so"
    mask = () if form.mask is None else node.inputs[form.mask : form.mask + 1]
    return _masks_future([value for value in mask if value is not None], triangles)


def _masks_future(masks: Iterable[Value], triangles: Triangles) -> tuple[bool, str]:
    """Return whether one of the masks is made by cutting off a triangle, or by comparing positions with positions."""
    for mask in masks:
        if is_product_of_activations(mask):
            continue
        for node in ancestors(mask, _MASK_DEPTH, _makes_masks):
            if plays(node, OpRole.TRIANGLE):
                return True, f"{node.name} cuts off a triangle"
            if plays(node, OpRole.ORDER) and _compares_positions(node):
                return True, f"{node.name} compares positions with positions"
            for operand in node.inputs:
                if operand is not None and triangles(operand):
                    return True, f"the constant {operand.name} cuts off a triangle"
        if triangles(mask):
            return True, f"the constant {mask.name} cuts off a triangle"
    return False, ""


def _makes_masks(node: Node) -> bool:
    """Return whether what a node is given may still be part of a mask: scores, and what is looked up by place, are not."""
    return not is_product(node) and family(node) not in (Family.INDEXING, Family.SOFTMAX, Family.NORMALIZATION)


def _compares_positions(node: Node) -> bool:
    """Return whether both sides count places, or a difference of places is compared with a number."""
    if len(node.inputs) == 2 and all(_is_position(operand) for operand in node.inputs):
        return True
    difference = producer(node.inputs[0]) if node.inputs else None
    return difference is not None and plays(difference, OpRole.SUBTRACT) and all(_is_position(operand) for operand in difference.inputs)


def is_product_of_activations(value: Value) -> bool:
    """Return whether a value is the scores themselves, not a mask for them."""
    node, _ = back(value, _mixes_activations, _scales)
    return node is not None


def _comes_from(value: Value, origin: Value, limit: int) -> bool:
    return any(origin is operand for node in ancestors(value, limit) for operand in node.inputs)


def _is_position(value: Value | None) -> bool:
    """Return whether a value counts places: it comes from arange or a running sum."""
    return any(plays(node, OpRole.RANGE, OpRole.RUNNING_SUM) for node in ancestors(value, 40))


def _state(value: Value | None) -> Value | None:
    """The hidden state that queries or keys are projected from."""
    for _ in range(64):
        value = source(value)
        node = None if value is None else value.node
        if node is None:
            return value
        factors = factors_of(node)
        if factors is not None and any(operand is not None and is_constant(operand) for operand in node.inputs):
            return source(node.inputs[factors.left])
        if family(node) not in (Family.ELEMENTWISE, Family.NORMALIZATION, Family.MOVE, Family.INDEXING, Family.CONVOLUTION):
            return value
        value = next((operand for operand in node.inputs if operand is not None and not is_constant(operand)), None)
    return value
