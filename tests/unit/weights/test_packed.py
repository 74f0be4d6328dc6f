"""Weights in few bits: how many each tensor of a checkpoint stands for, by layout.

Names, types and shapes of the layouts are what the serialisers wrote for one Llama of two layers: bitsandbytes 0.50.2, torchao 0.18,
compressed-tensors 0.20 and the classes of transformers 5.23 (FP8Linear) and AutoAWQ 0.2.9; GPTQ's are those that GPTQModel 7.7
registers, MXFP4's those of gpt-oss.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from irscope.cli.main import main
from irscope.frontends.torch_lowering.dtypes import SAFETENSORS_DTYPES
from irscope.ir.dtypes import DType
from irscope.weights.schemes import Tensors, read_packed
from tests.tables import every

OUTPUTS, INPUTS = 256, 384
Header = Mapping[str, "tuple[str, list[int]]"]


def _stored(header: Header) -> Tensors:
    return {name: (SAFETENSORS_DTYPES[dtype], tuple(shape)) for name, (dtype, shape) in header.items()}


def stored_bytes_of(header: Header) -> int:
    """What tensors take in a file."""
    return sum(math.prod(shape) * (SAFETENSORS_DTYPES[dtype].bits or 0) // 8 for dtype, shape in header.values())


def write(path: Path, header: Header, metadata: Mapping[str, str] | None = None) -> Path:
    """A safetensors file of zeros."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    end = 0
    for name, (dtype, shape) in header.items():
        size = math.prod(shape) * (SAFETENSORS_DTYPES[dtype].bits or 0) // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return path


BNB: Header = {"l.weight": ("U8", [49152, 1]), "l.weight.absmax": ("F32", [1536]), "l.weight.quant_map": ("F32", [16])}
NF4: Header = {**BNB, "l.weight.quant_state.bitsandbytes__nf4": ("U8", [80])}
DOUBLE: Header = {
    **NF4,
    "l.weight.absmax": ("U8", [1536]),
    "l.weight.nested_absmax": ("F32", [6]),
    "l.weight.nested_quant_map": ("F32", [256]),
}
FP4_IN_BF16: Header = {**BNB, "l.weight": ("BF16", [24576, 1]), "l.weight.quant_state.bitsandbytes__fp4": ("U8", [80])}
INT8: Header = {"l.weight": ("I8", [256, 384]), "l.SCB": ("F32", [256]), "l.weight_format": ("U8", [])}
GPTQ: Header = {"l.qweight": ("I32", [48, 256]), "l.qzeros": ("I32", [3, 32]), "l.scales": ("F16", [3, 256]), "l.g_idx": ("I32", [384])}
GPTQ3: Header = {"l.qweight": ("I32", [36, 256]), "l.qzeros": ("I32", [3, 24]), "l.scales": ("F16", [3, 256]), "l.g_idx": ("I32", [384])}
AWQ: Header = {"l.qweight": ("I32", [384, 32]), "l.qzeros": ("I32", [3, 32]), "l.scales": ("F16", [3, 256])}
AWQ_GEMV: Header = {"l.qweight": ("I32", [256, 48]), "l.qzeros": ("I32", [256, 1]), "l.scales": ("F16", [256, 8])}
FP8_BLOCKS: Header = {"l.weight": ("F8_E4M3", [256, 384]), "l.weight_scale_inv": ("F32", [2, 3])}
FP8_TENSOR: Header = {"l.weight": ("F8_E4M3", [256, 384]), "l.weight_scale": ("F32", []), "l.input_scale": ("F32", [])}
FP8_ROWS: Header = {"l.weight": ("F8_E4M3", [256, 384]), "l.weight_scale": ("BF16", [256, 1])}
W4A16: Header = {"l.weight_packed": ("I32", [256, 48]), "l.weight_scale": ("BF16", [256, 3]), "l.weight_shape": ("I64", [2])}
W4A16_ASYM: Header = {**W4A16, "l.weight_zero_point": ("I32", [32, 3])}
W8A8: Header = {"l.weight": ("I8", [256, 384]), "l.weight_scale": ("BF16", [256, 1])}
NVFP4: Header = {
    "l.weight_packed": ("U8", [256, 192]),
    "l.weight_scale": ("F8_E4M3", [256, 24]),
    "l.weight_global_scale": ("F32", [1]),
    "l.input_global_scale": ("F32", [1]),
}
CT_MXFP4: Header = {"l.weight_packed": ("U8", [256, 192]), "l.weight_scale": ("U8", [256, 12])}
MXFP4: Header = {"e.gate_up_proj_blocks": ("U8", [4, 64, 12, 16]), "e.gate_up_proj_scales": ("U8", [4, 64, 12])}
AO_INT8: Header = {"l._weight_qdata": ("I8", [256, 384]), "l._weight_scale": ("F32", [256, 1]), "l._weight_zero_point": ("I8", [256, 1])}
AO_FP8: Header = {"l._weight_qdata": ("F8_E4M3", [256, 384]), "l._weight_scale": ("F32", [256, 1])}
AO_INT4: Header = {"l._weight_qdata": ("U8", [256, 192]), "l._weight_scale": ("BF16", [3, 256]), "l._weight_zero_point": ("BF16", [3, 256])}


def _torchao(type_: str, **data: Any) -> dict[str, str]:
    return {"l.weight": json.dumps({"_type": type_, "_data": data}), "tensor_names": '["l.weight"]'}


def _ct(bits: int) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": bits}}}}


LAYOUTS = {
    "nf4": (NF4, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, {}, "nf4"),
    "nf4 without configuration": (NF4, {}, {}, "nf4"),
    "nf4 double": (DOUBLE, {"load_in_4bit": True}, {}, "nf4 double"),
    "fp4 in bf16": (FP4_IN_BF16, {"quant_method": "bitsandbytes", "load_in_4bit": True}, {}, "fp4"),
    "int8": (INT8, {"quant_method": "bitsandbytes", "load_in_8bit": True}, {}, "int8 by row"),
    "gptq": (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 128}, {}, "gptq 4 bit"),
    "gptq without g_idx": ({name: one for name, one in GPTQ.items() if "g_idx" not in name}, {}, {}, "gptq 4 bit"),
    "gptq 3 bit": (GPTQ3, {"quant_method": "gptq", "bits": 3, "group_size": 128}, {}, "gptq 3 bit"),
    "awq": (AWQ, {"quant_method": "awq", "bits": 4, "group_size": 128}, {}, "awq 4 bit"),
    "awq for gemv": (AWQ_GEMV, {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"}, {}, "awq 4 bit"),
    "fp8 blocks": (FP8_BLOCKS, {"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "f8e4m3fn blocks of 128x128"),
    "fp8 tensor": (FP8_TENSOR, {}, {}, "f8e4m3fn"),
    "fp8 rows": (FP8_ROWS, _ct(8), {}, "f8e4m3fn by row"),
    "compressed-tensors": (W4A16, _ct(4), {}, "int4 group 128"),
    "compressed-tensors asymmetric": (W4A16_ASYM, _ct(4), {}, "int4 group 128"),
    "compressed-tensors w8a8": (W8A8, _ct(8), {}, "int8 by row"),
    "nvfp4": (NVFP4, _ct(4), {}, "nvfp4 group 16"),
    "mxfp4 of compressed-tensors": (CT_MXFP4, _ct(4), {}, "mxfp4 group 32"),
    "mxfp4": (MXFP4, {"quant_method": "mxfp4"}, {}, "mxfp4"),
    "torchao int8": (AO_INT8, {"quant_method": "torchao"}, _torchao("Int8Tensor", block_size=[1, 384]), "int8"),
    "torchao fp8": (AO_FP8, {"quant_method": "torchao"}, _torchao("Float8Tensor", block_size=[1, 384]), "f8e4m3fn"),
    "torchao int4": (AO_INT4, {"quant_method": "torchao"}, _torchao("Int4Tensor", block_size=[1, 128]), "int4 group 128"),
    "torchao int4 in bytes": (
        {**AO_INT8, "l._weight_scale": ("BF16", [256, 12])},
        {"quant_method": "torchao"},
        _torchao("IntxUnpackedToInt8Tensor", target_dtype={"_type": "torch.dtype", "_data": "int4"}, block_size=[1, 32]),
        "int4 group 32",
    ),
}


@every("layout", LAYOUTS)
def test_weights_of_a_layout(layout: str) -> None:
    header, config, metadata, scheme = LAYOUTS[layout]
    packed = read_packed(_stored(header), config, metadata)
    assert packed.unknown == ""
    (one,) = packed.weights
    assert (one.scheme, one.count) == (scheme, OUTPUTS * INPUTS)
    assert sorted(one.tensors) == sorted(header), "what lies beside the codes belongs to them"
    if one.shape is not None and len(one.shape) == 2:
        assert one.shape == (OUTPUTS, INPUTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_at_rest_are_exact_and_parameters_logical(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, config, metadata, _ = LAYOUTS[layout]
    file = write(tmp_path / "model.safetensors", {**header, "norm.weight": ("BF16", [384])}, metadata)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config} if config else {}))
    assert main(["run", "--format", "json", "--passes", "params", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    summary = document["reports"][0]["summary"]
    assert summary["count"] == OUTPUTS * INPUTS + 384
    assert summary["bytes"] == stored_bytes_of(header) + 768
    assert summary["buffer_bytes"] == 0
    assert summary["bits_each"] == 8 * (stored_bytes_of(header) + 768) / (OUTPUTS * INPUTS + 384)
    assert document["model"]["parameters"] == OUTPUTS * INPUTS + 384


@pytest.mark.parametrize(
    ("header", "config", "said"),
    [
        (GPTQ, {"quant_method": "awq"}, "the configuration says awq, and 'l.weight' is stored as gptq does"),
        (GPTQ, {"quant_method": "gptq", "bits": 8}, "the configuration says 8 bits, and 'l.weight' is stored as gptq 4 bit"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 32}, "groups of 32, and those of 'l.weight' have 128"),
        ({**GPTQ, "l.g_idx": ("I32", [400])}, {"quant_method": "gptq"}, "'l.g_idx' is for 400 inputs, 'l.qweight' has 384"),
        ({**NF4, "l.weight.absmax": ("F32", [1000])}, {}, "1,000 scales fit no size of blocks"),
        ({**DOUBLE, "l.weight.nested_absmax": ("F32", [7])}, {}, "'l.weight.nested_absmax' has 7 scales for 1,536"),
        ({**FP8_BLOCKS, "l.weight_scale_inv": ("F32", [2, 500])}, {}, "'l.weight_scale_inv' is of shape [2, 500]"),
        (INT8, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "says nf4, and 'l.weight' is stored as int8"),
        ({"l.weight": ("BF16", [256, 384])}, {"quant_method": "gptq"}, "says gptq, and no tensor is stored so"),
        ({"l.codebook_codes": ("I16", [256, 48])}, {"quant_method": "aqlm"}, "1 tensors of whole numbers are in no layout that is known"),
        (W4A16, {"quant_method": "compressed-tensors"}, "1 tensors of whole numbers are in no layout that is known"),
        ({"l.qweight": ("I32", [24, 512]), "l.scales": ("F16", [3, 256])}, {}, "the configuration does not say how"),
        ({**MXFP4, "e.gate_up_proj_scales": ("U8", [4, 64, 11])}, {}, "is of shape [4, 64, 11] instead of [4, 64, 12]"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said(
    header: Header, config: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "model.safetensors", header)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    assert main(["run", "--format", "json", "--passes", "params", str(file)]) == 0
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if "IRS169" in line]
    assert said in line
    document = json.loads(out)
    assert document["model"]["parameters"] is None
    assert document["reports"][0]["summary"]["bytes"] + document["reports"][0]["summary"]["buffer_bytes"] == stored_bytes_of(header)
    assert main(["run", "--passes", "params", str(file)]) == 0
    text = capsys.readouterr().out
    assert "unknown parameters" in " ".join(text.split())


def test_no_header_is_too_strange() -> None:
    """Names, types, shapes and settings in any disorder: a number of weights or a reason, never an error."""
    chance = random.Random(0)
    strange: list[Any] = [None, 0, -1, 8, 128, "4", [1], {}, {"a": 1}, 1.5, True, "nf4"]
    keys = ("quant_method", "bits", "group_size", "load_in_4bit", "bnb_4bit_quant_type", "config_groups", "weight_block_size")
    for _ in range(4000):
        header, config, metadata, _ = LAYOUTS[chance.choice(list(LAYOUTS))]
        tensors, settings = dict(_stored(header)), dict(config)
        for name in chance.sample(list(tensors), chance.randint(0, len(tensors))):
            dtype, shape = tensors[name]
            changed = tuple(chance.choice((0, 1, 3, size, size + 1, 2**40)) for size in shape)
            tensors[name] = chance.choice(
                ((dtype, changed), (chance.choice(list(DType)), shape), (dtype, shape[:-1]), (dtype, (*shape, 3)))
            )
        for key in chance.sample(keys, 2):
            settings[key] = chance.choice(strange)
        if chance.random() < 0.3:
            settings["config_groups"] = {"a": {"weights": {"num_bits": chance.choice(strange), "group_size": chance.choice(strange)}}}
        texts = dict.fromkeys(metadata, chance.choice(('{"_type":1,"_data":[]}', "{", "[]", *metadata.values()))) if metadata else {}
        packed = read_packed(tensors, settings, texts)
        assert all(weight.count >= 0 for weight in packed.weights)


@pytest.mark.parametrize(("bits", "words", "count"), [(3, 10, 100), (4, 13, 104), (3, 12, 128)])
def test_words_that_are_not_full_hold_no_weights(bits: int, words: int, count: int) -> None:
    """Codes of 3 bits go on from word to word, so that groups tell where a row of 100 ends."""
    config = {"config_groups": {"a": {"weights": {"num_bits": bits, "group_size": 50 if count == 100 else 64}}}}
    groups = 2 if count != 104 else 1
    tensors: Tensors = {"l.weight_packed": (DType.I32, (8, words)), "l.weight_scale": (DType.BF16, (8, groups))}
    (one,) = read_packed(tensors, config).weights
    assert one.shape == (8, count)


def test_whole_numbers_that_are_no_weights_stay_buffers() -> None:
    tensors: Tensors = {"embeddings.position_ids": (DType.I64, (1, 512)), "norm.weight": (DType.F32, (8,)), "mask": (DType.BOOL, (4, 4))}
    assert read_packed(tensors).unknown == ""


def test_a_shard_without_quantised_weights_is_no_contradiction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "model-00001-of-00002.safetensors", {"embed.weight": ("BF16", [16, 4])})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq"}}))
    assert main(["run", "--passes", "params", str(file)]) == 0
    assert "IRS169" not in capsys.readouterr().err


def test_codes_are_no_matrices_of_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "model.safetensors", {**FP4_IN_BF16, "head.weight": ("BF16", [16, 8])})
    assert main(["run", "--format", "json", "--passes", "quantize-error", str(file)]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert [row[0] for row in report["tables"][0]["rows"]] == ["head.weight"]


def test_the_card_says_bits_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "model.safetensors", NF4)
    assert main([str(file)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "98,304 parameters in 4.51 bits each, 54.14 KiB nf4" in text
    assert "Adam" not in text, "codes of few bits have no gradients"
