"""Symbolic sizes in torch.export's files: sympy expressions written as text, read as a Dim."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from irscope.ir.dims import Dim, SymDim, ceildiv, dim_max, dim_min, exact_div, floordiv, mod, symbol, unknown

_LONGEST = 20_000
_FAR = 1 << 62


class UnreadableExpression(Exception):
    """An expression that has no counterpart among irscope's sizes."""


class Symbols:
    """The symbols of one file, with the ranges that the file gives them."""

    def __init__(self, ranges: Mapping[str, object]) -> None:
        self._ranges = ranges
        self._made: dict[str, SymDim] = {}
        self._expressions: dict[str, Dim | None] = {}
        self.named: dict[str, SymDim] = {}
        """Sizes of inputs, which a user may bind."""
        self.assigned: dict[str, Dim] = {}
        """Names that a text gives sizes, which are no symbols of their own."""

    def _range(self, name: str) -> tuple[int | None, int | None]:
        found = self._ranges.get(name)
        if not isinstance(found, dict):
            return None, None
        low, high = found.get("min_val"), found.get("max_val")
        return (
            low if isinstance(low, int) and abs(low) < _FAR else None,
            high if isinstance(high, int) and abs(high) < _FAR else None,
        )

    def get(self, name: str) -> SymDim:
        """Return the symbol of that name; what the model computes from data (u0, u1, ...) is unknown rather than bindable."""
        made = self._made.get(name)
        if made is None:
            low, high = self._range(name)
            if low is not None and high is not None and low > high:
                low = high = None
            if name.startswith(("u", "zuf")) and name.lstrip("zuf").isdigit():
                made = unknown(f"file.{name}", low, high)
            else:
                made = symbol(name, 1 if low is None else low, high)
                self.named[name] = made
            self._made[name] = made
        return made

    def parse(self, text: str) -> Dim | None:
        """Return the size that an expression stands for, None where it is of a kind that sizes here do not have."""
        if self.assigned:  # what a name stands for may change between two uses of it
            return self._parse(text)
        if text not in self._expressions:
            self._expressions[text] = self._parse(text)
        return self._expressions[text]

    def _parse(self, text: str) -> Dim | None:
        if len(text) > _LONGEST:
            return None
        try:
            top, bottom = _Reader(self).read(ast.parse(text, mode="eval").body)
        except (UnreadableExpression, SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(bottom, int) and bottom == 1:
            return top
        return exact_div(top, bottom)


Ratio = tuple[Dim, Dim]


class _Reader:
    """Evaluates sympy's constructors; a value is a quotient of two sizes."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def read(self, node: ast.expr) -> Ratio:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value), 1
        if isinstance(node, ast.Name):
            assigned = self._symbols.assigned.get(node.id)
            return (self._symbols.get(node.id) if assigned is None else assigned), 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            top, bottom = self.read(node.operand)
            return top * -1, bottom
        if isinstance(node, ast.BinOp):
            return self._operator(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise UnreadableExpression

    def _operator(self, node: ast.BinOp) -> Ratio:
        name = _OPERATORS.get(type(node.op))
        if name is None:
            raise UnreadableExpression
        return _FUNCTIONS[name]([self.read(node.left), self.read(node.right)])

    def _call(self, node: ast.Call) -> Ratio:
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("Symbol", "Dummy"):
            first = node.args[0]
            if not isinstance(first, ast.Constant) or not isinstance(first.value, str) or not first.value.isidentifier():
                raise UnreadableExpression
            return self._symbols.get(first.value), 1
        function = _FUNCTIONS.get(name)
        if function is None:
            raise UnreadableExpression
        return function([self.read(arg) for arg in node.args])


def _whole_number(value: Ratio) -> Dim:
    top, bottom = value
    if isinstance(bottom, int) and bottom == 1:
        return top
    dim = exact_div(top, bottom)
    if dim is None:
        raise UnreadableExpression
    return dim


def _sum_of(values: list[Ratio]) -> Ratio:
    top, bottom = values[0]
    for other_top, other_bottom in values[1:]:
        if bottom is other_bottom or bottom == other_bottom:
            top = top + other_top
        else:
            top, bottom = top * other_bottom + other_top * bottom, bottom * other_bottom
    return top, bottom


def _product_of(values: list[Ratio]) -> Ratio:
    top: Dim = 1
    bottom: Dim = 1
    for other_top, other_bottom in values:
        top, bottom = top * other_top, bottom * other_bottom
    return top, bottom


def _subtract(values: list[Ratio]) -> Ratio:
    return _sum_of([values[0], (values[1][0] * -1, values[1][1])])


def _divide_ratios(values: list[Ratio]) -> Ratio:
    (top, bottom), (other_top, other_bottom) = values
    return top * other_bottom, bottom * other_top


def _power_of(values: list[Ratio]) -> Ratio:
    (top, bottom), (exponent, unit) = values
    if isinstance(exponent, SymDim) or unit != 1 or not -8 <= exponent <= 8:
        raise UnreadableExpression
    if exponent < 0:
        top, bottom, exponent = bottom, top, -exponent
    return _product_of([(top, bottom)] * exponent)


def _floor_divide(values: list[Ratio]) -> Ratio:
    top, bottom = _divide_ratios(values)
    return floordiv(top, bottom), 1


def _extreme_of(function: Callable[[Dim, Dim], Dim]) -> Callable[[list[Ratio]], Ratio]:
    def apply(values: list[Ratio]) -> Ratio:
        found = _whole_number(values[0])
        for value in values[1:]:
            found = function(found, _whole_number(value))
        return found, 1

    return apply


def _integer(values: list[Ratio]) -> Ratio:
    return values[0]


_FUNCTIONS: dict[str, Callable[[list[Ratio]], Ratio]] = {
    "Integer": _integer,
    "Rational": _divide_ratios,
    "Add": _sum_of,
    "Sub": _subtract,
    "Mul": _product_of,
    "Pow": _power_of,
    "PowByNatural": _power_of,
    "FloorDiv": _floor_divide,
    "CleanDiv": _floor_divide,
    "IntTrueDiv": _divide_ratios,
    "TrueDiv": _divide_ratios,
    "Mod": lambda values: (mod(_whole_number(values[0]), _whole_number(values[1])), 1),
    "PythonMod": lambda values: (mod(_whole_number(values[0]), _whole_number(values[1])), 1),
    "Max": _extreme_of(dim_max),
    "Min": _extreme_of(dim_min),
    "floor": lambda values: (floordiv(*values[0]), 1),
    "FloorToInt": lambda values: (floordiv(*values[0]), 1),
    "CeilToInt": lambda values: (ceildiv(*values[0]), 1),
    "ceiling": lambda values: (ceildiv(*values[0]), 1),
    "Identity": _integer,
    "One": lambda values: (1, 1),
    "Zero": lambda values: (0, 1),
    "NegativeOne": lambda values: (-1, 1),
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Pow: "Pow",
    ast.Div: "IntTrueDiv",
    ast.FloorDiv: "FloorDiv",
    ast.Mod: "Mod",
}
