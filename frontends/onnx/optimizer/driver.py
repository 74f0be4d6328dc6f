"""Applies ONNX Runtime's transformers in its order: InferenceSession::TransformGraph for one execution provider.

The lists below are those that a session of onnxruntime 1.31 logs (`log_severity_level = 0`); a transformer that is not written here changes
nothing. The other modules of this package register theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from irscope.frontends.onnx.optimizer import basic, extended, folding, layout, products, qdq, transposes  # noqa: F401  # register
from irscope.frontends.onnx.optimizer.graph import RULES, TRANSFORMERS, Apply, OrtGraph, Rule, Session
from irscope.frontends.onnx.optimizer.halves import insert_casts, partition, single_constants

Level: TypeAlias = Literal["off", "basic", "extended", "all"]
LEVELS: Final[tuple[Level, ...]] = ("off", "basic", "extended", "all")
MOST_STEPS: Final = 10
"""SessionOptions.max_num_graph_transformation_steps."""
SINGLES: Final = "FuseFp16InitializerToFp32NodeTransformer"
RULE_BASED: Final = "Level{}_RuleBasedTransformer"

ORDER: Final[dict[int, tuple[str, ...]]] = {
    1: (
        "Level1_RuleBasedTransformer",
        "DoubleQDQPairsRemover",
        "ConstantSharing",
        "CommonSubexpressionElimination",
        "ConstantFolding",
        "MatMulAddFusion",
        "ReshapeFusion",
        "FreeDimensionOverrideTransformer",
        "SliceConcatToSpaceToDepthFusion",
        "GeluFusionL1",
        "LayerNormFusionL1",
        "QDQPropagationTransformer",
        "WeightBiasQuantization",
        "EnsureUniqueDQForNodeUnit",
        "WhereDummyDq",
        "TransposeOptimizer",
    ),
    2: (
        "Level2_RuleBasedTransformer",
        "TransposeOptimizer_CPUExecutionProvider",
        "QDQS8ToU8Transformer",
        "QDQSelectorActionTransformer",
        "GemmActivationFusion",
        "MatMulIntegerToFloatFusion",
        "DynamicQuantizeMatMulFusion",
        "ConvActivationFusion",
        "GeluFusionL2",
        "LayerNormFusionL2",
        "SimplifiedLayerNormFusion",
        "AttentionFusion",
        "EmbedLayerNormFusion",
        "GatherSliceToSplitFusion",
        "GatherToSliceFusion",
        "MatmulTransposeFusion",
        "BiasGeluFusion",
        "GroupQueryAttentionFusion",
        "MatMulAddFusion",
        "SkipLayerNormFusion",
        "BiasSkipLayerNormFusion",
        "FastGeluFusion",
        "QuickGeluFusion",
        "BiasSoftmaxFusion",
        "BiasDropoutFusion",
        "MatMulScaleFusion",
        "MatMulActivationFusion",
        "MatMulNBitsFusion",
        "GroupQueryAttentionPreNormFusion",
        "QDQFinalCleanupTransformer",
    ),
    3: ("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion"),
}
"""Transformers by level, in the order in which a step applies them."""
ONCE: Final = frozenset({"ConstantSharing", "TransposeOptimizer_CPUExecutionProvider", "TransposeOptimizer"})
"""Transformers that only the first step applies."""
RULE_ORDER: Final[dict[int, tuple[str, ...]]] = {
    1: (
        "EliminateIdentity",
        "EliminateSlice",
        "UnsqueezeElimination",
        "EliminateDropout",
        "ExpandElimination",
        "CastElimination",
        "PreShapeNodeElimination",
        "NoopElimination",
        "DivMulFusion",
        "FuseReluClip",
        "GemmSumFusion",
        "GemmTransposeFusion",
        "NotWhereFusion",
        "ConvAddFusion",
        "ConvMulFusion",
        "ConvBNFusion",
        "PadFusion",
        "MatmulBNFusion",
        "LabelEncoderFusion",
    ),
    2: ("ClipQuantFusion", "ReluQuantFusion", "GemmTransposeFusion"),
}


def optimise(graph: OrtGraph, level: Level, session: Session | None = None) -> Session:
    """Do to the graph what a session of this level does before it runs."""
    session = session or Session()
    if level == "off":
        return session
    ensure = TRANSFORMERS.get("EnsureUniqueDQForNodeUnit")
    if ensure is not None:
        _apply(graph, "EnsureUniqueDQForNodeUnit", ensure, 1, session)
    _steps(graph, 1, session)
    partition(graph, session.provider)
    for _ in range(MOST_STEPS):
        for number, names in ((2, ("extended", "all")), (3, ("all",))):
            if level in names:
                _steps(graph, number, session)
        if insert_casts(graph):
            session.applied += [(0, "RemoveDuplicateCastTransformer"), (0, "CastFloat16Transformer")]
            graph.settle()
        # Its level 4; what it changes is optimised once more.
        if level != "all" or SINGLES in session.without or not single_constants(graph):
            break
        session.applied.append((4, SINGLES))
        graph.settle()
    return session


def _steps(graph: OrtGraph, level: int, session: Session) -> None:
    """Run the transformers as GraphTransformerManager::ApplyTransformers does."""
    for step in range(MOST_STEPS):
        changed = False
        for name in ORDER[level]:
            if name in session.without or (step and name in ONCE):
                continue
            apply = _rules_of(level) if name == RULE_BASED.format(level) else TRANSFORMERS.get(name)
            if apply is not None:
                changed |= _apply(graph, name, apply, level, session)
        if not changed:
            return


def _apply(graph: OrtGraph, name: str, apply: Apply, level: int, session: Session) -> bool:
    if not apply(graph, session):
        return False
    session.applied.append((level, name))
    graph.settle()
    return True


def _rules_of(level: int) -> Apply:
    rules: Sequence[Rule] = [RULES[name] for name in RULE_ORDER.get(level, ()) if name in RULES]

    def apply(graph: OrtGraph, session: Session) -> bool:
        changed = False
        for node in graph.order():
            if graph.nodes.get(node.index) is not node:
                continue
            for rule in rules:
                if node.op in rule.ops:
                    changed |= rule.rewrite(graph, node)
                    if graph.nodes.get(node.index) is not node:
                        break
            else:
                for body in node.bodies.values():
                    changed |= apply(body, session)
        return changed

    return apply
