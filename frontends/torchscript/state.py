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
from irscope.ir.payload import Literal
from irscope.ops.values import to_array

_DEEPEST = 100


class State:
    """Turns pickled objects into interpreter values; every tensor becomes a weight of the main graph."""

    def __init__(self, archive: Archive, source: Source, emitter: Emitter) -> None:
        self._archive = archive
        self._source = source
        self._emitter = emitter
        self._objects: dict[Stub, ScriptObject] = {}
        self._tensors: dict[tuple[object, ...], Value] = {}

    def root(self) -> ScriptObject:
        """The model itself."""
        found = self._unpickle("data.pkl")
        if not isinstance(found, Stub):
            raise self._error("the archive holds no module")
        made = self._object(found, "", 0)
        return made

    def constants(self) -> tuple[Item, ...]:
        """The constants that the code names `CONSTANTS.c0`, `CONSTANTS.c1`, ..."""
        found = self._unpickle("constants.pkl")
        if not isinstance(found, tuple):
            raise self._error("constants.pkl is no tuple")
        return tuple(self._constant(item, index) for index, item in enumerate(found))

    def traced_inputs(self) -> dict[str, list[object]]:
        """What each method was traced with; empty for scripted models."""
        if "traced_inputs.pkl" not in self._archive:
            return {}
        found = self._unpickle("traced_inputs.pkl")
        if not isinstance(found, dict):
            return {}
        return {str(name): list(items) for name, items in found.items() if isinstance(items, list | tuple)}

    def _error(self, what: str) -> LoadError:
        return LoadError(what, code="IRS181", where=str(self._archive.path), hint="the file is damaged; save it again")

    def _unpickle(self, name: str) -> object:
        return read_pickle(self._archive.read(name), f"{self._archive.path}:{name}").root

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
        return made

    def _attribute(self, item: object, cls: ScriptClass, path: str, key: str, depth: int) -> Item:
        if isinstance(item, PickledTensor):
            role = Role.PARAMETER if key in cls.parameters else Role.BUFFER if key in cls.buffers else Role.CONSTANT
            return self._weight(item, path, role)
        return self._plain(item, path, depth + 1)

    def _plain(self, item: object, path: str, depth: int) -> Item:
        if depth > _DEEPEST:
            raise self._error(f"values are nested more than {_DEEPEST} deep")
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
            return self._weight(item, f"CONSTANTS.c{index}", Role.CONSTANT, "constants/")
        return self._plain(item, f"CONSTANTS.c{index}", 0)


def _identity(found: PickledTensor, folder: str) -> tuple[object, ...]:
    return folder, found.storage.key, found.offset, found.shape, found.strides


def leaves(item: object, name: str, depth: int = 0) -> Iterator[tuple[str, PickledTensor]]:
    """Tensors inside an argument, with a name each."""
    if isinstance(item, PickledTensor):
        yield name, item
    elif depth < _DEEPEST and isinstance(item, list | tuple):
        for index, part in enumerate(item):
            yield from leaves(part, f"{name}.{index}", depth + 1)
    elif depth < _DEEPEST and isinstance(item, dict):
        for key, part in item.items():
            yield from leaves(part, f"{name}.{key}", depth + 1)
