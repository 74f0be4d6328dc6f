"""When a run of the model made each storage and when it let go of it: known for models that were watched, not for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Value


@dataclass(frozen=True, slots=True)
class Life:
    """One storage that the run made; positions count the nodes of the main graph."""

    born: int
    died: int | None
    """The last node at whose end it was still there; None where it outlived the run."""
    rank: int
    """The place among all storages that were let go of: several may go after one node."""
    size: Dim
    """Bytes of the whole storage, which may be more than those of the value that had it first."""


@dataclass(frozen=True)
class Observed:
    """Lifetimes and sizes that hold until the graph's nodes, their attributes or its declarations change."""

    graph: Graph
    versions: tuple[int, ...]
    """The graph's versions when it was recorded, those that it depends on."""
    lives: Mapping[Value, Life]
    """By the value that had the storage first."""
    storages: Mapping[Value, Value]
    """For each result the value that had its storage first: a result, or something that the graph declares."""

    def holds(self, graph: Graph) -> bool:
        """Whether it still says how this graph runs."""
        return graph is self.graph and observed_versions(graph) == self.versions


def observed_versions(graph: Graph) -> tuple[int, ...]:
    """Versions of what decides which storages a run makes. Types of results are not among them: inference writes those."""
    return tuple(graph.versions[facet] for facet in (Facet.TOPOLOGY, Facet.ATTRS, Facet.DECLARED))
