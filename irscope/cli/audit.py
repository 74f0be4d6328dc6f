"""`irscope audit`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from irscope.amounts import BYTES
from irscope.cli.args import add_amount, add_output_arguments, amount_of, bindings, progress_from, write_answer
from irscope.devices.catalogue import parted, with_memory
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream
from irscope.passkit.instruments import Progress
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry
from irscope.report.printable import one_line
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.engines import ENGINES, Engine, default_jobs
from irscope.tools.audit.questions import SETS, answer, diff_document, report_document
from irscope.tools.audit.run import AGAIN, REASONS, Tally, audit
from irscope.tools.audit.worker import Setup
from irscope.tools.config import chosen_device

_SLOW = 5.0
"""Seconds after which a model is named as what is slow now."""


class Command:
    """Analyse every model of folders, lists, hub caches, archives or object stores into a dataset, and answer questions about it.

    SOURCE is a file, a folder, a pattern, a zip or tar archive, a URL that fsspec knows (s3://, gs://, hf://), @LIST with a source on
    each line, or a name. RESULTS (-o) becomes a folder of Parquet files: one row a model with the columns of its card, the census of
    operators, a table for each pass of --passes. Each model is read in a process with limits of time, memory and open files; one that
    breaks is a row with its reason. A model that the folder has already is not analysed again.

        irscope audit ask RESULTS --where EXPR    which models, operators, failures
        irscope audit report RESULTS -o PAGE.html  all of it on one page
        irscope audit diff OLD NEW                 what changed

    Exit codes: 0 every model has numbers, 2 usage, 3 the results cannot be read, 5 some models have none, 130 interrupted: models
    under way were finished, and the next run goes on from there.
    """

    examples = (
        ("irscope audit ~/.cache/huggingface/hub -o results", "what do the models of this machine cost, and which are broken?"),
        ("irscope audit s3://bucket/models --device h200,l4 -o results", "which of a store's models fit on an L4?"),
        ("irscope audit models --engine ray --address auto --jobs 200 -o results", "the same by a cluster?"),
        ("irscope audit ask results --where 'peak@l4 > 24GiB and status = ok'", "which models need more than an L4 has?"),
        ("irscope audit ask results --set unknown_ops", "which operators does irscope not know, and in how many models?"),
        ("irscope audit diff last-week results", "which models changed cost?"),
        ("irscope audit report results", "all of it, as a page?"),
    )
    common = ("--output", "--device", "--bind", "--passes", "--jobs", "--engine", "--fetch", "--where", "--set", "--format")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="SOURCE", nargs="+", help="where models are; or ask, report or diff and the results")
        parser.add_argument("--passes", default="", metavar="PASSES", help="passes whose summaries are kept too, such as liveness,flops")
        parser.add_argument(
            "--device", default="", metavar="NAMES", help="devices to predict for, such as h200,l4: the card is for the first of them"
        )
        parser.add_argument("--bind", action="append", default=[], metavar="NAME=N,...", help="sizes of symbols, where a model has them")
        run = parser.add_argument_group("how it runs")
        run.add_argument("--engine", default="local", choices=ENGINES, help="processes here (default), or actors of a Ray cluster")
        run.add_argument("--address", default="", metavar="ADDRESS", help="of an existing cluster; default: one is started here")
        add_amount(run, "--jobs", default=0, help="models at once; default: as many as there are processors")
        add_amount(run, "--time", default=60, help="CPU time that one model may take; default: 60s")
        run.add_argument(
            "--memory", type=amount_of(BYTES), default=4 << 30, metavar="SIZE", help="memory that one model may take; default: 4GiB"
        )
        run.add_argument(
            "--fetch",
            type=amount_of(BYTES),
            default=4 << 30,
            metavar="SIZE",
            help="most bytes of a file from a store or archive; default: 4GiB",
        )
        run.add_argument("--trust", action="store_true", help="run scripts that a list of sources names, such as ./train.py:build")
        run.add_argument(
            "--again",
            default="",
            metavar="REASONS",
            help=f"look again at models that are not ok for these reasons ({', '.join(AGAIN)} always): {', '.join(REASONS)}",
        )
        ask = parser.add_argument_group("questions")
        ask.add_argument("--where", default="", metavar="EXPR", help="condition that models meet: 'peak@l4 > 24GiB and family ~ decoder'")
        ask.add_argument("--set", default="", metavar="NAME", help=f"a question with a name: {', '.join(SETS)}")
        add_output_arguments(parser, ("text", "json", "csv", "html", "md"), to_file=False)
        parser.add_argument(
            "-o", "--output", default=None, metavar="RESULTS", help="the folder of results; with ask, report and diff the file to write"
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.where and args.filter:
            raise UsageError("--where is --filter for audits; give one of them")
        args.filter = args.filter or args.where
        word, *rest = args.source
        if word in ("ask", "report", "diff") and not (word == "ask" and not rest):
            return _answer(word, rest, args)
        if args.output is None:
            raise UsageError("-o RESULTS is missing: the folder that the results go to", code="IRS721")
        return _audit(args)


def _audit(args: argparse.Namespace) -> int:
    if args.passes:
        parse_pipeline(args.passes, default_registry())  # what is wrong with it is wrong for every model
    devices = tuple(with_memory(chosen_device(name).device.name, parted(name)[1]) for name in args.device.split(",") if name)
    setup = Setup(devices, args.passes, bindings(args.bind), float(args.time), int(args.memory), fetch=int(args.fetch))
    watching = progress_from(args)
    says = _Says(watching)
    again = tuple(filter(None, args.again.split(",")))
    jobs = args.jobs or default_jobs()
    where = {"engine": args.engine, "jobs": jobs, "address": args.address}
    tally = audit(args.source, Path(args.output), setup, **where, again=again, trust=args.trust, told=says)
    for watcher in watching:
        watcher.ended()
    if not args.quiet:
        sys.stderr.write("".join(f"irscope: {one_line(line)}\n" for line in _summary(tally, says.seconds, args.output)))
    if args.set or args.filter:
        _write_question(args, Dataset(Path(args.output)), args.set or "models", None)
    if tally.stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.PARTIAL if tally.failed else ExitCode.OK


def _answer(word: str, rest: list[str], args: argparse.Namespace) -> int:
    wanted = 2 if word == "diff" else 1
    if len(rest) != wanted:
        what = "two folders of results" if wanted == 2 else "one folder of results"
        raise UsageError(f"`irscope audit {word}` takes {what}", code="IRS721")
    sets = [Dataset(Path(one)) for one in rest]
    if word == "ask":
        _write_question(args, sets[0], args.set or "models", args.output)
        return ExitCode.OK
    document = diff_document(*sets) if word == "diff" else report_document(sets[0])
    args.answer_in_file = True
    if word == "report" and args.output is None and args.format == "text" and "--format" not in sys.argv:
        args.format, args.output = "html", str(Path(rest[0]) / "report.html")
    write_answer(document, args)
    if word == "report" and args.output:
        write_stream(sys.stdout, [*(f"{line}\n" for report in document.reports for line in report.headline), f"wrote {args.output}\n"])
    return ExitCode.OK


def _write_question(args: argparse.Namespace, dataset: Dataset, name: str, output: str | None) -> None:
    args.answer_in_file, args.output = True, output
    write_answer(answer(dataset, name), args)


class _Says:
    """Progress of an audit, in one line."""

    def __init__(self, watching: list[Progress]) -> None:
        self._watching = watching
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __call__(self, tally: Tally, engine: Engine) -> None:
        for watcher in self._watching:
            watcher.progress(None, tally.done, tally.listed if tally.is_listed else None, self._text(tally, engine))

    def _text(self, tally: Tally, engine: Engine) -> str:
        fresh = tally.analysed + tally.copies
        rate = fresh / max(self.seconds, 1e-3)
        parts = [f"{tally.done:,} models, {rate:,.0f}/s"]
        if tally.failed:
            parts.append(f"{tally.failed:,} not ok ({', '.join(f'{name} {count:,}' for name, count in tally.reasons.most_common(3))})")
        slow = max(engine.running(), key=lambda pair: pair[1], default=("", 0.0))
        if slow[1] > _SLOW:
            parts.append(f"{slow[0].rpartition('/')[2]} since {slow[1]:.0f} s")
        if tally.stopped:
            parts.append("stopping: models under way are finished, Ctrl-C again leaves them")
        elif tally.is_listed and rate and tally.listed > tally.done:
            parts.append(f"{_duration((tally.listed - tally.done) / rate)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _summary(tally: Tally, seconds: float, folder: str) -> list[str]:
    parts = [f"{tally.analysed:,} analysed"]
    parts += [f"{tally.copies:,} with the content of others"] if tally.copies else []
    parts += [f"{tally.unchanged:,} known already"] if tally.unchanged else []
    parts += [f"{tally.skipped:,} files of other kinds skipped"] if tally.skipped else []
    lines = [f"{tally.done:,} models in {_duration(seconds)}: {', '.join(parts)}"]
    if tally.failed:
        lines.append(f"{tally.failed:,} are not ok: {', '.join(f'{name} {count:,}' for name, count in tally.reasons.most_common())}")
    if tally.stopped:
        lines.append("stopped before the end: the same command goes on from here")
    lines.append(f"`irscope audit ask {folder}` lists them, `irscope audit report {folder}` makes a page")
    return lines
