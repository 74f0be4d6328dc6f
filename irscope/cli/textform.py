"""`irscope show`, `opt` and `repro`: models and graphs in the text form."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from irscope.amounts import COUNT
from irscope.budget import reading
from irscope.cli.args import add_model_arguments, add_output_file, amount_of, load_options, open_from, progress_from, settings_from
from irscope.cli.run import add_print_after, print_after, report_diagnostics, strict_code
from irscope.diagnostics import Diagnostic
from irscope.errors import ExitCode, IrscopeError, PassError, UsageError, VerifyError
from irscope.files import write_stream, write_text
from irscope.frontends.files.text import program_in, read_text
from irscope.frontends.load import check_sizes, path_of
from irscope.frontends.zoo.names import is_name
from irscope.ir.graph import Node
from irscope.ir.places import is_within
from irscope.ir.printer import print_node, print_program, value_names
from irscope.ir.spelling import TEXT_VERSION
from irscope.passes.graph.transforms import Annotate, Verify
from irscope.passkit.base import Pass, Transform
from irscope.passkit.instruments import DumpOnChange
from irscope.passkit.manager import Manager, read_reproducer
from irscope.passkit.pipeline import parse_pipeline, script_in
from irscope.passkit.registry import default_registry
from irscope.report.printable import one_line
from irscope.session import Model, kind_of, open_model


class Show:
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


_CUT: Final = re.compile(r"^[ \t]*(?:#|//)[ \t]*-{5,}[ \t]*$", re.MULTILINE)
"""Between parts of a file, as mlir-opt has it."""
_BETWEEN: Final = "# -----\n"


class Opt:
    """Run transforms over a graph in the text form, and print the result: text in, text out, as mlir-opt does.

    The text comes from a file or from stdin, and goes to stdout or -o FILE; any other model is taken as `irscope show` prints it. The rules
    of the IR and of the operators are checked before and after; it stops at the first problem. `irscope passes` lists the transforms;
    reports of analyses among the passes go to stderr.

    A test is one line, with FileCheck or filecheck reading the expectations from comments of the file itself:
    irscope opt --passes cleanup test.irs | filecheck test.irs

    --split-input-file processes the parts of a file between lines "# -----" one by one; only the first needs a header.

    Exit codes: 0 done, 2 usage, 3 the text cannot be read or breaks a rule, 4 a pass failed or left a graph that breaks one.
    """

    examples = (
        ("irscope opt --passes cleanup model.irs", "what do constant folding and dead code elimination leave of a graph?"),
        ("irscope opt --passes fold,dce --print-after-all --verify-each model.irs", "what does each pass change, and is it sound?"),
        ("irscope opt --passes dce -o model.irs model.onnx", "the same of another model, as text?"),
    )
    common = (
        "--passes",
        "--verify-each",
        "--no-verify",
        "--dump-ir",
        "--print-after-all",
        "--split-input-file",
        "--strip-locations",
        "--bind",
        "--input",
        "--output",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_model_arguments(parser, optional=True)
        parser.add_argument(
            "--passes", default="", metavar="PIPELINE", help="what to run; without it the text is read, checked and printed"
        )
        parser.add_argument("--verify-each", action="store_true", help="check the graph after every transform")
        parser.add_argument("--no-verify", action="store_true", help="check no rules of operators")
        add_print_after(parser)
        parser.add_argument("--dump-ir", metavar="FOLDER", help="write the graph there after each change")
        parser.add_argument("--split-input-file", action="store_true", help='take parts between lines "# -----" one by one')
        parser.add_argument("--strip-locations", action="store_true", help="print no source lines")
        add_output_file(parser)

    def run(self, args: argparse.Namespace) -> int:
        passes = parse_pipeline(args.passes, default_registry()) if args.passes else ()
        texts: list[str] = []
        code = ExitCode.OK
        for model in _opened(args):
            if isinstance(model, IrscopeError):
                _complain(model)
                code = code or model.exit_code
                continue
            try:
                texts.append(_rewritten(model, passes, args))
            except IrscopeError as error:
                if not args.split_input_file:
                    raise
                _complain(error)
                code = code or error.exit_code
        text = _BETWEEN.join(texts)
        if args.output:
            write_text(Path(args.output), [text])
        else:
            write_stream(sys.stdout, [text])
        return code


def _complain(error: IrscopeError) -> None:
    sys.stderr.write(f"irscope: error {error.code}: {one_line(str(error).partition(chr(10))[0])}\n")


def _opened(args: argparse.Namespace) -> Iterator[Model | IrscopeError]:
    """Yield the models that the arguments name, one unless the file is split; of parts that cannot be read the error."""
    is_stdin = args.model in (None, "-")
    if not is_stdin and (is_name(args.model) or (Path(args.model).suffix != ".irs" and kind_of(path_of(args.model)) != "irs")):
        yield open_from(args, verify_each=args.verify_each)
        return
    where = "<stdin>" if is_stdin else args.model
    text = read_text(None if is_stdin else Path(args.model))
    for part in _parts(text) if args.split_input_file else [text]:
        try:
            yield open_model(
                Path(where),
                load_options(args),
                settings=settings_from(args),
                instruments=progress_from(args),
                reproducers=True,
                verify_each=args.verify_each,
                text=part,
            )
        except IrscopeError as error:
            if not args.split_input_file:
                raise
            yield error


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text, each behind as many empty lines as stand before it, so that messages name its lines."""
    at = 0
    for end, following in [*((cut.start(), cut.end()) for cut in _CUT.finditer(text)), (len(text), len(text))]:
        part = text[at:end]
        line = next((row for row in part.splitlines() if row.strip() and not row.lstrip().startswith("#")), "")
        is_headed = line.lstrip().startswith("irscope ")
        if line:
            before = text.count("\n", 0, at)
            yield f"{'' if is_headed or not before else f'irscope {TEXT_VERSION}'}{chr(10) * before}{part}"
        at = following


def _problems(model: Model, args: argparse.Namespace) -> tuple[Diagnostic, ...]:
    """Return what breaks a rule of the IR or of an operator."""
    return () if args.no_verify else model.manager.get(Verify())


def _rewritten(model: Model, passes: tuple[Pass, ...], args: argparse.Namespace) -> str:
    """Return the text of a model that passes went over."""
    errors = _problems(model, args)
    if errors:
        report_diagnostics(errors[1:], args.verbose)
        first = errors[0]
        raise VerifyError(first.message, code=first.code, where=model.program.path, hint=first.hint or "--no-verify goes on")
    report_diagnostics(model.diagnostics, args.verbose)
    manager = model.manager
    if args.dump_ir:
        manager.instruments.append(DumpOnChange(Path(args.dump_ir)))
    for subject in passes:
        result = manager.run_one(subject)
        if not isinstance(subject, Transform):
            write_stream(sys.stderr, [f"{result}\n"])
        elif args.print_after_all:
            print_after(model, subject, result.value)
    for diagnostic in _problems(model, args):
        raise PassError(f"the passes left a broken graph: {diagnostic.message}", code="IRS503", where=model.program.path)
    return print_program(model.program, locations=not args.strip_locations)


class Repro:
    """Run a crash reproducer again.

    The file holds a graph without weights and the pass that failed on it. A reproducer may come from a stranger: a script that it names
    runs only with --trust, or when --passes names it.
    """

    examples = (
        ("irscope repro irscope-crash-4f2a.irs", "does the pass still fail on the graph that it failed on?"),
        ("irscope repro --passes verify,shapes irscope-crash-4f2a.irs", "do other passes fail on it?"),
        ("irscope repro --trust irscope-crash-4f2a.irs", "the same where the file names a script, which then runs?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", help="an irscope-crash-*.irs file")
        parser.add_argument("--passes", help="run this pipeline instead of the one in the file")
        parser.add_argument("--trust", action="store_true", help="run the script that the file names: only for sources you trust")

    def run(self, args: argparse.Namespace) -> int:
        reproducer = read_reproducer(Path(args.file))
        pipeline = args.passes or reproducer.pipeline
        if not (args.passes or args.trust) and (script := script_in(pipeline)):
            hint = "look at the script; --trust runs it, --passes names another"
            raise UsageError(f"the reproducer names a script to run, {script}", code="IRS482", where=args.file, hint=hint)
        sys.stderr.write(f"{one_line(f'running {pipeline}')}\n")
        with reading(args.file, len(reproducer.text)):
            program = program_in(reproducer.text, args.file)
            check_sizes(program)
        Manager(program, annotate=Annotate()).run(pipeline)
        write_stream(sys.stdout, ["the passes ran without an error: not reproduced\n"])
        return 0
