"""Constant folding for tensors of one known element, as traced code uses them for sizes."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.frontends.torchscript.plain import BUILTINS, NotKnown
from irscope.frontends.torchscript.values import Item, KnownTensor, is_number
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType

_FOLDED = frozenset(
    {
        "add",
        "sub",
        "mul",
        "floor_divide",
        "floordiv",
        "remainder",
        "neg",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "min",
        "max",
        "minimum",
        "maximum",
        "div",
        "rsub",
        "abs",
    }
)
TRUTHS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


_KEEPING = frozenset({"detach", "clone", "contiguous", "squeeze", "alias", "lift_fresh"})


def fold(name: str, args: list[Item], named: Mapping[str, Item]) -> Item:
    """The known result; None where the call is an ordinary operator."""
    if not args or not any(isinstance(arg, KnownTensor) for arg in args):
        return None
    if name in _KEEPING:
        return args[0] if isinstance(args[0], KnownTensor) else None
    if name not in _FOLDED or not all(isinstance(arg, KnownTensor) or is_number(arg) for arg in args):
        return None
    mode = named.get("rounding_mode")
    if name == "div" and mode is None and not any(_is_real(arg) for arg in args):
        return None
    found = _compute(name, [arg.number if isinstance(arg, KnownTensor) else arg for arg in args], mode is not None)
    if not isinstance(found, bool | int | float | SymDim):
        return None
    return KnownTensor(found, _dtype(name, args, found))


def _compute(name: str, numbers: list[Item], rounded: bool) -> Item:
    """The result as a number; None where it cannot be known."""
    if name in ("add", "sub", "rsub") and len(numbers) == 3 and numbers.pop() != 1:
        return None
    if name == "rsub":
        name, numbers = "sub", numbers[::-1]
    if name == "div" and rounded:
        name = "floordiv"
    try:
        return BUILTINS[{"minimum": "min", "maximum": "max"}.get(name, name)](*numbers)
    except (NotKnown, ArithmeticError, TypeError):
        return None


def _dtype(name: str, args: list[Item], found: Item) -> DType:
    if name in TRUTHS:
        return DType.BOOL
    dtypes = [arg.dtype for arg in args if isinstance(arg, KnownTensor)]
    dtype = next((dtype for dtype in dtypes if dtype.is_float), dtypes[0])
    return DType.F32 if isinstance(found, float) and not dtype.is_float else dtype


def _is_real(item: Item) -> bool:
    return isinstance(item, float) or (isinstance(item, KnownTensor) and isinstance(item.number, float))
