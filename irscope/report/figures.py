"""The numbers of the answer, one record each: tables, budgets, comparisons and datasets read these, and know no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from irscope.immutable import immutable
from irscope.report.units import Kind


@immutable
class Figure:
    """One number of a card, or of a row about a model."""

    key: str
    kind: Kind
    aliases: tuple[str, ...] = ()
    """Further names that budgets have for it."""
    of: Literal["file", "sizes", "runtime"] = "sizes"
    """Inputs of the figure: the file alone, also the sizes of inputs, or also the version of the runtime."""
    has_formula: bool = False
    """True where its formula shows whether it depends on a size."""
    is_budgetable: bool = True
    per_device: bool = False
    """True where a dataset has it for each further device, as in peak@l4."""
    compared: str = ""
    """Name in the comparison of two models; empty for a figure that does not decide."""
    is_whole: bool = True
    """Of bytes and counts: whether 64 bits hold it."""
    marks_change: bool = False
    """True where another value means that the model, or irscope's account of it, has changed."""

    @property
    def column(self) -> Literal["int64", "float64", "bool"]:
        """Return what a column of a dataset holds."""
        if self.kind is Kind.BOOL:
            return "bool"
        return "int64" if self.is_whole and self.kind in (Kind.BYTES, Kind.COUNT) else "float64"


FIGURES: Final[Mapping[str, Figure]] = {
    figure.key: figure
    for figure in (
        Figure("parameters", Kind.COUNT, ("params",), of="file", compared="parameters", marks_change=True),
        Figure("parameter_bytes", Kind.BYTES, of="file", compared="parameter_bytes", marks_change=True),
        Figure("size_on_disk", Kind.BYTES, ("size",), of="file", compared="size_on_disk"),
        Figure("time", Kind.SECONDS, ("latency",), compared="time", marks_change=True),
        Figure("least_time", Kind.SECONDS, compared="least_time"),
        Figure("flops", Kind.FLOPS, has_formula=True, compared="flops", marks_change=True),
        Figure("macs", Kind.COUNT, has_formula=True, is_whole=False),
        Figure("bytes", Kind.BYTES, has_formula=True, compared="moved_bytes", is_whole=False),
        Figure("intensity", Kind.NUMBER, ("arithmetic_intensity",)),
        Figure("energy", Kind.JOULES, compared="energy"),
        Figure("peak", Kind.BYTES, ("memory",), of="runtime", per_device=True, compared="peak_memory_bytes", marks_change=True),
        Figure("peak_requested", Kind.BYTES, ("requested",), of="runtime"),
        Figure("peak_allocated", Kind.BYTES, ("allocated",), of="runtime", compared="peak_allocated_bytes"),
        Figure("peak_reserved", Kind.BYTES, ("reserved",), of="runtime", per_device=True, compared="peak_reserved_bytes"),
        Figure("missing", Kind.BYTES, is_budgetable=False, per_device=True),
        Figure("pytorch_allocated", Kind.BYTES),
        Figure("pytorch_reserved", Kind.BYTES),
        Figure("file_peak", Kind.BYTES),
        Figure("file_reserved", Kind.BYTES),
        Figure("fits", Kind.BOOL, of="runtime", per_device=True, marks_change=True),
        Figure("nodes", Kind.COUNT, of="file", marks_change=True),
        Figure("unknown_ops", Kind.COUNT, marks_change=True),
        Figure("unknown_tensors", Kind.COUNT),
        Figure("unknown_weights", Kind.COUNT),
        Figure("guesses", Kind.COUNT, of="file"),
        Figure("largest_size", Kind.COUNT, is_budgetable=False),
        Figure("device_memory", Kind.BYTES, is_budgetable=False),
        Figure("context", Kind.COUNT, of="file", is_budgetable=False),
        Figure("cache_per_token", Kind.BYTES, of="file", is_budgetable=False),
        Figure("cache_at_context", Kind.BYTES, of="file", is_budgetable=False),
        # Of rows of a dataset.
        Figure("size", Kind.BYTES, of="file", is_budgetable=False),
        Figure("warnings", Kind.COUNT, is_budgetable=False),
        Figure("cpu_seconds", Kind.SECONDS, is_budgetable=False),
    )
}
"""By their keys, which stay; a field of a card that is not here is a text."""
FIELD_KINDS: Final[Mapping[str, Kind]] = {key: figure.kind for key, figure in FIGURES.items()}
