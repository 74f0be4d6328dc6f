"""Watches operators, tensors and storages while a callable runs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from irscope.devices import Target, target_of
from irscope.errors import LoadError
from irscope.frontends.eager.calls import Calls
from irscope.frontends.eager.frames import Frames
from irscope.frontends.eager.inside import COMPOSITE, SILENT, Inside, is_composite
from irscope.frontends.eager.opensizes import OpenSizes, Size, is_open
from irscope.frontends.eager.record import Kind, Op, Phase, Record, Storage, Tensor, dtype_of, tensors_in
from irscope.frontends.eager.routes import KERNELS, ROUTES, Rerouted
from irscope.frontends.eager.values import Values
from irscope.ir.dims import Dim
from irscope.passkit.settings import Settings

_MOST_OPERATORS = 500_000
_SMALL = 1 << 16
"""Elements of constants that are copied, since the run may change them."""
_TABLES: tuple[tuple[Kind, str], ...] = (("parameter", "_parameters"), ("buffer", "_buffers"))


class Recorder(TorchDispatchMode):
    """Records the operators that run while it is entered.

    `grad` says at which level. Without it operators are seen as Python calls them (`linear`, `scaled_dot_product_attention`); with it
    they are seen below autograd, which splits them (`addmm`), in the forward, the backward and the optimizer alike.
    """

    def __init__(self, module: nn.Module | None = None, *, grad: bool = False, device: str = "", target: Target | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]  # torch's own
        self.target = target or target_of(Settings())
        self.record = Record(grad=grad, device=device)
        self.calls = Calls(module)
        self.record.root = self.calls.root
        self.frames = Frames()
        self.phase: Phase = "forward"
        self.values = Values(self.record)
        self.inside: Inside | None = None
        """Runs decompositions of operators, and guesses data-dependent sizes."""
        self.sizes: OpenSizes | None = None
        """Symbolic sizes."""
        self._storages: dict[int, Storage] = {}
        self._tensors: dict[tuple[Any, ...], Tensor] = {}
        self._deaths = 0
        self._running = False
        self._watching = False
        """Whether the run is in progress: storages freed after its end outlive it."""

    # -- what is there before --------------------------------------------------------------------------------------

    def declare(self, tensor: torch.Tensor, kind: Kind, name: str, real: torch.Tensor | None = None) -> Tensor:
        """Declare a tensor that exists before the run, with its values where they are known."""
        found = self._seen(tensor, kind, name)
        if real is not None:
            self.values.know(found, real)
        return found

    def declare_module(self, module: nn.Module, real: Callable[[torch.Tensor], torch.Tensor | None] = lambda _: None) -> None:
        """Declare parameters and buffers under their own names, in the order in which `Module.to` moves them."""
        seen: set[int] = set()
        for path, inner in module.named_modules():
            prefix = f"{path}." if path else ""
            for kind, table in _TABLES:
                for name, tensor in getattr(inner, table).items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        self.declare(tensor, kind, f"{prefix}{name}", real(tensor))

    def declare_optimizer(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str] | None = None) -> None:
        """Declare the state that an optimizer has by now as "exp_avg of layer.weight"; call it again after the first step."""
        known = names or {}
        for parameter, state in optimizer.state.items():
            owner = known.get(id(parameter), "")
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.declare(value, "state", f"{key} of {owner}" if owner else str(key))

    def mark(self, text: str) -> None:
        """Set a marker."""
        self.record.marks.append((len(self.record.ops), text))

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Set the phase of operators; those that autograd's nodes run belong to the backward in any case."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function and record what it does; what it returns are the outputs."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.record.grad))
            stack.enter_context(self.calls.followed())
            stack.enter_context(self)
            if self.record.grad:
                stack.enter_context(Rerouted(self.target))
            else:
                stack.enter_context(below_autograd())
            self.frames.bottom, self._watching = sys._getframe(), True
            try:
                result = function()
            finally:
                self.frames.bottom, self._watching = None, False
        self.record.outputs = self._flat(result)
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        record = self.record
        node = torch._C._current_autograd_node() if record.grad else None
        number = len(record.ops)
        if number >= _MOST_OPERATORS:
            raise LoadError(
                f"the model runs more than {_MOST_OPERATORS:,} operators",
                code="IRS194",
                hint="capture it with smaller inputs or fewer steps",
            )
        sequence = node._sequence_nr() if node is not None else torch._C._autograd._get_sequence_nr() - 1 if record.grad else None
        op = Op(
            number,
            func,
            self._noted(tuple(args)),
            {key: self._noted(value) for key, value in kwargs.items()},
            (),
            self.calls.current,
            self.frames.here(),
            "backward" if node is not None else self.phase,
            sequence,
            node.name() if node is not None else "",
        )
        record.ops.append(op)
        self._running = True
        try:
            result = self._answered(op, args, kwargs)
        except BaseException:
            # The model may try something else.
            del record.ops[number:]
            raise
        finally:
            self._running = False
        op.results = self._made(result, number)
        self._note_writes(op)
        return result

    def _note_writes(self, op: Op) -> None:
        """Remember which storages changed."""
        if op.func._schema.is_mutable:
            for argument, given in zip(op.func._schema.arguments, op.args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for one in tensors_in((given,)):
                        self.values.wrote(one, op.number)

    def execute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The implementation of an operator. Composites are decomposed as in C++, not by the compilers' decomposition tables."""
        name = func.name().partition(".")[0]
        route = KERNELS.get(name) if self.record.grad else ROUTES.get(name)
        if route is not None:
            found = route(self.target, args, kwargs)
            if found is not NotImplemented:
                return found
        if is_composite(func):
            if self.sizes is not None and func in self.sizes.in_python and COMPOSITE in func.py_kernels:
                return func.py_kernels[COMPOSITE](*args, **kwargs)
            return func._op_dk(COMPOSITE, *args, **kwargs)
        return func(*args, **kwargs)

    def _answered(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Results of an operator; data-dependent ones are computed."""
        try:
            with self.sizes.kept_open(op.func) if self.sizes is not None else nullcontext():
                return self.execute(op.func, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            found = self.values.result(op)
            if found is None:
                if not isinstance(error, DynamicOutputShapeException) or self.inside is None or self.sizes is not None:
                    raise
                return self._guessed(op, args, kwargs, self.inside)
        if self.sizes is not None and not isinstance(found, bool) and self.values.is_of_open_size(op):
            raise LoadError(
                f"what {op.namespace}.{op.name} returns depends on the values of a tensor whose size is open", code="IRS673"
            ) from None
        return tree_map_only(torch.Tensor, lambda real: torch.empty_like(real, device=self.record.device), found)

    def _guessed(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], inside: Inside) -> Any:
        """Types of an operator's results."""
        inside.may_guess = True
        try:
            result = self.execute(op.func, args, kwargs)
        finally:
            inside.may_guess = False
        self.record.guessed.append(op)
        return result

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _noted(self, item: Any) -> Any:
        """Arguments with tensors replaced by their records."""
        if isinstance(item, torch.Tensor):
            return self._seen(item, "constant", "")
        if isinstance(item, tuple | list):
            return tuple([self._noted(part) for part in item])
        if isinstance(item, torch.SymInt):
            return self._dim(item)
        # Other numbers that Python computed from sizes, such as a scale, have their value in this run.
        return item.node.hint if is_open(item) else item

    def _seen(self, tensor: torch.Tensor, kind: Kind, name: str) -> Tensor:
        """The latest record of a tensor; a tensor without one existed before the run."""
        storage = self._storage_of(tensor, None)
        key = self._key(tensor, storage)
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = self._new(tensor, storage, kind, name)
            if kind == "constant":
                self._look_at(tensor, found)
        return found

    def _look_at(self, tensor: torch.Tensor, found: Tensor) -> None:
        """A tensor that Python made of numbers, or that is none of the fake ones, has values."""
        real = tensor.constant if isinstance(tensor, FakeTensor) else tensor if tensor.device.type == "cpu" else None
        if real is not None:
            with torch.utils._python_dispatch._disable_current_modes():
                self.values.know(found, real.clone() if real.numel() <= _SMALL else real)

    def _made(self, item: Any, number: int) -> tuple[Any, ...]:
        """Results, lists flattened, with a new value for each tensor."""
        if isinstance(item, torch.Tensor):
            storage = self._storage_of(item, number)
            made = self._new(item, storage, "result", "")
            made.made_by = number
            self._tensors[self._key(item, storage)] = made
            return (made,)
        if isinstance(item, tuple | list):
            return tuple([part for one in item for part in self._made(one, number)])
        return (item,)

    def _new(self, tensor: torch.Tensor, storage: Storage | None, kind: Kind, name: str) -> Tensor:
        is_strided = tensor.layout is torch.strided
        made = Tensor(
            len(self.record.tensors),
            storage,
            dtype_of(tensor),
            self._dims(tensor.shape),
            self._dims(tensor.stride()) if is_strided else (),
            self._dim(tensor.storage_offset()) if is_strided else 0,
            str(tensor.device),
            kind,
            name,
            trainable=tensor.requires_grad,
        )
        self.record.tensors.append(made)
        return made

    def _storage_of(self, tensor: torch.Tensor, number: int | None) -> Storage | None:
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        found = self._storages.get(key)
        if found is None:
            found = Storage(len(self.record.storages), self._dim(storage.nbytes()), str(tensor.device), number)
            self.record.storages.append(found)
            self._storages[key] = found
            weakref.finalize(storage, self._freed, key, found).atexit = False
        return found

    def _freed(self, key: int, storage: Storage) -> None:
        if self._storages.get(key) is storage:
            del self._storages[key]
        if not self._watching:
            return
        storage.died = len(self.record.ops)
        storage.inside = self._running
        storage.rank = self._deaths
        self._deaths += 1

    def _key(self, tensor: torch.Tensor, storage: Storage | None) -> tuple[Any, ...]:
        """A key that is equal for two views of one storage with the same elements."""
        if storage is None:
            return (id(tensor),)
        return (storage.number, tensor.dtype, self._dim(tensor.storage_offset()), self._dims(tensor.shape), self._dims(tensor.stride()))

    def _dim(self, size: Size) -> Dim:
        if isinstance(size, int):
            return size
        assert self.sizes is not None
        return self.sizes.dim(size)

    def _dims(self, sizes: Sequence[Size]) -> tuple[Dim, ...]:
        return tuple([size if isinstance(size, int) else self._dim(size) for size in sizes])

    def _flat(self, item: Any) -> tuple[Any, ...]:
        """Tensors in what a model returns, in order."""
        return tuple(self._seen(one, "constant", "") for one in tensors_of(item))


@contextmanager
def below_autograd() -> Iterator[None]:
    """Operators are not split by autograd, which has nothing to do."""
    guard = torch._C._AutoDispatchBelowAutograd()
    try:
        yield
    finally:
        del guard


def tensors_of(item: Any) -> Iterator[torch.Tensor]:
    """Tensors in what a model returns, in order: in containers, and in objects such as caches of keys and values; each once."""
    pending, seen = [item], set()
    while pending:
        found = pending.pop()
        if isinstance(found, nn.Module | type) or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, torch.Tensor):
            yield found
        elif isinstance(found, Mapping):
            pending.extend(reversed(list(found.values())))
        elif isinstance(found, tuple | list):
            pending.extend(reversed(found))
        elif hasattr(found, "__dict__") and not callable(found):
            pending.extend(reversed(list(vars(found).values())))
