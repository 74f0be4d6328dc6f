"""The table of ATen signatures, made from the installed torch: `python -m tests.tools.torch_files.signature_table` writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from irscope.frontends.torch_lowering.layers import TRAINING, TRAINING_RULES

TABLE = Path(__file__).parents[3] / "frontends" / "torch_lowering" / "signatures.json"
PRIVATE = {
    "_convolution", "_convolution_mode", "_softmax", "_log_softmax", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit_functional", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu", "_to_copy", "_unsafe_view", "_unsafe_index",
    "_unsafe_index_put", "_index_put_impl_", "_reshape_alias", "_embedding_bag", "_cdist_forward", "_pdist_forward", "_local_scalar_dense",
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_weight_norm", "_weight_norm_interface", "_unique2", "_fft_r2c",
    "_fft_c2r", "_fft_c2c", "_transformer_encoder_layer_fwd", "_native_multi_head_attention", "_grouped_mm", "_trilinear",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_nearest_exact2d", "_log_softmax_backward_data", "_shape_as_tensor",
    "_dim_arange", "_cast_Float", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_add_relu", "_fused_rms_norm", "_int_mm",
    "_weight_int8pack_mm", "_stack", "_nested_tensor_size", "_pack_padded_sequence", "_pad_packed_sequence", "_linalg_det", "_linalg_svd",
    "_conj", "_neg_view", "_lazy_clone", "__and__", "__or__", "__xor__", "__iand__", "__ior__", "__ixor__", "__lshift__", "__rshift__",
}  # fmt: skip
TRAINING = frozenset({*TRAINING, *TRAINING_RULES})
"""Backward operators and those over lists of tensors, which only training has."""
UNWANTED = re.compile(r"backward|(?<!fresh)_copy$|^(cudnn|miopen|mkldnn|mps|sparse|fbgemm|quantized|q_)|Dimname|_for_sparse|_nested")


def wanted(name: str, text: str) -> bool:
    """Whether a signature belongs into the table."""
    if name in TRAINING or name.rstrip("_") in TRAINING:
        return "Dimname" not in text
    if "Tensor" not in text or UNWANTED.search(name) or "Dimname" in text or "Future" in text:
        return False
    return not name.startswith("_") or name.rstrip("_") in PRIVATE or name in PRIVATE


def compact() -> dict[str, list[str]]:
    """Name -> signatures "overload(arguments) -> results" in torch's order, without those that write to `out`."""
    import torch

    table: dict[str, list[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::") or any(argument.is_out for argument in schema.arguments):
            continue
        text = str(schema)
        name = schema.name.removeprefix("aten::")
        if wanted(name, text):
            table.setdefault(name, []).append(f"{schema.overload_name}{text[text.index('(') :]}")
    return {name: table[name] for name in sorted(table)}


def write() -> None:
    """Write the table, one operator a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(signatures)}" for name, signatures in compact().items())
    TABLE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
