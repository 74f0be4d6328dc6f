"""Compiled programs that Inductor's kernels are not all of: other backends, operators and kernels of a program's own, limits, folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import irscope

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
MODEL = "import torch\nmodel = torch.nn.Linear(64, 64).cuda()\nx = torch.zeros(32, 64, device='cuda')\n"


def _document(folder: Path, program: str) -> dict[str, Any]:
    (folder / "program.py").write_text(MODEL + program)
    done = irscope("simulate", "--device", "h200", "--format", "json", "program.py", folder=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _remarks(found: dict[str, Any], code: str) -> list[str]:
    return [one["message"] for one in found["diagnostics"] if one["code"] == code]


@pytest.mark.slow
def test_graphs_of_other_backends_are_named_and_counted_by_what_they_ask_of_torch(tmp_path: Path) -> None:
    found = _document(
        tmp_path,
        """
def mine(graph, inputs):
    return graph.forward
def step(run):
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        run(x)
    return torch.cuda.max_memory_allocated()
eager = step(model)
assert [step(torch.compile(model, backend=one)) for one in ("eager", "aot_eager", mine)] == [eager] * 3
step(torch.compile(model, backend="cudagraphs"))
""",
    )
    graphs = found["compiled"]["graphs"]
    assert [graph["backend"] for graph in graphs] == ["eager", "aot_eager", "mine", "cudagraphs"]
    assert all(graph["part"] == "graph" and graph["operators"] == 1 and not graph["kernels"] for graph in graphs)
    [text] = _remarks(found, "IRS645")
    assert "backend mine" in text and "not known" in text and "eager" not in text.replace("backend mine", "")


@pytest.mark.slow
def test_what_is_kept_from_compiling_is_named(tmp_path: Path) -> None:
    found = _document(
        tmp_path,
        """
@torch.library.custom_op("mylib::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
@torch.compiler.disable
def slow(x):
    return x.sort(-1)[0]
@torch.compile
def step(x):
    return slow(twice(model(x))) * 2
with torch.no_grad():
    step(x)
""",
    )
    kernels = [kernel["name"] for graph in found["compiled"]["graphs"] for kernel in graph["kernels"]]
    assert any("twice" in name for name in kernels)
    [stop] = [one for one in found["compiled"]["events"] if one["what"] == "graph break"]
    assert stop["line"] == "program.py:16" and "torch.compiler.disable" in stop["cause"]
    assert not found["answers"], "what Inductor reads while it times kernels is nothing that the program reads"


@pytest.mark.slow
def test_an_operator_without_a_fake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        MODEL + '@torch.library.custom_op("mylib::twice", mutates_args=())\ndef twice(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n'
        "torch.compile(lambda x: twice(x))(x)\n"
    )
    done = irscope("simulate", "--device", "h200", "program.py", folder=tmp_path)
    *shown, last = done.stderr.splitlines()
    # What follows is torch's message, in which Dynamo lists frames of its own choice.
    shown = shown[: next(place for place, line in enumerate(shown) if line.startswith("torch._dynamo.exc"))]
    assert done.returncode == 4 and [line.split(", in")[0] for line in shown if line.startswith("  File")] == [
        '  File "program.py", line 7'
    ]
    assert "program.py:7: " in last and "mylib::twice" in last and "torch/_" not in last


@pytest.mark.slow
def test_endless_recompilation_ends_at_the_limit_which_is_named(tmp_path: Path) -> None:
    found = _document(
        tmp_path,
        """
torch._dynamo.config.recompile_limit = 2
@torch.compile(dynamic=False)
def step(x, factor):
    return x * factor
for factor in range(5):
    step(x, factor + 0.5)
""",
    )
    events = {one["what"]: one for one in found["compiled"]["events"]}
    assert events["recompilation"]["line"] == events["limit of recompilations"]["line"] == "program.py:6"
    assert len(found["compiled"]["graphs"]) == 2, "what comes after the limit is not compiled"


@pytest.mark.slow
def test_nothing_is_written_to_the_user_s_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {name: tmp_path / name for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HOME", "XDG_CACHE_HOME")}
    for name, folder in folders.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    _document(tmp_path, "torch.compile(model)(x).sum().backward()\n")
    assert not [path for folder in folders.values() for path in folder.rglob("*")]


@pytest.mark.slow
def test_nothing_is_left_where_temporary_files_are(tmp_path: Path) -> None:
    """Inductor's own folder lies there where nothing else is said. A process of its own: torch's modules make it on import."""
    (tmp_path / "program.py").write_text(MODEL + "torch.optim.AdamW(model.parameters())\ntorch.compile(model)(x).sum().backward()\n")
    (tmp_path / "temporary").mkdir()
    environment = {name: text for name, text in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    environment["TMPDIR"] = str(tmp_path / "temporary")
    command = [sys.executable, "-m", "irscope", "simulate", "--device", "h200", "program.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.12.1+cpu", "2.13.0+cpu", "2.15.0"])
def test_another_version_of_the_compiler_is_named(version: str, tmp_path: Path) -> None:
    program = f"torch.__version__ = torch.torch_version.TorchVersion({version!r})\ntorch.compile(lambda x: x + 1, backend='eager')(x)\n"
    found = _document(tmp_path, program)
    assert [version in remark for remark in _remarks(found, "IRS652")] == [True] * (not version.startswith("2.13"))


@pytest.mark.slow
def test_what_the_compiler_lacks_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        MODEL + "import torch._dynamo.device_interface as d\ndel d.CudaInterface\ntorch.compile(lambda x: x + 1)(x)\n"
    )
    done = irscope("simulate", "--device", "h200", "program.py", folder=tmp_path)
    assert done.returncode == 4 and "the compiler of torch" in done.stderr.splitlines()[-1]
