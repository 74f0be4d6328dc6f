"""Models that PyTorch can run: exported programs, TorchScript, and modules."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.export._tree_utils import reorder_kwargs
from torch.utils import _pytree as pytree

from irscope.errors import UsageError
from irscope.ir.dtypes import LONG_NAMES
from irscope.measure.record.request import InputSpec, Request, given_values
from irscope.measure.record.sink import Progress
from irscope.measure.record.trace import NODE, SCOPE
from irscope.recording.records import Input

TORCH_DTYPES: dict[str, torch.dtype] = {dtype.text: getattr(torch, name) for name, dtype in LONG_NAMES.items() if hasattr(torch, name)}
_TEXTS = {dtype: text for text, dtype in TORCH_DTYPES.items()}


def type_text(dtype: torch.dtype, sizes: Sequence[int]) -> str:
    """Return a tensor's type as irscope writes it."""
    return f"{_TEXTS.get(dtype, '?')}[{','.join(map(str, sizes))}]"


# Models that PyTorch can run: exported programs, TorchScript, and modules.


@dataclass
class Runnable:
    """Something that PyTorch runs, with its arguments."""

    plain: Callable[[], Any]
    """Runs it without instrumentation."""
    marked: Callable[[], Any]
    """Runs it with markers that tell which part is which."""
    resident: Callable[[], list[torch.Tensor]]
    """Resident tensors: parameters, buffers and arguments."""
    results: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Types that each node of a graph returned, filled in while it runs."""
    scopes: dict[str, str] = field(default_factory=dict)
    """Module calls of nodes of a graph, by the names of their results."""
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the results of nodes that have several."""
    inputs: tuple[Input, ...] = ()
    """Inputs as they were made, where the request does not have them."""


def runnable(request: Request, device: torch.device) -> Runnable:
    """Return the model that is asked for, on a device."""
    progress = Progress.at(request.progress)
    if request.factory:
        return _made(request, device, progress)
    if request.model.format == "pt2":
        return _exported(request, device, progress)
    return _scripted(request, device)


def of_module(
    module: torch.nn.Module, arguments: Sequence[Any], keywords: dict[str, Any] | None = None, progress: Progress | None = None
) -> Runnable:
    """Return a live module; its calls are marked with the path of the module that runs."""
    named = keywords or {}
    tracker = ScopeTracker(module, progress or Progress.at(""))

    def marked() -> Any:
        with tracker.watching():
            return module(*arguments, **named)

    resident = _resident_tensors(module, (arguments, named))
    return Runnable(lambda: module(*arguments, **named), marked, resident)


def _made(request: Request, device: torch.device, progress: Progress) -> Runnable:
    where, _, name = request.factory.partition(":")
    given = {value.name: value.type for value in request.model.inputs}
    make = getattr(importlib.import_module(where), name)
    module, arguments, keywords, names = make(request.model.name, given, request.model.bind, request.trusted)
    module = module.eval().to(device)
    move = _mover(device)
    arguments, keywords = pytree.tree_map(move, tuple(arguments)), pytree.tree_map(move, dict(keywords))
    made = of_module(module, arguments, keywords, progress)
    leaves = [leaf for leaf in pytree.tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
    if len(leaves) == len(names):
        made.inputs = tuple(Input(name, type_text(leaf.dtype, leaf.shape)) for name, leaf in zip(names, leaves, strict=True))
    return made


def _mover(device: torch.device) -> Callable[[Any], Any]:
    return lambda item: item.to(device) if isinstance(item, torch.Tensor) else item


def _resident_tensors(module: torch.nn.Module, arguments: Any) -> Callable[[], list[torch.Tensor]]:
    given = [item for item in pytree.tree_leaves(arguments) if isinstance(item, torch.Tensor)]
    return lambda: [*module.parameters(), *module.buffers(), *given]


def _scripted(request: Request, device: torch.device) -> Runnable:
    module = torch.jit.load(request.model.path, map_location=device).eval()
    return of_module(module, _input_tensors(request, device))


def _exported(request: Request, device: torch.device, progress: Progress) -> Runnable:
    from torch.export.passes import move_to_device_pass

    program = _loaded(request.model.path)
    if device.type != "cpu":
        program = move_to_device_pass(program, str(device))
    module = program.module()
    arguments, keywords = _call(program, request, device)
    made = Runnable(
        lambda: module(*arguments, **keywords), lambda: None, _resident_tensors(module, (arguments, keywords)), {}, dict(request.scopes)
    )
    flat = _flat(module, arguments, keywords)
    made.names = {node.name: named for node in module.graph.nodes if (named := _result_names(node))}
    interpreter = _Interpreter(module, made.results, progress)

    def marked() -> Any:
        try:
            return interpreter.run(*flat)
        finally:
            interpreter.env = {}  # else the result would live until the next run

    made.marked = marked
    return made


def _loaded(path: str) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(path)
    except RuntimeError:
        # Classes of transformers' results are known to PyTorch only once their module is imported.
        if "transformers" in sys.modules or importlib.util.find_spec("transformers") is None:
            raise
        importlib.import_module("transformers.modeling_outputs")
        return torch.export.load(path)


def _flat(module: torch.fx.GraphModule, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    """Return the arguments as the graph's own placeholders want them: those by name in the order in which they were exported."""
    codegen: Any = module.graph._codegen
    info = getattr(codegen, "pytree_info", None)
    if info is not None and keywords:
        keywords = reorder_kwargs(keywords, info.in_spec)
    return list(pytree.tree_leaves((arguments, keywords)))


def _call(program: torch.export.ExportedProgram, request: Request, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the program's call: those it was exported with where their types are wanted, else made ones."""
    if program.example_inputs is None:
        return tuple(_input_tensors(request, device)), {}
    arguments, keywords = program.example_inputs
    leaves, spec = pytree.tree_flatten((arguments, reorder_kwargs(keywords, program.call_spec.in_spec)))
    made = dict(zip((one.name for one in request.inputs), zip(request.inputs, _input_tensors(request, device), strict=True), strict=True))
    given = [
        _chosen(leaf, made.get(str(name)), request, device) for leaf, name in zip(leaves, program.graph_signature.user_inputs, strict=True)
    ]
    arguments, keywords = pytree.tree_unflatten(given, spec)
    return tuple(arguments), dict(keywords)


def _chosen(leaf: Any, made: tuple[InputSpec, torch.Tensor] | None, request: Request, device: torch.device) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    as_exported = made is None or (str(made[0]) == type_text(leaf.dtype, leaf.shape) and not request.options.values)
    return leaf.to(device) if as_exported or made is None else made[1]


def _result_names(node: torch.fx.Node) -> tuple[str, ...]:
    """Nodes with several results have none with a name of their own; each is taken out by a node with one."""
    taken = [user for user in node.users if user.op == "call_function" and user.target is operator.getitem]
    return tuple(user.name for user in sorted(taken, key=lambda user: str(user.args[1])))


class _Interpreter(torch.fx.Interpreter):
    """Interprets an exported graph node by node as its module does, freeing values after their last use."""

    def __init__(self, module: torch.fx.GraphModule, results: dict[str, tuple[str, ...]], progress: Progress) -> None:
        super().__init__(module)
        self._results = results
        self._progress = progress

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        target = _target(n.target)
        self._progress.at_node(n.name, target)
        with _RecordFunctionFast(f"{NODE} {n.name} {target}"):
            result = super().run_node(n)
        if n.name not in self._results:
            self._results[n.name] = tuple(
                type_text(leaf.dtype, leaf.shape) for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)
            )
        return result


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name)
    return f"{getattr(target, 'namespace', 'python')}::{getattr(target, '__name__', str(target))}"


class ScopeTracker:
    """Puts markers around calls of modules, with paths as irscope writes them."""

    def __init__(self, root: torch.nn.Module | None, progress: Progress) -> None:
        self._root = root
        self._progress = progress
        self._names: dict[torch.nn.Module, str] = {}
        self._open: list[tuple[str, str, Any]] = []
        self._calls: dict[tuple[str, str], int] = {}
        if root is not None:
            self._names = {module: name for name, module in root.named_modules()}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Mark calls of the root's modules within the context."""
        self._open.clear()
        self._calls.clear()
        handles = []
        try:
            if not isinstance(self._root, torch.jit.ScriptModule):
                for module in self._names:
                    if module is not self._root:
                        handles.append(module.register_forward_pre_hook(lambda module, arguments: self.enter(module)))
                        handles.append(module.register_forward_hook(self._leave, always_call=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def name_modules(self, root: torch.nn.Module) -> None:
        """Calls from now on are those within another module."""
        if root is not self._root:
            self._root, self._names = root, {module: name for name, module in root.named_modules()}
        self._open.clear()
        self._calls.clear()

    def enter(self, module: torch.nn.Module) -> None:
        """Note that a call begins."""
        full = self._names.get(module, type(module).__name__)
        above, path, _ = self._open[-1] if self._open else ("", "", None)
        if not above:
            name = full
        else:
            name = full[len(above) + 1 :] if full.startswith(f"{above}.") else f"={full}"
        call = self._calls.get((path, name), 0)
        self._calls[path, name] = call + 1
        own = f"{name}#{call}" if call else name
        path = f"{path}/{own}" if path else own
        self._progress.at_node(path, type(module).__name__)
        marker = _RecordFunctionFast(f"{SCOPE} {path}")
        marker.__enter__()
        self._open.append((full, path, marker))

    def leave(self) -> None:
        """Note that the innermost call has ended."""
        self._open.pop()[2].__exit__(None, None, None)

    def _leave(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if self._open and self._open[-1][0] == self._names[module]:
            self.leave()


def _input_tensors(request: Request, device: torch.device) -> list[torch.Tensor]:
    given = given_values(request.options.values, request.inputs)
    generator = torch.Generator().manual_seed(request.options.seed)
    return [_input_tensor(input_, given, generator).to(device) for input_ in request.inputs]


def _input_tensor(input_: InputSpec, given: Mapping[str, Any], generator: torch.Generator) -> torch.Tensor:
    dtype = TORCH_DTYPES.get(input_.dtype)
    if dtype is None:
        raise UsageError(f"input {input_.name} has element type {input_.dtype}, which PyTorch has none for", code="IRS478")
    if input_.name in given:
        array = given[input_.name]
        # NumPy has no such element type: files hold its bits.
        as_bits = dtype is torch.bfloat16 and str(array.dtype) == "uint16"
        return torch.from_numpy(array).view(dtype) if as_bits else torch.from_numpy(array).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        kind = dtype if dtype.itemsize > 1 else torch.float32
        return torch.randn(input_.shape, generator=generator, dtype=kind).to(dtype)
    # Ones are valid as token ids, as masks and as counts.
    return torch.ones(input_.shape, dtype=dtype)
