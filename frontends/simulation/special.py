"""Kernels that are no plans: copies between host and device, values that the program reads, storages that change."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import re
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import torch

from irscope.frontends.eager import internals
from irscope.frontends.eager.record import dtype_of
from irscope.frontends.simulation.cuda import Device
from irscope.frontends.simulation.imports import ChangedImports
from irscope.frontends.simulation.kernels import Kernel, Kernels, UnknownKernel, resize_tensor
from irscope.frontends.simulation.machine import Machine
from irscope.ir.dtypes import DType
from irscope.ir.types import Layout, Shape, tensor
from irscope.memory.tape import Ran
from irscope.ops.registry import find_op
from irscope.ops.spec import OpCall

_CPU = torch._C.DispatchKey.CPU
_copy_spec = find_op("tensor.cast")
_TILE = 128 * 16
"""Bytes that a block of the kernels below copies: threads, and bytes of each (ATen/native/cuda/TensorShape.cu)."""
_aten = torch.ops.aten


def special_kernels(
    kernels: Kernels, device: Device, answer: Callable[[torch.dtype], Any], answer_copy: Callable[[torch.Tensor], None]
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
    """What is queued for a copy on the device."""
    return _copy_of(*(part for one in (into, source) for part in (dtype_of(one), tuple(one.shape), tuple(one.stride()))))


@functools.lru_cache(maxsize=4096)
def _copy_of(to: DType, shape: Shape, steps: Layout, of: DType, given: Shape, given_steps: Layout) -> Ran:
    made, operand = tensor(to, shape, "cuda:0", steps), tensor(of, given, "cuda:0", given_steps)
    assert _copy_spec is not None
    call = OpCall(_copy_spec, [operand], {"to": to}, (), [made], source="aten::copy_")
    return Ran("aten::copy_", call, sum(size for size in (made.nbytes, operand.nbytes) if isinstance(size, int)))


def _copies(
    kernels: Kernels, device: Device, answer: Callable[[torch.dtype], Any], answer_copy: Callable[[torch.Tensor], None]
) -> dict[str, Kernel]:
    """What moves values, or reads them."""
    machine, values = kernels.machine, kernels.values

    def copy_(into: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        if into.is_cuda and source.is_cuda:
            machine.queue(_copied(into, source))
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
            machine.given(into)
        elif not values.to_host(into, source):
            answer_copy(into)
        return into

    def item(tensor: torch.Tensor) -> Any:
        machine.await_stream()
        known = values.item(tensor)
        return answer(tensor.dtype) if known is None else known

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        machine.record_stream(tensor, device.number(stream.stream_id))

    return {
        "aten::clone": _cloning(kernels),
        "aten::copy_": copy_,
        "aten::_local_scalar_dense": item,
        "aten::record_stream": record_stream,
        "aten::equal": lambda one, other: True,
        "aten::_nested_tensor_from_mask_left_aligned": lambda one, mask: answer(torch.bool),
        # cuDNN's loss is taken where targets are 32-bit numbers of the host; its workspace is not known, so PyTorch's own is counted.
        **dict.fromkeys(
            (f"aten::_use_{who}_ctc_loss{kind}" for who in ("cudnn", "miopen") for kind in ("", ".Tensor")), lambda *args: False
        ),
    }


def _cloning(kernels: Kernels) -> Kernel:
    """A copy of a small tensor whose values are known has them too."""
    values, plain = kernels.values, kernels.planned(_aten.clone.default)

    def clone(source: torch.Tensor, *, memory_format: Any = None) -> torch.Tensor:
        made: torch.Tensor = plain(source, memory_format=memory_format)
        values.between(made, source)
        return made

    return clone


def _storages(machine: Machine) -> dict[str, Kernel]:
    """What gives a tensor another storage, or a storage another size."""
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
    """What cuts a tensor into many or puts many together in one kernel, as FSDP does around its collectives: addresses and sizes of the
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
    """How many numbers the kernel wants that cuts `chunks` stretches into pieces of these bytes."""
    card = device.properties
    most: int = card.multi_processor_count * card.max_threads_per_multi_processor // 128 * 2
    rounds = -(-sum(-(-size // _TILE) for size in sizes) * chunks // most)
    each = -(-rounds // max(min(math.ceil(math.sqrt(rounds)), chunks), 1))
    blocks = sum(-(-size // (_TILE * max(each, 1))) for size in sizes)
    return 4 * len(sizes) + 1 + blocks


# --------------------------------------------------------------------------------------------------
# Kernels that a program brings along: custom operators whose kernels do not run here, extensions that are compiled for CUDA.

_NO_DRIVER: Final = "active drivers"
"""What Triton says where there is no device to compile for."""


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
    _extensions(kernels)
    _libraries(kernels)
    ChangedImports({"torchvision.extension": _without_operators}).install()


def _without_operators(extension: Any) -> None:
    """Let a torchvision that was built for another torch be imported: programs that need none of its operators run, the others get its own
    message. `pip install torchvision` gives a wheel that loads CUDA's libraries, also beside a torch without them."""
    if not extension._has_ops():
        from irscope.frontends.zoo.packages import declare_operators

        declare_operators()


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
            hint = "--allow-unknown-kernels counts what it makes" if fake is not None else "torch.library.register_fake tells what it makes"
            raise UnknownKernel(f"the kernel of operator {op._qualname} does not run here ({reason}); {hint}")
        kernels.tell_unknown(op._qualname)
        return fake(*args, **kwargs)

    return run


_GENERATION: Final = "transformers/generation/utils.py"


def value_in_generation(frame: FrameType | None, value: Any) -> Any:
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


def _extensions(kernels: Kernels) -> None:
    """Extensions are compiled at run time by these functions; those of the host alone work as ever."""
    from torch.utils import cpp_extension

    module: Any = cpp_extension

    def stood_in(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(name: str, *args: Any, **kwargs: Any) -> Any:
            sources = kwargs.get("sources", args[0] if args and original.__name__ == "load" else ())
            sources = [sources] if isinstance(sources, str) else list(sources or ())
            if kwargs.get("cuda_sources") or kwargs.get("with_cuda") or any(str(one).endswith((".cu", ".cuh")) for one in sources):
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
    """What a function returned of which nobody knows what that is; who looks at it is told."""

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
        raise UnknownKernel(next(one._reason for one in args if isinstance(one, _NoResult)))


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
