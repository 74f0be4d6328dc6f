"""Pickles read as data: a small machine that knows the opcodes and calls nothing.

A pickle is a program. This reader runs it with inert values: a global is its name, a call is a record of the call. The
few functions that PyTorch's formats are made of (tensors, containers) are turned into plain descriptions; whatever else a
file names stays a `Stub`, which has no behaviour at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from irscope.budget import admit, claim, spend
from irscope.errors import LoadError
from irscope.frontends.files.archive import Archive
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES, STORAGE_DTYPES
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType, tensor

_MAX_OPCODES = 5_000_000
_MAX_INT_BYTES = 1024
_AT_ONCE = 4096

Buffer: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True, slots=True)
class Global:
    """A function or class that the pickle names; never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Stub:
    """An object or call that irscope does not interpret."""

    what: Global
    args: object = ()
    state: object = None


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes behind one or more tensors."""

    key: str
    dtype: DType
    numel: int
    device: str = ""


@dataclass(eq=False, slots=True)
class PickledTensor:
    """A tensor's description."""

    storage: Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool = False
    is_parameter: bool = False


@dataclass(slots=True)
class Unpickled:
    """The root object, and the names of what was left uninterpreted."""

    root: object
    foreign: dict[str, int] = field(default_factory=dict)
    end: int = 0


class PickleReader:
    """Reads one pickle from a buffer. `where` is the file that errors name."""

    def __init__(self, data: Buffer, where: str, start: int = 0, limit: int | None = None) -> None:
        self._data = data
        self._where = where
        self._position = start
        self._end = len(data) if limit is None else min(len(data), start + limit)
        self._stack: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[int, object] = {}
        self._foreign: dict[str, int] = {}

    def read(self) -> Unpickled:
        """Run the pickle to its end."""
        handlers = _HANDLERS
        told = self._position
        for count in range(_MAX_OPCODES):
            if not count % _AT_ONCE:
                admit(self._position - told)
                told = self._position
                spend(_AT_ONCE, "a pickle")
            code = self._take(1)[0]
            if code == 0x2E:
                return Unpickled(self._pop(), self._foreign, self._position)
            handler = handlers.get(code)
            if handler is None:
                raise self.error(f"uses opcode 0x{code:02x}")
            try:
                handler(self)
            except (IndexError, TypeError, ValueError, struct.error, RecursionError):
                raise self.error("breaks the rules of pickles") from None
        raise self.error("is too long")

    def error(self, what: str) -> LoadError:
        return LoadError(
            f"the pickle {what} near byte {self._position:,}",
            code="IRS133",
            where=self._where,
            hint="the file is damaged, or it is no PyTorch file; nothing in it was executed",
        )

    # -- the machine -----------------------------------------------------------------------------------------------

    def _take(self, count: int) -> Buffer:
        after = self._position + count
        if count < 0 or after > self._end:
            raise self.error("is cut off")
        data = self._data[self._position : after]
        self._position = after
        return data

    def _int(self, count: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(count), "little", signed=signed)

    def _line(self) -> str:
        start = self._position
        while self._take(1)[0] != 0x0A:
            if self._position - start > 10_000:
                raise self.error("holds an endless line")
        return bytes(self._data[start : self._position - 1]).decode("utf-8", "replace")

    def _text(self, count: int) -> str:
        return bytes(self._take(count)).decode("utf-8", "surrogatepass")

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _pop(self) -> object:
        if not self._stack or (self._marks and self._marks[-1] >= len(self._stack)):
            raise self.error("takes more from its stack than there is")
        return self._stack.pop()

    def _since_mark(self) -> list[object]:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _top(self) -> object:
        return self._stack[-1]

    def _pop_pair(self) -> list[object]:
        value, key = self._pop(), self._pop()
        return [key, value]

    def _append(self, values: list[object]) -> None:
        target = self._top()
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Stub):
            raise self.error("appends to something that is no list")

    def _set_items(self, values: list[object]) -> None:
        target = self._top()
        if isinstance(target, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                target[_hashable(key)] = value
        elif not isinstance(target, Stub):
            raise self.error("sets items of something that is no dictionary")

    def _global(self, module: str, name: str) -> None:
        self._push(Global(module, name))

    def _call(self, what: object, args: object) -> object:
        if isinstance(what, Global) and isinstance(args, tuple):
            reducer = _REDUCERS.get(f"{what.module} {what.name}")
            if reducer is not None:
                return reducer(args)
            dtype = NAMED_DTYPES.get(what.name) if what.module == "torch" else None
            if dtype is not None:
                return dtype
            return self._stub(what, args)
        return self._stub(Global("?", type(what).__name__), args)

    def _stub(self, what: Global, args: object) -> Stub:
        name = str(what)
        self._foreign[name] = self._foreign.get(name, 0) + 1
        return Stub(what, args)

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, Stub):
            target.state = state

    def _reduce(self) -> None:
        args = self._pop()
        self._push(self._call(self._pop(), args))

    def _new_object(self) -> None:
        args = self._pop()
        what = self._pop()
        if isinstance(what, Global) and str(what) == "collections.OrderedDict":
            self._push({})
        else:
            self._push(self._stub(what if isinstance(what, Global) else Global("?", "object"), args))

    def _persistent(self) -> None:
        self._push(_described_storage(self._pop()))

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise self.error("refers to something it never made")
        self._push(self._memo[index])

    def _put(self, index: int) -> None:
        self._memo[index] = self._top()

    def _mark(self) -> None:
        self._marks.append(len(self._stack))

    def _long(self, count: int) -> None:
        if not 0 <= count <= _MAX_INT_BYTES:
            raise self.error("holds an integer of absurd size")
        self._push(self._int(count, signed=True))

    def _pop_or_mark(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._push(tuple(reversed(values)))

    def _object_from_marked(self) -> None:
        what, *args = self._since_mark()
        self._push(self._stub(what if isinstance(what, Global) else Global("?", "object"), tuple(args)))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(_text_of(module)[:1000], _text_of(name)[:1000])

    def _dict_from_marked(self) -> None:
        values = self._since_mark()
        self._push({})
        self._set_items(values)

    def _newobj_ex(self) -> None:
        self._pop()
        self._new_object()

    def _text_line_int(self) -> None:
        text = self._line()
        self._push({"00": False, "01": True}[text] if text in ("00", "01") else int(text[:_MAX_INT_BYTES].rstrip("L")))

    def _double(self) -> None:
        self._push(struct.unpack(">d", bytes(self._take(8)))[0])


def _hashable(key: object) -> object:
    """A dictionary key that cannot surprise: what is not plain becomes its description."""
    if isinstance(key, str | int | float | bool | Global | None):
        return key
    if isinstance(key, tuple) and all(isinstance(item, str | int | float | bool | None) for item in key):
        return key
    return f"<{type(key).__name__}>"


def _whole_numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not all(isinstance(item, int) for item in value):
        raise ValueError("not a list of integers")
    return tuple(value)


def _described_storage(value: object) -> object:
    """The storage that a persistent id ("storage", class, key, device, elements) describes; of a module its class."""
    if isinstance(value, tuple) and len(value) > 1 and value[0] == "module":
        return value[1]
    if not isinstance(value, tuple) or len(value) < 5 or value[0] != "storage":
        raise ValueError("not a storage")
    kind, key, device, numel = value[1:5]
    if isinstance(kind, Global):
        dtype = STORAGE_DTYPES.get(kind.name, DType.UNKNOWN)
    else:
        dtype = kind if isinstance(kind, DType) else DType.UNKNOWN
    if not isinstance(numel, int) or numel < 0:
        raise ValueError("not a number of elements")
    return Storage(_text_of(key), dtype, numel, _text_of(device))


def _rebuild_tensor(args: tuple[object, ...]) -> object:
    storage, offset, shape, strides = args[:4]
    if not isinstance(storage, Storage) or not isinstance(offset, int):
        raise ValueError("not a tensor")
    grad = bool(args[4]) if len(args) > 4 else False
    return PickledTensor(storage, storage.dtype, offset, _whole_numbers(shape), _whole_numbers(strides), grad)


def _rebuild_tensor_v3(args: tuple[object, ...]) -> object:
    tensor = _rebuild_tensor(args)
    assert isinstance(tensor, PickledTensor)
    dtype = args[6]
    if isinstance(dtype, Global):
        dtype = NAMED_DTYPES.get(dtype.name, DType.UNKNOWN)
    tensor.dtype = dtype if isinstance(dtype, DType) else DType.UNKNOWN
    return tensor


def _rebuild_quantized(args: tuple[object, ...]) -> object:
    return _rebuild_tensor((*args[:4], args[5] if len(args) > 5 else False))


def _rebuild_parameter(args: tuple[object, ...]) -> object:
    if isinstance(args[0], PickledTensor):
        args[0].is_parameter = True
        args[0].requires_grad = len(args) < 2 or bool(args[1])
    return args[0]


def _first_argument(args: tuple[object, ...]) -> object:
    return args[0]


def _ordered_dictionary(args: tuple[object, ...]) -> object:
    pairs = args[0] if args else ()
    if not isinstance(pairs, list | tuple):
        raise ValueError("not a list of pairs")
    made: dict[object, object] = {}
    claim(50 * len(pairs), "copies of a dictionary in a pickle")
    for key, value in pairs:
        made[_hashable(key)] = value
    return made


def _device_text(args: tuple[object, ...]) -> object:
    return ":".join(map(_text_of, args))


def _copied_items(args: tuple[object, ...]) -> list[object]:
    """A copy of the list that a call is given."""
    if not args or not isinstance(args[0], list | tuple):
        return []
    claim(8 * len(args[0]), "copies of a list in a pickle")
    return list(args[0])


def _text_of(value: object) -> str:
    """A string or number as text; of anything else its kind: containers that hold one another may be exponentially long."""
    return str(value) if isinstance(value, str | int | float | Global) else f"<{type(value).__name__}>"


_Reducer: TypeAlias = Callable[[tuple[object, ...]], object]
_REDUCERS: dict[str, _Reducer] = {
    "torch._utils _rebuild_tensor": _rebuild_tensor,
    "torch._utils _rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils _rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils _rebuild_qtensor": _rebuild_quantized,
    "torch._utils _rebuild_parameter": _rebuild_parameter,
    "torch._utils _rebuild_parameter_with_state": _rebuild_parameter,
    "torch._tensor _rebuild_from_type_v2": lambda args: _call_plain(args[0], args[2]),
    "torch.jit._pickle restore_type_tag": _first_argument,
    "torch.jit._pickle build_intlist": _first_argument,
    "torch.jit._pickle build_doublelist": _first_argument,
    "torch.jit._pickle build_boollist": _first_argument,
    "torch.jit._pickle build_tensorlist": _first_argument,
    "_codecs encode": lambda args: _text_of(args[0]).encode("latin1", "replace"),
    "collections OrderedDict": _ordered_dictionary,
    "collections defaultdict": lambda args: {},
    "torch Size": lambda args: tuple(_copied_items(args)),
    "torch device": _device_text,
    "builtins set": lambda args: _copied_items(args),
    "builtins list": lambda args: _copied_items(args),
    "builtins dict": lambda args: {},
    "__builtin__ set": lambda args: _copied_items(args),
}


def _call_plain(what: object, args: object) -> object:
    """A tensor of another class is described like the plain one it is rebuilt from."""
    reducer = _REDUCERS.get(f"{what.module} {what.name}") if isinstance(what, Global) else None
    if reducer is None or not isinstance(args, tuple):
        return Stub(what if isinstance(what, Global) else Global("?", "object"), args)
    return reducer(args)


_Handler: TypeAlias = Callable[[PickleReader], object]


def _handlers() -> dict[int, _Handler]:
    r = PickleReader
    table: dict[str, _Handler] = {
        "\x80": lambda p: p._take(1),
        "\x95": lambda p: p._take(8),
        "(": r._mark,
        "0": r._pop_or_mark,
        "1": lambda p: p._since_mark(),
        "2": lambda p: p._push(p._top()),
        "N": lambda p: p._push(None),
        "\x88": lambda p: p._push(True),
        "\x89": lambda p: p._push(False),
        "I": r._text_line_int,
        "L": r._text_line_int,
        "F": lambda p: p._push(float(p._line())),
        "J": lambda p: p._push(p._int(4, signed=True)),
        "K": lambda p: p._push(p._int(1)),
        "M": lambda p: p._push(p._int(2)),
        "\x8a": lambda p: p._long(p._int(1)),
        "\x8b": lambda p: p._long(p._int(4, signed=True)),
        "G": r._double,
        "X": lambda p: p._push(p._text(p._int(4))),
        "\x8c": lambda p: p._push(p._text(p._int(1))),
        "\x8d": lambda p: p._push(p._text(p._int(8))),
        "V": lambda p: p._push(p._line()),
        "S": lambda p: p._push(p._line().strip("'\"")),
        "T": lambda p: p._push(p._text(p._int(4, signed=True))),
        "U": lambda p: p._push(p._text(p._int(1))),
        "B": lambda p: p._push(bytes(p._take(p._int(4)))),
        "C": lambda p: p._push(bytes(p._take(p._int(1)))),
        "\x8e": lambda p: p._push(bytes(p._take(p._int(8)))),
        "\x96": lambda p: p._push(bytes(p._take(p._int(8)))),
        ")": lambda p: p._push(()),
        "\x85": lambda p: p._tuple(1),
        "\x86": lambda p: p._tuple(2),
        "\x87": lambda p: p._tuple(3),
        "t": lambda p: p._push(tuple(p._since_mark())),
        "]": lambda p: p._push([]),
        "l": lambda p: p._push(p._since_mark()),
        "a": lambda p: p._append([p._pop()]),
        "e": lambda p: p._append(p._since_mark()),
        "}": lambda p: p._push({}),
        "d": r._dict_from_marked,
        "s": lambda p: p._set_items(p._pop_pair()),
        "u": lambda p: p._set_items(p._since_mark()),
        "\x8f": lambda p: p._push([]),
        "\x90": lambda p: p._append(p._since_mark()),
        "\x91": lambda p: p._push(p._since_mark()),
        "c": lambda p: p._global(p._line(), p._line()),
        "\x93": r._stack_global,
        "R": r._reduce,
        "\x81": r._new_object,
        "\x92": r._newobj_ex,
        "o": r._object_from_marked,
        "b": r._build,
        "Q": r._persistent,
        "g": lambda p: p._get(int(p._line())),
        "h": lambda p: p._get(p._int(1)),
        "j": lambda p: p._get(p._int(4)),
        "p": lambda p: p._put(int(p._line())),
        "q": lambda p: p._put(p._int(1)),
        "r": lambda p: p._put(p._int(4)),
        "\x94": lambda p: p._put(len(p._memo)),
    }
    return {ord(code): handler for code, handler in table.items()}


_HANDLERS = _handlers()


def read_pickle(data: Buffer, where: str, start: int = 0, limit: int | None = None) -> Unpickled:
    """One pickle as plain data."""
    return PickleReader(data, where, start, limit).read()


# -- values of small constants, and where the large ones are -----------------------------------------------------------


MOST_LITERAL_ELEMENTS = 1024

_FORMATS: dict[DType, str] = {
    DType.BOOL: "?",
    DType.U8: "B",
    DType.I8: "b",
    DType.U16: "H",
    DType.I16: "h",
    DType.U32: "I",
    DType.I32: "i",
    DType.U64: "Q",
    DType.I64: "q",
    DType.F16: "e",
    DType.F32: "f",
    DType.F64: "d",
}


def literal_of(data: bytes, type_: TensorType) -> Literal | None:
    """The values of a small row-major tensor, None where it is large or of an element type that Python lacks."""
    count = type_.numel
    code = _FORMATS.get(type_.dtype)
    if count is None or isinstance(count, SymDim) or count > MOST_LITERAL_ELEMENTS or code is None:
        return None
    layout = struct.Struct(f"<{count}{code}")
    if len(data) < layout.size:
        return None
    return Literal(layout.unpack_from(data))


def pickled_type(found: PickledTensor, device: str = "") -> TensorType:
    """The type of a tensor that a pickle describes; strides are kept only where they are not row-major."""
    expected = 1
    row_major = len(found.strides) == len(found.shape)
    for size, stride in zip(reversed(found.shape), reversed(found.strides), strict=False):
        if size == 0:
            row_major = True
            break
        if size != 1 and stride != expected:
            row_major = False
            break
        expected *= size
    return tensor(found.dtype, found.shape, device, None if row_major else found.strides)


def span_bytes(type_: TensorType) -> int | None:
    """Bytes from the first to the last element of a tensor with strides; None where these are not plain numbers."""
    strides = type_.layout if isinstance(type_.layout, tuple) else ()
    reach = 1
    for size, stride in zip(type_.shape or (), strides, strict=False):
        if isinstance(size, SymDim) or isinstance(stride, SymDim):
            return None
        reach += max(size - 1, 0) * max(stride, 0)
    return reach * (type_.dtype.bits or 8) // 8


def pickled_payload(archive: Archive, folder: str, found: PickledTensor, small: bool) -> Payload | None:
    """Where a pickled tensor's bytes are; the values themselves where the tensor is a small constant and wanted."""
    type_ = pickled_type(found)
    name = f"{folder}{found.storage.key}"
    entry = archive.entries.get(name)
    bits = found.dtype.bits
    if entry is None or bits is None:
        return None
    offset = found.offset * bits // 8
    if type_.layout is not None:
        return archive.region(name, offset, span_bytes(type_), name)
    length = type_.nbytes
    if length is None or isinstance(length, SymDim):
        return None
    if small and entry.size <= 64 * 1024:
        literal = literal_of(archive.read(name)[offset:], type_)
        if literal is not None:
            return literal
    return archive.region(name, offset, length, name)
