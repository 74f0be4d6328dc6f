"""Runs passes over a program: results are cached, and computed again only when what they read has changed."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import threading
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

from irscope._version import __version__
from irscope.diagnostics import Diagnostic, DiagnosticSink
from irscope.errors import Cancelled, IrscopeError, LoadError, PassError, UsageError
from irscope.files import private_file, read_regular
from irscope.immutable import immutable, mutable
from irscope.ir.graph import Facet
from irscope.ir.printer import print_program
from irscope.ir.program import Program, facet_contents
from irscope.ir.verify import verify
from irscope.passkit.base import Analysis, Pass, Transform
from irscope.passkit.instruments import Instrument, Kind, PassEvent
from irscope.passkit.options import build
from irscope.passkit.pipeline import parse_pipeline, script_in
from irscope.passkit.registry import PassRegistry, default_registry
from irscope.passkit.settings import Settings
from irscope.report.report import Report
from irscope.report.table import Table

FOLDER_VARIABLE = "IRSCOPE_CRASH_DIR"
_RUN_LINE = re.compile(r"^# RUN: (.+)$", re.M)


@immutable
class Reproducer:
    """Contents of a reproducer file."""

    pipeline: str
    text: str


def write_reproducer(text: str, pipeline: str, error: BaseException) -> Path | None:
    """Write a reproducer to $IRSCOPE_CRASH_DIR, else to the cache folder; None if nowhere is writable."""
    trace = "".join(traceback.format_exception(error))
    digest = hashlib.sha256((text + pipeline).encode()).hexdigest()[:10]
    header = [
        f"# irscope {__version__}, Python {platform.python_version()}, {platform.system()}",
        "# A pass failed on this graph. It holds no weights. Run it again with: irscope repro FILE",
        f"# RUN: {pipeline}",
        *(f"# {line}" for line in trace.splitlines()),
    ]
    body = "\n".join(header) + "\n" + text
    return private_file(f"irscope-crash-{digest}", ".irs", body, os.environ.get(FOLDER_VARIABLE, ""))


def read_reproducer(path: Path) -> Reproducer:
    """Return the pipeline and graph text of a reproducer file."""
    try:
        text = read_regular(path).decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"cannot read the reproducer: {error}", where=str(path)) from None
    match = _RUN_LINE.search(text)
    if match is None:
        raise LoadError("no '# RUN:' line: this is not a reproducer", where=str(path), hint="`irscope run FILE` analyses any .irs file")
    return Reproducer(match[1], text)


def raised_at(error: BaseException) -> str:
    """File and line that raised an error, for a message without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


T = TypeVar("T")
_TICK = 1024
_Versions = tuple[object, ...]
Runnable: TypeAlias = str | Pass | type[Pass]
"""A pass, the class of one, or the text of a pipeline."""


@mutable
class _Cached:
    """A result with what it was computed from."""

    result: Any
    versions: _Versions
    settings: Settings
    needs: list[Analysis[Any]]
    diagnostics: list[Diagnostic]


@mutable
class _Frame:
    """A pass that runs now: what it asked for and what it counted."""

    event: PassEvent
    needs: list[Analysis[Any]] = field(default_factory=list)
    diagnostics: DiagnosticSink = field(default_factory=DiagnosticSink)
    changed: bool = False


@dataclass(frozen=True, repr=False)
class PassResult:
    """Result of one element of a pipeline."""

    subject: Pass
    value: Any
    """An analysis's result; for a transform whether it changed the graph."""
    made_report: Report

    def report(self) -> Report:
        """Return the result as tables and numbers."""
        return self.made_report

    def table(self, title: str = "") -> Table:
        """Return one of the report's tables by its title; the first without one."""
        return self.made_report.table(title)

    def to_pandas(self, title: str = "") -> Any:
        """Return the same as a pandas DataFrame."""
        return self.made_report.to_pandas(title)

    def __repr__(self) -> str:
        return repr(self.made_report)

    def __str__(self) -> str:
        return str(self.made_report)

    def _repr_html_(self) -> str:
        return self.made_report._repr_html_()


class Manager:
    """Runs analyses and transforms over one program. This is the `ctx` that passes are given."""

    def __init__(
        self,
        program: Program,
        *,
        settings: Settings | None = None,
        instruments: Sequence[Instrument] = (),
        registry: PassRegistry | None = None,
        verify_each: bool = False,
        reproducers: bool = False,
        annotate: Transform | None = None,
    ) -> None:
        self.program = program
        self.settings = settings if settings is not None else Settings()
        self.instruments: list[Instrument] = list(instruments)
        self.registry = registry if registry is not None else default_registry()
        self.verify_each = verify_each
        self.reproducers = reproducers
        self.annotate = annotate
        """Transform that writes inferred types onto the graph. It runs after every other transform that changed something: types follow
        from that."""
        self.cancelled = threading.Event()
        """Set it from any thread to stop the run at the next item of a long loop."""
        self.planned: tuple[Pass, ...] = ()
        """The passes of the run."""
        self.reopened: Callable[[Mapping[str, int]], Manager] | None = None
        """Reads the model again with numbers for symbols."""
        self._general = DiagnosticSink()
        self._cache: dict[Analysis[Any], _Cached] = {}
        self._running: list[_Frame] = []
        self._stats: dict[Pass, dict[str, int]] = {}
        self._count = 0

    # -- what passes see ---------------------------------------------------------------------------------------

    @property
    def sink(self) -> DiagnosticSink:
        """Return where the pass that runs now puts its diagnostics; they stay with its cached result."""
        return self._running[-1].diagnostics if self._running else self._general

    @overload
    def get(self, wanted: Analysis[T]) -> T: ...
    @overload
    def get(self, wanted: type[Analysis[T]]) -> T: ...
    @overload
    def get(self, wanted: str) -> Any: ...
    def get(self, wanted: Analysis[Any] | type[Analysis[Any]] | str) -> Any:
        """Return the result of an analysis, from the cache when it still holds."""
        analysis = self._instance(wanted)
        if self._running:
            self._running[-1].needs.append(analysis)
        cached = self._cache.get(analysis)
        if cached is not None and self._is_valid(analysis, cached):
            return cached.result
        if any(frame.event.subject == analysis for frame in self._running):
            chain = " -> ".join(frame.event.subject.name for frame in self._running)
            raise PassError(f"analysis {analysis.name!r} needs its own result ({chain} -> {analysis.name})", code="IRS501")
        versions = self._versions(analysis)
        before = self._versions(None)
        with self._running_pass(analysis, "analysis") as frame:
            result = analysis.compute(self.program.graph, self)
            if self._versions(None) != before:
                raise PassError(f"analysis {analysis.name!r} changed the graph, which only a transform may do", code="IRS502")
        self._cache[analysis] = _Cached(result, versions, self.settings, frame.needs, list(frame.diagnostics))
        return result

    def peek(self, wanted: Analysis[T]) -> T | None:
        """Return the cached result if it still holds; computes nothing."""
        cached = self._cache.get(wanted)
        return cached.result if cached is not None and self._is_valid(wanted, cached) else None

    def forget(self, wanted: Analysis[Any], *, but: Container[Analysis[Any]] | None = None) -> None:
        """Drop a cached result that takes much room and is not needed again soon; with `but`, also what it was computed from, apart from
        those analyses and what they were computed from."""
        pending = [wanted]
        while pending:
            cached = self._cache.pop(pending.pop(), None)
            if cached is not None and but is not None:
                pending += [need for need in cached.needs if need not in but]

    def each(self, items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """Yield the items, ticking progress and checking for cancellation every 1,024 of them."""
        for done, item in enumerate(items):
            if done % _TICK == 0:
                self.tick(done, total, what)
            yield item

    def at(self, sizes: Mapping[str, int]) -> Manager | None:
        """Return the same model read again with numbers for symbols; None where it cannot be."""
        return None if self.reopened is None else self.reopened(sizes)

    def tick(self, done: int, total: int | None, what: str) -> None:
        """Tell the instruments how far long work has come, and check for cancellation."""
        self.check_cancelled()
        for instrument in self.instruments:
            instrument.progress(self._running[-1].event if self._running else None, done, total, what)

    def ended(self) -> None:
        """Tell the instruments that long work between passes is over."""
        for instrument in self.instruments:
            instrument.ended()

    def check_cancelled(self) -> None:
        """Raise Cancelled when the run was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled("stopped on request")

    def stat(self, key: str, amount: int = 1) -> None:
        """Count something for the statistics of the pass that runs."""
        counts = self._stats.setdefault(self._running[-1].event.subject, {})
        counts[key] = counts.get(key, 0) + amount

    def stats(self, owner: Pass) -> dict[str, int]:
        """Return what a pass counted in its last run."""
        return dict(self._stats.get(owner, {}))

    # -- running -----------------------------------------------------------------------------------------------

    def apply(self, transform: Transform) -> bool:
        """Run a transform; True when it changed the graph."""
        if not all(instrument.should_run(transform) for instrument in self.instruments):
            return False
        self._stats.pop(transform, None)
        before = self._versions(None)
        check = self._consistency() if self.verify_each else None
        # Inside another transform types may be out of date.
        checks_operators = self.verify_each and not self._running and self.annotate not in (None, transform)
        faults = self._faults() if checks_operators else {}
        with self._running_pass(transform, "transform") as frame:
            frame.changed = bool(transform.apply(self.program.graph, self))
            if frame.changed is not (self._versions(None) != before):
                what = "says that it changed the graph but did not" if frame.changed else "changed the graph but says that it did not"
                raise PassError(f"transform {transform.name!r} {what}", code="IRS502")
            if check is not None:
                check(transform, frame.changed)
        for diagnostic in frame.diagnostics:
            self.sink.add(diagnostic)
        if frame.changed and self.annotate is not None and transform != self.annotate:
            self.apply(self.annotate)
            new = self._faults().keys() - faults.keys() if checks_operators else None
            if new:
                raise PassError(f"transform {transform.name!r} left a broken graph: {min(new)}", code="IRS503")
        return frame.changed

    def _faults(self) -> dict[str, Diagnostic]:
        """Return what operators have against the graph, of which types have been inferred, by what is said of it."""
        return {fault.message: fault for fault in self.get("verify")}

    def run(self, pipeline: Runnable | Sequence[Runnable]) -> list[PassResult]:
        """Run a pipeline, or passes as instances, classes or text; one result per element, in order."""
        given = pipeline if isinstance(pipeline, Sequence) and not isinstance(pipeline, str) else [pipeline]
        before, self.planned = self.planned, tuple(subject for argument in given for subject in self._passes(argument))
        try:
            return [self.run_one(subject) for subject in self.planned]
        finally:
            self.planned = before

    def _passes(self, given: Runnable) -> tuple[Pass, ...]:
        if isinstance(given, str):
            return parse_pipeline(given, self.registry)
        if isinstance(given, type) and issubclass(given, Pass):
            return (build(given, {}),)
        if isinstance(given, Pass):
            return (given,)
        raise UsageError(f"{given!r} is neither a pass, nor the class of one, nor the text of a pipeline", code="IRS607")

    @contextmanager
    def using(self, settings: Settings) -> Iterator[None]:
        """Run passes for another target within the context."""
        before, self.settings = self.settings, settings
        try:
            yield
        finally:
            self.settings = before

    def run_one(self, subject: Pass) -> PassResult:
        """Run one pass and make its report."""
        if isinstance(subject, Transform):
            changed = self.apply(subject)
            with self._guarded(subject):
                return PassResult(subject, changed, subject.report(changed, self))
        if not isinstance(subject, Analysis):
            raise PassError(f"{subject.name!r} is neither an analysis nor a transform", code="IRS607")
        value = self.get(subject)
        with self._guarded(subject):
            report = subject.report(value, self)
        if not self.program.has_graph and not subject.of_weights and not subject.origin:
            report = report.without_graph(subject.known_of_weights)
        if any(assumed.is_about_weights or not subject.of_weights for assumed in self.program.guesses):
            report = report.assumed()
        diagnostics = self.diagnostics_of(subject)
        return PassResult(subject, value, replace(report, diagnostics=(*report.diagnostics, *diagnostics)))

    def diagnostics_of(self, subject: Analysis[Any]) -> list[Diagnostic]:
        """Diagnostics of an analysis, and of the analyses it is composed of that have no name of their own."""
        diagnostics: dict[Diagnostic, None] = {}
        pending, seen = [subject], {subject}
        while pending:
            cached = self._cache.get(pending.pop())
            if cached is None:
                continue
            diagnostics.update(dict.fromkeys(cached.diagnostics))
            for need in cached.needs:
                if need not in seen and need.name not in self.registry.entries:
                    seen.add(need)
                    pending.append(need)
        return list(diagnostics)

    # -- keeping results true ----------------------------------------------------------------------------------

    def _instance(self, wanted: Analysis[Any] | type[Analysis[Any]] | str) -> Analysis[Any]:
        if isinstance(wanted, str):
            (found,) = parse_pipeline(wanted, self.registry)
            if not isinstance(found, Analysis):
                raise PassError(f"{wanted!r} is not an analysis, so it has no result to get", code="IRS504")
            return found
        return build(wanted, {}) if isinstance(wanted, type) else wanted

    def _versions(self, analysis: Analysis[Any] | None) -> _Versions:
        """Return what an analysis reads, as it is now; with None everything that a transform may change."""
        program = self.program
        # Nodes that come or go bring or take attributes, types and names.
        facets = tuple(Facet) if analysis is None else (Facet.TOPOLOGY, *analysis.reads) if analysis.reads else ()
        graphs = (program.graph, *program.functions.values())
        tables = (tuple(program.functions), *program.symbols.items(), *program.given.items(), *program.metadata.items())
        versions = tuple([graph.versions[facet] for graph in graphs for facet in facets])
        return (*graphs, tables, versions, *program.assumed, program.training, program.observed)

    def _consistency(self) -> Callable[[Transform, bool], None]:
        """Return a check that a transform left the graph as the rules want it, and that whatever it wrote was counted."""
        contents, counts = facet_contents(self.program), self._counts()

        def check(transform: Transform, changed: bool) -> None:
            if changed and (broken := verify(self.program)):
                raise PassError(f"transform {transform.name!r} left a broken graph: {broken[0].message}", code="IRS503")
            after, now = facet_contents(self.program), self._counts()
            for facet in Facet:
                # What comes or goes with a node is counted as topology.
                is_counted = counts[facet] != now[facet] or counts[Facet.TOPOLOGY] != now[Facet.TOPOLOGY]
                if contents[facet] != after[facet] and not is_counted:
                    what = f"changed the graph's {facet.name.lower()} past the methods of the graph, so that results go stale"
                    raise PassError(f"transform {transform.name!r} {what}", code="IRS502")

        return check

    def _counts(self) -> list[tuple[int, ...]]:
        """Return the versions of the program's graphs by facet."""
        return list(zip(*[graph.versions for graph in (self.program.graph, *self.program.functions.values())], strict=True))

    def _is_valid(self, analysis: Analysis[Any], cached: _Cached) -> bool:
        # Needs are checked through a worklist: a chain of analyses may be longer than the stack allows.
        pending, seen = [(analysis, cached)], {analysis}
        while pending:
            subject, entry = pending.pop()
            if entry.settings != self.settings or entry.versions != self._versions(subject):
                return False
            for need in entry.needs:
                if need not in seen:
                    seen.add(need)
                    found = self._cache.get(need)
                    if found is None:
                        return False
                    pending.append((need, found))
        return True

    # -- errors and instruments --------------------------------------------------------------------------------

    @contextmanager
    def _running_pass(self, subject: Pass, kind: Kind) -> Iterator[_Frame]:
        """Tell the instruments about one pass, and turn what it raises into one clear error."""
        self.check_cancelled()
        frame = _Frame(PassEvent(subject, kind, self.program, len(self._running), self._count))
        self._count += 1
        for instrument in self.instruments:
            instrument.before(frame.event)
        self._running.append(frame)
        try:
            with self._guarded(subject):
                yield frame
        except BaseException as error:
            self._running.pop()
            for instrument in reversed(self.instruments):
                instrument.failed(frame.event, error)
            raise
        self._running.pop()
        for instrument in reversed(self.instruments):
            instrument.after(frame.event, frame.changed)

    @contextmanager
    def _guarded(self, subject: Pass) -> Iterator[None]:
        """Anything but irscope's own errors becomes a PassError, with a reproducer where those are wanted."""
        is_lost = isinstance(subject, Transform) and subject.writes != (Facet.TYPES,)
        snapshot = print_program(self.program) if self.reproducers and is_lost else None
        try:
            yield
        except (IrscopeError, KeyboardInterrupt):
            raise
        except Exception as error:
            hint = ""
            if self.reproducers:
                text = snapshot if snapshot is not None else print_program(self.program)
                written = write_reproducer(text, subject.text, error)
                trust = "--trust " if script_in(subject.text) else ""
                hint = f"reproduce it with `irscope repro {trust}{written}`" if written else ""
            message = f"pass {subject.name!r} failed: {type(error).__name__}: {error}"
            raise PassError(message, where=raised_at(error), hint=hint) from error
