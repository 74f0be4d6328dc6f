"""Operators of ONNX Runtime's own: sizes and element types against real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from irscope.ir.graph import Attr
from irscope.ir.types import Type
from tests.tables import every
from tests.unit.ops.calling import infer, of_array

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One ONNX node with its inputs, and the record that stands for it."""

    op_type: str
    inputs: Sequence[Array | None]
    record: str
    onnx_attrs: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Attr] | None = None
    """Attributes of the record, where they are not those of the node."""
    results: int = 1
    domain: str = "com.microsoft"
    order: Sequence[int] | None = None
    """Which ONNX input each operand of the record is."""
    opset: int = 17


def f(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).random(shape, dtype=np.float32)


def i(*shape: int, high: int = 2, dtype: type = np.int32) -> Array:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


def u8(*shape: int) -> Array:
    return i(*shape, high=200, dtype=np.uint8)


ONE = np.float32(0.1)
ZERO = np.uint8(3)
S, Z = np.asarray(ONE), np.asarray(ZERO)
HEADS = {"num_heads": 2}
GROUPED = {"num_heads": 4, "kv_num_heads": 2}
LENGTHS = (np.asarray([4, 4], dtype=np.int32), np.asarray(5, dtype=np.int32))

SEQ = f(2, 5, 8)
MULTI, GQA, ML = "nn.ort_multi_head_attention", "nn.group_query_attention", "ai.onnx.ml"
FEW_BITS = {"bits": 4, "block_size": 16}
LINEAR = {"q_num_heads": 2, "kv_num_heads": 2}
CROP = np.asarray([0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75], dtype=np.float32), np.asarray([1, 1, 1.5, 0.8], dtype=np.float32)
INDICES = np.int64

CASES = {
    "attention": Case("Attention", [SEQ, f(8, 24), f(24)], "nn.ort_attention", HEADS),
    "attention of unequal sizes": Case("Attention", [SEQ, f(8, 28), f(28)], "nn.ort_attention", {**HEADS, "qkv_hidden_sizes": [8, 8, 12]}),
    "attention with a past": Case(
        "Attention", [SEQ, f(8, 24), f(24), None, f(2, 2, 2, 3, 4)], "nn.ort_attention", {**HEADS, "unidirectional": 1}, HEADS, 2
    ),
    "attention with a present": Case("Attention", [SEQ, f(8, 24), f(24)], "nn.ort_attention", {**HEADS, "unidirectional": 1}, HEADS, 2),
    "multi-head": Case("MultiHeadAttention", [SEQ, f(2, 6, 8), f(2, 6, 12)], MULTI, HEADS),
    "multi-head, cross": Case("MultiHeadAttention", [SEQ, f(2, 2, 6, 4), f(2, 2, 6, 4)], MULTI, HEADS),
    "multi-head with a past": Case(
        "MultiHeadAttention", [SEQ, SEQ, SEQ, None, None, None, f(2, 2, 3, 4), f(2, 2, 3, 4)], MULTI, HEADS, results=3
    ),
    "grouped, first call": Case(
        "GroupQueryAttention", [f(2, 5, 32), f(2, 5, 16), f(2, 5, 16), None, None, *LENGTHS], GQA, GROUPED, results=3
    ),
    "grouped, packed": Case("GroupQueryAttention", [f(2, 5, 64), None, None, None, None, *LENGTHS], GQA, GROUPED, results=3),
    "grouped, with a past": Case(
        "GroupQueryAttention", [f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), f(2, 2, 4, 8), f(2, 2, 4, 8), *LENGTHS], GQA, GROUPED, results=3
    ),
    "grouped, past with room": Case(
        "GroupQueryAttention", [f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), f(2, 2, 9, 8), f(2, 2, 9, 8), *LENGTHS], GQA, GROUPED, results=3
    ),
    "rotary": Case(
        "RotaryEmbedding", [f(2, 5, 16), i(2, 5, dtype=INDICES), f(7, 4), f(7, 4)], "nn.rotary_embedding", HEADS, order=[0, 2, 3, 1]
    ),
    "skip and layer norm": Case("SkipLayerNormalization", [SEQ, SEQ, f(8), f(8), f(8)], "nn.skip_layer_norm", results=4),
    "skip and rms norm": Case("SkipSimplifiedLayerNormalization", [SEQ, SEQ, f(8)], "nn.skip_rms_norm", results=4),
    "embedding and norm": Case(
        "EmbedLayerNormalization", [i(2, 5), i(2, 5), f(9, 8), f(6, 8), f(2, 8), f(8), f(8), i(2, 5)], "nn.embed_layer_norm", results=3
    ),
    "bias and gelu": Case("BiasGelu", [SEQ, f(8)], "nn.bias_gelu"),
    "fused matmul": Case(
        "FusedMatMul", [f(2, 8, 5), f(2, 8, 6)], "math.fused_matmul", {"transA": 1, "alpha": 0.5}, {"trans_a": True, "alpha": 0.5}
    ),
    "fused matmul, batch moved": Case(
        "FusedMatMul", [f(5, 2, 8), f(2, 8, 6)], "math.fused_matmul", {"transBatchA": 1}, {"trans_batch_a": True}
    ),
    "fused matmul, both": Case(
        "FusedMatMul",
        [f(5, 2, 8), f(6, 2, 5)],
        "math.fused_matmul",
        dict.fromkeys(("transBatchA", "transA", "transBatchB", "transB"), 1),
        dict.fromkeys(("trans_batch_a", "trans_a", "trans_batch_b", "trans_b"), True),
    ),
    "fused gemm": Case("FusedGemm", [f(3, 4), f(4, 5), f(5)], "math.gemm", {"activation": "Relu"}, {"activation": "relu"}),
    "fused conv": Case("FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)], "nn.fused_conv", {"activation": "Relu"}, {"activation": "relu"}),
    "few bits": Case(
        "MatMulNBits", [f(2, 5, 32), u8(6, 2, 8), f(12)], "quant.matmul_nbits", {"K": 32, "N": 6, **FEW_BITS}, {"k": 32, "n": 6, **FEW_BITS}
    ),
    "integers to float": Case("MatMulIntegerToFloat", [u8(4, 8), u8(8, 3), S, S, Z, Z, f(3)], "quant.matmul_integer_to_float"),
    "dynamic matmul": Case("DynamicQuantizeMatMul", [f(2, 4, 8), u8(8, 3), S, Z], "quant.dynamic_quantize_matmul"),
    "qgemm": Case("QGemm", [u8(4, 8), S, Z, u8(8, 3), S, Z, i(3), S, Z], "quant.qgemm"),
    "qgemm to float": Case("QGemm", [u8(4, 8), S, Z, u8(3, 8), S, Z, None], "quant.qgemm", {"transB": 1}, {"trans_b": True}),
    "qlinear add": Case("QLinearAdd", [u8(2, 1, 4), S, Z, u8(3, 1), S, Z, S, Z], "quant.qlinear_binary", {}, {"op": "add"}),
    "qlinear sigmoid": Case("QLinearSigmoid", [u8(2, 4), S, Z, S, Z], "quant.qlinear_unary", {}, {"op": "sigmoid"}),
    "qlinear softmax": Case(
        "QLinearSoftmax", [u8(2, 4), S, Z, S, Z], "quant.qlinear_unary", {"opset": 13, "axis": -1}, {"op": "softmax", "axis": -1}
    ),
    "qlinear concat": Case("QLinearConcat", [S, Z, u8(2, 3), S, Z, u8(2, 4), S, Z], "quant.qlinear_concat", {"axis": 1}),
    "qlinear where": Case("QLinearWhere", [i(2, 1).astype(bool), u8(2, 4), S, Z, u8(4), S, Z, S, Z], "quant.qlinear_where"),
    "qlinear average pool": Case(
        "QLinearAveragePool",
        [u8(1, 3, 7, 7), S, Z, S, Z],
        "quant.qlinear_avg_pool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": True},
    ),
    "qlinear global pool": Case("QLinearGlobalAveragePool", [u8(1, 3, 7, 7), S, Z, S, Z], "quant.qlinear_global_avg_pool"),
    "quantized attention": Case("QAttention", [u8(2, 5, 8), u8(8, 24), f(24), S, S, None, Z, Z], "nn.ort_quantized_attention", HEADS),
    "gather of blocks": Case(
        "GatherBlockQuantized",
        [u8(6, 8), i(2, 3, high=6), f(6, 1)],
        "quant.gather_block_quantized",
        {**FEW_BITS, "gather_axis": 0, "quantize_axis": 1},
    ),
    "experts": Case("MoE", [f(10, 8), f(10, 4), f(4, 16, 8), f(4, 16), f(4, 8, 16), f(4, 8)], "nn.moe", {"k": 2}),
    "linear attention": Case(
        "LinearAttention", [SEQ, SEQ, f(2, 5, 12), None, f(2, 5, 2), f(2, 5, 2)], "nn.linear_attention", LINEAR, results=2
    ),
    "quantized lstm": Case(
        "DynamicQuantizeLSTM",
        [f(5, 2, 3), u8(1, 3, 16), u8(1, 4, 16), f(1, 32), None, None, None, None, f(1), u8(1), f(1), u8(1)],
        "rnn.dynamic_quantize_lstm",
        {"hidden_size": 4},
        results=3,
    ),
    "resize by scales that crop": Case(
        "Resize",
        [f(1, 1, 8, 8), *CROP],
        "vision.resize",
        {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"},
        {"coordinates": "tf_crop_and_resize"},
        domain="",
    ),
    "features by index": Case("ArrayFeatureExtractor", [f(3, 5), i(1, 2, dtype=INDICES)], "learn.array_feature_extractor", domain=ML),
    "features of one example": Case("ArrayFeatureExtractor", [f(5), i(2, dtype=INDICES)], "learn.array_feature_extractor", domain=ML),
    "features joined": Case(
        "FeatureVectorizer", [f(3, 2), f(3, 4)], "learn.feature_vectorizer", {"inputdimensions": [2, 4]}, {"widths": (2, 4)}, domain=ML
    ),
    "one-hot categories": Case(
        "OneHotEncoder", [i(3, 2, dtype=INDICES)], "learn.one_hot_encoder", {"cats_int64s": [0, 1, 2]}, {"categories": 3}, domain=ML
    ),
    "scaler": Case("Scaler", [f(3, 2)], "learn.scaler", {"offset": [0.0, 0.0], "scale": [1.0, 2.0]}, {}, domain=ML),
    "linear classifier": Case(
        "LinearClassifier",
        [f(3, 2)],
        "learn.linear_classifier",
        {"classlabels_ints": [0, 1, 2], "coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "multi_class": 1},
        {"labels": (0, 1, 2)},
        results=2,
        domain=ML,
    ),
    "linear classifier of two classes": Case(
        "LinearClassifier",
        [f(3, 2)],
        "learn.linear_classifier",
        {"classlabels_ints": [0, 1], "coefficients": [1.0] * 2, "intercepts": [0.0]},
        {"labels": (0, 1)},
        results=2,
        domain=ML,
    ),
    "linear regressor": Case(
        "LinearRegressor",
        [f(3, 2)],
        "learn.linear_regressor",
        {"coefficients": [1.0] * 4, "intercepts": [0.0] * 2, "targets": 2},
        {"targets": 2},
        domain=ML,
    ),
}


@pytest.mark.ort
@every("case", CASES.values(), ids=CASES)
def test_results_are_those_of_a_run(case: Case) -> None:
    produced = run(case)
    order = case.order if case.order is not None else range(len(case.inputs))
    inputs = [case.inputs[index] for index in order]
    types: list[Type | None] = [None if array is None else of_array(array) for array in inputs]
    attrs = case.attrs if case.attrs is not None else {name: tuple(v) if isinstance(v, list) else v for name, v in case.onnx_attrs.items()}
    found = infer(case.record, *types, values=inputs, results=case.results, **attrs)
    assert len(found) == case.results
    for type_, array in zip(found, produced, strict=True):
        if array is not None:
            assert str(type_) == str(of_array(array))


def run(case: Case) -> list[Array | None]:
    """What ONNX Runtime makes of the node; None for a result it does not offer."""
    import onnxruntime
    from onnx import helper

    names = [f"x{index}" if array is not None else "" for index, array in enumerate(case.inputs)]
    outputs = [f"y{index}" for index in range(case.results)]
    node = helper.make_node(case.op_type, names, outputs, domain=case.domain, **case.onnx_attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, case.inputs, strict=True)
        if array is not None
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", inputs, results)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {name: array for name, array in zip(names, case.inputs, strict=True) if array is not None}
    found = session.run(None, feeds)
    return [array if isinstance(array, np.ndarray) and array.dtype.kind != "O" else None for array in found]
