"""Settings that decide about memory: what a simulated program uses, and what it would do with another setting, from outside of it."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from irscope.errors import UsageError
from irscope.frontends.eager import internals
from irscope.frontends.eager.recorder import around_compilations

NAMES: Final = (
    "ddp.gradient_as_bucket_view", "ddp.static_graph", "ddp.bucket_cap_mb", "fsdp.reshard_after_forward", "fsdp.param_dtype",
    "fsdp.reduce_dtype", "optimizer.foreach", "optimizer.fused", "zero_grad.set_to_none", "checkpoint", "compile.activation_memory_budget",
    "compile.donated_buffer", "compile.reorder_for_peak_memory", "compile.cudagraphs",
)  # fmt: skip
"""Names that `--set` accepts."""
_DTYPES: Final = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
_BUDGET: Final = "activation_memory_budget"
_PARTITIONER: Final = (_BUDGET, "donated_buffer")
"""Settings of `torch._functorch.config`; the other ones of a compiled program are Inductor's."""
_INDUCTOR: Final = {"reorder_for_peak_memory": "reorder_for_peak_memory", "cudagraphs": "triton.cudagraphs"}
_FSDP2: Final = "torch.distributed.fsdp._fully_shard._fully_shard"


# -- what a program uses ---------------------------------------------------------------------------------------------------


def uses_of(roots: Iterable[nn.Module], optimizers: Iterable[Any]) -> dict[str, Any]:
    """Return the settings of the modules and optimizers that are there."""
    uses: dict[str, Any] = {}
    wrapped: Any = getattr(sys.modules.get(_FSDP2), "FSDPModule", None)
    for module in dict.fromkeys(module for root in roots for module in nn.Module.modules(root)):
        if isinstance(module, DistributedDataParallel):
            uses["ddp"] = {
                "gradient_as_bucket_view": bool(module.gradient_as_bucket_view),
                "static_graph": bool(module.static_graph),
                "bucket_cap_mb": module.bucket_bytes_cap / (1 << 20),
            }
        elif wrapped is not None and isinstance(module, wrapped):
            used = uses.setdefault("fsdp", {"modules": 0, "shards": 1, "reshard_after_forward": [], "param_dtype": []})
            _note_sharded(used, module, any(isinstance(module, wrapped) for module in list(nn.Module.modules(module))[1:]))
    for optimizer in optimizers:
        group = optimizer.param_groups[0]
        used = uses.setdefault("optimizer", {})
        used[type(optimizer).__name__] = {key: group[key] for key in ("foreach", "fused") if key in group}
    return uses


def _note_sharded(used: dict[str, Any], module: Any, holds_others: bool) -> None:
    state = module._get_fsdp_state()
    groups = list(getattr(state, "_fsdp_param_groups", None) or ())
    used["modules"] += 1
    for group in groups:
        used["shards"] = max(used["shards"], int(group.mesh_info.shard_mesh_size))
        for dtype in internals.fsdp_param_dtypes(group):
            known = next((name for name, one in _DTYPES.items() if one == dtype), None if dtype is None else str(dtype))
            if known not in used["param_dtype"]:
                used["param_dtype"].append(known)
        after = group.post_forward_mesh_info
        reshard = False if after is None else True if after == group.mesh_info else int(after.shard_mesh_size)
        if not holds_others and reshard not in used["reshard_after_forward"]:
            used["reshard_after_forward"].append(reshard)


def class_of(module: nn.Module) -> str:
    """Return the class that a module was made as; FSDP2 puts one of its own before that. Empty for the classes of wrappers."""
    fsdp: Any = getattr(sys.modules.get(_FSDP2), "FSDPModule", None)
    made = type(module).__mro__[2] if fsdp is not None and isinstance(module, fsdp) else type(module)
    return "" if made.__module__.startswith("torch.distributed") else f"{made.__module__}.{made.__qualname__}"


def uses_of_compiler() -> dict[str, Any]:
    """Return the settings that hold while a graph is compiled; those that this version of torch has."""
    uses: dict[str, Any] = {}
    for key in (*_PARTITIONER, *_INDUCTOR):
        config: Any = importlib.import_module(f"torch.{'_functorch' if key in _PARTITIONER else '_inductor'}.config")
        name = _INDUCTOR.get(key, key)
        values = config.get_config_copy()
        if name in values:
            uses[key] = values[name]
    return uses


# -- other settings --------------------------------------------------------------------------------------------------------


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse a name and its value from `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if name not in NAMES or not equals or not value:
        raise UsageError(f"{text!r} is not a setting", code="IRS648", hint="NAME=VALUE; names are " + ", ".join(NAMES))
    if name == "checkpoint":
        return name, value
    if name.endswith("dtype"):
        if value not in _DTYPES:
            raise UsageError(f"FSDP does not compute with {value!r}", code="IRS648", hint=", ".join(_DTYPES))
        return name, _DTYPES[value]
    if name == f"compile.{_BUDGET}":
        return name, _budget(value)
    words = {"true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    if name in ("ddp.bucket_cap_mb", "fsdp.reshard_after_forward") and value.isdecimal() and int(value):
        return name, int(value)
    raise UsageError(f"{value!r} is not a value of {name}", code="IRS648", hint="True, False, or a number where it takes one")


def _budget(text: str) -> float:
    try:
        budget = float(text)
    except ValueError:
        budget = math.nan
    if not 0 <= budget <= 1:
        message = f"{text!r} is not an activation memory budget"
        raise UsageError(message, code="IRS648", hint="a share from 0, nothing is kept, to 1, what the partitioner keeps by itself")
    return budget


class Changes:
    """Settings that hold instead of the program's own. They are applied where torch reads them, so that the program stays as it is."""

    def __init__(self, settings: Iterable[str]) -> None:
        self.applied = {text: 0 for text in settings}
        """Number of times that each was used instead of the program's own value."""
        self._undo: list[Callable[[], None]] = []
        self._wanted: dict[str, dict[str, tuple[str, Any]]] = {}
        for text in self.applied:
            name, value = parse_setting(text)
            subject, _, key = name.partition(".")
            self._wanted.setdefault(subject, {})[key or value] = (text, value)
        """By subject and key: the text and the value."""

    def install(self) -> None:
        """Apply the settings from here on."""
        methods = {
            "ddp": self._ddp,
            "fsdp": self._fsdp,
            "optimizer": self._optimizer,
            "zero_grad": self._zero_grad,
            "compile": self._compile,
        }
        for subject, wanted in self._wanted.items():
            if subject == "checkpoint":
                self._checkpoint(wanted)
            else:
                methods[subject](wanted)

    def close(self) -> None:
        """Undo all changes."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before))

    def _ddp(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        original: Any = DistributedDataParallel.__init__
        signature = inspect.signature(original)

        def init(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            for key, (text, value) in wanted.items():
                bound.arguments[key] = value
                self.applied[text] += 1
            original(*bound.args, **bound.kwargs)

        self._replace(DistributedDataParallel, "__init__", functools.wraps(original)(init))

    def _fsdp(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        made: Any = importlib.import_module(_FSDP2)
        original: Any = made.fully_shard

        def fully_shard(module: Any, **kwargs: Any) -> Any:
            first = module[0] if isinstance(module, list) else module
            if "reshard_after_forward" in wanted and not any(isinstance(module, made.FSDPModule) for module in nn.Module.modules(first)):
                text, kwargs["reshard_after_forward"] = wanted["reshard_after_forward"]
                self.applied[text] += 1
            types = {key: value for key, (_, value) in wanted.items() if key.endswith("dtype")}
            if types:
                policy = kwargs.get("mp_policy") or made.MixedPrecisionPolicy()
                kwargs["mp_policy"] = type(policy)(
                    **{key: types.get(key, getattr(policy, key)) for key in ("param_dtype", "reduce_dtype", "output_dtype")},
                    cast_forward_inputs=policy.cast_forward_inputs,
                )
                for key in types:
                    self.applied[wanted[key][0]] += 1
            return original(module, **kwargs)

        fully_shard.state = original.state  # type: ignore[attr-defined]  # FSDP's code asks the function for it
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.distributed") and getattr(module, "fully_shard", None) is original:
                self._replace(module, "fully_shard", fully_shard)

    def _optimizer(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if optimizer.state:
                return
            for group in optimizer.param_groups:
                for key, (text, value) in wanted.items():
                    if key in group:
                        # Only one of them may be asked for.
                        group.update({"foreach": False, "fused": False} if value else {}, **{key: value})
                        optimizer._step_supports_amp_scaling = bool(group.get("fused"))
                        self.applied[text] += 1

        self._undo.append(register_optimizer_step_pre_hook(before).remove)

    def _zero_grad(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        [(text, value)] = wanted.values()
        for owner in (torch.optim.Optimizer, nn.Module):
            original: Any = owner.zero_grad

            def zero_grad(one: Any, set_to_none: bool = True, *, original: Any = original) -> None:
                self.applied[text] += 1
                original(one, set_to_none=value)

            self._replace(owner, "zero_grad", zero_grad)

    def _compile(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        """Apply the settings at each compilation, in place of the program's own or the arguments of `torch.compile`."""
        configs: dict[str, Any] = {
            key: importlib.import_module(f"torch.{'_functorch' if key in _PARTITIONER else '_inductor'}.config") for key in wanted
        }
        for key in wanted:
            name = _INDUCTOR.get(key, key)
            if name not in configs[key].get_config_copy():
                raise UsageError(f"torch {torch.__version__} has no setting {name}", code="IRS648", hint="a later version of torch")

        before = {key: configs[key].get_config_copy()[_INDUCTOR.get(key, key)] for key in wanted}

        def begins() -> None:
            for key, (text, value) in wanted.items():
                configs[key].load_config({_INDUCTOR.get(key, key): value})
                self.applied[text] += key != _BUDGET

        self._undo.append(around_compilations(begins, lambda: None))
        for key, value in before.items():
            self._undo.append(functools.partial(configs[key].load_config, {_INDUCTOR.get(key, key): value}))
        self._give_to_inductor({_INDUCTOR[key]: value for key, (_, value) in wanted.items() if key in _INDUCTOR})
        if _BUDGET in wanted:
            self._count_divided(wanted[_BUDGET][0])

    def _give_to_inductor(self, options: Mapping[str, Any]) -> None:
        """Let the arguments of `torch.compile` win over what is set for all."""
        wrapper: Any = torch._TorchCompileInductorWrapper
        original = wrapper.__init__

        def init(one: Any, *args: Any, **kwargs: Any) -> None:
            original(one, *args, **kwargs)
            one.config.update(options)

        self._replace(wrapper, "__init__", init)

    def _count_divided(self, text: str) -> None:
        """Count each graph with a backward, to which a budget applies."""
        partitioners: Any = importlib.import_module("torch._functorch.partitioners")
        original = partitioners.choose_saved_values_set

        def choose(*args: Any, **kwargs: Any) -> Any:
            self.applied[text] += 1
            return original(*args, **kwargs)

        self._replace(partitioners, "choose_saved_values_set", choose)

    def _checkpoint(self, wanted: Mapping[str, tuple[str, Any]]) -> None:
        from torch.utils.checkpoint import checkpoint

        kind: Any = nn.Module
        called = kind._call_impl
        seen: set[type] = set()

        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            made = type(module)
            if made not in seen:
                seen.add(made)
                name = class_of(module)
                owner = next((one for one in made.__mro__ if f"{one.__module__}.{one.__qualname__}" == name), None)
                if name in wanted and owner is not None and (owner is made or owner not in seen):
                    seen.add(owner)
                    self._keep_inputs_alone(owner, wanted[name][0], checkpoint)
            return called(module, *args, **kwargs)

        self._replace(kind, "_call_impl", call)

    def _keep_inputs_alone(self, owner: Any, text: str, checkpoint: Callable[..., Any]) -> None:
        """Compute what a class' forward makes once more in the backward. Hooks, such as those of FSDP, are around it."""
        original = owner.forward
        inside = False

        def forward(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not torch.is_grad_enabled():
                return original(module, *args, **kwargs)
            self.applied[text] += 1
            return checkpoint(once, module, *args, use_reentrant=False, **kwargs)

        def once(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            before, inside = inside, True
            try:
                return original(module, *args, **kwargs)
            finally:
                inside = before

        if "forward" in vars(owner):
            self._replace(owner, "forward", forward)
        else:
            owner.forward = forward
            self._undo.append(lambda: delattr(owner, "forward"))
