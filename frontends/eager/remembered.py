"""What operators make of fake tensors that look alike, found again without dispatching them: as torch's own cache of fake tensors, which
takes four times as long to tell whether two calls look alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from irscope.frontends.eager.fakes import is_composite

Key: TypeAlias = tuple[Any, ...]
Place: TypeAlias = tuple[int | str, int]
"""An argument by number or name, and which of a list; -1 where it is no list."""

_MOST: Final = 1 << 15
"""Calls that are remembered; all are forgotten when there are more, as where a program counts with a number that it passes."""
_ASKS_VALUES: Final = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})
_LIFTED: Final = frozenset({"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"})
"""They keep the values of what they are given."""
_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format})
_SETTINGS: Final = (
    *(
        getattr(torch._C, name)
        for name in (
            "_get_default_device",
            "_get_deterministic_algorithms",
            "_get_cudnn_enabled",
            "_get_cudnn_benchmark",
            "_get_cudnn_deterministic",
            "_get_mkldnn_enabled",
            "_get_flash_sdp_enabled",
            "_get_mem_efficient_sdp_enabled",
            "_get_math_sdp_enabled",
            "_get_cudnn_sdp_enabled",
        )
        if hasattr(torch._C, name)
    ),
    torch.get_default_dtype,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    *(functools.partial(ask, device) for ask in (torch.is_autocast_enabled, torch.get_autocast_dtype) for device in ("cuda", "cpu")),
)
"""What operators may look at besides their arguments."""
_keys_of: Callable[[torch.Tensor], Any] = torch._C._dispatch_keys
_without_modes: Any = torch._C._DisableTorchDispatch
_subclass: Any = torch.Tensor._make_subclass


class _New:
    """A result that is a tensor of its own, with a storage of its own or an argument's."""

    __slots__ = ("device", "dtype", "offset", "shape", "state", "strides", "view_of")

    def __init__(self, made: FakeTensor, view_of: Place | None) -> None:
        self.shape, self.strides, self.offset = tuple(made.shape), made.stride(), made.storage_offset()
        self.dtype, self.device = made.dtype, made.fake_device
        self.state = dict(vars(made))
        self.view_of = view_of


class _Several:
    """A list or tuple of results."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: list[Any]) -> None:
        self.kind, self.parts = kind, parts


_REFUSED: Final = object()
"""In place of what a call makes, where that cannot be told from what its arguments look like."""


class Remembered:
    """Results of operators by what they were given, for the tensors of one mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._made: dict[Key, Any] = {}
        self._may: dict[Any, bool] = {}
        self._unsafe = bool(getattr(mode, "_allow_unsafe_data_ptr_access", True))

    # -- what calls look like --------------------------------------------------------------------------------------

    def key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
        """Return what the results of a call depend on; None where that is more than what its arguments look like."""
        may = self._may.get(func)
        if may is None:
            may = self._may[func] = _is_told_by_looks(func)
        if not may:
            return None
        parts: list[Any] = [func]
        parts += [ask() for ask in _SETTINGS]
        for one in args:
            if not self._look(one, parts):
                return None
        for name, one in kwargs.items():
            parts.append(name)
            if not self._look(one, parts):
                return None
        return tuple(parts)

    def _look(self, item: Any, parts: list[Any]) -> bool:
        """Add what an argument looks like; False where it cannot be told."""
        kind = type(item)
        if kind is FakeTensor:
            if item.fake_mode is not self.mode or item.constant is not None or item.layout is not torch.strided:
                return False
            parts += (
                item.dtype,
                item.shape,
                item.stride(),
                item.storage_offset(),
                item.fake_device,
                item.requires_grad,
                item.untyped_storage().nbytes(),
                _keys_of(item).raw_repr(),
            )
            return True
        if kind in _PLAIN:
            # 1, 1.0 and True are equal, but make tensors of other types.
            parts += (kind, item)
            return True
        if kind is tuple or kind is list:
            parts += (kind, len(item))
            return all([self._look(one, parts) for one in item])
        if kind is torch.device:
            parts.append(item)
            return item.type == "cpu" or item.index is not None  # others are on the current device
        return False

    # -- what they make --------------------------------------------------------------------------------------------

    def again(self, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The results of a call; NotImplemented where they are not known."""
        made = self._made.get(key, _REFUSED)
        return NotImplemented if made is _REFUSED else self.make(made, args, kwargs)

    def learn(self, key: Key, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Remember what a call has made."""
        if key in self._made:
            return
        if len(self._made) >= _MOST:
            self._made.clear()
        # An operator that changes what its arguments look like has done so by now.
        if func._schema.is_mutable and self.key(func, args, kwargs) != key:
            self._made[key] = _REFUSED
            return
        self._made[key] = _Learned(self, args, kwargs).of(result)

    def make(self, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if type(made) is _New:
            return self._tensor(made, args, kwargs)
        if type(made) is tuple:
            return _at(made, args, kwargs)
        return None if made is None else made.kind([self.make(one, args, kwargs) for one in made.parts])

    def _tensor(self, made: _New, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As FakeTensorMode makes them: a meta tensor behind one of the device."""
        storage = None if made.view_of is None else _at(made.view_of, args, kwargs).untyped_storage()
        guard = _without_modes()
        try:
            below = torch.empty_strided(made.shape, made.strides, dtype=made.dtype, device="meta")
            if storage is not None:
                below.set_(storage, made.offset, made.shape, made.strides)
            found = _subclass(FakeTensor, below, False, dispatch_device=True, device_for_backend_keys=made.device)
        finally:
            del guard
        if self._unsafe:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(found)
        else:
            torch._C._set_throw_on_mutable_data_ptr(found)
        vars(found).update(made.state)
        return found


class _Learned:
    """What is to be remembered of one call."""

    def __init__(self, remembered: Remembered, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._remembered, self._args, self._kwargs = remembered, args, kwargs
        self._places: dict[int, Place] = {}
        self._storages: dict[int, Place | None] = {}
        """Arguments by storage; None for those of results."""
        for place, one in _tensors(args, kwargs):
            self._places.setdefault(id(one), place)
            self._storages.setdefault(one.untyped_storage()._cdata, place)

    def of(self, result: Any) -> Any:
        """Return how to make these results again, for arguments that look alike."""
        if result is None:
            return None
        if type(result) in (list, tuple):
            parts = [self.of(one) for one in result]
            return _REFUSED if any(one is _REFUSED for one in parts) else _Several(type(result), parts)
        place = self._places.get(id(result))
        return self._tensor(result) if place is None else place

    def _tensor(self, result: Any) -> Any:
        mode = self._remembered.mode
        if type(result) is not FakeTensor or result.layout is not torch.strided or result.requires_grad:
            return _REFUSED
        if not all(one is None or one is mode or isinstance(one, torch.device) for one in vars(result).values()):
            return _REFUSED
        storage = result.untyped_storage()
        view_of = self._storages.get(storage._cdata)
        if view_of is None and storage._cdata in self._storages:
            return _REFUSED  # it shares the memory of another result
        self._storages.setdefault(storage._cdata, None)
        found = _New(result, view_of)
        again = self._remembered.make(found, self._args, self._kwargs)
        same = _keys_of(again).raw_repr() == _keys_of(result).raw_repr() and again.untyped_storage().nbytes() == storage.nbytes()
        return found if same else _REFUSED


def _is_told_by_looks(func: Any) -> bool:
    """Return whether what an operator makes depends on nothing but what its arguments look like and the settings above."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten" or func.name() in _LIFTED:
        return False
    # A composite that changes its arguments may give them other memory.
    return _ASKS_VALUES.isdisjoint(func.tags) and not (func._schema.is_mutable and is_composite(func))


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Place, torch.Tensor]]:
    """Tensors among the arguments, with their places."""
    places: Iterable[tuple[int | str, Any]] = (*enumerate(args), *kwargs.items())
    for place, one in places:
        if isinstance(one, torch.Tensor):
            yield (place, -1), one
        elif isinstance(one, list | tuple):
            yield from (((place, index), part) for index, part in enumerate(one) if isinstance(part, torch.Tensor))


def _at(place: Place, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    argument, index = place
    found = kwargs[argument] if isinstance(argument, str) else args[argument]
    return found if index < 0 else found[index]
