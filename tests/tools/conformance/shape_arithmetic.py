"""Random chains of shape arithmetic, beside ONNX Runtime: `python -m tests.tools.conformance.shape_arithmetic [--seed N] [--count N]`.

A graph takes the sizes of its inputs apart and puts them together again with every operator that ONNX Runtime runs on vectors of
integers. What irscope knows of each value, as numbers or as formulas of the sizes, is put beside what ONNX Runtime computes for two
settings of the sizes; a value that is known with other sizes than ONNX Runtime's is wrong, and so is a rule that raises.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import irscope
from irscope.ir.dims import SymDim, bind, bounds
from irscope.ir.types import TensorType
from irscope.ops.reals import Real
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager

SIZES = ({"batch": 2, "height": 6, "width": 15}, {"batch": 3, "height": 8, "width": 5})
LENGTH = 12
"""Operators of a graph."""
_REDUCTIONS = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
"""Those that ONNX Runtime has for 64-bit integers; the others run on 32-bit floats."""
_FLOAT_REDUCTIONS = ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
_BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
_COMPARE = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
_WRAPPED = 2**62
"""What integers of 64 bits wrap around near: sizes are not that large, and formulas do not wrap."""
_ROUNDINGS = ("Floor", "Ceil", "Round")


class _Graph:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.vectors: list[str] = []
        """Names of vectors of 64-bit integers."""

    def constant(self, *numbers: int, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(numbers, dtype)
        return name

    def scalar(self, number: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(number, np.int64)
        return name

    def floatscalar(self, number: float) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(number, np.float32)
        return name

    def scale(self, axis: int, first: str) -> str:
        """A factor for an axis of an image: its wanted size by the size that it has, or a number."""
        size = self.floats(self.add("Gather", self.add("Shape", "x"), self.constant(axis), axis=0))
        wanted = (self.add("Mul", size, self.constant(2, dtype=np.float32)), self.constant(7, dtype=np.float32), self.floats(first))
        return self.add("Div", wanted[self.below(3)], size)

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attrs: object) -> str:
        names = [f"n{len(self.nodes)}" + (f"_{index}" if index else "") for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attrs))
        return names[0]

    def grow(self) -> None:
        """One more vector, by one to three nodes."""
        one, other = self.chance.choice(self.vectors), self.chance.choice(self.vectors)
        first = self.add("Gather", other, self.constant(0), axis=0)
        self.vectors.append(self.chance.choice(_MAKERS)(self, one, other, first))

    def below(self, count: int) -> int:
        """A number below another."""
        return self.chance.randrange(count)

    def floats(self, name: str) -> str:
        """As floats."""
        return self.add("Cast", name, to=TensorProto.FLOAT)

    def integers(self, name: str) -> str:
        """As integers."""
        return self.add("Cast", name, to=TensorProto.INT64)

    def any_of(self, kinds: Sequence[str], *inputs: str, **attrs: object) -> str:
        """A node of one of these operators."""
        return self.add(self.chance.choice(kinds), *inputs, **attrs)

    def fraction(self, one: str) -> str:
        """Floats made of a vector, by a number that a float may or may not hold exactly."""
        number = self.constant((2, 4, 8, 3, 7, 0.5, 0.25, 1.5, 0.3, 0.1, 2.5, 32)[self.below(12)], dtype=np.float32)
        return self.any_of(("Mul", "Div", "Add", "Sub"), self.floats(one), number)

    def real(self, one: str, first: str) -> str:
        """Floats made of a vector by some steps."""
        made = self.fraction(one)
        if self.below(2):
            made = self.any_of(("Mul", "Div", "Add", "Sub", "Max", "Min"), made, self.floats(first))
        if self.below(2):
            made = self.any_of((*_ROUNDINGS, "Neg", "Abs"), made)
        if self.below(3) == 0:
            made = self.any_of(("Mul", "Div", "Add"), made, self.constant((2, 0.5, 3, 16)[self.below(4)], dtype=np.float32))
        return made

    def branch(self, test: str, one: str, other: str) -> str:
        """One of two vectors by a condition that a subgraph each computes."""
        bodies = []
        for vector, kind in ((one, "Neg"), (other, "Identity")):
            name = f"b{len(self.nodes)}_{len(bodies)}"
            made = onnx.ValueInfoProto(name=name)
            bodies.append(helper.make_graph([helper.make_node(kind, [vector], [name])], name, [], [made]))
        return self.add("If", test, then_branch=bodies[0], else_branch=bodies[1])

    def tests(self, one: str) -> str:
        """Truth values for a vector."""
        both = self.any_of(("And", "Or", "Xor"), *[self.any_of(_COMPARE, one, self.constant(number)) for number in (2, 5)])
        return self.add("Not", both) if self.below(2) else both

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "width"]),
        ]
        weights = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        made = [name for node in self.nodes for name in node.output]
        graph = helper.make_graph(self.nodes, "arithmetic", inputs, [onnx.ValueInfoProto(name=name) for name in made], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


_MAKERS: Sequence[Callable[[_Graph, str, str, str], str]] = (
    lambda g, one, other, first: g.any_of(_BINARY, one, first),
    lambda g, one, other, first: g.any_of(_BINARY, one, g.constant(1 + g.below(4))),
    lambda g, one, other, first: g.any_of(_BINARY, first, g.constant(1 + g.below(4))),
    lambda g, one, other, first: g.add("Pow", first, g.constant(2)),
    lambda g, one, other, first: g.any_of(("Neg", "Abs", "Sign", "Identity"), one),
    lambda g, one, other, first: g.any_of(_REDUCTIONS, one, keepdims=1),
    lambda g, one, other, first: g.add("Unsqueeze", g.any_of(_REDUCTIONS, one, keepdims=0), g.constant(0)),
    lambda g, one, other, first: g.integers(g.any_of(_FLOAT_REDUCTIONS, g.floats(one), keepdims=1)),
    lambda g, one, other, first: g.add("Concat", one, other, axis=0),
    lambda g, one, other, first: g.add("Slice", one, g.constant(0), g.constant((1, 2, -1, 99)[g.below(4)])),
    lambda g, one, other, first: g.add("Slice", one, g.constant(-1), g.constant(-99), g.constant(0), g.constant(-1)),
    lambda g, one, other, first: g.add("Where", g.any_of(_COMPARE, first, g.constant(5)), first, g.constant(1 + g.below(9))),
    lambda g, one, other, first: g.add("Where", g.tests(one), one, g.constant(1)),
    lambda g, one, other, first: g.add("Pad", one, g.constant(g.below(3), g.below(3)), g.scalar(g.below(4))),
    lambda g, one, other, first: g.add("Tile", one, g.constant(2)),
    lambda g, one, other, first: g.add("Expand", first, g.constant(1 + g.below(3))),
    lambda g, one, other, first: g.add("CumSum", one, g.scalar(0), exclusive=g.below(2), reverse=g.below(2)),
    lambda g, one, other, first: g.integers(g.any_of(_ROUNDINGS, g.floats(one))),
    lambda g, one, other, first: g.integers(g.any_of(_ROUNDINGS, g.add("Div", g.floats(first), g.constant(2, dtype=np.float32)))),
    lambda g, one, other, first: g.add("Reshape", g.add("Reshape", one, g.constant(1, -1)), g.constant(-1)),
    lambda g, one, other, first: g.add("Clip", first, g.scalar(2), g.scalar(7)),
    lambda g, one, other, first: g.add("Split", g.add("Concat", one, one, axis=0), axis=0, num_outputs=2, outputs=2),
    lambda g, one, other, first: g.add("ScatterElements", one, g.constant(0), first, axis=0),
    lambda g, one, other, first: g.any_of(("ArgMax", "ArgMin"), one, axis=0, keepdims=1),
    lambda g, one, other, first: g.add("Squeeze", g.add("Unsqueeze", one, g.constant(0)), g.constant(0)),
    lambda g, one, other, first: g.integers(g.add("Cast", one, to=TensorProto.INT32)),
    lambda g, one, other, first: g.add("Range", g.scalar(0), g.add("Squeeze", g.add("Min", first, g.constant(9))), g.scalar(2)),
    lambda g, one, other, first: g.add("Unsqueeze", g.add("Size", ("x", "y", one)[g.below(3)]), g.constant(0)),
    lambda g, one, other, first: g.add("Shape", g.add("ConstantOfShape", g.add("Min", g.add("Abs", one), g.constant(3)))),
    lambda g, one, other, first: g.add(
        "Reshape", g.add("Transpose", g.add("Reshape", g.add("Concat", one, one, axis=0), g.constant(2, -1)), perm=[1, 0]), g.constant(-1)
    ),
    lambda g, one, other, first: g.add("TopK", one, g.constant(1), outputs=2, largest=g.below(2)),
    lambda g, one, other, first: g.add("GatherElements", one, g.constant(0, -1, 0), axis=0),
    lambda g, one, other, first: g.add("GatherND", one, g.add("Reshape", g.constant(0, -1), g.constant(2, 1))),
    lambda g, one, other, first: g.add("Reshape", g.add("NonZero", one), g.constant(-1)),
    lambda g, one, other, first: g.integers(g.add("Sum", g.floats(first), g.floats(first))),
    lambda g, one, other, first: g.integers(g.add("Equal", one, one)),
    lambda g, one, other, first: g.integers(g.real(one, first)),
    lambda g, one, other, first: g.integers(g.any_of(("Floor", "Ceil"), g.fraction(first))),
    lambda g, one, other, first: g.integers(g.any_of(("Floor", "Ceil"), g.add("Div", g.floats(one), g.floats(first)))),
    lambda g, one, other, first: g.integers(g.any_of(_COMPARE, g.real(one, first), g.floats(first))),
    lambda g, one, other, first: g.integers(g.any_of(_COMPARE, g.fraction(one), g.constant(2, dtype=np.float32))),
    lambda g, one, other, first: g.integers(
        g.add("Where", g.any_of(_COMPARE, g.fraction(one), g.constant(3, dtype=np.float32)), g.floats(one), g.fraction(first))
    ),
    lambda g, one, other, first: g.branch(
        g.add("Squeeze", g.any_of(_COMPARE, first, g.constant((3, 8, 1000)[g.below(3)]))), one, g.add("Add", one, one)
    ),
    lambda g, one, other, first: g.integers(
        g.add(
            "Range",
            g.floatscalar(0),
            g.add("Squeeze", g.add("Min", g.add("Div", g.floats(first), g.constant(2, dtype=np.float32)), g.constant(9, dtype=np.float32))),
            g.floatscalar(1),
        )
    ),
    lambda g, one, other, first: g.add(
        "Shape",
        g.add(
            "Resize",
            "x",
            "",
            g.add("Concat", g.constant(1, 1, dtype=np.float32), *[g.scale(axis, first) for axis in (2, 3)], axis=0),
            mode="nearest",
        ),
    ),
    lambda g, one, other, first: g.integers(g.add("ReduceSum" if g.below(2) else "ReduceMax", g.fraction(one), keepdims=1)),
    lambda g, one, other, first: g.integers(g.add("Clip", g.fraction(one), g.floatscalar(1), g.floatscalar(6))),
    lambda g, one, other, first: g.integers(g.add("Pow", g.floats(first), g.constant(2, dtype=np.float32))),
    lambda g, one, other, first: g.integers(g.add("Mul", g.floats(first), g.add("Reciprocal", g.constant(4, dtype=np.float32)))),
    lambda g, one, other, first: g.integers(g.add("Ceil", g.add("Cast", g.fraction(first), to=TensorProto.DOUBLE))),
)
"""What makes another vector of a vector, a second one, and the first element of that."""


def make(seed: int) -> onnx.ModelProto:
    """A graph of random shape arithmetic."""
    graph = _Graph(random.Random(seed))
    graph.vectors = [graph.add("Shape", "x"), graph.add("Shape", "y"), graph.add("Shape", "x", start=2)]
    for _ in range(LENGTH):
        graph.grow()
    return graph.model()


def truths(model: onnx.ModelProto) -> list[Mapping[str, np.ndarray] | None]:
    """All values as ONNX Runtime computes them, by setting of the sizes; None where it refuses."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    found: list[Mapping[str, np.ndarray] | None] = []
    for sizes in SIZES:
        feeds = {
            "x": np.zeros((sizes["batch"], 3, sizes["height"], sizes["width"]), np.float32),
            "y": np.zeros((sizes["batch"], sizes["width"]), np.float32),
        }
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            names = [output.name for output in session.get_outputs()]
            found.append(dict(zip(names, session.run(names, feeds), strict=True)))
        except Exception:  # whatever the runtime raises: this graph tells nothing
            found.append(None)
    return found


def _number(dim: object, sizes: Mapping[str, int]) -> object:
    """A dimension or an element with the sizes put in; what stays open has limits at most."""
    if isinstance(dim, SymDim):
        return bind(dim, dict(sizes))
    if isinstance(dim, Real):
        over, under = _number(dim.over, sizes), _number(dim.under, sizes)
        return float(np.float32(over) / np.float32(under)) if isinstance(over, int) and isinstance(under, int) and under else None
    return dim


def _agrees(said: object, true: float) -> bool:
    """Whether what is said of a size or an element holds: it is the number, or the number is within its limits."""
    if abs(true) >= _WRAPPED:
        return True
    if isinstance(said, SymDim):
        low, high = bounds(said)
        return (low is None or low <= true) and (high is None or true <= high)
    return said is None or said == true or (said != said and true != true)


def _is_below(dim: object, limit: int, sizes: Mapping[str, int]) -> bool:
    number = _number(dim, sizes)
    return not isinstance(number, int) or number <= limit


def wrong(seed: int) -> Iterator[str]:
    """What is known otherwise than ONNX Runtime computes it, and errors of rules."""
    model = make(seed)
    found = truths(model)
    if all(one is None for one in found):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        program = irscope.load(path).program
        inferred = Manager(program).get(Shapes())
    for problem in inferred.problems:
        yield f"{seed}: {problem}"
    named = {value.name: value for node in program.graph for value in node.outputs if value.name}
    for sizes, truth in zip(SIZES, found, strict=True):
        if any(
            isinstance(guess.right, int) and guess.why.startswith("at most") and not _is_below(guess.left, guess.right, sizes)
            for guess in inferred.assumptions
        ):
            # Numbers that floats do not hold are said to be assumed away.
            continue
        for name, array in (truth or {}).items():
            value = named.get(name)
            type_ = inferred.type_of(value)
            if value is None or not isinstance(type_, TensorType) or type_.shape is None:
                # The rank of what a vector of open length makes is open.
                continue
            shape = [_number(dim, sizes) for dim in type_.shape]
            if not all(map(_agrees, shape, array.shape)):
                yield f"{seed}: {name} has sizes {shape}, and {array.shape} in ONNX Runtime"
            known = inferred.values.get(value)
            if known is not None:
                elements = [_number(one, sizes) for one in np.asarray(known, object).ravel().tolist()]
                if not all(map(_agrees, elements, array.ravel().tolist())):
                    yield f"{seed}: {name} is {list(map(str, elements))}, and {array.tolist()} in ONNX Runtime"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    args = parser.parse_args()
    bad = 0
    for seed in range(args.seed, args.seed + args.count):
        for line in wrong(seed):
            bad += 1
            print(line)
    print(f"{args.count} graphs, {bad} wrong")
    return bad > 0


if __name__ == "__main__":
    raise SystemExit(main())
