"""What it costs to follow live code, in CPU time of one thread: training steps of a transformer of 32 layers, captured and simulated, and
torch's own tools that follow the same steps on tensors without data.

Each figure is from a process of its own, which imports torch before the clock starts. Steps after the first are what a long program
consists of; the first one loads modules of torch, and meets every operator for the first time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from benchmarks.measurement import Measurement

ROOT: Final = Path(__file__).parents[1]
LAYERS: Final = 32
WORLD: Final = 64
STEPS: Final = 3
"""The first one is told apart."""
MILLISECONDS: Final = 2.0
"""An operator may take at most."""
KINDS: Final = {"single": "one process", "ddp": "DDP, world 64", "fsdp": "FSDP2, world 64"}


def measure() -> list[Measurement]:
    """All figures; none without torch."""
    return list(_rows()) if importlib.util.find_spec("torch") is not None and sys.platform == "linux" else []


def _rows() -> Iterator[Measurement]:
    fake, tracked, captured = (_child(part, "single") for part in ("fake", "tracked", "captured"))
    each = captured["seconds"] / captured["operators"] * 1e3
    yield Measurement("capture of training steps", each, "CPU ms an operator", goal=MILLISECONDS)
    for title, peer, goal in (("FakeTensorMode alone", fake, 1.0), ("MemTracker", tracked, 1 / 3)):
        seconds = captured["seconds"]
        yield Measurement(f"capture of training steps, beside {title}", seconds, "CPU s", title, seconds / _seconds(peer), goal)
    forward = captured["forward"]
    yield Measurement("`irscope.capture`, a forward", forward / captured["nodes"] * 1e3, "CPU ms an operator", goal=MILLISECONDS)
    for kind, title in KINDS.items():
        # DDP's compiled half does not run without data.
        peer = _child("tracked", kind) if kind == "fsdp" else tracked
        beside = "MemTracker" + (", one process" if kind == "ddp" else "")
        found = _child("simulated", kind)
        (first, *later), (their_first, *theirs) = found["steps"], peer["steps"]
        each = median(later) / peer["operators"] * 1e3
        yield Measurement(f"`simulate`, {title}: a later step", each, "CPU ms an operator", goal=MILLISECONDS)
        yield Measurement(
            f"`simulate`, {title}: a later step, whole", median(later), "CPU s", beside, median(later) / median(theirs), 1 / 3
        )
        yield Measurement(f"`simulate`, {title}: the first step", first, "CPU s", beside, first / their_first, 1 / 3)
    whole = _child("large", "single")
    yield Measurement("a training step of 8 billion parameters, captured and predicted", whole["seconds"], "CPU s")
    yield Measurement("the same, memory above torch's own", whole["megabytes"], "MB")


def _seconds(found: dict[str, Any]) -> float:
    return float(sum(found["steps"]))


def _child(part: str, kind: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.live", part, kind]
    ranks = {"RANK": "3", "WORLD_SIZE": str(WORLD), "LOCAL_RANK": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env={**os.environ, **ranks}
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the job -------------------------------------------------------------------------------------------------------------------


def model_of(layers: int = LAYERS) -> Any:
    """The model, without data where the caller's default device says so."""
    from torch import nn

    layer = nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def train(kind: str, device: str, follow: Callable[[Any, Any, Any], AbstractContextManager[Any]], count: bool = False) -> dict[str, Any]:
    """CPU seconds of each step; with `count` one step more is made, whose operators are counted."""
    import torch
    from torch import nn

    model = model_of() if device == "cpu" else _empty(device)
    if kind == "fsdp":
        from torch._subclasses.fake_tensor import unset_fake_temporarily
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        with unset_fake_temporarily():
            mesh = init_device_mesh(device, (WORLD,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for one in (*model.layers, model):
            fully_shard(one, mesh=mesh, mp_policy=policy)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    x = torch.randn(4, 1024, 2048, device=device)
    seconds = []
    with follow(model, optimizer, x) as followed:
        for _ in range(STEPS):
            started = process_time()
            step(model, optimizer, x)
            if hasattr(followed, "reset_mod_stats"):
                followed.reset_mod_stats()
            seconds.append(process_time() - started)
    return {"steps": seconds, "operators": _count(lambda: step(model, optimizer, x)) if count else 0}


def step(model: Any, optimizer: Any, x: Any) -> None:
    """One step."""
    model(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _empty(device: str) -> Any:
    import torch

    with torch.device("meta"):
        model = model_of()
    return model.to_empty(device=device)


def _count(work: Callable[[], None]) -> int:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func.namespace not in ("prim", "profiler")
            return func(*args, **(kwargs or {}))

    with Counting() as counting:
        work()
    return counting.seen


# -- who follows it ------------------------------------------------------------------------------------------------------------


def fake(kind: str) -> dict[str, Any]:
    """FakeTensorMode alone."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return train(kind, "cpu", lambda *_: nullcontext())


def tracked(kind: str) -> dict[str, Any]:
    """MemTracker over FakeTensorMode, over a process group that sends nothing."""
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if kind != "single":
        dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=WORLD)

    def follow(model: Any, optimizer: Any, x: Any) -> AbstractContextManager[Any]:
        tracker = FSDPMemTracker(model, optimizer) if kind == "fsdp" else MemTracker()
        tracker.track_external(*((x,) if kind == "fsdp" else (model, optimizer, x)))
        return tracker

    with FakeTensorMode(allow_non_fake_inputs=True):
        return train(kind, "cpu", follow, count=True)


def captured(kind: str) -> dict[str, Any]:
    """As `train-plan` captures it, and the forward as `irscope.capture` does; a small model before warms both up."""
    import torch

    import irscope
    from irscope.devices import target_of
    from irscope.frontends.eager.steps import record_steps
    from irscope.passkit.settings import Settings
    from irscope.training import StepSetup

    target, plan = target_of(Settings(device="h200")), StepSetup(optimizer="adamw", steps=STEPS)
    found: dict[str, Any] = {}
    for layers in (1, LAYERS):
        with torch.device("meta"):
            model, x = model_of(layers), torch.empty(4, 1024, 2048)
        started = process_time()
        recorded = record_steps(model, (x,), {}, plan, target)
        between = process_time()
        nodes = len(irscope.capture(model, x).program.graph)
        found = {"seconds": between - started, "forward": process_time() - between, "nodes": nodes, "operators": len(recorded.record.ops)}
    return found


def simulated(kind: str) -> dict[str, Any]:
    """Under `irscope simulate`."""
    import torch

    import irscope

    def program() -> dict[str, Any]:
        if kind != "single":
            torch.distributed.init_process_group("nccl")
        return train(kind, "cuda", lambda *_: nullcontext())

    found = irscope.simulate(program, device="h200", world=1 if kind == "single" else WORLD)
    assert found.outcome == "finished", found.error
    return dict(found.result)


def large(kind: str) -> dict[str, Any]:
    """A whole prediction for a decoder of 8 billion parameters, 4096 tokens, AdamW."""
    import resource

    import torch
    from torch import nn
    from torch.nn import functional

    from irscope.tools.capture import capture_training

    class Layer(nn.Module):
        def __init__(self, width: int = 4096, heads: int = 32, groups: int = 8, inner: int = 14336) -> None:
            super().__init__()
            self.heads, self.groups = heads, groups
            self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, width // heads * groups, bias=False) for _ in range(2))
            self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((width, inner), (width, inner), (inner, width)))

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            q, k, v = (one(y).unflatten(-1, (-1, x.shape[-1] // self.heads)).transpose(1, 2) for one in (self.q, self.k, self.v))
            k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
            x = x + self.o(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = self.after(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    with torch.device("meta"):
        tokens = torch.zeros(1, 4096, dtype=torch.long)
        model = nn.Sequential(
            nn.Embedding(128256, 4096), *(Layer() for _ in range(32)), nn.RMSNorm(4096), nn.Linear(4096, 128256, bias=False)
        )
        model = model.to(torch.bfloat16)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    captured = capture_training(model, (tokens,), optimizer="adamw", device="h200")
    captured.run("training")
    return {
        "seconds": process_time() - started,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
    }


def main() -> None:
    """Measure one part in this process."""
    part, kind = sys.argv[1:]
    warnings.simplefilter("ignore")
    print(json.dumps({"fake": fake, "tracked": tracked, "captured": captured, "simulated": simulated, "large": large}[part](kind)))


if __name__ == "__main__":
    main()
