"""The order in which `Module.to(device)` moves a model's tensors, which determines how they fill the allocator's segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from irscope.ir.graph import Graph, Role, Value
from irscope.ir.places import Blob, FileRegion
from irscope.ir.types import Type


@dataclass
class _Module:
    """A module, reconstructed from the names of its tensors."""

    parameters: list[Value] = field(default_factory=list)
    buffers: list[Value] = field(default_factory=list)
    children: dict[str, _Module] = field(default_factory=dict)


def moved_weights(graph: Graph) -> Iterator[Value]:
    """Parameters and buffers in the order in which they are moved to the device: inner modules first, tied ones once.

    Constants are no part of a module's state, so `Module.to` leaves them where they are.
    """
    moved: set[str] = set()
    for value in _children_first(_tree(graph)):
        storage = _storage(graph, value)
        if not storage or storage not in moved:
            moved.add(storage)
            yield value


def is_on_host(type_: Type, graph: Graph) -> bool:
    """Whether a tensor stays on the host: the file places it there, and others on a CUDA device."""
    return type_.device.startswith("cpu") and any(value.type.device.startswith("cuda") for value in (*graph.weights, *graph.inputs))


def _tree(graph: Graph) -> _Module:
    """Modules in the order in which they were registered. Files list all parameters before all buffers."""
    root = _Module()
    for weight in graph.weights:
        if weight.role is Role.CONSTANT:
            continue
        *path, _ = (weight.name or "").split(".")
        module = root
        for name in path:
            found = module.children.get(name)
            if found is None:
                found = _Module()
                _register(module.children, name, found)
            module = found
        (module.parameters if weight.role is Role.PARAMETER else module.buffers).append(weight)
    return root


def _register(children: dict[str, _Module], name: str, module: _Module) -> None:
    """Modules with buffers only follow all those with parameters; numbered ones are inserted by their number."""
    children[name] = module
    if not name.isdecimal():
        return
    later = [other for other in children if other.isdecimal() and int(other) > int(name)]
    for other in later:
        children[other] = children.pop(other)


def _children_first(root: _Module) -> Iterator[Value]:
    pending = [(root, False)]
    while pending:
        module, entered = pending.pop()
        if entered or not module.children:
            yield from module.parameters
            yield from module.buffers
        else:
            pending.append((module, True))
            pending.extend((child, False) for child in reversed(module.children.values()))


def _storage(graph: Graph, value: Value) -> str:
    """Identifies the memory behind a weight; empty where the file does not record it."""
    data = graph.data.get(value)
    if isinstance(data, FileRegion):
        return data.storage or f"{data.path}:{data.offset}"
    return data.storage if isinstance(data, Blob) else ""
