"""The formula of a cost rule, found by giving the rule symbols in place of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, bind, symbol
from irscope.ir.types import Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.spec import OpCall, OpSpec
from irscope.passes.costs.entries import MEASURES


@dataclass(frozen=True)
class Formulas:
    """A rule in the sizes of its operands and results."""

    by_measure: dict[str, str]
    sizes: dict[str, Dim]
    """What each symbol stands for in this node."""


def formulas_of(spec: OpSpec, call: OpCall, cost: Cost) -> Formulas | None:
    """The rule as formulas that give the very cost of this call; None where the rule cannot take symbols.

    A rule may ask whether a size is 1 or larger than another, so sizes of 1, then all but the sizes that several
    axes share, stay numbers where formulas in all sizes do not give the cost.
    """
    for keep_ones in (False, True):
        for tie in (False, True):
            found = _attempt(spec, call, cost, keep_ones, tie)
            if found is not None:
                return found
    return None


def _attempt(spec: OpSpec, call: OpCall, cost: Cost, keep_ones: bool, tie: bool) -> Formulas | None:
    values: dict[str, Dim] = {}
    by_size: dict[Dim, SymDim] = {}

    def symbolic(type_: Type | None, name: str) -> Type | None:
        if type_ is None or type_.shape is None:
            return type_
        shape: list[Dim] = []
        for axis, size in enumerate(type_.shape):
            if (keep_ones and size == 1) or size == 0:
                shape.append(size)
            elif tie and size in by_size:
                shape.append(by_size[size])
            else:
                made = symbol(f"{name}{axis}")
                assert isinstance(made, SymDim)
                values[str(made)] = size
                by_size.setdefault(size, made)
                shape.append(made)
        return tensor(type_.dtype, shape, type_.device)

    operands = [symbolic(type_, name) for type_, name in zip(call.types, _names(spec, len(call.types)), strict=True)]
    results = [symbolic(type_, name) for type_, name in zip(call.results, _result_names(spec, len(call.results)), strict=True)]
    found = spec.cost_of(OpCall(spec, operands, call.attrs, call.values, [type_ for type_ in results if type_ is not None]))
    if found is None:
        return None
    by_measure: dict[str, str] = {}
    used: set[str] = set()
    for measure in MEASURES:
        formula = getattr(found, measure)
        exact = getattr(cost, measure)
        if formula is None or exact is None or _bound(formula, values) != exact:
            return None
        if formula != 0:
            by_measure[measure] = str(formula)
            used.update(formula.symbol_names() if isinstance(formula, SymDim) else ())
    return Formulas(by_measure, {name: size for name, size in values.items() if name in used})


def _bound(formula: Dim, values: dict[str, Dim]) -> Dim | None:
    try:
        return bind(formula, values)
    except UsageError:  # a size of the model may be 0, for which the formula is not meant
        return None


def _names(spec: OpSpec, count: int) -> list[str]:
    """Names of operands; those of a list are numbered."""
    params = list(spec.schema.operands)
    return [params[i].name if i < len(params) - (bool(params) and params[-1].variadic) else f"{params[-1].name}_{i}_" for i in range(count)]


def _result_names(spec: OpSpec, count: int) -> Sequence[str]:
    taken = {param.name for param in spec.schema.operands}
    first = "y" if "y" not in taken else "result"
    return [first if i == 0 else f"{first}_{i}_" for i in range(count)]
