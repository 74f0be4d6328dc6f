"""Compiled modules as programs: `irscope.capture` of what torch.compile makes, beside what the real host code of PyTorch counted for it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import irscope
from irscope.cli.main import main
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.report.values import Provenance
from irscope.tools.lowered import compilations_of
from tests.tools.compiled_jobs import FOLDER

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
TRUTH = {row["job"]["id"]: row for row in map(json.loads, (FOLDER / "truth.jsonl").read_text().splitlines()) if "infer" in row["job"]["id"]}
QUICK = ("gpt/infer/bfloat16/compiled",)
RUNS = (("cold", 0), ("warm", 1), ("warm", 2))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The models of the jobs, with inputs on the CPU: the capture moves them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import models  # type: ignore[import-not-found]  # of the jobs

    monkeypatch.setattr(models, "rand", lambda *shape, dtype=torch.float32: torch.zeros(*shape, dtype=dtype))
    monkeypatch.setattr(models, "ids", lambda *shape: torch.zeros(*shape, dtype=torch.int64))
    return models  # type: ignore[no-any-return]


def memory_of(model: irscope.Model) -> DeviceMemory:
    return model.manager.get(CudaMemory())


class Autocast(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return self.inner(*inputs)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in TRUTH])
def test_memory_is_that_of_the_real_host_code(name: str, models: Any) -> None:
    """All that differs is the target, which the job has on the device and a forward does not take."""
    truth = TRUTH[name]
    dtype = getattr(torch, truth["job"].get("dtype", "float32"))
    module, inputs, target = getattr(models, truth["job"]["model"])()
    given = [one.to(dtype) if one.is_floating_point() else one for one in inputs]
    compiled = torch.compile(module.to(dtype).eval(), dynamic=False)
    model = irscope.capture(Autocast(compiled) if truth["job"].get("amp") else compiled, *given, device="h200")
    memory = memory_of(model)
    besides = target.numel() * (dtype.itemsize if target.is_floating_point() else target.itemsize)
    more = {"requested": besides, "allocated": -(-besides // 512) * 512, "reserved": 0}
    for counter, extra in more.items():
        assert memory.central is not None
        found = [memory.central.at(moment, counter) + extra for moment, _ in RUNS]
        assert found == [truth["iterations"][number]["forward"][counter]["peak"] for _, number in RUNS], counter
    nodes = list(model.program.graph)
    assert any(node.op == "compiled.kernel" for node in nodes) and any(node.op in ("math.matmul", "nn.conv") for node in nodes)
    assert irscope.run(model, "flops")["flops"].value.total.flops > 0


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.relu(self.up(self.norm(x))))


X = torch.zeros(32, 64)


def blocks() -> Any:
    return torch.nn.Sequential(Block(), Block())


def in_place() -> Any:
    module = blocks()
    for one in module:
        one.compile()
    return module


def by_forward() -> Any:
    module = blocks()
    module.forward = torch.compile(module.forward)
    return module


WAYS: dict[str, Callable[[], Any]] = {"compiled": lambda: torch.compile(blocks()), "blocks in place": in_place, "its forward": by_forward}


@pytest.mark.parametrize("way", [way if way == "compiled" else pytest.param(way, marks=pytest.mark.full) for way in WAYS])
def test_a_module_that_is_compiled_never_has_eager_s_numbers(way: str) -> None:
    module = WAYS[way]()
    compiled = irscope.capture(module, X, device="h200")
    eager = irscope.capture(blocks(), X, device="h200")
    kernels = [node for node in compiled.program.graph if node.op == "compiled.kernel"]
    assert kernels and any({"relu", "native_layer_norm"} & set(node.attrs["operators"]) for node in kernels)  # type: ignore[arg-type]
    assert all(str(node.loc).startswith(__file__) for node in kernels)
    # Blocks that are compiled one by one share their code: which of them it runs for, the call tells. Others' kernels are of both, too.
    assert {node.scope.module.partition(".")[0] for node in kernels} - {"" if way != "blocks in place" else None} == {"0", "1"}
    ours, theirs = memory_of(compiled), memory_of(eager)
    assert ours.counter("before", "requested") == theirs.counter("before", "requested")
    assert ours.central is not None and theirs.central is not None
    assert ours.central.at("warm", "requested") < theirs.central.at("warm", "requested")
    assert ours.tape is not None and "tuning" in ours.tape.kinds
    report = irscope.run(compiled, "liveness")["liveness"].report().to_json()
    assert report["summary"]["device_peak"]["tuning"] > 0
    # The caller's module and torch are as they were.
    assert next(module.parameters()).device.type == "cpu" and not torch.cuda.is_available()


@pytest.mark.slow
def test_a_compiled_program_is_of_one_device() -> None:
    model = irscope.capture(blocks(), X, device="h200", compile=True)
    found = irscope.run(model, "cuda-memory", device="a100")["cuda-memory"].value
    assert "compiled for h200" in found.reason
    assert found.counter("warm", "requested").provenance is Provenance.UNKNOWN


def mine(graph: Any, inputs: Any) -> Any:
    return graph.forward


@pytest.mark.slow
def test_what_was_compiled_before_in_the_process_is_not_told() -> None:
    def grown(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    before = torch.compile(grown, backend="eager", dynamic=False)
    for size in (2, 3, 4):
        before(torch.zeros(size))
    model = irscope.capture(torch.compile(torch.nn.Linear(8, 8)), torch.zeros(4, 8), device="h100")
    compilations = compilations_of(model)
    assert compilations is not None and compilations.graphs and compilations.events == []


@pytest.mark.slow
def test_a_backend_that_is_not_followed_is_named() -> None:
    model = irscope.capture(blocks(), X, device="h200", compile={"backend": mine})
    (one,) = model.program.guesses
    assert (one.what, one.value) == ("backend", "mine") and [diagnostic.code for diagnostic in model.diagnostics] == ["IRS199"]


class Prints(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        print(x)
        return x * 2


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str, type[IrscopeError]]] = {
    "a break": (Prints, {"compile": {"fullgraph": True}}, "builtin operator `print`", LoadError),
    "a mode": (blocks, {"compile": {"mode": "fast"}}, "no mode 'fast'", UsageError),
    "a backend": (blocks, {"compile": {"backend": "fast"}}, "no compiler backend 'fast'", UsageError),
    "a setting": (blocks, {"compile": {"speed": 1}}, "no setting 'speed'", UsageError),
    "a CPU": (blocks, {"compile": True, "device": "cpu"}, "for a CPU", UsageError),
    "compiled already": (lambda: torch.compile(blocks()), {"compile": {"dynamic": True}}, "settings of its own", UsageError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_one_line(name: str) -> None:
    make, options, words, kind = REFUSED[name]
    with pytest.raises(kind) as caught:
        irscope.capture(make(), X, **{"device": "h200", **options})
    assert words in str(caught.value) and "\n" not in str(caught.value) and "irscope/" not in str(caught.value)
    if name == "a break":
        line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "print(x)" in text)
        assert caught.value.where == f"{__file__}:{line}"


SCRIPT = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(512, 2048), nn.Linear(2048, 512), nn.LayerNorm(512)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

def build(batch=16384):
    return nn.Sequential(Block(), Block()).eval(), (torch.zeros(batch, 512),)
"""


@pytest.mark.slow
def test_the_command_line_compiles_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(SCRIPT)
    name = f"{tmp_path}/model.py:build"
    assert main(["run", "-q", "--device", "h200", "--compile", name]) == 0
    card = capsys.readouterr().out
    assert "as torch.compile compiles it" in card and "better   fuse" not in card and " fuse " not in card
    assert main(["compare", "-q", "--device", "h200", "--compile-b", name, name]) == 0
    first = capsys.readouterr().out.splitlines()[:10]
    assert any(re.match(r"  compiled needs [\d.]+% less memory: ", line) for line in first), first
    assert main(["compare", "-q", "--device", "h200", "--format", "json", "--compile-b", name, name]) == 0
    told = json.loads(capsys.readouterr().out)["reports"][0]
    found = told["summary"]["decides"]
    assert found["later_runs_bytes"]["difference"] < 0 and found["requests_of_a_run"]["b"] < found["requests_of_a_run"]["a"]
    assert found["kernels"]["b"] - found["calls_of_libraries"]["b"] > 0 and found["moved_bytes"]["difference"] < 0
    assert found["peak_allocated_bytes"]["a"] == found["later_runs_bytes"]["a"], "eager's runs are alike"


def test_what_has_no_module_is_not_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(SCRIPT)
    (tmp_path / "model.onnx").write_bytes(b"")
    for line in (
        ["run", "--compile", str(tmp_path / "model.onnx")],
        ["train-plan", "--compile", "--device", "xeon-8480", f"{tmp_path}/model.py:build"],
        ["run", "--compile-with", "mode", f"{tmp_path}/model.py:build"],
        ["run", "--compile", "--device", "xeon-8480", f"{tmp_path}/model.py:build"],
    ):
        assert main(line) == 2
        out, err = capsys.readouterr()
        assert not out and "error IRS396: " in err and err.count("error") == 1
