"""One program simulated many times: which setting lowers the peak most, and what combinations of options are worth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from irscope.devices import Target
from irscope.errors import ExitCode, UsageError
from irscope.immutable import immutable
from irscope.memory.tape import COUNTERS
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, bytes_text, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tools.simulate_ranks import Children, Program, how_it_ended, most_reserved, peak_of, traffic_seconds
from irscope.tools.simulation import Options, error_line, target_for

_LEAST: Final = 0.01
"""Parts of the peak that are not worth a run."""
_SENT: Final = 1 << 20
"""Bytes by which the traffic of a step at least changes where the change is shown."""
_SETTLED: Final = 2
"""Steps that are run beyond the first of those that are all alike."""
_MACHINE: Final = 8
"""Devices of one machine, where nothing else was said."""
_ENDED: Final = frozenset({"finished", "steps"})
_FUSED: Final = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
_BUDGET: Final = "compile.activation_memory_budget"
_BUDGETS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares that are tried of what the partitioner keeps by itself."""
_FEW_BUDGETS: Final = (0.25, 0.5)
"""Those that are tried beside settings of other kinds: each takes as long as to compile the program."""
_SWITCHES: Final = {
    "donated_buffer": "torch._functorch.config.donated_buffer = {}",
    "reorder_for_peak_memory": "torch._inductor.config.reorder_for_peak_memory = {}",
    "cudagraphs": "torch._inductor.config.triton.cudagraphs = {}  # as mode='reduce-overhead' does",
}
"""Settings of torch.compile that are on or off, and how they are written."""


class Setting(NamedTuple):
    """One change, and how the user writes it."""

    name: str
    code: str
    change: str = ""
    """NAME=VALUE of `--set`."""
    conf: str = ""
    """Of PYTORCH_CUDA_ALLOC_CONF."""

    @property
    def subject(self) -> str:
        """Return what it changes: two settings of one subject are not taken together."""
        return self.conf.partition(":")[0] or self.change.partition("=")[0]


@immutable(slots=False)
class Trial:
    """A run with some settings."""

    settings: tuple[Setting, ...]
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return " + ".join(setting.name for setting in self.settings)

    @property
    def ended(self) -> bool:
        """Return whether the program got as far as without the settings, so that its figures are comparable."""
        return self.document["outcome"] in _ENDED

    @property
    def is_applied(self) -> bool:
        """Return whether the program met everything that the settings are about."""
        return all(one["applied"] for one in self.document.get("settings", ()))


@immutable(slots=False)
class Tried:
    """Effect of each of the settings on the peak."""

    before: Mapping[str, Any]
    """The document of the program as it is; on a device without limit where it ran out of memory."""
    trials: Sequence[Trial]
    """The one that saves most first."""
    room: int | None
    link: float = 0
    interrupted: bool = False
    left_out: Sequence[str] = ()
    """Settings that cannot change anything, and why."""

    def saved(self, trial: Trial, key: str = "reserved") -> int | None:
        """Return the bytes less at the peak; None where it is not known."""
        if not trial.ended or not peak_of(self.before, key):
            return None
        return peak_of(self.before, key) - peak_of(trial.document, key)

    def fits(self, trial: Trial) -> bool | None:
        """Return whether the device is large enough."""
        if self.room is None or trial.document["outcome"] in ("error", "needs_value"):
            return None
        return trial.ended and most_reserved(trial.document) <= self.room

    @property
    def needed(self) -> int | None:
        """Return the most that the program reserves as it is, where the device has room for everything."""
        return peak_of(self.before, "reserved") if self.before["outcome"] in _ENDED else None

    def best(self) -> Trial | None:
        """Return what saves most."""
        return next((trial for trial in self.trials if (self.saved(trial) or 0) > 0), None)

    @property
    def verdict(self) -> str:
        """In a line."""
        best = self.best()
        if best is None:
            return "no setting that was tried lowers the peak"
        said = f"{best.name}: {bytes_text(self.saved(best) or 0)} less"
        single = next((trial for trial in self.trials if len(trial.settings) == 1 and (self.saved(trial) or 0) > 0), best)
        if single is not best:
            said = f"{single.name}: {bytes_text(self.saved(single) or 0)} less; with " + (
                " + ".join(one.name for one in best.settings if one not in single.settings) + f": {bytes_text(self.saved(best) or 0)} less"
            )
        fits = self.fits(best)
        return said + ("" if fits is None else ", fits" if fits else ", still does not fit")

    def tables(self) -> Iterator[Table]:
        """Yield what each saves, and how it is written."""
        rows = []
        for one in self.trials:
            less, sent = self.saved(one), self._sent_more(one)
            fits = self.fits(one)
            said = "?" if fits is None else "yes" if fits else "no"
            if one.document["outcome"] in ("error", "needs_value"):
                said = "fails: " + error_line(str(one.document["error"]))[:60]
            elif not one.is_applied:
                said += ": not used by the program"
            reserved, allocated = (peak_of(one.document, key) if one.ended else None for key in ("reserved", "allocated"))
            rows.append((one.name, said, reserved, less, None if less is None or not self.needed else less / self.needed, allocated, *sent))
        columns = ["setting", "fits", "reserved:bytes", "saved:bytes", "saved part:ratio", "allocated:bytes", "sent more a step:bytes"]
        columns.append("at least longer a step:seconds")
        shown = len(columns) if self.link else len(columns) - 1
        if not self.link and not any(abs(row[-2] or 0) >= _SENT for row in rows):
            shown -= 1
        yield Table.of([row[:shown] for row in rows], columns[:shown], "settings, each simulated: the most saved first")
        if self.left_out:
            yield Table.of([tuple(one.split(": ", 1)) for one in self.left_out], ["setting", "why it was not tried"], "settings not tried")

    def _sent_more(self, trial: Trial) -> tuple[int | None, float | None]:
        """Return what collectives send in a step beyond what they do without the settings, and the least time of that."""
        if not trial.ended:
            return None, None
        (before, least), (now, least_now) = (_traffic(one, self.link) for one in (self.before, trial.document))
        return round(now - before), least_now - least

    @property
    def notes(self) -> tuple[str, ...]:
        """Return how the settings that help are written."""
        single = [trial for trial in self.trials if len(trial.settings) == 1 and (self.saved(trial) or 0) > _LEAST * (self.needed or 0)]
        best_budget = next((one for one in single if one.settings[0].subject == _BUDGET), None)
        return tuple(f"{one.name}: {one.settings[0].code}" for one in single if one is best_budget or one.settings[0].subject != _BUDGET)

    def with_report(self, report: Report) -> Document:
        """Return the report of the program as it is, with what was tried behind its verdict."""
        summary: dict[str, object] = {}
        for key, value in report.summary.items():
            summary[key] = value
            if key == "verdict":
                if self.room is not None and (self.needed or 0) > self.room:
                    summary[key] = (
                        f"{str(value).partition(' by ')[0]} by {bytes_text((self.needed or 0) - self.room)}: "
                        f"it needs {bytes_text(self.needed or 0)}"
                    )
                summary["best setting"] = self.verdict
        return Document(
            "",
            ModelInfo("", ""),
            (replace(report, summary=summary, tables=(*self.tables(), *report.tables), notes=(*self.notes, *report.notes)),),
        )

    def to_json(self) -> dict[str, Any]:
        """`tried` of the document."""
        return {
            "before": {key: peak_of(self.before, key) for key in COUNTERS},
            "trials": [
                {
                    "settings": [{"name": setting.name, "code": setting.code} for setting in trial.settings],
                    "outcome": trial.document["outcome"],
                    "error": trial.document["error"],
                    "applied": trial.is_applied,
                    "peak": {key: peak_of(trial.document, key) for key in COUNTERS},
                    "saved": {key: self.saved(trial, key) for key in ("allocated", "reserved")},
                    "fits": self.fits(trial),
                }
                for trial in self.trials
            ],
            "not_tried": list(self.left_out),
        }


def _traffic(document: Mapping[str, Any], link: float) -> tuple[float, float]:
    """Return what collectives send in a step, and the least time of that."""
    steps = max(len(document["steps"]), 1)
    return sum(one["bytes"] for one in document["collectives"]) / steps, traffic_seconds(document, link) / steps


# -- what is worth trying --------------------------------------------------------------------------------------------------


def candidates(document: Mapping[str, Any], options: Options, *, compiler_alone: bool = False) -> tuple[list[Setting], list[str]]:
    """Return the settings that may lower the peak of what a program does, and those that cannot, with the reason."""
    uses: Mapping[str, Any] = document.get("uses", {})
    left_out: list[str] = []
    if compiler_alone:
        return list(_of_compiler(document, left_out, _BUDGETS)), left_out
    found = [
        *_of_allocator(document, options, left_out),
        *_of_ddp(uses.get("ddp")),
        *_of_fsdp(uses.get("fsdp"), options, left_out),
        *_of_optimizers(uses.get("optimizer", {})),
        *_of_blocks(document, left_out),
        *(_of_compiler(document, left_out, _FEW_BUDGETS) if document.get("compiled") else ()),
    ]
    if uses.get("set_to_none") is False:
        found.append(Setting("zero_grad(set_to_none=True)", "optimizer.zero_grad()  # not set_to_none=False", "zero_grad.set_to_none=True"))
    return found, left_out


def _of_allocator(document: Mapping[str, Any], options: Options, left_out: list[str]) -> Iterator[Setting]:
    reserved, allocated = peak_of(document, "reserved"), peak_of(document, "allocated")
    if document["outcome"] != "oom" and reserved - allocated < _LEAST * reserved:
        left_out.append(f"options of the allocator: {bytes_text(reserved - allocated)} of what is reserved are not allocated at the peaks")
        return
    for conf in ("expandable_segments:True", "max_split_size_mb:128", "garbage_collection_threshold:0.8"):
        if conf.partition(":")[0] in options.alloc_conf:
            continue
        if conf.startswith("garbage"):
            # Nothing is collected before the process comes near a limit of its own.
            left_out.append(f"{conf}: it does nothing without torch.cuda.set_per_process_memory_fraction")
            continue
        yield Setting(conf, f"PYTORCH_CUDA_ALLOC_CONF={conf}", conf=conf)


def _of_ddp(used: Mapping[str, Any] | None) -> Iterator[Setting]:
    if used is None:
        return
    if not used["gradient_as_bucket_view"]:
        yield Setting(
            "gradient_as_bucket_view=True",
            "DistributedDataParallel(model, gradient_as_bucket_view=True)",
            "ddp.gradient_as_bucket_view=True",
        )
    if not used["static_graph"]:
        yield Setting(
            "static_graph=True",
            "DistributedDataParallel(model, static_graph=True)  # where every step uses the same parameters",
            "ddp.static_graph=True",
        )
    for size in (5, 100):
        if used["bucket_cap_mb"] != size:
            yield Setting(f"bucket_cap_mb={size}", f"DistributedDataParallel(model, bucket_cap_mb={size})", f"ddp.bucket_cap_mb={size}")


def _of_fsdp(used: Mapping[str, Any] | None, options: Options, left_out: list[str]) -> Iterator[Setting]:
    if used is None:
        return
    now = used["reshard_after_forward"]
    wanted: list[bool | int] = [True, False]
    machine = options.local or _MACHINE
    if used["shards"] > machine and used["shards"] % machine == 0:
        wanted.append(machine)
    for value in wanted:
        if now != [value]:
            name = f"reshard_after_forward={value}"
            yield Setting(name, f"fully_shard(block, {name})", f"fsdp.{name}")
    if used["param_dtype"] in ([None], ["f32"], [None, "f32"]):
        code = "fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))  # other numbers"
        yield Setting("param_dtype=bfloat16", code, "fsdp.param_dtype=bf16")
    else:
        left_out.append(f"param_dtype=bfloat16: FSDP computes in {', '.join(str(one) for one in used['param_dtype'])} as it is")


def _of_optimizers(used: Mapping[str, Mapping[str, Any]]) -> Iterator[Setting]:
    names = [name for name, keys in used.items() if "foreach" in keys and keys["foreach"] is not False and not keys.get("fused")]
    if names:
        yield Setting("foreach=False", f"{names[0]}(parameters, foreach=False)  # slower", "optimizer.foreach=False")
    names = [name for name in names if name in _FUSED and "fused" in used[name]]
    if names:
        yield Setting("fused=True", f"{names[0]}(parameters, fused=True)", "optimizer.fused=True")


def _of_blocks(document: Mapping[str, Any], left_out: list[str]) -> Iterator[Setting]:
    """Yield the modules of the class that holds most of the activations at the peak, and of the class that does so within these."""
    for one in document.get("blocks", ()):
        short = one["class"].rpartition(".")[2]
        code = f"apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, {short}))"
        yield Setting(f"checkpoint {short}", code, f"checkpoint={one['class']}")
    if not document.get("blocks"):
        left_out.append("activation checkpointing: no module that holds others keeps much of the activations at the peak")


def _of_compiler(document: Mapping[str, Any], left_out: list[str], budgets: Sequence[float]) -> Iterator[Setting]:
    """Shares of what the partitioner keeps, and what can be turned on or off."""
    compiled = document.get("compiled")
    if not compiled:
        left_out.append("torch.compile: the program compiles nothing")
        return
    used: Mapping[str, Any] = document["uses"].get("compile", {})
    has_backward = any(one["part"] == "backward" for one in compiled["graphs"])
    if not has_backward:
        left_out.append("activation_memory_budget, donated_buffer: no graph that was compiled has a backward")
    elif "activation_memory_budget" not in used:
        left_out.append("activation_memory_budget: this version of torch has no such setting")
    else:
        for budget in budgets:
            if budget != used["activation_memory_budget"]:
                yield Setting(
                    f"budget {budget:g}", f"torch._functorch.config.activation_memory_budget = {budget:g}", f"{_BUDGET}={budget:g}"
                )
    for key, code in _SWITCHES.items():
        if key not in used:
            left_out.append(f"{key}: this version of torch has no such setting")
        elif has_backward or key != "donated_buffer":
            value = not used[key]
            yield Setting(f"{key}={value}", code.format(value), f"compile.{key}={value}")


# -- trying ----------------------------------------------------------------------------------------------------------------


def _settled(document: Mapping[str, Any]) -> int:
    """After how many steps nothing new comes; 0 where the whole program is needed."""
    steps = document["steps"]
    if not steps or peak_of(document, "reserved") > max(step["reserved"]["peak"] for step in steps):
        return 0
    alike = next((count for count, step in enumerate(reversed(steps)) if step != steps[-1]), len(steps))
    wanted = len(steps) - alike + 1 + _SETTLED
    return wanted if wanted < len(steps) else 0


def try_settings(
    program: Program,
    options: Options,
    document: Mapping[str, Any],
    room: int | None,
    *,
    compiler_alone: bool = False,
) -> Tried:
    """Simulate the program once more with each of the settings that may help, then with the best ones together."""
    with Children(program, options.told) as children:
        return _tried(children, options, document, room, compiler_alone)


def _tried(children: Children, options: Options, document: Mapping[str, Any], room: int | None, compiler_alone: bool) -> Tried:
    # What a trial needs is asked of a device without limit: a program that runs out of memory tells nothing about how much it needs.
    base = replace(options, boundless=True)
    before: Mapping[str, Any] = document
    if document["outcome"] == "oom":
        [before] = children.run([base], "runs on a device without limit")
    wanted, left_out = candidates(before if before["outcome"] in _ENDED else document, options, compiler_alone=compiler_alone)
    steps = options.steps or _settled(before)

    def run(several: Sequence[tuple[Setting, ...]]) -> list[Trial]:
        made = children.run([_with(replace(base, steps=steps), settings) for settings in several], "settings")
        return [Trial(settings, found) for settings, found in zip(several, made, strict=True) if found["exit_code"] != ExitCode.INTERRUPTED]

    trials = run([*([()] if steps != options.steps else []), *((one,) for one in wanted)]) if wanted else []
    if trials and not trials[0].settings:
        before = trials.pop(0).document
    tried = Tried(before, trials, room, options.link)
    helpful = sorted((trial for trial in trials if (tried.saved(trial) or 0) > _LEAST * (tried.needed or 0)), key=_order(tried))
    best: dict[str, Setting] = {}
    for one in helpful:
        best.setdefault(one.settings[0].subject, one.settings[0])
    together = [tuple(best.values())[:count] for count in (2, 3) if len(best) >= count]
    if together and not children.interrupted:
        trials = [*trials, *run(together)]
    return replace(tried, trials=sorted(trials, key=_order(tried)), interrupted=children.interrupted, left_out=left_out)


def _order(tried: Tried) -> Callable[[Trial], tuple[bool, int, int, int]]:
    """Known ones first, those that save most first; where two save the same the shorter one."""

    def key(trial: Trial) -> tuple[bool, int, int, int]:
        less = tried.saved(trial)
        return less is None, -(less or 0), -(tried.saved(trial, "allocated") or 0), len(trial.settings)

    return key


def _with(options: Options, settings: Sequence[Setting]) -> Options:
    confs = [one for one in (options.alloc_conf, *(setting.conf for setting in settings)) if one]
    return replace(options, alloc_conf=",".join(confs), settings=(*options.settings, *(one.change for one in settings if one.change)))


# Combinations of a program's options: each is simulated once, and what is worth it of memory, time and money is named.

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
        """Return the price of a million samples, else of a thousand steps, by the price of a GPU's hour."""
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
    from irscope.tools.fit import room_of  # not at the top: settings are tried without it

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
