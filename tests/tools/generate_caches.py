"""Lays the cache that `irscope generate` tells of beside the cache that a model holds after it has really generated, on the CPU.

python -m tests.tools.generate_caches [NAME ...] [--lengths 5,40,90] [--new N] [--batch N] [--cache KIND]

Small models of many architectures are made by the installed transformers with random weights and generate tokens; the bytes of their
cache objects' tensors, layer by layer, are what irscope has to say of the same configuration. Each model runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

LENGTHS = (5, 40, 90)
NEW = 12
_DENSE = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
_GROUPED = {**_DENSE, "num_key_value_heads": 2}
_GPT = {"vocab_size": 500, "n_embd": 64, "n_layer": 3, "n_head": 4}
_EXPERTS = {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
_BART = {
    **{"vocab_size": 500, "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4},
    **{"decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96},
}
_T5 = {"vocab_size": 500, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralForCausalLM", {**_GROUPED, "sliding_window": 32}),
    "mixtral": ("MixtralForCausalLM", {**_GROUPED, "num_local_experts": 4, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED),
    "qwen2_window": ("Qwen2ForCausalLM", {**_GROUPED, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 2}),
    "qwen3": ("Qwen3ForCausalLM", {**_GROUPED, "head_dim": 32}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**_EXPERTS, "head_dim": 16}),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {**_EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "layer_types": None},
    ),
    "olmo2": ("Olmo2ForCausalLM", _GROUPED),
    "olmo3": ("Olmo3ForCausalLM", {**_GROUPED, "sliding_window": 32}),
    "gemma": ("GemmaForCausalLM", {**_GROUPED, "num_key_value_heads": 1, "head_dim": 32}),
    "gemma2": ("Gemma2ForCausalLM", {**_GROUPED, "head_dim": 16, "sliding_window": 32}),
    "gemma3": ("Gemma3ForCausalLM", {**_GROUPED, "num_hidden_layers": 6, "head_dim": 16, "sliding_window": 32}),
    "gemma3n": (
        "Gemma3nForCausalLM",
        {**_GROUPED, "num_hidden_layers": 8, "head_dim": 16, "sliding_window": 32, "num_kv_shared_layers": 3, "laurel_rank": 8}
        | {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 500, "intermediate_size": [96] * 8}
        | {"activation_sparsity_pattern": [0.0] * 8, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2},
    ),
    "gpt2": ("GPT2LMHeadModel", _GPT),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {"vocab_size": 500, "hidden_size": 64, "num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]]}
        | {"window_size": 32},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", _DENSE),
    "gptj": ("GPTJForCausalLM", {**_GPT, "rotary_dim": 8}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {**_GPT, "multi_query": True}),
    "falcon": (
        "FalconForCausalLM",
        {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "multi_query": True},
    ),
    "bloom": ("BloomForCausalLM", {"vocab_size": 500, "hidden_size": 64, "n_layer": 3, "n_head": 4}),
    "opt": (
        "OPTForCausalLM",
        {"vocab_size": 500, "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "word_embed_proj_dim": 64},
    ),
    "mpt": ("MptForCausalLM", {"vocab_size": 500, "d_model": 64, "n_layers": 3, "n_heads": 4}),
    "phi": ("PhiForCausalLM", _DENSE),
    "phi3": ("Phi3ForCausalLM", {**_GROUPED, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    "stablelm": ("StableLmForCausalLM", _GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", {**_GROUPED, "sliding_window": 32}),
    "granite": ("GraniteForCausalLM", _GROUPED),
    "glm4": ("Glm4ForCausalLM", {**_GROUPED, "head_dim": 16, "pad_token_id": 0}),
    "cohere": ("CohereForCausalLM", _GROUPED),
    "cohere2": ("Cohere2ForCausalLM", {**_GROUPED, "sliding_window": 32}),
    "smollm3": ("SmolLM3ForCausalLM", {**_GROUPED, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    "exaone4": ("Exaone4ForCausalLM", {**_GROUPED, "sliding_window": 32, "sliding_window_pattern": 4}),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {**_DENSE, **_LATENT, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {**_DENSE, **_LATENT, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    ),
    "minicpm3": ("MiniCPM3ForCausalLM", {**_DENSE, **_LATENT, "num_key_value_heads": 4}),
    "gpt_oss": ("GptOssForCausalLM", {**_GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32}),
    "llama4": (
        "Llama4ForCausalLM",
        {**_GROUPED, "head_dim": 16, "num_local_experts": 4, "intermediate_size_mlp": 96, "attention_chunk_size": 32},
    ),
    "minimax": ("MiniMaxForCausalLM", {**_GROUPED, "num_local_experts": 4, "block_size": 16, "head_dim": 16}),
    "mamba": ("MambaForCausalLM", {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 8}),
    "mamba2": (
        "Mamba2ForCausalLM",
        {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 1}
        | {"chunk_size": 16},
    ),
    "falcon_mamba": ("FalconMambaForCausalLM", {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "state_size": 8}),
    "falcon_h1": (
        "FalconH1ForCausalLM",
        {**_GROUPED, "head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16},
    ),
    "jamba": (
        "JambaForCausalLM",
        {**_GROUPED, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2}
        | {"num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 8, "use_mamba_kernels": False},
    ),
    "bamba": (
        "BambaForCausalLM",
        {**_GROUPED, "attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16},
    ),
    "zamba2": (
        "Zamba2ForCausalLM",
        {**_DENSE, "num_hidden_layers": 6, "layers_block_type": (["linear_attention"] * 2 + ["hybrid"]) * 2, "mamba_d_state": 8}
        | {"n_mamba_heads": 8, "mamba_headdim": 16, "mamba_ngroups": 1, "chunk_size": 16, "num_key_value_heads": 4},
    ),
    "granitemoehybrid": (
        "GraniteMoeHybridForCausalLM",
        {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64, "mamba_n_heads": 8}
        | {"mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16, "layer_types": ["mamba", "attention"] * 2},
    ),
    "nemotron_h": (
        "NemotronHForCausalLM",
        {**_GROUPED, "hybrid_override_pattern": "M*-M", "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "chunk_size": 16}
        | {"head_dim": 16, "n_groups": 1},
    ),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        {**_GROUPED, "num_hidden_layers": 3, "lru_width": 64, "attention_window_size": 32, "num_key_value_heads": 1},
    ),
    "rwkv": ("RwkvForCausalLM", {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "attention_hidden_size": 64}),
    "xlstm": ("xLSTMForCausalLM", {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "num_heads": 4}),
    "lfm2": ("Lfm2ForCausalLM", {**_GROUPED, "layer_types": ["conv", "full_attention"] * 2}),
    "olmo_hybrid": (
        "OlmoHybridForCausalLM",
        {
            **_GROUPED,
            "pad_token_id": 0,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        }
        | {"layer_types": ["linear_attention", "full_attention"] * 2},
    ),
    "kimi_linear": (
        "KimiLinearForCausalLM",
        {
            **_DENSE,
            **_LATENT,
            "pad_token_id": 0,
            "num_key_value_heads": 4,
            "num_experts": 4,
            "num_experts_per_token": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "t5": ("T5ForConditionalGeneration", _T5),
    "bart": ("BartForConditionalGeneration", _BART),
    "pegasus": ("PegasusForConditionalGeneration", _BART),
    "m2m_100": ("M2M100ForConditionalGeneration", _BART),
    "whisper": (
        "WhisperForConditionalGeneration",
        {**_BART, "num_mel_bins": 16, "max_source_positions": 100, "decoder_start_token_id": 1, "pad_token_id": 0}
        | {"bos_token_id": 1, "eos_token_id": 2, "suppress_tokens": None, "begin_suppress_tokens": None},
    ),
}


def _sizes(cache: Any) -> Iterator[tuple[str, int]]:
    """Bytes of the tensors that hold tokens or states, layer by layer."""
    parts = [
        (getattr(cache, name), prefix)
        for name, prefix in (("self_attention_cache", ""), ("cross_attention_cache", "cross "))
        if hasattr(cache, name)
    ]
    for part, prefix in parts or [(cache, "")]:
        layers = getattr(part, "layers", None)
        for number, layer in enumerate(layers or ()):
            yield f"{prefix}{number}", _bytes(vars(layer))
        others = {name: variable for name, variable in vars(part).items() if name != "layers"} if hasattr(part, "__dict__") else part
        if _bytes(others):
            yield f"{prefix}all", _bytes(others)


def _bytes(held: Any) -> int:
    import torch

    if isinstance(held, torch.Tensor):
        return 0 if held.dtype in (torch.int64, torch.bool) else held.numel() * held.element_size()
    if isinstance(held, dict):
        held = held.values()
    return sum(map(_bytes, held)) if isinstance(held, list | tuple | type({}.values())) else 0


def configured(name: str) -> tuple[Any, Any]:
    """The configuration and the class of one of the architectures."""
    import transformers

    cls = getattr(transformers, ARCHITECTURES[name][0])
    config = cls.config_class(**ARCHITECTURES[name][1])
    config.architectures = [cls.__name__]
    return config, cls


def real(name: str, prompt: int, new: int, batch: int, kind: str) -> dict[str, int]:
    """What the cache holds after `generate`, on the CPU, with random weights."""
    import torch
    import transformers

    config, cls = configured(name)
    module = cls(config).eval().float()
    module.generation_config = transformers.GenerationConfig(
        pad_token_id=0, eos_token_id=None, bos_token_id=1, decoder_start_token_id=1 if config.is_encoder_decoder else None
    )
    seen: list[Any] = []
    module.register_forward_hook(
        lambda _, args, kwargs, out: seen.append(
            next(
                (
                    one
                    for at in ("past_key_values", "cache_params", "state")
                    for one in (getattr(out, at, None), kwargs.get(at))
                    if one is not None
                ),
                None,
            )
        ),
        with_kwargs=True,
    )
    inputs: dict[str, Any]
    if module.main_input_name == "input_features":
        inputs = {"input_features": torch.zeros(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    else:
        inputs = {"input_ids": torch.full((batch, prompt), 5)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    options = {} if kind == "dynamic" else {"cache_implementation": kind}
    with torch.no_grad():
        module.generate(**inputs, max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=True, disable_compile=True, **options)
    return dict(_sizes(seen[-1]))


def told(name: str, prompt: int, new: int, batch: int, kind: str) -> tuple[dict[str, int], str]:
    """What irscope says of the same, and its formula."""
    from irscope.tools.generate import generate

    config, _ = configured(name)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        found = generate(folder, prompt=prompt, new=new, batch=batch, cache=kind, dtype="f32", device="h200")
    return {
        ("cross " if "cross" in one.kind else "") + (str(one.layer) if one.layer >= 0 else "all"): one.bytes + one.host_bytes
        for one in found.cache
    }, found.formula


def _row(name: str, lengths: list[int], new: int, batch: int, kind: str, answer: Any) -> None:
    try:
        held = [real(name, prompt, new, batch, kind) for prompt in lengths]
    except Exception as error:  # what a model cannot do is what is asked
        answer.put((name, "not run", f"{type(error).__name__}: {str(error)[:200]} {traceback.format_exc().splitlines()[-3:-1]}"))
        return
    try:
        found = [told(name, prompt, new, batch, kind) for prompt in lengths]
    except BaseException as error:
        answer.put((name, "failed", f"{type(error).__name__}: {str(error)[:300]}"))
        return
    formulas = list(dict.fromkeys(formula for _, formula in found))
    is_equal = [one for one, _ in found] == held
    answer.put((name, "equal" if is_equal else "differs", f"{[sum(holding.values()) for holding in held]} {formulas}"))
    if not is_equal:
        for prompt, has, (says, _) in zip(lengths, held, found, strict=True):
            print(name, prompt, "holds", has, "told", says, file=sys.stderr)


def main() -> int:
    """Print a line for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--cache", default="dynamic")
    parser.add_argument("--list", action="store_true", help="print the configurations")
    args = parser.parse_args()
    if args.list:
        print(json.dumps(ARCHITECTURES, indent=1))
        return 0
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401  imported before the forks, to import once

    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    counts: dict[str, int] = {}
    for name in args.names or ARCHITECTURES:
        answer = context.Queue()
        process = context.Process(
            target=_row, args=(name, list(map(int, args.lengths.split(","))), args.new, args.batch, args.cache, answer)
        )
        process.start()
        try:
            row = answer.get(timeout=300)
        except Exception:  # its process ended without one
            row = (name, "failed", "no answer")
        process.join(5)
        counts[row[1]] = counts.get(row[1], 0) + 1
        print(*row, flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts.get("equal", 0) != sum(counts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
