"""A simulated CUDA device for fake tensors on a machine without CUDA: its tables in C++, its shape functions, its answers."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import torch

from irscope.devices import DeviceProfile, Target, target_of
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.eager import internals
from irscope.immutable import immutable
from irscope.passkit.settings import Settings

_SHARED: Final = {(7, 0): 98304, (7, 5): 65536, (8, 0): 166912, (9, 0): 232448, (10, 0): 232448}
"""Shared memory that a block can have at most, by capability (CUDA C++ Programming Guide); 99 KiB on the others."""
_BUS: Final = 4096
"""Bits of a memory bus, where the device's is not known."""
_depth = 0


Kept = TypeVar("Kept")


def kept_for_good(thing: Kept) -> Kept:
    """Return what C++ refers to for as long as the process lives: tensors may die after Python has let go of all its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


class _Current:
    """The device and the stream that guards find and set."""

    def __init__(self) -> None:
        self.words = kept_for_good((ctypes.c_uint64 * 3)(_CUDA, 0, 1))
        """The device, as its type and its number, a byte each; torch's number of the stream; how many devices there are."""

    @property
    def device(self) -> int:
        """Return the number of the device."""
        return int(self.words[0]) >> 8

    @device.setter
    def device(self, number: int) -> None:
        self.words[0] = _CUDA | number << 8

    @property
    def devices(self) -> int:
        """Return how many there are."""
        return int(self.words[2])

    @devices.setter
    def devices(self, number: int) -> None:
        self.words[2] = number

    @property
    def stream(self) -> int:
        """torch's number of the stream."""
        return int(self.words[1])

    @stream.setter
    def stream(self, number: int) -> None:
        self.words[1] = number


_CUDA, _META = 1, 14
"""Numbers of device types in c10::DeviceType."""
current = _Current()
queue = SimpleNamespace(
    record=lambda stream: 0,
    block=lambda event, stream: None,
    use=lambda address, stream: None,
    new_stream=lambda priority: 0,
    finished=lambda stream, event: True,
    wait=lambda stream, event: None,
)
"""Hooks by which autograd's engine, futures and `torch.Stream` order streams: an event is recorded, or waited for, or a stream uses
memory. `finished` and `wait` are about the event, or without one about all work on the stream."""
pinned = SimpleNamespace(allocator=0, plain=None, sizes={})
"""The allocator of pinned memory, if it is not the plain one, and what it gave, by address."""


@contextmanager
def pretended_cuda(target: Target | None = None, sink: DiagnosticSink | None = None) -> Iterator[str]:
    """Let fake tensors be on the device that is yielded: "cuda", or "cpu" where that cannot be had.

    The device takes the place of one that is there, which is not touched, and of none, however torch was built. Where it cannot be had
    one diagnostic says so, and operators are captured on the CPU and counted as if they ran on a card.
    """
    target = target or target_of(Settings())
    patch = _patch()
    if isinstance(patch, str):
        if sink is not None:
            sink.warn(
                "IRS187",
                f"this torch cannot pretend to have a CUDA device ({patch}); the model is captured on the CPU",
                hint="results may have another memory layout than on a card; a torch built with CUDA captures them as they are",
                about="device",
            )
        yield "cpu"
        return
    with _applied(patch), cudnn_without_card(), card(target):
        yield "cuda"


@contextmanager
def _applied(patch: Patch) -> Iterator[None]:
    global _depth
    if _depth == 0:
        patch.apply()
    _depth += 1
    try:
        with internals.no_device_context():
            yield
    finally:
        _depth -= 1
        if _depth == 0:
            patch.undo()


@functools.cache
def _patch() -> Patch | str:
    """Return the replaced tables that make torch accept the device, or why that is impossible; tried once."""
    if sys.platform != "linux":
        return f"it was not tried on {sys.platform}"
    try:
        patch = Patch(Path(torch.__file__).parent)
    except CannotPretend as error:
        return str(error)
    patch.apply()
    try:
        return patch if _works() else "a tensor that was put there is elsewhere"
    except Exception as error:  # whatever torch makes of it, there is no device
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}"
    finally:
        patch.undo()


def _works() -> bool:
    from torch._subclasses.fake_tensor import FakeTensorMode

    accelerator = torch._C._accelerator_getAccelerator()
    with internals.no_device_context(), FakeTensorMode(), torch.no_grad():
        made = torch.empty(2, device="cuda") + 1
    return accelerator.type == "cuda" and made.device.type == "cuda"


# -- answers of torch.cuda ---------------------------------------------------------------------------------------------


@contextmanager
def card(target: Target) -> Iterator[None]:
    """Answer `torch.cuda` queries as on the target device within the context."""
    answers = _answers(target)
    before = {name: getattr(torch.cuda, name) for name in answers}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.cuda, name, function)


def device_properties(device: DeviceProfile, total: int) -> Any:
    """Return the answer of `torch.cuda.get_device_properties` for a device with `total` bytes."""
    major, minor = capability = device.capability or (0, 0)
    shared, clock, bandwidth = _SHARED.get(capability, 101376), device.max_clock or device.clock, device.bandwidth
    return SimpleNamespace(
        name=device.title,
        major=major,
        minor=minor,
        total_memory=total,
        multi_processor_count=device.multiprocessors or 0,
        warp_size=32,
        max_threads_per_multi_processor=device.threads_per_multiprocessor or 2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        L2_cache_size=device.l2_cache_bytes or 0,
        clock_rate=0 if clock is None else round(clock.hi / 1000),
        # Device files have the bandwidth, which programs compute of these two: twice the clock in kHz, times the width in bytes.
        memory_bus_width=_BUS,
        memory_clock_rate=0 if bandwidth is None else round(bandwidth.hi / (_BUS // 8) / 2 / 1000),
        is_integrated=False,
        is_multi_gpu_board=False,
        pci_domain_id=0,
        pci_bus_id=current.device,
        pci_device_id=0,
        uuid="00000000-0000-0000-0000-000000000000",
        gcnArchName="",
    )


def _answers(target: Target) -> dict[str, Callable[..., Any]]:
    device = target.device
    capability = device.capability or (0, 0)
    properties = device_properties(device, device.memory_bytes or 0)
    return {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda including_emulation=True: capability >= (8, 0),
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
    }


# -- shape functions of cuDNN that torch lacks without CUDA ------------------------------------------------------------


@contextmanager
def cudnn_without_card() -> Iterator[None]:
    """Give these operators fake implementations within the context."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, function in _FUNCTIONS.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, function, "Meta")
        yield
    finally:
        library._destroy()


def _grid_sampler(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]))


def _grid_sampler_backward(x: torch.Tensor, grid: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), grid.new_empty(grid.shape)


def _affine_grid(theta: torch.Tensor, n: int, c: int, h: int, w: int) -> torch.Tensor:
    return theta.new_empty((n, h, w, 2))


def _affine_grid_backward(gradient: torch.Tensor, n: int, c: int, h: int, w: int) -> torch.Tensor:
    return gradient.new_empty((n, 2, 3))


def _rnn_backward(
    x: torch.Tensor, weight: Sequence[torch.Tensor], stride: int, buffer: Any, hx: torch.Tensor, cx: torch.Tensor | None, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    cell = hx.new_empty((0,)) if cx is None else cx.new_empty(cx.shape)
    return x.new_empty(x.shape), hx.new_empty(hx.shape), cell, [tensor.new_empty(tensor.shape) for tensor in weight]


_GRU_PARTS = 5
"""Parts of the workspace of a GRU's step that are as wide as its state (GRU_WORKSPACE_MULTIPLIER in ATen's RNN.cu)."""


def _gru_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    return hx.new_empty(hx.shape), hx.new_empty((hx.shape[0], _GRU_PARTS * hx.shape[1]))


def _gru_cell_backward(gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> tuple[torch.Tensor | None, ...]:
    rows, gates = workspace.shape[0], 3 * (workspace.shape[1] // _GRU_PARTS)
    biases = [workspace.new_empty((gates,)) if has_bias else None for _ in range(2)]
    return workspace.new_empty((rows, gates)), workspace.new_empty((rows, gates)), gradient.new_empty(gradient.shape), *biases


_FUNCTIONS = {
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "cudnn_affine_grid_generator": _affine_grid,
    "cudnn_affine_grid_generator_backward": _affine_grid_backward,
    "_cudnn_rnn_backward": _rnn_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}


# -- tables of methods in C++ ------------------------------------------------------------------------------------------


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
    "exchangeStream getStreamNativeHandle destroyEvent record block queryEvent deviceCount getDeviceCapability queryStream "
    "synchronizeStream isStreamCapturing synchronizeEvent synchronizeDevice recordDataPtrOnStream"
)
_HOOKS = (
    "~AcceleratorHooksInterface ~ isBuilt isAvailable hasPrimaryContext init deviceCount setCurrentDevice getCurrentDevice exchangeDevice "
    "maybeExchangeDevice isPinnedPtr getPinnedMemoryAllocator"
)


class CannotPretend(Exception):
    """This installation of torch does not have the parts that would be replaced."""


@immutable(slots=False)
class Slots:
    """Places of methods in the two tables."""

    guard: dict[str, int]
    hooks: dict[str, int]


def find_slots(package: Path) -> Slots:
    """Return the places of methods, from the headers that ship with torch; the known order where there are none."""
    include = package / "include"
    guard = _methods(include / "c10/core/impl/DeviceGuardImplInterface.h")
    hooks = _methods(include / "ATen/detail/AcceleratorHooksInterface.h")
    # A class that derives from another adds its own methods at the end.
    own = [name for name in _methods(include / "ATen/detail/CUDAHooksInterface.h") if name not in hooks and not name.startswith("~")]
    return Slots(_table_places(guard or _GUARD.split()), _table_places([*hooks, *own] if hooks else _HOOKS.split()))


def _methods(header: Path) -> list[str]:
    """Return the names of a class's virtual methods in order; a destructor takes two places."""
    try:
        text = _COMMENT.sub("", header.read_text("utf-8", "replace"))
    except OSError:
        return []
    return [part for name in _METHOD.findall(text) for part in ((name, "~") if name.startswith("~") else (name,))]


def _table_places(names: Sequence[str]) -> dict[str, int]:
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
            self._table(self._old[2], slots.hooks, _hook_methods(core)),
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
        """Return the address of a copied table with some methods replaced."""
        size = _HEAD + max(_ENTRIES, len(places))
        words = (ctypes.c_void_p * size).from_address(original - _HEAD * ctypes.sizeof(ctypes.c_void_p))
        table = (ctypes.c_void_p * size)(*words)
        for name, method in methods.items():
            if name not in places:
                if name in _OPTIONAL:
                    continue
                raise CannotPretend(f"there is no method {name}")
            table[_HEAD + places[name]] = ctypes.cast(method, ctypes.c_void_p).value
        self._kept += [kept_for_good(table), *map(kept_for_good, methods.values())]
        return ctypes.addressof(table) + _HEAD * ctypes.sizeof(ctypes.c_void_p)

    def _object(self, original: int, places: dict[str, int], methods: dict[str, Any]) -> int:
        """Return the address of an object without fields that has such a table."""
        made = (ctypes.c_void_p * 4)(self._table(original, places, methods))
        self._kept.append(kept_for_good(made))
        return ctypes.addressof(made)


def _first_word(address: int) -> int:
    found = ctypes.c_void_p.from_address(address).value
    if not found:
        raise CannotPretend("an object has no table of methods")
    return found


def _guard_methods(as_cuda: bool) -> dict[str, Any]:
    """Return a device guard; that of the meta device has one stream, which nothing is done for."""
    nothing = _method(None, (ctypes.c_void_p,) * 3, lambda *_: None)
    # A stream is a device and a number, returned in two registers; whatever stands in the second is a valid number.
    stream = _method(ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int16), lambda _, device: device & 0xFFFF)
    if not as_cuda:
        return {"getStream": stream, "destroyEvent": nothing, "record": nothing, "block": nothing}
    # mov rax, words; mov rax, [rax]; ret
    first = instructions(b"\x48\xb8" + ctypes.addressof(current.words).to_bytes(8, "little") + b"\x48\x8b\x00\xc3")
    if first is None:
        first = _method(ctypes.c_uint16, (ctypes.c_void_p, ctypes.c_uint16), lambda *_: current.words[0])
    pointer = ctypes.c_uint64
    methods = {
        "deviceCount": _method(ctypes.c_int8, (ctypes.c_void_p,), lambda _: current.devices),
        "type": _method(ctypes.c_int8, (ctypes.c_void_p,), lambda _: _CUDA),
        "getDevice": first,
        "exchangeDevice": first,
        "destroyEvent": nothing,
        "record": _method(None, (ctypes.c_void_p, pointer, pointer, ctypes.c_int8, ctypes.c_int), _record),
        "block": _method(None, (ctypes.c_void_p, pointer, pointer), lambda _, event, at: queue.block(event, _stream_at(at))),
        "recordDataPtrOnStream": _method(None, (ctypes.c_void_p, pointer, pointer), _use),
        "queryEvent": _method(ctypes.c_bool, (ctypes.c_void_p, pointer), lambda _, event: queue.finished(None, event)),
        "synchronizeEvent": _method(None, (ctypes.c_void_p, pointer), lambda _, event: queue.wait(None, event)),
        "queryStream": _method(ctypes.c_bool, (ctypes.c_void_p, pointer), lambda _, at: queue.finished(_stream_at(at), None)),
        "synchronizeStream": _method(None, (ctypes.c_void_p, pointer), lambda _, at: queue.wait(_stream_at(at), None)),
    }
    found = _stream_code()
    return {**methods, "getStream": stream} if found is None else {**methods, **found}


def _record(_: Any, event: int, at: int, device: int, flag: int) -> None:
    ctypes.c_uint64.from_address(event).value = queue.record(_stream_at(at))


def _use(_: Any, data: int, at: int) -> None:
    queue.use(ctypes.c_uint64.from_address(data).value, _stream_at(at))


def _stream_at(at: int) -> int:
    return ctypes.c_uint64.from_address(at + 8).value


def _stream_code() -> dict[str, Any] | None:
    """Methods that return a stream: in two registers, which no callback can do, so they are a few instructions."""
    words = ctypes.addressof(current.words).to_bytes(8, "little")
    # mov rax, words; mov rdx, [rax+8]; mov rax, [rax]; ret
    get = instructions(b"\x48\xb8" + words + b"\x48\x8b\x50\x08\x48\x8b\x00\xc3")
    # mov rax, words; mov rcx, [rax+8]; mov [rax+8], rdx; mov rdx, rcx; mov rax, [rax]; ret
    exchange = instructions(b"\x48\xb8" + words + b"\x48\x8b\x48\x08\x48\x89\x50\x08\x48\x89\xca\x48\x8b\x00\xc3")
    if get is None:
        return None
    # push rax; mov rax, made; call rax; mov rdx, rax; mov rax, words; mov rax, [rax]; pop rcx; ret
    new, pooled = (
        instructions(b"\x50\x48\xb8" + _callback(made) + b"\xff\xd0\x48\x89\xc2\x48\xb8" + words + b"\x48\x8b\x00\x59\xc3")
        for made in (lambda _, device, priority: queue.new_stream(priority), lambda _, device, high: queue.new_stream(-(high & 1)))
    )
    # mov rax, words; mov rax, [rax]; xor edx, edx; ret
    default = instructions(b"\x48\xb8" + words + b"\x48\x8b\x00\x31\xd2\xc3")
    return {
        "getStream": get,
        "exchangeStream": exchange,
        "getDefaultStream": default,
        "getNewStream": new,
        "getStreamFromGlobalPool": pooled,
    }


def _callback(function: Callable[[Any, int, int], int]) -> bytes:
    """Return the address of a function of Python's for instructions to call."""
    made = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint16, ctypes.c_int)(function)
    kept_for_good(made)
    return (ctypes.cast(made, ctypes.c_void_p).value or 0).to_bytes(8, "little")


def instructions(code: bytes) -> ctypes.c_void_p | None:
    """A function of x86-64's instructions; None on another machine, and where a system forbids memory with code that a process wrote."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, ValueError):
        return None
    memory.write(code)
    kept_for_good(memory)
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


class Deaths:
    """Objects that C++ no longer needs, in order: its deleter only takes a note, since Python cannot run while it raises an exception."""

    _MOST = 1 << 20

    def __init__(self) -> None:
        self._words = kept_for_good((ctypes.c_uint64 * (self._MOST + 1))())
        # mov rax, words; mov ecx, 1; lock xadd [rax], rcx; and ecx, MOST-1; mov [rax+rcx*8+8], rdi; ret
        at, mask = ctypes.addressof(self._words).to_bytes(8, "little"), (self._MOST - 1).to_bytes(4, "little")
        code = b"\x48\xb8" + at + b"\xb9\x01\x00\x00\x00\xf0\x48\x0f\xc1\x08\x81\xe1" + mask + b"\x48\x89\x7c\xc8\x08\xc3"
        made = instructions(code)
        if made is None:
            raise CannotPretend("it was not tried on this machine")
        self.deleter = made.value or 0
        """The address of the deleter."""
        self._seen = 0

    @property
    def waiting(self) -> bool:
        """Return whether there are any."""
        return self._words[0] != self._seen

    def take(self) -> Iterator[int]:
        """Yield what died since the last call; also what dies meanwhile."""
        words, mask = self._words, self._MOST - 1
        while self._seen != words[0]:
            at = self._seen & mask
            self._seen += 1
            yield words[1 + at]


def _hook_methods(core: Any) -> dict[str, Any]:
    """CUDA is available with cuDNN, and not initialised yet."""
    pinned.plain = core._ZN3c1015GetCPUAllocatorEv
    pinned.plain.restype = ctypes.c_void_p
    yes = _method(ctypes.c_bool, (ctypes.c_void_p,), lambda _: True)
    version = _method(ctypes.c_long, (ctypes.c_void_p,), lambda _: _CUDNN)
    return {
        "isBuilt": yes,
        "init": _method(None, (ctypes.c_void_p,), lambda _: None),
        "getPinnedMemoryAllocator": _method(ctypes.c_void_p, (ctypes.c_void_p,), lambda _: pinned.allocator or pinned.plain()),
        "isPinnedPtr": _method(ctypes.c_bool, (ctypes.c_void_p, ctypes.c_void_p), lambda _, at: at in pinned.sizes),
        "hasPrimaryContext": _method(ctypes.c_bool, (ctypes.c_void_p, ctypes.c_int8), lambda *_: False),
        "batchnormMinEpsilonCuDNN": _method(ctypes.c_double, (ctypes.c_void_p,), lambda _: 0.0),
        **dict.fromkeys(_WITH_CUDNN, yes),
        **dict.fromkeys(("versionCuDNN", "versionRuntimeCuDNN"), version),
    }


def _method(result: Any, arguments: tuple[Any, ...], function: Callable[..., object]) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(function)
