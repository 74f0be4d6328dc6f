"""The list of packages in pyproject.toml, the tree and the built wheel hold the same files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import irscope


def test_listed_packages_equal_the_tree(pyproject: dict[str, Any], package_dirs: dict[str, Path]) -> None:
    listed: list[str] = pyproject["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(package_dirs), "tool.setuptools.packages in pyproject.toml must list every package"


def test_every_package_has_an_init_file(package_dirs: dict[str, Path]) -> None:
    assert [name for name, folder in package_dirs.items() if not (folder / "__init__.py").is_file()] == []


def test_wheel_holds_every_module_and_data_file(wheel: Path, root: Path, pyproject: dict[str, Any]) -> None:
    mapped: dict[str, str] = pyproject["tool"]["setuptools"]["package-dir"]
    wanted: set[str] = set()
    for name, folder in mapped.items():
        for file in (root / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                wanted.add(f"{name.replace('.', '/')}/{file.relative_to(root / folder).as_posix()}")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert sorted(wanted - packed) == [], "in the tree, but not in the wheel"
    assert sorted(packed - wanted) == [], "in the wheel, but not in the tree"


def test_wheel_carries_version_licence_manual_and_console_script(wheel: Path, root: Path) -> None:
    info = f"irscope-{irscope.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        manual = archive.read(f"irscope-{irscope.__version__}.data/data/share/man/man1/irscope.1").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert f"Version: {irscope.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "irscope = irscope.__main__:main" in scripts
    assert manual == (root / "docs" / "irscope.1").read_text(encoding="utf-8")
    assert licence == (root / "LICENSE").read_text(encoding="utf-8")


def test_no_extra_asks_for_both_onnxruntimes(pyproject: dict[str, Any]) -> None:
    extras: dict[str, list[str]] = pyproject["project"]["optional-dependencies"]
    for name, requirements in extras.items():
        runtimes = [text for text in requirements if text.startswith("onnxruntime")]
        assert len(runtimes) <= 1, f"[{name}] asks for {runtimes}: they overwrite one another's files"
