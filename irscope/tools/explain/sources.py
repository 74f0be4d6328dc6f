"""The program's own source beside a snapshot: which statement keeps what a line made. Nothing of it is run."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

_MOST: Final = 4 << 20
"""Bytes of a source file that is read."""
_LETS_GO: Final = frozenset({"item", "float", "int", "tolist", "len", "cpu", "numpy", "print", "str", "isinstance"})
"""Calls whose results hold no memory of the device."""
_KEEPS: Final = frozenset({"append", "extend", "add", "insert", "appendleft", "setdefault", "update", "put"})
_ARGUMENTS_OF_HOOKS: Final = 3
_HOOKS: Final = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_hook")


class Source:
    """One file of the program."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.tree = ast.parse(text)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Return those without others in them, or the heads of those that have some."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]

    def at(self, line: int) -> ast.stmt | None:
        """Return the smallest statement that a line is part of."""
        statements = [statement for statement in self.statements if statement.lineno <= line <= (statement.end_lineno or statement.lineno)]
        return min(statements, key=lambda statement: (statement.end_lineno or statement.lineno) - statement.lineno, default=None)

    def keeper(self, line: int, deep: int = 3) -> int | None:
        """Return the line of the statement that keeps what the one at a line made: puts it into a container, an attribute or a sum."""
        made = self.at(line)
        found = None if made is None else self._keeper(made)
        if made is None or found is not None or not deep:
            return found
        # What a function returns is kept by who calls it.
        name = self._returned_by(made)
        for statement in self.statements:
            if name and any(isinstance(part, ast.Call) and _called(part) == name for part in _own_parts(statement)):
                found = self.keeper(statement.lineno, deep - 1)
                if found is not None:
                    return found
        return None

    def _returned_by(self, made: ast.stmt) -> str:
        """Return the function that returns what a statement makes; empty for none."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.lineno <= made.lineno <= (node.end_lineno or node.lineno):
                names = set(_targets(made))
                for part in ast.walk(node):
                    if part is made and isinstance(made, ast.Return):
                        return node.name
                    if isinstance(part, ast.Return) and part.value is not None and names and _holds(part.value, names):
                        return node.name
        return ""

    def _keeper(self, made: ast.stmt) -> int | None:
        names = set(_targets(made))
        if any(_keeps(made, None)):
            return next(_keeps(made, None))
        seen: set[str] = set()
        while names - seen:
            seen |= names
            for statement in self.statements:
                if statement is made or not names & set(_targets(statement)):
                    kept = next(_keeps(statement, names), None)
                    if kept is not None and statement is not made:
                        return kept
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None and _holds(statement.value, names):
                    names |= set(_targets(statement))
        return None

    def records_nothing(self, line: int, deep: int = 3) -> bool:
        """Return whether a line stands where autograd is off: in such a block or function, or all who call that function do."""
        around = [one for one in ast.walk(self.tree) if isinstance(one, ast.stmt) and one.lineno <= line <= (one.end_lineno or one.lineno)]
        if any(_is_off(one) for one in around):
            return True
        functions = [one.name for one in around if isinstance(one, ast.FunctionDef)]
        if not functions or not deep:
            return False
        name = functions[-1]
        calls = [node.lineno for node in ast.walk(self.tree) if isinstance(node, ast.Call) and _called(node) == name]
        return bool(calls) and all(self.records_nothing(call, deep - 1) for call in calls)

    def hooks(self) -> list[int]:
        """Return the lines that keep something in functions that are hooks; those that register one where none is found."""
        found: list[int] = []
        registered: list[int] = []
        functions: dict[str, ast.AST] = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        for call in ast.walk(self.tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _HOOKS:
                registered.append(call.lineno)
                for part in [*call.args, *(word.value for word in call.keywords)]:
                    for body in (part, *(functions.get(node.id) for node in ast.walk(part) if isinstance(node, ast.Name))):
                        if body is not None:
                            found += _stored_in(body)
        if registered and not found:
            # Something makes the hook: a function that keeps one of its arguments is likely what it is.
            taking = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef) and node.name != "forward"]
            for one in taking:
                names = {word.arg for word in one.args.args}
                if len(names) >= _ARGUMENTS_OF_HOOKS and any(_keeps(part, names) for part in one.body):
                    found += [line for part in one.body for line in _keeps(part, names)]
        return found or registered

    def keeps_whole(self) -> list[int]:
        """Return the lines that tell FSDP not to reshard after the forward; the surest first."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and _called(node) == "set_reshard_after_forward":
                found.append((0, node.lineno))
            elif isinstance(node, ast.Call) and _called(node) == "fully_shard":
                said = next((word.value for word in node.keywords if word.arg == "reshard_after_forward"), None)
                if said is not None and not (isinstance(said, ast.Constant) and said.value is True):
                    found.append((1, node.lineno))
                elif any(word.arg is None for word in node.keywords):
                    found.append((2, node.lineno))
        return [line for _, line in sorted(found)]


def _is_off(statement: ast.stmt) -> bool:
    """Return whether autograd is off within it."""
    parts: list[ast.expr] = []
    if isinstance(statement, ast.With):
        parts = [item.context_expr for item in statement.items]
    elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
        parts = statement.decorator_list
    for part in parts:
        name = _called(part) if isinstance(part, ast.Call) else part.attr if isinstance(part, ast.Attribute) else ""
        if name in ("no_grad", "inference_mode"):
            return True
        if name == "set_grad_enabled" and isinstance(part, ast.Call):
            return any(isinstance(argument, ast.Constant) and argument.value is False for argument in part.args)
    return False


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement gives a value."""
    parts: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        parts = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        parts = [statement.target]
    for part in parts:
        yield from (node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _holds(value: ast.AST, names: set[str] | None) -> bool:
    """Return whether a value may keep one of the names: it is not read into a number first. Without names, whether it is more than a
    constant.
    """
    if isinstance(value, ast.Call) and _called(value) in _LETS_GO:
        return False
    if isinstance(value, ast.Name):
        return names is None or value.id in names
    if names is None and isinstance(value, ast.Call):
        return True
    return any(_holds(node, names) for node in ast.iter_child_nodes(value) if isinstance(node, ast.expr | ast.keyword | ast.comprehension))


def _stored_in(body: ast.AST) -> list[int]:
    return [node.lineno for node in ast.walk(body) if isinstance(node, ast.Call | ast.Assign) and _stores(node)]


def _own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of statements in it."""
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.expr | ast.withitem | ast.keyword):
            yield from ast.walk(node)


def _stores(node: ast.AST) -> bool:
    """Return whether something is put where it stays."""
    if isinstance(node, ast.Call):
        return _called(node) in _KEEPS
    return isinstance(node, ast.Assign) and any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)


def _keeps(statement: ast.stmt, names: set[str] | None) -> Iterator[int]:
    """Yield the lines of a statement that keep one of the names; without names, anything that is made there."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and _called(statement.value) in _KEEPS:
        if any(_holds(argument, names) for argument in statement.value.args):
            yield statement.lineno
    elif isinstance(statement, ast.AugAssign) and _holds(statement.value, names):
        yield statement.lineno
    elif isinstance(statement, ast.Assign):
        own = set(_targets(statement))
        stays = any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
        again = any(isinstance(node, ast.Name) and node.id in own for node in ast.walk(statement.value))
        if (stays or again) and _holds(statement.value, names):
            yield statement.lineno


class Sources:
    """The script that the user names, and the files beside it that stacks name."""

    def __init__(self, script: Path | None) -> None:
        self._folder = script.resolve().parent if script is not None else None
        self._known: dict[str, Source | None] = {}

    def of(self, file: str) -> Source | None:
        """Return the source of a file that a stack names, if it lies beside the script; nothing else is opened."""
        if self._folder is None or not file.endswith((".py", ".pyw")):
            return None
        if file not in self._known:
            self._known[file] = self._read(file)
        return self._known[file]

    def _read(self, file: str) -> Source | None:
        assert self._folder is not None
        parts = Path(file.replace("\\", "/")).parts
        for count in range(min(len(parts), 4), 0, -1):
            if ".." in parts[-count:]:
                continue
            path = self._folder.joinpath(*[part for part in parts[-count:] if part not in ("/", "\\")])
            try:
                status = os.lstat(path)
                if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST or not path.resolve().is_relative_to(self._folder):
                    continue
                return Source(path, path.read_text("utf-8"))
            except (OSError, ValueError, SyntaxError, RecursionError):
                continue
        return None

    def all_of(self, files: set[str]) -> Iterator[tuple[str, Source]]:
        """Yield those that there are, with the name that stacks have for them."""
        for file in sorted(files):
            found = self.of(file)
            if found is not None:
                yield file, found
