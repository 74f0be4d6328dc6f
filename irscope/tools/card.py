"""The card of a model: what it is, whether it fits on a device, what it costs, what is not known, and what to do next."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TypeVar

from irscope.devices.catalogue import all_devices, target_of
from irscope.devices.profile import DeviceProfile
from irscope.diagnostics import Diagnostic
from irscope.errors import Cancelled, IrscopeError, LoadError, UsageError
from irscope.frontends.files.folders import usual_lengths
from irscope.frontends.zoo.names import is_name
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, input_option, open_input_option, possible_sizes, symbol_named
from irscope.ir.dims import Dim, SymDim, total_of
from irscope.ir.graph import Node, Value
from irscope.ir.places import FileRegion
from irscope.ir.program import GENERATES, LIVE, TRAINS, Program, Runtime, is_unstated
from irscope.ir.spelling import typed_input
from irscope.ir.types import TensorType
from irscope.memory.run import ROUNDING
from irscope.passes.advice.advise import Advise
from irscope.passes.advice.finding import Finding
from irscope.passes.cost.bounds import FREE, UNKNOWN
from irscope.passes.cost.count import NodeCosts, Tally, tally_of
from irscope.passes.cost.energy import Energy
from irscope.passes.cost.roofline import Roofline, intensity
from irscope.passes.cost.tables import cell
from irscope.passes.cost.time import Time, Timing
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes, deciding_elements
from irscope.passes.lifetimes.changes import user_line
from irscope.passes.lifetimes.timeline import Footprint, Held, Timeline
from irscope.passes.lifetimes.xla import XlaMemory
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.passes.memory.curve import LifetimeModel
from irscope.passes.memory.liveness import Liveness, xla_fits
from irscope.passes.ort.memory import OrtMemory
from irscope.passes.ort.present import limited
from irscope.passes.patterns.arch import Arch
from irscope.passes.sizes import at_least, dim_cell
from irscope.passes.training.memory import TrainingMemory
from irscope.passes.weights.described import described
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passes.weights.store_as import StoreAs
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.report.card import (
    ASSUMED_SIZE,
    BranchMemory,
    Card,
    CardCost,
    CardDescribed,
    CardDevice,
    CardInput,
    CardMemory,
    CardRemark,
    CardUnknown,
    CardWeights,
    Command,
    HeldTensor,
    Identity,
    LargestSize,
    Part,
    StatedSize,
)
from irscope.report.card import UNKNOWN as NOT_KNOWN
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Number, Provenance, Quantity, as_assumed, derived, plain, quantity
from irscope.session import Model, open_model, stated_sizes
from irscope.tools.config import Chosen, chosen_for, chosen_of, settings_for, target_settings
from irscope.tools.fit import Search

Made = TypeVar("Made")
_LARGEST = 3
_MOST_CHOICES = 4
"""Of inputs that decide which branches run; a model is analysed for each."""
_REMARKS = 3
_LEAST_SHARE = 0.05
"""Least share that a saving needs for a line on the screen."""
_MOST_REPLAYED, _MOST_PLANNED, _MOST_ADVISED = 1_000, 5_000, 5_000
"""Nodes of the models that are searched for the largest size, by replaying PyTorch's allocator or by formula, and for what could be better:
some tenths of a second for somebody who waits for one screen."""
_FIXED = "every size is fixed in the file"


def card(model: Model | str | PathLike[str], *, device: str | None = None) -> Card:
    """Return the card of a loaded model, or of a file or name, for a device: the one that is named, else the one the model was opened for,
    else this machine's GPU, the one that `irscope config` set, or the default.
    """
    opened = model if isinstance(model, Model) else open_model(Path(model), settings=settings_for(device or ""))
    found = make_card(opened, chosen_of(opened.manager.settings, device or opened.program.metadata.get("target", "")))
    if found.failure is not None:
        raise found.failure
    return found


@contextmanager
def _maker(model: Model, chosen: Chosen, lifetime: LifetimeModel = "auto") -> Iterator[_Maker]:
    chosen = chosen_for(model.program, chosen)
    settings = target_settings(model.program, model.manager.settings, chosen)
    with model.manager.using(settings):
        yield _Maker(model, settings, chosen, lifetime)


def make_card(model: Model, chosen: Chosen, *, brief: bool = False) -> Card:
    """Return the card for a device that was chosen; where a pass failed, it says so, and all else is there.

    A `brief` one has no largest size, no remarks and nothing to do next.
    """
    with _maker(model, chosen) as maker:
        return maker.card(brief)


def card_and_stored(model: Model, chosen: Chosen, scheme: str) -> tuple[Card, Report]:
    """Return a card that says what weights would take under a scheme such as nf4, and the report on that."""
    with _maker(model, chosen) as maker:
        card, report = maker.card(False), maker.ctx.run_one(StoreAs(scheme=scheme)).made_report
    return replace(card, stored=report.summary), report


def memory_card(model: Model, chosen: Chosen, lifetime: LifetimeModel = "auto") -> Card:
    """Return a card of nothing but memory under a lifetime model, for a device: what takes other passes is unknown."""
    with _maker(model, chosen, lifetime) as maker:
        return maker.memory_card()


def _height(memory: CardMemory) -> float:
    """Return what the memory of two branches is compared by: the most that it may be."""
    most = memory.peak.ends[1] if memory.peak.value is None else memory.peak.value
    return float(most) if isinstance(most, int | float) else -1.0


class _Maker:
    """Makes one card; `model` is as it was opened, `at` has a number for every size that can have one."""

    def __init__(self, model: Model, settings: Settings, chosen: Chosen, lifetime: LifetimeModel = "auto") -> None:
        self.lifetime = lifetime
        self.model = model
        self.program = model.program
        self.settings = settings
        self.chosen = chosen
        self.device = chosen.device
        self.sizes = tuple(stated_sizes(model.program, model.options.bind))
        self.decided: Mapping[str, int] = {}
        """Numbers for inputs that decide which branches run, where nobody gave them."""
        self.at = self._bound()
        self.failure: IrscopeError | None = None
        self._unsized, self._said_of_memory = 0, list[Diagnostic]()
        """Tensors of unknown size, which the peak does not count, and what was said of them."""
        self.is_guessed = any(not assumed.is_about_weights for assumed in self.at.program.guesses)

    def _bound(self, besides: Mapping[str, int] | None = None) -> Model:
        """Return the model with a number for each open size, and for further names; as it is where it cannot be read again."""
        wanted = {size.symbol: size.size for size in self.sizes if size.is_open} | dict(besides or {})
        if not wanted:
            return self.model
        try:
            model = self.model.rebound(wanted)
        except UsageError:
            return self.model
        model.manager.settings = self.settings
        model.manager.instruments = self.model.manager.instruments
        return model

    @property
    def ctx(self) -> Manager:
        return self.at.manager

    def _tried(self, make: Callable[[], Made], otherwise: Callable[[str], Made]) -> Made:
        """Return a part of the card; where a pass fails, the failure is kept, and the part says so."""
        try:
            return make()
        except Cancelled:
            raise
        except IrscopeError as error:
            self.failure = self.failure or error
            return otherwise(str(error).partition("\n")[0])

    def card(self, brief: bool) -> Card:
        totals = count_parameters(self.program)
        if not self.program.has_graph:
            return self._of_weights(totals)
        memory = self._tried(self.memory, _memory_unknown)
        largest = LargestSize("", None, None, None, "", "") if brief else self.largest(memory)
        self._let_go()
        cost = self._tried(self.cost, lambda _: _COST_UNKNOWN)
        unknown = self.unknown(totals)
        return Card(
            identity=self.identity(totals),
            inputs=self.inputs(),
            sizes=self.sizes,
            device=self.card_device(),
            memory=memory,
            largest=largest,
            cost=cost,
            unknown=unknown,
            assumed=tuple(self.program.assumed),
            remarks=() if brief else self.remarks(),
            next=() if brief else self.next(memory, largest, unknown),
            described=_described(self.program) if GENERATES in self.program.metadata else None,
            diagnostics=self.diagnostics(),
            failure=self.failure,
        )

    def _let_go(self) -> None:
        """Drop live ranges and the runtime's plan of a large model that only this card knows: costs then take their room."""
        timeline = self.ctx.peek(Liveness())
        self._unsized = 0 if timeline is None else len(timeline.unsized)
        self._said_of_memory = self.ctx.diagnostics_of(Liveness())
        if self.at is not self.model and self.program.node_count > _MOST_ADVISED:
            self.ctx.forget(Liveness(), but=(Shapes(), Alias()))

    def memory_card(self) -> Card:
        """Return the card with memory alone."""
        if not self.program.has_graph:
            return self._of_weights(count_parameters(self.program))
        program = self.program
        return Card(
            identity=Identity(program.path, program.format, "", "", program.node_count, NOT_KNOWN, NOT_KNOWN, (), None),
            inputs=(),
            sizes=self.sizes,
            device=self.card_device(),
            memory=self._tried(self.memory, _memory_unknown),
            largest=LargestSize("", None, None, None, "", ""),
            cost=_COST_UNKNOWN,
            unknown=CardUnknown((), 0, 0, 0),
            assumed=(),
            remarks=(),
            next=(),
            failure=self.failure,
        )

    # -- what it is --------------------------------------------------------------------------------------------

    def identity(self, totals: ParameterTotals) -> Identity:
        program = self.program
        verdict = self._tried(lambda: self.ctx.get(Arch()).verdict, lambda _: None) if program.has_graph else None
        return Identity(
            path=program.path,
            format=program.format,
            family="" if verdict is None else verdict.family,
            confidence="" if verdict is None else verdict.confidence,
            nodes=program.node_count if program.has_graph else None,
            parameters=plain_number(totals.count_cell),
            parameter_bytes=plain_number(totals.bytes_cell),
            weights=_by_type(totals),
            bits_each=totals.bits_each,
            size_on_disk=_size_on_disk(self.model),
            are_inputs=totals.are_inputs,
        )

    def inputs(self) -> tuple[CardInput, ...]:
        return tuple(_card_input(value) for value in self.program.graph.inputs)

    def card_device(self) -> CardDevice:
        device = self.device
        return CardDevice(device.name, device.title, device.memory_bytes, device.room_bytes, self.chosen.reason)

    # -- whether it fits ---------------------------------------------------------------------------------------

    def memory(self) -> CardMemory:
        """Return the memory of the model; where inputs decide which branches run, that of the choice that takes most, with the others
        beside it.
        """
        choices = list(islice(self._choices(), _MOST_CHOICES))
        if len(choices) < 2:
            return self._memory()
        made: list[tuple[Model, CardMemory]] = []
        for chosen in choices:
            self.at = self._bound(chosen)
            self.__dict__.pop("_open", None)
            made.append((self.at, self._memory()))
        most = max(range(len(made)), key=lambda place: _height(made[place][1]))
        self.at, memory = made[most]
        self.__dict__.pop("_open", None)
        self.decided = choices[most]
        self.sizes = (*self.sizes, *(StatedSize(name, number, ASSUMED_SIZE) for name, number in self.decided.items()))
        return replace(memory, branches=tuple(BranchMemory(chosen, one.peak) for chosen, (_, one) in zip(choices, made, strict=True)))

    def _choices(self) -> Iterator[dict[str, int]]:
        """Yield the numbers for the elements of inputs that decide which branches run."""
        deciding = deciding_elements(self.ctx.get(Shapes()), self.at.program)
        for numbers in itertools.product(*deciding.values()):
            yield dict(zip(deciding, numbers, strict=True))

    def _memory(self) -> CardMemory:
        timeline = self.ctx.get(Liveness(model=self.lifetime))
        footprint = timeline.footprint
        assert footprint is not None
        counters = self._counters(timeline, footprint)
        peak = self.marked(footprint.peak)
        fits, why = self._verdict(counters, peak)
        missing = self._missing(counters, peak) if fits.value is False else None
        node = footprint.peak_node if isinstance(peak.value, int) else None
        return CardMemory(
            fits=fits,
            why=why,
            counted=footprint.what,
            runtime=counters.runtime,
            peak=peak,
            requested=self.marked(counters.requested),
            allocated=self.marked(counters.allocated),
            reserved=self.marked(counters.reserved),
            parts=self._parts(footprint),
            largest=tuple(self._held(tensor) for tensor in _tensors(footprint)[:_LARGEST]),
            node="" if node is None else node.name,
            module="" if node is None else node.scope.path,
            location=_place(node),
            as_pytorch=self._as_pytorch(counters),
            as_file=self._as_file(timeline),
            missing=missing,
            devices=() if missing is None else _enough(self.device, counters, peak),
            is_optimised=timeline.model != "ort" or "ort_level" in self.at.program.metadata,
        )

    def _counters(self, timeline: Timeline, footprint: Footprint) -> _Counters:
        """Return what the runtime that the model is for counts on the device."""
        if self.at.program.training is not None:
            step = self.ctx.get(TrainingMemory())
            runtime = f"PyTorch {'.'.join(map(str, step.target.torch))}, a training step"
            counts = step.worst("requested"), step.worst("allocated"), step.worst("reserved")
            return _Counters(runtime, *counts, None if step.reason else step.verdict, step.reason)
        if timeline.model == "ort":
            return self._ort_counters(footprint)
        if timeline.model == "xla":
            plan = self.ctx.get(XlaMemory())
            total, runtime = plan.total, "XLA, as it assigned it" if plan.is_exact else "XLA, by the rules of its CPU compiler"
            runtime += f", on each of {plan.devices} devices; time and cost are those of all" if plan.devices > 1 else ""
            return _Counters(runtime, total, total, NOT_KNOWN, xla_fits(plan, target_of(self.ctx.settings)))
        memory = self.ctx.get(CudaMemory(model=self.lifetime))
        is_known = self.program.traits.runtime is not Runtime.UNKNOWN
        runtime = f"PyTorch {'.'.join(map(str, memory.target.torch))}" if is_known or memory.central is not None else ""
        if memory.central is None:
            return _Counters(runtime, footprint.peak if footprint.of == "tensor" else NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, None, memory.reason)
        fits = memory.fits if not memory.is_open else None
        counts = memory.worst("requested"), memory.worst("allocated"), memory.worst("reserved")
        return _Counters(runtime, *counts, fits, memory.reason, memory)

    def _ort_counters(self, footprint: Footprint) -> _Counters:
        plan = self.ctx.get(OrtMemory())
        runtime = f"ONNX Runtime {plan.release.text}"
        if plan.cuda is not None and plan.figures is not None:
            worst, figures = plan.cuda.worst, plan.figures
            counts = worst(figures, "requested"), worst(figures, "allocated"), worst(figures, "reserved")
            return _Counters(runtime, *counts, plan.cuda.fits(figures), plan.cuda.shortage or plan.cuda.open_)
        if plan.figures is None or not plan.is_known or footprint.of != "device":
            reason = "" if plan.is_known else "the temporary memory of ONNX Runtime's kernels on a GPU is not known"
            beside = total_of(self.ctx.get(Liveness(model=self.lifetime)).resident.values())
            allocated, reserved = (limited(plan, name, beside) for name in ("allocated", "reserved"))
            return _Counters(runtime, footprint.peak, allocated, reserved, None, reason)
        runs = (plan.figures.cold.peak, plan.figures.warm.peak)
        there = quantity(footprint.peak.value) - max(run.allocated for run in runs)
        requested, reserved = (there + max(getattr(run, name) for run in runs) for name in ("requested", "reserved"))
        runtime += " on the CPU, as nothing of it runs on the GPU" if plan.stays else ""
        return _Counters(runtime, requested, footprint.peak, reserved, None)

    def _as_pytorch(self, counters: _Counters) -> tuple[Quantity, Quantity] | None:
        """Return what PyTorch's allocator would count, for a graph that another runtime runs on a CUDA device."""
        if counters.allocated.value is not None and counters.memory is not None:
            return None
        if self.device.capability is None or self.program.node_count > _MOST_ADVISED:
            return None
        if self.at.program.training is not None:
            return None
        memory = self.ctx.get(CudaMemory(model="eager"))
        if memory.central is None or memory.is_open:
            return None
        return self.marked(memory.worst("allocated")), self.marked(memory.worst("reserved"))

    def _as_file(self, timeline: Timeline) -> tuple[Quantity, Quantity] | None:
        """Return what running the file itself takes, where the peak is that of the Python module from which it was made."""
        if timeline.peak_by_lives is None or self.program.format in LIVE:
            return None
        memory = self.ctx.get(CudaMemory(model="ssa"))
        if memory.central is not None and not memory.is_open:
            return self.marked(memory.worst("allocated")), self.marked(memory.worst("reserved"))
        footprint = self.ctx.get(Liveness(model="ssa")).footprint
        return None if footprint is None or footprint.peak.value is None else (self.marked(footprint.peak), NOT_KNOWN)

    def _verdict(self, counters: _Counters, peak: Quantity) -> tuple[Quantity, str]:
        """Return whether it fits, and what that rests on."""
        if counters.fits is not None:
            return self.marked(counters.fits), ""
        room = self.device.room_bytes
        if room is None:
            return NOT_KNOWN, f"the profile of {self.device.title} does not say how much memory it has"
        least = _number(peak.value) if peak.value is not None else peak.ends[0]
        if least is not None and least > room:
            return self.marked(Quantity(False)), "the tensors alone are too much"
        if peak.value is None:
            most = peak.ends[1]
            if most is not None and most <= room:
                return self.marked(Quantity(True, Provenance.MODELLED)), peak.note
            return NOT_KNOWN, self._why_unknown()
        if counters.allocated.value is not None:
            return self.marked(Quantity(True)), ""
        return self.marked(Quantity(True, Provenance.MODELLED)), counters.reason

    def _why_unknown(self) -> str:
        if self._open:
            return f"sizes depend on {', '.join(map(str, self._open))}"
        lacking = [value for value in self.program.graph.inputs if value.name and is_unstated(value.type)]
        if lacking:
            return f"the file does not say the shape of {lacking[0].name}"
        return "some tensors have no known size"

    @cached_property
    def _open(self) -> list[SymDim]:
        """Return what the peak still depends on: sizes that nobody stated, and elements of small integer inputs."""
        timeline = self.ctx.peek(Liveness(model=self.lifetime))
        sizes = [] if timeline is None else [timeline.peak, *timeline.resident.values()]
        found = {str(symbol): symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols() if not symbol.is_unknown}
        return [found[name] for name in sorted(found)]

    def _missing(self, counters: _Counters, peak: Quantity) -> Quantity:
        memory = counters.memory
        if memory is not None and memory.shortage is not None:
            return self.marked(memory.shortage.missing)
        needed = counters.reserved if counters.reserved.value is not None else peak
        return self.marked(needed - (self.device.room_bytes or 0))

    def _parts(self, footprint: Footprint) -> tuple[Part, ...]:
        """Return what adds up to the peak, the largest first; nothing where the peak is not known."""
        if footprint.peak.value is None or isinstance(footprint.peak.value, str):
            return ()
        cells = {category: column[footprint.peak_step] if len(column) else 0 for category, column in footprint.parts.items()}
        parts = [Part(category, self.marked(plain_number(one))) for category, one in cells.items() if one != 0]
        return tuple(sorted(parts, key=lambda part: -(_number(part.bytes.value) or 0)))

    def _held(self, one: Held) -> HeldTensor:
        scope = one.node.scope.path if one.node is not None else ""
        size = self.marked(plain_number(one.cell))
        return HeldTensor(one.name, one.category, size, scope, _place(one.node), one.why)

    # -- the largest size --------------------------------------------------------------------------------------

    def largest(self, memory: CardMemory) -> LargestSize:
        """Return the largest batch, or other open size, that fits; looked for only where that takes no time worth mentioning."""
        if "compiled" in self.program.metadata:
            return LargestSize("", None, None, None, "", "")  # it is another program for each size
        model = self._opened()
        model = model.rebound(self.decided) if self.decided and model is not self.at else model
        symbols = list(model.program.symbols)
        if not symbols and memory.peak.value is not None:
            return self._none_open()
        if memory.peak.value is None:
            return LargestSize("", None, None, None, "", "")
        free = next((name for name in ("batch", "seq") if symbol_named(model.program, name) is not None), symbols[0])
        symbol = symbol_named(model.program, free) or free
        others = {one.symbol: one.size for one in self.sizes if one.is_open and one.symbol != symbol and one.symbol not in self.decided}
        bind = {name: size for name, size in model.options.bind.items() if name != symbol}
        command = self._fit(self._options({**bind, **others}, alone=True), f"--free {free}")
        reason = self._why_not_searched(model)
        if reason:
            return LargestSize(free, None, None, None, reason, command)
        try:
            with model.manager.using(self.settings):
                search = Search(model, quick=True)
                found = search.largest(search.budget(None), free, others)
        except Cancelled:
            raise
        except IrscopeError as error:
            return LargestSize(free, None, None, None, str(error).partition("\n")[0].partition(" (`")[0], command)
        if found.largest == 0 and found.peak.bytes <= found.memory:
            return LargestSize(free, None, None, None, "the search takes longer than a card", command)
        if found.largest is None:
            return LargestSize(free, None, None, None, "any size fits, as memory does not depend on it", "")
        only = model.program.only_sizes.get(symbol)
        note = ("the largest that the model allows" if only is None else only.why) if found.limit == "range" else ""
        return LargestSize(free, found.largest, found.surely, None if found.exhaustive else found.bound, note, command)

    def _opened(self) -> Model:
        """Return the model with an open size: as it was opened, else without the number that --bind gives its batch."""
        if self.program.symbols or not self.model.options.bind or is_name(self.program.path) or self.program.format in LIVE:
            return self.model
        options = self.model.options
        try:
            model = open_model(Path(self.program.path), replace(options, bind={}), settings=self.settings)
        except IrscopeError:
            return self.model
        free = symbol_named(model.program, "batch") or next(iter(model.program.symbols), "")
        others = {name: size for name, size in options.bind.items() if name != free and symbol_named(model.program, name) != free}
        return model.rebound(others) if others and free else model

    def _why_not_searched(self, model: Model) -> str:
        """Return the reason why the largest size is not searched for while a card is made; empty where it is."""
        if model is self.model and self.at is self.model:
            return "the model cannot be read again with numbers"
        if self.device.room_bytes is None:
            return "the memory of the device is not known"
        is_planned = self.program.traits.runtime is Runtime.ONNXRUNTIME
        return "the search takes longer than a card" if self.program.node_count > (_MOST_PLANNED if is_planned else _MOST_REPLAYED) else ""

    def _none_open(self) -> LargestSize:
        if self._is_live:
            return LargestSize("", None, None, None, "every size is a number", "")
        if GENERATES in self.program.metadata:
            prompt, new, _ = usual_lengths(self.program.path)
            sizes = f"--free batch --prompt {prompt} --new {new}"
            reason = "the sum above is one forward without a cache; for generating"
            return LargestSize("", None, None, None, reason, _command("fit", self._generating(), sizes, self._path))
        if is_name(self.program.path):
            reason = "this is a forward alone; of the training not searched" if TRAINS in self.program.metadata else "not searched"
            if not self.model.options.inputs:
                return LargestSize("", None, None, None, reason, self._fit(self._options({})))
            # Stated types fix the batch: of one input it can be left open, of several nobody knows which belong together.
            option = open_input_option(self.program.graph.inputs, "batch") if len(self.model.options.inputs) == 1 else ""
            return LargestSize("", None, None, None, reason, self._fit(option, self._options({}, opened=option)) if option else "")
        option = open_input_option(self.program.graph.inputs, "batch") if self.program.traits.opens_inputs else ""
        if option:
            return LargestSize("", None, None, None, _FIXED, self._fit(option, self._options({}, opened=option)))
        return LargestSize("", None, None, None, _FIXED, "")

    # -- what it costs -----------------------------------------------------------------------------------------

    def cost(self) -> CardCost:
        costs = self.ctx.get(NodeCosts())
        tally = costs.tally
        flops, moved = (plain_number(cell(*pair)) for pair in self._sums(tally))
        macs = plain_number(cell(tally.value("macs"), tally.limits("macs")))
        timing = self._timing()
        by_binding = timing.by_binding() if timing.seconds else self.ctx.get(Roofline()).by_binding()
        total = sum(by_binding.values())
        binding = max(by_binding, key=lambda name: by_binding[name]) if total else ""
        ratio = intensity(tally.value("flops"), tally.moved) if tally.is_exact else None
        return CardCost(
            flops=self._with_formula(flops, "flops"),
            macs=self._with_formula(macs, "macs"),
            bytes=self._with_formula(moved, "bytes"),
            intensity=self.marked(derived(ratio, flops, moved)) if ratio is not None else NOT_KNOWN,
            time=self._time(timing),
            least_time=self._least_time(),
            bound_by=binding,
            bound_share=by_binding[binding] / total if binding else None,
            energy=self._energy(),
        )

    def _timing(self) -> Timing:
        """Return the predicted time: of a session's optimised graph where the device's own rates are those of sessions."""
        if not self.at.times_a_session(self.device):
            return self.ctx.get(Time())
        try:
            return self.at.as_session("all", self.settings).manager.get(Time())
        except LoadError:
            return self.ctx.get(Time())

    def _time(self, timing: Timing) -> Quantity:
        """Return the predicted time; only its lower end where the time of some nodes is not known."""
        return self.marked(timing.quantity()) if timing.seconds else NOT_KNOWN

    def _least_time(self) -> Quantity:
        bounds = self.ctx.get(Roofline())
        unknown = bounds.unknown
        if unknown and not any(node.binding not in (FREE, UNKNOWN) for node in bounds.nodes):
            return NOT_KNOWN
        return self.marked(Quantity(bounds.least, Provenance.MODELLED, lo=bounds.least if unknown else None))

    def _energy(self) -> Quantity:
        joules = self.ctx.run_one(Energy()).made_report.summary["joules"]
        return self.marked(quantity(joules)) if isinstance(joules, Quantity) else NOT_KNOWN

    def _with_formula(self, number: Quantity, measure: str) -> Quantity:
        """Return the number with its formula in the open sizes."""
        number = self.marked(number)
        if self.at is self.model or number.formula is not None:
            return number
        tally = self._open_tally
        formula = tally.moved if measure == "bytes" else tally.value(measure)
        is_open = isinstance(formula, SymDim) and not formula.is_unknown and tally.is_exact
        return replace(number, formula=str(formula)) if is_open else number

    @cached_property
    def _open_tally(self) -> Tally:
        """Return the sum of costs with open sizes."""
        costs = self.model.manager.peek(NodeCosts())
        return tally_of(self.model.manager) if costs is None else costs.tally

    # -- what is not known, and what could be better -----------------------------------------------------------

    def unknown(self, totals: ParameterTotals) -> CardUnknown:
        remarks = dict(Counter(diagnostic.severity.text for diagnostic in self.diagnostics()))
        costs = self.ctx.peek(NodeCosts())
        return CardUnknown(
            () if costs is None else tuple(sorted(costs.unknown)),
            0 if costs is None else costs.missing,
            self._unsized,
            len(totals.unsized),
            remarks,
        )

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return what was said when the model was read, and by the passes that the default pipeline runs."""
        diagnostics = dict.fromkeys(self.model.diagnostics)
        for analysis in (Shapes(), NodeCosts()):
            diagnostics.update(dict.fromkeys(self.ctx.diagnostics_of(analysis)))
        diagnostics.update(dict.fromkeys(self._said_of_memory))
        return tuple(diagnostics)

    def remarks(self) -> tuple[CardRemark, ...]:
        """Return what saves most, each thing once."""
        if self.program.node_count > _MOST_ADVISED or self.program.training is not None:
            return ()
        try:
            ranked = self.ctx.get(Advise()).ranked
        except Cancelled:
            raise
        except IrscopeError:
            return ()
        remarks: list[CardRemark] = []
        for one in ranked:
            saves = _saves(one.finding)
            if one.share >= _LEAST_SHARE and saves and len(remarks) < _REMARKS:
                places = {_place(node) for node in one.finding.nodes}
                where = f" ({places.pop()})" if len(places) == 1 and "" not in places else ""
                remarks.append(CardRemark(f"{one.finding.what}{where}", saves, one.share, "advise"))
        return tuple(remarks)

    # -- what to do next ---------------------------------------------------------------------------------------

    def next(self, memory: CardMemory, largest: LargestSize, unknown: CardUnknown) -> tuple[Command, ...]:
        """Return the command that goes on from what the card says, and the one that shows everything; none where no command can name the
        model.
        """
        if self._is_live:
            return ()
        options = self._options({size.symbol: size.size for size in self.sizes if size.is_open})
        lacking = " ".join(input_option(value) for value in self.program.graph.inputs if value.name and is_unstated(value.type))
        first = Command(_command("run", options, "--passes advise", self._path), "what could be better, with evidence")
        if GENERATES in self.program.metadata:
            return (
                Command(_command("generate", self._generating(), self._path), "what generating takes: loading, prompt, every token"),
                Command(_command("fit", self._generating(), "--free context", self._path), "the longest context that fits"),
                Command(_command("run", options, "--all", self._path), "every report"),
            )
        if memory.fits.value is None and lacking:
            first = Command(_command("run", lacking, self._options({}), self._path), "the card with sizes for the inputs")
        elif unknown.operators:
            first = Command(_command("ops", "--coverage", self._path), "which operators are not known, and where")
        elif memory.peak.value is None and self._open:
            first = Command(
                _command("run", options, bind_option(self._open, possible_sizes(self.program, self._open)), self._path),
                "the card with numbers for what is open",
            )
        elif memory.peak.value is None:
            first = Command(_command("run", options, "--passes shapes", self._path), "which sizes are not known, and why")
        elif memory.fits.value is False:
            first = Command(_command("run", options, "--passes explain-peak", self._path), "what lowers the peak")
        elif TRAINS in self.program.metadata:
            first = Command(_command("train-plan", self._options({}), self._path), "a step of the training, with its optimizer")
        elif largest.symbol and largest.size is None and largest.command:
            first = Command(largest.command, f"the largest {largest.symbol} that fits")
        return first, Command(_command("run", options, "--all", self._path), "every report")

    def _generating(self) -> str:
        """Return the options of a command that generates: what is said of the device and of the folder."""
        options = self.model.options
        found = [f"--base {shlex.quote(options.base)}"] if options.base else []
        return " ".join((*found, *(["--trust-remote-code"] if options.trust_remote_code else []), *self._of_device()))

    @property
    def _is_live(self) -> bool:
        return self.program.format in LIVE and not is_name(self.program.path)

    @property
    def _path(self) -> str:
        return shlex.quote(self.program.path) if self.program.path else "MODEL"

    def _fit(self, *words: str) -> str:
        """Return the command that looks for the largest size; how much memory there is has to be said where the device's profile does
        not.
        """
        return _command("fit", *words, "" if self.device.room_bytes is not None else "--memory 24GiB", self._path)

    def _options(self, sizes: Mapping[str, int], *, alone: bool = False, opened: str = "") -> str:
        """Return the options that give the same answer again, with numbers for open sizes, or with these `alone`; without the types of an
        input that an option opens.
        """
        found: list[str] = []
        options = self.model.options
        replaced = ("", shlex.split(opened)[1].rpartition("=")[0]) if opened else ()
        given = {name: type_ for name, type_ in options.inputs.items() if name not in replaced}
        found += [f"--input {shlex.quote(typed_input(name, type_))}" for name, type_ in given.items()]
        bind = {**({} if alone else options.bind), **sizes}
        if bind:
            found.append(f"--bind {shlex.quote(','.join(f'{name}={size}' for name, size in bind.items()))}")
        if options.method:
            found.append(f"--method {shlex.quote(options.method)}")
        if options.use_ort:
            found.append("--use-ort")
        if options.ort_level != ("all" if options.use_ort else "off"):
            found.append(f"--ort-level {options.ort_level}")
        if options.base:
            found.append(f"--base {shlex.quote(options.base)}")
        if options.compile is True:
            found.append("--compile")
        elif options.compile:
            found.append(f"--compile-with {shlex.quote(','.join(f'{name}={value}' for name, value in options.compile.items()))}")
        if options.trust_remote_code:
            found.append("--trust-remote-code")
        return " ".join((*found, *self._of_device()))

    def _of_device(self) -> Iterator[str]:
        if self.chosen.is_to_be_named:
            yield f"--device {shlex.quote(self.chosen.name)}"
        if self.settings.torch:
            yield f"--torch {shlex.quote(self.settings.torch)}"
        if self.settings.ort:
            yield f"--ort {shlex.quote(self.settings.ort)}"
        if self.settings.alloc_conf:
            yield f"--alloc-conf {shlex.quote(self.settings.alloc_conf)}"

    # -- weights alone -----------------------------------------------------------------------------------------

    def _of_weights(self, totals: ParameterTotals) -> Card:
        """Return the card of a file of weights: their sizes, and what holding them takes at least."""
        held = plain_number(at_least(totals.every_byte, totals.is_complete()))
        room, least = self.device.room_bytes, _number(held.value)
        too_much = room is not None and least is not None and least > room
        why = "the weights alone are too much" if too_much else "the file has no graph, so what runs beside its weights is unknown"
        memory = CardMemory(
            fits=Quantity(False) if too_much else NOT_KNOWN,
            why=why,
            counted="weights as they are in the file",
            runtime="",
            peak=replace(held, value=None, provenance=Provenance.UNKNOWN, lo=least),
            requested=NOT_KNOWN,
            allocated=NOT_KNOWN,
            reserved=NOT_KNOWN,
            parts=(),
            largest=tuple(_largest_weights(totals)),
            node="",
            module="",
            location="",
            as_pytorch=None,
            missing=held - (room or 0) if too_much else None,
            devices=_with_room(self.device, least or 0) if too_much else (),
        )
        self._let_go()
        unknown = self.unknown(totals)
        return Card(
            identity=self.identity(totals),
            inputs=(),
            sizes=(),
            device=self.card_device(),
            memory=memory,
            largest=LargestSize("", None, None, None, "the file has no graph", ""),
            cost=_COST_UNKNOWN,
            unknown=unknown,
            assumed=tuple(self.program.assumed),
            remarks=(),
            described=_described(self.program),
            next=(
                Command(_command("run", "--passes 'params{values}'", self._path), "statistics of every weight"),
                Command(_command("tui", self._path), "browse the weights"),
            ),
            diagnostics=self.diagnostics(),
        )

    def _sums(self, tally: Tally) -> Iterator[tuple[Dim, tuple[Dim, Dim | None]]]:
        yield tally.value("flops"), tally.limits("flops")
        yield tally.moved, tally.moved_limits

    def marked(self, number: Quantity) -> Quantity:
        """Return the number as an assumed one where something about the run was guessed; a symbolic one is its formula."""
        if isinstance(number.value, str):
            number = replace(number, value=None, formula=number.value)
        found = as_assumed(number) if self.is_guessed else number
        return found if isinstance(found, Quantity) else number


def _described(program: Program) -> CardDescribed | None:
    """Return what a file of weights says of its model."""
    found = described(program.metadata)
    if found is None:
        return None
    return CardDescribed(
        found.architecture, found.figures, found.context, found.cache, found.cache_at_context, found.law or f"not known: {found.why}"
    )


_COST_UNKNOWN = CardCost(NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, "", None, NOT_KNOWN)


def _memory_unknown(why: str) -> CardMemory:
    """Return what the card says of memory where a pass failed."""
    return CardMemory(NOT_KNOWN, why, "", "", NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, (), (), "", "", "", None, None, ())


@immutable
class _Counters:
    """A runtime's counters on the device; unknown where it has none."""

    runtime: str
    requested: Quantity
    allocated: Quantity
    reserved: Quantity
    fits: Quantity | None
    reason: str = ""
    memory: DeviceMemory | None = None


def plain_number(cell: object) -> Quantity:
    """Return a cell of a report as a number that says where it comes from."""
    found = plain(cell)
    if isinstance(found, Quantity):
        return found
    if isinstance(found, str):
        return Quantity(None, formula=found)
    return NOT_KNOWN if found is None else Quantity(found if isinstance(found, int | float) else None)


def _number(value: object) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _card_input(value: Value) -> CardInput:
    type_ = value.type
    if not isinstance(type_, TensorType):
        return CardInput(value.name or "", str(type_), None)
    shape = None if type_.shape is None else tuple(dim_cell(size) for size in type_.shape)
    return CardInput(value.name or "", type_.dtype.text, shape)


def _command(name: str, *words: str) -> str:
    """Return a command line of what there is to say."""
    return " ".join(("irscope", name, *filter(None, words)))


def _by_type(totals: ParameterTotals) -> tuple[CardWeights, ...]:
    """Return the weights of known size by element type, quantised ones by their scheme, each storage once."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for weight in totals.weights:
        type_ = weight.type
        if weight in totals.tied_to or not isinstance(type_, TensorType):
            continue
        numel, size = type_.numel, type_.nbytes
        if isinstance(numel, int) and isinstance(size, int):
            part = totals.packed.get(weight)
            name = type_.dtype.text if part is None else part.scheme
            counts[name] += numel if part is None else part.parameters
            sizes[name] += size
    return tuple(CardWeights(name, counts[name], size) for name, size in sizes.most_common())


def _largest_weights(totals: ParameterTotals) -> Iterator[HeldTensor]:
    known = [(size, weight) for weight in totals.weights if weight not in totals.tied_to and isinstance(size := weight.type.nbytes, int)]
    for size, weight in sorted(known, key=lambda pair: -pair[0])[:_LARGEST]:
        yield HeldTensor(weight.name or "", "parameter", Quantity(size), "", "", "in the file")


def _size_on_disk(model: Model) -> int | None:
    """Return the model's file, and the files beside it in which its weights lie."""
    path = Path(model.program.path)
    try:
        if not path.is_file():
            return None
        files = {path.resolve()}
        for body in model.program.bodies():
            named = {Path(data.path) for data in body.data.values() if isinstance(data, FileRegion)}
            # Readers name files as seen from the working folder, a text as seen from its own.
            files.update((one if one.exists() else path.parent / one).resolve() for one in named)
        return sum(file.stat().st_size for file in files)
    except (OSError, ValueError):
        return None


def _tensors(footprint: Footprint) -> list[Held]:
    """Return what a run makes that is in memory at the peak, the largest first; where it makes nothing, what it was given."""
    if footprint.peak.value is None or isinstance(footprint.peak.value, str):
        return []
    return [one for one in footprint.at_peak if one.value is not None] or [one for one in footprint.at_peak if one.category != ROUNDING]


def _place(node: Node | None) -> str:
    """file:line of the user's source."""
    loc = user_line(node.loc) if node is not None and node.loc is not None else None
    return "" if loc is None else f"{loc.file.replace(chr(92), '/').rpartition('/')[2]}:{loc.line}"


def _enough(device: DeviceProfile, counters: _Counters, peak: Quantity) -> tuple[str, ...]:
    """Known devices that have enough memory, the smallest first."""
    if counters.memory is not None and counters.memory.shortage is not None:
        return tuple(one.name for one in counters.memory.shortage.fitting)
    needed = counters.reserved if counters.reserved.value is not None else peak
    return _with_room(device, _number(needed.value) or _number(needed.ends[0]) or 0)


def _with_room(device: DeviceProfile, needed: Number) -> tuple[str, ...]:
    """Known devices of the same kind with so much room, the smallest first."""
    profiles = [profile for profile in all_devices() if profile.kind == device.kind and (profile.room_bytes or 0) >= needed]
    return tuple(profile.name for profile in sorted(profiles, key=lambda profile: (profile.memory_bytes or 0, profile.name)))


def _saves(finding: Finding) -> str:
    """Return what a finding saves, in words; empty where that is not a number."""
    parts: list[str] = []
    if isinstance(finding.memory, int) and finding.memory > 0:
        parts.append(f"{humanise(finding.memory, Kind.BYTES)} of memory")
    if finding.seconds is not None and finding.seconds > 0:
        parts.append(f"~{humanise(finding.seconds, Kind.SECONDS)}")
    if not parts and isinstance(finding.moved, int) and finding.moved > 0:
        parts.append(f"{humanise(finding.moved, Kind.BYTES)} moved")
    if not parts and isinstance(finding.flops, int) and finding.flops > 0:
        parts.append(humanise(finding.flops, Kind.FLOPS))
    return ", ".join(parts)
