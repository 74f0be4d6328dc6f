"""Budgets of models: what `irscope.toml` says, numbers of models as their cards have them, the baseline, and the verdict.

    budget = name operator limit            name = a number of the card (docs/check.md), such as peak or size on disk
    limit  = amount | yes | no              against the number itself: peak < 8GiB
           | ("+" | "-") (amount | share)   against the change since the baseline: flops < +2%, peak <= +64MiB

A number with an interval keeps a budget where both ends do, and breaks it where neither does; between them it fails as not judged.
"""

from __future__ import annotations

import difflib
import gc
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeAlias

from irscope._version import __version__
from irscope.amounts import BYTES, COUNT, FLOPS, JOULES, NUMBER, SECONDS, SHARE, Measure, read_amount
from irscope.devices.catalogue import DEFAULT_DEVICE, find_device
from irscope.diagnostics import Diagnostic, Severity, few
from irscope.errors import Cancelled, IrscopeError, UsageError
from irscope.files import read_regular, write_text
from irscope.frontends.base import SOLE, LoadOptions
from irscope.frontends.zoo.names import is_name, is_script
from irscope.immutable import immutable
from irscope.ir.spelling import parse_input_type
from irscope.jsoncodec import LARGEST, Misfit, decode, encode, loads
from irscope.passkit.instruments import Instrument
from irscope.passkit.settings import Settings
from irscope.report.card import Card
from irscope.report.figures import FIGURES
from irscope.report.jsonout import json_lines
from irscope.report.printable import legible
from irscope.report.select import parse_comparison
from irscope.report.units import Kind, humanise
from irscope.report.values import Number, Provenance, Quantity
from irscope.session import check_target, open_model
from irscope.tools.config import chosen_of
from irscope.tools.many import models_named

FILE: Final = "irscope.toml"
PROJECT: Final = "pyproject.toml"
BASELINE: Final = "irscope-baseline.json"
BASELINE_SCHEMA: Final = "irscope.baseline/1"
EXAMPLE: Final = 'for example "peak < 8GiB", "flops < +2%" or "unknown = 0"'

Status: TypeAlias = Literal["ok", "exceeded", "unjudged"]
Told: TypeAlias = Callable[[int, int, str], None]

UNKNOWN_PARTS: Final = ("unknown_ops", "unknown_tensors", "unknown_weights")
NUMBERS: Final[Mapping[str, Kind]] = {
    **{figure.key: figure.kind for figure in FIGURES.values() if figure.is_budgetable},
    "unknown": Kind.COUNT,
}
"""Numbers of a card that budgets may be about; `unknown` is all that no number counts."""
ALIASES: Final[Mapping[str, str]] = {alias: figure.key for figure in FIGURES.values() for alias in figure.aliases}
_MEASURES: Final[Mapping[Kind, Measure]] = {
    Kind.BYTES: BYTES,
    Kind.FLOPS: FLOPS,
    Kind.SECONDS: SECONDS,
    Kind.COUNT: COUNT,
    Kind.NUMBER: NUMBER,
    Kind.JOULES: JOULES,
}
_OF_FILE: Final = frozenset(key for key, figure in FIGURES.items() if figure.of == "file")
"""Numbers that do not depend on sizes of inputs."""
_OF_RUNTIME: Final = frozenset(key for key, figure in FIGURES.items() if figure.of == "runtime")
"""Numbers that depend on the version of what runs the model."""
_NO_RUNTIME: Final = "no runtime that is known"


@immutable
class Budget:
    """One limit."""

    text: str
    field: str
    operator: str
    limit: Number | bool
    change: Literal["", "share", "amount"] = ""
    """Empty where the limit is about the number itself; otherwise the kind of its change since the baseline."""
    line: int = 0
    """Line of the file."""

    @property
    def kind(self) -> Kind:
        return NUMBERS[self.field]


def read_budget(text: str, where: str = "budget", line: int = 0) -> Budget:
    """Return a budget from its text; UsageError says what is wrong with it."""
    found = parse_comparison(text, where, EXAMPLE, "IRS681")
    name = "_".join(found.column.casefold().replace("-", " ").replace("_", " ").split())
    name = ALIASES.get(name, name)
    if name not in NUMBERS:
        near = difflib.get_close_matches(name, (*NUMBERS, *ALIASES), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NUMBERS)}"
        raise UsageError(f"{where}: there is no number {found.column!r}", code="IRS681", hint=hint)
    kind, value, operator = NUMBERS[name], found.value.strip(), "=" if found.operator == "==" else found.operator
    allowed = ("=", "!=") if kind is Kind.BOOL else ("=", "!=", "<", "<=", ">", ">=")
    if operator not in allowed:
        raise UsageError(f"{where}: {found.column} cannot be compared by {operator}", code="IRS681", hint=f"one of {' '.join(allowed)}")
    if kind is Kind.BOOL:
        truth = {"yes": True, "true": True, "no": False, "false": False}.get(value.casefold())
        if truth is None:
            raise UsageError(f"{where}: {found.column} is yes or no, not {value!r}", code="IRS681", hint=EXAMPLE)
        return Budget(text, name, operator, truth, line=line)
    sign, rest = (value[0], value[1:]) if value[:1] in ("+", "-") else ("", value)
    if rest.endswith("%") and not sign:
        raise UsageError(
            f"{where}: {value!r} is a share, but of what?", code="IRS681", hint=f"a change since the baseline has a sign: +{value}"
        )
    measure = SHARE if rest.endswith("%") else _MEASURES[kind]
    amount = read_amount(rest, measure)
    if amount is None or rest[:1] in ("+", "-"):
        raise UsageError(f"{where}: {value!r} is not {measure.what}", code="IRS681", hint=measure.hint)
    signed = -amount if sign == "-" else amount
    return Budget(text, name, operator, signed, ("share" if measure is SHARE else "amount") if sign else "", line)


# The file: irscope.toml, or [tool.irscope] of pyproject.toml.


@immutable
class Entry:
    """Models that are checked alike."""

    model: str
    name: str = ""
    bind: Mapping[str, int] = field(default_factory=dict)
    input: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    device: str = ""
    devices: tuple[str, ...] = ()
    torch: str = ""
    alloc_conf: str = ""
    modelled: str = ""
    budgets: tuple[str, ...] = ()


@immutable
class Settled:
    """The whole file; what models do not say holds for all."""

    models: tuple[Entry, ...]
    baseline: str = BASELINE
    device: str = ""
    devices: tuple[str, ...] = ()
    torch: str = ""
    alloc_conf: str = ""
    modelled: str = ""
    budgets: tuple[str, ...] = ()


AS_MODELLED: Final = "as-modelled"
_POLICIES: Final = ("surely", AS_MODELLED)


@immutable(slots=False)
class Target:
    """One model at its sizes on one device, with what it has to keep."""

    key: str
    model: str
    """As the file has it, or as the pattern found it, relative to the file's folder."""
    path: Path
    options: LoadOptions
    settings: Settings
    budgets: tuple[Budget, ...]
    surely: bool
    line: int


@immutable(slots=False)
class Plan:
    """Contents of the file."""

    file: str
    targets: tuple[Target, ...]
    baseline: Path
    baseline_name: str
    missing: tuple[tuple[str, int], ...]
    """Patterns that no file matches, with their lines."""


def find_file(named: str = "") -> Path:
    """Return the file that is named, else irscope.toml or pyproject.toml of this folder."""
    if named:
        return Path(named, FILE) if Path(named).is_dir() else Path(named)
    for name in (FILE, PROJECT):
        if Path(name).is_file():
            return Path(name)
    hint = 'a file with `budgets = ["peak < 8GiB"]` and `models = ["model.onnx"]` is enough; docs/check.md has the rest'
    raise UsageError(f"there is no {FILE} here, and no {PROJECT} with [tool.irscope]", code="IRS680", hint=hint)


def read_plan(path: Path) -> Plan:
    """Return what a file asks for. Raises UsageError with the file, and the line where it is known."""
    if path.suffix != ".toml" and path.is_file():
        hint = f'list it in {FILE}: models = ["{path.name}"]'
        raise UsageError("is no .toml file, which lists models and their budgets", code="IRS680", where=str(path), hint=hint)
    try:
        text = read_regular(path).decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", code="IRS680", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"is no UTF-8 text: {error.reason} at byte {error.start}", code="IRS680", where=str(path)) from error
    try:
        content: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        match = re.search(r"\(at line (\d+)", str(error))
        line = match[1] if match else max(len(text.splitlines()), 1)
        raise UsageError(f"is not TOML: {error}", code="IRS680", where=f"{path}:{line}") from error
    return _Reader(path, text).plan(content)


class _Reader:
    """Reads one file, and finds the lines that messages are about: TOML's parser keeps none."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()

    @cached_property
    def heads(self) -> list[int]:
        """Lines, from 0, at which the tables of models begin."""
        return [
            number for number, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*(tool\s*\.\s*irscope\s*\.\s*)?models\s*\]\]", line)
        ]

    def line(self, words: str, entry: int | None = None) -> int:
        """Return the first line, from 1, that has these words within an entry, or before all of them; the entry's own, else 0."""
        heads = self.heads
        start = 0 if entry is None or entry >= len(heads) else heads[entry]
        section = next((number for number, line in enumerate(self.lines) if re.match(r"\s*\[\s*tool\s*\.\s*irscope\b", line)), 0)
        start = max(start, section)
        end = (heads[0] if heads else len(self.lines)) if entry is None else (*heads, len(self.lines))[min(entry + 1, len(heads))]
        place = next((number for number in range(start, max(end, start)) if words in self.lines[number]), None)
        return place + 1 if place is not None else start + 1 if entry is not None and entry < len(heads) else 0

    def error(self, message: str, line: int = 0, hint: str = "", code: str = "IRS680") -> UsageError:
        return UsageError(message, code=code, where=f"{self.path}:{line}" if line else str(self.path), hint=hint)

    def plan(self, content: object) -> Plan:
        table: object = content
        if self.path.name == PROJECT and isinstance(content, dict):
            tool = content.get("tool")
            table = tool.get("irscope") if isinstance(tool, dict) else None
            if table is None:
                raise self.error("has no table [tool.irscope]", hint=f"or write {FILE}")
        settled = self.settled(table)
        targets: list[Target] = []
        missing: list[tuple[str, int]] = []
        for number, entry in enumerate(settled.models):
            found = list(self.targets(settled, entry, number))
            targets += found
            if not found:
                missing.append((entry.model, self.line(entry.model, number)))
        seen: dict[str, Target] = {}
        for target in targets:
            if target.key in seen:
                raise self.error(
                    f"{target.key!r} is listed twice", target.line, 'give each a name of its own (name = "..."), or narrow the pattern'
                )
            seen[target.key] = target
        return Plan(_as_seen(self.path), tuple(targets), self.path.parent / settled.baseline, settled.baseline, tuple(missing))

    def settled(self, table: object) -> Settled:
        try:
            settled = decode(Settled, _spelled_out(table), closed=True)
        except Misfit as misfit:
            index = re.match(r"models\[(\d+)\]", misfit.path)
            last = re.split(r"[.\[\]]+", misfit.path.rstrip("]"))[-1]
            line = self.line(last, int(index[1]) if index else None)
            raise self.error(str(misfit), line) from misfit
        if not settled.models:
            raise self.error("lists no models", hint='such as models = ["model.onnx"]')
        place = Path(settled.baseline)
        if place.is_absolute() or not place.name or ".." in place.parts or "\0" in settled.baseline:
            raise self.error("baseline: a file beside this one, or below it, is wanted", self.line("baseline"))
        return settled

    def targets(self, settled: Settled, entry: Entry, number: int) -> Iterator[Target]:
        """Yield what one entry asks for: each of its models on each of its devices."""
        line = self.line(entry.model, number)
        where = f"models[{number}]"
        if (entry.device and entry.devices) or (settled.device and settled.devices):
            raise self.error(f"{where}: `device` or `devices`, not both", line)
        own = entry.devices or ((entry.device,) if entry.device else ())
        devices = own or settled.devices or (settled.device or DEFAULT_DEVICE,)
        policy = entry.modelled or settled.modelled or _POLICIES[0]
        if policy not in _POLICIES:
            raise self.error(f"modelled is {' or '.join(_POLICIES)}, not {policy!r}", self.line("modelled", number))
        budgets = self.budgets(settled, entry, number)
        options = self.options(entry, number)
        models = self.models(entry.model)
        if entry.name and len(models) > 1:
            raise self.error(f"{where}: one name cannot be that of {len(models)} models", self.line("name", number))
        said = ",".join([*(f"{key}={size}" for key, size in entry.bind.items()), *(_said(*one) for one in entry.input.items())])
        for model in models:
            for name in devices:
                settings = Settings(name, entry.torch or settled.torch, entry.alloc_conf or settled.alloc_conf)
                try:
                    key = find_device(name).name
                    check_target(settings)
                except UsageError as error:
                    raise self.error(
                        f"{where}: {error.message}", self.line(name, number) or self.line(name), error.hint, error.code
                    ) from error
                title = entry.name or f"{model}{f'{{{said}}}' if said else ''}"
                path = self.path.parent / model
                if is_name(model) and not is_script(str(path)):
                    path = Path(model)
                surely = policy != AS_MODELLED
                yield Target(f"{title}@{key}", model, path, options, settings, budgets, surely, line)

    def models(self, text: str) -> list[str]:
        """Return the model itself, or the files that a pattern means, in order."""
        try:
            return [name if is_name(name) else Path(name).as_posix() for name in models_named([text], str(self.path.parent))]
        except UsageError:
            return []

    def budgets(self, settled: Settled, entry: Entry, number: int) -> tuple[Budget, ...]:
        """Return an entry's own budgets, and those for all that are about other numbers."""
        own = [self.budget(text, f"models[{number}].budgets", number) for text in entry.budgets]
        theirs = {one.field for one in own}
        common = [self.budget(text, "budgets", None) for text in settled.budgets]
        return (*(one for one in common if one.field not in theirs), *own)

    def budget(self, text: str, where: str, entry: int | None) -> Budget:
        line = self.line(text, entry)
        try:
            return read_budget(text, where, line)
        except UsageError as error:
            raise self.error(error.message, line, error.hint, error.code) from error

    def options(self, entry: Entry, number: int) -> LoadOptions:
        try:
            types = {name: parse_input_type(text) for name, text in entry.input.items()}
        except IrscopeError as error:
            raise self.error(f"models[{number}].input: {error.message}", self.line("input", number), error.hint, error.code) from error
        return LoadOptions(inputs=types, bind=dict(entry.bind), method=entry.method)


def _as_seen(path: Path) -> str:
    """Return the path as seen from the working folder, which is the repository's in CI; its name alone where it lies elsewhere."""
    if not path.is_absolute():
        return path.as_posix()
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return path.name


def _spelled_out(table: object) -> object:
    """Return the table with its short forms in full: a text among models is a path, a text for `input` is about the only one."""
    listed = table.get("models") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(listed, str | list):
        return table
    models: list[object] = []
    for one in [listed] if isinstance(listed, str) else listed:
        made = {"model": one} if isinstance(one, str) else one
        if isinstance(made, dict) and isinstance(made.get("input"), str):
            made = {**made, "input": {SOLE: made["input"]}}
        models.append(made)
    return {**table, "models": models}


def _said(name: str, type_: str) -> str:
    return type_ if name == SOLE else f"{name}={type_}"


@immutable
class Bounded:
    """A number with what is known of its interval."""

    value: int | float | None = None
    low: int | float | None = None
    high: int | float | None = None


@immutable
class Stored:
    """A model's entry in the baseline."""

    sha256: str = ""
    runtime: str = ""
    numbers: Mapping[str, int | float | Bounded] = field(default_factory=dict)


@immutable
class Baseline:
    """The state of all models when `irscope check --update` ran."""

    schema: str = BASELINE_SCHEMA
    irscope: str = ""
    models: Mapping[str, Stored] = field(default_factory=dict)


def read_baseline(path: Path, name: str) -> Baseline | None:
    """Return the baseline; None where there is none yet. Raises UsageError for what is none, or of another schema."""
    hint = "`irscope check --update` writes it again"
    try:
        content = loads(read_regular(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"the baseline cannot be read: {error.strerror or error}", code="IRS682", where=name) from error
    except Misfit as error:
        raise UsageError(f"the baseline is {error}", code="IRS682", where=name, hint=hint) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != BASELINE_SCHEMA:
        said = f"its schema is {legible(str(schema))[:60]!r}" if schema is not None else "it names no schema"
        raise UsageError(f"this irscope reads baselines of {BASELINE_SCHEMA}, but {said}", code="IRS682", where=name, hint=hint)
    try:
        return decode(Baseline, content)
    except Misfit as error:
        raise UsageError(f"the baseline does not fit: {error}", code="IRS682", where=name, hint=hint) from error


def write_baseline(checked: Checked) -> Baseline:
    """Write what was found as the baseline from now on. Models that could not be read keep what is stored of them."""
    before = checked.baseline.models if checked.baseline is not None else {}
    stored: dict[str, Stored] = {}
    for model in checked.models:
        if model.card is not None:
            stored[model.target.key] = model.stored()
        elif model.target.key in before:
            stored[model.target.key] = before[model.target.key]
    made = Baseline(irscope=__version__, models=dict(sorted(stored.items())))
    document = {"schema": BASELINE_SCHEMA, "irscope": made.irscope, "models": encode(made.models)}
    write_text(checked.plan.baseline, json_lines(document))
    return made


def changes_of(before: Baseline | None, after: Baseline) -> Iterator[str]:
    """Yield what is different in a baseline, for people: models that came and went, and numbers that are others."""
    old = {} if before is None else before.models
    yield from (f"gone: {key}" for key in old if key not in after.models)
    for key, model in after.models.items():
        if key not in old:
            yield f"new: {key}"
            continue
        for name in NUMBERS:
            was, now = (_number(_quantity(stored.numbers[name]).value) if name in stored.numbers else None for stored in (old[key], model))
            if was != now:
                kind = NUMBERS[name]
                share = f" ({(now - was) / abs(was):+.2%})" if was and now is not None else ""
                yield f"{key}: {name} {humanise(was, kind)} -> {humanise(now, kind)}{share}"


def _quantity(stored: int | float | Bounded) -> Quantity:
    if isinstance(stored, Bounded):
        return Quantity(stored.value, Provenance.MODELLED, lo=stored.low, hi=stored.high)
    return Quantity(stored)


def _stored_number(quantity: Quantity) -> int | float | Bounded | None:
    parts = [end if isinstance(end, int | float) and abs(end) <= LARGEST else None for end in (quantity.value, quantity.lo, quantity.hi)]
    if quantity.lo is None and quantity.hi is None:
        return parts[0]
    return Bounded(*parts)


@immutable
class Judged:
    """One budget of one model, and whether it is kept."""

    key: str
    budget: Budget
    status: Status
    now: Quantity
    base: Quantity | None = None
    reason: str = ""
    """Reason why it is not kept; with `ok`, a remark all the same."""

    @property
    def change(self) -> float | None:
        """Return the share by which the number changed; None where that is not known or no share."""
        now, base = self.now.value, None if self.base is None else self.base.value
        if not _is_real_number(now) or not _is_real_number(base) or not base:
            return None
        return float(now - base) / float(base)  # type: ignore[operator]  # both are numbers


@immutable(slots=False)
class CheckedModel:
    """One model with its numbers, or with why there are none."""

    target: Target
    card: Card | None = None
    sha256: str = ""
    base: Stored | None = None
    judged: tuple[Judged, ...] = ()
    error: str = ""
    code: str = ""

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """Return what is wrong with the model, or missing beside it."""
        return () if self.card is None else tuple(remark for remark in self.card.diagnostics if remark.severity > Severity.NOTE)

    @cached_property
    def numbers(self) -> dict[str, Quantity]:
        """Everything that a budget may be about."""
        return {} if self.card is None else numbers_of(self.card)

    @property
    def file(self) -> str:
        """Return whether the file is the one of the baseline: same, changed or new; empty where its hash is not known."""
        if self.base is None:
            return "new"
        return "" if not (self.sha256 and self.base.sha256) else "same" if self.sha256 == self.base.sha256 else "changed"

    def stored(self) -> Stored:
        assert self.card is not None
        is_kept = {name: NUMBERS[name] is not Kind.BOOL and not _unsized(self.card, name) for name in self.numbers}
        numbers = {name: _stored_number(number) for name, number in self.numbers.items() if is_kept[name]}
        kept = {name: number for name, number in sorted(numbers.items()) if number is not None and number != Bounded()}
        return Stored(self.sha256, self.card.memory.runtime, kept)


@immutable(slots=False)
class Checked:
    """All models of a plan, judged."""

    plan: Plan
    models: tuple[CheckedModel, ...]
    baseline: Baseline | None

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        return tuple(judged for model in self.models for judged in model.judged)

    def of(self, status: Status) -> list[Judged]:
        return [verdict for verdict in self.judged if verdict.status == status]

    @property
    def failed_models(self) -> list[CheckedModel]:
        return [model for model in self.models if model.card is None]

    @property
    def is_passed(self) -> bool:
        return not (self.of("exceeded") or self.of("unjudged") or self.failed_models or self.plan.missing)


def numbers_of(made: Card) -> dict[str, Quantity]:
    """Return the numbers of a card that budgets may be about, with their intervals."""
    numbers = {name: quantity for name, quantity in made.quantities().items() if name in NUMBERS}
    flat = made.fields()
    for name in NUMBERS:
        if name not in numbers and name in flat:
            value = flat[name]
            numbers[name] = Quantity(value, Provenance.EXACT if value is not None else Provenance.UNKNOWN)
    numbers["unknown"] = Quantity(sum(int(flat[name] or 0) for name in UNKNOWN_PARTS))
    return numbers


def check(
    plan: Plan, instruments: Sequence[Instrument] = (), told: Told | None = None, *, anew: bool = False, trust: bool = False
) -> Checked:
    """Look at every model of a plan and judge its budgets. With `anew` the baseline is to be written: an unreadable one is no error.

    Scripts that the file names, as in `./train.py:build`, run only with `trust`: the file may come from a stranger.
    """
    try:
        baseline = read_baseline(plan.baseline, plan.baseline_name)
    except UsageError:
        if not anew:
            raise
        baseline = None
    models: list[CheckedModel] = []
    for number, target in enumerate(plan.targets):
        if told is not None:
            told(number, len(plan.targets), target.key)
        models.append(_looked_at(target, baseline, instruments, trust))
        gc.collect()  # graphs are full of cycles: without it the next model comes on top of this one
    return Checked(plan, tuple(models), baseline)


def _looked_at(target: Target, baseline: Baseline | None, instruments: Sequence[Instrument], trust: bool) -> CheckedModel:
    from irscope.tools.card import make_card  # not at the top: `irscope check --help` does without all that it looks up

    base = None if baseline is None else baseline.models.get(target.key)
    if not trust and is_script(str(target.path)):
        return CheckedModel(target, base=base, error="it is made by a script, which runs only with --trust", code="IRS684")
    try:
        model = open_model(target.path, target.options, settings=target.settings, instruments=instruments)
        made = make_card(model, chosen_of(target.settings), brief=True)
    except Cancelled:
        raise
    except IrscopeError as error:
        said = f"{error.message}{f' ({error.hint})' if error.hint else ''}".partition("\n")[0]
        return CheckedModel(target, base=base, error=said, code=error.code)
    one = CheckedModel(target, made, model.info().sha256, base)
    judged = tuple(_judged(one, budget, baseline) for budget in target.budgets)
    return replace(one, judged=judged)


def _judged(model: CheckedModel, budget: Budget, baseline: Baseline | None) -> Judged:
    assert model.card is not None
    now = model.numbers[budget.field]
    unsized = _unsized(model.card, budget.field)
    known = None if model.base is None else model.base.numbers.get(budget.field)
    base = None if known is None else _quantity(known)
    if unsized:
        return Judged(model.target.key, budget, "unjudged", Quantity(None, Provenance.UNKNOWN, now.formula), None, unsized)
    if not budget.change:
        status, reason = _against_limit(budget, now, model)
        return Judged(model.target.key, budget, status, now, base, reason)
    lacking = _why_no_base(model, budget, baseline, base)
    if lacking or base is None:
        return Judged(model.target.key, budget, "unjudged", now, None, lacking)
    status, reason = _against_base(budget, now, base, model)
    if status == "exceeded" and model.file == "same":
        wrote = baseline.irscope if baseline is not None else ""
        reason += "; the file is that of the baseline" + (f", which irscope {wrote} wrote" if wrote != __version__ else "")
    return Judged(model.target.key, budget, status, now, base, reason)


def _unsized(made: Card, name: str) -> str:
    """Return the reason why a number does not hold for stated sizes; empty where it does."""
    symbols = [size.symbol for size in made.sizes if size.is_assumed]
    if not symbols or name in _OF_FILE or name.startswith("unknown"):
        return ""
    if name in FIGURES and FIGURES[name].has_formula and made.quantities()[name].formula is None:
        return ""
    return f"it depends on {', '.join(symbols)}, and no size is given: bind = {{ {', '.join(f'{symbol} = 8' for symbol in symbols)} }}"


def _why_no_base(one: CheckedModel, budget: Budget, baseline: Baseline | None, base: Quantity | None) -> str:
    """Return the reason why there is no base for a change; empty where there is a base."""
    update = "`irscope check --update` writes it"
    if baseline is None:
        return f"there is no baseline; {update}"
    if one.base is None:
        near = [key for key in baseline.models if key.rpartition("@")[0] == one.target.key.rpartition("@")[0]]
        other = f", only of {', '.join(key.rpartition('@')[2] for key in near)}" if near else ""
        return f"the baseline has no such model{other}; {update}"
    assert one.card is not None
    if budget.field in _OF_RUNTIME and one.base.runtime != one.card.memory.runtime:
        return f"the baseline is for {one.base.runtime or _NO_RUNTIME}, this model for {one.card.memory.runtime or _NO_RUNTIME}; {update}"
    return "" if base is not None else f"the baseline does not have this number; {update}"


def _against_limit(budget: Budget, now: Quantity, model: CheckedModel) -> tuple[Status, str]:
    kind, limit = budget.kind, budget.limit
    low, high = _ends(now, budget.field)
    sure = surely(budget.operator, low, high, limit)
    if sure is not None:
        return ("ok", "") if sure else ("exceeded", _beyond(budget, now, low if now.value is None else now.value))
    if now.value is None:
        least = f"; it is at least {humanise(low, kind)}" if low is not None else ""
        return "unjudged", f"it is not known: {_why_unknown(model, budget.field)}{least}"
    if not model.target.surely:
        kept = surely(budget.operator, _number(now.value), _number(now.value), limit)
        return ("ok", "as modelled, not surely") if kept else ("exceeded", _beyond(budget, now, now.value))
    return "unjudged", _straddling(now, kind)


def surely(operator: str, low: Number | bool | None, high: Number | bool | None, limit: Number | bool) -> bool | None:
    """Return whether everything from `low` to `high` compares so with the limit; None where only part of it may. None as an end is no
    bound.
    """
    least = -math.inf if low is None else low
    most = math.inf if high is None else high
    if operator in ("<", "<="):
        kept, broken = (most < limit, least >= limit) if operator == "<" else (most <= limit, least > limit)
    elif operator in (">", ">="):
        kept, broken = (least > limit, most <= limit) if operator == ">" else (least >= limit, most < limit)
    else:
        is_it, is_not = least == most == limit, not least <= limit <= most
        kept, broken = (is_it, is_not) if operator == "=" else (is_not, is_it)
    return True if kept else False if broken else None


def _against_base(budget: Budget, now: Quantity, base: Quantity, model: CheckedModel) -> tuple[Status, str]:
    """Both are of the same kind of model, so what is not known about them is too: values are compared with values, ends with ends."""
    pairs = [("", _number(now.value), _number(base.value))]
    if model.target.surely:
        pairs += [("at its lower end ", _number(now.lo), _number(base.lo)), ("at its upper end ", _number(now.hi), _number(base.hi))]
    if now.value is None or base.value is None:
        whose, why = ("it", _why_unknown(model, budget.field)) if now.value is None else ("that of the baseline", "it was not then")
        return "unjudged", f"{whose} is not known: {why}"
    for place, new, old in pairs:
        if new is None and old is None:
            continue
        if new is None or old is None:
            return (
                "unjudged",
                f"it has no {place.split()[2]} bound{' now' if new is None else ' in the baseline'}, but one on the other side",
            )
        if not _change_within(budget, new, old):
            return "exceeded", f"{place}it was {humanise(old, budget.kind)}, {_grown(new, old, budget.kind)}"
    return "ok", ""


def _change_within(budget: Budget, new: Number, old: Number) -> bool:
    limit = budget.limit
    if budget.change == "amount":
        return bool(surely(budget.operator, new - old, new - old, limit))
    # new / old - 1 compared with the limit, without dividing: integers stay exact, and nothing may grow where there was nothing.
    bound = limit * abs(old)
    return bool(surely(budget.operator, new - old, new - old, bound))


def _grown(new: Number, old: Number, kind: Kind) -> str:
    if new == old:
        return "and still is"
    share = f" ({(new - old) / abs(old):+.2%})" if old else ""
    return f"now {humanise(abs(new - old), kind)} {'more' if new > old else 'less'}{share}"


def _ends(now: Quantity, name: str) -> tuple[Number | bool | None, Number | bool | None]:
    """Return the least and the most that a number may be."""
    if isinstance(now.value, bool) and now.provenance is Provenance.EXACT:
        return now.value, now.value
    if name == "least_time" and now.interval is None and now.provenance is Provenance.MODELLED:
        return _number(now.value), _number(now.value)  # by its definition what the model of the device gives
    return now.ends


def _beyond(budget: Budget, now: Quantity, value: object) -> str:
    kind = budget.kind
    said = humanise(value, kind) if isinstance(value, int | float) else "unknown"
    sign = "at least " if now.value is None else "~" if now.provenance is Provenance.MODELLED else ""
    limit = budget.limit
    if isinstance(limit, bool) or not _is_real_number(value) or value == limit or not limit:
        return f"it is {sign}{said}"
    over = abs(value - limit)  # type: ignore[operator]  # both are numbers
    return f"it is {sign}{said}, {humanise(over, kind)} {'too much' if value > limit else 'too little'}"  # type: ignore[operator]


def _straddling(now: Quantity, kind: Kind) -> str:
    if now.provenance is Provenance.ASSUMED:
        return f"{humanise(now.value, kind)} rests on a guess about the run"
    low, high = now.ends
    upper = "no upper end is known" if high is None else f"{humanise(high, kind)} at most"
    may = "its interval is unknown" if low is None else f"{humanise(low, kind)} at least, {upper}"
    return f'~{humanise(now.value, kind)} is modelled ({may}), which does not decide it; modelled = "{AS_MODELLED}" counts the number alone'


def _why_unknown(model: CheckedModel, name: str) -> str:
    made = model.card
    assert made is not None
    if made.failure is not None and name not in _OF_FILE:
        return made.failure.message.partition("\n")[0]
    if name in _OF_RUNTIME and made.memory.why:
        return made.memory.why
    if name == "size_on_disk":
        return "the model is no file"
    if made.unknown.operators and name not in _OF_FILE:
        return f"no cost is known of {few(made.unknown.operators, 5, '`irscope ops --coverage MODEL`')}"
    if made.unknown.tensors and name not in _OF_FILE:
        return f"{made.unknown.tensors:,} tensors have no known size"
    return "the file does not say" if made.identity.nodes is not None else "the file holds weights but no graph"


def _is_real_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
