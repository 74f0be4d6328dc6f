"""When a real run makes each tensor's storage and when it lets go of it, by watching the storages themselves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class Storage:
    """One storage that the run made."""

    size: int
    born: int
    """Number of the operator that made it."""
    maker: str
    died: int | None = None
    """Operators that had run when it was freed; None while it lives."""


@dataclass
class Recording:
    """Storages of one run and the bytes alive over its operators, beyond what was there before."""

    storages: list[Storage] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    alive: int = 0
    peak: int = 0
    peak_operator: int = 0
    at_peak: list[Storage] = field(default_factory=list)


class _Watch(TorchDispatchMode):
    def __init__(self, recording: Recording, known: set[int]) -> None:
        super().__init__()
        self.recording = recording
        self.known = known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        recording = self.recording
        recording.operators.append(str(func))
        for item in tensors_of(result):
            self._seen(item.untyped_storage(), str(func))
        if recording.alive > recording.peak:
            recording.peak = recording.alive
            recording.peak_operator = len(recording.operators) - 1
            recording.at_peak = [storage for storage in recording.storages if storage.died is None]
        return result

    def _seen(self, storage: torch.UntypedStorage, maker: str) -> None:
        key = storage._cdata
        if key in self.known or storage.nbytes() == 0:
            return
        self.known.add(key)
        made = Storage(storage.nbytes(), len(self.recording.operators) - 1, maker)
        self.recording.storages.append(made)
        self.recording.alive += made.size
        weakref.finalize(storage, self._gone, key, made)

    def _gone(self, key: int, made: Storage) -> None:
        self.known.discard(key)
        made.died = len(self.recording.operators)
        self.recording.alive -= made.size


def tensors_of(item: Any) -> list[Tensor]:
    """Tensors in an operator's result."""
    if isinstance(item, Tensor):
        return [item]
    if isinstance(item, tuple | list):
        return [tensor for part in item for tensor in tensors_of(part)]
    return []


def record(run: Callable[..., Any], args: tuple[Any, ...], resident: Callable[[], list[Tensor]]) -> Recording:
    """Watch the second of two runs; storages of `resident` and of the arguments count as there before.

    Storages that outlive the watched run are those of its result.
    """
    with torch.no_grad():
        run(*args)
        gc.collect()
        known = {item.untyped_storage()._cdata for item in (*resident(), *tensors_of(list(args)))}
        recording = Recording()
        with _Watch(recording, known):
            result = run(*args)
        del result
    return recording


def record_module(module: torch.nn.Module, args: tuple[Any, ...]) -> Recording:
    """Watch a module's forward pass."""
    return record(module, args, lambda: [*module.parameters(), *module.buffers()])
