"""Other FLOP counters: what each gives, in its own convention and in irscope's, and what explains the differences."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata

import onnx

from irscope.errors import IrscopeError, UsageError
from irscope.ir.graph import Graph, Node
from irscope.ops.cost import Cost
from irscope.passes.cost.count import Costs
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
        Peer("torch", "torch", _OF_TORCH, "irscope.tools.torch_peers:count_torch"),
        Peer("fvcore", "fvcore", _OF_TORCH, "irscope.tools.torch_peers:count_fvcore"),
        Peer("calflops", "calflops", _OF_TORCH, "irscope.tools.torch_peers:count_calflops"),
        Peer("deepspeed", "deepspeed", _OF_TORCH, "irscope.tools.torch_peers:count_deepspeed"),
        Peer("onnx-tool", "onnx-tool", ("onnx",), "irscope.tools.peers:count_onnx_tool"),
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


# ----------------------------------------------------------------------------------------------------
# Every difference between a counter and irscope, operator by operator, until nothing is left.

_OTHER_FLOPS = "no matrix product: irscope counts it, {peer} does not"
_MISSED = "{peer} does not count these matrix products or convolutions"
_BESIDE = "what comes with the product (bias, softmax, scale) is not counted by {peer}"
_OTHER_RULE = "{peer} counts this operator by another rule"
_OTHER_PRODUCT = "{peer} counts this product by another rule"
_FREE = "{peer} counts what irscope takes for moving data"
_FAILED = "{peer} fails on these calls, or they are not made"
_OUTSIDE = "{peer} counts it where irscope has no node"


@dataclass
class ReconciledRow:
    """One reason with one operator: irscope's FLOPs, the counter's, in one convention."""

    reason: str
    operator: str
    nodes: int = 0
    ours: int = 0
    theirs: float = 0

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


@dataclass(frozen=True)
class Reconciled:
    """The comparison with one counter."""

    total: int
    """irscope's FLOPs, all classes."""
    theirs: float
    """The counter's total as FLOPs with a multiply-add as 2."""
    rows: tuple[ReconciledRow, ...]

    @property
    def agreed(self) -> int:
        """FLOPs on which both agree."""
        return sum(row.ours for row in self.rows if row.difference == 0)

    @property
    def rest(self) -> float:
        """What no row explains; it is 0."""
        return self.total - self.theirs - sum(row.difference for row in self.rows)


def reconcile(costs: Costs, counted: Counted, peer: str, labels: Mapping[Node, str] | None = None) -> Reconciled:
    """Explain a counter's total; `labels` are names of nodes besides those of their results.

    Costs must be integers: bind the symbols first.
    """
    factor = 2 if counted.unit == "multiply-adds" else 1
    left = dict(counted.by_node)
    rows: dict[tuple[str, str], ReconciledRow] = {}
    theirs_total = 0.0

    def add(reason: str, operator: str, ours: int, theirs: float) -> None:
        row = rows.setdefault((reason, operator), ReconciledRow(reason.format(peer=peer), operator))
        row.nodes += 1
        row.ours += ours
        row.theirs += theirs

    total = 0
    for node, cost in _leaves(costs):
        names = dict.fromkeys(((labels or {}).get(node), *(output.name for output in node.outputs)))
        numbers = [left.pop(name) for name in names if name is not None and name in left]
        product, whole = cost.matmul, cost.flops
        assert isinstance(product, int)
        assert isinstance(whole, int)
        # A counter of multiply-adds counts other operators one by one, so only products are doubled.
        theirs = sum(numbers) * (factor if product else 1)
        total += whole
        theirs_total += theirs
        if whole and any(name in counted.failed for name in names):
            add(_FAILED, node.op, whole, theirs)
            continue
        for reason, ours, part in _split(product, whole - product, theirs):
            add(reason, node.op, ours, part)
    for name, number in (*left.items(), *counted.outside.items()):
        theirs_total += number
        add(_OUTSIDE, name, 0, number)
    ordered = sorted(rows.values(), key=lambda row: (row.difference != 0, -abs(row.difference), -row.ours, row.operator))
    return Reconciled(total, theirs_total, tuple(ordered))


def _split(product: int, other: int, theirs: float) -> Iterator[tuple[str, int, float]]:
    """A node's FLOPs in products and besides, against the counter's: parts that agree, and parts with the reason they do not."""
    if theirs == 0:
        if product:
            yield _MISSED, product, 0
        if other:
            yield (_BESIDE if product else _OTHER_FLOPS), other, 0
    elif product:
        if theirs == product + other:
            yield "both agree", product + other, theirs
            return
        yield ("both agree", product, theirs) if theirs == product else (_OTHER_PRODUCT, product, theirs)
        if other:
            yield _BESIDE, other, 0
    elif theirs == other:
        yield "both agree", other, theirs
    else:
        yield (_OTHER_RULE if other else _FREE), other, theirs


def _leaves(costs: Costs) -> Iterator[tuple[Node, Cost]]:
    for entry in costs.entries:
        yield entry.node, entry.total


# ----------------------------------------------------------------------------------------------------
# onnx-tool, which counts ONNX files without running them.


def count_onnx_tool(model: Model) -> Counted:
    """Its numbers for each node, which it calls multiply-adds."""
    import numpy as np

    onnx_tool = importlib.import_module("onnx_tool")
    inputs = {}
    for value in model.graph.inputs:
        type_ = value.type
        if type_.shape is None or not type_.is_static or value.name is None:
            raise CannotCount(f"the sizes of input {value.name!r} are open; give them with --bind or --input to compare")
        found = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, _NAMES.get(type_.dtype.text, "FLOAT")))
        inputs[value.name] = np.zeros([int(size) for size in type_.shape if isinstance(size, int)], found)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graph = onnx_tool.Model(model.program.path).graph
        graph.shape_infer(inputs)
        graph.profile()
    by_node: dict[str, float] = {}
    for node in graph.nodemap.values():
        macs = float(node.macs[0])
        if macs and node.output:
            by_node[node.output[0]] = by_node.get(node.output[0], 0) + macs
    return Counted(sum(by_node.values()), "multiply-adds", by_node)


_NAMES = {"f16": "FLOAT16", "f32": "FLOAT", "f64": "DOUBLE", "i64": "INT64", "i32": "INT32", "i8": "INT8", "u8": "UINT8", "bool": "BOOL"}
