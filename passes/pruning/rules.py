"""How slices pass operators that compute: products, convolutions, norms, pools, reductions, and everything elementwise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Value
from irscope.ir.types import tensor
from irscope.ops.registry import default_registry, find_op
from irscope.ops.spec import Family, OpCall
from irscope.passes.pruning.channels import Ids
from irscope.passes.pruning.flow import Floats, Flow, Rule, Slices
from irscope.passes.pruning.moving import MOVING

_SAME_OF_EQUAL = frozenset({"mean", "max", "min"})
_ZERO_OF_ZERO = frozenset({"sum", "l1", "l2", "sum_square"})


def rules() -> Mapping[str, Rule]:
    """The rule of every operator that has one."""
    elementwise = {spec.name: _elementwise for spec in default_registry() if spec.family is Family.ELEMENTWISE}
    for name in ("nn.glu", "nn.swiglu", "math.diff"):
        elementwise.pop(name, None)
    return {**elementwise, **MOVING, **_RULES}


def _operand(node: Node, place: int) -> Value | None:
    return node.inputs[place] if place < len(node.inputs) else None


def _attr(node: Node, name: str) -> object:
    spec = find_op(node.op)
    found = node.attrs.get(name)
    return spec.defaults.get(name) if found is None and spec is not None else found


# -- elementwise -------------------------------------------------------------------------------------------------------


def _elementwise(flow: Flow, node: Node) -> Slices | None:
    """Operands are lined up from their last axis; those of size 1 are repeated."""
    operands = [value for value in node.inputs if value is not None]
    known = [(flow.of(value), flow.sizes(value)) for value in operands]
    sizes = flow.sizes(node.outputs[0])
    if flow.type(node.outputs[0]) is None or any(flow.type(value) is None for value in operands) or not operands:
        return None
    ids: list[Ids | None] = []
    held: list[Floats | None] = []
    for axis, size in enumerate(sizes):
        full: list[Ids | None] = []
        numbers: list[Floats | float] = []
        for slices, shape in known:
            assert slices is not None
            place = axis - len(sizes) + len(shape)
            if place < 0 or (shape[place] == 1 and size != 1):
                numbers.append(slices.whole)
                flow.channels.block(slices.ids[place] if place >= 0 else None, f"{node.name} repeats it")
                continue
            full.append(slices.ids[place])
            found = slices.held[place]
            numbers.append(slices.whole if found is None else found)
        together = flow.together(full, node)
        ids.append(together)
        held.append(None if together is None else _applied(node, operands, numbers, len(together)))
    whole = _applied(node, operands, [slices.whole for slices, _ in known if slices is not None], 1)[0] if not sizes else math.nan
    return Slices(tuple(ids), tuple(held), float(whole))


def _applied(node: Node, operands: Sequence[Value], numbers: Sequence[Floats | float], count: int) -> Floats:
    """What the operator makes of slices that hold one number each; NaN where one of them does not."""
    vectors = [np.broadcast_to(np.asarray(each, np.float64), (count,)) for each in numbers]
    is_known = np.logical_and.reduce([np.isfinite(each) for each in vectors])
    made = np.full(count, math.nan)
    if is_known.any():
        made = np.where(is_known, _evaluated(node, operands, vectors, count), math.nan)
    if node.op == "math.mul":
        # Nothing but a zero matters, as long as the other factor is finite.
        made = np.where(np.logical_or.reduce([each == 0 for each in vectors]), 0.0, made)
    return made


def _evaluated(node: Node, operands: Sequence[Value], vectors: Sequence[Floats], count: int) -> Floats:
    nothing = np.full(count, math.nan)
    spec = find_op(node.op)
    if spec is None or spec.evaluate is None:
        return nothing
    places = iter(vectors)
    values = [None if value is None else next(places) for value in node.inputs]
    vector = tensor(DType.F64, (count,))
    call = OpCall(spec, [None if value is None else vector for value in node.inputs], node.attrs, values, [vector])
    with np.errstate(all="ignore"):
        try:
            found = spec.evaluate(call)
        except Exception:  # an attribute that the operator does not expect: the values stay unknown
            return nothing
    one = found[0] if isinstance(found, list | tuple) else found
    if not isinstance(one, np.ndarray) or one.shape != (count,) or one.dtype.kind not in "fiu":
        return nothing
    return one.astype(np.float64)


def _prelu(flow: Flow, node: Node) -> Slices | None:
    x, slope = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    if x is None or slope is None:
        return None
    if slope.rank != 1 or x.rank < 2:
        return _elementwise(flow, node) if slope.rank != 1 else None
    ids = x.ids
    if flow.sizes(node.inputs[1]) != (1,):
        if not _attr(node, "per_channel"):
            return _elementwise(flow, node)
        ids = (x.ids[0], flow.together((x.ids[1], slope.ids[0]), node), *x.ids[2:])
    else:
        flow.channels.block(slope.ids[0], f"{node.name} repeats it")
    return Slices(ids, tuple(_zeros_only(held) for held in x.held))


def _zeros_only(held: Floats | None) -> Floats | None:
    return None if held is None else np.where(held == 0, 0.0, math.nan)


# -- products ----------------------------------------------------------------------------------------------------------


def _zero_or(held: Floats | None, other: Floats | float, count: int) -> Floats:
    """What is left where a slice of a factor is zero: a bias, or nothing."""
    if held is None:
        return np.full(count, math.nan)
    return np.where(held == 0, other, math.nan)


def _linear(flow: Flow, node: Node) -> Slices | None:
    x, w = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    bias = flow.of(_operand(node, 2))
    if x is None or w is None or w.rank != 2 or x.rank < 1 or (bias is not None and bias.rank != 1):
        return None
    flow.contract((x.ids[-1], x.held[-1]), (w.ids[1], w.held[1]), node, True)
    rows = w.ids[0] if bias is None else flow.together((w.ids[0], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    made = None if rows is None else _zero_or(w.held[0], added, len(rows))
    # A slice of rows of zeros gives the bias, which is one number only where the bias is.
    front = tuple(None if held is None else _zeros_only(held) for held in x.held[:-1]) if bias is None else (None,) * (x.rank - 1)
    return Slices((*x.ids[:-1], rows), (*front, made))


def _matmul(flow: Flow, node: Node) -> Slices | None:
    a, b = flow.of(_operand(node, 0)), flow.of(_operand(node, 1))
    if a is None or b is None or a.rank < 1 or b.rank < 1:
        return None
    return _product(flow, node, a, b)


def _product(flow: Flow, node: Node, a: Slices, b: Slices) -> Slices:
    inner = -2 if b.rank > 1 else -1
    flow.contract((a.ids[-1], a.held[-1]), (b.ids[inner], b.held[inner]), node, True)
    batch = max(a.rank, b.rank, 2) - 2
    ids: list[Ids | None] = []
    for axis in range(batch):
        places = [(one, axis - batch + one.rank - 2) for one in (a, b)]
        present = [one.ids[place] for one, place in places if place >= 0]
        longest = max((len(each) for each in present if each is not None), default=0)
        for each in present:
            if each is not None and len(each) < longest:
                flow.channels.block(each, f"{node.name} repeats it")
        ids.append(flow.together([each for each in present if each is None or len(each) == longest], node))
    held: list[Floats | None] = [None] * batch
    if a.rank > 1:
        ids.append(a.ids[-2])
        held.append(_zeros_only(a.held[-2]))
    if b.rank > 1:
        ids.append(b.ids[-1])
        held.append(_zeros_only(b.held[-1]))
    return Slices(tuple(ids), tuple(held))


def _transposed(slices: Slices, flag: object) -> Slices:
    return Slices(slices.ids[::-1], slices.held[::-1]) if flag else slices


def _gemm(flow: Flow, node: Node) -> Slices | None:
    a, b, c = (flow.of(_operand(node, place)) for place in range(3))
    if a is None or b is None or a.rank != 2 or b.rank != 2 or node.attrs.get("activation"):
        return None
    made = _product(flow, node, _transposed(a, node.attrs.get("trans_a")), _transposed(b, node.attrs.get("trans_b")))
    return _with_added(flow, node, made, c, _operand(node, 2), _factor(node, "beta"))


def _addmm(flow: Flow, node: Node) -> Slices | None:
    c, a, b = (flow.of(_operand(node, place)) for place in range(3))
    if a is None or b is None or c is None or a.rank != 2 or b.rank != 2:
        return None
    return _with_added(flow, node, _product(flow, node, a, b), c, _operand(node, 0), _factor(node, "beta"))


def _factor(node: Node, name: str) -> float:
    found = _attr(node, name)
    return float(found) if isinstance(found, int | float) else math.nan


def _with_added(flow: Flow, node: Node, made: Slices, c: Slices | None, value: Value | None, factor: float) -> Slices:
    """A product to which something is added that may be repeated over rows."""
    if c is None:
        return made
    sizes, ids = flow.sizes(value), list(made.ids)
    held: list[Floats | None] = [None] * made.rank
    for axis in range(made.rank):
        place = axis - made.rank + c.rank
        found = made.held[axis]
        is_repeated = place < 0 or (sizes[place] == 1 and flow.sizes(node.outputs[0])[axis] != 1)
        if is_repeated:
            flow.channels.block(c.ids[place] if place >= 0 else None, f"{node.name} repeats it")
            added: Floats | float = c.whole
        else:
            ids[axis] = flow.together((made.ids[axis], c.ids[place]), node)
            numbers = c.held[place]
            added = math.nan if numbers is None else numbers
        together = ids[axis]
        if found is not None and together is not None:
            held[axis] = _zero_or(found, np.asarray(added) * factor, len(together))
    return Slices(tuple(ids), tuple(held))


# -- convolutions ------------------------------------------------------------------------------------------------------


def _conv(flow: Flow, node: Node) -> Slices | None:
    x, w, bias = (flow.of(_operand(node, place)) for place in range(3))
    if x is None or w is None or x.rank != w.rank or w.rank < 3 or node.attrs.get("channels_last"):
        return None
    for ids in w.ids[2:]:
        flow.channels.block(ids, f"{node.name} needs the whole kernel")
    groups = _attr(node, "groups")
    rows = w.ids[0] if bias is None else flow.together((w.ids[0], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    count = 0 if rows is None else len(rows)
    made = _zero_or(w.held[0], added, count)
    if groups == 1:
        flow.contract((x.ids[1], x.held[1]), (w.ids[1], w.held[1]), node, not any(_numbers(_attr(node, "pads"))))
    elif rows is not None and isinstance(groups, int):
        rows, made = _grouped(flow, node, x, w, rows, made, groups, added)
    return Slices((x.ids[0], rows, *(None,) * (x.rank - 2)), (None, made if rows is not None else None, *(None,) * (x.rank - 2)))


def _grouped(
    flow: Flow, node: Node, x: Slices, w: Slices, rows: Ids, made: Floats, groups: int, added: Floats | float
) -> tuple[Ids | None, Floats]:
    """Of a grouped convolution only whole groups can go: all that they read with all that they write."""
    channels, taken = flow.channels, x.ids[1]
    channels.block(w.ids[1], f"{node.name} has groups of one size")
    if taken is None or not groups or len(taken) % groups or len(rows) % groups:
        channels.block(rows, f"{node.name} is grouped over something that cannot shrink")
        channels.block(taken, f"{node.name} is grouped over something that cannot shrink")
        return None, made
    inputs, outputs = taken.reshape(groups, -1), rows.reshape(groups, -1)
    for ids in (inputs, outputs):
        channels.unite(np.repeat(inputs[:, 0], ids.shape[1]), ids.reshape(-1))
    held = x.held[1]
    if held is not None:
        is_zero = np.repeat((held.reshape(groups, -1) == 0).all(axis=1), outputs.shape[1])
        made = np.where(is_zero, added, made)
    return rows, made


def _numbers(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, tuple | list) else () if value is None else (value,)


def _conv_transpose(flow: Flow, node: Node) -> Slices | None:
    x, w, bias = (flow.of(_operand(node, place)) for place in range(3))
    is_plain = _attr(node, "groups") == 1 and not node.attrs.get("channels_last")
    if x is None or w is None or x.rank != w.rank or w.rank < 3 or not is_plain:
        return None
    for ids in w.ids[2:]:
        flow.channels.block(ids, f"{node.name} needs the whole kernel")
    flow.contract((x.ids[1], x.held[1]), (w.ids[0], w.held[0]), node, False)
    columns = w.ids[1] if bias is None else flow.together((w.ids[1], bias.ids[0]), node)
    added: Floats | float = 0.0 if bias is None else math.nan if bias.held[0] is None else bias.held[0]
    made = None if columns is None else _zero_or(w.held[1], added, len(columns))
    return Slices((x.ids[0], columns, *(None,) * (x.rank - 2)), (None, made, *(None,) * (x.rank - 2)))


# -- norms, pools, reductions ------------------------------------------------------------------------------------------


def _batch_norm(flow: Flow, node: Node) -> Slices | None:
    x, axis = flow.of(_operand(node, 0)), _attr(node, "axis")
    if x is None or x.rank < 2 or not isinstance(axis, int) or node.attrs.get("training"):
        return None
    axis %= x.rank
    given = [flow.of(_operand(node, place)) for place in range(1, 5)]
    ids = flow.together([x.ids[axis], *(one.ids[0] for one in given if one is not None and one.rank == 1)], node)
    if ids is None:
        return Slices((*x.ids[:axis], None, *x.ids[axis + 1 :]), (None,) * x.rank)
    scale, bias, mean, var = (_vector(one, default, len(ids)) for one, default in zip(given, (1.0, 0.0, 0.0, 1.0), strict=True))
    held, epsilon = x.held[axis], _factor(node, "epsilon")
    values = np.full(len(ids), math.nan) if held is None else held
    with np.errstate(all="ignore"):
        made = np.where(scale == 0, bias, (values - mean) / np.sqrt(var + epsilon) * scale + bias)
    return Slices((*x.ids[:axis], ids, *x.ids[axis + 1 :]), (*(None,) * axis, made, *(None,) * (x.rank - axis - 1)))


def _vector(slices: Slices | None, default: float, count: int) -> Floats:
    if slices is None:
        return np.full(count, default)
    held = slices.held[0] if slices.rank == 1 else None
    return np.full(count, math.nan) if held is None or len(held) != count else held


def _instance_norm(flow: Flow, node: Node) -> Slices | None:
    x = flow.of(_operand(node, 0))
    if x is None or x.rank < 3:
        return None
    given = [flow.of(_operand(node, place)) for place in (1, 2)]
    ids = flow.together([x.ids[1], *(one.ids[0] for one in given if one is not None and one.rank == 1)], node)
    if ids is None:
        return Slices((x.ids[0], None, *(None,) * (x.rank - 2)), (None,) * x.rank)
    scale, bias = _vector(given[0], 1.0, len(ids)), _vector(given[1], 0.0, len(ids))
    held = x.held[1]
    # A channel that is one number everywhere is its own mean.
    is_flat = scale == 0 if held is None else (scale == 0) | np.isfinite(held)
    return Slices((x.ids[0], ids, *(None,) * (x.rank - 2)), (None, np.where(is_flat, bias, math.nan), *(None,) * (x.rank - 2)))


def _along_last(flow: Flow, node: Node) -> Slices | None:
    """Operators that mix everything along an axis (or from it on) and keep the others apart."""
    x, axis = flow.of(_operand(node, 0)), _attr(node, "axis")
    if x is None or not isinstance(axis, int) or not x.rank:
        return None
    axis %= x.rank
    is_norm = node.op in ("nn.layer_norm", "nn.rms_norm")
    mixed = range(axis, x.rank) if is_norm or node.attrs.get("from_axis") else (axis,)
    for each in mixed:
        flow.channels.block(x.ids[each], f"{node.name} ({node.op}) mixes what lies along it")
    for value in node.inputs[1:]:
        if value is not None:
            flow.block(value, f"{node.name} ({node.op}) mixes what lies along it")
    return Slices(tuple(None if each in mixed else x.ids[each] for each in range(x.rank)), (None,) * x.rank)


def _pool(flow: Flow, node: Node) -> Sequence[Slices] | None:
    x = flow.of(_operand(node, 0))
    if x is None or node.attrs.get("channels_last"):
        return None
    spatial = node.attrs.get("spatial") or len(_numbers(node.attrs.get("kernel_shape"))) or x.rank - 2
    if not isinstance(spatial, int) or not 0 < spatial < x.rank:
        return None
    kept = x.rank - spatial
    for ids in x.ids[kept:]:
        flow.channels.block(ids, f"{node.name} ({node.op}) mixes what lies along it")
    first = Slices((*x.ids[:kept], *(None,) * spatial), (*map(_zeros_only, x.held[:kept]), *(None,) * spatial))
    return [first] + [Slices(first.ids, (None,) * x.rank) for _ in node.outputs[1:]]


def _reduce(flow: Flow, node: Node) -> Slices | None:
    x = flow.of(_operand(node, 0))
    axes = _axes(flow, node, _operand(node, 1))
    if x is None or axes is None:
        return None
    reduced = [axis % x.rank for axis in axes] if axes else list(range(x.rank))
    for axis in reduced:
        flow.channels.block(x.ids[axis], f"{node.name} ({node.op}) mixes what lies along it")
    kind = node.op.rpartition(".")[2]
    ids: list[Ids | None] = []
    held: list[Floats | None] = []
    for axis in range(x.rank):
        if axis in reduced:
            if flow.sizes(node.outputs[0]) and _attr(node, "keepdims"):
                ids.append(None)
                held.append(None)
            continue
        ids.append(x.ids[axis])
        held.append(x.held[axis] if kind in _SAME_OF_EQUAL else _zeros_only(x.held[axis]) if kind in _ZERO_OF_ZERO else None)
    return Slices(tuple(ids), tuple(held))


def _axes(flow: Flow, node: Node, value: Value | None) -> list[int] | None:
    """Axes given as an attribute or as a known operand; empty for all, None where they are not known."""
    found = node.attrs.get("axes")
    if found is None and value is not None:
        known = flow.types.values.get(value)
        if known is None:
            return None
        found = tuple(known.reshape(-1).tolist())
    listed = _numbers(found)
    return [each for each in listed if isinstance(each, int)] if all(isinstance(each, int) for each in listed) else None


_RULES: Mapping[str, Rule] = {
    "nn.linear": _linear,
    "math.matmul": _matmul,
    "math.gemm": _gemm,
    "math.addmm": _addmm,
    "nn.conv": _conv,
    "nn.conv_transpose": _conv_transpose,
    "nn.prelu": _prelu,
    "nn.batch_norm": _batch_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _along_last,
    "nn.rms_norm": _along_last,
    "nn.softmax": _along_last,
    "nn.log_softmax": _along_last,
    **dict.fromkeys(
        (
            "nn.max_pool",
            "nn.avg_pool",
            "nn.lp_pool",
            "nn.global_max_pool",
            "nn.global_avg_pool",
            "nn.global_lp_pool",
            "nn.adaptive_avg_pool",
            "nn.adaptive_max_pool",
        ),
        _pool,
    ),
    **dict.fromkeys((f"reduce.{kind}" for kind in ("sum", "mean", "max", "min", "l1", "l2", "sum_square", "prod", "var", "std")), _reduce),
}
