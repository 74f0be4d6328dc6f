"""Combinations of a program's options: each is simulated once, and what is worth it of memory, time and money is named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from irscope.devices import Target
from irscope.errors import ExitCode, UsageError
from irscope.immutable import immutable
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tools.fit import room_of
from irscope.tools.simulate_ranks import Children, Program, how_it_ended, most_reserved, peak_of
from irscope.tools.simulation import Options, target_for

SCHEMA: Final = "irscope.grid/1"
GPUS: Final = "gpus"
"""The axis that is not an option of the program: ranks of its world."""
_MOST: Final = 256
"""Combinations: each is a run of the program of some seconds."""
_BATCHES: Final = ("batch", "batch_size", "bs", "micro_batch", "micro_batch_size", "per_device_train_batch_size", "train_batch_size")
"""Options that say how many samples a rank has in a step."""
_FITS: Final = {"fits": "yes", "perhaps": "perhaps", "oom": "no", "fails": "fails"}


@immutable
class Axis:
    """An option of the program, or a setting of --set, with the values that are tried."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Axis:
        """Return the values that the text of --grid names."""
        name, _, listed = text.partition("=")
        values = tuple(listed.split(","))
        if not name or not all(values) or len({*values}) < len(values):
            raise UsageError(f"--grid {text!r} is not of the form NAME=VALUE,VALUE,...", code="IRS643", hint="`--grid batch=8,16,32`")
        return cls(name, values)

    @classmethod
    def gpus(cls, text: str) -> Axis:
        """Return the worlds that the text of --gpus names."""
        values = tuple(text.split(","))
        if not all(value.isdecimal() and int(value) for value in values):
            raise UsageError(f"--gpus {text!r} is not a list of numbers of GPUs", code="IRS643", hint="`--gpus 8,16,64`")
        return cls(GPUS, values)


@immutable(slots=False)
class Combination:
    """One run of the program."""

    values: Mapping[str, str]
    outcome: str
    """"fits" surely, "perhaps", "oom" or "fails"."""
    reserved: int = 0
    most: int = 0
    """Reserved where work on other streams, and NCCL's watchdog, are as late as they may be."""
    seconds: float | None = None
    """A step, predicted; None where something in it is not known."""
    interval: tuple[float, float] | None = None
    ranks: int = 1
    why: str = ""
    exit_code: int = 0

    @property
    def batch(self) -> int | None:
        """Samples of a rank in a step, where an option says so."""
        said = [value for name, value in self.values.items() if name.lower().replace("-", "_") in _BATCHES]
        return int(said[0]) if len(said) == 1 and said[0].isdecimal() else None

    @property
    def throughput(self) -> float | None:
        """Samples a second of all ranks; steps a second where no option says how many samples a step has."""
        return None if not self.seconds else (self.batch or 1) * (self.ranks if self.batch else 1) / self.seconds

    def price(self, an_hour: float) -> float | None:
        """Of a million samples, else of a thousand steps, by the price of a GPU's hour."""
        units = 1e6 if self.batch else 1e3
        return None if self.throughput is None else units / self.throughput / 3600 * self.ranks * an_hour

    @property
    def text(self) -> str:
        """Its values, as they were given."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@immutable(slots=False)
class Grid:
    """All combinations, and which of them no other beats."""

    program: str
    target: Target
    room: int
    axes: Sequence[Axis]
    runs: Sequence[Combination]
    price: float = 0.0
    looked_at: str = ""
    interrupted: bool = False

    @property
    def front(self) -> list[Combination]:
        """Return the combinations that surely fit and than which none is better in memory or time and worse in none."""
        known = [run for run in self.runs if run.outcome == "fits" and run.throughput is not None]
        return [one for one in known if not any(_beats(other, one) for other in known)]

    @property
    def fastest(self) -> Combination | None:
        """Return the fastest of those that surely fit."""
        return max(self.front, key=lambda combination: combination.throughput or 0.0, default=None)

    @property
    def unit(self) -> str:
        """Return what is counted in a second."""
        return "samples" if all(run.batch for run in self.runs) else "steps"

    @property
    def exit_code(self) -> int:
        """0 where a combination fits."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if any(run.outcome in ("fits", "perhaps") for run in self.runs):
            return ExitCode.OK
        return next((run.exit_code for run in self.runs if run.outcome == "fails"), ExitCode.FINDINGS)

    def _answer(self) -> str:
        if self.fastest is not None:
            speed = f"~{self.fastest.throughput:,.4g} {self.unit} a second"
            return f"{self.fastest.text} is the fastest that surely fits: {speed}, {humanise(self.fastest.most, Kind.BYTES)} reserved"
        if any(run.outcome == "fits" for run in self.runs):
            return "the time of no combination that fits is known"
        if any(run.outcome == "perhaps" for run in self.runs):
            return "no combination is guaranteed to fit"
        return "no combination fits"

    def report(self) -> Report:
        """Return the same for people."""
        front = {id(combination) for combination in self.front}
        columns = [Column(axis.name) for axis in self.axes]
        columns += [Column("fits"), Column("reserved", Kind.BYTES), Column("step", Kind.SECONDS), Column(f"{self.unit}/s", Kind.NUMBER)]
        columns += [Column("price", Kind.NUMBER)] if self.price else []
        columns += [Column("front"), Column("where")]
        rows = [
            [
                *run.values.values(),
                _FITS[run.outcome],
                run.most or None,
                _modelled(run.seconds, run.interval),
                _modelled(run.throughput),
                *([_modelled(run.price(self.price))] if self.price else []),
                "yes" if id(run) in front else "",
                run.why,
            ]
            for run in self.runs
        ]
        summary: dict[str, object] = {"for": self.target.text, "memory_bytes": self.room, "looked_at": self.looked_at}
        summary["front"] = "no other that surely fits takes less memory and is as fast, or is faster and takes as little"
        if self.price:
            units = "a million samples" if self.unit == "samples" else "a thousand steps"
            summary["price"] = f"of {units}, at {self.price:g} an hour and GPU"
        tables = (Table.of(rows, columns, "combinations"),)
        return Report("grid", headline=(self._answer(),), summary=summary, tables=tables, series=self._drawn())

    def _drawn(self) -> tuple[Series, ...]:
        """Return the front as a line: speed over memory."""
        points = sorted(self.front, key=lambda combination: combination.most)
        if len(points) < 2:
            return ()
        x, y = Column("reserved", Kind.BYTES), Column(f"{self.unit}/s", Kind.NUMBER)
        data: dict[str, list[object]] = {x.key: [point.most for point in points], y.key: [_modelled(point.throughput) for point in points]}
        return (Series("the front", x, (y,), data, stacked=False, sampled=True, names=[point.text for point in points]),)

    def document(self) -> Document:
        """Return the report alone; its JSON is of the schema irscope.grid/1."""
        return Document(model=ModelInfo("", ""), reports=(self.report(),), own_json=lambda _: self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the document that `--format json` prints."""
        front = {id(combination) for combination in self.front}
        return {
            "schema": SCHEMA,
            "program": self.program,
            "target": self.target.text,
            "memory_bytes": self.room,
            "unit": self.unit,
            "price_an_hour": self.price or None,
            "fastest": None if self.fastest is None else dict(self.fastest.values),
            "rows": [
                {
                    "values": dict(run.values),
                    "outcome": run.outcome,
                    "ranks": run.ranks,
                    "reserved_bytes": run.reserved or None,
                    "most_reserved_bytes": run.most or None,
                    "step_seconds": run.seconds,
                    "step_seconds_interval": run.interval,
                    "throughput": run.throughput,
                    "price": run.price(self.price) if self.price else None,
                    "front": id(run) in front,
                    "why": run.why,
                }
                for run in self.runs
            ],
        }


def _beats(combination: Combination, other: Combination) -> bool:
    """Return whether a combination is better in memory or speed, and worse in neither."""
    mine, theirs = (-combination.most, combination.throughput or 0.0), (-other.most, other.throughput or 0.0)
    return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))


def _modelled(value: float | None, interval: tuple[float, float] | None = None) -> Quantity | None:
    return None if value is None else Quantity(value, Provenance.MODELLED, None, "", *(interval or ()))


def check_axes(axes: Sequence[Axis], program: Program) -> None:
    """Raise UsageError where a name stands twice, nothing takes an axis, or there are too many combinations."""
    names = [axis.name for axis in axes]
    if len({*names}) < len(names):
        raise UsageError(f"--grid names {next(name for name in names if names.count(name) > 1)!r} twice", code="IRS643", hint="once each")
    if math.prod(len(axis.values) for axis in axes) > _MOST:
        raise UsageError(f"--grid needs more than {_MOST} combinations", code="IRS643", hint="each is a run of the program")
    for axis in axes:
        if axis.name != GPUS and not _is_setting(axis):
            program.check_place("--grid", axis.name, ",".join(axis.values), "where the value goes, and --set has no such name")


def _is_setting(axis: Axis) -> bool:
    """Return whether an axis is a setting of --set. Raises UsageError for a value that it does not take."""
    from irscope.frontends.simulation.settings import NAMES, parse_setting  # imports torch

    if axis.name not in NAMES:
        return False
    for value in axis.values:
        parse_setting(f"{axis.name}={value}")
    return True


def run_grid(program: Program, options: Options, axes: Sequence[Axis], price: float = 0.0) -> Grid:
    """Simulate each combination, as many at once as there are processors."""
    check_axes(axes, program)
    target = target_for(options)
    room = room_of(None, target)
    combinations = [dict(zip([axis.name for axis in axes], values, strict=True)) for values in itertools.product(*(a.values for a in axes))]
    settings = {axis.name for axis in axes if axis.name != GPUS and _is_setting(axis)}
    programs, several = [], []
    for values in combinations:
        programs.append(program.with_values(values))
        more = tuple(f"{name}={value}" for name, value in values.items() if name in settings)
        world = int(values[GPUS]) if GPUS in values else options.world
        several.append(replace(options, settings=(*options.settings, *more), world=world))
    with Children(program, options.told) as children:
        documents = children.run(several, "combinations", programs)
        runs = [_ran(values, document, chosen, room) for values, document, chosen in zip(combinations, documents, several, strict=True)]
        looked = f"the first {options.steps} steps of each run (--steps N, 0 for the whole program)" if options.steps else "whole runs"
        name = " ".join((program.script, *program.arguments))
        return Grid(name, target, room, axes, runs, price, looked, children.interrupted)


def _ran(values: Mapping[str, str], document: Mapping[str, Any], options: Options, room: int) -> Combination:
    ranks = max(options.world, 1)
    outcome, why, code = how_it_ended(document)
    if outcome != "fits":
        return Combination(values, outcome, ranks=ranks, why=f"refused at {why}" if outcome == "oom" else why, exit_code=code)
    most, step = most_reserved(document), document["steps"][-1] if document["steps"] else {}
    low, high = step.get("seconds_interval") or (None, None)
    interval = None if low is None or high is None else (low, high)
    surely = "fits" if most <= room else "perhaps"
    return Combination(values, surely, peak_of(document, "reserved"), most, step.get("seconds"), interval, ranks)
