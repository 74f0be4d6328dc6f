"""How each ONNX operator becomes canonical ones: tables from name to rule, by domain."""

from __future__ import annotations

import functools

from irscope.frontends.onnx.lower import contrib, control, learning, standard
from irscope.frontends.onnx.lower.rules import Lower, Table, compile_rule
from irscope.frontends.onnx.model import BLOCKED_DOMAIN

TABLES: dict[str, Table] = {
    "": {**standard.TABLE, **control.TABLE},
    "ai.onnx.ml": learning.TABLE,
    "ai.onnx.preview.training": learning.TRAINING,
    "ai.onnx.preview": control.PREVIEW,
    "com.microsoft": contrib.MICROSOFT,
    BLOCKED_DOMAIN: contrib.BLOCKED,
    "com.ms.internal.nhwc": contrib.CHANNELS_LAST,
}
"""Rules by domain, the default one being ""."""


FOREIGN: dict[tuple[str, str], str] = {("com.microsoft", name): reason for name, reason in contrib.FOREIGN.items()}
"""Operators that are knowingly not lowered, with the reason."""


@functools.cache
def find_lowering(domain: str, op_type: str) -> Lower | None:
    """The lowering of an operator, None for a foreign one."""
    rule = TABLES.get(domain, {}).get(op_type)
    return compile_rule(rule) if rule is not None else None
