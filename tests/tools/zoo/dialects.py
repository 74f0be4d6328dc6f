"""The same model as `.pt2`, traced TorchScript and ONNX: what each says of parameters, FLOPs and results, and why weights differ.

PyTorch's ONNX exporter rewrites weights: it folds batch normalizations, transposes matrices of linear layers ahead, keeps tied
weights once, and computes what depends on no input. `differences` names each of these.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.ir.dims import Dim
from irscope.ir.graph import Node, Role, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type
from irscope.passes.cost.flops import Flops
from irscope.passes.inference.shapes import Shapes
from irscope.passes.weights.params import count_parameters
from irscope.passkit.manager import Manager
from tests.tools.zoo.export import Exported

MODELS = (
    *(
        "resnet18",
        "mobilenet_v3_small",
        "efficientnet_b0",
        "squeezenet1_1",
        "shufflenet_v2_x0_5",
        "densenet121",
        "regnet_y_400mf",
        "swin_t",
    ),
    *("bert", "gpt2", "llama", "t5", "vit", "whisper", "clip"),
)


@dataclass(frozen=True)
class Reading:
    """What irscope says of one file."""

    program: Program
    parameters: Dim
    products: Dim
    """FLOPs of matrix products and convolutions."""
    results: tuple[Type, ...]
    uncounted: tuple[str, ...]
    """Operators whose cost is unknown."""


def read(exported: Exported) -> Reading:
    """Read and analyse one file."""
    program = load_program(exported.path, LoadOptions(), DiagnosticSink())
    manager = Manager(program)
    shapes, costs = manager.get(Shapes()), manager.get(Flops())
    results = tuple(shapes.type_of(value) for value in program.graph.outputs)
    return Reading(program, count_parameters(program).count, costs.total.matmul, results, tuple(costs.unknown))


@dataclass
class Differences:
    """Weights by name that one of two files has and the other has not, each with its reason."""

    folded: list[str] = field(default_factory=list)
    """Of batch normalizations that are part of a convolution now."""
    added: list[str] = field(default_factory=list)
    """Biases that take them in."""
    transposed: list[str] = field(default_factory=list)
    tied: list[str] = field(default_factory=list)
    """Kept once under another name."""
    unread: list[str] = field(default_factory=list)
    consumed: list[str] = field(default_factory=list)
    """Replaced by what was computed from them ahead."""
    computed: list[str] = field(default_factory=list)
    """What was computed ahead: values that depend on no input, and helpers of the exporter's own."""
    unexplained: list[str] = field(default_factory=list)


def differences(exported: Program, onnx: Program) -> Differences:
    """Why an ONNX file has other weights than the `.pt2` file of the same model."""
    return _Comparison(exported, onnx).found


class _Comparison:
    def __init__(self, exported: Program, onnx: Program) -> None:
        self.found = Differences()
        self._ours = {str(weight.name): weight for weight in exported.graph.weights if weight.role is not Role.CONSTANT}
        self._theirs = {str(weight.name): weight for weight in onnx.graph.weights if weight.role is not Role.CONSTANT}
        self._constant = _constants(exported)
        self._same_storage = _same_storage(exported)
        self._spare = Counter(
            _shape(weight.type)[::-1] for name, weight in self._theirs.items() if name.startswith("val_") and name not in self._ours
        )
        """Shapes, turned back, of what may be a transposed weight."""
        for name, weight in self._ours.items():
            if name not in self._theirs:
                self._missing(name, weight)
            elif weight.type != self._theirs[name].type:
                self.found.unexplained.append(f"{name}: {weight.type} and {self._theirs[name].type}")
        ahead = {_shape(value.type) for value in self._constant if value.node is not None}
        for name, weight in self._theirs.items():
            if name not in self._ours:
                self._extra(name, weight, ahead)

    def _missing(self, name: str, weight: Value) -> None:
        """Why a weight of the `.pt2` file is not in the ONNX file."""
        found = self.found
        users = [user for user in weight.users or () if isinstance(user, Node)]
        if any(other in self._theirs for other in self._same_storage.get(name, ())):
            found.tied.append(name)
        elif not users:
            found.unread.append(name)
        elif all(user.op == "nn.batch_norm" for user in users):
            found.folded.append(name)
        elif all(output in self._constant for user in users for output in user.outputs):
            found.consumed.append(name)
        elif self._spare[_shape(weight.type)] > 0:
            self._spare[_shape(weight.type)] -= 1
            found.transposed.append(name)
        else:
            found.unexplained.append(f"{name}: {weight.type} is in the .pt2 file only")

    def _extra(self, name: str, weight: Value, ahead: set[tuple[Dim, ...]]) -> None:
        """Why a weight of the ONNX file is not in the `.pt2` file."""
        if name.endswith(".weight_bias") and name.removesuffix("_bias") in self._theirs:
            self.found.added.append(name)
        elif name.startswith("val_") or _shape(weight.type) in ahead:
            self.found.computed.append(name)
        else:
            self.found.unexplained.append(f"{name}: {weight.type} is in the ONNX file only")


def _shape(type_: Type) -> tuple[Dim, ...]:
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _same_storage(program: Program) -> dict[str, set[str]]:
    """Names of tied weights by each other's names."""
    tied = count_parameters(program).tied_to
    groups: dict[Value, set[str]] = {}
    for weight, first in tied.items():
        groups.setdefault(first, {str(first.name)}).add(str(weight.name))
    return {name: group for group in groups.values() for name in group}


def _constants(program: Program) -> set[Value]:
    """Values that depend on no input of the model."""
    values: set[Value] = set(program.graph.weights)
    for node in program.graph:
        if all(value is None or value in values for value in node.inputs) and not node.regions:
            values.update(node.outputs)
    return values
