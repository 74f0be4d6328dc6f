"""How each ONNX operator becomes canonical ones: a table from domain and name to a lowering, one module a family."""

from __future__ import annotations

from irscope.frontends.onnx.lower import (
    arrays,
    attention,
    contrib,
    control,
    convolution,
    elementwise,
    indexing,
    learning,
    normalization,
    quantized,
    recurrent,
    reduction,
    sequences,
    signal,
    transformer,
)
from irscope.frontends.onnx.lower.rules import Lower, Table
from irscope.frontends.onnx.model import BLOCKED_DOMAIN

_STANDARD = (
    elementwise,
    arrays,
    indexing,
    reduction,
    convolution,
    normalization,
    attention,
    recurrent,
    quantized,
    control,
    sequences,
    signal,
)

TABLES: dict[str, Table] = {
    "": {name: lower for module in _STANDARD for name, lower in module.TABLE.items()},
    "ai.onnx.ml": learning.TABLE,
    "ai.onnx.preview.training": learning.TRAINING,
    "ai.onnx.preview": attention.PREVIEW,
    "com.microsoft": {**contrib.TABLE, **transformer.TABLE, **quantized.CONTRIB, **recurrent.CONTRIB},
    BLOCKED_DOMAIN: contrib.BLOCKED,
    "com.ms.internal.nhwc": contrib.CHANNELS_LAST,
}
"""Lowerings by domain, the default one being ""."""


FOREIGN: dict[tuple[str, str], str] = {("com.microsoft", name): reason for name, reason in contrib.FOREIGN.items()}
"""Operators that are knowingly not lowered, with the reason."""


def find_lowering(domain: str, op_type: str) -> Lower | None:
    """The lowering of an operator, None for a foreign one."""
    table = TABLES.get(domain)
    return table.get(op_type) if table is not None else None
