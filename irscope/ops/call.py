"""What an operator's rules see of one use of it: types, known values and attributes, but no graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from irscope.ir.dims import Dim, SymDim, bounds, equal, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.types import Shape, TensorType, Type

if TYPE_CHECKING:
    import numpy as np

    from irscope.ops.spec import OpSpec

Known: TypeAlias = "np.ndarray[Any, Any]"
"""Values of a small tensor. An array of objects holds Dims: integers that may be symbolic."""


class RuleError(Exception):
    """The operands contradict the operator: the model is wrong, or irscope's rule is."""


SIZES: Final = "*"
"""What decides an unknown size, where that is sizes of operands that are not known as numbers."""


class RuleContext:
    """Where rules record what they had to assume and why a size cannot be known.

    This one only keeps lists, which is what tests and one-off calls need; the `shapes` pass has one that knows the node.
    """

    def __init__(self) -> None:
        self.assumptions: list[tuple[Dim, Dim, str]] = []
        self.reasons: dict[str, tuple[str, str]] = {}
        self.sizes: set[SymDim] = set()
        """Sizes of axes whose bounds alone do not tell that they are not negative."""
        self._fresh = 0

    def fresh(self, reason: str, decided_by: str, lo: int | None, hi: int | None) -> SymDim:
        """A new unknown size (or integer), with the reason for it and what decides it."""
        name = f"u{self._fresh}"
        self._fresh += 1
        made = unknown(name, lo, hi)
        self.reasons[str(made)] = (reason, decided_by)
        return made

    def assume(self, left: Dim, right: Dim, why: str) -> None:
        """Record that two sizes were taken as equal."""
        self.assumptions.append((left, right, why))

    def note_size(self, size: Dim) -> Dim:
        """Remember a formula as the size of an axis: where the model runs it is not negative, whatever its bounds say."""
        if isinstance(size, SymDim) and (size.bounds[0] is None or size.bounds[0] < 0):
            self.sizes.add(size)
        return size

    def value_of(self, call: OpCall, index: int) -> Known | None:
        """Values of an operand where the call has none; the `shapes` pass makes symbols for small integer tensors."""
        return None

    def explain(self, reason: str, decided_by: str) -> None:
        """Say why the result's rank or element type stays unknown, and what decides it."""


class OpCall:
    """One use of an operator."""

    __slots__ = ("attrs", "context", "parameters", "results", "source", "spec", "types", "values")

    def __init__(
        self,
        spec: OpSpec,
        types: Sequence[Type | None],
        attrs: Mapping[str, Attr],
        values: Sequence[Known | None] = (),
        results: Sequence[Type] = (),
        context: RuleContext | None = None,
        source: str = "",
        parameters: frozenset[int] = frozenset(),
    ) -> None:
        self.spec = spec
        self.types = types
        """Types of the operands; None where an optional one is absent. Rules for memory want them with strides."""
        self.attrs = attrs
        self.values = values if values else (None,) * len(types)
        """Known values of the operands; None where they are not known."""
        self.results = results
        """Types of the results: inferred ones for cost and evaluate rules; for shape rules what the file declared, whose count binds."""
        self.context = context if context is not None else RuleContext()
        self.source = source
        """The operator's name in the file, for example "aten::linear"; only rules for memory read it."""
        self.parameters = parameters
        """Operands that are the model's own parameters, which PyTorch treats apart from other tensors even where it needs no gradient."""

    # -- operands ----------------------------------------------------------------------------------------------

    def given(self, name: str) -> bool:
        """Whether the operand is present, or the attribute set."""
        index = self.spec.operand_index.get(name)
        if index is not None and index < len(self.types) and self.types[index] is not None:
            return True
        return self.attrs.get(name) is not None

    def tensor(self, name: str) -> TensorType:
        """The type of a tensor operand that must be there."""
        index = self.spec.operand_index[name]
        type_ = self.types[index] if index < len(self.types) else None
        if isinstance(type_, TensorType):
            return type_
        raise RuleError(f"operand {name!r} of {self.spec.name} is {'absent' if type_ is None else f'{type_}, not a tensor'}")

    def maybe(self, name: str) -> TensorType | None:
        """The type of a tensor operand that may be absent."""
        index = self.spec.operand_index[name]
        type_ = self.types[index] if index < len(self.types) else None
        return type_ if isinstance(type_, TensorType) else None

    def rest(self, name: str) -> list[TensorType]:
        """Types of the operands of a list."""
        tensors = [type_ for type_ in self.types[self.spec.operand_index[name] :] if type_ is not None]
        if not all(isinstance(type_, TensorType) for type_ in tensors):
            raise RuleError(f"{name!r} of {self.spec.name} holds something that is no tensor")
        return tensors  # type: ignore[return-value]  # just checked

    def made(self, index: int = 0) -> TensorType:
        """The type of a result that must be a tensor."""
        type_ = self.results[index]
        if isinstance(type_, TensorType):
            return type_
        raise RuleError(f"a result of {self.spec.name} is {type_}, not a tensor")

    def shape(self, name: str) -> Shape:
        """Sizes of a tensor operand, None where its rank is unknown."""
        return self.tensor(name).shape

    def dtype(self, name: str) -> DType:
        return self.tensor(name).dtype

    def value(self, name: str) -> Known | None:
        """Values of an operand where they are known; elements may be symbolic (then the array holds objects)."""
        index = self.spec.operand_index[name]
        if index >= len(self.types) or self.types[index] is None:
            return None
        found = self.values[index]
        return found if found is not None else self.context.value_of(self, index)

    def fit(self, *types: Type) -> tuple[Type, ...]:
        """The first of these types, as many as the call has results; by default those that every call has."""
        required = sum(not result.optional and not result.variadic for result in self.spec.schema.results)
        return types[: len(self.results) or required or len(types)]

    # -- attributes --------------------------------------------------------------------------------------------

    def attr(self, name: str) -> Attr:
        """An attribute, or its default from the schema."""
        found = self.attrs.get(name)
        return found if found is not None else self.spec.defaults.get(name)

    def int_attr(self, name: str) -> int:
        value = self.attr(name)
        if isinstance(value, int):
            return int(value)
        raise RuleError(f"attribute {name!r} of {self.spec.name} must be an integer, not {value!r}")

    def dims(self, name: str) -> tuple[Dim, ...] | None:
        """A list of integers given as an attribute or as an operand; None where it is absent or its values are unknown."""
        attr = self.attrs.get(name)
        if attr is not None:
            return tuple(attr) if isinstance(attr, tuple | list) else (attr,)
        if name in self.spec.operand_index:
            known = self.value(name)
            if known is not None:
                return tuple(self._whole(name, item) for item in known.reshape(-1).tolist())
            if self.given(name):
                return None
        default = self.spec.defaults.get(name)
        return tuple(default) if isinstance(default, tuple) else None

    def _whole(self, name: str, item: object) -> Dim:
        """A size; a few operators take it as a float."""
        if isinstance(item, int | SymDim):
            return item
        if isinstance(item, float) and item.is_integer():
            return int(item)
        raise RuleError(f"{name!r} of {self.spec.name} holds {item!r}, not a whole number")

    def dim(self, name: str) -> Dim | None:
        """A single integer given as an attribute or as an operand."""
        found = self.dims(name)
        if found is None:
            default = self.spec.defaults.get(name)
            return default if isinstance(default, int) else None
        if len(found) != 1:
            raise RuleError(f"{name!r} of {self.spec.name} must be one number, not {len(found)}")
        return found[0]

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Like `dims`, but None also where one of them is symbolic."""
        found = self.dims(name)
        if found is None or any(isinstance(dim, SymDim) for dim in found):
            return None
        return tuple(int(dim) for dim in found if not isinstance(dim, SymDim))

    def axis(self, value: Dim, rank: int) -> int:
        """An axis counted from the front."""
        if isinstance(value, SymDim) or not -rank <= value < rank:
            raise RuleError(f"axis {value} of {self.spec.name} is outside a tensor of {rank} axes")
        return int(value) % rank if rank else 0

    # -- sizes -------------------------------------------------------------------------------------------------

    def unknown(self, reason: str, decided_by: str = "", lo: int | None = 0, hi: Dim | None = None) -> SymDim:
        """A new unknown size, with its reason.

        `decided_by` names the operands whose values decide it ("k", "boxes,scores"), or is SIZES where the sizes of operands do. From
        that the `shapes` pass tells which option of the command line makes it known. Empty: only running the model tells.
        """
        return self.context.fresh(reason, decided_by, lo, bounds(hi)[1] if hi is not None else None)

    def same(self, left: Dim, right: Dim, what: str) -> Dim:
        """Two sizes that the operator requires to be equal: proven, refuted (RuleError) or recorded as an assumption."""
        verdict = equal(left, right)
        if verdict is False:
            raise RuleError(f"{self.spec.name}: {what}: {left} is not {right}")
        if verdict is None:
            self.context.assume(left, right, f"{self.spec.name}: {what}")
            if isinstance(left, SymDim) and (not isinstance(right, SymDim) or (left.is_unknown and not right.is_unknown)):
                return right
        return left


Infer: TypeAlias = Callable[[OpCall], "Type | Sequence[Type]"]
Evaluate: TypeAlias = Callable[[OpCall], "Known | Sequence[Known | None] | None"]
