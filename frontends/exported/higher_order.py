"""Higher-order operators: graphs inside the graph become regions, or stand in line where they run exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.frontends.exported.body import BodyReader
from irscope.frontends.exported.tensors import Json
from irscope.frontends.torch_common.foreign import foreign_attrs
from irscope.frontends.torch_common.lowering import Lowered
from irscope.frontends.torch_common.signatures import Argument
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.places import Literal
from irscope.ir.types import Type, tensor


def add_higher_order(body: BodyReader, node: Json, name: str) -> None:
    """Append a higher-order operator."""
    rule = _RULES.get(name, _foreign)
    rule(body, node)


def _arguments(body: BodyReader, node: Json) -> tuple[list[Json], list[Argument]]:
    """Graphs and other arguments of a node, each in order."""
    graphs = [item["arg"]["as_graph"]["graph"] for item in node["inputs"] if "as_graph" in item["arg"]]
    others = [body.argument(item["arg"]) for item in node["inputs"] if "as_graph" not in item["arg"]]
    return graphs, others


def _flat(arguments: Sequence[Argument]) -> list[Argument]:
    found: list[Argument] = []
    for argument in arguments:
        found.extend(argument if isinstance(argument, tuple) else (argument,))
    return found


def _input_name(arg: Json) -> str:
    ((_, content),) = arg.items()
    return str(content.get("name") or content.get("as_name"))


def _run(body: BodyReader, graph: Graph, source: Json, arguments: Sequence[Argument]) -> list[Value]:
    """Append the nodes of an inner graph to `graph`, its inputs standing for `arguments`; the values it returns."""
    inner = body.inner(graph)
    for arg, value in zip(source["inputs"], arguments, strict=False):
        inner.env[_input_name(arg)] = value
    inner.add_nodes(source)
    found = [inner.argument(output) for output in source["outputs"]]
    return [value for value in _flat(found) if isinstance(value, Value)]


def _append(body: BodyReader, node: Json, op: str, inputs: Sequence[Value | None], types: Sequence[Type]) -> Node:
    metadata = node.get("metadata") or {}
    return body.graph.append(
        op,
        inputs,
        types,
        names=[None] * len(types),
        scope=body.scopes.at(metadata.get("nn_module_stack")),
        loc=body.locations.at(metadata.get("stack_trace")),
        source=str(node["target"]).removeprefix("torch.ops.").replace(".", "::", 1),
    )


def _bind(body: BodyReader, node: Json, made: Sequence[Value]) -> None:
    _, names = body.results(node)
    for name, value in zip(names, made, strict=False):
        if name is not None:
            body.env[name] = value
            if value.name is None:
                body.graph.rename(value, body.names.unique(name))


def _condition(body: BodyReader, condition: Argument) -> Value:
    """A condition as a tensor: one that is known, or a symbol's comparison, becomes a constant."""
    if isinstance(condition, Value):
        return condition
    data = Literal((condition,)) if isinstance(condition, bool) else None
    return body.graph.add_weight(tensor(DType.BOOL, ()), None, Role.CONSTANT, data)


def _cond(body: BodyReader, node: Json) -> None:
    graphs, (condition, *operands) = _arguments(body, node)
    types, _ = body.results(node)
    made = _append(body, node, "cf.if", (_condition(body, condition),), types)
    for name, source in zip(("then", "else"), graphs, strict=True):
        region = body.graph.add_region(made, name)
        region.set_outputs(_run(body, region, source, _flat(operands)))
    _bind(body, node, made.outputs)


def _while_loop(body: BodyReader, node: Json) -> None:
    (condition, step), arguments = _arguments(body, node)
    carried = arguments[0] if isinstance(arguments[0], tuple) else ()
    extra = _flat(arguments[1:])
    first = _run(body, body.graph, condition, [*carried, *extra])
    state = [value for value in carried if isinstance(value, Value)]
    made = _append(body, node, "cf.loop", (None, first[0], *state), [value.type for value in state])
    region = body.graph.add_region(made, "body")
    region.add_input(tensor(DType.I64, ()))
    region.add_input(tensor(DType.BOOL, ()))
    inner = iter([region.add_input(value.type) for value in state])
    inside = [next(inner) if isinstance(value, Value) else value for value in carried]
    after = _run(body, region, step, [*inside, *extra])
    again = _run(body, region, condition, [*after, *extra])
    region.set_outputs([again[0], *after])
    _bind(body, node, made.outputs)


def _scan(body: BodyReader, node: Json) -> None:
    """`scan(step, state, sequences, captured)`: the first axis of the sequences is gone through."""
    (step,), (state, sequences, *captured) = _arguments(body, node)
    _add_scan(body, node, step, _flat([state]), _flat([sequences]), _flat(captured))


def _map(body: BodyReader, node: Json) -> None:
    """`map(step, sequences, captured)` is a scan without a state."""
    (step,), (sequences, *captured) = _arguments(body, node)
    _add_scan(body, node, step, [], _flat([sequences]), _flat(captured))


def _add_scan(body: BodyReader, node: Json, step: Json, state: list[Argument], sequences: list[Argument], captured: list[Argument]) -> None:
    types, _ = body.results(node)
    operands = [value for value in (*state, *sequences) if isinstance(value, Value)]
    made = _append(body, node, "cf.scan", operands, types)
    body.graph.set_attr(made, "num_scan_inputs", len(sequences))
    region = body.graph.add_region(made, "body")
    inside: list[Argument] = []
    for index, value in enumerate(operands):
        type_ = value.type
        if index >= len(state) and type_.shape:
            type_ = tensor(type_.dtype, type_.shape[1:], type_.device)
        inside.append(region.add_input(type_))
    region.set_outputs(_run(body, region, step, [*inside, *captured]))
    _bind(body, node, made.outputs)


def _inline(body: BodyReader, node: Json) -> None:
    """Regions that only set a mode (no gradients, autocast) or mark a block run in line; settings stand before the operands."""
    (source, *_), others = _arguments(body, node)
    flat = _flat(others)
    outer = body.autocast
    if str(node["target"]).endswith("wrap_with_autocast"):
        body.autocast = flat[2] is True
    try:
        found = _run(body, body.graph, source, flat[len(flat) - len(source["inputs"]) :])
    finally:
        body.autocast = outer
    _bind(body, node, found)


def _foreign(body: BodyReader, node: Json) -> None:
    """An operator that irscope does not know: its graphs are left out."""
    name = str(node["target"]).rpartition(".")[2]
    _, others = _arguments(body, node)
    inputs, attrs = foreign_attrs({str(index): value for index, value in enumerate(others)})
    types, names = body.results(node)
    body.append(
        node,
        Lowered(f"higher_order.{name}", inputs, {f"arg{key}": value for key, value in attrs.items()}),
        types,
        names,
        f"higher_order::{name}",
    )
    body.sink.warn("IRS171", f"the higher-order operator {name!r} is not understood; what runs inside it is not counted", about=name)


_RULES: dict[str, Callable[[BodyReader, Json], None]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "wrap_with_set_grad_enabled": _inline,
    "wrap_with_autocast": _inline,
    "invoke_subgraph": _inline,
    "strict_mode": _inline,
    "wrap_activation_checkpoint": _inline,
    "tag_activation_checkpoint": _inline,
    "scan": _scan,
    "map_impl": _map,
    "map": _map,
}
