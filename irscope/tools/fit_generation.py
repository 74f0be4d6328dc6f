"""The longest context, the largest batch or the most new tokens with which a language model generates in so much memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from irscope.devices import Target
from irscope.errors import LoadError, UsageError
from irscope.immutable import immutable
from irscope.memory.tape import Outcome, Span, Tape, changes_of
from irscope.report.report import Document, ModelInfo, Report, Reported
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.tools.fit import room_of
from irscope.tools.generate import Capture, How, how_text, weights_rows, wish_of
from irscope.tools.simulate import current_process, run_own
from irscope.tools.simulation import Options, allocator_of, target_for

if TYPE_CHECKING:
    from irscope.frontends.generation.program import Generator, Loaded, Wish
    from irscope.memory.growth import Growth

FREE: Final = ("context", "batch", "new")
SCHEMA: Final = "irscope.generation-fit/1"
_MOST: Final = 1 << 24
"""No context, batch or number of tokens is looked for above this."""
_FIRST: Final = 64
_STEPS: Final = 6
"""Decoding steps of a quick look."""
_REPLAYED: Final = 2_000_000
"""Requests to replay where the number of new tokens is looked for: some seconds."""
OnProgress = Callable[[int, int | None, str], None]


@immutable(slots=False)
class Look:
    """Memory of a size."""

    size: int
    reserved: int
    """The most that is reserved, from loading on."""
    phase: str
    """In which it is so first: load, prefill or decode."""


@dataclass
class GenerationFit(Reported):
    """The largest size that fits, with the sizes that were looked at."""

    wish: Wish
    """With the size that was found."""
    free: str
    memory: int
    target: Target
    largest: int = 0
    """0 where not even the smallest fits."""
    at: Look | None = None
    """At the largest; at the smallest where none fits."""
    following: Look | None = None
    """The smallest size that was seen not to fit."""
    limit: str = "memory"
    """"memory", or "range" where the model's own positions end, or "replays" where more were not replayed."""
    most: int = 0
    """Size above which none fits, as more is asked for than there is, where more were not replayed; otherwise 0."""
    looks: int = 0
    """Sizes that were replayed whole."""
    loaded: Loaded | None = None
    rows: list[GenerationFit] = field(default_factory=list)
    """Results for each value of the second size, where two are free."""

    @property
    def fits(self) -> bool:
        """Return whether any size fits."""
        return self.largest > 0

    def _answer(self) -> str:
        memory = humanise(self.memory, Kind.BYTES)
        if not self.largest:
            return f"does not fit: {self.free} {self._smallest} needs {self._needed(self.at)}, there are {memory}"
        if self.limit == "range":
            return f"{self.free} {self.largest:,}, the most positions that the model has, fits {memory}"
        if self.limit == "replays":
            return f"{self.free} {self.largest:,} fits {memory}; more than {self.most:,} does not, and what is between was not replayed"
        return f"{self.free} {self.largest:,} is the largest that fits {memory}"

    @property
    def _smallest(self) -> int:
        return self.wish.new + 1 if self.free == "context" else 1

    @staticmethod
    def _needed(look: Look | None) -> str:
        return "" if look is None else f"{humanise(look.reserved, Kind.BYTES)} ({look.reserved:,} bytes)"

    def report(self) -> Report:
        """Return the same for people."""
        wish = self.wish
        if self.rows:
            return self._table()
        summary: dict[str, Any] = {"counted": "reserved from the device (reserved), from loading to the last token", "model": wish.model}
        if self.largest and self.at is not None:
            left = humanise(self.memory - self.at.reserved, Kind.BYTES)
            summary["needed"] = f"{self._needed(self.at)} at {self.largest:,}, {left} left; the peak is in {_DOING[self.at.phase]}"
        if self.following is not None and self.largest:
            summary["does_not_fit"] = f"{self.following.size:,}: {self._needed(self.following)}, first in {_DOING[self.following.phase]}"
        given = {"prompt": wish.prompt, "new": wish.new, "batch": wish.batch}
        fixed = ", ".join(
            f"{name} {value:,}" for name, value in given.items() if name != self.free and (self.free, name) != ("context", "prompt")
        )
        summary["asked"] = f"{fixed}, {how_text(wish, self.loaded)}"
        if self.loaded is not None:
            summary |= weights_rows(self.loaded)
        if self.free == "context":
            summary["context"] = f"prompt and new tokens together: a prompt of {max(self.largest - wish.new, 0):,} and {wish.new:,} new"
        summary["for"] = self.target.text
        sizes = "1 size was" if self.looks == 1 else f"{self.looks} sizes were"
        summary["looked_at"] = f"{sizes} replayed to the last token; what is reserved may fall where sizes grow"
        context = self.target.device.context_bytes
        if context is not None:
            low, high = (humanise(one, Kind.BYTES) for one in context)
            summary["besides"] = f"the CUDA context takes {low}" + (f" to {high}" if high != low else "")
        return Report("fit", headline=(self._answer(),), summary=summary)

    def _table(self) -> Report:
        memory = humanise(self.memory, Kind.BYTES)
        cells = [
            (row.wish.batch, row.largest, row.at.reserved if row.at else 0, _DOING[row.at.phase] if row.at else "") for row in self.rows
        ]
        columns = [Column("batch", Kind.COUNT), Column("context", Kind.COUNT), Column("needed", Kind.BYTES), Column("peak in")]
        data: dict[str, Sequence[object]] = {"batch": [cell[0] for cell in cells], "context": [cell[1] for cell in cells]}
        y = Column("context", Kind.COUNT, "largest context that fits")
        curve = Series("largest context by batch", Column("batch", Kind.COUNT), (y,), data, stacked=False, sampled=True)
        wish = self.rows[0].wish
        headline = f"the largest context for each batch in {memory}, counted as reserved, for {self.target.text}"
        weights = weights_rows(self.loaded) if self.loaded is not None else {}
        summary = weights | {
            "model": wish.model,
            "asked": f"new {wish.new:,}, {how_text(wish, self.loaded)}; context is prompt and new tokens together",
        }
        table = Table.of(cells, columns, "context by batch")
        return Report("fit", headline=(headline,), summary=summary, tables=(table,), pictures=lambda: (curve,) if len(cells) > 1 else ())

    def document(self) -> Document:
        """Return the report alone; its JSON is of the schema irscope.generation-fit/1."""
        return Document(model=ModelInfo("", ""), reports=(self.report(),), own_json=lambda _: self.to_json())

    def to_json(self) -> dict[str, object]:
        """Return the document that `irscope fit --format json` prints for a language model."""
        wish = self.wish
        found: dict[str, object] = {
            "schema": SCHEMA,
            "model": wish.model,
            "free": self.free,
            "memory_bytes": self.memory,
            "counter": "reserved",
            "target": self.target.text,
            "cache_kind": wish.cache,
        }
        if self.rows:
            return found | {"frontier": [row.to_json() for row in self.rows]}
        return found | {
            "largest": self.largest,
            "prompt": wish.prompt,
            "new": wish.new,
            "batch": wish.batch,
            "limit": self.limit,
            "most": self.most or None,
            "peak_bytes": None if self.at is None else self.at.reserved,
            "peak_phase": None if self.at is None else self.at.phase,
            "does_not_fit": None if self.following is None else {"size": self.following.size, "peak_bytes": self.following.reserved},
            "replayed_whole": self.looks,
        }


_DOING: Final = {"load": "loading", "prefill": "reading the prompt", "decode": "decoding"}


def fit_generation(
    model: str,
    memory: int | str | None = None,
    free: str = "context",
    *,
    prompt: int | None = None,
    new: int | None = None,
    batch: int | None = None,
    cache: str = "",
    cache_options: Sequence[str] = (),
    attention: str = "",
    dtype: str = "",
    beams: int = 1,
    samples: bool = False,
    chunk: int = 0,
    base: str = "",
    store_as: str = "",
    trust_remote_code: bool = False,
    device: str = "",
    torch: str = "",
    alloc_conf: str = "",
    on_progress: OnProgress | None = None,
) -> GenerationFit:
    """Return the largest size with which a language model generates in so much memory, such as "24GiB"; None is what the device has.

    `free` is "context", which is prompt and new tokens together, "batch" or "new"; "batch,context" gives the largest context for batches
    of 1, 2, 4 and so on. What is not free is as given: one new token and a batch of 1 unless said otherwise. How the model is loaded and
    generates is said as for `generate`. `on_progress` is called as work goes on.
    """
    looked_for = [part.strip() for part in free.split(",")]
    if any(one not in FREE for one in looked_for) or (len(looked_for) > 1 and set(looked_for) != {"context", "batch"}):
        raise UsageError(f"{free!r} is not a size to look for", code="IRS337", hint=f"{', '.join(FREE)}, or batch,context for a table")
    if prompt is None and "context" not in looked_for:
        raise UsageError("how long the prompt is has to be said", code="IRS696", hint="`--prompt 4096`")
    how = How(cache, cache_options, attention, dtype, beams, samples, chunk, base, store_as, trust_remote_code)
    wish = wish_of(model, prompt or 1, new or 1, batch or 1, how)
    options = Options(device, torch, alloc_conf)
    target = target_for(options)
    search = _Search(wish, tuple(sorted(looked_for)), room_of(memory, target), target, options, on_progress)
    simulation = run_own(search.program, wish.model, options)
    if search.found is None:
        raise LoadError(f"it does not run: {simulation.error}", code="IRS697", where=simulation.line or wish.model)
    return search.found


class _Search:
    """Runs under simulation: a model that is loaded once is asked for one size after the other."""

    def __init__(
        self, wish: Wish, free: tuple[str, ...], memory: int, target: Target, options: Options, on_progress: OnProgress | None
    ) -> None:
        self._wish, self._free, self._memory, self._target = wish, free, memory, target
        self._options = options
        self._on_progress = on_progress
        self._laws: dict[object, Growth] = {}
        self._done = 0
        self.found: GenerationFit | None = None

    def program(self) -> None:
        from irscope.diagnostics import DiagnosticSink
        from irscope.frontends.generation.program import Generator

        process = current_process()
        with process.machine.without_limit():
            made = Generator(process, self._wish, DiagnosticSink())
            self.found = self._frontier(made) if len(self._free) > 1 else self._largest(made, self._wish, self._free[0])
            self.found.loaded = made.loaded
            made.loaded.module = None

    def _frontier(self, made: Generator) -> GenerationFit:
        rows: list[GenerationFit] = []
        batch = self._wish.batch
        while True:
            guess = rows[-1].largest // 2 if rows else 0
            row = self._largest(made, replace(self._wish, batch=batch), "context", guess)
            if rows and not row.fits:
                break
            rows.append(row)
            if not row.fits or batch >= _MOST:
                break
            batch *= 2
        return GenerationFit(self._wish, ",".join(self._free), self._memory, self._target, rows[0].largest, rows=rows)

    # -- one size ----------------------------------------------------------------------------------------------------

    def _largest(self, made: Generator, wish: Wish, free: str, guess: int = 0) -> GenerationFit:
        """Return the largest size that fits: what the first steps alone reserve bounds it from above, whole replays decide."""
        fit = GenerationFit(wish, free, self._memory, self._target)
        bound = _MOST
        if free == "context":
            positions = getattr(made.loaded.module.config.get_text_config(), "max_position_embeddings", None)
            bound = positions if isinstance(positions, int) and positions > wish.new else _MOST
        low = wish.new + 1 if free == "context" else 1
        quick: dict[int, Look] = {}
        whole: dict[int, Look] = {}

        def first(size: int) -> int:
            if size not in quick:
                quick[size] = self._quick(made, _sized(wish, free, size), size)
            return quick[size].reserved

        def all_of(size: int) -> int:
            if size not in whole:
                whole[size], fit = self._whole(made, _sized(wish, free, size), size)
                if free == "new" and "static" not in wish.cache and fit < size:
                    # The tokens before are the same, however many follow.
                    whole[fit], _ = self._whole(made, _sized(wish, free, fit), fit) if fit else (whole[size], 0)
            return whole[size].reserved

        top = last_below(first, self._memory, low, bound, guess or max(low, _FIRST)) if free != "new" else 0
        if free == "new":
            top, fit.most = self._most_new(made, wish, first)
        size = top
        if top and all_of(top) > self._memory:
            fit.most = 0
            known = max((one for one, look in whole.items() if look.reserved <= self._memory), default=0)
            size = known if free == "new" and known else last_below(all_of, self._memory, low, top - 1, top - 1, all_of(top))
        fit.limit = "replays" if fit.most else "memory"
        fit.largest, fit.looks = size, len(whole)
        fit.wish = _sized(wish, free, max(size, low))
        fit.at = whole.get(size) or quick.get(low)
        over = [one for one in (*quick.values(), *whole.values()) if one.size > size and one.reserved > self._memory]
        fit.following = min(over, key=lambda one: one.size, default=None)
        if size and size == bound and not fit.most:
            fit.limit = "range"
        return fit

    def _most_new(self, made: Generator, wish: Wish, first: Callable[[int], int]) -> tuple[int, int]:
        """Return the most tokens to replay, and, where more may fit, the most of which not too much is asked for."""
        if first(1) > self._memory:
            return 0, 0
        run = made.run(wish.prompt, _FIRST, _STEPS)
        requests = max(run.cuts[-1].at - run.cuts[-2].at, 1)
        affordable = max(_REPLAYED // requests, _FIRST)
        if "static" in wish.cache:
            most = last_below(first, self._memory, 1, _MOST, affordable)
        else:
            # A step behind a longer prompt asks for what a later step asks for: no token can be made where that is too much.
            most = last_below(lambda size: self._asked_at(made, wish, size), self._memory, 1, _MOST, affordable)
        return (most, 0) if most <= affordable else (affordable, most)

    def _asked_at(self, made: Generator, wish: Wish, new: int) -> int:
        """Return what is asked for while the last of so many tokens is made."""
        if new < 3:
            return 0
        other = replace(wish, prompt=wish.prompt + new - 3, new=3)
        begin = made.asked(other)
        main = made.run(other.prompt, other.new)
        tape = made.tape()
        last, sizes = main.cuts[-1].at, tape.numbers("central")
        held, before, step = (
            changes_of(tape.events[first:end], sizes) for first, end in ((0, made.loaded.end), (begin, last), (last, main.end))
        )
        return sum(held) + sum(before) + max(accumulate(step), default=0)

    def _captured(self, made: Generator, wish: Wish) -> tuple[Capture, int]:
        begin = made.asked(wish)
        capture = Capture(wish)
        capture.take(made, self._laws)
        return capture, begin

    def _tick(self) -> None:
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(self._done, None, "sizes tested:")

    def _replayed(self, tape: Tape[Any]) -> list[Outcome]:
        options = replace(self._options, boundless=True)
        gpu = allocator_of(self._target, options)
        return tape.replay_as_far_as_fits(gpu, tape.numbers("central"))

    def _quick(self, made: Generator, wish: Wish, size: int) -> Look:
        """Return what is reserved until the first tokens are made: at least that is needed."""
        self._tick()
        begin = made.asked(wish)
        run = made.run(wish.prompt, wish.new, min(_STEPS, wish.new - 1))
        tape = made.tape()
        tape = tape.until((run.end, sum(action.at < run.end for action in tape.actions)))
        tape.starts = [0, made.loaded.end, begin, run.cuts[0].at if run.cuts else run.end, run.end]
        tape.spans = [Span("load", 0, 1), Span("prefill", 2, 3), Span("decode", 3, 4)]
        return _highest_of(size, self._replayed(tape))

    def _whole(self, made: Generator, wish: Wish, size: int) -> tuple[Look, int]:
        """Return what is reserved until the last token is made; and the last token that fits, 0 where not even the prompt does."""
        self._tick()
        capture, begin = self._captured(made, wish)
        outcomes = self._replayed(capture.whole(made.tape(), begin))
        fit = 0
        for outcome in outcomes:
            if outcome.peak.reserved > self._memory:
                break
            fit = int(outcome.name.split()[1]) if outcome.name.startswith("token") else int(outcome.name == "prefill")
        return _highest_of(size, outcomes), wish.new if outcomes[-1].name == "end" and outcomes[-1].peak.reserved <= self._memory else fit


def _highest_of(size: int, outcomes: Sequence[Outcome]) -> Look:
    most = max(outcome.peak.reserved for outcome in outcomes)
    name = next(outcome.name for outcome in outcomes if outcome.peak.reserved == most)
    return Look(size, most, "load" if name == "load" else "prefill" if name in ("inputs", "prefill") else "decode")


def _sized(wish: Wish, free: str, size: int) -> Wish:
    if free == "context":
        return replace(wish, prompt=max(size - wish.new, 1))
    return replace(wish, batch=size) if free == "batch" else replace(wish, new=size)


def last_below(measure: Callable[[int], int | None], most: int, low: int, high: int, guess: int, above: int | None = None) -> int:
    """Return the last number at which a measure that mostly grows is at most so much: by straight lines at first, then by halves; 0 for
    none.

    A measure of None is more than that, nobody knows by how much. `above` is the measure at `high` + 1, where that is known.
    """
    least = measure(low)
    if least is None or least > most:
        return 0
    fits, over = (low, least), (high + 1, above)
    trial = min(max(guess, low + 1), high)
    turn = 0
    while over[0] - fits[0] > 1:
        value = measure(trial)
        if value is None or value > most:
            over = (trial, value)
        else:
            fits = (trial, value)
        turn += 1
        trial = _next(fits, over, most, (low, least), turn, is_open=over[0] > high)
    return fits[0]


def _next(fits: tuple[int, int], over: tuple[int, int | None], most: int, first: tuple[int, int], turn: int, *, is_open: bool) -> int:
    """Return the next number to try, between one that fits and one that does not."""
    rises = fits[0] > first[0] and fits[1] > first[1]
    if over[1] is not None and turn % 3:
        step = (over[0] - fits[0]) * (most - fits[1]) // max(over[1] - fits[1], 1)
    elif over[1] is None and rises and (is_open or turn % 3):
        step = (fits[0] - first[0]) * (most - fits[1]) // (fits[1] - first[1])
    elif over[1] is None and is_open:
        step = fits[0] * 3
    else:
        step = (over[0] - fits[0]) // 2
    return min(max(fits[0] + step, fits[0] + 1), over[0] - 1)
