"""Joint graphs of live modules, traced with tensors that hold no data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from irscope.frontends.joint.reader import JointGraph


def joint_with_descriptors(module: nn.Module, args: Sequence[Any]) -> JointGraph:
    """AOTAutograd's joint graph of a module that returns its loss; call it under the fake mode of its tensors."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack:
        captured = aot_export_joint_with_descriptors(stack, module, tuple(args))
        graph_module: Any = captured._aot_graph_capture.graph_module
    kept = {
        node
        for node in graph_module.graph.nodes
        if node.op == "placeholder" and type(node.meta.get("desc")).__name__ in ("ParamAOTInput", "BufferAOTInput")
    }
    [output] = [node for node in graph_module.graph.nodes if node.op == "output"]
    primals = sum(node.op == "placeholder" and not node.name.startswith("tangents") for node in graph_module.graph.nodes)
    return JointGraph(graph_module.graph, kept, forward_count=len(output.args[0]) - primals)


def joint_from_export_module(module: nn.Module, args: Sequence[Any], loss_index: int = 0) -> JointGraph:
    """The joint graph of `aot_export_module`, whose phases follow from dataflow."""
    from torch._functorch.aot_autograd import aot_export_module

    found: Any = aot_export_module(_AsTuple(module), tuple(args), trace_joint=True, output_loss_index=loss_index)
    graph_module, signature = found
    names = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    kept = {node for node in graph_module.graph.nodes if node.op == "placeholder" and node.name in names}
    backward = signature.backward_signature
    gradients = {*backward.gradients_to_parameters, *backward.gradients_to_user_inputs} if backward is not None else set()
    [output] = [node for node in graph_module.graph.nodes if node.op == "output"]
    forward = [node for node in output.all_input_nodes if node.name not in gradients]
    return JointGraph(graph_module.graph, kept, forward)


def joint_from_exported(program: Any, loss_index: int = 0) -> JointGraph:
    """torch.export's joint graph of an exported program that returns its loss; call it outside of any fake mode."""
    from torch.export.experimental import _export_forward_backward

    joint = _export_forward_backward(program, loss_index)
    signature = joint.graph_signature
    names = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    kept = {node for node in joint.graph.nodes if node.op == "placeholder" and node.name in names}
    backward = signature.backward_signature
    gradients = {*backward.gradients_to_parameters, *backward.gradients_to_user_inputs} if backward is not None else set()
    [output] = [node for node in joint.graph.nodes if node.op == "output"]
    return JointGraph(joint.graph, kept, [node for node in output.all_input_nodes if node.name not in gradients])


class _AsTuple(nn.Module):
    """A module whose result is a tuple, as `aot_export_module` wants it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> tuple[Any, ...]:
        found = self.inner(*args)
        return tuple(found) if isinstance(found, tuple | list) else (found,)
