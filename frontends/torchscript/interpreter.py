"""Statements, expressions and calls of TorchScript code, evaluated abstractly."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from irscope.budget import spend
from irscope.errors import LoadError, form_problem
from irscope.frontends.torchscript.calls import QUERIES, call_list
from irscope.frontends.torchscript.control import run_unknown_if, run_unknown_loop
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.plain import BUILTINS, NotKnown, TooLarge, is_plain_call
from irscope.frontends.torchscript.state import Origins
from irscope.frontends.torchscript.values import (
    Frame,
    Function,
    Item,
    KnownTensor,
    Returned,
    ScriptObject,
    ScriptRaise,
    Source,
    TensorList,
    Uninitialized,
    is_condition,
    is_integer,
    is_number,
)
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.places import Loc, Scope
from irscope.ir.types import ScalarType, TensorType, scalar

_MOST_STEPS = 2_000_000
_DEEPEST_CALL = 100
_TEMPORARY = re.compile(r"_\d+")


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
        """Return an error that names the place in the archive's code."""
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
        """Return the value of an expression."""
        return self._expressions.eval(node)

    @property
    def env(self) -> dict[str, Item]:
        """Variables of the running function."""
        assert self.frame is not None
        return self.frame.env

    def locate(self, node: ast.expr) -> None:
        """Set the origin of the nodes that are appended next: the Python that an expression was traced from."""
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
            returned = self._statement(statement)
            if returned is not None:
                return returned
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
            raise self.error(f"the code cannot be followed: {form_problem(error)}") from error

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
                raise self.error("an attribute of something that is not an object is set")
            owner.attrs[target.attr] = item
        elif isinstance(target, ast.Subscript):
            self.eval(target.value)[self.eval(target.slice)] = item  # type: ignore[index]  # a TypeError is reported
        else:
            raise self.error(f"an assignment to {type(target).__name__} is not understood")

    def _name(self, item: Item, name: str) -> None:
        """Give values the names of variables, but not those of the printer's temporaries."""
        if isinstance(item, Value) and item.node is not None and item.name is None and not _TEMPORARY.fullmatch(name):
            assert self.frame is not None
            self.emitter.graph.rename(item, self.emitter.names.unique(self.frame.function.spelled(name)))

    def condition(self, item: Item) -> bool | Value:
        """Return a truth value, or the value of the graph that decides."""
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
            returned = self.block(node.body)
            if returned is not None:
                return returned
        return None

    def _while(self, node: ast.While) -> Returned | None:
        while True:
            self.step()
            condition = self.condition(self.eval(node.test))
            if not isinstance(condition, bool):
                return run_unknown_loop(self, node, condition)
            if not condition:
                return None
            returned = self.block(node.body)
            if returned is not None:
                return returned

    def raised(self, message: Item) -> ScriptRaise:
        """The model raises."""
        return ScriptRaise(str(message)[:200])


# -- expressions -------------------------------------------------------------------------------------------------------


_WORDS: dict[str, Item] = {"inf": float("inf"), "nan": float("nan"), "infj": complex(0, float("inf"))}
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "remainder",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


class Expressions:
    """Evaluates expressions for an interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._parts: tuple[ast.expr | None, int] = (None, 0)

    def eval_parts(self, node: ast.expr, count: int) -> Item:
        """Return the value of an expression that is assigned to so many variables at once."""
        self._parts = (node, count)
        return self.eval(node)

    def eval(self, node: ast.expr) -> Item:
        """Return the value of an expression."""
        method = _EVALUATORS.get(type(node))
        if method is None:
            raise self._interpreter.error(f"the expression {type(node).__name__} is not understood")
        return method(self, node)

    def _constant(self, node: ast.Constant) -> Item:
        return node.value

    def _name(self, node: ast.Name) -> Item:
        env = self._interpreter.env
        if node.id in env:
            return env[node.id]
        if node.id in _WORDS:
            return _WORDS[node.id]
        raise self._interpreter.error(f"{node.id!r} is used before it is set")

    def _list(self, node: ast.List) -> Item:
        return [self.eval(item) for item in node.elts]

    def _tuple(self, node: ast.Tuple) -> Item:
        return tuple(self.eval(item) for item in node.elts)

    def _dict(self, node: ast.Dict) -> Item:
        return {self.eval(key): self.eval(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}

    def _attribute(self, node: ast.Attribute) -> Item:
        path = dotted(node)
        if path is not None and path.startswith("CONSTANTS.c"):
            return self._interpreter.constants[int(path[11:])]
        if path is not None and path.startswith("__torch__."):
            return self._class_constant(path)
        return self.attribute(self.eval(node.value), node.attr)

    def _class_constant(self, path: str) -> Item:
        function = self._interpreter.source.function(path)
        if function is not None:
            return function
        owner, _, name = path.rpartition(".")
        cls = self._interpreter.source.cls(owner)
        if cls is None or name not in cls.constants:
            raise self._interpreter.error(f"{path!r} is not defined")
        return self.eval(cls.constants[name])

    def attribute(self, owner: Item, name: str) -> Item:
        """Return an attribute of an object."""
        if isinstance(owner, ScriptObject):
            if name in owner.attrs:
                return owner.attrs[name]
            if name in owner.cls.constants:
                return self.eval(owner.cls.constants[name])
            raise self._interpreter.error(f"{owner.cls.name} has no attribute {name!r}")
        query = QUERIES.get(name)
        if query is not None and isinstance(owner, Value | KnownTensor):
            return query(self._interpreter.emitter, owner)
        raise self._interpreter.error(f"{name!r} of something that is not an object is read")

    def _subscript(self, node: ast.Subscript) -> Item:
        owner = self.eval(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [None if part is None else self.eval(part) for part in (node.slice.lower, node.slice.upper, node.slice.step)]
            return BUILTINS["slice"](owner, *bounds)
        if isinstance(owner, ScriptObject):
            return BUILTINS["__getitem__"](self.unpack(owner), self.eval(node.slice))
        if isinstance(owner, TensorList):
            return call_list(self._interpreter.emitter, "__getitem__", owner, [self.eval(node.slice)], {})
        return BUILTINS["__getitem__"](owner, self.eval(node.slice))

    def _if_expression(self, node: ast.IfExp) -> Item:
        condition = self._interpreter.condition(self.eval(node.test))
        if not isinstance(condition, bool):
            raise NotKnown
        return self.eval(node.body if condition else node.orelse)

    def _unary(self, node: ast.UnaryOp) -> Item:
        return self.torch("__not__" if isinstance(node.op, ast.Not) else "neg", [self.eval(node.operand)], {})

    def _binary(self, node: ast.BinOp) -> Item:
        return self.torch(_BINARY[type(node.op)], [self.eval(node.left), self.eval(node.right)], {})

    def _compare(self, node: ast.Compare) -> Item:
        left, right = self.eval(node.left), self.eval(node.comparators[0])
        op = node.ops[0]
        if isinstance(op, ast.Is | ast.IsNot):
            return (left is right) == isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return BUILTINS["__contains__"](right, left) == isinstance(op, ast.In)
        return self.torch(_COMPARE[type(op)], [left, right], {})

    def unpack(self, item: Item) -> Sequence[Item]:
        """Return the parts of a tuple, list or named tuple."""
        if isinstance(item, list | tuple):
            return item
        if isinstance(item, ScriptObject):
            return [item.attrs[name] for name in item.cls.fields]
        if isinstance(item, Value):
            items = self._interpreter.emitter.call("aten", "unbind", [item], {})
            if isinstance(items, list):
                return items
        raise self._interpreter.error("something that has no parts is unpacked")

    def iterate(self, item: Item) -> Iterable[Item]:
        """Return the items that a loop iterates over."""
        if isinstance(item, dict):
            return list(item)
        if isinstance(item, range | str):
            return item
        return list(self.unpack(item))

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Item:
        parts = self._parts[1] if self._parts[0] is node else 0
        path = dotted(node.func)
        if path in ("annotate", "unchecked_cast"):
            return self._annotated(ast.unparse(node.args[0]), self.eval(node.args[1]))
        if path == "uninitialized":
            return Uninitialized()
        if path == "isinstance":
            return self._isinstance(self.eval(node.args[0]), ast.unparse(node.args[1]))
        if path is None or path.partition(".")[0] in self._interpreter.env:
            return self._method(node)
        if path.startswith("__torch__.") and path.endswith(".__new__"):
            return self._new(path.removesuffix(".__new__"))
        args = [self.eval(arg) for arg in node.args]
        named = {keyword.arg: self.eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if path.startswith("__torch__."):
            return self._script_call(path, args, named)
        self._interpreter.emitter.expected_parts = parts
        self._interpreter.locate(node)
        if path.startswith("torch."):
            return self.torch(path[6:], args, named)
        if path.startswith("ops."):
            namespace, _, name = path[4:].partition(".")
            return self._prim(name, args) if namespace == "prim" else self._interpreter.emitter.call(namespace, name, args, named)
        return self._plain_function(path, args)

    def _method(self, node: ast.Call) -> Item:
        args = [self.eval(arg) for arg in node.args]
        named = {keyword.arg: self.eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if not isinstance(node.func, ast.Attribute):
            function = self.eval(node.func)
            if not isinstance(function, Function):
                raise self._interpreter.error("a call of something that is not a function")
            return self._run(function, args, named)
        owner = self.eval(node.func.value)
        if isinstance(owner, ScriptObject):
            return self._interpreter.call_method(owner, node.func.attr, args, named)
        return self.torch(node.func.attr, [owner, *args], named)

    def _run(self, function: Function, args: list[Item], named: Mapping[str, Item]) -> Item:
        frame = self._interpreter.frame
        return self._interpreter.run(function, args, named, frame.module if frame is not None else None)

    def _new(self, path: str) -> Item:
        """An object whose `__init__` is called next."""
        cls = self._interpreter.source.cls(path)
        if cls is None:
            raise self._interpreter.error(f"{path!r} is not defined")
        return ScriptObject(cls)

    def _script_call(self, path: str, args: list[Item], named: Mapping[str, Item]) -> Item:
        interpreter = self._interpreter
        function = interpreter.source.function(path)
        if function is not None:
            return self._run(function, args, named)
        cls = interpreter.source.cls(path)
        if cls is None:
            raise interpreter.error(f"{path!r} is not defined")
        made = ScriptObject(cls)
        if "__init__" in cls.methods:
            interpreter.call_method(made, "__init__", args, named)
        else:
            made.attrs.update(zip(cls.fields, args, strict=False))
            made.attrs.update(named)
        return made

    def _plain_function(self, name: str, args: list[Item]) -> Item:
        if name == "getattr":
            return self.attribute(args[0], str(args[1]))
        if name == "range":
            return self._range(args)
        if name in ("int", "float", "bool", "str") and len(args) == 1:
            return self.number(name, args[0])
        if name == "len":
            return self.torch("len", args[:1], {})
        raise self._interpreter.error(f"the function {name!r} is not understood")

    def _range(self, args: list[Item]) -> Item:
        whole = [arg for arg in args if isinstance(arg, int)]
        if len(whole) == len(args):
            return range(*whole)
        if len(args) == 1 and isinstance(args[0], SymDim):
            return args[0]
        raise NotKnown

    def _annotated(self, kind: str, item: Item) -> Item:
        """A tensor that is declared a number is read."""
        return self.number(kind, item) if kind in ("int", "float", "bool") and isinstance(item, Value | KnownTensor) else item

    def number(self, kind: str, item: Item) -> Item:
        """int(), float() and bool(): of a tensor they read its value, which then decides or is unknown."""
        if isinstance(item, KnownTensor):
            item = item.number
        if not isinstance(item, Value):
            return BUILTINS[{"int": "Int", "float": "Float", "bool": "Bool", "str": "str"}[kind]](item)
        emitter = self._interpreter.emitter
        if isinstance(item.type, ScalarType) and kind in ("float", "bool"):
            return item
        known = emitter.known(item)
        if known is not None and known.size == 1:
            found: Item = known.reshape(-1).tolist()[0]
            return BUILTINS[{"int": "Int", "float": "Float", "bool": "Bool", "str": "str"}[kind]](found)
        made = emitter.node("tensor.item", (item,), (scalar(_ITEM_DTYPES[kind]),), f"aten::{kind.capitalize()}").outputs[0]
        return emitter.fresh() if kind == "int" else made

    def _isinstance(self, item: Item, kind: str) -> bool:
        tests = {
            "Tensor": isinstance(item, Value | KnownTensor),
            "int": isinstance(item, SymDim | int) and not isinstance(item, bool),
            "float": isinstance(item, float),
            "bool": isinstance(item, bool),
            "str": isinstance(item, str),
            "NoneType": item is None,
        }
        if kind in tests:
            return tests[kind]
        if kind.startswith(("List", "list")):
            return isinstance(item, list)
        if kind.startswith(("Dict", "dict")):
            return isinstance(item, dict)
        if kind.startswith(("Tuple", "tuple")):
            return isinstance(item, tuple)
        if kind.startswith("Optional["):
            return item is None or self._isinstance(item, kind[9:-1])
        return isinstance(item, ScriptObject) and item.cls.name == kind

    def _prim(self, name: str, args: list[Item]) -> Item:
        interpreter = self._interpreter
        if name == "RaiseException":
            raise interpreter.raised(args[0] if args else "")
        if name == "NumToTensor":
            number = args[0]
            if isinstance(number, Value):
                return number
            if not isinstance(number, bool | int | float | SymDim):
                raise interpreter.error("NumToTensor of something that is not a number")
            dtype = DType.BOOL if isinstance(number, bool) else DType.F64 if isinstance(number, float) else DType.I64
            return KnownTensor(number, dtype)
        if name in ("unchecked_unwrap_optional", "data", "unchecked_cast"):
            return args[0]
        if name == "type" and isinstance(args[0], str):
            return args[0].partition(":")[0]
        if name == "Print":
            return None
        query = QUERIES.get(name)
        if query is not None and isinstance(args[0], Value | KnownTensor):
            return query(interpreter.emitter, args[0])
        return self.torch(name, args, {})

    def torch(self, name: str, args: list[Item], named: Mapping[str, Item]) -> Item:
        """Return a call of torch.NAME: a computation on plain values, a question about a tensor, or an operator."""
        if name in ("__is__", "__isnot__"):
            return (args[0] is args[1]) == (name == "__is__")
        if isinstance(first := args[0] if args else None, TensorList):
            return call_list(self._interpreter.emitter, name, first, args[1:], named)
        if is_plain_call(name, args):
            return self._plain(name, args, named)
        if name in _LOGIC and len(args) == 2 and any(is_condition(arg) for arg in args):
            return self._logic(name, args)
        query = QUERIES.get(name)
        if query is not None and isinstance(first, Value | KnownTensor):
            return query(self._interpreter.emitter, first, *args[1:])
        if name in _CONVERSIONS and len(args) == 1:
            return self.number(_CONVERSIONS[name], first)
        if isinstance(first, Value) and isinstance(first.type, ScalarType) and name == "__not__":
            name = "logical_not"
        folded = fold(name, args, named)
        if folded is not None:
            return folded
        return self._interpreter.emitter.call("aten", name, args, named)

    def _logic(self, name: str, args: list[Item]) -> Item:
        """`and`, `or` and `xor` of truth values, one of which is known only when the model runs."""
        known = [arg for arg in args if isinstance(arg, bool)]
        if known and name != "__xor__":
            decides = known[0] is (name == "__or__")
            return known[0] if decides else next(arg for arg in args if not isinstance(arg, bool))
        emitter = self._interpreter.emitter
        values = [emitter.constant(scalar(DType.BOOL), arg) if isinstance(arg, bool) else arg for arg in args]
        made = emitter.call("aten", _LOGIC[name], values, {})
        # Of two tensors without axes the code may go on to use the result as a tensor.
        return self._truth(made) if any(isinstance(arg, Value) and isinstance(arg.type, ScalarType) for arg in values) else made

    def _truth(self, item: Item) -> Item:
        """Return a truth value that is known when the model runs, read from its tensor."""
        if isinstance(item, Value) and isinstance(item.type, TensorType):
            return self._interpreter.emitter.node("tensor.item", (item,), (scalar(DType.BOOL),), "aten::Bool").outputs[0]
        return item

    def _plain(self, name: str, args: list[Item], named: Mapping[str, Item]) -> Item:
        """A computation on plain values; a comparison of sizes that cannot be decided becomes a node."""
        if name in TRUTHS and len(args) == 2:
            lists = [arg if isinstance(arg, list | tuple) else (arg,) for arg in args]
            whole = ((a, b) for a, b in zip(*lists, strict=False) if type(a) is int and type(b) is int)
            self._interpreter.compared.update(dict.fromkeys(whole))
        spend(2 + sum(len(arg) for arg in args if isinstance(arg, list | tuple | str)) // 16, "the model's code")
        try:
            return BUILTINS[name](*args, **named)
        except NotKnown:
            if name not in TRUTHS or not all(is_integer(arg) for arg in args):
                raise
        known = [KnownTensor(arg, DType.I64) for arg in args if isinstance(arg, int | SymDim)]
        return self._truth(self._interpreter.emitter.call("aten", name, known, {}))


_LOGIC = {"__and__": "logical_and", "__or__": "logical_or", "__xor__": "logical_xor"}
_ITEM_DTYPES = {"int": DType.I64, "float": DType.F64, "bool": DType.BOOL, "str": DType.STR}
_CONVERSIONS = {
    "Int": "int",
    "Float": "float",
    "Bool": "bool",
    "IntImplicit": "int",
    "FloatImplicit": "float",
    "ScalarImplicit": "float",
    "item": "float",
}


def dotted(node: ast.expr) -> str | None:
    """Return a chain of names as text, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


_EVALUATORS: dict[type[ast.expr], Callable[..., Item]] = {
    ast.Constant: Expressions._constant, ast.Name: Expressions._name, ast.List: Expressions._list, ast.Tuple: Expressions._tuple,
    ast.Dict: Expressions._dict, ast.Attribute: Expressions._attribute, ast.Subscript: Expressions._subscript,
    ast.IfExp: Expressions._if_expression, ast.UnaryOp: Expressions._unary, ast.BinOp: Expressions._binary,
    ast.Compare: Expressions._compare, ast.Call: Expressions._call,
}  # fmt: skip


# -- constants from tensors of one known element, as traced code uses them for sizes ----------------------------------


_FOLDED = frozenset({
    "add", "sub", "mul", "floor_divide", "floordiv", "remainder", "neg", "eq", "ne", "lt", "le", "gt", "ge", "min", "max", "minimum",
    "maximum", "div", "rsub", "abs",
})  # fmt: skip
TRUTHS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


_KEEPING = frozenset({"detach", "clone", "contiguous", "squeeze", "alias", "lift_fresh"})


def fold(name: str, args: list[Item], named: Mapping[str, Item]) -> Item:
    """Return the known result; None where the call is an ordinary operator."""
    if not args or not any(isinstance(arg, KnownTensor) for arg in args):
        return None
    if name in _KEEPING:
        return args[0] if isinstance(args[0], KnownTensor) else None
    if name not in _FOLDED or not all(isinstance(arg, KnownTensor) or is_number(arg) for arg in args):
        return None
    mode = named.get("rounding_mode")
    if name == "div" and mode is None and not any(_is_real(arg) for arg in args):
        return None
    found = _compute(name, [arg.number if isinstance(arg, KnownTensor) else arg for arg in args], mode is not None)
    if not isinstance(found, bool | int | float | SymDim):
        return None
    return KnownTensor(found, _folded_dtype(name, args, found))


def _compute(name: str, numbers: list[Item], rounded: bool) -> Item:
    """Return the result as a number; None where it cannot be known."""
    if name in ("add", "sub", "rsub") and len(numbers) == 3 and numbers.pop() != 1:
        return None
    if name == "rsub":
        name, numbers = "sub", numbers[::-1]
    if name == "div" and rounded:
        name = "floordiv"
    try:
        return BUILTINS[{"minimum": "min", "maximum": "max"}.get(name, name)](*numbers)
    except (NotKnown, ArithmeticError, TypeError):
        return None


def _folded_dtype(name: str, args: list[Item], item: Item) -> DType:
    if name in TRUTHS:
        return DType.BOOL
    dtypes = [arg.dtype for arg in args if isinstance(arg, KnownTensor)]
    dtype = next((dtype for dtype in dtypes if dtype.is_float), dtypes[0])
    return DType.F32 if isinstance(item, float) and not dtype.is_float else dtype


def _is_real(item: Item) -> bool:
    return isinstance(item, float) or (isinstance(item, KnownTensor) and isinstance(item.number, float))
