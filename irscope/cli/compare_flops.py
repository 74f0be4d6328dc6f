"""`irscope compare-flops`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from irscope.cli.args import add_model_arguments, add_output_arguments, models_from, write_answer
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode, IrscopeError, UsageError
from irscope.ir.bind import bind_option, typed
from irscope.ir.dims import SymDim
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.tables import cell
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Table
from irscope.report.units import Kind
from irscope.session import Model
from irscope.tools.peers import PEERS, CannotCount, Peer, Reconciled, find_peers, labels_of, reconcile

_NOTES = (
    "all numbers are FLOPs, a multiply-add as 2; what a counter prints in multiply-adds is doubled for matrix products and convolutions",
    "nothing in a file is executed: counters of PyTorch are given the ATen calls that the model is made of, one by one, without its data",
    "difference in percent: of what the counter counted",
)


@dataclass
class _Asked:
    """What counters said of one model."""

    model: Model
    costs: Costs
    rows: list[tuple[object, ...]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_complete: bool = True
    """Whether every counter counted it, and nothing is left unexplained."""


class Command:
    """Compare irscope's FLOPs with those of other counters, and explain the difference operator by operator.

    Counters: torch (torch.utils.flop_counter), fvcore, calflops and deepspeed count .pt2 and .pt files and models by name, onnx-tool counts
    .onnx files. Without --against, all that are installed and can read the model are asked. None of them is needed to use irscope.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, many=True)
        parser.add_argument("--against", default="", metavar="NAME,...", help=f"any of {', '.join(PEERS)}; default: those installed")
        add_output_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        peers = find_peers(args.against)
        asked = [_ask(model, peers, args) for model in models_from(args, keep_calls=True)]
        reports = [_report(one) for one in asked]
        if len(asked) == 1:
            ((one,), (whole,)) = asked, reports
            totals = Table.of(one.rows, columns=_TOTALS, title="counters")
            document = Document(model=one.model.info(), reports=(replace(whole, tables=(totals, *whole.tables)),))
        else:
            rows = [(one.model.program.path, *row) for one in asked for row in one.rows]
            totals = Table.of(rows, columns=("model:text", *_TOTALS), title="counters")
            first = Report("compare-flops", summary={"models": len(asked)}, units={"models": Kind.COUNT}, tables=(totals,), notes=_NOTES)
            own = [
                replace(report, options=one.model.program.path, notes=tuple(one.problems))
                for one, report in zip(asked, reports, strict=True)
            ]
            document = Document(reports=(first, *own))
        write_answer(document, args)
        for one in asked:
            report_diagnostics(one.model.diagnostics, args.verbose)
        if args.strict and not all(one.is_complete for one in asked):
            sys.stderr.write("irscope: error IRS405: --strict: a counter could not count the model\n")
            return ExitCode.PARTIAL
        return strict_code(args, [one.model for one in asked], reports)


def _ask(model: Model, peers: Sequence[Peer], args: argparse.Namespace) -> _Asked:
    """What each counter says of a model."""
    if not args.against:
        peers = [peer for peer in peers if model.program.format in peer.formats]
    if not peers:
        hint = f"there are {', '.join(PEERS)}"
        raise UsageError(f"none of the counters that are installed reads {model.program.format} files", code="IRS404", hint=hint)
    costs = model.manager.get(NodeCosts())
    ours = costs.total.flops
    if isinstance(ours, SymDim):
        raise UsageError(f"the sizes of the model are open: {ours} FLOPs", hint=f"{typed(bind_option(ours.symbols()))} gives them")
    asked, labels = _Asked(model, costs), labels_of(model.graph)
    for peer in peers:
        version = peer.version or ""
        try:
            counted = peer.count(model)
        except IrscopeError as error:
            if args.against and not isinstance(error, CannotCount):
                raise
            asked.problems.append(f"{peer.name}: {error}")
            asked.rows.append((peer.name, version, None, "", None, ours, None, None, None, ""))
            asked.is_complete = False
            continue
        found = reconcile(costs, counted, peer.name, labels)
        difference = found.total - found.theirs
        share = difference / found.theirs if found.theirs else None
        failed = f"{len(counted.failed)} calls failed or were not made" if counted.failed else ""
        numbers = (_whole(found.theirs), found.total, _whole(difference), share, _whole(found.rest))
        asked.rows.append((peer.name, version, _whole(counted.printed), counted.unit, *numbers, failed))
        asked.tables.append(_explained(peer, found))
        asked.problems += [f"{peer.name} at {node}: {why}" for node, why in list(counted.failed.items())[:3]]
        asked.is_complete = asked.is_complete and found.rest == 0
    return asked


def _report(asked: _Asked) -> Report:
    costs = asked.costs
    report = Report(
        "compare-flops",
        summary={f"{key}_flops": cell(costs.tally.value(measure), costs.tally.limits(measure)) for key, measure in _SUMMED.items()},
        tables=tuple(asked.tables),
        coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
        notes=(*_NOTES, *asked.problems),
    )
    return asked.model.marked(report)


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


def _explained(peer: Peer, found: Reconciled) -> Table:
    rows = [(row.operator, row.nodes, row.ours, _whole(row.theirs), _whole(row.difference), row.reason) for row in found.rows]
    rows.append(("(rest)", 0, 0, 0, _whole(found.rest), "what no line above explains"))
    columns = ["operator:text", "nodes:count", "irscope:count", "counter:count", "difference:count", "reason:text"]
    return Table.of(rows, columns=columns, title=f"{peer.name}, operator by operator")


def _whole(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number
