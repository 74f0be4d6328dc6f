"""Torch modules and exported programs with the order of operators that needs least memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.nodefile import as_program, graph_module, open_file, reordered, save_program
from irscope.passes.schedule import Schedule
from irscope.reordering import FileOrder, file_order
from irscope.session import open_model

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ScheduledProgram:
    """A program in its new order, with the peak before and after."""

    program: torch.export.ExportedProgram
    """With the original's weights; `torch.export.save` writes it."""
    order: FileOrder

    @property
    def module(self) -> torch.fx.GraphModule:
        """What runs the program: it lets go of each value after its last use."""
        return graph_module(self.program)

    @property
    def peak_before_bytes(self) -> int:
        return self.order.before

    @property
    def peak_after_bytes(self) -> int:
        return self.order.after

    @property
    def lower_bound_bytes(self) -> int:
        return self.order.bound

    @property
    def proven_optimal(self) -> bool:
        return self.order.after <= self.order.bound

    def save(self, path: str | Path) -> None:
        """Write a `.pt2` file."""
        save_program(self.program, Path(path))


def scheduled(
    subject: torch.nn.Module | torch.export.ExportedProgram,
    *args: Any,
    bind: Mapping[str, int] | None = None,
    seconds: float = 10,
    seed: int = 0,
    latency: str = "",
    **kwargs: Any,
) -> ScheduledProgram:
    """The module or exported program with its operators in the order that needs least memory. A module is exported for its arguments.

    `bind` gives sizes of symbols for which the order is to be good; it is valid for all.
    """
    program = as_program(subject, args, kwargs)
    with tempfile.TemporaryDirectory(prefix="irscope-") as folder:
        path = Path(folder) / "model.pt2"
        save_program(program, path)
        model = open_model(path, LoadOptions(bind=dict(bind or {})))
        found = file_order(model, open_file(path), Schedule(seconds=seconds, seed=seed, latency=latency))
    return ScheduledProgram(reordered(program, found.order) if found.is_new else program, found)
