"""Kernels that are no plans: copies between host and device, values that the program reads, storages that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from irscope.frontends.simulation.kernels import Kernel, resize_tensor

if TYPE_CHECKING:
    from irscope.frontends.simulation.process import Process

_CPU = torch._C.DispatchKey.CPU
_aten = torch.ops.aten


def special_kernels(process: Process) -> dict[str, Kernel]:
    """By name of the operator."""
    return {**_copies(process), **_storages(process)}


def _copies(process: Process) -> dict[str, Kernel]:
    """What moves values, or reads them."""
    machine, values = process.machine, process.world.values

    def copy_(into: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if into.is_cuda and source.is_cuda:
            values.between(into, source)
            return into
        if into.dtype is source.dtype and into.is_contiguous() and source.is_contiguous() and into.shape == source.shape:
            return across(into, source, non_blocking)
        # As copy_requires_temporaries in ATen/native/cuda/Copy.cu: types are converted on the device only where the host does not wait.
        if source.is_cuda == non_blocking:
            whole = into if into.is_contiguous() else torch.empty_like(into, memory_format=torch.contiguous_format)
            given = source.to(into.dtype).expand_as(into).contiguous()
        else:
            same = into.is_contiguous() and into.dtype is source.dtype
            whole = into if same else torch.empty_like(into, dtype=source.dtype, memory_format=torch.contiguous_format)
            given = source.expand_as(into).contiguous()
        across(whole, given, non_blocking)
        if whole is not into:
            into.copy_(whole, non_blocking)
        return into

    def across(into: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        if not non_blocking:
            machine.await_stream()
        if into.is_cuda:
            values.to_device(into, source)
        elif not values.to_host(into, source) and process.watch is not None:
            process.watch.answered(0)
        return into

    def item(tensor: torch.Tensor) -> Any:
        machine.await_stream()
        known = values.item(tensor)
        return process.answer(tensor.dtype) if known is None else known

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        machine.record_stream(tensor, process.device.number(stream.stream_id))

    return {
        "aten::copy_": copy_,
        "aten::_local_scalar_dense": item,
        "aten::record_stream": record_stream,
        "aten::equal": lambda one, other: True,
    }


def _storages(process: Process) -> dict[str, Kernel]:
    """What gives a tensor another storage, or a storage another size."""
    machine, below = process.machine, _aten.set_.source_Storage_storage_offset._op_dk

    def resize_(tensor: torch.Tensor, size: Any, memory_format: Any = None) -> torch.Tensor:
        resize_tensor(machine, tensor, size)
        return tensor

    def set_storage(tensor: torch.Tensor, storage: Any, offset: int, size: Any, stride: Any = ()) -> torch.Tensor:
        found: torch.Tensor = below(_CPU, tensor, storage, offset, size, stride)
        return found

    def set_whole(tensor: torch.Tensor, storage: Any) -> torch.Tensor:
        return set_storage(tensor, storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))

    def set_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return set_storage(tensor, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())

    def set_nothing(tensor: torch.Tensor) -> torch.Tensor:
        return set_tensor(tensor, torch.empty(0, dtype=tensor.dtype, device=tensor.device))

    return {
        "aten::resize_": resize_,
        "aten::set_.source_Storage_storage_offset": set_storage,
        "aten::set_.source_Storage": set_whole,
        "aten::set_.source_Tensor": set_tensor,
        "aten::set_": set_nothing,
    }
