"""Decisions of torch.compile about memory, as problems for irscope's own solvers: which results of a forward the backward recomputes,
and the order in which kernels run."""

from __future__ import annotations

import contextlib
import importlib
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves, tree_map

from irscope.errors import UsageError
from irscope.frontends.simulation.kernels import operator_call
from irscope.solvers.checkpoint.problem import CheckpointProblem, Phase, Repeat, StepOperator, StepStorage, checkpoint_problem
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem

FLOP: Final = 1e-12
"""Seconds of one operation in problems of checkpointing: they count in whole picoseconds."""
_CUTS: Final = (
    "inputs alone",
    "minimum cut",
    "cut with long chains",
    "cut with all it may",
)
"""By the number of cuts after which `choose_saved_values_set` is content; beyond them it solves a knapsack."""
_KNAPSACK: Final = "knapsack"


@dataclass
class RecomputedOperators:
    """Operators of one kind and line that the backward computes once more."""

    operator: str
    line: str
    count: int
    flops: int | None
    """None where irscope has no rule for one of them, or its sizes are open."""


@dataclass
class Kernels:
    """The kernels of one graph in the order in which they run, and what they need."""

    part: str
    line: str
    before: int
    """Most bytes of buffers that live at once in the order as it was before Inductor changed it. Its own inputs count until they are
    not needed any more, unless they stay with the caller."""
    after: int
    """The same in the order that was chosen."""
    problem: OrderProblem
    """Of the order as it was."""
    order: list[int]
    """As it is."""
    flops: list[int | None]
    """Of each kernel."""
    names: list[str]
    """Of each storage of the problem: its buffer, or the input of the graph."""
    results: list[str]
    """Names of the results of the graph."""
    fixed: list[bool]
    """True for each kernel that changes what it is given, and so runs once."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a report shows."""
        return {"part": self.part, "line": self.line, "kernels": len(self.order), "before": self.before, "after": self.after}


@dataclass
class Partition:
    """A joint graph, as it was divided."""

    line: str
    budget: float
    """The activation memory budget that held for it."""
    how: str
    """Which of the partitioner's ways led to what is kept."""
    operators: int = 0
    """Of the joint graph."""
    flops: int | None = None
    """Of forward and backward where nothing is recomputed; None where that of an operator is not known."""
    unknown: list[str] = field(default_factory=list)
    """Operators without a rule, or with open sizes."""
    recomputed: list[RecomputedOperators] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    """Results of the forward for the backward, by name."""
    forward: Kernels | None = None
    backward: Kernels | None = None

    @property
    def extra(self) -> int | None:
        """FLOPs of what is recomputed."""
        return extra_of(one.flops for one in self.recomputed)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a report shows."""
        return {
            "line": self.line,
            "budget": self.budget,
            "how": self.how,
            "operators": self.operators,
            "flops": self.flops,
            "unknown": self.unknown,
            "extra_flops": self.extra,
            "recomputed": [vars(one) for one in self.recomputed],
        }


def extra_of(several: Iterable[int | None]) -> int | None:
    """Return a sum, which is unknown where a part of it is."""
    total = 0
    for one in several:
        if one is None:
            return None
        total += one
    return total


def peak_of_step(problem: CheckpointProblem) -> int:
    """Most bytes that live at once where nothing is recomputed."""
    steps = [0] * (len(problem) + 2)
    for first, last, one in zip(problem.first_touch, problem.last_touch, problem.storages, strict=True):
        steps[max(first, 0)] += one.size
        steps[last + 1] -= one.size
    live = peak = 0
    for change in steps:
        live += change
        peak = max(peak, live)
    return peak


def step_problem(partitions: Sequence[Partition]) -> CheckpointProblem | None:
    """Return the choice of what forwards keep for their backwards as a problem, with FLOPs for times; None where they are not known.

    Forwards run one after the other, and backwards the other way round, each once.
    """
    step = _Step()
    for one in partitions:
        if one.forward is None or None in one.forward.flops or len(one.saved) > len(one.forward.results):
            return None
        step.add(one.forward, {}, one.forward.results[len(one.forward.results) - len(one.saved) :])
    for place, one in reversed(list(enumerate(partitions))):
        if one.backward is None or None in one.backward.flops or one.forward is None:
            return None
        handed = one.forward.results[len(one.forward.results) - len(one.saved) :]
        step.add(one.backward, {name: (place, result) for name, result in zip(one.saved, handed, strict=True)}, ())
    return checkpoint_problem(step.operators, step.storages)


class _Step:
    """Graphs one after the other."""

    def __init__(self) -> None:
        self.operators: list[StepOperator] = []
        self.storages: list[StepStorage] = []
        self._numbers: list[dict[str, int]] = []
        """For each graph the storages by name."""

    def add(self, kernels: Kernels, known: Mapping[str, tuple[int, str]], handed: Sequence[str]) -> None:
        """`known` are inputs that an earlier graph has made; `handed` are results that end with their last use in another one."""
        numbers: dict[str, int] = {}
        given: list[int] = []
        forward = kernels.part == "forward"
        for name, one in zip(kernels.names, kernels.problem.storages, strict=True):
            graph, made = known.get(name, (0, ""))
            number = self._numbers[graph].get(made) if made and one.is_input else None
            if number is None:
                number = len(self.storages)
                stays = one.is_output and name not in handed
                self.storages.append(StepStorage(f"{kernels.part} {name}", one.size, one.is_input and forward, stays))
                if one.is_input and not forward:
                    given.append(number)
            numbers[name] = number
        self._numbers.append(numbers)
        phase = Phase.FORWARD if forward else Phase.BACKWARD
        if given:
            # Gradients of the results are there when the backward begins.
            self.operators.append(StepOperator("gradients of results", (), tuple(given), 0.0, phase))
        storages = kernels.problem.storages
        for place in kernels.order:
            touched = kernels.problem.touched[place]
            made_here = [one for one in touched if storages[one].touches[0] == place and not storages[one].is_input]
            reads, writes = (tuple(numbers[kernels.names[one]] for one in several) for several in (touched, made_here))
            repeat = Repeat.NEVER if kernels.fixed[place] else Repeat.FREELY
            seconds = (kernels.flops[place] or 0) * FLOP
            self.operators.append(StepOperator(f"{kernels.part} {place}", reads, writes, seconds, phase, repeat))


_ATEN: Final = torch.ops.aten
_ALIKE: Final[dict[str, Callable[..., tuple[Any, tuple[Any, ...], dict[str, Any]]]]] = {
    "prims.convert_element_type.default": lambda one, dtype: (_ATEN._to_copy.default, (one,), {"dtype": dtype}),
    "prims._low_memory_max_pool_with_offsets.default": lambda *args: (_ATEN.max_pool2d_with_indices.default, args, {}),
    "prims.prepare_softmax_online.default": lambda one, axis: (_ATEN.logsumexp.default, (one, [axis]), {}),
    "aten._unsafe_masked_index.default": lambda one, mask, indices, fill: (_ATEN.index.Tensor, (one, indices), {}),
    "aten._unsafe_masked_index_put_accumulate.default": lambda one, mask, indices, values: (
        _ATEN.index_put.default,
        (one, indices, values, True),
        {},
    ),
}
"""Operators that only compiled graphs have, as those of ATen that compute the same."""
_NOTHING: Final = frozenset(
    {
        "prims._low_memory_max_pool_offsets_to_indices.default",
        "prims.inductor_seed.default",
        "prims.inductor_seeds.default",
        "prims.inductor_lookup_seed.default",
        "prims.inductor_random.default",
        "prims.inductor_randint.default",
        "prims.iota.default",
    }
)
"""Those that are positions and random numbers, which are no floating point operations, as in eager mode."""


class Costs:
    """FLOPs of the nodes of fx graphs, by irscope's own rules; what looks alike is worked out once."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def flops(self, node: torch.fx.Node) -> int | None:
        """Of one node; None where there is no rule, or a size is open."""
        target = node.target
        results = [one for one in tree_leaves(node.meta.get("val")) if isinstance(one, torch.Tensor)]
        if target is operator.getitem or not results:
            return 0
        if not isinstance(target, torch._ops.OpOverload):
            return None
        args, kwargs = tree_map(_value, (node.args, node.kwargs))
        key = str((target, tree_map(_look, (args, kwargs))))
        if key not in self._known:
            self._known[key] = self._worked_out(target, args, kwargs, tree_leaves(node.meta["val"]))
        return self._known[key]

    def _worked_out(self, target: Any, args: Any, kwargs: Any, results: list[Any]) -> int | None:
        if any(isinstance(one, torch.Tensor) and _has_open_sizes(one) for one in (*tree_leaves((args, kwargs)), *results)):
            return None
        if all(one.alias_info is not None and not one.alias_info.is_write for one in target._schema.returns):
            return 0
        if str(target) in _NOTHING:
            return 0
        same = _ALIKE.get(str(target))
        if same is not None:
            target, args, kwargs = same(*args, **kwargs)
            results = results[: len(target._schema.returns)]
        call = operator_call(target, args, kwargs, results, {})
        cost = call.spec.cost_of(call) if call is not None else None
        return cost.flops if cost is not None and isinstance(cost.flops, int) else None


def _value(one: Any) -> Any:
    return one.meta.get("val") if isinstance(one, torch.fx.Node) else one


def _look(one: Any) -> Any:
    return (str(one.dtype), tuple(map(str, one.shape)), tuple(map(str, one.stride()))) if isinstance(one, torch.Tensor) else str(one)


def _has_open_sizes(tensor: torch.Tensor) -> bool:
    return any(not isinstance(size, int) for size in (*tensor.shape, tensor.untyped_storage().nbytes()))


# -- while torch compiles -------------------------------------------------------------------------------------------------------


class Partitions:
    """Notes how joint graphs are divided, and the kernels of both halves."""

    def __init__(self, place: Callable[[Any], str], operator_of: Callable[[Any], str]) -> None:
        self.found: list[Partition] = []
        self._place, self._operator_of = place, operator_of
        self._costs = Costs()
        self._cuts = 0
        self._packs = False
        self._chosen: tuple[float, str] | None = None
        self.calls: Counter[int] = Counter()
        """Number of runs of each graph of a training step, by identity."""
        self._before: list[int] = []
        """Kernels in the order that Inductor was about to change, by identity."""

    def install(self) -> None:
        """Install the hooks."""
        self._follow_partitioner(importlib.import_module("torch._functorch.partitioners"))
        self._follow_scheduler(importlib.import_module("torch._inductor.scheduler"), importlib.import_module("torch._inductor.memory"))
        graphs: Any = importlib.import_module("torch._inductor.output_code").CompiledFxGraph
        call = graphs.__call__

        def called(graph: Any, inputs: Any) -> Any:
            self.calls[id(graph)] += not graph.fx_kwargs.get("is_inference")
            return call(graph, inputs)

        graphs.__call__ = called

    def _follow_partitioner(self, made: Any) -> None:
        choose, cut, pack, divide = (
            getattr(made, name)
            for name in ("choose_saved_values_set", "solve_min_cut", "_optimize_runtime_with_given_memory", "_extract_fwd_bwd_modules")
        )

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._cuts += 1
            return cut(*args, **kwargs)

        def packed(*args: Any, **kwargs: Any) -> Any:
            self._packs = True
            return pack(*args, **kwargs)

        def chosen(joint_graph: Any, node_info: Any, memory_budget: float = 1) -> Any:
            self._cuts, self._packs = 0, False
            values = choose(joint_graph, node_info, memory_budget=memory_budget)
            self._chosen = float(memory_budget), _KNAPSACK if self._packs else _CUTS[min(self._cuts, len(_CUTS) - 1)]
            return values

        def divided(joint_module: Any, *args: Any, num_fwd_outputs: int, **kwargs: Any) -> Any:
            graphs = divide(joint_module, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
            if self._chosen is not None:
                one = Partition("", *self._chosen)
                self._chosen = None
                self.found.append(one)
                # What another version of torch tells otherwise is left out: reading it must not end the program.
                with contextlib.suppress(Exception):
                    self._read(one, joint_module.graph, graphs[0].graph, graphs[1].graph, num_fwd_outputs)
            return graphs

        made.solve_min_cut, made._optimize_runtime_with_given_memory = counted, packed
        made.choose_saved_values_set, made._extract_fwd_bwd_modules = chosen, divided

    def _read(self, one: Partition, joint: Any, forward: Any, backward: Any, count: int) -> None:
        of = {node.name: node for node in joint.nodes if node.op == "call_function"}
        flops = {name: self._costs.flops(node) for name, node in of.items()}
        first = {node.name for node in forward.nodes if node.op == "call_function"}
        rows: dict[tuple[str, str], list[str]] = {}
        for node in backward.nodes:
            if node.op == "call_function" and node.name in first and node.name in of and node.target is not operator.getitem:
                rows.setdefault((self._operator_of(of[node.name]), self._place(of[node.name])), []).append(node.name)
        one.line = next(filter(None, map(self._place, joint.nodes)), "")
        one.operators = len(of)
        one.flops = extra_of(flops.values())
        one.unknown = list(
            dict.fromkeys(self._operator_of(of[name]) or str(of[name].target) for name, count in flops.items() if count is None)
        )
        one.recomputed = [RecomputedOperators(*key, len(names), extra_of(flops[name] for name in names)) for key, names in rows.items()]
        results = next(node for node in forward.nodes if node.op == "output").args[0]
        one.saved = [getattr(node, "name", "") for node in results[count:]]

    def _follow_scheduler(self, scheduling: Any, memory: Any) -> None:
        reorder, generate = memory.reorder_for_peak_memory, scheduling.Scheduler.codegen

        def reordered(nodes: Any, *args: Any, **kwargs: Any) -> Any:
            self._before = [id(node) for node in nodes]
            return reorder(nodes, *args, **kwargs)

        def generated(scheduler: Any) -> Any:
            graph: Any = importlib.import_module("torch._inductor.virtualized").V.graph
            if any(device == "cuda" for device in graph.device_types) and not graph.is_inference and self.found:
                with contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, AssertionError, UsageError):
                    self._keep(self._kernels(scheduler, graph, memory))
            self._before = []
            return generate(scheduler)

        memory.reorder_for_peak_memory, scheduling.Scheduler.codegen = reordered, generated

    def _keep(self, kernels: Kernels) -> None:
        """Keep kernels with their partition: the last one whose other half is still missing."""
        for one in self.found:
            if getattr(one, kernels.part) is None:
                setattr(one, kernels.part, kernels)
                return

    def _kernels(self, scheduler: Any, graph: Any, memory: Any) -> Kernels:
        """Return the kernels by Inductor's own estimates. The code that it generates depends on whether they were made, so that what was
        there is put back."""
        buffers = [(buffer, buffer.mpi_buffer) for buffer in scheduler.name_to_buf.values()]
        nodes = [(node, vars(node).get("mpi_node")) for node in scheduler.nodes]
        try:
            return self._estimated(scheduler, graph, memory)
        finally:
            for buffer, before in buffers:
                buffer.mpi_buffer = before
            for node, before in nodes:
                vars(node).pop("mpi_node", None)
                if before is not None:
                    node.mpi_node = before

    def _estimated(self, scheduler: Any, graph: Any, memory: Any) -> Kernels:
        nodes = list(scheduler.nodes)
        outputs = graph.get_output_names()
        known = torch.utils._ordered_set.OrderedSet
        _, freed = memory.prepare_planning_info(
            nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, known(graph.graph_inputs), known(outputs)
        )
        place = {one: at for at, one in enumerate(self._before)}
        if {id(node) for node in nodes} != set(place):
            place = {id(node): at for at, node in enumerate(nodes)}
        order = [place[id(node)] for node in nodes]
        nodes.sort(key=lambda node: place[id(node)])
        names, storages = self._storages(nodes, place, freed, set(outputs))
        problem = order_problem([tuple(place[id(one)] for one in node.mpi_node.pred_nodes if id(one) in place) for node in nodes], storages)
        # The problem leaves out what is empty, and counts apart what stays throughout.
        kept = [
            name for name, one in zip(names, storages, strict=True) if one.size and one.touches and not (one.is_input and one.is_output)
        ]
        part = "backward" if graph.is_backward else "forward"
        line = next(filter(None, map(self._place, graph.module.graph.nodes)), "")
        flops = [self._flops(node) for node in nodes]
        fixed = [any(name in graph.graph_inputs for one in node.get_outputs() for name in one.get_mutations()) for node in nodes]
        before = problem.peak(range(len(nodes)))
        return Kernels(part, line, before, problem.peak(order), problem, order, flops, kept, list(outputs), fixed)

    def _storages(self, nodes: list[Any], place: dict[int, int], freed: Any, outputs: set[str]) -> tuple[list[str], list[Storage]]:
        begun = {buffer.get_name(): place[id(node)] for node in nodes for buffer in node.get_outputs()}
        made = dict(begun)
        for node in nodes:
            for buffer in node.get_outputs():
                # A kernel of several results takes them all at once; each is freed by itself.
                if buffer.mpi_buffer.size_alloc and not buffer.mpi_buffer.size_free:
                    begun.update({part.get_name(): place[id(node)] for user in buffer.mpi_buffer.succ_nodes for part in user.get_outputs()})
        names: list[str] = []
        storages: list[Storage] = []
        for node in nodes:
            for buffer in node.get_outputs():
                name, users = buffer.get_name(), [place[id(one)] for one in buffer.mpi_buffer.succ_nodes if id(one) in place]
                names.append(name)
                touches = (begun[name], made[name], *users)
                storages.append(Storage(buffer.mpi_buffer.size_free, touches, is_output=name in outputs))
        for name, buffer in freed.items():
            users = [place[id(one)] for one in buffer.mpi_buffer.succ_nodes if id(one) in place]
            names.append(name)
            storages.append(Storage(buffer.mpi_buffer.size_free, tuple(users), is_input=True, is_output=name in outputs))
        return names, storages

    def _flops(self, node: Any) -> int | None:
        origins = dict.fromkeys(origin for one in node.get_nodes() if one.node is not None for origin in one.node.get_origins())
        return extra_of(self._costs.flops(origin) for origin in origins if origin.op == "call_function")
