"""What the allocator holds, segment by segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from irscope.memory.caching.blocks import IN_USE, PENDING, UNMAPPED, Block

State = Literal["active_allocated", "active_pending_free", "inactive"]


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block as it stands: in use, freed while another stream still uses it, or free."""

    address: int
    size: int
    requested: int
    state: State


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the device gave in one piece, or a mapped stretch of an expandable segment; its blocks tile it."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[BlockState, ...]
    pool: int = 0
    """The number of the private pool that it belongs to, 0 for none."""


_STATES: dict[int, State] = {IN_USE: "active_allocated", PENDING: "active_pending_free"}


def segments(heads: Iterable[Block], expandable: bool) -> list[Segment]:
    """The segments that begin with the given blocks, by address."""
    found = [_segment(run, expandable) for head in heads for run in _runs(head)]
    return sorted(found, key=lambda segment: segment.address)


def _runs(head: Block) -> Iterator[list[Block]]:
    """The stretches of mapped blocks from a first block on."""
    run: list[Block] = []
    block: Block | None = head
    while block is not None:
        if block.key != UNMAPPED:
            run.append(block)
        elif run:
            yield run
            run = []
        block = block.next
    if run:
        yield run


def _segment(run: list[Block], expandable: bool) -> Segment:
    first, last = run[0], run[-1]
    blocks = tuple(_state(block) for block in run)
    size, kind = last.address + last.size - first.address, first.pool.kind
    return Segment(first.address, size, first.stream, kind.small, expandable, blocks, kind.private)


def _state(block: Block) -> BlockState:
    state = _STATES.get(block.key, "inactive")
    return BlockState(block.address, block.size, 0 if state == "inactive" else block.requested, state)
