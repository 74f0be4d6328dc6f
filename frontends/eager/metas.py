"""Shape functions of cuDNN operators that torch lacks without CUDA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def cudnn_without_card() -> Iterator[None]:
    """Within the context these operators have fake implementations."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, function in _FUNCTIONS.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, function, "Meta")
        yield
    finally:
        library._destroy()


def _grid_sampler(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return x.new_empty((x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]))


def _grid_sampler_backward(x: torch.Tensor, grid: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), grid.new_empty(grid.shape)


def _affine_grid(theta: torch.Tensor, n: int, c: int, h: int, w: int) -> torch.Tensor:
    return theta.new_empty((n, h, w, 2))


def _affine_grid_backward(gradient: torch.Tensor, n: int, c: int, h: int, w: int) -> torch.Tensor:
    return gradient.new_empty((n, 2, 3))


def _rnn_backward(
    x: torch.Tensor, weight: Sequence[torch.Tensor], stride: int, buffer: Any, hx: torch.Tensor, cx: torch.Tensor | None, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    cell = hx.new_empty((0,)) if cx is None else cx.new_empty(cx.shape)
    return x.new_empty(x.shape), hx.new_empty(hx.shape), cell, [one.new_empty(one.shape) for one in weight]


_FUNCTIONS = {
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "cudnn_affine_grid_generator": _affine_grid,
    "cudnn_affine_grid_generator_backward": _affine_grid_backward,
    "_cudnn_rnn_backward": _rnn_backward,
}
