"""FLOPs of backwards against sums made by hand: twice the forward's for every weight, less what nobody needs a gradient of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import irscope  # noqa: E402
from irscope.devices import find_device  # noqa: E402
from irscope.passes.training.times import StepTimes  # noqa: E402
from irscope.training.trace import Trace  # noqa: E402

nn = torch.nn
Network = torch.nn.Module


def _backward_flops(net: Network, x: torch.Tensor, **options: object) -> int:
    """What irscope counts."""
    trace = irscope.capture_training(net, x, loss="sum", **options).program.training
    assert isinstance(trace, Trace)
    times = StepTimes(find_device("h200"))
    costs = [times.cost(op) for op in trace.in_step(trace.steady) if op.phase == "backward"]
    return sum(int(str(cost.matmul)) for cost in costs if cost is not None)


def _by_hand(net: Network, x: torch.Tensor) -> int:
    """Two products of the forward's size for each layer with weights; one for those whose input is the model's."""
    total = 0

    def note(layer: Network, given: tuple[torch.Tensor, ...], made: Any) -> None:
        nonlocal total
        source = given[0]
        if isinstance(layer, nn.Linear):
            macs = made.numel() * layer.in_features
        elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            macs = made.numel() * layer.weight[0].numel()
        else:
            macs = source.numel() * layer.weight[0].numel()
        total += 2 * macs * (2 if source.requires_grad else 1)

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
    hooks = [layer.register_forward_hook(note) for layer in net.modules() if isinstance(layer, kinds)]
    net(x)
    for hook in hooks:
        hook.remove()
    return total


class Attending(nn.Module):
    """One head-split attention; by hand: three products of its weights, the scores twice over, and the values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, 64))


def _separable(stride: int = 1) -> Network:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 5, padding=2, groups=32, stride=stride), nn.ReLU(), nn.Conv2d(32, 64, 1)
    )


IMAGE, ROWS = (2, 3, 16, 16), (8, 24)
CASES: dict[str, tuple[Callable[[], Network], tuple[int, ...]]] = {
    "linear layers": (lambda: nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 7)), ROWS),
    "linear layers over positions": (lambda: nn.Sequential(nn.Linear(24, 48, bias=False), nn.GELU(), nn.Linear(48, 24)), (2, 5, 24)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2)), IMAGE),
    "depthwise": (_separable, IMAGE),
    "strided depthwise": (lambda: _separable(2), IMAGE),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 64, 3, groups=4, dilation=2)), IMAGE),
    "transposed": (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1)), IMAGE),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(3, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 3, groups=16)), (2, 3, 40)),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(3, 6, 3), nn.ReLU(), nn.Conv3d(6, 6, 3)), (1, 3, 8, 8, 8)),
    "normalized": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_backward_flops_are_those_made_by_hand(name: str) -> None:
    make, shape = CASES[name]
    net = make()
    assert _backward_flops(net, torch.zeros(shape)) == pytest.approx(_by_hand(net, torch.zeros(shape)), rel=0.01)


def test_attention_computes_its_scores_again() -> None:
    net, x = Attending(), torch.zeros(2, 10, 64)
    scores = 2 * 4 * 10 * 10 * 16
    assert _backward_flops(net, x) == pytest.approx(_by_hand(net, x) + 5 * 2 * scores, rel=0.01)
