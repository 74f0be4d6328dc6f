"""Put irscope's peaks beside those of a physical card and the answers of other tools: `python benchmarks/peers.py`.

Needs `pip install 'irscope[zoo]' torchinfo fvcore accelerate deepspeed`, no GPU and no network. The measured peaks are those of
tests/data/eager_cuda/published.json: float32, batch 1, 224x224, first forward, `torch.cuda.max_memory_allocated()`.
torchinfo's answer is its "Estimated Total Size", accelerate's the "Total Size" of `accelerate estimate-memory`;
fvcore counts operations and has no answer about memory. DeepSpeed estimates states of training only: the last table has
a training step, the first row of docs/published.md, with accelerate's answer to "Training using Adam" in bfloat16.
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

MIB, GIB = 2**20, 2**30
ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "tests" / "data" / "eager_cuda" / "published.json"
GPUS, BATCH, LENGTH = 8, 2, 8192
"""Of the training step that torchtitan published."""
DEVICE = "rtx3090"
"""A desktop card: the source names no other."""


def main() -> None:
    """Print three Markdown tables: peaks in MiB, multiply-adds in billions, and the peak of a training step in GiB."""
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
    training()


def training() -> None:
    """Print what each tool answers for a training step of Llama 3.1 8B, sharded over 8 GPUs."""
    # These import torchvision, which a torch without its kernels only loads as `main` does.
    from accelerate.commands.estimate import estimate_training_usage
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        module = LlamaForCausalLM(LlamaConfig.from_pretrained(ROOT / "samples" / "llama-3.1-8b"))
        info = summary(module, input_data=torch.zeros(BATCH, LENGTH, dtype=torch.long), device="meta", verbose=0)
    own = [sum(weight.numel() for weight in part.parameters(recurse=False)) for part in module.modules()]
    _, states, _ = estimate_zero3_model_states_mem_needs(sum(own), max(own), GPUS, 1, cpu_offload=False, cpu_offload_params=False)
    adam = max(estimate_training_usage(calculate_maximum_sizes(module)[0], "bfloat16").values())
    estimate = info.total_input + info.total_output_bytes + info.total_param_bytes
    rows = (ROOT / "docs" / "published.md").read_text(encoding="utf-8").splitlines()
    name, published, predicted = next(row for row in rows if row.startswith("| Llama 3.1 8B, FSDP2, 8 H100")).split("|")[1:4]
    print("\n| peak of a training step | published | irscope | torchinfo | accelerate | DeepSpeed |")
    print("|---|---:|---:|---:|---:|---:|")
    print(f"|{name}|{published}|{predicted}| {estimate / GIB:.2f} GiB | {adam / GIB:.2f} GiB | {states / GIB:.2f} GiB |")


if __name__ == "__main__":
    main()
