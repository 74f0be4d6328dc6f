"""A recorder that reproduces what autograd's engine and the optimizers do with real tensors, where they treat fake ones differently."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from irscope.frontends.eager.record import Storage
from irscope.frontends.eager.recorder import Recorder

_ADD = torch.ops.aten.add.Tensor
_IN_PLACE = {_ADD: torch.ops.aten.add_.Tensor, torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default}
"""Operators that PyTorch's own code runs out of place on tensor subclasses, and in place on others."""
_ITEM = torch.ops.aten._local_scalar_dense.default
_MOST_KNOWN = 64
"""Size limit, in elements, of host tensors whose values are computed."""

Holders = tuple[int, int, int]
"""Reference counts of a storage, a tensor and its Python object."""


class StepRecorder(Recorder):
    """Records training steps.

    Two things differ for fake tensors. PyTorch's own code takes them for something foreign, and works out of place on intermediate
    results without other references: here it works in place, as on real ones. And values of counters in the host's memory (an optimizer's
    steps), which Python reads, are computed beside them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: dict[int, torch.Tensor] = {}
        self._owned: set[tuple[Any, bool, Holders]] = set()
        """Reference counts of intermediate results that only PyTorch's own code references, by operator and engine."""
        self._learns = False
        self.answers_zero = False
        """Whether values of device tensors that Python reads are zeros, as with CUDA libraries replaced by stubs."""

    @property
    def position(self) -> tuple[int, int]:
        """Operators and deaths so far."""
        return (len(self.record.ops), self._deaths)

    def calibrate(self, device: str) -> None:
        """Measure the reference counts of intermediate results of PyTorch's own code, on three known cases."""
        probe = type(self)(grad=True, device=device, target=self.target)
        probe._learns = True
        probe.run(lambda: _provoke(device))
        self._owned = probe._owned

    def storage_of(self, tensor: torch.Tensor) -> Storage | None:
        """The storage of a tensor as the recording knows it."""
        return self._storage_of(tensor, None)

    def execute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in _IN_PLACE and self._is_owned(func, args):
            return super().execute(_IN_PLACE[func], args, kwargs)
        if func is _ITEM and self.answers_zero and args[0].device.type != "cpu":
            return _zero(args[0].dtype)
        if func is _ITEM and args[0].device.type == "cpu":
            known = self._known.get(args[0].untyped_storage()._cdata)
            if known is not None:
                return known.item()
        result = super().execute(func, args, kwargs)
        self._follow(func, args, kwargs, result)
        return result

    # -- intermediate results --------------------------------------------------------------------------------------

    def _is_owned(self, func: Any, args: Sequence[Any]) -> bool:
        """Whether the first operand has no other reference, so that its memory is reused for the result."""
        runs = torch._C._current_autograd_node() is not None
        if runs and torch.is_grad_enabled():
            return False  # the backward is to be differentiated again
        held = (func, runs, _holders(args, 0))
        if self._learns:
            self._owned.add(held)
            return False
        return held in self._owned and _takes(args[0], args[1] if func is _ADD else None)

    # -- numbers in the host's memory ------------------------------------------------------------------------------

    def _follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Compute an operator on known host values too."""
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        given = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
        if not all(one.device.type == "cpu" and one.numel() <= _MOST_KNOWN for one in (*made, *given)) or not (made or given):
            return
        if func.namespace != "aten" or (given and not all(self._value(one) is not None for one in given)):
            return
        try:
            with torch._C._DisableTorchDispatch():
                values = func(*tree_map(self._valued, tuple(args)), **tree_map(self._valued, dict(kwargs)))
        except Exception:  # what cannot be computed beside is not known
            return
        for one, value in zip(made, [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)], strict=False):
            self._known[one.untyped_storage()._cdata] = value

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        constant = getattr(tensor, "constant", None)
        return self._known.get(tensor.untyped_storage()._cdata, constant)

    def _valued(self, item: Any) -> Any:
        return self._value(item) if isinstance(item, torch.Tensor) else item


def _zero(dtype: torch.dtype) -> bool | int | float:
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def _takes(into: torch.Tensor, other: Any) -> bool:
    """Whether a sum fits where one of its operands is."""
    if not torch.ops.aten.is_non_overlapping_and_dense(into):
        return False
    return not isinstance(other, torch.Tensor) or (
        other.ndim <= into.ndim
        and all(size in (1, whole) for size, whole in zip(other.shape[::-1], into.shape[::-1], strict=False))
        and torch.result_type(into, other) is into.dtype
    )


def _holders(args: Sequence[Any], place: int) -> Holders:
    tensor = args[place]
    return (torch._C._storage_Use_Count(tensor.untyped_storage()._cdata), tensor._use_count(), sys.getrefcount(tensor))


def _provoke(device: str) -> None:
    """Runs the three known cases: a linear layer's addition, a sum of gradients, an indexed gradient."""
    functional = torch.nn.functional
    with torch.no_grad():
        rows = torch.empty(2, 3, 4, device=device).transpose(0, 1)
        functional.linear(rows, torch.empty(4, 4, device=device), torch.empty(4, device=device))
    leaf = torch.empty(2, device=device, requires_grad=True)
    (torch.neg(leaf) * torch.abs(leaf)).sum().backward()
    torch.neg(leaf)[torch.zeros(2, dtype=torch.long, device=device)].sum().backward()
