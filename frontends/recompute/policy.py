"""Applies plans to live modules: each region runs under `torch.utils.checkpoint` with a selective policy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from irscope.errors import UsageError

Occurrence = tuple[str, int]
"""An operator by name, and the how-manieth call of it within its region."""

_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
"""Operators that update running statistics, though their schemas do not say so."""
_STATISTICS = (3, 4)


@dataclass(frozen=True)
class RegionPolicy:
    """One module to be checkpointed: what is saved; everything else in it runs again in the backward."""

    module: str
    save: frozenset[Occurrence]


@contextmanager
def checkpointed(module: nn.Module, policies: Sequence[RegionPolicy]) -> Iterator[nn.Module]:
    """Within the context the module recomputes as the policies say; it is the user's own module, and so are its parameters."""
    undo = apply_policies(module, policies)
    try:
        yield module
    finally:
        undo()


def apply_policies(module: nn.Module, policies: Sequence[RegionPolicy]) -> Callable[[], None]:
    """Make a module recompute as the policies say; what is returned undoes that."""
    inner = dict(module.named_modules())
    missing = [one.module for one in policies if one.module not in inner]
    if missing:
        raise UsageError(f"the module has no submodule {missing[0]!r}", code="IRS391", hint="the plan is for another model")
    before: list[tuple[nn.Module, bool, Any]] = []
    for policy in policies:
        target = inner[policy.module]
        before.append((target, "forward" in vars(target), vars(target).get("forward")))
        target.forward = partial(_run, target, target.forward, policy.save)

    def undo() -> None:
        for target, was_set, forward in reversed(before):
            if was_set:
                target.forward = forward
            else:
                del target.forward

    return undo


def _run(module: nn.Module, forward: Callable[..., Any], save: frozenset[Occurrence], *args: Any, **kwargs: Any) -> Any:
    if not (torch.is_grad_enabled() and module.training):
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, context_fn=partial(_contexts, module, save), **kwargs)


def _contexts(module: nn.Module, save: frozenset[Occurrence]) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    seen: Counter[str] = Counter()

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = str(operator)
        seen[name] += 1
        return CheckpointPolicy.MUST_SAVE if (name, seen[name] - 1) in save else CheckpointPolicy.PREFER_RECOMPUTE

    first, again = create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=True)
    states: dict[str, list[Any]] = defaultdict(list)
    return _both(_Draws(save, states), first), _both(_Replays(module, states), again)


@contextmanager
def _both(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        yield


class _Draws(TorchDispatchMode):
    """In the forward: remembers the generator's state before each random operator that will run again.

    Those that are saved do not run again, so that a generator set once for the whole region would go out of step.
    """

    def __init__(self, save: frozenset[Occurrence], states: dict[str, list[Any]]) -> None:
        begin: Any = super().__init__
        begin()
        self.save = save
        self.states = states
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            name = str(func)
            if (name, self.seen[name]) not in self.save:
                self.states[name].append(_generator_state(args))
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


class _Replays(TorchDispatchMode):
    """When a region runs again: random numbers are drawn as before, and buffers are not updated a second time."""

    def __init__(self, module: nn.Module, states: dict[str, list[Any]]) -> None:
        begin: Any = super().__init__
        begin()
        self.buffers = {id(one) for one in module.buffers()}
        self.states = states
        self.seen: Counter[str] = Counter()
        self.before: dict[torch.device, Any] = {}
        """States of generators when the region began to run again, to be put back."""

    def __exit__(self, *details: Any) -> None:
        for state in self.before.items():
            _set_generator(state)
        end: Any = super().__exit__
        end(*details)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        name = str(func)
        if torch.Tag.nondeterministic_seeded in func.tags:
            state = self.states[name][self.seen[name]]
            if state is not None:
                self.before.setdefault(*_state_of(state[0]))
                _set_generator(state)
            self.seen[name] += 1
        written = {at for at, one in enumerate(func._schema.arguments) if one.alias_info is not None and one.alias_info.is_write}
        if func._schema.name.partition("::")[2] in _NORMS:
            written.update(_STATISTICS)
        if written:
            args = tuple(one.clone() if at in written and id(one) in self.buffers else one for at, one in enumerate(args))
        return func(*args, **(kwargs or {}))


def _generator_state(args: Sequence[Any]) -> tuple[torch.device, Any] | None:
    """The state of the generator for an operator; tensors without data have none."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    if any(isinstance(one, FakeTensor) for one in given):
        return None
    return _state_of(given[0].device if given else torch.device("cpu"))


def _state_of(device: torch.device) -> tuple[torch.device, Any]:
    with torch.utils._python_dispatch._disable_current_modes():
        return device, torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_generator(state: tuple[torch.device, Any]) -> None:
    device, numbers = state
    with torch.utils._python_dispatch._disable_current_modes():
        if device.type == "cuda":
            torch.cuda.set_rng_state(numbers, device)
        else:
            torch.set_rng_state(numbers)
