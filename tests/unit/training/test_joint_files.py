"""`irscope train-plan` with graphs from files that hold forward and backward, against torch's own storages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode
from irscope.frontends.base import LoadOptions
from irscope.passes.training.needed import trace_in
from irscope.passkit.settings import Settings
from irscope.trainingcapture import Training, open_training

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Net(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is imported where it is installed
    """Convolution, normalisation, dropout and attention, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
        self.block = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x: Any, y: Any) -> Any:
        found = self.block(self.first(x).flatten(2).transpose(1, 2))
        return torch.nn.functional.cross_entropy(self.last(found.mean(1)), y)


@pytest.fixture(scope="module")
def exported() -> Any:
    torch.manual_seed(0)
    return torch.export.export(Net(), (torch.randn(4, 3, 12, 12), torch.zeros(4, dtype=torch.long)))


@pytest.fixture(scope="module")
def joint(exported: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from torch.export.experimental import _export_forward_backward

    path = tmp_path_factory.mktemp("joint") / "joint.pt2"
    torch.export.save(_export_forward_backward(exported), path)
    return path


def _reports(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["train-plan", *arguments, "--format", "json"]) == ExitCode.OK
    return {one["pass"]: one for one in json.loads(capsys.readouterr().out)["reports"]}


def test_peak_is_that_of_torchs_storages(joint: Path, exported: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from irscope.memory.checkpointing.simulate import Simulator
    from tests.tools.joint import joint_from_exported, read_problem

    graph = joint_from_exported(exported)
    graph.kept |= {node for node in graph.graph.nodes if node.op == "placeholder"}  # who calls holds what it gives
    simulator = Simulator(read_problem(graph))
    wanted = simulator.cost(simulator.save_all()).peak
    found = _reports(capsys, str(joint), "--passes", "training,activations", "--budget", "98%", "--seconds", "1")
    plan = found["checkpoint"]["summary"]
    assert plan["peak_bytes"] == wanted
    assert plan["planned_peak_bytes"] <= 0.98 * wanted
    memory = found["training"]["summary"]
    assert sum(memory["device_peak"].values()) == memory["steady_step"]["allocated"] == memory["device_peak_bytes"]
    assert memory["device_peak"]["parameter"] == sum(one.numel() * 4 for one in Net().parameters())
    assert memory["device_peak_phase"] in ("forward", "backward")
    assert found["activations"]["summary"]["activations_count"] > 5


def test_operators_have_ids_and_the_modules_of_their_parameters(joint: Path) -> None:
    trace = trace_in(open_training(str(joint), LoadOptions(), Training(), Settings()).program)
    assert len({op.name for op in trace.ops}) == len(trace.ops)
    kept = [piece.name for piece in trace.pieces if piece.category == "activation"]
    assert len(set(kept)) == len(kept)
    for phase in ("forward", "backward"):
        modules = {op.scope.module for op in trace.ops if op.phase == phase}
        assert {"first.0", "first.1", "block.linear1", "block.norm2", "last"} <= modules


def test_gradients_that_a_model_returns(tmp_path: Path) -> None:
    class Stepping(torch.nn.Module):  # type: ignore[misc,name-defined]  # as above
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(32, 64)

        def forward(self, x: Any) -> tuple[Any, ...]:
            error = self.inner(x).tanh()
            back = (2 * error / error.numel()) * (1 - error * error)
            return error.pow(2).mean(), back.t() @ x, back.sum(0)

    path = tmp_path / "stepping.pt2"
    torch.export.save(torch.export.export(Stepping(), (torch.randn(16, 32),)), path)
    model = open_training(str(path), LoadOptions(), Training(), Settings())
    trace = trace_in(model.program)
    assert [(one.name, one.size) for one in trace.of("gradient")] == [("inner.weight", 32 * 64 * 4), ("inner.bias", 64 * 4)]
    phases = [op.phase for op in trace.ops]
    assert phases == sorted(phases, reverse=True) and set(phases) == {"forward", "backward"}


def test_a_forward_alone_is_refused(exported: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forward.pt2"
    torch.export.save(exported, path)
    assert main(["train-plan", str(path)]) == ExitCode.LOAD
    said = capsys.readouterr().err
    assert "IRS388" in said and len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (["--batches", "4,8"], "IRS625"),
        (["--memory", "1GiB"], "IRS625"),
        (["--budget", "90%", "--plan-out", "plan.json"], "IRS394"),
    ],
)
def test_what_needs_a_live_module(joint: Path, option: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", str(joint), "--passes", "training", "--seconds", "1", *option]) == ExitCode.USAGE
    assert code in capsys.readouterr().err


def test_largest_batch_of_an_open_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from torch.export.experimental import _export_forward_backward

    class Mean(torch.nn.Module):  # type: ignore[misc,name-defined]  # as above
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(4)])

        def forward(self, x: Any) -> Any:
            return self.blocks(x).pow(2).mean()

    path = tmp_path / "open.pt2"
    sizes = ({0: torch.export.Dim("batch", min=2)},)
    torch.export.save(_export_forward_backward(torch.export.export(Mean(), (torch.randn(8, 64),), dynamic_shapes=sizes)), path)
    assert main(["train-plan", str(path), "--passes", "training"]) == ExitCode.LOAD
    assert "IRS388" in capsys.readouterr().err
    found = _reports(capsys, str(path), "--memory", "60MiB", "--seconds", "0.3")["training"]["summary"]
    assert 0 < found["largest_batch"] < found["largest_batch_recomputing"]
