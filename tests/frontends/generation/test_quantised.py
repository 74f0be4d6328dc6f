"""Layers that hold codes for weights: what they hold, which layers they replace, and what their kernels ask memory for."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import irscope  # noqa: E402
from irscope.errors import LoadError  # noqa: E402
from irscope.frontends.files.folders import Tensors  # noqa: E402
from irscope.frontends.generation.quantised import (  # noqa: E402
    Layers,
    PackedLinear,
    computing_type,
    held_by_scheme,
    held_in_checkpoint,
    kept_by_default,
    mark_packed,
    quantised_layers,
    replace_linears,
    stored_with,
    unpack_before_forward,
)
from irscope.weights.schemes import parse_scheme, read_packed  # noqa: E402
from tests.unit.weights.test_packed import AWQ, DOUBLE, FP8_BLOCKS, GPTQ, INT8, LAYOUTS, NF4, W4A16, Header, _stored  # noqa: E402

pytestmark = pytest.mark.torch


class Model(nn.Module):
    """Two layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 384)
        self.l = nn.Linear(384, 256, bias=False)
        self.m = nn.Linear(256, 384)
        self.lm_head = nn.Linear(384, 50, bias=False)

    def forward(self, ids: Any) -> Any:
        return self.lm_head(self.m(self.l(self.embed(ids))))


class Made(TorchDispatchMode):
    """The shapes of what is made, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and "view" not in str(func) and "aten.t." not in str(func):
            self.made.append((str(out.dtype).removeprefix("torch."), tuple(out.shape)))
        return out


def _packed(text: str, dtype: Any = torch.bfloat16) -> Model:
    module = Model().to(dtype)
    scheme = parse_scheme(text)
    replace_linears(module, held_by_scheme(module, scheme, kept_by_default(module, scheme), dtype), "here")
    return module


@pytest.mark.parametrize("text", ["int8", "nf4", "nf4{double}", "fp4", "int4", "gptq", "awq", "mxfp4"])
def test_what_a_layer_holds_is_what_the_scheme_stores(text: str) -> None:
    module, scheme = _packed(text), parse_scheme(text)
    layers = [module for module in module.modules() if isinstance(module, PackedLinear)]
    assert [layer.held.module for layer in layers] == ["l", "m"], "the head stays as it is"
    for layer in layers:
        held = sum(part.numel() * part.element_size() for name, part in layer.named_parameters() if name != "bias")
        assert held == scheme.bytes(layer.out_features, layer.in_features)
    assert module.m.bias is not None and module.m.bias.shape == (384,)
    assert module(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 50)


def test_the_head_too_where_it_is_asked_for() -> None:
    assert [module.held.module for module in _packed("nf4{head}").modules() if isinstance(module, PackedLinear)] == ["l", "m", "lm_head"]


def test_a_layer_that_the_scheme_cannot_store_stays() -> None:
    module = nn.Sequential(nn.Linear(200, 64), nn.Linear(64, 64))
    assert list(held_by_scheme(module, parse_scheme("int4"), (), torch.bfloat16)) == ["1"]


def test_four_bit_makes_a_plain_weight_for_many_rows_alone() -> None:
    module = _packed("nf4{double}")
    with torch.no_grad(), Made() as seen:
        module.l(torch.zeros(1, 4, 384, dtype=torch.bfloat16))
    assert ("bfloat16", (256, 384)) not in seen.made
    with torch.no_grad(), Made() as seen:
        module.l(torch.zeros(1, 5, 384, dtype=torch.bfloat16))
    assert seen.made.index(("float32", (1536,))) < seen.made.index(("bfloat16", (256, 384))), "scales come first"
    assert seen.made.count(("float32", (1536,))) == 2, "what they are computed from is still there"


def test_four_bit_keeps_no_plain_weight_for_the_backward() -> None:
    module = _packed("nf4")
    x = torch.zeros(8, 384, dtype=torch.bfloat16, requires_grad=True)
    kept: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(tuple(one.shape)) or one, lambda one: one):
        out = module.l(x)
    assert (256, 384) not in kept
    with Made() as seen:
        out.sum().backward()
    assert ("bfloat16", (256, 384)) in seen.made and x.grad is not None and x.grad.shape == (8, 384)
    assert all(value.grad is None for value in module.l.parameters())


def test_the_type_in_which_bitsandbytes_computes() -> None:
    assert computing_type({"load_in_4bit": True}, torch.bfloat16) is torch.float32, "BitsAndBytesConfig's default"
    assert computing_type({"load_in_4bit": True, "bnb_4bit_compute_dtype": "bfloat16"}, torch.float16) is torch.bfloat16
    assert computing_type({"quant_method": "gptq"}, torch.float16) is torch.float16


def _held(header: Header, config: dict[str, Any], metadata: dict[str, str] | None = None) -> tuple[Any, Tensors]:
    stored = _stored(header)
    tensors = Tensors({"model.safetensors": stored}, read_packed(stored, config, metadata or {}))
    return held_in_checkpoint(tensors.packed, tensors, torch.bfloat16, "here"), tensors


@pytest.mark.parametrize("header", [NF4, DOUBLE, INT8, GPTQ, AWQ, FP8_BLOCKS, W4A16])
def test_layers_of_a_checkpoint_hold_its_tensors(header: Header) -> None:
    layout = next(one for one in LAYOUTS.values() if one[0] is header)
    held, tensors = _held(header, layout[1], layout[2])
    module = Model()
    replace_linears(module, held, "here")
    names = set(stored_with(tensors, held).files["model.safetensors"])
    assert names == {f"l.{name}" for name, _ in module.l.named_parameters()}, "every tensor on the device has a parameter"
    if header is not W4A16:
        assert module(torch.zeros(1, 2, dtype=torch.long)).shape == (1, 2, 50)


def test_compressed_tensors_unpacks_before_the_first_forward() -> None:
    layout = LAYOUTS["compressed-tensors"]
    held, _ = _held(layout[0], layout[1])
    module = Model().to(torch.bfloat16)
    replace_linears(module, held, "here")
    told: list[Any] = []
    unpack_before_forward(module, told.append)
    assert module.l.unpacked is None
    module(torch.zeros(1, 2, dtype=torch.long))
    assert module.l.unpacked is told[0] and told[0].shape == (256, 384) and not list(module.l.parameters())
    module(torch.zeros(1, 2, dtype=torch.long))
    assert len(told) == 1


def test_what_is_not_modelled_is_said() -> None:
    codes = {"e.w1_blocks": ("U8", [4, 64, 12, 16]), "e.w1_scales": ("U8", [4, 64, 12])}
    with pytest.raises(LoadError, match=r"'e\.w1' is quantised \(mxfp4\), and is not a linear layer"):
        _held(codes, {})
    with pytest.raises(LoadError, match="quantised in a way that is not known: the configuration says awq"):
        _held(GPTQ, {"quant_method": "awq"})
    held, _ = _held({name.replace("l.", "embed.", 1): one for name, one in NF4.items()}, {})
    with pytest.raises(LoadError, match=r"'embed' is quantised \(nf4\), and is not a linear layer of the model"):
        replace_linears(Model(), held, "here")
    held, _ = _held({name.replace("l.", "lm_head.", 1): one for name, one in NF4.items()}, {})
    with pytest.raises(LoadError, match="'lm_head' is 50x384 by the configuration, and its tensors hold 98,304 weights"):
        replace_linears(Model(), held, "here")


@pytest.mark.parametrize("text", ["nf4", "nf4{double}", "int8", "fp8", "awq", "mxfp4"])
@pytest.mark.parametrize("rows", [1, 16])
def test_a_captured_graph_counts_the_product_and_reads_the_codes(text: str, rows: int) -> None:
    module = Model().to(torch.bfloat16)
    Layers(parse_scheme(text), {}, torch.bfloat16, "here").put_into(module)
    model = irscope.capture(module.eval(), torch.zeros(1, rows, dtype=torch.long), device="cuda")
    mark_packed(model.program, module)
    found = irscope.run(model, "flops,params,verify,liveness")
    assert found["verify"].report().summary["problems"] == 0
    assert found["flops"].report().summary["by_class"]["matmul"] == 2 * rows * (2 * 256 * 384 + 50 * 384)
    count = 2 * 50 * 384 + 2 * 256 * 384 + 384
    assert found["params"].report().summary["count"] == count
    assert not [weight.name for weight in model.program.graph.weights if not weight.users], "everything that is held is read"
    plain = text.startswith("nf4") and rows > 4
    assert [node.op for node in model.program.graph].count("quant.unpack_linear") == (2 if plain else 0)
    assert not found["flops"].report().coverage.unknown


def test_layers_of_a_folder_by_its_configuration_alone() -> None:
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
    layers = quantised_layers(settings, None, torch.bfloat16, "here")
    assert layers is not None and "nf4" in layers.assumed.text and not layers.assumed.is_guess
    module = Model()
    layers.put_into(module)
    assert isinstance(module.l, PackedLinear) and module.l.is_counted and type(module.lm_head) is nn.Linear
    assert quantised_layers({"quant_method": "aqlm"}, None, torch.bfloat16, "here") is None


def test_experts_of_a_checkpoint_stay_plain_in_a_graph() -> None:
    header = {**NF4, **{name.replace("l.", "mlp.experts.0.up.", 1): one for name, one in NF4.items()}}
    stored = _stored(header)
    tensors = Tensors({"model.safetensors": stored}, read_packed(stored))
    layers = quantised_layers({}, tensors, torch.bfloat16, "here")
    assert layers is not None and list(layers.held) == ["l"] and layers.assumed.is_guess
    assert "plain bfloat16 for 98,304 weights of experts" in layers.assumed.text


class Experts(nn.Module):
    """Parameters as gpt-oss has them."""

    def __init__(self, experts: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, hidden, 2 * inner))
        self.gate_up_proj_bias = nn.Parameter(torch.empty(experts, 2 * inner))
        self.down_proj = nn.Parameter(torch.empty(experts, inner, hidden))
        self.down_proj_bias = nn.Parameter(torch.empty(experts, hidden))


def test_experts_in_mxfp4_hold_their_codes() -> None:
    codes = {"e.gate_up_proj_blocks": ("U8", [4, 64, 4, 16]), "e.gate_up_proj_scales": ("U8", [4, 64, 4])}
    codes |= {"e.down_proj_blocks": ("U8", [4, 128, 1, 16]), "e.down_proj_scales": ("U8", [4, 128, 1])}
    held, tensors = _held(codes, {"quant_method": "mxfp4"})
    assert held["e"].count == 4 * 128 * 64 + 4 * 32 * 128
    module = nn.Module()
    module.e = Experts(4, 128, 32)
    replace_linears(module, held, "here")
    names = {f"e.{name}" for name, _ in module.e.named_parameters()}
    assert names == {*stored_with(tensors, held).files["model.safetensors"], "e.gate_up_proj_bias", "e.down_proj_bias"}
    with Made() as seen:
        out = module.e(torch.zeros(10, 128), torch.zeros(10, 2, dtype=torch.long), torch.zeros(10, 2))
    assert out.shape == (10, 128)
    assert ("float32", (20, 32)) in seen.made and ("float32", (20, 128)) in seen.made, "two experts for each token"
    module.e = Experts(4, 128, 64)
    with pytest.raises(LoadError, match="'e' is quantised"):
        replace_linears(module, held, "here")
