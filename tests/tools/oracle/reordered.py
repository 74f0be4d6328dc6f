"""Reordered models against real runs, and what reordering gains: `python -m tests.tools.oracle.reordered`.

Each model is written anew with its nodes in the scheduled order, and both files run on the CPU with the same random weights. Results
have to be equal, and the storages that each run holds at its peak as large as predicted. Arguments are names of the zoo's models.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import irscope
from irscope.passes.order.schedule import Schedule, inductor_peak
from irscope.tools.rewrite import file_order, open_nodes_of, write_reordered
from tests.tools.oracle.storages import record, tensors_of

GAINING = (
    "regnet_y_16gf", "regnet_x_32gf", "resnext101_32x8d", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "swin_t", "mvit_v1_b", "layoutlm",
    "gpt2", "gpt_neo", "gptj", "phi", "albert", "fnet", "big_bird", "bloom", "detr", "regnet", "deberta_v2", "cohere", "squeezebert", "t5",
)  # fmt: skip
"""Models of the zoo to which another order gives something."""
OTHERS = ("resnet50", "densenet121", "inception_v3", "efficientnet_b0", "mobilenet_v2", "vit_b_32", "bert", "llama", "whisper")
"""Models to which no order gives anything."""


@dataclass(frozen=True)
class Reordered:
    """One model: predicted and measured bytes alive at the peak, in both orders."""

    name: str
    nodes: int
    moved: int
    before: int
    after: int
    bound: int
    inductor: int
    measured_before: int
    measured_after: int
    equal: bool
    """Whether both files gave the same results, bit by bit."""

    @property
    def exact(self) -> bool:
        return (self.before, self.after) == (self.measured_before, self.measured_after)

    def line(self) -> str:
        """A row of the table."""
        gain = f"-{1 - self.after / self.before:.1%}" if self.after < self.before else "0"
        proof = "proven" if self.after <= self.bound else f"gap {self.after / self.bound - 1:.1%}"
        sizes = " | ".join(f"{size / 1024:,.1f}" for size in (self.before, self.inductor, self.after, self.measured_after))
        return f"| {self.name} | {self.nodes} | {self.moved} | {sizes} | {gain} | {proof} | {'yes' if self.equal else 'NO'} |"


HEAD = (
    "| model | nodes | moved | as written, KiB | Inductor's set | scheduled | measured | gain | bound | results equal |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def compare(name: str, path: Path, args: tuple[Any, ...], folder: Path, seconds: float = 10) -> Reordered:
    """Reorder a `.pt2` file and run both."""
    model = irscope.load(path)
    nodes, schedule = open_nodes_of(model), Schedule(seconds=seconds)
    found = file_order(model, nodes, schedule)
    [target] = write_reordered(model, nodes, found, folder / f"{name}-reordered.pt2")
    inductor = inductor_peak(model.manager.get(schedule))
    first, before = run(path, args)
    second, after = run(target, args)
    target.unlink()
    equal = len(first) == len(second) and all(map(_same, first, second))
    return Reordered(name, len(nodes.needs), found.moved, found.before, found.after, found.bound, inductor, before, after, equal)


def run(path: Path, args: tuple[Any, ...]) -> tuple[list[torch.Tensor], int]:
    """Results with random weights, and bytes alive at the peak beyond weights and inputs."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = torch.export.load(path).module()
        chance = torch.Generator().manual_seed(7)
        for weight in module.parameters():
            if weight.is_floating_point():
                weight.copy_(torch.randn(weight.shape, generator=chance) * 0.05)
        constants = [item for item in vars(module).values() if isinstance(item, torch.Tensor)]
        # Before the run that is watched: it may write to buffers.
        torch.manual_seed(0)
        results = [item.clone() for item in _flat(module(*args))]
        peak = record(module, args, lambda: [*module.parameters(), *module.buffers(), *constants]).peak
    return results, peak


def _flat(item: Any) -> list[torch.Tensor]:
    return [found for part in item.values() for found in _flat(part)] if isinstance(item, dict) else tensors_of(item)


def _same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.dtype == other.dtype and torch.equal(tensor.nan_to_num(), other.nan_to_num())


def zoo_rows(names: Sequence[str], seconds: float = 10) -> Iterator[Reordered]:
    """Models of the zoo, exported where they are not yet."""
    from tests.tools.zoo.export import exported
    from tests.tools.zoo.models import catalogue

    known = catalogue()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            entry = known.get(name)
            if entry is not None:
                made = exported(entry, "concrete")
                yield compare(name, made.path, entry.inputs(entry.batch), Path(folder), seconds)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*GAINING, *OTHERS])
    torch.set_num_threads(1)
    rows: list[Reordered] = []
    print(HEAD)
    for row in zoo_rows(parser.parse_args().models):
        rows.append(row)
        print(row.line(), flush=True)
    exact = sum(row.exact for row in rows)
    print(f"\n{exact} of {len(rows)} models as predicted in both orders, to the byte; {sum(row.equal for row in rows)} give equal results")


if __name__ == "__main__":
    main()
