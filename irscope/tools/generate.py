"""Memory of a language model that generates: loading, the prompt, and every token after it."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from irscope.diagnostics import Diagnostic, DiagnosticSink
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.memory.formulas import PeakFormula
from irscope.memory.growth import Cut, Growth, NoLaw, Piece, Rhythm, StepRequests, continued, read_steps, streams_between
from irscope.memory.run import Lives, Row, rows_of, totals_of
from irscope.memory.tape import COUNTERS, REPORTED, Bytes, Origin, Outcome, Span, Tape, counters_json
from irscope.report.names import ranks_text
from irscope.report.report import Report, Reported, diagnostic_json
from irscope.report.table import Table
from irscope.report.units import bytes_text
from irscope.tools.generate_laws import UNITS, GenerationTimes, generation_times, peak_formulas
from irscope.tools.simulate import current_process, run_own
from irscope.tools.simulation import Options, Simulation, grouped, verdict_of
from irscope.weights.schemes import parse_scheme

if TYPE_CHECKING:
    from irscope.frontends.generation.program import CacheLayer, Generator, Loaded, Run, Wish

SCHEMA: Final = "irscope.generation/1"
MOST_REQUESTS: Final = 20_000_000
"""Requests to replay one by one: about two minutes, and 2 GiB of memory."""
CACHES: Final = ("dynamic", "static", "quantized", "offloaded", "offloaded_static")
"""Kinds of caches, as transformers calls them. Windows are the model's own: all follow them."""
PHASES: Final = ("load", "prefill", "decode")
_PACKAGES: Final = {
    "accelerate": (
        "without accelerate, weights are loaded on the host first",
        "with accelerate, weights are loaded straight to the device",
    ),
    "scikit-learn": (
        "without scikit-learn, the assistant's scores are kept once",
        "with scikit-learn, transformers weighs the assistant's scores in every round",
    ),
}
_DOING: Final = {"load": "loading", "prefill": "reading the prompt", "decode": "decoding"}


@immutable(slots=False)
class Phase:
    """Counters of the allocator in a stretch of the program."""

    peak: Bytes
    after: Bytes
    made_of: Mapping[str, int]
    """At the highest moment of requested, to which they add up."""
    alive: Sequence[Row]
    """Then."""
    token: int = 0
    """Of the new tokens, while which is made the peak is."""
    held: Bytes | None = None
    """Bytes held when the last token's step begins: the last value seen by a loop that looks at the memory between steps."""


@dataclass
class Generation(Reported):
    """Cost of generating with a model."""

    wish: Wish
    simulation: Simulation
    loaded: Loaded | None = None
    phases: dict[str, Phase] = field(default_factory=dict)
    """By name; those that come after memory is refused are missing."""
    refused_at: str = ""
    """The phase in which memory is refused, if it is."""
    refused_token: int = 0
    """While which of the new tokens is made, where that is in decoding."""
    cache: Sequence[CacheLayer] = ()
    """At the end."""
    draft_cache: Sequence[CacheLayer] = ()
    """The assistant's."""
    cache_before: tuple[int, Sequence[CacheLayer]] = (0, ())
    """After fewer tokens: how many, and what it was."""
    captured: Sequence[int] = ()
    """Tokens whose steps were captured; those between follow the law that they show."""
    has_no_law: bool = False
    """True where all steps were run, as no few of them show how sizes grow."""
    tape: Tape[Origin] = field(default_factory=Tape)
    """All of it, with a span for each step."""
    peak_formulas: Mapping[str, PeakFormula] = field(default_factory=dict)
    """Requested peaks of phases by the sizes that the user chooses, where a formula was found that gives what was counted."""
    without_formula: str = ""
    """Reason why a phase has none."""
    times: GenerationTimes | None = None
    """Predicted; None where memory is refused before the first token is made."""
    of_folder: Sequence[Diagnostic] = ()
    """Diagnostics of the files in the model's folder."""
    assistant: Loaded | None = None
    other: Generation | None = None
    """The same where none of an assistant's tokens is right, if this is where all are, or the other way round."""

    @property
    def cache_bytes(self) -> int:
        """Return what the cache takes on the device at the end."""
        return sum(layer.bytes for layer in self.cache)

    @property
    def formula(self) -> str:
        """Return the bytes of the cache by the sizes that the user chooses; empty where its layers follow no rule that was found."""
        return cache_formula(self)

    @property
    def peak_formula(self) -> str:
        """Return the requested peak of the phase in which it is highest; empty where no formula was found."""
        name = max(self.phases, key=lambda phase: self.phases[phase].peak.requested, default="")
        return str(self.peak_formulas[name]) if name in self.peak_formulas else ""

    def peak(self, counter: str) -> int:
        """Return the most that a counter is, from loading on."""
        return max((phase.peak[counter] for phase in self.phases.values()), default=0)

    @property
    def verdict(self) -> str:
        """Return whether it fits, and by how much."""
        where = ""
        if self.refused_at:
            where = f"token {self.refused_token:,} of {self.wish.new:,}" if self.refused_token else _DOING[self.refused_at]
            where = f": memory is refused at {where}"
        return verdict_of({"outcome": self._outcome, "peak": {"reserved": self.peak("reserved")}}, self.simulation.target, where)

    @property
    def _outcome(self) -> str:
        return "oom" if self.refused_at else "finished"

    def report(self) -> Report:
        """Return the same as tables."""
        wish, loaded = self.wish, self.loaded
        summary: dict[str, Any] = {"verdict": self.verdict, "reserved_peak_bytes": self.peak("reserved")}
        summary["peak_at"] = self._peak_place()
        if self.times is not None:
            summary |= self.times.rows()
        summary["model"] = wish.model
        held = self.phases["decode"].held if "decode" in self.phases else None
        if held is not None:
            summary["held_before_the_last_token"] = f"{bytes_text(held.allocated)} allocated"
        summary["cache"] = f"{bytes_text(self.cache_bytes)} at the end" + (f" = {self.formula} bytes" if self.formula else "")
        summary |= _formula_rows(self)
        if loaded is not None:
            summary |= weights_rows(loaded)
        if self.assistant is not None:
            summary |= _assistant_rows(self, self.assistant)
        summary["asked"] = f"prompt of {wish.prompt:,}, {wish.new:,} new tokens, batch {wish.batch}, {how_text(wish, loaded)}"
        summary["for"] = self.simulation.target.text
        senses = "a prompt of text alone, " if loaded is not None and loaded.has_senses else ""
        summary["taken"] = f"{senses}no padding in the prompt, {'sampled' if wish.samples else 'greedy'}, no sequence ends early"
        summary["packages"] = "; ".join(_PACKAGES[name][used] for name, used in self.packages.items())
        few, steps = len(self.captured), len(wish.starts()) - 1
        if few:
            summary["steps"] = f"{few} of {steps:,} were run; the others follow from how every size grows, and all were replayed"
        elif self.has_no_law:
            summary["steps"] = f"all {steps:,} were run: no few of them show how sizes grow"
        return Report("generate", summary=summary, tables=tuple(_tables(self)), diagnostics=tuple(self.diagnostics), units=UNITS)

    @property
    def packages(self) -> dict[str, bool]:
        """Return by name whether packages beside transformers are used that change how much memory it takes."""
        return {name: used for one in (self.loaded, self.assistant) if one is not None for name, used in one.packages.items()}

    def _peak_place(self) -> str:
        if not self.phases:
            return _DOING[self.refused_at] if self.refused_at else ""
        name, phase = max(self.phases.items(), key=lambda pair: pair[1].peak.reserved * 2**64 + pair[1].peak.allocated)
        return f"token {phase.token:,} of {self.wish.new:,}" if phase.token else _DOING[name]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return what is to be said about the figures; values that were read have their answers from what was asked for."""
        return [*self.of_folder, *(diagnostic for diagnostic in self.simulation.diagnostics if diagnostic.code != "IRS646")]

    def to_json(self) -> dict[str, Any]:
        """Return the document of `--format json`."""
        wish, loaded = self.wish, self.loaded
        return {
            "schema": SCHEMA,
            "model": wish.model,
            **self.simulation.target.to_json(),
            "device": self.simulation.options.device or self.simulation.target.device.name,
            "prompt": wish.prompt,
            "new": wish.new,
            "batch": wish.batch,
            "cache_kind": wish.cache,
            "beams": wish.beams,
            "samples": wish.samples,
            "attention": loaded.attention if loaded is not None else wish.attention or None,
            "assistant": _assistant_json(self) if wish.assistant else None,
            "packages": self.packages,
            "dtype": loaded.dtype.text if loaded is not None else None,
            "parameters": loaded.parameters if loaded is not None else None,
            "parameter_bytes": loaded.parameter_bytes if loaded is not None else None,
            "quantised": [{"scheme": scheme, "kernel": kernel, "parameters": count} for scheme, kernel, count in loaded.schemes]
            if loaded is not None
            else [],
            "verdict": self.verdict,
            "outcome": self._outcome,
            "refused_at": {"phase": self.refused_at, "token": self.refused_token or None} if self.refused_at else None,
            "phases": {
                name: {
                    **counters_json(phase.peak, phase.after),
                    "by_category": dict(phase.made_of),
                    **({"token": phase.token} if phase.token else {}),
                    **({"held": {key: phase.held[key] for key in COUNTERS}} if phase.held is not None else {}),
                }
                for name, phase in self.phases.items()
            },
            "cache_bytes": self.cache_bytes,
            "cache": [
                {"layer": one.layer, "kind": one.kind, "bytes": one.bytes, "host_bytes": one.host_bytes, "window": one.window}
                for one in self.cache
            ],
            "times": None if self.times is None else self.times.to_json(),
            "formula": self.formula,
            "peak_formula": self.peak_formula,
            "peak_formulas": {
                name: {"requested": str(formula), "held": [list(each) for each in formula.held], "of": formula.of}
                for name, formula in self.peak_formulas.items()
            },
            "captured_tokens": list(self.captured),
            "answers": [{"line": answer.line, "count": answer.count, "value": answer.value} for answer in self.simulation.answers],
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }


class How(NamedTuple):
    """Options for loading a language model and generating, besides the sizes."""

    cache: str = ""
    """Empty for the folder's own, else dynamic."""
    cache_options: Sequence[str] = ()
    attention: str = ""
    dtype: str = ""
    beams: int = 1
    samples: bool = False
    chunk: int = 0
    base: str = ""
    store_as: str = ""
    trust_remote_code: bool = False


def wish_of(model: str, prompt: int, new: int, batch: int, how: How) -> Wish:
    """Return what to load and to generate, with what a folder asks for; UsageError for what there is not."""
    from irscope.frontends.files.folders import own_cache
    from irscope.frontends.simulation.imports import check_machine
    from irscope.frontends.zoo.recipes import GENERATING, weights_dtype

    cache, cache_from = how.cache, ""
    if not cache:
        cache, cache_from = own_cache(Path(model)) if os.path.isdir(model) else ("", "")
        cache, cache_from = (cache, cache_from) if cache in CACHES else ("dynamic", "")
    _check_wish(model, prompt, new, min(batch, how.beams, how.chunk + 1), cache)
    check_machine()
    from irscope.frontends.generation.program import Wish  # it imports torch

    return Wish(
        model,
        prompt,
        new,
        batch,
        cache,
        _options_of(how.cache_options),
        how.attention,
        weights_dtype(how.dtype, model, GENERATING),
        how.beams,
        how.samples,
        how.chunk,
        how.base,
        how.trust_remote_code,
        cache_from,
        scheme=parse_scheme(how.store_as) if how.store_as else None,
    )


def generate(
    model: str,
    *,
    prompt: int,
    new: int,
    batch: int = 1,
    cache: str = "",
    cache_options: Sequence[str] = (),
    attention: str = "",
    dtype: str = "",
    beams: int = 1,
    samples: bool = False,
    chunk: int = 0,
    assistant: str = "",
    candidates: int | None = None,
    accepted: int | None = None,
    device: str = "",
    torch: str = "",
    alloc_conf: str = "",
    base: str = "",
    store_as: str = "",
    trust_remote_code: bool = False,
) -> Generation:
    """Return what a language model takes to read a prompt and to generate after it, on a device that is not there.

    `model` is a folder with a config.json, with or without weights, or a name such as "transformers:llama{num_hidden_layers=2}"; a folder
    with an adapter goes on top of the model that it names, or of `base`. The `cache` is what the folder's settings ask for, else dynamic.
    With an `assistant` that proposes tokens, `candidates` in a round, `accepted` are how many of these are right; without a number both
    ends are looked at, and the answer is the one that takes more. For the rest of this process `torch.cuda` is the simulated device's.
    """
    how = How(cache, cache_options, attention, dtype, beams, samples, chunk, base, store_as, trust_remote_code)
    wish = wish_of(model, prompt, new, batch, how)
    options = Options(device, torch, alloc_conf)
    if not assistant:
        if candidates is not None or accepted is not None:
            raise UsageError("there is no assistant whose tokens could be accepted", code="IRS696", hint="`--assistant MODEL`")
        return generate_as(wish, options)
    from irscope.frontends.generation.program import CANDIDATES  # it imports torch

    return _assisted(replace(wish, assistant=assistant, candidates=CANDIDATES if candidates is None else candidates), accepted, options)


def _assisted(wish: Wish, accepted: int | None, options: Options) -> Generation:
    if wish.batch > 1 or wish.beams > 1 or wish.chunk or "static" in wish.cache:
        raise UsageError(
            "an assistant helps with one sequence, without beams or parts of prompts, and with caches that can be cut back", code="IRS696"
        )
    if wish.candidates < 1 or not 0 <= (accepted or 0) <= wish.candidates:
        raise UsageError(
            f"of {wish.candidates} candidates {accepted or 0} cannot be accepted", code="IRS696", hint="`--accepted 0` accepts none"
        )
    if accepted is not None:
        return generate_as(replace(wish, accepted=accepted), options)
    none, every = (generate_as(replace(wish, accepted=number), options) for number in (0, wish.candidates))
    more, less = (none, every) if _by_memory(none) > _by_memory(every) else (every, none)
    more.other = less
    return more


def _by_memory(generation: Generation) -> tuple[bool, int, int]:
    return bool(generation.refused_at), generation.peak("reserved"), generation.peak("allocated")


def _options_of(texts: Sequence[str]) -> dict[str, object]:
    options: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.isidentifier() or not equals:
            raise UsageError(f"{text!r} is not of the form key=value", code="IRS696", hint="`--cache-option backend=fp8`")
        options[key] = int(value) if value.isdecimal() else value
    return options


def _check_wish(model: str, prompt: int, new: int, batch: int, cache: str) -> None:
    """UsageError for files, and for sizes and caches that there are not."""
    if os.path.isfile(model):
        hint = (
            f"`irscope simulate {model}` runs a program"
            if model.endswith(".py")
            else "name the folder of the model, with its config.json; `irscope MODEL` says what weights and cache of a GGUF file take, "
            "`irscope fit MODEL` the largest batch of a graph"
        )
        raise UsageError("it is a file, and generating needs the code of a model", code="IRS695", where=model, hint=hint)
    if min(prompt, new, batch) < 1:
        raise UsageError("prompt, new tokens, batch and beams are at least 1", code="IRS696")
    if cache not in CACHES:
        raise UsageError(f"there is no cache {cache!r}", code="IRS696", hint=", ".join(CACHES))


def generate_as(wish: Wish, options: Options) -> Generation:
    """Return the same of a wish."""
    captured = Capture(wish)
    simulation = run_own(captured.program, wish.model, options)
    for model in (captured.loaded, captured.assistant):
        if model is not None:
            model.module = None  # what is simulated next finds an empty device
    of_folder = [one for one in captured.sink if one.code != "IRS165"]  # the graph is what the package runs
    generation = Generation(wish, simulation, captured.loaded, assistant=captured.assistant, of_folder=of_folder)
    if captured.main is None:
        generation.refused_at = "prefill" if captured.loaded is not None else "load"
        return generation
    _continue(generation, captured)
    return generation


class Capture:
    """Runs under simulation: the model is loaded, generates behind the prompt, and where steps are left over, at further places."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self.loaded: Loaded | None = None
        self.assistant: Loaded | None = None
        self.main: Run | None = None
        self.runs: list[tuple[int, Run]] = []
        """Those for the wish, each with the tokens that what generates has before it."""
        self.ending: tuple[Cut, Cut] | None = None
        """The last step, where it was captured: of the run that is continued it is unless said otherwise."""
        self.cache: Sequence[CacheLayer] = ()
        self.growth: Growth | None = None
        self.has_no_law = False
        """True where a law was searched for in vain."""
        self.began: int | None = None
        """Place at which the inputs of the run that counts are then made."""
        self.rhythm = Rhythm()
        self.lead = 0
        """Steps before the first group."""
        self.before = self.groups = 0
        """Number of the law's first step less one, and number of its groups."""
        self.inner: dict[int, list[int]] = {}
        """Starts of the steps within groups that were captured."""
        self.formulas: dict[str, PeakFormula] = {}
        self.without_formula = ""
        """Reason why a phase has none."""
        self.sink = DiagnosticSink()

    def program(self) -> None:
        """Load, and take."""
        from irscope.frontends.generation.program import AssistedGenerator, Generator

        made = (AssistedGenerator if self._wish.assistant else Generator)(current_process(), self._wish, self.sink)
        self.take(made)
        with made.without_limit():
            windows = {layer.window for layer in self.cache if layer.window is not None}
            self.formulas, self.without_formula = peak_formulas(made, self._wish, windows)

    def take(self, made: Generator, laws: dict[object, Growth] | None = None) -> None:
        """Capture what the wish asks for, with a model that is loaded. `laws` are those that were found for other lengths."""
        wish = self._wish
        self.loaded, self.assistant = made.loaded, made.draft
        self.rhythm = rhythm = made.rhythm
        steps = len(wish.starts()) - 1  # the prompt's own forward gives the first token
        # Rounds at the end in which an assistant proposes less than before, and those with them that are no whole group, are captured.
        groups = wish.alike() // rhythm.unit
        # Where no assistant ends differently, those that are no whole group are the first ones.
        self.lead = 0 if wish.assistant else steps - groups * rhythm.unit
        with made.without_limit():
            # A `generate` of the model's own, such as Whisper's, makes what it returns after the last step: all are run.
            own_loop = made.loaded.is_encoder_decoder and not type(made.loaded.module).generate.__module__.endswith("generation.utils")
            if groups <= rhythm.own + 4 or own_loop:
                self.main = made.run(wish.prompt, wish.new)
            else:
                self.main = made.run(wish.prompt, wish.new, self.lead + rhythm.own * rhythm.unit)
                self.growth = self._law(made, self.main, groups, has_rest=steps > self.lead + groups * rhythm.unit, laws=laws)
                if self.growth is None:
                    self.has_no_law = True
                    self.began = made.asked(wish)
                    self.main = made.run(wish.prompt, wish.new)
            self.runs.append((self._starts(made)[0], self.main))
            if self.ending is None:
                self.cache = self.main.cache
            if self.ending is None and (self.growth is not None or not made.loaded.is_encoder_decoder):
                # The last token is never read. After a step, since what a prompt's forward leaves may be views of more.
                starts = self._starts(made)
                tokens, first = starts[0] + wish.new, starts[-2:][0]
                first = first if steps else tokens - 2
                self.cache = (made.behind(first, tokens - first) if first else made.behind(1, 1)).cache

    def _starts(self, made: Generator) -> Sequence[int]:
        """Tokens that what generates has before it when each step begins: a decoder beside an encoder begins with one."""
        starts = self._wish.starts()
        return [start - starts[0] + 1 for start in starts] if made.loaded.is_encoder_decoder else starts

    def _law(self, made: Generator, main: Run, groups: int, has_rest: bool, laws: dict[object, Growth] | None = None) -> Growth | None:
        """Return how further groups of steps grow; None where no few captures show it, or where a longer prompt is not like more steps."""
        from irscope.frontends.generation.program import ModelFails

        wish, tape, rhythm = self._wish, made.tape, self.rhythm
        starts, unit = self._starts(made), rhythm.unit
        end = starts[0] + wish.new
        own = streams_between(tape(), main.begin, main.end)

        def read(run: Run, cuts: Sequence[Cut]) -> list[StepRequests]:
            written = tape()
            return read_steps(written, cuts, dict(zip(streams_between(written, run.begin, run.end), own, strict=False)))

        # Single steps are numbered by their tokens, so that their law holds behind other prompts too.
        before = self.before = wish.prompt if unit == 1 and not has_rest else 0
        self.groups = groups

        def capture(number: int) -> Sequence[StepRequests]:
            # From the second group of a run on that begins with a longer prompt: the first still reads what the prompt's forward left.
            at = number - 2 if before else starts[self.lead + (number - 2) * unit]
            run = made.behind(at, max(end - at, 1), 5 * unit)
            self.runs.append((at, run))
            self.inner |= {number + more: _begins_in_group(run.cuts[(1 + more) * unit :][:unit]) for more in range(3)}
            return read(run, run.cuts[: 4 * unit + 1 : unit])[1:]

        growth = Growth(capture)
        if laws is not None and before and not own:
            # Where room is made for all tokens at once, their number is in every size.
            growth = laws.setdefault((wish.batch, end if "static" in wish.cache else None), growth)
        try:
            growth.cover(before + rhythm.alike, before + groups)
        except NoLaw:
            return None
        except ModelFails:
            if not made.loaded.is_encoder_decoder:
                raise
            return None  # its own `generate` takes no tokens for the decoder to begin with
        mine = read_steps(tape(), main.cuts[self.lead :: unit])
        requests = len(mine[-1].requests)
        if groups * requests > MOST_REQUESTS:
            raise UsageError(
                f"{wish.new:,} tokens ask the allocator {groups * requests:,} times, more than {MOST_REQUESTS:,}",
                code="IRS696",
                hint=f"about {MOST_REQUESTS * wish.new // (groups * requests):,} tokens can be replayed; a longer prompt costs nothing",
            )
        if not all(growth.holds(before + number, mine[number - 1]) for number in range(rhythm.alike, rhythm.own)):
            return None
        if has_rest:
            at = starts[(groups - 1) * unit]
            run = made.behind(at, end - at)
            self.runs.append((at, run))
            _, rest = read(run, [run.cuts[0], run.cuts[unit], run.cuts[-1]])
            if any(what.back < 0 for verb, what, _ in rest.requests if verb in ("free", "record")):
                return None
            self.groups = groups + 1
            self.inner[groups + 1] = _begins_in_group(run.cuts[unit:-1])
            growth.pieces.append(Piece(groups + 1, groups + 1, rest, (0,) * len(rest.sizes)))
            self.ending, self.cache = (run.cuts[unit], Cut(run.end, {})), run.cache
        return growth

    def seen(self, first_tokens: Sequence[int]) -> list[int]:
        """Tokens whose steps were captured."""
        assert self.growth is not None
        unit, before, pieces = self.rhythm.unit, self.before, self.growth.pieces
        groups = {one - before for one in (*self.growth.captured, *(piece.first for piece in pieces if piece.first == piece.last))}
        groups |= set(range(1, self.rhythm.own))
        seen = {
            self.lead + (group - 1) * unit + number for group in groups for number in range(1, 1 + len(self._inside_of(before + group)))
        }
        seen |= set(range(1, self.lead + 1))
        return sorted({1, *(first_tokens[number - 1] for number in seen if 0 < number <= len(first_tokens))})

    def _inside_of(self, number: int) -> Sequence[int]:
        return self.inner.get(number, [0] * self.rhythm.unit)

    def whole(self, tape: Tape[Any], begin: int | None = None) -> Tape[Any]:
        """Return all of it with a span for each step; `begin` is where inputs are made, if that is not when the model is loaded."""
        wish, main, loaded, growth, unit = self._wish, self.main, self.loaded, self.growth, self.rhythm.unit
        assert main is not None
        assert loaded is not None
        first_tokens = [start - wish.prompt + 1 for start in wish.starts()[1:]]
        if growth is not None:
            main_cuts = main.cuts[self.lead :: unit]
            whole, starts, last = continued(tape, main_cuts, growth, self.groups, self.before)
            own = len(main_cuts) - 1
            starts = [
                *(cut.at for cut in main.cuts[: self.lead + own * unit]),
                *(
                    first + more
                    for number, first in enumerate(starts[own:-1], own + 1)
                    for more in self.inner.get(growth.piece(self.before + number).first, [0])
                ),
                starts[-1],
            ]
            whole.free(*_freed_at_return(tape, main, whole, last, self.ending))
        else:
            whole = tape.until((main.end, sum(action.at < main.end for action in tape.actions)))
            starts = [cut.at for cut in main.cuts[: len(first_tokens)]]
        # Between loading and inputs may be what was captured before.
        begin = self.began or begin
        between = [] if begin is None or begin == loaded.end else [begin]
        names = ["load", *("" for _ in between), "inputs", "prefill", *(f"token {number}" for number in first_tokens)]
        names += ["end"] if growth is not None else []
        whole.starts = [0, loaded.end, *between, main.begin, *(starts or [main.end]), *([whole.cut()] if starts else [])]
        whole.spans = [Span(name, number, number + 1) for number, name in enumerate(names) if name]
        return whole


def _begins_in_group(cuts: Sequence[Cut]) -> list[int]:
    """Return where the steps of a group begin in it."""
    return [cut.at - cuts[0].at for cut in cuts]


def _continue(generation: Generation, captured: Capture) -> None:
    """Replay everything on the device, the steps between those that were captured included."""
    wish, main, loaded = generation.wish, captured.main, captured.loaded
    assert main is not None
    assert loaded is not None
    generation.cache, generation.draft_cache = _by_owner(captured.cache)
    first_tokens = [start - wish.prompt + 1 for start in wish.starts()[1:]]
    steps = len(first_tokens)
    # A round is over when the next begins; a forward is not.
    so_far = first_tokens[len(main.cuts) - 1] - bool(wish.assistant) if 0 < len(main.cuts) <= steps else wish.new
    generation.cache_before = so_far, _by_owner(main.cache)[0]
    generation.has_no_law = captured.has_no_law
    if captured.growth is not None:
        generation.captured = captured.seen(first_tokens)
    whole = generation.tape = captured.whole(generation.simulation.tape)
    spans = [span.name for span in whole.spans]
    done = whole.replay_as_far_as_fits(generation.simulation.allocator(), whole.numbers("central"))
    if len(done) < len(spans):
        name = spans[len(done)]
        generation.refused_at = name if name in PHASES else "prefill" if name == "inputs" else "decode"
        generation.refused_token = int(name.split()[1]) if name.startswith("token") else 0
    load, inputs, *_ = first = [span.first for span in whole.spans]
    by_name = {"load": (load, done[:1]), "prefill": (inputs, done[1:3]), "decode": ([*first, 0][3], done[3:])}
    complete = {name: one for name, one in by_name.items() if one[1] and name != generation.refused_at}
    generation.phases.update(zip(complete, _phases(whole, list(complete.values())), strict=True))
    generation.without_formula = captured.without_formula
    generation.peak_formulas = {
        name: formula
        for name, formula in captured.formulas.items()
        if name in generation.phases and formula.gives(wish.batch, wish.prompt, wish.new) == generation.phases[name].peak.requested
    }
    if "prefill" in generation.phases:
        packed = sorted({scheme for scheme, _, _ in loaded.schemes})
        times = generation_times(wish, generation.simulation.tape, main, captured.runs, generation.simulation.target.device, packed)
        generation.times = times if "decode" in generation.phases or steps == 0 else replace(times, token=None, rate=None, kernels=None)
    if "decode" in generation.phases:
        # Steps are the spans from the third on, the last of them at most two from the end.
        generation.phases["decode"] = replace(generation.phases["decode"], held=done[steps + 1].after)


def _freed_at_return(tape: Tape[Any], main: Run, whole: Tape[Any], last: Sequence[int], ending: tuple[Cut, Cut] | None) -> list[int]:
    """Return the slots given back when `generate` returns: all but those still there when it returned after fewer tokens. `last` are the
    slots of the last step, `ending` is where it was captured, if not at the end of `main`.
    """
    begin, over = ending or (main.cuts[-1], Cut(main.end, {}))
    (there, then), (alive,) = tape.alive_at([main.end, over.at]), whole.alive_at([len(whole.events)])
    kept, left = set(there), set(then)
    (step,) = read_steps(tape, [begin, over])
    # By what asked for it, counted from the end: what a forward asks for may have changed since, as where a window has filled.
    places: dict[object, list[int]] = {}
    for slot in last:
        places.setdefault(_asked(whole, slot), []).append(slot)
    for slot in reversed(step.slots):
        like = places.get(_asked(tape, slot))
        found = like.pop() if like else -1
        if slot in left and found >= 0:
            kept.add(found)
    return sorted(set(alive) - kept)


def _by_owner(cache: Sequence[CacheLayer]) -> tuple[list[CacheLayer], list[CacheLayer]]:
    """Return the model's own layers, and its assistant's."""
    from irscope.frontends.generation.program import DRAFT

    own, draft = ([layer for layer in cache if layer.kind.startswith(DRAFT) == whose] for whose in (False, True))
    return own, draft


def _asked(tape: Tape[Any], slot: int) -> object:
    return tape.kinds[slot], tape.labels[slot], tape.owners.get(slot)


def _phases(tape: Tape[Origin], stretches: Sequence[tuple[int, Sequence[Outcome]]]) -> Iterator[Phase]:
    """Yield what was counted in stretches of a tape, each with its first span, and what held most."""
    lives = Lives.of(tape)
    for first, outcomes in stretches:
        begin, end = tape.starts[first], tape.starts[first + len(outcomes)]
        moment = begin + 1 + int(lives.total[begin + 1 : end + 1].argmax()) if end > begin else begin
        rows = rows_of(tape, lives.alive(moment).tolist())
        peak = Bytes.highest(outcome.peak for outcome in outcomes)
        span = next((span.name for span in tape.spans if tape.starts[span.first] < moment <= tape.starts[span.end]), "")
        token = int(span.split()[1]) if span.startswith("token") else 0
        yield Phase(peak, outcomes[-1].after, totals_of(rows), rows, token)


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(generation: Generation) -> Iterator[Table]:
    rows = [
        (_DOING[name], phase.peak.requested, phase.peak.allocated, phase.peak.reserved, phase.after.allocated)
        for name, phase in generation.phases.items()
    ]
    if not rows:
        return
    yield Table.of(rows, ["phase", "requested:bytes", "allocated:bytes", "reserved:bytes", "allocated after:bytes"], "peak of each phase")
    kinds = dict.fromkeys(kind for phase in generation.phases.values() for kind in phase.made_of)
    made = [(kind, *(phase.made_of.get(kind, 0) for phase in generation.phases.values())) for kind in kinds]
    made.append(("requested, the sum", *(sum(phase.made_of.values()) for phase in generation.phases.values())))
    yield Table.of(made, ["category", *(f"{_DOING[name]}:bytes" for name in generation.phases)], "what the peak of requested is made of")
    if generation.other is not None:
        yield _acceptance(generation, generation.other)
    if generation.cache:
        yield _cache_table(generation)
    name, phase = max(generation.phases.items(), key=lambda pair: pair[1].peak.requested)
    where = f" of decoding, at token {phase.token:,}" if phase.token else f" of {_DOING[name]}"
    columns = ("category", "module", "line", "bytes", "blocks:count")
    alive = [(kind, module, _short(line), *sizes) for kind, module, line, *sizes in grouped(phase.alive, generation.simulation.classes)]
    yield Table.of(alive, columns, f"alive at the peak{where}", whole="bytes")


def _cache_table(generation: Generation) -> Table:
    """Layers that keep the same, together."""
    rows: list[tuple[object, ...]] = []
    for (kind, bytes_, held, host, window), several in itertools.groupby(
        sorted([*generation.cache, *generation.draft_cache], key=lambda one: (one.kind, one.bytes, one.layer)),
        key=lambda one: (one.kind, one.bytes, one.held_bytes, one.host_bytes, one.window),
    ):
        layers = [member.layer for member in several]
        rows.append(
            (
                ranks_text(layers),
                kind,
                "all" if window is None else str(window),
                bytes_,
                len(layers) * bytes_,
                len(layers) * held,
                len(layers) * host,
            )
        )
    columns = ["layers", "kind", "looks back on", "each:bytes", "all:bytes", "with memory behind views:bytes", "on the host:bytes"]
    return Table.of(rows, columns, "the cache after the last token", whole="all")


def _assistant_rows(generation: Generation, assistant: Loaded) -> Iterator[tuple[str, str]]:
    wish = generation.wish
    yield (
        "assistant",
        f"{bytes_text(assistant.parameter_bytes)}, {assistant.parameters:,} parameters in {assistant.dtype.text}: {wish.assistant}",
    )
    right = {0: "none", wish.candidates: "all"}.get(wish.accepted, f"{wish.accepted}")
    assumed = f"{wish.candidates} tokens proposed in a round, and {right} of them accepted"
    yield "assumed", assumed if generation.other is None else f"{assumed}, which takes more than {_right(generation.other.wish)}"
    yield "its_cache", f"{bytes_text(sum(layer.bytes for layer in generation.draft_cache))} at the end"


def _right(wish: Wish) -> str:
    return "none" if not wish.accepted else "all"


def _acceptance(generation: Generation, other: Generation) -> Table:
    """Return what is so, whatever is accepted, lies between the two or near them."""
    rows = [
        (
            _right(one.wish),
            len(one.wish.starts()),
            *(one.peak(key) for key in REPORTED),
            "no" if one.refused_at else "yes",
        )
        for one in sorted((generation, other), key=lambda one: one.wish.accepted)
    ]
    columns = ["accepted", "rounds:count", "requested:bytes", "allocated:bytes", "reserved:bytes", "fits"]
    return Table.of(rows, columns, "peaks by how many proposed tokens are right")


def _assistant_json(generation: Generation) -> dict[str, Any]:
    wish, assistant, other = generation.wish, generation.assistant, generation.other
    return {
        "model": wish.assistant,
        "candidates": wish.candidates,
        "accepted": wish.accepted,
        "rounds": len(wish.starts()),
        "parameter_bytes": assistant.parameter_bytes if assistant is not None else None,
        "cache_bytes": sum(layer.bytes for layer in generation.draft_cache),
        "other": None
        if other is None
        else {"accepted": other.wish.accepted, "outcome": other._outcome, "peak": {key: other.peak(key) for key in COUNTERS}},
    }


def _short(line: str) -> str:
    """Return a place in an installed package, from the package on."""
    folders = [f"{hop.rstrip('/')}/" for hop in sys.path if hop and line.startswith(f"{hop.rstrip('/')}/")]
    return line.removeprefix(max(folders, key=len, default=""))


def _formula_rows(run: Generation) -> Iterator[tuple[str, str]]:
    """Yield the requested peak of each phase by batch, prompt and new tokens; lines of their own, since tables cut what is long."""
    names = {"prefill": "requested_for_the_prompt", "decode": "requested_in_decoding"}
    for name, known in run.peak_formulas.items():
        held = ", ".join(f"{first:,} to {last:,}" for first, last in known.held)
        yield names[name], f"at most {known} bytes, held against lengths {held}"
    if run.without_formula and (without := [_DOING[name] for name in names if name in run.phases and name not in run.peak_formulas]):
        yield "no_formula_of", f"{' and '.join(without)}: {run.without_formula}"


def weights_rows(loaded: Loaded) -> dict[str, str]:
    """Return what the weights take, and whose kernels were read where they are not plain numbers."""
    found = {"weights": _weights_text(loaded)}
    if loaded.schemes:
        found["kernels"] = f"modelled: {'; '.join(dict.fromkeys(kernel for _, kernel, _ in loaded.schemes))}"
    return found


def how_text(wish: Wish, loaded: Loaded | None) -> str:
    """Return the cache and the kind of attention."""
    return (
        f"{wish.cache} cache"
        + (f" ({wish.cache_from})" if wish.cache_from else "")
        + (f", {loaded.attention} attention" if loaded is not None and loaded.attention else "")
    )


def _weights_text(loaded: Loaded) -> str:
    if not loaded.schemes:
        return f"{bytes_text(loaded.parameter_bytes)}, {loaded.parameters:,} parameters in {loaded.dtype.text}"
    each = 8 * loaded.parameter_bytes / loaded.parameters
    schemes = ", ".join(f"{count:,} in {scheme}" for scheme, _, count in loaded.schemes[:3])
    size = f"{bytes_text(loaded.parameter_bytes)}, {loaded.parameters:,} parameters in {each:.3g} bits each"
    return f"{size}: {schemes}, the others in {loaded.dtype.text}"


# -- the cache as a formula --------------------------------------------------------------------------------------------


def cache_formula(generation: Generation) -> str:
    """Return the bytes of the cache on the device after the last token; empty where it does not say what was counted."""
    wish, loaded = generation.wish, generation.loaded
    if loaded is None or not generation.cache:
        return ""
    terms: dict[_Factor, int] = {}
    for one in generation.cache:
        what, rate = _growth_term(one, generation)
        terms[what] = terms.get(what, 0) + rate
    for new, layers in ((wish.new, generation.cache), generation.cache_before):
        counted = wish.batch * wish.beams * sum(rate * what.tokens(wish.prompt, new) for what, rate in terms.items())
        if not any(layer.capacity for layer in layers) and sum(layer.bytes for layer in layers) != counted:
            return ""
    parts = [f"{rate}*{what}" if what.of else str(rate) for what, rate in terms.items() if rate]
    inner = " + ".join(parts) or "0"
    times = "batch" if wish.beams == 1 else f"{wish.beams}*batch"
    return f"{times}*({inner})" if len(parts) > 1 else f"{times}*{inner}"


class _Factor(NamedTuple):
    """Quantity that bytes of the cache are proportional to."""

    of: Literal["", "prompt", "new", "prompt + new - 1"] = ""
    """Tokens; empty for none."""
    most: int | None = None
    """A window, beyond which nothing is kept."""

    def tokens(self, prompt: int, new: int) -> int:
        """Return how many there are for a prompt and new tokens."""
        found = {"": 1, "prompt": prompt, "new": new, "prompt + new - 1": prompt + new - 1}[self.of]
        return found if self.most is None else min(found, self.most)

    def __str__(self) -> str:
        if self.most is not None:
            return f"min({self.of}, {self.most})"
        return f"({self.of})" if " " in self.of else self.of


def _growth_term(layer: CacheLayer, generation: Generation) -> tuple[_Factor, int]:
    """Return what a layer's bytes for one sequence are proportional to, and the factor."""
    wish, loaded = generation.wish, generation.loaded
    own = layer.bytes // (wish.batch * wish.beams)
    grown = _Factor("new" if loaded is not None and loaded.is_encoder_decoder else "prompt + new - 1")
    if layer.kind.startswith("cross "):
        reads_text = loaded is not None and any(each.name == "input_ids" for each in loaded.inputs)
        return (_Factor("prompt"), own // wish.prompt) if reads_text and own % wish.prompt == 0 else (_Factor(), own)
    if layer.window is not None:
        # A layer that grows drops what the next token will not see.
        within = grown._replace(most=layer.window if layer.capacity else layer.window - 1)
        if own % within.tokens(wish.prompt, wish.new) == 0:
            return within, own // within.tokens(wish.prompt, wish.new)
    before = next((each.bytes for each in generation.cache_before[1] if (each.layer, each.kind) == (layer.layer, layer.kind)), None)
    grows = before is not None and (before != layer.bytes or generation.cache_before[0] == wish.new)
    count = grown.tokens(wish.prompt, wish.new)
    return (grown, own // count) if (grows or layer.capacity) and own % count == 0 else (_Factor(), own)
