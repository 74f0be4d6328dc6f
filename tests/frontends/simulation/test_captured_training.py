"""Training steps of compiled modules: `irscope.capture_training` beside what the real host code of PyTorch counted for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import irscope
from irscope.cli.main import main
from irscope.errors import ExitCode, LoadError, UsageError
from irscope.passes.training.memory import StepMemory, TrainingMemory, trace_in
from tests.tools.compiled_jobs import FOLDER, KEYS

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
TRUTH = {row["job"]["id"]: row for row in map(json.loads, (FOLDER / "truth.jsonl").read_text().splitlines())}
JOBS = [name for name in TRUTH if "/train/" in name and name.endswith("compiled")]
QUICK = ("mlp/train/sgd/bfloat16/compiled",)
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The models of the jobs, with inputs on the CPU: the capture moves them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import models  # type: ignore[import-not-found]  # of the jobs

    monkeypatch.setattr(models, "rand", lambda *shape, dtype=torch.float32: torch.zeros(*shape, dtype=dtype))
    monkeypatch.setattr(models, "ids", lambda *shape: torch.zeros(*shape, dtype=torch.int64))
    return models  # type: ignore[no-any-return]


def memory_of(model: irscope.Model) -> StepMemory:
    memory: StepMemory = model.manager.get(TrainingMemory())
    return memory


def left_by_the_forward(memory: StepMemory) -> int:
    """Requested bytes when the backward of the last step begins."""
    begins = [at for at, phase in memory.tape.phases if phase == "backward"][-1]
    alive = set(memory.tape.resident)
    for event in memory.tape.events[:begins]:
        alive ^= {event if event >= 0 else ~event}
    return sum(memory.sizes[slot] for slot in alive)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in JOBS])
def test_every_step_takes_what_the_real_host_code_takes(name: str, models: Any) -> None:
    truth = TRUTH[name]
    job = truth["job"]
    dtype = getattr(torch, job.get("dtype", "float32"))
    module, inputs, target = getattr(models, job["model"])(**job.get("kw", {}))
    given = tuple(one.to(dtype) if one.is_floating_point() else one for one in inputs)
    target = target.to(dtype) if target.is_floating_point() else target

    def loss(out: Any) -> Any:
        if target.is_floating_point():
            return functional.mse_loss(out, target)
        return functional.cross_entropy(out.flatten(0, -2), target.flatten())

    model = irscope.capture_training(
        module.to(dtype),
        given,
        loss=loss,
        optimizer=OPTIMIZERS[job.get("optimizer", "sgd")],
        autocast="bf16" if job.get("amp") else "",
        device="h200",
        compile={"dynamic": False},
    )
    memory = memory_of(model)
    for number, phases in enumerate(truth["iterations"]):
        found = {key: getattr(memory.steps[number].peak, key) for key in KEYS}
        assert found == {key: max(phase[key]["peak"] for phase in phases.values()) for key in KEYS}, number + 1
    assert left_by_the_forward(memory) == truth["iterations"][2]["forward"]["requested"]["now"]
    parts = memory.moments.by_category
    held = sum(sizes[memory.peak_step] for sizes in parts.values())
    assert held == sum(memory.sizes[slot] for slot in memory.moments.alive(memory.peak_step))
    tuning = sum(memory.sizes[slot] for slot, kind in enumerate(memory.tape.kinds) if kind == "tuning")
    assert tuning == 0 or tuning >= 60 << 20


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


X = torch.zeros(32, 64)


def blocks() -> Any:
    return torch.nn.Sequential(Block(), Block())


@pytest.mark.slow
def test_a_compiled_module_has_the_kernels_of_forward_and_backward() -> None:
    module = torch.compile(blocks())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    compiled = irscope.capture_training(module, X, loss="sum", optimizer=optimizer, device="h200")
    trace = trace_in(compiled.program)
    steady = trace.in_step(trace.steady)
    kernels = [op for op in steady if op.source.startswith("triton::")]
    assert {op.phase for op in kernels} == {"forward", "backward"}
    assert {op.phase for op in steady} == {"forward", "backward", "optimizer"} and len(list(compiled.program.graph)) == len(steady)
    assert {op.scope.module.partition(".")[0] for op in kernels} <= {"0", "1", ""} and any(op.scope.module for op in kernels)
    assert all(str(op.loc).startswith(__file__) for op in kernels)
    eager = memory_of(irscope.capture_training(blocks(), X, loss="sum", optimizer="momentum", device="h200"))
    ours = memory_of(compiled)
    assert ours.before.requested == eager.before.requested
    assert sum(piece.size for piece in trace.pieces if piece.category == "activation" and (piece.born or 0) >= trace.steady.first) < sum(
        piece.size for piece in eager.trace.pieces if piece.category == "activation" and (piece.born or 0) >= eager.trace.steady.first
    )
    names = {piece.name for piece in trace.pieces if piece.category == "optimizer state"}
    assert "momentum_buffer of 0.up.weight" in names
    for category in ("parameter", "gradient", "optimizer state"):
        assert ours.moments.by_category[category][-1] == eager.moments.by_category[category][-1], category
    # The caller's module, its optimizer and torch are as they were.
    assert next(module.parameters()).device.type == "cpu" and not torch.cuda.is_available() and not optimizer.state
    assert optimizer.param_groups[0]["params"][0] is next(module.parameters())


@pytest.mark.slow
def test_a_compiled_step_is_of_one_device_and_has_no_plan() -> None:
    model = irscope.capture_training(blocks(), X, loss="sum", device="h200", compile=True)
    with pytest.raises(UsageError, match="compiled for h200"):
        irscope.run(model, "training", device="a100")
    with pytest.raises(UsageError, match="partitioner"):
        irscope.run(model, "checkpoint")
    with pytest.raises(UsageError, match="no setting 'speed'"):
        irscope.capture_training(blocks(), X, loss="sum", compile={"speed": 1})
    with pytest.raises(UsageError, match="settings of its own"):
        irscope.capture_training(torch.compile(blocks()), X, loss="sum", compile={"dynamic": False})
    with pytest.raises(LoadError, match="not a scalar"):
        irscope.capture_training(blocks(), X, loss=lambda out: out, compile=True)


SCRIPT = """
import torch
from torch import nn

def build(batch=32):
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)), torch.zeros(batch, 64)

class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 10)

    def forward(self, x):
        y = self.a(x).relu()
        if y.sum() > 0:
            y = y * 2
        return self.b(y)

def breaks():
    return Breaks(), torch.zeros(32, 64)

def mine():
    return torch.compile(build()[0], backend=lambda graph, inputs: graph.forward), torch.zeros(32, 64)

class Wrong(nn.Linear):
    def forward(self, x):
        return super().forward(x[:, :3])

def wrong():
    return Wrong(64, 64), torch.zeros(32, 64)

def steps():
    def optimizer(parameters):
        made = torch.optim.AdamW(parameters)
        made.step = torch.compile(made.step)
        return made
    return nn.Linear(64, 10), torch.zeros(32, 64), None, optimizer
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def document(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = json.loads(text)
    return found, {report["pass"]: report for report in found["reports"]}


@pytest.mark.slow
def test_train_plan_tells_what_the_compiler_did(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", "--compile-with", "dynamic=false", "--format", "json", f"{script}:build"]) == ExitCode.OK
    found, reports = document(capsys.readouterr().out)
    assert found["model"]["format"] == "compiled"
    assert reports["compiled"]["summary"]["graphs_count"] == 2 and reports["compiled"]["summary"]["saved_bytes"] > 0
    assert reports["compiled"]["summary"]["how"] == "torch.compile(dynamic=False)"
    assert any(table["title"].startswith("saved for the backward") for table in reports["compiled"]["tables"])


@pytest.mark.slow
def test_what_cannot_be_followed_is_named_and_marked(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", "--compile", "--format", "json", f"{script}:breaks"]) == ExitCode.OK
    out, said = capsys.readouterr()
    found, reports = document(out)
    assert "reads a value of the device" in said and found["model"]["assumed"]
    assert reports["compiled"]["summary"]["stops_count"] == 1
    assert main(["train-plan", "--format", "json", f"{script}:mine"]) == ExitCode.OK
    out, said = capsys.readouterr()
    found, reports = document(out)
    assert "backend taken to be <lambda>" in said
    assert any("other backends" in table["title"] for table in reports["compiled"]["tables"])


@pytest.mark.slow
def test_kernels_of_blocks_that_share_their_code_are_those_of_the_block_that_runs() -> None:
    """Forward and backward."""
    module = torch.nn.Sequential(*blocks(), *blocks())
    for one in module:
        one.compile()
    graph = irscope.capture_training(module, X, optimizer="sgd", device="h200").program.graph
    found: dict[str, list[str]] = {"0": [], "1": [], "2": [], "3": []}
    for node in graph:
        if node.op == "compiled.kernel" and node.scope.module:
            found[node.scope.module.partition(".")[0]].append(str(node.attrs["operators"]))
    # The first needs no gradient of its input, and has code of its own.
    assert len(found["1"]) > 4 and sorted(found["1"]) == sorted(found["2"]) == sorted(found["3"])
    assert any("backward" in one for one in found["1"]) and any("backward" in one for one in found["0"])


@pytest.mark.slow
def test_a_compiled_optimizer_is_followed(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", "--compile", "--format", "json", "--nodes-csv", f"{script}.csv", f"{script}:steps"]) == ExitCode.OK
    rows = [line.split(",") for line in Path(f"{script}.csv").read_text().splitlines()]
    assert any(row[1].startswith("triton_") and "optimizer" in row for row in rows), rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--compile", "--budget", "60%", ":build"], ExitCode.USAGE, "IRS394"),
        (["--compile", "--curve", ":build"], ExitCode.USAGE, "IRS394"),
        (["--compile-with", "mode=fast", ":build"], ExitCode.USAGE, "IRS396"),
        (["--compile", ":wrong"], ExitCode.LOAD, "IRS395"),
        (["--compile-with", "dynamic=false", ":mine"], ExitCode.USAGE, "IRS396"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], code: int, said: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    *options, symbol = arguments
    assert main(["train-plan", *options, f"{script}{symbol}"]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and said in error
