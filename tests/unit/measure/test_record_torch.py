"""What PyTorch's profiler saw becomes operators with their times, memory and modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from torch import nn  # noqa: E402  # only where torch is installed

from irscope.errors import UsageError  # noqa: E402
from irscope.measure.record import torchmodel  # noqa: E402
from irscope.measure.record.process import record_request  # noqa: E402
from irscope.measure.record.request import InputSpec, Options, Request  # noqa: E402
from irscope.measure.record.sink import Sink  # noqa: E402
from irscope.measure.record.torchrun import cuda_device_of, record_module  # noqa: E402
from irscope.recording import ModelRecord, Recording, alive_curve, figures, peak_of, read_recording, without_workspaces  # noqa: E402
from tests.tools.oracle.storages import record_module as watch_storages  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.pool(self.stem(x))).mean((2, 3))
        for block in self.blocks:
            x = self.act(block(x))
        first, second = x.split(4, dim=1)
        return first + second


def recorded(model: nn.Module, path: Path, *args: Any) -> Recording:
    return record_module(model.eval(), args, {}, path, repeats=3, warmup=1)


def of_file(path: Path, target: Path, format_name: str, **inputs: tuple[int, ...]) -> Recording:
    specs = tuple(InputSpec(name, "f32", shape) for name, shape in inputs.items())
    record_request(Request(ModelRecord(path.name, format_name, str(path)), Options(repeats=3, warmup=1), str(target), specs), Sink(target))
    return read_recording(target)


def test_operators_of_a_live_module_have_their_modules_and_types(tmp_path: Path) -> None:
    found = recorded(Net(), tmp_path / "r.jsonl", torch.randn(1, 3, 8, 8))
    assert [(op.op, op.scope) for op in found.ops] == [
        ("aten::conv2d", "stem"),
        ("aten::max_pool2d", "pool"),
        ("aten::relu_", "act"),
        ("aten::mean", ""),
        ("aten::linear", "blocks.0"),
        ("aten::relu_", "act#1"),
        ("aten::linear", "blocks.1"),
        ("aten::relu_", "act#2"),
        ("aten::split", ""),
        ("aten::add", ""),
    ]
    linear = found.ops[4]
    assert linear.inputs == ("f32[1,8]", "f32[8,8]", "f32[8]") and linear.outputs == ("f32[1,8]",)
    assert "aten::addmm" in linear.kernels and linear.made == 32
    assert found.ops[1].outputs == ("f32[1,8,4,4]",)
    assert found.ops[8].outputs == ("f32[1,4]", "f32[1,4]")
    assert found.complete and not found.problems
    for op in found.ops:
        assert op.time is not None and op.time.n == 3 and 0 < op.time.min_us <= op.time.median_us <= op.time.p95_us
    assert found.times("plain") is not None and found.times("profiled") is not None


@pytest.mark.parametrize(
    "build", [Net, lambda: nn.LSTM(8, 8), lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=nn.SiLU())]
)
def test_events_add_up_and_agree_with_watching_the_storages(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build().eval()
    given = torch.randn(1, 3, 8, 8) if isinstance(model, Net) else torch.randn(4, 2, 8)
    found = recorded(model, tmp_path / "r.jsonl", given)
    truth = watch_storages(model, (given,))
    for run in ("cold", "warm"):
        events = found.run(run)
        assert peak_of(without_workspaces(events)).bytes == truth.peak
        counted = figures(found, run)
        assert counted.delta == peak_of(events).bytes
        blocks: dict[int, int] = {}
        for event in events:
            assert event.block is not None
            blocks[event.block] = blocks.get(event.block, 0) + event.bytes
        left = sum(event.bytes for event in events if event.category == "output")
        assert sum(blocks.values()) == alive_curve(events)[-1] == left
    before = found.counter("before")
    assert before is not None and before.allocated is not None
    assert before.allocated.current == sum(one.nbytes for one in (*model.parameters(), *model.buffers(), given))


def test_a_local_variable_lives_until_the_function_returns(tmp_path: Path) -> None:
    found = recorded(Net(), tmp_path / "r.jsonl", torch.randn(1, 3, 8, 8))
    assert [event.bytes for event in found.run("warm") if event.category == "output"] == [16]
    assert found.ops[-1].alive == 16 + 32
    assert alive_curve(found.run("warm"))[-1] == 16


def test_an_exported_program_names_the_nodes_it_ran(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    program = torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),))
    torch.export.save(program, path)
    recording = of_file(path, tmp_path / "r.jsonl", "pt2", x=(1, 3, 8, 8))
    names = [node.name for node in program.graph.nodes if node.op == "call_function"]
    named = [source for op in recording.ops for source in op.sources]
    assert set(named) == set(names) - {"split"}
    split = next(op for op in recording.ops if op.op == "aten::split")
    assert split.sources == ("getitem", "getitem_1")


class Named(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x * scale + shift}


def test_a_program_that_was_exported_with_named_arguments(tmp_path: Path) -> None:
    path = tmp_path / "named.pt2"
    x, scale, shift = torch.randn(4, 2), torch.randn(2), torch.randn(4, 1)
    torch.export.save(torch.export.export(Named(), (x,), {"shift": shift, "scale": scale}), path)
    recording = of_file(path, tmp_path / "r.jsonl", "pt2", x=(4, 2), scale=(2,), shift=(4, 1))
    assert recording.complete, recording.problems
    assert [op.inputs for op in recording.ops] == [("f32[4,2]", "f32[2]"), ("f32[4,2]", "f32[4,1]")]


def test_values_of_inputs_from_a_file(tmp_path: Path) -> None:
    import numpy as np

    values = tmp_path / "values.npz"
    np.savez(values, x=torch.tensor([1.0, -2.0]).to(torch.bfloat16).view(torch.uint16).numpy(), y=np.array([3.0, 4.0]))
    specs = (InputSpec("x", "bf16", (2,)), InputSpec("y", "f32", (2,)), InputSpec("ids", "i64", (2,)))
    made = torchmodel._input_tensors(Request(ModelRecord("m"), Options(values=str(values)), "r", specs), torch.device("cpu"))
    assert [tensor.tolist() for tensor in made] == [[1.0, -2.0], [3.0, 4.0], [1, 1]]


class TooLarge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.small(x).expand(1 << 40, 8) * 2


def test_out_of_memory_tells_where_and_what_was_alive(tmp_path: Path) -> None:
    found = recorded(TooLarge(), tmp_path / "r.jsonl", torch.randn(1, 8))
    assert not found.complete
    problem = found.problems[-1]
    assert (problem.kind, problem.op_name, problem.requested) == ("out_of_memory", "aten::mul", 32 << 40)
    assert [(one.bytes, one.name, one.scope) for one in problem.alive] == [(32, "aten::linear", "small"), (8, "", "")]
    assert problem.alive_bytes == 40 and problem.op == len(found.ops) - 1


class Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        raise ValueError("no\nway")


def test_a_model_that_raises_is_recorded_until_then(tmp_path: Path) -> None:
    found = recorded(Refuses(), tmp_path / "r.jsonl", torch.randn(1, 8))
    assert not found.complete and [op.op for op in found.ops] == ["aten::add_"]
    assert (found.problems[-1].kind, found.problems[-1].text) == ("failed", "ValueError: no")


class Fickle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.relu(x) if self.calls == 1 else torch.sigmoid(x)


def test_runs_that_differ_are_said_to(tmp_path: Path) -> None:
    found = recorded(Fickle(), tmp_path / "r.jsonl", torch.randn(1, 8))
    assert [problem.kind for problem in found.problems] == ["unstable"]
    assert [op.op for op in found.ops] == ["aten::sigmoid"]
    assert all(event.op is None for event in found.run("cold"))


def test_a_pytorch_without_cuda_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="has no CUDA build") as caught:
        cuda_device_of("cuda")
    assert caught.value.code == "IRS479"


def test_a_driver_that_is_too_old_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update your GPU driver")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(UsageError) as caught:
        cuda_device_of("cuda:0")
    assert "too old (found version 11040)" in str(caught.value) and "\n" not in str(caught.value)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="there is no GPU 3; PyTorch sees 1"):
        cuda_device_of("cuda:3")
    assert cuda_device_of("cuda") == torch.device("cuda", 0)
