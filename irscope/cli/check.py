"""`irscope check`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from irscope.cli.args import add_output_arguments, add_output_file, progress_from, write_answer
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream, write_text
from irscope.report.printable import one_line
from irscope.tools.check import EXAMPLE, Checked, changes_of, check, find_file, read_plan, write_baseline
from irscope.tools.check_outputs import OUTPUTS, check_document, failures_of

_FORMATS = ("text", "json", "csv", "html", "junit", "github", "markdown", "md")
_MOST_CHANGES = 20
"""Of the lines about what an update changes; the file itself has all."""

_MOST_REMARKS = 20


class Command:
    """Check models against budgets, for CI: peak memory, FLOPs, least time, parameters, size on disk, unknown numbers.

    FILE (default: irscope.toml, else [tool.irscope] of pyproject.toml) lists models, their sizes, devices and budgets:

        budgets = ["peak < 8GiB", "flops < +2%", "unknown = 0"]
        [[models]]
        model = "models/*.onnx"
        bind = { batch = 8 }

    A limit with a sign limits the change since the baseline, which --update writes. A budget that cannot be judged fails, with the reason.

    Exit codes: 0 every budget is kept, 1 one is exceeded, 2 usage, 3 no model can be read, 5 a budget cannot be judged or a model
    cannot be read.
    """

    examples = (
        ("irscope check", "does every model keep its budgets?"),
        ("irscope check --update", "what are the models like now, as the baseline from here on?"),
        ("irscope check --junit check.xml --markdown comment.md", "the same for a CI system and for a comment?"),
        ("irscope check --format github irscope.toml", "which lines of the file are broken, as annotations of GitHub's?"),
    )
    common = ("--update", "--trust", "--sort", "--filter", "--junit", "--github", "--markdown", "--json", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", nargs="?", default="", help="a .toml file; default: irscope.toml, else pyproject.toml")
        parser.add_argument("--update", action="store_true", help="write the baseline again from the models as they are now")
        parser.add_argument("--trust", action="store_true", help="run scripts that the file names, such as ./train.py:build")
        add_output_arguments(parser, _FORMATS)
        for name in OUTPUTS:
            add_output_file(parser, f"--{name}", help=f"also write this output there: {name}")

    def run(self, args: argparse.Namespace) -> int:
        if args.format == "md":  # as other commands call it
            args.format = "markdown"
        plan = read_plan(find_file(args.file))
        if not args.update and plan.targets and not any(target.budgets for target in plan.targets):
            raise UsageError("has no budgets, so that nothing could fail", code="IRS680", where=plan.file, hint=EXAMPLE)
        watching = progress_from(args)
        checked = check(plan, watching, watching[0].part if watching else None, anew=args.update, trust=args.trust)
        for one in watching:
            one.ended()
        if args.update:
            return self._update(checked, args.rows)
        for name, write in OUTPUTS.items():
            if path := getattr(args, name):
                write_text(Path(path), write(checked)) if path != "-" else write_stream(sys.stdout, write(checked))
        self._answer(checked, args)
        said = [f"{model.target.key}: {remark}" for model in checked.models for remark in model.remarks]
        sys.stderr.write("".join(f"irscope: {one_line(line)}\n" for line in _first(said, _MOST_REMARKS, "warnings", args.rows)))
        return _exit_code(checked)

    def _answer(self, checked: Checked, args: argparse.Namespace) -> None:
        if args.format in OUTPUTS and args.format != "json":
            if args.sort or args.filter or args.top is not None:
                raise UsageError(f"--sort, --filter and --top are not for --format {args.format}", code="IRS450")
            chunks = OUTPUTS[args.format](checked)
            write_text(Path(args.output), chunks) if args.output not in (None, "-") else write_stream(sys.stdout, chunks)
        else:
            write_answer(check_document(checked), args)
        if args.format != "text" or args.output not in (None, "-"):
            for line in failures_of(checked):
                sys.stderr.write(one_line(f"irscope: error IRS683: {line}") + "\n")

    def _update(self, checked: Checked, rows: int | None) -> int:
        made = write_baseline(checked)
        lines = [f"wrote {checked.plan.baseline_name}: {len(made.models)} of {len(checked.models)} models"]
        lines += _first(list(changes_of(checked.baseline, made)), _MOST_CHANGES, "changes", rows)
        lines += [f"cannot be read: {one.target.key}: {one.error}" for one in checked.failed_models]
        lines += [f"no file matches: {pattern}" for pattern, _ in checked.plan.missing]
        sys.stderr.write("".join(f"{one_line(line)}\n" for line in lines))
        return _exit_code(checked) if checked.failed_models or checked.plan.missing else ExitCode.OK


def _first(lines: list[str], most: int, what: str, rows: int | None) -> list[str]:
    """Return so many lines and how many more there are; with --rows 0 all."""
    left = 0 if rows == 0 else len(lines) - most
    return lines if left <= 0 else [*lines[:most], f"and {left:,} more {what}; --rows 0 shows all"]


def _exit_code(checked: Checked) -> ExitCode:
    if checked.of("exceeded"):
        return ExitCode.FINDINGS
    if not checked.models or len(checked.failed_models) == len(checked.models):
        return ExitCode.LOAD
    return ExitCode.OK if checked.is_passed else ExitCode.PARTIAL
