"""An audit from its sources to its dataset: what is known is not done again, what is new goes to the engine, what comes back is kept."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from irscope.errors import UsageError
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.engines import Answer, Batch, Engine, make_engine
from irscope.tools.audit.sources import Item, Listing, Place, list_items
from irscope.tools.audit.worker import Found, Setup

_AHEAD: Final = 100_000
"""Models that are listed before they are looked at, so that the time left can be told: some 30 MB."""
_LISTED_AT_ONCE: Final = 2_000
_BATCH_BYTES: Final = 8 << 20
_BATCH_MODELS: Final = 24
_KEY_BYTES: Final = 256 << 20
_KEY_MODELS: Final = 128
_PER_SLOT: Final = 2
"""Batches that wait beside each that runs, so that no process waits for the driver."""
_FLUSH_ROWS: Final = 5_000
_FLUSH_SECONDS: Final = 120.0
_WAIT: Final = 0.5
AGAIN: Final = ("killed", "engine")
"""Reasons that say nothing of the model: the next run looks at it again."""
REASONS: Final = {
    "unreadable": "the file cannot be read as a model",
    "unsupported": "irscope does not read this kind of model, or not like this",
    "contradiction": "the model contradicts an operator; numbers are those of the rest of it",
    "missing data": "a file with its weights is not there; numbers do not need it, and running it does",
    "over budget": "reading it needs more work or memory than a model has any use for",
    "time": "it took more time than one model may",
    "memory": "it took more memory than one model may",
    "crash": "the process that read it ended",
    "killed": "the process that read it was killed from outside, again and again",
    "engine": "the machine that it was given to was lost, again and again",
    "analysis": "a pass failed on it",
    "bug": "an error in irscope",
}
"""Every reason for which a model is not ok."""


@dataclass(slots=True)
class Tally:
    """Result of an audit, or its progress."""

    listed: int = 0
    is_listed: bool = False
    """True where the sources are at their end."""
    analysed: int = 0
    unchanged: int = 0
    """Models that the results had already."""
    copies: int = 0
    """Models with the content of another one."""
    skipped: int = 0
    """Files of other kinds that were passed over."""
    reasons: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    """True where the user ended it early."""
    cpu_seconds: float = 0.0

    @property
    def done(self) -> int:
        """Models that have a row."""
        return self.analysed + self.unchanged + self.copies

    @property
    def failed(self) -> int:
        return sum(self.reasons.values())


@dataclass(slots=True)
class _Audit:
    """One run."""

    items: Iterator[Item]
    listing: Listing
    engine: Engine
    dataset: Dataset
    again: frozenset[str]
    tally: Tally = field(default_factory=Tally)
    listed: deque[Item] = field(default_factory=deque)
    new: deque[tuple[Item, str]] = field(default_factory=deque)
    """Models to analyse, with the digest of their content."""
    waiting: dict[str, list[Item]] = field(default_factory=dict)
    """Models by the content that is being analysed: the first of them is with the engine."""
    keys: dict[Place, str] = field(default_factory=dict)
    """Digests of those that are with the engine."""
    in_flight: int = 0
    flushed: float = field(default_factory=time.monotonic)
    under_way: set[Place] = field(default_factory=set)
    """Places of models that are between listing and row: two sources may name one."""

    def list_some(self) -> None:
        """Take the next models from the sources."""
        for _ in range(_LISTED_AT_ONCE):
            if self.tally.is_listed or len(self.listed) >= _AHEAD:
                return
            item = next(self.items, None)
            if item is None:
                self.tally.is_listed = True
                self.tally.skipped = self.listing.skipped
                return
            self.tally.listed += 1
            self.listed.append(item)

    def give_out(self) -> None:
        """Keep the engine busy: models to analyse first, then such of which the content is to be known."""
        while self.in_flight < self.engine.slots * _PER_SLOT:
            batch = self._next_batch()
            if batch is None:
                return
            self.in_flight += 1
            self.engine.submit(batch)

    def _next_batch(self) -> Batch | None:
        if self.new:
            items: list[Item] = []
            size = 0
            while self.new and len(items) < _BATCH_MODELS and (not items or size + self.new[0][0].size <= _BATCH_BYTES):
                item, key = self.new.popleft()
                self.keys[item.place] = key
                size += item.size
                items.append(item)
            return Batch("analyse", tuple(items))
        return self._next_keys()

    def _next_keys(self) -> Batch | None:
        items: list[Item] = []
        size = 0
        while self.listed and len(items) < _KEY_MODELS and size < _KEY_BYTES:
            item = self.listed.popleft()
            if item.place in self.under_way or self._is_known(item):
                self.tally.unchanged += 1
                continue
            self.under_way.add(item.place)
            size += item.size
            items.append(item)
        return Batch("key", tuple(items)) if items else None

    def _is_known(self, item: Item) -> bool:
        known = self.dataset.known(item)
        if known is None or not item.stamp or known.stamp != item.stamp:
            return False
        return known.reason not in self.again

    def take(self, batch: Batch, answers: Sequence[Answer]) -> None:
        """Keep what came back."""
        self.in_flight -= 1
        rows: list[tuple[Item, str, Found]] = []
        for item, answer in zip(batch.items, answers, strict=True):
            if isinstance(answer, Found):
                key = self.keys.pop(item.place)
                self.tally.analysed += 1
                self.tally.cpu_seconds += float(answer.model.get("cpu_seconds") or 0)
                rows += ((one, key, answer) for one in (item, *self.waiting.pop(key, [])))
            else:
                rows += self._settled(item, answer or item.identity)
        for item, _, found in rows:
            self.under_way.discard(item.place)
            if found.model.get("status") != "ok":
                self.tally.reasons[str(found.model.get("reason"))] += 1
        self.tally.copies += len(rows) - sum(isinstance(answer, Found) for answer in answers)
        self.dataset.add(rows)

    def _settled(self, item: Item, key: str) -> Iterator[tuple[Item, str, Found]]:
        """A model whose content is known now: it is analysed, waits for another of the same content, or has that one's rows."""
        if key in self.waiting:
            self.waiting[key].append(item)
            return
        found = self.dataset.same_content(key)
        if found is not None and found.model.get("reason") not in self.again:
            yield item, key, found
            return
        self.waiting[key] = []
        self.new.append((item, key))

    @property
    def is_done(self) -> bool:
        return self.tally.is_listed and not (self.listed or self.new or self.in_flight)

    def flush_sometimes(self) -> None:
        now = time.monotonic()
        if now - self.flushed > _FLUSH_SECONDS or self.dataset.waiting() >= _FLUSH_ROWS:
            self.dataset.flush()
            self.flushed = now


def audit(
    sources: Sequence[str],
    folder: Path,
    setup: Setup,
    *,
    engine: str = "local",
    jobs: int = 1,
    address: str = "",
    again: Sequence[str] = (),
    trust: bool = False,
    told: Callable[[Tally, Engine], None] | None = None,
) -> Tally:
    """Analyse every model of the sources into a folder of results. `told` hears how far it is, several times a second.

    KeyboardInterrupt stops giving out models; those under way are waited for, unless it comes again.
    """
    for reason in again:
        if reason not in REASONS:
            raise UsageError(f"--again {reason!r} is not a reason", code="IRS721", hint=f"reasons: {', '.join(REASONS)}")
    listing = Listing(seconds=setup.seconds, trust=trust)
    dataset = Dataset(folder, writable=True)
    try:
        dataset.settle(setup, engine)
        with_engine = make_engine(engine, setup, jobs, address)
        try:
            found = _Audit(list_items(sources, listing), listing, with_engine, dataset, frozenset((*AGAIN, *again)))
            _run(found, told or (lambda tally, engine: None))
            return found.tally
        finally:
            with_engine.close()
    finally:
        dataset.close()


def _run(found: _Audit, told: Callable[[Tally, Engine], None]) -> None:
    while not found.is_done:
        try:
            found.list_some()
            found.give_out()
            for batch, answers in found.engine.completed(_WAIT if found.in_flight else 0):
                found.take(batch, answers)
            found.flush_sometimes()
            told(found.tally, found.engine)
        except KeyboardInterrupt:
            if found.tally.stopped:
                raise
            _drain(found)


def _drain(found: _Audit) -> None:
    """Take no more models; those that the engine has are finished."""
    found.tally.stopped = found.tally.is_listed = True
    found.listed.clear()
    found.new.clear()
