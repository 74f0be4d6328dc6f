"""What every test shares: which tests run here, and how many cases a property test tries."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FULL = os.environ.get("IRSCOPE_TEST_FULL", "") not in ("", "0")

# The machine may be busy: a slow example is not a failure.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("default", _COMMON, max_examples=60, derandomize=True, database=None)
settings.register_profile("full", _COMMON, max_examples=10_000)
settings.load_profile("full" if FULL else "default")


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@functools.cache
def _has_gpu() -> bool:
    if not _has("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def _reason_to_skip(item: pytest.Item, full: bool) -> str | None:
    if item.get_closest_marker("full") and not full:
        return "long-running: set IRSCOPE_TEST_FULL=1 or use `make test-full`"
    if item.get_closest_marker("torch") and not _has("torch"):
        return "torch is not installed"
    if item.get_closest_marker("ort") and not _has("onnxruntime"):
        return "onnxruntime is not installed"
    if item.get_closest_marker("cuda") and not _has_gpu():
        return "needs torch and an NVIDIA GPU"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Build the sample models that tests and documentation use, once: before other processes are started that need them too."""
    samples = Path(__file__).parents[1] / "samples"
    if not hasattr(config, "workerinput") and not (samples / "models" / "control_flow.onnx").exists():
        subprocess.run([sys.executable, str(samples / "build_samples.py")], check=True, capture_output=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what was not asked for or cannot run here, each test with its reason."""
    full = FULL or re.search(r"\bfull\b", config.getoption("markexpr") or "") is not None
    for item in items:
        reason = _reason_to_skip(item, full)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
