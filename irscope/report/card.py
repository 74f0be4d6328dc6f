"""The card: what a model is, whether it fits, what it costs, what is not known, and what to do next, as data that every output takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final

from irscope.diagnostics import Diagnostic
from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.ir.program import Assumed
from irscope.report.options import shown_alone, shown_card
from irscope.report.printable import well_formed
from irscope.report.values import Json, Provenance, Quantity, Scalar, json_value

if TYPE_CHECKING:
    from irscope.report.schema import CardJson, DescribedJson

UNKNOWN: Final = Quantity(None, Provenance.UNKNOWN)


@immutable
class CardWeights:
    """Parameters, buffers and constants of one element type, or of one scheme where they are quantised."""

    dtype: str
    count: int
    bytes: int


@immutable
class Identity:
    """Identity of the model."""

    path: str
    """Path of the file, or the name."""
    format: str
    """onnx, pt2, torchscript, irs, checkpoint, module, compiled, or what a plugin calls its own."""
    family: str
    """Such as "convolutional network"; empty where there is no graph to tell it from."""
    confidence: str
    """Confidence in the family: high, medium or low; empty without a family."""
    nodes: int | None
    """None for a file of weights without a graph."""
    parameters: Quantity
    parameter_bytes: Quantity
    weights: tuple[CardWeights, ...]
    """All weights by element type, the largest part first."""
    size_on_disk: int | None
    """Bytes of the model's file and of the files of weights beside it; None where it is not a file."""
    bits_each: float | None = None
    """Bits that a parameter takes, scales and all, where some are quantised."""
    are_inputs: bool = False
    """True where parameters are among the inputs, and the file does not say which."""


@immutable
class CardInput:
    """One input under the model's own name."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    """Sizes, formulas, and None for what is not known; None where not even the rank is."""


@immutable
class StatedSize:
    """A size that the numbers of the card are for, and who stated it."""

    symbol: str
    size: int
    source: str
    """Such as "--bind", "the file's example", "assumed"."""
    role: str = ""
    """batch or seq where that is what the symbol is, whatever the exporter called it."""
    short: str = ""
    """Another name that `--bind` takes, where its own is unwieldy."""

    @property
    def is_assumed(self) -> bool:
        return self.source == ASSUMED_SIZE

    @property
    def is_open(self) -> bool:
        """Return whether the model leaves it open, so that numbers could be for another."""
        return self.source in (ASSUMED_SIZE, EXAMPLE_SIZE)


ASSUMED_SIZE: Final = "assumed"
EXAMPLE_SIZE: Final = "the file's example"


@immutable
class Part:
    """One of the parts that memory at the peak is the sum of."""

    category: str
    bytes: Quantity


@immutable
class HeldTensor:
    """A tensor that is in memory at the peak."""

    name: str
    category: str
    bytes: Quantity
    module: str
    location: str
    """file:line of the user's source; empty where the file does not tell."""
    why: str


@immutable
class CardDevice:
    """The device that the card is for, and why it is this one."""

    name: str
    title: str
    memory_bytes: int | None
    """Bytes available to programs; None where the profile does not say."""
    room_bytes: int | None
    """Bytes left for a model beside the most that the device's own context takes."""
    reason: str
    """Such as "this machine's GPU" or "set by irscope config"."""


def sizes_of(chosen: Mapping[str, int]) -> str:
    """Return numbers by name as `--bind` takes them."""
    return ",".join(f"{name}={number}" for name, number in chosen.items())


@immutable
class BranchMemory:
    """Memory of a model with inputs that decide which branches run."""

    chosen: Mapping[str, int]
    peak: Quantity


@immutable
class CardMemory:
    """Memory of the model on the device."""

    fits: Quantity
    """True, False, or None where it cannot be told."""
    why: str
    """Basis of the verdict where that is not all that is reserved; where there is no verdict, the reason."""
    counted: str
    """Meaning of the sum of the parts, in words."""
    runtime: str
    """Runtime of the model in this prediction, such as "PyTorch 2.13"."""
    peak: Quantity
    """The sum of the parts: allocated bytes where an allocator is simulated, else bytes as they are requested."""
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
    as_pytorch: tuple[Quantity, Quantity] | None
    """Allocated and reserved if PyTorch ran the graph, where another runtime does, whose allocator is not known."""
    missing: Quantity | None
    """Bytes that the device lacks; None where the model fits, or that is not known."""
    devices: tuple[str, ...]
    """Known devices with enough memory, the smallest first, where the model does not fit."""
    as_file: tuple[Quantity, Quantity] | None = None
    """Allocated, else bytes of tensors, and reserved where the file itself is run; there where the peak is that of its Python module."""
    is_optimised: bool = True
    """False where it is for the graph as the file has it, which a default session of the runtime would optimise first."""
    branches: tuple[BranchMemory, ...] = ()
    """Memory of each choice of branches, where inputs decide which run and were not given. The numbers are those of the largest."""

    @property
    def needed(self) -> tuple[Quantity, str]:
        """Return what the verdict compares with the device's memory, and what that is."""
        return (self.reserved, "reserved") if self.reserved.value is not None else (self.peak, "of tensors")


@immutable
class LargestSize:
    """The largest size of one open symbol that fits on the device."""

    symbol: str
    """As a user calls it; empty where no size is open."""
    size: int | None
    """None where it was not searched, or nothing stops it."""
    surely: int | None
    """The largest that fits even where all that is modelled takes the most that it may; None as above."""
    possible: int | None
    """No larger size can fit; None where that is not known. Not all sizes between were looked at where it is not the size itself."""
    note: str
    """Reason why there is no number, or why no larger size fits."""
    command: str
    """Command that finds or explains it."""


@immutable
class CardCost:
    """Cost of a run at the stated sizes."""

    flops: Quantity
    macs: Quantity
    bytes: Quantity
    """Bytes read and written by all nodes."""
    intensity: Quantity
    """FLOPs for each byte."""
    time: Quantity
    """Seconds of one run as they are predicted, with the interval in which nine of ten real times lie."""
    least_time: Quantity
    """Seconds that the device surely needs."""
    bound_by: str
    """Limit that takes most of the time: compute, memory, balanced or launch; empty where unknown."""
    bound_share: float | None
    energy: Quantity
    """Joules."""


@immutable
class CardUnknown:
    """Parts of the model that no number counts."""

    operators: tuple[str, ...]
    """Operators whose cost is unknown, each once."""
    operator_nodes: int
    tensors: int
    """Tensors of unknown size."""
    weights: int
    """Weights of unknown size."""
    diagnostics: Mapping[str, int] = field(default_factory=dict)
    """Number of remarks by severity."""

    @property
    def is_empty(self) -> bool:
        return not (self.operators or self.tensors or self.weights)


@immutable
class CardRemark:
    """Something that would save memory, time or work."""

    text: str
    saves: str
    """Kind and amount of the savings, in words."""
    share: float
    source: str
    """The pass that found it."""


@immutable
class Command:
    """A command to type next, and the question it answers."""

    line: str
    answers: str


@immutable
class CardDescribed:
    """Contents of a file of weights about the model that they belong to, or the configuration of a language model that generates."""

    architecture: str
    figures: Mapping[str, str]
    """By the file's own keys."""
    context: int | None
    """Tokens that the model was made for."""
    cache: Quantity
    """Bytes of keys and values that one more token adds."""
    cache_at_context: Quantity
    law: str
    """The arithmetic behind these in words, or why they are not known."""


@immutable(slots=False)
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
    """Diagnostics about the model, which `unknown` counts."""
    failure: IrscopeError | None = None
    """The error where a part of the card could not be made."""
    stored: Mapping[str, object] | None = None
    """Size of the weights under another scheme, where that was asked for."""
    described: CardDescribed | None = None
    """Of a file of weights that says something of its model, and of a language model that generates."""

    def quantities(self) -> dict[str, Quantity]:
        """Return the numbers with provenance by the keys of `fields`."""
        identity, memory, cost = self.identity, self.memory, self.cost
        quantities = {
            "parameters": identity.parameters,
            "parameter_bytes": identity.parameter_bytes,
            "flops": cost.flops,
            "macs": cost.macs,
            "bytes": cost.bytes,
            "intensity": cost.intensity,
            "time": cost.time,
            "least_time": cost.least_time,
            "energy": cost.energy,
            "peak": memory.peak,
            "peak_requested": memory.requested,
            "peak_allocated": memory.allocated,
            "peak_reserved": memory.reserved,
            "fits": memory.fits,
        }
        if self.described is not None:
            quantities["cache_per_token"], quantities["cache_at_context"] = self.described.cache, self.described.cache_at_context
        if memory.missing is not None:
            quantities["missing"] = memory.missing
        if memory.as_pytorch is not None:
            quantities["pytorch_allocated"], quantities["pytorch_reserved"] = memory.as_pytorch
        if memory.as_file is not None:
            quantities["file_peak"], quantities["file_reserved"] = memory.as_file
        return quantities

    def fields(self) -> dict[str, Scalar]:
        """Flat raw numbers under keys that stay: None for what is not known; the formula of a symbolic number stands beside it."""
        identity, device = self.identity, self.device
        numbers: dict[str, Scalar] = {key: quantity.value for key, quantity in self.quantities().items()}
        formulas: dict[str, Scalar] = {f"{key}_formula": one.formula for key, one in self.quantities().items() if one.formula is not None}
        return {
            "path": identity.path,
            "format": identity.format,
            "family": identity.family,
            "nodes": identity.nodes,
            "size_on_disk": identity.size_on_disk,
            **({} if self.described is None else {"architecture": self.described.architecture, "context": self.described.context}),
            "missing": None,
            "pytorch_allocated": None,
            "pytorch_reserved": None,
            "file_peak": None,
            "file_reserved": None,
            **numbers,
            **formulas,
            "bound_by": self.cost.bound_by or None,
            "peak_node": self.memory.node or None,
            "largest_symbol": self.largest.symbol or None,
            "largest_size": self.largest.size,
            "unknown_ops": self.unknown.operator_nodes,
            "unknown_tensors": self.unknown.tensors,
            "unknown_weights": self.unknown.weights,
            "guesses": sum(assumption.is_guess for assumption in self.assumed),
            "device": device.name,
            "device_memory": device.memory_bytes,
            "sizes": sizes_of({size.symbol: size.size for size in self.sizes}) or None,
        }

    def to_json(self) -> CardJson:
        """Return the card as it stands in JSON documents."""
        numbers = self.quantities()
        memory, largest_size = self.memory, self.largest
        return {
            "fields": {key: json_value(value) for key, value in self.fields().items()},
            "provenance": {
                key: (Provenance.UNKNOWN if number.shown is None else number.provenance).value
                for key, number in numbers.items()
                if number.shown is None or number.provenance is not Provenance.EXACT
            },
            "intervals": {key: [json_value(end) for end in one.interval] for key, one in numbers.items() if one.interval is not None},
            "weights": [{"dtype": weight.dtype, "count": weight.count, "bytes": weight.bytes} for weight in self.identity.weights],
            **self._described_json(),
            "inputs": [
                {"name": well_formed(one.name), "dtype": one.dtype, "shape": None if one.shape is None else [*map(json_value, one.shape)]}
                for one in self.inputs
            ],
            "sizes": [{"symbol": well_formed(size.symbol), "size": size.size, "source": size.source} for size in self.sizes],
            "device": {key: json_value(getattr(self.device, key)) for key in _field_names(CardDevice)},
            "memory": {
                "counted": well_formed(memory.counted),
                "runtime": memory.runtime,
                "is_optimised": memory.is_optimised,
                "why": well_formed(memory.why),
                "parts": [{"category": part.category, **_number(part.bytes)} for part in memory.parts],
                "branches": [{"chosen": sizes_of(branch.chosen), **_number(branch.peak)} for branch in memory.branches],
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
            "largest": {key: json_value(getattr(largest_size, key)) for key in _field_names(LargestSize)},
            "unknown": {
                "operators": [well_formed(operator) for operator in self.unknown.operators],
                "operator_nodes": self.unknown.operator_nodes,
                "tensors": self.unknown.tensors,
                "weights": self.unknown.weights,
                "diagnostics": dict(self.unknown.diagnostics),
            },
            "remarks": [
                {"text": well_formed(one.text), "saves": one.saves, "share": one.share, "source": one.source} for one in self.remarks
            ],
            "next": [{"line": well_formed(hint.line), "answers": hint.answers} for hint in self.next],
        }

    def _described_json(self) -> DescribedJson:
        if self.described is None:
            return {}
        figures = {well_formed(key): well_formed(text) for key, text in self.described.figures.items()}
        return {"described": {"architecture": well_formed(self.described.architecture), "figures": figures, "law": self.described.law}}

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return shown_alone(self, "html")

    def __str__(self) -> str:
        """Return the card as `irscope run` prints it into a pipe."""
        return shown_card(self)


def _field_names(kind: type) -> Iterator[str]:
    return (one.name for one in fields(kind))


def _number(quantity: Quantity) -> dict[str, Json]:
    """Return the bytes of one row, with what is to be said beyond the number."""
    made: dict[str, Json] = {"bytes": json_value(quantity.value)}
    where = Provenance.UNKNOWN if quantity.shown is None else quantity.provenance
    if where is not Provenance.EXACT:
        made["provenance"] = where.value
    if quantity.interval is not None:
        made["interval"] = [json_value(end) for end in quantity.interval]
    return made
