"""Holds predicted bytes in use after every kernel against ONNX Runtime's own profile: `python -m tests.tools.oracle.ort_memory`.

Without arguments the models are the samples, the small ones of the onnx wheel and what the exports of the zoo have left in the
cache; arguments are files. Each runs on the CPU provider twice, without and with graph optimisations. With them the prediction
is made from the graph that ONNX Runtime says it runs, which it saves.

`--save FOLDER` keeps that graph, without its weights, and bytes in use after each kernel, and compares nothing.
Under `valgrind --tool=none`, whose processor has AVX2 and no AVX-512, that gives what other machines than this one run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

import irscope
from irscope.passes.ort import OrtPlan, OrtRun
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.manager import Manager
from tests.tools.oracle.ort_profile import KernelMemory, measure

FREE = 2
"""What free dimensions are set to where nothing else is said."""


@dataclass(frozen=True)
class Compared:
    """One run of one model."""

    name: str
    optimised: bool
    run: int
    kernels: int
    measured: int
    predicted: int
    exact: int
    """Kernels after which both numbers of bytes in use are equal."""
    in_use: tuple[int, int]
    """mem_in_use_peak, measured and predicted: with rounding and what kernels take while they run, since the session was made."""
    held: tuple[int, int]

    @property
    def error(self) -> float:
        """Of the peak, as a fraction of the measured one."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


def sizes_of(model: Path) -> dict[str, int]:
    """Every free dimension of a model's inputs, with a size for it."""
    graph = onnx.load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in weights]
    names = [dim.dim_param for info in inputs for dim in info.type.tensor_type.shape.dim if dim.dim_param]
    return dict.fromkeys(names, FREE)


def predict(path: Path, sizes: Mapping[str, int], order: str = "ort", pattern: bool = True) -> OrtPlan:
    """The plan of a file."""
    model = irscope.load(path)
    bound = {name: size for name, size in sizes.items() if name in model.program.symbols}
    if bound:
        model = irscope.load(path, bind=bound)
    # The sizes are given to the session, before it plans.
    wanted = OrtMemory(order="file" if order == "file" else "ort", pattern=pattern, sizes="session")
    return Manager(model.program).get(wanted)


def compare(path: Path, name: str = "", sizes: Mapping[str, int] | None = None) -> Iterator[Compared]:
    """Four runs: without and with optimisations, first and second."""
    sizes = sizes_of(path) if sizes is None else sizes
    for optimise in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(path, optimise, Path(folder), sizes)
            # The saved file has the nodes in the order in which this session runs them.
            plan = predict(measured.saved, {}, "file") if measured.saved is not None else predict(path, sizes)
        assert plan.figures is not None, f"{path}: a size is unknown"
        cold, warm = plan.figures.cold, plan.figures.warm
        highest = cold.peak.allocated
        for number, (truth, inside, run) in enumerate(zip(measured.runs, measured.inside, (cold, warm), strict=True), 1):
            # ONNX Runtime never begins its peak anew.
            highest = max(highest, run.peak.allocated)
            yield _compared(name or path.stem, optimise, number, truth, run, highest, max(inner.requested for inner in inside))


def _compared(name: str, optimised: bool, number: int, truth: Sequence[KernelMemory], run: OrtRun, highest: int, most: int) -> Compared:
    same = sum(kernel_memory.requested == predicted for kernel_memory, predicted in zip(truth, run.requested, strict=False))
    return Compared(
        name,
        optimised,
        number,
        len(truth),
        most,
        run.peak.requested,
        same,
        (max(kernel_memory.peak for kernel_memory in truth), highest),
        (max(kernel_memory.held for kernel_memory in truth), run.peak.reserved),
    )


def save(path: Path, folder: Path) -> None:
    """Write the graph that runs with optimisations, and what was in use after each of its kernels in both runs."""
    with tempfile.TemporaryDirectory() as scratch:
        measured = measure(path, True, Path(scratch), sizes_of(path))
        assert measured.saved is not None
        # mtime 0: the same graph is the same file.
        (folder / f"{path.stem}.onnx.gz").write_bytes(gzip.compress(measured.saved.read_bytes(), 9, mtime=0))
    counters = [{"requested": [one.requested for one in run], "in_use": [one.in_use for one in run]} for run in measured.runs]
    (folder / f"{path.stem}.json").write_text(json.dumps({"onnxruntime": onnxruntime.__version__, "runs": counters}) + "\n")


def wheel_models() -> list[Path]:
    """The convolutional networks that come with onnx."""
    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))


def sample_models() -> list[Path]:
    """The models of this repository."""
    return sorted((Path(__file__).parents[3] / "samples" / "models").glob("*.onnx"))


def cached_exports() -> list[Path]:
    """Exports of the zoo that were made before: `python -m tests.tools.zoo` makes them."""
    from tests.tools.zoo.export import cache_folder

    return sorted((cache_folder() / "onnx").glob("*.onnx"))


def table(rows: Sequence[Compared]) -> Iterator[str]:
    """A line for each run of each model."""
    yield "| model | optimisations | run | kernels | measured peak | predicted peak | error | kernels exact |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        share = f"{row.exact} of {row.kernels}"
        state = "on" if row.optimised else "off"
        peaks = f"{row.measured:,} | {row.predicted:,} | {100 * row.error:+.3f} %"
        yield f"| {row.name} | {state} | {row.run} | {row.kernels} | {peaks} | {share} |"


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write what runs there")
    parser.add_argument("--worst", action="store_true", help="print only the totals and the largest errors")
    chosen = parser.parse_args()
    if chosen.save is not None:
        for path in chosen.models:
            save(path, chosen.save)
        return
    rows: list[Compared] = []
    for path in chosen.models or [*sample_models(), *wheel_models(), *cached_exports()]:
        try:
            rows.extend(compare(path))
        except Exception as error:
            print(f"{path.stem}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
    shown = sorted(rows, key=lambda row: -abs(row.error))[:10] if chosen.worst else rows
    print(*table(shown), sep="\n")
    names = {row.name for row in rows}
    within = {name for name in names if all(abs(row.error) <= 0.02 for row in rows if row.name == name)}
    exact = sum(row.error == 0 for row in rows)
    print(f"\n{len(within)} of {len(names)} models within 2 % in all runs; {exact} of {len(rows)} peaks equal to the byte")
    for what, pairs in (("mem_in_use_peak", [row.in_use for row in rows]), ("mem_arena_held", [row.held for row in rows])):
        equal = sum(truth == found for truth, found in pairs)
        worst = max((abs(found / truth - 1) for truth, found in pairs), default=0.0)
        print(f"{what}: {equal} of {len(pairs)} equal, worst error {100 * worst:.1f} %")


if __name__ == "__main__":
    main()
