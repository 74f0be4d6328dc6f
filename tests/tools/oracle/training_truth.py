"""Records training steps on PyTorch's CUDA build: `python -m tests.tools.oracle.training_truth OUT [--models a,b] [--settings sgd,adamw]`.

Runs on a GPU, or over stand-ins for CUDA's libraries. A line a model and setting: counters before, after each of three steps and
at its peak, and the sizes requested and given back by the last one, with the phases.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from typing import Any

COUNTERS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
STEPS = 3


class Loop:
    """A model on the device with what trains it, as a user writes it: a step, and the next."""

    def __init__(self, name: str, setting_name: str, mark: Callable[[str], None] = lambda phase: None) -> None:
        import torch

        from tests.tools.oracle.training_models import SETTINGS, build

        warnings.filterwarnings("ignore")
        # A recurrent layer's buffers are cuDNN's own business; without it PyTorch's kernels run.
        torch.backends.cudnn.enabled = name != "lstm"
        torch.backends.cuda.enable_cudnn_sdp(False)  # its plans cannot be sized without the library
        self.setting = next(one for one in SETTINGS if one.name == setting_name)
        self.trained = build(name)
        self.mark = mark
        _answer_as_a_card()
        self.module = self.trained.module.to("cuda").train()
        self.args = tuple(_moved(argument) for argument in self.trained.args)
        self.kwargs = {key: _moved(one) for key, one in self.trained.kwargs.items()}
        self.optimizer = self.setting.build_optimizer(self.module.parameters())

    def step(self) -> None:
        """One step; its locals go with it."""
        from tests.tools.oracle.training_models import autocast

        self.mark("zero_grad")
        self.optimizer.zero_grad(set_to_none=self.setting.set_to_none)
        for _ in range(self.setting.accumulate):
            self.mark("forward")
            with autocast(self.setting):
                out = self.module(*self.args, **self.kwargs)
                loss = self.trained.objective(out)
            if self.setting.accumulate > 1:
                loss = loss / self.setting.accumulate
            self.mark("backward")
            loss.backward()
        self.mark("optimizer")
        self.optimizer.step()


def counted() -> dict[str, dict[str, int]]:
    """The counters of torch.cuda: the peak of the step, and where they are after it."""
    import torch

    stats = torch.cuda.memory_stats()
    return {key: {"peak": stats[f"{key}.all.peak"], "after": stats[f"{key}.all.current"]} for key in COUNTERS}


def record(name: str, setting_name: str) -> dict[str, Any]:
    """One model under one setting, in this process."""
    import torch

    marks: list[tuple[str, int]] = []
    loop = Loop(name, setting_name, lambda phase: marks.append((phase, len(_events()))))
    result: dict[str, Any] = {
        "model": name,
        "setting": loop.setting.name,
        "torch": torch.__version__,
        "capability": list(torch.cuda.get_device_capability()),
        "before": {key: one["after"] for key, one in counted().items()},
        "steps": [],
    }
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        marks.clear()
        torch.cuda.memory._record_memory_history(enabled=None)
        torch.cuda.memory._record_memory_history(max_entries=10**7, context=None)
        loop.step()
        events = _events()
        result["steps"].append(counted())
        result.setdefault("all_events", []).append({"marks": list(marks), "events": events})
    return result


def simulated(name: str, setting_name: str) -> list[dict[str, dict[str, int]]]:
    """The same steps, counted by the same calls of torch.cuda, without a device; in a process of its own, as the record."""
    import torch

    import irscope

    def program() -> list[dict[str, dict[str, int]]]:
        loop = Loop(name, setting_name)
        steps = []
        for _ in range(STEPS):
            torch.cuda.reset_peak_memory_stats()
            loop.step()
            steps.append(counted())
        return steps

    found = irscope.simulate(program, device="h200")
    if found.outcome != "finished":
        raise RuntimeError(f"{found.error} {found.line}")
    steps: list[dict[str, dict[str, int]]] = found.result
    return steps


def _answer_as_a_card() -> None:
    """Copies to the host read zeros over the stand-ins; what transformers asks of positions is answered as the positions are."""
    masking = sys.modules.get("transformers.masking_utils")
    if masking is None:
        return
    original = masking.find_packed_sequence_indices

    def asked(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)

    masking.find_packed_sequence_indices = asked


def _events() -> list[int]:
    import torch

    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [one["size"] if one["action"] == "alloc" else -one["size"] for one in trace if one["action"] in ("alloc", "free_completed")]


def _moved(one: Any) -> Any:
    return one.to("cuda") if hasattr(one, "to") else one


def compact(sizes: list[int]) -> str:
    """Numbers as a short text."""
    return base64.b85encode(zlib.compress(json.dumps(sizes, separators=(",", ":")).encode(), 9)).decode()


def expand(text: str) -> list[int]:
    """What `compact` made short."""
    found: list[int] = json.loads(zlib.decompress(base64.b85decode(text)))
    return found


def main() -> None:
    """Every case in a process of its own: workspaces of libraries stay with the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--models", default="")
    parser.add_argument("--settings", default="")
    parser.add_argument("--full", default="", help="a folder for all events of all steps")
    parser.add_argument("--one", action="store_true")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(record(chosen.models, chosen.settings)))
        return
    from tests.tools.oracle.training_models import FURTHER, MODELS, SETTINGS

    names = chosen.models.split(",") if chosen.models else [*MODELS, *FURTHER]
    settings = chosen.settings.split(",") if chosen.settings else [one.name for one in SETTINGS]
    with open(chosen.out, "a", encoding="utf-8") as file:
        for name in names:
            for setting in settings:
                command = [sys.executable, "-m", "tests.tools.oracle.training_truth", "-", "--one", "--models", name, "--settings", setting]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(
                        f"{name} {setting}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}", flush=True
                    )
                    continue
                found = json.loads(done.stdout.splitlines()[-1])
                if chosen.full:
                    with open(f"{chosen.full}/{name}-{setting}.json", "w", encoding="utf-8") as whole:
                        json.dump(found, whole)
                last = found.pop("all_events")[-1]
                found["marks"], found["events"] = last["marks"], compact(last["events"])
                print(json.dumps(found, separators=(",", ":")), file=file, flush=True)
                print(name, setting, found["steps"][-1]["requested_bytes"]["peak"], flush=True)


if __name__ == "__main__":
    main()
