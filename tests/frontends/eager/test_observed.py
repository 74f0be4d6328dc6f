"""Recording live modules: what was seen, on tensors without data."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import irscope
from irscope.frontends.eager.record import Record
from irscope.frontends.eager.running import bench
from irscope.ir.types import TensorType
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.traced import Ranges
from irscope.passkit.manager import Manager
from irscope.report.values import Provenance, Quantity
from tests.tools.oracle.held_models import HELD
from tests.tools.oracle.models import MODELS, image, sequence
from tests.tools.oracle.storages import record_module

# Lifetimes as they were seen: against real runs, in reports, and where they no longer hold.

pytestmark = pytest.mark.torch
ALL: dict[type[nn.Module], Callable[[], tuple[Any, ...]]] = {**MODELS, **HELD}


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_as_much_is_alive_as_in_a_real_run(make: type[nn.Module]) -> None:
    module, args = make().eval(), MODELS[make]()
    real = record_module(module, args)
    model = irscope.capture(module, *args, device="cpu")
    assert max(model.manager.get(Ranges()).alive()) == real.peak


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_rules_find_the_types_that_ran(make: type[nn.Module]) -> None:
    program = irscope.capture(make().eval(), *ALL[make]()).program
    stated = {output: output.type for node in program.graph for output in node.outputs}
    program.observed = None
    found = Manager(program).get(Shapes)
    for value, type_ in stated.items():
        inferred = found.type_of(value)
        assert isinstance(inferred, TensorType) == isinstance(type_, TensorType)
        if isinstance(inferred, TensorType) and isinstance(type_, TensorType):
            assert (inferred.dtype, inferred.shape) == (type_.dtype, type_.shape), value


class Held(nn.Module):
    """Keeps what nothing reads: in a variable, in a list of the module's, in a cell that a function closes over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 1)
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        wide = self.layer(x)
        self.kept.append(wide.exp())
        closed = wide.tanh()

        def later() -> Tensor:
            return closed

        y = wide.mean((2, 3)).sigmoid()
        y = y.relu()
        assert later() is not None
        return y


def test_why_says_who_held_a_tensor() -> None:
    model = irscope.capture(Held(), *image())
    table = irscope.run(model, "liveness{top=0}")["liveness"].report().tables[0]
    names = [column.key for column in table.columns]
    why = {row[names.index("tensor")]: row[names.index("why")] for row in table.rows()}
    step = max(row[names.index("born")] for row in table.rows())
    assert why["exp"] == "held by Python beyond the end of the run", (why, step)
    ranges = {one.value.name: one for one in model.manager.get(Ranges()).ranges}
    assert ranges["tanh"].held_by.startswith(("local variable `closed`", "Python until"))
    assert ranges["tanh"].dies == len(model.graph) - 1
    assert "`wide`" in ranges["conv2d"].held_by


def test_a_changed_graph_is_analysed_by_rules() -> None:
    model = irscope.capture(Held(), *image())
    assert model.program.watched is not None
    irscope.run(model, "dce")
    dead = [node for node in model.graph if node.op in ("math.exp", "math.tanh")]
    assert not dead
    assert model.program.watched is None
    results = irscope.run(model, "liveness,cuda-memory,explain-peak")
    # Its lifetimes are read from lines of source, as nobody watched a run of the changed graph.
    peak = results["liveness"].report().summary["activation_peak_bytes"]
    assert isinstance(peak, Quantity) and peak.provenance is Provenance.MODELLED and peak.shown > 0


def test_views_share_what_they_shared_in_the_run() -> None:
    class Folds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept = x.exp()
            a, b = torch.meshgrid(kept[0, 0, :3], kept[0, 1, :3], indexing="ij")
            return (a + b).reshape(-1)

    (x,) = sequence()
    model = irscope.capture(Folds(), x)
    assert [one.value.name for one in model.manager.get(Ranges()).ranges] == ["exp", "add"]


# The recorder below autograd: a whole training step, and what links backward to forward.


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
    states = [tensor.name for tensor in record.tensors if tensor.kind == "state"]
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
    reader = max(op.number for op in record.ops if any(read.storage is result.storage for read in op.reads()))
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
