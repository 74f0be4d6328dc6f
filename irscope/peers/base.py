"""What a counter gives: FLOPs by node, in its own convention and in irscope's."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata

from irscope.errors import IrscopeError, UsageError
from irscope.ir.graph import Graph, Node
from irscope.session import Model


def labels_of(graph: Graph) -> dict[Node, str]:
    """What nodes of a model's main graph are called here: by their first result, or by operator and place where results have no names."""
    return {
        node: next((output.name for output in node.outputs if output.name is not None), f"{node.op} at {place}")
        for place, node in enumerate(graph)
    }


class CannotCount(IrscopeError):
    """A counter that cannot count this model; the others still can."""

    default_code = "IRS405"


@dataclass(frozen=True)
class Counted:
    """What a counter said of one model."""

    printed: float
    """The total as the counter prints it."""
    unit: str
    """What its number is: "FLOPs" with a multiply-add as 2, or "multiply-adds"."""
    by_node: Mapping[str, float]
    """The counter's number by the name of a result of irscope's node."""
    outside: Mapping[str, float] = field(default_factory=dict)
    """What it counted where irscope has no node, by what it is."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Nodes it could not count, with the reason."""


@dataclass(frozen=True)
class Peer:
    """One counter."""

    name: str
    package: str
    """The distribution that must be installed."""
    formats: tuple[str, ...]
    """Formats of models it can count."""
    entry: str
    """Where its function is; it imports the package only when it is called."""

    @property
    def version(self) -> str | None:
        """The installed version, None where it is absent."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None

    def count(self, model: Model) -> Counted:
        """Count a model; raises CannotCount or UsageError with what is missing."""
        if self.version is None:
            hint = f"pip install {self.package}, or leave it out of --against"
            raise UsageError(f"{self.package} is not installed", code="IRS404", hint=hint)
        if model.program.format not in self.formats:
            wanted = " and ".join(_KINDS.get(one, f"{one} files") for one in self.formats)
            raise CannotCount(f"{self.name} counts {wanted}, not {model.program.format}", hint=_EXPORT[self.formats[0]])
        module, _, name = self.entry.partition(":")
        function: Callable[[Model], Counted] = getattr(importlib.import_module(module), name)
        try:
            return function(model)
        except IrscopeError:
            raise
        except Exception as error:  # whatever goes wrong inside a foreign package is its answer
            raise CannotCount(f"{self.name} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from error


_KINDS = {"module": "models by name"}
_EXPORT = {
    "pt2": "save the model with torch.export to compare it with counters of PyTorch",
    "onnx": "export the model to ONNX to compare it with counters of ONNX",
}
_OF_TORCH = ("pt2", "torchscript", "module")
PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("torch", "torch", _OF_TORCH, "irscope.peers.torch_counter:count"),
        Peer("fvcore", "fvcore", _OF_TORCH, "irscope.peers.fvcore:count"),
        Peer("calflops", "calflops", _OF_TORCH, "irscope.peers.patching:count_calflops"),
        Peer("deepspeed", "deepspeed", _OF_TORCH, "irscope.peers.patching:count_deepspeed"),
        Peer("onnx-tool", "onnx-tool", ("onnx",), "irscope.peers.onnx_tool:count"),
    )
}


def find_peers(text: str) -> list[Peer]:
    """Counters by their names with commas between; empty: all that are installed."""
    if not text:
        return [peer for peer in PEERS.values() if peer.version is not None]
    found: list[Peer] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        peer = PEERS.get(name.replace("_", "-"))
        if peer is None:
            raise UsageError(f"there is no counter {name!r} to compare with", code="IRS403", hint=f"there are {', '.join(PEERS)}")
        if peer not in found:
            found.append(peer)
    return found
