"""Strides of every tensor: as the file states them, or propagated through the operators."""

from __future__ import annotations

from irscope.ir.graph import Node, Value
from irscope.ir.types import Layout, TensorType, Type, tensor
from irscope.ops.layouts import result_strides, row_major, strides_rule
from irscope.ops.spec import OpCall, OpSpec
from irscope.passes.inference.engine import Inferred


class Strides:
    """Types with strides: those that the file states, else propagated from node to node."""

    def __init__(self, types: Inferred, follow: bool) -> None:
        self._types = types
        self._follow = follow
        self._layouts: dict[Value, Layout] = {}

    def type_of(self, value: Value | None) -> Type:
        """The inferred type with the strides of the value."""
        type_ = self._types.type_of(value)
        if value is None or not isinstance(type_, TensorType):
            return type_
        layout = self._layout(value, type_)
        return type_ if layout is type_.layout else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _layout(self, value: Value, type_: TensorType) -> Layout:
        stated = value.type
        if stated.layout is not None and stated.shape == type_.shape:
            return stated.layout
        return self._layouts.get(value) if self._follow else None

    def visit(self, node: Node, spec: OpSpec | None) -> None:
        """Work out the strides of a node's results."""
        if not self._follow or spec is None or not node.outputs:
            return
        operands = [None if value is None else self.type_of(value) for value in node.inputs]
        rule = strides_rule(spec)
        is_plain = all(type_ is None or type_.layout is None for type_ in operands)
        if is_plain and (rule is None or not rule.from_plain):
            return
        results = [self._types.type_of(output) for output in node.outputs]
        call = OpCall(spec, operands, node.attrs, (), results, source=node.source)
        for index, (output, result) in enumerate(zip(node.outputs, results, strict=True)):
            layout = result_strides(call, index) if isinstance(result, TensorType) else None
            # Strides of axes of size 1 say nothing of where elements are, but decide what format a tensor seems to have.
            if isinstance(layout, tuple) and layout != row_major(result.shape or ()):
                self._layouts[output] = layout
