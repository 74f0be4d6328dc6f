"""Private pools of memory and CUDA graphs: what `torch.cuda.MemPool` and `torch.cuda.CUDAGraph` ask of their compiled halves."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from irscope.memory.caching.allocator import MemPool

if TYPE_CHECKING:
    from irscope.frontends.simulation.machine import Machine, Piece

Handle: TypeAlias = tuple[int, int]
"""As torch numbers pools: (0, n) those that a program makes, (n, 0) those of graphs."""
_SEED = 8
"""Bytes of a generator's seed, and of its offset, that a graph reads from the device."""


class Pools:
    """Pools of the simulated allocator by torch's numbers."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[Handle, MemPool] = {}
        self._numbers = {True: 0, False: 0}
        self.capturing: Any = None
        """The graph that is being captured."""

    def number(self, *, by_program: bool) -> Handle:
        """A new number."""
        self._numbers[by_program] += 1
        now = self._numbers[by_program]
        return (0, now) if by_program else (now, 0)

    def get(self, handle: Handle, **options: Any) -> MemPool:
        """The pool of a number, made where there is none."""
        found = self.known.get(handle)
        if found is None:
            found = self.known[handle] = self.machine.settled_gpu.pool(**options)
        return found

    def drop(self, handle: Handle) -> None:
        """One user less."""
        found = self.known.get(handle)
        if found is not None:
            self.machine.storages.settle()
            if found.users == 1:
                self.machine.drop_workspaces(found.number)
            found.release()
            if not found.users:
                del self.known[handle]

    def handles(self) -> dict[int, Handle]:
        """torch's numbers by those of the allocator."""
        return {pool.number: handle for handle, pool in self.known.items()}

    def install(self) -> None:
        """Give `torch._C` both classes, and torch's own classes new bases."""
        core: Any = torch._C
        core._CUDAGraph, core._MemPool = _GraphBase, _pool_base(self)
        _GraphBase.pools = self
        core._graph_pool_handle = lambda: self.number(by_program=False)
        core._cuda_beginAllocateToPool = lambda device, handle: self._begin(handle)
        core._cuda_beginAllocateCurrentThreadToPool = core._cuda_beginAllocateCurrentStreamToPool = core._cuda_beginAllocateToPool
        core._cuda_endAllocateToPool = lambda device, handle: self._end(handle)
        core._cuda_releasePool = lambda device, handle: None
        core._cuda_isCurrentStreamCapturing = lambda: self.capturing is not None
        cuda: Any = torch.cuda
        for module in (torch.cuda.memory, torch.cuda.graphs):
            made = importlib.reload(module)
            for name in ("MemPool", "use_mem_pool", "CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"):
                if name in vars(made):
                    setattr(cuda, name, getattr(made, name))
            if hasattr(made, "make_graphed_callables"):
                cuda.make_graphed_callables = made.make_graphed_callables

    def _begin(self, handle: Handle) -> None:
        self.machine.storages.settle()
        self.get(handle).begin()

    def _end(self, handle: Handle) -> None:
        self.machine.storages.settle()
        self.known[handle].end()


def _pool_base(pools: Pools) -> type:
    """The compiled half of `torch.cuda.MemPool`."""

    class PoolBase:
        def __init__(self, allocator: Any = None, is_user_created: bool = True, use_on_oom: bool = False, no_split: bool = False) -> None:
            self._id = pools.number(by_program=is_user_created)
            self.allocator = allocator
            pools.get(self._id, use_on_oom=use_on_oom, no_split=no_split)

        @property
        def id(self) -> Handle:
            return self._id

        def use_count(self) -> int:
            found = pools.known.get(self._id)
            return 0 if found is None else found.users

        def __del__(self) -> None:
            pools.drop(self._id)

    return PoolBase


class _State:
    """What a graph holds: torch's class has a `__del__` of its own, which does not call this one's."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.pool: Handle | None = None
        self.generators: list[Piece] = []
        self.captured = False

    def reset(self) -> None:
        while self.generators:
            self._pools.machine.free(self.generators.pop())
        if self.captured and self.pool is not None:
            self.captured = False
            self._pools.drop(self.pool)

    def __del__(self) -> None:
        self.reset()


class _GraphBase:
    """The compiled half of `torch.cuda.CUDAGraph`."""

    pools: Pools
    _state: _State

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = super().__new__(cls)
        made._state = _State(cls.pools)
        return made

    def register_generator_state(self, generator: Any) -> None:
        """Each generator has a seed and an offset on the device."""
        self._state.generators += [self.pools.machine.take(_SEED, "temporary", f"{what} of a generator") for what in ("seed", "offset")]

    def capture_begin(self, pool: Handle | None = None, capture_error_mode: str = "global") -> None:
        shared = pool is not None and pool in self.pools.known
        handle = self._state.pool = self.pools.number(by_program=False) if pool is None else pool
        found = self.pools.get(handle)
        if shared:
            found.users += 1
        self.pools.capturing = self
        self.pools.machine.storages.settle()
        found.begin({self.pools.machine.stream}, capture=True)
        self.register_generator_state(None)

    def capture_end(self) -> None:
        self.pools.machine.storages.settle()
        self.pools.capturing = None
        self.pools.known[self.pool()].end()
        self._state.captured = True

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        if not self._state.captured:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")

    def reset(self) -> None:
        self._state.reset()

    def pool(self) -> Handle:
        if self._state.pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._state.pool

    def enable_debug_mode(self) -> None:
        pass

    def debug_dump(self, path: str) -> None:
        pass

    def raw_cuda_graph(self) -> int:
        return id(self)

    raw_cuda_graph_exec = raw_cuda_graph

    @staticmethod
    def get_currently_capturing_graph() -> Any:
        return _GraphBase.pools.capturing
