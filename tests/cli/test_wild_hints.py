"""What is printed for what is unknown settles it when it is typed, in models as people install them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.cli.test_hints import Said, run
from tests.cli.wild_models import MODELS, custom_operator, detector_nms, detector_nonzero, unknown_operator

_ROUNDS = 4
_NEEDS_A_RECORD = (custom_operator, unknown_operator)
"""What no number settles: the line tells how an operator gets a record."""


def _tables(said: Said, title: str) -> list[dict[str, object]]:
    tables = []
    for table in json.loads(said.out)["reports"][0]["tables"]:
        if table["title"] == title:
            keys = [column["key"] for column in table["columns"]]
            tables += [dict(zip(keys, row, strict=True)) for row in table["rows"]]
    return tables


def _causes(said: Said) -> dict[tuple[object, object], str]:
    """What is to be typed for each first cause, also of branches that are not decided."""
    rows = [*_tables(said, "unknown"), *(row for row in _tables(said, "branches") if row["taken"] == "?")]
    return {(row["node"], row.get("reason", row.get("why"))): str(row["fix"]) for row in rows}


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_every_fix_settles_its_cause(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make(), path)
    command = ["run", "--format", "json", "--passes", "shapes", str(path)]
    said = run(command)
    assert said.code == 0, said.err
    if make in _NEEDS_A_RECORD:
        assert ["add-an-operator" in str(row["reason"]) for row in _tables(said, "unknown")] == [True]
        return
    for _ in range(_ROUNDS):
        causes = _causes(said)
        if not causes:
            break
        assert len(set(causes.values())) <= 2, causes
        for cause, fix in causes.items():
            assert fix, cause
            after = run([*command, *shlex.split(fix)])
            assert "error IRS" not in after.err, (fix, after.err)
            assert cause not in _causes(after), fix
        # One after another, as somebody types them who reads the answer each time.
        command += shlex.split(next(iter(causes.values())))
        said = run(command)
    assert not _causes(said), command
    assert said.unknown == 0


@pytest.mark.parametrize(
    ("make", "most", "shown"),
    # Inputs, weights and constants, with what is alive while Slice cuts (15 rows are kept at most) and while Transpose turns 1,024 places.
    [
        (detector_nms, 1400 + 32 + 15 * (3 + 1) * 8, "1.87 KiB"),
        (detector_nonzero, 3072 + 436 + 4096 + 2 * 4 * 1024 * 8, "71.43 KiB"),
    ],
    ids=["nms", "nonzero"],
)
def test_card_of_what_elements_decide_has_a_bound_and_its_verdict(
    make: Callable[[], onnx.ModelProto], most: int, shown: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make(), path)
    card = json.loads(run(["run", "--format", "json", "--device", "h200", str(path)]).out)["card"]
    assert (card["fields"]["fits"], card["provenance"]["fits"]) == (True, "modelled")
    assert (card["fields"]["peak"], card["intervals"]["peak"][1]) == (None, most)
    said = run(["run", "--device", "h200", str(path)]).out
    assert f"fits as modelled: at most {shown} of tensors" in said
