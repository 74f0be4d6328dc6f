"""Control flow: nodes with regions that see the values around them."""

from __future__ import annotations

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Table, read_attrs
from irscope.ir.graph import Attr, Value
from irscope.ir.types import UNKNOWN_TENSOR, UNKNOWN_TYPE

_SCAN_WITHOUT_BATCH = 9


def _if(call: Call) -> None:
    then, other = call.graph_attr("then_branch"), call.graph_attr("else_branch")
    if min(len(then.output), len(other.output)) < len(call.outputs):
        raise Mismatch("its branches do not have as many results as it does")
    node = call.node("cf.if", call.inputs, undeclared=UNKNOWN_TYPE)
    for name, branch in (("then", then), ("else", other)):
        region = call.body.lower_region(node, name, branch, 0)
        region.set_outputs(region.outputs[: len(call.outputs)])
    call.bind(node)


def _loop(call: Call) -> None:
    body = call.graph_attr("body")
    states = len(call.inputs) - 2
    if states < 0 or len(body.output) < states + 1:
        raise Mismatch("its body does not return a condition and every state")
    _all_results(call, len(body.output) - 1)
    node = call.node("cf.loop", call.inputs, undeclared=UNKNOWN_TYPE)
    call.body.lower_region(node, "body", body, len(call.inputs))
    call.bind(node)


def _scan(call: Call) -> None:
    body = call.graph_attr("body")
    _all_results(call, len(body.output))
    scanned = call.integer("num_scan_inputs")
    given = call.inputs
    if call.version < _SCAN_WITHOUT_BATCH:
        if call.operand(0) is not None:
            raise Mismatch("sequence lengths of Scan 8 are not supported")
        given = call.inputs[1:]
    states = len(given) - scanned
    if scanned < 1 or states < 0 or len(body.output) < states or any(value is None for value in given):
        raise Mismatch("its body and its operands do not fit")
    scan_outputs = len(body.output) - states
    attrs: dict[str, Attr] = {"num_scan_inputs": scanned}
    if call.version < _SCAN_WITHOUT_BATCH:
        directions = call.integers("directions")
        if directions is not None:
            attrs["input_directions"] = _fit(directions, scanned, "directions")
        _batched_scan(call, [value for value in given if value is not None], attrs)
        return
    for name, to, count in (
        ("scan_input_axes", "input_axes", scanned),
        ("scan_input_directions", "input_directions", scanned),
        ("scan_output_axes", "output_axes", scan_outputs),
        ("scan_output_directions", "output_directions", scan_outputs),
    ):
        found = call.integers(name)
        if found is not None:
            attrs[to] = _fit(found, count, name)
    node = call.node("cf.scan", given, attrs)
    call.body.lower_region(node, "body", body, len(given))
    call.bind(node)


def _batched_scan(call: Call, given: list[Value], attrs: dict[str, Attr]) -> None:
    """Scan of operator set 8 has a batch axis in front: a scan over the batch, around one over the sequence."""
    outer = call.node("cf.scan", given, {"num_scan_inputs": len(given)})
    region = call.body.graph.add_region(outer, "batch")
    slices = [region.add_input(UNKNOWN_TENSOR) for _ in given]
    types = [UNKNOWN_TENSOR] * len(call.outputs)
    inner = region.append("cf.scan", slices, types, attrs, scope=call.scope, loc=call.loc, source=call.source)
    around = call.body
    graph, around.graph = around.graph, region
    try:
        around.lower_region(inner, "body", call.graph_attr("body"), len(given))
    finally:
        around.graph = graph
    region.set_outputs(inner.outputs)
    call.bind(outer)


def _sequence_map(call: Call) -> None:
    body = call.graph_attr("body")
    if len(body.output) != len(call.outputs):
        raise Mismatch("its body does not have as many results as it does")
    node = call.node("cf.map", call.inputs, undeclared=UNKNOWN_TYPE)
    call.body.lower_region(node, "body", body, len(call.inputs))
    call.bind(node)


def _flex_attention(call: Call) -> None:
    """Its functions of scores and weights become regions; what they read from around them is seen there."""
    node = call.node("nn.flex_attention", call.inputs, read_attrs(call, "nn.flex_attention ; scale"))
    for name in ("score_mod", "prob_mod"):
        if call.has(name):
            call.body.lower_region(node, name, call.graph_attr(name))
    call.bind(node)


def _all_results(call: Call, count: int) -> None:
    """Unused trailing results are left out in the file; the region still yields them."""
    if len(call.outputs) > count:
        raise Mismatch(f"its body returns {count} values, it has {len(call.outputs)} results")
    call.outputs = [*call.outputs, *[""] * (count - len(call.outputs))]


def _fit(values: tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    if len(values) != count:
        raise Mismatch(f"attribute {name} has {len(values)} entries, not {count}")
    return values


TABLE: Table = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
PREVIEW: Table = {"FlexAttention": _flex_attention}
