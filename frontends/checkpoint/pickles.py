"""What torch.save writes: a pickle beside raw storages, in a zip archive or (before torch 1.6) in one stream."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

from irscope.budget import claim
from irscope.errors import LoadError
from irscope.frontends.checkpoint.weights import WeightTable
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.payloads import pickled_payload, pickled_type, span_bytes
from irscope.frontends.torch_common.pickled import PickledTensor, Stub, Unpickled, read_pickle
from irscope.ir.dims import SymDim
from irscope.ir.places import FileRegion, Payload

_EXPORT = "the class's code is not in the file; load it where the code is and save torch.export.export(model, args) instead"

_MOST_DICTIONARIES = 1000
_DEEPEST = 1000
_BYTES_PER_CHILD = 150
"""A name without its prefix and a place in a list."""
_DISTRIBUTED = "torch.distributed.tensor"

Locate = Callable[[PickledTensor], "Payload | None"]


def read_zip(path: Path, table: WeightTable) -> None:
    """A checkpoint in a zip archive."""
    with Archive(path) as archive:
        found = read_pickle(archive.read("data.pkl", 64 << 20), f"{path}:data.pkl")
        _add_all(found, table, lambda tensor: pickled_payload(archive, "data/", tensor, False))


def read_legacy(path: Path, table: WeightTable) -> None:
    """A checkpoint in one stream: three pickles of bookkeeping, the object, the keys of the storages, their bytes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
        position = 0
        for _ in range(3):
            position = read_pickle(view, str(path), position, 1 << 20).end
        found = read_pickle(view, str(path), position, 256 << 20)
        keys = read_pickle(view, str(path), found.end, 64 << 20)
        offsets = _legacy_offsets(view, keys, _sizes(found, table), path)
        _add_all(found, table, lambda tensor: _legacy_region(path, tensor, offsets))


def _sizes(found: Unpickled, table: WeightTable) -> dict[str, int]:
    """Bytes of an element of each storage."""
    sizes: dict[str, int] = {}
    for _, tensor in _tensors(found.root, table):
        sizes[tensor.storage.key] = (tensor.storage.dtype.bits or 8) // 8
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
    for name, tensor in _tensors(found.root, table):
        table.add(name, pickled_type(tensor), locate(tensor), tensor.requires_grad if tensor.is_parameter else None)
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
                pending.extend((_joined(name, key), part) for key, part in item.items() if isinstance(part, dict))
    return tuple(found)


def _tensors(root: object, table: WeightTable) -> list[tuple[str, PickledTensor]]:
    """Tensors with their dotted names, each object visited once so that cycles end."""
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
        pending.extend((_joined(name, key), part, depth + 1) for key, part in reversed(children))
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


def _joined(name: str, key: object) -> str:
    part = str(key)[:500]
    return f"{name}.{part}" if name and part else name or part
