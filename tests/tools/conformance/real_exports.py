"""Grades the inferred type of every intermediate value of models exported by torch: `python -m tests.tools.conformance.real_exports`.

The truth is a run of ONNX Runtime with each value as a result. Sizes that the export left open stay symbols for irscope;
its answers are compared at the sizes of two runs: those of the example the model was traced with, and others.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from irscope.frontends.onnx import load_model
from irscope.ir.dims import Dim, SymDim, bind, parse_dim
from irscope.ir.program import Program
from irscope.ir.types import SequenceType, TensorType, Type
from irscope.passes.cost.flops import Flops
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.conformance.engines import DTYPE_NUMBERS
from tests.tools.conformance.grade import Answer, Grade, ListAnswer, TensorAnswer, grade, worst
from tests.tools.conformance.suite import Sequence_, Tensor, Truth, cache_folder

NAMES = ("bert", "llama", "vit", "resnet")
MORE = ("gpt2", "cached", "wav2vec", "segformer")
"""Not part of the figures: lists, sizes that are sums, chains of convolutions over any length and any image."""
KINDS = {
    "optimised": "as the exporter leaves it with optimize=True",
    "plain": "as the exporter leaves it with optimize=False",
    "optimised-ort": "the first, after the extended optimisations of ONNX Runtime",
    "plain-ort": "the second, after the extended optimisations of ONNX Runtime",
}
GROUPS = {"optimised": ("optimised",), "plain": ("plain",), "ort": ("optimised-ort", "plain-ort")}
PACKAGES = ("torch", "transformers", "onnxscript", "onnxruntime")
EXAMPLE = {"batch": 2, "seq": 7, "past": 5, "height": 32, "width": 48, "samples": 400}
OTHER = {"batch": 3, "seq": 5, "past": 9, "height": 75, "width": 41, "samples": 523}

_BUILDER = Path(__file__).with_name("export_models.py")
_VOCABULARY = 99


# -- the graphs --------------------------------------------------------------------------------------------------


def missing_packages() -> list[str]:
    """What must be installed to make the graphs, and is not."""
    return [name for name in PACKAGES if not _version(name)]


def _version(package: str) -> str:
    # onnxruntime-gpu has the same modules.
    for distribution in (package, f"{package}-gpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def exported(name: str) -> dict[str, Path]:
    """The graphs of a model by kind, made once for each set of package versions and then kept in a cache folder."""
    made_from = "-".join([_BUILDER.read_text(encoding="utf-8"), *map(_version, PACKAGES)])
    folder = cache_folder() / f"exports-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    paths = {kind: folder / f"{name}-{kind}.onnx" for kind in KINDS}
    if not all(path.exists() for path in paths.values()):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            _make(name, Path(made))
            for path in paths.values():
                os.replace(Path(made) / path.name, path)
    return paths


def _make(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.tools.conformance.export_models", str(folder), name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=_BUILDER.parents[3], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"exporting {name} failed:\n{done.stderr[-4000:]}")
    for kind in GROUPS["optimised"] + GROUPS["plain"]:
        _optimise(folder / f"{name}-{kind}.onnx", folder / f"{name}-{kind}-ort.onnx")


def _optimise(source: Path, target: Path) -> None:
    import onnxruntime as ort

    options = _session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _session_options() -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return options


# -- the truth ---------------------------------------------------------------------------------------------------


def observed(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Truth]:
    """Type of each value of the main graph in a run with these sizes."""
    import onnxruntime as ort

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    names = [name for node in watched.graph.node for name in node.output if name]
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = _session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(names, {info.name: _array(info, sizes) for info in model.graph.input})
    return {name: _truth(result) for name, result in zip(names, results, strict=True)}


def _truth(result: Any) -> Truth:
    if isinstance(result, list):
        items = tuple(_truth(item) for item in result)
        first = items[0] if items else None
        return Sequence_(items, first.dtype if isinstance(first, Tensor) else 0)
    return Tensor(onnx.helper.np_dtype_to_tensor_dtype(result.dtype), result.shape)


def _array(info: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    dims = info.type.tensor_type.shape.dim
    shape = [bound_size(parse_dim(dim.dim_param), sizes) if dim.dim_param else dim.dim_value for dim in dims]
    source = np.random.default_rng(0)
    if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        return source.standard_normal(shape, dtype=np.float32)
    return np.ones(shape, np.int64) if "mask" in info.name else source.integers(0, _VOCABULARY, shape)


# -- what irscope says -------------------------------------------------------------------------------------------


def program_of(model: onnx.ModelProto) -> Program:
    """A model as irscope reads it, without the types that the file declares for values and results."""
    erased = onnx.ModelProto()
    erased.CopyFrom(model)
    del erased.graph.value_info[:]
    for info in erased.graph.output:
        info.ClearField("type")
    return load_model(erased.SerializeToString())


def inferred(program: Program) -> dict[str, Type]:
    """Types of the values of the main graph by name; what Constant nodes make are weights."""
    found = Manager(program).get(Shapes())
    values = [*program.graph.weights, *(value for node in program.graph for value in node.outputs)]
    return {value.name: found.type_of(value) for value in values if value.name}


def answer_at(type_: Type | None, sizes: Mapping[str, int]) -> Answer:
    """A type with its symbols replaced, as it is graded."""
    if isinstance(type_, TensorType):
        shape = None if type_.shape is None else tuple(bound_size(dim, sizes) for dim in type_.shape)
        return TensorAnswer(DTYPE_NUMBERS[type_.dtype], shape)
    return ListAnswer(answer_at(type_.element, sizes)) if isinstance(type_, SequenceType) else None


def bound_size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """A size with its symbols replaced; None where others are left."""
    bound = bind(dim, sizes)
    return None if isinstance(bound, SymDim) else bound


@dataclass
class Graded:
    """One graph with the grade of each of its values."""

    name: str
    kind: str
    nodes: int
    grades: dict[str, Grade] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """What was said and what is true of the values that are not exact."""

    @property
    def bad(self) -> list[str]:
        """A line for each value that is not exact."""
        return [f"{self.name}-{self.kind} {value}: {self.grades[value].name.lower()}, {note}" for value, note in self.notes.items()]


def grade_graph(name: str, kind: str, model: onnx.ModelProto, types: Mapping[str, Type]) -> Graded:
    """Compare every value of the main graph; its grade is the worst of the runs."""
    graded = Graded(name, kind, len(model.graph.node))
    for sizes in (EXAMPLE, OTHER):
        for value, truth in observed(model, sizes).items():
            answer = answer_at(types.get(value), sizes)
            found = grade(truth, answer)
            graded.grades[value] = worst([graded.grades.get(value, Grade.EXACT), found])
            if found is not Grade.EXACT:
                graded.notes[value] = f"{types.get(value)}, which is {answer} for {truth}"
    return graded


def grade_model(name: str) -> list[Graded]:
    """Every graph of a model."""
    models = {kind: onnx.load(path) for kind, path in exported(name).items()}
    return [grade_graph(name, kind, model, inferred(program_of(model))) for kind, model in models.items()]


def exact_share(graphs: Iterable[Graded]) -> float:
    """Values that are exact in all graphs together, in percent."""
    found = [one for graded in graphs for one in graded.grades.values()]
    return 100.0 * found.count(Grade.EXACT) / max(len(found), 1)


# -- arithmetic --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arithmetic:
    """What `flops` says about a graph at some sizes."""

    matmul: int | None
    total: int | None
    unknown: tuple[str, ...]
    """Operators without a known cost."""


def arithmetic(path: Path, sizes: Mapping[str, int]) -> Arithmetic:
    """The FLOPs of a graph whose sizes were left open, at the sizes of a run."""
    costs = Manager(program_of(onnx.load(path))).get(Flops())
    return Arithmetic(bound_size(costs.total.matmul, sizes), bound_size(costs.total.flops, sizes), tuple(costs.unknown))


# -- the tables --------------------------------------------------------------------------------------------------


def table(graphs: Sequence[Graded]) -> Iterator[str]:
    """One line for each graph, then one for each group of them."""
    yield f"{'graph':24} nodes  values   exact %  partial  unknown  wrong"
    for graded in graphs:
        yield _row(f"{graded.name}-{graded.kind}", [graded])
    for group, kinds in GROUPS.items():
        chosen = [graded for graded in graphs if graded.kind in kinds]
        yield _row(f"all {group} ({len(chosen)})", chosen)


def _row(title: str, graphs: Sequence[Graded]) -> str:
    counts = Counter(found for graded in graphs for found in graded.grades.values())
    nodes, values = sum(graded.nodes for graded in graphs), sum(counts.values())
    partial, unknown, wrong = (counts[one] for one in (Grade.PARTIAL, Grade.UNKNOWN, Grade.WRONG))
    return f"{title:24} {nodes:5d} {values:7d} {exact_share(graphs):9.2f} {partial:8d} {unknown:8d} {wrong:6d}"


def arithmetic_table(names: Sequence[str]) -> Iterator[str]:
    """FLOPs of every graph at sizes that differ from the example's."""
    yield f"{'graph':24} {'matmul FLOPs':>13} {'all FLOPs':>11}  unknown operators"
    for name in names:
        for kind, path in exported(name).items():
            found = arithmetic(path, OTHER)
            yield f"{name + '-' + kind:24} {found.matmul!s:>13} {found.total!s:>11}  {', '.join(found.unknown) or 'none'}"


def main() -> None:
    """Grade and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.conformance.real_exports", description=__doc__)
    parser.add_argument("--model", default=",".join(NAMES), help=f"which models, of {', '.join(NAMES + MORE)}")
    parser.add_argument("--list", action="store_true", help="name the values that are not exact")
    arguments = parser.parse_args()
    missing = missing_packages()
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")
    names = arguments.model.split(",")
    graphs = [graded for name in names for graded in grade_model(name)]
    print(*table(graphs), sep="\n")
    if arguments.list:
        print(*(line for graded in graphs for line in graded.bad), sep="\n")
    print("", *arithmetic_table(names), sep="\n")


if __name__ == "__main__":
    main()
