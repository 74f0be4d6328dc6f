"""Times of ONNX Runtime's sessions beside predicted ones: `python -m benchmarks.session_times FILE.onnx...`.

The machine is the device `this`: `irscope calibrate --only cpu --threads 1` before. Sizes that a file leaves open are 1, of sequences 32.
Files that a session refuses with them are left out.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import irscope
from irscope.passes.cost.time import Time, Timing

SEQUENCE: Final = 32
SHORTEST: Final = 1e-4  # seconds: of less, the call itself is most
SLOWEST: Final = 10
_RUNS, _PROFILED, _LONGEST = 40, 8, 3.0


def session_of(path: Path, profile: Path | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile / "profile")
        options.optimized_model_filepath = str(profile / "optimised.onnx")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def sizes_of(session: ort.InferenceSession) -> dict[str, int]:
    names = [size for given in session.get_inputs() for size in given.shape if isinstance(size, str)]
    return {name: SEQUENCE if "seq" in name.lower() else 1 for name in names}


def feeds_of(session: ort.InferenceSession, sizes: dict[str, int]) -> dict[str, Any]:
    drawn = np.random.default_rng(0)
    feeds = {}
    for given in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 1) for size in given.shape]
        element = given.type.removeprefix("tensor(").removesuffix(")")
        code = onnx.TensorProto.DataType.Value({"float": "FLOAT", "double": "DOUBLE"}.get(element, element.upper()))
        kind = helper.tensor_dtype_to_np_dtype(code)
        feeds[given.name] = (drawn.random(shape) if kind.kind == "f" else np.ones(shape)).astype(kind)
    return feeds


def measured(path: Path) -> tuple[dict[str, int], float, Counter[str]]:
    """Return sizes, the seconds of a run, and those of each node of the optimised graph by its first result with a name."""
    session = session_of(path)
    sizes = sizes_of(session)
    feeds = feeds_of(session, sizes)
    taken: list[float] = []
    begun = time.monotonic()
    while len(taken) < _RUNS and (time.monotonic() - begun < _LONGEST or len(taken) < 4):
        started = time.process_time()
        session.run(None, feeds)
        taken.append(time.process_time() - started)
    with tempfile.TemporaryDirectory() as folder:
        session = session_of(path, Path(folder))
        for _ in range(_PROFILED):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(Path(folder) / "optimised.onnx", load_external_data=False).graph
    results = {node.name: next(filter(None, node.output), "") for node in graph.node}
    nodes: Counter[str] = Counter()
    for event in events:
        name = event["name"].removesuffix("_kernel_time")
        if event.get("cat") == "Node" and name != event["name"]:
            nodes[results.get(name, name)] += event["dur"]
    return sizes, min(taken), nodes


def main() -> None:
    factors, inside, shares = [], 0, []
    for name in sys.argv[1:]:
        try:
            sizes, real, nodes = measured(Path(name))
            timing: Timing = irscope.load(name, bind=sizes, device="this", ort_level="all").run([Time()])["time"].value
        except Exception as error:
            print(f"{Path(name).name}: left out, {type(error).__name__}: {str(error)[:100]}")
            continue
        if timing.unknown or not timing.seconds or timing.low is None or timing.high is None or real < SHORTEST:
            continue
        predicted: Counter[str] = Counter()
        for node in timing.nodes:
            predicted[next((value.name for value in node.node.outputs if value.name in nodes), "")] += node.seconds
        # Equal layers are in any order, so that it counts how long the nodes took, not which they are.
        slowest, said = ([node for node, _ in times.most_common(SLOWEST)] for times in (nodes, predicted))
        shares.append(sum(nodes[node] for node in said) / sum(nodes[node] for node in slowest))
        factors.append(real / timing.seconds)
        inside += timing.low <= real <= timing.high
        print(f"{Path(name).name}: {real * 1e3:.3f} ms, {factors[-1]:.2f} times the predicted, slowest {SLOWEST}: {shares[-1]:.0%}")
    count = len(factors)
    print(
        f"{count} files: {inside / count:.0%} inside the interval, median {statistics.median(factors):.2f} times the predicted, "
        f"the {SLOWEST} nodes said to be slowest took {statistics.median(shares):.0%} of what the slowest took (median)"
    )


if __name__ == "__main__":
    main()
