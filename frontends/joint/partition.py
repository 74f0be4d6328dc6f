"""What torch's own partitioner does with a joint graph under a memory budget, judged by the exact simulator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from irscope.frontends.joint.reader import JointGraph, changed_by, tensors_of
from irscope.frontends.joint.times import SIMPLE_COSTS, CostModel, flops_of, moved_bytes
from irscope.memory.checkpointing.problem import Phase, StepOperator, StepStorage, make_problem
from irscope.memory.checkpointing.simulate import Simulator

BUDGETS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.25, 0.0)


@dataclass(frozen=True)
class Partitioned:
    """A forward and a backward as torch divides them at one setting of activation_memory_budget."""

    budget: float
    """What torch was asked for: the share of saved bytes."""
    saved: int
    """Bytes that the forward hands to the backward."""
    peak: int
    """Most bytes alive at once, forward and backward one after the other."""
    seconds: float
    """Time of both; views take none."""


def torch_budgets(joint: JointGraph, budgets: Sequence[float] = BUDGETS, costs: CostModel = SIMPLE_COSTS) -> Iterator[Partitioned]:
    """What each setting really needs; settings that torch refuses for this graph are left out."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    inputs = [tensors_of(node) for node in joint.graph.nodes if node.op == "placeholder"]
    given = [one for tensors in inputs for one in tensors]
    kept = {node.name for node in joint.kept}
    for budget in budgets:
        module = torch.fx.GraphModule(torch.nn.Module(), _copied(joint.graph))
        with config.patch(activation_memory_budget=budget):
            try:
                forward, backward = min_cut_rematerialization_partition(
                    module, given, num_fwd_outputs=joint.forward_count, static_lifetime_input_indices=[]
                )
            except (AssertionError, RuntimeError, ImportError):
                continue
        yield _judged(budget, forward.graph, backward.graph, kept, joint.forward_count, costs)


class _Pair:
    """A forward and a backward graph as one sequence; what the backward makes again is another storage."""

    def __init__(self, seconds: Callable[[torch.fx.Node], float], kept: set[str]) -> None:
        self.seconds = seconds
        self.kept = kept
        self.storages: list[StepStorage] = []
        self.operators: list[StepOperator] = []
        self.numbers: dict[str, dict[int, int]] = {}
        """For each value of the forward the storages of its tensors, by identity."""

    def add(self, graph: torch.fx.Graph, phase: Phase, known: dict[str, dict[int, int]]) -> dict[torch.fx.Node, dict[int, int]]:
        """Add the operators of a graph; `known` are its inputs that are there already."""
        of: dict[torch.fx.Node, dict[int, int]] = {}
        for node in graph.nodes:
            if node.op == "output":
                continue
            if node.op == "placeholder":
                of[node] = known.get(node.name) or {
                    key: self._new(node.name, size, is_input=True, is_output=node.name in self.kept) for key, size in _keys(node)
                }
                continue
            around = {key: number for source in node.all_input_nodes for key, number in of[source].items()}
            before = len(self.storages)
            of[node] = {key: around[key] if key in around else self._new(node.name, size) for key, size in _keys(node)}
            made = {number for number in of[node].values() if number >= before}
            changed = {number for one in changed_by(node) for number in of[one].values()}
            if node.target is not operator.getitem and (made or changed):
                reads = tuple(set(around.values()))
                self.operators.append(StepOperator(node.name, reads, tuple(made | changed), self.seconds(node), phase))
        return of

    def _new(self, name: str, size: int, *, is_input: bool = False, is_output: bool = False) -> int:
        self.storages.append(StepStorage(name, size, is_input, is_output))
        return len(self.storages) - 1


def _judged(budget: float, forward: torch.fx.Graph, backward: torch.fx.Graph, kept: set[str], count: int, costs: CostModel) -> Partitioned:
    pair = _Pair(lambda node: costs.seconds(flops_of(node), moved_bytes(node)), kept)
    first = pair.add(forward, Phase.FORWARD, {})
    results = _results(forward)
    saved = {node.name: first[node] for node in results[count:] if isinstance(node, torch.fx.Node)}
    second = pair.add(backward, Phase.BACKWARD, {**{node.name: first[node] for node in first if node.op == "placeholder"}, **saved})
    handed = {number for numbers in saved.values() for number in numbers.values()}
    stay = {number for node in results[:count] if isinstance(node, torch.fx.Node) for number in first[node].values()}
    stay |= {number for node in _results(backward) if isinstance(node, torch.fx.Node) for number in second[node].values()}
    storages = [StepStorage(one.name, one.size, one.is_input, one.is_output or number in stay) for number, one in enumerate(pair.storages)]
    problem = make_problem(pair.operators, storages)
    cost = Simulator(problem, ()).cost([0] * len(storages))
    bytes_saved = sum(storages[number].size for number in handed if not storages[number].is_input)
    return Partitioned(budget, bytes_saved, cost.peak, problem.seconds)


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A graph of its own, since the partitioner changes what it gets."""
    made = torch.fx.Graph()
    made.output(made.graph_copy(graph, {}))
    [before] = [node for node in graph.nodes if node.op == "output"]
    [after] = [node for node in made.nodes if node.op == "output"]
    after.meta = dict(before.meta)
    return made


def _results(graph: torch.fx.Graph) -> list[object]:
    [output] = [node for node in graph.nodes if node.op == "output"]
    return list(output.args[0])


def _keys(node: torch.fx.Node) -> Iterator[tuple[int, int]]:
    seen: set[int] = set()
    for tensor in tensors_of(node):
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            yield storage._cdata, storage.nbytes()
