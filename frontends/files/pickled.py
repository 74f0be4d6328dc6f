"""Pickles read as data: a small machine that calls nothing, for what `pickletools` takes apart.

A pickle is a program. This reader runs it with inert values: a global is its name, a call is a record of the call. The
few functions that PyTorch's formats are made of (tensors, containers) are turned into plain descriptions; whatever else a
file names stays a `Stub`, which has no behaviour at all.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import IO, Any, TypeAlias, cast

from irscope.budget import admit, claim, spend
from irscope.errors import LoadError
from irscope.frontends.files.archive import Archive
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES, STORAGE_DTYPES
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim, equal
from irscope.ir.dtypes import STRUCT_CODES, DType
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType, tensor

_MAX_OPCODES = 5_000_000
_MAX_INT_BITS = 8192
_LONGEST_NAME = 1000
_LONGEST_LINE = 10_000
_AT_ONCE = 4096

Buffer: TypeAlias = "bytes | memoryview"


@immutable
class Global:
    """A function or class that the pickle names; never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@mutable(eq=False, slots=True)
class Stub:
    """An object or call that irscope does not interpret."""

    what: Global
    args: object = ()
    state: object = None


@immutable
class Storage:
    """The bytes behind one or more tensors."""

    key: str
    dtype: DType
    numel: int
    device: str = ""


@mutable(eq=False, slots=True)
class PickledTensor:
    """A tensor's description."""

    storage: Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool = False
    is_parameter: bool = False


@mutable(slots=True)
class Unpickled:
    """The root object, and the names of what was left uninterpreted."""

    root: object
    foreign: dict[str, int] = field(default_factory=dict)
    end: int = 0


class PickleStack:
    """The stack, the marks and the memo that opcodes of a pickle work on."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def error(self, what: str) -> Exception:
        """Return the error that the pickle does something that it may not."""
        raise NotImplementedError

    def _pop(self) -> Any:
        if not self._stack or (self._marks and self._marks[-1] >= len(self._stack)):
            raise self.error("takes more from its stack than there is")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))


class PickleReader(PickleStack):
    """Reads one pickle from a buffer. `where` is the file that errors name."""

    def __init__(self, data: Buffer, where: str, start: int = 0, limit: int | None = None) -> None:
        is_whole = isinstance(data, bytes) and not start and limit is None
        end = len(data) if limit is None else min(len(data), start + limit)
        self._source = io.BytesIO(data) if is_whole else cast("IO[bytes]", _Window(data, start, end))
        super().__init__()
        self._where = where
        self._position = start
        self._foreign: dict[str, int] = {}

    def read(self) -> Unpickled:
        """Run the pickle to its end; `pickletools` takes it apart."""
        stack, handlers = self._stack, _HANDLERS
        told, until_look, left = self._position, 0, _MAX_OPCODES
        operations = cast("Iterator[tuple[pickletools.OpcodeInfo, Any, int]]", pickletools.genops(self._source))
        try:
            for opcode, argument, position in operations:
                self._position = position
                if not until_look:
                    admit(self._position - told)
                    spend(_AT_ONCE, "a pickle")
                    told, until_look, left = self._position, _AT_ONCE, left - _AT_ONCE
                    if left < 0:
                        raise self.error("is too long")
                until_look -= 1
                name = opcode.name
                if name in _PUSH_ARGUMENT:
                    stack.append(argument)
                elif name == "STOP":
                    return Unpickled(self._pop(), self._foreign, self._position + 1)
                elif (handler := handlers.get(name)) is not None:
                    handler(self, argument)
                else:
                    raise self.error(f"uses the opcode {name}")
        except (IndexError, TypeError, ValueError, struct.error, RecursionError, DeprecationWarning):
            # A warning, where warnings are errors, is about an escape in a text that Python does not know.
            raise self.error("breaks the rules of pickles, or is cut off") from None
        raise self.error("is cut off")

    def error(self, what: str) -> LoadError:
        return LoadError(
            f"the pickle {what} near byte {self._position:,}",
            code="IRS133",
            where=self._where,
            hint="the file is damaged, or it is not a PyTorch file; nothing in it was executed",
        )

    # -- the machine -----------------------------------------------------------------------------------------------

    def _append(self, values: list[object]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Stub):
            raise self.error("appends to something that is not a list")

    def _set_items(self, values: list[object]) -> None:
        target = self._stack[-1]
        if isinstance(target, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                target[_hashable(key)] = value
        elif not isinstance(target, Stub):
            raise self.error("sets items of something that is not a dictionary")

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def _global(self, module: object, name: object) -> None:
        self._stack.append(Global(_text_of(module)[:_LONGEST_NAME], _text_of(name)[:_LONGEST_NAME]))

    def _global_in_line(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._global(module, name)

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(module, name)

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

    def _stub(self, what: object, args: object) -> Stub:
        made = Stub(what if isinstance(what, Global) else Global("?", "object"), args)
        name = str(made.what)
        self._foreign[name] = self._foreign.get(name, 0) + 1
        return made

    def _build(self) -> None:
        state = self._pop()
        target = self._stack[-1]
        if isinstance(target, Stub):
            target.state = state

    def _reduce(self) -> None:
        args = self._pop()
        self._stack.append(self._call(self._pop(), args))

    def _new_object(self) -> None:
        args = self._pop()
        what = self._pop()
        is_dictionary = isinstance(what, Global) and str(what) == "collections.OrderedDict"
        self._stack.append({} if is_dictionary else self._stub(what, args))

    def _new_object_with_names(self) -> None:
        self._pop()
        self._new_object()

    def _object_from_marked(self) -> None:
        what, *args = self._since_mark()
        self._stack.append(self._stub(what, tuple(args)))

    def _dict_from_marked(self) -> None:
        values = self._since_mark()
        self._stack.append({})
        self._set_items(values)

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise self.error("refers to something it never made")
        self._stack.append(self._memo[index])

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _long(self, number: int) -> None:
        if number.bit_length() > _MAX_INT_BITS:
            raise self.error("holds an integer of absurd size")
        self._stack.append(number)

    def _pop_or_mark(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()


class _Window:
    """A part of a buffer as the file that `pickletools` reads. What lies behind its end is neither read nor copied."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: Buffer, start: int, end: int) -> None:
        self._data, self._position, self._end = data, start, end

    def tell(self) -> int:
        return self._position

    def read(self, count: int) -> bytes:
        start = self._position
        if count > self._end - start:
            return b""
        self._position = start + count
        return bytes(self._data[start : self._position])

    def readline(self) -> bytes:
        start = self._position
        line, found, _ = bytes(self._data[start : min(start + _LONGEST_LINE, self._end)]).partition(b"\n")
        self._position = start + len(line) + len(found)
        return line + found


def _hashable(key: object) -> object:
    """Return a dictionary key that cannot surprise: what is not plain becomes its description."""
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
    """Return the storage that a persistent id ("storage", class, key, device, elements) describes; of a module its class."""
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
    sizes, steps = _whole_numbers(shape), _whole_numbers(strides)
    if len(sizes) != len(steps):
        raise ValueError("not a stride for each axis")
    return PickledTensor(storage, storage.dtype, offset, sizes, steps, grad)


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
    """Return a copy of the list that a call is given."""
    if not args or not isinstance(args[0], list | tuple):
        return []
    claim(8 * len(args[0]), "copies of a list in a pickle")
    return list(args[0])


def _text_of(value: object) -> str:
    """Return a string or number as text; of anything else its kind: containers that hold one another may be exponentially long."""
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


_Handler: TypeAlias = Callable[[PickleReader, Any], object]
_PUSH_ARGUMENT = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_HANDLERS: dict[str, _Handler] = {
    "PROTO": lambda p, _: None,
    "FRAME": lambda p, _: None,
    "MARK": lambda p, _: p._marks.append(len(p._stack)),
    "POP": lambda p, _: p._pop_or_mark(),
    "POP_MARK": lambda p, _: p._since_mark(),
    "DUP": lambda p, _: p._stack.append(p._stack[-1]),
    "NONE": lambda p, _: p._stack.append(None),
    "NEWTRUE": lambda p, _: p._stack.append(True),
    "NEWFALSE": lambda p, _: p._stack.append(False),
    **dict.fromkeys(("LONG", "LONG4"), PickleReader._long),
    "EMPTY_TUPLE": lambda p, _: p._stack.append(()),
    "TUPLE1": lambda p, _: p._tuple(1),
    "TUPLE2": lambda p, _: p._tuple(2),
    "TUPLE3": lambda p, _: p._tuple(3),
    "TUPLE": lambda p, _: p._stack.append(tuple(p._since_mark())),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda p, _: p._stack.append([])),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda p, _: p._stack.append(p._since_mark())),
    "APPEND": lambda p, _: p._append([p._pop()]),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda p, _: p._append(p._since_mark())),
    "EMPTY_DICT": lambda p, _: p._stack.append({}),
    "DICT": lambda p, _: p._dict_from_marked(),
    "SETITEM": lambda p, _: p._set_item(),
    "SETITEMS": lambda p, _: p._set_items(p._since_mark()),
    "GLOBAL": PickleReader._global_in_line,
    "STACK_GLOBAL": lambda p, _: p._stack_global(),
    "REDUCE": lambda p, _: p._reduce(),
    "NEWOBJ": lambda p, _: p._new_object(),
    "NEWOBJ_EX": lambda p, _: p._new_object_with_names(),
    "OBJ": lambda p, _: p._object_from_marked(),
    "BUILD": lambda p, _: p._build(),
    "BINPERSID": lambda p, _: p._stack.append(_described_storage(p._pop())),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), PickleReader._get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PickleReader._put),
    "MEMOIZE": lambda p, _: p._put(len(p._memo)),
}
"""By the names that `pickletools` gives to opcodes; a pickle with any other is refused."""


def read_pickle(data: Buffer, where: str, start: int = 0, limit: int | None = None) -> Unpickled:
    """Return one pickle as plain data."""
    return PickleReader(data, where, start, limit).read()


# -- values of small constants, and where the large ones are -----------------------------------------------------------


MOST_LITERAL_ELEMENTS = 1024


def literal_of(data: bytes, type_: TensorType) -> Literal | None:
    """Return the values of a small row-major tensor, None where it is large or of an element type that Python lacks."""
    count = type_.numel
    code = STRUCT_CODES.get(type_.dtype)
    if count is None or isinstance(count, SymDim) or count > MOST_LITERAL_ELEMENTS or code is None:
        return None
    layout = struct.Struct(f"<{count}{code}")
    if len(data) < layout.size:
        return None
    return Literal(layout.unpack_from(data))


def lies_by_rows(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether strides are known to be those of a row-major tensor, whatever they are along axes of one element."""
    expected: Dim = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not isinstance(size, SymDim) and size == 0:
            return True
        if not isinstance(size, SymDim) and size == 1:
            continue
        if equal(stride, expected) is not True:
            return False
        expected = expected * size
    return True


def pickled_type(found: PickledTensor, device: str = "") -> TensorType:
    """Return the type of a tensor that a pickle describes; strides are kept only where they are not row-major."""
    return tensor(found.dtype, found.shape, device, None if lies_by_rows(found.shape, found.strides) else found.strides)


def span_bytes(type_: TensorType) -> int | None:
    """Return the bytes from the first to the last element of a tensor with strides; None where these are not plain numbers."""
    strides = type_.layout if isinstance(type_.layout, tuple) else ()
    reach = 1
    for size, stride in zip(type_.shape or (), strides, strict=False):
        if isinstance(size, SymDim) or isinstance(stride, SymDim):
            return None
        reach += max(size - 1, 0) * max(stride, 0)
    return reach * (type_.dtype.bits or 8) // 8


def pickled_payload(archive: Archive, folder: str, found: PickledTensor, small: bool) -> Payload | None:
    """Return where a pickled tensor's bytes are; the values themselves where the tensor is a small constant and wanted."""
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
