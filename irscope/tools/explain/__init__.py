"""`irscope explain SNAPSHOT`: what held the memory of a run, who strands what is free, what grows, and what would have fitted."""

from __future__ import annotations

import functools
import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from irscope import processes
from irscope.devices.catalogue import SNAPSHOT_DEVICE, SNAPSHOT_TORCH, torch_version
from irscope.devices.releases import DEFAULT_RELEASE
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.files import TemporaryFolder, is_recording
from irscope.frontends.detect import detect
from irscope.frontends.files.snapshot import Snapshot, read_snapshot, rounded
from irscope.immutable import immutable
from irscope.memory.caching import PLENTY, CachingAllocator, OutOfMemory
from irscope.memory.caching.conf import LARGE_SEGMENT, segment_size
from irscope.memory.run import Lives
from irscope.passes.lifetimes.timeline import shown_steps
from irscope.recording import read_recording
from irscope.report.printable import one_line
from irscope.report.report import Report, Reported
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, bytes_text
from irscope.tools.compare.memory import MemoryComparison, Request, compare_runs, of_snapshot
from irscope.tools.explain.faults import Fault, faults_of
from irscope.tools.explain.history import BEFORE, NOT_ATTRIBUTED, History, Numbers
from irscope.tools.explain.recorded import snapshot_of
from irscope.tools.explain.sources import Sources
from irscope.tools.simulate_ranks import Program, arguments_of
from irscope.tools.simulation import Options, grouped

ALLOCATED: Final = "allocated"
ROUNDING: Final = "rounding of blocks"
FRAGMENT: Final = "free parts of segments in use"
CACHED: Final = "free segments in the cache"


@dataclass
class Piece:
    """Adjacent memory that the device gave."""

    address: int
    size: int
    blocks: list[int] = field(default_factory=list)
    """Those alive in it, by address."""
    used: int = 0

    @property
    def free(self) -> int:
        return max(self.size - self.used, 0)


class Space:
    """The memory of the device at the moment that is explained."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._moment = history.moment

    @cached_property
    def pieces(self) -> list[Piece]:
        """Return the pieces by address, with what is alive in them."""
        pieces = [Piece(begin, end - begin) for begin, end in self._given()]
        starts = [piece.address for piece in pieces]
        blocks = self._history.blocks
        alive = self._history.alive(self._moment)
        alive = alive[np.argsort(blocks.address[alive], kind="stable")]
        for number, address, size in zip(alive.tolist(), blocks.address[alive].tolist(), rounded(blocks.size[alive]).tolist(), strict=True):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < pieces[at].address + pieces[at].size:
                pieces[at].blocks.append(number)
                pieces[at].used += size
        return pieces

    def _given(self) -> list[tuple[int, int]]:
        """Return what the device has given at the moment: what it has at the end, and back from there."""
        history = self._history
        now = {segment.address: segment.address + segment.size for segment in history.snapshot.held()}
        about = np.flatnonzero(history.acts("segment_alloc", "segment_map", "segment_free", "segment_unmap"))
        gives = history.acts("segment_alloc", "segment_map")
        if history.snapshot.held():
            # Backwards: what was given then is not there before, and what was given back is.
            for at in about[about >= self._moment][::-1].tolist():
                _change(now, int(history.address[at]), int(history.size[at]), more=not gives[at])
        else:
            for at in about[about < self._moment].tolist():
                _change(now, int(history.address[at]), int(history.size[at]), more=bool(gives[at]))
        return sorted(now.items())

    def parts(self) -> list[tuple[str, int, int]]:
        """Return what reserved is made of, with the number of blocks or segments; the bytes add up to it."""
        blocks = self._history.blocks
        inside = np.array([number for piece in self.pieces for number in piece.blocks], dtype=np.int64)
        asked = int(blocks.size[inside].sum())
        used = sum(piece.used for piece in self.pieces)
        broken = [piece for piece in self.pieces if piece.blocks and piece.free]
        whole = [piece for piece in self.pieces if not piece.blocks]
        return [
            (ALLOCATED, len(inside), asked),
            (ROUNDING, len(inside), used - asked),
            (FRAGMENT, len(broken), sum(one.free for one in broken)),
            (CACHED, len(whole), sum(one.size for one in whole)),
        ]

    @property
    def reserved(self) -> int:
        """Return the bytes that the device has given."""
        return sum(piece.size for piece in self.pieces)

    def keepers(self) -> Iterator[tuple[str, str, str, int, int, int]]:
        """Yield who keeps segments that are partly free: category, module, line, segments, bytes of its own in them, and free bytes.

        Of several in a segment it is the one that stays longest.
        """
        history = self._history
        found: dict[tuple[str, str, str], list[int]] = {}
        for piece in self.pieces:
            if not piece.blocks or not piece.free:
                continue
            last = max(piece.blocks, key=lambda number: (int(history.blocks.died[number]), -int(history.blocks.born[number])))
            key = str(history.category[last]), history.module(last), history.line(last)
            row = found.setdefault(key, [0, 0, 0])
            row[0] += 1
            row[1] += int(history.blocks.size[last])
            row[2] += piece.free
        for key, (count, own, free) in sorted(found.items(), key=lambda item: -item[1][2]):
            yield (*key, count, own, free)


def _change(now: dict[int, int], address: int, size: int, *, more: bool) -> None:
    """Add a range to, or take it from, what is there; adjacent segments stay apart, mapped pages of one join."""
    end = address + size
    if more:
        now[address] = max(end, now.get(address, end))
        return
    if now.get(address) == end:
        del now[address]
        return
    for begin, stop in list(now.items()):
        if begin < end and address < stop:
            del now[begin]
            if begin < address:
                now[begin] = address
            if end < stop:
                now[end] = stop


SCRIPTS: Final = (".py", ".pyw")
_SECONDS: Final = 1800
_SAID: Final = re.compile(r"irscope: error (IRS\d+): (.*)")
_LITTLE: Final = 4096
_LITTLE_SHARE: Final = 0.001
"""Bytes, and part of a request, that it may differ by."""


@immutable(slots=False)
class Prediction:
    """A prediction beside what happened."""

    snapshot: Snapshot
    compared: MemoryComparison
    """A is the prediction, B what happened."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """Document of the simulation of a script, with what settings save."""

    @functools.cached_property
    def agreed(self) -> tuple[int, int]:
        """Return the number of requests that are as expected, and how many of those differ a little, as what kernels take for themselves
        does by device.
        """
        a, b = self.compared.sides
        at, little = self.compared.same, 0
        for (expected, _), (happened, _) in zip(a[at:], b[at:], strict=False):
            far = abs(expected.size - happened.size)
            if far > max(_LITTLE, _LITTLE_SHARE * max(expected.size, happened.size)):
                break
            at, little = at + 1, little + (far > 0)
        return at, little

    def parting(self) -> tuple[int, Request | None, Request | None] | None:
        """Return the number of the first request that differs, with what was expected and what happened; None where all are as expected."""
        at = self.agreed[0]
        both = [side[at][0] if at < len(side) else None for side in self.compared.sides]
        return None if both == [None, None] else (at + 1, both[0], both[1])


def predict(snapshot: Snapshot, target: str, arguments: Sequence[str], options: Options, *, tries: bool) -> Prediction:
    """Simulate a script, or a run of a model, and compare."""
    with TemporaryFolder() as folder:
        path = Path(folder, "predicted.pickle")
        if target.endswith(SCRIPTS):
            line = arguments_of(Program(target, arguments), options, "--quiet", "--format", "json", "-o", str(path), *["--try"] * tries)
        else:
            given = {"--device": options.device, "--torch": options.torch, "--alloc-conf": options.alloc_conf}
            named = [part for flag, value in given.items() if value for part in (flag, value)]
            line = ["export", "--quiet", *named, "-o", str(path), target]
        try:
            done = processes.run(processes.irscope(line), seconds=_SECONDS)
        except processes.Late:
            raise LoadError(f"it cannot be predicted: that took more than {_SECONDS} s", where=target) from None
        if not path.exists():
            said = done.complaints
            match = _SAID.fullmatch(said[-1]) if said else None
            why = match[2].removeprefix(f"{target}: ") if match else said[-1] if said else "nothing was written"
            raise LoadError(f"it cannot be predicted: {why}", code=match[1] if match else None, where=target)
        predicted = read_snapshot(path)
        found: Mapping[str, Any] = {}
        if target.endswith(SCRIPTS):
            try:
                found = json.loads(done.text)
            except ValueError:
                found = {}
        return Prediction(predicted, compare_runs(of_snapshot(predicted), of_snapshot(snapshot)), found)


_ALIVE: Final = ["category", "module", "line", "bytes", "blocks:count"]
_MOST_STEPS: Final = 200
_WORTH: Final = 0.01
"""Of what is reserved, what is at least told of what is free in pieces."""


@dataclass
class Explanation(Reported):
    """Contents of a snapshot, and what follows from them."""

    path: str
    history: History
    sources: Sources
    prediction: Prediction | None = None
    release: str = DEFAULT_RELEASE.name
    """Of torch, whose rules the requests are asked again by."""
    unknown: str = ""
    """The release that the file names, where its rules are not known."""

    @cached_property
    def faults(self) -> list[Fault]:
        """Return what is wrong with the program."""
        return faults_of(self.history, self.sources)

    @cached_property
    def space(self) -> Space:
        """Return where memory lies."""
        return Space(self.history)

    @cached_property
    def tried(self) -> tuple[Outcome | None, list[Outcome], str]:
        """Return the same requests with other settings."""
        return try_changes(self.history, self.faults, self.release)

    @property
    def asked(self) -> int:
        """Return the bytes at the moment."""
        return int(self.history.totals[self.history.moment])

    @property
    def attributed(self) -> float:
        """Return the part of the bytes at the moment whose line or time is known."""
        return self.attributed_bytes / self.live_bytes if self.live_bytes else 1.0

    @cached_property
    def live_bytes(self) -> int:
        """Return the bytes of the blocks that are alive at the moment."""
        return int(self.history.blocks.size[self.history.alive(self.history.moment)].sum())

    @cached_property
    def attributed_bytes(self) -> int:
        """Return those of them whose line or time is known."""
        history = self.history
        alive = history.alive(history.moment)
        known = history.category[alive]
        size = history.blocks.size[alive]
        told = np.array([bool(history.line(number)) for number in alive.tolist()], dtype=np.bool_) | np.isin(known, [BEFORE, "workspace"])
        return int(size[told & (known != NOT_ATTRIBUTED)].sum())

    # In words

    @property
    def verdict(self) -> str:
        """In a line or two."""
        history = self.history
        kinds = history.by_category(history.alive(history.moment))
        most = ", ".join(f"{name} {bytes_text(size)}" for name, size in list(kinds.items())[:3])
        if history.refused is not None:
            refused = history.refused
            line = history.refused_line
            said = f"out of memory: {bytes_text(int(history.size[refused]))} more" + (f" at {line}" if line else "")
            left = int(history.address[refused])
            said += f", where {bytes_text(self.asked)} were in use, {bytes_text(int(history.reserved[refused]))} reserved"
            said += f" and {bytes_text(left)} left"
        elif not history.length:
            said = f"without a history: {bytes_text(self.asked)} in use at the end"
        else:
            said = f"{bytes_text(self.asked)} in use at the peak"
            said += f", {bytes_text(self.space.reserved)} reserved" if self.space.pieces else ""
        return f"{said}; {most}" if most else said

    def summary(self) -> Mapping[str, object]:
        """Return what is said first."""
        history = self.history
        found: dict[str, object] = {"verdict": self.verdict}
        for number, fault in enumerate(self.faults[:3]):
            found["found" if not number else f"also found {number}"] = f"{fault.kind}: {fault.place}, {bytes_text(fault.bytes)}"
        if not self.faults and history.length:
            found["found"] = "none of the known kinds of faults"
        parting = self.parting
        if parting:
            found["prediction"] = parting
        best = self.best
        if best:
            found["smallest change"] = best
        found["snapshot"] = f"{self.path}, device {history.snapshot.device}" + (
            f" of {', '.join(map(str, history.snapshot.devices))}" if len(history.snapshot.devices) > 1 else ""
        )
        found["requested_bytes"] = self.asked
        if self.space.pieces:
            found["reserved_bytes"] = self.space.reserved
        found["attributed_ratio"] = self.attributed
        found["requests_count"] = len(history.blocks)
        found["steps_count"] = len(history.steps)
        return found

    @property
    def parting(self) -> str:
        """Return where the run leaves its prediction."""
        if self.prediction is None:
            return ""
        found = self.prediction.parting()
        same, little = self.prediction.agreed
        but = f", {little:,} of them within 4 KiB" if little else ""
        if found is None:
            return f"the run requested what was predicted: all {same:,} requests{but}"
        number, expected, happened = found
        if happened is None:
            end = ", up to where memory ran out" if self.history.refused is not None else ""
            return f"the run requested what was predicted: all {same:,} requests{but}{end}"
        return f"they differ from request {number:,}: expected {_request(expected)}; the run requested {_request(happened)}"

    @property
    def best(self) -> str:
        """Return what would have helped, the least first."""
        as_is, found, _ = self.tried
        if as_is is None:
            return ""
        if self.history.refused is not None:
            # Where something grows, settings only put off the end; else a setting from outside is the least.
            grows = any(one.change.fault is not None and one.fits for one in found)
            order = (lambda one: one.change.fault is None) if grows else (lambda one: not one.change.conf)
            fits = sorted((one for one in found if one.fits), key=order)
            return "fits with " + " or ".join(f"{fit.change.name!r}" for fit in fits[:3]) if fits else "none of those tried makes it fit"
        helps = [one for one in found if as_is.reserved - one.reserved > _WORTH * as_is.reserved]
        return "; ".join(f"{one.change.name}: {bytes_text(as_is.reserved - one.reserved)} less reserved" for one in helps[:2])

    # Tables

    def tables(self) -> Iterator[Table]:
        """Yield all that is told."""
        history = self.history
        where = "where memory was refused" if history.refused is not None else "at the peak"
        if self.faults:
            rows = [(fault.kind, fault.place, fault.line, fault.bytes, fault.text, fault.fix) for fault in self.faults]
            columns: list[str | Column] = ["what", "look at", Column("made_at", detail=True), "bytes", "why", Column("fix", detail=True)]
            yield Table.of(rows, columns, "faults found")
        alive = history.alive(history.moment)
        kinds = history.by_category(alive)
        rows_of_kinds: list[tuple[object, ...]] = [(name, size) for name, size in kinds.items()]
        parts = self.space.parts()
        rounding = next(size for name, _, size in parts if name == ROUNDING)
        yield Table.of(
            [*rows_of_kinds, ("requested, the sum", self.asked), ("rounding", rounding)], ["category", "bytes"], f"{where}, by category"
        )
        yield Table.of(grouped(history.rows(alive), self._classes), _ALIVE, f"alive {where}", whole="bytes")
        if any(size for _, _, size in parts):
            made: list[tuple[object, ...]] = [*parts]
            made.append(("reserved, the sum", len(self.space.pieces), sum(size for _, _, size in parts)))
            yield Table.of(made, ["what", "count", "bytes"], f"what reserved is made of {where}")
        keepers = [row for row in self.space.keepers() if row[5] >= _WORTH * max(self.space.reserved, 1)]
        if keepers:
            columns = ["category", "module", "line", "segments:count", "bytes of its own:bytes", "kept from others:bytes"]
            yield Table.of(keepers, columns, "who keeps segments that are partly free: the block of each that stays longest")
        yield from self._steps()
        yield from self._tried_tables()
        yield from self._prediction_tables()

    @property
    def _classes(self) -> Mapping[str, str]:
        """Modules by path, all of one class, as a snapshot does not tell it: layers that differ in numbers alone are shown together."""
        _, some = np.unique(self.history.blocks.stack, return_index=True)
        modules = {self.history.module(number) for number in some.tolist()}
        return dict.fromkeys((".".join(module.split(".")[:end]) for module in modules for end in range(1, module.count(".") + 2)), "")

    def _steps(self) -> Iterator[Table]:
        history = self.history
        ends = [0, *history.steps.tolist()]
        if len(ends) < 3:
            return
        rows = []
        for number, (first, end) in enumerate(itertools.pairwise(ends), 1):
            rows.append((number, int(history.totals[first : end + 1].max()), int(history.totals[end]), int(history.reserved[end])))
        before = [None, *(row[2] for row in rows)]
        grown = [(*row, None if last is None else row[2] - last) for row, last in zip(rows, before, strict=False)]
        columns = ["step:index", "peak:bytes", "after:bytes", "reserved after:bytes", "grown:bytes"]
        yield Table.of(grown[-_MOST_STEPS:], columns, "steps: what was requested")

    def _tried_tables(self) -> Iterator[Table]:
        as_is, found, _ = self.tried
        if as_is is None:
            return
        refused = self.history.refused is not None
        before = "no" if as_is.fits is False else "?" if refused else ""
        rows: list[tuple[object, ...]] = [("as it was", before, as_is.reserved, 0, as_is.allocated, "")]
        for one in found:
            fits = "" if one.fits is None else "yes" if one.fits else "no"
            rows.append((one.change.name, fits, one.reserved, as_is.reserved - one.reserved, one.allocated, one.change.how))
        columns: list[str | Column] = ["change", "fits", "reserved:bytes", "saved:bytes", "allocated:bytes", Column("how", detail=True)]
        title = "the same requests of a simulated allocator, changed" + (": up to where memory ran out" if refused else "")
        yield Table.of(rows, columns, title)

    def _prediction_tables(self) -> Iterator[Table]:
        if self.prediction is None:
            return
        yield from self.prediction.compared.document().reports[0].tables
        trials = self.prediction.document.get("tried", {}).get("trials", [])
        if trials:
            rows = [
                (
                    " + ".join(part["name"] for part in trial["settings"]),
                    "?" if trial["fits"] is None else "yes" if trial["fits"] else "no",
                    trial["peak"]["reserved"],
                    trial["saved"]["reserved"],
                    "; ".join(part["code"] for part in trial["settings"]),
                )
                for trial in trials
            ]
            columns: list[str | Column] = ["setting", "fits", "reserved:bytes", "saved:bytes", Column("code", detail=True)]
            yield Table.of(rows, columns, "settings of the script, each simulated: the most saved first")

    def pictures(self) -> Sequence[Series]:
        """Memory over the history, by category."""
        history = self.history
        if not history.length:
            return ()
        places = shown_steps(history.totals.tolist())
        kinds = history.by_category(np.arange(len(history.blocks)))
        heights = dict(history.lives.heights(history.category.tolist()))
        data: dict[str, Sequence[object]] = {"entry": places, **{kind: heights[kind][places].tolist() for kind in kinds}}
        columns = tuple(Column(kind, Kind.BYTES) for kind in kinds)
        return (Series("memory requested, by category", Column("entry", Kind.COUNT), columns, data),)

    def report(self) -> Report:
        """Return the report."""
        _, _, why = self.tried
        history = self.history
        notes = [f"{fault.kind} ({fault.place}): {fault.fix}" for fault in self.faults]
        if why:
            notes.append(why)
        if self.tried[0] is not None:
            instead = f", as those of torch {self.unknown}, which the file names, are not known" if self.unknown else ""
            notes.append(f"changes were tried by the rules of torch {self.release}{instead}; --torch names another release")
        if history.length and not history.has_stacks:
            notes.append("the history has no stacks: torch.cuda.memory._record_memory_history(stacks='python') writes them")
        if history.has_pools and not why:
            notes.append("changes were tried as if private pools, such as those of CUDA graphs, were shared ones")
        kept = history.by_category(history.alive(history.moment)).get(BEFORE, 0)
        if kept:
            notes.append(f"{bytes_text(kept)} were there before the history began: record it before the model is made")
        return Report("explain", summary=self.summary(), tables=tuple(self.tables()), notes=tuple(notes), pictures=self.pictures)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `irscope explain --format json`: what is alive, and the faults as data, beside the report."""
        findings = [
            {"kind": fault.kind, "line": fault.line, "keeper": fault.keeper, "bytes": fault.bytes, "why": fault.text, "fix": fault.fix}
            for fault in self.faults
        ]
        own = {"live_bytes": self.live_bytes, "attributed_bytes": self.attributed_bytes, "findings": findings}
        return {**self.document().to_json(), "schema": "irscope.explanation/1", **own}


def _request(request: Request | None) -> str:
    if request is None:
        return "nothing more"
    return bytes_text(request.size) + (f" at {request.line}" if request.line else "")


_GUESSED: Final = ("irs", "onnx")
"""Kinds without a magic number: many texts and binaries may be one."""


def _instead(path: Path) -> str:
    """Return what to type for a script or a model where a snapshot is asked for; nothing for other files."""
    if path.suffix == ".py":
        return f"`irscope simulate -o run.pickle {path}` writes a snapshot of it, `irscope simulate --try {path}` finds what saves memory"
    try:
        kind = detect(path)
    except IrscopeError:
        return ""
    if kind.advice or (kind.name in _GUESSED and path.suffix != f".{kind.name}"):
        return ""
    return f"`irscope run --passes liveness,explain-peak {path}` says what holds the memory of a model"


def explain_file(
    path: Path,
    target: str = "",
    arguments: Sequence[str] = (),
    options: Options | None = None,
    *,
    device: int | None = None,
    tries: bool = True,
) -> Explanation:
    """Explain a snapshot or a recording; with the script or the model that made it, also where it leaves its prediction."""
    try:
        snapshot = snapshot_of(read_recording(path)) if is_recording(path) else read_snapshot(path)
    except LoadError as error:
        error.hint = error.hint or _instead(path)
        raise
    return explain(snapshot, target, arguments, options, device=device, tries=tries)


def explain(
    snapshot: Snapshot,
    target: str = "",
    arguments: Sequence[str] = (),
    options: Options | None = None,
    *,
    device: int | None = None,
    tries: bool = True,
) -> Explanation:
    """Return the same of one that was read."""
    if device is not None:
        if device not in snapshot.devices:
            known = ", ".join(map(str, snapshot.devices)) or "none"
            raise LoadError(f"has nothing of device {device}; of {known}", code="IRS663", where=snapshot.path)
        snapshot = snapshot.of_device(device)
    chosen, unknown = _as_it_ran(snapshot, options or Options())
    history = History(snapshot)
    if not len(history.blocks):
        raise LoadError("holds neither a history nor a block in use: nothing is to be explained", code="IRS663", where=snapshot.path)
    script = Path(target) if target.endswith(SCRIPTS) else None
    explanation = Explanation(snapshot.path, history, Sources(script), None, "{}.{}".format(*torch_version(chosen.torch)), unknown)
    if target:
        explanation.prediction = predict(snapshot, target, arguments, chosen, tries=tries)
    return explanation


def _as_it_ran(snapshot: Snapshot, options: Options) -> tuple[Options, str]:
    """Return the options with the device, the release and the allocator's settings of the snapshot, where nobody said others; and the
    release that it names, where its rules are not known."""
    device, torch = (str(snapshot.settings.get(key) or "") for key in (SNAPSHOT_DEVICE, SNAPSHOT_TORCH))
    conf, unknown = ",".join(settings_of(snapshot)), ""
    try:
        torch_version(options.torch or torch)
    except UsageError:
        if options.torch:
            raise
        torch, unknown = "", torch
    return replace(options, device=options.device or device, torch=options.torch or torch, alloc_conf=options.alloc_conf or conf), unknown


# Changes that would have needed less memory: the requests asked again of a simulated allocator, with other settings or without a fault.

MOST_REQUESTS: Final = 400_000
"""Of a history that is asked again."""
_SETTINGS: Final = ("expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8")
_COMMA: Final = re.compile(r",(?![^\[]*\])")
_SCALED: Final = ("activation", "temporary", "input", "output", "loaded")
_FINEST: Final = 1 / 64
_UNLIMITED: Final = 1 << 50
"""Bytes above which `max_split_size` limits nothing: PyTorch writes the largest number there is."""
_LONGEST: Final = 200
"""Of settings that are named."""


@immutable(slots=False)
class Change:
    """Something done otherwise."""

    name: str
    how: str
    conf: str = ""
    fault: Fault | None = None
    scale: float = 1.0
    """Of what grows with the batch."""


@immutable(slots=False)
class Outcome:
    """The allocator's result under a change."""

    change: Change
    fits: bool | None
    """True where it goes on beyond the point at which memory ran out; None where it did not run out."""
    reserved: int
    allocated: int


class Replays:
    """Asks an allocator for the same."""

    def __init__(self, history: History, release: str) -> None:
        self._history, self._release = history, release
        blocks = history.blocks
        self._scales = np.isin(history.category, _SCALED) & (history.round_of > 0)
        numbers = {stream: number for number, stream in enumerate([0, *sorted(set(blocks.stream.tolist()) - {0})])}
        self._streams = {block: numbers[stream] for block, stream in enumerate(blocks.stream.tolist()) if stream}
        self.conf, self.left_out = _conf_of(history, release)

    @property
    def why_not(self) -> str:
        """Return the reason why nothing is asked again; empty where it is."""
        if len(self._history.blocks) > MOST_REQUESTS:
            return f"the history has {len(self._history.blocks):,} requests, of which at most {MOST_REQUESTS:,} are asked again"
        if not self._history.length:
            return "the snapshot has no history"
        return ""

    @property
    def limit(self) -> int | None:
        """Return what the device had, where memory ran out: what was reserved, and what it had left."""
        history = self._history
        if history.refused is None:
            return None
        wanted = segment_size(int(history.size[history.refused]), LARGE_SEGMENT)
        # Where the device had more left than was asked for, a limit of the process refused it.
        left = min(max(int(history.address[history.refused]), 0), wanted - 1)
        there = int(history.reserved[history.refused])
        return there + left if there > 0 else None  # less than nothing is reserved in a history that does not add up

    def run(self, change: Change, *, limit: int | None = None) -> Outcome:
        """Make all requests up to where memory ran out, and the one that was refused."""
        history, blocks = self._history, self._history.blocks
        conf = ",".join(filter(None, (self.conf, change.conf)))
        gpu = CachingAllocator(self._release, conf, PLENTY if limit is None else limit)
        died, size = (blocks.died, blocks.size) if change.fault is None else self._without(change.fault)
        if change.scale != 1.0:
            size = np.where(self._scales, np.maximum((size * change.scale).astype(np.int64), 1), size)
        lives = Lives(size, history.lives.begins, died + 1, history.lives.moments)
        tape = lives.requests(history.length if history.refused is None else history.refused)
        tape.streams = self._streams
        fits: bool | None = None
        try:
            tape.replay(gpu, tape.numbers("central"))
            if history.refused is not None:
                gpu.malloc(max(int(history.size[history.refused] * change.scale), 1))
                fits = True
        except OutOfMemory:
            fits = False
        counters = gpu.counters()
        return Outcome(change, fits, counters.reserved_peak, counters.allocated_peak)

    def _without(self, fault: Fault) -> tuple[Numbers, Numbers]:
        """Deaths and sizes where a fault is mended."""
        history, blocks = self._history, self._history.blocks
        died, size = blocks.died.copy(), blocks.size.copy()
        if fault.blocks is None:
            return died, size
        if fault.shrinks != 1.0:
            size[fault.blocks] = (size[fault.blocks] * fault.shrinks).astype(np.int64)
            return died, size
        ends = np.append(history.rounds, history.length)
        # Each is given back when the next round begins, or the step ends.
        steps = np.append(history.steps, history.length)
        next_one = np.minimum(
            ends[np.searchsorted(ends, blocks.born[fault.blocks], "right").clip(0, len(ends) - 1)],
            steps[np.searchsorted(steps, blocks.born[fault.blocks], "right").clip(0, len(steps) - 1)],
        )
        died[fault.blocks] = np.minimum(died[fault.blocks], np.maximum(next_one, blocks.born[fault.blocks] + 1))
        return died, size


def settings_of(snapshot: Snapshot) -> list[str]:
    """Return the allocator's settings: the text of the variable, and what the program set besides."""
    said = snapshot.settings
    texts = (said.get(key) for key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    text = next((text for text in texts if isinstance(text, str) and text), "")
    # A comma within brackets parts no settings.
    found = [part.strip() for part in _COMMA.split(text) if part.strip()]
    split, collects, divisions = (said.get(key) for key in ("max_split_size", "garbage_collection_threshold", "roundup_power2_divisions"))
    beside = {
        "expandable_segments": "True" if said.get("expandable_segments") is True else "",
        "max_split_size_mb": str(split >> 20) if isinstance(split, int) and 0 < split < _UNLIMITED else "",
        "garbage_collection_threshold": str(collects) if isinstance(collects, float) and collects > 0 else "",
    }
    if isinstance(divisions, dict) and all(str(size).isdecimal() and isinstance(count, int) for size, count in divisions.items()):
        parts = [f"{size}:{divisions[size]}" for size in sorted(divisions, key=int)]
        beside["roundup_power2_divisions"] = f"[{','.join(parts)}]" if any(divisions.values()) else ""
    return found + [f"{name}:{value}" for name, value in beside.items() if value and name not in text]


def _conf_of(history: History, release: str) -> tuple[str, str]:
    """Return the allocator's settings, and those that this release does not take."""
    taken, refused = [], []
    for setting in settings_of(history.snapshot):
        try:
            CachingAllocator(release, setting, PLENTY)
        except UsageError:
            refused.append(setting)
        else:
            taken.append(setting)
    return ",".join(taken), one_line(",".join(refused))[:_LONGEST]


def try_changes(history: History, faults: list[Fault], release: str) -> tuple[Outcome | None, list[Outcome], str]:
    """Return the requests as they were, and with each change; the most saved first. Or why nothing was asked again; or what was left
    out.
    """
    replays = Replays(history, release)
    if replays.why_not:
        return None, [], f"no changes were tried: {replays.why_not}"
    limit = replays.limit
    as_is = replays.run(Change("as it was", ""))
    if limit is not None and replays.run(Change("as it was", ""), limit=limit).fits:
        # Not to be told from the run by the allocator alone: nothing is said of what fits.
        limit = None
    as_is = replace(as_is, fits=None if limit is None else False)
    changes = [
        Change(conf, f"PYTORCH_CUDA_ALLOC_CONF={conf}", conf=conf) for conf in _SETTINGS if conf.partition(":")[0] not in replays.conf
    ]
    changes += [Change(f"{fault.kind}: mended", fault.fix, fault=fault) for fault in faults if fault.blocks is not None]
    found = []
    for change in changes:
        made = replays.run(change)
        fits = None if limit is None else replays.run(change, limit=limit).fits
        found.append(replace(made, fits=fits))
    if limit is not None:
        smaller = _batch(replays, limit)
        found += [smaller] if smaller is not None else []
    found.sort(key=lambda one: one.reserved)
    left_out = replays.left_out
    return as_is, found, f"torch {release} does not take {left_out}: changes were tried without that" if left_out else ""


def _batch(replays: Replays, limit: int) -> Outcome | None:
    """Return the largest part of the batch that fits."""
    low, high = 0.0, 1.0
    best: Outcome | None = None
    while high - low > _FINEST:
        middle = (low + high) / 2
        change = Change(f"a batch of {middle:.0%}", "sizes of what is requested in rounds, scaled", scale=middle)
        found = replays.run(change, limit=limit)
        if found.fits:
            low, best = middle, found
        else:
            high = middle
    return best
