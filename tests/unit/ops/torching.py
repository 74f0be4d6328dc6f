"""Random tensors and PyTorch calls for tests that hold operator records against PyTorch on the CPU."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from irscope.ir.graph import Attr
from irscope.ops.values import Array
from tests.unit.ops.calling import Operand, check

CASES = 25
"""Random configurations of each operator."""


def rng_of(name: str) -> random.Random:
    """A generator whose numbers depend on the test's name only."""
    return random.Random(name)


def random_shape(rng: random.Random, low: int = 0, high: int = 4, *, empty: bool = True) -> tuple[int, ...]:
    """A shape with a number of axes in a range; sizes of one and zero are frequent."""
    sizes = [1, 1, 2, 3, 4, 5] + ([0] if empty else [])
    return tuple(rng.choice(sizes) for _ in range(rng.randint(low, high)))


def random_array(rng: random.Random, shape: Sequence[int], dtype: str = "float32") -> Array:
    """An array of moderate numbers."""
    source = np.random.default_rng(rng.getrandbits(32))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(source.random(shape) < 0.5)
    if kind in "iu":
        return np.asarray(source.integers(0 if kind == "u" else -9, 9, shape)).astype(dtype)
    return np.asarray(source.normal(size=shape)).astype(dtype)


def random_axis(rng: random.Random, rank: int) -> int:
    """An axis counted from either side; tensors without axes have the axes 0 and -1."""
    return rng.randrange(-max(rank, 1), max(rank, 1))


def broadcastable(rng: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts with another one: shorter, and one in places."""
    cut = rng.randint(0, len(shape))
    return tuple(1 if rng.random() < 0.3 else size for size in shape[cut:])


def against(
    function: Callable[..., Any], name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], *args: Any, **options: Any
) -> None:
    """Run PyTorch's function on the operands that are arrays (or on `args`) and hold the record against what it gives."""
    import torch

    close = options.pop("close", 1e-5)
    inputs = args or tuple(torch.from_numpy(operand.copy()) for operand in operands if isinstance(operand, np.ndarray))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = function(*inputs, **options)
    results = found if isinstance(found, tuple | list) else (found,)
    check(name, operands, attrs, [result.detach().numpy() for result in results], close=close)


def cases(name: str, count: int = CASES) -> Iterator[random.Random]:
    """One generator a random configuration."""
    rng = rng_of(name)
    for _ in range(count):
        yield random.Random(rng.getrandbits(64))
