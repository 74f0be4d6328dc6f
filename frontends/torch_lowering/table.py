"""All rules by ATen name: text templates for the many simple operators, functions for the others; and which rule a call means."""

from __future__ import annotations

import functools

from irscope.frontends.torch_lowering.arithmetic import ARITHMETIC, ARITHMETIC_RULES, SIGNAL_RULES
from irscope.frontends.torch_lowering.layers import LAYER_RULES, LAYERS, TRAINING, TRAINING_RULES
from irscope.frontends.torch_lowering.lowering import AtenCall, CannotLower, Lowered, Rule, from_template
from irscope.frontends.torch_lowering.tensors import MAKING, MAKING_RULES, MOVING, MOVING_RULES

TEMPLATES: dict[str, str] = {**ARITHMETIC, **MOVING, **LAYERS, **MAKING, **TRAINING}
RULES: dict[str, Rule] = {**ARITHMETIC_RULES, **MOVING_RULES, **LAYER_RULES, **MAKING_RULES, **SIGNAL_RULES, **TRAINING_RULES}


def functional_name(name: str) -> str:
    """The name without the mark of in-place operators."""
    if name.startswith("__i") and name.endswith("__"):
        return f"__{name[3:]}"
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def lower(call: AtenCall) -> Lowered | None:
    """The node that a call becomes, or None where irscope has no operator for it."""
    name = call.signature.name
    base = functional_name(name)
    rule = _rule(name, call.overload) or (_rule(base, call.overload) if base != name else None)
    if rule is None:
        return None
    try:
        lowered = rule(call)
    except CannotLower:
        return None
    written = call.signature.written
    if written is not None and "inplace" not in lowered.attrs:
        target = call.args.get(written)
        for index, value in enumerate(lowered.inputs):
            if value is target:
                lowered.attrs["inplace"] = index
                break
    return lowered


@functools.cache
def _rule(name: str, overload: str) -> Rule | None:
    for key in (f"{name}.{overload}", name):
        rule = RULES.get(key)
        if rule is not None:
            return rule
        template = TEMPLATES.get(key)
        if template is not None:
            return from_template(template)
    return None
