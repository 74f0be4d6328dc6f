"""The import contracts of pyproject.toml hold over an installed copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(copy: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a folder that holds an installed copy; the folder comes first on its path."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "--config", str(config), "--no-cache", "--no-logo"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_import_contracts_are_kept(installed_copy: Path, root: Path) -> None:
    pytest.importorskip("importlinter")
    done = lint_imports(installed_copy, root / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("irscope/ir/upward.py", "import irscope.passkit\n", "each layer imports only downward"),
        ("irscope/passes/sideways.py", "import irscope.frontends\n", "each layer imports only downward"),
        ("irscope/frontends/sideways.py", "import irscope.passes\n", "frontends import neither passes nor the UI"),
        ("irscope/ops/heavy.py", "def late() -> None:\n    import torch\n", "the core imports no framework"),
    ],
)
def test_a_breach_is_found(installed_copy: Path, root: Path, module: str, line: str, contract: str) -> None:
    pytest.importorskip("importlinter")
    extra = installed_copy / module
    extra.write_text(line, encoding="utf-8")
    try:
        done = lint_imports(installed_copy, root / "pyproject.toml")
    finally:
        extra.unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert contract in done.stdout
    assert "BROKEN" in done.stdout
