"""Recurrent networks: sizes against PyTorch, and the settings ONNX has besides."""

from __future__ import annotations

import random

import pytest

from irscope.ir.dims import symbol
from irscope.ops.spec import RuleError
from tests.unit.ops.calls import agrees_with_symbols, cost, f32, infer


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("seed", range(30))
def test_stacks_are_those_of_torch(seed: int) -> None:
    import torch

    chance = random.Random(seed)
    cell = chance.choice(("lstm", "gru", "rnn"))
    settings = {
        "num_layers": chance.randint(1, 3),
        "bidirectional": chance.random() < 0.5,
        "batch_first": chance.random() < 0.5,
    }
    projected = chance.choice((0, 3)) if cell == "lstm" else 0
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell]
    layer = module(4, 5, **settings, **({"proj_size": projected} if cell == "lstm" else {}))
    shape = (7, 4) if chance.random() < 0.3 else (2, 7, 4)
    output, state = layer(torch.zeros(shape))
    expected = [output, *(state if isinstance(state, tuple) else [state])]
    attrs = {"hidden_size": 5, "proj_size": projected, **settings}
    found = infer(f"rnn.{cell}_stack", f32(*shape), results=len(expected), **attrs)
    assert [str(type_) for type_ in found] == [str(f32(*t.shape)) for t in expected]


@pytest.mark.torch
def test_cells_are_those_of_torch() -> None:
    import torch

    for batch in ((), (3,)):
        h, c = torch.nn.LSTMCell(4, 5)(torch.zeros(*batch, 4))
        state = f32(*batch, 5)
        assert infer("rnn.lstm_cell", f32(*batch, 4), state, state, f32(20, 4), f32(20, 5), results=2) == (f32(*h.shape), f32(*c.shape))
        expected = torch.nn.GRUCell(4, 5)(torch.zeros(*batch, 4))
        assert infer("rnn.gru_cell", f32(*batch, 4), state, f32(15, 4), f32(15, 5)) == (f32(*expected.shape),)


def test_layers_have_a_direction_and_a_layout() -> None:
    weights = (f32(2, 20, 4), f32(2, 20, 5))
    found = infer("rnn.lstm", f32(7, 3, 4), *weights, direction="bidirectional", results=3)
    assert [str(type_) for type_ in found] == ["f32[7,2,3,5]", "f32[2,3,5]", "f32[2,3,5]"]
    other = infer("rnn.lstm", f32(3, 7, 4), *weights, direction="bidirectional", batch_first=True, results=3)
    assert [str(type_) for type_ in other] == ["f32[3,7,2,5]", "f32[3,2,5]", "f32[3,2,5]"]
    agrees_with_symbols("rnn.gru", f32(7, 3, 4), f32(1, 15, 4), f32(1, 15, 5), results=2)
    with pytest.raises(RuleError, match="direction"):
        infer("rnn.lstm", f32(7, 3, 4), *weights)


def test_costs_are_formulas_of_length_and_batch() -> None:
    steps, batch = symbol("T"), symbol("B")
    found = cost("rnn.lstm", f32(steps, batch, 32), f32(1, 256, 32), f32(1, 256, 64), f32(1, 512))
    assert found is not None
    assert found.macs == steps * batch * 4 * 64 * 96
    assert found.transcendental == steps * batch * 64 * 5
    projected = cost("rnn.lstm_stack", f32(10, 2, 32), hidden_size=64, proj_size=16)
    assert projected is not None
    assert projected.macs == 20 * (4 * 64 * (32 + 16) + 64 * 16)
