"""The objects of an archive: modules with their attributes, from pickles that are read and never run."""

from __future__ import annotations

from collections.abc import Iterator

from irscope.errors import LoadError
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.payloads import pickled_payload, pickled_type
from irscope.frontends.torch_common.pickled import PickledTensor, Stub, read_pickle
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.source import ScriptClass, Source
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptObject
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.places import Literal
from irscope.ops.values import to_array

_DEEPEST = 100
_MOST_ITEMS = 2_000_000
_SAVED_NAMES = ("weight", "bias")


class Pickles:
    """The pickles of an archive, each read once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._read: dict[str, object] = {}

    def read(self, name: str) -> object:
        """The root object of an entry."""
        if name not in self._read:
            self._read[name] = read_pickle(self._archive.read(name), f"{self._archive.path}:{name}").root
        return self._read[name]


class State:
    """Turns pickled objects into interpreter values; every tensor becomes a weight of the main graph."""

    def __init__(self, archive: Archive, source: Source, emitter: Emitter, pickles: Pickles) -> None:
        self._archive = archive
        self._pickles = pickles
        self.saved: list[tuple[ScriptObject, Item]] = []
        """Objects whose own `__setstate__` makes their attributes, innermost first, with what it is called with."""
        self._is_frozen = False
        self._items = 0
        self._source = source
        self._emitter = emitter
        self._objects: dict[Stub, ScriptObject] = {}
        self._tensors: dict[tuple[object, ...], Value] = {}
        self._names: Iterator[str] = iter(())

    def root(self) -> ScriptObject:
        """The model itself."""
        found = self._pickles.read("data.pkl")
        if not isinstance(found, Stub):
            raise self._error("the archive holds no module")
        made = self._object(found, "", 0)
        self._is_frozen = not self._tensors
        return made

    def constants(self) -> tuple[Item, ...]:
        """The constants that the code names `CONSTANTS.c0`, `CONSTANTS.c1`, ..."""
        found = self._pickles.read("constants.pkl")
        if not isinstance(found, tuple):
            raise self._error("constants.pkl is no tuple")
        return tuple(self._constant(item, index) for index, item in enumerate(found))

    def traced_inputs(self) -> dict[str, list[object]]:
        """What each method was traced with; empty for scripted models."""
        if "traced_inputs.pkl" not in self._archive:
            return {}
        found = self._pickles.read("traced_inputs.pkl")
        if not isinstance(found, dict):
            return {}
        return {str(name): list(items) for name, items in found.items() if isinstance(items, list | tuple)}

    def _error(self, what: str) -> LoadError:
        return LoadError(what, code="IRS181", where=str(self._archive.path), hint="the file is damaged; save it again")

    # -- objects ---------------------------------------------------------------------------------------------------

    def _object(self, stub: Stub, path: str, depth: int) -> ScriptObject:
        made = self._objects.get(stub)
        if made is not None:
            return made
        if depth > _DEEPEST:
            raise self._error(f"modules are nested more than {_DEEPEST} deep")
        name = str(stub.what)
        cls = self._source.cls(name) or ScriptClass(name, "")
        made = self._objects[stub] = ScriptObject(cls, {}, path)
        if isinstance(stub.state, dict):
            for key, item in stub.state.items():
                made.attrs[str(key)] = self._attribute(item, cls, f"{path}.{key}" if path else str(key), str(key), depth)
        elif stub.state is not None:
            self._names = iter(_SAVED_NAMES)
            state = self._saved(stub.state, path, depth)
            if "__setstate__" in cls.methods:
                self.saved.append((made, state))
            else:
                made.attrs["state"] = state
        return made

    def _saved(self, item: object, path: str, depth: int) -> Item:
        """What an object saved of itself: its tensors are parameters, the weight first."""
        if isinstance(item, PickledTensor):
            name = next(self._names, "tensor")
            return self._weight(item, f"{path}.{name}" if path else name, Role.PARAMETER)
        self._items += 1
        if isinstance(item, list | tuple) and depth < _DEEPEST and self._items < _MOST_ITEMS:
            parts = [self._saved(part, path, depth + 1) for part in item]
            return parts if isinstance(item, list) else tuple(parts)
        return self._plain(item, path, depth + 1)

    def _attribute(self, item: object, cls: ScriptClass, path: str, key: str, depth: int) -> Item:
        if isinstance(item, PickledTensor):
            role = Role.PARAMETER if key in cls.parameters else Role.BUFFER if key in cls.buffers else Role.CONSTANT
            return self._weight(item, path, role)
        return self._plain(item, path, depth + 1)

    def _plain(self, item: object, path: str, depth: int) -> Item:
        self._items += 1
        if depth > _DEEPEST or self._items > _MOST_ITEMS:
            raise self._error(f"values are nested more than {_DEEPEST} deep, or there are more than {_MOST_ITEMS:,}")
        if isinstance(item, Stub):
            return self._object(item, path, depth)
        if isinstance(item, PickledTensor):
            return self._tensors.get(_identity(item, "data/")) or self._weight(item, path, Role.CONSTANT)
        if isinstance(item, list):
            return [self._plain(part, f"{path}.{index}", depth + 1) for index, part in enumerate(item)]
        if isinstance(item, tuple):
            return tuple(self._plain(part, f"{path}.{index}", depth + 1) for index, part in enumerate(item))
        if isinstance(item, dict):
            return {key: self._plain(part, f"{path}.{key}", depth + 1) for key, part in item.items()}
        return item

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _weight(self, found: PickledTensor, path: str, role: Role, folder: str = "data/") -> Value:
        type_ = pickled_type(found)
        small = role is Role.CONSTANT or (role is Role.BUFFER and (type_.dtype.is_integer or type_.dtype is DType.BOOL))
        data = pickled_payload(self._archive, folder, found, small)
        value = self._emitter.main.add_weight(type_, self._emitter.names.unique(path), role, data)
        if role is Role.PARAMETER:
            self._emitter.main.trainable[value] = found.requires_grad
        if isinstance(data, Literal):
            known = to_array(data.values, type_)
            if known is not None:
                self._emitter.remember(value, known)
        self._tensors.setdefault(_identity(found, folder), value)
        return value

    def _constant(self, item: object, index: int) -> Item:
        if isinstance(item, PickledTensor):
            if item.shape == () and item.dtype in (DType.I64, DType.F64, DType.F32, DType.BOOL, DType.I32):
                data = pickled_payload(self._archive, "constants/", item, True)
                if isinstance(data, Literal) and isinstance(data.values[0], bool | int | float):
                    return KnownTensor(data.values[0], item.dtype)
            # Freezing makes constants of parameters.
            role = Role.PARAMETER if self._is_frozen and item.dtype.is_float and item.shape else Role.CONSTANT
            return self._weight(item, f"CONSTANTS.c{index}", role, "constants/")
        return self._plain(item, f"CONSTANTS.c{index}", 0)


def _identity(found: PickledTensor, folder: str) -> tuple[object, ...]:
    return folder, found.storage.key, found.offset, found.shape, found.strides
