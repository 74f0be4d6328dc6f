"""Changes that would have needed less memory: the requests of a snapshot asked again of a simulated allocator, with other settings or
without a fault.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from irscope.errors import UsageError
from irscope.frontends.files.snapshot import Snapshot
from irscope.immutable import immutable
from irscope.memory.caching import PLENTY, CachingAllocator, OutOfMemory
from irscope.memory.caching.conf import LARGE_SEGMENT, segment_size
from irscope.memory.run import Lives
from irscope.report.printable import one_line
from irscope.tools.explain.faults import Fault
from irscope.tools.explain.history import History, Numbers

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
