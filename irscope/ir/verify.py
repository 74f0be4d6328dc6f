"""The rules of the IR. A program that breaks none of them can be printed, analysed and changed safely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import VerifyError
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import WEIGHT_ROLES, Attr, Graph, Node, Role, Value, runs
from irscope.ir.places import Literal, Scope
from irscope.ir.printer import ValueNames, loose_names, print_node, value_names
from irscope.ir.program import PLAIN_ATTRS, Program, mentions
from irscope.ir.spelling import MAX_NESTING
from irscope.ir.types import Type

# What the verifier collects: problems that name the node as the text form shows it.

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
        """True where the nodes can be walked, and so values numbered."""

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
        """Return all problems; the last one tells how many more there are."""
        if self._unreported:
            more = Diagnostic(Severity.ERROR, "IRS120", f"there are {self._unreported} more problems")
            self.diagnostics.append(more)
            self._unreported = 0
        return self.diagnostics


def graph_words(graph: Graph) -> str:
    """Return how a message calls a graph."""
    return f"region {graph.name!r} of {graph.owner.name}" if graph.owner is not None else f"graph @{graph.name}"


# Rules on how nodes and graphs are linked; all other rules can only be checked where these hold.

_CODE = "IRS120"


def check_links(program: Program, findings: Findings) -> None:
    """Check that the nodes of a graph form a list in rising order, and that a single node owns each region."""
    seen: set[Graph] = set()
    for name, body in [("", program.graph), *program.functions.items()]:
        if name and body.name != name:
            findings.add(_CODE, f"the function {name!r} has a graph of another name, @{body.name}")
        if body.owner is not None:
            findings.add(_CODE, f"{graph_words(body)} is listed as a body of its own")
        if body.scope.parent is not None:
            findings.add(_CODE, f"the scope of {graph_words(body)} is not the root of a tree")
        if body in seen:
            findings.add(_CODE, f"{graph_words(body)} occurs twice")
            continue
        seen.add(body)
        _check_body(body, seen, findings)


def _check_body(body: Graph, seen: set[Graph], findings: Findings) -> None:
    todo = [body]
    while todo:
        graph = todo.pop()
        if graph.versions is not body.versions:
            findings.add(_CODE, f"{graph_words(graph)} counts its changes apart from @{body.name}")
        nodes = _linked_nodes(graph, findings)
        for node in nodes:
            for region in node.regions:
                if region.owner is not node:
                    findings.add(_CODE, f"the region {region.name!r} names another node as its owner", node)
                if region in seen:
                    findings.add(_CODE, f"the region {region.name!r} occurs twice", node)
                else:
                    seen.add(region)
                    todo.append(region)


def _linked_nodes(graph: Graph, findings: Findings) -> list[Node]:
    """Return the nodes of a level as far as their links can be followed."""
    nodes: list[Node] = []
    size = len(graph)
    previous: Node | None = None
    node = graph.first
    while node is not None:
        if len(nodes) >= size:
            findings.add(_CODE, f"{graph_words(graph)} has more nodes in its list than the {size} it counts, or the list is a circle")
            return nodes
        if node.graph is not graph:
            findings.add(_CODE, f"a node in the list of {graph_words(graph)} says that it belongs elsewhere", node)
        if node.prev is not previous:
            findings.add(_CODE, "the node's link back does not lead to the node before it", node)
        if previous is not None and previous.order >= node.order:
            findings.add(_CODE, "the node's order number is not above that of the node before it", node)
        nodes.append(node)
        previous, node = node, node.next
    if len(nodes) != size:
        findings.add(_CODE, f"{graph_words(graph)} has {len(nodes)} nodes in its list, but counts {size}")
    if graph.last is not previous:
        findings.add(_CODE, f"the last node of {graph_words(graph)} is not the end of its list")
    return nodes


# Rules on values: defined once and before they are read, listed with their readers, named apart.

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
            if value.role not in WEIGHT_ROLES:
                self._declared_wrongly(value, graph, f"has the role {value.role.value}, which no weight has")
            self._declaration(value, index, graph)
        for value, data in graph.data.items():
            if value.declared_in is not graph or value.role not in WEIGHT_ROLES:
                self._declared_wrongly(value, graph, "has data there, but is not one of its weights")
            count = value.type.numel
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
        """Check that no value lists other users, once every reader was seen."""
        for value in self._defined:
            if value.users and sum(value.users.values()) != self._reads.get(value, 0):
                self._findings.add("IRS123", f"{self._findings.name(value)} lists readers that do not read it", value.node)


def check_names(body: Graph, findings: Findings) -> None:
    """Check that a name stands for a single value in a graph and all graphs around it; sibling regions may repeat names."""
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
    """Yield everything defined on one level, also behind its regions."""
    yield from graph.inputs
    yield from graph.weights
    for node in graph:
        yield from node.outputs


# The rules of the IR. A program that breaks none of them can be printed, analysed and changed safely.


def verify(program: Program) -> list[Diagnostic]:
    """Return every breach of the rules, in program order; an empty list for a sound program."""
    findings = Findings(program)
    check_links(program, findings)
    if not findings.diagnostics:
        findings.links_hold = True
        values = ValueChecker(findings)
        for body in (program.graph, *program.functions.values()):
            values.check(body)
            check_names(body, findings)
            _check_nodes(body, program, findings)
        values.finish()
        _check_sizes(program, findings)
        _check_recursion(program, findings)
    return findings.finish()


def check(program: Program) -> None:
    """Raise VerifyError about the first breach of the rules, if there is one."""
    diagnostics = verify(program)
    if diagnostics:
        first, more = diagnostics[0], len(diagnostics) - 1
        hint = f"and {more} more {'problem' if more == 1 else 'problems'}" if more else ""
        raise VerifyError(first.message, code=first.code, where=program.path, hint=hint)


def _check_nodes(body: Graph, program: Program, findings: Findings) -> None:
    """Check that attributes are of the IR's kinds, scopes belong to the body's tree, and called functions exist."""
    known: set[Scope] = {body.scope}
    for node in body.walk():
        if node.attrs:
            _check_attrs(node, findings)
        if node.scope not in known and not _is_below(node.scope, known):
            findings.add("IRS120", "the node's scope belongs to another tree than the graph's", node)
        if node.op == "cf.call" and node.attrs.get("callee") not in program.functions:
            findings.add("IRS125", f"there is no function {node.attrs.get('callee')!r}", node)


def _is_below(scope: Scope, known: set[Scope]) -> bool:
    """Return whether a scope hangs below one that is known; then all scopes on the way are known too."""
    fresh: list[Scope] = []
    above: Scope | None = scope
    while above is not None and above not in known:
        fresh.append(above)
        above = above.parent
    if above is None:
        return False
    known.update(fresh)
    return True


def _check_attrs(node: Node, findings: Findings) -> None:
    for key, value in node.attrs.items():
        if type(key) is not str:
            findings.add("IRS126", f"the attribute name {key!r} is not a string", node)
        elif type(value) not in PLAIN_ATTRS and not _is_attr(value):
            findings.add("IRS126", f"the attribute {key!r} holds a {type(value).__name__} or something nested too deep", node)
    written = node.attrs.get("inplace")
    if written is None:
        return
    if type(written) is not int or not 0 <= written < len(node.inputs) or node.inputs[written] is None:
        findings.add("IRS126", f"inplace={written!r} names no input", node)


def _is_attr(value: Attr) -> bool:
    """Return whether a value is of the kinds that attributes may have."""
    todo: list[tuple[Attr, int]] = [(value, 0)]
    while todo:
        item, depth = todo.pop()
        if type(item) is tuple:
            if depth >= MAX_NESTING:
                return False
            todo.extend([(part, depth + 1) for part in item if type(part) not in PLAIN_ATTRS])
        elif type(item) not in PLAIN_ATTRS and not isinstance(item, SymDim | DType | Type):
            return False
    return True


def _check_sizes(program: Program, findings: Findings) -> None:
    """Check that a name of a size always has the same bounds, and that no size is negative."""
    found = mentions(program)
    for tensor in found.tensors:
        if any(isinstance(size, int) and size < 0 for size in tensor.shape or ()):
            findings.add("IRS120", f"the type {tensor} has a negative size")
    sizes: dict[str, SymDim] = {}
    for name, size in program.symbols.items():
        if size.symbols() != (size,) or str(size) != name:
            findings.add("IRS127", f"the symbol table lists {size} under the name {name!r}")
        sizes[name] = size
    for size in found.symbols:
        first = sizes.setdefault(str(size), size)
        if first is not size:
            findings.add("IRS127", f"the size {size} has the bounds {_bounds(first)} in one place and {_bounds(size)} in another")


def _bounds(size: SymDim) -> str:
    return f"[{'*' if size.lo is None else size.lo},{'*' if size.hi is None else size.hi}]"


def _check_recursion(program: Program, findings: Findings) -> None:
    """Check that no function calls itself, directly or through others."""
    callees = {
        name: dict.fromkeys(str(node.attrs.get("callee")) for node in body.walk() if node.op == "cf.call")
        for name, body in program.functions.items()
    }
    done: set[str] = set()
    for start in callees:
        path: dict[str, None] = {}
        todo = [(start, False)]
        while todo:
            name, is_left = todo.pop()
            if is_left:
                del path[name]
                done.add(name)
            elif name in path:
                findings.add("IRS125", f"the function {name!r} calls itself: {' > '.join([*path, name])}")
            elif name not in done and name in callees:
                path[name] = None
                todo.append((name, True))
                todo.extend([(callee, False) for callee in callees[name]])
