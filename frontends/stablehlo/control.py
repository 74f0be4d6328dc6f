"""Operations with regions: loops, branches, calls, reductions and what else is told by a function of scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from irscope.frontends.stablehlo.model import Dense, Operation, Region, type_of
from irscope.frontends.stablehlo.operators import rule, spans
from irscope.frontends.stablehlo.program import RULES, Level, Use, integers
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Role, Value
from irscope.ir.places import Literal
from irscope.ir.types import TensorType, tensor

_REDUCTIONS: Final = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod", "and": "all", "or": "any"}
_FREE: Final = frozenset({"return", "constant", "tuple", "get_tuple_element", "reshape", "broadcast_in_dim", "convert"})

_TRANSCENDENTAL: Final = frozenset({
    "atan2", "cbrt", "cosine", "erf", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "power", "rsqrt", "sine",
    "sqrt", "tan", "tanh",
})  # fmt: skip
"""Operations of which one counts as a transcendental function."""


def work_of(region: Region) -> int:
    """Operations of a function of scalars."""
    return sum(operation.short not in _FREE for operation in region.operations)


@rule("call")
def _call(use: Use) -> Sequence[Value]:
    return _called(use, use.operation.callee)


@rule("composite")
def _composite(use: Use) -> Value | Sequence[Value] | None:
    operation = use.operation
    dialect, _, name = operation.callee.rpartition(".")
    inner = use.attributes.get("composite_attributes")
    if dialect == "chlo" and name in RULES:  # an export writes operations of CHLO so; the compiler reads them back
        return RULES[name](Use(use.level, replace(operation, name=operation.callee, attributes=inner if isinstance(inner, dict) else {})))
    decomposition = use.attributes.get("decomposition")
    return _called(use, decomposition.lstrip("@")) if isinstance(decomposition, str) else None


def _called(use: Use, name: str) -> Sequence[Value]:
    function = use.builder.module.functions.get(name)
    if function is None:
        raise use.wrong(f"calls {name!r}, which is not there")
    level = use.level
    scope = use.builder.scope_of(level.scope, use.operation.place, drop_last=False)
    if level.depth > 0 and not use.operation.place.name:
        scope = level.scope
    return level.inline(function.body, use.operands, scope, use.builder.loc_of(use.operation.place))


@rule("manual_computation")
def _manual(use: Use) -> Sequence[Value]:
    """Lower what each device computes from its part of the operands."""
    region, manual = use.operation.regions[0], use.attributes.get("manual_axes")
    own = frozenset(str(axis) for axis in manual) if isinstance(manual, dict | tuple) else frozenset()
    before, after = (said if isinstance(said := use.attributes.get(f"{name}_shardings"), tuple) else () for name in ("in", "out"))
    parts = [use.shared(value, type_of(text), cut, own) for value, text, cut in zip(use.operands, region.types, before, strict=True)]
    made = use.level.inline(region, parts, use.level.scope)
    return [use.shared(value, type_, cut) for value, type_, cut in zip(made, use.types(), after, strict=True)]


@rule("map")
def _map(use: Use) -> Sequence[Value]:
    return use.level.inline(use.operation.regions[0], use.operands, use.level.scope)


@rule("if", "case")
def _case(use: Use) -> Sequence[Value]:
    """Branches one by one: the index is compared with the number of each but the last."""
    regions = use.operation.regions
    if not regions:
        raise use.wrong("has no regions")
    condition = use.operand(0)
    if len(regions) == 1:
        return use.level.inline(regions[0], [], use.level.scope)
    return _branch(use, use.level, condition, regions, None if use.operation.short == "if" else 0)


def _branch(use: Use, level: Level, condition: Value, regions: Sequence[Region], number: int | None) -> Sequence[Value]:
    """Add a branch: of a condition, or of an index that is compared with the number of the first region."""
    inner = Use(level, use.operation)
    if number is not None:
        which = use.builder.graph.add_weight(condition.type, None, Role.CONSTANT, Literal((number,)))
        is_it = inner.one("compare.equal", [condition, which], type_=tensor(DType.BOOL, ()))
    node = inner.add("cf.if", [condition if number is None else is_it])
    scope = use.builder.scope_of(level.scope, use.operation.place)
    for name, region in zip(("then", "else"), regions[:2], strict=True):
        graph = level.graph.add_region(node, name)
        inside = level.inside(graph, scope)
        more = regions[1:] if number is not None and name == "else" and len(regions) > 2 else ()
        graph.set_outputs(_branch(use, inside, condition, more, (number or 0) + 1) if more else inside.run(region))
    return node.outputs


@rule("while")
def _while(use: Use) -> Sequence[Value]:
    condition, body = [*use.operation.regions, Region(), Region()][:2]
    state = use.operands
    if len(body.arguments) != len(state) or len(condition.arguments) != len(state):
        raise use.wrong("and its regions do not have the same values")
    level, builder = use.level, use.builder
    scope = builder.scope_of(level.scope, use.operation.place)
    trips = _trips(use, condition, body, state)
    if trips is None:
        first: Value | None = level.inline(condition, state, scope)[0]
        count: Value | None = None
    else:
        first, count = None, builder.graph.add_weight(tensor(DType.I64, ()), None, Role.CONSTANT, Literal((trips,)))
    node = use.add("cf.loop", [count, first, *state], types=[value.type for value in state])
    graph = level.graph.add_region(node, "body")
    graph.add_input(tensor(DType.I64, ()))
    again = graph.add_input(tensor(DType.BOOL, ()))
    inside = level.inside(graph, scope)
    after = inside.inline(body, [graph.add_input(value.type) for value in state], scope)
    if trips is None:
        again = inside.inline(condition, after, scope)[0]
    graph.set_outputs([again, *after])
    return node.outputs


def _trips(use: Use, condition: Region, body: Region, state: list[Value]) -> int | None:
    """Return how often a loop runs that counts: its condition compares a number with a constant, its body adds a constant to it."""
    compare = next((one for one in condition.operations if one.short == "compare"), None)
    returned = condition.operations[-1].operands if condition.operations else []
    if compare is None or len(compare.operands) != 2 or compare.results != returned:
        return None
    if "LT" not in (*compare.words, str(compare.attributes.get("comparison_direction", compare.attributes.get("#", "")))):
        return None
    counter, limit = compare.operands
    if counter not in condition.arguments:
        return None
    place = condition.arguments.index(counter)
    end = _known(use, condition, limit, state)
    start = _scalar(use, state[place])
    after = body.operations[-1].operands[place : place + 1] if body.operations else []
    step = next((_known(use, body, other, state) for other in _added(body.operations, after, body.arguments[place])), None)
    if end is None or start is None or not step or step < 0:
        return None
    return max(0, -(-(end - start) // step))


def _added(operations: list[Operation], result: list[str], counter: str) -> list[str]:
    """Return what is added to the counter to make the result."""
    for operation in operations:
        if operation.results == result and operation.short == "add" and counter in operation.operands:
            return [name for name in operation.operands if name != counter]
    return []


def _known(use: Use, region: Region, name: str, state: list[Value]) -> int | None:
    """Return a whole number that a region makes, or finds around it."""
    for operation in region.operations:
        if operation.results == [name]:
            dense = operation.attributes.get("value")
            found = integers(dense) if operation.short == "constant" and isinstance(dense, Dense) else ()
            return found[0] if found else None
    if name in region.arguments:
        return _scalar(use, state[region.arguments.index(name)]) if _is_kept(use, name) else None
    return _scalar(use, use.level.find(name))


def _is_kept(use: Use, name: str) -> bool:
    """Return whether a loop's value never changes: the body hands its argument on."""
    for region in use.operation.regions:
        if name in region.arguments:
            place = region.arguments.index(name)
            body = use.operation.regions[-1]
            return bool(body.operations) and body.operations[-1].operands[place] == body.arguments[place]
    return False


def _scalar(use: Use, value: Value) -> int | None:
    data = use.builder.graph.data.get(value)
    if isinstance(data, Literal) and len(data.values) == 1 and isinstance(data.values[0], int):
        return int(data.values[0])
    return None


# Reductions, windows, scatters, sorting.


def _function(use: Use) -> tuple[str, int]:
    """Return the only operation of the reducing function, empty where there are several; and their number."""
    named = next((word.rpartition(".")[2] for word in use.operation.words if "." in word), "")
    if named:
        return named, 1
    if not use.operation.regions:
        return "", 1
    region = use.operation.regions[-1]
    inside = [operation.short for operation in region.operations if operation.short not in _FREE]
    return (inside[0] if len(inside) == 1 else "", max(1, work_of(region)))


def _work(use: Use) -> dict[str, Attr]:
    """Return how many operations combine two elements, and how many of them are transcendental functions."""
    inside = [operation.short for operation in use.operation.regions[-1].operations] if use.operation.regions else []
    functions = sum(name in _TRANSCENDENTAL for name in inside)
    return {"work": _function(use)[1], **({"functions": functions} if functions else {})}


@rule("reduce")
def _lower_reduce(use: Use) -> Sequence[Value]:
    axes = use.numbers("dimensions")
    name, _ = _function(use)
    operands = use.operands
    first = operands[0].type
    is_bool = isinstance(first, TensorType) and first.dtype is DType.BOOL
    if name in _REDUCTIONS and len(operands) == 2 and (name not in ("and", "or") or is_bool):
        attrs: dict[str, Attr] = {"axes": axes}
        if not axes:
            attrs["noop_with_empty_axes"] = True
        return [use.one(f"reduce.{_REDUCTIONS[name]}", operands[:1], attrs)]
    # XLA's variadic form has operands, then starting values; the pretty form has them in pairs.
    if len(operands) > 2 and not _is_generic(use):
        operands = [*operands[::2], *operands[1::2]]
    return use.add("reduce.general", operands, {"axes": axes, **_work(use)}).outputs


def _is_generic(use: Use) -> bool:
    """Return whether operands stand before all starting values, as in the generic form."""
    types = [value.type for value in use.operands]
    half = len(types) // 2
    return all(isinstance(type_, TensorType) and not type_.shape for type_ in types[half:])


def _window(use: Use) -> dict[str, Attr]:
    names = (("strides", "window_strides", ""), ("dilations", "window_dilations", ""), ("spread", "base_dilations", ""))
    return {"kernel": use.numbers("window_dimensions"), **spans(use, names, {})}


@rule("reduce_window")
def _reduce_window(use: Use) -> Sequence[Value]:
    return use.add("reduce.windows", use.operands, {**_window(use), **_work(use)}).outputs


@rule("select_and_scatter")
def _select_and_scatter(use: Use) -> Value:
    return use.one("reduce.scatter_windows", use.operands, {**_window(use), "work": _function(use)[1]})


@rule("scatter")
def _scatter(use: Use) -> Sequence[Value]:
    numbers = use.entries("scatter_dimension_numbers")
    attrs: dict[str, Attr] = {
        "window": integers(numbers.get("update_window_dims")),
        "inserted": integers(numbers.get("inserted_window_dims")),
        "mapped": integers(numbers.get("scatter_dims_to_operand_dims")),
        "vector_axis": next(iter(integers(numbers.get("index_vector_dim"))), 0),
        "work": work_of(use.operation.regions[0]) if use.operation.regions else 0,
        "adds": _function(use)[0] == "add",
    }
    return use.add("tensor.scatter_general", use.operands, {name: value for name, value in attrs.items() if value not in ((), 0)}).outputs


@rule("sort")
def _sort(use: Use) -> Sequence[Value]:
    attrs: dict[str, Attr] = {"stable": True} if use.attributes.get("is_stable") else {}
    return use.add("tensor.sort_general", use.operands, {"axis": use.number("dimension", default=-1), **attrs}).outputs
