"""Watches operators, tensors, storages, module calls and source lines while a callable runs."""

from __future__ import annotations

import functools
import importlib
import linecache
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from irscope.budget import spend
from irscope.devices import Target, target_of
from irscope.errors import LoadError
from irscope.frontends.eager.fakes import COMPOSITE, SILENT, Inside, Remembered, device_of, device_text, is_composite, tensors_within
from irscope.frontends.eager.record import Kind, Op, Phase, Record, Storage, Tensor, dtype_of
from irscope.frontends.eager.routes import KERNELS, ROUTES, Rerouted
from irscope.frontends.eager.values import OpenSizes, Size, Values, is_open
from irscope.ir.dims import Dim
from irscope.ir.places import Loc, Scope, relative_name, root_scope
from irscope.passkit.settings import Settings

_MOST_OPERATORS = 500_000
_SMALL = 1 << 16
"""Elements of constants that are copied, since the run may change them."""
_DEVICE = torch.ops.prim.device.default
_TABLES: tuple[tuple[Kind, str], ...] = (("parameter", "_parameters"), ("buffer", "_buffers"))


class Recorder(TorchDispatchMode):
    """Records the operators that run while it is entered.

    `grad` says at which level. Without it operators are seen as Python calls them (`linear`, `scaled_dot_product_attention`); with it
    they are seen below autograd, which splits them (`addmm`), in the forward, the backward and the optimizer alike.
    """

    def __init__(self, module: nn.Module | None = None, *, grad: bool = False, device: str = "", target: Target | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]  # torch's own
        self.target = target or target_of(Settings())
        self.record = Record(grad=grad, device=device)
        self.calls = Calls(module)
        self.record.root = self.calls.root
        self.frames = Frames()
        self.phase: Phase = "forward"
        self.values = Values(self.record)
        self.inside: Inside | None = None
        """Runs decompositions of operators, and guesses data-dependent sizes."""
        self.sizes: OpenSizes | None = None
        """Symbolic sizes."""
        self._remembered: Remembered | None = None
        """Results of operators, where nothing but the device's own modes is between them and the recorder."""
        self._below = 0
        """Number of these modes."""
        self._storages: dict[int, Storage] = {}
        self._alive: dict[Storage, weakref.ref[torch.UntypedStorage]] = {}
        """Weak references that notify when a storage is freed."""
        self._tensors: dict[tuple[Any, ...], Tensor] = {}
        self._deaths = 0
        self._running = False
        self._watching = False
        """True while the run is in progress: storages freed after its end outlive it."""

    # -- what is there before --------------------------------------------------------------------------------------

    def declare(self, tensor: torch.Tensor, kind: Kind, name: str, real: torch.Tensor | None = None) -> Tensor:
        """Declare a tensor that exists before the run, with its values where they are known."""
        found = self._seen(tensor, kind, name)
        if real is not None:
            self.values.know(found, real)
        return found

    def declare_module(self, module: nn.Module, real: Callable[[torch.Tensor], torch.Tensor | None] = lambda _: None) -> None:
        """Declare parameters and buffers under their own names, in the order in which `Module.to` moves them."""
        seen: set[int] = set()
        for path, inner in module.named_modules():
            prefix = f"{path}." if path else ""
            for kind, table in _TABLES:
                for name, tensor in getattr(inner, table).items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        self.declare(tensor, kind, f"{prefix}{name}", real(tensor))

    def declare_optimizer(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str] | None = None) -> None:
        """Declare the state that an optimizer has by now as "exp_avg of layer.weight"; call it again after the first step."""
        known = names or {}
        for parameter, state in optimizer.state.items():
            owner = known.get(id(parameter), "")
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.declare(value, "state", f"{key} of {owner}" if owner else str(key))

    def mark(self, text: str) -> None:
        """Set a marker."""
        self.record.marks.append((len(self.record.ops), text))

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Set the phase of operators; those that autograd's nodes run belong to the backward in any case."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function and record what it does; what it returns are the outputs."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.record.grad))
            stack.enter_context(self.calls.followed())
            self._note_modes()
            stack.enter_context(self)
            if self.record.grad:
                stack.enter_context(Rerouted(self.target))
            else:
                stack.enter_context(below_autograd())
            self.frames.bottom, self._watching = sys._getframe(), True
            try:
                result = function()
            finally:
                self.frames.bottom, self._watching = None, False
        self.record.outputs = self._flat(result)
        return result

    def _note_modes(self) -> None:
        """See whether results may be remembered: other modes of dispatch would not be told of operators that are not dispatched again."""
        modes: list[Any] = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        self._below = len(modes)
        usual = [type(one) for one in modes] == [FakeTensorMode, Inside] and self.sizes is None
        if not usual or self._remembered is None or self._remembered.mode is not modes[0]:
            self._remembered = Remembered(modes[0]) if usual else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # asked for everywhere, and dispatched like an operator
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        spend(500, "running the model without data")
        record = self.record
        node = torch._C._current_autograd_node() if record.grad else None
        number = len(record.ops)
        if number >= _MOST_OPERATORS:
            raise LoadError(
                f"the model runs more than {_MOST_OPERATORS:,} operators",
                code="IRS194",
                hint="capture it with smaller inputs or fewer steps",
            )
        sequence = node._sequence_nr() if node is not None else torch._C._autograd._get_sequence_nr() - 1 if record.grad else None
        op = Op(
            number,
            func,
            self._noted(tuple(args)),
            {key: self._noted(value) for key, value in kwargs.items()},
            (),
            self.calls.current,
            self.frames.here(),
            "backward" if node is not None else self.phase,
            sequence,
            node.name() if node is not None else "",
        )
        record.ops.append(op)
        self._running = True
        try:
            result = self._answered(op, args, kwargs)
        except BaseException:
            # The model may try something else.
            del record.ops[number:]
            raise
        finally:
            self._running = False
        op.results = self._made(result, number)
        self._note_writes(op)
        return result

    def _note_writes(self, op: Op) -> None:
        """Remember which storages changed."""
        if op.func._schema.is_mutable:
            for one in op.writes():
                self.values.wrote(one, op.number)

    def execute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the implementation of an operator. Composites are decomposed as in C++, not by the compilers' decomposition tables."""
        name = func.name().partition(".")[0]
        route = KERNELS.get(name) if self.record.grad else ROUTES.get(name)
        if route is not None:
            found = route(self.target, args, kwargs)
            if found is not NotImplemented:
                return found
        remembered = self._remembered
        # Modes that were entered since then, such as those that trace, are told of each operator.
        if remembered is not None and torch._C._len_torch_dispatch_stack() == self._below and not (self.inside and self.inside.may_guess):
            key = remembered.key(func, args, kwargs)
            if key is not None:
                found = remembered.again(key, args, kwargs)
                if found is NotImplemented:
                    found = self._dispatched(func, args, kwargs)
                    remembered.learn(key, func, args, kwargs, found)
                return found
        return self._dispatched(func, args, kwargs)

    def _dispatched(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator by the device's modes."""
        if is_composite(func):
            if self.sizes is not None and func in self.sizes.in_python and COMPOSITE in func.py_kernels:
                return func.py_kernels[COMPOSITE](*args, **kwargs)
            return func._op_dk(COMPOSITE, *args, **kwargs)
        return func(*args, **kwargs)

    def _answered(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of an operator; data-dependent ones are computed."""
        try:
            with self.sizes.kept_open(op.func) if self.sizes is not None else nullcontext():
                return self.execute(op.func, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            found = self.values.result(op)
            if found is None:
                if not isinstance(error, DynamicOutputShapeException) or self.inside is None or self.sizes is not None:
                    raise
                return self._guessed(op, args, kwargs, self.inside)
        if self.sizes is not None and self.values.is_of_open_size(op):
            if not isinstance(found, bool):
                raise LoadError(
                    f"what {op.namespace}.{op.name} returns depends on the values of a tensor whose size is open", code="IRS673"
                ) from None
            if not self.values.is_same_at_any_size(op):
                self.sizes.is_one_path = False
        return tree_map_only(torch.Tensor, lambda real: torch.empty_like(real, device=self.record.device), found)

    def _guessed(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], inside: Inside) -> Any:
        """Return the types of an operator's results."""
        inside.may_guess = True
        try:
            result = self.execute(op.func, args, kwargs)
        finally:
            inside.may_guess = False
        self.record.guessed.append(op)
        return result

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _noted(self, item: Any) -> Any:
        """Return the arguments with tensors replaced by their records."""
        if isinstance(item, torch.Tensor):
            return self._seen(item, "constant", "")
        if isinstance(item, tuple | list):
            return tuple([self._noted(part) for part in item])
        if isinstance(item, torch.SymInt):
            return self._dim(item)
        if not is_open(item):
            return item
        # Other numbers that Python computed from sizes, such as a scale, have their value in this run.
        assert self.sizes is not None
        self.sizes.is_one_path = False
        return item.node.hint

    def _seen(self, tensor: torch.Tensor, kind: Kind, name: str) -> Tensor:
        """Return the latest record of a tensor; a tensor without one existed before the run."""
        storage = self._storage_of(tensor, None)
        key = self._key(tensor, storage)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._new(tensor, storage, kind, name)
            if kind == "constant":
                self._look_at(tensor, found)
        return found

    def _look_at(self, tensor: torch.Tensor, found: Tensor) -> None:
        """Keep the values of a tensor that Python made of numbers, or that is not fake."""
        real = tensor.constant if isinstance(tensor, FakeTensor) else tensor if tensor.device.type == "cpu" else None
        if real is not None:
            with torch.utils._python_dispatch._disable_current_modes():
                self.values.know(found, real.clone() if real.numel() <= _SMALL else real)

    def _made(self, item: Any, number: int) -> tuple[Any, ...]:
        """Results, lists flattened, with a new value for each tensor."""
        if isinstance(item, torch.Tensor):
            storage = self._storage_of(item, number)
            made = self._new(item, storage, "result", "")
            made.made_by = number
            self._tensors[self._key(item, storage)] = made
            return (made,)
        if isinstance(item, tuple | list):
            return tuple([part for one in item for part in self._made(one, number)])
        return (item,)

    def _new(self, tensor: torch.Tensor, storage: Storage | None, kind: Kind, name: str) -> Tensor:
        is_strided = tensor.layout is torch.strided
        made = Tensor(
            len(self.record.tensors),
            storage,
            dtype_of(tensor),
            self._dims(tensor.shape),
            self._dims(tensor.stride()) if is_strided else (),
            self._dim(tensor.storage_offset()) if is_strided else 0,
            device_text(tensor),
            kind,
            name,
            trainable=tensor.requires_grad,
        )
        self.record.tensors.append(made)
        return made

    def _storage_of(self, tensor: torch.Tensor, number: int | None) -> Storage | None:
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        found = self._storages.get(key)
        if found is None:
            found = Storage(len(self.record.storages), self._dim(storage.nbytes()), device_text(tensor), number)
            self.record.storages.append(found)
            self._storages[key] = found
            self._alive[found] = weakref.ref(storage, functools.partial(self._freed, key, found))
        return found

    def _freed(self, key: int, storage: Storage, _: object) -> None:
        del self._alive[storage]
        if self._storages.get(key) is storage:
            del self._storages[key]
        if not self._watching:
            return
        storage.died = len(self.record.ops)
        storage.inside = self._running
        storage.rank = self._deaths
        self._deaths += 1

    def _key(self, tensor: torch.Tensor, storage: Storage | None) -> tuple[Any, ...]:
        """Return a key that is equal for two views of one storage with the same elements."""
        if storage is None:
            return (id(tensor),)
        return (storage.number, tensor.dtype, self._dim(tensor.storage_offset()), self._dims(tensor.shape), self._dims(tensor.stride()))

    def _dim(self, size: Size) -> Dim:
        if isinstance(size, int):
            return size
        assert self.sizes is not None
        return self.sizes.dim(size)

    def _dims(self, sizes: Sequence[Size]) -> tuple[Dim, ...]:
        if self.sizes is None:
            return tuple(sizes)  # type: ignore[arg-type]  # none is open
        return tuple([size if isinstance(size, int) else self._dim(size) for size in sizes])

    def _flat(self, item: Any) -> tuple[Any, ...]:
        """Return the tensors in what a model returns, in order."""
        return tuple(self._seen(one, "constant", "") for one in tensors_of(item))


@contextmanager
def below_autograd() -> Iterator[None]:
    """Operators are not split by autograd, which has nothing to do."""
    guard = torch._C._AutoDispatchBelowAutograd()
    try:
        yield
    finally:
        del guard


def tensors_of(item: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in what a model returns, in order: in containers, and in objects such as caches of keys and values; each once."""
    pending, seen = [item], set()
    while pending:
        found = pending.pop()
        if isinstance(found, nn.Module | type) or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, torch.Tensor):
            yield found
        elif isinstance(found, Mapping):
            pending.extend(reversed(list(found.values())))
        elif isinstance(found, tuple | list):
            pending.extend(reversed(found))
        elif hasattr(found, "__dict__") and not callable(found):
            pending.extend(reversed(list(vars(found).values())))


# -- module calls ------------------------------------------------------------------------------------------------------


Outer = TypeVar("Outer")


@contextmanager
def watched_calls(
    entered: Callable[[nn.Module], Outer], left: Callable[[Outer], None], raised: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """A context in which functions are called before and after every call of a module; the second gets what the first returned.

    `nn.Module._call_impl` is replaced. Hooks would do as well, but some modules choose other kernels when they have any, and the user's
    modules are left alone. While torch.compile follows a module it finds torch's own function, which it knows.
    """
    kind: Any = nn.Module
    original = kind._call_impl
    entered, left = _untraced(entered), _untraced(left)

    def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        outer = entered(module)
        try:
            return original(module, *args, **kwargs)
        except Exception:
            raised()
            raise
        finally:
            left(outer)

    compiling = kind.compile

    def compile(module: nn.Module, *args: Any, **kwargs: Any) -> None:
        """`nn.Module.compile` compiles torch's own function; the module is followed around it."""
        module._compiled_call_impl = followed(module, torch.compile(types.MethodType(original, module), *args, **kwargs), entered, left)

    kind._call_impl, kind.compile = called, compile
    undo = around_compilations(lambda: setattr(kind, "_call_impl", original), lambda: setattr(kind, "_call_impl", called))
    try:
        yield
    finally:
        undo()
        kind._call_impl, kind.compile = original, compiling


def _untraced(function: Callable[[Any], Outer]) -> Callable[[Any], Outer]:
    """Return the function without what it asks of tensors in the graph of `torch.jit.trace`, which has the program's operators alone."""

    core: Any = torch._C

    def run(given: Any) -> Outer:
        tracing = core._get_tracing_state()
        if tracing is None:
            return function(given)
        core._set_tracing_state(None)
        try:
            return function(given)
        finally:
            core._set_tracing_state(tracing)

    return run


def followed(
    module: nn.Module, run: Callable[..., Any], entered: Callable[[nn.Module], Outer], left: Callable[[Outer], None]
) -> Callable[..., Any]:
    """Return what a module was compiled to, with functions that are called before and after it."""

    def compiled(*args: Any, **kwargs: Any) -> Any:
        outer = entered(module)
        try:
            return run(*args, **kwargs)
        finally:
            left(outer)

    return compiled


def around_compilations(begins: Callable[[], None], ends: Callable[[], None]) -> Callable[[], None]:
    """Call functions before and after Dynamo compiles something, until what is returned is called.

    Callbacks that are registered with Dynamo are forgotten by `torch.compiler.reset`.
    """
    handler: Any = importlib.import_module("torch._dynamo.callback").callback_handler
    started, ended = handler.run_start_callbacks, handler.run_end_callbacks

    def start(details: Any) -> None:
        begins()
        started(details)

    def end(details: Any) -> None:
        ended(details)
        ends()

    handler.run_start_callbacks, handler.run_end_callbacks = start, end

    def undo() -> None:
        handler.run_start_callbacks, handler.run_end_callbacks = started, ended

    return undo


class Calls:
    """Follows calls of modules."""

    def __init__(self, root: nn.Module | None) -> None:
        self.root = root_scope()
        self.current = self.root
        self.failed: Scope | None = None
        """The innermost call in which an error was raised."""
        self._paths: dict[int, str] = {}
        if root is not None:
            for name, module in root.named_modules():
                self._paths.setdefault(id(module), name)
        self._main = root
        self._counts: dict[tuple[Scope, str], int] = {}

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow calls within the context."""
        with watched_calls(self._entered, self._left, self._raised):
            yield

    def _entered(self, module: nn.Module) -> Scope:
        outer = self.current
        self.current = self.enter(module)
        return outer

    def _left(self, outer: Scope) -> None:
        self.current = outer

    def _raised(self) -> None:
        self.failed = self.failed or self.current

    def enter(self, module: nn.Module) -> Scope:
        """Return the scope of a call that begins now."""
        if module is self._main and self.current is self.root:
            return self.root
        path = self._paths.get(id(module))
        name = relative_name(path, self.current.module) if path is not None else f"={type(module).__name__}"
        call = self._counts.get((self.current, name), 0)
        self._counts[self.current, name] = call + 1
        return self.current.child(name, type(module).__name__, call)

    @property
    def names(self) -> Mapping[int, str]:
        """Paths of the model's modules by identity."""
        return self._paths


# -- source lines ------------------------------------------------------------------------------------------------------


_MOST_FRAMES: Final = 64
GENERATED = "inductor"
"""In the names of folders that hold the code that torch.compile generates."""
_HIDDEN = (
    *(f"{os.sep}{part}{os.sep}" for part in (os.path.join("site-packages", "torch"), os.path.join("irscope", "frontends"))),
    f"{os.sep}irscope-{GENERATED}-",
)


class Frames:
    """Finds the location of the current statement; locations are interned."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        """`hidden` are files that belong to irscope besides those of its frontends."""
        self._hidden = hidden
        # A code object's own hash is made anew of all its constants each time it is asked for, so its identity is looked up.
        self._shown: dict[int, tuple[bool, CodeType]] = {}
        """True where code is the model's, by the identity of the code object, which is kept."""
        self._lines: dict[tuple[int, int], Line] = {}
        self._places: dict[tuple[Line, int], Loc] = {}
        """By line and by identity of the caller's place, whose own hash would be that of all its callers."""
        self.bottom: FrameType | None = None
        """The frame that started the run; its callers are left out."""

    def here(self) -> Loc | None:
        """Return the innermost location outside torch, linked to its callers."""
        found: list[Line] = []
        frame = self.innermost(sys._getframe(1))
        while frame is not None and len(found) < _MOST_FRAMES:
            found.append(self.line(frame))
            frame = self.innermost(frame.f_back)
        loc: Loc | None = None
        for line in reversed(found):
            key = (line, id(loc))
            known = self._places.get(key)
            if known is None:
                file = line.code.co_filename
                known = Loc(file, line.number, line.code.co_name, linecache.getline(file, line.number).strip(), loc)
                self._places[key] = known
            loc = known
        return loc

    def innermost(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of the model itself, this one or one of its callers; None where all are torch's or irscope's."""
        known, bottom = self._shown, self.bottom
        while frame is not None and frame is not bottom:
            shown = known.get(id(frame.f_code))
            if shown[0] if shown is not None else self.shows(frame.f_code):
                return frame
            frame = frame.f_back
        return None

    def line(self, frame: FrameType) -> Line:
        """Return the line at which a frame is: the same object each time."""
        code, number = frame.f_code, frame.f_lineno
        key = (id(code), number)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = Line(code, number)
        return found

    def shows(self, code: CodeType) -> bool:
        """Return whether a function belongs to the model, not to torch or irscope."""
        shown = self._shown.get(id(code))
        if shown is None:
            shown = self._shown[id(code)] = code.co_filename not in self._hidden and _is_shown(code), code
        return shown[0]


class Line:
    """A line of code. Equal ones are one object: to compare or hash what is in it would take longer than to find it."""

    __slots__ = ("code", "number")

    def __init__(self, code: CodeType, number: int) -> None:
        self.code, self.number = code, number

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.number}"


def _is_shown(code: CodeType) -> bool:
    file = code.co_filename
    return not (file.startswith("<frozen") or _is_own(file) or any(part in file for part in _HIDDEN))


def _is_own(file: str) -> bool:
    return os.path.abspath(file).startswith(_OWN + os.sep)


_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# -- training steps ----------------------------------------------------------------------------------------------------


_ADD = torch.ops.aten.add.Tensor
_IN_PLACE = {_ADD: torch.ops.aten.add_.Tensor, torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default}
"""Operators that PyTorch's own code runs out of place on tensor subclasses, and in place on others."""
_ITEM = torch.ops.aten._local_scalar_dense.default
_MOST_KNOWN = 64
"""Size limit, in elements, of host tensors whose values are computed."""

Holders = tuple[int, int, int]
"""Reference counts of a storage, a tensor and its Python object."""


class StepRecorder(Recorder):
    """Records training steps.

    Two things differ for fake tensors. PyTorch's own code takes them for something foreign, and works out of place on intermediate
    results without other references: here it works in place, as on real ones. And values of counters in the host's memory (an optimizer's
    steps), which Python reads, are computed beside them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: dict[int, torch.Tensor] = {}
        self._owned: set[tuple[Any, bool, Holders]] = set()
        """Reference counts of intermediate results that only PyTorch's own code references, by operator and engine."""
        self._learns = False
        self.answers_zero = False
        """True where values of device tensors that Python reads are zeros, as with CUDA libraries replaced by stubs."""

    @property
    def position(self) -> tuple[int, int]:
        """Operators and deaths so far."""
        return (len(self.record.ops), self._deaths)

    def calibrate(self, device: str) -> None:
        """Measure the reference counts of intermediate results of PyTorch's own code, on three known cases."""
        probe = type(self)(grad=True, device=device, target=self.target)
        probe._learns = True
        probe.run(lambda: _provoke(device))
        self._owned = probe._owned

    def storage_of(self, tensor: torch.Tensor) -> Storage | None:
        """Return the storage of a tensor as the recording knows it."""
        return self._storage_of(tensor, None)

    def execute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in _IN_PLACE and self._is_owned(func, args):
            return super().execute(_IN_PLACE[func], args, kwargs)
        if func is _ITEM and self.answers_zero and args[0].device.type != "cpu":
            return _zero(args[0].dtype)
        if func is _ITEM and args[0].device.type == "cpu":
            known = self._value(args[0])
            if known is not None:
                with torch._C._DisableTorchDispatch():
                    return known.item()
        result = super().execute(func, args, kwargs)
        self._follow(func, args, kwargs, result)
        return result

    # -- intermediate results --------------------------------------------------------------------------------------

    def _is_owned(self, func: Any, args: Sequence[Any]) -> bool:
        """Return whether the first operand has no other reference, so that its memory is reused for the result."""
        runs = torch._C._current_autograd_node() is not None
        if runs and torch.is_grad_enabled():
            return False  # the backward is to be differentiated again
        held = (func, runs, _holders(args, 0))
        if self._learns:
            self._owned.add(held)
            return False
        return held in self._owned and _takes(args[0], args[1] if func is _ADD else None)

    # -- numbers in the host's memory ------------------------------------------------------------------------------

    def _freed(self, key: int, storage: Storage, _: object) -> None:
        self._known.pop(key, None)  # another storage may come to lie there
        super()._freed(key, storage, _)

    def _follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Compute an operator on known host values too."""
        made, given = tensors_within(result), tensors_within((args, *kwargs.values()))
        for one in made:
            if _on_host(one) and not _shares(one, given):
                # It may lie where another was whose values were known.
                self._known.pop(one.untyped_storage()._cdata, None)
        if not all(_on_host(one) and one.numel() <= _MOST_KNOWN for one in (*made, *given)) or not (made or given):
            return
        if func.namespace != "aten" or (given and not all(self._value(one) is not None for one in given)):
            return
        try:
            with torch._C._DisableTorchDispatch():
                values = func(*tree_map(self._valued, tuple(args)), **tree_map(self._valued, dict(kwargs)))
        except Exception:  # what cannot be computed beside is not known
            return
        for one, value in zip(made, tensors_within(values), strict=False):
            self._known[one.untyped_storage()._cdata] = value

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        known: torch.Tensor | None = self._known.get(tensor.untyped_storage()._cdata, getattr(tensor, "constant", None))
        # What is known is the value of the tensor that was made last in this memory, which others may see otherwise.
        return known if known is not None and known.shape == tensor.shape else None

    def _valued(self, item: Any) -> Any:
        return self._value(item) if isinstance(item, torch.Tensor) else item


def _on_host(tensor: torch.Tensor) -> bool:
    return device_of(tensor).type == "cpu"


def _shares(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor shows the memory of one of the others."""
    own = tensor.untyped_storage()._cdata
    return any(one.untyped_storage()._cdata == own for one in others)


def _zero(dtype: torch.dtype) -> bool | int | float:
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def _takes(into: torch.Tensor, other: Any) -> bool:
    """Return whether a sum fits where one of its operands is."""
    if not torch.ops.aten.is_non_overlapping_and_dense(into):
        return False
    return not isinstance(other, torch.Tensor) or (
        other.ndim <= into.ndim
        and all(size in (1, whole) for size, whole in zip(other.shape[::-1], into.shape[::-1], strict=False))
        and torch.result_type(into, other) is into.dtype
    )


def _holders(args: Sequence[Any], place: int) -> Holders:
    tensor = args[place]
    return (torch._C._storage_Use_Count(tensor.untyped_storage()._cdata), tensor._use_count(), sys.getrefcount(tensor))


def _provoke(device: str) -> None:
    """Run the three known cases: a linear layer's addition, a sum of gradients, an indexed gradient."""
    functional = torch.nn.functional
    with torch.no_grad():
        rows = torch.empty(2, 3, 4, device=device).transpose(0, 1)
        functional.linear(rows, torch.empty(4, 4, device=device), torch.empty(4, device=device))
    leaf = torch.empty(2, device=device, requires_grad=True)
    (torch.neg(leaf) * torch.abs(leaf)).sum().backward()
    torch.neg(leaf)[torch.zeros(2, dtype=torch.long, device=device)].sum().backward()
