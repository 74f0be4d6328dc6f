"""Fit how much of their peak data-centre devices reach to published throughputs of decoders in training.

    python -m benchmarks.decoder_times benchmark_results.csv --cache FOLDER [--write]

The file has the columns of the tables that github.com/mosaicml/llm-foundry keeps in scripts/train/benchmarking/. A model is captured with
two and with four layers; each further layer is like the third. Two factors are fitted for a device, for attention and for every other
product, to the shares of the GeForce card of the nearest capability; a size of model is left out and predicted. Communication of
sharded parameters is not counted apart: the factors have what of it was exposed.
"""

from __future__ import annotations

import argparse
import csv
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import irscope
from benchmarks.times import FILE, Rows, everything, fitted
from irscope.devices import find_device
from irscope.passes.cost.clock import MATRIX, Columns, clock_of, constants, durations
from irscope.passes.cost.count import NodeCosts
from irscope.passes.cost.kernels import Kernel, KernelClass
from irscope.passes.cost.time import Timer
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes

SIZES = {"350m": (1024, 16, 24), "1b": (2048, 16, 24), "3b": (2560, 20, 32), "7b": (4096, 32, 32), "13b": (5120, 40, 40)}
"""Width, heads and layers of MPT models."""
DEVICES = {"a100_80gb": ("a100", "rtx-3090"), "h100_80gb": ("h100", "rtx-4090")}
"""Devices of the tables, and the card whose shares theirs are factors of."""
VOCABULARY = 50_368
LAYERS = (2, 4)
RATES = tuple(f"{kind.name.lower()}{place}.rate" for kind in MATRIX for place in ("", ".last"))
LARGE = Kernel(KernelClass.PRODUCT, 8192, 8192, 8192, read=2 * 2 * 8192**2, written=2 * 8192**2, bits=16)


def kernels_of(row: Mapping[str, str], device: str, layers: int) -> list[tuple[Kernel, float]]:
    """Return the kernels of one micro batch, each with the bytes that it reads from the cache."""
    import torch
    import torch.utils.checkpoint
    from torch import nn
    from torch.nn import functional

    width, heads, _ = SIZES[row["Model"]]
    length, batch = int(row["SeqLen (T)"]), int(row["MicroBatchSize"])

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
            shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
            self.linears = nn.ModuleList(nn.Linear(*shape, bias=False) for shape in shapes)

        def forward(self, x: Any) -> Any:
            parts = self.linears[0](self.norms[0](x)).chunk(3, dim=2)
            q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + self.linears[1](mixed)
            return x + self.linears[3](functional.gelu(self.linears[2](self.norms[1](x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width, bias=False)

        def forward(self, words: Any, places: Any, target: Any) -> Any:
            x = self.words(words) + self.places(places)
            for block in self.blocks:
                recomputed = row["Activation Checkpointing"] == "True"
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if recomputed else block(x)
            logits = functional.linear(self.norm(x), self.words.weight)
            return functional.cross_entropy(logits.view(-1, VOCABULARY), target.view(-1))

    with torch.device("meta"):
        model = Decoder().to(torch.bfloat16).train()  # mixed precision of FSDP: gathered parameters are in bf16
        given = [torch.empty(count, length, dtype=torch.long) for count in (batch, 1, batch)]
    manager = irscope.capture_training(model, tuple(given), optimizer="sgd", device=device).manager
    entries, clock = manager.get(NodeCosts()).entries, clock_of(find_device(device), "training")
    assert clock is not None
    kernels, near = Timer(clock, manager.get(Shapes()), manager.get(Alias())).described(entries, [None] * len(entries))
    return [(kernel, read) for kernel, read in zip(kernels, near, strict=True) if kernel is not None]


def counted(row: Mapping[str, str], device: str, cache: Path) -> list[tuple[Kernel, float, float]]:
    """Return the kernels of a micro batch with how often each runs: layers above those captured are like the last two."""
    parts = []
    for layers in LAYERS:
        path = cache / "-".join(
            [*(row[key] for key in ("Model", "SeqLen (T)", "MicroBatchSize", "Activation Checkpointing")), device, str(layers)]
        )
        if not path.is_file():
            path.write_bytes(pickle.dumps(kernels_of(row, device, layers)))
        parts.append(pickle.loads(path.read_bytes()))
    more = (SIZES[row["Model"]][2] - LAYERS[0]) / (LAYERS[1] - LAYERS[0])
    weighted = zip(parts, (1.0 - more, more), strict=True)
    return [(kernel, near, weight) for kernels, weight in weighted for kernel, near in kernels]


def scaled(shares: Mapping[str, float], by: Mapping[str, float]) -> dict[str, float]:
    """Return the shares with the rates of products multiplied: those of attention by one factor, all others by another."""
    factors = {name: by["attention" if "attention" in name else "product"] for name in RATES}
    return {name: share * factors.get(name, 1.0) for name, share in shares.items()}


@dataclass
class Scaled(Rows):
    """Rows whose times depend on two factors of given shares."""

    shares: Mapping[str, float]

    def predicted(self, table: Mapping[str, float]) -> np.ndarray:
        return super().predicted(scaled(self.shares, table))


def rows_of(device: str, rows: Sequence[Mapping[str, str]], shares: Mapping[str, float], cache: Path) -> Scaled:
    clock = clock_of(find_device(device), "training")
    assert clock is not None
    every = [counted(row, device, cache) for row in rows]
    listed = [(place, *one) for place, found in enumerate(every) for one in found]
    tokens = [float(row["SeqLen (T)"]) * float(row["MicroBatchSize"]) for row in rows]
    real = np.array([count / float(row["Throughput (T/s/GPU)"]) for count, row in zip(tokens, rows, strict=True)])
    return Scaled(
        clock.machine,
        Columns.of([kernel for _, kernel, _, _ in listed], [near for _, _, near, _ in listed]),
        np.array([place for place, _, _, _ in listed]),
        np.arange(len(listed)),
        np.array([weight for _, _, _, weight in listed]),
        real,
        np.array([row["Model"] for row in rows]),
        ["-".join([row["Model"], row["SeqLen (T)"], row["# GPUs"]]) for row in rows],
        np.zeros(len(rows)),
        shares,
    )


def eager_factor(rows: Rows, training: Mapping[str, float], eager: Mapping[str, float], attention: float) -> float:
    """Return the factor by which a large product takes as long in inference as in training."""
    columns = Columns.of([LARGE], [0.0])
    low, high = 0.05, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        numbers = durations(columns, rows.machine, scaled(eager, {"product": middle, "attention": attention}))
        low, high = (middle, high) if numbers[0] > durations(columns, rows.machine, training)[0] else (low, middle)
    return low


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help=f"write the tables to {FILE.name}")
    args = parser.parse_args(arguments)
    args.cache.mkdir(parents=True, exist_ok=True)
    with args.times.open() as file:
        listed = [row for row in csv.DictReader(file) if row["Precision"] == "amp_bf16" and row["GPU"] in DEVICES]
    data = json.loads(FILE.read_text())
    start = {"product": 0.7, "attention": 0.7}
    for gpu, (device, base) in DEVICES.items():
        table = constants().tables[base]
        rows = rows_of(device, [row for row in listed if row["GPU"] == gpu], {**table.shares, **table.by_work["training"]}, args.cache)
        predicted = np.zeros(len(rows.real))
        for size in sorted(set(rows.families)):
            inside = rows.families != size
            predicted[~inside] = rows.predicted(fitted([(rows, inside)], start, 1.0))[~inside]
        error, ratio = np.abs(predicted / rows.real - 1), rows.real / predicted
        within = f"median {np.median(error):.1%}, 90 % within {np.quantile(error, 0.9):.1%}"
        print(f"{device}: {len(error)} rows, {within}, real over predicted {ratio.min():.2f} to {ratio.max():.2f}")
        by = fitted(everything([rows]), start, 1.0)
        training = scaled(rows.shares, by)
        eager = scaled(table.shares, {**by, "product": eager_factor(rows, training, table.shares, by["attention"])})
        own = data["tables"].setdefault(device, {})
        own["shares"] = {name: float(f"{share:.3g}") for name, share in eager.items()}
        own["by_work"] = {"training": {name: float(f"{share:.3g}") for name, share in training.items()}}
        print(f"    {by['product']:.3f} of the rates of {base}, attention {by['attention']:.3f}")
    if args.write:
        FILE.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
