"""Models that the user's own file makes: `./train.py:build` is a function, `./my_model.py:MyNet` a class. Naming a file runs it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from irscope.errors import LoadError, UsageError
from irscope.frontends.base import SOLE, LoadOptions, stated
from irscope.frontends.torch_lowering.dtypes import NAMED_DTYPES
from irscope.frontends.zoo.names import Name, definitions
from irscope.frontends.zoo.recipes import Recipe, Wanted, weights_dtype
from irscope.ir.dtypes import DType
from irscope.passkit.script import beside, load_script, raised_at

_PARTS: Final = ("module", "inputs", "loss", "optimizer")
_EXAMPLES: Final = ("example_input_array", "dummy_inputs")
"""Where Lightning and transformers keep arguments to try a module with."""


class Script:
    """Product of a function or class of a user's file: a module, its arguments, and for training a loss and an optimizer."""

    def __init__(self, name: Name, options: LoadOptions) -> None:
        file, _, self.symbol = name.model.rpartition(":")
        self.path = Path(file)
        self.where = name.model
        self._found = _load_symbol(self.path, self.symbol)
        self._stated = options
        self._given: dict[str, Any] = dict(name.options)
        self.dtype = None if self._takes("dtype") else weights_dtype(self._given.pop("dtype", None), name.text)
        self.takes_batch = self._takes("batch")
        if self.takes_batch and "batch" in options.bind:
            self._given["batch"] = options.bind["batch"]
        self._check_arguments(name)
        self.inputs: Any = None
        """Arguments as the user's code made them; None where it made none."""
        self.sizes: dict[str, int] = {}
        """The batch that they have, where all begin with the same size."""
        self.loss: Any = None
        self.optimizer: Any = None

    def recipe(self) -> Recipe:
        """Return how the model is made and what it takes; in evaluation mode, as models of packages are."""
        return Recipe(self.make, lambda module: list(self._wanted(module)), dtype=self.dtype, sizes_from=f"{self.symbol}()")

    def make(self) -> nn.Module:
        """Run what was named. What it raises is the user's own."""
        with beside(self.path):
            try:
                made = self._found if isinstance(self._found, nn.Module) else self._found(**self._given)
            except SystemExit as error:
                raise RuntimeError(f"it ends the process ({error})") from error
        parts: tuple[Any, ...]
        if isinstance(made, Mapping):
            parts = tuple(made.get(key) for key in _PARTS)
        else:
            parts = tuple(made) if isinstance(made, tuple | list) and not isinstance(made, nn.Module) else (made,)
        if not 1 <= len(parts) <= len(_PARTS) or not isinstance(parts[0], nn.Module):
            raise LoadError(
                f"{self.symbol}() must return a module, or module and inputs, and may add loss and optimizer; it returned {_said(made)}",
                code="IRS385",
                where=self.where,
                hint=self._as_program,
            )
        module: nn.Module = parts[0].eval()
        _, self.inputs, self.loss, self.optimizer = (*parts, None, None, None)[:4]
        return module

    def failed(self, error: Exception) -> LoadError:
        """Return the line about what the user's code raised."""
        said = str(error).partition("\n")[0]
        hint = self._as_program if self.symbol == "main" else ""
        said = f"{self.symbol}() fails: {type(error).__name__}: {said}"
        return LoadError(said, code="IRS385", where=raised_at(error, self.path), hint=hint)

    @property
    def _as_program(self) -> str:
        """Return what to type where the function is a program of its own."""
        return f"`irscope simulate {self.path}` runs a program with a loop of its own"

    def remaining(self, options: LoadOptions, wanted: Sequence[Wanted]) -> LoadOptions:
        """Return what was said of the model, without the size of a batch that only the function knows about."""
        if not self.takes_batch or any("batch" in wanted.shape for wanted in wanted):
            return options
        return replace(options, bind={name: size for name, size in options.bind.items() if name != "batch"})

    def _takes(self, name: str) -> bool:
        return not isinstance(self._found, nn.Module) and name in inspect.signature(self._found).parameters

    def _check_arguments(self, name: Name) -> None:
        if isinstance(self._found, nn.Module):
            return
        signature = inspect.signature(self._found)
        try:
            signature.bind(**self._given)
        except TypeError as error:
            known = ", ".join(str(parameter) for parameter in signature.parameters.values()) or "nothing"
            raise UsageError(
                f"{self.symbol}() takes ({known}): {error}", code="IRS672", where=name.text, hint=f"{self.where}{{NAME=VALUE}}"
            ) from None

    def _wanted(self, module: nn.Module) -> Iterator[Wanted]:
        inputs = self.inputs
        if inputs is None and not self._stated.inputs:
            inputs = next((found for name in _EXAMPLES if (found := getattr(module, name, None)) is not None), None)
        if inputs is None:
            yield from self._stated_inputs(module)
            return
        args, kwargs = arguments_of(inputs)
        names = [parameter.name for parameter in _forward_parameters(module) if parameter.kind is not inspect.Parameter.VAR_POSITIONAL]
        given = [(names[at] if at < len(names) else f"input{at}", value, False) for at, value in enumerate(args)]
        given += [(name, value, True) for name, value in kwargs.items()]
        first: set[int] = {value.shape[0] for _, value, _ in given if isinstance(value, Tensor) and value.dim()}
        if len(first) == 1:
            self.sizes = {"batch": next(iter(first))}
        for name, value, keyword in given:
            yield _wanted_of(name, value, keyword, has_batch=len(first) == 1)

    def _stated_inputs(self, module: nn.Module) -> Iterator[Wanted]:
        """Yield the arguments that only --input says."""
        parameters = [parameter for parameter in _forward_parameters(module) if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        required = [one.name for one in parameters if one.default is one.empty and one.kind is not inspect.Parameter.VAR_POSITIONAL]
        names = required or [parameter.name for parameter in parameters][:1]
        stated_inputs = dict(self._stated.for_inputs(names).inputs)
        for at, name in enumerate(names):
            if str(at) in stated_inputs:
                stated_inputs[name] = stated_inputs.pop(str(at))
        lacking = [name for name in required if name not in stated_inputs]
        if lacking or SOLE in stated_inputs:
            takes = ", ".join(names)
            example = " ".join(f"--input {name}={_example_type(name)}" for name in (lacking or names))
            message = f"{self.symbol} says nothing of its inputs ({takes})"
            hint = f"`{example}`, or a function that returns (module, inputs)"
            raise UsageError(message, code="IRS623", where=self.where, hint=hint)
        for parameter in parameters:
            if (given := stated_inputs.get(parameter.name)) is not None:
                type_ = stated(given, None, parameter.name)
                shape = tuple(size if isinstance(size, int) else str(size) for size in type_.shape or ())
                by_name = parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
                yield Wanted(parameter.name, shape, type_.dtype, "ids" if type_.dtype.is_integer else "noise", keyword=by_name)


def _example_type(name: str) -> str:
    return "i64[1,128]" if re.search("ids?$|token|mask|label|index", name) else "f32[1,3,224,224]"


def _forward_parameters(module: nn.Module) -> list[inspect.Parameter]:
    return [*inspect.signature(module.forward).parameters.values()]


def _wanted_of(name: str, value: Any, keyword: bool, *, has_batch: bool) -> Wanted:
    if not isinstance(value, Tensor):
        return Wanted(name, (), given=value, is_plain=True, keyword=keyword)
    shape: tuple[int | str, ...] = tuple(value.shape)
    dtype = NAMED_DTYPES.get(str(value.dtype).removeprefix("torch."), DType.F32)
    if has_batch and shape:
        shape = ("batch", *shape[1:])
    known = not value.is_meta and value.numel() > 0 and not value.is_floating_point() and not value.is_complex()
    below = int(value.max()) + 1 if known else 2
    return Wanted(name, shape, dtype, "noise" if value.is_floating_point() else "ids", below, keyword=keyword, given=value)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position and by name: a tuple of them, a mapping for named ones, or a single one."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def _load_symbol(path: Path, symbol: str) -> Callable[..., Any] | nn.Module:
    if not path.is_file():
        raise LoadError("there is no such file", code="IRS385", where=str(path))
    try:
        module = load_script(path)
    except UsageError as error:
        raise LoadError(f"it cannot be imported: {error.message}", code="IRS385", where=error.where or str(path)) from error
    found = getattr(module, symbol, None)
    if isinstance(found, nn.Module) or callable(found):
        return found
    there = definitions(path)
    hint = f"there are {', '.join(there[:8])}" if there else ""
    raise LoadError(f"it has no function or class {symbol!r}", code="IRS385", where=str(path), hint=hint)


def _said(made: object) -> str:
    return f"a tuple of {len(made)}" if isinstance(made, tuple | list) else f"a {type(made).__name__}"
