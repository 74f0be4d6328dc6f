"""LSTM, GRU and plain recurrent layers."""

from __future__ import annotations

from irscope.frontends.onnx.lower.rules import Rule, Table, direct, flag, integer, number, text, texts

_RULES: tuple[Rule, ...] = (text("direction", "forward"), integer("hidden_size"), texts("activations"), number("clip"))
_BATCH_FIRST = flag("layout", to="batch_first")

TABLE: Table = {
    "LSTM": direct("rnn.lstm", *_RULES, _BATCH_FIRST),
    "GRU": direct("rnn.gru", *_RULES, _BATCH_FIRST, flag("linear_before_reset")),
    "RNN": direct("rnn.rnn", *_RULES, _BATCH_FIRST),
}
CONTRIB: Table = {"DynamicQuantizeLSTM": direct("rnn.dynamic_quantize_lstm", *_RULES)}
