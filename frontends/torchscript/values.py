"""The code of an archive, each file parsed when it is first needed, and what the interpreter computes with besides tensors of the graph."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from irscope.budget import admit, claim
from irscope.errors import LoadError
from irscope.frontends.files.archive import Archive
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.places import Loc
from irscope.ir.types import ScalarType, TensorType

_LARGEST_FILE = 32 << 20
_PARSED_CODE = 30
"""Bytes of a syntax tree for a byte of code, as measured on traces."""
# A syntax tree takes about a hundred bytes for each of these.
_SEPARATORS = "\n,.(+-*/<=:;["
_MOST_WORDS = 1_500_000


@dataclass(eq=False)
class Function:
    """One method or free function."""

    name: str
    node: ast.FunctionDef
    file: str
    lines: list[str]
    package: str = ""

    @property
    def params(self) -> list[str]:
        """Names of the parameters, with `self` for methods."""
        return [arg.arg for arg in self.node.args.args]

    def annotation(self, name: str) -> str:
        """Return the declared type of a parameter as text."""
        for arg in self.node.args.args:
            if arg.arg == name and arg.annotation is not None:
                return ast.unparse(arg.annotation)
        return ""

    def default(self, name: str) -> ast.expr | None:
        """Return the default of a parameter."""
        args, defaults = self.node.args.args, self.node.args.defaults
        for arg, default in zip(args[len(args) - len(defaults) :], defaults, strict=True):
            if arg.arg == name:
                return default
        return None

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Variables of the code by their name in Python: one that is taken gets a number behind it."""
        stores = (part for part in ast.walk(self.node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
        ordered = sorted(stores, key=lambda part: (part.lineno, part.col_offset))
        spellings: dict[str, str] = {}
        for name in (*self.params, *(part.id for part in ordered)):
            base = name.rstrip("0123456789")
            spellings.setdefault(name, base if base in spellings else name)
        return spellings

    def spelled(self, name: str) -> str:
        """Return the name that a variable of the code has in Python."""
        return self._spellings.get(name, name)

    def statement(self, node: ast.stmt) -> str:
        """Return the source of a statement, on one line."""
        last = min(node.end_lineno or node.lineno, node.lineno + 3)
        return " ".join(line.strip() for line in self.lines[node.lineno - 1 : last])


@dataclass(eq=False)
class ScriptClass:
    """One class: a module, a plain class, a named tuple, an enumeration or an interface."""

    name: str
    base: str
    methods: dict[str, Function] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    """Declared attributes and their types, in order."""
    constants: dict[str, ast.expr] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()

    @property
    def is_module(self) -> bool:
        return self.base == "Module"

    @property
    def label(self) -> str:
        """Return the class's own name, without the path."""
        return self.name.rpartition(".")[2]


class Source:
    """All code of an archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._read: set[str] = set()
        self._words = 0
        self._classes: dict[str, ScriptClass] = {}
        self._functions: dict[str, Function] = {}

    def cls(self, qualified: str) -> ScriptClass | None:
        """Return a class by its qualified name, "__torch__.torch.nn.modules.linear.Linear"."""
        self._load(qualified.rpartition(".")[0])
        return self._classes.get(qualified)

    def function(self, qualified: str) -> Function | None:
        """Return a free function by its qualified name."""
        self._load(qualified.rpartition(".")[0])
        return self._functions.get(qualified)

    def _load(self, package: str) -> None:
        if package in self._read:
            return
        self._read.add(package)
        file = f"code/{package.replace('.', '/')}.py"
        if file not in self._archive:
            return
        try:
            text = self._archive.read(file, _LARGEST_FILE).decode("utf-8")
            self._words += sum(map(text.count, _SEPARATORS))
            if self._words > _MOST_WORDS:
                raise LoadError(
                    "the code is larger than any model's",
                    code="IRS132",
                    where=str(self._archive.path),
                    hint="the file is damaged or hostile; export the model with torch.export if it is neither",
                )
            admit(len(text))
            claim(_PARSED_CODE * len(text), f"the code in {file}")
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise LoadError(
                f"{file!r} is not TorchScript code", code="IRS180", where=str(self._archive.path), hint="the file is damaged; save it again"
            ) from None
        lines = text.splitlines()
        for item in tree.body:
            if isinstance(item, ast.ClassDef):
                made = _read_class(item, package, file, lines)
                self._classes[made.name] = made
            elif isinstance(item, ast.FunctionDef):
                name = f"{package}.{item.name}"
                self._functions[name] = Function(name, item, file, lines, package)


def _read_class(node: ast.ClassDef, package: str, file: str, lines: list[str]) -> ScriptClass:
    made = ScriptClass(f"{package}.{node.name}", ast.unparse(node.bases[0]) if node.bases else "")
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            made.methods[item.name] = Function(f"{made.name}.{item.name}", item, file, lines, package)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            made.fields[item.target.id] = ast.unparse(item.annotation)
            if item.value is not None:
                made.constants[item.target.id] = item.value
        elif isinstance(item, ast.Assign):
            _read_assignment(made, item)
    return made


def _read_assignment(made: ScriptClass, item: ast.Assign) -> None:
    target = item.targets[0]
    if isinstance(target, ast.Name) and target.id in ("__parameters__", "__buffers__"):
        names = frozenset(text for part in ast.walk(item.value) if isinstance(part, ast.Constant) and isinstance(text := part.value, str))
        if target.id == "__parameters__":
            made.parameters = names
        else:
            made.buffers = names
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        made.fields[str(target.slice.value)] = ast.unparse(item.value)
    elif isinstance(target, ast.Name):
        made.constants[target.id] = item.value


Item: TypeAlias = object
"""A Value, number (whole ones may be symbolic), string, None, list, tuple, dict, ScriptObject or KnownTensor."""


@dataclass(eq=False)
class ScriptObject:
    """An instance of a class of the archive: a module, or a plain object."""

    cls: ScriptClass
    attrs: dict[str, Item] = field(default_factory=dict)
    path: str = ""
    """Dotted path of a module in the model."""


@dataclass(eq=False)
class KnownTensor:
    """A tensor of one element whose value is known: a size that traced code carries as a tensor."""

    number: Dim | float | bool
    dtype: DType
    value: Value | None = None
    """The value in the graph, once an operation needed it."""


@dataclass(eq=False)
class TensorList:
    """A list of tensors whose length is only known when the model runs: a sequence in the graph."""

    value: Value


@immutable
class Uninitialized:
    """Value of a variable in a branch that never reads it."""


@dataclass
class Frame:
    """One running function."""

    function: Function
    module: ScriptObject | None
    """The module whose method this is, or whose code called it."""
    env: dict[str, Item] = field(default_factory=dict)
    caller: Loc | None = None
    outer: Frame | None = None
    """The function that called this one."""


@immutable(slots=False)
class Returned:
    """Control flow left the function."""

    item: Item


class ScriptRaise(Exception):
    """The model raises an exception."""


def contains_value(item: Item, depth: int = 4) -> bool:
    """Return whether something is, or holds, a tensor of the graph."""
    if isinstance(item, Value | KnownTensor):
        return True
    if depth and isinstance(item, list | tuple):
        return any(contains_value(part, depth - 1) for part in item)
    return False


def is_condition(item: Item) -> bool:
    """Return whether something is a truth value of the graph, which a tensor with axes is not."""
    if not isinstance(item, Value) or not isinstance(item.type, ScalarType | TensorType) or item.type.dtype is not DType.BOOL:
        return False
    return isinstance(item.type, ScalarType) or item.type.shape == ()


def is_integer(item: Item) -> bool:
    """Return whether something is a whole number, perhaps symbolic, and no truth value."""
    return isinstance(item, SymDim) or (isinstance(item, int) and not isinstance(item, bool))


def is_number(item: Item) -> bool:
    """Return whether something is a number or truth value."""
    return isinstance(item, bool | int | float | complex | SymDim)
