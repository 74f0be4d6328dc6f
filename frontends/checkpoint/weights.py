"""The table of weights that a file without a graph becomes."""

from __future__ import annotations

from pathlib import Path

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.ir.graph import Graph, Names, Role
from irscope.ir.places import Payload
from irscope.ir.program import Program
from irscope.ir.types import TensorType

_MOST_WEIGHTS = 1_000_000
_BUFFERS = (".running_mean", ".running_var", ".num_batches_tracked")


class WeightTable:
    """Collects weights under unique names."""

    def __init__(self, path: Path, sink: DiagnosticSink) -> None:
        self.path = path
        self.sink = sink
        self.metadata: dict[str, str] = {}
        self._graph = Graph()
        self._names = Names()

    def add(self, name: str, type_: TensorType, data: Payload | None, trainable: bool | None = None) -> None:
        """Add a weight. What batch normalization counts is no parameter, and neither is what holds whole numbers."""
        if len(self._graph.weights) >= _MOST_WEIGHTS:
            raise self.error("the file names more than 1,000,000 tensors")
        is_buffer = name.endswith(_BUFFERS) or not (type_.dtype.is_float or type_.dtype.kind.value in ("complex", "unknown"))
        value = self._graph.add_weight(type_, self._names.unique(name), Role.BUFFER if is_buffer else Role.PARAMETER, data)
        if trainable is not None:
            self._graph.trainable[value] = trainable

    def set_aside(self, prefixes: tuple[str, ...]) -> None:
        """What an optimizer keeps is no parameter."""
        kept = [weight for weight in self._graph.weights if str(weight.name).startswith(prefixes)]
        for weight in kept:
            weight.role = Role.BUFFER
        if kept:
            self.sink.warn("IRS166", f"{len(kept):,} tensors are an optimizer's state; they count as buffers", about="optimizer")

    def error(self, what: str, hint: str = "the file is damaged; save or copy it again") -> LoadError:
        return LoadError(what, code="IRS160", where=str(self.path), hint=hint)

    def program(self) -> Program:
        """The weights as a program."""
        if not self._graph.weights:
            raise LoadError(
                "the file holds neither a graph nor tensors",
                code="IRS161",
                where=str(self.path),
                hint="save the model's state_dict, or export it with torch.export",
            )
        if not any(diagnostic.code == "IRS162" for diagnostic in self.sink):
            self.sink.warn(
                "IRS165",
                "the file holds weights but no graph: shapes, cost and the memory of a run cannot be told from it",
                hint="torch.export.save(torch.export.export(model, args), 'model.pt2') writes a graph",
                about="no graph",
            )
        return Program(self._graph, {}, {}, "checkpoint", str(self.path), metadata=self.metadata, has_graph=False)
