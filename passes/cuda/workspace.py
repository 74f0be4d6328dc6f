"""cuBLAS and cuBLASLt workspaces: their sizes, and whether they are kept, by version of torch and by architecture.

Read from aten/src/ATen/cuda/CublasHandlePool.cpp and seen in the allocator's own traces of each version.
"""

from __future__ import annotations

from dataclasses import dataclass

from irscope.devices import Target
from irscope.ops.spec import GemmPath

_KIB = 1 << 10
_USUAL = 4096 * _KIB * 2 + 16 * _KIB * 8
_HOPPER = 4096 * _KIB * 8
_LT = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class Buffer:
    """Scratch memory passed to a library for a matrix product."""

    label: str
    size: int
    kept: bool
    """Whether it is kept after its first allocation; otherwise each call allocates and frees its own."""


@dataclass(frozen=True, slots=True)
class WorkspacePolicy:
    """Workspaces of a matrix product, in order, by the library that computes it."""

    cublas: tuple[Buffer, ...]
    lt: tuple[Buffer, ...]

    def buffers(self, path: GemmPath) -> tuple[Buffer, ...]:
        """What a call needs."""
        return self.cublas if path == "cublas" else self.lt


def workspace_policy(target: Target) -> WorkspacePolicy:
    """The workspaces of a version of torch on a device."""
    capability, version = target.device.capability or (0, 0), target.torch
    large = capability == (9, 0) if version < (2, 12) else capability >= (9, 0)
    cublas = Buffer("cuBLAS workspace", _HOPPER if large else _USUAL, kept=version < (2, 15))
    if version < (2, 12):
        # cuBLASLt has a buffer of its own besides, which calls share from 2.9 on.
        return WorkspacePolicy((cublas,), (cublas, Buffer("cuBLASLt workspace", _LT, kept=version >= (2, 9))))
    if version < (2, 15):
        return WorkspacePolicy((cublas,), (cublas,))
    return WorkspacePolicy((cublas,), (Buffer("cuBLASLt workspace", _LT, kept=False),))
