"""From a file to the graph that transformers work on, and back."""

from __future__ import annotations

import traceback
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import helper, numpy_helper

from irscope.devices import find_device
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx.model import STANDARD, domain_of, read_opsets, version_of
from irscope.frontends.onnx.optimizer.driver import LEVELS, Level, optimise
from irscope.frontends.onnx.optimizer.graph import Array, OrtGraph, OrtNode, Weight, default_attributes, since_version
from irscope.frontends.onnx.optimizer.registry import CUDA, Session
from irscope.frontends.onnx.optimizer.shapes import infer_known, sizes_of
from irscope.frontends.onnx.reader import ModelFile
from irscope.frontends.onnx.tensors import TensorReader
from irscope.frontends.onnx.types import DTYPES, NUMBERS, decode
from irscope.ir.places import Literal
from irscope.ir.types import Type, tensor
from irscope.ops.ort_versions import ort_release
from irscope.ops.values import from_bytes, to_array
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_values

_FIRST_IR_WITH_OPTIONAL_DEFAULTS = 4
_INLINE = 1 << 16
"""Bytes of the largest weight made by a transformer whose values go into the rewritten model."""


class Bridge:
    """Reads one file as an `OrtGraph` and writes what became of it."""

    def __init__(self, file: ModelFile, types: Mapping[str, Type]) -> None:
        self.file = file
        self.types = types
        """Of values by name, as inferred from the file alone."""
        self._tensors = TensorReader(file, DiagnosticSink())
        self._files = WeightFiles(str(file.path or Path.cwd()))
        self._main = onnx.GraphProto()
        self._shared: dict[Hashable, str] = {}
        """Names of weights that were made in the same way, by how."""

    def read(self) -> OrtGraph:
        """The main graph, local functions inlined."""
        model = self.file.proto
        graph = OrtGraph(read_opsets(model.opset_import))
        graph.constant_inputs = model.ir_version < _FIRST_IR_WITH_OPTIONAL_DEFAULTS
        graph.types = dict(self.types)
        self._fill(graph, model.graph)
        graph.settle()
        _forget_shapes(
            graph, {info.name for info in (*model.graph.value_info, *model.graph.output) if info.type.tensor_type.HasField("shape")}
        )
        return graph

    def _fill(self, graph: OrtGraph, proto: onnx.GraphProto) -> None:
        graph.inputs = [info.name for info in proto.input]
        graph.outputs = [info.name for info in proto.output]
        for one in proto.initializer:
            graph.weights[one.name] = self._weight(one)
        for node in proto.node:
            if node.op_type == "Constant" and domain_of(node.domain) == STANDARD and self._constant(graph, node):
                continue
            graph.enter(self._node(graph, node))
        for info in (*proto.value_info, *proto.output, *proto.input):
            graph.declared.add(info.name)
            if info.type.HasField("tensor_type"):
                graph.known[info.name] = sizes_of(info.type.tensor_type)

    def _weight(self, proto: onnx.TensorProto) -> Weight:
        return Weight(tensor(DTYPES[proto.data_type], tuple(proto.dims)), proto, read=self._values)

    def _constant(self, graph: OrtGraph, node: onnx.NodeProto) -> bool:
        """Make a Constant node an initializer, as ONNX Runtime does when it reads the file; sparse ones stay."""
        attribute = node.attribute[0] if node.attribute else None
        if attribute is None or not node.output:
            return False
        name = node.output[0]
        if attribute.name == "value":
            proto = onnx.TensorProto()
            proto.CopyFrom(attribute.t)
        else:
            made = decode(attribute)
            kinds = {
                "value_int": (onnx.TensorProto.INT64, ()),
                "value_float": (onnx.TensorProto.FLOAT, ()),
                "value_string": (onnx.TensorProto.STRING, ()),
                "value_ints": (onnx.TensorProto.INT64, None),
                "value_floats": (onnx.TensorProto.FLOAT, None),
                "value_strings": (onnx.TensorProto.STRING, None),
            }
            if attribute.name not in kinds:
                return False
            kind, dims = kinds[attribute.name]
            items: list[Any] = list(made) if isinstance(made, tuple) else [made]
            proto = helper.make_tensor(name, kind, [len(items)] if dims is None else [], items)
        proto.name = name
        graph.weights[name] = self._weight(proto)
        return True

    def _node(self, graph: OrtGraph, proto: onnx.NodeProto) -> OrtNode:
        domain = domain_of(proto.domain)
        version = since_version(domain, proto.op_type, version_of(graph.opsets, domain))
        outputs = list(proto.output)
        attrs = dict(default_attributes(domain, proto.op_type, version))
        attrs.update({attribute.name: decode(attribute) for attribute in proto.attribute})
        node = OrtNode(graph, graph.next_index, proto.op_type, domain, version, proto.name, list(proto.input), outputs, attrs, proto)
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                body = OrtGraph(graph.opsets, graph, node)
                body.constant_inputs = graph.constant_inputs
                self._fill(body, attribute.g)
                node.bodies[attribute.name] = body
        return node

    def _values(self, proto: onnx.TensorProto) -> Array | None:
        found = self._tensors.read(proto, proto.name)
        if isinstance(found.data, Literal):
            return to_array(found.data.values, found.type)
        try:
            stored = stored_values(found.type, found.data, self._files)
            raw = bytearray(stored.bytes)
            if raw:
                self._files.read_into(stored.source, 0, memoryview(raw))
        except Unreadable:
            return None
        return from_bytes(bytes(raw), found.type)

    # -- back ---------------------------------------------------------------------------------------------------

    def write(self, graph: OrtGraph) -> ModelFile:
        """The file with this graph in place of its own, nodes in the order in which the session runs them."""
        model = onnx.ModelProto()
        source = self.file.proto
        for field, value in source.ListFields():
            if field.name not in ("graph", "opset_import", "functions"):
                if field.is_repeated:
                    getattr(model, field.name).extend(value)
                else:
                    setattr(model, field.name, value)
        model.functions.extend(source.functions)
        for domain, version in graph.opsets.items():
            model.opset_import.append(helper.make_opsetid(domain, version))
        made: set[str] = set()
        model.graph.name = source.graph.name
        self._main, self._shared = model.graph, {}
        self._write_graph(graph, source.graph, model.graph, made, {})
        return ModelFile(model, self.file.path, self.file.stored, frozenset(made))

    def _write_graph(
        self, graph: OrtGraph, source: onnx.GraphProto, target: onnx.GraphProto, made: set[str], outer: Mapping[str, str]
    ) -> None:
        """`outer` says what weights of the graphs around are called that were written once for several."""
        target.name = source.name
        target.input.extend(source.input)
        names = {info.name: info for info in source.output}
        for was, name in zip(source.output, graph.outputs, strict=True):
            info = target.output.add()
            info.CopyFrom(names.get(name, was))
            info.name = name
        target.sparse_initializer.extend(source.sparse_initializer)
        kept = {node.outputs[0] for node in graph if node.made_from is not None and node.outputs}
        target.value_info.extend(info for info in source.value_info if info.name in kept)
        called = dict(outer)
        for name, weight in graph.weights.items():
            called.pop(name, None)
            if weight.proto is not None:
                proto = target.initializer.add()
                proto.CopyFrom(weight.proto)
                proto.name = name
                continue
            size = weight.type.nbytes
            array = weight.values() if isinstance(size, int) and size <= _INLINE else None
            if array is not None:
                target.initializer.append(numpy_helper.from_array(array, name))
                continue
            shared = weight.key is not None and not graph.is_output(name)
            if shared and weight.key in self._shared:
                called[name] = self._shared[weight.key]
                continue
            known = f"{name}_of_all" if shared and graph.outer is not None else name
            proto = (self._main if shared else target).initializer.add()
            proto.name, proto.data_type = known, NUMBERS[weight.type.dtype]
            proto.dims.extend(weight.shape)
            made.add(known)
            if shared:
                called[name] = self._shared[weight.key] = known
        for node in graph.order():
            self._write_node(node, target.node.add(), made, called)

    def _write_node(self, node: OrtNode, target: onnx.NodeProto, made: set[str], called: Mapping[str, str]) -> None:
        source = node.made_from
        if source is not None:
            target.CopyFrom(source)
            del target.attribute[:], target.input[:], target.output[:]
        target.op_type, target.domain, target.name = node.op, node.domain, node.name
        target.input.extend([called.get(name, name) for name in node.inputs])
        target.output.extend(node.outputs)
        written = {attribute.name: attribute for attribute in source.attribute} if source is not None else {}
        for name, value in node.attrs.items():
            body = node.bodies.get(name)
            if body is not None:
                proto = target.attribute.add()
                proto.name, proto.type = name, onnx.AttributeProto.GRAPH
                self._write_graph(body, written[name].g, proto.g, made, {old: new for old, new in called.items() if old in node.captured})
            elif name in written and decode(written[name]) == value:
                target.attribute.append(written[name])
            elif value is not None and value != ():
                target.attribute.append(helper.make_attribute(name, value))


_PROPAGATED = frozenset(
    ["Shape", "Size", "Concat", "Gather", "Slice", "Squeeze", "Unsqueeze", "Add", "Sub", "Mul", "Div", "Identity", "Constant"]
)
"""Operators through which ONNX Runtime follows the elements of shapes."""


def _forget_shapes(graph: OrtGraph, declared: set[str]) -> None:
    """Shapes that irscope infers and ONNX Runtime does not: of what operators of ai.onnx.ml make, of a Reshape whose sizes went through a
    Cast, and of what is computed from such values."""
    unknown: set[str] = set()
    for node in graph.order():
        if node.op == "Reshape" and node.is_standard:
            sizes = graph.input_node(node, 1)
            is_unknown = sizes is not None and sizes.op not in _PROPAGATED
        else:
            is_unknown = node.domain == "ai.onnx.ml" or (node.is_standard and node.input(0) in unknown and node.op not in ("Shape", "Size"))
        for name in node.outputs if is_unknown else ():
            if name not in declared:
                unknown.add(name)
                graph.types[name] = tensor(graph.dtype(name), None)


def optimised(file: ModelFile, types: Mapping[str, Type], level: Level, session: Session | None = None) -> ModelFile:
    """The file as a session of this level runs it; `types` are those of its values, as inferred from the file alone."""
    bridge = Bridge(file, types)
    graph = bridge.read()
    graph.infer = infer_known
    infer_known(graph)
    optimise(graph, level, session)
    return bridge.write(graph)


_BLOCKS: Final = {512: 16, 256: 8}
"""MlasNchwcGetBlockSize of onnxruntime 1.31 by the bits of a vector of x86. On ARM it has blocks of 16 where it was built with
onnxruntime_USE_ARM_NEON_NCHWC, which its packages are not: then there are none."""


def session_on(device: str, ort: str = "") -> Session:
    """A session of a release on a device: the provider that its kernels are of, and how many channels it has to a block."""
    without = ort_release(ort).rules.without
    if not device:
        return Session(without=without)
    profile = find_device(device)
    if profile.capability is not None:
        return Session(provider=CUDA, without=without)
    return Session(block=16 if profile.vector_bits is None else _BLOCKS.get(profile.vector_bits, 1), without=without)


def at_level(file: ModelFile, options: LoadOptions) -> tuple[ModelFile, str]:
    """The file as a session of the level that the options name runs it, and how that is known."""
    level = options.ort_level
    if level not in LEVELS:
        raise UsageError(f"ONNX Runtime has no level {level!r}", code="IRS623", hint=f"one of {', '.join(LEVELS)}")
    if not options.use_ort:
        try:
            return optimised(file, options.file_types, level, session_on(options.ort_device, options.ort)), "predicted"
        except IrscopeError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error}, at {Path(place.filename).stem}:{place.lineno}"
            raise LoadError(
                f"its optimisations cannot be predicted ({why})", code="IRS176", hint="--ort-level off is the file as written"
            ) from error
    from irscope.frontends.onnx.optimizer.asked import ask

    saved, version = ask(file, level)
    if [list(node.output) for node in saved.proto.graph.node] == [list(node.output) for node in file.proto.graph.node]:
        # A graph that nothing changed is saved as it was read, and runs in another order.
        bridge = Bridge(saved, options.file_types)
        saved = bridge.write(bridge.read())
    return saved, f"onnxruntime {version}"
