"""Losses: sizes against PyTorch."""

from __future__ import annotations

import pytest

from irscope.ir.dims import symbol
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import f32, i64, infer, shape_of


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_are_those_of_torch(reduction: str) -> None:
    import torch
    import torch.nn.functional as f

    for shape in ((5, 7), (5, 7, 2, 3), (7,)):
        x = torch.zeros(shape)
        labels = torch.zeros((shape[0], *shape[2:]) if len(shape) > 1 else (), dtype=torch.int64)
        expected = tuple(f.nll_loss(x, labels, reduction=reduction).shape)
        assert shape_of("loss.nll", f32(*shape), i64(*labels.shape), reduction=reduction) == expected
        assert shape_of("loss.cross_entropy", f32(*shape), i64(*labels.shape), reduction=reduction) == expected
        soft = tuple(f.cross_entropy(x, x, reduction=reduction).shape)
        assert shape_of("loss.cross_entropy", f32(*shape), f32(*shape), reduction=reduction) == soft
    x, y = torch.zeros(4, 3), torch.zeros(4, 3)
    functions = {
        "mse": f.mse_loss,
        "l1": f.l1_loss,
        "smooth_l1": f.smooth_l1_loss,
        "huber": f.huber_loss,
        "bce": f.binary_cross_entropy,
        "bce_with_logits": f.binary_cross_entropy_with_logits,
        "kl_div": f.kl_div,
        "soft_margin": f.soft_margin_loss,
        "poisson_nll": f.poisson_nll_loss,
    }
    for name, function in functions.items():
        expected = tuple(function(x, y, reduction=reduction).shape)
        assert shape_of(f"loss.{name}", f32(4, 3), f32(4, 3), reduction=reduction) == expected, name
    lengths = torch.tensor([4, 4])
    probabilities = torch.zeros(6, 2, 5).log_softmax(-1)
    loss = f.ctc_loss(probabilities, torch.ones(2, 4, dtype=torch.int64), torch.tensor([6, 6]), lengths, reduction=reduction)
    assert shape_of("loss.ctc", f32(6, 2, 5), i64(2, 4), i64(2), i64(2), reduction=reduction) == tuple(loss.shape)


def test_optional_results() -> None:
    batch = symbol("B")
    found = infer("loss.cross_entropy", f32(batch, 5, 3), i64(batch, 3), reduction="none", results=2)
    assert [str(type_) for type_ in found] == ["f32[B,3]", "f32[B,5,3]"]
    assert [str(type_) for type_ in infer("loss.nll", f32(batch, 5), i64(batch), results=2)] == ["f32[]", "f32[]"]


def test_labels_must_fit() -> None:
    with pytest.raises(RuleError, match="one label"):
        shape_of("loss.nll", f32(4, 5), i64(3), reduction="none")
