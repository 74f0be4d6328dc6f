"""What the hygiene tests look at: the tree, pyproject.toml, and a wheel built from both."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def pyproject(root: Path) -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def package_dirs(root: Path, pyproject: dict[str, Any]) -> dict[str, Path]:
    """Every package of the tree by its import name: what pyproject.toml maps, and the folders with Python files below."""
    mapped: dict[str, str] = pyproject["tool"]["setuptools"]["package-dir"]
    found: dict[str, Path] = {}
    for name, folder in mapped.items():
        top = root / folder
        for path in sorted({file.parent for file in top.rglob("*.py")}):
            found[".".join((name, *path.relative_to(top).parts))] = path
    return found


@pytest.fixture(scope="session")
def wheel(root: Path, pyproject: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, so that neither leftovers of an earlier build nor the network play a part."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path_factory.mktemp("source")
    for folder in pyproject["tool"]["setuptools"]["package-dir"].values():
        shutil.copytree(root / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    files = pyproject["tool"]["setuptools"]["data-files"].values()
    for name in ("pyproject.toml", "README.md", "LICENSE", *(file for several in files for file in several)):
        if (root / name).is_file():
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(root / name, source / name)
    built = tmp_path_factory.mktemp("wheel")
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(built)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed_copy(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked: every package under its import name."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
