"""Compares what irscope infers from a model's inputs with what the file records, or with what a real run returned."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.ir.dims import Dim, SymDim, bind, equal
from irscope.ir.graph import Value
from irscope.ir.program import Program
from irscope.ir.types import UNKNOWN_TENSOR, TensorType, Type, tensor
from irscope.ops.registry import find_op
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.zoo.export import Exported


@dataclass
class Verdict:
    """What a comparison found."""

    name: str
    form: str
    tensors: int = 0
    mismatches: list[str] = field(default_factory=list)
    unknown_operators: Counter[str] = field(default_factory=Counter)
    refused: str = ""
    error: str = ""
    data_sized: int = 0
    """Tensors with a size that depends on data; those of the file and of irscope correspond one to one."""
    cpu: float = 0.0
    """Seconds of irscope: reading and inferring."""

    @property
    def good(self) -> bool:
        return not (self.mismatches or self.unknown_operators or self.error)

    def line(self) -> str:
        """One row of a table."""
        if self.refused:
            return f"{self.name:42} {self.form:9} refused: {self.refused[:120]}"
        if self.error:
            return f"{self.name:42} {self.form:9} ERROR {self.error[:200]}"
        unknown = " ".join(f"{name}x{count}" for name, count in self.unknown_operators.items())
        equal_ = self.tensors - len(self.mismatches)
        return f"{self.name:42} {self.form:9} {equal_:6}/{self.tensors:<6} {self.data_sized:4} {self.cpu:6.2f} s {unknown}".rstrip()


def check(exported: Exported) -> Verdict:
    """Check one export in the way that its form allows."""
    verdict = Verdict(exported.entry.name, exported.form, refused=exported.refused)
    if exported.refused:
        return verdict
    started = process_time()
    try:
        program = load_program(exported.path, LoadOptions(inputs=_stated(exported)), DiagnosticSink())
        if exported.path.suffix == ".pt2":
            _check_recorded(program, verdict)
        else:
            _check_outputs(program, exported, verdict)
    except Exception as error:  # a crash is a finding too
        verdict.error = f"{type(error).__name__}: {error}"
    verdict.cpu = process_time() - started
    return verdict


def recheck(path: Path, form: str = "concrete") -> Verdict:
    """Check the recorded types of a `.pt2` file."""
    verdict = Verdict(path.stem, form)
    _check_recorded(load_program(path, LoadOptions(), DiagnosticSink()), verdict)
    return verdict


def _stated(exported: Exported) -> dict[str, Type]:
    """A scripted model does not know what it will be called with."""
    if exported.form != "scripted":
        return {}
    names = [str(index) if exported.entry.dynamic else f"images.{index}" for index in range(len(exported.inputs))]
    return {name: tensor(NAMED_DTYPES[dtype], shape) for name, (dtype, shape) in zip(names, exported.inputs, strict=True)}


# -- recorded types ----------------------------------------------------------------------------------------------------


def _check_recorded(program: Program, verdict: Verdict) -> None:
    recorded = hide_types(program)
    inferred = Manager(program).get(Shapes())
    verdict.unknown_operators.update(inferred.foreign)
    verdict.mismatches.extend(f"problem at {problem.node.name} ({problem.node.op}): {problem.text}" for problem in inferred.problems)
    names = Correspondence()
    for value, type_ in recorded.items():
        verdict.tensors += 1
        mine = inferred.type_of(value)
        if _has_unknown(type_):
            verdict.data_sized += 1
        if not names.same(type_, mine):
            node = value.node
            assert node is not None
            verdict.mismatches.append(f"{value.name}: {node.source} ({node.op}) records {type_}, inferred {mine}")


def hide_types(program: Program) -> dict[Value, TensorType]:
    """Take the recorded types of every operator's results out of a program."""
    recorded: dict[Value, TensorType] = {}
    for body in program.bodies():
        if body.owner is not None:
            for argument in body.inputs:
                body.set_type(argument, UNKNOWN_TENSOR)
        for node in body:
            if find_op(node.op) is None:
                continue
            for value in node.outputs:
                type_ = value.type
                if isinstance(type_, TensorType):
                    if type_.shape is not None:
                        recorded[value] = type_
                    body.set_type(value, UNKNOWN_TENSOR)
    return recorded


class Correspondence:
    """Which of irscope's names for sizes that depend on data is which of the file's."""

    def __init__(self) -> None:
        self._ours: dict[str, Dim] = {}

    def same(self, recorded: TensorType, inferred: Type) -> bool:
        """Whether two types agree: element type, number of axes, every size."""
        if not isinstance(inferred, TensorType) or inferred.dtype is not recorded.dtype:
            return False
        mine, theirs = inferred.shape, recorded.shape
        if mine is None or theirs is None or len(mine) != len(theirs):
            return False
        return all(self._same_size(a, b) for a, b in zip(theirs, mine, strict=True))

    def _same_size(self, recorded: Dim, inferred: Dim) -> bool:
        if equal(recorded, inferred) is True:
            return True
        if not isinstance(recorded, SymDim) or not isinstance(inferred, SymDim):
            return False
        for symbol in recorded.symbols():
            name = str(symbol)
            if recorded == symbol and symbol.is_unknown and name not in self._ours and inferred.is_unknown:
                self._ours[name] = inferred
        return equal(bind(recorded, self._ours), inferred) is True


def _has_unknown(type_: TensorType) -> bool:
    return any(isinstance(dim, SymDim) and dim.is_unknown for dim in type_.shape or ())


# -- results of a run --------------------------------------------------------------------------------------------------


def _check_outputs(program: Program, exported: Exported, verdict: Verdict) -> None:
    hide_types(program)
    inferred = Manager(program).get(Shapes())
    verdict.unknown_operators.update(inferred.foreign)
    verdict.mismatches.extend(f"problem at {problem.node.name} ({problem.node.op}): {problem.text}" for problem in inferred.problems)
    outputs = program.graph.outputs
    verdict.tensors = len(exported.outputs)
    if len(outputs) != len(exported.outputs):
        verdict.mismatches.append(f"{len(outputs)} results, a run returns {len(exported.outputs)}")
    for value, (dtype, shape) in zip(outputs, exported.outputs, strict=False):
        mine = inferred.type_of(value)
        if not isinstance(mine, TensorType) or mine.dtype is not NAMED_DTYPES[dtype] or mine.shape is None or not _fits(mine.shape, shape):
            verdict.mismatches.append(f"result {value.name}: a run returns {tensor(NAMED_DTYPES[dtype], shape)}, inferred {mine}")
        elif _has_unknown(mine):
            verdict.data_sized += 1


def _fits(inferred: tuple[Dim, ...], run: tuple[int, ...]) -> bool:
    """Sizes that depend on data may be anything that their bounds allow."""
    return len(inferred) == len(run) and all(
        equal(a, b) is True or (isinstance(a, SymDim) and a.is_unknown and equal(a, b) is None) for a, b in zip(inferred, run, strict=True)
    )
