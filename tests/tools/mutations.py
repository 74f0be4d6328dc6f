"""How many small faults the tests notice: `python -m tests.tools.mutations [--seed 1] [--count 60] [--results FILE] [--again FILE]`.

A mutant is the product with one expression changed: a comparison, an operation, `and` or `or`, a condition, a constant or what a function
returns. Places are drawn by lines of code over all four folders. Each mutant runs, in a copy of the tree, the test files that concern its
module, the closest first, until one test fails (killed) or none does (survived). Results are kept after every mutant, so that a run goes on
where it was stopped; the killing tests run once more without a mutant at the end, and mutants killed by one that fails there too are tried
again without it.

`--again FILE` takes the mutants of an earlier run and finds their places in the tree as it is now, by function, statement and change: what
moved to another module is found there, what no longer stands anywhere is counted apart. Otherwise another tree has other mutants.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.house import ROOT, imported, product

COPIED = (
    *("irscope", "frontends", "passes", "tui", "tests", "samples", "docs", ".ci", "action.yml", ".pre-commit-hooks.yaml"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "mkdocs.yml"),
)
BELOW_IRSCOPE = ("frontends", "passes", "tui")
"""Folders that are packages below irscope once installed: links stand for that in the copy."""
FILES_EACH = 10
"""How many test files a mutant runs at most."""
HANG = 120
"""After so many seconds in one test a mutant counts as killed: it does not end."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass
class Mutant:
    """One change, where it is, and what came of it."""

    module: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    statement: str
    start: int
    end: int
    nth: int = 0
    """Which of the same changes in the same statement it is."""
    verdict: str = ""
    """killed, hangs, survived, gone; empty while it has not run."""
    by: str = ""
    seconds: float = 0.0
    tests: list[str] = field(default_factory=list)

    def same_change(self, other: Mutant) -> bool:
        mine, others = ((one.kind, one.before, one.after, one.statement, one.nth) for one in (self, other))
        return mine == others


# Places


def _changed(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """What may be changed at a node: kind, the expression that is replaced, and its replacement."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield "comparison", node, ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATIONS and not any(_is_text(side) for side in (node.left, node.right)):
            yield "operation", node, ast.BinOp(node.left, OPERATIONS[type(op)](), node.right)
        case ast.BoolOp(op=op):
            yield "boolean", node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", node, node.operand
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", node, ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", value, ast.Constant(None)
        case _:
            return


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _skipped(node: ast.AST) -> bool:
    """Text for people, whose parts have no places in Python 3.11, and what only a type checker reads."""
    return isinstance(node, ast.JoinedStr | ast.Assert) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))


@cache
def _places(name: str) -> list[Mutant]:
    """All mutants of a module, in the order of the text."""
    module = product()[name]
    text = module.path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants: list[Mutant] = []
    seen: Counter[tuple[int, str, str, str]] = Counter()

    def visit(node: ast.AST, function: str, statement: ast.stmt | None) -> None:
        if _skipped(node):
            return
        if isinstance(node, ast.stmt):
            statement = node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        if statement is not None and function:
            for kind, old, new in _changed(node):
                new_text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(new)))
                start, end = starts[old.lineno - 1] + old.col_offset, starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
                here = (id(statement), kind, ast.unparse(old), new_text)
                mutants.append(
                    Mutant(module.name, function, old.lineno, kind, ast.unparse(old), new_text, _head(statement), start, end, seen[here])
                )
                seen[here] += 1
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, function, statement)

    visit(module.tree, "", None)
    return mutants


def _head(statement: ast.stmt) -> str:
    """A statement without the block below it."""
    return ast.unparse(statement).splitlines()[0]


def draw(seed: int, count: int) -> list[Mutant]:
    """Mutants at random places; a module is drawn by its lines of code."""
    chance = random.Random(seed)
    modules = [module for _, module in sorted(product().items()) if _places(module.name)]
    drawn: list[Mutant] = []
    while len(drawn) < count:
        module = chance.choices(modules, [module.lines for module in modules])[0]
        one = chance.choice(_places(module.name))
        if one not in drawn:
            drawn.append(one)
    return drawn


def found_again(mutant: Mutant) -> Mutant | None:
    """The same change in the tree as it is now: in its own module if it is there, else in the one place that has it."""
    own = product().get(mutant.module)
    near = [place for place in _places(own.name) if place.same_change(mutant)] if own else []
    name = mutant.function.rpartition(".")[2]
    exact = [one for one in near if one.function == mutant.function] or [one for one in near if one.function.endswith(name)]
    if exact:
        return min(exact, key=lambda one: abs(one.line - mutant.line))
    far = [one for one in _everywhere(mutant.statement) if one.same_change(mutant)]
    far = [one for one in far if one.function.rpartition(".")[2].strip("_") == name.strip("_")] or far
    return far[0] if len(far) == 1 else None


def _everywhere(statement: str) -> Iterator[Mutant]:
    for module in product().values():
        yield from (place for place in _places(module.name) if place.statement == statement)


# Tests that concern a module


@cache
def test_files() -> dict[str, tuple[str, frozenset[str]]]:
    """Return test files with their text and the modules of the product that they and their helpers import, but for tests of the tree.

    What tests read as data is left out: some of it ends in .py and is not Python, as the graphs that Inductor writes.
    """
    folder = ROOT / "tests"
    paths = (path for path in sorted(folder.rglob("*.py")) if "data" not in path.relative_to(folder).parts)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    names = {name[:-3].replace("/", ".").removesuffix(".__init__"): name for name in texts}
    trees = {name: list(ast.walk(ast.parse(text))) for name, text in texts.items()}
    everything = {**dict.fromkeys(product()), **dict.fromkeys(names)}
    direct = {
        name: {other for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for other in imported(node, everything)}
        for name, nodes in trees.items()
    }

    def reached(name: str, seen: set[str]) -> set[str]:
        seen.add(name)
        result = {other for other in direct[name] if not other.startswith("tests")}
        for other in direct[name]:
            if other.startswith("tests") and names[other] not in seen:
                result |= reached(names[other], seen)
        return result

    return {
        name: (text, frozenset(reached(name, set())))
        for name, text in texts.items()
        if Path(name).name.startswith("test_") and not name.startswith(("tests/hygiene", "tests/tools"))
    }


@cache
def distances(module: str) -> dict[str, int]:
    """How many imports lie between other modules of the product and this one. A module named in a text is imported late."""
    importers: dict[str, set[str]] = {name: set() for name in product()}
    for other in product().values():
        texts = {node.value for node in ast.walk(other.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        for name in other.top | other.late | {text.partition(":")[0] for text in texts} & importers.keys():
            importers[name].add(other.name)
    found, edge = {module: 0}, [module]
    while edge:
        edge = [name for near in edge for name in importers[near] if found.setdefault(name, found[near] + 1) == found[near] + 1]
        edge = [name for name in dict.fromkeys(edge) if name in importers and found[name] <= 8]
        if all(found[name] >= 8 for name in edge):
            break
    return found


@cache
def _names_of(module: str) -> frozenset[str]:
    """What a module defines, and what a pass in it is called."""
    found: set[str] = set()
    for node in ast.walk(product()[module].tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("__"):
            found.add(node.name.strip("_"))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "name":
                found.add(str(node.value.value))
    return frozenset(name for name in found if len(name) > 3)


@cache
def _words_of(file: str) -> frozenset[str]:
    text = test_files()[file][0]
    return frozenset(re.findall(r"\w+", text)) | frozenset(re.findall(r"[\w-]+", text))


@cache
def _files_with(word: str) -> int:
    return sum(word in _words_of(file) for file in test_files())


def concerned(mutant: Mutant) -> list[str]:
    """The test files closest to a mutant: those that name what its module defines, rare names before common ones, or import it."""
    far = distances(mutant.module)
    own = {part.strip("_") for part in mutant.function.split(".")}

    def weight(file: str) -> float:
        named = sum(
            (3 if name in own else 1) * math.log(len(test_files()) / _files_with(name))
            for name in (_names_of(mutant.module) | own) & _words_of(file)
            if len(name) > 3
        )
        way = min((far[name] for name in test_files()[file][1] if name in far), default=9)
        shared = len(set(re.findall(r"[a-z]+", file)) & set(re.findall(r"[a-z]+", mutant.module)) - {"irscope"})
        return min(named, 12) + (8 if way == 0 else 3 if way == 1 else 0) - way + shared

    return sorted(test_files(), key=lambda file: (-weight(file), file))[:FILES_EACH]


# Running


class Tree:
    """A copy of the working tree in which mutants run. It is laid out so that `irscope` and all below it come from the copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".venv"), dirs_exist_ok=True)
            elif source.is_file():
                shutil.copy2(source, target)
        for name in BELOW_IRSCOPE:
            link = folder / "irscope" / name
            if not link.exists():
                link.symlink_to(Path("..") / name)

    def run(self, tests: list[str], limit: float, without: list[str]) -> tuple[int, str]:
        """Status and output of pytest over tests that are there; a status of -1 means that time was up."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            "not full",
            "--tb=no",
            "--no-header",
        ]
        command += [
            "-o",
            f"faulthandler_timeout={HANG}",
            "-o",
            "faulthandler_exit_on_timeout=true",
            "-o",
            "addopts=--import-mode=importlib",
        ]
        command += [word for test in without for word in ("--deselect", test)]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"}
        process = subprocess.Popen(
            [*command, *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return -1, ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode, output

    def judge(self, mutant: Mutant, limit: float, without: list[str]) -> None:
        """Run a mutant and write down what came of it."""
        target = self.folder / product()[mutant.module].path.relative_to(ROOT)
        text, times = target.read_bytes(), target.stat()
        started = time.monotonic()
        target.write_bytes(text[: mutant.start] + f"({mutant.after})".encode() + text[mutant.end :])
        try:
            status, output = self.run(mutant.tests, limit, without)
        finally:
            target.write_bytes(text)
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        mutant.seconds = round(time.monotonic() - started, 1)
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s]+.*?)(?: - .*)?$", output, re.MULTILINE)
        mutant.by = failed.group(1) if failed else ""
        if status in (0, -1, 5):
            mutant.verdict = "survived"
        elif not failed and "Timeout (" in output:
            mutant.verdict = "hangs"
        else:
            mutant.verdict = "killed"
            mutant.by = mutant.by or output.strip().rpartition("\n")[2][:200]


def run(mutants: list[Mutant], tree: Tree, limit: float, keep: Callable[[], None], seconds: float) -> None:
    """Judge what was not judged yet, until time is up; then see that the killing tests pass without a mutant."""
    end = time.monotonic() + seconds
    for number, mutant in enumerate(mutants, 1):
        if mutant.verdict:
            continue
        if time.monotonic() > end:
            return
        mutant.tests = list(dict.fromkeys(_killer_last_time(mutant) + concerned(mutant)))
        tree.judge(mutant, limit, [])
        keep()
        print(f"{number:3} {shown(mutant)}", flush=True)
    killers = sorted({mutant.by for mutant in mutants if mutant.verdict == "killed" and "::" in mutant.by})
    broken: list[str] = []
    while killers:
        status, output = tree.run([test for test in killers if test not in broken], 1200, [])
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s]+.*?)(?: - .*)?$", output, re.MULTILINE)
        if status == 0 or not failed or failed.group(1) in broken:
            break
        broken.append(failed.group(1))
    for mutant in mutants:
        if mutant.by in broken:
            tree.judge(mutant, limit, broken)
            print(f"without a test that fails anyway: {shown(mutant)}", flush=True)
    keep()


def _killer_last_time(mutant: Mutant) -> list[str]:
    """The file that now has the test that killed it in an earlier run: it comes first."""
    file, _, test = mutant.by.partition("::")
    name = f"def {test.partition('[')[0]}("
    return (
        [file]
        if name in test_files().get(file, ("",))[0]
        else [other for other, (text, _) in test_files().items() if test and name in text]
    )


def shown(mutant: Mutant) -> str:
    place = f"{mutant.module}:{mutant.line} {mutant.function}"
    change = f"{mutant.before}  ->  {mutant.after}"
    return f"{mutant.verdict:8} {mutant.seconds:6.1f} s  {place}: {change if len(change) < 150 else change[:147] + '...'}  {mutant.by}"


def kept(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def earlier(path: Path, only_killed: bool) -> list[Mutant]:
    """The mutants of an earlier run where they stand now, not judged yet; what is not found is marked as gone."""
    mutants = []
    for values in kept(path)["mutants"]:
        old = Mutant(**values)
        if only_killed and old.verdict == "survived":
            continue
        now = found_again(old)
        if now is None:
            old.verdict = "gone"
        else:
            now.by = old.by
        mutants.append(now or old)
    return mutants


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.mutations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--results", type=Path, default=ROOT / ".mutations" / "results.json", help="where results are kept, and where a run goes on"
    )
    parser.add_argument("--again", type=Path, help="results of an earlier run whose mutants are tried in this tree")
    parser.add_argument("--killed", action="store_true", help="with --again: only the mutants that were killed")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one mutant's tests")
    parser.add_argument("--seconds", type=float, default=math.inf, help="seconds after which no further mutant begins")
    parser.add_argument("--list", action="store_true", help="only the mutants and their tests")
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if arguments.results.exists():
        if kept(arguments.results)["commit"] != commit:
            parser.error(f"{arguments.results} is of another commit: name it with --again, and another file with --results")
        mutants = [Mutant(**values) for values in kept(arguments.results)["mutants"]]
    else:
        mutants = earlier(arguments.again, arguments.killed) if arguments.again else draw(arguments.seed, arguments.count)
    if arguments.list:
        for mutant in mutants:
            print(shown(mutant), *concerned(mutant), sep="\n    ")
        return

    def keep() -> None:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        content = {"commit": commit, "seed": arguments.seed, "mutants": [asdict(mutant) for mutant in mutants]}
        arguments.results.write_text(json.dumps(content, indent=1), encoding="utf-8")

    folder = arguments.results.resolve().parent / f"mutations-copy-{os.getpid()}"
    tree = Tree(folder)
    try:
        run(mutants, tree, arguments.limit, keep, arguments.seconds)
    finally:
        shutil.rmtree(folder)
    counts = Counter(mutant.verdict or "not tried" for mutant in mutants)
    tried = sum(counts[verdict] for verdict in ("killed", "hangs", "survived"))
    killed = counts["killed"] + counts["hangs"]
    print(f"{commit}: {killed} of {tried} killed ({', '.join(f'{count} {name}' for name, count in sorted(counts.items()))})")


if __name__ == "__main__":
    main()
