"""Small configurations of the families in the transformers package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_TEXT: dict[str, tuple[int, ...]] = {"input_ids": (16,), "attention_mask": (16,)}
_IMAGE: dict[str, tuple[int, ...]] = {"pixel_values": (3, 64, 64)}
_NO_CACHE = {"use_cache": False}


@dataclass(frozen=True)
class Family:
    """One configuration: classes by name, settings, inputs without the batch axis, options of the call."""

    config: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict(_TEXT))
    options: dict[str, Any] = field(default_factory=dict)
    vocabulary: int = 99
    dynamic: bool = True


_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_DECODER = {**_SMALL, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 64,
    "patch_size": 16,
}
_SEQ2SEQ = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
_SPEECH = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
}
_RESNET = {"class": "ResNetConfig", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
_STAGES = {"out_features": ["stage4"]}
_BOTH = {"input_ids": (16,), "decoder_input_ids": (8,)}
_PAIR = {"input_ids": (16,), "pixel_values": (3, 64, 64), "attention_mask": (16,)}


def _encoder(config: str, model: str, **settings: Any) -> Family:
    return Family(config, model, {**_SMALL, **settings})


def _decoder(config: str, model: str, **settings: Any) -> Family:
    return Family(config, model, {**_DECODER, **settings}, options=dict(_NO_CACHE))


def _vision(config: str, model: str, **settings: Any) -> Family:
    return Family(config, model, {**_VISION, **settings}, dict(_IMAGE))


def _seq2seq(config: str, model: str, **settings: Any) -> Family:
    return Family(config, model, {**_SEQ2SEQ, **settings}, dict(_BOTH), dict(_NO_CACHE))


FAMILIES: dict[str, Family] = {
    # text encoders
    "bert": _encoder("BertConfig", "BertForSequenceClassification"),
    "roberta": _encoder("RobertaConfig", "RobertaForTokenClassification", pad_token_id=1),
    "albert": _encoder("AlbertConfig", "AlbertForMaskedLM", embedding_size=16),
    "electra": _encoder("ElectraConfig", "ElectraForPreTraining", embedding_size=16),
    "distilbert": Family(
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
    ),
    "deberta_v2": _encoder(
        "DebertaV2Config",
        "DebertaV2ForSequenceClassification",
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    ),
    "mpnet": _encoder("MPNetConfig", "MPNetModel", pad_token_id=1),
    "mobilebert": _encoder("MobileBertConfig", "MobileBertModel", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "squeezebert": _encoder("SqueezeBertConfig", "SqueezeBertModel", embedding_size=32),
    "modernbert": _encoder("ModernBertConfig", "ModernBertForMaskedLM", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
    "layoutlm": Family("LayoutLMConfig", "LayoutLMModel", {**_SMALL, "max_2d_position_embeddings": 128}, {**_TEXT, "bbox": (16, 4)}),
    "big_bird": _encoder("BigBirdConfig", "BigBirdModel", attention_type="original_full"),
    "longformer": _encoder("LongformerConfig", "LongformerModel", attention_window=8, pad_token_id=1),
    "funnel": Family(
        "FunnelConfig",
        "FunnelModel",
        {"vocab_size": 99, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "num_decoder_layers": 1},
    ),
    "fnet": Family("FNetConfig", "FNetModel", _SMALL, {"input_ids": (16,)}),
    "canine": _encoder("CanineConfig", "CanineModel", num_hash_buckets=64, local_transformer_stride=8),
    "perceiver": Family(
        "PerceiverConfig",
        "PerceiverModel",
        {
            "num_latents": 8,
            "d_latents": 32,
            "d_model": 24,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        {"inputs": (16, 24)},
    ),
    # decoders
    "gpt2": Family(
        "GPT2Config", "GPT2LMHeadModel", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, options=_NO_CACHE
    ),
    "gpt_neo": Family(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": 64,
        },
        options=_NO_CACHE,
    ),
    "gptj": Family(
        "GPTJConfig",
        "GPTJForCausalLM",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
        options=_NO_CACHE,
    ),
    "gpt_neox": _decoder("GPTNeoXConfig", "GPTNeoXForCausalLM"),
    "opt": Family(
        "OPTConfig",
        "OPTForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
        },
        options=_NO_CACHE,
    ),
    "bloom": Family("BloomConfig", "BloomForCausalLM", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4}, options=_NO_CACHE),
    "llama": _decoder("LlamaConfig", "LlamaForCausalLM"),
    "mistral": _decoder("MistralConfig", "MistralForCausalLM", sliding_window=8),
    "mixtral": _decoder("MixtralConfig", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2),
    "qwen2": _decoder("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": _decoder("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen3_moe": _decoder("Qwen3MoeConfig", "Qwen3MoeForCausalLM", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    "gemma": _decoder("GemmaConfig", "GemmaForCausalLM"),
    "gemma2": _decoder("Gemma2Config", "Gemma2ForCausalLM", sliding_window=8),
    "gemma3": _decoder("Gemma3TextConfig", "Gemma3ForCausalLM", sliding_window=8),
    "phi": _decoder("PhiConfig", "PhiForCausalLM"),
    "phi3": _decoder("Phi3Config", "Phi3ForCausalLM"),
    "falcon": _encoder("FalconConfig", "FalconForCausalLM", multi_query=True),
    "stablelm": _decoder("StableLmConfig", "StableLmForCausalLM"),
    "olmo2": _decoder("Olmo2Config", "Olmo2ForCausalLM"),
    "cohere": _decoder("CohereConfig", "CohereForCausalLM"),
    "granite": _decoder("GraniteConfig", "GraniteForCausalLM"),
    "starcoder2": _decoder("Starcoder2Config", "Starcoder2ForCausalLM"),
    "deepseek_v3": Family(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **_SMALL,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
        options=_NO_CACHE,
    ),
    "mamba": Family(
        "MambaConfig",
        "MambaForCausalLM",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        {"input_ids": (16,)},
        _NO_CACHE,
    ),
    "mamba2": Family(
        "Mamba2Config",
        "Mamba2ForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
        {"input_ids": (16,)},
        _NO_CACHE,
    ),
    "xlnet": Family(
        "XLNetConfig", "XLNetLMHeadModel", {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}, options={}
    ),
    # encoder and decoder
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
        _BOTH,
        _NO_CACHE,
    ),
    "bart": _seq2seq("BartConfig", "BartForConditionalGeneration"),
    "marian": _seq2seq("MarianConfig", "MarianMTModel"),
    "pegasus": _seq2seq("PegasusConfig", "PegasusForConditionalGeneration"),
    # speech
    "whisper": Family(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {
            **{key: value for key, value in _SEQ2SEQ.items() if key != "max_position_embeddings"},
            "num_mel_bins": 16,
            "max_source_positions": 20,
            "max_target_positions": 32,
        },
        {"input_features": (16, 40), "decoder_input_ids": (8,)},
        _NO_CACHE,
    ),
    "speech_to_text": Family(
        "Speech2TextConfig",
        "Speech2TextForConditionalGeneration",
        {
            **{key: value for key, value in _SEQ2SEQ.items() if key != "max_position_embeddings"},
            "max_source_positions": 64,
            "max_target_positions": 32,
            "input_feat_per_channel": 16,
            "conv_channels": 16,
        },
        {"input_features": (40, 16), "decoder_input_ids": (8,)},
        _NO_CACHE,
    ),
    "wav2vec2": Family("Wav2Vec2Config", "Wav2Vec2ForCTC", _SPEECH, {"input_values": (1600,)}),
    "hubert": Family("HubertConfig", "HubertForCTC", _SPEECH, {"input_values": (1600,)}),
    "ast": Family(
        "ASTConfig",
        "ASTForAudioClassification",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_length": 64,
            "num_mel_bins": 32,
            "patch_size": 8,
            "frequency_stride": 8,
            "time_stride": 8,
        },
        {"input_values": (64, 32)},
    ),
    # images
    "vit": _vision("ViTConfig", "ViTForImageClassification"),
    "deit": _vision("DeiTConfig", "DeiTForImageClassificationWithTeacher"),
    "beit": _vision("BeitConfig", "BeitForImageClassification", use_relative_position_bias=True),
    "dinov2": _vision("Dinov2Config", "Dinov2ForImageClassification"),
    "vit_mae": _vision("ViTMAEConfig", "ViTMAEModel"),
    "yolos": _vision("YolosConfig", "YolosForObjectDetection", image_size=[64, 64], num_detection_tokens=5),
    "convnext": Family(
        "ConvNextConfig", "ConvNextForImageClassification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1]}, dict(_IMAGE)
    ),
    "convnextv2": Family(
        "ConvNextV2Config", "ConvNextV2ForImageClassification", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 2, 1]}, dict(_IMAGE)
    ),
    "swin": Family(
        "SwinConfig",
        "SwinForImageClassification",
        {"image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        dict(_IMAGE),
    ),
    "swinv2": Family(
        "Swinv2Config",
        "Swinv2ForImageClassification",
        {"image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        dict(_IMAGE),
    ),
    "segformer": Family(
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        {
            "num_encoder_blocks": 4,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 16, 32],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
        },
        dict(_IMAGE),
    ),
    "resnet": Family(
        "ResNetConfig",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        dict(_IMAGE),
    ),
    "regnet": Family(
        "RegNetConfig",
        "RegNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "groups_width": 8},
        dict(_IMAGE),
    ),
    "mobilevit": Family(
        "MobileViTConfig",
        "MobileViTForImageClassification",
        {"image_size": 64, "hidden_sizes": [24, 32, 40], "neck_hidden_sizes": [8, 16, 16, 24, 32, 40, 64], "intermediate_size": 64},
        dict(_IMAGE),
    ),
    "mobilenet_v1": Family("MobileNetV1Config", "MobileNetV1ForImageClassification", {"depth_multiplier": 0.25}, dict(_IMAGE)),
    "poolformer": Family(
        "PoolFormerConfig",
        "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        dict(_IMAGE),
    ),
    "levit": Family(
        "LevitConfig",
        "LevitForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 48],
            "num_attention_heads": [2, 4, 6],
            "key_dim": [8, 8, 8],
            "depths": [1, 1, 1],
            "down_ops": [["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 4, 4, 2, 2]],
        },
        dict(_IMAGE),
    ),
    "pvt": Family(
        "PvtConfig",
        "PvtForImageClassification",
        {"image_size": 64, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]},
        dict(_IMAGE),
    ),
    "dpt": _vision(
        "DPTConfig",
        "DPTForDepthEstimation",
        num_hidden_layers=4,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
    ),
    "upernet": Family(
        "UperNetConfig",
        "UperNetForSemanticSegmentation",
        {
            "backbone_config": {**_RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            "hidden_size": 16,
            "auxiliary_in_channels": 16,
            "auxiliary_channels": 16,
        },
        dict(_IMAGE),
    ),
    "detr": Family(
        "DetrConfig",
        "DetrForObjectDetection",
        {
            **{key: value for key, value in _SEQ2SEQ.items() if key.startswith(("d_", "encoder", "decoder_l", "decoder_a", "decoder_f"))},
            "num_queries": 7,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {**_RESNET, **_STAGES},
        },
        dict(_IMAGE),
    ),
    # images and text
    "clip": Family(
        "CLIPConfig",
        "CLIPModel",
        {
            "text_config": {**_SMALL, "projection_dim": 16, "eos_token_id": 2},
            "vision_config": {**_VISION, "projection_dim": 16},
            "projection_dim": 16,
        },
        dict(_PAIR),
    ),
    "siglip": Family(
        "SiglipConfig",
        "SiglipModel",
        {"text_config": {**_SMALL}, "vision_config": dict(_VISION)},
        dict(_PAIR),
    ),
    "vilt": Family("ViltConfig", "ViltModel", {**_SMALL, **_VISION}, dict(_PAIR)),
    "owlvit": Family(
        "OwlViTConfig",
        "OwlViTModel",
        {"text_config": {**_SMALL, "projection_dim": 16}, "vision_config": {**_VISION, "projection_dim": 16}, "projection_dim": 16},
        dict(_PAIR),
    ),
}
