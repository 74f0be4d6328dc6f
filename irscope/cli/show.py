"""`irscope show`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from irscope.amounts import COUNT
from irscope.cli.args import add_model_arguments, add_output_file, amount_of, open_from
from irscope.cli.run import report_diagnostics, strict_code
from irscope.files import write_stream, write_text
from irscope.ir.graph import Node
from irscope.ir.places import is_within
from irscope.ir.printer import print_node, print_program, value_names
from irscope.passes.graph.transforms import Verify


class Command:
    """Print a model in the text form, with inferred types.

    The text is what `irscope run` reads as a .irs file, with the same answers; weights are never in it. What contradicts the rules of
    operators is said on stderr.
    """

    examples = (
        ("irscope show model.onnx", "what does the model compute, with the types of all values?"),
        ("irscope show --op nn.conv --locations model.pt2", "which convolutions are there, from which lines of code?"),
        ("irscope show -o model.irs model.onnx", "the same as a file that irscope reads, to cut a small case from?"),
    )
    common = ("--scope", "--op", "--limit", "--locations", "--bind", "--input", "--method", "--ort-level", "--compile", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser)
        parser.add_argument("--scope", default="", help="only nodes of this module and those below it, such as layer1/0 or layer1.0")
        parser.add_argument("--op", default="", help="only nodes of this operator, such as nn.conv")
        parser.add_argument("--locations", action="store_true", help="with source lines")
        parser.add_argument("--limit", type=amount_of(COUNT), metavar="N", help="at most this many nodes")
        add_output_file(parser)

    def run(self, args: argparse.Namespace) -> int:
        model = open_from(args)
        [checked] = model.run(Verify()).reports
        report_diagnostics([*model.diagnostics, *checked.diagnostics], args.verbose)
        program = model.program
        if args.scope or args.op:
            names = value_names([program.graph, *program.functions.values()])
            nodes = [node for body in program.bodies() for node in body if _is_selected(node, args.scope, args.op)]
            text = "".join(f"{print_node(node, names, locations=args.locations)}\n" for node in nodes[: args.limit])
        else:
            # When Python lets go of tensors follows from the lines of a file, so that a text without them has another peak.
            are_needed = program.traits.lifetimes == "eager" and args.limit is None
            text = print_program(program, locations=args.locations or are_needed, limit=args.limit)
        if args.output:
            write_text(Path(args.output), [text])
        else:
            write_stream(sys.stdout, [text])
        return strict_code(args, [model], [checked])


def _is_selected(node: Node, scope: str, op: str) -> bool:
    return (not op or node.op == op) and is_within(node.scope, scope)
