"""One of the models that are compared: its nodes in order, and what is known of each."""

from __future__ import annotations

from functools import cached_property

from irscope.immutable import immutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Scope
from irscope.passes.cost.count import Certainty, Costs, NodeCosts
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.session import Model

WEIGHTS = frozenset({Role.PARAMETER, Role.BUFFER, Role.CONSTANT})


@immutable(slots=False)
class Side:
    """A model with the analyses that a comparison needs, each computed on first use."""

    model: Model
    lifetime: str = "auto"
    """Lifetime model, as in `liveness`."""

    @property
    def has_graph(self) -> bool:
        """Return whether there is a graph; of weights alone cost and memory are unknown."""
        return self.model.program.has_graph

    @property
    def is_compiled(self) -> bool:
        """Return whether it is what torch.compile made of a model."""
        return "compiled" in self.model.program.metadata

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node in order, those inside regions and functions included."""
        program = self.model.program
        return [node for body in (program.graph, *program.functions.values()) for node in body.walk()]

    @cached_property
    def number(self) -> dict[Node, int]:
        """The place of each node among `nodes`."""
        return {node: number for number, node in enumerate(self.nodes)}

    @cached_property
    def costs(self) -> Costs:
        return self.model.manager.get(NodeCosts())

    @cached_property
    def timeline(self) -> Timeline:
        return self.model.manager.get(Liveness(model=self.lifetime))  # type: ignore[arg-type]  # one of the names that `liveness` takes

    @cached_property
    def device_memory(self) -> DeviceMemory | None:
        """Return what PyTorch's allocator counts; None where ONNX Runtime runs the model."""
        model = self.timeline.model
        return None if model == "ort" else self.model.manager.get(CudaMemory(model=self.lifetime))  # type: ignore[arg-type]

    @cached_property
    def totals(self) -> ParameterTotals:
        return count_parameters(self.model.program)

    @cached_property
    def step(self) -> dict[Node, int]:
        """Steps of the timeline by node; nodes inside regions have none."""
        return {node: step for step, node in enumerate(self.timeline.steps)}

    @cached_property
    def weights(self) -> dict[str, Value]:
        """Parameters, buffers and constants that have a name."""
        return {weight.name: weight for weight in self.model.program.weights() if weight.name is not None}

    @cached_property
    def modules(self) -> dict[Node, str]:
        """The dotted path of the module that each node belongs to."""
        known: dict[Scope, str] = {}
        found: dict[Node, str] = {}
        for node in self.nodes:
            module = known.get(node.scope)
            if module is None:
                module = known[node.scope] = node.scope.module
            found[node] = module
        return found

    @cached_property
    def places(self) -> dict[Node, tuple[str, ...]]:
        """The regions around each node by name, outermost first."""
        of_graph: dict[Graph, tuple[str, ...]] = {}
        found: dict[Node, tuple[str, ...]] = {}
        for node in self.nodes:
            graph = node.graph
            assert graph is not None
            place = of_graph.get(graph)
            if place is None:
                # An outer graph comes before its regions, so that the owner's place is known.
                place = () if graph is self.model.graph else (*(found[graph.owner] if graph.owner is not None else ()), graph.name)
                of_graph[graph] = place
            found[node] = place
        return found

    def flops(self, node: Node) -> Dim | None:
        """FLOPs of one execution of a node; None where they are unknown."""
        cost = self.costs.by_node.get(node)
        if cost is None or node in self.costs.partial:
            return 0 if self.costs.certainty.get(node) is Certainty.FREE else None
        return cost.flops

    def moved(self, node: Node) -> Dim | None:
        """Bytes that one execution of a node reads and writes; None where they are unknown."""
        cost = self.costs.by_node.get(node)
        return None if cost is None or cost.read is None or cost.written is None else cost.read + cost.written

    def alive(self, node: Node) -> Dim | None:
        """Bytes alive at a node's step; None inside regions."""
        step = self.step.get(node)
        return None if step is None else self.timeline.alive[step]


def weights_of(node: Node) -> list[Value]:
    """The weights that a node reads, in the order of its operands."""
    return [value for value in node.inputs if value is not None and value.role in WEIGHTS]
