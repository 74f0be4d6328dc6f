"""What settings of torch.compile do, told from documents of runs."""

from __future__ import annotations

from typing import Any

from irscope.tools.simulate_compiler import CompilerTried, Planned, compiler_tried
from irscope.tools.simulate_settings import candidates
from irscope.tools.simulation import Options

MIB = 1 << 20


def run(budget: float, peak: int, extra: int | None, saved: int = 0, **more: Any) -> tuple[float, dict[str, Any]]:
    row = {"operator": "gelu", "line": "a.py:3", "count": 2, "flops": extra}
    partition = {"line": "a.py:1", "budget": budget, "how": "knapsack", "operators": 9, "flops": 1000, "extra_flops": extra, "unknown": []}
    counters = {key: {"peak": peak * MIB, "after": 0} for key in ("requested", "allocated", "active", "reserved")}
    return budget, {
        "outcome": "finished",
        "steps": [counters],
        "phases": [{"forward": 2, "backward": 9, "the step": 9}],
        "compiled": {
            "graphs": [{"part": "forward", "saved": [{"operator": "gelu", "line": "a.py:3", "bytes": saved, "why": "minimum cut"}]}],
            "partitions": [{**partition, "recomputed": [row]}],
            "calls": [1, 1],
            "buffers_peak": None,
            "orders": [],
        },
        "peak": {},
        **more,
    }


def test_the_lowest_peak_is_told_with_what_it_takes() -> None:
    found = compiler_tried([run(1.0, 100, 10), run(0.5, 80, 60), run(0.25, 80, 90), run(0.0, 120, 400)], 1.0, None)
    assert found.verdict == "budget 0.5 lowers the peak by 20.00 MiB (20%) for 5.0% more FLOPs"
    planned = CompilerTried(found.rows, 1.0, {0.5: Planned(50 * MIB, 40, 30, MIB), 1.0: Planned(70 * MIB, 10, 10, MIB)}, ())
    assert planned.verdict.endswith("; irscope's plan would need 3.0%, no plan less than 2.0% (modelled)")
    unseen = CompilerTried(found.rows, 1.0, {0.5: Planned(70 * MIB, 10, 10, MIB), 1.0: Planned(70 * MIB, 10, 10, MIB)}, ())
    assert unseen.verdict == found.verdict, "as the buffers are modelled the budget saves nothing: a plan is no answer to it"


def test_rows_are_shown_as_they_ran() -> None:
    """Peaks that do not fall with the budget, equal ones, and operators without a rule: unknown is not zero."""
    found = compiler_tried([run(1.0, 100, 10, 7), run(0.5, 80, None), run(0.0, 120, 400)], 1.0, None)
    [table, recomputed] = found.tables()
    rows = [(row["budget"], row["requested"], row["saved"], row["recomputed"]) for row in table.to_dicts()]
    assert rows == [("0", 120 * MIB, 0, 400), ("0.5", 80 * MIB, 0, None), ("1", 100 * MIB, 7, 10)]
    assert [list(row.values()) for row in recomputed.to_dicts()] == [["gelu", "a.py:3", 2, 2, 2]]
    assert any("do not fall with the budget" in note for note in found.notes)
    assert found.verdict == "budget 0.5 lowers the peak by 20.00 MiB (20%)"
    level = compiler_tried([run(1.0, 100, 10), run(0.5, 100, 60)], 1.0, None)
    assert level.verdict == "no activation memory budget lowers the peak, which is in the backward"
    assert not any("do not fall" in note for note in level.notes)


def test_what_cannot_be_tried_is_said() -> None:
    options, nothing = Options(), {"outcome": "finished", "uses": {}, "peak": {}, "steps": []}
    assert candidates(nothing, options, compiler_alone=True) == ([], ["torch.compile: the program compiles nothing"])
    inference = {
        **nothing,
        "compiled": {"partitions": [], "graphs": [1]},
        "uses": {"compile": {"cudagraphs": False, "donated_buffer": True}},
    }
    found, left = candidates(inference, options, compiler_alone=True)
    assert [one.change for one in found] == ["compile.cudagraphs=True"]
    assert left == [
        "activation_memory_budget, donated_buffer: no graph that was compiled has a backward",
        "reorder_for_peak_memory: this version of torch has no such setting",
    ]
    _, training = run(1.0, 1, 1)
    found, left = candidates({**training, "uses": {"compile": {}}}, options, compiler_alone=True)
    assert not found and left[0] == "activation_memory_budget: this version of torch has no such setting"
