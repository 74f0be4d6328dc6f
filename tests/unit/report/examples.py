"""Reports that the tests of the renderers share, and strategies for random ones."""

from __future__ import annotations

import math
from functools import partial

from hypothesis import strategies as st

from irscope.diagnostics import Diagnostic, Severity
from irscope.report import Column, Coverage, Document, Kind, Mark, ModelInfo, Provenance, Quantity, Report, Series, Table

EVIL = (
    "",
    " ",
    "plain",
    "\x1b[31mred\x1b[0m",
    "bell\x07 and\x08 backspace",
    "line\nbreak\r\n\ttab",
    "c1\x9b31m",
    "\x7f",
    "\u202egnp.exe\u2066",
    "\ud800 lone \udcff",
    "日本語",
    "e\u0301clair",
    "<script>alert('x')</script> & \"quotes\"",
    "=HYPERLINK(1)",
    "+1|cmd",
    "-2+3+cmd|' /C calc'!A0",
    "@sum",
    "a,b;c",
    ' "quoted" ',
    "null",
    "\u2028\u2029\ufeff\u200b",
    "\U0001f600",
    "\\x1b",
    "x" * 300,
)
NESTED = (
    None,
    (),
    (8, 3, 224, 224),
    (8, None, "2*batch"),
    {"seq": {"dtype": "f32", "shape": (1, None)}},
    {"optional": {"seq": {"dtype": None, "shape": None}}},
)
NUMBERS = (0, -1, 1023, 1024, 10**30, -(2**70), 0.1, 1e-300, 1e300, math.nan, math.inf, -math.inf, None, "2*batch", "-x + 3")
QUANTITIES = (
    Quantity(1048576, Provenance.MODELLED, note="fitted"),
    Quantity(5, Provenance.MEASURED, lo=4, hi=6.5),
    Quantity(8, formula="4*batch"),
    Quantity(None, formula="4*batch"),
    Quantity(None),
)


def everything() -> Table:
    """A table with every kind of column and every awkward cell."""
    texts = [Kind.NODE, Kind.VALUE, Kind.TEXT, Kind.DTYPE, Kind.FORMULA]
    columns = tuple(Column(kind.value, kind) for kind in Kind)
    data: dict[str, list[object]] = {}
    height = max(len(EVIL), len(NUMBERS) + len(QUANTITIES))
    for column in columns:
        if column.kind in texts:
            pool: tuple[object, ...] = EVIL
        elif column.kind is Kind.SHAPE:
            pool = NESTED
        elif column.kind is Kind.BOOL:
            pool = (True, False, None)
        else:
            pool = NUMBERS + QUANTITIES
        data[column.key] = [pool[row % len(pool)] for row in range(height)]
    return Table("every kind", columns, data)


def document(*reports: Report) -> Document:
    return Document("1.2.3", ModelInfo("model.onnx", "onnx", partial(str, "ab" * 32), 12, 1000, 4000, {"batch": 8}), reports)


def with_table(table: Table) -> Document:
    return document(Report("test", tables=(table,)))


def liveness() -> Report:
    """A report that uses everything a report has."""
    return Report(
        "liveness",
        "liveness{model=eager}",
        {
            "model": "eager",
            "activation_peak_bytes": 11607654,
            "lower_bound_bytes": Quantity(None, formula="1048576*batch"),
            "before": {"requested": 1024, "allocated": 2048, "reserved": 2097152},
            "cold": {"requested": 4096, "allocated": Quantity(8192, Provenance.MODELLED), "reserved": None},
            "workspace_bytes": Quantity(8519680, Provenance.MODELLED, "8519680*n", "cuBLAS", 0, 9000000),
        },
        {"before": Kind.BYTES, "cold": Kind.BYTES},
        (Table.of([("a", 1), ("b", 2)], ["node", "size:bytes"], "Largest"),),
        (
            Series(
                "Timeline",
                Column("step", Kind.INDEX),
                (Column("live", Kind.BYTES),),
                {"step": [0, 1, 2], "live": [5, 9, 2]},
                (Mark(1, "peak"),),
            ),
        ),
        Coverage(3, 4, ("aten.foo",)),
        (Diagnostic(Severity.WARNING, "IRS204", "odd \x1b[31m", "conv", hint="do this", count=3),),
        ("MiB = 2^20 bytes",),
    )


text = st.text(st.characters(), max_size=12) | st.sampled_from(EVIL)
number = st.integers(-(10**40), 10**40) | st.floats() | st.none() | text
quantity = st.builds(
    Quantity,
    st.integers() | st.none(),
    st.sampled_from([Provenance.EXACT, Provenance.MODELLED, Provenance.MEASURED]),
    text | st.none(),
    text,
    st.integers() | st.none(),
    st.integers() | st.none(),
)
dims = st.lists(st.integers(0, 10**9) | text | st.none(), max_size=4).map(tuple)
nested = st.recursive(
    st.fixed_dictionaries({"dtype": text | st.none(), "shape": dims | st.none()}),
    lambda inner: st.builds(lambda key, type_: {key: type_}, text, inner),
)


def cells(kind: Kind) -> st.SearchStrategy[object]:
    if kind is Kind.SHAPE:
        return dims | nested | st.none()
    if kind is Kind.BOOL:
        return st.booleans() | st.none()
    return number | quantity if kind.is_number else text | st.none()


@st.composite
def tables(draw: st.DrawFn) -> Table:
    kinds = draw(st.lists(st.sampled_from(Kind), min_size=1, max_size=5))
    height = draw(st.integers(0, 4))
    columns = tuple(
        Column(f"c{at}", kind, provenance=draw(st.sampled_from([Provenance.EXACT, Provenance.MODELLED]))) for at, kind in enumerate(kinds)
    )
    data = {column.key: draw(st.lists(cells(column.kind), min_size=height, max_size=height)) for column in columns}
    return Table(draw(text), columns, data)
