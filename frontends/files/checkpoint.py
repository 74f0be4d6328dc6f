"""Files that hold weights without a graph: state dicts, checkpoints, safetensors, sharded checkpoints."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from irscope.budget import admit, claim
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.detect import lfs_pointer
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import PickledTensor, Stub, Unpickled, pickled_payload, pickled_type, read_pickle, span_bytes
from irscope.frontends.torch_lowering.dtypes import SAFETENSORS_DTYPES
from irscope.frontends.zoo.names import configured_by, settings_in
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Names, Role, paused_gc
from irscope.ir.places import FileRegion, Payload
from irscope.ir.program import PackedPart, Program
from irscope.ir.types import TensorType, tensor
from irscope.weights.schemes import Shaped, read_packed
from irscope.weights.source import Forbidden, ModelFolder

# -- the table of weights ----------------------------------------------------------------------------------------------


_MOST_WEIGHTS = 1_000_000
_BUFFERS = (".running_mean", ".running_var", ".num_batches_tracked")


class WeightTable:
    """Collects weights under unique names."""

    def __init__(self, path: Path, sink: DiagnosticSink) -> None:
        self.path = path
        self.sink = sink
        self.metadata: dict[str, str] = {}
        self._graph = Graph()
        self._names = Names()

    def add(self, name: str, type_: TensorType, data: Payload | None, trainable: bool | None = None) -> None:
        """Add a weight. What batch normalization counts is no parameter, and neither is what holds whole numbers."""
        if len(self._graph.weights) >= _MOST_WEIGHTS:
            raise self.error("the file names more than 1,000,000 tensors")
        is_buffer = name.endswith(_BUFFERS) or not (type_.dtype.is_float or type_.dtype.kind.value in ("complex", "unknown", "blocks"))
        value = self._graph.add_weight(type_, self._names.unique(name), Role.BUFFER if is_buffer else Role.PARAMETER, data)
        if trainable is not None:
            self._graph.trainable[value] = trainable

    @property
    def count(self) -> int:
        """Weights so far."""
        return len(self._graph.weights)

    def names_from(self, first: int) -> set[str]:
        """Return the names of the weights that were added since there were so many."""
        return {str(weight.name) for weight in self._graph.weights[first:]}

    def shapes(self) -> dict[str, TensorType]:
        """Return the types of the weights so far by their names."""
        return {str(weight.name): weight.type for weight in self._graph.weights if isinstance(weight.type, TensorType)}

    def set_aside(self, prefixes: tuple[str, ...]) -> None:
        """Count the tensors of an optimizer's state as buffers, not as parameters."""
        kept = [weight for weight in self._graph.weights if str(weight.name).startswith(prefixes)]
        for weight in kept:
            weight.role = Role.BUFFER
        if kept:
            self.sink.warn("IRS166", f"{len(kept):,} tensors are an optimizer's state; they count as buffers", about="optimizer")

    def error(self, what: str, hint: str = "the file is damaged; save or copy it again") -> LoadError:
        return LoadError(what, code="IRS160", where=str(self.path), hint=hint)

    def _graph_hint(self) -> str:
        """Return how a graph can be had."""
        if package := configured_by(self.path.parent):
            return f"with torch and {package} installed, irscope makes the graph of the folder {self.path.parent}"
        return "torch.export.save(torch.export.export(model, args), 'model.pt2') writes a graph"

    def program(self, graph_hint: str = "") -> Program:
        """Return the weights as a program; `graph_hint` says how a graph can be had."""
        if not self._graph.weights:
            raise LoadError(
                "the file holds neither a graph nor tensors",
                code="IRS161",
                where=str(self.path),
                hint="save the model's state_dict, or export it with torch.export",
            )
        if not any(diagnostic.code == "IRS162" for diagnostic in self.sink):
            self.sink.warn(
                "IRS165",
                "the file holds weights but no graph: shapes, cost and the memory of a run do not follow from it",
                hint=graph_hint or self._graph_hint(),
                about="no graph",
            )
        return Program(self._graph, {}, {}, "checkpoint", str(self.path), metadata=self.metadata, has_graph=False)


# -- what torch.save writes --------------------------------------------------------------------------------------------


_EXPORT = "the class's code is not in the file; load it where the code is and save torch.export.export(model, args) instead"

_MOST_DICTIONARIES = 1000
_DEEPEST = 1000
_BYTES_PER_CHILD = 150
"""A name without its prefix and a place in a list."""
_DISTRIBUTED = "torch.distributed.tensor"

Locate = Callable[[PickledTensor], "Payload | None"]


def read_zip(path: Path, table: WeightTable) -> None:
    """Read a checkpoint in a zip archive."""
    with Archive(path) as archive:
        found = read_pickle(archive.read("data.pkl", 64 << 20), f"{path}:data.pkl")
        _add_all(found, table, lambda tensor: pickled_payload(archive, "data/", tensor, False))


def read_legacy(path: Path, table: WeightTable) -> None:
    """Read a checkpoint in one stream: three pickles of bookkeeping, the object, the keys of the storages, their bytes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
        position = 0
        for _ in range(3):
            position = read_pickle(view, str(path), position, 1 << 20).end
        found = read_pickle(view, str(path), position, 256 << 20)
        keys = read_pickle(view, str(path), found.end, 64 << 20)
        offsets = _legacy_offsets(view, keys, _element_bytes(found, table), path)
        _add_all(found, table, lambda tensor: _legacy_region(path, tensor, offsets))


def _element_bytes(found: Unpickled, table: WeightTable) -> dict[str, int]:
    """Return the bytes of an element of each storage."""
    sizes: dict[str, int] = {}
    for _, one in _named_tensors(found.root, table):
        sizes[one.storage.key] = (one.storage.dtype.bits or 8) // 8
    return sizes


def _legacy_offsets(view: memoryview, keys: Unpickled, sizes: dict[str, int], path: Path) -> dict[str, tuple[int, int]]:
    if not isinstance(keys.root, list):
        raise LoadError(
            "the file has no list of storages", code="IRS160", where=str(path), hint="the file is damaged; save or copy it again"
        )
    offsets: dict[str, tuple[int, int]] = {}
    position = keys.end
    for key in keys.root:
        count = int.from_bytes(view[position : position + 8], "little")
        length = count * sizes.get(str(key), 4)
        if position + 8 + length > len(view):
            raise LoadError("the file is cut off", code="IRS160", where=str(path), hint="copy it again")
        offsets[str(key)] = (position + 8, length)
        position += 8 + length
    return offsets


def _legacy_region(path: Path, tensor: PickledTensor, offsets: dict[str, tuple[int, int]]) -> FileRegion | None:
    place = offsets.get(tensor.storage.key)
    type_ = pickled_type(tensor)
    length = type_.nbytes
    if place is None or length is None or isinstance(length, SymDim):
        return None
    start = tensor.offset * ((tensor.dtype.bits or 8) // 8)
    if type_.layout is not None:
        span = span_bytes(type_)
        return FileRegion(str(path), place[0] + start, span, tensor.storage.key) if span is not None and start + span <= place[1] else None
    return FileRegion(str(path), place[0] + start, length, tensor.storage.key) if start + length <= place[1] else None


def _add_all(found: Unpickled, table: WeightTable, locate: Locate) -> None:
    if any(name.startswith(_DISTRIBUTED) for name in found.foreign):
        raise LoadError(
            "its tensors are DTensors, of which the file holds the part of one process",
            code="IRS161",
            where=str(table.path),
            hint="save whole tensors: tensor.full_tensor(), or torch.distributed.checkpoint.state_dict with full_state_dict=True",
        )
    if isinstance(found.root, Stub) and isinstance(found.root.state, dict) and "_modules" in found.root.state:
        table.sink.warn(
            "IRS162", f"the file is a pickled {found.root.what}; it has weights but no graph", hint=_EXPORT, about="pickled module"
        )
    for name, one in _named_tensors(found.root, table):
        table.add(name, pickled_type(one), locate(one), one.requires_grad if one.is_parameter else None)
    states = _optimizer_states(found.root)
    if states:
        table.set_aside(states)
    foreign = [name for name in found.foreign if not name.startswith("torch.nn.")]
    if foreign:
        names = ", ".join(sorted(foreign)[:5])
        table.sink.note("IRS163", f"objects that are not interpreted: {names}", about="foreign objects")


def _optimizer_states(root: object) -> tuple[str, ...]:
    """Prefixes of the names of what optimizers keep: dictionaries with `state` and `param_groups`."""
    pending: list[tuple[str, object]] = [("", root)]
    found: list[str] = []
    for _ in range(_MOST_DICTIONARIES):
        if not pending:
            break
        name, item = pending.pop()
        if isinstance(item, dict):
            if "state" in item and "param_groups" in item:
                found.append(f"{name}." if name else "")
            else:
                pending.extend((_dotted_name(name, key), part) for key, part in item.items() if isinstance(part, dict))
    return tuple(found)


def _named_tensors(root: object, table: WeightTable) -> list[tuple[str, PickledTensor]]:
    """Return the tensors with their dotted names, each object visited once so that cycles end."""
    found: list[tuple[str, PickledTensor]] = []
    visited: set[int] = set()
    pending: list[tuple[str, object, int]] = [("", root, 0)]
    while pending:
        name, item, depth = pending.pop()
        if isinstance(item, PickledTensor):
            found.append((name or "tensor", item))
            continue
        if not isinstance(item, dict | list | tuple | Stub) or id(item) in visited:
            continue
        visited.add(id(item))
        if depth == _DEEPEST:
            raise table.error(f"holds containers that are nested more than {_DEEPEST} deep")
        children = _children(item)
        claim(len(children) * (len(name) + _BYTES_PER_CHILD), "names of tensors in a pickle")
        pending.extend((_dotted_name(name, key), part, depth + 1) for key, part in reversed(children))
    return found


def _children(item: dict[object, object] | list[object] | tuple[object, ...] | Stub) -> list[tuple[object, object]]:
    if isinstance(item, Stub):
        state = item.state if isinstance(item.state, dict) else {}
        if "_modules" in state:
            return [("", state.get(kind)) for kind in ("_parameters", "_buffers", "_modules")]
        return [*state.items(), ("", item.args)]
    if isinstance(item, dict):
        return list(item.items())
    return list(enumerate(item))


def _dotted_name(name: str, key: object) -> str:
    part = str(key)[:500]
    return f"{name}.{part}" if name and part else name or part


# -- safetensors, and checkpoints in several files ---------------------------------------------------------------------


_LONGEST_HEADER = 100 << 20


def read_safetensors(path: Path, table: WeightTable) -> None:
    """Read the tensors of one file: a length, a JSON header, raw bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8 and (pointer := lfs_pointer(path)) is not None:
            raise pointer
        if length > min(size - 8, _LONGEST_HEADER):
            raise table.error(f"the header is said to have {length:,} bytes, the file has {size:,}")
        header = _json(file.read(length), table)
    start = 8 + length
    for name, entry in header.items():
        if name == "__metadata__":
            table.metadata.update({str(key): str(value)[:1000] for key, value in entry.items()} if isinstance(entry, dict) else {})
            continue
        try:
            dtype = SAFETENSORS_DTYPES.get(entry["dtype"], DType.UNKNOWN)
            shape = tuple(_size_in_header(item) for item in entry["shape"])
            first, last = (_size_in_header(item) for item in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise table.error(f"the header's entry {str(name)[:80]!r} does not have the form of a tensor") from None
        wanted = None if dtype.bits is None else (math.prod(shape) * dtype.bits + 7) // 8
        if not first <= last <= size - start or (wanted is not None and wanted != last - first):
            raise table.error(f"the tensor {str(name)[:80]!r} does not fit the file")
        table.add(str(name), tensor(dtype, shape), FileRegion(str(path), start + first, last - first, f"{path.name}:{first}"))


def _size_in_header(item: object) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or item < 0:
        raise ValueError("not a size")
    return item


def _json(data: bytes, table: WeightTable) -> dict[str, Any]:
    admit(len(data))
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise table.error("the header is no valid JSON") from None
    if not isinstance(found, dict):
        raise table.error("the header is no JSON object")
    return found


def read_sharded(path: Path, table: WeightTable) -> None:
    """Read the shards that an index names; they lie beside it."""
    if path.stat().st_size > _LONGEST_HEADER:
        raise table.error("the index is too large")
    places = _json(path.read_bytes(), table).get("weight_map")
    if not isinstance(places, dict):
        raise table.error("the index has no weight_map")
    folder = ModelFolder(path)
    named: dict[str, set[str]] = {}
    for name, shard in places.items():
        named.setdefault(str(shard), set()).add(name)
    for shard in sorted(named):
        if Path(shard).name != shard or shard in ("", ".", ".."):
            raise table.error(f"the index names {shard!r}, which is outside its own folder", "the index is hostile or damaged")
        try:
            found = folder.find(shard)
        except Forbidden as error:
            raise table.error(f"the shard {shard!r} {error}", error.hint or "the index is hostile or damaged") from None
        if found is None:
            raise LoadError(f"the shard {shard!r} is missing", code="IRS164", where=str(path), hint="put all shards beside the index")
        file, before = path.parent / shard, table.count
        if (pointer := lfs_pointer(file)) is not None:
            raise pointer
        if shard.endswith(".safetensors"):
            read_safetensors(file, table)
        else:
            read_zip(file, table)
        _compare_shard(path, shard, named[shard], table.names_from(before), table)


def _compare_shard(path: Path, shard: str, named: set[str], held: set[str], table: WeightTable) -> None:
    """Check that each tensor is in the shard that the index names."""
    for name in sorted(named - held)[:1]:
        message = f"the index says that {name[:80]!r} is in {shard[:80]!r}, which does not have it"
        raise LoadError(message, code="IRS164", where=str(path), hint="index and shards are of different models; copy them again")
    if more := sorted(held - named):
        message = f"{shard[:80]!r} holds {len(more):,} tensors that the index does not name there, such as {more[0][:80]!r}"
        table.sink.warn("IRS167", message, hint="index and shards may be of different models", about=shard)


# -- which of them a file is -------------------------------------------------------------------------------------------


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the weights of a file, as a program whose graph has no nodes."""
    table = WeightTable(path, sink)
    with paused_gc():
        read_weights(path, table)
    program = table.program()
    mark_packed(program, path, sink)
    return program


def read_weights(path: Path, table: WeightTable) -> None:
    """Add the weights of a file of any of these kinds."""
    with path.open("rb") as file:
        head = file.read(16)
    # The length that starts a safetensors file may look like the first byte of a pickle; its brace cannot be missed.
    if head.startswith(b"PK\x03\x04"):
        read_zip(path, table)
    elif head[8:9] == b"{" and not head[4:8].strip(b"\0"):
        read_safetensors(path, table)
    elif head.startswith(b"\x80"):
        read_legacy(path, table)
    elif head.lstrip().startswith(b"{"):
        read_sharded(path, table)
    else:
        read_safetensors(path, table)


# -- weights in few bits -----------------------------------------------------------------------------------------------


_CONFIGURED = ("model", "pytorch_model")
"""Prefixes of the names of files to which the configuration beside them belongs; others may be of an adapter, or of any model."""


def quantization_beside(folder: Path) -> dict[str, Any]:
    """Return the `quantization_config` of a folder as hubs have them; nothing where there is none that may be read."""
    for name in ("config.json", "quantize_config.json"):
        settings = settings_in(folder, name)
        if config := quantization_in(settings):
            return config
        if settings and name == "quantize_config.json":
            return {"quant_method": "gptq", **settings}  # AutoGPTQ's own file, before configurations had one
    return {}


def quantization_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `quantization_config` of a configuration, or of the part of it about text."""
    text = settings.get("text_config")
    for one in (settings, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(one.get(key), dict):
                return dict(one[key])
    return {}


def mark_packed(program: Program, path: Path, sink: DiagnosticSink) -> None:
    """Say of weights in few bits how many each stands for."""
    graph = program.graph
    tensors: dict[str, Shaped] = {}
    for weight in graph.weights:
        shape = tuple(size for size in weight.type.shape or () if isinstance(size, int))
        if isinstance(weight.type, TensorType):
            tensors[str(weight.name)] = weight.type.dtype, shape
    config = quantization_beside(path.parent) if path.name.startswith(_CONFIGURED) else {}
    found = read_packed(tensors, config, program.metadata, is_whole="-of-" not in path.name)
    by_name = {str(weight.name): weight for weight in graph.weights}
    for name, part in found.parts():
        by_name[name].role = Role.PARAMETER
        program.packed[by_name[name]] = part
    if found.unknown:
        program.uncounted = found.unknown
        sink.warn("IRS169", f"how many parameters there are is not known: {found.unknown}", about="quantised weights")
        for name, weight in by_name.items():
            if weight not in program.packed and len(tensors.get(name, (0, ()))[1]) > 1 and tensors[name][0].is_integer:
                weight.role = Role.PARAMETER
                program.packed[weight] = PackedPart("not known", name, 0)
