"""`irscope run` with several models: one after another, or a few at a time, each a row of a table."""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from irscope.cli.args import open_from, progress_from, selection, write_answer
from irscope.diagnostics import Severity
from irscope.errors import Cancelled, ExitCode, IrscopeError, UsageError
from irscope.passkit.instruments import Instrument
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry
from irscope.processes import each
from irscope.report.printable import one_line
from irscope.session import Results
from irscope.tools.card import make_card
from irscope.tools.config import Chosen, chosen_device
from irscope.tools.many import Row, incomplete, models_named, table_document

_OF_ONE = ("plot", "dump_ir", "timing", "explain", "skip", "verify_each", "store_as")
"""Options about one model."""
_MOST_JOBS = 64


def run_many(args: argparse.Namespace) -> int:
    """Analyse the models and print the table; what could not be analysed is a row, and the exit code says so."""
    _check(args)
    selection(args)
    sizes = _points(args.sweep)
    chosen = None if args.passes else chosen_device(args.device)
    if chosen is None:
        parse_pipeline(args.passes, default_registry())  # what is wrong with it is wrong for every model
    asked = [(model, point) for model in models_named(args.model) for point in sizes]
    rows: list[Row] = []
    interrupted = False
    try:
        for row in _analysed(args, asked, chosen):
            rows.append(row)
            if row.error is not None:
                sys.stderr.write(one_line(f"irscope: error {row.error.code}: {_error_of_row(row)}") + "\n")
    except (KeyboardInterrupt, Cancelled):
        if not rows:
            raise
        interrupted = True
        sys.stderr.write(f"irscope: interrupted after {len(rows)} of {len(asked)}\n")
    if args.rows is None:
        args.rows = 0
    write_answer(table_document(rows, chosen, short=args.format == "text"), args)
    _say_remarks(rows)
    return ExitCode.INTERRUPTED if interrupted else _exit_code(args, rows)


def _check(args: argparse.Namespace) -> None:
    given = [option for option in _OF_ONE if getattr(args, option)]
    if given:
        flag = f"--{given[0].removeprefix('store_').replace('_', '-')}"
        raise UsageError(f"{flag} is about one model, and several are named", code="IRS691", hint="run them one after another")
    if args.format == "layers-json":
        hint = "text, csv, json, html or md"
        raise UsageError(f"--format {args.format} is about one model, and several are named", code="IRS691", hint=hint)
    if not 1 <= args.jobs <= _MOST_JOBS:
        raise UsageError(f"--jobs is 1 to {_MOST_JOBS}", code="IRS691")


def _points(sweep: Sequence[str]) -> list[dict[str, int]]:
    """Return every combination of the sizes that --sweep gives; one without any where it gives none."""
    if not sweep:
        return [{}]
    from irscope.passes.memory.points import sizes_in

    wanted = sizes_in([",".join(sweep)])
    return [dict(zip(wanted, point, strict=True)) for point in itertools.product(*wanted.values())]


def _analysed(args: argparse.Namespace, asked: Sequence[tuple[str, Mapping[str, int]]], chosen: Chosen | None) -> Iterator[Row]:
    watching = progress_from(args)
    # What the models say of themselves goes through the same line.
    args = argparse.Namespace(**{**vars(args), "quiet": True})
    if args.jobs == 1 or len(asked) == 1:
        for done, (model, sizes) in enumerate(asked):
            for watcher in watching:
                watcher.part(done, len(asked), model)
            yield analyse(args, model, sizes, chosen, watching)
            for watcher in watching:
                watcher.ended()
            gc.collect()  # graphs are full of cycles: without it the next model comes on top of this one
        return
    # A process of its own for each: what one leaves in memory is gone when it ends.
    rows = each(analyse, [(args, model, sizes, chosen) for model, sizes in asked], args.jobs)
    try:
        for done, (model, sizes) in enumerate(asked):
            for watcher in watching:
                watcher.part(done, len(asked), model)
            # None where the process was killed, such as for its memory.
            yield next(rows) or Row(model, sizes, error=IrscopeError("its process ended", where=model))
    finally:
        for watcher in watching:
            watcher.ended()
        rows.close()


def analyse(
    args: argparse.Namespace, model: str, sizes: Mapping[str, int], chosen: Chosen | None, watching: Sequence[Instrument] = ()
) -> Row:
    """Return the row of one model. It holds nothing of the model itself."""
    bind = [*args.bind, *(f"{name}={size}" for name, size in sizes.items())]
    try:
        opened = open_from(argparse.Namespace(**{**vars(args), "model": model, "bind": bind}), instruments=watching)
        said = list(opened.diagnostics)
        if chosen is not None:
            card = make_card(opened, chosen, brief=True)
            said += card.diagnostics
            worst = max((remark.severity for remark in said), default=None)
            return Row(model, sizes, card, error=card.failure, severity=worst, unknown=tuple(incomplete(card.fields())))
        results = Results(opened.manager.run(args.passes), opened.manager.settings)
        reports = results.reports
        said += [diagnostic for report in reports for diagnostic in report.diagnostics]
        unknown = [report.pass_name for report in reports if report.coverage and report.coverage.known < report.coverage.total]
        kept = tuple(replace(report, tables=(), series=(), diagnostics=(), notes=()) for report in reports)
        guesses = [f"assumed {assumed.text}" for assumed in opened.program.guesses]
        return Row(model, sizes, None, kept, None, max((remark.severity for remark in said), default=None), (*unknown, *guesses))
    except Cancelled:
        raise
    except IrscopeError as error:
        return Row(model, sizes, error=error)
    except Exception as error:  # one model must not take the others with it
        hint = f"this is a bug; `irscope run {model} --debug` has the details"
        return Row(model, sizes, error=IrscopeError(f"{type(error).__name__}: {error}", where=model, hint=hint))


def _error_of_row(row: Row) -> str:
    """Return the error, with the model where it does not name it."""
    at = f" at {','.join(f'{name}={size}' for name, size in row.sizes.items())}" if row.sizes else ""
    said = str(row.error).partition("\n")[0]
    return said if row.error is not None and row.error.where and not at else f"{row.model}{at}: {said}"


def _say_remarks(rows: Sequence[Row]) -> None:
    counts = Counter(row.severity for row in rows if row.severity is not None and row.severity > Severity.NOTE)
    for severity, count in sorted(counts.items(), reverse=True):
        of = "model" if count == 1 else "models"
        sys.stderr.write(f"irscope: {severity.text}s about {count} {of}; `irscope run MODEL` has them\n")


def _exit_code(args: argparse.Namespace, rows: Sequence[Row]) -> int:
    failed = [row.error for row in rows if row.error is not None]
    if failed:
        codes = {error.exit_code for error in failed}
        return codes.pop() if len(failed) == len(rows) and len(codes) == 1 else ExitCode.PARTIAL
    worst = max((row.severity for row in rows if row.severity is not None), default=None)
    if args.fail_on and worst is not None and worst >= Severity[args.fail_on.upper()]:
        return ExitCode.FINDINGS
    lines = [f"{row.model}: {', '.join(row.unknown)}" for row in rows if row.unknown] if args.strict else []
    for line in lines:
        sys.stderr.write(one_line(f"irscope: error IRS540: --strict: {line}") + "\n")
    return ExitCode.PARTIAL if lines else ExitCode.OK
