"""The options of the command line that make something unknown known: use-def chains are followed back to the model's inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from irscope.ir.bind import bind_option, bindable_elements, input_option, typed
from irscope.ir.dims import SymDim
from irscope.ir.graph import Role, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType
from irscope.ops.values import is_symbolic
from irscope.passes.inference.engine import Inference, Inferred, Reason

_NUMBERS = (1, 0, 2, 8)
"""What is tried for the elements of inputs, of which nothing says what they stand for."""
SHAPES_HINT: Final = f"{typed('irscope run --passes shapes MODEL')} tells what their sizes depend on"


class DependsOnData(Exception):
    """Something that only running the model tells."""


def fill_in(found: Inferred, program: Program) -> None:
    """Write into every reason what makes it known; it stays empty where nothing on the command line does."""
    remedies = _Remedies(found, program)
    for reason in {id(one): one for one in (*found.reasons.values(), *found.rank_reasons.values())}.values():
        reason.fix = remedies.of(reason)


def size_hint(found: Inferred, values: Iterable[Value]) -> str:
    """What makes the sizes of values known, as a hint; the command that tells more where nothing on the command line does."""
    reasons: list[Reason] = []
    for value in values:
        type_ = found.type_of(value)
        if value in found.rank_reasons:
            reasons.append(found.rank_reasons[value])
        elif isinstance(type_, TensorType):
            names = {name for size in type_.shape or () if isinstance(size, SymDim) for name in size.names}
            reasons.extend(found.reasons[name] for name in sorted(names) if name in found.reasons)
    fixes = list(dict.fromkeys(reason.fix for reason in reasons if reason.fix))
    if fixes:
        return f"{typed(fixes[0])} gives {'it a size' if len(fixes) == 1 else 'the first of them a size'}"
    return SHAPES_HINT


def _unknown(found: Inferred, program: Program) -> int:
    """How many sizes of results are not known, one for a result whose rank is not."""
    types = [found.type_of(output) for body in program.bodies() for node in body for output in node.outputs]
    shapes = [type_.shape for type_ in types if isinstance(type_, TensorType)]
    return sum(1 if shape is None else sum(isinstance(size, SymDim) and size.is_unknown for size in shape) for shape in shapes)


class _Remedies:
    """Searches of one model, each distinct one made once."""

    def __init__(self, found: Inferred, program: Program) -> None:
        self._found = found
        self._program = program
        self._elements = bindable_elements(program)
        self._element_names = {str(element) for found_ in self._elements.values() for element in found_}
        self._inputs = frozenset(program.graph.inputs)
        self._made: dict[tuple[tuple[Value, ...], tuple[Value, ...]], str] = {}
        self._tried: dict[frozenset[str], int | None] = {}

    def of(self, reason: Reason) -> str:
        key = reason.values, reason.sizes
        if key not in self._made:
            self._made[key] = self._search(reason) if reason.values or reason.sizes else ""
        return self._made[key]

    def _search(self, reason: Reason) -> str:
        """Breadth first over what the reason depends on: values of some tensors, sizes of others."""
        symbols: dict[str, SymDim] = {}
        untyped: dict[Value, None] = {}
        work = deque([*((value, True) for value in reason.values), *((value, False) for value in reason.sizes)])
        seen = set(work)
        try:
            while work:
                value, wants_values = work.popleft()
                for item in self._in_values(value, symbols) if wants_values else self._in_sizes(value, symbols, untyped):
                    if item not in seen:
                        seen.add(item)
                        work.append(item)
        except DependsOnData:
            return ""
        elements = frozenset(name for name in symbols if name in self._element_names and name not in self._program.symbols)
        number = self._number_for(elements)
        if number is None:
            return ""
        options = [*(input_option(value) for value in untyped), bind_option(symbols.values(), dict.fromkeys(elements, number))]
        return " ".join(filter(None, options))

    def _number_for(self, elements: frozenset[str]) -> int | None:
        """A number for elements of inputs with which more is known: an axis, a length and a flag may not all be the same."""
        if not elements:
            return 0
        if elements not in self._tried:
            self._tried[elements] = next((number for number in _NUMBERS if self._helps(elements, number)), None)
        return self._tried[elements]

    def _helps(self, elements: frozenset[str], number: int) -> bool:
        given = self._program.given
        self._program.given = {**given, **dict.fromkeys(elements, number)}
        try:
            other = Inference(self._program).run()
        finally:
            self._program.given = given
        return len(other.problems) <= len(self._found.problems) and _unknown(other, self._program) < _unknown(self._found, self._program)

    def _in_sizes(self, value: Value, symbols: dict[str, SymDim], untyped: dict[Value, None]) -> Iterator[tuple[Value, bool]]:
        """What the sizes of a value depend on; symbols that its small known values are made of count with them."""
        type_ = self._found.type_of(value)
        if type_.shape is not None:
            yield from self._in_symbols((size for size in type_.shape if isinstance(size, SymDim)), symbols)
        elif value in self._inputs and value.name is not None:
            untyped[value] = None
        elif (reason := self._found.rank_reasons.get(value)) is not None:
            yield from self._in_reason(reason)
        known = self._found.values.get(value)
        if known is not None and is_symbolic(known):
            yield from self._in_symbols((one for one in known.reshape(-1).tolist() if isinstance(one, SymDim)), symbols)

    def _in_values(self, value: Value, symbols: dict[str, SymDim]) -> Iterator[tuple[Value, bool]]:
        """What the elements of a value depend on."""
        known = self._found.values.get(value)
        if known is not None:
            yield from self._in_symbols((one for one in known.reshape(-1).tolist() if isinstance(one, SymDim)), symbols)
        elif value in self._elements:
            symbols.update((str(element), element) for element in self._elements[value])
        elif value.role is Role.TEMPORARY and value.node is not None and not value.node.regions:
            yield from ((operand, True) for operand in value.node.inputs if operand is not None)
        else:
            raise DependsOnData

    def _in_symbols(self, sizes: Iterable[SymDim], symbols: dict[str, SymDim]) -> Iterator[tuple[Value, bool]]:
        for size in sizes:
            for symbol in size.symbols():
                if not symbol.is_unknown:
                    symbols[str(symbol)] = symbol
                elif (reason := self._found.reasons.get(str(symbol))) is not None:
                    yield from self._in_reason(reason)
                else:
                    raise DependsOnData

    @staticmethod
    def _in_reason(reason: Reason) -> Iterator[tuple[Value, bool]]:
        if not reason.values and not reason.sizes:
            raise DependsOnData
        yield from ((value, True) for value in reason.values)
        yield from ((value, False) for value in reason.sizes)
