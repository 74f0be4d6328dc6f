"""Least times against measured ones, on this machine: `python -m benchmarks.roofline [--seconds 5] [--rounds 7]`.

Calibrates one thread of the processor, then runs 13 models in PyTorch (eager, f32, batch 1, one thread), each as often as `--rounds` says,
and takes the fastest in CPU time, so that other programs count little. The bound comes from the exported file alone. Says how many bounds
hold, and how far predictions are off when one factor, the same for all models, is fitted (and when it is fitted on the other twelve).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from irscope.devices.profile import DeviceProfile
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.measure.calibrate.engine import measure, record_of, save
from irscope.measure.calibrate.torchengine import TorchCpu
from irscope.passes.cost.roofline import Roofline
from irscope.passkit.manager import Manager
from tests.tools.zoo.export import cache_folder
from tests.tools.zoo.torchvision_shim import load_torchvision

VISION = (
    "resnet18", "resnet50", "vgg11", "mobilenet_v2", "efficientnet_b0", "densenet121", "regnet_y_800mf", "convnext_tiny", "swin_t",
    "vit_b_16",
)  # fmt: skip
TOKENS = 128


@dataclass(frozen=True)
class Run:
    """One model: CPU seconds of its fastest run, and the least that the roofline allows."""

    name: str
    measured: float
    bound: float

    @property
    def ratio(self) -> float:
        return self.bound / self.measured


@dataclass(frozen=True)
class Fit:
    """One factor for all models: the one with the least mean error."""

    factor: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.errors) / len(self.errors)


def language_models() -> dict[str, Callable[[], nn.Module]]:
    """Three language models of transformers with their usual sizes and random weights."""
    import transformers  # type: ignore[import-not-found,unused-ignore]  # optional

    llama = transformers.LlamaConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048, use_cache=False
    )
    return {
        "bert_base": lambda: transformers.BertModel(transformers.BertConfig()),
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)),
        "llama_12_layers": lambda: transformers.LlamaForCausalLM(llama),
    }


def models() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]]:
    """The 13 models with an input each."""
    vision = load_torchvision().models
    found: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
        name: (lambda name=name: vision.get_model(name, weights=None), lambda: torch.randn(1, 3, 224, 224)) for name in VISION
    }
    for name, make in language_models().items():
        found[name] = (make, lambda: torch.randint(0, 30000, (1, TOKENS)))
    return found


def latency(model: nn.Module, operand: Tensor, rounds: int) -> float:
    """CPU seconds of the fastest run."""
    fastest = float("inf")
    with torch.inference_mode():
        model(operand)
        for _ in range(rounds):
            started = time.process_time()
            model(operand)
            fastest = min(fastest, time.process_time() - started)
    return fastest


def exported(name: str, model: nn.Module, operand: Tensor) -> Path:
    """The model as a file, kept for the next time."""
    path = cache_folder() / "roofline" / f"{name}.pt2"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"partial-{path.name}")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(model, (operand,), strict=False), partial)
        partial.replace(path)
    return path


def bound(path: Path, device: Path) -> float:
    """Seconds that the roofline of a device file allows at least."""
    program = load_program(path, LoadOptions(), DiagnosticSink())
    return Manager(program).get(Roofline(device=str(device))).seconds


def fit(ratios: Sequence[float]) -> Fit:
    """The factor with the least mean error; the optimum is where one model comes out exactly."""
    best = min((1 / ratio for ratio in ratios), key=lambda factor: sum(abs(factor * ratio - 1) for ratio in ratios))
    return Fit(best, tuple(abs(best * ratio - 1) for ratio in ratios))


def left_out(ratios: Sequence[float]) -> float:
    """Mean error of each model with the factor of the others."""
    errors = [abs(fit([*ratios[:place], *ratios[place + 1 :]]).factor * ratio - 1) for place, ratio in enumerate(ratios)]
    return sum(errors) / len(errors)


def calibrated(seconds: float, path: Path) -> DeviceProfile:
    """One thread of this machine, measured now."""
    engine = TorchCpu(1)
    return save(record_of(engine, measure(engine, seconds), time.strftime("%Y-%m-%d")), path)[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to calibrate")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each model")
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        device = Path(folder) / "this.json"
        print(calibrated(args.seconds, device).title)
        runs: list[Run] = []
        print(f"{'model':18} {'measured':>10} {'least':>10} {'least / measured':>17}")
        for name, (make, operand) in models().items():
            model, given = make().eval(), operand()
            measured = latency(model, given, args.rounds)
            runs.append(Run(name, measured, bound(exported(name, model, given), device)))
            del model
            print(f"{name:18} {measured * 1e3:7.2f} ms {runs[-1].bound * 1e3:7.2f} ms {runs[-1].ratio:17.3f}", flush=True)
    print(summary(runs))
    if args.json:
        rows: list[dict[str, Any]] = [{"model": run.name, "measured": run.measured, "least": run.bound} for run in runs]
        args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def summary(runs: Sequence[Run]) -> str:
    """What the table comes to."""
    ratios = [run.ratio for run in runs]
    found = fit(ratios)
    held = sum(ratio <= 1 for ratio in ratios)
    return "\n".join(
        [
            f"lower bound holds on {held} of {len(runs)}",
            f"mean error, nothing fitted: {sum(abs(1 - ratio) for ratio in ratios) / len(ratios):.1%}",
            f"mean error after one fitted factor of {found.factor:.3f}: {found.mean:.1%}, worst {max(found.errors):.1%}",
            f"mean error with the factor of the other models: {left_out(ratios):.1%}",
        ]
    )


if __name__ == "__main__":
    main()
