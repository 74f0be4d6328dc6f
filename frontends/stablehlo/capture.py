"""Programs of functions of JAX that the user's own file has: `jax:./model.py:fn`. Naming a file runs it; JAX lowers the function, and
nothing is compiled or run on arrays."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from irscope.budget import reading
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.base import SOLE, LoadOptions, several_inputs, stated
from irscope.frontends.stablehlo import build, read_module
from irscope.frontends.zoo.names import Name, definitions, parse_name
from irscope.ir.bind import bind_program
from irscope.ir.dtypes import LONG_NAMES, DType
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type
from irscope.passkit.script import beside, load_script, raised_at

_DTYPES: Final[Mapping[DType, str]] = {DType.I4: "int4", DType.U4: "uint4", **{dtype: name for name, dtype in LONG_NAMES.items()}}
"""Element types as JAX names them."""


def load_function(text: str, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program of a JAX name's function: lowered for the types of --input, or for arguments that it returns with
    another function."""
    name = parse_name(text)
    if importlib.util.find_spec("jax") is None:
        raise LoadError(
            "jax is not installed", code="IRS197", where=text, hint="pip install jax, or bring the text of .lower(...).as_text()"
        )
    file, _, symbol = name.model.rpartition(":")
    path = Path(file)
    found = _definition(path, symbol)
    with beside(path):
        try:
            data = _lowered(found, name, options)
        except IrscopeError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code, or JAX about it, raises
            said = str(error).strip().partition("\n")[0]
            raise LoadError(f"{symbol}() fails: {type(error).__name__}: {said}", code="IRS385", where=raised_at(error, path)) from error
    with reading(text, len(data), options.allowance):
        program = build(read_module(data, text), options.method, sink, text)
    program.metadata["package"] = f"jax {importlib.import_module('jax').__version__}"
    bind_program(program, options.bind)
    return program


def _definition(path: Path, symbol: str) -> Callable[..., Any]:
    if not path.is_file():
        raise LoadError("there is no such file", code="IRS385", where=str(path))
    try:
        found = getattr(load_script(path), symbol, None)
    except UsageError as error:
        raise LoadError(f"it cannot be imported: {error.message}", code="IRS385", where=error.where or str(path)) from error
    if callable(found):
        return found  # type: ignore[no-any-return]
    there = definitions(path)
    hint = f"there are {', '.join(there[:8])}" if there else ""
    raise LoadError(f"it has no function {symbol!r}", code="IRS385", where=str(path), hint=hint)


def _lowered(found: Callable[..., Any], name: Name, options: LoadOptions) -> bytes:
    """StableHLO of the function: as text, or where sizes are open as the portable artifact."""
    jax = importlib.import_module("jax")
    plain = dict(name.options)
    parameters = [parameter for parameter in inspect.signature(found).parameters.values() if parameter.name not in plain]
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    function = functools.partial(found, **plain) if plain else found
    if not options.inputs and not required:
        made = function()
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            hint = f"--input, or a function that returns (function, arguments); this one returned a {type(made).__name__}"
            raise UsageError(f"{name.model} says nothing of its arguments", code="IRS623", where=name.text, hint=hint)
        function, arguments = made[0], made[1] if isinstance(made[1], tuple | list) else (made[1],)
    else:
        names = required or [parameter.name for parameter in parameters][:1]
        arguments = _structures(jax, _stated(names, options, name))
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    if any(_is_open(jax, leaf) for leaf in jax.tree_util.tree_leaves(arguments)):
        exported = importlib.import_module("jax.export").export(jitted)(*arguments)
        return bytes(exported.mlir_module_serialized)
    return str(jitted.lower(*arguments).as_text(debug_info=True)).encode()


def _is_open(jax: Any, leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and not all(isinstance(size, int) for size in leaf.shape)


def _stated(names: Sequence[str], options: LoadOptions, name: Name) -> list[Type]:
    """Return what --input says of each parameter."""
    given = dict(options.for_inputs(names).inputs)
    if SOLE in given:
        raise UsageError(several_inputs(len(names)), code="IRS623", where=name.text, hint=f"NAME=SIZES; inputs: {', '.join(names)}")
    types = [given.pop(str(at), None) or given.pop(name, None) for at, name in enumerate(names)]
    lacking = [name for name, type_ in zip(names, types, strict=True) if type_ is None]
    if lacking or given:
        what = f"its parameters are {', '.join(names)}" if given else f"nothing is said of {', '.join(lacking)}"
        example = " ".join(f"--input {one}=f32[8,256]" for one in lacking or names)
        hint = f"`{example}`, or a function without parameters that returns (function, arguments)"
        raise UsageError(f"{name.model}: {what}", code="IRS623", where=name.text, hint=hint)
    return [stated(type_, None, name) for name, type_ in zip(names, types, strict=True) if type_ is not None]


def _structures(jax: Any, types: Sequence[Type]) -> list[Any]:
    """Return the arguments without values; open sizes of one name are one symbol of JAX."""
    wanted = [type_ for type_ in types if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype in _DTYPES]
    if len(wanted) < len(types):
        raise UsageError("a parameter has a type that JAX has no arrays of", code="IRS623", hint="such as f32[8,256]")
    export = importlib.import_module("jax.export") if any(not type_.is_static for type_ in wanted) else None
    scope = export.SymbolicScope() if export is not None else None
    made = []
    for type_ in wanted:
        shape: Any = type_.shape
        if export is not None and not type_.is_static:
            shape = export.symbolic_shape(",".join(map(str, type_.shape or ())), scope=scope)
        made.append(jax.ShapeDtypeStruct(shape, importlib.import_module("jax.numpy").dtype(_DTYPES[type_.dtype])))
    return made
