"""The IR at 100,000 and 1,000,000 nodes, beside the IRs of other projects where those are installed."""

from __future__ import annotations

import gc
import importlib.util
import tracemalloc
from collections.abc import Callable, Iterator

from benchmarks.clock import best_of
from benchmarks.measurement import Measurement
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, paused_gc
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.ir.verify import verify

NODES = 100_000
TARGETS = {"build": 0.4, "walk": 0.05, "print": 0.6, "parse": 1.2}
"""CPU seconds at so many nodes."""
MOST_GROWTH = 12
"""What ten times the nodes may take: memory that no longer fits the processor's caches is slower."""


def build(nodes: int) -> Program:
    """Nodes with two operands, one result, a name and a shape; every fourth has an attribute."""
    with paused_gc():
        graph = Graph()
        type_ = tensor(DType.F32, (8, 128))
        types = (type_,)
        before = current = graph.add_input(type_, "x")
        for index in range(nodes):
            attrs = {"axis": index % 7} if index % 4 == 0 else None
            node = graph.append("math.add", (current, before), types, attrs, names=(f"v{index}",))
            before, current = current, node.outputs[0]
        graph.set_outputs([current])
        return Program(graph)


def measure() -> Iterator[Measurement]:
    """What each activity costs and how it grows, and the same graph in other IRs."""
    found = activities(NODES)
    larger = activities(NODES * 10, runs=2)
    for activity, taken in found.items():
        yield Measurement(activity, taken, "CPU s", goal=TARGETS.get(activity))
        times = larger[activity] / taken
        yield Measurement(f"{activity}, ten times the nodes", larger[activity], "CPU s", activity, times, MOST_GROWTH)
    yield Measurement("memory", bytes_per_node(), "bytes a node", goal=1024)
    for name, taken in peers(NODES):
        yield Measurement(f"build, beside {name}", found["build"], "CPU s", name, found["build"] / taken)


def activities(nodes: int, runs: int = 3) -> dict[str, float]:
    """CPU seconds by activity."""
    found: dict[str, float] = {}
    found["build"], program = best_of(runs, lambda: build(nodes))
    found["walk"], _ = best_of(runs, lambda: sum(1 for _ in program.graph.walk()))
    found["print"], text = best_of(runs, lambda: print_program(program))
    found["parse"], _ = best_of(runs, lambda: parse_program(text))
    found["verify"], _ = best_of(runs, lambda: verify(program))
    return found


def bytes_per_node(nodes: int = NODES) -> float:
    """Memory that a built graph holds, by node."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    program = build(nodes)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert program.node_count == nodes
    return held / nodes


# -- peers -------------------------------------------------------------------------------------------------------


def _onnx_ir(nodes: int) -> Callable[[], object]:
    import onnx_ir as ir

    def work() -> object:
        with paused_gc():
            before = current = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([8, 128]))
            made = []
            for index in range(nodes):
                attrs = [ir.AttrInt64("axis", index % 7)] if index % 4 == 0 else []
                node = ir.Node("", "Add", [current, before], attrs, name=f"v{index}")
                output = node.outputs[0]
                output.name, output.shape, output.type = f"v{index}", ir.Shape([8, 128]), ir.TensorType(ir.DataType.FLOAT)
                before, current = current, output
                made.append(node)
            return ir.Graph([], [current], nodes=made, name="g")

    return work


def _xdsl(nodes: int) -> Callable[[], object]:
    from xdsl.dialects import test
    from xdsl.dialects.builtin import IntegerAttr, TensorType, f32
    from xdsl.ir import Block

    def work() -> object:
        with paused_gc():
            type_ = TensorType(f32, [8, 128])
            block = Block(arg_types=[type_])
            before = current = block.args[0]
            for index in range(nodes):
                attrs = {"axis": IntegerAttr(index % 7, 64)} if index % 4 == 0 else {}
                op = test.TestOp([current, before], [type_], attrs)
                op.results[0].name_hint = f"v{index}"
                before, current = current, op.results[0]
                block.add_op(op)
            return block

    return work


def _torch_fx(nodes: int) -> Callable[[], object]:
    import operator

    from torch import fx

    def work() -> object:
        with paused_gc():
            graph = fx.Graph()
            before = current = graph.placeholder("x")
            for index in range(nodes):
                node = graph.create_node("call_function", operator.add, (current, before), {}, name=f"v{index}")
                node.meta["shape"] = (8, 128)
                before, current = current, node
            graph.output(current)
            return graph

    return work


PEERS = {"onnx_ir": _onnx_ir, "xdsl": _xdsl, "torch": _torch_fx}


def peers(nodes: int) -> Iterator[tuple[str, float]]:
    """Seconds to build the same graph in other IRs, for those that are installed."""
    for module, make in PEERS.items():
        if importlib.util.find_spec(module) is not None:
            yield ("torch.fx" if module == "torch" else module), best_of(1, make(nodes))[0]
