"""Sparse tensors on the simulated device: gradients of embeddings and adjacency matrices, as lists of positions with values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from irscope.frontends.simulation.kernels import Kernel, Kernels, UnknownKernel

_aten = torch.ops.aten
_CPU: Final = torch._C.DispatchKey.SparseCPU
_INDEX: Final = 8
_ALIGNMENT: Final = 256
_MERGE_TILE: Final = 4096
"""Pairs that a block of CUB's merge sort sorts at once."""
_UNIQUE_TILE: Final = 8192
"""Elements that a block of CUB's selection of first ones looks at."""
_AHEAD: Final = 32
"""States of tiles that are never reached."""


def shared_operators() -> list[str]:
    """Operators with one implementation for sparse tensors of both devices, from the list that ships with torch."""
    path = Path(torch.__file__).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    found: list[str] = []
    name = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("- func: "):
            name = line[8:].partition("(")[0]
        elif line.startswith("    ") and {"SparseCPU", "SparseCUDA"} <= set(line.strip().partition(":")[0].split(", ")):
            found.append(name)
    return found


class SparseKernels:
    """Kernels under the dispatch key of sparse tensors on a device."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._library = torch.library.Library("aten", "IMPL")

    def install(self) -> None:
        """Register them for the rest of the process."""
        own: dict[str, Kernel] = {
            "_coalesce": self._coalesced,
            "add.out": self._add,
            "addmm": self._product,
            "bmm": lambda one, other: other.new_empty((*one.shape[:2], other.shape[2])),
            "_to_sparse": self._from_dense,
            "mul.out": self._times,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in (*shared_operators(), *own):
                packet, _, overload = name.partition(".")
                try:
                    op = getattr(getattr(_aten, packet), overload or "default")
                except AttributeError:  # an operator of another version of torch
                    continue
                key = "CUDA" if name == "_to_sparse" else "SparseCUDA"
                self._library.impl(name, own.get(name) or _as_on_host(op), key, allow_override=True)

    def _coalesced(self, given: torch.Tensor) -> torch.Tensor:
        """Positions are sorted, equal ones found, and their values added up (SparseCUDATensor.cu)."""
        indices, values = given._indices(), given._values()
        number = indices.shape[1]
        if not number:
            return _made(indices, values, given.shape, coalesced=True)
        machine = self._kernels.machine
        row = indices.new_empty((number,))
        held = [machine.take(number * _INDEX, "temporary", what) for what in ("offsets", "order")]
        machine.free(machine.take(_merge_sort(number), "temporary", "merge sort"))
        machine.free(machine.take(_unique(number), "temporary", "unique"))
        self._kernels.machine.await_stream()
        left = min(self._kernels.number(True), number)
        summed = values.new_empty((left, *values.shape[1:]))
        places = row.view(1, -1)[:, :left] if indices.shape[0] == 1 else indices.new_empty((indices.shape[0], left))
        while held:
            machine.free(held.pop(0))
        return _made(places, summed, given.shape, coalesced=True)

    def _add(self, one: torch.Tensor, other: torch.Tensor, *, alpha: Any = 1, out: torch.Tensor) -> torch.Tensor:
        """Sparse tensors are put one behind the other; what is dense takes a sparse one in as it is."""
        if not one.is_sparse:
            if other.sparse_dim() > 1:
                machine = self._kernels.machine
                machine.free(machine.take(other._nnz() * _INDEX, "temporary", "positions in one number"))
            return out
        indices = torch.cat([one._indices(), other._indices()], 1)
        values = torch.cat([one._values(), other._values()], 0)
        out.data = _made(indices, values, one.shape, coalesced=False)
        return out

    def _product(self, onto: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
        """Sparse times dense (SparseCUDATensorMath.cu): the result, then starts of rows."""
        made = other.new_empty((one.shape[0], other.shape[1]))
        machine = self._kernels.machine
        given = one.coalesce()
        machine.free(machine.take(4 * (given._nnz() + 1), "temporary", "starts of rows"))
        self._kernels.tell_unknown("aten::addmm of sparse tensors")
        return made

    def _times(self, one: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        """Sparse times dense (_mul_dense_sparse_out in SparseTensorMath.cpp): rows of the dense one, then a copy of the positions."""
        sparse, dense = (one, other) if one.is_sparse else (other, one)
        if dense.is_sparse or dense.dim() > sparse.dim():
            raise UnknownKernel("what two sparse tensors have in common is computed by a kernel of the device")
        shared = max(dense.dim() - sparse.dense_dim(), 0)
        rows = dense[tuple(sparse._indices()[sparse.sparse_dim() - shared :])] if shared else dense
        indices = sparse._indices().clone()
        out.data = _made(indices, rows.mul(sparse._values()), sparse.shape, coalesced=sparse.is_coalesced())
        return out

    def _from_dense(self, dense: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        places = dense.nonzero().t()
        return _made(places, dense[tuple(places)], dense.shape, coalesced=True)


def _made(indices: torch.Tensor, values: torch.Tensor, shape: Sequence[int], *, coalesced: bool) -> torch.Tensor:
    return _aten._sparse_coo_tensor_unsafe(  # type: ignore[no-any-return]
        indices, values, list(shape), dtype=values.dtype, layout=torch.sparse_coo, device=values.device, is_coalesced=coalesced
    )


def _as_on_host(op: Any) -> Kernel:
    below = op._op_dk
    return lambda *args, **kwargs: below(_CPU, *args, **kwargs)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _merge_sort(number: int) -> int:
    """Pairs of positions with their order: copies of both, and where tiles meet."""
    return 2 * _aligned(number * _INDEX) + _aligned((math.ceil(number / _MERGE_TILE) + 1) * _INDEX) + _ALIGNMENT - 1


def _unique(number: int) -> int:
    """Two states for each tile."""
    return _ALIGNMENT + 2 * _aligned((math.ceil(number / _UNIQUE_TILE) + _AHEAD) * 8) + _ALIGNMENT - 1
