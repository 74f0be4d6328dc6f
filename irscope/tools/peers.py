"""Other FLOP counters: what each gives, in its own convention and in irscope's, and what explains the differences."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path

from irscope.errors import IrscopeError, UsageError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import SymDim
from irscope.ir.graph import Graph, Node
from irscope.ops.cost import Cost
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.tables import cell
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import plain
from irscope.session import Model


def labels_of(graph: Graph) -> dict[Node, str]:
    """Return irscope's names of the nodes of a model's main graph: the first result, or operator and place where results have no names."""
    return {
        node: next((output.name for output in node.outputs if output.name is not None), f"{node.op} at {place}")
        for place, node in enumerate(graph)
    }


class CannotCount(IrscopeError):
    """A counter that cannot count this model; the others still can."""

    default_code = "IRS405"


@immutable(slots=False)
class Counted:
    """A counter's answer on a model."""

    printed: float
    """The total as the counter prints it."""
    unit: str
    """Unit of its number: "FLOPs" with a multiply-add as 2, or "multiply-adds"."""
    by_node: Mapping[str, float]
    """The counter's number by the name of a result of irscope's node."""
    outside: Mapping[str, float] = field(default_factory=dict)
    """Its numbers for operations without a node of irscope, by what they are."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Nodes it could not count, with the reason."""


@immutable(slots=False)
class Peer:
    """One counter."""

    name: str
    package: str
    """The distribution that must be installed."""
    formats: tuple[str, ...]
    """Formats of models it can count."""
    entry: str
    """Path of its function, which imports the package only when it is called."""

    @property
    def version(self) -> str | None:
        """Return the installed version, None where it is absent."""
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
        Peer("onnx-tool", "onnx-tool", ("onnx",), "irscope.tools.peers:count_onnx_tool"),
    )
}


def find_peers(text: str) -> list[Peer]:
    """Counters by their names with commas between; empty: all that are installed."""
    if not text:
        return [peer for peer in PEERS.values() if peer.version is not None]
    peers: list[Peer] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        peer = PEERS.get(name.replace("_", "-"))
        if peer is None:
            raise UsageError(f"there is no counter {name!r} to compare with", code="IRS403", hint=f"there are {', '.join(PEERS)}")
        if peer not in peers:
            peers.append(peer)
    return peers


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


@immutable(slots=False)
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
        """Return what no row explains; it is 0."""
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
        for reason, ours, part in _explained_parts(product, whole - product, theirs):
            add(reason, node.op, ours, part)
    for name, number in (*left.items(), *counted.outside.items()):
        theirs_total += number
        add(_OUTSIDE, name, 0, number)
    ordered = sorted(rows.values(), key=lambda row: (row.difference != 0, -abs(row.difference), -row.ours, row.operator))
    return Reconciled(total, theirs_total, tuple(ordered))


def _explained_parts(product: int, other: int, theirs: float) -> Iterator[tuple[str, int, float]]:
    """Yield a node's FLOPs in products and besides, against the counter's: parts that agree, and parts with the reason they do not."""
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


# onnx-tool, which counts ONNX files without running them.


def count_onnx_tool(model: Model) -> Counted:
    """Its numbers for each node, which it calls multiply-adds."""
    import numpy as np
    import onnx  # only this counter needs it

    onnx_tool = importlib.import_module("onnx_tool")
    inputs = {}
    for value in model.graph.inputs:
        type_ = value.type
        if type_.shape is None or not type_.is_static or value.name is None:
            raise CannotCount(f"the sizes of input {value.name!r} are open; give them with --bind or --input to compare")
        tensor_dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, _NAMES.get(type_.dtype.text, "FLOAT")))
        inputs[value.name] = np.zeros([int(size) for size in type_.shape if isinstance(size, int)], tensor_dtype)
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


# What counters say of a model, as a report.

_NOTES = (
    "all numbers are FLOPs, a multiply-add as 2; what a counter prints in multiply-adds is doubled for matrix products and convolutions",
    "nothing in a file is executed: counters of PyTorch are given the ATen calls that the model is made of, one by one, without its data",
    "difference in percent: of what the counter counted",
)


@dataclass
class CountedModel:
    """Answers of the counters on a model."""

    model: Model
    costs: Costs
    rows: list[tuple[object, ...]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Summary of each counter in a line."""
    is_complete: bool = True
    """True where every counter counted it, and nothing is left unexplained."""

    @property
    def report(self) -> Report:
        """Return the same as a report."""
        costs = self.costs
        report = Report(
            "compare-flops",
            headline=tuple(self.said),
            summary={f"{key}_flops": cell(costs.tally.value(measure), costs.tally.limits(measure)) for key, measure in _SUMMED.items()},
            tables=tuple(self.tables),
            coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
            notes=(*_NOTES, *self.problems),
        )
        return self.model.marked(report)


def counters_document(counted: Sequence[CountedModel]) -> Document:
    """Return what counters said, in one table, and what explains their differences, operator by operator."""
    reports = [model.report for model in counted]
    if len(counted) == 1:
        ((one,), (whole,)) = counted, reports
        totals = Table.of(one.rows, columns=_TOTALS, title="counters")
        pictures = partial(_counted_bars, [one])
        return Document(model=one.model.info(), reports=(replace(whole, tables=(totals, *whole.tables), pictures=pictures),))
    rows = [(model.model.program.path, *row) for model in counted for row in model.rows]
    totals = Table.of(rows, columns=("model:text", *_TOTALS), title="counters")
    summary, units = {"models": len(counted)}, {"models": Kind.COUNT}
    first = Report("compare-flops", summary=summary, units=units, tables=(totals,), notes=_NOTES, pictures=partial(_counted_bars, counted))
    own = [replace(report, options=one.model.program.path, notes=tuple(one.problems)) for one, report in zip(counted, reports, strict=True)]
    return Document(reports=(first, *own))


def _counted_bars(counted: Sequence[CountedModel]) -> list[Panel]:
    """Return what each counter counts beside what irscope does."""
    names = [f"{Path(one.model.program.path).name}: {row[0]}" if len(counted) > 1 else str(row[0]) for one in counted for row in one.rows]
    rows = [row for model in counted for row in model.rows]
    columns = [
        (Column(key, Kind.FLOPS), [plain(row[place]) for row in rows]) for key, place in (("counter", _COUNTED), ("irscope", _COUNTED + 1))
    ]
    panel = largest_bars("FLOPs by counter", names, columns)
    return [panel] if panel is not None else []


def count_with(model: Model, names: str = "") -> CountedModel:
    """Return what each counter says of a model: those of these names, or those that are installed and can read it."""
    peers = find_peers(names)
    if not names:
        peers = [peer for peer in peers if model.program.format in peer.formats]
    if not peers:
        hint = f"there are {', '.join(PEERS)}"
        raise UsageError(f"none of the counters that are installed reads {model.program.format} files", code="IRS404", hint=hint)
    costs = model.manager.get(NodeCosts())
    ours = costs.total.flops
    if isinstance(ours, SymDim):
        raise UsageError(f"the sizes of the model are open: {ours} FLOPs", hint=f"{typed(bind_option(ours.symbols()))} gives them")
    asked, labels = CountedModel(model, costs), labels_of(model.graph)
    for peer in peers:
        version = peer.version or ""
        try:
            counted = peer.count(model)
        except IrscopeError as error:
            if names and not isinstance(error, CannotCount):
                raise
            asked.problems.append(f"{peer.name}: {error}")
            asked.rows.append((peer.name, version, None, "", None, ours, None, None, None, ""))
            asked.is_complete = False
            continue
        found = reconcile(costs, counted, peer.name, labels)
        difference = found.total - found.theirs
        share = difference / found.theirs if found.theirs else None
        failed = f"{len(counted.failed)} calls failed or were not made" if counted.failed else ""
        numbers = (_as_whole_number(found.theirs), found.total, _as_whole_number(difference), share, _as_whole_number(found.rest))
        asked.rows.append((peer.name, version, _as_whole_number(counted.printed), counted.unit, *numbers, failed))
        asked.tables.append(_explained(peer, found))
        asked.problems += [f"{peer.name} at {node}: {why}" for node, why in list(counted.failed.items())[:3]]
        asked.said.append(_said(peer, found, share))
        asked.is_complete = asked.is_complete and found.rest == 0
    return asked


def _said(peer: Peer, found: Reconciled, share: float | None) -> str:
    difference = (
        "the same" if found.total == found.theirs else "more" if share is None else f"{abs(share):.1%} {'more' if share > 0 else 'less'}"
    )
    if found.total == found.theirs and not found.rest:
        return f"irscope counts {difference} as {peer.name}"
    explained = f"{abs(found.rest):,.0f} of it unexplained" if found.rest else "all of it explained"
    return f"irscope counts {difference}{' as' if difference == 'the same' else ' than'} {peer.name}, {explained}"


_SUMMED = {"total": "flops", "matmul": "matmul"}
_TOTALS = (
    "counter:text",
    "version:text",
    "printed:count",
    "unit:text",
    "counted:flops",
    "irscope:flops",
    "difference:count",
    "difference_share:ratio",
    "unexplained:count",
    "remark:text",
)


_COUNTED = _TOTALS.index("counted:flops")


def _explained(peer: Peer, reconciled: Reconciled) -> Table:
    rows = [
        (row.operator, row.nodes, row.ours, _as_whole_number(row.theirs), _as_whole_number(row.difference), row.reason)
        for row in reconciled.rows
    ]
    rows.append(("(rest)", 0, 0, 0, _as_whole_number(reconciled.rest), "what no line above explains"))
    columns = ["operator:text", "nodes:count", "irscope:count", "counter:count", "difference:count", "reason:text"]
    return Table.of(rows, columns=columns, title=f"{peer.name}, operator by operator")


def _as_whole_number(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number
