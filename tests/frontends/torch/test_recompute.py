"""Joint graphs as problems of checkpointing, and plans applied to live modules and measured."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import irscope  # noqa: E402
from irscope.devices.catalogue import DEFAULT_PROCESSOR, find_device  # noqa: E402
from irscope.errors import UsageError  # noqa: E402
from irscope.passes.training.activations import StepTimes  # noqa: E402
from irscope.passes.training.memory import trace_in  # noqa: E402
from irscope.solvers.checkpoint.problem import Phase, Repeat  # noqa: E402
from irscope.solvers.checkpoint.simulate import Simulator  # noqa: E402
from tests.tools.joint import (  # noqa: E402
    joint_from_export_module,
    joint_from_exported,
    joint_with_descriptors,
    read_problem,
    torch_budgets,
)

pytestmark = pytest.mark.torch


class _Watch(TorchDispatchMode):
    """Counts storages that operators make, until they are freed."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        begin: Any = super().__init__
        begin()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._live: dict[int, int] = {}
        self.bytes = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf, before)
        self.peak = max(self.peak, self.bytes)
        return result

    def _see(self, tensor: torch.Tensor, before: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live or key in self._known or key in before:
            return
        self._live[key] = storage.nbytes()
        self.bytes += storage.nbytes()
        weakref.finalize(storage, self._gone, key).atexit = False

    def _gone(self, key: int) -> None:
        self.bytes -= self._live.pop(key, 0)


def measured_peak(function: Callable[[], Any], known: Iterable[torch.Tensor]) -> int:
    """Most bytes of tensors alive at once that were made while a function ran; `known` are tensors that were there before."""
    watch = _Watch(known)
    with torch.autograd.set_multithreading_enabled(False), watch:
        function()
    return watch.peak


class _Block(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "pictures":
            self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(width)
            self.second = nn.Conv2d(width, width, 3, padding=1)
            self.last = nn.BatchNorm2d(width)
        else:
            self.first, self.norm, self.second = nn.Linear(width, 4 * width), nn.LayerNorm(4 * width), nn.Linear(4 * width, width)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.2)

    def forward(self, x: Any) -> Any:
        out = self.second(self.drop(self.act(self.norm(self.first(x)))))
        if self.kind == "rows":
            return x + out
        # What leaves the block has been written over by three operators.
        out = self.last(out)
        out += x
        return self.act(out)


def _model(kind: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    if kind == "pictures":
        blocks = [_Block(8, kind) for _ in range(4)]
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *blocks, nn.Flatten(), nn.Linear(8 * 256, 5)), torch.randn(6, 3, 16, 16)
    return nn.Sequential(nn.Linear(16, 32), *[_Block(32, kind) for _ in range(4)], nn.Linear(32, 5)), torch.randn(64, 16)


def _loss(out: Any) -> Any:
    return out.square().mean()


def _step(model: nn.Module, x: Any) -> None:
    torch.manual_seed(1)
    _loss(model(x)).backward()


@pytest.mark.parametrize(("kind", "share"), [("pictures", "60%"), ("rows", "75%")])
def test_a_plan_keeps_gradients_and_peaks_as_predicted(kind: str, share: str) -> None:
    model, x = _model(kind)
    model.train()
    plan = irscope.plan_checkpoints(model, x, _loss, share, steps=200)
    assert plan.met and plan.policies and plan.seconds > 0
    plain, planned = copy.deepcopy(model), copy.deepcopy(model)
    kept = measured_peak(lambda: _step(plain, x), [*plain.parameters(), *plain.buffers(), x])
    undo = irscope.apply_checkpoints(planned, plan.document())
    peak = measured_peak(lambda: _step(planned, x), [*planned.parameters(), *planned.buffers(), x])
    assert kept == plan.kept_peak
    assert abs(peak - plan.peak) <= 0.03 * peak
    for value, other in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(value.grad, other.grad)
    # Batch normalisation has updated its statistics once, not twice.
    for value, other in zip(plain.buffers(), planned.buffers(), strict=True):
        assert torch.equal(value, other)
    undo()
    assert not any("forward" in vars(inner) for inner in planned.modules())


def test_random_numbers_go_on_as_without_a_plan() -> None:
    model, x = _model("rows")
    plan = irscope.plan_checkpoints(model.train(), x, _loss, "55%", steps=60)
    after = []
    for policies in (None, plan):
        one = copy.deepcopy(model)
        if policies is not None:
            irscope.apply_checkpoints(one, policies)
        _step(one, x)
        after.append(torch.rand(3))
    assert torch.equal(*after)


def test_evaluation_runs_as_it_is() -> None:
    model, x = _model("rows")
    plan = irscope.plan_checkpoints(model.train(), x, _loss, "55%", steps=30)
    model.eval()
    before = model(x)
    irscope.apply_checkpoints(model, plan)
    assert torch.equal(model(x), before)


def test_plans_for_a_card_need_none() -> None:
    model, x = _model("pictures")
    plan = irscope.plan_checkpoints(model.train(), x, _loss, "60%", steps=200, device="cuda")
    assert plan.met and abs(plan.simulated - plan.peak) <= 0.03 * plan.peak


def test_times_are_those_of_the_checkpoint_pass() -> None:
    model, x = _model("rows")
    plan = irscope.plan_checkpoints(model.train(), x, _loss, "55%", steps=10)
    trace = trace_in(irscope.capture_training(model, x, loss=_loss, device=DEFAULT_PROCESSOR).program)
    times = StepTimes(find_device(DEFAULT_PROCESSOR))
    ops = [op for op in trace.in_step(trace.steady) if op.phase != "optimizer"]
    assert plan.step_seconds == pytest.approx(sum(map(times.of, ops)), rel=1e-6)


def test_impossible_budgets_and_foreign_plans_are_told() -> None:
    model, x = _model("rows")
    with pytest.raises(UsageError, match="no plan needs less than") as caught:
        irscope.plan_checkpoints(model, x, _loss, "1KiB", steps=10)
    assert caught.value.code == "IRS390"
    with pytest.raises(UsageError, match="not a share of the peak"):
        irscope.plan_checkpoints(model, x, _loss, "200%", steps=10)
    other = {"format": "irscope-checkpoint-plan", "regions": [{"module": "nowhere", "save": []}]}
    with pytest.raises(UsageError, match="no submodule 'nowhere'"):
        irscope.apply_checkpoints(model, other)
    with pytest.raises(UsageError, match="not a checkpoint plan"):
        irscope.apply_checkpoints(model, {"regions": [1]})


class _WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, _ = _model("rows")

    def forward(self, x: Any) -> Any:
        return _loss(self.inner(x))


@pytest.mark.slow
def test_joint_graphs_are_read_with_phases_aliases_and_random_numbers() -> None:
    with FakeTensorMode():
        joint = joint_with_descriptors(_WithLoss().train(), (torch.randn(64, 16),))
        tagged = read_problem(joint)
        untagged = read_problem(joint_from_export_module(_WithLoss().train(), (torch.randn(64, 16),)))
    parameters = sum(value.numel() * 4 for value in _WithLoss().parameters())
    assert tagged.base == untagged.base == parameters
    assert sum(op.repeat is Repeat.REPLAYED for op in tagged.operators) == 4
    phases = [op.phase for op in tagged.operators]
    assert phases == sorted(phases) and {*phases} == {Phase.FORWARD, Phase.BACKWARD}
    peaks = [Simulator(problem).cost(Simulator(problem).save_all()).peak for problem in (tagged, untagged)]
    assert peaks[0] == peaks[1]
    # Four blocks keep the results of norm, ReLU and dropout, the dropout's mask, and the norm's operand.
    assert len(tagged.saved) >= 4 * 5


@pytest.mark.slow
def test_exported_programs_have_joint_graphs_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(_WithLoss().train(), (torch.randn(64, 16),), strict=False)
        problem = read_problem(joint_from_exported(program))
    assert problem.base == sum(value.numel() * 4 for value in _WithLoss().parameters())
    assert sum(op.repeat is Repeat.REPLAYED for op in problem.operators) == 4
    assert {op.phase for op in problem.operators} == {Phase.FORWARD, Phase.BACKWARD}
    assert Simulator(problem).choices


@pytest.mark.slow
def test_settings_of_torch_are_judged_by_their_true_peak() -> None:
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = joint_with_descriptors(_WithLoss().train(), (torch.randn(64, 16),))
        found = list(torch_budgets(joint, (1.0, 0.0)))
        full = Simulator(read_problem(joint)).cost(Simulator(read_problem(joint)).save_all()).peak
    assert found[1].saved == 0 < found[0].saved
    assert found[1].seconds > found[0].seconds
    # Saving nothing makes everything again at once.
    assert found[1].peak > 0.9 * full
