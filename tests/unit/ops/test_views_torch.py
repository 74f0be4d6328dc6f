"""Views, splits and moves against PyTorch, on shapes and values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.unit.ops.calling import check
from tests.unit.ops.torching import against, broadcastable, cases, random_array, random_axis, random_shape

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional


def _as_ints(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int64)


def _factors(rng: random.Random, count: int) -> list[int]:
    """Sizes with this product, one of them perhaps left open."""
    sizes = []
    while count > 1 and rng.random() < 0.8:
        divisor = rng.choice([number for number in range(1, count + 1) if count % number == 0])
        sizes.append(divisor)
        count //= divisor
    sizes.append(count)
    rng.shuffle(sizes)
    if rng.random() < 0.6:
        sizes[rng.randrange(len(sizes))] = -1
    return sizes


@pytest.mark.parametrize("as_operand", [False, True])
def test_reshape(as_operand: bool) -> None:
    for rng in cases(f"reshape {as_operand}", 80):
        x = random_array(rng, random_shape(rng, empty=False))
        target = _factors(rng, x.size)
        operands = [x, _as_ints(*target)] if as_operand else [x]
        against(torch.reshape, "view.reshape", operands, {} if as_operand else {"shape": tuple(target)}, torch.from_numpy(x), target)


def test_reshape_of_nothing() -> None:
    x = random_array(random.Random(0), (0, 3))
    for target in [(0, 5), (3, 0), (-1, 3), (2, 0, 4)]:
        against(torch.reshape, "view.reshape", [x], {"shape": target}, torch.from_numpy(x), target)


def test_flatten() -> None:
    for rng in cases("flatten", 50):
        x = random_array(rng, random_shape(rng))
        start = random_axis(rng, x.ndim)
        end = rng.randrange(start % max(x.ndim, 1), max(x.ndim, 1))
        against(torch.flatten, "view.flatten", [x], {"start": start, "end": end}, torch.from_numpy(x), start, end)


def test_permute_transpose_movedim() -> None:
    for rng in cases("permute", 50):
        x = random_array(rng, random_shape(rng))
        perm = rng.sample(range(x.ndim), x.ndim)
        v = torch.from_numpy(x)
        against(torch.permute, "view.permute", [x], {"perm": tuple(perm)}, v, perm)
        a, b = random_axis(rng, x.ndim), random_axis(rng, x.ndim)
        against(torch.transpose, "view.transpose", [x], {"axis0": a, "axis1": b}, v, a, b)
        source = rng.sample(range(x.ndim), rng.randint(0, x.ndim))
        target = rng.sample(range(x.ndim), len(source))
        against(torch.movedim, "view.movedim", [x], {"source": tuple(source), "destination": tuple(target)}, v, source, target)


def test_expand() -> None:
    for rng in cases("expand", 60):
        full = random_shape(rng)
        x = random_array(rng, broadcastable(rng, full))
        lead = len(full) - x.ndim
        target = [-1 if axis >= lead and x.shape[axis - lead] == size and rng.random() < 0.4 else size for axis, size in enumerate(full)]
        v = torch.from_numpy(x)
        against(torch.Tensor.expand, "view.expand", [x], {"shape": tuple(target), "mode": "keep"}, v, target)


def test_squeeze_unsqueeze() -> None:
    for rng in cases("squeeze", 60):
        x = random_array(rng, random_shape(rng))
        v = torch.from_numpy(x)
        against(torch.squeeze, "view.squeeze", [x], {}, v)
        axis = random_axis(rng, x.ndim)
        against(torch.squeeze, "view.squeeze", [x], {"axes": (axis,)}, v, axis)
        axis = random_axis(rng, x.ndim + 1)
        against(torch.unsqueeze, "view.unsqueeze", [x], {"axes": (axis,)}, v, axis)


def test_slice() -> None:
    for rng in cases("slice", 120):
        x = random_array(rng, random_shape(rng, 1, 4))
        axis = random_axis(rng, x.ndim)
        start, end = rng.randint(-7, 7), rng.choice([rng.randint(-7, 7), 2**63 - 1])
        step = rng.randint(1, 3)
        v = torch.from_numpy(x)
        limits = [_as_ints(start), _as_ints(end), _as_ints(axis), _as_ints(step)]
        against(torch.ops.aten.slice, "view.slice", [x, *limits], {}, v, axis, start, end, step)


def test_slice_as_numpy_does() -> None:
    """Any step, several axes: numpy is the oracle where PyTorch cannot go backward."""
    for rng in cases("numpy slice", 150):
        x = random_array(rng, random_shape(rng, 1, 3))
        axes = rng.sample(range(x.ndim), rng.randint(1, x.ndim))
        steps = [rng.choice([-3, -2, -1, 1, 2]) for _ in axes]
        # A start before the first position is clamped to it by ONNX, but not by numpy, when the slice goes backward.
        starts = [rng.randint(-x.shape[axis] if step < 0 else -9, 9) for axis, step in zip(axes, steps, strict=True)]
        ends = [rng.choice([rng.randint(-9, 9), 2**31 - 1, -(2**63) + 1]) for _ in axes]
        parts = [slice(None)] * x.ndim
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            parts[axis] = slice(start, end, step)
        lists = [_as_ints(*numbers) for numbers in (starts, ends, axes, steps)]
        check("view.slice", [x, *lists], {}, [x[tuple(parts)]])


def test_select_narrow_diagonal() -> None:
    for rng in cases("select", 60):
        x = random_array(rng, random_shape(rng, 2, 4, empty=False))
        v = torch.from_numpy(x)
        axis = random_axis(rng, x.ndim)
        size = x.shape[axis]
        index = rng.randrange(-size, size)
        against(torch.select, "view.select", [x], {"axis": axis, "index": index}, v, axis, index)
        start = rng.randrange(size)
        length = rng.randint(0, size - start)
        against(torch.narrow, "view.narrow", [x], {"axis": axis, "start": start, "length": length}, v, axis, start, length)
        a, b = rng.sample(range(x.ndim), 2)
        offset = rng.randint(-4, 4)
        attrs = {"offset": offset, "axis0": a, "axis1": b}
        against(torch.diagonal, "view.diagonal", [x], attrs, v, offset, a, b)


def test_unfold_and_strides() -> None:
    for rng in cases("unfold"):
        x = random_array(rng, (rng.randint(3, 6), rng.randint(3, 6)))
        v = torch.from_numpy(x)
        axis, size, step = random_axis(rng, 2), rng.randint(1, 3), rng.randint(1, 3)
        against(torch.Tensor.unfold, "view.unfold", [x], {"axis": axis, "size": size, "step": step}, v, axis, size, step)
        attrs = {"shape": (2, 2), "strides": (rng.randint(0, 3), rng.randint(0, 3)), "offset": rng.randint(0, 2)}
        against(torch.as_strided, "view.as_strided", [x], attrs, v, *attrs.values())


def test_complex_views_and_bits() -> None:
    for rng in cases("bits", 10):
        x = random_array(rng, (*random_shape(rng, 0, 2, empty=False), 2))
        against(torch.view_as_complex, "view.as_complex", [x], {}, torch.from_numpy(x.copy()))
        pair = np.asarray(x[..., 0] + 1j * x[..., 1]).astype(np.complex64)
        against(torch.view_as_real, "view.as_real", [pair], {})


def test_splits() -> None:
    for rng in cases("split", 80):
        x = random_array(rng, random_shape(rng, 1, 3))
        axis = random_axis(rng, x.ndim)
        v = torch.from_numpy(x)
        size, count = rng.randint(1, 4), rng.randint(1, 5)
        against(torch.split, "view.split", [x], {"axis": axis, "size": size}, v, size, axis)
        against(torch.chunk, "view.chunk", [x], {"axis": axis, "chunks": count}, v, count, axis)
        against(torch.tensor_split, "view.tensor_split", [x], {"axis": axis, "sections": count}, v, count, axis)
        cut = rng.randint(0, x.shape[axis])
        sizes = (cut, x.shape[axis] - cut)
        against(torch.split, "view.split", [x, _as_ints(*sizes)], {"axis": axis}, v, sizes, axis)
        if x.shape[axis]:
            against(torch.unbind, "view.unbind", [x], {"axis": axis}, v, axis)


def test_concat_and_stack() -> None:
    for rng in cases("concat", 60):
        shape = list(random_shape(rng, 1, 4))
        axis = random_axis(rng, len(shape))
        parts = []
        for _ in range(rng.randint(1, 4)):
            shape[axis] = rng.randint(0, 3)
            parts.append(random_array(rng, shape, rng.choice(["float32", "int64", "float16"])))
        if rng.random() < 0.3:
            parts.append(random_array(rng, (0,)))
        against(torch.cat, "tensor.concat", parts, {"axis": axis}, [torch.from_numpy(part) for part in parts], axis, close=1e-3)
        parts = [random_array(rng, shape) for _ in range(rng.randint(1, 3))]
        axis = random_axis(rng, len(shape) + 1)
        against(torch.stack, "tensor.stack", parts, {"axis": axis}, [torch.from_numpy(part) for part in parts], axis)


def test_tile_and_repeat() -> None:
    for rng in cases("tile", 60):
        x = random_array(rng, random_shape(rng, 0, 3))
        v = torch.from_numpy(x)
        repeats = [rng.randint(0, 3) for _ in range(rng.randint(1, 4))]
        against(torch.tile, "tensor.tile", [x, _as_ints(*repeats)], {}, v, repeats)
        axis = rng.choice([None, random_axis(rng, x.ndim)])
        if x.ndim:
            count = rng.randint(0, 3)
            against(torch.repeat_interleave, "tensor.repeat_interleave", [x], {"count": count, "axis": axis}, v, count, axis)
            size = x.size if axis is None else x.shape[axis]
            each = random_array(rng, (size,), "uint8").astype(np.int64)
            against(torch.repeat_interleave, "tensor.repeat_interleave", [x, each], {"axis": axis}, v, torch.from_numpy(each), axis)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode: str) -> None:
    for rng in cases(f"pad {mode}", 40):
        x = random_array(rng, (rng.randint(1, 2), rng.randint(1, 3), rng.randint(3, 5), rng.randint(3, 5)))
        low = -2 if mode == "constant" else 0
        left, right, top, bottom = (rng.randint(low, 2) for _ in range(4))
        pads = (0, 0, top, left, 0, 0, bottom, right)
        v = torch.from_numpy(x)
        against(F.pad, "tensor.pad", [x, _as_ints(*pads)], {"mode": mode}, v, (left, right, top, bottom), mode)


def test_turning() -> None:
    for rng in cases("roll", 40):
        x = random_array(rng, random_shape(rng, 1, 3))
        v = torch.from_numpy(x)
        axes = rng.sample(range(x.ndim), rng.randint(1, x.ndim))
        shifts = tuple(rng.randint(-3, 3) for _ in axes)
        against(torch.roll, "tensor.roll", [x], {"shifts": shifts, "axes": tuple(axes)}, v, shifts, tuple(axes))
        against(torch.roll, "tensor.roll", [x], {"shifts": shifts[:1]}, v, shifts[0])
        against(torch.flip, "tensor.flip", [x], {"axes": tuple(axes)}, v, axes)


def test_triangles() -> None:
    for rng in cases("tri", 40):
        x = random_array(rng, random_shape(rng, 2, 4))
        v = torch.from_numpy(x)
        k = rng.randint(-3, 3)
        against(torch.triu, "tensor.trilu", [x], {"k": k, "upper": True}, v, k)
        against(torch.tril, "tensor.trilu", [x, _as_ints(k)], {"upper": False}, v, k)


def test_blocks_and_columns() -> None:
    for rng in cases("blocks", 30):
        block = rng.randint(1, 3)
        lead = random_shape(rng, 0, 2, empty=False)
        x = random_array(rng, (*lead, 2 * block * block, 2 * block, 3 * block))
        v = torch.from_numpy(x)
        attrs = {"blocksize": block, "mode": "CRD"}
        against(F.pixel_shuffle, "tensor.depth_to_space", [x], attrs, v, block)
        against(F.pixel_unshuffle, "tensor.space_to_depth", [x], attrs, v, block)
        image = random_array(rng, (2, 6, rng.randint(5, 8), rng.randint(5, 8)))
        kernel, stride, dilation = [(rng.randint(1, 3), rng.randint(1, 3)) for _ in range(3)][:3]
        dilation = (rng.randint(1, 2), rng.randint(1, 2))
        pad = (rng.randint(0, 2), rng.randint(0, 2))
        attrs = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "pads": pad * 2}
        w = torch.from_numpy(image)
        against(F.unfold, "tensor.im2col", [image], attrs, w, kernel, dilation, pad, stride)
        columns = F.unfold(w, kernel, dilation, pad, stride).numpy()
        options = {key: number for key, number in attrs.items() if key != "kernel_shape"}
        sizes = [_as_ints(*image.shape[2:]), _as_ints(*kernel)]
        against(
            F.fold, "tensor.col2im", [columns, *sizes], options, torch.from_numpy(columns), image.shape[2:], kernel, dilation, pad, stride
        )
        channels = random_array(rng, (2, 6, 3))
        against(F.channel_shuffle, "tensor.channel_shuffle", [channels], {"groups": 3}, torch.from_numpy(channels), 3)


def test_meshgrid() -> None:
    for rng in cases("meshgrid", 20):
        parts = [random_array(rng, (rng.randint(1, 3),)) for _ in range(rng.randint(1, 3))]
        for indexing in ("ij", "xy"):
            attrs = {"indexing": indexing}
            against(torch.meshgrid, "tensor.meshgrid", parts, attrs, *(torch.from_numpy(part) for part in parts), **attrs)
