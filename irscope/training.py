"""A captured training: what ran in each step, and when each piece of memory was made and let go of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from irscope.errors import UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.places import Loc, Scope
from irscope.ops.spec import OpCall

if TYPE_CHECKING:
    from irscope.memory.tape import DeviceRun

Phase: TypeAlias = Literal["forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
Category: TypeAlias = Literal[
    "parameter", "buffer", "input", "gradient", "optimizer state", "communication", "activation", "temporary", "workspace", "tuning"
]
CATEGORIES: tuple[Category, ...] = ("parameter", "buffer", "input", "gradient", "optimizer state", "activation", "temporary", "workspace")
"""`activation` is what the forward made and autograd keeps for the backward, `temporary` what else comes and goes."""
WORLD_CATEGORIES: tuple[Category, ...] = (*CATEGORIES[:5], "communication", *CATEGORIES[5:])
"""The same for one rank of a world: `communication` is what collectives touch and nobody else claims."""

TUNING: Category = "tuning"
"""What a compiler takes in the first step to time candidates of its kernels."""


AUTOCASTS = ("", "bf16", "f16")


@immutable(slots=False)
class Tuning:
    """Changes to a model before it is trained."""

    lora: str = ""
    """Matrices beside frozen layers, as in "r=16,targets=q_proj+v_proj"."""
    store_as: str = ""
    """A scheme in which the frozen weights of linear layers are held."""
    recomputes: bool = False
    """True where the model's own gradient checkpointing is switched on."""


@immutable(slots=False)
class StepSetup:
    """Options of a training step; see `irscope.capture_training`."""

    loss: str | Callable[[Any], Any] | None = None
    optimizer: Any = "sgd"
    """A name, a function of the parameters, or an optimizer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of a named optimizer: fused, foreach, ..."""
    set_to_none: bool = True
    """Effect of zero_grad on gradients: it drops them, or fills them with zeros."""
    accumulate: int = 1
    """Forwards and backwards before the optimizer's step."""
    autocast: str = ""
    """bf16 or f16: the forward runs in mixed precision."""
    answers_zero: bool = False
    """True where device values that the model reads are assumed to be zero."""
    tuning: Tuning | None = None
    compile: bool | Mapping[str, Any] = False
    steps: int = 3
    """The first makes the optimizer's states, the second may still find memory that the first left; the third stands for all later ones."""

    def __post_init__(self) -> None:
        if self.autocast not in AUTOCASTS:
            raise UsageError(f"autocast to {self.autocast!r} is not known", code="IRS373", hint="bf16 or f16")
        if self.accumulate < 1 or self.steps < 1:
            raise UsageError("a step needs at least one forward", code="IRS373")


@immutable
class StepOptions:
    """A training step in words, as the command line and recordings have it."""

    loss: str = ""
    optimizer: str = "sgd"
    fused: bool = False
    foreach: bool | None = None
    set_to_none: bool = True
    accumulate: int = 1
    autocast: str = ""
    lora: str = ""
    store_as: str = ""
    recomputes: bool = False

    def setup(self) -> StepSetup:
        """Return the step that they describe."""
        options: dict[str, object] = {"fused": True} if self.fused else {}
        if self.foreach is not None:
            options["foreach"] = self.foreach
        tuning = Tuning(self.lora, self.store_as, self.recomputes)
        return StepSetup(
            self.loss or None,
            self.optimizer,
            options,
            self.set_to_none,
            self.accumulate,
            self.autocast,
            tuning=tuning if tuning != Tuning() else None,
        )


@mutable(eq=False, slots=True)
class Piece:
    """One piece of memory: a tensor's storage, with all views of it."""

    number: int
    size: int
    name: str
    category: Category
    born: int | None
    """The operator that made it; None for what was there before the first step."""
    died: int | None = None
    """Operators that had begun when it was freed, so it was freed after operator `died - 1`; None while it lives."""
    rank: int = 0
    """The place among all deaths."""
    on_device: bool = True
    """False for the host's memory, such as counters of steps."""


@mutable(eq=False, slots=True)
class StepOp:
    """One operator that ran."""

    number: int
    """Position among the operators of all steps."""
    name: str
    """Where and what, "layer1.0.conv1: convolution": no other operator of the step has this name."""
    source: str
    """The operator's name in PyTorch: "aten::addmm"."""
    call: OpCall | None
    """What the operator's record sees of it; None where irscope has no record."""
    phase: Phase
    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]
    """Pieces that it changes, or makes."""
    makes: tuple[tuple[int, Piece], ...]
    """New pieces, each with the number of the result that has it first."""
    scope: Scope
    """The module call that it belongs to; a backward operator belongs to the one whose forward it differentiates."""
    loc: Loc | None
    sequence: int | None
    """Number by which autograd links a backward operator to the forward one."""
    autograd_node: str
    is_random: bool
    """Whether it draws random numbers: to run it again gives the same only where the generator's state is put back."""
    is_view: bool
    """Whether it only shows a piece otherwise and computes nothing."""


@immutable
class Span:
    """The operators of one step."""

    name: str
    first: int
    end: int
    """One past the last."""
    deaths: int = 0
    """Pieces that were freed before it began."""


def label(scope: Scope, what: str) -> str:
    """Return where and what; several operators may have the same."""
    where = scope.module or scope.cls
    return f"{where}: {what}" if where else what


def piece_name(maker: str, result: int) -> str:
    """Return the name of what an operator makes: the operator's own, with the number of the result for all but the first."""
    return f"{maker}[{result}]" if result else maker


def module_of(parameters: Iterable[str]) -> str:
    """Return the innermost module that holds all of these parameters, given by their names; "" is the model itself."""
    paths = [name.split(".")[:-1] for name in parameters]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared)


@immutable(slots=False)
class LiveStep:
    """A live module and what its step was made with."""

    module: object
    args: Sequence[object]
    kwargs: Mapping[str, object]
    loss: object
    """A name, a function of what the module returns, or None for the usual one."""


@mutable
class Trace:
    """Some training steps, the last of which stands for all that follow."""

    model: str
    ops: list[StepOp]
    pieces: list[Piece]
    steps: list[Span]
    resident: list[Piece]
    """What is on the device before the first step, in the order in which it comes there."""
    deaths_in_all: int = 0
    """Pieces that were freed by the end of the last step; others only went with the capture."""
    optimizer: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    """How the step was made: loss, autocast, accumulation, set_to_none."""
    live: LiveStep | None = None
    """What was captured; None for a graph from a file."""
    measured: Mapping[int, float] = field(default_factory=dict)
    """Seconds that operators took in a recording, by their number; empty where nobody gave one."""
    measured_on: str = ""
    """The device of the recording."""
    requests: DeviceRun[Piece] | None = None
    """What the steps asked of one device's allocator, where what runs is known for that device alone: an operator is a step of the tape."""

    @property
    def categories(self) -> tuple[str, ...]:
        """Return what memory is for, in order."""
        more = set() if self.requests is None else set(self.requests.tape.kinds) - set(CATEGORIES)
        return (*CATEGORIES, *sorted(more))

    @property
    def steady(self) -> Span:
        """The step that stands for all later ones."""
        return self.steps[-1]

    def in_step(self, span: Span) -> Sequence[StepOp]:
        """Return the operators of one step."""
        return self.ops[span.first : span.end]

    @cached_property
    def deaths(self) -> dict[int, list[Piece]]:
        """Pieces by the number of operators that had begun when they were freed, in order."""
        found: dict[int, list[Piece]] = {}
        for piece in sorted((one for one in self.pieces if one.died is not None), key=lambda one: one.rank):
            assert piece.died is not None
            found.setdefault(piece.died, []).append(piece)
        return found

    def of(self, category: Category) -> Iterator[Piece]:
        """Pieces on the device of one category."""
        return (piece for piece in self.pieces if piece.category == category and piece.on_device)
