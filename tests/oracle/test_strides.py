"""Strides and shared storages that irscope follows through traced code, against those of real tensors."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from irscope.ir.graph import Value  # noqa: E402
from irscope.ir.types import TensorType  # noqa: E402
from irscope.ops.layouts import strides_of  # noqa: E402
from irscope.passes.graph.alias import Alias  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from tests.tools.torch_files.helpers import read  # noqa: E402

pytestmark = pytest.mark.torch

Op = Callable[[Tensor], "Tensor | tuple[Tensor, ...]"]


def _arrangements(x: Tensor, rng: random.Random) -> list[tuple[str, Op]]:
    """Ways to lay a tensor out otherwise."""
    rank = x.dim()
    order = rng.sample(range(rank), rank)
    axis = rng.randrange(rank)
    arrangements: list[tuple[str, Op]] = [
        (f"permute {order}", lambda t: t.permute(order)),
        (f"transpose {axis}", lambda t: t.transpose(axis, -1)),
        (f"step {axis}", lambda t: t[(slice(None),) * axis + (slice(None, None, 2),)]),
        (f"cut {axis}", lambda t: t.narrow(axis, 0, max(1, t.shape[axis] - 1))),
        ("contiguous", lambda t: t.contiguous()),
        ("clone", lambda t: t.clone()),
        ("double", lambda t: t.to(torch.float64)),
        ("same type", lambda t: t.to(t.dtype)),
        (f"unbind {axis}", lambda t: t.unbind(axis)[0] if t.dim() > 2 else t),
        (f"expand {axis}", lambda t: t.select(axis, 0).unsqueeze(axis).expand(t.shape)),
    ]
    if rank == 4:
        arrangements += [("channels last", lambda t: t.contiguous(memory_format=torch.channels_last))] * 4
        arrangements += [("to channels last", lambda t: t.to(memory_format=torch.channels_last))]
    return arrangements


def _operators(x: Tensor, rng: random.Random) -> list[tuple[str, Op]]:
    """Operators whose results share or follow the layout of their operand."""
    rank = x.dim()
    axis = rng.randrange(rank)
    other = rng.sample(range(rank), rank)
    split = rng.randrange(rank - 1)
    vector = torch.ones(x.shape[-1], dtype=x.dtype)
    operators: list[tuple[str, Op]] = [
        ("exp", lambda t: t.exp()),
        ("relu", lambda t: functional.relu(t)),
        ("gelu", lambda t: functional.gelu(t)),
        ("silu", lambda t: functional.silu(t)),
        ("hardtanh", lambda t: functional.hardtanh(t)),
        ("add scalar", lambda t: t + 1),
        ("add vector", lambda t: t + vector),
        ("vector first", lambda t: vector * t),
        ("add plain", lambda t: t + torch.ones_like(t, memory_format=torch.contiguous_format)),
        ("plain first", lambda t: t.contiguous() * t),
        ("two orders", lambda t: t.permute(other).contiguous().permute([other.index(i) for i in range(rank)]) + t),
        ("keepdim", lambda t: t - t.mean(axis, keepdim=True)),
        ("mean", lambda t: t.mean(axis)),
        ("sum keep", lambda t: t.sum((0, -1), keepdim=True)),
        ("amax", lambda t: t.amax(axis)),
        ("softmax", lambda t: t.softmax(axis)),
        ("log_softmax", lambda t: t.log_softmax(axis)),
        ("cumsum", lambda t: t.cumsum(axis)),
        ("compare", lambda t: t > 0),
        ("where", lambda t: torch.where(t > 0, t, t.exp())),
        ("masked_fill", lambda t: t.masked_fill(t > 0, 0.0)),
        ("in place", lambda t: t.clone().mul_(2)),
        ("zeros_like", lambda t: torch.zeros_like(t)),
        ("flatten", lambda t: t.flatten(split, split + 1)),
        ("reshape", lambda t: t.reshape(t.shape[0], -1)),
        ("reshape all", lambda t: t.reshape(-1)),
        ("unflatten", lambda t: t.unflatten(axis, (1, -1))),
        ("split", lambda t: t.split(1, axis)[0]),
        ("chunk", lambda t: t.chunk(2, axis)[0]),
        ("select", lambda t: t.select(axis, 0)),
        ("unsqueeze", lambda t: t.unsqueeze(axis)),
        ("squeeze", lambda t: t.unsqueeze(axis).squeeze(axis)),
        ("unfold", lambda t: t.unfold(axis, 1, 1)),
        ("diagonal", lambda t: t.diagonal(0, 0, 1)),
        ("cat", lambda t: torch.cat([t, t], axis)),
        ("stack", lambda t: torch.stack([t, t], axis)),
        ("flip", lambda t: t.flip(axis)),
        ("roll", lambda t: t.roll(1, axis)),
        ("pad", lambda t: functional.pad(t, (1, 1))),
        ("index_select", lambda t: t.index_select(axis, torch.zeros(1, dtype=torch.int64))),
        ("gather", lambda t: t.gather(axis, torch.zeros(t.shape, dtype=torch.int64))),
        ("layer_norm", lambda t: functional.layer_norm(t, t.shape[-1:])),
        ("linear", lambda t: functional.linear(t, torch.ones(3, t.shape[-1], dtype=t.dtype))),
        ("matmul", lambda t: t @ torch.ones(t.shape[-1], 3, dtype=t.dtype)),
        ("matmul itself", lambda t: t @ t.transpose(-1, -2)),
        ("dropout", lambda t: functional.dropout(t, 0.5, training=False)),
        ("sort", lambda t: t.sort(axis)),
        ("topk", lambda t: t.topk(1, axis)),
    ]
    if rank == 4:
        weight = torch.ones(4, x.shape[1], 1, 1, dtype=x.dtype)
        operators += [
            ("conv", lambda t: functional.conv2d(t, weight)),
            ("conv of channels last", lambda t: functional.conv2d(t, torch.ones(4, t.shape[1], 3, 3, dtype=t.dtype), padding=1)),
            ("conv transposed", lambda t: functional.conv_transpose2d(t, torch.ones(t.shape[1], 4, 2, 2, dtype=t.dtype))),
            ("max_pool", lambda t: functional.max_pool2d(t, 2, 1, 1)),
            ("avg_pool", lambda t: functional.avg_pool2d(t, 2, 1, 1)),
            ("adaptive", lambda t: functional.adaptive_avg_pool2d(t, 2)),
            ("adaptive max", lambda t: functional.adaptive_max_pool2d(t, 2)),
            (
                "batch_norm",
                lambda t: functional.batch_norm(t, torch.zeros(t.shape[1], dtype=t.dtype), torch.ones(t.shape[1], dtype=t.dtype)),
            ),
            ("group_norm", lambda t: functional.group_norm(t, 1)),
            ("instance_norm", lambda t: functional.instance_norm(t) if t.shape[2] * t.shape[3] > 1 else t),
            ("resize", lambda t: functional.interpolate(t, scale_factor=2)),
            ("bilinear", lambda t: functional.interpolate(t, scale_factor=2, mode="bilinear")),
            ("attention", lambda t: functional.scaled_dot_product_attention(t, t, t)),
            ("pixel_shuffle", lambda t: functional.pixel_shuffle(t.repeat(1, 4, 1, 1), 2)),
        ]
    return operators


class _Chain(nn.Module):
    """Lays a tensor out and applies operators, and returns every step."""

    def __init__(self, steps: list[Op]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        tensors: list[Tensor] = []
        for step in self.steps:
            result = step(x)
            results = (result,) if isinstance(result, Tensor) else tuple(result)
            tensors.extend(results)
            x = results[0]
        return tuple(tensors)


def _chosen(rng: random.Random) -> tuple[Tensor, list[str], list[Op]]:
    rank = rng.choice((2, 3, 4, 4, 4))
    x = torch.rand([rng.choice((1, 2, 3, 4)) for _ in range(rank)])
    names: list[str] = []
    steps: list[Op] = []
    current = x
    for count, choose in ((rng.randrange(3), _arrangements), (rng.randrange(1, 3), _operators)):
        for _ in range(count):
            name, step = rng.choice(choose(current, rng))
            result = step(current)
            current = result if isinstance(result, Tensor) else result[0]
            names.append(name)
            steps.append(step)
            if current.dim() < 2 or not current.is_floating_point():
                return x, names, steps
    return x, names, steps


def differences(seed: int, path: Path) -> list[str]:
    """What irscope gets wrong of one random chain of operators."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    while True:
        try:
            x, names, steps = _chosen(rng)
            break
        except (RuntimeError, ValueError, IndexError):
            # Not every operator takes every shape.
            continue
    chain = _Chain(steps)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.jit.trace(chain, (x,), check_trace=False).save(str(path))
        real = chain(x)
    program = read("torchscript", path)
    aliases = Manager(program).get(Alias())
    found: list[str] = []
    inputs = [program.graph.inputs[0], *program.graph.outputs]
    tensors = [x, *real]
    for index, (value, result) in enumerate(zip(inputs, tensors, strict=True)):
        type_ = aliases.strides.type_of(value)
        assert isinstance(type_, TensorType), names
        said = strides_of(type_)
        if any(a != b for a, b, size in zip(said, result.stride(), result.shape, strict=True) if size > 1):
            found.append(f"{names}: result {index} of shape {tuple(result.shape)} has strides {result.stride()}, not {said}")
        for before in range(index):
            shares = tensors[before].untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
            if shares != _shares(aliases, inputs[before], value):
                found.append(f"{names}: results {before} and {index} {'share' if shares else 'do not share'} a storage")
    return found


def _shares(aliases: object, a: Value, b: Value) -> bool:
    from irscope.passes.graph.alias import Aliases

    assert isinstance(aliases, Aliases)
    return aliases.storage(a) is aliases.storage(b)


@pytest.mark.parametrize("seed", range(60))
def test_random_chains(seed: int, tmp_path: Path) -> None:
    assert differences(seed, tmp_path / "chain.pt") == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(60, 1500))
def test_more_random_chains(seed: int, tmp_path: Path) -> None:
    assert differences(seed, tmp_path / "chain.pt") == []
