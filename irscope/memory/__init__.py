"""Memory: simulators of the allocators that hand out device memory, and plans for an arena of one's own.

`CachingAllocator` is PyTorch's for CUDA, `BfcArena` ONNX Runtime's; `plan_offsets` lays buffers out in one arena. A `Tape` is a sequence of
requests that any allocator of PyTorch's can be asked: sizes, streams, pools, what for and whose, in `Span`s with peaks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from irscope.memory.arena import BfcArena
from irscope.memory.caching import CachingAllocator, MemPool, OutOfMemory
from irscope.memory.tape import Span, Spread, Tape

__all__ = ["BfcArena", "CachingAllocator", "MemPool", "OutOfMemory", "Span", "Spread", "Tape", "plan_offsets"]


def plan_offsets(
    lower: Sequence[int], upper: Sequence[int], size: Sequence[int], alignment: int = 1, seconds: float = 10
) -> tuple[list[int], int]:
    """Return offsets for buffers alive from `lower` up to, not including, `upper`, and the height of the arena.

    Two buffers that are alive together never overlap. It stops as soon as the arena is as low as can be, and
    after about `seconds` of CPU time of this thread: on a busy machine it takes longer and finds the same.
    """
    # numpy is only needed here: simulating an allocator does without.
    from irscope.solvers.place import make_plan

    plan = make_plan(lower, upper, size, alignment, seconds)
    return plan.offsets, plan.height
