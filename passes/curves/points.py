"""Sizes to evaluate: `batch=1..128`, `batch=1,2,4`, `batch=8..64..8`, and combinations of several symbols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from irscope.amounts import read_size
from irscope.errors import UsageError
from irscope.ir.bind import open_input_option, symbol_named, typed
from irscope.ir.program import Program

MOST_POINTS = 100_000
_EXAMPLE = "for example batch=1..128, batch=1,2,4,8 or batch=8..64..8"


@dataclass(frozen=True)
class Points:
    """Bindings to evaluate, in order."""

    columns: Mapping[str, Sequence[int]]
    """For each symbol its size at every point, by the model's own name."""
    names: Mapping[str, str]
    """What the user calls each symbol."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, int]]:
        symbols = list(self.columns)
        for sizes in zip(*self.columns.values(), strict=True):
            yield dict(zip(symbols, sizes, strict=True))

    def apart(self, program: Program) -> dict[int, Points]:
        """Points at which the formulas of a program do not hold, each by its number."""
        least = {name: size for name, size in program.formulas_from.items() if name in self.columns}
        return {
            number: Points({name: [size] for name, size in sizes.items()}, self.names)
            for number, sizes in enumerate(self if least else ())
            if any(sizes[name] < size for name, size in least.items())
        }


def parse_points(texts: Iterable[str], program: Program) -> Points:
    """Every combination of the sizes that the texts give; the last symbol changes fastest."""
    sizes: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    for name, wanted in sizes_in(texts).items():
        symbol = find_symbol(program, name)
        if symbol in sizes:
            raise UsageError(f"{name!r} is given sizes twice", code="IRS331", hint=_EXAMPLE)
        names[symbol], sizes[symbol] = name, wanted
        for size in sizes[symbol]:
            check_size(program, symbol, size)
    columns = zip(*product(*sizes.values()), strict=True)
    return Points(dict(zip(sizes, map(list, columns), strict=True)), names)


def sizes_in(texts: Iterable[str]) -> dict[str, list[int]]:
    """The sizes that the texts give, by what they call the symbols. Nothing of a model is needed for that."""
    found: dict[str, list[int]] = {}
    for name, spec in _parts(texts):
        if name in found:
            raise UsageError(f"{name!r} is given sizes twice", code="IRS331", hint=_EXAMPLE)
        found[name] = _sizes(name, spec)
    total = prod(map(len, found.values()))
    if total > MOST_POINTS:
        raise UsageError(f"{total:,} combinations of sizes are too many", code="IRS331", hint=f"up to {MOST_POINTS:,} are computed")
    return found


def find_symbol(program: Program, name: str) -> str:
    """The model's own name of a symbol. Raises UsageError, with what there is, for a name that means none."""
    found = symbol_named(program, name)
    if found is not None:
        return found
    if program.symbols:
        raise UsageError(f"there is no symbol {name!r}", code="IRS625", hint=f"symbols: {', '.join(program.symbols)}")
    hint = (
        "export it with dynamic sizes: torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim('batch')},)), or the same "
        "dynamic_shapes with torch.onnx.export"
    )
    # Files of torch.export have the sizes of the export in their nodes.
    option = open_input_option(program.graph.inputs, name) if program.traits.opens_inputs else ""
    if option:
        hint = f"{typed(option)} opens it where the graph allows that; else {hint}"
    raise UsageError(f"there is no symbol {name!r}: every size of this model is a number", code="IRS332", hint=hint)


def check_size(program: Program, symbol: str, size: int) -> None:
    """Raise UsageError for a size that the model does not allow."""
    low, high = program.symbols[symbol].bounds
    if (low is not None and size < low) or (high is not None and size > high):
        limits = f"it is from {low} to {high}" if low is not None and high is not None else "it has limits of its own"
        raise UsageError(f"{symbol} cannot be {size}: {limits}", code="IRS620")


def _parts(texts: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Names with their sizes; a part without a name goes on with the sizes of the one before."""
    for text in texts:
        name = ""
        spec: list[str] = []
        for part in text.split(","):
            before, equals, after = part.rpartition("=")
            if not equals:
                spec.append(part)
                continue
            if name:
                yield name, spec
            name, spec = before.strip(), [after]
        if not name:
            raise UsageError(f"{text!r} does not say which sizes to look at", code="IRS331", hint=_EXAMPLE)
        yield name, spec


def _sizes(name: str, spec: list[str]) -> list[int]:
    found: dict[int, None] = {}
    for part in spec:
        numbers = [size for number in part.split("..") if (size := read_size(number)) is not None]
        if len(numbers) not in (1, 2, 3) or len(numbers) != part.count("..") + 1 or (len(numbers) == 3 and numbers[2] == 0):
            raise UsageError(f"{part!r} is no size or range of sizes for {name!r}", code="IRS331", hint=_EXAMPLE)
        first, last, step = numbers if len(numbers) == 3 else (numbers[0], numbers[-1], 1)
        if (last - first) // step >= MOST_POINTS:
            raise UsageError(f"{part!r} are too many sizes", code="IRS331", hint=f"up to {MOST_POINTS:,} are computed")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    if not found:
        raise UsageError(f"{','.join(spec)!r} holds no size for {name!r}", code="IRS331", hint=_EXAMPLE)
    return list(found)
