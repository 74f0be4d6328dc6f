"""What irscope touches of torch's inside, in the version that is installed, and over a build with CUDA where one is at hand.

The build is a folder that CUDA_BUILD_OF_TORCH names: an unpacked wheel in `torch-cuda`, stand-ins for the libraries that it
is linked to in `stubs`. They print TOUCHED for every call that a device would see, and FAKE_DEVICES=-1 makes them a machine without driver.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
torch = pytest.importorskip("torch")
internals = pytest.importorskip("irscope.frontends.eager.internals")

BUILD = os.environ.get("CUDA_BUILD_OF_TORCH", "")
LOOP = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to("cuda")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = net(torch.randn(512, 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stats = torch.cuda.memory_stats()
    print([stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")])
"""


def test_the_method_by_which_dynamo_reads_optimizers_is_found_and_restored() -> None:
    kind, name = internals.dynamo_optimizers()
    before = getattr(kind, name)
    undo = internals.replaced(kind, name, lambda *_: None)
    assert getattr(kind, name) is not before
    undo()
    assert getattr(kind, name) is before


def test_an_inherited_function_shows_again() -> None:
    class Base:
        def read(self) -> int:
            return 1

    class Derived(Base):
        pass

    undo = internals.replaced(Derived, "read", lambda self: 2)
    assert Derived().read() == 2
    undo()
    assert Derived().read() == 1 and "read" not in vars(Derived)


def test_types_of_fsdp_groups_are_read_in_both_layouts() -> None:
    def policy(dtype: object) -> SimpleNamespace:
        return SimpleNamespace(param_dtype=dtype)

    assert internals.fsdp_param_dtypes(SimpleNamespace(mp_policy=policy(torch.bfloat16))) == [torch.bfloat16]
    params = [SimpleNamespace(mp_policy=policy(dtype)) for dtype in (torch.bfloat16, None, torch.bfloat16)]
    assert internals.fsdp_param_dtypes(SimpleNamespace(fsdp_params=params)) == [torch.bfloat16, None]


def test_fake_tensors_make_no_context_of_a_real_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._subclasses import fake_tensor

    asked: list[object] = []
    monkeypatch.setattr(fake_tensor, "init_gpu_context", asked.append)
    with internals.no_device_context():
        fake_tensor.init_gpu_context(torch.device("cuda"))
    assert not asked
    fake_tensor.init_gpu_context(torch.device("cuda"))
    assert asked


def test_triton_is_asked_for_again() -> None:
    from torch.utils import _triton

    _triton.has_triton_package()
    assert _triton.has_triton_package.cache_info().currsize
    internals.forget_triton()
    assert not _triton.has_triton_package.cache_info().currsize


def test_fake_groups_are_made_in_every_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    core = torch._C._distributed_c10d
    options, made_by = internals.fake_groups()
    assert made_by(2, 4, options()).rank() == 2

    class Old:
        """As FakeProcessGroup until 2.8."""

        Options = core.Backend.Options

        def __init__(self, rank: int, size: int) -> None:
            self.rank, self.size = rank, size

    monkeypatch.setattr(core, "FakeProcessGroup", Old)
    options, made_by = internals.fake_groups()
    assert made_by(2, 4, options()).rank == 2
    # In 2.9 the class makes it, of options of its own that take no argument.
    own = {"Options": type("Options", (), {}), "__init__": lambda self, rank, size, options: setattr(self, "options", options)}
    made = type("WithOptions", (), own)
    monkeypatch.setattr(core, "FakeProcessGroup", made)
    options, made_by = internals.fake_groups()
    assert made_by(2, 4, options()).options.__class__ is options


@pytest.mark.parametrize("name", ["is_non_overlapping_and_dense", "is_non_overlapping_and_dense_or_false"])
def test_dense_tensors_are_known_by_either_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("torch._prims_common")
    function = module.is_non_overlapping_and_dense_or_false
    for one in ("is_non_overlapping_and_dense", "is_non_overlapping_and_dense_or_false"):
        monkeypatch.delattr(module, one, raising=False)
    monkeypatch.setattr(module, name, function, raising=False)
    assert internals.is_dense(torch.zeros(4, 3).t()) and not internals.is_dense(torch.zeros(4, 3)[:, :2])


@pytest.mark.parametrize("name", ["_warmup_p2p", "_initialize_pipeline_distributed_state"])
def test_stages_vote_as_this_rank_does_wherever_the_schedule_asks(name: str) -> None:
    asking = f"def {name}(stages, has_backward):\n    return vote(frame(0))\n"
    for dynamic in (False, True):
        mode = SimpleNamespace(needs_dynamic=lambda meta, backward, answer=dynamic: answer)
        scope = {"vote": internals.pipeline_vote, "frame": sys._getframe, "InferenceMode": mode}
        exec(asking, scope)
        assert scope[name]([SimpleNamespace(_user_meta=None)], True) == int(not dynamic)
    assert internals.pipeline_vote(sys._getframe(0)) == 0


def in_build(arguments: list[str], devices: int) -> subprocess.CompletedProcess[str]:
    """Run Python over the build with CUDA on a machine with `devices` devices, -1 for one without driver."""
    folder = Path(BUILD)
    environ = {
        **os.environ,
        "PYTHONPATH": str(folder / "torch-cuda"),
        "LD_LIBRARY_PATH": str(folder / "stubs"),
        "FAKE_DEVICES": str(devices),
        "FAKE_TRACE": "1",
        "FAKE_CUDNN_WS": "0",
    }
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environ, timeout=300, check=False)


@pytest.mark.full
@pytest.mark.skipif(not BUILD, reason="CUDA_BUILD_OF_TORCH names no build of torch with CUDA")
@pytest.mark.parametrize("devices", [-1, 0, 1])
def test_a_build_with_cuda_is_simulated_as_it_really_runs_and_no_device_is_touched(devices: int, tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    truth = in_build([str(script)], 1)
    assert truth.returncode == 0, truth.stderr
    version = in_build(["-c", "import torch; print('.'.join(torch.__version__.split('.')[:2]))"], 1).stdout.strip()
    found = in_build(["-m", "irscope", "simulate", "-q", "--format", "json", "--device", "h200", "--torch", version, str(script)], devices)
    assert found.returncode == 0, found.stderr
    steps = json.loads(found.stdout)["steps"]
    counted = [[step[name]["peak"] for name in ("requested", "allocated", "reserved")] for step in steps]
    told = [json.loads(line) for line in truth.stdout.splitlines() if line.startswith("[")]
    # The program tells the highest until then, the report that of each step.
    assert [max(column) for column in zip(*counted, strict=True)] == told[-1]
    assert "TOUCHED" not in found.stderr


@pytest.mark.full
@pytest.mark.skipif(not BUILD, reason="CUDA_BUILD_OF_TORCH names no build of torch with CUDA")
@pytest.mark.parametrize("command", [["train-plan"], ["run", "--passes", "liveness"]])
def test_captures_of_a_build_with_cuda_touch_no_device(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(4, 8)\n"
    )
    found = [in_build(["-m", "irscope", *command, "--no-cache", "--device", "h200", f"{tmp_path}/net.py:build"], many) for many in (-1, 1)]
    assert [one.returncode for one in found] == [0, 0], found[0].stderr
    assert found[0].stdout == found[1].stdout
    assert "TOUCHED" not in found[1].stderr
