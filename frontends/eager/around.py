"""Wrappers, hooks and compiled code: named where the plain module is analysed instead, refused where that is impossible."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils._pytree import tree_leaves

from irscope.errors import UsageError
from irscope.ir.program import Assumed

WHAT = "execution"
_NAMED = 3
_COMPILED = "_torchdynamo_orig_callable"
"""Attribute that torch.compile sets on functions that it wraps."""
_GRAPHED = "torch.cuda.graphs"
_SHARDING = {
    "torch.distributed.fsdp._fully_shard": "fully_shard",
    "torch.distributed.fsdp": "FSDP",
    "deepspeed": "DeepSpeed",
    "fairscale": "FairScale",
    "megatron": "Megatron",
}
"""Packages whose modules hold a shard of the weights and gather the others, by their usual names."""
_DTENSOR = "torch.distributed.tensor"
_WHOLE = "give the module as it was before"


def check_whole(module: nn.Module, inputs: Any) -> None:
    """Raise UsageError for modules whose weights are sharded over processes or devices: no device runs the whole module."""
    for name, part in module.named_modules():
        package = _package(type(part), _SHARDING)
        if package:
            said = f"{_called(name)} is sharded by {_SHARDING[package]}, which gathers its weights while it runs"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=f"{_WHOLE} it was wrapped or sharded")
        hook = getattr(part, "_hf_hook", None)
        if hook is not None:
            said = f"{_called(name)} has a hook of accelerate ({_hook_name(hook)}, as device_map leaves it), which moves weights and inputs"
            hint = "load the model without device_map, or accelerate.hooks.remove_hook_from_submodules(module)"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=hint)
    tensors = itertools.chain(module.named_parameters(), module.named_buffers(), (("an input", leaf) for leaf in tree_leaves(inputs)))
    for name, tensor in tensors:
        if isinstance(tensor, torch.Tensor) and _package(type(tensor), (_DTENSOR,)):
            said = f"{name} is a DTensor, of which each process holds a part (fully_shard, tensor parallelism)"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=f"{_WHOLE} its weights were distributed")


def around(module: nn.Module, *, grad: bool) -> Iterator[Assumed]:
    """What would run besides or instead of the module's own operators, each with what is analysed instead."""
    parts = list(module.named_modules())
    compiled = [name for name, part in parts if _is_compiled(part)]
    if compiled:
        yield Assumed(
            WHAT,
            "eager",
            f"torch.compile replaces {_listed(compiled)}; the code that it generates, its fusions and its memory are not analysed",
        )
    graphed = [name for name, part in parts if _module_of(vars(part).get("forward")) == _GRAPHED]
    if graphed:
        yield Assumed(WHAT, "eager", f"{_listed(graphed)} replays a CUDA graph, whose memory pool is not analysed")
    for kind, does in (
        (nn.parallel.DistributedDataParallel, "exchanges gradients between processes; its buckets and the communication are not analysed"),
        (nn.DataParallel, "spreads the batch over devices; its copies of the weights are not analysed"),
    ):
        wrapped = [name for name, part in parts if isinstance(part, kind)]
        if wrapped:
            yield Assumed(WHAT, "one process, one device", f"{kind.__name__} around {_listed(wrapped)} {does}")
    hooked = [name for name, part in parts if any(map(_is_foreign, _hooks(part, grad)))]
    if hooked:
        why = f"{_kind(grad)} on {_listed(hooked)} ran once without data; what they do and keep is counted as a part of the model"
        yield Assumed(WHAT, "with hooks", why)
    if any(map(_is_foreign, _global_hooks())):
        yield Assumed(
            WHAT, "with hooks", "hooks on all modules ran once without data; what they do and keep is counted as a part of the model"
        )
    waiting = [name for name, one in module.named_parameters() if one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None)]
    if grad and waiting:
        why = f"hooks on gradients of {_listed(waiting)}, such as an optimizer in the backward, are not run"
        yield Assumed(WHAT, "without hooks of parameters", why)


def _kind(grad: bool) -> str:
    return "hooks" if grad else "forward hooks"


def _is_compiled(part: nn.Module) -> bool:
    """Whether torch.compile applies to the module: to itself, its forward, or a function that its forward refers to."""
    if part._compiled_call_impl is not None or type(part).__module__ == "torch._dynamo.eval_frame":
        return True
    forward = vars(part).get("forward", type(part).forward)
    if hasattr(forward, _COMPILED) or any(hasattr(one, _COMPILED) for one in vars(part).values() if callable(one)):
        return True
    function = getattr(forward, "__func__", forward)
    if not isinstance(function, FunctionType) or function.__module__.startswith("torch."):
        return False
    return any(_wrapped(function.__globals__.get(name)) for name in _mentioned(function.__code__))


def _wrapped(item: Any) -> bool:
    return isinstance(item, FunctionType) and hasattr(item, _COMPILED)


def _mentioned(code: CodeType) -> Iterator[str]:
    """Global names used by a function and by those defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _mentioned(constant)


def _hooks(part: nn.Module, grad: bool) -> Iterable[Callable[..., Any]]:
    found = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
    return [*found, *part._backward_hooks.values(), *part._backward_pre_hooks.values()] if grad else found


def _global_hooks() -> Sequence[Callable[..., Any]]:
    return [*torch_module._global_forward_hooks.values(), *torch_module._global_forward_pre_hooks.values()]


def _is_foreign(hook: Callable[..., Any]) -> bool:
    """Whether a hook is the user's, not torch's own such as those of weight_norm and pruning, whose operators count as the model's."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return not _module_of(hook).startswith("torch.")


def _module_of(item: Any) -> str:
    """The module that a function, a bound method's class or a callable object comes from."""
    found = getattr(item, "__module__", None) if isinstance(item, FunctionType) or hasattr(item, "__self__") else type(item).__module__
    return "" if item is None else str(found or "")


def _package(kind: type, packages: Iterable[str]) -> str:
    """The first of these packages that a class or one of its bases is from."""
    homes = [base.__module__ for base in kind.__mro__]
    return next((package for package in packages for home in homes if home == package or home.startswith(f"{package}.")), "")


def _hook_name(hook: Any) -> str:
    inner = getattr(hook, "hooks", ())
    return ", ".join(dict.fromkeys(type(one).__name__ for one in inner)) or type(hook).__name__


def _called(name: str) -> str:
    return f"module {name}" if name else "the module"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name or "the whole module" for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED:,} more" if len(names) > _NAMED else shown
