"""Steps past nodes that only view, convert or scale; masks of triangles; attention, as one operator or as two products around softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from irscope.immutable import immutable
from irscope.ir.graph import Node, Role, Value
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType
from irscope.ops.facts import Control, FusedAttention, OpRole
from irscope.ops.registry import attention_of, control_of, factors_of, plays, spec_of
from irscope.ops.spec import Family, OpSpec
from irscope.ops.values import from_bytes, numpy_dtype, static_shape
from irscope.weights.source import Unreadable, WeightFiles

_FAR = 4096
_COPIES = frozenset({OpRole.COPY})
_PASSED = frozenset({OpRole.COPY, OpRole.RECODES, OpRole.SPREAD})
"""Roles of operators that are passed, besides views, on the way back to a value's source."""


def chosen(nodes: Iterable[Node], wanted: Callable[[OpSpec], bool]) -> Iterator[Node]:
    """Yield the nodes whose operators are wanted; each operator's record is asked once."""
    told: dict[str, bool] = {}
    for node in nodes:
        is_wanted = told.get(node.op)
        if is_wanted is None:
            spec = spec_of(node)
            is_wanted = told[node.op] = spec is not None and wanted(spec)
        if is_wanted:
            yield node


def family(node: Node) -> Family | None:
    """Return what kind of work a node does; None where irscope has no record."""
    spec = spec_of(node)
    return None if spec is None else spec.family


def is_product(node: Node) -> bool:
    """Return whether a node multiplies matrices."""
    return factors_of(node) is not None


def is_filter(node: Node) -> bool:
    """Return whether a node slides filters over windows, in floats or in integers."""
    return family(node) is Family.CONVOLUTION or plays(node, OpRole.FILTERS)


def weights_of(node: Node) -> list[Value]:
    """Return the constant matrices that a product multiplies by: a plain factor, or one that is stored as codes."""
    spec = spec_of(node)
    if spec is None or not (is_product(node) or OpRole.CODED_PRODUCT in spec.roles):
        return []
    operands = node.inputs if spec.codes is None else node.inputs[spec.codes.weight : spec.codes.weight + 1]
    return [operand for operand in operands if operand is not None and is_constant(operand)]


def is_view(node: Node) -> bool:
    """Return whether a node only shows, copies or converts its first operand."""
    spec = spec_of(node)
    return spec is not None and (spec.family is Family.VIEW or not spec.roles.isdisjoint(_COPIES))


def is_passed(node: Node) -> bool:
    """Return whether a node leaves its first operand what it is: a view, a copy, or the same elements as codes."""
    return is_view(node) or plays(node, OpRole.RECODES)


def source(value: Value | None) -> Value | None:
    """Return the value that views, copies and conversions come from."""
    for _ in range(_FAR):
        node = None if value is None else value.node
        spec = None if node is None else spec_of(node)
        if node is None or spec is None or not (spec.family is Family.VIEW or not spec.roles.isdisjoint(_PASSED)) or not node.inputs:
            break
        value = node.inputs[0]
    return value


def producer(value: Value | None) -> Node | None:
    """Return the node that computes a value, past views."""
    found = source(value)
    return None if found is None else found.node


def back(value: Value | None, until: Callable[[Node], bool], passing: Callable[[Node], bool]) -> tuple[Node | None, list[Node]]:
    """Backwards through nodes that may be passed, to the nearest one that is looked for.

    Gives that node, or None, and the nodes on the way. Constants and conditions are not followed.
    """
    pending: list[tuple[Value | None, tuple[Node, ...]]] = [(value, ())]
    for _ in range(_FAR):
        if not pending:
            break
        at, way = pending.pop(0)
        node = None if at is None else at.node
        if node is None:
            continue
        if until(node):
            return node, list(way)
        if is_passed(node) or passing(node):
            pending += [(operand, (*way, node)) for operand in _carried(node)]
    return None, []


def _carried(node: Node) -> list[Value]:
    """Return the operands whose values may come through: not a condition, not what a view is told, no constants."""
    operands = node.inputs[1:] if plays(node, OpRole.SELECT) else node.inputs[:1] if is_passed(node) else node.inputs
    return [operand for operand in operands if operand is not None and not is_constant(operand)]


def is_constant(value: Value) -> bool:
    """Return whether a value is a weight, or made from weights and nothing else by views and conversions."""
    found = source(value)
    if found is None:
        return False
    if found.role in (Role.PARAMETER, Role.BUFFER, Role.CONSTANT):
        return True
    node = found.node
    return node is not None and family(node) is Family.CREATION and not any(node.inputs)


def users(values: Iterable[Value]) -> list[Node]:
    """Return the nodes that read any of the values, each once."""
    nodes: dict[Node, None] = {}
    for value in values:
        for user in value.users or ():
            if isinstance(user, Node):
                nodes[user] = None
    return list(nodes)


def escapes(value: Value) -> bool:
    """Return whether a graph returns the value."""
    return any(not isinstance(user, Node) for user in value.users or ())


def ancestors(value: Value | None, limit: int, through: Callable[[Node], bool] = lambda node: True) -> list[Node]:
    """Return nodes that a value depends on, nearest first, at most so many; what lies behind a node that may not be passed is left out."""
    nodes: dict[Node, None] = {}
    pending = [value]
    while pending and len(nodes) < limit:
        node = None if (waiting := pending.pop(0)) is None else waiting.node
        if node is None or node in nodes:
            pending.extend(_given_to_loop(waiting))
            continue
        nodes[node] = None
        if through(node):
            pending.extend(node.inputs)
    return list(nodes)


def _given_to_loop(value: Value | None) -> list[Value | None]:
    """Return what the argument of a loop's body is at first."""
    graph = None if value is None or value.role is not Role.ARGUMENT else value.declared_in
    if value is None or graph is None or graph.owner is None or control_of(graph.owner) is not Control.LOOP:
        return []
    at = graph.inputs.index(value)
    return [*graph.owner.inputs[at : at + 1]]


# Whether a small constant is a causal mask: everything above its diagonal says one thing, nothing else says it.

Array: TypeAlias = "np.ndarray[Any, Any]"
MAX_BYTES = 1 << 20
"""Larger constants are not read; a mask for 1,024 places has so many bytes."""


class Triangles:
    """Tells which constants are triangles, each once; files are those that weights may be read from."""

    def __init__(self, files: WeightFiles | None = None) -> None:
        self._files = files
        self._known: dict[Value, bool] = {}

    def __call__(self, value: Value) -> bool:
        """Return whether the value is a square constant that separates later from earlier positions. Parameters are never read."""
        if value.role not in (Role.BUFFER, Role.CONSTANT):
            return False
        cached = self._known.get(value)
        if cached is None:
            cached = self._known[value] = self._is_triangle(value)
        return cached

    def _is_triangle(self, value: Value) -> bool:
        type_, owner = value.type, value.graph
        if not isinstance(type_, TensorType) or owner is None or self._files is None:
            return False
        shape = static_shape(type_)
        if shape is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            return False
        array = self._array(owner.data.get(value), type_, shape)
        if array is None or not array.size:
            return False
        square = array.reshape(-1, shape[-1], shape[-1])[0]
        return bool(np.array_equal(square == square[0, -1], np.triu(np.ones(square.shape, bool), 1)))

    def _array(self, data: Payload | None, type_: TensorType, shape: tuple[int, ...]) -> Array | None:
        if isinstance(data, Literal):
            return np.array(data.values, numpy_dtype(type_.dtype)).reshape(shape)
        if self._files is None:
            return None
        try:
            place = self._files.find(data)
            if place.length > MAX_BYTES:
                return None
            content = bytearray(place.length)
            self._files.read_into(place, 0, memoryview(content))
        except Unreadable:
            return None
        return from_bytes(bytes(content), type_)


_ARITHMETIC = (OpRole.ADD, OpRole.SUBTRACT, OpRole.MULTIPLY, OpRole.DIVIDE)
_SCALES = (*_ARITHMETIC, OpRole.SELECT, OpRole.FILL, OpRole.LIMIT)
"""Roles of operators that may lie between scores and their softmax: scales, masks and limits."""
_SOFTMAXES = frozenset({OpRole.SOFTMAX, OpRole.NAMED_OPERATION, OpRole.DIVIDE})
_WEIGHS = (OpRole.MULTIPLY, OpRole.SELECT, OpRole.FILL)
"""Roles of operators that may lie between a softmax and the product with values, as dropout writes it."""
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
    """Yield every attention of the nodes, in order; constant masks are looked at where `triangles` may read them."""
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
            scores = _written_out(node) if plays(node, OpRole.DIVIDE) else node.inputs[0]
            attention = None if scores is None else _decomposed(node, scores, triangles)
            if attention is not None:
                yield attention


def _written_out(division: Node) -> Value | None:
    """Return the scores of a softmax that is written out: exponentials over the sum of the same. None for scores of a product with an input
    of the graph: where parameters are inputs, it weighs experts."""
    exponential, total = (producer(operand) for operand in division.inputs[:2])
    if exponential is None or total is None or not plays(exponential, OpRole.EXPONENTIAL) or family(total) is not Family.REDUCTION:
        return None
    if producer(total.inputs[0]) is not exponential:
        return None
    less = producer(exponential.inputs[0])
    scores = exponential.inputs[0] if less is None or not plays(less, OpRole.SUBTRACT) else less.inputs[0]
    product, _ = (None, None) if scores is None else back(scores, is_product, _scales)
    factors = [] if product is None else [source(factor) for factor in _factors_of_product(product)]
    weighed = [factor is not None and factor.role is Role.INPUT for factor in factors]
    return None if any(weighed) and not all(weighed) else scores


def _decomposed(softmax: Node, start: Value | None, triangles: Triangles) -> Attention | None:
    """Return the attention around a softmax: scores from a product of two activations before it, a product with a third behind it."""
    scores, before = back(start, _mixes_activations, _scales)
    if scores is None:
        return None
    mixed, behind = _forward(softmax)
    if mixed is None:
        return None
    between = [node for node in before if node is not scores]
    # What a softmax is written out of lies between the scores and the division.
    inside = (
        [node for node in ancestors(softmax.inputs[1], _MASK_DEPTH) if node.order > scores.order] if plays(softmax, OpRole.DIVIDE) else []
    )
    nodes = sorted({scores, softmax, mixed, *between, *inside, *behind}, key=lambda node: node.order)
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
    """Return the two factors of a product."""
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
    """Return the hidden state that queries or keys are projected from."""
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
