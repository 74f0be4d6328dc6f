"""What irscope knows about operators: one `OpSpec` each, made by `op(...)`, found by `find_op("nn.conv")`.

A record says how types follow from operands (`infer`), what it costs (`Cost`), which operands results share storage with, what its
kernels take besides, and which parts it plays in patterns (`OpRole`). What nobody knows is `Absent.UNKNOWN`, never zero. A rule is
given an `OpCall`.
"""

from __future__ import annotations

from irscope.ops.cost import Cost
from irscope.ops.facts import CodedOperand, Control, Factors, FusedAttention, OpRole, Packing
from irscope.ops.registry import OpRegistry, default_registry, find_op
from irscope.ops.spec import Absent, Drop, Family, OpCall, OpSpec, Result, RuleError, Take, Temporaries, UnknownCost, Workspace, numel, op

__all__ = [
    "Absent",
    "CodedOperand",
    "Control",
    "Cost",
    "Drop",
    "Factors",
    "Family",
    "FusedAttention",
    "OpCall",
    "OpRegistry",
    "OpRole",
    "OpSpec",
    "Packing",
    "Result",
    "RuleError",
    "Take",
    "Temporaries",
    "UnknownCost",
    "Workspace",
    "default_registry",
    "find_op",
    "numel",
    "op",
]
