"""Control flow: operators with regions, whose arguments and results the passes carry through."""

from __future__ import annotations

from typing import Unpack

from irscope.ops.cost import FREE
from irscope.ops.spec import Absent, Control, Facts, Family, OpSpec, op


def _control(schema: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.CONTROL, infer=Absent.CONTROL, cost=Absent.CONTROL, summary=summary, **facts)


OPS = (
    _control(
        "cf.if(Tensor condition, Tensor[] captured) -> Tensor[]",
        "Runs one of two regions, the first where the condition holds. Regions take no arguments and yield the results.",
        control=Control.BRANCH,
    ),
    _control(
        "cf.loop(Tensor? trip, Tensor? condition, Tensor[] state) -> Tensor[]",
        "Runs its region up to `trip` times while the condition holds. The region takes (iteration, condition, state...) and yields "
        "(condition, state..., scan outputs...); results are the last state and each scan output stacked over the iterations.",
        control=Control.LOOP,
    ),
    _control(
        "cf.scan(Tensor[] operands, *, int num_scan_inputs, int[] input_axes=[], int[] output_axes=[], int[] input_directions=[], "
        "int[] output_directions=[]) -> Tensor[]",
        "Runs its region for each slice of the last `num_scan_inputs` operands; those before are the state. The region takes "
        "(state..., slices...) and yields (state..., output slices...); results are the last state and the outputs, stacked.",
        control=Control.SCAN,
    ),
    _control(
        "cf.map(Tensor[] operands) -> Tensor[]",
        "Runs its region for each element of its first operand, a sequence, and of further sequences; other operands go in whole. "
        "The region yields one element of each result, a sequence.",
        control=Control.MAP,
    ),
    _control(
        "cf.call(Tensor[] operands, *, str callee) -> Tensor[]",
        "Calls a function of the program. Its arguments are the operands, its yielded values the results.",
        control=Control.CALL,
    ),
    op(
        "cf.assert(Tensor condition, *, str message='') -> ()",
        Family.CONTROL,
        infer=lambda call: (),
        cost=lambda call: FREE,
        has_effect=True,
        summary="Stops the model where the condition does not hold.",
    ),
    op(
        "cf.print(Tensor[] operands, *, str message='') -> ()",
        Family.CONTROL,
        infer=lambda call: (),
        cost=lambda call: FREE,
        has_effect=True,
        summary="Prints values.",
    ),
)
