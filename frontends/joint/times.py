"""How long the operators of an fx graph take, by a simple cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


@dataclass(frozen=True)
class CostModel:
    """The larger of computing and moving bytes, and a constant for the launch."""

    flops_per_second: float = 100e12
    bytes_per_second: float = 1.5e12
    launch_seconds: float = 2e-6

    def seconds(self, flops: float, moved: float) -> float:
        """Time of an operator with this much work."""
        return max(flops / self.flops_per_second, moved / self.bytes_per_second) + self.launch_seconds


SIMPLE_COSTS = CostModel()
"""100 TFLOP/s, 1.5 TB/s and 2 microseconds for a launch: about an A100 in half precision."""


def formula_of(target: Any) -> Callable[..., int] | None:
    """torch's own formula for the floating point operations of an operator; it takes shapes in the place of tensors."""
    from torch.utils.flop_counter import flop_registry

    found: Callable[..., int] | None = flop_registry.get(getattr(target, "overloadpacket", None))
    return found


def flops_of(node: torch.fx.Node) -> float:
    """Floating point operations of a node, by torch's own formulas; 0 for what has none."""
    formula = formula_of(node.target)
    if formula is None:
        return 0.0
    args, kwargs = tree_map(_value, (node.args, node.kwargs))
    try:
        return float(formula(*args, **kwargs, out_val=node.meta["val"]))
    except (TypeError, IndexError, AttributeError):
        return 0.0


def moved_bytes(node: torch.fx.Node) -> int:
    """Bytes that a node reads and writes when each operand moves once."""
    sources = [one.meta.get("val") for one in node.all_input_nodes]
    return _bytes(tree_leaves(sources)) + _bytes(tree_leaves(node.meta.get("val")))


def _value(one: Any) -> Any:
    return one.meta.get("val") if isinstance(one, torch.fx.Node) else one


def _bytes(values: Iterable[object]) -> int:
    return sum(one.numel() * one.element_size() for one in values if isinstance(one, torch.Tensor))
