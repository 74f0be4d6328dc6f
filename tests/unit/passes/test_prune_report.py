"""Rows and columns of zeros are put in by hand, and what sparse matrices keep is found by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.passes.weights.prune_report import PruneReport
from irscope.passkit.manager import Manager
from irscope.report.values import Provenance
from irscope.weights.result import PRUNED
from tests.unit.passes.pruned_models import built, conv_bn_relu, mlp, normal, program


def dead(manager: Manager) -> dict[tuple[str, str], tuple[int, int]]:
    """By weight and axis: slices, and how many of them are zeros."""
    return {(str(one.weight.name), one.axis): (one.slices, one.dead) for one in manager.get(PruneReport()).dead}


def test_rows_and_columns_of_zeros_are_counted() -> None:
    values = {"w": normal(16, 3, 3, 3, zero={0: [1, 4, 5, 9]}), "v": normal(32, 16, 3, 3, zero={0: [0, 31], 1: [7]})}
    manager = built(*conv_bn_relu(16, 32), values)
    assert dead(manager) == {("w", "rows"): (16, 4), ("v", "rows"): (32, 2), ("v", "columns"): (16, 1)}
    report = manager.run_one(PruneReport()).report()
    assert report.summary["dead_count"] == 7 and not report.partial
    assert [table.title for table in report.tables] == ["dead slices", "sparsity"]


def test_weak_channels_are_the_shortest_for_their_matrix() -> None:
    w, v = normal(16, 3, 3, 3, zero={0: [1]}), 100 * normal(32, 16, 3, 3)
    v[7] *= 0.01
    manager = built(*conv_bn_relu(16, 32), {"w": w, "v": v})
    assert not manager.get(PruneReport()).weak
    lengths = {name: np.linalg.norm(one.reshape(len(one), -1).astype(np.float64), axis=1) for name, one in (("w", w), ("v", v))}
    shares = {name: found / np.sqrt((found**2).mean()) for name, found in lengths.items()}
    ranked = sorted((share, name, at) for name, found in shares.items() for at, share in enumerate(found))[:4]
    assert [(name, at) for _, name, at in ranked[:2]] == [("w", 1), ("v", 7)]
    table = manager.run_one(PruneReport(weak=4)).report().tables[-1].to_dicts()
    assert [(one["name"], one["channel"]) for one in table] == [(name, at) for _, name, at in ranked]
    assert [one["share"] for one in table] == pytest.approx([share for share, _, _ in ranked])
    assert table[1]["length"] == pytest.approx(lengths["v"][7])


def test_a_weight_that_is_used_twice_is_counted_once() -> None:
    inputs = "input %x: f32[2,8]\nparam %w: f32[8,8]"
    body = "%a: f32[2,8] = nn.linear(%x, %w, _)\n%y: f32[2,8] = nn.linear(%a, %w, _)\nreturn %y"
    assert dead(built(body, inputs, {"w": normal(8, 8, zero={0: [1]})})) == {("w", "rows"): (8, 1)}


def test_a_checkpoint_tells_what_is_dead() -> None:
    values = {"w": normal(8, 8, zero={0: [1, 2], 1: [5]}), "v": np.zeros(4)}
    found = dead(built("return", "param %w: f32[8,8]\nparam %v: f32[4]", values))
    assert found == {("w", "rows"): (8, 2), ("w", "columns"): (8, 1)}


def test_without_values_nothing_is_dead_and_the_report_is_partial() -> None:
    manager = program(*mlp(16))
    report = manager.run_one(PruneReport()).report()
    result = manager.get(PruneReport())
    assert not result.dead and len(result.unread) == 3 and report.partial
    assert {diagnostic.code for diagnostic in report.diagnostics} == {"IRS440"}


def test_a_weight_without_values_keeps_only_its_own_zeros_unknown() -> None:
    manager = built(*conv_bn_relu(16, 32), {"v": normal(32, 16, 3, 3, zero={0: [0]})})
    graph = manager.program.graph
    missing = next(weight for weight in graph.weights if weight.name == "w")
    del graph.data[missing]
    assert dead(manager) == {("v", "rows"): (32, 1)} and list(manager.get(PruneReport()).unread) == [missing]


def test_what_sparse_matrices_keep_is_that_of_sorted_magnitudes() -> None:
    """Statistics count an element of 32 bits as the middle of a bin: within a thousandth of sorting."""
    weight = normal(64, 48)
    weight[:, 0::4] = weight[:, 2::4] = 0
    manager = built("%y: f32[2,64] = nn.linear(%x, %w, _)\nreturn %y", "input %x: f32[2,48]\nparam %w: f32[64,48]", {"w": weight})
    [thinned] = manager.get(PruneReport()).thinned
    squares = np.sort(weight.astype(np.float64).reshape(-1) ** 2)
    wanted = [squares[int(share * len(squares)) :].sum() / squares.sum() for share in PRUNED]
    assert [one.value for one in thinned.kept] == pytest.approx(wanted, rel=1e-3)
    assert {one.provenance for one in thinned.kept} == {Provenance.MODELLED}
    assert (thinned.ready, thinned.sparse_bytes) == (1.0, 64 * 48 // 2 * 34 // 8)
    kept = manager.run_one(PruneReport()).report().summary["energy_kept"]
    assert [cell.value for cell in kept.values()] == pytest.approx(wanted, rel=1e-3)  # type: ignore[attr-defined]


def test_groups_of_four_are_along_what_is_summed_over() -> None:
    manager = built("%y: f32[2,64] = math.matmul(%x, %w)\nreturn %y", "input %x: f32[2,48]\nparam %w: f32[48,64]")
    [thinned] = manager.get(PruneReport()).thinned
    assert thinned.ready is None and thinned.sparse_bytes is None and "first axis" in thinned.why_no_groups
