"""The record of one operator, everything irscope knows about it, and what its rules see of one use of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, Unpack, cast, overload

from irscope.devices.catalogue import Target
from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, bounds, equal, total_of, unknown
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr
from irscope.ir.program import Relation
from irscope.ir.types import Layout, Shape, TensorType, Type
from irscope.ops.cost import Cost
from irscope.ops.facts import CodedOperand, Control, Factors, FusedAttention, OpRole
from irscope.ops.reals import Real, trunc
from irscope.ops.schema import AliasMark, Schema, parse_schema

if TYPE_CHECKING:
    import numpy as np

# One use of an operator: types, known values and attributes, but no graph.

Known: TypeAlias = "np.ndarray[Any, Any]"
"""Values of a small tensor. An array of objects holds Dims: integers that may be symbolic."""


class RuleError(Exception):
    """The operands contradict the operator: the model is wrong, or irscope's rule is."""


SIZES: Final = "*"
"""Mark of an unknown size that is decided by sizes of operands that are not known as numbers."""


class RuleContext:
    """The record of what rules had to assume, and of why a size cannot be known.

    This one only keeps lists, which is what tests and one-off calls need; the `shapes` pass has one that knows the node.
    """

    def __init__(self) -> None:
        self.assumptions: list[tuple[Dim, Dim, str]] = []
        self.reasons: dict[str, tuple[str, str]] = {}
        self.sizes: set[SymDim] = set()
        """Sizes of axes whose bounds alone do not tell that they are not negative."""
        self._fresh = 0

    def fresh(self, reason: str, decided_by: str, lo: int | None, hi: int | None) -> Dim:
        """Return a new unknown size (or integer), with the reason for it and what decides it; the `shapes` pass takes numbers that users
        give."""
        name = f"u{self._fresh}"
        self._fresh += 1
        made = unknown(name, lo, hi)
        self.reasons[str(made)] = (reason, decided_by)
        return made

    def assume(self, left: Dim, right: Dim, why: str, relation: Relation = Relation.EQUAL) -> None:
        """Record how two sizes are related wherever the model runs."""
        if relation is not Relation.FITS:
            self.assumptions.append((left, right, why))

    def note_size(self, size: Dim) -> Dim:
        """Remember a formula as the size of an axis: where the model runs it is not negative, whatever its bounds say."""
        if isinstance(size, SymDim) and (size.bounds[0] is None or size.bounds[0] < 0):
            self.sizes.add(size)
        return size

    def value_of(self, call: OpCall, index: int) -> Known | None:
        """Return values of an operand where the call has none; the `shapes` pass makes symbols for small integer tensors."""
        return None

    def explain(self, reason: str, decided_by: str) -> None:
        """Say why the result's rank or element type stays unknown, and what decides it."""


class WatchedValues(Sequence["Known | None"]):
    """Known elements of operands, and whether a rule looked at them: where none did, its answer holds for all elements."""

    __slots__ = ("is_looked_at", "items")

    def __init__(self, items: list[Known | None]) -> None:
        self.items = items
        self.is_looked_at = False

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Known | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Known | None]: ...
    def __getitem__(self, index: int | slice) -> Known | Sequence[Known | None] | None:
        self.is_looked_at = True
        return self.items[index]


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
        """Return whether the operand is present, or the attribute set."""
        index = self.spec.operand_index.get(name)
        if index is not None and index < len(self.types) and self.types[index] is not None:
            return True
        return self.attrs.get(name) is not None

    def tensor(self, name: str) -> TensorType:
        """Return the type of a tensor operand that must be there."""
        index = self.spec.operand_index[name]
        type_ = self.types[index] if index < len(self.types) else None
        if isinstance(type_, TensorType):
            return type_
        raise RuleError(f"operand {name!r} of {self.spec.name} is {'absent' if type_ is None else f'{type_}, not a tensor'}")

    def maybe(self, name: str) -> TensorType | None:
        """Return the type of a tensor operand that may be absent."""
        index = self.spec.operand_index[name]
        type_ = self.types[index] if index < len(self.types) else None
        return type_ if isinstance(type_, TensorType) else None

    def rest(self, name: str) -> list[TensorType]:
        """Return the types of the operands of a list."""
        tensors = [type_ for type_ in self.types[self.spec.operand_index[name] :] if type_ is not None]
        if not all(isinstance(type_, TensorType) for type_ in tensors):
            raise RuleError(f"{name!r} of {self.spec.name} holds something that is not a tensor")
        return tensors  # type: ignore[return-value]  # just checked

    def made(self, index: int = 0) -> TensorType:
        """Return the type of a result that must be a tensor."""
        type_ = self.results[index]
        if isinstance(type_, TensorType):
            return type_
        raise RuleError(f"a result of {self.spec.name} is {type_}, not a tensor")

    def shape(self, name: str) -> Shape:
        """Return sizes of a tensor operand, None where its rank is unknown."""
        return self.tensor(name).shape

    def dtype(self, name: str) -> DType:
        return self.tensor(name).dtype

    def value(self, name: str) -> Known | None:
        """Return values of an operand where they are known; elements may be symbolic (then the array holds objects)."""
        index = self.spec.operand_index[name]
        if index >= len(self.types) or self.types[index] is None:
            return None
        found = self.values[index]
        return found if found is not None else self.context.value_of(self, index)

    def fit(self, *types: Type) -> tuple[Type, ...]:
        """Return the first of these types, as many as the call has results; by default those that every call has."""
        required = sum(not result.optional and not result.variadic for result in self.spec.schema.results)
        return types[: len(self.results) or required or len(types)]

    # -- attributes --------------------------------------------------------------------------------------------

    def attr(self, name: str) -> Attr:
        """Return an attribute, or its default from the schema."""
        found = self.attrs.get(name)
        return found if found is not None else self.spec.defaults.get(name)

    def int_attr(self, name: str) -> int:
        value = self.attr(name)
        if isinstance(value, int):
            return int(value)
        raise RuleError(f"attribute {name!r} of {self.spec.name} must be an integer, not {value!r}")

    def dims(self, name: str) -> tuple[Dim, ...] | None:
        """Return a list of integers given as an attribute or as an operand; None where it is absent or its values are unknown."""
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
        """Return a size; a few operators take it as a float."""
        if isinstance(item, int | SymDim):
            return item
        if isinstance(item, float) and item.is_integer():
            return int(item)
        if isinstance(item, Real):
            return self.truncated(item)
        raise RuleError(f"{name!r} of {self.spec.name} holds {item!r}, not a whole number")

    def dim(self, name: str) -> Dim | None:
        """Return a single integer given as an attribute or as an operand."""
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
        """Return an axis counted from the front."""
        if isinstance(value, SymDim) or not -rank <= value < rank:
            raise RuleError(f"axis {value} of {self.spec.name} is outside a tensor of {rank} axes")
        return int(value) % rank if rank else 0

    # -- sizes -------------------------------------------------------------------------------------------------

    def unknown(self, reason: str, decided_by: str = "", lo: int | None = 0, hi: Dim | None = None) -> Dim:
        """Return a new unknown size, with its reason.

        `decided_by` names the operands whose values decide it ("k", "boxes,scores"), or is SIZES where the sizes of operands do. From
        that the `shapes` pass tells which option of the command line makes it known. Empty: only running the model tells.
        """
        return self.context.fresh(reason, decided_by, lo, bounds(hi)[1] if hi is not None else None)

    def truncated(self, real: Real) -> Dim:
        """Return a float made of sizes as a whole number, rounded toward zero."""
        self.note_limits(real)
        if not real.is_known:
            among = ", ".join(map(str, real.sizes[:4]))
            return self.unknown(f"floats computed from {among} are rounded" if among else "it is computed in floats", SIZES, None)
        return trunc(real).over

    def note_limits(self, *numbers: Real) -> None:
        """Record up to which sizes floats are what is said of them."""
        for real in numbers:
            for dim, limit in real.limits if real.is_known else ():
                why = f"at most: floats of {limit.bit_length() - 1} bits hold every whole number only up to there"
                self.context.assume(dim, limit, why, Relation.AT_MOST)

    def same(self, left: Dim, right: Dim, what: str) -> Dim:
        """Return two sizes that the operator requires to be equal: proven, refuted (RuleError) or recorded as an assumption."""
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


# What PyTorch's kernels ask the CUDA allocator for, in order.

TakeKind: TypeAlias = Literal["temporary", "workspace"]
GemmPath: TypeAlias = Literal["cublas", "lt"]


@immutable
class Take:
    """So many bytes are asked for; a later `Drop` of the same label gives them back."""

    label: str
    size: Dim
    kind: TakeKind = "temporary"


@immutable
class Drop:
    """Release of the memory that a `Take` of this call took."""

    label: str


@immutable
class Result:
    """Place of a result's storage in the order; a result that shares another's storage needs none."""

    index: int
    size: Dim | None = None
    """Bytes of the storage where they are more than the result's own elements (a padded result)."""


@immutable
class Gemm:
    """A matrix product by cuBLAS or cuBLASLt; its workspace is a policy of the torch version, not of the operator."""

    path: GemmPath


@immutable
class Unknown:
    """Temporary memory whose size cannot be known from the file."""

    label: str
    reason: str
    low: Dim = 0
    high: Dim | None = None
    """None: no bound is known."""


@immutable
class Workspace:
    """A library's workspace for one kernel: the library chooses the size on the device, a model tells what that may be."""

    label: str
    size: Dim
    most: Dim
    reason: str


MemoryEvent: TypeAlias = Take | Drop | Result | Gemm | Unknown | Workspace
Temporaries: TypeAlias = "Callable[[OpCall, Target], Sequence[MemoryEvent]]"


_NO_KERNELS = ("onnx", "prim")
"""Namespaces of sources that are no kernels of PyTorch's: any other names an operator that torch dispatches, a package's own among them."""


class NeedsNumbers(Exception):
    """Raised by a rule whose choice of kernels depends on a size that is a formula or unknown."""


# How PyTorch lays out results; the rules are in irscope.ops.layouts.


@immutable
class StridesRule:
    """Strides of a result from those of the operands."""

    of: Callable[[OpCall, int], Layout]
    """For the result of this number; operands have their types with strides. None: the order of the axes."""
    from_plain: bool = True
    """True where results may lie otherwise than in the order of the axes even where all operands do."""


# Lists whose elements are known one by one.


class Item(NamedTuple):
    """One element of a list."""

    type: Type
    known: Known | None = None


class Lists(Protocol):
    """Input of a rule for lists: the call, with the elements of its operands where they are known, and results to refine."""

    @property
    def call(self) -> OpCall:
        """Return the call; its results are the types that the operator's own rule inferred."""
        ...

    @property
    def items(self) -> tuple[Item, ...] | None:
        """Elements of the first operand; None where they are not known one by one."""
        ...

    def operand(self, index: int) -> Item | None:
        """Return an operand as the element of a list; None where it is absent."""
        ...

    def join(self, types: Sequence[Type]) -> Type:
        """Return what the types of several elements have in common."""
        ...

    def is_list(self, items: tuple[Item, ...]) -> None:
        """Let the first result be the list of these elements."""
        ...

    def is_operand(self) -> None:
        """Let the first result be the list that the first operand is."""
        ...

    def is_item(self, index: int, item: Item) -> None:
        """Let a result be that element."""
        ...

    def is_any(self, index: int) -> None:
        """Let a result be one element of which nobody knows which: its unknown sizes are its own."""
        ...


ListRule: TypeAlias = Callable[[Lists], None]


# What ONNX Runtime's CPU kernels do with memory, where it is not the usual: a new buffer for each result and nothing else.


class KernelPacking(NamedTuple):
    """A weight that a session packs anew for a kernel."""

    operand: int
    nbytes: int
    form: object = None
    """Equal where two kernels of one operator pack the same weight alike."""
    meanwhile: int = 0
    """Bytes that packing takes besides."""
    shared: bool = True
    """True where a second kernel takes what the first has packed."""
    reserved: bool = True
    """True where it comes straight from the device, and not from the arena."""


Packs: TypeAlias = "Callable[[OpCall, Sequence[bool]], Sequence[KernelPacking]]"
"""Weights that a session packs anew for the kernel, given which operands are weights."""
Takes: TypeAlias = "Callable[[OpCall, int], int | tuple[int, ...]]"
"""Bytes that the kernel takes while it runs besides its results, given the number of threads; of each request where there are several."""


@immutable
class OrtKernel:
    """Kernels of ONNX Runtime, by the operator's name in the file, that an operator of irscope stands for."""

    names: tuple[str, ...]
    alias: bool = False
    """Result 0 always has the buffer of operand 0."""
    in_place: tuple[int, ...] = ()
    """Result 0 takes the buffer of the first of these operands that is read for the last time and has its shape and element size."""
    packs: Packs | None = None
    takes: Takes | None = None
    takes_first: bool = False
    """True where it does so before it asks for its results."""


class Family(enum.Enum):
    """The kind of work that an operator does."""

    ELEMENTWISE = "elementwise"
    COMPARISON = "comparison"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    POOLING = "pooling"
    NORMALIZATION = "normalization"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    VIEW = "view"
    MOVE = "move"
    INDEXING = "indexing"
    CREATION = "creation"
    RANDOM = "random"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    QUANTIZATION = "quantization"
    SORTING = "sorting"
    CONTROL = "control"
    SEQUENCE = "sequence"
    SIGNAL = "signal"
    TEXT = "text"
    LEARNING = "learning"


class Absent(enum.Enum):
    """A rule that an operator knowingly does not have."""

    UNKNOWN = "unknown"
    """There is no rule: results count as unknown, never as zero."""
    CONTROL = "control"
    """The pass that walks the graph handles the operator's regions itself."""


CostRule: TypeAlias = Callable[[OpCall], Cost]
Lookup: TypeAlias = Callable[[OpCall], "bool | None"]


@immutable
class AliasRule:
    """Result and operand that share storage: always, or (`may`) depending on the call."""

    result: int
    operand: int
    may: bool = False


@immutable(slots=False)
class OpSpec:
    """One operator. Build it with `op()` in a family's module. Passes ask its fields and never compare names of operators."""

    declared: str
    """The schema as it is written: of hundreds of operators a model has a few dozen, whose schemas are read when they are asked for."""
    family: Family
    """Kind of work that it does; many rules have a default by family."""
    infer: Infer | Absent
    """Types of the results from those of the operands."""
    cost: CostRule | Absent
    """FLOPs and bytes of one call."""
    evaluate: Evaluate | None = None
    """Values of the results where those of the operands are known; only small tensors come here."""
    needs_values: bool = True
    """False where `evaluate` wants no more than the operands' types (shape queries, fills)."""
    shares: Lookup | None = None
    """Decides a `(a?)` mark for one call: True shares, False copies, None cannot be known."""
    has_effect: bool = False
    """The node matters even when nothing reads its results (asserts, prints, writes)."""
    random: bool = False
    """Two calls with equal operands may differ, so it is never folded."""
    summary: str = ""
    """One sentence for `irscope ops`."""
    temporaries: Temporaries | None = None
    """Memory that PyTorch's CUDA kernels take besides the results, in order; None: nothing."""
    intermediates: Callable[[OpCall], Dim] | None = None
    """Bytes of the tensors that PyTorch's composite form of the operator makes and drops on any device; None: nothing."""
    ort: tuple[OrtKernel, ...] = ()
    """Kernels of ONNX Runtime that do something special with memory; empty: a new buffer for each result and nothing else."""
    strides: StridesRule | None = None
    """Layout of the results in PyTorch. None: as the family does (`irscope.ops.layouts`), else in the order of the axes."""
    control: Control | None = None
    """Which bodies a call runs; None: none."""
    items: ListRule | None = None
    """Elements of a list among the results, where those of the operands are known; None: the operator has nothing to do with lists."""
    roles: frozenset[OpRole] = frozenset()
    """Parts that it plays in patterns; none by default: no pattern has it as such a part."""
    factors: Factors | None = None
    """For matrix products: the operands that are multiplied. None: it multiplies no matrices, or several."""
    attention: FusedAttention | None = None
    """For operators that do a whole attention: which operands are queries, keys and mask."""
    gated_unit: str = ""
    """For activation functions: the name of the gated unit that has it; empty: no unit is known."""
    codes: CodedOperand | None = None
    """The operand that is a quantized weight; None: it takes none, or only as numbers."""

    @cached_property
    def schema(self) -> Schema:
        """Name, operands, attributes and results, with what shares storage and what is written."""
        return parse_schema(self.declared)

    @cached_property
    def name(self) -> str:
        return self.declared.partition("(")[0].strip()

    @cached_property
    def operand_index(self) -> dict[str, int]:
        """Places of operands by their names."""
        return {param.name: index for index, param in enumerate(self.schema.operands)}

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """Places of the operands that every use has."""
        operands = enumerate(self.schema.operands)
        return tuple(place for place, one in operands if one.kind == "Tensor" and not one.optional and not one.variadic)

    @cached_property
    def defaults(self) -> dict[str, Attr]:
        """Attributes that have a default."""
        return {param.name: cast("Attr", param.default) for param in self.schema.attrs if param.default is not None}

    @cached_property
    def aliases(self) -> tuple[AliasRule, ...]:
        """Return which results share storage with which operands."""
        return tuple(
            AliasRule(r, o, AliasMark.MAY in (result.mark, operand.mark))
            for r, result in enumerate(self.schema.results)
            for o, operand in enumerate(self.schema.operands)
            if result.alias and result.alias == operand.alias
        )

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """Operands that the operator writes whatever its in-place mark says (running statistics)."""
        return tuple(i for i, param in enumerate(self.schema.operands) if param.mark is AliasMark.WRITES)

    def intermediate_bytes(self, call: OpCall) -> Dim:
        """Return bytes of what the operator's composite form makes and drops inside one call, as PyTorch runs it on any device."""
        if self.intermediates is None or not call.source.startswith("aten::"):
            return 0
        tensors = [type_ for type_ in (*call.types, *call.results) if isinstance(type_, TensorType)]
        if not call.results or any(type_.shape is None for type_ in tensors) or not isinstance(call.results[0], TensorType):
            return 0
        return self.intermediates(call)

    def infer_types(self, call: OpCall) -> tuple[Type, ...]:
        """Return types of the results by the operator's rule, always as a tuple."""
        if isinstance(self.infer, Absent):
            return tuple(call.results)
        found = self.infer(call)
        return (found,) if isinstance(found, Type) else tuple(found)

    def cost_of(self, call: OpCall) -> Cost | None:
        """Return the cost of one call, or None where something it depends on is unknown or the call contradicts itself."""
        if isinstance(self.cost, Absent):
            return None
        try:
            cost = self.cost(call)
        except Exception:  # operands of a model that contradicts itself have sizes that no rule expects
            return None
        read = cost.read if cost.read is not None else _traffic(call.types)
        written = cost.written if cost.written is not None else _traffic(call.results)
        return Cost(cost.matmul, cost.elementwise, cost.transcendental, cost.reduction, cost.move, cost.macs, cost.masked, read, written)


class UnknownCost(Exception):
    """Raised by a cost rule that lacks a size: the cost is unknown, not zero."""


def numel(type_: Type | None) -> Dim:
    """Return elements of a tensor for a cost rule; raises UnknownCost where the rank is unknown."""
    count = None if type_ is None else type_.numel
    if count is None:
        raise UnknownCost
    return count


def sizes(type_: Type | None) -> tuple[Dim, ...]:
    """Shape of a tensor for a cost rule; raises UnknownCost where the rank is unknown."""
    shape = None if type_ is None else type_.shape
    if shape is None:
        raise UnknownCost
    return shape


def _traffic(types: Sequence[Type | None]) -> Dim | None:
    return total_of(0 if type_ is None else type_.tensor_bytes for type_ in types)


class Facts(TypedDict, total=False):
    """Further fields of a record, as keywords of `op()` and of what makes records of one kind; `OpSpec` tells what each means."""

    temporaries: Temporaries | None
    intermediates: Callable[[OpCall], Dim] | None
    ort: tuple[OrtKernel, ...]
    strides: StridesRule
    control: Control
    items: ListRule
    roles: frozenset[OpRole]
    factors: Factors
    attention: FusedAttention
    gated_unit: str
    codes: CodedOperand


def op(
    schema: str,
    family: Family,
    *,
    infer: Infer | Absent,
    cost: CostRule | Absent,
    evaluate: Evaluate | None = None,
    needs_values: bool = True,
    shares: Lookup | None = None,
    has_effect: bool = False,
    random: bool = False,
    summary: str,
    **facts: Unpack[Facts],
) -> OpSpec:
    """Make an operator's record from its schema text and rules."""
    return OpSpec(schema, family, infer, cost, evaluate, needs_values, shares, has_effect, random, summary, **facts)


def memory_events(call: OpCall, target: Target) -> tuple[MemoryEvent, ...]:
    """Return what one call asks the allocator for, in order. Without a rule: its results, nothing else.

    Results that share storage may be named too: the replay knows which results have storage of their own.
    """
    rule = call.spec.temporaries
    namespace, is_torch_op, _ = call.source.partition("::")
    if rule is None or not is_torch_op or namespace in _NO_KERNELS:
        return results_only(call)
    try:
        return tuple(rule(call, target))
    except NeedsNumbers as needed:
        return (*results_only(call), Unknown("temporaries", str(needed)))
    except Exception:  # operands of a model that contradicts itself have sizes that no rule expects
        return (*results_only(call), Unknown("temporaries", "the operands do not fit the operator"))


def results_only(call: OpCall) -> tuple[MemoryEvent, ...]:
    """Return the results in order."""
    return tuple(Result(index) for index, type_ in enumerate(call.results) if isinstance(type_, TensorType))
