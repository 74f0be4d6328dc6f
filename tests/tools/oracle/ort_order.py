"""Predicted orders of kernels against ONNX Runtime's profile: `python -m tests.tools.oracle.ort_order`.

Each model runs with every execution order, as written and with its nodes as `schedule` puts them; graph optimisations are off. Results
of both files have to be equal. Arguments are files; without any they are the samples, the small networks of the onnx wheel, and the
exports of the zoo that are in the cache.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import irscope
from irscope.passes.order.schedule import Schedule
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.ort.model import EXECUTION_ORDERS, REFUSED_ORDER
from irscope.passes.ort.order import OrtOrder, OrtOrders
from irscope.session import Model
from irscope.tools.rewrite import file_order, open_nodes_of, write_reordered
from tests.tools.oracle.ort_memory import cached_exports, sample_models, sizes_of, wheel_models
from tests.tools.oracle.ort_profile import Measured, measure

_SETTINGS = {name: onnxruntime.ExecutionOrder.__members__[name.upper()] for name in (*EXECUTION_ORDERS, REFUSED_ORDER)}


@dataclass
class Compared:
    """One model in both orders of its file."""

    name: str
    kernels: int
    moved: int
    equal: dict[str, bool] = field(default_factory=dict)
    """By setting, whether kernels ran in the predicted order, in both files."""
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By setting, bytes in use as asked for at the peak of the first run: as written and reordered, measured."""
    peaks_equal: bool = True
    refused: bool = False
    """Whether this package refuses the setting that it is said to refuse."""
    same_results: bool = True

    def line(self) -> str:
        """A row of the table."""
        cells = []
        for setting in EXECUTION_ORDERS:
            before, after = self.peaks[setting]
            cells.append(f"{'equal' if self.equal[setting] else 'OTHER'} | {before / 1024:,.1f} | {after / 1024:,.1f}")
        end = f"{'refused' if self.refused else 'runs'} | {'yes' if self.same_results else 'NO'}"
        return f"| {self.name} | {self.kernels} | {self.moved} | {' | '.join(cells)} | {end} |"


HEAD = (
    "| model | kernels | nodes moved | default | as written, KiB | reordered | priority_based | as written | reordered | memory_efficient "
    "| results equal |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def named_by_results(path: Path, target: Path) -> Path:
    """The model with each node called what irscope calls it: profiles name kernels by their nodes."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = next((name for name in node.output if name), "")
    onnx.save(model, target)
    return target


def open_bound(path: Path, sizes: Mapping[str, int]) -> Model:
    """The model with its free sizes bound."""
    model = irscope.load(path)
    bound = {name: size for name, size in sizes.items() if name in model.program.symbols}
    return irscope.load(path, bind=bound) if bound else model


def compare(path: Path, seconds: float = 2) -> Compared:
    """Run a model in all settings, as written and reordered."""
    sizes = sizes_of(path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = named_by_results(path, folder / "written.onnx")
        model = open_bound(written, sizes)
        nodes = open_nodes_of(model)
        found = file_order(model, nodes, Schedule(seconds=seconds))
        [reordered, *_] = write_reordered(model, nodes, found, folder / "reordered.onnx")
        predicted = model.manager.get(OrtOrder(seconds=seconds, sizes="session"))
        row = Compared(path.stem, len(predicted.found.launches), found.moved)
        for setting in EXECUTION_ORDERS:
            _hold(row, setting, written, reordered, folder, sizes, predicted)
        row.refused = _is_refused(written, folder, sizes)
        onnx.checker.check_model(str(reordered))
    return row


def _hold(row: Compared, setting: str, written: Path, reordered: Path, folder: Path, sizes: Mapping[str, int], all_: OrtOrders) -> None:
    before, after = (measure(path, False, folder, sizes, execution=_SETTINGS[setting]) for path in (written, reordered))
    plan = next(one for one in all_.orders if one.setting == setting)
    copy = open_bound(reordered, sizes).manager.get(OrtMemory(execution=setting, sizes="session"))  # type: ignore[arg-type]  # one of its choices
    as_said = [launch.node.name for launch in plan.reordered.order]
    pairs = ((before, plan.written), (after, plan.reordered), (after, copy))
    row.equal[setting] = all(_names(run) == [launch.node.name for launch in one.order] for run, one in pairs) and _names(after) == as_said
    measured = _peak(before), _peak(after)
    row.peaks[setting] = measured
    row.peaks_equal = row.peaks_equal and measured == plan.peaks
    row.same_results = row.same_results and len(before.results) == len(after.results)
    row.same_results = row.same_results and all(map(_same, before.results, after.results))


def _names(run: Measured) -> list[str]:
    return [kernel.name for kernel in run.runs[0]]


def _peak(run: Measured) -> int:
    return max(kernel.requested for kernel in run.runs[0])


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")


def _is_refused(path: Path, folder: Path, sizes: Mapping[str, int]) -> bool:
    try:
        measure(path, False, folder, sizes, execution=_SETTINGS[REFUSED_ORDER])
    except Exception as error:  # onnxruntime has a class of its own for each kind of failure
        return "ExecutionOrder" in str(error)
    return False


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    rows: list[Compared] = []
    print(HEAD)
    for path in parser.parse_args().models or [*sample_models(), *wheel_models(), *cached_exports()]:
        try:
            row = compare(path)
        except Exception as error:
            print(f"{path.stem}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            continue
        rows.append(row)
        print(row.line(), flush=True)
    as_said = sum(all(row.equal.values()) and row.refused for row in rows)
    print(
        f"\n{as_said} of {len(rows)} models in the predicted order, in all settings and in both files; "
        f"{sum(row.same_results for row in rows)} give equal results; {sum(row.peaks_equal for row in rows)} have the predicted peaks"
    )


if __name__ == "__main__":
    main()
