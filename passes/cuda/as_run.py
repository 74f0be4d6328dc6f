"""The program that Python runs, where it differs from the exported one."""

from __future__ import annotations

from irscope.devices import Target
from irscope.ir.program import Program
from irscope.ops.registry import roles_of
from irscope.ops.spec import OpRole
from irscope.passes.cuda.changes import Changes, changed, lies_otherwise
from irscope.passes.cuda.fused import fuse_modules
from irscope.passes.cuda.masks import leave_out_masks
from irscope.passes.inference.engine import Inferred


def as_run(program: Program, types: Inferred, target: Target) -> Program | None:
    """A copy of the program as Python runs it in inference; None where the exported one is the same."""
    graph = program.graph
    if not program.traits.is_exported or program.functions or any(node.regions for node in graph):
        return None
    changes = Changes()
    roles = {role for node in graph for role in roles_of(node)}
    has_attention = OpRole.LAYOUT_BY_DEVICE in roles
    changes.relays = has_attention or any(lies_otherwise(node) for node in graph)
    if has_attention or OpRole.SOFTMAX in roles:
        leave_out_masks(graph, types, changes)
        fuse_modules(graph, changes)
    return changed(program, changes, target) if changes else None
