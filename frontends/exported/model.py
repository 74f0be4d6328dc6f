"""The parts of a `.pt2` archive put together: versions, signature, weights, and the graph with its nodes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Final

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, form_problem
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.tensors import Json, Locations, Scopes, Types, Weights, devices, names_in, read_json
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import PickledTensor, pickled_payload, read_pickle
from irscope.frontends.torch_lowering.dtypes import SERIALIZED_DTYPES
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.frontends.torch_lowering.lowering import AtenCall, Lowered
from irscope.frontends.torch_lowering.signatures import Argument, Param, Signature, complete, find, foreign_attrs
from irscope.frontends.torch_lowering.table import lower
from irscope.ir.dims import unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Names, Node, Role, Value
from irscope.ir.places import Literal, Payload
from irscope.ir.program import EXPORTED, Called, FileNode, FileNodes, Program
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, scalar, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall, RuleError

MOST_NODES: Final = 5_000_000

# Checks of what the exporter assumed, and arithmetic on sizes: the file gives every size as an expression.
_SILENT = frozenset(
    {
        "torch.ops.aten._assert_scalar.default",
        "torch.ops.aten._assert_tensor_metadata.default",
        "torch.ops.aten._assert_async.msg",
        "torch.ops.aten._assert_async.default",
        "torch.ops.aten.sym_constrain_range.default",
        "torch.ops.aten.sym_constrain_range_for_size.default",
    }
)
_MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
_SYMBOLIC = ("as_sym_int", "as_sym_float", "as_sym_bool")
_VALUES = {"as_sym_int": "sym_int_values", "as_sym_float": "sym_float_values", "as_sym_bool": "sym_bool_values"}


class BodyReader:
    """Reads one graph, or the graph inside a higher-order operator, into an irscope graph."""

    def __init__(
        self, graph: Graph, types: Types, names: Names, scopes: Scopes, locations: Locations, sink: DiagnosticSink, path: str
    ) -> None:
        self.graph = graph
        self.types = types
        self.names = names
        self.scopes = scopes
        self.locations = locations
        self.sink = sink
        self.path = path
        self.env: dict[str, Argument] = {}
        """Tensors and numbers by their name in the file."""
        self.source: Json = {}
        """The graph that is being read."""
        self.autocast = False
        """True where operands are cast to the element type that the results are recorded with."""
        self.origins = array("l")
        """The number of the file's node that each node stands for which this reader appended."""
        self.calls: dict[Node, Called] | None = None
        """The calls that nodes were made of, where they are kept."""
        self.made: list[FileNode] | None = None
        """Nodes that each node of the file was lowered to, where they are requested."""
        self._unread: dict[str, Type] = {}

    def inner(self, graph: Graph) -> BodyReader:
        """Return a reader for a graph inside this one."""
        made = BodyReader(graph, self.types, self.names, self.scopes, self.locations, self.sink, self.path)
        made.autocast = self.autocast
        return made

    def value(self, name: str) -> Value:
        """Return a tensor by its name in the file."""
        found = self.env.get(name)
        if isinstance(found, Value):
            return found
        type_ = self._unread.pop(name, None)
        if type_ is None:
            raise LoadError(
                f"the graph uses {name!r} before anything defines it", code="IRS135", where=self.path, hint="the file is damaged"
            )
        made = self.graph.append("tensor.empty", (), (type_,), {"shape": getattr(type_, "shape", ())}, names=(self.names.unique(name),))
        self.env[name] = made.outputs[0]
        return made.outputs[0]

    def number(self, kind: str, content: Json) -> Argument:
        """A size, number or truth value that may be symbolic."""
        if "as_name" not in content:
            ((_, plain),) = content.items()
            return _tuple(plain)
        name = content["as_name"]
        if name in self.env:
            return self.env[name]
        found = self.source.get(_VALUES[kind], {}).get(name)
        made: Argument
        if found is None:
            made = unknown(f"file.{name}", None)
        elif kind == "as_sym_int":
            made = self.types.dim(found)
        else:
            made = next((found[key] for key in ("as_float", "as_bool") if key in found), None)
            if made is None:
                made = float("nan") if kind == "as_sym_float" else unknown(f"file.{name}", 0, 1)
        self.env[name] = made
        return made

    def argument(self, arg: Json) -> Argument:
        """Return an argument as a value, number, text, type or tuple of these."""
        ((kind, content),) = arg.items()
        if kind == "as_tensor":
            return self.value(content["name"])
        if kind == "as_tensors":
            return tuple(self.value(item["name"]) for item in content)
        if kind == "as_optional_tensors":
            return tuple(self.value(item["as_tensor"]["name"]) if "as_tensor" in item else None for item in content)
        if kind in _SYMBOLIC:
            return self.number(kind, content)
        if kind == "as_device":
            return self.types.device(content) or None
        if kind.startswith("as_sym_"):
            return tuple(self.number(kind[:-1], item) for item in content)
        return _plain_argument(kind, content)

    def add_nodes(self, source: Json) -> None:
        """Append the nodes of a graph."""
        self.source = source
        if len(source["nodes"]) > MOST_NODES:
            raise LoadError("the graph has more than 5,000,000 nodes", code="IRS139", where=self.path)
        for number, node in enumerate(source["nodes"]):
            before, last = len(self.graph), self.graph.last
            spend(50, "nodes of the exported program")
            self._add_node(node)
            if self.made is not None:
                operands = [found if isinstance(found := self.env.get(name), Value) else None for name in names_in(node["inputs"])]
                self.made.append(FileNode(tuple(operands), tuple(self.graph.after(last))))
            self.origins.extend([number] * (len(self.graph) - before))

    def _add_node(self, node: Json) -> None:
        from irscope.frontends.exported.model import add_higher_order

        target = str(node["target"])
        if target in _SILENT:
            return
        if not target.startswith("torch.ops."):
            self._add_function(node, target)
        elif target.startswith("torch.ops.higher_order."):
            add_higher_order(self, node, target.rpartition(".")[2])
        elif any(kind in output for output in node["outputs"] for kind in _SYMBOLIC):
            self._add_query(node, target)
        else:
            self._add_operator(node, target)

    def _add_function(self, node: Json, target: str) -> None:
        """Lower a Python function: arithmetic on sizes, which are known as expressions, or something unknown that makes tensors."""
        types, names = self.results(node)
        if any(isinstance(type_, TensorType) for type_ in types):
            inputs, attrs = foreign_attrs({str(item["name"]): self.argument(item["arg"]) for item in node["inputs"]})
            self.append(node, Lowered(target, inputs, attrs), types, names, target)

    def _add_query(self, node: Json, target: str) -> None:
        """Lower a node whose result is a number: only reading a tensor's value is work, sizes are known."""
        if not target.startswith(("torch.ops.aten.item.", "torch.ops.aten._local_scalar_dense.")):
            return
        argument = self.argument(node["inputs"][0]["arg"])
        if isinstance(argument, Value):
            dtype = argument.type.dtype if hasattr(argument.type, "dtype") else DType.UNKNOWN
            ((kind, content),) = node["outputs"][0].items()
            # A whole number is read as its expression, which sizes are made of; others are operands.
            name = None if kind == "as_sym_int" else content["as_name"]
            self.append(node, Lowered("tensor.item", (argument,)), (scalar(dtype),), (name,), "aten::item")

    def results(self, node: Json) -> tuple[list[Type], list[str | None]]:
        """Return the types and names of a node's results, lists of tensors laid flat."""
        types: list[Type] = []
        names: list[str | None] = []
        for output in node["outputs"]:
            ((kind, content),) = output.items()
            items = content if isinstance(content, list) else [content]
            for item in items:
                item = item.get("as_tensor", item) if kind.startswith("as_optional") else item
                name = item.get("name") if isinstance(item, dict) else None
                if kind in ("as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors") and name is not None:
                    types.append(self.types.tensor(self.source["tensor_values"][name]))
                else:
                    types.append(UNKNOWN_TYPE)
                names.append(name)
        return types, names

    def _add_operator(self, node: Json, target: str) -> None:
        namespace, _, rest = target.removeprefix("torch.ops.").partition(".")
        name, _, overload = rest.rpartition(".")
        named = {str(item["name"]): self.argument(item["arg"]) for item in node["inputs"]}
        types, names = self.results(node)
        full = name if namespace == "aten" else f"{namespace}::{name}"
        signature = find(full, overload) or _guessed(full, overload, named)
        call = AtenCall(signature, complete(signature, named))
        source = f"{namespace}::{name}" if overload == "default" else f"{namespace}::{name}.{overload}"
        lowered = lower(call)
        if lowered is None:
            inputs, attrs = foreign_attrs(call.args)
            lowered = Lowered(f"{namespace}.{name}", inputs, attrs)
        made = self.append(node, lowered, types, names, source)
        if self.calls is not None:
            self.calls[made] = call.called

    def append(self, node: Json, lowered: Lowered, types: Sequence[Type], names: Sequence[str | None], source: str) -> Node:
        """Make a lowered node and bind its results."""
        slots = lowered.results
        if slots is None or len(slots) != len(types):
            slots = tuple(range(len(types)))
        count = max((slot for slot in slots if slot is not None), default=-1) + 1
        out_types: list[Type] = [tensor(DType.UNKNOWN, None)] * count
        out_names: list[str | None] = [None] * count
        for slot, type_, name in zip(slots, types, names, strict=True):
            if slot is not None:
                out_types[slot] = type_
                out_names[slot] = self.names.unique(name) if name else None
            elif name:
                self._unread[name] = type_
        metadata = node.get("metadata") or {}
        made = self.graph.append(
            lowered.op,
            cast_operands(self.graph, lowered, out_types) if self.autocast else lowered.inputs,
            out_types,
            lowered.attrs,
            names=out_names,
            scope=self.scopes.at(metadata.get("nn_module_stack")),
            loc=self.locations.at(metadata.get("stack_trace")),
            source=source,
        )
        for slot, name in zip(slots, names, strict=True):
            if slot is not None and name:
                self.env[name] = made.outputs[slot]
        return made


def _plain_argument(kind: str, content: Json) -> Argument:
    if kind == "as_none":
        return None
    if kind == "as_scalar_type":
        return SERIALIZED_DTYPES.get(content, DType.UNKNOWN)
    if kind == "as_memory_format":
        return _MEMORY_FORMATS.get(content, "")
    if kind == "as_layout":
        return int(content)
    if kind == "as_complex":
        return complex(content["real"], content["imag"])
    if kind == "as_float" and isinstance(content, str):
        return float(content)
    return _tuple(content)


def _tuple(content: Json) -> Argument:
    if isinstance(content, list):
        return tuple(_tuple(item) for item in content)
    return content if isinstance(content, bool | int | float | str) else str(content)


def _guessed(name: str, overload: str, named: dict[str, Argument]) -> Signature:
    """Return a signature for an operator that is in no table: what the file says of its arguments."""
    return Signature(name, overload, tuple(Param(key, "any", None, False, False) for key in named), ())


def cast_operands(graph: Graph, lowered: Lowered, recorded: Sequence[Type]) -> Sequence[Value | None]:
    """Return the operands, cast to the recorded element type where the operator's own rule would give another one."""
    spec = find_op(lowered.op)
    wanted = recorded[0] if recorded else None
    if spec is None or not isinstance(wanted, TensorType) or not wanted.dtype.is_float or "inplace" in lowered.attrs:
        return lowered.inputs
    call = OpCall(spec, [None if value is None else value.type for value in lowered.inputs], lowered.attrs, (), recorded)
    try:
        found = next(iter(spec.infer_types(call)), None)
    except RuleError:
        return lowered.inputs
    if not isinstance(found, TensorType) or found.dtype is wanted.dtype:
        return lowered.inputs
    return [_cast_to(graph, value, wanted) for value in lowered.inputs]


def _cast_to(graph: Graph, value: Value | None, wanted: TensorType) -> Value | None:
    type_ = None if value is None else value.type
    if value is None or not isinstance(type_, TensorType) or not type_.dtype.is_float or type_.dtype is wanted.dtype:
        return value
    to = tensor(wanted.dtype, type_.shape, type_.device)
    return graph.append("tensor.cast", (value,), (to,), {"to": wanted.dtype}, source="autocast").outputs[0]


def add_higher_order(body: BodyReader, node: Json, name: str) -> None:
    """Append a higher-order operator."""
    rule = _RULES.get(name, _foreign)
    rule(body, node)


def _graph_arguments(body: BodyReader, node: Json) -> tuple[list[Json], list[Argument]]:
    """Graphs and other arguments of a node, each in order."""
    graphs = [item["arg"]["as_graph"]["graph"] for item in node["inputs"] if "as_graph" in item["arg"]]
    others = [body.argument(item["arg"]) for item in node["inputs"] if "as_graph" not in item["arg"]]
    return graphs, others


def _flat_values(arguments: Sequence[Argument]) -> list[Argument]:
    found: list[Argument] = []
    for argument in arguments:
        found.extend(argument if isinstance(argument, tuple) else (argument,))
    return found


def _input_name(arg: Json) -> str:
    ((_, content),) = arg.items()
    return str(content.get("name") or content.get("as_name"))


def _run_in_line(body: BodyReader, graph: Graph, source: Json, arguments: Sequence[Argument]) -> list[Value]:
    """Append the nodes of an inner graph to `graph`, its inputs standing for `arguments`; the values it returns."""
    inner = body.inner(graph)
    for arg, value in zip(source["inputs"], arguments, strict=False):
        inner.env[_input_name(arg)] = value
    inner.add_nodes(source)
    found = [inner.argument(output) for output in source["outputs"]]
    return [value for value in _flat_values(found) if isinstance(value, Value)]


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
    """Return a condition as a tensor: one that is known, or a symbol's comparison, becomes a constant."""
    if isinstance(condition, Value):
        return condition
    data = Literal((condition,)) if isinstance(condition, bool) else None
    return body.graph.add_weight(tensor(DType.BOOL, ()), None, Role.CONSTANT, data)


def _cond(body: BodyReader, node: Json) -> None:
    graphs, (condition, *operands) = _graph_arguments(body, node)
    types, _ = body.results(node)
    made = _append(body, node, "cf.if", (_condition(body, condition),), types)
    for name, source in zip(("then", "else"), graphs, strict=True):
        region = body.graph.add_region(made, name)
        region.set_outputs(_run_in_line(body, region, source, _flat_values(operands)))
    _bind(body, node, made.outputs)


def _while_loop(body: BodyReader, node: Json) -> None:
    (condition, step), arguments = _graph_arguments(body, node)
    carried = arguments[0] if isinstance(arguments[0], tuple) else ()
    extra = _flat_values(arguments[1:])
    first = _run_in_line(body, body.graph, condition, [*carried, *extra])
    state = [value for value in carried if isinstance(value, Value)]
    made = _append(body, node, "cf.loop", (None, first[0], *state), [value.type for value in state])
    region = body.graph.add_region(made, "body")
    region.add_input(tensor(DType.I64, ()))
    region.add_input(tensor(DType.BOOL, ()))
    inner = iter([region.add_input(value.type) for value in state])
    inside = [next(inner) if isinstance(value, Value) else value for value in carried]
    after = _run_in_line(body, region, step, [*inside, *extra])
    again = _run_in_line(body, region, condition, [*after, *extra])
    region.set_outputs([again[0], *after])
    _bind(body, node, made.outputs)


def _scan(body: BodyReader, node: Json) -> None:
    """Lower `scan(step, state, sequences, captured)`, which loops over the first axis of the sequences."""
    (step,), (state, sequences, *captured) = _graph_arguments(body, node)
    _add_scan(body, node, step, _flat_values([state]), _flat_values([sequences]), _flat_values(captured))


def _map(body: BodyReader, node: Json) -> None:
    """Lower `map(step, sequences, captured)`: a scan without a state."""
    (step,), (sequences, *captured) = _graph_arguments(body, node)
    _add_scan(body, node, step, [], _flat_values([sequences]), _flat_values(captured))


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
    region.set_outputs(_run_in_line(body, region, step, [*inside, *captured]))
    _bind(body, node, made.outputs)


def _inline(body: BodyReader, node: Json) -> None:
    """Regions that only set a mode (no gradients, autocast) or mark a block run in line; settings stand before the operands."""
    (source, *_), others = _graph_arguments(body, node)
    flat = _flat_values(others)
    outer = body.autocast
    if str(node["target"]).endswith("wrap_with_autocast"):
        body.autocast = flat[2] is True
    try:
        values = _run_in_line(body, body.graph, source, flat[len(flat) - len(source["inputs"]) :])
    finally:
        body.autocast = outer
    _bind(body, node, values)


def _foreign(body: BodyReader, node: Json) -> None:
    """Lower an operator that irscope does not know: its graphs are left out."""
    name = str(node["target"]).rpartition(".")[2]
    _, others = _graph_arguments(body, node)
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
    "cond": _cond, "while_loop": _while_loop, "wrap_with_set_grad_enabled": _inline, "wrap_with_autocast": _inline,
    "invoke_subgraph": _inline, "strict_mode": _inline, "wrap_activation_checkpoint": _inline, "tag_activation_checkpoint": _inline,
    "scan": _scan, "map_impl": _map, "map": _map,
}  # fmt: skip


PROGRAM = "serialized_exported_program.json"
# Before torch 2.2 these were called .json, though they never were.
_CHECKPOINTS = ("serialized_state_dict.pt", "serialized_state_dict.json", "serialized_constants.pt", "serialized_constants.json")


class OlderWeights:
    """Places of parameters, buffers and constants."""

    def __init__(self, archive: Archive) -> None:
        self._found: dict[str, tuple[Archive, PickledTensor]] = {}
        self._open = ExitStack()
        for name in _CHECKPOINTS:
            if name in archive and archive.entries[name].size:
                inner = self._open.enter_context(archive.inner(name))
                state = read_pickle(inner.read("data.pkl"), f"{archive.path}:{name}").root
                if isinstance(state, dict):
                    self._found.update({str(fqn): (inner, item) for fqn, item in state.items() if isinstance(item, PickledTensor)})

    def payload(self, fqn: str, type_: TensorType, small: bool) -> Payload | None:
        """Return where the values are; small constants are read. None where the archive does not say."""
        found = self._found.get(fqn)
        return pickled_payload(found[0], "data/", found[1], small) if found is not None else None

    def close(self) -> None:
        """Close the inner archives."""
        self._open.close()


_WEIGHTS = {
    "parameter": ("parameter_name", Role.PARAMETER),
    "buffer": ("buffer_name", Role.BUFFER),
    "tensor_constant": ("tensor_constant_name", Role.CONSTANT),
}
_SCALARS = {"as_sym_int": DType.I64, "as_sym_float": DType.F64, "as_sym_bool": DType.BOOL}


def declare_inputs(body: BodyReader, module: Json, weights: Weights | OlderWeights) -> None:
    """Declare weights and inputs; names of weights are the model's own dotted ones."""
    metas = module["graph"]["tensor_values"]
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in _WEIGHTS:
            key, role = _WEIGHTS[kind]
            _declare_weight(body, content["arg"]["name"], str(content[key]), role, metas, weights)
        elif kind == "user_input":
            _declare_input(body, content["arg"], metas)
        elif kind == "custom_obj":
            body.env[content["arg"]["name"]] = body.graph.add_weight(
                UNKNOWN_TYPE, body.names.unique(str(content["custom_obj_name"])), Role.CONSTANT
            )


def _declare_weight(body: BodyReader, name: str, fqn: str, role: Role, metas: Json, weights: Weights | OlderWeights) -> None:
    type_ = body.types.tensor(metas[name])
    small = role is Role.CONSTANT or (role is Role.BUFFER and (type_.dtype.is_integer or type_.dtype is DType.BOOL))
    value = body.graph.add_weight(type_, body.names.unique(fqn), role, weights.payload(fqn, type_, small))
    body.env[name] = value
    if role is Role.PARAMETER and isinstance(metas[name].get("requires_grad"), bool):
        body.graph.trainable[value] = metas[name]["requires_grad"]


def _declare_input(body: BodyReader, arg: Json, metas: Json) -> None:
    ((kind, content),) = arg.items()
    if kind == "as_tensor":
        name = content["name"]
        body.env[name] = body.graph.add_input(body.types.tensor(metas[name]), body.names.unique(name))
    elif kind in _SCALARS and "as_name" in content:
        name = content["as_name"]
        body.graph.add_input(scalar(_SCALARS[kind]), body.names.unique(name))


def set_outputs(body: BodyReader, module: Json) -> None:
    """Declare what the model returns, and write back what it changes in buffers and inputs."""
    names = _names_of_state(module)
    outputs: list[Value] = []
    for spec in module["signature"]["output_specs"]:
        ((kind, content),) = spec.items()
        if kind.endswith("_mutation"):
            target = body.env.get(names.get((kind.removesuffix("_mutation"), content[_MUTATED[kind]]), ""))
            source = body.value(content["arg"]["name"])
            if isinstance(target, Value):
                body.graph.append("tensor.copy_into", (target, source), (target.type,), {"inplace": 0}, source=f"export::{kind}")
        elif kind != "token":
            argument = body.argument(content["arg"]) if kind in ("user_output",) else body.value(content["arg"]["name"])
            if isinstance(argument, Value):
                outputs.append(argument)
    body.graph.set_outputs(outputs)


_MUTATED = {
    "buffer_mutation": "buffer_name",
    "parameter_mutation": "parameter_name",
    "user_input_mutation": "user_input_name",
}


def _names_of_state(module: Json) -> dict[tuple[str, str], str]:
    """Graph names by what they hold: ("buffer", "bn.running_mean") -> "b_bn_running_mean"."""
    names: dict[tuple[str, str], str] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in ("parameter", "buffer"):
            names[kind, content[_WEIGHTS[kind][0]]] = content["arg"]["name"]
        elif kind == "user_input" and "as_tensor" in content["arg"]:
            name = content["arg"]["as_tensor"]["name"]
            names["user_input", name] = name
    return names


_MAJOR, _MINOR = 8, 20
_EXPORT_AGAIN = "export the model again with a current torch: torch.export.save(torch.export.export(model, args), 'model.pt2')"


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program of the archive's model."""
    name = document_name(archive, options, sink)
    document = read_json(archive, name)
    try:
        with closing(_declared_weights(archive, name)) as weights:
            return _Model(archive, weights, document, options, sink).read()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise LoadError(
            f"{name} does not have the form of an exported program ({form_problem(error)})",
            code="IRS135",
            where=str(archive.path),
            hint=_EXPORT_AGAIN,
        ) from error


def _declared_weights(archive: Archive, name: str) -> Weights | OlderWeights:
    return OlderWeights(archive) if name == PROGRAM else Weights(archive, name.removeprefix("models/").removesuffix(".json"))


def document_name(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> str:
    """Return the entry that describes the program to read."""
    if PROGRAM in archive:
        return PROGRAM
    names = [name.removeprefix("models/").removesuffix(".json") for name in archive.names("models/") if name.endswith(".json")]
    if not names:
        compiled = any(archive.names("data/aotinductor/"))
        what = "is compiled code (AOTInductor) without a graph" if compiled else "holds no models/*.json"
        raise LoadError(f"the archive {what}", code="IRS136", where=str(archive.path), hint=_EXPORT_AGAIN)
    if options.method and options.method not in names:
        raise LoadError(
            f"the archive has no program {options.method!r}", code="IRS137", where=str(archive.path), hint=f"it has {', '.join(names)}"
        )
    usual = next((name for name in ("model", "forward") if name in names), names[0])
    chosen = options.method or usual
    if len(names) > 1 and not options.method:
        others = [name for name in names if name != chosen]
        more = f"; there are {', '.join(others)}" if len(others) > 1 else ""
        sink.warn(
            "IRS137",
            f"the archive holds several programs; {chosen!r} was read",
            hint=f"`--method {others[0]}` reads another{more}",
            about="programs",
        )
    return f"models/{chosen}.json"


class _Model:
    def __init__(
        self, archive: Archive, weights: Weights | OlderWeights, document: Json, options: LoadOptions, sink: DiagnosticSink
    ) -> None:
        self._archive = archive
        self._weights = weights
        self._document = document
        self._options = options
        self._sink = sink

    def read(self) -> Program:
        """Read everything."""
        self._check_version()
        module = self._document["graph_module"]
        symbols = Symbols(self._document.get("range_constraints") or {})
        found = list(dict.fromkeys(devices(module["graph"])))
        types = Types(symbols, "cpu" if found == ["cpu"] else "")
        graph = Graph()
        names = Names()
        body = BodyReader(graph, types, names, Scopes(graph.scope), Locations(), self._sink, str(self._archive.path))
        if self._options.keep_calls:
            body.calls, body.made = {}, []
        declare_inputs(body, module, self._weights)
        body.add_nodes(module["graph"])
        set_outputs(body, module)
        version = self._document["schema_version"]
        metadata = {
            "producer": f"torch {self._document.get('torch_version', '?')}",
            "schema": f"{version['major']}.{version['minor']}",
            "dialect": ", ".join(str(item) for item in self._document.get("verifiers") or ()),
        }
        path, calls = str(self._archive.path), body.calls or {}
        found_in_file = Program(
            graph, {}, dict(symbols.named), "pt2", path, metadata=metadata, origins=body.origins, calls=calls, traits=EXPORTED
        )
        found_in_file.examples = types.examples
        if body.made is not None:
            names_in_file = {name: value for name, value in body.env.items() if isinstance(value, Value)}
            found_in_file.file_nodes = FileNodes(body.made, names_in_file)
        return found_in_file

    def _check_version(self) -> None:
        version = self._document["schema_version"]
        major, minor = int(version["major"]), int(version["minor"])
        if major != _MAJOR:
            raise LoadError(
                f"the file has schema version {major}.{minor}, irscope reads {_MAJOR}.x",
                code="IRS136",
                where=str(self._archive.path),
                hint=_EXPORT_AGAIN,
            )
        if minor > _MINOR:
            self._sink.warn("IRS138", f"the file has schema version {major}.{minor}, newer than {_MAJOR}.{_MINOR}", about="schema")
