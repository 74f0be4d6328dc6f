"""Fake tensors: the user's module and inputs as fake tensors, implementations of operators under them, and calls that look alike."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass, transform_subclass
from torch.utils._pytree import tree_map_only

from irscope.errors import UsageError
from irscope.frontends.eager.values import OpenSizes

_TABLES = frozenset({"_parameters", "_buffers", "_modules"})


class Fakes:
    """Creates fake tensors on a device, one for each real tensor."""

    def __init__(self, mode: FakeTensorMode, device: str, sizes: OpenSizes | None = None) -> None:
        self.mode = mode
        self._sizes = sizes
        self.device = device
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._originals: dict[int, torch.Tensor] = {}

    def tensor(self, real: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor like `real` after `real.to(device)`; nothing is allocated or read."""
        known = self._made.get(id(real))
        if known is None:
            # The original is kept alive too, so that its id is not reused.
            known = self._made[id(real)] = (real, self._like(real))
            self._originals[id(known[1])] = real
        return known[1]

    def real(self, fake: torch.Tensor) -> torch.Tensor | None:
        """Return the real tensor behind a fake one, where it has values."""
        real = self._originals.get(id(fake))
        if real is None or isinstance(real, FakeTensor) or real.device.type == "meta":
            return None
        return real

    def _like(self, real: Any) -> torch.Tensor:
        made: torch.Tensor
        if is_traceable_wrapper_subclass(real):
            made = self._wrapped(real)
        elif real.layout is not torch.strided:
            made = self.mode.from_tensor(real)
        else:
            # As `to` does: a tensor that is not dense or overlaps itself becomes contiguous.
            strides = real.stride() if torch.ops.aten.is_non_overlapping_and_dense(real) else None
            with self.mode, torch.no_grad():
                open_shape = self._sizes.shape_of(real) if self._sizes is not None else None
                size, dtype = open_shape or tuple(real.shape), real.dtype
                if strides is None or open_shape is not None:
                    made = torch.empty(size, dtype=dtype, device=self.device)
                else:
                    made = torch.empty_strided(size, strides, dtype=dtype, device=self.device)
        if isinstance(real, nn.Parameter):
            return nn.Parameter(made, requires_grad=real.requires_grad)
        return made.requires_grad_(real.requires_grad) if real.is_leaf else made

    def _wrapped(self, real: Any) -> torch.Tensor:
        """Return a wrapper subclass around fake tensors."""
        try:
            made: torch.Tensor = transform_subclass(real, lambda _, inner: self.tensor(inner))
        except Exception as error:  # its class is the user's, and may raise anything
            kind = type(real).__name__
            raise UsageError(
                f"tensors of {kind} cannot be made without data: {type(error).__name__}: {str(error).partition(chr(10))[0][:120]}",
                code="IRS191",
                hint=f"give the module plain tensors, or let {kind}.__tensor_unflatten__ take fake ones",
            ) from error
        return made

    def all(self, item: Any) -> Any:
        """Return the arguments with tensors replaced by fake ones."""
        return tree_map_only(torch.Tensor, self.tensor, item)

    @contextmanager
    def module(self, module: nn.Module) -> Iterator[nn.Module]:
        """Give the module fake parameters and buffers within the context; then restore its state, whatever its forward changed."""
        with unchanged(module):
            for inner in module.modules():
                for table in (inner._parameters, inner._buffers):
                    for name, tensor in table.items():
                        if tensor is not None:
                            table[name] = self.tensor(tensor)  # type: ignore[assignment]
            for inner in module.modules():
                self._swap_mentions(vars(inner))
            yield module

    def _swap_mentions(self, attributes: dict[str, Any]) -> None:
        """Replace parameters in lists too, which recurrent modules keep."""
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                attributes[name] = self._known(value)
            elif isinstance(value, list):
                value[:] = [self._known(item) for item in value]
            elif isinstance(value, dict) and name not in _TABLES:
                value.update({key: self._known(item) for key, item in value.items()})

    def _known(self, item: Any) -> Any:
        """Return the fake tensor of a known real one; anything else unchanged."""
        known = self._made.get(id(item))
        return known[1] if known is not None and known[0] is item else item


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Restore all attributes of a module and its submodules afterwards, and the states of random generators."""
    before = [(inner, dict(vars(inner)), _contents(inner)) for inner in module.modules()]
    numbers = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(numbers)
        for inner, attributes, contents in before:
            state = vars(inner)
            state.clear()
            state.update(attributes)
            for container, items in contents:
                if isinstance(container, list):
                    container[:] = items
                else:
                    container.clear()
                    container.update(items)


def _contents(module: nn.Module) -> list[tuple[Any, Any]]:
    """Return the contents of lists, dictionaries and sets among the attributes."""
    return [(found, found.copy()) for found in vars(module).values() if isinstance(found, list | dict | set)]


def mode_of(item: Any, sizes: OpenSizes | None = None) -> FakeTensorMode:
    """Return the mode of fake tensors that were given, a new one where there are none."""
    for leaf in torch.utils._pytree.tree_leaves(item):
        if isinstance(leaf, FakeTensor):
            mode: FakeTensorMode = leaf.fake_mode
            return mode
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes.shapes if sizes is not None else None)


@contextmanager
def taken_for_real() -> Iterator[None]:
    """Make libraries take a fake tensor for a real one, as in a run on a device: some take another path for fake ones."""
    package, common = torch._subclasses, torch.cuda.amp.common
    asked, unavailable = package.FakeTensor, common.amp_definitely_not_available
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    package.FakeTensor = _NotATensor  # type: ignore[misc, assignment]
    # An operator that fails is reported as an error, once.
    log.setLevel(logging.CRITICAL)
    # Else autocast for CUDA switches itself off.
    common.amp_definitely_not_available = lambda: False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
            yield
    finally:
        package.FakeTensor = asked  # type: ignore[misc]
        common.amp_definitely_not_available = unavailable
        log.setLevel(level)


class _NotATensor:
    """A class without instances."""


# -- tensors of operators ----------------------------------------------------------------------------------------------


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device of a tensor; that of a fake one is asked for without dispatching the question."""
    return tensor.fake_device if type(tensor) is FakeTensor else tensor.device


@functools.cache
def _text(device: torch.device) -> str:
    return str(device)


def device_text(tensor: torch.Tensor) -> str:
    """Return the same as text."""
    return _text(device_of(tensor))


def tensors_within(item: Any) -> list[torch.Tensor]:
    """Tensors among the arguments or results of an operator, in order; these come in lists and tuples alone."""
    if isinstance(item, torch.Tensor):
        return [item]
    return [one for part in item for one in tensors_within(part)] if isinstance(item, list | tuple) else []


# -- composites and data-dependent sizes -------------------------------------------------------------------------------


SILENT = frozenset({"prim", "profiler"})
"""Namespaces of metadata queries and profiler markers."""
MOST_FOUND = 256
"""The guess for data-dependent sizes, unless their upper bound is lower."""
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Inside(TorchDispatchMode):
    """A dispatch mode below the recorder, which does not see the decomposition of an operator."""

    def __init__(self, most_found: int = MOST_FOUND) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]  # torch's own
        self._most_found = most_found
        self.may_guess = False
        """True where data-dependent sizes may be guessed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if is_composite(func):
            with self:
                return func._op_dk(COMPOSITE, *args, **(kwargs or {}))
        try:
            return func(*args, **(kwargs or {}))
        except DynamicOutputShapeException:
            rule = RULES.get(func.name().partition(".")[0]) if self.may_guess else None
            if rule is None:
                raise
            return rule(self._most_found, *args, **(kwargs or {}))


@functools.cache
def is_composite(func: Any) -> bool:
    """Return whether an operator is a composite in C++."""
    if func.namespace in SILENT:
        return False
    found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)
    return found


def _guessed_nonzero(most: int, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((min(most, x.numel()), x.dim()), dtype=torch.int64)


def _guessed_masked_select(most: int, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.new_empty((min(most, torch.broadcast_shapes(x.shape, mask.shape).numel()),))


def _guessed_index(most: int, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Indexing with a mask, done as indexing with a list of positions."""
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            places.extend(x.new_empty((min(most, index.numel()),), dtype=torch.int64) for _ in range(index.dim()))
        else:
            places.append(index)
    found: torch.Tensor = torch.ops.aten.index.Tensor(x, places)
    return found


def _guessed_nms(most: int, boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    return boxes.new_empty((min(most, boxes.shape[0]),), dtype=torch.int64)


def _guessed_unique(
    most: int, x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    inverse = x.new_empty(x.shape if return_inverse else (0,), dtype=torch.int64)
    count = min(most, x.numel())
    return x.new_empty((count,)), inverse, x.new_empty((count if return_counts else 0,), dtype=torch.int64)


def _guessed_unique_along(
    most: int, x: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    """Different slices along an axis."""
    size = x.shape[dim]
    count = min(most, size)
    found = x.new_empty((*x.shape[: dim % x.dim()], count, *x.shape[dim % x.dim() + 1 :]))
    return found, *(
        x.new_empty((many if wanted else 0,), dtype=torch.int64) for many, wanted in ((size, return_inverse), (count, return_counts))
    )


def _guessed_runs(
    most: int, x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, ...]:
    """Runs of equal elements, or of equal slices along an axis."""
    if dim is None:
        return _guessed_unique(most, x, True, return_inverse, return_counts)
    return _guessed_unique_along(most, x, dim, True, return_inverse, return_counts)


def _guessed_counts(most: int, x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """Count each number: all are different, unless the program says how many there are."""
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return x.new_empty((minlength or max(min(most, x.numel()), int(x.numel() > 0)),), dtype=dtype)


def _guessed_repeats(most: int, repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    """Give positions, each as many times as it is to be repeated: once."""
    return repeats.new_empty((min(most, repeats.numel()),))


RULES: dict[str, Callable[..., Any]] = {
    "aten::nonzero": _guessed_nonzero,
    "aten::masked_select": _guessed_masked_select,
    "aten::index": _guessed_index,
    "aten::_unique2": _guessed_unique,
    "aten::unique_dim": _guessed_unique_along,
    "aten::unique_consecutive": _guessed_runs,
    "aten::bincount": _guessed_counts,
    "aten::repeat_interleave": _guessed_repeats,
    "torchvision::nms": _guessed_nms,
}


# What operators make of fake tensors that look alike, found again without dispatching them: as by the cache of fake tensors in torch, which
# takes four times as long to tell whether two calls look alike.

Key: TypeAlias = tuple[Any, ...]
Place: TypeAlias = tuple[int | str, int]
"""An argument by number or name, and which of a list; -1 where it is not a list."""

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
"""Settings that operators may read besides their arguments."""
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
        """Return the results of a call; NotImplemented where they are not known."""
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
        """Return a tensor as FakeTensorMode makes them: a meta tensor behind one of the device."""
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
    """Facts to be remembered of one call."""

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
    """Yield the tensors among the arguments, with their places."""
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
