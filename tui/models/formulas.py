"""The formulas behind the cost of a node, out of what the flops pass explains about it."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.report.report import Report
from irscope.report.values import bare


def formulas(report: Report) -> Mapping[str, str]:
    """By measure the formula, then what its letters stand for; empty where there is none."""
    found: dict[str, str] = {}
    sizes: dict[str, str] = {}
    for table in report.tables:
        keys = [column.key for column in table.columns]
        if "formula" in keys and "number" in keys:
            for measure, formula in zip(table.cells("number"), table.cells("formula"), strict=True):
                found.setdefault(str(bare(measure)), str(bare(formula) or ""))
        elif keys[:2] == ["symbol", "stands_for"]:
            for symbol, size in zip(table.cells("symbol"), table.cells("stands_for"), strict=True):
                sizes.setdefault(str(bare(symbol)), str(bare(size)))
    kept = {measure: found[measure] for measure in ("flops", "read", "written") if found.get(measure)}
    return {**kept, **sizes} if kept else {}
