"""Random models whose sizes are formulas: every operator is chosen so that it fits for every binding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from irscope.ir.dims import Dim, bounds, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Role, Value
from irscope.ir.places import Literal
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TENSOR, TensorType, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import Known, OpCall

SYMBOLS = {name: symbol(name) for name in ("batch", "length")}


class _Maker:
    """Grows a graph, with the type of every value worked out by its operator's own rule."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.graph = Graph()
        self.values: list[Value] = [self.graph.add_input(tensor(DType.F32, (*SYMBOLS.values(), 8)), "x")]
        self.inferred: dict[Value, TensorType] = {}
        self.known: dict[Value, Known] = {}

    def shape(self, value: Value) -> tuple[Dim, ...]:
        type_ = self.inferred.get(value, value.type)
        assert isinstance(type_, TensorType) and type_.shape is not None
        return type_.shape

    def add(self, op: str, inputs: Sequence[Value | None], results: int = 1, **attrs: Attr) -> Value:
        """Append a node whose results are declared unknown, so that a pass has all the work."""
        spec = find_op(op)
        assert spec is not None
        types = [None if value is None else self.inferred.get(value, value.type) for value in inputs]
        node = self.graph.append(op, inputs, [UNKNOWN_TENSOR] * results, attrs, names=[f"v{len(self.graph)}_{i}" for i in range(results)])
        known = [None if value is None else self.known.get(value) for value in inputs]
        call = OpCall(spec, types, attrs, known, [UNKNOWN_TENSOR] * results)
        for output, type_ in zip(node.outputs, spec.infer_types(call), strict=False):
            assert isinstance(type_, TensorType)
            self.inferred[output] = type_
            self.values.append(output)
        return node.outputs[0]

    def integers(self, *numbers: int) -> Value:
        made = self.graph.add_weight(tensor(DType.I64, (len(numbers),)), None, Role.CONSTANT, Literal(numbers))
        self.known[made] = np.array(numbers, np.int64)
        return made

    def is_never_empty(self, value: Value) -> bool:
        """Whether no binding makes a size 0: beside one, a -1 in a reshape could be anything, and the model would be wrong."""
        return all((bounds(size)[0] or 0) >= 1 for size in self.shape(value))

    def grow(self) -> None:
        x = self.draw(st.sampled_from(self.values))
        rank = len(self.shape(x))
        step = self.draw(st.sampled_from(_STEPS))
        if rank >= 1:
            step(self, x, self.draw(st.integers(0, rank - 1)))
        else:
            self.add("nn.relu", [x])

    # -- one operator each ---------------------------------------------------------------------------------------

    def unary(self, x: Value, axis: int) -> None:
        self.add(self.draw(st.sampled_from(["nn.relu", "math.exp", "nn.gelu", "math.neg"])), [x])

    def inplace(self, x: Value, axis: int) -> None:
        self.add("nn.relu", [x], **({"inplace": 0} if x.role is Role.TEMPORARY else {}))

    def binary(self, x: Value, axis: int) -> None:
        fitting = [value for value in self.values if self.shape(value) == self.shape(x)]
        self.add("math.add", [x, self.draw(st.sampled_from(fitting))])

    def permute(self, x: Value, axis: int) -> None:
        self.add("view.permute", [x], perm=tuple(self.draw(st.permutations(range(len(self.shape(x)))))))

    def concat(self, x: Value, axis: int) -> None:
        self.add("tensor.concat", [x, x], axis=axis)

    def cut(self, x: Value, axis: int) -> None:
        start, end = self.draw(st.integers(-3, 3)), self.draw(st.integers(-3, 9))
        self.add("view.slice", [x, self.integers(start), self.integers(end), self.integers(axis), None])

    def pad(self, x: Value, axis: int) -> None:
        self.add("tensor.pad", [x, self.integers(1, 2), None, self.integers(axis)])

    def reduce(self, x: Value, axis: int) -> None:
        self.add("reduce.sum", [x, self.integers(axis)], keepdims=self.draw(st.booleans()))

    def softmax(self, x: Value, axis: int) -> None:
        self.add("nn.softmax", [x], axis=axis)

    def unsqueeze(self, x: Value, axis: int) -> None:
        self.add("view.unsqueeze", [x, self.integers(axis)])

    def merge(self, x: Value, axis: int) -> None:
        shape = self.shape(x)
        if self.is_never_empty(x):
            self.add("view.reshape", [x, None], shape=(*shape[:axis], -1))

    def fold_last(self, x: Value, axis: int) -> None:
        """Reshape by a shape that the graph computes."""
        if not self.is_never_empty(x):
            return
        sizes = self.add("tensor.shape", [x], start=0, end=1)
        target = self.add("tensor.concat", [sizes, self.integers(-1)], axis=0)
        self.values.remove(sizes)
        self.values.remove(target)
        shape = self.shape(x)
        self.graph.append("view.reshape", [x, target], [UNKNOWN_TENSOR], names=[f"v{len(self.graph)}"])
        made = self.graph.last
        rest: Dim = 1
        for size in shape[1:]:
            rest = rest * size
        self.inferred[made.outputs[0]] = tensor(DType.F32, (shape[0], rest))
        self.values.append(made.outputs[0])

    def project(self, x: Value, axis: int) -> None:
        last = self.shape(x)[-1]
        if isinstance(last, int) and last:
            weight = self.graph.add_weight(tensor(DType.F32, (last, 4)), f"w{len(self.graph)}")
            self.add("math.matmul", [x, weight])


_STEPS = (
    _Maker.unary,
    _Maker.inplace,
    _Maker.binary,
    _Maker.permute,
    _Maker.concat,
    _Maker.cut,
    _Maker.pad,
    _Maker.reduce,
    _Maker.softmax,
    _Maker.unsqueeze,
    _Maker.merge,
    _Maker.fold_last,
    _Maker.project,
)


@st.composite
def symbolic_models(draw: st.DrawFn, max_nodes: int = 10) -> Program:
    """A model over `x: f32[batch,length,8]` that runs for every batch and length of at least 1."""
    maker = _Maker(draw)
    for _ in range(draw(st.integers(1, max_nodes))):
        maker.grow()
    outputs = draw(st.lists(st.sampled_from(maker.values), min_size=1, max_size=3, unique=True))
    maker.graph.set_outputs(outputs)
    return Program(maker.graph, symbols=dict(SYMBOLS))
