"""What the verifier collects: problems that name the node as the text form shows it."""

from __future__ import annotations

from irscope.diagnostics import Diagnostic, Severity
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.naming import ValueNames, loose_names, value_names
from irscope.ir.printer import print_node
from irscope.ir.program import Program

MAX_FINDINGS = 100
_MAX_LINE = 240


class Findings:
    """Problems of one program, at most MAX_FINDINGS of them with words."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names: ValueNames | None = None
        self._unreported = 0
        self.diagnostics: list[Diagnostic] = []
        self.links_hold = False
        """Whether the nodes can be walked, and so values numbered."""

    def add(self, code: str, what: str, node: Node | None = None) -> None:
        """Note a problem; the node it is about is shown behind it."""
        if len(self.diagnostics) >= MAX_FINDINGS:
            self._unreported += 1
            return
        name, location = "", ""
        if node is not None:
            line = print_node(node, self.names, locations=False)
            what += f": {line if len(line) <= _MAX_LINE else f'{line[:_MAX_LINE]}...'}"
            name, location = node.name, str(node.loc or "")
        self.diagnostics.append(Diagnostic(Severity.ERROR, code, what, name, location))

    @property
    def names(self) -> ValueNames:
        """Names of all values as the printer gives them; they are made when the first problem is found."""
        if self._names is None:
            bodies = [self._program.graph, *self._program.functions.values()]
            self._names = value_names(bodies) if self.links_hold else loose_names()
        return self._names

    def name(self, value: Value) -> str:
        return self.names[value]

    def finish(self) -> list[Diagnostic]:
        """All problems; the last one tells how many more there are."""
        if self._unreported:
            more = Diagnostic(Severity.ERROR, "IRS120", f"there are {self._unreported} more problems")
            self.diagnostics.append(more)
            self._unreported = 0
        return self.diagnostics


def graph_words(graph: Graph) -> str:
    """How a message calls a graph."""
    return f"region {graph.name!r} of {graph.owner.name}" if graph.owner is not None else f"graph @{graph.name}"
