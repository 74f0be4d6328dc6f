"""What irscope says of a model's file beside what it says of the live model: `python -m tests.tools.oracle.capture_vs_file [names]`."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass

import torch

from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.session import capture_model
from tests.tools.oracle.eager_cuda import predicted
from tests.tools.oracle.zoo import TORCHVISION, TRANSFORMERS
from tests.tools.zoo.export import exported
from tests.tools.zoo.models import catalogue

NAMES = (*TORCHVISION, *TRANSFORMERS)


@dataclass(frozen=True)
class Pair:
    """Peaks of one model's activations: bytes alive at once beyond what is loaded, as a run on an H200 has them."""

    name: str
    file: int
    live: int
    file_nodes: int
    live_nodes: int
    only_file: tuple[str, ...]
    """Operators that the file has more of, with how many more."""
    only_live: tuple[str, ...]

    @property
    def error(self) -> float:
        """How far what the file tells is from what the live model tells."""
        return self.file / self.live - 1

    def line(self) -> str:
        """One row of the table."""
        return (
            f"| {self.name} | {self.file:,} | {self.live:,} | {'same' if self.error == 0 else f'{self.error:+.3%}'} | "
            f"{self.file_nodes} | {self.live_nodes} | {', '.join(self.only_file)} | {', '.join(self.only_live)} |"
        )


def compare(name: str) -> Pair | None:
    """One model both ways; None where it cannot be exported."""
    entry = catalogue()[name]
    found = exported(entry, "concrete")
    if found.refused:
        return None
    file = predicted(found.path)
    live = capture_model(entry.make(), entry.inputs(entry.batch), device="h200").manager.get(CudaMemory())
    ours, theirs = _operators(file), _operators(live)
    return Pair(name, _peak(file), _peak(live), len(file.steps), len(live.steps), _more(ours, theirs), _more(theirs, ours))


def _peak(memory: DeviceMemory) -> int:
    assert memory.basis is not None, memory.reason
    sizes = memory.basis.lifetimes.alive()
    return max(size for size in sizes if isinstance(size, int))


def _operators(memory: DeviceMemory) -> dict[str, int]:
    steps = memory.basis.lifetimes.steps if memory.basis is not None else memory.steps
    operators: dict[str, int] = {}
    for node in steps:
        operators[node.op] = operators.get(node.op, 0) + 1
    return operators


def _more(ours: dict[str, int], theirs: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{count - theirs.get(op, 0)} {op}" for op, count in ours.items() if count > theirs.get(op, 0))


def main(names: tuple[str, ...]) -> None:
    """Print the table; nothing here passes or fails."""
    torch.set_num_threads(1)
    print("| model | from the file | live | difference | nodes | live | only in the file | only live |")
    print("|---|---:|---:|---:|---:|---:|---|---|")
    found = []
    for name in names:
        pair = compare(name)
        if pair is not None:
            found.append(pair)
            print(pair.line(), flush=True)
        gc.collect()
    same = sum(pair.error == 0 for pair in found)
    within = sum(abs(pair.error) <= 0.02 for pair in found)
    print(f"\n{len(found)} models: {same} the same to the byte, {within} within 2 %")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
