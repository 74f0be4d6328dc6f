"""Named models: made without memory for weights, captured or exported, written to files."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from irscope.budget import OverBudget, stage
from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.files import TemporaryFolder, staged
from irscope.frontends import exported
from irscope.frontends.base import LoadOptions
from irscope.frontends.eager.record import dtype_of
from irscope.frontends.eager.values import OpenSizes, SizeFixed
from irscope.frontends.files.folders import CONTEXTS, read_folder
from irscope.frontends.simulation import capture_module
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES, torch_dtype
from irscope.frontends.zoo.names import JAX, SCRIPT, Name, parse_name
from irscope.frontends.zoo.packages import compare_weights, find_recipe, may_run, warn_of_code, with_base
from irscope.frontends.zoo.recipes import Chosen, Recipe, Size, Wanted, chosen_inputs
from irscope.frontends.zoo.scripts import Script
from irscope.ir.bind import rename_symbols
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.program import GENERATES, TRAINS, Assumed, Program
from irscope.ir.types import UNKNOWN_TYPE
from irscope.passkit.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode


_PLAIN: Final = ("DynamicLayer", "DynamicSlidingWindowLayer")
"""Layers of a cache that hold keys and values of each token, or of the last tokens."""


def said_of_cache(module: nn.Module) -> dict[str, str]:
    """Return what the metadata of a program says of a model that generates; nothing for one that does not."""
    config: Any = getattr(module, "config", None)
    can_generate = getattr(module, "can_generate", None)
    if config is None or not callable(can_generate) or not can_generate():
        return {}
    kind, text = str(config.model_type), config.get_text_config(decoder=True)
    dtype = next((value.dtype for value in module.parameters() if value.is_floating_point()), None)
    stored = NAMED_DTYPES.get(str(dtype).removeprefix("torch."))
    found: dict[str, object] = {
        "context_length": next((size for key in CONTEXTS if isinstance(size := getattr(text, key, None), int)), None),
        "block_count": getattr(text, "num_hidden_layers", None),
        "embedding_length": getattr(text, "hidden_size", None),
        "attention.head_count": getattr(text, "num_attention_heads", None),
        "cache_type": None if stored is None else stored.text,
        **dict(_cache_layers(config, text)),
    }
    said = {f"{kind}.{key}": one if isinstance(one, str) else json.dumps(one) for key, one in found.items() if one is not None}
    return {GENERATES: "yes", "general.architecture": kind, **said}


def _cache_layers(config: Any, text: Any) -> Iterator[tuple[str, object]]:
    """Yield what the cache that transformers makes for the configuration holds in each layer, or why that is not a plain sum."""
    from transformers.cache_utils import DynamicCache

    if getattr(config, "is_encoder_decoder", False):
        yield "cache_unknown", "its decoder also keeps what its encoder read"
        return
    try:
        layers = DynamicCache(config=config).layers
    except Exception:  # whatever a configuration with code of its own raises
        layers = []
    heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_attention_heads", None)
    is_odd = getattr(text, "kv_lora_rank", None) or getattr(text, "multi_query", None) or not isinstance(heads, int)
    if not layers or is_odd or any(type(layer).__name__ not in _PLAIN for layer in layers):
        yield "cache_unknown", "not every layer keeps whole keys and values of each token"
        return
    width = getattr(text, "head_dim", None)
    yield "attention.head_count_kv", heads
    if isinstance(width, int):
        yield "attention.key_length", width
        yield "attention.value_length", width
    windows = [getattr(layer, "sliding_window", None) or 0 for layer in layers]
    if len({*windows} - {0}) == 1:
        yield "attention.sliding_window", max(windows) - 1  # the next token makes the window whole
        yield "attention.sliding_window_pattern", [bool(window) for window in windows]


_LARGEST_REAL: Final = 16 << 20
"""Elements of an input of noise that is still made; what is looked at without running does not need larger ones."""


def make_arguments(chosen: Chosen, *, real: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the call: by position, then by name."""
    chance = torch.Generator().manual_seed(0)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for value in chosen.inputs:
        made = _argument(value, chosen.sizes, chance, real)
        if value.keyword:
            kwargs[value.name] = made
        else:
            args.append(made)
    return tuple(args), kwargs


def _argument(wanted: Wanted, sizes: Mapping[str, int], chance: torch.Generator, real: bool) -> Any:
    if wanted.is_plain:
        return wanted.given
    shape = tuple(sizes[size] if isinstance(size, str) else size for size in wanted.shape)
    if isinstance(wanted.given, Tensor) and tuple(wanted.given.shape) == shape and wanted.given.dtype is torch_dtype(wanted.dtype):
        return wanted.given.detach()
    if wanted.as_list:
        return [_tensor(wanted, shape, chance, real) for _ in range(sizes.get("batch", 1))]
    return _tensor(wanted, shape, chance, real)


def _tensor(wanted: Wanted, shape: Sequence[int], chance: torch.Generator, real: bool) -> Tensor:
    dtype = torch_dtype(wanted.dtype)
    if dtype is None:
        raise UsageError(f"torch has no tensors of {wanted.dtype.text}", code="IRS623", where=wanted.name)
    if wanted.fill == "ones":
        return torch.ones(shape, dtype=dtype)
    if not real and prod(shape) > _LARGEST_REAL:
        return torch.empty(shape, dtype=dtype, device="meta")
    if wanted.fill == "ids" or not dtype.is_floating_point:
        below = min(wanted.below, 2) if wanted.dtype is DType.BOOL else wanted.below
        return torch.randint(0, max(below, 1), tuple(shape), generator=chance).to(dtype)
    return torch.rand(tuple(shape), generator=chance).to(dtype)


_LARGE: Final = 65_536
"""Tensors of more elements than this have no values."""
_MAKERS: Final = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.empty_strided})


class _Hollow(TorchFunctionMode):
    """Makes large tensors on the meta device; small ones, which a model's own code may look into, are real."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MAKERS and kwargs.get("device") is None and _hollow_elements(args, kwargs) > _LARGE:
            kwargs["device"] = "meta"
            kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


def _hollow_elements(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    size = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else tuple(arg for arg in args if isinstance(arg, int)))
    try:
        return prod(size)
    except TypeError:
        return 0


def made_hollow(make: Callable[[], nn.Module]) -> nn.Module:
    """Return the module, its large weights without values; all of it real where its own code does not run without them."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            with _Hollow():
                return make()
        except IrscopeError:
            raise
        except Exception:  # whatever a model's own code raises where values are not there
            return make()


@contextmanager
def faked(module: nn.Module, mode: FakeTensorMode) -> Iterator[nn.Module]:
    """Return the module with fake tensors of the CPU in the place of its weights, and as it was afterwards."""
    before: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    try:
        known: dict[int, Tensor] = {}
        for part in module.modules():
            tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
            for table in tables:
                for name, tensor in table.items():
                    if tensor is not None:
                        before.append((table, name, tensor))
                        table[name] = known.setdefault(id(tensor), _fake(tensor, mode))
        yield module
    finally:
        for table, name, tensor in before:
            table[name] = tensor


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(_fake(tensor.detach(), mode), tensor.requires_grad)
    if not tensor.is_meta:
        return mode.from_tensor(tensor)
    return FakeTensor(mode, tensor, torch.device("cpu"))


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
    script: Script | None = None
    """The user's own file, where it made the model."""

    @property
    def assumed(self) -> list[Assumed]:
        """Assumptions about the run: what was not specified, and the value that was assumed."""
        return [*self.recipe.assumed, *self.chosen.assumed(self.recipe.sizes_from)]

    def arguments(self, *, real: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call: by position, then by name."""
        return make_arguments(self.chosen, real=real)


def make_named(text: str, options: LoadOptions, *, hollow: bool = True, sink: DiagnosticSink | None = None) -> Made:
    """Make the model that a name stands for; large weights have no values where it is hollow.

    Of a folder with weights the headers are read, and what they and the configuration disagree about is said.
    """
    name, adapter = with_base(parse_name(text), options.base)
    if name.package == JAX:
        raise UsageError("it is a function of JAX, and here a module of PyTorch is wanted", code="IRS670", where=text)
    if options.method:
        raise UsageError("a named model has no methods to choose from", code="IRS623", where=text, hint="leave --method out")
    with quiet():
        script = Script(name, options) if name.package == SCRIPT else None
        name = replace(name, trusted=may_run(adapter, trusted=options.trust_remote_code))
        recipe = script.recipe() if script is not None else find_recipe(name)
        try:
            module = made_hollow(recipe.make) if hollow else _made_real(recipe)
        except (ZeroDivisionError, IrscopeError):
            raise
        except Exception as error:  # whatever the package raises is why it cannot make the model
            if script is not None:
                raise script.failed(error) from error
            raise LoadError(f"{name.package} cannot make it: {first_line(error)}", code="IRS197", where=text) from error
        wanted = [_as_asked(one, recipe.dtype) for one in recipe.inputs(module)]
    if name.package == "transformers" and os.path.isdir(name.model):
        recipe = replace(recipe, assumed=(*recipe.assumed, *_of_folder(module, Path(name.model), sink)))
    if script is not None:
        recipe, options = replace(recipe, sizes=script.sizes), script.remaining(options, wanted)
    asked = {type_.dtype for type_ in options.inputs.values()}
    dtype = recipe.dtype or next((one for one in (DType.BF16, DType.F16) if one in asked), None)
    if dtype is not None:
        module = module.to(torch_dtype(dtype)) if recipe.is_cast or dtype is not recipe.dtype else module
        wanted = [_as_asked(one, dtype) for one in wanted]
    if adapter is not None:
        from irscope.frontends.zoo.adapters import put_on

        put_on(module, adapter)
        recipe = replace(recipe, assumed=(*recipe.assumed, *adapter.assumed))
    return Made(name, recipe, module, chosen_inputs(recipe, wanted, options, text), script)


def _of_folder(module: nn.Module, folder: Path, sink: DiagnosticSink | None) -> Iterator[Assumed]:
    """Yield facts of a hub folder besides its element type: the attention, and the weights where these are stored otherwise."""
    config: Any = getattr(module, "config", None)
    attention = getattr(config, "_attn_implementation", None)
    if isinstance(attention, str):
        yield Assumed("attention", attention, "what transformers takes for it; {attn_implementation=NAME}", is_guess=False)
    said = DiagnosticSink()
    warn_of_code(folder, type(module), said if sink is None else sink)
    _, tensors = read_folder(folder, said)
    if tensors is None:
        yield Assumed("sizes", "the configuration's", "the folder has no weights", is_guess=False)
        return
    if getattr(config, "quantization_config", None) is None and not tensors.packed.weights:
        compare_weights(module, tensors, said)
    stored = {dtype for dtype in tensors.by_dtype if dtype.is_float}
    held = {dtype_of(value) for value in module.parameters()}
    if stored - held:
        yield Assumed("stored", "+".join(sorted(one.text for one in stored)), "the headers of the weights", is_guess=False)
    for remark in said:
        if sink is not None and remark.code != "IRS165":  # a graph is what the package makes
            sink.add(remark)


def _is_quantised(module: nn.Module) -> bool:
    return any(getattr(module, "is_counted", False) for module in module.modules())


def load_named(text: str, options: LoadOptions, sink: DiagnosticSink, settings: Settings) -> Program:
    """Return the program of a named model."""
    if options.compile is not False and options.open_sizes:
        raise UsageError(
            f"a compiled program has no open sizes, such as {min(options.open_sizes)}",
            code="IRS396",
            where=text,
            hint="`irscope run --compile --bind batch=N` compiles it for one size",
        )
    stage("making the model without its weights")
    made = make_named(text, options, sink=sink)
    stage("running it on tensors without data" if options.compile is False else "compiling it with torch.compile and counting its kernels")
    with quiet():
        if made.chosen.open:
            program = _opened(made, sink, settings)
        else:
            program = _captured(made, made.chosen, sink, settings, keep_calls=options.keep_calls, compile=options.compile)
    program.path = text
    if _is_quantised(made.module):
        from irscope.frontends.generation.quantised import mark_packed

        mark_packed(program, made.module)
    program.assumed[:0] = made.assumed
    for assumption in made.recipe.assumed:
        if assumption.is_guess:
            sink.warn("IRS199", f"{assumption.what} are taken to be {assumption.value}: {assumption.why}", about=assumption.what)
    if made.script is not None and made.script.optimizer is not None:
        program.metadata[TRAINS] = "yes"
    if made.name.package == "transformers":
        program.metadata |= said_of_cache(made.module)
    if made.script is None:
        program.metadata["package"] = f"{made.name.package} {_installed_version(made.name.package)}"
    return program


def _captured(
    made: Made,
    chosen: Chosen,
    sink: DiagnosticSink,
    settings: Settings,
    in_python: frozenset[Any] = frozenset(),
    keep_calls: bool = False,
    compile: bool | Mapping[str, object] = False,
) -> Program:
    target = target_of(settings)
    args, kwargs = make_arguments(chosen)
    device = "cpu" if target.device.kind == "cpu" else "cuda"
    given = args + tuple(kwargs.values())
    sizes = None
    if chosen.open:
        shapes = {value.name: value.shape for value in chosen.inputs}
        names = [*(value.name for value in chosen.inputs if not value.keyword), *kwargs]
        pairs = [(name, argument) for name, argument in zip(names, given, strict=True) if isinstance(argument, Tensor)]
        axes = {id(tensor): _open_shape(shapes[name], chosen) for name, tensor in pairs}
        ones = {value.name for value in chosen.inputs if value.fill == "ones" and value.given is None}
        filled = {id(tensor): 1 for name, tensor in pairs if name in ones}
        sizes = OpenSizes({name: chosen.sizes[name] for name in sorted(chosen.open)}, axes, in_python, filled)
    return capture_module(
        made.module, args, kwargs, device=device, compile=compile, target=target, sizes=sizes, keep_calls=keep_calls, sink=sink
    )


def _open_shape(shape: Sequence[Size], chosen: Chosen) -> list[Size]:
    """Return a shape with the names of its open sizes, numbers for the others."""
    return [size if isinstance(size, int) or size in chosen.open else chosen.sizes[size] for size in shape]


def _opened(made: Made, sink: DiagnosticSink, settings: Settings) -> Program:
    """With sizes that are symbols: captured as it runs, or where that needs numbers through torch.export, which may take another path."""
    if any(value.as_list for value in made.chosen.inputs):
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
        except OverBudget:
            raise
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
    with TemporaryFolder() as folder, faked(made.module, mode), torch.no_grad():
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
    rename_symbols(found, _names_of_inputs(found, chosen))
    return found


def _tie(program: Program, module: nn.Module) -> None:
    """Let weights that are one tensor of the module be one weight: without values, the file cannot tell."""
    graph = program.graph
    weights = {weight.name: weight for weight in graph.weights}
    first: dict[int, Value] = {}
    tied: list[Value] = []
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)):
        weight = weights.get(name)
        if weight is None:
            continue
        kept = first.setdefault(id(tensor), weight)
        if kept is not weight and kept.type is weight.type:
            graph.replace_uses(weight, kept)
            tied.append(weight)
    graph.remove_weights(tied)


def _names_of_inputs(program: Program, chosen: Chosen) -> dict[str, str]:
    """Return what the user calls the symbols; LoadError for a size that the model does not leave open."""
    names: dict[str, str] = {}
    inputs = {value.name: value.type for value in program.graph.inputs}
    for value in chosen.inputs:
        for size, dim in zip(value.shape, inputs.get(value.name, UNKNOWN_TYPE).shape or (), strict=False):
            if isinstance(size, str) and size in chosen.open:
                if not isinstance(dim, SymDim):
                    raise LoadError(f"the model fixes {size} at {dim}", code="IRS673", hint=f"`--bind {size}={dim}`")
                if str(dim) in program.symbols:
                    names[str(dim)] = size
    return names


def large_enough(chosen: Chosen) -> Chosen:
    """Return the same with open sizes that torch.export does not take to be fixed."""
    sizes = {name: max(size, _SMALLEST_OPEN) if name in chosen.open else size for name, size in chosen.sizes.items()}
    return replace(chosen, sizes=sizes)


def open_axes(chosen: Chosen) -> dict[str, dict[int, Any] | None]:
    """Return which axes of which inputs torch.export leaves open."""
    return {
        one.name: None if one.is_plain else {axis: torch.export.Dim.AUTO for axis, size in enumerate(one.shape) if size in chosen.open}
        for one in chosen.inputs
    }


def _made_real(recipe: Recipe) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return recipe.make()


def _as_asked(wanted: Wanted, dtype: DType | None) -> Wanted:
    """Inputs of floats have the element type of the weights."""
    return replace(wanted, dtype=dtype) if dtype is not None and wanted.fill == "noise" else wanted


def _installed_version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Packages warn of what they will change themselves, and what a user's file prints is not part of an answer."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield


SUFFIXES: Final = (".onnx", ".pt2", ".pt")
INPUTS_KEY: Final = "irscope.inputs"
"""Where a file describes its inputs: a metadata property of ONNX, an extra file of TorchScript."""
_COPIES: Final = 3
"""Weights, what the exporter makes of them, and what it writes."""


def export_named(text: str, options: LoadOptions, target: Path) -> list[Path]:
    """Make the model for real, export it, and write its inputs beside it. Returns the files written."""
    kind = target.suffix.lower()
    if kind == ".onnx" and importlib.util.find_spec("onnxscript") is None:
        hint = "torch.onnx.export needs it: pip install onnxscript"
        raise UsageError("onnxscript is not installed", code="IRS675", where=text, hint=hint)
    _check_memory(text, options)
    made = make_named(text, options, hollow=False)
    made.chosen = large_enough(made.chosen)
    if kind == ".pt" and made.chosen.open:
        raise UsageError("a trace has no open sizes", code="IRS673", where=text, hint="give numbers, or export .pt2 or .onnx")
    args, kwargs = make_arguments(made.chosen, real=True)
    described = json.dumps(described_inputs(args, kwargs, made))
    with staged(target) as path:
        try:
            with quiet(), torch.no_grad():
                _WRITERS[kind](made, args, kwargs, path, described)
        except Exception as error:  # whatever an exporter raises is why it does not accept the model
            raise LoadError(f"torch does not export it: {first_line(error)}", code="IRS676", where=text) from error
        Path(f"{path}.inputs.npz").write_bytes(_arrays(args, kwargs, made))
        return [target.parent / file.name for file in sorted(path.parent.iterdir())]


def described_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> list[dict[str, object]]:
    """Names, element types and shapes of the inputs."""
    names = {f"torch.{name}": dtype.text for name, dtype in NAMED_DTYPES.items()}
    return [
        {"name": name, "dtype": names.get(str(tensor.dtype), str(tensor.dtype)), "shape": list(tensor.shape)}
        for name, tensor in _named_results(args, kwargs, made)
    ]


def _named_results(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> list[tuple[str, torch.Tensor]]:
    positional = [value.name for value in made.chosen.inputs if not value.keyword]
    results: list[tuple[str, torch.Tensor]] = []
    for name, value in (*zip(positional, args, strict=True), *kwargs.items()):
        if isinstance(value, list):
            results += [(f"{name}.{number}", item) for number, item in enumerate(value)]
        elif isinstance(value, Tensor):
            results.append((name, value))
    return results


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> bytes:
    """Return the inputs as numpy's archive; element types that numpy lacks as their bits."""
    buffer = io.BytesIO()
    tensors = _named_results(args, kwargs, made)
    arrays: dict[str, Any] = {name: (one.view(torch.uint16) if one.dtype is torch.bfloat16 else one).numpy() for name, one in tensors}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _check_memory(text: str, options: LoadOptions) -> None:
    """Refuse a model whose weights would not fit into this machine."""
    hollow = make_named(text, options).module
    need = sum(tensor.numel() * tensor.element_size() for tensor in (*hollow.parameters(), *hollow.buffers()))
    try:
        room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return
    if need * _COPIES > room:
        raise UsageError(
            f"its weights are {need / 2**30:.1f} GiB, and exporting takes {_COPIES} times that; {room / 2**30:.1f} GiB are free",
            code="IRS677",
            where=text,
            hint="options in braces make it smaller, such as {num_hidden_layers=2}; `irscope run` needs no weights",
        )


def _write_pt2(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    program = torch.export.export(made.module, args, kwargs, dynamic_shapes=_open_axes(made))
    torch.export.save(program, path, extra_files={INPUTS_KEY: described})


def _write_onnx(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    program = torch.onnx.export(made.module, args, kwargs=kwargs, dynamic_shapes=_open_axes(made), dynamo=True, verbose=False)
    assert program is not None
    program.model.metadata_props[INPUTS_KEY] = described
    program.save(str(path))


def _write_trace(made: Made, args: tuple[Any, ...], kwargs: dict[str, Any], path: Path, described: str) -> None:
    module = made.module
    if hasattr(module, "config") and hasattr(module.config, "return_dict"):
        module.config.return_dict = False
    trace: Callable[..., Any] = torch.jit.trace
    if kwargs:
        traced = trace(module, example_kwarg_inputs=kwargs, check_trace=False, strict=False)
    else:
        traced = trace(module, args, check_trace=False, strict=False)
    torch.jit.save(traced, str(path), _extra_files={INPUTS_KEY: described})


def _open_axes(made: Made) -> dict[str, dict[int, Any] | None] | None:
    return open_axes(made.chosen) if made.chosen.open else None


_WRITERS: Final[dict[str, Callable[[Made, tuple[Any, ...], dict[str, Any], Path, str], None]]] = {
    ".onnx": _write_onnx,
    ".pt2": _write_pt2,
    ".pt": _write_trace,
}
