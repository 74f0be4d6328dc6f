"""Lays two runs of a program side by side: recordings and snapshots, simulated or real."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from irscope.files import is_recording
from irscope.frontends.files.snapshot import Snapshot, is_snapshot, line_of, read_snapshot, rounded
from irscope.immutable import immutable
from irscope.memory.run import heights_of, highest_of
from irscope.memory.tape import COUNTERS, REPORTED
from irscope.recording import COLD, WARM, Recording, peak_of, read_recording, without_workspaces
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.table import Table
from irscope.report.units import bytes_text
from irscope.tools.compare.document import Measure

MEMORY_MEASURES: Final = ("peak", "allocated", "reserved")
"""Measures that --fail-on takes: the highest requested, allocated and reserved."""
_ALL: Final = "highest"
_CONTEXT: Final = 3
"""Requests that are shown before and after the place where two runs part."""
_ANCHOR: Final = 24
"""Requests in a row that are found again where one file begins later than the other."""


@immutable
class Request:
    """Memory that was asked for, or given back."""

    size: int
    what: str = ""
    module: str = ""
    line: str = ""
    category: str = ""


@dataclass
class MemoryRun:
    """A run as its file describes it."""

    path: str
    title: str
    requests: list[Request]
    """Allocations and frees, in order."""
    levels: dict[str, dict[str, int]]
    """Peaks of counters by the name of the part of the run; what there was before it under its own name."""
    before: int = 0
    """Bytes asked for that are there when the requests begin."""
    by_category: dict[str, int] = field(default_factory=dict)
    """At the highest moment of the requests."""

    @functools.cached_property
    def births(self) -> list[tuple[Request, int]]:
        """Return what was asked for, each with what was alive then."""
        alive, births = self.before, []
        for request in self.requests:
            if request.size > 0:
                births.append((request, alive))
            alive += request.size
        return births

    @property
    def highest(self) -> dict[str, int]:
        """Return the peaks of all parts."""
        parts = [level for name, level in self.levels.items() if name != "before"]
        return {key: max(part[key] for part in parts if key in part) for key in COUNTERS if any(key in part for part in parts)}


def is_memory_run(path: Path) -> bool:
    """Return whether a file is a recording or a snapshot."""
    return is_recording(path) or is_snapshot(path)


def read_run(path: Path) -> MemoryRun:
    """Return what a recording or a snapshot tells about memory."""
    made = of_snapshot(read_snapshot(path)) if is_snapshot(path) else of_recording(read_recording(path))
    made.by_category = _categories(made)
    return made


def of_recording(recording: Recording) -> MemoryRun:
    """Return the warm run's requests, and the counters of all runs."""
    header = recording.header
    simulated = bool(header.settings.get("simulated"))
    levels: dict[str, dict[str, int]] = {}
    for name in ("before", COLD, WARM):
        found = recording.counter(name)
        if found is None:
            continue
        parts = {key: getattr(found, key) for key in COUNTERS}
        levels[name] = {key: part.current if name == "before" else part.peak for key, part in parts.items() if part is not None}
    ops = {op.index: op for op in recording.ops}
    events = recording.run(WARM)
    if recording.is_step and header.device.kind == "cpu":
        # What kernels of a processor take for themselves is nothing that a simulated device knows of.
        levels = _without_workspaces(recording, levels)
        events = tuple(without_workspaces(events))
    requests = []
    for event in events:
        op = ops.get(event.op) if event.op is not None else None
        scope = event.scope or (op.scope if op is not None else "")
        requests.append(Request(event.bytes, event.kernel or (op.op if op is not None else ""), scope, "", event.category))
    title = f"{'simulated' if simulated else 'recorded'}: {header.model.name} on {header.device.name}"
    return MemoryRun(recording.path, title, requests, levels, levels.get("before", {}).get("requested", 0))


def _without_workspaces(recording: Recording, levels: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the counters of a processor, which are sums of events, without what kernels took for themselves."""
    before = {"before": levels["before"]["requested"], COLD: levels["before"]["requested"], WARM: sum(one.bytes for one in recording.held)}
    peaks = {run: before[run] + peak_of(without_workspaces(recording.run(run))).bytes for run in levels if run != "before"}
    return {run: {"requested": peaks.get(run, before[run])} for run in levels}


def of_snapshot(snapshot: Snapshot) -> MemoryRun:
    """Return all that was traced; peaks follow from the segments at its end and the way there."""
    held = snapshot.held()
    used = [block for segment in held for block in segment.blocks if block.state != "inactive"]
    requested = sum(block.requested for block in used if block.state == "active_allocated")
    allocated = sum(block.size for block in used if block.state == "active_allocated")
    active = sum(block.size for block in used)
    reserved = sum(segment.size for segment in held)
    columns, rows, requests = snapshot.columns, snapshot.own, list[Request]()
    frames = [snapshot.frames(number) for number in range(len(columns.stacks))]
    asked = [(next((frame.name for frame in stack if frame.name), ""), line_of(stack)) for stack in frames]
    notes: dict[int, tuple[str, str, str]] = {}
    parts = (columns.action, columns.address, columns.size, columns.stack, columns.note)
    for action, address, size, stack, note in zip(*(column[rows].tolist() for column in parts), strict=True):
        if columns.actions[action] == "alloc":
            what, line, said = notes[address] = (*asked[stack], columns.notes[note])
            requests.append(Request(size, what, "", line, said))
        elif columns.actions[action] in ("free_requested", "free"):
            what, line, said = notes.pop(address, ("", "", columns.notes[note]))
            requests.append(Request(-size, what, "", line, said))
    sizes, blocks = columns.size[rows], rounded(columns.size[rows])
    changes = {
        "requested": (sizes, ("alloc",), ("free_requested", "free")),
        "allocated": (blocks, ("alloc",), ("free_requested", "free")),
        "active": (blocks, ("alloc",), ("free_completed",)),
        "reserved": (sizes, ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")),
    }
    curves = {
        key: np.cumsum(np.append(0, size * (snapshot.acts(*more).astype(np.int64) - snapshot.acts(*less))))
        for key, (size, more, less) in changes.items()
    }
    end = {"requested": requested, "allocated": allocated, "active": active, "reserved": reserved}
    levels: dict[str, dict[str, int]] = {_ALL: {key: end[key] + int(curve.max() - curve[-1]) for key, curve in curves.items()}}
    return MemoryRun(snapshot.path, "snapshot", requests, levels, requested - int(curves["requested"][-1]))


def _categories(run: MemoryRun) -> dict[str, int]:
    """Return what is alive at the highest moment of the requests, by category; what was there before them is one of its own."""
    highest = highest_of(heights_of([(request.category, request.size) for request in run.requests]))
    rest = run.before + sum(size for size in highest.values() if size < 0)
    return {"there before": rest} | {name or "unknown": size for name, size in highest.items() if size > 0}


# -- two runs --------------------------------------------------------------------------------------------------------------


@dataclass
class MemoryComparison:
    """Two runs, and where their requests part."""

    a: MemoryRun
    b: MemoryRun
    starts: tuple[int, int] = (0, 0)
    """From which requests on they are laid side by side."""
    same: int = 0
    """Number of requests from there on with the same sizes. Frees are not compared: containers let go in an order of their own."""

    @property
    def sides(self) -> list[list[tuple[Request, int]]]:
        """Return what each asked for, from where they are laid side by side."""
        return [run.births[start:] for run, start in zip((self.a, self.b), self.starts, strict=True)]

    @property
    def parted(self) -> bool:
        """Return whether a request differs, or one run has more of them."""
        return self.same < max(map(len, self.sides))

    @property
    def freed(self) -> int | None:
        """Return the first of the same requests before which one run has given back what the other still holds."""
        a, b = self.sides
        first = a[0][1] - b[0][1] if a and b else 0
        return next((at for at in range(self.same) if a[at][1] - b[at][1] != first), None)

    def measures(self) -> dict[str, Measure]:
        """Return the measures for --fail-on."""
        made = {}
        for name, key in zip(MEMORY_MEASURES, REPORTED, strict=True):
            a, b = self.a.highest.get(key), self.b.highest.get(key)
            if a is None or b is None:
                made[name] = Measure(None, None, "unknown")
            else:
                made[name] = Measure(abs(a - b), abs(a - b) / b if b else None, f"{bytes_text(a)} and {bytes_text(b)}")
        return made

    def document(self) -> Document:
        """Return the tables of the counters, of what the peak is made of, and of where they part."""
        a, b = self.a.highest, self.b.highest
        summary: dict[str, object] = {
            "verdict": "; ".join(_said(key, a[key], b[key]) for key in _decisive(a, b)),
            "A": f"{self.a.path}: {self.a.title}",
            "B": f"{self.b.path}: {self.b.title}",
            "requests": self._requests_text(),
        }
        return Document("", ModelInfo("", ""), (Report("compare", summary=summary, tables=tuple(self._tables())),))

    def _requests_text(self) -> str:
        counts = [len(side) for side in self.sides]
        if not any(counts):
            return "neither has any"
        where = f", from number {max(self.starts) + 1:,} of {'A' if self.starts[0] else 'B'} on" if any(self.starts) else ""
        said = f"the first {self.same:,} are the same{where}; A has {counts[0]:,}, B {counts[1]:,}"
        if not self.parted:
            said = f"all {self.same:,} are the same{where}"
        at = self.freed
        if at is not None:
            a, b = self.sides
            said += f"; before number {at + 1:,} A holds {bytes_text(a[at][1])}, B {bytes_text(b[at][1])}: "
            said += "something is given back at another time"
        return said

    def _tables(self) -> Iterator[Table]:
        names = [name for name in self.a.levels if name in self.b.levels]
        parts = [(name, self.a.levels[name], self.b.levels[name]) for name in names] or [(_ALL, self.a.highest, self.b.highest)]
        rows = [
            (name, key, one[key], other[key], other[key] - one[key], (one[key] - other[key]) / other[key] if other[key] else None)
            for name, one, other in parts
            for key in COUNTERS
            if key in one and key in other
        ]
        columns = ["part", "counter", "A:bytes", "B:bytes", "B beyond A:bytes", "error of A:ratio"]
        yield Table.of(rows, columns, "counters: what there was before, and peaks")
        kinds = list(dict.fromkeys([*self.a.by_category, *self.b.by_category]))
        if kinds and kinds != ["there before"]:
            made = [(kind, one := self.a.by_category.get(kind, 0), other := self.b.by_category.get(kind, 0), other - one) for kind in kinds]
            made.append(("requested, the sum", sum(row[1] for row in made), sum(row[2] for row in made), sum(row[3] for row in made)))
            yield Table.of(made, ["category", "A:bytes", "B:bytes", "B beyond A:bytes"], "what the peak of requested is made of")
        if self.parted:
            yield self._around()
        yield from self._asked()

    def _around(self) -> Table:
        """Return the requests around the first that differs."""
        rows = []
        for number in range(max(self.same - _CONTEXT, 0), self.same + _CONTEXT + 1):
            both = [side[number][0] if number < len(side) else None for side in self.sides]
            sizes = [None if side is None else side.size for side in both]
            if sizes == [None, None]:
                break
            mark = "" if sizes[0] == sizes[1] else "differs"
            rows.append((number + 1, mark, *(part for side in both for part in (_signed(side), _place(side)))))
        return Table.of(rows, ["request:index", "", "A", "asked by A", "B", "asked by B"], "where the requests part")

    def _asked(self) -> Iterator[Table]:
        """Yield, by place in the program, what was requested in all, where the two differ."""
        for title, of in (("line", lambda one: short_line(one.line)), ("module", lambda one: one.module)):
            sums: dict[str, list[int]] = {}
            for at, side in enumerate(self.sides):
                for one, _ in side:
                    row = sums.setdefault(of(one), [0, 0, 0, 0])
                    row[at] += one.size
                    row[2 + at] += 1
            known = [any(row[at] for name, row in sums.items() if name) for at in (0, 1)]
            differ = [(name or "?", row) for name, row in sums.items() if row[0] != row[1] or row[2] != row[3]]
            if all(known) and differ:
                differ.sort(key=lambda pair: -abs(pair[1][1] - pair[1][0]))
                columns = [title, "A:bytes", "B:bytes", "B beyond A:bytes", "requests of A:count", "of B:count"]
                found = [(name, row[0], row[1], row[1] - row[0], row[2], row[3]) for name, row in differ]
                yield Table.of(found, columns, f"bytes requested by {title}, where they differ")


def compare_runs(a: MemoryRun, b: MemoryRun) -> MemoryComparison:
    """Lay the requests of two runs side by side, from where the later file begins."""
    sizes = [[one.size for one, _ in run.births] for run in (a, b)]
    starts = _aligned(*sizes)
    pairs = enumerate(zip(sizes[0][starts[0] :], sizes[1][starts[1] :], strict=False))
    least = min(len(size) - start for size, start in zip(sizes, starts, strict=True))
    return MemoryComparison(a, b, starts, next((at for at, (one, other) in pairs if one != other), least))


def _aligned(a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
    """Return the places at which both begin alike: in the longer one, where the most that follows agrees too, as a recording has the last
    step alone.
    """
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    anchor = list(short[:_ANCHOR])
    if not anchor or list(long[: len(anchor)]) == anchor:
        return 0, 0
    best, most = 0, 0
    for at in range(1, len(long) - len(anchor) + 1):
        if long[at] != anchor[0] or list(long[at : at + len(anchor)]) != anchor:
            continue
        pairs = zip(short, long[at:], strict=False)
        same = next((count for count, (one, other) in enumerate(pairs) if one != other), min(len(short), len(long) - at))
        if same >= most:
            best, most = at, same
    return (0, best) if short is a else (best, 0)


def _decisive(a: Mapping[str, int], b: Mapping[str, int]) -> list[str]:
    """Return what two runs are judged by: a processor has no allocator that reserves and rounds."""
    return [key for key in ("reserved", "allocated") if key in a and key in b] or [key for key in ("requested",) if key in a and key in b]


def _said(key: str, a: int, b: int) -> str:
    if a == b:
        return f"{key} is the same at its peak, {bytes_text(a)}"
    share = f", {abs(a - b) / b:.2%}" if b else ""
    return f"{key}: A has {bytes_text(a)} at its peak, B {bytes_text(b)}: A is {bytes_text(abs(a - b))}{share} {'low' if a < b else 'high'}"


def _signed(request: Request | None) -> str:
    return "nothing" if request is None else ("+" if request.size > 0 else "-") + bytes_text(abs(request.size))


def _place(one: Request | None) -> str:
    return "" if one is None else " ".join(part for part in (one.what, one.module, one.line and f"at {one.line}") if part)


def short_line(line: str) -> str:
    """File and line without the folder, which two machines need not share."""
    return line.replace("\\", "/").rpartition("/")[2]
