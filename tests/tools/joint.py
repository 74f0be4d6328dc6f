"""Joint graphs of PyTorch, forward and backward in one, as problems of checkpointing: what plans of ours are compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, checkpoint_problem
from irscope.solvers.checkpoint.simulate import Simulator

# ----------------------------------------------------------------------------------------------------
# How long the operators of an fx graph take, by a simple cost model.


@dataclass(frozen=True)
class CostModel:
    """The larger of computing and moving bytes, and a constant for the launch."""

    flops_per_second: float = 100e12
    bytes_per_second: float = 1.5e12
    launch_seconds: float = 2e-6

    def seconds(self, flops: float, moved: float) -> float:
        """Time of an operator with this much work."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second) + self.launch_seconds


SIMPLE_COSTS = CostModel()
"""100 TFLOP/s, 1.5 TB/s and 2 microseconds for a launch: about an A100 in half precision."""


def formula_of(target: Any) -> Callable[..., int] | None:
    """torch's own formula for the floating point operations of an operator; it takes shapes in the place of tensors."""
    from torch.utils.flop_counter import flop_registry

    found: Callable[..., int] | None = flop_registry.get(getattr(target, "overloadpacket", None))
    return found


def flops_of(node: torch.fx.Node) -> float:
    """Floating point operations of a node, by torch's own formulas; 0 for what has none."""
    formula = formula_of(node.target)
    if formula is None:
        return 0.0
    args, kwargs = tree_map(_value, (node.args, node.kwargs))
    try:
        return float(formula(*args, **kwargs, out_val=node.meta["val"]))
    except (TypeError, IndexError, AttributeError):
        return 0.0


def moved_bytes(node: torch.fx.Node) -> int:
    """Bytes that a node reads and writes when each operand moves once."""
    sources = [node.meta.get("val") for node in node.all_input_nodes]
    return _bytes(tree_leaves(sources)) + _bytes(tree_leaves(node.meta.get("val")))


def _value(one: Any) -> Any:
    return one.meta.get("val") if isinstance(one, torch.fx.Node) else one


def _bytes(values: Iterable[object]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


# ----------------------------------------------------------------------------------------------------
# Reads fx graphs that hold forward and backward, such as AOTAutograd's joint graphs, as problems of checkpointing.

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
        results = {self._number(tensor) for node in self._outputs() for tensor in tensors_of(node)}
        kept = {self._number(tensor) for node in self.joint.graph.nodes if self._stays(node) for tensor in tensors_of(node)}
        storages = [
            StepStorage(storage.name, storage.size, storage.is_input, (number in results) or (number in kept))
            for number, storage in enumerate(self.storages)
        ]
        return checkpoint_problem(operators, storages, replay_random=replay_random)

    def _stays(self, node: torch.fx.Node) -> bool:
        return node.op == "get_attr" or node in self.joint.kept

    def _outputs(self) -> Iterator[torch.fx.Node]:
        for node in self.joint.graph.nodes:
            if node.op == "output":
                yield from node.all_input_nodes

    def _operator(self, node: torch.fx.Node) -> StepOperator | None:
        known = len(self.storages)
        sources = [tensor for node in node.all_input_nodes for tensor in tensors_of(node)]
        reads = {self._number(tensor) for tensor in sources}
        changed = {self._number(tensor) for node in changed_by(node) for tensor in tensors_of(node)}
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
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def changed_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Operands that a node writes over."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    nodes: list[torch.fx.Node] = []
    for at, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            nodes += [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.fx.Node)]
    return nodes


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


# ----------------------------------------------------------------------------------------------------
# What torch's own partitioner does with a joint graph under a memory budget, judged by the exact simulator.

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
    given = [tensor for tensors in inputs for tensor in tensors]
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
            changed = {number for node in changed_by(node) for number in of[node].values()}
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
    problem = checkpoint_problem(pair.operators, storages)
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


# ----------------------------------------------------------------------------------------------------
# Joint graphs of live modules, traced with tensors that hold no data.


def joint_with_descriptors(module: nn.Module, args: Sequence[Any]) -> JointGraph:
    """AOTAutograd's joint graph of a module that returns its loss; call it under the fake mode of its tensors."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack:
        captured = aot_export_joint_with_descriptors(stack, module, tuple(args))
        graph_module: Any = captured._aot_graph_capture.graph_module
    kept = {
        node
        for node in graph_module.graph.nodes
        if node.op == "placeholder" and type(node.meta.get("desc")).__name__ in ("ParamAOTInput", "BufferAOTInput")
    }
    [output] = [node for node in graph_module.graph.nodes if node.op == "output"]
    primals = sum(node.op == "placeholder" and not node.name.startswith("tangents") for node in graph_module.graph.nodes)
    return JointGraph(graph_module.graph, kept, forward_count=len(output.args[0]) - primals)


def joint_from_export_module(module: nn.Module, args: Sequence[Any], loss_index: int = 0) -> JointGraph:
    """The joint graph of `aot_export_module`, whose phases follow from dataflow."""
    from torch._functorch.aot_autograd import aot_export_module

    found: Any = aot_export_module(_AsTuple(module), tuple(args), trace_joint=True, output_loss_index=loss_index)
    graph_module, signature = found
    names = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    kept = {node for node in graph_module.graph.nodes if node.op == "placeholder" and node.name in names}
    backward = signature.backward_signature
    gradients = {*backward.gradients_to_parameters, *backward.gradients_to_user_inputs} if backward is not None else set()
    [output] = [node for node in graph_module.graph.nodes if node.op == "output"]
    forward = [node for node in output.all_input_nodes if node.name not in gradients]
    return JointGraph(graph_module.graph, kept, forward)


def joint_from_exported(program: Any, loss_index: int = 0) -> JointGraph:
    """torch.export's joint graph of an exported program that returns its loss; call it outside of any fake mode."""
    from torch.export.experimental import _export_forward_backward

    joint = _export_forward_backward(program, loss_index)
    signature = joint.graph_signature
    names = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    kept = {node for node in joint.graph.nodes if node.op == "placeholder" and node.name in names}
    backward = signature.backward_signature
    gradients = {*backward.gradients_to_parameters, *backward.gradients_to_user_inputs} if backward is not None else set()
    [output] = [node for node in joint.graph.nodes if node.op == "output"]
    return JointGraph(joint.graph, kept, [node for node in output.all_input_nodes if node.name not in gradients])


class _AsTuple(nn.Module):
    """A module whose result is a tuple, as `aot_export_module` wants it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> tuple[Any, ...]:
        found = self.inner(*args)
        return tuple(found) if isinstance(found, tuple | list) else (found,)
