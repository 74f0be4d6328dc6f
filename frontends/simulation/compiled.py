"""`torch.compile` on the simulated device: Dynamo, AOTAutograd and Inductor run as they are, and what they generate runs with kernels that
do nothing. What the generated code allocates, reuses and frees is asked of the simulated allocator like everything else."""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.machinery
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, Final

import torch

import irscope.frontends
from irscope.files import TemporaryFolder
from irscope.frontends.eager import internals
from irscope.frontends.eager.recorder import GENERATED, around_compilations
from irscope.frontends.simulation.compilations import COMPARED, Breaks, Compilations, Graph, Graphs, events, forget
from irscope.frontends.simulation.cuda import Device
from irscope.frontends.simulation.kernels import Kernels
from irscope.frontends.simulation.machine import Machine, Piece
from irscope.frontends.simulation.storages import Form
from irscope.frontends.simulation.triton_stand_in import Guide, JITFunction, KernelInterface, StandIn, written
from irscope.memory.tape import Ran


class PoolState:
    """Content of a private pool: addresses, sizes and streams, in the order in which it was allocated."""

    def __init__(self, pool: Any, pieces: Sequence[Piece]) -> None:
        self.pool = pool
        self.pieces = [(one.address, one.bytes, one.stream, one.kind, one.label) for one in pieces]


class GraphTrees:
    """The functions of `torch._C` that trees of graphs call, on the simulated device."""

    def __init__(self, machine: Machine, device: Device) -> None:
        self.machine, self.device = machine, device

    def install(self) -> None:
        """Give them to `torch._C`."""
        core: Any = torch._C
        core._cuda_CUDAAllocator_AllocatorState = PoolState
        core._cuda_clearCublasWorkspaces = self.machine.drop_kept
        core._cuda_get_conv_benchmark_empty_cache = lambda: True
        core._cudnn_set_conv_benchmark_empty_cache = lambda on: None
        core._cuda_isHistoryEnabled = lambda: self.machine.history is not None
        core._cuda_checkPoolLiveAllocations = lambda device, handle, addresses: True
        core._has_Standard_Deleter = lambda storage: True
        # Reading what a later run has overwritten is an error on a card; there are no values here.
        core._set_storage_access_error_msg = core._set_storage_data_ptr_access_error_msg = lambda where, message: None
        core._tensors_data_ptrs_at_indices_equal = _same_addresses
        core._construct_CUDA_Tensor_From_Storage_And_Metadata = _tensor_in
        core._free_And_Remove_DeleterFn = self._free
        core._cuda_getCheckpointState = lambda device, handle: PoolState(handle, self._living(handle))
        core._cuda_setCheckpointPoolState = self._restore

    def _free(self, storage: int) -> None:
        """Give memory back whose storage lives on."""
        self.machine.storages.settle()
        piece = self.machine.pieces.get(self.machine.storages.address_of(storage))
        if piece is not None:
            self.machine.free(piece)

    def _living(self, handle: Any) -> list[Piece]:
        self.machine.storages.settle()
        number = self.device.pools.get(handle).number
        pieces = self.machine.pieces.values()
        return [one for one in pieces if one.block is not None and one.block.pool.kind.private == number]

    def _restore(self, device: int, state: PoolState, stale: Iterable[int], living: Iterable[int]) -> None:
        """Restore the pool: free what was not in it, and allocate again what was."""
        machine, pool = self.machine, self.device.pools.get(state.pool)
        wanted = {address for address, *_ in state.pieces}
        there = {one.address: one for one in self._living(state.pool)}
        for address, piece in there.items():
            if address not in wanted:
                machine.free(piece)
        pool.begin()
        for address, size, stream, kind, label in state.pieces:
            if address not in there:
                piece = machine.take(size, kind, label, stream)
                if piece.address != address:
                    # Another place than then: the storages that live on are known by where they were.
                    machine.pieces[address] = piece
        pool.end()


def _same_addresses(tensors: Sequence[Any], addresses: Sequence[int | None], places: Sequence[int]) -> bool:
    for place in places:
        address = addresses[place]
        if address is not None and tensors[place].data_ptr() != address:
            return False
    return True


def _tensor_in(metadata: dict[str, Any], storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor of a storage, as its metadata say."""
    with torch.no_grad():
        made = torch.empty(0, dtype=metadata["dtype"], device=metadata["device"])
        return made.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])


_REGISTERS: Final = 32
"""Registers of a thread of a kernel, which only Triton's compiler knows: as many as leave full occupancy, so that Inductor adds no
candidate with smaller blocks."""
_OWN: Final = tuple(os.path.dirname(os.path.abspath(module.__file__ or "")) for module in (irscope, irscope.frontends))
"""Folders whose functions Dynamo leaves alone: they stand for code that is compiled in torch."""
_TIE: Final = 1.0
"""Milliseconds that every candidate is assumed to take: the first one is chosen."""


class Launcher:
    """A compiled kernel: Inductor calls it, and it does nothing."""

    _is_static = store_cubin = False
    n_regs, n_spills, shared, cache_hash = _REGISTERS, 0, 0, ""

    def __init__(self, config: Any, launched: Callable[[Sequence[Any]], None]) -> None:
        self.config = config
        self._launched = launched

    def __call__(self, *args: Any, stream: Any, **kwargs: Any) -> None:
        self._launched(args)


class Compiler:
    """Makes `torch.compile` work for the simulated device; nothing but names is installed before the program compiles something."""

    def __init__(
        self, kernels: Kernels, device: Device, folder: GeneratedFolder, tuning: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._kernels, self._machine, self._device, self._folder = kernels, kernels.machine, device, folder
        self._tuning = tuning
        """Within this context memory is taken for timing candidates of kernels."""
        self.launches = 0
        """Kernels that were generated, by launches."""
        self.launched: Callable[[Any, bool, Sequence[Any]], None] | None = None
        """Told of each launch: the kernel, whether the program wrote it itself, what it gets."""
        self.graphs: list[Graph] = []
        self.uses: dict[str, Any] = {}
        """Settings of the compiler that decide about memory, as they were when it was last asked."""
        self._graphs = Graphs(self.graphs, self.uses)
        self._breaks = Breaks(self.graphs, self._number_of)
        self.busy = False
        """True while something is being compiled: values that the compiler reads are none of the program's."""
        self._installed = False

    def prepare(self) -> None:
        """Wait for the first compilation; until then only what torch asks for when its modules are imported is answered otherwise."""
        if "triton" not in sys.modules and not _installed_triton():
            KernelInterface.launched = self._own_kernel
            sys.meta_path.insert(0, StandIn(self._device.capability))
        else:
            Guide(self._device.capability, self._own_kernel).install()
        # Modules of torch that were imported before have asked for Triton already.
        internals.forget_triton()
        _with_triton()
        rules: Any = importlib.import_module("torch._dynamo.trace_rules")
        rules.SKIP_DIRS += _OWN
        rules._recompile_re()
        GraphTrees(self._machine, self._device).install()
        around_compilations(self._begin, lambda: setattr(self, "busy", False))

    def close(self) -> None:
        """Remove all that the program compiled from the disk, once it has ended."""
        self._folder.remove()

    def found(self) -> Compilations | None:
        """Return what was compiled; None where nothing was."""
        if not self._installed:
            return None
        return Compilations(list(self.graphs), events(self._breaks.across), _not_compared())

    def wrote(self, file: str) -> bool:
        """Return whether code in a file was generated here."""
        return self._folder.has(file)

    def begin_again(self) -> None:
        """Forget what an earlier program compiled."""
        self.launches = 0
        self.graphs.clear()
        self.uses.clear()
        self._graphs.reasons.clear()
        self._breaks.clear()
        if self._installed:
            forget()
            importlib.import_module("torch._inductor.utils").clear_caches()

    def _number_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        piece = self._machine.piece_under(tensor)
        return None if piece is None else (piece.number, piece.bytes)

    def _own_kernel(self, kernel: Any, given: Sequence[Any]) -> None:
        """Forget the values of tensors that a program's own kernel writes to; the memory that it takes besides is unknown."""
        self._machine.forget(given)
        while type(kernel).__name__ != JITFunction.__name__:  # of the stand-in, or of an installed Triton
            kernel = kernel.fn
        self._kernels.tell_unknown(f"triton::{kernel.__name__}")

    def _launched(self, kernel: Any, custom: bool, args: Sequence[Any]) -> None:
        self.launches += 1
        names = () if custom else getattr(kernel, "arg_names", ())
        read = [one for name, one in zip(names, args, strict=False) if name.startswith("in_ptr")]
        self._machine.forget([one for one in args if not any(one is other for other in read)])
        if not self.busy:
            tensors = {id(one): one for one in args if isinstance(one, torch.Tensor)}
            moved = sum(one.numel() * one.element_size() for one in tensors.values())
            self._machine.queue(Ran(str(kernel.__name__), None, moved, is_generated=True))
        if self.launched is not None:
            self.launched(kernel, custom, args)

    # -- what only a build with CUDA has -----------------------------------------------------------------------------

    def _begin(self) -> None:
        self.busy = True
        try:
            self._install()
        except (AttributeError, ImportError) as error:
            # Dynamo writes the whole traceback besides.
            logging.getLogger("torch._dynamo.metrics_context").setLevel(logging.CRITICAL)
            raise RuntimeError(
                f"the compiler of torch {torch.__version__} differs from that of {COMPARED}, which is known: {error}"
            ) from error

    def _install(self) -> None:
        if self._installed:
            return
        self._installed = True
        self._kernels.register_all()
        core: Any = torch._C
        core._cuda_getCurrentRawStream = lambda index: self._device.current
        core._dynamo.guards._empty_strided_cuda = self._empty_strided
        # What an operator does not take, and a guard that cannot be, is told by the error that Dynamo raises.
        for quiet in ("torch._subclasses.fake_tensor", "torch._guards"):
            logging.getLogger(quiet).setLevel(logging.CRITICAL)
        self._interface()
        self._inductor()

    def _empty_strided(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._machine.empty(Form(tuple(size), tuple(stride), dtype), "empty_strided_cuda")

    def _interface(self) -> None:
        """Replace the functions that Dynamo took from `torch.cuda` when it was imported."""
        interfaces: Any = importlib.import_module("torch._dynamo.device_interface")
        kind = interfaces.CudaInterface
        for name, found in list(vars(kind).items()):
            if isinstance(found, staticmethod) and name != "is_available" and hasattr(torch.cuda, name):
                setattr(kind, name, staticmethod(getattr(torch.cuda, name)))
        cuda: Any = torch.cuda
        kind.Event, kind.Stream, kind.device = cuda.Event, cuda.Stream, cuda.device
        for name, function in (
            ("get_raw_stream", torch._C._cuda_getCurrentRawStream),
            ("exchange_device", cuda._exchange_device),
            ("maybe_exchange_device", cuda._maybe_exchange_device),
        ):
            setattr(kind, name, staticmethod(function))
        interfaces.caching_worker_device_properties.clear()
        interfaces.caching_worker_current_devices.clear()

    # -- Inductor ----------------------------------------------------------------------------------------------------

    def _inductor(self) -> None:
        config: Any = importlib.import_module("torch._inductor.config")
        config.compile_threads = 1
        config.fx_graph_remote_cache = config.autotune_remote_cache = False
        self._graphs.install()
        self._breaks.install()
        utils: Any = importlib.import_module("torch._inductor.utils")
        utils.get_triton_attrs_descriptor_version.cache_clear()
        heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
        dynamo: Any = importlib.import_module("torch._dynamo.utils")
        dynamo.triton = importlib.import_module("triton")

        def compiled(autotuner: Any, choice: Any) -> Any:
            launcher = Launcher(choice, functools.partial(self._launched, autotuner.fn, autotuner.custom_kernel))
            if autotuner.custom_kernel:
                self._own_kernel(autotuner.fn, ())
            kernel = SimpleNamespace(n_regs=_REGISTERS, hash="")
            return SimpleNamespace(config=choice, kernel=kernel, make_launcher=lambda: launcher)

        heuristics.CachingAutotuner._precompile_config = compiled
        choose = heuristics.CachingAutotuner.autotune_to_one_config

        def chosen(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            """Choose as torch does, marked as busy: it puts arguments aside that a kernel overwrites, some of them in the host's memory."""
            before, self.busy = self.busy, True
            try:
                with self._tuning():
                    return choose(autotuner, *args, **kwargs)
            finally:
                self.busy = before

        heuristics.CachingAutotuner.autotune_to_one_config = chosen
        if KernelInterface.launched is not None:
            kernels: Any = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap")
            kernels.identify_accessed_tensors = _accessed
        benchmarking: Any = importlib.import_module("torch._inductor.runtime.benchmarking")

        def benchmark(benchmarker: Any, call: Callable[[], Any], *args: Any, return_mode: str = "min", **kwargs: Any) -> Any:
            """Do as `InductorBenchmarker.benchmark_gpu`, which calls a candidate many times and in between overwrites the L2 cache."""
            with self._tuning():
                call()
                size = torch.cuda.get_device_properties("cuda").L2_cache_size // torch.int.itemsize
                buffer = torch.empty(size, dtype=torch.int, device="cuda")
                call()
                del buffer
            return [_TIE] if return_mode == "all" else _TIE

        benchmarking.InductorBenchmarker.benchmark_gpu = benchmark


def _not_compared() -> str:
    version = str(torch.__version__)
    return "" if version.startswith(f"{COMPARED}.") else version


def _with_triton() -> None:
    """Give Triton to an Inductor that was imported without it, as by a program that compiled for the CPU."""
    hints: Any = sys.modules.get("torch._inductor.runtime.hints")
    if hints is not None and not inspect.isfunction(hints.AttrsDescriptorWrapper):
        _rebind({"AttrsDescriptorWrapper": (hints.AttrsDescriptorWrapper, _attributes)})
    compat: Any = sys.modules.get("torch._inductor.runtime.triton_compat")
    if compat is None or compat.HAS_TRITON:
        return
    # What it gives other modules, and those that derive from that or call it when they are imported.
    for name in ("triton_compat", "triton_helpers", "static_triton_launcher", "triton_heuristics"):
        module = sys.modules.get(f"torch._inductor.runtime.{name}")
        if module is not None:
            before = {name: one for name, one in vars(module).items() if not name.startswith("__")}
            importlib.reload(module)
            _rebind({name: (one, vars(module)[name]) for name, one in before.items() if vars(module)[name] is not one})


def _rebind(names: Mapping[str, tuple[Any, Any]]) -> None:
    """Let modules of Inductor have something else under a name that they imported."""
    for module in [one for name, one in sys.modules.items() if name.startswith("torch._inductor")]:
        for name, (old, new) in names.items():
            if name in vars(module) and vars(module)[name] is old:
                setattr(module, name, new)


def _installed_triton() -> bool:
    """Return whether Triton is installed: a program's own kernels are then those of the real Triton."""
    return any(importlib.machinery.PathFinder.find_spec("triton", [path]) is not None for path in sys.path)


def _accessed(kernel: Any, arguments: dict[str, Any], descriptors: Any) -> Any:
    """Return what a program's own kernel reads and writes, which torch finds by Triton's compiler."""
    kernels: Any = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap")
    dependencies: Any = importlib.import_module("torch._inductor.dependencies")
    box: Any = importlib.import_module("torch._inductor.ir").TensorBox
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    tensors = [name for name, value in arguments.items() if isinstance(value, torch.Tensor | box)]
    into = written(kernel)
    found: Any = torch.utils._ordered_set.OrderedSet
    reads, writes = (found(dependencies.StarDep(name) for name in tensors if which(name)) for which in (bool, into.__contains__))
    return kernels.TensorAccesses(dependencies.ReadWrites(reads, writes, found()), can_fuse_epilogue=False)


def _attributes(divisible_by_16: Any = None, equal_to_1: Any = None, pointer_range_32: Any = None) -> dict[Any, Any]:
    """`AttrsDescriptorWrapper` as torch defines it where Triton is recent."""
    found: dict[Any, Any] = {(place,): [["tt.divisibility", 16]] for place in divisible_by_16 or ()}
    for place in pointer_range_32 or ():
        found.setdefault((place,), []).append(["tt.pointer_range", 32])
    return found


_CACHE: Final = "TORCHINDUCTOR_CACHE_DIR"


class GeneratedFolder:
    """Inductor keeps what it writes in a folder of this process, never in the user's caches: candidates are timed as on a first run."""

    def __init__(self) -> None:
        self._folder: TemporaryFolder | None = None
        self._owner = 0
        atexit.register(self.remove)

    def path(self) -> str:
        """Return the folder, made where there is none."""
        if self._folder is None or self._owner != os.getpid():
            self._folder, self._owner = TemporaryFolder(GENERATED), os.getpid()
        return self._folder.path

    def has(self, file: str) -> bool:
        """Return whether a file lies in it."""
        return self._folder is not None and file.startswith(self._folder.path)

    def remove(self) -> None:
        """Remove it, unless another process made it."""
        if self._folder is not None:
            self._folder.remove()
        self._folder = None

    def install(self) -> None:
        """Tell Inductor, in the modules that asked before too."""
        before = os.environ.get(_CACHE)
        os.environ[_CACHE] = self.path()  # Dynamo makes the folder of this name when it is imported
        try:
            folders: Any = importlib.import_module("torch._inductor.runtime.cache_dir_utils")
        finally:
            os.environ.pop(_CACHE)
            if before is not None:
                os.environ[_CACHE] = before
        original = folders.cache_dir
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("cache_dir") is original:  # None hides a package
                module.cache_dir = self.path  # type: ignore[attr-defined]
