"""Inductor's generated Python (`output_code.py`), parsed as data: nothing of it is executed."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from irscope.budget import spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions, stated
from irscope.frontends.inductor.plan import Held, Kernel, Made, Origin, Plan, loops_of, unknown_size
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.frontends.torch_lowering.signatures import Argument
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DTYPES_BY_TEXT, LONG_NAMES, DType
from irscope.ir.places import Loc
from irscope.ir.program import Program
from irscope.ir.types import TensorType, scalar

MOST_BYTES: Final = 64 << 20
"""The longest text: a wrapper of 10,000 kernels has 20 MB."""
_MOST_NESTED: Final = 200
"""Brackets and blocks within one another; what Inductor writes has less than ten, and Python's parser recurses."""
_ROWS: Final = (ast.Tuple, ast.List)
_ORIGINS = re.compile(r"(?:#|//)\s*Topologically Sorted Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_NODES = re.compile(r"#\s+(\S*) => (.+)")
_FRAGMENT = re.compile(r'#\s+%(\w+) : Tensor "(\w+)\[')
_PLACE = re.compile(r"^\s*# File: (.+):(\d+) in (.+?), code: (.*)$")
_ASSIGNED = re.compile(r'^\s+(\w+)\s*(?::\s*"[^"]*")?\s*= ')
_SIGNATURE = re.compile(r"'signature':\s*\{([^{}]*)\}")
_PARAMETER = re.compile(r"'(\w+)':\s*'([^']*)'")
_NUMBERED = re.compile(r"\b(\d{1,6}):\s*'([^']*)'")
_DEFINED = re.compile(r"@triton\.jit\s+def \w+\(([^()]*)\)")
_MUTATED = re.compile(r"'mutated_arg_names':\s*\[([^\[\]]*)\]")
_AOT_ID = re.compile(r"# AOT ID: \['(.*?)'\]")
_ALLOCATES = re.compile(r"empty_strided(?:_[a-z0-9]+(?:_pinned)?)?")
_SILENT: Final = frozenset(
    {
        "assert_alignment",
        "run_intermediate_hooks",
        "set_device",
        "synchronize",
        "start_graph",
        "end_graph",
        "clear",
        "wait",
        "maybe_profile",
    }
    | {"get_raw_stream", "record_stream", "manual_seed", "mark_step", "check_size"}
)
_STREAMS: Final = frozenset({"get_raw_stream", "get_cuda_stream", "current_stream", "get_external_object_by_index", "Stream", "Event"})
_KERNEL_DTYPES: Final[Mapping[str, DType]] = {
    **{name: dtype for name, dtype in DTYPES_BY_TEXT.items() if name[0] in "iu" and name[1:].isdigit()},
    **{f"{name}_t": dtype for name, dtype in LONG_NAMES.items() if name.startswith(("int", "uint"))},
    "fp64": DType.F64, "fp32": DType.F32, "fp16": DType.F16, "bf16": DType.BF16, "fp8e4nv": DType.F8E4M3FN, "fp8e5": DType.F8E5M2,
    "double": DType.F64, "float": DType.F32, "half": DType.F16, "bfloat16": DType.BF16, "bool": DType.BOOL, "i1": DType.BOOL,
}  # fmt: skip
"""Names of Triton and of C++."""
_FRAGMENT_DTYPES: Final[Mapping[str, DType]] = {**DTYPES_BY_TEXT, "b8": DType.BOOL}


class NotRead(Exception):
    """A statement that is none of those that Inductor is known to write."""


_Bound: TypeAlias = "Held | Dim | tuple[object, ...] | None"


@dataclass(frozen=True)
class Beside:
    """Places of operators by the name of the node, from the readable graph beside a wrapper."""

    places: Mapping[str, Loc] = field(default_factory=dict)


def places_of(text: str) -> dict[str, Loc]:
    """Source lines of the nodes of a graph that Inductor printed."""
    found: dict[str, Loc] = {}
    here: Loc | None = None
    for line in text.splitlines():
        match = _PLACE.match(line)
        if match:
            here = Loc(match[1], int(match[2]) if len(match[2]) < 10 else 0, match[3], match[4])
        elif here is not None and (made := _ASSIGNED.match(line)):
            found.setdefault(made[1], here)
    return found


def parse_code(text: str, path: str) -> ast.Module:
    """Return the syntax tree, refused where it nests deeper than generated code does."""
    _check_nesting(text, path)
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise LoadError(f"line {error.lineno or 0} is not Python ({error.msg})", code="IRS128", where=path, hint=_AGAIN) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise LoadError(f"the code cannot be parsed ({type(error).__name__})", code="IRS128", where=path, hint=_AGAIN) from None


_AGAIN: Final = "write it again with TORCH_COMPILE_DEBUG=1"
_OPERATOR_RUN: Final = re.compile(r"[-+~]{200}|(?:not\s+){100}|(?:\.\w+){300}|(?:lambda:?\s*){50}")
_LONGEST_CHAIN: Final = 2_000


def _check_nesting(text: str, path: str) -> None:
    """Raise where brackets nest, or one line has operators, beyond what the parser's own stack is sure to hold."""
    depth = 0
    for match in re.finditer(r"[(\[{]|[)\]}]", text):
        depth = depth + 1 if match[0] in "([{" else max(depth - 1, 0)
        if depth > _MOST_NESTED:
            raise LoadError(f"brackets are nested more than {_MOST_NESTED} deep", code="IRS128", where=path, hint=_AGAIN)
    for line in text.splitlines():
        if len(line) > 4 * _LONGEST_CHAIN and (_OPERATOR_RUN.search(line) or len(re.findall(r"[-+*/%@&|^<>]", line)) > _LONGEST_CHAIN):
            raise LoadError("a line is an expression of thousands of operators", code="IRS128", where=path, hint=_AGAIN)


def kernel_of_triton(source: str) -> Kernel:
    """Return what a Triton kernel writes, by the names that Inductor gives arguments, or that it lists as changed."""
    signature = _SIGNATURE.search(source)
    if signature is None:
        return Kernel(frozenset(), {}, known=False)
    mutated = _MUTATED.search(source)
    changed = set(re.findall(r"'(\w+)'", mutated[1])) if mutated else set()
    params = [(name, kind) for name, kind in _PARAMETER.findall(signature[1]) if kind != "constexpr"]
    if not params and (function := _DEFINED.search(source)):  # versions before 2.6 number them
        names = [name.strip().partition(":")[0].strip() for name in function[1].split(",")]
        params = [(names[int(place)], kind) for place, kind in _NUMBERED.findall(signature[1]) if int(place) < len(names)]
    written = frozenset(place for place, (name, _) in enumerate(params) if name in changed or name.startswith(("out_ptr", "in_out_ptr")))
    dtypes = {place: _KERNEL_DTYPES[kind[1:]] for place, (_, kind) in enumerate(params) if kind[:1] == "*" and kind[1:] in _KERNEL_DTYPES}
    return Kernel(written, dtypes, loops=loops_of(source, [name for name, _ in params]))


def kernel_of_c(params: Sequence[str]) -> Kernel:
    """Return what a C++ kernel writes: pointers that are not to constants."""
    written = frozenset(place for place, text in enumerate(params) if "*" in text and not text.strip().startswith("const"))
    names = {place: text.replace("const", "").replace("*", "").strip() for place, text in enumerate(params) if "*" in text}
    return Kernel(written, {place: _KERNEL_DTYPES[name] for place, name in names.items() if name in _KERNEL_DTYPES})


def operators_of(line: str) -> tuple[str, ...]:
    """Return the operators that a comment names for the call below it."""
    match = _ORIGINS.search(line)
    return tuple(dict.fromkeys(part.strip().removeprefix("aten.") for part in match[2].split(",") if part.strip())) if match else ()


class Wrapper:
    """Reads one wrapper."""

    def __init__(self, text: str, path: str, options: LoadOptions, sink: DiagnosticSink, beside: Beside) -> None:
        self._text = text
        self._path = path
        self._options = options
        self._beside = beside
        self.plan = Plan(path, sink)
        self._functions: dict[str, ast.FunctionDef] = {}
        self._kernels: dict[str, Kernel] = {}
        self._constants: dict[str, TensorType] = {}
        self._given: dict[str, TensorType | int] = {}
        """Inputs that the wrapper's own benchmark makes: their element types, and integers."""
        self._asserted: dict[str, tuple[ast.expr, ast.expr]] = {}
        self._dtypes: dict[str, DType] = {}
        self._scope: dict[str, _Bound] = {}
        self._launched: dict[int, Origin] = {}
        self._origin_lines: list[int] = []
        self._inline = 0
        self._scope_symbols: dict[str, str] = {}
        """Inputs that are sizes, with their symbols."""
        self._args = ""
        self._passed: Sequence[object] | None = None
        self._lines = text.splitlines()
        self._taken_apart: dict[str, dict[int, str]] | None = None

    def read(self) -> Program:
        """Return the program of the wrapper's `call`."""
        tree = parse_code(self._text, self._path)
        self._read_comments()
        self._read_module(tree)
        entry = self._functions.get("call")
        if entry is None:
            raise LoadError("the file has no function call(args), which every wrapper has", code="IRS128", where=self._path, hint=_AGAIN)
        self._look_ahead()
        outputs = self._run(entry, None)
        held = list(_held_in(outputs))
        aot = _AOT_ID.search(self._text[:400])
        return self.plan.finish(held, "inductor", {"producer": "Inductor", "graph": aot[1] if aot else ""}, self._examples())

    def _examples(self) -> dict[str, int]:
        """Return the sizes that the run had in which the wrapper was made."""
        return {symbol: size for name, symbol in self._scope_symbols.items() if isinstance(size := self._given.get(name), int)}

    # -- what is around the wrapper --------------------------------------------------------------------------------

    def _read_comments(self) -> None:
        """Read the comments, which name the operators of each kernel, and element types of buffers."""
        nodes: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(self._text.splitlines(), 1):
            if "#" not in line:
                continue
            if match := _ORIGINS.search(line):
                sources = [part.strip() for part in match[1].split(",")]
                self._origin_lines.append(number)
                self._launched[number] = Origin(operators_of(line), self._place(sources, nodes))
            elif match := _FRAGMENT.search(line):
                if match[2] in _FRAGMENT_DTYPES:
                    self._dtypes.setdefault(match[1], _FRAGMENT_DTYPES[match[2]])
            elif match := _NODES.search(line):
                nodes[match[1]] = tuple(part.strip() for part in match[2].split(","))

    def _place(self, sources: Iterable[str], nodes: Mapping[str, tuple[str, ...]]) -> Loc | None:
        """Return the place of the first of these nodes, of the last that the graph names."""
        places = self._beside.places
        for source in reversed(list(sources)):
            for name in (source, *nodes.get(source, ())):
                if name in places:
                    return places[name]
        return None

    def _read_module(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef) and node.name == "Runner":
                self._functions.update({item.name: item for item in node.body if isinstance(item, ast.FunctionDef)})
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._read_definition(node.targets[0].id, node.value)
        for name in ("get_args", "benchmark_compiled_module"):
            if name in self._functions:
                self._read_given(self._functions[name])

    def _read_definition(self, name: str, value: ast.expr) -> None:
        """Read a kernel, or a constant of the module."""
        if not isinstance(value, ast.Call):
            return
        how = _last_name(value.func)
        texts = [arg.value for arg in value.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if how in ("triton", "user_autotune", "jit") and texts:
            self._kernels[name] = kernel_of_triton(texts[-1])
        elif how in ("cpp_pybinding", "cpp") and value.args and isinstance(value.args[0], ast.List):
            params = [item.value for item in value.args[0].elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            self._kernels[name] = kernel_of_c(params)
        elif how == "multi_kernel" and len(value.args) == 2 and isinstance(value.args[1], ast.List) and value.args[1].elts:
            first = value.args[1].elts[0]  # they differ in speed alone
            self._kernels[name] = self._kernels.get(first.id if isinstance(first, ast.Name) else "", Kernel(frozenset(), {}, known=False))
        elif _root_name(value.func) == "async_compile":
            self._kernels[name] = Kernel(frozenset(), {}, known=False)

    def _read_given(self, function: ast.FunctionDef) -> None:
        for node in function.body:
            if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
                continue
            name, value = node.targets[0].id, node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and not isinstance(value.value, bool):
                self._given[name] = value.value
            elif isinstance(value, ast.Call) and _last_name(value.func) in ("rand_strided", "as_strided") and len(value.args) >= 2:
                keywords = {item.arg: item.value for item in value.keywords}
                source = value.args[0]
                shared = self._given.get(source.id) if isinstance(source, ast.Name) else None
                dtype = (
                    _dtype(keywords.get("dtype")) if shared is None else shared.dtype if isinstance(shared, TensorType) else DType.UNKNOWN
                )
                place = 0 if _last_name(value.func) == "rand_strided" else 1
                if len(value.args) < place + 2:
                    continue
                shape, strides = self._sizes(value.args[place]), self._sizes(value.args[place + 1])
                self._given[name] = self.plan.type_of(dtype, shape, strides, _device(keywords.get("device")))

    def _look_ahead(self) -> None:
        """Look up the sizes that the wrapper asserts of results, and element types that kernels have for them."""
        for function in self._functions.values():
            for name, sizes, strides in _asserted_in(function):
                if isinstance(sizes, _ROWS) and isinstance(strides, _ROWS):
                    self._asserted.setdefault(name, (sizes, strides))
            for node in _statements(function.body):
                call = node.value if isinstance(node, ast.Expr) else None
                if not isinstance(call, ast.Call):
                    continue
                kernel = self._kernel_called(call)
                if kernel is not None:
                    for place, arg in enumerate(call.args):
                        if isinstance(arg, ast.Name) and place in kernel[1].dtypes:
                            self._dtypes.setdefault(arg.id, kernel[1].dtypes[place])

    def _kernel_called(self, call: ast.Call) -> tuple[str, Kernel] | None:
        """Return the kernel that a call launches: `name.run(...)` of Triton, `name(...)` of C++."""
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "run" and isinstance(func.value, ast.Name):
            return func.value.id, self._kernels.get(func.value.id, Kernel(frozenset(), {}, known=False))
        if isinstance(func, ast.Name) and func.id in self._kernels:
            return func.id, self._kernels[func.id]
        return None

    # -- functions -------------------------------------------------------------------------------------------------

    def _run(self, function: ast.FunctionDef, given: Sequence[object] | None) -> object:
        """Follow a function's statements; what it returns. Partitions of a graph are functions that `call` calls."""
        if self._inline > 1:
            raise LoadError("partitions of the graph call one another", code="IRS128", where=self._path, hint=_AGAIN)
        self._inline += 1
        outer, self._scope = self._scope, {}
        names = [arg.arg for arg in function.args.args if arg.arg != "self"]
        self._args = names[0] if names else "args"
        self._passed = given
        result: object = None
        done = False
        for node in _statements(function.body):
            if isinstance(node, ast.Return):
                if node.value is not None:
                    result = self._returned(node.value, function.name)
                done = True
                break
            self._statement(node)
        if not done and function.name == "call":
            raise LoadError("its function call(args) returns nothing", code="IRS128", where=self._path, hint=_AGAIN)
        for one in _held_in(result):
            self.plan.hold(one)
        for bound in self._scope.values():
            for one in _held_in(bound):
                self.plan.drop(one)
        self._scope = outer
        self._inline -= 1
        return result

    def _statement(self, node: ast.stmt) -> None:
        spend(30, "statements of the wrapper")
        try:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._do(node.value)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._bind(target.id, None)
                        self._scope.pop(target.id, None)
                    else:
                        raise NotRead
            elif isinstance(node, ast.Pass | ast.Import | ast.ImportFrom | ast.Global | ast.Assert) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                return
            else:
                raise NotRead
        except NotRead:
            operands = [
                bound
                for part in ast.walk(node)
                if isinstance(part, ast.Name) and isinstance(bound := self._scope.get(part.id), Held) and isinstance(part.ctx, ast.Load)
            ]
            text = self._text_of(node)
            self.plan.not_read(node.lineno, text, operands)
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    self._bind(part.id, self._unknown(part.id))

    def _unknown(self, name: str) -> Held | None:
        """A name that a line defined which was not understood: a tensor of which nothing more is known than what is asserted of it."""
        if name not in self._asserted:
            return None
        made = self._made(name)
        found = self.plan.call("inductor::unread", None, [], {}, {0: made}, Origin())
        return found[0]

    def _text_of(self, node: ast.stmt) -> str:
        return self._lines[node.lineno - 1].strip() if 0 < node.lineno <= len(self._lines) else ""

    def _bind(self, name: str, to: _Bound) -> None:
        """Let a name stand for something; what it stood for has a name less."""
        for one in _held_in(to):
            self.plan.hold(one, name if one is to else "")
        for one in _held_in(self._scope.get(name)):
            self.plan.drop(one)
        self._scope[name] = to

    # -- statements ------------------------------------------------------------------------------------------------

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            names = [item.id for item in target.elts if isinstance(item, ast.Name)]
            if len(names) != len(target.elts):
                raise NotRead
            self._unpack(names, value)
            return
        if isinstance(target, ast.Subscript) and isinstance(value, ast.Constant) and value.value is None:
            return
        if not isinstance(target, ast.Name):
            raise NotRead
        name = target.id
        if name.startswith(("raw_stream", "stream")) or (isinstance(value, ast.Call) and _last_name(value.func) in _STREAMS):
            return
        if isinstance(value, ast.List | ast.Tuple):
            items = tuple([self._argument(item) for item in value.elts])
            self._bind(name, items)
            return
        if isinstance(value, ast.Name) and value.id in self._scope:
            found = self._scope[value.id]
            if isinstance(found, Held):
                self.plan.reused += value.id != name
            elif name.startswith("s") and name[1:].isdigit():
                self._scope_symbols[value.id] = name
                found = self.plan.symbols.get(name)
            self._bind(name, found)
            return
        self._bind(name, self._evaluate(name, value))

    def _unpack(self, names: Sequence[str], value: ast.expr) -> None:
        """Unpack inputs, or several results of a call."""
        if isinstance(value, ast.Name) and value.id == self._args:
            if self._passed is None:
                self._declare(names)
            else:
                for name, one in zip(names, self._passed, strict=False):
                    self._bind(name, one)  # type: ignore[arg-type]
            return
        if isinstance(value, ast.Call):
            made = self._call_results(value, {place: name for place, name in enumerate(names)})
            for name, one in zip(names, made, strict=False):
                self._bind(name, one)
            return
        raise NotRead

    def _declare(self, names: Sequence[str]) -> None:
        symbols = self._integer_inputs()
        options = self._options.for_inputs([name for name in names if name not in symbols])
        for place, name in enumerate(names):
            spend(30, "inputs of the wrapper")
            given = self._given.get(name)
            if name in symbols or isinstance(given, int):
                self.plan.graph.add_input(scalar(DType.I64), self.plan.names.unique(name))
                self._scope[name] = self.plan.symbols.get(symbols[name]) if name in symbols else None
                continue
            dtype = given.dtype if isinstance(given, TensorType) else self._dtypes.get(name, DType.UNKNOWN)
            if name in self._asserted:
                shape, strides = (self._sizes(part) for part in self._asserted[name])
                type_ = self.plan.type_of(dtype, shape, strides)
            else:
                type_ = given if isinstance(given, TensorType) else self.plan.type_of(dtype, None, None)
            said = options.inputs.get(name) or options.inputs.get(str(place))
            if isinstance(said, TensorType):
                found = stated(said, type_, name)
                type_ = found if isinstance(found, TensorType) else type_
            self._bind(name, self.plan.declare(name, type_))

    def _integer_inputs(self) -> dict[str, str]:
        """Return the inputs that are sizes, with the symbol that the wrapper names each after."""
        found: dict[str, str] = {}
        for node in _statements(self._functions["call"].body):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Name)
                and isinstance(node.targets[0], ast.Name)
                and re.fullmatch(r"s\d+", node.targets[0].id)
            ):
                found[node.value.id] = node.targets[0].id
        self._scope_symbols = dict(found)
        return found

    def _evaluate(self, name: str, value: ast.expr) -> _Bound:
        """Return what an expression stands for that is given a name."""
        if isinstance(value, ast.Call):
            how = _last_name(value.func)
            if _ALLOCATES.fullmatch(how) or how == "empty":
                return self._allocate(name, value, how)
            if how == "reinterpret_tensor":
                self.plan.reused += 1
                return self._view(name, value)
            if how in ("copy_if_misaligned", "copy_misaligned", "maybe_copy", "as_storage_and_layout") and value.args:
                return self._tensor(value.args[0])
            if how == "alloc_from_pool" and len(value.args) == 5:
                pool, _, dtype, shape, strides = value.args
                of = self._tensor(pool)
                type_ = self.plan.type_of(_dtype(dtype), self._sizes(shape), self._sizes(strides))
                return self.plan.view(name, of, type_, self._size(value.args[1]), self._loc(value))
            if how == "item" and isinstance(value.func, ast.Attribute):
                self._tensor(value.func.value)
                return self.plan.symbols.get(name) if re.fullmatch(r"u\d+", name) else unknown_size(value.lineno)
            if how == "size" and isinstance(value.func, ast.Attribute):
                return self._tensor(value.func.value).type.shape
            parts = self._parts.get(name)
            made = self._call_results(value, {0: name} if parts is None else parts)
            if how == "partitions" or parts is not None:
                return tuple(made)
            return made[0] if made else None
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            found = self._scope.get(value.value.id)
            place = value.slice.value if isinstance(value.slice, ast.Constant) else None
            if isinstance(found, tuple) and isinstance(place, int) and 0 <= place < len(found):
                item = found[place]
                return item if isinstance(item, Held | int | SymDim) else None
        size = self._size_or_none(value)
        if size is None:
            raise NotRead
        return size

    def _do(self, call: ast.Call) -> None:
        """Follow a call whose result has no name."""
        how = _last_name(call.func)
        launched = self._kernel_called(call)
        if launched is not None:
            self._launch(call, *launched)
            return
        if how.startswith("assert_size_stride") or how in _SILENT or _dotted(call.func).startswith("torch.ops.streams."):
            return
        for result in self._call_results(call, {}):
            if result is not None:
                self.plan.hold(result)
                self.plan.drop(result)

    def _allocate(self, name: str, call: ast.Call, how: str) -> Held:
        keywords = {item.arg: item.value for item in call.keywords}
        args = list(call.args)
        if len(args) < 2:
            raise NotRead
        dtype = _dtype(args[2] if len(args) > 2 else keywords.get("dtype"))
        device = how.removeprefix("empty_strided").strip("_") or _device(keywords.get("device"))
        type_ = self.plan.type_of(dtype, self._sizes(args[0]), self._sizes(args[1]), device)
        return self.plan.empty(name, type_, self._loc(call))

    def _view(self, name: str, call: ast.Call) -> Held:
        if len(call.args) != 4:
            raise NotRead
        of = self._tensor(call.args[0])
        type_ = self.plan.type_of(of.type.dtype, self._sizes(call.args[1]), self._sizes(call.args[2]))
        return self.plan.view(name, of, type_, self._size(call.args[3]), None)

    def _launch(self, call: ast.Call, name: str, kernel: Kernel) -> None:
        given = [self._argument(arg) for arg in call.args]
        operands = [one if isinstance(one, Held) else None for one in given]
        sizes = {place: one for place, one in enumerate(given) if isinstance(one, int | SymDim)}
        made = self.plan.launch(name, kernel, operands, self._origin(call), sizes)
        self._rebind(call.args, made)

    def _rebind(self, args: Sequence[ast.expr], made: Mapping[int, Held]) -> None:
        for place, one in made.items():
            arg = args[place]
            if isinstance(arg, ast.Name):
                self._bind(arg.id, one)

    def _call_results(self, call: ast.Call, names: Mapping[int, str]) -> list[Held | None]:
        """Return what a call of a library makes, or of a part of the graph."""
        if isinstance(call.func, ast.Subscript) and _last_name(call.func.value) == "partitions":
            return self._partition(call, call.func.slice)
        name, overload = _operator(_dotted(call.func))
        named = {item.arg: self._argument(item.value) for item in call.keywords if item.arg is not None}
        positional = [self._argument(arg) for arg in call.args]
        out = named.pop("out", None)
        results = {place: self._made(one) for place, one in names.items()}
        made = self.plan.call(name, overload, positional, named, results, self._origin(call), [out] if isinstance(out, Held) else [])
        if isinstance(out, Held) and made:
            keyword = next(item.value for item in call.keywords if item.arg == "out")
            if isinstance(keyword, ast.Name):
                self._bind(keyword.id, made[0])
            return []
        return list(made)

    def _partition(self, call: ast.Call, index: ast.expr) -> list[Held | None]:
        number = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else -1
        function = self._functions.get(f"partition_{number}")
        if function is None or len(call.args) != 1:
            raise NotRead
        passed = self._argument(call.args[0])
        if not isinstance(passed, tuple):
            raise NotRead
        saved = self._args, self._passed
        result = self._run(function, passed)
        self._args, self._passed = saved
        items = result if isinstance(result, tuple) else (result,)
        return [item if isinstance(item, Held) else None for item in items]

    @property
    def _parts(self) -> dict[str, dict[int, str]]:
        if self._taken_apart is None:
            self._taken_apart = {}
            for function in self._functions.values():
                for node in _statements(function.body):
                    if (
                        isinstance(node, ast.Assign)
                        and isinstance(node.value, ast.Subscript)
                        and isinstance(node.value.value, ast.Name)
                        and isinstance(node.value.slice, ast.Constant)
                        and isinstance(node.value.slice.value, int)
                        and 0 <= node.value.slice.value < 64
                        and isinstance(node.targets[0], ast.Name)
                    ):
                        self._taken_apart.setdefault(node.value.value.id, {}).setdefault(node.value.slice.value, node.targets[0].id)
        return self._taken_apart

    def _made(self, name: str) -> Made:
        dtype = self._dtypes.get(name, DType.UNKNOWN)
        if name not in self._asserted:
            return Made(name, None, None, dtype)
        shape, strides = self._asserted[name]
        return Made(name, self._sizes(shape), self._sizes(strides), dtype)

    # -- expressions -----------------------------------------------------------------------------------------------

    def _operand(self, arg: ast.expr) -> Held | None:
        found = self._argument(arg)
        return found if isinstance(found, Held) else None

    def _tensor(self, arg: ast.expr) -> Held:
        found = self._operand(arg)
        if found is None:
            raise NotRead
        return found

    def _argument(self, arg: ast.expr) -> Argument:
        if isinstance(arg, ast.Constant):
            return arg.value
        if isinstance(arg, ast.Name):
            if arg.id in self._scope:
                return self._scope[arg.id]
            if arg.id in ("inf", "nan"):
                return float(arg.id)
            if re.fullmatch(r"[su]\d+", arg.id):
                return self.plan.symbols.get(arg.id)
            return None
        if isinstance(arg, ast.Tuple | ast.List):
            return tuple([self._argument(item) for item in arg.elts])
        if isinstance(arg, ast.Call) and _last_name(arg.func) == "reinterpret_tensor":
            inner = arg.args[0] if arg.args else None
            return self._view(inner.id if isinstance(inner, ast.Name) else "view", arg)
        if isinstance(arg, ast.Call) and _last_name(arg.func) == "device":
            return _device(arg)
        if isinstance(arg, ast.Attribute):
            dtype = _dtype(arg)
            return None if dtype is DType.UNKNOWN else dtype
        if isinstance(arg, ast.UnaryOp) and isinstance(arg.op, ast.USub) and isinstance(arg.operand, ast.Constant):
            number = arg.operand.value
            return -number if isinstance(number, int | float) else None
        return self._size_or_none(arg)

    def _sizes(self, node: ast.expr) -> tuple[Dim, ...]:
        if not isinstance(node, _ROWS):
            raise NotRead
        return tuple([self._size(item) for item in node.elts])

    def _size(self, node: ast.expr) -> Dim:
        found = self._size_or_none(node)
        return unknown_size(node.lineno) if found is None else found

    def _size_or_none(self, node: ast.expr) -> Dim | None:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
        if isinstance(node, ast.Name):
            found = self._scope.get(node.id)
            if isinstance(found, int | SymDim):
                return found
            return self.plan.symbols.get(node.id) if re.fullmatch(r"[suz]\d+", node.id) else None
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(size := self._scope.get(part.id), int | SymDim):
                    self.plan.symbols.assigned[part.id] = size
            return self.plan.symbols.parse(_FUNCTION.sub(lambda match: _RENAMED[match[0]], ast.unparse(node)))
        return None

    def _origin(self, node: ast.expr) -> Origin:
        """Return the comment that stands above a call, behind the call before it."""
        place = bisect_left(self._origin_lines, node.lineno) - 1
        found = self._launched[self._origin_lines[place]] if place >= 0 and node.lineno - self._origin_lines[place] < _NEAR else None
        return found or Origin((), self._loc(node))

    def _loc(self, node: ast.expr) -> Loc:
        return Loc(self._path, node.lineno)

    def _returned(self, value: ast.expr, function: str) -> object:
        items = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        try:
            return tuple([self._argument(item) for item in items])
        except NotRead:
            raise LoadError(f"what its function {function} returns cannot be read", code="IRS128", where=self._path, hint=_AGAIN) from None


_NEAR: Final = 12
"""Lines between a comment and the call that it is about, at most."""
_FUNCTION = re.compile(r"\bmax\(|\bmin\(|\bmath\.floor\(|\bmath\.ceil\(|\bint\(")
_RENAMED: Final = {"max(": "Max(", "min(": "Min(", "math.floor(": "floor(", "math.ceil(": "ceiling(", "int(": "Integer("}


def _statements(body: Sequence[ast.stmt]) -> Iterable[ast.stmt]:
    """Yield the statements in order; blocks that only set a device or a profiler's range stand in line."""
    pending = [iter(body)]
    while pending:
        node = next(pending[-1], None)
        if node is None:
            pending.pop()
        elif isinstance(node, ast.With):
            pending.append(iter(node.body))
        else:
            yield node


def _held_in(one: object) -> Iterable[Held]:
    if isinstance(one, Held):
        yield one
    elif isinstance(one, tuple):
        for item in one:
            if isinstance(item, Held):
                yield item


def _asserted_in(function: ast.FunctionDef) -> Iterable[tuple[str, ast.expr, ast.expr]]:
    """Yield the names of tensors with the sizes and strides that the function asserts of them."""
    older: dict[str, dict[str, ast.expr]] = {}
    for node in _statements(function.body):
        if isinstance(node, ast.Assert) and (said := _asserted_size(node.test)) is not None:
            name, what, value = said
            parts = older.setdefault(name, {})
            parts[what] = value
            if len(parts) == 2:
                yield name, parts["size"], parts["stride"]
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or len(call.args) < 3:
            continue
        how = _last_name(call.func)
        if how == "assert_size_stride" and isinstance(call.args[0], ast.Name):
            yield call.args[0].id, call.args[1], call.args[2]
        elif how == "assert_size_stride_grouped":
            groups = [one.elts for one in call.args[:3] if isinstance(one, ast.Tuple | ast.List)]
            for tensor, sizes, strides in zip(*groups, strict=False) if len(groups) == 3 else ():
                if isinstance(tensor, ast.Name):
                    yield tensor.id, sizes, strides


def _asserted_size(test: ast.expr) -> tuple[str, str, ast.expr] | None:
    """Return the name in `buf0.size() == (...)` or `buf0.stride() == (...)`, as the first versions of Inductor assert sizes."""
    if not (isinstance(test, ast.Compare) and len(test.comparators) == 1 and isinstance(test.left, ast.Call)):
        return None
    func = test.left.func
    if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.attr in ("size", "stride")):
        return None
    return func.value.id, func.attr, test.comparators[0]


def _last_name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _operator(full: str) -> tuple[str, str | None]:
    """Return the operator, and its overload where it is named, that a call of a library means."""
    if full.startswith("extern_kernels."):
        return full.removeprefix("extern_kernels."), None
    if full.startswith(("torch.ops.", "aten.", "inductor_ops.", "_quantized.")):
        parts = full.removeprefix("torch.ops.").split(".")
        parts[0] = {"inductor_ops": "inductor"}.get(parts[0], parts[0])
        name = parts[1] if parts[0] == "aten" and len(parts) > 1 else "::".join(parts[:2])
        return name, parts[2] if len(parts) > 2 else None
    if full.startswith("torch.") and full.count(".") == 1:
        return full.removeprefix("torch."), None
    raise NotRead


def _root_name(func: ast.expr) -> str:
    return _dotted(func).partition(".")[0]


def _dotted(func: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(func, ast.Attribute):
        parts.append(func.attr)
        func = func.value
    if isinstance(func, ast.Name):
        parts.append(func.id)
    return ".".join(reversed(parts))


def _dtype(node: ast.expr | None) -> DType:
    return NAMED_DTYPES.get(_last_name(node), DType.UNKNOWN) if node is not None else DType.UNKNOWN


def _device(node: ast.expr | None) -> str:
    """Return the kind of a device, as "cuda" of "cuda:0"."""
    if isinstance(node, ast.Call):
        keywords = {item.arg: item.value for item in node.keywords}
        node = node.args[0] if node.args else keywords.get("type")
    return node.value.partition(":")[0] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
