"""Printing programs in the text form `.irs`: one node a line, read back exactly by `irscope.ir.parser`."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice

from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr, Graph, Node, Run, Value, runs
from irscope.ir.places import Loc, Scope
from irscope.ir.program import ALL_RESULTS, FORMAT_TRAITS, INFERRED, Program, Traits, is_unstated, mentions
from irscope.ir.spelling import TEXT_VERSION, attrs_text, label_text, loc_text, name_text, op_text, payload_text, quote, scope_text

# The names under which a text shows the values of a program.


class ValueNames(dict[Value | None, str]):
    """Names by value; a value that no name was made for gets one with a question mark, which no text can define."""

    def __init__(self) -> None:
        super().__init__({None: "_"})

    def __missing__(self, value: Value | None) -> str:
        return "%?" if value is None or value.name is None else f"%?{name_text(value.name)[1:]}"


class _LooseNames(ValueNames):
    def __missing__(self, value: Value | None) -> str:
        if value is None or value.name is None:
            return "%?"
        return name_text(value.name)


def loose_names() -> ValueNames:
    """Return names for a node shown alone: its values by their own names, unnamed ones as `%?`."""
    return _LooseNames()


def value_names(bodies: Sequence[Graph]) -> ValueNames:
    """Return names for all values of these graphs and their regions: their own where they have one, else numbers from 0.

    Where two values that see one another have the same name, the later one gets a suffix.
    """
    names = ValueNames()
    for body in bodies:
        _name_body(body, names)
    return names


def unusual_names(names: ValueNames) -> ValueNames:
    """The same names without those that are a value's own, which are spelled when they are asked for: of a large model nearly all."""
    kept = loose_names()
    kept.update((value, text) for value, text in names.items() if value is None or value.name is None or name_text(value.name) != text)
    return kept


def _name_body(body: Graph, names: ValueNames) -> None:
    numbers = count()
    taken: set[str] = set()
    suffixes: dict[str, int] = {}
    # The tokens of each open graph: they are free again once it ends.
    levels: list[list[str]] = []
    for run in runs(body):
        if run.opens:
            levels.append([])
        tokens = levels[-1]
        for value in _defined(run):
            # A broken program may define a value twice.
            if value in names:
                continue
            name = value.name
            if name is None:
                names[value] = f"%{next(numbers)}"
                continue
            token = name_text(name)
            while token in taken:
                suffixes[name] = suffix = suffixes.get(name, 1) + 1
                token = name_text(f"{name}~{suffix}")
            taken.add(token)
            tokens.append(token)
            names[value] = token
        if run.closes:
            taken.difference_update(levels.pop())


def _defined(run: Run) -> chain[Value]:
    outputs = [value for node in run.nodes for value in node.outputs]
    return chain(run.graph.inputs, run.graph.weights, outputs) if run.opens else chain(outputs)


# Printing programs in the text form `.irs`: one node a line, read back exactly by `irscope.ir.parser`.

_CHUNK_LINES = 4096
_MAX_INDENT = 40


def print_program(program: Program, *, locations: bool = True, limit: int | None = None) -> str:
    """Return the whole program as text; with a limit, at most that many nodes (such a text is for reading only)."""
    return "".join(_chunks(_program_lines(program, locations, limit)))


def print_node(node: Node, names: ValueNames | None = None, *, locations: bool = True) -> str:
    """Return one node as a line without indentation; without names, values that have none are shown as `%?`."""
    return _Printer(loose_names() if names is None else names, locations).node(node)


def _chunks(lines: Iterator[str]) -> Iterator[str]:
    while chunk := list(islice(lines, _CHUNK_LINES)):
        yield "\n".join(chunk) + "\n"


class _Printer:
    """Spells nodes; remembers the spelling of what many nodes share."""

    def __init__(self, names: ValueNames, locations: bool) -> None:
        self.names = names
        self.locations = locations
        self.facts: Mapping[Value, Mapping[str, Attr]] = {}
        self.scopes: dict[Scope, str] = {}
        self.ops: dict[str, str] = {}
        # By identity: hashing a location would go through all its callers. The location is kept so that its id stays its own.
        self.locs: dict[int, tuple[Loc, str]] = {}

    def node(self, node: Node) -> str:
        names = self.names
        op = self.ops.get(node.op)
        if op is None:
            op = self.ops[node.op] = op_text(node.op)
        text = f"{op}({', '.join([names[value] for value in node.inputs])})"
        if node.outputs:
            text = f"{', '.join([f'{names[value]}: {value.type.text}' for value in node.outputs])} = {text}"
        if node.attrs:
            text += f" {attrs_text(node.attrs)}"
        scope = self.scopes.get(node.scope)
        if scope is None:
            scope = self.scopes[node.scope] = f" @{scope_text(node.scope)}" if node.scope.parent is not None else ""
        text += scope
        if node.source:
            text += f" !{quote(node.source)}"
        if node.loc is not None and self.locations:
            text += self.loc(node.loc)
        return text

    def facts_lines(self, values: Iterable[Value], indent: str) -> Iterator[str]:
        """Yield lines with the facts of values, behind the line that defines them."""
        return (f"{indent}  about {self.names[value]} {attrs_text(self.facts[value])}" for value in values if value in self.facts)

    def loc(self, loc: Loc) -> str:
        known = self.locs.get(id(loc))
        if known is None:
            known = self.locs[id(loc)] = (loc, f" {loc_text(loc)}")
        return known[1]


def _program_lines(program: Program, locations: bool, limit: int | None) -> Iterator[str]:
    yield from _header_lines(program)
    printer = _Printer(value_names([program.graph, *program.functions.values()]), locations)
    printer.facts = program.value_facts()
    budget = _Budget(program.node_count if limit is None else max(limit, 0))
    if facts := program.facts():
        yield f"facts {attrs_text(facts)}"
    yield from _class_lines(program.graph, "")
    yield f"graph @{label_text(program.graph.name)} {{"
    yield from _body_lines(program.graph, printer, budget)
    for name, body in program.functions.items():
        if budget.is_spent:
            break
        yield f"func @{label_text(name)} {{"
        yield from _class_lines(body, "  ")
        yield from _body_lines(body, printer, budget)
    if budget.is_spent:
        more = program.node_count - budget.total
        yield f"# {more} more {'node' if more == 1 else 'nodes'}"


def _header_lines(program: Program) -> Iterator[str]:
    yield f"irscope {TEXT_VERSION}"
    if program.format != "irs":
        yield f"format {quote(program.format)}"
    usual = FORMAT_TRAITS.get(program.format, Traits())
    for name in Traits.__dataclass_fields__:
        trait = getattr(program.traits, name)
        if trait != getattr(usual, name):
            yield f"trait {quote(name)} {quote(_trait_text(trait))}"
    for key, value in program.metadata.items():
        yield f"meta {quote(key)} {quote(value)}"
    inferred = _inferred(program)
    if inferred:
        yield f"meta {quote(INFERRED)} {quote(inferred)}"
    for name, number in program.given.items():
        yield f"given {quote(name)} {number}"
    for assumption in program.assumed:
        yield f"{'guess' if assumption.is_guess else 'default'} {quote(assumption.what)} {quote(assumption.value)} {quote(assumption.why)}"
    for name, size in program.symbols.items():
        yield f"symbol {name} {_bounds_text(size)}"
    for size in mentions(program).symbols:
        name = str(size)
        if name not in program.symbols and (size.lo, size.hi) != (0 if size.is_unknown else 1, None):
            yield f"bound {name} {_bounds_text(size)}"


def _inferred(program: Program) -> str:
    """Results of the main graph whose types the file does not state, though the text does: what plans by the types that a file states needs
    to know. The names of all as JSON, or a star; empty where the file states all, or nobody asked."""
    results = [output for node in program.graph for output in node.outputs] if program.declared else []
    unstated = [
        one for one in results if one in program.declared and one.type is not program.declared[one] and is_unstated(program.declared[one])
    ]
    if not unstated:
        return ""
    return ALL_RESULTS if len(unstated) == len(results) else json.dumps([one.name for one in unstated])


def _trait_text(trait: enum.Enum | str | bool) -> str:
    return str(trait.value) if isinstance(trait, enum.Enum) else str(trait).lower()


def _bounds_text(size: SymDim) -> str:
    lo, hi = ("*" if bound is None else bound for bound in (size.lo, size.hi))
    return f"[{lo},{hi}]"


def _class_lines(body: Graph, indent: str) -> Iterator[str]:
    """Yield a line for each scope with a class, outer before inner."""
    seen: dict[Scope, None] = {}
    for found in dict.fromkeys([body.scope, *(node.scope for node in body.walk())]):
        fresh: list[Scope] = []
        scope: Scope | None = found
        while scope is not None and scope not in seen:
            fresh.append(scope)
            scope = scope.parent
        seen.update(dict.fromkeys(reversed(fresh)))
    for scope in seen:
        if scope.cls:
            yield f"{indent}class {scope_text(scope) or quote('')} {quote(scope.cls)}"


class _Budget:
    """Limit on the number of printed nodes; it notes if there were more."""

    def __init__(self, total: int) -> None:
        self.total = self.left = total
        self.is_spent = False

    def take(self, nodes: list[Node]) -> list[Node]:
        taken = nodes[: self.left]
        self.left -= len(taken)
        self.is_spent = len(taken) < len(nodes)
        return taken


def _body_lines(body: Graph, printer: _Printer, budget: _Budget) -> Iterator[str]:
    for run in runs(body):
        # Deep nests would otherwise consist of blanks.
        indent = "  " * min(run.depth, _MAX_INDENT)
        yield from _run_lines(run, printer, budget, indent)
        if budget.is_spent:
            yield from [f"{'  ' * min(depth, _MAX_INDENT)}}}" for depth in range(run.depth, -1, -1)]
            return


def _run_lines(run: Run, printer: _Printer, budget: _Budget, indent: str) -> Iterator[str]:
    graph = run.graph
    if run.opens:
        if graph.owner is not None:
            yield f"{indent}region {label_text(graph.name)} {{"
        yield from _declaration_lines(graph, printer, indent)
    for node in budget.take(run.nodes):
        yield f"{indent}  {printer.node(node)}"
        if printer.facts:
            yield from printer.facts_lines(node.outputs, indent)
    if budget.is_spent:
        yield f"{indent}  # ..."
    elif run.closes:
        outputs = ", ".join([printer.names[value] for value in graph.outputs])
        yield f"{indent}  return {outputs}" if outputs else f"{indent}  return"
        yield f"{indent}}}"


def _declaration_lines(graph: Graph, printer: _Printer, indent: str) -> Iterator[str]:
    for value in graph.inputs:
        yield f"{indent}  {value.role.value} {printer.names[value]}: {value.type.text}"
    for value in graph.weights:
        data = graph.data.get(value)
        payload = payload_text(data) if data is not None else ""
        yield f"{indent}  {value.role.value} {printer.names[value]}: {value.type.text}{payload}"
    yield from printer.facts_lines((*graph.inputs, *graph.weights), indent)
