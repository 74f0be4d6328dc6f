"""From ATen operators to irscope's: one call becomes one node, described as data and made by the frontend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias, cast

from irscope.frontends.templates import Attribute, parse_template
from irscope.frontends.torch_lowering.signatures import Argument, Signature
from irscope.immutable import immutable, mutable
from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr, Value
from irscope.ir.program import Called


@mutable(slots=True)
class Lowered:
    """A node to be made: operator, operands, attributes."""

    op: str
    inputs: Sequence[Value | None]
    attrs: dict[str, Attr] = field(default_factory=dict)
    results: tuple[int | None, ...] | None = None
    """For each result of the ATen operator the node's result that is meant, None where it is an empty tensor that is not read.
    None as a whole: the same results in the same order."""


class CannotLower(Exception):
    """This use of an operator has no counterpart; it becomes a foreign node."""


@immutable
class AtenCall:
    """One call with its arguments by name."""

    signature: Signature
    args: Mapping[str, Argument]

    @property
    def overload(self) -> str:
        return self.signature.overload

    @property
    def called(self) -> Called:
        """Return the call as the program keeps it."""
        return Called(f"{self.signature.name}.{self.overload or 'default'}", cast("Mapping[str, Attr | Value]", self.args))

    def __getitem__(self, name: str) -> Argument:
        return self.args.get(name)

    def has(self, name: str) -> bool:
        return self.args.get(name) is not None

    def tensor(self, name: str) -> Value:
        """Return a tensor argument that must be there."""
        value = self.args.get(name)
        if not isinstance(value, Value):
            raise CannotLower(f"{name} is not a tensor")
        return value

    def maybe(self, name: str) -> Value | None:
        value = self.args.get(name)
        if value is not None and not isinstance(value, Value):
            raise CannotLower(f"{name} is not a tensor")
        return value

    def tensors(self, name: str) -> list[Value | None]:
        """Return a list of tensors, some of which may be absent."""
        value = self.args.get(name)
        if not isinstance(value, tuple | list) or not all(item is None or isinstance(item, Value) for item in value):
            raise CannotLower(f"{name} is not a list of tensors")
        return list(value)

    def flag(self, name: str) -> bool:
        return bool(self.args.get(name))

    def text(self, name: str) -> str:
        return str(self.args.get(name) or "")

    def dims(self, name: str) -> tuple[Attr, ...]:
        """Return a list of sizes; a single one counts as a list."""
        value = self.args.get(name)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, tuple | list) else (value,)

    def spread(self, name: str, count: int) -> tuple[Attr, ...]:
        """Return a list of `count` sizes where a single one stands for all."""
        found = self.dims(name)
        return found * count if len(found) == 1 else found

    def rank(self, name: str) -> int | None:
        """Return the axes of a tensor argument, None where they are unknown."""
        type_ = self.tensor(name).type
        return type_.rank


Rule: TypeAlias = Callable[[AtenCall], Lowered]


# -- templates ---------------------------------------------------------------------------------------------------------


def from_template(text: str) -> Rule:
    """Return a rule from its text form (see `irscope.frontends.templates`).

    An operand is the name of an ATen argument, `_` for an absent one, `name*` for a list of tensors, `name|attr` for what
    may be a tensor or a number (which then becomes that attribute), `one/other` for the first of these that the overload has,
    `name?` at the end for what is left out where it is absent.
    """
    template = parse_template(text)
    op, operands = template.op, template.operands

    def rule(call: AtenCall) -> Lowered:
        inputs: list[Value | None] = []
        attrs: dict[str, Attr] = {}
        if operands == ("self", "other|value") and op.startswith("math.") and not isinstance(call["self"], Value):
            # A number on the left, as in `1 - x`.
            _add_operand(call, "self|value", inputs, attrs)
            inputs = [call.tensor("other")]
            attrs["reverse"] = True
        else:
            for operand in operands:
                _add_operand(call, operand, inputs, attrs)
        for attribute in template.attributes:
            value = _attribute_value(call, attribute)
            if value is not None:
                attrs[attribute.ours] = value
        return Lowered(op, inputs, attrs)

    return rule


def _attribute_value(call: AtenCall, attribute: Attribute) -> Attr:
    """Return what an attribute is for a call; None where it is left out."""
    theirs = attribute.theirs
    if theirs is None:
        return attribute.value
    value = tuple([call[name] for name in theirs[1:-1].split(",")]) if theirs.startswith("(") else call[theirs]
    if value is None:
        value = attribute.value
    if isinstance(value, Value):
        raise CannotLower(f"{theirs} is a tensor")
    if attribute.words:
        if not isinstance(value, int) or not 0 <= value < len(attribute.words):
            raise CannotLower(f"{theirs} is none of {', '.join(attribute.words)}")
        return attribute.words[value]
    if attribute.as_list and value is not None and not isinstance(value, tuple | list):
        value = (value,)
    return tuple(value) if isinstance(value, list) else cast("Attr", value)


def _add_operand(call: AtenCall, operand: str, inputs: list[Value | None], attrs: dict[str, Attr]) -> None:
    if "/" in operand:
        operand = next((part for part in operand.split("/") if part in call.args), "_")
    if operand == "_":
        inputs.append(None)
    elif operand.endswith("?"):
        inputs += [call.tensor(operand[:-1])] if call.has(operand[:-1]) else []
    elif operand.rstrip("*").partition("|")[0] not in call.args:
        raise CannotLower(f"this overload has no {operand}")
    elif operand.endswith("*"):
        inputs.extend(call.tensors(operand[:-1]))
    elif "|" in operand:
        name, _, attr = operand.partition("|")
        value = call[name]
        if value is None or isinstance(value, Value):
            inputs.append(value)
        elif isinstance(value, bool | int | float | complex | SymDim):
            inputs.append(None)
            attrs[attr] = value
        else:
            raise CannotLower(f"{name} is neither a tensor nor a number")
    else:
        inputs.append(call.maybe(operand))
