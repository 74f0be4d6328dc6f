"""The pass that plans what a captured step recomputes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import irscope  # noqa: E402
from irscope.errors import UsageError  # noqa: E402
from irscope.passes.training.checkpoint import budget_of  # noqa: E402

pytestmark = pytest.mark.torch


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow, self.drop = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.narrow(nn.functional.gelu(self.wide(self.norm(x)))))


def test_a_budget_gives_a_plan_with_its_bound() -> None:
    module = nn.Sequential(*[_Block() for _ in range(4)], nn.Linear(32, 4))
    model = irscope.capture_training(module, torch.randn(256, 32), optimizer="adamw")
    results = irscope.run(
        model, "checkpoint{budget=70% steps=500},checkpoint{budget=70% steps=500 random=kept},checkpoint{points=3 steps=100}"
    )
    planned, kept, curve = (report.summary for report in results.reports)
    assert planned["budget_met"] is True
    assert planned["planned_peak_bytes"] <= planned["budget_bytes"] < planned["peak_bytes"]
    assert 0 < planned["bound_seconds"].value <= planned["extra_seconds"].value
    # Masks of dropout, which cannot be made again, are all that may differ.
    assert kept["choices"] < planned["choices"]
    assert "budget_bytes" not in curve
    table = results.reports[2].tables[0]
    assert list(table.data["budget"]) == sorted(table.data["budget"], reverse=True)
    assert table.data["extra"][0] == 0


def test_budgets_are_amounts_or_shares() -> None:
    assert budget_of("2KiB", 100) == 2048
    assert budget_of("25%", 1000) == 250
    for text in ("0%", "101%", "x%"):
        with pytest.raises(UsageError, match="not a share of the peak"):
            budget_of(text, 1000)
