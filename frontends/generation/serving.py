"""Inputs of a serving engine's arithmetic: a model's weights by name, its share of a rank, what each layer keeps of a token, and the
most that a forward over many tokens takes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.frontends.generation.program import Generator, Wish, cache_of, of_the_model
from irscope.frontends.generation.quantised import PackedLinear
from irscope.frontends.simulation.process import Process
from irscope.frontends.torch_lowering.dtypes import torch_dtype
from irscope.immutable import immutable

_PROBE: Final = 8
"""Tokens whose cache is looked at."""
_VOCABULARY_PAD: Final = 64
"""Rows of embeddings and heads come in multiples of it (`DEFAULT_VOCAB_PADDING_SIZE` of vLLM's vocab_parallel_embedding.py)."""
_LATENT: Final = "kv_a_proj_with_mqa"
"""The projection whose result latent attention keeps, in all models that have one."""
_LATENT_PLAN: Final = {"q_proj": "colwise", "q_b_proj": "colwise", "kv_b_proj": "colwise", "o_proj": "rowwise"}
"""Plan for latent attention that engines share, where the plans of transformers leave it whole (vLLM's deepseek_v2.py)."""


@immutable(slots=False)
class Share:
    """A parameter as one rank holds it."""

    name: str
    layer: int | None
    """None for what stands before or behind the layers."""
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Kept:
    """Part of the cache that a layer keeps of a token on one rank."""

    layer: int
    heads: int
    values: int
    """Of all heads together."""
    window: int | None
    is_latent: bool


@immutable(slots=False)
class Served:
    """A model as an engine would load it, on one rank of `tp`."""

    shares: Sequence[Share]
    whole_bytes: int
    """Of all parameters, without padding."""
    kept: Sequence[Kept]
    layers: int
    element: int
    """Bytes of an element."""
    dtype: str
    vocabulary: int
    rotary: int
    """Values of a table of angles, where it has one."""
    forward_peak: int
    """Bytes that a forward over the tokens takes beside the weights, without logits."""
    is_tied: bool
    ends: tuple[Sequence[str], Sequence[str]]
    """Names of parameters before the layers and behind them."""


def serve(process: Process, wish: Wish, tokens: int, tp: int, sink: DiagnosticSink) -> Served:
    """Load a model, cut it to a rank's share, and run a forward over so many tokens."""
    with process.machine.without_limit():
        made = Generator(process, wish, sink)
        module = made.loaded.module
        config = module.config.get_text_config()
        if made.loaded.is_encoder_decoder:
            raise UsageError("engines with paged caches serve decoders; this has an encoder too", code="IRS698", where=wish.model)
        heads = int(getattr(config, "num_attention_heads", 0) or 0)
        if not heads:
            raise UsageError("it has no attention whose keys and values could be paged", code="IRS698", where=wish.model)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        if heads % tp:
            raise UsageError(f"{heads} heads are not divided by tp={tp}", code="IRS698", where=wish.model)
        if kv_heads % tp and tp % kv_heads:
            raise UsageError(f"{kv_heads} heads of keys are neither divided by tp={tp}, nor divide it", code="IRS698", where=wish.model)
        whole = sum(value.numel() * value.element_size() for value in module.parameters())
        if tp > 1 and any(isinstance(module, PackedLinear) for module in module.modules()):
            raise UsageError(
                "how ranks share weights that are quantised is the format's matter, and not modelled", code="IRS698", where=wish.model
            )
        plan = _plan(module, tp, wish.model)
        shares = list(_shares(module, plan, tp, kv_heads))
        kept = list(_kept_of_token(module, tp, wish.model))
        if tp > 1:
            _cut_to_rank(
                module,
                [share for share in shares if "_output" not in (how := _style(share.name, plan)) and "_input" not in how],
                heads // tp,
                kv_heads,
                tp,
            )
        peak = _forward_peak(process, module, tokens)
        names = [share.name for share in shares]
        first = next((number for number, share in enumerate(shares) if share.layer is not None), len(shares))
        head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        has_angles = any("rotary" in name for name, _ in module.named_modules())
        element = torch.empty(0, dtype=torch_dtype(made.loaded.dtype)).element_size()
        return Served(
            shares,
            whole,
            kept,
            int(config.num_hidden_layers),
            element,
            made.loaded.dtype.text,
            int(config.vocab_size),
            int(getattr(config, "max_position_embeddings", 0) * head_dim) if has_angles else 0,
            peak,
            bool(getattr(module.config, "tie_word_embeddings", False)),
            (names[:first], [share.name for share in shares[first:] if share.layer is None]),
        )


def _plan(module: Any, tp: int, where: str) -> Mapping[str, str]:
    """Return how the model's own code says that its parameters are shared."""
    plan = dict(getattr(module, "tp_plan", None) or {})
    if any(_LATENT in name for name, _ in module.named_modules()):
        plan |= {f"*.self_attn.{name}": how for name, how in _LATENT_PLAN.items() if not any(one.endswith(name) for one in plan)}
    if tp > 1 and not plan:
        raise UsageError("the model's code does not say how ranks share it (it has no tensor-parallel plan)", code="IRS698", where=where)
    return plan


def _shares(module: Any, plan: Mapping[str, str], tp: int, kv_heads: int) -> Iterator[Share]:
    vocabulary = {id(one.weight) for one in (module.get_input_embeddings(), module.get_output_embeddings()) if one is not None}
    for name, tensor in module.named_parameters():
        shape = list(tensor.shape)
        if id(tensor) in vocabulary:
            shape[0] = -(-shape[0] // _VOCABULARY_PAD) * _VOCABULARY_PAD // tp
        elif tp > 1:
            _keep_share(
                shape,
                _style(name, plan),
                tp if name.rpartition(".")[0].rpartition(".")[2] not in ("k_proj", "v_proj") else min(tp, kv_heads),
            )
        number = next((int(part) for part in name.split(".") if part.isdecimal()), None)
        count = 1
        for size in shape:
            count *= size
        yield Share(name, number, tuple(shape), count * tensor.element_size())


def _style(name: str, plan: Mapping[str, str]) -> str:
    """Return the style of a parameter, by its module or by itself."""
    owner, _, own = name.rpartition(".")
    for pattern, how in plan.items():
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*.{pattern}"):
            return how
        if fnmatch.fnmatchcase(owner, pattern) or fnmatch.fnmatchcase(owner, f"*.{pattern}"):
            return "" if own == "bias" and "rowwise" in how else how
    return ""


def _keep_share(shape: list[int], style: str, parts: int) -> None:
    """Weights of linear layers are out x in; those of experts have their number before that."""
    if "colwise" in style:
        place = 0 if len(shape) < 3 else len(shape) - 2
    elif "rowwise" in style:
        place = len(shape) - 1
    else:
        return
    shape[place] = -(-shape[place] // parts)


def _cut_to_rank(module: Any, shares: Sequence[Share], heads: int, kv_heads: int, tp: int) -> None:
    """Cut the model to one rank: its own code runs on what is left of its parameters.

    Layers whose results are gathered, since the code takes them apart, are left whole.
    """
    parameters = dict(module.named_parameters())
    vocabulary = {id(one.weight) for one in (module.get_input_embeddings(), module.get_output_embeddings()) if one is not None}
    for share in shares:
        tensor = parameters[share.name]
        if tuple(tensor.shape) != share.shape and id(tensor) not in vocabulary:
            tensor.data = torch.empty(share.shape, dtype=tensor.dtype, device=tensor.device)
    for part in module.modules():
        if hasattr(part, "num_key_value_groups"):
            part.num_key_value_groups = heads // max(1, kv_heads // tp)
        for attribute in ("num_heads", "num_attention_heads"):
            if hasattr(part, attribute) and hasattr(part, "o_proj"):
                setattr(part, attribute, heads)


def _kept_of_token(module: Any, tp: int, where: str) -> Iterator[Kept]:
    """Yield what a rank keeps of a token, from the model's own cache after some: heads are shared, at least one a rank."""
    latent = {
        next(int(part) for part in name.split(".") if part.isdecimal()): one.weight.shape[0]
        for name, one in module.named_modules()
        if name.endswith(_LATENT)
    }
    ids = torch.zeros(1, _PROBE, dtype=torch.int64, device="cuda")
    with torch.no_grad(), of_the_model():
        cache = cache_of({}, module(input_ids=ids, use_cache=True))
    layers = getattr(cache, "layers", None)
    if not layers:
        raise UsageError("it keeps no cache of keys and values", code="IRS698", where=where)
    for number, layer in enumerate(layers):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if hasattr(layer, "conv_states") or hasattr(layer, "recurrent_states"):
            raise UsageError(
                "engines pad the state of its recurrent layers to whole pages of attention, which is not modelled",
                code="IRS698",
                where=where,
            )
        if keys is None or values is None or not keys.numel():
            continue  # a layer that reads another one's
        window = getattr(layer, "sliding_window", None)
        if number in latent:
            yield Kept(number, 1, latent[number], window, True)
        else:
            heads = max(1, keys.shape[1] // tp)
            yield Kept(number, heads, heads * (keys.shape[-1] + values.shape[-1]), window, False)


def _forward_peak(process: Process, module: Any, tokens: int) -> int:
    ids = torch.zeros(1, tokens, dtype=torch.int64, device="cuda")
    machine = process.machine
    _, before = machine.end_of_interval()
    with torch.no_grad(), of_the_model():
        out = module(input_ids=ids, use_cache=False, logits_to_keep=1)
    peak, _ = machine.end_of_interval()
    del out
    return int(peak["allocated"] - before["allocated"])
