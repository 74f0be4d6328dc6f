"""Format of rules: text where an operator maps onto one of irscope's, functions where it takes more.

A text is lines of "operator operands ; attributes ; roles" (see `irscope.frontends.templates`). An operand is the place of an ONNX operand,
from 0, `0!` where it must be there, `_` for an absent one; without any, all of them are taken as they are. Kinds of attributes are those
of the operator's record. Roles say what weights are that stand as operands: `buffer 1 2 param 8`. The last line makes the results;
lines before it, `name = operator operands ; attributes`, make values for the lines below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, cast

from irscope.frontends.onnx.call import Call, Mismatch, Operand
from irscope.frontends.templates import Attribute, Template, parse_template
from irscope.immutable import immutable, mutable
from irscope.ir.graph import Attr, Role, Value
from irscope.ops.registry import find_op

Lower: TypeAlias = Callable[[Call], None]
Rule: TypeAlias = "str | Lower"
Table: TypeAlias = "Mapping[str, Rule | Mapping[int, Rule]]"
"""Rules by operator; where meanings changed, by the version of the operator set from which on they hold."""

_READERS: dict[str, Callable[[Call, str], Attr]] = {
    "int": Call.integer, "Dim": Call.integer, "bool": Call.flag, "float": Call.number, "any": Call.number, "str": Call.text,
    "int[]": Call.integers, "Dims": Call.integers, "float[]": Call.numbers, "str[]": Call.texts, "dtype": Call.dtype,
}  # fmt: skip
"""Readers of attributes by their kind in operators' records; what may be any number in a record is a float in ONNX."""


@immutable
class _Line:
    """One line of a rule, with readers for its attributes."""

    names: tuple[str, ...]
    template: Template
    attributes: tuple[tuple[Attribute, Callable[[Call, str], Attr]], ...]
    roles: tuple[tuple[Role, int], ...]

    def inputs(self, call: Call, made: Mapping[str, Value]) -> Sequence[Operand]:
        """Return the operands; absent ones at the end are left out."""
        if not self.template.operands:
            return call.inputs
        operands: list[Operand] = []
        for word in self.template.operands:
            if word in made:
                operands.append(made[word])
            elif word == "_":
                operands.append(None)
            else:
                operands.append(call.needed(int(word[:-1])) if word.endswith("!") else call.operand(int(word)))
        while operands and operands[-1] is None:
            operands.pop()
        return operands

    def attrs(self, call: Call) -> dict[str, Attr]:
        """Return the attributes under their names in the IR."""
        for role, place in self.roles:
            call.mark(role, place)
        attrs: dict[str, Attr] = {}
        for attribute, read in self.attributes:
            value = None
            if attribute.theirs is not None and call.attrs.get(attribute.theirs) is not None:
                # An element type may be given as "undefined", which is as good as not given.
                value = read(call, attribute.theirs)
            if value is None:
                value = attribute.value
            if value is not None:
                attrs[attribute.ours] = value
            elif attribute.required:
                raise Mismatch(f"attribute {attribute.theirs} is absent")
        return attrs


@functools.cache
def _read_lines(text: str) -> tuple[_Line, ...]:
    return tuple([_read_line(line) for line in text.strip().splitlines()])


def _read_line(text: str) -> _Line:
    names, equals, rest = text.partition(" = ")
    head, *tail = (rest if equals else text).split(";")
    template = parse_template(";".join([head, *tail[:1]]))
    spec = find_op(template.op)
    if spec is None:
        raise ValueError(f"there is no operator {template.op}")
    kinds = {param.name: param.kind for param in (*spec.schema.attrs, *spec.schema.operands)}
    # What the rule itself gives is not read.
    attributes = tuple([(attr, Call.integer if attr.theirs is None else _READERS[kinds[attr.ours]]) for attr in template.attributes])
    roles: list[tuple[Role, int]] = []
    role = Role.BUFFER
    for word in tail[1].split() if len(tail) > 1 else ():
        if word.isdigit():
            roles.append((role, int(word)))
        else:
            role = Role(word)
    return _Line(tuple(names.split()) if equals else (), template, attributes, tuple(roles))


_NOTHING: Mapping[str, Attr] = {}
_NO_WEIGHTS: Mapping[str, Role] = {}


def lower_as(
    call: Call,
    text: str,
    attrs: Mapping[str, Attr] = _NOTHING,
    *,
    inputs: Sequence[Operand] | None = None,
    weights: Mapping[str, Role] = _NO_WEIGHTS,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Lower a call by the text of a rule, with what the text cannot say.

    That is attributes that were computed, operands that were made before, and weights that stand in attributes: they become the last
    operands, with these `shapes` where they are flat lists.
    """
    *before, last = _read_lines(text)
    made: dict[str, Value] = {}
    for line in before:
        results = call.several(line.template.op, line.inputs(call, made), len(line.names), line.attrs(call))
        made.update(zip(line.names, results, strict=True))
    found = last.attrs(call)
    found.update(attrs)
    operands = last.inputs(call, made) if inputs is None else inputs
    if weights:
        operands = [*operands, *call.attribute_weights(weights, shapes)]
    if before:
        call.last(last.template.op, operands, found)
    else:
        call.emit(last.template.op, operands, found)


def read_attrs(call: Call, text: str) -> dict[str, Attr]:
    """Return the attributes of a call by the text of a rule, for a node that is made otherwise."""
    return _read_lines(text)[-1].attrs(call)


def compile_rule(rule: Rule | Mapping[int, Rule]) -> Lower:
    """Return the function that a rule of a table is."""
    if isinstance(rule, str):
        _read_lines(rule)
        return functools.partial(_by_text, rule)
    if isinstance(rule, Mapping):
        return functools.partial(_by_version, [(since, compile_rule(one)) for since, one in sorted(rule.items(), reverse=True)])
    return rule


def _by_text(text: str, call: Call) -> None:
    lower_as(call, text)


def _by_version(rules: Sequence[tuple[int, Lower]], call: Call) -> None:
    """Versions before the first one that is known are read as that one."""
    lower = next((lower for since, lower in rules if call.version >= since), rules[-1][1])
    lower(call)


@immutable
class Recipe:
    """Node that a rule makes of every node with the same attributes and as many operands and results."""

    op: str
    places: tuple[int, ...] | None
    """Which operands it takes; None for all of them as they are."""
    attrs: Mapping[str, Attr]
    roles: tuple[tuple[Role, int], ...]


@mutable(slots=True, eq=False)
class Use:
    """Common part of nodes whose operators, attributes and numbers of operands and results are the same."""

    op_type: str
    source: str = ""
    """The operator as nodes of the graph name it."""
    recipe: Recipe | None = None
    times: int = 0
    """Number of nodes that the rule itself lowered."""


class _AsksMore(Exception):
    """A rule looks at more than attributes and numbers of operands and results."""


class _Anything:
    """An operand of which a rule may only know that it is there."""

    def _refuse(self, *_: object) -> NoReturn:
        raise _AsksMore

    __getattr__ = __bool__ = __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


class _Trial(Call):
    """A call without a graph around it, which notes what a rule adds."""

    __slots__ = ("made", "roles")

    def __init__(self, domain: str, op_type: str, version: int, operands: int, results: int, attrs: dict[str, Any]) -> None:
        self.domain, self.op_type, self.version = domain, op_type, version
        self.inputs = cast("list[Operand]", [_Anything() for _ in range(operands)])
        self.outputs = ["result"] * results
        self.attrs = attrs
        self.made: list[tuple[str, Sequence[Operand], Mapping[str, Attr]]] = []
        self.roles: list[tuple[Role, int]] = []

    def __getattr__(self, name: str) -> NoReturn:
        # The slots that were not filled: the graph around the node, its name, its place.
        raise _AsksMore

    def emit(self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None) -> Any:
        self.made.append((op, tuple(inputs), attrs or {}))

    def last(self, op: str, inputs: Sequence[Operand], attrs: Mapping[str, Attr] | None = None) -> Any:
        if len(self.outputs) != 1:
            raise _AsksMore
        self.emit(op, inputs, attrs)

    def mark(self, role: Role, *indices: int) -> None:
        self.roles.extend([(role, index) for index in indices if index < len(self.inputs)])


def find_recipe(lower: Lower, call: Call) -> Recipe | None:
    """Return what a rule makes of all calls like this one, with all operands and results; None where it reads more than those."""
    trial = _Trial(call.domain, call.op_type, call.version, len(call.inputs), len(call.outputs), call.attrs)
    try:
        lower(trial)
    except (_AsksMore, Mismatch):
        return None
    if len(trial.made) != 1:
        return None
    ((op, operands, attrs),) = trial.made
    numbers = {id(operand): place for place, operand in enumerate(trial.inputs)}
    if any(id(operand) not in numbers for operand in operands):
        return None
    places = tuple([numbers[id(operand)] for operand in operands])
    return Recipe(op, None if places == tuple(range(len(trial.inputs))) else places, MappingProxyType({**attrs}), tuple(trial.roles))
