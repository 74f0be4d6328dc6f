"""The table of weights that a file without a graph becomes."""

from __future__ import annotations

from pathlib import Path

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.torch_common.names import Names
from irscope.ir.graph import Graph, Role
from irscope.ir.payload import Payload
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

    def add(self, name: str, type_: TensorType, data: Payload | None) -> None:
        """Add a weight. What batch normalization counts is no parameter, and neither is what holds whole numbers."""
        if len(self._graph.weights) >= _MOST_WEIGHTS:
            raise self.error("the file names more than 1,000,000 tensors")
        is_buffer = name.endswith(_BUFFERS) or not (type_.dtype.is_float or type_.dtype.kind.value in ("complex", "unknown"))
        self._graph.add_weight(type_, self._names.unique(name), Role.BUFFER if is_buffer else Role.PARAMETER, data)

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
        return Program(self._graph, {}, {}, "checkpoint", str(self.path), metadata=self.metadata)
