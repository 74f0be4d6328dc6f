"""A recording for the reader: its card with times by operator, type, module and phase, how far it can be trusted, and its pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from irscope.devices import DeviceProfile, find_device
from irscope.devices.catalogue import catalogued
from irscope.errors import IrscopeError, UsageError
from irscope.immutable import immutable
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Names
from irscope.ir.spelling import parse_type
from irscope.ir.types import TensorType
from irscope.memory.run import heights_of, highest_of, stack_place
from irscope.passes.cost.bounds import Rates, rate_name
from irscope.recording.records import OpRecord, Problem, Recording, Sample, Times, figures, peak_of, without_workspaces
from irscope.report.picture import Panel, bars, largest_bars, panels_of
from irscope.report.report import Document, ModelInfo, Report, Subject
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity

_MEASURED, _MODELLED = Provenance.MEASURED, Provenance.MODELLED
_TOP: Final = 10
_ALL_ROWS: Final = " (--rows 0)"
"""The option that gives what a table sums up rows of their own."""
BUSY: Final = 0.1
"""Share of the processors that others may take before a recording is said to be of a busy machine."""
SLOWED: Final = 0.9
"""Share of the fastest clock below which it is said to be of a throttled one."""
_BETWEEN: Final = "between operators"
_MODEL: Final = "(model)"
_STEP: Final = "(optimizer)"
PHASES: Final = ("data", "forward", "backward", "optimizer")


# How far a recording can be trusted.


@immutable
class Trust:
    """State of the machine while it was recorded."""

    shrink: float = 1.0
    """By which times may be shorter on an idle machine at its full clock."""
    reasons: tuple[str, ...] = ()
    is_known: bool = True
    """True where the machine was observed."""

    def seconds(self, times: Times, note: str = "") -> Quantity:
        """Return a median with the interval it lies in: from the least to the 95th percentile, wider below where others held it up."""
        low, median, high = (value / 1e6 for value in (times.min_us, times.median_us, times.p95_us))
        return Quantity(median, _MEASURED, note=note, lo=low * self.shrink, hi=high)


def trust_of(recording: Recording) -> Trust:
    """Return the trust in a recording by what it says of its machine. Where nothing could be read nothing is known, which is not the same
    as an idle machine.
    """
    machine = recording.machine
    if machine is None:
        return Trust(is_known=False)
    shrink, reasons = 1.0, []
    if machine.others is not None and machine.others > BUSY:
        reasons.append(f"others took {machine.others:.0%} of its {machine.cores or '?'} processors")
        shrink *= 1 - machine.others
    if machine.throttled:
        reasons.append(f"the clock was lowered: {', '.join(machine.throttled)}")
    if machine.slowed is not None and machine.slowed < SLOWED:
        reasons.append(f"the clock was at {machine.slowed:.0%} of the fastest")
        shrink *= machine.slowed
    return Trust(max(shrink, 0.01), tuple(reasons), machine.others is not None)


def trust_lines(recording: Recording) -> list[str]:
    """Return the same in words; nothing where nobody looked."""
    machine, trust = recording.machine, trust_of(recording)
    if machine is None:
        return []
    if trust.reasons:
        what = "throttled" if machine.throttled or (machine.slowed or 1) < SLOWED else "busy"
        if what == "throttled" and (machine.others or 0) > BUSY:
            what = "busy and throttled"
        return [f"recorded on a {what} machine ({'; '.join(trust.reasons)}): times may be up to {1 / trust.shrink:.1f} times too long"]
    known = []
    if machine.others is not None:
        known.append(f"others took {machine.others:.0%} of the processors")
    if machine.slowed is not None:
        known.append(f"the clock was at {machine.slowed:.0%} of the fastest")
    return [f"the machine was free: {', '.join(known)}"] if known else ["whether the machine was free is not known"]


_BELOW_LEAST: Final = 0.95
"""A time below this share of the least time shows that the machine is faster than its figures say, which were rounded or taken once."""


def beside_least(seconds: float, least: float | None, title: str) -> str:
    """Return how many times the least time a run took, to be put behind its time; empty where no least time is known."""
    if not least:
        return ""
    if seconds < _BELOW_LEAST * least:
        return (
            f", less than the least time of {title}, {humanise(least, Kind.SECONDS)}: its figures are too low for this machine, "
            "`irscope calibrate` measures them"
        )
    return f", {seconds / least:,.1f} times the least time of {title}"


# The least time of a recorded operator, from the types of what it read and made.


_PRODUCTS: Final = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "_addmm_activation", "MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_CONVOLUTIONS: Final = (
    "convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "_convolution",
    "mkldnn_convolution",
    "Conv",
    "FusedConv",
    "NhwcFusedConv",
)


@immutable
class Least:
    """Of some operators: FLOPs of matrix products and convolutions, bytes of their operands and results, seconds at least."""

    flops: int
    bytes: int
    seconds: float


class Roofline:
    """The least time of operators on a device, by types alone: products and convolutions by their FLOPs, all by their bytes."""

    def __init__(self, device: DeviceProfile) -> None:
        self.device = device
        self._rates = Rates(device)
        self._types: dict[str, TensorType | None] = {}

    def of(self, op: OpRecord) -> Least | None:
        """None where the recording does not say what it read."""
        read, made = ([self._type(text) for text in texts] for texts in (op.inputs, op.outputs))
        known = [reading for reading in (*read, *made) if reading is not None]
        sizes = [one.nbytes for one in known]
        if not known or not all(isinstance(size, int) for size in sizes):
            return None
        name = op.op.rpartition("::")[2]
        moved = sum(size for size in sizes if isinstance(size, int))
        if op.made == 0 and name in _VIEWS:
            return Least(0, 0, 0.0)
        flops = _flops(name, [one for one in read if one is not None], [one for one in made if one is not None])
        memory = moved / self.device.bandwidth.hi if self.device.bandwidth is not None else 0.0
        return Least(flops, moved, max(self._arithmetic(name, flops, known), memory))

    def _arithmetic(self, name: str, flops: int, types: Sequence[TensorType]) -> float:
        if not flops:
            return 0.0
        kind = min((one.dtype for one in types if one.dtype.kind is DTypeKind.FLOAT), key=lambda dtype: dtype.bits or 64, default=DType.F32)
        rate = self._rates.product(rate_name(kind), "convolution" if "onv" in name else "")
        return flops / rate[1].hi if rate is not None else 0.0

    def _type(self, text: str) -> TensorType | None:
        if text not in self._types:
            try:
                found = parse_type(text)
            except IrscopeError:
                found = None
            self._types[text] = found if isinstance(found, TensorType) else None
        return self._types[text]


_VIEWS: Final = frozenset(
    {
        "t",
        "view",
        "detach",
        "transpose",
        "permute",
        "expand",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "as_strided",
        "_unsafe_view",
        "reshape",
        "alias",
        "split",
        "unbind",
    }
)


def _flops(name: str, read: Sequence[TensorType], made: Sequence[TensorType]) -> int:
    """Return the FLOPs of products and convolutions, two for a multiply-add; their backwards compute two of them."""
    if name == "convolution_backward" and len(read) > 2:
        gradient, _, weight = (_shape(tensor_type) for tensor_type in read[:3])
        return 2 * 2 * math.prod(gradient) * math.prod(weight[1:])
    if name in _CONVOLUTIONS and len(read) > 1 and made:
        return 2 * math.prod(_shape(made[0])) * math.prod(_shape(read[1])[1:])
    if name in _PRODUCTS and made:
        matrices = [_shape(tensor_type) for tensor_type in read if len(_shape(tensor_type)) > 1]
        result = _shape(made[0])
        for matrix in matrices:
            # The length of the sum is the axis of the left operand that the result does not have.
            if len(matrix) == len(result) and matrix[-2] == result[-2]:
                return 2 * math.prod(result) * matrix[-1]
    return 0


def _shape(type_: TensorType) -> tuple[int, ...]:
    return tuple(dim for dim in type_.shape or () if isinstance(dim, int))


def roofline_for(recording: Recording, device: str = "") -> Roofline | None:
    """That of the device that was recorded, or of another that is named; None where its figures are not known."""
    if device:
        return Roofline(find_device(device))
    if recording.header.device.kind == "cpu":
        try:
            return Roofline(find_device("this"))
        except UsageError:
            pass
    profile = catalogued(recording.header.device.name)
    return Roofline(profile) if profile is not None else None


@dataclass(slots=True)
class Group:
    """Some operators."""

    name: str
    ops: list[OpRecord] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(op.time.median_us for op in self.ops if op.time is not None) / 1e6


@immutable(slots=False)
class Spent:
    """The time of a recorded run: that of its operators, and between them."""

    recording: Recording
    roofline: Roofline | None
    total: float
    """Of a run whose operators are timed: the median, or what its operators take together where that is more."""
    within: float
    """In operators, the sum of their medians."""

    @property
    def between(self) -> float:
        return self.total - self.within

    def groups(self, key: Callable[[OpRecord], str]) -> list[Group]:
        """Return the operators with a time by a name, the one that takes longest first."""
        found: dict[str, Group] = {}
        for op in self.recording.ops:
            if op.time is not None:
                name = key(op)
                found.setdefault(name, Group(name)).ops.append(op)
        return sorted(found.values(), key=lambda one: -one.seconds)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of every table of times; the least time of the device only where it is known."""
        return _NUMBERS if self.roofline is not None else _NUMBERS[:2]

    def cells(self, ops: Sequence[OpRecord], seconds: float) -> tuple[object, ...]:
        """Time, share of the total, FLOP rate and efficiency."""
        least = [self.roofline.of(op) for op in ops] if self.roofline is not None else []
        known = [one for one in least if one is not None]
        if self.roofline is None:
            return seconds, seconds / self.total if self.total else None
        if not known or len(known) < len(least):
            return seconds, seconds / self.total if self.total else None, None, None
        bound = sum(one.seconds for one in known)
        return seconds, seconds / self.total if self.total else None, bound, bound / seconds if seconds else None

    def rest(self, left: Sequence[OpRecord], label: str) -> Iterator[tuple[object, ...]]:
        """Yield the rows of what a table leaves out, so that it adds up."""
        if left:
            yield label, *self.cells(left, sum(op.time.median_us for op in left if op.time is not None) / 1e6)
        blank = (None,) * (len(self.columns) - 2)
        yield _BETWEEN, self.between, self.between / self.total if self.total else None, *blank
        yield "sum", self.total, 1.0 if self.total else None, *blank


def spent_of(recording: Recording, device: str = "") -> Spent | None:
    """None where no operator has a time."""
    within = sum(op.time.median_us for op in recording.ops if op.time is not None) / 1e6
    if not within:
        return None
    profiled = recording.times("profiled") or recording.times("plain")
    whole = profiled.median_us / 1e6 if profiled is not None else within
    return Spent(recording, roofline_for(recording, device), max(whole, within), within)


_NUMBERS: Final = (
    Column("time", Kind.SECONDS, provenance=_MEASURED),
    Column("share", Kind.RATIO, provenance=_MEASURED, help="of a run whose operators are timed"),
    Column("least", Kind.SECONDS, provenance=_MODELLED, help="from the device's peaks, by the types of operands and results"),
    Column("efficiency", Kind.RATIO, provenance=_MODELLED, help="the least time as a share of the measured one"),
)


def module_of(op: OpRecord) -> str:
    """Return the module call that an operator belongs to, as users write it."""
    return op.scope.replace("/", ".") or (_STEP if op.phase == "optimizer" else _MODEL)


def bare_operator(op: OpRecord) -> str:
    """Return the operator without its namespace."""
    return op.op.rpartition("::")[2]


def time_tables(spent: Spent, top: int = _TOP) -> Iterator[Table]:
    """Yield the operators that take longest (all for 0), all by phase, by type and by module; each table adds up to the run."""
    known = [op for op in spent.recording.ops if op.time is not None]
    known.sort(key=lambda op: -(op.time.median_us if op.time is not None else 0))
    has_phase, has_line = any(op.phase for op in known), any(op.code for op in known)
    text = (Column("operator"), Column("module"), *((Column("phase"),) if has_phase else ()), *((Column("line"),) if has_line else ()))
    rows: list[tuple[object, ...]] = []
    for op in known[: top or None]:
        more = (*((op.phase,) if has_phase else ()), *((op.code,) if has_line else ()))
        rows.append((bare_operator(op), module_of(op), *more, *spent.cells([op], op.time.median_us / 1e6 if op.time is not None else 0.0)))
    blank = ("",) * (len(text) - 1)
    left = known[len(rows) :]
    for label, *numbers in spent.rest(left, f"{len(left):,} more{_ALL_ROWS}"):
        rows.append((label, *blank, *numbers))
    yield Table.of(rows, (*text, *spent.columns), "operators that took longest")
    if has_phase:
        yield _grouped(spent, "phase", lambda op: op.phase or "?", "time by phase", top)
    yield _grouped(spent, "type", bare_operator, "time by type of operator", top)
    yield _grouped(spent, "module", _parts(known), "time by module", top)


def _parts(ops: Sequence[OpRecord]) -> Callable[[OpRecord], str]:
    """Return the modules as deep as it takes to tell several of them apart."""
    for depth in range(1, 6):
        names = {_cut(module_of(op), depth) for op in ops}
        if len([name for name in names if not name.startswith("(")]) > 1:
            break
    return lambda op: _cut(module_of(op), depth)


def _cut(module: str, depth: int) -> str:
    return ".".join(module.split("#")[0].split(".")[:depth])


def _grouped(spent: Spent, name: str, key: Callable[[OpRecord], str], title: str, top: int) -> Table:
    groups = spent.groups(key)
    rows: list[tuple[object, ...]] = [(one.name, len(one.ops), *spent.cells(one.ops, one.seconds)) for one in groups[: top or None]]
    left = [op for group in groups[len(rows) :] for op in group.ops]
    for label, *numbers in spent.rest(left, f"{len(groups) - len(rows):,} more{_ALL_ROWS}"):
        count = len(left) if label != _BETWEEN and label != "sum" else None if label == _BETWEEN else sum(len(one.ops) for one in groups)
        rows.append((label, count, *numbers))
    return Table.of(rows, (Column(name), Column("count", Kind.COUNT), *spent.columns), title)


def recording_document(recording: Recording, device: str = "", rows: int | None = None) -> Document:
    """Return what ran, how long it took, what memory it needed, how far that can be trusted, and what is odd.

    Tables of times have the first rows, of rows=0 all.
    """
    model = recording.header.model
    inputs = ", ".join(f"{value.name}={value.type}" for value in model.inputs)
    subject = Subject("model", (model.name, inputs), tuple(f"assumed: {assumption}" for assumption in model.assumed))
    nodes = recording.mapping.nodes if recording.mapping is not None else 0
    info = ModelInfo(model.name, model.format, partial(str, model.sha256), nodes, bind=model.bind)
    return Document(model=info, reports=(recording_report(recording, device, rows),), subjects=(subject,))


def recording_report(recording: Recording, device: str = "", rows: int | None = None) -> Report:
    """Return the same as a report."""
    header, trust = recording.header, trust_of(recording)
    spent = spent_of(recording, device)
    summary: dict[str, object] = {"run_by": f"{_versions_text(recording)} on {header.device.name}", "operators": _operators(recording)}
    plain, profiled = recording.times("plain"), recording.times("profiled")
    what = "steps" if recording.is_step else "runs"
    one = "step" if recording.is_step else "run"
    if plain is not None:
        summary["latency"] = trust.seconds(plain, f"median, least and 95 % of {plain.n} {what}")
    if profiled is not None:
        beside = f", {profiled.median_us / plain.median_us:.2f} times the plain {one}" if plain is not None and plain.median_us else ""
        summary["profiled"] = trust.seconds(profiled, f"median, least and 95 % of {profiled.n} {what}{beside}")
    if spent is not None:
        summary |= _efficiency(spent)
    memory = {run: found for run in ("cold", "warm") if (found := _memory(recording, run))}
    summary |= {"memory": memory} if memory else {}
    if recording.is_step and (parts := peak_parts(recording)):
        summary["at_the_peak"] = {name: Quantity(size, _MEASURED) for name, size in parts.items()}
    summary |= _energy(recording)
    summary["written_to"] = recording.path
    return Report(
        "record",
        headline=(
            *_answer(recording, plain),
            *trust_lines(recording),
            *(f"problem: {problem_text(problem)}" for problem in recording.problems),
        ),
        summary=summary,
        units={
            **dict.fromkeys(("latency", "profiled", "within_operators", "between_operators", "least"), Kind.SECONDS),
            **dict.fromkeys(("memory", "at_the_peak"), Kind.BYTES),
            **dict.fromkeys(("energy_joules", "power_watts"), Kind.NUMBER),
            "efficiency": Kind.RATIO,
        },
        tables=(*(time_tables(spent, _TOP if rows != 0 else 0) if spent is not None else ()), *machine_tables(recording)),
        series=tuple(_series(recording)),
        notes=(*recording.notes, *unread_notes(recording)),
        pictures=lambda: [*longest_panels(recording), *machine_panels(recording)],
    )


def _efficiency(spent: Spent) -> dict[str, object]:
    found: dict[str, object] = {
        "within_operators": Quantity(spent.within, _MEASURED, note="the sum of their medians"),
        "between_operators": Quantity(spent.between, _MEASURED),
    }
    if spent.roofline is None:
        return {
            **found,
            "efficiency": Quantity(None, _MODELLED, note="the device's figures are not known: --device NAME, or irscope calibrate"),
        }
    known = [(op, least) for op in spent.recording.ops if op.time is not None and (least := spent.roofline.of(op)) is not None]
    bound = sum(least.seconds for _, least in known)
    timed = sum(op.time is not None for op in spent.recording.ops)
    note = f"{spent.roofline.device.title}; types of {len(known):,} of {timed:,} operators are known"
    return {
        **found,
        "least": Quantity(bound, _MODELLED, note=note),
        "efficiency": Quantity(
            bound / spent.total if spent.total else None, _MODELLED, note="the least time as a share of the measured one"
        ),
    }


def _energy(recording: Recording) -> dict[str, object]:
    found: dict[str, object] = {}
    if recording.energy is not None:
        what = "step" if recording.is_step else "run"
        found["energy_joules"] = Quantity(recording.energy.joules_per_run, _MEASURED, note=f"a {what} ({recording.energy.sampling})")
    machine = recording.machine
    if machine is not None and machine.joules and machine.seconds:
        parts = ", ".join(f"{name} {joules:.3g} J" for name, joules in machine.joules.items())
        watts = sum(machine.joules.values()) / machine.seconds
        found["power_watts"] = Quantity(watts, _MEASURED, note=f"over the whole recording of {machine.seconds:.3g} s: {parts}")
    return found


def unread_notes(recording: Recording) -> list[str]:
    """Return what of the machine could not be read."""
    machine = recording.machine
    if machine is None or not machine.unread:
        return []
    return [f"not read while recording: {'; '.join(f'{name} ({why})' for name, why in machine.unread.items())}"]


def machine_tables(recording: Recording) -> Iterator[Table]:
    """Yield the samples of the machine by what was recorded then; columns of which nothing was read are left out."""
    stages: dict[str, list[Sample]] = {}
    if not recording.samples:
        return
    columns = [column for column in _STATE if any(getattr(sample, column.key) is not None for sample in recording.samples)]
    for sample in recording.samples:
        stages.setdefault(sample.stage or "beginning", []).append(sample)
    rows = []
    for stage, samples in stages.items():
        values = [[value for sample in samples if (value := getattr(sample, column.key)) is not None] for column in columns]
        rows.append((stage, len(samples), *(_mean(many, column.kind) for many, column in zip(values, columns, strict=True))))
    yield Table.of(rows, (Column("while"), Column("samples", Kind.COUNT), *columns), "the machine while it was recorded, on average")


def _mean(values: Sequence[float], kind: Kind) -> float | None:
    if not values:
        return None
    found = sum(values) / len(values)
    return round(found) if kind is Kind.BYTES else found


_STATE: Final = (
    Column("cpu", Kind.RATIO, "processors busy", provenance=_MEASURED),
    Column("own", Kind.RATIO, "by this", provenance=_MEASURED),
    Column("mhz", Kind.NUMBER, "MHz", provenance=_MEASURED),
    Column("celsius", Kind.NUMBER, "degrees C", provenance=_MEASURED),
    Column("watts", Kind.NUMBER, "W", provenance=_MEASURED),
    Column("gpu", Kind.RATIO, "GPU busy", provenance=_MEASURED),
    Column("gpu_mhz", Kind.NUMBER, "GPU MHz", provenance=_MEASURED),
    Column("gpu_celsius", Kind.NUMBER, "GPU degrees C", provenance=_MEASURED),
    Column("gpu_watts", Kind.NUMBER, "GPU W", provenance=_MEASURED),
    Column("gpu_bytes", Kind.BYTES, "GPU memory", provenance=_MEASURED),
    Column("process_bytes", Kind.BYTES, "memory of the process", provenance=_MEASURED),
    Column("host_bytes", Kind.BYTES, "of the host", provenance=_MEASURED, detail=True),
    Column("read_rate", Kind.BYTES_PER_SECOND, "read", provenance=_MEASURED, detail=True),
    Column("write_rate", Kind.BYTES_PER_SECOND, "written", provenance=_MEASURED, detail=True),
)


def problem_text(problem: Problem) -> str:
    """Return what happened, where, and what was in use."""
    parts = [problem.text if problem.kind in ("out_of_memory", "few_steps") else f"{problem.kind}: {problem.text}"]
    if problem.requested is not None:
        parts = [f"out of memory: {humanise(problem.requested, Kind.BYTES)} could not be had"]
    place = " of ".join(part for part in (problem.op_name, problem.scope) if part)
    parts += [f"at {place}"] if place else []
    if problem.alive_bytes:
        parts.append(f"while {humanise(problem.alive_bytes, Kind.BYTES)} were in use beyond the model")
    return " ".join(parts)


def failure_text(recording: Recording) -> str:
    """Return the reason why a run did not come to its end."""
    return problem_text(recording.problems[-1]) if recording.problems else "the recording was cut short"


def _answer(recording: Recording, plain: Times | None) -> tuple[str, ...]:
    one = "step" if recording.is_step else "run"
    peaks = [found.peak for run in ("cold", "warm") if (found := figures(recording, run)).peak is not None]
    said = [] if plain is None else [f"a {one} takes {humanise(plain.median_us / 1e6, Kind.SECONDS)}"]
    said += [f"{'and needs' if said else f'a {one} needs'} {humanise(max(peaks), Kind.BYTES)} at its peak"] if peaks else []
    return (" ".join(said),) if said else ()


def _operators(recording: Recording) -> Quantity:
    mapping = recording.mapping
    if mapping is None:
        return Quantity(len(recording.ops))
    share = (mapping.mapped + len(mapping.folded)) / mapping.nodes if mapping.nodes else 1.0
    folded = f", {len(mapping.folded)} more were computed or removed before the run" if mapping.folded else ""
    return Quantity(len(recording.ops), note=f"for {mapping.mapped} of the file's {mapping.nodes} nodes{folded} ({100 * share:.1f} %)")


def _memory(recording: Recording, run: str) -> dict[str, object]:
    """Return the bytes of a run; nothing where the executor does not tell."""
    found = figures(recording, run)
    if found.peak is None:
        return {}
    baseline = found.baseline
    if recording.is_step and run == "warm" and recording.held:
        baseline = sum(holding.bytes for holding in recording.held)  # what the first step made stays
    events = recording.run(run)
    without = peak_of(without_workspaces(events)).bytes if events else None
    parts = {
        "peak": found.peak,
        "before": baseline,
        "run": found.peak - baseline if baseline is not None else None,
        "run_without_workspaces": without,
        "reserved": found.reserved,
    }
    return {name: Quantity(size, _MEASURED if size is not None else Provenance.UNKNOWN) for name, size in parts.items()}


def _versions_text(recording: Recording) -> str:
    versions = recording.header.versions
    names = ("torch", "onnxruntime")
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions) or recording.header.executor


def peak_parts(recording: Recording, *, workspaces: bool = True) -> dict[str, int]:
    """Return the bytes by category at the highest moment of the recorded step; they add up to its peak, with the workspaces of kernels or
    without.
    """
    return {name: size for name, size in highest_of(_heights_of(recording, workspaces=workspaces)).items() if size}


def _heights_of(recording: Recording, *, workspaces: bool = True) -> dict[str, list[int]]:
    """Return the bytes by category before the step and after each of its events."""
    events = recording.run("warm") if workspaces else without_workspaces(recording.run("warm"))
    return heights_of([(event.category, event.bytes) for event in events], ((block.category, block.bytes) for block in recording.held))


def _series(recording: Recording) -> Iterator[Series]:
    if not recording.is_step:
        yield Series(
            "bytes alive beyond the model",
            Column("operator", Kind.INDEX),
            (Column("alive", Kind.BYTES, provenance=_MEASURED),),
            {"operator": range(len(recording.ops)), "alive": [op.alive for op in recording.ops]},
            stacked=False,
        )
        return
    if recording.run("warm"):
        yield memory_series(recording)


def memory_series(recording: Recording) -> Series:
    """Return the memory by category over the ranks of a step's operators, each at its highest moment."""
    heights = _heights_of(recording)
    totals = [sum(column) for column in zip(*heights.values(), strict=True)]
    highest: dict[int, int] = {}
    last = 0
    after: list[int] = []
    for at, event in enumerate(recording.run("warm"), 1):
        number = event.op if event.op is not None else 0
        while len(after) < number:
            after.append(last)  # nothing was asked for: what there was before stays
        last = at
        if number not in highest or totals[at] > totals[highest[number]]:
            highest[number] = at
    after += [last] * (len(recording.ops) - len(after))
    places = [highest.get(number, after[number]) for number in range(len(recording.ops))]
    columns = tuple(Column(name.replace(" ", "_"), Kind.BYTES, name, provenance=_MEASURED) for name in sorted(heights, key=stack_place))
    data: dict[str, Sequence[object]] = {"operator": range(len(recording.ops))}
    data |= {name.replace(" ", "_"): [heights[name][place] for place in places] for name in heights}
    return Series("memory over a step by category", Column("operator", Kind.INDEX), columns, data, stacked=True)


def machine_series(recording: Recording) -> Iterator[Series]:
    """Yield the lines of what was sampled, over the time of the recording."""
    samples = recording.samples
    x = Column("seconds", Kind.SECONDS)
    data: dict[str, Sequence[object]] = {"seconds": [sample.time_us / 1e6 for sample in samples]}
    for title, keys in (("use of the machine", ("cpu", "own", "gpu")), ("power", ("watts", "gpu_watts")), ("clock", ("mhz", "gpu_mhz"))):
        columns = [column for column in _STATE if column.key in keys and any(getattr(sample, column.key) is not None for sample in samples)]
        if columns and len(samples) > 1:
            more = {column.key: [getattr(sample, column.key) for sample in samples] for column in columns}
            yield Series(f"{title} while it was recorded", x, tuple(columns), {**data, **more}, stacked=False)


def machine_panels(recording: Recording) -> list[Panel]:
    """Return the same as pictures, below those of the run."""
    return [panel for series in machine_series(recording) for panel in panels_of(series)]


STEP_PICTURES: Final = {
    "nodes": "time by node of a training step",
    "memory": "memory over a training step",
    "categories": "memory at the peak of a training step",
    "latency": "time of a training step by batch",
}
"""Pictures of recorded steps, with the words of their titles."""


def picture_words(picture: str, found: Mapping[int, Recording]) -> str:
    """Return what stands above a picture."""
    first = next(iter(found.values()))
    words = STEP_PICTURES.get(picture, "a training step")
    return f"{first.header.model.name}: {words}, recorded on {first.header.device.name}"


def recorded_panels(picture: str, found: Mapping[int, Recording]) -> list[Panel]:
    """Return one picture of recorded steps, which have sizes of the batch where they are several; all of a single step without a name."""
    if picture == "latency":
        return latency_panels(found)
    panels: list[Panel] = []
    for batch, recording in found.items():
        label = f"batch {batch}: " if batch else ""
        if picture in ("", "nodes"):
            panels += [_titled(panel, label) for panel in longest_panels(recording)]
        if picture in ("", "memory") and recording.run("warm"):
            panels += [_titled(panel, label) for panel in panels_of(memory_series(recording))]
        if picture in ("", "categories") and (parts := peak_parts(recording)):
            names = sorted(parts, key=stack_place)
            words = f"{label}bytes by category, together the peak of {humanise(sum(parts.values()), Kind.BYTES)}"
            panels.append(bars(words, names, [(Column("bytes", Kind.BYTES, provenance=_MEASURED), [parts[name] for name in names])]))
        if not picture:
            panels += machine_panels(recording)
    return panels


def _titled(panel: Panel, label: str) -> Panel:
    return replace(panel, title=f"{label}{panel.title}")


def longest_panels(recording: Recording) -> list[Panel]:
    """Times by operator."""
    ids = Names()
    names = [ids.unique(operator_name(op)) for op in recording.ops]
    seconds = [None if op.time is None else op.time.median_us / 1e6 for op in recording.ops]
    what = "steps" if recording.is_step else "runs"
    words = f"time by operator, median of {recording.header.repeats} {what}"
    times = largest_bars(words, names, [(Column("time", Kind.SECONDS, provenance=_MEASURED), seconds)])
    return [times] if times is not None else []


def operator_name(op: OpRecord) -> str:
    """Return where and what an operator is; ONNX Runtime knows no modules, but which nodes of the file an operator carries out."""
    kind = op.op.rpartition("::")[2]
    where = op.scope.replace("/", ".") or (op.sources[0] if op.sources else "")
    return f"{where}: {kind}" if where and where != kind else kind


def latency_panels(found: Mapping[int, Recording]) -> list[Panel]:
    """Time of a step against the size of the batch, with its phases."""
    series = batches_series(found)
    return panels_of(series)


def phase_seconds(recording: Recording) -> dict[str, float]:
    """Return the seconds in operators by phase."""
    found: dict[str, float] = {}
    for op in recording.ops:
        if op.time is not None:
            found[op.phase] = found.get(op.phase, 0.0) + op.time.median_us / 1e6
    return found


def batches_series(found: Mapping[int, Recording]) -> Series:
    """Return the time of a step by batch."""
    plain = [one.times("plain") for one in found.values()]
    columns = [Column("step", Kind.SECONDS, provenance=_MEASURED)]
    data: dict[str, Sequence[object]] = {
        "batch": list(found),
        "step": [None if one is None else one.median_us / 1e6 for one in plain],
    }
    parts = [phase_seconds(one) for one in found.values()]
    for phase in PHASES:
        if any(part.get(phase) for part in parts):
            columns.append(Column(phase, Kind.SECONDS, provenance=_MEASURED))
            data[phase] = [part.get(phase) for part in parts]
    return Series("time of a step by batch", Column("batch", Kind.COUNT), tuple(columns), data, stacked=False, sampled=True)


def batches_document(found: Mapping[int, Recording]) -> Document:
    """Return the steps at several sizes of the batch, a row each."""
    first = next(iter(found.values()))
    rows = []
    for batch, recording in found.items():
        trust, plain = trust_of(recording), recording.times("plain")
        profiled = recording.times("profiled")
        seconds = trust.seconds(plain) if plain is not None else Quantity(None, Provenance.UNKNOWN)
        memory = figures(recording)
        parts = phase_seconds(recording)
        cost = profiled.median_us / plain.median_us if plain is not None and profiled is not None and plain.median_us else None
        rate = batch / (plain.median_us / 1e6) if plain is not None and plain.median_us else None
        rows.append((batch, seconds, *(parts.get(phase) for phase in PHASES[1:]), rate, memory.peak, cost, recording.path))
    columns = (
        Column("batch", Kind.COUNT),
        Column("step", Kind.SECONDS, provenance=_MEASURED),
        *(Column(phase, Kind.SECONDS, provenance=_MEASURED, detail=False) for phase in PHASES[1:]),
        Column("samples_per_second", Kind.NUMBER, "samples/s", provenance=_MEASURED),
        Column("peak", Kind.BYTES, provenance=_MEASURED),
        Column(
            "overhead", Kind.NUMBER, "recorded/plain", help="a recorded step beside an unrecorded one", provenance=_MEASURED, detail=True
        ),
        Column("recording", detail=True),
    )
    said = trust_lines(min(found.values(), key=lambda one: trust_of(one).shrink))
    report = Report(
        "record",
        headline=tuple(said),
        summary={"run_by": f"{_versions_text(first)} on {first.header.device.name}"},
        tables=(Table.of(rows, columns, "a step by batch"),),
        series=(batches_series(found),),
        notes=tuple(unread_notes(first)),
    )
    model = first.header.model
    return Document(model=ModelInfo(model.name, model.format), reports=(report,), subjects=(Subject("model", (model.name,)),))
