"""`irscope check`: a report for people and JSON, JUnit XML, annotations of GitHub's, a table in Markdown.

Every output is the same for the same inputs: no times, no paths but those of the file that lists the models. Texts are escaped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

from irscope._version import __version__
from irscope.cli.args import add_output_arguments, add_output_file, progress_from, write_answer
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream, write_text
from irscope.report.jsonout import json_lines
from irscope.report.mdout import md_code, md_text
from irscope.report.printable import legible, one_line, well_formed
from irscope.report.report import Document, Report, Subject
from irscope.report.schema import ToolJson
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tools.check import EXAMPLE, Checked, CheckedModel, Judged, Status, changes_of, check, find_file, read_plan, write_baseline

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
        parser.add_argument("--update", action="store_true", help="write the baseline of the models as they are now")
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
        for watcher in watching:
            watcher.ended()
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
        lines += [f"cannot be read: {model.target.key}: {model.error}" for model in checked.failed_models]
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


SCHEMA: Final = "irscope.check/1"
_WORST_FIRST: Final[Mapping[Status, int]] = {"exceeded": 0, "unjudged": 1, "ok": 2}
_MOST_LINES: Final = 20
"""Failures that stand above the table; it has all."""


# The JSON document as types, from which docs/check.schema.json is generated.


class ErrorJson(TypedDict):
    """Reason why a model could not be checked."""

    code: str
    message: str


class CheckedModelJson(TypedDict):
    """One model on one device."""

    key: Annotated[str, "Path or name, sizes and device; what the baseline calls it."]
    model: str
    device: str
    sha256: Annotated[str, "Of the model's file; empty where there is none, or it is very large."]
    file: Annotated[str, "same, changed or new, against the baseline; empty where that is not known."]
    runtime: str
    numbers: Annotated[dict[str, int | float | bool | None], "By name; null is unknown."]
    intervals: Annotated[dict[str, list[int | float | None]], "Lower and upper bound of modelled numbers; null: unbounded."]
    error: ErrorJson | None


class JudgedJson(TypedDict):
    """One budget of one model."""

    key: str
    budget: Annotated[str, "As it is written."]
    line: Annotated[int, "Where it stands in the file; 0 where that is not known."]
    number: Annotated[str, "What it is about."]
    unit: Annotated[str, "bytes, FLOPs or seconds; empty where it has none."]
    status: Annotated[str, "ok, exceeded or unjudged."]
    now: int | float | bool | None
    baseline: int | float | bool | None
    change: Annotated[float | None, "The share by which it changed since the baseline."]
    reason: str


class CheckJson(TypedDict):
    """Models against their budgets."""

    schema: Literal["irscope.check/1"]
    tool: ToolJson
    file: str
    baseline: Annotated[str, "The file of the baseline."]
    baseline_irscope: Annotated[str | None, "The irscope that wrote it; null where there is none."]
    passed: bool
    headline: Annotated[list[str], "The answer in a few lines, for people."]
    missing: Annotated[list[str], "Patterns that no file matches."]
    models: list[CheckedModelJson]
    budgets: list[JudgedJson]


def check_json(checked: Checked) -> CheckJson:
    return {
        "schema": SCHEMA,
        "tool": {"name": "irscope", "version": __version__},
        "file": well_formed(checked.plan.file),
        "baseline": well_formed(checked.plan.baseline_name),
        "baseline_irscope": None if checked.baseline is None else checked.baseline.irscope,
        "passed": checked.is_passed,
        "headline": [well_formed(line) for line in headline(checked)],
        "missing": [well_formed(pattern) for pattern, _ in checked.plan.missing],
        "models": [_model_json(model) for model in checked.models],
        "budgets": [_judged_json(verdict) for verdict in checked.judged],
    }


def _model_json(model: CheckedModel) -> CheckedModelJson:
    numbers = model.numbers
    return {
        "key": well_formed(model.target.key),
        "model": well_formed(model.target.model),
        "device": model.target.settings.device,
        "sha256": model.sha256,
        "file": model.file,
        "runtime": "" if model.card is None else model.card.memory.runtime,
        "numbers": {name: _plain(number.value) for name, number in numbers.items()},
        "intervals": {name: [_plain(number.lo), _plain(number.hi)] for name, number in numbers.items() if number.interval is not None},
        "error": {"code": model.code, "message": well_formed(model.error)} if model.error else None,
    }


def _judged_json(verdict: Judged) -> JudgedJson:
    return {
        "key": well_formed(verdict.key),
        "budget": well_formed(verdict.budget.text),
        "line": verdict.budget.line,
        "number": verdict.budget.field,
        "unit": verdict.budget.kind.unit,
        "status": verdict.status,
        "now": _plain(verdict.now.value),
        "baseline": None if verdict.base is None else _plain(verdict.base.value),
        "change": verdict.change,
        "reason": well_formed(verdict.reason),
    }


def _plain(value: object) -> int | float | bool | None:
    return value if isinstance(value, int | float) else None


def headline(checked: Checked) -> list[str]:
    """Return the verdict, then what is behind it."""
    exceeded, unjudged, failed = checked.of("exceeded"), checked.of("unjudged"), checked.failed_models
    total = len(checked.judged)
    if checked.is_passed:
        lines = [f"passed: {_plural(total, 'budget')} of {_plural(len(checked.models), 'model')}"]
    else:
        said = [f"{len(exceeded)} of {_plural(total, 'budget')} exceeded"] if exceeded else []
        said += [f"{_plural(len(unjudged), 'budget')} cannot be judged"] if unjudged else []
        said += [f"{len(failed)} of {_plural(len(checked.models), 'model')} cannot be read"] if failed else []
        said += [f"{_plural(len(checked.plan.missing), 'pattern')} without a file"] if checked.plan.missing else []
        lines = [f"failed: {', '.join(said)}"]
    failures = list(failures_of(checked))
    lines += failures[:_MOST_LINES]
    if len(failures) > _MOST_LINES:
        lines.append(f"and {len(failures) - _MOST_LINES:,} more, in the table")
    return lines


def failures_of(checked: Checked) -> Iterator[str]:
    """Yield a line for everything that fails, the worst first."""
    for verdict in sorted(checked.judged, key=lambda verdict: _WORST_FIRST[verdict.status]):
        if verdict.status != "ok":
            yield f"{verdict.key}: {verdict.budget.text}: {verdict.reason}"
    for model in checked.failed_models:
        yield f"{model.target.key}: {model.error}"
    for pattern, _ in checked.plan.missing:
        yield f"{pattern}: no file matches"


def check_document(checked: Checked) -> Document:
    """Return the report; its JSON has a schema of its own."""
    rows = sorted(checked.judged, key=lambda verdict: _WORST_FIRST[verdict.status])
    columns = [
        Column("verdict"),
        Column("model"),
        Column("budget"),
        Column("now"),
        Column("baseline"),
        Column("change"),
        Column("reason", detail=True),
        Column("number", detail=True, help="what the budget is about"),
        Column("unit", detail=True),
        Column("value", Kind.NUMBER, detail=True, help="the raw number"),
        Column("baseline_value", Kind.NUMBER, detail=True),
        Column("share", Kind.NUMBER, detail=True, help="by which it changed since the baseline"),
    ]
    cells = [
        (row.status, row.key, row.budget.text, _quantity_text(row.now, row.budget.kind), _base(row), _change(row), row.reason, *_raw(row))
        for row in rows
    ]
    tables = [Table.of(cells, columns, "budgets")]
    models = [
        (model.target.key, _FILES[model.file] if model.card is not None else "", "read" if model.card is not None else model.error)
        for model in checked.models
    ]
    tables.append(Table.of(models, [Column("model"), Column("file"), Column("state")], "models"))
    notes = []
    if checked.baseline is not None and checked.baseline.irscope != __version__:
        notes.append(
            f"irscope {checked.baseline.irscope or 'of no version'} wrote the baseline, this is {__version__}: changes may be irscope's own"
        )
    signs = [_SIGNS[one] for one in _SIGNS if any(row.now.value is not None and row.now.provenance is one for row in rows)]
    if signs:
        notes.append(", ".join(f"{sign} {provenance.value}" for provenance, sign in _SIGNS.items() if sign in signs))
    report = Report("check", tables=tuple(tables), headline=tuple(headline(checked)), notes=tuple(notes))
    subject = Subject("check", (checked.plan.file, _plural(len(checked.models), "model"), f"baseline {_baseline(checked)}"))
    return Document(reports=(report,), subjects=(subject,), own_json=lambda _: check_json(checked))


_SIGNS: Final = {Provenance.MODELLED: "~", Provenance.ASSUMED: "*"}
_FILES: Final = {"same": "that of the baseline", "changed": "changed since the baseline", "new": "not in the baseline", "": "not known"}


def _baseline(checked: Checked) -> str:
    return f"{checked.plan.baseline_name}{'' if checked.baseline is not None else ' (none yet)'}"


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _quantity_text(quantity: Quantity, kind: Kind) -> str:
    sign = _SIGNS.get(quantity.provenance, "")
    return f"{sign if quantity.value is not None else ''}{humanise(quantity, kind)}"


def _base(verdict: Judged) -> str:
    return "" if verdict.base is None else humanise(verdict.base.value, verdict.budget.kind)


def _raw(verdict: Judged) -> tuple[object, ...]:
    """Return what a program reads of a row."""
    base = None if verdict.base is None else _plain(verdict.base.value)
    return verdict.budget.field, verdict.budget.kind.unit, _plain(verdict.now.value), base, verdict.change


def _change(verdict: Judged) -> str:
    return "" if verdict.change is None else f"{verdict.change:+.2%}"


# JUnit XML, as test reports of CI systems read it: a suite a model, a case a budget.


def junit(checked: Checked) -> Iterator[str]:
    cases = len(checked.judged) + len(checked.failed_models) + len(checked.plan.missing)
    failures = len(checked.of("exceeded")) + len(checked.of("unjudged"))
    errors = len(checked.failed_models) + len(checked.plan.missing)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f'<testsuites name="irscope check" tests="{cases}" failures="{failures}" errors="{errors}">\n'
    for one in checked.models:
        bad = sum(judged.status != "ok" for judged in one.judged)
        tests = len(one.judged) or int(one.card is None)
        yield f'  <testsuite name={_xml(one.target.key)} tests="{tests}" failures="{bad}" errors="{int(one.card is None)}" skipped="0">\n'
        if one.card is None:
            yield _case(one.target.key, "read", "error", one.code, one.error)
        for judged in one.judged:
            name = judged.budget.text
            yield _case(one.target.key, name, "failure" if judged.status != "ok" else "", judged.status, judged.reason)
        yield "  </testsuite>\n"
    for pattern, _ in checked.plan.missing:
        yield f'  <testsuite name={_xml(pattern)} tests="1" failures="0" errors="1" skipped="0">\n'
        yield _case(pattern, "read", "error", "missing", "no file matches")
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _case(model: str, name: str, outcome: str, kind: str, reason: str) -> str:
    head = f"    <testcase classname={_xml(model)} name={_xml(name)}"
    if not outcome:
        return f"{head}/>\n"
    return f"{head}>\n      <{outcome} type={_xml(kind)} message={_xml(reason)}/>\n    </testcase>\n"


def _xml(text: str) -> str:
    """Return an attribute. Control characters, which XML cannot hold, are escaped as `printable` does."""
    text = escape(well_formed(legible(text)), quote=False).replace('"', "&quot;")
    return f'"{text}"'


# Annotations, which GitHub shows beside the lines of a change.


def github(checked: Checked) -> Iterator[str]:
    """Yield a workflow command a failure: https://docs.github.com/actions/reference/workflow-commands-for-github-actions"""
    for verdict in sorted(checked.judged, key=lambda verdict: _WORST_FIRST[verdict.status]):
        if verdict.status != "ok":
            yield _annotation(checked, verdict.budget.line, f"{verdict.key}: {verdict.budget.text}", verdict.reason)
    for model in checked.failed_models:
        yield _annotation(checked, model.target.line, model.target.key, model.error)
    for pattern, line in checked.plan.missing:
        yield _annotation(checked, line, pattern, "no file matches")
    if checked.is_passed:
        yield f"::notice title=irscope check::{_escaped_data(headline(checked)[0])}\n"


def _annotation(checked: Checked, line: int, title: str, message: str) -> str:
    place = f"file={_property(checked.plan.file)}" + (f",line={line}" if line else "")
    return f"::error {place},title={_property(title)}::{_escaped_data(message)}\n"


def _escaped_data(text: str) -> str:
    return well_formed(legible(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped_data(text).replace(":", "%3A").replace(",", "%2C")


# A table in Markdown, for a comment or the summary of a job.


def markdown(checked: Checked) -> Iterator[str]:
    verdict, *_ = headline(checked)
    word, _, rest = verdict.partition(":")
    yield f"**irscope check {word}**:{rest}\n"
    rows = sorted(checked.judged, key=lambda verdict: _WORST_FIRST[verdict.status])
    if rows:
        yield "\n| verdict | model | budget | now | baseline | change | why |\n|---|---|---|---|---|---|---|\n"
    for row in rows:
        cells = (
            _VERDICTS[row.status],
            md_code(row.key),
            md_code(row.budget.text),
            *(md_text(text) for text in (_quantity_text(row.now, row.budget.kind), _base(row), _change(row), row.reason)),
        )
        yield f"| {' | '.join(cells)} |\n"
    problems = [(model.target.key, model.error) for model in checked.failed_models]
    problems += [(pattern, "no file matches") for pattern, _ in checked.plan.missing]
    if problems:
        yield "\n| cannot be read | why |\n|---|---|\n"
        for key, why in problems:
            yield f"| {md_code(key)} | {md_text(why)} |\n"


_VERDICTS: Final[Mapping[Status, str]] = {"ok": "ok", "exceeded": "**exceeded**", "unjudged": "**cannot be judged**"}


def as_json(checked: Checked) -> Iterable[str]:
    return json_lines(check_json(checked))


OUTPUTS: Final[Mapping[str, Callable[[Checked], Iterable[str]]]] = {"junit": junit, "github": github, "markdown": markdown, "json": as_json}
"""Formats that can be written beside the answer, each by an option of its name."""
