"""Numbers for the symbols of a program, and the options with which a user gives them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, bind, bounds, symbol
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr, Value
from irscope.ir.program import Observed, Program, observed_versions
from irscope.ir.types import MapType, OptionalType, SequenceType, TensorType, TupleType, Type, map_of, optional, sequence, tensor, tuple_of

# Which symbol a name means: its own name, or what people call the axis that it is the size of.

BATCH = frozenset({"batch", "batch_size", "bs", "N"})
SEQUENCE = frozenset({"seq", "sequence", "seq_len", "sequence_length", "length", "tokens"})


def symbol_named(program: Program, name: str) -> str | None:
    """Return the model's own name of a symbol; None where the model has none that the name can only mean.

    Besides its own name a symbol has the others that people give to such a size: `batch_size` is a batch. Exporters often forget
    names and write s77: that is a `batch` where inputs have it as their first axis, and a `seq` where they have it as their second.
    """
    if name in program.symbols:
        return name
    meant = short_names(program).get(name)
    if meant in program.symbols:
        return meant
    role = next((role for role in (BATCH, SEQUENCE) if name in role), None)
    if role is None:
        return None
    symbols = [symbol for symbol in program.symbols if symbol in role]
    if not symbols:
        first = _nameless(program, 0)
        symbols = first if role is BATCH else [symbol for symbol in _nameless(program, 1) if symbol not in first]
    return symbols[0] if len(symbols) == 1 else None


_WORD: Final = re.compile(r"[^\W\d]\w*")
_NUMBERED: Final = re.compile(r".*\W(\d+)")
_LONGEST_NAME: Final = 24


def short_names(program: Program) -> dict[str, str]:
    """Short names for symbols whose own names are not words, as exporters number them: d0 for `p2o.DynamicDimension.0`.

    They follow from the names of all symbols, those included that are bound by now, and are no name of anything else.
    """
    if program.short_names:
        return program.short_names
    unwieldy = [name for name in program.symbols if not _WORD.fullmatch(name)]
    if not unwieldy:
        return {}
    taken = {*program.symbols, *element_names(program), *BATCH, *SEQUENCE}
    found: dict[str, str] = {}
    for name in unwieldy:
        number = _NUMBERED.fullmatch(name)
        words = "_".join(re.findall(r"[A-Za-z0-9]+", name))[:_LONGEST_NAME]
        stem = f"d{number[1]}" if number is not None else words if _WORD.fullmatch(words) else "d"
        short = next(one for one in (stem, *(f"{stem}_{count}" for count in range(2, len(taken) + 3))) if one not in taken)
        taken.add(short)
        found[short] = name
    return found


def known_symbols(program: Program) -> list[str]:
    """Return the symbols as messages list them, with their short names."""
    also = {symbol: f"{symbol} ({short})" for short, symbol in short_names(program).items()}
    return [also.get(symbol, symbol) for symbol in program.symbols]


def _nameless(program: Program, axis: int) -> list[str]:
    """Return symbols that are this axis of an input and whose own name does not say that they are something else."""
    return [symbol for symbol in _on_axis(program, axis) if symbol not in BATCH | SEQUENCE]


def _on_axis(program: Program, axis: int) -> list[str]:
    """Return symbols that are the size of this axis of an input, each once."""
    sizes: list[Dim] = []
    for value in program.graph.inputs:
        shape = value.type.shape
        if shape is not None and axis < len(shape):
            sizes.append(shape[axis])
    names = [str(size) for size in sizes if isinstance(size, SymDim) and str(size) in program.symbols]
    return list(dict.fromkeys(names))


# Replacing symbols of a program by numbers.

_MAX_ELEMENTS = 64


def bind_program(program: Program, env: Mapping[str, int]) -> None:
    """Put numbers in place of symbols, in every type and attribute. Names of integer inputs are kept as given values."""
    if not env:
        return
    program.short_names = short_names(program)
    elements = set(element_names(program))
    only = only_elements(program)
    env = {
        only.get(name, name) if name not in elements and symbol_named(program, name) is None else name: size for name, size in env.items()
    }
    sizes: dict[str, int] = {}
    for name, number in env.items():
        if name.startswith("?"):
            # What depends on data has its name from the inference, which also tells whether there is one of that name.
            program.given[name] = number
            continue
        symbol = symbol_named(program, name) if name not in elements or name in program.symbols else None
        if symbol is None and name not in elements:
            known = ", ".join([*known_symbols(program), *sorted(elements)]) or "the model has none"
            raise UsageError(f"there is no symbol {name!r} to bind", code="IRS625", hint=f"symbols: {known}")
        if symbol is not None and sizes.setdefault(symbol, number) != number:
            raise UsageError(f"{name!r} is another name of {symbol!r}, which is given another size", code="IRS624")
        if name in elements:
            program.given[name] = number
    if sizes:
        meant = {name: symbol_named(program, name) for name in (*BATCH, *SEQUENCE, *sizes)}
        program.bound |= {name: symbol for name, symbol in meant.items() if symbol in sizes}
        plan = program.watched if program.traits.is_plan or runs_same_at(program, sizes) else None
        _Binder(sizes).program(program)
        if plan is not None:
            program.observed = _still(plan, program, sizes)
        program.conditions = None
    for name in sizes:
        del program.symbols[name]
        program.formulas_from.pop(name, None)


def asked_and_bound(name: str) -> UsageError:
    """Return the error for a size that is asked about and that --bind or --input gives a number."""
    return UsageError(f"{name!r} is given a size, and it is asked about", code="IRS624", hint="leave it out of --bind and --input")


def runs_same_at(program: Program, sizes: Mapping[str, int]) -> bool:
    """Return whether a captured program with open sizes is known to run the same at sizes for all of them."""
    if program.conditions is None or sizes.keys() != program.symbols.keys():
        return False
    for name, size in sizes.items():
        low, high = program.symbols[name].bounds
        if size < max(low or 1, program.formulas_from.get(name, 1)) or (high is not None and size > high):
            return False
    return all(_is_less(bind(first, sizes), bind(second, sizes)) for first, second in program.conditions)


def _is_less(first: Dim, second: Dim) -> bool:
    return isinstance(first, int) and isinstance(second, int) and first < second


def rename_symbols(program: Program, names: Mapping[str, str]) -> None:
    """Give symbols other names everywhere; their limits stay."""
    substitute_symbols(program, {old: symbol(new, *program.symbols[old].bounds) for old, new in names.items()})


def substitute_symbols(program: Program, made: Mapping[str, SymDim]) -> None:
    """Put other symbols, with limits of their own, in the place of some; what a run showed still holds."""
    if made:
        observed = program.observed if program.observed is not None and program.observed.holds(program.graph) else None
        _Binder(made).program(program)
        if observed is not None:
            program.observed = _still(observed, program, made)
        kept = [made.get(old, known) for old, known in program.symbols.items()]
        program.symbols = {str(one): one for one in kept}
        program.formulas_from = {str(made.get(name, name)): size for name, size in program.formulas_from.items()}
        if program.conditions is not None:
            program.conditions = tuple((bind(first, made), bind(second, made)) for first, second in program.conditions)
        program.examples = {str(made.get(name, name)): size for name, size in program.examples.items()}


def _still(observed: Observed, program: Program, made: Mapping[str, Dim]) -> Observed:
    """Return what was seen, for other sizes of the same storages."""
    lives = {value: replace(life, size=bind(life.size, made)) for value, life in observed.lives.items()}
    return replace(observed, lives=lives, versions=observed_versions(program.graph))


def bindable_elements(program: Program) -> dict[Value, list[SymDim]]:
    """Return symbols for the elements of small integer inputs: "k" for a scalar, "k_0", "k_1" for a vector."""
    found: dict[Value, list[SymDim]] = {}
    for value in program.graph.inputs:
        type_ = value.type
        if type_.dtype.kind not in (DTypeKind.INT, DTypeKind.UINT, DTypeKind.BOOL):
            continue
        count = type_.numel
        if value.name is None or not isinstance(count, int) or count > _MAX_ELEMENTS:
            continue
        stem = element_stem(value.name)
        names = [stem] if type_.shape == () else [f"{stem}_{index}" for index in range(count)]
        low, high = (0, 1) if type_.dtype is DType.BOOL else (None, None)
        found[value] = [symbol(name, low, high) for name in names]
    return found


def element_names(program: Program) -> list[str]:
    """Return the names under which elements of integer inputs can be bound."""
    return [str(element) for found in bindable_elements(program).values() for element in found]


def only_elements(program: Program) -> dict[str, str]:
    """Return names of inputs with a single element on one axis, with the name of that element: both mean it."""
    return {
        element_stem(value.name): str(element[0])
        for value, element in bindable_elements(program).items()
        if len(element) == 1 and value.name is not None and value.type.shape != ()
    }


def element_stem(name: str) -> str:
    """Return an input's name as the start of a symbol's."""
    text = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in name)
    return text if text and not text[0].isdigit() else f"_{text}"


def type_binder(env: Mapping[str, int]) -> Callable[[Type], Type]:
    """Return what puts numbers in place of symbols in one type after another."""
    return _Binder(env).type


class _Binder:
    """Substitutes in types and attributes, each distinct one once."""

    def __init__(self, env: Mapping[str, Dim]) -> None:
        self.env = env
        self.types: dict[Type, Type] = {}

    def program(self, program: Program) -> None:
        for body in program.bodies():
            for value in (*body.inputs, *body.weights):
                self.value(value)
            for node in body:
                for output in node.outputs:
                    self.value(output)
                for key, attr in node.attrs.items():
                    bound = self.attr(attr)
                    if bound is not attr:
                        body.set_attr(node, key, bound)
        program.calls = {
            node: replace(call, args={key: self.attr(arg) for key, arg in call.args.items()}) for node, call in program.calls.items()
        }

    def value(self, value: Value) -> None:
        graph = value.graph
        if graph is not None:
            graph.set_type(value, self.type(value.type))

    def dim(self, dim: Dim) -> Dim:
        return bind(dim, self.env) if isinstance(dim, SymDim) else dim

    def type(self, type_: Type) -> Type:
        found = self.types.get(type_)
        if found is None:
            found = self.types[type_] = self._rebuilt(type_)
        return found

    def _rebuilt(self, type_: Type) -> Type:
        if isinstance(type_, TensorType):
            if type_.is_static and not isinstance(type_.layout, tuple):
                return type_
            shape = None if type_.shape is None else tuple(self.dim(dim) for dim in type_.shape)
            layout = tuple(self.dim(dim) for dim in type_.layout) if isinstance(type_.layout, tuple) else type_.layout
            return tensor(type_.dtype, shape, type_.device, layout)
        if isinstance(type_, SequenceType):
            return sequence(self.type(type_.element))
        if isinstance(type_, OptionalType):
            return optional(self.type(type_.element))
        if isinstance(type_, TupleType):
            return tuple_of(self.type(member) for member in type_.elements)
        if isinstance(type_, MapType):
            return map_of(type_.key, self.type(type_.value))
        return type_

    def attr(self, attr: Attr) -> Attr:
        if isinstance(attr, SymDim):
            return self.dim(attr)
        if isinstance(attr, Type):
            return self.type(attr)
        if isinstance(attr, tuple):
            items = tuple(self.attr(item) for item in attr)
            return items if any(a is not b for a, b in zip(items, attr, strict=True)) else attr
        return attr


# What a user adds to a command line so that more of a model is known: sizes for symbols, types for inputs. Every hint that names such
# options gets them here, so that they name what the model has and hold values that it allows.

USUAL_BATCH: Final = 8
USUAL_LENGTH: Final = 128
USUAL_SIZE: Final = 64
USUAL_IMAGE: Final = 224
USUAL_DETECTED: Final = 640
"""The side of images that detectors are run at: YOLO's imgsz."""
_COLOURS: Final = (1, 3)
_DETECTS: Final = frozenset({"vision.nms", "vision.non_max_suppression"})
_PROMPT: Final = re.compile(r"past(_\w+)?|encoder_seq\w*", re.IGNORECASE)
"""Names of the number of tokens before those of a step of a decoder in exported files: cached ones (past_sequence_length, past_seq_len,
past_decoder_sequence_length), and those of the encoder (encoder_sequence_length)."""
_FEW_SIZES: Final = 16
_NUMBERS = (DTypeKind.INT, DTypeKind.UINT, DTypeKind.BOOL)


_MOST_TRIED: Final = 1 << 10
"""Sizes in a row that are tried for one that the model runs at: multiples of what one axis of an image has in practice."""


def bind_option(symbols: Iterable[SymDim], chosen: Mapping[str, int] | None = None) -> str:
    """`--bind batch=8,seq=128` with a size for every symbol that may have one, chosen or usual; empty where none may."""
    sizes = {str(symbol): (chosen or {}).get(str(symbol), example_size(symbol)) for symbol in symbols if not symbol.is_unknown}
    return f"--bind {','.join(f'{name}={sizes[name]}' for name in sorted(sizes))}" if sizes else ""


def unknown_option(sizes: Iterable[SymDim]) -> str:
    """`--bind '?u0=64'`: numbers for sizes that depend on data; empty without sizes."""
    found = [f"{size}={example_size(size)}" for size in sizes]
    return f"--bind {shlex.quote(','.join(found))}" if found else ""


def over_option(program: Program, symbol: SymDim) -> str:
    """`--over batch=1..16`: some sizes that the symbol may have."""
    low, high = bounds(symbol)
    first = max(low or 1, 1)
    last = first + _FEW_SIZES - 1 if high is None else min(high, first + _FEW_SIZES - 1)
    sizes = list(dict.fromkeys(next_possible(program, str(symbol), size) for size in range(first, last + 1)))
    is_gapless = sizes == list(range(first, last + 1))
    return f"--over {symbol}={f'{first}..{last}' if is_gapless else ','.join(map(str, sizes))}"


def next_possible(program: Program, name: str, size: int) -> int:
    """Return the first size of a symbol, from this one on, that no node contradicts by itself; the size as it is where none is near."""
    rules = [constraint for constraint in program.constraints if constraint.names == {name}]
    for tried in range(size, size + _MOST_TRIED if rules else size):
        sides = [(rule, bind(rule.left, {name: tried}), bind(rule.right, {name: tried})) for rule in rules]
        if all(isinstance(left, int) and isinstance(right, int) and one.holds(left, right) for one, left, right in sides):
            return tried
    return size


def possible_sizes(program: Program, symbols: Iterable[SymDim]) -> dict[str, int]:
    """Return a size to name for each symbol: the only one that it may have, else the first usual one that no node contradicts."""
    usual = {str(symbol): example_size(symbol) for symbol in symbols if not symbol.is_unknown}
    return {name: next_possible(program, name, size) for name, size in usual.items()} | program.only_numbers


def example_size(symbol: SymDim) -> int:
    """Return a size for an example: usual for what the symbol is called, and within its limits."""
    name = str(symbol)
    size = USUAL_BATCH if name in BATCH else USUAL_LENGTH if name in SEQUENCE else USUAL_SIZE
    low, high = bounds(symbol)
    size = size if high is None else min(size, high)
    return max(size, low or 0)


def usual_sizes(program: Program) -> dict[str, int]:
    """Return sizes that models of a kind are run at, for symbols of which nothing else is known: sides of images, and what decoders keep
    of earlier tokens."""
    found: dict[str, int] = {}
    is_detector = any(value.name == "images" for value in program.graph.inputs) or any(node.op in _DETECTS for node in program.graph)
    side = USUAL_DETECTED if is_detector else USUAL_IMAGE
    for value in program.graph.inputs:
        shape = [program.only_numbers.get(str(size), size) for size in value.type.shape or ()]
        if len(shape) == 4 and (value.type.dtype.is_float or value.type.dtype is DType.U8):
            axes = (2, 3) if shape[1] in _COLOURS else (1, 2) if shape[3] in _COLOURS else ()
            found.update((str(shape[axis]), side) for axis in axes if str(shape[axis]) in program.symbols)
    found.update((name, USUAL_LENGTH) for name in program.symbols if _PROMPT.fullmatch(name))
    return found


def input_option(value: Value) -> str:
    """`--input x=f32[1,3,224,224]`: a type for an input of which the file says too little, as an example of how one is written."""
    type_ = value.type
    dtype = type_.dtype if type_.dtype is not DType.UNKNOWN else DType.F32
    shape = type_.shape
    if shape is None:
        sizes = f"1,{USUAL_LENGTH}" if dtype.kind in _NUMBERS else "1,3,224,224"
    else:
        sizes = ",".join(str(example_size(size) if isinstance(size, SymDim) else size) for size in shape)
    return f"--input {shlex.quote(f'{value.name}={dtype}[{sizes}]')}"


def open_input_option(inputs: Iterable[Value], name: str) -> str:
    """`--input x=f32[batch,3,224,224]`: the first input that has such an axis, with the axis open under that name; empty without."""
    axis = 1 if name in SEQUENCE else 0
    for value in inputs:
        type_ = value.type
        if value.name and type_.shape is not None and len(type_.shape) > axis:
            sizes = [str(size) for size in type_.shape]
            sizes[axis] = name
            typed_input = f"{value.name}={type_.dtype}[{','.join(sizes)}]"
            return f"--input {shlex.quote(typed_input)}"
    return ""


def typed(options: str) -> str:
    """Options or a command as hints hold them, so that people and programs see where they begin and end."""
    return f"`{options}`"
