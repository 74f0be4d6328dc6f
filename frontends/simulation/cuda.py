"""The compiled half of `torch.cuda`, as the simulated device answers it: torch's own Python code runs above it unchanged."""

from __future__ import annotations

import importlib
import os
import secrets
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import torch

from irscope.frontends.eager.pretend import current, device_properties, queue
from irscope.frontends.simulation.machine import Machine, Piece
from irscope.memory.caching.allocator import MemPool
from irscope.memory.caching.device import Event as Moment

_CUDA: Final = 1
"""The number of the device type."""
_AT: Final = 40
"""Bits of a place in a stream, in the handle of an event."""
_ENDLESS: Final = 2**63 - 1
"""Entries of a history that is not bounded, as torch says it."""
_POOL: Final = 32
"""Streams of one priority, handed out in turn."""
_FIRST_HANDLE: Final = 0x5000
NCCL: Final = 2 << 32 | 29 << 16 | 7
"""The version that comes with torch 2.13."""


def device_count() -> int:
    """Return the number of the machine's devices: one for each of its ranks, as torchrun sets it."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class Device:
    """The compiled half of `torch.cuda` for one simulated device."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.marks: Callable[[str], None] = lambda name: None
        """Told of calls that a report shows."""
        self.settled: list[Callable[[], None]] = []
        """Called when the host has waited for the device."""
        self._streams: dict[int, int] = {0: 0}
        """The allocator's numbers of streams by torch's."""
        self._handed = {0: 0, 1: 0}
        machine.number_of = self.number
        self.pools = Pools(self.machine)
        self._metadata = ""

    # -- streams ---------------------------------------------------------------------------------------------------

    def new_stream(self, priority: int) -> int:
        """torch's number of the next stream of a priority: pools of 32."""
        high = 1 if priority < 0 else 0
        index = self._handed[high] % _POOL
        self._handed[high] += 1
        return (index << 5) | (2 if high else 1) << 1 | 1

    def number(self, stream_id: int) -> int:
        """Return the allocator's number of a stream."""
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = len(self._streams)
        return stream

    @property
    def current(self) -> int:
        """torch's number of the current stream."""
        return current.stream

    def _record(self, stream_id: int) -> int:
        moment = self.machine.settled_gpu.record_event(self.number(stream_id))
        return moment.stream << _AT | moment.at

    def _block(self, event: int, stream_id: int) -> None:
        self.machine.settled_gpu.wait(self.number(stream_id), _moment(event))

    def _finished(self, stream_id: int | None, event: int | None) -> bool:
        gpu = self.machine.settled_gpu
        return bool(gpu.finished(gpu.record_event(self.number(stream_id or 0)) if event is None else _moment(event)))

    def _wait(self, stream_id: int | None, event: int | None) -> None:
        self.machine.settled_gpu.synchronize(self.number(stream_id or 0) if event is None else _moment(event))

    def _use(self, address: int, stream_id: int) -> None:
        piece = self.machine.pieces.get(address)
        if piece is not None and piece.block is not None:
            self.machine.settled_gpu.record_stream(piece.block, self.number(stream_id))

    def synchronize(self) -> None:
        """Let the host wait for the device."""
        self.machine.settled_gpu.synchronize()
        for function in self.settled:
            function()

    # -- torch._C --------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Give `torch._C` what a build with CUDA has, and torch's classes of streams and events new bases."""
        queue.record, queue.block, queue.use = self._record, self._block, self._use
        queue.new_stream, queue.finished, queue.wait = self.new_stream, self._finished, self._wait
        core: Any = torch._C
        for name in dir(self):
            if name.startswith("c_"):
                setattr(core, f"_cuda_{name[2:]}", getattr(self, name))
        for name in ("set_sync_debug_mode", "sleep", "ipc_collect", "init", "resetPeakHostMemoryStats", "resetAccumulatedHostMemoryStats"):
            setattr(core, f"_cuda_{name}", lambda *_: None)
        core._cuda_get_sync_debug_mode = lambda: 0
        core._cuda_hostMemoryStats = dict
        core._host_emptyCache = lambda: None
        for name in ("is_enabled", "tuning_is_enabled"):
            setattr(core, f"_cuda_tunableop_{name}", lambda: False)
        core._nccl_version, core._nccl_version_suffix = (lambda: NCCL), (lambda: b"")
        core._CudaStreamBase, core._CudaEventBase = _stream_base(self), _event_base(self)
        streams = importlib.reload(torch.cuda.streams)
        cuda: Any = torch.cuda
        for name in ("Stream", "Event", "ExternalStream"):
            setattr(cuda, name, getattr(streams, name))
        cuda._cudart = SimpleNamespace(
            cudaMemGetInfo=lambda device=0: (self.machine.settled_gpu.device_free, self.machine.total),
            cudaGetErrorString=lambda code: "no error",
            cudaError=SimpleNamespace(success=0),
            cudaProfilerStart=lambda: 0,
            cudaProfilerStop=lambda: 0,
            cudaHostRegister=lambda *_: 0,
            cudaHostUnregister=lambda *_: 0,
        )
        core._cudart = cuda._cudart
        cuda._exchange_device = core._cuda_exchangeDevice
        cuda._maybe_exchange_device = core._cuda_maybeExchangeDevice
        install_generators(self.c_getDeviceCount())
        cuda.device_count = device_count
        cuda.get_device_properties = lambda device=None: self.properties
        cuda.is_bf16_supported = lambda including_emulation=True: self.capability >= (8, 0)
        cuda._is_in_bad_fork = lambda: False  # a process that asked how many devices there are may have been forked, as ranks are
        core._has_cuda = True
        torch.version.cuda = self.machine.target.release.cuda
        torch.cuda.amp.common.amp_definitely_not_available = lambda: False
        self._accelerator(core)
        self.pools.install()

    def _accelerator(self, core: Any) -> None:
        core._get_accelerator = lambda check=None: torch.device("cuda")
        core._accelerator_isAllocatorInitialized = lambda: True
        core._accelerator_emptyCache = self.c_emptyCache
        core._accelerator_emptyHostCache = lambda: None
        core._accelerator_getDeviceStats = self.c_memoryStats
        core._accelerator_resetPeakStats = self.c_resetPeakMemoryStats
        core._accelerator_resetAccumulatedStats = self.c_resetAccumulatedMemoryStats
        core._accelerator_getMemoryInfo = lambda device: (self.machine.settled_gpu.device_free, self.machine.total)
        core._accelerator_synchronizeDevice = lambda device: self.synchronize()
        core._accelerator_getDeviceIndex = lambda: self.c_getDevice()
        core._accelerator_setDeviceIndex = self.c_setDevice
        core._accelerator_exchangeDevice = self.c_exchangeDevice
        core._accelerator_maybeExchangeDevice = self.c_maybeExchangeDevice
        core._accelerator_getStream = lambda device=0: torch.cuda.current_stream()
        core._accelerator_setStream = lambda stream: torch.cuda.set_stream(stream)
        torch.accelerator.device_count = lambda: torch.cuda.device_count()
        torch.accelerator.is_available = lambda: True

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        return self.machine.target.device.capability or (0, 0)

    @property
    def properties(self) -> Any:
        """`torch.cuda.get_device_properties`."""
        return device_properties(self.machine.target.device, self.machine.total)

    def c_getDeviceCount(self) -> int:
        return device_count()

    def c_getDevice(self) -> int:
        return current.device

    def c_setDevice(self, device: int) -> int:
        before, current.device = current.device, device
        self.machine.storages.device = device
        return before

    def c_exchangeDevice(self, device: int) -> int:
        return self.c_setDevice(device) if device >= 0 else current.device

    def c_maybeExchangeDevice(self, device: int) -> int:
        return self.c_exchangeDevice(device)

    def c_getArchFlags(self) -> str:
        return "sm_{}{}".format(*self.capability)

    def c_synchronize(self) -> None:
        self.synchronize()

    def c_canDeviceAccessPeer(self, device: int, peer: int) -> bool:
        return True

    def c_getCurrentStream(self, device: int) -> tuple[int, int, int]:
        return (self.current, current.device, _CUDA)

    def c_getDefaultStream(self, device: int) -> tuple[int, int, int]:
        return (0, current.device, _CUDA)

    def c_setStream(self, stream_id: int, device_index: int, device_type: int) -> None:
        current.stream = stream_id

    # -- memory ----------------------------------------------------------------------------------------------------

    def c_memoryStats(self, device: int) -> dict[str, Any]:
        return self.machine.stats.nested(self.machine.counters())

    def c_resetPeakMemoryStats(self, device: int) -> None:
        self.marks("reset_peak_memory_stats")
        self.machine.reset_peaks()

    def c_resetAccumulatedMemoryStats(self, device: int) -> None:
        self.machine.stats.reset_accumulated()

    def c_emptyCache(self) -> None:
        self.machine.empty_cache()

    def c_setMemoryFraction(self, fraction: float, device: int) -> None:
        self.machine.memory_fraction = fraction
        self.machine.settled_gpu.set_memory_fraction(fraction)

    def c_getMemoryFraction(self, device: int) -> float:
        return self.machine.memory_fraction

    def c_getAllocatorBackend(self) -> str:
        return "native"

    def c_record_memory_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "python",
        max_entries: int = _ENDLESS,
        *rest: Any,
        **more: Any,
    ) -> None:
        """Record the allocator's work from here on, for snapshots. Frames are known without it."""
        self.machine.keep_history(None if enabled in (None, "state") else max_entries, clear=bool(more.get("clear_history")))

    def c_record_memory_history_legacy(
        self, enabled: bool, record_context: bool = True, max_entries: int = 1, *rest: Any, **more: Any
    ) -> None:
        """Do the same as older programs request it: only state where it keeps one entry."""
        self.machine.keep_history(max_entries if enabled and max_entries > 1 else None)

    def c_memorySnapshot(self, pool: Any = None, include_traces: bool = True) -> dict[str, Any]:
        found = self.machine.snapshot(self.pools.handles())
        if pool is not None and tuple(pool[:2]) != (0, 0):
            found["segments"] = [one for one in found["segments"] if one["segment_pool_id"] == tuple(pool[:2])]
        return found

    def c_cudaCachingAllocator_raw_alloc(self, size: int, stream: int) -> int:
        return self.machine.take(size, "tensor", "raw allocation", self.number(stream - _FIRST_HANDLE if stream else 0)).address

    def c_cudaCachingAllocator_raw_delete(self, address: int) -> None:
        self.machine.storages.settle()
        self.machine.free(self.machine.pieces[address])

    def c_cudaCachingAllocator_is_enabled(self) -> bool:
        return True

    def c_getMemoryMetadata(self) -> str:
        return self._metadata

    def c_setMemoryMetadata(self, text: str) -> None:
        self._metadata = text


# -- streams and events ------------------------------------------------------------------------------------------------


def _moment(event: int) -> Moment:
    """Return the moment that `Device._record` put into the pointer that torch keeps as its event."""
    return Moment(event >> _AT, event & (1 << _AT) - 1)


def _stream_base(device: Device) -> type:
    """Return the compiled half of `torch.cuda.Stream`."""
    machine = device.machine

    class StreamBase(torch._C.Stream):
        priority: int

        def __new__(
            cls, priority: int = 0, stream_id: int | None = None, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0
        ) -> Any:
            if stream_id is None:
                stream_id = stream_ptr or device.new_stream(priority)
            made = super().__new__(cls, stream_id=stream_id, device_index=current.device, device_type=_CUDA)
            made.priority = priority
            return made

        @property
        def cuda_stream(self) -> int:
            return 0 if not self.stream_id else _FIRST_HANDLE + self.stream_id

        def query(self) -> bool:
            return bool(machine.settled_gpu.finished(machine.settled_gpu.record_event(device.number(self.stream_id))))

        def synchronize(self) -> None:
            machine.settled_gpu.synchronize(device.number(self.stream_id))

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return (0, -5)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, torch._C.Stream) and other.stream_id == self.stream_id

        def __hash__(self) -> int:
            return hash(self.stream_id)

    return StreamBase


def _event_base(device: Device) -> type:
    """Return the compiled half of `torch.cuda.Event`."""
    machine = device.machine

    class EventBase:
        def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> Any:
            made = super().__new__(cls)
            made.moment, made.at = None, 0.0
            return made

        moment: Moment | None
        at: float
        device = torch.device("cuda", 0)
        cuda_event = 0

        def record(self, stream: Any) -> None:
            self.moment, self.at = machine.settled_gpu.record_event(device.number(stream.stream_id)), time.perf_counter()

        def wait(self, stream: Any) -> None:
            if self.moment is not None:
                machine.settled_gpu.wait(device.number(stream.stream_id), self.moment)

        def query(self) -> bool:
            return self.moment is None or bool(machine.settled_gpu.finished(self.moment))

        def synchronize(self) -> None:
            if self.moment is not None:
                machine.settled_gpu.synchronize(self.moment)

        def elapsed_time(self, end: Any) -> float:
            return float(max(0.0, (end.at - self.at) * 1e3))

    return EventBase


# Random number generators of the simulated device: their states, and no numbers.

_HOST: Final = torch.Generator
_DEFAULT_SEED: Final = 67280421310721
"""As in c10/core/GeneratorImpl.h."""
_STATE: Final = struct.Struct("<qq")
"""Seed and offset, as CUDAGeneratorImpl::get_state lays them out."""


class DeviceGenerator(torch.Generator):
    """A Philox generator: to the dispatcher one of the host, which a kernel never asks for numbers."""

    def __new__(cls, device: torch.device, seed: int = _DEFAULT_SEED) -> Any:
        """Return a generator of a device."""
        return _HOST.__new__(cls)

    def __init__(self, device: torch.device, seed: int = _DEFAULT_SEED) -> None:
        self._device, self._seed, self._offset = device, seed, 0

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    def manual_seed(self, seed: int) -> torch.Generator:
        self._seed, self._offset = int(seed), 0
        return self

    def seed(self) -> int:
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> torch.Tensor:
        return torch.tensor(list(_STATE.pack(_signed_seed(self._seed), self._offset)), dtype=torch.uint8, device="cpu")

    def set_state(self, state: torch.Tensor) -> torch.Generator:  # type: ignore[override, unused-ignore]
        if state.device.type != "cpu" or state.dtype is not torch.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        seed, self._offset = _STATE.unpack(bytes(state.tolist()[: _STATE.size]).ljust(_STATE.size, b"\0"))
        self._seed = seed % (1 << 64)
        return self

    def graphsafe_get_state(self) -> torch.Generator:
        return self

    def graphsafe_set_state(self, state: torch.Generator) -> torch.Generator:
        return self.set_state(state.get_state())

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> torch.Generator:
        self._offset = offset
        return self

    def clone_state(self) -> torch.Generator:
        made: DeviceGenerator = DeviceGenerator(self._device, self._seed)
        return made.set_offset(self._offset)


def _signed_seed(seed: int) -> int:
    return seed - (1 << 64) if seed >= 1 << 63 else seed


class _Kind(type):
    """`torch.Generator` as programs call it: of the host, or of the device."""

    def __call__(cls, device: Any = "cpu") -> Any:
        where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return DeviceGenerator(where) if where.type == "cuda" else _HOST(where)

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, _HOST)


def install_generators(devices: int) -> None:
    """Install the generators of the simulated devices."""
    package: Any = torch
    package.Generator = _Kind("Generator", (), {})
    package.cuda.default_generators = tuple(DeviceGenerator(torch.device("cuda", number)) for number in range(devices))


# Private pools of memory and CUDA graphs: what `torch.cuda.MemPool` and `torch.cuda.CUDAGraph` ask of their compiled halves.

Handle: TypeAlias = tuple[int, int]
"""As torch numbers pools: (0, n) those that a program asks for, (n, 0) those of graphs that were not given one."""
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
        """Return the pool of a number, made where there is none."""
        cached = self.known.get(handle)
        if cached is None:
            cached = self.known[handle] = self.machine.settled_gpu.pool(**options)
        return cached

    def drop(self, handle: Handle, *, empty: bool) -> None:
        """Drop a user of a pool; with `empty`, as where a MemPool ends, the last one returns unused memory to the device."""
        cached = self.known.get(handle)
        if cached is not None:
            self.machine.storages.settle()
            if cached.users == 1:
                self.machine.drop_workspaces(cached.number)
            cached.release(empty=empty)
            if not cached.users:
                del self.known[handle]

    def handles(self) -> dict[int, Handle]:
        """torch's numbers by those of the allocator."""
        return {pool.number: handle for handle, pool in self.known.items()}

    def install(self) -> None:
        """Give `torch._C` both classes, and torch's own classes new bases."""
        core: Any = torch._C
        core._CUDAGraph, core._MemPool = _GraphBase, _pool_base(self)
        _GraphBase._device_pools = self
        core._graph_pool_handle = lambda: self.number(by_program=True)
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
    """Return the compiled half of `torch.cuda.MemPool`."""

    class PoolBase:
        def __init__(self, allocator: Any = None, is_user_created: bool = True, use_on_oom: bool = False, no_split: bool = False) -> None:
            self._id = pools.number(by_program=is_user_created)
            self.allocator = allocator
            pools.get(self._id, use_on_oom=use_on_oom, no_split=no_split)

        @property
        def id(self) -> Handle:
            return self._id

        def use_count(self) -> int:
            cached = pools.known.get(self._id)
            return 0 if cached is None else cached.users

        def __del__(self) -> None:
            pools.drop(self._id, empty=True)

    return PoolBase


class _State:
    """State of a graph: torch's class has a `__del__` of its own, which does not call this one's."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.pool: Handle | None = None
        self.retained: list[Handle] = []
        self.generators: list[Piece] = []
        self.captured = False

    def reset(self) -> None:
        while self.generators:
            self._pools.machine.free(self.generators.pop())
        if self.captured and self.pool is not None:
            self.captured = False
            self._pools.drop(self.pool, empty=False)
        while self.retained:
            self._pools.drop(self.retained.pop(), empty=False)

    def __del__(self) -> None:
        self.reset()


class _GraphBase:
    """The compiled half of `torch.cuda.CUDAGraph`."""

    _device_pools: Pools
    """Named as nothing in torch's own class is: that of 2.14 has a function `pools`."""
    _state: _State

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = super().__new__(cls)
        made._state = _State(cls._device_pools)
        return made

    def register_generator_state(self, generator: Any) -> None:
        """Allocate the seed and the offset that each generator has on the device."""
        names = (f"{what} of a generator" for what in ("seed", "offset"))
        self._state.generators += [self._device_pools.machine.take(_SEED, "temporary", name, stream=0) for name in names]

    def capture_begin(self, pool: Handle | None = None, capture_error_mode: str = "global") -> None:
        shared = pool is not None and pool in self._device_pools.known
        handle = self._state.pool = self._device_pools.number(by_program=False) if pool is None else pool
        found = self._device_pools.get(handle)
        if shared:
            found.users += 1
        self._device_pools.capturing = self
        self.register_generator_state(None)
        self._device_pools.machine.storages.settle()
        found.begin({self._device_pools.machine.stream}, capture=True)

    def capture_end_pre(self) -> None:
        self._device_pools.machine.storages.settle()
        self._device_pools.capturing = None
        self._device_pools.known[_GraphBase.pool(self)].end()

    def capture_end_post(self) -> None:
        self._state.captured = True

    def capture_end(self) -> None:
        _GraphBase.capture_end_pre(self)
        _GraphBase.capture_end_post(self)

    @property
    def _has_graph_exec(self) -> bool:
        return self._state.captured

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

    def pools(self) -> list[Handle]:
        return [_GraphBase.pool(self), *self._state.retained]

    def _retain_pool(self, pool: Handle) -> None:
        self._state.retained.append(pool)
        self._device_pools.get(pool).users += 1

    def enable_debug_mode(self) -> None:
        pass

    def debug_dump(self, path: str) -> None:
        pass

    def raw_cuda_graph(self) -> int:
        return id(self)

    raw_cuda_graph_exec = raw_cuda_graph

    @staticmethod
    def get_currently_capturing_graph() -> Any:
        return _GraphBase._device_pools.capturing
