"""One rank of a world in one process: collectives have the tensors, the streams and the lifetimes of NCCL's, and send nothing."""

from __future__ import annotations

import copy
import functools
import io
import math
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from irscope.frontends.eager import internals
from irscope.frontends.eager.pretend import current
from irscope.frontends.simulation.cuda import NCCL, Device
from irscope.frontends.simulation.cuda_names import complete_groups
from irscope.frontends.simulation.known import Values
from irscope.frontends.simulation.machine import UNOWNED, Machine
from irscope.frontends.simulation.storages import Form
from irscope.memory.caching.device import Event as Moment
from irscope.memory.tape import Sent

_LARGE: Final = 1 << 20
"""Bytes of an object whose values the device does not keep."""


class Objects:
    """Replaces the collectives of objects that end in bytes nobody sent."""

    def __init__(self, unknown: Callable[[Any], None]) -> None:
        self._unknown = unknown
        """Told where an object is read that only another rank knows."""
        self._large: bytes | None = None
        """The last large object that this rank sent."""

    def install(self) -> None:
        """Put them in place."""
        module: Any = c10d
        package: Any = dist
        for name in ("broadcast_object_list", "scatter_object_list", "gather_object", "recv_object_list"):
            original = getattr(module, name)
            made = functools.wraps(original)(functools.partial(getattr(self, f"_{name}"), original))
            setattr(module, name, made)
            setattr(package, name, made)
        module._object_to_tensor = functools.partial(self._to_tensor, module._object_to_tensor)
        module._tensor_to_object = functools.partial(self._to_object, module._tensor_to_object)

    def _broadcast_object_list(
        self, original: Any, object_list: Any, src: Any = None, group: Any = None, device: Any = None, group_src: Any = None
    ) -> Any:
        """This rank sends in place of the one that does: what it has is what all have, but None is what it is to be told."""
        here = dist.get_rank(group)
        if here < 0:
            return None
        root = group_src if group_src is not None else src or 0
        if group is not None and group_src is None and src is not None:
            root = dist.get_group_rank(group, src)
        if root != here and any(one is None for one in object_list):
            self._unknown(None)
        return original(object_list, None, group, device, here)

    def _scatter_object_list(self, original: Any, output: Any, given: Any = None, *args: Any, **kwargs: Any) -> None:
        """Receive what this rank would send to itself; otherwise only the sender has it."""
        group = kwargs.get("group", args[1] if len(args) > 1 else None)
        here = dist.get_rank(group)
        if here < 0:
            return
        if given is None:
            self._unknown(None)
        output[0] = None if given is None else given[here]

    def _gather_object(self, original: Any, value: Any, gathered: Any = None, *args: Any, **kwargs: Any) -> None:
        """Gather this rank's object from every rank."""
        if gathered is not None and dist.get_rank(kwargs.get("group", args[1] if len(args) > 1 else None)) >= 0:
            gathered[:] = [copy.deepcopy(value) for _ in gathered]

    def _recv_object_list(self, original: Any, object_list: Any, src: Any = None, *args: Any, **kwargs: Any) -> int:
        """Receive an object that is not known, unless the sender is a stage of a pipeline that answers this rank's own."""
        answer = internals.neighbours_message(sys._getframe(1))
        if answer is not None:
            if hasattr(answer, "forward_metas"):
                self._unknown("what an earlier stage of this rank hands on")
            self._receive(answer, src, kwargs["group"], kwargs["device"])
            object_list[0] = answer
        elif any(one is None for one in object_list):
            self._unknown(None)
        sender = kwargs.get("group_src", src)
        return 0 if sender is None else int(sender)

    def _receive(self, answer: Any, src: Any, group: Any, device: Any) -> None:
        """Take the memory, and wait, as a stage does for the object's size and then for the object."""
        module: Any = c10d
        made, _ = module._object_to_tensor(answer, torch.device("cpu"), group)
        for room in (torch.empty(1, dtype=torch.long, device=device), torch.empty(made.numel(), dtype=torch.uint8, device=device)):
            for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, room, src, group)]):
                work.wait()

    def _to_tensor(self, original: Any, value: Any, *args: Any) -> Any:
        made, size = original(value, *args)
        if made.numel() > _LARGE:
            file = io.BytesIO()
            pickler: Any = c10d
            pickler._pickler(file).dump(value)
            self._large = file.getvalue()
        return made, size

    def _to_object(self, original: Any, tensor: Any, size: Any, *args: Any) -> Any:
        if int(size) > _LARGE and self._large is not None and int(size) == len(self._large):
            unpickler: Any = c10d
            return unpickler._unpickler(io.BytesIO(self._large)).load()
        return original(tensor, size, *args)


Kernel = Callable[..., Any]


@dataclass
class Traffic:
    """Calls of one collective in one group."""

    op: str
    group: str
    members: tuple[int, ...]
    calls: int = 0
    bytes: int = 0

    @property
    def ranks(self) -> int:
        """Return the number of ranks in the group."""
        return len(self.members)


@dataclass(frozen=True)
class Look:
    """NCCL's watchdog lets go of works, and of the tensors that they hold."""

    at: int
    """The number of requests before it."""
    held: frozenset[int]
    """The slots of the tensors."""
    is_sure: bool
    """True where it has surely looked, as the host has waited for the device."""


# -- works -----------------------------------------------------------------------------------------------------------------


_core: Any = torch._C._distributed_c10d if dist.is_available() else None
_Finished: Any = getattr(_core, "FakeWork", None)


class Work(dist.Work):
    """An asynchronous collective: it holds its operands until somebody waits for it, and its results as long as it lives."""

    def __init__(self, queue: Queue, outputs: list[torch.Tensor], held: list[torch.Tensor]) -> None:
        super().__init__()
        self.outputs = outputs
        self.held = held
        self.future: torch.futures.Future[Any] | None = None
        self._queue = queue
        self._end = queue.end()

    def wait(self, timeout: Any = None) -> bool:
        self._queue.awaited(self._end)
        self.held = []
        if self.future is None:
            self.outputs = []
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> list[torch.Tensor]:
        return self.outputs

    def get_future(self) -> torch.futures.Future[Any]:
        if self.future is None:
            self.future = self._queue.future(self.outputs)
        return self.future


class Queue:
    """A stream of NCCL's: it waits for the stream that a collective is called on, and who waits for the collective waits for it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stream = device.new_stream(0)
        self.number = device.number(self._stream)
        """The allocator's number of it."""

    def begin(self) -> None:
        """Wait for what the operands come from."""
        gpu, here = self._device.machine.settled_gpu, self._device.machine.stream
        gpu.wait(self.number, gpu.record_event(here))

    def end(self) -> Moment:
        """All that was queued so far."""
        return self._device.machine.settled_gpu.record_event(self.number)

    def awaited(self, end: Moment) -> None:
        """Let the current stream wait."""
        self._device.machine.settled_gpu.wait(self._device.machine.stream, end)

    def future(self, value: Any) -> torch.futures.Future[Any]:
        """A future as NCCL's: whoever waits for it waits for this stream, and what is called then runs on a stream of its own."""
        made: torch.futures.Future[Any] = torch.futures.Future(devices=[torch.device("cuda", current.device)])
        before, current.stream = current.stream, self._stream
        made.set_result(value)
        current.stream = before
        return made


# -- the store ----------------------------------------------------------------------------------------------------------------


_Store: Any = getattr(dist, "Store", object)


class AnsweringStore(_Store):  # type: ignore[misc]
    """A store in which everybody else has been already: nobody waits, and what nobody has set is zeros."""

    _SILENT: Final = bytes(128)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value if isinstance(value, bytes) else str(value).encode()

    def get(self, key: str) -> bytes:
        return self._values.get(key, self._SILENT)

    def add(self, key: str, amount: int) -> int:
        found = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(found).encode()
        return found

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        return None

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def set_timeout(self, timeout: Any) -> None:
        return None


# -- the group of processes ------------------------------------------------------------------------------------------------


class _Config:
    """`ProcessGroupNCCL.Options().config`: what NCCL does with its own memory and threads."""

    _names: set[str]

    def __init__(self, names: set[str]) -> None:
        object.__setattr__(self, "_names", names)

    def __setattr__(self, name: str, value: Any) -> None:
        self._names.add(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> int | None:
        if name.startswith("_"):
            raise AttributeError(name)
        return None if name in _TEXTS else _UNDEFINED


_TEXTS: Final = ("net_name", "comm_name")
_NO_COLOR: Final = -2
"""Of `split_color`, where nothing was set."""
_UNDEFINED: Final = -(1 << 31)
"""NCCL_CONFIG_UNDEF_INT."""


class _Symmetric:
    """Memory that every rank of a group reaches, as `_SymmetricMemory` hands it out. What others hold is taken to be what is held here."""

    def __init__(self, tensor: torch.Tensor, size: int, group: Any, pad: torch.Tensor) -> None:
        self.rank, self.world_size, self.device = group.rank(), group.size(), tensor.device
        self.offset, self.buffer_size, self.signal_pad_size = int(tensor.storage_offset()) * tensor.element_size(), size, pad.numel()
        self._whole = tensor.detach().as_strided((size // tensor.element_size(),), (1,), 0).view(torch.uint8)
        self._pad = pad
        self.buffer_ptrs_dev = self.multicast_ptr = self._whole.data_ptr()
        self.signal_pad_ptrs_dev = pad.data_ptr()
        self.buffer_ptrs, self.signal_pad_ptrs = [self.multicast_ptr] * self.world_size, [pad.data_ptr()] * self.world_size

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        return _part(self._whole, sizes, dtype, storage_offset)

    def get_signal_pad(self, rank: int, sizes: Sequence[int] = (), dtype: torch.dtype | None = None, offset: int = 0) -> torch.Tensor:
        dtype = dtype or torch.uint32
        return _part(self._pad, sizes or (self._pad.numel() // dtype.itemsize,), dtype, offset)

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return _part(self._whole, sizes, dtype, self.offset // dtype.itemsize)

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        pass

    def put_signal(self, rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        pass

    wait_signal = put_signal


def _part(whole: torch.Tensor, sizes: Sequence[int], dtype: torch.dtype, begin: int) -> torch.Tensor:
    end = (begin + math.prod(sizes)) * dtype.itemsize
    if end > whole.numel():
        raise RuntimeError(f"_SymmetricMemory: {end} bytes are asked for of a buffer that has {whole.numel()}")
    return whole[begin * dtype.itemsize : end].view(dtype).view(*sizes)


class _SymmetricMemory:
    """Replaces what torch's class of this name does, by the same names."""

    _GRAIN: Final = 2 << 20
    """What the driver rounds an allocation up to: CU_MEM_ALLOC_GRANULARITY_RECOMMENDED."""
    _ALIGNED: Final = 16
    """What CUDASymmetricMemoryAllocator rounds the buffer up to, before the signals."""
    _KIND: Final = "symmetric memory"
    _MULTICAST: Final = (9, 0)
    """Compute capability from which devices have it."""

    def __init__(self, machine: Machine, count: Callable[[str, Any, Sequence[torch.Tensor]], None]) -> None:
        self._machine, self._count = machine, count
        self._groups: dict[int, str | None] = {}
        """Groups that memory was made for, by the number of its piece."""
        self._lasting: dict[int, torch.Tensor] = {}
        self._handles: weakref.WeakValueDictionary[tuple[int, str], _Symmetric] = weakref.WeakValueDictionary()
        self._pooled = False

    def install(self, core: Any, library: torch.library.Library) -> None:
        """Put it in place, and the operators over it that only a CUDA build has."""
        self._torchs = core._SymmetricMemory
        for name in ("empty_strided_p2p", "rendezvous", "get_mempool_allocator", "is_symm_mem_tensor"):
            setattr(self._torchs, name, staticmethod(getattr(self, name)))
        self._torchs.has_multicast_support = lambda kind, number: torch.cuda.get_device_capability() >= self._MULTICAST
        self._torchs.set_backend, self._torchs.get_backend = lambda name: None, lambda device: "CUDA"
        for name, (op, given) in _OVER_SYMMETRIC.items():
            if hasattr(torch.ops.symm_mem, name):
                library.impl(name, self._kernel(getattr(torch.ops.symm_mem, name).default._schema, op, given), "CUDA")

    def _kernel(self, schema: Any, op: str, given: str) -> Callable[..., torch.Tensor]:
        names = [each.name for each in schema.arguments]
        written = [each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]

        def run(*args: Any, **kwargs: Any) -> torch.Tensor:
            said = {**dict(zip(names, args, strict=False)), **kwargs}
            self._count(op, _group_named(said["group_name"]), [said[given]])
            made: torch.Tensor = said[written[-1]] if written else torch.empty_like(said[given])
            self._machine.forget(made)
            return made

        return run

    def empty_strided_p2p(
        self, size: Any, stride: Any, dtype: torch.dtype, device: Any, group_name: str | None = None, alloc_id: int | None = None
    ) -> torch.Tensor:
        if alloc_id is not None and alloc_id in self._lasting:
            return self._lasting[alloc_id].as_strided(size, stride)
        form = Form(size, stride, dtype)
        needed = -(-form.bytes // self._ALIGNED) * self._ALIGNED + self._torchs.signal_pad_size
        piece = self._machine.take_beside(form.bytes, -(-needed // self._GRAIN) * self._GRAIN, self._KIND)
        self._groups[piece.number] = group_name
        made = self._machine.storages.make(form, piece.address, piece)
        if alloc_id is not None:
            self._lasting[alloc_id] = made
        return made

    def rendezvous(self, tensor: torch.Tensor, group_name: str | None = None) -> _Symmetric | None:
        piece = self._machine.piece_under(tensor)
        if piece is None or not self.is_symm_mem_tensor(tensor):
            return None
        name = str(group_name or self._groups.get(piece.number) or c10d._get_default_group().group_name)
        found = self._handles.get((piece.number, name))
        if found is None:
            pad = Form((self._torchs.signal_pad_size,), (1,), torch.uint8)
            signals = self._machine.take_beside(pad.bytes, 0, self._KIND)
            made = self._machine.storages.make(pad, signals.address, signals)
            found = _Symmetric(tensor, piece.bytes, _group_named(name), made)
            self._handles[piece.number, name] = found
        return found

    def is_symm_mem_tensor(self, tensor: torch.Tensor) -> bool:
        piece = self._machine.piece_under(tensor)
        if piece is None or piece.block is None:
            return piece is not None and piece.kind == self._KIND
        return self._pooled and bool(piece.block.pool.kind.private)

    def get_mempool_allocator(self, device: Any) -> object:
        self._pooled = True
        return object()


def _group_named(name: str) -> Any:
    module: Any = c10d
    return module._resolve_process_group(name)


_OVER_SYMMETRIC: Final = {
    "multimem_all_reduce_": ("all_reduce", "input"),
    "multimem_one_shot_all_reduce": ("all_reduce", "input"),
    "multimem_one_shot_all_reduce_out": ("all_reduce", "input"),
    "one_shot_all_reduce": ("all_reduce", "input"),
    "one_shot_all_reduce_out": ("all_reduce", "input"),
    "one_shot_all_reduce_copy": ("all_reduce", "local_input"),
    "one_shot_all_reduce_copy_out": ("all_reduce", "local_input"),
    "two_shot_all_reduce_": ("all_reduce", "input"),
    "two_shot_all_reduce_out": ("all_reduce", "input"),
    "reduce_scatter_out": ("reduce_scatter", "input"),
    "multimem_all_gather_out": ("all_gather", "out"),
}
"""Operators that ranks run together over such memory, as collectives, and the tensors whose bytes they count by."""


class World:
    """Replaces the compiled process groups of this process."""

    def __init__(self, machine: Machine, device: Device, note_read: Callable[[Any], None]) -> None:
        self._machine, self._device, self._note_read = machine, device, note_read
        self.values = Values(machine)
        self.traffic: dict[tuple[str, str], Traffic] = {}
        self._works: list[Work] = []
        """Those that NCCL's watchdog has not seen finished."""
        self.looks: list[Look] = []
        """When it looked."""
        self._together: list[torch.Tensor] | None = None
        """Operands of collectives that are coalesced; None outside of that."""
        self.not_modelled: set[str] = set()
        """Options of NCCL that the program sets and nothing here is changed by."""
        device.settled.append(self.settled)
        self._libraries: list[Any] = []
        self._sending: Sent | None = None
        """Traffic that was counted and is not in a queue yet."""
        self._together_on: Queue | None = None
        """The stream that they are on."""
        self._queues: dict[tuple[str, int], Queue] = {}
        """NCCL's streams, by group and by the other rank of operations between two."""

    def settled(self) -> None:
        """Note that the host has waited for the device: the watchdog sees that all collectives are done."""
        self._look(sure=True)

    def step_ended(self) -> None:
        """Let the watchdog look, as ten times a second: it sees a step's collectives before the next step's peak, or a step later."""
        self._look(sure=False)

    def _look(self, *, sure: bool) -> None:
        machine = self._machine
        gpu = machine.settled_gpu
        pieces = [machine.piece_under(one) for work in self._works for one in (*work.outputs, *work.held) if one.is_cuda]
        held = frozenset(gpu.slots[piece.block] for piece in pieces if piece is not None and piece.block is not None)
        self.looks.append(Look(len(gpu.tape.events), held, sure))
        self._works.clear()

    def install(self) -> None:
        """Make "nccl" a backend that works for any rank of any world."""
        core: Any = torch._C._distributed_c10d
        fake: Any = core.FakeProcessGroup
        complete_groups((NCCL >> 32, NCCL >> 16 & 0xFFFF, NCCL & 0xFFFF))
        config = _Config(self.not_modelled)

        kind, made_by = internals.fake_groups()

        class Options(kind):  # type: ignore[misc,valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__()
                self.is_high_priority_stream = self.use_pg_for_symm_mem_rendezvous = False
                self.enable_reconfigure = self.lazy_init = False
                self.split_from, self.split_color = None, _NO_COLOR
                self.config = config

            def __deepcopy__(self, seen: Any) -> Options:
                made = Options()
                made.__dict__.update(self.__dict__)
                return made

            def __copy__(self) -> Options:
                return self.__deepcopy__(None)

        class Meta(type):
            def __call__(cls, store: Any, rank: int, size: int, options: Any = None, *device: Any, **kwargs: Any) -> Any:
                return made_by(rank, size, Options())

            def __instancecheck__(cls, one: Any) -> bool:
                return isinstance(one, fake)

            def __getattr__(cls, name: str) -> Any:
                return getattr(fake, name)

        group = Meta("ProcessGroupNCCL", (), {"Options": Options, "NCCLConfig": lambda: _Config(self.not_modelled)})
        core.ProcessGroupNCCL = group
        module: Any = c10d
        module.ProcessGroupNCCL, module._NCCL_AVAILABLE = group, True
        for name in ("ProcessGroupNCCL2", "ProcessGroupNCCLLazy"):  # from 2.15 on, where a build has NCCL
            if hasattr(module, name):
                setattr(module, name, group)
        # Gloo's groups wait for peers on the network too; collectives of host tensors go through the same stand-in.
        module.ProcessGroupGloo, module._GLOO_AVAILABLE = Meta("ProcessGroupGloo", (), {}), True
        package: Any = dist
        package.TCPStore = module.TCPStore = AnsweringStore
        module.rendezvous = self._rendezvous
        package.ProcessGroupNCCL = group
        _install_split()
        from torch.distributed import constants

        module.default_pg_nccl_timeout = constants.default_pg_nccl_timeout or constants.default_pg_timeout
        package.ProcessGroup._start_coalescing = lambda group, device: self._start_together()
        package.ProcessGroup._end_coalescing = lambda group, device: self._end_together(group)
        # DDP's statistics want a timer for CUDA, which only a build with CUDA has.
        core.Logger.set_runtime_stats_and_log = lambda logger: None
        internals.forget_timers_of_cuda()
        Objects(self._note_read).install()
        _operands_looked_at_once()
        library, symmetric = torch.library.Library("c10d", "IMPL"), torch.library.Library("symm_mem", "IMPL")
        self._libraries += [library, symmetric]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that kernels for CUDA are replaced, which a build with CUDA has
            _SymmetricMemory(self._machine, self._count_in).install(core, symmetric)
            for name in dir(self):
                if name.startswith("op_"):
                    library.impl(name[3:], getattr(self, name), "CUDA", allow_override=True)

    def _rendezvous(self, url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
        """Everybody is there at once. What is missing is missed as torch does."""
        # The compiled side keeps no reference to a store in Python.
        self._store = AnsweringStore()
        asked = parse_qs(urlsplit(url).query)
        by_environment = url.startswith("env://")
        numbers = []
        for given, name in ((rank, "rank"), (world_size, "world_size")):
            if given >= 0:
                numbers.append(given)
            elif name in asked:
                numbers.append(int(asked[name][0]))
            elif by_environment:
                numbers.append(int(_variable(name.upper())))
            else:
                raise ValueError(f"Error initializing torch.distributed using {url}: {name} parameter missing")
        for name in ("MASTER_ADDR", "MASTER_PORT") if by_environment else ():
            _variable(name)
        yield self._store, numbers[0], numbers[1]

    # -- collectives -----------------------------------------------------------------------------------------------

    def _count(self, op: str, group: Any, tensors: Sequence[torch.Tensor]) -> None:
        self._count_in(op, dist.ProcessGroup.unbox(group), tensors)

    def _count_in(self, op: str, found: Any, tensors: Sequence[torch.Tensor]) -> None:
        name = found.group_desc or found.group_name
        key = (op, name)
        traffic = self.traffic.get(key)
        if traffic is None:
            traffic = self.traffic[key] = Traffic(op, name, _members(found))
        size = sum(one.numel() * one.element_size() for one in tensors)
        traffic.calls += 1
        traffic.bytes += size
        self._sending = Sent(op, name, traffic.members, size)
        for one in tensors:
            piece = self._machine.piece_under(one)
            if piece is not None and piece.kind in UNOWNED:
                piece.kind = "communication"

    def _send(self, stream: int) -> None:
        """Queue what was counted last."""
        if self._sending is not None:
            self._machine.gpu.queued(stream, self._sending)
            self._sending = None

    def _queue(self, group: Any, peer: int = -1) -> Queue:
        """Return the stream of a group, or of this rank and another one: those between two that are not coalesced have their own."""
        key = (str(group.group_name), peer)
        found = self._queues.get(key)
        if found is None:
            found = self._queues[key] = Queue(self._device)
        return found

    def _start_together(self) -> None:
        self._together, self._together_on = [], None

    def _end_together(self, group: Any) -> Work:
        """One work for all operations since the start. It holds their tensors until somebody waits, or as long as it lives: until 2.11
        the works of a pipeline's lone operations are such too."""
        found, self._together = self._together or [], None
        return Work(self._together_on or self._queue(group), found, [])

    def _done(
        self, group: Any, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], asynchronous: bool, *, brings: bool = False
    ) -> Any:
        """Return the work object of an operation; `brings`: it moved values as they were, and did not compute with those of others."""
        machine = self._machine
        if not brings and dist.ProcessGroup.unbox(group).size() > 1:
            machine.forget(list(outputs))
        if self._together is None and not asynchronous:
            self._send(machine.stream)
            return _Finished().boxed()
        queue = self._queue(dist.ProcessGroup.unbox(group))
        queue.begin()
        self._send(queue.number)
        if self._together is not None:
            self._together += [*inputs, *outputs]
            self._together_on = queue
            return _Finished().boxed()
        made = Work(queue, list(outputs), [*inputs, *outputs])
        self._works.append(made)
        return made.boxed()

    def op_broadcast_(self, tensors: Any, group: Any, root: int, root_tensor: int, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("broadcast", group, tensors)
        for one in tensors:
            self.values.gather(one, [one])
        return tensors, self._done(group, tensors, tensors, async_op, brings=True)

    def op_allreduce_(self, tensors: Any, group: Any, op: Any, sparse: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("all_reduce", group, tensors)
        return tensors, self._done(group, tensors, tensors, async_op)

    def op_allreduce_coalesced_(self, tensors: Any, group: Any, op: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("all_reduce", group, tensors)
        return self._done(group, tensors, tensors, async_op)

    def op_reduce_(self, tensors: Any, group: Any, op: Any, root: int, root_tensor: int, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("reduce", group, tensors)
        return self._done(group, tensors, tensors, async_op)

    def op_allgather_(self, outputs: Any, inputs: Any, group: Any, async_op: bool = True, timeout: int = -1) -> Any:
        flat = [one for several in outputs for one in several]
        self._count("all_gather", group, flat)
        for one, several in zip(inputs, outputs, strict=True):
            self.values.gather(one, several)
            if len({each.shape for each in several}) == 1:
                # Results of one size are gathered into one buffer, and copied from there.
                torch.empty((len(several), *one.shape), dtype=one.dtype, device=one.device)
        return outputs, self._done(group, flat, inputs, async_op, brings=True)

    def op__allgather_base_(self, output: Any, given: Any, group: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("all_gather", group, [output])
        self.values.gather_into(given, output)
        return output, self._done(group, [output], [given], async_op, brings=True)

    def op_allgather_into_tensor_coalesced_(self, outputs: Any, inputs: Any, group: Any, async_op: bool = True) -> Any:
        self._count("all_gather", group, outputs)
        return self._done(group, outputs, inputs, async_op)

    def op_reduce_scatter_(self, outputs: Any, inputs: Any, group: Any, op: Any, async_op: bool = True, timeout: int = -1) -> Any:
        flat = [one for several in inputs for one in several]
        self._count("reduce_scatter", group, flat)
        for several in inputs:
            if len({each.shape for each in several}) == 1:
                torch.empty((len(several), *several[0].shape), dtype=several[0].dtype, device=several[0].device)
        return outputs, self._done(group, outputs, flat, async_op)

    def op__reduce_scatter_base_(self, output: Any, given: Any, group: Any, op: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("reduce_scatter", group, [given])
        return output, self._done(group, [output], [given], async_op)

    def op_reduce_scatter_tensor_coalesced_(
        self, outputs: Any, inputs: Any, group: Any, op: Any, async_op: bool = True, timeout: int = -1
    ) -> Any:
        self._count("reduce_scatter", group, inputs)
        return self._done(group, outputs, inputs, async_op)

    def op_alltoall_base_(self, output: Any, given: Any, group: Any, to: Any, of: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("all_to_all", group, [given])
        return self._done(group, [output], [given], async_op)

    def op_alltoall_(self, outputs: Any, inputs: Any, group: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._count("all_to_all", group, inputs)
        return outputs, self._done(group, outputs, inputs, async_op)

    def op_gather_(self, outputs: Any, inputs: Any, group: Any, root: int, async_op: bool = True, timeout: int = -1) -> Any:
        flat = [one for several in outputs for one in several]
        self._count("gather", group, inputs)
        return self._done(group, flat, inputs, async_op)

    def op_scatter_(self, outputs: Any, inputs: Any, group: Any, root: int, async_op: bool = True, timeout: int = -1) -> Any:
        flat = [one for several in inputs for one in several]
        self._count("scatter", group, outputs)
        return outputs, self._done(group, outputs, flat, async_op)

    def _between_two(self, op: str, tensors: Any, group: Any, peer: int) -> Any:
        """Point-to-point operations do not keep their tensors: the allocator is told that NCCL's stream uses them, and a work on its own
        holds them for as long as it lives."""
        queue = self._queue(dist.ProcessGroup.unbox(group), peer if self._together is None else -1)
        queue.begin()
        for one in tensors:
            self._machine.record_stream(one, queue.number)
        self._count(op, group, tensors)
        self._send(queue.number)
        if self._together is not None:
            self._together += tensors
            self._together_on = queue
            return _Finished().boxed()
        return _core._create_work_from_future(queue.future(list(tensors))).boxed()

    def op_send(self, tensors: Any, group: Any, to: int, tag: int) -> Any:
        return self._between_two("send", tensors, group, to)

    def op_recv_(self, tensors: Any, group: Any, of: int, tag: int) -> Any:
        self._machine.forget(list(tensors))
        return self._between_two("recv", tensors, group, of)

    def op_recv_any_source_(self, tensors: Any, group: Any, tag: int) -> Any:
        return self.op_recv_(tensors, group, -1, tag)

    def op_barrier(self, tensor: Any, group: Any, devices: Any, async_op: bool = True, timeout: int = -1) -> Any:
        self._device.synchronize()
        return self._done(group, [], [], False)


def _operands_looked_at_once() -> None:
    """DTensor finds how the elements of a list are sharded one by one, and looks for each through all operands of the operator: of a model
    with 400 parameters that takes most of the first step of an optimizer. What it looks for is the same for all elements of one call, and
    where it is not there nothing changes."""
    module: Any = sys.modules.get("torch.distributed.tensor._sharding_prop")
    propagate = getattr(module, "_propagate_use_strided_shard_flag", None)
    strided = getattr(module, "_StridedShard", None)
    if propagate is None or strided is None:
        return
    without: list[Any] = [None]
    """The last operands, where none of them has such a placement; kept, so that no others take their identity."""

    def propagate_once(strategy: Any, schema: Any) -> None:
        if schema is without[0]:
            return
        if any(isinstance(one, strided) for spec in schema.args_spec for one in spec.placements):
            propagate(strategy, schema)
        else:
            without[0] = schema

    module._propagate_use_strided_shard_flag = propagate_once


def _install_split() -> None:
    """Let groups be split wherever the function is called from: where a program binds its device, meshes split the default group."""
    original = getattr(c10d, "split_group", None)
    for owner in (dist, c10d, sys.modules.get("torch.distributed.device_mesh")):
        module: Any = owner
        if original is not None and getattr(module, "split_group", None) is original:
            module.split_group = functools.partial(_split_group, original)


def _split_group(
    original: Any,
    parent: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    options: Any = None,
    group_desc: str | None = None,
    **kwargs: Any,
) -> Any:
    """`split_group`: to PyTorch's allocator a communicator that NCCL splits off another one is as a new one."""
    options, parent = kwargs.pop("pg_options", options), kwargs.pop("parent_pg", parent)
    if not split_ranks or getattr(c10d._get_default_group(), "bound_device_id", None) is None:
        return original(parent, split_ranks, timeout, options, group_desc, **kwargs)  # it says what is wrong
    ranks = dist.get_process_group_ranks(c10d._get_default_group() if parent is None else parent)
    for split in split_ranks:
        members = sorted(ranks[one] for one in split)
        if dist.get_rank() in members:
            return dist.new_group(members, timeout, pg_options=options, group_desc=group_desc, use_local_synchronization=True)
    return None


def _variable(name: str) -> str:
    """Return a variable of the environment that `env://` wants."""
    found = os.environ.get(name)
    if found is None:
        where = "Error initializing torch.distributed using env:// rendezvous"
        raise ValueError(f"{where}: environment variable {name} expected, but not set")
    return found


def _members(group: Any) -> tuple[int, ...]:
    """Return the ranks of a group."""
    for known, ranks in c10d._world.pg_group_ranks.items():
        # Groups that this rank is not in are marks without a name.
        if getattr(known, "group_name", None) == group.group_name:
            return tuple(ranks)
    return tuple(range(group.size()))
