"""Large ONNX graphs: CPU seconds and memory to load them and infer every shape, beside onnx's own inference.

`python -m benchmarks.onnx_big [--sizes 1000,10000,100000]` prints the table; `--external` adds a model with 3.2 GB of weights in
a file of zeros that takes no space on the disk. Every measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.measurement import Measurement

LIMIT_SECONDS = 5.0
LIMIT_MB = 400
"""What 100,050 nodes may take."""
EXTERNAL_SECONDS = 0.6
EXTERNAL_MB = 120
"""What 3.2 GB of external weights may take more than a small model, and in all."""
_ALIGNMENT = 4096
_SMALLEST_EXTERNAL = 1024


# -- the graph ---------------------------------------------------------------------------------------------------


class _Writer:
    """Transformer layers of 58 nodes each: batch and sequence length are symbols, and shapes are computed as exporters do it."""

    def __init__(self, hidden: int, heads: int, data_name: str = "") -> None:
        self.hidden, self.heads = hidden, heads
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.data_bytes = 0
        self._data_name = data_name
        self._random = np.random.default_rng(0)
        for name, number in (("zero", np.int64(0)), ("one", np.int64(1)), ("root", np.float32((hidden // heads) ** 0.5))):
            self.weights.append(numpy_helper.from_array(np.asarray(number), name))
        for name, size in (("first", 0), ("heads", heads), ("head", hidden // heads), ("hidden", hidden)):
            self.weights.append(numpy_helper.from_array(np.array([size], np.int64), name))
        for name, value in (("half", 0.5), ("unit", 1.0), ("sqrt2", 2**0.5)):
            self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        output = f"{name}_out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def weight(self, name: str, *shape: int) -> str:
        size = 4 * int(np.prod(shape))
        if self._data_name and size >= _SMALLEST_EXTERNAL:
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", self._data_name), ("offset", str(self.data_bytes)), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
            self.data_bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
            self.weights.append(tensor)
        else:
            self.weights.append(numpy_helper.from_array(self._random.standard_normal(shape, dtype=np.float32), name))
        return name

    def linear(self, x: str, at: str, name: str, inputs: int, outputs: int) -> str:
        product = self.node("MatMul", [x, self.weight(f"{name}.weight", inputs, outputs)], f"{at}/matmul")
        return self.node("Add", [product, self.weight(f"{name}.bias", outputs)], f"{at}/add")

    def norm(self, x: str, at: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight", self.hidden), self.weight(f"{name}.bias", self.hidden)
        return self.node("LayerNormalization", [x, scale, bias], at, axis=-1)

    def reshaped(self, x: str, at: str, tail: list[str]) -> str:
        """The first two sizes of `x`, then given ones, as a new shape: seven nodes."""
        shape = self.node("Shape", [x], f"{at}/shape")
        sizes = []
        for index in ("zero", "one"):
            size = self.node("Gather", [shape, index], f"{at}/size_{index}")
            sizes.append(self.node("Unsqueeze", [size, "first"], f"{at}/list_{index}"))
        target = self.node("Concat", [*sizes, *tail], f"{at}/target", axis=0)
        return self.node("Reshape", [x, target], f"{at}/reshape")

    def layer(self, x: str, index: int) -> str:
        at, name, hidden = f"/layers.{index}", f"layers.{index}", self.hidden
        normed = self.norm(x, f"{at}/norm1", f"{name}.norm1")
        parts = {}
        for part in "qkv":
            projected = self.linear(normed, f"{at}/{part}", f"{name}.{part}", hidden, hidden)
            split = self.reshaped(projected, f"{at}/{part}", ["heads", "head"])
            parts[part] = self.node("Transpose", [split], f"{at}/{part}/transpose", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])
        scores = self.node("MatMul", [parts["q"], parts["k"]], f"{at}/scores")
        scores = self.node("Div", [scores, "root"], f"{at}/scale")
        scores = self.node("Add", [scores, "mask"], f"{at}/mask")
        scores = self.node("Softmax", [scores], f"{at}/softmax", axis=-1)
        mixed = self.node("MatMul", [scores, parts["v"]], f"{at}/mix")
        mixed = self.node("Transpose", [mixed], f"{at}/transpose", perm=[0, 2, 1, 3])
        mixed = self.reshaped(mixed, f"{at}/join", ["hidden"])
        x = self.node("Add", [x, self.linear(mixed, f"{at}/out", f"{name}.out", hidden, hidden)], f"{at}/residual1")
        inner = self.linear(self.norm(x, f"{at}/norm2", f"{name}.norm2"), f"{at}/up", f"{name}.up", hidden, 4 * hidden)
        curve = self.node("Div", [inner, "sqrt2"], f"{at}/gelu/div")
        curve = self.node("Erf", [curve], f"{at}/gelu/erf")
        curve = self.node("Add", [curve, "unit"], f"{at}/gelu/add")
        curve = self.node("Mul", [inner, curve], f"{at}/gelu/mul")
        curve = self.node("Mul", [curve, "half"], f"{at}/gelu/half")
        return self.node("Add", [x, self.linear(curve, f"{at}/down", f"{name}.down", 4 * hidden, hidden)], f"{at}/residual2")


def write_model(path: Path, nodes: int, hidden: int = 16, heads: int = 2, external: bool = False) -> int:
    """Write whole layers until there are at least so many nodes; returns how many there are."""
    data_name = f"{path.name}.data" if external else ""
    writer = _Writer(hidden, heads, data_name)
    x, layers = "x", 0
    while len(writer.nodes) < nodes:
        x = writer.layer(x, layers)
        layers += 1
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", hidden]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", 1, 1, "seq"]),
    ]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "seq", hidden])]
    graph = helper.make_graph(writer.nodes, "big", inputs, outputs, writer.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    if external:
        with (path.parent / data_name).open("wb") as file:
            file.truncate(writer.data_bytes)
    return len(writer.nodes)


# -- one measurement ---------------------------------------------------------------------------------------------


def peak_mb() -> int:
    """Most memory this process ever held."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _irscope() -> Callable[[Path], float]:
    from irscope.passes.inference.shapes import Shapes, is_known
    from irscope.session import open_model

    def work(path: Path) -> float:
        model = open_model(path)
        found = model.manager.get(Shapes())
        return sum(is_known(found.type_of(node.outputs[0])) for node in model.graph) / len(model.graph)

    return work


def _irscope_run() -> Callable[[Path], float]:
    """What `irscope run --passes shapes,stats` does, with the report."""
    from irscope.session import open_model

    def work(path: Path) -> float:
        model = open_model(path)
        results = model.run("shapes,stats")
        coverage = results["shapes"].report().coverage
        model.document(results)
        return coverage.known / coverage.total if coverage is not None and coverage.total else 0.0

    return work


def _onnx_inference(data_prop: bool) -> Callable[[], Callable[[Path], float]]:
    def make() -> Callable[[Path], float]:
        def work(path: Path) -> float:
            model = onnx.load(path, load_external_data=False)
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
            known = {info.name for info in (*inferred.graph.value_info, *inferred.graph.output) if _is_known(info.type.tensor_type)}
            return sum(node.output[0] in known for node in model.graph.node) / len(model.graph.node)

        return work

    return make


def _is_known(type_: onnx.TypeProto.Tensor) -> bool:
    dims = type_.shape.dim
    return type_.HasField("shape") and all(dim.HasField("dim_value") or not dim.dim_param.startswith(("unk__",)) for dim in dims)


TOOLS: dict[str, Callable[[], Callable[[Path], float]]] = {
    "irscope": _irscope,
    "irscope run": _irscope_run,
    "onnx": _onnx_inference(False),
    "onnx data_prop": _onnx_inference(True),
}
"""Each makes a function that loads a model, infers its shapes, and returns the share of node results that are known."""


def measured(tool: str, path: Path) -> dict[str, float]:
    """CPU seconds without imports, peak memory, and the share of known results, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.onnx_big", "--measure", tool, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure_here(tool: str, path: Path) -> None:
    work = TOOLS[tool]()
    before = peak_mb()
    started = process_time()
    share = work(path)
    print(json.dumps({"cpu": process_time() - started, "mb": peak_mb(), "mb_before": before, "known": share}))


# -- whole processes ---------------------------------------------------------------------------------------------

_ONNX = "import onnx, sys; onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1], load_external_data=False))"
_ENGINE = "import sys; from pathlib import Path; from irscope.session import open_model; open_model(Path(sys.argv[1]))"
PROCESSES: dict[str, tuple[list[str], float]] = {
    "load and infer": (["-c", _ENGINE], 1.5),
    "run --passes shapes": (["-m", "irscope", "run", "--passes", "shapes"], 2.0),
    "run": (["-m", "irscope", "run"], 4.0),
}
"""What is run with the model's path behind it, and how many times onnx's own inference it may take."""
PEER = "onnx's shape inference in C++"
MOST_GROWTH = 10.5
"""What a million nodes may take, in times of a hundred thousand."""


def whole(arguments: list[str], path: Path) -> tuple[float, float]:
    """CPU seconds of a whole process, imports and the end included, and its peak memory in MB; the less of two runs."""
    found: list[tuple[float, float]] = []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    root = Path(__file__).parents[1]
    for _ in range(2):
        command = [sys.executable, *arguments, str(path)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root, env=environment) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{arguments} ended with {process.returncode}")
        found.append((used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    return min(found)


def _written(path: Path, nodes: int) -> int:
    """Write a model in a process of its own: a child's peak begins at what its parent holds."""
    code = "import sys; from benchmarks.onnx_big import *; print(write_model(Path(sys.argv[1]), int(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(path), str(nodes)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]).stdout)


_SYMBOLIC = """
import sys
import onnx_ir
from onnx_shape_inference import infer_symbolic_shapes
infer_symbolic_shapes(onnx_ir.load(sys.argv[1]))
"""


def symbolic_peer(size: int = 10_000) -> Iterator[Measurement | str]:
    """A tenth of the nodes beside onnx-shape-inference, which infers symbolic shapes over onnx_ir."""
    if importlib.util.find_spec("onnx_shape_inference") is None:
        yield "onnx-shape-inference is not installed: it was not measured"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.onnx"
        nodes = _written(path, size)
        seconds, _ = whole(PROCESSES["load and infer"][0], path)
        peer = whole(["-c", _SYMBOLIC], path)[0]
        yield Measurement(f"load and infer, {nodes:,} nodes", seconds, "CPU s", "onnx-shape-inference", seconds / peer)


def processes(size: int = 100_000) -> Iterator[Measurement]:
    """Whole processes over one file, beside onnx's own inference in the same run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.onnx"
        nodes = _written(path, size)
        peer, memory = whole(["-c", _ONNX], path)
        yield Measurement(f"onnx.shape_inference, {nodes:,} nodes", peer, "CPU s")
        yield Measurement("the same, memory", memory, "MB")
        for name, (arguments, most) in PROCESSES.items():
            seconds, held = whole(arguments, path)
            yield Measurement(f"{name}, {nodes:,} nodes", seconds, "CPU s", PEER, seconds / peer, most)
            yield Measurement(f"{name}, memory", held, "MB", goal=LIMIT_MB)


def measure() -> Iterator[Measurement | str]:
    """Whole processes over 100,050 nodes, and how loading and inference grow to a million."""
    yield from processes()
    yield from symbolic_peer()
    arguments, _ = PROCESSES["load and infer"]
    taken: list[float] = []
    for size in (100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "big.onnx"
            _written(path, size)
            taken.append(whole(arguments, path)[0])
    yield Measurement("load and infer, ten times the nodes", taken[1], "CPU s", "100,050 nodes", taken[1] / taken[0], MOST_GROWTH)


# -- the table ---------------------------------------------------------------------------------------------------


def _row(tool: str, nodes: int, found: dict[str, float]) -> str:
    return f"{tool:16} {nodes:8,d} {found['cpu']:8.3f} {found['mb']:8.0f} {100 * found['known']:8.1f} %"


def compare(sizes: Iterable[int], tools: Iterable[str] = ("irscope", "onnx", "onnx data_prop")) -> None:
    """Print the table for graphs of some sizes."""
    print(f"{'tool':16} {'nodes':>8} {'CPU s':>8} {'peak MB':>8}   known     limit at 100,050 nodes: {LIMIT_SECONDS} s, {LIMIT_MB} MB")
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"big{size}.onnx"
            nodes = write_model(path, size)
            for tool in tools:
                print(_row(tool, nodes, measured(tool, path)), flush=True)
            path.unlink()


def compare_external() -> None:
    """Print what 3.2 GB of weights outside the model cost."""
    print(f"\n3.2 GB of external weights; limit: {EXTERNAL_SECONDS} s more than the small model, {EXTERNAL_MB} MB")
    with tempfile.TemporaryDirectory() as folder:
        for name, hidden, external in (("small", 16, False), ("external", 2048, True)):
            path = Path(folder) / f"{name}.onnx"
            nodes = write_model(path, 900, hidden, 16 if external else 2, external)
            if external:
                print(f"data file: {(path.parent / f'{path.name}.data').stat().st_size / 1e9:.2f} GB")
            for tool in ("irscope run", "onnx data_prop"):
                print(_row(tool, nodes, measured(tool, path)), flush=True)


def main() -> None:
    """Measure and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_big", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--whole", type=int, default=0, metavar="NODES", help="whole processes over so many nodes, beside onnx's")
    parser.add_argument("--external", action="store_true", help="also the model with 3.2 GB of external weights")
    parser.add_argument("--measure", nargs=2, metavar=("TOOL", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        _measure_here(arguments.measure[0], Path(arguments.measure[1]))
        return
    if arguments.whole:
        for process in processes(arguments.whole):
            ratio = "" if process.ratio is None else f"{process.ratio:6.2f} times, at most {process.goal}"
            print(f"{process.name:40} {process.value:9.2f} {process.unit:6} {ratio}", flush=True)
        return
    compare(int(size) for size in arguments.sizes.split(","))
    if arguments.external:
        compare_external()


if __name__ == "__main__":
    main()
