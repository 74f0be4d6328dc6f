"""Random chains of shape arithmetic: nothing is known otherwise than ONNX Runtime computes it, and no rule raises."""

from __future__ import annotations

import pytest

from tests.conftest import FULL

pytest.importorskip("onnxruntime")

from tests.tools.conformance.shape_arithmetic import wrong


@pytest.mark.parametrize("tens", range(300 if FULL else 8))
def test_graphs(tens: int) -> None:
    assert [line for seed in range(10 * tens, 10 * tens + 10) for line in wrong(seed)] == []
