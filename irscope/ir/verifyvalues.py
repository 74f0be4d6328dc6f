"""Rules on values: defined once and before they are read, listed with their readers, named apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from irscope.ir.findings import Findings, graph_words
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.payload import Literal
from irscope.ir.runs import runs
from irscope.ir.types import TensorType

_WEIGHT_ROLES = (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)
_FEW = 4
"""For at most this many inputs, counting each of them is faster than a Counter."""


class ValueChecker:
    """Walks the bodies of a program once; `visible` holds what may be read at the current node."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._visible: set[Value] = set()
        self._open: list[Graph] = []
        self._levels: list[list[Value]] = []
        self._reads: dict[Value, int] = {}
        self._defined: list[Value] = []

    def check(self, body: Graph) -> None:
        """Check a body with its regions."""
        for run in runs(body):
            if run.opens:
                self._open.append(run.graph)
                self._levels.append([])
                self._declarations(run.graph)
            defined = self._levels[-1]
            for node in run.nodes:
                if node.inputs:
                    self._inputs(node)
                for index, value in enumerate(node.outputs):
                    if value.node is not node or value.index != index or value.role is not Role.TEMPORARY:
                        self._findings.add("IRS120", f"output {index} does not know its node, its position or its role", node)
                    self._define(value, defined)
            if run.closes:
                self._close(run.graph)

    def _declarations(self, graph: Graph) -> None:
        wanted = Role.INPUT if graph.owner is None else Role.ARGUMENT
        for index, value in enumerate(graph.inputs):
            if value.role is not wanted:
                self._declared_wrongly(value, graph, f"has the role {value.role.value}, not {wanted.value}")
            self._declaration(value, index, graph)
        for index, value in enumerate(graph.weights):
            if value.role not in _WEIGHT_ROLES:
                self._declared_wrongly(value, graph, f"has the role {value.role.value}, which no weight has")
            self._declaration(value, index, graph)
        for value, data in graph.data.items():
            if value.declared_in is not graph or value.role not in _WEIGHT_ROLES:
                self._declared_wrongly(value, graph, "has data there, but is none of its weights")
            count = value.type.numel if isinstance(value.type, TensorType) else None
            if isinstance(data, Literal) and isinstance(count, int) and len(data.values) != count:
                self._declared_wrongly(value, graph, f"has {len(data.values)} values for {count} elements")

    def _declaration(self, value: Value, index: int, graph: Graph) -> None:
        if value.node is not None or value.declared_in is not graph or value.index != index:
            self._declared_wrongly(value, graph, "does not know its graph or its position")
        self._define(value, self._levels[-1])

    def _declared_wrongly(self, value: Value, graph: Graph, what: str) -> None:
        self._findings.add("IRS120", f"{self._findings.name(value)} of {graph_words(graph)} {what}")

    def _define(self, value: Value, defined: list[Value]) -> None:
        if value in self._visible:
            self._findings.add("IRS120", f"{self._findings.name(value)} is defined twice", value.node)
            return
        self._visible.add(value)
        defined.append(value)

    def _inputs(self, node: Node) -> None:
        inputs = node.inputs
        visible, reads = self._visible, self._reads
        counts = Counter(inputs) if len(inputs) > _FEW else None
        for index, value in enumerate(inputs):
            if value is None:
                continue
            if value not in visible:
                self._findings.add("IRS122", f"input {index} reads {self._why_not(value)}", node)
            reads[value] = reads.get(value, 0) + 1
            users = value.users
            if users is None or users.get(node) != (inputs.count(value) if counts is None else counts[value]):
                self._findings.add("IRS123", f"{self._findings.name(value)} does not list this node as its reader, or not as often", node)

    def _why_not(self, value: Value) -> str:
        """Words for a value that cannot be read here."""
        name = self._findings.name(value)
        home = value.graph
        if home is None:
            return f"{name}, which was erased"
        if home in self._open:
            return f"{name} before it is defined"
        return f"{name}, which belongs to {graph_words(home)}"

    def _close(self, graph: Graph) -> None:
        counts = Counter(graph.outputs)
        for value, count in counts.items():
            if value not in self._visible:
                self._findings.add("IRS122", f"{graph_words(graph)} returns {self._why_not(value)}")
            self._reads[value] = self._reads.get(value, 0) + count
            if value.users is None or value.users.get(graph) != count:
                self._findings.add("IRS123", f"{self._findings.name(value)} does not list {graph_words(graph)}, which returns it")
        defined = self._levels.pop()
        self._defined.extend(defined)
        self._visible.difference_update(defined)
        self._open.pop()

    def finish(self) -> None:
        """Once every reader was seen: no value lists others."""
        for value in self._defined:
            if value.users and sum(value.users.values()) != self._reads.get(value, 0):
                self._findings.add("IRS123", f"{self._findings.name(value)} lists readers that do not read it", value.node)


def check_names(body: Graph, findings: Findings) -> None:
    """A name stands for one value in a graph and all graphs around it; regions side by side may repeat names."""
    taken: set[str] = set()
    levels: list[set[str]] = []
    for run in runs(body):
        if run.opens:
            names: set[str] = set()
            for value in _values_of(run.graph):
                if value.name is None:
                    continue
                if value.name in taken or value.name in names:
                    findings.add(
                        "IRS124", f"the name {value.name!r} stands for two values, the second in {graph_words(run.graph)}", value.node
                    )
                names.add(value.name)
            names -= taken
            taken |= names
            levels.append(names)
        if run.closes:
            taken -= levels.pop()


def _values_of(graph: Graph) -> Iterator[Value]:
    """Everything defined on one level, also behind its regions."""
    yield from graph.inputs
    yield from graph.weights
    for node in graph:
        yield from node.outputs
