"""The state of one load: everything that graphs, functions and regions of a model share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.failures import FOREIGN, TOO_LARGE, refuse, short
from irscope.frontends.onnx.foreign import foreign_name, keep_foreign
from irscope.frontends.onnx.functions import Functions, inline, schema_function
from irscope.frontends.onnx.lower import FOREIGN as KNOWN_FOREIGN
from irscope.frontends.onnx.lower import find_lowering
from irscope.frontends.onnx.lower.contrib import channel_block
from irscope.frontends.onnx.reader import ModelFile
from irscope.frontends.onnx.scopes import Locations
from irscope.frontends.onnx.tensors import Constant, TensorReader
from irscope.frontends.onnx.types import Symbols, TypeReader
from irscope.frontends.onnx.versions import STANDARD, domain_of, version_of
from irscope.frontends.onnx.weights import role_of
from irscope.ir.graph import Graph, Value
from irscope.ir.names import Names

if TYPE_CHECKING:
    from irscope.frontends.onnx.body import Body

_MOST_NODES = 5_000_000


@dataclass(frozen=True, slots=True)
class Operator:
    """What to do with nodes of one operator."""

    lower: Callable[[Call], None]
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


class Model:
    """Names, symbols, weights, functions and operators of the model that is being read."""

    def __init__(self, file: ModelFile, sink: DiagnosticSink) -> None:
        self.where = file.where
        self.sink = sink
        self.graph = Graph()
        self.names = Names()
        self.symbols = Symbols(sink)
        self.types = TypeReader(self.symbols)
        self.tensors = TensorReader(file, sink)
        self.locations = Locations()
        self.functions = Functions(file.proto.functions, self.where)
        self._operators: dict[tuple[str, str, str, int], Operator] = {}
        self._nodes = 0
        self._proto = file.proto.graph

    @functools.cached_property
    def channel_block(self) -> int:
        """How many channels ONNX Runtime put into a block, in a file that it saved after its optimisations."""
        return channel_block(self._proto)

    def count(self, nodes: int) -> None:
        """Keep the number of nodes within reason."""
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise refuse(TOO_LARGE, f"it has more than {_MOST_NODES} nodes", self.where)

    # -- weights -----------------------------------------------------------------------------------------------

    def weight(self, proto: onnx.TensorProto, name: str) -> Value:
        """Declare a tensor of the file as a weight of the main graph, where regions see it too."""
        return self.add_weight(self.tensors.read(proto, name), name)

    def add_weight(self, constant: Constant, name: str) -> Value:
        return self.graph.add_weight(constant.type, self.names.unique(name) if name else None, role_of(constant.type), constant.data)

    def add_initializers(self, body: Body, proto: onnx.GraphProto) -> None:
        """Declare the weights of a graph."""
        for tensor in proto.initializer:
            name = tensor.name
            body.define(name, self.weight(tensor, body.prefix + name))
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            body.define(name, self.add_weight(self.tensors.read_sparse(sparse, name), body.prefix + name))

    # -- operators ---------------------------------------------------------------------------------------------

    def operator(self, opsets: Mapping[str, int], domain: str, op_type: str, overload: str) -> Operator:
        """How nodes of an operator are lowered in graphs that import these operator sets."""
        domain = domain_of(domain)
        version = version_of(opsets, domain)
        key = (domain, op_type, overload, version)
        found = self._operators.get(key)
        if found is None:
            found = self._operators[key] = self._resolve(domain, op_type, overload, version)
        return found

    def _resolve(self, domain: str, op_type: str, overload: str, version: int) -> Operator:
        source = f"{'onnx' if domain == STANDARD else domain}::{op_type}@{version}"
        function = self.functions.find(domain, op_type, overload)
        if function is not None:
            return Operator(functools.partial(self.functions.inline, proto=function), domain, version, source, 0, len(function.input))
        known = min(version, onnx.defs.onnx_opset_version()) if domain == STANDARD else version
        fewest, most = 0, 2**31
        try:
            schema = onnx.defs.get_schema(op_type, known, domain)
        except onnx.defs.SchemaError:
            pass
        else:
            fewest, most = schema.min_input, schema.max_input
            source = f"{'onnx' if domain == STANDARD else domain}::{op_type}@{schema.since_version}"
        lower = find_lowering(domain, op_type)
        if lower is None:
            body = schema_function(op_type, known, domain)
            if body is not None:
                lower = functools.partial(inline, proto=body, constants={})
        if lower is None:
            lower = keep_foreign
            self.sink.note(
                FOREIGN,
                f"irscope does not know the operator {short(foreign_name(domain, op_type))}",
                hint=KNOWN_FOREIGN.get((domain, op_type), "its results have the types that the file declares, and its cost is unknown"),
                about=foreign_name(domain, op_type),
            )
        return Operator(lower, domain, version, source, fewest, most)
