"""The largest sizes at which a model fits into memory: the search, and its reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from irscope.amounts import parse_memory
from irscope.devices import Target, target_of
from irscope.devices.catalogue import all_devices
from irscope.errors import PassError, UsageError
from irscope.immutable import immutable
from irscope.ir.bind import bind_option, possible_sizes, typed
from irscope.ir.dims import Dim, SymDim, bind
from irscope.ir.program import Assumed
from irscope.memory.caching import BOUNDLESS, OutOfMemory
from irscope.passes.cost.time import Time
from irscope.passes.inference.shapes import Shapes, size_fixes
from irscope.passes.lifetimes.changes import user_line
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory, bracketed
from irscope.passes.memory.curve import Curve, Simulator, simulator
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.points import (
    Allowed,
    Heights,
    Largest,
    Points,
    check_known,
    find_symbol,
    largest_by_formula,
    largest_by_measuring,
    peaks_at,
)
from irscope.passes.ort import OrtFigures
from irscope.passes.ort.cuda_session import CudaSession
from irscope.passes.ort.memory import OrtMemory, session_at
from irscope.passkit.settings import Settings
from irscope.report.report import Document, ModelInfo, Report, assumed_json
from irscope.report.table import Column, Limit, Mark, Series, Table
from irscope.report.units import Kind, bytes_text
from irscope.report.values import Provenance, Quantity
from irscope.session import Model, check_target

COUNTERS = ("reserved", "allocated", "requested", "activation")
"""Amounts that may have to fit: what PyTorch's allocator takes from the device, what it hands out, what is asked for, or activations alone.
"""
SCHEMA = "irscope.fit/1"
_ANALYSES = 50
_FEW_ANALYSES, _FEW_NODES = 12, 300
"""Of a search that may take no time worth mentioning, where nothing can be replayed: of models with so few nodes."""
_LEAST_LOOKS = 60
_EVENTS = 400_000
"""Replayed in one search: some seconds."""
_LOOK_EVENTS = 20
"""Cost of a look besides its events, in events: of a tape with few of them nearly all."""
_DOUBLINGS = 62
_UNBOUNDED = 1 << 62
_COMPUTED = (
    *("largest", "peak_bytes", "limited_by", "limited_by_scope", "limited_by_location", "limit", "headroom_bytes", "lowest_peak_bytes"),
    *("highest_peak_bytes", "largest_surely", "surely_peak_bytes", "largest_before_oom", "next_peak_bytes", "next_runs", "next_retries"),
    *("failing", "exhaustive"),
)
"""Fields of an answer that come from the sizes that were searched."""
_End: TypeAlias = Literal["bytes", "most"]


@immutable(slots=False)
class Need:
    """Memory that the model needs at a binding."""

    bytes: int
    node: str
    """The node at the peak."""
    scope: str
    location: str
    least: int | None = None
    """Bytes where everything of which the size is not known or modelled takes the least that it may."""
    most: int | None = None
    """Bytes where it takes the most; None where nothing bounds that."""
    unbounded: str = ""
    """Reason why nothing bounds it."""
    is_modelled: bool = False
    """True where some size in it is unknown or modelled."""
    device_peak: Quantity | None = None
    """The device's peak at this binding by liveness; None where no allocator's is known."""


@immutable(slots=False)
class Fit:
    """The largest size that fits, and what stops larger ones."""

    model: str
    free: str
    """The symbol as the user calls it."""
    symbol: str
    memory: int
    counter: str
    largest: int | None
    """0 where not even the smallest size fits, None where nothing stops it."""
    smallest: int
    limit: str
    """"memory"; "range" where the model itself allows no larger size, "nothing" where nothing would stop it."""
    peak: Need
    """At the largest size; at the smallest where nothing fits."""
    following: Need | None
    """One size further."""
    following_size: int | None
    """The next size that the model allows; None where there is none."""
    following_retries: tuple[int, ...] | None
    """Number of times that PyTorch empties its cache in the first and in the second forward at that size and then goes on; None where it
    runs out of memory, or where that does not apply.
    """
    surely: int | None
    """The largest size that fits even where everything takes the most that it may; 0 for none, None where nothing stops it."""
    surely_peak: Need | None
    """At that size; None where there is none."""
    failing: tuple[int, ...]
    """Sizes below the largest that were seen not to fit: what is reserved may fall where sizes grow."""
    formula: str
    """Bytes as they are requested."""
    exhaustive: bool
    """True where every larger size is known not to fit."""
    bound: int | None
    """The largest size at which what is asked for fits: no larger one can. None where nothing bounds it."""
    before_oom: int | None
    """The largest size that PyTorch can run if it may free its cache and retry; None where no allocator is simulated."""
    runs_between: bool
    """True where no size between the largest and that one was seen to run out of memory."""
    context: tuple[int, int] | None
    """Bytes of a CUDA context besides, which these numbers do not include."""
    target: str
    bind: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[int, Quantity] = field(default_factory=dict)
    """Predicted seconds of a run by size."""
    assumed: tuple[Assumed, ...] = ()
    """Assumptions about the run: what was not specified, and the value that was assumed."""

    @property
    def fits(self) -> bool:
        """Return whether any size fits."""
        return self.largest != 0

    @property
    def following_runs(self) -> bool | None:
        """Return whether one size further PyTorch goes on by emptying its cache; None where that is no question."""
        return None if self.before_oom is None or self.following is None else self.following_retries is not None

    @property
    def headroom(self) -> int:
        """Return the bytes that are left at the largest size; negative where nothing fits."""
        return self.memory - self.peak.bytes

    @property
    def limited_by(self) -> Need:
        """Return what needs most where it no longer fits."""
        return self.following if self.following is not None and self.fits else self.peak

    def report(self) -> Report:
        """Return the same as numbers with their kinds, for people."""
        return _fit_report(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.report()._repr_html_()

    def to_json(self) -> dict[str, object]:
        """Return the document that `irscope fit --format json` prints."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "free": self.free,
            "symbol": self.symbol,
            "largest": self.largest,
            "peak_bytes": self.peak.bytes,
            "device_peak_bytes": None if self.peak.device_peak is None else self.peak.device_peak.value,
            "limited_by": self.limited_by.node,
            "limited_by_scope": self.limited_by.scope,
            "limited_by_location": self.limited_by.location,
            "limit": self.limit,
            "formula": self.formula,
            "memory_bytes": self.memory,
            "headroom_bytes": self.headroom,
            "counter": self.counter,
            "is_modelled": self.peak.is_modelled,
            "lowest_peak_bytes": self.peak.least,
            "highest_peak_bytes": self.peak.most,
            "unbounded": self.peak.unbounded,
            "largest_surely": self.surely,
            "surely_peak_bytes": None if self.surely_peak is None else self.surely_peak.most,
            "largest_before_oom": self.before_oom,
            "runs_between": self.runs_between,
            "next_peak_bytes": None if self.following is None else self.following.bytes,
            "next_runs": self.following_runs,
            "next_retries": None if self.following_retries is None else list(self.following_retries),
            "failing": list(self.failing),
            "exhaustive": self.exhaustive,
            "largest_possible": self.bound,
            "context_bytes": None if self.context is None else list(self.context),
            **self._times_json(),
            "target": self.target,
            "bind": dict(self.bind),
            "assumed": assumed_json(self.assumed),
            "provenance": self.provenance,
        }

    def _times_json(self) -> dict[str, object]:
        """Return predicted seconds at the largest size, and at the one that surely fits."""
        found: dict[str, object] = {}
        for name, time in self._named_times():
            found |= {name: None if time is None else time.value, f"{name}_interval": None if time is None else list(time.ends)}
        return found

    def _named_times(self) -> list[tuple[str, Quantity | None]]:
        sizes = (("seconds", self.largest), ("surely_seconds", self.surely))
        return [(name, self.times.get(size) if size else None) for name, size in sizes]

    @property
    def provenance(self) -> dict[str, str]:
        """Return which parts of the document are modelled."""
        found = dict.fromkeys(_COMPUTED, Provenance.MODELLED.value) if self.is_modelled else {}
        device_peak = self.peak.device_peak
        if device_peak is not None and device_peak.provenance is not Provenance.EXACT:
            found["device_peak_bytes"] = device_peak.provenance.value
        for name, time in self._named_times():
            if time is not None and time.provenance is not Provenance.EXACT:
                found |= dict.fromkeys((name, f"{name}_interval"), time.provenance.value)
        return found

    @property
    def is_modelled(self) -> bool:
        """Return whether the answer hangs on a size that is not exact."""
        return any(need is not None and need.is_modelled for need in (self.peak, self.following, self.surely_peak))


def fit(
    model: Model,
    memory: int | str | None = None,
    free: str = "batch",
    counter: str = "auto",
    device: str = "",
    torch: str = "",
    alloc_conf: str = "",
) -> Fit:
    """Return the largest size of a symbol at which a model fits into so much memory, such as "24GiB"; None is what the device has.

    `counter` says what has to fit: "reserved", "allocated" or "requested" as torch.cuda.memory_stats() counts them in the worse of
    the first two forward passes, or "activation" for what is alive beyond weights and inputs. "auto" is the first that is known.
    """
    settings = Settings(device=device, torch=torch, alloc_conf=alloc_conf) if device or torch or alloc_conf else model.manager.settings
    check_target(settings)
    with model.manager.using(settings):
        search = Search(model, counter)
        return search.largest(search.budget(memory), free, {})


def room_of(memory: int | str | None, target: Target) -> int:
    """Return the bytes that may be taken: as given, or the device's memory without a CUDA context."""
    if isinstance(memory, str):
        return parse_memory(memory)
    if memory is not None:
        return memory
    if target.device.room_bytes is None:
        hint = "say how much: `--memory 24GiB`"
        raise UsageError(f"the profile of {target.device.title} does not say how much memory it has", code="IRS336", hint=hint)
    return target.device.room_bytes


class Search:
    """Looks for sizes that fit; what was computed for one question serves the next."""

    def __init__(self, model: Model, counter: str = "auto", *, quick: bool = False) -> None:
        """`quick` looks at a few dozen sizes: larger ones than what it finds may fit, and it does not say what runs with retries."""
        if counter not in ("auto", *COUNTERS):
            raise UsageError(f"there is no counter {counter!r}", code="IRS337", hint=f"counters: auto, {', '.join(COUNTERS)}")
        self.model = model
        self.target = target_of(model.manager.settings)
        self._wanted = counter
        self._is_quick = quick
        self._needs: dict[tuple[tuple[str, int], ...], Need] = {}
        self._arenas: dict[tuple[tuple[str, int], ...], tuple[CudaSession, OrtFigures] | None] = {}
        self._looks_done = 0
        self._memory: int | None = None
        """Memory that the current question is about."""
        self._is_faithful = True
        """True as long as no replay was seen to differ from an analysis at numbers."""
        self._memories: dict[tuple[tuple[str, int], ...], DeviceMemory] = {}

    @cached_property
    def timeline(self) -> Timeline:
        """Return the timeline with open symbols, from which all formulas come."""
        timeline = self.model.manager.get(Liveness())
        check_known(timeline, self.model.manager.get(Shapes()))
        return timeline

    @cached_property
    def counter(self) -> str:
        """Return what has to fit."""
        if self._wanted in ("reserved", "allocated") and self.simulator is None and not self._has_arena:
            reason = self.model.manager.get(CudaMemory()).reason
            raise UsageError(f"what is {self._wanted} is not known: {reason}", code="IRS337", hint="`--counter requested` is")
        if self._wanted != "auto":
            return self._wanted
        if self._has_arena:
            # The arena grows by no more than is left: what is in use has to fit, not what it would hold with room enough.
            return "allocated"
        return "reserved" if self.simulator is not None else "requested"

    @cached_property
    def _has_arena(self) -> bool:
        """Return whether ONNX Runtime's arena on the GPU is known for the model."""
        return self.timeline.model == "ort" and self.model.manager.get(OrtMemory()).cuda is not None

    @cached_property
    def simulator(self) -> Simulator | None:
        """Return what replays PyTorch's allocator at any size; None for models that it does not run."""
        return simulator(self.model.manager, "auto")

    def budget(self, memory: int | str | None) -> int:
        """Return the bytes that the model may take: as given, or the device's memory without a CUDA context."""
        try:
            return room_of(memory, self.target)
        except UsageError as error:
            if memory is None:
                fixes = size_fixes(self.model.manager.get(Shapes()), self.model.manager.get(Liveness()).unsized)
                error.hint = f"say how much: {typed(' '.join(('--memory 24GiB', *fixes)))}"
            raise

    def largest(self, memory: int, free: str, others: Mapping[str, int]) -> Fit:
        """Return the largest size of one symbol that fits, with sizes for others."""
        if self._memory != memory:
            self._needs.clear()
            self._arenas.clear()
        self._memory = memory
        try:
            return self._largest(memory, free, others)
        finally:
            self.model.manager.ended()

    def _largest(self, memory: int, free: str, others: Mapping[str, int]) -> Fit:
        symbol = find_symbol(self.model.program, free)
        self._check_bound(symbol, others)
        span = _Span(symbol, others, Allowed(self.model.program, symbol, others))
        bound = span.possible(largest_by_formula(self._heights(symbol, others), memory, span.low, span.high, self._is_rising))
        unlimited = bound.limit == "range" and span.high is None
        largest = sure = bound
        if bound.size is not None:
            # The formula counts tensors as they are requested; what has to fit is more than that.
            largest = self._settled(memory, span, bound, "bytes")
            sure = self._sure(memory, span, largest)
        size = largest.size
        at = span.low if size is None else size
        after = None if size is None or self._is_quick else span.allowed.next(size)
        following = None if after is None else self.need(symbol, after, others)
        asks_device = not self._is_quick and self._is_replayed and self.counter == "reserved" and not (size is None and span.high is None)
        retries = self._retries(memory, span, after) if asks_device and after is not None else None
        last = self._before_oom(memory, span, bound) if asks_device else None
        return Fit(
            model=self.model.program.path,
            free=free,
            symbol=symbol,
            memory=memory,
            counter=self.counter,
            largest=None if unlimited else size or 0,
            smallest=span.low,
            limit="nothing" if unlimited else largest.limit,
            peak=self.need(symbol, at, others),
            following=following,
            following_size=after,
            following_retries=retries,
            surely=None if unlimited else sure.size or 0,
            surely_peak=None if not sure.size else self.need(symbol, sure.size, others),
            failing=largest.failing,
            formula=self.formula(others),
            exhaustive=largest.exhaustive,
            bound=bound.size,
            before_oom=None if last is None else max(last.size or 0, size or 0),
            runs_between=last is not None and retries is not None and all(one <= (size or 0) for one in last.failing),
            context=self.target.device.context_bytes,
            target=self.target.text,
            bind={**self.model.options.bind, **others},
            assumed=tuple(self.model.program.assumed),
        )

    def frontier(self, memory: int, free: Sequence[str], others: Mapping[str, int]) -> list[Fit]:
        """Return, for ever larger sizes of the second symbol, the largest of the first; the last row has the largest second that fits."""
        first, second = (find_symbol(self.model.program, name) for name in free)
        if first == second:
            raise UsageError(
                f"{free[0]!r} and {free[1]!r} are one symbol", code="IRS337", hint=f"symbols: {', '.join(self.model.program.symbols)}"
            )
        low = Allowed(self.model.program, first, {}).low
        most = self.largest(memory, free[1], {**others, first: low})
        if not most.largest:
            return [self.largest(memory, free[0], {**others, second: most.smallest})]
        allowed = Allowed(self.model.program, second, {first: low})
        sizes = sorted({size for power in range(_DOUBLINGS) if (size := allowed.at_most(most.smallest << power)) < most.largest})
        return [self.largest(memory, free[0], {**others, second: size}) for size in (*sizes, most.largest)]

    def formula(self, others: Mapping[str, int]) -> str:
        """Return the bytes as they are requested: weights, inputs and the activation peak."""
        total: Dim = self.timeline.peak
        if self.counter != "activation":
            for size in self.timeline.resident.values():
                total = total + (0 if size is None else size)
        return str(bind(total, others))

    def formula_bytes(self, symbol: str, sizes: Sequence[int], others: Mapping[str, int] | None = None) -> Sequence[int]:
        """Return the bytes as they are requested at some sizes: what is needed is never less."""
        return self._heights(symbol, others or {})(sizes)

    def need(self, symbol: str, size: int, others: Mapping[str, int]) -> Need:
        """Return what the model needs at one size, from an analysis of its own at exactly that size."""
        sizes = {**others, symbol: size}
        key = _key(sizes)
        need = self._needs.get(key)
        if need is None:
            need = self._needs[key] = self._measured(sizes)
        return need

    def _settled(self, memory: int, span: _Span, bound: Largest, end: _End) -> Largest:
        """Return the largest size by replaying requests that were found once; by analyses of their own where these find something else."""
        assert bound.size is not None
        replayed, analysed = self._measures(span, end)
        is_replayed = self._is_replayed or self._replays_arena(span)
        few = 0 if is_replayed or self.model.program.node_count > _FEW_NODES else _FEW_ANALYSES
        for measure in (replayed, analysed) if is_replayed else (analysed,):
            looks = self._looks if measure is replayed and self._is_replayed else few if self._is_quick else _ANALYSES
            largest = span.possible(largest_by_measuring(measure, memory, bound.size, span.low, span.high, looks))
            around = span.around(largest.size)[: 1 if self._is_quick else None]
            if measure is analysed or all(measure(size) == analysed(size) for size in around):
                break
            self._is_faithful = False
        return replace(largest, exhaustive=largest.exhaustive and bound.exhaustive)

    def _sure(self, memory: int, span: _Span, largest: Largest) -> Largest:
        """Return the largest size that fits where everything takes the most that it may: none above that which fits as it is predicted."""
        if largest.size is None:
            return largest
        at = self.need(span.symbol, largest.size, span.others)
        if not at.is_modelled or (at.most is not None and at.most <= memory):
            return largest
        if at.most is None and self._is_unbounded(span):
            return Largest(None, "memory")
        return self._settled(memory, span, largest, "most")

    def _measures(self, span: _Span, end: _End) -> tuple[Callable[[int], int], Callable[[int], int]]:
        """Return what is needed at a size, by replaying and by an analysis of its own."""
        found: dict[int, int] = {}

        def replayed(size: int) -> int:
            size = span.allowed.at_most(size)
            if size not in found and self._has_arena:
                self._tick()
                found[size] = self._arena_bytes(span, size, end)
            elif size not in found:
                self._tick()
                assert self.simulator is not None
                point = span.at(size)
                found[size] = self.simulator.needed(point)[0].worst(self.counter)
                if end == "most":
                    (highest,) = self.simulator.most(point)
                    found[size] = _UNBOUNDED if highest is None else max(found[size], highest.worst(self.counter))
            return found[size]

        def analysed(size: int) -> int:
            size = span.allowed.at_most(size)
            self._tick()
            need = self.need(span.symbol, size, span.others)
            return need.bytes if end == "bytes" else _UNBOUNDED if need.most is None else need.most

        return replayed, analysed

    def _replays_arena(self, span: _Span) -> bool:
        """Return whether ONNX Runtime's arena can be simulated at any size without an analysis of its own."""
        return self._has_arena and self.counter != "activation" and self._arena_at(span, span.low) is not None

    def _arena_at(self, span: _Span, size: int) -> tuple[CudaSession, OrtFigures] | None:
        """Return the arena at a size, with the order and the buffers that hold for all sizes; None where one of them is unknown."""
        sizes = {**span.others, span.symbol: size}
        key = _key(sizes)
        if key not in self._arenas:
            self._arenas[key] = session_at(self.model.manager, OrtMemory(limit=self._memory or 0), sizes)
        return self._arenas[key]

    def _arena_bytes(self, span: _Span, size: int, end: _End) -> int:
        """Return what the arena needs at a size, as predicted or at most."""
        arena = self._arena_at(span, size)
        assert arena is not None
        session, figures = arena
        if end == "bytes":
            return self._needed(session, figures)
        most = session.worst(figures, self.counter).ends[1]
        return _UNBOUNDED if most is None else int(most)

    def _is_unbounded(self, span: _Span) -> bool:
        """Return whether nothing bounds what the smallest size may need."""
        if self._is_faithful and self._replays_arena(span):
            return self._arena_bytes(span, span.low, "most") == _UNBOUNDED
        return self.need(span.symbol, span.low, span.others).most is None

    def _tick(self) -> None:
        """Say that another size is looked at: how many there will be depends on what is found."""
        self._looks_done += 1
        self.model.manager.tick(self._looks_done, None, "sizes tested:")

    @property
    def _is_replayed(self) -> bool:
        return self.simulator is not None and self.counter != "activation"

    @cached_property
    def _looks(self) -> int:
        """Return how many sizes may be replayed in reasonable time."""
        assert self.simulator is not None
        if self._is_quick:
            return 0
        return max(_LEAST_LOOKS, _EVENTS // (self.simulator.events + _LOOK_EVENTS))

    def _retries(self, memory: int, span: _Span, size: int) -> tuple[int, ...] | None:
        """Return how often PyTorch empties its cache with just so much memory; None where it runs out."""
        assert self.simulator is not None
        size = span.allowed.at_most(size)
        self._tick()
        if self._is_faithful:
            (counted,) = self.simulator.under(span.at(size), memory)
            return None if counted is None else counted.retries
        self.need(span.symbol, size, span.others)
        found = self._memories[_key({**span.others, span.symbol: size})]
        try:
            return found.replay(memory).retries
        except OutOfMemory:
            return None

    def _before_oom(self, memory: int, span: _Span, bound: Largest) -> Largest:
        """Return where PyTorch itself runs out of memory: not before what fits without emptying the cache."""
        if bound.size is None:
            return bound

        def overflow(size: int) -> int:
            return memory if self._retries(memory, span, size) is not None else memory + 1

        looks = self._looks if self._is_faithful else _ANALYSES
        return span.possible(largest_by_measuring(overflow, memory, bound.size, span.low, span.high, looks))

    def _heights(self, symbol: str, others: Mapping[str, int]) -> Heights:
        def heights(sizes: Sequence[int]) -> Sequence[int]:
            columns = {symbol: sizes, **{name: [size] * len(sizes) for name, size in others.items()}}
            peaks = peaks_at(self.timeline, Points(columns, {}))
            return peaks.activation if self.counter == "activation" else peaks.total

        return heights

    @cached_property
    def _is_rising(self) -> bool:
        """Return whether larger sizes certainly never need less."""
        timeline = self.timeline
        sizes = (*(one.size for one in timeline.ranges), *timeline.inside.values(), *timeline.resident.values())
        return all(size.rising for size in sizes if isinstance(size, SymDim))

    def _check_bound(self, symbol: str, others: Mapping[str, int]) -> None:
        """Raise UsageError where another symbol decides as well."""
        timeline = self.timeline
        sizes = (*timeline.alive, *timeline.resident.values())
        found = {str(symbol): symbol for size in sizes if isinstance(size, SymDim) for symbol in size.symbols()}
        open_ = {name: one for name, one in found.items() if name not in (symbol, *others)}
        if open_:
            names = ", ".join(sorted(open_))
            frontier = typed(f"--free {symbol},{sorted(open_)[0]}")
            option = bind_option(open_.values(), possible_sizes(self.model.program, open_.values()))
            hint = f"{typed(option)} gives sizes, {frontier} looks for the largest {symbol} at each of them"
            raise UsageError(f"the peak also depends on {names}", code="IRS338", hint=hint)

    def _measured(self, sizes: Mapping[str, int]) -> Need:
        rebound = self.model.numbers_at(sizes)
        timeline = rebound.manager.get(Liveness())
        check_known(timeline, rebound.manager.get(Shapes()))
        peak = timeline.peak
        if not isinstance(peak, int):
            raise PassError(f"the peak is no number but {peak}", code="IRS333")
        cuda = rebound.manager.get(CudaMemory()) if self._is_replayed else None
        footprint = timeline.footprint
        device_peak = footprint.peak if footprint is not None and footprint.of == "device" else None
        node = timeline.steps[timeline.peak_step] if timeline.steps else None
        if cuda is not None and footprint is not None:
            node = footprint.peak_node
        location = "" if node is None or node.loc is None else str(user_line(node.loc))
        place = (node.name, node.scope.path, location) if node is not None else ("", "", "")
        if cuda is not None:
            self._memories[_key(sizes)] = cuda
            return replace(_device_need(cuda, self.counter, place), device_peak=device_peak)
        if self.counter == "activation":
            return Need(peak, *place, least=peak, most=peak)
        plan = rebound.manager.get(OrtMemory(limit=self._memory or 0)) if self._has_arena else None
        if plan is not None and plan.cuda is not None and plan.figures is not None:
            needed = _arena_need(plan.cuda, plan.figures, self.counter, place)
            return replace(needed, bytes=self._needed(plan.cuda, plan.figures), device_peak=device_peak)
        if timeline.model == "xla" and footprint is not None and isinstance(footprint.peak.value, int):
            least, most = (None if end is None else int(end) for end in footprint.peak.ends)
            return Need(footprint.peak.value, *place, least=least, most=most, is_modelled=True)
        total = peak + sum(size for size in timeline.resident.values() if isinstance(size, int))
        return Need(total, *place, least=total, most=total, device_peak=device_peak)

    def _needed(self, session: CudaSession, figures: OrtFigures) -> int:
        """Return what the arena needs as it is predicted: what is in use may fit, and yet find no place between what is held."""
        needed = session.predicted(figures, self.counter)
        if not session.shortage or self._memory is None or needed > self._memory:
            return needed
        return max(self._memory + 1, session.predicted(figures, "reserved"))


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


@immutable(slots=False)
class _Span:
    """Sizes of one symbol, with those of others."""

    symbol: str
    others: Mapping[str, int]
    allowed: Allowed

    @property
    def low(self) -> int:
        return self.allowed.low

    @property
    def high(self) -> int | None:
        return self.allowed.high

    def possible(self, largest: Largest) -> Largest:
        """Return the largest size that also runs."""
        return largest if largest.size is None else replace(largest, size=self.allowed.at_most(largest.size))

    def at(self, size: int) -> Points:
        return Points({name: [number] for name, number in {**self.others, self.symbol: size}.items()}, {})

    def around(self, size: int | None) -> list[int]:
        """Return a size and the next, as far as the model allows them."""
        first = self.low - 1 if size is None else size
        return [one for one in (first, first + 1) if one >= self.low and (self.high is None or one <= self.high)]


def _arena_need(session: CudaSession, figures: OrtFigures, counter: str, place: tuple[str, str, str]) -> Need:
    """Return what ONNX Runtime's arena on the GPU counts in the worse of the first two runs."""
    worst = session.worst(figures, counter)
    assert isinstance(worst.value, int)
    least, most = worst.ends
    return Need(
        worst.value,
        *place,
        least=None if least is None else int(least),
        most=None if most is None else int(most),
        unbounded=session.open_,
        is_modelled=worst.provenance is not Provenance.EXACT,
    )


def _device_need(memory: DeviceMemory, counter: str, place: tuple[str, str, str]) -> Need:
    """Return what the allocator of a device counts in the worse of the first two forward passes."""
    if memory.central is None or memory.is_open:
        raise PassError(
            f"what is {counter} is not known: {memory.reason}", code="IRS333", hint="choose another counter: `--counter activation`"
        )
    outcome = memory.central
    if any(outcome.retries):
        # What is needed is asked, not what there is after the cache was given back.
        outcome = memory.replay(BOUNDLESS)
    central = outcome.worst(counter)
    if not memory.lows:
        return Need(central, *place, least=central, most=central)
    least, most = (
        min(central, *(replayed.worst(counter) for replayed in memory.lows)),
        None if memory.high is None else max(central, memory.high.worst(counter)),
    )
    amount = bracketed(counter, central, (least, most), memory.unbounded)
    return Need(central, *place, least=least, most=most, unbounded=memory.unbounded, is_modelled=amount.provenance is not Provenance.EXACT)


# Reports of the largest sizes at which a model fits into memory.

_FEW = 6
_TIMES = {1: "once", 2: "twice"}
_WHAT = {
    "reserved": "reserved from the device",
    "allocated": "allocated, as blocks",
    "requested": "requested: weights, inputs and the activation peak",
    "activation": "alive beyond weights and inputs",
}
_SIZES = ("surely", "as_modelled", "needed", "device_peak", "one_further")


def fit_document(found: Fit, model: ModelInfo, search: Search) -> Document:
    """Return what was found for one symbol; its JSON is of the schema irscope.fit/1."""
    found = replace(found, times=_times(found, search.model))
    report = replace(found.report(), pictures=lambda: _around_limit(found, search.model))
    return Document(model=model, reports=(report,), own_json=lambda _: found.to_json())


def _times(found: Fit, model: Model) -> dict[int, Quantity]:
    """Return the predicted time of a run at the sizes of the answer; nothing for a size at which it cannot be predicted."""
    sizes = sorted({size for size in (found.surely, found.largest) if size})
    try:
        timings = {size: Time().at(model.program.graph, model.manager, {**found.bind, found.symbol: size}) for size in sizes}
    except PassError:
        return {}
    return {size: timing.quantity() for size, timing in timings.items() if timing.seconds}


_PICTURED: Final = 12
"""Sizes at which the peak is drawn."""


def _around_limit(found: Fit, model: Model) -> tuple[Series, ...]:
    """Return the peak by size, from the smallest one to some way beyond the largest that fits; nothing where it cannot be computed for
    all.
    """
    if not found.largest:
        return ()
    last = found.largest if found.limit == "range" else max(found.largest + found.largest // 4, found.largest + 1)
    step = max((last - found.smallest) // _PICTURED, 1)
    sizes = sorted({*range(found.smallest, last + 1, step), found.largest, last})
    try:
        [result] = model.manager.run([Curve(over=f"{found.free}={','.join(map(str, sizes))}")])
    except PassError:
        return ()
    limit = Limit(found.memory, "memory")
    mark = Mark(found.largest, f"the largest that fits: {found.largest:,}")
    return tuple(replace(series, limits=(limit,), marks=(mark,)) for series in result.report().series)


def frontier_document(rows: Sequence[Fit], free: Sequence[str], second: str, model: ModelInfo) -> Document:
    """Return what was found for two symbols: the largest size of the first for each of the second."""
    return Document(model=model, reports=(_frontier_report(rows, free, second),), own_json=lambda _: _frontier_json(rows, free, second))


def best_of(rows: Sequence[Fit]) -> Fit:
    """Return the row with the largest size."""
    return max(rows, key=lambda row: row.largest or 0)


def unfit_lines(found: Fit) -> list[str]:
    """Return lines on why nothing fits, and what would."""
    needed = found.peak.bytes
    modelled = "~" if found.peak.is_modelled else ""
    lines = [
        f"irscope: error IRS335: does not fit: {found.free} {found.smallest:,} needs {modelled}{bytes_text(needed)} ({found.counter}), "
        f"there are {bytes_text(found.memory)}; most at {_limiting_place(found)}"
    ]
    large = sorted(
        (device.memory_bytes, device.name) for device in all_devices() if device.memory_bytes and (device.room_bytes or 0) >= needed
    )
    enough = (
        f"a device with more would do: {', '.join(name for _, name in large[:3])}" if large else "no device that irscope knows has so much"
    )
    lines.append(f"  {enough}; `irscope run --passes explain-peak MODEL` tells what lowers the peak")
    return lines


def _fit_report(found: Fit) -> Report:
    """Return the answer, then where it comes from."""
    if found.largest is None:
        headline = f"{found.free}: any size fits {bytes_text(found.memory)}; what the model needs does not depend on it"
        return Report("fit", headline=(headline,))
    summary: dict[str, object] = {
        "symbol": found.free if found.free == found.symbol else f"{found.free} ({found.symbol})",
        "counted": f"{_WHAT[found.counter]} ({found.counter})",
    }
    at = f"at {found.largest:,}"
    left = f"{at}, {bytes_text(found.headroom)} left"
    if found.peak.is_modelled:
        summary |= {"surely": _surely(found), "as_modelled": _needed(found.peak, left)}
    else:
        summary["needed"] = _needed(found.peak, left)
    peak = found.peak.device_peak
    if peak is not None:
        summary["device_peak"] = Quantity(peak.value, peak.provenance, None, f"{at}, which liveness shows in parts", *(peak.interval or ()))
    for at_size, time in sorted(found.times.items()):
        key = "time" if at_size == found.largest else "time_surely"
        each = f", {at_size / time.value:,.0f} a second" if isinstance(time.value, float) else ""
        summary[key] = replace(time, note=f"at {at_size:,}{each}")
    if found.following is not None:
        summary["one_further"] = _needed(found.following, f"at {found.following_size or found.largest + 1:,}{_goes_on(found)}")
    if found.before_oom is not None and found.before_oom > found.largest + 1:
        size = f"up to {found.before_oom:,}" if found.runs_between else f"{found.before_oom:,}, though not all in between"
        summary["runs"] = f"{size}: PyTorch gives its cache back and tries again, which is slow"
    summary |= {"limited_by": _limiting_place(found), "formula": f"{found.formula} bytes requested"}
    if _is_counted(found):
        summary["for"] = found.target
        if found.context is not None:
            low, high = map(bytes_text, found.context)
            summary["besides"] = f"the CUDA context takes {low}" + (f" to {high}" if high != low else "")
    notes: list[str] = []
    if found.failing:
        sizes = ", ".join(f"{size:,}" for size in found.failing[:_FEW]) + (" and others" if len(found.failing) > _FEW else "")
        notes.append(f"smaller sizes do not all fit: not {sizes}")
    if not found.exhaustive:
        notes.append(f"larger sizes, up to {found.bound or 0:,}, were only sampled; one of them might fit as well")
    return Report(
        "fit",
        headline=(_answer(found),),
        summary=summary,
        units={key: Kind.BYTES for key in _SIZES if not isinstance(summary.get(key), str)}
        | dict.fromkeys(("time", "time_surely"), Kind.SECONDS),
        notes=tuple(notes),
    )


def _answer(found: Fit) -> str:
    """Return what surely fits, and what fits as it is predicted, where these are not the same."""
    memory, largest = bytes_text(found.memory), f"{found.free} {found.largest:,}"
    if found.peak.is_modelled and found.surely != found.largest:
        most = f"{found.free} {found.surely:,} surely fits {memory}" if found.surely else f"no {found.free} surely fits {memory}"
        return f"{most}, {largest} as modelled"
    surely = "surely fits" if found.peak.is_modelled else "fits"
    if found.limit == "range":
        return f"{largest}, the largest that the model allows, {surely} {memory}"
    return f"{largest} is the largest that {surely} {memory}"


def _surely(found: Fit) -> object:
    if found.surely_peak is not None and found.surely_peak.most is not None:
        note = f"({found.surely_peak.most:,} bytes) at most at {found.surely:,}, with all that is not known or modelled at its upper end"
        return Quantity(found.surely_peak.most, note=note)
    if found.peak.unbounded:
        return f"none: {found.peak.unbounded}"
    return f"none: the upper ends of what is not known or modelled are too much at {found.smallest:,} already"


def _needed(need: Need, note: str) -> Quantity:
    note = f"({need.bytes:,} bytes) {note}"
    if not need.is_modelled:
        return Quantity(need.bytes, note=note)
    ends = (None, None) if need.least == need.most else (need.least, need.most)
    return Quantity(need.bytes, Provenance.MODELLED, None, note, *ends)


def _goes_on(found: Fit) -> str:
    """Return whether the allocator finds memory for the next size once it has given its cache back."""
    if found.following_runs is None:
        return ""
    if found.following_retries is None:
        return ", where PyTorch runs out of memory"
    retries = zip(found.following_retries, ("first", "second"), strict=True)
    times = " and ".join(f"{_TIMES.get(count, f'{count} times')} in the {which} forward" for count, which in retries if count)
    return f", which runs: PyTorch gives its cache back {times}"


def _frontier_report(rows: Sequence[Fit], free: Sequence[str], second: str) -> Report:
    """Return a row for each size of the second symbol."""
    is_modelled = any(row.peak.is_modelled for row in rows)
    device = f", for {rows[0].target}" if _is_counted(rows[0]) else ""
    headline = f"the largest {free[0]} for each {free[1]} in {bytes_text(rows[0].memory)}, counted as {rows[0].counter}{device}"
    columns = [
        Column(free[1], Kind.COUNT),
        *([Column("surely", Kind.COUNT)] if is_modelled else []),
        Column(free[0], Kind.COUNT, "as modelled" if is_modelled else ""),
        Column("needed", Kind.BYTES),
        Column("limited_by"),
    ]
    cells = []
    for row in rows:
        needed = Quantity(row.peak.bytes, Provenance.MODELLED if row.peak.is_modelled else Provenance.EXACT)
        surely = [_size_cell(row.surely)] if is_modelled else []
        cells.append((row.bind[second], *surely, _size_cell(row.largest), needed, _limiting_place(row)))
    known = [row for row in rows if row.largest is not None]
    data: dict[str, Sequence[object]] = {free[1]: [row.bind[second] for row in known], free[0]: [row.largest for row in known]}
    where = Provenance.MODELLED if is_modelled else Provenance.EXACT
    y = Column(free[0], Kind.COUNT, f"largest {free[0]} that fits", provenance=where)
    curve = Series(f"largest {free[0]} by {free[1]}", Column(free[1], Kind.COUNT), (y,), data, stacked=False, sampled=True)
    table = Table.of(cells, columns, f"{free[0]} by {free[1]}")
    return Report("fit", headline=(headline,), tables=(table,), pictures=lambda: (curve,) if len(known) > 1 else ())


def _frontier_json(rows: Sequence[Fit], free: Sequence[str], second: str) -> dict[str, object]:
    """Return the document for two symbols: that of the row with the largest first symbol, with all rows."""
    best = best_of(rows)
    frontier = [
        {free[0]: row.largest, free[1]: row.bind[second], "peak_bytes": row.peak.bytes, "limited_by": row.limited_by.node} for row in rows
    ]
    document = {**best.to_json(), "schema": SCHEMA, "free": ",".join(free), "frontier": frontier}
    if any(row.is_modelled for row in rows):
        document["provenance"] = {**best.provenance, "frontier": Provenance.MODELLED.value}
    return document


def _size_cell(largest: int | None) -> object:
    return "any" if largest is None else largest


def _is_counted(found: Fit) -> bool:
    """Return whether the number is that of a device's allocator."""
    return found.counter in ("reserved", "allocated")


def _limiting_place(found: Fit) -> str:
    need = found.limited_by
    where = ", ".join(part for part in (need.scope, need.location) if part)
    return f"{need.node} ({where})" if where else need.node
