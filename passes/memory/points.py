"""Sizes of symbols: the points that an option names, peaks of a timeline at each of them, and the largest size at which something fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from irscope.amounts import read_size
from irscope.errors import PassError, UsageError
from irscope.immutable import immutable
from irscope.ir.bind import asked_and_bound, known_symbols, open_input_option, symbol_named, typed
from irscope.ir.dim_arrays import Evaluator, Numbers
from irscope.ir.dims import Dim, SymDim, bind, only_size
from irscope.ir.program import Constraint, Program, Relation, Runtime
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import SHAPES_HINT, size_hint
from irscope.passes.lifetimes.timeline import Timeline

MOST_POINTS = 100_000
_MOST_LOOKED_AT = 1 << 16
"""Sizes in a row that are looked at for one that no node contradicts: multiples of what one axis of an image has in practice."""
_SIZES_AT_ONCE = 1 << 10
_EXAMPLE = "for example batch=1..128, batch=1,2,4,8 or batch=8..64..8"


@immutable(slots=False)
class Points:
    """Bindings to evaluate, in order."""

    columns: Mapping[str, Sequence[int]]
    """For each symbol its size at every point, by the model's own name."""
    names: Mapping[str, str]
    """The user's name of each symbol."""

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
    """Return every combination of the sizes that the texts give; the last symbol changes fastest."""
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
    points = Points(dict(zip(sizes, map(list, columns), strict=True)), names)
    broken = first_broken(program, points)
    if broken is not None:
        point, why = broken
        told = ", ".join(f"{names[symbol]}={size}" for symbol, size in point.items())
        raise UsageError(f"the model does not run at {told}: {why}", code="IRS620", hint=_possible(program, points))
    return points


def _possible(program: Program, points: Points) -> str:
    """Return sizes at which it runs, where one symbol is open: those that were named, else the smallest."""
    if len(points.columns) != 1:
        return ""
    ((symbol, sizes),) = points.columns.items()
    allowed = Allowed(program, symbol, {})
    possible = [size for size in sizes if allowed.next(size - 1) == size] or [allowed.low]
    return f"it runs at {points.names[symbol]}={','.join(map(str, possible))}"


def first_broken(program: Program, points: Points) -> tuple[dict[str, int], str] | None:
    """Return the first point that a node contradicts, with what it requires; None where there is none."""
    at = Evaluator(points.columns)
    first: tuple[int, str] | None = None
    for constraint in program.constraints:
        if not constraint.names <= points.columns.keys():
            continue
        left, right = (at.at(size).tolist() for size in (constraint.left, constraint.right))
        number = next((number for number, pair in enumerate(zip(left, right, strict=True)) if not constraint.holds(*pair)), None)
        if number is not None and (first is None or number < first[0]):
            sides = ((constraint.left, left[number]), (constraint.right, right[number]))
            first = number, ", ".join([str(constraint), *(f"{side} = {size}" for side, size in sides if isinstance(side, SymDim))])
    return None if first is None else (list(points)[first[0]], first[1])


class Allowed:
    """The sizes of one symbol at which no node contradicts a model, with sizes for others."""

    def __init__(self, program: Program, symbol: str, others: Mapping[str, int]) -> None:
        """Raise UsageError where there is none."""
        only = program.only_sizes.get(symbol)
        if only is not None and only.size is None:
            raise UsageError(only.text(symbol), code="IRS620")
        known = {symbol, *others}
        self._symbol, self._others = symbol, others
        self._rules = [constraint for constraint in program.constraints if symbol in constraint.names and constraint.names <= known]
        low, high = program.symbols[symbol].bounds
        self.low = max(1, low or 0)
        for rule in self._rules:
            solved = only_size(bind(rule.left, others), bind(rule.right, others)) if rule.relation is not Relation.FITS else None
            if solved is not None and solved[1] is not None:
                high = min(solved[1], solved[1] if high is None else high)
        self.high = high
        first = self.next(self.low - 1)
        if first is None:
            why = next((str(rule) for rule in self._rules if not self._hold(rule, range(self.low, self.low + 1)).all()), "")
            raise UsageError(f"no size of {symbol} is possible: {why}", code="IRS620")
        self.low = first

    def _hold(self, rule: Constraint, sizes: range) -> np.ndarray:
        at = Evaluator({self._symbol: sizes, **{name: [size] * len(sizes) for name, size in self._others.items()}})
        pairs = zip(at.at(rule.left).tolist(), at.at(rule.right).tolist(), strict=True)
        return np.array([rule.holds(left, right) for left, right in pairs], bool)

    def _first(self, sizes: range) -> int | None:
        """Return the first of some sizes in a row that is possible."""
        for start in range(0, min(len(sizes), _MOST_LOOKED_AT), _SIZES_AT_ONCE):
            piece = sizes[start : start + _SIZES_AT_ONCE]
            possible = np.logical_and.reduce([self._hold(rule, piece) for rule in self._rules]) if self._rules else np.ones(1, bool)
            if possible.any():
                return piece[int(possible.argmax())]
        return None

    def next(self, size: int) -> int | None:
        """Return the next larger size; None where there is none, or none near."""
        end = size + 1 + _MOST_LOOKED_AT
        return self._first(range(size + 1, end if self.high is None else min(end, self.high + 1)))

    def at_most(self, size: int) -> int:
        """Return the largest size that is not larger, but the smallest of all for one below it."""
        found = self._first(range(size, self.low - 1, -1)) if self._rules and size > self.low else max(size, self.low)
        return self.low if found is None else found


def sizes_in(texts: Iterable[str]) -> dict[str, list[int]]:
    """Return the sizes that the texts give, by what they call the symbols. Nothing of a model is needed for that."""
    sizes: dict[str, list[int]] = {}
    for name, spec in _parts(texts):
        if name in sizes:
            raise UsageError(f"{name!r} is given sizes twice", code="IRS331", hint=_EXAMPLE)
        sizes[name] = _sizes(name, spec)
    total = prod(map(len, sizes.values()))
    if total > MOST_POINTS:
        raise UsageError(f"{total:,} combinations of sizes are too many", code="IRS331", hint=f"up to {MOST_POINTS:,} are computed")
    return sizes


def find_symbol(program: Program, name: str) -> str:
    """Return the model's own name of a symbol. Raises UsageError, with what there is, for a name that means none."""
    found = symbol_named(program, name)
    if found is not None:
        return found
    if name in program.bound:
        raise asked_and_bound(program.bound[name])
    if not program.has_graph:
        hint = "`irscope MODEL` says what the weights take, and what the file says of the rest"
        raise UsageError(
            "the file holds weights without a graph: what runs, and with it every size, is not known", code="IRS332", hint=hint
        )
    if program.symbols:
        raise UsageError(f"there is no symbol {name!r}", code="IRS625", hint=f"symbols: {', '.join(known_symbols(program))}")
    hint = (
        "export it with dynamic sizes: torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim('batch')},)), or the same "
        "dynamic_shapes with torch.onnx.export"
    )
    if program.traits.runtime is Runtime.XLA:
        shape = "jax.ShapeDtypeStruct(jax.export.symbolic_shape('batch, 256'), 'float32')"
        hint = f"export it with a symbol: jax.export.export(jax.jit(f))({shape})"
    # Files of torch.export have the sizes of the export in their nodes.
    option = open_input_option(program.graph.inputs, name) if program.traits.opens_inputs else ""
    if option:
        hint = f"{typed(option)} opens it where the graph allows that; else {hint}"
    raise UsageError(f"there is no symbol {name!r}: every size of this model is a number", code="IRS332", hint=hint)


def check_size(program: Program, symbol: str, size: int) -> None:
    """Raise UsageError for a size that the model does not allow."""
    only = program.only_sizes.get(symbol)
    if only is not None and size != only.size:
        raise UsageError(f"{symbol} cannot be {size}: {only.text('it')}", code="IRS620")
    low, high = program.symbols[symbol].bounds
    if (low is not None and size < low) or (high is not None and size > high):
        limits = f"it is from {low} to {high}" if low is not None and high is not None else "it has limits of its own"
        raise UsageError(f"{symbol} cannot be {size}: {limits}", code="IRS620")


def _parts(texts: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the names with their sizes; a part without a name goes on with the sizes of the one before."""
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
            raise UsageError(f"{text!r} does not say which sizes to compute", code="IRS331", hint=_EXAMPLE)
        yield name, spec


def _sizes(name: str, spec: list[str]) -> list[int]:
    sizes: dict[int, None] = {}
    for part in spec:
        numbers = [size for number in part.split("..") if (size := read_size(number)) is not None]
        if len(numbers) not in (1, 2, 3) or len(numbers) != part.count("..") + 1 or (len(numbers) == 3 and numbers[2] == 0):
            raise UsageError(f"{part!r} is not a size or range of sizes for {name!r}", code="IRS331", hint=_EXAMPLE)
        first, last, step = numbers if len(numbers) == 3 else (numbers[0], numbers[-1], 1)
        if (last - first) // step >= MOST_POINTS:
            raise UsageError(f"{part!r} are too many sizes", code="IRS331", hint=f"up to {MOST_POINTS:,} are computed")
        sizes.update(dict.fromkeys(range(first, last + 1, step)))
    if not sizes:
        raise UsageError(f"{','.join(spec)!r} holds no size for {name!r}", code="IRS331", hint=_EXAMPLE)
    return list(sizes)


# Peaks of a timeline at many bindings of its symbols.

_AT_ONCE = 1 << 22
"""Heights computed at once, to bound memory."""


@immutable(slots=False)
class Peaks:
    """Peaks of a timeline at each point."""

    activation: list[int]
    """Most bytes alive at once."""
    step: list[int]
    """The first step that has them."""
    resident: list[int]
    """Bytes of parameters, buffers and inputs, which are there all the time."""

    @property
    def total(self) -> list[int]:
        """Bytes as they are requested: all of the above."""
        return [peak + resident for peak, resident in zip(self.activation, self.resident, strict=True)]


def peaks_at(timeline: Timeline, points: Points) -> Peaks:
    """Peaks at every point, from one timeline. Raises PassError where sizes stay unknown whatever is bound."""
    check_known(timeline)
    evaluator = Evaluator(points.columns)
    sizes: dict[Dim, int] = {}
    rows = [sizes.setdefault(one.size, len(sizes)) for one in timeline.ranges]
    inside = [sizes.setdefault(size, len(sizes)) for size in timeline.inside.values()]
    numbers = evaluator.rows(sizes)
    heights = _Heights(timeline, np.array(rows, dtype=np.intp), np.array(inside, dtype=np.intp))
    chunk = max(1, _AT_ONCE // (len(timeline.steps) + 1))
    activation: list[int] = []
    steps: list[int] = []
    for start in range(0, evaluator.count, chunk):
        alive = heights.alive(numbers[:, start : start + chunk])
        if len(alive):
            activation.extend(alive.max(axis=0).tolist())
            steps.extend(alive.argmax(axis=0).tolist())
        else:
            activation.extend([0] * alive.shape[1])
            steps.extend([0] * alive.shape[1])
    resident = sum((evaluator.at(size) for size in timeline.resident.values() if size is not None), evaluator.at(0))
    return Peaks(activation, steps, resident.tolist())


def check_known(timeline: Timeline, types: Inferred | None = None) -> None:
    """Raise PassError where some tensor has no size that symbols could give; what `types` are known tells what gives it one."""
    unknown = [role for role, size in timeline.resident.items() if size is None]
    if timeline.unsized or unknown:
        what = f"{len(timeline.unsized)} tensors" if timeline.unsized else f"some of the model's {unknown[0]}s"
        raise PassError(
            f"{what} have sizes that no binding of symbols makes known, so the peak is unknown",
            code="IRS333",
            hint=SHAPES_HINT if types is None else size_hint(types, timeline.unsized),
        )


class _Heights:
    """The steps at which storages are born and die; their sizes are given later."""

    def __init__(self, timeline: Timeline, rows: Numbers, inside: Numbers) -> None:
        self.steps = len(timeline.steps)
        self.rows = rows
        self.inside = inside
        self.inside_steps = np.array(list(timeline.inside), dtype=np.intp)
        self.born = np.array([one.born for one in timeline.ranges], dtype=np.intp)
        self.gone = np.array([min(one.dies + 1, self.steps) for one in timeline.ranges], dtype=np.intp)

    def alive(self, sizes: Numbers) -> Numbers:
        """Return the bytes alive at each step: a row for each step, a column for each binding."""
        change = np.zeros((self.steps + 1, sizes.shape[1]), dtype=sizes.dtype)
        if len(self.rows):
            np.add.at(change, self.born, sizes[self.rows])
            np.subtract.at(change, self.gone, sizes[self.rows])
        alive: Numbers = np.cumsum(change[: self.steps], axis=0)
        if len(self.inside):
            np.add.at(alive, self.inside_steps, sizes[self.inside])
        return alive


# The largest size at which something fits, by bisection, and by sampling where more may fit above what does not.

_FEW = 64
_DOUBLINGS = 62
_SCANNED = 1 << 20

Heights = Callable[[Sequence[int]], Sequence[int]]
"""Bytes needed at each of some sizes."""


@immutable(slots=False)
class Largest:
    """Result of the search for the largest size that fits."""

    size: int | None
    """The largest size that fits; None where not even the smallest does."""
    limit: str
    """"memory", or "range" where every size that the model allows fits."""
    exhaustive: bool = True
    """True where every larger size is known not to fit."""
    failing: tuple[int, ...] = ()
    """Smaller sizes that were seen not to fit."""
    looks: int = 0
    """Number of sizes that were measured."""


def largest_by_formula(heights: Heights, memory: int, low: int, high: int | None, rising: bool) -> Largest:
    """Return the largest size whose bytes fit. Where they may fall as sizes grow, all sizes are evaluated, up to a limit."""
    top = _first_too_large(heights, memory, low, high)
    if top is None:
        return Largest(high, "range")
    if rising:
        return _refined(heights, memory, low, top)
    last = top * 2 if high is None else min(top * 2, high)
    scanned = range(max(low, last - _SCANNED), last + 1)
    fitting = [size for size, bytes_ in zip(scanned, heights(scanned), strict=True) if bytes_ <= memory]
    size = fitting[-1] if fitting else None
    return Largest(size, "range" if size == high and high is not None else "memory", exhaustive=last == high)


def _first_too_large(heights: Heights, memory: int, low: int, high: int | None) -> int | None:
    """Exponential search for a size that does not fit; None where all up to the last do."""
    sizes = [low, *(low + (1 << power) for power in range(_DOUBLINGS))]
    if high is not None:
        sizes = [*(size for size in sizes if size < high), high]
    return next((size for size, bytes_ in zip(sizes, heights(sizes), strict=True) if bytes_ > memory), None)


def _refined(heights: Heights, memory: int, low: int, top: int) -> Largest:
    fits, fails = low - 1, top
    while fails - fits > 1:
        step = max(1, (fails - fits) // _FEW)
        sizes = list(range(fits + step, fails, step))
        for size, bytes_ in zip(sizes, heights(sizes), strict=True):
            if bytes_ > memory:
                fails = size
                break
            fits = size
    return Largest(fits if fits >= low else None, "memory")


def largest_by_measuring(measure: Callable[[int], int], memory: int, bound: int, low: int, high: int | None, looks: int) -> Largest:
    """Return the largest size whose measured bytes fit, with no more than so many looks.

    What an allocator reserves may fall where sizes grow: a size that fits may lie above many that do not. So those from the first that
    fails up to `bound`, above which nothing fits, are looked at too: all of them, or as many as there are looks, evenly spread.
    """
    tried: dict[int, bool] = {}

    def fits(size: int) -> bool:
        if size not in tried:
            tried[size] = measure(size) <= memory
        return tried[size]

    best = _boundary(measure, fits, memory, bound, low, high)
    left = max(0, looks - len(tried))
    above = range(best + 2, bound + 1)
    exhaustive = best == high or len(above) <= left
    for size in above[::-1] if exhaustive else above[:: len(above) // -max(1, left)]:
        if fits(size):
            best = size if exhaustive else _bisected(fits, size, next(one for one in sorted((*tried, bound + 1)) if one > size))
            break
    failing = tuple(sorted(size for size, fitted in tried.items() if size < best and not fitted))
    return Largest(best if best >= low else None, "range" if best == high else "memory", exhaustive, failing, len(tried))


def _boundary(measure: Callable[[int], int], fits: Callable[[int], bool], memory: int, guess: int, low: int, high: int | None) -> int:
    """Bisection for a size that fits and whose successor does not; one less than the smallest where that does not fit."""
    if fits(guess):
        best, step = guess, 1
        while (high is None or best < high) and fits(following := best + step if high is None else min(best + step, high)):
            best, step = following, step * 2
        fails = best + step if high is None else min(best + step, high)
        return best if best == high else _bisected(fits, best, fails)
    if guess <= low or not fits(low):
        return low - 1
    fits_at, fails_at = low, guess
    smallest = measure(low)
    # Bytes are nearly a straight line, so two looks usually bracket the place within a few sizes.
    slope = max(1, measure(guess) - smallest)
    around = low + (memory - smallest) * (guess - low) // slope
    for size in (around, around - 1, around + 2):
        if fits_at < size < fails_at:
            if fits(size):
                fits_at = size
            else:
                fails_at = size
    return _bisected(fits, fits_at, fails_at)


def _bisected(fits: Callable[[int], bool], good: int, bad: int) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good
