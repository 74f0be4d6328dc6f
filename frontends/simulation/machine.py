"""The simulated device of one process: its allocator, its streams, and what was allocated when and what for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from irscope.devices import Target
from irscope.frontends.eager.pretend import current
from irscope.frontends.simulation.storages import Form, Storages
from irscope.memory.caching import PLENTY, OutOfMemory
from irscope.memory.caching.allocator import PendingFrees
from irscope.memory.caching.blocks import Block, Segment
from irscope.memory.caching.device import Counters
from irscope.memory.tape import COUNTERS, Bytes, Ran, Sent, Tape, TapedAllocator

BASE: Final = 1 << 46
"""Added to the allocator's addresses: nothing is mapped there, so that code which looks at device memory ends at once."""
_EMPTY: Final = 1 << 45
"""Where pieces without bytes get their addresses."""
_BESIDE: Final = 1 << 44
"""The same for memory past the caching allocator."""
_GIB: Final = 1 << 30


FRESH: Final = "fresh"
"""Kind of a tensor that an operator makes of no other one: torch.randn, arange, empty."""
BROUGHT: Final = "brought"
"""The same, where the program does so outside of its modules."""
_CATEGORIES: Final = {"tensor": "activation", FRESH: "activation", BROUGHT: "input"}
UNOWNED: Final = frozenset({"activation", "temporary", *_CATEGORIES})
"""Kinds of memory of which nobody has said yet whose it is."""


class Piece:
    """One allocation, from malloc to free."""

    __slots__ = (
        "address",
        "assumed",
        "beside",
        "block",
        "bytes",
        "first",
        "heir",
        "kind",
        "known",
        "label",
        "number",
        "place",
        "scope",
        "size",
        "stream",
    )

    def __init__(self, number: int, size: int, kind: str, label: str, stream: int) -> None:
        self.number = number
        self.bytes = size
        self.size = 0
        """Of the block."""
        self.kind = kind
        self.label = label
        self.stream = stream
        self.block: Block | None = None
        self.address = 0
        """Address that torch sees; pieces without bytes have one too, by which they are found."""
        self.known: dict[int, torch.Tensor] | None = None
        """Bytes that came from the host, by where they begin."""
        self.assumed = ""
        """By which assumption of what unknown numbers decide these follow; empty where by none."""
        self.beside = 0
        """Bytes of the device that it has past the caching allocator."""
        self.place: Any = None
        self.scope: Any = None
        self.first: Piece | None = None
        """Piece that the storage was made with, where this is its memory after a change of size."""
        self.heir: Piece | None = None
        """The storage's memory today, where this is what it was made with and its size has changed."""


class Machine:
    """One device."""

    def __init__(self, target: Target, pending_frees: PendingFrees = "next_malloc", memory: int | None = None) -> None:
        self.target = target
        self.total = memory or target.device.memory_bytes or 0
        self.gpu = TapedAllocator.of(target, self.total or None, pending_frees, target.device.context_most)
        self.storages = Storages(self.free)
        self.pieces: dict[int, Piece] = {}
        """Those that live, by address."""
        self._empties = _EMPTY
        self._besides = _BESIDE
        self.kept: dict[tuple[int, str], Piece] = {}
        """Workspaces of libraries, by stream and name."""
        self.noted: Callable[[Piece], None] | None = None
        """Told of every allocation."""
        self._program_high = Bytes()
        """Peaks since the program reset them, as far as the allocator's own were reset since."""
        self._interval_high = Bytes()
        """The same since the last interval ended."""
        self._numbers = 0
        self._origins: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        """Modules and lines that asked for memory."""
        self.number_of: Callable[[int], int] = lambda stream: stream
        """The allocator's number of one of torch's streams."""
        self.memory_fraction = 1.0
        """Argument of torch.cuda.set_per_process_memory_fraction."""
        self.stats = Statistics()
        self.history: tuple[int, int] | None = None
        """From which request of the tape on, and of how many entries at most, snapshots tell what the allocator did."""
        self.told_by: Callable[[int], list[dict[str, Any]]] | None = None
        """Tells it, from a request on, with the tape's own addresses."""
        self.beside = self.beside_peak = 0
        """Bytes that the program took from the device past the caching allocator."""
        self.observers: list[Callable[..., None]] = []
        """Told when memory is refused: the device, the request, what is allocated and what the device has left."""
        self.lock = threading.RLock()
        """Held by each kernel: a program may load weights or prefetch in threads of its own."""

    # -- allocating ------------------------------------------------------------------------------------------------

    def take(self, size: int, kind: str, label: str = "", stream: int | None = None) -> Piece:
        """Allocate on the current stream."""
        stream = self.stream if stream is None else stream
        piece = Piece(self._numbers, size, kind, label, stream)
        self._numbers += 1
        self._malloc(piece)
        return piece

    def _malloc(self, piece: Piece) -> None:
        if not piece.bytes:
            self._empties += 1
            piece.address = self._empties
            self.pieces[piece.address] = piece
            return
        self.storages.settle()
        try:
            piece.block = block = self.gpu.malloc(piece.bytes, piece.stream)
        except OutOfMemory:
            said = self.refusal(piece.bytes)
            for one in self.observers:
                one(current.device, piece.bytes, self.gpu.counters().allocated, self.gpu.device_free)
            raise torch.OutOfMemoryError(said) from None
        piece.address = BASE + block.address
        self.pieces[piece.address] = piece
        piece.size = block.size
        self.stats.take(block)
        if self.noted is not None:
            self.noted(piece)
            origin = (piece.scope, piece.place)
            self.gpu.tape.owners[self.gpu.slots[block]] = self._origins.setdefault(origin, origin)

    def take_beside(self, size: int, physical: int, label: str) -> Piece:
        """Allocate past the caching allocator, as much of the device's memory as the driver rounds it up to."""
        self.storages.settle()
        if not self.gpu._device.take_beside(physical):
            raise torch.OutOfMemoryError(self.refusal(physical))
        piece = Piece(self._numbers, size, label, label, self.stream)
        self._numbers += 1
        piece.beside = physical
        piece.address, self._besides = self._besides, self._besides + physical
        self.pieces[piece.address] = piece
        self.beside += physical
        self.beside_peak = max(self.beside_peak, self.beside)
        return piece

    def free(self, piece: Piece) -> None:
        """Give an allocation back, or what took its place."""
        self._free(piece.heir or piece)

    def _free(self, piece: Piece) -> None:
        block, piece.block = piece.block, None
        if self.pieces.get(piece.address) is piece:
            del self.pieces[piece.address]
        if piece.beside:
            self.beside -= piece.beside
            self.gpu._device.take_beside(-piece.beside)
        if block is None:
            return
        self.stats.drop(block)
        self._describe(piece, self.gpu.slots[block])
        self.gpu.free(block)

    def _describe(self, piece: Piece, slot: int) -> None:
        """Record the purpose of a slot of the tape, which may be known only when it ends."""
        tape = self.gpu.tape
        tape.kinds[slot], tape.labels[slot] = _CATEGORIES.get(piece.kind, piece.kind), piece.label

    def tape(self) -> Tape[Any]:
        """Return the requests to the allocator so far."""
        self.storages.settle()
        for piece in self.pieces.values():
            if piece.block is not None:
                self._describe(piece, self.gpu.slots[piece.block])
        return self.gpu.tape

    @property
    def settled_gpu(self) -> TapedAllocator:
        """The allocator once it knows all that has died."""
        self.storages.settle()
        return self.gpu

    def empty(self, form: Form, label: str = "", kind: str = "tensor") -> torch.Tensor:
        """A new tensor."""
        piece = self.take(form.bytes, kind, label)
        return self.storages.make(form, piece.address, piece)

    def piece_of(self, storage: torch.UntypedStorage) -> Piece | None:
        """Return the allocation behind a storage."""
        return self.pieces.get(storage.data_ptr())

    def piece_under(self, tensor: torch.Tensor) -> Piece | None:
        """Return the allocation behind a tensor. Python's object for its storage would count as one more user of it while it lives, and
        autograd adds up in place only what has no other user; so it is not asked for."""
        if not tensor.numel():
            return self.piece_of(tensor.untyped_storage())
        return self.pieces.get(tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size())

    def forget(self, written: Any) -> None:
        """Forget the known values of tensors that a computation overwrites."""
        if isinstance(written, torch.Tensor):
            piece = self.piece_under(written) if written.is_cuda else None
            if piece is not None:
                piece.known = None
        elif isinstance(written, list | tuple):
            for one in written:
                self.forget(one)

    def given(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's values come from the host."""
        piece = self.piece_under(tensor)
        if piece is not None and piece.kind != "temporary" and piece.kind in UNOWNED:
            piece.kind = "input"

    def copied_result(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """Note that a tensor is a copy of a result, as of `logits.float()`, which makes an empty tensor first."""
        piece = self.piece_under(tensor)
        if piece is not None and piece.kind == BROUGHT and (of := self.piece_under(source)) is not None and of.kind == "activation":
            piece.kind = "activation"

    def resize(self, storage: torch.UntypedStorage, size: int) -> None:
        """Resize a storage as `UntypedStorage.resize_` does: new memory, a copy, and the old memory is given back."""
        if size == storage.nbytes():
            return
        self.storages.settle()
        piece = self.piece_of(storage)
        if piece is None:
            raise RuntimeError("the storage does not belong to the simulated device")
        # A piece of its own: the old one was allocated with its own size, and ends with it.
        made = Piece(self._numbers, size, piece.kind, piece.label, self.stream)
        self._numbers += 1
        made.known, made.assumed, made.first = piece.known, piece.assumed, piece.first or piece
        self._malloc(made)
        made.first.heir = made
        self._free(piece)
        self.storages.resize(storage, size, made.address)

    def empty_cache(self) -> None:
        """Do what `torch.cuda.empty_cache` does."""
        self.settled_gpu.empty_cache()

    def snapshot(self, pools: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
        """`torch.cuda.memory._snapshot`: segments and blocks; `pools` has torch's numbers of private pools."""
        return {
            "segments": [self._segment(one, pools.get(one.pool, (0, 0))) for one in self.settled_gpu.segments()],
            "device_traces": [self._trace()],
            "allocator_settings": self.target.snapshot_settings(),
            "external_annotations": [],
        }

    def keep_history(self, most: int | None, *, clear: bool = False) -> None:
        """Begin to tell what the allocator does, or end it with None; what was told before stays unless it is cleared."""
        if most is None:
            self.history = None
        elif self.history is None or clear:
            self.history = self.settled_gpu.tape.cut(), most

    def _trace(self) -> list[dict[str, Any]]:
        if self.history is None or self.told_by is None:
            return []
        begin, most = self.history
        entries = self.told_by(begin)[-most:]
        for one in entries:
            one["addr"] += BASE
        return entries

    def _segment(self, one: Segment, pool: tuple[int, int]) -> dict[str, Any]:
        blocks = [
            {
                "address": BASE + block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": block.state,
                "frames": self._frames(BASE + block.address, block.state),
            }
            for block in one.blocks
        ]
        in_use = [block for block in one.blocks if block.state == "active_allocated"]
        active = sum(block.size for block in one.blocks if block.state != "inactive")
        return {
            "device": current.device,
            "address": BASE + one.address,
            "total_size": one.size,
            "allocated_size": sum(block.size for block in in_use),
            "active_size": active,
            "requested_size": sum(block.requested for block in in_use),
            "stream": one.stream,
            "segment_type": "small" if one.small else "large",
            "segment_pool_id": pool,
            "is_expandable": one.expandable,
            "frames": [],
            "blocks": blocks,
        }

    def _frames(self, address: int, state: str) -> list[dict[str, Any]]:
        piece = self.pieces.get(address)
        if piece is None or piece.place is None or state != "active_allocated":
            return []
        code = piece.place.code
        return [{"name": code.co_name, "filename": code.co_filename, "line": piece.place.number}]

    # -- counters --------------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Return what `torch.cuda.memory_stats()` reports to the program."""
        found = self.settled_gpu.counters()
        for key in COUNTERS:
            found[f"{key}_peak"] = max(found[f"{key}_peak"], self._program_high[key])
        return found

    def reset_peaks(self) -> None:
        """Do what `torch.cuda.reset_peak_memory_stats` does."""
        self._fold()
        self._program_high = Bytes()
        self.stats.reset_peaks()

    def begin_again(self) -> None:
        """Reset peaks, statistics, the limit of the process and the record of the highest reservation."""
        self._fold()
        if self.memory_fraction != 1.0:
            self.memory_fraction = 1.0
            self.gpu.set_memory_fraction(1.0)
        self._program_high = self._interval_high = Bytes()
        self.stats = Statistics()
        self.observers.clear()
        for piece in self.pieces.values():
            if piece.block is not None:
                self.stats.take(piece.block)
        self.gpu.begin_again()

    def end_of_interval(self) -> tuple[Bytes, Bytes]:
        """Peaks since the last call, and where the counters are; the program's own peaks are not touched."""
        self._fold()
        peak, self._interval_high = self._interval_high, Bytes()
        return peak, Bytes.now(self.settled_gpu.counters())

    def _fold(self) -> None:
        """Remember the allocator's peaks, and let them begin anew."""
        high = Bytes.peaks(self.settled_gpu.counters())
        self._program_high, self._interval_high = (Bytes.highest((one, high)) for one in (self._program_high, self._interval_high))
        self.gpu.reset_peaks()

    # -- streams ---------------------------------------------------------------------------------------------------

    @property
    def stream(self) -> int:
        """Return the allocator's number of the current stream."""
        return self.number_of(current.stream)

    def queue(self, what: Ran | Sent) -> None:
        """Note what is queued on the current stream."""
        self.gpu.queued(self.stream, what)

    def await_stream(self) -> None:
        """Let the host wait for the current stream, as it does for every copy that is not asynchronous."""
        self.settled_gpu.synchronize(self.stream)

    def record_stream(self, tensor: torch.Tensor, stream: int) -> None:
        """Do what `Tensor.record_stream` does."""
        self.storages.settle()
        piece = self.piece_under(tensor)
        if piece is not None and piece.block is not None:
            self.gpu.record_stream(piece.block, stream)

    @contextlib.contextmanager
    def without_limit(self) -> Iterator[None]:
        """Give the device room for everything within the context."""
        device = self.gpu._device
        before, device.total = device.total, PLENTY
        try:
            yield
        finally:
            device.total = before

    # -- libraries' workspaces -------------------------------------------------------------------------------------

    def drop_kept(self) -> None:
        """Give back workspaces that libraries keep, as if they had not been asked for yet."""
        for piece in self.kept.values():
            self.free(piece)
        self.kept.clear()

    def multiply(self, buffers: Sequence[Any]) -> None:
        """Allocate the workspaces of a matrix product, once a stream where they are kept."""
        own: list[Piece] = []
        for buffer in buffers:
            key = (self.stream, buffer.label)
            if buffer.kept and key in self.kept:
                continue
            piece = self.take(buffer.size, "workspace", buffer.label)
            if buffer.kept:
                self.kept[key] = piece
            else:
                own.append(piece)
        for piece in own:
            self.free(piece)

    def drop_workspaces(self, pool: int) -> None:
        """Give back those that lie in a private pool."""
        for key, piece in list(self.kept.items()):
            if piece.block is not None and piece.block.pool.kind.private == pool:
                del self.kept[key]
                self.free(piece)

    # -- out of memory ---------------------------------------------------------------------------------------------

    def refusal(self, size: int) -> str:
        """Return the message of torch.OutOfMemoryError."""
        counters = self.settled_gpu.counters()
        limit = self.gpu._device.limit
        allowed = "" if limit is None else f"{_amount(limit)} allowed; "
        return (
            f"CUDA out of memory. Tried to allocate {_amount(size)}. GPU 0 has a total capacity of {_amount(self.total)} of which "
            f"{_amount(self.gpu.device_free)} is free. Including non-PyTorch memory, this process has "
            f"{_amount(self.total - self.gpu.device_free)} memory in use. {allowed}Of the allocated memory "
            f"{_amount(counters.allocated)} is allocated by PyTorch, and "
            f"{_amount(counters.reserved - counters.allocated)} is reserved by PyTorch but unallocated. If reserved but unallocated memory "
            "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
            "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )


def _amount(size: int) -> str:
    """Return an amount as c10's format_size spells it."""
    if size <= 1024:
        return f"{size} bytes"
    if size <= 1 << 20:
        return f"{size / 1024:.2f} KiB"
    if size <= _GIB:
        return f"{size / (1 << 20):.2f} MiB"
    return f"{size / _GIB:.2f} GiB"


# -- the statistics of torch.cuda.memory_stats() -------------------------------------------------------------------------


_KINDS: Final = ("allocation", "segment", "active", "inactive_split")
_BYTES: Final = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")


class Statistics:
    """Counts of the allocator besides its counters: numbers of blocks, and what was allocated and freed over time."""

    def __init__(self) -> None:
        self.given = {True: 0, False: 0}
        """Bytes allocated so far, by whether blocks are from the small pool."""
        self.returned = {True: 0, False: 0}
        self.asked = {True: 0, False: 0}
        self.released = {True: 0, False: 0}
        self.count = {True: 0, False: 0}
        self.count_peak = {True: 0, False: 0}
        self.calls = {True: 0, False: 0}
        self.bytes_peak = {True: 0, False: 0}
        self._before: dict[str, dict[bool, int]] = {key: {True: 0, False: 0} for key in self._sums()}
        """Sums when they were reset."""

    def take(self, block: Block) -> None:
        """Count an allocated block."""
        small = block.pool.kind.small
        self.given[small] += block.size
        self.asked[small] += block.requested
        self.calls[small] += 1
        self.count[small] += 1
        self.count_peak[small] = max(self.count_peak[small], self.count[small])
        self.bytes_peak[small] = max(self.bytes_peak[small], self.given[small] - self.returned[small])

    def drop(self, block: Block) -> None:
        """Count a freed block."""
        small = block.pool.kind.small
        self.returned[small] += block.size
        self.released[small] += block.requested
        self.count[small] -= 1

    def reset_peaks(self) -> None:
        """Reset the peaks."""
        self.count_peak = dict(self.count)
        self.bytes_peak = {small: self.given[small] - self.returned[small] for small in self.given}

    def reset_accumulated(self) -> None:
        """Reset the sums of what was allocated and freed."""
        self._before = {key: dict(value) for key, value in self._sums().items()}

    def _sums(self) -> dict[str, dict[bool, int]]:
        return {"given": self.given, "returned": self.returned, "asked": self.asked, "released": self.released, "calls": self.calls}

    def _since(self, key: str) -> dict[bool, int]:
        return {small: now - self._before[key][small] for small, now in self._sums()[key].items()}

    def nested(self, counters: Any) -> dict[str, Any]:
        """Return statistics as `torch._C._cuda_memoryStats` returns them."""
        current = {"allocated_bytes": "allocated", "reserved_bytes": "reserved", "active_bytes": "active", "requested_bytes": "requested"}
        found: dict[str, Any] = {}
        for name, short in current.items():
            now, peak = counters[short], counters[f"{short}_peak"]
            keys = ("asked", "released") if name == "requested_bytes" else ("given", "returned")
            given, returned = (self._since(key) for key in keys)
            whole, gone = (self._sums()[key] for key in keys)
            found[name] = {"all": _stat(now, peak, sum(given.values()), sum(returned.values()))}
            for small, pool in ((True, "small_pool"), (False, "large_pool")):
                part = whole[small] - gone[small]
                found[name][pool] = _stat(part, self.bytes_peak[small], given[small], returned[small])
        split = counters["inactive_split"]
        found["inactive_split_bytes"] = {pool: _stat(split if pool != "small_pool" else 0, split, 0, 0) for pool in _POOLS}
        for name in _KINDS:
            number = counters["segments"] if name == "segment" else sum(self.count.values())
            peak = max(number, sum(self.count_peak.values()) if name != "segment" else number)
            calls = sum(self.calls.values())
            found[name] = {"all": _stat(number, peak, calls, calls - number)}
            for small, pool in ((True, "small_pool"), (False, "large_pool")):
                found[name][pool] = _stat(
                    self.count[small], self.count_peak[small], self.calls[small], self.calls[small] - self.count[small]
                )
        found["oversize_allocations"] = found["oversize_segments"] = _stat(0, 0, 0, 0)
        found.update(num_alloc_retries=counters["retries"], num_ooms=counters["ooms"], max_split_size=-1, num_sync_all_streams=0)
        found.update(num_device_alloc=counters["segments"], num_device_free=0)
        return found


_POOLS: Final = ("all", "small_pool", "large_pool")


def _stat(current: int, peak: int, allocated: int, freed: int) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
