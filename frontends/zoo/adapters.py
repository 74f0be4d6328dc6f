"""Adapters on a module: what peft puts beside the layers of a model, made here so that peft need not be installed.

Forward, element types and names of parameters are those of peft 0.21 (`peft/tuners/lora/layer.py`, `peft/utils/other.py`).
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from irscope.errors import LoadError, UsageError
from irscope.frontends.files.folders import Adapter, Pair, stored_sizes
from irscope.frontends.generation.quantised import PackedLinear, held_by_scheme, kept_by_default, replace_linears
from irscope.frontends.torch_lowering.dtypes import torch_dtype
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.types import tensor
from irscope.weights.schemes import Scheme


class _Beside(nn.Module):
    """A layer with two matrices beside it, whose product is added to what it gives."""

    def __init__(self, layer: nn.Module, pair: Pair, scaling: float, dropout: float) -> None:
        super().__init__()
        self.base_layer = layer
        device = next((value.device for value in layer.parameters()), torch.device("cpu"))
        down, up = (torch.empty(stored_sizes(one), dtype=_dtype_in_memory(one.dtype), device=device) for one in (pair.down, pair.up))
        self._dtype = down.dtype
        self._looks_up = isinstance(layer, nn.Embedding)
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(dropout) if dropout else nn.Identity()})
        if self._looks_up:
            self.lora_embedding_A = nn.ParameterDict({"default": nn.Parameter(down)})
            self.lora_embedding_B = nn.ParameterDict({"default": nn.Parameter(up)})
        else:
            self.lora_A, self.lora_B = (nn.ModuleDict({"default": _linear(one)}) for one in (down, up))
        self.scaling = scaling

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base_layer"), name)  # the code of models asks layers for their weight or their sizes

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = self.base_layer(x, *args, **kwargs)
        dtype = result.dtype
        if isinstance(self.base_layer, PackedLinear):
            # `peft/tuners/lora/bnb.py`: a copy of its own, and the product in the type of the result.
            down, up, dropout = self.lora_A["default"], self.lora_B["default"], self.lora_dropout["default"]
            given = x if torch.is_autocast_enabled("cuda") else x.to(self._dtype)
            beside: Tensor = up(down(dropout(given))) * self.scaling
            return result.clone() + (beside if torch.is_autocast_enabled("cuda") else beside.to(dtype))
        if self._looks_up:
            result = result + (F.embedding(x, self.lora_embedding_A["default"].T) @ self.lora_embedding_B["default"].T) * self.scaling
        else:
            down, up, dropout = self.lora_A["default"], self.lora_B["default"], self.lora_dropout["default"]
            result = result + up(down(dropout(x.to(self._dtype)))) * self.scaling
        return result.to(dtype)


class _Copied(nn.Module):
    """A module of which an adapter has a copy of its own, which runs in its place."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.original_module = module
        self.modules_to_save = nn.ModuleDict({"default": deepcopy(module).requires_grad_(True)})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.modules_to_save["default"](*args, **kwargs)


def _linear(weight: Tensor) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    made.weight = nn.Parameter(weight)
    return made


def _dtype_in_memory(dtype: DType) -> torch.dtype | None:
    """peft holds adapters that are stored in 16 bits in f32, unless it is told not to."""
    return torch.float32 if dtype in (DType.F16, DType.BF16) else torch_dtype(dtype)


def put_on(module: nn.Module, adapter: Adapter) -> None:
    """Put an adapter on a module of its base, on the device where this is. As with peft, of the whole only the adapter is trained."""
    module.requires_grad_(False)
    parts = dict(module.named_modules())
    beside = list(adapter.pairs) or [path for path in parts if adapter.is_beside(path)]
    dropout = adapter.settings.get("lora_dropout")
    copied = adapter.settings.get("modules_to_save")
    for path in beside:
        layer = parts.get(path)
        pair = adapter.pairs.get(path)
        if layer is None:
            raise _unfit(adapter, f"it is beside {path[:80]!r}, which its base {adapter.base[:80]!r} does not have")
        sizes = _sizes_of(layer)
        if sizes is None:
            raise _unfit(adapter, f"it is beside {path[:80]!r}, a {type(layer).__name__}, which is not read")
        inputs, outputs = sizes
        rank = adapter.rank_of(path) if pair is None else pair.rank
        pair = pair or Pair(tensor(DType.F32, (rank, inputs)), tensor(DType.F32, (outputs, rank)))
        if (pair.down.shape, pair.up.shape) != ((rank, inputs), (outputs, rank)):
            raise _unfit(adapter, f"its matrices beside {path[:80]!r} are {pair.down} and {pair.up}, the layer is {outputs}x{inputs}")
        _set_part(parts, path, _Beside(layer, pair, adapter.scaling_of(path), float(dropout) if isinstance(dropout, int | float) else 0.0))
    if not beside:
        raise _unfit(adapter, f"no module of {adapter.base[:80]!r} is called as its target_modules say")
    for name in copied if isinstance(copied, list) else ():
        for path in [path for path in parts if path == name or path.endswith(f".{name}")]:
            _set_part(parts, path, _Copied(parts[path]))


@immutable(slots=False)
class Lora:
    """Low-rank matrices that are trained beside the layers of a model whose own weights are frozen."""

    rank: int = 8
    alpha: float = 8.0
    targets: tuple[str, ...] = ()
    """Ends of the names of layers; empty for all linear ones but that of the logits."""
    dropout: float = 0.0

    def __str__(self) -> str:
        return f"rank {self.rank} beside {', '.join(self.targets) or 'all linear layers'}"


def tune(module: nn.Module, lora: Lora, where: str) -> None:
    """Freeze a module, and put new matrices beside its layers."""
    names = {name for name, one in module.named_modules() if isinstance(one, nn.Linear | PackedLinear)}
    targets = lora.targets or tuple(sorted(names - kept_by_default(module, _ALL)))
    settings = {"lora_dropout": lora.dropout}
    put_on(module, Adapter(Path(where), where, "--lora", lora.rank, lora.alpha, targets, settings, None))


def store(module: nn.Module, scheme: Scheme, where: str) -> str:
    """Hold the frozen weights of linear layers in few bits, and say which kernels run them; matrices of adapters, and copies that they
    train, stay as they are."""
    frozen = (value.dtype for value in module.parameters() if not value.requires_grad and value.is_floating_point())
    dtype = next(frozen, torch.float32)
    own = {name for name, _ in module.named_modules() if ".lora_" in name or "modules_to_save" in name}
    held = held_by_scheme(module, scheme, kept_by_default(module, scheme) | own, dtype)
    if not held:
        raise UsageError(f"no linear layer can be stored as {scheme.text}", code="IRS432", where=where)
    replace_linears(module, held, where)
    return next(iter(held.values())).kernel.name


_ALL: Final = Scheme("none")
"""Of which only is asked what stays as it is."""


def _sizes_of(layer: nn.Module) -> tuple[int, int] | None:
    """Return the features in and out of a layer that can have matrices beside it."""
    if isinstance(layer, nn.Linear | PackedLinear):
        return layer.in_features, layer.out_features
    if isinstance(layer, nn.Embedding):
        return layer.num_embeddings, layer.embedding_dim
    weight = getattr(layer, "weight", None)
    if type(layer).__name__ == "Conv1D" and isinstance(weight, Tensor):  # transformers' own linear layer of GPT-2, stored turned
        return weight.shape[0], weight.shape[1]
    return None


def _set_part(parts: dict[str, nn.Module], path: str, by: nn.Module) -> None:
    owner, _, name = path.rpartition(".")
    setattr(parts[owner], name, by)


def _unfit(adapter: Adapter, message: str) -> LoadError:
    return LoadError(message, code="IRS168", where=str(adapter.folder), hint="--base FOLDER names another base")
