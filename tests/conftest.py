"""What every test shares: which tests run here, how many cases a property test tries, and an environment that is the same everywhere."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

ASKED = ("IRSCOPE_TEST_FULL", "IRSCOPE_UPDATE_DOCS", "IRSCOPE_UPDATE_SNAPSHOTS", "IRSCOPE_CACHE")
"""Variables by which whoever runs the tests asks for something. All others of irscope would change what is tested."""
FIXED = {"TERM": "xterm-256color", "TZ": "UTC", "LC_ALL": "C.UTF-8", "IRSCOPE_NO_CACHE": "1", "OMP_NUM_THREADS": "1"}
UNSET = ("PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
FULL = os.environ.get("IRSCOPE_TEST_FULL", "") not in ("", "0")

# The machine may be busy: a slow example is not a failure.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("default", _COMMON, max_examples=40, derandomize=True, database=None)
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


def _fix_environment(config: pytest.Config) -> None:
    """Take the terminal, the time zone, the locale and the user's own files out of the tests and of the programs that they start."""
    for name in [name for name in os.environ if name in UNSET or (name.startswith("IRSCOPE_") and name not in ASKED)]:
        del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="irscope-home-")
    config.add_cleanup(home.cleanup)
    os.environ.update(FIXED, IRSCOPE_HOME=home.name)
    sys.dont_write_bytecode = False
    # A shell starts what runs in its background with Ctrl-C ignored, and so would be all programs that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(time, "tzset"):
        time.tzset()


def pytest_configure(config: pytest.Config) -> None:
    """Fix the environment. Build the sample models that tests and documentation use, once: before other processes are started that
    need them too."""
    _fix_environment(config)
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


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports torch, itself or through helpers, where torch is not installed."""
    report = yield
    if report.failed and "No module named 'torch'" in str(report.longrepr) and not _has("torch"):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 1, "Skipped: torch is not installed")
    return report


_frozen_modules = 0
_MANY_MODULES = 100
"""So many more since the last time are a package such as torch."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take what stays until the end, all tests and whatever was imported, out of the garbage collector's sight. Else each of its full
    passes, which some commands ask for after every model, looks at millions of objects."""
    global _frozen_modules
    if len(sys.modules) >= _frozen_modules + _MANY_MODULES:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


@pytest.fixture
def forked_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of `irscope record` begin with torch imported. What is alive before a step is a few bytes more there."""
    from irscope import processes
    from tests.forked import run_module

    forked = SimpleNamespace(run=run_module, python=processes.python, Late=processes.Late)
    monkeypatch.setattr("irscope.measure.record.process.processes", forked)


def pytest_sessionfinish() -> None:
    """pytest ends with full passes of the garbage collector, which would look once more at all that was imported."""
    gc.freeze()
