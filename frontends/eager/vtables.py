"""Makes a torch without CUDA accept a CUDA device, by replacing single entries of two C++ virtual tables.

Such a torch refuses `device="cuda"` even where nothing is ever computed: a table of device guards is empty for CUDA, and the hooks that
only the CUDA library registers answer with errors. Both are objects whose methods are found through a table of function pointers. Here
copies of these tables are made in which a few methods are Python functions; the originals are not written to, only the pointers to them,
and these are put back.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CUDA, _META = 1, 14
"""Numbers of device types in c10::DeviceType."""
_DEVICE_TYPES = 22
_ENTRIES = 64
"""Entries that are copied at least, more than any of the tables has; what lies behind them is copied and never used."""
_HEAD = 2
"""Words before the first method: offset to the top of the object, and run-time type information."""
_METHOD = re.compile(r"^\s*virtual\s[^;{=]*?(~?\w+)\s*\(", re.M)
_CUDNN = 92000
"""The version that comes with torch 2.13."""
_WITH_CUDNN = (
    "hasCuDNN",
    "compiledWithCuDNN",
    "supportsDilatedConvolutionWithCuDNN",
    "supportsDepthwiseConvolutionWithCuDNN",
    "supportsBFloat16ConvolutionWithCuDNNv8",
    "supportsBFloat16RNNWithCuDNN",
)
_OPTIONAL = frozenset((*_WITH_CUDNN, "batchnormMinEpsilonCuDNN", "versionCuDNN", "versionRuntimeCuDNN"))
"""Methods that may be missing."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)

# The order in torch 2.13, for installations without headers.
_GUARD = (
    "type exchangeDevice getDevice setDevice uncheckedSetDevice getStream getDefaultStream getStreamFromGlobalPool getNewStream "
    "exchangeStream getStreamNativeHandle destroyEvent record block"
)
_HOOKS = "~AcceleratorHooksInterface ~ isBuilt isAvailable hasPrimaryContext"


class CannotPretend(Exception):
    """This installation of torch does not have the parts that would be replaced."""


@dataclass(frozen=True)
class Slots:
    """Places of methods in the two tables."""

    guard: dict[str, int]
    hooks: dict[str, int]


def find_slots(package: Path) -> Slots:
    """Places of methods, from the headers that ship with torch; the known order where there are none."""
    include = package / "include"
    guard = _methods(include / "c10/core/impl/DeviceGuardImplInterface.h")
    hooks = _methods(include / "ATen/detail/AcceleratorHooksInterface.h")
    # A class that derives from another adds its own methods at the end.
    own = [name for name in _methods(include / "ATen/detail/CUDAHooksInterface.h") if name not in hooks and not name.startswith("~")]
    return Slots(_places(guard or _GUARD.split()), _places([*hooks, *own] if hooks else _HOOKS.split()))


def _methods(header: Path) -> list[str]:
    """Names of a class's virtual methods in order; a destructor takes two places."""
    try:
        text = _COMMENT.sub("", header.read_text("utf-8", "replace"))
    except OSError:
        return []
    return [part for name in _METHOD.findall(text) for part in ((name, "~") if name.startswith("~") else (name,))]


def _places(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in reversed(list(enumerate(names)))}


class Patch:
    """Pointers to replaced tables; made once, since objects of torch may refer to them for as long as the process lives."""

    def __init__(self, package: Path) -> None:
        slots = find_slots(package)
        try:
            core = ctypes.CDLL(str(package / "lib" / "libc10.so"))
            library = ctypes.CDLL(str(package / "lib" / "libtorch_cpu.so"))
            self._registry: Any = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(core, "_ZN3c104impl26device_guard_impl_registryE")
            find_hooks = library._ZN2at6detail12getCUDAHooksEv
        except (OSError, ValueError, AttributeError) as error:
            raise CannotPretend(str(error)) from None
        find_hooks.restype = ctypes.c_void_p
        meta, hooks = self._registry[_META], find_hooks()
        if not meta or not hooks:
            raise CannotPretend("the tables of devices are empty")
        self._kept: list[object] = [core, library]
        self._hooks_pointer: Any = ctypes.cast(hooks, ctypes.POINTER(ctypes.c_void_p))
        self._old = (self._registry[_CUDA], meta, self._hooks_pointer[0])
        guard_table = _first_word(meta)
        self._new = (
            self._object(guard_table, slots.guard, _guard_methods(as_cuda=True)),
            # The meta device's guard is what fake tensors are computed under; it lacks streams, which autograd asks for.
            self._object(guard_table, slots.guard, _guard_methods(as_cuda=False)),
            self._table(self._old[2], slots.hooks, _hook_methods()),
        )

    def apply(self) -> None:
        """Install the replaced tables."""
        self._point(self._new)

    def undo(self) -> None:
        """Put the pointers back."""
        self._point(self._old)

    def _point(self, to: tuple[Any, Any, Any]) -> None:
        self._registry[_CUDA], self._registry[_META], self._hooks_pointer[0] = to

    def _table(self, original: int, places: dict[str, int], methods: dict[str, Any]) -> int:
        """The address of a copied table with some methods replaced."""
        size = _HEAD + max(_ENTRIES, len(places))
        words = (ctypes.c_void_p * size).from_address(original - _HEAD * ctypes.sizeof(ctypes.c_void_p))
        table = (ctypes.c_void_p * size)(*words)
        for name, method in methods.items():
            if name not in places:
                if name in _OPTIONAL:
                    continue
                raise CannotPretend(f"there is no method {name}")
            table[_HEAD + places[name]] = ctypes.cast(method, ctypes.c_void_p).value
        self._kept += [table, *methods.values()]
        return ctypes.addressof(table) + _HEAD * ctypes.sizeof(ctypes.c_void_p)

    def _object(self, original: int, places: dict[str, int], methods: dict[str, Any]) -> int:
        """The address of an object without fields that has such a table."""
        made = (ctypes.c_void_p * 4)(self._table(original, places, methods))
        self._kept.append(made)
        return ctypes.addressof(made)


def _first_word(address: int) -> int:
    found = ctypes.c_void_p.from_address(address).value
    if not found:
        raise CannotPretend("an object has no table of methods")
    return found


def _guard_methods(as_cuda: bool) -> dict[str, Any]:
    """A device guard with one stream and nothing to synchronise."""
    nothing = _method(None, (ctypes.c_void_p,) * 3, lambda *_: None)
    # A stream is a device and a number, returned in two registers; whatever stands in the second is a valid number.
    stream = _method(ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int16), lambda _, device: device & 0xFFFF)
    methods = {"getStream": stream, "destroyEvent": nothing, "record": nothing, "block": nothing}
    return {**methods, "type": _method(ctypes.c_int8, (ctypes.c_void_p,), lambda _: _CUDA)} if as_cuda else methods


def _hook_methods() -> dict[str, Any]:
    """CUDA is available with cuDNN, and not initialised yet."""
    yes = _method(ctypes.c_bool, (ctypes.c_void_p,), lambda _: True)
    version = _method(ctypes.c_long, (ctypes.c_void_p,), lambda _: _CUDNN)
    return {
        "isBuilt": yes,
        "hasPrimaryContext": _method(ctypes.c_bool, (ctypes.c_void_p, ctypes.c_int8), lambda *_: False),
        "batchnormMinEpsilonCuDNN": _method(ctypes.c_double, (ctypes.c_void_p,), lambda _: 0.0),
        **dict.fromkeys(_WITH_CUDNN, yes),
        **dict.fromkeys(("versionCuDNN", "versionRuntimeCuDNN"), version),
    }


def _method(result: Any, arguments: tuple[Any, ...], function: Callable[..., object]) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(function)
