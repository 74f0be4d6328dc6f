"""A module or another callable recorded on a simulated device: what is refused, what is assumed, and how failures are told."""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, TracebackType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules import module as torch_module
from torch.utils._pytree import tree_leaves

from irscope.devices import Target, target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.eager.fakes import MOST_FOUND, Fakes, Inside, mode_of, taken_for_real
from irscope.frontends.eager.pretend import pretended_cuda
from irscope.frontends.eager.record import Record, Tensor, program_of
from irscope.frontends.eager.recorder import Recorder
from irscope.frontends.eager.values import OpenSizes
from irscope.frontends.files.pickled import MOST_LITERAL_ELEMENTS
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.ir.places import Literal, Payload
from irscope.ir.program import Assumed, Program
from irscope.passkit.settings import Settings
from irscope.report.names import fold_paths


@dataclass
class Bench:
    """A module and its arguments on a simulated device, ready to be run."""

    recorder: Recorder
    fakes: Fakes
    module: nn.Module
    """The user's own module, whose tensors are fake while the bench is open."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: str

    def forward(self) -> Any:
        """Call the module."""
        return self.module(*self.args, **self.kwargs)

    def record(self, function: Callable[[], Any] | None = None) -> Record:
        """Record a function, the module's forward by default; fake tensors are made inside it as outside."""
        with told_clearly(self.recorder):
            self.recorder.run(function or self.forward)
        return self.recorder.record


@contextmanager
def bench(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grad: bool = False,
    device: str = "cuda",
    target: Target | None = None,
    sink: DiagnosticSink | None = None,
    watch: type[Recorder] = Recorder,
    most_found: int = MOST_FOUND,
    sizes: OpenSizes | None = None,
) -> Iterator[Bench]:
    """Put a module and its arguments on a simulated device. When the context ends the module is restored.

    `grad` says whether operators are seen below autograd; `watch` is the class of the recorder; `most_found` is how much an operator is
    taken to find where that depends on values that are not known; `sizes` are those that stay open.
    """
    check_whole(module, [args, kwargs])
    surroundings = list(around(module, grad=grad))
    with ExitStack() as stack:
        target = target or target_of(Settings())
        found = stack.enter_context(pretended_cuda(target, sink)) if device.startswith("cuda") else device
        mode = mode_of([args, kwargs, list(module.parameters()), list(module.buffers())], sizes)
        fakes = Fakes(mode, found, sizes)
        given, named = fakes.all(tuple(args)), fakes.all(dict(kwargs or {}))
        stack.enter_context(fakes.module(module))
        stack.enter_context(taken_for_real())
        stack.enter_context(mode)
        # One thread for autograd too: its worker threads lack devices if a backward ran before the device existed.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        inside = stack.enter_context(Inside(most_found))
        recorder = watch(module, grad=grad, device=found, target=target)
        recorder.inside, recorder.sizes, recorder.values.sizes = inside, sizes, sizes
        recorder.record.assumed.update(dict.fromkeys(surroundings, "IRS199"))
        if device.startswith("cuda") and not found.startswith("cuda"):
            recorder.record.assumed[Assumed("layouts", "those of the CPU", "this torch cannot pretend to have a CUDA device")] = ""
        recorder.declare_module(module, fakes.real)
        for name, value in named_arguments(module, given, named):
            recorder.declare(value, "input", name, fakes.real(value))
        yield Bench(recorder, fakes, module, given, named, found)


def tell_assumed(record: Record, sink: DiagnosticSink) -> None:
    """Warn about the assumptions of a recording, guessed sizes included."""
    for op in record.guessed:
        rows = next((one.shape[0] for one in op.makes() if one.shape), 0)
        why = f"how much {op.namespace}.{op.name} returns depends on values that are not known; it stands at {op.loc}"
        record.assumed[Assumed(f"rows of {op.name}", str(rows), why)] = "IRS193"
    for one, code in record.assumed.items():
        if code:
            sink.warn(code, f"{one.what} taken to be {one.value}: {one.why}", about=one.text)


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors among the arguments under the names of forward's parameters, those in containers numbered."""
    try:
        names = list(inspect.signature(module.forward).bind_partial(*args).arguments.items())
    except (TypeError, ValueError):
        names = [(f"arg{place}", value) for place, value in enumerate(args)]
    for name, item in (*names, *kwargs.items()):
        yield from _named_tensors(name, item)


def _named_tensors(name: str, item: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(item, torch.Tensor):
        yield name, item
    elif isinstance(item, Mapping):
        for key, part in item.items():
            yield from _named_tensors(f"{name}.{key}", part)
    elif isinstance(item, tuple | list):
        for place, part in enumerate(item):
            yield from _named_tensors(f"{name}.{place}", part)


WHAT = "execution"
_COMPILED = "_torchdynamo_orig_callable"
"""Attribute that torch.compile sets on functions that it wraps."""
_GRAPHED = "torch.cuda.graphs"
_SHARDING = {
    "torch.distributed.fsdp._fully_shard": "fully_shard",
    "torch.distributed.fsdp": "FSDP",
    "deepspeed": "DeepSpeed",
    "fairscale": "FairScale",
    "megatron": "Megatron",
}
"""Packages whose modules hold a shard of the weights and gather the others, by their usual names."""
_DTENSOR = "torch.distributed.tensor"
_WHOLE = "give the module as it was before"


def check_whole(module: nn.Module, inputs: Any) -> None:
    """Raise UsageError for modules whose weights are sharded over processes or devices: no device runs the whole module."""
    for name, part in module.named_modules():
        package = _package(type(part), _SHARDING)
        if package:
            said = f"{_called(name)} is sharded by {_SHARDING[package]}, which gathers its weights while it runs"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=f"{_WHOLE} it was wrapped or sharded")
        hook = getattr(part, "_hf_hook", None)
        if hook is not None:
            said = f"{_called(name)} has a hook of accelerate ({_hook_name(hook)}, as device_map leaves it), which moves weights and inputs"
            hint = "load the model without device_map, or accelerate.hooks.remove_hook_from_submodules(module)"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=hint)
    tensors = itertools.chain(module.named_parameters(), module.named_buffers(), (("an input", leaf) for leaf in tree_leaves(inputs)))
    for name, tensor in tensors:
        if isinstance(tensor, torch.Tensor) and _package(type(tensor), (_DTENSOR,)):
            said = f"{name} is a DTensor, of which each process holds a part (fully_shard, tensor parallelism)"
            raise UsageError(f"{said}; that is not analysed", code="IRS191", hint=f"{_WHOLE} its weights were distributed")


def around(module: nn.Module, *, grad: bool, compiles: bool = False) -> Iterator[Assumed]:
    """Yield what would run besides or instead of the module's own operators, each with what is analysed instead.

    `compiles` where what torch.compile makes of it is what runs.
    """
    parts = list(module.named_modules())
    compiled = [name for name, part in parts if _is_compiled(part)]
    if compiled and not compiles:
        yield Assumed(
            WHAT,
            "eager",
            f"torch.compile replaces {_name_list(compiled)}; the code that it generates, its fusions and its memory are not analysed",
        )
    graphed = [name for name, part in parts if _module_of(vars(part).get("forward")) == _GRAPHED]
    if graphed:
        yield Assumed(WHAT, "eager", f"{_name_list(graphed)} replays a CUDA graph, whose memory pool is not analysed")
    for kind, does in (
        (nn.parallel.DistributedDataParallel, "exchanges gradients between processes; its buckets and the communication are not analysed"),
        (nn.DataParallel, "spreads the batch over devices; its copies of the weights are not analysed"),
    ):
        wrapped = [name for name, part in parts if isinstance(part, kind)]
        if wrapped:
            yield Assumed(WHAT, "one process, one device", f"{kind.__name__} around {_name_list(wrapped)} {does}")
    hooked = [name for name, part in parts if any(map(_is_foreign, _hooks(part, grad)))]
    if hooked:
        why = f"{_hooks_meant(grad)} on {_name_list(hooked)} ran once without data; what they do and keep is counted as a part of the model"
        yield Assumed(WHAT, "with hooks", why)
    if any(map(_is_foreign, _global_hooks())):
        yield Assumed(
            WHAT, "with hooks", "hooks on all modules ran once without data; what they do and keep is counted as a part of the model"
        )
    waiting = [name for name, one in module.named_parameters() if one._backward_hooks or getattr(one, "_post_accumulate_grad_hooks", None)]
    if grad and waiting:
        why = f"hooks on gradients of {_name_list(waiting)}, such as an optimizer in the backward, are not run"
        yield Assumed(WHAT, "without hooks of parameters", why)


def _hooks_meant(grad: bool) -> str:
    return "hooks" if grad else "forward hooks"


def is_compiled(module: nn.Module) -> bool:
    """Return whether torch.compile applies to a module, or to one that it holds."""
    return any(map(_is_compiled, module.modules()))


def _is_compiled(part: nn.Module) -> bool:
    """Return whether torch.compile applies to the module: to itself, its forward, or a function that its forward refers to."""
    if part._compiled_call_impl is not None or type(part).__module__ == "torch._dynamo.eval_frame":
        return True
    forward = vars(part).get("forward", type(part).forward)
    if hasattr(forward, _COMPILED) or any(hasattr(variable, _COMPILED) for variable in vars(part).values() if callable(variable)):
        return True
    function = getattr(forward, "__func__", forward)
    if not isinstance(function, FunctionType) or function.__module__.startswith("torch."):
        return False
    return any(_wrapped(function.__globals__.get(name)) for name in _mentioned(function.__code__))


def _wrapped(item: Any) -> bool:
    return isinstance(item, FunctionType) and hasattr(item, _COMPILED)


def _mentioned(code: CodeType) -> Iterator[str]:
    """Yield the global names used by a function and by those defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _mentioned(constant)


def _hooks(part: nn.Module, grad: bool) -> Iterable[Callable[..., Any]]:
    found = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
    return [*found, *part._backward_hooks.values(), *part._backward_pre_hooks.values()] if grad else found


def _global_hooks() -> Sequence[Callable[..., Any]]:
    return [*torch_module._global_forward_hooks.values(), *torch_module._global_forward_pre_hooks.values()]


def _is_foreign(hook: Callable[..., Any]) -> bool:
    """Return whether a hook is the user's, not torch's own like those of weight_norm and pruning, whose operators count as the model's."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return not _module_of(hook).startswith("torch.")


def _module_of(item: Any) -> str:
    """Return the module that a function, a bound method's class or a callable object comes from."""
    module = getattr(item, "__module__", None) if isinstance(item, FunctionType) or hasattr(item, "__self__") else type(item).__module__
    return "" if item is None else str(module or "")


def _package(kind: type, packages: Iterable[str]) -> str:
    """Return the first of these packages that a class or one of its bases is from."""
    homes = [base.__module__ for base in kind.__mro__]
    return next((package for package in packages for home in homes if home == package or home.startswith(f"{package}.")), "")


def _hook_name(hook: Any) -> str:
    inner = getattr(hook, "hooks", ())
    return ", ".join(dict.fromkeys(type(one).__name__ for one in inner)) or type(hook).__name__


def _called(name: str) -> str:
    return f"module {name}" if name else "the module"


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(name or "the whole module" for name in fold_paths(dict.fromkeys(names)).values()))


_LONGEST = 160


@contextmanager
def told_clearly(recorder: Recorder) -> Iterator[None]:
    """Convert exceptions of the model to one-line errors with place and remedy."""
    try:
        yield
    except IrscopeError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        where, statement = _failing_line(recorder, error.__traceback__)
        shown = f": {statement}" if statement else ""
        raise LoadError(
            f"the model looks at values of tensors, which are not computed while it is captured{shown}",
            code="IRS188",
            where=where,
            hint=_what_to_pass(recorder),
        ) from error
    except UnsupportedOperatorException as error:
        where, _ = _failing_line(recorder, error.__traceback__)
        raise LoadError(
            f"torch cannot run {error.func} without data",
            code="IRS190",
            where=where,
            hint="register a fake implementation for it: torch.library.register_fake",
        ) from error
    except Exception as error:
        where, statement = _failing_line(recorder, error.__traceback__)
        text = " ".join(str(error).split())[:_LONGEST]
        shown = f" at {statement}" if statement else ""
        raise LoadError(
            f"the model failed while it was captured: {type(error).__name__}: {text}{shown}",
            code="IRS189",
            where=where,
            hint="it has to run with these arguments on one device; try it once without irscope",
        ) from error


def _failing_line(recorder: Recorder, trace: TracebackType | None) -> tuple[str, str]:
    """Return the innermost source line outside torch, with its text; the module where the model has no code of its own."""
    found: tuple[str, int] | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if recorder.frames.shows(code):
            found = (code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    if found is None:
        scope = recorder.calls.failed
        if scope is None or not scope.path:
            return "", ""
        outside = scope.path.rpartition("/")[2].startswith("=")  # no part of the model, such as a loss
        return f"module {scope.cls}" if outside else f"module {scope.path} ({scope.cls})", ""
    return f"{found[0]}:{found[1]}", linecache.getline(*found).strip()


def _what_to_pass(recorder: Recorder) -> str:
    """Return the unknown tensors on which the value depends."""
    missing = list(recorder.values.missing)
    inputs = list(dict.fromkeys(one.name for one in missing if one.kind == "input"))
    weights = list(dict.fromkeys(one.name for one in missing if one.kind in ("parameter", "buffer")))
    if inputs:
        return f"pass real tensors, not fake or meta ones, for {', '.join(inputs)}"
    if weights:
        return f"it depends on {', '.join(weights[:3])}: use a model with real weights, or one whose control flow does not depend on them"
    return "the value depends on the whole computation; pass arguments for which the model does not read it"


def capture_program(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    device: str = "cuda",
    target: Target | None = None,
    sizes: OpenSizes | None = None,
    keep_calls: bool = False,
    sink: DiagnosticSink,
) -> Program:
    """Run a module's forward once without data and without gradients, and record it; `sizes` are the symbolic ones."""
    check_module(module)
    for most_found in (MOST_FOUND, 0):
        with bench(module, args, kwargs, device=device, target=target, sink=sink, most_found=most_found, sizes=sizes) as made:
            try:
                record = made.record()
                break
            except LoadError as error:
                # A model that loops over a data-dependent number of items can only be captured with none.
                if error.code != "IRS188" or not most_found or not made.recorder.record.guessed:
                    raise
    tell_assumed(record, sink)
    program = program_of(record, _payloads(made.recorder.values.known), keep_calls=keep_calls)
    if sizes is not None:
        sizes.settle(program)
    program.metadata["class"] = type(module).__name__
    return program


def check_module(module: object) -> None:
    """Raise UsageError for what is not a module, or one that has to be called before it has parameters."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError("a TorchScript module is read from its file", code="IRS191", hint="torch.jit.save it, and load the file")
    if not isinstance(module, nn.Module):
        raise UsageError(f"a {type(module).__name__} is not an nn.Module", code="IRS191", hint="wrap the function in a module's forward")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError(f"{name} has no size yet", code="IRS191", hint="call the lazy module once, or give it sizes")


def _payloads(known: Callable[[Tensor], torch.Tensor | None]) -> Callable[[Tensor], Payload | None]:
    """Return the values of small constants and of small tables of numbers, on which sizes may depend."""

    def payload(tensor: Tensor) -> Payload | None:
        real = known(tensor)
        if real is None or real.numel() > MOST_LITERAL_ELEMENTS or tensor.kind not in ("constant", "buffer"):
            return None
        if str(real.dtype).removeprefix("torch.") not in NAMED_DTYPES or real.is_complex():
            return None
        if tensor.kind == "buffer" and real.is_floating_point():
            return None
        return Literal(tuple(real.detach().flatten().tolist()))

    return payload
