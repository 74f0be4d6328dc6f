"""State that all graphs, functions and regions of a model share while it is read: names, module calls, symbols, weights, operator sets."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.onnx.protos import (
    IR_VERSION,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    onnx_opset_version,
    onnx_version,
)
from irscope.frontends.onnx.reader import BAD_FUNCTION, TOO_LARGE, VERSION, ModelFile, refuse, short
from irscope.frontends.onnx.tensors import Constant, TensorReader, role_of
from irscope.frontends.onnx.types import Symbols, TypeReader
from irscope.ir.graph import Graph, Names, Value
from irscope.ir.places import Loc, Scope
from irscope.ir.program import Assumed

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_NAMESPACE = "namespace"
_TRACE = "pkg.torch.onnx.stack_trace"

_DEEPEST = 48
_LONGEST = 16_384
_MOST_FRAMES = 32
_FRAME = re.compile(r'^\s*File "([^"]*)", line (\d{1,9})(?:, in (.+))?$')
_OLD_FRAME = re.compile(r"^(\S.*)\((\d{1,9})\): (\S+)\s*$")


class Scopes:
    """Scopes and locations of nodes below one root, shared by nodes that name the same ones."""

    def __init__(self, root: Scope) -> None:
        self.root = root
        self.by_prefix: dict[str, Scope] = {"": root}
        """Scopes of names by what stands in front of their last part."""
        self._by_path: dict[str, Scope] = {}
        self._by_modules: dict[tuple[str, ...], Scope] = {}

    def of_metadata(self, entries: Mapping[str, str]) -> Scope | None:
        """Return the scope that the PyTorch exporter wrote down, None where there is none."""
        text = entries.get(_SCOPES)
        if text is not None and len(text) <= _LONGEST:
            modules = tuple(_printed_list(text)[:-1])
            module = self._by_modules.get(modules)
            if module is None:
                classes = _printed_list(entries.get(_CLASSES, "")[:_LONGEST])
                module = self._by_modules[modules] = self._descend(modules, classes)
            return module
        text = entries.get(_NAMESPACE)
        if text is not None and len(text) <= _LONGEST:
            pairs = [part.partition(": ") for part in text.split("/")[:-1]]
            modules = tuple(name.strip() for name, _, _ in pairs)
            module = self._by_modules.get(modules)
            if module is None:
                module = self._by_modules[modules] = self._descend(modules, [cls for _, _, cls in pairs])
            return module
        return None

    def of_name(self, name: str, op_type: str) -> Scope:
        """Return the scope that a node's name spells: "/layers.0/attn/MatMul" is in layers.0, attn."""
        prefix, _, last = name.rpartition("/")
        separator = "/"
        if not prefix and "." in name:
            prefix, _, last = name.rpartition(".")
            separator = "."
            if not last.startswith(op_type):
                return self.root
        root = self.by_prefix.get(prefix)
        if root is None:
            root = self.root
            if len(prefix) <= _LONGEST:
                root = self._of_path(prefix) if separator == "/" else self._below_root(prefix.split(separator))
            self.by_prefix[prefix] = root
        return root

    def _of_path(self, path: str) -> Scope:
        """Return the scope of "/layers.0/attn": most often right below one that is known."""
        scope = self._by_path.get(path)
        if scope is None:
            above, _, last = path.rpartition("/")
            parent = self._by_path.get(above)
            if parent is not None and last and parent.depth - self.root.depth < _DEEPEST:
                scope = parent.child(last)
            else:
                scope = self._below_root(path.split("/"))
            self._by_path[path] = scope
        return scope

    def _below_root(self, components: Iterable[str]) -> Scope:
        root = self.root
        for component in [part for part in components if part][:_DEEPEST]:
            root = root.child(component)
        return root

    def _descend(self, modules: tuple[str, ...], classes: list[str]) -> Scope:
        """Exporters give full paths ("layers.0", "layers.0.attn"); scopes are relative to the one above."""
        scope, parent = self.root, ""
        for index, module in enumerate(modules[:_DEEPEST]):
            cls = classes[index].rpartition(".")[2] if index < len(classes) else ""
            if not module:
                if cls and not scope.cls:
                    scope.cls = cls
                continue
            name = module
            if parent:
                name = module[len(parent) + 1 :] if module.startswith(f"{parent}.") else f"={module}"
            scope = scope.child(name, cls)
            parent = module
        return scope


def _printed_list(text: str) -> list[str]:
    """Return the strings of a printed Python list of strings."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")) or len(inner) == 2:
        return []
    return [part.strip().strip("'\"") for part in inner[1:-1].split(",")]


class Locations:
    """Source lines of nodes; stack traces that many nodes share are read once."""

    def __init__(self) -> None:
        self._by_text: dict[str, Loc | None] = {}
        self._by_frame: dict[tuple[str, int, str, str, int], Loc] = {}

    def of_metadata(self, entries: Mapping[str, str]) -> Loc | None:
        return self.of_trace(entries.get(_TRACE, ""))

    def of_trace(self, text: str) -> Loc | None:
        """Return the innermost line of a printed stack trace, with its callers; None where the text is none."""
        if not text:
            return None
        if text not in self._by_text:
            self._by_text[text] = self._read(text[:_LONGEST])
        return self._by_text[text]

    def _read(self, text: str) -> Loc | None:
        frames: list[tuple[str, int, str, str]] = []
        lines = text.splitlines()
        for index, line in enumerate(lines):
            frame = _FRAME.match(line)
            if frame is not None:
                after = lines[index + 1].strip() if index + 1 < len(lines) and not _FRAME.match(lines[index + 1]) else ""
                frames.append((frame[1], int(frame[2]), frame[3] or "", after))
        if not frames:
            old = [match for line in lines if (match := _OLD_FRAME.match(line))]
            frames = [(match[1], int(match[2]), match[3], "") for match in reversed(old)]
        loc: Loc | None = None
        for file, number, function, statement in frames[-_MOST_FRAMES:]:
            key = (file, number, function, statement, id(loc))
            found = self._by_frame.get(key)
            if found is None:
                found = self._by_frame[key] = Loc(file, number, function, statement, loc)
            loc = found
        return loc


STANDARD = ""
"""The default domain, also called "ai.onnx"."""
_FIRST_IR_WITH_OPSETS = 3
_HIGHEST = 2**31 - 1
_WHAT = "operator set"
_ALIASES = {"ai.onnx": STANDARD}
BLOCKED_DOMAIN = "com.microsoft.nchwc"

FunctionKey: TypeAlias = "tuple[str, str, str]"
"""Domain, name and overload."""

_FREE_NODES = 100_000
_MOST_GROWTH = 64
_HAS_OVERLOAD = "overload" in FunctionProto.DESCRIPTOR.fields_by_name
_MOST_NODES = 5_000_000


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
        self._nodes = 0
        self._proto = file.proto.graph

    @functools.cached_property
    def channel_block(self) -> int:
        """Return how many channels ONNX Runtime put into a block, in a file that it saved after its optimisations."""
        return channel_block(self._proto)

    def count(self, nodes: int) -> None:
        """Keep the number of nodes within reason."""
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise refuse(TOO_LARGE, f"it has more than {_MOST_NODES} nodes", self.where)

    def weight(self, proto: TensorProto, name: str) -> Value:
        """Declare a tensor of the file as a weight of the main graph, where regions see it too."""
        return self.add_weight(self.tensors.read(proto, name), name)

    def add_weight(self, constant: Constant, name: str) -> Value:
        return self.graph.add_weight(constant.type, self.names.unique(name) if name else None, role_of(constant.type), constant.data)


def domain_of(name: str) -> str:
    """Return a domain under its one name."""
    return _ALIASES.get(name, name)


def read_opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain; of repeated entries the highest."""
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        opsets[domain] = min(max(entry.version, opsets.get(domain, 0)), _HIGHEST)
    return opsets


def model_opsets(proto: ModelProto, sink: DiagnosticSink, assumed: list[Assumed]) -> dict[str, int]:
    """Return the operator sets of a model, with remarks on what is missing, and so assumed, or newer than the installed onnx package."""
    opsets = read_opsets(proto.opset_import)
    newest = onnx_opset_version()
    if proto.ir_version > IR_VERSION:
        sink.note(
            VERSION,
            f"the file has IR version {proto.ir_version}, the installed onnx {onnx_version()} knows {IR_VERSION}",
            hint="what is new in it may be missing here; try a newer onnx package",
        )
    if STANDARD not in opsets:
        opsets[STANDARD] = newest if proto.ir_version >= _FIRST_IR_WITH_OPSETS else 1
        if any(domain_of(node.domain) == STANDARD for node in proto.graph.node):
            sink.warn(VERSION, f"the file does not say which operator set it uses; version {opsets[STANDARD]} is assumed")
            assumed.append(Assumed(_WHAT, str(opsets[STANDARD]), "the file does not say which one it uses"))
    elif opsets[STANDARD] > newest:
        sink.note(
            VERSION,
            f"the model uses operator set {opsets[STANDARD]}, the installed onnx {onnx_version()} knows up to {newest}",
            hint="operators are read as in the newest version that is known",
        )
    elif opsets[STANDARD] < 1:
        sink.warn(VERSION, f"operator set {opsets[STANDARD]} does not exist; version 1 is assumed")
        assumed.append(Assumed(_WHAT, "1", f"the file says {opsets[STANDARD]}, which does not exist"))
        opsets[STANDARD] = 1
    return opsets


def version_of(opsets: Mapping[str, int], domain: str) -> int:
    """Return the version of a domain that a graph imports, 1 where it does not say."""
    return opsets.get(domain, 1)


def show_opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{short(domain) or 'ai.onnx'} {version}" for domain, version in sorted(opsets.items()))


class Functions:
    """The local functions of a model, checked to end and to stay of reasonable size when they are inlined."""

    def __init__(self, protos: Iterable[FunctionProto], where: str) -> None:
        self._where = where
        self._protos: dict[FunctionKey, FunctionProto] = {}
        for proto in protos:
            key = _function_key(proto)
            if key in self._protos:
                raise refuse(BAD_FUNCTION, f"the function '{short(proto.name)}' is defined twice", where, "the model is damaged")
            self._protos[key] = proto
        self._constants: dict[FunctionKey, dict[str, Value]] = {}

    def find(self, domain: str, name: str, overload: str) -> FunctionProto | None:
        return self._protos.get((domain, name, overload)) if self._protos else None

    def check_size(self, graph: GraphProto) -> None:
        """Refuse functions that call themselves, and models that inlining would blow up."""
        if not self._protos:
            return
        sizes: dict[FunctionKey, int] = {}
        calls = {key: self._calls(proto.node) for key, proto in self._protos.items()}
        own = {key: _count_nodes(proto.node) for key, proto in self._protos.items()}
        for start in self._protos:
            path: list[FunctionKey] = [start]
            on_path: set[FunctionKey] = {start}
            while path:
                key = path[-1]
                pending = next((callee for callee in calls[key] if callee not in sizes), None) if key not in sizes else None
                if pending is None:
                    sizes.setdefault(key, own[key] + sum(sizes[callee] * times for callee, times in calls[key].items()))
                    on_path.discard(path.pop())
                elif pending in on_path:
                    raise refuse(
                        BAD_FUNCTION, f"the function '{short(pending[1])}' calls itself", self._where, "ONNX functions must not recurse"
                    )
                else:
                    path.append(pending)
                    on_path.add(pending)
        in_file = _count_nodes(graph.node)
        total = in_file + sum(sizes[key] * times for key, times in self._calls(graph.node).items())
        if total > min(_MOST_NODES, _FREE_NODES + _MOST_GROWTH * (in_file + sum(own.values()))):
            raise refuse(
                TOO_LARGE, f"inlining its functions would make {total} nodes", self._where, "the file looks made to exhaust memory"
            )

    def _calls(self, nodes: Iterable[NodeProto]) -> Counter[FunctionKey]:
        counter: Counter[FunctionKey] = Counter()
        for node in _walk(nodes):
            key = (domain_of(node.domain), node.op_type, node.overload if _HAS_OVERLOAD else "")
            if key in self._protos:
                counter[key] += 1
        return counter

    def constants(self, proto: FunctionProto) -> dict[str, Value]:
        """Return the constants of a function by name, shared by all its calls."""
        return self._constants.setdefault(_function_key(proto), {})


def _function_key(proto: FunctionProto) -> FunctionKey:
    return domain_of(proto.domain), proto.name, proto.overload if _HAS_OVERLOAD else ""


def _walk(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """Yield the nodes with those of the graphs inside them."""
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g.node)
                pending.extend(graph.node for graph in attribute.graphs)


def _count_nodes(nodes: Iterable[NodeProto]) -> int:
    return sum(1 for _ in _walk(nodes))


def channel_block(graph: GraphProto) -> int:
    """Return how many channels the processor that a file was optimised for has to a block. No attribute says it, the weights do.

    MlasNchwcGetBlockSize gives 16 with AVX-512 and with NEON, 8 with AVX and AVX2. Filters are stored with their channels rounded up to
    whole blocks. Where all are multiples of 16, either size of block gives the same shapes.
    """
    return 8 if any(channels % 16 == 8 for channels in _whole_blocks(graph, {})) else 16


def _whole_blocks(graph: GraphProto, outer: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Yield the numbers of channels, as filters have them, that were rounded up to blocks."""
    shapes = {**outer, **{tensor.name: tensor.dims for tensor in graph.initializer}}
    blocked: set[str] = set()
    for node in graph.node:
        for attr in node.attribute:
            for inner in (attr.g, *attr.graphs) if attr.HasField("g") or attr.graphs else ():
                yield from _whole_blocks(inner, shapes)
        if node.domain != BLOCKED_DOMAIN:
            continue
        if node.op_type != "ReorderOutput":
            blocked.update(node.output)
        if node.op_type == "Conv" and len(node.input) > 1:
            shape = shapes.get(node.input[1], ())
            yield from shape[:1]
            # Filters of a few channels read the picture as it is, and grouped ones have the channels of one group.
            if node.input[0] in blocked and all(attr.i == 1 for attr in node.attribute if attr.name == "group"):
                yield from shape[1:2]
