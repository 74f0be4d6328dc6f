"""A process with a simulated device: what is installed before a user's program runs in it."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import torch

from irscope.devices import Target
from irscope.errors import UsageError
from irscope.frontends.eager.pretend import _applied, _patch, cudnn_without_card, current
from irscope.frontends.eager.routes import RNN_MODES, attention
from irscope.frontends.simulation.cuda import Device, device_count
from irscope.frontends.simulation.foreign import install_foreign
from irscope.frontends.simulation.host import PinnedMemory
from irscope.frontends.simulation.kernels import Kernels
from irscope.frontends.simulation.machine import Machine
from irscope.frontends.simulation.recurrent import recurrent_composites, recurrent_kernels
from irscope.frontends.simulation.sequence import install_numbers
from irscope.frontends.simulation.sparse import SparseKernels
from irscope.frontends.simulation.special import special_kernels
from irscope.frontends.simulation.watch import Watch
from irscope.frontends.simulation.world import World
from irscope.memory.caching.allocator import PendingFrees

_BY_CUDNN: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _vote() -> int:
    """What is answered where nobody said anything: zero, except to a pipeline whose stages ask each other whether all of them know their
    shapes. They are made by one program: others are taken to say what this rank's own say."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_warmup_p2p":
        frame = frame.f_back
    if frame is None:
        return 0
    mode: Any = frame.f_globals.get("InferenceMode")
    stages = frame.f_locals.get("stages", ())
    known = not any(mode.needs_dynamic(one._user_meta, frame.f_locals["has_backward"]) for one in stages)
    return int(known)


class Process:
    """The simulated device of this process, for the rest of its life: kernels cannot be taken back."""

    def __init__(
        self,
        target: Target,
        buffers: Callable[[Any], Sequence[Any]],
        pending_frees: PendingFrees = "next_malloc",
        memory: int | None = None,
    ) -> None:
        """`memory` is what the allocator can ask the device for, where that is not the device's own."""
        patch = _patch()
        if isinstance(patch, str):
            raise UsageError(f"this torch cannot pretend to have a CUDA device ({patch})", code="IRS644")
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(_applied(patch))
        self._stack.enter_context(cudnn_without_card())
        fakes: Any = importlib.import_module("torch._subclasses.fake_tensor")
        fakes.init_gpu_context = lambda device: None
        self.pinned = PinnedMemory()
        self.machine = Machine(target, pending_frees, memory)
        current.devices = device_count()
        self.device = Device(self.machine)
        self.device.install()
        self.world = World(self)
        if torch.distributed.is_available():
            self.world.install()
        self.kernels = Kernels(self.machine, buffers)
        self.watch: Watch | None = None
        self.answer_with: float | None = None
        """What values of device tensors are taken to be; None for zero."""
        self.answer_by: Callable[[FrameType, Any], Any] | None = None
        """What they are by who asks, where that is known: called with the function that reads and with what it would get."""
        self.kernels.special.update(special_kernels(self))
        self.kernels.special.update(recurrent_kernels(self))
        self.kernels.install()
        SparseKernels(self).install()
        self._own = torch.library.Library("aten", "IMPL")
        self._composites()
        self._methods()
        torch.autograd.set_multithreading_enabled(False).__enter__()
        install_numbers()
        install_foreign(self)

    def answer(self, dtype: torch.dtype) -> Any:
        """A value of a device tensor that the program reads."""
        wanted = _vote() if self.answer_with is None else self.answer_with
        value = bool(wanted) if dtype is torch.bool else float(wanted) if dtype.is_floating_point else wanted
        if not dtype.is_floating_point and not dtype.is_complex:
            value = int(value) if dtype is not torch.bool else value
        if self.answer_by is not None:
            value = self.answer_by(sys._getframe(2), value)
        if self.watch is not None:
            self.watch.answered(value)
        return value

    def begin_again(self) -> None:
        """Another program in the same process: nothing that the one before did shows, but for what it left alive."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        gc.collect()
        machine = self.machine
        machine.storages.settle()
        machine.drop_kept()
        machine.empty_cache()
        machine.begin_again()
        self.pinned.peak = self.pinned.bytes
        self.kernels.unknown.clear()
        self.world.traffic.clear()
        self.world.not_modelled.clear()

    def start(self, most_steps: int = 0, hidden: Sequence[str] = (), stepped: Callable[[int], None] | None = None) -> Watch:
        """Follow what the program does from here on; `hidden` are files that call it and are no part of it.

        `stepped` is told after each step how many there were.
        """
        self.watch = Watch(self.machine, most_steps, hidden, self.pinned.end_of_interval, stepped)
        self.device.marks = self.watch.mark
        # NCCL's watchdog looks ten times a second: what a step has sent is done before the next one is at its peak.
        self.watch.ended = self.world.settled
        self.watch.install()
        return self.watch

    def _composites(self) -> None:
        """Composites that choose other kernels on a CUDA device by code that is only there in a build with CUDA."""
        attend = functools.partial(attention, self.machine.target)
        for key in ("AutogradCUDA", "CUDA"):
            self._own.impl("scaled_dot_product_attention", attend, key, allow_override=True)
            for name, kernel in recurrent_composites().items():
                self._own.impl(name, kernel, key, allow_override=True)
        cudnn: Any = torch.backends.cudnn
        cudnn.is_acceptable = lambda tensor: tensor.is_cuda and tensor.dtype in _BY_CUDNN and cudnn.enabled
        cudnn.rnn.get_cudnn_mode = lambda mode: RNN_MODES[mode.lower()]

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
            """Of buffers that `copy.deepcopy` meets; a torch without CUDA makes no storage there by itself."""
            if storage.device.type != "cuda":
                return copied(storage)  # type: ignore[no-any-return]
            return torch.empty(storage.nbytes(), dtype=torch.uint8, device=storage.device).untyped_storage()

        torch.UntypedStorage.clone = clone  # type: ignore[method-assign,assignment]
        original_new: Any = torch.UntypedStorage.__new__

        def new(kind: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
            """As `torch.load` makes storages for tensors that were saved on the device."""
            if device is None or torch.device(device).type != "cuda" or (args and not isinstance(args[0], int)):
                return original_new(kind, *args, **kwargs, **({} if device is None else {"device": device}))
            return torch.empty(args[0] if args else 0, dtype=torch.uint8, device=device).untyped_storage()

        storage: Any = torch.UntypedStorage
        storage.__new__ = new
