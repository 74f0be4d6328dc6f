"""A process with a simulated device: what is installed before a user's program runs in it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final

import torch

from irscope.devices import Target
from irscope.errors import UsageError
from irscope.frontends.eager import internals
from irscope.frontends.eager.fakes import COMPOSITE
from irscope.frontends.eager.pretend import Deaths, _applied, _patch, cudnn_without_card, current, pinned
from irscope.frontends.eager.routes import RNN_MODES, attention
from irscope.frontends.simulation.compiled import Compiler, GeneratedFolder
from irscope.frontends.simulation.cuda import Device, device_count
from irscope.frontends.simulation.cuda_names import complete_core
from irscope.frontends.simulation.kernels import Kernels, Listener
from irscope.frontends.simulation.launchers import Launchers
from irscope.frontends.simulation.machine import Machine
from irscope.frontends.simulation.nvml import Management
from irscope.frontends.simulation.special import (
    SparseKernels,
    install_foreign,
    recurrent_composites,
    recurrent_kernels,
    special_kernels,
    value_for,
)
from irscope.frontends.simulation.watch import Watch
from irscope.frontends.simulation.world import World
from irscope.memory.caching.allocator import PendingFrees

_BY_CUDNN: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


_LATER: Final = ("fsdp", "pipelining", "tensor.parallel")


def import_ahead() -> None:
    """Import what a simulated device needs, for children of this process to begin with. No device is made or asked for."""
    GeneratedFolder().install()
    importlib.import_module("torch.utils.cpp_extension")
    if torch.distributed.is_available():
        for name in _LATER:
            importlib.import_module(f"torch.distributed.{name}")


class Process:
    """The simulated device of this process, for the rest of its life: kernels cannot be taken back."""

    current: ClassVar[Process | None] = None
    """That of this process, if there is one."""

    def __init__(
        self,
        target: Target,
        buffers: Callable[[Any], Sequence[Any]],
        pending_frees: PendingFrees = "next_malloc",
        memory: int | None = None,
        listener: Listener | None = None,
    ) -> None:
        """`memory` is what the allocator can ask the device for, where that is not the device's own."""
        self.generated = GeneratedFolder()
        self.generated.install()  # before fake tensors, whose module imports Dynamo
        patch = _patch()
        if isinstance(patch, str):
            raise UsageError(f"this torch cannot pretend to have a CUDA device ({patch})", code="IRS644")
        Process.current = self
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(_applied(patch))
        self._stack.enter_context(cudnn_without_card())
        self.pinned = PinnedMemory()
        self.machine = Machine(target, pending_frees, memory)
        current.devices = device_count()
        self.device = Device(self.machine)
        self.device.install()
        complete_core(lambda: self.device.current, self.machine.observers)
        self.launchers = Launchers()
        self.launchers.install()
        self.management = Management(self.machine, self.device)
        self.management.install()
        self.world = World(self.machine, self.device, self.note_read)
        if torch.distributed.is_available():
            self.world.install()
        self.kernels = Kernels(self.machine, buffers, self.world.values, self.number, listener)
        self.kernels.values.note_assumed = self.note_assumed
        self.watch: Watch | None = None
        self.answer_with: float | None = None
        """Value that device tensors are assumed to hold when they are read; None for zero."""
        self.answer_by: Callable[[FrameType, Any], Any] | None = None
        """Gives that value by its reader, where it is known: called with the function that reads and with the value that it would get."""
        self.kernels.special.update(special_kernels(self.kernels, self.device, self.answer, self.answer_copy))
        self.kernels.special.update(recurrent_kernels(self.kernels))
        self.kernels.install()
        SparseKernels(self.kernels).install()
        self._own = torch.library.Library("aten", "IMPL")
        self._composites()
        self._methods()
        torch.autograd.set_multithreading_enabled(False).__enter__()
        install_numbers()
        install_foreign(self.kernels)
        self.compiler = Compiler(self.kernels, self.device, self.generated, self.tuning)
        self.compiler.prepare()

    def answer(self, dtype: torch.dtype, known: Any = None) -> Any:
        """A value of a device tensor that the program reads, which may be `known`: irscope's own loops end where they say all the same."""
        if known is not None:
            return known if self.answer_by is None else self.answer_by(sys._getframe(2), known)
        wanted = internals.pipeline_vote(sys._getframe(1)) if self.answer_with is None else self.answer_with
        value = bool(wanted) if dtype is torch.bool else float(wanted) if dtype.is_floating_point else wanted
        if not dtype.is_floating_point and not dtype.is_complex:
            value = int(value) if dtype is not torch.bool else value
        if self.answer_by is not None:
            value = self.answer_by(sys._getframe(2), value)
        else:
            value = value_for(sys._getframe(2), value, self.answer_with is not None)
        self.note_read(value)
        return value

    def number(self, has_most: bool = True) -> int:
        """Return how many elements hold, where an operator's result has so many and nobody computes them: what the user says, or else all;
        none where there is no most."""
        if self.answer_with is None and has_most:
            self.note_read("all", is_most=True)
            return sys.maxsize
        value = int(self.answer_with or 0)
        self.note_read(value)
        return value

    def answer_copy(self, read: torch.Tensor) -> None:
        """Answer for values that the program has copied to the host: zeros, but of a mask all elements hold."""
        if read.dtype is torch.bool and read.numel() > 1 and self.answer_with is None:
            read.fill_(True)
            self.note_read("all", is_most=True)
        else:
            self.note_read(0)

    def note_read(self, value: Any, is_most: bool = False) -> None:
        """Note that the program has read a value of the device; values that the compiler reads do not count."""
        if self.watch is not None and not self.compiler.busy:
            self.watch.answered(value, is_most)

    def note_assumed(self, assumption: str) -> None:
        """Note that the program goes on with values that follow from an assumption about unknown numbers."""
        if self.watch is not None and not self.compiler.busy:
            self.watch.assumed(assumption)

    @contextlib.contextmanager
    def tuning(self) -> Iterator[None]:
        """Count memory within the context as taken for timing candidates of kernels."""
        watch = self.watch
        if watch is None:
            yield
            return
        before, watch.tuning = watch.tuning, True
        try:
            yield
        finally:
            watch.tuning = before

    def begin_again(self) -> None:
        """Prepare for another program in the same process: nothing of the previous one shows but what it left alive."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        self.compiler.begin_again()
        gc.collect()
        machine = self.machine
        machine.storages.settle()
        machine.drop_kept()
        machine.empty_cache()
        machine.begin_again()
        self.pinned.peak = self.pinned.bytes
        self.kernels.unknown.clear()
        self.launchers.started.clear()
        self.world.traffic.clear()
        self.world.looks.clear()
        self.world.not_modelled.clear()

    def start(self, most_steps: int = 0, hidden: Sequence[str] = (), stepped: Callable[[int], None] | None = None) -> Watch:
        """Follow what the program does from here on; `hidden` are files that call it and are not part of it.

        `stepped` is told after each step how many there were.
        """
        self.watch = Watch(self.machine, most_steps, hidden, self.pinned.end_of_interval, stepped)
        self.device.marks = self.watch.mark
        self.watch.ended = self.world.step_ended
        self.watch.install()
        return self.watch

    def _composites(self) -> None:
        """Register composites that choose other kernels on a CUDA device, by code that only a build with CUDA has."""
        attend = functools.partial(attention, self.machine.target)
        for key in ("AutogradCUDA", "CUDA"):
            self._own.impl("scaled_dot_product_attention", attend, key, allow_override=True)
            self._own.impl("one_hot", self._one_hot, key, allow_override=True)
            for name, kernel in recurrent_composites().items():
                self._own.impl(name, kernel, key, allow_override=True)
        cudnn: Any = torch.backends.cudnn
        cudnn.is_acceptable = lambda tensor: tensor.is_cuda and tensor.dtype in _BY_CUDNN and cudnn.enabled
        internals.answer_cudnn_modes(RNN_MODES)

    def _one_hot(self, numbers: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        """Take unknown numbers to be all different where the program does not say how many classes there are."""
        if num_classes < 0 and numbers.numel() and self.answer_with is None and self.kernels.values.item(numbers.max()) is None:
            num_classes = min(self.number(), numbers.numel())
        found: torch.Tensor = torch.ops.aten.one_hot.default._op_dk(COMPOSITE, numbers, num_classes)
        return found

    def _methods(self) -> None:
        machine, original = self.machine, torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            if storage.device.type != "cuda":
                return original(storage, size)  # type: ignore[no-any-return]
            machine.resize(storage, size)
            return storage

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]

        copied: Any = torch.UntypedStorage.clone

        def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
            """Clone buffers that `copy.deepcopy` meets; a torch without CUDA makes no storage there by itself."""
            if storage.device.type != "cuda":
                return copied(storage)  # type: ignore[no-any-return]
            return torch.empty(storage.nbytes(), dtype=torch.uint8, device=storage.device).untyped_storage()

        torch.UntypedStorage.clone = clone  # type: ignore[method-assign,assignment]
        original_new: Any = torch.UntypedStorage.__new__

        def new(kind: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
            """Make storages as `torch.load` does for tensors that were saved on the device."""
            if device is None or torch.device(device).type != "cuda" or (args and not isinstance(args[0], int)):
                return original_new(kind, *args, **kwargs, **({} if device is None else {"device": device}))
            return torch.empty(args[0] if args else 0, dtype=torch.uint8, device=device).untyped_storage()

        storage: Any = torch.UntypedStorage
        storage.__new__ = new


# Pinned host memory: real memory of the plain allocator, known by its address and counted.

_ALLOCATE: Final = 2
"""The place of `allocate` in the table of c10::Allocator, after two destructors."""
_METHODS: Final = 16


class _DataPtr(ctypes.Structure):
    """c10::DataPtr: the memory, the deleter, what it gets, the device."""

    _fields_ = (("data", ctypes.c_uint64), ("deleter", ctypes.c_uint64), ("context", ctypes.c_uint64), ("device", ctypes.c_uint64))


class PinnedMemory:
    """An allocator as torch's plain one that remembers what it gave."""

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._high = 0
        """The most since the last interval ended."""
        self._kept: list[Any] = []
        # A method that returns an object gets the address for it as its first argument on x86-64, the only machine that is simulated on.
        plain = pinned.plain()
        methods = (ctypes.c_uint64 * _METHODS).from_address(ctypes.c_uint64.from_address(plain).value)
        table = (ctypes.c_uint64 * _METHODS)(*methods)
        signature = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
        self._allocate = signature(methods[_ALLOCATE])
        self._plain = plain
        self._delete: dict[int, tuple[int, int]] = {}
        self._deaths = Deaths()
        callback = signature(self._give)
        table[_ALLOCATE] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        made = (ctypes.c_uint64 * 4)(ctypes.addressof(table))
        self._kept += [table, callback, made]
        pinned.allocator = ctypes.addressof(made)

    def _give(self, into: int, allocator: int, size: int) -> int:
        self.settle()
        self._allocate(into, self._plain, size)
        found = _DataPtr.from_address(into)
        if found.data:
            self._delete[found.context] = (found.deleter, found.data)
            pinned.sizes[found.data] = size
            found.deleter = self._deaths.deleter
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            self._high = max(self._high, self.bytes)
        return into

    def end_of_interval(self) -> tuple[int, int]:
        """Return the most bytes since the last call, and those there are."""
        self.settle()
        high, self._high = self._high, self.bytes
        return high, self.bytes

    def settle(self) -> None:
        """Give back what is no longer used."""
        for context in self._deaths.take():
            deleter, data = self._delete.pop(context)
            self.bytes -= pinned.sizes.pop(data)
            ctypes.CFUNCTYPE(None, ctypes.c_uint64)(deleter)(context)


# The thread of autograd's engine that works for the device, as far as it shows in the order of a backward.

_PEEK: Final = re.compile(rb"\x48\x8d\x3d(.{4})(?:\x66|\x48)*\xe8.{4}\x48\x8b(?:\x80(.{4})|\x40(.)|\x00)", re.S)
"""lea rdi, [where the thread's variables are]; call __tls_get_addr; mov rax, [rax + offset]."""
_LENGTH: Final = 32
_LEA: Final = 7


def _counter() -> Any:
    """Return this thread's number of the next node; None where the code that reads it looks otherwise."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        peek = library._ZN2at15sequence_number4peekEv
        find = ctypes.CDLL(None).__tls_get_addr
    except (OSError, AttributeError):
        return None
    peek.restype, find.restype, find.argtypes = ctypes.c_uint64, ctypes.c_void_p, [ctypes.c_void_p]
    start = ctypes.cast(peek, ctypes.c_void_p).value or 0
    found = _PEEK.search(ctypes.string_at(start, _LENGTH))
    if found is None:
        return None
    place = start + found.start() + _LEA + int.from_bytes(found[1], "little", signed=True)
    offset = int.from_bytes(found[2] or found[3] or b"\0", "little", signed=True)
    made = ctypes.c_uint64.from_address((find(place) or 0) + offset)
    return made if made.value == peek() else None


_FORKED: Final = re.compile(rb"\x80\x3d(.{4})\x00\x75", re.S)
"""cmp byte [whether a process with the engine's threads was forked], 0; jne."""


def may_differentiate() -> None:
    """Let the engine work in a copy of a process where it has threads, as after a backward on a pretended device: it refuses, since real
    devices would not work. It makes itself anew there all the same; nothing happens where its code looks otherwise."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        check = library._ZN5torch8autograd6Engine30initialize_device_threads_poolEv
    except (OSError, AttributeError):
        return
    start = ctypes.cast(check, ctypes.c_void_p).value or 0
    found = _FORKED.search(ctypes.string_at(start, _LENGTH))
    if found is not None:
        place = start + found.start() + _LEA + int.from_bytes(found[1], "little", signed=True)
        flag = ctypes.c_uint8.from_address(place)
        if flag.value == 1:
            flag.value = 0


def install_numbers() -> None:
    """Number the nodes that a backward makes as the engine's thread for the device would.

    torch runs a backward on the device in a thread of its own; here it runs in the program's, so that lines of the program are known.
    Nodes that a backward makes itself, as with `create_graph`, are numbered by thread, and the engine takes the highest number first.
    """
    counter = _counter()
    if counter is None:
        return
    from torch.autograd import graph

    module: Any = graph
    original: Callable[..., Any] = module._engine_run_backward
    of_thread = [0]
    depth = [0]

    def run(*args: Any, **kwargs: Any) -> Any:
        if depth[0]:
            return original(*args, **kwargs)
        before, counter.value = counter.value, of_thread[0]
        depth[0] += 1
        try:
            return original(*args, **kwargs)
        finally:
            depth[0] -= 1
            of_thread[0], counter.value = counter.value, before

    places: tuple[Any, ...] = (module, torch.autograd)
    for where in places:
        if getattr(where, "_engine_run_backward", None) is original:
            where._engine_run_backward = run
