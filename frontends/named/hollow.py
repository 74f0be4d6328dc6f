"""Modules made without memory for their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._subclasses.fake_tensor import FakeTensorMode

_LARGE: Final = 65_536
"""Tensors of more elements than this have no values."""
_MAKERS: Final = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.empty_strided})


class _Hollow(TorchFunctionMode):
    """Makes large tensors on the meta device; small ones, which a model's own code may look into, are real."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MAKERS and kwargs.get("device") is None and _elements(args, kwargs) > _LARGE:
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


def _elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    size = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else tuple(one for one in args if isinstance(one, int)))
    try:
        return prod(size)
    except TypeError:
        return 0


def made_hollow(make: Callable[[], nn.Module]) -> nn.Module:
    """The module, its large weights without values; all of it real where its own code does not run without them."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            with _Hollow():
                return make()
        except (RuntimeError, TypeError, ValueError):
            return make()


@contextmanager
def faked(module: nn.Module, mode: FakeTensorMode) -> Iterator[nn.Module]:
    """The module with fake tensors of the CPU in the place of its weights, and as it was afterwards."""
    before: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    try:
        known: dict[int, Tensor] = {}
        for part in module.modules():
            tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
            for table in tables:
                for name, tensor in table.items():
                    if tensor is not None:
                        before.append((table, name, tensor))
                        table[name] = known.setdefault(id(tensor), _fake(tensor, mode))
        yield module
    finally:
        for table, name, tensor in before:
            table[name] = tensor


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(_fake(tensor.detach(), mode), tensor.requires_grad)
    if not tensor.is_meta:
        return mode.from_tensor(tensor)
    return FakeTensor(mode, tensor, torch.device("cpu"))
