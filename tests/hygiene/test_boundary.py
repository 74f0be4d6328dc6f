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
    *("os.posix_spawn", "os.posix_spawnp", "os.startfile", "pty", "webbrowser"),
    *("asyncio.subprocess", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
}
"""What starts a process, or names the Python that would run in it."""


ARCHIVES = {"tarfile", "bz2", "lzma", "gzip", "shutil.unpack_archive", "zipfile.ZipFile", "zipfile.Path"}
"""What takes archives apart."""
READS_ARCHIVES = {"irscope/tools/audit/archives.py", "frontends/exported/writer.py"}
"""The reader that has a budget, and what makes an archive."""
MAKES_FOLDERS = {
    "tempfile.TemporaryDirectory",
    "tempfile.mkdtemp",
    "tempfile.mkstemp",
    "tempfile.NamedTemporaryFile",
    "tempfile.TemporaryFile",
}
"""Functions that make temporary files which stay when the process is killed."""
IDENTIFIES = "irscope/tools/audit/sources.py"
"""The module that says what is the same model."""
MOVES_FILES = {"os.replace", "os.rename", "os.renames", "os.makedirs", "shutil.move", "shutil.copyfile", "shutil.copy", "shutil.copytree"}
WRITES_FILES = {
    "irscope/files.py",
    "irscope/measure/record/process.py",  # complaints of a child, in a temporary folder
    "irscope/measure/record/sink.py",  # how far a child is, in the same folder
    "irscope/tools/audit/archives.py",  # into the staging folder, counted
    "frontends/exported/writer.py",  # into a folder of `staged`
    "frontends/onnx/writer.py",  # into a folder of `staged`
    "frontends/zoo/load.py",  # into a folder of `staged`
    "frontends/generation/program.py",  # weights without bytes, in a temporary folder
    "frontends/simulation/captured.py",  # a pipe
    "frontends/simulation/overlay.py",  # what a simulated program writes, in a folder that vanishes
}


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
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            yield f"{ast.unparse(node.value)}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (given.value for given in node.args if isinstance(given, ast.Constant))


def breaches(tree: ast.Module, forbidden: set[str]) -> set[str]:
    return {name for name in names_used(tree) if any(name == one or name.startswith(f"{one}.") for one in forbidden)}


def elsewhere(root: Path, forbidden: set[str], allowed: set[str]) -> dict[str, set[str]]:
    found = {name: breaches(tree, forbidden) for name, tree in modules(root) if name not in allowed}
    return {name: names for name, names in found.items() if names}


@pytest.mark.slow
def test_one_module_starts_processes(root: Path) -> None:
    assert elsewhere(root, STARTS_PROCESSES, {"irscope/processes.py"}) == {}


@pytest.mark.parametrize(
    "line",
    ["import subprocess", "from os import fork", "from multiprocessing import get_context", "x = [sys.executable]", "import_module('pty')"],
)
def test_a_breach_is_seen(line: str) -> None:
    assert breaches(ast.parse(line), STARTS_PROCESSES)


@pytest.mark.slow
def test_archives_are_taken_apart_by_readers_with_a_budget(root: Path) -> None:
    assert elsewhere(root, ARCHIVES, READS_ARCHIVES) == {}
    assert elsewhere(root, {"fsspec", "urllib.request", "http", "socket"}, {IDENTIFIES, "tui/browser.py"}) == {}, "what fetches, and serves"


@pytest.mark.slow
def test_temporary_folders_are_those_that_go_when_their_process_was_killed(root: Path) -> None:
    assert elsewhere(root, MAKES_FOLDERS, {"irscope/files.py", "frontends/simulation/overlay.py"}) == {}


def taken_for_identity(tree: ast.Module) -> set[str]:
    """Return what compares, takes apart or hashes the text that a model is shown by, or a file's content."""
    found = breaches(tree, {"hashlib"})
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            parts = [node.func.value] if isinstance(node.func, ast.Attribute) else node.args * (ast.unparse(node.func) != "well_formed")
        elif isinstance(node, ast.Subscript | ast.Dict):
            parts = [node.slice] if isinstance(node, ast.Subscript) else [key for key in node.keys if key is not None]
        if any(isinstance(part, ast.Attribute) and part.attr == "uri" for part in parts):
            found.add(ast.unparse(node))
    return found


def test_models_are_told_apart_by_typed_places_and_measured_digests(root: Path) -> None:
    audit = {name: tree for name, tree in modules(root) if name.startswith("irscope/tools/audit/") and name != IDENTIFIES}
    assert {name: taken for name, tree in audit.items() if (taken := taken_for_identity(tree))} == {}


@pytest.mark.parametrize(
    "line", ["a.uri == b.uri", "key(item.uri)", "seen[item.uri]", "{item.uri: 1}", "item.uri.partition('!')", "import hashlib"]
)
def test_a_text_that_is_taken_for_an_identity_is_seen(line: str) -> None:
    assert taken_for_identity(ast.parse(line))


def written_around(tree: ast.Module) -> set[str]:
    """Return the calls of a module that open files for writing."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(node.func, "value", None)
        if name == "mkdir" and any(given.arg == "parents" for given in node.keywords):
            found.add(ast.unparse(node))
        if name in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            found.add(ast.unparse(node.func))
        if name == "open" and ast.unparse(owner or node.func) not in ("os", "self"):
            texts = {value.value for value in (*node.args, *(given.value for given in node.keywords)) if isinstance(value, ast.Constant)}
            if any(isinstance(text, str) and set(text) <= set("rwxabt+") and set(text) & set("wxa+") for text in texts):
                found.add(ast.unparse(node))
    return found


@pytest.mark.slow
def test_files_are_written_by_what_replaces_them_as_a_whole(root: Path) -> None:
    found = {name: written_around(tree) | breaches(tree, MOVES_FILES) for name, tree in modules(root) if name not in WRITES_FILES}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize("line", ["path.write_text('x')", "open(name, 'w')", "path.open('wb')", "open(name, mode='a')"])
def test_a_writer_is_seen(line: str) -> None:
    assert written_around(ast.parse(line))
