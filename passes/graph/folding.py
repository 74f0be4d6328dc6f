"""Folding into weights: batch normalizations into the products before them, and what is computed from weights alone.

The new weights are not computed here: each holds how it follows from others (`Computed`) and is computed when it is read, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.graph import WEIGHT_ROLES, Attr, Graph, Node, Role, Value
from irscope.ir.places import Computed, Payload
from irscope.ir.types import TensorType, Type
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import OpCall, OpSpec
from irscope.ops.values import from_bytes, settle, static_shape
from irscope.passkit.base import PassContext, Transform
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import encode_elements, is_readable, stored_values

Array = npt.NDArray[Any]
_FLOATS: Final = (DType.F32, DType.F64, DType.F16, DType.BF16)


@immutable
class Source:
    """A weight as it was when something was folded: its type and where its values are."""

    type: Type
    data: Payload

    def read(self, files: WeightFiles) -> Array:
        """Return its values as an array; Unreadable where they cannot be had."""
        type_ = self.type
        stored = stored_values(type_, self.data, files)
        raw = bytearray(stored.bytes)
        if raw:
            files.read_into(stored.source, 0, memoryview(raw))
        array = from_bytes(bytes(raw), type_) if isinstance(type_, TensorType) else None
        if array is None:
            raise Unreadable(f"elements of type {type_.dtype} cannot be computed with")
        return array


def source_of(value: Value | None) -> Source | None:
    """Return a weight whose values can be computed with; None for anything else."""
    if value is None or value.role not in WEIGHT_ROLES or value.graph is None:
        return None
    type_, data = value.type, value.graph.data.get(value)
    if any(isinstance(user, Node) and _writes(user) for user in value.users or ()):
        return None
    if data is None or not isinstance(type_, TensorType) or static_shape(type_) is None or type_.layout is not None:
        return None
    bits = type_.dtype.bits or 0
    return Source(type_, data) if is_readable(type_.dtype) and bits >= 8 else None


def _writes(node: Node) -> bool:
    """Return whether a node changes one of its operands."""
    spec = spec_of(node)
    return "inplace" in node.attrs or spec is None or bool(spec.writes)


def _packed(array: Array, type_: Type) -> bytes:
    """Return the values as the bytes of a type."""
    settled = settle(array, type_.dtype)
    if type_.dtype is DType.BF16:
        return encode_elements(settled.reshape(-1).tolist(), type_.dtype)
    return np.ascontiguousarray(settled).tobytes()


def _static_bytes(type_: Type) -> int:
    size = type_.nbytes
    assert isinstance(size, int), "only static tensors are folded"
    return size


def derived_weight(
    graph: Graph,
    type_: Type,
    rule: Callable[..., Array],
    operands: Sequence[Value | None],
    *,
    role: Role = Role.PARAMETER,
    name: str | None = None,
    how: str = "",
) -> Value | None:
    """Declare a weight whose values are what `rule` makes of those of other weights, as arrays, when somebody reads them.

    None where an operand is not a weight, is written to while the model runs, or has no values that can be read. An operand that is None is
    None for the rule too. What the rule returns is rounded to the type of the weight.
    """
    sources = [source_of(value) for value in operands]
    if any(source is None and value is not None for source, value in zip(sources, operands, strict=True)) or static_shape(type_) is None:
        return None

    def compute(files: WeightFiles) -> bytes:
        with np.errstate(all="ignore"):
            made = np.asarray(rule(*(None if source is None else source.read(files) for source in sources)))
        if made.shape != static_shape(type_):
            raise Unreadable(f"its rule makes {list(made.shape)}, its type is {type_}")
        return _packed(made, type_)

    return graph.add_weight(
        type_, name, role, Computed(_static_bytes(type_), compute, how or f"derived by {getattr(rule, '__name__', 'a rule')}")
    )


@dataclass(frozen=True)
class FoldBatchNorm(Transform):
    """Batch normalization folding: scale the weights of the convolution or linear layer before it, and remove the normalization."""

    name: ClassVar[str] = "fold-batch-norm"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        folded = left = 0
        for body in list(ctx.program.changeable()):
            for node in body:
                if not plays(node, OpRole.FOLDABLE_NORM):
                    continue
                if _fold_norm(node):
                    folded += 1
                else:
                    left += 1
        ctx.stat("folded", folded)
        ctx.stat("left", left)
        return folded > 0


def _channel_axis(node: Node) -> int | None:
    """Return the axis of a product's weights along which its results have channels; None where a normalization does not fold into it."""
    rank = len(node.outputs[0].type.shape or ())
    attrs = node.attrs
    if attrs.get("channels_last") or attrs.get("dtype") is not None:
        return None
    if node.op == "nn.conv":
        return 0
    if node.op == "nn.conv_transpose":
        return 1 if attrs.get("groups", 1) == 1 else None
    if node.op == "nn.linear":
        # Of three axes the last one would be the layer's, the second one the normalization's.
        return 0 if rank == 2 else None
    if node.op == "math.gemm" and attrs.get("alpha", 1.0) == 1.0 and attrs.get("beta", 1.0) == 1.0:
        return 0 if attrs.get("trans_b") else 1
    return None


def _fold_norm(norm: Node) -> bool:
    """Fold a normalization into the node before it, where that is right for every input."""
    graph, into = norm.graph, norm.inputs[0].node if norm.inputs and norm.inputs[0] is not None else None
    if graph is None or into is None or into.graph is not graph or norm.attrs.get("training") or len(into.outputs) != 1:
        return False
    between = into.outputs[0]
    if between.users != {norm: 1} or any(output.users for output in norm.outputs[1:]):
        return False
    axis = _channel_axis(into)
    weight = into.inputs[1] if len(into.inputs) > 1 else None
    bias = into.inputs[2] if len(into.inputs) > 2 else None
    if axis is None or weight is None:
        return False
    own, added = source_of(weight), source_of(bias)
    statistics = [source_of(value) for value in norm.inputs[1:5]]
    shape = weight.type.shape or ()
    if own is None or len(statistics) != 4 or (bias is not None and added is None) or axis >= len(shape):
        return False
    channels = shape[axis]
    given = [one for one in (*statistics, added) if one is not None]
    absent = [statistic for statistic, value in zip(statistics, norm.inputs[1:5], strict=True) if statistic is None and value is not None]
    if absent or None in statistics[2:] or any(arg.type.shape != (channels,) or arg.type.dtype not in _FLOATS for arg in given):
        return False
    if own.type.dtype not in _FLOATS:
        return False
    _replace_weights(graph, norm, into, axis)
    return True


def _replace_weights(graph: Graph, norm: Node, into: Node, axis: int) -> None:
    """Give the node before a normalization the folded weights, and take the normalization out."""
    weight, bias = into.inputs[1], into.inputs[2] if len(into.inputs) > 2 else None
    assert weight is not None
    epsilon = float(norm.attrs.get("epsilon", 1e-5))
    scale, shift, mean, var = norm.inputs[1:5]
    shape = [1] * len(weight.type.shape or ())
    shape[axis] = -1

    def factor(scale: Array | None, var: Array) -> Array:
        spread = np.sqrt(var.astype(np.float64) + epsilon)
        return np.asarray((1.0 if scale is None else scale.astype(np.float64)) / spread)

    def weights(values: Array, scale: Array | None, var: Array) -> Array:
        return np.asarray(values.astype(np.float64) * factor(scale, var).reshape(shape))

    def biases(bias: Array | None, scale: Array | None, shift: Array | None, mean: Array, var: Array) -> Array:
        moved = (0.0 if bias is None else bias.astype(np.float64)) - mean.astype(np.float64)
        return np.asarray(moved * factor(scale, var) + (0.0 if shift is None else shift))

    owner = weight.declared_in or graph
    how = f"{weight.name or 'weights'} with {norm.name} folded in"
    added_type = weight.type.with_shape(((weight.type.shape or ())[axis],))
    made = derived_weight(owner, weight.type, weights, (weight, scale, var), role=weight.role, how=how)
    role = weight.role if bias is None else bias.role
    added = derived_weight(owner, added_type, biases, (bias, scale, shift, mean, var), role=role, how=how)
    assert made is not None and added is not None, "all of them can be read"
    names = (weight.name, bias.name if bias is not None else f"{_stem(weight.name)}bias" if weight.name else None)
    old = [value for value in (*into.inputs[1:3], *norm.inputs[1:5]) if value is not None]
    graph.set_inputs(into, (into.inputs[0], made, added, *into.inputs[3:]))
    graph.replace_uses(norm.outputs[0], into.outputs[0])
    graph.erase(norm)
    gone = {one for one in old if not one.users}
    for holder in {one.declared_in for one in gone if one.declared_in is not None}:
        holder.remove_weights(one for one in gone if one.declared_in is holder)
    taken = {weight.name for body in (graph, owner) for weight in (*body.weights, *body.inputs)}
    for value, name in zip((made, added), names, strict=True):
        if name is not None:
            graph.rename(value, name if name not in taken else f"{name}.folded")


def _stem(name: str | None) -> str:
    """Return what names of the same layer begin with: "conv1.weight" gives "conv1."."""
    stem, dot, _ = (name or "").rpartition(".")
    return f"{stem}{dot}" if dot else f"{name}."


# Results that depend on weights alone.


@immutable(slots=False)
class _Evaluation:
    """A node over weights, to be computed by its operator's evaluate rule."""

    spec: OpSpec
    types: tuple[Type | None, ...]
    attrs: Mapping[str, Attr]
    results: tuple[Type, ...]
    sources: tuple[Source | None, ...]
    index: int

    def run(self, values: Sequence[Array | None]) -> Array | None:
        """Return the result for these operands; None where the rule has none."""
        assert self.spec.evaluate is not None
        answer = self.spec.evaluate(OpCall(self.spec, self.types, self.attrs, values, self.results))
        arrays = (answer,) if answer is None or isinstance(answer, np.ndarray) else tuple(answer)
        array = arrays[self.index] if self.index < len(arrays) else None
        return array if array is not None and array.shape == self.results[self.index].shape else None

    def __call__(self, files: WeightFiles) -> bytes:
        found = self.run([None if source is None else source.read(files) for source in self.sources])
        if found is None:
            raise Unreadable(f"{self.spec.name} of these weights has no result")
        return _packed(found, self.results[self.index])


def fold_weights(node: Node, largest: int) -> bool:
    """Replace a node that reads weights alone by weights, computed when they are read.

    Not where the results are larger than what is read and more than a page: that would make the file larger.
    """
    graph, spec = node.graph, spec_of(node)
    if graph is None or spec is None or spec.evaluate is None or spec.random or spec.has_effect or spec.writes or node.regions:
        return False
    sources = tuple(source_of(value) for value in node.inputs)
    if (
        "inplace" in node.attrs
        or not any(sources)
        or any(source is None and value is not None for source, value in zip(sources, node.inputs, strict=True))
    ):
        return False
    types = tuple(output.type for output in node.outputs)
    used = [at for at, output in enumerate(node.outputs) if output.users]
    if not used or not all(
        isinstance(type_, TensorType) and static_shape(type_) is not None and is_readable(type_.dtype) for type_ in types
    ):
        return False
    made, read = sum(_static_bytes(types[at]) for at in used), sum(_static_bytes(source.type) for source in sources if source is not None)
    if made > largest or made > max(read, 4096):
        return False
    operands = tuple(None if value is None else value.type for value in node.inputs)
    evaluations = {at: _Evaluation(spec, operands, node.attrs, types, sources, at) for at in used}
    if not all(_has_result(evaluation) for evaluation in evaluations.values()):
        return False
    # Weights are declared where the ones they are made of are, so that regions find them.
    owner = next(value.declared_in for value in node.inputs if value is not None and value.declared_in is not None)
    learned = any(value is not None and value.role is Role.PARAMETER for value in node.inputs)
    for at, evaluation in evaluations.items():
        output = node.outputs[at]
        name = output.name
        data = Computed(
            _static_bytes(types[at]), evaluation, f"{node.op} of {', '.join(value.name or 'weights' for value in node.inputs if value)}"
        )
        graph.rename(output, None)
        graph.replace_uses(output, owner.add_weight(types[at], name, Role.PARAMETER if learned else Role.BUFFER, data))
    graph.erase(node)
    return True


def _has_result(evaluation: _Evaluation) -> bool:
    """Return whether the rule gives a result of this shape, tried with zeros that take no memory."""
    zeros: list[Array | None] = []
    for source in evaluation.sources:
        shape = static_shape(source.type) if source is not None else None
        sample = from_bytes(bytes((source.type.dtype.bits or 8) // 8), source.type.with_shape(())) if source is not None else None
        if source is not None and (sample is None or shape is None):
            return False
        zeros.append(None if source is None or sample is None else np.broadcast_to(sample, shape or ()))
    try:
        return evaluation.run(zeros) is not None
    except Exception:  # a rule that fails for zeros is one that cannot be relied on here
        return False
