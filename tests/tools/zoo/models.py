"""What the zoo holds: entries that make a model and its inputs on demand."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_LARGE = 200_000


@dataclass(frozen=True)
class Entry:
    """One model: how to make it, its inputs for a batch size, and what identifies both."""

    name: str
    package: str
    """The package that defines it, `torch` for the zoo's own."""
    recipe: str
    """Everything that the exported file depends on besides versions of packages."""
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    batch: int = 1
    dynamic: bool = True
    """Whether the first axis of every input is a batch that may be left open."""

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


class Flat(nn.Module):
    """A model whose result is a tuple of the tensors in the model's own result; options are given by name."""

    def __init__(self, model: nn.Module, names: tuple[str, ...] = (), options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.options = options or {}

    def forward(self, *args: Any) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, args, strict=False))
        found = self.model(*args[len(named) :], **named, **self.options)
        return tuple(tensors_in(found))


def tensors_in(item: Any) -> Iterator[Tensor]:
    """Tensors inside a result, in order."""
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, dict):
        for part in item.values():
            yield from tensors_in(part)
    elif isinstance(item, list | tuple):
        for part in item:
            yield from tensors_in(part)


class _CheapWeights(TorchFunctionMode):
    """Fills large tensors with zeros instead of random numbers: nothing here depends on the weights' values."""

    _DRAWN = frozenset({"normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"})
    _SHAPED = frozenset({"erfinv_", "mul_", "add_", "clamp_"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")
        if isinstance(target, Tensor) and target.numel() > _LARGE:
            if name in self._DRAWN:
                return target.zero_()
            if name in self._SHAPED:
                return target
        return func(*args, **kwargs)


@contextmanager
def cheap_weights() -> Iterator[None]:
    """Models made here are made in a moment, however large."""
    torch.manual_seed(0)
    with torch.no_grad(), _CheapWeights():
        yield


@functools.cache
def catalogue() -> dict[str, Entry]:
    """Every entry by its name; those whose package is absent are left out."""
    from tests.tools.zoo import language, plain, vision

    entries = [*plain.entries(), *vision.entries(), *language.entries()]
    return {entry.name: entry for entry in entries}
