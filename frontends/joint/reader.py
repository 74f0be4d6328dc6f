"""Reads fx graphs that hold forward and backward, such as AOTAutograd's joint graphs, as problems of checkpointing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from irscope.frontends.joint.times import SIMPLE_COSTS, CostModel, flops_of, moved_bytes
from irscope.memory.checkpointing.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, make_problem

_EFFECTS = {"aten.native_batch_norm.default", "aten.cudnn_batch_norm.default", "aten.miopen_batch_norm.default"}
"""Operators that change operands although their schemas do not say so."""


@dataclass
class JointGraph:
    """A joint graph, and what its placeholders and outputs are."""

    graph: torch.fx.Graph
    kept: set[torch.fx.Node] = field(default_factory=set)
    """Placeholders that stay after the step: parameters and buffers."""
    forward_outputs: list[torch.fx.Node] = field(default_factory=list)
    """What the forward gives; only needed where nodes carry no tags."""
    forward_count: int = 1
    """How many of the graph's outputs are the forward's; they come first."""


def read_problem(
    joint: JointGraph,
    costs: CostModel = SIMPLE_COSTS,
    *,
    replay_random: bool = True,
    seconds: Callable[[torch.fx.Node], float] | None = None,
    launch_views: bool = True,
) -> CheckpointProblem:
    """The problem of what to keep from the forward of a joint graph to its backward.

    With `launch_views` a view counts as a launch, with the operator that uses it first.
    """
    known = seconds or (lambda node: costs.seconds(flops_of(node), moved_bytes(node)))
    return _Reader(joint, known, costs.launch_seconds if launch_views else 0.0).read(replay_random)


class _Reader:
    def __init__(self, joint: JointGraph, seconds: Callable[[torch.fx.Node], float], view_seconds: float) -> None:
        self.joint = joint
        self.seconds = seconds
        self.view_seconds = view_seconds
        self.views: set[torch.fx.Node] = set()
        """Views that no operator has used yet."""
        self.numbers: dict[int, int] = {}
        self.storages: list[StepStorage] = []
        self.forward = _ancestors(joint.forward_outputs) if joint.forward_outputs else set()

    def read(self, replay_random: bool) -> CheckpointProblem:
        operators: list[StepOperator] = []
        for node in self.joint.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                for tensor in tensors_of(node):
                    self._number(tensor, node.name, is_input=True)
            elif node.op == "call_function" and node.target is not operator.getitem:
                made = self._operator(node)
                if made is not None:
                    operators.append(made)
        results = {self._number(one) for node in self._outputs() for one in tensors_of(node)}
        kept = {self._number(one) for node in self.joint.graph.nodes if self._stays(node) for one in tensors_of(node)}
        storages = [
            StepStorage(one.name, one.size, one.is_input, (number in results) or (number in kept))
            for number, one in enumerate(self.storages)
        ]
        return make_problem(operators, storages, replay_random=replay_random)

    def _stays(self, node: torch.fx.Node) -> bool:
        return node.op == "get_attr" or node in self.joint.kept

    def _outputs(self) -> Iterator[torch.fx.Node]:
        for node in self.joint.graph.nodes:
            if node.op == "output":
                yield from node.all_input_nodes

    def _operator(self, node: torch.fx.Node) -> StepOperator | None:
        known = len(self.storages)
        sources = [tensor for one in node.all_input_nodes for tensor in tensors_of(one)]
        reads = {self._number(tensor) for tensor in sources}
        changed = {self._number(tensor) for one in changed_by(node) for tensor in tensors_of(one)}
        made = {self._number(tensor, node.name) for tensor in tensors_of(node)}
        new = {number for number in made if number >= known}
        if not new and not changed:
            self.views.add(node)
            return None
        return StepOperator(
            node.name,
            tuple(reads),
            tuple(new | changed),
            self.seconds(node) + self.view_seconds * self._views_before(node),
            self._phase(node),
            _repeat(node),
            module=_module(node),
        )

    def _views_before(self, node: torch.fx.Node) -> int:
        """Views that an operator uses first."""
        count, stack = 0, [node]
        while stack:
            for source in stack.pop().all_input_nodes:
                if source in self.views:
                    self.views.discard(source)
                    count += 1
                    stack.append(source)
                elif source.target is operator.getitem:
                    stack.append(source)
        return count

    def _phase(self, node: torch.fx.Node) -> Phase:
        named = (node.meta.get("custom") or {}).get("phase", "")
        if named in ("forward", "backward", "optimizer"):
            return Phase[named.upper()]
        tag = node.meta.get("partitioner_tag", "")
        if tag:
            return Phase.FORWARD if tag == "is_forward" else Phase.BACKWARD
        return Phase.FORWARD if node in self.forward else Phase.BACKWARD

    def _number(self, tensor: torch.Tensor, name: str = "", *, is_input: bool = False) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.numbers:
            self.numbers[key] = len(self.storages)
            self.storages.append(StepStorage(name, storage.nbytes(), is_input))
        return self.numbers[key]


def tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    """Tensors among what a node gives."""
    return [one for one in tree_leaves(node.meta.get("val")) if isinstance(one, torch.Tensor)]


def changed_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Operands that a node writes over."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found: list[torch.fx.Node] = []
    for at, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            found += [one for one in tree_leaves(given) if isinstance(one, torch.fx.Node)]
    return found


def _repeat(node: torch.fx.Node) -> Repeat:
    target = node.target
    if str(target) in _EFFECTS or not isinstance(target, torch._ops.OpOverload):
        return Repeat.NEVER
    return Repeat.REPLAYED if torch.Tag.nondeterministic_seeded in target.tags else Repeat.FREELY


def _module(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def _ancestors(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    found = set(nodes)
    stack = list(found)
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                stack.append(source)
    return found
