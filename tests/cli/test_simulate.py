"""`irscope simulate`: programs as users write them, and what they print and end with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked import irscope, python

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

LOOP = """
import sys
import torch
from torch import nn
net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to("cuda")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(64, 256), torch.randn(64, 256))
for step, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True)):
    loss = nn.functional.mse_loss(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{sys.argv[1:]} {step} {loss.item():.3f} {torch.cuda.max_memory_allocated()}")
"""


CUSTOM = """import torch
@torch.library.custom_op("acme::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    import acme_kernels
    return acme_kernels.scale(x)
scale.register_fake(lambda x: torch.empty_like(x))
x = torch.ones(1 << 20, device="cuda")
y = scale(x)
print(torch.cuda.memory_allocated())
"""
EXTENSION = """import torch
from torch.utils.cpp_extension import load_inline
fast = load_inline("fast", cpp_sources="", cuda_sources="__global__ void k() {}")
fast.update([torch.ones(3, device="cuda")])
fast.made(torch.ones(3, device="cuda")).sum()
"""
LISTS = """import torch
x, y = torch.zeros(3, device="cuda"), torch.zeros(4, device="cuda")
torch._foreach_add_([x, x, y, y], [x, x, y, torch.zeros(5, device="cuda")])
"""
FOREIGN = """import torch
torch.library.define("acme::fast", "(Tensor x) -> Tensor")
@torch.library.impl("acme::fast", "CPU")
def fast(x):
    return x
torch.ops.acme.fast(torch.ones(3, device="cuda"))
"""
CTRL_C = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(9)"


def simulate(folder: Path, text: str, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(text)
    return irscope("simulate", *options, str(script), *arguments, folder=folder)


def test_a_training_loop_runs_as_it_is(tmp_path: Path) -> None:
    done = simulate(tmp_path, LOOP, "--device", "h100", "--format", "json", arguments=("--lr", "3"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["outcome"], found["device"], found["rank"]) == ("irscope.simulation/1", "finished", "h100", 0)
    printed = [line for line in done.stderr.splitlines() if line.startswith("['--lr'")]
    assert len(printed) == len(found["steps"]) == 4
    last = found["steps"][-1]
    assert sum(last["by_category"].values()) == last["allocated"]["peak"] == int(printed[-1].split()[-1])
    weights = 4 * (2 * 256 * 1024 + 1024 + 256)
    assert last["by_category"]["parameter"] == last["by_category"]["gradient"] == weights
    assert last["by_category"]["optimizer state"] == 2 * weights
    [answer] = found["answers"]
    assert answer["count"] == 4 and answer["line"].endswith("train.py:13")


def test_steps_stop_it(tmp_path: Path) -> None:
    done = simulate(tmp_path, LOOP, "--steps", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "steps" and len(found["steps"]) == 2


def test_out_of_memory_comes_at_its_line_with_torch_s_message(tmp_path: Path) -> None:
    text = "import torch\nkept = []\nwhile True:\n    kept.append(torch.zeros(1 << 30, device='cuda'))\n"
    done = simulate(tmp_path, text, "--device", "h100")
    assert done.returncode == 1
    assert "does not fit" in done.stdout
    [line] = [line for line in done.stderr.splitlines() if line.startswith("irscope: ")]
    assert "torch.OutOfMemoryError: CUDA out of memory." in done.stderr
    assert "train.py:4: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of" in line


def test_the_program_may_catch_it(tmp_path: Path) -> None:
    text = "import torch\ntry:\n    torch.empty(1 << 40, device='cuda')\nexcept torch.OutOfMemoryError:\n    print('caught')\n"
    text += "import sys, types\nlog = types.SimpleNamespace(write=sys.stdout.write, flush=sys.stdout.flush)\n"
    text += "sys.stdout = sys.stderr = log\nprint('logged')"
    done = simulate(tmp_path, text)
    assert done.returncode == 0 and done.stdout.startswith("caught\nlogged\n") and "Traceback" not in done.stderr


SAVES = """
import os, sys
import torch
x = torch.ones(1 << 20, device="cuda")
torch.cuda.memory._record_memory_history()
if os.path.exists("new.pt"):
    raise SystemExit("it resumes")
for _ in range(2):
    torch.save({"x": x}, "old.pt")
    torch.save({"x": x}, "new.pt")
torch.cuda.memory._dump_snapshot("oom.pickle")
os.makedirs("out/logs")
with open("out/logs/log.txt", "w") as file:
    print("step", file=file)
os.replace("new.pt", "out/new.pt")
torch.load("out/new.pt")["x"].is_cuda and os.path.getsize("old.pt") > 4 << 20 or sys.exit("not there")
os.remove("gone.txt")
assert sorted(os.listdir()) == ["old.pt", "oom.pickle", "out", "train.py"], os.listdir()
"""


@pytest.mark.parametrize("keeps", [False, True])
def test_nothing_is_left_behind(tmp_path: Path, keeps: bool) -> None:
    before = {"old.pt": b"of a real run", "oom.pickle": b"of a real run", "gone.txt": b"x"}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    done = simulate(tmp_path, SAVES, *["--keep-files"] * keeps, "--format", "json")
    assert done.returncode == 0, done.stderr
    left = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: left.pop(name).read_bytes() for name in before} == before
    assert sorted(left) == [*(["out/logs/log.txt", "out/new.pt"] if keeps else []), "train.py"]
    found = json.loads(done.stdout)
    files = {str(Path(file["path"]).relative_to(tmp_path)): file for file in found["files"]}
    assert {name: (Path(file["line"]).name, file["was_there"], file["kept"]) for name, file in files.items()} == {
        "old.pt": ("train.py:9", True, False),
        "oom.pickle": ("train.py:11", True, False),
        "out/logs/log.txt": ("train.py:13", False, keeps),
        "out/new.pt": ("train.py:10", False, keeps),
    }
    [said] = [one["message"] for one in found["diagnostics"] if one["code"] == "IRS653"]
    assert said.startswith("4 files that the program wrote (8.")
    assert ("except 2 that existed before, which are unchanged" if keeps else "were deleted when it ended") in said


SHARDS = """
import os
import torch
import torch.distributed.checkpoint as checkpoints
net = torch.nn.Linear(1024, 1024).cuda()
checkpoints.save({"net": net.state_dict()}, checkpoint_id="checkpoints/1")
checkpoints.load({"net": net.state_dict()}, checkpoint_id="checkpoints/1")
assert sorted(os.listdir("checkpoints/1")) == [".metadata", "__0_0.distcp"]
torch.jit.script(net.cpu()).save("net.pt")
assert isinstance(torch.jit.load("net.pt"), torch.nn.Module)
"""


def test_distributed_checkpoints_and_torchscript_are_read_back_and_vanish(tmp_path: Path) -> None:
    done = simulate(tmp_path, SHARDS, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert sorted(Path(file["path"]).name for file in json.loads(done.stdout)["files"]) == [".metadata", "__0_0.distcp", "net.pt"]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_files_of_a_program_that_is_killed_vanish(tmp_path: Path) -> None:
    text = "import os, sys\nopen('a.txt', 'w').write('x')\nprint(os.path.realpath(f'/proc/self/fd/{open(\"a.txt\").fileno()}'))\n"
    text += "print(os.readlink(f'/proc/self/fd/{os.open(\"a.txt\", os.O_RDONLY)}'), file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)"
    done = simulate(tmp_path, text)
    assert done.returncode == -signal.SIGKILL
    place = Path(next(line for line in done.stderr.splitlines() if line.endswith("/a.txt")))
    assert place.parent != tmp_path and not (tmp_path / "a.txt").exists()
    until = time.monotonic() + 20
    while place.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    "command", [["simulate", "train.py"], ["generate", "transformers:gpt2"], ["fit", "--free=context", "transformers:gpt2"]]
)
def test_a_device_that_is_no_cuda_device_simulates_nothing(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP, encoding="utf-8")
    done = irscope(command[0], "--device", "tpu-v5e", *command[1:], folder=tmp_path)
    assert done.returncode == 2 and "IRS427" in done.stderr and not done.stdout


def test_torch_cuda_answers(tmp_path: Path) -> None:
    text = """
import torch
assert torch.cuda.is_available() and torch.cuda.device_count() == 8 and torch.cuda.get_device_name() == "NVIDIA H100 SXM"
free, total = torch.cuda.mem_get_info()
kept = torch.zeros(1 << 20, device="cuda")
assert torch.cuda.memory_allocated() == 4 << 20 and torch.cuda.memory_reserved() == 20 << 20
assert torch.cuda.mem_get_info() == (free - (20 << 20), total)
assert kept.sum().item() == 0 and kept.cpu().eq(0).all() and "cuda" in repr(kept)
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    other = torch.zeros(1 << 20, device="cuda")
kept.record_stream(side)
torch.cuda.current_stream().wait_stream(side)
event = torch.cuda.Event(enable_timing=True)
event.record()
event.synchronize()
assert {one["stream"] for one in torch.cuda.memory._snapshot()["segments"]} == {0, 1}
assert torch.cuda.memory._snapshot()["allocator_settings"]["irscope_device"] == "h100"
kept.untyped_storage().resize_(0)
del kept, other
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 0
torch.cuda.set_per_process_memory_fraction(0.001)
try:
    torch.empty(1 << 30, device="cuda")
except torch.OutOfMemoryError:
    pass
else:
    raise AssertionError
assert "allocated" in torch.cuda.memory_summary().lower() and torch.accelerator.current_accelerator().type == "cuda"
"""
    done = simulate(tmp_path, text, "--device", "h100", "--world", "8")
    assert done.returncode == 0, done.stderr


def test_a_rank_that_is_not_the_first_of_its_machine(tmp_path: Path) -> None:
    text = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
model = nn.Sequential(*[nn.Linear(1024, 1024, device="meta") for _ in range(4)])
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    loss = model(torch.randn(16, 1024, device="cuda")).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    dist.barrier()
assert found[-1] == {"rank": 11} and loss.item() == 0 and loss.device.index == 3
dist.destroy_process_group()
"""
    done = simulate(tmp_path, text, "--world", "64", "--rank", "11", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "finished" and {one["op"] for one in found["collectives"]} >= {"all_gather", "reduce_scatter"}


@pytest.mark.parametrize(
    ("text", "options", "code", "said"),
    [
        ("raise ValueError('no data')", (), 4, "train.py:1: ValueError: no data"),
        ("import sys; sys.exit(3)", (), 4, "exits with 3"),
        ("import torch\nx = torch.rand(1, device='cuda')\nwhile not x.item():\n    pass", (), 5, "train.py:3 reads values over and over"),
        ("while True:\n    pass", ("--time", "1"), 0, ""),
        ("", ("--world", "2", "--rank", "2"), 2, "there is no rank 2 in a world of 2"),
        ("", ("--world", "0"), 2, "a world of 0 ranks has none"),
        ("", ("--time", "nan"), 2, "is not a time"),
        ("", ("--time", "inf"), 2, "is not a time"),
        ("", ("--local", "-1"), 2, "are not negative"),
        ("", ("--steps", "-1"), 2, "are not negative"),
        ("print(1)", ("--try",), 0, "nothing was reserved on the device, so no setting was tried"),
        ("import json\njson.loads('{')", (), 4, "train.py:2: JSONDecodeError"),
        (LISTS, (), 4, "train.py:3: RuntimeError: Attempting to broadcast a dimension of length 5"),
        (FOREIGN, (), 4, "train.py:6: operator acme.fast.default has no rule for what it makes"),
        (CUSTOM, (), 4, "train.py:8: the kernel of operator acme::scale does not run here (No module named 'acme_kernels')"),
        (EXTENSION, (), 4, "train.py:5: extension fast is compiled with CUDA kernels of its own, and what its made returns is not known"),
        (CTRL_C, (), 130, "interrupted"),
    ],
)
def test_bad_programs_end_with_a_line(tmp_path: Path, text: str, options: tuple[str, ...], code: int, said: str) -> None:
    done = simulate(tmp_path, text, *options)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert ("Traceback" in done.stderr) == any(error in said for error in ("ValueError", "JSONDecodeError", "RuntimeError"))


NO_META = """import resource, time
import torch
large, fp8 = (torch.empty(16384, 8192, device="cuda", dtype=dtype) for dtype in (torch.float32, torch.float8_e4m3fn))
images, scale = torch.empty(64, 64, 256, 256, device="cuda"), torch.ones((), device="cuda")
aten = torch.ops.aten
def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, device="cuda", dtype=dtype)
began = time.process_time()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
product = empty(0, dtype=torch.bfloat16)
torch._scaled_mm(fp8, fp8.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, out=product)
results = [
    product,
    aten.adaptive_avg_pool2d.out(images, [7, 7], out=empty(0)),
    *aten._aminmax.dim(large, 1),
    torch.logcumsumexp(large, 1),
    torch._masked_softmax(large, torch.zeros(16384, 8192, device="cuda", dtype=torch.bool), 1, 0),
    *aten.fake_quantize_per_channel_affine_cachemask(large, empty(16384), empty(16384, dtype=torch.int32), 0, 0, 255),
    *torch.geqrf(large),
    torch._standard_gamma_grad(large, large),
    torch._sample_dirichlet(large),
]
print([(*result.shape, result.element_size()) for result in results])
took = time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
assert took[0] < 5 and took[1] < 200, took
aten.slow_conv_dilated2d(images, empty(64, 64, 3, 3), [3, 3], None, [1, 1], [1, 1], [2, 2])
"""


def test_operators_without_a_shape_function_compute_nothing_at_full_size(tmp_path: Path) -> None:
    done = simulate(tmp_path, NO_META)
    table = (16384, 8192, 4)
    shapes = [
        (16384, 16384, 2),
        (64, 64, 7, 7, 4),
        (16384, 4),
        (16384, 4),
        table,
        table,
        table,
        (16384, 8192, 1),
        table,
        (8192, 4),
        table,
        table,
    ]
    assert done.stdout.splitlines()[0] == str(shapes), done.stderr
    line = len(NO_META.splitlines())
    assert done.returncode == 4 and f"train.py:{line}: operator aten.slow_conv_dilated2d.default has no rule" in done.stderr
    assert "--allow-unknown-kernels lets it run on the host with zeros" in done.stderr


FAILS = """import torch
def load():
    try:
        import nothing_there
    except ImportError as error:
        raise RuntimeError("cannot be loaded because:\\nit is missing") from error
net = torch.nn.Linear(3, 4).cuda()
net.register_forward_pre_hook(lambda module, args: load())
net(torch.ones(3, device="cuda"))
"""
DIVIDES = """import torch
def accuracy(mask):
    count = int(mask.sum())
    return 1 / count
accuracy(torch.nn.functional.relu(torch.rand(3, device="cuda")))
"""
OPERANDS = "import torch\ntorch.nn.functional.linear(torch.ones(3, device='cuda'), torch.ones(4, 5, device='cuda'))\n"


def test_a_failure_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = simulate(tmp_path, FAILS, "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 4 and found["error"] == "RuntimeError: cannot be loaded because:\nit is missing"
    shown = done.stderr.partition("irscope: ")[0]
    assert found["traceback"] == shown and found["line"].endswith("train.py:6")
    script = tmp_path / "train.py"
    plain = python(FAILS.replace(".cuda()", "").replace(', device="cuda"', ""), folder=tmp_path).stderr
    names = [line.split("in ")[-1] for line in plain.splitlines() if line.startswith("  File") and "forked" not in line]
    assert [line.split("in ")[-1] for line in shown.splitlines() if line.startswith("  File")] == names
    assert f'  File "{script}", line 9, in <module>' in shown and "The above exception was the direct cause" in shown
    assert "ModuleNotFoundError: No module named 'nothing_there'" in shown and shown.endswith("because:\nit is missing\n")
    assert done.stderr.endswith("train.py:6: RuntimeError: cannot be loaded because: it is missing\n")
    whole = simulate(tmp_path, FAILS, "--debug")
    assert "run_script" not in shown and "run_script" in whole.stderr


def test_a_kernel_that_refuses_is_the_last_line(tmp_path: Path) -> None:
    done = simulate(tmp_path, OPERANDS)
    assert [line for line in done.stderr.splitlines() if line.startswith("  File")] == [
        f'  File "{tmp_path}/train.py", line 2, in <module>'
    ]


def test_a_program_that_fails_of_a_made_up_zero_is_run_once_more_with_ones(tmp_path: Path) -> None:
    done = simulate(tmp_path, DIVIDES)
    assert done.returncode == 0 and "train.py:3 read a value of the device, which is not computed, got 0" in done.stderr
    assert (
        "failed at " in done.stderr
        and "this is the run with --answer 1" in done.stderr
        and "taken to be 1" in " ".join(done.stdout.split())
    )
    both = simulate(tmp_path, DIVIDES.replace("1 / count", "1 / (count * (count - 1))"))
    assert both.returncode == 4 and "ZeroDivisionError: division by zero" in both.stderr and "got 0.0; the program failed" in both.stderr
    assert simulate(tmp_path, DIVIDES, "--answer", "0").returncode == 4
    unrelated = simulate(tmp_path, DIVIDES.replace("1 / count", "open('no file')"))
    assert unrelated.returncode == 4 and "--answer" not in unrelated.stderr


CHECKS = """import torch
from torch.distributions import Categorical, Normal
x = torch.rand(8, 4, device="cuda")
assert torch.isfinite(x).all() and x.sum()
assert not torch.isnan(x).any(), "not a number"
if not (x < 1).all() or bool((x < 0).any()):
    raise ValueError(f"{x.shape} is not a probability")
share = 1 / (x > 0.5).sum().item()
print(share, Categorical(logits=x).sample().shape, Normal(x, x.exp()).log_prob(x).shape, bool(x.any()))
"""


def test_checks_of_unknown_values_are_passed_unless_the_user_says_what_values_are(tmp_path: Path) -> None:
    done = simulate(tmp_path, CHECKS)
    assert done.returncode == 0 and done.stdout.startswith("1.0 torch.Size([8]) torch.Size([8, 4]) False\n"), done.stderr
    refused = simulate(tmp_path, CHECKS, "--answer", "0")
    assert refused.returncode == 4 and "train.py:4: AssertionError" in refused.stderr


def test_how_many_elements_an_unknown_mask_holds_is_the_most(tmp_path: Path) -> None:
    text = "import torch\nx, mask = torch.ones(8, 4, device='cuda'), torch.rand(8, device='cuda') > 0.5\n"
    text += "for _ in range(3):\n    chosen = x[mask]\nprint(tuple(chosen.shape), len(mask.nonzero()))\n"
    done = simulate(tmp_path, text, "--format", "json")
    assert done.stderr.startswith("(8, 4) 8\n")
    answers = json.loads(done.stdout)["answers"]
    assert [(Path(one["line"]).name, one["count"], one["value"]) for one in answers] == [("train.py:4", 3, "all"), ("train.py:5", 1, "all")]
    assert simulate(tmp_path, text, "--answer", "5").stdout.startswith("(5, 4) 5\n")
    assert simulate(tmp_path, text, "--answer", "100").stdout.startswith("(8, 4) 8\n")
    assert simulate(tmp_path, text, "--answer", "0").stdout.startswith("(0, 4) 0\n")


def test_numbers_that_are_counted_are_all_different_unless_the_program_says_how_many_there_are(tmp_path: Path) -> None:
    text = "import torch, torch.nn.functional as F\nx = torch.randint(0, 9, (50,), device='cuda')\ny = x.float()\n"
    text += "print(len(x.bincount()), len(x.bincount(y)), len(y.repeat_interleave(x)), len(F.one_hot(x)[0]))\n"
    text += "print('said', len(x.bincount(minlength=8)), len(y.repeat_interleave(x, output_size=70)), len(F.one_hot(x, 9)[0]))\n"
    text += "k = torch.tensor([1, 4], device='cuda')\nprint(k.bincount().tolist(), k.repeat_interleave(k).tolist(), len(F.one_hot(k)[0]))\n"
    done = simulate(tmp_path, text, "--format", "json")
    assert done.stderr.splitlines()[:3] == ["50 50 50 50", "said 8 70 9", "[0, 1, 0, 0, 1] [1, 4, 4, 4, 4] 5"]
    found = json.loads(done.stdout)
    assert [(one["line"].rpartition(":")[2], one["value"]) for one in found["answers"]] == [("4", "all")]
    assert found["fewest"]["peak"]["requested"] < found["peak"]["requested"]
    assert simulate(tmp_path, text, "--answer", "0").stdout.startswith("1 1 0 1\n")


MASKED = """
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    x = torch.randn(1 << 16, 1024, device="cuda")
    net(x[torch.rand(1 << 16, device="cuda") > 0.5]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_verdict_is_a_range_where_a_mask_decides(tmp_path: Path) -> None:
    found = json.loads(simulate(tmp_path, MASKED, "--format", "json").stdout)
    none = json.loads(simulate(tmp_path, MASKED, "--format", "json", "--answer", "0").stdout)
    assert found["fewest"]["peak"] == none["peak"] and found["fewest"]["steps"] == [
        {key: step[key] for key in one} for step, one in zip(none["steps"], found["fewest"]["steps"], strict=True)
    ]
    # Of 256 MiB each: x, what the mask chooses of it and what the layer makes of that; or else x and the next one. Without
    # elements there is no product either, nor the 32 MiB of its workspace.
    more = found["peak"]["requested"] - none["peak"]["requested"]
    assert (1 << 28) + (1 << 25) <= more < 1.02 * ((1 << 28) + (1 << 25)) and none["fewest"] is None
    assert " GiB to " in simulate(tmp_path, MASKED).stdout.partition("of it allocated")[0]
    short = " ".join(simulate(tmp_path, MASKED, "--device", "h100", "--memory", "1280MiB").stdout.split())
    assert "verdict depends on how many elements of masks hold: " in short and " short where all do" in short


# Sizes and counts that a program sends to the device, gathers and reads back, as accelerate does around its evaluation.
KNOWN = """
import torch
from torch import nn
sizes = torch.tensor((8, 256), device="cuda")[None]
print(sizes.cpu().max().item(), sizes.clone().tolist(), sizes[0, 1].item())
sizes += 1
print("computed", sizes.tolist())
labels = torch.tensor([1, 0, 1, 1]).cuda().bool()
x = torch.randn(4, 7, device="cuda")
print("chosen", x[labels].shape[0], x[~labels].shape[0], len(labels.nonzero()), torch.cat([labels, labels]).sum().item())
print("unknown", len((x > 0).nonzero()), x[0, 0].item())
tokens = torch.tensor([[5, 6, 0, 0], [7, 8, 9, 0]])
labels = tokens.masked_fill(tokens == 0, -100).to("cuda", non_blocking=True)
valid = labels[..., 1:] != -100
shifted = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
print("labels", torch.randn(2, 3, 16, device="cuda")[valid].shape[0], (shifted.reshape(-1) != -100).nonzero().shape[0], valid.any().item())
causal = torch.ones(5, 5, dtype=torch.bool, device="cuda").tril()
print("masks", len(causal.nonzero()), torch.arange(9, device="cuda").ge(4).sum().item(), torch.where(~causal & causal.T)[0].shape[0])
labels[:, 0] = -100
labels[labels == 9] = 1
print("written", labels.tolist(), labels.unique().tolist(), torch.bincount(torch.tensor([1, 4], device="cuda")).tolist())
drawn = torch.randint(0, 9, (3, 4), device="cuda")
print("drawn", len(drawn.unique()), drawn.unique_consecutive(dim=0).shape, torch.unique(drawn, dim=1).shape)
many, filled = labels.clone(), torch.empty(200, dtype=torch.int64, device="cuda")
for at in range(8):
    many[at // 4, at % 4] = at
for at in range(200):
    filled[at if at < 100 else 299 - at] = at
print("each", many.tolist(), labels.tolist()[0], filled.tolist() == [*range(100), *range(199, 99, -1)])
count = torch.tensor(3.0, device="cuda")
count.copy_(x[0, 0])
print("copied", count.item())
"""


def test_what_follows_from_numbers_of_the_host_is_known(tmp_path: Path) -> None:
    """Labels and masks of a batch too, and what is written among them; what is drawn on the device, or computed in fractions, is not."""
    done = simulate(tmp_path, KNOWN, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "256 [[8, 256]] 256",
        "computed [[9, 257]]",
        "chosen 3 1 3 6",
        "unknown 28 0.0",
        "labels 3 3 True",
        "masks 15 5 10",
        "written [[-100, 6, -100, -100], [-100, 8, 1, -100]] [-100, 1, 6, 8] [0, 1, 0, 0, 1]",
        "drawn 12 torch.Size([3, 4]) torch.Size([3, 4])",
        "each [[0, 1, 2, 3], [4, 5, 6, 7]] [-100, 6, -100, -100] True",
        "copied 0.0",
    ]
    answers = {Path(one["line"]).name: one["value"] for one in json.loads(done.stdout)["answers"]}
    assert answers == {"train.py:11": "all", "train.py:23": "all", "train.py:32": 0.0}


def test_counts_are_gathered_from_ranks_that_do_alike(tmp_path: Path) -> None:
    text = "import torch, torch.distributed as dist\ndist.init_process_group('nccl')\ntorch.cuda.set_device(0)\n"
    text += "count = torch.tensor([5], device='cuda')\nall_ = torch.empty(4, dtype=torch.long, device='cuda')\n"
    text += "dist.all_gather_into_tensor(all_, count)\nprint(all_.tolist(), all_.sum().item())\n"
    text += "dist.all_reduce(count)\nprint(count.item())\n"
    assert simulate(tmp_path, text, "--world", "4").stdout.startswith("[5, 5, 5, 5] 20\n0\n")


# As bitsandbytes calls its kernels; the file is none that could be loaded.
LIBRARY = """
import ctypes, torch
from pathlib import Path
Path("libkernels.so").write_bytes(bytes([127]) + b"ELF" + b"libcublas.so.13")
library = ctypes.cdll.LoadLibrary(str(Path("libkernels.so").resolve()))
library.context.restype = ctypes.c_void_p
x = torch.ones(1000, device="cuda")
print("called", library.context(), library.quantize(ctypes.c_void_p(x.data_ptr()), ctypes.c_int(1000)), hasattr(library, "anything"))
shared = ctypes.cast(library.cget_managed_ptr(ctypes.c_size_t(4096)), ctypes.POINTER(ctypes.c_int))
shared[1000] = 7
print("shared", shared[1000], shared[0])
Path("libhost.so").write_bytes(b"no library")
try:
    ctypes.CDLL(str(Path("libhost.so").resolve()))
except OSError:
    print("refused")
"""


def test_libraries_of_kernels_are_stood_in_for(tmp_path: Path) -> None:
    done = simulate(tmp_path, LIBRARY, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["called 0 0 True", "shared 7 0", "refused"]
    [unknown] = [one for one in json.loads(done.stdout)["diagnostics"] if one["code"] == "IRS645"]
    assert "libkernels.so:quantize" in unknown["message"]


# Loops as they stand in transformers: the device is asked whether all sequences have ended.
GENERATION = """
import torch

class StopCheck:
    def __call__(self, unfinished):
        return bool(unfinished.max() == 0)

def _sample(input_ids, stopping_criteria):
    this_peer_finished, stop_check = False, StopCheck()
    unfinished = (torch.rand(2, device="cuda") < 2).long()
    while not this_peer_finished:
        input_ids = torch.cat([input_ids, input_ids[:, -1:]], dim=-1)
        this_peer_finished = stop_check(unfinished)
    return input_ids

def _beam_search(max_length):
    cur_len = decoder_prompt_len = 4
    running = torch.rand(2, device="cuda") < 2
    while True:
        cur_len = cur_len + 1
        if not running.any():
            return running.sum().item()
"""


def test_generation_ends_at_its_greatest_length(tmp_path: Path) -> None:
    folder = tmp_path / "transformers" / "generation"
    folder.mkdir(parents=True)
    for path in (folder.parent, folder):
        (path / "__init__.py").touch()
    (folder / "utils.py").write_text(GENERATION)
    text = "import torch, types\nfrom transformers.generation import utils\nids = torch.ones(2, 4, dtype=torch.long, device='cuda')\n"
    text += "print(utils._sample(ids, types.SimpleNamespace(max_length=20)).shape[1], utils._beam_search(16))\n"
    done = simulate(tmp_path, text)
    assert done.stdout.startswith("20 12\n")


def test_a_script_that_is_not_there() -> None:
    done = subprocess.run([sys.executable, "-m", "irscope", "simulate", "nowhere.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "nowhere.py: there is no such file" in done.stderr


def test_a_function_is_simulated_too(tmp_path: Path) -> None:
    text = """
import irscope

def work(size):
    import torch
    return torch.zeros(size, device="cuda").numel()

found = irscope.simulate(work, 1000, device="h100", world=4, rank=2)
assert found.result == 1000 and found.outcome == "finished" and found.to_json()["rank"] == 2
"""
    done = python(text, folder=tmp_path)
    assert done.returncode == 0, done.stderr


PIPELINE = """
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("nccl")
stages, shards = int(sys.argv[1]), int(sys.argv[2])
mesh = init_device_mesh("cuda", (stages, shards), mesh_dim_names=("pp", "shard"))
stage, shard = mesh.get_coordinate()
weight = torch.nn.Parameter(torch.zeros(1 << (21 if stage == 0 else 20), device="cuda"))
pad = torch.zeros(0 if shard == shards - 1 else 1 << 19, device="cuda")
optimizer = torch.optim.SGD([weight])
group = mesh["pp"].get_group()
for _ in range(2):
    if stage + 1 < stages:
        dist.send(weight.detach(), group=group, group_dst=stage + 1)
    elif sys.argv[3:] == ["broken"]:
        raise ValueError("the last stage has no labels")
    weight.grad = torch.zeros_like(weight)
    dist.all_reduce(weight.grad, group=mesh["shard"].get_group())
    optimizer.step()
"""


@pytest.mark.slow
def test_all_ranks_of_a_small_world(tmp_path: Path) -> None:
    done = simulate(tmp_path, PIPELINE, "--world", "4", "--rank", "all", "--format", "json", arguments=("2", "2"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["ranks"], one["simulated"], one["name"]) for one in found["ranks"]] == [
        ("0", "0", "pp 0, shard 0"),
        ("1", "1", "pp 0, shard 1"),
        ("2", "2", "pp 1, shard 0"),
        ("3", "3", "pp 1, shard 1"),
    ]
    assert found["rank"] == 0 and found["ranks"][0]["peak"] == found["peak"]
    # The weight, its gradient and the next one while it replaces that; the padding.
    assert [one["peak"]["requested"] >> 20 for one in found["ranks"]] == [3 * 8 + 2, 3 * 8, 3 * 4 + 2, 3 * 4]


@pytest.mark.slow
def test_all_ranks_of_a_world_too_large_to_simulate_each(tmp_path: Path) -> None:
    done = simulate(tmp_path, PIPELINE, "--world", "24", "--rank", "all", "--format", "json", arguments=("2", "12"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["ranks"], one["count"]) for one in found["ranks"]] == [("0-10", 11), ("11", 1), ("12-22", 11), ("23", 1)]
    assert len(found["diagnostics"]) == 1 and found["diagnostics"][0]["code"] == "IRS647"


SPECIAL = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
weight = torch.nn.Parameter(torch.zeros(1 << 20, device="cuda"))
kept = torch.zeros(1 << 22, device="cuda") if rank == 37 else torch.zeros(1 << 21, device="cuda") if 9 < rank < 15 else None
optimizer = torch.optim.SGD([weight])
weight.grad = torch.zeros_like(weight)
dist.all_reduce(weight.grad)
optimizer.step()
"""


@pytest.mark.slow
def test_special_ranks_in_the_middle_of_a_world(tmp_path: Path) -> None:
    done = simulate(tmp_path, SPECIAL, "--world", "64", "--rank", "all", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["ranks"], one["count"]) for one in found["ranks"]] == [("37", 1), ("0-9,15-36,38-63", 58), ("10-14", 5)]
    assert "14 of 64 ranks were simulated" in found["diagnostics"][0]["message"]


def test_ctrl_c_keeps_what_was_simulated(tmp_path: Path) -> None:
    """The first run ends, the second waits; each is told once."""
    # Files that a simulated program writes are not seen from outside while it runs.
    address = str(tmp_path / "ranks")
    script = tmp_path / "train.py"
    script.write_text(
        SPECIAL
        + "import os, socket, time\nwith socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:\n"
        + f"    out.sendto(f'{{rank}} {{os.getpid()}}'.encode(), {address!r})\ntime.sleep(999 * rank)\n"
    )
    command = [sys.executable, "-m", "irscope", "simulate", "--quiet", "--world", "2", "--rank", "all", str(script)]
    wide = {**os.environ, "COLUMNS": "100"}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as noted,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=wide) as running,
    ):
        noted.bind(address)
        noted.settimeout(100)
        processes = dict(noted.recv(99).decode().split() for _ in range(2))
        while Path("/proc", processes["0"]).exists():
            time.sleep(0.1)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert running.returncode == 130 and err == "irscope: interrupted\n"
    assert "unknown: interrupted; until then 20.00 MiB of" in out and "interrupted" in out.partition("classes of ranks")[2]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("runs", [False, True])
def test_signals_end_the_runs_of_a_search_whenever_they_come(tmp_path: Path, sent: signal.Signals, runs: bool) -> None:
    """Also while the process that they are forked from still imports torch; one that is killed takes its runs with it."""
    script, address = tmp_path / "train.py", str(tmp_path / "begun")
    text = "import os, socket, time\nwith socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:\n"
    text += f"    out.sendto(str(os.getpid()).encode(), {address!r})\n"
    script.write_text(text + "try:\n    time.sleep(999)\nexcept KeyboardInterrupt:\n    time.sleep(999)\n")  # as a program may
    command = [sys.executable, "-m", "irscope", "simulate", "--quiet", "--fit", "b=1..8", str(script), "{b}"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as noted,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running,
    ):
        noted.bind(address)
        noted.settimeout(100)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while not children.read_text().split():
            time.sleep(0.02)
        group = int(children.read_text().split()[0])
        if runs:
            noted.recv(99)
        running.send_signal(sent)
        if sent == signal.SIGINT:
            time.sleep(1)
            running.send_signal(sent)  # again: they are killed at once
        _, err = running.communicate(timeout=100)
    assert "Traceback" not in err
    assert running.returncode in {signal.SIGKILL: (-9,), signal.SIGINT: (130, -2), signal.SIGTERM: (143,)}[sent]
    give_up = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while os.killpg(group, 0) is None:
            assert time.monotonic() < give_up
            time.sleep(0.1)


def test_graphs_of_torch_2_14_are_captured_in_two_parts(tmp_path: Path) -> None:
    text = """
import torch
class Graph(torch.cuda.CUDAGraph):
    def capture_end(self):
        self.capture_end_pre()
        self.instantiate()
        self.capture_end_post()
    def pools(self):
        return super().pools()
x, graph = torch.ones(1 << 18, device="cuda"), Graph()
with torch.cuda.graph(graph):
    y = x + 1
graph.replay()
print(graph.pools() == [graph.pool()], graph._has_graph_exec, torch.cuda.memory_allocated())
"""
    done = simulate(tmp_path, text)
    assert done.stdout.startswith(f"True True {(2 << 20) + 1024}\n"), done.stderr


def test_a_rank_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    done = simulate(tmp_path, PIPELINE, "--world", "2", "--rank", "all", arguments=("2", "1", "broken"))
    assert done.returncode == 4
    assert "1 of 2 ranks fail" in done.stdout and "ValueError" in done.stdout
    assert "train.py:19: ValueError: the last stage has no labels" in done.stderr
    assert "rank 1: " in done.stderr and "rank 0: " not in done.stderr


@pytest.mark.parametrize(("rank", "said"), [("7", "no rank 7 in a world of 2"), ("some", "'some' is not a rank")])
def test_a_rank_that_is_none(tmp_path: Path, rank: str, said: str) -> None:
    done = simulate(tmp_path, "", "--world", "2", "--rank", rank)
    assert done.returncode == 2 and said in done.stderr


def test_storages_that_change_their_size_end_with_the_size_they_had(tmp_path: Path) -> None:
    text = """
import torch
net = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=1)
gathered = [torch.empty(1 << 20, device="cuda") for _ in range(8)]
for step in range(2):
    for one in gathered:
        one.untyped_storage().resize_(0)
    for one in gathered:
        one.untyped_storage().resize_(4 << 20)
        net(torch.ones(64, 1024, device="cuda")).sum().backward()
        one.untyped_storage().resize_(0)
    optimizer.step()
    optimizer.zero_grad()
del gathered, one
"""
    done = simulate(tmp_path, text, "--device", "h100", "--format", "json")
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)["steps"][1]
    allocated, requested = second["allocated"]["peak"], second["requested"]["peak"]
    assert sum(second["by_category"].values()) == allocated
    assert second["by_category"]["rounding"] == allocated - requested < 2048


def test_a_model_with_buffers_is_copied(tmp_path: Path) -> None:
    text = """
import copy, torch
net = torch.nn.BatchNorm1d(4096, device="cuda")
before = torch.cuda.memory_allocated()
other = copy.deepcopy(net)
assert torch.cuda.memory_allocated() == 2 * before and other.running_mean.is_cuda
"""
    done = simulate(tmp_path, text)
    assert done.returncode == 0, done.stderr


def test_unknown_kernels_are_counted_where_that_is_allowed(tmp_path: Path) -> None:
    for text, said in ((CUSTOM, "acme::scale"), (FOREIGN, "acme::fast")):
        done = simulate(tmp_path, text, "--allow-unknown-kernels")
        assert done.returncode == 0, done.stderr
        assert "IRS645" in done.stdout and said in done.stdout
        assert str(8 << 20) in done.stdout or text is FOREIGN


def test_options_of_nccl_are_named_and_gloo_takes_host_tensors(tmp_path: Path) -> None:
    text = """import torch, torch.distributed as dist
options = dist.ProcessGroupNCCL.Options()
options.config.max_ctas = 4
dist.init_process_group("cpu:gloo,cuda:nccl", pg_options=options)
found = [torch.zeros(2) for _ in range(4)]
dist.all_gather(found, torch.ones(2))
dist.barrier(group=dist.new_group(backend="gloo"))
print("gathered", found[3].tolist(), torch.cuda.get_device_properties(0).max_threads_per_multi_processor)
"""
    done = simulate(tmp_path, text, "--world", "4")
    assert done.returncode == 0, done.stderr
    assert "gathered [1.0, 1.0] 2048" in done.stdout
    assert "IRS649" in done.stdout and "max_ctas" in done.stdout


def test_a_second_program_in_the_process_begins_anew() -> None:
    text = """import irscope, torch
def large():
    torch.zeros(1 << 28, device="cuda") @ torch.zeros(1 << 28, device="cuda")
def small():
    torch.zeros(1 << 10, device="cuda")
    return torch.cuda.max_memory_allocated()
first, second = irscope.simulate(large, device="h100"), irscope.simulate(small, device="h100")
print(second.result, second.peak("allocated"), second.peak("reserved"), first.peak("allocated") > 2 << 30)
"""
    done = python(text)
    assert done.stdout.splitlines()[-1] == f"4096 4096 {2 << 20} True", done.stderr[-1000:]


SIZED = """import argparse, torch
(parser := argparse.ArgumentParser()).add_argument("--batch", type=int, choices=range(45))
if (batch := parser.parse_args().batch) > 40:
    raise ValueError("at most 40")
net = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.SGD(net.parameters())
for _ in range(5):
    kept = torch.zeros(batch << 20, dtype=torch.uint8, device="cuda")  # so many MiB
    net(torch.ones(4, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_the_largest_size_of_a_programs_own_option(tmp_path: Path) -> None:
    # 1 MiB for each of the batch, a context of 600 MiB at most, and less than 80 MiB for all else.
    asked = ("--fit", "batch=2..512", "--device", "h100", "--memory", "700MiB", "--format", "json", "-q")
    done = simulate(tmp_path, SIZED, *asked, arguments=("--batch", "{batch}"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "irscope.fit/1" and found["free"] == "batch" and found["of"] == "the program"
    fits = [one["size"] for one in found["tried"] if one["outcome"] == "fits"]
    assert found["largest"] == max(fits) and 0 < found["peak_bytes"] <= found["memory_bytes"] == 100 << 20
    over = found["does_not_fit"]["size"]
    assert over == found["largest"] + 1, "what is next to the answer was run"
    # The same program, run by itself at both.
    for size, code in ((found["largest"], 0), (over, 1 if found["limit"] == "memory" else 4)):
        alone = simulate(tmp_path, SIZED, *asked[2:], "--steps", "3", arguments=("--batch", str(size)))
        assert alone.returncode == code
        assert size == over or json.loads(alone.stdout)["peak"]["reserved"] == found["peak_bytes"]


@pytest.mark.slow
def test_a_size_at_which_the_program_fails_ends_the_search_with_its_error(tmp_path: Path) -> None:
    done = simulate(tmp_path, SIZED, "--fit", "batch=8..64", "--device", "h100", "-q", arguments=("--batch", "{batch}"))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "batch 40 is the largest that runs" in said and "; 41 fails: " in said and "train.py:4: ValueError: at most 40" in said
    done = simulate(tmp_path, SIZED, "--fit", "batch=41..64", "--device", "h100", "-q", arguments=("--batch", "{batch}"))
    assert done.returncode == 4 and "batch 41 fails" in done.stdout


def test_what_the_search_for_a_size_cannot_do_is_said_before_anything_runs(tmp_path: Path) -> None:
    for asked, hint in (
        (("--fit", "batch=1..8"), "train.py --batch {batch}`"),
        (("--fit", "batch=9..8"), "--fit batch=1..512"),
        (("--fit", "batch=1..8", "--rank", "all"), "leave one of them out"),
        (("--fit", "batch=1..8", "--try"), "leave one of them out"),
    ):
        done = simulate(tmp_path, SIZED, *asked, arguments=("--batch", "8"))
        assert done.returncode == 2 and "IRS643" in done.stderr and hint in done.stderr, done.stderr


@pytest.mark.slow
def test_each_combination_of_a_grid_is_a_run_of_its_own(tmp_path: Path) -> None:
    asked = ("--device", "h100", "--memory", "700MiB", "--format", "json", "-q")
    grid = ("--grid", "batch=4,8,39,45", "--grid", "optimizer.foreach=True,False", "--price", "3.6")
    done = simulate(tmp_path, SIZED, *grid, *asked, arguments=("--batch", "{batch}"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["rows"]
    assert found["schema"] == "irscope.grid/1" and found["unit"] == "samples" and len(rows) == 8
    assert [row["outcome"] for row in rows[::2]] == ["fits", "fits", "oom", "fails"] and ": invalid choice: 45" in rows[-1]["why"]
    for row in rows[:4]:
        values, seconds = row["values"], row["step_seconds"]
        assert row["throughput"] == pytest.approx(int(values["batch"]) / seconds)
        assert row["price"] == pytest.approx(1e6 / row["throughput"] * 3.6 / 3600)
    setting = f"optimizer.foreach={rows[3]['values']['optimizer.foreach']}"
    alone = simulate(tmp_path, SIZED, *asked, "--steps", "3", "--set", setting, arguments=("--batch", "8"))
    document = json.loads(alone.stdout)
    assert document["peak"]["reserved"] == rows[3]["reserved_bytes"] and document["steps"][-1]["seconds"] == rows[3]["step_seconds"]


def test_what_a_grid_cannot_do_is_said_before_anything_runs(tmp_path: Path) -> None:
    for asked, said in (
        (("--grid", "batch"), "NAME=VALUE"),
        (("--grid", "size=1,2"), "train.py --size {size}`"),
        (("--grid", "batch=1,2", "--grid", "batch=3,4"), "twice"),
        (("--grid", "batch=1,2", "--fit", "batch=1..2"), "leave one of them out"),
        (("--gpus", "0"), "--gpus 8,16,64"),
        (("--price", "2"), "--grid"),
        (("--grid", "optimizer.foreach=7"), "IRS648"),
    ):
        done = simulate(tmp_path, SIZED, *asked, arguments=("--batch", "{batch}"))
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("loads", [False, True])
def test_a_torchvision_that_was_built_for_another_torch_is_imported(tmp_path: Path, loads: bool) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    define = 'library = torch.library.Library("torchvision", "DEF"); library.define("nms(Tensor a, Tensor b, float c) -> Tensor")'
    (package / "__init__.py").write_text("from . import extension\nfrom . import _meta_registrations\n")
    (package / "extension.py").write_text(f"import torch\n{define if loads else ''}\ndef _has_ops():\n    return {loads}\n")
    register = '@torch.library.register_fake("torchvision::nms")\ndef nms(a, b, c):\n    return a.new_empty(3)\n'
    (package / "_meta_registrations.py").write_text(f"import torch\n{register}")
    text = "import torch, torchvision\nfrom torchvision import extension\nprint(torch.ones(3).cuda().sum().device, extension._has_ops())\n"
    done = simulate(tmp_path, text + ("" if loads else DETECTS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cuda:0 True\n")
    if not loads:
        # Kept are at most all 100 boxes. On the way there are their order, the boxes in it, and masks of two numbers a box.
        nms = next(line for line in done.stdout.splitlines() if line.startswith("nms ")).split()
        assert nms[:4] == ["nms", "100", "torch.int64", "800"] and int(nms[4]) >= 800 + 1600 + 1600 + 100 + 800
        # What is cut out of each of 10 regions: 8 x 7 x 7 numbers of 32 bits.
        assert "roi_align (10, 8, 7, 7) 15680 (4, 8, 16, 16)\n" in done.stdout
        assert "in bfloat16 torch.bfloat16\nnone 0\nempty 0\n" in done.stdout


DETECTS = """
vision, boxes, scores = torch.ops.torchvision, torch.rand(100, 4, device="cuda"), torch.rand(100, device="cuda")
def used(key="current"):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{key}"]
before = used()
torch.cuda.reset_peak_memory_stats()
keep = vision.nms(boxes, scores, 0.5)
print("nms", len(keep), keep.dtype, used() - before, used("peak") - before)
features = torch.rand(4, 8, 16, 16, device="cuda", requires_grad=True)
rois = torch.rand(10, 5, device="cuda")
before = used()
cut = vision.roi_align(features, rois, 1.0, 7, 7, 2, False)
held = used() - before
cut.sum().backward()
print("roi_align", tuple(cut.shape), held, tuple(features.grad.shape))
with torch.autocast("cuda", torch.bfloat16):
    print("in bfloat16", vision.roi_align(features.bfloat16(), rois.bfloat16(), 1.0, 7, 7, 2, False).dtype)
print("none", len(vision.nms(boxes[:0], scores[:0], 0.5)))
before = used()
nothing = torch.mm(boxes[:0], boxes.T)  # asks no library, which would take a workspace
print("empty", used() - before)
"""


def test_operators_of_an_extension_that_is_compiled_at_run_time_are_those_of_its_sources(tmp_path: Path) -> None:
    """As RWKV's: they are called by their names in `torch.ops` and write to what they are given."""
    declared = (
        'TORCH_LIBRARY(own, m) {\n  m.def("forward(Tensor x, "\n        "Tensor(a!) y) -> ()");\n  m.def("made(Tensor x) -> Tensor");\n}\n'
    )
    (tmp_path / "op.cpp").write_text(f"#include <torch/library.h>\n{declared}")
    (tmp_path / "op.cu").write_text("")
    text = """
import torch
from torch.utils.cpp_extension import load
load(name="own", sources=["op.cpp", "op.cu"], is_python_module=False)
x, y = torch.ones(3, device="cuda"), torch.tensor([1, 2]).cuda()
print(torch.ops.own.forward(x, y), y.tolist())
torch.ops.own.made(x)
"""
    done = simulate(tmp_path, text)
    assert done.returncode == 4 and done.stdout.startswith("None [0, 0]\n") and "own.made.default has no rule" in done.stderr, done.stderr
    assert "IRS645" in done.stdout and "own::forward" in done.stdout


def test_kernels_of_a_library_of_operators_do_not_run(tmp_path: Path) -> None:
    """Where a program loads one, what it registers for CUDA meets no device: its fake implementation says what it makes."""
    text = """
import ctypes, torch
library = torch.library.Library("mine", "DEF")
load = ctypes.CDLL
def registers(*args, **kwargs):
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 1 / 0, "CUDA")
    return load(None)
ctypes.CDLL = registers
torch.ops.load_library("libmine.so")
ctypes.CDLL = load
torch.library.register_fake("mine::twice", lambda x: x.new_empty(2 * x.shape[0]), lib=library)
print(tuple(torch.ops.mine.twice(torch.rand(3, device="cuda")).shape))
"""
    done = simulate(tmp_path, text)
    assert done.returncode == 0 and done.stdout.startswith("(6,)\n"), done.stderr
    assert "IRS645" in done.stdout and "mine::twice" in done.stdout


def test_a_module_whose_attributes_hide_torch_s_methods(tmp_path: Path) -> None:
    # Megatron's wrapper has a list of that name.
    text = """
import torch
from torch import nn
class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.buffers = module, []
    def modules(self):
        raise AttributeError("no list of modules here")
    def forward(self, x):
        return self.module(x)
net = Wrapped(nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512))).cuda()
optimizer = torch.optim.SGD(net.module.parameters(), 0.1)
for _ in range(2):
    net(torch.ones(8, 512, device="cuda")).sum().backward()
    optimizer.step()
"""
    done = simulate(tmp_path, text, "--device", "h100", "--format", "json")
    assert done.returncode == 0, done.stderr
    [first, _] = json.loads(done.stdout)["steps"]
    weights = 4 * (512 * 512 + 3 * 512)
    assert first["by_category"]["parameter"] == first["by_category"]["gradient"] == weights
    assert first["by_category"]["buffer"] == 4 * 2 * 512 + 8


# Three ways in which routers send each of 1,024 tokens to 2 of 8 experts; `KNOWN` computes on the host where they go.
ROUTED = """
import sys, torch
from torch import nn
from torch.nn import functional as F
E, K = 8, 2
gate = nn.Linear(64, E).cuda()
experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(E)).cuda()
optimizer = torch.optim.SGD([*gate.parameters(), *experts.parameters()], 0.1)
for step in range(2):
    x = torch.randn(1024, 64, device="cuda")
    weight, chosen = torch.topk(F.softmax(gate(x), -1), K)
    if "known" in sys.argv:
        chosen = (torch.arange(1024 * K).view(-1, K) % E).cuda()
    y, sizes = torch.zeros_like(x), []
    if "counted" in sys.argv:
        order = chosen.flatten().argsort()
        sizes = torch.bincount(chosen.flatten(), minlength=E).tolist()
        for expert, part in zip(experts, (order // K).split(sizes)):
            y = y.index_add(0, part, expert(x[part]))
        y = y * weight.sum(-1, keepdim=True)
    else:
        masks = F.one_hot(chosen, E).permute(2, 1, 0) if "masks" in sys.argv else [(chosen == e).T for e in range(E)]
        for expert, mask in zip(experts, masks):
            slot, token = torch.where(mask)
            sizes.append(len(token))
            if len(token):
                y = y.index_add(0, token, expert(x[token]) * weight[token, slot, None])
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(sizes)
"""


@pytest.mark.parametrize("way", ["plain", "masks", "counted"])
def test_tokens_whose_experts_nobody_computes_go_to_all_alike(tmp_path: Path, way: str) -> None:
    done = simulate(tmp_path, ROUTED, "--format", "json", arguments=(way,))
    assert done.returncode == 0 and done.stderr.startswith("[256, 256, 256, 256, 256, 256, 256, 256]\n"), done.stderr
    found = json.loads(done.stdout)
    known = json.loads(simulate(tmp_path, ROUTED, "--format", "json", arguments=(way, "known")).stdout)
    # What is known lies beside the choice of `topk`, which its backward wants: 1,024 x 2 numbers of 8 bytes.
    peaks = [[step["requested"]["peak"] for step in one["steps"]] for one in (found, known)]
    assert [peak + 1024 * 2 * 8 for peak in peaks[0]] == peaks[1]
    assert (
        known["skewed"] is None and "balanced" not in str(known["answers"]) and {one["value"] for one in found["answers"]} == {"balanced"}
    )
    [said] = [one["message"] for one in found["diagnostics"] if one["code"] == "IRS646"]
    assert said.startswith("choices that are not computed, as experts of tokens and predicted classes, were assumed to be spread evenly: ")
    skewed = simulate(tmp_path, ROUTED, "--format", "json", "--routing", "skewed", arguments=(way,))
    assert skewed.stderr.startswith("[1024, 1024, 0, 0, 0, 0, 0, 0]\n")
    assert found["skewed"]["peak"] == json.loads(skewed.stdout)["peak"]
    accuracy = "    print(gate(x).argmax(-1).eq(0).sum().item())\n    optimizer.step()\n    break\n"  # which decides no memory
    assert "IRS646" not in simulate(tmp_path, ROUTED.partition("    weight, chosen")[0] + accuracy).stdout


def test_an_order_of_unknown_numbers_leaves_as_many_of_each(tmp_path: Path) -> None:
    """As pooling of graphs does: of each graph the half of its nodes with the highest scores stays."""
    text = """
import torch
graph, score = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]).cuda(), torch.rand(8, device="cuda")
count = torch.bincount(graph, minlength=3)
kept = (0.5 * count.to(score.dtype)).ceil().long()
order = torch.sort(score, descending=True)[1]
sorted_graph, again = torch.sort(graph[order], stable=True)
begin = torch.empty(4, dtype=torch.int64, device="cuda")
begin.narrow(0, 0, 1).zero_()
torch.cumsum(count, 0, out=begin.narrow(0, 1, 3))
stays = order[again[torch.arange(8, device="cuda") - begin[sorted_graph] < kept[sorted_graph]]]
print(len(stays), graph[stays].bincount().tolist(), torch.randperm(5, device="cuda").sum().item())
"""
    done = simulate(tmp_path, text, "--format", "json")
    assert done.returncode == 0 and done.stderr.startswith("5 [2, 1, 2] 10\n"), done.stderr
    [said] = [one["message"] for one in json.loads(done.stdout)["diagnostics"]]
    assert said.startswith("an order that is not computed was assumed to be the present one: ")


def test_numbers_that_nobody_computes_are_finite(tmp_path: Path) -> None:
    """Loops that leave out steps whose loss is not: one that always did would need no memory."""
    text = """
import torch
loss, weights = torch.randn((), device="cuda"), torch.randn(9, 9, device="cuda")
went = [bool(~(torch.isnan(loss) | torch.isinf(loss))), bool(torch.isfinite(weights).all()), bool((loss != loss).item())]
print(*went, weights.isnan().sum().item(), (loss == 1.0).item())
"""
    done = simulate(tmp_path, text, "--format", "json")
    assert done.returncode == 0 and done.stderr.startswith("True True False 0 False\n"), done.stderr
    said = [one["message"] for one in json.loads(done.stdout)["diagnostics"]]
    assert any(one.startswith("numbers that are not computed were assumed to be neither infinite nor NaN: ") for one in said)


def test_positions_on_the_host_choose_among_elements_of_the_device(tmp_path: Path) -> None:
    text = """
import torch
x = torch.rand(4, 6, device="cuda", requires_grad=True)
x[torch.arange(4), torch.tensor([0, 1, 2, 3]).cuda()].sum().backward()
y = x.detach().clone()
y[torch.tensor([0, 2])] = 1.0
print(tuple(x.grad.shape), tuple(y[torch.tensor([True, False, True, True])].shape))
"""
    done = simulate(tmp_path, text)
    assert done.returncode == 0 and done.stdout.startswith("(4, 6) (3, 6)\n"), done.stderr


def test_symmetric_memory_is_beside_the_allocators(tmp_path: Path) -> None:
    text = """
import torch, torch.distributed as dist
import torch.distributed._symmetric_memory as memory
dist.init_process_group("nccl")
name, free, shared = dist.group.WORLD.group_name, lambda: torch.cuda.mem_get_info()[0], torch.ops.symm_mem
before = free()
mine = memory.empty(1024, 1024, device="cuda")
print(before - free(), torch.cuda.memory_allocated())
handle = memory.rendezvous(mine, name)
print(handle.rank, handle.world_size, handle.get_buffer(1, (512, 1024), torch.float32, 512 * 1024).shape, handle.get_signal_pad(1).shape)
handle.barrier()
print(shared.one_shot_all_reduce(mine, "sum", name).shape, shared.two_shot_all_reduce_(mine, "sum", name) is mine)
del mine, handle
print(before - free() - torch.cuda.memory_reserved())
a, b = (torch.ones(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
print(shared.fused_all_gather_matmul(a, [b], 0, name)[1][0].shape, shared.fused_matmul_reduce_scatter(a, b, "sum", 0, name).shape)
with torch.cuda.use_mem_pool(memory.get_mem_pool(torch.device("cuda:0"))):
    print(memory.rendezvous(torch.ones(4, device="cuda"), name).world_size, memory.rendezvous(a, name))
"""
    done = simulate(tmp_path, text, "--world", "4", "--rank", "2", "--format", "json")
    # 4 MiB and the signals in pieces of 2 MiB; then what one rank gathers of another, 2 MiB, and the signals.
    assert done.stderr.splitlines()[:6] == [
        f"{6 << 20} 0",
        "2 4 torch.Size([512, 1024]) torch.Size([2304])",
        "torch.Size([1024, 1024]) True",
        "0",
        "torch.Size([4096, 1024]) torch.Size([256, 1024])",
        "4 None",
    ], done.stderr
    said = json.loads(done.stdout)
    assert said["beside_peak_bytes"] == 6 << 20
    assert [(one["op"], one["calls"], one["bytes"]) for one in said["collectives"]] == [("all_reduce", 2, 8 << 20)]


def test_batches_are_normalised_across_ranks(tmp_path: Path) -> None:
    text = """
import torch, torch.nn as nn, torch.distributed as dist
dist.init_process_group("nccl")
m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 64, 1), nn.BatchNorm2d(64))).cuda().half()
x = torch.randn(8, 3, 32, 32, device="cuda", dtype=torch.half)
made = torch.ops.aten.batch_norm_stats(x, 1e-5)
print([(tuple(part.shape), part.dtype) for part in made], made[0].device)
y = m(x)
y.float().sum().backward()
print(tuple(y.shape), y.dtype, *(tuple(p.grad.shape) for p in m[1].parameters()), m[0].weight.grad.dtype)
"""
    done = simulate(tmp_path, text, "--world", "4")
    assert done.stdout.splitlines()[:2] == [
        "[((3,), torch.float32), ((3,), torch.float32)] cuda:0",
        "(8, 64, 32, 32) torch.float16 (64,) (64,) torch.float16",
    ], done.stderr


def test_modules_without_shapes_yet_are_moved_to_the_device(tmp_path: Path) -> None:
    text = """
import torch
m = torch.nn.Sequential(torch.nn.LazyLinear(16), torch.nn.LazyLinear(2)).cuda().to("cuda")
print(tuple(m(torch.randn(4, 8, device="cuda")).shape), tuple(m[0].weight.shape), m[0].weight.device)
"""
    done = simulate(tmp_path, text)
    assert done.stdout.startswith("(4, 2) (16, 8) cuda:0\n"), done.stderr
