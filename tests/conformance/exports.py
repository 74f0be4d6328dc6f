"""Grades the inferred type of every intermediate value of models exported by torch: `python -m tests.conformance.exports`.

The truth is a run of ONNX Runtime with each value as a result. Sizes that the export left open stay symbols for irscope;
its answers are compared at the sizes of two runs: those of the example the model was traced with, and others.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from irscope.frontends.onnx import load_model
from irscope.ir.dims import Dim, SymDim, bind
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type
from irscope.passes.flops import Flops
from irscope.passes.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.conformance.engines import DTYPE_NUMBERS
from tests.conformance.grade import Grade, Tensor, TensorAnswer, grade, worst
from tests.conformance.suite import cache_folder

NAMES = ("bert", "llama", "vit", "resnet")
KINDS = {
    "optimised": "as the exporter leaves it with optimize=True",
    "plain": "as the exporter leaves it with optimize=False",
    "optimised-ort": "the first, after the extended optimisations of ONNX Runtime",
    "plain-ort": "the second, after the extended optimisations of ONNX Runtime",
}
GROUPS = {"optimised": ("optimised",), "plain": ("plain",), "ort": ("optimised-ort", "plain-ort")}
PACKAGES = ("torch", "transformers", "onnxscript", "onnxruntime")
SIZES: tuple[Mapping[str, int], ...] = (
    {"batch": 2, "seq": 7, "height": 32, "width": 48},
    {"batch": 3, "seq": 5, "height": 75, "width": 41},
)
"""Sizes of the runs: first those of the example."""

_FORMAT = 1
_VOCABULARY = 99


@dataclass
class Graded:
    """One graph with the grade of each of its values."""

    name: str
    kind: str
    nodes: int
    grades: dict[str, Grade] = field(default_factory=dict)
    answers: dict[str, TensorAnswer | None] = field(default_factory=dict)
    truths: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def bad(self) -> list[str]:
        """A line for each value that is not exact."""
        return [
            f"{self.name}-{self.kind} {value}: {found.name.lower()}, {self.answers.get(value)} for {self.truths[value]}"
            for value, found in self.grades.items()
            if found is not Grade.EXACT
        ]


# -- the graphs --------------------------------------------------------------------------------------------------


def missing_packages() -> list[str]:
    """What must be installed to make the graphs, and is not."""
    return [name for name in PACKAGES if not _version(name)]


def exported(name: str) -> dict[str, Path]:
    """The graphs of a model by kind, made once for each set of package versions and then kept in a cache folder."""
    versions = "-".join(_version(package) for package in PACKAGES)
    folder = cache_folder() / f"exports-{_FORMAT}-{versions}"
    folder.mkdir(exist_ok=True)
    paths = {kind: folder / f"{name}-{kind}.onnx" for kind in KINDS}
    if not all(path.exists() for path in paths.values()):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            _make(name, Path(made))
            for path in paths.values():
                os.replace(Path(made) / path.name, path)
    return paths


def _make(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.conformance.export_models", str(folder), name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
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


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


# -- the truth ---------------------------------------------------------------------------------------------------


def observed(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Tensor]:
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
    arrays = session.run(names, {info.name: _array(info, sizes) for info in model.graph.input})
    number = onnx.helper.np_dtype_to_tensor_dtype
    return {name: Tensor(number(array.dtype), array.shape) for name, array in zip(names, arrays, strict=True)}


def _array(info: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in info.type.tensor_type.shape.dim]
    source = np.random.default_rng(0)
    if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        return source.standard_normal(shape, dtype=np.float32)
    return np.ones(shape, np.int64) if "mask" in info.name else source.integers(0, _VOCABULARY, shape)


# -- what irscope says -------------------------------------------------------------------------------------------


def erased(path: Path) -> onnx.ModelProto:
    """A model without the types that the file declares for values and results."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.ClearField("type")
    return model


def program_of(path: Path) -> Program:
    """A graph as irscope reads it."""
    return load_model(erased(path).SerializeToString())


def _answer(type_: Type, sizes: Mapping[str, int]) -> TensorAnswer | None:
    if not isinstance(type_, TensorType):
        return None
    shape = None if type_.shape is None else tuple(_size(dim, sizes) for dim in type_.shape)
    return TensorAnswer(DTYPE_NUMBERS[type_.dtype], shape)


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    bound = bind(dim, sizes)
    return None if isinstance(bound, SymDim) else bound


def grade_graph(name: str, kind: str, path: Path) -> Graded:
    """Compare every value of the main graph; its grade is the worst of the runs."""
    model = onnx.load(path)
    program = program_of(path)
    found = Manager(program).get(Shapes())
    # Results of Constant nodes are weights.
    values = [*program.graph.weights, *(value for node in program.graph for value in node.outputs)]
    types = {value.name: found.type_of(value) for value in values if value.name}
    graded = Graded(name, kind, len(model.graph.node))
    for sizes in SIZES:
        for value, truth in observed(model, sizes).items():
            answer = _answer(types[value], sizes) if value in types else None
            graded.truths[value] = (*graded.truths.get(value, ()), truth)
            graded.answers[value] = answer
            graded.grades[value] = worst([graded.grades.get(value, Grade.EXACT), grade(truth, answer)])
    return graded


def grade_all(names: Iterable[str] = NAMES) -> list[Graded]:
    """Every graph of these models."""
    return [grade_graph(name, kind, path) for name in names for kind, path in exported(name).items()]


def exact_share(graphs: Iterable[Graded]) -> float:
    """Values that are exact in all graphs together, in percent."""
    found = [one for graded in graphs for one in graded.grades.values()]
    return 100.0 * found.count(Grade.EXACT) / max(len(found), 1)


# -- arithmetic --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arithmetic:
    """What `flops` says about a graph at some sizes."""

    matmul: int
    total: int
    unknown: tuple[str, ...]
    """Operators without a known cost."""


def arithmetic(path: Path, sizes: Mapping[str, int]) -> Arithmetic:
    """The FLOPs of a graph whose sizes were left open, at the sizes of a run."""
    costs = Manager(program_of(path)).get(Flops())
    matmul, total = (bind(part, sizes) for part in (costs.total.matmul, costs.total.flops))
    assert isinstance(matmul, int) and isinstance(total, int)
    return Arithmetic(matmul, total, tuple(costs.unknown))


# -- the table ---------------------------------------------------------------------------------------------------


def table(graphs: Iterable[Graded]) -> Iterable[str]:
    """One line for each graph, then one for each group of them."""
    graphs = list(graphs)
    yield f"{'graph':22} nodes  values   exact %  partial  unknown  wrong"
    for graded in graphs:
        yield _row(f"{graded.name}-{graded.kind}", [graded])
    for group, kinds in GROUPS.items():
        chosen = [graded for graded in graphs if graded.kind in kinds]
        yield _row(f"all {group} ({len(chosen)})", chosen)


def _row(title: str, graphs: list[Graded]) -> str:
    counts = Counter(found for graded in graphs for found in graded.grades.values())
    nodes, values = sum(graded.nodes for graded in graphs), sum(counts.values())
    partial, unknown, wrong = (counts[one] for one in (Grade.PARTIAL, Grade.UNKNOWN, Grade.WRONG))
    return f"{title:22} {nodes:5d} {values:7d} {exact_share(graphs):9.2f} {partial:8d} {unknown:8d} {wrong:6d}"


def main() -> None:
    """Grade and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.exports", description=__doc__)
    parser.add_argument("--model", default=",".join(NAMES), help="which models")
    parser.add_argument("--list", action="store_true", help="name the values that are not exact")
    arguments = parser.parse_args()
    missing = missing_packages()
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")
    names = arguments.model.split(",")
    graphs = grade_all(names)
    print(*table(graphs), sep="\n")
    if arguments.list:
        print(*(line for graded in graphs for line in graded.bad()), sep="\n")
    print(f"\n{'FLOPs at the second sizes':30} {'matmul':>12} {'total':>12}  unknown operators")
    for name in names:
        for kind, path in exported(name).items():
            found = arithmetic(path, SIZES[1])
            print(f"{name + '-' + kind:30} {found.matmul:12d} {found.total:12d}  {', '.join(found.unknown) or 'none'}")


if __name__ == "__main__":
    main()
