"""Whether two programs are the same in everything the text form shows, and if not, where they first differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from irscope.ir.graph import Attr, Graph, Node, Run, Value, runs
from irscope.ir.places import Literal, Loc, Payload, Scope
from irscope.ir.printer import ValueNames, print_node, value_names
from irscope.ir.program import Program
from irscope.ir.spelling import attr_text, loc_text, payload_text, scope_text


def difference(a: Program, b: Program) -> str | None:
    """The first structural difference in words, or None; where the programs were read from does not count."""
    return _Comparison(a, b).run()


class _Comparison:
    """Goes through both programs side by side; values correspond when they are defined at the same place."""

    def __init__(self, a: Program, b: Program) -> None:
        self._a = a
        self._b = b
        self._twins: dict[Value, Value] = {}
        self._equal_scopes: set[tuple[Scope, Scope]] = set()
        self._names: ValueNames | None = None

    def run(self) -> str | None:
        a, b = self._a, self._b
        return (
            _differ("the format", a.format, b.format)
            or _dicts_differ("metadata", a.metadata, b.metadata)
            or _dicts_differ("given value", a.given, b.given)
            or _differ("traits", a.traits, b.traits)
            or _differ("what is assumed", a.assumed, b.assumed)
            or _dicts_differ("symbol", a.symbols, b.symbols)
            or self._bodies()
        )

    def _bodies(self) -> str | None:
        a, b = self._a, self._b
        if list(a.functions) != list(b.functions):
            return f"the functions are {_listed(a.functions)} and {_listed(b.functions)}"
        for left, right in zip([a.graph, *a.functions.values()], [b.graph, *b.functions.values()], strict=True):
            found = _differ("the name of the graph", left.name, right.name) or self._body(left, right)
            if found is not None:
                return f"graph @{left.name}: {found}"
        return None

    def _body(self, a: Graph, b: Graph) -> str | None:
        # Runs end where regions begin, and regions are compared before: both sides always stand at the same place.
        for left, right in zip(runs(a), runs(b), strict=False):
            found = self._run(left, right)
            if found is not None:
                owner = left.graph.owner
                return found if owner is None else f"region {left.graph.name!r} of {owner.name}: {found}"
        return None

    def _run(self, a: Run, b: Run) -> str | None:
        if a.opens:
            found = self._declarations(a.graph, b.graph)
            if found is not None:
                return found
        for left, right in zip(a.nodes, b.nodes, strict=False):
            found = self._node(left, right)
            if found is not None:
                return f"{found}, at {print_node(left, self._value_names(), locations=False)}"
        if len(a.nodes) != len(b.nodes):
            rest, side = (a.nodes[len(b.nodes)], "first") if len(a.nodes) > len(b.nodes) else (b.nodes[len(a.nodes)], "second")
            return f"only the {side} has the node {print_node(rest, self._value_names(), locations=False)}"
        if a.closes:
            return self._references("returned value", a.graph.outputs, b.graph.outputs)
        return None

    def _declarations(self, a: Graph, b: Graph) -> str | None:
        for what, ours, others in (("input", a.inputs, b.inputs), ("weight", a.weights, b.weights)):
            for index, (left, right) in enumerate(zip_longest(ours, others)):
                if left is None or right is None:
                    return f"the first has {len(ours)} {what}s, the second {len(others)}"
                declarations = self._definition(f"{what} {index}", left, right)
                if declarations is not None:
                    return declarations
        for left, right in zip(a.weights, b.weights, strict=True):
            if not _same_payload(a.data.get(left), b.data.get(right)):
                data = [payload_text(data) if data is not None else "" for data in (a.data.get(left), b.data.get(right))]
                return f"the data of {left.name or 'a weight'} is{data[0] or ' not in the text'} and{data[1] or ' not in the text'}"
        return None

    def _definition(self, what: str, a: Value, b: Value) -> str | None:
        self._twins[a] = b
        if a.name == b.name and a.type is b.type and a.role is b.role:
            return None
        return (
            _differ(f"the name of {what}", a.name, b.name)
            or _differ(f"the type of {what}", a.type.text, b.type.text)
            or _differ(f"the role of {what}", a.role.value, b.role.value)
        )

    def _node(self, a: Node, b: Node) -> str | None:
        found = (
            _differ("the operator", a.op, b.op)
            or self._references("input", a.inputs, b.inputs)
            or _differ("the number of outputs", len(a.outputs), len(b.outputs))
            or (self._attrs(a.attrs, b.attrs) if a.attrs or b.attrs else None)
            or _differ("the source operator", a.source, b.source)
        )
        if found is not None:
            return found
        for index, (left, right) in enumerate(zip(a.outputs, b.outputs, strict=True)):
            found = self._definition(f"output {index}", left, right)
            if found is not None:
                return found
        if not self._same_scope(a.scope, b.scope):
            return f"the scope is {_described(a.scope)} and {_described(b.scope)}"
        if not _same_loc(a.loc, b.loc):
            return f"the location is {loc_text(a.loc) if a.loc else 'missing'} and {loc_text(b.loc) if b.loc else 'missing'}"
        if a.regions or b.regions:
            return _differ("the regions", [region.name for region in a.regions], [region.name for region in b.regions])
        return None

    def _references(self, what: str, a: tuple[Value | None, ...], b: tuple[Value | None, ...]) -> str | None:
        if len(a) != len(b):
            return f"the number of {what}s is {len(a)} and {len(b)}"
        twins = self._twins
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            if (twins.get(left) if left is not None else None) is not right:
                names = self._value_names()
                return f"{what} {index} is {names[left]} and {names[right]}"
        return None

    @staticmethod
    def _attrs(a: Mapping[str, Attr], b: Mapping[str, Attr]) -> str | None:
        for key in dict.fromkeys((*a, *b)):
            if key not in a or key not in b:
                return f"only the {'first' if key in a else 'second'} has the attribute {key!r}"
            if not _same_attr(a[key], b[key]):
                return f"the attribute {key!r} is {attr_text(a[key])} and {attr_text(b[key])}"
        return None

    def _same_scope(self, a: Scope, b: Scope) -> bool:
        left: Scope | None = a
        right: Scope | None = b
        seen: list[tuple[Scope, Scope]] = []
        while left is not None and right is not None:
            if (left, right) in self._equal_scopes:
                break
            if left.name != right.name or left.call != right.call or left.cls != right.cls:
                return False
            seen.append((left, right))
            left, right = left.parent, right.parent
        if (left is None) != (right is None):
            return False
        self._equal_scopes.update(seen)
        return True

    def _value_names(self) -> ValueNames:
        """Names on both sides, made when the first difference is told."""
        if self._names is None:
            self._names = value_names([graph for side in (self._a, self._b) for graph in (side.graph, *side.functions.values())])
        return self._names


def _differ(what: str, a: object, b: object) -> str | None:
    return None if a == b else f"{what} is {a!r} and {b!r}"


def _dicts_differ(what: str, a: Mapping[str, object], b: Mapping[str, object]) -> str | None:
    for key in dict.fromkeys((*a, *b)):
        if key not in a or key not in b:
            return f"only the {'first' if key in a else 'second'} has the {what} {key!r}"
        if a[key] != b[key]:
            return f"the {what} {key!r} is {_with_bounds(a[key])} and {_with_bounds(b[key])}"
    return None


def _with_bounds(item: object) -> str:
    bounds = f" [{getattr(item, 'lo', '')},{getattr(item, 'hi', '')}]" if hasattr(item, "lo") else ""
    return f"{item if bounds else repr(item)}{bounds}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _described(scope: Scope) -> str:
    return f"{scope_text(scope) or 'the root'} of class {'/'.join(part.cls or '-' for part in scope.chain) or scope.cls or '-'}"


def _same_loc(a: Loc | None, b: Loc | None) -> bool:
    while a is not b:
        if a is None or b is None:
            return False
        if (a.line, a.file, a.function, a.statement) != (b.line, b.file, b.function, b.statement):
            return False
        a, b = a.caller, b.caller
    return True


def _same_payload(a: Payload | None, b: Payload | None) -> bool:
    if isinstance(a, Literal) and isinstance(b, Literal):
        return _same_attr(a.values, b.values)
    return a == b


def _same_attr(a: Attr, b: Attr) -> bool:
    """Whether two values are of one kind and equal; not-a-number equals itself, and the zeros differ."""
    todo: list[tuple[Attr, Attr]] = [(a, b)]
    while todo:
        left, right = todo.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, tuple):
            if len(left) != len(right):
                return False
            todo.extend(zip(left, right, strict=True))
        elif isinstance(left, float | complex):
            if repr(left) != repr(right):
                return False
        elif left is not right and left != right:
            return False
    return True
