"""What weights would take in few bits: the tensors that a scheme makes of each matrix, what stays as it is, what rounding loses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from irscope.devices.catalogue import target_of
from irscope.errors import UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.dims import int_or_zero
from irscope.ir.dtypes import DTypeKind
from irscope.ir.graph import Facet, Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, plays
from irscope.passes.inference.shapes import Shapes
from irscope.passes.memory.liveness import Liveness
from irscope.passes.patterns.walk import is_view
from irscope.passes.weights.storages import ParameterTotals, count_parameters, is_matrix
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.weights.schemes import FAMILIES, Scheme, parse_scheme

if TYPE_CHECKING:
    from irscope.passes.lifetimes.timeline import Footprint

Measure = Literal["auto", "yes", "no"]
_READ_AT_MOST: Final = 1 << 30
"""Bytes of weights that are read without being asked for: about two seconds."""
_FAR: Final = 64
_EMBEDDING: Final = re.compile(r"(?:^|[._/])(?:\w*embed\w*|wte|wpe|tok_embeddings|shared)(?:[._/]|$)")
_HEAD: Final = re.compile(r"(?:^|[._/])(?:lm_head|embed_out|output)(?:[._/]|$)")
_EXPERTS: Final = re.compile(r"(?:^|[._/])experts(?:[._/]|$)")
_BY_NAME: Final = "names decide which matrices are embeddings and which gives the logits: there is no graph"


@immutable
class Stored:
    """One weight of at least two axes."""

    weight: Value
    before: int
    after: int
    kept: str
    """Why it stays as it is; empty where it does not."""
    outputs: int = 0
    inputs: int = 0
    decibels: float | None = None
    problem: str = ""
    """Why its error is not known."""

    @property
    def count(self) -> int:
        """Elements."""
        return int_or_zero(self.weight.type.numel)


@mutable
class Storing:
    """All weights under a scheme."""

    scheme: Scheme
    matrices: list[Stored] = field(default_factory=list)
    before: int = 0
    """Bytes of all weights, of which those that are not matrices stay as they are."""
    unsized: int = 0
    others: int = 0
    """Weights that are not matrices of floats."""
    measured: bool = False
    peak: Quantity = field(default_factory=lambda: Quantity(None, Provenance.UNKNOWN))
    after_peak: Quantity = field(default_factory=lambda: Quantity(None, Provenance.UNKNOWN))
    what: str = ""
    """Whose peak it is."""

    @property
    def after(self) -> int:
        """Bytes of all weights then."""
        return self.before - sum(stored.before - stored.after for stored in self.matrices)

    @property
    def stored(self) -> list[Stored]:
        """Return the tensors that do not stay as they are."""
        return [stored for stored in self.matrices if not stored.kept]


@dataclass(frozen=True)
class StoreAs(Analysis[Storing]):
    """Compute what weights would take in few bits under a scheme, what stays as it is, and what rounding loses.

    `scheme` is int8, nf4, fp4, fp8, int4, gptq, awq or mxfp4, with settings as in "int4{group=64}". Bytes are those of the tensors that the
    scheme's own package keeps on the device. Errors are measured by rounding to the nearest where the values are there; `measure` says
    whether, of weights of any size.
    """

    name: ClassVar[str] = "store-as"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)
    of_weights: ClassVar[bool] = True

    scheme: str = "nf4"
    """How matrices are stored."""
    measure: Measure = "auto"
    """Whether values are read; auto: where they are at most 1 GiB."""
    top: int = 0
    """Rows of the table, most bytes first; 0 for all."""
    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> Storing:
        program, scheme = ctx.program, parse_scheme(self.scheme)
        totals = count_parameters(program)
        if before := next(_quantised(totals), ""):
            hint = f"--as {scheme.name} is for models with plain weights"
            raise UsageError(f"its weights are quantised already ({before})", code="IRS432", where=program.path, hint=hint)
        storing = Storing(scheme, before=int_or_zero(totals.every_byte), unsized=len(totals.unsized))
        uses = _uses(totals, program.has_graph)
        for weight in totals.weights:
            if weight in totals.tied_to or not is_matrix(weight, program):
                storing.others += weight not in totals.tied_to
                continue
            storing.matrices.append(_stored(weight, uses.get(weight, _Use("no product uses it")), scheme))
        if not storing.stored:
            reasons = dict.fromkeys(stored.kept for stored in storing.matrices if stored.kept)
            said = f"no matrix can be stored as {scheme.text}" + (f": {next(iter(reasons))}" if reasons else "")
            hint = "--as int8 stores matrices of any size" if any("inputs" in reason or "outputs" in reason for reason in reasons) else ""
            raise UsageError(said, code="IRS432", where=program.path, hint=hint)
        self._measure(storing, ctx)
        if program.has_graph and program.training is None:
            _find_peak(storing, ctx)
        return storing

    def _measure(self, storing: Storing, ctx: PassContext) -> None:
        """Round, where the values are there."""
        from irscope.passes.weights.values import open_weights
        from irscope.weights.losses import choice_of, in_rows, measured_noise
        from irscope.weights.source import Unreadable
        from irscope.weights.tensors import stored_tensor

        size = sum(one.before for one in storing.stored)
        if self.measure == "no" or (self.measure == "auto" and size > _READ_AT_MOST):
            return
        choice = choice_of(*storing.scheme.measured)
        jobs, taken, problems = [], [], {}
        with open_weights(ctx, self.allow) as files:
            for one in storing.stored:
                try:
                    jobs.append((in_rows(stored_tensor(one.weight, files)), 0.0))
                    taken.append(one.weight)
                except Unreadable as problem:
                    problems[one.weight] = str(problem)
            noises = measured_noise(jobs, files, self.threads, ctx.tick, (choice,))
        decibels: dict[Value, float] = {}
        for weight, noise in zip(taken, noises, strict=True):
            if isinstance(noise, str):
                problems[weight] = noise
            else:
                decibels[weight] = noise.decibels()[choice.key]
        storing.measured = bool(decibels)
        storing.matrices = [
            Stored(
                one.weight, one.before, one.after, one.kept, one.outputs, one.inputs, decibels.get(one.weight), problems.get(one.weight, "")
            )
            for one in storing.matrices
        ]

    def report(self, result: Storing, ctx: PassContext) -> Report:
        scheme, stored = result.scheme, result.stored
        count, after = sum(one.count for one in stored), sum(one.after for one in stored)
        room = target_of(ctx.settings).device.room_bytes
        verdict = _fit_verdict(result, room, ctx)
        summary: dict[str, object] = {
            "scheme": f"{scheme.text}: {scheme.like}",
            "weights_before_bytes": _sum(result.before, result),
            "weights_after_bytes": _sum(result.after, result),
            "stored_count": len(stored),
            "kept_count": len(result.matrices) - len(stored) + result.others,
            "bits_each": 8 * after / count,
        }
        if result.peak.value is not None:
            summary["peak_before"], summary["peak_after"] = result.peak, result.after_peak
        if verdict:
            summary["verdict"] = verdict
        found = [one.decibels for one in stored if one.decibels is not None]
        if found:
            summary["least_db"] = min(found)
        form = "_".join(scheme.measured)
        columns = [
            Column("name", Kind.VALUE),
            Column("shape", Kind.SHAPE),
            Column("before", Kind.BYTES),
            Column("after", Kind.BYTES),
            Column("bits_each", Kind.NUMBER, help="bits an element, scales and all"),
            Column("db", Kind.NUMBER, help=f"signal to rounding error of {form}, as quantize-error measures it"),
            Column("kept", help="why it stays as it is"),
        ]
        rows = [
            (
                stored.weight.name,
                stored.weight.type.shape,
                stored.before,
                stored.after,
                _bits_each(stored),
                "" if stored.kept else stored.decibels,
                stored.kept,
            )
            for stored in sorted(result.matrices, key=lambda stored: -stored.before)
        ]
        sums = [(kept, *numbers) for kept, numbers in _by_reason(result).items()]
        tables = (
            Table.of(sums, ["what", "weights:count", "before:bytes", "after:bytes"], "in sum"),
            Table.of(rows[: self.top or None], columns, "matrices"),
        )
        problems = [one for one in stored if one.problem]
        return Report(
            pass_name=self.name,
            options=self.text,
            headline=(_headline(result),),
            summary=summary,
            units={"peak_before": Kind.BYTES, "peak_after": Kind.BYTES, "bits_each": Kind.NUMBER, "least_db": Kind.NUMBER},
            tables=tables,
            coverage=Coverage(len(found), len(stored), tuple(one.weight.name or "?" for one in problems)) if result.measured else None,
            notes=tuple(self._notes(result, ctx)),
        )

    def _notes(self, result: Storing, ctx: PassContext) -> Iterator[str]:
        yield "exact: bytes of the tensors that the scheme stores"
        yield "assumed: which layers it takes, as its package does by default"
        if not ctx.program.has_graph:
            yield _BY_NAME
        if result.after_peak.value is not None:
            yield f"modelled: the peak ({result.what}) less what the weights save, plus a kernel's temporary memory"
            yield f"modelled: a kernel also takes {FAMILIES[result.scheme.family].besides}"
        if result.measured:
            form, granularity = result.scheme.measured
            yield f"measured: nearest rounding to {form} ({granularity}) of weights alone, no activations; GPTQ and AWQ choose better"
        elif self.measure == "auto" and sum(one.before for one in result.stored) > _READ_AT_MOST:
            size = humanise(sum(one.before for one in result.stored), Kind.BYTES)
            yield f"not measured: {size} would have to be read; --passes 'store-as{{scheme=\"{result.scheme.text}\" measure=yes}}' does"
        else:
            yield "not measured: the values are not there"


def _quantised(totals: ParameterTotals) -> Iterator[str]:
    """Yield how weights are stored that are in few bits already."""
    yield from (part.scheme for part in totals.packed.values())
    yield from (weight.type.dtype.text for weight in totals.weights if weight.type.dtype.kind is DTypeKind.BLOCKS)


# -- what a weight is ----------------------------------------------------------------------------------------------------


@immutable
class _Use:
    kept: str = ""
    role: Literal["", "embedding", "head"] = ""
    swapped: bool = False
    """True where the first axis has the inputs."""


def _uses(totals: ParameterTotals, has_graph: bool) -> dict[Value, _Use]:
    """Return what matrices are for, by the operators that read them, else by their names."""
    weights = [weight for weight in totals.weights if weight not in totals.tied_to]
    if not has_graph:
        return {weight: _use_by_name(str(weight.name)) for weight in weights}
    tied: dict[Value, list[Value]] = {}
    for other, first in totals.tied_to.items():
        tied.setdefault(first, []).append(other)
    uses = {weight: _use_in_graph([weight, *tied.get(weight, ())]) for weight in weights}
    rows = {weight.type.shape[0] for weight, use in uses.items() if use.role == "embedding" and weight.type.shape}
    for weight, use in uses.items():
        shape = weight.type.shape or ()
        outputs = shape[1 if use.swapped else 0] if len(shape) == 2 else None
        if not use.role and not use.kept and (_HEAD.search(str(weight.name)) or (outputs in rows and _gives_result(weight))):
            uses[weight] = _Use("", "head", use.swapped)
    return uses


def _use_by_name(name: str) -> _Use:
    return _Use("", "head" if _HEAD.search(name) else "embedding" if _EMBEDDING.search(name) else "")


def _use_in_graph(names: Sequence[Value]) -> _Use:
    """Return the use of a weight that has these names; one that is looked up in is a table of embeddings, whatever else it is."""
    uses = [use for weight in names for use in _uses_of(weight)]
    looked_up = next((use for use in uses if use.role == "embedding"), None)
    return looked_up or (uses[0] if uses else _Use("no product uses it"))


def _uses_of(weight: Value) -> Iterator[_Use]:
    pending = [(weight, False)]
    for _ in range(_FAR):
        if not pending:
            return
        value, swapped = pending.pop(0)
        for node in value.users or ():
            if not isinstance(node, Node):
                continue
            factors = factors_of(node)
            if plays(node, OpRole.LOOKUP) and node.inputs and node.inputs[0] is value:
                yield _Use("", "embedding")
            elif factors is not None and len(node.inputs) > factors.right and node.inputs[factors.right] is value:
                transposed = bool(node.attrs.get("trans_b")) if "trans_b" in node.attrs else not factors.over_first
                yield _Use("", "", swapped == transposed)
            elif factors is not None:
                yield _Use("it is the left side of a product")
            elif is_view(node):
                pending.extend((result, swapped != plays(node, OpRole.TRANSPOSE)) for result in node.outputs)
            else:
                yield _Use(f"{node.op} uses it")


def _gives_result(weight: Value) -> bool:
    """Return whether a product with it is near an output: nothing but views and sums between."""
    pending: list[Value] = [result for node in weight.users or () if isinstance(node, Node) for result in node.outputs]
    for _ in range(_FAR):
        if not pending:
            return False
        value = pending.pop(0)
        for node in value.users or ():
            if not isinstance(node, Node):
                return True
            if is_view(node) or plays(node, OpRole.ADD) or (factors_of(node) is not None and node.inputs[0] is not value):
                pending.extend(node.outputs)
    return False


def _stored(weight: Value, use: _Use, scheme: Scheme) -> Stored:
    type_ = weight.type
    before = int_or_zero(type_.nbytes)
    sizes = [size for size in (type_.shape or ()) if isinstance(size, int)] if isinstance(type_, TensorType) else []
    kept = use.kept
    experts = len(sizes) == 3 and _EXPERTS.search(str(weight.name)) is not None
    if not kept and len(sizes) != 2 and not (experts and scheme.has_experts):
        kept = f"it has {len(sizes)} axes" if not experts else "experts in one tensor are not a linear layer"
    if not kept and use.role == "embedding" and not scheme.embeddings:
        kept = "a table of embeddings"
    if not kept and use.role == "head" and not scheme.head:
        kept = "it gives the logits"
    if kept:
        return Stored(weight, before, before, kept)
    outputs, inputs = (sizes[-1], sizes[-2]) if use.swapped else (sizes[-2], sizes[-1])
    kept = scheme.refuses(outputs, inputs)
    after = before if kept else scheme.bytes(outputs, inputs) * (sizes[0] if experts else 1)
    return Stored(weight, before, after, kept, outputs, inputs)


# -- memory of a run -----------------------------------------------------------------------------------------------------


def _find_peak(storing: Storing, ctx: PassContext) -> None:
    """Find the peak of a run, and what it would be."""
    footprint: Footprint | None = ctx.get(Liveness()).footprint
    if footprint is None or not isinstance(footprint.peak.value, int):
        return
    storing.peak, storing.what = footprint.peak, footprint.what
    saved = storing.before - storing.after
    least = max(0, footprint.peak.value - saved)
    besides = _besides(storing, ctx)
    most = None if besides is None else least + besides
    ends = footprint.peak.ends
    low = least if ends[0] is None else max(0, int(ends[0]) - saved)
    high = None if most is None or ends[1] is None else max(most, int(ends[1]) - saved + (besides or 0))
    storing.after_peak = Quantity(least if most is None else most, Provenance.MODELLED, lo=low, hi=high)


def _besides(storing: Storing, ctx: PassContext) -> int | None:
    """Return the most that a kernel takes besides its output; None where that, or a size, is not known."""
    scheme = storing.scheme
    if scheme.family == "bitsandbytes" and scheme.name != "int8":
        return max(one.before for one in storing.stored)
    if scheme.family not in ("bitsandbytes", "float8"):
        return None
    types = ctx.get(Shapes)
    most = 0
    for one in storing.stored:
        for node in one.weight.users or ():
            numel = types.type_of(node.inputs[0]).numel if isinstance(node, Node) and node.inputs and node.inputs[0] is not None else 0
            if not isinstance(numel, int):
                return None
            rows = -(-numel // one.inputs)
            # 8 bit: half floats, codes, what is an outlier, sums of 32 bits and half floats. float8: codes, and a scale of 32 bits a block.
            size = numel * 4 + rows * (4 + 6 * one.outputs) if scheme.name == "int8" else numel + rows * 4 * -(-one.inputs // 128)
            most = max(most, size)
    return most


def _fit_verdict(result: Storing, room: int | None, ctx: PassContext) -> str:
    title = target_of(ctx.settings).device.title
    if room is None:
        return ""
    low, high = result.after_peak.ends if result.after_peak.value is not None else (result.after, None)
    if low is not None and low > room:
        return f"does not fit on {title}: {humanise(int(low), Kind.BYTES)} and more, of {humanise(room, Kind.BYTES)}"
    if high is not None and high <= room:
        return f"fits on {title}: at most {humanise(int(high), Kind.BYTES)}, of {humanise(room, Kind.BYTES)}"
    if result.after_peak.value is not None and low is not None:
        return f"fits as modelled on {title}: {humanise(int(low), Kind.BYTES)} plus memory of kernels, of {humanise(room, Kind.BYTES)}"
    return f"fits? not known: {humanise(int(low or 0), Kind.BYTES)} and more, of {humanise(room, Kind.BYTES)} on {title}"


# -- tables ------------------------------------------------------------------------------------------------------------


def _sum(size: int, result: Storing) -> object:
    return Quantity(size, lo=size) if result.unsized else size


def _bits_each(stored: Stored) -> float | None:
    return 8 * stored.after / stored.count if stored.count else None


def _by_reason(result: Storing) -> dict[str, list[int]]:
    found = {result.scheme.text: [0, 0, 0]}
    for stored in result.matrices:
        sums = found.setdefault(f"kept: {stored.kept}" if stored.kept else result.scheme.text, [0, 0, 0])
        for place, number in enumerate((1, stored.before, stored.after)):
            sums[place] += number
    matrices = sum(stored.before for stored in result.matrices)
    found["kept: no matrices (norms, biases, buffers)"] = [result.others, result.before - matrices, result.before - matrices]
    found["all"] = [len(result.matrices) + result.others, result.before, result.after]
    return found


def _headline(result: Storing) -> str:
    before, after = (humanise(size, Kind.BYTES) for size in (result.before, result.after))
    return f"as {result.scheme.text}: weights {before} -> {after}"
