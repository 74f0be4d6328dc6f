"""From irscope's operators back to those of ONNX, for nodes that a pass made: the rules of the reader, read the other way round.

A rule that is a line of text can be turned around; functions that are one operator with fixed attributes have their line below. What
comes out is checked by reading it again, so a rule that was turned around wrongly is an error and never a wrong model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import onnx
from onnx import helper

from irscope.frontends.onnx.rules import Rule, Table
from irscope.frontends.onnx.standard import TABLE
from irscope.frontends.onnx.types import NUMBERS
from irscope.frontends.templates import Attribute, Template, parse_template
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Node, Value
from irscope.ops.registry import find_op

_BY_FUNCTION: Final[Table] = {
    **{name: {7: f"math.{name.lower()}"} for name in ("Add", "And", "Mul", "Or", "Sub", "Xor")},
    **{name: {7: f"compare.{name.lower()}"} for name in ("Equal", "Greater", "Less")},
    **{name: f"math.{name.lower()}_of" for name in ("Max", "Min", "Sum", "Mean")},
    **{f"Bitwise{name}": f"math.bitwise_{name.lower()}" for name in ("And", "Or", "Xor")},
    "GreaterOrEqual": "compare.greater_equal",
    "LessOrEqual": "compare.less_equal",
    "Div": {7: "math.div ; rounding_mode:integer"},
    "Cast": {6: "tensor.cast ; saturate round_mode to!"},
    "BatchNormalization": {7: "nn.batch_norm ; epsilon?1e-5 momentum?0.9"},
    "Reshape": {5: "view.reshape ; zero:copy"},
    "ArgMax": "reduce.argmax ; axis?0 keepdims?true",
    "ArgMin": "reduce.argmin ; axis?0 keepdims?true",
}
"""Rules that are functions for the sake of old operator sets, as the line that they are since this one."""


class CannotWrite(Exception):
    """A node that no operator of ONNX stands for; the text says why."""


@immutable(slots=False)
class Operation:
    """A node of ONNX to be: names are given by who writes it."""

    op_type: str
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]


@cache
def _by_operator() -> dict[str, list[tuple[str, Rule | Mapping[int, Rule]]]]:
    """Rules by the operator that their last line makes."""
    found: dict[str, list[tuple[str, Rule | Mapping[int, Rule]]]] = {}
    for op_type, rule in [*_BY_FUNCTION.items(), *TABLE.items()]:
        for text in {text for one in (rule.values() if isinstance(rule, Mapping) else [rule]) if (text := _line(one))}:
            found.setdefault(parse_template(text.partition(";")[0]).op, []).append((op_type, rule))
    return found


def _line(rule: object) -> str:
    """The text of a rule of one line; empty for others."""
    return rule if isinstance(rule, str) and "\n" not in rule.strip() and " = " not in rule else ""


def raised(node: Node, opset: int, was: onnx.NodeProto | None = None) -> Operation:
    """The operation of ONNX that a node is, in an operator set; CannotWrite where there is none.

    `was` is the file's node that it was read from: attributes that irscope does not keep, since no size or cost depends on them, are there.
    """
    if node.regions:
        raise CannotWrite(f"{node.op} holds graphs, which are written only as they were read")
    reasons: list[str] = []
    for op_type, rule in _by_operator().get(node.op, ()):
        line = _line(_at(rule, opset))
        if not line:
            continue
        head, *tail = line.split(";")
        template = parse_template(";".join([head, *tail[:1]]))
        if template.op != node.op:
            continue
        try:
            schema = onnx.defs.get_schema(op_type, min(opset, onnx.defs.onnx_opset_version()), "")
            attributes = dict(_attributes(node, template))
            unknown = next((name for name in attributes if name not in schema.attributes), None)
            if unknown is not None:
                raise CannotWrite(f"{op_type} of operator set {opset} has no attribute {unknown}")
            attributes.update(_not_kept(node, op_type, template, schema, was))
            return Operation(op_type, _operands(node, template), attributes)
        except onnx.defs.SchemaError:
            reasons.append(f"{op_type} is not in operator set {opset}")
        except CannotWrite as error:
            reasons.append(str(error))
    raise CannotWrite(reasons[0] if reasons else f"no operator of ONNX's operator set {opset} is known for {node.op}")


def _not_kept(
    node: Node, op_type: str, template: Template, schema: onnx.defs.OpSchema, was: onnx.NodeProto | None
) -> dict[str, onnx.AttributeProto]:
    """Attributes that a node of the file had and its rule does not read."""
    if not node.source.startswith(f"onnx::{op_type}@"):
        return {}
    lost = set(schema.attributes) - {one.theirs for one in template.attributes}
    if was is not None and was.op_type == op_type:
        return {one.name: one for one in was.attribute if one.name in lost}
    if lost:
        raise CannotWrite(f"{op_type} has attributes that irscope does not keep: {', '.join(sorted(lost))}")
    return {}


def _at(rule: Rule | Mapping[int, Rule], opset: int) -> Rule | None:
    if isinstance(rule, Mapping):
        return next((rule[since] for since in sorted(rule, reverse=True) if since <= opset), None)
    return rule


def _operands(node: Node, template: Template) -> tuple[Value | None, ...]:
    """The operands in the places that ONNX has them at."""
    words = template.operands
    if not words:
        return node.inputs
    if len(node.inputs) > len(words):
        raise CannotWrite(f"it has {len(node.inputs)} operands, of which ONNX's operator takes {len(words)}")
    found: dict[int, Value | None] = {}
    for word, value in zip(words, node.inputs, strict=False):
        if word != "_":
            found[int(word.rstrip("!"))] = value
        elif value is not None:
            raise CannotWrite("it has an operand that ONNX's operator does not take")
    return tuple(found.get(at) for at in range(max(found, default=-1) + 1))


def _attributes(node: Node, template: Template) -> Iterator[tuple[str, Any]]:
    """The attributes under their names in ONNX."""
    spec = find_op(node.op)
    params = {} if spec is None else {param.name: param for param in (*spec.schema.attrs, *spec.schema.operands)}
    known: dict[str, Attribute] = {one.ours: one for one in template.attributes}
    for name, value in node.attrs.items():
        attribute = known.get(name)
        if attribute is None:
            if name in params and params[name].default == value:
                continue
            raise CannotWrite(f"its attribute {name}={value} has no counterpart in ONNX")
        if attribute.theirs is None:
            if attribute.value != value:
                raise CannotWrite(f"its attribute {name} is {value}, ONNX's operator has {attribute.value}")
            continue
        yield attribute.theirs, _plain(name, value, attribute, params[name].kind if name in params else "")
    for name, attribute in known.items():
        if name in node.attrs:
            continue
        default = params[name].default if name in params else None
        if attribute.theirs is None:
            if attribute.value != default:
                raise CannotWrite(f"it has no {name}, ONNX's operator has {attribute.value}")
        elif attribute.required:
            raise CannotWrite(f"it has no {name}")
        elif attribute.value is not None and default is not None and attribute.value != default:
            yield attribute.theirs, _plain(name, default, attribute, params[name].kind)


_PLAIN: Final[Mapping[str, Callable[[Any], Any]]] = {"bool": int, "float": float, "any": float, "int": int, "Dim": int}


def _plain(name: str, value: Attr, attribute: Attribute, kind: str) -> Any:
    """A value as ONNX has it."""
    if attribute.words:
        if value not in attribute.words:
            raise CannotWrite(f"its attribute {name} is {value}, not one of {', '.join(attribute.words)}")
        return attribute.words.index(str(value))
    if isinstance(value, DType):
        if value not in NUMBERS:
            raise CannotWrite(f"ONNX has no element type {value}")
        return NUMBERS[value]
    if isinstance(value, tuple):
        items = [float(item) for item in value] if kind == "float[]" else list(value)
        if not all(isinstance(item, int | float | str) for item in items):
            raise CannotWrite(f"its attribute {name} is a formula, not numbers")
        return items
    if not isinstance(value, bool | int | float | str):
        raise CannotWrite(f"its attribute {name} is a formula, not a number")
    return _PLAIN[kind](value) if kind in _PLAIN and not isinstance(value, str) else value


def node_proto(operation: Operation, name: str, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    """The node as a message."""
    made = helper.make_node(operation.op_type, inputs, outputs, name=name or None)
    for key, value in operation.attributes.items():
        if not isinstance(value, onnx.AttributeProto):
            value = helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS if value == [] else None)
        made.attribute.append(value)
    return made
