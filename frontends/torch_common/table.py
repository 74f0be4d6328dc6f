"""All rules by ATen name: text templates for the many simple operators, functions for the others."""

from __future__ import annotations

from irscope.frontends.torch_common import lower_layers, lower_making, lower_math, lower_moving, lower_signal, lower_training
from irscope.frontends.torch_common.lowering import Rule

TEMPLATES: dict[str, str] = {
    **lower_math.TEMPLATES,
    **lower_moving.TEMPLATES,
    **lower_layers.TEMPLATES,
    **lower_making.TEMPLATES,
    **lower_training.TEMPLATES,
}
RULES: dict[str, Rule] = {
    **lower_math.RULES,
    **lower_moving.RULES,
    **lower_layers.RULES,
    **lower_making.RULES,
    **lower_signal.RULES,
    **lower_training.RULES,
}
