"""Put irscope's peaks beside those of a physical card and the answers of other tools: `python benchmarks/peers.py`.

Needs `pip install 'irscope[zoo]' torchinfo fvcore accelerate`, no GPU and no network. The measured peaks are those of
tests/data/eager_cuda/published.json: float32, batch 1, 224x224, first forward, `torch.cuda.max_memory_allocated()`.
torchinfo's answer is its "Estimated Total Size", accelerate's the "Total Size" of `accelerate estimate-memory`;
fvcore counts operations and has no answer about memory.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from accelerate.utils import calculate_maximum_sizes
from fvcore.nn import FlopCountAnalysis
from torchinfo import summary

import irscope
from irscope.frontends.zoo.packages import load_torchvision

MIB = 2**20
PUBLISHED = Path(__file__).parents[1] / "tests" / "data" / "eager_cuda" / "published.json"
DEVICE = "rtx3090"
"""A desktop card: the source names no other."""


def main() -> None:
    """Print two Markdown tables: peaks in MiB, and multiply-adds in billions."""
    warnings.simplefilter("ignore")
    source = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    models = load_torchvision().models
    peaks, counts = [], []
    for name, measured in source["measured"].items():
        module, image = models.get_model(name).eval(), torch.zeros(1, 3, 224, 224)
        results = irscope.run(irscope.load(f"torchvision:{name}"), "liveness,flops", device=DEVICE)
        cold = results["liveness"].report().to_json()["summary"]["cold"]["allocated"]
        info = summary(module, input_data=image, verbose=0)
        guess = source["predicted_by_that_tool"][name]
        weights = calculate_maximum_sizes(module)[0]
        estimate = info.total_input + info.total_output_bytes + info.total_param_bytes
        peaks.append((name, measured["peak"], cold / MIB, estimate / MIB, weights / MIB, guess))
        flops = FlopCountAnalysis(module, image).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        counts.append((name, results["flops"].report().to_json()["summary"]["macs"] / 1e9, info.total_mult_adds / 1e9, flops.total() / 1e9))
    print("| peak, MiB | physical card | irscope | torchinfo | accelerate | static analyzer of the same source |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, *numbers in peaks:
        print(f"| {name} | {' | '.join(f'{number:.2f}' for number in numbers)} |")
    print("\n| multiply-adds, billions | irscope | torchinfo | fvcore |")
    print("|---|---:|---:|---:|")
    for name, *numbers in counts:
        print(f"| {name} | {' | '.join(f'{number:.3f}' for number in numbers)} |")


if __name__ == "__main__":
    main()
