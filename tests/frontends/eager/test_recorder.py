"""The recorder below autograd: a whole training step, and what links backward to forward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from irscope.frontends.eager.record import Record  # noqa: E402
from irscope.frontends.eager.running import bench  # noqa: E402

pytestmark = pytest.mark.torch


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 8))


def _step(fused: bool) -> Record:
    with bench(_net().train(), (torch.ones(4, 3, 8, 8),), grad=True) as made:
        optimizer = torch.optim.AdamW(made.module.parameters(), fused=fused)
        names = {id(parameter): name for name, parameter in made.module.named_parameters()}

        def step() -> None:
            made.forward().sum().backward()
            with made.recorder.in_phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

        step()
        made.recorder.declare_optimizer(optimizer, names)
        return made.record(step)


@pytest.mark.parametrize("fused", [False, True])
def test_a_training_step_has_its_phases_in_order(fused: bool) -> None:
    record = _step(fused)
    phases = list(dict.fromkeys(op.phase for op in record.ops))
    assert phases == ["forward", "backward", "optimizer"]
    names = {op.name for op in record.ops}
    assert {"convolution", "cudnn_batch_norm", "native_dropout", "addmm"} <= names
    assert {"convolution_backward", "cudnn_batch_norm_backward", "native_dropout_backward"} <= names
    assert ("_fused_adamw_" in names) == fused
    states = [one.name for one in record.tensors if one.kind == "state"]
    assert "exp_avg of 0.weight" in states and "exp_avg_sq of 5.bias" in states


def test_backward_operators_name_the_forward_ones() -> None:
    record = _step(fused=True)
    forward = next(op for op in record.ops if op.name == "convolution")
    backward = next(op for op in record.ops if op.name == "convolution_backward")
    assert backward.sequence == forward.sequence
    assert backward.autograd_node == "ConvolutionBackward0"
    assert forward.scope.path == "0"


def test_autograd_keeps_what_the_backward_reads() -> None:
    record = _step(fused=True)
    relu = next(op for op in record.ops if op.name == "relu")
    result = next(relu.makes())
    reader = max(op.number for op in record.ops if any(one.storage is result.storage for one in op.reads()))
    assert record.ops[reader].phase == "backward"
    assert result.storage is not None and result.storage.died is not None and result.storage.died > reader


def test_attention_and_recurrent_layers_take_the_path_of_a_card() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(32, 32, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y, _ = self.rnn(x)
            q = y.unflatten(-1, (2, 16)).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(q, q, q)

    with bench(Mixed().train(), (torch.ones(2, 16, 32),), grad=True) as made:
        record = made.record(lambda: made.forward().sum().backward())
    names = [op.name for op in record.ops]
    assert "_cudnn_rnn" in names and "_cudnn_rnn_backward" in names
    assert "_scaled_dot_product_efficient_attention" in names and "_scaled_dot_product_efficient_attention_backward" in names


def test_an_operator_that_fails_inside_a_try_is_not_recorded() -> None:
    class Tries(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return x @ x
            except RuntimeError:
                return x + 1

    with bench(Tries(), (torch.ones(2, 3),)) as made:
        assert [op.name for op in made.record().ops] == ["add"]
