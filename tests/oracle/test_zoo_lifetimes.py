"""Peaks of models from torchvision and transformers against real runs: how many are exact to the byte, and how far the others are off."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.tools.oracle.zoo import TORCHVISION, TRANSFORMERS, Model, Row, compare  # noqa: E402
from tests.tools.zoo.models import catalogue  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]


@pytest.mark.parametrize(
    ("form", "model", "exact", "worst"),
    [("concrete", "eager", 0.95, 0.01), ("concrete", "ssa", 0.95, 0.02), ("traced", "eager", 0.85, 0.2)],
)
def test_peaks(form: str, model: Model, exact: float, worst: float) -> None:
    known = catalogue()
    names = [name for name in (*TORCHVISION, *TRANSFORMERS) if name in known]
    if len(names) < 40:
        pytest.skip("torchvision and transformers are not installed")
    rows: list[Row] = [row for name in names if not (row := compare(name, form, model)).refused.startswith("refused")]
    assert not [row.line() for row in rows if row.refused]
    off = {row.name: f"{row.error:+.2%}" for row in rows if row.error}
    print(f"{form} {model}: {len(rows) - len(off)} of {len(rows)} exact; {off}")
    assert len(off) <= (1 - exact) * len(rows), off
    assert max(abs(row.error) for row in rows) <= worst, off
