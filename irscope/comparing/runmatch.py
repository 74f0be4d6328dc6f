"""Which recorded operator carries out which node: by name, then by operator, module and order."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from irscope.comparing.align import align, rising
from irscope.comparing.layouts import owners
from irscope.comparing.matching import How
from irscope.comparing.side import Side
from irscope.ir.graph import Node
from irscope.ops.registry import find_op
from irscope.ops.spec import Family
from irscope.recording import OpRecord, Recording

_LAYOUT = re.compile(r"Memcpy(To|From)Host|Reorder(In|Out)put|(Memcpy|Transpose).*_token_\d+")
"""Operators that ONNX Runtime inserts between nodes."""


@dataclass
class RunMatching:
    """Operators by node and nodes by operator; a fused operator has several nodes, and a composite node several operators."""

    ops_of: dict[int, list[int]] = field(default_factory=dict)
    nodes_of: dict[int, list[int]] = field(default_factory=dict)
    how: dict[int, How] = field(default_factory=dict)
    """By operator."""

    def pair(self, node: int, op: int, how: How) -> None:
        """An operator carries out a node."""
        self.ops_of.setdefault(node, []).append(op)
        self.nodes_of.setdefault(op, []).append(node)
        self.how.setdefault(op, how)


def match_recording(side: Side, recording: Recording) -> RunMatching:
    """Match what was recorded with the nodes of the main graph, by their steps."""
    found = RunMatching()
    steps = side.timeline.steps
    names = {output.name: step for step, node in enumerate(steps) for output in node.outputs if output.name is not None}
    for step, indices in sorted(owners(steps, recording.ops, names).items()):
        for index in indices:
            found.pair(step, index, How.NAME)
    keys: tuple[tuple[Callable[[Node], Hashable], Callable[[OpRecord], Hashable]], ...] = (
        (lambda node: (_kind(node.source), node.scope.path, _types(node)), lambda op: (_kind(op.op), op.scope, op.outputs)),
        (lambda node: (_kind(node.source), node.scope.path), lambda op: (_kind(op.op), op.scope)),
        (lambda node: (_kind(node.source), _types(node)), lambda op: (_kind(op.op), op.outputs)),
        (lambda node: _kind(node.source), lambda op: _kind(op.op)),
    )
    for of_node, of_op in keys:
        _by_order(steps, recording.ops, found, of_node, of_op)
    return found


def _by_order(
    steps: Sequence[Node],
    ops: Sequence[OpRecord],
    found: RunMatching,
    of_node: Callable[[Node], Hashable],
    of_op: Callable[[OpRecord], Hashable],
) -> None:
    """Align the nodes that are still unmatched between two matched neighbours, in order."""
    known: dict[Hashable, int] = {}
    edges = [(-1, -1), *spine(found), (len(steps), len(ops))]
    for (low_node, low_op), (high_node, high_op) in pairwise(edges):
        nodes = [step for step in range(low_node + 1, high_node) if step not in found.ops_of]
        left = [op for op in range(low_op + 1, high_op) if op not in found.nodes_of]
        if nodes and left:
            first = [known.setdefault(of_node(steps[step]), len(known)) for step in nodes]
            second = [known.setdefault(of_op(ops[op]), len(known)) for op in left]
            for x, y in align(first, second):
                found.pair(nodes[x], left[y], How.ORDER)


def spine(found: RunMatching) -> list[tuple[int, int]]:
    """A longest list of pairs of step and operator in the same order on both sides; a fused operator counts with its first step."""
    first: dict[int, int] = {}
    for op, steps in sorted(found.nodes_of.items()):
        first.setdefault(min(steps), op)
    return rising(sorted(first.items()))


def _kind(name: str) -> str:
    """An operator without the parts that say whose it is: aten::relu_, onnx::Conv@11, com.microsoft::Gelu."""
    return name.rpartition("::")[2].partition("@")[0].partition(".")[0].strip("_").lower()


def _types(node: Node) -> tuple[str, ...]:
    return tuple([output.type.text for output in node.outputs])


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A node that nothing recorded carries out, or a recorded operator without a node."""

    side: str
    """node or recorded."""
    name: str
    operator: str
    module: str
    reason: str


def folded(steps: Sequence[Node], recording: Recording) -> frozenset[int]:
    """Steps of nodes that were constant-folded or removed before the first run."""
    names = frozenset(recording.mapping.folded) if recording.mapping is not None else frozenset()
    return frozenset(step for step, node in enumerate(steps) if names and node.name in names)


def unmatched(side: Side, recording: Recording, found: RunMatching) -> Iterator[Unmatched]:
    """Everything without a counterpart, with the reason: nodes first."""
    steps = side.timeline.steps
    last = max(found.ops_of, default=-1)
    gone = folded(steps, recording)
    for step, node in enumerate(steps):
        if step not in found.ops_of:
            reason = "computed or taken out before the first run" if step in gone else _why_not_run(node, recording, step > last)
            yield Unmatched("node", node.name, node.op, node.scope.module, reason)
    for op in recording.ops:
        if op.index not in found.nodes_of:
            name = op.sources[0] if op.sources else ""
            yield Unmatched("recorded", name or f"#{op.index}", op.op, op.scope.replace("/", "."), _why_unknown(op))


def _why_not_run(node: Node, recording: Recording, is_behind: bool) -> str:
    if not recording.ops:
        return "the recording has no operators"
    if is_behind and not recording.complete:
        return "the recording ends before it"
    spec = find_op(node.op)
    if spec is not None and spec.family is Family.VIEW:
        return "a view: the runtime had nothing to do for it"
    if recording.header.executor.startswith("ort"):
        return "no kernel names it: ONNX Runtime folded it, or took it out"
    return "nothing recorded has its name, or its operator and module at this place"


def _why_unknown(op: OpRecord) -> str:
    if _LAYOUT.search(op.op):
        return "the runtime put it in: a copy between devices or into another layout"
    if op.sources:
        return f"the model has no node {op.sources[0]}"
    return "no node has its operator and module at this place"
