"""Compiled modules as programs: run on the simulated device in a process of their own, and recorded kernel by kernel.

The simulated device holds for the rest of a process, and compiling changes torch: so the process is a copy (`fork`) of the caller's, which
has the module, real or without values, and ends with what it found. The caller's module and torch stay as they are.
"""

from __future__ import annotations

import linecache
import os
import pickle
import signal
import sys
import traceback
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from types import FrameType
from typing import Any, Final, TypeVar, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from irscope import processes
from irscope.devices import Target
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.eager.record import GeneratedKernel, Kind, Op, Phase, Record, Storage, Tensor, dtype_of, with_storages
from irscope.frontends.eager.running import around, check_module, check_whole, named_arguments, tell_assumed
from irscope.frontends.eager.steps import check_trainable
from irscope.frontends.simulation.compilations import Compilations, Kernel, explained, forget
from irscope.frontends.simulation.imports import check_machine
from irscope.frontends.simulation.machine import Piece
from irscope.frontends.simulation.process import Process
from irscope.frontends.simulation.triton_stand_in import JITFunction, written
from irscope.frontends.simulation.watch import Watch, line_text
from irscope.ir.places import Loc, Scope, root_scope
from irscope.ir.program import Assumed, Program
from irscope.memory.kernels import workspace_policy
from irscope.memory.tape import WORKSPACE, DeviceRun, Span, Spread, Tape
from irscope.ops.spec import Workspace

_KNOWN_BACKENDS: Final = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""Those of torch that run nothing but what is recorded here."""
_WRITTEN: Final = ("out_ptr", "in_out_ptr")
"""Prefixes of the arguments that a generated kernel writes."""
_RUNS: Final = 2
_REPLAYED_FROM: Final = 3
"""With CUDA graphs the second run records what the third replays."""
_LATER: Final[Any] = None
"""Module calls of operators, which are made where the program is."""
Answer = TypeVar("Answer")


# -- a process of its own ----------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Operators by name: what torch dispatches is the same in both processes."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, torch._ops.OpOverload):
            return _operator, (item.namespace, item._schema.name.partition("::")[2], item._overloadname)
        return NotImplemented


def _operator(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def apart(work: Callable[[], Answer]) -> Answer:
    """Run a function in a copy of this process, and return its result or raise its error."""
    reading, writing = os.pipe()
    child = processes.fork()
    if not child:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    try:
        with open(reading, "rb") as pipe:
            text = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if not text:
        how = processes.how_it_ended(os.waitstatus_to_exitcode(status))
        raise LoadError(f"the process that compiled it {how}", code="IRS395", hint="try it once without irscope")
    kind, found = pickle.loads(text)
    if kind == "failed":
        cls, message, code, where, hint = found
        raise {"UsageError": UsageError, "LoadError": LoadError}.get(cls, IrscopeError)(message, code=code, where=where, hint=hint)
    if kind == "broken":
        raise RuntimeError(found)
    return cast("Answer", found)


def _answer(work: Callable[[], Any], writing: int) -> None:
    """Write what comes of it, and end the process."""
    try:
        torch.set_num_threads(1)  # threads of pools are not copied
        warnings.simplefilter("ignore")  # the compiler's advice is about the device that is there
        try:
            answer: tuple[str, Any] = "done", work()
        except IrscopeError as error:
            answer = "failed", (type(error).__name__, error.message, error.code, error.where, error.hint)
        except Exception:
            answer = "broken", traceback.format_exc()
        with open(writing, "wb") as pipe:
            _Pickler(pipe).dump(answer)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


# -- what is asked for -------------------------------------------------------------------------------------------------


Settings = Mapping[str, Any]
"""Arguments of `torch.compile`."""


def check_settings(module: nn.Module, settings: Settings) -> None:
    """Raise UsageError for arguments that `torch.compile` does not take, and for those of a module that has its own."""
    known = ("backend", "mode", "dynamic", "fullgraph", "options")
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        raise UsageError(f"torch.compile has no setting {unknown[0]!r}", code="IRS396", hint=", ".join(known))
    backend, mode = settings.get("backend"), settings.get("mode")
    if isinstance(backend, str) and backend not in (names := torch._dynamo.list_backends(exclude_tags=())):
        raise UsageError(f"torch has no compiler backend {backend!r}", code="IRS396", hint=f"there are {', '.join(sorted(names))}")
    if mode is not None and mode not in (modes := torch._inductor.list_mode_options()):
        raise UsageError(f"torch.compile has no mode {mode!r}", code="IRS396", hint=f"there are {', '.join(sorted(modes))}")
    if settings and (isinstance(module, torch._dynamo.OptimizedModule) or module._compiled_call_impl is not None):
        raise UsageError("the module is compiled with settings of its own", code="IRS396", hint="give the module as it was before")


@dataclass(kw_only=True)
class Ran:
    """Findings of the copy of the process."""

    name: str
    """The module's class."""
    said: str
    """Description of how it was compiled."""
    record: Record
    """Operators without their module calls."""
    places: list[tuple[str, str]]
    """Of each operator the path of its module, and the line."""
    tape: Tape[Any]
    """A step is an operator of the record, in each run."""
    owners: dict[int, int]
    """By slot of the tape the number of the record's storage."""
    compiled: Compilations | None
    assumed: dict[Assumed, str]


RanT = TypeVar("RanT", bound=Ran)


def capture_compiled(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings | None, target: Target, sink: DiagnosticSink
) -> Program:
    """Return the program of a module that is compiled, or with `settings` is to be: kernels of a later run, with the memory of all runs.

    The model is loaded, and run without gradients: first with all that compiling takes, and again.
    """
    found = run_apart(module, args, kwargs, settings, sink, grad=False, work=lambda: Run(module, settings, target).forward(args, kwargs))
    record = found.record
    program, values = with_storages(record)
    by_number = {storage.number: value for storage, value in values.items()}
    owners = {slot: by_number[number] for slot, number in found.owners.items() if number in by_number}
    assert program.observed is not None
    assert len(program.graph) == len(record.ops)
    run = DeviceRun(replace(found.tape, owners=owners), target.device.name, target.torch, found.compiled)
    program.observed = replace(program.observed, requests=run)
    return as_compiled(program, found.name, found.said)


def run_apart(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    settings: Settings | None,
    sink: DiagnosticSink,
    *,
    grad: bool,
    work: Callable[[], RanT],
) -> RanT:
    """Run a module on the simulated device of a copy of this process, once it is seen that it can; the sink hears of what was assumed."""
    check_module(module)
    if grad:
        check_trainable(module)
    check_whole(module, [args, kwargs])
    check_machine()
    if settings is not None:
        check_settings(module, settings)
    surroundings = dict.fromkeys(around(module, grad=grad, compiles=True), "IRS199")
    found = apart(work)
    found.record.assumed.update({**surroundings, **found.assumed})
    tell_assumed(found.record, sink)
    found.record.root = _scoped(found.record, found.places)
    return found


def as_compiled(program: Program, name: str, said: str) -> Program:
    """Return a program marked as compiled: of a module's class, and how."""
    program.format = "compiled"
    program.metadata["class"] = name
    program.metadata["compiled"] = said
    return program


def _scoped(record: Record, places: Sequence[tuple[str, str]]) -> Scope:
    """Give the operators their modules and lines."""
    root = root_scope()
    for op, (path, line) in zip(record.ops, places, strict=True):
        scope = root
        for name in path.split(".") if path else ():
            scope = scope.child(name)
        op.scope = scope
        file, _, number = line.rpartition(":")
        if number.isdecimal():
            op.loc = Loc(file, int(number), "", linecache.getline(file, int(number)).strip())
    return root


# -- recording ---------------------------------------------------------------------------------------------------------


@dataclass
class Recording:
    """One run."""

    record: Record = field(default_factory=lambda: Record(root=_LATER, device="cuda:0"))
    places: list[tuple[str, str]] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    """Requests before each operator."""
    ends: list[int] = field(default_factory=list)
    storages: dict[Any, Storage] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    """By slot of the tape, the number of the storage."""
    latest: dict[Piece, Tensor] = field(default_factory=dict)
    """Tensor that was written last into each piece."""
    seen: dict[tuple[Any, Any], Tensor] = field(default_factory=dict)
    """Tensors by where they lie, until it is written there again."""


class Recorder:
    """Notes the kernels that run on the simulated device, generated ones and others."""

    def __init__(self) -> None:
        self.process: Process
        self.watch: Watch
        self.found = Recording()
        self.spreads: dict[int, Spread] = {}
        self.phase: Phase | None = None
        """Phase of the program, where whoever runs it knows."""
        self._on = False
        self._inside = False
        self._declared: list[tuple[torch.Tensor, Kind, str]] = []
        self._code: dict[str, dict[int, Kernel] | None] = {}
        self._before: frozenset[Any] = frozenset()
        """Pieces that existed when the run began."""
        self.modules: dict[int, str] = {}
        """Paths of modules by identity."""
        self.paths: frozenset[str] = frozenset()
        self._called_in: dict[int, str] = {}
        """By number of the autograd node that a compiled call makes, the path of the module that was being called."""

    # -- what is there before --------------------------------------------------------------------------------------

    def declare(self, tensor: torch.Tensor, kind: Kind, name: str) -> None:
        """Declare a tensor that exists before each run."""
        piece = self.process.machine.piece_under(tensor)
        if piece is not None:
            piece.kind, piece.label = ("tensor" if kind == "constant" else kind), name
        self._declared.append((tensor, kind, name))

    def begin(self) -> None:
        """Begin a run."""
        self.found = Recording()
        self._before = frozenset(self.process.machine.pieces.values())
        for tensor, kind, name in self._declared:
            found = self._tensor(tensor)
            if found is not None and not found.name:
                found.kind, found.name, found.trainable = kind, name, tensor.requires_grad
        self._on = True

    def end(self, outputs: Any) -> None:
        """End the run."""
        self._on = False
        self.found.record.outputs = tuple(
            self._operand(one) for one in tree_leaves(outputs) if isinstance(one, torch.Tensor) and self._piece(one) is not None
        )

    def storage_of(self, tensor: torch.Tensor) -> Storage | None:
        """Return the record of what is behind a tensor."""
        found = self._tensor(tensor)
        return None if found is None else found.storage

    # -- kernels ---------------------------------------------------------------------------------------------------

    def following(self, op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper that runs in place of a kernel and calls it."""

        def told(*args: Any, **kwargs: Any) -> Any:
            if not self._on or self._inside or self._is_aside:
                return kernel(*args, **kwargs)
            self._inside = True
            try:
                begin = self._position()
                called = [self._noted(one) for one in args], {name: self._noted(one) for name, one in kwargs.items()}
                made = kernel(*args, **kwargs)
                self._add(op, *called, made, begin, kwargs)
            finally:
                self._inside = False
            return made

        return told

    def modelled(self, piece: Piece, asked: Workspace) -> None:
        """Note memory that a library is given, whose size is modelled."""
        tape = self.process.machine.gpu.tape
        if piece.block is not None:
            slot = self.process.machine.gpu.slots[piece.block]
        else:
            # Taken to be given nothing: the request is on the tape for what it may be.
            slot = tape.slot(0, WORKSPACE, asked.label)
            tape.blocks.append(0)
            tape.take(slot)
            tape.free(slot)
        self.spreads[slot] = Spread(0, asked.most if isinstance(asked.most, int) else None, asked.reason, modelled=True)

    def launched(self, kernel: Any, custom: bool, args: Sequence[Any]) -> None:
        """Record the launch of a generated kernel, or of one that the program wrote itself."""
        if not self._on or self._is_aside:
            return
        while custom and not isinstance(kernel, JITFunction):
            kernel = kernel.fn
        into = written(kernel) if custom else ()
        reads: list[torch.Tensor] = []
        writes: list[torch.Tensor] = []
        for name, one in zip(kernel.arg_names, args, strict=False):
            if not isinstance(one, torch.Tensor):
                continue
            writing = name in into or (not custom and name.startswith(_WRITTEN))
            if not writing or name.startswith("in_out") or custom:
                reads.append(one)
            if writing:
                writes.append(one)
        begin = self._position()
        site = self._site()
        operands = tuple(self._operand(one) for one in reads)
        name = str(kernel.__name__)
        made = GeneratedKernel(name) if site is None else GeneratedKernel(name, site.operators, site.lines, site.bytes, site.counts)
        self._append(made, operands, {}, tuple(writes), begin, site)

    @property
    def _is_aside(self) -> bool:
        """Return whether the running code is none of the program: it is being compiled, or candidates are timed."""
        return self.process.compiler.busy or self.watch.tuning

    def _add(self, op: Any, args: list[Any], kwargs: dict[str, Any], made: Any, begin: int, given: Mapping[str, Any]) -> None:
        out = [name for name in given if name == "out" or name.startswith("out")] if "out" in op._overloadname else []
        if out:
            functional = _without_out(op)
            if functional is not None:
                op, kwargs = functional, {name: one for name, one in kwargs.items() if name not in out}
                made = [one for name in out for one in tree_leaves(given[name])]
        results = made if isinstance(made, tuple | list) else [] if made is None else [made]
        # What changes lists of tensors in place returns nothing.
        touched = results if results or not op._schema.is_mutable else [given, args]
        if any(self._is_here(one) for one in tree_leaves(touched)):
            self._append(op, tuple(args), kwargs, tuple(results), begin, self._site())

    def _is_here(self, one: object) -> bool:
        if isinstance(one, Tensor):
            return one.device.startswith("cuda")
        return isinstance(one, torch.Tensor) and self._piece(one) is not None

    def _append(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Any, ...], begin: int, site: Kernel | None
    ) -> None:
        found = self.found
        number = len(found.record.ops)
        op = Op(number, func, args, kwargs, (), _LATER, None, self._phase())
        found.record.ops.append(op)
        op.results = tuple(self._result(one, number) if isinstance(one, torch.Tensor) else None for one in tree_leaves(list(results)))
        found.places.append(self._place(site))
        found.begins.append(begin)
        found.ends.append(len(self.process.machine.gpu.tape.events))

    def _phase(self) -> Any:
        if self.phase is not None:
            return self.phase
        if self.watch.in_optimizer:
            return "optimizer"
        return "forward" if torch._C._current_autograd_node() is None else "backward"

    def _position(self) -> int:
        return len(self.process.machine.settled_gpu.tape.events)

    def _place(self, site: Kernel | None) -> tuple[str, str]:
        """Return the module and the line."""
        if site is not None:
            line = next((one for one in site.lines if not one.startswith("module ")), "")
            # A library's call is of one operator, whose operands others may have made; a generated kernel of all.
            return self._path(_common_module(site.modules if site.generated else site.modules[:1])), line
        return self._running, line_text(self.watch.line_of(sys._getframe(1)))

    @property
    def _running(self) -> str:
        """Return the path of the module that is being called."""
        module = self.watch.running
        return "" if module is None else self.modules.get(id(module), "")

    def _path(self, within: str) -> str:
        """Return the path of a module that compiled code names from the module whose code it is; empty where that is not known.

        One code may serve several modules: which one, only the call tells, and for the backward what the call's forward noted.
        """
        node: Any = torch._C._current_autograd_node()
        if node is None:
            outer = self._running
            # The number of the node that was made last: what runs after it without gradients makes none.
            self._called_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, outer)
        else:
            outer = self._called_in.get(node._sequence_nr(), "")
        found = f"{outer}.{within}".strip(".")
        return found if found in self.paths else ""

    def _site(self) -> Kernel | None:
        """Return the kernel that the generated code calls now."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in self._code:
                self._code[name] = self._sites(name)
            sites = self._code[name]
            if sites is not None:
                return sites.get(frame.f_lineno)
            frame = frame.f_back
        return None

    def _sites(self, file: str) -> dict[int, Kernel] | None:
        """Return the kernels that generated code calls, by line; None for other code."""
        if not self.process.compiler.wrote(file):
            return None
        with open(file, encoding="utf-8") as code:
            text = code.read()
        return next((graph.sites() for graph in self.process.compiler.graphs if graph.text and graph.text in text), None)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _piece(self, tensor: torch.Tensor) -> Piece | None:
        if tensor.device.type != "cuda":
            return None
        found = self.process.machine.piece_under(tensor)
        return found if found is None or found.first is None else found.first

    def _noted(self, item: Any) -> Any:
        """Return an argument in which `Tensor` stands for each tensor."""
        if isinstance(item, torch.Tensor):
            return self._operand(item)
        if isinstance(item, tuple | list):
            return tuple(self._noted(one) for one in item)
        return None if isinstance(item, torch.Generator) else item

    def _operand(self, tensor: torch.Tensor) -> Any:
        """Return a tensor as it is read: where it lies otherwise than it was written, a view of that."""
        piece = self._piece(tensor)
        if piece is None:
            return self._tensor(tensor)
        found = self.found.seen.get((piece, _geometry(tensor)))
        if found is not None:
            return found
        latest = self.found.latest.get(piece)
        made = self._tensor(tensor)
        if latest is not None and made is not None:
            number = len(self.found.record.ops)
            view: Any = torch.ops.aten.as_strided.default
            arguments = (latest, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))
            self.found.record.ops.append(Op(number, view, arguments, {}, (made,), _LATER, None, self._phase()))
            made.kind, made.made_by = "result", number
            at = self._position()
            self.found.places.append(("", ""))
            self.found.begins.append(at)
            self.found.ends.append(at)
        return made

    def _result(self, tensor: torch.Tensor, number: int) -> Tensor | None:
        """Return a tensor that an operator writes."""
        piece = self._piece(tensor)
        if piece is not None:
            for key in [key for key in self.found.seen if key[0] is piece]:
                del self.found.seen[key]
        made = self._tensor(tensor)
        if made is None:
            return None
        made.kind, made.made_by = "result", number
        if made.storage is not None and made.storage.born is None and piece not in self._before:
            made.storage.born = number
        return made

    def _tensor(self, tensor: torch.Tensor) -> Tensor | None:
        """Return a record of a tensor as it lies now."""
        found, piece = self.found, self._piece(tensor)
        place: Any = tensor.untyped_storage()._cdata if piece is None else piece
        known = found.seen.get((place, _geometry(tensor)))
        if known is not None:
            return known
        storage = found.storages.get(place)
        if storage is None:
            size = tensor.untyped_storage().nbytes() if piece is None else piece.bytes
            storage = found.storages[place] = Storage(len(found.storages), size, str(tensor.device), None)
            found.record.storages.append(storage)
            held = None if piece is None else piece.heir or piece
            if held is not None and held.block is not None:
                found.slots[self.process.machine.gpu.slots[held.block]] = storage.number
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        offset: Any = tensor.storage_offset()
        made = Tensor(len(found.record.tensors), storage, dtype_of(tensor), shape, strides, offset, str(tensor.device), "constant")
        found.record.tensors.append(made)
        found.seen[place, _geometry(tensor)] = made
        if piece is not None:
            found.latest[piece] = made
        return made


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _common_module(modules: Sequence[str]) -> str:
    """Return the innermost module that holds all of these."""
    paths = [one.split(".") for one in modules]
    return ".".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


@cache
def _without_out(op: Any) -> Any:
    """Return the overload that makes what another one writes into a given tensor."""
    named = [one.name for one in op._schema.arguments if not one.is_out]
    packet = op.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((one for one in overloads if one is not op and [arg.name for arg in one._schema.arguments] == named), None)


# -- running -----------------------------------------------------------------------------------------------------------


class Run:
    """A module on the simulated device, in a process that ends with it."""

    def __init__(self, module: nn.Module, settings: Settings | None, target: Target, hidden: Sequence[str] = ()) -> None:
        """`hidden` are files that call the module and are not part of the program."""
        self._recorder = recorder = Recorder()
        self._target = target
        if Process.current is not None:
            raise UsageError("this process simulates a device already", code="IRS644", hint="capture it in another process")
        if "torch._dynamo" in sys.modules:
            forget()
        recorder.process = self._process = process = Process(target, workspace_policy(target).buffers, listener=recorder)
        recorder.watch = self._watch = process.start(hidden=(__file__, *hidden))
        process.compiler.launched = recorder.launched
        self._whole = module._orig_mod if isinstance(module, torch._dynamo.OptimizedModule) else module
        recorder.modules = {id(one): _plain(name) for name, one in self._whole.named_modules()}
        recorder.paths = frozenset(_plain(name) for name, _ in self._whole.named_modules(remove_duplicate=False))
        if settings is None and module is self._whole:
            self._follow_compiled(module)
        self._settings = settings
        self._module = module
        self._moved: dict[int, torch.Tensor] = {}
        """By identity of what was loaded, what it is on the device."""
        self._originals: list[torch.Tensor] = []
        self._backends: dict[str, None] = {}
        self._follow_backends()

    def _follow_compiled(self, module: nn.Module) -> None:
        """See calls of the outermost modules that are compiled in place: code that they share does not tell them apart."""
        if module._compiled_call_impl is not None:
            self._watch.follow_compiled(module)
        elif "forward" not in vars(module):
            for child in module.children():
                self._follow_compiled(child)

    def _follow_backends(self) -> None:
        kind: Any = torch._dynamo.output_graph.OutputGraph
        original = kind.call_user_compiler

        def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
            found: Any = graph.compiler_fn
            while (inner := getattr(found, "_torchdynamo_orig_backend", None) or getattr(found, "_compiler_fn", None)) is not None:
                found = inner
            self._backends[str(getattr(found, "compiler_name", "") or getattr(found, "__name__", type(found).__name__))] = None
            return original(graph, *args, **kwargs)

        kind.call_user_compiler = call

    def forward(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ran:
        """Load it, and run it without gradients."""
        machine = self._process.machine
        self._watch.begins_below(sys._getframe())
        with machine.without_limit(), explained_run(self._watch):
            self._load()
            given, named = self._given(args, kwargs)
            called: Any = self._module if self._settings is None else torch.compile(self._module, **self._settings)
            before = machine.settled_gpu.tape.cut()
            runs: list[tuple[Recording, int, int]] = []
            while len(runs) < (_RUNS if not self._has_pools() else _REPLAYED_FROM):
                self._recorder.begin()
                with torch.no_grad():
                    out = called(*given, **named)
                self._recorder.end(out)
                end = machine.settled_gpu.tape.cut()
                del out
                runs.append((self._recorder.found, end, machine.settled_gpu.tape.cut()))
        self._watch.close()
        return self._found(before, runs)

    def _has_pools(self) -> bool:
        return any(one.verb == "begin pool" for one in self._process.machine.gpu.tape.actions)

    def _load(self) -> None:
        """Bring parameters and buffers to the device, as `Module.to` does; those without values are made there."""
        made = self._moved

        def moved(one: torch.Tensor) -> torch.Tensor:
            found = made.get(id(one))
            if found is None:
                plain = on_device(one.detach())
                found = made[id(one)] = nn.Parameter(plain, one.requires_grad) if isinstance(one, nn.Parameter) else plain
            return found

        def load(module: nn.Module, path: str) -> None:
            for name, child in module._modules.items():
                if child is not None:
                    load(child, f"{path}{name}.")
            tables: tuple[tuple[Kind, dict[str, Any]], ...] = (("parameter", module._parameters), ("buffer", module._buffers))
            for kind, table in tables:
                for name, one in table.items():
                    if one is not None:
                        table[name] = moved(one)
                        self._recorder.declare(table[name], kind, _plain(f"{path}{name}"))

        self._originals = [*self._whole.parameters(), *self._whole.buffers()]  # so that no number stands for two
        load(self._whole, "")

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, named = tree_map_only(torch.Tensor, on_device, (tuple(args), dict(kwargs)))
        for name, one in named_arguments(self._whole, given, named):
            self._recorder.declare(one, "input", name)
        return given, named

    # -- what it did -----------------------------------------------------------------------------------------------

    def _found(self, before: int, runs: Sequence[tuple[Recording, int, int]]) -> Ran:
        source = self._process.machine.tape()
        # A CUDA graph is replayed without its kernels: those of the run before it are shown.
        shown = max(runs, key=lambda run: (len(run[0].record.ops), run[1]))[0]
        note_deaths(source, shown)
        owners = {slot: number for run, _, _ in runs if len(run.record.ops) == len(shown.record.ops) for slot, number in run.slots.items()}
        return Ran(tape=_tape(source, before, runs, shown, self._recorder.spreads), owners=owners, **self._ran(shown))

    def _ran(self, shown: Recording) -> dict[str, Any]:
        """Return what is found of a run besides its memory."""
        compiled = self._process.compiler.found()
        self._process.compiler.close()
        return {
            "name": type(self._whole).__name__,
            "said": _how_said(self._settings),
            "record": shown.record,
            "places": shown.places,
            "compiled": compiled,
            "assumed": self._assumed(),
        }

    def _assumed(self) -> dict[Assumed, str]:
        found: dict[Assumed, str] = {}
        if not self._backends:
            why = "torch.compile met nothing that it compiles: what runs is eager"
            found[Assumed("execution", "eager", why)] = "IRS199"
        for name in self._backends.keys() - set(_KNOWN_BACKENDS):
            why = "only its PyTorch operators are followed: its results are counted, not its own memory"
            found[Assumed("backend", name, why)] = "IRS199"
        for name, count in self._process.kernels.unknown.items():
            why = f"its kernel's temporary memory is not known ({count} calls)"
            found[Assumed(f"memory of {name}", "that of its results", why)] = "IRS199"
        return found


def _plain(name: str) -> str:
    """A module's or tensor's path without what torch.compile puts in."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _how_said(settings: Settings | None) -> str:
    if settings is None:
        return "as given"
    return f"torch.compile({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def on_device(one: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the simulated device; one without values is made there."""
    if one.is_meta or isinstance(one, FakeTensor):
        return torch.empty_strided(tuple(one.shape), one.stride(), dtype=one.dtype, device="cuda")
    return one.to("cuda")


@contextmanager
def explained_run(watch: Watch) -> Iterator[None]:
    """Turn an error of the compiler, or of the model, into one line with the model's place."""
    try:
        yield
    except IrscopeError:
        raise
    except Exception as error:
        if [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1] == __file__:
            raise  # a fault of irscope's own
        cause: BaseException | None = error
        while cause is not None and not str(cause).startswith("the compiler of torch"):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise UsageError(str(cause), code="IRS644", hint="without --compile it is analysed as it runs eagerly") from None
        by_compiler = explained(error)
        places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__) if watch.shows(frame.f_code)]
        where = f"{places[-1][0]}:{places[-1][1]}" if places else ""
        if by_compiler is not None:
            text, line = by_compiler
            raise LoadError(f"torch.compile refuses it: {text}", code="IRS395", where=line or where, hint=_TRY) from None
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise LoadError(f"the compiled model failed while it was captured: {text}", code="IRS189", where=where, hint=_TRY) from None


_TRY: Final = "try it once without irscope"


# -- memory ------------------------------------------------------------------------------------------------------------


def note_deaths(tape: Tape[Any], found: Recording) -> None:
    """Note when storages were given back: the operators that had begun, and the place among all deaths."""
    by_number = {one.number: one for one in found.record.storages}
    deaths = ((place, found.slots[slot]) for slot, place in tape.given_back().items() if slot in found.slots)
    for rank, (place, number) in enumerate(deaths):
        storage = by_number[number]
        storage.died, storage.rank = bisect_right(found.begins, place), rank


def _tape(
    source: Tape[Any], before: int, runs: Sequence[tuple[Recording, int, int]], shown: Recording, spreads: Mapping[int, Spread]
) -> Tape[Any]:
    """Return the tape with a step for each operator of the run that is shown, in every run, and one for what the caller lets go of.

    A run with as many operators has them in the same order; of another one the first steps are its own, and the last has the rest.
    """
    count = len(shown.record.ops)
    starts: list[int] = []
    spans: list[Span] = []
    begin = before
    for number, (run, end, gone) in enumerate(runs):
        own = list(step_starts(source, run, {0: begin}))
        starts += [*own[:count], *[end] * (count - len(own[:count])), end]
        first = number * (count + 1)
        name = "cold" if not number else "warm" if number == len(runs) - 1 else "second"
        spans += [
            Span(name, first, first + count, counted=name != "second"),
            Span("release", first + count, first + count + 1, counted=False),
        ]
        begin = gone
    starts.append(begin)
    found = source.section(before, begin)
    others = {*source.given_back(), *found.resident}
    kept = [slot for slot, kind in enumerate(source.kinds) if kind == "workspace" and slot not in others]
    return replace(found, spreads=dict(spreads), kept=kept, starts=[at - before for at in starts], spans=spans)


def step_starts(tape: Tape[Any], run: Recording, firsts: Mapping[int, int]) -> Iterator[int]:
    """Yield the begin of each operator's step: the first request after the operator before it, since what an operator writes into is made
    before it runs. `firsts` has operators with which something begins, each with the requests before that.

    A view asks for nothing: it is made for the operator after it, whose requests may be before it.
    """
    at = 0
    for number, (op, first, last) in enumerate(zip(run.record.ops, run.begins, run.ends, strict=True)):
        at = firsts.get(number, at)
        yield at if number in firsts else next((place for place, _, is_taken in tape.requests(at, first) if is_taken), first)
        at = at if op.func.is_view else last
