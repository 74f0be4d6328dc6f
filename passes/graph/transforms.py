"""Passes that change the graph, write types onto it, or check it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from irscope.diagnostics import Diagnostic
from irscope.errors import PipelineError
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.places import Literal, Scalar
from irscope.ir.splicing import body_names, root_of, splice
from irscope.ir.types import TensorType, Type, tensor
from irscope.ir.verify import verify
from irscope.ops.facts import Control
from irscope.ops.registry import control_of, spec_of
from irscope.ops.values import is_symbolic
from irscope.passes.graph.folding import fold_weights
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes, contradictions
from irscope.passkit.base import Analysis, Pass, PassContext, Transform
from irscope.passkit.pipeline import pipeline_text
from irscope.report.report import Report


@dataclass(frozen=True)
class Annotate(Transform):
    """Write inferred types onto the values of the graph."""

    name: ClassVar[str] = "annotate"
    writes: ClassVar[tuple[Facet, ...]] = (Facet.TYPES,)

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = 0
        for value, inferred in ctx.get(Shapes).types.items():
            stated = value.type
            if stated is inferred:
                continue
            owner = value.graph
            type_ = inferred if stated.layout is None else _with_layout(inferred, stated)
            if stated is not type_ and owner is not None:
                owner.set_type(value, type_)
                changed += 1
        ctx.stat("types", changed)
        return changed > 0


def _with_layout(inferred: Type, stated: Type) -> Type:
    """Return the inferred type with the strides that the file states for a tensor of this shape: no rule infers them."""
    if stated.layout is None or inferred.layout is not None or stated.shape != inferred.shape:
        return inferred
    return tensor(inferred.dtype, inferred.shape, inferred.device, stated.layout)


@dataclass(frozen=True)
class DeadCode(Transform):
    """Dead code elimination: remove nodes and weights that no output depends on."""

    name: ClassVar[str] = "dce"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        removed = 0
        bodies, changeable = list(ctx.program.bodies()), set(ctx.program.changeable())
        kept: dict[Graph, bool] = {}
        # Inner regions come last in the list, so their nodes go first and free what they captured.
        for body in reversed(bodies):
            node = body.last if body in changeable else None
            while node is not None:
                before = node.prev
                if not any(output.users for output in node.outputs) and not has_effect(node, kept):
                    body.erase(node)
                    removed += 1
                node = before
            kept[body] = any(has_effect(node, kept) for node in body)
        weights = 0
        for body in changeable:
            unread = [weight for weight in body.weights if not weight.users]
            body.remove_weights(unread)
            weights += len(unread)
        ctx.stat("nodes", removed)
        ctx.stat("weights", weights)
        return bool(removed or weights)


def has_effect(node: Node, bodies: dict[Graph, bool]) -> bool:
    """Return whether a node matters though nothing reads its results; foreign operators are assumed to."""
    if "inplace" in node.attrs:
        return True
    if any(bodies.get(region, True) for region in node.regions):
        return True
    spec = spec_of(node)
    return spec is None or spec.has_effect or bool(spec.writes)


@dataclass(frozen=True)
class Fold(Transform):
    """Constant folding: replace nodes of known small results by constants, branches by the body that runs, on request also weights."""

    name: ClassVar[str] = "fold"

    limit: int = 1024
    """Most elements of a result that becomes a constant."""
    weights: bool = False
    """Whether what is computed from weights alone becomes a weight, whatever its size; its values are computed when they are read."""
    largest: int = 1 << 30
    """Most bytes of such a weight."""

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        known = ctx.get(Shapes)
        values = known.values
        folded = weights = 0
        branches = _take_branches(known, ctx)
        for body in list(ctx.program.changeable()):
            inside_function = body is not graph and body.owner is None
            if inside_function or _runs_often(body):
                # What a loop's body computes may differ from step to step.
                continue
            for node in body:
                if _can_fold(node, values, self.limit):
                    for output in node.outputs:
                        if output.users:
                            name = output.name
                            body.rename(output, None)
                            body.replace_uses(output, _constant_weight(graph, output, name if body is graph else None, values[output]))
                    body.erase(node)
                    folded += 1
                elif self.weights and fold_weights(node, self.largest):
                    weights += 1
        ctx.stat("nodes", folded + weights)
        if weights:
            ctx.stat("weights", weights)
        if branches:
            ctx.stat("branches", branches)
        return bool(folded or weights or branches)


def _take_branches(known: Inferred, ctx: PassContext) -> int:
    """Put the body that runs in the place of each node whose condition is a constant, outer ones first; return how many."""
    names: dict[Graph, set[str]] = {}
    changeable = set(ctx.program.changeable())
    taken = 0
    for node, branch in known.branches.items():
        body = node.graph
        if branch.taken is None or branch.taken >= len(node.regions) or node in known.idle or body is None or _runs_often(body):
            continue
        region = node.regions[branch.taken]
        if len(region.outputs) != len(node.outputs) or region.inputs:
            continue
        stays = body not in changeable or any(inner.regions for inner in region)
        if ctx.program.file_nodes is not None and stays:  # graphs inside are written only as they were read, where they were
            continue
        root = root_of(body)
        yielded = splice(node, region, taken=names.setdefault(root, body_names(root)))
        for output, value in zip(node.outputs, yielded, strict=True):
            body.replace_uses(output, value)
        body.erase(node)
        taken += 1
    return taken


def _runs_often(body: Graph) -> bool:
    """Return whether a region may run more than once, on its own account or that of a region around it."""
    while body.owner is not None:
        if control_of(body.owner) is not Control.BRANCH:
            return True
        outer = body.owner.graph
        if outer is None:
            return True
        body = outer
    return False


def _can_fold(node: Node, values: dict[Value, np.ndarray[Any, Any]], limit: int) -> bool:
    spec = spec_of(node)
    if spec is None or spec.random or spec.has_effect or spec.writes or "inplace" in node.attrs or node.regions or not node.outputs:
        return False
    for output in node.outputs:
        known = values.get(output)
        if output.users and (known is None or known.size > limit or is_symbolic(known) or not isinstance(output.type, TensorType)):
            return False
    return any(output.users for output in node.outputs)


def _constant_weight(graph: Graph, output: Value, name: str | None, known: np.ndarray[Any, Any]) -> Value:
    items: list[Scalar] = known.reshape(-1).tolist()
    type_ = output.type.with_shape(known.shape)
    return graph.add_weight(type_, name, Role.CONSTANT, Literal(tuple(items)))


# Transforms repeated until none of them changes the graph.


@dataclass(frozen=True)
class Fixpoint(Transform):
    """Repeat transforms until none of them changes the graph."""

    name: ClassVar[str] = "fixpoint"

    body: tuple[Pass, ...]
    max: int = 10
    """Maximum number of rounds."""

    def __post_init__(self) -> None:
        wrong = [statement.name for statement in self.body if not isinstance(statement, Transform)]
        if wrong:
            raise PipelineError(f"fixpoint repeats transforms, and {wrong[0]!r} is an analysis", code="IRS604")

    @property
    def text(self) -> str:
        return f"{super().text}({pipeline_text(self.body)})"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = False
        for _ in range(self.max):
            ctx.stat("rounds")
            if not any([ctx.apply(statement) for statement in self.body if isinstance(statement, Transform)]):
                break
            changed = True
        return changed


@dataclass(frozen=True)
class Verify(Analysis[tuple[Diagnostic, ...]]):
    """Check the graph against the rules of the IR, and its nodes against those of their operators."""

    name: ClassVar[str] = "verify"
    known_of_weights: ClassVar[tuple[str, ...]] = ("problems", "problem")

    def compute(self, graph: Graph, ctx: PassContext) -> tuple[Diagnostic, ...]:
        # Operators are asked about a graph that can be walked.
        return tuple(verify(ctx.program)) or tuple(contradictions(ctx.get(Shapes), ctx.program))

    def report(self, result: tuple[Diagnostic, ...], ctx: PassContext) -> Report:
        return Report(self.name, self.text, {"nodes": ctx.program.node_count, "problems": len(result)}, diagnostics=result)
