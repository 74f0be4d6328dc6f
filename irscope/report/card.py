"""The card: what a model is, whether it fits, what it costs, what is not known, and what to do next, as data that every output takes."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from irscope.diagnostics import Diagnostic
from irscope.errors import IrscopeError
from irscope.ir.program import Assumed
from irscope.report.celltext import LEGEND, SIGNS
from irscope.report.options import RenderOptions
from irscope.report.printable import cut_middle, display_width, legible, well_formed
from irscope.report.units import Kind, humanise, scale_of, type_text
from irscope.report.values import Json, Provenance, Quantity, Scalar, json_value

if TYPE_CHECKING:
    from irscope.report.schema import CardJson

UNKNOWN: Final = Quantity(None, Provenance.UNKNOWN)


@dataclass(frozen=True, slots=True)
class CardWeights:
    """Parameters, buffers and constants of one element type."""

    dtype: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """What the model is."""

    path: str
    """Path of the file, or the name."""
    format: str
    """onnx, pt2, torchscript, irs, checkpoint, module, or what a plugin calls its own."""
    family: str
    """Such as "convolutional network"; empty where there is no graph to tell it from."""
    confidence: str
    """How sure the family is: high, medium or low; empty without one."""
    nodes: int | None
    """None for a file of weights without a graph."""
    parameters: Quantity
    parameter_bytes: Quantity
    weights: tuple[CardWeights, ...]
    """All weights by element type, the largest part first."""
    size_on_disk: int | None
    """Bytes of the model's file and of the files of weights beside it; None where it is no file."""


@dataclass(frozen=True, slots=True)
class CardInput:
    """One input under the model's own name."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    """Sizes, formulas, and None for what is not known; None where not even the rank is."""


@dataclass(frozen=True, slots=True)
class StatedSize:
    """A size that the numbers of the card are for, and who stated it."""

    symbol: str
    size: int
    source: str
    """Such as "--bind", "the file's example", "assumed"."""

    @property
    def is_assumed(self) -> bool:
        return self.source == ASSUMED_SIZE


ASSUMED_SIZE: Final = "assumed"


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts that memory at the peak is the sum of."""

    category: str
    bytes: Quantity


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor that is in memory at the peak."""

    name: str
    category: str
    bytes: Quantity
    module: str
    location: str
    """file:line of the user's source; empty where the file does not tell."""
    why: str


@dataclass(frozen=True, slots=True)
class CardDevice:
    """The device that the card is for, and why it is this one."""

    name: str
    title: str
    memory_bytes: int | None
    """What programs can have; None where the profile does not say."""
    room_bytes: int | None
    """What is left for a model beside the most that the device's own context takes."""
    reason: str
    """Such as "this machine's GPU" or "set by irscope config"."""


@dataclass(frozen=True, slots=True)
class CardMemory:
    """What the model takes on the device."""

    fits: Quantity
    """True, False, or None where it cannot be told."""
    why: str
    """What the verdict rests on where that is not the whole of what is reserved; why there is none where there is none."""
    counted: str
    """What the parts add up to, in words."""
    runtime: str
    """What runs the model in this prediction, such as "PyTorch 2.13"."""
    peak: Quantity
    """The sum of the parts: allocated bytes where an allocator is simulated, else bytes as they are asked for."""
    requested: Quantity
    allocated: Quantity
    reserved: Quantity
    parts: tuple[Part, ...]
    """They add up to the peak."""
    largest: tuple[HeldTensor, ...]
    """The largest tensors of a run at the peak."""
    node: str
    """The node at the peak."""
    module: str
    location: str
    missing: Quantity | None
    """Bytes that the device lacks; None where the model fits, or that is not known."""
    devices: tuple[str, ...]
    """Where it does not fit: known devices with enough memory, the smallest first."""


@dataclass(frozen=True, slots=True)
class LargestSize:
    """The largest size of one open symbol that fits on the device."""

    symbol: str
    """As a user calls it; empty where no size is open."""
    size: int | None
    """None where it was not searched, or nothing stops it."""
    surely: int | None
    """The largest that fits even where all that is modelled takes the most that it may; None as above."""
    note: str
    """Why there is no number, or what stops a larger size."""
    command: str
    """What finds or explains it."""


@dataclass(frozen=True, slots=True)
class CardCost:
    """What one run costs at the stated sizes."""

    flops: Quantity
    macs: Quantity
    bytes: Quantity
    """Bytes read and written by all nodes."""
    intensity: Quantity
    """FLOPs for each byte."""
    least_time: Quantity
    """Seconds that the device needs at least."""
    bound_by: str
    """What takes most of the least time: compute, memory, balanced or launch; empty where unknown."""
    bound_share: float | None
    energy: Quantity
    """Joules."""


@dataclass(frozen=True, slots=True)
class CardUnknown:
    """What no number counts."""

    operators: tuple[str, ...]
    """Operators whose cost is unknown, each once."""
    operator_nodes: int
    tensors: int
    """Tensors of unknown size."""
    weights: int
    """Weights of unknown size."""
    diagnostics: Mapping[str, int] = field(default_factory=dict)
    """How many remarks there are by severity."""

    @property
    def is_empty(self) -> bool:
        return not (self.operators or self.tensors or self.weights)


@dataclass(frozen=True, slots=True)
class CardRemark:
    """Something that would save memory, time or work."""

    text: str
    saves: str
    """What and how much of it, in words."""
    share: float
    source: str
    """The pass that found it."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to type next, and what it answers."""

    line: str
    answers: str


@dataclass(frozen=True)
class Card:
    """Everything that one screen says about a model."""

    identity: Identity
    inputs: tuple[CardInput, ...]
    sizes: tuple[StatedSize, ...]
    """Sizes that were stated or assumed; those of the file itself stand in the shapes of inputs."""
    device: CardDevice
    memory: CardMemory
    largest: LargestSize
    cost: CardCost
    unknown: CardUnknown
    assumed: tuple[Assumed, ...]
    remarks: tuple[CardRemark, ...]
    next: tuple[Command, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    """What was to be said about the model, which `unknown` counts."""
    failure: IrscopeError | None = None
    """What went wrong where a part of the card could not be made."""

    def quantities(self) -> dict[str, Quantity]:
        """Numbers that say where they come from, by the keys of `fields`."""
        identity, memory, cost = self.identity, self.memory, self.cost
        found = {
            "parameters": identity.parameters,
            "parameter_bytes": identity.parameter_bytes,
            "flops": cost.flops,
            "macs": cost.macs,
            "bytes": cost.bytes,
            "intensity": cost.intensity,
            "least_time": cost.least_time,
            "energy": cost.energy,
            "peak": memory.peak,
            "peak_requested": memory.requested,
            "peak_allocated": memory.allocated,
            "peak_reserved": memory.reserved,
            "fits": memory.fits,
        }
        if memory.missing is not None:
            found["missing"] = memory.missing
        return found

    def fields(self) -> dict[str, Scalar]:
        """Flat raw numbers under keys that stay: None for what is not known; the formula of a symbolic number stands beside it."""
        identity, device = self.identity, self.device
        numbers: dict[str, Scalar] = {key: one.value for key, one in self.quantities().items()}
        formulas: dict[str, Scalar] = {f"{key}_formula": one.formula for key, one in self.quantities().items() if one.formula is not None}
        return {
            "path": identity.path,
            "format": identity.format,
            "family": identity.family,
            "nodes": identity.nodes,
            "size_on_disk": identity.size_on_disk,
            "missing": None,
            **numbers,
            **formulas,
            "bound_by": self.cost.bound_by or None,
            "peak_node": self.memory.node or None,
            "largest_symbol": self.largest.symbol or None,
            "largest_size": self.largest.size,
            "unknown_ops": self.unknown.operator_nodes,
            "unknown_tensors": self.unknown.tensors,
            "unknown_weights": self.unknown.weights,
            "guesses": sum(one.is_guess for one in self.assumed),
            "device": device.name,
            "device_memory": device.memory_bytes,
            "sizes": ",".join(f"{one.symbol}={one.size}" for one in self.sizes) or None,
        }

    def to_json(self) -> CardJson:
        """The card as it stands in JSON documents."""
        numbers = self.quantities()
        memory, largest_size = self.memory, self.largest
        return {
            "fields": {key: json_value(value) for key, value in self.fields().items()},
            "provenance": {
                key: (Provenance.UNKNOWN if one.shown is None else one.provenance).value
                for key, one in numbers.items()
                if one.shown is None or one.provenance is not Provenance.EXACT
            },
            "intervals": {key: [json_value(end) for end in one.interval] for key, one in numbers.items() if one.interval is not None},
            "weights": [{"dtype": one.dtype, "count": one.count, "bytes": one.bytes} for one in self.identity.weights],
            "inputs": [
                {"name": well_formed(one.name), "dtype": one.dtype, "shape": None if one.shape is None else [*map(json_value, one.shape)]}
                for one in self.inputs
            ],
            "sizes": [{"symbol": well_formed(one.symbol), "size": one.size, "source": one.source} for one in self.sizes],
            "device": {key: json_value(getattr(self.device, key)) for key in _names_of(CardDevice)},
            "memory": {
                "counted": well_formed(memory.counted),
                "runtime": memory.runtime,
                "why": well_formed(memory.why),
                "parts": [{"category": one.category, **_number(one.bytes)} for one in memory.parts],
                "largest": [
                    {
                        "name": well_formed(one.name),
                        "category": one.category,
                        "module": well_formed(one.module),
                        "location": well_formed(one.location),
                        "why": well_formed(one.why),
                        **_number(one.bytes),
                    }
                    for one in memory.largest
                ],
                "node": well_formed(memory.node),
                "module": well_formed(memory.module),
                "location": well_formed(memory.location),
                "devices": [*memory.devices],
            },
            "largest": {key: json_value(getattr(largest_size, key)) for key in _names_of(LargestSize)},
            "unknown": {
                "operators": [well_formed(one) for one in self.unknown.operators],
                "operator_nodes": self.unknown.operator_nodes,
                "tensors": self.unknown.tensors,
                "weights": self.unknown.weights,
                "diagnostics": dict(self.unknown.diagnostics),
            },
            "remarks": [
                {"text": well_formed(one.text), "saves": one.saves, "share": one.share, "source": one.source} for one in self.remarks
            ],
            "next": [{"line": well_formed(one.line), "answers": one.answers} for one in self.next],
        }

    def __str__(self) -> str:
        """The card as `irscope run` prints it into a pipe."""
        return "\n".join(card_lines(self, RenderOptions(width=PIPE_WIDTH)))


PIPE_WIDTH: Final = 100
"""Columns where no terminal says how many there are."""
FIELD_KINDS: Final[Mapping[str, Kind]] = {
    "parameters": Kind.COUNT,
    "parameter_bytes": Kind.BYTES,
    "size_on_disk": Kind.BYTES,
    "flops": Kind.FLOPS,
    "macs": Kind.COUNT,
    "bytes": Kind.BYTES,
    "intensity": Kind.NUMBER,
    "least_time": Kind.SECONDS,
    "energy": Kind.NUMBER,
    "peak": Kind.BYTES,
    "peak_requested": Kind.BYTES,
    "peak_allocated": Kind.BYTES,
    "peak_reserved": Kind.BYTES,
    "missing": Kind.BYTES,
    "fits": Kind.BOOL,
    "nodes": Kind.COUNT,
    "unknown_ops": Kind.COUNT,
    "unknown_tensors": Kind.COUNT,
    "unknown_weights": Kind.COUNT,
    "guesses": Kind.COUNT,
    "largest_size": Kind.COUNT,
    "device_memory": Kind.BYTES,
}
"""What the flat fields of a card are, for tables; those that are not here are texts. Energy is in joules."""


def _names_of(kind: type) -> Iterator[str]:
    return (one.name for one in fields(kind))


def _number(one: Quantity) -> dict[str, Json]:
    """Bytes of one row, with what is to be said beyond the number."""
    made: dict[str, Json] = {"bytes": json_value(one.value)}
    where = Provenance.UNKNOWN if one.shown is None else one.provenance
    if where is not Provenance.EXACT:
        made["provenance"] = where.value
    if one.interval is not None:
        made["interval"] = [json_value(end) for end in one.interval]
    return made


# ----------------------------------------------------------------------------------------------------
# The card as text: one screen of 80 columns by 24 lines, the verdict first.

HEIGHT: Final = 24
_LABEL = 9
_NARROWEST = 40
_INPUTS = 3
_FORMATS: Final = {"onnx": "ONNX", "pt2": "torch.export", "torchscript": "TorchScript", "irs": "irscope text", "module": "module"}
_BOUND: Final = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "balanced": "arithmetic and bandwidth alike",
    "launch": "starting kernels",
}
_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ"))


def card_lines(card: Card, options: RenderOptions) -> list[str]:
    """The card in lines, none wider than there is room, and no more than a screen has."""
    return _CardText(card, options).lines()


@dataclass(frozen=True, slots=True)
class _Line:
    """A finished line, and how soon it goes where there is no room for all: 0 stays."""

    text: str
    rank: int = 0
    colour: str = ""


class _CardText:
    """Writes one card."""

    def __init__(self, card: Card, options: RenderOptions) -> None:
        self.card = card
        self.options = options
        self.width = max(_NARROWEST, options.width or PIPE_WIDTH)
        self.signs: set[str] = set()

    def lines(self) -> list[str]:
        found = [*self.head(), *self.model(), *self.memory(), *self.cost(), *self.doubts(), *self.remarks(), *self.next()]
        legend = "   ".join(LEGEND[where] for where in LEGEND if SIGNS.get(where, "?") in self.signs)
        if legend:
            found.append(_Line(legend, 3, _DIM))
        while len(found) > HEIGHT:
            worst = max(range(len(found)), key=lambda place: (found[place].rank, place))
            if not found[worst].rank:
                break
            del found[worst]
        return [self.style(one) for one in found]

    # -- parts -------------------------------------------------------------------------------------------------

    def head(self) -> Iterator[_Line]:
        """The name and the verdict."""
        card = self.card
        yield self.cut(card.identity.path or "model", _BOLD)
        verdict, colour = self.verdict()
        yield from self.wrapped("", verdict, 2, colour=colour, indent=0)

    def verdict(self) -> tuple[str, str]:
        memory, device = self.card.memory, self.card.device
        where = f"{device.title}, {self.number(Quantity(device.room_bytes), Kind.BYTES)} for a model" if device.room_bytes else device.title
        at = f" at {sizes}" if (sizes := self.sizes_text()) else ""
        needed = memory.reserved if memory.reserved.value is not None else memory.peak
        if memory.fits.value is None:
            least = memory.peak.ends[0]
            known = f" (at least {humanise(least, Kind.BYTES)})" if least else ""
            return f"fits? not known{known}: {memory.why}; {where}", _YELLOW
        if memory.fits.value:
            sign = self.sign(memory.fits)
            return f"{sign}fits: {self.number(needed, Kind.BYTES)}{at} on {where}", _GREEN
        missing = f", {self.number(memory.missing, Kind.BYTES)} more than there is" if memory.missing is not None else ""
        fitting = f"; fits on {', '.join(memory.devices[:3])}" if memory.devices else "; no device that irscope knows has as much"
        return f"does NOT fit: {self.number(needed, Kind.BYTES)}{at}{missing} on {where}{fitting}", _RED

    def sizes_text(self) -> str:
        return ", ".join(f"{one.symbol}={one.size}" for one in self.card.sizes)

    def model(self) -> Iterator[_Line]:
        identity, device = self.card.identity, self.card.device
        family = identity.family if identity.confidence == "high" or not identity.family else f"probably a {identity.family}"
        nodes = "weights without a graph" if identity.nodes is None else f"{identity.nodes:,} nodes"
        form = _FORMATS.get(identity.format, identity.format)
        count, size = self.number(identity.parameters, Kind.COUNT), self.number(identity.parameter_bytes, Kind.BYTES)
        dtypes = "+".join(one.dtype for one in identity.weights[:3])
        facts = [family, form, nodes, f"{count} parameters", f"{size} {dtypes}".strip()]
        yield from self.wrapped("model", ", ".join(filter(None, facts)), 2)
        yield from self.wrapped("inputs", self.inputs_text(), 2)
        memory = self.number(Quantity(device.memory_bytes), Kind.BYTES)
        yield from self.wrapped("device", f"{device.name}, {memory}: {device.reason}", 1)

    def inputs_text(self) -> str:
        inputs = self.card.inputs
        if not inputs:
            return "none"
        shown = ", ".join(self.input_text(one) for one in inputs[:_INPUTS])
        more = f" and {len(inputs) - _INPUTS} more" if len(inputs) > _INPUTS else ""
        stated = [f"{one.symbol}={one.size} ({one.source})" for one in self.card.sizes]
        return f"{shown}{more}{'; ' if stated else ''}{', '.join(stated)}"

    def input_text(self, one: CardInput) -> str:
        shape = "[?]" if one.shape is None else type_text(one.shape)
        return f"{one.name} {one.dtype or '?'}{shape}"

    def memory(self) -> Iterator[_Line]:
        memory = self.card.memory
        if memory.parts:
            yield from self.wrapped("memory", self.sum_text(), 2)
        elif self.card.identity.nodes is None:
            yield from self.of_weights()
        else:
            yield from self.wrapped("memory", f"not known: {memory.why}", 2)
        if self.card.identity.nodes is not None:
            yield from self.wrapped("", self.counters_text(), 2)
        if memory.node:
            place = ", ".join(filter(None, (memory.module, memory.location)))
            yield self.cut(f"{' ' * _LABEL}peak at {memory.node}{f' ({place})' if place else ''}")
        yield from self.tensors()
        yield from self.largest()

    def of_weights(self) -> Iterator[_Line]:
        """What a file of weights tells: its element types, and what copies of them take."""
        weights = self.card.identity.weights
        total = sum(one.bytes for one in weights)
        kinds = [f"{humanise(one.bytes, Kind.BYTES)} in {one.count:,} {one.dtype}" for one in weights[:3]]
        yield from self.wrapped("memory", f"{', '.join(kinds) or 'no weights of known size'}", 2)
        trained = sum(one.count for one in weights if one.dtype in _TRAINED)
        yield from self.wrapped("", f"inference needs at least {humanise(total, Kind.BYTES)}: the weights as they are in the file", 1)
        least = 2 * total + 8 * trained
        yield from self.wrapped("", f"training with Adam at least {humanise(least, Kind.BYTES)}: weights, gradients and two f32 moments", 2)

    def sum_text(self) -> str:
        """The peak as the sum of its parts, all in one unit, rounded so that what is printed adds up."""
        memory = self.card.memory
        peak = memory.peak.value
        values = [one.bytes.value for one in memory.parts]
        if not isinstance(peak, int) or not all(isinstance(one, int) for one in values):
            parts = " + ".join(f"{self.number(one.bytes, Kind.BYTES)} {one.category}" for one in memory.parts)
            return f"{self.number(memory.peak, Kind.BYTES)} = {parts}"
        unit, _ = scale_of(peak, Kind.BYTES)
        shown = _adding_up([one for one in values if isinstance(one, int)], peak, unit)
        decimals = 0 if unit == 1 else 2
        parts = " + ".join(
            f"{self.sign(part.bytes)}{amount:,.{decimals}f} {part.category}"
            for part, amount in zip(memory.parts, shown, strict=True)
            if amount or decimals == 0
        )
        return f"{self.number(memory.peak, Kind.BYTES)} = {parts}"

    def counters_text(self) -> str:
        memory = self.card.memory
        runtime = f"as {memory.runtime} runs it"
        if memory.allocated.shown is None and memory.reserved.shown is None:
            self.signs.add("?")
            return f"asked for {runtime}; allocated ? reserved ?{f': {memory.why}' if memory.why and memory.parts else ''}"
        allocated, reserved = (self.number(one, Kind.BYTES) for one in (memory.allocated, memory.reserved))
        return f"allocated {allocated}, reserved {reserved}, {runtime}"

    def tensors(self) -> Iterator[_Line]:
        tensors = self.card.memory.largest
        if not tensors:
            return
        sizes = [self.number(one.bytes, Kind.BYTES) for one in tensors]
        wide = max(map(display_width, sizes))
        for place, (one, size) in enumerate(zip(tensors, sizes, strict=True)):
            where = ", ".join(filter(None, (one.category, one.module, one.location)))
            yield self.cut(f"{' ' * _LABEL}  {size:>{wide}}  {one.name}  {where}", rank=1 + place)

    def largest(self) -> Iterator[_Line]:
        largest = self.card.largest
        if not largest.symbol:
            return
        if largest.size is None:
            text = f"largest {largest.symbol}: {largest.note}; {largest.command}"
        elif not largest.size:
            text = f"largest {largest.symbol} that fits: none"
        else:
            surely = f", {largest.surely:,} surely" if largest.surely is not None and largest.surely != largest.size else ""
            text = f"largest {largest.symbol} that fits: {largest.size:,}{surely}{f', {largest.note}' if largest.note else ''}"
        yield from self.wrapped("", text, 2)

    def cost(self) -> Iterator[_Line]:
        card, cost = self.card, self.card.cost
        if card.identity.nodes is None:
            return
        flops, macs = self.amount(cost.flops, Kind.FLOPS), self.amount(cost.macs, Kind.COUNT)
        yield from self.wrapped("cost", f"{flops}; {macs} multiply-adds", 2)
        ratio = self.number(cost.intensity, Kind.NUMBER)
        ratio = f"{cost.intensity.value:,.1f}" if isinstance(cost.intensity.value, float) else ratio
        yield from self.wrapped("", f"moves {self.amount(cost.bytes, Kind.BYTES)}, {ratio} FLOPs a byte", 2)
        least = self.number(cost.least_time, Kind.SECONDS)
        share = f", {humanise(cost.bound_share, Kind.RATIO)} of it {_BOUND[cost.bound_by]}" if cost.bound_by in _BOUND else ""
        yield from self.wrapped("", f"at least {least} on {card.device.name}{share}", 1)
        yield from self.wrapped("", f"energy {self.joules(cost.energy)}", 1, rank=2)

    def joules(self, energy: Quantity) -> str:
        value = energy.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.signs.add("?")
            return "?"
        unit, name = next(((unit, name) for unit, name in _JOULES if value >= unit), _JOULES[-1])
        low, high = energy.ends
        ends = f" [{low / unit:.3g} to {high / unit:.3g}]" if low is not None and high is not None and low != high else ""
        return f"{self.sign(energy)}{value / unit:.3g} {name}{ends}"

    def doubts(self) -> Iterator[_Line]:
        unknown = self.card.unknown
        said: list[str] = []
        if unknown.operators:
            more = f" and {len(unknown.operators) - 3} more" if len(unknown.operators) > 3 else ""
            said.append(f"{unknown.operator_nodes:,} nodes of {', '.join(unknown.operators[:3])}{more}")
        said += [
            f"{count:,} {what} of unknown size" for count, what in ((unknown.tensors, "tensors"), (unknown.weights, "weights")) if count
        ]
        remarks = [
            f"{count:,} {severity}{'s' if count > 1 else ''}" for severity, count in unknown.diagnostics.items() if severity != "note"
        ]
        if remarks:
            said.append(f"{', '.join(remarks)} (-v)")
        if self.card.identity.nodes is None:
            said.insert(0, "the graph")
        yield from self.wrapped("unknown", "; ".join(said) or "nothing", 2)
        guesses = [one.text for one in self.card.assumed if one.is_guess]
        stated = [f"{one.symbol}={one.size}" for one in self.card.sizes if one.is_assumed]
        said = [*guesses[:2], *([f"and {len(guesses) - 2} more"] if len(guesses) > 2 else []), *stated]
        if said:
            yield from self.wrapped("assumed", "; ".join(said), 2, rank=1)

    def remarks(self) -> Iterator[_Line]:
        for place, one in enumerate(self.card.remarks):
            yield self.cut(f"{'better' if not place else '':{_LABEL}}{one.text}: saves {one.saves}", rank=3 + place)

    def next(self) -> Iterator[_Line]:
        for place, one in enumerate(self.card.next):
            yield self.cut(f"{'next' if not place else '':{_LABEL}}{one.line}", rank=0)

    # -- writing -----------------------------------------------------------------------------------------------

    def sign(self, number: Quantity) -> str:
        found = SIGNS.get(number.provenance, "")
        self.signs.add(found or " ")
        return found

    def number(self, number: Quantity, kind: Kind) -> str:
        """A number with the sign of where it comes from; a lower bound where that is all."""
        if number.value is None and number.formula is None:
            low = number.ends[0]
            self.signs.add("?")
            return f"at least {humanise(low, kind)}" if low else "?"
        return f"{self.sign(number)}{humanise(number, kind)}"

    def amount(self, number: Quantity, kind: Kind) -> str:
        """A number at the stated sizes with what it is for others: `416.14 MFLOPs x batch`, or the formula behind it."""
        if number.formula is None or number.value is None:
            return self.number(number, kind)
        formula = formula_text(number.formula, kind)
        if formula is None:
            return f"{self.number(number, kind)} at {self.sizes_text()}"
        is_product = " + " not in formula and " - " not in formula
        return f"{self.sign(number)}{formula}" if is_product else f"{self.number(number, kind)} ({formula})"

    def wrapped(self, label: str, text: str, most: int, *, rank: int = 0, colour: str = "", indent: int = _LABEL) -> Iterator[_Line]:
        """Prose behind a label, on so many lines at most."""
        room = self.width - indent
        lines = textwrap.wrap(self.clean(text), room, break_on_hyphens=False) or [""]
        if len(lines) > most:
            lines = [*lines[: most - 1], cut_end(" ".join(lines[most - 1 :]), room, self.options.glyphs.ellipsis)]
        for place, line in enumerate(lines):
            yield _Line(f"{label if not place else '':{indent}}{line}".rstrip(), rank, colour)

    def cut(self, text: str, colour: str = "", rank: int = 0) -> _Line:
        return _Line(cut_middle(self.clean(text), self.width, self.options.glyphs.ellipsis), rank, colour)

    def clean(self, text: str) -> str:
        return legible(text, self.options.encoding)

    def style(self, line: _Line) -> str:
        return f"\x1b[{line.colour}m{line.text}\x1b[0m" if self.options.colour and line.colour and line.text else line.text


_TRAINED = frozenset({"f64", "f32", "f16", "bf16"})
"""Element types of weights that training changes."""
_TERM = re.compile(r"(?P<number>\d+)?\*?(?P<symbols>[A-Za-z_]\w*(?:\*\*\d+)?(?:\*[A-Za-z_]\w*(?:\*\*\d+)?)*)?")
_MOST_TERMS = 3


def formula_text(formula: str, kind: Kind) -> str | None:
    """A short polynomial with its numbers as people write them: `2.49 MiB x batch + 1.19 MiB`; None for any other formula."""
    parts = re.split(r" ([+-]) ", formula)
    if len(parts) > 2 * _MOST_TERMS - 1:
        return None
    found: list[str] = []
    for place, part in enumerate(parts):
        if place % 2:
            found.append(part)
            continue
        match = _TERM.fullmatch(part)
        if match is None or not part:
            return None
        number, symbols = match["number"], (match["symbols"] or "").replace("**", "^").replace("*", " x ")
        amount = humanise(int(number), kind) if number else humanise(1, kind) if kind.unit else ""
        found.append(" x ".join(filter(None, (amount, symbols))))
    return " ".join(found)


def _adding_up(values: Sequence[int], total: int, unit: float) -> list[float]:
    """Values in a unit with two decimals, rounded so that they add up to the total as it is printed."""
    step = 100 if unit > 1 else 1
    scaled = [value * step / unit for value in values]
    floors = [math.floor(one) for one in scaled]
    short = round(total * step / unit) - sum(floors)
    order = sorted(range(len(values)), key=lambda place: floors[place] - scaled[place])
    for place in order[: max(0, short)]:
        floors[place] += 1
    return [one / step for one in floors]


def cut_end(text: str, width: int, ellipsis: str) -> str:
    """The text, its end left out where it is too wide."""
    return text if display_width(text) <= width else f"{text[: max(0, width - display_width(ellipsis))].rstrip()}{ellipsis}"


# ----------------------------------------------------------------------------------------------------
# The card for pages: everything it says, nothing cut or left out for want of room.

_ROOM: Final = 100_000


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of a card, to be read at a glance."""

    name: str
    number: str
    note: str


@dataclass(frozen=True, slots=True)
class CardView:
    """The texts of a card."""

    title: str
    verdict: str
    fits: bool | None
    tiles: tuple[Tile, ...]
    facts: tuple[tuple[str, str], ...]
    """Sentences under a label, which is empty where that of the one before still holds."""
    tensors: tuple[tuple[str, str, str, str, str], ...]
    """The largest tensors at the peak: size, name, category, where it is made, and why it is alive."""
    parts: tuple[tuple[str, int, str], ...]
    """What adds up to the peak: category, bytes, and bytes as text; empty where one of them is not known."""
    legend: str


def card_view(card: Card) -> CardView:
    """What pages show of a card, in the words of the screen."""
    writer = _CardText(card, RenderOptions(width=_ROOM))
    identity, memory, cost = card.identity, card.memory, card.cost
    verdict, _ = writer.verdict()
    sizes = writer.sizes_text()
    bound = f"on {card.device.name}{f', mostly {_BOUND[cost.bound_by]}' if cost.bound_by in _BOUND else ''}"
    tiles = [Tile("parameters", writer.number(identity.parameters, Kind.COUNT), writer.number(identity.parameter_bytes, Kind.BYTES))]
    if identity.nodes is not None:
        tiles += [
            Tile("memory at the peak", writer.number(memory.peak, Kind.BYTES), f"reserved {writer.number(memory.reserved, Kind.BYTES)}"),
            Tile("FLOPs", writer.number(cost.flops, Kind.FLOPS), sizes and f"at {sizes}"),
            Tile("least time", writer.number(cost.least_time, Kind.SECONDS), bound),
            Tile("energy of a run", writer.joules(cost.energy).partition(" [")[0], "within a factor of about 2"),
        ]
    if card.largest.size:
        tiles.append(Tile(f"largest {card.largest.symbol} that fits", f"{card.largest.size:,}", card.largest.note))
    lines = [*writer.model(), *writer.memory(), *writer.cost(), *writer.doubts()]
    tensors = tuple(
        (writer.number(one.bytes, Kind.BYTES), one.name, one.category, ", ".join(filter(None, (one.module, one.location))), one.why)
        for one in memory.largest
    )
    listed = {line.text for line in writer.tensors()}
    facts = tuple((line.text[:_LABEL].strip(), line.text[_LABEL:].strip()) for line in lines if line.text not in listed)
    values = [one.bytes.value for one in memory.parts]
    known = [
        (one.category, size, writer.number(one.bytes, Kind.BYTES))
        for one, size in zip(memory.parts, values, strict=True)
        if isinstance(size, int)
    ]
    legend = "   ".join(LEGEND[where] for where in LEGEND if SIGNS.get(where, "?") in writer.signs)
    return CardView(
        title=legible(identity.path or "model"),
        verdict=writer.clean(verdict),
        fits=memory.fits.value if isinstance(memory.fits.value, bool) else None,
        tiles=tuple(tiles),
        facts=facts,
        tensors=tensors,
        parts=tuple(known) if len(known) == len(memory.parts) else (),
        legend=legend,
    )
