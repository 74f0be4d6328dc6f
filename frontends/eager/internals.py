"""What irscope touches of torch's inside and is not the same in all versions: an entry each, found by what is there."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch


def dynamo_optimizers() -> tuple[Any, str]:
    """Return Dynamo's class of optimizers, and the name of the method by which it reads their attributes.

    `var_getattr` until 2.13, `tp_getattro_impl`, which the class inherits, from 2.14 on.
    """
    kind = importlib.import_module("torch._dynamo.variables.optimizer").OptimizerVariable
    return kind, next(name for name in ("var_getattr", "tp_getattro_impl") if hasattr(kind, name))


def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Give `owner` another function under a name, and return what undoes that; an inherited one shows again then."""
    own = vars(owner).get(name)
    setattr(owner, name, function)
    return (lambda: delattr(owner, name)) if own is None else (lambda: setattr(owner, name, own))


@contextmanager
def no_device_context() -> Iterator[None]:
    """Within the context fake tensors ask no real device for memory, which they do to make its context wherever there is one."""
    fakes: Any = importlib.import_module("torch._subclasses.fake_tensor")
    undo = [replaced(fakes, name, lambda device: None) for name in ("init_gpu_context", "init_cuda_context") if hasattr(fakes, name)]
    try:
        yield
    finally:
        for restore in undo:
            restore()


def answer_cudnn_modes(modes: Mapping[str, int]) -> None:
    """Answer by which number cuDNN knows a kind of recurrent layer: torch asks a library that a build without CUDA lacks.

    Versions before 2.9 import the module of it where it is used.
    """
    rnn: Any = importlib.import_module("torch.backends.cudnn.rnn")
    rnn.get_cudnn_mode = lambda mode: modes[mode.lower()]
    if hasattr(torch.backends.cudnn, "rnn"):
        torch.backends.cudnn.rnn.get_cudnn_mode = rnn.get_cudnn_mode


def fsdp_param_dtypes(group: Any) -> list[torch.dtype | None]:
    """Return the types in which an FSDP2 group computes with its parameters: its own policy's until 2.14, each parameter's from 2.15 on."""
    policies = [group.mp_policy] if hasattr(group, "mp_policy") else [param.mp_policy for param in group.fsdp_params]
    return list(dict.fromkeys(policy.param_dtype for policy in policies))


_CUDA: Final = 1
"""c10::DeviceType::CUDA."""
_NO_DEVICE: Final = -1
_MOST_TIMERS: Final = 16
"""Kinds of devices that have timers: two in every build there is."""


def forget_timers_of_cuda() -> None:
    """Let DDP's reducer find no timer for CUDA, as in a build without: it records events on a real device, which is not to be touched.

    The registry begins with a std::unordered_map by type of device (c10/util/Registry.h): where its buckets are, how many, the first
    node, how many nodes; a node is the next one's address, the key, and what makes the timer. Its key becomes none of any device.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        registry: Any = library._ZN4c10d13TimerRegistryEv
    except (OSError, AttributeError):  # a build without distributed
        return
    registry.restype = ctypes.c_void_p
    _, _, node, count = (ctypes.c_uint64 * 4).from_address(registry())
    for _ in range(count if count <= _MOST_TIMERS else 0):
        key = ctypes.c_int8.from_address(node + 8)
        if key.value == _CUDA:
            key.value = _NO_DEVICE
        node = ctypes.c_uint64.from_address(node).value
        if not node:
            break
