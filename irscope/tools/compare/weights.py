"""The weights of two models: which of them have other types, shapes or values, worst first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from irscope.ir.graph import Value
from irscope.passes.sizes import dim_cell, scale
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.session import Model
from irscope.tools.compare.document import Measure
from irscope.tools.compare.models import ModelComparison, WeightRow
from irscope.weights.differences import Difference, differences
from irscope.weights.result import Unread
from irscope.weights.source import WeightFiles

VALUES = "values"
"""The change of a weight whose numbers are other ones."""
NOT_FINITE = "not finite"
"""That of one with numbers in A that are NaN or infinite in B."""
NOT_FINITE_IN_A = "not finite in A"
"""That of one with NaN or infinite elements in A that are numbers, or otherwise not finite, in B."""
NOT_READ = "not read"


def read_values(compared: ModelComparison, threads: int = 0) -> None:
    """Compare the values of all weights that have one shape on both sides. Reads both files once, in windows; can be cancelled."""
    rows = [row for row in compared.weights if row.a is not None and row.b is not None and row.a.type.shape == row.b.type.shape]
    pairs = [(row.a, row.b) for row in rows if row.a is not None and row.b is not None]
    a, b = compared.a.model, compared.b.model
    with _files(a) as one, _files(b) as other:
        compared.values = dict(zip(rows, differences(pairs, (one, other), threads, a.manager.tick), strict=True))
    a.manager.ended()


def _files(model: Model) -> WeightFiles:
    return WeightFiles(model.program.path)


def weight_change(row: WeightRow, values: Mapping[WeightRow, Difference | Unread] | None) -> str:
    """Return what changed, in a few words; empty where nothing did, or where values were not compared."""
    found = None if values is None else values.get(row)
    words = [row.change] if row.change else []
    if isinstance(found, Unread):
        words.append(NOT_READ)
    elif isinstance(found, Difference) and found.changed:
        words.append(NOT_FINITE if found.lost else NOT_FINITE_IN_A if found.apart else VALUES)
    return ", ".join(words)


def weights_table(compared: ModelComparison, everything: bool = False) -> Table:
    """Return the weights by name, or those that differ, what changed most first."""
    values = compared.values
    rows = [row for row in compared.weights if everything or weight_change(row, values)]
    if not everything:
        rows.sort(key=lambda row: _badness(row, values), reverse=True)
    columns = [
        Column("name", Kind.VALUE),
        Column("change"),
        Column("role", detail=True),
        *(_VALUE_COLUMNS if values is not None else ()),
        # Beside numbers the change tells what became of types, so that names have room.
        Column("type_a", detail=values is not None),
        Column("type_b", detail=values is not None),
        Column("bytes_a", Kind.BYTES, detail=values is not None),
        Column("bytes_b", Kind.BYTES, detail=values is not None),
        Column("name_b", Kind.VALUE, detail=True),
        *((Column("problem", help="why its values are not known"),) if values is not None else ()),
    ]
    title = "parameters and buffers" if everything else "parameters and buffers that differ"
    return Table.of((_cells(row, values) for row in rows), columns=columns, title=title)


_VALUE_COLUMNS = (
    Column("relative", Kind.NUMBER, help="the L2 norm of the difference over that of A, of elements that are finite in both"),
    Column("max_abs", Kind.NUMBER, help="the largest magnitude of a difference, of elements that are finite in both"),
    Column("cosine", Kind.NUMBER, help="of the angle between both; 1 where only the length changed"),
    Column("changed", Kind.COUNT, help="elements that are another number", detail=True),
    Column("of", Kind.COUNT, help="elements in all", detail=True),
    Column("not_finite", Kind.COUNT, help="elements that are finite in A, and NaN or infinite in B", detail=True),
)


def _cells(row: WeightRow, values: Mapping[WeightRow, Difference | Unread] | None) -> tuple[object, ...]:
    one = row.a if row.a is not None else row.b
    assert one is not None
    sizes = [0 if weight is None else weight.type.nbytes for weight in (row.a, row.b)]
    types = ["" if weight is None else weight.type.text for weight in (row.a, row.b)]
    renamed = row.b.name if row.b is not None and row.a is not None and row.b.name != row.a.name else ""
    last = (*types, *map(dim_cell, sizes), renamed)
    if values is None:
        return (one.name, weight_change(row, values), one.role.value, *last)
    found = values.get(row)
    # What is on one side only, or of another shape there, has no difference; that of one that cannot be read is unknown.
    numbers: tuple[object, ...] = (None if isinstance(found, Unread) else "",) * len(_VALUE_COLUMNS)
    if isinstance(found, Difference):
        numbers = (found.relative, found.largest, found.cosine, found.changed, found.count, found.lost)
    problem = found.reason if isinstance(found, Unread) else ""
    return (one.name, _told(row, values), one.role.value, *numbers, *last, problem)


def _told(row: WeightRow, values: Mapping[WeightRow, Difference | Unread] | None) -> str:
    """Return the change with what a type or shape became."""
    a, b = row.a, row.b
    words = weight_change(row, values).split(", ")
    if a is None or b is None:
        return words[0]
    types = {"retyped": (_dtype_text(a), _dtype_text(b)), "reshaped": (_shape_text(a), _shape_text(b))}
    return ", ".join(f"{word} {' to '.join(types[word])}" if word in types else word for word in words)


def _dtype_text(weight: Value) -> str:
    return weight.type.dtype.text


def _shape_text(weight: Value) -> str:
    """Return the sizes of a type's text."""
    text = weight.type.text
    return text[text.find("[") :] if "[" in text else text


def _badness(row: WeightRow, values: Mapping[WeightRow, Difference | Unread] | None) -> tuple[float, float, int]:
    """Return more for what is worse: NaN in B, NaN in A alone, one side only, not read, then how far values went."""
    found = None if values is None else values.get(row)
    sizes = [0 if weight is None else weight.type.nbytes or 0 for weight in (row.a, row.b)]
    size = abs(scale(sizes[1] - sizes[0]))
    if isinstance(found, Difference) and found.changed:
        return (5.0 if found.lost else 4.0 if found.apart else 1.0, math.inf if found.relative is None else found.relative, size)
    if row.a is None or row.b is None or row.a.type.shape != row.b.type.shape:
        return (3.0, 0.0, size)
    return (2.0 if isinstance(found, Unread) else 0.0, 0.0, size)


# -- what is said of them ---------------------------------------------------------------------------------------


def weights_headline(compared: ModelComparison) -> list[str]:
    """Return how many weights differ and in what, and the one that changed most; empty where values were not read."""
    values = compared.values
    if values is None:
        return []
    both = [row for row in compared.weights if row.a is not None and row.b is not None]
    equal = sum(not weight_change(row, values) for row in both)
    kinds = Counter(word for row in both for word in weight_change(row, values).split(", ") if word)
    parts = [f"{kinds[word]:,} {text}" for word, text in _SAID.items() if kinds[word]]
    said = f"{len(both):,} weights in both: " + (f"{len(both) - equal:,} differ ({', '.join(parts)}), " if parts else "")
    said += f"{equal:,} equal" if parts or not both else "all equal"
    alone = [f"{count:,} only in {name}" for name, count in (("A", _alone(compared, "removed")), ("B", _alone(compared, "added"))) if count]
    lines = ["; ".join([said, *alone])]
    most = max(
        ((value.relative, row) for row, value in values.items() if isinstance(value, Difference) and value.changed and value.relative),
        key=lambda pair: pair[0],
        default=None,
    )
    if most is not None:
        relative, row = most
        found = values[row]
        assert isinstance(found, Difference) and row.a is not None
        lines.append(f"most: {row.a.name} by {relative:.3g} of its norm, at most {found.max_abs:.3g} in an element")
    return lines


_SAID = {
    NOT_FINITE: "NaN or infinite in B",
    NOT_FINITE_IN_A: "NaN or infinite in A",
    VALUES: "in values",
    "retyped": "in element type",
    "reshaped": "in shape",
    "renamed": "in name",
    NOT_READ: "whose values cannot be read",
}


def _alone(compared: ModelComparison, change: str) -> int:
    return sum(row.change == change for row in compared.weights)


def weights_measure(compared: ModelComparison) -> Measure:
    """Return how many weights differ; unknown where values were not read, or not all of them."""
    rows: Sequence[WeightRow] = compared.weights
    values = compared.values
    if values is None or any(isinstance(value, Unread) for value in values.values()):
        return Measure(None, None, "")
    changed = sum(bool(weight_change(row, values)) for row in rows)
    return Measure(changed, changed / len(rows) if rows else 0.0, f"{changed:,} of {len(rows):,} weights differ")
