"""What is not trusted has four boundaries, each in a module of its own, and nothing goes around them: docs/security.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = ("irscope", "frontends", "passes", "tui")
STARTS_PROCESSES = {
    "sys.executable",
    "subprocess",
    "multiprocessing",
    "os.fork",
    "os.forkpty",
    "os.system",
    "os.popen",
    "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.process",
    *(f"os.{kind}{end}" for kind in ("exec", "spawn") for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    "os.posix_spawn",
    "os.posix_spawnp",
}
"""What starts a process, or names the Python that would run in it."""


def modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            yield file.relative_to(root).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def names_used(tree: ast.Module) -> Iterator[str]:
    """Dotted names that are imported, and attributes of modules; what serves type hints alone is none."""
    guarded = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    hints = {id(inner) for node in guarded for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in hints:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def breaches(tree: ast.Module, forbidden: set[str]) -> set[str]:
    return {name for name in names_used(tree) if any(name == one or name.startswith(f"{one}.") for one in forbidden)}


def elsewhere(root: Path, forbidden: set[str], allowed: set[str]) -> dict[str, set[str]]:
    found = {name: breaches(tree, forbidden) for name, tree in modules(root) if name not in allowed}
    return {name: names for name, names in found.items() if names}


def test_one_module_starts_processes(root: Path) -> None:
    assert elsewhere(root, STARTS_PROCESSES, {"irscope/processes.py"}) == {}


@pytest.mark.parametrize(
    "line",
    ["import subprocess", "from os import fork", "from multiprocessing import get_context", "x = [sys.executable]", "os.fork()"],
)
def test_a_breach_is_seen(line: str) -> None:
    assert breaches(ast.parse(line), STARTS_PROCESSES)
