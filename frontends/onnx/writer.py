"""An ONNX file written again after passes changed its graph, with its weights.

What no pass touched is copied as the bytes that it is: nodes, functions, attributes, types, initializers, metadata. Nodes whose operands
alone changed are the file's own with other names; those that a pass made come from the rules of the reader, turned around: those that are
a line of text can be, and functions that are one operator with fixed attributes have their line below. Weights go from file to file in
pieces, or are computed one at a time; beyond 2 GiB, and where the file has them so, they lie in a file beside the model.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

import onnx
from onnx import helper

from irscope.errors import UsageError
from irscope.files import staged
from irscope.frontends.onnx.model import STANDARD, domain_of
from irscope.frontends.onnx.order import captured_names
from irscope.frontends.onnx.reader import NOT_ONNX, WireError, encode, message_fields, read_file, refuse, short
from irscope.frontends.onnx.rules import Rule, Table
from irscope.frontends.onnx.standard import TABLE
from irscope.frontends.onnx.types import NUMBERS
from irscope.frontends.rewriting import PIECE, Check, Original, copy_values, in_order, packed_size, weight_error
from irscope.frontends.templates import Attribute, Template, parse_template
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.graph import WEIGHT_ROLES, Attr, Graph, Names, Node, Value
from irscope.ir.places import FileRegion
from irscope.ir.program import FileNode
from irscope.ir.types import TensorType
from irscope.ops.registry import find_op
from irscope.weights.source import WeightFiles

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
    """Return the text of a rule of one line; empty for others."""
    return rule if isinstance(rule, str) and "\n" not in rule.strip() and " = " not in rule else ""


def raised(node: Node, opset: int, was: onnx.NodeProto | None = None) -> Operation:
    """Return the operation of ONNX that a node is, in an operator set; CannotWrite where there is none.

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
    """Return the attributes that a node of the file had and its rule does not read."""
    if not node.source.startswith(f"onnx::{op_type}@"):
        return {}
    lost = set(schema.attributes) - {attribute.theirs for attribute in template.attributes}
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
    """Return the operands in the places that ONNX has them at."""
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
    """Yield the attributes under their names in ONNX."""
    spec = find_op(node.op)
    params = {} if spec is None else {param.name: param for param in (*spec.schema.attrs, *spec.schema.operands)}
    known: dict[str, Attribute] = {attribute.ours: attribute for attribute in template.attributes}
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
    """Return a value as ONNX has it."""
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
    """Return the node as a message."""
    made = helper.make_node(operation.op_type, inputs, outputs, name=name or None)
    for key, value in operation.attributes.items():
        if not isinstance(value, onnx.AttributeProto):
            value = helper.make_attribute(key, value, attr_type=onnx.AttributeProto.INTS if value == [] else None)
        made.attribute.append(value)
    return made


_GRAPH, _NODE, _INITIALIZER, _INPUT, _VALUE_INFO = 7, 1, 5, 11, 13
_RAW_DATA: Final = 9
_EXTERNAL: Final = 1
_FIRST_IR_WITH_OPTIONAL_INPUTS: Final = 4
_INLINE_FROM: Final = 1024
"""Smaller weights stay in the model file: readers look at their values."""
_ALIGNMENT: Final = 4096
_MOST_INLINE: Final = 2**31 - (64 << 20)
"""Bytes of a file that protobuf reads, with room for what is around weights."""


@dataclass
class _Item:
    """A node to write."""

    inputs: list[str]
    outputs: list[str]
    number: int = -1
    """Of the file's node that it is, or is but for its operands."""
    proto: onnx.NodeProto | None = None
    """Message that is written; None for the file's bytes."""
    reads: tuple[str, ...] = ()
    """Names that graphs inside it read from around it."""


class _File:
    """The bytes of the model file: where nodes and initializers are."""

    def __init__(self, mapped: mmap.mmap, proto: onnx.ModelProto) -> None:
        self.mapped = mapped
        self.proto = proto
        self.model_fields: list[tuple[int, int]] = []
        self.fields: list[tuple[int, int, int, int]] = []
        """Of the graph: where one starts, its number, where its content is, and where it ends."""
        for start, number, content, stop in message_fields(mapped, 0, len(mapped)):
            if number == _GRAPH:
                self.fields += message_fields(mapped, content, stop)
            else:
                self.model_fields.append((start, stop))
        self.nodes = [(content, stop) for _, number, content, stop in self.fields if number == _NODE]
        self.initializers = dict(
            zip(
                [tensor.name for tensor in proto.graph.initializer],
                [(start, content, stop) for start, number, content, stop in self.fields if number == _INITIALIZER],
                strict=True,
            )
        )

    def node(self, number: int) -> onnx.NodeProto:
        content, stop = self.nodes[number]
        found = onnx.NodeProto()
        found.ParseFromString(self.mapped[content:stop])
        return found


def write_changed(original: Original, target: Path, *, external: bool = False, check: Check | None = None, method: str = "") -> list[Path]:
    """Write the program as it is now. Returns the files.

    UsageError names the node that cannot be written; nothing is written then. `check` looks at what was written before it takes its
    place, and is told what weights are called there. `method` is for formats with several programs.
    """
    program = original.program
    path = Path(program.path)
    proto = read_file(path).proto
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        try:
            file = _File(mapped, proto)
        except (WireError, IndexError) as error:
            raise refuse(NOT_ONNX, f"the file is damaged ({error})", str(path)) from None
        plan = _Plan(original, file)
        plan.make()
        with WeightFiles(program.path) as files:
            writer = _Writer(plan, files, target, external)
            with staged(target) as path_:
                written = writer.write(path_)
                if check is not None:
                    check(path_, {**plan.name_of, **plan.weight_names})
    return [target, *(target.parent / one.name for one in written[1:])]


class _Plan:
    """Nodes and weights to write, with their names."""

    def __init__(self, original: Original, file: _File) -> None:
        self.original = original
        self.program = original.program
        self.graph: Graph = original.program.graph
        self.file = file
        self.rows = original.rows
        self.values = original.names
        self.row_of: dict[Node, int] = {node: number for number, row in enumerate(self.rows) for node in row.nodes}
        self.maker: dict[str, int] = {}
        for number, node in enumerate(file.proto.graph.node):
            for name in node.output:
                if name:
                    self.maker[name] = number
        self.inputs = {info.name for info in file.proto.graph.input}
        self.name_of: dict[Value, str] = {}
        for name, value in self.values.items():
            if value is not None:
                self.name_of.setdefault(value, name)
        self.taken = _all_names(file.proto.graph)
        self.new_names = Names("_")
        self.items: list[_Item] = []
        self.weight_names: dict[Value, str] = {}
        self.wanted: set[str] = set()
        self.free: set[str] = set()
        """Names of the file that nothing has any more."""
        self.new_weights: list[Value] = []
        self.opset = next((one.version for one in file.proto.opset_import if domain_of(one.domain) == STANDARD), 1)

    def make(self) -> None:
        """Plan the nodes in an order in which everything is made before it is used."""
        kept: dict[int, dict[Value, Value]] = {}
        made: list[Node] = []
        seen: set[int] = set()
        for node in self.graph:
            number = self.row_of.get(node, -1)
            if number >= 0 and number not in seen:
                seen.add(number)
                changes = self.original.substitutions(self.rows[number], self._takes_more)
                if changes is not None:
                    kept[number] = changes
            if number not in kept:
                made.append(node)
        gone = {number for number, row in enumerate(self.rows) if row.nodes and number not in kept}
        wanted = self.wanted = self._wanted_as_they_were(kept)
        self._name_results(made, gone, wanted)
        for number, changes in sorted(kept.items()):
            self.items.append(self._kept_item(number, changes))
        for node in made:
            self.items.append(self._made_item(node))
        self._end_in_the_outputs()
        self._add_aliases(kept)
        self._add_what_is_read()
        places = self.original.places()
        position = {node: at for at, node in enumerate(self.graph)}
        makers = {self.name_of[output]: position[node] for node in self.graph for output in node.outputs if output in self.name_of}
        # What stands for nothing in the program comes as early as it can: behind what it reads.
        at = [
            places[item.number] if item.number >= 0 else max((float(makers[name]) for name in item.outputs if name in makers), default=-1.0)
            for item in self.items
        ]
        order = in_order([item.outputs for item in self.items], [(*item.inputs, *item.reads) for item in self.items], at)
        if order is None:
            raise _cannot(None, "its nodes wait for one another")
        self.items = [self.items[at] for at in order]

    def _takes_more(self, node: Node, row: FileNode) -> bool:
        return len(row.nodes) == 1 and _is_direct(self.original.nodes[node][2], row)

    def _wanted_as_they_were(self, kept: Mapping[int, Mapping[Value, Value]]) -> set[str]:
        """Return names that nodes of the file read whatever became of what makes them: operands that lowering turned into attributes."""
        found: set[str] = set()
        todo = list(kept)
        visited = set(todo)
        while todo:
            number = todo.pop()
            row, names = self.rows[number], self.file.proto.graph.node[number].input
            held = {value for node in row.nodes for value in self.original.nodes[node][2]} if number in kept else set()
            for name, value in zip(names, row.inputs, strict=False):
                if not name or (value is not None and value in held):
                    continue
                found.add(name)
                maker = self.maker.get(name, -1)
                if maker >= 0 and maker not in visited:
                    visited.add(maker)
                    todo.append(maker)
        return found

    def _name_results(self, made: Sequence[Node], gone: set[int], wanted: set[str]) -> None:
        """Names for what passes made: those of the model's results where they are that, else their own where nothing else has it."""
        free = self.free = {name for number in gone for name in self.file.proto.graph.node[number].output if name and name not in wanted}
        new = [output for node in made for output in node.outputs if output not in self.name_of]
        ends = {info.name for info in self.file.proto.graph.output}
        is_new = set(new)
        used: set[str] = set()
        for info, value in zip(self.file.proto.graph.output, self.graph.outputs, strict=False):
            if value in is_new and info.name in free and value not in self.name_of:
                self.name_of[value] = info.name
                used.add(info.name)
        for value in new:
            if value not in self.name_of:
                stem = value.name or (value.node.op.rpartition(".")[2] if value.node is not None else "value")
                self.name_of[value] = stem if stem in free - used - ends else self.new_names.unique(stem, self.taken)
                used.add(self.name_of[value])
        self.free = free - used - ends

    def _name(self, value: Value | None) -> str:
        """Return what a value is called in the file; a weight that a pass made is declared with that."""
        if value is None:
            return ""
        if value.role in WEIGHT_ROLES and self._is_new_weight(value):
            if value not in self.weight_names:
                self.new_weights.append(value)
                stem = value.name or "weight"
                held = self.values.get(stem)
                replaces = stem in self.file.initializers and stem not in self.inputs | self.wanted and (held is None or not held.users)
                if stem in self.free:
                    self.free.discard(stem)
                elif not replaces or stem in self.weight_names.values():
                    stem = self.new_names.unique(stem, self.taken)
                self.name_of[value] = self.weight_names[value] = stem
            return self.weight_names[value]
        if value not in self.name_of:
            raise _cannot(value.node, "it reads what has no name in the file")
        return self.name_of[value]

    def _is_new_weight(self, value: Value) -> bool:
        """Return whether the file does not have a weight under a name of its main graph, or has it with other values."""
        if value not in self.name_of:
            return True
        return self.original.has_new_values(value) and self.name_of[value] in self.file.initializers and value not in self.weight_names

    def _kept_item(self, number: int, changes: Mapping[Value, Value]) -> _Item:
        """Return the file's own node, with other operands where these changed."""
        row, proto = self.rows[number], self.file.proto.graph.node[number]
        before = list(proto.input)
        now = list(before)
        for at, value in enumerate(row.inputs[: len(now)]):
            if value is not None:
                change = changes.get(value, value)
                if change is not value or (value.role in WEIGHT_ROLES and self._is_new_weight(value)):
                    now[at] = self._name(change)
        [node] = row.nodes if len(row.nodes) == 1 else [None]
        if node is not None and node.graph is not None and _is_direct(self.original.nodes[node][2], row):
            for at, value in enumerate(node.inputs):
                was = row.inputs[at] if at < len(row.inputs) else None
                if at >= len(now) or value is None or was is None:
                    now[at : at + 1] = [self._name(value)]
        while now and not now[-1]:
            now.pop()
        reads = tuple(sorted(_captured(proto)))
        item = _Item(now, list(proto.output), number, None, reads)
        while before and not before[-1]:
            before.pop()
        if now != before:
            item.proto = self.file.node(number)
            del item.proto.input[:]
            item.proto.input.extend(now)
        return item

    def _made_item(self, node: Node) -> _Item:
        """Return a node that a pass made, or changed."""
        try:
            number = self.row_of.get(node, -1)
            was = self.file.node(number) if number >= 0 and len(self.rows[number].nodes) == 1 else None
            operation = raised(node, self.opset, was)
        except CannotWrite as error:
            raise _cannot(node, str(error)) from None
        inputs = [self._name(value) for value in operation.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [self.name_of[output] if output.users or at == 0 else "" for at, output in enumerate(node.outputs)]
        while outputs and not outputs[-1]:
            outputs.pop()
        path = node.scope.path
        name = outputs[0] if not path or outputs[0].startswith("/") else f"/{path}/{outputs[0]}"
        return _Item(inputs, outputs, -1, node_proto(operation, name, inputs, outputs))

    def _identity(self, source: str, name: str) -> None:
        self.items.append(_Item([source], [name], -1, helper.make_node("Identity", [source], [name], name=f"{name}/Identity")))

    def _end_in_the_outputs(self) -> None:
        """Keep the names of the model's results."""
        made = {name for item in self.items for name in item.outputs}
        for info, value in zip(self.file.proto.graph.output, self.graph.outputs, strict=True):
            if self.values.get(info.name) is value and not (value.role in WEIGHT_ROLES and self._is_new_weight(value)):
                continue
            name = self._name(value)
            if name != info.name:
                if info.name in made:
                    raise _cannot(value.node, f"the file's node that makes the result {short(info.name)} is needed for something else too")
                self._identity(name, info.name)
                made.add(info.name)

    def _add_aliases(self, kept: Mapping[int, Mapping[Value, Value]]) -> None:
        """Add names that inner graphs read, for what replaced their values."""
        made = {name for item in self.items for name in item.outputs}
        for number in kept:
            for node in self.rows[number].nodes:
                for inner in (node for region in node.regions for node in region.walk()):
                    for before, now in zip(self.original.nodes[inner][2], inner.inputs, strict=True):
                        if before is now or before is None or now is None:
                            continue
                        for name in [name for name, value in self.values.items() if value is before]:
                            if name not in made:
                                self._identity(self._name(now), name)
                                made.add(name)

    def _add_what_is_read(self) -> None:
        """Add the file's nodes without nodes in the program, constants among them, where something reads their results."""
        made = {name for item in self.items for name in item.outputs} | set(self.weight_names.values())
        todo = [name for item in self.items for name in (*item.inputs, *item.reads)]
        todo += [info.name for info in self.file.proto.graph.output]
        while todo:
            name = todo.pop()
            if not name or name in made:
                continue
            number = self.maker.get(name)
            if number is None:
                continue
            proto = self.file.proto.graph.node[number]
            item = _Item(list(proto.input), list(proto.output), number, None, tuple(sorted(_captured(proto))))
            clash = next((value for value in item.outputs if value in made), None)
            if clash is not None:
                raise _cannot(None, f"{short(name)} and {short(clash)} come from one node of the file, of which only a part was kept")
            self.items.append(item)
            made.update(item.outputs)
            todo += [*item.inputs, *item.reads]

    def needed_names(self) -> set[str]:
        """Return all names that are read."""
        names = {name for item in self.items for name in (*item.inputs, *item.reads)}
        return names | {info.name for info in self.file.proto.graph.output}


def _is_direct(was: tuple[Value | None, ...], row: FileNode) -> bool:
    """Return whether a node reads the operands of the file's node one by one."""
    before = list(row.inputs)
    while before and before[-1] is None:
        before.pop()
    return list(was) == before


def _cannot(node: Node | None, why: str) -> UsageError:
    where = f"node '{short(node.name)}' ({node.op})" if node is not None else "the graph"
    return UsageError(f"{where} cannot be written as ONNX: {why}", code="IRS368", hint="leave out the pass that made it, or write .irs")


def _all_names(graph: onnx.GraphProto) -> set[str]:
    """Return every name in a graph and in the graphs inside it."""
    names: set[str] = set()
    todo = [graph]
    while todo:
        item = todo.pop()
        names.update(info.name for info in (*item.input, *item.output))
        names.update(tensor.name for tensor in item.initializer)
        for node in item.node:
            names.update((*node.input, *node.output))
            for attribute in node.attribute:
                todo.extend([attribute.g] if attribute.HasField("g") else [])
                todo.extend(attribute.graphs)
    return names


def _captured(node: onnx.NodeProto) -> set[str]:
    return set(captured_names(node)) if any(one.HasField("g") or one.graphs for one in node.attribute) else set()


class _Writer:
    """Writes a plan."""

    def __init__(self, plan: _Plan, files: WeightFiles, target: Path, external: bool) -> None:
        self.plan = plan
        self.file = plan.file
        self.files = files
        self.target = target
        needed = plan.needed_names()
        weights = set(plan.graph.weights)
        with_input = {name for name in plan.inputs if name in self.file.initializers and name not in needed}
        # In old files every initializer is an input too; in others it is one that may be given another value.
        self.lists_weights = self.file.proto.ir_version < _FIRST_IR_WITH_OPTIONAL_INPUTS
        self.gone = {name for name in with_input if plan.values.get(name) not in weights} if self.lists_weights else set()
        needed |= with_input - self.gone
        replaced = set(plan.weight_names.values())
        self.kept = [tensor for tensor in self.file.proto.graph.initializer if tensor.name in needed and tensor.name not in replaced]
        was_external = any(tensor.data_location == _EXTERNAL for tensor in self.kept)
        inline = sum(stop - start for start, _, stop in self.file.initializers.values()) + sum(map(packed_size, plan.new_weights))
        self.external = external or was_external or inline > _MOST_INLINE
        self.data: BinaryIO | None = None
        self.at = 0

    @property
    def data_name(self) -> str:
        return f"{self.target.name}.data"

    def write(self, path: Path) -> list[Path]:
        """Write the model, and beside it its weights where they are many."""
        data_path = path.with_name(self.data_name)
        self._check_attributes()
        if not self.external:
            with path.open("wb") as out:
                self._model(out)
            return [path]
        own = {os.path.realpath(data.path) for data in self.plan.graph.data.values() if isinstance(data, FileRegion)}
        if os.path.realpath(self.target.parent / self.data_name) in own:
            raise UsageError(
                "the weights would be written over those of the original", code="IRS361", where=self.data_name, hint="name another file"
            )
        with data_path.open("wb") as self.data, path.open("wb") as out:
            self._model(out)
        if not self.at:
            data_path.unlink()
            return [path]
        return [path, data_path]

    def _check_attributes(self) -> None:
        """Refuse to write into another folder where tensors in attributes lie in files, whose places are relative to the model."""
        if self.target.parent.resolve() == Path(self.plan.program.path).resolve().parent:
            return
        for item in self.plan.items:
            proto = self.file.proto.graph.node[item.number] if item.number >= 0 else None
            for attribute in proto.attribute if proto is not None else ():
                if attribute.HasField("t") and attribute.t.data_location == _EXTERNAL:
                    raise UsageError(
                        f"the tensor in attribute {short(attribute.name)} of {short(proto.name if proto else '')} lies in another file",
                        code="IRS358",
                        where=self.plan.program.path,
                        hint="write the copy into the model's own folder",
                    )

    def _model(self, out: BinaryIO) -> None:
        mapped = self.file.mapped
        for start, stop in self.file.model_fields:
            _copy(mapped, start, stop, out)
        # Data first: places in the data file belong to what is written of an initializer.
        heads = [(tensor, *self._kept_initializer(tensor)) for tensor in self.kept]
        news = [(value, *self._new_initializer(value)) for value in self.plan.new_weights]
        rest = b"".join(self._rest())
        length = len(rest) + sum(_field_length(len(head) + size) for _, head, size, *_ in (*heads, *news))
        out.write(encode(_GRAPH << 3 | 2) + encode(length) + rest)
        for tensor, head, size, source in heads:
            out.write(encode(_INITIALIZER << 3 | 2) + encode(len(head) + size) + head)
            if size:
                _copy(mapped, *source, out)
            del tensor
        for value, head, size, values in news:
            out.write(encode(_INITIALIZER << 3 | 2) + encode(len(head) + size) + head)
            if size:
                assert values is not None
                out.write(encode(_RAW_DATA << 3 | 2) + encode(values))
                copy_values(value, self.files, out.write)

    def _rest(self) -> Iterator[bytes]:
        """Yield the graph without its initializers."""
        for item in self.plan.items:
            if item.proto is None:
                content, stop = self.file.nodes[item.number]
                body = self.file.mapped[content:stop]
            else:
                body = item.proto.SerializeToString()
            yield encode(_NODE << 3 | 2) + encode(len(body)) + body
        made = {name for item in self.plan.items if item.number >= 0 for name in item.outputs}
        infos = iter(self.file.proto.graph.value_info)
        inputs = iter(self.file.proto.graph.input)
        for start, number, _, stop in self.file.fields:
            if number in (_NODE, _INITIALIZER):
                continue
            if number == _VALUE_INFO and next(infos).name not in made:
                # Types of what passes made follow from the operators.
                continue
            if number == _INPUT:
                info = next(inputs)
                if info.name in self.gone:
                    continue
                given = self._input(info)
                if given is not None:
                    yield encode(_INPUT << 3 | 2) + encode(len(given)) + given
                    continue
            yield self.file.mapped[start:stop]
        for value in self.plan.new_weights if self.lists_weights else ():
            type_ = value.type
            sizes = [size for size in type_.shape or () if isinstance(size, int)]
            body = helper.make_tensor_value_info(self.plan.weight_names[value], NUMBERS[type_.dtype], sizes).SerializeToString()
            yield encode(_INPUT << 3 | 2) + encode(len(body)) + body

    def _input(self, info: onnx.ValueInfoProto) -> bytes | None:
        """Return an input with the sizes that it was given when the model was read; None where it is as the file has it."""
        value = self.plan.values.get(info.name)
        if value is None or not isinstance(value.type, TensorType) or value.type.shape is None or not info.type.HasField("tensor_type"):
            return None
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(value.type.shape):
            return None
        changed = onnx.ValueInfoProto()
        changed.CopyFrom(info)
        for dim, size in zip(changed.type.tensor_type.shape.dim, value.type.shape, strict=True):
            if isinstance(size, int) and not dim.HasField("dim_value"):
                dim.dim_value = size
        return bytes(changed.SerializeToString()) if changed != info else None

    def _kept_initializer(self, tensor: onnx.TensorProto) -> tuple[bytes, int, tuple[int, int]]:
        """Return what is written of an initializer of the file before bytes that are copied, how many those are and where."""
        _, content, stop = self.file.initializers[tensor.name]
        if not self.external or (tensor.data_location != _EXTERNAL and stop - content <= _INLINE_FROM + 256):
            return b"", stop - content, (content, stop)
        value = self.plan.values.get(tensor.name)
        if value is None or not isinstance(value.type, TensorType):
            return b"", stop - content, (content, stop)
        offset, length = self._to_data_file(value)
        return _external_head(tensor.name, value.type, self.data_name, offset, length), 0, (0, 0)

    def _new_initializer(self, value: Value) -> tuple[bytes, int, int | None]:
        """Return what is written of a new weight before its values, the length of these with their tag, and without it."""
        type_, length = value.type, packed_size(value)
        name = self.plan.weight_names[value]
        if not isinstance(type_, TensorType) or type_.dtype not in NUMBERS or not type_.is_static:
            raise weight_error(value, f"a weight of type {type_} has no form in ONNX")
        if self.external and length > _INLINE_FROM:
            offset, _ = self._to_data_file(value)
            return _external_head(name, type_, self.data_name, offset, length), 0, None
        return _tensor_header(name, type_), len(encode(_RAW_DATA << 3 | 2)) + len(encode(length)) + length, length

    def _to_data_file(self, value: Value) -> tuple[int, int]:
        assert self.data is not None
        gap = -self.at % _ALIGNMENT
        self.data.write(bytes(gap))
        self.at += gap
        begin = self.at
        self.at += copy_values(value, self.files, self.data.write)
        return begin, self.at - begin


def _tensor_header(name: str, type_: TensorType) -> bytes:
    sizes = [size for size in type_.shape or () if isinstance(size, int)]
    return bytes(onnx.TensorProto(dims=sizes, data_type=NUMBERS[type_.dtype], name=name).SerializeToString())


def _external_head(name: str, type_: TensorType, location: str, offset: int, length: int) -> bytes:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(_tensor_header(name, type_))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return bytes(tensor.SerializeToString())


def _field_length(content: int) -> int:
    return len(encode(_INITIALIZER << 3 | 2)) + len(encode(content)) + content


def _copy(mapped: mmap.mmap, start: int, stop: int, out: BinaryIO) -> None:
    for begin in range(start, stop, PIECE):
        out.write(mapped[begin : min(begin + PIECE, stop)])
