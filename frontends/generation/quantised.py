"""Linear layers whose weights are held in few bits: what they hold, and what their kernels take besides.

The packages that bring the kernels need not be installed. Their host code was read instead: what is held is what they keep on the device;
what a forward takes is modelled after the code that each kernel's text names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from irscope.errors import LoadError
from irscope.frontends.files.folders import Tensors
from irscope.frontends.torch_lowering.dtypes import torch_dtype
from irscope.immutable import immutable
from irscope.ir.graph import Role
from irscope.ir.program import WEIGHTS, Assumed, PackedPart, Program
from irscope.weights.schemes import FAMILIES, Packed, PackedWeight, Scheme, Shaped, scheme_in


@immutable(slots=False)
class Kernel:
    """Kernel by which a layer computes with its codes."""

    name: str
    """Whose code was read, and what it does, as reports say it."""
    run: Callable[[PackedLinear, Tensor], Tensor]
    unpacks: bool = False
    """True where the codes are unpacked into plain weights before the first forward, and stay so."""


@immutable(slots=False)
class Held:
    """Tensors that a linear layer holds in the place of its weight."""

    module: str
    scheme: str
    kernel: Kernel
    parts: Mapping[str, Shaped]
    """By the name of the parameter, with the name of a tensor in the checkpoint's own words where there is one."""
    count: int
    """Weights that it stands for."""
    dtype: torch.dtype
    """In which it computes."""
    group: int = 0
    """Weights that share a scale, where the kernel needs it."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of tensors in the checkpoint by those of parameters."""
    dropped: tuple[str, ...] = ()
    """Tensors of the checkpoint that are read into the host's memory."""


class PackedLayer(nn.Module):
    """A layer with codes for weights."""

    def __init__(self, held: Held, device: torch.device) -> None:
        super().__init__()
        self.held = held
        for name, (type_, shape) in held.parts.items():
            made = torch.empty(shape, dtype=_held_dtype(type_), device=device)
            self.register_parameter(name, nn.Parameter(made, requires_grad=False))


class PackedLinear(PackedLayer):
    """A linear layer with codes for weights."""

    def __init__(self, inputs: int, outputs: int, held: Held, device: torch.device, *, bias: bool) -> None:
        super().__init__(held, device)
        self.in_features, self.out_features = inputs, outputs
        self.compute_dtype = held.dtype
        self.bias = nn.Parameter(torch.empty(outputs, dtype=held.dtype, device=device), requires_grad=False) if bias else None
        if "weight_nested_absmax" in held.parts:  # what is added to the scales is one number on the device
            self.register_buffer("offset", torch.empty((), dtype=torch.float32, device=device), persistent=False)
        self.is_counted = False
        """True where its product counts as an operator of a captured graph, not only as memory."""
        self.unpacked: Tensor | None = None
        """The plain weight, once there is one."""

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, scheme={self.held.scheme}"

    def forward(self, x: Tensor) -> Tensor:
        if self.unpacked is not None:
            return F.linear(x, self.unpacked, self.bias)
        return self.held.kernel.run(self, x)

    def stored(self) -> list[Tensor]:
        """Return what stands for the weight."""
        return [getattr(self, name) for name in (*self.held.parts, *self._buffers)]

    def unpack(self) -> None:
        """Make the plain weight, and let go of the codes."""
        device = next(self.parameters()).device
        self.unpacked = torch.empty(self.out_features, self.in_features, dtype=self.compute_dtype, device=device)
        for name in self.held.parts:
            self._parameters.pop(name)


class PackedExperts(PackedLayer):
    """Experts of a mixture in one tensor, as gpt-oss has them in MXFP4."""

    def __init__(self, before: nn.Module, held: Held, device: torch.device) -> None:
        super().__init__(held, device)
        self._inner = int(before.get_parameter("down_proj").shape[1])
        for name, one in before.named_parameters(recurse=False):
            if name.endswith("_bias"):
                self.register_parameter(name, one)

    def forward(self, x: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        rows = _row_count(x) * indices.shape[-1]
        bias = self.gate_up_proj_bias.to(torch.float32)
        inner = torch.empty((rows, self._inner), dtype=x.dtype, device=x.device)
        del bias
        bias = self.down_proj_bias.to(torch.float32)
        routed = torch.empty((rows, x.shape[-1]), dtype=x.dtype, device=x.device)
        out = torch.empty_like(x)
        del bias, inner, routed
        return out


def _held_dtype(dtype: Any) -> torch.dtype:
    found = torch_dtype(dtype)
    if found is None:
        raise LoadError(f"torch has no tensors of {dtype.text}", code="IRS197")
    return found


# -- what kernels take besides -----------------------------------------------------------------------------------------

_FUSED_ROWS: Final = 4
"""Rows of activations up to which bitsandbytes' own kernel is used on every card (`_GEMM_4BIT_CUSTOM_FLOOR_M`, 0.50). More rows take it up
to a limit that depends on the card and the shape, at most 1,536: the whole weight is what they may take at most."""


def _row_count(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


_LIBRARY: Final = torch.library.Library("irscope", "DEF")
"""Has operators that stand for products with codes where a graph is captured, so that these are counted."""
_LIBRARY.define("packed_linear(Tensor x, Tensor? bias, Tensor[] parts, int inputs, int outputs, ScalarType? dtype=None) -> Tensor")
_LIBRARY.define("unpack_linear(Tensor[] parts, int inputs, int outputs, ScalarType dtype) -> Tensor")


def _packed_linear(x: Tensor, bias: Tensor | None, parts: Sequence[Tensor], inputs: int, outputs: int, dtype: Any = None) -> Tensor:
    return torch.empty((*x.shape[:-1], outputs), dtype=dtype or x.dtype, device=x.device)


def _unpack_linear(parts: Sequence[Tensor], inputs: int, outputs: int, dtype: Any) -> Tensor:
    return torch.empty((outputs, inputs), dtype=dtype, device=parts[0].device)


_LIBRARY.impl("packed_linear", _packed_linear, "CompositeExplicitAutograd")
_LIBRARY.impl("unpack_linear", _unpack_linear, "CompositeExplicitAutograd")


def _output(
    layer: PackedLinear, x: Tensor, beside: Sequence[Tensor] = (), dtype: torch.dtype | None = None, bias: Tensor | None = None
) -> Tensor:
    if not layer.is_counted:
        return torch.empty((*x.shape[:-1], layer.out_features), dtype=dtype or x.dtype, device=x.device)
    parts = [*layer.stored(), *beside]
    made: Tensor = torch.ops.irscope.packed_linear(x, bias, parts, layer.in_features, layer.out_features, dtype)
    return made


def _plain_weight(layer: PackedLinear, x: Tensor, beside: Sequence[Tensor] = ()) -> Tensor:
    if not layer.is_counted:
        return torch.empty((layer.out_features, layer.in_features), dtype=x.dtype, device=x.device)
    parts = [*layer.stored(), *beside]
    made: Tensor = torch.ops.irscope.unpack_linear(parts, layer.in_features, layer.out_features, x.dtype)
    return made


class _FourBit(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit: the codes are kept for the backward, which turns them into a plain weight once more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: PackedLinear) -> Tensor:
        ctx.layer, ctx.dtype = layer, x.dtype
        return _four_bit_product(layer, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        (grad,) = grads
        _, weight = _four_bit_plain(ctx.layer, grad, twice=False)
        return (torch.matmul(grad, weight.to(grad.dtype)) if ctx.needs_input_grad[0] else None), None


def _four_bit_plain(layer: PackedLinear, x: Tensor, *, twice: bool) -> tuple[tuple[Tensor, ...], Tensor]:
    """Scales as they are computed from nested ones, and the plain weight."""
    scales: tuple[Tensor, ...] = ()
    nested = getattr(layer, "weight_absmax", None)
    if nested is not None and nested.dtype is torch.uint8:
        absmax = torch.empty(nested.shape, dtype=torch.float32, device=x.device)
        scales = (absmax, absmax + 1) if twice else (absmax.add_(1),)
    return scales, _plain_weight(layer, x, scales)


def _four_bit_product(layer: PackedLinear, x: Tensor) -> Tensor:
    if _row_count(x) <= _FUSED_ROWS:
        return _output(layer, x, bias=layer.bias)
    scales, weight = _four_bit_plain(layer, x, twice=True)
    out = F.linear(x, weight, layer.bias)
    del scales
    return out


def _four_bit(layer: PackedLinear, x: Tensor) -> Tensor:
    given = x.dtype
    x = x.to(layer.compute_dtype)
    needs_grad = torch.is_grad_enabled() and x.requires_grad
    out = _FourBit.apply(x, layer) if needs_grad else _four_bit_product(layer, x)  # type: ignore[no-untyped-call]
    return out.to(given)


def _eight_bit(layer: PackedLinear, x: Tensor) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    half = flat.to(torch.float16)
    scales = torch.empty(flat.shape[0], dtype=torch.float32, device=x.device)
    codes = torch.empty(flat.shape, dtype=torch.int8, device=x.device)
    outliers = half.abs() >= 6.0  # llm_int8_threshold; that none are above it is taken
    del half
    whole = _output(layer, flat, (codes, scales, outliers), torch.int32)
    out = whole.to(torch.float16)
    del whole
    if layer.bias is not None:
        out.add_(layer.bias)
    out = out.to(x.dtype)
    del codes, scales, outliers
    return out.reshape(*x.shape[:-1], layer.out_features)


def _fp8(layer: PackedLinear, x: Tensor) -> Tensor:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9):
        layer.unpack()  # transformers turns such a checkpoint into plain weights on older cards
        return layer(x)  # type: ignore[no-any-return]
    flat = x.reshape(-1, x.shape[-1])
    codes = torch.empty(flat.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((flat.shape[0], -(-flat.shape[1] // 128)), dtype=torch.float32, device=x.device)
    out = _output(layer, x, (codes, scales))
    del codes, scales
    if layer.bias is not None:
        out.add_(layer.bias)
    return out


def _fused(layer: PackedLinear, x: Tensor) -> Tensor:
    out = _output(layer, x)
    if layer.bias is not None:
        out.add_(layer.bias)
    return out


def _plain_each_time(layer: PackedLinear, x: Tensor) -> Tensor:
    made = F.linear(x, _plain_weight(layer, x))
    out = made * torch.ones((), dtype=x.dtype, device=x.device)
    return out if layer.bias is None else out.add_(layer.bias)


FOUR_BIT: Final = Kernel(
    f"bitsandbytes 0.50: its own kernel up to {_FUSED_ROWS} rows; for more a plain copy of one layer's weight, the most that it takes",
    _four_bit,
)
EIGHT_BIT: Final = Kernel("bitsandbytes 0.50, LLM.int8: codes of the activations, products in 32 bits; no outliers taken", _eight_bit)
FP8: Final = Kernel(
    "transformers 5.23, DeepGEMM: codes and scales of the activations; some published runs hold a tied embedding twice", _fp8
)
MARLIN: Final = Kernel("a fused kernel, such as Marlin's: the output alone, its workspace of some KiB left out", _fused)
# AutoAWQ 0.2.9, awq/modules/fused/attn.py: RoPE.freqs_cis
AWQ: Final = Kernel("a fused kernel: the output alone; layers that AutoAWQ fuses also hold 4 bytes x head size a position", _fused)
UNPACKED: Final = Kernel("compressed-tensors 0.20 under transformers: plain weights from the first forward on", _fused, unpacks=True)
PLAIN_EACH_TIME: Final = Kernel("torchao 0.18, weights alone: a plain copy of one layer's weight in every forward", _plain_each_time)


EXPERTS: Final = Kernel(
    "transformers 5.23 with the package kernels: what experts make of each token, and its sum; routing left out",
    _fused,
)


def kernel_for_weights(family: str, scheme: str) -> Kernel | None:
    """Return the kernel that runs weights of a family; None where nobody read one."""
    kernel = FAMILIES[family].kernel if family in FAMILIES else ""
    if kernel == "bitsandbytes":
        return EIGHT_BIT if scheme.startswith("int8") else FOUR_BIT
    if kernel == "torchao":
        return MARLIN if scheme.startswith("int4") else PLAIN_EACH_TIME
    return {"fused": AWQ if family == "awq" else MARLIN, "float8": FP8, "unpacked": UNPACKED}.get(kernel)


def _kernel_for(scheme: Scheme) -> Kernel:
    """Return what runs a named scheme. Packed integers are for fused kernels, whatever transformers makes of compressed-tensors."""
    found = MARLIN if scheme.family == "compressed-tensors" else kernel_for_weights(scheme.family, scheme.name)
    assert found is not None
    return found


# -- which layers ------------------------------------------------------------------------------------------------------


def held_by_scheme(module: nn.Module, scheme: Scheme, kept: Iterable[str], dtype: torch.dtype) -> dict[str, Held]:
    """Return what the linear layers of a module hold under a scheme; those in `kept`, and those that it cannot store, stay as they are."""
    kernel = _kernel_for(scheme)
    left = set(kept)
    found: dict[str, Held] = {}
    for name, one in module.named_modules():
        sizes = _linear_sizes(one)
        if sizes is None or name in left or scheme.refuses(*sizes):
            continue
        parts = {_parameter(part.name): (part.dtype, part.shape) for part in scheme.parts(*sizes)}
        found[name] = Held(name, scheme.text, kernel, parts, sizes[0] * sizes[1], dtype)
    return found


def held_in_checkpoint(packed: Packed, tensors: Tensors, dtype: torch.dtype, where: str) -> dict[str, Held]:
    """Return what layers hold in a checkpoint, by the names that it has for them; LoadError where that cannot be told."""
    if packed.unknown:
        raise LoadError(f"its weights are quantised in a way that is not known: {packed.unknown}", code="IRS169", where=where)
    shapes = {name: one for of_file in tensors.files.values() for name, one in of_file.items()}
    found: dict[str, Held] = {}
    for weight in packed.weights:
        held = _held_weight(weight, shapes, packed.method, dtype, where)
        found[held.module] = held if held.module not in found else _held_together(found[held.module], held)
    return found


def _held_together(one: Held, other: Held) -> Held:
    """Return what two weights of one module hold."""
    return replace(one, parts={**one.parts, **other.parts}, count=one.count + other.count, renamed={**one.renamed, **other.renamed})


def _held_weight(weight: PackedWeight, shapes: Mapping[str, Shaped], method: str, dtype: torch.dtype, where: str) -> Held:
    kernel = kernel_for_weights("compressed-tensors" if method == "compressed-tensors" else weight.family, weight.scheme)
    module, _, last = weight.name.rpartition(".")
    if weight.family == "mxfp4" and last in ("gate_up_proj", "down_proj"):
        kernel, last = EXPERTS, "weight"
    if kernel is None or last != "weight":
        raise LoadError(
            f"{weight.name[:80]!r} is quantised ({weight.scheme}), and is not a linear layer: what runs it is not modelled",
            code="IRS695",
            where=where,
        )
    dropped = tuple(name for name in weight.tensors if _HOST.search(name))
    kept = [name for name in weight.tensors if name not in dropped]
    renamed = {name: f"{module}.{_parameter(name.removeprefix(f'{module}.'))}" for name in kept}
    parts = {renamed[name].removeprefix(f"{module}."): shapes[name] for name in kept}
    return Held(module, weight.scheme, kernel, parts, weight.count, dtype, weight.group, renamed, dropped)


_HOST: Final = re.compile(r"\.(?:quant_state\.bitsandbytes__\w+|weight_format)$")
"""Tensors that bitsandbytes reads on the host: sizes and names as JSON, the order of rows."""


def _parameter(name: str) -> str:
    """Return a name that a parameter may have."""
    return name.lstrip("_").replace(".", "_")


def _linear_sizes(module: nn.Module) -> tuple[int, int] | None:
    """Outputs and inputs of a linear layer; None for other modules."""
    if type(module) is nn.Linear:
        return module.out_features, module.in_features
    weight = getattr(module, "weight", None)
    if type(module).__name__ == "Conv1D" and isinstance(weight, Tensor) and weight.ndim == 2:
        return weight.shape[1], weight.shape[0]
    return None


def computing_type(settings: Mapping[str, Any], dtype: torch.dtype) -> torch.dtype:
    """In which type layers compute that a `quantization_config` is about; `dtype` is the model's own.

    bitsandbytes' 4-bit layers take the configuration's, float32 unless it says another (`BitsAndBytesConfig`).
    """
    if not settings.get("load_in_4bit"):
        return dtype
    said = str(settings.get("bnb_4bit_compute_dtype") or "float32").removeprefix("torch.")
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}.get(said, dtype)


def kept_by_default(module: Any, scheme: Scheme) -> set[str]:
    """Return the layers that stay as they are unless the user says otherwise: the one that gives the logits, and what shares its weight."""
    if scheme.head:
        return set()
    head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    return {name for name, one in module.named_modules() if one is head or re.search(r"(?:^|\.)(?:lm_head|embed_out)$", name)}


def replace_linears(module: nn.Module, held: Mapping[str, Held], where: str) -> None:
    """Put layers that hold codes into the place of linear ones, on the device where those are; LoadError where they do not fit.

    Nothing is computed: codes have no values here.
    """
    for name, holding in held.items():
        try:
            before = module.get_submodule(name)
        except AttributeError:
            before = None
        if before is not None and holding.kernel is EXPERTS and _are_experts(before, holding):
            module.set_submodule(name, PackedExperts(before, holding, next(before.parameters()).device))
            continue
        sizes = None if before is None else _linear_sizes(before)
        if before is None or sizes is None:
            what = "is not a linear layer of the model" if before is not None else "is not in the model"
            raise LoadError(
                f"{name[:80]!r} is quantised ({holding.scheme}), and {what}: what runs it is not modelled", code="IRS695", where=where
            )
        if sizes[0] * sizes[1] != holding.count and not (holding.count - sizes[0] * sizes[1] == 1 and holding.count % 2 == 0):
            said = f"{name[:80]!r} is {sizes[0]}x{sizes[1]} by the configuration, and its tensors hold {holding.count:,} weights"
            raise LoadError(said, code="IRS197", where=where, hint="configuration and weights are of different models")
        device, bias = next(before.parameters()).device, isinstance(before.bias, Tensor)
        module.set_submodule(name, PackedLinear(sizes[1], sizes[0], holding, device, bias=bias))


def schemes_of(held: Mapping[str, Held]) -> list[tuple[str, str, int]]:
    """Schemes, what runs each, and how many weights are stored so."""
    found: dict[tuple[str, str], int] = {}
    for holding in held.values():
        key = (holding.scheme, holding.kernel.name)
        found[key] = found.get(key, 0) + holding.count
    return [(*key, count) for key, count in found.items()]


def _are_experts(module: nn.Module, held: Held) -> bool:
    """Return whether a module has the weights that are held, each with a bias."""
    plain = [getattr(module, name, None) for name in ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")]
    return all(isinstance(one, Tensor) for one in plain) and held.count == sum(one.numel() for one in plain[:2] if one is not None)


def stored_with(tensors: Tensors, held: Mapping[str, Held]) -> Tensors:
    """Return the tensors of a checkpoint under the names that parameters have, without those that the host reads."""
    renamed = {old: new for holding in held.values() for old, new in holding.renamed.items()}
    dropped = {name for holding in held.values() for name in holding.dropped}
    return Tensors(
        {
            file: {renamed.get(name, name): type_ for name, type_ in of_file.items() if name not in dropped}
            for file, of_file in tensors.files.items()
        }
    )


def unpack_before_forward(module: nn.Module, note: Callable[[Tensor], None] = lambda _: None) -> None:
    """Let layers whose kernels need plain weights make them when the model first runs; `note` is told of each."""
    layers = [module for module in module.modules() if isinstance(module, PackedLinear) and module.held.kernel.unpacks]
    if not layers:
        return

    def unpack(*_: object) -> None:
        handle.remove()
        for layer in layers:
            layer.unpack()
            if layer.unpacked is not None:
                note(layer.unpacked)

    handle = module.register_forward_pre_hook(unpack)


def install_quantizer(held: Mapping[str, Held], where: str) -> dict[str, Any]:
    """Tell transformers how a checkpoint with these layers is loaded; the `quantization_config` that asks for it."""
    from transformers.quantizers import auto
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    name = "irscope"
    parts = {f"{holding.module}.{part}" for holding in held.values() for part in holding.parts}

    class Config(QuantizationConfigMixin):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            self.quant_method = name

    class Quantizer(HfQuantizer):  # type: ignore[misc]
        is_trainable = True

        def is_serializable(self) -> bool:
            return False

        def get_new_dtype(self, converter: Any, param: Any, dtype: Any) -> Any:
            is_part = any(target in parts for target in converter.target_patterns)
            return None if is_part else super().get_new_dtype(converter, param, dtype)

        def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
            replace_linears(model, held, where)
            return model

    auto.AUTO_QUANTIZER_MAPPING[name] = Quantizer
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[name] = Config
    return {"quant_method": name}


# -- in a captured graph -------------------------------------------------------------------------------------------------


_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
"""In names of checkpoints; transformers 5 runs all experts of a layer from one tensor."""


@immutable(slots=False)
class Layers:
    """Replacements for the linear layers of a folder whose weights are quantised."""

    scheme: Scheme | None
    held: Mapping[str, Held]
    dtype: torch.dtype
    where: str
    left: int = 0
    """Weights of experts, of which the module that runs them is not one layer each."""

    @property
    def assumed(self) -> Assumed:
        """Return what a report says about them."""
        if self.left:
            why = "they are quantised, as experts that the package runs together: what does that is not analysed"
            return Assumed(WEIGHTS, f"plain {str(self.dtype).removeprefix('torch.')} for {self.left:,} weights of experts", why)
        schemes = ", ".join(dict.fromkeys(holding.scheme for holding in self.held.values())) or (
            self.scheme.text if self.scheme is not None else ""
        )
        kernels = dict.fromkeys(holding.kernel.name for holding in self.held.values())
        if self.scheme is not None:
            kernels = dict.fromkeys(one.name for one in (_kernel_for(self.scheme),))
        return Assumed(WEIGHTS, schemes, f"as they are stored; kernels are modelled: {'; '.join(kernels)}", is_guess=False)

    def put_into(self, module: nn.Module) -> None:
        """Replace the linear layers of a module. Those whose kernels need plain weights stay plain: they are when it runs."""
        held = self.held
        if self.scheme is not None:
            held = held_by_scheme(module, self.scheme, kept_by_default(module, self.scheme), self.dtype)
        replace_linears(module, {name: holding for name, holding in held.items() if not holding.kernel.unpacks}, self.where)
        for one in module.modules():
            if isinstance(one, PackedLinear):
                one.is_counted = True


def quantised_layers(settings: Mapping[str, Any], tensors: Tensors | None, dtype: torch.dtype, where: str) -> Layers | None:
    """Return the replacements for a folder's linear layers, by its weights or else its configuration; None where no scheme applies."""
    computing = computing_type(settings, dtype)
    if tensors is not None:
        if tensors.packed.unknown or not tensors.packed.weights:
            return None
        try:
            held = held_in_checkpoint(tensors.packed, tensors, computing, where)
            layers = {name: holding for name, holding in held.items() if not _EXPERT.search(name) and holding.kernel is not EXPERTS}
            return Layers(None, layers, computing, where, sum(holding.count for name, holding in held.items() if name not in layers))
        except LoadError:
            return None
    scheme = scheme_in(settings)
    return None if scheme is None else Layers(scheme, {}, computing, where)


def mark_packed(program: Program, module: nn.Module) -> None:
    """Say of the weights of a captured program which hold others in few bits."""
    parts = {
        f"{path}.{name}": PackedPart(one.held.scheme, f"{path}.weight", 0 if place else one.held.count)
        for path, one in module.named_modules()
        if isinstance(one, PackedLinear)
        for place, name in enumerate(one.held.parts)
    }
    for weight in program.graph.weights if parts else ():
        if (part := parts.get(str(weight.name))) is not None:
            weight.role = Role.PARAMETER
            program.packed[weight] = part
