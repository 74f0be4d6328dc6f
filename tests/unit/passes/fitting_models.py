"""Exports with an open batch, made once for all tests that ask what fits."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.tools.oracle.models import MODELS
from tests.tools.torch_files.helpers import save_exported

MUTATING = "Mutated"


class Pooled(nn.Module):
    """Positions of maxima are larger than what is pooled, but only for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(inplace=True))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Pairs(nn.Module):
    """Every element of the batch with every other: what it needs grows with the square."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return (flat @ flat.T).softmax(-1) @ flat


class Chosen(nn.Module):
    """Operators whose kernels depend on sizes: attention, sums over the batch, products with operands that do not lie in order."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x[:, :, ::8, ::8].flatten(2).transpose(1, 2)
        q, k, v = self.project(rows).unflatten(-1, (3, 1, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.sum(0), torch.where(mixed > 0, mixed, mixed.mean(0))


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="irscope-fit-"))


@functools.cache
def dynamic_models() -> dict[str, Path]:
    """Small models as .pt2 files whose batch is open."""
    torch.manual_seed(0)
    image, rows = torch.randn(2, 8, 96, 96), torch.randn(2, 4000, 8)
    found: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {}
    for made, inputs in MODELS.items():
        if made.__name__ != MUTATING:
            found[made.__name__] = (made().eval(), (image if inputs()[0].ndim == 4 else rows,))
    found |= {"Pooled": (Pooled().eval(), (image,)), "Pairs": (Pairs(), (image,)), "Chosen": (Chosen().eval(), (image,))}
    paths = {}
    for name, (model, args) in found.items():
        batch = torch.export.Dim("batch", max=4096)
        paths[name] = save_exported(folder() / f"{name}.pt2", model, args, dynamic=tuple({0: batch} for _ in args))
    return paths


@functools.cache
def dynamic_onnx() -> Path:
    """One of them as an ONNX file."""
    path = folder() / "pooled.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = torch.export.Dim("batch", max=4096)
        args = (torch.randn(2, 8, 96, 96),)
        torch.onnx.export(Pooled().eval(), args, path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False)
    return path
