"""Bytes of tensors that are alive while a callable runs, measured."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from irscope.frontends.eager.record import Record


class _Watch(TorchDispatchMode):
    """Counts storages that operators make, until they are freed."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        begin: Any = super().__init__
        begin()
        self._known = {one.untyped_storage()._cdata for one in known}
        self._live: dict[int, int] = {}
        self.bytes = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        before = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor):
                self._see(one, before)
        self.peak = max(self.peak, self.bytes)
        return result

    def _see(self, tensor: torch.Tensor, before: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live or key in self._known or key in before:
            return
        self._live[key] = storage.nbytes()
        self.bytes += storage.nbytes()
        weakref.finalize(storage, self._gone, key).atexit = False

    def _gone(self, key: int) -> None:
        self.bytes -= self._live.pop(key, 0)


def measured_peak(function: Callable[[], Any], known: Iterable[torch.Tensor]) -> int:
    """Most bytes of tensors alive at once that were made while a function ran; `known` are tensors that were there before."""
    watch = _Watch(known)
    with torch.autograd.set_multithreading_enabled(False), watch:
        function()
    return watch.peak


def recorded_peak(record: Record) -> int:
    """The same for a record."""
    count = len(record.ops)
    change = [0] * (count + 1)
    for one in record.storages:
        if one.born is not None:
            change[one.born] += one.bytes
            if one.died is not None and one.died <= count:
                change[max(one.died, one.born + 1)] -= one.bytes
    live = peak = 0
    for amount in change[:count]:
        live += amount
        peak = max(peak, live)
    return peak
