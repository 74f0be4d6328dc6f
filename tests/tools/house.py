"""How the code is laid out, in figures: sizes, single importers, cycles, operator names outside their place, names that say too little.

python -m tests.tools.house             # the table of docs/architecture.md, without its ceilings
python -m tests.tools.house --list      # and what is behind each figure
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from irscope.ops.registry import default_registry

ROOT = Path(__file__).parents[2]
FOLDERS = {"irscope": "irscope", "frontends": "irscope.frontends", "passes": "irscope.passes", "tui": "irscope.tui"}
OPERATORS_BELONG = ("irscope.ops", "irscope.frontends")
SHARED_BY = 3
"""From how many unrelated functions on a name of a function tells a search nothing."""


@dataclass
class Module:
    """One file of the product with what it imports."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    top: set[str] = field(default_factory=set)
    """Modules imported when it is imported."""
    late: set[str] = field(default_factory=set)
    """Modules imported inside functions, or for types alone."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def product() -> dict[str, Module]:
    """All modules of the product by import name."""
    found: dict[str, Module] = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
    for module in found.values():
        _find_imports(module, found)
    return found


def _find_imports(module: Module, modules: Mapping[str, Module]) -> None:
    def visit(node: ast.AST, late: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                (module.late if late else module.top).update(imported(child, modules))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                visit(child, True)
            else:
                visit(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(module.tree, False)
    module.late -= module.top
    for names in (module.top, module.late):
        names.discard(module.name)


def imported(node: ast.Import | ast.ImportFrom, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of the product that an import names; a name of a package that is not a module is the package's own."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif node.module:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if full in modules:
                yield full
            elif node.module in modules:
                yield node.module


def single_importers() -> dict[str, str]:
    """Modules that exactly one other module imports, and that one. Packages do not count: an `__init__` is not a room of its own."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in product().values():
        for name in module.top | module.late:
            importers[name].add(module.name)
    return {name: next(iter(found)) for name, found in sorted(importers.items()) if len(found) == 1 and not product()[name].is_package}


def cycles(late: bool) -> list[list[str]]:
    """Groups of modules each of which imports all others of its group, by some way; imports inside functions count where `late`."""
    edges = {module.name: module.top | (module.late if late else set()) for module in product().values()}
    reach: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []
    for root in edges:
        if root in reach:
            continue
        todo: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(edges[root])))]
        reach[root] = low[root] = len(reach)
        open_.append(root)
        while todo:
            name, rest = todo[-1]
            for other in rest:
                if other not in reach:
                    reach[other] = low[other] = len(reach)
                    open_.append(other)
                    todo.append((other, iter(sorted(edges[other]))))
                    break
                if other in open_:
                    low[name] = min(low[name], reach[other])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[name])
                if low[name] == reach[name]:
                    at = open_.index(name)
                    group = open_[at:]
                    del open_[at:]
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found)


def operator_names() -> dict[str, list[str]]:
    """Names of operators in string constants of modules that should ask an operator's record, by module."""
    known = {spec.name for spec in default_registry()}
    found: dict[str, list[str]] = {}
    for module in product().values():
        if module.name.startswith(OPERATORS_BELONG):
            continue
        texts = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        if names := [text for text in texts if text in known]:
            found[module.name] = names
    return found


def format_branches() -> list[str]:
    """Places in passes that ask which format a program was read from."""
    places = []
    for module in product().values():
        if module.name.startswith("irscope.passes"):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Attribute) and node.attr == "format" and "program" in ast.unparse(node.value):
                    places.append(f"{module.name}:{node.lineno}")
    return places


def shared_names() -> dict[str, list[str]]:
    """Names of functions in three or more packages; twins in one package share a name as they share a protocol."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in product().values():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].append(module.name)
    return {name: places for name, places in sorted(found.items()) if len(_unrelated(places)) >= SHARED_BY}


def _unrelated(places: list[str]) -> set[str]:
    """The packages that functions of one name come from: twins in one package often are one protocol."""
    return {place.rpartition(".")[0] for place in places}


def only_from_tests() -> list[str]:
    """Functions and classes at the top of a module whose name no other line of the product, its documents or its samples has."""
    words: dict[str, int] = defaultdict(int)
    samples = [path for path in (ROOT / "samples").rglob("*.py") if "models" not in path.parts]
    for path in [*(module.path for module in product().values()), *samples]:
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8")):
            words[word] += 1
    tested = {word for path in (ROOT / "tests").rglob("*.py") for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    dead = []
    for module in product().values():
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.decorator_list:
                continue
            if words[node.name] == 1 and not node.name.startswith("__"):  # Python itself calls those
                dead.append(f"{module.name}.{node.name}{'' if node.name in tested else ' (nor from tests)'}")
    return dead


def test_lines() -> tuple[int, int]:
    """Lines of the tests, and lines of the scripts in `tests/tools` and of those that tests read from `tests/data`."""
    lines = {True: 0, False: 0}
    for path in (ROOT / "tests").rglob("*.py"):
        parts = path.relative_to(ROOT / "tests").parts
        is_script = parts[0] in ("tools", "data")
        lines[is_script] += len(path.read_text(encoding="utf-8").splitlines())
    return lines[False], lines[True]


def figures() -> list[tuple[str, int, str, list[str]]]:
    """What the table shows: the figure, its value, its aim, and what is behind it."""
    modules = list(product().values())
    single, top, late, operators, shared = single_importers(), cycles(False), cycles(True), operator_names(), shared_names()
    tests, scripts = test_lines()
    return [
        ("lines of the product", sum(module.lines for module in modules), "125,000", []),
        ("files of the product", len(modules), "430", []),
        ("modules with exactly one importer", len(single), "50", [f"{name} <- {by}" for name, by in single.items()]),
        ("import cycles at the top level", len(top), "0", [", ".join(group) for group in top]),
        ("import cycles with lazy imports", len(late), "0", [f"{len(group)}: {', '.join(group)}" for group in late]),
        (
            "operator names outside `ops/` and `frontends/`",
            sum(map(len, operators.values())),
            "60",
            [f"{name}: {', '.join(names)}" for name, names in operators.items()],
        ),
        ("`program.format` in passes", len(format_branches()), "0", format_branches()),
        (
            "names of functions in three or more packages",
            len(shared),
            "60",
            [f"{name}: {', '.join(places)}" for name, places in shared.items()],
        ),
        ("functions and classes that only tests name", len(only_from_tests()), "0", only_from_tests()),
        ("lines of tests", tests, "50,000", []),
        ("lines of scripts beside the tests", scripts, "", []),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of how the code is laid out.")
    parser.add_argument("--list", action="store_true", help="what is behind each figure")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    arguments = parser.parse_args()
    found = figures()
    if arguments.json:
        print(json.dumps({name: value for name, value, _, _ in found}))
        return
    print("| figure | now | aim, at most |\n|---|---|---|")
    for name, value, aim, _ in found:
        print(f"| {name} | {value:,} | {aim} |")
    if arguments.list:
        for name, _, _, behind in found:
            if behind:
                print(f"\n{name}:")
                for line in behind:
                    print(f"  {line}")


if __name__ == "__main__":
    main()
