"""Lowerings that only rename: which attributes an operator has, and what they are called in the IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from irscope.frontends.onnx.call import Call
from irscope.ir.graph import Attr

Lower = Callable[[Call], None]
Table = dict[str, Lower]


@dataclass(frozen=True, slots=True)
class Rule:
    """One attribute of an ONNX operator."""

    name: str
    to: str
    read: Callable[[Call, str], Attr]
    default: Attr = None
    """What ONNX takes where the attribute is absent; None leaves it out."""

    def apply(self, call: Call, attrs: dict[str, Attr]) -> None:
        value = self.read(call, self.name) if call.attrs.get(self.name) is not None else self.default
        if value is not None:
            attrs[self.to] = value


def integer(name: str, default: int | None = None, to: str = "") -> Rule:
    """An integer attribute."""
    return Rule(name, to or name, Call.integer, default)


def flag(name: str, default: bool | None = None, to: str = "") -> Rule:
    """A truth value that ONNX writes as an integer."""
    return Rule(name, to or name, Call.flag, default)


def number(name: str, default: float | None = None, to: str = "") -> Rule:
    """A float attribute."""
    return Rule(name, to or name, Call.number, default)


def text(name: str, default: str | None = None, to: str = "") -> Rule:
    """A string attribute."""
    return Rule(name, to or name, Call.text, default)


def integers(name: str, to: str = "") -> Rule:
    """A list of integers."""
    return Rule(name, to or name, Call.integers)


def numbers(name: str, to: str = "") -> Rule:
    """A list of floats."""
    return Rule(name, to or name, Call.numbers)


def texts(name: str, to: str = "") -> Rule:
    """A list of strings."""
    return Rule(name, to or name, Call.texts)


def element_type(name: str, default: Attr = None, to: str = "") -> Rule:
    """The number of an element type."""
    return Rule(name, to or name, Call.dtype, default)


def read(call: Call, *rules: Rule, **fixed: Attr) -> dict[str, Attr]:
    """The attributes of a call under their names in the IR."""
    attrs: dict[str, Attr] = {}
    for rule in rules:
        rule.apply(call, attrs)
    attrs.update(fixed)
    return attrs


def direct(op: str, *rules: Rule, **fixed: Attr) -> Lower:
    """An operator that the IR has too: same operands, same results, attributes renamed."""
    if not rules:

        def lower_plain(call: Call) -> None:
            call.emit(op, call.inputs, fixed)

        return lower_plain

    def lower(call: Call) -> None:
        call.emit(op, call.inputs, read(call, *rules, **fixed))

    return lower


def reordered(op: str, order: tuple[int, ...], *rules: Rule, **fixed: Attr) -> Lower:
    """Like `direct`, with the operands in another order."""

    def lower(call: Call) -> None:
        call.emit(op, call.operands(*order), read(call, *rules, **fixed))

    return lower
