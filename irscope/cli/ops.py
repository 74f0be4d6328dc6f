"""`irscope ops`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from irscope.cli.args import add_input_arguments, add_output_arguments, load_options, write_answer
from irscope.errors import UsageError
from irscope.files import write_stream
from irscope.frontends.base import LoadOptions
from irscope.ops.registry import default_registry
from irscope.ops.spec import Absent, OpSpec
from irscope.passkit.registry import closest
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Table
from irscope.session import open_model


class Command:
    """List the operators irscope knows, or those of a model that it does not know."""

    examples = (
        ("irscope ops", "which operators are known?"),
        ("irscope ops nn.conv", "what is known of one: shapes, cost, aliases?"),
        ("irscope ops --coverage model.onnx", "what would irscope leave unknown in this model?"),
    )
    common = ("--coverage", "--family", "--input", "--bind", "--rows", "--sort", "--top", "--filter", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="an operator to explain, such as nn.conv")
        parser.add_argument("--coverage", metavar="MODEL", help="operators of this model, unknown ones first")
        add_input_arguments(parser)
        parser.set_defaults(use_torch=False)
        parser.add_argument("--family", default="", help="only this family")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        if args.coverage:
            write_answer(_coverage_document(Path(args.coverage), load_options(args)), args)
            return 0
        registry = default_registry()
        if args.name:
            spec = registry.get(args.name)
            if spec is None:
                near = closest(args.name, [one.name for one in registry])
                raise UsageError(f"there is no operator {args.name!r}", code="IRS603", hint=f"did you mean {near!r}?" if near else "")
            write_stream(sys.stdout, [_explain(spec)])
            return 0
        specs = [spec for spec in registry if not args.family or spec.family.value == args.family]
        if not specs:
            known = ", ".join(sorted({spec.family.value for spec in registry}))
            raise UsageError(f"there is no family {args.family!r}", code="IRS603", hint=f"families: {known}")
        width = max(len(spec.name) for spec in specs)
        write_stream(sys.stdout, (f"{spec.name:{width}}  {spec.summary}\n" for spec in specs))
        return 0


def _explain(spec: OpSpec) -> str:
    types, cost = _knowledge(spec)
    facts = [spec.summary, f"  {spec.schema.text}", f"  family: {spec.family.value}", f"  types: {types}; cost: {cost}"]
    for rule in spec.aliases:
        how = "may share" if rule.may else "shares"
        facts.append(f"  result {rule.result} {how} the storage of {spec.schema.operands[rule.operand].name}")
    return "\n".join(facts) + "\n"


def _knowledge(spec: OpSpec | None) -> tuple[str, str]:
    """Return what irscope can say about an operator's types and cost, in a word each."""
    if spec is None:
        return "no record", "no record"
    return ("unknown" if spec.infer is Absent.UNKNOWN else "inferred", "unknown" if spec.cost is Absent.UNKNOWN else "counted")


def _coverage_document(path: Path, options: LoadOptions) -> Document:
    model = open_model(path, options)
    registry = default_registry()
    counts: Counter[tuple[str, str]] = Counter()
    for body in model.program.bodies():
        for node in body:
            counts[node.op, node.source] += 1
    rows = []
    for (name, source), count in counts.items():
        spec = registry.get(name)
        rows.append((name, source or name, count, *_knowledge(spec)))
    rows.sort(key=lambda row: (row[3] != "no record", row[4] == "counted", -row[2], row[0]))
    known = sum(row[2] for row in rows if row[3] != "no record")
    unknown = tuple(sorted({row[0] for row in rows if row[3] == "no record"}))
    table = Table.of(rows, columns=["operator:text", "from:text", "nodes:count", "types:text", "cost:text"], title="operators")
    report = Report("ops", tables=(table,), coverage=Coverage(known, sum(counts.values()), unknown))
    return Document(model=model.info(), reports=(report,))
