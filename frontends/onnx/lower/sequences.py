"""Lists of tensors, values that may be absent, and texts."""

from __future__ import annotations

import onnx

from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.lower.rules import Table, direct, element_type, flag, integer, integers, read, text, texts
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role


def _split_to_sequence(call: Call) -> None:
    attrs = read(call, integer("axis", 0))
    if call.operand(1) is None:
        attrs["keepdims"] = call.flag("keepdims", True)
    call.emit("seq.split", call.inputs, attrs)


def _optional(call: Call) -> None:
    if call.operand(0) is not None:
        call.emit("optional.make", call.inputs)
        return
    declared = call.attrs.get("type")
    if not isinstance(declared, onnx.TypeProto):
        raise Mismatch("it has neither an operand nor a type")
    call.emit("optional.make", (), {"type": call.body.model.types.of_result(declared)})


def _tf_idf(call: Call) -> None:
    indexes = call.integers("ngram_indexes")
    if indexes is None:
        raise Mismatch("attribute ngram_indexes is absent")
    rules = (integer("max_gram_length"), integer("max_skip_count"), integer("min_gram_length"), text("mode"), integers("ngram_counts"))
    operands = [*call.inputs, *call.attribute_weights({"weights": Role.PARAMETER, "pool_int64s": Role.CONSTANT})]
    call.emit("text.tfidf", operands, read(call, *rules, ngram_indexes=indexes))


TABLE: Table = {
    "SequenceEmpty": direct("seq.empty", element_type("dtype", DType.F32)),
    "SequenceConstruct": direct("seq.construct"),
    "SequenceInsert": direct("seq.insert"),
    "SequenceErase": direct("seq.erase"),
    "SequenceAt": direct("seq.at"),
    "SequenceLength": direct("seq.length"),
    "SplitToSequence": _split_to_sequence,
    "ConcatFromSequence": direct("seq.concat_from", integer("axis"), flag("new_axis", False)),
    "Optional": _optional,
    "OptionalHasElement": direct("optional.has"),
    "OptionalGetElement": direct("optional.get"),
    "StringConcat": direct("text.concat"),
    "StringSplit": direct("text.split", text("delimiter"), integer("maxsplit")),
    "StringNormalizer": direct(
        "text.normalizer", text("case_change_action", "NONE"), flag("is_case_sensitive", False), text("locale"), texts("stopwords")
    ),
    "RegexFullMatch": direct("text.regex_full_match", text("pattern", "")),
    "TfIdfVectorizer": _tf_idf,
}
