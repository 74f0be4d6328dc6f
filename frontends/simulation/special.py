"""Kernels that are no plans: copies between host and device, values that the program reads, storages that change, recurrent networks by
cuDNN (ATen/native/cudnn/RNN.cpp), sparse tensors."""

from __future__ import annotations

import ctypes
import dis
import functools
import math
import mmap
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import torch

from irscope.frontends.eager import internals
from irscope.frontends.eager.record import dtype_of
from irscope.frontends.eager.routes import RNN_MODES, recurrent
from irscope.frontends.simulation.cuda import Device
from irscope.frontends.simulation.kernels import Kernel, Kernels, UnknownKernel, resize_tensor
from irscope.frontends.simulation.machine import Machine
from irscope.frontends.simulation.vision import CompiledOperators
from irscope.ir.dtypes import DType
from irscope.ir.types import Layout, Shape, tensor
from irscope.memory.tape import Ran
from irscope.ops.layouts import row_major
from irscope.ops.registry import find_op
from irscope.ops.scratch.ordering import cub_merge_sort, cub_unique
from irscope.ops.spec import OpCall

_CPU = torch._C.DispatchKey.CPU
_copy_spec = find_op("tensor.cast")
_TILE = 128 * 16
"""Bytes that a block of the kernels below copies: threads, and bytes of each (ATen/native/cuda/TensorShape.cu)."""
_aten = torch.ops.aten


def special_kernels(
    kernels: Kernels, device: Device, answer: Callable[..., Any], answer_copy: Callable[[torch.Tensor], None]
) -> dict[str, Kernel]:
    """Return them by name of the operator; `answer` and `answer_copy` make up values of the device that the program reads."""
    copies, machine = _copies(kernels, device, answer, answer_copy), kernels.machine
    return {**copies, **_storages(machine), **_pieces(machine, device), **{name: _for_all_devices(name) for name in _COMPOSED}}


_COMPOSED = ("aten::_embedding_bag_backward", "aten::_ctc_loss.Tensor", "aten::_ctc_loss_backward.Tensor")
"""Operators whose one implementation for all devices calls others."""


def _for_all_devices(name: str) -> Kernel:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    below = getattr(getattr(_aten, packet), overload or "default")._op_dk
    return lambda *args, **kwargs: below(_CPU, *args, **kwargs)


def _copied(into: torch.Tensor, source: torch.Tensor) -> Ran:
    """Return what is queued for a copy on the device."""
    return _copy_of(*(part for one in (into, source) for part in (dtype_of(one), tuple(one.shape), tuple(one.stride()))))


@functools.lru_cache(maxsize=4096)
def _copy_of(to: DType, shape: Shape, steps: Layout, of: DType, given: Shape, given_steps: Layout) -> Ran:
    made, operand = tensor(to, shape, "cuda:0", steps), tensor(of, given, "cuda:0", given_steps)
    assert _copy_spec is not None
    call = OpCall(_copy_spec, [operand], {"to": to}, (), [made], source="aten::copy_")
    return Ran("aten::copy_", call, sum(size for size in (made.nbytes, operand.nbytes) if isinstance(size, int)))


def _copies(kernels: Kernels, device: Device, answer: Callable[..., Any], answer_copy: Callable[[torch.Tensor], None]) -> dict[str, Kernel]:
    """Return the kernels that move values, or read them."""
    machine, values = kernels.machine, kernels.values

    def copy_(into: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if into.is_cuda and source.is_cuda:
            machine.queue(_copied(into, source))
            values.between(into, source)
            machine.copied_result(into, source)
            return into
        # Parameters of lazy modules have a size before they have a shape.
        if into.dtype is source.dtype and into.is_contiguous() and source.is_contiguous() and into.size() == source.size():
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
            machine.given(into)
        elif not values.to_host(into, source):
            answer_copy(into)
        return into

    def item(tensor: torch.Tensor) -> Any:
        machine.await_stream()
        return answer(tensor.dtype, values.item(tensor))

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        machine.record_stream(tensor, device.number(stream.stream_id))

    return {
        "aten::clone": _cloning(kernels),
        **{op.name(): _indexing(kernels, op) for op in _INDEXED},
        "aten::copy_": copy_,
        "aten::_local_scalar_dense": item,
        "aten::record_stream": record_stream,
        "aten::equal": _equality(kernels, answer),
        "aten::_nested_tensor_from_mask_left_aligned": lambda one, mask: answer(torch.bool),
        # cuDNN's loss is taken where targets are 32-bit numbers of the host; its workspace is not known, so PyTorch's own is counted.
        **dict.fromkeys(
            (f"aten::_use_{who}_ctc_loss{kind}" for who in ("cudnn", "miopen") for kind in ("", ".Tensor")), lambda *args: False
        ),
    }


def _equality(kernels: Kernels, answer: Callable[..., Any]) -> Kernel:
    def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
        """Do as cuda_equal in ATen/native/cuda/Equal.cpp."""
        if one.shape != other.shape or not one.numel() or one.is_set_to(other):
            return one.shape == other.shape
        found = torch.eq(one, other).all()
        kernels.machine.await_stream()
        return bool(answer(torch.bool, kernels.values.item(found)))

    return equal


def _cloning(kernels: Kernels) -> Kernel:
    """A copy of a small tensor whose values are known has them too."""
    values, plain = kernels.values, kernels.planned(_aten.clone.default)

    def clone(source: torch.Tensor, *, memory_format: Any = None) -> torch.Tensor:
        made: torch.Tensor = plain(source, memory_format=memory_format)
        values.between(made, source)
        return made

    return clone


_INDEXED: Final = (_aten.index.Tensor, _aten._index_put_impl_.default)


def _indexing(kernels: Kernels, op: Any) -> Kernel:
    """Positions that lie on the host are copied first (expandTensors in ATen/native/IndexingUtils.h)."""
    plain = kernels.planned(op)

    def index(source: torch.Tensor, places: Sequence[Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        if source.is_cuda:
            places = [place if place is None or place.is_cuda else place.to(source.device) for place in places]
        found: torch.Tensor = plain(source, places, *args, **kwargs)
        return found

    return index


def _storages(machine: Machine) -> dict[str, Kernel]:
    """Return the kernels that give a tensor another storage, or a storage another size."""
    below = _aten.set_.source_Storage_storage_offset._op_dk

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


def _pieces(machine: Machine, device: Device) -> dict[str, Kernel]:
    """Return the kernels that cut a tensor into many or put many together, as FSDP does around its collectives: addresses and sizes of the
    pieces, and the piece that each block of threads works on, are copied to the device first."""

    def lists(numbers: int) -> None:
        machine.free(machine.take(8 * numbers, "temporary", "addresses of pieces"))

    def split(source: torch.Tensor, sizes: Sequence[int], dim: int = 0, *, out: Sequence[torch.Tensor]) -> None:
        dim %= source.dim()
        for one, size in zip(out, sizes, strict=True):
            shape = (*source.shape[:dim], size, *source.shape[dim + 1 :])
            if one.shape != shape:
                resize_tensor(machine, one, shape)
        if all(internals.is_dense(one) and one.dtype is source.dtype for one in (source, *out)):
            step = source.stride(dim) * source.element_size()
            lists(_split_numbers(device, [size * step for size in sizes], math.prod(source.shape[:dim])))
            return
        for one, piece in zip(out, source.split_with_sizes(list(sizes), dim), strict=True):
            one.copy_(piece)

    def cat(tensors: Sequence[torch.Tensor], dim: int, chunks: int, *, out: torch.Tensor | None = None) -> torch.Tensor:
        first = tensors[0]
        dtype = first.dtype if out is None else out.dtype
        widened = first.dtype is torch.bfloat16 and dtype is torch.float32
        if not all(internals.is_dense(one) for one in tensors) or not (dtype is first.dtype or widened):
            into: Any = _aten._chunk_cat.default._op_dk if out is None else _aten._chunk_cat.out._op_dk
            found: torch.Tensor = into(_CPU, tensors, dim, chunks, **({} if out is None else {"out": out}))
            return found
        dim %= first.dim()
        rows = [-(-one.shape[dim] // chunks) * math.prod(one.shape[dim + 1 :]) for one in tensors]
        blocks = sum(-(-row * dtype.itemsize // _TILE) for row in rows)
        lists(6 * len(tensors) + 2 + blocks)
        shape = (*first.shape[:dim], chunks, sum(rows))
        if out is None:
            return first.new_empty(shape)
        if out.shape != shape:
            resize_tensor(machine, out, shape)
        return out

    return {"aten::split_with_sizes_copy.out": split, "aten::_chunk_cat": cat, "aten::_chunk_cat.out": cat}


def _split_numbers(device: Device, sizes: Sequence[int], chunks: int) -> int:
    """Return how many numbers the kernel needs that cuts `chunks` stretches into pieces of these bytes."""
    card = device.properties
    most: int = card.multi_processor_count * card.max_threads_per_multi_processor // 128 * 2
    rounds = -(-sum(-(-size // _TILE) for size in sizes) * chunks // most)
    each = -(-rounds // max(min(math.ceil(math.sqrt(rounds)), chunks), 1))
    blocks = sum(-(-size // (_TILE * max(each, 1))) for size in sizes)
    return 4 * len(sizes) + 1 + blocks


# Kernels that a program brings along: custom operators whose kernels do not run here, extensions that are compiled for CUDA.

_NO_DRIVER: Final = "active drivers"
"""Part of Triton's message where there is no device to compile for."""


def install_foreign(kernels: Kernels) -> None:
    """Tell which operator or extension cannot run; with `allow_unknown` the operator's fake implementation says what it makes."""
    from torch._library.custom_ops import CustomOpDef

    kind: Any = CustomOpDef
    original = kind.register_kernel

    def register_kernel(op: Any, device_types: Any, function: Any = None, /) -> Any:
        if function is None:
            return lambda given: register_kernel(op, device_types, given)
        return original(op, device_types, _guarded(kernels, op, function))

    kind.register_kernel = register_kernel
    operators = CompiledOperators(kernels)
    operators.install()
    _extensions(kernels, operators)
    _libraries(kernels)


def _guarded(kernels: Kernels, op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ImportError, UnknownKernel) as error:
            reason = str(error)
        except RuntimeError as error:
            if _NO_DRIVER not in str(error):
                raise
            reason = str(error)
        fake = op._abstract_fn
        if fake is None or not kernels.allow_unknown:
            hint = (
                "--allow-unknown-kernels counts what it makes" if fake is not None else "torch.library.register_fake defines what it makes"
            )
            raise UnknownKernel(f"the kernel of operator {op._qualname} does not run here ({reason}); {hint}")
        kernels.tell_unknown(op._qualname)
        return fake(*args, **kwargs)

    return run


_GENERATION: Final = "transformers/generation/utils.py"


def value_for(frame: FrameType | None, value: Any, is_said: bool) -> Any:
    """Return what a function reads of the device that nobody computes, where the function says what it takes; else `value`.

    Checks are passed, unless the user has said what values are.
    """
    passing = None if is_said or frame is None else _passing(frame.f_code, frame.f_lasti)
    return _in_generation(frame, value) if passing is None else type(value)(passing)


@functools.cache
def _passing(code: CodeType, place: int) -> bool | None:
    """Return the truth value with which an instruction's result passes a check: the other one leads straight to a `raise`, as in
    `assert mask.any()` or in the checks of distributions, or is a divisor of 0; None where nothing is checked."""
    steps = list(dis.get_instructions(code))
    at = {step.offset: number for number, step in enumerate(steps)}
    number = at.get(place)
    if number is None:
        return None
    if steps[number].opname.startswith(("CALL", "PRECALL")):  # else it asks for the truth value itself
        number += 1
    turned = False
    for step in steps[number:]:
        if step.opname == "UNARY_NOT":
            turned = not turned
        elif step.opname == "BINARY_OP":
            return True if step.argrepr.rstrip("=") in ("/", "//", "%") else None
        elif step.opname in _JUMPS:
            jumps = step.opname.endswith("TRUE")
            ways = {jumps: at[step.argval], not jumps: at[step.offset] + 1}
            passes = [way for way in (True, False) if not _raises(steps, ways[way])]
            return passes[0] is not turned if len(passes) == 1 else None
        elif step.opname not in _BETWEEN:
            return None
    return None


_JUMPS: Final = tuple(f"POP_JUMP_{way}IF_{truth}" for way in ("FORWARD_", "") for truth in ("TRUE", "FALSE"))
_BETWEEN: Final = ("PRECALL", "CALL", "TO_BOOL", "CACHE", "EXTENDED_ARG")
"""Instructions between a read and the jump: `bool` around it, and those that only some releases of Python have."""
_FORKS: Final = ("JUMP", "FOR_ITER", "RETURN", "YIELD", "SEND", "END_FOR")


def _raises(steps: Sequence[dis.Instruction], begin: int) -> bool:
    """Return whether instructions lead to a `raise` in a straight line."""
    for step in steps[begin:]:
        if step.opname == "RAISE_VARARGS":
            return True
        if any(kind in step.opname for kind in _FORKS):
            return False
    return False


def _in_generation(frame: FrameType | None, value: Any) -> Any:
    """Return what a loop of transformers' `generate` reads, where no sequence ends before it has the greatest length; else `value`.

    The length is the host's, but the loop asks the device whether all have ended: with zeros for an answer it would never end, and
    a search of several beams would end at once.
    """
    while frame is not None and frame.f_code.co_filename.endswith(_GENERATION):
        known = frame.f_locals
        if frame.f_code.co_name == "_sample":
            ended = known["input_ids"].shape[1] >= (getattr(known.get("stopping_criteria"), "max_length", None) or math.inf)
            return type(value)(ended if isinstance(value, bool) else not ended)
        if frame.f_code.co_name == "_beam_search" and "cur_len" in known:
            if isinstance(value, bool):
                return known["cur_len"] < known["max_length"]
            return type(value)(known["cur_len"] - known.get("decoder_prompt_len", 0))
        frame = frame.f_back
    return value


def _extensions(kernels: Kernels, operators: CompiledOperators) -> None:
    """Replace the functions that compile extensions at run time; extensions of the host alone work as before."""
    from torch.utils import cpp_extension

    module: Any = cpp_extension

    def stood_in(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(name: str, *args: Any, **kwargs: Any) -> Any:
            sources = kwargs.get("sources", args[0] if args and original.__name__ == "load" else ())
            sources = [sources] if isinstance(sources, str) else list(sources or ())
            if kwargs.get("cuda_sources") or kwargs.get("with_cuda") or any(str(source).endswith((".cu", ".cuh")) for source in sources):
                operators.declare(sources, kwargs.get("cpp_sources") or (args[0] if args and original.__name__ != "load" else ()))
                return _Extension(kernels, name)
            return original(name, *args, **kwargs)

        return load

    module.load, module.load_inline = stood_in(module.load), stood_in(module.load_inline)


class _Extension:
    """An extension with CUDA kernels of its own: its functions write to what they are given, as optimizers' do, and what they take besides
    is not known."""

    def __init__(self, kernels: Kernels, name: str) -> None:
        self._kernels, self._name = kernels, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> _NoResult:
            self._kernels.machine.forget([*args, *kwargs.values()])
            self._kernels.tell_unknown(f"{self._name}::{name}")
            return _NoResult(f"extension {self._name} is compiled with CUDA kernels of its own, and what its {name} returns is not known")

        setattr(self, name, call)
        return call


class _NoResult:
    """Result of a function about which nothing is known; reading an attribute of it raises UnknownKernel."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise UnknownKernel(self._reason)

    def __iter__(self) -> Any:
        raise UnknownKernel(self._reason)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise UnknownKernel(next(argument._reason for argument in args if isinstance(argument, _NoResult)))


_NEEDS_CUDA: Final = re.compile(rb"libcu(dart|blas|blasLt|sparse|solver)\.so")
_NEEDS_TORCH: Final = re.compile(rb"libtorch|libc10")
_ELF: Final = b"\x7fELF"


def _libraries(kernels: Kernels) -> None:
    """Stand in for libraries of CUDA kernels that a package calls with addresses (bitsandbytes): their kernels would meet no device, and
    often what they need is not there. Extensions of torch have operators instead and are not loaded for their functions."""
    kind: Any = ctypes.CDLL
    original = kind.__init__

    def load(library: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        path = os.fspath(name) if isinstance(name, str | os.PathLike) else ""
        if os.path.sep in path and _has_kernels(path):
            library.__class__, library._name, library._handle, library._kernels = _Library, path, 0, kernels
            return
        original(library, name, *args, **kwargs)

    kind.__init__ = load


@functools.cache
def _has_kernels(path: str) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text[: len(_ELF)] == _ELF and _NEEDS_CUDA.search(text) is not None and _NEEDS_TORCH.search(text) is None
    except (OSError, ValueError):  # not there, or empty
        return False


class _Library(ctypes.CDLL):
    """A library whose functions do nothing and return 0; memory that the host sees too is the host's."""

    _kernels: Kernels

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = _Function(self._kernels, f"{os.path.basename(self._name)}:{name}", shares="managed_ptr" in name)
        setattr(self, name, made)
        return made

    def __getitem__(self, name: Any) -> Any:
        return getattr(self, str(name))


class _Function:
    """A function of such a library."""

    restype: Any = ctypes.c_int
    argtypes: Any = None
    errcheck: Any = None

    def __init__(self, kernels: Kernels, name: str, shares: bool) -> None:
        self._kernels, self._name, self._shares = kernels, name, shares
        self._kept: list[mmap.mmap] = []

    def __call__(self, *args: Any) -> int:
        if self._shares and args:
            size = int(getattr(args[0], "value", args[0]))
            self._kept.append(mmap.mmap(-1, max(size, 1)))  # pages that nobody writes take no memory
            return ctypes.addressof(ctypes.c_char.from_buffer(self._kept[-1]))
        if args:
            self._kernels.tell_unknown(self._name)
        return 0


_LIBRARY: Final = "cuDNN's workspace, reserve and dropout state"


def recurrent_kernels(kernels: Kernels) -> dict[str, Kernel]:
    """Return the kernels by name of the operator."""
    machine = kernels.machine
    seeded: list[bool] = []

    def flatten(weights: Sequence[torch.Tensor], *geometry: Any) -> torch.Tensor:
        buffer = _flat(weights)
        at = 0
        for one in weights:
            rows: Any = row_major(one.shape)
            one.set_(buffer.untyped_storage(), at, one.shape, rows)
            at += one.numel()
        return buffer

    def forward(
        x: torch.Tensor,
        weights: Sequence[torch.Tensor],
        per_layer: int,
        buffer: Any,
        hx: torch.Tensor,
        cx: Any,
        mode: int,
        units: int,
        projected: int,
        layers: int,
        batch_first: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_sizes: Any,
        state: Any,
    ) -> tuple[torch.Tensor, ...]:
        if train and dropout and not seeded:
            seeded.append(True)
            machine.free(machine.take(8, "temporary", "random state"))
            kernels.tell_unknown(_LIBRARY)
        given = x.contiguous()
        hidden, cell = hx.contiguous(), None if cx is None else cx.contiguous()
        output = given.new_empty((*given.shape[:-1], (projected or units) * (2 if bidirectional else 1)))
        hy = hidden.new_empty(hidden.shape)
        cy = hidden.new_empty((0,)) if cell is None else cell.new_empty(cell.shape)
        kept = given.new_empty((0,), dtype=torch.uint8)
        if train:
            kernels.tell_unknown(_LIBRARY)
        whole = _flat(weights) if buffer is None else buffer
        return output, hy, cy, kept, whole

    def backward(
        x: torch.Tensor,
        weights: Sequence[torch.Tensor],
        per_layer: int,
        buffer: torch.Tensor,
        hx: torch.Tensor,
        cx: Any,
        output: torch.Tensor,
        d_output: Any,
        d_hy: Any,
        d_cy: Any,
        mode: int,
        units: int,
        projected: int,
        layers: int,
        batch_first: bool,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_sizes: Any,
        state: Any,
        reserve: torch.Tensor,
        mask: Sequence[bool],
    ) -> tuple[Any, ...]:
        if not train:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        gradient = torch.zeros_like(output) if d_output is None else d_output
        of_h = torch.zeros_like(hx) if d_hy is None else d_hy
        of_c = None if cx is None else torch.zeros_like(cx) if d_cy is None else d_cy
        found = _of_inputs(x, hx, cx, gradient, of_h, of_c)
        made: list[Any] = [None] * len(weights)
        if mask[3]:
            given = x.contiguous()
            flat, at = buffer.new_empty(buffer.shape), 0
            for place, one in enumerate(weights):
                rows: Any = row_major(one.shape)
                made[place] = flat.as_strided(one.shape, rows, at)
                at += one.numel()
            del given
        del of_c, of_h  # in the reverse of the order in which they came
        return (*found, made)

    return {
        "aten::_cudnn_rnn_flatten_weight": flatten,
        "aten::_cudnn_rnn": forward,
        "aten::_cudnn_rnn_backward": backward,
    }


def _of_inputs(
    x: torch.Tensor, hx: torch.Tensor, cx: Any, gradient: torch.Tensor, of_h: torch.Tensor, of_c: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of the input and of the first states; contiguous copies live as long as this."""
    given, gradient = x.contiguous(), gradient.contiguous()
    hidden, cell = hx.contiguous(), None if cx is None else cx.contiguous()
    of_h, of_c = of_h.contiguous(), None if of_c is None else of_c.contiguous()
    dx, dhx = given.new_empty(given.shape), hidden.new_empty(hidden.shape)
    dcx = hidden.new_empty((0,)) if cell is None else cell.new_empty(cell.shape)
    return dx, dhx, dcx


def _flat(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a buffer for all weights."""
    return weights[0].new_empty((sum(one.numel() for one in weights),))


# -- torch.lstm and its like ------------------------------------------------------------------------------------------------


def recurrent_composites() -> dict[str, Kernel]:
    """`lstm.input` and its like by cuDNN, by name of the operator."""
    return {f"{name}.{kind}": _by_cudnn(name, packed=kind == "data") for name in RNN_MODES for kind in ("input", "data")}


def _by_cudnn(name: str, *, packed: bool) -> Kernel:
    def prepared(x: Any, h: Any, c: Any, weights: list[torch.Tensor]) -> tuple[Any, ...]:
        if torch.is_autocast_enabled("cuda"):
            return _cast(torch.get_autocast_dtype("cuda"), x, h, c, weights)
        whole = sum(one.numel() for one in weights)
        is_one = len({one.untyped_storage()._cdata for one in weights}) == 1 and weights[0].untyped_storage().nbytes() >= whole * x.itemsize
        return x, h, c, weights, weights[0].detach().as_strided((whole,), (1,), 0) if is_one else None

    return lambda *args: recurrent(name, args, packed, prepared)


def _cast(
    dtype: torch.dtype, x: Any, h: Any, c: Any, weights: list[torch.Tensor]
) -> tuple[Any, Any, Any, list[torch.Tensor], torch.Tensor]:
    """Cast a recurrent network as autocast does: its weights in the lower precision, in one buffer again (AutocastRNN.cpp)."""
    buffer = torch.empty(sum(one.numel() for one in weights), dtype=dtype, device=x.device)
    made, at = [], 0
    for one in weights:
        made.append(buffer[at : at + one.numel()].view(one.shape).copy_(one))
        at += one.numel()
    return x.to(dtype), h.to(dtype), None if c is None else c.to(dtype), made, buffer.detach()


_INDEX: Final = 8


def shared_operators(layout: str) -> list[str]:
    """Return the operators with one implementation for tensors of a layout on both devices, from the list that ships with torch."""
    path = Path(torch.__file__).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    found: list[str] = []
    name = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("- func: "):
            name = line[8:].partition("(")[0]
        elif line.startswith("    ") and {f"{layout}CPU", f"{layout}CUDA"} <= set(line.strip().partition(":")[0].split(", ")):
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
            for layout in ("Sparse", "SparseCsr", "NestedTensor"):
                below = getattr(torch._C.DispatchKey, f"{layout}CPU")
                for name in dict.fromkeys((*shared_operators(layout), *(own if layout == "Sparse" else ()))):
                    packet, _, overload = name.partition(".")
                    try:
                        op = getattr(getattr(_aten, packet), overload or "default")
                    except AttributeError:  # an operator of another version of torch
                        continue
                    key = "CUDA" if name == "_to_sparse" else f"{layout}CUDA"
                    kernel = own.get(name) if layout == "Sparse" else None
                    self._library.impl(name, kernel or _as_on_host(op, below), key, allow_override=True)

    def _coalesced(self, given: torch.Tensor) -> torch.Tensor:
        """Positions are sorted, equal ones found, and their values added up (SparseCUDATensor.cu)."""
        indices, values = given._indices(), given._values()
        number = indices.shape[1]
        if not number:
            return _made(indices, values, given.shape, coalesced=True)
        machine = self._kernels.machine
        row = indices.new_empty((number,))
        held = [machine.take(number * _INDEX, "temporary", what) for what in ("offsets", "order")]
        machine.free(machine.take(cub_merge_sort(number), "temporary", "merge sort"))
        machine.free(machine.take(cub_unique(number), "temporary", "unique"))
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
        dense: Any
        sparse, dense = (one, other) if one.is_sparse else (other, one)
        if not isinstance(dense, torch.Tensor):  # a number that torch has wrapped as a tensor
            dense = torch.tensor(dense, dtype=sparse.dtype)
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


def _as_on_host(op: Any, key: Any) -> Kernel:
    below = op._op_dk
    return lambda *args, **kwargs: below(key, *args, **kwargs)
