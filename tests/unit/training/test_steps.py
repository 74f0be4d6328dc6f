"""Captured training steps: memory against recorded steps, categories, phases, what is kept, exports."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import irscope  # noqa: E402
from irscope.passes.activations import Activations  # noqa: E402
from irscope.passes.memory.steps import StepMemory, TrainingMemory  # noqa: E402
from irscope.passes.training.exports import ACTIVATIONS, NODES, activations_csv, nodes_csv  # noqa: E402
from irscope.passes.training.times import StepTimes  # noqa: E402
from irscope.report.values import Quantity  # noqa: E402
from irscope.session import Model  # noqa: E402
from irscope.training.trace import PHASES, Trace  # noqa: E402
from tests.tools.oracle.training import cases, predict  # noqa: E402

nn = torch.nn
QUICK = (
    "mlp-sgd",
    "mlp-adamw",
    "mlp-momentum",
    "mlp-adamw-fused",
    "mlp-adamw-no-foreach",
    "mlp-sgd-zeroed",
    "mlp-adamw-bf16",
    "mlp-momentum-x2",
)
PACKAGES = {"mlp": "torch", "unet": "torch", "lstm": "torch"}


def _net() -> torch.nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Flatten(), nn.Linear(8 * 64, 10)
    )


def _captured(**options: object) -> Model:
    return irscope.capture_training(_net(), torch.zeros(4, 3, 8, 8), **options)


def _memory(model: Model) -> StepMemory:
    found: StepMemory = model.manager.get(TrainingMemory())
    return found


def _check(key: str) -> None:
    case = cases()[key]
    memory, _ = predict(case)
    for step, found in enumerate(memory.steps):
        assert found.peak == case.truth(step), found.name
    assert sum(memory.at_peak().values(), Quantity(0)).value == memory.steady.peak.allocated


@pytest.mark.parametrize("key", QUICK)
def test_counters_are_those_of_a_recorded_step(key: str) -> None:
    _check(key)


@pytest.mark.parametrize("key", ["mlp-sgd"])
def test_the_steady_step_is_the_recorded_one_request_for_request(key: str) -> None:
    memory, _ = predict(cases()[key])
    tape, span = memory.tape, memory.trace.steady
    events = tape.events[tape.starts[span.first] : tape.starts[span.end]]
    asked = [tape.sizes[event] if event >= 0 else -tape.sizes[~event] for event in events]
    assert [size for size in asked if size] == cases()[key].events


@pytest.mark.full
@pytest.mark.parametrize("key", [key for key in cases() if key not in QUICK])
def test_every_recorded_step(key: str) -> None:
    model = key.rpartition("-")[0]
    if model.partition("-")[0] not in ("mlp", "unet", "lstm", "encoder"):
        pytest.importorskip("torchvision")
    if model.partition("-")[0] in ("bert", "gpt2", "llama", "t5", "distilbert", "qwen2", "opt"):
        pytest.importorskip("transformers")
    case = cases()[key]
    memory, _ = predict(case)
    truth, found = case.truth(-1), memory.steady.peak
    assert found.requested == pytest.approx(truth.requested, rel=0.002)
    assert found.allocated == pytest.approx(truth.allocated, rel=0.01)
    assert found.reserved == pytest.approx(truth.reserved, rel=0.01)
    assert sum(memory.at_peak().values(), Quantity(0)).value == found.allocated


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
def test_categories_add_up_and_follow_dataflow(optimizer: str) -> None:
    memory = _memory(_captured(optimizer=optimizer))
    parameters = sum(one.numel() * 4 for one in _net().parameters())
    assert sum(memory.at_peak().values(), Quantity(0)).value == memory.steady.peak.allocated
    for at, total in enumerate(memory.total):
        assert sum(int(column[at]) for column in memory.alive.values()) == total
    assert memory.alive["parameter"].tolist() == [parameters] * len(memory.total)
    assert int(memory.alive["gradient"].max()) == parameters
    states = {"sgd": 0, "momentum": parameters, "adamw": 2 * parameters}[optimizer]
    assert int(memory.alive["optimizer state"].max()) == states


def test_phases_follow_one_another() -> None:
    trace = _captured(optimizer="momentum").program.training
    assert isinstance(trace, Trace)
    phases = [op.phase for op in trace.in_step(trace.steady)]
    assert list(dict.fromkeys(phases)) == ["forward", "backward", "optimizer"]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


def test_accumulated_steps_go_forward_and_backward_twice() -> None:
    trace = _captured(accumulate=2).program.training
    assert isinstance(trace, Trace)
    phases = [op.phase for op in trace.in_step(trace.steady)]
    turns = [phase for phase, before in zip(phases, ["", *phases], strict=False) if phase != before]
    assert turns == ["forward", "backward", "forward", "backward", "optimizer"]


def test_module_is_left_alone() -> None:
    net = _net().eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    irscope.capture_training(net, torch.zeros(4, 3, 8, 8), optimizer="adamw")
    assert not net.training
    assert all(one.grad is None and one.device.type == "cpu" for one in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_own_optimizer_keeps_its_groups() -> None:
    net = _net()
    own = torch.optim.AdamW([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[5].parameters()}], fused=True)
    trace = irscope.capture_training(net, torch.zeros(4, 3, 8, 8), optimizer=own).program.training
    assert isinstance(trace, Trace)
    assert sum(op.source.startswith("aten::_fused_adamw_") for op in trace.in_step(trace.steady)) == 2
    assert not own.state


def test_kept_activations_have_their_moments_in_order() -> None:
    model = _captured(optimizer="adamw")
    found = model.manager.get(Activations())
    memory = _memory(model)
    names = [one.piece.name for one in found.kept]
    assert any("convolution" in name for name in names)
    assert sum(one.piece.size for one in found.kept) >= int(memory.alive["activation"].max())
    for one in found.kept:
        assert one.created <= one.last_forward
        if one.first_backward is not None and one.last_backward is not None:
            assert one.last_forward < one.first_backward <= one.last_backward
        assert one.idle_seconds >= 0 and one.recompute_bytes >= one.piece.size
    dropped = next(one for one in found.kept if "native_dropout" in one.piece.name)
    assert dropped.needs_random_state


def test_exports_have_the_headers_and_no_holes() -> None:
    model = _captured(optimizer="adamw")
    found = model.manager.get(Activations())
    memory = _memory(model)
    nodes = list(csv.reader(io.StringIO(nodes_csv(memory, found.times))))
    activations = list(csv.reader(io.StringIO(activations_csv(memory, found.kept, found.times))))
    origins = [row.pop() for row in nodes]
    assert origins[0] == "median_peak_mem_bytes.provenance" and set(origins[1:]) == {"exact", "modelled"}
    assert (
        ",".join(nodes[0])
        == ("rank,node_name,node_type,gtype,median_run_time_s,median_peak_mem_bytes,median_active_mem_bytes,device,module,time_source")
        == NODES
    )
    assert ",".join(activations[0]) == ACTIVATIONS
    assert len(nodes) == len(memory.total) + 1 and len(activations) == len(found.kept) + 1
    for row in (*nodes[1:], *activations[1:]):
        assert all(row)
    for row in activations[1:]:
        assert all(math.isfinite(float(cell)) for cell in row[1:-2])
    assert max(int(row[5]) for row in nodes[1:]) == memory.steady.peak.requested
    assert {row[-1] for row in nodes[1:]} <= {"roofline of h200", "roofline of h200, bytes alone"}, "nothing ran: it is a model's time"
    assert {row[-1] for row in activations[1:]} == {"roofline of h200"}


class Shared(nn.Module):
    """A module that is called twice, one inside another, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU())
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.block(self.block(x)) * self.scale).square()


@pytest.mark.parametrize("net", [_net, Shared])
def test_rows_have_ids_and_modules(net: Callable[[], torch.nn.Module]) -> None:
    """Names are unique, and a backward operator belongs to the module whose forward it differentiates."""
    module = net()
    x = torch.zeros(4, 8) if net is Shared else torch.zeros(4, 3, 8, 8)
    model = irscope.capture_training(module, x, optimizer="adamw", optimizer_options={"foreach": False})
    memory, kept = _memory(model), model.manager.get(Activations()).kept
    nodes = list(csv.DictReader(io.StringIO(nodes_csv(memory, StepTimes(memory.target.device)))))
    activations = list(csv.DictReader(io.StringIO(activations_csv(memory, kept, StepTimes(memory.target.device)))))
    known = {"(model)", *(name for name, _ in module.named_modules())}
    for rows, key in ((nodes, "node_name"), (activations, "activation_name")):
        assert len({row[key] for row in rows}) == len(rows)
        assert {row["module"] for row in rows} <= known
    assert {one["activation_name"].partition("[")[0] for one in activations} <= {one["node_name"] for one in nodes}
    modules = {phase: {row["module"] for row in nodes if row["gtype"] == phase} for phase in PHASES}
    assert modules["forward"] - modules["backward"] <= {"(model)", "4"}  # flattening has no gradient of its own to compute
    assert {"0", "1", "5"} <= modules["backward"] or {"block.0", "block.1", "block.2"} <= modules["backward"]
    wanted = {name.rpartition(".")[0] or "(model)" for name, _ in module.named_parameters()}
    assert wanted <= modules["optimizer"]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * 2 if y.sum() > 0 else y


class WritesOver(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(self.linear(x))
        y.mul_(2)
        return y


def _frozen() -> torch.nn.Module:
    return nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(
    ("module", "options", "code"),
    [
        (_frozen, {}, "IRS374"),
        (nn.ReLU, {}, "IRS374"),
        (lambda: nn.Linear(4, 4), {"loss": lambda out: out}, "IRS375"),
        (lambda: nn.Linear(4, 4), {"loss": lambda out: 1.0}, "IRS375"),
        (lambda: nn.Linear(4, 4), {"loss": lambda out: out.detach().sum()}, "IRS376"),
        (WritesOver, {}, "IRS377"),
        (Branches, {}, "IRS378"),
        (lambda: nn.Linear(5, 4), {}, "IRS379"),
        (lambda: nn.Linear(4, 4), {"optimizer": "sgdm"}, "IRS373"),
        (lambda: nn.Linear(4, 4), {"loss": "focal"}, "IRS373"),
        (lambda: nn.Linear(4, 4), {"autocast": "f8"}, "IRS373"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(module: object, options: dict[str, object], code: str) -> None:
    with pytest.raises(irscope.IrscopeError) as caught:
        irscope.capture_training(module(), torch.zeros(3, 4), **options)  # type: ignore[operator]
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
