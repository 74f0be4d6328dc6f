"""Statements and calls of TorchScript code, evaluated abstractly."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from irscope.budget import spend
from irscope.errors import LoadError
from irscope.frontends.torchscript.control import run_unknown_if, run_unknown_loop
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.expressions import Expressions
from irscope.frontends.torchscript.origins import Origins
from irscope.frontends.torchscript.plain import NotKnown, TooLarge
from irscope.frontends.torchscript.source import Function, Source
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptObject, ScriptRaise
from irscope.ir.dims import SymDim
from irscope.ir.graph import Value
from irscope.ir.places import Loc, Scope

_MOST_STEPS = 2_000_000
_DEEPEST_CALL = 100
_TEMPORARY = re.compile(r"_\d+")


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


@dataclass(frozen=True)
class Returned:
    """Control flow left the function."""

    item: Item


class Interpreter:
    """Runs the code of one archive; tensors are values of the graph."""

    def __init__(self, source: Source, emitter: Emitter, constants: tuple[Item, ...], path: str, origins: Origins | None = None) -> None:
        self.source = source
        self.emitter = emitter
        self.constants = constants
        self.path = path
        self._origins = origins
        self.frame: Frame | None = None
        self.compared: dict[tuple[int, int], None] = {}
        """Whole numbers that the code compared with one another, in order."""
        self._expressions = Expressions(self)
        self._calls: dict[tuple[Scope, str], int] = {}
        self._depth = 0
        self._steps = 0

    def error(self, what: str, code: str = "IRS182", hint: str = "") -> LoadError:
        """An error that names the place in the archive's code."""
        loc = self.emitter.loc
        where = f"{self.path}:{loc.file}:{loc.line}" if loc is not None else self.path
        return LoadError(what, code=code, where=where, hint=hint or "export the model with torch.export or to ONNX instead")

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_method(self, target: ScriptObject, name: str, args: Sequence[Item], named: Mapping[str, Item]) -> Item:
        """Call a method; that of another module opens a scope."""
        method = target.cls.methods.get(name)
        if method is None:
            raise self.error(f"{target.cls.name} has no method {name!r}")
        if not target.cls.is_module or (self.frame is not None and self.frame.module is target):
            module = target if target.cls.is_module else self.frame.module if self.frame is not None else None
            return self.run(method, [target, *args], named, module)
        outer = self.emitter.scope
        if self.frame is not None:
            self.emitter.scope = self._enter(outer, target)
        try:
            return self.run(method, [target, *args], named, target)
        finally:
            self.emitter.scope = outer

    def _enter(self, outer: Scope, target: ScriptObject) -> Scope:
        parent = outer.module
        if not parent:
            name = target.path
        elif target.path.startswith(f"{parent}."):
            name = target.path[len(parent) + 1 :]
        else:
            name = f"={target.path}"
        call = self._calls.get((outer, name), 0)
        self._calls[outer, name] = call + 1
        return outer.child(name, target.cls.label, call)

    def run(self, function: Function, args: Sequence[Item], named: Mapping[str, Item], module: ScriptObject | None) -> Item:
        """Run a function's body with these arguments."""
        if self._depth >= _DEEPEST_CALL:
            raise self.error(f"calls are nested more than {_DEEPEST_CALL} deep")
        outer_frame, outer_loc = self.frame, self.emitter.loc
        frame = Frame(function, module, {}, outer_loc, outer_frame)
        self._depth += 1
        self.frame = frame
        try:
            self._bind(frame, args, named)
            found = self.block(function.node.body)
        finally:
            self.frame = outer_frame
            self.emitter.loc = outer_loc
            self._depth -= 1
        return found.item if found is not None else None

    def _bind(self, frame: Frame, args: Sequence[Item], named: Mapping[str, Item]) -> None:
        params = frame.function.params
        if len(args) > len(params):
            raise self.error(f"{frame.function.name} is called with too many arguments")
        frame.env.update(zip(params, args, strict=False))
        for name in params[len(args) :]:
            if name in named:
                frame.env[name] = named[name]
                continue
            default = frame.function.default(name)
            if default is None:
                raise self.error(f"{frame.function.name} is called without {name!r}")
            frame.env[name] = self.eval(default)

    # -- statements ------------------------------------------------------------------------------------------------

    def eval(self, node: ast.expr) -> Item:
        """The value of an expression."""
        return self._expressions.eval(node)

    @property
    def env(self) -> dict[str, Item]:
        """Variables of the running function."""
        assert self.frame is not None
        return self.frame.env

    def locate(self, node: ast.expr) -> None:
        """What is appended next comes from the Python that an expression was traced from."""
        if self._origins is not None and self.frame is not None:
            self.emitter.origin = self._origins.at(self.frame.function.file, node.lineno, node.col_offset)

    def replace(self, item: Item, by: Item) -> bool:
        """Replace a container in this function and its callers; returns whether it was found."""
        found = False
        frame = self.frame
        while frame is not None:
            for name, held in frame.env.items():
                if held is item:
                    frame.env[name] = by
                    found = True
            frame = frame.outer
        return found

    def block(self, statements: Sequence[ast.stmt]) -> Returned | None:
        """Run statements until one returns."""
        for statement in statements:
            found = self._statement(statement)
            if found is not None:
                return found
        return None

    def step(self) -> None:
        """Count a step; endless loops end here."""
        self._steps += 1
        spend(20, "the model's code")
        if self._steps > _MOST_STEPS:
            raise self.error("the model's code does not come to an end")

    def _statement(self, node: ast.stmt) -> Returned | None:
        self.step()
        frame = self.frame
        assert frame is not None
        self.emitter.origin = None
        self.emitter.loc = Loc(frame.function.file, node.lineno, frame.function.name, frame.function.statement(node), frame.caller)
        try:
            return self._dispatch(node)
        except NotKnown:
            raise self.error(
                "the code depends on a number that is not known before the model runs", "IRS183", "give sizes with --input or --bind"
            ) from None
        except TooLarge:
            raise self.error("a list or string exceeds the size limit") from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError, StopIteration) as error:
            raise self.error(f"the code cannot be followed: {type(error).__name__}: {str(error)[:120]}") from error

    def _dispatch(self, node: ast.stmt) -> Returned | None:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            parts = len(target.elts) if isinstance(target, ast.Tuple | ast.List) else 0
            self._assign(target, self._expressions.eval_parts(node.value, parts))
        elif isinstance(node, ast.Expr):
            self.eval(node.value)
        elif isinstance(node, ast.Return):
            return Returned(self.eval(node.value) if node.value is not None else None)
        elif isinstance(node, ast.If):
            return self._if(node)
        elif isinstance(node, ast.For):
            return self._for(node)
        elif isinstance(node, ast.While):
            return self._while(node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self.eval(node.value))
        elif isinstance(node, ast.Assert):
            pass
        elif not isinstance(node, ast.Pass | ast.AnnAssign):
            raise self.error(f"the statement {type(node).__name__} is not understood")
        return None

    def _assign(self, target: ast.expr, item: Item) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = item
            self._name(item, target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            items = self._expressions.unpack(item)
            if len(items) != len(target.elts):
                raise self.error(f"{len(items)} values are assigned to {len(target.elts)} variables")
            for part, value in zip(target.elts, items, strict=True):
                self._assign(part, value)
        elif isinstance(target, ast.Attribute):
            owner = self.eval(target.value)
            if not isinstance(owner, ScriptObject):
                raise self.error("an attribute of something that is no object is set")
            owner.attrs[target.attr] = item
        elif isinstance(target, ast.Subscript):
            self.eval(target.value)[self.eval(target.slice)] = item  # type: ignore[index]  # a TypeError is reported
        else:
            raise self.error(f"an assignment to {type(target).__name__} is not understood")

    def _name(self, item: Item, name: str) -> None:
        """Variables' names become names of values; those of the printer's temporaries do not."""
        if isinstance(item, Value) and item.node is not None and item.name is None and not _TEMPORARY.fullmatch(name):
            assert self.frame is not None
            self.emitter.graph.rename(item, self.emitter.names.unique(self.frame.function.spelled(name)))

    def condition(self, item: Item) -> bool | Value:
        """A truth value, or the value of the graph that decides."""
        if isinstance(item, bool):
            return item
        if isinstance(item, Value):
            return item
        if isinstance(item, KnownTensor):
            item = item.number
        if isinstance(item, SymDim):
            raise NotKnown
        return bool(item)

    def _if(self, node: ast.If) -> Returned | None:
        condition = self.condition(self.eval(node.test))
        if isinstance(condition, bool):
            return self.block(node.body if condition else node.orelse)
        return run_unknown_if(self, node, condition)

    def _for(self, node: ast.For) -> Returned | None:
        items = self.eval(node.iter)
        if isinstance(items, SymDim):
            return run_unknown_loop(self, node, items)
        for item in self._expressions.iterate(items):
            self.step()
            self._assign(node.target, item)
            found = self.block(node.body)
            if found is not None:
                return found
        return None

    def _while(self, node: ast.While) -> Returned | None:
        while True:
            self.step()
            condition = self.condition(self.eval(node.test))
            if not isinstance(condition, bool):
                return run_unknown_loop(self, node, condition)
            if not condition:
                return None
            found = self.block(node.body)
            if found is not None:
                return found

    def raised(self, message: Item) -> ScriptRaise:
        """The model raises."""
        return ScriptRaise(str(message)[:200])
