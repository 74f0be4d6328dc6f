"""What Inductor's trees of CUDA graphs (`mode="reduce-overhead"`) ask of the compiled half of torch: storages at given addresses, and
states of a private pool that are restored after graphs were replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from irscope.frontends.simulation.cuda import Device
from irscope.frontends.simulation.machine import Machine, Piece


class PoolState:
    """What lived in a private pool: addresses, sizes and streams, in the order in which it was allocated."""

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
        """The pool as it was: what is there besides is given back, what was there is allocated again."""
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
    """A tensor of a storage, as its metadata say."""
    with torch.no_grad():
        made = torch.empty(0, dtype=metadata["dtype"], device=metadata["device"])
        return made.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])
