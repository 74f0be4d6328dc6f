"""Attention masks that transformers materialises for the exporter, and omits in a run where they mask nothing, or only the future.

See `_ignore_bidirectional_mask_sdpa` and `_ignore_causal_mask_sdpa` in its masking_utils.py. Attention has other kernels then.
"""

from __future__ import annotations

import re

import numpy as np

from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Loc, Scope
from irscope.ops.registry import attention_of, find_op, plays
from irscope.ops.spec import Family, Known, OpCall, OpRole
from irscope.passes.cuda.changes import Changes
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.walk import family

_MAKES_MASK = re.compile(r"create_\w*mask\w*\(").search
_LIBRARY = "/transformers/"


def leave_out_masks(graph: Graph, types: Inferred, changes: Changes) -> None:
    """Note what runs without such masks."""
    statements: dict[tuple[Scope, Loc], list[Node]] = {}
    known: dict[int, Loc | None] = {}
    for node in graph:
        # A statement's nodes share one location, so that it is analysed once.
        key = id(node.loc)
        statement = known[key] if key in known else known.setdefault(key, _masking_statement(node))
        if statement is not None:
            statements.setdefault((node.scope, statement), []).append(node)
    for nodes in statements.values():
        masks = [node.outputs[0] for node in nodes if family(node) is Family.COMPARISON and len(node.outputs) == 1]
        if any([_leave_out(mask, types, changes) for mask in masks]):
            changes.may_go.update(nodes)


def _masking_statement(node: Node) -> Loc | None:
    """The statement of transformers that makes masks and that a node belongs to."""
    at = node.loc
    while at is not None:
        if _LIBRARY in at.file.replace("\\", "/") and _MAKES_MASK(at.statement):
            return at
        at = at.caller
    return None


def _leave_out(mask: Value, types: Inferred, changes: Changes) -> bool:
    """Record the changes if this mask is not materialised; False where something else depends on it."""
    known = _values(mask, types)
    if known is None or not (known.all() or _is_causal(known)):
        return False
    follower = _Follower(types, causal=not known.all())
    if not follower.follow(mask):
        return False
    changes.instead.update(follower.instead)
    for node, place in follower.unmasked.items():
        changes.dropped[node] = ({place: None}, {"is_causal": follower.causal})
    return True


def _values(mask: Value, types: Inferred) -> Known | None:
    """The values of a mask that depends on positions only."""
    found, node = types.values.get(mask), mask.node
    if found is not None or node is None:
        return found
    spec = find_op(node.op)
    values = [None if value is None else types.values.get(value) for value in node.inputs]
    if spec is None or spec.evaluate is None or any(known is None and value for known, value in zip(values, node.inputs, strict=True)):
        return None
    operands = [None if value is None else types.type_of(value) for value in node.inputs]
    answer = spec.evaluate(OpCall(spec, operands, node.attrs, values, [types.type_of(mask)]))
    return answer if isinstance(answer, np.ndarray) and answer.dtype == np.bool_ else None


def _is_causal(known: Known) -> bool:
    if known.ndim < 2 or known.shape[-1] != known.shape[-2] or known.size != known.shape[-1] ** 2:
        return False
    return bool(np.array_equal(known.reshape(known.shape[-2:]), np.tri(known.shape[-1], dtype=bool)))


class _Follower:
    """The forward slice of one mask: everything that depends on it."""

    def __init__(self, types: Inferred, causal: bool) -> None:
        self._types = types
        self.causal = causal
        self.instead: dict[Value, Value] = {}
        self.unmasked: dict[Node, int] = {}
        """Attention whose mask goes, with the operand that it is."""
        self._zeros: set[Value] = set()
        """Additive masks."""

    def follow(self, mask: Value) -> bool:
        """False where something needs the mask."""
        pending = [mask]
        while pending:
            value = pending.pop()
            for user in value.users or ():
                if isinstance(user, Graph) or not self._accept(user, value, pending):
                    return False
        return True

    def _accept(self, user: Node, value: Value, pending: list[Value]) -> bool:
        place = user.inputs.index(value)
        if plays(user, OpRole.HANDS_ON_MASK) and place == 0:
            pending.append(user.outputs[0])
            if value in self._zeros:
                self._zeros.add(user.outputs[0])
            return True
        attention = attention_of(user)
        if attention is not None and attention.mask == place:
            self.unmasked[user] = place
            return not user.attrs.get("is_causal") and (not self.causal or _is_square(user, self._types))
        if self.causal:
            return False
        if plays(user, OpRole.SELECT) and place == 0:
            return self._choose(user, pending)
        other = user.inputs[1 - place] if plays(user, OpRole.ADD) and value in self._zeros else None
        if other is not None:
            self.instead[user.outputs[0]] = other
        return other is not None

    def _choose(self, user: Node, pending: list[Value]) -> bool:
        """Where nothing is masked, a select between scores and large negative numbers is the scores."""
        shown = user.inputs[1] if len(user.inputs) > 1 else None
        if shown is not None and not self._is_zero(shown):
            self.instead[user.outputs[0]] = shown
            return True
        if shown is None and user.attrs.get("x_value") != 0:
            return False
        self._zeros.add(user.outputs[0])
        pending.append(user.outputs[0])
        return True

    def _is_zero(self, value: Value) -> bool:
        known = self._types.values.get(value)
        return known is not None and known.size == 1 and known.dtype != object and not known.any()


def _is_square(node: Node, types: Inferred) -> bool:
    """Whether there are as many queries as keys."""
    query, key = map(types.type_of, node.inputs[:2])
    if not query.shape or not key.shape:
        return False
    return query.shape[-2] == key.shape[-2]
