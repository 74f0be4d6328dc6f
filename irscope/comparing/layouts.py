"""Nodes of operators that ONNX Runtime renamed when it chose another layout: their kernels' names still tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from irscope.ir.graph import Node
from irscope.ops.registry import find_op
from irscope.ops.spec import Family
from irscope.recording import OpRecord

_SUFFIX = re.compile(r"(_nchwc|_token_\d+|/duplicated)+$")
"""What is put behind the name of a tensor when its layout changes."""


def owners(steps: Sequence[Node], ops: Sequence[OpRecord], names: Mapping[str, int]) -> dict[int, list[int]]:
    """Operators of each step by the names that they know.

    An operator that names no nodes, as its results were renamed, leaves them all to the next one that does. Each is given back those
    between its own result and the one before: what works element by element belongs to what makes its operand, all else to what reads it.
    """
    found: dict[int, list[int]] = {}
    crowds: dict[int, int] = {}
    for op in ops:
        sources = list(dict.fromkeys(names[source] for source in op.sources if source in names))
        for step in sources:
            found.setdefault(step, []).append(op.index)
            if len(sources) > 1:
                crowds[step] = op.index
    told = {names[base]: op.index for op in ops if not op.sources for base in _bases(op) if base in names}
    if not told or not crowds:
        return found
    owner = {**crowds, **{step: op for step, op in told.items() if step in crowds}}
    number = {node: step for step, node in enumerate(steps)}
    for step in sorted(crowds):
        if step not in told and _is_elementwise(steps[step]):
            makers = [number[value.node] for value in steps[step].inputs if value is not None and value.node in number]
            owner[step] = max((owner[maker] for maker in makers if maker in owner), default=owner[step])
    for step in sorted(crowds, reverse=True):
        if step not in told and owner[step] == crowds[step]:
            readers = [number[user] for output in steps[step].outputs for user in output.users or () if user in number]
            owner[step] = min((owner[reader] for reader in readers if reader in owner), default=owner[step])
    return {**found, **{step: [op] for step, op in owner.items()}}


def _bases(op: OpRecord) -> list[str]:
    """Names of kernels without what a layout puts behind them."""
    return [base for kernel in op.kernels if (base := _SUFFIX.sub("", kernel)) != kernel]


def _is_elementwise(node: Node) -> bool:
    spec = find_op(node.op)
    return spec is not None and spec.family is Family.ELEMENTWISE
