"""The counters of the allocator at one moment."""

from __future__ import annotations


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
