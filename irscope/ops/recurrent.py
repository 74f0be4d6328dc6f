"""Recurrent networks: single layers as ONNX has them, stacks as PyTorch has them, single steps."""

from __future__ import annotations

from typing import Literal, Unpack

from irscope.ir.dims import Dim, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.ort import packs, packs_dynamic_lstm, packs_gru, packs_lstm, takes, takes_gru, takes_lstm, takes_rnn
from irscope.ops.rules import products
from irscope.ops.scratch.composites import gru_cell_rule, lstm_cell_rule, recurrent_rule, rnn_cell_rule
from irscope.ops.spec import Facts, Family, OpCall, OpSpec, RuleError, numel, op, sizes

Cell = Literal["lstm", "gru", "rnn"]

_GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn": 1}
# Elementwise operations and transcendental functions for each element of the state and step.
_STEP_WORK: dict[Cell, tuple[int, int]] = {"lstm": (4, 5), "gru": (5, 3), "rnn": (0, 1)}


def cell_work(cell: Cell, steps: Dim, inputs: Dim, hidden: Dim, biases: int, projected: Dim | None = None) -> Cost:
    """Return cost of `steps` steps (times batch): products with inputs and state, biases, gates, an optional projection of the state."""
    gates = _GATES[cell]
    elementwise, transcendental = _STEP_WORK[cell]
    state = hidden if projected is None else projected
    macs = steps * gates * hidden * (inputs + state)
    if projected is not None:
        macs = macs + steps * hidden * projected
    adds = gates * (1 + biases)
    return products(macs, steps * hidden * (elementwise + adds)) + Cost(transcendental=steps * hidden * transcendental)


def _infer_layer(call: OpCall) -> tuple[Type, ...]:
    x, r = call.tensor("x"), call.shape("r")
    steps: Shape = None
    last: Shape = None
    directions = 2 if call.attr("direction") == "bidirectional" else 1
    hidden = r[2] if r is not None else call.attr("hidden_size")
    if x.shape is not None and hidden is not None:
        if len(x.shape) != 3:
            raise RuleError(f"{call.spec.name} needs inputs with 3 axes, not {x}")
        if r is not None:
            call.same(r[0], directions, "weights must be given for each direction")
        if call.attr("batch_first"):
            batch, length = x.shape[:2]
            steps, last = (batch, length, directions, hidden), (batch, directions, hidden)
        else:
            length, batch = x.shape[:2]
            steps, last = (length, directions, batch, hidden), (directions, batch, hidden)
    state = tensor(x.dtype, last, x.device)
    return call.fit(tensor(x.dtype, steps, x.device), state, state)


def _layer(cell: Cell, extra: str, results: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        first, second, inputs = sizes(call.types[0])
        directions, _, hidden = sizes(call.types[2])
        return cell_work(cell, first * second * directions, inputs, hidden, 2 if call.given("b") else 0)

    return op(
        f"rnn.{cell}(Tensor x, Tensor w, Tensor r, Tensor? b, Tensor? lengths, Tensor? initial_h, {extra}*, int? hidden_size, "
        f"str direction='forward', bool batch_first=False, str[] activations=[], float? clip, bool linear_before_reset=False) -> {results}",
        Family.RECURRENT,
        infer=_infer_layer,
        cost=cost,
        summary=summary,
        **facts,
    )


def _stacked_shapes(call: OpCall) -> tuple[Shape, Shape, Shape]:
    """Return sizes of all outputs, of the last states and of the last cells."""
    x, directions = call.shape("x"), 2 if call.attr("bidirectional") else 1
    if x is None:
        return None, None, None
    hidden = call.int_attr("hidden_size")
    width = call.attr("proj_size") or hidden
    layers = call.int_attr("num_layers") * directions
    if call.given("batch_sizes"):
        sizes_ = call.shape("batch_sizes")
        state = call.shape("initial_h")
        batch = state[1] if state is not None else None
        output: Shape = (x[0], width * directions)
        if batch is None or sizes_ is None:
            return output, None, None
        return output, (layers, batch, width), (layers, batch, hidden)
    if len(x) == 2:
        return (x[0], width * directions), (layers, width), (layers, hidden)
    if len(x) != 3:
        raise RuleError(f"{call.spec.name} needs inputs with 2 or 3 axes, not {call.tensor('x')}")
    batch = x[0] if call.attr("batch_first") else x[1]
    return (x[0], x[1], width * directions), (layers, batch, width), (layers, batch, hidden)


def _infer_stack(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    types: list[TensorType] = [tensor(x.dtype, shape, x.device) for shape in _stacked_shapes(call)]
    # What a library saves for its own backward pass has the types that the file says.
    states = len(call.spec.schema.results) - 1
    return (*types[:states], *call.results[states:])


def _stack(cell: Cell, extra: str, results: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        x = sizes(call.types[0])
        steps = product(x[:-1])
        hidden, directions = call.int_attr("hidden_size"), 2 if call.attr("bidirectional") else 1
        projected = call.attr("proj_size") or None
        width = (projected or hidden) * directions
        biases = 2 if call.attr("has_biases") else 0
        first = cell_work(cell, steps, x[-1], hidden, biases, projected)
        others = cell_work(cell, steps, width, hidden, biases, projected)
        return (first + others.times(call.int_attr("num_layers") - 1)).times(directions)

    facts.setdefault("temporaries", recurrent_rule)
    return op(
        f"rnn.{cell}_stack(Tensor x, Tensor? initial_h, {extra}Tensor? batch_sizes, Tensor[] weights, *, int hidden_size, "
        f"int num_layers=1, bool bidirectional=False, bool batch_first=False, bool has_biases=True, int proj_size=0, float dropout=0.0) -> "
        f"{results}",
        Family.RECURRENT,
        infer=_infer_stack,
        cost=cost,
        summary=summary,
        **facts,
    )


def _infer_cell(call: OpCall) -> tuple[Type, ...]:
    h = call.tensor("h")
    state = tensor(h.dtype, h.shape, h.device)
    return (state,) * len(call.spec.schema.results)


def _cell(cell: Cell, extra: str, results: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        hidden = sizes(call.types[1])[-1]
        biases = sum(call.given(name) for name in ("b_x", "b_h"))
        inputs = sizes(call.types[0])[-1]
        batch = product(sizes(call.types[1])[:-1])
        return cell_work(cell, batch, inputs, hidden, biases)

    return op(
        f"rnn.{cell}_cell(Tensor x, Tensor h, {extra}Tensor w_x, Tensor w_h, Tensor? b_x, Tensor? b_h) -> {results}",
        Family.RECURRENT,
        infer=_infer_cell,
        cost=cost,
        summary=summary,
        **facts,
    )


def _cost_dynamic(call: OpCall) -> Cost:
    """Return a layer whose inputs and states are quantized on the way, three operations an element and their range."""
    first, second, inputs = sizes(call.types[0])
    directions, hidden, _ = sizes(call.types[2])
    steps = first * second * directions
    count = numel(call.types[0]) + steps * hidden
    return cell_work("lstm", steps, inputs, hidden, 2 if call.given("b") else 0) + Cost(reduction=count * 2, elementwise=count * 3)


def _infer_dynamic(call: OpCall) -> tuple[Type, ...]:
    """Weights stand the other way around: (directions, inputs, gates)."""
    x, r = call.tensor("x"), call.shape("r")
    directions = 2 if call.attr("direction") == "bidirectional" else 1
    steps: Shape = None
    last: Shape = None
    if x.shape is not None and r is not None:
        length, batch, _ = x.shape
        steps, last = (length, directions, batch, r[1]), (directions, batch, r[1])
    state = tensor(x.dtype, last, x.device)
    return call.fit(tensor(x.dtype, steps, x.device), state, state)


_TWO = "(Tensor? y, Tensor? h)"
_THREE = "(Tensor? y, Tensor? h, Tensor? c)"

OPS = (
    _layer(
        "lstm",
        "Tensor? initial_c, Tensor? peepholes, ",
        _THREE,
        "Long short-term memory: all outputs, last states, last cells.",
        ort=packs(packs_lstm, "LSTM", takes=takes_lstm),
    ),
    _layer("gru", "", _TWO, "Gated recurrent unit: all outputs and last states.", ort=packs(packs_gru, "GRU", takes=takes_gru)),
    _layer("rnn", "", _TWO, "Plain recurrent network: all outputs and last states.", ort=takes(takes_rnn, "RNN")),
    _stack(
        "lstm",
        "Tensor? initial_c, ",
        "(Tensor y, Tensor h, Tensor c, Tensor[] saved)",
        "Stacked LSTM layers: outputs of the last layer, last states and cells of all.",
    ),
    _stack("gru", "", "(Tensor y, Tensor h, Tensor[] saved)", "Stacked GRU layers: outputs of the last layer, last states of all."),
    _stack(
        "rnn", "", "(Tensor y, Tensor h, Tensor[] saved)", "Stacked plain recurrent layers: outputs of the last layer, last states of all."
    ),
    _cell(
        "lstm", "Tensor c, ", "(Tensor h_out, Tensor c_out)", "One step of an LSTM: the next state and cell.", temporaries=lstm_cell_rule
    ),
    _cell("gru", "", "Tensor", "One step of a GRU: the next state.", temporaries=gru_cell_rule),
    _cell("rnn", "", "Tensor", "One step of a plain recurrent network: the next state.", temporaries=rnn_cell_rule),
    op(
        "rnn.dynamic_quantize_lstm(Tensor x, Tensor w, Tensor r, Tensor? b, Tensor? lengths, Tensor? initial_h, Tensor? initial_c, "
        "Tensor? peepholes, Tensor w_scale, Tensor w_zero_point, Tensor r_scale, Tensor r_zero_point, *, int? hidden_size, "
        f"str direction='forward', str[] activations=[], float? clip) -> {_THREE}",
        Family.QUANTIZATION,
        infer=_infer_dynamic,
        cost=_cost_dynamic,
        summary="LSTM layer with quantized weights; inputs are quantized on the way.",
        ort=packs(packs_dynamic_lstm, "DynamicQuantizeLSTM", takes=takes_lstm),
    ),
)
