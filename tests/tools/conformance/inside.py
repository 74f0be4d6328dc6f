"""What irscope says about the values between a model's inputs and results, held against onnx's reference evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from irscope.frontends.onnx import load_model
from irscope.ir.types import TensorType
from irscope.ops.reals import Real
from irscope.ops.values import Array
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.conformance.engines import bound_size
from tests.tools.conformance.grade import Grade, TensorAnswer, grade
from tests.tools.conformance.modes import prepare
from tests.tools.conformance.suite import Case, Tensor

_UNGRADED = 1
"""An element type for both sides: the evaluator holds narrow types in wider arrays."""


@dataclass(frozen=True)
class Finding:
    """One value of a model: how its shape was graded, and whether its elements are right, None where nobody knows them."""

    name: str
    op: str
    grade: Grade
    elements: bool | None
    said: str


def reference(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor that the evaluator makes, by name; empty where it cannot run the model, or gets the known results wrong."""
    model = onnx.ModelProto.FromString(case.model)
    feeds = {}
    for info, raw in zip(model.graph.input, case.inputs, strict=False):
        if raw is None:
            return {}
        feeds[info.name] = numpy_helper.to_array(onnx.TensorProto.FromString(raw))
    wanted = {info.name for info in model.graph.output}
    for name in [name for node in model.graph.node for name in node.output if name and name not in wanted]:
        model.graph.output.add().name = name
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # the evaluator does not know every operator
        return {}
    found = {
        info.name: np.asarray(result)
        for info, result in zip(model.graph.output, results, strict=True)
        if isinstance(result, np.ndarray | np.generic)
    }
    for name, truth in case.truth:
        if isinstance(truth, Tensor) and name in found and found[name].shape != truth.shape:
            return {}
    return found


def findings(case: Case, mode: str, made: dict[str, np.ndarray[Any, Any]]) -> Iterator[Finding]:
    """Everything that irscope says about tensors that the evaluator made too."""
    program = load_model(prepare(case, mode).SerializeToString())
    found = Manager(program).get(Shapes())
    for node in program.graph:
        for value in node.outputs:
            type_ = found.type_of(value)
            if value.name not in made or not isinstance(type_, TensorType):
                continue
            true = made[value.name]
            shape = None if type_.shape is None else tuple(bound_size(dim) for dim in type_.shape)
            graded = grade(Tensor(_UNGRADED, true.shape), TensorAnswer(_UNGRADED, shape))
            known = found.values.get(value)
            elements = _agree(known, true) if known is not None and graded is Grade.EXACT else None
            yield Finding(
                value.name, node.op, graded, elements, f"{type_} = {known if known is not None else '?'}, not {true.shape} {true}"
            )


def _agree(known: Array, true: np.ndarray[Any, Any]) -> bool:
    if true.dtype.kind in "OUS":
        return [str(item) for item in known.flat] == [str(item) for item in true.flat]
    if true.dtype.kind not in "biufc":
        true = true.astype(np.float64)
    if known.dtype == object:
        return all(_is(item, theirs) for item, theirs in zip(known.flat, true.flat, strict=True))
    # Narrow floats round, and the evaluator computes some of them in other precision.
    return bool(np.allclose(known.astype(np.complex128), true.astype(np.complex128), rtol=2e-2, atol=1e-3, equal_nan=True))


def _is(item: object, theirs: Any) -> bool:
    """Whether an element is what is said of it; a float made of sizes is its quotient in the evaluator's precision."""
    if isinstance(item, Real):
        over, under = bound_size(item.over), bound_size(item.under)
        return over is None or not under or bool(np.isclose(over / under, theirs, rtol=1e-3))
    mine = bound_size(item)  # type: ignore[arg-type]  # sizes and numbers are left
    return mine is None or mine == theirs
