"""Memory that kernels and libraries take beside their results: workspaces of cuBLAS, and scratch in the order of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from irscope.devices import Target
from irscope.immutable import immutable
from irscope.memory.tape import TEMPORARY, WORKSPACE, Spread, Tape
from irscope.ops.spec import Drop, Gemm, GemmPath, MemoryEvent, Result, Take, Unknown, Workspace

# cuBLAS and cuBLASLt workspaces: their sizes, and whether they are kept, by release of torch and by architecture.

_KIB = 1 << 10
_USUAL = 4096 * _KIB * 2 + 16 * _KIB * 8
_HOPPER = 4096 * _KIB * 8
_LT = 1024 * _KIB


@immutable
class Buffer:
    """Scratch memory passed to a library for a matrix product."""

    label: str
    size: int
    kept: bool
    """True where it is kept after its first allocation; otherwise each call allocates and frees its own."""


@immutable
class WorkspacePolicy:
    """Workspaces of a matrix product, in order, by the library that computes it."""

    cublas: tuple[Buffer, ...]
    lt: tuple[Buffer, ...]

    def buffers(self, path: GemmPath) -> tuple[Buffer, ...]:
        """Return what a call needs."""
        return self.cublas if path == "cublas" else self.lt


def workspace_policy(target: Target) -> WorkspacePolicy:
    """Return the workspaces of a version of torch on a device."""
    capability, release = target.device.capability or (0, 0), target.release
    large = capability == (9, 0) or (release.large_workspace_after_hopper and capability >= (9, 0))
    cublas = Buffer("cuBLAS workspace", _HOPPER if large else _USUAL, kept=release.cublas_workspace_kept)
    lt = Buffer("cuBLASLt workspace", _LT, kept=release.lt_workspace == "own, kept")
    return WorkspacePolicy((cublas,), {"cublas": (cublas,), "own alone": (lt,)}.get(release.lt_workspace, (cublas, lt)))


# The temporary memory of kernels, interleaved with the allocation of their results.


class KernelWriter:
    """Records the temporary memory of kernels on a tape, interleaved with the allocation of their results."""

    def __init__(self, tape: Tape[Any], target: Target) -> None:
        self._tape = tape
        self._policy = workspace_policy(target)
        self._kept: set[str] = set()
        """Labels of workspaces that are there since their first allocation."""

    def write(self, memory_events: Sequence[MemoryEvent], made: Mapping[int, int]) -> None:
        """The requests of one call; `made` has the slots of results with their own storage, by index."""
        tape, events = self._tape, self._tape.events
        open_: dict[str, int] = {}
        waiting = dict(made)
        for event in memory_events:
            if isinstance(event, Result):
                slot = waiting.pop(event.index, None)
                if slot is not None:
                    if event.size is not None:
                        tape.sizes[slot] = event.size
                    events.append(slot)
            elif isinstance(event, Take):
                open_[event.label] = slot = tape.slot(event.size, event.kind, event.label)
                events.append(slot)
            elif isinstance(event, Drop):
                events.append(~open_.pop(event.label))
            elif isinstance(event, Gemm):
                self._multiply(event)
            elif isinstance(event, Workspace):
                slot = tape.slot(event.size, WORKSPACE, event.label)
                tape.spreads[slot] = Spread(0, event.most, event.reason, modelled=True)
                events += [slot, ~slot]
            else:
                open_[event.label] = slot = self._guess(event)
                events.append(slot)
        events.extend(waiting.values())
        events.extend([~slot for slot in open_.values()])

    def _multiply(self, event: Gemm) -> None:
        """Persistent workspaces are allocated once; the others live for the call."""
        tape = self._tape
        own: list[int] = []
        for buffer in self._policy.buffers(event.path):
            if buffer.kept and buffer.label in self._kept:
                continue
            slot = tape.slot(buffer.size, WORKSPACE, buffer.label)
            tape.events.append(slot)
            if buffer.kept:
                self._kept.add(buffer.label)
                tape.kept.append(slot)
            else:
                own.append(slot)
        tape.events.extend([~slot for slot in own])

    def _guess(self, event: Unknown) -> int:
        slot = self._tape.slot(event.low, TEMPORARY, event.label)
        self._tape.spreads[slot] = Spread(event.low, event.high, event.reason)
        return slot
