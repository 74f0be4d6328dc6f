"""What is ready for an hour on a physical GPU: stages that fail or take too long, fits with a third kept out, the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_hour
from benchmarks.gpu_hour import bring, configurations, fitted, operand_bytes, table, workspace_bytes


def test_a_workspace_is_what_is_given_back_before_the_call_ends() -> None:
    assert workspace_bytes([100, 512, -512]) == 512
    assert workspace_bytes([512, 100, -512]) == 512
    assert workspace_bytes([100]) == workspace_bytes([]) == 0


def test_every_configuration_has_what_its_bytes_follow_from() -> None:
    listed = list(configurations())
    assert len(listed) > 150 and all(operand_bytes(entry) > 0 for entry in listed)
    assert len({json.dumps(entry) for entry in listed}) == len(listed)
    assert operand_bytes({"dtype": "bfloat16", "x": [2, 3], "w": [4]}) == 20


def test_rules_are_fitted_with_every_third_kept_out() -> None:
    """The third is twice as large as the rule says: that is in its error alone."""
    rows = [{"op": "conv2d", "pass": "forward", "dtype": "float32", "x": [256], "runs": [[], [2048, -2048]]} for _ in range(6)]
    rows[2] = rows[5] = {**rows[0], "runs": [[], [4096, -4096]]}
    ((op, dtype, factor, used, kept),) = fitted([*rows, {"op": "conv2d", "error": "no"}])
    assert (op, dtype, factor, used, kept) == ("conv2d, forward", "float32", 2.0, 0.0, 0.5)


@pytest.mark.slow
def test_stages_that_fail_leave_what_they_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fails after a result, one takes too long."""
    told = "print('RESULT ' + json.dumps({'a': 1}), flush=True)"
    programs = {
        "machine": f"import json; {told}; raise RuntimeError('the card is gone')",
        "workspaces": f"import json, time; {told}; time.sleep(60)",
    }
    real = gpu_hour.subprocess.Popen

    def started(line: list[str], **kwargs: object) -> object:
        return real([line[0], "-c", programs[line[-2]]], **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(gpu_hour.subprocess, "Popen", started)
    monkeypatch.setattr(gpu_hour, "STAGES", {"machine": 60, "workspaces": 3})
    said = {one["stage"]: one["ended"] for one in bring(tmp_path, 600)}
    assert "ended with 1" in said["machine"] and "the card is gone" in said["machine"]
    assert json.loads((tmp_path / "machine.json").read_text()) == {"a": 1}
    assert "stopped after 3 s" in said["workspaces"] and (tmp_path / "workspaces.jsonl").read_text() == '{"a": 1}\n'
    assert len((tmp_path / "stages.jsonl").read_text().splitlines()) == len(said)


def test_the_table_has_predicted_stand_in_and_silicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("silicon", "stand-in"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "step.jsonl").write_text("")
    row = {"op": "eigh", "pass": "forward", "dtype": "float32", "x": [256], "runs": [[1024, -1024]]}
    (tmp_path / "silicon" / "workspaces.jsonl").write_text(json.dumps(row) + "\n")
    measured = {"silicon": 110, "stand-in": 100}
    monkeypatch.setattr(gpu_hour, "compared", lambda path, model: [("peak (warm)", "step", 99, measured[path.parent.name])])
    text = "\n".join(table(tmp_path / "silicon", tmp_path / "stand-in"))
    assert "| peak (warm) | 99 | 100 | 110 | -10.00% |" in text
    assert "| eigh, forward | float32 | 1 | 0.0% | ? |" in text
