"""The device behind the allocator: how much memory it has, what of it is taken, and how far its streams are."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from irscope.errors import IrscopeError
from irscope.memory.caching.conf import MIB, SEGMENT_GRAIN

BOUNDLESS: Final = 1 << 100
"""Memory of a device on which everything fits: more than any number of tensors that a machine could address take."""
PLENTY: Final = 1 << 44
"""The same for a simulated program: sixteen TiB, below the addresses that its tensors start from."""


class OutOfMemory(IrscopeError):
    """A request that neither the cache nor the device can serve."""

    default_code = "IRS320"


class Device:
    """Memory and addresses. Addresses only grow, as on a device without other users."""

    __slots__ = ("_next_address", "limit", "physical", "reserved", "reserved_peak", "segments", "total")

    def __init__(self, total: int, limit: int | None, others: int = 0) -> None:
        self.total = total
        self.limit = limit
        """Bytes that the allocator may reserve, where a fraction of the device was set."""
        self.reserved = 0
        self.reserved_peak = 0
        self.physical = others
        """Bytes that the driver gave, which rounds up to 2 MiB; at first those of users other than the allocator."""
        self.segments = 0
        self._next_address = SEGMENT_GRAIN

    def within_limit(self, size: int) -> bool:
        """Return whether the limit of this process leaves room for so much more."""
        return self.limit is None or self.reserved + size <= self.limit

    def address_range(self, size: int, alignment: int = SEGMENT_GRAIN) -> int:
        """Addresses that nothing else has or had."""
        address = -(-self._next_address // alignment) * alignment
        self._next_address = address + -(-size // SEGMENT_GRAIN) * SEGMENT_GRAIN
        return address

    def take(self, size: int) -> bool:
        """Take memory, if there is enough."""
        physical = -(-size // SEGMENT_GRAIN) * SEGMENT_GRAIN
        if self.physical + physical > self.total:
            return False
        self.physical += physical
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return True

    def take_beside(self, size: int) -> bool:
        """Take memory that is not the allocator's, if there is enough; a negative size gives it back."""
        if self.physical + size > self.total:
            return False
        self.physical += size
        return True

    def give_back(self, size: int) -> None:
        """Give memory back that was taken in one piece."""
        self.physical -= -(-size // SEGMENT_GRAIN) * SEGMENT_GRAIN
        self.reserved -= size

    def describe(self, size: int, allocated: int) -> str:
        """Return what stands in the way of so much more memory."""
        allowed = self.total if self.limit is None else min(self.limit, self.total)
        held = f"{allocated / MIB:.2f} MiB are allocated and {(self.reserved - allocated) / MIB:.2f} MiB reserved but free"
        return f"{size / MIB:.2f} MiB more do not fit into {allowed / MIB:.2f} MiB of device memory: {held}"


# Streams: what each was given to do, and how much of it is known to be done.


class Event(NamedTuple):
    """A place in the work of a stream: it is done when everything that was queued before it is."""

    stream: int
    at: int


class Streams:
    """The streams of a device, as far as the host can know. Where they are `lazy`, work is done only once the host has waited for it."""

    __slots__ = ("_done", "_issued", "_waits", "lazy")

    def __init__(self, lazy: bool) -> None:
        self.lazy = lazy
        self._issued: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._waits: dict[int, deque[tuple[int, Event]]] = {}
        """Events that each stream waits for before it goes on, with their places."""

    def record(self, stream: int) -> Event:
        """Return an event behind all work of a stream so far."""
        at = self._issued.get(stream, 0) + 1
        self._issued[stream] = at
        if not self.lazy:
            self._done[stream] = at
        return Event(stream, at)

    def done(self, stream: int) -> int:
        """Return how far a stream is."""
        return self._done.get(stream, 0)

    def wait(self, stream: int, event: Event) -> None:
        """Let a stream go on only after an event: who waits for the stream from here on waits for that too."""
        # It has a place whether it matters or not, so that the places of a run are the same at both ends of when work is done.
        at = self.record(stream).at
        if self.lazy and self.done(event.stream) < event.at:
            self._waits.setdefault(stream, deque()).append((at, event))

    def finish(self, event: Event) -> None:
        """Let the host wait until an event is done."""
        found = [event]
        while found:
            stream, at = found.pop()
            if self._done.get(stream, 0) >= at:
                continue
            self._done[stream] = at
            waits = self._waits.get(stream)
            while waits and waits[0][0] <= at:
                found.append(waits.popleft()[1])

    def all(self) -> list[Event]:
        """Return the last place of every stream."""
        return [Event(stream, at) for stream, at in self._issued.items()]


# The counters of the allocator at one moment.


class Counters(dict[str, int]):
    """Counters by name, in a fixed order; each can also be read as an attribute.

    allocated, active and requested are bytes of blocks in use: as blocks, with those that other streams still use, and as asked for.
    reserved is what the device gave, inactive_split the free parts of segments that are partly in use.
    """

    def __getattr__(self, name: str) -> int:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None
