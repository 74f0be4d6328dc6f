"""Holds six counters of ONNX Runtime against their prediction: `python -m tests.tools.oracle.ort_wild FOLDER`.

`python -m tests.zoo.fetch_onnx FOLDER` takes such files out of packages. Each is run in three ways, in a process of its own:

fixed     sizes written into the file, no graph optimisations
inputs    the file as it is, so that the session learns sizes from its inputs; no graph optimisations
default   the file as it is, in a session with default settings; the prediction is that of `--ort-level all`, from the file alone

The counters are the most bytes requested (after any kernel, also those inside others), mem_in_use_peak and mem_arena_held, of the first and
of the second run. `--keep FOLDER` keeps what was measured, so that ONNX Runtime runs once for each file and way. `--shapes` instead exposes
every value of the main graph, and compares shapes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

import irscope
from irscope.frontends.base import LoadOptions
from irscope.ir.types import TensorType
from irscope.passes.inference.shapes import Shapes
from irscope.passes.ort import OrtPlan
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.manager import Manager
from irscope.session import open_model
from tests.zoo.fetch_onnx import WildFile, listed

WAYS: Final = ("fixed", "inputs", "default")
COUNTERS: Final = ("requested 1", "in use 1", "held 1", "requested 2", "in use 2", "held 2")
BOUNDS: Final = (0.02, 0.05, 0.30)
_SECONDS: Final = 240
_MEMORY: Final = 14 << 30
_PLENTY: Final = re.compile(r"num_|nodes|edges|atoms")


@dataclass(frozen=True)
class Measured:
    """What ONNX Runtime says of a file."""

    version: str
    six: list[int]
    kernels: list[list[tuple[str, str, int, int, int]]]
    """For each run, name, operator, bytes requested, bytes in use and their peak so far after each kernel of the main graph."""


@dataclass(frozen=True)
class Row:
    """A file, and what was found."""

    name: str
    measured: Sequence[int]
    predicted: Sequence[int] | None
    why: str = ""
    """Why nothing is predicted, or nothing could be measured."""

    @property
    def errors(self) -> list[float]:
        return [mine / true - 1 if true else float(mine != true) for mine, true in zip(self.predicted or (), self.measured, strict=True)]

    @property
    def worst(self) -> float:
        """The largest error of the six, infinite where they are unknown."""
        return max(self.errors, key=abs) if self.predicted is not None else float("inf")


# ----------------------------------------------------------------------------------------------------
# Inputs.


def open_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """What a caller gives."""
    weights = {one.name for one in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in weights]


def sizes_of(model: onnx.ModelProto, said: Mapping[str, int]) -> dict[str, int]:
    """A size for each free dimension, as input:axis. Those of one name have one size, unless their places are said."""
    sizes: dict[str, int] = {}
    by_name: dict[str, int] = {}
    for value_info_proto in open_inputs(model):
        dims = value_info_proto.type.tensor_type.shape.dim
        is_image = len(dims) == 4 and value_info_proto.type.tensor_type.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
        for axis, dim in enumerate(dims):
            if dim.dim_value <= 0:
                place = f"{value_info_proto.name}:{axis}"
                name = dim.dim_param or place
                size = by_name.setdefault(name, said.get(name, _usual(name, axis, len(dims), is_image)))
                if " + " in name and name not in said:
                    # Such as "past_sequence_length + sequence_length": a sum of sizes that other inputs have.
                    size = sum(said.get(part, by_name.get(part, _usual(part, 1, 2, is_image=False))) for part in name.split(" + "))
                sizes[place] = said.get(place, size)
    return sizes


def _usual(key: str, axis: int, rank: int, is_image: bool) -> int:
    if _PLENTY.search(key):
        return 24
    if axis == 0 and rank > 1:
        return 1
    return 320 if is_image else 64


def inputs_of(model: onnx.ModelProto, sizes: Mapping[str, int], values: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers between 0 and 1 as pixels and samples, ones as ids, indices, masks and counts."""
    chance = np.random.default_rng(0)
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for one in open_inputs(model):
        kind = one.type.tensor_type
        shape = [dim.dim_value if dim.dim_value > 0 else sizes[f"{one.name}:{axis}"] for axis, dim in enumerate(kind.shape.dim)]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if one.name in values:
            inputs[one.name] = np.full(shape, values[one.name], dtype)
        elif np.issubdtype(dtype, np.floating):
            inputs[one.name] = chance.random(shape).astype(dtype)
        else:
            inputs[one.name] = np.ones(shape, dtype)
    return inputs


def with_sizes(path: Path, sizes: Mapping[str, int], folder: Path) -> Path:
    """A copy of a file with its sizes in it, beside the weights that are in other files."""
    model = onnx.load(path, load_external_data=False)
    for one in model.graph.input:
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if dim.dim_value <= 0:
                dim.dim_value = sizes[f"{one.name}:{axis}"]
    fixed = folder / path.name
    onnx.save(model, fixed)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and not (folder / entry.value).exists():
                shutil.copy(path.parent / entry.value, folder / entry.value)
    return fixed


# ----------------------------------------------------------------------------------------------------
# One file, one way.


def measure_one(path: Path, way: str, wanted: WildFile) -> Measured:
    """Run it twice."""
    import onnxruntime

    from tests.tools.oracle.ort_profile import measure

    model = onnx.load(path, load_external_data=False)
    sizes = sizes_of(model, wanted.sizes)
    feeds = inputs_of(model, sizes, wanted.values)
    with tempfile.TemporaryDirectory(dir=path.parent if way == "fixed" else None) as scratch:
        file = with_sizes(path, sizes, Path(scratch)) if way == "fixed" else path
        found = measure(file, way == "default", Path(scratch), feeds=feeds)
    six = [count for run in found.inside for count in (max(getattr(one, what) for one in run) for what in ("requested", "peak", "held"))]
    kernels = [[(one.name, one.op_type, one.requested, one.in_use, one.peak) for one in run] for run in found.runs]
    return Measured(onnxruntime.__version__, six, kernels)


def plan_one(path: Path, way: str, wanted: WildFile) -> OrtPlan:
    """The prediction for it."""
    model = onnx.load(path, load_external_data=False)
    sizes = sizes_of(model, wanted.sizes)
    if way == "fixed":
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            loaded = irscope.load(with_sizes(path, sizes, Path(scratch)), bind=wanted.values)
            return Manager(loaded.program).get(OrtMemory())
    level = "all" if way == "default" else "off"
    return Manager(_bound(path, model, sizes, wanted.values, level).program).get(OrtMemory())


def _bound(path: Path, model: onnx.ModelProto, sizes: Mapping[str, int], values: Mapping[str, int], level: str) -> Any:
    """The model with all that the run fixes. What an unnamed dimension is called depends on the input that has it."""
    loaded = irscope.load(path)
    bound: dict[str, int] = {}
    declared = {value.name: value for value in loaded.program.graph.inputs}
    for value_info_proto in open_inputs(model):
        value = declared.get(value_info_proto.name)
        shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if not isinstance(dim, int) and {str(dim)} == {str(symbol) for symbol in dim.symbols()}:
                bound[str(dim)] = sizes[f"{value_info_proto.name}:{axis}"]
    # Without a device: a session of the CPU provider, which is what was measured.
    return open_model(path, LoadOptions(bind={**bound, **values}, ort_level=level))


def predicted_six(plan: OrtPlan) -> list[int] | None:
    """The six counters; ONNX Runtime never begins its peak anew, so that the second run's is at least the first's."""
    if plan.figures is None:
        return None
    cold, warm = plan.figures.cold.peak, plan.figures.warm.peak
    return [cold.requested, cold.allocated, cold.reserved, warm.requested, max(cold.allocated, warm.allocated), warm.reserved]


def row(path: Path, way: str, wanted: WildFile, keep: Path | None) -> Row:
    """Measure, or take what was kept, and predict."""
    said = json.dumps([wanted.sizes, wanted.values])
    kept = keep / f"{path.stem}.{way}.{hashlib.sha256(said.encode()).hexdigest()[:8]}.json" if keep is not None else None
    if kept is not None and kept.is_file():
        measured = Measured(**json.loads(kept.read_text(encoding="utf-8")))
    else:
        measured = measure_one(path, way, wanted)
        if kept is not None:
            kept.write_text(json.dumps(asdict(measured)), encoding="utf-8")
    plan = plan_one(path, way, wanted)
    six = predicted_six(plan)
    if six is None:
        from irscope.passes.ort.present import why_unknown

        return Row(path.stem, measured.six, None, why_unknown(plan))
    return Row(path.stem, measured.six, six)


def differences(path: Path, way: str, wanted: WildFile, keep: Path) -> Iterator[str]:
    """Kernel by kernel, where bytes requested, bytes in use and their peak begin to differ, and by how much."""
    row(path, way, wanted, keep)
    (kept,) = keep.glob(f"{path.stem}.{way}.*.json")
    measured = Measured(**json.loads(kept.read_text(encoding="utf-8")))
    plan = plan_one(path, way, wanted)
    if plan.figures is None:
        return
    for number, run in enumerate((plan.figures.cold, plan.figures.warm)):
        truth = measured.kernels[number]
        yield f"run {number + 1}: {len(truth)} kernels, predicted {len(plan.order)}; before {plan.figures.before}"
        last: tuple[int, ...] = (0, 0, 0)
        highest = 0
        for step, (name, kind, *true) in enumerate(truth[: len(plan.order)]):
            highest = max(highest, run.highest[step], plan.figures.before.allocated, plan.figures.cold.peak.allocated if number else 0)
            mine = (run.requested[step], run.allocated[step], highest)
            off = tuple(one - other for one, other in zip(mine, true, strict=True))
            if off != last:
                launch = plan.order[step]
                cells = " ".join(f"{other:>12,} {one:+11,}" for one, other in zip(off, true, strict=True))
                yield f"  {step:5} {kind:20} {name[:30]:30} {cells}   {launch.name} {launch.node.name}"
                last = off


# ----------------------------------------------------------------------------------------------------
# Shapes.


def shapes(path: Path, wanted: WildFile) -> Iterator[str]:
    """Run with every value of the main graph exposed; a line for each whose shape or element type is inferred wrongly, and one in sum."""
    import onnxruntime

    model = onnx.load(path)
    sizes = sizes_of(model, wanted.sizes)
    feeds = inputs_of(model, sizes, wanted.values)
    inferred = _bound(path, model, sizes, wanted.values)
    types = Manager(inferred.program).get(Shapes())
    known = {output.name: types.type_of(output) for node in inferred.program.graph for output in node.outputs if output.name}
    returned = {one.name for one in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in returned)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    asked = [one.name for one in session.get_outputs()]
    right = open_ = 0
    for name, value in zip(asked, session.run(asked, feeds), strict=True):
        mine = known.get(name)
        if not isinstance(value, np.ndarray) or not isinstance(mine, TensorType) or mine.shape is None:
            open_ += 1
        elif len(mine.shape) != value.ndim or any(
            isinstance(dim, int) and dim != size for dim, size in zip(mine.shape, value.shape, strict=True)
        ):
            yield f"{path.stem}: {name} is {value.shape}, inferred {mine}"
        elif all(isinstance(dim, int) for dim in mine.shape):
            right += 1
        else:
            open_ += 1
    yield f"{path.stem}: {right} right, {open_} open of {len(asked)}"


# ----------------------------------------------------------------------------------------------------
# All of them.


def limited(arguments: Sequence[str]) -> str:
    """What this module prints in a process of its own, with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))

    command = [sys.executable, "-m", "tests.tools.oracle.ort_wild", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, preexec_fn=limit, check=False)
    except subprocess.TimeoutExpired:
        return json.dumps({"failed": f"more than {_SECONDS} s"})
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return json.dumps({"failed": said[-1][:300] if said else f"exit {done.returncode}"})
    return done.stdout


def summary(rows: Sequence[Row]) -> str:
    """Shares of models whose worst counter is within each bound."""
    measured = [one for one in rows if one.measured]
    shares = [sum(abs(measurement.worst) <= bound for measurement in measured) for bound in BOUNDS]
    exact = sum(measurement.worst == 0 for measurement in measured)
    parts = [f"{share} within {bound:.0%}" for share, bound in zip(shares, BOUNDS, strict=True)]
    unknown = sum(measurement.predicted is None for measurement in measured)
    return f"{len(measured)} models: {exact} exact, {', '.join(parts)}, {unknown} unknown, {len(rows) - len(measured)} not run"


def table(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each model, the best first."""
    yield f"| model | worst of six | {' | '.join(COUNTERS)} |"
    yield "|---|---|" + "---|" * len(COUNTERS)
    for one in sorted(rows, key=lambda one: abs(one.worst)):
        if one.predicted is None:
            yield f"| {one.name} | {one.why} |" + " |" * len(COUNTERS)
        else:
            cells = [f"{true:,}" + (f" ({error:+.1%})" if error else "") for true, error in zip(one.measured, one.errors, strict=True)]
            yield f"| {one.name} | {one.worst:+.2%} | {' | '.join(cells)} |"


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.oracle.ort_wild", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, help="files, or folders with such")
    parser.add_argument("--way", default=",".join(WAYS), help="which of the three")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was measured there, and take it from there")
    parser.add_argument(
        "--held-back", choices=("with", "without", "only"), default="with", help="the third of the files that nothing is tuned on"
    )
    parser.add_argument("--sizes", default="", metavar="NAME=SIZE,...", help="sizes of free dimensions, by name")
    parser.add_argument("--shapes", action="store_true", help="compare shapes of all values instead")
    parser.add_argument("--steps", action="store_true", help="of one file, where bytes requested begin to differ")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    by_name = {one.name: one for one in listed()}
    paths = [found for path in chosen.models for found in (sorted(path.glob("*.onnx")) if path.is_dir() else [path])]
    named = {name: int(size) for name, _, size in (pair.partition("=") for pair in chosen.sizes.split(",") if pair)}
    files = [(path, by_name.get(path.name, WildFile("", "", path.name, "1", 0, named))) for path in paths]
    files = [(path, one) for path, one in files if chosen.held_back == "with" or one.held_back is (chosen.held_back == "only")]
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    if chosen.steps:
        print(*differences(*files[0][:1], chosen.way, files[0][1], chosen.keep), sep="\n")
        return
    if chosen.one:
        path, one = files[0]
        print(json.dumps(list(shapes(path, one)) if chosen.shapes else asdict(row(path, chosen.way, one, chosen.keep))))
        return
    common = ["--one", "--sizes", chosen.sizes, *(["--keep", str(chosen.keep)] if chosen.keep is not None else [])]
    if chosen.shapes:
        for path, _ in files:
            found = json.loads(limited([str(path), "--shapes", *common]).splitlines()[-1])
            print(*(found if isinstance(found, list) else [f"{path.stem}: {found['failed']}"]), sep="\n", flush=True)
        return
    for way in chosen.way.split(","):
        rows = []
        for path, _ in files:
            found = json.loads(limited([str(path), "--way", way, *common]).splitlines()[-1])
            rows.append(Row(path.stem, (), None, found["failed"]) if "failed" in found else Row(**found))
        print(f"\n## {way}\n", *table(rows), "", f"{way}: {summary(rows)}", sep="\n", flush=True)


if __name__ == "__main__":
    main()
