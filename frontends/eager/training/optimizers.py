"""Optimizers over fake parameters: by name, by a function that makes one, or like one that the user has."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from irscope.errors import UsageError
from irscope.frontends.eager.fakes import Fakes

Maker = Callable[[Any], torch.optim.Optimizer]
_MOMENTUM = 0.9


def _named(name: str, options: dict[str, Any]) -> Maker:
    def make(parameters: Any) -> torch.optim.Optimizer:
        if name in ("sgd", "momentum"):
            return torch.optim.SGD(parameters, lr=1e-3, momentum=_MOMENTUM if name == "momentum" else 0.0, **options)
        kinds = {one.lower(): getattr(torch.optim, one) for one in dir(torch.optim) if one[0].isupper() and one != "Optimizer"}
        return kinds[name](parameters, lr=1e-3, **options)  # type: ignore[no-any-return]

    return make


def names() -> list[str]:
    """Optimizers that can be named."""
    unusual = {"optimizer", "lbfgs", "sparseadam"}  # they call the model again, or want sparse gradients
    return sorted({"momentum", *(one.lower() for one in dir(torch.optim) if one[0].isupper())} - unusual)


def maker_of(optimizer: str | Maker | torch.optim.Optimizer, fakes: Fakes, options: dict[str, Any]) -> Maker:
    """What makes the optimizer once the parameters are fake."""
    if isinstance(optimizer, str):
        if optimizer.lower() not in names():
            raise UsageError(f"there is no optimizer {optimizer!r}", code="IRS373", hint=f"one of {', '.join(names())}")
        return _named(optimizer.lower(), options)
    if isinstance(optimizer, torch.optim.Optimizer):
        mine = optimizer
        return lambda _: _like(mine, fakes)
    if callable(optimizer):
        return _checked(optimizer)
    raise UsageError("the optimizer must be a name, an optimizer, or a function of the parameters", code="IRS373")


def _checked(maker: Maker) -> Maker:
    """A user's function, which must make an optimizer."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        made = maker(parameters)
        if not isinstance(made, torch.optim.Optimizer):
            raise UsageError(
                f"the optimizer's function returns {type(made).__name__}, not an optimizer",
                code="IRS373",
                hint="lambda parameters: torch.optim.AdamW(parameters)",
            )
        return made

    return make


def _like(optimizer: torch.optim.Optimizer, fakes: Fakes) -> torch.optim.Optimizer:
    """The same optimizer over fake parameters, with fake states where it has states."""
    made = copy.copy(optimizer)
    made.param_groups = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": [fakes.tensor(one) for one in group["params"]]}
        for group in optimizer.param_groups
    ]
    made.state = defaultdict(dict)
    for parameter, state in optimizer.state.items():
        made.state[fakes.tensor(parameter)] = fakes.all(dict(state))
    return made


@contextmanager
def fused_and_foreach() -> Iterator[None]:
    """Optimizers choose between foreach and single-tensor loops for fake parameters as for real ones."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer as module

    listed: list[Any] = module._foreach_supported_types
    new = [kind for kind in (FakeTensor, nn.Parameter) if kind not in listed]
    listed.extend(new)
    try:
        yield
    finally:
        for kind in new:
            listed.remove(kind)


@contextmanager
def watched_steps(entered: Callable[[torch.optim.Optimizer], None], left: Callable[[], None]) -> Iterator[None]:
    """A context in which functions are called before and after every optimizer step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        entered(optimizer)

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        left()

    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
