"""A named model as a program: captured while it runs on a pretended device, or exported where a size stays open."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends import exported
from irscope.frontends.base import LoadOptions
from irscope.frontends.eager.live import capture_program
from irscope.frontends.eager.values import OpenSizes, SizeFixed
from irscope.frontends.named.find import find_recipe
from irscope.frontends.named.hollow import faked, made_hollow
from irscope.frontends.named.names import Name, parse_name
from irscope.frontends.named.recipe import Chosen, Recipe, Size, Wanted, choose
from irscope.frontends.named.tensors import make_arguments
from irscope.frontends.torch_common.dtypes import torch_dtype
from irscope.ir.bind import rename_symbols
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.program import Assumed, Program
from irscope.ir.types import UNKNOWN_TYPE
from irscope.passkit.settings import Settings

_SMALLEST_OPEN: Final = 2
"""torch takes sizes of 1 to be fixed."""
_MOST_IN_PYTHON: Final = 6
"""Operators for which a capture is tried again."""


@dataclass
class Made:
    """A named model with its inputs chosen."""

    name: Name
    recipe: Recipe
    module: nn.Module
    chosen: Chosen

    @property
    def assumed(self) -> list[Assumed]:
        """Assumptions about the run: what was not specified, and the value that was assumed."""
        return [*self.recipe.assumed, *self.chosen.assumed()]

    def arguments(self, *, real: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the call: by position, then by name."""
        return make_arguments(self.chosen, real=real)


def make_named(text: str, options: LoadOptions, *, hollow: bool = True) -> Made:
    """Make the model that a name stands for; large weights have no values where it is hollow."""
    name = parse_name(text)
    if options.method:
        raise UsageError("a named model has no methods to choose from", code="IRS623", where=text, hint="leave --method out")
    with quiet():
        recipe = find_recipe(name)
        try:
            module = made_hollow(recipe.make) if hollow else _made_real(recipe)
        except ZeroDivisionError:
            raise
        except Exception as error:  # whatever the package raises is why it cannot make the model
            raise LoadError(f"{name.package} cannot make it: {first_line(error)}", code="IRS197", where=text) from error
        wanted = [_as_asked(one, recipe.dtype) for one in recipe.inputs(module)]
    asked = {type_.dtype for type_ in options.inputs.values()}
    dtype = recipe.dtype or next((one for one in (DType.BF16, DType.F16) if one in asked), None)
    if dtype is not None:
        module = module.to(torch_dtype(dtype)) if recipe.is_cast or dtype is not recipe.dtype else module
        wanted = [_as_asked(one, dtype) for one in wanted]
    return Made(name, recipe, module, choose(recipe, wanted, options, text))


def load_named(text: str, options: LoadOptions, sink: DiagnosticSink, settings: Settings) -> Program:
    """The program of a named model."""
    made = make_named(text, options)
    with quiet():
        if made.chosen.open:
            program = _opened(made, sink, settings)
        else:
            program = _captured(made, made.chosen, sink, settings, keep_calls=options.keep_calls)
    program.path = text
    program.assumed[:0] = made.assumed
    for one in made.recipe.assumed:
        if one.is_guess:
            sink.warn("IRS199", f"{one.what} are taken to be {one.value}: {one.why}", about=one.what)
    program.metadata["package"] = f"{made.name.package} {_version(made.name.package)}"
    return program


def _captured(
    made: Made,
    chosen: Chosen,
    sink: DiagnosticSink,
    settings: Settings,
    in_python: frozenset[Any] = frozenset(),
    keep_calls: bool = False,
) -> Program:
    target = target_of(settings)
    args, kwargs = make_arguments(chosen)
    device = "cpu" if target.device.kind == "cpu" else "cuda"
    given = args + tuple(kwargs.values())
    sizes = None
    if chosen.open:
        shapes = {one.name: one.shape for one in chosen.inputs}
        names = [*(one.name for one in chosen.inputs if not one.keyword), *kwargs]
        axes = {id(tensor): _shape(shapes[name], chosen) for name, tensor in zip(names, given, strict=True)}
        sizes = OpenSizes({name: chosen.sizes[name] for name in sorted(chosen.open)}, axes, in_python)
    return capture_program(made.module, args, kwargs, device=device, target=target, sizes=sizes, keep_calls=keep_calls, sink=sink)


def _shape(shape: Sequence[Size], chosen: Chosen) -> list[Size]:
    """A shape with the names of its open sizes, numbers for the others."""
    return [size if isinstance(size, int) or size in chosen.open else chosen.sizes[size] for size in shape]


def _opened(made: Made, sink: DiagnosticSink, settings: Settings) -> Program:
    """With sizes that are symbols: captured as it runs, or where that needs numbers through torch.export, which may take another path."""
    if any(one.as_list for one in made.chosen.inputs):
        raise UsageError("it takes a list of images, which has no open size", code="IRS673", where=made.name.text, hint="`--bind batch=1`")
    chosen = large_enough(made.chosen)
    in_python: set[Any] = set()
    while True:
        said = DiagnosticSink()
        try:
            program = _captured(made, chosen, said, settings, frozenset(in_python))
        except SizeFixed as error:
            if not error.func or error.func in in_python or len(in_python) >= _MOST_IN_PYTHON:
                return _exported(made, sink)
            in_python.add(error.func)
        except IrscopeError:
            return _exported(made, sink)
        else:
            for diagnostic in said:
                sink.add(diagnostic)
            return program


def _exported(made: Made, sink: DiagnosticSink) -> Program:
    from torch._subclasses.fake_tensor import FakeTensorMode

    chosen = large_enough(made.chosen)
    args, kwargs = make_arguments(chosen)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with tempfile.TemporaryDirectory(prefix="irscope-") as folder, faked(made.module, mode), torch.no_grad():
        path = Path(folder) / "model.pt2"
        try:
            program = torch.export.export(made.module, args, kwargs, dynamic_shapes=open_axes(chosen))
            torch.export.save(program, path)
        except Exception as error:  # whatever torch.export raises is why sizes cannot be left open
            raise LoadError(
                f"torch.export cannot leave its sizes open: {first_line(error)}",
                code="IRS673",
                where=made.name.text,
                hint=f"`--bind {','.join(f'{name}={made.chosen.sizes[name]}' for name in sorted(made.chosen.open))}` fixes them",
            ) from error
        found = exported.load(path, LoadOptions(), sink)
    _tie(found, made.module)
    rename_symbols(found, _names(found, chosen))
    return found


def _tie(program: Program, module: nn.Module) -> None:
    """Let weights that are one tensor of the module be one weight: without values, the file cannot tell."""
    graph = program.graph
    weights = {weight.name: weight for weight in graph.weights}
    first: dict[int, Value] = {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        weight = weights.get(name)
        if weight is None:
            continue
        kept = first.setdefault(id(tensor), weight)
        if kept is not weight and kept.type is weight.type:
            graph.replace_uses(weight, kept)
            graph.remove_weight(weight)


def _names(program: Program, chosen: Chosen) -> dict[str, str]:
    """What the user calls the symbols; LoadError for a size that the model does not leave open."""
    found: dict[str, str] = {}
    inputs = {value.name: value.type for value in program.graph.inputs}
    for one in chosen.inputs:
        for size, dim in zip(one.shape, inputs.get(one.name, UNKNOWN_TYPE).shape or (), strict=False):
            if isinstance(size, str) and size in chosen.open:
                if not isinstance(dim, SymDim):
                    raise LoadError(f"the model fixes {size} at {dim}", code="IRS673", hint=f"`--bind {size}={dim}`")
                if str(dim) in program.symbols:
                    found[str(dim)] = size
    return found


def large_enough(chosen: Chosen) -> Chosen:
    """The same with open sizes that torch.export does not take to be fixed."""
    sizes = {name: max(size, _SMALLEST_OPEN) if name in chosen.open else size for name, size in chosen.sizes.items()}
    return replace(chosen, sizes=sizes)


def open_axes(chosen: Chosen) -> dict[str, dict[int, Any]]:
    """Which axes of which inputs torch.export leaves open."""
    return {one.name: {axis: torch.export.Dim.AUTO for axis, size in enumerate(one.shape) if size in chosen.open} for one in chosen.inputs}


def _made_real(recipe: Recipe) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return recipe.make()


def _as_asked(one: Wanted, dtype: DType | None) -> Wanted:
    """Inputs of floats have the element type of the weights."""
    return replace(one, dtype=dtype) if dtype is not None and one.fill == "noise" else one


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Packages warn of what they will change themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
