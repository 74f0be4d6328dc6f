"""Nodes of an exported graph."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.exported.metadata import Locations, Scopes
from irscope.frontends.exported.tensors import Json, Types
from irscope.frontends.torch_common.dtypes import SERIALIZED_DTYPES
from irscope.frontends.torch_common.foreign import foreign_attrs
from irscope.frontends.torch_common.lowering import AtenCall, Lowered
from irscope.frontends.torch_common.signatures import Argument, Param, Signature, complete, find
from irscope.frontends.torch_common.table import lower
from irscope.ir.dims import unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Names, Node, Value
from irscope.ir.program import Called
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
        """Whether operands are cast to the element type that the results are recorded with."""
        self.origins = array("l")
        """The number of the file's node that each node stands for which this reader appended."""
        self.calls: dict[Node, Called] | None = None
        """The calls that nodes were made of, where they are kept."""
        self._unread: dict[str, Type] = {}

    def inner(self, graph: Graph) -> BodyReader:
        """A reader for a graph inside this one."""
        made = BodyReader(graph, self.types, self.names, self.scopes, self.locations, self.sink, self.path)
        made.autocast = self.autocast
        return made

    # -- arguments -------------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        """A tensor by its name in the file."""
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
        """An argument as a value, number, text, type or tuple of these."""
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
        return _plain(kind, content)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def add_nodes(self, source: Json) -> None:
        """Append the nodes of a graph."""
        self.source = source
        if len(source["nodes"]) > MOST_NODES:
            raise LoadError("the graph has more than 5,000,000 nodes", code="IRS139", where=self.path)
        for number, node in enumerate(source["nodes"]):
            before = len(self.graph)
            spend(50, "nodes of the exported program")
            self._add_node(node)
            self.origins.extend([number] * (len(self.graph) - before))

    def _add_node(self, node: Json) -> None:
        from irscope.frontends.exported.higher_order import add_higher_order

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
        """A Python function: arithmetic on sizes, which are known as expressions, or something unknown that makes tensors."""
        types, names = self.results(node)
        if any(isinstance(type_, TensorType) for type_ in types):
            inputs, attrs = foreign_attrs({str(item["name"]): self.argument(item["arg"]) for item in node["inputs"]})
            self.append(node, Lowered(target, inputs, attrs), types, names, target)

    def _add_query(self, node: Json, target: str) -> None:
        """A node whose result is a number: only reading a tensor's value is work, sizes are known."""
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
        """Types and names of a node's results, lists of tensors laid flat."""
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


def _plain(kind: str, content: Json) -> Argument:
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
    """A signature for an operator that is in no table: what the file says of its arguments."""
    return Signature(name, overload, tuple(Param(key, "any", None, False, False) for key in named), ())


# -- operators under autocast, which PyTorch records without the casts that it makes when they run --------------------


def cast_operands(graph: Graph, lowered: Lowered, recorded: Sequence[Type]) -> Sequence[Value | None]:
    """The operands, cast to the recorded element type where the operator's own rule would give another one."""
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
    return [_cast(graph, value, wanted) for value in lowered.inputs]


def _cast(graph: Graph, value: Value | None, wanted: TensorType) -> Value | None:
    type_ = None if value is None else value.type
    if value is None or not isinstance(type_, TensorType) or not type_.dtype.is_float or type_.dtype is wanted.dtype:
        return value
    to = tensor(wanted.dtype, type_.shape, type_.device)
    return graph.append("tensor.cast", (value,), (to,), {"to": wanted.dtype}, source="autocast").outputs[0]
