"""What ONNX Runtime's transformers are registered with, and what they are told of the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode
from irscope.immutable import immutable

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"


@dataclass
class Session:
    """What the session runs on, and what was done."""

    provider: str = CPU
    block: int = 16
    """Channels of a block of the NCHWc layout: 16 with AVX-512, 8 with AVX2, 1 for none."""
    without: Set[str] = frozenset()
    """Transformers that the release does not have."""
    reordered: Sequence[str] = ()
    """Values reordered back from blocks, in the order in which one session happened to do that."""
    applied: list[tuple[int, str]] = field(default_factory=list)
    """Transformers that changed the graph: the level and the name, in order."""


Apply: TypeAlias = Callable[[OrtGraph, Session], bool]
"""Works on one graph and those inside its nodes, and tells whether anything changed."""
Rewrite: TypeAlias = Callable[[OrtGraph, OrtNode], bool]
"""Looks at one node, and tells whether anything changed."""


@immutable(slots=False)
class Rule:
    name: str
    ops: frozenset[str]
    rewrite: Rewrite


TRANSFORMERS: dict[str, Apply] = {}
RULES: dict[str, Rule] = {}


def transformer(*names: str) -> Callable[[Apply], Apply]:
    """Register what ONNX Runtime's transformers of these names do; the driver's ORDER says at which level and when."""

    def register(apply: Apply) -> Apply:
        for name in names:
            TRANSFORMERS[name] = apply
        return apply

    return register


def per_node(*names: str) -> Callable[[Rewrite], Rewrite]:
    """Register a transformer that goes through the nodes in topological order, into the graphs inside each first."""

    def register(rewrite: Rewrite) -> Rewrite:
        def apply(graph: OrtGraph, session: Session) -> bool:
            changed = False
            for node in graph.order():
                if graph.nodes.get(node.index) is not node:
                    continue
                for body in node.bodies.values():
                    changed |= apply(body, session)
                changed |= rewrite(graph, node)
            return changed

        transformer(*names)(apply)
        return rewrite

    return register


def rule(name: str, *ops: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rule of the rule-based transformers, for nodes of these operators."""

    def register(rewrite: Rewrite) -> Rewrite:
        RULES[name] = Rule(name, frozenset(ops), rewrite)
        return rewrite

    return register
