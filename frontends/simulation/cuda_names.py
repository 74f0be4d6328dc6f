"""Names that only a build of torch with CUDA has: each is answered, or refused by its name. tests/data/cuda_names.json lists them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import torch

from irscope.frontends.eager import internals
from irscope.frontends.eager.pretend import current

REFUSED: Final = (
    *("_CUDAGreenContext", "_CUDAPluggableAllocator", "_CUuuid", "_FastCudaLauncher", "_StaticCudaLauncher", "_WorkqueueScope"),
    *("_clear_storage_data_ptr_access_error_msg", "_cuda_allocationTraceback", "_cuda_changeCurrentAllocator"),
    *("_cuda_cudaCachingAllocator_enable", "_cuda_cudaHostAllocator", "_cuda_customAllocator", "_cuda_getAllocator"),
    *("_cuda_getCublasLtWorkspaceSize", "_cuda_getCublasWorkspaceSize", "_cuda_getCurrentBlasHandle", "_cuda_getCurrentSolverHandle"),
    *("_cuda_getHipblasltVersion", "_cuda_getStreamFromExternal", "_cuda_jiterator_compile_and_launch_kernel"),
    *("_cuda_record_untuned_enable", "_cuda_resetCublasLtWorkspaceSize", "_cuda_resetCublasWorkspaceSize"),
    *("_cuda_setCublasLtWorkspaceSize", "_cuda_setCublasWorkspaceSize", "_cuda_tunableop_enable", "_cuda_tunableop_get_filename"),
    *("_cuda_tunableop_get_max_tuning_duration", "_cuda_tunableop_get_max_tuning_iterations", "_cuda_tunableop_get_results"),
    *("_cuda_tunableop_get_rotating_buffer_size", "_cuda_tunableop_get_validators", "_cuda_tunableop_read_file"),
    *("_cuda_tunableop_set_filename", "_cuda_tunableop_set_max_tuning_duration", "_cuda_tunableop_set_max_tuning_iterations"),
    *("_cuda_tunableop_set_numerical_check_tolerances", "_cuda_tunableop_set_rotating_buffer_size", "_cuda_tunableop_tuning_enable"),
    *("_nccl_all_gather", "_nccl_all_reduce", "_nccl_broadcast", "_nccl_init_rank", "_nccl_reduce", "_nccl_reduce_scatter"),
    "_nccl_unique_id",
)
"""Of torch._C."""
_OF_GROUPS: Final = (
    *("NCCLXStub", "_dump_nccl_trace", "_dump_nccl_trace_json", "_get_intra_node_comm_usage_counter", "_hash_tensors"),
    *("_nvshmemx_cumodule_init", "_register_external_nccl_comm", "_unregister_external_nccl_comm"),
)
"""Of torch._C._distributed_c10d."""
_OF_NCCL: Final = ("_comm_ptr", "_start_time_estimate", "_end_time_estimate", "_verify_work_timeout", "shrink", "memory_stats")
"""Of a group of NCCL's."""
_QUIET: Final = (
    *("_add_ephemeral_timeout", "_set_default_timeout", "_set_enable_nan_check", "_group_start", "_group_end", "perform_nocolor_split"),
    *("register_mem_pool", "deregister_mem_pool", "eager_connect_single_device", "suspend", "resume", "abort", "shutdown"),
    *("_enable_collectives_timing", "_set_group_uid"),
)
"""Methods of a group that leave no trace in memory."""


def refused(where: str, name: str) -> Callable[..., Any]:
    """Return a function that says, when it is called, that nothing stands for it."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{where}.{name} of a build with CUDA is not simulated")

    return refuse


def complete_core(raw_stream: Callable[[], int], observers: list[Callable[..., None]]) -> None:
    """Give `torch._C` the names that it lacks; what it has stays."""
    core: Any = torch._C
    numbers = [int(part) for part in str(torch.version.cuda).split(".")]
    answered: dict[str, Any] = {
        "_broadcast": _broadcast,
        "_broadcast_out": _copied,
        "_broadcast_coalesced": lambda tensors, devices, size: [list(tensors) for _ in _here(devices)],
        "_scatter": _scatter,
        "_scatter_out": _scatter_out,
        "_gather": _gather,
        "_gather_out": lambda tensors, out, dim: out.copy_(torch.cat(list(tensors), dim)),
        "_cuda_attach_out_of_memory_observer": observers.append,
        "_cuda_getCompiledVersion": lambda: numbers[0] * 1000 + numbers[1] * 10,
        "_cuda_getCurrentRawStream": lambda index: raw_stream(),
        "_cuda_get_cudnn_benchmark_limit": lambda: 10,
        "_cuda_set_cudnn_benchmark_limit": lambda limit: None,
        "_cuda_hasPrimaryContext": lambda device: device == current.device,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_rocm_is_backward_pass": lambda: False,
        "_CudaDeviceProperties": SimpleNamespace,
        "_nvtx": _Ranges(),
        **{name: refused("torch._C", name) for name in REFUSED},
    }
    for name, value in answered.items():
        if not hasattr(core, name):
            setattr(core, name, value)
    internals.enable_types_of_cuda()
    torch.cuda.nvtx._nvtx = core._nvtx  # type: ignore[attr-defined]  # chosen when it was imported
    ranges: Any = torch.autograd.profiler.emit_nvtx
    ranges.__enter__, ranges.__exit__ = (lambda one: one), (lambda one, *raised: None)
    plans: Any = torch.backends.cuda.cuFFTPlanCache
    plans.size, plans.max_size, plans.clear = 0, 4096, lambda one: None  # CuFFTPlanCache.h


class _Ranges:
    """Take ranges of NVTX, which nobody records."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: 0


def _here(devices: Sequence[Any]) -> list[torch.device]:
    """Return the devices where they are the one that is simulated; one process simulates one."""
    found = [torch.device("cuda", device) if isinstance(device, int) else torch.device(device) for device in devices]
    for one in found:
        if one.type == "cuda" and one.index not in (None, current.device):
            where = f"one process simulates one device, here cuda:{current.device}, and the program puts tensors on {one}"
            raise NotImplementedError(f"{where}: nn.DataParallel sees one without --world, or is given device_ids=[{current.device}]")
    return found


def _broadcast(tensor: torch.Tensor, devices: Sequence[Any]) -> list[torch.Tensor]:
    return [tensor.to(device) for device in _here(devices)]


def _copied(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.copy_(tensor) for one in out]


def _scatter(
    tensor: torch.Tensor, devices: Sequence[Any], sizes: Sequence[int] | None, dim: int, streams: Any = None
) -> list[torch.Tensor]:
    """Do as comm.cpp: a piece for each device, copied on the stream that is given for it."""
    where = _here(devices)
    pieces = tensor.split(list(sizes), dim) if sizes else tensor.chunk(len(where), dim)
    made = []
    for number, (piece, device) in enumerate(zip(pieces, where, strict=False)):
        with torch.cuda.stream(streams[number] if streams else None):
            made.append(piece.to(device, non_blocking=True))
    return made


def _scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any = None) -> list[torch.Tensor]:
    pieces = tensor.split([tensor.size(dim) for tensor in out], dim)
    return [tensor.copy_(piece, non_blocking=True) for tensor, piece in zip(out, pieces, strict=True)]


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None) -> torch.Tensor:
    found = torch.cat(list(tensors), dim)
    if destination == -1:
        return found.cpu()
    return found if destination is None else found.to(_here([destination])[0])


# -- groups of processes ---------------------------------------------------------------------------------------------------


def complete_groups(version: tuple[int, int, int]) -> None:
    """Give the stand-in for NCCL's groups their whole surface, and `torch._C._distributed_c10d` what it lacks."""
    core: Any = torch._C._distributed_c10d
    fake: Any = core.FakeProcessGroup
    fake.supports_coalescing, fake.supports_splitting = True, False
    fake.name = fake._get_backend_name = lambda group: "nccl"
    fake._set_sequence_number_for_group = lambda group: None
    fake._get_sequence_number_for_group = fake.comm_split_count = lambda group: 0
    fake._is_initialized = lambda group: True
    fake.get_error = lambda group: core.ErrorType.SUCCESS
    fake.uid = property(lambda group: "0")
    fake.bound_device_id = property(lambda group: None, lambda group, device: None)
    fake.mem_allocator = property(refused("ProcessGroupNCCL", "mem_allocator"))
    fake.get_build_nccl_version = fake.get_runtime_nccl_version = staticmethod(lambda: version)
    for place, policy in enumerate(("DEFAULT", "EFFICIENCY", "ZERO")):
        setattr(fake, f"NCCL_CTA_POLICY_{policy}", place)
    for name in _QUIET:
        setattr(fake, name, lambda group, *args, **kwargs: None)
    for name in _OF_NCCL:
        setattr(fake, name, refused("ProcessGroupNCCL", name))
    answered: dict[str, Any] = {
        "_DEFAULT_PG_NCCL_TIMEOUT": datetime.timedelta(minutes=10),
        "_is_nvshmem_available": lambda: False,
        "_reset_fr_recording_nccl": lambda: None,
        **{name: refused("torch._C._distributed_c10d", name) for name in _OF_GROUPS},
    }
    for name, value in answered.items():
        if not hasattr(core, name):
            setattr(core, name, value)
