"""Files of 3.2 GB: as much memory as for a small one, and right numbers. For times see `benchmarks/torch_big.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import torch_big
from benchmarks.torch_big import BIG, LAYERS, LIMIT_MB, SMALL


@pytest.mark.parametrize("form", torch_big.FORMATS)
def test_large_files_take_no_more_memory_than_small_ones(form: str, tmp_path: Path) -> None:
    reason = torch_big.why_not(tmp_path)
    if reason:
        pytest.skip(reason)
    small, big = torch_big.twins(form, tmp_path)
    # Of a file of weights shapes and liveness are unknown, which is exit code 5.
    expected = 5 if form in ("state dict", "safetensors") else 0
    assert (small["code"], big["code"]) == (expected, expected)
    for found, size in ((small, SMALL), (big, BIG)):
        assert found["report"]["model"]["parameter_bytes"] == 4 * LAYERS * size * size
    assert big["report"]["model"]["sha256"] == "", "hashing 3.2 GB would take longer than everything else"
    assert big["mb"] - small["mb"] < LIMIT_MB


@pytest.mark.torch
@pytest.mark.parametrize("form", ["TorchScript", "state dict"])
def test_the_files_are_what_torch_reads(form: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    torch_big.FORMATS[form](path, SMALL)
    if form == "TorchScript":
        with pytest.warns(DeprecationWarning, match=r"torch\.jit\.load"):
            model = torch.jit.load(str(path))
        assert model(torch.zeros(1, SMALL)).shape == (1, SMALL)
    else:
        assert len(torch.load(path)) == LAYERS
