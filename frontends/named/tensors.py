"""Tensors for the inputs of a named model, the same ones every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from irscope.errors import UsageError
from irscope.frontends.named.recipe import Chosen, Wanted
from irscope.frontends.torch_common.dtypes import torch_dtype
from irscope.ir.dtypes import DType

_LARGEST_REAL: Final = 16 << 20
"""Elements of an input of noise that is still made; what is looked at without running does not need larger ones."""


def make_arguments(chosen: Chosen, *, real: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of the call: by position, then by name."""
    chance = torch.Generator().manual_seed(0)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for one in chosen.inputs:
        made = _argument(one, chosen.sizes, chance, real)
        if one.keyword:
            kwargs[one.name] = made
        else:
            args.append(made)
    return tuple(args), kwargs


def _argument(one: Wanted, sizes: Mapping[str, int], chance: torch.Generator, real: bool) -> Tensor | list[Tensor]:
    shape = tuple(sizes[size] if isinstance(size, str) else size for size in one.shape)
    if one.as_list:
        return [_tensor(one, shape, chance, real) for _ in range(sizes.get("batch", 1))]
    return _tensor(one, shape, chance, real)


def _tensor(one: Wanted, shape: Sequence[int], chance: torch.Generator, real: bool) -> Tensor:
    dtype = torch_dtype(one.dtype)
    if dtype is None:
        raise UsageError(f"torch has no tensors of {one.dtype.text}", code="IRS623", where=one.name)
    if one.fill == "ones":
        return torch.ones(shape, dtype=dtype)
    if not real and prod(shape) > _LARGEST_REAL:
        return torch.empty(shape, dtype=dtype, device="meta")
    if one.fill == "ids" or not dtype.is_floating_point:
        below = min(one.below, 2) if one.dtype is DType.BOOL else one.below
        return torch.randint(0, max(below, 1), tuple(shape), generator=chance).to(dtype)
    return torch.rand(tuple(shape), generator=chance).to(dtype)
