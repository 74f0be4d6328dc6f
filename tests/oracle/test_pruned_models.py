"""Channels that are reported as removable are removed from a module of torch: it gives the same results, and costs what was said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from irscope.api import load
from irscope.passes.cost.count import NodeCosts
from irscope.passes.pruning.prune_report import PruneReport, Pruning

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch


def network(a: int, b: int, c: int) -> torch.nn.Module:
    """A convolution with a norm, a depthwise one, a residual block, a flattened image, a perceptron."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.Hardswish(), nn.Conv2d(b, a, 1, bias=False))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = x + self.body(x)
            return found

    return nn.Sequential(
        nn.Conv2d(3, a, 3, padding=1, bias=False),
        nn.BatchNorm2d(a),
        nn.ReLU6(),
        nn.Conv2d(a, a, 3, padding=1, groups=a, bias=False),
        nn.SiLU(),
        Residual(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(4 * a, c),
        nn.GELU(),
        nn.Linear(c, 5),
    )


def kill(model: torch.nn.Module) -> None:
    """Zeros in rows, in columns, in both operands of the sum, and in a norm's scale and bias."""
    import torch

    parts = dict(model.named_modules())
    with torch.no_grad():
        for name, module in parts.items():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_()  # type: ignore[union-attr]  # there is one
                module.bias.normal_()
                dead = (3, 5) if name == "1" else (0, 6, 7)
                module.weight[list(dead)] = 0
                module.bias[list(dead)] = 0
        parts["5.body.3"].weight[[3, 4, 5]] = 0
        parts["8"].weight[[2, 9]] = 0
        parts["8"].bias[2] = 0
        parts["10"].weight[:, 7] = 0


def exported(model: torch.nn.Module, x: torch.Tensor, path: Path) -> Path:
    import torch

    torch.export.save(torch.export.export(model, (x,)), path)
    return path


def traced(model: torch.nn.Module, x: torch.Tensor, path: Path) -> Path:
    import torch

    torch.jit.trace(model, x).save(str(path))  # type: ignore[no-untyped-call]
    return path


def without(state: dict[str, torch.Tensor], result: Pruning) -> dict[str, torch.Tensor]:
    """The parameters without what can go."""
    left = dict(state)
    for one in result.savings.weights:
        name = str(one.weight.name)
        kept = state[name].numpy()
        for axis, going in enumerate(one.going):
            if going is not None:
                kept = np.compress(~going, kept, axis)
        left[name] = state[name].new_tensor(kept)
    return left


@pytest.mark.parametrize(("save", "ending"), [(exported, "pt2"), (traced, "pt")])
def test_a_pruned_module_does_the_same_for_what_was_promised(save: Callable[..., Path], ending: str, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(4)
    model = network(12, 16, 20).eval()
    kill(model)
    x = torch.randn(2, 3, 8, 8)
    before = load(save(model, x, tmp_path / f"before.{ending}"))
    result = before.manager.get(PruneReport())
    # Channels 3 and 5 of the stem, 0, 6, 7 of the block, 2 and 7 of the perceptron; 9 still has a bias.
    assert result.removable == 7 and result.foldable == 1
    small = network(10, 13, 18).eval()
    small.load_state_dict(without(model.state_dict(), result))
    with torch.no_grad():
        assert torch.allclose(small(x), model(x), atol=1e-5)
    after = load(save(small, x, tmp_path / f"after.{ending}"))
    one, other = before.manager.get(NodeCosts()).total, after.manager.get(NodeCosts()).total
    for measure in ("flops", "read", "written"):
        assert result.savings.total(measure) == getattr(one, measure) - getattr(other, measure)
    elements = [sum(value.numel() for value in module.state_dict().values()) for module in (model, small)]
    assert result.savings.weight_bytes == 4 * (elements[0] - elements[1])
