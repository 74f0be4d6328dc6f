"""Differences between the exported program and the one that Python runs, and a copy of the program with them applied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from irscope.devices import Target
from irscope.immutable import immutable, mutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Graph, Node, Role, Value
from irscope.ir.places import Loc, Scope
from irscope.ir.program import Program
from irscope.ir.types import Layout, TensorType, Type, tensor
from irscope.ops.facts import OpRole
from irscope.ops.layouts import result_strides, row_major
from irscope.ops.registry import attention_of, plays, roles_of, spec_of
from irscope.ops.scratch.recorder import Scratch
from irscope.ops.scratch.sdpa import Attention, choose
from irscope.ops.spec import Family, Known, NeedsNumbers, OpCall
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.walk import family


@immutable(slots=False)
class Fused:
    """One operator that runs in place of the operators of a module call."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: Mapping[str, Attr]
    source: str
    results: tuple[Value, ...]


@mutable
class Changes:
    """Differences, collected while the program is analysed."""

    instead: dict[Value, Value] = field(default_factory=dict)
    """Results that are no longer computed, with the values that replace them."""
    dropped: dict[Node, tuple[dict[int, None], dict[str, Attr]]] = field(default_factory=dict)
    """Nodes that run without some operands and with other attributes."""
    fused: dict[Node, Fused] = field(default_factory=dict)
    """By the last node of those that they replace."""
    absorbed: set[Node] = field(default_factory=set)
    """Nodes that fused operators replace."""
    may_go: set[Node] = field(default_factory=set)
    """Nodes removed when dead, though they are dead in the file too (other dead nodes run)."""

    relays: bool = False
    """True where some results have another layout on the device."""

    def __bool__(self) -> bool:
        return bool(self.instead or self.dropped or self.fused or self.relays)


def changed(program: Program, changes: Changes, target: Target) -> Program:
    """Return a copy of the program with the changes, without dead code."""
    return _Copy(program, changes, target).made()


class _Copy:
    def __init__(self, program: Program, changes: Changes, target: Target) -> None:
        self._program = program
        self._target = target
        self._changes = changes
        self._graph = Graph(program.graph.name, scope=program.graph.scope)
        self._values: dict[Value, Value] = {}
        self._relaid: set[Value] = set()
        """Values of the original that have another layout in the copy."""

    def made(self) -> Program:
        program, graph, copy, values = self._program, self._program.graph, self._graph, self._values
        for value in graph.inputs:
            values[value] = copy.add_input(value.type, value.name)
        for value in graph.weights:
            values[value] = copy.add_weight(value.type, value.name, value.role, graph.data.get(value))
        unused = self._unused(graph)
        for node in graph:
            stand_in = self._stand_in(node)
            if stand_in is not None:
                values[node.outputs[0]] = values[stand_in]
                self._note_layout(node.outputs[0])
            elif node in self._changes.fused:
                self._fuse(node, self._changes.fused[node])
            elif node not in unused:
                self._run(node)
        copy.set_outputs([values[value] for value in graph.outputs])
        return replace(
            program,
            graph=copy,
            functions={},
            symbols=dict(program.symbols),
            given=dict(program.given),
            metadata=dict(program.metadata),
            assumed=list(program.assumed),
            origins=(),
            training=None,
            calls={},
            observed=None,
        )

    def _stand_in(self, node: Node) -> Value | None:
        return self._changes.instead.get(node.outputs[0]) if node.outputs else None

    def _note_layout(self, original: Value) -> None:
        if original.type.layout != self._values[original].type.layout:
            self._relaid.add(original)

    def _operands(self, node: Node) -> list[Value | None]:
        left_out, _ = self._changes.dropped.get(node, ({}, {}))
        return [None if place in left_out else value for place, value in enumerate(node.inputs)]

    def _run(self, node: Node) -> None:
        operands = self._operands(node)
        _, other = self._changes.dropped.get(node, ({}, {}))
        relaid = plays(node, OpRole.LAYOUT_BY_DEVICE) or lies_otherwise(node) or any(value in self._relaid for value in operands)
        inputs = [None if value is None else self._values[value] for value in operands]
        types = [self._type(node, index, inputs) if relaid else output.type for index, output in enumerate(node.outputs)]
        names = [output.name for output in node.outputs]
        made = self._graph.append(
            node.op, inputs, types, {**node.attrs, **other}, names=names, scope=node.scope, loc=node.loc, source=node.source
        )
        for original, output in zip(node.outputs, made.outputs, strict=True):
            self._values[original] = output
            if relaid:
                self._note_layout(original)

    def _type(self, node: Node, index: int, inputs: list[Value | None]) -> Type:
        """Return the type of a result whose operands have another layout than the file says."""
        type_, spec = node.outputs[index].type, spec_of(node)
        if type_.shape is None or spec is None:
            return type_
        operands = [value.type if value is not None and isinstance(value.type, TensorType) else None for value in inputs]
        plain = tensor(type_.dtype, type_.shape, type_.device)
        if OpRole.LAYOUT_BY_DEVICE in spec.roles:
            layout = attention_layout(OpCall(spec, operands, node.attrs, (), [type_]), self._target, type_.layout)
        else:
            results = [plain if output is node.outputs[index] else output.type for output in node.outputs]
            layout = result_strides(OpCall(spec, operands, node.attrs, (), results, source=node.source), index)
        return plain if layout == row_major(type_.shape) else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _fuse(self, node: Node, fused: Fused) -> None:
        inputs = [None if value is None else self._values[value] for value in fused.inputs]
        types = [tensor(one.type.dtype, one.type.shape, one.type.device) for one in fused.results if isinstance(one.type, TensorType)]
        names = [result.name for result in fused.results]
        made = self._graph.append(fused.op, inputs, types, fused.attrs, names=names, scope=node.scope, loc=node.loc, source=fused.source)
        for original, output in zip(fused.results, made.outputs, strict=True):
            self._values[original] = output
            self._note_layout(original)

    def _unused(self, graph: Graph) -> set[Node]:
        """Dead nodes: no output depends on them."""
        unused = set(self._changes.absorbed)
        needed = set(graph.outputs)
        for node in reversed(list(graph)):
            stand_in = self._stand_in(node)
            if stand_in is not None:
                if node.outputs[0] in needed:
                    needed.add(stand_in)
            elif node in self._changes.fused:
                needed.update(value for value in self._changes.fused[node].inputs if value is not None)
            elif node in unused:
                continue
            elif any(output in needed for output in node.outputs) or not self._may_go(node):
                needed.update(value for value in self._operands(node) if value is not None)
            else:
                unused.add(node)
        return unused

    def _may_go(self, node: Node) -> bool:
        """Return whether a node may be removed: a node dead in the file runs nevertheless, one that became dead by the changes does not."""
        return "inplace" not in node.attrs and (node in self._changes.may_go or any(output.users for output in node.outputs))


def lies_otherwise(node: Node) -> bool:
    """Return whether a result's layout differs from the exporter's, which does not know that dropout returns its operand in inference, nor
    which stride a view gives an axis of size 1."""
    operand = node.inputs[0] if node.inputs else None
    if operand is None or operand.type.layout is None:
        return False
    if plays(node, OpRole.DROPOUT):
        return not node.attrs.get("training") and operand.type.layout != node.outputs[0].type.layout
    stated, spec = node.outputs[0].type, spec_of(node)
    if (
        spec is None
        or OpRole.UNIT_STRIDES not in spec.roles
        or not isinstance(stated, TensorType)
        or not isinstance(operand.type, TensorType)
    ):
        return False
    if stated.layout is None or stated.shape is None or 1 not in stated.shape:
        return False
    plain = tensor(stated.dtype, stated.shape, stated.device)
    layout = result_strides(OpCall(spec, [operand.type], node.attrs, (), [plain], source=node.source))
    return layout is not None and layout != stated.layout


# Layouts of the results of CUDA's attention kernels, which differ from those of the CPU, on which models are exported.


def attention_layout(call: OpCall, target: Target, stated: Layout) -> Layout:
    """Strides of an attention's result; `stated` where they are unknown."""
    q, k, v = (call.types[place] if place < len(call.types) else None for place in range(3))
    result = call.results[0]
    if (
        not isinstance(q, TensorType)
        or not isinstance(k, TensorType)
        or not isinstance(v, TensorType)
        or not isinstance(result, TensorType)
    ):
        return stated
    shape = result.shape
    if shape is None or len(shape) != 4 or any(isinstance(size, SymDim) for size in shape):
        return stated
    made = Attention(q, k, v, call.maybe("mask"), bool(call.attr("is_causal")), bool(call.attr("dropout_p")), bool(call.attr("enable_gqa")))
    try:
        kernel = choose(Scratch(call, target), made)
    except NeedsNumbers:
        return stated
    if kernel == "math":
        return None
    if kernel == "flash" and q.shape is not None and _fills_a_block(q):
        return q.layout
    # The kernels write the heads of one position contiguously.
    batch, heads, length, width = shape
    return tuple(row_major((batch, length, heads, width))[axis] for axis in (0, 2, 1, 3))


def _fills_a_block(type_: TensorType) -> bool:
    """Return whether the strides are dense, in any order of axes."""
    if not isinstance(type_.layout, tuple) or type_.shape is None:
        return True
    expected = 1
    for stride, size in sorted(zip(type_.layout, type_.shape, strict=True), key=lambda pair: int(str(pair[0]))):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= int(str(size))
    return True


# Modules that run as one operator in inference, while the exporter writes down the operators they would train with.
#
# These are nn.MultiheadAttention and nn.TransformerEncoderLayer; the conditions are those in their `forward`.

_ATTENTION, _LAYER = "MultiheadAttention", "TransformerEncoderLayer"
_ATTENTION_WEIGHTS = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
_LAYER_WEIGHTS = (
    *(f"self_attn.{name}" for name in _ATTENTION_WEIGHTS),
    *(f"{module}.{name}" for module in ("norm1", "norm2", "linear1", "linear2") for name in ("weight", "bias")),
)
_ACTIVATIONS = {"nn.relu": "relu", "nn.gelu": "gelu"}


def fuse_modules(graph: Graph, changes: Changes) -> None:
    """Note which module calls run as one operator."""
    calls = _calls(graph)
    done: set[Scope] = set()
    for scope, nodes in calls.items():
        if scope.cls == _LAYER:
            inner = next((other for other in calls if other.cls == _ATTENTION and scope in _above(other)), None)
            fused = _layer(scope, nodes, inner, calls[inner]) if inner is not None else None
            if fused is not None and inner is not None:
                done.add(inner)
        else:
            fused = _attention(scope, nodes) if scope not in done else None
        if fused is not None:
            changes.fused[nodes[-1]] = fused
            changes.absorbed.update(nodes[:-1])


def _calls(graph: Graph) -> dict[Scope, list[Node]]:
    """Return the nodes of each call of such a module, outer calls before inner."""
    around: dict[Scope, tuple[Scope, ...]] = {}
    calls: dict[Scope, list[Node]] = {}
    for node in graph:
        for scope in _fusable(node.scope, around):
            calls.setdefault(scope, []).append(node)
    return calls


def _fusable(scope: Scope, around: dict[Scope, tuple[Scope, ...]]) -> tuple[Scope, ...]:
    """Return the calls of such modules that a scope is in, outermost first."""
    above: list[Scope] = []
    at: Scope | None = scope
    while at is not None and at not in around:
        above.append(at)
        at = at.parent
    known = around[at] if at is not None else ()
    for one in reversed(above):
        known = around[one] = (*known, one) if one.cls in (_ATTENTION, _LAYER) else known
    return known


def _above(scope: Scope) -> list[Scope]:
    return list(scope.chain[:-1])


def _entering(nodes: Sequence[Node]) -> list[Value]:
    """Return the tensors that a call is given, without weights."""
    made = {output for node in nodes for output in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None and value not in made)
    return [value for value in read if value.role in (Role.TEMPORARY, Role.INPUT)]


def _leaving(nodes: Sequence[Node]) -> list[Value]:
    """Return the results of a call that something reads."""
    inside = set(nodes)
    return [output for node in nodes for output in node.outputs if any(user not in inside for user in output.users or ())]


def _weights(scope: Scope, nodes: Sequence[Node], names: Sequence[str]) -> list[Value] | None:
    """Return the module's weights of these names; None where one is not used."""
    read = {value.name: value for node in nodes for value in node.inputs if value is not None and value.role is Role.PARAMETER}
    prefix = f"{scope.module}." if scope.module else ""
    found = [read.get(f"{prefix}{name}") for name in names]
    return None if any(value is None for value in found) else [value for value in found if value is not None]


def _attention(scope: Scope, nodes: Sequence[Node]) -> Fused | None:
    """Return the fused attention of a call, None where it does not run as one."""
    weights = _weights(scope, nodes, _ATTENTION_WEIGHTS)
    inputs = _entering(nodes)
    x = inputs[0] if inputs else None
    mask = inputs[1] if len(inputs) == 2 else None
    if weights is None or x is None or len(inputs) > 2 or not _is_batch_first(x, nodes) or (mask is not None and not _is_bool(mask)):
        return None
    heads = _heads(x, nodes)
    leaving = _leaving(nodes)
    output = next((value for value in leaving if value.type.shape == x.type.shape), None)
    if heads is None or heads % 2 or output is None:
        return None
    attrs: dict[str, Attr] = {"num_heads": heads}
    results = [output]
    if not any(attention_of(node) for node in nodes):
        found = _attention_weights(x, nodes, heads)
        if found is None:
            return None
        results.append(found[0])
        attrs["average_weights"] = found[1]
    if any(value not in results for value in leaving):
        return None
    return Fused("nn.multi_head_attention", (x, x, x, *weights, mask), attrs, "aten::_native_multi_head_attention", tuple(results))


def _is_bool(value: Value) -> bool:
    return value.type.dtype is DType.BOOL


def _is_batch_first(x: Value, nodes: Sequence[Node]) -> bool:
    """With the batch first, forward swaps the first two axes of what it is given, once for query, key and value."""
    readers = [node for node in nodes if x in node.inputs]
    swapped = {0, 1}
    return (
        x.type.rank == 3
        and len(readers) == 1
        and plays(readers[0], OpRole.TRANSPOSE)
        and {readers[0].attrs.get("axis0"), readers[0].attrs.get("axis1")} == swapped
    )


def _heads(x: Value, nodes: Sequence[Node]) -> int | None:
    batch, length = (x.type.shape or ())[:2]
    for node in nodes:
        shape = node.outputs[0].type.shape or () if node.outputs else ()
        if attention_of(node) and len(shape) == 4:
            return shape[1] if isinstance(shape[1], int) else None
        if plays(node, OpRole.SOFTMAX) and len(shape) == 3 and isinstance(shape[0], int) and isinstance(batch, int) and batch:
            return shape[0] // batch if shape[1] == length else None
    return None


def _attention_weights(x: Value, nodes: Sequence[Node], heads: int) -> tuple[Value, bool] | None:
    """Return the attention weights that a call returns, and whether they are averaged over the heads."""
    batch, length = (x.type.shape or ())[:2]
    outputs = [output for node in reversed(nodes) for output in node.outputs]
    for shape, averaged in (((batch, length, length), True), ((batch, heads, length, length), False)):
        output = next((output for output in outputs if output.type.shape == shape), None)
        if output is not None:
            return output, averaged
    return None


def _layer(scope: Scope, nodes: Sequence[Node], inner: Scope, inner_nodes: Sequence[Node]) -> Fused | None:
    """Return the fused encoder layer of a call, None where it does not run as one."""
    weights, attention = _weights(scope, nodes, _LAYER_WEIGHTS), _attention(inner, inner_nodes)
    inputs, leaving = _entering(nodes), _leaving(nodes)
    activation = next((_ACTIVATIONS[node.op] for node in nodes if node.op in _ACTIVATIONS), None)
    if weights is None or attention is None or activation is None or len(leaving) != 1 or not inputs:
        return None
    mask = attention.inputs[-1]
    if [value for value in inputs[1:] if value is not mask] or inputs[0].type.shape != leaving[0].type.shape:
        return None
    kinds = (spec_of(node) for node in nodes)
    first = next((spec for spec in kinds if spec and (spec.factors or spec.family is Family.NORMALIZATION)), None)
    norm_first = first is not None and first.factors is None
    attrs = {"num_heads": attention.attrs["num_heads"], "activation": activation, "norm_first": norm_first}
    return Fused("nn.transformer_encoder_layer", (inputs[0], *weights, mask), attrs, "aten::_transformer_encoder_layer_fwd", (leaving[0],))


# Attention masks that transformers materialises for the exporter, and omits in a run where they mask nothing, or only the future.
#
# See `_ignore_bidirectional_mask_sdpa` and `_ignore_causal_mask_sdpa` in its masking_utils.py. Attention has other kernels then.

_MAKES_MASK = re.compile(r"create_\w*mask\w*\(").search
_LIBRARY = "/transformers/"


def leave_out_masks(graph: Graph, types: Inferred, changes: Changes) -> None:
    """Note what runs without such masks."""
    statements: dict[tuple[Scope, Loc], list[Node]] = {}
    known: dict[int, Loc | None] = {}
    for node in graph:
        # A statement's nodes share one location, so that it is analysed once.
        key = id(node.loc)
        statement = known[key] if key in known else known.setdefault(key, _masking_statement(node))
        if statement is not None:
            statements.setdefault((node.scope, statement), []).append(node)
    for nodes in statements.values():
        masks = [node.outputs[0] for node in nodes if family(node) is Family.COMPARISON and len(node.outputs) == 1]
        if any([_leave_out(mask, types, changes) for mask in masks]):
            changes.may_go.update(nodes)


def _masking_statement(node: Node) -> Loc | None:
    """Return the statement of transformers that makes masks and that a node belongs to."""
    at = node.loc
    while at is not None:
        if _LIBRARY in at.file.replace("\\", "/") and _MAKES_MASK(at.statement):
            return at
        at = at.caller
    return None


def _leave_out(mask: Value, types: Inferred, changes: Changes) -> bool:
    """Record the changes if this mask is not materialised; False where something else depends on it."""
    known = _mask_values(mask, types)
    if known is None or not (known.all() or _is_causal(known)):
        return False
    follower = _Follower(types, causal=not known.all())
    if not follower.follow(mask):
        return False
    changes.instead.update(follower.instead)
    for node, place in follower.unmasked.items():
        changes.dropped[node] = ({place: None}, {"is_causal": follower.causal})
    return True


def _mask_values(mask: Value, types: Inferred) -> Known | None:
    """Return the values of a mask that depends on positions only."""
    found, node = types.values.get(mask), mask.node
    if found is not None or node is None:
        return found
    spec = spec_of(node)
    values = [None if value is None else types.values.get(value) for value in node.inputs]
    if spec is None or spec.evaluate is None or any(known is None and value for known, value in zip(values, node.inputs, strict=True)):
        return None
    operands = [None if value is None else types.type_of(value) for value in node.inputs]
    answer = spec.evaluate(OpCall(spec, operands, node.attrs, values, [types.type_of(mask)]))
    return answer if isinstance(answer, np.ndarray) and answer.dtype == np.bool_ else None


def _is_causal(known: Known) -> bool:
    if known.ndim < 2 or known.shape[-1] != known.shape[-2] or known.size != known.shape[-1] ** 2:
        return False
    return bool(np.array_equal(known.reshape(known.shape[-2:]), np.tri(known.shape[-1], dtype=bool)))


class _Follower:
    """The forward slice of one mask: everything that depends on it."""

    def __init__(self, types: Inferred, causal: bool) -> None:
        self._types = types
        self.causal = causal
        self.instead: dict[Value, Value] = {}
        self.unmasked: dict[Node, int] = {}
        """Attention whose mask goes, with the operand that it is."""
        self._zeros: set[Value] = set()
        """Additive masks."""

    def follow(self, mask: Value) -> bool:
        """False where something needs the mask."""
        pending = [mask]
        while pending:
            value = pending.pop()
            for user in value.users or ():
                if isinstance(user, Graph) or not self._accept(user, value, pending):
                    return False
        return True

    def _accept(self, user: Node, value: Value, pending: list[Value]) -> bool:
        place = user.inputs.index(value)
        if plays(user, OpRole.HANDS_ON_MASK) and place == 0:
            pending.append(user.outputs[0])
            if value in self._zeros:
                self._zeros.add(user.outputs[0])
            return True
        attention = attention_of(user)
        if attention is not None and attention.mask == place:
            self.unmasked[user] = place
            return not user.attrs.get("is_causal") and (not self.causal or _is_square(user, self._types))
        if self.causal:
            return False
        if plays(user, OpRole.SELECT) and place == 0:
            return self._choose(user, pending)
        other = user.inputs[1 - place] if plays(user, OpRole.ADD) and value in self._zeros else None
        if other is not None:
            self.instead[user.outputs[0]] = other
        return other is not None

    def _choose(self, user: Node, pending: list[Value]) -> bool:
        """Replace a select between scores and large negative numbers by the scores, where nothing is masked."""
        shown = user.inputs[1] if len(user.inputs) > 1 else None
        if shown is not None and not self._is_zero(shown):
            self.instead[user.outputs[0]] = shown
            return True
        if shown is None and user.attrs.get("x_value") != 0:
            return False
        self._zeros.add(user.outputs[0])
        pending.append(user.outputs[0])
        return True

    def _is_zero(self, value: Value) -> bool:
        known = self._types.values.get(value)
        return known is not None and known.size == 1 and known.dtype != object and not known.any()


def _is_square(node: Node, types: Inferred) -> bool:
    """Return whether there are as many queries as keys."""
    query, key = map(types.type_of, node.inputs[:2])
    if not query.shape or not key.shape:
        return False
    return query.shape[-2] == key.shape[-2]


# The program that Python runs, where it differs from the exported one.


def as_run(program: Program, types: Inferred, target: Target) -> Program | None:
    """Return a copy of the program as Python runs it in inference; None where the exported one is the same."""
    graph = program.graph
    if not program.traits.is_exported or program.functions or any(node.regions for node in graph):
        return None
    changes = Changes()
    roles = {role for node in graph for role in roles_of(node)}
    has_attention = OpRole.LAYOUT_BY_DEVICE in roles
    changes.relays = has_attention or any(lies_otherwise(node) for node in graph)
    if has_attention or OpRole.SOFTMAX in roles:
        leave_out_masks(graph, types, changes)
        fuse_modules(graph, changes)
    return changed(program, changes, target) if changes else None
