"""Reading and writing at indices against PyTorch, on shapes and values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from irscope.ops.values import Array
from tests.unit.ops.calling import check
from tests.unit.ops.torching import against, broadcastable, cases, random_array, random_axis, random_shape

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional


def _indices(rng: random.Random, shape: tuple[int, ...], size: int, low: int = 0) -> Array:
    """Indices into an axis of this size."""
    return np.asarray(np.random.default_rng(rng.getrandbits(32)).integers(low, size, shape)).astype(np.int64)


def test_gather_of_slices() -> None:
    for rng in cases("gather", 60):
        x = random_array(rng, random_shape(rng, 1, 4, empty=False))
        axis = random_axis(rng, x.ndim)
        index = _indices(rng, (rng.randint(0, 4),), x.shape[axis])
        v, i = torch.from_numpy(x), torch.from_numpy(index)
        against(torch.index_select, "tensor.gather", [x, index], {"axis": axis}, v, axis, i)
        index = _indices(rng, random_shape(rng, 0, 3), x.shape[axis], -x.shape[axis])
        check("tensor.gather", [x, index], {"axis": axis}, [np.take(x, index, axis)])
        table, rows = x.reshape(x.shape[0], -1), _indices(rng, random_shape(rng, 0, 3), x.shape[0])
        against(F.embedding, "nn.embedding", [table, rows], {}, torch.from_numpy(rows), torch.from_numpy(table))


def test_gather_of_elements() -> None:
    for rng in cases("take_along", 60):
        x = random_array(rng, random_shape(rng, 1, 4, empty=False))
        axis = random_axis(rng, x.ndim)
        shape = [rng.randint(0, size) for size in x.shape]
        shape[axis] = rng.randint(0, 5)
        index = _indices(rng, tuple(shape), x.shape[axis])
        v, i = torch.from_numpy(x), torch.from_numpy(index)
        against(torch.gather, "tensor.take_along", [x, index], {"axis": axis}, v, axis, i)
        if x.ndim > 1:
            index = _indices(
                rng,
                tuple(1 if place != axis % x.ndim and rng.random() < 0.5 else size for place, size in enumerate(x.shape)),
                x.shape[axis],
            )
            against(
                torch.take_along_dim, "tensor.take_along", [x, index], {"axis": axis, "broadcast": True}, v, torch.from_numpy(index), axis
            )
        flat = _indices(rng, random_shape(rng, 0, 2), x.size)
        against(torch.take, "tensor.take", [x, flat], {}, v, torch.from_numpy(flat))


def test_advanced_indexing() -> None:
    for rng in cases("index", 150):
        x = random_array(rng, random_shape(rng, 1, 4, empty=False))
        full = random_shape(rng, 0, 2)
        entries: list[Array | None] = []
        axis = 0
        while axis < x.ndim and rng.random() < 0.9:
            choice = rng.random()
            if choice < 0.3:
                entries.append(None)
                axis += 1
            elif choice < 0.85:
                entries.append(_indices(rng, broadcastable(rng, full), x.shape[axis], -x.shape[axis]))
                axis += 1
            else:
                rank = rng.randint(1, x.ndim - axis)
                mask = random_array(rng, x.shape[axis : axis + rank], "bool")
                entries.append(mask)
                axis += rank
        if not any(entry is not None for entry in entries) or not _broadcasts(entries):
            continue
        index = [None if entry is None else torch.from_numpy(entry) for entry in entries]
        against(torch.ops.aten.index, "tensor.index", [x, *entries], {}, torch.from_numpy(x), index)


def _broadcasts(entries: list[Array | None]) -> bool:
    shapes = [(int(entry.sum()),) if entry.dtype == np.bool_ else entry.shape for entry in entries if entry is not None]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def test_masks() -> None:
    for rng in cases("mask", 60):
        shape = random_shape(rng)
        x, mask = random_array(rng, shape), random_array(rng, broadcastable(rng, shape), "bool")
        v, m = torch.from_numpy(x), torch.from_numpy(mask)
        against(torch.masked_select, "tensor.masked_select", [x, mask], {})
        against(torch.masked_fill, "tensor.masked_fill", [x, mask], {"fill": 2.5}, v, m, 2.5)
        against(torch.nonzero, "tensor.nonzero", [x], {})
        against(torch.where, "tensor.nonzero_parts", [mask], {})


def test_scatter() -> None:
    for rng in cases("scatter", 60):
        x = random_array(rng, random_shape(rng, 1, 3, empty=False))
        axis = random_axis(rng, x.ndim)
        shape = [rng.randint(0, size) for size in x.shape]
        # Positions along the axis must differ for a plain write to be defined.
        index = np.argsort(random_array(rng, x.shape), axis=axis)[tuple(slice(size) for size in shape)].astype(np.int64)
        updates = random_array(rng, shape)
        v, i, u = torch.from_numpy(x), torch.from_numpy(index), torch.from_numpy(updates)
        against(torch.scatter, "tensor.scatter_elements", [x, index, updates], {"axis": axis}, v, axis, i, u)
        against(torch.scatter, "tensor.scatter_elements", [x, index, None], {"axis": axis, "value": 1.5}, v, axis, i, 1.5)
        for name in ("sum", "prod", "amax", "amin"):
            again = _indices(rng, tuple(shape), x.shape[axis])
            attrs = {"axis": axis, "reduction": name}
            against(torch.scatter_reduce, "tensor.scatter_elements", [x, again, updates], attrs, v, axis, torch.from_numpy(again), u, name)


def test_whole_slices() -> None:
    for rng in cases("index_add", 40):
        x = random_array(rng, random_shape(rng, 1, 3, empty=False))
        axis = random_axis(rng, x.ndim)
        index = np.array(rng.sample(range(x.shape[axis]), rng.randint(1, x.shape[axis])), dtype=np.int64)
        shape = list(x.shape)
        shape[axis] = len(index)
        source = random_array(rng, shape)
        v, i, s = torch.from_numpy(x), torch.from_numpy(index), torch.from_numpy(source)
        against(torch.index_add, "tensor.index_add", [x, index, source], {"axis": axis}, v, axis, i, s)
        against(torch.index_copy, "tensor.index_copy", [x, index, source], {"axis": axis}, v, axis, i, s)
        against(torch.index_fill, "tensor.index_fill", [x, index, None], {"axis": axis, "fill": 7.0}, v, axis, i, 7.0)


def test_index_put() -> None:
    for rng in cases("index_put", 40):
        x = random_array(rng, (4, 5, 2))
        rows, columns = _indices(rng, (3,), 4), _indices(rng, (3,), 5)
        values = random_array(rng, (3, 2))
        v = torch.from_numpy(x)
        index = (torch.from_numpy(rows), torch.from_numpy(columns))
        accumulate = {"accumulate": True}
        against(torch.index_put, "tensor.index_put", [x, values, rows, columns], accumulate, v, index, torch.from_numpy(values), True)


def test_slice_and_select_scatter() -> None:
    for rng in cases("slice_scatter", 40):
        x = random_array(rng, random_shape(rng, 1, 3, empty=False))
        axis = rng.randrange(x.ndim)
        start, end, step = rng.randint(-5, 5), rng.randint(-5, 6), rng.randint(1, 2)
        v = torch.from_numpy(x)
        part = v[(slice(None),) * axis + (slice(start, end, step),)]
        source = random_array(rng, tuple(part.shape))
        attrs = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (step,)}
        against(torch.slice_scatter, "tensor.slice_scatter", [x, source], attrs, v, torch.from_numpy(source), axis, start, end, step)
        index = rng.randrange(-x.shape[axis], x.shape[axis])
        source = random_array(rng, x.shape[:axis] + x.shape[axis + 1 :])
        attrs = {"axis": axis, "index": index}
        against(torch.select_scatter, "tensor.select_scatter", [x, source], attrs, v, torch.from_numpy(source), axis, index)


def test_bags() -> None:
    for rng in cases("bags", 20):
        table = random_array(rng, (7, 3))
        index = _indices(rng, (rng.randint(1, 3), rng.randint(1, 4)), 7)
        against(F.embedding_bag, "nn.embedding_bag", [table, index], {}, torch.from_numpy(index), torch.from_numpy(table))
        flat, offsets = _indices(rng, (6,), 7), np.array([0, 2, 4], dtype=np.int64)
        options = {"include_last_offset": rng.random() < 0.5}
        operands = [torch.from_numpy(part) for part in (flat, table, offsets)]
        against(F.embedding_bag, "nn.embedding_bag", [table, flat, offsets], options, *operands, **options)


def test_bincount() -> None:
    for rng in cases("bincount"):
        x = random_array(rng, (rng.randint(0, 9),), "uint8").astype(np.int64)
        options = {"minlength": rng.randint(0, 12)}
        against(torch.bincount, "tensor.bincount", [x], options, **options)
