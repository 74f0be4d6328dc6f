"""Packages of AOTInductor: a zip archive with generated C++, the library that it was compiled to, kernels and weights."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from irscope.budget import admit, spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions, stated
from irscope.frontends.files.archive import Archive
from irscope.frontends.inductor.plan import Held, Kernel, Made, Origin, Plan, unknown_size
from irscope.frontends.inductor.wrapper import MOST_BYTES, kernel_of_c, kernel_of_triton, operators_of
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.frontends.torch_lowering.signatures import Argument
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Role, paused_gc
from irscope.ir.places import Loc
from irscope.ir.program import Program
from irscope.ir.types import TensorType

_AGAIN: Final = "package the model again with torch._inductor.aoti_compile_and_package"
_ROLES: Final = {"Parameter": Role.PARAMETER, "Buffer": Role.BUFFER}
_INFO = re.compile(r"\s*(inputs|constants|outputs)_info_\[(\d{1,7})\]\.(\w+) = (.*);\s*$")
_DTYPE = re.compile(r"cached_torch_dtype_(\w+)")
_DEVICE = re.compile(r"cached_torch_device_type_(\w+)")
_INPUT = re.compile(r"auto (\w+) = std::move\(inputs\[(\d{1,7})\]\);$")
_CONSTANT = re.compile(r"(?:\[\[maybe_unused\]\] )?auto&? (\w+) = constants_->at\((\d{1,7})\);$")
_SIZES = re.compile(r"auto (\w+)_size = (\w+)\.sizes\(\);$")
_SYMBOL = re.compile(r"(?:const )?(?:int64_t|auto) (s\d+) = (\w+)_size\[(\d{1,3})\];$")
_SIZE = re.compile(r"(?:const )?(?:int64_t|auto) (\w+) = ([^{}]*);$")
_ARRAY = re.compile(r"(?:static )?(?:constexpr |const )?int64_t (\w+)\[\] = \{(.*)\};$")
_NO_ARRAY = re.compile(r"static constexpr int64_t \*(\w+)=nullptr;$")
_REUSE = re.compile(r"auto (\w+) = std::move\((\w+)\);$")
_OWNED = re.compile(r"RAIIAtenTensorHandle (\w+)\((\w+)\);$")
_RESET = re.compile(r"(\w+)\.reset\(\);$")
_CALL = re.compile(r"AOTI_TORCH_ERROR_CODE_CHECK\((\w+)\((.*)\)\);$")
_LAUNCH = re.compile(r"(?:call_)?(\w+)\((.*)\);$")
_WRAPPED = re.compile(r"(?:auto|RAIIAtenTensorHandle) (\w+) = (.*reinterpret_tensor_wrapper\(.*);$")
_OUTPUT = re.compile(r"output_handles\[(\d{1,7})\] = (.*);$")
_ASSERTED = re.compile(r"assert_size_stride\((\w+), \{(.*?)\}, \{(.*?)\}")
_SHIM = re.compile(r"aoti_torch_(cpu|cuda|xpu|mps)_(\w+)$")
_SILENT = re.compile(
    r"AtenTensorHandle \w+;|inputs\.clear\(\);|(?:\[\[maybe_unused\]\] )?auto& kernels = |AOTI\w*StreamGuard |__check_inputs_outputs"
    r"|auto inputs = |if \(.*\) \{ assert_size_stride\(.*\}$|assert_(?:size_stride|numel|alignment)\(|\}|RECORD_FUNCTION|static_cast<void>"
    r"|(?:auto|cudaStream_t|CUstream) \w*stream\w* = "
)
_ALIGNED: Final = "if ((reinterpret_cast<std::uintptr_t>("
_TRITON = re.compile(r"async_compile\.triton\('(\w+)'")
_C_KERNEL = re.compile(r'extern "C"\s+(?:__attribute__\(\(\w+\)\)\s+)?void\s+(\w+)\(([^()]*)\)')


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, with the line at which it begins."""

    line: int
    text: str


class CppWrapper:
    """Reads one wrapper of AOTInductor."""

    def __init__(self, text: str, kernels: str, path: str, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._text = text
        self._lines = text.splitlines()
        self._path = path
        self._options = options
        self.plan = Plan(path, sink)
        self._kernels = {**_kernels_of_c(kernels), **_kernels_of_c(text), **_kernels_of_triton(text)}
        self._info: dict[str, dict[int, dict[str, str]]] = {"inputs": {}, "constants": {}, "outputs": {}}
        self._scope: dict[str, Held] = {}
        self._arrays: dict[str, tuple[Dim, ...]] = {}
        self._handles: dict[str, Held] = {}
        self._asserted: dict[str, tuple[str, str]] = {}
        self._origins: list[tuple[int, Origin]] = []
        self._dtypes: dict[str, DType] = {}
        self._outputs: dict[int, Held] = {}

    def read(self) -> Program:
        """Return the program of the model's run_impl."""
        first = self._start()
        self._read_infos()
        statements = list(self._statements(first))
        for statement in statements:
            if match := _ASSERTED.search(statement.text):
                self._asserted.setdefault(match[1], (match[2], match[3]))
        for statement in statements:
            spend(30, "statements of the wrapper")
            self._statement(statement)
        for held in reversed(self._scope.values()):  # C++ destroys what is left in the order opposite to that of its declarations
            self.plan.drop(held)
        outputs = [self._outputs[place] for place in sorted(self._outputs)]
        return self.plan.finish(outputs, "aoti", {"producer": "AOTInductor"}, {})

    def _start(self) -> int:
        """Return the first line of the body of run_impl."""
        for number, line in enumerate(self._lines):
            if line.startswith("void AOTInductorModel::run_impl("):
                opened = next((at for at in range(number, min(number + 40, len(self._lines))) if self._lines[at].startswith(") {")), None)
                if opened is not None:
                    return opened + 1
        raise LoadError("the code has no AOTInductorModel::run_impl", code="IRS128", where=self._path, hint=_AGAIN)

    def _read_infos(self) -> None:
        for line in self._lines:
            match = _INFO.match(line)
            if match:
                self._info[match[1]].setdefault(int(match[2]), {})[match[3]] = match[4]

    def _statements(self, first: int) -> Iterator[Statement]:
        """Yield the statements of the function, each in one text; comments tell where operators come from."""
        pending: list[str] = []
        begun = skipping = 0
        for number in range(first, len(self._lines)):
            line = self._lines[number].strip()
            if line.startswith("} // AOTInductorModel::run_impl"):
                return
            if skipping:
                skipping += line.count("{") - line.count("}")
                continue
            if line.startswith("//"):
                operators = operators_of(line)
                if operators:
                    self._origins.append((number + 1, Origin(operators, Loc(self._path, number + 1))))
                continue
            if not line:
                continue
            if line.startswith(_ALIGNED):
                skipping = line.count("{") - line.count("}")
                continue
            if not pending:
                begun = number + 1
            pending.append(line.partition("  // ")[0].strip())
            if pending[-1].endswith((";", "{", "}")) or len(pending) > 200:
                yield Statement(begun, " ".join(pending))
                pending = []
        raise LoadError("the code ends within AOTInductorModel::run_impl", code="IRS128", where=self._path, hint=_AGAIN)

    # -- statements ------------------------------------------------------------------------------------------------

    def _statement(self, statement: Statement) -> None:
        text = statement.text
        if not (self._declares(statement) or self._moves(text) or self._calls(statement)) and not _SILENT.match(text):
            found = [self._scope[name] for name in dict.fromkeys(re.findall(r"\w+", text)) if name in self._scope]
            self.plan.not_read(statement.line, text, found)

    def _declares(self, statement: Statement) -> bool:
        """Inputs, constants, sizes and arrays of sizes."""
        text = statement.text
        if match := _INPUT.match(text):
            self._input(match[1], int(match[2]))
        elif match := _CONSTANT.match(text):
            self._constant(match[1], int(match[2]), statement)
        elif match := _SIZES.match(text):
            return match[2] in self._scope
        elif match := _SYMBOL.match(text):
            self.plan.symbols.get(match[1])
        elif match := _ARRAY.match(text):
            self._arrays[match[1]] = self._sizes(match[2], statement)
        elif match := _NO_ARRAY.match(text):
            self._arrays[match[1]] = ()
        elif (match := _SIZE.match(text)) and (size := self._size(match[2])) is not None:
            self.plan.symbols.assigned[match[1]] = size
        else:
            return False
        return True

    def _moves(self, text: str) -> bool:
        """Names that are given to what is there, and that go."""
        if match := _REUSE.match(text):
            if match[2] not in self._scope:
                return False
            self.plan.reused += 1
            self._bind(match[1], self._scope[match[2]])
            self._unbind(match[2])
        elif match := _OWNED.match(text):
            if match[2] not in self._handles:
                return False
            self._bind(match[1], self._handles.pop(match[2]))
        elif match := _RESET.match(text):
            if match[1] not in self._scope:
                return False
            self._unbind(match[1])
        elif match := _WRAPPED.match(text):
            held = self._tensor(match[2], match[1])
            if held is None:
                return False
            self._bind(match[1], held)
        elif match := _OUTPUT.match(text):
            held = self._tensor(match[2].removesuffix(".release()"), "output")
            if held is None:
                return False
            self.plan.hold(held)
            self._outputs[int(match[1])] = held
        else:
            return False
        return True

    def _calls(self, statement: Statement) -> bool:
        """Allocations, kernels, operators of libraries."""
        if match := _CALL.match(statement.text):
            name, args = match[1], _arguments(match[2])
            if name.startswith("aoti_torch_empty_strided") and len(args) == 7:
                return self._allocate(args, statement)
            shim = _SHIM.match(name)
            return shim is not None and self._operator(shim[2], args, statement)
        match = _LAUNCH.match(statement.text)
        if match and (match[1] in self._kernels or statement.text.startswith(("call_", "cpp_fused_"))):
            args = _arguments(match[2])
            kernel = self._kernels.get(match[1], Kernel(frozenset(), {}, known=False))
            operands = [self._tensor(arg, "") for arg in args]
            numels = kernel.loops.places.values() if kernel.loops is not None else ()
            sizes = {place: size for place in numels if place < len(args) and (size := self._size(args[place])) is not None}
            made = self.plan.launch(match[1], kernel, operands, self._origin(statement), sizes)
            for place, held in made.items():
                name = _plain_name(args[place])
                if name in self._scope:
                    self._bind(name, held)
            return True
        return False

    def _allocate(self, args: Sequence[str], statement: Statement) -> bool:
        sizes, strides = self._array(args[1]), self._array(args[2])
        if sizes is None or strides is None or not args[6].startswith("&"):
            return False
        device = _DEVICE.search(args[4])
        type_ = self.plan.type_of(_dtype(args[3]), sizes, strides, device[1] if device else "")
        handle = args[6][1:]
        self._handles[handle] = self.plan.empty(handle.removesuffix("_handle"), type_, Loc(self._path, statement.line))
        return True

    def _operator(self, name: str, args: list[str], statement: Statement) -> bool:
        """A function of PyTorch's C interface: results are the last arguments, or the first ones where its name ends in `_out`."""
        handles = [arg[1:] for arg in args if arg.startswith("&") and arg.endswith("_handle")]
        given = [arg for arg in args if not (arg.startswith("&") and arg.endswith("_handle"))]
        out: list[Held] = []
        if name.endswith("_out") and given:
            first = self._tensor(given[0], "out")
            if first is None:
                return False
            out, written, given = [first], _plain_name(given[0]), given[1:]
        positional: list[Argument] = []
        skip = False
        for arg in given:
            if skip:  # the length of the array before it
                skip = False
                continue
            value, skip = self._argument(arg)
            positional.append(value)
        results: dict[int, Made] = {}
        for place, handle in enumerate(handles):
            results[place] = self._made(handle.removesuffix("_handle"), statement)
        made = self.plan.call(name.removesuffix("_out"), None, positional, {}, results, self._origin(statement), out)
        if out:
            if made and written in self._scope:
                self._bind(written, made[0])
        else:
            self._handles.update(dict(zip(handles, made, strict=False)))
        return True

    # -- inputs and constants --------------------------------------------------------------------------------------

    def _input(self, name: str, place: int) -> None:
        dtype = DType.UNKNOWN
        shape = strides = None
        if name in self._asserted:
            first = Statement(0, "")
            shape, strides = (self._sizes(text, first) for text in self._asserted[name])
        checked = re.search(rf"{re.escape(name)}_expected_dtype = aoti_torch_dtype_(\w+)\(\)", self._text)
        if checked:
            dtype = NAMED_DTYPES.get(checked[1], DType.UNKNOWN)
        dtype = self._dtype_by_use(name) if dtype is DType.UNKNOWN else dtype
        type_ = self.plan.type_of(dtype, shape, strides)
        options = self._options.for_inputs([item.get("name", "").strip('"') for item in self._info["inputs"].values()])
        said = options.inputs.get(name) or options.inputs.get(str(place))
        if isinstance(said, TensorType):
            found = stated(said, type_, name)
            type_ = found if isinstance(found, TensorType) else type_
        self._bind(name, self.plan.declare(name, type_))

    def _dtype_by_use(self, name: str) -> DType:
        """Return the element type with which kernels read a tensor."""
        if not self._dtypes:
            for line in self._lines:
                match = _LAUNCH.match(line.strip())
                kernel = self._kernels.get(match[1]) if match else None
                if match and kernel is not None:
                    for place, arg in enumerate(_arguments(match[2])):
                        if place in kernel.dtypes:
                            self._dtypes.setdefault(_plain_name(arg), kernel.dtypes[place])
        return self._dtypes.get(name, DType.UNKNOWN)

    def _constant(self, name: str, place: int, statement: Statement) -> None:
        info = self._info["constants"].get(place)
        if info is None:
            self.plan.not_read(statement.line, statement.text)
            return
        shape = self._sizes(info.get("shape", "").strip("{} "), statement)
        strides = self._sizes(info.get("stride", "").strip("{} "), statement)
        role = _ROLES.get(info.get("type", "").rpartition("::")[2].rstrip(")"), Role.CONSTANT)
        type_ = self.plan.type_of(_dtype(info.get("dtype", "")), shape, strides)
        fqn = info.get("original_fqn", "").strip('"') or name
        self._bind(name, self.plan.constant(fqn, type_, role))

    # -- names and expressions -------------------------------------------------------------------------------------

    def _bind(self, name: str, held: Held) -> None:
        self.plan.hold(held, name)
        before = self._scope.get(name)
        self._scope[name] = held
        if before is not None:
            self.plan.drop(before)

    def _unbind(self, name: str) -> None:
        self.plan.drop(self._scope.pop(name))

    def _tensor(self, text: str, name: str) -> Held | None:
        """Return the tensor that an argument means: a name, or a view of one."""
        at = text.find("reinterpret_tensor_wrapper(")
        if at >= 0:
            args = _arguments(_inside(text[at + len("reinterpret_tensor_wrapper") :]))
            of = self._scope.get(_plain_name(args[0])) if len(args) == 5 else None
            sizes, strides = (self._array(args[2]), self._array(args[3])) if of is not None else (None, None)
            if of is None or sizes is None or strides is None:
                return None
            offset = self._size(args[4])
            type_ = self.plan.type_of(of.type.dtype, sizes, strides)
            return self.plan.view(name or _plain_name(args[0]), of, type_, 0 if offset is None else offset, None)
        return self._scope.get(_plain_name(text))

    def _argument(self, text: str) -> tuple[Argument, bool]:
        """Return an argument of the C interface, and whether its length follows as another one."""
        held = self._tensor(text, "")
        if held is not None:
            return held, False
        if text == "nullptr":
            return None, False
        if match := re.match(r"(?:std::array<[^>]*>)?\{(.*)\}\.(?:cbegin|data)\(\)$", text):
            return tuple([self._argument(item)[0] for item in _arguments(match[1])]), True
        if text in self._arrays:
            return self._arrays[text], True
        if re.fullmatch(r"-?\d{1,18}L?", text):
            return int(text.rstrip("L")), False
        try:
            return float(text), False
        except ValueError:
            return self._size(text), False

    def _made(self, name: str, statement: Statement) -> Made:
        dtype = self._dtype_by_use(name)
        if name not in self._asserted:
            return Made(name, None, None, dtype)
        shape, strides = self._asserted[name]
        return Made(name, self._sizes(shape, statement), self._sizes(strides, statement), dtype)

    def _array(self, text: str) -> tuple[Dim, ...] | None:
        if match := re.match(r"(?:std::array<[^>]*>)?\{(.*)\}\.(?:cbegin|data)\(\)$", text):
            return self._sizes(match[1], Statement(0, ""))
        return self._arrays.get(text)

    def _sizes(self, text: str, statement: Statement) -> tuple[Dim, ...]:
        found = [self._size(item) for item in _arguments(text)]
        return tuple([unknown_size(statement.line) if size is None else size for size in found])

    def _size(self, text: str) -> Dim | None:
        """A size: C++ as Inductor prints sizes."""
        plain = re.sub(r"\b(\d+)(?:LL|L)\b", r"\1", text.strip())
        if re.fullmatch(r"-?\d{1,30}", plain):
            return int(plain)
        for theirs, ours in _FUNCTIONS:
            plain = plain.replace(theirs, ours)
        if not re.fullmatch(r"[\w\s()+\-*/%,]+", plain) or plain.count("(") > 100:
            return None
        found = self.plan.symbols.parse(plain.replace("/", "//"))
        return found if isinstance(found, int | SymDim) else None

    def _origin(self, statement: Statement) -> Origin:
        place = bisect_left(self._origins, statement.line, key=lambda item: item[0]) - 1
        if place >= 0 and statement.line - self._origins[place][0] < _NEAR:
            return Origin(self._origins[place][1].operators, Loc(self._path, statement.line))
        return Origin((), Loc(self._path, statement.line))


_NEAR: Final = 16
"""Lines between a comment and the call that it is about, at most."""
_FUNCTIONS: Final = (
    ("static_cast<int64_t>", ""), ("c10::div_floor_integer", "FloorDiv"), ("c10::div_floor_", "FloorDiv"), ("std::max", "Max"),
    ("std::min", "Min"), ("c10::convert<int64_t>", ""), ("std::floor", "floor"), ("std::ceil", "ceiling"),
)  # fmt: skip


def _kernels_of_triton(text: str) -> Mapping[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    matches = list(_TRITON.finditer(text))
    for place, match in enumerate(matches):
        end = matches[place + 1].start() if place + 1 < len(matches) else len(text)
        kernels[match[1]] = kernel_of_triton(text[match.start() : min(end, match.start() + _LONGEST_KERNEL)])
    return kernels


_LONGEST_KERNEL: Final = 1 << 20


def _kernels_of_c(text: str) -> Mapping[str, Kernel]:
    return {match[1]: kernel_of_c([part.strip() for part in match[2].split(",")]) for match in _C_KERNEL.finditer(text)}


def _arguments(text: str) -> list[str]:
    """Return the arguments of a call, split where no bracket is open."""
    parts: list[str] = []
    depth = start = 0
    for match in re.finditer(r"[(){}\[\],]|<[^<>()]*>", text):
        char = match[0]
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _inside(text: str) -> str:
    """Return what is between the bracket that a text begins with and the one that closes it."""
    depth = 0
    for match in re.finditer(r"[()]", text):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[1 : match.start()]
    return text[1:]


_CAST = re.compile(r"^\((?:const )?[\w:]+\s*\*\)\((.*)\)$")


def _plain_name(text: str) -> str:
    """Return the variable in what the generated code makes of one: casts, pointers and temporaries taken off."""
    text = text.strip()
    if match := _CAST.match(text):
        text = match[1]
    match = re.search(r"temporary_reference\((\w+)", text)
    if match:
        return match[1]
    text = text.lstrip("&").removesuffix(".data_ptr()").removesuffix(".get()")
    text = text.removeprefix("wrap_with_raii_handle_if_needed(").removesuffix(")") if text.startswith("wrap_with") else text
    return text if text.isidentifier() else ""


def _dtype(text: str) -> DType:
    match = _DTYPE.search(text)
    return NAMED_DTYPES.get(match[1], DType.UNKNOWN) if match else DType.UNKNOWN


_FOLDER = "data/aotinductor/"


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the plan of one model in a package; libraries and kernels stay unread."""
    with Archive(path) as archive, paused_gc():
        names = archive.names(_FOLDER)
        models = list(dict.fromkeys(name.removeprefix(_FOLDER).partition("/")[0] for name in names if "/" in name.removeprefix(_FOLDER)))
        model = _chosen(models, options, sink, str(path))
        own = [name for name in names if name.startswith(f"{_FOLDER}{model}/")]
        code = [name for name in own if name.endswith(".cpp") and not name.endswith((".kernel.cpp", "interface.cpp"))]
        if len(code) != 1:
            what = "no generated code, only a library" if not code else f"{len(code)} files of generated code where one is read"
            raise LoadError(f"the package has {what}", code="IRS128", where=str(path), hint=_AGAIN)
        kernels = "\n".join(_text_of(archive, name) for name in own if name.endswith(".kernel.cpp"))
        text = _text_of(archive, code[0])
        program = CppWrapper(text, kernels, f"{path}:{code[0].rpartition('/')[2]}", options, sink).read()
        program.metadata["model"] = model
        return program


def _chosen(models: list[str], options: LoadOptions, sink: DiagnosticSink, where: str) -> str:
    """Return the model to read: the one that was asked for, else the one called `model`, else the first."""
    if not models:
        raise LoadError("the package holds no model", code="IRS128", where=where, hint=_AGAIN)
    if options.method and options.method not in models:
        raise LoadError(f"the package has no model {options.method!r}", code="IRS137", where=where, hint=f"it has {', '.join(models)}")
    chosen = options.method or ("model" if "model" in models else models[0])
    others = [name for name in models if name != chosen]
    if others and not options.method:
        more = f"; there are {', '.join(others)}" if len(others) > 1 else ""
        hint = f"`--method {others[0]}` reads another{more}"
        sink.warn("IRS137", f"the package holds several models; {chosen!r} was read", hint=hint, about="programs")
    return chosen


def _text_of(archive: Archive, name: str) -> str:
    size = archive.entries[name].size
    if size > MOST_BYTES:
        raise LoadError(f"code of more than {MOST_BYTES >> 20} MiB is not read", code="IRS128", where=str(archive.path))
    admit(size)
    try:
        return archive.read(name).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{name.rpartition('/')[2]} is not UTF-8 at byte {error.start}"
        raise LoadError(message, code="IRS128", where=str(archive.path), hint=_AGAIN) from None
