"""How the work of every pass grows with the graph: `python -m benchmarks.growth [--sizes 1000,4000,16000] [PASS ...]`.

Work is counted in calls of functions, Python's and C's, which is the same in every run whatever else the machine does, and in CPU
seconds, which also see what loops inside one call. A pass grows too fast where the cost a node doubles from each size to the next.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time

from irscope.ir.dims import symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, paused_gc
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.base import Pass
from irscope.passkit.manager import Manager
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry

SIZES = (1000, 4000, 16000)
MOST = 2.0
"""How many times the cost a node may grow from one size to the next, once; what is linear stays near 1."""
SIZES_IN_SHORT = (40, 160, 640)
WRITTEN = {
    "checkpoint": "checkpoint{budget=50%}",
    "fixpoint": "fixpoint(fold,dce)",
    **{name: f"{name}{{seconds=0}}" for name in ("ort-order", "plan", "recompute", "reorder", "schedule")},
}
"""How a pass is written that cannot do without an option, or searches for as long as it may."""


# -- graphs ------------------------------------------------------------------------------------------------------


def chain(nodes: int) -> Program:
    """Each node reads the one before; every fourth has a weight of its own, and as many results and weights are read by nobody."""
    with paused_gc():
        graph = Graph()
        type_ = tensor(DType.F32, (8, 128))
        current = graph.add_input(type_, "x")
        for index in range(nodes):
            if index % 4 == 0:
                weight = graph.add_weight(type_, f"w{index}")
                graph.add_weight(type_, f"unread{index}")
                node = graph.append("math.add", (current, weight), (type_,), names=(f"v{index}",))
                current = node.outputs[0]
            elif index % 4 == 1:
                graph.append("nn.relu", (current,), (type_,), names=(f"v{index}",))
            else:
                current = graph.append("math.tanh" if index % 4 == 2 else "nn.relu", (current,), (type_,), names=(f"v{index}",)).outputs[0]
        graph.set_outputs([current])
        return Program(graph)


def wide(nodes: int) -> Program:
    """Half of the nodes read the one input, the others add their results up: as many tensors are alive at once."""
    with paused_gc():
        graph = Graph()
        type_ = tensor(DType.F32, (8, 128))
        x = graph.add_input(type_, "x")
        half = nodes // 2
        branches = [graph.append("nn.relu", (x,), (type_,), names=(f"b{index}",)).outputs[0] for index in range(half)]
        total = branches[0]
        for index, branch in enumerate(branches[1:]):
            total = graph.append("math.add", (total, branch), (type_,), names=(f"s{index}",)).outputs[0]
        graph.set_outputs([total])
        return Program(graph)


def dynamic(nodes: int) -> Program:
    """Sizes are symbols, and every fourth node makes a tensor whose size depends on data: a new unknown symbol."""
    with paused_gc():
        graph = Graph()
        batch = symbol("batch")
        type_ = tensor(DType.F32, (batch, 128))
        flat, found = tensor(DType.F32, None), tensor(DType.I64, None)
        current = graph.add_input(type_, "x")
        outputs = []
        for index in range(0, nodes, 4):
            current = graph.append("nn.relu", (current,), (type_,), names=(f"r{index}",)).outputs[0]
            places = graph.append("tensor.nonzero", (current,), (found,), names=(f"n{index}",)).outputs[0]
            outputs.append(graph.append("math.neg", (places,), (flat,), names=(f"m{index}",)).outputs[0])
            current = graph.append("math.tanh", (current,), (type_,), names=(f"t{index}",)).outputs[0]
        graph.set_outputs([current, *outputs[-1:]])
        return Program(graph)


SHAPES: dict[str, Callable[[int], Program]] = {"chain": chain, "wide": wide, "dynamic": dynamic}


# -- measuring ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What a pass with its report took over one graph, a node."""

    nodes: int
    calls: float
    """Calls of functions."""
    seconds: float
    """CPU seconds: 0 where calls were counted."""
    failure: str = ""


def passes() -> list[str]:
    """Every registered pass and transform, as pipelines write it."""
    return [WRITTEN.get(name, name) for name in sorted(default_registry().entries)]


def measured(asked: str | Pass, program: Program, counted: bool) -> Work:
    """One pass, its report, and all that it needs but inferred types."""
    manager = Manager(program)
    manager.apply(Annotate())
    (subject,) = parse_pipeline(asked, default_registry()) if isinstance(asked, str) else (asked,)
    nodes = program.node_count
    profile = cProfile.Profile(subcalls=False) if counted else None
    failure = ""
    started = process_time()
    if profile is not None:
        profile.enable()
    try:
        manager.run_one(subject)
    except Exception as error:  # a pass that cannot do such a graph must say so in linear time
        failure = f"{type(error).__name__}: {error}"
    if profile is not None:
        profile.disable()
    seconds = process_time() - started
    calls = sum(entry.callcount for entry in profile.getstats()) if profile is not None else 0
    return Work(nodes, calls / nodes, 0.0 if counted else seconds / nodes, failure)


def ladder(text: str, shape: str, sizes: Sequence[int] = SIZES, counted: bool = True) -> list[Work]:
    """A pass over graphs of one shape."""
    return [measured(text, SHAPES[shape](size), counted) for size in sizes]


def grows(costs: Sequence[float]) -> bool:
    """Whether the cost a node doubles from each size to the next."""
    return all(after > MOST * before for before, after in itertools.pairwise(costs))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("passes", nargs="*")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for text in arguments.passes or passes():
        for shape in SHAPES:
            found = ladder(text, shape, sizes, arguments.calls)
            costs = [work.calls if arguments.calls else work.seconds * 1e6 for work in found]
            row = " ".join(f"{cost:10.1f}" for cost in costs)
            ratios = " ".join(f"{b / a:5.2f}" if a else "    ?" for a, b in itertools.pairwise(costs))
            print(f"{text:28} {shape:8} {row}   {ratios} {'GROWS' if grows(costs) else ''} {found[-1].failure[:90]}", flush=True)


if __name__ == "__main__":
    main()
