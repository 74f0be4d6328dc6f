"""Reading with a fresh sink, and types recomputed by the operators' own rules."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from irscope.diagnostics import DiagnosticSink
from irscope.frontends import exported, torchscript
from irscope.frontends.base import LoadOptions
from irscope.frontends.files import checkpoint
from irscope.ir.dims import equal
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager

READERS = {"exported": exported, "torchscript": torchscript, "checkpoint": checkpoint}
DTYPES = {torch.float32: DType.F32, torch.int64: DType.I64, torch.bool: DType.BOOL}


def read(kind: str, path: Path, **inputs: Type) -> Program:
    """Read a file with one of the frontends."""
    return READERS[kind].load(path, LoadOptions(inputs=inputs), DiagnosticSink())


def save_exported(path: Path, model: Any, args: tuple[Any, ...], dynamic: Any = None, decompose: bool = False) -> Path:
    """Export and save a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, dynamic_shapes=dynamic)
        torch.export.save(program.run_decompositions() if decompose else program, path)
    return path


def save_traced(path: Path, model: Any, args: tuple[Any, ...]) -> Path:
    """Trace and save a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(model, args).save(str(path))
    return path


def save_scripted(path: Path, model: Any) -> Path:
    """Script and save a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(str(path))
    return path


def type_of(value: torch.Tensor) -> TensorType:
    """The type of a real tensor."""
    return tensor(DTYPES[value.dtype], value.shape)


def same_type(a: Type, b: Type) -> bool:
    """Equal element types and sizes; strides may differ."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a is b
    if a.dtype is not b.dtype or a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(equal(x, y) is True for x, y in zip(a.shape, b.shape, strict=True))


def disagreements(program: Program) -> list[str]:
    """Results whose recorded type differs from what the operator's rule says of its operands' recorded types."""
    found: list[str] = []
    for node in program.graph.walk():
        spec = find_op(node.op)
        if spec is None:
            found.append(f"{node.op}: no record")
        elif not node.op.startswith("cf."):
            types = [None if value is None else value.type for value in node.inputs]
            inferred = spec.infer_types(OpCall(spec, types, node.attrs, (), [output.type for output in node.outputs]))
            found.extend(
                f"{node.op}: {output.type} is recorded, {type_} inferred"
                for output, type_ in zip(node.outputs, inferred, strict=True)
                if not same_type(output.type, type_)
            )
    return found


def recomputed(program: Program) -> list[str]:
    """Values whose recorded type differs from what the whole analysis computes from the inputs alone, regions included."""
    recorded = [(node, output, output.type) for node in program.graph.walk() for output in node.outputs]
    Manager(program).apply(Annotate())
    return [
        f"{node.op}: {type_} is recorded, {output.type} recomputed"
        for node, output, type_ in recorded
        if str(type_) != str(output.type) and not same_type(type_, output.type)
    ]
