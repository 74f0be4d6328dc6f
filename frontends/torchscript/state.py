"""State that an archive keeps beside its code: objects, from pickles that are read and never run, and places in the traced Python."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from irscope.budget import OverBudget
from irscope.errors import LoadError
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import PickledTensor, Stub, pickled_payload, pickled_type, read_pickle
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptClass, ScriptObject, Source
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, Value
from irscope.ir.places import CALLED_MODULE, Literal, Loc
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
        """Return the root object of an entry."""
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
        """Return the model itself."""
        found = self._pickles.read("data.pkl")
        if not isinstance(found, Stub):
            raise self._error("the archive holds no module")
        made = self._object(found, "", 0)
        self._is_frozen = not self._tensors
        return made

    def constants(self) -> tuple[Item, ...]:
        """Return the constants that the code names `CONSTANTS.c0`, `CONSTANTS.c1`, ..."""
        found = self._pickles.read("constants.pkl")
        if not isinstance(found, tuple):
            raise self._error("constants.pkl is not a tuple")
        return tuple(self._constant(item, index) for index, item in enumerate(found))

    def traced_inputs(self) -> dict[str, list[object]]:
        """Return what each method was traced with; empty for scripted models."""
        if "traced_inputs.pkl" not in self._archive:
            return {}
        found = self._pickles.read("traced_inputs.pkl")
        if not isinstance(found, dict):
            return {}
        return {str(name): list(items) for name, items in found.items() if isinstance(items, list | tuple)}

    def _error(self, what: str) -> LoadError:
        return LoadError(what, code="IRS181", where=str(self._archive.path), hint="the file is damaged; save it again")

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
        """Return what an object saved of itself: its tensors are parameters, the weight first."""
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

    def _weight(self, tensor: PickledTensor, path: str, role: Role, folder: str = "data/") -> Value:
        type_ = pickled_type(tensor)
        small = role is Role.CONSTANT or (role is Role.BUFFER and (type_.dtype.is_integer or type_.dtype is DType.BOOL))
        data = pickled_payload(self._archive, folder, tensor, small)
        value = self._emitter.main.add_weight(type_, self._emitter.names.unique(path), role, data)
        if role is Role.PARAMETER:
            self._emitter.main.trainable[value] = tensor.requires_grad
        if isinstance(data, Literal):
            known = to_array(data.values, type_)
            if known is not None:
                self._emitter.remember(value, known)
        self._tensors.setdefault(_identity(tensor, folder), value)
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


def _identity(tensor: PickledTensor, folder: str) -> tuple[object, ...]:
    return folder, tensor.storage.key, tensor.offset, tensor.shape, tensor.strides


_TABLE = "FORMAT_WITH_STRING_TABLE"
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)")
_MODULE_FILE = "torch/nn/modules/module.py"
_MODULE_CALL = frozenset({"_wrapped_call_impl", "_call_impl", "_slow_forward"})
_TRACER_FILE = "torch/jit/_trace.py"
_MOST_FRAMES = 200


@dataclass
class _File:
    """Origin of the code of one file."""

    lines: list[int]
    """Byte at which each line of the code begins."""
    starts: list[int]
    """Bytes at which ranges begin."""
    traces: list[tuple[object, ...]]
    """The lines of each range's stack trace, as places in a table of texts or as texts."""
    texts: tuple[object, ...]


class Origins:
    """Stack traces of the operators of traced code; each table is read when it is first needed."""

    def __init__(self, archive: Archive, pickles: Pickles) -> None:
        self._archive = archive
        self._pickles = pickles
        self._files: dict[str, _File | None] = {}
        self._frames: dict[str, re.Match[str] | None] = {}
        self._locs: dict[tuple[str, ...], Loc | None] = {}

    def at(self, file: str, line: int, column: int) -> Loc | None:
        """Return the Python statement that an expression at a place of the code was traced from, with its callers."""
        if file not in self._files:
            self._files[file] = self._read(file)
        known = self._files[file]
        if known is None or line > len(known.lines):
            return None
        place = bisect_right(known.starts, known.lines[line - 1] + column) - 1
        if place < 0:
            return None
        texts = _texts(known.traces[place], known.texts)
        if texts not in self._locs:
            self._locs[texts] = self._loc(texts)
        return self._locs[texts]

    def _read(self, file: str) -> _File | None:
        name = f"{file}.debug_pkl"
        if name not in self._archive:
            return None
        try:
            found = self._pickles.read(name)
            code = self._archive.read(file)
        except OverBudget:
            raise
        except LoadError:
            # What is said about the code does not change what the code does.
            return None
        texts: tuple[object, ...] = ()
        if isinstance(found, tuple) and len(found) == 3 and found[0] == _TABLE and isinstance(found[1], tuple):
            _, texts, found = found
        if not isinstance(found, tuple | list):
            return None
        ranges = sorted((pair for item in found if (pair := _source_range(item)) is not None), key=lambda pair: pair[0])
        lines = [0, *(match.end() for match in re.finditer(b"\n", code))]
        return _File(lines, [start for start, _ in ranges], [trace for _, trace in ranges], texts)

    def _loc(self, texts: tuple[str, ...]) -> Loc | None:
        """Return the chain of places, outermost last; frames of the machinery that calls modules are left out."""
        frames: list[tuple[str, int, str]] = []
        is_called: list[bool] = []
        for text in texts:
            match = self._frame(text)
            if match is None or match["file"].replace("\\", "/").endswith(_TRACER_FILE):
                break
            if match["function"] in _MODULE_CALL and match["file"].replace("\\", "/").endswith(_MODULE_FILE):
                if is_called:
                    is_called[-1] = True
                continue
            frames.append((match["file"], int(match["line"]), match["function"]))
            is_called.append(False)
        loc: Loc | None = None
        for (file, line, function), called in reversed(list(zip(frames, is_called, strict=True))[:_MOST_FRAMES]):
            loc = Loc(file, line, f"{CALLED_MODULE}{function}" if called else function, "", loc)
        return loc

    def _frame(self, text: str) -> re.Match[str] | None:
        if text not in self._frames:
            self._frames[text] = _FRAME.fullmatch(text.strip())
        return self._frames[text]


def _source_range(item: object) -> tuple[int, tuple[object, ...]] | None:
    """Return the first byte of a range of the code and the stack trace there."""
    if not isinstance(item, tuple) or len(item) < 2 or not isinstance(item[0], int) or not isinstance(item[1], tuple) or not item[1]:
        return None
    source = item[1][0]
    if not isinstance(source, tuple) or not source:
        return None
    parts = source[0]
    return item[0], tuple(parts) if isinstance(parts, list) else (parts,)


def _texts(trace: tuple[object, ...], table: tuple[object, ...]) -> tuple[str, ...]:
    """Return the lines of a stack trace, innermost first."""
    parts = [table[part] if isinstance(part, int) and 0 <= part < len(table) else part for part in trace]
    return tuple(line for part in parts if isinstance(part, str) for line in part.splitlines() if line)
