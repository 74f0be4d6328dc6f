"""What operators become: meanings that changed between versions, and that everything fits the operators' records."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.onnx.call import Call
from irscope.frontends.onnx.program import FOREIGN_REASONS, TABLES, find_lowering
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ir.printer import print_program
from irscope.ir.types import TensorType
from irscope.ops.registry import find_op
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import INT64, graph, ints, load, lowered, model, value
from tests.tables import every

TRANSFORMER_EXPORTS = (  # noqa: SIM905  # ninety lines with one name each would be harder to read
    "Attention MultiHeadAttention DecoderMaskedMultiHeadAttention GroupQueryAttention PagedAttention SparseAttention "
    "LinearAttention GatedDeltaNet QAttention PackedAttention PackedMultiHeadAttention EmbedLayerNormalization "
    "QEmbedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization LayerNormalization BiasGelu FastGelu "
    "QuickGelu Gelu BiasSplitGelu GroupNorm SkipGroupNorm RotaryEmbedding GemmaRotaryEmbedding MRotaryEmbedding "
    "RelativePositionBias GatedRelativePositionBias RemovePadding RestorePadding FusedMatMul FusedMatMulActivation FusedGemm "
    "FusedConv TransposeMatMul GemmFloat8 MatMulNBits MatMulNBitsMlp MatMulNBitsQkv MatMulBnb4 MatMulFpQ4 "
    "MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight GatherBlockQuantized MatMulIntegerToFloat "
    "DynamicQuantizeMatMul DynamicQuantizeLSTM QGemm QLinearAdd QLinearMul QLinearConcat QLinearSoftmax QLinearSigmoid "
    "QLinearLeakyRelu QLinearAveragePool QLinearGlobalAveragePool QLinearReduceMean QLinearWhere QLinearConv QuantizeLinear "
    "DequantizeLinear QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul "
    "MoE QMoE BeamSearch GreedySearch Sampling WhisperBeamSearch NhwcConv EPContext "
).split()
"""Operators of com.microsoft that occur in exported and optimized transformers."""


@every("schema", sorted({(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}), ids="::".join)
def test_every_standard_operator_is_lowered(schema: tuple[str, str]) -> None:
    assert find_lowering(*schema) is not None


@every("name", TRANSFORMER_EXPORTS)
def test_operators_of_transformer_exports_are_lowered_or_foreign_for_a_reason(name: str) -> None:
    assert (find_lowering("com.microsoft", name) is None) == (("com.microsoft", name) in FOREIGN_REASONS)


def test_tables_name_only_operators_that_exist() -> None:
    known = {(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}
    standard = {(domain, name) for domain, table in TABLES.items() if domain in {one for one, _ in known} for name in table}
    assert standard - known == {("", "SimplifiedLayerNormalization")}


@pytest.mark.parametrize("domain", TABLES, ids=lambda domain: domain or "standard")
def test_every_rule_can_be_read(domain: str) -> None:
    """Texts name operators that there are, and attributes that their records have."""
    for name in TABLES[domain]:
        assert find_lowering(domain, name) is not None


_NAMES = ("axis", "axes", "alpha", "bits", "K", "N", "mode", "kernel_shape", "scales", "channels", "groups", "output_dtype", "to", "p")
_ODD = (0, 1, -1, 2.0, "x", [1, 2], [0.5], ["a"])


@pytest.mark.parametrize("domain", TABLES, ids=lambda domain: domain or "standard")
def test_nodes_that_no_exporter_would_write_are_lowered_or_kept(domain: str) -> None:
    """Absent operands, and attributes of any kind: each node becomes something, and none ends in a traceback."""
    chance = random.Random(domain)
    for name in sorted(TABLES[domain]) * 4:
        operands = [f"i{index}" if chance.random() < 0.8 else "" for index in range(chance.randint(0, 6))]
        attrs = {attr: chance.choice(_ODD) for attr in chance.sample(_NAMES, 3)}
        node = helper.make_node(name, operands, ["y", "z"][: chance.randint(1, 2)], domain=domain, **attrs)
        domains = {domain.replace(".", "_"): 1} if domain else {}
        proto = model([node], [value(operand) for operand in operands if operand], ["y"], opset=chance.randint(1, 26), **domains)
        assert load(proto).graph.outputs, node


def fits(node: Node) -> list[str]:
    """How a node differs from its operator's record."""
    spec = find_op(node.op)
    if spec is None:
        return [f"{node.op} has no record"]
    schema = spec.schema
    names = {param.name for param in schema.attrs} | {param.name for param in schema.operands if param.kind in ("Dims", "Dim")}
    wrong = [f"{node.op} has no attribute {name}" for name in node.attrs if name not in names]
    wrong += [f"{node.op} lacks {param.name}" for param in schema.attrs if param.required and param.name not in node.attrs]
    if len(node.inputs) > len(schema.operands) and not schema.is_variadic:
        wrong.append(f"{node.op} has {len(node.inputs)} operands")
    for index, param in enumerate(schema.operands):
        absent = index >= len(node.inputs) or node.inputs[index] is None
        if absent and not param.optional and not param.variadic and param.name not in node.attrs:
            wrong.append(f"{node.op} lacks operand {param.name}")
    if len(node.outputs) > len(schema.results) and not any(param.variadic for param in schema.results):
        wrong.append(f"{node.op} has {len(node.outputs)} results")
    return wrong


_SPECIAL = {"If", "Loop", "Scan", "SequenceMap", "FlexAttention", "Constant", "Optional", "TfIdfVectorizer", "OneHotEncoder"}
_VALUES: dict[str, object] = {
    "INT": 1,
    "FLOAT": 1.0,
    "STRING": "x",
    "INTS": [1, 1],
    "FLOATS": [1.0],
    "STRINGS": ["a"],
    "direction": "LEFT",
    "equation": "ij->ij",
    "cast_to": "TO_FLOAT",
}


def attributes(schema: defs.OpSchema, required_only: bool) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, attribute in schema.attributes.items():
        kind = str(attribute.type).rpartition(".")[2]
        chosen = _VALUES.get(name, _VALUES.get(kind)) if kind == "STRING" else _VALUES.get(kind)
        if chosen is not None and (attribute.required or not required_only or name == "kernel_shape"):
            made[name] = chosen
    if schema.name == "Cast" and schema.since_version < 6:
        made["to"] = "FLOAT"
    return made


SCHEMAS = [schema for schema in defs.get_all_schemas_with_history() if schema.name not in _SPECIAL and not schema.deprecated]


@pytest.mark.parametrize("domain", TABLES, ids=lambda domain: domain or "standard")
def test_nodes_that_are_alike_become_what_each_would_by_itself(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule makes of one node is used for the next ones, whichever operands those have: absent ones, weights, one of them twice."""
    chance = random.Random(domain)
    weights = [helper.make_tensor(f"w{index}", onnx.TensorProto.FLOAT, [2], [1.0, 2.0]) for index in range(8)]
    schemas = [one for one in SCHEMAS if one.domain == domain] if domain in {one.domain for one in SCHEMAS} else []
    for name in [*sorted(TABLES[domain]), *schemas]:
        attrs: dict[str, object] = {attr: chance.choice(_ODD) for attr in chance.sample(_NAMES, chance.randint(0, 2))}
        least = most = chance.randint(0, 6)
        if not isinstance(name, str):
            attrs, least, most, name = attributes(name, chance.random() < 0.5), name.min_input, min(name.max_input, 6), name.name
        count, results = chance.randint(min(least, most), most), chance.randint(1, 2)
        choices = ["x", "", *(f"w{index}" for index in range(8))]
        nodes = [
            helper.make_node(
                name, chance.choices(choices, k=count), [f"y{copy}", f"z{copy}"][:results], f"/m{copy}/n", domain=domain, **attrs
            )
            for copy in range(4)
        ]
        domains = {domain.replace(".", "_"): 1} if domain else {}
        proto = model(nodes, [value("x")], [f"y{copy}" for copy in range(4)], weights, opset=chance.randint(7, 21), **domains)
        found, alone = load(proto), DiagnosticSink()
        with monkeypatch.context() as patch:
            patch.setattr("irscope.frontends.onnx.program._MOST_USES", 0)
            expected = load(proto, sink=alone)
        assert print_program(found) == print_program(expected), nodes[0]
        assert [weight.role for weight in found.graph.weights] == [weight.role for weight in expected.graph.weights], nodes[0]
        assert list(found.origins) == list(expected.origins)


def test_most_operators_need_their_rule_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    emit = Call.emit

    def counting(call: Call, *given: Any) -> Node:
        called.append(call.op_type)
        return emit(call, *given)

    monkeypatch.setattr(Call, "emit", counting)
    nodes = [
        helper.make_node(op, ["x", "w"], [f"{op}{copy}"], **({"axis": 1} if op == "Concat" else {}))
        for op in ("Add", "Div", "MatMul", "Concat", "Reshape", "Gather", "Expand", "Unsqueeze")
        for copy in range(20)
    ]
    load(model(nodes, outputs=["Add1"], initializers=[ints("w", 1, 1)]))
    assert set(Counter(called).values()) == {2}


@every("schema", SCHEMAS, ids=lambda one: f"{one.domain}::{one.name}@{one.since_version}")
@every("full", [True, False], ids=["full", "least"])
def test_every_version_fits_the_records(schema: defs.OpSchema, full: bool) -> None:
    optional = defs.OpSchema.FormalParameterOption.Optional
    count = len(schema.inputs)
    while not full and count and schema.inputs[count - 1].option == optional:
        count -= 1
    operands = [f"i{index}" for index in range(count)]
    results = [f"o{index}" for index in range(len(schema.outputs) if full else 1)]
    node = helper.make_node(schema.name, operands, results, domain=schema.domain, **attributes(schema, not full))
    domains = {schema.domain.replace(".", "_"): schema.since_version} if schema.domain else {}
    opset = 28 if schema.domain else schema.since_version
    sink = DiagnosticSink()
    program = load(model([node], [value(name, [2, 2]) for name in operands], results, opset=opset, **domains), sink=sink)
    assert [str(diagnostic) for diagnostic in sink if diagnostic.code != "IRS151"] == []
    assert [wrong for made in program.graph.walk() for wrong in fits(made)] == []
    assert [result.name for result in program.graph.outputs] == results


def attrs_of(op_type: str, inputs: tuple[str, ...] = ("x",), opset: int = 21, **given: object) -> dict[str, object]:
    made = lowered(op_type, inputs, opset=opset, **given)
    assert len(made) == 1
    return dict(made[0].attrs)


def test_softmax() -> None:
    assert attrs_of("Softmax", opset=13) == {"axis": -1}
    assert attrs_of("Softmax", opset=11) == {"axis": 1, "from_axis": True}
    assert attrs_of("Softmax", opset=11, axis=-1) == {"axis": -1}


def test_axes_as_attribute_or_operand() -> None:
    assert attrs_of("Squeeze", opset=11, axes=[0]) == {"axes": (0,), "strict": True}
    assert lowered("Squeeze", ["x", "axes"], opset=13)[0].attrs == {"strict": True}
    assert attrs_of("Unsqueeze", opset=11, axes=[0, 2]) == {"axes": (0, 2)}
    assert attrs_of("ReduceSum", opset=11, axes=[1]) == {"axes": (1,), "keepdims": True}
    assert attrs_of("ReduceMean", opset=17, axes=[1], keepdims=0) == {"axes": (1,), "keepdims": False}
    assert len(lowered("ReduceMean", ["x", "axes"], opset=18)[0].inputs) == 2
    assert attrs_of("Slice", opset=9, starts=[0], ends=[1]) == {"starts": (0,), "ends": (1,)}
    assert attrs_of("TopK", opset=9, outputs=("y", "z"), k=3)["k"] == 3


def test_clip() -> None:
    assert attrs_of("Clip", opset=6, min=0.0, max=6.0) == {"min_value": 0.0, "max_value": 6.0}
    assert len(lowered("Clip", ["x", "low", "high"], opset=13)[0].inputs) == 3


def test_reshape() -> None:
    assert attrs_of("Reshape", opset=1, shape=[0, -1]) == {"shape": (0, -1), "zero": "copy"}
    assert attrs_of("Reshape", ("x", "s"), opset=14) == {"zero": "copy"}
    assert attrs_of("Reshape", ("x", "s"), opset=14, allowzero=1) == {"zero": "literal"}


def test_split() -> None:
    assert attrs_of("Split", opset=11, outputs=("y", "z")) == {"axis": 0, "num_outputs": 2}
    assert attrs_of("Split", opset=11, outputs=("y", "z"), split=[1, 2], axis=1) == {"axis": 1, "sizes": (1, 2)}
    assert attrs_of("Split", opset=18, outputs=("y", "z", "w"), num_outputs=3) == {"axis": 0, "num_outputs": 3}


def test_pad() -> None:
    assert attrs_of("Pad", opset=1, paddings=[0, 1, 0, 1], value=2.0) == {"pads": (0, 1, 0, 1), "mode": "constant", "fill": 2.0}
    assert attrs_of("Pad", opset=2, pads=[0, 1, 0, 1], mode="edge") == {"pads": (0, 1, 0, 1), "mode": "edge", "fill": 0.0}
    assert attrs_of("Pad", ("x", "p", "", "axes"), opset=18) == {"mode": "constant"}


def test_cast() -> None:
    assert attrs_of("Cast", opset=1, to="FLOAT16") == {"to": DType.F16}
    assert attrs_of("Cast", opset=21, to=22) == {"to": DType.I4}


def test_batch_normalization_trains() -> None:
    operands = ("x", "s", "b", "m", "v")
    assert "training" not in attrs_of("BatchNormalization", operands, opset=1, is_test=1)
    assert attrs_of("BatchNormalization", operands, opset=6)["training"] is True
    assert "training" not in attrs_of("BatchNormalization", operands, opset=9)
    assert attrs_of("BatchNormalization", operands, opset=9, outputs=("y", "m1", "v1", "m2", "v2"))["training"] is True
    assert attrs_of("BatchNormalization", operands, opset=15, training_mode=1)["training"] is True


def test_old_upsampling() -> None:
    assert attrs_of("Upsample", opset=7, scales=[1.0, 1.0, 2.0, 2.0])["scale_factors"] == (1.0, 1.0, 2.0, 2.0)
    assert attrs_of("Upsample", opset=1, height_scale=2.0, width_scale=3.0)["scale_factors"] == (1.0, 1.0, 2.0, 3.0)
    made = lowered("Resize", ["x", "scales"], opset=10)[0]
    assert [operand.name if operand else None for operand in made.inputs] == ["x", None, "scales"]


def result_type(proto: onnx.ModelProto) -> str:
    program = load(proto)
    return str(Manager(program).get(Shapes()).type_of(program.graph.outputs[0]))


@pytest.mark.parametrize(("shape", "axis"), [((3,), 1), ((3, 4), 1), ((4, 5), 2), ((2,), 0), ((5,), -1)])
def test_old_broadcasting(shape: tuple[int, ...], axis: int) -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"], broadcast=1, axis=axis)
    assert result_type(model([node], [value("x", [2, 3, 4, 5]), value("z", shape)], opset=6)) == "f32[2,3,4,5]"


def test_old_broadcasting_at_the_end() -> None:
    assert [made.op for made in lowered("Mul", ["x", "z"], opset=6, broadcast=1)] == ["math.mul"]


def test_old_tile() -> None:
    weights = [ints("tiles", 3), ints("axis", 1)]
    for weight in weights:
        del weight.dims[:]
    assert result_type(model([helper.make_node("Tile", ["x", "tiles", "axis"], ["y"])], initializers=weights, opset=5)) == "f32[2,9]"


def test_power_keeps_the_type_of_its_base() -> None:
    proto = model([helper.make_node("Pow", ["x", "z"], ["y"])], [value("x", [2], INT64), value("z", [2])])
    assert result_type(proto) == "i64[2]"


def test_division_of_integers_truncates() -> None:
    """The values of a shape computed by a division that rounds toward zero."""
    weights = [ints("a", -7, 7), ints("b", 2, 2), ints("add", 6, 0)]
    nodes = [
        helper.make_node("Div", ["a", "b"], ["q"]),
        helper.make_node("Add", ["q", "add"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["y"]),
    ]
    assert result_type(model(nodes, [value("x", [1, 1])], initializers=weights)) == "f32[3,3]"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"value": numpy_helper.from_array(np.ones((2, 2), np.float16))}, "f16[2,2]"),
        ({"value_int": 3}, "i64[]"),
        ({"value_ints": [1, 2]}, "i64[2]"),
        ({"value_float": 1.5}, "f32[]"),
        ({"value_floats": [1.0]}, "f32[1]"),
        ({"value_string": "a"}, "str[]"),
        ({"value_strings": ["a", "b"]}, "str[2]"),
    ],
)
def test_constants_become_weights(given: dict[str, object], text: str) -> None:
    program = load(model([helper.make_node("Constant", [], ["y"], **given)]))
    assert len(program.graph) == 0
    (weight,) = program.graph.weights
    assert (weight.name, str(weight.type)) == ("y", text)
    assert program.graph.outputs == (weight,)


def test_flex_attention_has_regions() -> None:
    score = graph([helper.make_node("Mul", ["s", "s"], ["t"])], [value("s", None)], ["t"])
    node = helper.make_node("FlexAttention", ["x", "x", "x"], ["y"], domain="ai.onnx.preview", score_mod=score)
    program = load(model([node], [value("x", [1, 2, 3, 4])], opset=26, ai_onnx_preview=1))
    assert [made.op for made in program.graph.walk()] == ["nn.flex_attention", "math.mul"]


def test_types_of_all_light_models() -> None:
    """The convolutional networks of the onnx wheel: every value gets a full type."""
    from onnx.backend.test.loader import DATA_DIR

    for path in sorted((Path(DATA_DIR) / "light").glob("*.onnx")):
        program = load(onnx.load(path))
        found = Manager(program).get(Shapes())
        for made in program.graph:
            type_ = found.type_of(made.outputs[0])
            assert isinstance(type_, TensorType) and type_.is_static, (path.name, made)
