"""Captured training steps: memory against recorded steps, FLOPs of backwards, workspaces of convolutions, what is kept, exports."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import irscope
from irscope.devices import Target, find_device
from irscope.devices.profile import WorkspaceRule
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.memory.caching import CachingAllocator
from irscope.ops.registry import find_op
from irscope.ops.spec import Drop, MemoryEvent, OpCall, Result, Take, Workspace, memory_events
from irscope.passes.memory.tapes import step_tape
from irscope.passes.training.activations import ACTIVATIONS, NODES, Activations, StepTimes, activations_csv, nodes_csv
from irscope.passes.training.memory import StepMemory, TrainingMemory
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.tools.train import step_panels
from irscope.training import PHASES, Trace
from tests.tools.oracle.training import cases, predict

# Captured training steps: memory against recorded steps, categories, phases, what is kept, exports.

torch = pytest.importorskip("torch")

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
    memory: StepMemory = model.manager.get(TrainingMemory())
    return memory


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
    parameters = sum(value.numel() * 4 for value in _net().parameters())
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
    assert all(value.grad is None and value.device.type == "cpu" for value in net.parameters())
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
    # Blocks depend on the workspaces that came before, which are modelled.
    assert origins[0] == "median_peak_mem_bytes.provenance" and set(origins[1:]) == {"modelled"}
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
    assert max(int(row[5]) for row in nodes[1:]) == memory.peak.value
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


# FLOPs of backwards against sums made by hand: twice the forward's for every weight, less what nobody needs a gradient of.
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


@pytest.mark.parametrize("device", ["tpu-v5e", "apple-m2", "epyc-7763", "mi300x"])
def test_what_is_no_cuda_device_has_tensors_and_no_counters_of_an_allocator(device: str) -> None:
    model = _captured(optimizer="adamw", device=device)
    memory = _memory(model)
    highest = alive = 0
    for event in (*memory.tape.resident, *memory.tape.events):
        alive += memory.tape.owners[event].size if event >= 0 else -memory.tape.owners[~event].size
        highest = max(highest, alive)
    assert memory.worst("requested") == Quantity(highest)
    assert sum(memory.at_peak().values(), Quantity(0)) == Quantity(highest)
    assert not {"workspace", "rounding"} & {name for name, size in memory.at_peak().items() if size.value}
    for unknown in (memory.worst("allocated"), memory.worst("active"), memory.worst("reserved"), memory.verdict):
        assert unknown.value is None and "is not a CUDA device" in unknown.note
    for name in ("training", "liveness"):
        report = irscope.run(model, name)[name].report()
        assert report.summary["tensor_peak_bytes"] == Quantity(highest) and "device_peak_bytes" not in report.summary
        assert report.summary.get("fits", Quantity(None)).value is None  # type: ignore[attr-defined]
        assert not any("memory_stats" in note for note in report.notes)
    card = irscope.card(model).fields()
    assert card["peak"] == highest and card["peak_allocated"] is None and card["peak_reserved"] is None


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_one_headline_is_the_highest_step_and_everything_adds_up_to_it(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _captured(optimizer=optimizer)
    trace = model.program.training
    assert isinstance(trace, Trace)
    tape = step_tape(trace, H200)
    begin, end = (len(tape.resident) + sum(event >= 0 for event in tape.events[: tape.starts[span.first]]) for span in trace.steps[1:3])
    usual, asked = CachingAllocator.malloc, Counter[int]()

    def malloc(self: CachingAllocator, size: int, *more: Any, **options: Any) -> Any:
        # In the second step blocks are not split, so that they have more room than in later ones.
        asked[id(self)] += 1
        return usual(self, size + (1 << 20) * (begin < asked[id(self)] <= end), *more, **options)

    monkeypatch.setattr(CachingAllocator, "malloc", malloc)
    memory = _memory(model)
    peaks = [step.peak.allocated for step in memory.steps]
    assert memory.run == "step 2" and peaks[1] > max(peaks[0], peaks[2])
    headline = irscope.run(model, "training")["training"].report()
    assert headline.summary["device_peak_bytes"].value == max(peaks)  # type: ignore[attr-defined]
    assert headline.summary["device_peak_counter"] == "allocated"
    assert sum(memory.at_peak().values(), Quantity(0)).value == max(peaks)
    assert int(memory.total.max()) == max(peaks)
    (live,) = irscope.run(model, "liveness").reports
    assert live.summary["device_peak_bytes"].value == max(peaks)  # type: ignore[attr-defined]
    rows = csv.DictReader(io.StringIO(nodes_csv(memory, StepTimes(memory.target.device, memory.trace))))
    assert max(int(row["median_peak_mem_bytes"]) for row in rows) == max(peaks)
    assert irscope.card(model).fields()["peak"] == max(peaks)
    (bars,) = step_panels("categories", {"": model}, (), 1.0)
    assert sum(height or 0 for height in bars.curves[0].ys) == max(peaks) and "rounding" in bars.names


# One rule for the workspace of a convolution, in a forward pass and in training, and intervals for what no recording tells.

RTX = Target(find_device("rtx4090"))
H200 = Target(find_device("h200"))
RULE = WorkspaceRule(2, 1, 3, "a test", "2026")
FITTED = replace(H200, device=replace(find_device("h200"), workspaces={"convolution": {"f32": RULE}}))
X, W, Y = tensor(DType.F32, (2, 8, 16, 16)), tensor(DType.F32, (4, 8, 3, 3)), tensor(DType.F32, (2, 4, 16, 16))
GIVEN, FILTERS, MADE = (int(str(one.nbytes)) for one in (X, W, Y))
FORWARD, OF_INPUT, OF_FILTERS = (f"cuDNN workspace{end}" for end in ("", ", gradient of the input", ", gradient of the filters"))


def asked(op: str, source: str, target: Target, **attrs: object) -> list[MemoryEvent]:
    spec = find_op(op)
    assert spec is not None
    types = ([X, W, None], [Y]) if op == "nn.conv" else ([Y, X, W], [X, W])
    if op == "nn.conv_transpose":
        types = [Y, W, None], [X]
    given = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1, **attrs}
    return list(memory_events(OpCall(spec, types[0], given, (), types[1], source=source), target))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "size", "most"),
    [
        (RTX, GIVEN + FILTERS, GIVEN + FILTERS + MADE),
        (H200, 0, GIVEN + FILTERS + MADE),
        (FITTED, 2 * GIVEN + FILTERS + 3 * MADE, 2 * GIVEN + FILTERS + 3 * MADE),
    ],
)
def test_a_forward_convolution(target: Target, size: int, most: int) -> None:
    (workspace,) = [one for one in asked("nn.conv", "aten::conv2d", target) if isinstance(one, Workspace)]
    assert (workspace.label, workspace.size, workspace.most) == (FORWARD, size, most)


@pytest.mark.parametrize("target", [RTX, H200, FITTED])
def test_gradients_have_an_interval_each_and_a_name(target: Target) -> None:
    events = asked("grad.conv", "aten::convolution_backward", target)
    assert [(event.label, event.size, event.most) for event in events if isinstance(event, Workspace)] == [
        (OF_INPUT, 0, GIVEN + FILTERS + MADE),
        (OF_FILTERS, 0, GIVEN + FILTERS + MADE),
    ]
    # Each comes once its own result has memory.
    assert [type(event) for event in events] == [Result, Workspace, Result, Workspace]


def test_what_is_transposed_is_the_gradient_of_an_input_and_the_other_way_round() -> None:
    (workspace,) = [one for one in asked("nn.conv_transpose", "aten::conv_transpose2d", RTX) if isinstance(one, Workspace)]
    assert (workspace.label, workspace.size) == (OF_INPUT, 0)
    made = asked("grad.conv", "aten::convolution_backward", RTX, transposed=True)
    assert [one.label for one in made if isinstance(one, Workspace)] == [FORWARD, OF_FILTERS]


def test_the_workspace_is_there_while_copies_of_operands_are() -> None:
    last = tensor(DType.F32, (2, 8, 16, 16), "", (2048, 1, 128, 8))
    spec = find_op("nn.conv")
    assert spec is not None
    call = OpCall(spec, [last, W, None], {"strides": (1, 1), "groups": 1}, (), [Y], source="aten::conv2d")
    assert [type(event) for event in memory_events(call, H200)] == [Result, Take, Workspace, Drop]


def _module() -> Any:
    """A convolution of cuDNN's, and one for which PyTorch has a kernel of its own."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(32, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten())


@pytest.mark.torch
class TestSteps:
    """The same module as a forward pass and as a training step."""

    @staticmethod
    def model(device: str) -> Any:
        torch = pytest.importorskip("torch")
        import irscope
        from irscope.passkit.settings import Settings

        model = irscope.capture_training(_module(), torch.zeros(2, 32, 16, 16), optimizer="sgd")
        model.manager.settings = Settings(device=device)
        return model

    @pytest.mark.parametrize("device", ["rtx4090", "h200"])
    def test_both_ask_for_the_same(self, device: str) -> None:
        torch = pytest.importorskip("torch")
        import irscope
        from irscope.passes.memory.cuda import CudaMemory
        from irscope.passes.training.memory import TrainingMemory

        trained = self.model(device)
        step = trained.manager.get(TrainingMemory()).tape
        captured = irscope.capture(_module(), torch.zeros(2, 32, 16, 16))
        captured.manager.settings = trained.manager.settings
        forward = captured.manager.get(CudaMemory(model="eager")).tape
        steps = len(trained.manager.get(TrainingMemory()).steps)
        tapes = [
            Counter((tape.labels[slot], tape.sizes[slot], spread.high) for slot, spread in tape.spreads.items()) for tape in (forward, step)
        ]
        once, often = ({key: count for key, count in tape.items() if key[0] == FORWARD} for tape in tapes)
        assert len(once) == 1 and {key: count * steps for key, count in once.items()} == often
        assert {label for label, _, _ in tapes[1]} >= {FORWARD, OF_FILTERS}

    def test_counters_of_steps_are_modelled(self) -> None:
        model = self.model("rtx4090")
        (report,) = model.run("training").reports
        json = report.to_json()
        modelled = {key for key, where in json["provenance"].items() if where == "modelled"}
        steps = {f"{step}.{counter}" for step in ("first_step", "steady_step") for counter in ("requested", "allocated", "reserved")}
        assert steps <= modelled and "device_peak.workspace" in modelled
        assert not any(key.startswith("before.") or key in ("device_peak.parameter", "after.requested") for key in modelled)
        assert any("cuDNN workspace, gradient of the filters" in note for note in json["notes"])
        (series,) = json["series"]
        assert [column["key"] for column in series["y"] if column.get("provenance") == Provenance.MODELLED.value] == [
            "workspace",
            "rounding",
        ]


def test_options_of_an_optimizer_come_before_the_usual_ones() -> None:
    def held(**options: Any) -> Any:
        net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        model = irscope.capture_training(net, torch.zeros(8, 64), **options)
        return irscope.run(model, "training")["training"].value

    plain, named = held(optimizer="sgd"), held(optimizer="momentum")
    given = held(optimizer="sgd", optimizer_options={"momentum": 0.9, "lr": 0.1})
    assert given.steady.peak.allocated == named.steady.peak.allocated > plain.steady.peak.allocated
    assert given.first.after.allocated == given.steady.after.allocated, "the state is made in the first step"
    assert given.steady.reserved == (given.steady.peak.reserved, given.steady.after.reserved)
    assert (given.first.requested.peak, given.first.allocated.after) == (given.first.peak.requested, given.first.after.allocated)
    with pytest.raises(irscope.IrscopeError, match="does not take these options") as refused:
        held(optimizer="sgd", optimizer_options={"momentums": 0.9})
    assert refused.value.code == "IRS373" and "momentum, " in refused.value.hint
