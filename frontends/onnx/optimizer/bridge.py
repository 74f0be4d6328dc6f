"""From a file to the graph that transformers work on, and back, by rules or by an installed ONNX Runtime that is asked in its own process.

What ONNX Runtime knows of shapes while it optimises is less than irscope does: it infers them by ONNX's own rules, node by node, and does
not follow the elements of shapes through arithmetic. Where a condition of a transformer compares sizes, what irscope knows beyond that
would let it fuse what a session does not. A session that is asked is created and never run.
"""

from __future__ import annotations

import importlib.util
import json
import traceback
from collections.abc import Collection, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import helper, numpy_helper, shape_inference

from irscope import processes
from irscope.devices import find_device
from irscope.devices.releases import ort_release
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.files import TemporaryFolder
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx.model import STANDARD, domain_of, read_opsets, version_of
from irscope.frontends.onnx.optimizer.driver import LEVELS, Level, optimise
from irscope.frontends.onnx.optimizer.graph import (
    CUDA,
    MICROSOFT,
    Array,
    OrtGraph,
    OrtNode,
    Session,
    Size,
    Weight,
    default_attributes,
    since_version,
)
from irscope.frontends.onnx.reader import ModelFile
from irscope.frontends.onnx.tensors import TensorReader, is_literal
from irscope.frontends.onnx.types import DTYPES, NUMBERS, decode, packed_size
from irscope.ir.places import Literal
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.values import from_bytes, to_array
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import stored_values

CODE: Final = "IRS176"
_SECONDS: Final = 300
_MEMORY: Final = 32 << 30
"""Bytes of address space; of the session, whose weights are read by ONNX Runtime."""
_SMALL: Final = 1024
"""Weights of fewer bytes stay in the saved file, where their values are needed for shapes."""
_LEVELS: Final = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_SCRIPT: Final = """
import json, sys
model, target, level, seconds, memory, small = sys.argv[1:]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
options.optimized_model_filepath = target
options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", small)
try:
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(json.dumps({"error": str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}))
else:
    print(json.dumps({"version": onnxruntime.__version__}))
"""


def ask(file: ModelFile, level: str) -> tuple[ModelFile, str]:
    """Return the file as the installed ONNX Runtime has it at this level, and its version. LoadError where it refuses the model."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise UsageError(
            "--use-ort asks ONNX Runtime, which is not installed",
            code=CODE,
            hint="install onnxruntime, or leave --use-ort out for a prediction",
        )
    if file.path is None:
        raise UsageError("ONNX Runtime can be asked about files only", code=CODE)
    if level == "off":
        raise UsageError("--use-ort needs optimisations, and the level is off", code=CODE, hint="add `--ort-level all`")
    with TemporaryFolder() as folder:
        target = Path(folder) / "optimised.onnx"
        limits = (str(_SECONDS), str(_MEMORY), str(_SMALL))
        command = processes.python(["-c", _SCRIPT, str(file.path.absolute()), str(target), _LEVELS[level], *limits])
        try:
            done = processes.run(command, seconds=_SECONDS, folder=folder)
        except processes.Late:
            raise _refused(file, f"it took more than {_SECONDS} s") from None
        answer = _answer(done.text)
        if "version" not in answer or not target.is_file():
            raise _refused(file, answer.get("error") or f"its process {done.how}")
        saved = onnx.load(str(target), load_external_data=False)
    return _with_own_weights(file, saved), answer["version"]


def _answer(text: str) -> dict[str, str]:
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}


def _refused(file: ModelFile, why: str) -> LoadError:
    return LoadError(
        f"ONNX Runtime makes no session of it: {why[:300]}", code=CODE, where=file.where, hint="leave --use-ort out for a prediction"
    )


def _with_own_weights(file: ModelFile, saved: onnx.ModelProto) -> ModelFile:
    """Return what was saved, each weight that the file has under the same name and of the same type as it is there."""
    derived: set[str] = set()
    _replace_weights(file.proto.graph, saved.graph, derived)
    return ModelFile(saved, file.path, file.stored, frozenset(derived))


def _replace_weights(own: onnx.GraphProto, saved: onnx.GraphProto, derived: set[str]) -> None:
    known = {weight.name: weight for weight in own.initializer}
    for node in own.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                known[node.output[0]] = attribute.t
    for weight in saved.initializer:
        original = known.get(weight.name)
        if original is not None and original.data_type == weight.data_type and list(original.dims) == list(weight.dims):
            name = weight.name
            weight.CopyFrom(original)
            weight.name = name
        elif weight.data_location == onnx.TensorProto.EXTERNAL or not _is_read(weight):
            del weight.external_data[:]
            weight.data_location = onnx.TensorProto.DEFAULT
            derived.add(weight.name)
    bodies = {
        (node.name, node.op_type, attribute.name): attribute.g
        for node in own.node
        for attribute in node.attribute
        if attribute.HasField("g")
    }
    for node in saved.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _replace_weights(bodies.get((node.name, node.op_type, attribute.name), onnx.GraphProto()), attribute.g, derived)


def _is_read(tensor: onnx.TensorProto) -> bool:
    """Return whether the values of a weight that was made are worth keeping: shapes may depend on them."""
    dtype, count = DTYPES[tensor.data_type], 1
    for size in tensor.dims:
        count *= size
    length = packed_size(count, dtype)
    return is_literal(dtype, count) or (length is not None and length <= _SMALL)


_MOST_ELEMENTS = 64
"""Weights with more stand for their shape alone: none is a list of sizes."""
_MADE_UP = "unk__"
"""Prefix of the names that ONNX's inference gives to unknown sizes."""


def infer_known(graph: OrtGraph) -> None:
    """Bring the shapes that ONNX Runtime knows of the main graph's values up to date. What it knew it goes on knowing."""
    light = _light(graph)
    named = _names_of(light.graph)
    data = light.SerializeToString()
    made = processes.in_copy(lambda: shape_inference.infer_shapes(data).SerializeToString())
    if made is None:  # it raises; at a Split with more outputs than `num_outputs` it aborts
        return
    inferred = onnx.load_from_string(made).graph
    _note(graph, inferred, named)
    protos = {tuple(proto.output): proto for proto in inferred.node if proto.attribute}
    for node in graph:
        if node.bodies and tuple(node.outputs) in protos:
            _note_bodies(node, protos[tuple(node.outputs)], named)


def _names_of(light: onnx.GraphProto) -> frozenset[str]:
    """Names of sizes that begin like those that the inference makes up, and are the file's: that of an earlier inference wrote them."""
    infos = (*light.input, *light.output, *light.value_info)
    names = (dim.dim_param for info in infos for dim in info.type.tensor_type.shape.dim)
    return frozenset(name for name in names if name.startswith(_MADE_UP))


def _note(graph: OrtGraph, inferred: onnx.GraphProto, named: Collection[str]) -> None:
    for info in (*inferred.value_info, *inferred.output):
        # Weights have the shapes that they have now: a transformer may have changed them.
        if info.type.HasField("tensor_type") and info.name not in graph.weights:
            sizes = sizes_of(info.type.tensor_type)
            graph.known[info.name] = sizes and tuple([None if _is_made_up(size, named) else size for size in sizes])
    for node in graph:
        for name in node.outputs:
            graph.known.setdefault(name, None)


def _is_made_up(size: Size, named: Collection[str]) -> bool:
    return isinstance(size, str) and size.startswith(_MADE_UP) and size not in named


def _note_bodies(node: OrtNode, proto: onnx.NodeProto, named: Collection[str]) -> None:
    """Do the same for graphs inside a node, as the file has them."""
    for attribute in proto.attribute:
        body = node.bodies.get(attribute.name)
        if body is None:
            continue
        _note(body, attribute.g, named)
        inside = {tuple(one.output): one for one in attribute.g.node}
        for one in body:
            if one.bodies and tuple(one.outputs) in inside:
                _note_bodies(one, inside[tuple(one.outputs)], named)


def sizes_of(type_: onnx.TypeProto.Tensor) -> tuple[Size, ...] | None:
    """Return the shape that a file declares."""
    return tuple([_size(dim) for dim in type_.shape.dim]) if type_.HasField("shape") else None


def _size(dim: onnx.TensorShapeProto.Dimension) -> Size:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return dim.dim_param or None


def _light(graph: OrtGraph) -> onnx.ModelProto:
    """Return the model without the values of large weights, and with what is known already."""
    light = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    for domain, version in graph.opsets.items():
        light.opset_import.append(helper.make_opsetid(domain, version))
    target = light.graph
    target.name = "known"
    target.node.extend(_nodes(graph))
    results = set(graph.outputs)
    for name in graph.inputs:
        if name not in graph.weights:
            target.input.append(_info(graph, name, graph.shape_of_type(name)))
    target.output.extend(_info(graph, name, graph.known.get(name)) for name in graph.outputs)
    for name, weight in graph.weights.items():
        array = weight.values(_MOST_ELEMENTS)
        if array is not None and weight.count <= _MOST_ELEMENTS and weight.dtype.is_integer:
            target.initializer.append(numpy_helper.from_array(array, name))
        else:
            target.value_info.append(_info(graph, name, weight.shape))
    target.value_info.extend(_info(graph, name, known) for name, known in graph.known.items() if known is not None and name not in results)
    target.value_info.extend(_others(graph, results | graph.known.keys()))
    for node in graph:
        if _has_shape_of_operands(node) and node.op == _PACKED:
            element = NUMBERS.get(graph.dtype(node.input(0)), 0)
            target.value_info.append(helper.make_tensor_value_info(_unpacked(node), element, [node.attr("K"), node.attr("N")]))
    return light


_AS_FIRST: Final = {
    **dict.fromkeys(("BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "GroupNorm", "QuickGelu", "RotaryEmbedding"), (0,)),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"), (0,)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (0, 3)),
}
"""Results of ONNX Runtime's own operators to which it hands on the shape of the first operand, and no more of it than it knows
(contrib_defs.cc and bert_defs.cc under core/graph/contrib_ops)."""


_PACKED: Final = "MatMulNBits"


def _unpacked(node: OrtNode) -> str:
    """Return the name of the matrix that a packed one stands for where shapes are inferred."""
    return f"{node.input(1)}, {node.attr('K')} by {node.attr('N')}"


def _has_shape_of_operands(node: OrtNode) -> bool:
    """Return whether the result of one of ONNX Runtime's own operators is inferred from its operands."""
    if node.domain != MICROSOFT:
        return False
    return node.op in _AS_FIRST or (node.op == _PACKED and all(isinstance(node.attr(name), int) for name in ("K", "N")))


def _nodes(graph: OrtGraph) -> Iterator[onnx.NodeProto]:
    for node in graph.order():
        if _has_shape_of_operands(node) and node.op in _AS_FIRST:
            named = (node.outputs[place] for place in _AS_FIRST[node.op] if place < len(node.outputs))
            yield from (onnx.NodeProto(op_type="Identity", input=node.inputs[:1], output=[name]) for name in named if name)
            continue
        if _has_shape_of_operands(node):
            yield onnx.NodeProto(op_type="MatMul", input=[node.input(0), _unpacked(node)], output=node.outputs)
            continue
        source = node.made_from
        is_as_read = node.read == node.attrs
        if source is not None and is_as_read and list(source.input) == node.inputs and list(source.output) == node.outputs:
            yield source
            continue
        proto = onnx.NodeProto(op_type=node.op, domain=node.domain, input=node.inputs, output=node.outputs)
        if source is not None:
            proto.attribute.extend(one for one in source.attribute if is_as_read or _is_kept(node, one.name))
        if source is None or not is_as_read:
            others = ((name, value) for name, value in node.attrs.items() if value not in (None, ()) and not _is_kept(node, name))
            proto.attribute.extend(helper.make_attribute(name, value) for name, value in others)
        yield proto


def _is_kept(node: OrtNode, name: str) -> bool:
    """Return whether an attribute is as the file has it."""
    return node.read is not None and name in node.attrs and node.read.get(name) == node.attrs[name] and name in node.read


def _others(graph: OrtGraph, listed: Collection[str]) -> Iterator[onnx.ValueInfoProto]:
    """Yield the results of operators that ONNX has no rules for: ONNX Runtime has its own."""
    for node in graph:
        if not _has_rules(graph, node) and not _has_shape_of_operands(node):
            for name in node.outputs:
                if name and name not in listed and isinstance(graph.type_of(name), TensorType):
                    yield _info(graph, name, graph.shape_of_type(name))


def _has_rules(graph: OrtGraph, node: OrtNode) -> bool:
    return node.domain == STANDARD and bool(onnx.defs.has(node.op, max_inclusive_version=graph.opset(), domain=STANDARD))


def _info(graph: OrtGraph, name: str, shape: tuple[Size, ...] | None) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = NUMBERS.get(graph.dtype(name), 0)
    if shape is not None:
        info.type.tensor_type.shape.SetInParent()
    for size in shape or ():
        dim = info.type.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
    return info


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
        """Return the main graph, local functions inlined."""
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

    def write(self, graph: OrtGraph) -> ModelFile:
        """Return the file with this graph in place of its own, nodes in the order in which the session runs them."""
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
        kept = {node.outputs[0] for node in graph if node.outputs}
        target.value_info.extend(info for info in source.value_info if info.name in kept)
        target.value_info.extend(_info(graph, name, graph.known.get(name)) for name in sorted(graph.shaped & kept))
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
    """Return the file as a session of this level runs it; `types` are those of its values, as inferred from the file alone."""
    bridge = Bridge(file, types)
    graph = bridge.read()
    graph.infer = infer_known
    infer_known(graph)
    optimise(graph, level, session)
    return bridge.write(graph)


_USUAL_BITS: Final = 512
"""Of a processor that nobody named: AVX-512, as most servers of the clouds have it."""
_BLOCKS: Final = {512: 16, 256: 8}
"""MlasNchwcGetBlockSize of onnxruntime 1.31 by the bits of a vector of x86. On ARM it has blocks of 16 where it was built with
onnxruntime_USE_ARM_NEON_NCHWC, which its packages are not: then there are none."""


def session_on(device: str, ort: str = "", vector_bits: int | None = None) -> Session:
    """Return a session of a release on a device: the provider that its kernels are of, and how many channels it has to a block.

    `vector_bits` are those of the processor where they are known better than from the device's name.
    """
    without = ort_release(ort).rules.without
    profile = find_device(device) if device else None
    if profile is not None and profile.capability is not None:
        return Session(provider=CUDA, without=without)
    bits = vector_bits or (profile.vector_bits if profile is not None else None) or _USUAL_BITS
    return Session(block=_BLOCKS.get(bits, 1), without=without)


def at_level(file: ModelFile, options: LoadOptions) -> tuple[ModelFile, str]:
    """Return the file as a session of the level that the options name runs it, and how that is known."""
    level = options.ort_level
    if level not in LEVELS:
        raise UsageError(f"ONNX Runtime has no level {level!r}", code="IRS623", hint=f"one of {', '.join(LEVELS)}")
    if not options.use_ort:
        try:
            session = session_on(options.ort_device, options.ort, options.ort_vector_bits)
            return optimised(file, options.file_types, level, session), "predicted"
        except IrscopeError:
            raise
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error}, at {Path(place.filename).stem}:{place.lineno}"
            raise LoadError(
                f"its optimisations cannot be predicted ({why})", code="IRS176", hint="--ort-level off is the file as written"
            ) from error
    saved, version = ask(file, level)
    if [list(node.output) for node in saved.proto.graph.node] == [list(node.output) for node in file.proto.graph.node]:
        # A graph that nothing changed is saved as it was read, and runs in another order.
        bridge = Bridge(saved, options.file_types)
        saved = bridge.write(bridge.read())
    return saved, f"onnxruntime {version}"
