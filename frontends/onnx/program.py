"""Reads an ONNX model into a program."""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import SOLE, LoadOptions, lacks_dtype, stated
from irscope.frontends.onnx.call import Call, Lowering, Mismatch, Operand, mark
from irscope.frontends.onnx.contrib import BLOCKED, CHANNELS_LAST, FOREIGN_OF_MICROSOFT, LEARNING, MICROSOFT, TRAINING
from irscope.frontends.onnx.model import (
    BLOCKED_DOMAIN,
    STANDARD,
    Model,
    Scopes,
    domain_of,
    model_opsets,
    read_opsets,
    show_opsets,
    version_of,
)
from irscope.frontends.onnx.order import Row, captured_names, check_new, free_names, in_order
from irscope.frontends.onnx.protos import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SchemaError,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    function_body,
    get_schema,
    onnx_opset_version,
)
from irscope.frontends.onnx.reader import (
    BAD_GRAPH,
    BAD_INPUT_OPTION,
    FOREIGN,
    INPUT_WITH_VALUE,
    MISUSED,
    NOT_ONNX,
    TOO_LARGE,
    TRAINING_INFO,
    ModelFile,
    parse,
    read_file,
    refuse,
    short,
)
from irscope.frontends.onnx.rules import Lower, Table, Use, compile_rule, find_recipe
from irscope.frontends.onnx.standard import CONTROL, PREVIEW, TABLE
from irscope.frontends.onnx.tensors import role_of
from irscope.frontends.onnx.types import AttrValue, decode
from irscope.ir.graph import Attr, Graph, Node, Role, Value, paused_gc
from irscope.ir.places import Loc, Scope
from irscope.ir.program import ONNX, Assumed, FileNode, FileNodes, Program
from irscope.ir.types import UNKNOWN_TENSOR, Type

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]+")
_AT_ONCE = 100
"""Nodes for which the budget is asked at once."""
_ONE_UNKNOWN = (UNKNOWN_TENSOR,)
_MOST_USES = 10_000
_PLAIN = frozenset({1, 2, 3, 6, 7, 8})
"""Kinds of attributes that are numbers, texts, and lists of these."""
Look: TypeAlias = tuple[str, str, str, int, int, tuple[bytes, ...]]
"""Name, domain and overload of an operator, numbers of operands and results, and attributes as they are stored."""
_LONGEST_TEXT = 1024
_MOST_ITEMS = 256
DEEPEST = 64
"""Functions within functions and graphs within graphs, all together."""
_HAS_METADATA = "metadata_props" in NodeProto.DESCRIPTOR.fields_by_name
_HAS_OVERLOAD = "overload" in NodeProto.DESCRIPTOR.fields_by_name


@dataclass(frozen=True, slots=True)
class Operator:
    """Rule for nodes of one operator."""

    lower: Lower | None
    """None for an operator that stands for a function."""
    function: FunctionProto | None
    constants: dict[str, Value]
    """Those of the function, shared by its calls."""
    domain: str
    version: int
    source: str
    fewest: int
    most: int

    def check(self, given: int) -> None:
        """Refuse a number of operands that the operator's schema does not allow."""
        if not self.fewest <= given <= self.most:
            allowed = str(self.fewest) if self.fewest == self.most else f"{self.fewest} to {self.most}"
            raise Mismatch(f"it has {given} operands, not {allowed}")


class Operators:
    """Rules for the nodes of each operator, looked up once a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._found: dict[tuple[str, str, str, int], Operator] = {}
        self._uses: dict[tuple[tuple[str, int], ...], dict[Look, Use]] = {}

    def uses(self, opsets: Mapping[str, int]) -> dict[Look, Use]:
        """Return what nodes that look alike have in common in graphs that import these operator sets."""
        return self._uses.setdefault(tuple(sorted(opsets.items())), {})

    def find(self, opsets: Mapping[str, int], domain: str, op_type: str, overload: str) -> Operator:
        """Return how nodes of an operator are lowered in graphs that import these operator sets."""
        domain = domain_of(domain)
        version = version_of(opsets, domain)
        key = (domain, op_type, overload, version)
        operator = self._found.get(key)
        if operator is None:
            operator = self._found[key] = self._resolve(domain, op_type, overload, version)
        return operator

    def _resolve(self, domain: str, op_type: str, overload: str, version: int) -> Operator:
        owner = "onnx" if domain == STANDARD else domain
        source = f"{owner}::{op_type}@{version}"
        function = self.model.functions.find(domain, op_type, overload)
        if function is not None:
            constants = self.model.functions.constants(function)
            return Operator(None, function, constants, domain, version, source, 0, len(function.input))
        known = min(version, onnx_opset_version()) if domain == STANDARD else version
        fewest, most = 0, 2**31
        lower = find_lowering(domain, op_type)
        try:
            schema = get_schema(op_type, known, domain)
        except SchemaError:
            pass
        else:
            fewest, most = schema.min_input, schema.max_input
            source = f"{owner}::{op_type}@{schema.since_version}"
            # The definition by simpler operators, where the installed onnx has one that needs no types.
            function = body if lower is None and (body := function_body(schema)).node else None
        if lower is None and function is None:
            lower = _keep_foreign
            name = _foreign_name(domain, op_type)
            self.model.sink.note(
                FOREIGN,
                f"irscope does not know the operator {short(name)}",
                hint=FOREIGN_REASONS.get((domain, op_type), "its results have the types that the file declares, and its cost is unknown"),
                about=name,
            )
        return Operator(lower, function, {}, domain, version, source, fewest, most)


class Body(Lowering):
    """One level of names. A region's body sees the names around it; a function's body sees only its arguments."""

    def __init__(
        self,
        operators: Operators,
        graph: Graph,
        opsets: Mapping[str, int],
        scopes: Scopes,
        *,
        outer: Lowering | None = None,
        depth: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if depth > DEEPEST:
            raise refuse(TOO_LARGE, f"graphs and functions are nested more than {DEEPEST} deep", operators.model.where)
        self.operators = operators
        self.model = operators.model
        self.graph = graph
        self.opsets = opsets
        self.scopes = scopes
        self.outer = outer
        self.depth = depth
        self.scope = scope if scope is not None else scopes.root
        """Scope of nodes that name none."""
        self.values: dict[str, Operand] = {}
        self.declared: dict[str, TypeProto] = {}
        self._unique = self.model.names.unique
        self.renamed: dict[str, str] = {}
        """Names of a function's results where it is used."""
        self.prefix = ""
        self.arguments: Mapping[str, AttrValue] | None = None
        self.constants: dict[str, Value] | None = None
        self.origins = array("l")
        """The number of the file's node that each node stands for which was lowered here."""
        self.made: dict[int, FileNode] | None = None
        """Nodes that each of the file's nodes was lowered to, by number, where they are requested."""
        self._repeated: dict[tuple[Scope, str], int] = {}
        self.uses = operators.uses(opsets)

    def find(self, name: str) -> Operand:
        body: Lowering | None = self
        while body is not None:
            if name in body.values:
                return body.values[name]
            body = body.outer
        raise refuse(
            BAD_GRAPH,
            f"'{short(name)}' is used but nothing makes it",
            f"graph '{short(self.graph.name)}'",
            "the model is damaged or incomplete",
        )

    def knows(self, name: str) -> bool:
        body: Lowering | None = self
        while body is not None:
            if name in body.values:
                return True
            body = body.outer
        return False

    def shown_name(self, name: str) -> str:
        return self.renamed[name] if name in self.renamed else self.prefix + name if name else ""

    def new_name(self, name: str) -> str | None:
        shown = self.prefix + name if name and not self.renamed else self.shown_name(name)
        return self._unique(shown) if shown else None

    def declared_type(self, name: str, undeclared: Type = UNKNOWN_TENSOR) -> Type:
        proto = self.declared.get(name)
        if proto is None:
            return undeclared
        return self.model.types.of_result(proto)

    def declare(self, infos: Iterable[ValueInfoProto]) -> None:
        for info in infos:
            if info.HasField("type"):
                self.declared[info.name] = info.type

    def lower_nodes(self, nodes: Sequence[NodeProto]) -> None:
        """Lower all nodes, in an order in which everything is made before it is used."""
        self.model.count(len(nodes))
        rows = self._rows(nodes)
        for row in rows:
            if row[0] % _AT_ONCE == 0:
                spend(20 * min(_AT_ONCE, len(nodes) - row[0]), "nodes of the graph")
            if not self._lower(row):
                # Something is made later: what is left has to be sorted.
                for later in in_order([row, *rows], self):
                    spend(20, "nodes of the graph")
                    if not self._lower(later):
                        self._lower_by_rule(later)

    def _rows(self, nodes: Sequence[NodeProto]) -> Iterator[Row]:
        """Yield the nodes with the names in them, and what nodes like each have in common."""
        uses = self.uses
        for number, node in enumerate(nodes):
            inputs, outputs = node.input[:], node.output[:]
            while outputs and not outputs[-1]:
                outputs.pop()
            attributes = node.attribute
            texts: tuple[bytes, ...] | None = ()
            if attributes:
                is_plain = self.arguments is None and _PLAIN.issuperset([attribute.type for attribute in attributes])
                texts = tuple([attribute.SerializeToString() for attribute in attributes]) if is_plain else None
            use = None
            if texts is not None and "" not in inputs and "" not in outputs:
                look = (node.op_type, node.domain, node.overload if _HAS_OVERLOAD else "", len(inputs), len(outputs), texts)
                use = uses.get(look)
                if use is None:
                    use = Use(node.op_type)
                    if len(uses) < _MOST_USES:
                        uses[look] = use
            yield number, node, use, inputs, outputs

    def _lower(self, row: Row) -> bool:
        """Lower a node, like those before it where there were some. False, and nothing done, where it reads what is not made yet."""
        number, node, use, inputs, outputs = row
        values = self.values
        if len(outputs) != 1 or outputs[0] in values:
            check_new(outputs, self)
        try:
            operands: list[Operand] = [*map(values.__getitem__, inputs)]
        except KeyError:  # absent, from around, or not made yet
            if not all([not name or self.knows(name) for name in inputs]):
                return False
            operands = [None]
        if use is None and not all(map(self.knows, captured_names(node))):
            return False
        if use is None or (recipe := use.recipe) is None or self.made is not None or None in operands:
            self._lower_by_rule(row)
            return True
        for role, place in recipe.roles:
            mark(operands[place], role)
        if recipe.places is not None:
            operands = [operands[place] for place in recipe.places]
        scope, loc = self._place(node, node.name, use.op_type)
        if len(outputs) == 1:
            (output,) = outputs
            names: Sequence[str | None] = (self.new_name(output),)
            types: Sequence[Type] = (self.declared_type(output),) if output in self.declared else _ONE_UNKNOWN
            made = self.graph.append(recipe.op, operands, types, recipe.attrs, names=names, scope=scope, loc=loc, source=use.source)
            values[output] = made.outputs[0]
        else:
            names = [self.new_name(output) for output in outputs]
            types = [self.declared_type(output) for output in outputs]
            made = self.graph.append(recipe.op, operands, types, recipe.attrs, names=names, scope=scope, loc=loc, source=use.source)
            values.update(zip(outputs, made.outputs, strict=True))
        self.origins.append(number)
        return True

    def _place(self, node: NodeProto, name: str, op_type: str) -> tuple[Scope, Loc | None]:
        """Return the scope of a node and the line that it comes from."""
        metadata = node.metadata_props if _HAS_METADATA else ()
        if not metadata:
            end = name.rfind("/")
            found = self.scopes.by_prefix.get(name[:end]) if end > 0 else None
            return found if found is not None and found is not self.scopes.root else self._named_scope(name, op_type), None
        entries = {item.key: item.value for item in metadata}
        scope = self.scopes.of_metadata(entries)
        return scope if scope is not None else self._named_scope(name, op_type), self.model.locations.of_metadata(entries)

    def _lower_by_rule(self, row: Row) -> None:
        """Lower a node by the rule of its operator."""
        number, node, use, inputs, outputs = row
        before, last = len(self.graph), self.graph.last
        operands = [self.find(name) if name else None for name in inputs]
        op_type = node.op_type
        overload = node.overload if _HAS_OVERLOAD else ""
        name = node.name
        entry = self.operators.find(self.opsets, node.domain, op_type, overload)
        scope, loc = self._place(node, name, op_type)
        attrs = self._attributes(node)
        call = Call(self, entry.domain, op_type, entry.version, name, operands, outputs, attrs, scope, loc, entry.source)
        try:
            entry.check(len(operands))
            if entry.function is not None:
                self._inline(call, entry.function, entry.constants)
            elif entry.lower is not None:
                if use is not None:
                    use.times += 1
                    if use.times == 2:
                        use.recipe, use.source = find_recipe(entry.lower, call), entry.source
                entry.lower(call)
        except Mismatch as mismatch:
            shown = short(name or next(iter(outputs), ""))
            self.model.sink.warn(
                MISUSED,
                f"{op_type} '{shown}' is not as its operator asks: {mismatch}; it is kept as it is",
                node=shown,
                hint="its results are unknown",
            )
            _keep_foreign(call)
        if self.made is not None:
            self.made[number] = FileNode(tuple(operands), tuple(self.graph.after(last)))
        self.origins.extend([number] * (len(self.graph) - before))

    def _named_scope(self, name: str, op_type: str) -> Scope:
        scope = self.scopes.of_name(name, op_type) if name else self.scope
        return self.scope if scope is self.scopes.root else scope

    def _attributes(self, node: NodeProto) -> dict[str, AttrValue]:
        if self.arguments is None:
            return {attribute.name: decode(attribute) for attribute in node.attribute}
        attrs: dict[str, AttrValue] = {}
        for attribute in node.attribute:
            value = self.arguments.get(attribute.ref_attr_name) if attribute.ref_attr_name else decode(attribute)
            if value is not None:
                attrs[attribute.name] = value
        return attrs

    def call_scope(self, parent: Scope, name: str, cls: str) -> Scope:
        """Return the scope of another call of a function."""
        count = self._repeated.get((parent, name), 0)
        self._repeated[parent, name] = count + 1
        return parent.child(name, cls, count)

    def lower_region(self, owner: Node, name: str, proto: GraphProto, count: int | None = None) -> Graph:
        """Lower a graph attribute as a region; `count` is the number of its arguments."""
        region = self.graph.add_region(owner, name)
        body = Body(self.operators, region, self.opsets, self.scopes, outer=self, depth=self.depth + 1, scope=owner.scope)
        body.arguments, body.prefix, body.constants = self.arguments, self.prefix, None
        body.declare(proto.value_info)
        body.declare(proto.output)
        if count is not None and len(proto.input) != count:
            raise refuse(
                BAD_GRAPH,
                f"the graph '{short(proto.name)}' of '{short(owner.name)}' takes {len(proto.input)} values, it is given {count}",
                self.model.where,
                "the model is damaged",
            )
        for info in proto.input:
            type_ = self.model.types.of_result(info.type) if info.HasField("type") else UNKNOWN_TENSOR
            body.define(info.name, region.add_input(type_, body.new_name(info.name)))
        body.add_initializers(proto)
        body.lower_nodes(proto.node)
        region.set_outputs(body.results([info.name for info in proto.output]))
        return region

    def add_initializers(self, proto: GraphProto) -> None:
        """Declare the weights of a graph."""
        for tensor in proto.initializer:
            name = tensor.name
            self.define(name, self.model.weight(tensor, self.prefix + name))
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            self.define(name, self.model.add_weight(self.model.tensors.read_sparse(sparse, name), self.prefix + name))

    def define(self, name: str, value: Operand) -> None:
        """Let a name stand for a value; it may not stand for another one of this level."""
        if name in self.values:
            raise refuse(BAD_GRAPH, f"'{short(name)}' is declared twice", f"graph '{short(self.graph.name)}'", "the model is damaged")
        self.values[name] = value

    def results(self, names: Sequence[str]) -> list[Value]:
        values: list[Value] = []
        for name in names:
            value = self.find(name)
            if value is None:
                raise refuse(BAD_GRAPH, f"the result '{short(name)}' is an argument that was not given", self.model.where)
            values.append(value)
        return values

    def _inline(self, call: Call, proto: FunctionProto, constants: dict[str, Value]) -> None:
        """Put the nodes of a function in place of a call; `constants` are shared by its calls."""
        if len(call.inputs) > len(proto.input) or len(call.outputs) > len(proto.output):
            raise Mismatch(f"the function takes {len(proto.input)} values and gives {len(proto.output)}")
        name = call.name.rpartition("/")[2] or call.op_type
        scope = self.call_scope(call.scope, name, call.op_type)
        opsets = {STANDARD: self.opsets[STANDARD], **read_opsets(proto.opset_import)}
        body = Body(self.operators, self.graph, opsets, Scopes(scope), depth=self.depth + 1)
        first = next((output for output in call.outputs if output), "")
        body.prefix = f"{self.shown_name(call.name or first or call.op_type)}/"
        body.arguments = _declared_arguments(call, proto)
        body.constants = constants
        if hasattr(proto, "value_info"):
            body.declare(proto.value_info)
        for index, formal in enumerate(proto.input):
            body.define(formal, call.operand(index))
        results = list(zip(proto.output, call.outputs, strict=False))
        for formal, actual in results:
            if actual:
                body.renamed[formal] = self.shown_name(actual)
                if actual in self.declared:
                    body.declared[formal] = self.declared[actual]
        body.lower_nodes(proto.node)
        for formal, actual in results:
            if actual:
                self.values[actual] = body.find(formal)


def _declared_arguments(call: Call, proto: FunctionProto) -> dict[str, AttrValue]:
    arguments = {attribute.name: decode(attribute) for attribute in getattr(proto, "attribute_proto", ())}
    for name in (*proto.attribute, *list(arguments)):
        if name in call.attrs:
            arguments[name] = call.attrs[name]
    return arguments


def _foreign_name(domain: str, op_type: str) -> str:
    """Return how a foreign operator is called: "onnx.Foo", "com.microsoft.Foo"."""
    clean = _NOT_IN_NAMES.sub("_", f"{'onnx' if domain == STANDARD else domain}.{op_type}"[:200])
    return clean if clean[0].isalpha() else f"x{clean}"


def _keep_foreign(call: Call) -> None:
    """Add the node as it is. Weights and captured values of its graphs become operands, so that they count, and so do tensors and
    long lists of floats in its attributes."""
    operands: list[Operand] = list(call.inputs)
    for value in call.attrs.values():
        for graph in value if isinstance(value, tuple) else (value,):
            if isinstance(graph, GraphProto):
                operands.extend(_inside_region(call, graph))
    operands.extend(_in_attributes(call))
    body = call.body
    node = call.node(_foreign_name(call.domain, call.op_type), operands, _plain_attributes(call))
    for name, result in zip(call.outputs, node.outputs, strict=True):
        proto = body.declared.get(name)
        if proto is not None:
            body.graph.set_type(result, body.model.types.of_result(proto, bindable=True))
    call.bind(node)


def _inside_region(call: Call, graph: GraphProto) -> list[Value]:
    """Return the weights of a graph that is not lowered, and what it reads from around it."""
    body = call.body
    values = [value for name in sorted(free_names(graph)) if body.knows(name) and (value := body.find(name)) is not None]
    pending = [graph]
    while pending:
        inner = pending.pop()
        values.extend(body.model.weight(tensor, body.prefix + tensor.name) for tensor in inner.initializer)
        for node in inner.node:
            for attribute in node.attribute:
                pending.extend(([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs))
    return values


def _in_attributes(call: Call) -> list[Value]:
    """Return the attributes of a foreign operator that may be weights."""
    if call.op_type == "EPContext":
        return [call.opaque_weight("ep_cache_context")]
    names = [
        name
        for name, value in call.attrs.items()
        if isinstance(value, TensorProto)
        or (isinstance(value, tuple) and len(value) > _MOST_ITEMS and all(isinstance(item, float) for item in value))
    ]
    values = call.attribute_weights(dict.fromkeys(names, Role.PARAMETER))
    for weight in values:
        if weight.type.shape is not None:
            weight.role = role_of(weight.type)
    return values


def _plain_attributes(call: Call) -> dict[str, Attr]:
    """Return the attributes that can stand in the IR: numbers, texts and short lists of them."""
    plain: dict[str, Attr] = {}
    for name, value in call.attrs.items():
        if not name.isidentifier():
            continue
        if (
            isinstance(value, int | float)
            or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)
            or (isinstance(value, tuple) and len(value) <= _MOST_ITEMS and all(isinstance(item, int | float | str) for item in value))
        ):
            plain[name] = value
    return plain


TABLES: dict[str, Table] = {
    "": {**TABLE, **CONTROL},
    "ai.onnx.ml": LEARNING,
    "ai.onnx.preview.training": TRAINING,
    "ai.onnx.preview": PREVIEW,
    "com.microsoft": MICROSOFT,
    BLOCKED_DOMAIN: BLOCKED,
    "com.ms.internal.nhwc": CHANNELS_LAST,
}
"""Rules by domain, the default one being ""."""


FOREIGN_REASONS: dict[tuple[str, str], str] = {("com.microsoft", name): reason for name, reason in FOREIGN_OF_MICROSOFT.items()}
"""Operators that are knowingly not lowered, with the reason."""


@functools.cache
def find_lowering(domain: str, op_type: str) -> Lower | None:
    """Return the lowering of an operator, None for a foreign one."""
    rule = TABLES.get(domain, {}).get(op_type)
    return compile_rule(rule) if rule is not None else None


_FIRST_IR_WITH_OPTIONAL_DEFAULTS = 4
_MOST_METADATA = 100
_LONGEST_METADATA = 4096


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the ONNX file as a program. Nothing in it is executed, and external data are not opened unless shapes need them."""
    file = read_file(Path(path))
    if options.ort_level == "off":
        return _program(file, options, sink)
    from irscope.frontends.onnx.optimizer.bridge import at_level

    session, known = at_level(file, options)
    return _as_session(_program(session, options, sink), options.ort_level, known)


def _as_session(program: Program, level: str, known: str) -> Program:
    """Return a program of a session's graph: nodes in its order, and a note of where they come from."""
    program.traits = replace(program.traits, is_session=True)
    program.metadata["ort_level"] = f"{level}, {'predicted' if known == 'predicted' else f'asked of {known}'}"
    why = f"the graph of a session, {'predicted' if known == 'predicted' else f'as {known} has it'}; --ort-level off is the file as written"
    program.assumed.append(Assumed("ort-level", level, why, is_guess=False))
    program.origins = ()
    return program


def load_model(
    model: ModelProto | bytes, base_dir: Path | None = None, options: LoadOptions | None = None, sink: DiagnosticSink | None = None
) -> Program:
    """Return a model in memory as a program; external data are looked for in `base_dir`, or not at all."""
    file = parse(model) if isinstance(model, bytes) else ModelFile(model)
    if base_dir is not None:
        file.path = Path(base_dir).absolute() / "model.onnx"
    return _program(file, options or LoadOptions(), sink if sink is not None else DiagnosticSink())


def _program(file: ModelFile, options: LoadOptions, sink: DiagnosticSink) -> Program:
    with paused_gc():
        try:
            return _Loader(file, options, sink).load()
        except LoadError as error:
            if not error.where.startswith(file.where):
                error.where = f"{file.where}, {error.where}" if error.where else file.where
            raise
        except (TypeError, AttributeError):
            field = _bad_text(file.proto)
            if field is None:
                raise
            raise refuse(NOT_ONNX, f"a text in it ({field}) is not UTF-8", file.where, "the file is damaged") from None
        except RecursionError:
            raise refuse(TOO_LARGE, "its graphs or types are nested too deeply", file.where) from None


class _Loader:
    """Lowers the main graph of one model."""

    def __init__(self, file: ModelFile, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._file = file
        self._proto = file.proto
        self._options = options
        self._sink = sink
        self._model = Model(file, sink)
        self._assumed: list[Assumed] = []
        self._opsets = model_opsets(file.proto, sink, self._assumed)

    def load(self) -> Program:
        model, graph = self._model, self._proto.graph
        model.functions.check_size(graph)
        body = Body(Operators(model), model.graph, self._opsets, Scopes(model.graph.scope))
        self._add_inputs(body, graph)
        body.add_initializers(graph)
        body.declare(graph.value_info)
        body.declare(graph.output)
        body.made = {} if self._options.keep_calls else None
        body.lower_nodes(graph.node)
        names = [info.name for info in graph.output]
        for name in names:
            if not body.knows(name):
                raise refuse(BAD_GRAPH, f"nothing makes the output '{short(name)}'", self._file.where, "the model is damaged or incomplete")
        model.graph.set_outputs(body.results(names))
        if self._proto.training_info:
            self._sink.note(TRAINING_INFO, "the file describes its training too; only the inference graph was read")
        path = str(self._file.path) if self._file.path is not None else ""
        symbols = dict(model.symbols.named)
        return Program(
            model.graph,
            symbols=symbols,
            format="onnx",
            path=path,
            metadata=self._metadata(),
            origins=body.origins,
            assumed=self._assumed,
            traits=ONNX,
            file_nodes=None if body.made is None else FileNodes([body.made[at] for at in range(len(graph.node))], dict(body.values)),
        )

    def _add_inputs(self, body: Body, graph: GraphProto) -> None:
        with_value = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
        computed = [info for info in graph.input if info.name not in with_value]
        given = dict(self._options.for_inputs([info.name for info in computed]).inputs)
        given.pop(SOLE, None)
        for place, info in enumerate(computed):
            if (asked := given.get(info.name) or given.get(str(place))) is not None:
                self._model.symbols.adopt(asked, info.type, self._options.bind)
        defaults = 0
        position = 0
        for info in graph.input:
            name = info.name
            asked = given.pop(name, None)
            if name in with_value:
                defaults += 1
                if asked is not None:
                    raise refuse(
                        BAD_INPUT_OPTION,
                        f"the input '{short(name)}' has a value in the file",
                        self._file.where,
                        "it is analysed as a weight; its type cannot be changed",
                    )
                continue
            asked = asked if asked is not None else given.pop(str(position), None)
            position += 1
            if asked is None:
                type_ = self._input_type(info)
            else:
                # As a type of something computed, whose symbols do not become the model's.
                declared = self._model.types.of_result(info.type) if lacks_dtype(asked) and info.HasField("type") else UNKNOWN_TENSOR
                type_ = stated(asked, declared, name)
            body.define(name, body.graph.add_input(type_, body.new_name(name)))
        if given:
            known = ", ".join(short(info.name) for info in computed[:12])
            raise refuse(BAD_INPUT_OPTION, f"the model has no input '{short(next(iter(given)))}'", self._file.where, f"its inputs: {known}")
        if defaults and self._proto.ir_version >= _FIRST_IR_WITH_OPTIONAL_DEFAULTS:
            self._sink.note(INPUT_WITH_VALUE, f"{defaults} inputs have a value in the file and are taken as weights")

    def _input_type(self, info: ValueInfoProto) -> Type:
        return self._model.types.of_input(info.type, info.name) if info.HasField("type") else UNKNOWN_TENSOR

    def _metadata(self) -> dict[str, str]:
        proto = self._proto
        found = {
            "producer": f"{_as_text(proto.producer_name)} {_as_text(proto.producer_version)}".strip(),
            "ir_version": str(proto.ir_version),
            "opsets": show_opsets(self._opsets),
            "graph": _as_text(proto.graph.name),
            "domain": _as_text(proto.domain),
            "model_version": str(proto.model_version) if proto.model_version else "",
            "description": _as_text(proto.doc_string)[:_LONGEST_METADATA],
        }
        found.update({f"symbol.{name}": text[:_LONGEST_METADATA] for name, text in self._model.symbols.spelling.items()})
        for entry in list(proto.metadata_props)[:_MOST_METADATA]:
            found.setdefault(f"file.{_as_text(entry.key)[:100]}", _as_text(entry.value)[:_LONGEST_METADATA])
        return {key: value for key, value in found.items() if value}


# Texts that are not UTF-8: reading such a field gives bytes, which every use of a name then trips over.


def _bad_text(message: Message) -> str | None:
    """Return the name of a text field somewhere in a message whose content is not UTF-8; None where all are fine."""
    pending = [message]
    while pending:
        for field, value in pending.pop().ListFields():
            items = [value] if not hasattr(value, "__len__") or isinstance(value, str | bytes) else value
            if field.type == FieldDescriptor.TYPE_STRING:
                if any(isinstance(item, bytes) for item in items):
                    return str(field.full_name)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(items)
    return None


def _as_text(value: str | bytes) -> str:
    """Return a text that may be shown, whatever the file holds."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
