"""Fake tensors: the user's module and inputs as fake tensors, and implementations of operators under them."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
        """A fake tensor like `real` after `real.to(device)`; nothing is allocated or read."""
        known = self._made.get(id(real))
        if known is None:
            # The original is kept alive too, so that its id is not reused.
            known = self._made[id(real)] = (real, self._like(real))
            self._originals[id(known[1])] = real
        return known[1]

    def real(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The real tensor behind a fake one, where it has values."""
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
        """A wrapper subclass around fake tensors."""
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
        """Arguments with tensors replaced by fake ones."""
        return tree_map_only(torch.Tensor, self.tensor, item)

    @contextmanager
    def module(self, module: nn.Module) -> Iterator[nn.Module]:
        """Within the context the module has fake parameters and buffers; afterwards its state is restored, whatever its forward changed."""
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
        """The fake tensor of a known real one; anything else unchanged."""
        known = self._made.get(id(item))
        return known[1] if known is not None and known[0] is item else item


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Restores all attributes of a module and its submodules afterwards, and the states of random generators."""
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
    """The contents of lists, dictionaries and sets among the attributes."""
    return [(found, found.copy()) for found in vars(module).values() if isinstance(found, list | dict | set)]


def mode_of(item: Any, sizes: OpenSizes | None = None) -> FakeTensorMode:
    """The mode of fake tensors that were given, a new one where there are none."""
    for leaf in torch.utils._pytree.tree_leaves(item):
        if isinstance(leaf, FakeTensor):
            mode: FakeTensorMode = leaf.fake_mode
            return mode
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes.shapes if sizes is not None else None)


@contextmanager
def taken_for_real() -> Iterator[None]:
    """Libraries that take another path for fake tensors are told that a tensor is not fake, as in a run on a device."""
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
    """The device of a tensor; that of a fake one is asked for without dispatching the question."""
    return tensor.fake_device if type(tensor) is FakeTensor else tensor.device


@functools.cache
def _text(device: torch.device) -> str:
    return str(device)


def device_text(tensor: torch.Tensor) -> str:
    """The same as text."""
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
        """Whether data-dependent sizes may be guessed."""

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


RULES: dict[str, Callable[..., Any]] = {
    "aten::nonzero": _guessed_nonzero,
    "aten::masked_select": _guessed_masked_select,
    "aten::index": _guessed_index,
    "aten::_unique2": _guessed_unique,
    "aten::unique_dim": _guessed_unique_along,
    "aten::unique_consecutive": _guessed_runs,
    "torchvision::nms": _guessed_nms,
}
