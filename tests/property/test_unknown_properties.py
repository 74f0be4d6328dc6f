"""What is said of a program with something unknown must hold for every program that it may be.

A random program is made twice: once with operators and sizes that nobody knows, once with what they are. Where the first claims a
number, the second must have that number; where it claims an interval, the number must lie in it. A zero for something unknown breaks
the first rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.errors import IrscopeError
from irscope.ir.parser import parse_program
from irscope.passkit.manager import Manager
from irscope.report.report import Report
from irscope.report.values import Quantity, bare

ROWS, WIDTH = 4, 16
TYPE = f"f32[{ROWS},{WIDTH}]"
PASSES = (
    "flops", "bytes", "roofline", "layers", "energy{country=DEU}", "params", "params{values}", "liveness{model=ssa}", "liveness{model=ort}",
    "schedule", "fusion", "arch", "advise", "prune-report", "quantize-error", "stats", "plan", "ort-memory", "explain-peak",
)  # fmt: skip

HOW_MUCH_IS_KNOWN = (
    "nodes.", "unread_count", "known", "unknown", "coverage", "findings_count", "not_looked", "read_bytes", "problems",
)  # fmt: skip
"""Beginnings of keys that count what irscope knows: these are about the program as it was read."""
SEARCHES = frozenset({"schedule", "plan", "advise", "explain-peak", "recompute"})
"""Passes that look for something good: what they find may differ, what they bound may not."""
CHOICES = ("peak_after", "gain", "says", "method", "proven", "tried", "helpful", "with_all", "inductor", "above")
NAMES_OF_OPERATORS = ("operators", "widest", "depth")


@dataclass(frozen=True)
class Twin:
    """One program, as somebody who does not know it reads it and as it is."""

    guessed: str
    true: str


@st.composite
def twins(draw: st.DrawFn) -> Twin:
    values, guessed, true = ["x"], [], []
    known = ["x"]
    for number in range(draw(st.integers(1, 6))):
        name, operand = f"v{number}", draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["relu", "linear", "add", "mystery", "unsized"]))
        if kind == "linear":
            line = f"  %{name}: ?[*] = nn.linear(%{operand}, %w)"
            guessed.append(line)
            true.append(line)
        elif kind in ("relu", "add"):
            call = f"nn.relu(%{operand})" if kind == "relu" else f"math.add(%{operand}, %{draw(st.sampled_from(values))})"
            guessed.append(f"  %{name}: ?[*] = {call}")
            true.append(f"  %{name}: ?[*] = {call}")
        else:
            # The same operator is known to one of the two; `mystery` at least has a type.
            what = draw(st.sampled_from(["nn.linear(%{0}, %w)", "nn.relu(%{0})", "nn.softmax(%{0}) {{axis=1}}"])).format(operand)
            declared = TYPE if kind == "mystery" else "?[*]"
            operands = f"%{operand}, %w" if "%w" in what else f"%{operand}"
            guessed.append(f"  %{name}: {declared} = acme.mystery({operands})")
            true.append(f"  %{name}: {TYPE} = {what}")
        values.append(name)
        known.append(name)
    weight = draw(st.sampled_from([f"f32[{WIDTH},{WIDTH}]", "f32[*]"]))
    results = ", ".join(f"%{name}" for name in draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2, unique=True)))

    def text(w: str, body: Sequence[str]) -> str:
        head = f"irscope 1\ngraph @main {{\n  input %x: {TYPE}\n  param %w: {w}\n"
        return head + "\n".join(body) + f"\n  return {results}\n}}\n"

    return Twin(text(weight, guessed), text(f"f32[{WIDTH},{WIDTH}]", true))


def claims(made: Report) -> Iterator[tuple[str, Any]]:
    """Every number of a report under a name that both twins have."""
    for entry in made.entries():
        if entry.kind.is_number:
            yield entry.key, entry.cell
    for table in made.tables:
        keys = [column.key for column in table.columns]
        if table.title in ("nodes", "modules", "parameters", "layers"):
            label = "module" if table.title == "modules" else keys[0]
            for row in table.rows():
                cells = dict(zip(keys, row, strict=True))
                for column in table.columns:
                    if column.kind.is_number:
                        yield f"{table.title}[{cells[label]}].{column.key}", cells[column.key]


def holds(claim: object, truth: object) -> bool:
    """Whether a cell of the one who does not know agrees with the cell of the one who does."""
    interval = claim.interval if isinstance(claim, Quantity) else None
    said, actual = bare(claim), bare(truth)  # type: ignore[arg-type]  # cells
    if isinstance(truth, Quantity) and truth.interval is not None:
        return True
    if not isinstance(actual, int | float) or isinstance(actual, bool):
        return True
    if interval is not None:
        low, high = interval
        slack = 1e-9 * abs(actual)
        return (not isinstance(low, int | float) or low <= actual + slack) and (not isinstance(high, int | float) or actual <= high + slack)
    return said is None or not isinstance(said, int | float) or said == pytest.approx(actual, rel=1e-9)


def is_about_the_program(pass_name: str, options: str, key: str) -> bool:
    """Whether a number is about what runs, not about what irscope knows, chose or compares with what is known."""
    leaf = key.rpartition(".")[2]
    if key.startswith(HOW_MUCH_IS_KNOWN) or leaf in ("share", "cumulative", "multiple_of", "depth") or leaf in NAMES_OF_OPERATORS:
        return False
    # ONNX Runtime may run a kernel in place; of an operator that nobody knows that is unknown too.
    if pass_name in ("liveness", "ort-memory") and "ort" in options:
        return key.endswith(("param_bytes", "input_bytes"))
    # An operator that nobody knows may have effects, so it stays in its place: fewer orders are allowed than there are in truth.
    if pass_name == "schedule" and key == "lower_bound_bytes":
        return False
    return not (pass_name in SEARCHES and key.startswith(CHOICES))


@pytest.mark.parametrize("pipeline", PASSES)
@settings(max_examples=25, deadline=None)
@given(twin=twins())
def test_what_is_said_of_the_unknown_holds_for_what_it_is(pipeline: str, twin: Twin) -> None:
    try:
        guessed = Manager(parse_program(twin.guessed)).run(pipeline)[0].report()
    except IrscopeError:
        return  # A pass that needs to know more says so.
    true = dict(claims(Manager(parse_program(twin.true)).run(pipeline)[0].report()))
    for key, claim in claims(guessed):
        if key in true and is_about_the_program(guessed.pass_name, pipeline, key):
            assert holds(claim, true[key]), f"{key}: {claim!r} is said, {true[key]!r} is true"
