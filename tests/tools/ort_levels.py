"""Compares the graphs that ONNX Runtime's optimisations leave with those that irscope predicts.

    python -m tests.tools.ort_levels [--level all] [--verbose] FILE...

For each file and level a session of onnxruntime saves its optimised model, in a process of its own, and logs which transformers changed the
graph. Equal means: the same operators with the same result names, read from the same names, in the same order of execution.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from irscope.ir.graph import Graph, Value
from irscope.ir.program import Program
from irscope.ir.types import Type

LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_SAVE = """
import sys, onnxruntime as o
options = o.SessionOptions()
options.log_severity_level = 0
options.graph_optimization_level = getattr(o.GraphOptimizationLevel, sys.argv[3])
options.optimized_model_filepath = sys.argv[2]
options.intra_op_num_threads = 1
if sys.argv[4] != "0":
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
o.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
_CHANGED = re.compile(r"GraphTransformer (\S+) modified: 1 with status: OK")
_EXTERNAL_FROM = 64 << 20


@dataclass
class Outcome:
    """One file at one level."""

    path: Path
    level: str
    problem: str = ""
    ops: Counter[str] = field(default_factory=Counter)
    """Operators that only one side has, with how many more ONNX Runtime has."""
    is_named: bool = False
    """Whether results have the same names."""
    is_ordered: bool = False
    theirs: tuple[str, ...] = ()
    """Transformers that changed the graph there."""
    ours: tuple[str, ...] = ()
    wiring: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.problem and not self.ops and self.is_named and self.is_ordered and not self.wiring

    @property
    def has_equal_ops(self) -> bool:
        return not self.problem and not self.ops


def saved(path: Path, level: str, folder: Path) -> tuple[onnx.ModelProto, list[str]]:
    """What a session saves, and the transformers that changed the graph."""
    target = folder / "optimised.onnx"
    is_large = sum(path.stat().st_size for path in path.parent.glob(f"{path.name}*")) > _EXTERNAL_FROM
    command = [sys.executable, "-c", _SAVE, str(path), str(target), LEVELS[level], str(int(is_large))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or not target.exists():
        lines = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line or "Fail" in line]
        raise RuntimeError((lines or done.stderr.splitlines() or ["no file"])[-1][:200])
    names = _CHANGED.findall(done.stderr + done.stdout)
    return onnx.load(str(target), load_external_data=False), names


def compared(path: Path, level: str, show: bool = False) -> Outcome:
    """One file at one level."""
    outcome = Outcome(path, level)
    try:
        with tempfile.TemporaryDirectory() as folder:
            model, theirs = saved(path, level, Path(folder))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        outcome.problem = f"onnxruntime: {error}"
        return outcome
    outcome.theirs = tuple(theirs)
    try:
        predicted, outcome.ours = _predicted(path, level, reordered(model))
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome.problem = f"irscope: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        return outcome
    _lay_beside(model.graph, predicted.graph, onnx.load(str(path), load_external_data=False).graph, outcome)
    if show:
        for side, graph in (("onnxruntime", model.graph), ("irscope", predicted.graph)):
            print(f"--- {side}")
            print("\n".join(_lines(graph)))
    return outcome


def reordered(model: onnx.ModelProto) -> list[str]:
    """The values that were reordered back from blocks, in the order in which that session happened to do it: their names tell."""
    nodes = [node for node in model.graph.node if node.op_type == "ReorderOutput"]
    nodes.sort(key=lambda node: int("".join(re.findall(r"_token_(\d+)$", node.name)) or -1))
    return [node.output[0] for node in nodes]


def _predicted(path: Path, level: str, order: Sequence[str] = ()) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    from irscope.frontends.onnx.optimizer.bridge import optimised
    from irscope.frontends.onnx.optimizer.graph import Session
    from irscope.frontends.onnx.reader import read_file
    from irscope.session import open_model

    plain = open_model(path)
    types = types_of(plain.program)
    session = Session(reordered=order)
    rewritten = optimised(read_file(path), types, level, session)
    return rewritten.proto, tuple(name for _, name in session.applied)


def types_of(program: Program) -> dict[str, Type]:
    """The types of all values of a program by name."""
    return {value.name: value.type for body in program.bodies() for value in _values(body) if value.name}


def _values(body: Graph) -> Iterator[Value]:
    yield from body.inputs
    yield from body.weights
    for node in body:
        yield from node.outputs


def _lines(graph: onnx.GraphProto, indent: str = "") -> list[str]:
    lines = []
    for node in graph.node:
        lines.append(f"{indent}{node.domain and node.domain + '.'}{node.op_type} {list(node.input)} -> {list(node.output)}")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                lines += _lines(attribute.g, indent + "    ")
    return lines


def _ops(graph: onnx.GraphProto) -> Counter[str]:
    counter: Counter[str] = Counter()
    for node in graph.node:
        counter[f"{node.domain and node.domain + '.'}{node.op_type}"] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                counter += _ops(attribute.g)
    return counter


def _lay_beside(theirs: onnx.GraphProto, ours: onnx.GraphProto, original: onnx.GraphProto, outcome: Outcome) -> None:
    mine, other = _ops(ours), _ops(theirs)
    outcome.ops = Counter({op: other[op] - mine[op] for op in mine | other if other[op] != mine[op]})
    # Names that a transformer makes differ between versions; those of the file are compared.
    own = _names(original)
    made = [[(node.op_type, *(name for name in node.output if name in own)) for node in graph.node] for graph in (theirs, ours)]
    outcome.is_named = sorted(made[0]) == sorted(made[1])
    # A graph that nothing changed is saved as it was read, and runs in another order.
    outcome.is_ordered = made[0] == made[1] or not outcome.theirs
    by_result = {tuple(node.output): node for node in ours.node}
    for node in theirs.node:
        mine_node = by_result.get(tuple(node.output))
        if mine_node is not None and (mine_node.op_type != node.op_type or len(mine_node.input) != len(node.input)):
            outcome.wiring.append(f"{node.op_type}{list(node.input)} is here {mine_node.op_type}{list(mine_node.input)}")


def _names(graph: onnx.GraphProto) -> set[str]:
    names = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= _names(attribute.g)
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--level", choices=list(LEVELS), action="append")
    parser.add_argument("--verbose", action="store_true", help="both graphs of files that differ")
    parser.add_argument("--most", type=int, default=10_000, help="files")
    options = parser.parse_args(arguments)
    paths = [one for path in options.files for one in (sorted(path.rglob("*.onnx")) if path.is_dir() else [path])][: options.most]
    for level in options.level or list(LEVELS):
        outcomes = [compared(path, level) for path in paths]
        _print(level, outcomes)
        if options.verbose:
            for outcome in outcomes:
                if not outcome.is_equal and not outcome.problem:
                    compared(outcome.path, level, show=True)
    return 0


def _print(level: str, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if not outcome.is_equal:
            detail = outcome.problem or (
                f"ops {dict(outcome.ops)} names {outcome.is_named} order {outcome.is_ordered} {outcome.wiring[:2]}\n"
                f"        theirs {list(outcome.theirs)}\n        ours   {list(outcome.ours)}"
            )
            print(f"  {outcome.path}: {detail}")
    ran = [outcome for outcome in outcomes if not outcome.problem.startswith("onnxruntime")]
    equal, alike = sum(one.is_equal for one in ran), sum(one.has_equal_ops for one in ran)
    print(f"{level}: {equal} of {len(ran)} equal, {alike} with equal operators; {len(outcomes) - len(ran)} not run by onnxruntime")
    differs: Counter[str] = Counter()
    for outcome in ran:
        differs.update(dict.fromkeys(outcome.ops, 1))
    missing = Counter(name for one in ran if not one.is_equal for name in set(one.theirs) - set(one.ours))
    print(f"  operators that differ: {differs.most_common(12)}")
    print(f"  transformers that only onnxruntime applied: {missing.most_common(12)}")
    extra = Counter(name for one in ran if not one.is_equal for name in set(one.ours) - set(one.theirs))
    print(f"  transformers that only irscope applied: {extra.most_common(12)}")


if __name__ == "__main__":
    sys.exit(main())
