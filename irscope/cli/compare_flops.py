"""`irscope compare-flops`."""

from __future__ import annotations

import argparse
import sys

from irscope import __version__
from irscope.cli.args import add_model_arguments, add_output_arguments, open_from
from irscope.cli.run import report_diagnostics, strict_code
from irscope.errors import ExitCode, IrscopeError, UsageError
from irscope.passes.costs.count import NodeCosts
from irscope.passes.costs.tables import cell
from irscope.peers.base import PEERS, CannotCount, Peer, find_peers
from irscope.peers.reconcile import Reconciled, reconcile
from irscope.report.options import RenderOptions
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Table
from irscope.report.write import write_document

_NOTES = (
    "all numbers are FLOPs, a multiply-add as 2; what a counter prints in multiply-adds is doubled for matrix products and convolutions",
    "nothing in the file is executed: counters of PyTorch are given the ATen calls that a .pt2 file records, one by one, without its data",
)


class Command:
    """Compare irscope's FLOPs with those of other counters, and explain the difference operator by operator.

    Counters: torch (torch.utils.flop_counter), fvcore, calflops and deepspeed count .pt2 files, onnx-tool counts .onnx files.
    Without --against, all that are installed and can read the file are asked. None of them is needed to use irscope.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser)
        parser.add_argument("--against", default="", metavar="NAME,...", help=f"any of {', '.join(PEERS)}; default: those installed")
        add_output_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        peers = find_peers(args.against)
        model = open_from(args)
        if not args.against:
            peers = [peer for peer in peers if model.program.format in peer.formats]
        if not peers:
            hint = f"there are {', '.join(PEERS)}"
            raise UsageError(f"none of the counters that are installed reads {model.program.format} files", code="IRS404", hint=hint)
        costs = model.manager.get(NodeCosts())
        if not isinstance(costs.total.flops, int):
            raise UsageError(f"the sizes of the model are open: {costs.total.flops} FLOPs", hint="give them with --bind to compare")
        rows: list[tuple[object, ...]] = []
        tables: list[Table] = []
        problems: list[str] = []
        for peer in peers:
            try:
                counted = peer.count(model)
            except IrscopeError as error:
                if args.against and not isinstance(error, CannotCount):
                    raise
                problems.append(f"{peer.name}: {error}")
                rows.append((peer.name, peer.version or "", None, "", None, costs.total.flops, None, None, ""))
                continue
            found = reconcile(costs, counted, peer.name)
            failed = f"{len(counted.failed)} calls failed or were not made" if counted.failed else ""
            rows.append(
                (
                    peer.name,
                    peer.version or "",
                    _whole(counted.printed),
                    counted.unit,
                    _whole(found.theirs),
                    found.total,
                    _whole(found.total - found.theirs),
                    _whole(found.rest),
                    failed,
                )
            )
            tables.append(_explained(peer, found))
            problems += [f"{peer.name} at {node}: {why}" for node, why in list(counted.failed.items())[:3]]
        report = Report(
            "compare-flops",
            summary={f"{key}_flops": cell(costs.tally.value(measure), costs.tally.limits(measure)) for key, measure in _SUMMED.items()},
            tables=(Table.of(rows, columns=_TOTALS, title="counters"), *tables),
            coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
            notes=(*_NOTES, *problems),
        )
        options = RenderOptions.for_stream(sys.stdout, rows=args.rows) if args.output is None else RenderOptions(rows=args.rows)
        write_document(Document(__version__, model.info(), (model.marked(report),)), args.format, args.output, options)
        report_diagnostics(model.diagnostics, args.verbose)
        if args.strict and any(row[7] != 0 for row in rows):
            sys.stderr.write("irscope: error IRS405: --strict: a counter could not count the model\n")
            return ExitCode.PARTIAL
        return strict_code(args, [model], [report])


_SUMMED = {"total": "flops", "matmul": "matmul"}
_TOTALS = (
    "counter:text",
    "version:text",
    "printed:count",
    "unit:text",
    "counted:flops",
    "irscope:flops",
    "difference:count",
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
